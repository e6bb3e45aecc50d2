//! Kernel graphs that the codegen tests compile.

use doorbell::codegen::Target;
use doorbell::uop::{AxisKind, DType, Op, UOp};

pub fn avx512() -> Target {
    Target {
        name: "x86_64-avx512",
        vector_bytes: 64,
        vector_regs: 32,
        threads: 1,
        index64: true,
        local_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        ..Target::null()
    }
}
pub fn avx2() -> Target {
    Target { name: "x86_64-avx2", vector_bytes: 32, vector_regs: 16, ..avx512() }
}

pub fn out(n: impl Into<UOp>, id: u32) -> UOp {
    UOp::range(n, id, AxisKind::Loop)
}
pub fn red(n: impl Into<UOp>, id: u32) -> UOp {
    UOp::range(n, id, AxisKind::Reduce)
}
pub fn f32p(slot: u32, len: i64) -> UOp {
    UOp::param(slot, DType::F32, len as usize)
}

pub fn add(n: i64) -> UOp {
    let r = out(n, 0);
    let v = &f32p(1, n).index(&r).load() + &f32p(2, n).index(&r).load();
    UOp::sink([f32p(0, n).index(&r).store(&v, &[r])])
}

/// Rows and columns of three buffers, one read transposed, one a row.
pub fn add_2d(m: i64, n: i64) -> UOp {
    let (i, j) = (out(m, 0), out(n, 1));
    let at = &(&i * n) + &j;
    let v = &(&f32p(1, m * n).index(&at).load() * &f32p(2, m * n).index(&(&(&j * m) + &i)).load())
        + &f32p(3, n).index(&j).load();
    UOp::sink([f32p(0, m * n).index(&at).store(&v, &[i, j])])
}

pub fn matmul(m: i64, n: i64, k: i64) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(k, 2));
    let a = f32p(1, m * k).index(&(&(&i * k) + &l)).load();
    let b = f32p(2, k * n).index(&(&(&l * n) + &j)).load();
    let s = (&a * &b).reduce(Op::Add, &[l]);
    UOp::sink([f32p(0, m * n).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

/// A product of half types, summed in f32, rounded, with a bias of each column and a gain of each row.
#[allow(dead_code, reason = "only targets with matrix units are tested with it")]
pub fn half_matmul(t: DType, (m, n, k): (i64, i64, i64)) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(k, 2));
    let a = UOp::param(1, t, (m * k) as usize).index(&(&(&i * k) + &l)).load().cast(DType::F32);
    let b = UOp::param(2, t, (k * n) as usize).index(&(&(&l * n) + &j)).load().cast(DType::F32);
    let s = (&a * &b).reduce(Op::Add, &[l]);
    let v = &(&s * &f32p(4, m).index(&i).load()) + &f32p(3, n).index(&j).load();
    UOp::sink([f32p(0, m * n).index(&(&(&i * n) + &j)).store(&v, &[i, j])])
}

/// A product of bytes, summed in another integer type.
#[allow(dead_code, reason = "only targets with matrix units are tested with it")]
pub fn byte_matmul(t: DType, (m, n, k): (i64, i64, i64), sum: DType) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(k, 2));
    let a = UOp::param(1, t, (m * k) as usize).index(&(&(&i * k) + &l)).load().cast(sum);
    let b = UOp::param(2, t, (k * n) as usize).index(&(&(&l * n) + &j)).load().cast(sum);
    let s = (&a * &b).reduce(Op::Add, &[l]);
    let bias = UOp::param(3, sum, n as usize).index(&j).load();
    UOp::sink([UOp::param(0, sum, (m * n) as usize).index(&(&(&i * n) + &j)).store(&(&s + &bias), &[i, j])])
}

/// A square product of bytes whose products are bytes, summed in I32.
#[allow(dead_code, reason = "only targets with matrix units are tested with it")]
pub fn wrapped_products(n: i64) -> UOp {
    let (i, j, l) = (out(n, 0), out(n, 1), red(n, 2));
    let load = |slot, at: UOp| UOp::param(slot, DType::I8, (n * n) as usize).index(&at).load();
    let product = &load(1, &(&i * n) + &l) * &load(2, &(&l * n) + &j);
    let s = product.cast(DType::I32).reduce(Op::Add, &[l]);
    UOp::sink([UOp::param(0, DType::I32, (n * n) as usize).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

pub fn row_sum(m: i64, n: i64) -> UOp {
    let (i, l) = (out(m, 0), red(n, 1));
    let s = f32p(1, m * n).index(&(&(&i * n) + &l)).load().reduce(Op::Add, &[l]);
    UOp::sink([f32p(0, m).index(&i).store(&s, &[i])])
}

/// Sum over all of a flipped, shifted, padded matrix.
pub fn gated_sum(m: i64, n: i64) -> UOp {
    let (i, l) = (red(m, 0), red(n, 1));
    let gate = l.lt(&UOp::int(n - 2)).and(&UOp::int(1).lt(&i));
    let at = &(&(&UOp::int(m - 1) - &i) * n) + &(&UOp::int(n - 3) - &l);
    let x = f32p(1, m * n).index_gated(&at, &gate).load_or(&UOp::constant(DType::F32, 0.5));
    UOp::sink([f32p(0, 1).index(&UOp::int(0)).store(&x.reduce(Op::Add, &[i, l]), &[])])
}

pub fn softmax(m: i64, n: i64) -> UOp {
    let (i, j, l) = (out(m, 0), out(n, 1), red(n, 2));
    let x = |c: &UOp| f32p(1, m * n).index(&(&(&i * n) + c)).load();
    let max = x(&l).reduce(Op::Max, std::slice::from_ref(&l));
    let e = |c: &UOp| {
        let d = x(c).binary(Op::Sub, &max);
        &d * &d
    };
    let sum = (&e(&l) + &UOp::constant(DType::F32, 1.0)).reduce(Op::Add, std::slice::from_ref(&l));
    let v = e(&j).binary(Op::FDiv, &sum);
    UOp::sink([f32p(0, m * n).index(&(&(&i * n) + &j)).store(&v, &[i, j])])
}

/// Two outputs, one of them also read (an optimiser's step).
pub fn step(n: i64) -> UOp {
    let r = out(n, 0);
    let m = &(&f32p(1, n).index(&r).load() * &UOp::constant(DType::F32, 0.5)) + &f32p(2, n).index(&r).load();
    let w = f32p(0, n).index(&r).load().binary(Op::Sub, &m);
    UOp::sink([f32p(0, n).index(&r).store(&w, std::slice::from_ref(&r)), f32p(1, n).index(&r).store(&m, &[r])])
}

/// 3x3 convolution over a padded image: gates, div and mod.
pub fn conv(c: i64, h: i64, w: i64) -> UOp {
    let (o, p) = (out(4, 0), out(h * w, 1));
    let (ci, ky, kx) = (red(c, 2), red(3, 3), red(3, 4));
    let (y, x) = (&(&p / w) + &(&ky - &UOp::int(1)), &(&p % w) + &(&kx - &UOp::int(1)));
    let inside = |v: &UOp, n: i64| v.lt(&UOp::int(n)).and(&UOp::int(-1).lt(v));
    let at = &(&(&(&ci * h) + &y) * w) + &x;
    let img = f32p(1, c * h * w)
        .index_gated(&at, &inside(&y, h).and(&inside(&x, w)))
        .load_or(&UOp::constant(DType::F32, 0.0));
    let k = f32p(2, 4 * c * 9).index(&(&(&(&(&(&o * c) + &ci) * 3 + ky.clone()) * 3) + &kx)).load();
    let s = (&img * &k).reduce(Op::Add, &[ci, ky, kx]);
    let relu = s.max(&s.const_like(0));
    UOp::sink([f32p(0, 4 * h * w).index(&(&(&o * (h * w)) + &p)).store(&relu, &[o, p])])
}

/// The gradient of a row that was convolved: for each channel and place, the sum over places of the window and output
/// channels of products that count only where the shifted place is one of the output's.
pub fn conv_gradient(channels: i64, len: i64, taps: i64, out_channels: i64) -> UOp {
    let m = len - taps + 1;
    let (c, x) = (out(channels, 0), out(len, 1));
    let (t, o) = (red(taps, 2), red(out_channels, 3));
    let at = &x - &t;
    let inside = UOp::int(-1).lt(&at).and(&at.lt(&UOp::int(m)));
    let zero = UOp::constant(DType::F32, 0.0);
    let g = f32p(1, out_channels * m).index_gated(&(&(&o * m) + &at), &inside).load_or(&zero);
    let w = f32p(2, out_channels * channels * taps).index(&(&(&(&(&o * channels) + &c) * taps) + &t)).load();
    let s = inside.select(&(&g * &w), &zero).reduce(Op::Add, &[t, o]);
    UOp::sink([f32p(0, channels * len).index(&(&(&c * len) + &x)).store(&s, &[c, x])])
}

/// Counts, mixed types, indices as values, a gather.
pub fn mixed(n: i64) -> UOp {
    let r = out(n, 0);
    let k = UOp::param(1, DType::U8, n as usize).index(&r).load();
    let g = f32p(2, 16).index(&k.cast(DType::INDEX)).load();
    let v = &g.cast(DType::F64) + &(&r * 3).cast(DType::F64);
    let big = k.cast(DType::I32).lt(&UOp::constant(DType::I32, 5));
    UOp::sink([
        UOp::param(0, DType::F64, n as usize).index(&r).store(&v, std::slice::from_ref(&r)),
        UOp::param(3, DType::BOOL, n as usize).index(&r).store(&big, &[r]),
    ])
}

/// Sum and mean over a variable number of elements.
pub fn symbolic_sum() -> UOp {
    let n = UOp::var("n", 1, 40);
    let (i, l) = (out(3, 0), red(n.clone(), 1));
    let s = f32p(1, 120).index(&(&(&i * 40) + &l)).load().reduce(Op::Add, &[l]);
    let v = s.binary(Op::FDiv, &n.cast(DType::F32));
    UOp::sink([f32p(0, 3).index(&i).store(&v, &[i])])
}

pub fn symbolic_add() -> UOp {
    let n = UOp::var("n", 1, 40);
    let r = out(n, 0);
    let v = &f32p(1, 40).index(&r).load() + &r.cast(DType::F32);
    UOp::sink([f32p(0, 40).index(&r).store(&v, &[r])])
}

/// A reduction inside a reduction, and the same range reduced twice.
pub fn nested(m: i64, n: i64, k: i64) -> UOp {
    let (i, j, l) = (out(m, 0), red(n, 1), red(k, 2));
    let inner =
        f32p(1, m * n * k).index(&(&(&(&(&i * n) + &j) * k) + &l)).load().reduce(Op::Max, std::slice::from_ref(&l));
    let other = f32p(2, k).index(&l).load().reduce(Op::Add, &[l]);
    let s = (&inner + &other).reduce(Op::Add, &[j]);
    UOp::sink([f32p(0, m).index(&i).store(&s, &[i])])
}

pub fn kernels() -> Vec<(&'static str, UOp)> {
    vec![
        ("add", add(37)),
        ("add of one", add(1)),
        ("add_2d", add_2d(5, 19)),
        ("matmul", matmul(7, 20, 5)),
        ("matmul even", matmul(8, 16, 4)),
        ("row_sum", row_sum(3, 35)),
        ("gated_sum", gated_sum(4, 9)),
        ("softmax", softmax(3, 18)),
        ("step", step(21)),
        ("conv", conv(2, 5, 6)),
        ("conv even", conv(1, 4, 8)),
        ("conv_gradient", conv_gradient(3, 9, 3, 5)),
        ("mixed", mixed(19)),
        ("symbolic_sum", symbolic_sum()),
        ("symbolic_add", symbolic_add()),
        ("nested", nested(3, 4, 5)),
    ]
}
