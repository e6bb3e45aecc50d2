//! Vector compares: a relation is the set of outcomes it accepts (less, equal, greater, unordered), so that one loop a
//! type serves all sixteen; and class tests.
//!
//! Source: AMD's ISA documents, VOPC.

use super::float::half_to_f32;
use super::lanes::{L, Ty};

pub(super) const LT: u8 = 1;
pub(super) const EQ: u8 = 2;
pub(super) const GT: u8 = 4;
pub(super) const UN: u8 = 8;

/// A compare: what it accepts of which type, and whether it writes EXEC (`v_cmpx`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    pub what: What,
    pub ty: Ty,
    pub exec: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Relation(u8),
    Class,
}

impl Compare {
    /// Type of a class test's mask: half a register beside a half float.
    pub(crate) fn class_bits(self) -> Ty {
        if self.ty.is_16() { Ty::B16 } else { Ty::B32 }
    }
}

pub(super) fn relation(name: &str) -> Option<u8> {
    Some(match name {
        "f" => 0,
        "lt" => LT,
        "eq" => EQ,
        "le" => LT | EQ,
        "gt" => GT,
        "lg" => LT | GT,
        "ge" => GT | EQ,
        "o" => LT | EQ | GT,
        "u" => UN,
        "nge" => UN | LT,
        "nlg" => UN | EQ,
        "ngt" => UN | LT | EQ,
        "nle" => UN | GT,
        "neq" | "ne" => UN | LT | GT,
        "nlt" => UN | GT | EQ,
        "t" | "tru" => LT | EQ | GT | UN,
        _ => return None,
    })
}

/// `v_cmp_lt_f32`, `v_cmpx_class_f64` and so on.
pub(super) fn find(name: &str) -> Option<Compare> {
    let (rest, exec) = match name.strip_prefix("v_cmpx_") {
        Some(rest) => (rest, true),
        None => (name.strip_prefix("v_cmp_")?, false),
    };
    let (op, ty) = rest.rsplit_once('_')?;
    let ty = match ty {
        "f16" => Ty::F16,
        "f32" => Ty::F32,
        "f64" => Ty::F64,
        "i16" => Ty::I16,
        "u16" => Ty::U16,
        "i32" => Ty::I32,
        "u32" => Ty::U32,
        "i64" => Ty::I64,
        "u64" => Ty::U64,
        _ => return None,
    };
    let what = if op == "class" { What::Class } else { What::Relation(relation(op)?) };
    Some(Compare { what, ty, exec })
}

/// The accepted lanes, as a mask.
fn lanes<T: PartialOrd + Copy>(accept: u8, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> u32 {
    let (on_lt, on_eq, on_gt, on_un) = (accept & LT != 0, accept & EQ != 0, accept & GT != 0, accept & UN != 0);
    let mut mask = 0;
    for i in 0..32 {
        let (x, y) = (a(i), b(i));
        let (lt, eq, gt) = (x < y, x == y, x > y);
        let hit = (lt & on_lt) | (eq & on_eq) | (gt & on_gt) | (!(lt | eq | gt) & on_un);
        mask |= u32::from(hit) << i;
    }
    mask
}

/// Compares 32 lanes of a type of at most 32 bits; narrower values are in the low bits.
pub(super) fn compare32(c: Compare, a: &L, b: &L) -> u32 {
    let accept = match c.what {
        What::Relation(accept) => accept,
        What::Class => return (0..32).fold(0, |m, i| m | u32::from(class(c.ty, a[i].into()) & b[i] != 0) << i),
    };
    let half = |v: u32| half_to_f32(v & 0xffff);
    match c.ty {
        Ty::F16 => lanes(accept, |i| half(a[i]), |i| half(b[i])),
        Ty::F32 => lanes(accept, |i| f32::from_bits(a[i]), |i| f32::from_bits(b[i])),
        Ty::I16 => lanes(accept, |i| a[i] as i16, |i| b[i] as i16),
        Ty::U16 => lanes(accept, |i| a[i] as u16, |i| b[i] as u16),
        Ty::I32 => lanes(accept, |i| a[i] as i32, |i| b[i] as i32),
        _ => lanes(accept, |i| a[i], |i| b[i]),
    }
}

/// Compares 32 lanes of a 64-bit type; a class test's mask is in the low bits of `b`.
pub(super) fn compare64(c: Compare, a: &[u64; 32], b: &[u64; 32]) -> u32 {
    let accept = match c.what {
        What::Relation(accept) => accept,
        What::Class => return (0..32).fold(0, |m, i| m | u32::from(class(c.ty, a[i]) & b[i] as u32 != 0) << i),
    };
    match c.ty {
        Ty::F64 => lanes(accept, |i| f64::from_bits(a[i]), |i| f64::from_bits(b[i])),
        Ty::I64 => lanes(accept, |i| a[i] as i64, |i| b[i] as i64),
        _ => lanes(accept, |i| a[i], |i| b[i]),
    }
}

/// The bit of the class a value belongs to: sNaN, qNaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
pub(super) fn class(ty: Ty, v: u64) -> u32 {
    let (fraction_bits, exponent_bits) = match ty {
        Ty::F16 => (10, 5),
        Ty::F64 => (52, 11),
        _ => (23, 8),
    };
    let fraction = v & ((1 << fraction_bits) - 1);
    let top = (1 << exponent_bits) - 1;
    let exponent = v >> fraction_bits & top;
    let negative = v >> (fraction_bits + exponent_bits) & 1 == 1;
    let (minus, plus) = match (exponent, fraction) {
        (e, f) if e == top && f != 0 => return 1 << (f >> (fraction_bits - 1) & 1),
        (e, _) if e == top => (2, 9),
        (0, 0) => (5, 6),
        (0, _) => (4, 7),
        _ => (3, 8),
    };
    1 << if negative { minus } else { plus }
}
