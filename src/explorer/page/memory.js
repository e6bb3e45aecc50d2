// Memory over time, and who uses each buffer.

function memoryView(run) {
  const { head } = run, end = Math.max(run.events.end, head.run.length_ns, 1);
  const canvas = h('canvas', { role: 'img' });
  const order = head.buffers.map((_, b) => b).sort((a, b) => head.buffers[b].bytes - head.buffers[a].bytes);
  const devices = [...new Set(head.buffers.map((b) => b.device))];
  const list = new List('Buffers', {
    count: () => order.length,
    text: (i) => { const b = head.buffers[order[i]]; return `${order[i]} ${b.device} ${bytes(b.bytes)} ${b.what} ${time(b.born_ns)} ${b.died_ns ? time(b.died_ns) : 'end'}`; },
    row: (i) => {
      const b = head.buffers[order[i]], item = head.plans[state.sel.plan]?.items[state.sel.item];
      return { rel: item && item.buffers.includes(order[i]), cells: [cell(order[i], 6, 'dim'), cell(bytes(b.bytes), 10), cell(b.device, 10, 'dim'), cell(b.what, 20), cell(`${time(b.born_ns)} \u2013 ${b.died_ns ? time(b.died_ns) : 'end'}`, 26, 'dim'), wide(`${b.users.length}${b.users.length >= 64 ? '+' : ''} users${b.users.length ? `: ${itemName(run, head.plans[b.users[0][0]].items[b.users[0][1]])}` : ''}`)] };
    },
    select: (i) => select({ buffer: order[i] }),
    open: (i) => { const u = head.buffers[order[i]].users[0]; if (u) go('schedule', { plan: u[0], item: u[1] }); },
  });
  const about = h('p', { class: 'dim' });
  const el = h('div', { css: { display: 'contents' } }, about, canvas, list.el);

  /** Steps of the bytes of a device: [time, bytes]. */
  function curve(device) {
    const changes = [];
    for (const b of head.buffers) if (b.device === device) { changes.push([b.born_ns, b.bytes]); if (b.died_ns) changes.push([b.died_ns, -b.bytes]); }
    changes.sort((a, b) => a[0] - b[0]);
    let now = 0;
    return changes.map(([t, d]) => [t, (now += d)]);
  }
  const curves = devices.map(curve), peak = Math.max(1, ...curves.flat().map((p) => p[1]));
  canvas.setAttribute('aria-label', `Memory over time: ${devices.map((d, k) => `${d} at most ${bytes(Math.max(0, ...curves[k].map((p) => p[1])))}`).join(', ')}`);

  function draw() {
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 900, height = 170;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    canvas.style.flex = 'none';
    const style = getComputedStyle(document.documentElement), c = canvas.getContext('2d'), [fg, mark] = ['--fg', '--mark'].map((n) => style.getPropertyValue(n).trim());
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const x = (t) => 70 + (t / end) * (width - 80), y = (n) => height - 20 - (n / peak) * (height - 34);
    curves.forEach((points, d) => {
      c.fillStyle = colour(devices[d], state.dark);
      c.globalAlpha = 0.75;
      c.beginPath();
      c.moveTo(x(0), y(0));
      let last = 0;
      for (const [t, n] of points) { c.lineTo(x(t), y(last)); c.lineTo(x(t), y(n)); last = n; }
      c.lineTo(x(end), y(last));
      c.lineTo(x(end), y(0));
      c.fill();
    });
    c.globalAlpha = 1;
    const b = head.buffers[state.sel.buffer];
    if (b) { c.fillStyle = mark; c.fillRect(x(b.born_ns), height - 18, Math.max(2, x(b.died_ns || end) - x(b.born_ns)), 5); }
    c.fillStyle = fg;
    c.font = '11px monospace';
    c.fillText(bytes(peak), 4, 18);
    c.fillText('0', 4, height - 20);
    c.fillText(time(end), width - 70, height - 4);
    devices.forEach((d, k) => { c.fillStyle = colour(d, state.dark); c.fillRect(76 + k * 110, 6, 9, 9); c.fillStyle = fg; c.fillText(d, 90 + k * 110, 14); });
  }
  new ResizeObserver(() => draw()).observe(canvas);
  return { title: 'Memory', el, list, update: () => { about.textContent = `${head.buffers.length} memories, at most ${bytes(peak)} on one device. When a buffer went is seen at the next computation. The one selected is marked below.`; draw(); list.refresh(); if (Number.isInteger(state.sel.buffer)) list.show(order.indexOf(state.sel.buffer)); } };
}
