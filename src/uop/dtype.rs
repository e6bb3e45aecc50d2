//! Data types: the type of one element, the number of lanes, and, for addresses, the memory they point into.
//!
//! `WeakInt` and `WeakFloat` are the types of Python-like constants: they take the type of the other operand, and do
//! not occur in machine code. Index arithmetic is `WeakInt` until codegen has bounded it. Promotion is the JAX-style
//! lattice that tinygrad users know: bool → weak int → ints → weak float → each fp8 → f16/bf16 → f32 → f64.

use crate::ConstVal;
use std::fmt;

/// The type of one lane.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scalar {
    /// No value: the type of a Store, a Sink and other nodes with only an effect.
    Void,
    /// True or false, one byte in memory.
    Bool,
    /// Integer that takes the type of the other operand; also the type of indices. Its range is that of i64.
    WeakInt,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Float that takes the type of the other operand.
    WeakFloat,
    /// fp8, 4 exponent bits, 3 mantissa bits, no infinity (OCP E4M3FN).
    F8E4M3,
    /// fp8, 5 exponent bits, 2 mantissa bits, IEEE-like specials (OCP E5M2).
    F8E5M2,
    /// fp8, 4 exponent bits, bias 8, no infinity, no negative zero, one NaN (E4M3FNUZ).
    F8E4M3Fnuz,
    /// fp8, 5 exponent bits, bias 16, no infinity, no negative zero, one NaN (E5M2FNUZ).
    F8E5M2Fnuz,
    /// 16-bit float, 5 exponent bits, 10 mantissa bits (IEEE binary16).
    F16,
    /// 16-bit float, 8 exponent bits as f32, 7 mantissa bits (bfloat16).
    BF16,
    /// 32-bit float (IEEE binary32).
    F32,
    /// 64-bit float (IEEE binary64).
    F64,
}

/// Which memory an address points into.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AddrSpace {
    /// Buffers that outlive a kernel.
    Global,
    /// Memory of one workgroup (on the CPU: a scratch panel of the running thread).
    Local,
    /// Registers of one thread.
    Reg,
}

/// Type of a value: scalar type, lane count (1 = scalar), and for an address the space it points into.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DType {
    /// Type of one lane; of an address, that of the elements it points at.
    pub scalar: Scalar,
    /// Number of lanes; 1: a scalar.
    pub lanes: u16,
    /// The memory that an address points into; `None`: no address but a value.
    pub space: Option<AddrSpace>,
}

use Scalar::*;

/// All types with a value, in an order that the promotion lattice agrees with.
#[rustfmt::skip]
const LATTICE: [Scalar; 19] = [
    Bool, WeakInt, I8, U8, I16, U16, I32, U32, I64, U64, WeakFloat, F8E4M3, F8E5M2, F8E4M3Fnuz, F8E5M2Fnuz, F16, BF16,
    F32, F64,
];

impl Scalar {
    /// Every type that a buffer can hold, in promotion order.
    #[rustfmt::skip]
    pub const STORABLE: [Scalar; 17] = [
        Bool, I8, U8, I16, U16, I32, U32, I64, U64, F8E4M3, F8E5M2, F8E4M3Fnuz, F8E5M2Fnuz, F16, BF16, F32, F64,
    ];

    /// Bytes of one element in memory; 0 for void and the weak types, which are never in memory.
    pub const fn size_bytes(self) -> usize {
        match self {
            Void | WeakInt | WeakFloat => 0,
            Bool | I8 | U8 | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }
    /// Whether it is a float: fp8, f16, bf16, f32, f64 or weak.
    pub const fn is_float(self) -> bool {
        matches!(self, WeakFloat | F16 | BF16 | F32 | F64) || self.is_fp8()
    }
    /// Whether it is an integer, the weak one included; bool is none.
    pub const fn is_int(self) -> bool {
        matches!(self, WeakInt | I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64)
    }
    /// Whether it has negative values: signed and weak integers, and floats.
    pub const fn is_signed(self) -> bool {
        matches!(self, WeakInt | I8 | I16 | I32 | I64) || self.is_float()
    }
    /// Whether it is an unsigned integer; bool is none.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }
    /// Whether it is one of the types of Python-like constants.
    pub const fn is_weak(self) -> bool {
        matches!(self, WeakInt | WeakFloat)
    }
    /// Whether it is one of the four 8-bit floats.
    pub const fn is_fp8(self) -> bool {
        matches!(self, F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz)
    }
    /// Smallest and largest value of an integer type or bool; the widest range for everything else.
    pub const fn int_range(self) -> (i128, i128) {
        match self {
            Bool => (0, 1),
            I8 => (i8::MIN as i128, i8::MAX as i128),
            U8 => (0, u8::MAX as i128),
            I16 => (i16::MIN as i128, i16::MAX as i128),
            U16 => (0, u16::MAX as i128),
            I32 => (i32::MIN as i128, i32::MAX as i128),
            U32 => (0, u32::MAX as i128),
            I64 | WeakInt => (i64::MIN as i128, i64::MAX as i128),
            U64 => (0, u64::MAX as i128),
            _ => (i128::MIN, i128::MAX),
        }
    }
    /// Significant bits (the leading one included), smallest normal exponent and largest finite value of a float;
    /// those of f32 and f64 for the weak float and everything else.
    const fn format(self) -> (i32, i32, f64) {
        match self {
            F8E4M3 => (4, -6, 448.0),
            F8E5M2 => (3, -14, 57344.0),
            F8E4M3Fnuz => (4, -7, 240.0),
            F8E5M2Fnuz => (3, -15, 57344.0),
            F16 => (11, -14, 65504.0),
            BF16 => (8, -126, 3.389_531_389_251_535_5e38),
            F32 => (24, -126, f32::MAX as f64),
            _ => (53, -1022, f64::MAX),
        }
    }
    /// The largest finite value (`torch.finfo(t).max`, `torch.iinfo(t).max`, tinygrad's `dtypes.max`): `true` of bool,
    /// of the weak types what their longest form holds.
    pub const fn max(self) -> ConstVal {
        match self {
            Bool => ConstVal::Bool(true),
            t if t.is_float() => ConstVal::Float(t.format().2),
            t => ConstVal::Int(t.int_range().1),
        }
    }
    /// The lowest finite value (`torch.finfo(t).min`, `torch.iinfo(t).min`).
    pub const fn min(self) -> ConstVal {
        match self {
            Bool => ConstVal::Bool(false),
            t if t.is_float() => ConstVal::Float(-t.format().2),
            t => ConstVal::Int(t.int_range().0),
        }
    }
    /// What a maximum starts from: minus infinity where the type has one, else its lowest value.
    pub const fn lowest(self) -> ConstVal {
        match self {
            F8E4M3 | F8E4M3Fnuz | F8E5M2Fnuz => self.min(),
            t if t.is_float() => ConstVal::Float(f64::NEG_INFINITY),
            t => t.min(),
        }
    }
    /// Distance from 1 to the next value of a float (`torch.finfo(t).eps`); 1 for every other type.
    pub fn eps(self) -> f64 {
        if self.is_float() { 2f64.powi(1 - self.format().0) } else { 1.0 }
    }
    /// The smallest positive normal value of a float (`torch.finfo(t).tiny`); 1 for every other type.
    pub fn tiny(self) -> f64 {
        if self.is_float() { 2f64.powi(self.format().1) } else { 1.0 }
    }
    /// Name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Void => "void",
            Bool => "bool",
            WeakInt => "weakint",
            I8 => "i8",
            U8 => "u8",
            I16 => "i16",
            U16 => "u16",
            I32 => "i32",
            U32 => "u32",
            I64 => "i64",
            U64 => "u64",
            WeakFloat => "weakfloat",
            F8E4M3 => "fp8e4m3",
            F8E5M2 => "fp8e5m2",
            F8E4M3Fnuz => "fp8e4m3fnuz",
            F8E5M2Fnuz => "fp8e5m2fnuz",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }
    /// The type named `name` (ours, or the numpy/torch spelling: `float32`, `int64`, `uint8`, `half`, `bfloat16` ...).
    pub fn parse(name: &str) -> Option<Scalar> {
        Some(match name {
            "bool" => Bool,
            "i8" | "int8" => I8,
            "u8" | "uint8" => U8,
            "i16" | "int16" => I16,
            "u16" | "uint16" => U16,
            "i32" | "int32" => I32,
            "u32" | "uint32" => U32,
            "i64" | "int64" => I64,
            "u64" | "uint64" => U64,
            "fp8e4m3" | "float8_e4m3fn" => F8E4M3,
            "fp8e5m2" | "float8_e5m2" => F8E5M2,
            "fp8e4m3fnuz" | "float8_e4m3fnuz" => F8E4M3Fnuz,
            "fp8e5m2fnuz" | "float8_e5m2fnuz" => F8E5M2Fnuz,
            "f16" | "float16" | "half" => F16,
            "bf16" | "bfloat16" => BF16,
            "f32" | "float32" => F32,
            "f64" | "float64" => F64,
            _ => return None,
        })
    }
    /// The types directly above this one in the promotion lattice.
    const fn parents(self) -> &'static [Scalar] {
        match self {
            Bool => &[WeakInt],
            WeakInt => &[I8, U8],
            I8 => &[I16],
            I16 => &[I32],
            I32 => &[I64],
            I64 => &[WeakFloat],
            U8 => &[I16, U16],
            U16 => &[I32, U32],
            U32 => &[I64, U64],
            U64 => &[WeakFloat],
            WeakFloat => &[F8E4M3, F8E5M2, F8E4M3Fnuz, F8E5M2Fnuz],
            F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz => &[F16, BF16],
            F16 | BF16 => &[F32],
            F32 => &[F64],
            F64 | Void => &[],
        }
    }
    fn ancestors(self) -> u32 {
        let (mut seen, mut todo) = (0u32, vec![self]);
        while let Some(s) = todo.pop() {
            if seen & (1 << s as u32) == 0 {
                seen |= 1 << s as u32;
                todo.extend_from_slice(s.parents());
            }
        }
        seen
    }
    /// Least upper bound in the promotion lattice: the type of `a + b`.
    pub fn promote(a: Scalar, b: Scalar) -> Scalar {
        if a == b {
            return a;
        }
        let common = a.ancestors() & b.ancestors();
        // Declaration order is a linear extension of the lattice, so the first common ancestor is the least one.
        LATTICE.into_iter().find(|s| common & (1 << *s as u32) != 0).unwrap_or(Void)
    }
    /// The type a reduction by addition accumulates in: half types and fp8 in f32, small ints in (u)int32.
    pub const fn accumulator(self) -> Scalar {
        match self {
            Bool | I8 | I16 => I32,
            U8 | U16 => U32,
            F16 | BF16 | F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz => F32,
            s => s,
        }
    }
    /// `WeakInt` → i32, `WeakFloat` → f32, everything else unchanged.
    pub const fn strong(self) -> Scalar {
        match self {
            WeakInt => I32,
            WeakFloat => F32,
            s => s,
        }
    }
}

impl DType {
    /// Type of nodes without a value.
    pub const VOID: DType = DType::of(Void);
    /// One bool.
    pub const BOOL: DType = DType::of(Bool);
    /// One WeakInt: the type of indices, sizes and loop counters.
    pub const INDEX: DType = DType::of(WeakInt);
    /// One WeakFloat.
    pub const WEAK_FLOAT: DType = DType::of(WeakFloat);
    /// One i8.
    pub const I8: DType = DType::of(I8);
    /// One u8.
    pub const U8: DType = DType::of(U8);
    /// One i16.
    pub const I16: DType = DType::of(I16);
    /// One u16.
    pub const U16: DType = DType::of(U16);
    /// One i32.
    pub const I32: DType = DType::of(I32);
    /// One u32.
    pub const U32: DType = DType::of(U32);
    /// One i64.
    pub const I64: DType = DType::of(I64);
    /// One u64.
    pub const U64: DType = DType::of(U64);
    /// One f16.
    pub const F16: DType = DType::of(F16);
    /// One bf16.
    pub const BF16: DType = DType::of(BF16);
    /// One f32.
    pub const F32: DType = DType::of(F32);
    /// One f64.
    pub const F64: DType = DType::of(F64);

    /// One lane of this scalar type, not an address.
    pub const fn of(scalar: Scalar) -> DType {
        DType { scalar, lanes: 1, space: None }
    }
    /// Same element type with `lanes` lanes.
    pub const fn vec(self, lanes: u16) -> DType {
        DType { lanes, ..self }
    }
    /// One lane of this type.
    pub const fn element(self) -> DType {
        DType { lanes: 1, ..self }
    }
    /// Address of elements of this type in `space`.
    pub const fn ptr(self, space: AddrSpace) -> DType {
        DType { space: Some(space), ..self }
    }
    /// What an address of this type points at.
    pub const fn pointee(self) -> DType {
        DType { space: None, ..self }
    }
    /// The same lanes and space with another scalar type.
    pub const fn with_scalar(self, scalar: Scalar) -> DType {
        DType { scalar, ..self }
    }
    /// Whether it is a float value (any number of lanes); an address is none.
    pub const fn is_float(self) -> bool {
        self.scalar.is_float() && self.space.is_none()
    }
    /// Whether it is an integer value (any number of lanes); an address is none.
    pub const fn is_int(self) -> bool {
        self.scalar.is_int() && self.space.is_none()
    }
    /// Whether it is a bool value (any number of lanes); an address is none.
    pub const fn is_bool(self) -> bool {
        matches!(self.scalar, Bool) && self.space.is_none()
    }
    /// Bytes of the whole value (all lanes).
    pub const fn size_bytes(self) -> usize {
        self.scalar.size_bytes() * self.lanes as usize
    }
}

impl From<Scalar> for DType {
    fn from(s: Scalar) -> DType {
        DType::of(s)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scalar.name())?;
        if self.lanes != 1 {
            write!(f, "x{}", self.lanes)?;
        }
        match self.space {
            None => Ok(()),
            Some(AddrSpace::Global) => f.write_str("*"),
            Some(AddrSpace::Local) => f.write_str("*local"),
            Some(AddrSpace::Reg) => f.write_str("*reg"),
        }
    }
}
impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_the_least_upper_bound_and_symmetric() {
        let table = [
            (Bool, I8, I8),
            (I8, U8, I16),
            (U8, I8, I16),
            (I32, U32, I64),
            (I64, U64, WeakFloat),
            (U16, I8, I32),
            (WeakInt, U8, U8),
            (WeakInt, F16, F16),
            (WeakFloat, I32, WeakFloat),
            (F8E4M3, F8E5M2, F16),
            (F16, BF16, F32),
            (I64, F16, F16),
            (F32, F64, F64),
            (F8E4M3Fnuz, F8E5M2Fnuz, F16),
            (F8E4M3Fnuz, F8E4M3, F16),
            (WeakFloat, F8E5M2Fnuz, F8E5M2Fnuz),
        ];
        for (a, b, want) in table {
            assert_eq!(Scalar::promote(a, b), want, "{a} {b}");
            assert_eq!(Scalar::promote(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn names_parse_back() {
        for s in Scalar::STORABLE {
            assert_eq!(Scalar::parse(s.name()), Some(s));
        }
        assert_eq!(Scalar::parse("float99"), None);
    }
}
