//! Asynchronous copies by threads: `cp.async` and its groups.

use super::build::{Build, Src, iadd3};
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::lower::described::DESCRIPTOR;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

/// The scoreboard that counts groups of copies; it has no other use in code with such copies. Bulk copies use the next
/// one.
pub(crate) const GROUPS: u64 = 0;

/// Whether an address is in this block's shared memory.
pub(super) fn is_shared(i: &Flat) -> bool {
    matches!(i.space(), Some(Space::Shared | Space::SharedCta))
}

impl Build<'_> {
    pub(super) fn copy(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if i.has("bulk") => self.bulk(i),
            () if i.has("mbarrier") => self.copies_arrive(i),
            () if i.has("commit_group") => {
                self.push(Mach::new(op::LDGDEPBAR_N).effect());
                Ok(())
            }
            () if i.has("wait_all") => {
                self.push(Mach::new(op::LDGDEPBAR_N).effect());
                self.wait_groups(0);
                Ok(())
            }
            () if i.has("wait_group") => match i.opds.first().and_then(|o| self.constant_of(o)) {
                Some(n) if n < 64 => {
                    self.wait_groups(n);
                    Ok(())
                }
                _ => self.no(i, "a number of groups that is no constant below 64 is not assembled"),
            },
            () if i.has("async") => self.copy_async(i),
            () => self.no(i, "no such copy is assembled"),
        }
    }

    fn wait_groups(&mut self, left: u64) {
        self.push(Mach::new(op::DEPBAR_LE).n("s", GROUPS).n("n", left).effect());
    }

    /// `cp.async [shared], [global], bytes, source bytes or ignored`.
    fn copy_async(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(bytes) = i.opds.get(2).and_then(|o| self.constant_of(o)) else {
            return self.no(i, "a size that is no constant");
        };
        let size = match bytes {
            4 => mods::sz::NONE,
            8 => mods::sz::_64,
            16 => mods::sz::_128,
            _ => return self.no(i, "4, 8 or 16 bytes are copied"),
        };
        // A cache policy, if present the last operand, is only a hint.
        let operands = i.opds.len() - usize::from(i.has("L2::cache_hint"));
        let (copies, after) = match i.opds.get(3).filter(|_| operands > 3) {
            None => (Pred::TRUE, Val::Imm(0)),
            Some(o) => self.copied(i, o, bytes as u32)?,
        };
        let to = self.place(i, &i.opds[0], false, 1 << 19)?;
        let mut from = self.place(i, &i.opds[1], true, 1 << 11)?;
        if let (Some((w, n)), true) = (from.base, after != Val::Imm(0)) {
            let d = self.two();
            let after = self.in_word(after);
            self.unguarded(|b| {
                let more = b.zero_extended(after);
                b.add64(d, Wide::Pair(w), Wide::Pair(more));
            });
            from.base = Some((d, n));
        }
        let mut m = Mach::new(op::LDGSTS_D).m(mods::e::E).m(size).m(mods::ev::NONE).n("u", DESCRIPTOR);
        m = m.m(if i.has("cg") { mods::byp::BYPASS } else { mods::byp::NONE });
        if i.has("L2::128B") {
            m = m.m(mods::ltc::LTC128B);
        }
        m = m.at(to.base.map(|b| b.0), 1, to.offset);
        let Some((base, _)) = from.base else { return self.no(i, "a global address is expected") };
        m = m.at_slot("n", Some(base), 2, from.offset).wide_base("n");
        if operands > 3 {
            m = m.m(mods::zf::ZFILL).p("pp", copies);
        }
        // ptxas does the same before such copies.
        for _ in 0..3 {
            let idle = Mach::new(op::LDS_R).m(mods::sz::NONE).at(None, 0, 0).effect();
            self.always(idle.guarded(Some(Pred::TRUE.not())));
        }
        self.push(m.effect());
        Ok(())
    }

    /// Whether the source is read (it is not ignored, and its size is not 0), and the value by which its address is
    /// adjusted to express a size smaller than the copy's.
    fn copied(&mut self, i: &Flat, o: &Opd, bytes: u32) -> Result<(Pred, Val), AsmError> {
        if let Some(n) = self.constant_of(o) {
            let read = if n == 0 { Pred::TRUE.not() } else { Pred::TRUE };
            return Ok((read, Val::Imm(bytes.wrapping_sub(n as u32) & (bytes - 1))));
        }
        match o {
            Opd::Reg(r) if self.types[*r as usize] == Type::Pred => Ok((self.pred_src(i, o)?.not(), Val::Imm(0))),
            Opd::Not(_) => Ok((self.pred_src(i, o)?.not(), Val::Imm(0))),
            o => {
                let (n, p, left, after) = (self.src(i, o, Type::U32)?, self.pred(), self.one(), self.one());
                self.unguarded(|b| {
                    b.compare(p, mods::cmp::NE, false, n.into(), Src::ZERO);
                    b.alu(iadd3(), left, [Src::from(n).negated(), bytes.into(), Src::ZERO], |m| m);
                    b.lop(after, [left.into(), (bytes - 1).into(), Src::ZERO], 0xc0);
                });
                Ok((Pred::of(p), Val::Word(after)))
            }
        }
    }

    /// `cp.async.mbarrier.arrive`: arrives at an mbarrier when the thread's earlier copies are complete.
    fn copies_arrive(&mut self, i: &Flat) -> Result<(), AsmError> {
        let place = self.place(i, &i.opds[0], false, 1 << 23)?;
        let m = Mach::new(op::ARRIVES_U);
        let alike = matches!(&i.opds[0], Opd::Address(Opd::Reg(r), _) if self.is_uniform(*r));
        if self.chip.is_before_hopper() {
            if !i.has("noinc") {
                self.expect_one_more(&place);
            }
            return self.by_address(m.m(mods::c::NONE), &place, alike);
        }
        let count = if i.has("noinc") { mods::c::ARVCNT } else { mods::c::TRANSCNT };
        if !i.has("noinc") {
            let m = Mach::new(op::SYNCS_ARRIVE).m(mods::at::A0T1).m(mods::tm::RED);
            self.push(m.at_place(&place).effect());
        }
        self.by_address(m.m(count), &place, alike)
    }

    // --- uniform operands ---

    /// Moves a value that all active threads share to a uniform register.
    pub(super) fn put_uniform(&mut self, v: Val, register: u64) {
        match v {
            Val::Imm(n) => self.unguarded(|b| b.push(Mach::new(op::UMOV_I).n("d", register).n("b", n.into()).effect())),
            v => {
                let w = self.in_word(v);
                self.unguarded(|b| b.push(Mach::new(op::R2UR_R).n("d", register).r("a", w).effect()));
            }
        }
    }

    /// A shared or global address in a uniform register or pair.
    pub(super) fn put_uniform_address(&mut self, i: &Flat, o: &Opd, wide: bool, register: u64) -> Result<(), AsmError> {
        // With no offset field, so the limit is 1.
        let place = self.place(i, o, wide, 1)?;
        match place.base {
            None => self.put_uniform(Val::Imm(place.offset as u32), register),
            Some((w, _)) if place.offset == 0 => {
                self.put_uniform(Val::Word(w), register);
                if wide {
                    self.put_uniform(Val::Word(w.plus(1)), register + 1);
                }
            }
            Some((w, _)) => {
                let sum = if wide { self.two() } else { self.one() };
                let by = place.offset;
                self.unguarded(|b| match wide {
                    true => b.add64(sum, Wide::Pair(w), Wide::Imm(by.cast_unsigned())),
                    false => b.alu(iadd3(), sum, [w.into(), (by as u32).into(), Src::ZERO], |m| m),
                });
                self.put_uniform(Val::Word(sum), register);
                if wide {
                    self.put_uniform(Val::Word(sum.plus(1)), register + 1);
                }
            }
        }
        Ok(())
    }
}
