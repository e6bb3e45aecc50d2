// Where the time went.

/** A number with a decimal prefix. */
function scaled(n) {
  if (n < 1000) return `${n} `;
  const step = Math.min(5, Math.floor(Math.log10(n) / 3));
  return `${(n / 1000 ** step).toPrecision(4)} ${['', 'k', 'M', 'G', 'T', 'P'][step]}`;
}

function overview(run) {
  const { head } = run;
  const el = h('div', {});
  const parts = (q) => [['busy', q.busy, '#3b82f6'], ['host', q.host, '#f59e0b'], ['other queues', q.dependency, '#a855f7'], ['between launches', q.launch, '#9ca3af']];
  const bar = (q) => {
    const all = parts(q), total = all.reduce((a, p) => a + p[1], 0) || 1;
    const text = all.map(([name, ns]) => `${name} ${time(ns)} (${percent(ns / total)})`).join(', ');
    return [h('div', { class: 'bar', role: 'img', 'aria-label': `${q.name}: ${text}` }, all.map(([, ns, c]) => h('i', { css: { width: `${(100 * ns) / total}%`, background: c } }))),
      h('div', { class: 'dim' }, all.map(([name, ns, c], k) => [k ? ', ' : '', h('i', { css: { display: 'inline-block', width: '9px', height: '9px', background: c, 'margin-right': '3px' } }), `${name} ${time(ns)}`]))];
  };
  const order = head.kernels.map((_, k) => k).sort((a, b) => run.time[b].ns - run.time[a].ns);
  const top = () => order.slice(0, 40).map((k) => {
    const t = run.time[k], kernel = head.kernels[k], mean = t.ns / Math.max(1, t.launches);
    return { on: state.sel.kernel === k, go: () => select({ kernel: k }), cells: [link(kernel.name, () => go('schedule', { kernel: k })), kernel.device, t.launches, time(t.ns), percent(t.ns / Math.max(1, run.kernelNs)), t.launches ? time(mean) : '', t.launches ? (kernel.flops / mean).toFixed(1) : '', t.launches ? (kernel.unique_bytes / mean).toFixed(1) : '', roofShare(run, k)] };
  });
  const update = () => put(el,
    h('h2', {}, 'Run'),
    facts([['command', h('span', { class: 'mono' }, head.run.command)], ['device', head.run.device], ['length', time(head.run.length_ns)], ['began', new Date(head.run.began_s * 1000).toLocaleString()], ['release', head.run.release],
      ['schedules', `${head.plans.length} different ones, computed ${head.realizes.length} times`], ['kernels', `${head.kernels.length} compiled, ${(head.counters.kernels || 0).toLocaleString()} launched`], ['copies', `${(head.counters.copies || 0).toLocaleString()}, ${(head.counters.host_copies || 0).toLocaleString()} of them through the host`],
      ['work', `${scaled(head.counters.flops || 0)} operations, ${scaled(head.counters.mem_bytes || 0)}B of memory read and written`]]),
    head.notes.length ? h('ul', {}, head.notes.map((n) => h('li', { class: 'warn' }, n))) : '',
    h('h2', {}, 'Queues'), run.queues.length ? run.queues.map((q) => [h('div', {}, q.name), bar(q)]) : h('p', { class: 'dim' }, 'Nothing ran on a device.'),
    h('h2', {}, 'Kernels by time'),
    table('Kernels by time', ['kernel', 'device', 'launches', 'total', 'share', 'mean', 'GFLOP/s', 'GB/s', 'of roofline'], top()),
    order.length > 40 ? h('p', { class: 'dim' }, `and ${order.length - 40} more, in Schedule`) : '',
    h('h2', {}, 'Host'),
    table('Stages of the host', ['stage', 'times', 'total'], [...run.host].sort((a, b) => b[1].ns - a[1].ns).map(([name, t]) => [name, t.count, time(t.ns)])),
    run.copies.size ? [h('h2', {}, 'Copies'), table('Copies', ['copy', 'times', 'total'], [...run.copies].sort((a, b) => b[1].ns - a[1].ns).slice(0, 20).map(([name, t]) => [name, t.count, time(t.ns)]))].flat() : '');
  return { title: 'Overview', el, update, copy: () => el.innerText };
}
