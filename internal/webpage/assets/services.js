// Services: methods that processes of this node or of its peers serve.

import { sparkline } from "./charts.js";
import { attr, text } from "./dom.js";
import { count, micros, none, rate, short } from "./format.js";
import { durations, lately, percentiles } from "./histograms.js";
import { keys } from "./model.js";
import { latency, lines, pair, tabled } from "./section.js";

const times = (s) => durations(s.counted?.latency);
const failures = (s) => Object.entries(s.counted?.outcomes ?? {}).reduce((n, [name, count]) => n + (name === "ok" ? 0 : count), 0);

export function services() {
  const time = (name, label, hint, q) => latency(name, label, hint + ", from the arrival of the request until its answer was ready", q);
  const columns = [
    { name: "method", label: "Service", width: 4, value: (s) => s.service + "/" + s.method, draw: (c, s) => lines(c, `${s.service}/${s.method}`, `domain ${s.domain}`) },
    { name: "node", label: "Node", width: 2, value: (s) => s.node },
    { name: "processes", label: "Processes", hint: "that serve it on this node", number: true, width: 10, value: (s) => (s.local ? s.workers : null), draw: (c, _, v) => text(c, count(v)) },
    { name: "rate", label: "Requests/s", hint: "over the last 5 s, and their course", number: true, width: 18, value: (s) => s.rate, draw: drawRate },
    time("p50", "p50", "half of the requests were quicker", 0), time("p99", "p99", "all but 1 % were quicker", 1), time("p999", "p99.9", "all but 0.1 % were quicker", 2),
    {
      name: "wait", label: "Wait p99", hint: "of the requests that no process had room for when they came, since the start", number: true, width: 10,
      value: (s) => (s.counted?.wait?.count > 0 ? s.counted.wait.p99_us : null), draw: (c, _, v) => text(c, micros(v)),
    },
    {
      name: "failures", label: "Failed/s", hint: "requests that ended otherwise than with an answer, over the last 5 s", number: true, width: 10, value: (s) => s.failing,
      draw: (c, _, v) => {
        text(c, rate(v));
        attr(c, "data-level", v > 0 ? "bad" : null);
      },
    },
    { name: "total", label: "Answered", hint: "requests since the core started", number: true, width: 11, value: (s) => s.counted?.requests ?? null, draw: (c, _, v) => text(c, short(v)) },
  ];
  const part = tabled("services", "Services", {
    columns, key: keys.services, search: (s) => [s.service + "/" + s.method, s.node, s.domain].join(" "), empty: "Nobody serves anything.",
  });
  part.update = (m) => {
    const all = (m.status.services ?? []).map((s) => derive(m, s));
    text(part.size, `${all.filter((s) => s.local).length} here, ${all.filter((s) => !s.local).length} on peers`);
    part.table.update(all);
    return { size: all.length, trouble: 0 };
  };
  return part;
}

function derive(m, s) {
  const [buckets, fresh] = lately(m, "services", s, times);
  const counted = s.counted !== undefined && s.counted !== null;
  const requests = (x) => x.counted?.requests ?? 0;
  return {
    ...s, local: s.node === m.status.node, fresh, quantiles: percentiles(buckets, 0.5, 0.99, 0.999),
    rate: counted ? m.rate("services", s, requests) : null,
    failing: counted ? m.rate("services", s, failures) : null,
    course: counted ? m.course("service " + keys.services(s), m.rate("services", s, requests, true)) : null,
  };
}

function drawRate(cell, s) {
  const { drawing, words } = pair(cell);
  if (s.course) sparkline(drawing, s.course, "Requests per second, the last minute");
  text(words, s.course ? rate(s.rate) : none);
}
