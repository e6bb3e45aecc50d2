//! Integers of up to 32 bits, kept extended to 32: on the scalar unit where all threads share the value, else on the
//! vector unit.

use super::super::op;
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar, UOp};

impl Select<'_> {
    pub(super) fn int_op(&mut self, op: Op, t: Scalar, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::CDiv | Op::CMod => return self.divide_int(op, t, a[0], a[1]),
            Op::Shl | Op::Shr => return self.shift(op, t, a[0], a[1]),
            Op::Trunc => return Ok(a[0]),
            _ => {}
        }
        let uniform = a.iter().all(|s| self.is_uniform(*s));
        let grows = t.size_bytes() < 4 && !matches!(op, Op::And | Op::Or | Op::Xor | Op::Max);
        let wanted = self.wanted.take();
        if !grows {
            self.wanted = wanted;
        }
        let r = if uniform { self.int_scalar(op, t, a, u)? } else { self.int_vector(op, t, a, u)? };
        if !grows {
            return Ok(r);
        }
        self.wanted = wanted;
        self.narrow(r, t)
    }

    fn int_scalar(&mut self, op: Op, t: Scalar, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::Add => self.s(op::S_ADD_I32, a),
            Op::Sub => self.s(op::S_SUB_I32, a),
            Op::Mul => self.s(op::S_MUL_I32, a),
            Op::And => self.s(op::S_AND_B32, a),
            Op::Or => self.s(op::S_OR_B32, a),
            Op::Xor => self.s(op::S_XOR_B32, a),
            Op::Max if t.is_signed() => self.s(op::S_MAX_I32, a),
            Op::Max => self.s(op::S_MAX_U32, a),
            Op::Neg => self.s(op::S_SUB_I32, &[Src::Bits(0), a[0]]),
            Op::MulAcc => {
                let product = self.s(op::S_MUL_I32, &a[..2])?;
                self.s(op::S_ADD_I32, &[product, a[2]])
            }
            _ => Err(self.unsupported(u, "no integer operation")),
        }
    }

    fn int_vector(&mut self, op: Op, t: Scalar, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::Add => self.fin_commuting(op::V_ADD_NC_U32, a),
            Op::Sub => self.fin(op::V_SUB_NC_U32, a),
            Op::Mul => {
                let wanted = self.wanted.take();
                let code =
                    if self.is_short(u, 0) && self.is_short(u, 1) { op::V_MUL_U32_U24 } else { op::V_MUL_LO_U32 };
                self.wanted = wanted;
                self.fin_commuting(code, a)
            }
            Op::And => self.fin_commuting(op::V_AND_B32, a),
            Op::Or => self.fin_commuting(op::V_OR_B32, a),
            Op::Xor => self.fin_commuting(op::V_XOR_B32, a),
            Op::Max if t.is_signed() => self.fin_commuting(op::V_MAX_I32, a),
            Op::Max => self.fin_commuting(op::V_MAX_U32, a),
            Op::Neg => self.fin(op::V_SUB_NC_U32, &[Src::Bits(0), a[0]]),
            Op::MulAcc => {
                if self.is_short(u, 0) && self.is_short(u, 1) {
                    return self.fin(op::V_MAD_U32_U24, a);
                }
                let product = self.v(op::V_MUL_LO_U32, &a[..2])?;
                self.fin(op::V_ADD_NC_U32, &[product, a[2]])
            }
            _ => Err(self.unsupported(u, "no integer operation")),
        }
    }

    /// The short encodings need a vector register second.
    pub(super) fn fin_commuting(&mut self, op: super::super::Op, a: &[Src]) -> Res<Src> {
        if self.is_uniform(a[1]) { self.fin(op, &[a[1], a[0]]) } else { self.fin(op, a) }
    }

    /// Whether source `k` fits in 24 bits.
    fn is_short(&self, u: &UOp, k: usize) -> bool {
        let fits = |s: &UOp| s.vmin() >= 0 && s.vmax() < 1 << 24;
        matches!(u.op(), Op::Mul | Op::MulAcc) && u.src().get(k).is_some_and(fits)
    }

    /// Extends the low bits of a small type again.
    pub(super) fn narrow(&mut self, x: Src, t: Scalar) -> Res<Src> {
        if let Src::Bits(b) = x {
            return Ok(Src::Bits(super::extend(b, t)));
        }
        let uniform = self.is_uniform(x);
        match (t, uniform) {
            (Scalar::I8, true) => self.s(op::S_SEXT_I32_I8, &[x]),
            (Scalar::I16, true) => self.s(op::S_SEXT_I32_I16, &[x]),
            (Scalar::U8, true) => self.s(op::S_AND_B32, &[x, Src::Bits(0xff)]),
            (Scalar::U16, true) => self.s(op::S_AND_B32, &[x, Src::Bits(0xffff)]),
            (Scalar::I8, false) => self.fin(op::V_BFE_I32, &[x, Src::Bits(0), Src::Bits(8)]),
            (Scalar::I16, false) => self.fin(op::V_BFE_I32, &[x, Src::Bits(0), Src::Bits(16)]),
            (Scalar::U8, false) => self.fin(op::V_AND_B32, &[Src::Bits(0xff), x]),
            (Scalar::U16, false) => self.fin(op::V_AND_B32, &[Src::Bits(0xffff), x]),
            _ => Ok(x),
        }
    }

    /// Shifts as repeated shifts by one bit: counts from the width on leave 0, or copies of the sign.
    fn shift(&mut self, op: Op, t: Scalar, x: Src, count: Src) -> Res<Src> {
        let left = op == Op::Shl;
        let arithmetic = !left && t.is_signed();
        let wanted = self.wanted.take();
        let small = t.size_bytes() < 4;
        if let Src::Bits(n) = count {
            let n = n & 0xffff_ffff;
            let n = if n < 32 {
                n
            } else if arithmetic {
                31
            } else {
                return Ok(Src::Bits(0));
            };
            if !(left && small) {
                self.wanted = wanted;
                return self.shift_by(left, arithmetic, x, Src::Bits(n));
            }
            let r = self.shift_by(left, arithmetic, x, Src::Bits(n))?;
            self.wanted = wanted;
            return self.narrow(r, t);
        }
        let r = if arithmetic {
            let capped = match self.is_uniform(count) {
                true => self.s(op::S_MIN_U32, &[count, Src::Bits(31)])?,
                false => self.v(op::V_MIN_U32, &[Src::Bits(31), count])?,
            };
            self.shift_by(left, arithmetic, x, capped)?
        } else {
            let shifted = self.shift_by(left, arithmetic, x, count)?;
            let within = self.compare(Op::CmpLt, Scalar::U32, count, Src::Bits(32))?;
            self.choose(Scalar::U32, within, shifted, Src::Bits(0))?
        };
        self.wanted = wanted;
        if left && small { self.narrow(r, t) } else { Ok(r) }
    }

    /// A shift by less than 32.
    fn shift_by(&mut self, left: bool, arithmetic: bool, x: Src, count: Src) -> Res<Src> {
        if self.is_uniform(x) && self.is_uniform(count) {
            let code = match (left, arithmetic) {
                (true, _) => op::S_LSHL_B32,
                (_, true) => op::S_ASHR_I32,
                _ => op::S_LSHR_B32,
            };
            return self.s(code, &[x, count]);
        }
        let code = match (left, arithmetic) {
            (true, _) => op::V_LSHLREV_B32,
            (_, true) => op::V_ASHRREV_I32,
            _ => op::V_LSHRREV_B32,
        };
        self.fin(code, &[count, x])
    }
}
