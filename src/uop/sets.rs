//! Sets of ops and of scalar types, as bit sets: patterns and rules are filtered by them before any comparison.

use super::{Op, Scalar, UOp};

/// A set of ops.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OpSet(pub(super) u128);

impl OpSet {
    /// No op.
    pub const NONE: OpSet = OpSet(0);
    /// Every op.
    pub const ALL: OpSet = OpSet((1 << Op::COUNT) - 1);
    /// The ops of [`Op::is_unary`].
    pub const UNARY: OpSet = OpSet::of(&[Op::Neg, Op::Recip, Op::Sqrt, Op::Exp2, Op::Log2, Op::Sin, Op::Trunc]);
    /// The ops of [`Op::is_comparison`].
    pub const COMPARISON: OpSet = OpSet::of(&[Op::CmpLt, Op::CmpNe, Op::CmpEq]);
    /// The ops of [`Op::is_commutative`].
    pub const COMMUTATIVE: OpSet =
        OpSet::of(&[Op::Add, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor, Op::CmpNe, Op::CmpEq]);
    /// The ops of [`Op::is_binary`].
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
        Op::Ldexp,
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
    /// The ops of [`Op::is_ternary`].
    pub const TERNARY: OpSet = OpSet::of(&[Op::Where, Op::MulAcc]);
    /// The ops of [`Op::is_alu`].
    pub const ALU: OpSet = OpSet::UNARY.union(OpSet::BINARY).union(OpSet::TERNARY);
    /// The ops of [`Op::is_elementwise`].
    pub const ELEMENTWISE: OpSet = OpSet::ALU.union(OpSet::of(&[Op::Cast, Op::Bitcast]));
    /// The ops of [`Op::is_movement`].
    pub const MOVEMENT: OpSet = OpSet::of(&[Op::Reshape, Op::Permute, Op::Expand, Op::Pad, Op::Shrink, Op::Flip]);

    /// The set of these ops.
    pub const fn of(ops: &[Op]) -> OpSet {
        let (mut bits, mut k) = (0, 0);
        while k < ops.len() {
            bits |= 1 << ops[k] as u8;
            k += 1;
        }
        OpSet(bits)
    }
    /// Whether `op` is in the set.
    pub const fn has(self, op: Op) -> bool {
        self.0 >> op as u8 & 1 != 0
    }
    /// The ops that are in either set.
    pub const fn union(self, o: OpSet) -> OpSet {
        OpSet(self.0 | o.0)
    }
    /// The ops of this set that are not in `o`.
    pub const fn minus(self, o: OpSet) -> OpSet {
        OpSet(self.0 & !o.0)
    }
    /// Whether all ops of `o` are in this set.
    pub const fn contains(self, o: OpSet) -> bool {
        o.0 & !self.0 == 0
    }
    /// Number of ops.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }
    /// Whether there is no op in the set.
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
    /// Every type, Void included.
    pub const ALL: Scalars = Scalars(u32::MAX);
    /// Bool alone.
    pub const BOOL: Scalars = Scalars::of(&[Scalar::Bool]);
    /// WeakInt alone, the type of indices.
    pub const INDEX: Scalars = Scalars::of(&[Scalar::WeakInt]);
    /// All integer types, the weak one included.
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
    /// All float types, the weak one included.
    pub const FLOATS: Scalars = Scalars::of(&[
        Scalar::WeakFloat,
        Scalar::F8E4M3,
        Scalar::F8E5M2,
        Scalar::F8E4M3Fnuz,
        Scalar::F8E5M2Fnuz,
        Scalar::F16,
        Scalar::BF16,
        Scalar::F32,
        Scalar::F64,
    ]);
    /// The set of these types.
    pub const fn of(types: &[Scalar]) -> Scalars {
        let (mut bits, mut k) = (0, 0);
        while k < types.len() {
            bits |= 1 << types[k] as u32;
            k += 1;
        }
        Scalars(bits)
    }
    /// Whether `s` is in the set.
    pub const fn has(self, s: Scalar) -> bool {
        self.0 >> s as u32 & 1 != 0
    }
}
impl From<Scalar> for Scalars {
    fn from(s: Scalar) -> Scalars {
        Scalars::of(&[s])
    }
}
