//! `clusterlaunchcontrol`: taking over the work of a cluster of the launch that has not started.
//!
//! A request is UGETNEXTWORKID, which reads a pair of uniform registers: where the answer of 16 bytes goes in shared
//! memory, and the mbarrier that counts them. The answer is opaque in PTX; ptxas 13.5 reads the first block's index
//! from it (x is word 0, y and z are the halves of word 1), and from bit 0 of word 2 whether there was such a cluster.

use super::build::{Build, Src};
use super::bulk::Uniforms;
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{SmArch, mods, op};

impl Build<'_> {
    pub(super) fn steal(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if self.chip != SmArch::Sm120 => self.no(i, "the chip has no such instruction"),
            () if i.has("try_cancel") => self.try_cancel(i),
            () if i.has("is_canceled") => self.is_canceled(i),
            () => self.first_block(i),
        }
    }

    fn try_cancel(&mut self, i: &Flat) -> Result<(), AsmError> {
        if !matches!(i.space(), Some(Space::Shared | Space::SharedCta)) {
            return self.no(i, "only an answer in .shared::cta is assembled");
        }
        let a = vec![self.address_value(i, &i.opds[0])?, self.address_value(i, &i.opds[1])?];
        let cast = if i.has("multicast::cluster::all") { mods::cast::BROADCAST } else { mods::cast::SELFCAST };
        let m = Mach::new(op::UGETNEXTWORKID_U_SM120).m(cast);
        self.for_each_thread(m, Uniforms { a, align: 2, ..Uniforms::default() })
    }

    /// The words of an answer.
    fn answer(&mut self, i: &Flat) -> Result<Word, AsmError> {
        match self.stored(i, &i.opds[1], Type::B128, 4)? {
            Some(w) => Ok(w),
            None => self.no(i, "128 bits are expected in one register"),
        }
    }

    fn is_canceled(&mut self, i: &Flat) -> Result<(), AsmError> {
        let answer = self.answer(i)?;
        let Some(p) = self.pred_dest(&i.opds[0]) else { return self.no(i, "a predicate is expected") };
        let m = Mach::new(op::LOP3_I).w("pu", p).r("a", answer.plus(2)).n("b", 1).n("lut", 0xc0);
        self.push(m.p("pp", Pred::TRUE.not()));
        Ok(())
    }

    fn first_block(&mut self, i: &Flat) -> Result<(), AsmError> {
        let answer = self.answer(i)?;
        let axes = ["get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"];
        let to: Vec<(usize, &Opd)> = match (axes.iter().position(|axis| i.has(axis)), &i.opds[0]) {
            (Some(axis), o) => vec![(axis, o)],
            (None, Opd::Vector(v)) if v.len() == 4 && i.has("get_first_ctaid") => v.iter().enumerate().collect(),
            _ => return self.no(i, "this query is not assembled"),
        };
        for (axis, o) in to.into_iter().filter(|(_, o)| **o != Opd::Nothing) {
            let d = self.dest(i, o)?;
            match axis {
                0 => self.mov(d, Val::Word(answer)),
                1 => self.lop(d, [answer.plus(1).into(), 0xffff.into(), Src::ZERO], 0xc0),
                2 => {
                    let halves = [Src::ZERO, 16.into(), answer.plus(1).into()];
                    self.shift(d, halves, mods::dir::R, mods::ty::U32, true);
                }
                _ => self.mov(d, Val::Imm(0)),
            }
        }
        Ok(())
    }
}
