//! Semantics of scalar arithmetic (SOP1, SOP2, SOPC, SOPK): one function a name, 64-bit values in and out.
//!
//! Source: AMD's ISA documents, scalar ALU pseudo-code. Instructions on EXEC, the program counter or the hardware
//! registers are in `control`.

use super::float::{add_odd, fma32, half_to_f32, max32, maximum64, min32, minimum64, to_f32, to_half};
use super::lanes::{Mode, Round};

/// The inputs of a scalar instruction.
#[derive(Clone, Copy)]
pub(super) struct In {
    pub a: u64,
    pub b: u64,
    /// The destination's old value.
    pub d: u64,
    pub scc: bool,
    pub mode: Mode,
}

/// What it leaves: a value (or the destination stays) and SCC (or it stays).
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub value: Option<u64>,
    pub scc: Option<bool>,
}

pub(super) type ScalarFn = fn(&In) -> Out;

/// A row: name and meaning.
pub(super) struct Scalar {
    pub name: &'static str,
    pub f: ScalarFn,
    /// The destination is also a source.
    pub reads_dst: bool,
    pub reads_scc: bool,
}

const fn row(name: &'static str, f: ScalarFn) -> Scalar {
    Scalar { name, f, reads_dst: false, reads_scc: false }
}

const fn on_dst(name: &'static str, f: ScalarFn) -> Scalar {
    Scalar { name, f, reads_dst: true, reads_scc: false }
}

const fn on_scc(name: &'static str, f: ScalarFn) -> Scalar {
    Scalar { name, f, reads_dst: false, reads_scc: true }
}

fn plain(v: u64) -> Out {
    Out { value: Some(v), scc: None }
}

/// Value with SCC = value is not zero.
fn nz(v: u64) -> Out {
    Out { value: Some(v), scc: Some(v != 0) }
}

fn nz32(v: u32) -> Out {
    nz(v.into())
}

fn with(v: u32, scc: bool) -> Out {
    Out { value: Some(v.into()), scc: Some(scc) }
}

fn test(scc: bool) -> Out {
    Out { value: None, scc: Some(scc) }
}

fn i(v: u64) -> i32 {
    v as i32
}

fn x(v: u64) -> u32 {
    v as u32
}

fn add(a: u32, b: u32, carry: bool) -> Out {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    with(sum as u32, sum >> 32 != 0)
}

fn sub(a: u32, b: u32, borrow: bool) -> Out {
    let need = u64::from(b) + u64::from(borrow);
    with(a.wrapping_sub(b).wrapping_sub(borrow.into()), need > u64::from(a))
}

fn add_i(a: i32, b: i32) -> Out {
    let (v, over) = a.overflowing_add(b);
    with(v as u32, over)
}

/// Shift left by n, then add; SCC is the carry of both.
fn lshl_add(a: u32, b: u32, n: u32) -> Out {
    let sum = (u64::from(a) << n) + u64::from(b);
    with(sum as u32, sum >> 32 != 0)
}

fn bfe_u(v: u64, field: u64, bits: u32) -> u64 {
    let (offset, width) = (field as u32 & (bits - 1), field as u32 >> 16 & 0x7f);
    let v = v >> offset;
    if width >= 64 { v } else { v & ((1 << width) - 1) }
}

fn bfe_i(v: i64, field: u64, bits: u32) -> i64 {
    let (offset, width) = (field as u32 & (bits - 1), field as u32 >> 16 & 0x7f);
    let v = v >> offset;
    match width {
        0 => 0,
        1..=63 => v << (64 - width) >> (64 - width),
        _ => v,
    }
}

fn min_by(a: u64, b: u64, first: bool) -> Out {
    with(x(if first { a } else { b }), first)
}

/// Position of the first bit, or -1.
fn first(found: u32, bits: u32) -> Out {
    plain(u64::from(if found == bits { u32::MAX } else { found }))
}

/// Count of leading bits equal to the sign bit, or -1.
fn cls(v: i64, bits: u32) -> Out {
    let u = ((v ^ (v >> 63)) as u64) << (64 - bits);
    first(if u == 0 { bits } else { u.leading_zeros() }, bits)
}

fn pack(lo: u64, hi: u64) -> Out {
    plain(lo & 0xffff | (hi & 0xffff) << 16)
}

fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn h(v: u64) -> f32 {
    half_to_f32(v as u32 & 0xffff)
}

fn out_f(v: f64, s: &In) -> Out {
    plain(to_f32(v, s.mode.round32()).into())
}

fn out_h(v: f64, s: &In) -> Out {
    plain(to_half(v, s.mode.round64()).into())
}

/// Bits spread so that each appears twice.
fn replicate(v: u32) -> u64 {
    (0..32).fold(0, |out, n| out | (u64::from(v >> n & 1) * (3 << (2 * n))))
}

/// One bit for each group of four that has any.
fn quads(v: u64) -> u64 {
    (0..16).fold(0, |out, n| out | u64::from(v >> (4 * n) & 15 != 0) << n)
}

/// Groups of four with any bit, filled.
fn whole_quads(v: u64) -> u64 {
    (0..16).fold(0, |out, n| if v >> (4 * n) & 15 != 0 { out | 15 << (4 * n) } else { out })
}

#[rustfmt::skip]
pub(super) static ROWS: &[Scalar] = &[
    row("s_mov_b32", |s| plain(s.a)), row("s_mov_b64", |s| plain(s.a)),
    row("s_movk_i32", |s| plain(s.b)),
    on_scc("s_cmov_b32", |s| Out { value: s.scc.then_some(s.a), scc: None }), on_scc("s_cmov_b64", |s| Out { value: s.scc.then_some(s.a), scc: None }),
    on_scc("s_cmovk_i32", |s| Out { value: s.scc.then_some(s.b), scc: None }),
    row("s_not_b32", |s| nz32(!x(s.a))), row("s_not_b64", |s| nz(!s.a)),
    row("s_brev_b32", |s| plain(x(s.a).reverse_bits().into())), row("s_brev_b64", |s| plain(s.a.reverse_bits())),
    row("s_bcnt0_i32_b32", |s| nz32(x(s.a).count_zeros())), row("s_bcnt0_i32_b64", |s| nz32(s.a.count_zeros())),
    row("s_bcnt1_i32_b32", |s| nz32(x(s.a).count_ones())), row("s_bcnt1_i32_b64", |s| nz32(s.a.count_ones())),
    row("s_ctz_i32_b32", |s| first(x(s.a).trailing_zeros(), 32)), row("s_ctz_i32_b64", |s| first(s.a.trailing_zeros(), 64)),
    row("s_ff0_i32_b32", |s| first((!x(s.a)).trailing_zeros(), 32)), row("s_ff0_i32_b64", |s| first((!s.a).trailing_zeros(), 64)),
    row("s_clz_i32_u32", |s| first(x(s.a).leading_zeros(), 32)), row("s_clz_i32_u64", |s| first(s.a.leading_zeros(), 64)),
    row("s_cls_i32", |s| cls(i(s.a).into(), 32)), row("s_cls_i32_i64", |s| cls(s.a as i64, 64)),
    row("s_sext_i32_i8", |s| plain(u64::from(i32::from(s.a as i8) as u32))), row("s_sext_i32_i16", |s| plain(u64::from(i32::from(s.a as i16) as u32))),
    on_dst("s_bitset0_b32", |s| plain(s.d & !(1 << (s.a & 31)))), on_dst("s_bitset1_b32", |s| plain(s.d | 1 << (s.a & 31))),
    on_dst("s_bitset0_b64", |s| plain(s.d & !(1 << (s.a & 63)))), on_dst("s_bitset1_b64", |s| plain(s.d | 1 << (s.a & 63))),
    row("s_bitreplicate_b64_b32", |s| plain(replicate(x(s.a)))),
    row("s_quadmask_b32", |s| nz(quads(s.a))), row("s_quadmask_b64", |s| nz(quads(s.a))),
    row("s_wqm_b32", |s| nz(whole_quads(s.a))), row("s_wqm_b64", |s| nz(whole_quads(s.a))),
    row("s_abs_i32", |s| nz32(i(s.a).unsigned_abs())),
    row("s_absdiff_i32", |s| nz32(i(s.a).wrapping_sub(i(s.b)).wrapping_abs() as u32)),
    row("s_add_u32", |s| add(x(s.a), x(s.b), false)), on_scc("s_addc_u32", |s| add(x(s.a), x(s.b), s.scc)),
    row("s_sub_u32", |s| sub(x(s.a), x(s.b), false)), on_scc("s_subb_u32", |s| sub(x(s.a), x(s.b), s.scc)),
    row("s_add_i32", |s| add_i(i(s.a), i(s.b))), row("s_sub_i32", |s| { let (v, o) = i(s.a).overflowing_sub(i(s.b)); with(v as u32, o) }),
    on_dst("s_addk_i32", |s| add_i(i(s.d), i(s.b))), on_dst("s_mulk_i32", |s| plain(i(s.d).wrapping_mul(i(s.b)) as u32 as u64)),
    row("s_min_i32", |s| min_by(s.a, s.b, i(s.a) < i(s.b))), row("s_min_u32", |s| min_by(s.a, s.b, x(s.a) < x(s.b))),
    row("s_max_i32", |s| min_by(s.a, s.b, i(s.a) > i(s.b))), row("s_max_u32", |s| min_by(s.a, s.b, x(s.a) > x(s.b))),
    row("s_and_b32", |s| nz(s.a & s.b)), row("s_and_b64", |s| nz(s.a & s.b)), row("s_or_b32", |s| nz(s.a | s.b)), row("s_or_b64", |s| nz(s.a | s.b)),
    row("s_xor_b32", |s| nz(s.a ^ s.b)), row("s_xor_b64", |s| nz(s.a ^ s.b)), row("s_nand_b32", |s| nz32(!x(s.a & s.b))), row("s_nand_b64", |s| nz(!(s.a & s.b))),
    row("s_nor_b32", |s| nz32(!x(s.a | s.b))), row("s_nor_b64", |s| nz(!(s.a | s.b))), row("s_xnor_b32", |s| nz32(!x(s.a ^ s.b))), row("s_xnor_b64", |s| nz(!(s.a ^ s.b))),
    row("s_and_not1_b32", |s| nz32(x(s.a & !s.b))), row("s_and_not1_b64", |s| nz(s.a & !s.b)), row("s_or_not1_b32", |s| nz32(x(s.a | !s.b))), row("s_or_not1_b64", |s| nz(s.a | !s.b)),
    row("s_lshl_b32", |s| nz32(x(s.a) << (s.b & 31))), row("s_lshl_b64", |s| nz(s.a << (s.b & 63))),
    row("s_lshr_b32", |s| nz32(x(s.a) >> (s.b & 31))), row("s_lshr_b64", |s| nz(s.a >> (s.b & 63))),
    row("s_ashr_i32", |s| nz32((i(s.a) >> (s.b & 31)) as u32)), row("s_ashr_i64", |s| nz((s.a as i64 >> (s.b & 63)) as u64)),
    row("s_lshl1_add_u32", |s| lshl_add(x(s.a), x(s.b), 1)), row("s_lshl2_add_u32", |s| lshl_add(x(s.a), x(s.b), 2)),
    row("s_lshl3_add_u32", |s| lshl_add(x(s.a), x(s.b), 3)), row("s_lshl4_add_u32", |s| lshl_add(x(s.a), x(s.b), 4)),
    row("s_mul_i32", |s| plain(x(s.a).wrapping_mul(x(s.b)).into())),
    row("s_mul_hi_u32", |s| plain(((s.a & 0xffff_ffff) * (s.b & 0xffff_ffff)) >> 32)),
    row("s_mul_hi_i32", |s| plain(u64::from(((i64::from(i(s.a)) * i64::from(i(s.b))) >> 32) as u32))),
    row("s_mul_u64", |s| plain(s.a.wrapping_mul(s.b))), row("s_add_nc_u64", |s| plain(s.a.wrapping_add(s.b))), row("s_sub_nc_u64", |s| plain(s.a.wrapping_sub(s.b))),
    row("s_bfe_u32", |s| nz(bfe_u(s.a & 0xffff_ffff, s.b, 32))), row("s_bfe_i32", |s| nz32(bfe_i(i(s.a).into(), s.b, 32) as u32)),
    row("s_bfe_u64", |s| nz(bfe_u(s.a, s.b, 64))), row("s_bfe_i64", |s| nz(bfe_i(s.a as i64, s.b, 64) as u64)),
    row("s_bfm_b32", |s| plain(u64::from(((1u32 << (s.a & 31)) - 1) << (s.b & 31)))), row("s_bfm_b64", |s| plain(((1u64 << (s.a & 63)) - 1) << (s.b & 63))),
    on_scc("s_cselect_b32", |s| plain(if s.scc { s.a } else { s.b })), on_scc("s_cselect_b64", |s| plain(if s.scc { s.a } else { s.b })),
    row("s_pack_ll_b32_b16", |s| pack(s.a, s.b)), row("s_pack_lh_b32_b16", |s| pack(s.a, s.b >> 16)),
    row("s_pack_hh_b32_b16", |s| pack(s.a >> 16, s.b >> 16)), row("s_pack_hl_b32_b16", |s| pack(s.a >> 16, s.b)),
    row("s_cmp_eq_i32", |s| test(x(s.a) == x(s.b))), row("s_cmp_lg_i32", |s| test(x(s.a) != x(s.b))), row("s_cmp_gt_i32", |s| test(i(s.a) > i(s.b))),
    row("s_cmp_ge_i32", |s| test(i(s.a) >= i(s.b))), row("s_cmp_lt_i32", |s| test(i(s.a) < i(s.b))), row("s_cmp_le_i32", |s| test(i(s.a) <= i(s.b))),
    row("s_cmp_eq_u32", |s| test(x(s.a) == x(s.b))), row("s_cmp_lg_u32", |s| test(x(s.a) != x(s.b))), row("s_cmp_gt_u32", |s| test(x(s.a) > x(s.b))),
    row("s_cmp_ge_u32", |s| test(x(s.a) >= x(s.b))), row("s_cmp_lt_u32", |s| test(x(s.a) < x(s.b))), row("s_cmp_le_u32", |s| test(x(s.a) <= x(s.b))),
    row("s_cmp_eq_u64", |s| test(s.a == s.b)), row("s_cmp_lg_u64", |s| test(s.a != s.b)),
    row("s_bitcmp0_b32", |s| test(s.a >> (s.b & 31) & 1 == 0)), row("s_bitcmp1_b32", |s| test(s.a >> (s.b & 31) & 1 == 1)),
    row("s_bitcmp0_b64", |s| test(s.a >> (s.b & 63) & 1 == 0)), row("s_bitcmp1_b64", |s| test(s.a >> (s.b & 63) & 1 == 1)),
    on_dst("s_cmpk_eq_i32", |s| test(i(s.d) == i(s.b))), on_dst("s_cmpk_lg_i32", |s| test(i(s.d) != i(s.b))), on_dst("s_cmpk_gt_i32", |s| test(i(s.d) > i(s.b))),
    on_dst("s_cmpk_ge_i32", |s| test(i(s.d) >= i(s.b))), on_dst("s_cmpk_lt_i32", |s| test(i(s.d) < i(s.b))), on_dst("s_cmpk_le_i32", |s| test(i(s.d) <= i(s.b))),
    on_dst("s_cmpk_eq_u32", |s| test(x(s.d) == x(s.b) & 0xffff)), on_dst("s_cmpk_lg_u32", |s| test(x(s.d) != x(s.b) & 0xffff)), on_dst("s_cmpk_gt_u32", |s| test(x(s.d) > x(s.b) & 0xffff)),
    on_dst("s_cmpk_ge_u32", |s| test(x(s.d) >= x(s.b) & 0xffff)), on_dst("s_cmpk_lt_u32", |s| test(x(s.d) < x(s.b) & 0xffff)), on_dst("s_cmpk_le_u32", |s| test(x(s.d) <= x(s.b) & 0xffff)),
    // Scalar floating point, gfx12.
    row("s_add_f32", |s| out_f(add_odd(f(s.a).into(), f(s.b).into()), s)), row("s_sub_f32", |s| out_f(add_odd(f(s.a).into(), (-f(s.b)).into()), s)),
    row("s_mul_f32", |s| out_f(f64::from(f(s.a)) * f64::from(f(s.b)), s)), on_dst("s_fmac_f32", |s| plain(fma32(f(s.a), f(s.b), f(s.d)).to_bits().into())),
    row("s_fmaak_f32", |s| plain(fma32(f(s.a), f(s.b), f(s.d)).to_bits().into())), row("s_fmamk_f32", |s| plain(fma32(f(s.a), f(s.d), f(s.b)).to_bits().into())),
    row("s_min_f32", |s| plain(min32(f(s.a), f(s.b)).to_bits().into())), row("s_max_f32", |s| plain(max32(f(s.a), f(s.b)).to_bits().into())),
    row("s_minimum_f32", |s| out_f(minimum64(f(s.a).into(), f(s.b).into()), s)), row("s_maximum_f32", |s| out_f(maximum64(f(s.a).into(), f(s.b).into()), s)),
    row("s_add_f16", |s| out_h(f64::from(h(s.a)) + f64::from(h(s.b)), s)), row("s_sub_f16", |s| out_h(f64::from(h(s.a)) - f64::from(h(s.b)), s)),
    row("s_mul_f16", |s| out_h(f64::from(h(s.a)) * f64::from(h(s.b)), s)), on_dst("s_fmac_f16", |s| out_h(add_odd(f64::from(h(s.a)) * f64::from(h(s.b)), h(s.d).into()), s)),
    row("s_min_f16", |s| out_h(min32(h(s.a), h(s.b)).into(), s)), row("s_max_f16", |s| out_h(max32(h(s.a), h(s.b)).into(), s)),
    row("s_minimum_f16", |s| out_h(minimum64(h(s.a).into(), h(s.b).into()), s)), row("s_maximum_f16", |s| out_h(maximum64(h(s.a).into(), h(s.b).into()), s)),
    row("s_cvt_f32_i32", |s| out_f(i(s.a).into(), s)), row("s_cvt_f32_u32", |s| out_f(x(s.a).into(), s)),
    row("s_cvt_i32_f32", |s| plain(u64::from(f(s.a) as i32 as u32))), row("s_cvt_u32_f32", |s| plain(u64::from(f(s.a) as u32))),
    row("s_cvt_f16_f32", |s| out_h(f(s.a).into(), s)), row("s_cvt_f32_f16", |s| plain(h(s.a).to_bits().into())), row("s_cvt_hi_f32_f16", |s| plain(h(s.a >> 16).to_bits().into())),
    row("s_cvt_pk_rtz_f16_f32", |s| plain(u64::from(to_half(f(s.a).into(), Round::Zero) | to_half(f(s.b).into(), Round::Zero) << 16))),
    row("s_trunc_f32", |s| plain(f(s.a).trunc().to_bits().into())), row("s_ceil_f32", |s| plain(f(s.a).ceil().to_bits().into())),
    row("s_floor_f32", |s| plain(f(s.a).floor().to_bits().into())), row("s_rndne_f32", |s| plain(f(s.a).round_ties_even().to_bits().into())),
    row("s_trunc_f16", |s| out_h(h(s.a).trunc().into(), s)), row("s_ceil_f16", |s| out_h(h(s.a).ceil().into(), s)),
    row("s_floor_f16", |s| out_h(h(s.a).floor().into(), s)), row("s_rndne_f16", |s| out_h(h(s.a).round_ties_even().into(), s)),
];

/// `s_cmp_<relation>_f32` and `_f16`: the relations a compare accepts, and whether the operands are halves.
pub(super) fn float_compare(name: &str) -> Option<(u8, bool)> {
    let (relation, ty) = name.strip_prefix("s_cmp_")?.rsplit_once('_')?;
    let half = match ty {
        "f32" => false,
        "f16" => true,
        _ => return None,
    };
    Some((super::sem_compare::relation(relation)?, half))
}

/// The compare itself.
pub(super) fn compares(accepted: u8, half: bool, a: u64, b: u64) -> bool {
    let (a, b) = if half { (h(a), h(b)) } else { (f(a), f(b)) };
    let found = if a < b {
        1
    } else if a == b {
        2
    } else if a > b {
        4
    } else {
        8
    };
    accepted & found != 0
}
