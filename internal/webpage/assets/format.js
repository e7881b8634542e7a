// Numbers for people. Each function returns the same width for similar values, and a
// dash for what is not known.

export const none = "–";
const thin = "\u202f";

function known(n) {
  return typeof n === "number" && Number.isFinite(n);
}

// grouped is a whole number with its digits in groups of three.
export function count(n) {
  if (!known(n)) return none;
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, thin);
}

// scaled writes a number with three digits and a prefix.
function scaled(n, step, prefixes) {
  let i = 0;
  while (Math.abs(n) >= step * 0.9995 && i < prefixes.length - 1) {
    n /= step;
    i++;
  }
  const digits = i === 0 && Number.isInteger(n) ? 0 : n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2;
  return [n.toFixed(digits), prefixes[i]];
}

// rate is a number of things per second.
export function rate(n) {
  if (!known(n)) return none;
  if (n === 0) return "0";
  if (n < 0.05) return "<" + thin + "0.1";
  if (n < 99.95) return n.toFixed(1);
  const [number, prefix] = scaled(n, 1000, ["", "k", "M", "G", "T"]);
  return prefix === "" ? number : number + thin + prefix;
}

// short is a count with three digits.
export function short(n) {
  if (!known(n)) return none;
  if (n < 10000) return count(n);
  const [number, prefix] = scaled(n, 1000, ["", "k", "M", "G", "T", "P"]);
  return number + thin + prefix;
}

// bytes is an amount of memory.
export function bytes(n) {
  if (!known(n)) return none;
  const [number, prefix] = scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return number + thin + prefix;
}

// micros is a time of some microseconds.
export function micros(us) {
  if (!known(us)) return none;
  if (us === 0) return "0";
  const [number, prefix] = us < 1 ? [(us * 1000).toFixed(0), "ns"] : us < 1e6 ? scaled(us, 1000, ["µs", "ms"]) : [(us / 1e6).toFixed(us < 1e7 ? 2 : 1), "s"];
  return number + thin + prefix;
}

// span is a longer time in seconds, in two units.
export function span(s) {
  if (!known(s)) return none;
  s = Math.max(0, Math.floor(s));
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let i = units.findIndex(([, size]) => s >= size);
  if (i < 0) i = 3;
  const [name, size] = units[i];
  let out = Math.floor(s / size) + thin + name;
  if (i < 3) out += " " + Math.floor((s % size) / units[i + 1][1]) + thin + units[i + 1][0];
  return out;
}

// clock is a time of day, with the day if it is another.
export function clock(date) {
  const two = (n) => String(n).padStart(2, "0");
  const time = two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());
  if (date.toDateString() === new Date().toDateString()) return time;
  return date.getFullYear() + "-" + two(date.getMonth() + 1) + "-" + two(date.getDate()) + " " + time;
}

// day is a date.
export function day(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? none : date.toISOString().slice(0, 10);
}

// share is a part of a whole.
export function share(n, of) {
  if (!known(n) || !known(of) || of === 0) return none;
  const p = (100 * n) / of;
  return (p > 0 && p < 10 ? p.toFixed(1) : p.toFixed(0)) + thin + "%";
}

// decimal is a number with one digit after the point.
export function decimal(n) {
  if (!known(n)) return none;
  return n >= 99.95 ? n.toFixed(0) : n.toFixed(1);
}
