//! Loops, conditions and mutable registers.
//!
//! A loop runs its body at least once; a test before it skips it if it may have no iterations.

use super::super::IselError;
use super::super::mir::{self, Cond, Inst, What};
use super::super::rows;
use super::scalar::Test;
use super::{Level, LevelKind, Regs, Res, Select, Val, unsupported};
use doorbell_codegen::regalloc::{Flow, Label, VReg};
use doorbell_uop::{Op, Scalar, UOp};
use hashbrown::HashMap;

/// Number of iterations.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Iterations {
    Known(i64),
    Reg(VReg, /* may be zero */ bool),
}

/// An open loop.
#[derive(Debug)]
pub(in super::super) struct Loop {
    iterations: Iterations,
    counter: VReg,
}

impl Select<'_> {
    pub(super) fn open_loop(&mut self, p: usize, u: &UOp) -> Res<()> {
        let end = &u.src()[0];
        let iterations = match end.as_const().and_then(|c| c.as_int()) {
            Some(n) => Iterations::Known(i64::try_from(n).unwrap_or(i64::MAX)),
            None => Iterations::Reg(self.index_reg(end)?, end.vmin() < 1),
        };
        let counter = self.gpr();
        let kind = LevelKind::Loop(Loop { iterations, counter });
        self.levels.push(Level { insts: Vec::new(), kind, sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
        self.vals[p] = Some(Val::G(counter));
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    pub(super) fn close_loop(&mut self, u: &UOp) -> Res<()> {
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        let Some(Level { insts, kind: LevelKind::Loop(Loop { iterations, counter }), .. }) = level else {
            return Err(IselError::Malformed(format!("{u:?} closes what is not innermost")));
        };
        self.cur = self.levels.len() - 1;
        if matches!(iterations, Iterations::Known(n) if n <= 0) {
            return Ok(());
        }
        let (top, exit) = (self.func.label(), self.func.label());
        if let Iterations::Reg(r, true) = iterations {
            self.put(Inst::new(What::Row(&rows::CMP_IMM[1]), &[r], &[0]).read_only());
            self.branch(Cond::Le, exit);
        }
        self.put(Inst::new(What::Const(0), &[counter], &[]));
        self.put(mir::label(top));
        self.levels[self.cur].insts.extend(insts);
        if !matches!(iterations, Iterations::Known(1)) {
            let limit = match iterations {
                Iterations::Known(n) => self.const_gpr(n),
                Iterations::Reg(n, _) => n,
            };
            self.modify_counter(counter);
            self.compare(counter, limit, true);
            self.branch(Cond::Lt, top);
        }
        self.put(mir::label(exit));
        Ok(())
    }

    fn modify_counter(&mut self, counter: VReg) {
        self.put(Inst::new(What::Row(&rows::ADD_IMM[1]), &[counter, counter], &[1, 0]));
    }

    pub(super) fn branch(&mut self, cond: Cond, to: Label) {
        self.put(Inst::bare(What::Branch(Some(cond)), Flow::Branch(to)));
    }

    pub(super) fn open_if(&mut self, u: &UOp) -> Res<()> {
        let cond = &u.src()[0];
        if cond.dtype().lanes != 1 {
            return Err(unsupported(u, "a condition of many lanes"));
        }
        let cond = self.test_of(cond)?;
        self.open_guard(cond);
        Ok(())
    }

    fn open_guard(&mut self, cond: Test) {
        let end = self.func.label();
        self.levels.push(Level { insts: Vec::new(), kind: LevelKind::If { cond, end }, sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
    }

    pub(super) fn close_if(&mut self) -> Res<()> {
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        let Some(Level { insts, kind: LevelKind::If { cond, end }, .. }) = level else {
            return Err(IselError::Malformed("EndIf closes what is not a condition".into()));
        };
        self.cur = self.levels.len() - 1;
        let cond = self.put_test(cond);
        self.branch(cond.opposite(), end);
        self.levels[self.cur].insts.extend(insts);
        self.put(mir::label(end));
        Ok(())
    }

    /// Code that runs only if a bool is true.
    pub(super) fn guarded(&mut self, cond: Test, body: impl FnOnce(&mut Self) -> Res<()>) -> Res<()> {
        debug_assert_eq!(self.cur + 1, self.levels.len(), "guarded code is made where the list stands");
        self.open_guard(cond);
        body(self)?;
        self.close_if()
    }

    /// Makes a mutable register and gives it its first value.
    pub(super) fn acc(&mut self, p: usize, u: &UOp) -> Res<()> {
        let from = self.val(&u.src()[0])?;
        let from = self.canonical(from, u.dtype().lanes)?;
        self.vals[p] = Some(self.fresh(from));
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    pub(super) fn set_acc(&mut self, u: &UOp) -> Res<()> {
        let (acc, value) = (&u.src()[0], &u.src()[1]);
        let p = self.pos.get(acc).map(|p| *p as usize);
        let Some(to) = p.and_then(|p| self.vals[p].clone()) else {
            return Err(IselError::Malformed(format!("{u:?} sets what does not stand in the list")));
        };
        let from = self.val(value)?;
        let from = self.canonical(from, acc.dtype().lanes)?;
        self.assign(&to, from, acc.dtype().lanes)
    }

    /// The form of mutable bool vectors; other values as they are.
    fn canonical(&mut self, v: Val, lanes: u16) -> Res<Val> {
        match v {
            Val::M(..) => Ok(Val::M(self.lane_masks(v, lanes, 1)?, 1)),
            v => Ok(v),
        }
    }

    /// A copy of a value in registers of its own.
    pub(super) fn fresh(&mut self, v: Val) -> Val {
        match v {
            Val::G(r) => Val::G(self.copy(r)),
            Val::V(rs) => Val::V(rs.iter().map(|r| self.copy(*r)).collect()),
            Val::M(rs, e) => Val::M(rs.iter().map(|r| self.copy(*r)).collect(), e),
        }
    }

    /// Assigns another value of the same layout to registers.
    pub(super) fn assign(&mut self, to: &Val, from: Val, lanes: u16) -> Res<()> {
        let from = match (to, from) {
            (Val::M(_, e), v @ Val::M(..)) => self.lane_masks(v, lanes, *e)?,
            (_, Val::G(r)) => Regs::from_slice(&[r]),
            (_, Val::V(r) | Val::M(r, _)) => r,
        };
        let to = match to {
            Val::G(r) => Regs::from_slice(&[*r]),
            Val::V(r) | Val::M(r, _) => r.clone(),
        };
        if to.len() != from.len() {
            return Err(IselError::Malformed("a register is set to a value of another type".into()));
        }
        to.into_iter().zip(from).for_each(|(t, f)| self.copy_to(t, f));
        Ok(())
    }

    /// An index or bound as a 64-bit register.
    pub(super) fn index_reg(&mut self, u: &UOp) -> Res<VReg> {
        let Val::G(r) = self.val(u)? else { return Err(unsupported(u, "an index that is no integer")) };
        match (u.dtype().scalar, u.op()) {
            (Scalar::I64 | Scalar::U64, _) | (_, Op::Range | Op::Var | Op::Special | Op::Const) => Ok(r),
            (t, _) => Ok(self.extend(r, t, true)),
        }
    }
}
