//! Float rules for programs that asked for speed: they take every value to be finite and -0 to be 0, and reassociate.
//! Never part of [`super::symbolic`].

use crate::{ConstVal, Op, Pat, PatternMatcher, Rule, Scalars, UOp, eval_alu};
use std::sync::LazyLock;

fn float(name: &'static str) -> Pat {
    Pat::var(name).dtype(Scalars::FLOATS)
}
fn zero(u: &UOp) -> UOp {
    UOp::constant(u.dtype(), 0.0)
}

/// The rules, to be added to others: `u.simplify_with(fast())`.
pub fn fast() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| {
        let x = || float("x");
        PatternMatcher::new([
            Rule::new("add-zero", x() + Pat::op(Op::Const).value(0.0), |m| Some(m["x"].clone())),
            Rule::new("mul-zero", x() * Pat::op(Op::Const).value(0.0), |m| Some(zero(&m["x"]))),
            Rule::new("sub-self", x() - Pat::var("x"), |m| Some(zero(&m["x"]))),
            Rule::new("div-self", x().alu(Op::FDiv, Pat::var("x")), |m| Some(UOp::constant(m["x"].dtype(), 1.0))),
            Rule::new("mul-div", (x() * Pat::var("y")).alu(Op::FDiv, Pat::var("y")), |m| Some(m["x"].clone())),
            Rule::new("recip-of-recip", x().unary(Op::Recip).unary(Op::Recip), |m| Some(m["x"].clone())),
            Rule::new("div-by-const", x().alu(Op::FDiv, Pat::cvar("c")), |m| {
                let c = m.value("c")?.as_f64();
                (c != 0.0 && (1.0 / c).is_normal()).then(|| m["x"].binary(Op::Mul, &m["x"].const_like(1.0 / c)))
            }),
            Rule::new("add-consts", (x() + Pat::cvar("c")) + Pat::cvar("d"), |m| two_consts(m, Op::Add)),
            Rule::new("mul-consts", (x() * Pat::cvar("c")) * Pat::cvar("d"), |m| two_consts(m, Op::Mul)),
            Rule::new("add-self", x() + Pat::var("x"), |m| Some(m["x"].binary(Op::Mul, &m["x"].const_like(2.0)))),
        ])
    });
    &RULES
}

fn two_consts(m: &crate::Match, op: Op) -> Option<UOp> {
    let (c, d): (ConstVal, ConstVal) = (m.value("c")?, m.value("d")?);
    let x = &m["x"];
    let k = eval_alu(op, x.dtype().scalar, &[c, d])?;
    Some(x.binary(op, &UOp::constant(x.dtype(), k)))
}
