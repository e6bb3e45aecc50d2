//! What the threads of a warp do together: shuffles, votes, matches, reductions.

use super::super::AsmError;
use super::super::build::Build;
use super::super::flat::{Flat, Opd};
use super::super::mir::{Mach, Pred, Val, Word};
use crate::ptx::{Opcode, Type};
use crate::sass::op;

impl Build<'_> {
    pub(super) fn warp(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Shfl => self.shuffle(i),
            Opcode::Vote => self.vote(i),
            Opcode::Activemask => {
                let d = self.dest(i, &i.opds[0])?;
                self.push(Mach::new(op::VOTE_D).w("d", d).m("md", ".ANY").p("pp", Pred::TRUE).effect());
                Ok(())
            }
            Opcode::Match => self.match_inst(i),
            _ => self.reduce(i),
        }
    }

    /// Threads named by a mask that is not all of them meet first.
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
            () if i.has("up") => ".UP",
            () if i.has("down") => ".DOWN",
            () if i.has("bfly") => ".BFLY",
            () => ".IDX",
        };
        m = m.m("md", mode);
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
            self.push(Mach::new(op::VOTE_D).w("d", d).m("md", ".ANY").p("pp", p).effect());
            return Ok(());
        }
        let mode = if i.has("all") {
            ".ALL"
        } else if i.has("any") {
            ".ANY"
        } else {
            ".EQ"
        };
        let Some(d) = self.pred_dest(&i.opds[0]) else { return Ok(()) };
        self.push(Mach::new(op::VOTE_R).w("pu", d).m("md", mode).p("pp", p).effect());
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
        m = m.m("w", if wide { ".U64" } else { "" });
        if let Some(d) = d {
            m = m.w("d", d);
        }
        if let Some(p) = p {
            m = m.w("pu", p);
        }
        self.push(m.effect());
        Ok(())
    }

    /// Reductions land in a uniform register; one that nothing else uses.
    fn reduce(&mut self, i: &Flat) -> Result<(), AsmError> {
        const UNIFORM: u64 = 4;
        if let Some(mask) = i.opds.get(2) {
            self.meet(i, mask)?;
        }
        let d = self.dest(i, &i.opds[0])?;
        let a = self.src(i, &i.opds[1], i.ty())?;
        let a = self.in_word(a);
        let operation = match () {
            () if i.has("add") => ".SUM",
            () if i.has("min") => ".MIN",
            () if i.has("max") => ".MAX",
            () if i.has("or") => ".OR",
            () if i.has("xor") => ".XOR",
            () => "",
        };
        let sg = if i.ty().is_signed() && !matches!(operation, ".SUM") { ".S32" } else { "" };
        self.push(Mach::new(op::REDUX_R).n("d", UNIFORM).r("a", a).m("op", operation).m("sg", sg).effect());
        self.push(Mach::new(op::MOV_U).w("d", d).n("b", UNIFORM).n("mask", 15));
        Ok(())
    }
}
