// What all sections have in common.

import { attr, el, once, text } from "./dom.js";
import { micros } from "./format.js";
import { recall, remember } from "./memory.js";
import { Table } from "./table.js";

// section makes a part of the page that can be closed, and remembers whether it was.
export function section(id, title, ...content) {
  const size = el("span", { class: "size" });
  const details = el("details", {}, el("summary", {}, el("h2", { id: id + "-title" }, title), size), ...content);
  details.open = recall("open." + id, "yes") === "yes";
  details.addEventListener("toggle", () => remember("open." + id, details.open ? "yes" : "no"));
  return { id, title, size, element: el("section", { id, "aria-labelledby": id + "-title" }, details) };
}

// tabled makes a section with a table.
export function tabled(id, title, options) {
  const table = new Table({ id, caption: title, ...options });
  return { ...section(id, title, table.element), table };
}

// badge shows a state with a colour and a shape beside the word: level is "good", "warn",
// "bad" or "".
export function badge(cell, word, level) {
  const b = once(cell, "badge", () => cell.appendChild(el("span", { class: "badge" })));
  text(b, word);
  attr(b, "data-level", level);
}

// lines shows several short texts below each other, the first one as the main one.
export function lines(cell, ...words) {
  const parts = once(cell, "lines", () => {
    const parts = words.map((_, i) => el("span", { class: i === 0 ? "line first" : "line" }));
    cell.append(el("span", { class: "lines" }, ...parts));
    return parts;
  });
  words.forEach((w, i) => text(parts[i], w));
  return parts;
}

// latency is a column with a quantile of times in microseconds, the q-th of a row's quantiles.
export function latency(name, label, hint, q) {
  return {
    name, label, hint: hint + "; over the last 5 s, or since the start if there was nothing (grey)", number: true, width: 9, value: (row) => row.quantiles[q],
    draw: (c, row, v) => {
      text(c, micros(v));
      attr(c, "data-old", row.fresh ? null : "");
    },
  };
}

// pair shows a drawing and a text beside it.
export function pair(cell) {
  return once(cell, "pair", () => {
    const drawing = el("span", { class: "drawing" }), words = el("span", { class: "words" });
    cell.append(el("span", { class: "pair" }, drawing, words));
    return { drawing, words };
  });
}
