// Lines from each query on the left to the keys on the right; only what is seen is drawn.

const HIGH = 25; // pixels of a row
const SIDE = 190; // most pixels of a column of tokens
const FAINT = 0.04; // of the largest weight: below, a line of an unheld token is not drawn
const BEYOND = 16; // lines of a held token that lead out of sight
const MOST_LINES = 10; // of a query, while none is held

const lineView = {
  draw: null,
  map: null,

  build() {
    this.canvas = this.canvas || sheet($("lines"), (...seen) => this.map && this.paint(...seen));
  },

  show(map) {
    this.map = map;
    this.canvas.size(10, HIGH * Math.max(map.n, map.m) + 16);
  },

  sides(wide) {
    const side = Math.min(SIDE, wide * 0.32);
    const span = Math.min(wide, 760), left = (wide - span) / 2;
    return { left: left + side, right: left + span - side, side };
  },

  paint(context, x, y, wide, high) {
    const { map } = this, block = map.block, { left, right, side } = this.sides(wide);
    const seen = focus(), top = (row) => row * HIGH + HIGH / 2 + 8 - y;
    const first = Math.max(Math.floor((y - 8) / HIGH), 0), last = Math.ceil((y + high) / HIGH);
    context.textBaseline = "middle";
    const ofQuery = seen && seen.way === "from" && seen.row !== null;
    const ofKey = seen && seen.way === "to" && seen.column !== null;
    const line = (row, column, alpha) => {
      context.globalAlpha = alpha;
      context.lineWidth = 1 + 3 * share(weight(map, row, column), map.most);
      context.beginPath();
      context.moveTo(left + 8, top(row));
      context.bezierCurveTo(left + 8 + (right - left) * 0.4, top(row), right - 8 - (right - left) * 0.4, top(column),
        right - 8, top(column));
      context.stroke();
    };
    context.strokeStyle = colour("accent");
    if (ofQuery || ofKey) this.ofToken(line, map, seen, first, last);
    else for (let row = first; row < Math.min(last, map.n); row++) this.strongest(line, map, row);
    context.globalAlpha = 1;
    for (let at = first; at < last; at++) {
      if (at < map.n) this.label(context, map, seen, "row", at, left, top(at), side);
      if (at < map.m) this.label(context, map, seen, "column", at, right, top(at), side);
    }
  },

  // All lines of one token to what is seen, and the strongest to what lies beyond.
  ofToken(line, map, { row, column }, first, last) {
    const { values } = profile(map), cells = Array.from(values.keys()).sort((one, other) => values[one] - values[other]);
    const strong = values[cells[Math.max(cells.length - BEYOND, 0)]];
    for (const at of cells) {
      if ((at < first || at >= last) && values[at] < strong) continue;
      if (values[at] > 0) line(row ?? at, column ?? at, 0.05 + 0.95 * share(values[at], map.most));
    }
  },

  strongest(line, map, row) {
    const order = Array.from({ length: map.m }, (_, column) => column);
    order.sort((one, other) => weight(map, row, other) - weight(map, row, one));
    for (const column of order.slice(0, MOST_LINES)) {
      const value = weight(map, row, column);
      if (value > FAINT * map.most) line(row, column, 0.08 + 0.8 * share(value, map.most));
    }
  },

  label(context, map, seen, kind, at, x, y, side) {
    const token = page.tokens[(kind === "row" ? map.block.queries : map.block.keys)[0] + at];
    const held = seen && seen[kind] === at && (seen.way === "from") === (kind === "row");
    const answers = seen && (seen.way === "from") === (kind === "column") && seen[kind === "row" ? "column" : "row"] !== null;
    const value = answers ? (kind === "column" ? weight(map, seen.row, at) : weight(map, at, seen.column)) : 0;
    const outward = kind === "row" ? -1 : 1;
    context.font = `${held ? "650 " : ""}${token.kind === "mark" ? 11.5 : 14}px ${FONT}`;
    const text = shortened(context, token.text, side - (answers ? 66 : 14)), length = context.measureText(text).width;
    if (held || answers) {
      const rgb = shade(value, map.most);
      context.fillStyle = held ? colour("wash") : css(rgb);
      context.beginPath();
      context.roundRect(kind === "row" ? x - length - 10 : x, y - 10.5, length + 10, 21, 4);
      context.fill();
      context.fillStyle = held ? colour("held") : inkOn(rgb);
    } else context.fillStyle = colour(token.kind === "mark" ? "soft" : "ink");
    context.textAlign = kind === "row" ? "right" : "left";
    context.fillText(text, x + 5 * outward, y + 0.5);
    if (!answers) return;
    context.font = `11.5px ${FONT}`;
    context.fillStyle = colour("soft");
    context.fillText(number(value), x + (length + 17) * outward, y + 0.5);
  },

  at(event) {
    const box = $("lines"), edges = box.getBoundingClientRect();
    const { left, right } = this.sides(box.clientWidth);
    const x = event.clientX - edges.left, row = Math.floor((event.clientY - edges.top + box.scrollTop - 8) / HIGH);
    if (x <= left + 12 && row >= 0 && row < this.map.n) return [this.map.block.queries[0] + row, "from"];
    if (x >= right - 12 && row >= 0 && row < this.map.m) return [this.map.block.keys[0] + row, "to"];
    return null;
  },

  listen() {
    const box = $("lines");
    box.addEventListener("pointermove", (event) => hover(...(this.at(event) || [null])));
    box.addEventListener("pointerleave", () => hover(null));
    box.addEventListener("click", (event) => hold(...(this.at(event) || [null])));
    box.addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        const way = event.key === "ArrowLeft" ? "from" : "to", range = this.map.block[way === "from" ? "queries" : "keys"];
        hold(Math.min(Math.max(state.token, range[0]), range[1] - 1), way);
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        stepToken(event.key === "ArrowUp" ? -1 : 1);
      } else return;
      event.preventDefault();
      const range = this.map.block[state.way === "from" ? "queries" : "keys"];
      bringIntoSight(box, (state.token - range[0]) * HIGH, HIGH + 16);
    });
  },
};

function bringIntoSight(box, top, size) {
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + size > box.scrollTop + box.clientHeight) box.scrollTop = top + size - box.clientHeight;
}
