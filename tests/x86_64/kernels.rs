//! Small kernels with loops, gates, accumulators and variables.

use super::machine::{List, Rng, archs, call, check};
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::isa::x86_64::{Arch, X86_64, compile};
use doorbell::uop::{Arg, Axes, AxisKind, DType, Op, Scalar, UOp};

fn int(i: i64) -> UOp {
    UOp::constant(DType::I64, i)
}

fn range(end: &UOp, id: u32) -> UOp {
    UOp::new(Op::Range, DType::I64, [end.clone()], UOp::range(end.clone(), id, AxisKind::Loop).arg().clone())
}

fn node(op: Op, dt: DType, src: &[UOp]) -> UOp {
    UOp::new(op, dt, src, Arg::None)
}

fn load(index: &UOp, dt: DType) -> UOp {
    node(Op::Load, dt, std::slice::from_ref(index))
}

fn end(r: &UOp, last: &UOp) -> UOp {
    node(Op::End, DType::VOID, &[r.clone(), last.clone()])
}

fn floats(n: usize, seed: u64) -> Vec<u8> {
    Rng(seed).fill(Scalar::F32, n, true)
}

/// `out[i] = a[i] * b[i] + c[i]`, 16 lanes an iteration.
pub fn triad(n: usize, lanes: u16) -> Program {
    let dt = DType::F32.vec(lanes);
    let r = range(&int((n / lanes as usize) as i64), 0);
    let i = &r * &int(lanes as i64);
    let at = |slot| UOp::param(slot, DType::F32, n).index(&i);
    let mut list = List::default();
    let v = UOp::alu(Op::MulAcc, [load(&at(1), dt), load(&at(2), dt), load(&at(3), dt)]);
    let st = at(0).store(&v, &[]);
    list.add(&st);
    list.add(&end(&r, &st));
    list.program("E_triad")
}

#[test]
fn triad_is_loads_one_fma_and_a_store() {
    let n = 640;
    let bufs = vec![vec![0; 4 * n], floats(n, 1), floats(n, 2), floats(n, 3)];
    for lanes in [1, 4, 16, 32] {
        let codes = check(&triad(n, lanes), &bufs, &[], 1e-6);
        if lanes == 16
            && let Some(wide) = codes.get(1)
        {
            let text = wide.assembly();
            assert_eq!(wide.spill_moves, 0);
            let body = text.lines().skip_while(|l| !l.contains("zmm")).take(7);
            let names: Vec<&str> = body.filter_map(|l| l.split_whitespace().nth(1)).collect();
            assert_eq!(names, ["vmovups", "vmovups", "vfmadd231ps", "vmovups", "add", "cmp", "jl"], "{text}");
        }
    }
}

#[test]
fn large_outputs_are_stored_around_the_cache_and_unaligned_ones_through_it() {
    // Of a buffer declared large, only the head is accessed.
    let (n, lanes, len) = (640usize, 16u16, 8 << 20);
    let r = range(&int(n as i64 / i64::from(lanes)), 0);
    let i = &r * &int(lanes.into());
    let at = |slot| UOp::param(slot, DType::F32, len).index(&i);
    let x = load(&at(1), DType::F32.vec(lanes));
    let st = at(0).store(&(&x + &x), &[]);
    let mut list = List::default();
    list.add(&st);
    list.add(&end(&r, &st));
    let p = list.program("E_stream");
    for arch in archs() {
        let code = compile(&p, arch).expect("it compiles");
        let text = code.assembly();
        assert!(text.contains("vmovntps") && text.contains("sfence"), "{text}");
        let from: Vec<f32> = (0..n).map(|k| k as f32).collect();
        for off in 0..17 {
            let mut to = vec![-1f32; n + 32];
            let head = to.as_ptr().align_offset(64) + off;
            call(&code, &p, &[to[head..].as_mut_ptr() as u64, from.as_ptr() as u64]);
            assert!(to[head..head + n].iter().zip(&from).all(|(a, b)| *a == 2.0 * b), "{} at {off}", arch.name());
            assert!(to[..head].iter().chain(&to[head + n..]).all(|x| *x == -1.0), "{} at {off}", arch.name());
        }
    }
}

#[test]
fn sums_of_ints_and_floats_by_scalars_and_vectors() {
    for (t, tolerance) in
        [(Scalar::I32, 0.0), (Scalar::I64, 0.0), (Scalar::F32, 1e-6), (Scalar::F64, 1e-15), (Scalar::U8, 0.0)]
    {
        for lanes in [1u16, 8, 32] {
            let n = 256;
            let dt = DType::of(t).vec(lanes);
            let r = range(&int(n / lanes as i64), 0);
            let x = load(&UOp::param(1, DType::of(t), n as usize).index(&(&r * &int(lanes as i64))), dt);
            let zero = UOp::constant(dt, 0i64);
            let acc = node(Op::Acc, dt, &[zero]);
            let set = node(Op::SetAcc, DType::VOID, &[acc.clone(), &acc + &x]);
            let close = end(&r, &set);
            let after = acc.after(std::slice::from_ref(&close));
            let total = if lanes == 1 {
                after
            } else {
                UOp::new(Op::VReduce, DType::of(t), [after], Arg::Reduce(Op::Add, Axes::new()))
            };
            let mut list = List::default();
            list.add(&acc);
            list.add(&close);
            list.add(&UOp::param(0, DType::of(t), 1).index(&int(0)).store(&total, &[]));
            let bufs = vec![vec![0; t.size_bytes()], Rng(7).fill(t, n as usize, true)];
            check(&list.program(&format!("r_{t}_{lanes}")), &bufs, &[], tolerance);
        }
    }
}

/// Rows of `rows x cols` tiles: C[rows][cols*lanes] += A[rows][k] * B[k][cols*lanes].
pub fn matmul_tile(rows: i64, cols: i64, lanes: u16, depth: i64) -> Program {
    let dt = DType::F32.vec(lanes);
    let width = cols * lanes as i64;
    let param = |slot, len: i64| UOp::param(slot, DType::F32, len as usize);
    let (c, a, b) = (param(0, rows * width), param(1, rows * depth), param(2, depth * width));
    let k = range(&int(depth), 0);
    let mut list = List::default();
    let accs: Vec<UOp> = (0..rows * cols)
        .map(|t| UOp::tagged(Op::Acc, dt, [UOp::constant(dt, 0.0)], Arg::None, Some(t as u32)))
        .collect();
    accs.iter().for_each(|acc| list.add(acc));
    list.add(&k);
    let bs: Vec<UOp> = (0..cols).map(|j| load(&b.index(&(&(&k * &int(width)) + &int(j * lanes as i64))), dt)).collect();
    bs.iter().for_each(|b| list.add(b));
    let mut sets = Vec::new();
    for i in 0..rows {
        let x = load(&a.index(&(&k + &int(i * depth))), DType::F32).splat(lanes);
        for j in 0..cols {
            let acc = &accs[(i * cols + j) as usize];
            let v = UOp::alu(Op::MulAcc, [x.clone(), bs[j as usize].clone(), acc.clone()]);
            sets.push(node(Op::SetAcc, DType::VOID, &[acc.clone(), v]));
            list.add(sets.last().unwrap());
        }
    }
    sets.insert(0, k.clone());
    let close = node(Op::End, DType::VOID, &sets);
    list.add(&close);
    for (t, acc) in accs.iter().enumerate() {
        let at = c.index(&int(t as i64 / cols * width + t as i64 % cols * lanes as i64));
        list.add(&at.store(&acc.after(std::slice::from_ref(&close)), &[]));
    }
    list.program(&format!("r_{rows}_{cols}_{depth}"))
}

#[test]
fn matmul_tiles_are_pure_fma_without_spills() {
    // (rows, vectors, lanes, which level)
    for (rows, cols, lanes, level) in
        [(6, 2, 8, 0), (4, 3, 8, 0), (14, 2, 16, 1), (8, 3, 16, 1), (12, 1, 16, 1), (6, 4, 16, 1)]
    {
        let depth = 32;
        let p = matmul_tile(rows, cols, lanes, depth);
        let width = (cols * lanes as i64) as usize;
        let bufs = vec![
            vec![0; 4 * rows as usize * width],
            floats((rows * depth) as usize, 1),
            floats(depth as usize * width, 2),
        ];
        let codes = check(&p, &bufs, &[], 1e-5);
        let Some(code) = codes.get(level) else { continue };
        assert_eq!(code.spill_moves, 0, "{}", code.assembly());
        let text = code.assembly();
        let moves = text.lines().filter(|l| l.contains("vmovaps")).count();
        assert_eq!(moves, 0, "{text}");
        let fmas = text.lines().filter(|l| l.contains("vfmadd")).count();
        assert_eq!(fmas as i64, rows * cols, "{text}");
        // Loads of B, broadcasts of A (folded if one column), FMA, counters; nothing else in the loop.
        let start = text.lines().position(|l| l.contains("vfmadd")).unwrap();
        let stop = text.lines().position(|l| l.contains(" jl ")).unwrap();
        let others = text
            .lines()
            .take(stop)
            .skip(start)
            .filter(|l| !l.contains("vfmadd") && !l.contains("vbroadcastss"))
            .count();
        assert!(others <= 3, "{text}");
    }
}

#[test]
fn a_symbolic_loop_with_zero_turns_leaves_the_accumulator() {
    let n = UOp::new(Op::Var, DType::I64, [], Arg::Var("n".into(), 0, 64));
    let r = range(&n, 0);
    let x = load(&UOp::param(1, DType::I32, 64).index(&r), DType::I32);
    let acc = node(Op::Acc, DType::I32, &[UOp::constant(DType::I32, 5)]);
    let set = node(Op::SetAcc, DType::VOID, &[acc.clone(), &acc + &x]);
    let close = end(&r, &set);
    let mut list = List::default();
    list.add(&acc);
    list.add(&close);
    let st = UOp::param(0, DType::I32, 1).index(&int(0)).store(&acc.after(std::slice::from_ref(&close)), &[]);
    list.add(&st);
    let p = list.program("r_n");
    let bufs = vec![vec![0; 4], Rng(3).fill(Scalar::I32, 64, true)];
    for v in [0, 1, 33] {
        check(&p, &bufs, &[("n", v)], 0.0);
    }
}

#[test]
fn nested_loops_address_rows_and_columns() {
    let (rows, cols) = (7, 24);
    let (i, j) = (range(&int(rows), 0), range(&int(cols / 8), 1));
    let dt = DType::F32.vec(8);
    // out[j][i] = x[i][j] + x[i][cols - 1 - j] (the second lane by lane).
    let x = UOp::param(1, DType::F32, (rows * cols) as usize);
    let at = &(&(&i * &int(cols)) + &(&j * &int(8))) + &int(0);
    let a = load(&x.index(&at), dt);
    let back = &(&(&i * &int(cols)) + &int(cols - 8)) - &(&j * &int(8));
    let b = load(&x.index(&back), dt).gep(&[7, 6, 5, 4, 3, 2, 1, 0]);
    let st = UOp::param(0, DType::F32, (rows * cols) as usize).index(&at).store(&(&a + &b), &[]);
    let mut list = List::default();
    list.add(&i);
    list.add(&st);
    let inner = end(&j, &st);
    list.add(&inner);
    list.add(&end(&i, &inner));
    let n = (rows * cols) as usize;
    check(&list.program("E_7_3_8"), &[vec![0; 4 * n], floats(n, 5)], &[], 1e-6);
}

#[test]
fn gates_keep_memory_untouched() {
    for t in [Scalar::F32, Scalar::F64, Scalar::I8, Scalar::F16, Scalar::I64, Scalar::Bool] {
        for lanes in [1u16, 2, 4, 8, 16, 32] {
            for vector_gate in [false, true] {
                if vector_gate && lanes == 1 {
                    continue;
                }
                gated(t, lanes, vector_gate);
            }
        }
    }
}

fn gated(t: Scalar, lanes: u16, vector_gate: bool) {
    let dt = DType::of(t).vec(lanes);
    let n = 4 * lanes as usize;
    let r = range(&int(4), 0);
    let i = &r * &int(lanes as i64);
    let gate = if vector_gate {
        let key = load(&UOp::param(2, DType::I32, n).index(&i), DType::I32.vec(lanes));
        key.lt(&key.const_like(3))
    } else {
        r.lt(&int(2))
    };
    let alt = UOp::constant(dt, 1i64);
    let x = UOp::param(1, DType::of(t), n).index_gated(&i, &gate).load_or(&alt);
    let st = UOp::param(0, DType::of(t), n).index_gated(&i, &gate).store(&x, &[]);
    let plain = UOp::param(3, DType::of(t), n).index(&i).store(&x, &[]);
    let mut list = List::default();
    list.add(&plain);
    list.add(&st);
    list.add(&end(&r, &st));
    let mut p = list.program(&format!("gated_{t}_{lanes}_{vector_gate}"));
    let mut bufs = vec![
        vec![0x01; n * t.size_bytes()],
        Rng(1).fill(t, n, true),
        Rng(2).fill(Scalar::I32, n, true),
        vec![0; n * t.size_bytes()],
    ];
    if !vector_gate {
        // No gate buffer: the parameters are 0, 1, 3.
        bufs.remove(2);
        for (k, q) in p.params.iter_mut().enumerate() {
            q.slot = k as u32;
        }
        let to_slot_2 =
            |u: &UOp| if let Arg::Param(3, len) = u.arg() { u.with_arg(Arg::Param(2, *len)) } else { u.clone() };
        p.uops = rebuild(&p.uops, to_slot_2);
    }
    check(&p, &bufs, &[], 0.0);
}

/// The list with leaves replaced.
fn rebuild(uops: &[UOp], f: impl Fn(&UOp) -> UOp) -> Vec<UOp> {
    let mut new: doorbell::uop::UMap<UOp> = Default::default();
    let mut out = Vec::new();
    for u in uops {
        let src: Vec<UOp> = u.src().iter().map(|s| new.get(s).cloned().unwrap_or_else(|| s.clone())).collect();
        let v = f(&u.with_src(src));
        new.insert(u.clone(), v.clone());
        out.push(v);
    }
    out
}

#[test]
fn gathers_and_scatters_follow_each_lane() {
    for t in [Scalar::F32, Scalar::F64, Scalar::U8, Scalar::F16, Scalar::Bool] {
        for lanes in [2u16, 4, 8, 16] {
            let n = 32;
            let dt = DType::of(t).vec(lanes);
            let i = load(&UOp::param(2, DType::I64, n).index(&int(0)), DType::I64.vec(lanes));
            let i = i.binary(Op::And, &i.const_like(15));
            let x = UOp::new(Op::Load, dt, [UOp::param(1, DType::of(t), n).index(&i)], Arg::None);
            let gate = i.lt(&i.const_like(9));
            let y = UOp::param(1, DType::of(t), n).index_gated(&i, &gate).load_or(&UOp::constant(dt, 1i64));
            // Lane k goes to element 2k.
            let spread: Vec<UOp> = (0..lanes).map(|k| int(2 * k as i64)).collect();
            let to = UOp::new(Op::Stack, DType::I64.vec(lanes), spread, Arg::None);
            let mut list = List::default();
            list.add(&UOp::param(0, DType::of(t), n).index(&to).store(&x, &[]));
            let odd = &to + &to.const_like(1);
            list.add(&UOp::param(0, DType::of(t), n).index_gated(&odd, &gate).store(&y, &[]));
            let bufs = vec![vec![0; n * t.size_bytes()], Rng(4).fill(t, n, true), Rng(5).fill(Scalar::I64, n, false)];
            check(&list.program(&format!("gather_{t}_{lanes}")), &bufs, &[], 0.0);
        }
    }
}

#[test]
fn strided_vectors_are_loaded_without_index_vectors() {
    for t in [Scalar::F32, Scalar::F64, Scalar::I8, Scalar::F16] {
        for lanes in [2u16, 8, 16, 32] {
            let dt = DType::of(t).vec(lanes);
            let (rows, stride) = (5i64, 3i64);
            let len = (rows + stride * lanes as i64) as usize;
            let r = range(&int(rows), 0);
            let steps: Vec<UOp> = (0..lanes).map(|k| int(k as i64)).collect();
            let steps = UOp::new(Op::Stack, DType::I64.vec(lanes), steps, Arg::None);
            let i = &r.splat(lanes) + &(&steps * &steps.const_like(stride));
            let x = UOp::new(Op::Load, dt, [UOp::param(1, DType::of(t), len).index(&i)], Arg::None);
            let st = UOp::param(0, DType::of(t), rows as usize * lanes as usize)
                .index(&(&r * &int(lanes as i64)))
                .store(&x, &[]);
            let mut list = List::default();
            list.add(&st);
            list.add(&end(&r, &st));
            let n = rows as usize * lanes as usize * t.size_bytes();
            let codes = check(&list.program("E_strided"), &[vec![0; n], Rng(4).fill(t, len, true)], &[], 0.0);
            assert!(codes.iter().all(|c| !c.assembly().contains("gather") && !c.assembly().contains("vpextrq")));
        }
    }
}

#[test]
fn conditions_skip_their_body() {
    let r = range(&int(8), 0);
    let cond = r.lt(&int(5)).and(&r.ne(&int(2)));
    let open = node(Op::If, DType::VOID, &[cond]);
    let st = UOp::param(0, DType::I64, 8).index(&r).store(&(&r * &r), &[]);
    let close = node(Op::EndIf, DType::VOID, std::slice::from_ref(&open));
    let mut list = List::default();
    list.add(&open);
    list.add(&st);
    list.add(&close);
    list.add(&end(&r, &close));
    check(&list.program("if_5"), &[vec![0xee; 64]], &[], 0.0);
}

#[test]
fn many_live_values_are_spilled_and_stay_right() {
    for (t, lanes) in [(Scalar::F32, 16u16), (Scalar::I64, 1), (Scalar::I32, 8)] {
        let n = 48;
        let dt = DType::of(t).vec(lanes);
        let len = n * lanes as usize;
        let x = UOp::param(1, DType::of(t), len);
        let mut list = List::default();
        let vs: Vec<UOp> = (0..n).map(|k| load(&x.index(&int(k as i64 * lanes as i64)), dt)).collect();
        vs.iter().for_each(|v| list.add(v));
        // All pairs from both ends: everything is alive at once.
        for k in 0..n {
            let v = &(&vs[k] + &vs[n - 1 - k]) - &vs[(k * 7) % n];
            list.add(&UOp::param(0, DType::of(t), len).index(&int(k as i64 * lanes as i64)).store(&v, &[]));
        }
        let bufs = vec![vec![0; len * t.size_bytes()], Rng(9).fill(t, len, true)];
        let codes = check(&list.program(&format!("spill_{t}")), &bufs, &[], 1e-6);
        assert!(codes.iter().all(|c| c.spill_moves > 0), "48 values do not fit");
    }
}

#[test]
fn scratch_holds_values_between_loops_and_threads_get_their_chunk() {
    let tile = UOp::local(0, DType::F32, 64);
    let (i, j) = (range(&int(64), 0), range(&int(64), 1));
    let tid = UOp::new(Op::Special, DType::I64, [int(3)], Arg::Str("tid".into()));
    let base = &tid * &int(64);
    let x = load(&UOp::param(1, DType::F32, 192).index(&(&base + &i)), DType::F32);
    let fill = tile.index(&i).store(&x, &[]);
    let first = end(&i, &fill);
    let bar = node(Op::Barrier, DType::VOID, std::slice::from_ref(&first));
    let back = load(&tile.index(&(&int(63) - &j)), DType::F32);
    let st = UOp::param(0, DType::F32, 192).index(&(&base + &j)).store(&back, &[]);
    let mut list = List::default();
    list.add(&tid);
    list.add(&tile);
    list.add(&first);
    list.add(&bar);
    list.add(&st);
    list.add(&end(&j, &st));
    let mut p = list.program("E_scratch");
    p.threads = 3;
    check(&p, &[vec![0; 768], floats(192, 8)], &[], 0.0);
}

/// 2^x by a polynomial, as codegen decomposes it.
fn exp2(x: &UOp) -> UOp {
    let c = |v: f64| x.const_like(v);
    let int = DType::I32.vec(x.dtype().lanes);
    let clamped = x.max(&c(-127.0));
    let q = UOp::alu(Op::Trunc, [clamped.clone()]);
    let s = &clamped - &q;
    let mut p = c(1.535_336_2e-4);
    for k in [1.339_887_5e-3, 9.618_437e-3, 5.550_332_5e-2, 0.240_226_46, std::f64::consts::LN_2, 1.0] {
        p = UOp::alu(Op::MulAcc, [p, s.clone(), c(k)]);
    }
    let e = q.cast(int);
    let e = &e + &e.const_like(127);
    let scale = e.binary(Op::Shl, &e.const_like(23)).bitcast(x.dtype());
    let y = &p * &scale;
    let y = x.lt(&c(128.0)).select(&y, &c(f64::INFINITY));
    x.ne(x).select(x, &y)
}

#[test]
fn a_decomposed_exponential_keeps_its_constants_in_registers() {
    let (n, lanes) = (256, 16);
    let r = range(&int(n / lanes), 0);
    let i = &r * &int(lanes);
    let x = load(&UOp::param(1, DType::F32, n as usize).index(&i), DType::F32.vec(lanes as u16));
    let st = UOp::param(0, DType::F32, n as usize).index(&i).store(&exp2(&x), &[]);
    let mut list = List::default();
    list.add(&st);
    list.add(&end(&r, &st));
    let codes = check(&list.program("E_exp2"), &[vec![0; 4 * n as usize], floats(n as usize, 6)], &[], 1e-6);
    for code in &codes {
        assert_eq!(code.spill_moves, 0, "{}", code.assembly());
    }
}

/// Thirty-two exponentials an iteration: more than a thousand instructions.
pub fn unrolled_exponentials(n: i64) -> Program {
    let lanes = 16;
    let r = range(&int(n / lanes / 32), 0);
    let mut list = List::default();
    let mut last = r.clone();
    for k in 0..32 {
        let i = &(&r * &int(lanes * 32)) + &int(k * lanes);
        let x = load(&UOp::param(1, DType::F32, n as usize).index(&i), DType::F32.vec(lanes as u16));
        last = UOp::param(0, DType::F32, n as usize).index(&i).store(&exp2(&x), &[]);
        list.add(&last);
    }
    list.add(&end(&r, &last));
    list.program("E_exp2_32")
}

#[test]
fn a_long_unrolled_body_is_right() {
    let n = 1024;
    let codes = check(&unrolled_exponentials(n), &[vec![0; 4 * n as usize], floats(n as usize, 6)], &[], 1e-6);
    assert!(codes.iter().all(|c| c.instructions > 500));
}

/// Rows in tiles of six and a tail of four, each with a loop that packs the same panel first; what they read of it is
/// at constant offsets.
#[test]
fn a_panel_that_two_loops_pack_is_read_after_the_own_one() {
    let range = |n: i64, id, kind| UOp::range(UOp::int(n), id, kind);
    let (i, j, l) = (range(16, 0, AxisKind::Loop), range(32, 1, AxisKind::Loop), range(10, 2, AxisKind::Reduce));
    let load = |slot, len, at: UOp| UOp::param(slot, DType::F32, len).index(&at).load();
    let s = (&load(1, 160, &(&i * 10) + &l) * &load(2, 320, &(&j * 10) + &l)).reduce(Op::Add, &[l]);
    let ast = UOp::sink([UOp::param(0, DType::F32, 512).index(&(&(&i * 32) + &j)).store(&s, &[i, j])]);
    let opts = "VECTORIZE(1,8) UPCAST(0,6) UPCAST(1,2) UNROLL(2,10) SWAP(0,1) STAGE(2,1)";
    let given = OptChoice::Given(opts.split(' ').map(|o| o.parse().unwrap()).collect());
    let p = codegen::compile(&ast, X86_64::new(Arch::Avx2, 1).target(), &given, false).unwrap();
    assert!(p.local_bytes > 0);
    check(&p, &[vec![0; 4 * 512], floats(160, 5), floats(320, 6)], &[], 1e-5);
}
