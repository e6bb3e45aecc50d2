//! `mbarrier` on chips before sm_90, where arrivals are counted by an atomic operation.
//!
//! The word of an mbarrier for n arrivals is initialised to low `2^30 - n`, which each phase starts with, and high
//! `2^31 - n`, which counts up: its top bit, the carry, is the phase's parity. A state is the word before an arrival.
//! Source: code of ptxas 13.5 for sm_80.

use super::MemOperand;
use super::build::{Build, Src, iadd3};
use crate::ptx::Type;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Term, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

impl Build<'_> {
    pub(super) fn counted_mbarrier(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if i.has("init") => self.initialise_counts(i),
            () if i.has("inval") => Ok(()),
            () if i.has("expect_tx") || i.has("complete_tx") || i.has("try_wait") => {
                self.no(i, "it is there from sm_90 on")
            }
            () if i.has("arrive") || i.has("arrive_drop") => self.count_arrival(i),
            () if i.has("test_wait") => self.carry_changed(i),
            () if i.has("pending_count") => self.arrivals_to_come(i),
            () => self.no(i, "not assembled"),
        }
    }

    /// The address of an mbarrier's word.
    fn counts(&mut self, i: &Flat, o: &Opd) -> Result<MemOperand, AsmError> {
        self.place(i, o, false, (1 << 23) - 8)
    }

    fn initialise_counts(&mut self, i: &Flat) -> Result<(), AsmError> {
        let count = self.src(i, &i.opds[1], Type::U32)?;
        let data = self.two();
        for (word, start) in [(data, 1u32 << 30), (data.plus(1), 1 << 31)] {
            self.alu(iadd3(), word, [Src::from(count).negated(), start.into(), Src::ZERO], |m| m);
        }
        let place = self.counts(i, &i.opds[0])?;
        self.push(Mach::new(op::STS_R).m(mods::sz::_64).at_place(&place).rn("b", data, 2).effect());
        Ok(())
    }

    fn count_arrival(&mut self, i: &Flat) -> Result<(), AsmError> {
        let place = self.counts(i, &i.opds[1])?;
        let count = match i.opds.get(2) {
            Some(o) => self.src(i, o, Type::U32)?,
            None => Val::Imm(1),
        };
        let state = if let Opd::Reg(_) = i.opds[0] { Some(self.dest(i, &i.opds[0])?) } else { None };
        self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(mods::sc::CTA).effect());
        if i.has("arrive_drop") {
            self.add_shared(None, &place, count);
        }
        if i.has("noComplete") {
            let high = MemOperand { offset: place.offset + 4, ..place };
            let before = state.map(|_| self.one());
            self.add_shared(before, &high, count);
            if let (Some(d), Some(before)) = (state, before) {
                (0..2).for_each(|k| self.mov(d.plus(k), Val::Word(before)));
            }
            return Ok(());
        }
        if count != Val::Imm(1) {
            return self.no(i, "a count without .noComplete is there from sm_90 on");
        }
        let m = Mach::new(op::ATOMS_ARRIVE_SM80).at_place(&place);
        self.push(match state {
            Some(d) => m.wn("d", d, 2).effect(),
            None => m.effect(),
        });
        Ok(())
    }

    /// Adds to a word of shared memory.
    fn add_shared(&mut self, before: Option<Word>, place: &MemOperand, value: Val) {
        let data = self.in_word(value);
        let m = Mach::new(op::ATOMS_R).m(mods::op::ADD).m(mods::sz::NONE).at_place(place).r("b", data);
        self.push(match before {
            Some(d) => m.w("d", d).effect(),
            None => m.effect(),
        });
    }

    fn carry_changed(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(p) = self.pred_dest(&i.opds[0]) else { return self.no(i, "a predicate is expected") };
        let before = match i.has("parity") {
            true => {
                let (v, t) = (self.src(i, &i.opds[2], Type::U32)?, self.one());
                self.shift(t, [v.into(), 31.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                Val::Word(t)
            }
            false => self.wide(i, &i.opds[2], Type::B64)?.high(),
        };
        let place = self.counts(i, &i.opds[1])?;
        let (now, changed) = (self.one(), self.one());
        self.push(
            Mach::new(op::LDS_R)
                .m(mods::sz::NONE)
                .w("d", now)
                .at_place(&MemOperand { offset: place.offset + 4, ..place })
                .effect(),
        );
        self.lop(changed, [now.into(), before.into(), Src::ZERO], 0x3c);
        self.compare(p, mods::cmp::LT, true, changed.into(), Src::ZERO);
        Ok(())
    }

    fn arrivals_to_come(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let (high, n) = (self.wide(i, &i.opds[1], Type::B64)?.high(), self.one());
        self.lop(n, [high.into(), 0x7fff_ffff.into(), Src::ZERO], 0xc0);
        self.alu(iadd3(), d, [Src::from(n).negated(), (1u32 << 31).into(), Src::ZERO], |m| m);
        Ok(())
    }

    /// `cp.async.mbarrier.arrive` without `.noinc`: before the arrival, increments the number of pending arrivals.
    pub(super) fn expect_one_more(&mut self, place: &MemOperand) {
        self.add_shared(None, &MemOperand { offset: place.offset + 4, ..*place }, Val::Imm(u32::MAX));
    }

    /// Executes an instruction that takes its shared memory address from a uniform register, for the active threads:
    /// all threads with the same address at once, or all threads if the address is known to be uniform.
    pub(super) fn by_address(&mut self, m: Mach, place: &MemOperand, all_alike: bool) -> Result<(), AsmError> {
        let Some((base, _)) = place.base else {
            self.push(m.at(None, 0, place.offset).effect());
            return Ok(());
        };
        let register = self.uniform_registers(1, 1);
        let m = m.at_uniform(register, place.offset).effect();
        if all_alike {
            self.put_uniform(Val::Word(base), register);
            self.push(m);
            return Ok(());
        }
        self.aside(|b| {
            let (again, done, lane) = (b.fresh(), b.fresh(), b.one());
            b.push(Mach::new(op::S2R_S).w("d", lane).m(mods::s::SR_LANEID));
            b.code.blocks[b.block].term = Term::Jump(again);
            b.start(again);
            let (here, first, theirs, mine, same) = (b.one(), b.one(), b.one(), b.pred(), b.pred());
            b.push(Mach::new(op::VOTE_D).w("d", here).m(mods::md::ANY).p("pp", Pred::TRUE).effect());
            b.push(Mach::new(op::FLO_R).w("d", first).r("b", here).m(mods::sg::U32));
            b.compare(mine, mods::cmp::EQ, false, first.into(), lane.into());
            let moved = Mach::new(op::R2UR_R).n("d", register).r("a", base).effect();
            b.always(moved.guarded(Some(Pred::of(mine))));
            b.push(
                Mach::new(op::SHFL_RI).m(mods::md::IDX).w("d", theirs).r("a", base).r("b", first).n("c", 0x1f).effect(),
            );
            b.compare(same, mods::cmp::EQ, false, theirs.into(), base.into());
            b.always(m.guarded(Some(Pred::of(same))));
            b.code.blocks[b.block].term = Term::Branch(Pred::of(same), done, again, false);
            b.start(done);
            Ok(())
        })
    }
}
