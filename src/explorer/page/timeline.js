// Queues and the host over time.

const TRACK = 30, GUTTER = 130, AXIS = 22;

function timelineView(run) {
  const { events: e } = run;
  const canvas = h('canvas', { tabindex: 0, role: 'img', 'aria-label': 'Timeline: left and right go from event to event, up and down to another queue, + and - zoom, Enter shows the code' });
  const about = h('span', { class: 'dim' });
  const el = h('div', { css: { display: 'contents' } }, h('div', { class: 'tools' },
    h('button', { type: 'button', onclick: () => zoom(2) }, '+'), h('button', { type: 'button', onclick: () => zoom(0.5) }, '\u2212'), h('button', { type: 'button', onclick: () => { view = { from: 0, to: Math.max(1, e.end) }; draw(); } }, 'all'),
    h('button', { type: 'button', onclick: () => last() }, 'last submission'), about), canvas);
  let view = { from: 0, to: Math.max(1, e.end) }, words = '', fills = null, wasDark = null;

  /** The first event of a track that may reach `t`. */
  function first(track, t) {
    const reach = e.reach[track];
    let lo = 0, hi = reach.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (reach[mid] < t) lo = mid + 1; else hi = mid; }
    return lo;
  }

  /** Calls `f` with what is seen of each track; what is narrower than a pixel is passed over up to the next one. */
  function seen(width, f) {
    const scale = width / (view.to - view.from);
    for (let t = 0; t < e.tracks.length; t++) {
      const list = e.ofTrack[t], reach = e.reach[t];
      let i = first(t, view.from), edge = -1;
      while (i < list.length) {
        const k = list[i], x0 = (e.start[k] - view.from) * scale;
        if (x0 > width) break;
        const x1 = Math.max(x0 + 1, (e.start[k] + e.length[k] - view.from) * scale);
        if (x1 > edge) f(t, k, Math.max(x0, 0), Math.min(x1, width));
        edge = Math.max(edge, x1);
        i++;
        if (x1 - x0 <= 1) {
          // The next event that reaches beyond this pixel.
          const goal = view.from + (Math.floor(edge) + 0.999) / scale;
          let step = 1;
          while (i + step < list.length && reach[i + step] < goal) step *= 2;
          let lo = i, hi = Math.min(list.length, i + step);
          while (lo < hi) { const mid = (lo + hi) >> 1; if (reach[mid] < goal) lo = mid + 1; else hi = mid; }
          i = Math.max(i, lo);
        }
      }
    }
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 900, height = AXIS + e.tracks.length * TRACK + 4;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(document.documentElement), c = canvas.getContext('2d');
    const [fg, bg, soft, mark, dim] = ['--fg', '--bg', '--soft', '--mark', '--dim'].map((n) => style.getPropertyValue(n).trim());
    if (!fills || wasDark !== state.dark) { fills = e.labels.map((l) => colour(l.text, state.dark)); wasDark = state.dark; }
    const hit = words ? e.labels.map((l) => l.text.toLowerCase().includes(words)) : null;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = bg;
    c.fillRect(0, 0, width, height);
    c.font = '11px monospace';
    c.textBaseline = 'middle';
    const wide = width - GUTTER;
    axis(c, wide, height, dim);
    e.tracks.forEach((name, t) => {
      c.fillStyle = t % 2 ? soft : bg;
      c.fillRect(GUTTER, AXIS + t * TRACK, wide, TRACK);
      c.fillStyle = fg;
      c.fillText(name.length > 18 ? `${name.slice(0, 17)}\u2026` : name, 4, AXIS + t * TRACK + TRACK / 2);
    });
    const texts = [], kernel = state.sel.kernel;
    seen(wide, (t, k, x0, x1) => {
      const y = AXIS + t * TRACK + 3, label = e.label[k], of = e.labels[label];
      c.globalAlpha = hit && !hit[label] ? 0.2 : 1;
      c.fillStyle = fills[label];
      c.fillRect(GUTTER + x0, y, Math.max(1, x1 - x0 - (x1 - x0 > 3 ? 0.6 : 0)), TRACK - 6);
      if (k === state.sel.event || (Number.isInteger(kernel) && of.kernel === kernel)) {
        c.fillStyle = mark;
        c.fillRect(GUTTER + x0, y + TRACK - 8, Math.max(1, x1 - x0), k === state.sel.event ? -TRACK + 8 : 2);
      }
      if (x1 - x0 > 40) texts.push([of.text, GUTTER + x0 + 3, y + (TRACK - 6) / 2, x1 - x0 - 6]);
    });
    c.globalAlpha = 1;
    c.fillStyle = fg;
    for (const [text, x, y, room] of texts) { const n = Math.floor(room / 6.7); c.fillText(text.length > n ? text.slice(0, n) : text, x, y); }
    about.textContent = `${e.n.toLocaleString()} events; ${time(view.from)} to ${time(view.to)} of ${time(e.end)}`;
  }

  function axis(c, wide, height, dim) {
    const span = view.to - view.from, raw = span / Math.max(1, wide / 110), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw);
    c.fillStyle = dim;
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = GUTTER + ((t - view.from) / span) * wide;
      c.fillRect(x, AXIS - 4, 1, height);
      c.fillText(time(t), x + 3, AXIS / 2);
    }
  }

  function zoom(by, at) {
    const span = (view.to - view.from) / by, middle = at ?? (Number.isInteger(state.sel.event) ? e.start[state.sel.event] : (view.from + view.to) / 2);
    const share = at === undefined ? 0.5 : (at - view.from) / (view.to - view.from);
    view = { from: middle - span * share, to: middle + span * (1 - share) };
    clamp();
  }

  function clamp() {
    const span = Math.min(Math.max(50, view.to - view.from), e.end * 1.1 + 1);
    view.from = Math.max(-span * 0.02, Math.min(view.from, e.end));
    view.to = view.from + span;
    draw();
  }

  function pick(k) {
    const of = e.labels[e.label[k]];
    state.sel.event = k;
    select(of.kernel !== null && run.head.kernels[of.kernel] ? { kernel: of.kernel, event: k } : { event: k });
    if (e.start[k] < view.from || e.start[k] > view.to) { const span = view.to - view.from; view = { from: e.start[k] - span / 2, to: e.start[k] + span / 2 }; clamp(); }
    say(`${e.tracks[e.track[k]]}: ${of.text}, ${time(e.length[k])} at ${time(e.start[k])}${e.batch[k] ? `, submission ${e.batch[k]}` : ''}`);
    draw();
  }

  /** Shows the last submission. */
  function last() {
    let k = e.n - 1;
    while (k > 0 && !e.batch[k]) k--;
    if (k < 0) return;
    const list = e.ofTrack[e.track[k]].filter((m) => e.batch[m] === e.batch[k]);
    const from = e.start[list[0]], to = e.start[k] + e.length[k], span = Math.max(100, to - from);
    view = { from: from - span * 0.05, to: to + span * 0.05 };
    clamp();
  }

  const at = (m) => { const box = canvas.getBoundingClientRect(); return { x: m.clientX - box.left, y: m.clientY - box.top, t: view.from + ((m.clientX - box.left - GUTTER) / (box.width - GUTTER)) * (view.to - view.from) }; };
  const under = (m) => {
    const { y, t } = at(m), track = Math.floor((y - AXIS) / TRACK), list = e.ofTrack[track];
    if (!list) return -1;
    const near = (view.to - view.from) / 400;
    let best = -1;
    for (let i = first(track, t - near); i < list.length && e.start[list[i]] <= t + near; i++) if (e.start[list[i]] - near <= t && t <= e.start[list[i]] + e.length[list[i]] + near) best = list[i];
    return best;
  };
  let moved = false;
  canvas.addEventListener('wheel', (m) => { m.preventDefault(); if (Math.abs(m.deltaX) > Math.abs(m.deltaY)) { const d = (m.deltaX / 800) * (view.to - view.from); view = { from: view.from + d, to: view.to + d }; clamp(); } else zoom(Math.exp(-m.deltaY / 400), at(m).t); }, { passive: false });
  canvas.addEventListener('pointerdown', (m) => {
    const start = at(m), was = { ...view };
    moved = false;
    const drag = (n) => { const d = ((at(n).x - start.x) / (canvas.clientWidth - GUTTER)) * (was.to - was.from); if (Math.abs(at(n).x - start.x) > 3) moved = true; if (moved) { view = { from: was.from - d, to: was.to - d }; clamp(); } };
    window.addEventListener('pointermove', drag);
    window.addEventListener('pointerup', () => window.removeEventListener('pointermove', drag), { once: true });
  });
  canvas.addEventListener('click', (m) => { const k = under(m); if (!moved && k >= 0) pick(k); });
  canvas.addEventListener('pointermove', (m) => { const k = under(m); if (k >= 0) { const of = e.labels[e.label[k]]; say(`${of.text}: ${time(e.length[k])} at ${time(e.start[k])}`); } });
  canvas.addEventListener('keydown', (m) => {
    if (m.ctrlKey || m.metaKey || m.altKey) return;
    const k = Number.isInteger(state.sel.event) && state.sel.event < e.n ? state.sel.event : null;
    const track = k === null ? e.ofTrack.findIndex((l) => l.length) : e.track[k], list = e.ofTrack[track];
    if (!list) return;
    const other = (d) => { for (let t = track + d; e.ofTrack[t]; t += d) { const l = e.ofTrack[t]; if (l.length) return l[Math.min(l.length - 1, first(t, e.start[k ?? 0]))]; } return k; };
    const goto = { ArrowRight: () => (k === null ? list[first(track, view.from)] : list[list.indexOf(k) + 1]), ArrowLeft: () => (k === null ? list[0] : list[list.indexOf(k) - 1]), ArrowUp: () => other(-1), ArrowDown: () => other(1), Home: () => list[0], End: () => list[list.length - 1] }[m.key];
    if (goto) { m.preventDefault(); const to = goto(); if (to !== undefined && to !== null) pick(to); }
    else if (m.key === '+' || m.key === '=') zoom(2);
    else if (m.key === '-') zoom(0.5);
    else if (m.key === 'Enter' && k !== null) { m.preventDefault(); show('code'); }
  });
  new ResizeObserver(() => draw()).observe(canvas);
  const matches = (k) => e.labels[e.label[k]].text.toLowerCase().includes(words);
  return {
    title: 'Timeline', el, focus: canvas,
    update: () => {
      const k = state.sel.event;
      if (Number.isInteger(k) && k < e.n && (e.start[k] > view.to || e.start[k] < view.from)) { const span = view.to - view.from; view = { from: e.start[k] - span / 2, to: e.start[k] + span / 2 }; }
      draw();
    },
    find: (w) => { words = w; draw(); let n = 0; if (w) for (let k = 0; k < e.n; k++) if (matches(k)) n++; return n; },
    next: () => { const from = (state.sel.event ?? -1) + 1; for (let d = 0; d < e.n; d++) { const k = (from + d) % e.n; if (matches(k)) { pick(k); return; } } },
    copy: () => { const out = ['track\tname\tstart ns\tlength ns']; for (let k = 0; k < Math.min(e.n, 100000); k++) out.push(`${e.tracks[e.track[k]]}\t${e.labels[e.label[k]].text}\t${e.start[k]}\t${e.length[k]}`); return out.join('\n'); },
    /** Frames a second while the view moves over all events: for tests. */
    pan: async (frames) => {
      const span = e.end / 20, began = performance.now();
      for (let k = 0; k < frames; k++) { await new Promise((done) => requestAnimationFrame(done)); view = { from: (e.end - span) * (k / frames), to: (e.end - span) * (k / frames) + span * (1 + (k % 10)) }; draw(); }
      const took = performance.now() - began;
      view = { from: 0, to: Math.max(1, e.end) };
      draw();
      return (1000 * frames) / took;
    },
  };
}
