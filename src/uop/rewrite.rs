//! The rewrite driver: applies a [`PatternMatcher`] to a whole graph until nothing applies, with an explicit stack.
//!
//! Three orders. [`graph_rewrite`]: sources first, then the node; what a rule makes is rewritten again, sources first.
//! [`graph_rewrite_top_down`]: the node first, to its fixpoint, then the sources of the result. [`graph_walk`]: every node
//! once after its sources; what a rule makes is final. In all of them equal nodes are rewritten once.

use super::checked::Watch;
use super::numbers::Memo;
use super::{PatternMatcher, Srcs, Trace, UOp};

/// Rules applied before a rewrite is given up as endless.
pub const DEFAULT_LIMIT: usize = 4_000_000;
const REMEMBERED: usize = 8;

#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewriteError {
    #[error("rewrite did not end after {limit} rules; the last ones: {}", last.join(", "))]
    Endless { limit: usize, last: Vec<&'static str> },
    #[error("rule {rule} made a malformed node: {error}")]
    Malformed { rule: &'static str, error: String },
}

/// Rewrites sources first, to the fixpoint.
pub fn graph_rewrite<C>(sink: &UOp, pm: &PatternMatcher<C>, ctx: &mut C) -> Result<UOp, RewriteError> {
    Rewriter::new(pm).run(sink, ctx)
}

/// Rewrites a node before its sources.
pub fn graph_rewrite_top_down<C>(sink: &UOp, pm: &PatternMatcher<C>, ctx: &mut C) -> Result<UOp, RewriteError> {
    Rewriter::new(pm).top_down().run(sink, ctx)
}

/// One pass, sources first: each node is offered to the rules once.
pub fn graph_walk<C>(sink: &UOp, pm: &PatternMatcher<C>, ctx: &mut C) -> Result<UOp, RewriteError> {
    Rewriter::new(pm).walk().run(sink, ctx)
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Order {
    SourcesFirst,
    TopDown,
    Walk,
}

/// A check of one node that a rule made (see `spec`).
pub type NodeCheck<'a> = &'a dyn Fn(&UOp) -> Result<(), String>;

/// A rewrite with its options.
pub struct Rewriter<'a, C = ()> {
    pm: &'a PatternMatcher<C>,
    order: Order,
    limit: usize,
    trace: Option<&'a mut Trace>,
    check: Option<NodeCheck<'a>>,
}

enum Todo {
    Visit(UOp),
    /// The sources are done.
    Build(UOp),
    /// The first two are what the third turns out to be.
    Link(UOp, UOp, UOp),
}

struct State<'r, 'a, C> {
    r: &'r mut Rewriter<'a, C>,
    done: Memo<UOp>,
    stack: Vec<Todo>,
    /// SPEC=2: what every node that a rule makes has to be.
    watch: Option<Watch>,
    applied: usize,
    last: Vec<&'static str>,
}

impl<'a, C> Rewriter<'a, C> {
    pub fn new(pm: &'a PatternMatcher<C>) -> Rewriter<'a, C> {
        Rewriter { pm, order: Order::SourcesFirst, limit: DEFAULT_LIMIT, trace: None, check: None }
    }
    pub fn top_down(mut self) -> Self {
        self.order = Order::TopDown;
        self
    }
    pub fn walk(mut self) -> Self {
        self.order = Order::Walk;
        self
    }
    /// Gives up after this many applied rules.
    pub fn limit(mut self, n: usize) -> Self {
        self.limit = n;
        self
    }
    /// Records every step.
    pub fn trace(mut self, t: &'a mut Trace) -> Self {
        self.trace = Some(t);
        self
    }
    /// Checks every node that a rule makes.
    pub fn check(mut self, f: NodeCheck<'a>) -> Self {
        self.check = Some(f);
        self
    }

    /// # Errors
    /// The limit was reached, or a node that a rule made did not pass the check.
    pub fn run(mut self, sink: &UOp, ctx: &mut C) -> Result<UOp, RewriteError> {
        let order = self.order;
        let stack = vec![Todo::Visit(sink.clone())];
        let watch = Watch::now();
        let mut s = State { r: &mut self, done: Memo::new(), stack, watch, applied: 0, last: Vec::new() };
        while let Some(t) = s.stack.pop() {
            match t {
                Todo::Visit(u) if s.done.get(&u).is_some() => {}
                Todo::Visit(u) if order == Order::TopDown => s.visit_top_down(u, ctx)?,
                Todo::Visit(u) => s.descend(u),
                Todo::Build(u) => s.build(u, ctx)?,
                Todo::Link(u, n, m) => {
                    // A Link lies below the Visit of its third node on the stack.
                    let v = s.done.get(&m).cloned().unwrap_or(m);
                    s.done.insert(&n, v.clone());
                    s.done.insert(&u, v);
                }
            }
        }
        Ok(s.done.get(sink).unwrap_or(sink).clone())
    }
}

impl<C> State<'_, '_, C> {
    fn descend(&mut self, u: UOp) {
        self.stack.push(Todo::Build(u.clone()));
        for x in u.src().iter().rev() {
            if self.done.get(x).is_none() {
                self.stack.push(Todo::Visit(x.clone()));
            }
        }
    }

    fn visit_top_down(&mut self, u: UOp, ctx: &mut C) -> Result<(), RewriteError> {
        let mut n = u.clone();
        while let Some(m) = self.try_rules(&n, ctx)? {
            n = m;
        }
        if n != u {
            self.stack.push(Todo::Link(u.clone(), u, n.clone()));
            if self.done.get(&n).is_some() {
                return Ok(());
            }
        }
        self.descend(n);
        Ok(())
    }

    fn build(&mut self, u: UOp, ctx: &mut C) -> Result<(), RewriteError> {
        // The sources of a node on the stack were visited before it is built.
        let n = if u.src().iter().all(|s| self.done.get(s).is_none_or(|v| v == s)) {
            u.clone()
        } else {
            u.with_src(u.src().iter().map(|s| self.done.get(s).unwrap_or(s).clone()).collect::<Srcs>())
        };
        if self.r.order == Order::TopDown {
            self.done.insert(&u, n);
            return Ok(());
        }
        if n != u
            && self.r.order == Order::SourcesFirst
            && let Some(v) = self.done.get(&n).cloned()
        {
            self.done.insert(&u, v);
            return Ok(());
        }
        match self.try_rules(&n, ctx)? {
            None => {
                if self.r.order == Order::SourcesFirst {
                    self.done.insert(&n, n.clone());
                }
                self.done.insert(&u, n);
            }
            Some(m) if self.r.order == Order::Walk => {
                self.done.insert(&u, m);
            }
            Some(m) => {
                self.stack.push(Todo::Link(u, n, m.clone()));
                self.stack.push(Todo::Visit(m));
            }
        }
        Ok(())
    }

    fn try_rules(&mut self, u: &UOp, ctx: &mut C) -> Result<Option<UOp>, RewriteError> {
        let Some((n, rule)) = self.r.pm.rewrite(u, ctx) else { return Ok(None) };
        self.applied += 1;
        if self.applied + REMEMBERED > self.r.limit + 1 {
            self.last.push(rule);
        }
        if self.applied > self.r.limit {
            return Err(RewriteError::Endless { limit: self.r.limit, last: std::mem::take(&mut self.last) });
        }
        if let Some(watch) = self.watch {
            watch.made(rule, u, &n)?;
        }
        if let Some(check) = self.r.check {
            check(&n).map_err(|error| RewriteError::Malformed { rule, error })?;
        }
        if let Some(t) = self.r.trace.as_deref_mut() {
            t.steps.push(super::trace::Step { rule, before: u.clone(), after: n.clone() });
        }
        Ok(Some(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Pat, Rule};

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
        let mut t = Trace::new();
        assert_eq!(Rewriter::new(&fold()).trace(&mut t).run(&e, &mut ()).unwrap(), &a + 6);
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
        assert_eq!(graph_walk(&(&a * 2), &pm, &mut ()).unwrap(), &b * 2);
    }

    #[test]
    fn top_down_sees_the_node_before_its_sources_change() {
        let a = UOp::var("a", 0, 9);
        let pm: PatternMatcher = PatternMatcher::new([
            Rule::new("outer", Pat::op(Op::Neg).src([Pat::op(Op::Neg).src([Pat::var("x")])]), |m| Some(m["x"].clone())),
            Rule::new("inner", Pat::op(Op::Neg).src([Pat::op(Op::Var).named("x")]), |m| Some(&m["x"] * -1)),
        ]);
        let e = -&(-&a);
        assert_eq!(graph_rewrite_top_down(&e, &pm, &mut ()).unwrap(), a);
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
