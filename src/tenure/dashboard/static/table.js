// Tables that are updated in place: a row keeps its element as long as it is shown, and a cell is written only if it changed.

import { h, isInView, keepInView, mark, say, show } from "./dom.js";
import { whole } from "./format.js";
import { isSettled } from "./live.js";

export const PAGE = 50;

/**
 * Shows one page of rows. Columns: `{key, label, cell(td, row), tick(td, row), sort, number, minor, grow}`, where `sort` is
 * "up" or "down", the direction of the first click, and minor columns give way on narrow screens.
 */
export class Table {
  constructor({ into, caption, columns, key, sort, onSort, onPage }) {
    this.columns = columns;
    this.key = key;
    this.sort = sort ?? { key: null, direction: "up" };
    this.onSort = onSort;
    this.onPage = onPage;
    this.rows = new Map();
    this.into = into;
    this.body = h("tbody");
    this.heads = columns.map((column) => this.#head(column));
    this.nothing = h("p", { class: "empty", hidden: true });
    this.table = h("table", null, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, ...this.heads)), this.body);
    this.position = h("span", { class: "position" });
    this.before = h("button", { type: "button", class: "quiet", onclick: () => this.onPage(-1) }, "Previous");
    this.after = h("button", { type: "button", class: "quiet", onclick: () => this.onPage(1) }, "Next");
    this.pager = h("nav", { class: "pager", "aria-label": `Pages of ${caption.toLowerCase()}`, hidden: true }, this.position, this.before, this.after);
    into.replaceChildren(h("div", { class: "scroll" }, this.table), this.nothing, this.pager);
    keepInView(into);
    this.#showSort();
  }

  #head(column) {
    const label = column.sort
      ? h("button", { type: "button", onclick: () => this.onSort(column) }, column.label, h("span", { class: "arrow", "aria-hidden": "true" }))
      : column.hiddenLabel
        ? h("span", { class: "unseen" }, column.label)
        : column.label;
    return h("th", { scope: "col", class: classes(column) }, label);
  }

  #showSort() {
    this.columns.forEach((column, at) => {
      const sorted = column.key === this.sort.key;
      mark(this.heads[at], "aria-sort", sorted ? (this.sort.direction === "up" ? "ascending" : "descending") : null);
    });
  }

  place(rows, { offset = 0, matched = rows.length, nothing = "" } = {}) {
    this.#showSort();
    const focused = document.activeElement;
    const wanted = new Map(rows.map((row) => [this.key(row), row]));
    for (const [key, entry] of this.rows) {
      if (!wanted.has(key)) {
        entry.tr.remove();
        this.rows.delete(key);
      }
    }
    let at = 0;
    for (const [key, row] of wanted) {
      const entry = this.rows.get(key) ?? this.#add(key);
      entry.row = row;
      this.columns.forEach((column, index) => column.cell(entry.cells[index], row));
      if (this.body.children[at] !== entry.tr) this.body.insertBefore(entry.tr, this.body.children[at] ?? null);
      at += 1;
    }
    // A row that moves loses the focus that is in it.
    if (focused !== document.activeElement && focused?.isConnected && this.body.contains(focused)) focused.focus({ preventScroll: true });
    show(this.nothing, rows.length === 0);
    if (rows.length === 0) say(this.nothing, nothing);
    show(this.table.parentElement, rows.length > 0);
    show(this.pager, matched > PAGE);
    say(this.position, `${whole(offset + 1)}–${whole(offset + rows.length)} of ${whole(matched)}`);
    this.before.disabled = offset === 0;
    this.after.disabled = offset + rows.length >= matched;
  }

  #add(key) {
    const cells = this.columns.map((column) =>
      h(column.heading ? "th" : "td", { class: classes(column), scope: column.heading ? "row" : null }));
    const entry = { tr: h("tr", null, ...cells), cells, row: null };
    this.rows.set(key, entry);
    return entry;
  }

  tick() {
    if (!isInView(this.into)) return;
    const ticking = this.columns.map((column, at) => [column.tick, at]).filter(([tick]) => tick);
    for (const entry of this.rows.values()) for (const [tick, at] of ticking) tick(entry.cells[at], entry.row);
  }
}

const classes = (column) =>
  [column.number && "number", column.minor && "minor", column.grow && "grow", column.wide && "spread", column.wrap && "wrap", column.key === "actions" && "does"].filter(Boolean).join(" ") || null;

/** A table whose rows are all here: sorts, filters and pages them itself. */
export class LocalTable extends Table {
  constructor(options) {
    super({ ...options, onSort: (column) => this.sortBy(column), onPage: (by) => this.turn(by) });
    this.all = [];
    this.page = 0;
    this.accepts = () => true;
    this.values = options.values ?? {};
    this.nothingMatches = options.nothing ?? "Nothing matches.";
  }

  sortBy(column) {
    const again = this.sort.key === column.key;
    this.sort = { key: column.key, direction: again ? (this.sort.direction === "up" ? "down" : "up") : column.sort };
    this.page = 0;
    this.draw();
  }

  turn(by) {
    this.page += by;
    this.draw();
  }

  set(rows) {
    this.all = rows;
    this.draw();
  }

  accept(accepts) {
    this.accepts = accepts;
    this.page = 0;
    this.draw();
  }

  draw() {
    let rows = this.all.filter(this.accepts);
    const value = this.values[this.sort.key];
    if (value) {
      const sign = this.sort.direction === "up" ? 1 : -1;
      rows = rows.map((row) => [value(row), row]).sort(([a], [b]) => sign * compare(a, b)).map(([, row]) => row);
    }
    this.page = Math.max(0, Math.min(this.page, Math.ceil(rows.length / PAGE) - 1));
    const offset = this.page * PAGE;
    this.place(rows.slice(offset, offset + PAGE), { offset, matched: rows.length, nothing: this.nothingMatches });
  }
}

function compare(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return a - b;
}

/** A filter and a row of choices above a table. `onChange({filter, choice})`. */
export class Toolbar {
  constructor({ label, choices, onChange, id }) {
    this.choice = choices[0].key;
    this.onChange = onChange;
    this.input = h("input", { type: "search", id, placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false", maxlength: 200 });
    let timer = 0;
    this.input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.#tell(), 150);
    });
    this.buttons = new Map(choices.map(({ key, text }) => [key, h("button", { type: "button", "aria-pressed": String(key === this.choice), onclick: () => this.#choose(key) }, h("span", null, text), h("span", { class: "badge-count" }))]));
    this.element = h("div", { class: "toolbar" }, h("div", { class: "segments", role: "group", "aria-label": "Show" }, ...this.buttons.values()), this.input);
  }

  #choose(key) {
    this.choice = key;
    for (const [each, button] of this.buttons) mark(button, "aria-pressed", String(each === key));
    this.#tell();
  }

  #tell() {
    this.onChange({ filter: this.input.value.trim(), choice: this.choice });
  }

  count(key, value) {
    say(this.buttons.get(key).lastChild, typeof value === "number" ? whole(value) : "");
  }
}

/** A cell's own children, made once; after that `update(children, row)` writes into them. */
export const built = (make, update) => (td, row) => {
  if (!td.made) {
    td.made = make(row);
    td.append(...Object.values(td.made));
  }
  update(td.made, row);
};

export const text = (of) => (td, row) => say(td, of(row));

/** A word with a tone: ok, warn, bad, plain. Colour never says it alone. */
export function badge(element, word, tone) {
  say(element, word);
  mark(element, "class", `badge ${tone}`);
  show(element, Boolean(word));
}

/**
 * Swaps what is in `element`: `contents` where there is something, what `empty()` makes where there is nothing, and a word of
 * patience where it is too early to tell.
 */
export function swap(element, some, contents, empty) {
  const state = some ? "some" : isSettled() ? "none" : "early";
  if (element.swapped === state) return;
  element.swapped = state;
  element.replaceChildren(...(some ? contents : [state === "none" ? empty() : h("p", { class: "empty" }, "Looking…")]));
}

/** What to do where there is nothing yet: sentences, with commands in code. */
export const advice = (says, command) => h("div", { class: "empty" }, h("p", null, says), command ? h("pre", { tabindex: "0", role: "group", "aria-label": "Command" }, h("code", null, command)) : null);
