// Calls of kernel drivers, and the packets behind each doorbell.

function callsView(run) {
  let calls = null, rows = [];
  const about = h('p', { class: 'dim' });
  const detail = h('pre', { css: { 'max-height': 'none', flex: '1 1 auto' } });
  const list = new List('Calls and packets', {
    count: () => rows.length,
    text: (i) => { const [c, p] = rows[i]; return p === null ? calls.text[c] : calls.packets[c][p]; },
    row: (i) => {
      const [c, p] = rows[i];
      if (p !== null) return [cell('', 12), cell('packet', 8, 'dim'), wide(calls.packets[c][p])];
      return [cell(time(calls.at_ns[c]), 12, 'dim'), cell(calls.length_ns[c] >= 1000 ? time(calls.length_ns[c]) : '', 8, 'dim'), wide(calls.text[c])];
    },
    select: (i) => { select({ call: rows[i][0] }); explain(i); },
    open: (i) => explain(i),
  });
  const el = h('div', { css: { display: 'contents' } }, about, h('div', { class: 'split', css: { 'grid-template-columns': '2fr 1fr' } }, h('div', {}, list.el), h('div', {}, detail)));
  /** Each named field on a line of its own. */
  function explain(i) {
    const text = list.source.text(i), [c, p] = rows[i];
    detail.textContent = `${text.replace(/, (?=[\w.]+[:=( ])/g, ',\n  ').replace(/ \{ /g, ' {\n  ')}${p === null && calls.packets[c].length ? `\n\n${calls.packets[c].join('\n')}` : ''}`;
  }
  async function update() {
    if (!calls) {
      calls = (await part(`${run.prefix}calls`)) || { at_ns: [], length_ns: [], text: [], packets: [] };
      rows = calls.text.flatMap((_, c) => [[c, null], ...(calls.packets[c] || []).map((_, p) => [c, p])]);
      const packets = calls.packets.reduce((a, p) => a + p.length, 0);
      about.textContent = rows.length ? `${calls.text.length.toLocaleString()} calls of drivers and stores to doorbells, ${packets.toLocaleString()} packets. Fields of what is selected are on the right.` : 'No call of a GPU driver: the run used none, or was not one of doorbell\'s own commands.';
    }
    list.refresh();
    if (Number.isInteger(state.sel.call)) { const at = rows.findIndex(([c]) => c === state.sel.call); if (at >= 0 && (list.at < 0 || rows[list.at][0] !== state.sel.call)) list.show(at); }
  }
  return { title: 'Calls', el, list, update };
}
