//! Float rules for programs that asked for speed (FAST_MATH): they take every value to be finite and -0 to be 0, and reassociate
//! constants. Never part of [`super::symbolic`]; codegen applies them to kernel graphs before anything else.
//!
//! What they make of ordinary finite numbers differs from the strict result by rounding only: constants are put together
//! where the new one is normal, so nothing overflows or vanishes that did not before.

use crate::uop::{ConstVal, Match, Op, Pat, PatternMatcher, Rule, Scalar, Scalars, UOp, eval_alu};
use std::sync::LazyLock;

/// A float that is no constant's part: any node of a float type, captured.
fn float(name: &'static str) -> Pat {
    Pat::var(name).dtype(Scalars::FLOATS)
}
fn zero(u: &UOp) -> Option<UOp> {
    Some(UOp::constant(u.dtype(), 0.0))
}
fn one(u: &UOp) -> Option<UOp> {
    Some(UOp::constant(u.dtype(), 1.0))
}
fn is_zero(m: &Match, name: &str) -> bool {
    m.value(name).is_some_and(ConstVal::is_zero)
}

/// The rules alone, to be added to others: `u.simplify_with(fast())`.
pub fn fast() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| PatternMatcher::new(rules()));
    &RULES
}

/// [`fast`] and then [`super::symbolic`], as one list.
pub fn fast_symbolic() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| fast() + super::symbolic());
    &RULES
}

fn rules() -> Vec<Rule> {
    let (x, y) = (|| float("x"), || float("y"));
    let c = || Pat::cvar("c");
    let recip = |p: Pat| p.unary(Op::Recip);
    let div = |a: Pat, b: Pat| a.alu(Op::FDiv, b);
    vec![
        Rule::new("add-zero", x() + c(), |m| is_zero(m, "c").then(|| m["x"].clone())).about("x + 0 = x"),
        Rule::new("zero-minus", c() - x(), |m| is_zero(m, "c").then(|| -&m["x"])).about("0 - x = -x"),
        Rule::new("mul-zero", x() * c(), |m| if is_zero(m, "c") { zero(&m["x"]) } else { None }).about("x * 0 = 0"),
        Rule::new("sub-self", x() - x(), |m| zero(&m["x"])).about("x - x = 0"),
        Rule::new("div-self", div(x(), x()), |m| one(&m["x"])).about("x / x = 1"),
        Rule::new("mul-div", div(x() * y(), y()), |m| Some(m["x"].clone())).about("(x * y) / y = x"),
        Rule::new("mul-recip", x() * recip(x()), |m| one(&m["x"])).about("x * (1 / x) = 1"),
        Rule::new("recip-of-recip", recip(recip(x())), |m| Some(m["x"].clone())).about("1 / (1 / x) = x"),
        Rule::new("div-by-recip", div(x(), recip(y())), |m| Some(&m["x"] * &m["y"])).about("x / (1 / y) = x * y"),
        Rule::new("div-by-const", div(x(), c()), |m| {
            let by = m["x"].const_like(1.0 / m.value("c")?.as_f64());
            is_normal(&by).then(|| &m["x"] * &by)
        })
        .about("x / c = x * (1 / c)"),
        Rule::on("div-by-invariant", Op::FDiv, div_by_invariant)
            .about("x / y = x * (1 / y) where y changes in fewer loops than x: the reciprocal leaves the inner one"),
        Rule::new("add-consts", (x() + c()) + Pat::cvar("d"), |m| two_consts(m, Op::Add)).about("(x + c) + d = x + (c + d)"),
        Rule::new("mul-consts", (x() * c()) * Pat::cvar("d"), |m| two_consts(m, Op::Mul)).about("(x * c) * d = x * (c * d)"),
        Rule::new("add-self", x() + x(), |m| Some(&m["x"] * &m["x"].const_like(2.0))).about("x + x = x * 2"),
    ]
}

/// Whether a constant is a normal number of its type.
fn is_normal(u: &UOp) -> bool {
    let smallest = match u.dtype().scalar {
        Scalar::F64 | Scalar::WeakFloat => f64::MIN_POSITIVE,
        Scalar::F32 | Scalar::BF16 => f64::from(f32::MIN_POSITIVE),
        Scalar::F16 => 6.103_515_625e-5,
        _ => return false,
    };
    u.as_const().is_some_and(|c| c.as_f64().is_finite() && c.as_f64().abs() >= smallest)
}

fn two_consts(m: &Match, op: Op) -> Option<UOp> {
    let (x, c, d) = (&m["x"], m.value("c")?, m.value("d")?);
    let k = UOp::constant(x.dtype(), eval_alu(op, x.dtype().scalar, &[c, d])?);
    let exact_zero = op == Op::Add && k.as_const().is_some_and(ConstVal::is_zero);
    (exact_zero || is_normal(&k)).then(|| x.binary(op, &k))
}

fn div_by_invariant(u: &UOp) -> Option<UOp> {
    let [x, y] = u.src() else { return None };
    if !u.dtype().is_float() || x.op() == Op::Const || y.op() == Op::Const {
        return None;
    }
    let (of_x, of_y) = (x.open_ranges(), y.open_ranges());
    let fewer = of_y.len() < of_x.len() && of_y.iter().all(|r| of_x.contains(r));
    fewer.then(|| x * &UOp::alu(Op::Recip, [y.clone()]))
}
