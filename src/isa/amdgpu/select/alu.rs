//! Elementwise operations on one lane: which rule selects them.

use super::super::op;
use super::mir::Code;
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar, UOp};

impl Select<'_> {
    pub(super) fn alu(&mut self, u: &UOp, a: &[Src]) -> Res<Src> {
        match u.op() {
            Op::Where => self.choose(u.dtype().scalar, a[0], a[1], a[2]),
            Op::CmpLt | Op::CmpNe | Op::CmpEq => self.compare(u.op(), u.src()[0].dtype().scalar, a[0], a[1]),
            op => self.alu_op(op, u.dtype().scalar, a, u),
        }
    }

    /// An operation whose operands and result have one type.
    pub(super) fn alu_op(&mut self, op: Op, t: Scalar, a: &[Src], u: &UOp) -> Res<Src> {
        match t {
            Scalar::Bool => self.mask_logic(op, a, u),
            Scalar::F32 => self.float_op(op, a, u),
            Scalar::F64 => self.double_op(op, a, u),
            t if t.is_int() && t.size_bytes() == 8 => self.wide_op(op, t, a, u),
            t if t.is_int() => self.int_op(op, t, a, u),
            Scalar::F16 => self.half_op(op, a, u),
            _ => Err(self.unsupported(u, "bf16 computes in f32")),
        }
    }

    /// `c ? a : b`.
    pub(super) fn choose(&mut self, t: Scalar, c: Src, a: Src, b: Src) -> Res<Src> {
        if let Src::Bits(c) = c {
            return Ok(if c == 0 { b } else { a });
        }
        if t == Scalar::Bool {
            return self.choose_mask(c, a, b);
        }
        let words = self.words(t);
        if self.is_agreed(c) && self.is_uniform(a) && self.is_uniform(b) {
            return self.choose_scalar(words, c, a, b);
        }
        let to = self.result(words);
        let c = self.opd_mask(c);
        for k in 0..words {
            let word = super::mir::Part { sub: to.sub + k, words: 1, ..to };
            let (a, b) = (self.word(a, k), self.word(b, k));
            let code = Code::new(op::V_CNDMASK_B32, &[word.into(), self.opd(b), self.opd(a), c]);
            self.run(code)?;
        }
        Ok(Src::Part(to))
    }

    fn choose_scalar(&mut self, words: u8, c: Src, a: Src, b: Src) -> Res<Src> {
        let to = self.s_part(words);
        let test = self.mask_op(op::S_CMP_LG_U32, op::S_CMP_LG_U64);
        let mut codes = vec![Code::new(test, &[self.opd_mask(c), 0.into()])];
        for k in 0..words {
            let word = super::mir::Part { sub: k, words: 1, ..to };
            let (a, b) = (self.word(a, k), self.word(b, k));
            codes.push(Code::new(op::S_CSELECT_B32, &[word.into(), self.opd(a), self.opd(b)]));
        }
        self.run_all(codes)?;
        Ok(Src::Part(to))
    }
}
