//! The matrix unit: WMMA of gfx11 and gfx12, MFMA of gfx942.
//!
//! The operands of one instruction are tuples of registers with the lane layout of [`WmmaArg`](doorbell_uop::WmmaArg);
//! codegen has spread them, here they are only joined to tuples. The result may be the accumulator's tuple, but must
//! share no register with it otherwise, nor with the operands: the unit reads them while it writes.

use super::super::Op;
use super::mir::{Code, Inst, Opd, Part};
use super::{Res, Select, Src, Val};
use doorbell_codegen::regalloc::{Constraint, Operand, Role, VReg};
use doorbell_uop::{Arg, Scalar, UOp};

impl Select<'_> {
    pub(super) fn wmma(&mut self, u: &UOp, home: Option<&[Part]>) -> Res<Val> {
        let Arg::Wmma(unit) = u.arg() else { return Err(self.malformed(format!("{u:?} names no matrix unit"))) };
        let here = |op: &Op| op.rows(self.chip()).next().is_some();
        let Some(op) = Op::parse(unit.name).filter(here) else {
            return Err(self.unsupported(u, "the chip has no such matrix unit"));
        };
        let [a, b, acc] = u.src() else { return Err(self.malformed(format!("{u:?} has not three operands"))) };
        let (a, b) = (self.tile(a)?, self.tile(b)?);
        let words = u.dtype().lanes as u8;
        let to = match home.and_then(tuple) {
            Some(part) if part.words == words => part,
            _ => self.v_part(words),
        };
        let acc = self.accumulator(acc, to)?;
        // For bytes a modifier marks them as signed; MFMA takes no others.
        let signed = unit.a == Scalar::I8 && unit.name.starts_with("v_wmma");
        let inst = self.run(Code::new(op, &[to.into(), a.into(), b.into(), acc]).neg(if signed { 3 } else { 0 }))?;
        apart(inst, to.reg);
        Ok((0..words).map(|k| Src::Part(Part { sub: to.sub + k, words: 1, ..to })).collect())
    }

    /// What the product is added to: zero as a constant, a chain of products in its own registers.
    fn accumulator(&mut self, acc: &UOp, to: Part) -> Res<Opd> {
        let at = self.pos.get(acc).map(|p| *p as usize);
        let lanes = match at {
            Some(at) if self.plan.into[at] && self.vals[at].is_none() => {
                let home: Vec<Part> = (0..to.words).map(|k| Part { sub: to.sub + k, words: 1, ..to }).collect();
                self.compute(acc, Some(&home))?
            }
            _ => self.plain(acc)?,
        };
        if lanes.iter().all(|s| *s == Src::Bits(0)) {
            return Ok(0.into());
        }
        Ok(self.gathered(&lanes, Scalar::F32)?.into())
    }

    /// An operand's elements side by side.
    fn tile(&mut self, u: &UOp) -> Res<Part> {
        let lanes = self.val(u)?;
        self.gathered(&lanes, u.dtype().scalar)
    }
}

/// The tuple that words in order are.
fn tuple(parts: &[Part]) -> Option<Part> {
    let first = *parts.first()?;
    let follows = |(k, p): (usize, &Part)| *p == Part { sub: first.sub + k as u8, words: 1, ..first };
    parts.iter().enumerate().all(follows).then_some(Part { words: parts.len() as u8, ..first })
}

/// The result's registers: those of the accumulator, or none that the instruction reads.
fn apart(inst: &mut Inst, to: VReg) {
    let reads = inst.regs.iter().any(|r| r.vreg == to && r.role.reads());
    inst.regs.retain(|r| r.vreg != to);
    let role = if reads { Role::Mod } else { Role::DefEarly };
    inst.regs.push(Operand { vreg: to, role, constraint: Constraint::Reg });
}
