//! Scalar integers and bools, in general registers.
//!
//! Types of 8 and 16 bits are computed in 32; bits beyond the type's width are undefined, so operations that depend on
//! them (comparison, division, right shift, maximum, conversion) extend first.

use super::super::form::{Form, Row, Width};
use super::super::gpr::{self, Alu, Cond};
use super::super::mir::{self, Inst, Opd};
use super::super::rows::*;
use super::{In, Res, Select, Val, const_bits, const_of, unsupported};
use doorbell_codegen::regalloc::{Operand, VReg};
use doorbell_uop::{Op, Scalar, UOp};
use iced_x86::Code;

/// A scalar bool to be tested.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Test {
    /// A register that is 0 or 1.
    Bool(VReg),
    /// A comparison with a register or immediate.
    Compare { cond: Cond, x: VReg, y: In, wide: bool },
}

impl Select<'_> {
    /// A scalar integer's register.
    pub(super) fn int(&mut self, u: &UOp) -> Res<VReg> {
        match self.val(u)? {
            Val::G(r) => Ok(r),
            _ => Err(unsupported(u, "a scalar integer outside of a general register")),
        }
    }

    /// An immediate, if the node is a constant that fits.
    fn imm(&self, u: &UOp) -> Option<i64> {
        let c = u.as_const()?;
        let v = const_bits(c, u.dtype().scalar);
        let v = if u.dtype().scalar == Scalar::U32 { i64::from(v as u32 as i32) } else { v };
        i32::try_from(v).is_ok().then_some(v)
    }

    /// An instruction with general registers only.
    pub(super) fn gput(&mut self, form: Form, dst: Option<VReg>, ins: &[In]) {
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, dst, ins));
        self.put(inst);
    }

    /// A value of type `t` extended to 32 bits (64: to 64), by its sign.
    pub(super) fn extend(&mut self, r: VReg, t: Scalar, wide: bool) -> Res<VReg> {
        use Code::*;
        let form = match (t, wide) {
            (Scalar::I64 | Scalar::U64, _) | (Scalar::I32 | Scalar::U32 | Scalar::Bool, false) => return Ok(r),
            (Scalar::I8, false) => Form::gpr(Movsx_r32_rm8, b"db", 1),
            (Scalar::I8, true) => Form::gpr(Movsx_r64_rm8, b"qb", 1),
            (Scalar::I16, false) => Form::gpr(Movsx_r32_rm16, b"dw", 1),
            (Scalar::I16, true) => Form::gpr(Movsx_r64_rm16, b"qw", 1),
            (Scalar::I32, true) => Form::gpr(Movsxd_r64_rm32, b"qd", 1),
            (Scalar::U8, _) => Form::gpr(Movzx_r32_rm8, b"db", 1),
            (Scalar::U16 | Scalar::F16 | Scalar::BF16, _) => Form::gpr(Movzx_r32_rm16, b"dw", 1),
            _ => gpr::two(gpr::MOV, false),
        };
        let dst = self.gpr();
        self.gput(form, Some(dst), &[In::R(r)]);
        Ok(dst)
    }

    fn extended(&mut self, u: &UOp) -> Res<VReg> {
        let r = self.int(u)?;
        if u.op() == Op::Const { Ok(r) } else { self.extend(r, u.dtype().scalar, false) }
    }

    pub(super) fn alu_scalar_int(&mut self, u: &UOp) -> Res<Val> {
        let t = u.dtype().scalar;
        if t == Scalar::Bool {
            return self.alu_bool(u);
        }
        let wide = t.size_bytes() == 8;
        let s = u.src();
        let r = match u.op() {
            Op::Add => self.add(&s[0], &s[1], wide)?,
            Op::Sub => self.two_address(gpr::SUB, &s[0], &s[1], wide)?,
            Op::And => self.two_address(gpr::AND, &s[0], &s[1], wide)?,
            Op::Or => self.two_address(gpr::OR, &s[0], &s[1], wide)?,
            Op::Xor => self.two_address(gpr::XOR, &s[0], &s[1], wide)?,
            Op::Neg => {
                let a = self.int(&s[0])?;
                self.unary(gpr::one(gpr::NEG, wide), a, wide, &[])
            }
            Op::Trunc => self.int(&s[0])?,
            Op::Mul => self.mul(&s[0], &s[1], wide)?,
            Op::MulAcc => {
                let p = self.mul(&s[0], &s[1], wide)?;
                let c = self.int(&s[2])?;
                self.alu_rr(gpr::ADD, p, c, wide)
            }
            Op::Max => self.max(&s[0], &s[1], t)?,
            Op::CDiv | Op::CMod => self.divide(u)?,
            Op::Shl | Op::Shr => self.shift(u)?,
            Op::Where => self.select_int(u)?,
            _ => return Err(unsupported(u, "no scalar integer form")),
        };
        Ok(Val::G(r))
    }

    /// Bools are 0 or 1.
    fn alu_bool(&mut self, u: &UOp) -> Res<Val> {
        let s = u.src();
        let r = match u.op() {
            Op::And | Op::Mul => self.two_address(gpr::AND, &s[0], &s[1], false)?,
            Op::Or | Op::Add | Op::Max => self.two_address(gpr::OR, &s[0], &s[1], false)?,
            Op::Xor | Op::Sub => self.two_address(gpr::XOR, &s[0], &s[1], false)?,
            Op::Neg => self.int(&s[0])?,
            Op::MulAcc => {
                let p = self.two_address(gpr::AND, &s[0], &s[1], false)?;
                let c = self.int(&s[2])?;
                self.alu_rr(gpr::OR, p, c, false)
            }
            Op::Where => self.select_int(u)?,
            _ => return Err(unsupported(u, "no bool form")),
        };
        Ok(Val::G(r))
    }

    /// `a op b` into a new register.
    pub(super) fn alu_rr(&mut self, op: Alu, a: VReg, b: VReg, wide: bool) -> VReg {
        let dst = self.copy(a);
        let form = op.rm(wide);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(dst), &[In::R(b)])).modify();
        self.put(inst);
        dst
    }

    pub(super) fn alu_ri(&mut self, op: Alu, a: VReg, v: i64, wide: bool) -> VReg {
        let dst = self.copy(a);
        let form = op.imm(wide, v);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(dst), &[In::I(v)])).modify();
        self.put(inst);
        dst
    }

    fn two_address(&mut self, op: Alu, a: &UOp, b: &UOp, wide: bool) -> Res<VReg> {
        let (a, b) = if a.op() == Op::Const && op.is_commutative() { (b, a) } else { (a, b) };
        let x = self.int(a)?;
        if let Some(v) = self.imm(b) {
            return Ok(self.alu_ri(op, x, v, wide));
        }
        let y = self.int(b)?;
        Ok(self.alu_rr(op, x, y, wide))
    }

    /// Addition by lea: three operands.
    fn add(&mut self, a: &UOp, b: &UOp, wide: bool) -> Res<VReg> {
        let (a, b) = if a.op() == Op::Const { (b, a) } else { (a, b) };
        let x = self.int(a)?;
        let mut mem = mir::Mem::base(x);
        match self.imm(b) {
            Some(v) => mem.disp = v as i32,
            None => mem.index = Some((self.int(b)?, b'q')),
        }
        let dst = self.gpr();
        let form = gpr::pair(gpr::LEA, wide, [b"dm", b"qm"], 1);
        self.gput(form, Some(dst), &[In::M(mem)]);
        Ok(dst)
    }

    /// A one-register operation on a copy.
    pub(super) fn unary(&mut self, form: Form, a: VReg, wide: bool, rest: &[In]) -> VReg {
        let dst = self.copy(a);
        let mut ops = Self::operands(&form, Some(dst), rest);
        ops[0] = Opd::Reg(dst, if wide { b'q' } else { b'd' });
        let inst = Inst::new((form, Code::INVALID), &ops).modify();
        self.put(inst);
        dst
    }

    fn mul(&mut self, a: &UOp, b: &UOp, wide: bool) -> Res<VReg> {
        let (a, b) = if a.op() == Op::Const { (b, a) } else { (a, b) };
        let x = self.int(a)?;
        if let Some(v) = self.imm(b) {
            if v > 0 && (v as u64).is_power_of_two() {
                return Ok(self.unary(gpr::one(gpr::SHL_IMM, wide), x, wide, &[In::I(i64::from(v.trailing_zeros()))]));
            }
            let dst = self.gpr();
            let form = gpr::pair(gpr::IMUL_IMM, wide, [b"dd", b"qq"], 1);
            self.gput(form, Some(dst), &[In::R(x), In::I(v)]);
            return Ok(dst);
        }
        let y = self.int(b)?;
        let dst = self.copy(x);
        let form = gpr::two(gpr::IMUL, wide);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(dst), &[In::R(y)])).modify();
        self.put(inst);
        Ok(dst)
    }

    fn max(&mut self, a: &UOp, b: &UOp, t: Scalar) -> Res<VReg> {
        let wide = t.size_bytes() == 8;
        let (x, y) = (self.extended(a)?, self.extended(b)?);
        self.cmp(x, y, wide);
        Ok(self.cmov(if t.is_unsigned() { Cond::B } else { Cond::L }, x, y, wide))
    }

    pub(super) fn cmp(&mut self, a: VReg, b: VReg, wide: bool) {
        let form = gpr::CMP.rm(wide);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(a), &[In::R(b)])).read_only();
        self.put(inst);
    }

    /// `if flags { b } else { a }`, into a new register.
    pub(super) fn cmov(&mut self, cond: Cond, a: VReg, b: VReg, wide: bool) -> VReg {
        let dst = self.copy(a);
        let form = gpr::two(cond.cmov(), wide);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(dst), &[In::R(b)])).modify();
        self.put(inst);
        dst
    }

    /// Division: the dividend in rdx:rax, the quotient in rax, the remainder in rdx.
    fn divide(&mut self, u: &UOp) -> Res<VReg> {
        use Code::*;
        let t = u.dtype().scalar;
        let wide = t.size_bytes() == 8;
        let (a, b) = (self.extended(&u.src()[0])?, self.extended(&u.src()[1])?);
        let (low, high) = (self.copy(a), self.gpr());
        if t.is_unsigned() {
            self.gput(Form::gpr(Mov_r32_imm32, b"d", 9), Some(high), &[In::I(0)]);
        } else {
            let mut sign = Inst::bare(if wide { Cqo } else { Cdq }, doorbell_codegen::regalloc::Flow::Next);
            sign.implied.extend([Operand::writes(high).fixed(mir::RDX), Operand::reads(low).fixed(mir::RAX)]);
            self.put(sign);
        }
        let codes = if t.is_unsigned() { [Div_rm32, Div_rm64] } else { [Idiv_rm32, Idiv_rm64] };
        let form = gpr::one(codes, wide);
        let mut div = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(b), &[])).read_only();
        let (quotient, remainder) = (self.gpr(), self.gpr());
        div.implied.extend([
            Operand::reads(low).fixed(mir::RAX),
            Operand::reads(high).fixed(mir::RDX),
            Operand::writes(quotient).fixed(mir::RAX),
            Operand::writes(remainder).fixed(mir::RDX),
        ]);
        self.put(div);
        Ok(if u.op() == Op::CDiv { quotient } else { remainder })
    }

    /// Shifts. A count beyond the width gives what shifting bit by bit would.
    fn shift(&mut self, u: &UOp) -> Res<VReg> {
        let t = u.dtype().scalar;
        let bits = 8 * t.size_bytes() as i64;
        let wide = bits == 64;
        let right = u.op() == Op::Shr;
        let x = if right { self.extended(&u.src()[0])? } else { self.int(&u.src()[0])? };
        if let Some(c) = u.src()[1].as_const() {
            let n = const_bits(c, u.src()[1].dtype().scalar);
            let (codes, n) = match (right, t.is_unsigned()) {
                (_, true) | (false, _) if !(0..bits).contains(&n) => return Ok(self.const_gpr(0)),
                (false, _) => (gpr::SHL_IMM, n),
                (true, true) => (gpr::SHR_IMM, n),
                (true, false) => (gpr::SAR_IMM, n.clamp(0, bits - 1)),
            };
            return Ok(self.unary(gpr::one(codes, wide), x, wide, &[In::I(n)]));
        }
        let count = self.extended(&u.src()[1])?;
        let (row32, row64) = match (right, t.is_unsigned()) {
            (false, _) => (SHLX32, SHLX64),
            (true, true) => (SHRX32, SHRX64),
            (true, false) => (SARX32, SARX64),
        };
        let row = if wide { row64 } else { row32 };
        let width = if wide { 64 } else { 32 };
        if right && !t.is_unsigned() {
            let last = self.const_gpr(width - 1);
            self.cmp(count, last, wide);
            let n = self.cmov(Cond::Ae, count, last, wide);
            return self.def(&row, Width::X, &[In::R(x), In::R(n)]);
        }
        let shifted = self.def(&row, Width::X, &[In::R(x), In::R(count)])?;
        let (zero, limit) = (self.const_gpr(0), self.const_gpr(width));
        self.cmp(count, limit, wide);
        Ok(self.cmov(Cond::Ae, shifted, zero, wide))
    }

    fn select_int(&mut self, u: &UOp) -> Res<VReg> {
        let s = u.src();
        let (a, b) = (self.int(&s[1])?, self.int(&s[2])?);
        let test = self.test_of(&s[0])?;
        let cond = self.put_test(test);
        Ok(self.cmov(cond, b, a, true))
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
        let (a, b) = (&u.src()[0], &u.src()[1]);
        let t = a.dtype().scalar;
        let x = self.extended(a)?;
        let y = match self.imm(b) {
            Some(v) => In::I(v),
            None => In::R(self.extended(b)?),
        };
        let signed = !(t.is_unsigned() || t == Scalar::Bool);
        let cond = match (u.op(), signed) {
            (Op::CmpLt, true) => Cond::L,
            (Op::CmpLt, false) => Cond::B,
            (Op::CmpEq, _) => Cond::E,
            _ => Cond::Ne,
        };
        Ok(Test::Compare { cond, x, y, wide: t.size_bytes() == 8 })
    }

    /// Emits a test; returns the condition under which it is true.
    pub(super) fn put_test(&mut self, test: Test) -> Cond {
        let (form, x, y, cond) = match test {
            Test::Bool(r) => (gpr::two(gpr::TEST, false), r, In::R(r), Cond::Ne),
            Test::Compare { cond, x, y: In::I(v), wide } => (gpr::CMP.imm(wide, v), x, In::I(v), cond),
            Test::Compare { cond, x, y, wide } => (gpr::CMP.rm(wide), x, y, cond),
        };
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(x), &[y])).read_only();
        self.put(inst);
        cond
    }

    pub(super) fn compare_scalar_int(&mut self, u: &UOp) -> Res<Val> {
        let test = self.comparison(u)?;
        let cond = self.put_test(test);
        Ok(Val::G(self.set(cond)))
    }

    /// 0 or 1 from the flags.
    pub(super) fn set(&mut self, cond: Cond) -> VReg {
        let (byte, dst) = (self.gpr(), self.gpr());
        let inst = Inst::new((Form::gpr(cond.set(), b"b", 9), Code::INVALID), &[Opd::Reg(byte, b'b')]);
        self.put(inst);
        self.gput(Form::gpr(Code::Movzx_r32_rm8, b"db", 9), Some(dst), &[In::R(byte)]);
        dst
    }

    /// 0 or 1: whether a register is not zero.
    pub(super) fn nonzero(&mut self, r: VReg, wide: bool) -> VReg {
        let form = gpr::two(gpr::TEST, wide);
        let inst = Inst::new((form, Code::INVALID), &Self::operands(&form, Some(r), &[In::R(r)])).read_only();
        self.put(inst);
        self.set(Cond::Ne)
    }

    /// A bool constant or register as -1 or 0.
    pub(super) fn bool_to_ones(&mut self, r: VReg) -> VReg {
        self.unary(gpr::one(gpr::NEG, true), r, true, &[])
    }

    /// The row that moves a general register into the low lane of a vector register.
    pub(super) fn vec_of_int(&mut self, r: VReg, wide: bool) -> Res<VReg> {
        let row: Row = if wide { VMOVQ_XG } else { VMOVD_LD };
        self.def(&row, Width::X, &[In::R(r)])
    }

    /// The low lane of a vector register in a general one.
    pub(super) fn int_of_vec(&mut self, v: VReg, wide: bool) -> Res<VReg> {
        let row: Row = if wide { VMOVQ_GX } else { VMOVD_ST };
        self.def(&row, Width::X, &[In::R(v)])
    }

    /// The value of an integer constant node, if it is one.
    pub(super) fn known(u: &UOp) -> Option<i64> {
        const_of(u).ok().map(|c| const_bits(c, u.dtype().scalar))
    }
}
