// The record: its head at once, its parts when they are looked at.

const decoded = new Map();

/** A part's JSON; null if the page has none of this name. Parts of a second run begin with `b:`. */
function part(name) {
  if (!decoded.has(name)) decoded.set(name, decode(name));
  return decoded.get(name);
}

async function decode(name) {
  const block = document.querySelector(`script[type="application/octet-stream"][id="${CSS.escape(name)}"]`);
  if (!block) return null;
  const text = atob(block.textContent);
  const raw = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) raw[k] = text.charCodeAt(k);
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

/** A run: its head with what is derived from it. */
async function load(prefix) {
  const head = await part(`${prefix}head`);
  if (!head) return null;
  const events = rows((await part(`${prefix}events`)) || { tracks: [], labels: [], track: [], label: [], start: [], length: [], batch: [] });
  const run = { prefix, head, events };
  relate(run);
  measure(run);
  return run;
}

/** Columns of numbers, with starts as times. */
function rows(e) {
  const n = e.start.length;
  const start = new Float64Array(n);
  let at = 0;
  for (let k = 0; k < n; k++) start[k] = at += e.start[k];
  const out = { n, tracks: e.tracks, labels: e.labels, start, length: Float64Array.from(e.length),
    track: Uint32Array.from(e.track), label: Uint32Array.from(e.label), batch: Uint32Array.from(e.batch) };
  out.ofTrack = e.tracks.map(() => []);
  for (let k = 0; k < n; k++) if (out.ofTrack[out.track[k]]) out.ofTrack[out.track[k]].push(k);
  // The end that no earlier event of the track passes: where a search may begin.
  out.reach = out.ofTrack.map((list) => {
    const reach = new Float64Array(list.length);
    let most = 0;
    list.forEach((k, i) => { most = Math.max(most, start[k] + out.length[k]); reach[i] = most; });
    return reach;
  });
  out.end = n ? Math.max(...out.reach.map((r) => (r.length ? r[r.length - 1] : 0))) : 0;
  return out;
}

/** Which items a line and a kernel have. */
function relate(run) {
  const { lines, plans, kernels } = run.head;
  run.itemsOfLine = lines.map(() => []);
  run.itemsOfKernel = kernels.map(() => []);
  plans.forEach((plan, p) => plan.items.forEach((item, i) => {
    for (const l of item.lines) if (run.itemsOfLine[l]) run.itemsOfLine[l].push([p, i]);
    const k = kernelOf(item);
    if (k !== null && run.itemsOfKernel[k]) run.itemsOfKernel[k].push([p, i]);
  }));
}

/** The kernel of an item; null: a copy. */
const kernelOf = (item) => (item.kind.kernel === undefined ? null : item.kind.kernel);

/** What an item is called. */
function itemName(run, item) {
  const k = kernelOf(item);
  if (k !== null && run.head.kernels[k]) return run.head.kernels[k].name;
  return item.kind.copy[0] || item.kind.copy[1] ? `copy ${bytes(item.kind.copy[0])} from ${item.kind.copy[1]}` : 'a kernel that was not compiled';
}

/** Time of each kernel, of the host's stages and of the queues. */
function measure(run) {
  const { events: e, head } = run;
  run.time = head.kernels.map(() => ({ launches: 0, ns: 0, least: Infinity }));
  run.host = new Map();
  run.copies = new Map();
  for (let k = 0; k < e.n; k++) {
    const label = e.labels[e.label[k]];
    if (!label) continue;
    const ns = e.length[k];
    if (label.kind === 'kernel' && label.kernel !== null && run.time[label.kernel]) {
      const t = run.time[label.kernel];
      t.launches++;
      t.ns += ns;
      t.least = Math.min(t.least, ns);
    } else {
      const map = label.kind === 'host' ? run.host : run.copies;
      const name = label.kind === 'host' ? e.tracks[e.track[k]] : label.text;
      const t = map.get(name) || { count: 0, ns: 0 };
      t.count++;
      t.ns += ns;
      map.set(name, t);
    }
  }
  run.kernelNs = run.time.reduce((a, t) => a + t.ns, 0);
  run.queues = queues(e);
}

/** Busy and idle time of queues: idle for the host, for another queue, or between launches of one submission. */
function queues(e) {
  const device = e.ofTrack.map((list) => list.filter((k) => e.labels[e.label[k]] && e.labels[e.label[k]].kind !== 'host'));
  return device.map((list, t) => {
    if (!list.length) return null;
    const others = merged(e, device.filter((_, o) => o !== t).flat());
    const q = { name: e.tracks[t], busy: 0, host: 0, dependency: 0, launch: 0 };
    let reached = e.start[list[0]], batch = -1, o = 0;
    for (const k of list) {
      const from = reached, start = e.start[k], end = start + e.length[k];
      if (start > from) {
        let waited = 0;
        while (o < others.length && others[o][1] <= from) o++;
        for (let j = o; j < others.length && others[j][0] < start; j++) waited += Math.max(0, Math.min(start, others[j][1]) - Math.max(from, others[j][0]));
        waited = Math.min(waited, start - from);
        q.dependency += waited;
        q[e.batch[k] && e.batch[k] === batch ? 'launch' : 'host'] += start - from - waited;
      }
      q.busy += Math.max(0, end - Math.max(start, from));
      reached = Math.max(from, end);
      batch = e.batch[k];
    }
    return q;
  }).filter((q) => q);
}

function merged(e, list) {
  const all = list.map((k) => [e.start[k], e.start[k] + e.length[k]]).sort((a, b) => a[0] - b[0]);
  const out = [];
  for (const [a, b] of all) {
    const last = out[out.length - 1];
    if (last && a <= last[1]) last[1] = Math.max(last[1], b);
    else out.push([a, b]);
  }
  return out;
}

/** The text of a node's column. */
const textOf = (nodes, column, n) => nodes.strings[nodes[column][n]] || '';

const INFIX = { Add: '+', Sub: '-', Mul: '*', FDiv: '/', FloorDiv: '//', FloorMod: '%', Shl: '<<', Shr: '>>', And: '&', Or: '|', Xor: '^',
  CmpLt: '<', CmpNe: '!=', CmpEq: '==', CDiv: 'cdiv', CMod: 'cmod' };

/** A node as a formula, cut off below `depth` levels. */
function formula(nodes, n, depth) {
  const op = textOf(nodes, 'op', n), arg = textOf(nodes, 'arg', n), src = nodes.src[n];
  if (op === 'Const') return arg;
  if (!src.length) return arg ? `${op.toLowerCase()}${arg.startsWith('(') ? arg : `(${arg})`}` : op;
  if (depth <= 0) return `%${n}`;
  const below = src.map((m) => formula(nodes, m, depth - 1));
  if (INFIX[op] && below.length === 2) return `(${below[0]} ${INFIX[op]} ${below[1]})`;
  return `${op}${arg ? `<${arg}>` : ''}(${below.join(', ')})`;
}

/** A node as a tree of lines; nodes that were written before are named. */
function tree(nodes, n, most) {
  const out = [], seen = new Set(), stack = [[n, 0]];
  while (stack.length && out.length < most) {
    const [m, depth] = stack.pop();
    const head = `${'  '.repeat(depth)}%${m} ${textOf(nodes, 'op', m)} ${textOf(nodes, 'dtype', m)} ${textOf(nodes, 'shape', m)} ${textOf(nodes, 'arg', m)}`.trimEnd();
    if (seen.has(m) && nodes.src[m].length) { out.push(`${head} (above)`); continue; }
    seen.add(m);
    out.push(head);
    for (const src of [...nodes.src[m]].reverse()) stack.push([src, depth + 1]);
  }
  if (stack.length) out.push('...');
  return out;
}
