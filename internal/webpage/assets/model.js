// What the page knows: the latest status, and enough of those before for rates, for
// percentiles of the last seconds, and for the courses of values.

// Rates and percentiles are over the last window seconds. A gap in the samples of more
// than maxGap seconds begins a new history, and courses have points for so many samples.
const window = 5;
const maxGap = 4;
const points = 60;

// Model keeps samples. Values are addressed by functions of a status, and by keys that
// are the same in each.
export class Model {
  // status is the latest, at when it was taken by this machine's clock, offset what is to be
  // added to the daemon's wall clock to get this machine's, in milliseconds.
  status = null;
  at = null;
  offset = 0;
  #samples = [];
  #courses = new Map();
  #turn = 0;

  // add takes a sample: {at, age_ms, status}.
  add(sample, now = Date.now()) {
    const status = sample.status, taken = Date.parse(sample.at);
    // The daemon's own clock says how much time is between two of its answers: it may give
    // the same one twice, within a second.
    const entry = { t: status.uptime_s, status, index: new Map() };
    const before = this.#samples.at(-1);
    const same = before && continues(before, entry);
    if (same && before.t === entry.t) return;
    if (before && !same) this.forget();
    if (before && entry.t - before.t > maxGap) this.#samples = [];
    this.#samples.push(entry);
    while (this.#samples.length > 2 && entry.t - this.#samples[1].t >= window - 0.25) this.#samples.shift();
    this.status = status;
    this.at = new Date(now - sample.age_ms);
    this.offset = this.at.getTime() - taken;
    this.#turn++;
  }

  // forget drops what was before: counters have begun anew.
  forget() {
    this.#samples = [];
    this.#courses.clear();
  }

  // since returns the row of the list with the key as it was at the beginning of the
  // window, and how many seconds ago that was; null if it was not there.
  #earlier(list, key, sample) {
    let index = sample.index.get(list);
    if (!index) sample.index.set(list, (index = new Map((sample.status[list] ?? []).map((row) => [keys[list](row), row]))));
    return index.get(key);
  }

  // before returns [row, seconds]: an earlier state of a row of a list, "" for the status
  // itself; null if there is none. latest is about the sample before this one.
  before(list, key, latest = false) {
    const now = this.#samples.at(-1);
    const candidates = latest ? this.#samples.slice(-2, -1) : this.#samples.slice(0, -1);
    for (const sample of candidates) {
      const row = list === "" ? sample.status : this.#earlier(list, key, sample);
      if (row !== undefined && now.t > sample.t) return [row, now.t - sample.t];
    }
    return null;
  }

  // rate returns by how much a value grows per second; null if that is not known, or it has
  // fallen, because somebody counts anew.
  rate(list, row, value, latest = false) {
    const before = this.before(list, list === "" ? "" : keys[list](row), latest);
    if (!before) return null;
    const grown = value(row) - value(before[0]);
    return grown >= 0 ? grown / before[1] : null;
  }

  // course notes a value for this sample, once, and returns those of the last samples.
  course(key, value) {
    let c = this.#courses.get(key);
    if (!c) this.#courses.set(key, (c = { turn: 0, values: new Array(points).fill(null) }));
    if (c.turn !== this.#turn) {
      // What was not asked for in between is a gap.
      for (let missed = c.turn === 0 ? 1 : Math.min(points, this.#turn - c.turn); missed > 0; missed--) {
        c.values.push(null);
        c.values.shift();
      }
      c.turn = this.#turn;
      c.values[points - 1] = value;
      this.#prune();
    }
    return c.values;
  }

  // prune drops the courses of rows that are gone.
  #prune() {
    if (this.#courses.size < 2000) return;
    for (const [key, c] of this.#courses) if (this.#turn - c.turn > points) this.#courses.delete(key);
  }
}

// continues reports that the counters of a sample go on from those of another.
function continues(before, after) {
  const a = before.status, b = after.status;
  return a.node === b.node && a.incarnation === b.incarnation && a.pids?.core === b.pids?.core && b.uptime_s >= a.uptime_s;
}

// keys identify the rows of each list.
export const keys = {
  peers: (p) => p.name,
  lanes: (l) => l.domain + "\n" + l.id + "\n" + l.direction,
  services: (s) => s.domain + "\n" + s.node + "\n" + s.service + "\n" + s.method,
  workers: (w) => w.domain + "\n" + w.id + "\n" + w.pid,
};

// recent returns a histogram of what was added since an earlier look, and whether that is
// what it is: if nothing was, it is of all time. Histograms are lists of [end, count].
export function recent(now, before) {
  if (!before) return [now, false];
  const old = new Map(before);
  const added = now.map(([end, count]) => [end, Math.max(0, count - (old.get(end) ?? 0))]);
  return added.some(([, count]) => count > 0) ? [added, true] : [now, false];
}

// quantile returns the end of the bucket that has the share q of all below it or in it;
// the end of the one before if that has none.
export function quantile(buckets, q) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (total === 0) return null;
  let left = q * total, last = 0;
  for (const [end, count] of buckets) {
    left -= count;
    if (end !== null) last = end;
    if (left <= 0 && count > 0) return last;
  }
  return last;
}
