//! Late decompositions: ops that no target has, or that this one lacks, become arithmetic that it does.
//!
//! [`lower`] works on a kernel graph after expansion: values may be vectors, every rule keeps the lanes. It leaves no Exp2, Log2,
//! Sin, Pow, Threefry, FloorDiv, FloorMod, no fp8 value and no integer division that could trap; f16 and bf16 arithmetic becomes
//! casts around f32 arithmetic where the target does not have it. Accuracy in strict mode, over all inputs with NaN, infinities,
//! both zeros and denormals: f32 exp2, log2, sin within 2 ulp, f64 within 4; f32 pow within 2 ulp. `fast` drops sin beyond
//! 2^50 and, of exp2 on targets without Ldexp, denormals and overflow to infinity near the ends.
//! Polynomials are minimax fits made with 200-bit arithmetic (Remez); every other constant says where it comes from.

// Coefficients stand as the fit gave them; the compiler rounds them to the type they are used in.
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
use doorbell_uop::{Op, OpSet, PatternMatcher, RewriteError, Rule, UOp, graph_rewrite};
use exp2::Scale;

type Plain = fn(&UOp, &mut Facts) -> Option<UOp>;

/// The target's facts that rules need, owned so that the rule list is one static value.
#[derive(Clone)]
struct Facts {
    target: Target,
    fast: bool,
}

impl Facts {
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
/// The rules did not come to an end (a mistake in them).
pub fn lower(sink: &UOp, target: &Target, fast: bool) -> Result<UOp, RewriteError> {
    let sink = fp8::to_bits(sink);
    let mut facts = Facts { target: target.clone(), fast };
    graph_rewrite(&sink, rules(), &mut facts)
}

fn rules() -> &'static PatternMatcher<Facts> {
    use std::sync::LazyLock;
    static RULES: LazyLock<PatternMatcher<Facts>> = LazyLock::new(|| {
        let table: [(&'static str, OpSet, Plain); 11] = [
            // Half types first: what they compute in f32 is decomposed there.
            ("half-through-f32", OpSet::ELEMENTWISE.union(OpSet::of(&[Op::VReduce, Op::WaveReduce])), |u, f| {
                half::through_f32(u, &f.target)
            }),
            ("exp2", Op::Exp2.into(), |u, f| exp2::lower(u, f.scale(f.fast))),
            ("log2", Op::Log2.into(), |u, f| log2::lower(u, f.fast)),
            ("sin", Op::Sin.into(), |u, f| sin::lower(u, f.fast)),
            ("pow", Op::Pow.into(), |u, f| pow::lower(u, f.scale(false))),
            ("threefry", Op::Threefry.into(), |u, _| threefry::lower(u)),
            ("int-division", OpSet::of(&[Op::FloorDiv, Op::FloorMod, Op::CDiv, Op::CMod]), |u, _| intdiv::lower(u)),
            ("recip", Op::Recip.into(), |u, f| {
                (!f.target.supports(Op::Recip, u.dtype().scalar))
                    .then(|| u.const_like(1.0).binary(Op::FDiv, &u.src()[0]))
            }),
            ("trunc", Op::Trunc.into(), |u, f| float::trunc(u, &f.target)),
            ("trunc-of-int", Op::Trunc.into(), |u, _| (!u.dtype().is_float()).then(|| u.src()[0].clone())),
            ("minus", Op::Add.into(), |u, _| float::minus(u)),
        ];
        PatternMatcher::new(table.map(|(name, ops, f)| Rule::on_ctx(name, ops, f)))
    });
    &RULES
}
