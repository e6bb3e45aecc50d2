//! Atomics without a hardware instruction: a compare-and-swap loop.

use super::build::{Build, Src, fadd};
use super::memory::MemOperand;
use crate::ptx::{Space, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Term, Val, Wide, Word};
use crate::sass::compile::read::flat::Flat;
use crate::sass::{mods, op};

/// The operands of an atomic operation, in registers.
#[derive(Clone, Copy)]
struct Operands {
    /// The second operand; of compare-and-swap what the value is compared with.
    data: Word,
    /// What compare-and-swap stores.
    swap: Option<Word>,
}

impl Build<'_> {
    /// `old = *a; do { new = old op data } while (!swapped)`, in shared or global memory.
    pub(super) fn retry(&mut self, i: &Flat, first: usize, ty: Type) -> Result<(), AsmError> {
        let next = self.only_where_guarded();
        let half = ty.bits() == 16;
        let words = if ty.bits() == 64 { 2 } else { 1u8 };
        let operands = self.atomic_operands(i, first, ty)?;
        let wide = !super::copy::is_shared(i);
        let mut place = self.place(i, &i.opds[first], wide, 1 << 23)?;
        let shift = if half { Some(self.aligned(&mut place, wide)) } else { None };
        let (old, got) = if words == 2 { (self.two(), self.two()) } else { (self.one(), self.one()) };
        let load = self.access_form(i, [op::LDS_R, op::LDG_R, op::LD_R], wide);
        self.push(
            load.m(if words == 2 { mods::sz::_64 } else { mods::sz::NONE })
                .wn("d", old, words)
                .at_place(&place)
                .effect(),
        );
        let (again, done) = (self.fresh(), self.fresh());
        self.code.blocks[self.block].term = Term::Jump(again);
        self.start(again);
        let new = match shift {
            Some(shift) => self.new_half(i, ty, old, operands, shift)?,
            None => self.new_value(i, ty, old, operands.data)?,
        };
        let cas = self.access_form(i, [op::ATOMS_CAS, op::ATOMG_CAS, op::ATOM_CAS], wide);
        let cas = cas.m(if words == 2 { mods::sz::_64 } else { mods::sz::NONE }).at_place(&place);
        self.push(cas.rn("b", old, words).rn("c", new, words).wn("d", got, words).effect());
        let p = self.pred();
        match words {
            2 => self.compare64(p, mods::cmp::NE, false, Wide::Pair(got), Wide::Pair(old)),
            _ => self.compare(p, mods::cmp::NE, false, got.into(), old.into()),
        }
        match words {
            2 => self.mov64(old, Wide::Pair(got)),
            _ => self.mov(old, Val::Word(got)),
        }
        self.code.blocks[self.block].term = Term::Branch(Pred::of(p), again, done, false);
        self.start(done);
        if first == 1 {
            let d = self.dest(i, &i.opds[0])?;
            match (shift, words) {
                (Some(shift), _) => {
                    self.shift(d, [Src::ZERO, shift.into(), old.into()], mods::dir::R, mods::ty::U32, true)
                }
                (None, 2) => self.mov64(d, Wide::Pair(old)),
                (None, _) => self.mov(d, Val::Word(old)),
            }
        }
        if let Some(next) = next {
            self.code.blocks[self.block].term = Term::Jump(next);
            self.start(next);
        }
        Ok(())
    }

    /// The operands after the address.
    fn atomic_operands(&mut self, i: &Flat, address: usize, ty: Type) -> Result<Operands, AsmError> {
        let data = match i.opds.get(address + 1) {
            Some(o) if ty.bits() == 64 => {
                let v = self.wide(i, o, ty)?;
                self.in_pair(v)
            }
            Some(o) => {
                let v = self.src(i, o, ty)?;
                self.in_word(v)
            }
            None => return self.no(i, "a value is expected"),
        };
        let swap = match i.opds.get(address + 2).filter(|_| i.has("cas")) {
            Some(o) => {
                let v = self.src(i, o, ty)?;
                Some(self.in_word(v))
            }
            None => None,
        };
        Ok(Operands { data, swap })
    }

    fn access_form(&self, i: &Flat, forms: [&'static crate::sass::Form; 3], wide: bool) -> Mach {
        let form = match (wide, i.space()) {
            (false, _) => forms[0],
            (true, Some(Space::Global)) => forms[1],
            _ => forms[2],
        };
        let m = Mach::new(form);
        let m = if Self::has_slot(form, "ev") { m.m(mods::ev::NONE) } else { m };
        if wide { m.m(mods::e::E).m(mods::sem::STRONG_GPU) } else { m }
    }

    /// The aligned word that contains a half, and the half's bit offset in it.
    fn aligned(&mut self, place: &mut MemOperand, wide: bool) -> Word {
        let (at, sum, bits, shift) = (self.one(), self.one(), self.one(), self.one());
        let low = match place.base {
            Some((w, _)) => Val::Word(w),
            None => Val::Imm(0),
        };
        self.alu(super::build::iadd3(), sum, [low.into(), (place.offset as u32).into(), Src::ZERO], |m| m);
        self.lop(bits, [sum.into(), 2.into(), Src::ZERO], 0xc0);
        self.shift(shift, [bits.into(), 3.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        if wide {
            let (d, full) = (self.two(), self.two());
            if let Some((w, _)) = place.base {
                self.add64(full, Wide::Pair(w), Wide::Imm(place.offset.cast_unsigned()));
            }
            self.lop(d, [full.into(), 0xffff_fffc.into(), Src::ZERO], 0xc0);
            self.mov(d.plus(1), Val::Word(full.plus(1)));
            (place.base, place.offset) = (Some((d, 2)), 0);
        } else {
            self.lop(at, [sum.into(), 0xffff_fffc.into(), Src::ZERO], 0xc0);
            (place.base, place.offset) = (Some((at, 1)), 0);
        }
        shift
    }

    /// The word with one half replaced.
    fn new_half(
        &mut self,
        i: &Flat,
        ty: Type,
        old: Word,
        Operands { data, swap }: Operands,
        shift: Word,
    ) -> Result<Word, AsmError> {
        let (mine, mask, moved, new, out) = (self.one(), self.one(), self.one(), self.one(), self.one());
        self.shift(mine, [Src::ZERO, shift.into(), old.into()], mods::dir::R, mods::ty::U32, true);
        match swap {
            Some(swap) => {
                let (x, y, p) = (self.one(), self.one(), self.pred());
                self.lop(x, [mine.into(), 0xffff.into(), Src::ZERO], 0xc0);
                self.lop(y, [data.into(), 0xffff.into(), Src::ZERO], 0xc0);
                self.compare(p, mods::cmp::EQ, false, x.into(), y.into());
                self.select(new, Pred::of(p), swap.into(), mine.into());
            }
            None => {
                let sum = self.new_value(i, ty, mine, data)?;
                self.mov(new, Val::Word(sum));
            }
        }
        let ones = self.in_word(Val::Imm(0xffff));
        let low = self.one();
        self.lop(low, [new.into(), 0xffff.into(), Src::ZERO], 0xc0);
        self.shift(mask, [ones.into(), shift.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        self.shift(moved, [low.into(), shift.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        // mask ? moved : old
        self.lop(out, [mask.into(), moved.into(), old.into()], 0xca);
        Ok(out)
    }

    fn new_value(&mut self, i: &Flat, ty: Type, old: Word, data: Word) -> Result<Word, AsmError> {
        let d = if ty.bits() == 64 { self.two() } else { self.one() };
        let (a, b) = (Wide::Pair(old), Wide::Pair(data));
        let bits = i.words().find_map(|w| match w {
            "and" => Some(0xc0),
            "or" => Some(0xfc),
            "xor" => Some(0x3c),
            _ => None,
        });
        match ty {
            Type::F32 if i.has("add") => {
                self.alu(fadd(), d, [old.into(), Src::ZERO, data.into()], |m| m.m(mods::ftz::FTZ))
            }
            Type::F64 if i.has("add") => {
                self.push(Mach::new(op::DADD_R).wn("d", d, 2).rn("a", old, 2).rn("c", data, 2))
            }
            Type::F16 | Type::F16x2 if i.has("add") => {
                self.push(Mach::new(op::HADD2_R).w("d", d).r("a", old).r("c", data))
            }
            Type::Bf16 | Type::Bf16x2 if i.has("add") => {
                let one = self.in_word(Val::Imm(0x3f80_3f80));
                let m = Mach::new(op::HFMA2_R).w("d", d).r("a", old).r("b", one).r("c", data);
                self.push(m.m(mods::bf::BF16_V2));
            }
            _ if ty.bits() != 64 => return self.no(i, "this atomic operation is not assembled"),
            _ if i.has("add") => self.add64(d, a, b),
            _ if i.has("min") || i.has("max") => {
                let p = self.pred();
                self.compare64(p, if i.has("max") { mods::cmp::GT } else { mods::cmp::LT }, ty.is_signed(), a, b);
                self.select64(d, Pred::of(p), a, b);
            }
            _ => match bits {
                Some(table) => (0..2).for_each(|k| {
                    self.lop(d.plus(k), [old.plus(k).into(), data.plus(k).into(), Src::ZERO], table);
                }),
                None => return self.no(i, "this atomic operation is not assembled"),
            },
        }
        Ok(d)
    }
}
