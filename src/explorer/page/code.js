// A kernel's linear program, its text, and machine code with control words and registers alive.

const FORMS = [['program', 'linear program'], ['text', 'as text'], ['source', 'source'], ['listing', 'machine code']];

function codeView(run) {
  const choose = kernelChoice(run);
  const forms = h('div', { role: 'group', 'aria-label': 'Form' }, FORMS.map(([id, title]) => h('button', { type: 'button', 'data-form': id, onclick: () => { form = id; arrange(); } }, title)));
  const about = h('span', { class: 'dim' });
  let form = 'listing', code = null, loaded = -1, rows = [];
  const list = new List('Code', {
    count: () => rows.length, text: (i) => rows[i].text, row: (i) => rows[i].row(),
    select: (i) => say(rows[i].about || rows[i].text),
  });
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' }, choose, forms, about), list.el);

  function arrange() {
    if (!code) return;
    if (!code[form === 'program' ? 'list' : form === 'text' ? 'program' : form].length) form = code.listing ? 'listing' : 'text';
    for (const b of forms.children) { b.setAttribute('aria-pressed', b.dataset.form === form ? 'true' : 'false'); b.disabled = b.dataset.form !== 'program' && b.dataset.form !== 'text' && !code[b.dataset.form]; }
    rows = { program, text: () => plain(code.program), source: () => plain(code.source), listing }[form]();
    list.at = -1;
    list.refresh();
    about.textContent = summary();
  }

  let summary = () => '';
  const plain = (text) => { summary = () => `arguments: ${code.arguments.join('; ')}`; return text.split('\n').map((t, k) => ({ text: t, row: () => [cell(k + 1, 5, 'dim'), wide(t)] })); };

  function program() {
    const { nodes } = code;
    const banks = new Map(code.banks || []);
    let depth = 0;
    const out = code.list.map((n, k) => {
      const op = textOf(nodes, 'op', n);
      if (op === 'End' || op === 'EndIf') depth = Math.max(0, depth - 1);
      const text = `${'  '.repeat(depth)}%${n} = ${op} ${textOf(nodes, 'dtype', n)} ${textOf(nodes, 'arg', n)} ${nodes.src[n].map((m) => `%${m}`).join(' ')}`.trimEnd();
      if (op === 'Range' || op === 'If') depth++;
      const ways = banks.get(k);
      const shared = ways === undefined ? '' : ways === 1 ? 'no bank conflict' : `${ways}-way bank conflict`;
      return {
        text: shared ? `${text}  // ${shared}` : text, about: formula(nodes, n, 4) + (shared ? `; workgroup memory: ${shared}` : ''),
        row: () => [cell(k, 6, 'dim'), h('span', { class: ways > 1 ? 'wide warn' : 'wide' }, shared ? `${text}  // ${shared}` : text)],
      };
    });
    const worst = Math.max(0, ...banks.values());
    summary = () => `${out.length} nodes${worst ? `; ${banks.size} accesses of workgroup memory, at most ${worst} cycles each by banks` : ''}`;
    return out;
  }

  function listing() {
    const { kind, lines } = assembly(code.listing);
    const most = Math.max(1, ...lines.map((l) => l.alive));
    const memory = lines.filter((l) => /\b(LDS|STS|LDSM|ds_\w+|LDGSTS)\b/.test(l.text)).length;
    const waits = lines.filter((l) => /s_wait|\bDEPBAR|\bBAR\b|s_barrier/.test(l.text)).length;
    summary = () => `${lines.length} lines, at most ${most} registers alive${memory ? `, ${memory} accesses of shared memory` : ''}${waits ? `, ${waits} waits and barriers` : ''}`;
    return lines.map((l, k) => ({
      text: l.text,
      about: `${l.alive} registers alive (from first to last mention)${l.control ? `; control word ${l.control}` : ''}; mentions ${[...l.registers].join(' ')}`,
      row: () => {
        const bar = h('i', { css: { display: 'inline-block', height: '9px', width: `${(6 * l.alive) / most}ch`, background: 'var(--mark)', opacity: 0.6 } });
        const alive = h('span', { 'aria-label': `${l.alive} alive` }, bar, l.registers.size ? ` ${l.alive}` : '');
        alive.style.width = '11ch';
        const isWait = /s_wait|\bDEPBAR|\bBAR\b|s_barrier|s_nop/.test(l.text);
        return [cell(k + 1, 5, 'dim'), alive, kind === 'nv' ? cell(l.control, 24, 'dim') : null, h('span', { class: isWait ? 'wide warn' : 'wide' }, kind === 'nv' && l.control ? l.rest.trim() : l.text)].filter((c) => c);
      },
    }));
  }

  async function update() {
    const k = chosenKernel(run);
    if (k < 0) { about.textContent = 'No kernel was compiled.'; return; }
    choose.value = String(k);
    if (loaded === k) return;
    code = await part(`${run.prefix}kernel:${k}`);
    if (!code) { about.textContent = 'This kernel has no part in the file.'; return; }
    loaded = k;
    arrange();
  }
  return { title: 'Code', el, list, update };
}

/** The candidates of a search. */
function beamView(run) {
  const { head } = run;
  const choose = kernelChoice(run);
  const about = h('span', { class: 'dim' });
  let rows = [], loaded = -1, best = 1;
  const list = new List('Candidates', {
    count: () => rows.length, text: (i) => `${rows[i].ns ? time(rows[i].ns) : 'failed'} ${rows[i].opts}`,
    row: (i) => {
      const c = rows[i];
      const bar = h('span', {}, h('i', { css: { display: 'inline-block', height: '9px', width: `${c.ns ? Math.min(24, (6 * c.ns) / best) : 0}ch`, background: 'var(--mark)' } }));
      bar.style.width = '25ch';
      return [cell(i + 1, 5, 'dim'), cell(c.ns ? time(c.ns) : 'failed', 10), cell(c.ns ? `x ${(c.ns / best).toFixed(2)}` : '', 8), bar, wide(c.opts || 'no opts')];
    },
    select: (i) => say(rows[i].opts || 'no opts'),
  });
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' }, choose, about), list.el);
  async function update() {
    let k = chosenKernel(run);
    if (k < 0) { about.textContent = 'No kernel was compiled.'; return; }
    if (!head.kernels[k].candidates && !Number.isInteger(state.sel.kernel)) k = Math.max(0, head.kernels.findIndex((x) => x.candidates));
    choose.value = String(k);
    if (loaded === k) return;
    const code = await part(`${run.prefix}kernel:${k}`);
    loaded = k;
    rows = (code ? code.candidates : []).slice().sort((a, b) => (a.ns || Infinity) - (b.ns || Infinity));
    best = Math.max(1, rows.length ? rows[0].ns : 1);
    about.textContent = rows.length ? `${rows.length} candidates, fastest first` : 'No search: BEAM=n searches for the opts of each kernel by timing candidates.';
    list.refresh();
  }
  return { title: 'Search', el, list, update };
}
