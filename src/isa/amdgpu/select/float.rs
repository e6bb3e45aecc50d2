//! f32 and f64 arithmetic. Division, reciprocal and square root are correctly rounded, denormals kept.

use super::super::op;
use super::mir::{Code, Opd, Part};
use super::{Res, Select, Src};
use doorbell_codegen::regalloc::Role;
use doorbell_uop::{Op, Scalar, UOp};

const ONE: Src = Src::Bits(0x3f80_0000);
const ONE_64: Src = Src::Bits(0x3ff0_0000_0000_0000);
const NAN: Src = Src::Bits(0x7fc0_0000);
const NAN_64: Src = Src::Bits(0x7ff8_0000_0000_0000);

impl Select<'_> {
    pub(super) fn float_op(&mut self, op: Op, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::Add => self.fin_commuting(op::V_ADD_F32, a),
            Op::Sub if self.is_uniform(a[1]) && !self.is_uniform(a[0]) => self.fin(op::V_SUBREV_F32, &[a[1], a[0]]),
            Op::Sub => self.fin(op::V_SUB_F32, a),
            Op::Mul => self.fin_commuting(op::V_MUL_F32, a),
            Op::MulAcc => self.fin(op::V_FMA_F32, a),
            Op::Neg => self.fin(op::V_XOR_B32, &[Src::Bits(0x8000_0000), a[0]]),
            Op::Trunc => self.fin(op::V_TRUNC_F32, a),
            Op::Max => self.max_float(Scalar::F32, a[0], a[1]),
            Op::FDiv => self.divide_f32(a[0], a[1]),
            Op::Recip => self.divide_f32(ONE, a[0]),
            Op::Sqrt => self.sqrt_f32(a[0]),
            Op::Ldexp => {
                let exponent = self.v(op::V_CVT_I32_F32, &a[1..])?;
                self.fin(op::V_LDEXP_F32, &[a[0], exponent])
            }
            _ => Err(self.unsupported(u, "no f32 operation")),
        }
    }

    pub(super) fn double_op(&mut self, op: Op, a: &[Src], u: &UOp) -> Res<Src> {
        match op {
            Op::Add => self.f64_fin(op::V_ADD_F64, a, 0),
            Op::Sub => self.f64_fin(op::V_ADD_F64, a, 2),
            Op::Mul => self.f64_fin(op::V_MUL_F64, a, 0),
            Op::MulAcc => self.f64_fin(op::V_FMA_F64, a, 0),
            Op::Trunc => self.f64_fin(op::V_TRUNC_F64, a, 0),
            Op::Neg => {
                let (low, high) = (self.word(a[0], 0), self.word(a[0], 1));
                let to = self.v_part(2);
                self.copy_to(Part { words: 1, ..to }, low)?;
                self.v_to(op::V_XOR_B32, Part { sub: 1, words: 1, ..to }, &[Src::Bits(0x8000_0000), high])
                    .map(|_| Src::Part(to))
            }
            Op::Max => self.max_float(Scalar::F64, a[0], a[1]),
            Op::FDiv => self.divide_f64(a[0], a[1]),
            Op::Recip => self.divide_f64(ONE_64, a[0]),
            Op::Sqrt => self.sqrt_f64(a[0]),
            Op::Ldexp => {
                let exponent = self.v(op::V_CVT_I32_F64, &a[1..])?;
                self.ldexp_f64(a[0], exponent)
            }
            _ => Err(self.unsupported(u, "no f64 operation")),
        }
    }

    /// An operation on doubles into a new pair; `neg`: sources with the sign turned.
    pub(super) fn f64(&mut self, op: super::super::Op, a: &[Src], neg: u8) -> Res<Src> {
        let to = self.v_part(2);
        self.f64_to(op, to, a, neg)
    }

    fn f64_fin(&mut self, op: super::super::Op, a: &[Src], neg: u8) -> Res<Src> {
        let to = self.result(2);
        self.f64_to(op, to, a, neg)
    }

    fn f64_to(&mut self, op: super::super::Op, to: Part, a: &[Src], neg: u8) -> Res<Src> {
        let mut opds: Vec<Opd> = vec![to.into()];
        for s in a {
            opds.push(self.opd_f64(*s)?);
        }
        self.run(Code::new(op, &opds).neg(neg))?;
        Ok(Src::Part(to))
    }

    /// f32 with signs of sources turned.
    fn f32(&mut self, op: super::super::Op, a: &[Src], neg: u8) -> Res<Src> {
        let to = self.v_part(1);
        let mut opds: Vec<Opd> = vec![to.into()];
        opds.extend(a.iter().map(|s| self.opd(*s)));
        self.run(Code::new(op, &opds).neg(neg))?;
        Ok(Src::Part(to))
    }

    /// The larger one; a NaN among them wins.
    fn max_float(&mut self, t: Scalar, a: Src, b: Src) -> Res<Src> {
        let double = t == Scalar::F64;
        let max = if double { op::V_MAX_F64 } else { op::V_MAX_F32 };
        let wanted = self.wanted.take();
        let checked = |s: Src| match s {
            Src::Bits(bits) if double => f64::from_bits(bits).is_nan(),
            Src::Bits(bits) => f32::from_bits(bits as u32).is_nan(),
            _ => true,
        };
        let (ca, cb) = (checked(a), checked(b));
        if self.program.fast_math || (!ca && !cb) {
            self.wanted = wanted;
            return if double { self.f64_fin(max, &[a, b], 0) } else { self.fin_commuting(max, &[a, b]) };
        }
        let larger = match double {
            true => self.f64(max, &[a, b], 0)?,
            false => self.fin_commuting(max, &[a, b])?,
        };
        let (x, y) = (if ca { a } else { b }, if cb { b } else { a });
        let unordered = self.mask_part();
        let (code, opds) = match double {
            true => (op::V_CMP_U_F64, [self.opd_f64(x)?, self.opd_f64(y)?]),
            false => (op::V_CMP_U_F32, [self.opd(x), self.opd(y)]),
        };
        self.run(Code::new(code, &[unordered.into(), opds[0], opds[1]]))?;
        self.wanted = wanted;
        self.choose(t, Src::Part(unordered), if double { NAN_64 } else { NAN }, larger)
    }

    /// `v_div_scale`: the scaled operand; whether the last step must undo it goes to VCC if requested.
    fn div_scale(&mut self, double: bool, of: Src, (n, d): (Src, Src), flag: Option<Part>) -> Res<Src> {
        let to = self.v_part(if double { 2 } else { 1 });
        let code = if double { op::V_DIV_SCALE_F64 } else { op::V_DIV_SCALE_F32 };
        let mask = flag.map_or(Opd::Given(self.nowhere()), Opd::Part);
        let srcs = match double {
            true => [self.opd_f64(of)?, self.opd_f64(d)?, self.opd_f64(n)?],
            false => [self.opd(of), self.opd(d), self.opd(n)],
        };
        let inst = self.run(Code::new(code, &[to.into(), mask, srcs[0], srcs[1], srcs[2]]))?;
        if let Some(flag) = flag {
            let tied = inst.clone().in_vcc(flag.reg, Role::Def);
            *inst = tied;
        }
        Ok(Src::Part(to))
    }

    /// Constants in registers: the three operands of `v_div_scale` must be the same registers throughout.
    fn settled(&mut self, x: Src, words: u8) -> Res<Src> {
        Ok(Src::Part(self.in_vgpr(x, words)?))
    }

    /// The last but one step of a division: a fused step that undoes the scale.
    fn div_fmas(&mut self, double: bool, a: [Src; 3], flag: Part) -> Res<Src> {
        let to = self.v_part(if double { 2 } else { 1 });
        let code = if double { op::V_DIV_FMAS_F64 } else { op::V_DIV_FMAS_F32 };
        let inst = self.run(Code::new(code, &[to.into(), self.opd(a[0]), self.opd(a[1]), self.opd(a[2])]))?;
        let tied = inst.clone().in_vcc(flag.reg, Role::Use);
        *inst = tied;
        Ok(Src::Part(to))
    }

    /// n / d: scaled, a reciprocal refined by fused steps, the scale undone (docs/amd-isa.md 5.9).
    fn divide_f32(&mut self, n: Src, d: Src) -> Res<Src> {
        let wanted = self.wanted.take();
        let (n, d) = (self.settled(n, 1)?, self.settled(d, 1)?);
        let ds = self.div_scale(false, d, (n, d), None)?;
        let r = self.v(op::V_RCP_F32, &[ds])?;
        let e = self.f32(op::V_FMA_F32, &[ds, r, ONE], 1)?;
        let r = self.f32(op::V_FMA_F32, &[e, r, r], 0)?;
        let flag = self.mask_part();
        let ns = self.div_scale(false, n, (n, d), Some(flag))?;
        let q = self.v(op::V_MUL_F32, &[ns, r])?;
        let e = self.f32(op::V_FMA_F32, &[ds, q, ns], 1)?;
        let q = self.f32(op::V_FMA_F32, &[e, r, q], 0)?;
        let e = self.f32(op::V_FMA_F32, &[ds, q, ns], 1)?;
        let q = self.div_fmas(false, [e, r, q], flag)?;
        self.wanted = wanted;
        self.fin(op::V_DIV_FIXUP_F32, &[q, d, n])
    }

    fn divide_f64(&mut self, n: Src, d: Src) -> Res<Src> {
        let (n, d) = (self.settled(n, 2)?, self.settled(d, 2)?);
        let ds = self.div_scale(true, d, (n, d), None)?;
        let mut r = self.f64(op::V_RCP_F64, &[ds], 0)?;
        for _ in 0..2 {
            let e = self.f64(op::V_FMA_F64, &[ds, r, ONE_64], 1)?;
            r = self.f64(op::V_FMA_F64, &[r, e, r], 0)?;
        }
        let flag = self.mask_part();
        let ns = self.div_scale(true, n, (n, d), Some(flag))?;
        let q = self.f64(op::V_MUL_F64, &[ns, r], 0)?;
        let e = self.f64(op::V_FMA_F64, &[ds, q, ns], 1)?;
        let q = self.div_fmas(true, [e, r, q], flag)?;
        self.f64_fin(op::V_DIV_FIXUP_F64, &[q, d, n], 0)
    }

    /// The hardware's root is good to one unit: the neighbours are tried by exact residues.
    fn sqrt_f32(&mut self, x: Src) -> Res<Src> {
        let wanted = self.wanted.take();
        let x = self.settled(x, 1)?;
        // Below 2^-96 the residues would lose bits.
        let small = self.compare(Op::CmpLt, Scalar::F32, x, Src::Bits(0x0f80_0000))?;
        let up = self.v(op::V_MUL_F32, &[Src::Bits(0x4f80_0000), x])?;
        let scaled = self.choose(Scalar::F32, small, up, x)?;
        let s = self.v(op::V_SQRT_F32, &[scaled])?;
        let below = self.v(op::V_ADD_NC_U32, &[Src::Bits(0xffff_ffff), s])?;
        let above = self.v(op::V_ADD_NC_U32, &[Src::Bits(1), s])?;
        let under = self.f32(op::V_FMA_F32, &[below, s, scaled], 1)?;
        let over = self.f32(op::V_FMA_F32, &[above, s, scaled], 1)?;
        let lower = self.mask_part();
        self.run(Code::new(op::V_CMP_GE_F32, &[lower.into(), 0.into(), self.opd(under)]))?;
        let down = self.choose(Scalar::F32, Src::Part(lower), below, s)?;
        let bigger = self.compare(Op::CmpLt, Scalar::F32, Src::Bits(0), over)?;
        let s = self.choose(Scalar::F32, bigger, above, down)?;
        let back = self.v(op::V_MUL_F32, &[Src::Bits(0x3780_0000), s])?;
        let s = self.choose(Scalar::F32, small, back, s)?;
        // Zeros and +infinity are their own roots; a NaN fails both tests.
        let own = self.class_mask(false, x)?;
        self.wanted = wanted;
        self.choose(Scalar::F32, own, x, s)
    }

    /// Both zeros and +infinity.
    fn class_mask(&mut self, double: bool, x: Src) -> Res<Src> {
        let to = self.mask_part();
        let code = if double { op::V_CMP_CLASS_F64 } else { op::V_CMP_CLASS_F32 };
        self.run(Code::new(code, &[to.into(), self.opd(x), self.opd(Src::Bits(0x260))]))?;
        Ok(Src::Part(to))
    }

    /// Goldschmidt's iteration from the reciprocal root, then two exact corrections.
    fn sqrt_f64(&mut self, x: Src) -> Res<Src> {
        let half = Src::Bits(0x3fe0_0000_0000_0000);
        let x = self.settled(x, 2)?;
        let small = self.compare(Op::CmpLt, Scalar::F64, x, Src::Bits(0x1000_0000_0000_0000))?;
        let exponent = self.choose(Scalar::U32, small, Src::Bits(256), Src::Bits(0))?;
        let scaled = self.ldexp_f64(x, exponent)?;
        let y = self.f64(op::V_RSQ_F64, &[scaled], 0)?;
        let s = self.f64(op::V_MUL_F64, &[scaled, y], 0)?;
        let h = self.f64(op::V_MUL_F64, &[y, half], 0)?;
        let r = self.f64(op::V_FMA_F64, &[h, s, half], 1)?;
        let h = self.f64(op::V_FMA_F64, &[h, r, h], 0)?;
        let mut s = self.f64(op::V_FMA_F64, &[s, r, s], 0)?;
        for _ in 0..2 {
            let d = self.f64(op::V_FMA_F64, &[s, s, scaled], 1)?;
            s = self.f64(op::V_FMA_F64, &[d, h, s], 0)?;
        }
        let down = self.choose(Scalar::U32, small, Src::Bits(0xffff_ff80), Src::Bits(0))?;
        let s = self.ldexp_f64(s, down)?;
        let own = self.class_mask(true, x)?;
        self.choose(Scalar::F64, own, x, s)
    }

    pub(super) fn ldexp_f64(&mut self, x: Src, exponent: Src) -> Res<Src> {
        let to = self.v_part(2);
        let value = self.opd_f64(x)?;
        self.run(Code::new(op::V_LDEXP_F64, &[to.into(), value, self.opd(exponent)]))?;
        Ok(Src::Part(to))
    }
}
