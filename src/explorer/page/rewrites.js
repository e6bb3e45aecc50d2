// The rewrites of a kernel: the graph after each pass, and each applied rule with its place.

/** A list of all kernels to choose from. */
function kernelChoice(run, change) {
  const choose = h('select', { 'aria-label': 'Kernel', onchange: () => { select({ kernel: Number(choose.value) }); if (change) change(); } });
  run.head.kernels.forEach((k, n) => choose.append(h('option', { value: n }, `${k.name} (${k.device})`)));
  return choose;
}

/** The kernel that is selected, else the one that took longest. */
function chosenKernel(run) {
  if (run.head.kernels[state.sel.kernel]) return state.sel.kernel;
  return run.time.reduce((best, t, k) => (best < 0 || t.ns > run.time[best].ns ? k : best), -1);
}

function rewritesView(run) {
  const { head } = run;
  const choose = kernelChoice(run);
  const rule = h('select', { 'aria-label': 'Rule', onchange: () => filter() });
  const about = h('span', { class: 'dim' });
  const detail = h('div', { css: { overflow: 'auto' } });
  let code = null, loaded = -1, rows = [];
  const name = (r) => (head.rules[r] ? head.rules[r].name : '?');
  const list = new List('Passes and applied rules', {
    count: () => rows.length,
    text: (i) => (rows[i] < 0 ? `pass ${code.stages[-1 - rows[i]][0]}` : `${rows[i]} ${name(code.steps.rule[rows[i]])} ${formula(code.nodes, code.steps.before[rows[i]], 2)} -> ${formula(code.nodes, code.steps.after[rows[i]], 2)}`),
    row: (i) => {
      const n = rows[i];
      if (n < 0) return [cell('pass', 7, 'dim'), wide(code.stages[-1 - n][0])];
      return [cell(n, 7, 'dim'), cell(name(code.steps.rule[n]), 20), wide(`${formula(code.nodes, code.steps.before[n], 2)}  \u2192  ${formula(code.nodes, code.steps.after[n], 2)}`)];
    },
    select: (i) => { if (rows[i] >= 0) select({ step: rows[i] }); explain(rows[i]); },
    open: (i) => explain(rows[i]),
  });
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' }, choose, rule, about), h('div', { class: 'split' }, h('div', {}, list.el), detail));

  function filter() {
    if (!code) return;
    const only = rule.value === '' ? null : Number(rule.value);
    rows = only === null ? code.stages.map((_, k) => -1 - k) : [];
    code.steps.rule.forEach((r, n) => { if (only === null || r === only) rows.push(n); });
    list.at = -1;
    list.refresh();
    about.textContent = `${code.steps.rule.length.toLocaleString()} rules applied${code.steps.left_out ? `, ${code.steps.left_out} more left out` : ''}`;
  }

  function explain(n) {
    if (n === undefined || !code) { put(detail, h('p', { class: 'dim' }, 'Select a pass or a rule.')); return; }
    if (n < 0) {
      const [title, root] = code.stages[-1 - n], before = code.stages[-2 - n];
      const now = tree(code.nodes, root, 4000);
      put(detail, h('h2', {}, `After pass: ${title}`), before ? sideBySide(before[0], tree(code.nodes, before[1], 4000), title, now) : h('pre', {}, now.join('\n')));
      return;
    }
    const r = head.rules[code.steps.rule[n]], before = code.steps.before[n], after = code.steps.after[n];
    put(detail, h('h2', {}, `${r.name} `, h('span', { class: 'dim' }, r.list)), h('p', {}, r.about),
      facts([['defined at', h('span', { class: 'mono' }, r.place)], ['step', `${n} of ${code.steps.rule.length}`], ['in this run', `${r.count.toLocaleString()} times`]]),
      h('h3', {}, 'Before'), h('pre', { class: 'minus' }, `${formula(code.nodes, before, 6)}\n\n${tree(code.nodes, before, 60).join('\n')}`),
      h('h3', {}, 'After'), h('pre', { class: 'plus' }, `${formula(code.nodes, after, 6)}\n\n${tree(code.nodes, after, 60).join('\n')}`));
  }

  async function update() {
    const k = chosenKernel(run);
    if (k < 0) { about.textContent = 'No kernel was compiled.'; return; }
    choose.value = String(k);
    if (loaded !== k) {
      code = await part(`${run.prefix}kernel:${k}`);
      if (!code) { about.textContent = 'This kernel has no part in the file.'; return; }
      loaded = k;
      const used = new Map();
      for (const r of code.steps.rule) used.set(r, (used.get(r) || 0) + 1);
      put(rule, h('option', { value: '' }, 'all rules'), [...used].sort((a, b) => b[1] - a[1]).map(([r, n]) => h('option', { value: r }, `${name(r)}: ${n}`)));
      filter();
    }
    if (Number.isInteger(state.sel.step)) { const i = rows.indexOf(state.sel.step); if (i >= 0) list.show(i); explain(state.sel.step); } else explain(undefined);
  }
  return { title: 'Rewrites', el, list, update };
}
