// Two runs: kernels that came, went, became slower or faster; their code side by side.

/** Lines of two texts: [' ' both, '-' first, '+' second] by a longest common subsequence of unequal middles. */
function lineDiff(a, b) {
  let from = 0, endA = a.length, endB = b.length;
  while (from < endA && from < endB && a[from] === b[from]) from++;
  while (endA > from && endB > from && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const out = a.slice(0, from).map((t) => [' ', t]), n = endA - from, m = endB - from;
  if (n * m <= 4e6) {
    const w = m + 1, best = new Uint32Array((n + 1) * w);
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) best[i * w + j] = a[from + i] === b[from + j] ? best[(i + 1) * w + j + 1] + 1 : Math.max(best[(i + 1) * w + j], best[i * w + j + 1]);
    let i = 0, j = 0;
    while (i < n || j < m) {
      if (i < n && j < m && a[from + i] === b[from + j]) { out.push([' ', a[from + i]]); i++; j++; }
      else if (j >= m || (i < n && best[(i + 1) * w + j] >= best[i * w + j + 1])) out.push(['-', a[from + i++]]);
      else out.push(['+', b[from + j++]]);
    }
  } else {
    a.slice(from, endA).forEach((t) => out.push(['-', t]));
    b.slice(from, endB).forEach((t) => out.push(['+', t]));
  }
  a.slice(endA).forEach((t) => out.push([' ', t]));
  return out;
}

/** Two texts, changed lines marked. */
function sideBySide(nameA, a, nameB, b) {
  const diff = lineDiff(a, b).slice(0, 6000), left = [], right = [];
  let k = 0;
  while (k < diff.length) {
    if (diff[k][0] === ' ') { left.push(diff[k]); right.push(diff[k]); k++; continue; }
    const minus = [], plus = [];
    while (k < diff.length && diff[k][0] !== ' ') { (diff[k][0] === '-' ? minus : plus).push(diff[k]); k++; }
    for (let i = 0; i < Math.max(minus.length, plus.length); i++) { left.push(minus[i] || [' ', '']); right.push(plus[i] || [' ', '']); }
  }
  const col = (title, lines) => h('div', {}, h('h3', {}, title), h('pre', { css: { 'max-height': 'none' } }, lines.map(([sign, t]) => h('span', { class: sign === '-' ? 'minus' : sign === '+' ? 'plus' : undefined }, `${t}\n`))));
  return h('div', { class: 'split' }, col(nameA, left), col(nameB, right));
}

function diffView(now, before) {
  const taken = new Set(), pairs = [];
  const key = (k) => `${k.key} ${k.device}`;
  const find = (test) => before.head.kernels.findIndex((k, n) => !taken.has(n) && test(k));
  const pairOf = now.head.kernels.map((k) => { const n = find((o) => key(o) === key(k)); if (n >= 0) taken.add(n); return n; });
  now.head.kernels.forEach((k, i) => { if (pairOf[i] < 0) { const n = find((o) => o.name === k.name); if (n >= 0) { taken.add(n); pairOf[i] = n; } } });
  now.head.kernels.forEach((_, i) => pairs.push([pairOf[i] < 0 ? null : pairOf[i], i]));
  before.head.kernels.forEach((_, n) => { if (!taken.has(n)) pairs.push([n, null]); });
  const ns = (run, k) => (k === null ? 0 : run.time[k].ns);
  const mean = (run, k) => (k === null || !run.time[k].launches ? NaN : run.time[k].ns / run.time[k].launches);
  pairs.sort((a, b) => Math.abs(ns(now, b[1]) - ns(before, b[0])) - Math.abs(ns(now, a[1]) - ns(before, a[0])));
  const name = ([b, a]) => (a === null ? before.head.kernels[b].name : now.head.kernels[a].name);
  const ratio = ([b, a]) => mean(now, a) / mean(before, b);
  const word = (p) => (p[0] === null ? 'new' : p[1] === null ? 'gone' : Number.isFinite(ratio(p)) ? `x ${ratio(p).toFixed(2)}` : '');
  const list = new List('Kernels of both runs', {
    count: () => pairs.length,
    text: (i) => `${name(pairs[i])} ${time(ns(before, pairs[i][0]))} ${time(ns(now, pairs[i][1]))} ${word(pairs[i])}`,
    row: (i) => { const p = pairs[i], r = ratio(p), w = cell(word(p), 8, r > 1.05 || p[0] === null ? 'bad' : r < 0.95 || p[1] === null ? 'good' : 'dim'); return [cell(name(p), 34), cell(p[0] === null ? '-' : time(ns(before, p[0])), 12), cell(p[1] === null ? '-' : time(ns(now, p[1])), 12), w, wide('')]; },
    select: (i) => { if (pairs[i][1] !== null) select({ kernel: pairs[i][1] }); explain(pairs[i]); },
  });
  const detail = h('div', { css: { overflow: 'auto', flex: '2 1 300px' } });
  async function explain(p) {
    const text = async (run, k) => { const code = k === null ? null : await part(`${run.prefix}kernel:${k}`); return code ? (code.listing || code.program).split('\n') : []; };
    const [b, a] = [await text(before, p[0]), await text(now, p[1])];
    const opts = (run, k) => (k === null ? '-' : run.head.kernels[k].opts.join(', ') || 'none');
    put(detail, h('h2', {}, name(p)), facts([['opts before', opts(before, p[0])], ['opts after', opts(now, p[1])]]), sideBySide('before', b, 'after', a));
  }
  const el = h('div', { css: { display: 'contents' } }, h('p', { class: 'dim' }, `Before: ${before.head.run.command}. After: ${now.head.run.command}. Kernels: ${time(before.kernelNs)} before, ${time(now.kernelNs)} after. Selected: code side by side.`), list.el, detail);
  return { title: 'Diff', el, list, update: () => list.refresh() };
}
