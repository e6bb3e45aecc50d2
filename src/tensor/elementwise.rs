//! Elementwise arithmetic, comparison, bits and casts: each output element depends on the same element of each source.
//!
//! Sources broadcast and are promoted (`uop::dtype`); numbers take the dtype of the other operand, if it can hold their
//! value. Division of integers gives floats except in methods named otherwise; `modulo` has the divisor's sign, as in
//! Python.

use super::convert::strong;
use super::error::{Fault, Problem};
use super::graph;
use super::value::{Expr, Operand, Value, build, lift};
use crate::uop::{DType, Op, Scalar, UOp};

#[track_caller]
fn binary<V: Value>(name: &'static str, op: Op, a: &V, b: Result<UOp, Fault>) -> V {
    build(name, [a.node(), b], |src| graph::alu(op, src))
}

/// Elementwise function of floats; integers and bool become the default float.
#[track_caller]
fn float_unary<V: Value>(name: &'static str, op: Op, a: &V) -> V {
    build(name, [a.node()], |[a]| graph::alu(op, &[to_float(a)]))
}

pub(crate) fn to_float(u: &UOp) -> UOp {
    let t = u.dtype().scalar;
    if t.is_float() { u.clone() } else { graph::cast(u, strong(Scalar::promote(t, Scalar::WeakFloat))) }
}

/// Arithmetic on equal elements.
pub trait Elementwise: Value {
    /// Sum. As in all ops of two values, shapes broadcast and dtypes promote; integers wrap.
    #[track_caller]
    fn add(&self, o: impl Operand<Self>) -> Self {
        binary("add", Op::Add, self, o.operand())
    }
    /// Difference.
    #[track_caller]
    fn sub(&self, o: impl Operand<Self>) -> Self {
        binary("sub", Op::Sub, self, o.operand())
    }
    /// Product, element by element.
    #[track_caller]
    fn mul(&self, o: impl Operand<Self>) -> Self {
        binary("mul", Op::Mul, self, o.operand())
    }
    /// Quotient as a float.
    #[track_caller]
    fn div(&self, o: impl Operand<Self>) -> Self {
        build("div", [self.node(), o.operand()], |[a, b]| {
            let t = Scalar::promote(graph::promoted(&[a, b]), Scalar::WeakFloat);
            let t = if a.dtype().scalar.is_weak() && b.dtype().scalar.is_weak() { t } else { strong(t) };
            graph::alu(Op::FDiv, &[graph::cast(a, t), graph::cast(b, t)])
        })
    }
    /// Quotient rounded down, in the sources' type.
    #[track_caller]
    fn div_floor(&self, o: impl Operand<Self>) -> Self {
        lift("div_floor", [self.node(), o.operand()], |[a, b]| {
            Ok(if graph::promoted(&[a.uop(), b.uop()]).is_int() {
                Expr::of(Ok(graph::alu(Op::FloorDiv, &[a.uop().clone(), b.uop().clone()])?))
            } else {
                a.div(&b).floor()
            })
        })
    }
    /// Quotient rounded toward zero, in the sources' type.
    #[track_caller]
    fn div_trunc(&self, o: impl Operand<Self>) -> Self {
        lift("div_trunc", [self.node(), o.operand()], |[a, b]| {
            Ok(if graph::promoted(&[a.uop(), b.uop()]).is_int() {
                Expr::of(Ok(graph::alu(Op::CDiv, &[a.uop().clone(), b.uop().clone()])?))
            } else {
                a.div(&b).trunc()
            })
        })
    }
    /// Remainder with the sign of the divisor.
    #[track_caller]
    fn modulo(&self, o: impl Operand<Self>) -> Self {
        lift("modulo", [self.node(), o.operand()], |[a, b]| {
            Ok(if graph::promoted(&[a.uop(), b.uop()]).is_int() {
                Expr::of(Ok(graph::alu(Op::FloorMod, &[a.uop().clone(), b.uop().clone()])?))
            } else {
                let r = a.fmod(&b);
                r.ne(0).bitand(&r.lt(0).bitxor(&b.lt(0))).where_(&r.add(&b), &r)
            })
        })
    }
    /// Remainder with the sign of the dividend: exact for every float of at most 32 bits, and in f64 while the quotient
    /// is below 2^192. Floats of at most 32 bits are computed in f64.
    #[track_caller]
    fn fmod(&self, o: impl Operand<Self>) -> Self {
        lift("fmod", [self.node(), o.operand()], |[a, b]| {
            Ok(if graph::promoted(&[a.uop(), b.uop()]).is_int() {
                Expr::of(Ok(graph::alu(Op::CMod, &[a.uop().clone(), b.uop().clone()])?))
            } else {
                super::remainder::remainder(&a, &b)?
            })
        })
    }
    /// `self` to the power `o`, in the sources' type; a negative power of integers rounds toward zero.
    #[track_caller]
    fn pow(&self, o: impl Operand<Self>) -> Self {
        lift("pow", [self.node(), o.operand()], |[a, b]| power(&a, &b))
    }
    /// The larger one; NaN where one is NaN.
    #[track_caller]
    fn maximum(&self, o: impl Operand<Self>) -> Self {
        binary("maximum", Op::Max, self, o.operand())
    }
    /// The smaller one; NaN where one is NaN.
    #[track_caller]
    fn minimum(&self, o: impl Operand<Self>) -> Self {
        lift("minimum", [self.node(), o.operand()], |[a, b]| {
            let t = graph::promoted(&[a.uop(), b.uop()]);
            let of = |x: &Expr| graph::taken(x.uop(), t).map(|u| Expr::from(u).inverse());
            Ok(of(&a)?.maximum(&of(&b)?).inverse())
        })
    }
    /// The order-reversing involution of the dtype: `-x` for floats, `!x` for integers and bool.
    #[track_caller]
    fn inverse(&self) -> Self {
        lift("inverse", [self.node()], |[a]| Ok(if a.scalar().is_float() { a.neg() } else { a.bitnot() }))
    }
    /// The negative; integers wrap.
    #[track_caller]
    fn neg(&self) -> Self {
        build("neg", [self.node()], |[a]| {
            if a.dtype().is_bool() {
                return Err(Problem::dtype("a bool has no negative (see logical_not)"));
            }
            graph::alu(Op::Neg, std::slice::from_ref(a))
        })
    }

    /// Bitwise and of integers or Bools.
    #[track_caller]
    fn bitand(&self, o: impl Operand<Self>) -> Self {
        binary("bitand", Op::And, self, o.operand())
    }
    /// Bitwise or of integers or Bools.
    #[track_caller]
    fn bitor(&self, o: impl Operand<Self>) -> Self {
        binary("bitor", Op::Or, self, o.operand())
    }
    /// Bitwise exclusive or of integers or Bools.
    #[track_caller]
    fn bitxor(&self, o: impl Operand<Self>) -> Self {
        binary("bitxor", Op::Xor, self, o.operand())
    }
    /// All bits inverted; logical not of a bool.
    #[track_caller]
    fn bitnot(&self) -> Self {
        build("bitnot", [self.node()], |[a]| {
            let ones = if a.dtype().is_bool() { UOp::bool(true) } else { UOp::constant(a.dtype(), -1i64) };
            graph::alu(if a.dtype().is_bool() { Op::CmpNe } else { Op::Xor }, &[a.clone(), ones])
        })
    }
    /// Integers shifted to the left, zeros from the right.
    #[track_caller]
    fn shl(&self, o: impl Operand<Self>) -> Self {
        binary("shl", Op::Shl, self, o.operand())
    }
    /// Arithmetic for signed types, logical for unsigned ones.
    #[track_caller]
    fn shr(&self, o: impl Operand<Self>) -> Self {
        binary("shr", Op::Shr, self, o.operand())
    }
    /// Bool: whether it is zero.
    #[track_caller]
    fn logical_not(&self) -> Self {
        lift("logical_not", [self.node()], |[a]| Ok(a.cast(Scalar::Bool).bitnot()))
    }
    /// Bool: whether both are not zero.
    #[track_caller]
    fn logical_and(&self, o: impl Operand<Self>) -> Self {
        lift("logical_and", [self.node(), o.operand()], |[a, b]| Ok(a.cast(Scalar::Bool).bitand(&b.cast(Scalar::Bool))))
    }
    /// Bool: whether exactly one is not zero.
    #[track_caller]
    fn logical_xor(&self, o: impl Operand<Self>) -> Self {
        lift("logical_xor", [self.node(), o.operand()], |[a, b]| Ok(a.cast(Scalar::Bool).ne(&b.cast(Scalar::Bool))))
    }
    /// Bool: whether one is not zero.
    #[track_caller]
    fn logical_or(&self, o: impl Operand<Self>) -> Self {
        lift("logical_or", [self.node(), o.operand()], |[a, b]| Ok(a.cast(Scalar::Bool).bitor(&b.cast(Scalar::Bool))))
    }

    /// Bool: equal. NaN equals nothing.
    #[track_caller]
    fn eq(&self, o: impl Operand<Self>) -> Self {
        binary("eq", Op::CmpEq, self, o.operand())
    }
    /// Bool: not equal.
    #[track_caller]
    fn ne(&self, o: impl Operand<Self>) -> Self {
        binary("ne", Op::CmpNe, self, o.operand())
    }
    /// Bool: less.
    #[track_caller]
    fn lt(&self, o: impl Operand<Self>) -> Self {
        binary("lt", Op::CmpLt, self, o.operand())
    }
    /// Bool: greater.
    #[track_caller]
    fn gt(&self, o: impl Operand<Self>) -> Self {
        build("gt", [self.node(), o.operand()], |[a, b]| graph::alu(Op::CmpLt, &[b.clone(), a.clone()]))
    }
    /// False where a side is NaN.
    #[track_caller]
    fn le(&self, o: impl Operand<Self>) -> Self {
        lift("le", [self.node(), o.operand()], |[a, b]| Ok(at_most(&a, &b)))
    }
    /// False where a side is NaN.
    #[track_caller]
    fn ge(&self, o: impl Operand<Self>) -> Self {
        lift("ge", [self.node(), o.operand()], |[a, b]| Ok(at_most(&b, &a)))
    }

    /// `if self { a } else { b }`, `self` being bool.
    #[track_caller]
    fn where_(&self, a: impl Operand<Self>, b: impl Operand<Self>) -> Self {
        build("where", [self.node(), a.operand(), b.operand()], |[c, a, b]| {
            // Two numbers without a type of their own have the default one.
            let t = strong(graph::promoted(&[a, b]));
            graph::alu(Op::Where, &[c.clone(), graph::taken(a, t)?, graph::taken(b, t)?])
        })
    }
    /// `value` where `mask` is true, else `self`.
    #[track_caller]
    fn masked_fill(&self, mask: &Self, value: impl Operand<Self>) -> Self {
        build("masked_fill", [mask.node(), value.operand(), self.node()], |src| graph::alu(Op::Where, src))
    }
    /// Clamped to `low..=high`.
    #[track_caller]
    fn clamp(&self, low: impl Operand<Self>, high: impl Operand<Self>) -> Self {
        self.maximum(low).minimum(high)
    }
    /// At least `low`: [`Elementwise::clamp`] with one bound. `x.clamp(min=low)` in PyTorch and tinygrad.
    #[track_caller]
    fn clamp_min(&self, low: impl Operand<Self>) -> Self {
        lift("clamp_min", [self.node(), low.operand()], |[a, low]| Ok(a.maximum(&low)))
    }
    /// At most `high`: [`Elementwise::clamp`] with one bound. `x.clamp(max=high)` in PyTorch and tinygrad.
    #[track_caller]
    fn clamp_max(&self, high: impl Operand<Self>) -> Self {
        lift("clamp_max", [self.node(), high.operand()], |[a, high]| Ok(a.minimum(&high)))
    }
    /// `self + (end - self) * weight`
    #[track_caller]
    fn lerp(&self, end: &Self, weight: impl Operand<Self>) -> Self {
        self.add(&end.sub(self).mul(weight))
    }

    /// Converted to `dtype`; floats become integers by truncation.
    #[track_caller]
    fn cast(&self, dtype: Scalar) -> Self {
        build("cast", [self.node()], |[a]| {
            if dtype == Scalar::Void {
                return Err(Problem::dtype("nothing converts to void"));
            }
            Ok(graph::cast(a, dtype))
        })
    }
    /// The same bits as another type. Between sizes the last axis changes: (.., 4) of u8 are (.., 1) of f32, and
    /// (.., 2) of f64 are (.., 8) of u16, low bits first. `x.view(dtype)` in PyTorch.
    #[track_caller]
    fn bitcast(&self, dtype: Scalar) -> Self {
        lift("bitcast", [self.node()], |[a]| super::convert::bitcast(&a, dtype))
    }

    /// Rounded toward zero.
    #[track_caller]
    fn trunc(&self) -> Self {
        build("trunc", [self.node()], |[a]| {
            if a.dtype().is_float() { graph::alu(Op::Trunc, std::slice::from_ref(a)) } else { Ok(a.clone()) }
        })
    }
    /// Rounded down.
    #[track_caller]
    fn floor(&self) -> Self {
        lift("floor", [self.node()], |[a]| {
            let t = a.trunc();
            Ok(if a.scalar().is_float() { a.lt(&t).where_(&t.sub(1), &t) } else { a })
        })
    }
    /// Rounded up.
    #[track_caller]
    fn ceil(&self) -> Self {
        lift("ceil", [self.node()], |[a]| {
            let t = a.trunc();
            Ok(if a.scalar().is_float() { t.lt(&a).where_(&t.add(1), &t) } else { a })
        })
    }
    /// Rounded to the nearest integer, halves to the even one.
    #[track_caller]
    fn round(&self) -> Self {
        lift("round", [self.node()], |[a]| {
            if !a.scalar().is_float() {
                return Ok(a);
            }
            let t = a.trunc();
            let rest = a.sub(&t);
            let size = rest.lt(0).where_(&rest.neg(), &rest);
            let half = t.mul(0.5);
            let away = size.gt(0.5).bitor(&size.eq(0.5).bitand(&half.ne(&half.trunc())));
            Ok(away.where_(&t.add(&rest.sign()), &t))
        })
    }
    /// -1, 0 or 1; NaN stays.
    #[track_caller]
    fn sign(&self) -> Self {
        lift("sign", [self.node()], |[a]| {
            if a.scalar().is_unsigned() || a.scalar() == Scalar::Bool {
                return Ok(a.ne(0).cast(a.scalar()));
            }
            let one = |v: i64| UOp::constant(DType::of(a.scalar()), v);
            let (pos, neg, zero) = (Expr::from(one(1)), Expr::from(one(-1)), Expr::from(one(0)));
            let s = a.lt(0).where_(&neg, &a.gt(0).where_(&pos, &zero));
            // A NaN is neither side of zero: adding it back keeps it, adding 0 * x would make infinities NaN.
            Ok(if a.scalar().is_float() { a.ne(&a).where_(&a, &s) } else { s })
        })
    }
    /// Without its sign; the least integer of a type stays as it is.
    #[track_caller]
    fn abs(&self) -> Self {
        lift("abs", [self.node()], |[a]| {
            let unsigned = a.scalar().is_unsigned() || a.scalar() == Scalar::Bool;
            let size = a.mul(&a.sign());
            // Adding 0.0 makes the zero of -0.0 positive and changes nothing else.
            Ok(match (unsigned, a.scalar().is_float()) {
                (true, _) => a,
                (_, true) => size.add(0.0),
                _ => size,
            })
        })
    }
    /// `x * x`
    #[track_caller]
    fn square(&self) -> Self {
        self.mul(self)
    }
    /// `1 / x` as a float.
    #[track_caller]
    fn recip(&self) -> Self {
        float_unary("recip", Op::Recip, self)
    }
    /// Square root as a float; NaN below zero.
    #[track_caller]
    fn sqrt(&self) -> Self {
        float_unary("sqrt", Op::Sqrt, self)
    }
    /// `1 / sqrt(x)` as a float.
    #[track_caller]
    fn rsqrt(&self) -> Self {
        self.sqrt().recip()
    }
    /// 2 to the power of x, as a float.
    #[track_caller]
    fn exp2(&self) -> Self {
        float_unary("exp2", Op::Exp2, self)
    }
    /// Logarithm to the base 2, as a float.
    #[track_caller]
    fn log2(&self) -> Self {
        float_unary("log2", Op::Log2, self)
    }
    /// Sine of x in radians, as a float.
    #[track_caller]
    fn sin(&self) -> Self {
        float_unary("sin", Op::Sin, self)
    }
    /// Bool: NaN.
    #[track_caller]
    fn is_nan(&self) -> Self {
        self.ne(self)
    }
    /// Bool: infinity of either sign.
    #[track_caller]
    fn is_inf(&self) -> Self {
        lift("is_inf", [self.node()], |[a]| {
            let a = Expr::from(to_float(a.uop()));
            Ok(a.eq(f64::INFINITY).bitor(&a.eq(f64::NEG_INFINITY)))
        })
    }
    /// Bool: neither infinity nor NaN.
    #[track_caller]
    fn is_finite(&self) -> Self {
        lift("is_finite", [self.node()], |[a]| Ok(a.is_nan().bitor(&a.is_inf()).bitnot()))
    }
    /// Whether an element is plus infinity: `isinf(detect_negative=False)` in tinygrad.
    #[track_caller]
    fn is_pos_inf(&self) -> Self {
        lift("is_pos_inf", [self.node()], |[a]| Ok(Expr::from(to_float(a.uop())).eq(f64::INFINITY)))
    }
    /// Whether an element is minus infinity: `isinf(detect_positive=False)` in tinygrad.
    #[track_caller]
    fn is_neg_inf(&self) -> Self {
        lift("is_neg_inf", [self.node()], |[a]| Ok(Expr::from(to_float(a.uop())).eq(f64::NEG_INFINITY)))
    }
    /// Magnitude of `self`, sign of `o` (signed zeros count).
    #[track_caller]
    fn copysign(&self, o: impl Operand<Self>) -> Self {
        lift("copysign", [self.node(), o.operand()], |[a, b]| {
            let b = b.cast(graph::promoted(&[a.uop(), b.uop()]));
            let size = a.abs();
            // 1/-0 is -inf: the only way to see the sign of a zero.
            let negative = b.lt(0).bitor(&b.eq(0).bitand(&b.recip().lt(0)));
            Ok(negative.where_(&size.neg(), &size))
        })
    }
    /// Whether the sides differ by at most `atol + rtol * |o|`; equal infinities are close, NaNs are not.
    #[track_caller]
    fn is_close(&self, o: impl Operand<Self>, rtol: f64, atol: f64) -> Self {
        lift("is_close", [self.node(), o.operand()], |[a, b]| {
            let near = a.sub(&b).abs().le(&b.abs().mul(rtol).add(atol));
            Ok(a.eq(&b).bitor(&near.bitand(&a.is_finite()).bitand(&b.is_finite())))
        })
    }
    /// The threefry2x32-20 block of these counters under these keys (both u64).
    #[track_caller]
    fn threefry(&self, key: &Self) -> Self {
        binary("threefry", Op::Threefry, self, key.node())
    }

    /// The same value, materialised in row-major order.
    #[track_caller]
    fn contiguous(&self) -> Self {
        build("contiguous", [self.node()], |[a]| {
            let there = matches!(a.op(), Op::Contiguous | Op::Buffer | Op::Const);
            Ok(if there { a.clone() } else { a.wrap(Op::Contiguous) })
        })
    }
    /// Itself; its gradient is materialised.
    #[track_caller]
    fn contiguous_backward(&self) -> Self {
        build("contiguous_backward", [self.node()], |[a]| Ok(a.wrap(Op::ContiguousBackward)))
    }
    /// Itself; no gradient passes.
    #[track_caller]
    fn detach(&self) -> Self {
        build("detach", [self.node()], |[a]| Ok(a.wrap(Op::Detach)))
    }
}

impl<V: Value> Elementwise for V {}

fn at_most(a: &Expr, b: &Expr) -> Expr {
    // b < a is also false for NaN: its negation would be true there.
    let float = graph::promoted(&[a.uop(), b.uop()]).is_float();
    if float { a.lt(b).bitor(&a.eq(b)) } else { b.lt(a).bitnot() }
}

/// Small constant powers become products and roots: exact, and with a plain gradient.
fn power(a: &Expr, b: &Expr) -> Result<Expr, Problem> {
    let to = graph::promoted(&[a.uop(), b.uop()]);
    let (x, exponent) = (Expr::from(graph::taken(a.uop(), to)?), b.uop().as_const().map(|c| c.as_f64()));
    match exponent {
        Some(0.0) => Ok(Expr::from(graph::full(x.shape(), &UOp::constant(DType::of(to), 1i64)))),
        Some(n) if n == n.trunc() && (1.0..=8.0).contains(&n) => Ok(repeated(&x, n as u32)),
        Some(n) if to.is_float() && n == n.trunc() && (-8.0..0.0).contains(&n) => Ok(repeated(&x, -n as u32).recip()),
        Some(0.5) if to.is_float() => Ok(x.sqrt()),
        Some(-0.5) if to.is_float() => Ok(x.rsqrt()),
        _ => Ok(Expr::of(Ok(graph::alu(Op::Pow, &[x.uop().clone(), graph::taken(b.uop(), to)?])?))),
    }
}

fn repeated(x: &Expr, n: u32) -> Expr {
    match n {
        1 => x.clone(),
        n if n % 2 == 0 => repeated(&x.square(), n / 2),
        n => repeated(x, n - 1).mul(x),
    }
}
