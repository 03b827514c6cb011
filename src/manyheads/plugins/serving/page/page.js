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
  if (facts.columns.length) {
    $("texts").replaceChildren(...facts.columns.flatMap((name, at) => {
      const id = at ? `text-${at}` : "text"; // a column may be called like another part of the page
      return [make("label", { for: id }, name), make("textarea", { id, rows: "1", dir: "auto" })];
    }));
  }
  choose();
  const cells = Object.fromEntries(facts.columns.map((name) => [name, "..."]));
  const example = facts.pairs ? { text: "first", pair: "second" } : { text: facts.columns.length ? cells : "worth every minute" };
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
  show("label", labels ? labels.join(", ") || "no label" : label || "not answered");
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

// What may be chosen of the views: a switch, or a few letters; views share what has one name.
function choose() {
  for (const { options, labels, why_not } of Object.values(facts.views)) {
    for (const [name, value] of why_not ? [] : Object.entries(options)) {
      const id = `choice-${name}`, label = labels[name] || name;
      if ($(id)) continue;
      const box = typeof value === "boolean" ? make("input", { id, type: "checkbox", checked: "" }) :
        make("input", { id, size: "5", placeholder: value || "all", autocomplete: "off" });
      $("choices").append(make("label", {}, ...(box.type === "checkbox" ? [box, ` ${label}`] : [`${label} `, box])));
    }
  }
  $("choices").hidden = !$("choices").children.length;
}

function chosen(name, value) {
  const box = $(`choice-${name}`);
  if (typeof value === "boolean") return box.checked;
  return typeof value === "number" ? Number(box.value || value) : box.value || value;
}

// A view is a document of its own, as `manyheads look` writes it, without what stands here already.
function frame(name, html) {
  const box = make("iframe", { id: `look-${name}`, class: "look", title: `The view ${name} of the text` });
  $("looks").append(box);
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
  const notes = [];
  show("note", "");
  for (const [view, { options, why_not }] of Object.entries(facts.views)) {
    if (number !== asked) return;
    if (why_not) { notes.push(why_not); continue; }
    const wanted = Object.fromEntries(Object.entries(options).map(([name, value]) => [name, chosen(name, value)]));
    $("wait").hidden = false;
    try {
      const html = await (await call("look", { ...question, view, ...wanted })).text();
      if (number === asked) frame(view, html);
    } catch (error) {
      notes.push(error.message);
    }
  }
  if (number !== asked) return;
  $("wait").hidden = true;
  show("note", notes.join(" "));
}

// What was typed: a text, or the cells of a row by the names of their columns.
function typed() {
  const cells = Array.from($("texts").querySelectorAll("textarea"), (box) => box.value);
  return facts.columns.length ? Object.fromEntries(facts.columns.map((name, at) => [name, cells[at]])) : cells[0];
}

async function ask() {
  const number = ++asked;
  show("mistake", "");
  $("looks").replaceChildren();
  $("go").disabled = true;
  try {
    if (!facts) await introduce();
    const question = { text: typed(), ...(facts.pairs ? { pair: $("pair").value } : {}) };
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
