// Cases of the page's functions; the names of those that fail.
(() => {
  const wrong = [], is = (name, a, b) => { if (JSON.stringify(a) !== JSON.stringify(b)) wrong.push(`${name}: ${JSON.stringify(a)} is not ${JSON.stringify(b)}`); };
  const signs = (a, b) => lineDiff(a, b).map(([s, t]) => s + t).join('|');
  is('equal lines', signs(['a', 'b'], ['a', 'b']), ' a| b');
  is('a line between', signs(['a', 'c'], ['a', 'b', 'c']), ' a|+b| c');
  is('another line', signs(['a', 'x', 'c'], ['a', 'y', 'c']), ' a|-x|+y| c');
  is('nothing', signs([], ['a']), '+a');
  const l = layout([[], [], [0, 1], [2], [2], [3, 4]]);
  is('layers', [...l.y], [0, 0, 1, 2, 2, 3]);
  is('apart', Math.abs(l.x[3] - l.x[4]) >= 1 && Math.abs(l.x[0] - l.x[1]) >= 1, true);
  is('a late leaf stands by its user', [...layout([[], [0], [1], [], [2, 3]]).y], [0, 1, 2, 2, 3]);
  is('no nodes', layout([]).layers, 0);
  const nodes = { strings: ['Var', 'Add', 'Const', 'i64', "('a', 0, 9)", '2', '', 'Max'], op: [0, 2, 1, 7], dtype: [3, 3, 3, 3], arg: [4, 5, 6, 6], shape: [6, 6, 6, 6], src: [[], [], [0, 1], [2, 2]] };
  is('a formula', formula(nodes, 2, 3), "(var('a', 0, 9) + 2)");
  is('a deep formula', formula(nodes, 3, 0), '%3');
  is('a tree names what was written', tree(nodes, 3, 99).filter((t) => t.includes('(above)')).length, 1);
  const x86 = assembly('f:\n  vmovups zmm0, [rax]\nloop:\n  vaddps zmm1, zmm0, zmm2\n  jl loop\n  ret\n');
  is('x86 lines', x86.kind, 'x86');
  is('registers', [...x86.lines[3].registers], ['v1', 'v0', 'v2']);
  is('alive over the loop', x86.lines[4].alive >= 1, true);
  const gfx = assembly('s_load_b64 s[0:1], s[2:3]\nv_add_f32 v2, v0, v1\ns_endpgm');
  is('gfx ranges', [...gfx.lines[0].registers], ['s0', 's1', 's2', 's3']);
  const sass = assembly('[B------:R-:W0:-:S04] LDG.E R2, [R4] ;\n[B0-----:R-:W-:-:S05] FADD R2, R2, R3 ;');
  is('control words', sass.lines.map((k) => k.control), ['[B------:R-:W0:-:S04]', '[B0-----:R-:W-:-:S05]']);
  is('sass registers', [...sass.lines[1].registers], ['R2', 'R3']);
  const e = rows({ tracks: ['q'], labels: [{ text: 'k', kind: 'kernel', kernel: 0 }], track: [0, 0, 0], label: [0, 0, 0], start: [10, 20, 30], length: [5, 5, 5], batch: [1, 1, 2] });
  is('starts', [...e.start], [10, 30, 60]);
  is('idle', queues(e).map(({ busy, host, launch, dependency }) => [busy, host, launch, dependency]), [[15, 25, 15, 0]]);
  is('scaled', [scaled(7), scaled(12345), scaled(3e12)], ['7 ', '12.35 k', '3.000 T']);
  is('times', [time(5), time(1500), time(2e6)], ['5 ns', '1.50 us', '2.00 ms']);
  return wrong;
})()
