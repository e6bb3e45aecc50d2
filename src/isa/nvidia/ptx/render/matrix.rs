//! The matrix unit: `mma.sync` on fragments with one f32 (as tf32), two halves, or four bytes (integers or fp8) per
//! register.

use super::code::{Code, F, Opd, R, Reg};
use super::{Render, Res, Src, Val, class_of};
use doorbell_uop::{Arg, Scalar, UOp};

impl Render<'_> {
    pub(super) fn wmma(&mut self, u: &UOp) -> Res<Val> {
        let Arg::Wmma(unit) = u.arg() else { return Err(self.unsupported(u, "no unit")) };
        let name = unit.name;
        if !name.starts_with("mma.sync.") || !self.chip.has_sm80() || unit.a.is_fp8() && !self.chip.has_fp8() {
            return Err(self.unsupported(u, "the chip has no such matrix unit"));
        }
        // fp8 values arrive as their bits.
        let (t, acc_type) = (if unit.a.is_fp8() { Scalar::U8 } else { unit.a }, unit.acc);
        let mut words: [Vec<Opd>; 2] = Default::default();
        for (operand, words) in u.src()[..2].iter().zip(&mut words) {
            let lanes = self.val(operand)?;
            *words = lanes.chunks(4 / t.size_bytes()).map(|c| self.fragment_word(t, c).into()).collect();
        }
        let acc = self.val(&u.src()[2])?;
        let [a, b] = words;
        // Each instruction computes eight columns of the result.
        let columns = acc.len() / 4;
        let mut out = Val::new();
        for (sum, b) in acc.chunks(4).zip(b.chunks(b.len() / columns.max(1))) {
            let outs: Vec<_> = sum.iter().map(|_| self.reg(class_of(acc_type))).collect();
            let sum = sum.iter().map(|s| self.held(acc_type, *s).into()).collect();
            let ins = vec![Opd::Vector(a.clone()), Opd::Vector(b.to_vec()), Opd::Vector(sum)];
            self.code.push(Code { name, guard: None, outs: outs.clone(), tuple: true, ins });
            out.extend(outs.into_iter().map(Src::Reg));
        }
        Ok(out)
    }

    /// Elements of a fragment as a register: the bits of an f32, or packed smaller elements.
    fn fragment_word(&mut self, t: Scalar, lanes: &[Src]) -> Reg {
        let word = self.put_together(t, lanes);
        if word.class != F {
            return word;
        }
        let bits = self.reg(R);
        self.run("mov.b32", &[bits], vec![word.into()]);
        bits
    }
}
