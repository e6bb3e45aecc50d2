//! 64-bit integers in pairs of registers.

use super::super::op;
use super::mir::{Code, Part};
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar, UOp};

impl Select<'_> {
    pub(super) fn wide_op(&mut self, op: Op, t: Scalar, a: &[Src], u: &UOp) -> Res<Src> {
        let uniform = a.iter().all(|s| self.is_uniform(*s));
        match op {
            Op::CDiv | Op::CMod => self.divide_wide(op, t, a[0], a[1]),
            Op::Trunc => Ok(a[0]),
            Op::Add => self.add_wide(a[0], a[1]),
            Op::Sub => self.sub_wide(a[0], a[1]),
            Op::Neg => self.sub_wide(Src::Bits(0), a[0]),
            Op::Mul => self.mul_wide(a[0], a[1]),
            Op::MulAcc => {
                let wanted = self.wanted.take();
                let product = self.mul_wide(a[0], a[1])?;
                self.wanted = wanted;
                self.add_wide(product, a[2])
            }
            Op::And | Op::Or | Op::Xor => self.logic_wide(op, a[0], a[1], uniform),
            Op::Max => {
                let wanted = self.wanted.take();
                let less = self.compare(Op::CmpLt, t, a[0], a[1])?;
                self.wanted = wanted;
                self.choose(t, less, a[1], a[0])
            }
            Op::Shl | Op::Shr => self.shift_wide(op, t, a[0], a[1]),
            _ => Err(self.unsupported(u, "no 64-bit integer operation")),
        }
    }

    fn halves(to: Part) -> (Part, Part) {
        (Part { words: 1, ..to }, Part { sub: to.sub + 1, words: 1, ..to })
    }

    pub(super) fn add_wide(&mut self, a: Src, b: Src) -> Res<Src> {
        self.carry_chain(a, b, [op::S_ADD_U32, op::S_ADDC_U32], [op::V_ADD_CO_U32, op::V_ADD_CO_CI_U32])
    }

    pub(super) fn sub_wide(&mut self, a: Src, b: Src) -> Res<Src> {
        self.carry_chain(a, b, [op::S_SUB_U32, op::S_SUBB_U32], [op::V_SUB_CO_U32, op::V_SUB_CO_CI_U32])
    }

    fn carry_chain(
        &mut self,
        a: Src,
        b: Src,
        scalar: [super::super::Op; 2],
        vector: [super::super::Op; 2],
    ) -> Res<Src> {
        let [al, ah, bl, bh] =
            [self.word(a, 0), self.word(a, 1), self.word(b, 0), self.word(b, 1)].map(|s| self.opd(s));
        if self.is_uniform(a) && self.is_uniform(b) {
            let to = self.s_part(2);
            let (lo, hi) = Self::halves(to);
            self.run_all(vec![Code::new(scalar[0], &[lo.into(), al, bl]), Code::new(scalar[1], &[hi.into(), ah, bh])])?;
            return Ok(Src::Part(to));
        }
        // Not in the requested register: the low half would be written before the high one is read.
        let to = self.v_part(2);
        let (lo, hi) = Self::halves(to);
        let carry = self.mask_part();
        self.run(Code::new(vector[0], &[lo.into(), carry.into(), al, bl]))?;
        let out = self.carry_out();
        self.run(Code::new(vector[1], &[hi.into(), out, ah, bh, carry.into()]))?;
        Ok(Src::Part(to))
    }

    /// A mask register for a carry that is not read.
    fn carry_out(&mut self) -> super::mir::Opd {
        super::mir::Opd::Given(self.nowhere())
    }

    pub(super) fn mul_wide(&mut self, a: Src, b: Src) -> Res<Src> {
        let [al, ah, bl, bh] = [self.word(a, 0), self.word(a, 1), self.word(b, 0), self.word(b, 1)];
        if self.is_uniform(a) && self.is_uniform(b) {
            let low = self.s(op::S_MUL_I32, &[al, bl])?;
            let high = self.s(op::S_MUL_HI_U32, &[al, bl])?;
            let (x, y) = (self.s(op::S_MUL_I32, &[al, bh])?, self.s(op::S_MUL_I32, &[ah, bl])?);
            let high = self.s(op::S_ADD_I32, &[high, x])?;
            let high = self.s(op::S_ADD_I32, &[high, y])?;
            return self.pair_scalar(low, high);
        }
        let to = self.v_part(2);
        let (lo, hi) = Self::halves(to);
        let high = self.v(op::V_MUL_HI_U32, &[al, bl])?;
        let (x, y) = (self.v(op::V_MUL_LO_U32, &[al, bh])?, self.v(op::V_MUL_LO_U32, &[ah, bl])?);
        self.v_to(op::V_MUL_LO_U32, lo, &[al, bl])?;
        self.v_to(op::V_ADD3_U32, hi, &[high, x, y])?;
        Ok(Src::Part(to))
    }

    /// Two scalar words as a pair.
    pub(super) fn pair_scalar(&mut self, low: Src, high: Src) -> Res<Src> {
        let to = self.s_part(2);
        let (lo, hi) = Self::halves(to);
        self.run(Code::new(op::S_MOV_B32, &[lo.into(), self.opd(low)]))?;
        self.run(Code::new(op::S_MOV_B32, &[hi.into(), self.opd(high)]))?;
        Ok(Src::Part(to))
    }

    /// Two words as a pair of vector registers.
    pub(super) fn pair(&mut self, low: Src, high: Src) -> Res<Src> {
        let to = self.v_part(2);
        let (lo, hi) = Self::halves(to);
        self.copy_to(lo, low)?;
        self.copy_to(hi, high)?;
        Ok(Src::Part(to))
    }

    fn logic_wide(&mut self, op: Op, a: Src, b: Src, uniform: bool) -> Res<Src> {
        let (scalar, vector) = match op {
            Op::And => (op::S_AND_B32, op::V_AND_B32),
            Op::Or => (op::S_OR_B32, op::V_OR_B32),
            _ => (op::S_XOR_B32, op::V_XOR_B32),
        };
        let to = if uniform { self.s_part(2) } else { self.result(2) };
        let (lo, hi) = Self::halves(to);
        for (k, half) in [lo, hi].into_iter().enumerate() {
            let (x, y) = (self.word(a, k as u8), self.word(b, k as u8));
            let (x, y) = if self.is_uniform(y) && !uniform { (y, x) } else { (x, y) };
            self.v_to(if uniform { scalar } else { vector }, half, &[x, y])?;
        }
        Ok(Src::Part(to))
    }

    fn shift_wide(&mut self, op: Op, t: Scalar, x: Src, count: Src) -> Res<Src> {
        let left = op == Op::Shl;
        let arithmetic = !left && t.is_signed();
        if let Src::Bits(n) = count {
            let n = match n {
                0..64 => n,
                _ if arithmetic => 63,
                _ => return Ok(Src::Bits(0)),
            };
            return self.shift_wide_by(left, arithmetic, x, Src::Bits(n));
        }
        let low = self.word(count, 0);
        let in_range = self.compare(Op::CmpLt, Scalar::U64, count, Src::Bits(64))?;
        if arithmetic {
            let capped = self.choose(Scalar::U32, in_range, low, Src::Bits(63))?;
            return self.shift_wide_by(left, arithmetic, x, capped);
        }
        let shifted = self.shift_wide_by(left, arithmetic, x, low)?;
        self.choose(t, in_range, shifted, Src::Bits(0))
    }

    /// A shift by less than 64.
    pub(super) fn shift_wide_by(&mut self, left: bool, arithmetic: bool, x: Src, count: Src) -> Res<Src> {
        let value = self.opd_wide(x)?;
        if self.is_uniform(x) && self.is_uniform(count) {
            let to = self.s_part(2);
            let code = match (left, arithmetic) {
                (true, _) => op::S_LSHL_B64,
                (_, true) => op::S_ASHR_I64,
                _ => op::S_LSHR_B64,
            };
            self.run(Code::new(code, &[to.into(), value, self.opd(count)]))?;
            return Ok(Src::Part(to));
        }
        let code = match (left, arithmetic) {
            (true, _) => op::V_LSHLREV_B64,
            (_, true) => op::V_ASHRREV_I64,
            _ => op::V_LSHRREV_B64,
        };
        let to = self.v_part(2);
        self.run(Code::new(code, &[to.into(), self.opd(count), value]))?;
        Ok(Src::Part(to))
    }

    /// A 32-bit value as 64 bits.
    pub(super) fn widen(&mut self, x: Src, from: Scalar) -> Res<Src> {
        if let Src::Bits(b) = x {
            let wide = if from.is_signed() { i64::from(b as i32).cast_unsigned() } else { b };
            return Ok(Src::Bits(wide));
        }
        let uniform = self.is_uniform(x);
        let high = match (from.is_signed(), uniform) {
            (false, _) => Src::Bits(0),
            (true, true) => self.s(op::S_ASHR_I32, &[x, Src::Bits(31)])?,
            (true, false) => self.v(op::V_ASHRREV_I32, &[Src::Bits(31), x])?,
        };
        if uniform { self.pair_scalar(x, high) } else { self.pair(x, high) }
    }
}
