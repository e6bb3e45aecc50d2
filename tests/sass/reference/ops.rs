//! What an instruction makes of its sources.

use super::exact::{BF16, F16, Format};
use super::float::{self, format};
use super::int;
use super::{Value, ones};
use doorbell::isa::ptx::{Inst, Modifier, Opcode, Type};

/// The results: one, or two of a comparison.
pub fn compute(i: &Inst, types: &[Type], v: &[Value], carry: &mut bool) -> Result<Vec<Value>, String> {
    let unknown = || format!("{:?} {:?}", i.op, i.mods);
    let Some(ty) = types.first().copied() else { return Err(unknown()) };
    let one = match i.op {
        Opcode::Setp => return setp(i, types, v).ok_or_else(unknown),
        Opcode::Set => set(i, types, v),
        Opcode::Selp => Some(if v[2].bits == 1 { v[0] } else { v[1] }),
        Opcode::Slct => Some(if slct(types, v[2].bits).ok_or_else(unknown)? { v[0] } else { v[1] }),
        Opcode::Cvta => cvta(i, v[0]),
        Opcode::Cvt => float::convert(i, types, v),
        Opcode::Dp4a | Opcode::Dp2a => int::dot(i, types, &bits(v)).map(plain),
        _ => match ty {
            Type::F16x2 => lanes(i, F16, v),
            Type::Bf16x2 => lanes(i, BF16, v),
            Type::U16x2 => whole_lanes(i, Type::U16, v, carry),
            Type::S16x2 => whole_lanes(i, Type::S16, v, carry),
            _ => match format(ty) {
                Some(f) => float::compute(i, f, v),
                // The bits of a NaN are not specified.
                None if v.iter().any(Value::holds_nan) => return Err("bits of what is no number".into()),
                None => int::compute(i, ty, &bits(v), carry).map(|b| {
                    let wide = if i.has("wide") { 2 * ty.bits() } else { ty.bits() };
                    let counts = matches!(i.op, Opcode::Popc | Opcode::Clz | Opcode::Bfind);
                    plain(b & ones(if counts { 32 } else { wide }))
                }),
            },
        },
    };
    if v.iter().any(|v| v.off > 0.0) && one.is_none_or(|r| r.off == 0.0) {
        return Err("a number made of an approximated one".into());
    }
    // What a choice gives, is what it has chosen from.
    let chosen = matches!(i.op, Opcode::Selp | Opcode::Slct | Opcode::Cvta);
    let float = |r: Value| {
        if chosen {
            r.float
        } else {
            Some(ty).filter(|t| format(*t).is_some() || matches!(t, Type::F16x2 | Type::Bf16x2))
        }
    };
    one.map(|r| vec![Value { float: float(r), ..r }]).ok_or_else(unknown)
}

fn plain(bits: u128) -> Value {
    Value::plain(bits)
}

fn bits(v: &[Value]) -> Vec<u128> {
    v.iter().map(|v| v.bits).collect()
}

/// Generic addresses are those of global memory; of other memory they have their window.
fn cvta(i: &Inst, v: Value) -> Option<Value> {
    use doorbell::isa::ptx::Space;
    let window = match i.space()? {
        Space::Global => 0,
        Space::Shared | Space::SharedCta => super::SHARED,
        Space::Local => super::LOCAL,
        Space::Const => super::CONSTANT,
        _ => return None,
    };
    Some(plain(if i.has("to") { v.bits & !u128::from(super::SPACE) } else { v.bits | u128::from(window) }))
}

fn lanes(i: &Inst, f: Format, v: &[Value]) -> Option<Value> {
    let lane = |k: u32| {
        let part: Vec<Value> = v.iter().map(|v| Value { bits: v.bits >> (16 * k) & 0xffff, ..*v }).collect();
        float::compute(i, f, &part)
    };
    let (low, high) = (lane(0)?, lane(1)?);
    Some(Value { bits: high.bits << 16 | low.bits, off: low.off.max(high.off), float: None })
}

fn whole_lanes(i: &Inst, ty: Type, v: &[Value], carry: &mut bool) -> Option<Value> {
    let mut lane = |k: u32| {
        let part: Vec<u128> = v.iter().map(|v| v.bits >> (16 * k) & 0xffff).collect();
        int::compute(i, ty, &part, carry)
    };
    let (low, high) = (lane(0)? & 0xffff, lane(1)? & 0xffff);
    Some(plain(high << 16 | low))
}

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

/// Whether an instruction's comparison holds of two values of a type.
fn holds(i: &Inst, ty: Type, a: u128, b: u128) -> Option<bool> {
    let word = i.mods.iter().find_map(|m| match m {
        Modifier::Word(w) => COMPARISONS.into_iter().find(|c| *c == &**w),
        _ => None,
    })?;
    if let Some(f) = format(ty) {
        let read = |b: u128| f.read(f.flushed(b & ones(f.bits()), i.has("ftz")));
        return float::holds(word, read(a), read(b));
    }
    let (a, b) = (int::number(a, ty), int::number(b, ty));
    Some(match word {
        "eq" => a == b,
        "ne" => a != b,
        "lt" | "lo" => a < b,
        "le" | "ls" => a <= b,
        "gt" | "hi" => a > b,
        "ge" | "hs" => a >= b,
        _ => return None,
    })
}

fn joined(i: &Inst, found: bool, with: Option<&Value>) -> bool {
    let Some(p) = with.map(|v| v.bits == 1) else { return found };
    match () {
        () if i.has("and") => found && p,
        () if i.has("or") => found || p,
        () if i.has("xor") => found != p,
        () => found,
    }
}

fn setp(i: &Inst, types: &[Type], v: &[Value]) -> Option<Vec<Value>> {
    if v.iter().any(|v| v.off > 0.0) {
        return None;
    }
    let of = |b: bool| plain(b.into());
    let ty = types[0];
    let lane = match ty {
        Type::F16x2 => Some(Type::F16),
        Type::Bf16x2 => Some(Type::Bf16),
        _ => None,
    };
    if let Some(lane) = lane {
        let found = |k: u32| holds(i, lane, v[0].bits >> (16 * k) & 0xffff, v[1].bits >> (16 * k) & 0xffff);
        return Some(vec![of(joined(i, found(0)?, v.get(2))), of(joined(i, found(1)?, v.get(2)))]);
    }
    let found = holds(i, ty, v[0].bits, v[1].bits)?;
    Some(vec![of(joined(i, found, v.get(2))), of(joined(i, !found, v.get(2)))])
}

/// The second of two types is that of what is compared.
fn set(i: &Inst, types: &[Type], v: &[Value]) -> Option<Value> {
    let [to, from] = types else { return None };
    let yes = |b: bool, ty: Type| match format(ty) {
        Some(f) if b => f.write(super::exact::Number::of_int(1), super::exact::Round::Even),
        None if b => ones(ty.bits()),
        _ => 0,
    };
    let lane = match from {
        Type::F16x2 => Type::F16,
        Type::Bf16x2 => Type::Bf16,
        _ => return Some(plain(yes(joined(i, holds(i, *from, v[0].bits, v[1].bits)?, v.get(2)), *to))),
    };
    let found = |k: u32| holds(i, lane, v[0].bits >> (16 * k) & 0xffff, v[1].bits >> (16 * k) & 0xffff);
    let part = |b: bool| {
        if format(*to).is_some() || matches!(to, Type::F16x2 | Type::Bf16x2) { yes(b, lane) } else { yes(b, Type::U16) }
    };
    Some(plain(part(found(1)?) << 16 | part(found(0)?)))
}

fn slct(types: &[Type], c: u128) -> Option<bool> {
    match types.get(1)? {
        Type::S32 => Some(int::number(c, Type::S32) >= 0),
        // Minus zero is not below zero.
        Type::F32 => Some(
            float::holds("ge", super::exact::F32.read(c & ones(32)), super::exact::Number::of_int(0)) == Some(true),
        ),
        _ => None,
    }
}

/// What an atomic operation leaves where `old` stood.
pub fn combined(i: &Inst, ty: Type, old: u128, v: &[Value]) -> Result<u128, String> {
    let given = |k: usize| v.get(k).map(|v| v.bits & ones(ty.bits())).ok_or_else(|| String::from("too few sources"));
    let b = given(0)?;
    let op = match () {
        () if i.has("exch") => return Ok(b),
        () if i.has("cas") => return Ok(if old == b { given(1)? } else { old }),
        () if i.has("inc") => return Ok(if old >= b { 0 } else { old + 1 }),
        () if i.has("dec") => return Ok(if old == 0 || old > b { b } else { old - 1 }),
        () if i.has("add") => Opcode::Add,
        () if i.has("min") => Opcode::Min,
        () if i.has("max") => Opcode::Max,
        () if i.has("and") => Opcode::And,
        () if i.has("or") => Opcode::Or,
        () if i.has("xor") => Opcode::Xor,
        () => return Err(format!("{:?}", i.mods)),
    };
    // In global memory sums of f32 know no denormal numbers.
    let flush = ty == Type::F32 && i.space() != Some(doorbell::isa::ptx::Space::Shared);
    let clean = |bits: u128| format(ty).map_or(bits, |f| f.flushed(bits, flush));
    let plain_op = Inst { op, mods: [].into(), guard: None, operands: vec![], pos: i.pos };
    let all = compute(&plain_op, &[ty], &[plain(clean(old)), plain(clean(b))], &mut false)?;
    Ok(clean(all[0].bits) & ones(ty.bits()))
}
