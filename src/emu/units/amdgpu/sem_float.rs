//! Semantics of floating-point vector instructions: f32 as loops over lanes, f16 and f64 a lane at a time; conversions.
//!
//! Source: AMD's ISA documents. Transcendentals are computed in double and rounded once: closer than hardware's 1 ulp.

use super::float::{
    self, F16 as HALF, Small, add_odd, add64, fma_lanes, fma_odd, fma32, fma64, frexp64, half_to_f32, lanes2, ldexp64,
    max32, max64, maximum64, min32, min64, minimum64, mul64, to_f32, to_half, with_nan,
};
use super::lanes::{Lane, Round, Ty, VFn, VSem, mixed, same, v1, v2, v3};
use Ty::{F16, F32, F64, I16, I32, None as N, U16, U32};

#[inline(always)]
fn f(v: u32) -> f32 {
    f32::from_bits(v)
}

fn s(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn g(v: u64) -> f64 {
    f64::from_bits(v)
}

/// A half's value.
fn h(v: u64) -> f64 {
    f64::from(half_to_f32(v as u32 & 0xffff))
}

fn r32(v: f64, round: Round) -> u64 {
    to_f32(v, round).into()
}

fn r16(v: f64, l: &Lane) -> u64 {
    to_half(v, l.mode.round64()).into()
}

/// Denormal singles as zero, as the transcendental unit treats them.
#[inline(always)]
fn flush(v: f32) -> f32 {
    if v.abs() < f32::MIN_POSITIVE { 0.0_f32.copysign(v) } else { v }
}

/// A single rounded to an integer; what is no number is made quiet.
#[inline(always)]
fn whole(a: u32, round: impl Fn(f32) -> f32) -> u32 {
    if f(a).is_nan() { a | 1 << 22 } else { round(f(a)).to_bits() }
}

pub(super) static ROWS32: &[VSem] = &[
    same("v_add_f32", F32, VFn::V2(|a, b, d| lanes2(a, b, d, |x, y| x + y)))
        .with_directed(|l| r32(add_odd(s(l.a).into(), s(l.b).into()), l.mode.round32())),
    same("v_sub_f32", F32, VFn::V2(|a, b, d| lanes2(a, b, d, |x, y| x - y)))
        .with_directed(|l| r32(add_odd(s(l.a).into(), (-s(l.b)).into()), l.mode.round32())),
    same("v_subrev_f32", F32, VFn::V2(|a, b, d| lanes2(b, a, d, |x, y| x - y)))
        .with_directed(|l| r32(add_odd(s(l.b).into(), (-s(l.a)).into()), l.mode.round32())),
    same("v_mul_f32", F32, VFn::V2(|a, b, d| lanes2(a, b, d, |x, y| x * y)))
        .with_directed(|l| r32(f64::from(s(l.a)) * f64::from(s(l.b)), l.mode.round32())),
    same(
        "v_mul_dx9_zero_f32",
        F32,
        v2!(|a: u32, b: u32| if f(a) == 0.0 || f(b) == 0.0 { 0 } else { with_nan(f(a), f(b), f(a) * f(b)).to_bits() }),
    ),
    same("v_fma_f32", F32, VFn::V3(fma_lanes))
        .with_directed(|l| r32(fma_odd(s(l.a), s(l.b), s(l.c)), l.mode.round32())),
    same(
        "v_fma_dx9_zero_f32",
        F32,
        v3!(|a: u32, b: u32, c: u32| if f(a) == 0.0 || f(b) == 0.0 { c } else { fma32(f(a), f(b), f(c)).to_bits() }),
    ),
    same("v_min_f32", F32, v2!(|a: u32, b: u32| min32(f(a), f(b)).to_bits())),
    same("v_max_f32", F32, v2!(|a: u32, b: u32| max32(f(a), f(b)).to_bits())),
    same("v_min3_f32", F32, v3!(|a: u32, b: u32, c: u32| min32(min32(f(a), f(b)), f(c)).to_bits())),
    same("v_max3_f32", F32, v3!(|a: u32, b: u32, c: u32| max32(max32(f(a), f(b)), f(c)).to_bits())),
    same("v_minmax_f32", F32, v3!(|a: u32, b: u32, c: u32| max32(min32(f(a), f(b)), f(c)).to_bits())),
    same("v_maxmin_f32", F32, v3!(|a: u32, b: u32, c: u32| min32(max32(f(a), f(b)), f(c)).to_bits())),
    same(
        "v_med3_f32",
        F32,
        VFn::Lane(|l| u64::from((med3(s(l.a).into(), s(l.b).into(), s(l.c).into()) as f32).to_bits())),
    ),
    same("v_minimum_f32", F32, VFn::Lane(|l| r32(minimum64(s(l.a).into(), s(l.b).into()), Round::Nearest))),
    same("v_maximum_f32", F32, VFn::Lane(|l| r32(maximum64(s(l.a).into(), s(l.b).into()), Round::Nearest))),
    same(
        "v_minimum3_f32",
        F32,
        VFn::Lane(|l| r32(minimum64(minimum64(s(l.a).into(), s(l.b).into()), s(l.c).into()), Round::Nearest)),
    ),
    same(
        "v_maximum3_f32",
        F32,
        VFn::Lane(|l| r32(maximum64(maximum64(s(l.a).into(), s(l.b).into()), s(l.c).into()), Round::Nearest)),
    ),
    same(
        "v_minimummaximum_f32",
        F32,
        VFn::Lane(|l| r32(maximum64(minimum64(s(l.a).into(), s(l.b).into()), s(l.c).into()), Round::Nearest)),
    ),
    same(
        "v_maximumminimum_f32",
        F32,
        VFn::Lane(|l| r32(minimum64(maximum64(s(l.a).into(), s(l.b).into()), s(l.c).into()), Round::Nearest)),
    ),
    same("v_trunc_f32", F32, v1!(|a: u32| whole(a, f32::trunc))),
    same("v_ceil_f32", F32, v1!(|a: u32| whole(a, f32::ceil))),
    same("v_floor_f32", F32, v1!(|a: u32| whole(a, f32::floor))),
    same("v_rndne_f32", F32, v1!(|a: u32| whole(a, f32::round_ties_even))),
    same("v_fract_f32", F32, v1!(|a: u32| min32(f(a) - f(a).floor(), f(0x3f7f_ffff)).to_bits())),
    same("v_exp_f32", F32, VFn::Lane(|l| bits(flush(f64::from(flush(s(l.a))).exp2() as f32)))),
    same("v_log_f32", F32, VFn::Lane(|l| bits(f64::from(flush(s(l.a))).log2() as f32))),
    same("v_rcp_f32", F32, VFn::Lane(|l| bits(flush((1.0 / f64::from(flush(s(l.a)))) as f32)))),
    same("v_rcp_iflag_f32", F32, VFn::Lane(|l| bits(flush((1.0 / f64::from(flush(s(l.a)))) as f32)))),
    same("v_rsq_f32", F32, VFn::Lane(|l| bits((1.0 / f64::from(flush(s(l.a))).sqrt()) as f32))),
    same("v_sqrt_f32", F32, VFn::Lane(|l| bits(flush(s(l.a)).sqrt()))),
    same("v_sin_f32", F32, VFn::Lane(|l| bits(revolutions(s(l.a).into()).sin() as f32))),
    same("v_cos_f32", F32, VFn::Lane(|l| bits(revolutions(s(l.a).into()).cos() as f32))),
    same("v_frexp_mant_f32", F32, VFn::Lane(|l| bits(frexp64(s(l.a).into()).0 as f32))),
    mixed("v_frexp_exp_i32_f32", I32, [F32, N, N], VFn::Lane(|l| frexp_exp(s(l.a).into()))),
    mixed("v_ldexp_f32", F32, [F32, I32, N], VFn::Lane(|l| r32(scaled(s(l.a).into(), l.b as i32), l.mode.round32()))),
    same("v_cubeid_f32", F32, VFn::Lane(|l| bits(cube(l).0))),
    same("v_cubesc_f32", F32, VFn::Lane(|l| bits(cube(l).1))),
    same("v_cubetc_f32", F32, VFn::Lane(|l| bits(cube(l).2))),
    same("v_cubema_f32", F32, VFn::Lane(|l| bits(cube(l).3))),
    same("v_mullit_f32", F32, VFn::Lane(|l| bits(mullit(s(l.a), s(l.b), s(l.c))))),
];

pub(super) static ROWS16: &[VSem] = &[
    same("v_add_f16", F16, VFn::Lane(|l| r16(h(l.a) + h(l.b), l))),
    same("v_sub_f16", F16, VFn::Lane(|l| r16(h(l.a) - h(l.b), l))),
    same("v_subrev_f16", F16, VFn::Lane(|l| r16(h(l.b) - h(l.a), l))),
    same("v_mul_f16", F16, VFn::Lane(|l| r16(h(l.a) * h(l.b), l))),
    same("v_fma_f16", F16, VFn::Lane(|l| r16(add_odd(h(l.a) * h(l.b), h(l.c)), l))),
    same("v_min_f16", F16, VFn::Lane(|l| pick16(l.a, l.b, min64))),
    same("v_max_f16", F16, VFn::Lane(|l| pick16(l.a, l.b, max64))),
    same("v_min3_f16", F16, VFn::Lane(|l| pick16(pick16(l.a, l.b, min64), l.c, min64))),
    same("v_max3_f16", F16, VFn::Lane(|l| pick16(pick16(l.a, l.b, max64), l.c, max64))),
    same("v_minmax_f16", F16, VFn::Lane(|l| pick16(pick16(l.a, l.b, min64), l.c, max64))),
    same("v_maxmin_f16", F16, VFn::Lane(|l| pick16(pick16(l.a, l.b, max64), l.c, min64))),
    same("v_med3_f16", F16, VFn::Lane(|l| r16(med3(h(l.a), h(l.b), h(l.c)), l))),
    same("v_minimum_f16", F16, VFn::Lane(|l| r16(minimum64(h(l.a), h(l.b)), l))),
    same("v_maximum_f16", F16, VFn::Lane(|l| r16(maximum64(h(l.a), h(l.b)), l))),
    same("v_minimum3_f16", F16, VFn::Lane(|l| r16(minimum64(minimum64(h(l.a), h(l.b)), h(l.c)), l))),
    same("v_maximum3_f16", F16, VFn::Lane(|l| r16(maximum64(maximum64(h(l.a), h(l.b)), h(l.c)), l))),
    same("v_minimummaximum_f16", F16, VFn::Lane(|l| r16(maximum64(minimum64(h(l.a), h(l.b)), h(l.c)), l))),
    same("v_maximumminimum_f16", F16, VFn::Lane(|l| r16(minimum64(maximum64(h(l.a), h(l.b)), h(l.c)), l))),
    same("v_trunc_f16", F16, VFn::Lane(|l| r16(h(l.a).trunc(), l))),
    same("v_ceil_f16", F16, VFn::Lane(|l| r16(h(l.a).ceil(), l))),
    same("v_floor_f16", F16, VFn::Lane(|l| r16(h(l.a).floor(), l))),
    same("v_rndne_f16", F16, VFn::Lane(|l| r16(h(l.a).round_ties_even(), l))),
    same("v_fract_f16", F16, VFn::Lane(|l| r16(min64(h(l.a) - h(l.a).floor(), HALF.widen(0x3bff)), l))),
    same("v_exp_f16", F16, VFn::Lane(|l| r16(h(l.a).exp2(), l))),
    same("v_log_f16", F16, VFn::Lane(|l| r16(h(l.a).log2(), l))),
    same("v_rcp_f16", F16, VFn::Lane(|l| r16(1.0 / h(l.a), l))),
    same("v_rsq_f16", F16, VFn::Lane(|l| r16(1.0 / h(l.a).sqrt(), l))),
    same("v_sqrt_f16", F16, VFn::Lane(|l| r16(h(l.a).sqrt(), l))),
    same("v_sin_f16", F16, VFn::Lane(|l| r16(revolutions(h(l.a)).sin(), l))),
    same("v_cos_f16", F16, VFn::Lane(|l| r16(revolutions(h(l.a)).cos(), l))),
    same("v_frexp_mant_f16", F16, VFn::Lane(|l| r16(frexp64(h(l.a)).0, l))),
    mixed("v_frexp_exp_i16_f16", I16, [F16, N, N], VFn::Lane(|l| frexp_exp(h(l.a)) & 0xffff)),
    mixed("v_ldexp_f16", F16, [F16, I16, N], VFn::Lane(|l| r16(scaled(h(l.a), (l.b as i16).into()), l))),
    same("v_div_fixup_f16", F16, VFn::Lane(|l| r16(fixup(h(l.a), h(l.b), h(l.c), None), l))),
    mixed(
        "v_dot2_f16_f16",
        F16,
        [Ty::B32, Ty::B32, F16],
        VFn::Lane(|l| r16(h(l.a) * h(l.b) + h(l.a >> 16) * h(l.b >> 16) + h(l.c), l)),
    ),
    mixed(
        "v_dot2_bf16_bf16",
        Ty::B16,
        [Ty::B32, Ty::B32, Ty::B16],
        VFn::Lane(|l| {
            let b = |v: u64| float::BF16.widen(v as u32 & 0xffff);
            float::BF16.narrow(b(l.a) * b(l.b) + b(l.a >> 16) * b(l.b >> 16) + b(l.c), Round::Nearest, false).into()
        }),
    ),
];

pub(super) static ROWS64: &[VSem] = &[
    same("v_add_f64", F64, VFn::Lane(|l| add64(g(l.a), g(l.b), l.mode.round64()).to_bits())),
    same("v_mul_f64", F64, VFn::Lane(|l| mul64(g(l.a), g(l.b), l.mode.round64()).to_bits())),
    same("v_fma_f64", F64, VFn::Lane(|l| fma64(g(l.a), g(l.b), g(l.c), l.mode.round64()).to_bits())),
    same("v_min_f64", F64, VFn::Lane(|l| min64(g(l.a), g(l.b)).to_bits())),
    same("v_max_f64", F64, VFn::Lane(|l| max64(g(l.a), g(l.b)).to_bits())),
    same("v_minimum_f64", F64, VFn::Lane(|l| minimum64(g(l.a), g(l.b)).to_bits())),
    same("v_maximum_f64", F64, VFn::Lane(|l| maximum64(g(l.a), g(l.b)).to_bits())),
    same("v_trunc_f64", F64, VFn::Lane(|l| g(l.a).trunc().to_bits())),
    same("v_ceil_f64", F64, VFn::Lane(|l| g(l.a).ceil().to_bits())),
    same("v_floor_f64", F64, VFn::Lane(|l| g(l.a).floor().to_bits())),
    same("v_rndne_f64", F64, VFn::Lane(|l| g(l.a).round_ties_even().to_bits())),
    same("v_fract_f64", F64, VFn::Lane(|l| min64(g(l.a) - g(l.a).floor(), g(0x3fef_ffff_ffff_ffff)).to_bits())),
    same("v_rcp_f64", F64, VFn::Lane(|l| (1.0 / g(l.a)).to_bits())),
    same("v_rsq_f64", F64, VFn::Lane(|l| (1.0 / g(l.a).sqrt()).to_bits())),
    same("v_sqrt_f64", F64, VFn::Lane(|l| g(l.a).sqrt().to_bits())),
    same("v_frexp_mant_f64", F64, VFn::Lane(|l| frexp64(g(l.a)).0.to_bits())),
    mixed("v_frexp_exp_i32_f64", I32, [F64, N, N], VFn::Lane(|l| frexp_exp(g(l.a)))),
    mixed("v_ldexp_f64", F64, [F64, I32, N], VFn::Lane(|l| ldexp64(g(l.a), l.b as i32).to_bits())),
    same(
        "v_div_fixup_f32",
        F32,
        VFn::Lane(|l| r32(fixup(s(l.a).into(), s(l.b).into(), s(l.c).into(), Some(150)), Round::Nearest)),
    ),
    same("v_div_fixup_f64", F64, VFn::Lane(|l| fixup(g(l.a), g(l.b), g(l.c), Some(1075)).to_bits())),
    mixed("v_trig_preop_f64", F64, [F64, U32, N], VFn::Lane(|l| trig_preop(g(l.a), l.b as u32).to_bits())),
];

pub(super) static CONVERT: &[VSem] = &[
    mixed("v_cvt_f32_i32", F32, [I32, N, N], v1!(|a: u32| (a as i32 as f32).to_bits()))
        .with_directed(|l| r32((l.a as i32).into(), l.mode.round32())),
    mixed("v_cvt_f32_u32", F32, [U32, N, N], v1!(|a: u32| (a as f32).to_bits()))
        .with_directed(|l| r32((l.a as u32).into(), l.mode.round32())),
    // `as` saturates and turns NaN into 0, as the hardware does.
    mixed("v_cvt_i32_f32", I32, [F32, N, N], v1!(|a: u32| f(a) as i32 as u32)),
    mixed("v_cvt_u32_f32", U32, [F32, N, N], v1!(|a: u32| f(a) as u32)),
    mixed("v_cvt_nearest_i32_f32", I32, [F32, N, N], v1!(|a: u32| (f64::from(f(a)) + 0.5).floor() as i32 as u32)),
    mixed("v_cvt_floor_i32_f32", I32, [F32, N, N], v1!(|a: u32| f(a).floor() as i32 as u32)),
    mixed("v_cvt_f32_ubyte0", F32, [U32, N, N], v1!(|a: u32| ((a & 255) as f32).to_bits())),
    mixed("v_cvt_f32_ubyte1", F32, [U32, N, N], v1!(|a: u32| ((a >> 8 & 255) as f32).to_bits())),
    mixed("v_cvt_f32_ubyte2", F32, [U32, N, N], v1!(|a: u32| ((a >> 16 & 255) as f32).to_bits())),
    mixed("v_cvt_f32_ubyte3", F32, [U32, N, N], v1!(|a: u32| ((a >> 24) as f32).to_bits())),
    mixed("v_cvt_f16_f32", F16, [F32, N, N], VFn::Lane(|l| r16(s(l.a).into(), l))),
    mixed("v_cvt_f32_f16", F32, [F16, N, N], v1!(|a: u32| half_to_f32(a & 0xffff).to_bits())),
    mixed("v_cvt_f32_f64", F32, [F64, N, N], VFn::Lane(|l| r32(g(l.a), l.mode.round32()))),
    mixed("v_cvt_f64_f32", F64, [F32, N, N], VFn::Lane(|l| f64::from(s(l.a)).to_bits())),
    mixed("v_cvt_i32_f64", I32, [F64, N, N], VFn::Lane(|l| u64::from(g(l.a) as i32 as u32))),
    mixed("v_cvt_u32_f64", U32, [F64, N, N], VFn::Lane(|l| u64::from(g(l.a) as u32))),
    mixed("v_cvt_f64_i32", F64, [I32, N, N], VFn::Lane(|l| f64::from(l.a as i32).to_bits())),
    mixed("v_cvt_f64_u32", F64, [U32, N, N], VFn::Lane(|l| f64::from(l.a as u32).to_bits())),
    mixed("v_cvt_f16_u16", F16, [U16, N, N], VFn::Lane(|l| r16((l.a as u16).into(), l))),
    mixed("v_cvt_f16_i16", F16, [I16, N, N], VFn::Lane(|l| r16((l.a as i16).into(), l))),
    mixed("v_cvt_u16_f16", U16, [F16, N, N], VFn::Lane(|l| (h(l.a) as u16).into())),
    mixed("v_cvt_i16_f16", I16, [F16, N, N], VFn::Lane(|l| (h(l.a) as i16 as u16).into())),
    mixed("v_cvt_norm_i16_f16", I16, [F16, N, N], VFn::Lane(|l| snorm(h(l.a)))),
    mixed("v_cvt_norm_u16_f16", U16, [F16, N, N], VFn::Lane(|l| unorm(h(l.a)))),
    mixed(
        "v_cvt_pk_rtz_f16_f32",
        Ty::B32,
        [F32, F32, N],
        VFn::Lane(|l| u64::from(to_half(s(l.a).into(), Round::Zero) | to_half(s(l.b).into(), Round::Zero) << 16)),
    ),
    mixed(
        "v_cvt_pk_u8_f32",
        U32,
        [F32, U32, U32],
        VFn::Lane(|l| {
            let shift = 8 * (l.b & 3);
            l.c & 0xffff_ffff & !(255 << shift) | u64::from(s(l.a).round_ties_even() as u8) << shift
        }),
    ),
    mixed(
        "v_cvt_pk_norm_i16_f32",
        Ty::B32,
        [F32, F32, N],
        VFn::Lane(|l| snorm(s(l.a).into()) | snorm(s(l.b).into()) << 16),
    ),
    mixed(
        "v_cvt_pk_norm_u16_f32",
        Ty::B32,
        [F32, F32, N],
        VFn::Lane(|l| unorm(s(l.a).into()) | unorm(s(l.b).into()) << 16),
    ),
    mixed("v_cvt_pk_norm_i16_f16", Ty::B32, [F16, F16, N], VFn::Lane(|l| snorm(h(l.a)) | snorm(h(l.b)) << 16)),
    mixed("v_cvt_pk_norm_u16_f16", Ty::B32, [F16, F16, N], VFn::Lane(|l| unorm(h(l.a)) | unorm(h(l.b)) << 16)),
    mixed(
        "v_cvt_pk_i16_f32",
        Ty::B32,
        [F32, F32, N],
        VFn::Lane(|l| u64::from(s(l.a) as i16 as u16) | u64::from(s(l.b) as i16 as u16) << 16),
    ),
    mixed(
        "v_cvt_pk_u16_f32",
        Ty::B32,
        [F32, F32, N],
        VFn::Lane(|l| u64::from(s(l.a) as u16) | u64::from(s(l.b) as u16) << 16),
    ),
];

/// fp8 conversions with this chip's two formats (gfx942: FNUZ, gfx12: OCP).
macro_rules! fp8_rows {
    ($name:ident, $e4m3:expr, $e5m2:expr) => {
        pub(super) static $name: &[VSem] = &[
            mixed("v_cvt_f32_fp8", F32, [Ty::B32, N, N], VFn::Lane(|l| bits($e4m3.widen(l.a as u32 & 255) as f32))),
            mixed("v_cvt_f32_bf8", F32, [Ty::B32, N, N], VFn::Lane(|l| bits($e5m2.widen(l.a as u32 & 255) as f32))),
            mixed("v_cvt_pk_f32_fp8", Ty::B64, [Ty::B16, N, N], VFn::Lane(|l| pair($e4m3, l.a))),
            mixed("v_cvt_pk_f32_bf8", Ty::B64, [Ty::B16, N, N], VFn::Lane(|l| pair($e5m2, l.a))),
            mixed("v_cvt_pk_fp8_f32", Ty::B16, [F32, F32, N], VFn::Lane(|l| pack8($e4m3, l))),
            mixed("v_cvt_pk_bf8_f32", Ty::B16, [F32, F32, N], VFn::Lane(|l| pack8($e5m2, l))),
        ];
    };
}

fp8_rows!(FP8_FNUZ, float::E4M3_FNUZ, float::E5M2_FNUZ);
fp8_rows!(FP8_OCP, float::E4M3, float::E5M2);

/// The two fp8 formats of a chip: E4M3 and E5M2.
pub(super) fn fp8_formats(fnuz: bool) -> (Small, Small) {
    if fnuz { (float::E4M3_FNUZ, float::E5M2_FNUZ) } else { (float::E4M3, float::E5M2) }
}

fn pair(format: Small, v: u64) -> u64 {
    bits(format.widen(v as u32 & 255) as f32) | bits(format.widen(v as u32 >> 8 & 255) as f32) << 32
}

fn pack8(format: Small, l: &Lane) -> u64 {
    let one = |v: u64| u64::from(format.narrow(s(v).into(), Round::Nearest, false));
    one(l.a) | one(l.b) << 8
}

fn bits(v: f32) -> u64 {
    v.to_bits().into()
}

fn revolutions(x: f64) -> f64 {
    // The fraction first: the argument is in revolutions, and exact there.
    x.fract() * std::f64::consts::TAU
}

fn med3(a: f64, b: f64, c: f64) -> f64 {
    if a.is_nan() || b.is_nan() || c.is_nan() {
        return min64(min64(a, b), c);
    }
    max64(min64(a, b), min64(max64(a, b), c))
}

fn pick16(a: u64, b: u64, pick: fn(f64, f64) -> f64) -> u64 {
    to_half(pick(h(a), h(b)), Round::Nearest).into()
}

/// Exponent of frexp; 0 for zero, infinity and NaN.
fn frexp_exp(v: f64) -> u64 {
    u64::from(frexp64(v).1 as u32)
}

/// x * 2^e for values of narrower formats: exact in a double or far beyond their range.
fn scaled(x: f64, e: i32) -> f64 {
    x * float::pow2(e.clamp(-500, 500))
}

fn snorm(v: f64) -> u64 {
    let v = if v.is_nan() { 0.0 } else { (v.clamp(-1.0, 1.0) * 32767.0).round_ties_even() };
    (v as i16 as u16).into()
}

fn unorm(v: f64) -> u64 {
    let v = if v.is_nan() { 0.0 } else { (v.clamp(0.0, 1.0) * 65535.0).round_ties_even() };
    (v as u16).into()
}

/// Corrects the result of a division at the ends of the range: quotient, denominator, numerator; `deepest` is the
/// exponent difference below which every quotient rounds to zero.
fn fixup(q: f64, d: f64, n: f64, deepest: Option<i32>) -> f64 {
    let negative = d.is_sign_negative() != n.is_sign_negative();
    let signed = |v: f64| if negative { -v } else { v };
    if n.is_nan() || d.is_nan() {
        return n + d;
    }
    if (d == 0.0 && n == 0.0) || (d.is_infinite() && n.is_infinite()) {
        return f64::NAN.copysign(-1.0);
    }
    if d == 0.0 || n.is_infinite() {
        return signed(f64::INFINITY);
    }
    if d.is_infinite() || n == 0.0 {
        return signed(0.0);
    }
    if deepest.is_some_and(|deep| frexp64(n).1 - frexp64(d).1 < -deep) {
        return signed(0.0);
    }
    // The refinement overflowed: the quotient does too.
    signed(if q.is_nan() { f64::INFINITY } else { q.abs() })
}

/// 53-bit window of 2/pi for argument reduction, positioned by the argument's exponent and a segment.
fn trig_preop(x: f64, segment: u32) -> f64 {
    const TWO_OVER_PI: [u64; 20] = [
        0xa2f9_836e_4e44_1529,
        0xfc27_57d1_f534_ddc0,
        0xdb62_9599_3c43_9041,
        0xfe51_63ab_debb_c561,
        0xb724_6e3a_424d_d2e0,
        0x0649_2eea_09d1_921c,
        0xfe1d_eb1c_b129_a73e,
        0xe882_35f5_2ebb_4484,
        0xe99c_7026_b45f_7e41,
        0x3991_d639_8353_39f4,
        0x9c84_5f8b_bdf9_283b,
        0x1ff8_97ff_de05_980f,
        0xef2f_118b_5a0a_6d1f,
        0x6d36_7ecf_27cb_09b7,
        0x4f46_3f66_9e5f_ea2d,
        0x7527_bac7_ebe5_f17b,
        0x3d07_39f7_8a52_92ea,
        0x6bfb_5fb1_1f8d_5d08,
        0x5603_3046_fc7b_6bab,
        0xf0cf_bc20_9af4_361d,
    ];
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32;
    let shift = ((segment & 31) * 53) as i32 + (exponent - 1077).max(0);
    let bit = |n: i32| u64::from(TWO_OVER_PI.get((n / 64) as usize).is_some_and(|w| w >> (63 - n % 64) & 1 == 1));
    let mantissa = (0..53).fold(0u64, |m, n| m << 1 | bit(shift + n));
    let mut scale = -53 - shift;
    if exponent >= 1968 {
        scale += 128;
    }
    ldexp64(mantissa as f64, scale)
}

/// Cube-map face, face coordinates and major axis.
fn cube(l: &Lane) -> (f32, f32, f32, f32) {
    let (x, y, z) = (s(l.a), s(l.b), s(l.c));
    if z.abs() >= x.abs() && z.abs() >= y.abs() {
        (if z < 0.0 { 5.0 } else { 4.0 }, if z < 0.0 { -x } else { x }, -y, 2.0 * z)
    } else if y.abs() >= x.abs() {
        (if y < 0.0 { 3.0 } else { 2.0 }, x, if y < 0.0 { -z } else { z }, 2.0 * y)
    } else {
        (if x < 0.0 { 1.0 } else { 0.0 }, if x < 0.0 { z } else { -z }, -y, 2.0 * x)
    }
}

fn mullit(a: f32, b: f32, c: f32) -> f32 {
    let refused = b == -f32::MAX || b == f32::NEG_INFINITY || b.is_nan() || c <= 0.0 || c.is_nan();
    if refused {
        -f32::MAX
    } else if a == 0.0 || b == 0.0 {
        0.0
    } else {
        a * b
    }
}
