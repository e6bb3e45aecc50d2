//! Names to semantics: which function executes a row, found by the instruction's name (older chips' names are aliases).

use super::Chip;
use super::cross::Cross;
use super::lanes::VSem;
use super::matrix::Matrix;
use super::memory::MemOp;
use super::packed::Packed;
use super::rows::Format;
use super::sem_compare::Compare;
use super::sem_scalar::Scalar;
use super::{control::Control, sem_compare, sem_float, sem_int, sem_scalar};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Where the third source of a multiply-add comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// The destination is the addend.
    Acc,
    /// `a * K + b`.
    Mk,
    /// `a * b + K`.
    Ak,
}

/// What executes an instruction.
#[derive(Clone, Copy)]
pub(super) enum Sem {
    Unmodelled,
    Scalar(&'static Scalar),
    ScalarCompare(u8, bool),
    Control(Control),
    Vector(&'static VSem, Form),
    Compare(Compare),
    Cross(Cross),
    Packed(Packed),
    Matrix(Matrix),
    Memory(MemOp),
}

/// Older (gfx942) and newer (gfx12) names of what RDNA3 calls otherwise.
const ALIASES: &[(&str, &str)] = &[
    ("s_ff1_i32_b32", "s_ctz_i32_b32"),
    ("s_ff1_i32_b64", "s_ctz_i32_b64"),
    ("s_flbit_i32_b32", "s_clz_i32_u32"),
    ("s_flbit_i32_b64", "s_clz_i32_u64"),
    ("s_flbit_i32", "s_cls_i32"),
    ("s_flbit_i32_i64", "s_cls_i32_i64"),
    ("s_andn2_b32", "s_and_not1_b32"),
    ("s_andn2_b64", "s_and_not1_b64"),
    ("s_orn2_b32", "s_or_not1_b32"),
    ("s_orn2_b64", "s_or_not1_b64"),
    ("s_andn2_saveexec_b64", "s_and_not1_saveexec_b64"),
    ("s_andn1_saveexec_b64", "s_and_not0_saveexec_b64"),
    ("s_orn2_saveexec_b64", "s_or_not1_saveexec_b64"),
    ("s_orn1_saveexec_b64", "s_or_not0_saveexec_b64"),
    ("s_andn2_wrexec_b64", "s_and_not1_wrexec_b64"),
    ("s_andn1_wrexec_b64", "s_and_not0_wrexec_b64"),
    ("s_add_co_u32", "s_add_u32"),
    ("s_sub_co_u32", "s_sub_u32"),
    ("s_add_co_ci_u32", "s_addc_u32"),
    ("s_sub_co_ci_u32", "s_subb_u32"),
    ("s_add_co_i32", "s_add_i32"),
    ("s_sub_co_i32", "s_sub_i32"),
    ("s_addk_co_i32", "s_addk_i32"),
    ("v_ffbh_u32", "v_clz_i32_u32"),
    ("v_ffbl_b32", "v_ctz_i32_b32"),
    ("v_ffbh_i32", "v_cls_i32"),
    ("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"),
    ("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"),
    ("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"),
    ("v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32"),
    ("v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32"),
    ("v_cvt_pknorm_i16_f16", "v_cvt_pk_norm_i16_f16"),
    ("v_cvt_pknorm_u16_f16", "v_cvt_pk_norm_u16_f16"),
    ("v_add_u32", "v_add_nc_u32"),
    ("v_sub_u32", "v_sub_nc_u32"),
    ("v_subrev_u32", "v_subrev_nc_u32"),
    ("v_add_i32", "v_add_nc_i32"),
    ("v_sub_i32", "v_sub_nc_i32"),
    ("v_add_u16", "v_add_nc_u16"),
    ("v_sub_u16", "v_sub_nc_u16"),
    ("v_add_i16", "v_add_nc_i16"),
    ("v_sub_i16", "v_sub_nc_i16"),
    ("v_addc_co_u32", "v_add_co_ci_u32"),
    ("v_subb_co_u32", "v_sub_co_ci_u32"),
    ("v_subbrev_co_u32", "v_subrev_co_ci_u32"),
    ("v_mad_co_u64_u32", "v_mad_u64_u32"),
    ("v_mad_co_i64_i32", "v_mad_i64_i32"),
    ("v_mul_legacy_f32", "v_mul_dx9_zero_f32"),
    ("v_fma_legacy_f32", "v_fma_dx9_zero_f32"),
    ("v_mul_lo_i32", "v_mul_lo_u32"),
    ("v_exp_legacy_f32", "v_exp_f32"),
    ("v_log_legacy_f32", "v_log_f32"),
    ("v_mad_legacy_u16", "v_mad_u16"),
    ("v_mad_legacy_i16", "v_mad_i16"),
    ("v_mad_mix_f32", "v_fma_mix_f32"),
    ("v_mad_mixlo_f16", "v_fma_mixlo_f16"),
    ("v_mad_mixhi_f16", "v_fma_mixhi_f16"),
    ("v_dual_dot2acc_f32_f16", "v_dot2acc_f32_f16"),
];

/// Multiply-adds that are another instruction's arithmetic with the operands elsewhere.
const FORMS: &[(&str, &str, Form)] = &[
    ("v_fmac_f32", "v_fma_f32", Form::Acc),
    ("v_fmamk_f32", "v_fma_f32", Form::Mk),
    ("v_fmaak_f32", "v_fma_f32", Form::Ak),
    ("v_fmac_f16", "v_fma_f16", Form::Acc),
    ("v_fmamk_f16", "v_fma_f16", Form::Mk),
    ("v_fmaak_f16", "v_fma_f16", Form::Ak),
    ("v_fmac_f64", "v_fma_f64", Form::Acc),
    ("v_fmac_dx9_zero_f32", "v_fma_dx9_zero_f32", Form::Acc),
];

/// A name without encoding suffix, alias resolved, `num` of gfx12's float minima dropped.
pub(super) fn canonical(name: &str) -> String {
    let name = name.strip_suffix("_e32").or_else(|| name.strip_suffix("_e64")).unwrap_or(name);
    let name = match name.strip_prefix("v_dual_") {
        Some(rest) => format!("v_{rest}"),
        None => name.replace("_num_", "_"),
    };
    let name = if name.starts_with("v_dot2acc") { name } else { name.replace("_num_", "_") };
    ALIASES.iter().find(|(from, _)| *from == name).map_or(name, |(_, to)| (*to).to_owned())
}

fn vectors() -> &'static HashMap<&'static str, &'static VSem> {
    static MAP: OnceLock<HashMap<&'static str, &'static VSem>> = OnceLock::new();
    MAP.get_or_init(|| {
        let tables = [
            sem_int::ROWS32,
            sem_int::ROWS16,
            sem_int::ROWS64,
            sem_float::ROWS32,
            sem_float::ROWS16,
            sem_float::ROWS64,
            sem_float::CONVERT,
        ];
        tables.iter().flat_map(|t| t.iter()).map(|s| (s.name, s)).collect()
    })
}

/// The arithmetic of a vector instruction by its canonical name.
pub(super) fn vector(name: &str) -> Option<&'static VSem> {
    vectors().get(name).copied()
}

fn vector_of(chip: Chip, name: &str) -> Option<Sem> {
    if let Some((_, base, form)) = FORMS.iter().find(|(n, ..)| *n == name) {
        return Some(Sem::Vector(vector(base)?, *form));
    }
    let fp8 = match chip {
        Chip::Gfx942 => sem_float::FP8_FNUZ,
        _ => sem_float::FP8_OCP,
    };
    let found = vector(name).or_else(|| fp8.iter().find(|s| s.name == name))?;
    Some(Sem::Vector(found, Form::Plain))
}

fn scalar(name: &str) -> Option<Sem> {
    if let Some(found) = sem_scalar::ROWS.iter().find(|s| s.name == name) {
        return Some(Sem::Scalar(found));
    }
    sem_scalar::float_compare(name).map(|(accept, half)| Sem::ScalarCompare(accept, half))
}

/// What executes the row, if anything does.
pub(super) fn meaning(chip: Chip, format: Format, name: &str, widths: [u8; 4]) -> Sem {
    let plain = canonical(name);
    let found = match format {
        Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk | Format::Sopp => {
            scalar(&plain).or_else(|| Control::find(chip, &plain).map(Sem::Control))
        }
        Format::Smem | Format::Ds | Format::Flat | Format::Global | Format::Scratch | Format::Mubuf => {
            MemOp::find(chip, format, &plain, widths).map(Sem::Memory)
        }
        _ => Cross::find(&plain)
            .map(Sem::Cross)
            .or_else(|| Packed::find(chip, format, &plain).map(Sem::Packed))
            .or_else(|| sem_compare::find(&plain).map(Sem::Compare))
            .or_else(|| vector_of(chip, &plain))
            .or_else(|| Matrix::find(chip, &plain).map(Sem::Matrix)),
    };
    found.unwrap_or(Sem::Unmodelled)
}
