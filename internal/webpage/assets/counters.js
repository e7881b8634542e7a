// Everything that the daemon counts, the state of domains, and of operations on regions.

import { el, text } from "./dom.js";
import { bytes, count, none, rate } from "./format.js";
import { recall, remember } from "./memory.js";
import { badge, tabled } from "./section.js";

export function counters() {
  const columns = [
    { name: "name", label: "Counter", width: 3, value: (c) => c.name },
    { name: "value", label: "Value", number: true, width: 24, value: (c) => c.value, draw: (cell, _, v) => text(cell, count(v)) },
    { name: "rate", label: "Per second", hint: "over the last 5 s", number: true, width: 12, value: (c) => c.rate, draw: (cell, _, v) => text(cell, v === null ? none : rate(v) + "/s") },
  ];
  const zeros = el("input", { type: "checkbox" });
  zeros.checked = recall("zeros", "no") === "yes";
  const part = tabled("counters", "Counters", {
    columns, key: (c) => c.name, search: (c) => c.name.replaceAll("_", " ") + " " + c.name, empty: "Nothing has been counted.", perPage: 90,
    extra: [el("label", { class: "choice" }, zeros, " also those that are 0")],
  });
  let latest = null;
  part.update = (m) => {
    latest = m;
    const all = Object.entries(m.status.counters ?? {}).map(([name, value]) => ({ name, value, rate: m.rate("", m.status, (s) => s.counters[name] ?? 0) }));
    const some = all.filter((c) => c.value > 0);
    text(part.size, `${some.length} of ${all.length} are not 0`);
    part.table.update(zeros.checked ? all : some);
    return { size: all.length, trouble: 0 };
  };
  zeros.addEventListener("change", () => {
    remember("zeros", zeros.checked ? "yes" : "no");
    if (latest) part.update(latest);
  });
  return part;
}

export function domains() {
  const columns = [
    { name: "domain", label: "Domain", width: 3, value: (d) => d.name },
    { name: "generation", label: "Memory replaced", hint: "how often, because it was damaged", number: true, width: 15, value: (d) => d.generation, draw: (c, _, v) => text(c, count(v)) },
    { name: "damages", label: "Damages", hint: "errors in its memory that are nobody's for certain", number: true, width: 10, value: (d) => d.damages, draw: (c, _, v) => text(c, count(v)) },
    { name: "lingering", label: "Lingering", hint: "processes that are disconnected and have its memory", number: true, width: 10, value: (d) => d.lingering, draw: (c, _, v) => text(c, count(v)) },
    { name: "held", label: "Held", hint: "earlier memories that such processes hold", number: true, width: 8, value: (d) => d.held, draw: (c, _, v) => text(c, count(v)) },
  ];
  const part = tabled("domains", "Domains", {
    columns, key: (d) => d.name, search: (d) => d.name, empty: "None.", mark: (d) => (d.damages > 0 || d.held > 0 ? "warn" : ""),
  });
  part.update = (m) => {
    const all = m.status.domains ?? [];
    text(part.size, String(all.length));
    part.table.update(all);
    return { size: all.length, trouble: all.filter((d) => d.damages > 0).length };
  };
  return part;
}

export function regions() {
  const way = (name, label, hint) => ({
    name, label, hint, width: 1.5, value: (b) => b[name], draw: (c, _, v) => badge(c, v || none, v === "up" ? "good" : ""),
  });
  const columns = [
    { name: "peer", label: "Peer", width: 3, value: (b) => b.peer || "this node" },
    { name: "domain", label: "Domain", width: 2, value: (b) => b.domain },
    way("out", "Out", "the connection for operations of this node's handlers"), way("in", "In", "the same of the peer's"),
    { name: "exports", label: "Exports", hint: "regions of this node that the peer knows", number: true, width: 9, value: (b) => b.exports, draw: (c, _, v) => text(c, count(v)) },
    { name: "bytes", label: "Size", number: true, width: 10, value: (b) => b.export_bytes, draw: (c, _, v) => text(c, bytes(v)) },
    { name: "imports", label: "Imports", hint: "regions of the peer that this node knows", number: true, width: 9, value: (b) => b.imports, draw: (c, _, v) => text(c, count(v)) },
    { name: "queued", label: "Under way", hint: "operations of this node's handlers", number: true, width: 12, value: (b) => b.queued, draw: (c, _, v) => text(c, count(v)) },
  ];
  const part = tabled("regions", "Regions", { columns, key: (b) => b.domain + "\n" + b.peer, search: (b) => b.peer + " " + b.domain, empty: "No regions are shared with peers." });
  part.update = (m) => {
    const all = m.status.bulk ?? [];
    text(part.size, String(all.length));
    part.table.update(all);
    return { size: all.length, trouble: 0 };
  };
  return part;
}
