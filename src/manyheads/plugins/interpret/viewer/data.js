"use strict";
// What the page holds, the maps behind it, and the colours. Nothing is fetched from anywhere.

const page = JSON.parse(document.getElementById("page").textContent);
const STEPS = 65535; // a weight is a whole number of such parts
const KEPT_MAPS = 12;
const $ = (id) => document.getElementById(id);

// `token` is held; `hover` is what the pointer or an arrow key is on. `way`: "from" a query, or "to" a key.
const state = { block: 0, head: 0, view: "text", shade: "root", cell: 0, token: 0, way: "from", hover: null };

function make(tag, of, text) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(of || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

const maps = new Map();

// The map of a head: `cells` row by row in STEPS, `n` queries, `m` keys. The last few are kept.
async function mapOf(block, head) {
  const name = `map-${block}-${head}`;
  if (!maps.has(name)) {
    maps.set(name, unpacked(name, page.blocks[block], page.blocks[block].heads[head].most));
    if (maps.size > KEPT_MAPS) maps.delete(maps.keys().next().value);
  }
  return maps.get(name);
}

async function unpacked(name, block, most) {
  const packed = new Blob([bytesOf($(name).textContent)]).stream();
  const planes = new Uint8Array(await new Response(packed.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
  const n = block.queries[1] - block.queries[0], m = block.keys[1] - block.keys[0];
  const cells = new Uint16Array(n * m);
  for (let at = 0; at < cells.length; at++) cells[at] = (planes[at] << 8) | planes[at + cells.length];
  return { cells, n, m, most, block };
}

function weight(map, row, column) {
  return map.cells[row * map.m + column] / STEPS;
}

function number(value) {
  if (value === 0) return "0";
  return value < 0.00005 ? "<0.0001" : value.toFixed(4);
}

// Colours: a ramp whose lightness only rises or only falls, so that it reads without hue and in grey.
let ramp = [];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const stops = [0, 1, 2, 3, 4, 5].map((at) => style.getPropertyValue(`--s${at}`).trim())
    .map((hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16)));
  ramp = Array.from({ length: 256 }, (_, at) => {
    const place = (at / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((one, channel) => Math.round(one + (stops[low + 1][channel] - one) * (place - low)));
  });
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The place of a weight on the ramp, 0 to 1, where `most` is the largest weight of the map.
function share(value, most) {
  const part = most > 0 ? Math.min(value / most, 1) : 0;
  return state.shade === "root" ? Math.sqrt(part) : part;
}

function shade(value, most) {
  return ramp[Math.round(255 * share(value, most))];
}

function css(rgb) {
  return `rgb(${rgb.join(",")})`;
}

// Whichever is read better on the colour, dark or white: at least 4.5 to 1 everywhere (WCAG 2.2, 1.4.3).
function inkOn([red, green, blue]) {
  const light = [red, green, blue].map((one) => ((one / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  return luminance > 0.3 ? "#14181f" : luminance > 0.179 ? "#000000" : "#ffffff";
}

function picture(cells, n, m, most) {
  const canvas = make("canvas", { width: m, height: n });
  const context = canvas.getContext("2d"), image = context.createImageData(m, n);
  for (let at = 0; at < n * m; at++) {
    const rgb = shade(cells[at], most);
    image.data[4 * at] = rgb[0];
    image.data[4 * at + 1] = rgb[1];
    image.data[4 * at + 2] = rgb[2];
    image.data[4 * at + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// The canvas of a sheet covers what is seen of it alone, however large the sheet: `draw(context, x, y, w, h)`.
function sheet(box, draw) {
  const canvas = make("canvas", { "aria-hidden": "true" }), room = make("div");
  box.replaceChildren(canvas, room);
  let asked = 0;
  const paint = () => {
    asked = 0;
    const dense = window.devicePixelRatio || 1, wide = box.clientWidth, high = box.clientHeight;
    if (!wide) return;
    if (canvas.width !== Math.round(wide * dense) || canvas.height !== Math.round(high * dense)) {
      canvas.width = Math.round(wide * dense);
      canvas.height = Math.round(high * dense);
      canvas.style.width = `${wide}px`;
      canvas.style.height = `${high}px`;
      room.style.marginTop = `-${high}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(dense, 0, 0, dense, 0, 0);
    context.clearRect(0, 0, wide, high);
    draw(context, box.scrollLeft, box.scrollTop, wide, high);
  };
  const again = () => {
    asked = asked || requestAnimationFrame(paint);
  };
  box.addEventListener("scroll", again, { passive: true });
  new ResizeObserver(again).observe(box);
  return {
    again,
    size(wide, high) {
      room.style.width = `${wide}px`;
      room.style.height = `${high}px`;
      again();
    },
  };
}

function shortened(context, text, most) {
  if (context.measureText(text).width <= most) return text;
  let end = text.length - 1;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > most) end--;
  return `${text.slice(0, end)}…`;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
