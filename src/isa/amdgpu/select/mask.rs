//! Bools: lane masks in scalar registers. Masks that are the same for all threads come from scalar comparisons and are
//! all ones or all zeros; in others the bits of inactive lanes are undefined.

use super::super::op;
use super::mir::{Code, Part};
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar, UOp};

impl Select<'_> {
    /// Whether a mask is all ones or all zeros.
    pub(super) fn is_agreed(&self, c: Src) -> bool {
        match c {
            Src::Bits(_) => true,
            Src::Part(p) => self.agreed.contains(&p.reg),
            Src::Packed { .. } => false,
        }
    }

    /// The register for a mask that is a node's result.
    fn result_mask(&mut self) -> Part {
        let words = self.target.mask_words();
        match self.wanted.take() {
            Some(p) if p.words == words && self.is_scalar_part(p) => p,
            _ => self.mask_part(),
        }
    }

    pub(super) fn mask_logic(&mut self, op: Op, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::Add | Op::Or | Op::Max => self.mask_op2(Op::Or, a[0], a[1]),
            Op::Mul | Op::And => self.mask_op2(Op::And, a[0], a[1]),
            Op::Xor | Op::Sub => self.mask_op2(Op::Xor, a[0], a[1]),
            Op::Neg => Ok(a[0]),
            Op::MulAcc => {
                let wanted = self.wanted.take();
                let both = self.mask_op2(Op::And, a[0], a[1])?;
                self.wanted = wanted;
                self.mask_op2(Op::Or, both, a[2])
            }
            _ => Err(self.unsupported(u, "no operation on bools")),
        }
    }

    /// And, Or, Xor; CmpEq: Xnor; CmpLt: not a, and b.
    fn mask_op2(&mut self, op: Op, a: Src, b: Src) -> Res<Src> {
        let (a, b) = if op == Op::CmpLt { (b, a) } else { (a, b) };
        let code = match op {
            Op::And => self.mask_op(op::S_AND_B32, op::S_AND_B64),
            Op::Or => self.mask_op(op::S_OR_B32, op::S_OR_B64),
            Op::Xor => self.mask_op(op::S_XOR_B32, op::S_XOR_B64),
            Op::CmpEq => self.mask_op(op::S_XNOR_B32, op::S_XNOR_B64),
            _ => self.mask_op(op::S_AND_NOT1_B32, op::S_AND_NOT1_B64),
        };
        let agreed = self.is_agreed(a) && self.is_agreed(b);
        let to = self.result_mask();
        self.run(Code::new(code, &[to.into(), self.opd_mask(a), self.opd_mask(b)]))?;
        if agreed && !self.mutable.contains_key(&to.reg) {
            self.agreed.insert(to.reg);
        }
        Ok(Src::Part(to))
    }

    pub(super) fn choose_mask(&mut self, c: Src, a: Src, b: Src) -> Res<Src> {
        let wanted = self.wanted.take();
        let taken = self.mask_op2(Op::And, c, a)?;
        let other = self.mask_op2(Op::CmpLt, c, b)?;
        self.wanted = wanted;
        self.mask_op2(Op::Or, taken, other)
    }

    pub(super) fn compare(&mut self, op: Op, t: Scalar, a: Src, b: Src) -> Res<Src> {
        let wide = t.size_bytes() == 8;
        if t == Scalar::Bool {
            return self.mask_op2(if op == Op::CmpNe { Op::Xor } else { op }, a, b);
        }
        if t.is_int() && self.is_uniform(a) && self.is_uniform(b) && !(wide && op == Op::CmpLt) {
            return self.compare_scalar(op, t, a, b);
        }
        use Scalar::{F32, F64};
        let code = match (op, t, wide, t.is_signed()) {
            (Op::CmpLt, F32, ..) => op::V_CMP_LT_F32,
            (Op::CmpNe, F32, ..) => op::V_CMP_NEQ_F32,
            (_, F32, ..) => op::V_CMP_EQ_F32,
            (Op::CmpLt, F64, ..) => op::V_CMP_LT_F64,
            (Op::CmpNe, F64, ..) => op::V_CMP_NEQ_F64,
            (_, F64, ..) => op::V_CMP_EQ_F64,
            (Op::CmpLt, _, true, true) => op::V_CMP_LT_I64,
            (Op::CmpLt, _, true, false) => op::V_CMP_LT_U64,
            (Op::CmpLt, _, false, true) => op::V_CMP_LT_I32,
            (Op::CmpLt, _, false, false) => op::V_CMP_LT_U32,
            (Op::CmpNe, _, true, _) => op::V_CMP_NE_U64,
            (Op::CmpNe, _, false, _) => op::V_CMP_NE_U32,
            (_, _, true, _) => op::V_CMP_EQ_U64,
            (_, _, false, _) => op::V_CMP_EQ_U32,
        };
        let to = self.result_mask();
        let opds = match t {
            F64 => [self.opd_f64(a)?, self.opd_f64(b)?],
            _ if wide => [self.opd_wide(a)?, self.opd_wide(b)?],
            _ => [self.opd(a), self.opd(b)],
        };
        self.run(Code::new(code, &[to.into(), opds[0], opds[1]]))?;
        Ok(Src::Part(to))
    }

    fn compare_scalar(&mut self, op: Op, t: Scalar, a: Src, b: Src) -> Res<Src> {
        let wide = t.size_bytes() == 8;
        let test = match (op, wide, t.is_signed()) {
            (Op::CmpLt, _, true) => op::S_CMP_LT_I32,
            (Op::CmpLt, _, false) => op::S_CMP_LT_U32,
            (Op::CmpNe, false, _) => op::S_CMP_LG_U32,
            (_, false, _) => op::S_CMP_EQ_U32,
            (Op::CmpNe, true, _) => op::S_CMP_LG_U64,
            (_, true, _) => op::S_CMP_EQ_U64,
        };
        let [a, b] = if wide { [self.opd_wide(a)?, self.opd_wide(b)?] } else { [self.opd(a), self.opd(b)] };
        let to = self.mask_part();
        let select = self.mask_op(op::S_CSELECT_B32, op::S_CSELECT_B64);
        self.run_all(vec![Code::new(test, &[a, b]), Code::new(select, &[to.into(), (-1).into(), 0.into()])])?;
        self.agreed.insert(to.reg);
        Ok(Src::Part(to))
    }

    /// 0 or 1 (or these bits instead of 1) as 32 bits.
    pub(super) fn mask_to_bits(&mut self, c: Src, one: u64) -> Res<Src> {
        match c {
            Src::Bits(b) => Ok(Src::Bits(if b == 0 { 0 } else { one })),
            c if self.is_agreed(c) && one == 1 => {
                let low = self.word(c, 0);
                self.s(op::S_AND_B32, &[low, Src::Bits(1)])
            }
            c => {
                let to = self.result(1);
                let one = self.opd(Src::Bits(one));
                self.run(Code::new(op::V_CNDMASK_B32, &[to.into(), 0.into(), one, self.opd_mask(c)]))?;
                Ok(Src::Part(to))
            }
        }
    }
}
