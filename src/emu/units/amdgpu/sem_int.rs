//! Semantics of integer vector instructions: 32-bit ones as loops over lanes, 16- and 64-bit ones a lane at a time.
//!
//! Source: AMD's ISA documents (RDNA3, CDNA3, RDNA4), vector ALU pseudo-code. Carry and cross-lane instructions are in
//! `cross`, packed ones in `sem_packed`.

use super::lanes::{Lane, Ty, VFn, VSem, mixed, same, v1, v2, v3};
use Ty::{B16, B32, B64, F16, F32, I16, I32, I64, U16, U32, U64};

pub(super) static ROWS32: &[VSem] = &[
    same("v_mov_b32", B32, v1!(|a: u32| a)),
    same("v_not_b32", B32, v1!(|a: u32| !a)),
    same("v_bfrev_b32", B32, v1!(|a: u32| a.reverse_bits())),
    same("v_clz_i32_u32", B32, v1!(|a: u32| if a == 0 { u32::MAX } else { a.leading_zeros() })),
    same("v_ctz_i32_b32", B32, v1!(|a: u32| if a == 0 { u32::MAX } else { a.trailing_zeros() })),
    same("v_cls_i32", I32, v1!(cls32)),
    same("v_and_b32", B32, v2!(|a: u32, b: u32| a & b)),
    same("v_or_b32", B32, v2!(|a: u32, b: u32| a | b)),
    same("v_xor_b32", B32, v2!(|a: u32, b: u32| a ^ b)),
    same("v_xnor_b32", B32, v2!(|a: u32, b: u32| !(a ^ b))),
    same("v_lshrrev_b32", B32, v2!(|a: u32, b: u32| b >> (a & 31))),
    same("v_lshlrev_b32", B32, v2!(|a: u32, b: u32| b << (a & 31))),
    same("v_ashrrev_i32", B32, v2!(|a: u32, b: u32| ((b as i32) >> (a & 31)) as u32)),
    same("v_add_nc_u32", U32, v2!(|a: u32, b: u32| a.wrapping_add(b)))
        .with_clamped(|l| u64::from(x(l.a).saturating_add(x(l.b)))),
    same("v_sub_nc_u32", U32, v2!(|a: u32, b: u32| a.wrapping_sub(b)))
        .with_clamped(|l| u64::from(x(l.a).saturating_sub(x(l.b)))),
    same("v_subrev_nc_u32", U32, v2!(|a: u32, b: u32| b.wrapping_sub(a)))
        .with_clamped(|l| u64::from(x(l.b).saturating_sub(x(l.a)))),
    same("v_add_nc_i32", I32, v2!(|a: u32, b: u32| a.wrapping_add(b)))
        .with_clamped(|l| u64::from(i(l.a).saturating_add(i(l.b)) as u32)),
    same("v_sub_nc_i32", I32, v2!(|a: u32, b: u32| a.wrapping_sub(b)))
        .with_clamped(|l| u64::from(i(l.a).saturating_sub(i(l.b)) as u32)),
    same("v_min_i32", I32, v2!(|a: u32, b: u32| (a as i32).min(b as i32) as u32)),
    same("v_max_i32", I32, v2!(|a: u32, b: u32| (a as i32).max(b as i32) as u32)),
    same("v_min_u32", U32, v2!(|a: u32, b: u32| a.min(b))),
    same("v_max_u32", U32, v2!(|a: u32, b: u32| a.max(b))),
    same("v_mul_lo_u32", U32, v2!(|a: u32, b: u32| a.wrapping_mul(b))),
    same("v_mul_hi_u32", U32, v2!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32)),
    same("v_mul_hi_i32", I32, v2!(|a: u32, b: u32| ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)),
    same("v_mul_i32_i24", I32, v2!(|a: u32, b: u32| s24(a).wrapping_mul(s24(b)) as u32)),
    same("v_mul_hi_i32_i24", I32, v2!(|a: u32, b: u32| ((i64::from(s24(a)) * i64::from(s24(b))) >> 32) as u32)),
    same("v_mul_u32_u24", U32, v2!(|a: u32, b: u32| u24(a).wrapping_mul(u24(b)))),
    same("v_mul_hi_u32_u24", U32, v2!(|a: u32, b: u32| ((u64::from(u24(a)) * u64::from(u24(b))) >> 32) as u32)),
    same("v_bcnt_u32_b32", B32, v2!(|a: u32, b: u32| a.count_ones().wrapping_add(b))),
    same("v_bfm_b32", B32, v2!(|a: u32, b: u32| ((1u32 << (a & 31)) - 1) << (b & 31))),
    same("v_mad_i32_i24", I32, v3!(|a: u32, b: u32, c: u32| (s24(a).wrapping_mul(s24(b)) as u32).wrapping_add(c)))
        .with_clamped(|l| sat_i32(i64::from(s24(x(l.a))) * i64::from(s24(x(l.b))) + i64::from(i(l.c)))),
    same("v_mad_u32_u24", U32, v3!(|a: u32, b: u32, c: u32| u24(a).wrapping_mul(u24(b)).wrapping_add(c)))
        .with_clamped(|l| sat_u32(u64::from(u24(x(l.a))) * u64::from(u24(x(l.b))) + u64::from(x(l.c)))),
    same("v_bfe_u32", U32, v3!(|a: u32, b: u32, c: u32| (a >> (b & 31)) & low_mask(c))),
    same("v_bfe_i32", I32, v3!(bfe_i32)),
    same("v_bfi_b32", B32, v3!(|a: u32, b: u32, c: u32| (a & b) | (!a & c))),
    mixed(
        "v_alignbit_b32",
        B32,
        [B32, B32, B16],
        v3!(|a: u32, b: u32, c: u32| (((u64::from(a) << 32) | u64::from(b)) >> (c & 31)) as u32),
    ),
    mixed(
        "v_alignbyte_b32",
        B32,
        [B32, B32, B16],
        v3!(|a: u32, b: u32, c: u32| (((u64::from(a) << 32) | u64::from(b)) >> ((c & 3) * 8)) as u32),
    ),
    same("v_min3_i32", I32, v3!(|a: u32, b: u32, c: u32| (a as i32).min(b as i32).min(c as i32) as u32)),
    same("v_max3_i32", I32, v3!(|a: u32, b: u32, c: u32| (a as i32).max(b as i32).max(c as i32) as u32)),
    same(
        "v_med3_i32",
        I32,
        v3!(|a: u32, b: u32, c: u32| {
            let (a, b, c) = (a as i32, b as i32, c as i32);
            a.max(b).min(a.min(b).max(c)) as u32
        }),
    ),
    same("v_min3_u32", U32, v3!(|a: u32, b: u32, c: u32| a.min(b).min(c))),
    same("v_max3_u32", U32, v3!(|a: u32, b: u32, c: u32| a.max(b).max(c))),
    same("v_med3_u32", U32, v3!(|a: u32, b: u32, c: u32| a.max(b).min(a.min(b).max(c)))),
    same("v_minmax_i32", I32, v3!(|a: u32, b: u32, c: u32| (a as i32).min(b as i32).max(c as i32) as u32)),
    same("v_maxmin_i32", I32, v3!(|a: u32, b: u32, c: u32| (a as i32).max(b as i32).min(c as i32) as u32)),
    same("v_minmax_u32", U32, v3!(|a: u32, b: u32, c: u32| a.min(b).max(c))),
    same("v_maxmin_u32", U32, v3!(|a: u32, b: u32, c: u32| a.max(b).min(c))),
    same("v_sad_u32", U32, v3!(|a: u32, b: u32, c: u32| a.abs_diff(b).wrapping_add(c))),
    same("v_sad_u16", U32, v3!(|a: u32, b: u32, c: u32| sad(a, b, 16, false).wrapping_add(c))),
    same("v_sad_u8", U32, v3!(|a: u32, b: u32, c: u32| sad(a, b, 8, false).wrapping_add(c))),
    same("v_sad_hi_u8", U32, v3!(|a: u32, b: u32, c: u32| (sad(a, b, 8, false) << 16).wrapping_add(c))),
    same("v_msad_u8", U32, v3!(|a: u32, b: u32, c: u32| sad(a, b, 8, true).wrapping_add(c))),
    same("v_lerp_u8", U32, v3!(lerp_u8)),
    same("v_lshl_add_u32", U32, v3!(|a: u32, b: u32, c: u32| (a << (b & 31)).wrapping_add(c))),
    same("v_add_lshl_u32", U32, v3!(|a: u32, b: u32, c: u32| a.wrapping_add(b) << (c & 31))),
    same("v_lshl_or_b32", B32, v3!(|a: u32, b: u32, c: u32| (a << (b & 31)) | c)),
    same("v_add3_u32", U32, v3!(|a: u32, b: u32, c: u32| a.wrapping_add(b).wrapping_add(c))),
    same("v_and_or_b32", B32, v3!(|a: u32, b: u32, c: u32| (a & b) | c)),
    same("v_or3_b32", B32, v3!(|a: u32, b: u32, c: u32| a | b | c)),
    same("v_xor3_b32", B32, v3!(|a: u32, b: u32, c: u32| a ^ b ^ c)),
    same("v_xad_u32", U32, v3!(|a: u32, b: u32, c: u32| (a ^ b).wrapping_add(c))),
    same("v_perm_b32", B32, v3!(perm)),
    same("v_cvt_pk_u16_u32", U32, v2!(|a: u32, b: u32| a.min(0xffff) | b.min(0xffff) << 16)),
    same("v_cvt_pk_i16_i32", I32, v2!(|a: u32, b: u32| (sat_i16(a as i32) & 0xffff) | (sat_i16(b as i32) << 16))),
    mixed("v_cvt_i32_i16", I32, [I16, Ty::None, Ty::None], v1!(|a: u32| i32::from(a as i16) as u32)),
    mixed("v_cvt_u32_u16", U32, [U16, Ty::None, Ty::None], v1!(|a: u32| a & 0xffff)),
    mixed(
        "v_mad_u32_u16",
        U32,
        [U16, U16, U32],
        v3!(|a: u32, b: u32, c: u32| (a & 0xffff).wrapping_mul(b & 0xffff).wrapping_add(c)),
    )
    .with_clamped(|l| sat_u32((l.a & 0xffff) * (l.b & 0xffff) + u64::from(x(l.c)))),
    mixed(
        "v_mad_i32_i16",
        I32,
        [I16, I16, I32],
        v3!(|a: u32, b: u32, c: u32| (h(a) * h(b)).wrapping_add(c as i32) as u32),
    )
    .with_clamped(|l| sat_i32(i64::from(h(x(l.a)) * h(x(l.b))) + i64::from(i(l.c)))),
    mixed(
        "v_sat_pk_u8_i16",
        B16,
        [B32, Ty::None, Ty::None],
        v1!(|a: u32| h(a).clamp(0, 255) as u32 | (h(a >> 16).clamp(0, 255) as u32) << 8),
    ),
];

pub(super) static ROWS16: &[VSem] = &[
    same("v_add_nc_u16", U16, VFn::Lane(|l| w(l.a).wrapping_add(w(l.b)).into()))
        .with_clamped(|l| w(l.a).saturating_add(w(l.b)).into()),
    same("v_sub_nc_u16", U16, VFn::Lane(|l| w(l.a).wrapping_sub(w(l.b)).into()))
        .with_clamped(|l| w(l.a).saturating_sub(w(l.b)).into()),
    same("v_subrev_u16", U16, VFn::Lane(|l| w(l.b).wrapping_sub(w(l.a)).into()))
        .with_clamped(|l| w(l.b).saturating_sub(w(l.a)).into()),
    same("v_add_nc_i16", I16, VFn::Lane(|l| w(l.a).wrapping_add(w(l.b)).into()))
        .with_clamped(|l| u(sw(l.a).saturating_add(sw(l.b)))),
    same("v_sub_nc_i16", I16, VFn::Lane(|l| w(l.a).wrapping_sub(w(l.b)).into()))
        .with_clamped(|l| u(sw(l.a).saturating_sub(sw(l.b)))),
    same("v_mul_lo_u16", U16, VFn::Lane(|l| w(l.a).wrapping_mul(w(l.b)).into())),
    same("v_mad_u16", U16, VFn::Lane(|l| w(l.a).wrapping_mul(w(l.b)).wrapping_add(w(l.c)).into()))
        .with_clamped(|l| ((l.a & 0xffff) * (l.b & 0xffff) + (l.c & 0xffff)).min(0xffff)),
    same("v_mad_i16", I16, VFn::Lane(|l| w(l.a).wrapping_mul(w(l.b)).wrapping_add(w(l.c)).into()))
        .with_clamped(|l| u(sat_i16((i32::from(sw(l.a)) * i32::from(sw(l.b))).saturating_add(sw(l.c).into())) as i16)),
    same("v_lshlrev_b16", B16, VFn::Lane(|l| (w(l.b) << (l.a & 15)).into())),
    same("v_lshrrev_b16", B16, VFn::Lane(|l| (w(l.b) >> (l.a & 15)).into())),
    same("v_ashrrev_i16", I16, VFn::Lane(|l| u(sw(l.b) >> (l.a & 15)))),
    same("v_max_u16", U16, VFn::Lane(|l| w(l.a).max(w(l.b)).into())),
    same("v_min_u16", U16, VFn::Lane(|l| w(l.a).min(w(l.b)).into())),
    same("v_max_i16", I16, VFn::Lane(|l| u(sw(l.a).max(sw(l.b))))),
    same("v_min_i16", I16, VFn::Lane(|l| u(sw(l.a).min(sw(l.b))))),
    same("v_and_b16", B16, VFn::Lane(|l| l.a & l.b & 0xffff)),
    same("v_or_b16", B16, VFn::Lane(|l| (l.a | l.b) & 0xffff)),
    same("v_xor_b16", B16, VFn::Lane(|l| (l.a ^ l.b) & 0xffff)),
    same("v_not_b16", B16, VFn::Lane(|l| !l.a & 0xffff)),
    same("v_mov_b16", B16, VFn::Lane(|l| l.a & 0xffff)),
    same("v_min3_i16", I16, VFn::Lane(|l| u(sw(l.a).min(sw(l.b)).min(sw(l.c))))),
    same("v_max3_i16", I16, VFn::Lane(|l| u(sw(l.a).max(sw(l.b)).max(sw(l.c))))),
    same(
        "v_med3_i16",
        I16,
        VFn::Lane(|l| {
            let (a, b, c) = (sw(l.a), sw(l.b), sw(l.c));
            u(a.max(b).min(a.min(b).max(c)))
        }),
    ),
    same("v_min3_u16", U16, VFn::Lane(|l| w(l.a).min(w(l.b)).min(w(l.c)).into())),
    same("v_max3_u16", U16, VFn::Lane(|l| w(l.a).max(w(l.b)).max(w(l.c)).into())),
    same(
        "v_med3_u16",
        U16,
        VFn::Lane(|l| {
            let (a, b, c) = (w(l.a), w(l.b), w(l.c));
            a.max(b).min(a.min(b).max(c)).into()
        }),
    ),
    mixed("v_pack_b32_f16", B32, [F16, F16, Ty::None], VFn::Lane(|l| l.a & 0xffff | (l.b & 0xffff) << 16))
        .keeping_denormals(),
];

pub(super) static ROWS64: &[VSem] = &[
    same("v_mov_b64", B64, VFn::Lane(|l| l.a)),
    mixed("v_lshlrev_b64", B64, [B32, B64, Ty::None], VFn::Lane(|l| l.b << (l.a & 63))),
    mixed("v_lshrrev_b64", B64, [B32, B64, Ty::None], VFn::Lane(|l| l.b >> (l.a & 63))),
    mixed("v_ashrrev_i64", I64, [B32, I64, Ty::None], VFn::Lane(|l| ((l.b as i64) >> (l.a & 63)) as u64)),
    mixed("v_lshl_add_u64", U64, [U64, U32, U64], VFn::Lane(|l| (l.a << (l.b & 7)).wrapping_add(l.c))),
    mixed("v_qsad_pk_u16_u8", B64, [B64, B32, B64], VFn::Lane(|l| qsad(l, false))),
    mixed("v_mqsad_pk_u16_u8", B64, [B64, B32, B64], VFn::Lane(|l| qsad(l, true))),
    mixed(
        "v_cvt_off_f32_i4",
        F32,
        [B32, Ty::None, Ty::None],
        VFn::Lane(|l| {
            let v = ((l.a as u32) << 28) as i32 >> 28;
            u64::from((v as f32 / 16.0).to_bits())
        }),
    ),
];

fn x(v: u64) -> u32 {
    v as u32
}

fn i(v: u64) -> i32 {
    v as i32
}

fn w(v: u64) -> u16 {
    v as u16
}

fn sw(v: u64) -> i16 {
    v as i16
}

fn u(v: i16) -> u64 {
    (v as u16).into()
}

/// Low half, sign extended.
#[inline(always)]
fn h(v: u32) -> i32 {
    i32::from(v as i16)
}

#[inline(always)]
fn s24(v: u32) -> i32 {
    ((v << 8) as i32) >> 8
}

#[inline(always)]
fn u24(v: u32) -> u32 {
    v & 0xff_ffff
}

#[inline(always)]
fn low_mask(width: u32) -> u32 {
    (1u32 << (width & 31)) - 1
}

fn sat_u32(v: u64) -> u64 {
    v.min(u32::MAX.into())
}

fn sat_i32(v: i64) -> u64 {
    u64::from(v.clamp(i32::MIN.into(), i32::MAX.into()) as u32)
}

#[inline(always)]
fn sat_i16(v: i32) -> u32 {
    v.clamp(-32768, 32767) as u32
}

/// Count of leading bits equal to the sign; -1 when all are.
pub(super) fn cls32(a: u32) -> u32 {
    let v = a ^ ((a as i32) >> 31) as u32;
    if v == 0 { u32::MAX } else { v.leading_zeros() }
}

#[inline(always)]
fn bfe_i32(a: u32, b: u32, c: u32) -> u32 {
    let width = c & 31;
    let field = ((a as i32) >> (b & 31)) as u32 & low_mask(width);
    let shift = (32 - width) & 31;
    if width == 0 { 0 } else { (((field << shift) as i32) >> shift) as u32 }
}

/// Sum of absolute differences of bytes or halves; `masked` skips bytes that are zero in the reference.
fn sad(a: u32, b: u32, bits: u32, masked: bool) -> u32 {
    let mask = (1u32 << bits) - 1;
    let mut sum = 0;
    let mut at = 0;
    while at < 32 {
        let (p, q) = (a >> at & mask, b >> at & mask);
        if !(masked && q == 0) {
            sum += p.abs_diff(q);
        }
        at += bits;
    }
    sum
}

/// Four sums over a sliding window of four bytes, added to four packed accumulators.
fn qsad(l: &Lane, masked: bool) -> u64 {
    let one = |n: u32| {
        let part = sad((l.a >> (8 * n)) as u32, l.b as u32, 8, masked);
        u64::from(((l.c >> (16 * n)) as u16 as u32 + part) & 0xffff) << (16 * n)
    };
    one(0) | one(1) | one(2) | one(3)
}

fn lerp_u8(a: u32, b: u32, c: u32) -> u32 {
    let mut out = 0;
    for n in [0, 8, 16, 24] {
        out |= (((a >> n & 255) + (b >> n & 255) + (c >> n & 1)) >> 1 & 255) << n;
    }
    out
}

/// Bytes picked from the eight of b (0..3) and a (4..7); 8..11 replicate signs, 12 is zero, above is ones.
fn perm(a: u32, b: u32, c: u32) -> u32 {
    let data = (u64::from(a) << 32) | u64::from(b);
    let mut out = 0;
    for n in 0..4 {
        let byte = match c >> (8 * n) & 255 {
            s @ 0..=7 => (data >> (8 * s)) as u32 & 255,
            s @ 8..=11 => {
                if data >> (16 * (s - 8) + 15) & 1 == 1 {
                    255
                } else {
                    0
                }
            }
            12 => 0,
            _ => 255,
        };
        out |= byte << (8 * n);
    }
    out
}
