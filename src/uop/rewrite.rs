//! The rewrite driver: applies a [`PatternMatcher`] to a whole graph until nothing applies, with an explicit stack.
//!
//! There is one. [`graph_rewrite`] and [`Rewriter`] run it for a list of rules, and remember until they return what
//! each node became; [`UOp::simplify`] runs it for the simplifier's rules, and remembers in the nodes themselves. Three
//! orders: sources first, then the node, and what a rule makes is rewritten again, sources first (the default);
//! [`Rewriter::top_down`]: the node first, to its fixpoint, then the sources of the result; [`Rewriter::walk`]: every
//! node once after its sources, and what a rule makes is final. In all of them equal nodes are rewritten once.
//! `docs/rewriting.md` describes lists, rules and traces.

use super::numbers::Memo;
use super::observe::Observers;
use super::symbolic::Linear;
use super::{Arg, PatternMatcher, Srcs, UOp, checked};

/// Maximum number of applied rules before a rewrite is considered endless.
pub const DEFAULT_LIMIT: usize = 4_000_000;
const REMEMBERED: usize = 8;

/// Why a rewrite was given up.
#[derive(thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewriteError {
    /// The limit was reached, and rules still applied.
    #[error("rewrite did not end after {limit} rules; the last ones: {}", last.join(", "))]
    Endless {
        /// How many rules may be applied.
        limit: usize,
        /// Names of the last rules applied, oldest first.
        last: Vec<&'static str>,
    },
    /// A node that does not belong into its stage, or a faulty one ([`UOp::fault`]).
    #[error("rule {rule} made a malformed node: {error}")]
    Malformed {
        /// Name of the rule that made the node.
        rule: &'static str,
        /// What is wrong with the node.
        error: String,
    },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for RewriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Rewrites sources first, to a fixpoint.
///
/// # Errors
/// As [`Rewriter::run`].
pub fn graph_rewrite<C>(sink: &UOp, rules: &PatternMatcher<C>, ctx: &mut C) -> Result<UOp, RewriteError> {
    Rewriter::new(rules).run(sink, ctx)
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Order {
    SourcesFirst,
    TopDown,
    Walk,
}

/// A rewrite with its options.
pub struct Rewriter<'a, C = ()> {
    rules: &'a PatternMatcher<C>,
    order: Order,
    limit: usize,
}

impl<'a, C> Rewriter<'a, C> {
    /// Sources first, to a fixpoint.
    pub fn new(rules: &'a PatternMatcher<C>) -> Rewriter<'a, C> {
        Rewriter { rules, order: Order::SourcesFirst, limit: DEFAULT_LIMIT }
    }
    /// A node before its sources.
    pub fn top_down(mut self) -> Self {
        self.order = Order::TopDown;
        self
    }
    /// One pass, sources first: each node is offered to the rules once.
    pub fn walk(mut self) -> Self {
        self.order = Order::Walk;
        self
    }
    /// Gives up after this many applied rules.
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }

    /// # Errors
    /// The limit was reached, or a rule made a node that is not allowed in its stage ([`super::checked()`]).
    pub fn run(self, sink: &UOp, ctx: &mut C) -> Result<UOp, RewriteError> {
        Driver::new(self, Memo::new(), Faults::End).run(sink, ctx)
    }
}

/// Rewrites sources first, by rules without a context. It cannot fail: at the limit it leaves the rest unchanged, and a
/// malformed node is reported by [`super::checked()`] when the phase ends.
pub(super) fn settle(sink: &UOp, rules: &PatternMatcher, limit: usize, known: impl Known) -> UOp {
    let settled = Driver::new(Rewriter::new(rules).limit(limit), known, Faults::Note).run(sink, &mut ());
    settled.unwrap_or_else(|_| sink.clone())
}

/// The final forms of nodes, as far as a rewrite has found them.
pub(super) trait Known {
    /// The final form of `u`, if known.
    fn get(&self, u: &UOp) -> Option<UOp>;
    /// Whether the final form is known.
    fn has(&self, u: &UOp) -> bool;
    /// Whether `u` is known to change.
    fn changes(&self, u: &UOp) -> bool;
    /// Records that `u` becomes `v`.
    fn set(&mut self, u: &UOp, v: &UOp);

    /// The final form of `u`; `u` itself if unknown.
    fn of(&self, u: &UOp) -> UOp {
        self.get(u).unwrap_or_else(|| u.clone())
    }
}

impl Known for Memo<UOp> {
    fn get(&self, u: &UOp) -> Option<UOp> {
        Memo::get(self, u).cloned()
    }
    fn has(&self, u: &UOp) -> bool {
        Memo::has(self, u)
    }
    fn changes(&self, u: &UOp) -> bool {
        Memo::get(self, u).is_some_and(|v| v != u)
    }
    fn set(&mut self, u: &UOp, v: &UOp) {
        self.insert(u, v.clone());
    }
}

/// What to do at a malformed node or at the limit.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Faults {
    /// The rewrite ends with the error.
    End,
    /// The rewrite continues; malformed nodes are recorded.
    Note,
}

enum Todo {
    Visit(UOp),
    /// Build the node: its sources are done.
    Build(UOp),
    /// Build this sum: its parts are done.
    Join(UOp, Box<Linear>),
    /// The first two become the final form of the third.
    Link(UOp, UOp, UOp),
}

struct Driver<'a, C, K> {
    options: Rewriter<'a, C>,
    known: K,
    faults: Faults,
    stack: Vec<Todo>,
    observers: Observers,
    applied: usize,
    last: Vec<&'static str>,
}

impl<'a, C, K: Known> Driver<'a, C, K> {
    fn new(options: Rewriter<'a, C>, known: K, faults: Faults) -> Self {
        Driver { options, known, faults, stack: vec![], observers: Observers::now(), applied: 0, last: vec![] }
    }

    fn run(mut self, sink: &UOp, ctx: &mut C) -> Result<UOp, RewriteError> {
        self.stack.push(Todo::Visit(sink.clone()));
        while let Some(t) = self.stack.pop() {
            match t {
                Todo::Visit(u) if self.known.has(&u) => {}
                Todo::Visit(u) if self.options.order == Order::TopDown => self.visit_top_down(u, ctx)?,
                Todo::Visit(u) => self.visit(u),
                Todo::Build(u) => self.build(u, ctx)?,
                Todo::Join(u, parts) => self.join(u, &parts)?,
                Todo::Link(u, n, m) => {
                    // A Link is below the Visit of its third node on the stack.
                    let v = self.known.of(&m);
                    self.known.set(&n, &v);
                    self.known.set(&u, &v);
                }
            }
        }
        Ok(self.known.of(sink))
    }

    /// Visits the sources first; for a sum that is joined at once, its parts.
    fn visit(&mut self, u: UOp) {
        let joined = self.options.rules.joined().filter(|j| j.roots.has(u.op()));
        let Some(parts) = joined.and_then(|j| (j.parts)(&u)) else { return self.descend(u) };
        let known = &self.known;
        let open: Vec<Todo> =
            parts.terms.iter().filter(|t| !known.has(&t.0)).map(|t| Todo::Visit(t.0.clone())).collect();
        self.stack.push(Todo::Join(u, Box::new(parts)));
        self.stack.extend(open);
    }

    fn descend(&mut self, u: UOp) {
        self.stack.push(Todo::Build(u.clone()));
        let open = u.src().iter().rev().filter(|s| !self.known.has(s));
        self.stack.extend(open.map(|s| Todo::Visit(s.clone())));
    }

    fn visit_top_down(&mut self, u: UOp, ctx: &mut C) -> Result<(), RewriteError> {
        let mut n = u.clone();
        while let Some(m) = self.try_rules(&n, ctx)? {
            n = m;
        }
        if n != u {
            self.stack.push(Todo::Link(u.clone(), u, n.clone()));
            if self.known.has(&n) {
                return Ok(());
            }
        }
        self.descend(n);
        Ok(())
    }

    fn join(&mut self, u: UOp, parts: &Linear) -> Result<(), RewriteError> {
        let Some(joined) = self.options.rules.joined() else { return Ok(()) };
        let Some(m) = (joined.join)(parts, &|t| self.known.of(t)) else {
            self.descend(u);
            return Ok(());
        };
        self.report(joined.name, &u, &m)?;
        self.known.set(&m, &m);
        self.known.set(&u, &m);
        Ok(())
    }

    fn build(&mut self, u: UOp, ctx: &mut C) -> Result<(), RewriteError> {
        // The sources of a node on the stack were visited before it is built.
        let n = if u.src().iter().any(|s| self.known.changes(s)) {
            u.with_src(u.src().iter().map(|s| self.known.of(s)).collect::<Srcs>())
        } else {
            u.clone()
        };
        let order = self.options.order;
        if order == Order::TopDown {
            self.known.set(&u, &n);
            return Ok(());
        }
        if n != u
            && order == Order::SourcesFirst
            && let Some(v) = self.known.get(&n)
        {
            self.known.set(&u, &v);
            return Ok(());
        }
        match self.try_rules(&n, ctx)? {
            None => {
                if order == Order::SourcesFirst {
                    self.known.set(&n, &n);
                }
                self.known.set(&u, &n);
            }
            Some(m) if order == Order::Walk => self.known.set(&u, &m),
            Some(m) => {
                self.stack.push(Todo::Link(u, n, m.clone()));
                self.stack.push(Todo::Visit(m));
            }
        }
        Ok(())
    }

    fn try_rules(&mut self, u: &UOp, ctx: &mut C) -> Result<Option<UOp>, RewriteError> {
        if self.applied >= self.options.limit && self.faults == Faults::Note {
            return Ok(None);
        }
        let Some((n, rule)) = self.options.rules.rewrite(u, ctx) else { return Ok(None) };
        if let (true, Faults::End, Arg::Str(text)) = (n.is_fault(), self.faults, n.arg()) {
            return Err(RewriteError::Malformed { rule, error: text.to_string() });
        }
        self.applied += 1;
        let limit = self.options.limit;
        if self.applied + REMEMBERED > limit + 1 {
            self.last.push(rule);
        }
        if self.applied > limit {
            return Err(RewriteError::Endless { limit, last: std::mem::take(&mut self.last) });
        }
        self.report(rule, u, &n)?;
        Ok(Some(n))
    }

    fn report(&self, rule: &'static str, before: &UOp, after: &UOp) -> Result<(), RewriteError> {
        match self.observers.applied(rule, before, after) {
            Err(fault) if self.faults == Faults::Note => {
                checked::note(fault);
                Ok(())
            }
            passed => passed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Pat, Rule, traced};

    fn fold() -> PatternMatcher {
        PatternMatcher::new([
            Rule::new("add-consts", (Pat::var("x") + Pat::cvar("c")) + Pat::cvar("d"), |m| {
                Some(&m["x"] + (m.int("c")? + m.int("d")?) as i64)
            }),
            Rule::new("mul-one", Pat::var("x") * 1, |m| Some(m["x"].clone())),
        ])
    }

    #[test]
    fn results_are_rewritten_again_and_steps_are_traced() {
        let a = UOp::var("a", 0, 9);
        let e = &(&(&(&a + 1) * 1) + 2) + 3;
        let (sum, t) = traced(|| graph_rewrite(&e, &fold(), &mut ()).unwrap());
        assert_eq!(sum, &a + 6);
        assert_eq!(t.counts(), vec![("add-consts", 2), ("mul-one", 1)]);
    }

    #[test]
    fn a_walk_offers_each_node_once() {
        let (a, b) = (UOp::var("a", 0, 9), UOp::var("b", 0, 9));
        let pm: PatternMatcher = PatternMatcher::new([
            Rule::new("ab", Pat::op(Op::Var).arg(a.arg().clone()), {
                let b = b.clone();
                move |_| Some(b.clone())
            }),
            Rule::new("b1", Pat::op(Op::Var).arg(b.arg().clone()).named("b"), |m| Some(&m["b"] + 1)),
        ]);
        assert_eq!(Rewriter::new(&pm).walk().run(&(&a * 2), &mut ()).unwrap(), &b * 2);
    }

    #[test]
    fn top_down_sees_the_node_before_its_sources_change() {
        let a = UOp::var("a", 0, 9);
        let pm: PatternMatcher = PatternMatcher::new([
            Rule::new("outer", Pat::op(Op::Neg).src([Pat::op(Op::Neg).src([Pat::var("x")])]), |m| Some(m["x"].clone())),
            Rule::new("inner", Pat::op(Op::Neg).src([Pat::op(Op::Var).named("x")]), |m| Some(&m["x"] * -1)),
        ]);
        let e = -&(-&a);
        assert_eq!(Rewriter::new(&pm).top_down().run(&e, &mut ()).unwrap(), a);
        assert_eq!(graph_rewrite(&e, &pm, &mut ()).unwrap(), -&(&a * -1));
    }

    #[test]
    fn endless_rules_end_with_an_error_that_names_them() {
        let (a, b) = (UOp::var("a", 0, 9), UOp::var("b", 0, 9));
        let pm: PatternMatcher =
            PatternMatcher::new([Rule::new("swap", Pat::op(Op::Add).src([Pat::var("x"), Pat::var("y")]), |m| {
                Some(&m["y"] + &m["x"])
            })]);
        let e = Rewriter::new(&pm).limit(100).run(&(&a + &b), &mut ()).unwrap_err();
        assert!(
            matches!(&e, RewriteError::Endless { limit: 100, last } if last.len() == 8 && last[0] == "swap"),
            "{e}"
        );
    }

    #[test]
    fn a_chain_of_a_million_nodes_is_rewritten_without_recursion() {
        let x = UOp::var("deep", 0, 1);
        let mut chain = x.clone();
        for _ in 0..1_000_000 {
            chain = &chain + &x;
        }
        let y = UOp::var("deeper", 0, 1);
        let pm: PatternMatcher =
            PatternMatcher::new([Rule::new("v", Pat::op(Op::Var).arg(x.arg().clone()), move |_| Some(y.clone()))]);
        assert_eq!(graph_rewrite(&chain, &pm, &mut ()).unwrap().toposort().len(), 1_000_001);
    }
}
