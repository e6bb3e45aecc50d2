// The user's program: the calls that made values.

function linesView(run) {
  const { head } = run;
  const ns = head.lines.map((_, l) => {
    const kernels = new Set(run.itemsOfLine[l].map(([p, i]) => kernelOf(head.plans[p].items[i])).filter((k) => k !== null));
    return [...kernels].reduce((a, k) => a + run.time[k].ns, 0);
  });
  const order = head.lines.map((_, l) => l).sort((a, b) => (head.lines[a].file < head.lines[b].file ? -1 : head.lines[a].file > head.lines[b].file ? 1 : head.lines[a].line - head.lines[b].line));
  const list = new List('Lines of the program', {
    count: () => order.length,
    text: (i) => { const l = head.lines[order[i]]; return `${l.file}:${l.line} ${l.op} ${l.text}`; },
    row: (i) => {
      const l = head.lines[order[i]], items = run.itemsOfLine[order[i]];
      const item = head.plans[state.sel.plan]?.items[state.sel.item];
      return { rel: item && item.lines.includes(order[i]), cells: [cell(`${short(l.file)}:${l.line}`, 30), cell(l.op, 18), cell(items.length ? `${items.length} items` : 'no item', 10, 'dim'), cell(ns[order[i]] ? time(ns[order[i]]) : '', 10), wide(l.text)] };
    },
    select: (i) => select({ line: order[i] }),
    open: (i) => go('graph', { line: order[i] }),
  });
  const el = h('div', { css: { display: 'contents' } }, h('p', { class: 'dim' }, 'Calls that made values. The time is that of all kernels that compute a value of the line, with what they compute beside it. Enter: the graph.'), list.el);
  return { title: 'Lines', el, list, update: () => { list.refresh(); if (state.sel.line !== undefined) list.show(order.indexOf(state.sel.line)); } };
}
