// What is selected, which view is shown, and the address that says both.

const state = { run: null, other: null, view: 'overview', sel: {}, views: new Map(), dark: false };

/** Fields of a selection, all numbers: a call of the program, a plan, its item, a node of its graph, a kernel, a step of it, a buffer. */
const FIELDS = ['line', 'plan', 'item', 'node', 'kernel', 'step', 'buffer', 'event', 'call'];

/** Selects something; what belongs to it is selected with it. */
function select(patch) {
  const { run, sel } = state;
  const next = { ...sel, ...patch };
  const has = (name) => patch[name] !== undefined && patch[name] !== null;
  const item = () => run.head.plans[next.plan]?.items[next.item];
  if (has('item') || has('plan')) {
    if (!has('kernel')) next.kernel = item() ? kernelOf(item()) ?? undefined : undefined;
    if (!has('node')) next.node = undefined;
  } else if (has('kernel')) {
    const of = run.itemsOfKernel[next.kernel] || [];
    const here = of.find(([p, i]) => p === sel.plan && i === sel.item) || of.find(([p]) => p === sel.plan) || of[0];
    [next.plan, next.item] = here || [undefined, undefined];
    next.node = undefined;
  } else if (has('line')) {
    const of = run.itemsOfLine[next.line] || [];
    const here = of.find(([p, i]) => p === sel.plan && i === sel.item) || of[0];
    if (here) {
      [next.plan, next.item] = here;
      next.kernel = kernelOf(item()) ?? undefined;
    }
    next.node = undefined;
  }
  if (!has('line') && (has('item') || has('kernel')) && item() && !item().lines.includes(next.line)) next.line = item().lines[0];
  if (next.kernel !== sel.kernel && !has('step')) next.step = undefined;
  if (!has('event') && next.kernel !== sel.kernel) next.event = undefined;
  state.sel = next;
  remember();
  side();
  current()?.update();
}

const current = () => state.views.get(state.view);

/** Shows a view. */
function show(view) {
  if (!state.views.has(view)) view = 'overview';
  state.view = view;
  for (const tab of $('tabs').children) {
    const on = tab.dataset.view === view;
    tab.setAttribute('aria-selected', on ? 'true' : 'false');
    tab.tabIndex = on ? 0 : -1;
  }
  const made = current();
  $('main').replaceChildren(made.el);
  $('main').setAttribute('aria-label', made.title);
  remember();
  made.update();
  seek();
}

/** Selects and shows. */
function go(view, patch) {
  if (patch) select(patch);
  show(view);
}

/** Writes the address. */
function remember() {
  const words = [`view=${state.view}`];
  for (const f of FIELDS) if (Number.isInteger(state.sel[f])) words.push(`${f}=${state.sel[f]}`);
  const hash = `#${words.join('&')}`;
  if (location.hash !== hash) history.replaceState(null, '', hash);
}

/** Reads the address. */
function recall() {
  const view = { view: 'overview' }, sel = {};
  for (const word of location.hash.slice(1).split('&')) {
    const [name, value] = word.split('=');
    if (name === 'view' && value) view.view = value;
    else if (FIELDS.includes(name) && /^\d{1,9}$/.test(value || '')) sel[name] = Number(value);
  }
  state.sel = sel;
  side();
  show(view.view);
}

/** Searches in the view. */
function seek() {
  const words = $('search').value.trim().toLowerCase();
  const made = current();
  const n = made.find ? made.find(words) : 0;
  $('found').textContent = words && made.find ? `${n} found` : '';
}

/** Says something at the bottom, also to screen readers. */
function say(text) {
  $('status').textContent = text;
}

/** What is selected and all that belongs to it, each a way to another view. */
function side() {
  const { run, sel } = state, { head } = run, out = [];
  const line = head.lines[sel.line], plan = head.plans[sel.plan], item = plan?.items[sel.item], kernel = head.kernels[sel.kernel];
  if (line) {
    out.push(h('h3', {}, 'Line'), h('div', { class: 'mono' }, link(`${line.file}:${line.line}`, () => go('lines', { line: sel.line }))), line.text && h('pre', {}, line.text), h('div', { class: 'dim' }, `calls ${line.op}`));
  }
  if (item) {
    out.push(h('h3', {}, `Item ${sel.item} of schedule ${sel.plan}`), link(itemName(run, item), () => go('schedule')),
      facts([['device', item.device], ['values', item.values[0] ? `${item.values[0]} computed, ${item.values[1]} stored` : ''], ['graph', link('show', () => go('graph'))]]));
    if (item.cuts.length) {
      out.push(h('h3', {}, 'Cut from'), h('ul', {}, item.cuts.slice(0, 12).map(([to, why]) => h('li', {}, link(itemName(run, plan.items[to]), () => select({ plan: sel.plan, item: to })), ': ', why))));
    }
    const lines = item.lines.filter((l) => l !== sel.line);
    if (lines.length) out.push(h('h3', {}, 'Its other lines'), h('ul', {}, lines.slice(0, 12).map((l) => h('li', {}, link(`${head.lines[l].op} ${short(head.lines[l].file)}:${head.lines[l].line}`, () => select({ line: l, plan: sel.plan, item: sel.item }))))));
  }
  if (kernel) {
    const t = run.time[sel.kernel];
    out.push(h('h3', {}, 'Kernel'), h('div', { class: 'mono' }, link(kernel.name, () => go('code'))),
      facts([['device', `${kernel.device} (${kernel.arch})`], ['launches', t.launches], ['time', t.launches ? `${time(t.ns / t.launches)} each, ${time(t.ns)} in all` : 'not timed'],
        ['opts', kernel.opts.join(', ')], ['grid', kernel.global.some((n) => n > 1) || kernel.local.some((n) => n > 1) ? `${kernel.global.join(' x ')} groups of ${kernel.local.join(' x ')}` : kernel.threads > 1 ? `${kernel.threads} chunks` : ''],
        ['shared', kernel.local_bytes ? bytes(kernel.local_bytes) : ''], ['work', `${kernel.flops.toLocaleString()} operations, ${bytes(kernel.unique_bytes)}`]]),
      h('div', { class: 'tools' }, [['rewrites', `${kernel.steps} rewrites`], ['code', `${kernel.instructions} lines of code`], ['timeline', 'timeline'], ['roofline', 'roofline'], kernel.candidates ? ['beam', `${kernel.candidates} candidates`] : null].filter((x) => x).map(([v, t]) => link(t, () => go(v)))));
  }
  const used = item ? item.buffers : [];
  if (used.length) out.push(h('h3', {}, 'Buffers'), h('ul', {}, used.slice(0, 16).map((b) => h('li', {}, link(`${b}: ${head.buffers[b].what}`, () => go('memory', { buffer: b })), ` ${bytes(head.buffers[b].bytes)}`))));
  const buffer = head.buffers[sel.buffer];
  if (buffer) {
    out.push(h('h3', {}, `Buffer ${sel.buffer}`), facts([['what', buffer.what], ['size', bytes(buffer.bytes)], ['device', buffer.device], ['there', `${time(buffer.born_ns)} to ${buffer.died_ns ? time(buffer.died_ns) : 'the end'}`]]),
      h('ul', {}, buffer.users.slice(0, 16).map(([p, i]) => h('li', {}, link(itemName(run, head.plans[p].items[i]), () => select({ plan: p, item: i }))))));
  }
  if (!out.length) out.push(h('p', { class: 'dim' }, 'Select a line, a node, a kernel, an event or a buffer in any view: what belongs to it is listed here and marked in the other views.'));
  $('side').replaceChildren(...out.filter((x) => x));
}

const short = (path) => path.split('/').slice(-2).join('/');
