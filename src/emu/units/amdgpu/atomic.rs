//! Read-modify-write operations of global memory and LDS.
//!
//! Source: AMD's ISA documents. Floating-point additions round to nearest and keep denormals.

use super::float::{BF16, half_to_f32, max32, max64, min32, min64, to_half};
use super::lanes::Round;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rmw {
    Swap,
    CmpSwap,
    CmpSwapFloat,
    Add,
    Sub,
    RSub,
    SMin,
    UMin,
    SMax,
    UMax,
    And,
    Or,
    Xor,
    Inc,
    Dec,
    MaskOr,
    SubClamp,
    CondSub,
    AddFloat,
    MinFloat,
    MaxFloat,
    PkAddHalf,
    PkAddBf16,
}

impl Rmw {
    /// The operation's part of a name, with its type: `add_u32`, `smax_x2`, `cmpswap_b64`, `pk_add_f16`.
    pub(crate) fn find(name: &str) -> Option<(Self, bool)> {
        let packed = match name {
            "pk_add_f16" => Some(Self::PkAddHalf),
            "pk_add_bf16" => Some(Self::PkAddBf16),
            "csub_u32" | "sub_clamp_u32" => Some(Self::SubClamp),
            "cond_sub_u32" => Some(Self::CondSub),
            _ => None,
        };
        if let Some(op) = packed {
            return Some((op, false));
        }
        let (stem, ty) = match name.rsplit_once('_') {
            Some((stem, ty @ ("x2" | "u32" | "i32" | "b32" | "f32" | "u64" | "i64" | "b64" | "f64"))) => (stem, ty),
            _ => (name, "u32"),
        };
        let wide = ty == "x2" || ty.ends_with("64");
        let (float, signed) = (ty.starts_with('f'), ty.starts_with('i'));
        let op = match stem {
            "swap" | "storexchg" | "wrxchg" => Self::Swap,
            "cmpswap" | "cmpstore" | "cmpst" if float => Self::CmpSwapFloat,
            "cmpswap" | "cmpstore" | "cmpst" => Self::CmpSwap,
            "add" if float => Self::AddFloat,
            "min" if float => Self::MinFloat,
            "max" if float => Self::MaxFloat,
            "add" => Self::Add,
            "sub" => Self::Sub,
            "rsub" => Self::RSub,
            "smin" => Self::SMin,
            "smax" => Self::SMax,
            "umin" => Self::UMin,
            "umax" => Self::UMax,
            "min" if signed => Self::SMin,
            "max" if signed => Self::SMax,
            "min" => Self::UMin,
            "max" => Self::UMax,
            "and" => Self::And,
            "or" => Self::Or,
            "xor" => Self::Xor,
            "inc" => Self::Inc,
            "dec" => Self::Dec,
            "mskor" => Self::MaskOr,
            _ => return None,
        };
        Some((op, wide))
    }

    /// The new value from the old one, the operand and (compare-and-swap, masked or) the second operand.
    pub(crate) fn apply(self, wide: bool, old: u64, v: u64, second: u64) -> u64 {
        let mask = if wide { u64::MAX } else { 0xffff_ffff };
        let (old, v, second) = (old & mask, v & mask, second & mask);
        let signed = |x: u64| if wide { x as i64 } else { i64::from(x as i32) };
        let pick = |take: bool| if take { v } else { old };
        mask & match self {
            Self::Swap => v,
            Self::CmpSwap => pick(old == second),
            Self::CmpSwapFloat => pick(as_float(wide, old) == as_float(wide, second)),
            Self::Add => old.wrapping_add(v),
            Self::Sub => old.wrapping_sub(v),
            Self::RSub => v.wrapping_sub(old),
            Self::SMin => pick(signed(v) < signed(old)),
            Self::SMax => pick(signed(v) > signed(old)),
            Self::UMin => old.min(v),
            Self::UMax => old.max(v),
            Self::And => old & v,
            Self::Or => old | v,
            Self::Xor => old ^ v,
            Self::Inc => {
                if old >= v {
                    0
                } else {
                    old + 1
                }
            }
            Self::Dec => {
                if old == 0 || old > v {
                    v
                } else {
                    old - 1
                }
            }
            Self::MaskOr => old & !v | second,
            Self::SubClamp => old.saturating_sub(v),
            Self::CondSub => {
                if old >= v {
                    old - v
                } else {
                    old
                }
            }
            Self::AddFloat if wide => (f64::from_bits(old) + f64::from_bits(v)).to_bits(),
            Self::AddFloat => (f32::from_bits(old as u32) + f32::from_bits(v as u32)).to_bits().into(),
            Self::MinFloat if wide => min64(f64::from_bits(old), f64::from_bits(v)).to_bits(),
            Self::MaxFloat if wide => max64(f64::from_bits(old), f64::from_bits(v)).to_bits(),
            Self::MinFloat => min32(f32::from_bits(old as u32), f32::from_bits(v as u32)).to_bits().into(),
            Self::MaxFloat => max32(f32::from_bits(old as u32), f32::from_bits(v as u32)).to_bits().into(),
            Self::PkAddHalf => {
                both(old, v, |a, b| to_half(f64::from(half_to_f32(a)) + f64::from(half_to_f32(b)), Round::Nearest))
            }
            Self::PkAddBf16 => both(old, v, |a, b| BF16.narrow(BF16.widen(a) + BF16.widen(b), Round::Nearest, false)),
        }
    }

    /// The operand has a second part.
    pub(crate) fn compares(self) -> bool {
        matches!(self, Self::CmpSwap | Self::CmpSwapFloat | Self::MaskOr)
    }
}

fn as_float(wide: bool, v: u64) -> f64 {
    if wide { f64::from_bits(v) } else { f32::from_bits(v as u32).into() }
}

fn both(a: u64, b: u64, f: impl Fn(u32, u32) -> u32) -> u64 {
    let (a, b) = (a as u32, b as u32);
    u64::from(f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16)
}
