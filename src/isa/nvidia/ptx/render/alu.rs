//! Arithmetic, comparisons and selects on one lane.

use super::code::{F, FD, H, Opd, P, R, RD};
use super::{Render, Res, Src, class_of};
use doorbell_uop::{Op, Scalar, UOp};

const NAN_F32: u64 = 0x7fff_ffff;
const NAN_F64: u64 = 0x7fff_ffff_ffff_ffff;

impl Render<'_> {
    /// An operation whose operands and result have the same type.
    pub(super) fn alu(&mut self, u: &UOp, op: Op, t: Scalar, a: &[Src]) -> Res<Src> {
        let r = match t {
            Scalar::Bool => self.bool_op(op, a),
            Scalar::F32 | Scalar::F64 => self.float_op(op, t, a),
            Scalar::F16 => self.half_op(op, a),
            t if t.is_int() => self.int_op(op, t, a),
            _ => None,
        };
        r.ok_or_else(|| self.unsupported(u, "no instruction for this type"))
    }

    fn opds(&mut self, t: Scalar, a: &[Src]) -> Vec<Opd> {
        a.iter().map(|s| self.opd(t, *s)).collect()
    }

    fn float_op(&mut self, op: Op, t: Scalar, a: &[Src]) -> Option<Src> {
        let double = t == Scalar::F64;
        let (name, class) = match (op, double) {
            (Op::Max, _) => return Some(self.max_float(t, a)),
            (Op::Add, false) => ("add.rn.f32", F),
            (Op::Sub, false) => ("sub.rn.f32", F),
            (Op::Mul, false) => ("mul.rn.f32", F),
            (Op::FDiv, false) => ("div.rn.f32", F),
            (Op::MulAcc, false) => ("fma.rn.f32", F),
            (Op::Neg, false) => ("neg.f32", F),
            (Op::Sqrt, false) => ("sqrt.rn.f32", F),
            (Op::Recip, false) => ("rcp.rn.f32", F),
            (Op::Trunc, false) => ("cvt.rzi.f32.f32", F),
            // In attentions (`Target::exp2`) only; elsewhere it is decomposed.
            (Op::Exp2, false) => ("ex2.approx.ftz.f32", F),
            (Op::Add, true) => ("add.rn.f64", FD),
            (Op::Sub, true) => ("sub.rn.f64", FD),
            (Op::Mul, true) => ("mul.rn.f64", FD),
            (Op::FDiv, true) => ("div.rn.f64", FD),
            (Op::MulAcc, true) => ("fma.rn.f64", FD),
            (Op::Neg, true) => ("neg.f64", FD),
            (Op::Sqrt, true) => ("sqrt.rn.f64", FD),
            (Op::Recip, true) => ("rcp.rn.f64", FD),
            (Op::Trunc, true) => ("cvt.rzi.f64.f64", FD),
            _ => return None,
        };
        let ins = self.opds(t, a);
        Some(self.op(name, class, ins))
    }

    /// The maximum; a NaN operand wins.
    fn max_float(&mut self, t: Scalar, a: &[Src]) -> Src {
        let ins = self.opds(t, a);
        let (class, max, nan) = match t {
            Scalar::F32 => (F, "max.f32", NAN_F32),
            _ => (FD, "max.f64", NAN_F64),
        };
        let number = |s: &Src| match (s, t) {
            (Src::Bits(b), Scalar::F32) => !f32::from_bits(*b as u32).is_nan(),
            (Src::Bits(b), _) => !f64::from_bits(*b).is_nan(),
            _ => false,
        };
        if self.program.fast_math || a.iter().all(number) {
            return self.op(max, class, ins);
        }
        if t == Scalar::F32 && self.chip.has_sm80() {
            return self.op("max.NaN.f32", class, ins);
        }
        let larger = self.op(max, class, ins.clone());
        let test = if t == Scalar::F32 { "setp.nan.f32" } else { "setp.nan.f64" };
        let unordered = self.op(test, P, ins);
        self.choose(t, unordered, Src::Bits(nan), larger)
    }

    fn half_op(&mut self, op: Op, a: &[Src]) -> Option<Src> {
        let name = match op {
            Op::Add => "add.rn.f16",
            Op::Sub => "sub.rn.f16",
            Op::Mul => "mul.rn.f16",
            Op::MulAcc => "fma.rn.f16",
            Op::Neg => "neg.f16",
            Op::Max if self.program.fast_math && self.chip.has_sm80() => "max.f16",
            Op::Max if self.chip.has_sm80() => "max.NaN.f16",
            Op::Max => {
                let wide: Vec<Src> = a.iter().map(|s| self.half_to_f32(Scalar::F16, *s)).collect();
                let larger = self.max_float(Scalar::F32, &wide);
                return Some(self.f32_to_half(Scalar::F16, larger));
            }
            _ => return None,
        };
        let ins = self.opds(Scalar::F16, a);
        Some(self.op(name, H, ins))
    }

    fn int_op(&mut self, op: Op, t: Scalar, a: &[Src]) -> Option<Src> {
        let (wide, signed) = (t.size_bytes() == 8, t.is_signed());
        if matches!(op, Op::Shl | Op::Shr) {
            return Some(self.shift(op, t, a[0], a[1]));
        }
        let name = match (op, wide, signed) {
            (Op::Trunc, ..) => return Some(a[0]),
            (Op::Add, false, _) => "add.s32",
            (Op::Sub, false, _) => "sub.s32",
            (Op::Mul, false, _) => "mul.lo.s32",
            (Op::MulAcc, false, _) => "mad.lo.s32",
            (Op::Neg, false, _) => "neg.s32",
            (Op::And, false, _) => "and.b32",
            (Op::Or, false, _) => "or.b32",
            (Op::Xor, false, _) => "xor.b32",
            (Op::Max, false, true) => "max.s32",
            (Op::Max, false, false) => "max.u32",
            (Op::CDiv, false, true) => "div.s32",
            (Op::CDiv, false, false) => "div.u32",
            (Op::CMod, false, true) => "rem.s32",
            (Op::CMod, false, false) => "rem.u32",
            (Op::Add, true, _) => "add.s64",
            (Op::Sub, true, _) => "sub.s64",
            (Op::Mul, true, _) => "mul.lo.s64",
            (Op::MulAcc, true, _) => "mad.lo.s64",
            (Op::Neg, true, _) => "neg.s64",
            (Op::And, true, _) => "and.b64",
            (Op::Or, true, _) => "or.b64",
            (Op::Xor, true, _) => "xor.b64",
            (Op::Max, true, true) => "max.s64",
            (Op::Max, true, false) => "max.u64",
            (Op::CDiv, true, true) => "div.s64",
            (Op::CDiv, true, false) => "div.u64",
            (Op::CMod, true, true) => "rem.s64",
            (Op::CMod, true, false) => "rem.u64",
            _ => return None,
        };
        let ins = self.opds(t, a);
        let r = self.op(name, class_of(t), ins);
        if let (Op::Add, Src::Reg(to), [Src::Reg(x), Src::Bits(c)] | [Src::Bits(c), Src::Reg(x)]) = (op, r, a)
            && matches!(t, Scalar::I32 | Scalar::I64)
            && !self.mutable.contains(x)
        {
            let (root, more) = self.sums.get(x).copied().unwrap_or((*x, 0));
            self.sums.insert(to, (root, more.saturating_add(c.cast_signed())));
        }
        // The other operations keep extended values extended.
        let grows = matches!(op, Op::Add | Op::Sub | Op::Mul | Op::MulAcc | Op::Neg | Op::CDiv);
        Some(if grows && t.size_bytes() < 4 { self.narrow(t, r) } else { r })
    }

    /// In PTX, shifting by the width or more gives the same as that many one-bit shifts, which is the required
    /// behaviour.
    fn shift(&mut self, op: Op, t: Scalar, x: Src, count: Src) -> Src {
        let wide = t.size_bytes() == 8;
        let name = match (op, wide, t.is_signed()) {
            (Op::Shl, false, _) => "shl.b32",
            (Op::Shl, true, _) => "shl.b64",
            (_, false, true) => "shr.s32",
            (_, false, false) => "shr.u32",
            (_, true, true) => "shr.s64",
            (_, true, false) => "shr.u64",
        };
        let x = self.opd(t, x);
        let count = match count {
            Src::Bits(n) => Opd::Int(i64::from(u32::try_from(n).unwrap_or(u32::MAX).min(64))),
            // The count has the type of the value, but the instruction needs 32 bits.
            Src::Reg(r) if wide => {
                let low = self.op("cvt.sat.u32.u64", R, vec![r.into()]);
                self.opd(Scalar::U32, low)
            }
            Src::Reg(r) => r.into(),
        };
        let r = self.op(name, class_of(t), vec![x, count]);
        if op == Op::Shl && t.size_bytes() < 4 { self.narrow(t, r) } else { r }
    }

    /// Extends the low bits of a small type again.
    pub(super) fn narrow(&mut self, t: Scalar, x: Src) -> Src {
        let name = match t {
            Scalar::I8 => "cvt.s32.s8",
            Scalar::I16 => "cvt.s32.s16",
            Scalar::U8 => "cvt.u32.u8",
            Scalar::U16 => "cvt.u32.u16",
            _ => return x,
        };
        match x {
            Src::Bits(b) => Src::Bits(super::extend(b & if t.size_bytes() == 1 { 0xff } else { 0xffff }, t)),
            Src::Reg(r) => self.op(name, R, vec![r.into()]),
        }
    }

    fn bool_op(&mut self, op: Op, a: &[Src]) -> Option<Src> {
        let name = match op {
            Op::Add | Op::Or | Op::Max => "or.pred",
            Op::Mul | Op::And => "and.pred",
            Op::Xor | Op::Sub => "xor.pred",
            Op::Neg | Op::Trunc => return Some(a[0]),
            Op::MulAcc => {
                let both = self.bool_op(Op::And, &a[..2])?;
                return self.bool_op(Op::Or, &[both, a[2]]);
            }
            _ => return None,
        };
        if name == "xor.pred" {
            return Some(self.differ(a[0], a[1]));
        }
        let ins = self.opds(Scalar::Bool, a);
        Some(self.op(name, P, ins))
    }

    /// Exclusive or of two predicates.
    fn differ(&mut self, a: Src, b: Src) -> Src {
        match (a, b) {
            (Src::Bits(truth), x) | (x, Src::Bits(truth)) => {
                if truth & 1 == 0 {
                    x
                } else {
                    self.not(x)
                }
            }
            _ => {
                let ins = self.opds(Scalar::Bool, &[a, b]);
                self.op("xor.pred", P, ins)
            }
        }
    }

    fn not(&mut self, x: Src) -> Src {
        let x = self.opd(Scalar::Bool, x);
        self.op("not.pred", P, vec![x])
    }

    pub(super) fn compare(&mut self, op: Op, t: Scalar, a: Src, b: Src) -> Src {
        if t == Scalar::Bool {
            return match op {
                Op::CmpNe => self.differ(a, b),
                Op::CmpLt => {
                    let low = self.not(a);
                    let ins = self.opds(t, &[low, b]);
                    self.op("and.pred", P, ins)
                }
                _ => {
                    let differ = self.differ(a, b);
                    self.not(differ)
                }
            };
        }
        if matches!(t, Scalar::F16 | Scalar::BF16) {
            let (a, b) = (self.half_to_f32(t, a), self.half_to_f32(t, b));
            return self.compare(op, Scalar::F32, a, b);
        }
        let wide = t.size_bytes() == 8;
        let name = match (op, t, wide, t.is_signed()) {
            (Op::CmpLt, Scalar::F32, ..) => "setp.lt.f32",
            (Op::CmpNe, Scalar::F32, ..) => "setp.neu.f32",
            (_, Scalar::F32, ..) => "setp.eq.f32",
            (Op::CmpLt, Scalar::F64, ..) => "setp.lt.f64",
            (Op::CmpNe, Scalar::F64, ..) => "setp.neu.f64",
            (_, Scalar::F64, ..) => "setp.eq.f64",
            (Op::CmpLt, _, false, true) => "setp.lt.s32",
            (Op::CmpLt, _, false, false) => "setp.lt.u32",
            (Op::CmpLt, _, true, true) => "setp.lt.s64",
            (Op::CmpLt, _, true, false) => "setp.lt.u64",
            (Op::CmpNe, _, false, _) => "setp.ne.s32",
            (Op::CmpNe, _, true, _) => "setp.ne.s64",
            (_, _, false, _) => "setp.eq.s32",
            (_, _, true, _) => "setp.eq.s64",
        };
        let ins = vec![self.opd(t, a), self.opd(t, b)];
        self.op(name, P, ins)
    }

    /// `c ? a : b`.
    pub(super) fn choose(&mut self, t: Scalar, c: Src, a: Src, b: Src) -> Src {
        let c = match c {
            Src::Bits(0) => return b,
            Src::Bits(_) => return a,
            Src::Reg(c) => c,
        };
        if a == b {
            return a;
        }
        if t == Scalar::Bool {
            let (x, not) = (self.opd(t, a), self.not(c.into()));
            let (not, y) = (self.opd(t, not), self.opd(t, b));
            let taken = self.op("and.pred", P, vec![c.into(), x]);
            let other = self.op("and.pred", P, vec![not, y]);
            let ins = self.opds(t, &[taken, other]);
            return self.op("or.pred", P, ins);
        }
        let name = match class_of(t) {
            H => "selp.b16",
            RD => "selp.b64",
            F => "selp.f32",
            FD => "selp.f64",
            _ => "selp.b32",
        };
        let ins = vec![self.opd(t, a), self.opd(t, b), c.into()];
        self.op(name, class_of(t), ins)
    }
}

impl From<super::Reg> for Src {
    fn from(r: super::Reg) -> Src {
        Src::Reg(r)
    }
}
