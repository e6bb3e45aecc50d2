//! Patterns over nodes.
//!
//! A [`Pat`] describes one node: the ops it may have, its scalar types, its argument, its sources (fixed, in any order,
//! repeated, with more after them), and a name to capture it by. A name that occurs twice must match the same node.
//! `matching` searches for the assignments of nodes to a pattern; `rule` makes rules of patterns.
//!
//! ```
//! use doorbell_uop::{Op, Pat, PatternMatcher, Rule, UOp};
//! let sugar = Pat::var("x") + 3;
//! let long = Pat::op(Op::Add).any_order([Pat::any().named("x"), Pat::op(Op::Const).value(3)]);
//! assert_eq!(sugar, long);
//! let pm: PatternMatcher = PatternMatcher::new([Rule::new("add-3", sugar, |m| Some(&m["x"] + 4))]);
//! let a = UOp::var("a", 0, 9);
//! assert_eq!(pm.rewrite(&(&a + 3), &mut ()), Some((&a + 4, "add-3")));
//! ```

use super::{Arg, ConstVal, Op, OpSet, Scalar, Scalars};

/// What the sources must be.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SrcPat {
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
    pub(super) ops: OpSet,
    pub(super) scalars: Scalars,
    pub(super) arg: Option<Arg>,
    pub(super) value: Option<ConstVal>,
    pub(super) src: SrcPat,
    pub(super) name: Option<&'static str>,
    pub(super) slot: u8,
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
    /// Captures the node by this name.
    pub fn named(mut self, name: &'static str) -> Pat {
        self.name = Some(name);
        self
    }
    /// Only this constant, compared as [`Pat::constant`] says.
    pub fn value(mut self, v: impl Into<ConstVal>) -> Pat {
        self.value = Some(v.into());
        self
    }
    /// Only these scalar types.
    pub fn dtype(mut self, scalars: impl Into<Scalars>) -> Pat {
        self.scalars = scalars.into();
        self
    }
    /// Only this argument.
    pub fn arg(mut self, arg: Arg) -> Pat {
        self.arg = Some(arg);
        self
    }
    /// Exactly these sources in this order.
    pub fn src<const N: usize>(mut self, pats: [Pat; N]) -> Pat {
        self.src = SrcPat::Fixed { pats: Box::new(pats), extra: false };
        self
    }
    /// These sources first, perhaps others after them.
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
    /// `op(self)`.
    pub fn unary(self, op: Op) -> Pat {
        Pat::op(op).src([self])
    }
    /// `self < o`.
    pub fn lt(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::CmpLt, o)
    }
    /// `self != o`, in any order.
    pub fn ne(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::CmpNe, o)
    }
    /// Logical not, spelt as `UOp::not` spells it.
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> Pat {
        self.ne(Pat::constant(true)).dtype(Scalar::Bool)
    }
    /// The larger of `self` and `o`, in any order.
    pub fn max(self, o: impl Into<Pat>) -> Pat {
        self.alu(Op::Max, o)
    }
    /// `if self { a } else { b }`
    pub fn select(self, a: impl Into<Pat>, b: impl Into<Pat>) -> Pat {
        Pat::op(Op::Where).src([self, a.into(), b.into()])
    }
    /// A Cast of `self` to any type.
    pub fn cast(self) -> Pat {
        self.unary(Op::Cast)
    }

    /// Ops that must be among the sources of a node that fits.
    pub(super) fn needed(&self) -> OpSet {
        let pats: &[Pat] = match &self.src {
            SrcPat::Fixed { pats, .. } | SrcPat::AnyOrder(pats) => pats,
            _ => &[],
        };
        pats.iter().filter(|p| p.ops.len() == 1).fold(OpSet::NONE, |s, p| s.union(p.ops))
    }
    /// Numbers the captures; equal names get equal numbers.
    pub(super) fn number(&mut self, names: &mut Vec<&'static str>) {
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
/// As `/` of nodes: rounded down of integers, the quotient of floats.
impl<P: Into<Pat>> std::ops::Div<P> for Pat {
    type Output = Pat;
    fn div(self, o: P) -> Pat {
        Pat::op([Op::FloorDiv, Op::FDiv]).src([self, o.into()])
    }
}
sugar! {
    Add add Op::Add; Sub sub Op::Sub; Mul mul Op::Mul; Rem rem Op::FloorMod;
    Shl shl Op::Shl; Shr shr Op::Shr; BitAnd bitand Op::And; BitOr bitor Op::Or; BitXor bitxor Op::Xor;
}
impl std::ops::Neg for Pat {
    type Output = Pat;
    fn neg(self) -> Pat {
        self.unary(Op::Neg)
    }
}
