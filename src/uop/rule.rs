//! Rules made of patterns, and lists of rules indexed by root op.
//!
//! A [`Rule`] has a name, a pattern, a condition and a builder; a [`PatternMatcher`] is an ordered list of rules that
//! tries only those whose root op fits and whose source ops are all present. Nothing is allocated until a builder runs.

use super::matching::{Captures, MAX_CAPTURES, Match, Next, Search};
use super::symbolic::Linear;
use super::{Op, OpSet, Pat, UOp};
use std::cell::OnceCell;
use std::panic::Location;
use std::sync::Arc;

type Make<C> = Arc<dyn Fn(&Match, &mut C) -> Option<UOp> + Send + Sync>;
type Plain<C> = Arc<dyn Fn(&UOp, &mut C) -> Option<UOp> + Send + Sync>;

enum Body<C> {
    Pattern { pat: Pat, names: Arc<[&'static str]>, make: Make<C> },
    Plain(Plain<C>),
}
impl<C> Clone for Body<C> {
    fn clone(&self) -> Self {
        match self {
            Body::Pattern { pat, names, make } => {
                Body::Pattern { pat: pat.clone(), names: names.clone(), make: make.clone() }
            }
            Body::Plain(f) => Body::Plain(f.clone()),
        }
    }
}

/// A named rewrite. `C` is the context that the builder may read and write.
pub struct Rule<C = ()> {
    /// Its name in traces, lists and errors.
    pub name: &'static str,
    /// A one-line description, for lists.
    pub about: &'static str,
    /// Where it is defined.
    pub at: &'static Location<'static>,
    roots: OpSet,
    need: OpSet,
    body: Body<C>,
}
impl<C> Clone for Rule<C> {
    fn clone(&self) -> Self {
        Rule {
            name: self.name,
            about: self.about,
            at: self.at,
            roots: self.roots,
            need: self.need,
            body: self.body.clone(),
        }
    }
}

impl<C> Rule<C> {
    /// `pat` → `make`; `None` from `make` means that the rule does not apply (other matches are tried).
    #[track_caller]
    pub fn new(name: &'static str, pat: Pat, make: impl Fn(&Match) -> Option<UOp> + Send + Sync + 'static) -> Rule<C> {
        Rule::with_ctx(name, pat, move |m, _| make(m))
    }
    /// As [`Rule::new`] where `when` holds.
    #[track_caller]
    pub fn when(
        name: &'static str,
        pat: Pat,
        when: impl Fn(&Match) -> bool + Send + Sync + 'static,
        make: impl Fn(&Match) -> UOp + Send + Sync + 'static,
    ) -> Rule<C> {
        Rule::with_ctx(name, pat, move |m, _| when(m).then(|| make(m)))
    }
    /// As [`Rule::new`] with access to the rewrite's context.
    ///
    /// # Panics
    /// When the pattern has more than [`MAX_CAPTURES`] names.
    #[track_caller]
    pub fn with_ctx(
        name: &'static str,
        mut pat: Pat,
        make: impl Fn(&Match, &mut C) -> Option<UOp> + Send + Sync + 'static,
    ) -> Rule<C> {
        let mut names = Vec::new();
        pat.number(&mut names);
        // PANIC: rules are static tables; the first use of the table in any test shows it.
        assert!(names.len() <= MAX_CAPTURES, "rule {name}: more than {MAX_CAPTURES} captures");
        let (roots, need) = (pat.ops, pat.needed());
        let body = Body::Pattern { pat, names: names.into(), make: Arc::new(make) };
        Rule { name, about: "", at: Location::caller(), roots, need, body }
    }
    /// A rule whose pattern is plain code: `f` looks at any node with one of these ops.
    #[track_caller]
    pub fn on(
        name: &'static str,
        roots: impl Into<OpSet>,
        f: impl Fn(&UOp) -> Option<UOp> + Send + Sync + 'static,
    ) -> Rule<C> {
        Rule::on_ctx(name, roots, move |u, _| f(u))
    }
    /// As [`Rule::on`] with the context.
    #[track_caller]
    pub fn on_ctx(
        name: &'static str,
        roots: impl Into<OpSet>,
        f: impl Fn(&UOp, &mut C) -> Option<UOp> + Send + Sync + 'static,
    ) -> Rule<C> {
        let body = Body::Plain(Arc::new(f));
        Rule { name, about: "", at: Location::caller(), roots: roots.into(), need: OpSet::NONE, body }
    }
    /// The same rule with a line that says what it does.
    pub fn about(mut self, about: &'static str) -> Rule<C> {
        self.about = about;
        self
    }
    /// This rule's description, as a member of `list`.
    pub fn info(&self, list: &'static str) -> RuleInfo {
        let pattern = matches!(self.body, Body::Pattern { .. });
        RuleInfo { list, name: self.name, about: self.about, at: self.at, roots: self.roots, pattern }
    }
    /// What this rule makes of `u`, if it applies and changes it. A builder that asks for a name which the pattern
    /// lacks makes a faulty node ([`UOp::fault`]).
    pub fn apply(&self, u: &UOp, ctx: &mut C) -> Option<UOp> {
        match &self.body {
            Body::Plain(f) => f(u, ctx).filter(|n| n != u),
            Body::Pattern { pat, names, make } => {
                let mut made = None;
                let mut found = |caps: &Captures| {
                    let m = Match { root: u, names, caps, missing: OnceCell::new() };
                    made = make(&m, ctx).filter(|n| n != u);
                    // A mistake in the rule: nothing that it made counts.
                    made = m.missing.into_inner().or(made.take());
                    made.is_some()
                };
                Search { caps: [None; MAX_CAPTURES], found: &mut found }.node(pat, u, &Next::Done);
                made
            }
        }
    }
}

/// A rule's description, as listed by `uop::rules` and `codegen::rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The list that the rule belongs to.
    pub list: &'static str,
    /// The rule's name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where it is defined.
    pub at: &'static Location<'static>,
    /// Root ops at which it is tried.
    pub roots: OpSet,
    /// Whether it is written as a pattern; otherwise it is a function.
    pub pattern: bool,
}

/// Builds a sum from its parts and their final forms.
type Join = fn(&Linear, &dyn Fn(&UOp) -> UOp) -> Option<UOp>;

/// A rule for a whole sum: its parts are rewritten once each, and the sum is built once, instead of at each of its
/// additions.
pub(super) struct Joined {
    pub name: &'static str,
    pub roots: OpSet,
    /// The parts of a node that is such a sum.
    pub parts: fn(&UOp) -> Option<Linear>,
    /// The sum of the parts, given their final forms; `None` if other rules may apply.
    pub join: Join,
}

impl Rule<()> {
    /// The same rule in a list with another context.
    pub fn lift<C: 'static>(&self) -> Rule<C> {
        let body = match self.body.clone() {
            Body::Pattern { pat, names, make } => {
                Body::Pattern { pat, names, make: Arc::new(move |m: &Match, _: &mut C| make(m, &mut ())) }
            }
            Body::Plain(f) => Body::Plain(Arc::new(move |u: &UOp, _: &mut C| f(u, &mut ()))),
        };
        Rule { name: self.name, about: self.about, at: self.at, roots: self.roots, need: self.need, body }
    }
}

/// The rules that may apply at one op.
#[derive(Clone)]
struct AtOp {
    /// The index of each rule, and ops that the sources must include.
    rules: Vec<(OpSet, u32)>,
    /// Whether any of them has requirements on the sources' ops.
    needs: bool,
}

/// An ordered list of rules; the first that applies wins.
pub struct PatternMatcher<C = ()> {
    rules: Vec<Rule<C>>,
    by_op: Vec<AtOp>,
    joined: Option<&'static Joined>,
}
impl<C> Clone for PatternMatcher<C> {
    fn clone(&self) -> Self {
        PatternMatcher { rules: self.rules.clone(), by_op: self.by_op.clone(), joined: self.joined }
    }
}

impl<C> PatternMatcher<C> {
    /// The list of these rules, tried in this order.
    pub fn new(rules: impl IntoIterator<Item = Rule<C>>) -> PatternMatcher<C> {
        let rules: Vec<Rule<C>> = rules.into_iter().collect();
        let by_op = (0..Op::COUNT)
            .map(|op| {
                let here = rules.iter().enumerate().filter(|(_, r)| r.roots.0 >> op & 1 != 0);
                let rules: Vec<(OpSet, u32)> = here.map(|(k, r)| (r.need, k as u32)).collect();
                AtOp { needs: rules.iter().any(|r| !r.0.is_empty()), rules }
            })
            .collect();
        PatternMatcher { rules, by_op, joined: None }
    }
    /// This list with a rule for whole sums.
    pub(super) fn joining(mut self, joined: &'static Joined) -> PatternMatcher<C> {
        self.joined = Some(joined);
        self
    }
    pub(super) fn joined(&self) -> Option<&'static Joined> {
        self.joined
    }
    /// These rules, then those of `o`; every node is offered to them, including those inside of sums.
    pub fn concat(&self, o: &PatternMatcher<C>) -> PatternMatcher<C> {
        PatternMatcher::new(self.rules.iter().chain(&o.rules).cloned())
    }
    /// The rules, in the order in which they are tried.
    pub fn rules(&self) -> &[Rule<C>] {
        &self.rules
    }
    /// What the first rule that applies makes of this node (not of those below it), with the rule's name.
    pub fn rewrite(&self, u: &UOp, ctx: &mut C) -> Option<(UOp, &'static str)> {
        let AtOp { rules, needs } = &self.by_op[u.op() as usize];
        let have = if *needs { OpSet::of_nodes(u.src()) } else { OpSet::NONE };
        rules.iter().filter(|(need, _)| have.contains(*need)).find_map(|(_, k)| {
            let r = &self.rules[*k as usize];
            r.apply(u, ctx).map(|n| (n, r.name))
        })
    }
}
impl PatternMatcher<()> {
    /// The same rules for a rewrite with another context.
    pub fn lift<C: 'static>(&self) -> PatternMatcher<C> {
        PatternMatcher::new(self.rules.iter().map(Rule::lift))
    }
}
impl<C> std::ops::Add<&PatternMatcher<C>> for &PatternMatcher<C> {
    type Output = PatternMatcher<C>;
    fn add(self, o: &PatternMatcher<C>) -> PatternMatcher<C> {
        self.concat(o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Scalars};

    fn fits(p: Pat, u: &UOp) -> bool {
        Rule::<()>::new("t", p, |_| Some(UOp::int(-77))).apply(u, &mut ()).is_some()
    }
    fn vars() -> (UOp, UOp) {
        (UOp::var("a", 0, 9), UOp::var("b", 0, 9))
    }

    #[test]
    fn a_name_twice_means_the_same_node_twice() {
        let (a, b) = vars();
        let p = Pat::var("x") * 2 + Pat::var("x");
        assert!(fits(p.clone(), &(&(&a * 2) + &a)));
        assert!(fits(p.clone(), &(&a + &(&a * 2))), "addition fits in any order");
        assert!(!fits(p, &(&(&a * 2) + &b)));
    }

    #[test]
    fn any_order_backtracks_over_captures() {
        let (a, b) = vars();
        // The first way to fit binds x to a; only x = b fits both factors.
        let e = &(&a * &b) + &(&b * 3);
        let r: Rule = Rule::new("t", Pat::var("x") * Pat::var("y") + Pat::var("x") * 3, |m| Some(m["x"].clone()));
        assert_eq!(r.apply(&e, &mut ()), Some(b));
    }

    #[test]
    fn a_condition_that_fails_makes_the_search_go_on() {
        let (a, b) = vars();
        let r: Rule = Rule::when("t", Pat::var("x") + Pat::var("y"), |m| m["x"].render() == "b", |m| m["x"].clone());
        assert_eq!(r.apply(&(&a + &b), &mut ()), Some(b));
    }

    #[test]
    fn fixed_order_extra_sources_and_repetition() {
        let (a, b) = vars();
        let d = &a - &b;
        assert!(fits(Pat::op(Op::Sub).src([Pat::op(Op::Var).arg(a.arg().clone()), Pat::any()]), &d));
        assert!(!fits(Pat::op(Op::Sub).src([Pat::any(), Pat::op(Op::Var).arg(a.arg().clone())]), &d));
        let sink = UOp::sink([a.clone(), b.clone(), a.clone()]);
        assert!(fits(Pat::op(Op::Sink).src_then_more([Pat::any()]), &sink));
        assert!(!fits(Pat::op(Op::Sink).src([Pat::any()]), &sink));
        assert!(fits(Pat::op(Op::Sink).repeat(Pat::op(Op::Var)), &sink));
        assert!(!fits(Pat::op(Op::Sink).repeat(Pat::op(Op::Const)), &sink));
    }

    #[test]
    fn constants_fit_by_value_and_zero_by_sign() {
        let x = UOp::constant(DType::F32, 0.0);
        assert!(fits(Pat::constant(0i64), &x));
        assert!(!fits(Pat::constant(0i64), &UOp::constant(DType::F32, -0.0)));
        assert!(fits(Pat::constant(1i64), &UOp::bool(true)));
        assert!(!fits(Pat::cvar("c").dtype(Scalars::INTS), &x));
    }

    #[test]
    fn contexts_are_written_and_lists_concatenate_in_order() {
        let (a, _) = vars();
        let seen = Rule::with_ctx("count", Pat::op(Op::Add), |_, n: &mut usize| {
            *n += 1;
            None
        });
        let first: PatternMatcher =
            PatternMatcher::new([Rule::new("one", Pat::var("x") + 1, |m| Some(m["x"].clone()))]);
        let all = &PatternMatcher::new([seen]) + &first.lift();
        let mut n = 0;
        assert_eq!(all.rewrite(&(&a + 1), &mut n), Some((a.clone(), "one")));
        assert_eq!(all.rewrite(&(&a * 1), &mut n), None);
        assert_eq!(n, 1);
    }
}
