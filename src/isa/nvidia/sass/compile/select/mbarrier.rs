//! Barriers in shared memory: `mbarrier`.
//!
//! The word of an mbarrier for n arrivals is initialised to low `(2^20 - n) << 1` and high `(2^20 - n) << 11`; its top
//! bit is the phase's parity. A state is the word before an arrival.

use super::build::{Build, Src, iadd3};
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Term, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Modifier, mods, op};

/// Uniform registers of an initialisation: address, and the word's pair.
const ADDRESS: u64 = 8;
const WORD: u64 = 10;

impl Build<'_> {
    pub(super) fn mbarrier(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if i.has("init") => self.initialise(i),
            () if i.has("inval") => {
                let place = self.place(i, &i.opds[0], false, 1 << 23)?;
                let m = Mach::new(op::SYNCS_CCTL).m(mods::op::IV).at(place.base.map(|b| b.0), 1, place.offset);
                self.push(m.effect());
                Ok(())
            }
            () if i.has("arrive") || i.has("arrive_drop") => self.arrive(i),
            () if i.has("expect_tx") => self.transact(i, mods::at::A0TR),
            () if i.has("complete_tx") => self.transact(i, mods::at::A0TX),
            () if i.has("test_wait") || i.has("try_wait") => self.phase_over(i),
            () if i.has("pending_count") => self.pending(i),
            () => self.no(i, "not assembled"),
        }
    }

    fn initialise(&mut self, i: &Flat) -> Result<(), AsmError> {
        let count = self.src(i, &i.opds[1], Type::U32)?;
        let words = match count {
            Val::Imm(n) => [1, 11].map(|shift| Val::Imm(0x10_0000u32.wrapping_sub(n) << shift)),
            v => {
                let (t, low, high) = (self.one(), self.one(), self.one());
                self.unguarded(|b| {
                    b.alu(iadd3(), t, [Src::from(v).negated(), 0x10_0000.into(), Src::ZERO], |m| m);
                    b.shift(low, [t.into(), 1.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                    b.shift(high, [t.into(), 11.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                });
                [low, high].map(Val::Word)
            }
        };
        let Opd::Address(base, _) = &i.opds[0] else { return self.no(i, "an address is expected") };
        let same = |b: &Self, o: &Opd| if let Opd::Reg(r) = o { b.is_uniform(*r) } else { true };
        if !(same(self, base) && same(self, &i.opds[1])) {
            // Each thread may initialise an mbarrier of its own.
            let data = self.two();
            self.unguarded(|b| words.iter().enumerate().for_each(|(k, w)| b.mov(data.plus(k as u8), *w)));
            let place = self.place(i, &i.opds[0], false, 1 << 23)?;
            let m = Mach::new(op::STS_R).m(mods::sz::_64).at(place.base.map(|b| b.0), 1, place.offset);
            self.push(m.rn("b", data, 2).effect());
            return Ok(());
        }
        let next = self.only_where_guarded();
        self.put_uniform_address(i, &i.opds[0], false, ADDRESS)?;
        words.iter().zip([WORD, WORD + 1]).for_each(|(w, r)| self.put_uniform(*w, r));
        self.push(Mach::new(op::SYNCS_EXCH).n("d", 63).at_uniform(ADDRESS, 0).n("b", WORD).effect());
        if let Some(next) = next {
            self.code.blocks[self.block].term = Term::Jump(next);
            self.start(next);
        }
        Ok(())
    }

    fn arrive(&mut self, i: &Flat) -> Result<(), AsmError> {
        let place = self.place(i, &i.opds[1], false, 1 << 23)?;
        if i.has("cluster") {
            self.release_cluster();
        }
        let mut m = Mach::new(op::SYNCS_ARRIVE).at(place.base.map(|b| b.0), 1, place.offset);
        if i.has("arrive_drop") {
            m = m.m(mods::oo::OPTOUT);
        }
        m = match () {
            () if i.space() == Some(Space::SharedCluster) => m.m(mods::tm::RED),
            () if i.has("noComplete") => m.m(mods::tm::TMASK),
            () => m,
        };
        let count = match i.opds.get(2) {
            Some(o) => Some(self.src(i, o, Type::U32)?),
            None => None,
        };
        let bytes = i.has("expect_tx");
        let kind = match count {
            _ if bytes => mods::at::NONE,
            None | Some(Val::Imm(1)) if !i.has("noComplete") => mods::at::A1T0,
            _ => mods::at::ART0,
        };
        m = m.m(kind);
        if let Some(v) = count.filter(|_| kind != mods::at::A1T0)
            && let Some(w) = self.held(v)
        {
            m = m.r("b", w);
        }
        let state = if let Opd::Reg(_) = i.opds[0] { Some(self.dest(i, &i.opds[0])?) } else { None };
        if let Some(d) = state {
            m = m.wn("d", d, 2);
        }
        self.push(m.effect());
        if let Some(d) = state.filter(|_| i.has("noComplete")) {
            self.add_arrivals_of_lower_lanes(d, count.unwrap_or(Val::Imm(1)));
        }
        Ok(())
    }

    /// .TMASK returns the state before any lane of the warp arrived, with the mask of arriving lanes in its low word:
    /// each lane adds the arrivals of the lanes below it.
    fn add_arrivals_of_lower_lanes(&mut self, state: Word, each: Val) {
        let [below, lanes, number, arrivals] = [self.one(), self.one(), self.one(), self.one()];
        self.push(Mach::new(op::S2R_S).w("d", below).m(mods::s::SR_LTMASK));
        self.lop(lanes, [state.into(), below.into(), Src::ZERO], 0xc0);
        self.unary(op::POPC_R, number, lanes.into(), |m| m);
        self.shift(arrivals, [number.into(), 11.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        self.multiply(state.plus(1), arrivals.into(), each.into(), state.plus(1).into());
    }

    /// Release at cluster scope: makes earlier writes visible to the other blocks of the cluster.
    pub(super) fn release_cluster(&mut self) {
        self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(mods::sc::CTA).effect());
        self.release_gpu();
    }

    /// The same, without the part for shared memory.
    pub(super) fn release_gpu(&mut self) {
        self.release(mods::sc::GPU);
    }

    fn transact(&mut self, i: &Flat, kind: Modifier) -> Result<(), AsmError> {
        let place = self.place(i, &i.opds[0], false, 1 << 23)?;
        let bytes = self.src(i, &i.opds[1], Type::U32)?;
        let mut m = Mach::new(op::SYNCS_ARRIVE).at(place.base.map(|b| b.0), 1, place.offset).m(kind);
        m = m.m(mods::tm::RED);
        if let Some(w) = self.held(bytes) {
            m = m.r("b", w);
        }
        self.push(m.effect());
        Ok(())
    }

    fn phase_over(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(p) = self.pred_dest(&i.opds[0]) else { return self.no(i, "a predicate is expected") };
        let parity = match i.has("parity") {
            true => {
                let v = self.src(i, &i.opds[2], Type::U32)?;
                match v {
                    Val::Imm(n) => Val::Imm(n << 31),
                    v => {
                        let t = self.one();
                        self.unguarded(|b| {
                            b.shift(t, [v.into(), 31.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false)
                        });
                        Val::Word(t)
                    }
                }
            }
            false => self.wide(i, &i.opds[2], Type::B64)?.high(),
        };
        let place = self.place(i, &i.opds[1], false, 1 << 23)?;
        let m = Mach::new(op::SYNCS_PHASECHK).m(if i.has("try_wait") { mods::tw::TRYWAIT } else { mods::tw::NONE });
        let m = m.w("pu", p).at(place.base.map(|b| b.0), 1, place.offset);
        let m = match self.held(parity) {
            Some(w) => m.r("b", w),
            None => m,
        };
        self.push(m.effect());
        Ok(())
    }

    /// The number of arrivals that a state was waiting for.
    fn pending(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let high = self.wide(i, &i.opds[1], Type::B64)?.high();
        let (t, n) = (self.one(), self.one());
        self.unguarded(|b| {
            b.shift(t, [Src::ZERO, 11.into(), high.into()], mods::dir::R, mods::ty::U32, true);
            b.lop(n, [t.into(), 0xf_ffff.into(), Src::ZERO], 0xc0);
        });
        self.alu(iadd3(), d, [Src::from(n).negated(), 0x10_0000.into(), Src::ZERO], |m| m);
        Ok(())
    }
}
