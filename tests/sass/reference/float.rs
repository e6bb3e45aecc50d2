//! Floats: exact where PTX asks for it, else within what its manual promises.

use super::exact::{BF16, E4M3, E5M2, F16, F32, F64, Format, Number, Round, TF32};
use super::int;
use super::{Value, ones};
use doorbell::isa::ptx::{Inst, Opcode, Type};

pub fn format(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16 => F16,
        Type::Bf16 => BF16,
        Type::F32 => F32,
        Type::F64 => F64,
        _ => return None,
    })
}

/// Rounding, flushing and clamping of an instruction.
struct Mode {
    round: Round,
    flush: bool,
}

fn mode(i: &Inst) -> Mode {
    let round = [("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up), ("rna", Round::Away)];
    let round = round.iter().find(|(w, _)| i.has(w)).map_or(Round::Even, |r| r.1);
    Mode { round, flush: i.has("ftz") }
}

/// An instruction on floats of a format; `None`: it is none that is known here.
pub fn compute(i: &Inst, f: Format, v: &[Value]) -> Option<Value> {
    let m = mode(i);
    let read = |k: usize| f.read(f.flushed(v[k].bits & ones(f.bits()), m.flush));
    let exact =
        |n: Number| Some(Value { bits: clamped(i, f, f.flushed(f.write(n, m.round), m.flush)), ..Value::default() });
    let far = v.iter().any(|v| v.off > 0.0);
    if far {
        // What is made of an approximated number is not known exactly.
        return None;
    }
    match i.op {
        Opcode::Add => exact(read(0).add(read(1), m.round)),
        Opcode::Sub => exact(read(0).add(read(1).negated(), m.round)),
        Opcode::Mul => exact(read(0).mul(read(1))),
        Opcode::Fma | Opcode::Mad => exact(read(0).mul(read(1)).add(read(2), m.round)),
        Opcode::Neg | Opcode::Abs => {
            let top = 1u128 << (f.bits() - 1);
            let bits = f.flushed(v[0].bits & ones(f.bits()), m.flush);
            let bits = if i.op == Opcode::Neg { bits ^ top } else { bits & !top };
            Some(Value { bits, ..Value::default() })
        }
        Opcode::Copysign => {
            let top = 1u128 << (f.bits() - 1);
            Some(Value { bits: v[1].bits & !top & ones(f.bits()) | v[0].bits & top, ..Value::default() })
        }
        Opcode::Min | Opcode::Max => Some(Value { bits: extreme(i, f, m.flush, v), ..Value::default() }),
        Opcode::Div | Opcode::Sqrt | Opcode::Rcp if !approximate(i) => quotient(i, f, &m, v),
        Opcode::Div
        | Opcode::Sqrt
        | Opcode::Rcp
        | Opcode::Rsqrt
        | Opcode::Ex2
        | Opcode::Lg2
        | Opcode::Sin
        | Opcode::Cos
        | Opcode::Tanh
            if approximate(i) =>
        {
            approximated(i, f, m.flush, v)
        }
        _ => None,
    }
}

fn approximate(i: &Inst) -> bool {
    i.has("approx") || i.has("full")
}

/// `.sat`: between 0 and 1, and 0 for what is no number; `.relu`: not below 0.
fn clamped(i: &Inst, f: Format, bits: u128) -> u128 {
    let n = f.read(bits);
    if i.has("sat") {
        let one = f.write(Number::of_int(1), Round::Even);
        return match n {
            Number::Nan => 0,
            n if n.is_negative() => 0,
            n if n.compare(Number::of_int(1)) == Some(std::cmp::Ordering::Greater) => one,
            _ => bits,
        };
    }
    if i.has("relu") && n != Number::Nan && n.is_negative() { 0 } else { bits }
}

fn extreme(i: &Inst, f: Format, flush: bool, v: &[Value]) -> u128 {
    let top = 1u128 << (f.bits() - 1);
    let raw = [0, 1].map(|k| f.flushed(v[k].bits & ones(f.bits()), flush));
    let sign = (raw[0] ^ raw[1]) & top;
    let parts = if i.has("abs") { raw.map(|b| b & !top) } else { raw };
    let [a, b] = parts.map(|b| f.read(b));
    let bits = match (a == Number::Nan, b == Number::Nan) {
        (true, true) => return f.nan(),
        (true, false) | (false, true) if i.has("NaN") => return f.nan(),
        (true, false) => parts[1],
        (false, true) => parts[0],
        (false, false) => {
            let first = match a.compare(b) {
                Some(std::cmp::Ordering::Less) => true,
                Some(std::cmp::Ordering::Greater) => false,
                // Of zeros the negative one is less.
                _ => parts[0] & top != 0,
            };
            parts[usize::from(first != (i.op == Opcode::Min))]
        }
    };
    if i.has("xorsign") { bits & !top | sign } else { bits }
}

/// Division and roots, in any rounding: the processor's result in 53 bits, and on which side of it the exact one is.
fn quotient(i: &Inst, f: Format, m: &Mode, v: &[Value]) -> Option<Value> {
    let bits = |k: usize| f.flushed(v[k].bits & ones(f.bits()), m.flush);
    let (x, number) = (|k: usize| f.to_f64(bits(k)), |k: usize| f.read(bits(k)));
    let one = Number::of_int(1);
    let (near, divisor, whole) = match i.op {
        Opcode::Div => (x(0) / x(1), number(1), number(0)),
        Opcode::Rcp => (1.0 / x(0), number(0), one),
        _ => (x(0).sqrt(), F64.read(x(0).sqrt().to_bits().into()), number(0)),
    };
    let near = F64.read(near.to_bits().into());
    // The same way that the divisor makes it larger or smaller.
    let side = near.magnitude().mul(divisor.magnitude()).compare(whole.magnitude());
    let exact = match (near, side) {
        (Number::Finite(n, mantissa, e), Some(std::cmp::Ordering::Less)) if mantissa != 0 => {
            Number::Finite(n, (mantissa << 60) + 1, e - 60)
        }
        (Number::Finite(n, mantissa, e), Some(std::cmp::Ordering::Greater)) if mantissa != 0 => {
            Number::Finite(n, (mantissa << 60) - 1, e - 60)
        }
        _ => near,
    };
    Some(Value { bits: f.flushed(f.write(exact, m.round), m.flush), ..Value::default() })
}

/// Within the manual's bounds, most of which are parts of the value, those of sines and logarithms absolute near one.
fn approximated(i: &Inst, f: Format, flush: bool, v: &[Value]) -> Option<Value> {
    let x = |k: usize| f.to_f64(f.flushed(v[k].bits & ones(f.bits()), flush));
    let a = x(0);
    let exact = match i.op {
        Opcode::Div => a / x(1),
        Opcode::Rcp => 1.0 / a,
        Opcode::Sqrt => a.sqrt(),
        Opcode::Rsqrt => 1.0 / a.sqrt(),
        Opcode::Ex2 => a.exp2(),
        Opcode::Lg2 => a.log2(),
        Opcode::Sin => a.sin(),
        Opcode::Cos => a.cos(),
        _ => a.tanh(),
    };
    let bits = f.write(F64.read(exact.to_bits().into()), Round::Even);
    let (part, least) = match (i.op, f.bits()) {
        (Opcode::Tanh, 32) => (2f64.powi(-10), 0.0),
        (Opcode::Tanh, 16) if f == F16 => (2f64.powi(-9), 1.0),
        (_, 16) => (2f64.powi(if f == BF16 { -7 } else { -9 }), 0.0),
        // Far from zero nothing but the range is promised.
        (Opcode::Sin | Opcode::Cos, _) if a.abs() > std::f64::consts::PI => (2.0, 1.0),
        (Opcode::Sin | Opcode::Cos | Opcode::Lg2, _) => (2f64.powi(-20), 1.0),
        _ => (2f64.powi(-19), 0.0),
    };
    // Of the value, but at least of so much; denormal results may be zeros.
    let size = if exact.is_finite() { exact.abs().max(least) } else { 0.0 };
    let off = (part * size).max(f.smallest_normal());
    Some(Value { bits: f.flushed(bits, flush), off, float: None })
}

/// Whether a comparison of that name holds.
pub fn holds(word: &str, a: Number, b: Number) -> Option<bool> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = a.compare(b);
    let (plain, unordered) = match word {
        "num" => return Some(order.is_some()),
        "nan" => return Some(order.is_none()),
        w => match w.strip_suffix('u') {
            Some(w) => (w, true),
            None => (w, false),
        },
    };
    let Some(order) = order else { return Some(unordered) };
    Some(match plain {
        "eq" => order == Equal,
        "ne" => order != Equal,
        "lt" => order == Less,
        "le" => order != Greater,
        "gt" => order == Greater,
        "ge" => order != Less,
        _ => return None,
    })
}

/// A conversion between two types.
pub fn convert(i: &Inst, types: &[Type], v: &[Value]) -> Option<Value> {
    if v.iter().any(|v| v.off > 0.0) {
        return None;
    }
    let exact = |bits: u128| Some(Value { bits, ..Value::default() });
    let (to, from) = (types[0], *types.get(1)?);
    let m = mode(i);
    let whole = [("rni", Round::Even), ("rzi", Round::Zero), ("rmi", Round::Down), ("rpi", Round::Up)];
    let whole = whole.iter().find(|(w, _)| i.has(w)).map(|r| r.1);
    // Of halves nothing is flushed.
    let source = |f: Format, bits: u128| f.read(f.flushed(bits & ones(f.bits()), m.flush && f == F32));
    let packed = |f: Format, n: Number| {
        let n = if i.has("relu") && n.is_negative() { Number::of_int(0) } else { n };
        if i.has("satfinite") { f.write_finite(n, m.round) } else { f.write(n, m.round) }
    };
    let two = |f: Format| {
        let half = f.bits();
        // The first source stands above the second.
        let g = format(from)?;
        exact(packed(f, source(g, v[0].bits)) << half | packed(f, source(g, v[1].bits)))
    };
    let lanes = |f: Format, g: Format| {
        let lane = |k: u32| packed(f, source(g, v[0].bits >> (k * g.bits())));
        exact(lane(1) << f.bits() | lane(0))
    };
    match (to, from) {
        (Type::F16x2, Type::F32) => two(F16),
        (Type::Bf16x2, Type::F32) => two(BF16),
        (Type::E4m3x2, Type::F32) => two(E4M3),
        (Type::E5m2x2, Type::F32) => two(E5M2),
        (Type::E4m3x2, Type::F16x2) => lanes(E4M3, F16),
        (Type::E5m2x2, Type::F16x2) => lanes(E5M2, F16),
        (Type::F16x2, Type::E4m3x2) => lanes(F16, E4M3),
        (Type::F16x2, Type::E5m2x2) => lanes(F16, E5M2),
        (Type::Tf32, Type::F32) => {
            let n = source(F32, v[0].bits);
            // No number is all ones, below the bits that a tf32 has too.
            if n == Number::Nan { exact(0x7fff_ffff) } else { exact(packed(TF32, n) << 13) }
        }
        _ => match (format(to), format(from)) {
            (Some(f), Some(g)) => {
                let n = source(g, v[0].bits);
                let n = whole.map_or(n, |r| n.integral(r));
                let n = if i.has("relu") && n.is_negative() { Number::of_int(0) } else { n };
                exact(clamped(i, f, f.flushed(f.write(n, m.round), m.flush)))
            }
            (Some(f), None) => exact(f.write(Number::of_int(int::number(v[0].bits, from)), m.round)),
            (None, Some(g)) => {
                let round = whole?;
                let bits = source(g, v[0].bits).to_int(to.bits(), to.is_signed(), round);
                exact(if to.is_signed() { int::signed(bits, to.bits()).cast_unsigned() } else { bits })
            }
            (None, None) => {
                let n = int::number(v[0].bits, from);
                let (low, high) = super::exact::range(to.bits(), to.is_signed());
                let n = if i.has("sat") { n.clamp(low, high) } else { n };
                exact(int::number(n.cast_unsigned(), to).cast_unsigned())
            }
        },
    }
}
