//! Operations on rows of lanes.

use super::half;
use super::math;
use crate::code::{Bin, Row, Un};

/// Lanes of a simdgroup.
pub(crate) const LANES: usize = 32;
/// A row.
pub(crate) type Lanes = [u32; LANES];

/// Replaces the lanes that are on.
#[inline(always)]
pub(super) fn put(d: &mut Lanes, r: &Lanes, mask: u32) {
    if mask == u32::MAX {
        *d = *r;
    } else {
        blend(d, r, mask);
    }
}

#[inline(never)]
fn blend(d: &mut Lanes, r: &Lanes, mask: u32) {
    for lane in 0..LANES {
        d[lane] = if mask >> lane & 1 != 0 { r[lane] } else { d[lane] };
    }
}

#[inline(always)]
fn map(regs: &mut [Lanes], (d, a, n): (Row, Row, u32), mask: u32, f: impl Fn(u32) -> u32) {
    for k in 0..n {
        let x = regs[(a + k) as usize];
        let r = x.map(&f);
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}

/// For functions that take long: only for lanes that are on.
#[inline(always)]
fn map_some(regs: &mut [Lanes], (d, a, n): (Row, Row, u32), mask: u32, f: impl Fn(f32) -> f32) {
    for k in 0..n {
        let x = regs[(a + k) as usize];
        let r = &mut regs[(d + k) as usize];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                r[lane] = f(f32::from_bits(x[lane])).to_bits();
            }
        }
    }
}

fn join(low: &Lanes, high: &Lanes) -> [u64; LANES] {
    std::array::from_fn(|l| u64::from(low[l]) | u64::from(high[l]) << 32)
}

fn put_wide(regs: &mut [Lanes], d: Row, r: &[u64; LANES], mask: u32) {
    put(&mut regs[d as usize], &r.map(|v| v as u32), mask);
    put(&mut regs[d as usize + 1], &r.map(|v| (v >> 32) as u32), mask);
}

fn wide(regs: &[Lanes], a: Row) -> [u64; LANES] {
    join(&regs[a as usize], &regs[a as usize + 1])
}

#[inline(always)]
fn narrow(regs: &mut [Lanes], (d, a, n): (Row, Row, u32), mask: u32, f: impl Fn(u64) -> u32) {
    for k in 0..n {
        let r = wide(regs, a + 2 * k).map(&f);
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}

#[inline(always)]
fn widen(regs: &mut [Lanes], (d, a, n): (Row, Row, u32), mask: u32, f: impl Fn(u32) -> u64) {
    // From the end: a result may lie where its operands do.
    for k in (0..n).rev() {
        let r = regs[(a + k) as usize].map(&f);
        put_wide(regs, d + 2 * k, &r, mask);
    }
}

#[inline(always)]
fn map_wide(regs: &mut [Lanes], (d, a, n): (Row, Row, u32), mask: u32, f: impl Fn(u64) -> u64) {
    for k in 0..n {
        let r = wide(regs, a + 2 * k).map(&f);
        put_wide(regs, d + 2 * k, &r, mask);
    }
}

fn bf(v: u64, negative: bool) -> u32 {
    let f = half::bfloat_from_u64(v);
    (if negative { -f } else { f }).to_bits()
}

fn float(v: u32) -> f32 {
    f32::from_bits(v)
}

pub(super) fn un(regs: &mut [Lanes], op: Un, at: (Row, Row, u32), mask: u32) {
    match op {
        Un::Not => map(regs, at, mask, |x| u32::from(x == 0)),
        Un::BitNot => map(regs, at, mask, |x| !x),
        Un::NegI => map(regs, at, mask, u32::wrapping_neg),
        Un::NegF => map(regs, at, mask, |x| x ^ 0x8000_0000),
        Un::AbsI => map(regs, at, mask, |x| (x as i32).unsigned_abs()),
        Un::AbsF => map(regs, at, mask, |x| x & 0x7fff_ffff),
        Un::Char => map(regs, at, mask, |x| x as i8 as i32 as u32),
        Un::UChar => map(regs, at, mask, |x| x & 0xff),
        Un::Short => map(regs, at, mask, |x| x as i16 as i32 as u32),
        Un::UShort => map(regs, at, mask, |x| x & 0xffff),
        Un::Half => map(regs, at, mask, half::round_half),
        Un::BFloat => map(regs, at, mask, half::round_bfloat),
        Un::BoolI => map(regs, at, mask, |x| u32::from(x != 0)),
        Un::BoolF => map(regs, at, mask, |x| u32::from(float(x) != 0.0)),
        Un::BoolL => narrow(regs, at, mask, |x| u32::from(x != 0)),
        Un::IntToFloat => map(regs, at, mask, |x| (x as i32 as f32).to_bits()),
        Un::UIntToFloat => map(regs, at, mask, |x| (x as f32).to_bits()),
        Un::LongToFloat => narrow(regs, at, mask, |x| (x as i64 as f32).to_bits()),
        Un::ULongToFloat => narrow(regs, at, mask, |x| (x as f32).to_bits()),
        Un::IntToBFloat => map(regs, at, mask, |x| bf((x as i32).unsigned_abs().into(), (x as i32) < 0)),
        Un::UIntToBFloat => map(regs, at, mask, |x| bf(x.into(), false)),
        Un::LongToBFloat => narrow(regs, at, mask, |x| bf((x as i64).unsigned_abs(), (x as i64) < 0)),
        Un::ULongToBFloat => narrow(regs, at, mask, |x| bf(x, false)),
        Un::FloatToInt => map(regs, at, mask, |x| float(x) as i32 as u32),
        Un::FloatToUInt => map(regs, at, mask, |x| float(x) as u32),
        Un::FloatToLong => widen(regs, at, mask, |x| float(x) as i64 as u64),
        Un::FloatToULong => widen(regs, at, mask, |x| float(x) as u64),
        Un::IntToLong => widen(regs, at, mask, |x| x as i32 as i64 as u64),
        Un::UIntToLong => widen(regs, at, mask, u64::from),
        Un::LongToInt => narrow(regs, at, mask, |x| x as u32),
        Un::NegL => map_wide(regs, at, mask, u64::wrapping_neg),
        Un::AbsL => map_wide(regs, at, mask, |x| (x as i64).unsigned_abs()),
        Un::HalfBits => map(regs, at, mask, |x| half::half_bits(x).into()),
        Un::HalfFromBits => map(regs, at, mask, half::half_from_bits),
        Un::BFloatBits => map(regs, at, mask, |x| x >> 16),
        Un::BFloatFromBits => map(regs, at, mask, |x| x << 16),
        Un::Popcount => map(regs, at, mask, u32::count_ones),
        Un::Clz => map(regs, at, mask, u32::leading_zeros),
        Un::Ctz => map(regs, at, mask, u32::trailing_zeros),
        Un::Reverse => map(regs, at, mask, u32::reverse_bits),
        Un::PopcountL => map_wide(regs, at, mask, |x| x.count_ones().into()),
        Un::ClzL => map_wide(regs, at, mask, |x| x.leading_zeros().into()),
        Un::CtzL => map_wide(regs, at, mask, |x| x.trailing_zeros().into()),
        Un::ReverseL => map_wide(regs, at, mask, u64::reverse_bits),
        Un::IsNan => map(regs, at, mask, |x| u32::from(float(x).is_nan())),
        Un::IsInf => map(regs, at, mask, |x| u32::from(float(x).is_infinite())),
        Un::IsFinite => map(regs, at, mask, |x| u32::from(float(x).is_finite())),
        Un::IsNormal => map(regs, at, mask, |x| u32::from(float(x).is_normal())),
        Un::HalfIsNormal => {
            map(regs, at, mask, |x| u32::from(float(x).is_finite() && float(x).abs() >= 1.0 / 16384.0));
        }
        Un::SignBit => map(regs, at, mask, |x| x >> 31),
        Un::Ilogb => map(regs, at, mask, |x| math::ilogb(float(x)) as u32),
        Un::FrexpExponent => map(regs, at, mask, |x| math::frexp(float(x)).1 as u32),
        Un::Math(op) => math::with(op, |f| map_some(regs, at, mask, f)),
    }
}

#[inline(always)]
fn map2(regs: &mut [Lanes], (d, a, b, n): (Row, Row, Row, u32), mask: u32, f: impl Fn(u32, u32) -> u32) {
    for k in 0..n {
        let (x, y) = (regs[(a + k) as usize], regs[(b + k) as usize]);
        let r: Lanes = std::array::from_fn(|l| f(x[l], y[l]));
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}

#[inline(always)]
fn floats(regs: &mut [Lanes], at: (Row, Row, Row, u32), mask: u32, f: impl Fn(f32, f32) -> f32) {
    map2(regs, at, mask, |x, y| f(float(x), float(y)).to_bits());
}

#[inline(always)]
fn floats_some(regs: &mut [Lanes], (d, a, b, n): (Row, Row, Row, u32), mask: u32, f: impl Fn(f32, u32) -> f32) {
    for k in 0..n {
        let (x, y) = (regs[(a + k) as usize], regs[(b + k) as usize]);
        let r = &mut regs[(d + k) as usize];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                r[lane] = f(float(x[lane]), y[lane]).to_bits();
            }
        }
    }
}

#[inline(always)]
fn tests(regs: &mut [Lanes], at: (Row, Row, Row, u32), mask: u32, f: impl Fn(f32, f32) -> bool) {
    map2(regs, at, mask, |x, y| u32::from(f(float(x), float(y))));
}

#[inline(always)]
fn signed(regs: &mut [Lanes], at: (Row, Row, Row, u32), mask: u32, f: impl Fn(i32, i32) -> i32) {
    map2(regs, at, mask, |x, y| f(x as i32, y as i32) as u32);
}

#[inline(always)]
fn wides(regs: &mut [Lanes], (d, a, b, n): (Row, Row, Row, u32), mask: u32, f: impl Fn(u64, u64) -> u64) {
    for k in 0..n {
        let (x, y) = (wide(regs, a + 2 * k), wide(regs, b + 2 * k));
        let r: [u64; LANES] = std::array::from_fn(|l| f(x[l], y[l]));
        put_wide(regs, d + 2 * k, &r, mask);
    }
}

#[inline(always)]
fn wide_tests(regs: &mut [Lanes], (d, a, b, n): (Row, Row, Row, u32), mask: u32, f: impl Fn(u64, u64) -> bool) {
    for k in 0..n {
        let (x, y) = (wide(regs, a + 2 * k), wide(regs, b + 2 * k));
        let r: Lanes = std::array::from_fn(|l| u32::from(f(x[l], y[l])));
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}

pub(super) fn bin(regs: &mut [Lanes], op: Bin, at: (Row, Row, Row, u32), mask: u32) {
    match op {
        Bin::AddI => map2(regs, at, mask, u32::wrapping_add),
        Bin::SubI => map2(regs, at, mask, u32::wrapping_sub),
        Bin::MulI => map2(regs, at, mask, u32::wrapping_mul),
        // Division by zero is undefined: here it is zero.
        Bin::DivS => signed(regs, at, mask, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) }),
        Bin::DivU => map2(regs, at, mask, |x, y| x.checked_div(y).unwrap_or(0)),
        Bin::RemS => signed(regs, at, mask, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) }),
        Bin::RemU => map2(regs, at, mask, |x, y| x.checked_rem(y).unwrap_or(0)),
        Bin::And => map2(regs, at, mask, |x, y| x & y),
        Bin::Or => map2(regs, at, mask, |x, y| x | y),
        Bin::Xor => map2(regs, at, mask, |x, y| x ^ y),
        Bin::Shl => map2(regs, at, mask, u32::wrapping_shl),
        Bin::ShrS => map2(regs, at, mask, |x, y| (x as i32).wrapping_shr(y) as u32),
        Bin::ShrU => map2(regs, at, mask, u32::wrapping_shr),
        Bin::EqI => map2(regs, at, mask, |x, y| u32::from(x == y)),
        Bin::NeI => map2(regs, at, mask, |x, y| u32::from(x != y)),
        Bin::LtS => signed(regs, at, mask, |x, y| i32::from(x < y)),
        Bin::LeS => signed(regs, at, mask, |x, y| i32::from(x <= y)),
        Bin::LtU => map2(regs, at, mask, |x, y| u32::from(x < y)),
        Bin::LeU => map2(regs, at, mask, |x, y| u32::from(x <= y)),
        Bin::MinS => signed(regs, at, mask, i32::min),
        Bin::MaxS => signed(regs, at, mask, i32::max),
        Bin::MinU => map2(regs, at, mask, u32::min),
        Bin::MaxU => map2(regs, at, mask, u32::max),
        Bin::MulHiS => signed(regs, at, mask, |x, y| ((i64::from(x) * i64::from(y)) >> 32) as i32),
        Bin::MulHiU => map2(regs, at, mask, |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32),
        Bin::Rotate => map2(regs, at, mask, |x, y| x.rotate_left(y & 31)),
        Bin::AbsDiffS => signed(regs, at, mask, |x, y| x.abs_diff(y) as i32),
        Bin::AbsDiffU => map2(regs, at, mask, u32::abs_diff),
        Bin::HaddS => signed(regs, at, mask, |x, y| ((i64::from(x) + i64::from(y)) >> 1) as i32),
        Bin::HaddU => map2(regs, at, mask, |x, y| ((u64::from(x) + u64::from(y)) >> 1) as u32),
        Bin::RhaddS => signed(regs, at, mask, |x, y| ((i64::from(x) + i64::from(y) + 1) >> 1) as i32),
        Bin::RhaddU => map2(regs, at, mask, |x, y| ((u64::from(x) + u64::from(y) + 1) >> 1) as u32),
        Bin::AddSatS => signed(regs, at, mask, i32::saturating_add),
        Bin::AddSatU => map2(regs, at, mask, u32::saturating_add),
        Bin::SubSatS => signed(regs, at, mask, i32::saturating_sub),
        Bin::SubSatU => map2(regs, at, mask, u32::saturating_sub),
        Bin::AddF => floats(regs, at, mask, |x, y| x + y),
        Bin::SubF => floats(regs, at, mask, |x, y| x - y),
        Bin::MulF => floats(regs, at, mask, |x, y| x * y),
        Bin::DivF => floats(regs, at, mask, |x, y| x / y),
        Bin::EqF => tests(regs, at, mask, |x, y| x == y),
        Bin::NeF => tests(regs, at, mask, |x, y| x != y),
        Bin::LtF => tests(regs, at, mask, |x, y| x < y),
        Bin::LeF => tests(regs, at, mask, |x, y| x <= y),
        Bin::MinF => floats(regs, at, mask, f32::min),
        Bin::MaxF => floats(regs, at, mask, f32::max),
        Bin::CopySign => floats(regs, at, mask, f32::copysign),
        Bin::Step => floats(regs, at, mask, |edge, x| if x < edge { 0.0 } else { 1.0 }),
        Bin::Fdim => floats(regs, at, mask, |x, y| {
            if x > y {
                x - y
            } else if x.is_nan() || y.is_nan() {
                f32::NAN
            } else {
                0.0
            }
        }),
        Bin::Fmod => floats_some(regs, at, mask, |x, y| x % float(y)),
        Bin::Pow => floats_some(regs, at, mask, |x, y| x.powf(float(y))),
        Bin::Atan2 => floats_some(regs, at, mask, |x, y| x.atan2(float(y))),
        Bin::NextAfter => floats_some(regs, at, mask, |x, y| math::next_after(x, float(y))),
        Bin::Ldexp => floats_some(regs, at, mask, |x, y| math::ldexp(x, y as i32)),
        _ => bin_wide(regs, op, at, mask),
    }
}

fn bin_wide(regs: &mut [Lanes], op: Bin, at: (Row, Row, Row, u32), mask: u32) {
    let s = |f: fn(i64, i64) -> i64| move |x: u64, y: u64| f(x as i64, y as i64) as u64;
    match op {
        Bin::AddL => wides(regs, at, mask, u64::wrapping_add),
        Bin::SubL => wides(regs, at, mask, u64::wrapping_sub),
        Bin::MulL => wides(regs, at, mask, u64::wrapping_mul),
        Bin::DivLS => wides(regs, at, mask, s(|x, y| if y == 0 { 0 } else { x.wrapping_div(y) })),
        Bin::DivLU => wides(regs, at, mask, |x, y| x.checked_div(y).unwrap_or(0)),
        Bin::RemLS => wides(regs, at, mask, s(|x, y| if y == 0 { 0 } else { x.wrapping_rem(y) })),
        Bin::RemLU => wides(regs, at, mask, |x, y| x.checked_rem(y).unwrap_or(0)),
        Bin::ShlL => wides(regs, at, mask, |x, y| x.wrapping_shl(y as u32)),
        Bin::ShrLS => wides(regs, at, mask, |x, y| (x as i64).wrapping_shr(y as u32) as u64),
        Bin::ShrLU => wides(regs, at, mask, |x, y| x.wrapping_shr(y as u32)),
        Bin::EqL => wide_tests(regs, at, mask, |x, y| x == y),
        Bin::NeL => wide_tests(regs, at, mask, |x, y| x != y),
        Bin::LtLS => wide_tests(regs, at, mask, |x, y| (x as i64) < y as i64),
        Bin::LeLS => wide_tests(regs, at, mask, |x, y| x as i64 <= y as i64),
        Bin::LtLU => wide_tests(regs, at, mask, |x, y| x < y),
        Bin::LeLU => wide_tests(regs, at, mask, |x, y| x <= y),
        Bin::MinLS => wides(regs, at, mask, s(i64::min)),
        Bin::MaxLS => wides(regs, at, mask, s(i64::max)),
        Bin::MinLU => wides(regs, at, mask, u64::min),
        Bin::MaxLU => wides(regs, at, mask, u64::max),
        Bin::RotateL => wides(regs, at, mask, |x, y| x.rotate_left(y as u32 & 63)),
        Bin::MulHiLS => wides(regs, at, mask, s(|x, y| ((i128::from(x) * i128::from(y)) >> 64) as i64)),
        Bin::MulHiLU => wides(regs, at, mask, |x, y| ((u128::from(x) * u128::from(y)) >> 64) as u64),
        Bin::AddSatLS => wides(regs, at, mask, s(i64::saturating_add)),
        Bin::AddSatLU => wides(regs, at, mask, u64::saturating_add),
        Bin::SubSatLS => wides(regs, at, mask, s(i64::saturating_sub)),
        _ => wides(regs, at, mask, u64::saturating_sub),
    }
}

/// `a * b + c`, rounded once.
pub(super) fn fma(regs: &mut [Lanes], (d, a, b, c, n): (Row, Row, Row, Row, u32), mask: u32) {
    for k in 0..n {
        let (x, y, z) = (regs[(a + k) as usize], regs[(b + k) as usize], regs[(c + k) as usize]);
        let r: Lanes = std::array::from_fn(|l| float(x[l]).mul_add(float(y[l]), float(z[l])).to_bits());
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}

pub(super) fn select(regs: &mut [Lanes], (d, c, a, b): (Row, Row, Row, Row), (n, step): (u32, u32), mask: u32) {
    for k in 0..n {
        let test = regs[(c + k.checked_div(step).unwrap_or(0)) as usize];
        let (x, y) = (regs[(a + k) as usize], regs[(b + k) as usize]);
        let r: Lanes = std::array::from_fn(|l| if test[l] != 0 { x[l] } else { y[l] });
        put(&mut regs[(d + k) as usize], &r, mask);
    }
}
