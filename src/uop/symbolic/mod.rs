//! The simplifier: every rule that holds for all values, as one list.
//!
//! [`UOp::simplify`] runs the driver of `rewrite` with [`symbolic`], sources first, to a fixpoint. The result is cached
//! in the node, so simplifying again, or simplifying a graph that shares nodes with it, does not repeat work. `WeakInt`
//! is assumed to be exact (an index never leaves i64) and gets a normal form; machine integers wrap; floats keep NaN,
//! infinities and signed zeros, and [`fast`] lists the rules that may be added if they need not. Left out: anything
//! that changes which memory is accessed.

mod compare;
mod divmod;
mod fast;
mod fold;
mod linear;
mod logic;
mod order;
mod sum;
mod valid;

#[cfg(test)]
mod tests;

pub use fast::{fast, fast_symbolic};
pub use fold::lossless;
pub use linear::{Linear, Product};
pub use logic::clauses;
pub use valid::simplify_given;

use super::observe::Observers;
use super::rewrite::{Known, settle};
use super::rule::Joined;
use super::trace::SinceRecording;
use super::{DType, Dim, Op, OpSet, PatternMatcher, Rule, RuleInfo, UOp, graph_rewrite};
use std::sync::LazyLock;

/// Maximum number of rules applied in one call of `simplify`; reached only if two rules undo each other.
const LIMIT: usize = 2_000_000;

/// What a rule of the table does with a node.
type Rewrite = fn(&UOp) -> Option<UOp>;

/// A rule of the table, defined at the line of this call: name, ops at which it is tried, function, what it does.
#[track_caller]
fn row(name: &'static str, ops: OpSet, f: Rewrite, about: &'static str) -> Rule {
    Rule::on(name, ops, move |u| f(u).and_then(|n| keep_shape(u, n))).about(about)
}

/// The strict rules, in the order in which they are tried.
#[rustfmt::skip]
fn table() -> Vec<Rule> {
    use Op::*;
    let ops = OpSet::of;
    vec![
        row("constant-fold", OpSet::ELEMENTWISE, fold::constants,
            "an op on constants is a constant"),
        row("constant-last", OpSet::COMMUTATIVE, fold::constant_last,
            "the constant of a commutative op stands second"),
        row("bool-spelling", ops(&[Add, Max, Mul, Sub, CmpNe, CmpEq, CmpLt, Xor]), logic::spelling,
            "arithmetic on bools is And, Or and Xor; a comparison with a constant is the value or its negation"),
        row("compare-by-bounds", OpSet::COMPARISON, compare::by_bounds,
            "a comparison that the bounds of its sides decide; a value compared with itself"),
        row("compare-negated", ops(&[CmpNe]), compare::negated,
            "!(a < b) = b <= a for integers, !(a == b) = a != b, !!x = x"),
        row("compare-bool-cast", OpSet::COMPARISON, compare::of_bool_cast,
            "a bool cast to a number, compared with a constant"),
        row("and-or", ops(&[And, Or]), logic::and_or,
            "And, Or of bools: constants, repeated and opposite clauses, intervals of the same expression"),
        row("single-value", OpSet::ELEMENTWISE.union(ops(&[Range, Var, Special, Bind])), fold::single_value,
            "an integer or bool whose bounds leave one value"),
        row("float-exact", ops(&[Neg, Add, Sub, Mul, FDiv, Pow, Trunc]), fold::float_exact,
            "float identities that keep NaN, infinities and the sign of zero: x * 1, x - 0, -(-x), x / 2^k"),
        row("where-simple", ops(&[Where]), logic::where_simple,
            "Where with a known or negated condition, equal arms, bool arms"),
        row("where-nested", ops(&[Where]), logic::where_nested,
            "Where inside Where with a shared arm; an integer maximum spelt as a comparison"),
        row("where-closure", ops(&[Where]), logic::where_closure,
            "in the arms of a Where its condition is known"),
        row("alu-of-wheres", OpSet::BINARY, logic::alu_of_wheres,
            "an op on Wheres with one condition moves into their arms when an arm becomes constant"),
        row("index-sum", ops(&[Add, Sub, Neg, Mul, Shl]), sum::normal_sum,
            "index sums and products in normal form: like terms collected, terms in structural order, constant last"),
        row("index-divmod", ops(&[FloorDiv, FloorMod]), divmod::fold,
            "quotients and remainders of index sums: what divides evenly leaves them"),
        row("index-less", ops(&[CmpLt]), compare::less,
            "a < b of indices in normal form: constant right, common divisors cancelled, quotients dissolved"),
        row("index-equal", ops(&[CmpEq, CmpNe]), compare::equal,
            "a == b, a != b of indices in normal form"),
        row("operand-order", ops(&[Max, And, Or, Xor]), fold::operand_order,
            "operands of commutative index arithmetic in structural order"),
        row("maximum", ops(&[Max]), fold::maximum,
            "Max of equal operands, of disjoint bounds, of two constants"),
        row("machine-sum", ops(&[Add, Sub]), sum::machine_sum,
            "sums of machine integers, which wrap: terms and constants collected where that is shorter"),
        row("machine-neg", ops(&[Neg]), fold::machine_neg,
            "Neg of a product, of a difference, of a Neg of machine integers"),
        row("machine-product", ops(&[Mul, CDiv, CMod, FloorDiv, FloorMod]), sum::machine_product,
            "products, quotients and remainders of machine integers by constants"),
        row("bounded-division", ops(&[CDiv, CMod, FloorDiv, FloorMod]), sum::bounded_division,
            "x / y, x % y of integers with 0 <= x < y"),
        row("machine-compare", OpSet::COMPARISON, compare::machine_compare,
            "x + k < c of machine integers whose bounds exclude wrap-around"),
        row("bits", ops(&[And, Or, Xor, Shl, Shr]), fold::bits,
            "And, Or, Xor and shifts of integers by constants"),
        row("unpack-halves", ops(&[Cast, Shr]), fold::unpack_halves,
            "the 64-bit value made of two halves, taken apart again"),
        row("cast", ops(&[Cast, Bitcast]), fold::casts,
            "a cast of a cast, a bitcast of a bitcast, a cast to the same type"),
        row("narrow-math", ops(&[Add, Sub, Mul]), fold::narrow_math,
            "i64 arithmetic on widened i32 whose result fits i32"),
        row("trunc-of-int", ops(&[Trunc]), fold::trunc_of_int,
            "Trunc of what was an integer"),
        row("lanes", ops(&[Gep]), fold::lanes,
            "a lane of something whose lanes are known"),
        row("conjunction", ops(&[And]), valid::conjunction,
            "clauses of a conjunction, each simplified under the others"),
        row("gated-index", ops(&[Index]), gated_index,
            "an index under its gate; a gate that is always true goes"),
        row("never-loaded", ops(&[Load]), never_loaded,
            "a load whose gate is false is its alternative"),
    ]
}

/// The strict rules as a list that can be combined with other lists.
pub fn symbolic() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| PatternMatcher::new(table()).joining(&INDEX_SUM));
    &RULES
}

/// An index sum of at least three parts is built once.
static INDEX_SUM: Joined =
    Joined { name: "index-sum", roots: OpSet::of(&[Op::Add]), parts: sum::sum_of_parts, join: sum::join_parts };

/// The rules of the simplifier, in the order in which they are tried: the lists `fast-math` (only with FAST_MATH) and
/// `symbolic`. `codegen::rules` also has those of later phases.
pub fn rules() -> Vec<RuleInfo> {
    let of = |name, list: &'static PatternMatcher| list.rules().iter().map(move |r| r.info(name));
    of("fast-math", fast()).chain(of("symbolic", symbolic())).collect()
}

/// If a rule replaces a tensor node by a scalar constant: the constant, expanded to the node's shape.
fn keep_shape(u: &UOp, n: UOp) -> Option<UOp> {
    if u.shape() == n.shape() {
        return Some(n);
    }
    if n.op() != Op::Const {
        return None;
    }
    let ones = n.movement(Op::Reshape, u.shape().iter().map(|_| UOp::int(1)));
    Some(ones.movement(Op::Expand, u.shape().iter().map(Dim::uop)))
}

/// Simplifies an index under its gate; removes a gate that is always true.
fn gated_index(u: &UOp) -> Option<UOp> {
    let [addr, i, gate] = u.src() else { return None };
    match gate.as_const() {
        Some(c) if !c.is_zero() => Some(UOp::new(Op::Index, u.dtype(), [addr.clone(), i.clone()], u.arg().clone())),
        Some(_) => None,
        // A load inside the index is executed regardless of this gate, so its own gate must stay.
        None if i.dtype() == DType::INDEX && gate.dtype() == DType::BOOL && !i.any(|u| u.op() == Op::Load) => {
            Some(u.with_src([addr.clone(), simplify_given(gate, i), gate.clone()]))
        }
        None => None,
    }
}

/// A load whose gate is false becomes its alternative.
fn never_loaded(u: &UOp) -> Option<UOp> {
    let gate = u.src().first().filter(|i| i.op() == Op::Index)?.src().get(2)?;
    if !gate.as_const()?.is_zero() {
        return None;
    }
    Some(u.src().get(1).cloned().unwrap_or_else(|| UOp::constant(u.dtype(), 0i64)))
}

impl UOp {
    /// The simplified graph: equal in value for every assignment of its variables and ranges.
    pub fn simplify(&self) -> UOp {
        if Observers::now().traced {
            return settle(self, symbolic(), LIMIT, SinceRecording);
        }
        self.simplest().unwrap_or_else(|| settle(self, symbolic(), LIMIT, InNodes))
    }

    /// As [`UOp::simplify`], with additional rules.
    ///
    /// # Errors
    /// The rules did not terminate.
    pub fn simplify_with(&self, more: &PatternMatcher) -> Result<UOp, super::RewriteError> {
        graph_rewrite(self, &(more + symbolic()), &mut ())
    }
}

/// Simplified forms cached in the nodes.
struct InNodes;

impl Known for InNodes {
    fn get(&self, u: &UOp) -> Option<UOp> {
        u.simplest()
    }
    fn has(&self, u: &UOp) -> bool {
        u.knows_simplest()
    }
    fn changes(&self, u: &UOp) -> bool {
        u.knows_simplest() && !u.is_simplest()
    }
    fn set(&mut self, u: &UOp, v: &UOp) {
        u.set_simplest(v);
    }
}
