//! Lanes: half a wave64 or a whole wave32 of one register as an array that the compiler turns into vector code, the
//! types that operands of the arithmetic have, and the floating-point mode of a wave.
//!
//! Source: AMD's ISA documents (RDNA3, CDNA3, RDNA4): operand modifiers, MODE register.

/// 32 lanes of one 32-bit register.
pub(super) type L = [u32; 32];

/// The bit of each lane in a mask.
const BITS: L = {
    let mut bits = [0; 32];
    let mut lane = 0;
    while lane < 32 {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// Replaces the lanes that the mask has.
#[inline]
pub(super) fn replace(lanes: &mut L, by: &L, mask: u32) {
    for i in 0..32 {
        lanes[i] = if mask & BITS[i] != 0 { by[i] } else { lanes[i] };
    }
}

/// How an operand's bits are read: which modifiers, inline constants and flushes apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    None,
    B32,
    I32,
    U32,
    F32,
    B16,
    I16,
    U16,
    F16,
    B64,
    I64,
    U64,
    F64,
}

impl Ty {
    pub(crate) fn is_16(self) -> bool {
        matches!(self, Self::B16 | Self::I16 | Self::U16 | Self::F16)
    }

    pub(crate) fn is_64(self) -> bool {
        matches!(self, Self::B64 | Self::I64 | Self::U64 | Self::F64)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    /// The bit that carries the sign, within the operand's own width.
    pub(crate) fn sign(self) -> u64 {
        match self {
            Self::F16 => 0x8000,
            Self::F64 => 1 << 63,
            _ => 0x8000_0000,
        }
    }
}

/// Rounding of an inexact result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Round {
    #[default]
    Nearest,
    Up,
    Down,
    Zero,
}

impl Round {
    fn of(bits: u32) -> Self {
        [Self::Nearest, Self::Up, Self::Down, Self::Zero][(bits & 3) as usize]
    }
}

/// The part of the MODE register that arithmetic depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    pub bits: u32,
}

impl Mode {
    pub(crate) fn round32(self) -> Round {
        Round::of(self.bits)
    }

    pub(crate) fn round64(self) -> Round {
        Round::of(self.bits >> 2)
    }

    /// Denormal sources become zero.
    pub(crate) fn flush_in(self, ty: Ty) -> bool {
        let field = if ty == Ty::F32 { self.bits >> 4 } else { self.bits >> 6 };
        field & 1 == 0
    }

    /// Denormal results become zero.
    pub(crate) fn flush_out(self, ty: Ty) -> bool {
        let field = if ty == Ty::F32 { self.bits >> 4 } else { self.bits >> 6 };
        field & 2 == 0
    }

    /// Whether singles are rounded to nearest and keep their denormals.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        const ROUND: u32 = 3;
        const DENORMALS: u32 = 3 << 4;
        self.bits & (ROUND | DENORMALS) == DENORMALS
    }

    pub(crate) fn dx10_clamp(self) -> bool {
        self.bits >> 8 & 1 == 1
    }
}

/// One lane's operands, for what has no vector form.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub mode: Mode,
}

/// The arithmetic of one instruction.
#[derive(Clone, Copy)]
pub(super) enum VFn {
    V1(fn(&L, &mut L)),
    V2(fn(&L, &L, &mut L)),
    V3(fn(&L, &L, &L, &mut L)),
    Lane(fn(&Lane) -> u64),
}

/// Meaning of one vector instruction: types of destination and sources, and the arithmetic.
pub(super) struct VSem {
    pub name: &'static str,
    pub dst: Ty,
    pub src: [Ty; 3],
    pub f: VFn,
    /// The same under a rounding mode that is not to nearest.
    pub directed: Option<fn(&Lane) -> u64>,
    /// The same with the clamp bit, for integers.
    pub clamped: Option<fn(&Lane) -> u64>,
    /// Denormals are treated according to MODE; copies, compares and bit operations keep them.
    pub flushes: bool,
}

impl VSem {
    pub(crate) const fn with_directed(mut self, f: fn(&Lane) -> u64) -> Self {
        self.directed = Some(f);
        self
    }

    pub(crate) const fn with_clamped(mut self, f: fn(&Lane) -> u64) -> Self {
        self.clamped = Some(f);
        self
    }

    pub(crate) const fn keeping_denormals(mut self) -> Self {
        self.flushes = false;
        self
    }
}

/// A row whose operands all have one type.
pub(super) const fn same(name: &'static str, ty: Ty, f: VFn) -> VSem {
    VSem { name, dst: ty, src: [ty; 3], f, directed: None, clamped: None, flushes: true }
}

/// A row of mixed types.
pub(super) const fn mixed(name: &'static str, dst: Ty, src: [Ty; 3], f: VFn) -> VSem {
    VSem { name, dst, src, f, directed: None, clamped: None, flushes: true }
}

/// Declares one source's arithmetic on every lane.
macro_rules! v1 {
    ($f:expr) => {
        VFn::V1(|a, d| {
            let f = $f;
            for i in 0..32 {
                d[i] = f(a[i]);
            }
        })
    };
}

macro_rules! v2 {
    ($f:expr) => {
        VFn::V2(|a, b, d| {
            let f = $f;
            for i in 0..32 {
                d[i] = f(a[i], b[i]);
            }
        })
    };
}

macro_rules! v3 {
    ($f:expr) => {
        VFn::V3(|a, b, c, d| {
            let f = $f;
            for i in 0..32 {
                d[i] = f(a[i], b[i], c[i]);
            }
        })
    };
}

pub(super) use {v1, v2, v3};
