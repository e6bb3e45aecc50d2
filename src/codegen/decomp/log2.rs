//! log2 x. x = 2^e * m with m in [sqrt(1/2), sqrt 2), f = m - 1, so that the result near x = 1 is f times something and
//! keeps its relative accuracy. f32: log2(1+f)/f by a polynomial. f64: with s = f/(2+f), log(1+f) = f - (f*f/2 -
//! s*(f*f/2 + R(s*s))), the form of FreeBSD's `e_log.c` with its coefficients (Sun Microsystems, freely usable).

use super::float::{Layout, fma, ilit, lit, polynomial};
use doorbell_uop::{Op, UOp};

/// log2(1+f)/f - 1/ln 2 = f * P(f); relative error 2^-30.5 on [sqrt(1/2)-1, sqrt 2 - 1].
const P32: [f64; 10] = [
    -0.72134751566178309975,
    0.48089788928211341937,
    -0.36067414885647090624,
    0.28857616950983954071,
    -0.24046723014273315787,
    0.20504357538409836709,
    -0.17890838320375483249,
    0.17205594070110319565,
    -0.16906494824863967118,
    0.097037714868418937475,
];
const R64: [f64; 7] = [
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
];
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// 1/5, 1/7 ... of the series of atanh.
const ATANH: [f64; 11] = [
    1.0 / 5.0,
    1.0 / 7.0,
    1.0 / 9.0,
    1.0 / 11.0,
    1.0 / 13.0,
    1.0 / 15.0,
    1.0 / 17.0,
    1.0 / 19.0,
    1.0 / 21.0,
    1.0 / 23.0,
    1.0 / 25.0,
];
/// 1/3 in two parts.
const THIRD: (f64, f64) = (1.0 / 3.0, 1.850371707708594e-17);
/// 2 / ln 2 in two parts.
const TWO_LOG2_E: (f64, f64) = (2.0 * LOG2_E, 4.0710547481862066e-17);

pub(crate) fn lower(u: &UOp, fast: bool) -> Option<UOp> {
    let l = Layout::of(u.dtype())?;
    let x = &u.src()[0];
    let (e, f) = split(x, l, fast);
    let r = if l.double() { log2_f64(&e, &f) } else { log2_f32(&e, &f) };
    Some(if fast { r } else { specials(x, &r) })
}

/// Above zero and finite: `r`. Infinity and NaN are their own logarithms, zero has -infinity, below is NaN.
pub(crate) fn specials(x: &UOp, r: &UOp) -> UOp {
    let zero = lit(x, 0.0);
    let finite = x.lt(&lit(x, f64::INFINITY)).select(r, x);
    let rest = x.equal(&zero).select(&lit(x, f64::NEG_INFINITY), &lit(x, f64::NAN));
    zero.lt(x).select(&finite, &rest)
}

/// (exponent as a float, m - 1) of a positive number.
pub(crate) fn split(x: &UOp, l: Layout, fast: bool) -> (UOp, UOp) {
    let m = l.mantissa as i128;
    // Denormals are scaled up first.
    let smallest = if l.double() { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE as f64 };
    let scale = if l.double() { 54 } else { 25 };
    let tiny = x.lt(&lit(x, smallest));
    let scaled = if fast { x.clone() } else { tiny.select(&(x * &lit(x, (1u64 << scale) as f64)), x) };
    let bits = scaled.bitcast(l.uint);
    // Exponent field of x / sqrt(1/2): carries into the next octave at sqrt 2.
    let root = if l.double() { 0.5f64.sqrt().to_bits() as i128 } else { 0.5f32.sqrt().to_bits() as i128 };
    let shifted = &bits + &ilit(l.uint, ((l.bias as i128) << m) - root);
    let e = shifted.binary(Op::Shr, &ilit(l.uint, m));
    let mantissa_bits = &bits - &(&e - &ilit(l.uint, l.bias as i128)).binary(Op::Shl, &ilit(l.uint, m));
    let f = &mantissa_bits.bitcast(l.float) - &lit(x, 1.0);
    let e = if l.double() {
        // A small integer to f64 by its bits: there is no vector conversion of 64-bit integers before AVX-512.
        let two52 = ilit(l.uint, 0x4330_0000_0000_0000);
        &(&e | &two52).bitcast(l.float) - &lit(x, 4_503_599_627_370_496.0 + l.bias as f64)
    } else {
        (&e.bitcast(l.int) - &ilit(l.int, l.bias as i128)).cast(l.float)
    };
    let e = if fast { e } else { &e - &tiny.select(&lit(x, scale as f64), &lit(x, 0.0)) };
    (e, f)
}

/// log2 of a positive finite f64 as a sum of two, the second below half a unit of the first: relative error below
/// 2^-64. With s = f/(2+f): log2(1+f) = 2/ln 2 * s * (1 + s^2/3 + s^4/5 + ...), all but the last terms in pairs.
pub(crate) fn pair(x: &UOp, l: Layout) -> (UOp, UOp) {
    let (e, f) = split(x, l, false);
    let k = |v: f64| lit(&f, v);
    let t = &f + &k(2.0);
    let t_low = &f - &(&t - &k(2.0));
    let s = f.binary(Op::FDiv, &t);
    let left = fma(&-&s, &t, &f);
    let s = (s.clone(), (&left - &(&s * &t_low)).binary(Op::FDiv, &t));
    let square = product(&s, &s);
    let third = product(&square, &(k(THIRD.0), k(THIRD.1)));
    let rest = &(&square.0 * &square.0) * &polynomial(&square.0, &ATANH);
    let series = sum(&k(1.0), &sum_pair(&third, &rest));
    let log = product(&product(&s, &series), &(k(TWO_LOG2_E.0), k(TWO_LOG2_E.1)));
    sum(&e, &log)
}

/// The product of two pairs.
fn product(a: &(UOp, UOp), b: &(UOp, UOp)) -> (UOp, UOp) {
    let p = &a.0 * &b.0;
    let error = fma(&a.0, &b.0, &-&p);
    (p, fma(&a.0, &b.1, &fma(&a.1, &b.0, &error)))
}

/// a + b as a pair, where a is zero or has the larger exponent.
fn sum(a: &UOp, b: &(UOp, UOp)) -> (UOp, UOp) {
    let s = a + &b.0;
    let error = &b.0 - &(&s - a);
    (s, &error + &b.1)
}

/// a + b as a pair, where a has the larger exponent.
fn sum_pair(a: &(UOp, UOp), b: &UOp) -> (UOp, UOp) {
    let s = &a.0 + b;
    let error = b - &(&s - &a.0);
    (s, &error + &a.1)
}

fn log2_f32(e: &UOp, f: &UOp) -> UOp {
    // log2(1+f) = f*hi + (f*lo + f*f*P(f)): hi has few bits, so f*hi carries almost no error.
    let hi = (LOG2_E as f32).to_bits() & 0xffff_f000;
    let hi = f32::from_bits(hi) as f64;
    let lo = LOG2_E - hi;
    let p = polynomial(f, &P32);
    let tail = &fma(&p, f, &lit(f, lo)) * f;
    &fma(f, &lit(f, hi), e) + &tail
}

fn log2_f64(e: &UOp, f: &UOp) -> UOp {
    let s = f.binary(Op::FDiv, &(f + &lit(f, 2.0)));
    let z = &s * &s;
    let r = &polynomial(&z, &R64) * &z;
    let half_square = &(f * f) * &lit(f, 0.5);
    let tail = &half_square - &(&s * &(&half_square + &r));
    // (f - tail) * log2(e) + exponent, with the constant in two parts.
    let hi = f64::from_bits(LOG2_E.to_bits() & !0xffff_ffff);
    let lo = LOG2_E - hi;
    let log = f - &tail;
    let small = &(&log * &lit(f, lo)) + &(&(&(f - &log) - &tail) * &lit(f, LOG2_E));
    let main = fma(&log, &lit(f, hi), &small);
    e + &main
}
