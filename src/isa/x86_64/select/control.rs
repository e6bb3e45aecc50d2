//! Loops, conditions and mutable registers.
//!
//! A loop runs its body at least once; a test before it skips it if it may have no iterations. Products of the counter
//! with a stride are induction registers that are incremented once an iteration; the counter itself exists only if
//! something reads it.

use super::super::IselError;
use super::super::gpr::{self, Cond};
use super::super::mir::{self, Inst, Opd};
use super::scalar::Test;
use super::{In, Level, LevelKind, Regs, Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::{Flow, Label, VReg};
use doorbell_uop::{Op, Scalar, UOp, to_bits};
use hashbrown::HashMap;
use iced_x86::Code;

/// Number of iterations.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Iterations {
    Known(i64),
    Reg(VReg, /* may be zero */ bool),
}

/// An open loop.
#[derive(Debug)]
pub(in super::super) struct Loop {
    pub iterations: Iterations,
    pub counter: VReg,
    pub counter_used: bool,
    /// `(stride, register)`: counter times stride.
    pub inductions: Vec<(i64, VReg)>,
}

impl Select<'_> {
    pub(super) fn open_loop(&mut self, p: usize, u: &UOp) -> Res<()> {
        let end = &u.src()[0];
        let iterations = match end.as_const().and_then(|c| c.as_int()) {
            Some(n) => Iterations::Known(i64::try_from(n).unwrap_or(i64::MAX)),
            None => {
                let r = self.index_reg(end)?;
                Iterations::Reg(r, end.vmin() < 1)
            }
        };
        let counter = self.gpr();
        let open = Loop { iterations, counter, counter_used: false, inductions: Vec::new() };
        self.levels.push(Level { insts: Vec::new(), kind: LevelKind::Loop(open), sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
        self.vals[p] = Some(Val::G(counter));
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    /// Notes that a counter is read as a value.
    pub(super) fn note_counter(&mut self, p: usize) {
        if self.uops[p].op() == Op::Range {
            let level = self.made_in[p] as usize;
            if let Some(Level { kind: LevelKind::Loop(l), .. }) = self.levels.get_mut(level) {
                l.counter_used = true;
            }
        }
    }

    /// A register that holds the counter of the loop at a level times a stride, and the factor (1, 2, 4, 8) still to
    /// apply.
    pub(super) fn induction(&mut self, level: usize, stride: i64) -> Res<(VReg, u8)> {
        let fresh = self.gpr();
        let LevelKind::Loop(l) = &mut self.levels[level].kind else {
            return Err(IselError::Internal("an induction outside of a loop"));
        };
        for scale in [1u8, 2, 4, 8] {
            if let Some((_, r)) = l.inductions.iter().find(|i| i.0 * i64::from(scale) == stride) {
                return Ok((*r, scale));
            }
        }
        if matches!(stride, 1 | 2 | 4 | 8) {
            l.counter_used = true;
            return Ok((l.counter, stride as u8));
        }
        l.inductions.push((stride, fresh));
        Ok((fresh, 1))
    }

    pub(super) fn close_loop(&mut self, u: &UOp) -> Res<()> {
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        let Some(Level { insts, kind: LevelKind::Loop(mut l), .. }) = level else {
            return Err(IselError::Malformed(format!("{u:?} closes what is not innermost")));
        };
        self.cur = self.levels.len() - 1;
        if matches!(l.iterations, Iterations::Known(n) if n <= 0) {
            return Ok(());
        }
        // Count with an induction register if the plain counter has no other reader.
        let (step, limit) = self.limit(&mut l)?;
        let (top, exit) = (self.func.label(), self.func.label());
        if let Iterations::Reg(r, true) = l.iterations {
            let form = gpr::two(gpr::TEST, true);
            self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(r, b'q'), Opd::Reg(r, b'q')]).read_only());
            self.put(Inst::bare(Cond::Le.jump(), Flow::Branch(exit)));
        }
        let counter = l.counter_used.then_some((1, l.counter));
        let running: Vec<(i64, VReg)> = counter.into_iter().chain(l.inductions.iter().copied()).collect();
        let once = matches!(l.iterations, Iterations::Known(1));
        for (_, r) in &running {
            self.put(Inst::new(
                (gpr::one([Code::Mov_r32_imm32; 2], false), Code::INVALID),
                &[Opd::Reg(*r, b'd'), Opd::Imm(0)],
            ));
        }
        if !once {
            self.put(mir::label(top));
        }
        self.levels[self.cur].insts.extend(insts);
        if !once {
            for (stride, r) in &running {
                self.add_imm(*r, *stride);
            }
            match limit {
                Limit::Imm(v) => self.cmp_imm(step, v),
                Limit::Reg(r) => {
                    let form = gpr::CMP.rm(true);
                    self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(step, b'q'), Opd::Reg(r, b'q')]).read_only());
                }
            }
            self.put(Inst::bare(Cond::L.jump(), Flow::Branch(top)));
        }
        self.put(mir::label(exit));
        Ok(())
    }

    /// The register that a loop compares, and with what.
    fn limit(&mut self, l: &mut Loop) -> Res<(VReg, Limit)> {
        if !l.counter_used {
            let fits = |n: i64| n.checked_mul(l.inductions.first()?.0).filter(|v| i32::try_from(*v).is_ok());
            match (l.iterations, l.inductions.first().copied()) {
                (Iterations::Known(n), Some((stride, r))) if stride > 0 => {
                    if let Some(v) = fits(n) {
                        return Ok((r, Limit::Imm(v)));
                    }
                }
                (Iterations::Reg(n, _), Some((stride, r))) if stride > 0 => {
                    return Ok((r, Limit::Reg(self.times(n, stride)?)));
                }
                _ => {}
            }
            l.counter_used = true;
        }
        Ok(match l.iterations {
            Iterations::Known(n) if i32::try_from(n).is_ok() => (l.counter, Limit::Imm(n)),
            Iterations::Known(n) => (l.counter, Limit::Reg(self.const_gpr(n))),
            Iterations::Reg(n, _) => (l.counter, Limit::Reg(n)),
        })
    }

    pub(super) fn open_if(&mut self, u: &UOp) -> Res<()> {
        let cond = &u.src()[0];
        if cond.dtype().lanes != 1 {
            return Err(unsupported(u, "a condition of many lanes"));
        }
        let cond = self.test_of(cond)?;
        let end = self.func.label();
        self.levels.push(Level { insts: Vec::new(), kind: LevelKind::If { cond, end }, sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
        Ok(())
    }

    pub(super) fn close_if(&mut self) -> Res<()> {
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        let Some(Level { insts, kind: LevelKind::If { cond, end }, .. }) = level else {
            return Err(IselError::Malformed("EndIf closes what is not a condition".into()));
        };
        self.cur = self.levels.len() - 1;
        self.skip_unless(cond, end);
        self.levels[self.cur].insts.extend(insts);
        self.put(mir::label(end));
        Ok(())
    }

    /// Jumps to a label if a test fails.
    fn skip_unless(&mut self, test: Test, to: Label) {
        let cond = self.put_test(test);
        self.put(Inst::bare(cond.opposite().jump(), Flow::Branch(to)));
    }

    /// Makes a mutable register and gives it its first value.
    pub(super) fn acc(&mut self, p: usize, u: &UOp) -> Res<()> {
        let init = &u.src()[0];
        let dt = u.dtype();
        if super::tile::is_tile(dt) {
            self.vals[p] = Some(Val::T(self.zero_tile()));
            self.made_in[p] = self.cur as u32;
            return Ok(());
        }
        if let (Some(c), false) = (init.as_const(), dt.scalar == Scalar::Bool || (dt.lanes == 1 && !dt.is_float())) {
            let shape = self.shape(dt);
            let mut parts = Regs::new();
            for _ in 0..shape.parts {
                let r = self.vec(shape.width);
                let inst = self.const_inst(r, to_bits(c, dt.scalar), shape.elem, shape.width)?;
                self.put(inst);
                parts.push(r);
            }
            self.vals[p] = Some(Val::V(parts));
        } else {
            let from = self.val(init)?;
            let from = self.canonical(from, dt.lanes)?;
            let fresh = match &from {
                Val::G(r) => Val::G(self.copy(*r)),
                Val::T(_) => return Err(unsupported(u, "a copy of a tile")),
                Val::V(rs) => Val::V(rs.iter().map(|r| self.copy(*r)).collect()),
                Val::K(rs, per) => Val::K(rs.iter().map(|r| self.copy(*r)).collect(), *per),
                Val::M(rs, e) => Val::M(rs.iter().map(|r| self.copy(*r)).collect(), *e),
            };
            self.vals[p] = Some(fresh);
        }
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    pub(super) fn set_acc(&mut self, u: &UOp) -> Res<()> {
        let (acc, value) = (&u.src()[0], &u.src()[1]);
        let lanes = acc.dtype().lanes;
        let p = self.pos.get(acc).map(|p| *p as usize);
        let Some(to) = p.and_then(|p| self.vals[p].clone()) else {
            return Err(IselError::Malformed(format!("{u:?} sets what does not stand in the list")));
        };
        if let Val::T(to) = to {
            return self.add_products(value, to);
        }
        let from = self.val(value)?;
        let from = self.canonical(from, lanes)?;
        let regs = |v: &Val| match v {
            Val::G(r) | Val::T(r) => Regs::from_slice(&[*r]),
            Val::V(r) | Val::K(r, _) | Val::M(r, _) => r.clone(),
        };
        let (to, from) = (regs(&to), regs(&from));
        if to.len() != from.len() {
            return Err(IselError::Malformed(format!("{u:?} has a value of another type")));
        }
        for (t, f) in to.into_iter().zip(from) {
            self.copy_to(t, f);
        }
        Ok(())
    }

    /// The form of mutable bool vectors; other values as they are.
    fn canonical(&mut self, v: Val, lanes: u16) -> Res<Val> {
        match v {
            Val::K(..) => {
                let per = lanes.min(64);
                Ok(Val::K(self.masks(v, lanes, per)?, per))
            }
            Val::M(..) => Ok(Val::M(self.lane_masks(v, lanes, 1)?, 1)),
            v => Ok(v),
        }
    }

    pub(super) fn add_imm(&mut self, r: VReg, v: i64) {
        if i32::try_from(v).is_ok() {
            let form = gpr::ADD.imm(true, v);
            self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(r, b'q'), Opd::Imm(v)]).modify());
        } else {
            let c = self.const_gpr(v);
            self.put(Inst::new((gpr::ADD.rm(true), Code::INVALID), &[Opd::Reg(r, b'q'), Opd::Reg(c, b'q')]).modify());
        }
    }

    pub(super) fn cmp_imm(&mut self, r: VReg, v: i64) {
        let form = gpr::CMP.imm(true, v);
        self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(r, b'q'), Opd::Imm(v)]).read_only());
    }

    /// An index or bound as a 64-bit register.
    pub(super) fn index_reg(&mut self, u: &UOp) -> Res<VReg> {
        let Val::G(r) = self.val(u)? else { return Err(unsupported(u, "an index that is no integer")) };
        match (u.dtype().scalar, u.op()) {
            (Scalar::I64 | Scalar::U64, _) | (_, Op::Range | Op::Var | Op::Special | Op::Const) => Ok(r),
            (t, _) => self.extend(r, t, true),
        }
    }

    /// A register times a constant.
    pub(super) fn times(&mut self, r: VReg, by: i64) -> Res<VReg> {
        let dst = self.gpr();
        if by > 0 && (by as u64).is_power_of_two() {
            self.copy_to(dst, r);
            let form = gpr::one(gpr::SHL_IMM, true);
            let ops = [Opd::Reg(dst, b'q'), Opd::Imm(i64::from(by.trailing_zeros()))];
            self.put(Inst::new((form, Code::INVALID), &ops).modify());
        } else if i32::try_from(by).is_ok() {
            let form = gpr::pair(gpr::IMUL_IMM, true, [b"dd", b"qq"], 1);
            self.put(Inst::new((form, Code::INVALID), &Self::operands(&form, Some(dst), &[In::R(r), In::I(by)])));
        } else {
            let c = self.const_gpr(by);
            self.copy_to(dst, r);
            let form = gpr::two(gpr::IMUL, true);
            self.put(Inst::new((form, Code::INVALID), &[Opd::Reg(dst, b'q'), Opd::Reg(c, b'q')]).modify());
        }
        Ok(dst)
    }
}

/// What a loop's counter is compared with.
enum Limit {
    Imm(i64),
    Reg(VReg),
}
