//! The matrix unit: `mma.sync` on fragments whose halves stand two a register.

use super::code::{Code, Opd};
use super::{Render, Res, Src, Val, class_of};
use crate::uop::{Arg, Scalar, UOp};

impl Render<'_> {
    pub(super) fn wmma(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Wmma(unit) = u.arg() else { return Err(self.unsupported(u, "no unit")) };
        let name = unit.name;
        if !name.starts_with("mma.sync.") || !self.chip.has_sm80() {
            return Err(self.unsupported(u, "the chip has no such matrix unit"));
        }
        let mut ins = Vec::new();
        for operand in &u.src()[..2] {
            let lanes = self.val(operand)?;
            let t = operand.dtype().scalar;
            let words = lanes.chunks(2).map(|c| self.put_together(t, c).into()).collect();
            ins.push(Opd::Vector(words));
        }
        let acc = self.val(&u.src()[2])?;
        ins.push(Opd::Vector(acc.iter().map(|s| self.held(Scalar::F32, *s).into()).collect()));
        let outs: Vec<_> = acc.iter().map(|_| self.reg(class_of(unit.acc))).collect();
        self.code.push(Code { name, guard: None, outs: outs.clone(), tuple: true, ins });
        Ok(outs.into_iter().map(Src::Reg).collect())
    }
}
