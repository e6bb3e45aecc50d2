//! Float rules of FAST_MATH: they assume that every value is finite and that -0 equals 0, and reassociate constants.
//! Never part of [`super::symbolic`]; codegen applies them to kernel graphs before anything else.
//!
//! For ordinary finite numbers the result differs from the strict result only by rounding: constants are combined only
//! if the new one is a normal number, so no new overflow or underflow occurs.

use super::keep_shape;
use crate::{ConstVal, Match, Op, Pat, PatternMatcher, Rule, Scalar, Scalars, UOp, eval_alu};
use std::sync::LazyLock;

/// Any node of a float type, captured.
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

/// The rules alone, to be combined with others: `u.simplify_with(fast())`.
pub fn fast() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| PatternMatcher::new(rules()));
    &RULES
}

/// [`fast`] and then [`super::symbolic`], as one list.
pub fn fast_symbolic() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| fast() + super::symbolic());
    &RULES
}

/// A rule from a pattern and a builder; a constant takes the shape of the node that it replaces.
#[track_caller]
fn rule(name: &'static str, pat: Pat, make: impl Fn(&Match) -> Option<UOp> + Send + Sync + 'static) -> Rule {
    Rule::new(name, pat, move |m| keep_shape(m.root(), make(m)?))
}

fn rules() -> Vec<Rule> {
    let (x, y) = (|| float("x"), || float("y"));
    let c = || Pat::cvar("c");
    let recip = |p: Pat| p.unary(Op::Recip);
    let div = |a: Pat, b: Pat| a.alu(Op::FDiv, b);
    vec![
        rule("add-zero", x() + c(), |m| is_zero(m, "c").then(|| m["x"].clone())).about("x + 0 = x"),
        rule("zero-minus", c() - x(), |m| is_zero(m, "c").then(|| -&m["x"])).about("0 - x = -x"),
        rule("mul-zero", x() * c(), |m| if is_zero(m, "c") { zero(&m["x"]) } else { None }).about("x * 0 = 0"),
        rule("sub-self", x() - x(), |m| zero(&m["x"])).about("x - x = 0"),
        rule("div-self", div(x(), x()), |m| one(&m["x"])).about("x / x = 1"),
        rule("mul-div", div(x() * y(), y()), |m| Some(m["x"].clone())).about("(x * y) / y = x"),
        rule("mul-recip", x() * recip(x()), |m| one(&m["x"])).about("x * (1 / x) = 1"),
        rule("recip-of-recip", recip(recip(x())), |m| Some(m["x"].clone())).about("1 / (1 / x) = x"),
        rule("div-by-recip", div(x(), recip(y())), |m| Some(&m["x"] * &m["y"])).about("x / (1 / y) = x * y"),
        rule("div-by-const", div(x(), c()), |m| {
            let by = m["x"].const_like(1.0 / m.value("c")?.as_f64());
            is_normal(&by).then(|| &m["x"] * &by)
        })
        .about("x / c = x * (1 / c)"),
        Rule::on("div-by-invariant", Op::FDiv, div_by_invariant)
            .about("x / y = x * (1 / y) where y changes in fewer loops than x: the reciprocal leaves the inner one"),
        rule("add-consts", (x() + c()) + Pat::cvar("d"), |m| two_consts(m, Op::Add)).about("(x + c) + d = x + (c + d)"),
        rule("mul-consts", (x() * c()) * Pat::cvar("d"), |m| two_consts(m, Op::Mul)).about("(x * c) * d = x * (c * d)"),
        rule("add-self", x() + x(), |m| Some(&m["x"] * &m["x"].const_like(2.0))).about("x + x = x * 2"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AxisKind, DType, UMap, traced};
    use std::collections::HashSet;

    fn load(t: DType, slot: u32) -> UOp {
        UOp::param(slot, t, 8).index(&UOp::range(8, 0, AxisKind::Loop)).load()
    }
    fn c(v: f64) -> UOp {
        UOp::constant(DType::F32, v)
    }
    fn div(a: &UOp, b: &UOp) -> UOp {
        a.binary(Op::FDiv, b)
    }
    fn recip(x: &UOp) -> UOp {
        UOp::alu(Op::Recip, [x.clone()])
    }
    fn simplest(e: &UOp) -> UOp {
        e.simplify_with(fast()).unwrap()
    }

    /// For each rule a graph, and what it becomes.
    fn matching(x: &UOp, y: &UOp) -> Vec<(&'static str, UOp, UOp)> {
        let shared = UOp::param(3, DType::F32, 1).index(&UOp::int(0)).load();
        vec![
            ("add-zero", x + &c(0.0), x.clone()),
            ("zero-minus", &c(0.0) - x, -x),
            ("mul-zero", x * &c(0.0), c(0.0)),
            ("sub-self", x - &x.clone(), c(0.0)),
            ("div-self", div(x, x), c(1.0)),
            ("mul-div", div(&(x * y), y), x.clone()),
            ("mul-recip", x * &recip(x), c(1.0)),
            ("recip-of-recip", recip(&recip(x)), x.clone()),
            ("div-by-recip", div(x, &recip(y)), x * y),
            ("div-by-const", div(x, &c(3.0)), x * &c(1.0 / 3.0)),
            ("div-by-invariant", div(x, &shared), x * &recip(&shared)),
            ("add-consts", &(x + &c(1.0)) + &c(2.0), x + &c(3.0)),
            ("mul-consts", &(x * &c(3.0)) * &c(5.0), x * &c(15.0)),
            ("add-self", x + x, x * &c(2.0)),
        ]
    }

    #[test]
    fn every_rule_makes_of_its_case_what_it_says_and_strict_rules_leave_it() {
        let (x, y) = (load(DType::F32, 1), load(DType::F32, 2));
        let cases = matching(&x, &y);
        let tested: HashSet<_> = cases.iter().map(|t| t.0).collect();
        assert_eq!(tested, fast().rules().iter().map(|r| r.name).collect());
        for (name, e, want) in cases {
            let (got, trace) = traced(|| simplest(&e));
            assert_eq!(got, want, "{name}");
            assert!(trace.steps.iter().any(|s| s.rule == name), "{name}: {trace}");
            assert_eq!(e.simplify(), e, "{name}");
        }
    }

    #[test]
    fn constants_stay_apart_where_the_new_one_would_overflow_or_vanish_and_integers_are_left() {
        let (x, y) = (load(DType::F32, 1), load(DType::F32, 2));
        let half = load(DType::F16, 1);
        let h = |v: f64| UOp::constant(DType::F16, v);
        let kept = [
            &(&x * &c(1e30)) * &c(1e30),
            &(&x * &c(1e-30)) * &c(1e-30),
            &(&x + &c(3e38)) + &c(3e38),
            div(&x, &c(1e-40)),
            div(&x, &y),
            &(&half * &h(1e-4)) * &h(1e-3),
        ];
        for e in kept {
            assert_eq!(simplest(&e), e.simplify(), "{}", e.render());
        }
        let i = load(DType::I32, 1);
        let whole = &(&i * &i) + &i;
        assert_eq!(simplest(&whole), whole.simplify());
    }

    #[test]
    fn both_sides_agree_on_ordinary_numbers() {
        let (x, y) = (load(DType::F32, 1), load(DType::F32, 2));
        let shared = UOp::param(3, DType::F32, 1).index(&UOp::int(0)).load();
        let mut state = 1u32;
        for _ in 0..200 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                c((f64::from(state >> 8) / f64::from(1 << 20) + 0.01) * if state & 128 == 0 { 1.0 } else { -1.0 })
            };
            let map: UMap<UOp> =
                [(x.clone(), next()), (y.clone(), next()), (shared.clone(), next())].into_iter().collect();
            let value = |u: &UOp| u.substitute(&map).simplify().as_const().unwrap().as_f64();
            for (name, e, want) in matching(&x, &y) {
                let (a, b) = (value(&e), value(&want));
                let near = 1e-6 * (a.abs().max(b.abs()) + 3.0);
                assert!((a - b).abs() <= near, "{name}: {a} and {b}");
            }
        }
    }
}
