//! Patterns over nodes, rules made of them, and lists of rules indexed by root op.
//!
//! A [`Pat`] describes one node: the ops it may have, its scalar types, its argument, its sources (fixed, in any order,
//! repeated, with more behind them), and a name to capture it by. A name that stands twice must be the same node twice.
//! A [`Rule`] has a name, a pattern, a condition and a builder; a [`PatternMatcher`] is an ordered list of rules that tries
//! only those whose root op fits and whose source ops are all present. Nothing is allocated until a builder runs.
//!
//! ```
//! use doorbell::uop::{Op, Pat, PatternMatcher, Rule, UOp};
//! let sugar = Pat::var("x") + 3;
//! let long = Pat::op(Op::Add).any_order([Pat::any().named("x"), Pat::op(Op::Const).value(3)]);
//! assert_eq!(sugar, long);
//! let pm: PatternMatcher = PatternMatcher::new([Rule::new("add-3", sugar, |m| Some(&m["x"] + 4))]);
//! let a = UOp::var("a", 0, 9);
//! assert_eq!(pm.rewrite(&(&a + 3), &mut ()), Some((&a + 4, "add-3")));
//! ```

use super::{Arg, ConstVal, Op, Scalar, UOp};
use std::ops::Index;
use std::sync::Arc;

/// Captures one pattern may have.
pub const MAX_CAPTURES: usize = 8;

/// A set of ops.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OpSet(u128);

impl OpSet {
    pub const NONE: OpSet = OpSet(0);
    pub const ALL: OpSet = OpSet((1 << Op::COUNT) - 1);
    pub const UNARY: OpSet = OpSet::of(&[Op::Neg, Op::Recip, Op::Sqrt, Op::Exp2, Op::Log2, Op::Sin, Op::Trunc]);
    pub const COMPARISON: OpSet = OpSet::of(&[Op::CmpLt, Op::CmpNe, Op::CmpEq]);
    pub const COMMUTATIVE: OpSet =
        OpSet::of(&[Op::Add, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor, Op::CmpNe, Op::CmpEq]);
    pub const ASSOCIATIVE: OpSet = OpSet::of(&[Op::Add, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor]);
    pub const BINARY: OpSet = OpSet::of(&[
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::FDiv,
        Op::Max,
        Op::CDiv,
        Op::CMod,
        Op::FloorDiv,
        Op::FloorMod,
        Op::Pow,
        Op::Shl,
        Op::Shr,
        Op::And,
        Op::Or,
        Op::Xor,
        Op::CmpLt,
        Op::CmpNe,
        Op::CmpEq,
        Op::Threefry,
    ]);
    pub const TERNARY: OpSet = OpSet::of(&[Op::Where, Op::MulAcc]);
    pub const ALU: OpSet = OpSet::UNARY.union(OpSet::BINARY).union(OpSet::TERNARY);
    pub const ELEMENTWISE: OpSet = OpSet::ALU.union(OpSet::of(&[Op::Cast, Op::Bitcast]));
    pub const MOVEMENT: OpSet = OpSet::of(&[Op::Reshape, Op::Permute, Op::Expand, Op::Pad, Op::Shrink, Op::Flip]);

    pub const fn of(ops: &[Op]) -> OpSet {
        let (mut bits, mut k) = (0, 0);
        while k < ops.len() {
            bits |= 1 << ops[k] as u8;
            k += 1;
        }
        OpSet(bits)
    }
    pub const fn has(self, op: Op) -> bool {
        self.0 >> op as u8 & 1 != 0
    }
    pub const fn union(self, o: OpSet) -> OpSet {
        OpSet(self.0 | o.0)
    }
    pub const fn minus(self, o: OpSet) -> OpSet {
        OpSet(self.0 & !o.0)
    }
    pub const fn contains(self, o: OpSet) -> bool {
        o.0 & !self.0 == 0
    }
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The ops of these nodes.
    pub fn of_nodes(nodes: &[UOp]) -> OpSet {
        nodes.iter().fold(OpSet::NONE, |s, u| OpSet(s.0 | 1 << u.op() as u8))
    }
}
impl From<Op> for OpSet {
    fn from(op: Op) -> OpSet {
        OpSet::of(&[op])
    }
}
impl<const N: usize> From<[Op; N]> for OpSet {
    fn from(ops: [Op; N]) -> OpSet {
        OpSet::of(&ops)
    }
}

/// A set of scalar types.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Scalars(u32);

impl Scalars {
    pub const ALL: Scalars = Scalars(u32::MAX);
    pub const BOOL: Scalars = Scalars::of(&[Scalar::Bool]);
    pub const INDEX: Scalars = Scalars::of(&[Scalar::WeakInt]);
    pub const INTS: Scalars = Scalars::of(&[
        Scalar::WeakInt,
        Scalar::I8,
        Scalar::U8,
        Scalar::I16,
        Scalar::U16,
        Scalar::I32,
        Scalar::U32,
        Scalar::I64,
        Scalar::U64,
    ]);
    pub const FLOATS: Scalars = Scalars::of(&[
        Scalar::WeakFloat,
        Scalar::F8E4M3,
        Scalar::F8E5M2,
        Scalar::F16,
        Scalar::BF16,
        Scalar::F32,
        Scalar::F64,
    ]);
    pub const fn of(types: &[Scalar]) -> Scalars {
        let (mut bits, mut k) = (0, 0);
        while k < types.len() {
            bits |= 1 << types[k] as u32;
            k += 1;
        }
        Scalars(bits)
    }
    pub const fn has(self, s: Scalar) -> bool {
        self.0 >> s as u32 & 1 != 0
    }
}
impl From<Scalar> for Scalars {
    fn from(s: Scalar) -> Scalars {
        Scalars::of(&[s])
    }
}

/// What the sources must be.
#[derive(Clone, PartialEq, Debug)]
enum SrcPat {
    Any,
    /// These in this order; `extra`: more may follow.
    Fixed {
        pats: Box<[Pat]>,
        extra: bool,
    },
    AnyOrder(Box<[Pat]>),
    /// All of them, however many.
    Repeat(Box<Pat>),
}

/// A pattern for one node and what is below it.
#[derive(Clone, PartialEq, Debug)]
pub struct Pat {
    ops: OpSet,
    scalars: Scalars,
    arg: Option<Arg>,
    value: Option<ConstVal>,
    src: SrcPat,
    name: Option<&'static str>,
    slot: u8,
}

impl Pat {
    /// Any node.
    pub fn any() -> Pat {
        Pat::op(OpSet::ALL)
    }
    /// Any node, captured.
    pub fn var(name: &'static str) -> Pat {
        Pat::any().named(name)
    }
    /// A node with one of these ops.
    pub fn op(ops: impl Into<OpSet>) -> Pat {
        let (scalars, src) = (Scalars::ALL, SrcPat::Any);
        Pat { ops: ops.into(), scalars, arg: None, value: None, src, name: None, slot: 0 }
    }
    /// Any constant, captured.
    pub fn cvar(name: &'static str) -> Pat {
        Pat::op(Op::Const).named(name)
    }
    /// The constant `v` of any type (true is 1; a float must have the same sign of zero).
    pub fn constant(v: impl Into<ConstVal>) -> Pat {
        Pat::op(Op::Const).value(v)
    }
    pub fn named(mut self, name: &'static str) -> Pat {
        self.name = Some(name);
        self
    }
    pub fn value(mut self, v: impl Into<ConstVal>) -> Pat {
        self.value = Some(v.into());
        self
    }
    /// Only these scalar types.
    pub fn dtype(mut self, scalars: impl Into<Scalars>) -> Pat {
        self.scalars = scalars.into();
        self
    }
    pub fn arg(mut self, arg: Arg) -> Pat {
        self.arg = Some(arg);
        self
    }
    /// Exactly these sources in this order.
    pub fn src<const N: usize>(mut self, pats: [Pat; N]) -> Pat {
        self.src = SrcPat::Fixed { pats: Box::new(pats), extra: false };
        self
    }
    /// These sources first, perhaps others behind them.
    pub fn src_then_more<const N: usize>(mut self, pats: [Pat; N]) -> Pat {
        self.src = SrcPat::Fixed { pats: Box::new(pats), extra: true };
        self
    }
    /// These sources in any order.
    pub fn any_order<const N: usize>(mut self, pats: [Pat; N]) -> Pat {
        self.src = SrcPat::AnyOrder(Box::new(pats));
        self
    }
    /// Every source fits `p`.
    pub fn repeat(mut self, p: Pat) -> Pat {
        self.src = SrcPat::Repeat(Box::new(p));
        self
    }
    /// `op(self, o)`; in any order if the op is commutative.
    pub fn alu(self, op: Op, o: impl Into<Pat>) -> Pat {
        let pats = [self, o.into()];
        if op.is_commutative() { Pat::op(op).any_order(pats) } else { Pat::op(op).src(pats) }
    }
    pub fn unary(self, op: Op) -> Pat {
        Pat::op(op).src([self])
    }
    pub fn lt(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::CmpLt, o)
    }
    pub fn ne(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::CmpNe, o)
    }
    /// Logical not, spelt as [`UOp::not`] spells it.
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Pat {
        self.ne(Pat::constant(true)).dtype(Scalar::Bool)
    }
    pub fn max(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::Max, o)
    }
    pub fn select(self, a: impl Into<Pat>, b: impl Into<Pat>) -> Pat {
        Pat::op(Op::Where).src([self, a.into(), b.into()])
    }
    pub fn cast(self) -> Pat {
        self.unary(Op::Cast)
    }

    /// Ops that must be among the sources of a node that fits.
    fn needed(&self) -> OpSet {
        let pats: &[Pat] = match &self.src {
            SrcPat::Fixed { pats, .. } | SrcPat::AnyOrder(pats) => pats,
            _ => &[],
        };
        pats.iter().filter(|p| p.ops.len() == 1).fold(OpSet::NONE, |s, p| s.union(p.ops))
    }
    /// Numbers the captures; equal names get equal numbers.
    fn number(&mut self, names: &mut Vec<&'static str>) {
        if let Some(n) = self.name {
            let at = names.iter().position(|x| *x == n).unwrap_or_else(|| {
                names.push(n);
                names.len() - 1
            });
            self.slot = at as u8;
        }
        match &mut self.src {
            SrcPat::Any => {}
            SrcPat::Fixed { pats, .. } | SrcPat::AnyOrder(pats) => pats.iter_mut().for_each(|p| p.number(names)),
            SrcPat::Repeat(p) => p.number(names),
        }
    }
}

impl From<i64> for Pat {
    fn from(i: i64) -> Pat {
        Pat::constant(i)
    }
}

macro_rules! sugar {
    ($($tr:ident $f:ident $op:expr;)*) => {$(
        impl<P: Into<Pat>> std::ops::$tr<P> for Pat {
            type Output = Pat;
            fn $f(self, o: P) -> Pat { self.alu($op, o) }
        }
    )*};
}
sugar! {
    Add add Op::Add; Sub sub Op::Sub; Mul mul Op::Mul; Div div Op::FloorDiv; Rem rem Op::FloorMod;
    Shl shl Op::Shl; Shr shr Op::Shr; BitAnd bitand Op::And; BitOr bitor Op::Or; BitXor bitxor Op::Xor;
}
impl std::ops::Neg for Pat {
    type Output = Pat;
    fn neg(self) -> Pat {
        self.unary(Op::Neg)
    }
}

type Captures<'a> = [Option<&'a UOp>; MAX_CAPTURES];

/// A node that fitted a pattern, and what the names stand for.
pub struct Match<'a> {
    root: &'a UOp,
    names: &'a [&'static str],
    caps: &'a Captures<'a>,
}

impl Match<'_> {
    pub fn root(&self) -> &UOp {
        self.root
    }
    pub fn get(&self, name: &str) -> Option<&UOp> {
        self.names.iter().position(|n| *n == name).and_then(|k| self.caps[k])
    }
    /// Value of a captured constant.
    pub fn value(&self, name: &str) -> Option<ConstVal> {
        self.get(name).and_then(UOp::as_const)
    }
    /// Value of a captured integer constant.
    pub fn int(&self, name: &str) -> Option<i128> {
        self.value(name).and_then(ConstVal::as_int)
    }
}
/// # Panics
/// When the pattern has no such name: a mistake in the rule, which its first match in a test shows.
impl Index<&str> for Match<'_> {
    type Output = UOp;
    fn index(&self, name: &str) -> &UOp {
        // PANIC: see above; rules are static tables.
        self.get(name).unwrap_or_else(|| panic!("the pattern captures no '{name}'"))
    }
}

/// What is still to be matched, as a list on the stack.
enum Next<'a, 'n> {
    Done,
    /// Patterns and nodes side by side.
    Row {
        pats: &'a [Pat],
        nodes: &'a [UOp],
        next: &'n Next<'a, 'n>,
    },
    /// Patterns that may take any node whose bit in `used` is clear.
    Free {
        pats: &'a [Pat],
        nodes: &'a [UOp],
        used: u32,
        next: &'n Next<'a, 'n>,
    },
    All {
        pat: &'a Pat,
        nodes: &'a [UOp],
        next: &'n Next<'a, 'n>,
    },
}

struct Search<'a, 'f> {
    caps: Captures<'a>,
    /// Called with complete captures; true ends the search.
    found: &'f mut dyn FnMut(&Captures<'a>) -> bool,
}

fn same_value(a: ConstVal, b: ConstVal) -> bool {
    match (a, b) {
        (ConstVal::Float(x), ConstVal::Float(y)) => x.to_bits() == y.to_bits(),
        (ConstVal::Float(x), o) | (o, ConstVal::Float(x)) => x.to_bits() == o.as_f64().to_bits(),
        _ => a.as_int() == b.as_int(),
    }
}

impl<'a> Search<'a, '_> {
    fn node(&mut self, p: &'a Pat, u: &'a UOp, next: &Next<'a, '_>) -> bool {
        if !p.ops.has(u.op()) || !p.scalars.has(u.dtype().scalar) {
            return false;
        }
        if let Some(v) = p.value
            && !u.as_const().is_some_and(|c| same_value(c, v))
        {
            return false;
        }
        if p.arg.as_ref().is_some_and(|a| a != u.arg()) {
            return false;
        }
        if p.name.is_none() {
            return self.sources(p, u, next);
        }
        let slot = p.slot as usize;
        match self.caps[slot] {
            Some(seen) => seen == u && self.sources(p, u, next),
            None => {
                self.caps[slot] = Some(u);
                let hit = self.sources(p, u, next);
                if !hit {
                    self.caps[slot] = None;
                }
                hit
            }
        }
    }
    fn sources(&mut self, p: &'a Pat, u: &'a UOp, next: &Next<'a, '_>) -> bool {
        let nodes = u.src();
        match &p.src {
            SrcPat::Any => self.go(next),
            SrcPat::Fixed { pats, extra } => {
                (nodes.len() == pats.len() || *extra && nodes.len() > pats.len())
                    && self.go(&Next::Row { pats, nodes, next })
            }
            SrcPat::AnyOrder(pats) => nodes.len() == pats.len() && self.go(&Next::Free { pats, nodes, used: 0, next }),
            SrcPat::Repeat(pat) => self.go(&Next::All { pat, nodes, next }),
        }
    }
    fn go(&mut self, next: &Next<'a, '_>) -> bool {
        match next {
            Next::Done => (self.found)(&self.caps),
            Next::Row { pats, nodes, next } => match (pats.split_first(), nodes.split_first()) {
                (Some((p, pats)), Some((u, nodes))) => self.node(p, u, &Next::Row { pats, nodes, next }),
                _ => self.go(next),
            },
            Next::Free { pats, nodes, used, next } => match pats.split_first() {
                None => self.go(next),
                Some((p, pats)) => nodes.iter().enumerate().take(32).any(|(k, u)| {
                    used >> k & 1 == 0 && self.node(p, u, &Next::Free { pats, nodes, used: used | 1 << k, next })
                }),
            },
            Next::All { pat, nodes, next } => match nodes.split_first() {
                None => self.go(next),
                Some((u, nodes)) => self.node(pat, u, &Next::All { pat, nodes, next }),
            },
        }
    }
}

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

/// A named rewrite. `C` is what the builder may read and write besides the node.
pub struct Rule<C = ()> {
    pub name: &'static str,
    roots: OpSet,
    need: OpSet,
    body: Body<C>,
}
impl<C> Clone for Rule<C> {
    fn clone(&self) -> Self {
        Rule { name: self.name, roots: self.roots, need: self.need, body: self.body.clone() }
    }
}

impl<C> Rule<C> {
    /// `pat` → `make`; `None` from `make` means that the rule does not apply (other ways to fit are tried).
    pub fn new(name: &'static str, pat: Pat, make: impl Fn(&Match) -> Option<UOp> + Send + Sync + 'static) -> Rule<C> {
        Rule::with_ctx(name, pat, move |m, _| make(m))
    }
    /// As [`Rule::new`] where `when` holds.
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
        Rule { name, roots, need, body: Body::Pattern { pat, names: names.into(), make: Arc::new(make) } }
    }
    /// A rule whose pattern is plain code: `f` looks at any node with one of these ops.
    pub fn on(
        name: &'static str,
        roots: impl Into<OpSet>,
        f: impl Fn(&UOp) -> Option<UOp> + Send + Sync + 'static,
    ) -> Rule<C> {
        Rule { name, roots: roots.into(), need: OpSet::NONE, body: Body::Plain(Arc::new(move |u, _| f(u))) }
    }
    /// As [`Rule::on`] with the context.
    pub fn on_ctx(
        name: &'static str,
        roots: impl Into<OpSet>,
        f: impl Fn(&UOp, &mut C) -> Option<UOp> + Send + Sync + 'static,
    ) -> Rule<C> {
        Rule { name, roots: roots.into(), need: OpSet::NONE, body: Body::Plain(Arc::new(f)) }
    }
    /// What this rule makes of `u`, if it applies and changes it.
    pub fn apply(&self, u: &UOp, ctx: &mut C) -> Option<UOp> {
        match &self.body {
            Body::Plain(f) => f(u, ctx).filter(|n| n != u),
            Body::Pattern { pat, names, make } => {
                let mut made = None;
                let mut found = |caps: &Captures| {
                    made = make(&Match { root: u, names, caps }, ctx).filter(|n| n != u);
                    made.is_some()
                };
                Search { caps: [None; MAX_CAPTURES], found: &mut found }.node(pat, u, &Next::Done);
                made
            }
        }
    }
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
        Rule { name: self.name, roots: self.roots, need: self.need, body }
    }
}

/// An ordered list of rules; the first that applies wins.
pub struct PatternMatcher<C = ()> {
    rules: Vec<Rule<C>>,
    /// For each op the rules that may apply at it: (ops their sources must include, number).
    by_op: Vec<Vec<(OpSet, u32)>>,
}
impl<C> Clone for PatternMatcher<C> {
    fn clone(&self) -> Self {
        PatternMatcher { rules: self.rules.clone(), by_op: self.by_op.clone() }
    }
}

impl<C> PatternMatcher<C> {
    pub fn new(rules: impl IntoIterator<Item = Rule<C>>) -> PatternMatcher<C> {
        let rules: Vec<Rule<C>> = rules.into_iter().collect();
        let by_op = (0..Op::COUNT)
            .map(|op| {
                let here = rules.iter().enumerate().filter(|(_, r)| r.roots.0 >> op & 1 != 0);
                here.map(|(k, r)| (r.need, k as u32)).collect()
            })
            .collect();
        PatternMatcher { rules, by_op }
    }
    /// These rules, then those of `o`.
    pub fn concat(&self, o: &PatternMatcher<C>) -> PatternMatcher<C> {
        PatternMatcher::new(self.rules.iter().chain(&o.rules).cloned())
    }
    pub fn rules(&self) -> &[Rule<C>] {
        &self.rules
    }
    /// What the first rule that applies makes of this node (not of those below it), with the rule's name.
    pub fn rewrite(&self, u: &UOp, ctx: &mut C) -> Option<(UOp, &'static str)> {
        let list = &self.by_op[u.op() as usize];
        if list.is_empty() {
            return None;
        }
        let have = OpSet::of_nodes(u.src());
        list.iter().filter(|(need, _)| have.contains(*need)).find_map(|(_, k)| {
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
    use crate::uop::DType;

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
