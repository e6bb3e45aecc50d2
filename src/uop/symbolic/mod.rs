//! The simplifier: every rule that holds for all values, as one list.
//!
//! [`UOp::simplify`] rewrites sources first to the fixpoint of [`symbolic`]; the result is remembered in the node, so
//! simplifying again, or simplifying something that shares nodes with it, costs nothing for what is already done.
//! `WeakInt` is taken to be exact (an index never leaves i64) and gets a normal form; machine integers wrap; floats keep NaN,
//! infinities and signed zeros, and [`fast`] lists what may be added where they need not.
//! Left out: anything that changes what memory is touched.

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

pub use divmod::count_nodes;
pub use fast::fast;
pub use fold::lossless;
pub use linear::{Linear, Product, divide_exact};
pub use logic::clauses;
pub use order::cmp as structural_cmp;
pub use valid::simplify_given;

use super::checked::Watch;
use super::{DType, Dim, Op, OpSet, PatternMatcher, Rule, Srcs, UOp, graph_rewrite};
use std::sync::LazyLock;

/// Rules one call of `simplify` may apply; reached only by a pair of rules that undo each other.
const LIMIT: usize = 2_000_000;

type Plain = fn(&UOp) -> Option<UOp>;

/// The strict rules, in the order in which they are tried.
#[rustfmt::skip]
fn table() -> Vec<(&'static str, OpSet, Plain)> {
    use Op::*;
    let ops = OpSet::of;
    vec![
        ("constant-fold",       OpSet::ELEMENTWISE, fold::constants),
        ("constant-last",       OpSet::COMMUTATIVE, fold::constant_last),
        ("bool-spelling",       ops(&[Add, Max, Mul, Sub, CmpNe, CmpEq, CmpLt, Xor]), logic::spelling),
        ("compare-by-bounds",   OpSet::COMPARISON, compare::by_bounds),
        ("compare-negated",     ops(&[CmpNe]), compare::negated),
        ("compare-bool-cast",   OpSet::COMPARISON, compare::of_bool_cast),
        ("and-or",              ops(&[And, Or]), logic::and_or),
        ("single-value",        OpSet::ELEMENTWISE.union(ops(&[Range, Var, Special, Bind])), fold::single_value),
        ("float-exact",         ops(&[Neg, Add, Sub, Mul, FDiv, Pow, Trunc]), fold::float_exact),
        ("where-simple",        ops(&[Where]), logic::where_simple),
        ("where-nested",        ops(&[Where]), logic::where_nested),
        ("where-closure",       ops(&[Where]), logic::where_closure),
        ("alu-of-wheres",       OpSet::BINARY, logic::alu_of_wheres),
        ("index-sum",           ops(&[Add, Sub, Neg, Mul, Shl]), sum::normal_sum),
        ("index-divmod",        ops(&[FloorDiv, FloorMod]), divmod::fold),
        ("index-less",          ops(&[CmpLt]), compare::less),
        ("index-equal",         ops(&[CmpEq, CmpNe]), compare::equal),
        ("operand-order",       ops(&[Max, And, Or, Xor]), fold::operand_order),
        ("maximum",             ops(&[Max]), fold::maximum),
        ("machine-sum",         ops(&[Add, Sub]), sum::machine_sum),
        ("machine-neg",         ops(&[Neg]), fold::machine_neg),
        ("machine-product",     ops(&[Mul, CDiv, CMod, FloorDiv, FloorMod]), sum::machine_product),
        ("bounded-division",    ops(&[CDiv, CMod, FloorDiv, FloorMod]), sum::bounded_division),
        ("machine-compare",     OpSet::COMPARISON, compare::machine_compare),
        ("bits",                ops(&[And, Or, Xor, Shl, Shr]), fold::bits),
        ("unpack-halves",       ops(&[Cast, Shr]), fold::unpack_halves),
        ("cast",                ops(&[Cast, Bitcast]), fold::casts),
        ("narrow-math",         ops(&[Add, Sub, Mul]), fold::narrow_math),
        ("trunc-of-int",        ops(&[Trunc]), fold::trunc_of_int),
        ("lanes",               ops(&[Gep]), fold::lanes),
        ("conjunction",         ops(&[And]), valid::conjunction),
        ("gated-index",         ops(&[Index]), gated_index),
        ("never-loaded",        ops(&[Load]), never_loaded),
    ]
}

/// The strict rules as a list that other lists may be added to.
pub fn symbolic() -> &'static PatternMatcher {
    static RULES: LazyLock<PatternMatcher> = LazyLock::new(|| {
        PatternMatcher::new(
            table().into_iter().map(|(name, ops, f)| Rule::on(name, ops, move |u| f(u).and_then(|n| keep_shape(u, n)))),
        )
    });
    &RULES
}

/// A rule that answers a tensor node with a scalar constant: the constant, expanded to the node's shape.
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

/// An index under its gate; a gate that is always true goes.
fn gated_index(u: &UOp) -> Option<UOp> {
    let [addr, i, gate] = u.src() else { return None };
    match gate.as_const() {
        Some(c) if !c.is_zero() => Some(UOp::new(Op::Index, u.dtype(), [addr.clone(), i.clone()], u.arg().clone())),
        Some(_) => None,
        // A load inside the index happens whether or not this gate is open, so its own gate must stay.
        None if i.dtype() == DType::INDEX && gate.dtype() == DType::BOOL && !i.any(|u| u.op() == Op::Load) => {
            Some(u.with_src([addr.clone(), simplify_given(gate, i), gate.clone()]))
        }
        None => None,
    }
}

/// A load whose gate is false is its alternative.
fn never_loaded(u: &UOp) -> Option<UOp> {
    let gate = u.src().first().filter(|i| i.op() == Op::Index)?.src().get(2)?;
    if !gate.as_const()?.is_zero() {
        return None;
    }
    Some(u.src().get(1).cloned().unwrap_or_else(|| UOp::constant(u.dtype(), 0i64)))
}

enum Todo {
    Visit(UOp),
    Build(UOp),
    Join(UOp, Box<Linear>),
    Link(UOp, UOp, UOp),
}

impl UOp {
    /// This graph in its simplest spelling: equal in value for every assignment of its variables and ranges.
    pub fn simplify(&self) -> UOp {
        if let Some(s) = self.simplest() {
            return s;
        }
        let (rules, watch) = (symbolic(), Watch::now());
        let mut stack = vec![Todo::Visit(self.clone())];
        let mut applied = 0;
        while let Some(t) = stack.pop() {
            match t {
                Todo::Visit(u) => {
                    if u.knows_simplest() {
                        continue;
                    }
                    if let Some(parts) = sum::sum_of_parts(&u) {
                        let open = parts.terms.iter().filter(|t| !t.0.knows_simplest());
                        let open: Vec<Todo> = open.map(|t| Todo::Visit(t.0.clone())).collect();
                        stack.push(Todo::Join(u, Box::new(parts)));
                        stack.extend(open);
                    } else {
                        stack.push(Todo::Build(u.clone()));
                        let open = u.src().iter().rev().filter(|s| !s.knows_simplest());
                        stack.extend(open.map(|s| Todo::Visit(s.clone())));
                    }
                }
                Todo::Join(u, parts) => match sum::join_parts(&parts, simplest_or_self) {
                    Some(m) => {
                        if let Some(w) = watch {
                            w.note("index-sum", &u, &m);
                        }
                        m.set_simplest(&m);
                        u.set_simplest(&m);
                    }
                    None => {
                        stack.push(Todo::Build(u.clone()));
                        let open = u.src().iter().rev().filter(|s| !s.knows_simplest());
                        stack.extend(open.map(|s| Todo::Visit(s.clone())));
                    }
                },
                Todo::Build(u) => {
                    let n = if u.src().iter().all(UOp::is_simplest) {
                        u.clone()
                    } else {
                        u.with_src(u.src().iter().map(simplest_or_self).collect::<Srcs>())
                    };
                    let known = if n == u { None } else { n.simplest() };
                    match known.or_else(|| (applied > LIMIT).then(|| n.clone())) {
                        Some(v) => u.set_simplest(&v),
                        None => match rules.rewrite(&n, &mut ()) {
                            None => {
                                n.set_simplest(&n);
                                u.set_simplest(&n);
                            }
                            Some((m, rule)) => {
                                applied += 1;
                                if let Some(w) = watch {
                                    w.note(rule, &n, &m);
                                }
                                stack.push(Todo::Link(u, n, m.clone()));
                                stack.push(Todo::Visit(m));
                            }
                        },
                    }
                }
                Todo::Link(u, n, m) => {
                    let v = simplest_or_self(&m);
                    n.set_simplest(&v);
                    u.set_simplest(&v);
                }
            }
        }
        simplest_or_self(self)
    }

    /// As [`UOp::simplify`] with further rules.
    ///
    /// # Errors
    /// The rules together did not come to an end.
    pub fn simplify_with(&self, more: &PatternMatcher) -> Result<UOp, super::RewriteError> {
        graph_rewrite(self, &(more + symbolic()), &mut ())
    }
}

fn simplest_or_self(u: &UOp) -> UOp {
    u.simplest().unwrap_or_else(|| u.clone())
}
