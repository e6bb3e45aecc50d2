//! Packed arithmetic: two 16-bit values (or, on gfx942, two singles) in one instruction, mixed-precision multiply-add,
//! dot products.
//!
//! Source: AMD's ISA documents (VOP3P); docs/amd-isa.md 5.1. Halves are picked by opsel (low result) and opsel_hi (high
//! result).

use super::Chip;
use super::fault::R;
use super::float::{BF16, add_odd, fma32, half_to_f32, to_f32, to_half, with_nan};
use super::inst::{Inst, Operand};
use super::lanes::{L, Lane, Round, Ty, VFn, VSem};
use super::rows::Format;
use super::sem::{Form, vector};
use super::sem_float::fp8_formats;
use super::valu::{Fetch, Result32, check_even, commit, flushed, prepare};
use super::wave::{Wave, half_mask};

#[derive(Clone, Copy)]
pub(super) enum Packed {
    /// The 16-bit instruction of this meaning on both halves.
    Halves(&'static VSem, Form),
    Singles(Single),
    Mix(Mix),
    Dot(Dot, Form),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Single {
    Fma,
    Mul,
    Add,
    Mov,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    Single,
    LowHalf,
    HighHalf,
}

/// Element kinds of a dot product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dot {
    Half,
    Bf16,
    /// Integers of so many bits; signedness fixed, or by the negation bits.
    Int {
        bits: u32,
        signed: Option<bool>,
    },
    Fp8 {
        a_bf8: bool,
        b_bf8: bool,
    },
}

const HALVES: &[(&str, &str)] = &[
    ("v_pk_fma_f16", "v_fma_f16"),
    ("v_pk_add_f16", "v_add_f16"),
    ("v_pk_mul_f16", "v_mul_f16"),
    ("v_pk_max_f16", "v_max_f16"),
    ("v_pk_min_f16", "v_min_f16"),
    ("v_pk_minimum_f16", "v_minimum_f16"),
    ("v_pk_maximum_f16", "v_maximum_f16"),
    ("v_pk_add_u16", "v_add_nc_u16"),
    ("v_pk_sub_u16", "v_sub_nc_u16"),
    ("v_pk_add_i16", "v_add_nc_i16"),
    ("v_pk_sub_i16", "v_sub_nc_i16"),
    ("v_pk_mul_lo_u16", "v_mul_lo_u16"),
    ("v_pk_mad_u16", "v_mad_u16"),
    ("v_pk_mad_i16", "v_mad_i16"),
    ("v_pk_lshlrev_b16", "v_lshlrev_b16"),
    ("v_pk_lshrrev_b16", "v_lshrrev_b16"),
    ("v_pk_ashrrev_i16", "v_ashrrev_i16"),
    ("v_pk_max_i16", "v_max_i16"),
    ("v_pk_min_i16", "v_min_i16"),
    ("v_pk_max_u16", "v_max_u16"),
    ("v_pk_min_u16", "v_min_u16"),
];

const fn int(bits: u32, signed: Option<bool>) -> Dot {
    Dot::Int { bits, signed }
}

const DOTS: &[(&str, Dot, Form)] = &[
    ("v_dot2_f32_f16", Dot::Half, Form::Plain),
    ("v_dot2_f32_bf16", Dot::Bf16, Form::Plain),
    ("v_dot2acc_f32_f16", Dot::Half, Form::Acc),
    ("v_dot2c_f32_f16", Dot::Half, Form::Acc),
    ("v_dot2c_f32_bf16", Dot::Bf16, Form::Acc),
    ("v_dot4_i32_iu8", int(8, None), Form::Plain),
    ("v_dot4_u32_u8", int(8, Some(false)), Form::Plain),
    ("v_dot4_i32_i8", int(8, Some(true)), Form::Plain),
    ("v_dot4c_i32_i8", int(8, Some(true)), Form::Acc),
    ("v_dot8_i32_iu4", int(4, None), Form::Plain),
    ("v_dot8_u32_u4", int(4, Some(false)), Form::Plain),
    ("v_dot8_i32_i4", int(4, Some(true)), Form::Plain),
    ("v_dot8c_i32_i4", int(4, Some(true)), Form::Acc),
    ("v_dot2_i32_i16", int(16, Some(true)), Form::Plain),
    ("v_dot2_u32_u16", int(16, Some(false)), Form::Plain),
    ("v_dot4_f32_fp8_fp8", Dot::Fp8 { a_bf8: false, b_bf8: false }, Form::Plain),
    ("v_dot4_f32_fp8_bf8", Dot::Fp8 { a_bf8: false, b_bf8: true }, Form::Plain),
    ("v_dot4_f32_bf8_fp8", Dot::Fp8 { a_bf8: true, b_bf8: false }, Form::Plain),
    ("v_dot4_f32_bf8_bf8", Dot::Fp8 { a_bf8: true, b_bf8: true }, Form::Plain),
];

impl Packed {
    pub(crate) fn find(_chip: Chip, _format: Format, name: &str) -> Option<Self> {
        if let Some((_, base)) = HALVES.iter().find(|(n, _)| *n == name) {
            return Some(Self::Halves(vector(base)?, Form::Plain));
        }
        if let Some((_, dot, form)) = DOTS.iter().find(|(n, ..)| *n == name) {
            return Some(Self::Dot(*dot, *form));
        }
        Some(match name {
            "v_pk_fmac_f16" => Self::Halves(vector("v_fma_f16")?, Form::Acc),
            "v_pk_fma_f32" => Self::Singles(Single::Fma),
            "v_pk_mul_f32" => Self::Singles(Single::Mul),
            "v_pk_add_f32" => Self::Singles(Single::Add),
            "v_pk_mov_b32" => Self::Singles(Single::Mov),
            "v_fma_mix_f32" => Self::Mix(Mix::Single),
            "v_fma_mixlo_f16" => Self::Mix(Mix::LowHalf),
            "v_fma_mixhi_f16" => Self::Mix(Mix::HighHalf),
            _ => return None,
        })
    }

    pub(crate) fn form(self) -> Form {
        match self {
            Self::Halves(_, form) | Self::Dot(_, form) => form,
            _ => Form::Plain,
        }
    }

    /// Types that constants take.
    pub(crate) fn types(self, _widths: [u8; 4]) -> [Ty; 3] {
        match self {
            Self::Halves(sem, _) => sem.src,
            Self::Singles(_) => [Ty::F32; 3],
            Self::Mix(_) => [Ty::F32; 3],
            Self::Dot(Dot::Half, _) => [Ty::F16, Ty::F16, Ty::F32],
            Self::Dot(..) => [Ty::B32, Ty::B32, Ty::F32],
        }
    }
}

pub(super) fn execute(w: &mut Wave, i: &Inst, p: Packed) -> R<()> {
    if let Packed::Singles(s) = p {
        return singles(w, i, s);
    }
    let (shuffled, write) = prepare(w, i, false)?;
    for h in 0..w.halves {
        let mask = half_mask(write, h);
        if mask == 0 {
            continue;
        }
        let mut out = Result32 { lo: [0; 32], hi: [0; 32] };
        compute_with(w, i, p, h, shuffled.as_ref().map(|s| &s[h][0]), &mut out)?;
        match p {
            Packed::Mix(mix) if mix != Mix::Single => merge_half(w, i, h, mix == Mix::HighHalf, &mut out)?,
            _ => {}
        }
        commit(w, i, Ty::B32, h, &out, mask)?;
    }
    w.lane_operations += 2 * u64::from(write.count_ones());
    Ok(())
}

/// The untouched half of a mixed result comes from the old register.
fn merge_half(w: &Wave, i: &Inst, h: usize, high: bool, out: &mut Result32) -> R<()> {
    let Operand::V(n) = i.dst else { return Ok(()) };
    let old = w.half(w.writable(n.into())?, h);
    out.lo = std::array::from_fn(|k| match high {
        true => old[k] & 0xffff | out.lo[k] << 16,
        false => old[k] & 0xffff_0000 | out.lo[k] & 0xffff,
    });
    Ok(())
}

/// One half's result, unshuffled.
pub(super) fn compute(w: &Wave, i: &Inst, p: Packed, h: usize, out: &mut Result32) -> R<()> {
    compute_with(w, i, p, h, None, out)
}

fn compute_with(w: &Wave, i: &Inst, p: Packed, h: usize, first: Option<&L>, out: &mut Result32) -> R<()> {
    let fetch = Fetch { w, i, sem_flushes: false, h, shuffled: None };
    let (mut a, mut b, mut c) = ([0; 32], [0; 32], [0; 32]);
    let a = match first {
        Some(shuffled) => shuffled,
        None => fetch.raw(i.src[0], &mut a)?,
    };
    let (b, c) = (fetch.raw(i.src[1], &mut b)?, fetch.raw(i.src[2], &mut c)?);
    let active = half_mask(w.exec(), h);
    for k in (0..32).filter(|k| active >> k & 1 == 1) {
        let lane = [a[k], b[k], c[k]];
        out.lo[k] = match p {
            Packed::Halves(sem, _) => halves(w, i, sem, lane)?,
            Packed::Mix(mix) => mixed(w, i, mix, lane),
            Packed::Dot(dot, _) => dotted(w, i, dot, lane),
            Packed::Singles(_) => 0,
        };
    }
    Ok(())
}

/// Half of a source for the low or the high result.
fn pick(i: &Inst, slot: usize, v: u32, high: bool) -> u64 {
    let select = if high { i.opsel_hi } else { i.opsel };
    u64::from(if select >> slot & 1 == 1 { v >> 16 } else { v & 0xffff })
}

fn halves(w: &Wave, i: &Inst, sem: &VSem, v: [u32; 3]) -> R<u32> {
    let f = match (sem.clamped, sem.f) {
        (Some(f), _) if i.clamp && !sem.dst.is_float() => f,
        (_, VFn::Lane(f)) => f,
        _ => return super::fault::fail(super::fault::FaultKind::NotModelled { name: i.entry.name.into() }),
    };
    let float = sem.dst == Ty::F16;
    let one = |high: bool| {
        let negate = if high { i.neg_hi } else { i.neg };
        let source = |slot: usize| {
            let x = pick(i, slot, v[slot], high);
            let x = if negate >> slot & 1 == 1 { x ^ 0x8000 } else { x };
            if float && w.mode.flush_in(Ty::F16) { flushed(Ty::F16, x) } else { x }
        };
        let r = f(&Lane { a: source(0), b: source(1), c: source(2), mode: w.mode });
        let r = if float && w.mode.flush_out(Ty::F16) { flushed(Ty::F16, r) } else { r };
        if float && i.clamp { unit(r as u32) } else { r as u32 & 0xffff }
    };
    Ok(one(false) | one(true) << 16)
}

/// A half clamped to 0..1.
fn unit(r: u32) -> u32 {
    let v = half_to_f32(r & 0xffff);
    if v.is_nan() || v <= 0.0 { 0 } else { to_half(v.min(1.0).into(), Round::Nearest) }
}

/// Multiply-add whose sources are singles or halves; the negation bits of the high halves mean absolute value.
fn mixed(w: &Wave, i: &Inst, mix: Mix, v: [u32; 3]) -> u32 {
    let source = |slot: usize| {
        let half = i.opsel_hi >> slot & 1 == 1;
        // A constant that does not fit 16 bits was written as a single's pattern.
        let constant = matches!(i.src[slot], Operand::K(k) if k > 0xffff);
        let x = if half && !constant {
            half_to_f32(if i.opsel >> slot & 1 == 1 { v[slot] >> 16 } else { v[slot] & 0xffff })
        } else {
            f32::from_bits(v[slot])
        };
        let x = if i.neg_hi >> slot & 1 == 1 { x.abs() } else { x };
        if i.neg >> slot & 1 == 1 { -x } else { x }
    };
    let (a, b, c) = (source(0), source(1), source(2));
    let clamp = |x: f64| if i.clamp { if x > 0.0 { x.min(1.0) } else { 0.0 } } else { x };
    let exact = clamp(super::float::fma_odd(a, b, c));
    match mix {
        Mix::Single => to_f32(exact, w.mode.round32()),
        // The product is rounded to single first, as one instruction of two roundings.
        _ => to_half(f32::from_bits(to_f32(exact, w.mode.round32())).into(), w.mode.round64()),
    }
}

/// Sum of products of the elements packed in a and b, plus c.
fn dotted(w: &Wave, i: &Inst, dot: Dot, v: [u32; 3]) -> u32 {
    let [a, b, c] = v;
    match dot {
        Dot::Int { bits, signed } => integer_dot(i, bits, signed, a, b, c),
        Dot::Half | Dot::Bf16 => {
            let value = |slot: usize, high: bool| {
                let bits = pick(i, slot, v[slot], high) as u32;
                let x = if dot == Dot::Half { half_to_f32(bits).into() } else { BF16.widen(bits) };
                let negate = if high { i.neg_hi } else { i.neg };
                if negate >> slot & 1 == 1 { -x } else { x }
            };
            let c = f64::from(f32::from_bits(c));
            let c = if i.neg >> 2 & 1 == 1 { -c } else { c };
            let low = value(0, false) * value(1, false);
            let sum = add_odd(add_odd(value(0, true) * value(1, true), low), c);
            to_f32(if i.clamp { sum.clamp(0.0, 1.0) } else { sum }, w.mode.round32())
        }
        Dot::Fp8 { a_bf8, b_bf8 } => {
            let (e4m3, e5m2) = fp8_formats(w.chip == Chip::Gfx942);
            let (fa, fb) = (if a_bf8 { e5m2 } else { e4m3 }, if b_bf8 { e5m2 } else { e4m3 });
            let sum: f64 = (0..4).map(|n| fa.widen(a >> (8 * n) & 255) * fb.widen(b >> (8 * n) & 255)).sum();
            to_f32(add_odd(sum, f32::from_bits(c).into()), w.mode.round32())
        }
    }
}

fn integer_dot(i: &Inst, bits: u32, signed: Option<bool>, a: u32, b: u32, c: u32) -> u32 {
    let is_signed = |slot: u32| signed.unwrap_or(i.neg >> slot & 1 == 1);
    let element = |v: u32, n: u32, signed: bool| {
        let field = v >> (bits * n) << (32 - bits);
        if signed { i64::from((field as i32) >> (32 - bits)) } else { i64::from(field >> (32 - bits)) }
    };
    let sum: i64 = (0..32 / bits).map(|n| element(a, n, is_signed(0)) * element(b, n, is_signed(1))).sum();
    let unsigned = signed == Some(false);
    let c = if unsigned { i64::from(c) } else { i64::from(c as i32) };
    match (i.clamp, unsigned) {
        (false, _) => (sum + c) as u32,
        (true, true) => (sum + c).clamp(0, u32::MAX.into()) as u32,
        (true, false) => (sum + c).clamp(i32::MIN.into(), i32::MAX.into()) as u32,
    }
}

/// Two singles in a register pair (gfx942); opsel picks which of a source's pair feeds which result.
fn singles(w: &mut Wave, i: &Inst, s: Single) -> R<()> {
    let exec = w.exec();
    for h in 0..w.halves {
        let mask = half_mask(exec, h);
        if mask == 0 {
            continue;
        }
        let [a, b, c] = [0, 1, 2].map(|slot| pair(w, i, slot, h));
        let (a, b, c) = (a?, b?, c?);
        let mut out = Result32 { lo: [0; 32], hi: [0; 32] };
        for k in (0..32).filter(|k| mask >> k & 1 == 1) {
            out.lo[k] = single(i, s, [a[k][0], b[k][0], c[k][0]]);
            out.hi[k] = single(i, s, [a[k][1], b[k][1], c[k][1]]);
            if s == Single::Mov {
                out.hi[k] = b[k][1];
            }
        }
        commit(w, i, Ty::B64, h, &out, mask)?;
    }
    w.lane_operations += 2 * u64::from(exec.count_ones());
    Ok(())
}

fn single(i: &Inst, s: Single, v: [u32; 3]) -> u32 {
    let [a, b, c] = v.map(f32::from_bits);
    let r = match s {
        Single::Fma => fma32(a, b, c),
        Single::Mul => with_nan(a, b, a * b),
        Single::Add => with_nan(a, b, a + b),
        Single::Mov => return v[0],
    };
    if i.clamp { if r > 0.0 { r.min(1.0).to_bits() } else { 0 } } else { r.to_bits() }
}

/// The inputs that a source has for the low and the high result.
fn pair(w: &Wave, i: &Inst, slot: usize, h: usize) -> R<[[u32; 2]; 32]> {
    let negate = |v: u32, on: u8| if on >> slot & 1 == 1 { v ^ 0x8000_0000 } else { v };
    let values: [[u32; 2]; 32] = match i.src[slot] {
        Operand::V(n) => {
            check_even(w, n, 2)?;
            // Only what a result picks has to be there.
            let (sel, sel_hi) = (i.opsel >> slot & 1, i.opsel_hi >> slot & 1);
            let used = |half: u8| if sel == half || sel_hi == half { w.exec() } else { 0 };
            let (lo, hi) = (w.readable(n.into(), used(0))?, w.readable(u32::from(n) + 1, used(1))?);
            std::array::from_fn(|k| [w.half(lo, h)[k], w.half(hi, h)[k]])
        }
        Operand::S(n) => {
            let v = w.read_scalars(n, 2)?;
            [[v as u32, (v >> 32) as u32]; 32]
        }
        other => [[w.scalar_operand(other, 1)? as u32; 2]; 32],
    };
    let low = usize::from(i.opsel >> slot & 1);
    let high = usize::from(i.opsel_hi >> slot & 1);
    Ok(values.map(|v| [negate(v[low], i.neg), negate(v[high], i.neg_hi)]))
}
