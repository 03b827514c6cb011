// The text itself: every token shaded by the weight it gets from, or gives to, the one that is held or hovered.

const NUMBERED = 60; // tokens up to which each shows its weight below it

const textView = {
  spans: [],

  build() {
    const block = page.blocks[state.block];
    const parts = [];
    this.spans = [];
    for (const [name, start, end] of partsOf(block)) {
      const part = make("div", { class: "part" }), row = make("div", { class: "tokens" });
      if (name) part.append(make("b", {}, name));
      if (end - start > 150) row.classList.add("dense");
      for (let at = start; at < end; at++) {
        if (at === start || !page.tokens[at].glued) row.append(make("span", { class: "word" }));
        row.lastChild.append(this.token(at));
      }
      part.append(row);
      if (/[\p{Script=Arabic}\p{Script=Hebrew}]/u.test(row.textContent)) row.dir = "rtl";
      parts.push(part);
    }
    $("text").replaceChildren(...parts);
  },

  token(at) {
    const token = page.tokens[at];
    const button = make("button", { class: `token ${token.kind}`, type: "button", tabindex: "-1", "data-at": at });
    if (token.kind === "unknown") button.title = `the model reads ${token.read}: the word is not in its vocabulary`;
    button.append(make("span", {}, token.text));
    if (page.tokens.length <= NUMBERED) button.append(make("small", {}, "\u00a0"));
    this.spans[at] = button;
    return button;
  },

  draw(map) {
    const seen = profile(map);
    for (const [at, span] of this.spans.entries()) {
      if (!span) continue;
      const inside = at >= seen.start && at < seen.start + seen.values.length;
      const value = inside ? seen.values[at - seen.start] : 0;
      const rgb = shade(value, map.most), holds = at === seen.token;
      span.style.backgroundColor = css(rgb);
      span.style.color = inkOn(rgb);
      span.classList.toggle("held", holds);
      span.tabIndex = at === state.token ? 0 : -1;
      if (span.lastChild.nodeName === "SMALL") span.lastChild.textContent = inside ? number(value) : "\u00a0";
      else if (page.tokens[at].kind !== "unknown") span.title = inside ? number(value) : "";
    }
  },

  listen() {
    const box = $("text");
    const at = (event) => event.target.closest?.(".token")?.dataset.at;
    box.addEventListener("pointerover", (event) => at(event) && hover(Number(at(event))));
    box.addEventListener("pointerleave", () => hover(null));
    box.addEventListener("click", (event) => at(event) && hold(Number(at(event))));
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = this.spans.findIndex((span, index) => span && index === state.token + step);
      if (next >= 0) {
        hold(next);
        this.spans[next].focus();
      }
    });
  },
};

// The texts of a block: name, first token, end. Where queries and keys differ, both stand below each other.
function partsOf(block) {
  const same = block.queries[0] === block.keys[0] && block.queries[1] === block.keys[1];
  const ranges = same ? [block.queries] : [block.queries, block.keys];
  const parts = [];
  for (const [start, end] of ranges) {
    let from = start;
    for (let at = start + 1; at <= end; at++) {
      if (at < end && page.tokens[at].part === page.tokens[from].part) continue;
      parts.push([page.parts[page.tokens[from].part], from, at]);
      from = at;
    }
  }
  return parts;
}
