// Machine code as lines: control words, instruction, registers, branches; registers alive at each line.

const REGISTERS = [
  { of: /^(nv|ptx)/, find: /\b(UR|UP|R|P)(\d+)\b/g, wide: null },
  { of: /^gfx/, find: /\b([vsa])(\d+)\b|\b([vsa])\[(\d+):(\d+)\]/g, wide: null },
  { of: /^x86/, find: /\b([xyz]mm|k)(\d+)\b|\b(r(?:[abcd]x|[sd]i|[sb]p|\d+[dwb]?)|e(?:[abcd]x|[sd]i|[sb]p))\b/g, wide: null },
];

/** The lines of a listing. */
function assembly(text) {
  const kind = /\[B[^\]]*:S\d+/.test(text) ? 'nv' : /\b[vs]_[a-z]\w+/.test(text) ? 'gfx' : /\b(ret|mov|vmov|push)\b/.test(text) ? 'x86' : 'text';
  const lines = text.split('\n').map((raw) => {
    const control = (raw.match(/\[B[^\]]*\]/) || [''])[0];
    const rest = control ? raw.replace(control, '') : raw;
    const label = (rest.match(/^\s*([.\w$]+):/) || [])[1];
    return { text: raw, control, rest, label, registers: registers(kind, rest), target: target(rest) };
  });
  alive(lines);
  return { kind, lines };
}

function registers(kind, text) {
  const rule = REGISTERS.find((r) => r.of.test(kind));
  const found = new Set();
  if (!rule) return found;
  const code = text.replace(/\/\/.*|;.*$/, '').replace(/\/\*.*?\*\//g, '');
  for (const m of code.matchAll(rule.find)) {
    if (m[4] !== undefined && m[5] !== undefined) for (let k = Number(m[4]); k <= Number(m[5]) && k < 512; k++) found.add(m[3] + k);
    else if (m[1]) found.add((/mm/.test(m[1]) ? 'v' : m[1]) + m[2]);
    else if (m[3]) found.add(m[3].replace(/^e/, 'r').replace(/[dwb]$/, ''));
  }
  return found;
}

/** Where a branch goes: a label or an address. */
function target(text) {
  const m = text.match(/\b(?:BRA|BRX|s_c?branch\w*|j[a-z]{1,4})\b.*?([.\w$]*[A-Za-z_.]\w*|0x[0-9a-f]+)\s*;?\s*(?:\/\/.*)?$/);
  return m ? m[1] : null;
}

/**
 * Registers from their first to their last mention, over a whole loop where they are mentioned in and before it. An
 * upper bound: a register that is written again in between counts as alive.
 */
function alive(lines) {
  const span = new Map();
  lines.forEach((line, k) => { for (const r of line.registers) { const s = span.get(r); if (s) s[1] = k; else span.set(r, [k, k]); } });
  const labels = new Map(lines.map((l, k) => [l.label, k]).filter(([l]) => l));
  lines.forEach((line, k) => {
    const to = labels.get(line.target);
    if (to === undefined || to > k) return;
    for (const s of span.values()) if (s[0] < to && s[1] >= to && s[1] < k) s[1] = k;
  });
  const change = new Int32Array(lines.length + 1);
  for (const [from, to] of span.values()) { change[from]++; change[to + 1]--; }
  let now = 0;
  lines.forEach((line, k) => { now += change[k]; line.alive = now; });
}
