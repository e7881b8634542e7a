// Small drawings. Each is made once for its place and changed afterwards; each says in
// words what it shows.

import { attr, once, svg } from "./dom.js";

// bar shows a part of a whole; level "warn" or "bad" colours it.
export function bar(place, value, most, label, level = "") {
  const [root, part] = once(place, "bar", () => {
    const part = svg("rect", { class: "part", height: 8, rx: 2 });
    const root = svg("svg", { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img" },
      svg("rect", { class: "whole", width: 100, height: 8, rx: 2 }), part);
    place.append(root);
    return [root, part];
  });
  const share = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
  attr(part, "width", value > 0 ? Math.max(1.5, share * 100).toFixed(1) : 0);
  attr(root, "data-level", level);
  attr(root, "aria-label", label);
}

// sparkline shows the course of a value. Gaps are null.
export function sparkline(place, values, label) {
  const width = 100, height = 24;
  const [root, line, area] = once(place, "spark", () => {
    const line = svg("path", { class: "line" }), area = svg("path", { class: "area" });
    const root = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" }, area, line);
    place.append(root);
    return [root, line, area];
  });
  const most = Math.max(...values.filter((v) => v !== null), 0);
  const x = (i) => (values.length > 1 ? (i * width) / (values.length - 1) : width);
  const y = (v) => (most > 0 ? height - 1.5 - (v / most) * (height - 4) : height - 1.5);
  let path = "", filled = "", start = -1;
  values.forEach((v, i) => {
    const first = start < 0;
    if (v === null) {
      start = -1;
      return;
    }
    if (first) start = i;
    path += (first ? "M" : "L") + x(i).toFixed(1) + " " + y(v).toFixed(1);
    if (i === values.length - 1 || values[i + 1] === null) {
      filled += `M${x(start).toFixed(1)} ${height}`;
      for (let k = start; k <= i; k++) filled += `L${x(k).toFixed(1)} ${y(values[k]).toFixed(1)}`;
      filled += `L${x(i).toFixed(1)} ${height}Z`;
    }
  });
  attr(line, "d", path);
  attr(area, "d", filled);
  attr(root, "aria-label", label);
}

// histogram shows how often each of some ranges occurred: buckets are {name, count}, and
// there are always as many, so nothing moves.
export function histogram(place, buckets, label) {
  const height = 24, gap = 1;
  const [root, bars] = once(place, "histogram" + buckets.length, () => {
    const bars = buckets.map((_, i) => svg("rect", { x: i * 10 + gap / 2, width: 10 - gap }, svg("title")));
    const root = svg("svg", { class: "histogram", viewBox: `0 0 ${buckets.length * 10} ${height}`, preserveAspectRatio: "none", role: "img" },
      svg("path", { class: "base", d: `M0 ${height - 0.5}H${buckets.length * 10}` }), ...bars);
    place.replaceChildren(root);
    return [root, bars];
  });
  const most = Math.max(...buckets.map((b) => b.count), 0);
  const total = buckets.reduce((sum, b) => sum + b.count, 0);
  buckets.forEach((b, i) => {
    const size = b.count > 0 ? Math.max(1.5, (b.count / most) * (height - 2)) : 0;
    attr(bars[i], "y", (height - 1 - size).toFixed(1));
    attr(bars[i], "height", size.toFixed(1));
    const words = `${b.name}: ${total > 0 ? ((100 * b.count) / total).toFixed(1) : 0} %`;
    if (bars[i].firstChild.textContent !== words) bars[i].firstChild.textContent = words;
  });
  attr(root, "aria-label", label);
}
