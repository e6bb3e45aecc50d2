//! Scalar integers and bools, in general registers.
//!
//! Types of 8 and 16 bits are computed in 32; bits beyond the type's width are undefined, so operations that depend on
//! them (comparison, division, right shift, maximum, conversion) extend first.

use super::super::mir::{Cond, Inst, What};
use super::super::rows;
use super::{Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::VReg;
use doorbell_uop::{Op, Scalar, UOp};

/// A scalar bool to be tested.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Test {
    /// A register that is 0 or 1.
    Bool(VReg),
    /// A comparison of registers.
    Compare { cond: Cond, x: VReg, y: VReg, wide: bool },
}

impl Select<'_> {
    pub(super) fn int(&mut self, u: &UOp) -> Res<VReg> {
        match self.val(u)? {
            Val::G(r) => Ok(r),
            _ => Err(unsupported(u, "a scalar integer outside of a general register")),
        }
    }

    /// A value of type `t` extended to 32 bits (64: to 64), by its sign.
    pub(super) fn extend(&mut self, r: VReg, t: Scalar, wide: bool) -> VReg {
        let last = 8 * t.size_bytes() as i64 - 1;
        let enough = if wide { 63 } else { 31 };
        if last >= enough || (t == Scalar::Bool && !wide) {
            return r;
        }
        let rows = if t.is_signed() { &rows::SBFM } else { &rows::UBFM };
        self.g(&rows[usize::from(wide)], &[r], &[0, last])
    }

    pub(super) fn alu_scalar_int(&mut self, u: &UOp) -> Res<Val> {
        let s = u.src();
        if u.op() == Op::Where {
            let (a, b) = (self.int(&s[1])?, self.int(&s[2])?);
            let test = self.test_of(&s[0])?;
            let cond = self.put_test(test);
            return Ok(Val::G(self.csel(cond, a, b)));
        }
        let args: Vec<VReg> = s.iter().map(|s| self.int(s)).collect::<Res<_>>()?;
        self.int_op(u, &args).map(Val::G)
    }

    /// An integer operation on registers.
    pub(super) fn int_op(&mut self, u: &UOp, a: &[VReg]) -> Res<VReg> {
        let t = u.dtype().scalar;
        if t == Scalar::Bool {
            return self.bool_op(u, a);
        }
        let w = usize::from(t.size_bytes() == 8);
        Ok(match u.op() {
            Op::Add => self.g(&rows::ADD[w], &[a[0], a[1]], &[0]),
            Op::Sub => self.g(&rows::SUB[w], &[a[0], a[1]], &[]),
            Op::And => self.g(&rows::AND[w], &[a[0], a[1]], &[]),
            Op::Or => self.g(&rows::ORR[w], &[a[0], a[1]], &[]),
            Op::Xor => self.g(&rows::EOR[w], &[a[0], a[1]], &[]),
            Op::Neg => {
                let zero = self.const_gpr(0);
                self.g(&rows::SUB[w], &[zero, a[0]], &[])
            }
            Op::Trunc => a[0],
            Op::Mul => {
                let zero = self.const_gpr(0);
                self.g(&rows::MADD[w], &[a[0], a[1], zero], &[])
            }
            Op::MulAcc => self.g(&rows::MADD[w], &[a[0], a[1], a[2]], &[]),
            Op::Max => {
                let (x, y) = (self.extend(a[0], t, false), self.extend(a[1], t, false));
                self.compare(x, y, w == 1);
                self.csel(if t.is_unsigned() { Cond::Hs } else { Cond::Ge }, x, y)
            }
            Op::CDiv | Op::CMod => self.divide(u.op(), t, a[0], a[1]),
            Op::Shl | Op::Shr => self.shift(u.op(), t, a[0], a[1]),
            _ => return Err(unsupported(u, "no scalar integer form")),
        })
    }

    /// Bools are 0 or 1.
    fn bool_op(&mut self, u: &UOp, a: &[VReg]) -> Res<VReg> {
        let row = match u.op() {
            Op::And | Op::Mul | Op::MulAcc => &rows::AND[0],
            Op::Or | Op::Add | Op::Max => &rows::ORR[0],
            Op::Xor | Op::Sub => &rows::EOR[0],
            Op::Neg => return Ok(a[0]),
            _ => return Err(unsupported(u, "no bool form")),
        };
        let r = self.g(row, &[a[0], a[1]], &[]);
        Ok(if u.op() == Op::MulAcc { self.g(&rows::ORR[0], &[r, a[2]], &[]) } else { r })
    }

    pub(super) fn compare(&mut self, a: VReg, b: VReg, wide: bool) {
        self.put(Inst::new(What::Row(&rows::CMP[usize::from(wide)]), &[a, b], &[]).read_only());
    }

    /// `if flags { a } else { b }`.
    pub(super) fn csel(&mut self, cond: Cond, a: VReg, b: VReg) -> VReg {
        self.g(&rows::CSEL[1], &[a, b], &[cond as i64])
    }

    /// Quotient or remainder, rounded toward zero.
    fn divide(&mut self, op: Op, t: Scalar, a: VReg, b: VReg) -> VReg {
        let w = usize::from(t.size_bytes() == 8);
        let (a, b) = (self.extend(a, t, false), self.extend(b, t, false));
        let row = if t.is_unsigned() { &rows::UDIV[w] } else { &rows::SDIV[w] };
        let quotient = self.g(row, &[a, b], &[]);
        if op == Op::CDiv { quotient } else { self.g(&rows::MSUB[w], &[quotient, b, a], &[]) }
    }

    /// Shifts. A count beyond the width gives what shifting bit by bit would.
    fn shift(&mut self, op: Op, t: Scalar, x: VReg, count: VReg) -> VReg {
        let w = usize::from(t.size_bytes() == 8);
        let width = if w == 1 { 64 } else { 32 };
        let unsigned = match t.size_bytes() {
            1 => Scalar::U8,
            2 => Scalar::U16,
            4 => Scalar::U32,
            _ => Scalar::U64,
        };
        let count = self.extend(count, unsigned, false);
        let arithmetic = op == Op::Shr && !t.is_unsigned();
        let limit = self.const_gpr(width - i64::from(arithmetic));
        if arithmetic {
            let x = self.extend(x, t, false);
            self.compare(count, limit, w == 1);
            let n = self.csel(Cond::Lo, count, limit);
            return self.g(&rows::ASRV[w], &[x, n], &[]);
        }
        let shifted = if op == Op::Shr {
            let x = self.extend(x, t, false);
            self.g(&rows::LSRV[w], &[x, count], &[])
        } else {
            self.g(&rows::LSLV[w], &[x, count], &[])
        };
        let zero = self.const_gpr(0);
        self.compare(count, limit, w == 1);
        self.csel(Cond::Lo, shifted, zero)
    }

    /// How to test a scalar bool: a comparison of integers that has not been emitted yet is emitted right where its
    /// result is used.
    pub(super) fn test_of(&mut self, u: &UOp) -> Res<Test> {
        let p = self.pos.get(u).map(|p| *p as usize);
        let fresh = p.is_some_and(|p| self.vals[p].is_none() && self.plan.waits(p));
        if !(u.op().is_comparison() && fresh) {
            return Ok(Test::Bool(self.int(u)?));
        }
        self.comparison(u)
    }

    /// A comparison of scalar integers: its operands, ready to be compared.
    fn comparison(&mut self, u: &UOp) -> Res<Test> {
        let t = u.src()[0].dtype().scalar;
        let (x, y) = (self.int(&u.src()[0])?, self.int(&u.src()[1])?);
        let (x, y) = (self.extend(x, t, false), self.extend(y, t, false));
        let cond = match (u.op(), t.is_unsigned() || t == Scalar::Bool) {
            (Op::CmpLt, false) => Cond::Lt,
            (Op::CmpLt, true) => Cond::Lo,
            (Op::CmpEq, _) => Cond::Eq,
            _ => Cond::Ne,
        };
        Ok(Test::Compare { cond, x, y, wide: t.size_bytes() == 8 })
    }

    /// Emits a test; returns the condition under which it is true.
    pub(super) fn put_test(&mut self, test: Test) -> Cond {
        match test {
            Test::Bool(r) => {
                self.put(Inst::new(What::Row(&rows::CMP_IMM[0]), &[r], &[0]).read_only());
                Cond::Ne
            }
            Test::Compare { cond, x, y, wide } => {
                self.compare(x, y, wide);
                cond
            }
        }
    }

    pub(super) fn compare_scalar_int(&mut self, u: &UOp) -> Res<Val> {
        let test = self.comparison(u)?;
        let cond = self.put_test(test);
        Ok(Val::G(self.set(cond)))
    }

    /// 0 or 1 from the flags.
    fn set(&mut self, cond: Cond) -> VReg {
        // The instruction adds one where its condition is false.
        self.g(&rows::CSET[0], &[], &[cond.opposite() as i64])
    }

    /// 0 or 1: whether a register is not zero.
    pub(super) fn nonzero(&mut self, r: VReg, wide: bool) -> VReg {
        self.put(Inst::new(What::Row(&rows::CMP_IMM[usize::from(wide)]), &[r], &[0]).read_only());
        self.set(Cond::Ne)
    }

    /// The lowest bit.
    pub(super) fn low_bit(&mut self, r: VReg) -> VReg {
        self.g(&rows::UBFM[0], &[r], &[0, 0])
    }
}
