//! Which row of the instruction table an operation is: one line an op and type.

use super::form::Row;
use super::rows::*;
use doorbell_uop::{Op, Scalar};

/// Row of each element size (1, 2, 4, 8 bytes).
type BySize = [Option<Row>; 4];

fn by_size(rows: BySize, t: Scalar) -> Option<Row> {
    rows[t.size_bytes().trailing_zeros() as usize & 3]
}

/// Packed operation `dst = a op b` on a vector type.
pub(crate) fn packed(op: Op, t: Scalar) -> Option<Row> {
    use Scalar::{F32, F64};
    let some = |a, b, c, d| [Some(a), Some(b), Some(c), Some(d)];
    match (op, t) {
        (Op::Add, F32) => Some(VADDPS),
        (Op::Add, F64) => Some(VADDPD),
        (Op::Sub, F32) => Some(VSUBPS),
        (Op::Sub, F64) => Some(VSUBPD),
        (Op::Mul, F32) => Some(VMULPS),
        (Op::Mul, F64) => Some(VMULPD),
        (Op::FDiv, F32) => Some(VDIVPS),
        (Op::FDiv, F64) => Some(VDIVPD),
        (Op::Ldexp, F32) => Some(VSCALEFPS),
        (Op::Ldexp, F64) => Some(VSCALEFPD),
        (Op::Max, F32) => Some(VMAXPS),
        (Op::Max, F64) => Some(VMAXPD),
        (_, t) if t.is_float() => None,
        (Op::Add, _) => by_size(some(VPADDB, VPADDW, VPADDD, VPADDQ), t),
        (Op::Sub, _) => by_size(some(VPSUBB, VPSUBW, VPSUBD, VPSUBQ), t),
        (Op::Mul, _) => by_size([None, Some(VPMULLW), Some(VPMULLD), Some(VPMULLQ)], t),
        (Op::Max, _) if t.is_unsigned() => by_size(some(VPMAXUB, VPMAXUW, VPMAXUD, VPMAXUQ), t),
        (Op::Max, _) => by_size(some(VPMAXSB, VPMAXSW, VPMAXSD, VPMAXSQ), t),
        (Op::And, _) => Some(VPAND),
        (Op::Or, _) => Some(VPOR),
        (Op::Xor, _) => Some(VPXOR),
        (Op::Shl, _) => by_size([None, Some(VPSLLVW), Some(VPSLLVD), Some(VPSLLVQ)], t),
        (Op::Shr, _) if t.is_unsigned() => by_size([None, Some(VPSRLVW), Some(VPSRLVD), Some(VPSRLVQ)], t),
        (Op::Shr, _) => by_size([None, Some(VPSRAVW), Some(VPSRAVD), Some(VPSRAVQ)], t),
        _ => None,
    }
}

/// Packed minimum.
pub(crate) fn minimum(t: Scalar) -> Option<Row> {
    match t {
        Scalar::F32 => Some(VMINPS),
        Scalar::F64 => Some(VMINPD),
        Scalar::F16 | Scalar::BF16 => None,
        t if t.is_unsigned() => by_size([Some(VPMINUB), Some(VPMINUW), Some(VPMINUD), Some(VPMINUQ)], t),
        t => by_size([Some(VPMINSB), Some(VPMINSW), Some(VPMINSD), Some(VPMINSQ)], t),
    }
}

/// Shift of a vector by an immediate.
pub(crate) fn shift_imm(op: Op, t: Scalar) -> Option<Row> {
    match (op, t.is_unsigned()) {
        (Op::Shl, _) => by_size([None, Some(VPSLLWI), Some(VPSLLDI), Some(VPSLLQI)], t),
        (Op::Shr, true) => by_size([None, Some(VPSRLWI), Some(VPSRLDI), Some(VPSRLQI)], t),
        (Op::Shr, false) => by_size([None, Some(VPSRAWI), Some(VPSRADI), Some(VPSRAQI)], t),
        _ => None,
    }
}

/// Operation on one float in an xmm register.
pub(crate) fn single(op: Op, t: Scalar) -> Option<Row> {
    use Scalar::{F32, F64};
    match (op, t) {
        (Op::Add, F32) => Some(VADDSS),
        (Op::Add, F64) => Some(VADDSD),
        (Op::Sub, F32) => Some(VSUBSS),
        (Op::Sub, F64) => Some(VSUBSD),
        (Op::Mul, F32) => Some(VMULSS),
        (Op::Mul, F64) => Some(VMULSD),
        (Op::FDiv, F32) => Some(VDIVSS),
        (Op::FDiv, F64) => Some(VDIVSD),
        (Op::Ldexp, F32) => Some(VSCALEFSS),
        (Op::Ldexp, F64) => Some(VSCALEFSD),
        (Op::Max, F32) => Some(VMAXSS),
        (Op::Max, F64) => Some(VMAXSD),
        _ => None,
    }
}

/// The row for a float operation on one lane or on all.
pub(crate) fn float(op: Op, t: Scalar, one: bool) -> Option<Row> {
    if one { single(op, t) } else { packed(op, t) }
}

/// Square root: packed, single.
pub(crate) fn sqrt(t: Scalar, one: bool) -> Row {
    match (t, one) {
        (Scalar::F64, false) => VSQRTPD,
        (Scalar::F64, true) => VSQRTSD,
        (_, false) => VSQRTPS,
        (_, true) => VSQRTSS,
    }
}

/// Rounding by immediate: packed, single.
pub(crate) fn round(t: Scalar, one: bool) -> Row {
    match (t, one) {
        (Scalar::F64, false) => VROUNDPD,
        (Scalar::F64, true) => VROUNDSD,
        (_, false) => VROUNDPS,
        (_, true) => VROUNDSS,
    }
}

/// `c += a * b` and `a = a * b + c`.
pub(crate) fn fma(t: Scalar, one: bool) -> (Row, Row) {
    match (t, one) {
        (Scalar::F64, false) => (VFMADD231PD, VFMADD213PD),
        (Scalar::F64, true) => (VFMADD231SD, VFMADD213SD),
        (_, false) => (VFMADD231PS, VFMADD213PS),
        (_, true) => (VFMADD231SS, VFMADD213SS),
    }
}

/// Float comparison by predicate: packed, single.
pub(crate) fn compare_float(t: Scalar, one: bool) -> Row {
    match (t, one) {
        (Scalar::F64, false) => VCMPPD,
        (Scalar::F64, true) => VCMPSD,
        (_, false) => VCMPPS,
        (_, true) => VCMPSS,
    }
}

/// Predicate of a float comparison: ordered and quiet for < and =, unordered for ≠.
pub(crate) fn float_predicate(op: Op) -> i64 {
    match op {
        Op::CmpLt => 17,
        Op::CmpEq => 0,
        _ => 4,
    }
}

/// AVX-512 integer comparison into a mask, by predicate (1 less, 0 equal, 4 not equal).
pub(crate) fn compare_int(t: Scalar) -> Option<Row> {
    if t.is_unsigned() || t == Scalar::Bool {
        by_size([Some(VPCMPUB), Some(VPCMPUW), Some(VPCMPUD), Some(VPCMPUQ)], t)
    } else {
        by_size([Some(VPCMPB), Some(VPCMPW), Some(VPCMPD), Some(VPCMPQ)], t)
    }
}

/// Rows by element size in bytes.
pub(crate) fn sized(bytes: u16, rows: [Row; 4]) -> Row {
    rows[bytes.trailing_zeros() as usize & 3]
}

/// Widening of integers.
pub(crate) fn widen(from: Scalar, to: Scalar) -> Option<Row> {
    let signed = from.is_signed();
    let pick = |s, u| Some(if signed { s } else { u });
    match (from.size_bytes(), to.size_bytes()) {
        (1, 2) => pick(VPMOVSXBW, VPMOVZXBW),
        (1, 4) => pick(VPMOVSXBD, VPMOVZXBD),
        (1, 8) => pick(VPMOVSXBQ, VPMOVZXBQ),
        (2, 4) => pick(VPMOVSXWD, VPMOVZXWD),
        (2, 8) => pick(VPMOVSXWQ, VPMOVZXWQ),
        (4, 8) => pick(VPMOVSXDQ, VPMOVZXDQ),
        _ => None,
    }
}

/// Narrowing of integers (AVX-512).
pub(crate) fn narrow(from: Scalar, to: Scalar) -> Option<Row> {
    match (from.size_bytes(), to.size_bytes()) {
        (2, 1) => Some(VPMOVWB),
        (4, 1) => Some(VPMOVDB),
        (8, 1) => Some(VPMOVQB),
        (4, 2) => Some(VPMOVDW),
        (8, 2) => Some(VPMOVQW),
        (8, 4) => Some(VPMOVQD),
        _ => None,
    }
}

/// Conversions that one instruction does (AVX2 where it has them).
pub(crate) fn convert(from: Scalar, to: Scalar) -> Option<Row> {
    use Scalar::*;
    Some(match (from, to) {
        (I32, F32) => VCVTDQ2PS,
        (I32, F64) => VCVTDQ2PD,
        (U32, F32) => VCVTUDQ2PS,
        (U32, F64) => VCVTUDQ2PD,
        (I64, F32) => VCVTQQ2PS,
        (U64, F32) => VCVTUQQ2PS,
        (I64, F64) => VCVTQQ2PD,
        (U64, F64) => VCVTUQQ2PD,
        (F32, I32) => VCVTTPS2DQ,
        (F64, I32) => VCVTTPD2DQ,
        (F32, U32) => VCVTTPS2UDQ,
        (F64, U32) => VCVTTPD2UDQ,
        (F32, I64) => VCVTTPS2QQ,
        (F32, U64) => VCVTTPS2UQQ,
        (F64, I64) => VCVTTPD2QQ,
        (F64, U64) => VCVTTPD2UQQ,
        (F32, F64) => VCVTPS2PD,
        (F64, F32) => VCVTPD2PS,
        (F16, F32) => VCVTPH2PS,
        _ => return None,
    })
}
