//! Vector instructions that are more than arithmetic on a lane: carries and masks, division's helpers, lanes read and
//! written by scalars, permutations between lanes, indexed registers.
//!
//! Source: AMD's ISA documents; docs/amd-isa.md 5.5.

use super::Chip;
use super::fault::R;
use super::inst::{Inst, Operand, VCC};
use super::lanes::{L, Ty};
use super::rows::{Entry, Format};
use super::valu::{Fetch, Result32, commit, move_unwritten, prepare};
use super::wave::{Wave, half_mask};
use super::{cross_lane, division};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cross {
    Nop,
    Select,
    Select16,
    /// Sum or difference with carry out; operands swapped for `rev`; carry in.
    Carry {
        subtract: bool,
        reverse: bool,
        carry_in: bool,
    },
    DivScale {
        double: bool,
    },
    DivFmas {
        double: bool,
    },
    MadWide {
        signed: bool,
    },
    Mbcnt {
        high: bool,
    },
    ReadLane,
    WriteLane,
    ReadFirstLane,
    Permlane16 {
        across: bool,
        variable: bool,
    },
    Permlane64,
    Swap,
    Swap16,
    MovRel {
        source: bool,
        dest: bool,
    },
    /// Scalar transcendental (gfx12): the vector instruction of that name on one value.
    OnScalar(Unit),
    StochasticFp8 {
        bf8: bool,
    },
    AccMove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Exp,
    Log,
    Rcp,
    Rsq,
    Sqrt,
    ExpHalf,
    LogHalf,
    RcpHalf,
    RsqHalf,
    SqrtHalf,
}

impl Unit {
    fn vector_name(self) -> &'static str {
        match self {
            Self::Exp => "v_exp_f32",
            Self::Log => "v_log_f32",
            Self::Rcp => "v_rcp_f32",
            Self::Rsq => "v_rsq_f32",
            Self::Sqrt => "v_sqrt_f32",
            Self::ExpHalf => "v_exp_f16",
            Self::LogHalf => "v_log_f16",
            Self::RcpHalf => "v_rcp_f16",
            Self::RsqHalf => "v_rsq_f16",
            Self::SqrtHalf => "v_sqrt_f16",
        }
    }
}

const fn carry(subtract: bool, reverse: bool, carry_in: bool) -> Cross {
    Cross::Carry { subtract, reverse, carry_in }
}

const NAMES: &[(&str, Cross)] = &[
    ("v_nop", Cross::Nop),
    ("v_cndmask_b32", Cross::Select),
    ("v_cndmask_b16", Cross::Select16),
    ("v_add_co_u32", carry(false, false, false)),
    ("v_sub_co_u32", carry(true, false, false)),
    ("v_subrev_co_u32", carry(true, true, false)),
    ("v_add_co_ci_u32", carry(false, false, true)),
    ("v_sub_co_ci_u32", carry(true, false, true)),
    ("v_subrev_co_ci_u32", carry(true, true, true)),
    ("v_div_scale_f32", Cross::DivScale { double: false }),
    ("v_div_scale_f64", Cross::DivScale { double: true }),
    ("v_div_fmas_f32", Cross::DivFmas { double: false }),
    ("v_div_fmas_f64", Cross::DivFmas { double: true }),
    ("v_mad_u64_u32", Cross::MadWide { signed: false }),
    ("v_mad_i64_i32", Cross::MadWide { signed: true }),
    ("v_mbcnt_lo_u32_b32", Cross::Mbcnt { high: false }),
    ("v_mbcnt_hi_u32_b32", Cross::Mbcnt { high: true }),
    ("v_readlane_b32", Cross::ReadLane),
    ("v_writelane_b32", Cross::WriteLane),
    ("v_readfirstlane_b32", Cross::ReadFirstLane),
    ("v_permlane16_b32", Cross::Permlane16 { across: false, variable: false }),
    ("v_permlanex16_b32", Cross::Permlane16 { across: true, variable: false }),
    ("v_permlane16_var_b32", Cross::Permlane16 { across: false, variable: true }),
    ("v_permlanex16_var_b32", Cross::Permlane16 { across: true, variable: true }),
    ("v_permlane64_b32", Cross::Permlane64),
    ("v_swap_b32", Cross::Swap),
    ("v_swap_b16", Cross::Swap16),
    ("v_movrels_b32", Cross::MovRel { source: true, dest: false }),
    ("v_movreld_b32", Cross::MovRel { source: false, dest: true }),
    ("v_movrelsd_b32", Cross::MovRel { source: true, dest: true }),
    ("v_s_exp_f32", Cross::OnScalar(Unit::Exp)),
    ("v_s_log_f32", Cross::OnScalar(Unit::Log)),
    ("v_s_rcp_f32", Cross::OnScalar(Unit::Rcp)),
    ("v_s_rsq_f32", Cross::OnScalar(Unit::Rsq)),
    ("v_s_sqrt_f32", Cross::OnScalar(Unit::Sqrt)),
    ("v_s_exp_f16", Cross::OnScalar(Unit::ExpHalf)),
    ("v_s_log_f16", Cross::OnScalar(Unit::LogHalf)),
    ("v_s_rcp_f16", Cross::OnScalar(Unit::RcpHalf)),
    ("v_s_rsq_f16", Cross::OnScalar(Unit::RsqHalf)),
    ("v_s_sqrt_f16", Cross::OnScalar(Unit::SqrtHalf)),
    ("v_cvt_sr_fp8_f32", Cross::StochasticFp8 { bf8: false }),
    ("v_cvt_sr_bf8_f32", Cross::StochasticFp8 { bf8: true }),
    ("v_accvgpr_read_b32", Cross::AccMove),
    ("v_accvgpr_write_b32", Cross::AccMove),
    ("v_accvgpr_mov_b32", Cross::AccMove),
];

impl Cross {
    pub(crate) fn find(name: &str) -> Option<Self> {
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, c)| *c)
    }

    pub(crate) fn types(self) -> [Ty; 3] {
        match self {
            Self::DivScale { double: true } | Self::DivFmas { double: true } => [Ty::F64; 3],
            Self::DivScale { .. } | Self::DivFmas { .. } => [Ty::F32; 3],
            Self::MadWide { signed } => [Ty::U32, Ty::U32, if signed { Ty::I64 } else { Ty::U64 }],
            Self::Select16 => [Ty::B16, Ty::B16, Ty::B32],
            Self::Swap16 => [Ty::B16; 3],
            Self::StochasticFp8 { .. } => [Ty::F32, Ty::U32, Ty::None],
            Self::OnScalar(unit) if unit.vector_name().ends_with("f16") => [Ty::F16; 3],
            Self::OnScalar(_) => [Ty::F32; 3],
            _ => [Ty::B32; 3],
        }
    }

    /// The destination field names a scalar register.
    pub(crate) fn writes_scalar(self) -> bool {
        matches!(self, Self::ReadLane | Self::ReadFirstLane | Self::OnScalar(_))
    }

    /// The 64-bit form has a scalar destination in addition to the vector one.
    pub(crate) fn has_sdst(self) -> bool {
        matches!(self, Self::Carry { .. } | Self::DivScale { .. } | Self::MadWide { .. })
    }

    /// Source fields of the 64-bit form.
    pub(crate) fn sources(self, entry: &Entry) -> usize {
        match self {
            Self::Nop => 0,
            Self::Select | Self::Select16 => 3,
            Self::Carry { carry_in, .. } => 2 + usize::from(carry_in),
            Self::DivScale { .. } | Self::DivFmas { .. } | Self::MadWide { .. } => 3,
            Self::Permlane16 { variable, .. } => 3 - usize::from(variable),
            Self::Mbcnt { .. } | Self::ReadLane | Self::WriteLane | Self::StochasticFp8 { .. } => 2,
            _ => entry.widths[1..].iter().take_while(|w| **w != 0).count().max(1),
        }
    }

    /// Operands that short forms imply.
    pub(crate) fn implied(self, i: &mut Inst) -> R<()> {
        match self {
            Self::Select if i.format == Format::Vop2 => i.src[2] = Operand::S(VCC),
            Self::Carry { carry_in, .. } if i.format == Format::Vop2 => {
                i.sdst = Operand::S(VCC);
                i.src[2] = if carry_in { Operand::S(VCC) } else { Operand::None };
            }
            Self::AccMove if i.format == Format::Vop1 => {
                let acc = |o: Operand| if let Operand::V(n @ 0..=255) = o { Operand::V(n + 256) } else { o };
                (i.dst, i.src[0]) = (acc(i.dst), acc(i.src[0]));
            }
            _ => {}
        }
        Ok(())
    }
}

pub(super) fn execute(w: &mut Wave, i: &Inst, c: Cross) -> R<()> {
    match c {
        Cross::Nop => Ok(()),
        Cross::ReadLane | Cross::ReadFirstLane => cross_lane::read(w, i, c == Cross::ReadFirstLane),
        Cross::WriteLane => cross_lane::write(w, i),
        Cross::Permlane16 { across, variable } => cross_lane::permute16(w, i, across, variable),
        Cross::Permlane64 => cross_lane::permute64(w, i),
        Cross::Swap => cross_lane::swap(w, i),
        Cross::MovRel { source, dest } => cross_lane::relative(w, i, source, dest),
        Cross::OnScalar(unit) => on_scalar(w, i, unit),
        Cross::Swap16 => cross_lane::swap16(w, i),
        _ => by_lane(w, i, c),
    }
}

/// Instructions that compute each lane alone, possibly with a mask in or out.
fn by_lane(w: &mut Wave, i: &Inst, c: Cross) -> R<()> {
    if c == Cross::AccMove && w.strict.poison && move_unwritten(w, i)? {
        return Ok(());
    }
    let (shuffled, write) = prepare(w, i, false)?;
    let ty = match c {
        Cross::DivScale { double: true } | Cross::DivFmas { double: true } => Ty::F64,
        Cross::MadWide { .. } => Ty::U64,
        Cross::Select16 => Ty::B16,
        _ => Ty::B32,
    };
    let mut out_mask = 0;
    let mut outs: [Option<Result32>; 2] = [None, None];
    for (h, slot) in outs.iter_mut().enumerate().take(w.halves) {
        if half_mask(write, h) == 0 {
            continue;
        }
        let fetch = Fetch { w, i, sem_flushes: false, h, shuffled: shuffled.as_deref() };
        let mut out = Result32 { lo: [0; 32], hi: [0; 32] };
        out_mask |= u64::from(half(w, i, c, &fetch, &mut out)?) << (32 * h);
        *slot = Some(out);
    }
    for (h, out) in outs.iter().enumerate() {
        if let Some(out) = out {
            commit(w, i, ty, h, out, half_mask(write, h))?;
        }
    }
    if matches!(c, Cross::Carry { .. } | Cross::DivScale { .. } | Cross::MadWide { .. }) {
        w.write_mask(i.sdst, out_mask & write)?;
    }
    w.lane_operations += u64::from(write.count_ones());
    Ok(())
}

/// Lane mask read as the third source.
fn mask_in(w: &Wave, i: &Inst, h: usize) -> R<u32> {
    Ok(half_mask(w.scalar_operand(i.src[2], 255)?, h))
}

/// Computes one half; returns the result mask with the value.
fn half(w: &Wave, i: &Inst, c: Cross, fetch: &Fetch, out: &mut Result32) -> R<u32> {
    let h = fetch.h;
    let types = c.types();
    let (mut x, mut y) = ([0; 32], [0; 32]);
    match c {
        Cross::Select | Cross::Select16 => {
            let mask = mask_in(w, i, h)?;
            let (a, b) = (fetch.narrow(0, types[0], &mut x)?, fetch.narrow(1, types[1], &mut y)?);
            out.lo = std::array::from_fn(|k| if mask >> k & 1 == 1 { b[k] } else { a[k] });
            Ok(0)
        }
        Cross::AccMove => {
            out.lo = *fetch.narrow(0, Ty::B32, &mut x)?;
            Ok(0)
        }
        Cross::Carry { subtract, reverse, carry_in } => {
            let carry = if carry_in { mask_in(w, i, h)? } else { 0 };
            let (a, b) = (fetch.narrow(0, Ty::U32, &mut x)?, fetch.narrow(1, Ty::U32, &mut y)?);
            let (a, b) = if reverse { (b, a) } else { (a, b) };
            Ok(carried(a, b, carry, subtract, i.clamp, &mut out.lo))
        }
        Cross::Mbcnt { high } => {
            let (a, b) = (fetch.narrow(0, Ty::B32, &mut x)?, fetch.narrow(1, Ty::U32, &mut y)?);
            out.lo = std::array::from_fn(|k| {
                let lane = k as u32 + 32 * h as u32;
                let below = if high { lane.saturating_sub(32) } else { lane.min(32) };
                let mask = ((1u64 << below) - 1) as u32;
                (a[k] & mask).count_ones().wrapping_add(b[k])
            });
            Ok(0)
        }
        Cross::StochasticFp8 { bf8 } => {
            let (e4m3, e5m2) = super::sem_float::fp8_formats(w.chip == Chip::Gfx942);
            let format = if bf8 { e5m2 } else { e4m3 };
            let (a, b) = (fetch.narrow(0, Ty::F32, &mut x)?, fetch.narrow(1, Ty::U32, &mut y)?);
            let old = match i.dst {
                Operand::V(n) => *w.half(w.register_index(n.into())?, h),
                _ => [0; 32],
            };
            let shift = 8 * u32::from(i.opsel >> 2 & 3);
            out.lo = std::array::from_fn(|k| {
                let v = division::stochastic(format, f32::from_bits(a[k]), b[k]);
                old[k] & !(255 << shift) | v << shift
            });
            Ok(0)
        }
        _ => division::half(w, i, c, fetch, out),
    }
}

/// Sum or difference with the carry mask; with clamp an overflow saturates.
fn carried(a: &L, b: &L, carry: u32, subtract: bool, clamp: bool, out: &mut L) -> u32 {
    let mut mask = 0;
    for k in 0..32 {
        let c = u64::from(carry >> k & 1);
        let (a, b) = (u64::from(a[k]), u64::from(b[k]));
        let v = if subtract { a.wrapping_sub(b).wrapping_sub(c) } else { a + b + c };
        let over = v >> 32 != 0;
        mask |= u32::from(over) << k;
        out[k] = match (over && clamp, subtract) {
            (true, true) => 0,
            (true, false) => u32::MAX,
            _ => v as u32,
        };
    }
    mask
}

/// One value through the transcendental unit, from scalar to scalar.
fn on_scalar(w: &mut Wave, i: &Inst, unit: Unit) -> R<()> {
    let raw = w.scalar_operand(i.src[0], 1)?;
    let Some(sem) = super::sem::vector(unit.vector_name()) else { return Ok(()) };
    let super::lanes::VFn::Lane(f) = sem.f else { return Ok(()) };
    let sign = sem.dst.sign();
    let a = if i.abs & 1 == 1 { raw & !sign } else { raw };
    let a = if i.neg & 1 == 1 { a ^ sign } else { a };
    let v = f(&super::lanes::Lane { a, b: 0, c: 0, mode: w.mode });
    match i.sdst {
        Operand::S(n) => w.write_scalars(n, 1, v),
        _ => Ok(()),
    }
}
