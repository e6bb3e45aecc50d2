//! Integer division and remainder.
//!
//! By a constant: shifts and masks for powers of two; else a multiplication by M = ceil(2^s/c) and a shift, which is
//! exact for 0 <= a <= N when (M*c - 2^s) * N < 2^s (Granlund and Montgomery, "Division by invariant integers using
//! multiplication", PLDI 1994). Bounds choose the narrowest arithmetic that holds the product. A negative x is divided
//! as its complement: floor(x/c) = ~floor(~x / c). By a value: the machine divides, with the divisors 0 and -1 replaced
//! (x/0 = 0, and nothing overflows); vectors of up to 32 bits divide in f64, whose truncated quotient is exact for
//! them.

use super::super::Target;
use super::float::ilit;
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp};

pub(crate) fn lower(u: &UOp, target: &Target) -> Option<UOp> {
    let t = u.dtype();
    if !t.is_int() {
        return None;
    }
    let (x, y) = (&u.src()[0], &u.src()[1]);
    match y.as_const().and_then(ConstVal::as_int) {
        Some(0) => Some(ilit(t, 0)),
        Some(c) => by_constant(u.op(), x, c),
        None => by_value(u, x, y, target.f64),
    }
}

const fn is_mod(op: Op) -> bool {
    matches!(op, Op::FloorMod | Op::CMod)
}
const fn is_floor(op: Op) -> bool {
    matches!(op, Op::FloorDiv | Op::FloorMod)
}
fn width(t: DType) -> u32 {
    if t.scalar.is_weak() { 64 } else { t.scalar.size_bytes() as u32 * 8 }
}

fn by_constant(op: Op, x: &UOp, c: i128) -> Option<UOp> {
    let t = x.dtype();
    let k = |v| ilit(t, v);
    if c == 1 || c == -1 {
        return Some(if is_mod(op) {
            k(0)
        } else if c == 1 {
            x.clone()
        } else {
            -x
        });
    }
    let power = c > 0 && c & (c - 1) == 0;
    let floor = is_floor(op) || x.vmin() >= 0 && c > 0;
    if power && floor {
        let s = c.trailing_zeros().into();
        return Some(if is_mod(op) { x & &k(c - 1) } else { x.binary(Op::Shr, &k(s)) });
    }
    let q = quotient(x, c, floor)?;
    Some(if is_mod(op) { x - &(&q * &k(c)) } else { q })
}

/// x/c rounded down or toward zero; `None` if the machine's own division should be used.
fn quotient(x: &UOp, c: i128, floor: bool) -> Option<UOp> {
    let t = x.dtype();
    let k = |v| ilit(t, v);
    if x.vmin() >= 0 && c > 0 {
        return multiply(x, c, x.vmax()).or_else(|| leave(x, c, floor));
    }
    let sign = || x.binary(Op::Shr, &k((width(t) - 1).into()));
    if floor && c > 0 {
        let s = sign();
        let most = x.vmax().max(-x.vmin() - 1);
        return match multiply(&(x ^ &s), c, most) {
            Some(q) => Some(&q ^ &s),
            None => leave(x, c, floor),
        };
    }
    if !floor {
        let s = sign();
        let size = &(x ^ &s) - &s;
        let most = x.vmax().max(-x.vmin());
        // The size of the smallest number needs the unsigned type.
        let unsigned = size.bitcast(t.with_scalar(unsigned(t.scalar)));
        let Some(q) = multiply(&unsigned, c.abs(), most) else { return leave(x, c, floor) };
        let q = q.bitcast(t);
        let q = &(&q ^ &s) - &s;
        return Some(if c < 0 { -&q } else { q });
    }
    leave(x, c, floor)
}

const fn unsigned(s: Scalar) -> Scalar {
    match s {
        Scalar::I8 => Scalar::U8,
        Scalar::I16 => Scalar::U16,
        Scalar::I32 => Scalar::U32,
        Scalar::I64 => Scalar::U64,
        s => s,
    }
}

/// The machine's division, corrected if rounding down is required. `None`: the op is already that.
fn leave(x: &UOp, c: i128, floor: bool) -> Option<UOp> {
    let k = |v| ilit(x.dtype(), v);
    if !floor {
        return None;
    }
    let q = x.binary(Op::CDiv, &k(c));
    if x.vmin() >= 0 && c > 0 {
        return Some(q);
    }
    Some(rounded_down(x, &k(c), &q))
}

/// Turns a quotient rounded toward zero into one rounded down.
fn rounded_down(x: &UOp, y: &UOp, q: &UOp) -> UOp {
    let k = |v| ilit(x.dtype(), v);
    let r = x - &(q * y);
    let against = (&r ^ y).lt(&k(0)).and(&r.ne(&k(0)));
    against.select(&(q - &k(1)), q)
}

/// a/c for 0 <= a <= most, by multiplication.
fn multiply(a: &UOp, c: i128, most: i128) -> Option<UOp> {
    let t = a.dtype();
    if c > most {
        return Some(ilit(t, 0));
    }
    if c & (c - 1) == 0 {
        return Some(a.binary(Op::Shr, &ilit(t, c.trailing_zeros().into())));
    }
    let magic = |limit: u32| {
        (0..limit + 1).find_map(|s| {
            let m = ((1i128 << s) + c - 1) / c;
            let exact = (m * c - (1i128 << s)).checked_mul(most)? < (1i128 << s);
            let fits = m.checked_mul(most)? < (1i128 << limit);
            (exact && fits).then_some((m, s))
        })
    };
    let (narrow, wide) = (t.with_scalar(Scalar::U32), t.with_scalar(Scalar::U64));
    let in_type = |w: DType, (m, s): (i128, u32)| {
        let p = &a.cast(w) * &ilit(w, m);
        p.binary(Op::Shr, &ilit(w, s.into())).cast(t)
    };
    if width(t) == 64 {
        let limit = if t.scalar.is_unsigned() { 64 } else { 63 };
        return magic(limit.min(63)).map(|ms| in_type(t, ms));
    }
    if let Some(ms) = magic(32) {
        return Some(in_type(narrow, ms));
    }
    if let Some(ms) = magic(63).or_else(|| magic(64).filter(|ms| ms.1 < 64)) {
        return Some(in_type(wide, ms));
    }
    // A 33-bit multiplier: its lower 32 bits, and the missing a added in two steps.
    let l = 128 - (c - 1).leading_zeros();
    let m = ((1i128 << 32) * ((1i128 << l) - c)) / c + 1;
    let a = a.cast(narrow);
    let high = (&a.cast(wide) * &ilit(wide, m)).binary(Op::Shr, &ilit(wide, 32)).cast(narrow);
    let half = (&a - &high).binary(Op::Shr, &ilit(narrow, 1));
    Some((&half + &high).binary(Op::Shr, &ilit(narrow, i128::from(l) - 1)).cast(t))
}

/// Whether [`by_value`] made this divisor differ from `bad`: it is 1 where the value below is that.
fn guarded(y: &UOp, bad: i128) -> bool {
    let [condition, safe, value] = y.src() else { return false };
    let is_bad = value.equal(&ilit(y.dtype(), bad));
    let found = *condition == is_bad || (condition.op() == Op::Or && condition.src().contains(&is_bad));
    y.op() == Op::Where && safe.as_const().is_some_and(ConstVal::is_one) && found
}

fn by_value(u: &UOp, x: &UOp, y: &UOp, has_f64: bool) -> Option<UOp> {
    let (t, op) = (u.dtype(), u.op());
    let k = |v| ilit(t, v);
    let in_f64 = has_f64 && t.lanes > 1 && width(t) <= 32;
    let may_be = |v: i128| y.vmin() <= v && v <= y.vmax() && !guarded(y, v);
    let zero = may_be(0);
    let minus_one = t.scalar.is_signed() && may_be(-1);
    if !is_floor(op) && !zero && !minus_one && !in_f64 {
        return None;
    }
    let is_zero = y.equal(&k(0));
    let is_minus_one = y.equal(&k(-1));
    let bad = match (zero, minus_one) {
        (true, true) => Some(is_zero.or(&is_minus_one)),
        (true, false) => Some(is_zero.clone()),
        (false, true) => Some(is_minus_one.clone()),
        _ => None,
    };
    let safe = bad.as_ref().map_or_else(|| y.clone(), |b| b.select(&k(1), y));
    let q = if in_f64 {
        let f = t.with_scalar(Scalar::F64);
        x.cast(f).binary(Op::FDiv, &safe.cast(f)).cast(t)
    } else {
        x.binary(Op::CDiv, &safe)
    };
    let down = is_floor(op) && t.scalar.is_signed() && !(x.vmin() >= 0 && y.vmin() >= 0);
    let q = if down { rounded_down(x, &safe, &q) } else { q };
    if is_mod(op) {
        let r = x - &(&q * &safe);
        return Some(bad.map_or_else(|| r.clone(), |b| b.select(&k(0), &r)));
    }
    let q = if minus_one { is_minus_one.select(&-x, &q) } else { q };
    Some(if zero { is_zero.select(&k(0), &q) } else { q })
}
