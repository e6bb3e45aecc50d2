//! Instructions that modify and publish tensor maps: `tensormap.replace`, `tensormap.cp_fenceproxy`, proxy fences.
//!
//! A map has 128 bytes; the positions of its fields are those that ptxas 13.5.37 writes.

use super::build::{Build, Src, iadd3};
use super::memory::MemOperand;
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Val, Wide, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

/// A field in the words of a map: byte offset of the word, lowest bit, width, and bits that are cleared with it.
struct Bits {
    at: i64,
    low: u32,
    width: u32,
    clears: u32,
}

/// Bytes of a map.
const MAP_BYTES: u64 = 128;

/// The word of rank, element type and modes.
const MODES: i64 = 0x08;

impl Build<'_> {
    pub(super) fn tensormap(&mut self, i: &Flat) -> Result<(), AsmError> {
        match () {
            () if i.has("replace") => self.replace(i),
            () if i.has("cp_fenceproxy") => self.publish(i),
            () => self.no(i, "not assembled"),
        }
    }

    fn replace(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ordinal = || i.opds.get(1).and_then(|o| self.constant_of(o)).filter(|n| *n < 5 && i.opds.len() == 3);
        let k = ordinal().map_or(0, u64::cast_signed);
        let needs = ["box_dim", "global_dim", "global_stride", "element_stride"].iter().any(|w| i.has(w));
        if needs != ordinal().is_some() {
            return self.no(i, "a dimension below 5 is expected where there is one for each");
        }
        let new = &i.opds[i.opds.len() - 1];
        let field = |at, low, width| Bits { at, low, width, clears: 0 };
        let modes = |low, width| field(MODES, low, width);
        let (bits, less) = match () {
            () if i.has("global_address") => return self.replace_address(i, new),
            () if i.has("global_stride") => return self.replace_stride(i, k, new),
            () if i.has("rank") => (modes(4, 3), 0),
            () if i.has("box_dim") => (field(0x34 + (k + 3) / 4 * 4, ((k + 3) % 4 * 8) as u32, 8), 1),
            () if i.has("global_dim") => (field(0x20 + 4 * k, 0, 32), 1),
            () if i.has("element_stride") => (field(0x34, 3 * k as u32, 3), 1),
            () if i.has("elemtype") => (modes(7, 4), 0),
            () if i.has("interleave_layout") => (modes(11, 2), 0),
            () if i.has("swizzle_mode") => (Bits { clears: 1 << 22, ..modes(13, 2) }, 0),
            () if i.has("fill_mode") => (modes(15, 1), 0),
            () => return self.no(i, "this field is not assembled"),
        };
        let value = self.src(i, new, Type::U32)?;
        let value = match (value, less) {
            (v, 0) => v,
            (Val::Imm(n), less) => Val::Imm(n.wrapping_sub(less)),
            (v, less) => {
                let d = self.one();
                self.unguarded(|b| b.alu(iadd3(), d, [v.into(), less.wrapping_neg().into(), Src::ZERO], |m| m));
                Val::Word(d)
            }
        };
        self.replace_bits(i, &bits, value)
    }

    fn replace_address(&mut self, i: &Flat, new: &Opd) -> Result<(), AsmError> {
        let v = self.wide(i, new, Type::U64)?;
        let v = self.in_pair(v);
        let place = self.map_word(i, 0)?;
        self.map_store(i, &place, v, 2);
        self.replace_bits(i, &Bits { at: MODES, low: 21, width: 1, clears: 0 }, Val::Imm(0))
    }

    /// A stride in units of 16 bytes: its low word, and four bits above.
    fn replace_stride(&mut self, i: &Flat, k: i64, new: &Opd) -> Result<(), AsmError> {
        let v = self.wide(i, new, Type::U64)?;
        let (low, high) = (self.one(), self.one());
        self.unguarded(|b| {
            b.shift(low, [v.low().into(), 4.into(), v.high().into()], mods::dir::R, mods::ty::U64, false);
            b.shift(high, [Src::ZERO, 4.into(), v.high().into()], mods::dir::R, mods::ty::U32, true);
        });
        let place = self.map_word(i, 0x0c + 4 * k)?;
        self.map_store(i, &place, low, 1);
        self.replace_bits(i, &Bits { at: 0x1c, low: 4 * k as u32, width: 4, clears: 0 }, Val::Word(high))
    }

    /// Replaces bits of a word.
    fn replace_bits(&mut self, i: &Flat, bits: &Bits, value: Val) -> Result<(), AsmError> {
        let place = self.map_word(i, bits.at)?;
        if bits.width == 32 {
            let w = self.in_word(value);
            self.map_store(i, &place, w, 1);
            return Ok(());
        }
        let mask = ((1u32 << bits.width) - 1) << bits.low;
        let (old, kept, new) = (self.one(), self.one(), self.one());
        let m = if shared(i) { Mach::new(op::LDS_R) } else { Mach::new(op::LD_R).m(mods::e::E).m(mods::ev::NONE) };
        self.push(m.m(mods::sz::NONE).w("d", old).at_place(&place).effect());
        self.lop(kept, [old.into(), (!(mask | bits.clears)).into(), Src::ZERO], 0xc0);
        let moved = match value {
            Val::Imm(n) => Val::Imm(n << bits.low & mask),
            v => {
                let (up, d) = (self.one(), self.one());
                self.unguarded(|b| {
                    b.shift(up, [v.into(), bits.low.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                    b.lop(d, [up.into(), mask.into(), Src::ZERO], 0xc0);
                });
                Val::Word(d)
            }
        };
        self.lop(new, [kept.into(), moved.into(), Src::ZERO], 0xfc);
        self.map_store(i, &place, new, 1);
        Ok(())
    }

    fn map_word(&mut self, i: &Flat, at: i64) -> Result<MemOperand, AsmError> {
        let wide = !shared(i);
        let mut place = self.place(i, &i.opds[0], wide, 1 << 20)?;
        place.offset += at;
        Ok(place)
    }

    fn map_store(&mut self, i: &Flat, place: &MemOperand, w: Word, words: u8) {
        let m = if shared(i) { Mach::new(op::STS_R) } else { Mach::new(op::ST_R).m(mods::e::E).m(mods::ev::NONE) };
        self.push(
            m.m(if words == 2 { mods::sz::_64 } else { mods::sz::NONE }).rn("b", w, words).at_place(place).effect(),
        );
    }

    /// Copies a map from shared to global memory, one word by each thread of the warp, and makes it visible to the TMA
    /// unit.
    fn publish(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.opds.get(2).and_then(|o| self.constant_of(o)) != Some(MAP_BYTES) {
            return self.no(i, "128 bytes are copied");
        }
        let (lane, by, word) = (self.one(), self.one(), self.one());
        let from = self.address_value(i, &i.opds[1])?;
        let to = self.address_words(i, &i.opds[0], true)?;
        let (at, up, sum) = (self.one(), self.two(), self.two());
        self.push(Mach::new(op::S2R_S).w("d", lane).m(mods::s::SR_LANEID));
        self.shift(by, [lane.into(), 2.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        self.alu(iadd3(), at, [by.into(), from.into(), Src::ZERO], |m| m);
        self.push(Mach::new(op::LDS_R).m(mods::sz::NONE).w("d", word).at(Some(at), 1, 0).effect());
        let [Val::Word(low), ..] = to[..] else { return self.no(i, "an address is expected") };
        self.mov(up, Val::Word(by));
        self.mov(up.plus(1), Val::Imm(0));
        self.add64(sum, Wide::Pair(low), Wide::Pair(up));
        let m = Mach::new(op::ATOMG_R)
            .m(mods::op::EXCH)
            .m(mods::e::E)
            .m(mods::ev::NONE)
            .m(mods::sz::NONE)
            .m(mods::sem::STRONG_GPU);
        self.push(m.r("b", word).at(Some(sum), 2, 0).effect());
        Ok(())
    }

    /// `fence.proxy`.
    pub(super) fn proxy_fence(&mut self, i: &Flat) -> Result<(), AsmError> {
        if i.words().any(|w| w.starts_with("tensormap")) {
            if i.has("acquire") {
                // Invalidates the TMA unit's cached copy of the map.
                self.push(Mach::new(op::DEPBAR_L).n("l", 0x3f).effect());
                return self.forget_map(i);
            }
            let scope = if i.has("sys") { mods::sc::SYS } else { mods::sc::GPU };
            self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(scope).effect());
            self.push(Mach::new(op::ERRBAR_N).effect());
            self.push(Mach::new(op::CGAERRBAR_N).effect());
            return Ok(());
        }
        if i.has("alias") {
            self.push(Mach::new(op::MEMBAR_S).m(mods::k::SC).m(mods::sc::SYS).effect());
            self.push(Mach::new(op::CCTL_ALL).effect());
            return Ok(());
        }
        let (scope, view) = match i.space() {
            Some(Space::Global) => (None, mods::v::G),
            Some(Space::Shared | Space::SharedCta) => (Some(mods::sc::CTA), mods::v::S),
            _ => (Some(mods::sc::GPU), mods::v::S),
        };
        if let Some(scope) = scope {
            self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(scope).effect());
        }
        self.push(Mach::new(op::FENCE_V).m(view).effect());
        Ok(())
    }
}

fn shared(i: &Flat) -> bool {
    matches!(i.space(), Some(Space::Shared | Space::SharedCta))
}
