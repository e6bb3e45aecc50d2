//! Loads and stores, gated or not, at consecutive addresses or one a lane.
//!
//! A scalar gate is a branch around the access, a vector gate one a lane.

use super::super::IselError;
use super::super::mir::{Access, Base, Inst, Mem, What};
use super::super::rows::{self, Row};
use super::mask::int_of;
use super::scalar::Test;
use super::{Regs, Res, Select, Shape, Val, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{DType, Op, Scalar, UOp};

/// Loads and stores of 1 to 16 bytes of a vector register.
static VECTORS: [[&[Row; 2]; 2]; 5] = [
    [&rows::LDR_B, &rows::STR_B],
    [&rows::LDR_H, &rows::STR_H],
    [&rows::LDR_S, &rows::STR_S],
    [&rows::LDR_D, &rows::STR_D],
    [&rows::LDR_Q, &rows::STR_Q],
];

impl Select<'_> {
    pub(super) fn load(&mut self, u: &UOp) -> Res<Val> {
        let (index, alt, dt) = (&u.src()[0], u.src().get(1), u.dtype());
        let gate = index.src().get(2);
        same_size(u, index, dt)?;
        let many = index.src()[1].dtype().lanes > 1;
        match (gate, alt) {
            (None, _) if many => self.load_lanes(index, dt, None),
            (None, _) => {
                let mem = self.address(index)?;
                Ok(self.load_plain(dt, mem))
            }
            (Some(gate), Some(alt)) if gate.dtype().lanes == 1 && !many => {
                let out = self.val(alt)?;
                let out = self.fresh(out);
                let cond = self.test_of(gate)?;
                self.guarded(cond, |me| {
                    let mem = me.address(index)?;
                    let v = me.load_plain(dt, mem);
                    me.assign(&out, v, dt.lanes)
                })?;
                Ok(out)
            }
            (Some(gate), Some(alt)) => self.load_lanes(index, dt, Some((gate, alt))),
            (Some(_), None) => Err(unsupported(u, "a gate without an alternative")),
        }
    }

    fn access(&mut self, rows: &'static [Row; 2], bytes: i64, r: VReg, mem: Mem, store: bool) {
        let base = match mem.base {
            Base::Reg(b) => Some(b),
            Base::Local(_) => None,
        };
        let regs: Regs = [r].into_iter().chain(base).collect();
        let inst = Inst::new(What::Access(Access { rows, bytes }, mem), &regs, &[]);
        self.put(if store { inst.read_only() } else { inst });
    }

    /// Consecutive elements from an address.
    fn load_plain(&mut self, dt: DType, mem: Mem) -> Val {
        if dt.lanes == 1 && !dt.is_float() {
            return Val::G(self.load_int(dt.scalar, mem));
        }
        let shape = Shape::of(dt);
        let bytes = i64::from(shape.part_bytes());
        let mut out = Regs::new();
        for k in 0..i64::from(shape.parts) {
            let dst = self.vec();
            self.access(VECTORS[bytes.trailing_zeros() as usize][0], bytes, dst, mem.plus(16 * k), false);
            out.push(dst);
        }
        if dt.scalar == Scalar::Bool { self.mask_from(&out, dt.with_scalar(Scalar::U8)) } else { Val::V(out) }
    }

    /// One integer; bools become 0 or 1 whatever the byte.
    pub(super) fn load_int(&mut self, t: Scalar, mem: Mem) -> VReg {
        let rows = match t {
            Scalar::I8 => &rows::LDRSB,
            Scalar::I16 => &rows::LDRSH,
            _ => match t.size_bytes() {
                1 => &rows::LDRB,
                2 => &rows::LDRH,
                4 => &rows::LDR_W,
                _ => &rows::LDR_X,
            },
        };
        let dst = self.gpr();
        self.access(rows, t.size_bytes() as i64, dst, mem, false);
        if t == Scalar::Bool { self.nonzero(dst, false) } else { dst }
    }

    fn store_int(&mut self, t: Scalar, mem: Mem, r: VReg) {
        let rows = match t.size_bytes() {
            1 => &rows::STRB,
            2 => &rows::STRH,
            4 => &rows::STR_W,
            _ => &rows::STR_X,
        };
        self.access(rows, t.size_bytes() as i64, r, mem, true);
    }

    pub(super) fn store(&mut self, u: &UOp) -> Res<()> {
        let (index, value) = (&u.src()[0], &u.src()[1]);
        let gate = index.src().get(2);
        let dt = value.dtype();
        same_size(u, index, dt)?;
        if index.src()[1].dtype().lanes > 1 || gate.is_some_and(|g| g.dtype().lanes > 1) {
            return self.store_lanes(index, value, gate);
        }
        let v = self.val(value)?;
        let Some(gate) = gate else {
            let mem = self.address(index)?;
            return self.store_plain(dt, mem, v);
        };
        let cond = self.test_of(gate)?;
        self.guarded(cond, |me| {
            let mem = me.address(index)?;
            me.store_plain(dt, mem, v)
        })
    }

    fn store_plain(&mut self, dt: DType, mem: Mem, v: Val) -> Res<()> {
        let regs = match v {
            Val::G(r) => {
                self.store_int(dt.scalar, mem, r);
                return Ok(());
            }
            Val::V(regs) => regs,
            mask => self.mask_to(mask, dt.with_scalar(Scalar::U8), 1)?,
        };
        let bytes = i64::from(Shape::of(dt).part_bytes());
        for (k, r) in (0..).zip(regs) {
            self.access(VECTORS[bytes.trailing_zeros() as usize][1], bytes, r, mem.plus(16 * k), true);
        }
        Ok(())
    }

    /// The address of one lane of an access.
    fn at_lane(&mut self, index: &UOp, k: u16, elem: u16) -> Res<Mem> {
        if index.src()[1].dtype().lanes > 1 {
            return self.lane_address(index, k);
        }
        Ok(self.address(index)?.plus(i64::from(k * elem)))
    }

    /// Lane by lane, with a branch a lane if gated.
    fn load_lanes(&mut self, index: &UOp, dt: DType, gated: Option<(&UOp, &UOp)>) -> Res<Val> {
        let lanes = if dt.scalar == Scalar::Bool { dt.with_scalar(Scalar::U8) } else { dt };
        let elem = lanes.scalar.size_bytes() as u16;
        let old = match gated {
            Some((_, alt)) => Some(self.lanes_of(alt)?.0),
            None => None,
        };
        let mut out = Vec::new();
        for k in 0..dt.lanes {
            let (Some((gate, _)), Some(old)) = (gated, &old) else {
                let mem = self.at_lane(index, k, elem)?;
                out.push(self.load_int(int_of(elem), mem));
                continue;
            };
            let g = self.lane_int(old, lanes, k);
            let g = self.copy(g);
            let cond = Test::Bool(self.gate_lane(gate, k)?);
            self.guarded(cond, |me| {
                let mem = me.at_lane(index, k, elem)?;
                let v = me.load_int(int_of(elem), mem);
                me.copy_to(g, v);
                Ok(())
            })?;
            out.push(g);
        }
        let regs = self.join_ints(&out, Shape::of(lanes));
        Ok(if dt.scalar == Scalar::Bool { self.mask_from(&regs, lanes) } else { Val::V(regs) })
    }

    fn store_lanes(&mut self, index: &UOp, value: &UOp, gate: Option<&UOp>) -> Res<()> {
        let (regs, lanes) = self.lanes_of(value)?;
        let elem = lanes.scalar.size_bytes() as u16;
        for k in 0..lanes.lanes {
            let g = self.lane_int(&regs, lanes, k);
            let Some(gate) = gate else {
                let mem = self.at_lane(index, k, elem)?;
                self.store_int(int_of(elem), mem, g);
                continue;
            };
            let cond = Test::Bool(self.gate_lane(gate, k)?);
            self.guarded(cond, |me| {
                let mem = me.at_lane(index, k, elem)?;
                me.store_int(int_of(elem), mem, g);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// One lane of a gate as 0 or 1.
    fn gate_lane(&mut self, gate: &UOp, k: u16) -> Res<VReg> {
        if gate.dtype().lanes == 1 {
            return self.int(gate);
        }
        let (bytes, dt) = self.lanes_of(gate)?;
        Ok(self.lane_int(&bytes, dt, k))
    }
}

/// Memory contains elements of the value's size (the type may differ: fp8 values are handled as bytes).
fn same_size(u: &UOp, index: &UOp, value: DType) -> Res<()> {
    let memory = index.src()[0].dtype().scalar;
    if memory.size_bytes() == value.scalar.size_bytes() && u.op() != Op::LoadMatrix {
        return Ok(());
    }
    Err(IselError::Malformed(format!("{u:?} moves {value} through memory of {memory}")))
}
