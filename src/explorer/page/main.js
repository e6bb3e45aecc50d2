// Starts the page: views, keys, theme.

const KEYS = [['/', 'search in the view; Enter: the next hit; Esc: back'], ['1 to 9, 0', 'views'], ['[ and ]', 'the view before and after'], ['arrows, Page Up, Page Down, Home, End', 'go through what is shown'],
  ['Enter', 'open what is selected in the next view'], ['Esc', 'let go of the selection'], ['c', 'copy the view as text'], ['t', 'dark or light'], ['?', 'this list']];

async function start() {
  theme(window.matchMedia('(prefers-color-scheme: dark)').matches);
  const run = state.run = await load('');
  if (!run) { put($('main'), h('p', {}, 'This page holds no run.')); return; }
  const before = state.other = await load('b:');
  $('run-title').textContent = run.head.run.command;
  document.title = `Doorbell: ${run.head.run.command}`;
  const all = [['overview', overview], ['lines', linesView], ['graph', graphView], ['schedule', scheduleView], ['rewrites', rewritesView], ['code', codeView], ['timeline', timelineView], ['memory', memoryView], ['roofline', rooflineView], ['calls', callsView], ['beam', beamView]];
  for (const [id, make] of all) add(id, make(run));
  if (before) add('diff', diffView(run, before));
  document.addEventListener('keydown', keys);
  $('search').addEventListener('input', seek);
  $('search').addEventListener('keydown', (e) => {
    if (e.key === 'Enter') { const v = current(); if (v.list) v.list.next(); else if (v.next) v.next(); }
    if (e.key === 'Escape') { e.stopPropagation(); $('search').value = ''; seek(); focusView(); }
  });
  $('theme').addEventListener('click', () => theme(!state.dark));
  $('copy').addEventListener('click', copy);
  $('help').addEventListener('click', help);
  window.addEventListener('hashchange', recall);
  recall();
}

function add(id, view) {
  if (view.list && !view.find) view.find = (words) => view.list.find(words);
  if (view.list && !view.copy) view.copy = () => view.list.copy();
  state.views.set(id, view);
  const n = state.views.size;
  $('tabs').append(h('button', { type: 'button', role: 'tab', 'data-view': id, 'aria-controls': 'main', title: `key ${n % 10}`, onclick: () => show(id) }, view.title));
}

function focusView() {
  const v = current();
  (v.list ? v.list.el : v.focus || $('main')).focus();
}

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const names = [...state.views.keys()], at = names.indexOf(state.view);
  const turn = (n) => { if (names[n]) { show(names[n]); focusView(); } };
  if (e.key === '/') { e.preventDefault(); $('search').focus(); $('search').select(); }
  else if (/^[0-9]$/.test(e.key)) turn(e.key === '0' ? 9 : Number(e.key) - 1);
  else if (e.key === '[') turn((at + names.length - 1) % names.length);
  else if (e.key === ']') turn((at + 1) % names.length);
  else if (e.key === 'c') copy();
  else if (e.key === 't') theme(!state.dark);
  else if (e.key === '?') help();
  else if (e.key === 'Escape') { state.sel = {}; remember(); side(); current().update(); say(''); }
  else if (/^Arrow/.test(e.key) && e.target.getAttribute('role') === 'tab') { e.preventDefault(); const to = at + (/Right|Down/.test(e.key) ? 1 : -1); if (names[to]) { show(names[to]); $('tabs').children[to].focus(); } }
  else if ((/^Arrow/.test(e.key) || e.key === 'Enter') && e.target === document.body) focusView();
}

function theme(dark) {
  state.dark = dark;
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  if (state.run && state.views.size) current().update();
}

async function copy() {
  const text = current().copy ? current().copy() : '';
  try {
    await navigator.clipboard.writeText(text);
    say(`${text.split('\n').length} lines copied`);
  } catch {
    const area = h('textarea', { readonly: true, 'aria-label': 'Text of the view' });
    area.value = text;
    const box = h('dialog', {}, area, h('div', {}, h('button', { type: 'button', onclick: () => box.close() }, 'Close')));
    box.addEventListener('close', () => box.remove());
    document.body.append(box);
    box.showModal();
    area.select();
  }
}

function help() {
  const box = h('dialog', { 'aria-label': 'Keys' }, h('h2', {}, 'Keys'), h('dl', {}, KEYS.map(([k, what]) => [h('dt', {}, h('kbd', {}, k)), h('dd', {}, what)])), h('button', { type: 'button', onclick: () => box.close() }, 'Close'));
  box.addEventListener('close', () => box.remove());
  document.body.append(box);
  box.showModal();
}

start().catch((e) => { put($('main'), h('p', { class: 'bad' }, `The record cannot be shown: ${e.message}`)); throw e; });
