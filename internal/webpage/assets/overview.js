// The node as a whole: what it does now, and who it is.

import { sparkline } from "./charts.js";
import { attr, el, show, text } from "./dom.js";
import { bytes, count, day, decimal, none, rate, short, span } from "./format.js";
import { keys } from "./model.js";
import { section } from "./section.js";

const sum = (...names) => (s) => names.reduce((n, name) => n + (s.counters?.[name] ?? 0), 0);

// troubles is the rate of the requests that did not go well, each once: what counters there are of why overlap. Errors of handlers are
// answers. Lanes come and go, and two may have the same counters for a while, so each counts by itself, and once.
const failed = (l) => Object.entries(l.outcomes ?? {}).reduce((n, [name, count]) => (name === "ok" || name === "remote_error" ? n : n + count), 0);
export function troubles(m, latest) {
  const others = m.rate("", m.status, sum("protocol_errors", "region_ops_failed", "spill_failures"), latest);
  if (others === null) return null;
  const lanes = new Map((m.status.lanes ?? []).map((l) => [keys.lanes(l), l]));
  return [...lanes.values()].reduce((n, l) => n + (m.rate("lanes", l, failed, latest) ?? 0), others);
}

// tiles: value(model) of the last seconds is shown, latest(model) goes into the course.
const tiles = [
  flow("sent", "Requests sent", "/s", "to peers and to services of this node", sum("requests_sent", "local_requests"), rate),
  flow("served", "Requests served", "/s", "arrived for services of this node, from peers and from its own processes", sum("requests_received"), rate),
  {
    name: "group", label: "Messages per group", unit: "", hint: "requests and answers sent to peers, by one write-with-immediate each",
    value: (m) => ratio(m, false), latest: (m) => ratio(m, true), format: decimal,
  },
  flow("bytes", "Sent to peers", "/s", "requests and answers, with their headers", sum("request_bytes", "answer_bytes"), bytes),
  {
    name: "busy", label: "Requests under way", unit: "", hint: "in all lanes, both directions",
    value: underWay, latest: underWay, format: short,
  },
  {
    name: "troubles", label: "Gone wrong", unit: "/s", hint: "requests of this node and of its peers that ended otherwise than with an answer, operations on regions that failed, protocol errors",
    value: (m) => troubles(m, false), latest: (m) => troubles(m, true), format: rate,
  },
];

function flow(name, label, unit, hint, value, format) {
  return { name, label, unit, hint, format, value: (m) => m.rate("", m.status, value), latest: (m) => m.rate("", m.status, value, true) };
}

function underWay(m) {
  return (m.status.lanes ?? []).reduce((n, l) => n + l.busy, 0);
}

function ratio(m, latest) {
  const messages = m.rate("", m.status, sum("requests_sent", "answers_sent"), latest);
  const groups = m.rate("", m.status, sum("request_groups", "answer_groups"), latest);
  return messages !== null && groups > 0 ? messages / groups : null;
}

// facts are what is said of the node: [label, text of a status, level of a status].
const facts = [
  ["Version", (s) => "rdmad " + s.version],
  ["Up for", (s) => span(s.uptime_s)],
  ["Incarnation", (s) => s.incarnation],
  ["Processes", (s) => `${s.pids.core} (core), ${s.pids.supervisor} (supervisor)`],
  ["Listens on", (s) => s.listen || "nothing: it has no peers"],
  ["Fabric", fabric, (s) => (s.fallback_reason ? "warn" : "")],
  ["TLS", (s) => (s.tls ? `required of peers; data ${s.data_tls ? "encrypted" : "not encrypted"}; ${s.tls.name ? `${s.tls.name}, expires ${day(s.tls.not_after)}` : "its files cannot be used, so no peer can connect"}` : "off: peers are believed")],
  ["Configuration", (s) => s.config_digest ?? s.config?.digest ?? ""],
  ["Draining", (s) => (s.drain ? `out of service for ${span(s.drain.since_s)}; ` + (s.drain.complete ? "nothing is under way" : `${count(s.drain.requests)} requests under way`) : s.draining ? "yes: it is about to stop" : ""), () => "warn"],
  ["Upgrade", upgrade, (s) => (s.upgrade && s.upgrade.result !== "done" ? "warn" : "")],
];

function fabric(s) {
  if (!s.fabric) return "none: it has no peers";
  let words = s.fabric;
  if (s.fabric_wanted && s.fabric_wanted !== s.fabric) words += ` (configured: ${s.fabric_wanted})`;
  if (s.fabric_detail) words += ", " + s.fabric_detail;
  if (s.fallback_reason) words += "; fell back because: " + s.fallback_reason;
  return words;
}

function upgrade(s) {
  const u = s.upgrade;
  if (!u) return "";
  return `${u.number} from ${u.from?.version} to ${u.to?.version}: ${u.result}` + (u.reason ? ", " + u.reason : "");
}

export function overview() {
  const list = el("dl", { class: "facts" });
  const shownFacts = facts.map(([label, value, level]) => {
    const dd = el("dd"), row = el("div", {}, el("dt", {}, label), dd);
    list.append(row);
    return { row, dd, value, level };
  });
  const box = el("div", { class: "tiles" });
  const shownTiles = tiles.map((t) => {
    const number = el("span", { class: "big" }), course = el("div", { class: "course" });
    box.append(el("div", { class: "tile", title: t.hint, "data-tile": t.name },
      el("span", { class: "label" }, t.label, el("span", { class: "unit" }, t.unit)), number, course));
    return { ...t, number, course };
  });
  const part = section("overview", "Overview", box, list);
  part.update = (m) => {
    for (const t of shownTiles) {
      const value = t.value(m);
      text(t.number, value === null ? none : t.format(value));
      sparkline(t.course, m.course("tile " + t.name, t.latest(m)), `${t.label}, the last minute`);
      if (t.name === "troubles") attr(t.number, "data-level", value > 0 ? "bad" : null);
    }
    for (const f of shownFacts) {
      const words = f.value(m.status);
      show(f.row, words !== "");
      text(f.dd, words);
      attr(f.dd, "data-level", f.level?.(m.status) || null);
    }
  };
  return part;
}
