//! Functions of one f32.

use crate::code::Math;

/// Calls with the function, so that each caller's loop is compiled for it.
pub(super) fn with<R>(op: Math, go: impl FnOnce(fn(f32) -> f32) -> R) -> R {
    go(function(op))
}

fn function(op: Math) -> fn(f32) -> f32 {
    match op {
        Math::Sin => f32::sin,
        Math::Cos => f32::cos,
        Math::Tan => f32::tan,
        Math::Asin => f32::asin,
        Math::Acos => f32::acos,
        Math::Atan => f32::atan,
        Math::Sinh => f32::sinh,
        Math::Cosh => f32::cosh,
        Math::Tanh => f32::tanh,
        Math::Asinh => |x| f64::from(x).asinh() as f32,
        Math::Acosh => |x| f64::from(x).acosh() as f32,
        Math::Atanh => |x| f64::from(x).atanh() as f32,
        Math::SinPi => |x| (reduced(x) * std::f64::consts::PI).sin() as f32,
        Math::CosPi => |x| (reduced(x) * std::f64::consts::PI).cos() as f32,
        Math::TanPi => |x| (reduced(x) * std::f64::consts::PI).tan() as f32,
        Math::Exp => f32::exp,
        Math::Exp2 => f32::exp2,
        Math::Exp10 => |x| 10_f64.powf(x.into()) as f32,
        Math::Log => f32::ln,
        Math::Log2 => f32::log2,
        Math::Log10 => f32::log10,
        Math::Sqrt => f32::sqrt,
        Math::Rsqrt => |x| 1.0 / x.sqrt(),
        Math::Floor => f32::floor,
        Math::Ceil => f32::ceil,
        Math::Round => f32::round,
        Math::Rint => f32::round_ties_even,
        Math::Trunc => f32::trunc,
        Math::Fract => |x| (x - x.floor()).min(f32::from_bits(0x3f7f_ffff)),
        Math::Sign => |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else if x.is_nan() {
                0.0
            } else {
                x
            }
        },
        Math::Saturate => |x| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) },
        Math::FrexpFraction => |x| frexp(x).0,
    }
}

/// An argument of sinpi and the like, reduced by whole periods (of 2) to -1 to 1.
fn reduced(x: f32) -> f64 {
    let x = f64::from(x);
    x - 2.0 * (x / 2.0).round()
}

/// `x * 2^e`, rounded once.
pub(super) fn ldexp(x: f32, e: i32) -> f32 {
    (f64::from(x) * 2_f64.powi(e.clamp(-400, 400))) as f32
}

/// A fraction of at least a half and below one, and the exponent.
pub(super) fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let e = ilogb(x) + 1;
    ((f64::from(x) * 2_f64.powi(-e)) as f32, e)
}

/// The exponent of the leading bit.
pub(super) fn ilogb(x: f32) -> i32 {
    if x == 0.0 {
        return i32::MIN;
    }
    if !x.is_finite() {
        return i32::MAX;
    }
    let wide = f64::from(x).to_bits();
    ((wide >> 52) & 0x7ff) as i32 - 1023
}

pub(super) fn next_after(x: f32, to: f32) -> f32 {
    if x.is_nan() || to.is_nan() {
        return f32::NAN;
    }
    if x == to {
        return to;
    }
    if x == 0.0 {
        return f32::from_bits(1).copysign(to);
    }
    let away = (to > x) == (x > 0.0);
    f32::from_bits(if away { x.to_bits() + 1 } else { x.to_bits() - 1 })
}
