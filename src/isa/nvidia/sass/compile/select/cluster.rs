//! Thread block clusters: their barrier, access to other blocks' shared memory, stores that an mbarrier counts; also
//! `elect` and register reallocation.
//!
//! An address in the cluster's shared memory has the block's rank in its high byte. Code that passes such addresses on
//! adds its rank to the addresses of its own variables ([`Build::shared_value`]); if only this block's shared memory is
//! meant, they are constants.

use super::build::{Build, Src, iadd3, lea, prmt};
use super::memory::MemOperand;
use crate::ptx::{Opcode, Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::allocate::scalar::SCALARS;
use crate::sass::compile::lower::constants::CONSTANTS;
use crate::sass::compile::mir::{Mach, Pred, Term, Val, Wide, Word};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd};
use crate::sass::{Modifier, mods, op};

/// The first of the uniform registers that non-arithmetic instructions use in rotation; those below and above have
/// other uses.
const UNIFORM: u64 = 12;

/// Offset in bank 0 of the cluster's size along each axis.
const BLOCKS: u32 = 0x144;

/// Offset in bank 0 of the flag that the launch has explicit clusters.
pub(crate) const EXPLICIT: u32 = 0x140;

/// The uniform predicate that tells whether a request for registers succeeded.
const GRANTED: u64 = 0;

/// Whether code accesses other blocks of its cluster, or passes addresses to code that does.
pub(crate) fn knows_blocks(body: &Body) -> bool {
    body.items.iter().any(|item| {
        let Item::Inst(i) = item else { return false };
        let cluster = |o: &Opd| matches!(o, Opd::Special(n) if n.contains("cluster"));
        match i.op {
            Opcode::Mbarrier | Opcode::Mapa | Opcode::Getctarank | Opcode::Tensormap => true,
            Opcode::Barrier => i.has("cluster"),
            Opcode::Cp => i.has("bulk") || i.has("mbarrier"),
            Opcode::Clusterlaunchcontrol => i.has("try_cancel"),
            _ => i.space() == Some(Space::SharedCluster) || i.opds.iter().any(cluster),
        }
    })
}

impl Build<'_> {
    pub(super) fn cluster(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Elect => self.elect(i),
            Opcode::Mapa => self.map_address(i),
            Opcode::Getctarank => self.rank_of(i),
            Opcode::Isspacep => self.is_in_space(i),
            Opcode::Setmaxnreg => self.set_registers(i),
            _ => self.no(i, "not assembled"),
        }
    }

    /// That many uniform registers, aligned to `align`; they are reused in rotation.
    pub(super) fn uniform_registers(&mut self, count: u64, align: u64) -> u64 {
        let end = if self.chip.is_before_hopper() { SCALARS.start } else { CONSTANTS.start };
        let at = self.uniforms.max(UNIFORM).next_multiple_of(align);
        let at = if at + count > end.into() { UNIFORM.next_multiple_of(align) } else { at };
        self.uniforms = at + count;
        at
    }

    /// Emits code in a separate block under the guard, for instructions that cannot be guarded.
    pub(super) fn aside(&mut self, f: impl FnOnce(&mut Self) -> Result<(), AsmError>) -> Result<(), AsmError> {
        let next = self.only_where_guarded();
        f(self)?;
        if let Some(next) = next {
            self.code.blocks[self.block].term = Term::Jump(next);
            self.start(next);
        }
        Ok(())
    }

    /// The address of a constant offset in this block's shared memory.
    pub(super) fn shared_value(&mut self, at: u32) -> Val {
        if !self.is_ranked() {
            return Val::Imm(at);
        }
        if let Some(w) = self.shared.get(&at) {
            return Val::Word(*w);
        }
        let block = std::mem::take(&mut self.code.blocks[self.block].ops);
        let rank = match self.rank {
            Some(rank) => rank,
            None => {
                let rank = self.one();
                self.unguarded(|b| b.push(Mach::new(op::S2R_S).w("d", rank).m(mods::s::SR_CGACTAID)));
                self.rank = Some(rank);
                rank
            }
        };
        let d = self.one();
        self.unguarded(|b| b.alu(lea(), d, [rank.into(), at.into(), Src::ZERO], |m| m.n("sh", 24)));
        let made = std::mem::replace(&mut self.code.blocks[self.block].ops, block);
        self.entry.extend(made);
        self.shared.insert(at, d);
        Val::Word(d)
    }

    /// A 32-bit address as one value.
    pub(super) fn address_value(&mut self, i: &Flat, o: &Opd) -> Result<Val, AsmError> {
        let place = self.place(i, o, false, 1)?;
        Ok(match place.base {
            None => Val::Imm(place.offset as u32),
            Some((w, _)) if place.offset == 0 => Val::Word(w),
            Some((w, _)) => {
                let sum = self.one();
                let by = place.offset as u32;
                self.unguarded(|b| b.alu(iadd3(), sum, [w.into(), by.into(), Src::ZERO], |m| m));
                Val::Word(sum)
            }
        })
    }

    /// Shared memory of the cluster as a generic address.
    pub(super) fn cluster_place(&mut self, i: &Flat, o: &Opd, limit: i64) -> Result<MemOperand, AsmError> {
        let place = self.place(i, o, false, limit)?;
        let (low, offset) = match place.base {
            None => (Val::Imm(place.offset as u32), 0),
            Some((w, _)) => (Val::Word(w), place.offset),
        };
        let d = self.two();
        self.unguarded(|b| {
            b.mov(d, low);
            b.push(Mach::new(op::S2R_S).w("d", d.plus(1)).m(mods::s::SR_SWINHI));
        });
        Ok(MemOperand { base: Some((d, 2)), offset, above: false })
    }

    fn elect(&mut self, i: &Flat) -> Result<(), AsmError> {
        self.meet(i, &i.opds[1])?;
        let (d, p) = self.results(i)?;
        let p = p.unwrap_or_else(|| self.pred());
        let leader = self.uniform_registers(1, 1);
        self.push(Mach::new(op::ELECT_R).n("d", leader).w("pu", p).p("pp", Pred::TRUE).effect());
        if let Some(d) = d {
            self.push(Mach::new(op::MOV_U).w("d", d).n("b", leader).n("mask", 15));
        }
        Ok(())
    }

    /// `mapa`: the same offset in the shared memory of the block with another rank.
    fn map_address(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let rank = self.src(i, &i.opds[2], Type::U32)?;
        let wide = i.ty().bits() == 64;
        let (low, high) = match wide {
            true => {
                let a = self.wide(i, &i.opds[1], Type::U64)?;
                (a.low(), Some(a.high()))
            }
            false => (self.src(i, &i.opds[1], Type::U32)?, None),
        };
        // Three bytes of the address, and the rank as the top byte.
        let to = if wide { self.one() } else { d };
        self.alu(prmt(), to, [rank.into(), 0x654.into(), low.into()], |m| m);
        if let Some(high) = high {
            let pair = self.join_words(to, high);
            self.mov64(d, Wide::Pair(pair));
        }
        Ok(())
    }

    /// Two words as a pair.
    fn join_words(&mut self, low: Word, high: Val) -> Word {
        let d = self.two();
        self.unguarded(|b| {
            b.mov(d, Val::Word(low));
            b.mov(d.plus(1), high);
        });
        d
    }

    fn rank_of(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let low = match i.ty().bits() {
            64 => self.wide(i, &i.opds[1], Type::U64)?.low(),
            _ => self.src(i, &i.opds[1], Type::U32)?,
        };
        self.shift(d, [Src::ZERO, 24.into(), low.into()], mods::dir::R, mods::ty::U32, true);
        Ok(())
    }

    /// `isspacep`: whether a generic address is in a space.
    fn is_in_space(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(p) = self.pred_dest(&i.opds[0]) else { return self.no(i, "a predicate is expected") };
        let kind = match i.space() {
            Some(Space::Global) => mods::sp::G,
            Some(Space::Shared | Space::SharedCta) => mods::sp::S,
            Some(Space::SharedCluster) => mods::sp::D,
            _ => return self.no(i, "addresses of this space are not assembled"),
        };
        let a = self.wide(i, &i.opds[1], Type::U64)?;
        let a = self.in_pair(a);
        self.push(Mach::new(op::QSPC_R).m(mods::e::E).m(kind).w("pu", p).at(Some(a), 2, 0).effect());
        Ok(())
    }

    /// `setmaxnreg`: releases registers, or waits for more. If the initial number of registers is not declared, their
    /// number is unknown and nothing is done, as in ptxas.
    fn set_registers(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(n) = i.opds.first().and_then(|o| self.constant_of(o)) else {
            return self.no(i, "a number of registers is expected");
        };
        if !(24..=256).contains(&n) || !n.is_multiple_of(8) {
            return self.no(i, "24 to 256 registers, a multiple of 8");
        }
        if self.body.pool.is_none() {
            return Ok(());
        }
        self.aside(|b| {
            if i.has("dec") {
                b.push(Mach::new(op::USETMAXREG_D).n("n", n).effect());
                return Ok(());
            }
            let (again, done) = (b.fresh(), b.fresh());
            b.code.blocks[b.block].term = Term::Jump(again);
            b.start(again);
            b.push(Mach::new(op::USETMAXREG_A).n("n", n).n("pu", GRANTED).effect());
            let p = b.pred();
            // The third predicate may be uniform: the lowest bit selects its file.
            let m = Mach::new(op::PLOP3_P).w("pu", p).p("pa", Pred::TRUE).p("pb", Pred::TRUE);
            b.push(m.n("pc", GRANTED << 1 | 1).n("lut", 0x80).n("lut2", 0).effect());
            b.code.blocks[b.block].term = Term::Branch(Pred::of(p), done, again, true);
            b.start(done);
            Ok(())
        })
    }

    /// `barrier.cluster`.
    pub(super) fn cluster_barrier(&mut self, i: &Flat) -> Result<(), AsmError> {
        let arrives = i.has("arrive");
        if !arrives && !i.has("wait") {
            return self.no(i, "arrive or wait is expected");
        }
        self.aside(|b| {
            let (p, inside, done) = (b.pred(), b.fresh(), b.fresh());
            // A launch without clusters consists of single blocks, which have no such barrier.
            let (other, explicit) = (if arrives { done } else { b.fresh() }, b.in_word(Val::Const(0, EXPLICIT)));
            b.compare(p, mods::cmp::EQ, false, explicit.into(), 1.into());
            b.code.blocks[b.block].term = Term::Branch(Pred::of(p), inside, other, true);
            if !arrives {
                b.start(other);
                b.barriers = b.barriers.max(1);
                b.push(Mach::new(op::BAR_II).m(mods::df::DEFER_BLOCKING).effect());
                b.code.blocks[b.block].term = Term::Jump(done);
            }
            b.start(inside);
            if arrives && !i.has("relaxed") {
                b.release_gpu();
            }
            b.push(Mach::new(if arrives { op::UCGABAR_ARV_N } else { op::UCGABAR_WAIT_N }).effect());
            if !arrives {
                b.push(Mach::new(op::CCTL_ALL).effect());
            }
            b.code.blocks[b.block].term = Term::Jump(done);
            b.start(done);
            Ok(())
        })
    }

    /// Special registers for a block's position in the cluster and grid; false: it is none of them.
    pub(super) fn cluster_register(&mut self, d: Word, name: &str, axis: usize) -> bool {
        let place = [mods::s::SR_CTAID_X, mods::s::SR_CTAID_Y, mods::s::SR_CTAID_Z][axis];
        let rest = match name {
            "clusterid" => false,
            "cluster_ctaid" => true,
            _ => return false,
        };
        let at = self.one();
        self.push(Mach::new(op::S2R_S).w("d", at).m(place));
        let blocks = self.launch_word(BLOCKS + 4 * axis as u32);
        self.divide(d, Val::Word(at), blocks, false, rest);
        true
    }

    /// Address and mbarrier of a store that an mbarrier counts, as a pair.
    fn counted(&mut self, i: &Flat) -> Result<Word, AsmError> {
        let to = self.address_value(i, &i.opds[0])?;
        let bar = self.address_value(i, &i.opds[2])?;
        let d = self.two();
        self.unguarded(|b| {
            b.mov(d, to);
            b.mov(d.plus(1), bar);
        });
        Ok(d)
    }

    /// `st.async [a], b, [mbarrier]`.
    pub(super) fn store_async(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let words = (ty.bits() / 32) as u8 * i.lanes() as u8;
        if i.opds.len() != 3 || !matches!(words, 1 | 2 | 4) {
            return self.no(i, "an address, 4, 8 or 16 bytes and an mbarrier are expected");
        }
        let data = self.stored(i, &i.opds[1], ty, words)?;
        let at = self.counted(i)?;
        let m = Mach::new(op::STAS_R)
            .m([mods::sz::NONE, mods::sz::NONE, mods::sz::_64, mods::sz::NONE, mods::sz::_128][usize::from(words)])
            .at(Some(at), 2, 0);
        let m = m.wide_base("m").effect();
        self.push(match data {
            Some(w) => m.rn("b", w, words),
            None => m,
        });
        Ok(())
    }

    /// `red.async [a], b, [mbarrier]`.
    pub(super) fn reduce_async(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        if i.opds.len() != 3 {
            return self.no(i, "an address, a value and an mbarrier are expected");
        }
        let Some(operation) = reduction(i) else { return self.no(i, "this operation is not assembled") };
        let words = (ty.bits() / 32) as u8;
        let data = self.stored(i, &i.opds[1], ty, words)?;
        let at = self.counted(i)?;
        let size = match (ty, operation) {
            (Type::S32, mods::op::MIN | mods::op::MAX) => mods::sz::S32,
            _ if words == 2 => mods::sz::_64,
            _ => mods::sz::NONE,
        };
        let m = Mach::new(op::REDAS_R).m(operation).m(size).at(Some(at), 2, 0).wide_base("m").effect();
        self.push(match data {
            Some(w) => m.rn("b", w, words),
            None => m,
        });
        Ok(())
    }
}

/// The operation of a reduction, as the table names it.
pub(super) fn reduction(i: &Flat) -> Option<Modifier> {
    i.words().find_map(|w| {
        Some(match w {
            "add" => mods::op::ADD,
            "min" => mods::op::MIN,
            "max" => mods::op::MAX,
            "inc" => mods::op::INC,
            "dec" => mods::op::DEC,
            "and" => mods::op::AND,
            "or" => mods::op::OR,
            "xor" => mods::op::XOR,
            _ => return None,
        })
    })
}
