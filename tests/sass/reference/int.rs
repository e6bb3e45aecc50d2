//! Integers.

use super::exact::range;
use super::ones;
use doorbell::isa::ptx::{Inst, Opcode, Type};

pub fn signed(bits: u128, width: u32) -> i128 {
    (bits << (128 - width)).cast_signed() >> (128 - width)
}

/// A number as the type reads it.
pub fn number(bits: u128, ty: Type) -> i128 {
    if ty.is_signed() { signed(bits, ty.bits()) } else { (bits & ones(ty.bits())).cast_signed() }
}

/// An integer instruction; `None`: it is none that is known here. Wider than 64 bits is nothing but products of 64
/// bits.
pub fn compute(i: &Inst, ty: Type, v: &[u128], carry: &mut bool) -> Option<u128> {
    let bits = ty.bits();
    let n = |k: usize| number(v[k], ty);
    let u = |k: usize| v[k] & ones(bits);
    let sets = i.has("cc");
    Some(match i.op {
        Opcode::Add | Opcode::Addc => {
            with_carry(u(0), u(1), i.op == Opcode::Addc && *carry, (bits, sets), carry, || {
                saturated(i, n(0) + n(1), ty)
            })
        }
        Opcode::Sub | Opcode::Subc => {
            let borrow = u128::from(i.op == Opcode::Subc && *carry);
            if sets {
                *carry = u(0) < u(1) + borrow;
            }
            saturated(i, n(0) - n(1) - borrow.cast_signed(), ty)
        }
        Opcode::Mul => product(i, ty, v),
        Opcode::Mad if i.has("sat") => saturated(i, ((n(0) * n(1)) >> 32) + n(2), ty),
        Opcode::Mad | Opcode::Madc => {
            let wide = if i.has("wide") { 2 * bits } else { bits };
            let (p, c) = (product(i, ty, v) & ones(wide), v[2] & ones(wide));
            let more = i.op == Opcode::Madc && *carry;
            with_carry(p, c, more, (wide, sets), carry, || p + c)
        }
        Opcode::Mul24 => {
            let f = |k: usize| if ty.is_signed() { signed(v[k], 24) } else { (v[k] & ones(24)).cast_signed() };
            let p = f(0) * f(1);
            (if i.has("hi") { p >> 16 } else { p }).cast_unsigned()
        }
        Opcode::Mad24 => {
            let f = |k: usize| if ty.is_signed() { signed(v[k], 24) } else { (v[k] & ones(24)).cast_signed() };
            let p = f(0) * f(1);
            (if i.has("hi") { p >> 16 } else { p }).cast_unsigned().wrapping_add(v[2])
        }
        Opcode::Div => match n(1) {
            // What the machine leaves is not defined.
            0 => return None,
            d => (n(0) / d).cast_unsigned(),
        },
        Opcode::Rem => match n(1) {
            0 => return None,
            d => (n(0) % d).cast_unsigned(),
        },
        Opcode::Sad => n(2).cast_unsigned().wrapping_add(n(0).abs_diff(n(1))),
        Opcode::Abs => n(0).abs().cast_unsigned(),
        Opcode::Neg => (-n(0)).cast_unsigned(),
        Opcode::Min | Opcode::Max => {
            let m = if i.op == Opcode::Min { n(0).min(n(1)) } else { n(0).max(n(1)) };
            (if i.has("relu") { m.max(0) } else { m }).cast_unsigned()
        }
        Opcode::And => v[0] & v[1],
        Opcode::Or => v[0] | v[1],
        Opcode::Xor => v[0] ^ v[1],
        Opcode::Not => !v[0],
        Opcode::Cnot => u128::from(u(0) == 0),
        Opcode::Shl => u(0).checked_shl((v[1] & ones(32)).min(127) as u32).unwrap_or(0),
        Opcode::Shr => (n(0) >> (v[1] & ones(32)).min(127) as u32).cast_unsigned(),
        Opcode::Popc => u128::from(u(0).count_ones()),
        Opcode::Clz => u128::from(u(0).leading_zeros() - (128 - bits)),
        Opcode::Brev => u(0).reverse_bits() >> (128 - bits),
        Opcode::Bfind => {
            let seek = if ty.is_signed() && n(0) < 0 { !u(0) & ones(bits) } else { u(0) };
            match (seek, i.has("shiftamt")) {
                (0, _) => ones(32),
                (s, false) => u128::from(127 - s.leading_zeros()),
                (s, true) => u128::from(bits - 1 - (127 - s.leading_zeros())),
            }
        }
        _ => return bits_of(i, ty, v),
    })
}

/// A sum and the carry out of it.
fn with_carry(
    a: u128,
    b: u128,
    more: bool,
    (bits, sets): (u32, bool),
    carry: &mut bool,
    plain: impl FnOnce() -> u128,
) -> u128 {
    let all = a + b + u128::from(more);
    if sets {
        *carry = all >> bits & 1 == 1;
    }
    if more || sets { all } else { plain() }
}

fn saturated(i: &Inst, value: i128, ty: Type) -> u128 {
    let (low, high) = range(ty.bits(), ty.is_signed());
    (if i.has("sat") { value.clamp(low, high) } else { value }).cast_unsigned()
}

fn product(i: &Inst, ty: Type, v: &[u128]) -> u128 {
    let bits = ty.bits();
    // 64 unsigned bits by as many fill all 128.
    let p = match ty.is_signed() {
        true => (signed(v[0], bits) * signed(v[1], bits)).cast_unsigned(),
        false => (v[0] & ones(bits)) * (v[1] & ones(bits)),
    };
    match i.has("hi") {
        true if ty.is_signed() => (p.cast_signed() >> bits).cast_unsigned(),
        true => p >> bits,
        false => p,
    }
}

/// Fields, bytes, tables of three bits.
fn bits_of(i: &Inst, ty: Type, v: &[u128]) -> Option<u128> {
    let bits = ty.bits();
    let u = |k: usize| v[k] & ones(bits);
    let low = |k: usize| (v[k] & 0xff) as u32;
    Some(match i.op {
        Opcode::Bfe => {
            // Numbers over 255 are none that PTX allows; of 64 bits ptxas's code takes them as they are.
            let (from, len) = if bits == 64 { (clamped(v[1]), clamped(v[2])) } else { (low(1), low(2)) };
            let top = (from + len).checked_sub(1).map(|t| t.min(bits - 1));
            let fill = ty.is_signed() && len > 0 && top.is_some_and(|t| u(0) >> t & 1 == 1);
            let kept = if len == 0 { 0 } else { u(0).checked_shr(from).unwrap_or(0) & ((1u128 << len.min(64)) - 1) };
            let have = len.min(bits.saturating_sub(from));
            if fill { kept | !((1u128 << have) - 1) } else { kept }
        }
        Opcode::Bfi => {
            let (from, len) = (low(2), low(3));
            let mask = ((1u128 << len.min(64)) - 1).checked_shl(from).unwrap_or(0) & ones(bits);
            u(1) & !mask | u(0).checked_shl(from).unwrap_or(0) & mask
        }
        Opcode::Bmsk => {
            let wrap = i.has("wrap");
            let part = |k: usize| if wrap { v[k] & 31 } else { (v[k] & ones(32)).min(32) } as u32;
            let (from, len) = (part(0), part(1));
            ((1u128 << len) - 1) << from
        }
        Opcode::Szext => {
            let n = v[1] & ones(32);
            let n = if i.has("wrap") { n & 31 } else { n.min(32) } as u32;
            match (n, ty.is_signed()) {
                (0, _) => 0,
                (n, true) => signed(u(0), n.min(32)).cast_unsigned(),
                (n, false) => u(0) & ones(n),
            }
        }
        Opcode::Shf => {
            let n = (v[2] & ones(32)) as u32;
            let n = if i.has("clamp") { n.min(32) } else { n & 31 };
            let both = u(1) << 32 | u(0);
            if i.has("l") { both << n >> 32 } else { both >> n }
        }
        Opcode::Lop3 => (0..bits).fold(0, |all, k| {
            let at = (v[0] >> k & 1) << 2 | (v[1] >> k & 1) << 1 | v[2] >> k & 1;
            all | (v[3] >> at & 1) << k
        }),
        Opcode::Prmt => {
            let both = u(1) << 32 | u(0);
            let byte = |n: u128| both >> (8 * n) & 0xff;
            let by = v[2] & 3;
            let chosen = |k: u128| match () {
                () if i.has("f4e") => byte(by + k),
                () if i.has("b4e") => byte((by + 8 - k) % 8),
                () if i.has("rc8") => byte(by),
                () if i.has("ecl") => byte(k.max(by)),
                () if i.has("ecr") => byte(k.min(by)),
                () if i.has("rc16") => byte((by & 1) * 2 + (k & 1)),
                () => {
                    let n = v[2] >> (4 * k);
                    let b = byte(n & 7);
                    if n & 8 == 0 { b } else { 0xff * (b >> 7) }
                }
            };
            (0..4).fold(0, |all, k| all | chosen(k) << (8 * k))
        }
        _ => return None,
    })
}

fn clamped(n: u128) -> u32 {
    (n & ones(32)).min(255) as u32
}

/// Sums of products of bytes (and halves).
pub fn dot(i: &Inst, types: &[Type], v: &[u128]) -> Option<u128> {
    let [a, b] = types else { return None };
    let part = |bits: u128, at: u32, n: u32, ty: Type| {
        let p = bits >> at & ones(n);
        if ty.is_signed() { signed(p, n) } else { p.cast_signed() }
    };
    let sum: i128 = match i.op {
        Opcode::Dp4a => (0..4).map(|k| part(v[0], 8 * k, 8, *a) * part(v[1], 8 * k, 8, *b)).sum(),
        _ => {
            let from = if i.has("hi") { 16 } else { 0 };
            (0..2).map(|k| part(v[0], 16 * k, 16, *a) * part(v[1], from + 8 * k, 8, *b)).sum()
        }
    };
    Some(sum.cast_unsigned().wrapping_add(v[2]))
}
