// Workers: attached processes.

import { bar } from "./charts.js";
import { attr, el, once, text } from "./dom.js";
import { bytes, count, none, rate } from "./format.js";
import { keys } from "./model.js";
import { lines, pair, tabled } from "./section.js";

// marked shows a count that is bad news unless it is 0.
function marked(level) {
  return (c, _, v) => {
    text(c, count(v));
    attr(c, "data-level", v > 0 ? level : null);
  };
}

export function workers() {
  const columns = [
    { name: "name", label: "Worker", width: 4, value: (w) => w.name, draw: (c, w) => lines(c, w.name || "(no name)", `${w.role}, id ${w.id}, domain ${w.domain}`) },
    { name: "pid", label: "Process", number: true, width: 11, value: (w) => w.pid, draw: (c, w) => lines(c, String(w.pid), `uid ${w.uid}`) },
    { name: "slots", label: "Slots", hint: "in flight, of what its quotas allow in all lanes", number: true, width: 18, value: (w) => w.slots, draw: drawSlots },
    { name: "bytes", label: "In flight", hint: "size of the slots in flight", number: true, width: 10, value: (w) => w.slot_bytes, draw: (c, _, v) => text(c, bytes(v)) },
    { name: "waits", label: "Refused", hint: "requests refused because they were more than the process may have: in all, and per second", number: true, width: 12, value: (w) => w.over_limit, draw: drawRefused },
    { name: "spilled", label: "Spilled", hint: "answers moved out of their slots because the process did not take them, and how much of them it has not read", number: true, width: 12, value: (w) => w.spilled_answers, draw: drawSpilled },
    { name: "regions", label: "Regions", hint: "how many, and their size", number: true, width: 11, value: (w) => w.region_bytes, draw: (c, w) => lines(c, count(w.regions), w.regions > 0 ? bytes(w.region_bytes) : "") },
    { name: "offences", label: "Offences", hint: "how often it has broken the protocol for certain", number: true, width: 10, value: (w) => w.offences, draw: marked("bad") },
  ];
  const part = tabled("workers", "Workers", {
    columns, key: keys.workers, search: (w) => [w.name, w.role, w.pid, w.domain, "uid " + w.uid].join(" "),
    empty: "No process is attached.", mark: (w) => (w.offences > 0 ? "bad" : w.refusing > 0 || w.spill_unread > 0 ? "warn" : ""),
  });
  part.update = (m) => {
    // A worker may have its quota in each lane that leads from its domain.
    const quotas = new Map();
    for (const l of m.status.lanes ?? []) {
      if (l.direction !== "in") quotas.set(l.domain, (quotas.get(l.domain) ?? 0) + (l.quota || l.slots));
    }
    const all = (m.status.workers ?? []).map((w) => ({ ...w, quota: quotas.get(w.domain) ?? 0, refusing: m.rate("workers", w, (x) => x.over_limit) }));
    text(part.size, `${all.length} attached`);
    part.table.update(all);
    return { size: all.length, trouble: all.filter((w) => w.offences > 0).length };
  };
  return part;
}

function drawSlots(cell, w) {
  const { drawing, words } = pair(cell);
  bar(drawing, w.slots, w.quota, w.quota > 0 ? `${w.slots} of ${w.quota} slots` : `${w.slots} slots`, w.slots >= 0.9 * w.quota && w.quota > 0 ? "warn" : "");
  text(words, count(w.slots));
  const note = once(cell, "note", () => cell.appendChild(el("span", { class: "line" })));
  text(note, w.quota > 0 ? `of ${count(w.quota)}` : "");
}

function drawRefused(cell, w) {
  lines(cell, count(w.over_limit), w.refusing > 0 ? rate(w.refusing) + "/s" : "");
  attr(cell, "data-level", w.refusing > 0 ? "warn" : null);
}

function drawSpilled(cell, w) {
  lines(cell, w.spilled_answers > 0 ? count(w.spilled_answers) : w.spilled_answers === 0 ? "0" : none, w.spill_unread > 0 ? bytes(w.spill_unread) + " unread" : "");
  attr(cell, "data-level", w.spill_unread > 0 ? "warn" : null);
}
