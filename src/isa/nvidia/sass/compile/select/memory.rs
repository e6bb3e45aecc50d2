//! Loads, stores, address spaces, atomics.

use super::build::{Build, PARAMS, Src, iadd3};
use crate::ptx::{Opcode, Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Nature, Template, Val, Wide, Word};
use crate::sass::compile::optimise::facts::{Known, SHARED_START};
use crate::sass::compile::read::flat::{Flat, Opd, Symbol};
use crate::sass::{Form, Modifier, mods, op};

/// Offset in bank 0 of the parameters' address.
const PARAMETERS: u32 = 0x198;

/// Offsets beside an index register in a constant bank: the field is unsigned here, and every part of an access fits.
const MOST_INDEXED: i64 = 0x7f00;

/// A base register with its words, and a byte offset.
pub(crate) struct MemOperand {
    pub base: Option<(Word, u8)>,
    pub offset: i64,
    /// The offset counts from the end of the frame.
    pub above: bool,
}

impl MemOperand {
    fn new(base: Option<(Word, u8)>, offset: i64) -> MemOperand {
        MemOperand { base, offset, above: false }
    }
}

/// How an instruction addresses memory.
#[derive(Clone, Copy)]
pub(super) struct Addressing {
    /// Addresses have two words.
    pub wide: bool,
    /// Bits of the offset, without its sign.
    pub offset_bits: u32,
}

impl Addressing {
    pub(super) const GLOBAL: Addressing = Addressing { wide: true, offset_bits: 23 };
    const GENERIC: Addressing = Addressing { wide: true, offset_bits: 31 };
    const SHARED: Addressing = Addressing { wide: false, offset_bits: 23 };
    const LOCAL: Addressing = Addressing::SHARED;

    /// Of an atomic operation: a bit less than the field has on sm_90, as sm_120's is shorter.
    pub(super) const fn atomic(wide: bool) -> Addressing {
        Addressing { wide, offset_bits: 22 }
    }
}

/// Accesses of one word under the usual cache policy.
static LDG: Template = global(op::LDG_R);
static LD: Template = global(op::LD_R);
pub(super) static STG: Template = global(op::STG_R);
static ST: Template = global(op::ST_R);
static LDS: Template = Template::of(op::LDS_R).with(mods::sz::NONE);
static STS: Template = Template::of(op::STS_R).with(mods::sz::NONE);
static LDL: Template = Template::of(op::LDL_R).with(mods::sz::NONE).with(mods::ev::NONE);
static STL: Template = Template::of(op::STL_R).with(mods::sz::NONE).with(mods::ev::NONE);

const fn global(form: &'static Form) -> Template {
    Template::of(form).with(mods::e::E).with(mods::ev::NONE).with(mods::sz::NONE)
}

/// The text of an access's size.
pub(super) fn size_text(bytes: usize, signed: bool) -> Modifier {
    match (bytes, signed) {
        (1, false) => mods::sz::U8,
        (1, true) => mods::sz::S8,
        (2, false) => mods::sz::U16,
        (2, true) => mods::sz::S16,
        (8, _) => mods::sz::_64,
        (16, _) => mods::sz::_128,
        _ => mods::sz::NONE,
    }
}

/// The memory order modifier of an access.
fn semantics(i: &Flat) -> Modifier {
    if i.is_plain() {
        return mods::sem::NONE;
    }
    let strong = ["volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"].iter().any(|w| i.has(w));
    match () {
        () if i.has("nc") => mods::sem::CONSTANT,
        () if i.has("volatile") || i.has("sys") => mods::sem::STRONG_SYS,
        () if i.has("cta") => mods::sem::STRONG_SM,
        () if strong => mods::sem::STRONG_GPU,
        () => mods::sem::NONE,
    }
}

/// The scope of an access to all copies; without one it is the system.
pub(super) fn scope(i: &Flat) -> Modifier {
    match () {
        () if i.has("cta") => mods::sem::STRONG_SM,
        () if i.has("gpu") || i.has("cluster") => mods::sem::STRONG_GPU,
        () => mods::sem::STRONG_SYS,
    }
}

/// Whether it may access the shared memory of another block.
fn is_elsewhere(i: &Flat) -> bool {
    i.space() == Some(Space::SharedCluster)
}

/// Whether an address is that of an argument or result of a call.
fn passed(o: &Opd) -> bool {
    let Opd::Address(base, _) = o else { return false };
    matches!(**base, Opd::Symbol(Symbol::Outgoing(_) | Symbol::Incoming(_), _))
}

impl Build<'_> {
    pub(super) fn memory(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Ld | Opcode::Ldu => self.load(i),
            Opcode::St => self.store(i),
            Opcode::Cvta => self.cvta(i),
            // Cache policies are hints and are ignored, so their creation is too.
            Opcode::Createpolicy => {
                let d = self.dest(i, &i.opds[0])?;
                self.mov64(d, Wide::Imm(0));
                Ok(())
            }
            Opcode::Prefetch if i.has("tensormap") => self.prefetch_map(i),
            Opcode::Prefetch | Opcode::Prefetchu | Opcode::Applypriority | Opcode::Discard => self.cache_hint(i),
            _ => self.no(i, "not assembled"),
        }
    }

    /// The address of an operand. Wide ones (global, generic) have two words.
    pub(super) fn place(&mut self, i: &Flat, o: &Opd, wide: bool, limit: i64) -> Result<MemOperand, AsmError> {
        let Opd::Address(base, offset) = o else { return self.no(i, "an address is expected") };
        if wide && matches!(i.op, Opcode::Ld | Opcode::St | Opcode::Atom | Opcode::Red) && is_elsewhere(i) {
            return self.cluster_place(i, o, limit);
        }
        let fits = |v: i64| (-limit..limit).contains(&v);
        match &**base {
            Opd::Reg(r) => {
                let mut r = self.facts.root(*r);
                let mut offset = *offset;
                if let Known::Sum(root, more) = self.facts.known[r as usize]
                    && fits(offset.saturating_add(more))
                {
                    (r, offset) = (root, offset + more);
                }
                if !wide && let Known::Shared(at) = self.facts.known[r as usize] {
                    return Ok(self.shared_place(i, at, offset));
                }
                let double = self.types[r as usize].bits() == 64;
                let w = match (double, wide) {
                    (true, _) => {
                        let v = self.wide(i, &Opd::Reg(r), Type::U64)?;
                        self.in_pair(v)
                    }
                    (false, false) => {
                        let v = self.src(i, &Opd::Reg(r), Type::U32)?;
                        self.in_word(v)
                    }
                    (false, true) => return self.no(i, "a 32-bit address in a 64-bit space"),
                };
                if fits(offset) {
                    return Ok(MemOperand::new(Some((w, if wide { 2 } else { 1 })), offset));
                }
                let d = if wide { self.two() } else { self.one() };
                self.unguarded(|b| match wide {
                    true => b.add64(d, Wide::Pair(w), Wide::Imm(offset.cast_unsigned())),
                    false => b.alu(iadd3(), d, [w.into(), (offset as u32).into(), Src::ZERO], |m| m),
                });
                Ok(MemOperand::new(Some((d, if wide { 2 } else { 1 })), 0))
            }
            Opd::Symbol(Symbol::Shared(at), more) => Ok(self.shared_place(i, SHARED_START + at, more + offset)),
            Opd::Symbol(Symbol::Local(at), more) => {
                let at = i64::from(self.frame_offset(*at));
                Ok(MemOperand::new(Some((self.stack, 1)), at + more + offset))
            }
            Opd::Symbol(Symbol::Outgoing(at), more) => {
                self.uses_stack = true;
                Ok(MemOperand::new(Some((self.stack, 1)), i64::from(*at) + more + offset))
            }
            Opd::Symbol(Symbol::Incoming(at), more) => {
                let base = Some((self.stack, 1));
                Ok(MemOperand { base, offset: i64::from(*at) + more + offset, above: true })
            }
            Opd::Symbol(Symbol::Global(slot), more) => {
                let w = self.in_pair(Wide::Const(4, *slot));
                Ok(MemOperand::new(Some((w, 2)), more + offset))
            }
            _ => self.no(i, "such an address is not assembled"),
        }
    }

    /// An address in a shared variable: a constant if only this block's shared memory is meant.
    fn shared_place(&mut self, i: &Flat, at: u32, offset: i64) -> MemOperand {
        let own = match i.op {
            Opcode::Ld | Opcode::St | Opcode::Atom | Opcode::Red => !is_elsewhere(i),
            Opcode::Ldmatrix | Opcode::Stmatrix | Opcode::Wmma => true,
            Opcode::Cp => !i.has("bulk") && !i.has("mbarrier"),
            _ => false,
        };
        match self.shared_value(at) {
            Val::Word(w) if !own => MemOperand::new(Some((w, 1)), offset),
            _ => MemOperand::new(None, i64::from(at) + offset),
        }
    }

    fn load(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let bytes = ty.bits().div_ceil(8) as usize * i.lanes();
        let passed = passed(&i.opds[1]);
        match i.space() {
            Some(Space::Param | Space::ParamEntry | Space::Const) if !passed => return self.load_constant(i, ty),
            Some(Space::Global) if bytes == 32 && i.lanes() > 1 => {
                let Some(halves) = i.halves(0, 1) else { return self.no(i, "such an access is not assembled") };
                return halves.iter().try_for_each(|half| self.load(half));
            }
            _ if bytes > 16 => return self.no(i, "accesses of more than 16 bytes are not assembled"),
            _ => {}
        }
        let sub_word = ty.bits() < 32 && i.lanes() > 1;
        let (d, words) = self.load_dest(i, ty, bytes, sub_word)?;
        let signed = ty.is_signed() && bytes < 4;
        let m = match i.space() {
            Some(Space::Global) => self.accessed(i, LDG.mach().mark(semantics(i)), 1, Addressing::GLOBAL)?,
            None | Some(Space::SharedCluster) => {
                self.accessed(i, LD.mach().mark(semantics(i)), 1, Addressing::GENERIC)?
            }
            Some(Space::Shared | Space::SharedCta) => self.accessed(i, LDS.mach(), 1, Addressing::SHARED)?,
            Some(Space::Local) => self.accessed(i, LDL.mach(), 1, Addressing::LOCAL)?,
            _ if passed => self.accessed(i, LDL.mach(), 1, Addressing::LOCAL)?,
            _ => return self.no(i, "this space is not assembled"),
        };
        let m = m.mark(size_text(bytes, signed)).wn("d", d, words);
        let m = if ["volatile", "acquire", "relaxed"].iter().any(|w| i.has(w)) { m.effect() } else { m };
        self.push(m);
        self.load_rest(i, d, ty, sub_word)
    }

    /// Sets the address, which is operand `at`.
    pub(super) fn accessed(&mut self, i: &Flat, m: Mach, at: usize, by: Addressing) -> Result<Mach, AsmError> {
        let place = self.place(i, &i.opds[at], by.wide, 1 << by.offset_bits)?;
        Ok(m.above(place.above).at_place(&place))
    }

    /// Registers that a load writes: the text's if they are neighbours.
    pub(super) fn load_dest(
        &mut self,
        i: &Flat,
        ty: Type,
        bytes: usize,
        sub_word: bool,
    ) -> Result<(Word, u8), AsmError> {
        let words = bytes.div_ceil(4) as u8;
        let fresh = |b: &mut Self| match words {
            1 => b.one(),
            2 => b.two(),
            _ => b.four(),
        };
        match &i.opds[0] {
            Opd::Vector(_) if sub_word => Ok((fresh(self), words)),
            Opd::Vector(v) => match self.neighbours(v, ty, words) {
                Some(w) => Ok((w, words)),
                None => Ok((fresh(self), words)),
            },
            Opd::Reg(r) if ty.bits() < self.types[*r as usize].bits() && self.types[*r as usize].bits() == 64 => {
                Ok((self.home(*r), words))
            }
            o => Ok((self.dest(i, o)?, words)),
        }
    }

    /// The first word of a vector whose registers are neighbours.
    pub(super) fn neighbours(&mut self, v: &[Opd], ty: Type, words: u8) -> Option<Word> {
        let step = (ty.bits() / 32) as u8;
        let mut first: Option<Word> = None;
        for (k, o) in v.iter().enumerate() {
            let Opd::Reg(r) = o else { return None };
            let root = self.facts.root(*r);
            if !matches!(self.facts.known[root as usize], Known::Nothing | Known::Sum(..) | Known::Words(..)) {
                return None;
            }
            let w = self.home(root);
            match first {
                None if !w.sub().is_multiple_of(words)
                    || crate::sass::compile::mir::width(self.code.classes[w.reg().0 as usize]) < words =>
                {
                    return None;
                }
                None => first = Some(w),
                Some(f) if f.plus(k as u8 * step) != w => return None,
                Some(_) => {}
            }
        }
        first
    }

    /// Code after a load: unpacking words, copies, extension to 64 bits.
    pub(super) fn load_rest(&mut self, i: &Flat, d: Word, ty: Type, sub_word: bool) -> Result<(), AsmError> {
        match &i.opds[0] {
            Opd::Vector(v) if sub_word => {
                let bits = ty.bits() as usize;
                for (k, o) in v.iter().enumerate() {
                    let Opd::Reg(_) = o else { continue };
                    let to = self.dest(i, o)?;
                    let word = d.plus((k * bits / 32) as u8);
                    let at = (k * bits % 32) as u32 / 8;
                    let select = match (bits, ty.is_signed()) {
                        (8, false) => 0x4440 | at,
                        (8, true) => ((8 + at) * 0x1110) | at,
                        (_, false) => 0x4400 | (at + 1) << 4 | at,
                        (_, true) => ((8 + at + 1) * 0x1100) | (at + 1) << 4 | at,
                    };
                    self.permute(to, word.into(), select, Src::ZERO);
                    self.extend(o, to, ty);
                }
            }
            Opd::Vector(v) => {
                let step = (ty.bits() / 32) as u8;
                for (k, o) in v.iter().enumerate() {
                    let Opd::Reg(_) = o else { continue };
                    let to = self.dest(i, o)?;
                    let from = d.plus(k as u8 * step);
                    match step {
                        _ if to == from => {}
                        2 => self.mov64(to, Wide::Pair(from)),
                        _ => self.mov(to, Val::Word(from)),
                    }
                    self.extend(o, to, ty);
                }
            }
            o => self.extend(o, d, ty),
        }
        Ok(())
    }

    /// The high half of a register of 64 bits into which fewer were loaded.
    fn extend(&mut self, o: &Opd, low: Word, ty: Type) {
        if !self.is_wider(o, ty) {
            return;
        }
        match ty.is_signed() {
            true => self.shift(low.plus(1), [Src::ZERO, 31.into(), low.into()], mods::dir::R, mods::ty::S32, true),
            false => self.mov(low.plus(1), Val::Imm(0)),
        }
    }

    /// Whether it is a register of 64 bits, and the type has fewer.
    fn is_wider(&self, o: &Opd, ty: Type) -> bool {
        matches!(o, Opd::Reg(r) if self.types[*r as usize].bits() == 64) && ty.bits() < 64
    }

    /// Parameters and `.const` variables: banks 0 and 3.
    fn load_constant(&mut self, i: &Flat, ty: Type) -> Result<(), AsmError> {
        let Opd::Address(base, offset) = &i.opds[1] else { return self.no(i, "an address is expected") };
        let bank_of = if i.space() == Some(Space::Const) { 3 } else { 0 };
        let (bank, at, index) = match &**base {
            Opd::Symbol(Symbol::Param(at, _), more) => (0, i64::from(PARAMS + at) + more + offset, None),
            Opd::Symbol(Symbol::Constant(at), more) => (3, i64::from(*at) + more + offset, None),
            Opd::Reg(r) => {
                let wide = self.types[*r as usize].bits() == 64;
                let low = match wide {
                    true => self.wide(i, base, Type::U64)?.low(),
                    false => self.src(i, base, Type::U32)?,
                };
                let low = self.in_word(low);
                let (low, rest) = self.constant_index(low, *offset);
                (bank_of, rest, Some(low))
            }
            _ => return self.no(i, "such an address is not assembled"),
        };
        let parts: Vec<&Opd> = match &i.opds[0] {
            Opd::Vector(v) => v.iter().collect(),
            o => vec![o],
        };
        let each = ty.bits().div_ceil(8);
        for (k, o) in parts.into_iter().enumerate() {
            let d = self.dest(i, o)?;
            let Ok(at) = u32::try_from(at + i64::from(k as u32 * each)) else {
                return self.no(i, "an address before the constants' start is not assembled");
            };
            let (size, words) = (size_text(each as usize, ty.is_signed()), each.div_ceil(4) as u8);
            let m = Mach::new(op::LDC_C).wn("d", d, words).c("c", bank, at).m(size);
            let m = match index {
                Some(w) => m.field("c", crate::sass::Role::Register, w, 1, false),
                None => m,
            };
            let plain = index.is_none() && self.guard.is_none() && !self.is_wider(o, ty);
            self.push(if plain && words == 1 { m.nature(Nature::Constant) } else { m });
            self.extend(o, d, ty);
        }
        Ok(())
    }

    /// The register and the offset of an access to a constant bank: an offset that the field cannot hold is added.
    fn constant_index(&mut self, low: Word, offset: i64) -> (Word, i64) {
        if (0..MOST_INDEXED).contains(&offset) {
            return (low, offset);
        }
        let sum = self.one();
        self.unguarded(|b| b.alu(iadd3(), sum, [low.into(), (offset as u32).into(), Src::ZERO], |m| m));
        (sum, 0)
    }

    fn store(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let bytes = ty.bits().div_ceil(8) as usize * i.lanes();
        if i.space() == Some(Space::Global) && bytes == 32 && i.lanes() > 1 {
            let Some(halves) = i.halves(1, 0) else { return self.no(i, "such an access is not assembled") };
            return halves.iter().try_for_each(|half| self.store(half));
        }
        if bytes > 16 {
            return self.no(i, "accesses of more than 16 bytes are not assembled");
        }
        let words = bytes.div_ceil(4) as u8;
        let data = self.stored(i, &i.opds[1], ty, words)?;
        let m = match i.space() {
            Some(Space::Global) => self.accessed(i, STG.mach().mark(semantics(i)), 0, Addressing::GLOBAL)?,
            None | Some(Space::SharedCluster) => {
                self.accessed(i, ST.mach().mark(semantics(i)), 0, Addressing::GENERIC)?
            }
            Some(Space::Shared | Space::SharedCta) => self.accessed(i, STS.mach(), 0, Addressing::SHARED)?,
            Some(Space::Local) => self.accessed(i, STL.mach(), 0, Addressing::LOCAL)?,
            _ if passed(&i.opds[0]) => self.accessed(i, STL.mach(), 0, Addressing::LOCAL)?,
            _ => return self.no(i, "this space is not assembled"),
        };
        let m = m.mark(size_text(bytes, false)).effect();
        self.push(match data {
            Some(w) => m.rn("b", w, words),
            None => m,
        });
        Ok(())
    }

    /// The value of a store, in consecutive registers; `None`: one word of zeros.
    pub(super) fn stored(&mut self, i: &Flat, o: &Opd, ty: Type, words: u8) -> Result<Option<Word>, AsmError> {
        let Opd::Vector(v) = o else {
            return Ok(match words {
                1 => {
                    let s = self.src(i, o, ty)?;
                    self.held(s)
                }
                2 => {
                    let s = self.wide(i, o, ty)?;
                    Some(self.in_pair(s))
                }
                _ => match o {
                    Opd::Reg(r) if self.types[*r as usize].bits() == 128 => Some(self.home(*r)),
                    _ => return self.no(i, "128 bits are expected in one register"),
                },
            });
        };
        if ty.bits() < 32 {
            return self.packed(i, v, ty, words).map(Some);
        }
        if let Some(w) = self.neighbours(v, ty, words) {
            return Ok(Some(w));
        }
        let d = match words {
            1 => self.one(),
            2 => self.two(),
            _ => self.four(),
        };
        for (k, o) in v.iter().enumerate() {
            if ty.bits() == 64 {
                let s = self.wide(i, o, ty)?;
                self.unguarded(|b| b.mov64(d.plus(2 * k as u8), s));
            } else {
                let s = self.src(i, o, ty)?;
                self.unguarded(|b| b.mov(d.plus(k as u8), s));
            }
        }
        Ok(Some(d))
    }

    /// Elements below 32 bits as words.
    fn packed(&mut self, i: &Flat, v: &[Opd], ty: Type, words: u8) -> Result<Word, AsmError> {
        let vals = v.iter().map(|o| self.src(i, o, ty)).collect::<Result<Vec<Val>, _>>()?;
        let d = match words {
            1 => self.one(),
            2 => self.two(),
            _ => self.four(),
        };
        let per = (32 / ty.bits()) as usize;
        for (k, c) in vals.chunks(per).enumerate() {
            let to = d.plus(k as u8);
            let c = c.to_vec();
            self.unguarded(|b| match c.as_slice() {
                [x, y] if per == 2 => b.join_halves(to, *x, *y),
                [x, y] => b.permute(to, (*x).into(), 0x0040, (*y).into()),
                [x, y, z, w] => {
                    let (low, high) = (b.one(), b.one());
                    let held: Vec<Word> = [x, y, z, w].into_iter().map(|v| b.in_word(*v)).collect();
                    b.permute(low, held[0].into(), 0x0040, held[1].into());
                    b.permute(high, held[2].into(), 0x0040, held[3].into());
                    b.permute(to, low.into(), 0x5410, high.into());
                }
                _ => {}
            });
        }
        Ok(d)
    }

    /// The cache operator.
    fn cache_hint(&mut self, i: &Flat) -> Result<(), AsmError> {
        if !matches!(i.space(), None | Some(Space::Global)) {
            // Local memory is private to the thread, so it has none.
            return Ok(());
        }
        let kind = match i.op {
            Opcode::Applypriority => mods::op::DML2,
            Opcode::Discard => mods::op::RML2,
            _ if i.has("L2::evict_last") => mods::op::PML2,
            _ if i.has("L2") || i.has("L2::evict_normal") => mods::op::PF2,
            _ => mods::op::PF1,
        };
        let place = self.place(i, &i.opds[0], true, 1 << 31)?;
        self.push(Mach::new(op::CCTL_R).m(mods::e::E).m(kind).at_place(&place).effect());
        Ok(())
    }

    /// Between generic addresses and those of a space.
    fn cvta(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let s = self.wide(i, &i.opds[1], Type::U64)?;
        let to = i.has("to");
        match (i.space(), to) {
            (Some(Space::Global), _) => self.mov64(d, s),
            (Some(Space::Shared | Space::SharedCta | Space::SharedCluster), false) => {
                self.mov(d, s.low());
                self.push(Mach::new(op::S2R_S).w("d", d.plus(1)).m(mods::s::SR_SWINHI));
            }
            (Some(Space::Shared | Space::SharedCta | Space::SharedCluster), true) => {
                self.mov(d, s.low());
                self.mov(d.plus(1), Val::Imm(0));
            }
            // The driver provides the generic address of parameters and constants.
            (Some(Space::Param | Space::ParamEntry), false) => self.parameter_address(d, s),
            (Some(Space::Const), to) => self.sum64(d, [s, Wide::Const(0, 0xd0)], [false, to]),
            (Some(Space::Local), to) => self.sum64(d, [s, Wide::Const(0, 0x20)], [false, to]),
            _ => return self.no(i, "addresses of this space are not assembled"),
        }
        Ok(())
    }

    /// The generic address of an offset in the chip's bank 0. Before sm_90 the launch has the bank's address, from then
    /// on that of the parameters.
    pub(super) fn parameter_address(&mut self, d: Word, at: Wide) {
        let start = Wide::Const(0, PARAMETERS);
        let skip = if self.chip.is_before_hopper() { 0 } else { u64::from(self.param_base()) };
        match at {
            Wide::Imm(at) => self.sum64(d, [start, Wide::Imm(at.wrapping_sub(skip))], [false; 2]),
            at => {
                let sum = self.two();
                self.unguarded(|b| b.sum64(sum, [at, Wide::Imm(skip.wrapping_neg())], [false; 2]));
                self.sum64(d, [Wide::Pair(sum), start], [false; 2]);
            }
        }
    }

    // --- atomics ---

    pub(super) fn atomic(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let result = i.op == Opcode::Atom;
        let first = usize::from(result);
        let words = (ty.bits() / 32) as u8;
        let shared = matches!(i.space(), Some(Space::Shared | Space::SharedCta));
        let float = ty.is_float() || matches!(ty, Type::F16x2 | Type::Bf16x2);
        let cas = i.has("cas");
        let words = words * i.lanes() as u8;
        let alone = (shared || is_elsewhere(i)) && !cas && !i.has("exch") && (float || words == 2);
        if (alone || ty.bits() == 16) && i.lanes() == 1 {
            return self.retry(i, first, ty);
        }
        let whole = words == 4 && i.lanes() == 1 && (cas || i.has("exch")) && !shared;
        if !(matches!(words, 1 | 2) || words == 4 && i.lanes() > 1 || whole) || i.lanes() > 1 && !float {
            return self.no(i, "atomics of this size are not assembled");
        }
        let data = self.stored(i, &i.opds[first + 1], ty, words)?;
        let swap = if cas { self.stored(i, &i.opds[first + 2], ty, words)? } else { None };
        let form = match (shared, i.space(), cas, float) {
            (true, _, true, _) => op::ATOMS_CAS,
            (true, _, false, false) if words == 1 || i.has("exch") => op::ATOMS_R,
            (true, ..) => return self.no(i, "this atomic on shared memory is not assembled"),
            (_, Some(Space::Global), true, _) => op::ATOMG_CAS,
            (_, None | Some(Space::SharedCluster), true, _) => op::ATOM_CAS,
            (_, Some(Space::Global), _, true) => op::ATOMG_FR,
            (_, Some(Space::Global), ..) => op::ATOMG_R,
            (_, None, _, true) => op::ATOM_FR,
            (_, None | Some(Space::SharedCluster), ..) => op::ATOM_R,
            _ => return self.no(i, "this space is not assembled"),
        };
        let m = Mach::new(form);
        let m = if Self::has_slot(form, "ev") { m.m(mods::ev::NONE) } else { m };
        let mut m = self.accessed(i, m, first, Addressing::atomic(!shared))?;
        if !shared {
            let sem = match () {
                () if i.has("sys") => mods::sem::STRONG_SYS,
                () if i.has("cta") => mods::sem::STRONG_SM,
                () => mods::sem::STRONG_GPU,
            };
            m = m.m(mods::e::E).m(sem);
        }
        m = match cas {
            true => {
                m.m([mods::sz::NONE, mods::sz::NONE, mods::sz::_64, mods::sz::NONE, mods::sz::_128][usize::from(words)])
            }
            false => self.operation(i, m, ty)?,
        };
        if let Some(w) = data {
            m = m.rn("b", w, words);
        }
        if let Some(w) = swap {
            m = m.rn("c", w, words);
        }
        if let (true, Opd::Vector(_)) = (result, &i.opds[0]) {
            let (d, words) = self.load_dest(i, ty, 4 * usize::from(words), false)?;
            self.push(m.wn("d", d, words).effect());
            return self.load_rest(i, d, ty, false);
        }
        if result && !matches!(i.opds[0], Opd::Nothing) {
            let d = self.dest(i, &i.opds[0])?;
            m = m.wn("d", d, words);
        }
        self.push(m.effect());
        Ok(())
    }

    pub(super) fn operation(&mut self, i: &Flat, m: Mach, ty: Type) -> Result<Mach, AsmError> {
        let found = i.words().find_map(|w| match w {
            "min" => Some(mods::op::MIN),
            "max" => Some(mods::op::MAX),
            "inc" => Some(mods::op::INC),
            "dec" => Some(mods::op::DEC),
            "exch" => Some(mods::op::EXCH),
            _ => None,
        });
        // add, and, or, xor read as instructions' names elsewhere; here they are words as well.
        let plain = i.words().find_map(|w| match w {
            "add" => Some(mods::op::ADD),
            "and" => Some(mods::op::AND),
            "or" => Some(mods::op::OR),
            "xor" => Some(mods::op::XOR),
            _ => None,
        });
        let Some(operation) = found.or(plain) else { return self.no(i, "this atomic operation is not assembled") };
        let exchanged = operation == mods::op::EXCH;
        let size = match ty {
            _ if i.lanes() > 1 => match (ty, i.lanes()) {
                (Type::F32, 2) => mods::sz::F32X2_FTZ_RN,
                (Type::F32, 4) => mods::sz::F32X4_FTZ_RN,
                (Type::F16, 2) => mods::sz::F16X2_RN,
                (Type::F16x2, 2) | (Type::F16, 4) => mods::sz::F16X4_RN,
                (Type::F16x2, 4) | (Type::F16, 8) => mods::sz::F16X8_RN,
                (Type::Bf16, 2) => mods::sz::BF16X2_RN,
                (Type::Bf16x2, 2) | (Type::Bf16, 4) => mods::sz::BF16X4_RN,
                (Type::Bf16x2, 4) | (Type::Bf16, 8) => mods::sz::BF16X8_RN,
                _ => return self.no(i, "atomics of this size are not assembled"),
            },
            Type::F32 if !exchanged => mods::sz::F32_FTZ_RN,
            Type::F64 if !exchanged => mods::sz::F64_RN,
            Type::F16x2 => mods::sz::F16X2_RN,
            Type::Bf16x2 => mods::sz::BF16X2_RN,
            Type::F16 | Type::Bf16 => return self.no(i, "atomics of single halves are not assembled"),
            t => match (t.bits(), t.is_signed() && matches!(operation, mods::op::MIN | mods::op::MAX)) {
                (32, true) => mods::sz::S32,
                (64, true) => mods::sz::S64,
                (64, false) => mods::sz::_64,
                (128, _) => mods::sz::_128,
                _ => mods::sz::NONE,
            },
        };
        Ok(m.m(operation).m(size))
    }
}
