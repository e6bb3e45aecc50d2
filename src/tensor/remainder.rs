//! The remainder of a division of floats, exact: long division in f64, 48 binary digits of the quotient at a time.
//!
//! From the highest digits down, `q = trunc(r / (b * 2^k))` is taken from the rest `r` by a fused multiply-add. The
//! rest is a multiple of the last place of `r` or of `b`, whichever is less, and no larger than `b * 2^k`: an f64 holds
//! it exactly. A quotient that was rounded to the next integer leaves a rest just outside, which is put back. Source:
//! the textbook's long division.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::value::{Expr, Value};
use crate::uop::{Op, Scalar};

/// Binary digits of the quotient a step: few enough that a division which is off by some last places is off by one at
/// most.
const DIGITS: i32 = 48;

/// Steps that divide every finite value of a type by every other: exponents from the smallest denormal to the largest
/// value. For f64 it would be 44; 4 leave quotients beyond 2^192 to chance.
fn steps(t: Scalar) -> i32 {
    let exponents: i32 = match t {
        t if t.is_fp8() || t == Scalar::F16 => 41,
        Scalar::BF16 => 262,
        Scalar::F64 => 4 * DIGITS,
        _ => 278,
    };
    (exponents + DIGITS - 1) / DIGITS
}

/// `a` less the nearest multiple of `b` towards zero.
pub(super) fn remainder(a: &Expr, b: &Expr) -> Result<Expr, Problem> {
    let t = graph::promoted(&[a.uop(), b.uop()]);
    let wide = |x: &Expr| x.cast(t).cast(Scalar::F64);
    let (a, b) = (wide(a), wide(b));
    // Not by `abs`, which has no slope at 0.
    let size = |x: &Expr| x.lt(0).where_(&x.neg(), x);
    let (mut rest, divisor) = (size(&a), size(&b));
    for step in (0..steps(t)).rev() {
        rest = reduced(&rest, &divisor.mul(2f64.powi(step * DIGITS)))?;
    }
    Ok(a.lt(0).where_(&rest.neg(), &rest).cast(if t.is_weak() { super::convert::strong(t) } else { t }))
}

/// `rest` less the largest multiple of `m` in it, where that is less than 2^48 times.
fn reduced(rest: &Expr, m: &Expr) -> Result<Expr, Problem> {
    let q = rest.div(m).trunc().detach();
    let less = graph::alu(Op::MulAcc, &[q.neg().uop().clone(), m.uop().clone(), rest.uop().clone()])?;
    // Nothing to subtract, also from below an infinite `m`, of which 0 times is NaN.
    let r = q.eq(0).where_(rest, &Expr::from(less));
    let r = r.lt(0).where_(&r.add(m), &r);
    let r = r.ge(m).where_(&r.sub(m), &r);
    r.node().map_err(|fault| fault.problem.clone())?;
    Ok(r)
}
