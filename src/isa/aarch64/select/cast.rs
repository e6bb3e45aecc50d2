//! Conversions between types, on scalars and vectors.
//!
//! A vector conversion is a route of steps that one instruction (or a short sequence) does, each on as many lanes as
//! fit a register in the widest intermediate type. Floats become 64-bit integers (saturated; NaN is 0) and these are
//! cut to the type, but for 32-bit and smaller signed results from f32, which saturate at 32 bits.

use super::super::IselError;
use super::super::mir::Cond;
use super::super::rows;
use super::vector::precision;
use super::{Regs, Res, Select, Shape, Val, log, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{Arg, ConstVal, DType, Op, Scalar, UOp, to_bits};
use smallvec::{SmallVec, smallvec};

use Scalar::*;

fn is_half(t: Scalar) -> bool {
    matches!(t, F16 | BF16)
}

/// The intermediate types from one to another.
fn route(from: Scalar, to: Scalar) -> SmallVec<[Scalar; 6]> {
    let mut steps: SmallVec<[Scalar; 6]> = smallvec![from];
    if is_half(from) {
        steps.push(F32);
    }
    if from.is_int() && to.is_float() {
        // Halves are made from f64, whose step to f32 then rounds to odd, so that only the last step rounds.
        steps.extend_from_slice(match (from.size_bytes(), to) {
            (1 | 2, F32) => &[I32][..],
            (1 | 2 | 4, _) if from.is_signed() && to != F32 => &[I64, F64],
            (1 | 2 | 4, _) if to != F32 => &[U64, F64],
            (8, F16 | BF16) => &[F64],
            _ => &[],
        });
    }
    if from.is_float() && to.is_int() {
        match to {
            I8 | I16 | I32 if from != F64 => steps.push(I32),
            U64 => steps.extend([F64, U64]),
            _ => steps.extend([F64, I64]),
        }
    }
    if is_half(to) {
        steps.push(F32);
    }
    steps.push(to);
    steps.dedup();
    steps
}

impl Select<'_> {
    pub(super) fn cast(&mut self, u: &UOp) -> Res<Val> {
        let (s, to) = (&u.src()[0], u.dtype());
        let from = s.dtype();
        let mut v = self.val(s)?;
        if super::aliased(s) && from.scalar.size_bytes() == to.scalar.size_bytes() {
            // The value must not follow the register's later changes.
            v = self.fresh(v);
        }
        let (f, t) = (from.scalar, to.scalar);
        Ok(match v {
            Val::M(..) if t == Bool => v,
            Val::M(..) => {
                let one = if t.is_float() { ConstVal::Float(1.0) } else { ConstVal::Int(1) };
                Val::V(self.mask_to(v, to, to_bits(one, t))?)
            }
            Val::G(r) if t == Bool => {
                let r = self.extend(r, f, false);
                Val::G(if f == Bool { r } else { self.nonzero(r, f.size_bytes() == 8) })
            }
            Val::G(r) if t.is_float() => Val::V(smallvec![self.int_to_float(r, f, t)?]),
            // Narrowing needs no code: bits beyond the width are undefined.
            Val::G(r) if t.size_bytes() <= f.size_bytes() => Val::G(r),
            Val::G(r) => Val::G(self.extend(r, f, t.size_bytes() == 8)),
            Val::V(rs) if t == Bool => self.bools_of(rs, from)?,
            Val::V(rs) if to.lanes == 1 && !t.is_float() => Val::G(self.float_to_int(rs[0], f, t)?),
            Val::V(rs) => Val::V(self.convert(rs, f, t, to.lanes)?),
        })
    }

    fn bools_of(&mut self, mut rs: Regs, mut from: DType) -> Res<Val> {
        if is_half(from.scalar) {
            rs = self.convert(rs, from.scalar, F32, from.lanes)?;
            from = from.with_scalar(F32);
        }
        if !from.is_float() {
            return Ok(self.mask_from(&rs, from));
        }
        let zero = UOp::constant(from, 0.0);
        let stand = UOp::new(Op::Special, from, [], Arg::Str("converted".into()));
        self.bind(&stand, Val::V(rs));
        self.compare_vector(&UOp::alu(Op::CmpNe, [stand, zero]))
    }

    // --- scalars between general and vector registers ---

    fn int_to_float(&mut self, r: VReg, f: Scalar, t: Scalar) -> Res<VReg> {
        let via = if t == F32 { F32 } else { F64 };
        let r = self.extend(r, f, true);
        let rows = if f == U64 { &rows::UCVTF_X } else { &rows::SCVTF_X };
        let x = self.v(&rows[precision(via)], &[r], &[]);
        Ok(self.convert(smallvec![x], via, t, 1)?[0])
    }

    fn float_to_int(&mut self, x: VReg, f: Scalar, t: Scalar) -> Res<VReg> {
        let (x, f) = if is_half(f) { (self.convert(smallvec![x], f, F32, 1)?[0], F32) } else { (x, f) };
        let p = precision(f);
        let signed = self.g(&rows::FCVTZS_X[p], &[x], &[]);
        if t != U64 {
            return Ok(signed);
        }
        // A negative number's signed conversion, else the unsigned one.
        let unsigned = self.g(&rows::FCVTZU_X[p], &[x], &[]);
        let zero = self.const_gpr(0);
        self.compare(signed, zero, true);
        Ok(self.csel(Cond::Lt, signed, unsigned))
    }

    // --- vectors ---

    /// Converts all lanes of a vector (or one float).
    pub(super) fn convert(&mut self, regs: Regs, from: Scalar, to: Scalar, lanes: u16) -> Res<Regs> {
        if from == to || (from.is_int() && to.is_int() && from.size_bytes() == to.size_bytes()) {
            return Ok(regs);
        }
        let steps = route(from, to);
        let widest = steps.iter().map(|t| t.size_bytes() as u16).max().unwrap_or(8);
        let step = lanes.min(super::VECTOR_BYTES / widest);
        let (a, b) = (from.size_bytes() as u16, to.size_bytes() as u16);
        let mut pieces = self.pieces(&regs, Shape::new(a, lanes), step);
        for pair in steps.windows(2) {
            for p in &mut pieces {
                *p = self.step(*p, (pair[0], pair[1]), is_half(to))?;
            }
        }
        self.join(&pieces, step, Shape::new(b, lanes))
    }

    /// One step of a conversion, on lanes that fit one register in either type. `half`: a half type is the goal.
    fn step(&mut self, r: VReg, (f, t): (Scalar, Scalar), half: bool) -> Res<VReg> {
        if f.is_int() && t.is_int() {
            return Ok(self.resize(r, f, t));
        }
        let row = match (f, t) {
            (F16, F32) => &rows::FCVTL[0],
            (F32, F64) => &rows::FCVTL[1],
            (F32, F16) => &rows::FCVTN[0],
            (F64, F32) if half => &rows::FCVTXN,
            (F64, F32) => &rows::FCVTN[1],
            (I32, F32) => &rows::SCVTF[0],
            (U32, F32) => &rows::UCVTF[0],
            (I64, F64) => &rows::SCVTF[1],
            (U64, F64) => &rows::UCVTF[1],
            (F32, I32) => &rows::FCVTZS[0],
            (F64, I64) => &rows::FCVTZS[1],
            (F64, U64) => return Ok(self.doublewords_of(r)),
            (I64 | U64, F32) => return Ok(self.floats_of_doublewords(r, f)),
            (BF16, F32) => {
                let wide = self.v(&rows::USHLL[1], &[r], &[0]);
                return Ok(self.v(&rows::SHL[2], &[wide], &[16]));
            }
            (F32, BF16) => return Ok(self.bf16_of(r)),
            _ => return Err(IselError::Unsupported { op: Op::Cast, dtype: DType::of(t), why: "no conversion" }),
        };
        Ok(self.v(row, &[r], &[]))
    }

    /// Integer lanes widened or cut, by doubling or halving.
    fn resize(&mut self, mut r: VReg, f: Scalar, t: Scalar) -> VReg {
        let (from, to) = (log(f.size_bytes() as u16), log(t.size_bytes() as u16));
        let widen = if f.is_signed() { &rows::SSHLL } else { &rows::USHLL };
        for row in widen.iter().take(to).skip(from) {
            r = self.v(row, &[r], &[0]);
        }
        for row in rows::XTN.iter().take(from).skip(to).rev() {
            r = self.v(row, &[r], &[]);
        }
        r
    }

    /// f64 to u64; below zero as to i64.
    fn doublewords_of(&mut self, r: VReg) -> VReg {
        let signed = self.v(&rows::FCVTZS[1], &[r], &[]);
        let unsigned = self.v(&rows::FCVTZU[1], &[r], &[]);
        let negative = self.v(&rows::CMLT_0[3], &[signed], &[]);
        self.blend(negative, signed, unsigned)
    }

    /// 64-bit integers to f32 with one rounding: lane by lane.
    fn floats_of_doublewords(&mut self, r: VReg, f: Scalar) -> VReg {
        let rows = if f == U64 { &rows::UCVTF_X } else { &rows::SCVTF_X };
        let lanes: SmallVec<[VReg; 2]> = (0..2)
            .map(|k| {
                let g = self.g(&rows::UMOV[3], &[r], &[k]);
                self.v(&rows[0], &[g], &[])
            })
            .collect();
        self.v(&rows::ZIP1[2], &[lanes[0], lanes[1]], &[])
    }

    /// Rounds f32 to bf16 (nearest, ties to even; NaN stays NaN), 16-bit lanes packed.
    fn bf16_of(&mut self, r: VReg) -> VReg {
        let high = self.v(&rows::USHR[2], &[r], &[16]);
        let one = self.const_vec(1, 4);
        let odd = self.v(&rows::AND_V, &[high, one], &[]);
        let bias = self.const_vec(0x7fff, 4);
        let odd = self.v(&rows::ADD_V[2], &[odd, bias], &[]);
        let sum = self.v(&rows::ADD_V[2], &[r, odd], &[]);
        let rounded = self.v(&rows::USHR[2], &[sum], &[16]);
        let quiet = self.const_vec(0x40, 4);
        let nan = self.v(&rows::ORR_V, &[high, quiet], &[]);
        let number = self.v(&rows::FCMEQ[0], &[r, r], &[]);
        let x = self.blend(number, rounded, nan);
        self.v(&rows::XTN[1], &[x], &[])
    }

    pub(super) fn bitcast(&mut self, u: &UOp) -> Res<Val> {
        let (s, to) = (&u.src()[0], u.dtype());
        let from = s.dtype();
        if from.scalar.size_bytes() * from.lanes as usize != to.scalar.size_bytes() * to.lanes as usize {
            return Err(unsupported(u, "sizes differ"));
        }
        let mut v = self.val(s)?;
        if super::aliased(s) {
            v = self.fresh(v);
        }
        Ok(match v {
            Val::G(r) if to.is_float() || to.lanes > 1 => Val::V(smallvec![self.vec_of_int(r)]),
            Val::V(r) if to.lanes == 1 && !to.is_float() => Val::G(self.g(&rows::FMOV_XD, &[r[0]], &[])),
            Val::M(..) => Val::V(self.mask_to(v, from.with_scalar(U8), 1)?),
            Val::V(r) if to.scalar == Bool => self.mask_from(&r, to.with_scalar(U8)),
            v => v,
        })
    }
}
