//! Warp-level operations: shuffles, votes, matches, reductions.

use super::build::Build;
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

impl Build<'_> {
    pub(super) fn warp(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Shfl => self.shuffle(i),
            Opcode::Vote => self.vote(i),
            Opcode::Activemask => {
                let d = self.dest(i, &i.opds[0])?;
                self.push(Mach::new(op::VOTE_D).w("d", d).m(mods::md::ANY).p("pp", Pred::TRUE).effect());
                Ok(())
            }
            Opcode::Match => self.match_inst(i),
            _ => self.reduce(i),
        }
    }

    /// Converges the threads of a member mask first, unless it names all threads.
    pub(super) fn meet(&mut self, i: &Flat, mask: &Opd) -> Result<(), AsmError> {
        if self.constant_of(mask).is_some_and(|m| m as u32 == u32::MAX) {
            return Ok(());
        }
        let v = self.src(i, mask, Type::B32)?;
        let w = self.in_word(v);
        self.push(Mach::new(op::WARPSYNC_R).r("a", w).effect());
        Ok(())
    }

    pub(super) fn results(&mut self, i: &Flat) -> Result<(Option<Word>, Option<Word>), AsmError> {
        Ok(match &i.opds[0] {
            Opd::Pair(d, p) => {
                let d = self.dest(i, d)?;
                (Some(d), self.pred_dest(p))
            }
            o => (Some(self.dest(i, o)?), None),
        })
    }

    fn shuffle(&mut self, i: &Flat) -> Result<(), AsmError> {
        if let Some(mask) = i.opds.get(4) {
            self.meet(i, mask)?;
        }
        let (d, p) = self.results(i)?;
        let a = self.src(i, &i.opds[1], Type::B32)?;
        let a = self.in_word(a);
        let (b, c) = (self.src(i, &i.opds[2], Type::B32)?, self.src(i, &i.opds[3], Type::B32)?);
        let form = match (b, c) {
            (Val::Imm(_), Val::Imm(_)) => op::SHFL_II,
            (Val::Imm(_), _) => op::SHFL_IR,
            (_, Val::Imm(_)) => op::SHFL_RI,
            _ => op::SHFL_RR,
        };
        let mut m = Mach::new(form).r("a", a);
        for (slot, v, bits) in [("b", b, 0x1f), ("c", c, 0x1fff)] {
            m = match v {
                Val::Imm(n) => m.n(slot, u64::from(n & bits)),
                v => {
                    let w = self.in_word(v);
                    m.r(slot, w)
                }
            };
        }
        let mode = match () {
            () if i.has("up") => mods::md::UP,
            () if i.has("down") => mods::md::DOWN,
            () if i.has("bfly") => mods::md::BFLY,
            () => mods::md::IDX,
        };
        m = m.m(mode);
        if let Some(d) = d {
            m = m.w("d", d);
        }
        if let Some(p) = p {
            m = m.w("pu", p);
        }
        self.push(m.effect());
        Ok(())
    }

    fn vote(&mut self, i: &Flat) -> Result<(), AsmError> {
        if let Some(mask) = i.opds.get(2) {
            self.meet(i, mask)?;
        }
        let p = self.pred_src(i, &i.opds[1])?;
        if i.has("ballot") {
            let d = self.dest(i, &i.opds[0])?;
            self.push(Mach::new(op::VOTE_D).w("d", d).m(mods::md::ANY).p("pp", p).effect());
            return Ok(());
        }
        let mode = if i.has("all") {
            mods::md::ALL
        } else if i.has("any") {
            mods::md::ANY
        } else {
            mods::md::EQ
        };
        let Some(d) = self.pred_dest(&i.opds[0]) else { return Ok(()) };
        self.push(Mach::new(op::VOTE_R).w("pu", d).m(mode).p("pp", p).effect());
        Ok(())
    }

    fn match_inst(&mut self, i: &Flat) -> Result<(), AsmError> {
        if let Some(mask) = i.opds.get(2) {
            self.meet(i, mask)?;
        }
        let (d, p) = self.results(i)?;
        let wide = i.ty().bits() == 64;
        let (a, n) = match wide {
            true => {
                let v = self.wide(i, &i.opds[1], Type::B64)?;
                (self.in_pair(v), 2)
            }
            false => {
                let v = self.src(i, &i.opds[1], Type::B32)?;
                (self.in_word(v), 1)
            }
        };
        let mut m = Mach::new(if i.has("all") { op::MATCH_ALL } else { op::MATCH_ANY }).rn("a", a, n);
        m = m.m(if wide { mods::w::U64 } else { mods::w::NONE });
        if let Some(d) = d {
            m = m.w("d", d);
        }
        if let Some(p) = p {
            m = m.w("pu", p);
        }
        self.push(m.effect());
        Ok(())
    }

    /// The hardware puts the result of a reduction into a uniform register; this one has no other use.
    fn reduce(&mut self, i: &Flat) -> Result<(), AsmError> {
        const UNIFORM: u64 = 4;
        if let Some(mask) = i.opds.get(2) {
            self.meet(i, mask)?;
        }
        let d = self.dest(i, &i.opds[0])?;
        let a = self.src(i, &i.opds[1], i.ty())?;
        let a = self.in_word(a);
        let operation = match () {
            () if i.has("add") => mods::op::SUM,
            () if i.has("min") => mods::op::MIN,
            () if i.has("max") => mods::op::MAX,
            () if i.has("or") => mods::op::OR,
            () if i.has("xor") => mods::op::XOR,
            () => mods::op::NONE,
        };
        let sg = if i.ty().is_signed() && operation != mods::op::SUM { mods::sg::S32 } else { mods::sg::NONE };
        self.push(Mach::new(op::REDUX_R).n("d", UNIFORM).r("a", a).m(operation).m(sg).effect());
        self.push(Mach::new(op::MOV_U).w("d", d).n("b", UNIFORM).n("mask", 15));
        Ok(())
    }
}
