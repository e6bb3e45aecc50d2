//! The interval of every integer node, computed at construction. Arithmetic is exact in i128. If the result could wrap,
//! the interval widens to the dtype's range, so a bound always covers the machine's value.

use super::{Arg, ConstVal, DType, Op, Scalar, UOp};

/// Smallest and largest value, inclusive.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Smallest value.
    pub min: i128,
    /// Largest value.
    pub max: i128,
}

impl Bounds {
    /// From `min` to `max`, both included.
    pub const fn new(min: i128, max: i128) -> Bounds {
        Bounds { min, max }
    }
    /// Everything that a value of this type may be, as [`Scalar::int_range`] says.
    pub const fn full(dtype: DType) -> Bounds {
        let (min, max) = dtype.scalar.int_range();
        Bounds { min, max }
    }
    fn hull(values: impl IntoIterator<Item = i128>) -> Bounds {
        values.into_iter().fold(Bounds::new(i128::MAX, i128::MIN), |b, v| Bounds::new(b.min.min(v), b.max.max(v)))
    }
    fn fits(self, outer: Bounds) -> bool {
        self.min >= outer.min && self.max <= outer.max
    }
}

/// Bounds in 16 bytes. Bounds of an integer or bool are in the range of its type, so 64-bit words hold them; everything
/// else has the full range.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Packed(u64, u64);

impl Packed {
    pub(crate) fn new(b: Bounds) -> Packed {
        Packed(b.min as u64, b.max as u64)
    }
    /// The bounds of a node of this type.
    pub(crate) fn of(self, dtype: DType) -> Bounds {
        match dtype.scalar {
            Scalar::U64 => Bounds::new(self.0 as i128, self.1 as i128),
            s if s.is_int() || s == Scalar::Bool => Bounds::new(self.0 as i64 as i128, self.1 as i64 as i128),
            _ => Bounds::full(dtype),
        }
    }
}

/// Sum and difference are monotonic in each operand: two corners are enough.
fn add(a: Bounds, b: Bounds) -> Bounds {
    Bounds::new(a.min.saturating_add(b.min), a.max.saturating_add(b.max))
}
fn sub(a: Bounds, b: Bounds) -> Bounds {
    Bounds::new(a.min.saturating_sub(b.max), a.max.saturating_sub(b.min))
}
fn mul(a: Bounds, b: Bounds) -> Bounds {
    let word = |x: i128| x as i64 as i128 == x;
    if a.min >= 0 && b.min >= 0 && word(a.max) && word(b.max) {
        return Bounds::new(a.min * b.min, a.max * b.max);
    }
    corners(a, b, i128::saturating_mul)
}

fn corners(a: Bounds, b: Bounds, f: impl Fn(i128, i128) -> i128) -> Bounds {
    Bounds::hull([f(a.min, b.min), f(a.min, b.max), f(a.max, b.min), f(a.max, b.max)])
}

/// Bounds of a node with these parts.
pub(super) fn of(op: Op, dtype: DType, src: &[UOp], arg: &Arg) -> Bounds {
    let full = Bounds::full(dtype);
    if dtype.space.is_some() || !(dtype.scalar.is_int() || dtype.is_bool()) {
        return full;
    }
    let b = |k: usize| src.get(k).map_or(full, UOp::bounds);
    let r = match op {
        Op::Const => match arg {
            Arg::Const(c) => c.as_int().map_or(full, |v| Bounds::new(v, v)),
            _ => full,
        },
        Op::Var => match arg {
            Arg::Var(_, lo, hi) => Bounds::new(*lo as i128, *hi as i128),
            _ => full,
        },
        Op::Bind => b(0),
        Op::Range | Op::Special | Op::Iota => Bounds::new(0, (b(0).max - 1).max(0)),
        Op::Cast if src.first().is_some_and(|s| !s.dtype().is_float()) => b(0),
        _ if op.is_movement() && op != Op::Pad => b(0),
        Op::Pad => Bounds::hull([b(0).min, b(0).max, 0]),
        Op::Splat
        | Op::Gep
        | Op::After
        | Op::Contiguous
        | Op::Detach
        | Op::ContiguousBackward
        | Op::Copy
        | Op::Fused => b(0),
        Op::Stack | Op::Cat => Bounds::hull(src.iter().flat_map(|s| [s.vmin(), s.vmax()])),
        Op::Reduce if matches!(arg, Arg::Reduce(Op::Max, _)) => b(0),
        _ if op.is_alu() => alu(op, dtype, src),
        _ => full,
    };
    if r.min <= r.max && r.fits(full) { r } else { full }
}

fn alu(op: Op, dtype: DType, src: &[UOp]) -> Bounds {
    let full = Bounds::full(dtype);
    let (Some(sa), sb) = (src.first(), src.get(1)) else { return full };
    if src.iter().any(|s| s.dtype().is_float()) {
        return full;
    }
    let a = sa.bounds();
    let b = sb.map_or(a, UOp::bounds);
    match op {
        Op::Neg => Bounds::new(-a.max, -a.min),
        Op::Add if dtype.is_bool() => Bounds::new(a.min.max(b.min), a.max.max(b.max)),
        Op::Add => add(a, b),
        Op::Sub => sub(a, b),
        Op::Mul if sb == Some(sa) && a.min < 0 => {
            Bounds::new(0, a.min.saturating_mul(a.min).max(a.max.saturating_mul(a.max)))
        }
        Op::Mul => mul(a, b),
        Op::MulAcc => {
            let c = src.get(2).map_or(full, UOp::bounds);
            add(mul(a, b), c)
        }
        Op::Max => Bounds::new(a.min.max(b.min), a.max.max(b.max)),
        Op::CDiv if b.min > 0 || b.max < 0 => corners(a, b, |x, y| x / y),
        Op::FloorDiv if b.min > 0 || b.max < 0 => corners(a, b, floor_div),
        Op::CMod if b.min > 0 => {
            if a.min >= 0 {
                if a.max < b.min { a } else { Bounds::new(0, a.max.min(b.max - 1)) }
            } else {
                Bounds::new((-(b.max - 1)).max(a.min), if a.max > 0 { a.max.min(b.max - 1) } else { 0 })
            }
        }
        Op::FloorMod if b.min > 0 => {
            if b.min == b.max && floor_div(a.min, b.min) == floor_div(a.max, b.min) {
                Bounds::new(floor_mod(a.min, b.min), floor_mod(a.max, b.min))
            } else {
                Bounds::new(0, if a.min >= 0 { a.max.min(b.max - 1) } else { b.max - 1 })
            }
        }
        // It has the divisor's sign and is smaller than the divisor; division by zero gives zero.
        Op::FloorMod => Bounds::new((b.min + 1).min(0), (b.max - 1).max(0)),
        Op::FloorDiv | Op::CDiv => {
            let most = a.min.saturating_abs().max(a.max.saturating_abs());
            Bounds::new(-most, most)
        }
        Op::Shl if b.min >= 0 && b.max < 64 => corners(a, b, |x, y| x.saturating_mul(1 << y)),
        Op::Shr if b.min >= 0 && b.max < 64 => corners(a, b, |x, y| x >> y),
        Op::And if dtype.is_bool() => Bounds::new(a.min.min(b.min), a.max.min(b.max)),
        Op::And if a.min >= 0 && b.min >= 0 => Bounds::new(0, a.max.min(b.max)),
        Op::And if b.min >= 0 => Bounds::new(0, b.max),
        Op::And if a.min >= 0 => Bounds::new(0, a.max),
        Op::Or if dtype.is_bool() => Bounds::new(a.min.max(b.min), a.max.max(b.max)),
        Op::Or | Op::Xor if a.min >= 0 && b.min >= 0 && a.max < 1 << 62 && b.max < 1 << 62 => {
            let ones = ((a.max | b.max) as u128 + 1).next_power_of_two() as i128 - 1;
            Bounds::new(0, ones)
        }
        Op::CmpLt => truth(a.max < b.min, a.min >= b.max),
        Op::CmpNe => truth(a.max < b.min || b.max < a.min, a.min == a.max && a == b || sb == Some(sa)),
        Op::CmpEq => truth(a.min == a.max && a == b || sb == Some(sa), a.max < b.min || b.max < a.min),
        Op::Where => {
            let (x, y) = (b, src.get(2).map_or(full, UOp::bounds));
            match (a.min, a.max) {
                (1, _) => x,
                (_, 0) => y,
                _ => Bounds::new(x.min.min(y.min), x.max.max(y.max)),
            }
        }
        _ => full,
    }
}

fn truth(always: bool, never: bool) -> Bounds {
    match (always, never) {
        (true, _) => Bounds::new(1, 1),
        (_, true) => Bounds::new(0, 0),
        _ => Bounds::new(0, 1),
    }
}

/// Quotient rounded down.
pub const fn floor_div(a: i128, b: i128) -> i128 {
    let (q, r) = (a / b, a % b);
    if r != 0 && ((r < 0) != (b < 0)) { q - 1 } else { q }
}
/// Remainder with the divisor's sign.
pub(crate) const fn floor_mod(a: i128, b: i128) -> i128 {
    a - floor_div(a, b) * b
}

/// The constant `v` as a value of `dtype`: integers wrap, floats round, bool is "not zero".
pub fn const_as(v: ConstVal, dtype: DType) -> ConstVal {
    super::eval::cast_const(v, dtype.scalar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_every_type_come_back_from_their_packed_form() {
        let all = Scalar::STORABLE.into_iter().chain([Scalar::WeakInt, Scalar::WeakFloat, Scalar::Void]);
        for t in all.map(|s| DType::VOID.with_scalar(s)) {
            let full = Bounds::full(t);
            assert_eq!(Packed::new(full).of(t), full, "{t:?}");
            if t.scalar.is_int() {
                let low = Bounds::new(full.min, full.min + 1);
                assert_eq!(Packed::new(low).of(t), low, "{t:?}");
            }
        }
    }
}
