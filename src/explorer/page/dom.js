// Elements. Text of a record goes into text nodes only, so markup in it stays text.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes and children; `on...` are listeners, `class` and the rest attributes, texts text nodes. */
function h(tag, attrs, ...kids) {
  return fill(document.createElement(tag), attrs, kids);
}

/** The same in SVG. */
function s(tag, attrs, ...kids) {
  return fill(document.createElementNS(SVG, tag), attrs, kids);
}

function fill(el, attrs, kids) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else if (name === 'css') for (const [p, v] of Object.entries(value)) el.style.setProperty(p, v);
    else el.setAttribute(name, value === true ? '' : String(value));
  }
  for (const kid of kids.flat(Infinity)) {
    if (kid === undefined || kid === null || kid === false) continue;
    el.append(kid instanceof Node ? kid : document.createTextNode(String(kid)));
  }
  return el;
}

const $ = (id) => document.getElementById(id);

/** A button that looks like a link. */
function link(text, go, title) {
  return h('button', { class: 'link', type: 'button', title, onclick: go }, text);
}

/** A table of rows; a cell is text or an element. */
function table(caption, heads, rows) {
  const head = h('tr', {}, heads.map((t) => h('th', { scope: 'col' }, t)));
  const body = rows.map((r) => h('tr', { 'aria-selected': r.on ? 'true' : undefined, onclick: r.go }, (r.cells || r).map((c) => h('td', {}, c))));
  return h('table', { 'aria-label': caption }, h('thead', {}, head), h('tbody', {}, body));
}

/** Name and value pairs. */
function facts(pairs) {
  return h('dl', {}, pairs.filter((p) => p && p[1] !== '' && p[1] !== undefined).map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)]));
}

/** A time with its unit. */
function time(ns) {
  if (ns === undefined || Number.isNaN(ns)) return '';
  const a = Math.abs(ns);
  if (a < 1e3) return `${ns.toFixed(0)} ns`;
  if (a < 1e6) return `${(ns / 1e3).toFixed(2)} us`;
  if (a < 1e9) return `${(ns / 1e6).toFixed(2)} ms`;
  return `${(ns / 1e9).toFixed(3)} s`;
}

/** A number of bytes with its unit. */
function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1 << 20) return `${(n / 1024).toFixed(1)} KiB`;
  if (n < 1 << 30) return `${(n / (1 << 20)).toFixed(1)} MiB`;
  return `${(n / (1 << 30)).toFixed(2)} GiB`;
}

const percent = (x) => `${(100 * x).toFixed(1)} %`;

/** The colour of a name: the same in every view. */
function colour(name, dark) {
  let hash = 2166136261;
  for (let k = 0; k < name.length; k++) hash = Math.imul(hash ^ name.charCodeAt(k), 16777619);
  const hue = (hash >>> 0) % 360;
  return `hsl(${hue} ${dark ? '45%' : '60%'} ${dark ? '34%' : '78%'})`;
}

/** Replaces what is in an element. */
function put(el, ...kids) {
  el.replaceChildren();
  return fill(el, {}, kids);
}
