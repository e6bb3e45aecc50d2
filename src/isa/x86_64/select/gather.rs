//! One address a lane: gathers and scatters.
//!
//! A lane whose index is a sum of scalars gets an ordinary address; elements of 4 and 8 bytes at computed indexes are
//! gathered by the machine on AVX-512; the rest is done lane by lane.

use super::super::form::Width;
use super::super::mir::{Inst, Mem, Opd};
use super::super::ops;
use super::super::rows::*;
use super::scalar::Test;
use super::{In, Regs, Res, Select, Shape, Val, unsupported};
use doorbell_uop::{DType, Op, Scalar, UOp};
use smallvec::SmallVec;

impl Select<'_> {
    /// The element address of one lane of a vector index.
    fn any_lane_address(&mut self, index: &UOp, k: u16) -> Res<Mem> {
        if let Some(mem) = self.lane_address(index, k)? {
            return Ok(mem);
        }
        let i = &index.src()[1];
        let parts = self.parts(i)?;
        let g = self.lane_int(&parts, i.dtype(), k)?;
        let g = self.extend(g, i.dtype().scalar, true)?;
        let start = self.base(index)?;
        Ok(Mem { index: Some((g, b'q')), scale: index.src()[0].dtype().scalar.size_bytes() as u8, ..start })
    }

    /// The address of element 0.
    fn base(&mut self, index: &UOp) -> Res<Mem> {
        let base = super::address::strip(&index.src()[0]).clone();
        self.pointer(&base, &Default::default())
    }

    pub(super) fn gather(&mut self, u: &UOp, index: &UOp, gate: Option<&UOp>, alt: Option<&UOp>) -> Res<Val> {
        let dt = u.dtype();
        let lanes = if dt.scalar == Scalar::Bool { dt.with_scalar(Scalar::U8) } else { dt };
        let old = match alt {
            Some(alt) => Some(match self.val(alt)? {
                Val::V(r) => r,
                v => self.mask_to(v, lanes, 1)?,
            }),
            None => None,
        };
        let sums = is_sum(&index.src()[1]);
        let regs = match (gate, old) {
            (None, _) if sums => self.gather_addresses(index, lanes)?,
            (gate, old) if !sums && self.wide() && lanes.scalar.size_bytes() >= 4 => {
                self.gather_wide(index, lanes, gate.zip(old))?
            }
            (gate, old) => self.gather_lanes(index, lanes, gate.zip(old))?,
        };
        if dt.scalar == Scalar::Bool { self.mask_from(&regs, lanes) } else { Ok(Val::V(regs)) }
    }

    /// Elements at ordinary addresses, inserted straight from memory.
    fn gather_addresses(&mut self, index: &UOp, dt: DType) -> Res<Regs> {
        let shape = self.shape(dt);
        let step = (16 / shape.elem).min(shape.lanes);
        let first = ops::sized(shape.elem, [VPBROADCASTB, VPBROADCASTW, VMOVD_LD, VMOVQ_LD]);
        let insert = ops::sized(shape.elem, [VPINSRB, VPINSRW, VPINSRD, VPINSRQ]);
        let mut pieces = Regs::new();
        for from in (0..shape.lanes).step_by(step as usize) {
            let mem = self.any_lane_address(index, from)?;
            let mut x = self.def(&first, Width::X, &[In::M(mem)])?;
            for k in 1..step {
                let mem = self.any_lane_address(index, from + k)?;
                x = self.def(&insert, Width::X, &[In::R(x), In::M(mem), In::I(i64::from(k))])?;
            }
            pieces.push(x);
        }
        self.join(&pieces, step, shape)
    }

    /// Gather instructions (AVX-512): as many lanes at once as 64-bit indexes fit a register.
    fn gather_wide(&mut self, index: &UOp, dt: DType, gated: Option<(&UOp, Regs)>) -> Res<Regs> {
        let (i, shape) = (&index.src()[1], self.shape(dt));
        let n = dt.lanes;
        let indexes = self.parts(i)?;
        let indexes = self.convert(indexes, i.dtype().scalar, Scalar::I64, n)?;
        let step = n.min(8);
        let indexes = self.pieces(&indexes, Shape::of(8, n, self.arch), step)?;
        let (masks, old) = match gated {
            Some((gate, old)) => {
                let mask = self.mask_for(gate, &Shape { per: step, parts: n / step, ..Shape::of(8, n, self.arch) })?;
                (Some(mask), Some(self.pieces(&old, shape, step)?))
            }
            None => (None, None),
        };
        let on = self.const_gpr((1 << step) - 1);
        let on = self.def(&KMOVD_KG, Width::X, &[In::R(on)])?;
        let row = if shape.elem == 4 { VPGATHERQD } else { VPGATHERQQ };
        let w = Width::for_bytes(8 * step);
        let (form, twin) = self.form(&row, w)?;
        let base = self.base(index)?;
        let mut out = Regs::new();
        for (k, i) in indexes.into_iter().enumerate() {
            let mask = match &masks {
                Some(m) => self.def(&KANDB, Width::X, &[In::R(m[k]), In::R(on)])?,
                None => self.copy(on),
            };
            let piece = Width::for_bytes(shape.elem * step);
            let dst = match &old {
                Some(old) => {
                    let dst = self.vec(piece);
                    self.copy_to(dst, old[k]);
                    dst
                }
                None => {
                    let zero = self.const_vec(0, 8, piece)?;
                    self.copy(zero)
                }
            };
            let mem = Mem { index: Some((i, form.kinds[1])), scale: shape.elem as u8, ..base };
            let mut inst = Inst::new((form, twin), &[Opd::Reg(dst, form.kinds[0]), Opd::Mem(mem)]).modify();
            (inst.mask, inst.apart) = (Some(mask), true);
            self.put(inst);
            out.push(dst);
        }
        self.join(&out, step, shape)
    }

    /// Lane by lane, with a branch a lane if gated.
    fn gather_lanes(&mut self, index: &UOp, dt: DType, gated: Option<(&UOp, Regs)>) -> Res<Regs> {
        let t = super::mask::int_of(dt.scalar.size_bytes() as u16);
        let mut out = Vec::new();
        for k in 0..dt.lanes {
            let mem = self.any_lane_address(index, k)?;
            match &gated {
                Some((gate, old)) => {
                    let g = self.lane_int(old, dt, k)?;
                    let g = self.copy(g);
                    let cond = Test::Bool(self.gate_lane(gate, k)?);
                    self.guarded(cond, |me| {
                        let v = me.load_int(t, mem);
                        me.copy_to(g, v);
                        Ok(())
                    })?;
                    out.push(g);
                }
                None => out.push(self.load_int(t, mem)),
            }
        }
        self.join_ints(&out, dt)
    }

    pub(super) fn scatter(&mut self, index: &UOp, value: &UOp, gate: Option<&UOp>) -> Res<()> {
        let dt = value.dtype();
        let (regs, lanes) = match self.val(value)? {
            Val::V(r) => (r, dt),
            Val::G(_) => return Err(unsupported(value, "a scalar to many addresses")),
            mask => {
                let bytes = dt.with_scalar(Scalar::U8);
                (self.mask_to(mask, bytes, 1)?, bytes)
            }
        };
        let t = super::mask::int_of(lanes.scalar.size_bytes() as u16);
        for k in 0..dt.lanes {
            let mem = self.any_lane_address(index, k)?;
            let g = self.lane_int(&regs, lanes, k)?;
            match gate {
                Some(gate) => {
                    let cond = Test::Bool(self.gate_lane(gate, k)?);
                    self.guarded(cond, |me| {
                        me.store_int(t, mem, g);
                        Ok(())
                    })?;
                }
                None => self.store_int(t, mem, g),
            }
        }
        Ok(())
    }
}

/// Whether every lane of a vector index is a sum of scalars.
fn is_sum(i: &UOp) -> bool {
    let mut todo: SmallVec<[&UOp; 8]> = SmallVec::from_elem(i, 1);
    while let Some(u) = todo.pop() {
        match u.op() {
            Op::Const | Op::Splat | Op::Stack => {}
            Op::Add | Op::Sub => todo.extend(u.src()),
            Op::Mul | Op::Shl if u.src()[1].as_int().is_some() => todo.push(&u.src()[0]),
            Op::Mul if u.src()[0].as_int().is_some() => todo.push(&u.src()[1]),
            Op::Gep => todo.push(&u.src()[0]),
            _ => return false,
        }
    }
    true
}
