// Lists of any length: only the rows that are seen exist.

const ROW = 22;

/**
 * A list box. `count()` rows, `row(i)` gives cells (texts or elements) or { cells, rel }, `text(i)` what search looks in,
 * `select(i)` and `open(i)` are called with the row that is chosen.
 */
class List {
  constructor(label, source) {
    this.source = source;
    this.at = -1;
    this.hits = null;
    this.space = h('div', { role: 'presentation' });
    this.el = h('div', { class: 'list', role: 'listbox', tabindex: 0, 'aria-label': label, onscroll: () => this.draw(), onkeydown: (e) => this.key(e) }, this.space);
    this.id = `list-${List.next++}`;
    new ResizeObserver(() => this.draw()).observe(this.el);
  }

  refresh() {
    const n = this.source.count();
    if (this.at >= n) this.at = n - 1;
    this.space.style.height = `${n * ROW}px`;
    this.drawn = null;
    this.draw();
  }

  draw() {
    const n = this.source.count();
    const first = Math.max(0, Math.floor(this.el.scrollTop / ROW) - 2);
    const last = Math.min(n, Math.ceil((this.el.scrollTop + this.el.clientHeight) / ROW) + 2);
    const key = `${first} ${last} ${this.at}`;
    if (this.drawn === key) return;
    this.drawn = key;
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(i, n));
    this.space.replaceChildren(...rows);
    const active = i => i >= first && i < last;
    if (active(this.at)) this.el.setAttribute('aria-activedescendant', `${this.id}-${this.at}`);
    else this.el.removeAttribute('aria-activedescendant');
  }

  row(i, n) {
    const made = this.source.row(i), cells = made.cells || made;
    const on = i === this.at;
    const classes = ['row', on && 'on', made.rel && 'rel', this.hits && this.hits.has(i) && 'hit'].filter((c) => c).join(' ');
    return h('div', { class: classes, role: 'option', id: `${this.id}-${i}`, 'aria-selected': on ? 'true' : 'false', 'aria-posinset': i + 1,
      'aria-setsize': n, css: { top: `${i * ROW}px` }, onclick: () => { this.el.focus({ preventScroll: true }); this.choose(i); }, ondblclick: () => this.open(i) }, cells);
  }

  key(e) {
    const page = Math.max(1, Math.floor(this.el.clientHeight / ROW) - 1), n = this.source.count();
    const to = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + page, PageUp: this.at - page, Home: 0, End: n - 1 }[e.key];
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (to !== undefined && n) {
      e.preventDefault();
      this.choose(Math.min(n - 1, Math.max(0, to)));
    } else if (e.key === 'Enter' && this.at >= 0) {
      e.preventDefault();
      this.open(this.at);
    }
  }

  choose(i) {
    this.show(i);
    if (this.source.select) this.source.select(i);
  }

  open(i) {
    if (this.source.open) this.source.open(i);
  }

  /** Marks a row and scrolls to it. */
  show(i) {
    this.at = i;
    if (i >= 0) {
      const top = i * ROW, el = this.el;
      if (top < el.scrollTop) el.scrollTop = top;
      else if (top + ROW > el.scrollTop + el.clientHeight) el.scrollTop = top + ROW - el.clientHeight;
    }
    this.drawn = null;
    this.draw();
  }

  /** Marks what contains the words; the number of rows. */
  find(words) {
    this.hits = null;
    if (words) {
      this.hits = new Set();
      const n = this.source.count();
      for (let i = 0; i < n; i++) if (this.source.text(i).toLowerCase().includes(words)) this.hits.add(i);
    }
    this.drawn = null;
    this.draw();
    return this.hits ? this.hits.size : 0;
  }

  /** Goes to the next hit. */
  next() {
    if (!this.hits || !this.hits.size) return;
    const all = [...this.hits];
    this.choose(all.find((i) => i > this.at) ?? all[0]);
  }

  /** All rows as text. */
  copy() {
    const out = [], n = Math.min(this.source.count(), 200000);
    for (let i = 0; i < n; i++) out.push(this.source.text(i));
    return out.join('\n');
  }
}
List.next = 0;

/** A cell of a given width in characters. */
function cell(text, width, cls) {
  const el = h('span', { class: cls, title: String(text).length > width ? text : undefined }, text);
  el.style.width = `${width}ch`;
  return el;
}

/** A cell that takes what is left. */
const wide = (text) => h('span', { class: 'wide' }, text);
