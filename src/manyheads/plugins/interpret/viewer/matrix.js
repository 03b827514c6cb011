// Queries down, keys across, a cell for each pair; the head's picture is one pixel a cell, enlarged as it is drawn.

const LEFT = 128, ABOVE = 92; // most pixels of the labels
const LABELLED = 10; // pixels of a cell from which tokens stand beside it
const CELLS = [1, 2, 4, 7, 10, 14, 20, 28, 40];

const matrixView = {
  map: null,
  image: null,

  build() {
    this.canvas = this.canvas || sheet($("matrix"), (...seen) => this.map && this.paint(...seen));
  },

  show(map) {
    if (map !== this.map || this.drawn !== `${state.shade} ${ramp[255]}`) {
      const values = Float32Array.from(map.cells, (cell) => cell / STEPS);
      this.image = picture(values, map.n, map.m, map.most);
      this.map = map;
      this.drawn = `${state.shade} ${ramp[255]}`;
    }
    this.measure();
    const cell = this.cell();
    this.canvas.size(this.left() + map.m * cell + 6, this.above() + map.n * cell + 6);
  },

  measure() {
    const context = make("canvas").getContext("2d"), { queries, keys } = this.map.block;
    context.font = `650 13.5px ${FONT}`;
    const widest = (range) =>
      Math.max(...page.tokens.slice(...range).map((token) => context.measureText(token.text).width));
    this.wide = Math.min(widest(queries) + 16, LEFT);
    this.high = Math.min(widest(keys) + 16, ABOVE);
  },

  // Cells as large as fit, but large enough to be labelled; `state.cell` is what was chosen instead.
  cell() {
    if (state.cell) return state.cell;
    return Math.min(Math.max(this.fit(), 14), 40);
  },

  fit() {
    const box = $("matrix"), { n, m } = this.map;
    return Math.min((box.clientWidth - this.wide - 30) / m, (box.clientHeight - this.high - 8) / n);
  },

  left() {
    return this.cell() < LABELLED ? 6 : this.wide;
  },

  above() {
    return this.cell() < LABELLED ? 6 : this.high;
  },

  paint(context, x, y, wide, high) {
    const { map } = this, cell = this.cell(), left = this.left(), above = this.above();
    const firstRow = Math.max(Math.floor(y / cell), 0), firstColumn = Math.max(Math.floor(x / cell), 0);
    const endRow = Math.min(Math.ceil((y + high - above) / cell), map.n);
    const endColumn = Math.min(Math.ceil((x + wide - left) / cell), map.m);
    const seen = { firstRow, firstColumn, endRow, endColumn, cell, left: left - x, above: above - y };
    context.save();
    context.beginPath();
    context.rect(left, above, wide - left, high - above);
    context.clip();
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(this.image, firstColumn, firstRow, endColumn - firstColumn, endRow - firstRow,
      seen.left + firstColumn * cell, seen.above + firstRow * cell, (endColumn - firstColumn) * cell,
      (endRow - firstRow) * cell);
    if (cell >= LABELLED) this.rule(context, seen);
    this.cross(context, seen);
    context.restore();
    if (cell >= LABELLED) this.labels(context, seen, left, above);
    if (state.hover) this.tip(context, seen, wide);
  },

  // What a cell says, beside it.
  tip(context, { cell, left, above }, wide) {
    const at = focus(), { map } = this;
    if (at.row === null || at.column === null) return;
    const from = page.tokens[map.block.queries[0] + at.row].text, to = page.tokens[map.block.keys[0] + at.column].text;
    context.font = `12.5px ${FONT}`;
    const text = `${shortened(context, from, 120)} → ${shortened(context, to, 120)}   ${number(weight(map, at.row, at.column))}`;
    const length = context.measureText(text).width + 16;
    const x = Math.max(Math.min(left + (at.column + 1) * cell + 8, wide - length - 4), 4);
    const y = Math.max(above + at.row * cell - 30, 2);
    context.fillStyle = colour("ink");
    context.beginPath();
    context.roundRect(x, y, length, 25, 5);
    context.fill();
    context.fillStyle = colour("card");
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, x + 8, y + 13);
  },

  rule(context, { firstRow, firstColumn, endRow, endColumn, cell, left, above }) {
    context.fillStyle = colour("card");
    for (let row = firstRow; row <= endRow; row++)
      context.fillRect(left + firstColumn * cell, above + row * cell - 0.5, (endColumn - firstColumn) * cell, 1);
    for (let column = firstColumn; column <= endColumn; column++)
      context.fillRect(left + column * cell - 0.5, above + firstRow * cell, 1, (endRow - firstRow) * cell);
  },

  cross(context, { cell, left, above }) {
    const at = focus(), { n, m } = this.map;
    if (!at) return;
    context.strokeStyle = colour("held");
    context.lineWidth = 1.5;
    if (at.row !== null && at.column !== null) context.strokeRect(left + at.column * cell, above + at.row * cell, cell, cell);
    context.globalAlpha = at.row !== null && at.column !== null ? 0.45 : 1;
    if (at.row !== null) context.strokeRect(left, above + at.row * cell, m * cell, cell);
    if (at.column !== null) context.strokeRect(left + at.column * cell, above, cell, n * cell);
    context.globalAlpha = 1;
  },

  labels(context, seen, left, above) {
    const { block } = this.map, at = focus(), { cell } = seen;
    context.textBaseline = "middle";
    const write = (token, marked, room) => {
      const size = Math.min(Math.max(cell * 0.72, 9.5), token.kind === "mark" ? 11.5 : 13.5);
      context.font = `${marked ? "650 " : ""}${size}px ${FONT}`;
      context.fillStyle = colour(marked ? "held" : token.kind === "mark" ? "soft" : "ink");
      return shortened(context, token.text, room);
    };
    context.save();
    context.beginPath();
    context.rect(0, above, left, 1e6);
    context.clip();
    context.textAlign = "right";
    for (let row = seen.firstRow; row < seen.endRow; row++) {
      const text = write(page.tokens[block.queries[0] + row], at && at.row === row, left - 12);
      context.fillText(text, left - 8, seen.above + (row + 0.5) * cell);
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(left - 4, 0, 1e6, above);
    context.clip();
    context.textAlign = "left";
    const steep = cell < 26;
    for (let column = seen.firstColumn; column < seen.endColumn; column++) {
      const text = write(page.tokens[block.keys[0] + column], at && at.column === column, above - 10);
      context.save();
      context.translate(seen.left + (column + 0.5) * cell, above - 7);
      context.rotate(steep ? -Math.PI / 2 : -Math.PI / 4);
      context.fillText(text, 0, 0);
      context.restore();
    }
    context.restore();
  },

  at(event) {
    const box = $("matrix"), edges = box.getBoundingClientRect(), cell = this.cell(), { n, m, block } = this.map;
    const x = event.clientX - edges.left, y = event.clientY - edges.top;
    if (x > box.clientWidth || y > box.clientHeight) return null;
    const row = Math.floor((y - this.above() + box.scrollTop) / cell);
    const column = Math.floor((x - this.left() + box.scrollLeft) / cell);
    const inRow = row >= 0 && row < n && y > this.above(), inColumn = column >= 0 && column < m && x > this.left();
    if (inRow && inColumn) return [block.queries[0] + row, "from", block.keys[0] + column];
    if (inRow && x <= this.left()) return [block.queries[0] + row, "from"];
    if (inColumn && y <= this.above()) return [block.keys[0] + column, "to"];
    return null;
  },

  listen() {
    const box = $("matrix");
    box.addEventListener("pointermove", (event) => hover(...(this.at(event) || [null])));
    box.addEventListener("pointerleave", () => hover(null));
    box.addEventListener("click", (event) => hold(...(this.at(event) || [null]).slice(0, 2)));
    box.addEventListener("keydown", (event) => this.key(event, box));
  },

  key(event, box) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" && state.hover) hold(state.hover.token, state.hover.way);
    if (!step) return;
    event.preventDefault();
    const at = focus() || {}, { n, m, block } = this.map, cell = this.cell();
    const row = Math.min(Math.max((at.row ?? 0) + step[0], 0), n - 1);
    const column = Math.min(Math.max((at.column ?? 0) + step[1], 0), m - 1);
    hover(block.queries[0] + row, "from", block.keys[0] + column);
    bringIntoSight(box, row * cell, cell + this.above());
    if (column * cell < box.scrollLeft) box.scrollLeft = column * cell;
    const right = (column + 1) * cell + this.left();
    if (right > box.scrollLeft + box.clientWidth) box.scrollLeft = right - box.clientWidth;
  },
};
