//! x^y. Integer constants by repeated multiplication, 1/2 by the square root; everything else as 2^(y log2 |x|) with
//! the sign and the special cases of IEEE 754 `pow`. f32 computes the exponent in f64 and is correctly rounded but for
//! rare ties; f64 has its exponent as a sum of two and is within 2 ulp.

use super::super::Target;
use super::exp2::Scale;
use super::float::{Layout, abs, fma, ilit, lit};
use super::{exp2, log2};
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp};

/// Largest integer exponent that is expanded into multiplications.
const MAX_CHAIN: i64 = 32;

/// `scale`: how products with powers of two are made; not `Scale::Normal`.
pub(crate) fn lower(u: &UOp, target: &Target, scale: Scale) -> Option<UOp> {
    let (x, y) = (&u.src()[0], &u.src()[1]);
    if u.dtype().is_int() {
        return Some(integer(x, y));
    }
    let l = Layout::of(u.dtype())?;
    if let Some(c) = y.as_const().map(ConstVal::as_f64) {
        if c == 0.5 {
            // pow(-0, 1/2) is +0 and pow(-inf, 1/2) is +inf.
            let root = UOp::alu(Op::Sqrt, [x + &lit(x, 0.0)]);
            return Some(x.equal(&lit(x, f64::NEG_INFINITY)).select(&lit(x, f64::INFINITY), &root));
        }
        if c.fract() == 0.0 && c.abs() <= 4.0 || c.fract() == 0.0 && c.abs() <= MAX_CHAIN as f64 && !l.double() {
            return Some(whole_power(x, c as i64, l.double() || !target.f64));
        }
    }
    (!target.supports(Op::Pow, u.dtype().scalar)).then(|| general(x, y, scale))
}

/// Chains for f32 multiply in f64, so that the result has the error of one rounding; `as_is`: in x's own type.
fn whole_power(x: &UOp, n: i64, as_is: bool) -> UOp {
    let wide = if as_is || n.abs() <= 2 { x.clone() } else { x.cast(x.dtype().with_scalar(Scalar::F64)) };
    let p = chain(&wide, n.unsigned_abs());
    let p = if n < 0 { lit(&p, 1.0).binary(Op::FDiv, &p) } else { p };
    p.cast(x.dtype())
}

fn chain(x: &UOp, n: u64) -> UOp {
    if n == 0 {
        return UOp::constant(x.dtype(), ConstVal::Int(1));
    }
    let mut r: Option<UOp> = None;
    let (mut square, mut n) = (x.clone(), n);
    loop {
        if n & 1 == 1 {
            r = Some(r.map_or_else(|| square.clone(), |r| &r * &square));
        }
        n >>= 1;
        if n == 0 {
            return r.unwrap_or(square);
        }
        square = &square * &square;
    }
}

fn general(x: &UOp, y: &UOp, scale: Scale) -> UOp {
    let t = x.dtype();
    let double = DType { scalar: Scalar::F64, ..t };
    let (wx, wy) = (x.cast(double), y.cast(double));
    // PANIC: f64 has a layout.
    let Some(d) = Layout::of(double) else { return x.clone() };
    let a = abs(&wx, d);
    let size =
        if t.scalar == Scalar::F64 { size_of_double(&a, &wy, d, scale) } else { size_of_single(&a, &wy, d, scale) };
    // y is an integer; an odd one.
    let big = abs(&wy, d);
    let two53 = lit(&wy, 9_007_199_254_740_992.0);
    let whole = UOp::alu(Op::Trunc, [wy.clone()]).equal(&wy);
    let half = &wy * &lit(&wy, 0.5);
    let odd = whole.and(&UOp::alu(Op::Trunc, [half.clone()]).ne(&half)).and(&big.lt(&two53));
    let negative = wx.bitcast(d.int).lt(&ilit(d.int, 0));
    let signed = negative.and(&odd).select(&-&size, &size);
    // A negative finite base needs an integer exponent.
    let zero = lit(&wx, 0.0);
    let finite_negative = wx.lt(&zero).and(&lit(&wx, f64::NEG_INFINITY).lt(&wx));
    let undefined = finite_negative.and(&whole.not());
    let r = undefined.select(&lit(&wx, f64::NAN), &signed);
    // |x| = 1 with an infinite exponent; x = 1 or y = 0 whatever the other is.
    let one = lit(&wx, 1.0);
    let endless = a.equal(&one).and(&big.equal(&lit(&wx, f64::INFINITY)));
    let trivial = wx.equal(&one).or(&wy.equal(&zero)).or(&endless);
    let r = trivial.select(&one, &r);
    r.cast(t)
}

/// a^y for f32's values, in f64.
fn size_of_single(a: &UOp, y: &UOp, d: Layout, scale: Scale) -> UOp {
    let log = UOp::alu(Op::Log2, [a.clone()]);
    let log = log2::lower(&log, false).unwrap_or(log);
    exp2::exp2(&(y * &log), None, d, scale)
}

/// a^y in f64: an exponent of 1000 needs a logarithm of ten bits more than f64 has.
fn size_of_double(a: &UOp, y: &UOp, d: Layout, scale: Scale) -> UOp {
    let (high, low) = log2::pair(a, d);
    let high = log2::specials(a, &high);
    let exponent = y * &high;
    let tail = fma(y, &low, &fma(y, &high, &-&exponent));
    // Where the result is neither 0 nor infinity; elsewhere the tail may be NaN.
    let zero = lit(a, 0.0);
    let tail = abs(&exponent, d).lt(&lit(a, 2000.0)).select(&tail, &zero);
    exp2::exp2(&exponent, Some(&tail), d, scale)
}

/// Integers wrap; a negative exponent gives the rounded-toward-zero reciprocal: 0, or ±1 for a base of ±1.
fn integer(x: &UOp, y: &UOp) -> UOp {
    let t = x.dtype();
    if let Some(n) = y.as_const().and_then(ConstVal::as_int)
        && n >= 0
    {
        return chain(x, n as u64);
    }
    let one = ilit(t, 1);
    let most = y.vmax().max(1);
    let bits = 128 - most.leading_zeros();
    let (mut r, mut square) = (one.clone(), x.clone());
    for k in 0..bits {
        let bit = &y.binary(Op::Shr, &ilit(t, k.into())) & &one;
        r = bit.ne(&ilit(t, 0)).select(&(&r * &square), &r);
        if k + 1 < bits {
            square = &square * &square;
        }
    }
    if y.vmin() >= 0 {
        return r;
    }
    let odd = (y & &one).ne(&ilit(t, 0));
    let minus_one = x.equal(&ilit(t, -1));
    let inverse = minus_one.select(&odd.select(&ilit(t, -1), &one), &x.equal(&one).select(&one, &ilit(t, 0)));
    y.lt(&ilit(t, 0)).select(&inverse, &r)
}
