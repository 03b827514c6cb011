// The buttons, the address behind `#`, and the first drawing.

const CHOICES = {
  view: { text: "Text", lines: "Lines", matrix: "Matrix" },
  way: { from: "looks at", to: "is looked at by" },
  shade: { root: "Square root", linear: "Linear" },
};

function options() {
  for (const [name, names] of Object.entries(CHOICES)) {
    const box = $(name);
    if (!box.children.length) {
      for (const [value, label] of Object.entries(names))
        box.append(make("button", { type: "button", role: "radio", "data-value": value }, label));
      box.addEventListener("click", (event) => pick(name, event.target.dataset.value));
      box.addEventListener("keydown", (event) => {
        if (!/^Arrow/.test(event.key)) return;
        const values = Object.keys(names), step = /Left|Up/.test(event.key) ? -1 : 1;
        const next = (values.indexOf(state[name]) + step + values.length) % values.length;
        pick(name, values[next]);
        box.children[next].focus();
        event.preventDefault();
      });
    }
    for (const button of box.children) {
      button.setAttribute("aria-checked", button.dataset.value === state[name]);
      button.tabIndex = button.dataset.value === state[name] ? 0 : -1;
    }
  }
  $("zoom").hidden = state.view !== "matrix";
  legend();
}

function pick(name, value) {
  if (!value) return;
  state.hover = null;
  state[name] = value;
  if (name === "way") state.way = wayOf(state.token, value);
  if (name === "shade") grid();
  remember();
  choose(state.block, state.head);
}

function zoom(step) {
  const cell = matrixView.cell();
  if (step === 0) state.cell = Math.max(Math.min(matrixView.fit(), 40), 0.25);
  else if (step > 0) state.cell = CELLS.find((one) => one > cell + 0.01) || CELLS[CELLS.length - 1];
  else state.cell = [...CELLS].reverse().find((one) => one < cell - 0.01) || CELLS[0];
  show();
}

function legend() {
  if (!current) return;
  const canvas = $("scale"), context = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) {
    context.fillStyle = css(ramp[Math.round((255 * x) / (canvas.width - 1))]);
    context.fillRect(x, 0, 1, canvas.height);
  }
  $("most").textContent = number(current.most);
  const half = state.shade === "root" ? current.most / 4 : current.most / 2;
  $("middle").textContent = number(half);
}

// `#block=1&head=2&view=matrix&token=5&way=to`: a link to what is shown. Anything else in it is passed over.
function remember() {
  if (location.protocol === "about:") return; // within a page of `manyheads serve`, which has its own address
  const { block, head, view, token, way } = state;
  history.replaceState(null, "", `#${new URLSearchParams({ block, head, view, token, way })}`);
}

function recall() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const whole = (name, below) => {
    const value = Number(asked.get(name) ?? NaN);
    return Number.isInteger(value) && value >= 0 && value < below ? value : state[name];
  };
  state.block = whole("block", page.blocks.length);
  state.head = whole("head", page.blocks[state.block].heads.length);
  state.token = whole("token", page.tokens.length);
  for (const name of ["view", "way"]) if (Object.hasOwn(CHOICES[name], asked.get(name))) state[name] = asked.get(name);
}

function start() {
  readColours();
  state.token = Math.max(page.tokens.findIndex((token) => token.kind !== "mark"), 0);
  recall();
  grid();
  gridListens();
  for (const view of Object.values(VIEWS)) {
    view.build();
    view.listen();
  }
  for (const [step, label, name] of [[-1, "−", "smaller cells"], [0, "Fit", "the whole map"], [1, "+", "larger cells"]]) {
    const button = make("button", { type: "button", "aria-label": name, title: name }, label);
    button.addEventListener("click", () => zoom(step));
    $("zoom").append(button);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    grid();
    choose(state.block, state.head);
  });
  addEventListener("resize", () => current && show());
  addEventListener("hashchange", () => {
    recall();
    choose(state.block, state.head);
  });
  choose(state.block, state.head);
}

start();
