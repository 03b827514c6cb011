// What is chosen, who is told, and the readout.

const LISTED = 12; // weights in the readout
const VIEWS = { text: textView, lines: lineView, matrix: matrixView };
let current = null; // the map that is shown

// The query and key the page is about: rows and columns of the map, null where it is the whole row or column.
function focus() {
  if (!current) return null;
  const { token, way, key } = state.hover || { token: state.token, way: state.way };
  if (token === null) return null;
  const { queries, keys } = current.block;
  const inside = (at, [start, end]) => (at >= start && at < end ? at - start : null);
  if (way === "from") return { way, token, row: inside(token, queries), column: key === undefined ? null : key - keys[0] };
  return { way, token, row: null, column: inside(token, keys) };
}

// The weights of the token in question: those it gives, or those it gets; `start` is the token of the first.
function profile(map) {
  const at = focus(), { queries, keys } = map.block;
  if (!at || (at.way === "from" ? at.row : at.column) === null) return { token: null, start: 0, values: [] };
  const values = at.way === "from"
    ? Array.from({ length: map.m }, (_, column) => weight(map, at.row, column))
    : Array.from({ length: map.n }, (_, row) => weight(map, row, at.column));
  return { token: at.token, way: at.way, start: at.way === "from" ? keys[0] : queries[0], values };
}

function hover(token, way, key) {
  const before = JSON.stringify(state.hover);
  state.hover = token === null || token === undefined ? null : { token, way: wayOf(token, way || state.way), key };
  if (JSON.stringify(state.hover) !== before) redraw();
}

function hold(token, way) {
  if (token === null || token === undefined) return;
  state.token = token;
  state.way = wayOf(token, way || state.way);
  state.hover = null;
  remember();
  redraw();
  options();
}

// Where queries and keys are different texts, a token can only be the one or the other.
function wayOf(token, way) {
  const { queries, keys } = page.blocks[state.block];
  const asks = token >= queries[0] && token < queries[1], answers = token >= keys[0] && token < keys[1];
  return asks && answers ? way : answers ? "to" : "from";
}

function stepToken(step) {
  const range = page.blocks[state.block][state.way === "from" ? "queries" : "keys"];
  hold(Math.min(Math.max(state.token + step, range[0]), range[1] - 1), state.way);
}

async function choose(block, head) {
  Object.assign(state, { block, head, hover: null });
  const { queries, keys, heads } = page.blocks[block];
  if (state.token < Math.min(queries[0], keys[0]) || state.token >= Math.max(queries[1], keys[1])) state.token = queries[0];
  state.way = wayOf(state.token, state.way);
  const map = await mapOf(block, head);
  if (state.block !== block || state.head !== head) return; // another was chosen meanwhile
  const rebuilt = !current || current.block !== map.block;
  current = map;
  if (rebuilt) textView.build();
  $("chosen").textContent = `${page.blocks[block].name}, head ${heads[head].head}`;
  document.querySelectorAll("#grid button").forEach((one) => {
    const its = one.dataset.at === `${block} ${head}`;
    one.setAttribute("aria-pressed", its);
    one.tabIndex = its ? 0 : -1;
  });
  remember();
  show();
}

function show() {
  for (const [name, view] of Object.entries(VIEWS)) {
    $(name).hidden = name !== state.view;
    if (name === state.view && view.show) view.show(current);
  }
  options();
  redraw();
}

function redraw() {
  if (!current) return;
  const view = VIEWS[state.view];
  if (view.canvas) view.canvas.again();
  else view.draw(current);
  readout();
}

function readout() {
  const seen = profile(current), key = focus()?.column ?? null;
  const list = $("weights");
  if (seen.token === null) {
    $("asked").textContent = "Point at a token";
    list.replaceChildren();
    $("rest").textContent = "";
    return;
  }
  const words = seen.way === "from" ? " looks at" : " is looked at by";
  $("asked").replaceChildren(page.tokens[seen.token].text, make("em", {}, words));
  const order = Array.from(seen.values.keys()).sort((one, other) => seen.values[other] - seen.values[one]);
  const listed = order.slice(0, LISTED);
  const here = seen.way === "from" ? key : null;
  if (here !== null && !listed.includes(here)) listed.splice(-1, 1, here);
  const largest = Math.max(seen.values[order[0]], 1e-9);
  list.replaceChildren(...listed.map((at) => {
    const line = make("li", at === here ? { class: "here" } : {});
    const bar = make("i");
    bar.style.width = seen.values[at] < largest / 200 ? "0" : `${(100 * seen.values[at]) / largest}%`;
    line.append(make("span", {}, page.tokens[seen.start + at].text), make("span", {}, number(seen.values[at])), bar);
    return line;
  }));
  // What is less than a step is kept as one: many of those would add up to too much.
  const sum = seen.values.reduce((all, one) => (one * STEPS > 1.5 ? all + one : all), 0), more = seen.values.length - listed.length;
  $("rest").textContent = `${more > 0 ? `and ${more} more. ` : ""}All together ${sum.toFixed(3)}.`;
  const target = here === null ? order[0] : here;
  $("live").textContent =
    `${page.tokens[seen.token].text}${words} ${page.tokens[seen.start + target].text}: ${number(seen.values[target])}`;
}

function grid() {
  const most = Math.max(...page.blocks.map((block) => block.heads.length));
  const side = most <= 4 ? 52 : most <= 8 ? 40 : 24;
  const box = $("grid");
  box.style.gridTemplateColumns = `auto repeat(${most}, ${side}px)`;
  const cells = [make("span", {})];
  for (const { head } of page.blocks[0].heads) cells.push(make("span", { class: "name" }, String(head)));
  for (const [block, { name, short, heads }] of page.blocks.entries()) {
    cells.push(make("span", { class: "name row", title: name }, short));
    for (const [head, one] of heads.entries()) {
      const button = make("button", { type: "button", "data-at": `${block} ${head}`, title: `${name}, head ${one.head}` });
      button.setAttribute("aria-label", `${name}, head ${one.head}`);
      const small = picture(bytesOf(one.small), one.rows, one.columns, 255);
      small.style.width = small.style.height = `${side}px`;
      button.append(small);
      cells.push(button);
    }
    for (let empty = heads.length; empty < most; empty++) cells.push(make("span"));
  }
  box.replaceChildren(...cells);
}

function gridListens() {
  const box = $("grid");
  const at = (button) => button && choose(...button.dataset.at.split(" ").map(Number));
  box.addEventListener("click", (event) => at(event.target.closest("button")));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const block = Math.min(Math.max(state.block + step[0], 0), page.blocks.length - 1);
    const head = Math.min(Math.max(state.head + step[1], 0), page.blocks[block].heads.length - 1);
    choose(block, head);
    box.querySelector(`[data-at="${block} ${head}"]`).focus();
  });
}
