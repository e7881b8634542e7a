// Tables that can be sorted, searched and turned over, and whose rows stay the same
// elements while their values change. On narrow screens each row is a card.

import { attr, el, show, text } from "./dom.js";
import { none } from "./format.js";
import { recall, remember } from "./memory.js";

const order = new Intl.Collator(undefined, { numeric: true }).compare;

// few is how many rows need no filter.
const few = 6;

// Table shows rows under columns: {name, label, hint, number, width, value, draw}. value(row)
// is what is sorted by; draw(cell, row, value) shows it, as text if it is left out. width is
// in characters for numbers, and in relation to the other columns for text. At first they are
// in order of the first column, the largest first if latest is set.
export class Table {
  #id;
  #columns;
  #key;
  #search;
  #rows = new Map();
  #body = el("tbody", { role: "rowgroup" });
  #cols;
  #heads = [];
  #bar;
  #filter;
  #where;
  #sort;
  #down;
  #page = 0;
  #perPage;
  #held = [];
  #all = [];
  #pager;
  #empty;
  #mark;
  element;

  constructor({ id, caption, columns, key, search, empty, perPage = 25, mark = () => "", extra = [], latest = false }) {
    this.#id = id;
    this.#columns = columns;
    this.#key = key;
    this.#search = search;
    this.#perPage = perPage;
    this.#mark = mark;
    const [name, down] = recall("sort." + id, "").split(" ");
    this.#sort = columns.some((c) => c.name === name) ? name : columns[0].name;
    this.#down = this.#sort === name ? down === "down" : latest;
    this.#empty = el("p", { class: "empty" }, empty);
    const table = el("table", { role: "table", class: "grid" },
      el("caption", { class: "hidden" }, caption), this.#columnGroup(), el("thead", { role: "rowgroup" }, this.#head()), this.#body);
    this.element = el("div", { class: "tabled", id: id + "-table" }, this.#toolbar(caption, extra), table, this.#empty);
    this.#showSort();
    new ResizeObserver(([entry]) => this.#layOut(entry.contentRect.width)).observe(this.element);
  }

  #columnGroup() {
    this.#cols = this.#columns.map(() => el("col"));
    return el("colgroup", {}, ...this.#cols);
  }

  // layOut fixes the widths, so that nothing moves when values change: numbers get what they
  // need, the rest is shared out among the texts.
  #layOut(width) {
    const em = parseFloat(getComputedStyle(document.body).fontSize);
    const numbers = this.#columns.map((c) => (c.number ? (c.width * 0.62 + 1.2) * em : 0));
    const left = width - numbers.reduce((sum, w) => sum + w, 0);
    const weights = this.#columns.reduce((sum, c) => sum + (c.number ? 0 : c.width), 0);
    this.#cols.forEach((col, i) => {
      const c = this.#columns[i];
      col.style.width = Math.floor(c.number ? numbers[i] : Math.max(5 * em, (left * c.width) / weights)) + "px";
    });
  }

  #head() {
    return el("tr", { role: "row" }, ...this.#columns.map((c) => {
      const button = el("button", { type: "button", title: c.hint ?? null }, c.label, el("span", { class: "arrow", "aria-hidden": "true" }));
      button.addEventListener("click", () => this.#sortBy(c.name));
      const th = el("th", { role: "columnheader", scope: "col", class: c.number ? "number" : "" }, button);
      this.#heads.push(th);
      return th;
    }));
  }

  #toolbar(caption, extra) {
    const refresh = () => {
      this.#page = 0;
      this.#draw(true);
    };
    this.#filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter " + caption.toLowerCase(), autocomplete: "off", spellcheck: "false" });
    this.#filter.addEventListener("input", refresh);
    const select = el("select", {}, ...this.#columns.flatMap((c) => [
      el("option", { value: c.name + " up" }, c.label + " ↑"), el("option", { value: c.name + " down" }, c.label + " ↓")]));
    select.addEventListener("change", () => {
      const [name, down] = select.value.split(" ");
      this.#sortBy(name, down === "down");
    });
    this.#where = el("span", { class: "where" });
    const turn = (by) => () => {
      this.#page += by;
      this.#draw(true);
    };
    const back = el("button", { type: "button", "aria-label": "Previous page of " + caption.toLowerCase() }, "‹");
    const on = el("button", { type: "button", "aria-label": "Next page of " + caption.toLowerCase() }, "›");
    back.addEventListener("click", turn(-1));
    on.addEventListener("click", turn(1));
    this.#pager = { back, on, select };
    this.#bar = el("div", { class: "toolbar", hidden: extra.length > 0 ? null : "" }, this.#filter, el("label", { class: "sorter" }, "Sort ", select), ...extra, el("span", { class: "turner" }, this.#where, back, on));
    return this.#bar;
  }

  #sortBy(name, down = this.#sort === name ? !this.#down : this.#columns.find((c) => c.name === name).number === true) {
    [this.#sort, this.#down] = [name, down];
    remember("sort." + this.#id, name + (down ? " down" : " up"));
    this.#showSort();
    this.#draw(true);
  }

  #showSort() {
    this.#columns.forEach((c, i) => {
      const is = c.name === this.#sort;
      attr(this.#heads[i], "aria-sort", is ? (this.#down ? "descending" : "ascending") : "none");
      text(this.#heads[i].querySelector(".arrow"), is ? (this.#down ? "▼" : "▲") : "");
    });
    this.#pager.select.value = this.#sort + (this.#down ? " down" : " up");
  }

  // update shows these rows. Once there are so many that one has to search, there is
  // something to search with, and it stays.
  update(rows) {
    this.#all = rows;
    if (rows.length > few) show(this.#bar, true);
    this.#draw(false);
  }

  // draw shows the rows of the page. While somebody points at a row, or is in it with the
  // keyboard, the order stays as it is, unless they have asked for another.
  #draw(asked) {
    const wanted = this.#filter.value.trim().toLowerCase().split(/\s+/).filter((w) => w !== "");
    let rows = this.#all;
    if (wanted.length > 0) {
      rows = rows.filter((row) => {
        const hay = this.#search(row).toLowerCase();
        return wanted.every((w) => hay.includes(w));
      });
    }
    rows = this.#inOrder(rows, asked);
    const pages = Math.max(1, Math.ceil(rows.length / this.#perPage));
    this.#page = Math.min(Math.max(this.#page, 0), pages - 1);
    const first = this.#page * this.#perPage;
    const shown = rows.slice(first, first + this.#perPage);
    text(this.#where, rows.length === 0 ? "none" + (this.#all.length > 0 ? " of " + this.#all.length : "")
      : pages === 1 ? rows.length + (rows.length < this.#all.length ? " of " + this.#all.length : "")
      : `${first + 1}–${first + shown.length} of ${rows.length}`);
    this.#pager.back.disabled = this.#page === 0;
    this.#pager.on.disabled = this.#page === pages - 1;
    show(this.#pager.back, pages > 1);
    show(this.#pager.on, pages > 1);
    show(this.#empty, this.#all.length === 0);
    show(this.element.querySelector("table"), this.#all.length > 0);
    this.#place(shown);
  }

  #inOrder(rows, asked) {
    const column = this.#columns.find((c) => c.name === this.#sort);
    const sorted = rows.map((row) => [column.value(row), this.#key(row), row]);
    const sign = this.#down ? -1 : 1;
    if (!asked && this.#body.matches(":hover, :focus-within")) {
      const place = new Map(this.#held.map((key, i) => [key, i]));
      sorted.sort((a, b) => (place.get(a[1]) ?? Infinity) - (place.get(b[1]) ?? Infinity) || order(a[1], b[1]));
    } else {
      sorted.sort((a, b) => sign * compare(a[0], b[0]) || order(a[1], b[1]));
    }
    this.#held = sorted.map((s) => s[1]);
    return sorted.map((s) => s[2]);
  }

  #place(shown) {
    const present = new Set();
    let next = this.#body.firstElementChild;
    for (const row of shown) {
      const key = this.#key(row);
      present.add(key);
      let tr = this.#rows.get(key);
      if (!tr) this.#rows.set(key, (tr = this.#newRow()));
      this.#fill(tr, row);
      if (tr === next) next = next.nextElementSibling;
      else this.#body.insertBefore(tr, next);
    }
    for (const [key, tr] of this.#rows) {
      if (present.has(key)) continue;
      tr.remove();
      this.#rows.delete(key);
    }
  }

  #newRow() {
    return el("tr", { role: "row" }, ...this.#columns.map((c, i) => el(i === 0 ? "th" : "td", {
      role: i === 0 ? "rowheader" : "cell", scope: i === 0 ? "row" : null, class: c.number ? "number" : "", "data-label": c.label, "data-column": c.name,
    })));
  }

  #fill(tr, row) {
    attr(tr, "data-mark", this.#mark(row) || null);
    this.#columns.forEach((c, i) => {
      const value = c.value(row);
      if (c.draw) c.draw(tr.cells[i], row, value);
      else text(tr.cells[i], value);
      attr(tr.cells[i], "data-none", tr.cells[i].textContent === none ? "" : null);
    });
  }
}

// compare orders values; what is not known comes before everything.
function compare(a, b) {
  if (typeof a === "string" && typeof b === "string") return order(a, b);
  const x = a ?? -Infinity, y = b ?? -Infinity;
  return x < y ? -1 : x > y ? 1 : 0;
}
