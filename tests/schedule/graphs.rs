//! Tensor graphs in few words, and running their schedules on the kernel interpreter.

use doorbell::engine::interp::{Value, Vars, eval_with, run_kernel};
use doorbell::schedule::{Schedule, ScheduleCache, ScheduleItem, schedule};
use doorbell::uop::spec::{Stage, verify};
use doorbell::uop::{Arg, BufferRef, DType, Op, UOp};
use std::cell::RefCell;
use std::collections::HashMap;

/// Memory of a test: bytes by buffer identity.
#[derive(Default)]
pub struct Memory(pub RefCell<HashMap<u64, Vec<u8>>>);

pub fn sizes(d: &[i64]) -> Vec<UOp> {
    d.iter().map(|x| UOp::int(*x)).collect()
}
pub fn ints(u: &UOp) -> Vec<i64> {
    u.shape().iter().map(|d| d.max()).collect()
}
pub fn buffer(dtype: DType, n: i64) -> UOp {
    UOp::buffer(dtype, BufferRef::new(n as usize, "CPU".into()))
}
/// A realised f32 tensor.
pub fn input(shape: &[i64]) -> UOp {
    reshape(&buffer(DType::F32, shape.iter().product()), shape)
}
pub fn reshape(u: &UOp, d: &[i64]) -> UOp {
    if ints(u) == d { u.clone() } else { u.movement(Op::Reshape, sizes(d)) }
}
pub fn expand(u: &UOp, d: &[i64]) -> UOp {
    let mut own = ints(u);
    while own.len() < d.len() {
        own.insert(0, 1);
    }
    let u = reshape(u, &own);
    if own == d { u } else { u.movement(Op::Expand, sizes(d)) }
}
pub fn shrink(u: &UOp, spans: &[(i64, i64)]) -> UOp {
    let all: Vec<i64> = spans.iter().map(|s| s.0).chain(spans.iter().map(|s| s.1)).collect();
    u.movement(Op::Shrink, sizes(&all))
}
pub fn pad(u: &UOp, spans: &[(i64, i64)]) -> UOp {
    let all: Vec<i64> = spans.iter().map(|s| s.0).chain(spans.iter().map(|s| s.1)).collect();
    u.movement(Op::Pad, sizes(&all))
}
/// Elementwise op with broadcasting.
pub fn op(o: Op, src: &[&UOp]) -> UOp {
    let rank = src.iter().map(|u| u.shape().len()).max().unwrap_or(0);
    let mut shape = vec![1; rank];
    for u in src {
        let s = ints(u);
        for (k, d) in s.iter().rev().enumerate() {
            let at = rank - 1 - k;
            shape[at] = if shape[at] == 1 { *d } else { shape[at] };
        }
    }
    let same = |u: &&UOp| if u.op() == Op::Const { (*u).clone() } else { expand(u, &shape) };
    UOp::alu(o, src.iter().map(same).collect::<Vec<_>>())
}
pub fn add(a: &UOp, b: &UOp) -> UOp {
    op(Op::Add, &[a, b])
}
pub fn sub(a: &UOp, b: &UOp) -> UOp {
    op(Op::Sub, &[a, b])
}
pub fn mul(a: &UOp, b: &UOp) -> UOp {
    op(Op::Mul, &[a, b])
}
pub fn num(x: f64) -> UOp {
    UOp::constant(DType::F32, x)
}
pub fn un(o: Op, a: &UOp) -> UOp {
    UOp::alu(o, [a.clone()])
}
pub fn relu(a: &UOp) -> UOp {
    op(Op::Max, &[a, &num(0.0)])
}
/// Sum that keeps the axis with size 1.
pub fn sum(a: &UOp, axes: &[usize]) -> UOp {
    a.reduce_axes(Op::Add, axes)
}
pub fn max(a: &UOp, axes: &[usize]) -> UOp {
    a.reduce_axes(Op::Max, axes)
}
/// Drops the axes of size 1.
pub fn squeeze(a: &UOp, axes: &[usize]) -> UOp {
    let d: Vec<i64> = ints(a).into_iter().enumerate().filter(|(k, _)| !axes.contains(k)).map(|x| x.1).collect();
    reshape(a, &d)
}
pub fn mean(a: &UOp, axes: &[usize]) -> UOp {
    let n: i64 = axes.iter().map(|k| ints(a)[*k]).product();
    mul(&sum(a, axes), &num(1.0 / n as f64))
}
pub fn var(a: &UOp, axes: &[usize], n: f64) -> UOp {
    let d = sub(a, &mean(a, axes));
    mul(&sum(&mul(&d, &d), axes), &num(1.0 / n))
}
pub fn softmax(a: &UOp, axis: usize) -> UOp {
    let e = un(Op::Exp2, &sub(a, &max(a, &[axis])));
    mul(&e, &un(Op::Recip, &sum(&e, &[axis])))
}
/// `a (.., m, k) @ b (.., k, n)`
pub fn matmul(a: &UOp, b: &UOp) -> UOp {
    let (mut sa, mut sb) = (ints(a), ints(b));
    let (ra, rb) = (sa.len(), sb.len());
    sa.insert(ra - 1, 1);
    let mut order: Vec<usize> = (0..rb).collect();
    order.swap(rb - 1, rb - 2);
    sb.swap(rb - 1, rb - 2);
    sb.insert(rb - 2, 1);
    let (x, w) = (reshape(a, &sa), reshape(&b.permute(&order), &sb));
    let p = mul(&x, &w);
    let last = ints(&p).len() - 1;
    squeeze(&sum(&p, &[last]), &[last])
}
pub fn transpose(a: &UOp) -> UOp {
    let n = a.shape().len();
    let mut order: Vec<usize> = (0..n).collect();
    order.swap(n - 1, n - 2);
    a.permute(&order)
}
/// 3x3-like convolution without padding: x (n, c, h, w), w (o, c, k, k), by windows made of reshapes and shrinks.
pub fn conv2d(x: &UOp, w: &UOp) -> UOp {
    let (s, f) = (ints(x), ints(w));
    let (n, c, o, k) = (s[0], s[1], f[0], f[2]);
    let (oy, ox) = (s[2] - k + 1, s[3] - k + 1);
    let win = windows(&windows(x, 2, k), 4, k);
    // (n, c, oy, ky, ox, kx)
    let win = reshape(&win.permute(&[0, 2, 4, 1, 3, 5]), &[n, 1, oy, ox, c, k, k]);
    let p = mul(&win, &reshape(w, &[1, o, 1, 1, c, k, k]));
    squeeze(&sum(&p, &[4, 5, 6]), &[4, 5, 6])
}
/// Axis of size n → (n-k+1, k): all windows of k, by repeating, shrinking and reshaping.
pub fn windows(x: &UOp, axis: usize, k: i64) -> UOp {
    let s = ints(x);
    let (n, o) = (s[axis], s[axis] - k + 1);
    let with = |at: &[i64]| -> Vec<i64> { [&s[..axis], at, &s[axis + 1..]].concat() };
    let rep = reshape(&expand(&reshape(x, &with(&[1, n])), &with(&[k, n])), &with(&[k * n]));
    let mut spans: Vec<(i64, i64)> = s.iter().map(|d| (0, *d)).collect();
    // Row j of the (k, n + 1) view starts at j * (n + 1): shifted by j.
    let len = k * (n + 1);
    let mut pads = vec![(0, 0); s.len()];
    pads[axis] = (0, len - k * n);
    let padded = pad(&rep, &pads);
    let wide = reshape(&padded, &with(&[k, n + 1]));
    spans.insert(axis, (0, k));
    spans[axis + 1] = (0, o);
    let cut = shrink(&wide, &spans);
    let mut order: Vec<usize> = (0..s.len() + 1).collect();
    order.swap(axis, axis + 1);
    cut.permute(&order)
}
pub fn assign(target: &UOp, value: &UOp) -> UOp {
    UOp::new(Op::Assign, target.dtype(), [target.clone(), value.clone()], Arg::None)
}
pub fn iota(n: i64) -> UOp {
    UOp::new(Op::Iota, DType::INDEX, [UOp::int(n)], Arg::None)
}
pub fn contiguous(u: &UOp) -> UOp {
    u.wrap(Op::Contiguous)
}

pub fn plan(roots: &[UOp]) -> Schedule {
    let roots: Vec<_> = roots.iter().map(|r| (r.clone(), "CPU".into())).collect();
    schedule(&roots, &ScheduleCache::default()).unwrap()
}

impl Memory {
    /// Gives every buffer below the roots values from a seed.
    pub fn fill(&self, roots: &[UOp], seed: u64) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for r in roots {
            for b in r.toposort().iter().filter_map(|u| u.buffer_ref().map(|b| (u.dtype(), b.clone()))) {
                let mut map = self.0.borrow_mut();
                map.entry(b.1.id).or_insert_with(|| {
                    let mut next = || {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        (state >> 40) as i64 % 17 - 8
                    };
                    let data = (0..b.1.len).map(|_| {
                        let v = next();
                        if b.0.is_float() { (v as f64 * 0.25).into() } else { (v.rem_euclid(4)).into() }
                    });
                    let data = data.map(|c| doorbell::uop::const_as(c, b.0)).collect();
                    Value { shape: vec![b.1.len], dtype: b.0.scalar, data }.to_bytes()
                });
            }
        }
    }
    pub fn value(&self, u: &UOp) -> Value {
        eval_with(u, &|b| if b.len == 0 { Some(vec![]) } else { self.0.borrow().get(&b.id).cloned() })
            .unwrap_or_else(|e| panic!("{e}\n{u}"))
    }
    /// Runs a schedule with the kernel interpreter; temporaries share memory as planned.
    pub fn run(&self, s: &Schedule) {
        let mut arenas: Vec<Vec<u8>> = s.arenas.iter().map(|a| vec![0xa5; a.1.len_bytes]).collect();
        let place = |b: &UOp| s.temps.iter().find(|t| t.buffer == *b).map(|t| (t.arena, t.offset_bytes));
        let bytes = |b: &UOp| b.buffer_ref().unwrap().len * b.dtype().size_bytes();
        let vars: Vars = s.var_vals.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        for item in &s.items {
            let touched: Vec<UOp> = match item {
                ScheduleItem::Kernel { bufs, .. } => bufs.clone(),
                ScheduleItem::Copy { dst, src, .. } => vec![dst.clone(), src.clone()],
            };
            let mut data: Vec<Vec<u8>> = touched
                .iter()
                .map(|b| match place(b) {
                    Some((a, at)) => arenas[a][at..at + bytes(b)].to_vec(),
                    None => {
                        let id = b.buffer_ref().unwrap().id;
                        self.0.borrow().get(&id).cloned().unwrap_or_else(|| vec![0xa5; bytes(b)])
                    }
                })
                .collect();
            match item {
                ScheduleItem::Kernel { ast, .. } => {
                    verify(Stage::Kernel, ast).unwrap_or_else(|e| panic!("{e}\n{ast}"));
                    run_kernel(ast, &mut data, &vars).unwrap_or_else(|e| panic!("{e}\n{ast}"))
                }
                ScheduleItem::Copy { src, src_offset, len, .. } => {
                    let n = src.dtype().size_bytes();
                    data[0] = data[1][src_offset * n..(src_offset + len) * n].to_vec();
                }
            }
            for (b, d) in touched.iter().zip(data) {
                match place(b) {
                    Some((a, at)) => arenas[a][at..at + d.len()].copy_from_slice(&d),
                    None => drop(self.0.borrow_mut().insert(b.buffer_ref().unwrap().id, d)),
                }
            }
        }
    }
}

/// Schedules and runs `roots` and compares every output with the reference; gives the schedule.
pub fn check(roots: &[UOp]) -> Schedule {
    let m = Memory::default();
    m.fill(roots, 7);
    let want: Vec<Value> = roots.iter().map(|r| m.value(r)).collect();
    let s = plan(roots);
    m.run(&s);
    for (k, (want, o)) in want.iter().zip(&s.outputs).enumerate() {
        let have = m.value(&o.view);
        assert_eq!(have.shape, want.shape, "output {k}");
        for (i, (a, b)) in have.to_f64().iter().zip(want.to_f64()).enumerate() {
            let close = (a - b).abs() <= 1e-4 * b.abs().max(1.0) || a.is_nan() && b.is_nan() || *a == b;
            if !close {
                for i in &s.items {
                    if let ScheduleItem::Kernel { ast, .. } = i {
                        eprintln!("{ast}");
                    }
                }
                panic!("output {k}, element {i}: {a}, reference {b}");
            }
        }
    }
    s
}

/// Kernels of a graph whose values were checked.
pub fn count(roots: &[UOp]) -> usize {
    check(roots).kernel_count()
}
