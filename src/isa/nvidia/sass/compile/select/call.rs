//! Calls, returns, branches through tables.

use super::build::{Build, Src};
use crate::ptx::Type;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Nature, Pred, Term, Val, Word};
use crate::sass::compile::read::call::address;
use crate::sass::compile::read::flat::{Flat, Opd, Symbol};
use crate::sass::{mods, op};

/// R1, outside of register allocation.
const STACK: u64 = 1;

impl Build<'_> {
    pub(super) fn call(&mut self, i: &Flat) -> Result<(), AsmError> {
        self.uses_stack = true;
        let next = self.only_where_guarded();
        match &*i.opds {
            [Opd::Symbol(Symbol::Function(f), 0)] => self.call_one(i, *f)?,
            [Opd::Reg(_), Opd::Vector(list)] => self.call_any(i, list)?,
            _ => return self.no(i, "what is called is no function of this module"),
        }
        if let Some(next) = next {
            self.code.blocks[self.block].term = Term::Jump(next);
            self.start(next);
        }
        Ok(())
    }

    /// Continues in a block that only threads enter whose guard is set; returns the block after it.
    pub(super) fn only_where_guarded(&mut self) -> Option<usize> {
        let p = self.guard.take()?;
        let (inside, next) = (self.fresh(), self.fresh());
        self.code.blocks[self.block].term = Term::Branch(p, inside, next, false);
        self.start(inside);
        Some(next)
    }

    /// Calls one of several functions, by its address; the last one is not compared.
    fn call_any(&mut self, i: &Flat, list: &[Opd]) -> Result<(), AsmError> {
        let at = self.wide(i, &i.opds[0], Type::U64)?.low();
        let join = self.fresh();
        let Some((last, others)) = list.split_last() else {
            return self.no(i, "no function whose address is taken has this prototype");
        };
        for o in others {
            let Opd::Symbol(Symbol::Function(f), 0) = o else { continue };
            let (p, yes, no) = (self.pred(), self.fresh(), self.fresh());
            self.compare(p, mods::cmp::EQ, false, at.into(), (address(*f) as u32).into());
            self.code.blocks[self.block].term = Term::Branch(Pred::of(p), yes, no, false);
            self.start(yes);
            self.call_one(i, *f)?;
            self.code.blocks[self.block].term = Term::Jump(join);
            self.start(no);
        }
        if let Opd::Symbol(Symbol::Function(f), 0) = last {
            self.call_one(i, *f)?;
        }
        self.code.blocks[self.block].term = Term::Jump(join);
        self.start(join);
        Ok(())
    }

    fn call_one(&mut self, i: &Flat, f: u32) -> Result<(), AsmError> {
        let functions = self.functions;
        let Some(callee) = functions.list.get(f as usize) else { return self.no(i, "an unknown function") };
        // The message of a failed assertion is dropped: it ends the grid as `trap` does.
        if !callee.has_body && callee.name == "__assertfail" {
            self.trap();
            return Ok(());
        }
        if !callee.has_body {
            return self.no(i, &format!("{} has no body in this module", callee.name));
        }
        let recursive = |f: u32| functions.list.get(f as usize).is_some_and(|f| f.recursive);
        let inside = self.number.is_some_and(recursive);
        // Threads may return from a recursion at different times.
        let meets = callee.recursive && !inside;
        let before = self.block;
        if meets {
            let alone = self.fresh();
            self.code.blocks[before].term = Term::Jump(alone);
            self.start(alone);
        }
        self.emit_call(f);
        if meets {
            let next = self.fresh();
            self.code.blocks[self.block].term = Term::Jump(next);
            self.start(next);
            self.code.meets.push((before, next));
        } else if callee.recursive {
            self.code.strays.push(self.block);
        }
        self.calls.push(f);
        Ok(())
    }

    fn emit_call(&mut self, f: u32) {
        let (place, stack, call) = (self.one(), self.stack, self.code.calls);
        self.code.calls += 1;
        self.push(Mach::new(op::MOV_I).w("d", place).n("b", 0).n("mask", 15).nature(Nature::Address(call as u32)));
        self.push(
            Mach::new(op::STL_R).r("b", place).m(mods::sz::NONE).m(mods::ev::NONE).at(Some(stack), 1, 0).effect(),
        );
        let m = Mach::new(op::CALL_RELI).n("pp", 7).m(mods::ni::NOINC).nature(Nature::Call(f, call as u32));
        self.push(m.effect());
    }

    /// `ret` of a function.
    pub(super) fn return_from(&mut self) {
        let Some(to) = self.code.returns else { return };
        let next = self.fresh();
        self.code.blocks[self.block].term = match self.guard.take() {
            None => Term::Jump(to),
            Some(p) => Term::Branch(p, to, next, false),
        };
        self.start(next);
    }

    /// A function's last block: releases the frame and returns.
    pub(super) fn return_block(&mut self) {
        let Some(last) = self.code.returns else { return };
        self.code.blocks[self.block].term = Term::Jump(last);
        self.start(last);
        self.uses_stack = true;
        let (place, stack): (Word, Word) = (self.two(), self.stack);
        let m = Mach::new(op::LDL_R).w("d", place).m(mods::sz::NONE).m(mods::ev::NONE).at(Some(stack), 1, 0);
        self.push(m.above(true));
        self.mov(place.plus(1), Val::Imm(0));
        self.push(Mach::new(op::IADD3_I).n("d", STACK).n("a", STACK).n("b", 0).above(true).effect());
        self.push(Mach::new(op::RET_RELR).n("pp", 7).rn("a", place, 2).m(mods::nd::NODEC).effect());
    }

    /// `brx.idx`: a tree of comparisons.
    pub(super) fn table_branch(&mut self, i: &Flat, labels: usize) -> Result<(), AsmError> {
        let [index, Opd::Vector(list)] = &*i.opds else { return self.no(i, "a list of labels is expected") };
        let index = self.src(i, index, Type::U32)?;
        let at = Val::Word(self.in_word(index));
        let label = |o: &Opd| if let Opd::Symbol(Symbol::Label(l), _) = o { Some(labels + *l as usize) } else { None };
        let to: Vec<usize> = list.iter().filter_map(label).collect();
        let next = self.only_where_guarded();
        let mut work: Vec<(usize, usize, usize)> = vec![(self.block, 0, to.len())];
        while let Some((block, from, end)) = work.pop() {
            if block != self.block {
                self.start(block);
            }
            let mid = from.midpoint(end);
            if end - from <= 1 {
                let Some(to) = to.get(from) else { return self.no(i, "an empty list of labels") };
                self.code.blocks[block].term = Term::Jump(*to);
                continue;
            }
            let (p, low, high) = (self.pred(), self.fresh(), self.fresh());
            self.compare(p, mods::cmp::LT, false, at.into(), Src::from(mid as u32));
            let same = i.has("uni");
            self.code.blocks[block].term = Term::Branch(Pred::of(p), low, high, same);
            work.push((high, mid, end));
            work.push((low, from, mid));
        }
        let next = next.unwrap_or_else(|| self.fresh());
        self.start(next);
        Ok(())
    }
}
