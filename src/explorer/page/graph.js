// The graph of Tensors of a schedule, coloured by the item that computes each node.

const MOST_SHOWN = 400;

function graphView(run) {
  const { head } = run;
  const choose = h('select', { 'aria-label': 'Schedule', onchange: () => select({ plan: Number(choose.value), item: undefined }) });
  head.plans.forEach((p, k) => choose.append(h('option', { value: k }, `schedule ${k}: ${p.items.length} items`)));
  const only = h('input', { type: 'checkbox', onchange: () => draw() });
  const moves = h('input', { type: 'checkbox', onchange: () => draw() });
  const about = h('span', { class: 'dim' });
  const root = s('g', {});
  const svg = s('svg', { role: 'application', 'aria-label': 'Graph of Tensors: arrow keys go to sources and users', tabindex: 0 }, root);
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' }, choose, h('label', {}, only, ' only the selected item'), h('label', {}, moves, ' with constants and movement'), about), svg);
  let graph = null, loaded = -1, places = new Map(), view = { x: 0, y: 0, k: 1 }, drawn = '';

  const plan = () => (Number.isInteger(state.sel.plan) && head.plans[state.sel.plan] ? state.sel.plan : biggest());
  const biggest = () => head.plans.reduce((best, p, k) => (p.items.length > head.plans[best].items.length ? k : best), 0);

  async function update() {
    if (!head.plans.length) { about.textContent = 'Nothing was scheduled.'; return; }
    const p = plan();
    choose.value = String(p);
    if (loaded !== p) {
      graph = await part(`${run.prefix}plan:${p}`);
      loaded = p;
      drawn = '';
      only.checked = graph && graph.nodes.op.length > MOST_SHOWN;
    }
    draw();
  }

  const isQuiet = (n) => { const op = textOf(graph.nodes, 'op', n); return op === 'Const' || /^(Reshape|Expand|Permute|Pad|Shrink|Flip|Contiguous|Detach|Cast)$/.test(op); };

  /** The nodes that are shown, and their sources among them: what is not shown is looked through. */
  function shown() {
    const { nodes, items } = graph, keep = new Set();
    const item = state.sel.item, narrow = only.checked && Number.isInteger(item);
    nodes.op.forEach((_, n) => { if (!narrow || items[n].includes(item)) keep.add(n); });
    if (narrow) for (const n of [...keep]) for (const m of nodes.src[n]) keep.add(m);
    if (!moves.checked) for (const n of [...keep]) if (isQuiet(n) && !graph.roots.includes(n) && n !== state.sel.node) keep.delete(n);
    const list = [...keep].sort((a, b) => a - b).slice(0, MOST_SHOWN * 4);
    const at = new Map(list.map((n, k) => [n, k]));
    const through = new Map();
    const sources = (n, depth) => {
      if (through.has(n)) return through.get(n);
      const out = new Set();
      through.set(n, out);
      if (depth < 40) for (const m of nodes.src[n]) { if (at.has(m)) out.add(at.get(m)); else if (isQuiet(m)) for (const x of sources(m, depth + 1)) out.add(x); }
      return out;
    };
    return { list, src: list.map((n) => [...sources(n, 0)]) };
  }

  function draw() {
    if (!graph) return;
    const key = `${loaded} ${only.checked ? state.sel.item : ''} ${moves.checked} ${state.dark}`;
    if (key !== drawn) {
      drawn = key;
      const { list, src } = shown();
      const { x, y } = layout(src), W = 150, H = 46;
      places = new Map(list.map((n, k) => [n, { k, x: x[k] * W, y: y[k] * (H + 22), src: src[k].map((m) => list[m]) }]));
      const edges = [], boxes = [];
      list.forEach((n, k) => {
        const here = places.get(n);
        for (const m of src[k]) { const from = places.get(list[m]); edges.push(s('path', { class: 'edge', d: `M${from.x + 65} ${from.y + H} C${from.x + 65} ${from.y + H + 14} ${here.x + 65} ${here.y - 14} ${here.x + 65} ${here.y}` })); }
        const items = graph.items[n], first = items.length ? itemName(run, head.plans[loaded].items[items[0]]) : '';
        const rect = s('rect', { width: 130, height: H, rx: 4 });
        rect.style.fill = first ? colour(first, state.dark) : 'var(--soft)';
        const text = (t, dy) => s('text', { x: 6, y: dy }, t.length > 19 ? `${t.slice(0, 18)}\u2026` : t);
        here.el = s('g', { class: 'node', transform: `translate(${here.x} ${here.y})`, onclick: () => pick(n) }, rect, text(`${textOf(graph.nodes, 'op', n)} ${textOf(graph.nodes, 'dtype', n)}`, 14), text(textOf(graph.nodes, 'shape', n) || textOf(graph.nodes, 'arg', n), 27), text(first, 40),
          s('title', {}, `${textOf(graph.nodes, 'op', n)} ${textOf(graph.nodes, 'arg', n)}\n${items.map((i) => itemName(run, head.plans[loaded].items[i])).join('\n')}`));
        boxes.push(here.el);
      });
      root.replaceChildren(...edges, ...boxes);
      fit(list.length > 60 && Number.isInteger(state.sel.node) ? state.sel.node : null);
      about.textContent = `${list.length} of ${graph.nodes.op.length} nodes`;
    }
    for (const [n, p] of places) {
      p.el.classList.toggle('on', n === state.sel.node);
      p.el.classList.toggle('rel', n !== state.sel.node && (graph.items[n].includes(state.sel.item) || (state.sel.line !== undefined && graph.line[n] === state.sel.line + 1)));
    }
  }

  function pick(n) {
    const item = graph.items[n].includes(state.sel.item) ? state.sel.item : graph.items[n][0];
    const line = graph.line[n] ? graph.line[n] - 1 : undefined;
    select({ plan: loaded, item, node: n, line });
    say(`%${n} ${textOf(graph.nodes, 'op', n)} ${textOf(graph.nodes, 'dtype', n)} ${textOf(graph.nodes, 'shape', n)} ${textOf(graph.nodes, 'arg', n)} = ${formula(graph.nodes, n, 2)}`);
  }

  function fit(n) {
    const all = [...places.values()];
    if (!all.length) return;
    const box = svg.getBoundingClientRect(), width = box.width || 800, height = box.height || 500;
    if (n !== null && places.has(n)) {
      view = { k: 1, x: width / 2 - places.get(n).x - 65, y: height / 2 - places.get(n).y };
    } else {
      const x0 = Math.min(...all.map((p) => p.x)), x1 = Math.max(...all.map((p) => p.x)) + 130, y0 = Math.min(...all.map((p) => p.y)), y1 = Math.max(...all.map((p) => p.y)) + 46;
      const whole = Math.min(1.2, (width - 30) / (x1 - x0), (height - 30) / (y1 - y0)), k = Math.max(0.7, whole);
      // What does not fit in a readable size begins with what is selected, else with the result.
      const [cx, cy] = k === whole ? [(x0 + x1) / 2, (y0 + y1) / 2] : middle(all);
      view = { k, x: width / 2 - k * cx, y: height / 2 - k * cy };
    }
    move();
  }

  function middle(all) {
    const marked = [...places].filter(([m]) => graph.items[m].includes(state.sel.item)).map(([, p]) => p);
    const of = marked.length ? marked : [all[all.length - 1]];
    return [of.reduce((a, p) => a + p.x, 0) / of.length + 65, of.reduce((a, p) => a + p.y, 0) / of.length + 23];
  }

  const move = () => root.setAttribute('transform', `translate(${view.x} ${view.y}) scale(${view.k})`);
  svg.addEventListener('wheel', (e) => {
    e.preventDefault();
    const box = svg.getBoundingClientRect(), k = Math.min(4, Math.max(0.05, view.k * Math.exp(-e.deltaY / 500)));
    const x = e.clientX - box.left, y = e.clientY - box.top;
    view = { k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k };
    move();
  }, { passive: false });
  svg.addEventListener('pointerdown', (e) => {
    const from = { x: e.clientX - view.x, y: e.clientY - view.y };
    const drag = (m) => { view.x = m.clientX - from.x; view.y = m.clientY - from.y; move(); };
    window.addEventListener('pointermove', drag);
    window.addEventListener('pointerup', () => window.removeEventListener('pointermove', drag), { once: true });
  });
  svg.addEventListener('keydown', (e) => {
    if (!places.size || !/^(Arrow|Enter|Home)/.test(e.key)) return;
    e.preventDefault();
    const n = places.has(state.sel.node) ? state.sel.node : null, all = [...places.keys()];
    if (e.key === 'Home') { drawn = ''; fit(null); return; }
    if (n === null) { pick(all[all.length - 1]); return; }
    if (e.key === 'Enter') { show('schedule'); return; }
    const here = places.get(n);
    const users = all.filter((m) => places.get(m).src.includes(n));
    const level = all.filter((m) => places.get(m).y === here.y).sort((a, b) => places.get(a).x - places.get(b).x);
    const to = { ArrowUp: here.src[0], ArrowDown: users[0], ArrowLeft: level[level.indexOf(n) - 1], ArrowRight: level[level.indexOf(n) + 1] }[e.key];
    if (to !== undefined) { pick(to); fit(to); }
  });

  const find = (words) => {
    let n = 0;
    for (const [k, p] of places) {
      const text = `${textOf(graph.nodes, 'op', k)} ${textOf(graph.nodes, 'arg', k)} ${textOf(graph.nodes, 'shape', k)} ${textOf(graph.nodes, 'dtype', k)}`.toLowerCase();
      const hit = words && text.includes(words);
      p.el.style.opacity = words && !hit ? '0.25' : '1';
      if (hit) n++;
    }
    return n;
  };
  const next = () => { const all = [...places].filter(([, p]) => p.el.style.opacity === '1').map(([n]) => n); if (all.length) { const n = all.find((m) => m > (state.sel.node ?? -1)) ?? all[0]; pick(n); fit(n); } };
  return { title: 'Graph', el, update, find, next, focus: svg, copy: () => (graph ? graph.roots.map((r) => tree(graph.nodes, r, 5000).join('\n')).join('\n') : '') };
}
