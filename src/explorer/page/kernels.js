// What runs, in order, and why it is as it is.

function scheduleView(run) {
  const { head } = run;
  const rows = head.plans.flatMap((p, k) => p.items.map((_, i) => [k, i]));
  const at = new Map(rows.map(([p, i], k) => [`${p} ${i}`, k]));
  const times = head.plans.map(() => 0);
  head.realizes.forEach((r) => { if (times[r.plan] !== undefined) times[r.plan]++; });
  const name = ([p, i]) => itemName(run, head.plans[p].items[i]);
  const list = new List('Items of all schedules', {
    count: () => rows.length,
    text: (k) => { const [p, i] = rows[k], item = head.plans[p].items[i]; return `schedule ${p} item ${i} ${name(rows[k])} ${item.device} ${item.cuts.map((c) => c[1]).join('; ')}`; },
    row: (k) => {
      const [p, i] = rows[k], item = head.plans[p].items[i], n = kernelOf(item), t = n === null ? null : run.time[n];
      return { rel: n !== null && n === state.sel.kernel, cells: [cell(`${p}.${i}`, 7, 'dim'), cell(name(rows[k]), 30), cell(item.device, 8, 'dim'), cell(item.values[0] ? `${item.values[0]} values` : '', 11), cell(t && t.launches ? `${t.launches} x` : '', 8), cell(t && t.launches ? time(t.ns / t.launches) : '', 10), cell(t && run.kernelNs ? percent(t.ns / run.kernelNs) : '', 7), wide(item.cuts.length ? `cut: ${item.cuts[0][1]}` : item.values[0] > 1 ? `${item.values[0]} values fused` : '')] };
    },
    select: (k) => select({ plan: rows[k][0], item: rows[k][1] }),
    open: () => show('code'),
  });
  const why = h('div', {});
  const el = h('div', { css: { display: 'contents' } }, list.el, h('div', { css: { 'max-height': '40%', overflow: 'auto', flex: 'none' } }, why));
  async function update() {
    list.refresh();
    const { plan: p, item: i } = state.sel, item = head.plans[p]?.items[i];
    if (!item) { put(why, h('p', { class: 'dim' }, 'Select an item to see why it is as it is. Enter: its code.')); return; }
    list.show(at.get(`${p} ${i}`));
    const from = head.plans[p].items.map((x, k) => [k, x.cuts.find((c) => c[0] === i)]).filter(([, c]) => c);
    const graph = await part(`${run.prefix}plan:${p}`);
    const computed = graph ? graph.items.map((of, n) => (of.includes(i) ? n : -1)).filter((n) => n >= 0) : [];
    const ops = new Map();
    for (const n of computed) { const op = textOf(graph.nodes, 'op', n); ops.set(op, (ops.get(op) || 0) + 1); }
    put(why, h('h2', {}, name([p, i])),
      h('p', {}, `Schedule ${p} ran ${times[p]} times. `, item.values[0] > 1 ? `The item computes ${item.values[0]} values in one pass and stores ${item.values[1]}: the others are used where they are made. ` : '', ops.size ? `They are ${[...ops].sort((a, b) => b[1] - a[1]).map(([op, n]) => (n > 1 ? `${n} ${op}` : op)).join(', ')}.` : ''),
      item.cuts.length ? [h('h3', {}, 'Its results go through memory to'), h('ul', {}, item.cuts.map(([to, text]) => h('li', {}, link(name([p, to]), () => select({ plan: p, item: to })), ' because ', text)))] : '',
      from.length ? [h('h3', {}, 'It reads what was stored by'), h('ul', {}, from.map(([k, c]) => h('li', {}, link(name([p, k]), () => select({ plan: p, item: k })), ' because ', c[1])))] : '');
  }
  return { title: 'Schedule', el, list, update };
}
