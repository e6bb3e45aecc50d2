// Kernels against what their device can do.

/** The part of the roofline that a kernel reaches, as text. */
function roofShare(run, k) {
  const x = roofPart(run, k);
  return x === null ? '' : percent(x);
}

function roofPart(run, k) {
  const kernel = run.head.kernels[k], t = run.time[k], limit = run.head.limits.find((l) => l.device === kernel.device);
  if (!limit || !t.launches || !t.ns) return null;
  const least = Math.max(limit.gflops ? kernel.flops / limit.gflops : 0, limit.gbytes ? kernel.unique_bytes / limit.gbytes : 0);
  return least / (t.ns / t.launches);
}

function rooflineView(run) {
  const { head } = run;
  const choose = h('select', { 'aria-label': 'Device', onchange: () => draw() });
  const svg = s('svg', { role: 'img', viewBox: '0 0 900 460' });
  const about = h('p', { class: 'dim' });
  const shown = () => head.kernels.map((_, k) => k).filter((k) => head.kernels[k].device === choose.value && run.time[k].launches && head.kernels[k].unique_bytes);
  for (const d of new Set(head.kernels.map((k) => k.device))) choose.append(h('option', { value: d }, d));
  const place = (k) => { const kernel = head.kernels[k], ns = run.time[k].ns / run.time[k].launches; return [Math.max(1 / 64, kernel.flops / kernel.unique_bytes), Math.max(1e-4, kernel.flops / ns)]; };

  function draw() {
    const list = shown(), limit = head.limits.find((l) => l.device === choose.value);
    const points = list.map(place);
    const lo = (a) => Math.floor(Math.log2(Math.min(...a))), hi = (a) => Math.ceil(Math.log2(Math.max(...a)));
    const xs = [...points.map((p) => p[0]), 1, ...(limit && limit.gbytes ? [limit.gflops / limit.gbytes] : [])], ys = [...points.map((p) => p[1]), ...(limit ? [limit.gflops] : [1])];
    const x0 = lo(xs), x1 = hi(xs) + 1, y0 = lo(ys), y1 = hi(ys) + 1;
    const X = (v) => 60 + ((Math.log2(v) - x0) / (x1 - x0)) * 820, Y = (v) => 420 - ((Math.log2(v) - y0) / (y1 - y0)) * 400;
    const parts = [];
    for (let k = x0; k <= x1; k += Math.ceil((x1 - x0) / 10)) parts.push(s('line', { class: 'axis', x1: X(2 ** k), x2: X(2 ** k), y1: 20, y2: 420 }), s('text', { x: X(2 ** k) - 10, y: 436 }, k < 0 ? `1/${2 ** -k}` : 2 ** k));
    for (let k = y0; k <= y1; k += Math.ceil((y1 - y0) / 10)) parts.push(s('line', { class: 'axis', x1: 60, x2: 880, y1: Y(2 ** k), y2: Y(2 ** k) }), s('text', { x: 6, y: Y(2 ** k) + 4 }, k < 0 ? (2 ** k).toPrecision(2) : 2 ** k));
    parts.push(s('text', { x: 640, y: 454 }, 'operations a byte of distinct memory'), s('text', { x: 6, y: 14 }, 'GFLOP/s'));
    if (limit) {
      const ridge = limit.gflops / limit.gbytes;
      const from = Math.max(2 ** x0, 2 ** y0 / limit.gbytes);
      parts.push(s('path', { class: 'roof', d: `M${X(from)} ${Y(from * limit.gbytes)} L${X(ridge)} ${Y(limit.gflops)} L${X(2 ** x1)} ${Y(limit.gflops)}` }), s('text', { x: X(ridge) + 4, y: Y(limit.gflops) - 5 }, `${limit.gflops.toFixed(1)} GFLOP/s, ${limit.gbytes.toFixed(1)} GB/s`));
    }
    const most = Math.max(1, ...list.map((k) => run.time[k].ns));
    list.forEach((k, i) => {
      const on = k === state.sel.kernel, dot = s('circle', { cx: X(points[i][0]), cy: Y(points[i][1]), r: 4 + 12 * Math.sqrt(run.time[k].ns / most), onclick: () => select({ kernel: k }) }, s('title', {}, `${head.kernels[k].name}: ${points[i][1].toFixed(2)} GFLOP/s, ${roofShare(run, k)}`));
      dot.style.fill = colour(head.kernels[k].name, state.dark);
      dot.style.stroke = on ? 'var(--mark)' : 'var(--dim)';
      dot.style.strokeWidth = on ? '3' : '1';
      dot.style.cursor = 'pointer';
      parts.push(dot);
    });
    svg.replaceChildren(...parts);
    svg.setAttribute('aria-label', `Roofline of ${choose.value}: ${list.length} kernels`);
    about.textContent = limit ? `Limits of ${limit.device} as measured: ${limit.how}. The size of a circle is the kernel's total time.` : 'The limits of this device were not measured (software GPUs have none); the size of a circle is the kernel\'s total time.';
    order = list.sort((a, b) => run.time[b].ns - run.time[a].ns);
    rows.refresh();
    if (Number.isInteger(state.sel.kernel)) rows.show(order.indexOf(state.sel.kernel));
  }
  let order = [];
  const rows = new List('Kernels by time', {
    count: () => order.length,
    text: (i) => { const k = order[i], [x, y] = place(k); return `${head.kernels[k].name} ${x.toFixed(3)} operations a byte ${y.toFixed(3)} GFLOP/s ${roofShare(run, k)}`; },
    row: (i) => { const k = order[i], [x, y] = place(k); return [cell(head.kernels[k].name, 32), cell(`${x.toFixed(2)} op/B`, 12), cell(`${y.toFixed(2)} GFLOP/s`, 16), cell(`${(head.kernels[k].unique_bytes / (run.time[k].ns / run.time[k].launches)).toFixed(2)} GB/s`, 13), wide(roofShare(run, k))]; },
    select: (i) => select({ kernel: order[i] }),
    open: () => show('code'),
  });
  rows.el.style.flex = '0 1 200px';
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' }, choose), about, svg, rows.el);
  const update = () => {
    const k = head.kernels[state.sel.kernel];
    if (k && run.time[state.sel.kernel].launches) choose.value = k.device;
    if (head.kernels.length) draw(); else about.textContent = 'No kernel was compiled.';
  };
  return { title: 'Roofline', el, list: rows, update };
}
