//! Bytecode of a kernel. An instruction works on rows of 32 lanes; those that are off keep their values.
//!
//! A value takes a row for each scalar of at most 32 bits and two for one of 64 bits, low half first. Integers are
//! extended to 32 bits, floats of every width are kept as f32 and rounded after each operation. A pointer is 64 bits: a
//! tag for the memory in the upper 16, and in the others a byte offset plus `BIAS`, so that stepping below the start is
//! seen.

use crate::error::Pos;
use crate::tree::{Attribute, Position};
use crate::types::{Scalar, Space};

/// A register row.
pub(crate) type Row = u32;

/// Added to offsets in pointers.
pub(crate) const BIAS: u64 = 1 << 47;
/// Tag of a buffer slot, plus the slot.
pub(crate) const TAG_BUFFER: u32 = 1;
/// Tag of the kernel's own threadgroup variables.
pub(crate) const TAG_THREADGROUP: u32 = 0x40;
/// Tag of a threadgroup argument, plus the slot.
pub(crate) const TAG_THREADGROUP_SLOT: u32 = 0x80;
pub(crate) const TAG_THREAD: u32 = 0x100;
pub(crate) const TAG_CONSTANTS: u32 = 0x101;

/// The pointer to an offset in a tagged memory.
pub(crate) fn pointer(tag: u32, offset: u64) -> u64 {
    (u64::from(tag) << 48) + BIAS + offset
}

/// How a scalar lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Bool,
    I8,
    U8,
    I16,
    U16,
    Half,
    BFloat,
    Word,
    Wide,
}

impl Memory {
    pub(crate) fn of(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool => Self::Bool,
            Scalar::Char => Self::I8,
            Scalar::UChar => Self::U8,
            Scalar::Short => Self::I16,
            Scalar::UShort => Self::U16,
            Scalar::Half => Self::Half,
            Scalar::BFloat => Self::BFloat,
            Scalar::Int | Scalar::UInt | Scalar::Float => Self::Word,
            Scalar::Long | Scalar::ULong => Self::Wide,
        }
    }

    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::Half | Self::BFloat => 2,
            Self::Word => 4,
            Self::Wide => 8,
        }
    }
}

/// Operations on one row (or two, for 64 bits) to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Un {
    Not,
    BitNot,
    NegI,
    NegF,
    AbsI,
    AbsF,
    /// Cut to a small integer and extend again.
    Char,
    UChar,
    Short,
    UShort,
    /// Round to half or bfloat, kept as f32.
    Half,
    BFloat,
    BoolI,
    BoolF,
    BoolL,
    IntToFloat,
    UIntToFloat,
    LongToFloat,
    ULongToFloat,
    IntToBFloat,
    UIntToBFloat,
    LongToBFloat,
    ULongToBFloat,
    FloatToInt,
    FloatToUInt,
    FloatToLong,
    FloatToULong,
    IntToLong,
    UIntToLong,
    /// The low half.
    LongToInt,
    NegL,
    AbsL,
    HalfBits,
    HalfFromBits,
    BFloatBits,
    BFloatFromBits,
    Popcount,
    Clz,
    Ctz,
    Reverse,
    PopcountL,
    ClzL,
    CtzL,
    ReverseL,
    IsNan,
    IsInf,
    IsFinite,
    IsNormal,
    SignBit,
    HalfIsNormal,
    Ilogb,
    FrexpExponent,
    Math(Math),
}

/// Functions of a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Math {
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    SinPi,
    CosPi,
    TanPi,
    Exp,
    Exp2,
    Exp10,
    Log,
    Log2,
    Log10,
    Sqrt,
    Rsqrt,
    Floor,
    Ceil,
    Round,
    Rint,
    Trunc,
    Fract,
    Sign,
    Saturate,
    FrexpFraction,
}

/// Operations on two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bin {
    AddI,
    SubI,
    MulI,
    DivS,
    DivU,
    RemS,
    RemU,
    And,
    Or,
    Xor,
    Shl,
    ShrS,
    ShrU,
    EqI,
    NeI,
    LtS,
    LeS,
    LtU,
    LeU,
    MinS,
    MaxS,
    MinU,
    MaxU,
    MulHiS,
    MulHiU,
    Rotate,
    AbsDiffS,
    AbsDiffU,
    HaddS,
    HaddU,
    RhaddS,
    RhaddU,
    AddSatS,
    AddSatU,
    SubSatS,
    SubSatU,
    AddF,
    SubF,
    MulF,
    DivF,
    EqF,
    NeF,
    LtF,
    LeF,
    MinF,
    MaxF,
    Fmod,
    Pow,
    Atan2,
    CopySign,
    Fdim,
    Step,
    NextAfter,
    Ldexp,
    // On 64 bits.
    AddL,
    SubL,
    MulL,
    DivLS,
    DivLU,
    RemLS,
    RemLU,
    ShlL,
    ShrLS,
    ShrLU,
    EqL,
    NeL,
    LtLS,
    LeLS,
    LtLU,
    LeLU,
    MinLS,
    MaxLS,
    MinLU,
    MaxLU,
    RotateL,
    MulHiLS,
    MulHiLU,
    AddSatLS,
    AddSatLU,
    SubSatLS,
    SubSatLU,
}

impl Bin {
    /// Rows of an operand and of the result.
    pub(crate) fn rows(self) -> (u32, u32) {
        match self {
            Self::EqL | Self::NeL | Self::LtLS | Self::LeLS | Self::LtLU | Self::LeLU => (2, 1),
            _ if (self as u32) >= Self::AddL as u32 => (2, 2),
            _ => (1, 1),
        }
    }
}

impl Un {
    /// Rows of the operand and of the result.
    pub(crate) fn rows(self) -> (u32, u32) {
        match self {
            Self::BoolL
            | Self::LongToFloat
            | Self::ULongToFloat
            | Self::LongToBFloat
            | Self::ULongToBFloat
            | Self::LongToInt => (2, 1),
            Self::FloatToLong | Self::FloatToULong | Self::IntToLong | Self::UIntToLong => (1, 2),
            Self::NegL | Self::AbsL | Self::PopcountL | Self::ClzL | Self::CtzL | Self::ReverseL => (2, 2),
            _ => (1, 1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rmw {
    Load,
    Store,
    Exchange,
    Add,
    Sub,
    And,
    Or,
    Xor,
    MinS,
    MaxS,
    MinU,
    MaxU,
    AddF,
    SubF,
}

/// Over the lanes of a simdgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduce {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
    InclusiveSum,
    ExclusiveSum,
    InclusiveProduct,
    ExclusiveProduct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    To,
    Up,
    Down,
    Xor,
    RotateUp,
    RotateDown,
    First,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Any,
    All,
    Ballot,
    First,
    Active,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Inst {
    Const {
        d: Row,
        v: u32,
    },
    Mov {
        d: Row,
        a: Row,
        n: u32,
    },
    /// One row to many.
    Splat {
        d: Row,
        a: Row,
        n: u32,
        rows: u32,
    },
    Un {
        op: Un,
        d: Row,
        a: Row,
        n: u32,
    },
    Bin {
        op: Bin,
        d: Row,
        a: Row,
        b: Row,
        n: u32,
    },
    Fma {
        d: Row,
        a: Row,
        b: Row,
        c: Row,
        n: u32,
    },
    /// `c ? a : b`; `step` rows of a value share a row of `c`, 0: all.
    Select {
        d: Row,
        c: Row,
        a: Row,
        b: Row,
        n: u32,
        step: u32,
    },
    /// `d = p + i * scale`
    PtrAdd {
        d: Row,
        p: Row,
        i: Row,
        scale: i64,
        index: Scalar,
    },
    PtrOffset {
        d: Row,
        p: Row,
        by: i64,
    },
    PtrDiff {
        d: Row,
        a: Row,
        b: Row,
        size: u32,
    },
    Load {
        d: Row,
        p: Row,
        off: i32,
        kind: Memory,
        n: u32,
        align: u32,
    },
    Store {
        p: Row,
        s: Row,
        off: i32,
        kind: Memory,
        n: u32,
        align: u32,
    },
    /// Thread memory at a fixed offset.
    LoadThread {
        d: Row,
        at: u32,
        kind: Memory,
        n: u32,
    },
    StoreThread {
        s: Row,
        at: u32,
        kind: Memory,
        n: u32,
    },
    /// Thread memory becomes zero, or is not initialised any more.
    ClearThread {
        at: u32,
        bytes: u32,
        zero: bool,
    },
    Copy {
        to: Row,
        from: Row,
        bytes: u32,
        align: u32,
    },
    Atomic {
        op: Rmw,
        d: Row,
        p: Row,
        v: Row,
        wide: bool,
    },
    /// `d`: whether stored; `expected` gets the old value.
    AtomicCas {
        d: Row,
        p: Row,
        expected: Row,
        v: Row,
    },
    If {
        c: Row,
        els: u32,
    },
    Else {
        end: u32,
    },
    EndIf,
    LoopBegin,
    LoopTest {
        c: Row,
        exit: u32,
    },
    LoopNext {
        exit: u32,
    },
    Back {
        to: u32,
    },
    LoopEnd,
    FnBegin,
    FnEnd,
    SwitchBegin,
    CaseIn {
        c: Row,
    },
    SwitchEnd,
    /// Leaves the frame that has `frames` others above it.
    Break {
        frames: u32,
    },
    Continue {
        frames: u32,
    },
    Return {
        frames: u32,
    },
    /// Jumps if no lane is on.
    Skip {
        to: u32,
    },
    /// Whether it orders accesses of threadgroup memory.
    Barrier {
        orders: bool,
    },
    Reduce {
        op: Reduce,
        d: Row,
        a: Row,
        n: u32,
        scalar: Scalar,
    },
    Shuffle {
        op: Shuffle,
        d: Row,
        a: Row,
        lane: Row,
        n: u32,
    },
    Vote {
        op: Vote,
        d: Row,
        c: Row,
    },
    MatrixFill {
        d: Row,
        a: Row,
    },
    /// Rows: stride (2), origin (4), transpose (1), from `args` on.
    MatrixLoad {
        d: Row,
        p: Row,
        args: Row,
        kind: Memory,
    },
    MatrixStore {
        s: Row,
        p: Row,
        args: Row,
        kind: Memory,
    },
    MatrixMul {
        d: Row,
        a: Row,
        b: Row,
        c: Row,
        round: Scalar,
    },
    /// A variable's scalars have no value from here on, have one now, must have one.
    Undefine {
        slot: u32,
        n: u32,
    },
    Define {
        slot: u32,
        n: u32,
    },
    NeedDefined {
        slot: u32,
        n: u32,
    },
    End,
}

/// A kernel's parameter, as the host has to serve it.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub name: String,
    pub attribute: Attribute,
    pub space: Space,
    pub writable: bool,
    /// Bytes of what it points to; for a reference that is what must be there.
    pub pointee_bytes: u64,
    pub reference: bool,
    pub type_name: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub name: String,
    pub insts: Vec<Inst>,
    pub at: Vec<Pos>,
    pub rows: u32,
    /// What the first rows hold in all lanes from the start on.
    pub numbers: Vec<u32>,
    pub slots: u32,
    pub thread_bytes: u32,
    pub threadgroup_bytes: u32,
    pub max_threads: Option<u32>,
    pub params: Vec<Param>,
    /// Where positions go: first row, lanes, whether cut to 16 bits.
    pub positions: Vec<(Position, Row, u32, bool)>,
    /// The variable of each slot that notes whether it has a value.
    pub names: Vec<String>,
}
