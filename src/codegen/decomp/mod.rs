//! Late decompositions: ops that no target has, or that this one lacks, become arithmetic that it does.
//!
//! [`lower`] works on a kernel graph after expansion: values may be vectors, every rule keeps the lanes. It leaves no
//! Exp2, Log2, Sin, Pow (but of f32 on targets without f64), Threefry, FloorDiv, FloorMod, no fp8 value and no integer
//! division that could trap; f16 and bf16 arithmetic becomes casts around f32 arithmetic where the target does not have
//! it. Accuracy in strict mode, over all inputs with NaN, infinities, both zeros and denormals: f32 exp2, log2, sin
//! within 2 ulp, f64 within 4; f32 pow within 2 ulp. `fast` drops sin beyond 2^50 and, of exp2 on targets without
//! Ldexp, denormals and overflow to infinity near the ends. Polynomials are minimax fits made with 200-bit arithmetic
//! (Remez); every other constant says where it comes from.

// Coefficients are written as the fit gave them; the compiler rounds them to the type in which they are used.
#![allow(clippy::excessive_precision)]

mod exp2;
mod float;
mod fp8;
mod half;
mod intdiv;
mod log2;
mod pow;
mod sin;
mod threefry;

#[cfg(test)]
mod tests;

use super::Target;
use doorbell_uop::{Op, OpSet, PatternMatcher, RewriteError, Rule, RuleInfo, UOp, graph_rewrite};
use exp2::Scale;
pub(super) use exp2::of_negative as power_of_negative;

/// A logarithm to base 2 in ops that every target has.
pub(super) fn log2(u: &UOp) -> Option<UOp> {
    log2::lower(u, false)
}

type Plain = fn(&UOp, &mut LowerContext) -> Option<UOp>;

/// The target and options that rules need; owned, so that the rule list can be one static value.
#[derive(Clone)]
struct LowerContext {
    target: Target,
    fast: bool,
}

impl LowerContext {
    fn scale(&self, fast: bool) -> Scale {
        match (self.target.ldexp, fast) {
            (true, _) => Scale::Instruction,
            (false, true) => Scale::Normal,
            (false, false) => Scale::Halves,
        }
    }
}

/// The whole graph below `sink` in ops that `target` has.
///
/// # Errors
/// The rules did not terminate (a bug in them).
pub fn lower(sink: &UOp, target: &Target, fast: bool) -> Result<UOp, RewriteError> {
    let sink = fp8::to_bits(sink);
    let mut facts = LowerContext { target: target.clone(), fast };
    graph_rewrite(&sink, rules(), &mut facts)
}

/// The rules of [`lower`], as data.
pub(super) fn listed() -> impl Iterator<Item = RuleInfo> {
    rules().rules().iter().map(|r| r.info("decompose"))
}

#[track_caller]
fn of(name: &'static str, ops: OpSet, f: Plain, about: &'static str) -> Rule<LowerContext> {
    Rule::on_ctx(name, ops, f).about(about)
}

fn rules() -> &'static PatternMatcher<LowerContext> {
    use std::sync::LazyLock;
    static RULES: LazyLock<PatternMatcher<LowerContext>> = LazyLock::new(|| {
        let halves = OpSet::ELEMENTWISE.union(OpSet::of(&[Op::VReduce, Op::WaveReduce]));
        let divisions = OpSet::of(&[Op::FloorDiv, Op::FloorMod, Op::CDiv, Op::CMod]);
        let recip = |u: &UOp, f: &mut LowerContext| {
            let lacks = !f.target.supports(Op::Recip, u.dtype().scalar);
            lacks.then(|| u.const_like(1.0).binary(Op::FDiv, &u.src()[0]))
        };
        let whole = |u: &UOp, _: &mut LowerContext| (!u.dtype().is_float()).then(|| u.src()[0].clone());
        let op = OpSet::from;
        PatternMatcher::new([
            // Half types first: the f32 operations that they become are decomposed too.
            of("half-through-f32", halves, |u, f| half::through_f32(u, &f.target), "f16 and bf16 arithmetic in f32"),
            of("exp2", op(Op::Exp2), |u, f| exp2::lower(u, f.scale(f.fast)), "2^x by a polynomial and an exponent"),
            of("log2", op(Op::Log2), |u, f| log2::lower(u, f.fast), "log2 by the exponent and a polynomial"),
            of(
                "sin",
                op(Op::Sin),
                |u, f| sin::lower(u, &f.target, f.fast),
                "sin by reduction of the angle and a polynomial",
            ),
            of(
                "pow",
                op(Op::Pow),
                |u, f| pow::lower(u, &f.target, f.scale(false)),
                "x^y by log2 and exp2 in extended precision",
            ),
            of("threefry", op(Op::Threefry), |u, _| threefry::lower(u), "20 rounds of Threefry-2x32"),
            of(
                "int-division",
                divisions,
                |u, f| intdiv::lower(u, &f.target),
                "integer division by shifts, by a product, or guarded",
            ),
            of("recip", op(Op::Recip), recip, "1 / x where the target has no reciprocal"),
            of(
                "trunc",
                op(Op::Trunc),
                |u, f| float::trunc(u, &f.target),
                "through the integer type, large values as they are",
            ),
            of("trunc-of-int", op(Op::Trunc), whole, "an integer is whole"),
            of("minus", op(Op::Add), |u, _| float::minus(u), "a + b * -1 = a - b for integers"),
        ])
    });
    &RULES
}
