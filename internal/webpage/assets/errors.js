// Recent distinct errors: those that the daemon remembers, with their numbers, connections
// that were refused, and why links are down.

import { text } from "./dom.js";
import { clock, count, none, span } from "./format.js";
import { badge, lines, tabled } from "./section.js";

const levels = { error: "bad", warn: "warn" };

export function errors() {
  const columns = [
    { name: "last", label: "Last", hint: "when it happened last", number: true, width: 16, value: (e) => e.last, draw: (c, e) => when(c, e.last, e.age) },
    { name: "level", label: "Level", width: 1.4, value: (e) => e.level, draw: (c, e) => badge(c, e.level, levels[e.level] ?? "") },
    { name: "code", label: "What", width: 3, value: (e) => e.code, draw: (c, e) => lines(c, e.code, e.subject) },
    { name: "count", label: "Times", number: true, width: 8, value: (e) => e.count, draw: (c, _, v) => text(c, count(v)) },
    { name: "first", label: "First", hint: "when it happened first", number: true, width: 16, value: (e) => e.first, draw: (c, e) => when(c, e.first, null) },
    { name: "text", label: "Text", width: 9, value: (e) => e.text },
  ];
  const part = tabled("errors", "Errors", {
    columns, key: (e) => e.code + "\n" + e.subject + "\n" + e.source, search: (e) => [e.code, e.subject, e.text, e.level].join(" "),
    empty: "No errors are remembered.", latest: true, mark: (e) => (e.age !== null && e.age < 60 ? levels[e.level] : ""),
  });
  part.update = (m) => {
    const all = collect(m);
    text(part.size, all.length === 0 ? "none" : `${all.length} distinct`);
    part.table.update(all);
    return { size: all.length, trouble: all.filter((e) => e.age !== null && e.age < 60).length };
  };
  return part;
}

// collect returns all errors with their times by this machine's clock in milliseconds.
function collect(m) {
  const s = m.status, now = m.at.getTime();
  const local = (text) => {
    const t = Date.parse(text);
    return Number.isNaN(t) ? null : t + m.offset;
  };
  const all = (s.errors ?? []).map((e) => ({
    source: "ring", level: e.level, code: e.code, subject: e.subject ?? "", text: e.text, count: e.count, first: local(e.first), last: local(e.last),
  }));
  // A daemon that remembers errors remembers these, too.
  if (s.errors) return aged(all, now);
  for (const r of s.refusals ?? []) {
    all.push({ source: "refusal", level: "warn", code: "refused: " + r.reason, subject: "from " + r.from, text: r.text, count: r.count, first: null, last: now - r.age_s * 1000 });
  }
  for (const p of s.peers ?? []) {
    if (p.state === "down" && p.error) {
      all.push({ source: "peer", level: "error", code: "link down", subject: "peer " + p.name, text: p.error, count: null, first: now - p.since_s * 1000, last: now });
    }
  }
  return aged(all, now);
}

function aged(all, now) {
  for (const e of all) e.age = e.last === null ? null : (now - e.last) / 1000;
  return all;
}

function when(cell, time, age) {
  lines(cell, time === null ? none : clock(new Date(time)), age === null ? "" : age < 1.5 ? "now" : span(age) + " ago");
}
