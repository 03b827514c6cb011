"use strict";
// The page of `manyheads serve`. It speaks to its own server alone; what a model or a person writes is text, never markup.

const $ = (id) => document.getElementById(id);
const FEW = 8; // classes shown at first
const NAMES = { both: "both together", network: "network", linear: "linear model" };
let facts = null, asked = 0;

function make(tag, of, ...inner) {
  const made = document.createElementNS(tag === "svg" || tag === "rect" ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(of)) made.setAttribute(name, value);
  made.append(...inner);
  return made;
}

function show(id, text) {
  $(id).hidden = !text;
  $(id).textContent = text || "";
}

// The answer of the server; its own sentence where it refuses.
async function call(path, question) {
  const headers = { "Content-Type": "application/json" };
  if ($("token").value) headers.Authorization = `Bearer ${$("token").value}`;
  const body = question && JSON.stringify(question);
  let found;
  try {
    found = await fetch(path, { method: question ? "POST" : "GET", headers, body });
  } catch {
    throw new Error("The server does not answer: is it still running?");
  }
  if (found.ok) return found;
  if (found.status === 401) $("secret").hidden = false;
  const said = await found.json().catch(() => ({}));
  throw Object.assign(new Error(said.detail || `The server says ${found.status}.`), { status: found.status });
}

async function introduce() {
  facts = await (await call("metadata")).json();
  document.title = `${facts.name} – manyheads`;
  $("name").textContent = facts.name;
  const counts = [`${facts.labels.length} ${facts.thresholds ? "labels" : "classes"}`];
  if (facts.parameters) counts.push(`${facts.parameters.toLocaleString("en")} parameters`);
  if (facts.layers) counts.push(`${facts.layers} layers of ${facts.heads} heads`);
  $("facts").textContent = counts.join(" · ");
  $("second").hidden = !facts.pairs;
  $("pair").required = facts.pairs;
  $("first").textContent = facts.pairs ? "First text" : "Text";
  $("choices").hidden = !facts.layers;
  const example = facts.pairs ? { text: "first", pair: "second" } : { text: "worth every minute" };
  const token = $("secret").hidden ? "" : " -H 'Authorization: Bearer TOKEN'";
  $("curl").textContent = `curl ${location.origin}/predict -H 'Content-Type: application/json'${token} -d '${JSON.stringify(example)}'`;
}

function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

function bar(share) {
  const fill = make("rect", { width: percent(share), height: "100%", rx: "4" });
  return make("td", {}, make("div", { class: "bar" }, make("svg", { "aria-hidden": "true" }, fill), make("span", {}, percent(share))));
}

function answer({ label, labels, probabilities, members }, all) {
  const who = ["both", "network", "linear"].filter((one) => members[one]);
  const ranked = Object.entries(probabilities).sort((one, other) => other[1] - one[1]);
  const given = labels ? new Set(labels) : new Set([label]);
  show("label", labels ? labels.join(", ") || "no label" : label);
  const share = `${Math.round(100 * facts.linear_share)}%`;
  show("who", members.linear ? `The linear model has ${share} of the answer.` : "The network answers alone.");
  const heads = who.map((one) => make("th", { scope: "col" }, NAMES[one]));
  $("members").tHead.replaceChildren(make("tr", {}, make("th", { scope: "col" }, labels ? "label" : "class"), ...heads));
  $("members").tBodies[0].replaceChildren(...(all ? ranked : ranked.slice(0, FEW)).map(([name]) =>
    make("tr", { class: given.has(name) ? "first" : "" }, make("th", { scope: "row" }, name), ...who.map((one) => bar(members[one][name])))));
  show("more", !all && ranked.length > FEW ? `Show all ${ranked.length}` : "");
  $("more").onclick = () => answer({ label, labels, probabilities, members }, true);
  $("answer").hidden = false;
}

// The page of attention is a document of its own, as `manyheads look` writes it, without what stands here already.
function frame(html) {
  const box = $("look");
  box.hidden = false;
  box.onload = () => {
    const root = box.contentDocument.documentElement;
    root.classList.add("inside");
    const fit = () => { box.style.height = `${root.querySelector("body").scrollHeight + 8}px`; };
    new ResizeObserver(fit).observe(root.querySelector("body"));
    fit();
    box.contentDocument.addEventListener("keydown", (event) => event.key === "Escape" && $("text").focus());
  };
  box.srcdoc = html;
}

async function look(question, number) {
  show("note", "");
  if (!facts.layers) return show("note", facts.no_maps);
  $("wait").hidden = false;
  const wanted = { layers: $("layers").value, heads: $("heads").value, attribution: $("attribution").checked };
  try {
    const html = await (await call("look", { ...question, ...wanted })).text();
    if (number === asked) frame(html);
  } catch (error) {
    if (number === asked) show("note", error.message);
  } finally {
    if (number === asked) $("wait").hidden = true;
  }
}

async function ask() {
  const number = ++asked;
  show("mistake", "");
  $("look").hidden = true;
  $("go").disabled = true;
  try {
    if (!facts) await introduce();
    const question = { text: $("text").value, ...(facts.pairs ? { pair: $("pair").value } : {}) };
    const found = await (await call("predict", { ...question, members: true })).json();
    if (number !== asked) return;
    answer(found.predictions[0], false);
    $("go").disabled = false;
    await look(question, number);
  } catch (error) {
    if (number !== asked) return;
    $("answer").hidden = true;
    show("mistake", error.message);
    if (error.status === 401) $("token").focus();
  } finally {
    if (number === asked) $("go").disabled = false;
  }
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit();
});
introduce().catch((error) => show("mistake", error.status === 401 ? "This server asks for a token." : error.message));
