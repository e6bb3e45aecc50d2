//! Statements → masks: which lanes run what.

use super::{Loc, Lower};
use crate::code::{Bin, Inst, Row, Un};
use crate::error::Res;
use crate::tree::{Case, Expr, Stmt};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Construct {
    If,
    Loop,
    Switch,
    Function,
}

/// A construct that instructions are made inside of.
pub(crate) struct Open {
    pub construct: Construct,
    /// Jumps to its end when no lane is on.
    pub skips: Vec<usize>,
    /// The branch that opened it.
    pub branch: usize,
}

/// Whether lanes may leave a statement other than by its end.
fn escapes(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Break | Stmt::Continue | Stmt::Return(..) => true,
        Stmt::If(_, a, b) => escapes(a) || escapes(b),
        Stmt::Loop { body, .. } => returns(body),
        Stmt::Switch { body, .. } => {
            body.iter().any(|c| matches!(c, Case::Stmt(s) if returns(std::slice::from_ref(s))))
        }
        Stmt::Block(body) => escapes(body),
        _ => false,
    })
}

/// Whether a `return` is in it.
pub(super) fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|s| match s {
        Stmt::Return(..) => true,
        Stmt::If(_, a, b) => returns(a) || returns(b),
        Stmt::Loop { body, .. } | Stmt::Block(body) => returns(body),
        Stmt::Switch { body, .. } => body.iter().any(|c| match c {
            Case::Stmt(s) => returns(std::slice::from_ref(s)),
            _ => false,
        }),
        _ => false,
    })
}

impl Lower<'_> {
    pub(crate) fn patch(&mut self, inst: usize, target: u32) {
        match &mut self.code.insts[inst] {
            Inst::If { els: to, .. }
            | Inst::Else { end: to }
            | Inst::LoopTest { exit: to, .. }
            | Inst::LoopNext { exit: to }
            | Inst::Skip { to }
            | Inst::Back { to } => *to = target,
            _ => {}
        }
    }

    fn patch_skips(&mut self) {
        let here = self.here();
        let skips = self.open.last_mut().map(|o| std::mem::take(&mut o.skips)).unwrap_or_default();
        for skip in skips {
            self.patch(skip, here);
        }
    }

    pub(crate) fn push(&mut self, construct: Construct, branch: usize) {
        self.open.push(Open { construct, skips: Vec::new(), branch });
    }

    pub(crate) fn open_if(&mut self, c: Row) {
        let branch = self.emit(Inst::If { c, els: 0 });
        self.push(Construct::If, branch);
    }

    /// From the first branch to the second.
    pub(crate) fn turn_if(&mut self) {
        self.patch_skips();
        let here = self.emit(Inst::Else { end: 0 });
        if let Some(open) = self.open.last_mut() {
            let branch = std::mem::replace(&mut open.branch, here);
            self.patch(branch, here as u32);
        }
    }

    pub(crate) fn close_if(&mut self) {
        self.patch_skips();
        let here = self.emit(Inst::EndIf);
        if let Some(open) = self.open.pop() {
            self.patch(open.branch, here as u32);
        }
    }

    /// If no lane is on any more, the rest of the innermost construct is passed over.
    pub(crate) fn skip_rest(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let skip = self.emit(Inst::Skip { to: 0 });
        if let Some(open) = self.open.last_mut() {
            open.skips.push(skip);
        }
    }

    /// Statements in a scope of their own; whether their end can be reached.
    pub(crate) fn scope(&mut self, body: &[Stmt]) -> Res<bool> {
        let (top, memory) = (self.top, self.memory_top);
        let mut reaches = true;
        for stmt in body {
            if !reaches {
                break;
            }
            reaches = self.statement(stmt)?;
        }
        (self.top, self.memory_top) = (top, memory);
        Ok(reaches)
    }

    fn statement(&mut self, stmt: &Stmt) -> Res<bool> {
        self.check_size()?;
        match stmt {
            Stmt::Expr(e) => {
                let (top, memory) = (self.top, self.memory_top);
                self.discard(e)?;
                (self.top, self.memory_top) = (top, memory);
            }
            Stmt::Let { var, init, at } => {
                self.at = *at;
                self.declare(*var, init.as_ref())?;
            }
            Stmt::If(test, yes, no) => self.if_statement(test, yes, no)?,
            Stmt::Loop { test, step, body, test_last } => {
                self.loop_statement(test.as_ref(), step.as_ref(), body, *test_last)?;
            }
            Stmt::Switch { value, body } => self.switch_statement(value, body)?,
            Stmt::Break => {
                let frames = self.frames_above(|c| matches!(c, Construct::Loop | Construct::Switch));
                self.emit(Inst::Break { frames });
                return Ok(false);
            }
            Stmt::Continue => {
                let frames = self.frames_above(|c| c == Construct::Loop);
                self.emit(Inst::Continue { frames });
                return Ok(false);
            }
            Stmt::Return(value, at) => {
                self.at = *at;
                self.return_statement(value.as_ref())?;
                return Ok(false);
            }
            Stmt::Block(body) => return self.scope(body),
        }
        Ok(true)
    }

    /// Frames on the stack above the nearest one of a kind.
    fn frames_above(&self, wanted: impl Fn(Construct) -> bool) -> u32 {
        self.open.iter().rev().take_while(|o| !wanted(o.construct)).count() as u32
    }

    fn if_statement(&mut self, test: &Expr, yes: &[Stmt], no: &[Stmt]) -> Res<()> {
        let (top, memory) = (self.top, self.memory_top);
        let c = self.value(test)?;
        self.at = test.at;
        self.open_if(c);
        self.scope(yes)?;
        if !no.is_empty() {
            self.turn_if();
            self.scope(no)?;
        }
        self.close_if();
        (self.top, self.memory_top) = (top, memory);
        if escapes(yes) || escapes(no) {
            self.skip_rest();
        }
        Ok(())
    }

    fn loop_statement(&mut self, test: Option<&Expr>, step: Option<&Expr>, body: &[Stmt], last: bool) -> Res<()> {
        let (top, memory) = (self.top, self.memory_top);
        let begin = self.emit(Inst::LoopBegin);
        self.push(Construct::Loop, begin);
        let head = self.here();
        let mut exits = Vec::new();
        if !last {
            exits.extend(self.loop_test(test)?);
        }
        self.scope(body)?;
        self.patch_skips();
        exits.push(self.emit(Inst::LoopNext { exit: 0 }));
        if let Some(step) = step {
            let top = self.top;
            self.discard(step)?;
            self.top = top;
        }
        if last {
            exits.extend(self.loop_test(test)?);
        }
        self.emit(Inst::Back { to: head });
        let end = self.here();
        exits.into_iter().for_each(|exit| self.patch(exit, end));
        self.open.pop();
        self.emit(Inst::LoopEnd);
        (self.top, self.memory_top) = (top, memory);
        if returns(body) {
            self.skip_rest();
        }
        Ok(())
    }

    fn loop_test(&mut self, test: Option<&Expr>) -> Res<Option<usize>> {
        let Some(test) = test else { return Ok(None) };
        let top = self.top;
        let c = self.value(test)?;
        self.at = test.at;
        self.top = top;
        Ok(Some(self.emit(Inst::LoopTest { c, exit: 0 })))
    }

    fn switch_statement(&mut self, value: &Expr, body: &[Case]) -> Res<()> {
        let (top, memory) = (self.top, self.memory_top);
        let (scalar, _) = self.parts(value.ty);
        let row = self.value(value)?;
        self.at = value.at;
        let mut tests = Vec::new();
        let none = self.alloc(1);
        self.emit(Inst::Const { d: none, v: 1 });
        for case in body {
            if let Case::Value(bits) = case {
                let (k, op) = if scalar.is_wide() {
                    (self.constant64(*bits), Bin::EqL)
                } else {
                    (self.constant(*bits as u32), Bin::EqI)
                };
                let c = self.bin(op, row, k, 1);
                let other = self.un(Un::Not, c, 1);
                self.emit(Inst::Bin { op: Bin::And, d: none, a: none, b: other, n: 1 });
                tests.push(c);
            }
        }
        let begin = self.emit(Inst::SwitchBegin);
        self.push(Construct::Switch, begin);
        let mut tests = tests.into_iter();
        let (mut reaches, mut left) = (true, false);
        for case in body {
            match case {
                Case::Value(_) | Case::Default => {
                    self.patch_skips();
                    let c = if matches!(case, Case::Default) { none } else { tests.next().unwrap_or(none) };
                    self.emit(Inst::CaseIn { c });
                    self.skip_rest();
                    reaches = true;
                }
                Case::Stmt(stmt) if reaches => {
                    left |= returns(std::slice::from_ref(stmt));
                    reaches = self.statement(stmt)?;
                }
                Case::Stmt(_) => {}
            }
        }
        self.patch_skips();
        self.open.pop();
        self.emit(Inst::SwitchEnd);
        (self.top, self.memory_top) = (top, memory);
        if left {
            self.skip_rest();
        }
        Ok(())
    }

    fn return_statement(&mut self, value: Option<&Expr>) -> Res<()> {
        let (top, memory) = (self.top, self.memory_top);
        let (result, framed, base) = {
            let frame = self.frame();
            (frame.result.clone(), frame.framed, frame.base)
        };
        match (value, result) {
            (Some(value), Some((to, ty))) if self.types.is_aggregate(ty) => self.initialise(&to, value, ty)?,
            (Some(value), Some((to, ty))) => {
                let direct = if let Loc::Reg { row, .. } = to { Some(row) } else { None };
                let row = self.value_to(value, direct)?;
                self.write(&to, ty, row)?;
            }
            (Some(value), None) => self.discard(value)?,
            _ => {}
        }
        if framed {
            let frames = (self.open.len() - base - 1) as u32;
            self.emit(Inst::Return { frames });
        }
        (self.top, self.memory_top) = (top, memory);
        Ok(())
    }
}
