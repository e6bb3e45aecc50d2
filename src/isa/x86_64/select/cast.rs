//! Conversions between types, on scalars and vectors.
//!
//! A vector conversion is a route of steps that one instruction (or a short sequence) does, each on as many lanes as
//! fit a register in the widest intermediate type. Out of range floats give the instruction's result; integers wrap.

use super::super::form::{Row, Width};
use super::super::gpr::{self, Cond};
use super::super::mir::{self, Inst};
use super::super::ops;
use super::super::rows::*;
use super::{In, Regs, Res, Select, Shape, Val, unsupported};
use doorbell_codegen::regalloc::{Flow, VReg};
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp, to_bits};
use iced_x86::Code;
use smallvec::{SmallVec, smallvec};

use Scalar::*;

/// The intermediate types from one to another.
fn route(from: Scalar, to: Scalar) -> SmallVec<[Scalar; 5]> {
    let small = |t: Scalar| matches!(t, I8 | U8 | I16 | U16);
    let half = |t: Scalar| matches!(t, F16 | BF16);
    let mut steps: SmallVec<[Scalar; 5]> = smallvec![from];
    if from.is_int() && to.is_float() && small(from) {
        steps.push(I32);
    }
    if half(from) && to != from && to != F32 {
        steps.push(F32);
    }
    if half(to) && from != F32 && from != to {
        steps.push(F32);
    }
    if from.is_float() && small(to) {
        steps.push(I32);
    }
    steps.push(to);
    steps.dedup();
    steps
}

impl Select<'_> {
    pub(super) fn cast(&mut self, u: &UOp) -> Res<Val> {
        let (s, to) = (&u.src()[0], u.dtype());
        let from = s.dtype();
        if super::aliased(s) && from.scalar.size_bytes() == to.scalar.size_bytes() {
            // The value must not follow the register's later changes.
            let v = self.val(s)?;
            let v = self.fresh(v);
            return self.cast_val(u, v, from, to);
        }
        let v = self.val(s)?;
        self.cast_val(u, v, from, to)
    }

    /// A copy of a value in registers of its own.
    pub(super) fn fresh(&mut self, v: Val) -> Val {
        match v {
            Val::G(r) => Val::G(self.copy(r)),
            // Only its own sum writes to a tile.
            Val::T(r) => Val::T(r),
            Val::V(rs) => Val::V(rs.iter().map(|r| self.copy(*r)).collect()),
            Val::K(rs, per) => Val::K(rs.iter().map(|r| self.copy(*r)).collect(), per),
            Val::M(rs, e) => Val::M(rs.iter().map(|r| self.copy(*r)).collect(), e),
        }
    }

    fn cast_val(&mut self, u: &UOp, v: Val, from: DType, to: DType) -> Res<Val> {
        let (f, t) = (from.scalar, to.scalar);
        match v {
            Val::T(_) => Err(unsupported(u, "a cast of a tile")),
            Val::K(..) | Val::M(..) => {
                if t == Bool {
                    return Ok(v);
                }
                let one = if t.is_float() { ConstVal::Float(1.0) } else { ConstVal::Int(1) };
                self.mask_to(v, to, to_bits(one, t)).map(Val::V)
            }
            Val::G(r) if t == Bool => {
                let r = self.extend(r, f, false)?;
                Ok(Val::G(if f == Bool { r } else { self.nonzero(r, f.size_bytes() == 8) }))
            }
            Val::G(r) if t.is_float() => self.int_to_float(r, f, t).map(|r| Val::V(smallvec![r])),
            Val::G(r) => {
                // Narrowing needs no code: bits beyond the width are undefined. Widening to 32 bits or more does.
                let same = t.size_bytes() <= f.size_bytes() || f == Bool;
                if same {
                    Ok(Val::G(self.copy_if_shared(r)))
                } else {
                    self.extend(r, f, t.size_bytes() == 8).map(Val::G)
                }
            }
            Val::V(rs) if t == Bool => self.float_or_vec_to_bool(u, rs, from),
            Val::V(rs) if to.lanes == 1 && !t.is_float() => self.float_to_int(rs[0], f, t).map(Val::G),
            Val::V(rs) => self.convert(rs, f, t, to.lanes).map(Val::V),
        }
    }

    /// Values are never written again, so an alias is as good as a copy.
    fn copy_if_shared(&mut self, r: VReg) -> VReg {
        r
    }

    fn float_or_vec_to_bool(&mut self, u: &UOp, rs: Regs, from: DType) -> Res<Val> {
        let mut from = from;
        let mut rs = rs;
        if matches!(from.scalar, F16 | BF16) {
            rs = self.convert(rs, from.scalar, F32, from.lanes)?;
            from = from.with_scalar(F32);
        }
        if !from.is_float() {
            return self.mask_from(&rs, from);
        }
        let zero = UOp::constant(from, 0.0);
        let stand = UOp::new(Op::Special, from, [], doorbell_uop::Arg::Str("converted".into()));
        self.bind(&stand, Val::V(rs));
        let _ = u;
        self.compare_vector(&UOp::alu(Op::CmpNe, [stand, zero]))
    }

    // --- scalars between general and vector registers ---

    fn int_to_float(&mut self, r: VReg, f: Scalar, t: Scalar) -> Res<VReg> {
        let via = if t == F64 { F64 } else { F32 };
        let wide = matches!(f, U32 | I64 | U64);
        let r = self.extend(r, f, wide)?;
        let zero = self.const_vec(0, 8, Width::X)?;
        let row = match (via, wide) {
            (F64, true) => VCVTSI64_2SD,
            (F64, false) => VCVTSI_2SD,
            (_, true) => VCVTSI64_2SS,
            (_, false) => VCVTSI_2SS,
        };
        let x = if f == U64 {
            self.u64_to_float(r, via, &row)?
        } else {
            self.def(&row, Width::X, &[In::R(zero), In::R(r)])?
        };
        let out = self.convert(smallvec![x], via, t, 1)?;
        Ok(out[0])
    }

    /// Unsigned 64-bit: on AVX2 a value with its top bit set is halved (the lost bit kept sticky), converted and
    /// doubled.
    fn u64_to_float(&mut self, r: VReg, t: Scalar, row: &Row) -> Res<VReg> {
        let zero = self.const_vec(0, 8, Width::X)?;
        if self.wide() {
            let row = if t == F64 { VCVTU64_2SD } else { VCVTU64_2SS };
            return self.def(&row, Width::X, &[In::R(zero), In::R(r)]);
        }
        let half = self.unary(gpr::one(gpr::SHR_IMM, true), r, true, &[In::I(1)]);
        let low = self.alu_ri(gpr::AND, r, 1, true);
        let half = self.alu_rr(gpr::OR, half, low, true);
        let h = self.def(row, Width::X, &[In::R(zero), In::R(half)])?;
        let add = ops::single(Op::Add, t).ok_or(super::super::IselError::Internal("no addition"))?;
        let dst = self.def(&add, Width::X, &[In::R(h), In::R(h)])?;
        let small = self.func.label();
        let form = gpr::two(gpr::TEST, true);
        let test = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(r), &[In::R(r)])).read_only();
        self.put(test);
        self.put(Inst::bare(Cond::L.jump(), Flow::Branch(small)));
        self.into(row, Width::X, dst, &[In::R(zero), In::R(r)])?;
        self.put(mir::label(small));
        Ok(dst)
    }

    fn float_to_int(&mut self, x: VReg, f: Scalar, t: Scalar) -> Res<VReg> {
        let (x, f) = if matches!(f, F16 | BF16) { (self.convert(smallvec![x], f, F32, 1)?[0], F32) } else { (x, f) };
        let row = if f == F64 { VCVTTSD_2SI64 } else { VCVTTSS_2SI64 };
        if t != U64 {
            return self.def(&row, Width::X, &[In::R(x)]);
        }
        // Values from 2^63 up: 2^63 less, converted, and the top bit set.
        let limit =
            self.const_vec(to_bits(ConstVal::Float(9_223_372_036_854_775_808.0), f), f.size_bytes() as u16, Width::X)?;
        let sub = ops::single(Op::Sub, f).ok_or(super::super::IselError::Internal("no subtraction"))?;
        let less = self.def(&sub, Width::X, &[In::R(x), In::R(limit)])?;
        let high = self.def(&row, Width::X, &[In::R(less)])?;
        let top = self.const_gpr(i64::MIN);
        let high = self.alu_rr(gpr::XOR, high, top, true);
        let low = self.def(&row, Width::X, &[In::R(x)])?;
        let cmp = if f == F64 { VUCOMISD } else { VUCOMISS };
        let inst = self.inst(&cmp, Width::X, x, &[In::R(limit)])?.read_only();
        self.put(inst);
        Ok(self.cmov(Cond::Ae, low, high, true))
    }

    // --- vectors ---

    /// Converts all lanes of a vector (or one float).
    pub(super) fn convert(&mut self, regs: Regs, from: Scalar, to: Scalar, lanes: u16) -> Res<Regs> {
        if from == to || (from.is_int() && to.is_int() && from.size_bytes() == to.size_bytes()) {
            return Ok(regs);
        }
        let steps = route(from, to);
        let widest = steps.iter().map(|t| t.size_bytes() as u16).max().unwrap_or(8);
        let step = lanes.min(self.arch.vector_bytes() / widest);
        let (a, b) = (from.size_bytes() as u16, to.size_bytes() as u16);
        let mut pieces = self.pieces(&regs, Shape::of(a, lanes, self.arch), step)?;
        for pair in steps.windows(2) {
            for p in &mut pieces {
                *p = self.step(*p, pair[0], pair[1], step)?;
            }
        }
        self.join(&pieces, step, Shape::of(b, lanes, self.arch))
    }

    /// One step of a conversion, on lanes that fit one register in either type.
    fn step(&mut self, r: VReg, f: Scalar, t: Scalar, lanes: u16) -> Res<VReg> {
        let (a, b) = (f.size_bytes() as u16, t.size_bytes() as u16);
        let w = Width::for_bytes(lanes * a.max(b));
        if f.is_int() && t.is_int() {
            return match a.cmp(&b) {
                std::cmp::Ordering::Equal => Ok(r),
                std::cmp::Ordering::Less => {
                    let row = ops::widen(f, t).ok_or(super::super::IselError::Internal("no widening"))?;
                    self.def(&row, w, &[In::R(r)])
                }
                std::cmp::Ordering::Greater => self.narrow(r, f, t, w),
            };
        }
        if (f, t) == (F32, F16) {
            return self.def(&VCVTPS2PH, w, &[In::R(r), In::I(0)]);
        }
        if (f, t) == (BF16, F32) {
            let wide = self.def(&VPMOVZXWD, w, &[In::R(r)])?;
            return self.def(&VPSLLDI, w, &[In::R(wide), In::I(16)]);
        }
        if (f, t) == (F32, BF16) {
            return self.bf16_of(r, w);
        }
        if let Some(row) = ops::convert(f, t).filter(|row| self.has(row, w)) {
            return self.def(&row, w, &[In::R(r)]);
        }
        self.step_avx2(r, f, t, lanes, w)
    }

    /// Conversions that AVX2 has no instruction for.
    fn step_avx2(&mut self, r: VReg, f: Scalar, t: Scalar, lanes: u16, w: Width) -> Res<VReg> {
        match (f, t) {
            (U32, F32) => {
                // High and low halves are exact; their sum rounds once.
                let high = self.def(&VPSRLDI, w, &[In::R(r), In::I(16)])?;
                let mask = self.const_vec(0xffff, 4, w)?;
                let low = self.def(&VPAND, w, &[In::R(r), In::R(mask)])?;
                let (high, low) = (self.def(&VCVTDQ2PS, w, &[In::R(high)])?, self.def(&VCVTDQ2PS, w, &[In::R(low)])?);
                let scale = self.const_vec(65536f32.to_bits().into(), 4, w)?;
                let high = self.def(&VMULPS, w, &[In::R(high), In::R(scale)])?;
                self.def(&VADDPS, w, &[In::R(high), In::R(low)])
            }
            (U32, F64) => {
                // As the low word of 2^52 + x.
                let x = self.def(&VPMOVZXDQ, w, &[In::R(r)])?;
                let magic = self.const_vec(4_503_599_627_370_496f64.to_bits(), 8, w)?;
                let x = self.def(&VPOR, w, &[In::R(x), In::R(magic)])?;
                self.def(&VSUBPD, w, &[In::R(x), In::R(magic)])
            }
            (F32, U32) => {
                // From 2^31 up: 2^31 less, converted, and the top bit set.
                let limit = self.const_vec(2_147_483_648f32.to_bits().into(), 4, w)?;
                let big = self.def(&VCMPPS, w, &[In::R(limit), In::R(r), In::I(18)])?; // limit <= r
                let less = self.def(&VANDPS, w, &[In::R(big), In::R(limit)])?;
                let x = self.def(&VSUBPS, w, &[In::R(r), In::R(less)])?;
                let x = self.def(&VCVTTPS2DQ, w, &[In::R(x)])?;
                let top = self.def(&VPSLLDI, w, &[In::R(big), In::I(31)])?;
                self.def(&VPXOR, w, &[In::R(x), In::R(top)])
            }
            _ => self.step_by_lanes(r, f, t, lanes),
        }
    }

    fn step_by_lanes(&mut self, r: VReg, f: Scalar, t: Scalar, lanes: u16) -> Res<VReg> {
        let mut out = Vec::new();
        let from = DType::of(f).vec(lanes);
        for k in 0..lanes {
            if f.is_float() {
                let x = self.lane_float(&smallvec![r], from, k)?;
                out.push(self.float_to_int(x, f, t)?);
            } else {
                let g = self.lane_int(&smallvec![r], from, k)?;
                let x = self.int_to_float(g, f, t)?;
                out.push(x);
            }
        }
        let dt = DType::of(t).vec(lanes);
        let regs = if f.is_float() { self.join_ints(&out, dt)? } else { self.join_floats(&out, dt)? };
        Ok(regs[0])
    }

    /// Rounds f32 to bf16 (nearest, ties to even; NaN stays NaN), 16-bit lanes packed.
    fn bf16_of(&mut self, r: VReg, w: Width) -> Res<VReg> {
        let high = self.def(&VPSRLDI, w, &[In::R(r), In::I(16)])?;
        let one = self.const_vec(1, 4, w)?;
        let odd = self.def(&VPAND, w, &[In::R(high), In::R(one)])?;
        let bias = self.const_vec(0x7fff, 4, w)?;
        let odd = self.def(&VPADDD, w, &[In::R(odd), In::R(bias)])?;
        let sum = self.def(&VPADDD, w, &[In::R(r), In::R(odd)])?;
        let rounded = self.def(&VPSRLDI, w, &[In::R(sum), In::I(16)])?;
        let quiet = self.const_vec(0x40, 4, w)?;
        let nan = self.def(&VPOR, w, &[In::R(high), In::R(quiet)])?;
        let unordered = self.def(&VCMPPS, w, &[In::R(r), In::R(r), In::I(3)])?;
        let x = self.blend(unordered, nan, rounded, w, 4)?;
        self.narrow(x, U32, U16, w)
    }

    /// Drops the upper parts of integer lanes. On AVX2 by halves: bytes are gathered in each 16-byte lane, then the
    /// lanes joined.
    fn narrow(&mut self, r: VReg, f: Scalar, t: Scalar, w: Width) -> Res<VReg> {
        if let Some(row) = ops::narrow(f, t).filter(|row| self.has(row, w)) {
            return self.def(&row, w, &[In::R(r)]);
        }
        let (mut r, mut size) = (r, f.size_bytes());
        let mut w = w;
        while size > t.size_bytes() {
            let half = size / 2;
            let lane: Vec<u8> =
                (0..16).map(|i| if i < 8 { (i / half * size + i % half) as u8 } else { 0x80 }).collect();
            let bytes: Vec<u8> = lane.iter().copied().cycle().take(w.bytes() as usize).collect();
            let mask = self.const_bytes(&bytes, w)?;
            r = self.def(&VPSHUFB, w, &[In::R(r), In::R(mask)])?;
            if w == Width::Y {
                r = self.def(&VPERMQI, w, &[In::R(r), In::I(0b1000)])?;
                w = Width::X;
            }
            size = half;
        }
        Ok(r)
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
        let wide = from.size_bytes() == 8;
        Ok(match v {
            Val::G(r) if to.is_float() || to.lanes > 1 => Val::V(smallvec![self.vec_of_int(r, wide)?]),
            Val::V(r) if to.lanes == 1 && !to.is_float() => Val::G(self.int_of_vec(r[0], wide)?),
            Val::K(..) | Val::M(..) => {
                let bytes = self.mask_to(v, from.with_scalar(U8), 1)?;
                Val::V(bytes)
            }
            Val::V(r) if to.scalar == Bool => self.mask_from(&r, to.with_scalar(U8))?,
            v => v,
        })
    }
}
