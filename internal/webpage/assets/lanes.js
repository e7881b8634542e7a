// Lanes: rings of slots and the connections that carry them.

import { bar, histogram, sparkline } from "./charts.js";
import { attr, el, once, text } from "./dom.js";
import { count, decimal, none, rate } from "./format.js";
import { bars, durations, lately, percentiles, sizes } from "./histograms.js";
import { keys } from "./model.js";
import { badge, latency, lines, pair, tabled } from "./section.js";

const arrows = { out: "to", in: "from", local: "within" };
const groups = (l) => sizes(l.group_sizes);

const times = (l) => durations(l.latency);

export function lanes() {
  const time = (name, label, hint, q) => latency(name, label, hint + ", from sending a request, or its arrival, until there was an answer", q);
  const columns = [
    {
      name: "lane", label: "Lane", hint: "direction of the requests, number, domain, and what the fabric says of the connection", width: 4, value: (l) => l.peer + " " + l.direction,
      draw: (c, l) => lines(c, `${arrows[l.direction] ?? l.direction} ${l.peer || "this node"}`, `${l.id}, ${l.domain}`, l.path ?? ""),
    },
    { name: "class", label: "Class", width: 2.6, value: (l) => `${l.class} ${l.number}`, draw: (c, l) => lines(c, `${l.class} ${l.number}`, `${count(l.slots)} × ${count(l.slot_size)} B`) },
    { name: "state", label: "State", width: 2, value: (l) => l.state, draw: drawState },
    { name: "busy", label: "Occupied", hint: "slots, or requests where slots are not counted, of all there are", number: true, width: 16, value: (l) => l.used / l.slots, draw: occupancy },
    { name: "rate", label: "Requests/s", hint: "over the last 5 s, and their course", number: true, width: 18, value: (l) => l.rate, draw: drawRate },
    { name: "group", label: "Per group", hint: "messages in a group, over the last 5 s, and how often groups have 1, 2, up to 4, 8, ... 128 and more", number: true, width: 18, value: (l) => l.perGroup, draw: drawGroups },
    time("p50", "p50", "half of the requests were quicker", 0), time("p99", "p99", "all but 1 % were quicker", 1),
    { name: "users", label: "Clients", hint: "processes that use the lane, and the most slots of one: its quota, and its share while the ring is crowded", number: true, width: 10, value: (l) => l.users, draw: drawUsers },
  ];
  const part = tabled("lanes", "Lanes", {
    columns, key: keys.lanes, search: (l) => [l.peer, l.direction, arrows[l.direction], l.domain, l.class, l.state, l.path].join(" "),
    empty: "No lanes: nobody has called anybody yet.", mark: (l) => (l.state === "up" ? "" : "bad"),
  });
  part.update = (m) => {
    const all = (m.status.lanes ?? []).map((l) => derive(m, l));
    const down = all.filter((l) => l.state !== "up").length;
    text(part.size, `${all.length - down} of ${all.length} up`);
    part.table.update(all);
    return { size: all.length, trouble: down };
  };
  return part;
}

// derive adds what comes from several samples.
function derive(m, l) {
  const requests = m.rate("lanes", l, (x) => x.requests), groupRate = m.rate("lanes", l, (x) => x.groups);
  const [distribution, grouped] = lately(m, "lanes", l, groups);
  const [buckets, fresh] = lately(m, "lanes", l, times);
  return {
    ...l, rate: requests, used: l.uncounted ? l.busy : (l.busy_slots ?? l.busy), distribution, grouped, fresh, quantiles: percentiles(buckets, 0.5, 0.99),
    pressed: m.rate("lanes", l, (x) => x.backpressure ?? 0),
    perGroup: groupRate > 0 ? requests / groupRate : null,
    course: m.course("lane " + keys.lanes(l), m.rate("lanes", l, (x) => x.requests, true)),
  };
}

function drawState(cell, l) {
  badge(cell, l.state, l.state === "up" ? "good" : "bad");
  const note = once(cell, "note", () => cell.appendChild(el("span", { class: "line", "data-level": "warn" })));
  text(note, l.pressed > 0 ? `no room ${rate(l.pressed)}/s` : l.uncounted ? "counted as other" : "");
}

function occupancy(cell, l) {
  const { drawing, words } = pair(cell);
  const part = l.used / l.slots;
  bar(drawing, l.used, l.slots, `${l.used} of ${l.slots} occupied`, part >= 0.9 ? "bad" : part >= 0.625 ? "warn" : "");
  text(words, count(l.used));
}

function drawRate(cell, l) {
  const { drawing, words } = pair(cell);
  sparkline(drawing, l.course, "Requests per second, the last minute");
  text(words, rate(l.rate));
}

function drawGroups(cell, l) {
  const { drawing, words } = pair(cell);
  if (l.distribution) {
    const shown = bars(l.distribution);
    histogram(drawing, shown, "Sizes of groups" + (l.grouped ? "" : " since the start") + ": " + shown.filter((b) => b.count > 0).map((b) => `${b.name}: ${b.count}`).join(", "));
    attr(drawing, "data-old", l.grouped ? null : "");
  }
  text(words, decimal(l.perGroup));
}

function drawUsers(cell, l) {
  const [, bound] = lines(cell, l.direction === "in" ? none : count(l.users), l.share > 0 ? `share ${count(l.share)}` : l.quota > 0 ? `quota ${count(l.quota)}` : "");
  attr(bound, "data-level", l.share > 0 ? "warn" : null);
}
