// Histograms as the status has them, and as they are shown.

import { keys, quantile, recent } from "./model.js";

// durations returns the buckets of a histogram of times as [end in microseconds, count],
// in order; the end of the last one may be null. Null if there is none.
export function durations(h) {
  if (!h?.buckets) return null;
  return h.buckets.map((b) => [b.below_us || null, b.count]);
}

// sizes does the same for a histogram of sizes of groups, as [largest size, count].
export function sizes(h) {
  if (!h?.buckets) return null;
  return h.buckets.map((b) => [b.most || null, b.count]);
}

// ranges are the sizes of groups that are told apart in drawings.
const ranges = [1, 2, 4, 8, 16, 32, 64, 128, Infinity];

// bars sorts buckets of sizes into ranges, as {name, count}.
export function bars(buckets) {
  return ranges.map((end, i) => {
    const begin = i === 0 ? 0 : ranges[i - 1];
    const name = end === begin + 1 ? String(end) : end === Infinity ? `more than ${begin}` : `${begin + 1} to ${end}`;
    const count = buckets.reduce((n, [size, c]) => n + ((size ?? Infinity) > begin && (size ?? Infinity) <= end ? c : 0), 0);
    return { name, count };
  });
}

// lately returns the buckets of the last seconds of a row's histogram, and whether that is
// what they are; [null, false] if the row has none.
export function lately(model, list, row, buckets) {
  const now = buckets(row);
  if (!now) return [null, false];
  const before = model.before(list, keys[list](row));
  return recent(now, before && buckets(before[0]));
}

// percentiles returns some quantiles in microseconds.
export function percentiles(buckets, ...shares) {
  return shares.map((q) => (buckets ? quantile(buckets, q) : null));
}
