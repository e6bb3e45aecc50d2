//! Loads and stores of consecutive elements, gated or not.
//!
//! A scalar gate is a branch around the access. A vector gate is a mask on the access where the machine has one for the
//! element (all on AVX-512, 4 and 8 bytes on AVX2), else a branch a lane.

use super::super::form::{Form, Width};
use super::super::gpr::{self, Cond};
use super::super::mir::{Inst, Mem, Opd};
use super::super::ops;
use super::super::rows::*;
use super::scalar::Test;
use super::{In, Level, LevelKind, Regs, Res, Select, Shape, Val, const_of, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{Arg, DType, Op, Scalar, UOp};
use hashbrown::HashMap;
use iced_x86::Code;

/// Outputs from this size on are stored past the cache: nothing of them would be left in it when they are read.
const STREAM_BYTES: usize = 16 << 20;

impl Select<'_> {
    pub(super) fn load(&mut self, u: &UOp) -> Res<Val> {
        let (index, alt, dt) = (&u.src()[0], u.src().get(1), u.dtype());
        let gate = index.src().get(2);
        same_size(u, index, dt)?;
        if index.src()[1].dtype().lanes > 1 {
            return self.gather(u, index, gate, alt);
        }
        match (gate, alt) {
            (None, _) => {
                let mem = self.address(index)?;
                self.load_plain(dt, mem)
            }
            (Some(gate), Some(alt)) if gate.dtype().lanes == 1 => {
                let out = self.val(alt)?;
                let out = self.fresh(out);
                let cond = self.test_of(gate)?;
                self.guarded(cond, |me| {
                    let mem = me.address(index)?;
                    let v = me.load_plain(dt, mem)?;
                    me.assign(&out, v, dt.lanes)
                })?;
                Ok(out)
            }
            (Some(gate), Some(alt)) => self.load_masked(u, index, gate, alt),
            (Some(_), None) => Err(unsupported(u, "a gate without an alternative")),
        }
    }

    /// Code that runs only if a bool is true.
    pub(super) fn guarded(&mut self, cond: Test, body: impl FnOnce(&mut Self) -> Res<()>) -> Res<()> {
        let back = self.cur;
        debug_assert_eq!(back + 1, self.levels.len(), "guarded code is made where the list stands");
        let end = self.func.label();
        self.levels.push(Level { insts: Vec::new(), kind: LevelKind::If { cond, end }, sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
        body(self)?;
        self.close_if()
    }

    /// Assigns another value of the same layout to registers.
    fn assign(&mut self, to: &Val, from: Val, lanes: u16) -> Res<()> {
        let from = match (to, from) {
            (Val::K(_, per), v @ Val::K(..)) => self.masks(v, lanes, *per)?,
            (Val::M(_, e), v @ Val::M(..)) => self.lane_masks(v, lanes, *e)?,
            (_, Val::G(r) | Val::T(r)) => Regs::from_slice(&[r]),
            (_, Val::V(r) | Val::K(r, _) | Val::M(r, _)) => r,
        };
        let to = match to {
            Val::G(r) | Val::T(r) => Regs::from_slice(&[*r]),
            Val::V(r) | Val::K(r, _) | Val::M(r, _) => r.clone(),
        };
        to.into_iter().zip(from).for_each(|(t, f)| self.copy_to(t, f));
        Ok(())
    }

    /// Consecutive elements from an address.
    fn load_plain(&mut self, dt: DType, mem: Mem) -> Res<Val> {
        if dt.scalar == Scalar::Bool && dt.lanes > 1 {
            let bytes = dt.with_scalar(Scalar::U8);
            let Val::V(regs) = self.load_plain(bytes, mem)? else {
                return Err(super::super::IselError::Internal("bytes in lanes"));
            };
            return self.mask_from(&regs, bytes);
        }
        if dt.lanes == 1 && !dt.is_float() {
            return Ok(Val::G(self.load_int(dt.scalar, mem)));
        }
        let shape = self.shape(dt);
        let mut out = Regs::new();
        for k in 0..shape.parts {
            let m = mem.plus(i32::from(k) * i32::from(shape.width.bytes()));
            out.push(self.load_part(dt, &shape, m)?);
        }
        Ok(Val::V(out))
    }

    fn load_part(&mut self, dt: DType, shape: &Shape, m: Mem) -> Res<VReg> {
        let whole = match (dt.scalar, shape.width) {
            (Scalar::F32, _) => VMOVUPS,
            (Scalar::F64, _) => VMOVUPD,
            _ => VMOVDQU64,
        };
        match shape.part_bytes() {
            1 => self.def(&VPBROADCASTB, Width::X, &[In::M(m)]),
            2 => self.def(&VPBROADCASTW, Width::X, &[In::M(m)]),
            4 => self.def(&VMOVD_LD, Width::X, &[In::M(m)]),
            8 => self.def(&VMOVQ_LD, Width::X, &[In::M(m)]),
            _ => self.def(&whole, shape.width, &[In::M(m)]),
        }
    }

    /// One integer; bools become 0 or 1 whatever the byte.
    pub(super) fn load_int(&mut self, t: Scalar, m: Mem) -> VReg {
        use Code::*;
        if t == Scalar::Bool {
            let inst = Inst::new((Form::gpr(Cmp_rm8_imm8, b"m", 0), INVALID), &[Opd::Mem(m), Opd::Imm(0)]).read_only();
            self.put(inst);
            return self.set(Cond::Ne);
        }
        let form = match t {
            Scalar::I8 => Form::gpr(Movsx_r32_rm8, b"dm", 1),
            Scalar::U8 => Form::gpr(Movzx_r32_rm8, b"dm", 1),
            Scalar::I16 => Form::gpr(Movsx_r32_rm16, b"dm", 1),
            Scalar::U16 => Form::gpr(Movzx_r32_rm16, b"dm", 1),
            _ => gpr::two(gpr::MOV, t.size_bytes() == 8),
        };
        let dst = self.gpr();
        self.gput(form, Some(dst), &[In::M(m)]);
        dst
    }

    pub(super) fn store(&mut self, u: &UOp) -> Res<()> {
        let (index, value) = (&u.src()[0], &u.src()[1]);
        let gate = index.src().get(2);
        let dt = value.dtype();
        same_size(u, index, dt)?;
        if index.src()[1].dtype().lanes > 1 {
            return self.scatter(index, value, gate);
        }
        let v = self.val(value)?;
        if let Val::T(r) = v {
            return self.store_tile(index, r);
        }
        match gate {
            None => {
                let streams = self.streams(index, dt)?;
                let mem = self.address(index)?;
                match v {
                    Val::V(regs) if streams => self.store_around(dt, mem, regs),
                    v => self.store_plain(dt, mem, v),
                }
            }
            Some(gate) if gate.dtype().lanes == 1 => {
                let cond = self.test_of(gate)?;
                self.guarded(cond, |me| {
                    let mem = me.address(index)?;
                    me.store_plain(dt, mem, v)
                })
            }
            Some(gate) => self.store_masked(index, gate, dt, v),
        }
    }

    /// A store instruction.
    fn put_store(&mut self, row: &super::super::form::Row, w: Width, m: Mem, r: VReg, rest: &[In]) -> Res<()> {
        let form = self.form(row, w)?;
        let mut kinds = form.0.kinds.iter().copied().skip(1);
        let mut ops: smallvec::SmallVec<[Opd; 4]> =
            smallvec::smallvec![Opd::Mem(m), Opd::Reg(r, kinds.next().unwrap_or(b'x'))];
        for i in rest {
            ops.push(match *i {
                In::R(r) => Opd::Reg(r, kinds.next().unwrap_or(b'x')),
                In::I(v) => Opd::Imm(v),
                _ => return Err(super::super::IselError::Internal("two memory operands")),
            });
        }
        self.put(Inst::new(form, &ops).read_only());
        Ok(())
    }

    pub(super) fn store_plain(&mut self, dt: DType, mem: Mem, v: Val) -> Res<()> {
        let regs = match v {
            Val::G(r) => {
                self.store_int(dt.scalar, mem, r);
                return Ok(());
            }
            Val::V(regs) => regs,
            mask => {
                let bytes = dt.with_scalar(Scalar::U8);
                let regs = self.mask_to(mask, bytes, 1)?;
                return self.store_plain(bytes, mem, Val::V(regs));
            }
        };
        let shape = self.shape(dt);
        for (k, r) in regs.into_iter().enumerate() {
            let m = mem.plus(k as i32 * i32::from(shape.width.bytes()));
            let whole = match dt.scalar {
                Scalar::F32 => VMOVUPS_ST,
                Scalar::F64 => VMOVUPD_ST,
                _ => VMOVDQU64_ST,
            };
            match (shape.part_bytes(), dt.scalar) {
                (1, _) => self.put_store(&VPEXTRB, Width::X, m, r, &[In::I(0)])?,
                (2, _) => self.put_store(&VPEXTRW, Width::X, m, r, &[In::I(0)])?,
                (4, Scalar::F32) => self.put_store(&VMOVSS_ST, Width::X, m, r, &[])?,
                (4, _) => self.put_store(&VMOVD_ST, Width::X, m, r, &[])?,
                (8, Scalar::F64) => self.put_store(&VMOVSD_ST, Width::X, m, r, &[])?,
                (8, _) => self.put_store(&VMOVQ_ST, Width::X, m, r, &[])?,
                _ => self.put_store(&whole, shape.width, m, r, &[])?,
            }
        }
        Ok(())
    }

    /// Whether an ungated store goes past the cache: whole aligned vectors of a buffer that is much larger than the
    /// cache and not read here. The buffer itself is noted; its alignment is tested when the kernel starts.
    fn streams(&mut self, index: &UOp, dt: DType) -> Res<bool> {
        let shape = self.shape(dt);
        let memory = super::address::strip(&index.src()[0]);
        let Arg::Param(slot, len) = *memory.arg() else { return Ok(false) };
        let whole = shape.part_bytes() == shape.width.bytes() && shape.width.bytes() == self.arch.vector_bytes();
        let plain = dt.scalar != Scalar::Bool && whole && shape.lanes == shape.per * shape.parts;
        if !self.stream || !plain || len.saturating_mul(shape.elem as usize) < STREAM_BYTES {
            return Ok(false);
        }
        let reads = |u: &UOp| u.op() == Op::Load && super::address::strip(&u.src()[0].src()[0]) == memory;
        if !self.aligned(index, i64::from(shape.width.bytes()))? || self.uops.iter().any(reads) {
            return Ok(false);
        }
        if !self.streamed.contains(&slot) {
            self.streamed.push(slot);
        }
        Ok(true)
    }

    /// Stores whole vectors around the cache.
    fn store_around(&mut self, dt: DType, mem: Mem, regs: Regs) -> Res<()> {
        let width = self.shape(dt).width;
        for (k, r) in regs.into_iter().enumerate() {
            self.put_store(&VMOVNTPS, width, mem.plus(k as i32 * i32::from(width.bytes())), r, &[])?;
        }
        Ok(())
    }

    pub(super) fn store_int(&mut self, t: Scalar, m: Mem, r: VReg) {
        use Code::*;
        let (code, kind) = match t.size_bytes() {
            1 => (Mov_rm8_r8, b'b'),
            2 => (Mov_rm16_r16, b'w'),
            4 => (Mov_rm32_r32, b'd'),
            _ => (Mov_rm64_r64, b'q'),
        };
        let inst = Inst::new((Form::gpr(code, b"mq", 0), INVALID), &[Opd::Mem(m), Opd::Reg(r, kind)]).read_only();
        self.put(inst);
    }

    /// A gate's masks for an access; lanes beyond the access are off.
    fn access_masks(&mut self, gate: &UOp, shape: &Shape) -> Res<Regs> {
        let masks = self.mask_for(gate, shape)?;
        let whole = shape.part_bytes() == shape.width.bytes();
        if whole {
            return Ok(masks);
        }
        if self.wide() {
            let bits = self.const_gpr(((1u64 << shape.per) - 1) as i64);
            let on = self.def(&KMOVQ_KG, Width::X, &[In::R(bits)])?;
            return masks.iter().map(|m| self.def(&KANDQ, Width::X, &[In::R(*m), In::R(on)])).collect();
        }
        let mut bytes = vec![0xff; shape.part_bytes() as usize];
        bytes.resize(shape.width.bytes() as usize, 0);
        let on = self.const_bytes(&bytes, shape.width)?;
        masks.iter().map(|m| self.def(&VPAND, shape.width, &[In::R(*m), In::R(on)])).collect()
    }

    fn load_masked(&mut self, u: &UOp, index: &UOp, gate: &UOp, alt: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let bool_type = dt.scalar == Scalar::Bool;
        let lanes = if bool_type { dt.with_scalar(Scalar::U8) } else { dt };
        let shape = self.shape(lanes);
        if !self.wide() && shape.elem < 4 {
            return self.load_by_lanes(u, index, gate, alt);
        }
        let old = match self.val(alt)? {
            Val::V(r) => r,
            v => self.mask_to(v, lanes, 1)?,
        };
        let masks = self.access_masks(gate, &shape)?;
        let mem = self.address(index)?;
        let zero = alt.op() == Op::Const && const_of(alt).is_ok_and(|c| c.is_zero()) && Self::positive_zero(alt);
        let mut out = Regs::new();
        for k in 0..shape.parts as usize {
            let m = mem.plus(k as i32 * i32::from(shape.width.bytes()));
            out.push(if self.wide() {
                let row = ops::sized(shape.elem, [VMOVDQU8, VMOVDQU16, VMOVDQU32, VMOVDQU64]);
                let dst = if zero { self.vec(shape.width) } else { self.copy(old[k]) };
                let inst = self.inst(&row, shape.width, dst, &[In::M(m)])?;
                self.put(if zero { inst.zero(masks[k]) } else { inst.merge(masks[k]) });
                dst
            } else {
                let row = if shape.elem == 4 { VMASKMOVPS } else { VMASKMOVPD };
                let r = self.def(&row, shape.width, &[In::R(masks[k]), In::M(m)])?;
                if zero { r } else { self.blend(masks[k], r, old[k], shape.width, shape.elem)? }
            });
        }
        if bool_type { self.mask_from(&out, lanes) } else { Ok(Val::V(out)) }
    }

    /// Not minus zero, whose bits a cleared lane would lose.
    fn positive_zero(u: &UOp) -> bool {
        const_of(u).is_ok_and(|c| doorbell_uop::to_bits(c, u.dtype().scalar) == 0)
    }

    fn store_masked(&mut self, index: &UOp, gate: &UOp, dt: DType, v: Val) -> Res<()> {
        let (regs, dt) = match v {
            Val::V(r) => (r, dt),
            Val::G(_) => return Err(unsupported(gate, "a vector gate on a scalar")),
            mask => {
                let bytes = dt.with_scalar(Scalar::U8);
                (self.mask_to(mask, bytes, 1)?, bytes)
            }
        };
        let shape = self.shape(dt);
        if !self.wide() && shape.elem < 4 {
            for k in 0..dt.lanes {
                let g = self.lane_int(&regs, dt, k)?;
                let cond = Test::Bool(self.gate_lane(gate, k)?);
                self.guarded(cond, |me| {
                    let m = me.address(index)?.plus(i32::from(k * shape.elem));
                    me.store_int(super::mask::int_of(shape.elem), m, g);
                    Ok(())
                })?;
            }
            return Ok(());
        }
        let masks = self.access_masks(gate, &shape)?;
        let mem = self.address(index)?;
        for (k, r) in regs.into_iter().enumerate() {
            let m = mem.plus(k as i32 * i32::from(shape.width.bytes()));
            if self.wide() {
                let row = ops::sized(shape.elem, [VMOVDQU8_ST, VMOVDQU16_ST, VMOVDQU32_ST, VMOVDQU64_ST]);
                let form = self.form(&row, shape.width)?;
                let inst = Inst::new(form, &[Opd::Mem(m), Opd::Reg(r, shape.width.kind())]).read_only();
                self.put(inst.merge(masks[k]));
            } else {
                let row = if shape.elem == 4 { VMASKMOVPS_ST } else { VMASKMOVPD_ST };
                self.put_store(&row, shape.width, m, masks[k], &[In::R(r)])?;
            }
        }
        Ok(())
    }

    /// One lane of a gate as 0 or 1.
    pub(super) fn gate_lane(&mut self, gate: &UOp, k: u16) -> Res<VReg> {
        if gate.dtype().lanes == 1 {
            return self.int(gate);
        }
        let v = self.val(gate)?;
        let dt = gate.dtype().with_scalar(Scalar::U8);
        let bytes = self.mask_to(v, dt, 1)?;
        let lane = self.lane_int(&bytes, dt, k)?;
        Ok(self.alu_ri(gpr::AND, lane, 1, false)) // the next lanes lie above it
    }

    fn load_by_lanes(&mut self, u: &UOp, index: &UOp, gate: &UOp, alt: &UOp) -> Res<Val> {
        let dt = u.dtype();
        let lanes = if dt.scalar == Scalar::Bool { dt.with_scalar(Scalar::U8) } else { dt };
        let old = match self.val(alt)? {
            Val::V(r) => r,
            v => self.mask_to(v, lanes, 1)?,
        };
        let elem = lanes.scalar.size_bytes() as u16;
        let mut out = Vec::new();
        for k in 0..dt.lanes {
            let g = self.lane_int(&old, lanes, k)?;
            let g = self.copy(g);
            let cond = Test::Bool(self.gate_lane(gate, k)?);
            self.guarded(cond, |me| {
                let m = me.address(index)?.plus(i32::from(k * elem));
                let v = me.load_int(super::mask::int_of(elem), m);
                me.copy_to(g, v);
                Ok(())
            })?;
            out.push(g);
        }
        let regs = self.join_ints(&out, lanes)?;
        if dt.scalar == Scalar::Bool { self.mask_from(&regs, lanes) } else { Ok(Val::V(regs)) }
    }
}

/// Memory contains elements of the value's size (the type may differ: fp8 values are handled as bytes).
fn same_size(u: &UOp, index: &UOp, value: DType) -> Res<()> {
    let memory = index.src()[0].dtype().scalar;
    if memory.size_bytes() == value.scalar.size_bytes() {
        return Ok(());
    }
    Err(super::super::IselError::Malformed(format!("{u:?} moves {value} through memory of {memory}")))
}
