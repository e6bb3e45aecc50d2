//! Loops, whose iterations are the same for all threads, and mutable registers.

use super::super::op;
use super::mir::{Code, Inst, Part};
use super::plan::register;
use super::{Level, LevelKind, Res, Select, Src, Val};
use doorbell_codegen::regalloc::{Flow, Label};
use doorbell_uop::{Scalar, UOp};
use smallvec::smallvec;
use std::collections::HashMap;

/// An open loop.
#[derive(Debug)]
pub(super) struct Loop {
    counter: Part,
    end: Src,
    /// The program's bounds of the number of iterations.
    iterations: (i128, i128),
}

impl Select<'_> {
    pub(super) fn open_loop(&mut self, p: usize, u: &UOp) -> Res<()> {
        let end = self.plain(&u.src()[0])?[0];
        if !self.is_uniform(end) {
            return Err(self.unsupported(u, "threads disagree about the end of a loop"));
        }
        let words = self.words(u.dtype().scalar);
        let counter = self.s_part(words);
        let iterations = (u.src()[0].vmin(), u.src()[0].vmax());
        let open = Loop { counter, end, iterations };
        self.levels.push(Level { insts: Vec::new(), kind: LevelKind::Loop(open), sums: HashMap::new() });
        self.cur = self.levels.len() - 1;
        self.vals[p] = Some(smallvec![Src::Part(counter)]);
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    pub(super) fn close_loop(&mut self, u: &UOp) -> Res<()> {
        let level = self.levels.pop().filter(|_| !self.levels.is_empty());
        let Some(Level { insts, kind: LevelKind::Loop(l), .. }) = level else {
            return Err(self.malformed(format!("{u:?} closes what is not innermost")));
        };
        self.cur = self.levels.len() - 1;
        if l.iterations.1 <= 0 {
            return Ok(());
        }
        let (top, exit) = (self.func.label(), self.func.label());
        if l.iterations.0 < 1 {
            self.skip_unless_positive(l.end, l.counter.words, exit)?;
        }
        for k in 0..l.counter.words {
            let word = Part { sub: k, words: 1, ..l.counter };
            self.put(smallvec![Code::new(op::S_MOV_B32, &[word.into(), 0.into()])]);
        }
        if l.iterations.1 > 1 {
            self.levels[self.cur].insts.push(Inst::label(top));
        }
        self.levels[self.cur].insts.extend(insts);
        if l.iterations.1 > 1 {
            self.next_iteration(&l, top)?;
        }
        if l.iterations.0 < 1 {
            self.levels[self.cur].insts.push(Inst::label(exit));
        }
        Ok(())
    }

    /// Jumps to the label if a count is zero or negative.
    fn skip_unless_positive(&mut self, count: Src, words: u8, to: Label) -> Res<()> {
        let high = self.word(count, words - 1);
        let test = if words == 2 { op::S_CMP_LT_I32 } else { op::S_CMP_LE_I32 };
        self.branch(Code::new(test, &[self.opd(high), 0.into()]), op::S_CBRANCH_SCC1, to)?;
        if words == 2 {
            let wide = self.opd_wide(count)?;
            self.branch(Code::new(op::S_CMP_EQ_U64, &[wide, 0.into()]), op::S_CBRANCH_SCC1, to)?;
        }
        Ok(())
    }

    /// Adds one to the counter and jumps to the label while it is below the end.
    fn next_iteration(&mut self, l: &Loop, top: Label) -> Res<()> {
        let low = Part { words: 1, ..l.counter };
        if l.counter.words == 1 {
            self.run(Code::new(op::S_ADD_I32, &[low.into(), low.into(), 1.into()]))?;
            let end = self.opd(l.end);
            return self.branch(Code::new(op::S_CMP_LT_I32, &[low.into(), end]), op::S_CBRANCH_SCC1, top);
        }
        let high = Part { sub: 1, words: 1, ..l.counter };
        let add = self.run_all(vec![
            Code::new(op::S_ADD_U32, &[low.into(), low.into(), 1.into()]),
            Code::new(op::S_ADDC_U32, &[high.into(), high.into(), 0.into()]),
        ])?;
        for r in &mut add.regs {
            r.role = doorbell_codegen::regalloc::Role::Mod;
        }
        let end = self.opd_wide(l.end)?;
        self.branch(Code::new(op::S_CMP_LG_U64, &[l.counter.into(), end]), op::S_CBRANCH_SCC1, top)
    }

    /// A comparison and the jump that depends on it.
    fn branch(&mut self, test: Code, jump: super::super::Op, to: Label) -> Res<()> {
        let test = self.legal(test)?;
        let jump = Code::new(jump, &[super::super::Operand::Label(to.0).into()]);
        self.put(smallvec![test, jump]).flow = Flow::Branch(to);
        Ok(())
    }

    /// Makes a mutable register and gives it its first value.
    pub(super) fn acc(&mut self, p: usize, u: &UOp) -> Res<()> {
        let init = self.plain(&u.src()[0])?;
        let t = u.dtype().scalar;
        let words = self.words(t);
        let parts: Vec<Part> = match self.home(p, u) {
            Some(home) => home,
            None => (0..u.dtype().lanes)
                .map(|_| if t == Scalar::Bool { self.mask_part() } else { self.v_part(words) })
                .collect(),
        };
        let last = self.plan.last_set.get(u).copied().unwrap_or(0);
        for (k, part) in parts.iter().enumerate() {
            self.mutable.insert(part.reg, last);
            self.copy_to(*part, init[k.min(init.len() - 1)])?;
        }
        self.vals[p] = Some(parts.into_iter().map(Src::Part).collect());
        self.made_in[p] = self.cur as u32;
        Ok(())
    }

    pub(super) fn set_acc(&mut self, u: &UOp) -> Res<()> {
        let acc = register(&u.src()[0]);
        let value = &u.src()[1];
        let to = self.val(&acc)?;
        let parts: Vec<Part> = to.iter().filter_map(|s| if let Src::Part(p) = s { Some(*p) } else { None }).collect();
        let at = self.pos.get(value).map(|p| *p as usize);
        let mut from: Val = match at {
            Some(at) if self.plan.into[at] && self.vals[at].is_none() => self.compute(value, Some(&parts))?,
            _ => self.plain(value)?,
        };
        let t = value.dtype().scalar;
        for s in from.iter_mut().filter(|s| matches!(s, Src::Packed { .. })) {
            *s = self.unpack(*s, t)?;
        }
        // Lanes that change places go through other registers.
        let crosses = |k: usize, s: &Src| matches!(s, Src::Part(q) if parts.iter().enumerate().any(|(j, r)| j != k && r.reg == q.reg && r.sub == q.sub));
        if from.iter().enumerate().any(|(k, s)| crosses(k, s)) {
            for s in &mut from {
                if let Src::Part(q) = *s {
                    *s = Src::Part(self.copy(q)?);
                }
            }
        }
        for (k, part) in parts.iter().enumerate() {
            let lane = from[k.min(from.len() - 1)];
            if lane != Src::Part(*part) {
                self.copy_to(*part, lane)?;
            }
        }
        Ok(())
    }

    /// Places a label in the current level.
    pub(super) fn place_label(&mut self, l: Label) {
        self.levels[self.cur].insts.push(Inst::label(l));
    }

    /// Jumps to the label while a counter is not zero.
    pub(super) fn count_down(&mut self, counter: Part, top: Label) -> Res<()> {
        self.branch(Code::new(op::S_CMP_LG_U32, &[counter.into(), 0.into()]), op::S_CBRANCH_SCC1, top)
    }
}
