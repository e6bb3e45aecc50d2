//! Integer division by values that are not constant (rounding toward zero). Divisors are never zero.

use super::super::op;
use super::mir::{Code, Part};
use super::{Res, Select, Src};
use doorbell_uop::{Op, Scalar};

impl Select<'_> {
    pub(super) fn divide_int(&mut self, op: Op, t: Scalar, a: Src, b: Src) -> Res<Src> {
        let uniform = self.is_uniform(a) && self.is_uniform(b);
        let r = self.without_home(|s| {
            if !t.is_signed() {
                return s.divide_u32(op, a, b);
            }
            let (sa, sb) = (s.sign_of(a)?, s.sign_of(b)?);
            let (ua, ub) = (s.negated_if(a, sa)?, s.negated_if(b, sb)?);
            let r = s.divide_u32(op, ua, ub)?;
            let sign = if op == Op::CDiv { s.v(op::V_XOR_B32, &[sa, sb])? } else { sa };
            s.negated_if(r, sign)
        })?;
        let r = if t.size_bytes() < 4 { self.without_home(|s| s.narrow(r, t))? } else { r };
        if uniform { self.first_lane(r) } else { Ok(r) }
    }

    fn sign_of(&mut self, x: Src) -> Res<Src> {
        self.v(op::V_ASHRREV_I32, &[Src::Bits(31), x])
    }

    /// -x where the sign is all ones, else x.
    fn negated_if(&mut self, x: Src, sign: Src) -> Res<Src> {
        let flipped = self.v(op::V_XOR_B32, &[x, sign])?;
        self.v(op::V_SUB_NC_U32, &[flipped, sign])
    }

    /// A value that all threads have, back in a scalar register.
    pub(super) fn first_lane(&mut self, x: Src) -> Res<Src> {
        let to = self.s_part(1);
        let x = self.in_vgpr(x, 1)?;
        self.run(Code::new(op::V_READFIRSTLANE_B32, &[to.into(), x.into()]))?;
        Ok(Src::Part(to))
    }

    /// By a reciprocal in f32 that errs downwards, one refinement, and two corrections of the quotient.
    fn divide_u32(&mut self, op: Op, n: Src, d: Src) -> Res<Src> {
        let (n, d) = (Src::Part(self.in_vgpr(n, 1)?), Src::Part(self.in_vgpr(d, 1)?));
        let f = self.v(op::V_CVT_F32_U32, &[d])?;
        let r = self.v(op::V_RCP_IFLAG_F32, &[f])?;
        let r = self.v(op::V_MUL_F32, &[Src::Bits(0x4f7f_fffe), r])?;
        let z = self.v(op::V_CVT_U32_F32, &[r])?;
        let minus = self.v(op::V_SUB_NC_U32, &[Src::Bits(0), d])?;
        let e = self.v(op::V_MUL_LO_U32, &[minus, z])?;
        let e = self.v(op::V_MUL_HI_U32, &[z, e])?;
        let z = self.v(op::V_ADD_NC_U32, &[z, e])?;
        let mut q = self.v(op::V_MUL_HI_U32, &[n, z])?;
        let product = self.v(op::V_MUL_LO_U32, &[q, d])?;
        let mut rest = self.v(op::V_SUB_NC_U32, &[n, product])?;
        for _ in 0..2 {
            let below = self.compare(Op::CmpLt, Scalar::U32, rest, d)?;
            if op == Op::CDiv {
                let more = self.v(op::V_ADD_NC_U32, &[Src::Bits(1), q])?;
                q = self.choose(Scalar::U32, below, q, more)?;
            }
            let less = self.v(op::V_SUB_NC_U32, &[rest, d])?;
            rest = self.choose(Scalar::U32, below, rest, less)?;
        }
        Ok(if op == Op::CDiv { q } else { rest })
    }

    /// 64 bits: one bit of the quotient an iteration of a loop.
    pub(super) fn divide_wide(&mut self, op: Op, t: Scalar, a: Src, b: Src) -> Res<Src> {
        self.without_home(|s| {
            if !t.is_signed() {
                return s.divide_u64(op, a, b);
            }
            let (sa, sb) = (s.word_sign(a)?, s.word_sign(b)?);
            let (pa, pb) = (s.pair(sa, sa)?, s.pair(sb, sb)?);
            let (fa, fb) = (s.wide_xor(a, pa)?, s.wide_xor(b, pb)?);
            let (ua, ub) = (s.sub_wide(fa, pa)?, s.sub_wide(fb, pb)?);
            let r = s.divide_u64(op, ua, ub)?;
            let sign = if op == Op::CDiv { s.wide_xor(pa, pb)? } else { pa };
            let flipped = s.wide_xor(r, sign)?;
            s.sub_wide(flipped, sign)
        })
    }

    fn divide_u64(&mut self, op: Op, n: Src, d: Src) -> Res<Src> {
        // The dividend is shifted out to the left as the quotient is shifted in from the right.
        let (quotient, rest) = (self.v_part(2), self.v_part(2));
        let d = match d {
            Src::Part(p) if !self.is_scalar_part(p) => d,
            d => self.pair(self.word(d, 0), self.word(d, 1))?,
        };
        self.copy_to(quotient, n)?;
        self.copy_to(rest, Src::Bits(0))?;
        let counter = self.s_part(1);
        let top = self.func.label();
        self.run(Code::new(op::S_MOV_B32, &[counter.into(), 64.into()]))?;
        self.place_label(top);
        let (q, r) = (Src::Part(quotient), Src::Part(rest));
        let bit = self.v(op::V_LSHRREV_B32, &[Src::Bits(31), self.word(q, 1)])?;
        let doubled = self.shift_wide_by(true, false, r, Src::Bits(1))?;
        let low = self.v(op::V_OR_B32, &[self.word(doubled, 0), bit])?;
        let r2 = self.pair(low, self.word(doubled, 1))?;
        let q2 = self.shift_wide_by(true, false, q, Src::Bits(1))?;
        let below = self.compare(Op::CmpLt, Scalar::U64, r2, d)?;
        let less = self.sub_wide(r2, d)?;
        let r3 = self.choose(Scalar::U64, below, r2, less)?;
        let with_bit = self.v(op::V_OR_B32, &[Src::Bits(1), self.word(q2, 0)])?;
        let low = self.choose(Scalar::U32, below, self.word(q2, 0), with_bit)?;
        self.copy_to(rest, r3)?;
        self.copy_to(Part { words: 1, ..quotient }, low)?;
        self.copy_to(Part { sub: 1, words: 1, ..quotient }, self.word(q2, 1))?;
        self.run(Code::new(op::S_SUB_I32, &[counter.into(), counter.into(), 1.into()]))?;
        self.count_down(counter, top)?;
        let out = if op == Op::CDiv { q } else { r };
        let Src::Part(out) = out else { return Ok(out) };
        Ok(Src::Part(self.copy(out)?))
    }
}
