//! Branches, exits, barriers, fences, special registers.

use super::build::{Build, Src, iadd3, imad};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::lower::chips::{IN_CLUSTERS, twice};
use crate::sass::compile::mir::{Mach, Term, Val, Wide, Word};
use crate::sass::compile::optimise::facts::SHARED_START;
use crate::sass::compile::read::flat::{Flat, Opd, Symbol};
use crate::sass::{Modifier, Role, SmArch, mods, op};

impl Build<'_> {
    /// Ends the grid with an error.
    pub(super) fn trap(&mut self) {
        self.push(Mach::new(op::BPT_I).m(mods::md::TRAP).n("m", 1).effect());
    }

    pub(super) fn control(&mut self, i: &Flat, labels: usize) -> Result<(), AsmError> {
        match i.op {
            Opcode::Bra => {
                let Some(Opd::Symbol(Symbol::Label(l), 0)) = i.opds.first() else {
                    return self.no(i, "a label is expected");
                };
                let to = labels + *l as usize;
                let next = self.fresh();
                self.code.blocks[self.block].term = match self.guard.take() {
                    None => Term::Jump(to),
                    Some(p) => {
                        let same = i.has("uni") || i.guard.is_some_and(|(r, _)| self.is_uniform(r));
                        Term::Branch(p, to, next, same)
                    }
                };
                self.start(next);
                Ok(())
            }
            Opcode::Ret if self.code.returns.is_some() => {
                self.return_from();
                Ok(())
            }
            Opcode::Ret | Opcode::Exit if self.guard.is_none() => {
                self.code.blocks[self.block].term = Term::Exit;
                let next = self.fresh();
                self.start(next);
                Ok(())
            }
            Opcode::Ret | Opcode::Exit => {
                self.push(Mach::new(op::EXIT_N).effect());
                Ok(())
            }
            Opcode::Trap => {
                self.trap();
                Ok(())
            }
            Opcode::Brkpt => {
                self.push(Mach::new(op::BPT_I).m(mods::md::INT).n("m", 0).effect());
                Ok(())
            }
            Opcode::Nanosleep => {
                let v = self.src(i, &i.opds[0], Type::U32)?;
                let m = match v {
                    Val::Imm(n) => Mach::new(op::NANOSLEEP_I).n("m", u64::from(n)),
                    v => {
                        let w = self.in_word(v);
                        Mach::new(op::NANOSLEEP_R).r("b", w)
                    }
                };
                self.push(m.effect());
                Ok(())
            }
            Opcode::Bar | Opcode::Barrier => self.barrier(i),
            Opcode::Pmevent => self.event(i),
            // Programmatic dependent launch: launching dependents, and waiting for prerequisites.
            Opcode::Griddepcontrol => {
                let form = if i.has("wait") { op::ACQBULK_N } else { op::PREEXIT_N };
                self.push(Mach::new(form).effect());
                Ok(())
            }
            _ => self.fence(i),
        }
    }

    /// Performance monitor events, by number or as a mask.
    fn event(&mut self, i: &Flat) -> Result<(), AsmError> {
        let events = match (self.constant_of(&i.opds[0]), i.has("mask")) {
            (Some(mask @ ..0x1_0000), true) => mask,
            (Some(number @ ..16), false) => 1 << number,
            _ => return self.no(i, "an event from 0 to 15, or a mask of 16, is expected"),
        };
        self.push(Mach::new(op::PMTRIG_I).n("m", events).effect());
        Ok(())
    }

    fn barrier(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.has("cluster") {
            return self.cluster_barrier(i);
        }
        if i.has("warp") {
            self.push(Mach::new(op::WARPSYNC_ALL).effect());
            return Ok(());
        }
        let red = i.has("red");
        let first = usize::from(red);
        let number = self.constant_of(&i.opds[first]).filter(|n| *n < 16);
        let operands = i.opds.len() - first - usize::from(red);
        let threads = i.opds.get(first + 1).filter(|_| operands > 1);
        let count = threads.map_or(Some(0), |o| self.constant_of(o));
        self.barriers = number.map_or(16, |n| self.barriers.max(n as u32 + 1));
        let arrives = i.has("arrive") || i.has("arv");
        match (number, count) {
            (Some(n), Some(c)) if red => self.reduce_at_barrier(i, n, c),
            (Some(n), Some(c)) => {
                let m =
                    if arrives { Mach::new(op::BAR_ARV) } else { Mach::new(op::BAR_II).m(mods::df::DEFER_BLOCKING) };
                self.push(m.n("b", n).n("c", c).effect());
                Ok(())
            }
            _ if red => self.no(i, "a reduction at a barrier whose number or count is no constant is not assembled"),
            _ => self.barrier_of_registers(i, number, count, threads),
        }
    }

    /// A barrier whose number or thread count is in a register: if both are, they are packed into one.
    fn barrier_of_registers(
        &mut self,
        i: &Flat,
        number: Option<u64>,
        count: Option<u64>,
        threads: Option<&Opd>,
    ) -> Result<(), AsmError> {
        let arrives = i.has("arrive") || i.has("arv");
        let mode = if arrives { mods::md::ARV } else { mods::md::SYNC };
        let waits = |m: Mach| if arrives { m } else { m.m(mods::df::DEFER_BLOCKING) };
        let mut word = |o: &Opd| -> Result<Word, AsmError> {
            let v = self.src(i, o, Type::U32)?;
            Ok(self.in_word(v))
        };
        let m = match (number, count, threads) {
            (Some(n), None, Some(o)) => waits(Mach::new(op::BAR_IR).m(mode)).n("b", n).r("c", word(o)?),
            (None, Some(c), _) => {
                let b = word(&i.opds[0])?;
                let form = if arrives { op::BAR_RARV } else { op::BAR_RI };
                waits(Mach::new(form)).r("b", b).n("c", c)
            }
            (None, None, Some(o)) => {
                let (b, c) = (word(&i.opds[0])?, word(o)?);
                let (up, both) = (self.one(), self.one());
                self.unguarded(|s| {
                    s.shift(up, [c.into(), 16.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                    s.lop(both, [up.into(), 15.into(), b.into()], 0xf8);
                });
                waits(Mach::new(op::BAR_RR).m(mode)).r("b", both)
            }
            _ => return self.no(i, "a barrier below 16 is expected"),
        };
        self.push(m.effect());
        Ok(())
    }

    /// `bar.red`.
    fn reduce_at_barrier(&mut self, i: &Flat, number: u64, count: u64) -> Result<(), AsmError> {
        let p = self.pred_src(i, &i.opds[i.opds.len() - 1])?;
        let operation = match () {
            () if i.has("popc") => mods::op::POPC,
            () if i.has("and") => mods::op::AND,
            () => mods::op::OR,
        };
        let m = Mach::new(op::BAR_RED).n("b", number).n("c", count).m(operation).m(mods::df::DEFER_BLOCKING);
        self.push(m.p("pp", p).effect());
        let mut m = Mach::new(op::B2R_RES);
        m = match &i.opds[0] {
            Opd::Reg(r) if self.types[*r as usize] == Type::Pred => {
                let d = self.home(*r);
                m.w("pu", d)
            }
            o => {
                let d = self.dest(i, o)?;
                m.w("d", d)
            }
        };
        self.push(m.effect());
        Ok(())
    }

    fn fence(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.has("proxy") {
            return self.proxy_fence(i);
        }
        if i.has("mbarrier_init") {
            return Ok(());
        }
        let scope = match () {
            () if i.has("cta") => mods::sc::CTA,
            () if i.has("sys") => mods::sc::SYS,
            () if i.has("gl") || i.has("gpu") || i.has("cluster") => mods::sc::GPU,
            () => return self.no(i, "this fence is not assembled"),
        };
        let strict = i.op == Opcode::Membar && scope != mods::sc::CTA || i.has("sc");
        self.push(Mach::new(op::MEMBAR_S).m(if strict { mods::k::SC } else { mods::k::ALL }).m(scope).effect());
        if scope != mods::sc::CTA {
            self.push(Mach::new(op::ERRBAR_N).effect());
            self.push(Mach::new(op::CCTL_ALL).effect());
        }
        Ok(())
    }

    /// `mov d, %special`.
    pub(super) fn special(&mut self, i: &Flat, d: Word, name: &str) -> Result<(), AsmError> {
        let wide = i.ty().bits() == 64;
        let stem = name.trim_start_matches('%');
        if self.launch_register(d, stem, wide) || self.counter(d, stem) {
            return Ok(());
        }
        match stem.split_once('.').map(|(name, a)| (name, axis(a))) {
            Some((name, Some(axis))) if self.cluster_register(d, name, axis) => {}
            _ if self.field_register(d, stem) || self.shared_register(d, stem) => {}
            _ => match plain_register(stem) {
                Some(register) => self.push(Mach::new(op::S2R_S).w("d", d).m(register)),
                None => return self.no(i, &format!("{name} is not assembled")),
            },
        }
        if wide {
            self.mov(d.plus(1), Val::Imm(0));
        }
        Ok(())
    }

    /// Special registers that the launch puts into bank 0.
    fn launch_register(&mut self, d: Word, stem: &str, wide: bool) -> bool {
        let bank = |base: u32, at: Option<usize>| at.map(|k| base + 4 * k as u32);
        let found = match stem.split_once('.') {
            Some(("ntid", a)) => bank(0, axis(a)),
            Some(("nctaid", a)) => bank(0xc, axis(a)),
            Some(("nclusterid", a)) => bank(0x15c, axis(a)),
            Some(("cluster_nctaid", a)) => bank(0x144, axis(a)),
            None if stem == "cluster_nctarank" => Some(0x188),
            None if stem == "dynamic_smem_size" => Some(0x2c),
            None if stem == "nsmid" => Some(0x10c),
            None if stem == "gridid" => Some(0x30),
            None => numbered(stem, "envreg").filter(|n| *n < 32).map(|n| 0x40 + 4 * n),
            _ => None,
        };
        let Some(at) = found else { return false };
        match (wide, stem) {
            (true, "gridid") => self.mov64(d, Wide::Const(0, at)),
            (true, _) => {
                let word = self.launch_word(at);
                self.mov(d, word);
                self.mov(d.plus(1), Val::Imm(0));
            }
            _ => {
                let word = self.launch_word(at);
                self.mov(d, word);
            }
        }
        true
    }

    /// A word of the launch in bank 0, by its offset on sm_90.
    pub(super) fn launch_word(&mut self, at: u32) -> Val {
        let Some(there) = twice(at, self.chip) else { return Val::Const(0, at) };
        let (inside, by, d) = (self.one(), self.one(), self.one());
        self.unguarded(|b| {
            b.push(Mach::new(op::CS2R_S_SM120).w("d", inside).m(mods::s::SR_CGASIZE).m(mods::w::_32));
            b.alu(imad(), by, [inside.into(), IN_CLUSTERS.cast_unsigned().into(), Src::ZERO], |m| m);
            b.push(Mach::new(op::LDC_C).w("d", d).c("c", 0, there).field("c", Role::Register, by, 1, false));
        });
        Val::Word(d)
    }

    /// Clocks.
    fn counter(&mut self, d: Word, stem: &str) -> bool {
        let (register, words) = match stem {
            "clock64" => (mods::s::SR_CLOCKLO, 2),
            "globaltimer" => (mods::s::SR_GLOBALTIMERLO, 2),
            "clock" => (mods::s::SR_CLOCKLO, 1),
            "globaltimer_lo" => (mods::s::SR_GLOBALTIMERLO, 1),
            _ => {
                let (stem, words) = stem.strip_suffix("_64").map_or((stem, 1), |stem| (stem, 2));
                match numbered(stem, "pm").and_then(|n| PERFORMANCE.get(n as usize)) {
                    Some(register) => (*register, words),
                    None => return false,
                }
            }
        };
        let m = Mach::new(op::CS2R_S).wn("d", d, words).m(register);
        self.push(m.m(if words == 2 { mods::w::NONE } else { mods::w::_32 }).effect());
        true
    }

    /// Offsets in the shared memory that the driver reserves: at the start of a block's from sm_90 on, at the end
    /// before.
    fn reserved_register(&mut self, d: Word, place: &str) -> bool {
        let old = self.chip.is_before_hopper();
        let words = if old { 0x1f0 } else { 0x68 };
        let value = match place {
            "end" => self.launch_word(words),
            "1" => self.launch_word(words + 4),
            "begin" | "0" if !old => {
                Val::Imm(if place == "0" && self.chip == SmArch::Sm120 { FIRST_RESERVED } else { 0 })
            }
            "cap" if !old => Val::Imm(SHARED_START),
            "begin" | "0" => return self.shared_register(d, "total_smem_size"),
            "cap" => {
                self.push(Mach::new(op::S2R_S).w("d", d).m(mods::s::SR_SMEMSZ));
                return true;
            }
            _ => return false,
        };
        self.mov(d, value);
        true
    }

    /// Bytes of shared memory: without those that the driver reserves, or all.
    fn shared_register(&mut self, d: Word, stem: &str) -> bool {
        if let Some(place) = stem.strip_prefix("reserved_smem_offset_") {
            return self.reserved_register(d, place);
        }
        if !matches!(stem, "total_smem_size" | "aggr_smem_size") {
            return false;
        }
        let t = self.one();
        self.unguarded(|b| b.push(Mach::new(op::S2R_S).w("d", t).m(mods::s::SR_SMEMSZ)));
        match stem {
            "total_smem_size" => {
                let kept = Src::from(Val::Const(0, 0x114)).negated();
                self.alu(iadd3(), d, [t.into(), kept, Src::ZERO], |m| m);
            }
            _ => {
                let most = self.launch_word(0x13c);
                self.extreme(d, Val::Word(t), most, false, false);
            }
        }
        true
    }

    /// Bit fields of hardware registers: warp number, maximum number of warps.
    fn field_register(&mut self, d: Word, stem: &str) -> bool {
        let (register, mask) = match stem {
            "warpid" => (mods::s::SR_VIRTID, 0x7f),
            "nwarpid" => (mods::s::SR_VIRTCFG, 0xff),
            _ => return false,
        };
        let (t, u) = (self.one(), self.one());
        self.unguarded(|b| {
            b.push(Mach::new(op::S2R_S).w("d", t).m(register));
            b.shift(u, [Src::ZERO, 8.into(), t.into()], mods::dir::R, mods::ty::U32, true);
        });
        self.lop(d, [u.into(), mask.into(), Src::ZERO], 0xc0);
        true
    }
}

/// The first offset in reserved shared memory that sm_120 gives away.
const FIRST_RESERVED: u32 = 0x40;

/// Performance counters.
const PERFORMANCE: [Modifier; 8] = [
    mods::s::SR_PM0,
    mods::s::SR_PM1,
    mods::s::SR_PM2,
    mods::s::SR_PM3,
    mods::s::SR_PM4,
    mods::s::SR_PM5,
    mods::s::SR_PM6,
    mods::s::SR_PM7,
];

/// The number after a name.
fn numbered(stem: &str, name: &str) -> Option<u32> {
    stem.strip_prefix(name)?.parse().ok()
}

fn axis(name: &str) -> Option<usize> {
    ["x", "y", "z"].iter().position(|a| *a == name)
}

/// Special registers that are read directly.
fn plain_register(stem: &str) -> Option<Modifier> {
    Some(match stem {
        "tid.x" => mods::s::SR_TID_X,
        "tid.y" => mods::s::SR_TID_Y,
        "tid.z" => mods::s::SR_TID_Z,
        "ctaid.x" => mods::s::SR_CTAID_X,
        "ctaid.y" => mods::s::SR_CTAID_Y,
        "ctaid.z" => mods::s::SR_CTAID_Z,
        "laneid" => mods::s::SR_LANEID,
        "cluster_ctarank" => mods::s::SR_CGACTAID,
        "smid" => mods::s::SR_VIRTUALSMID,
        "clock_hi" => mods::s::SR_CLOCKHI,
        "globaltimer_hi" => mods::s::SR_GLOBALTIMERHI,
        "lanemask_eq" => mods::s::SR_EQMASK,
        "lanemask_lt" => mods::s::SR_LTMASK,
        "lanemask_le" => mods::s::SR_LEMASK,
        "lanemask_gt" => mods::s::SR_GTMASK,
        "lanemask_ge" => mods::s::SR_GEMASK,
        _ => return None,
    })
}
