//! Attention as one kernel: how many kernels run, and values and gradients against plain loops in f64.

use doorbell::engine::{Options, Session};
use doorbell::schedule::{DeviceTraits, ScheduleCache, schedule};
use doorbell::tensor::prelude::*;
use doorbell::uop::{BufferRef, DType, UOp};
use std::sync::Arc;

fn session(arch: Option<&str>) -> Arc<Session> {
    let options = Options { device: "CPU".into(), arch: arch.map(Into::into), ..Options::default() };
    Session::open(options).unwrap()
}

/// Numbers in [-1, 1) that follow from a seed, as the type can hold them.
fn numbers(seed: u64, shape: &[usize], dtype: Scalar) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    let shape: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
    let t = Tensor::new(data).reshape(shape.as_slice()).cast(dtype).contiguous();
    t.realize().unwrap();
    t
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    Bool,
    Float,
}

/// Sizes: batch, heads, heads of keys and values, queries, keys, columns of keys, columns of values.
#[derive(Clone, Copy, Debug)]
struct Shape {
    b: usize,
    h: usize,
    kv: usize,
    n: usize,
    m: usize,
    d: usize,
    dv: usize,
}

const fn shape(b: usize, h: usize, kv: usize, (n, m): (usize, usize), (d, dv): (usize, usize)) -> Shape {
    Shape { b, h, kv, n, m, d, dv }
}

/// Output, and weights, in f64: element (b, h, i) of the queries sees key j where `seen` says so, plus what it adds.
fn reference(s: Shape, [q, k, v]: [&[f64]; 3], bias: impl Fn(usize, usize) -> f64) -> (Vec<f64>, Vec<f64>) {
    let (mut out, mut weights) = (Vec::new(), Vec::new());
    for bh in 0..s.b * s.h {
        let kv = bh / s.h * s.kv + bh % s.h / (s.h / s.kv);
        for i in 0..s.n {
            let row = &q[(bh * s.n + i) * s.d..][..s.d];
            let score = |j: usize| {
                let key = &k[(kv * s.m + j) * s.d..][..s.d];
                row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (s.d as f64).sqrt() + bias(i, j)
            };
            let scores: Vec<f64> = (0..s.m).map(score).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
            let total: f64 = e.iter().sum();
            weights.extend(e.iter().map(|x| x / total));
            let column = |c: usize| e.iter().enumerate().map(|(j, x)| x * v[(kv * s.m + j) * s.dv + c]).sum::<f64>();
            out.extend((0..s.dv).map(|c| column(c) / total));
        }
    }
    (out, weights)
}

fn close(have: &[f64], want: &[f64], bound: f64, what: &str) {
    assert_eq!(have.len(), want.len(), "{what}");
    let worst = have.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let nan = have.iter().zip(want).filter(|(a, b)| a.is_nan() != b.is_nan()).count();
    assert!(worst <= bound && nan == 0, "{what}: {worst:e} off, {nan} NaN in one only");
}

/// Computes one case and compares it; the kernels that it launched.
fn run(session: &Session, s: Shape, dtype: Scalar, causal: bool, mask: Mask) -> u64 {
    let q = numbers(1, &[s.b, s.h, s.n, s.d], dtype).mul(3).contiguous();
    let k = numbers(2, &[s.b, s.kv, s.m, s.d], dtype).mul(2).contiguous();
    let v = numbers(3, &[s.b, s.kv, s.m, s.dv], dtype);
    let m = match mask {
        Mask::None => None,
        Mask::Bool => Some(numbers(4, &[s.n, s.m], Scalar::F32).gt(-0.3).contiguous()),
        Mask::Float => Some(numbers(5, &[s.n, s.m], dtype)),
    };
    Tensor::realize_all(&[&q, &k].map(Clone::clone)).unwrap();
    if let Some(m) = &m {
        m.realize().unwrap();
    }
    let grouped = |t: &Tensor| if s.kv == s.h { t.clone() } else { t.repeat_interleave(s.h / s.kv, 1) };
    let before = session.counters.totals().kernels;
    let have = q.attention(&grouped(&k), &grouped(&v), m.as_ref(), causal);
    have.realize().unwrap();
    let kernels = session.counters.totals().kernels - before;
    let bits = m.map(|m| m.to_f64().unwrap());
    let bias = |i: usize, j: usize| {
        let at = bits.as_ref().map_or(0.0, |b| b[i * s.m + j]);
        let masked = causal && j > i || mask == Mask::Bool && at == 0.0;
        if masked {
            f64::NEG_INFINITY
        } else if mask == Mask::Float {
            at
        } else {
            0.0
        }
    };
    let [q, k, v] = [q, k, v].map(|t| t.to_f64().unwrap());
    let (want, _) = reference(s, [&q, &k, &v], bias);
    let bound = match dtype {
        Scalar::F16 => 4e-3,
        Scalar::BF16 => 3e-2,
        // Scores of some ten are rounded to 1e-6 of them.
        _ => 5e-6,
    };
    close(&have.to_f64().unwrap(), &want, bound, &format!("{s:?} {dtype} causal {causal} {mask:?}"));
    kernels
}

const SHAPES: [Shape; 6] = [
    shape(1, 2, 2, (128, 128), (64, 64)),
    // No multiple of any tile.
    shape(2, 3, 3, (141, 131), (40, 24)),
    shape(1, 1, 1, (129, 197), (33, 7)),
    // Groups of queries, and one head of keys for all.
    shape(2, 4, 2, (160, 144), (32, 32)),
    shape(1, 5, 1, (150, 173), (16, 16)),
    shape(1, 2, 2, (130, 144), (256, 96)),
];

#[test]
fn an_attention_is_one_kernel_with_the_values_of_a_plain_loop() {
    for dtype in [Scalar::F32, Scalar::F16, Scalar::BF16] {
        // Where the CPU has AMX, its products of bf16 are kernels of their own: the arch below it is taken.
        let best = if is_x86_feature_detected!("avx512f") { "avx512" } else { "avx2" };
        let session = session((dtype == Scalar::BF16).then_some(best));
        let _entered = session.enter();
        let few = if dtype == Scalar::F32 { SHAPES.len() } else { 4 };
        for s in &SHAPES[..few] {
            for causal in [false, true] {
                for mask in [Mask::None, Mask::Bool, Mask::Float] {
                    let kernels = run(&session, *s, dtype, causal, mask);
                    assert_eq!(kernels, 1, "{s:?} {dtype} causal {causal} {mask:?}");
                }
            }
        }
    }
}

/// The card that `DEV=NV` names with all shapes of the first row, else these.
fn here_or<'s>(rows: &[(&str, &'s [Shape])]) -> Vec<(String, &'s [Shape])> {
    match std::env::var("DEV") {
        Ok(card) if card == "NV" => vec![(card, rows[0].1)],
        _ => rows.iter().map(|(device, shapes)| (device.to_string(), *shapes)).collect(),
    }
}

#[test]
fn a_gpu_with_a_matrix_unit_makes_one_kernel_of_half_types() {
    const ON_UNITS: [Shape; 5] = [
        shape(1, 2, 2, (128, 128), (64, 64)),
        // No multiple of any tile.
        shape(1, 3, 3, (141, 131), (48, 32)),
        shape(2, 4, 2, (160, 144), (32, 32)),
        shape(1, 5, 1, (150, 173), (16, 16)),
        shape(1, 1, 1, (130, 260), (128, 112)),
    ];
    for (device, shapes) in here_or(&[("NV:emu=sm_90", &ON_UNITS[..]), ("NV:emu=sm_80", &ON_UNITS[..2])]) {
        let session = Session::open(Options { device: device.clone(), ..Options::default() }).unwrap();
        let _entered = session.enter();
        for s in shapes {
            for (dtype, causal, mask) in [
                (Scalar::F16, false, Mask::None),
                (Scalar::F16, true, Mask::None),
                (Scalar::BF16, true, Mask::Float),
                (Scalar::F16, false, Mask::Bool),
            ] {
                let kernels = run(&session, *s, dtype, causal, mask);
                assert_eq!(kernels, 1, "{device} {s:?} {dtype} causal {causal} {mask:?}");
            }
        }
        // Rows of other lengths have the kernels they always had.
        assert!(run(&session, shape(1, 1, 1, (128, 128), (24, 16)), Scalar::F16, false, Mask::None) > 1);
    }
}

#[test]
fn a_gpu_makes_one_kernel_of_f32() {
    const IN_THREADS: [Shape; 4] = [
        shape(1, 2, 2, (128, 128), (64, 64)),
        shape(1, 3, 3, (141, 131), (96, 32)),
        shape(2, 4, 2, (160, 144), (32, 64)),
        shape(1, 1, 1, (130, 200), (128, 128)),
    ];
    let mut devices = vec![("NV:emu=sm_90", &IN_THREADS[..])];
    let one_each = ["NV:emu=sm_80", "AMD:emu=gfx1100", "AMD:emu=gfx942", "AMD:emu=gfx1201", "METAL:emu"];
    devices.extend(one_each.map(|device| (device, &IN_THREADS[..1])));
    for (device, shapes) in here_or(&devices) {
        let session = Session::open(Options { device: device.clone(), ..Options::default() }).unwrap();
        let _entered = session.enter();
        for s in shapes {
            for (causal, mask) in [(false, Mask::None), (true, Mask::None), (true, Mask::Float), (false, Mask::Bool)] {
                let kernels = run(&session, *s, Scalar::F32, causal, mask);
                assert_eq!(kernels, 1, "{device} {s:?} causal {causal} {mask:?}");
            }
        }
        assert!(run(&session, shape(1, 1, 1, (128, 128), (16, 16)), Scalar::F32, true, Mask::None) > 1);
    }
}

#[test]
fn narrower_registers_and_fewer_threads_give_the_same() {
    let session = session(Some("avx2"));
    let _entered = session.enter();
    for s in SHAPES {
        assert_eq!(run(&session, s, Scalar::F32, true, Mask::None), 1);
        assert_eq!(run(&session, s, Scalar::F16, false, Mask::Bool), 1);
    }
    let alone = Session::open(Options { device: "CPU".into(), threads: Some(1), ..Options::default() }).unwrap();
    let _entered = alone.enter();
    assert_eq!(run(&alone, SHAPES[5], Scalar::F32, true, Mask::None), 1);
}

#[test]
fn short_sequences_keep_their_kernels_and_are_right() {
    let session = session(None);
    let _entered = session.enter();
    let sizes = [(1, 64), (3, 5), (64, 2), (64, 300), (300, 64)];
    for s in sizes.map(|n| shape(1, 2, 2, n, (32, 32))) {
        assert!(run(&session, s, Scalar::F32, false, Mask::None) > 1, "{s:?}");
    }
}

#[test]
fn products_of_a_matrix_unit_keep_their_kernels() {
    let memory = |n: usize| UOp::buffer(DType::BF16, BufferRef::new(n, "CPU".into()));
    let [q, k, v] = [0, 1, 2].map(|_| Tensor::from(memory(256 * 64)).reshape([256, 64]));
    let roots = [(q.attention(&k, &v, None, true).uop().unwrap(), "CPU".into())];
    let cache = ScheduleCache::default();
    cache.describe(&"CPU:1".into(), DeviceTraits::default().with_units(vec![Scalar::BF16]));
    cache.describe(&"CPU".into(), DeviceTraits::default().with_units(vec![Scalar::I8]));
    assert_eq!(schedule(&roots, &cache).unwrap().kernel_count(), 1);
    cache.describe(&"CPU".into(), DeviceTraits::default().with_units(vec![Scalar::BF16]));
    assert!(schedule(&roots, &cache).unwrap().kernel_count() > 1);
}

#[test]
fn operands_are_read_where_they_lie() {
    let session = session(None);
    let _entered = session.enter();
    // As a layer has them: heads beside each other in a row, queries, keys and values in one tensor.
    let (b, n, h, d) = (2, 135, 3, 24);
    let all = numbers(7, &[b, n, 3 * h * d], Scalar::F32);
    let part = |k: usize| {
        let x = all.narrow(-1, (k * h * d) as i64, (h * d) as i64);
        x.reshape([b as i64, n as i64, h as i64, d as i64]).transpose(1, 2)
    };
    let [q, k, v] = [0, 1, 2].map(part);
    let before = session.counters.totals().kernels;
    let have = q.attention(&k, &v, None, true);
    have.realize().unwrap();
    assert_eq!(session.counters.totals().kernels - before, 1);
    let s = shape(b, h, h, (n, n), (d, d));
    let [q, k, v] = [q, k, v].map(|t| t.to_f64().unwrap());
    let (want, _) = reference(s, [&q, &k, &v], |i, j| if j > i { f64::NEG_INFINITY } else { 0.0 });
    close(&have.to_f64().unwrap(), &want, 2e-6, "views");
    // Keys that are computed first, and a turned operand.
    let (q, k) = (numbers(8, &[128, 32], Scalar::F32), numbers(9, &[32, 180], Scalar::F32));
    let v = numbers(10, &[180, 32], Scalar::F32);
    let keys = k.transpose(0, 1).mul(0.5).add(0.25);
    let have = q.attention(&keys, &v, None, false).to_f64().unwrap();
    let [q, k, v] = [&q, &keys, &v].map(|t| t.to_f64().unwrap());
    let (want, _) = reference(shape(1, 1, 1, (128, 180), (32, 32)), [&q, &k, &v], |_, _| 0.0);
    close(&have, &want, 2e-6, "computed keys");
}

#[test]
fn keys_that_were_assigned_in_the_same_run_are_the_new_ones() {
    let session = session(None);
    let _entered = session.enter();
    let s = shape(1, 1, 1, (128, 150), (32, 32));
    let [q, k, v] = [(31, 128), (32, 150), (33, 150)].map(|(seed, n)| numbers(seed, &[n, 32], Scalar::F32));
    let cache = Tensor::zeros([200, 32]).contiguous();
    cache.realize().unwrap();
    let old = cache.narrow(0, 20, 150);
    let before = q.attention(&old, &v, None, false);
    cache.set(20..170, &k);
    let after = q.attention(&cache.narrow(0, 20, 150), &v, None, false);
    Tensor::realize_all(&[before.clone(), after.clone()]).unwrap();
    let [q, k, v] = [q, k, v].map(|t| t.to_f64().unwrap());
    close(&after.to_f64().unwrap(), &reference(s, [&q, &k, &v], |_, _| 0.0).0, 5e-6, "assigned keys");
    let zeros = vec![0.0; k.len()];
    close(&before.to_f64().unwrap(), &reference(s, [&q, &zeros, &v], |_, _| 0.0).0, 5e-6, "keys before");
}

#[test]
fn large_scores_stay_finite_and_rows_without_a_key_are_nan() {
    let session = session(None);
    let _entered = session.enter();
    let (n, m, d) = (140, 200, 16);
    let q = numbers(11, &[n, d], Scalar::F32).mul(300).contiguous();
    let (k, v) = (numbers(12, &[m, d], Scalar::F32).mul(300).contiguous(), numbers(13, &[m, d], Scalar::F32));
    // Row 5 sees nothing, row 6 the last key alone, row 7 all but the first hundred.
    let seen = |i: usize, j: usize| match i {
        5 => false,
        6 => j == m - 1,
        7 => j >= 100,
        _ => true,
    };
    let bits: Vec<bool> = (0..n * m).map(|x| seen(x / m, x % m)).collect();
    let mask = Tensor::new(bits).reshape([n as i64, m as i64]);
    let before = session.counters.totals().kernels;
    Tensor::realize_all(&[&q, &k, &mask].map(Clone::clone)).unwrap();
    let prepared = session.counters.totals().kernels - before;
    let have = q.attention(&k, &v, Some(&mask), false).to_f64().unwrap();
    assert_eq!(session.counters.totals().kernels - before - prepared, 1);
    let [q, k, v] = [q, k, v].map(|t| t.to_f64().unwrap());
    let s = shape(1, 1, 1, (n, m), (d, d));
    let bias = |i: usize, j: usize| if seen(i, j) { 0.0 } else { f64::NEG_INFINITY };
    let (want, _) = reference(s, [&q, &k, &v], bias);
    assert!(want[5 * d].is_nan() && have[5 * d..6 * d].iter().all(|x| x.is_nan()), "a row that sees nothing");
    // Scores of some ten thousand: their rounding in f32 is the weights' relative error.
    close(&have, &want, 2e-2, "large scores");
    close(&have[6 * d..7 * d], &v[(m - 1) * d..], 1e-6, "one key");
}

/// Gradients of queries, keys and values in f64, from the gradient of the result.
fn gradients(s: Shape, [q, k, v, g]: [&[f64]; 4], weights: &[f64]) -> [Vec<f64>; 3] {
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    let root = (s.d as f64).sqrt();
    for bh in 0..s.b * s.h {
        let kv = bh / s.h * s.kv + bh % s.h / (s.h / s.kv);
        for i in 0..s.n {
            let (row, p) = (bh * s.n + i, &weights[(bh * s.n + i) * s.m..][..s.m]);
            let go = &g[row * s.dv..][..s.dv];
            let product = |j: usize| go.iter().zip(&v[(kv * s.m + j) * s.dv..]).map(|(a, b)| a * b).sum::<f64>();
            let dp: Vec<f64> = (0..s.m).map(product).collect();
            let mean: f64 = p.iter().zip(&dp).map(|(a, b)| a * b).sum();
            for j in 0..s.m {
                let key = kv * s.m + j;
                let ds = p[j] * (dp[j] - mean) / root;
                (0..s.d).for_each(|c| dq[row * s.d + c] += ds * k[key * s.d + c]);
                (0..s.d).for_each(|c| dk[key * s.d + c] += ds * q[row * s.d + c]);
                (0..s.dv).for_each(|c| dv[key * s.dv + c] += p[j] * go[c]);
            }
        }
    }
    [dq, dk, dv]
}

/// Computes the gradients of one case beside its result, and compares them; the kernels that they launched.
fn run_gradients(session: &Session, s: Shape, dtype: Scalar, causal: bool, mask: Mask) -> u64 {
    let q = numbers(21, &[s.b, s.h, s.n, s.d], dtype).mul(2).contiguous();
    let k = numbers(22, &[s.b, s.kv, s.m, s.d], dtype);
    let v = numbers(23, &[s.b, s.kv, s.m, s.dv], dtype);
    let g = numbers(24, &[s.b, s.h, s.n, s.dv], dtype);
    let m = match mask {
        Mask::None => None,
        Mask::Bool => Some(numbers(4, &[s.n, s.m], Scalar::F32).gt(-0.3).contiguous()),
        Mask::Float => Some(numbers(5, &[s.n, s.m], dtype)),
    };
    Tensor::realize_all(&[q.clone(), g.clone()]).unwrap();
    if let Some(m) = &m {
        m.realize().unwrap();
    }
    let grouped = |t: &Tensor| if s.kv == s.h { t.clone() } else { t.repeat_interleave(s.h / s.kv, 1) };
    let before = session.counters.totals().kernels;
    let out = q.attention(&grouped(&k), &grouped(&v), m.as_ref(), causal);
    let shares = out.mul(&g).cast(Scalar::F32).sum(()).gradient(&[&q, &k, &v]);
    let mut all = shares.clone();
    all.push(out.clone());
    Tensor::realize_all(&all).unwrap();
    let kernels = session.counters.totals().kernels - before;
    let bits = m.map(|m| m.to_f64().unwrap());
    let bias = |i: usize, j: usize| {
        let at = bits.as_ref().map_or(0.0, |b| b[i * s.m + j]);
        let masked = causal && j > i || mask == Mask::Bool && at == 0.0;
        match mask {
            _ if masked => f64::NEG_INFINITY,
            Mask::Float => at,
            _ => 0.0,
        }
    };
    let [q, k, v, g] = [q, k, v, g].map(|t| t.to_f64().unwrap());
    let (want, weights) = reference(s, [&q, &k, &v], bias);
    let what = format!("{s:?} {dtype} causal {causal} {mask:?}");
    // Relative to the largest element.
    let bound = match dtype {
        Scalar::F16 => 6e-3,
        Scalar::BF16 => 4e-2,
        _ => 5e-6,
    };
    close(&out.to_f64().unwrap(), &want, bound, &format!("{what}: result"));
    for ((have, want), of) in shares.iter().zip(gradients(s, [&q, &k, &v, &g], &weights)).zip(["q", "k", "v"]) {
        let most = want.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        close(&have.to_f64().unwrap(), &want, bound * most, &format!("{what}: gradient of {of}"));
    }
    kernels
}

#[test]
fn gradients_of_short_sequences_are_those_of_a_plain_loop() {
    let session = session(None);
    let _entered = session.enter();
    let s = shape(1, 2, 2, (130, 140), (24, 20));
    let q = numbers(21, &[s.b, s.h, s.n, s.d], Scalar::F32).requires_grad();
    let k = numbers(22, &[s.b, s.h, s.m, s.d], Scalar::F32).requires_grad();
    let v = numbers(23, &[s.b, s.h, s.m, s.dv], Scalar::F32).requires_grad();
    let g = numbers(24, &[s.b, s.h, s.n, s.dv], Scalar::F32);
    let out = q.attention(&k, &v, None, true);
    let shares = out.mul(&g).sum(()).gradient(&[&q, &k, &v]);
    let mut all = shares.clone();
    all.push(out.clone());
    Tensor::realize_all(&all).unwrap();
    let [qs, ks, vs, gs] = [&q, &k, &v, &g].map(|t| t.to_f64().unwrap());
    let hidden = |i: usize, j: usize| if j > i { f64::NEG_INFINITY } else { 0.0 };
    let (want, weights) = reference(s, [&qs, &ks, &vs], hidden);
    close(&out.to_f64().unwrap(), &want, 2e-6, "output beside its gradient");
    let want = gradients(s, [&qs, &ks, &vs, &gs], &weights);
    for ((have, want), what) in shares.iter().zip(&want).zip(["queries", "keys", "values"]) {
        close(&have.to_f64().unwrap(), want, 5e-6, what);
    }
}

/// Long enough for kernels that keep scores in registers, with a causal mask.
const LONG: [Shape; 6] = [
    shape(1, 2, 2, (256, 256), (64, 64)),
    shape(2, 3, 3, (271, 261), (40, 24)),
    shape(1, 1, 1, (257, 325), (33, 7)),
    shape(2, 4, 2, (290, 272), (32, 32)),
    shape(1, 5, 1, (270, 301), (16, 16)),
    shape(1, 2, 2, (258, 272), (128, 96)),
];

#[test]
fn gradients_are_three_kernels_with_the_values_of_a_plain_loop() {
    for dtype in [Scalar::F32, Scalar::F16, Scalar::BF16] {
        // Where the CPU has AMX, its products of bf16 are kernels of their own: the arch below it is taken.
        let best = if is_x86_feature_detected!("avx512f") { "avx512" } else { "avx2" };
        let session = session((dtype == Scalar::BF16).then_some(best));
        let _entered = session.enter();
        let few = if dtype == Scalar::F32 { LONG.len() } else { 4 };
        for s in &LONG[..few] {
            for mask in [Mask::None, Mask::Float] {
                let kernels = run_gradients(&session, *s, dtype, true, mask);
                // How many threads there are decides whether the gradient of the queries is in one kernel with the
                // others.
                assert!([1 + 2, 1 + 3].contains(&kernels), "{s:?} {dtype} {mask:?}: {kernels} kernels");
            }
        }
        // Shorter ones, and those without a causal mask, have the kernels of the parts.
        assert!(run_gradients(&session, SHAPES[1], dtype, true, Mask::None) > 4);
        assert!(run_gradients(&session, LONG[1], dtype, false, Mask::Float) > 4);
    }
}

#[test]
fn a_gpu_with_a_matrix_unit_makes_three_kernels_of_gradients() {
    const ON_UNITS: [Shape; 4] = [
        shape(1, 2, 2, (128, 128), (64, 64)),
        // No multiple of any tile.
        shape(1, 3, 3, (141, 131), (48, 32)),
        shape(2, 4, 2, (160, 144), (32, 32)),
        shape(1, 1, 1, (130, 260), (64, 16)),
    ];
    const CASES: [(Scalar, bool, Mask); 4] = [
        (Scalar::F16, false, Mask::None),
        (Scalar::BF16, true, Mask::None),
        (Scalar::F16, true, Mask::Float),
        (Scalar::F16, false, Mask::Bool),
    ];
    for (device, shapes) in here_or(&[("NV:emu=sm_90", &ON_UNITS[..]), ("NV:emu=sm_80", &ON_UNITS[..1])]) {
        let session = Session::open(Options { device: device.clone(), ..Options::default() }).unwrap();
        let _entered = session.enter();
        for (n, s) in shapes.iter().enumerate() {
            // A card takes all of them, software one after the other.
            let cases = if device == "NV" { &CASES[..] } else { &CASES[n..=n] };
            for (dtype, causal, mask) in cases {
                let kernels = run_gradients(&session, *s, *dtype, *causal, *mask);
                assert_eq!(kernels, 1 + 3, "{device} {s:?} {dtype} causal {causal} {mask:?}");
            }
        }
    }
}

/// Kernels of a causal attention in f32 and its gradients.
fn run_gradients_in(session: &Arc<Session>, s: Shape) -> u64 {
    let _entered = session.enter();
    run_gradients(session, s, Scalar::F32, true, Mask::None)
}

#[test]
fn a_gpu_makes_three_kernels_of_gradients_in_f32() {
    const IN_THREADS: [Shape; 4] = [
        shape(1, 2, 2, (128, 128), (32, 32)),
        shape(1, 1, 1, (141, 131), (64, 32)),
        shape(1, 4, 2, (160, 144), (32, 64)),
        shape(1, 1, 1, (130, 200), (64, 64)),
    ];
    const CASES: [(bool, Mask); 4] = [(true, Mask::None), (true, Mask::Bool), (true, Mask::Float), (true, Mask::None)];
    let mut devices = vec![("NV:emu=sm_90", &IN_THREADS[..])];
    devices.extend(["AMD:emu=gfx1100", "AMD:emu=gfx942", "METAL:emu"].map(|device| (device, &IN_THREADS[..1])));
    for (device, shapes) in here_or(&devices) {
        // At these sizes the kernels of the parts are faster.
        let options = Options { device: device.clone(), ..Options::default() };
        let parts = run_gradients_in(&Session::open(options.clone()).unwrap(), shapes[0]);
        assert!(parts > 1 + 3, "{device}: {parts} kernels");
        let session = Session::open(Options { fuse_attention: true, ..options }).unwrap();
        let _entered = session.enter();
        for (n, s) in shapes.iter().enumerate() {
            let cases = if device == "NV" { &CASES[..] } else { &CASES[n..=n] };
            for (causal, mask) in cases {
                let kernels = run_gradients(&session, *s, Scalar::F32, *causal, *mask);
                assert_eq!(kernels, 1 + 3, "{device} {s:?} causal {causal} {mask:?}");
            }
        }
    }
}

#[test]
fn a_thread_for_each_attention_computes_all_gradients_in_one_kernel() {
    const WHOLE: [Shape; 3] = [
        shape(1, 2, 2, (256, 256), (64, 64)),
        shape(2, 3, 3, (271, 261), (48, 24)),
        shape(1, 2, 2, (130, 523), (16, 80)),
    ];
    let avx512 = is_x86_feature_detected!("avx512f").then_some("avx512");
    for arch in avx512.into_iter().chain(["avx2"]) {
        for (threads, all) in [(1, 3), (2, 3), (7, 4)] {
            let options = Options { device: "CPU".into(), arch: Some(arch.into()), ..Options::default() };
            let session = Session::open(Options { threads: Some(threads), ..options }).unwrap();
            let _entered = session.enter();
            for s in WHOLE {
                let plain = [(false, Mask::None), (false, Mask::Bool)];
                let plain = &plain[..if s.m >= 512 && threads < 7 { 2 } else { 0 }];
                for (causal, mask) in [(true, Mask::None), (true, Mask::Float)].iter().chain(plain) {
                    let kernels = run_gradients(&session, s, Scalar::F32, *causal, *mask);
                    assert_eq!(kernels, all, "{arch} {threads} threads {s:?} causal {causal} {mask:?}");
                }
            }
            // Groups of queries share keys, and half types are added up in f32.
            assert_eq!(run_gradients(&session, LONG[3], Scalar::F32, true, Mask::None), 4);
            assert_eq!(run_gradients(&session, WHOLE[0], Scalar::F16, true, Mask::None), 4);
        }
    }
}
