//! Machine instructions before register allocation: table forms whose register fields refer to words of virtual
//! registers.
//!
//! A value of 64 or 128 bits is one virtual register of several words, so that it gets an aligned tuple; instructions
//! may read and write single words of it. A wgmma accumulator is such a register, of up to 128 words. Instructions that
//! are glued to the previous one are one instruction for the allocator: halves of a 64-bit operation, which can then
//! work in place.

use super::super::inst::{FieldError, Instruction};
use super::super::row::{Field, Form, Key, Kind, Modifier, Role};
use crate::ptx::Pos;
use doorbell_codegen::regalloc::{Class, VReg};
use smallvec::SmallVec;

/// Register classes: predicates, and general registers by words.
pub(super) const PRED: Class = Class(0);
pub(super) const ONE: Class = Class(1);
pub(super) const TWO: Class = Class(2);
pub(super) const FOUR: Class = Class(3);

/// The last class: wider registers have a multiple of four words, and begin at a multiple of eight.
pub(super) const WIDEST: Class = Class(34);

/// Words of a class.
pub(super) const fn width(class: Class) -> u8 {
    match class.0 {
        0 | 1 => 1,
        2 => 2,
        n => 4 * (n - 2),
    }
}

/// The class of that many words, up to 128.
pub(super) const fn class_of(words: u8) -> Class {
    match words {
        0 | 1 => ONE,
        2 => TWO,
        n => Class(2 + n.div_ceil(4)),
    }
}

/// A word of a virtual register: the upper bits are the register's number, the lower bits select one of up to 128
/// words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Word(u32);

impl Word {
    /// The first word of a register.
    pub(crate) const fn of(reg: VReg) -> Word {
        Word(reg.0 << 7)
    }

    #[inline]
    pub(crate) const fn reg(self) -> VReg {
        VReg(self.0 >> 7)
    }

    #[inline]
    pub(crate) const fn sub(self) -> u8 {
        self.0 as u8 & 127
    }

    /// The word `words` further on.
    #[inline]
    pub(crate) const fn plus(self, words: u8) -> Word {
        Word(self.0 + words as u32)
    }
}

/// A 32-bit operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Val {
    Word(Word),
    Imm(u32),
    /// A word of a constant bank, at a byte offset.
    Const(u8, u32),
}

/// A 64-bit operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wide {
    /// The first of two words.
    Pair(Word),
    Imm(u64),
    Const(u8, u32),
}

impl Wide {
    pub(crate) fn low(self) -> Val {
        match self {
            Wide::Pair(w) => Val::Word(w),
            Wide::Imm(i) => Val::Imm(i as u32),
            Wide::Const(b, o) => Val::Const(b, o),
        }
    }

    pub(crate) fn high(self) -> Val {
        match self {
            Wide::Pair(w) => Val::Word(w.plus(1)),
            Wide::Imm(i) => Val::Imm((i >> 32) as u32),
            Wide::Const(b, o) => Val::Const(b, o + 4),
        }
    }
}

/// Represents the guard among a form's field numbers.
const GUARD: u8 = u8::MAX;

/// Represents no field: the register is only kept live, or used by what the instruction stands for.
const KEPT: u8 = u8::MAX - 1;

/// A register field of an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegField {
    /// The form's field, the guard, or none.
    field: u8,
    pub word: Word,
    /// Consecutive words.
    pub count: u8,
    pub write: bool,
    /// A write that must preserve the other words of the register, or its old value if a guard skips the write.
    pub keep: bool,
}

impl RegField {
    pub(super) fn is_guard(&self) -> bool {
        self.field == GUARD
    }
}

/// The kind of an instruction, for passes that do not look at forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Plain,
    /// A copy of whole registers.
    Copy,
    /// A constant.
    Constant,
    /// Sets up convergence barrier n for the block.
    Converge(u8, u32),
    /// The return address of the call with this number.
    Address(u32),
    /// A call of a function, and the call's number.
    Call(u32, u32),
    /// A call of the code with this number beside the body, and the place's number; or a place in such code.
    Beside(u32, u32),
}

/// A machine instruction. Passed by value; it is small enough to be copied without a loop.
#[derive(Clone, Debug)]
pub(super) struct Mach {
    pub inst: Instruction,
    pub regs: SmallVec<[RegField; 5]>,
    pub nature: Nature,
    /// Part of the allocator's instruction before.
    pub glued: bool,
    /// One of its registers is a guard.
    guarded: bool,
    /// Has side effects: kept even if its results are unused.
    pub effect: bool,
    /// Its results are read only under its own guard, so the old values need not be preserved.
    pub private: bool,
    /// Its offset, or else its constant, is relative to the end of the frame.
    pub above: bool,
    pub pos: Pos,
    bad: Option<Box<FieldError>>,
}

const _: () = assert!(size_of::<Mach>() <= 128);

/// No such field.
const ABSENT: u8 = u8::MAX;

/// An instruction prototype: its modifiers are set, and the fields of its destination and sources are known.
pub(super) struct Template {
    inst: Instruction,
    d: u8,
    sources: [u8; 3],
}

impl Template {
    pub(crate) const fn of(form: &'static Form) -> Template {
        const fn place(form: &Form, slot: &str) -> u8 {
            match form.place(Key::of(slot, Role::Value)) {
                Some(i) => i as u8,
                None => ABSENT,
            }
        }
        let sources = [place(form, "a"), place(form, "b"), place(form, "c")];
        Template { inst: Instruction::new(form), d: place(form, "d"), sources }
    }

    /// With a modifier.
    pub(crate) const fn with(self, modifier: Modifier) -> Template {
        Template { inst: self.inst.with(modifier), ..self }
    }

    /// An instruction like this.
    #[inline]
    pub(super) fn mach(&self) -> Mach {
        Mach::like(self.inst)
    }

    /// An instruction with these sources, as far as it has such operands.
    #[inline]
    pub(super) fn reading(&self, s: &[super::select::build::Src; 3]) -> Mach {
        let mut m = self.mach();
        self.sources.iter().zip(s).filter(|(at, _)| **at != ABSENT).for_each(|(at, v)| m.source(usize::from(*at), v));
        m
    }

    /// Sets the destination of an instruction made from this template.
    #[inline]
    pub(crate) fn write(&self, m: &mut Mach, d: Word) {
        m.name(usize::from(self.d), d, 1, true);
    }
}

impl Mach {
    #[inline]
    pub(crate) fn new(form: &'static Form) -> Mach {
        Mach::like(Instruction::new(form))
    }

    #[inline]
    fn like(inst: Instruction) -> Mach {
        let (nature, regs) = (Nature::Plain, SmallVec::new());
        let pos = Pos::default();
        Mach {
            inst,
            regs,
            nature,
            glued: false,
            guarded: false,
            effect: false,
            private: false,
            above: false,
            pos,
            bad: None,
        }
    }

    /// The first field that could not be set.
    #[inline]
    pub(crate) fn fault(&self) -> Option<&FieldError> {
        self.bad.as_deref()
    }

    fn set(&mut self, key: Key, value: u64) {
        if !self.inst.put(key, value) {
            let failed = self.inst.set_by(key, value).err();
            self.refuse(failed);
        }
    }

    /// Sets a field of the form by its number.
    fn put(&mut self, field: usize, value: u64) {
        if let Err(e) = self.inst.set_at(field, value) {
            self.refuse(Some(e));
        }
    }

    /// Records the first error in setting a field.
    #[cold]
    fn refuse(&mut self, failed: Option<FieldError>) {
        self.bad = self.bad.take().or(failed.map(Box::new));
    }

    /// A register of consecutive words.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn field(mut self, slot: &'static str, role: Role, word: Word, count: u8, write: bool) -> Mach {
        self.add(Key::of(slot, role), word, count, write);
        self
    }

    fn add(&mut self, key: Key, word: Word, count: u8, write: bool) {
        match self.inst.form().place(key) {
            Some(i) => self.name(i, word, count, write),
            // Records which field is missing.
            None => self.set(key, 0),
        }
    }

    /// Assigns words to a field of the form, by its number.
    #[inline]
    fn name(&mut self, field: usize, word: Word, count: u8, write: bool) {
        self.regs.push(RegField { field: field as u8, word, count, write, keep: false });
    }

    /// Sets a field of the form, by its number, to a word, an immediate or a constant, with its sign modifiers.
    #[inline]
    fn source(&mut self, i: usize, v: &super::select::build::Src) {
        match v.val {
            Val::Word(word) => self.name(i, word, 1, false),
            Val::Imm(0) => {}
            Val::Imm(n) => self.put(i, u64::from(n)),
            Val::Const(bank, offset) => self.constant(self.inst.form().fields[i].key, bank, offset),
        }
        if v.neg || v.abs {
            self.signs(self.inst.form().fields[i].key, v);
        }
    }

    fn signs(&mut self, key: Key, v: &super::select::build::Src) {
        if v.neg {
            self.negate(key);
        }
        if v.abs {
            self.set(key.with(Role::Abs), 1);
        }
    }

    fn constant(&mut self, key: Key, bank: u8, offset: u32) {
        self.set(key.with(Role::Bank), u64::from(bank));
        self.set(key.with(Role::Offset), u64::from(offset));
    }

    fn negate(&mut self, key: Key) {
        let has = |role| self.inst.form().place(key.with(role)).is_some();
        let role = if has(Role::Neg) { Role::Neg } else { Role::NegOrInv };
        self.set(key.with(role), 1);
    }

    /// The instruction with a register's number in one of its fields.
    #[inline]
    pub(super) fn placed(inst: &mut Instruction, r: &RegField, index: u64) -> Result<(), FieldError> {
        if r.is_guard() {
            inst.guard.index = index as u8;
            return Ok(());
        }
        if r.field == KEPT {
            return Ok(());
        }
        let bits = bits_of(inst.form().fields[usize::from(r.field)].kind, index);
        inst.set_at(usize::from(r.field), bits).map(|_| ())
    }

    /// The register in a slot has that many words.
    pub(crate) fn words(mut self, slot: &str, count: u8) -> Mach {
        let field = self.inst.form().position(slot, Role::Value).map(|i| i as u8);
        self.regs.iter_mut().filter(|r| Some(r.field) == field).for_each(|r| r.count = count);
        self
    }

    /// Keeps consecutive words live until here, though the instruction does not use them.
    pub(crate) fn keep(&mut self, word: Word, count: u8) {
        self.uses(word, count, false);
    }

    /// Reads or writes consecutive words that no field names.
    pub(crate) fn uses(&mut self, word: Word, count: u8, write: bool) {
        self.regs.push(RegField { field: KEPT, word, count, write, keep: false });
    }

    /// Writes one word.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn w(self, slot: &'static str, word: Word) -> Mach {
        self.field(slot, Role::Value, word, 1, true)
    }

    /// Writes consecutive words.
    #[inline(always)] // names that are constants become numbers
    pub(super) fn wn(self, slot: &'static str, word: Word, count: u8) -> Mach {
        self.field(slot, Role::Value, word, count, true)
    }

    /// Reads one word.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn r(self, slot: &'static str, word: Word) -> Mach {
        self.field(slot, Role::Value, word, 1, false)
    }

    /// Reads consecutive words.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn rn(self, slot: &'static str, word: Word, count: u8) -> Mach {
        self.field(slot, Role::Value, word, count, false)
    }

    /// Reads a predicate, or its negation.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn p(mut self, slot: &'static str, pred: Pred) -> Mach {
        self.predicate(Key::of(slot, Role::Value), pred);
        self
    }

    fn predicate(&mut self, key: Key, pred: Pred) {
        self.set(key.with(Role::Not), u64::from(pred.not));
        match (self.inst.form().place(key), pred.word) {
            (Some(i), Some(word)) => self.name(i, word, 1, false),
            (Some(i), None) => self.put(i, bits_of(self.inst.form().fields[i].kind, 7)),
            // Records which field is missing.
            (None, _) => self.set(key, 0),
        }
    }

    /// A constant field.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn n(mut self, slot: &str, value: u64) -> Mach {
        self.set(Key::of(slot, Role::Value), value);
        self
    }

    /// A modifier, unless it is the default value.
    #[inline(always)] // modifiers that are constants become numbers
    pub(crate) fn mark(self, modifier: Modifier) -> Mach {
        if modifier.text().is_empty() { self } else { self.m(modifier) }
    }

    /// A modifier.
    #[inline(always)] // modifiers that are constants become numbers
    pub(crate) fn m(mut self, modifier: Modifier) -> Mach {
        self.modify(modifier);
        self
    }

    fn modify(&mut self, modifier: Modifier) {
        if !self.inst.put_modifier(modifier) {
            let failed = self.inst.modify(modifier).err();
            self.refuse(failed);
        }
    }

    /// A word of a constant bank.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn c(mut self, slot: &str, bank: u8, offset: u32) -> Mach {
        self.constant(Key::of(slot, Role::Value), bank, offset);
        self
    }

    /// Negation of an operand.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn neg(mut self, slot: &str, on: bool) -> Mach {
        if on {
            self.negate(Key::of(slot, Role::Value));
        }
        self
    }

    /// Absolute value of an operand.
    #[inline(always)] // names that are constants become numbers
    pub(crate) fn abs(mut self, slot: &str, on: bool) -> Mach {
        if on {
            self.set(Key::of(slot, Role::Abs), 1);
        }
        self
    }

    /// A half of an operand: `.H0_H0`, `.H1_H1`.
    pub(crate) fn half(mut self, slot: &str, value: u64) -> Mach {
        let role = if self.inst.form().position(slot, Role::Suffix).is_some() { Role::Suffix } else { Role::Inner };
        self.set(Key::of(slot, role), value);
        self
    }

    /// A memory address: base register of that many words (none: absolute) and byte offset.
    pub(crate) fn at(self, base: Option<Word>, words: u8, offset: i64) -> Mach {
        self.at_slot("m", base, words, offset)
    }

    /// The same of another slot.
    pub(super) fn at_slot(mut self, slot: &'static str, base: Option<Word>, words: u8, offset: i64) -> Mach {
        if offset != 0 {
            let form = self.inst.form();
            let width = form.position(slot, Role::Offset).map_or(24, |i| form.fields[i].width());
            let bits = super::super::bits::wrapped(i128::from(offset), width).unwrap_or(u64::MAX);
            self.set(Key::of(slot, Role::Offset), bits);
        }
        match base {
            Some(word) => self.field(slot, Role::Register, word, words, false),
            None => self,
        }
    }

    /// The same for an address computed by selection.
    pub(super) fn at_place(self, place: &super::select::MemOperand) -> Mach {
        match place.base {
            Some((w, n)) => self.at(Some(w), n, place.offset),
            None => self.at(None, 0, place.offset),
        }
    }

    /// The slot's base register has 64 bits.
    pub(super) fn wide_base(mut self, slot: &str) -> Mach {
        self.set(Key::of(slot, Role::RegisterSuffix), 1);
        self
    }

    /// A memory address in a uniform register.
    pub(super) fn at_uniform(mut self, register: u64, offset: i64) -> Mach {
        self.set(Key::of("m", Role::Uniform), register);
        self.at(None, 0, offset)
    }

    /// Runs where the predicate is set.
    #[inline]
    pub(crate) fn guarded(mut self, guard: Option<Pred>) -> Mach {
        self.guard(guard);
        self
    }

    #[inline]
    pub(crate) fn guard(&mut self, guard: Option<Pred>) {
        if let Some(Pred { word, not }) = guard {
            self.inst.guard.not = not;
            if let Some(word) = word {
                self.guarded = true;
                self.regs.push(RegField { field: GUARD, word, count: 1, write: false, keep: false });
            }
        }
    }

    #[inline]
    pub(super) fn effect(mut self) -> Mach {
        self.effect = true;
        self
    }

    #[inline]
    pub(super) fn glued(mut self) -> Mach {
        self.glued = true;
        self
    }

    #[inline]
    pub(crate) fn above(mut self, above: bool) -> Mach {
        self.above = above;
        self
    }

    #[inline]
    pub(super) fn nature(mut self, nature: Nature) -> Mach {
        self.nature = nature;
        self
    }

    /// The operand slot of a register field.
    pub(crate) fn slot(&self, r: &RegField) -> Option<&'static str> {
        let field = self.inst.form().fields.get(usize::from(r.field))?;
        Some(field.slot).filter(|_| field.role == Role::Value)
    }

    /// The same instruction in another form with the same operands; `exchange` is an operand that is swapped with `b`,
    /// `uniform` are the registers that become uniform.
    pub(crate) fn in_form(
        &self,
        form: &'static Form,
        exchange: Option<&str>,
        uniform: impl Fn(&RegField) -> Option<u64>,
    ) -> Mach {
        let mut out = Mach { inst: Instruction::new(form), regs: SmallVec::new(), ..self.clone() };
        (out.inst.guard, out.inst.control) = (self.inst.guard, self.inst.control);
        let place = |field: &Field| {
            let slot = match exchange {
                Some(other) if field.slot == other => "b",
                Some(other) if field.slot == "b" => other,
                _ => field.slot,
            };
            form.position(slot, field.role)
        };
        let named = |i: usize| self.regs.iter().any(|r| usize::from(r.field) == i);
        for (i, (field, value)) in self.inst.fields().enumerate() {
            let register = matches!(field.kind, Kind::R | Kind::P | Kind::UR | Kind::UP);
            let unsaid = named(i) || register && value == field.none() || matches!(field.kind, Kind::Must(_));
            if let Some(k) = place(field).filter(|_| !unsaid)
                && let Err(e) = out.inst.set_at(k, value)
            {
                out.bad.get_or_insert_with(|| Box::new(e));
            }
        }
        for r in &self.regs {
            let Some(k) = self.inst.form().fields.get(usize::from(r.field)).and_then(place) else {
                out.regs.push(*r);
                continue;
            };
            match uniform(r) {
                Some(register) => {
                    // Nothing else keeps it from being removed as dead.
                    out.effect |= r.write;
                    if let Err(e) = out.inst.set_at(k, register) {
                        out.bad.get_or_insert_with(|| Box::new(e));
                    }
                }
                None => out.regs.push(RegField { field: k as u8, ..*r }),
            }
        }
        out
    }

    /// Whether it stands for a call of code beside the body, or for the start or end of such code.
    pub(super) fn is_beside(&self) -> bool {
        matches!(self.nature, Nature::Beside(..))
    }

    /// Whether a guard may leave what it would have written.
    pub(super) fn may_keep(&self) -> bool {
        !self.private && self.is_guarded()
    }

    /// Whether a guard may skip it.
    pub(super) fn is_guarded(&self) -> bool {
        self.guarded
    }
}

/// A register's number as encoded in the field; some fields encode a predicate's file or its complement.
fn bits_of(kind: Kind, index: u64) -> u64 {
    match kind {
        Kind::EitherP => index << 1,
        Kind::PInverted | Kind::UPInverted => 7 - index,
        _ => index,
    }
}

/// A predicate as an operand; without a word PT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pred {
    pub word: Option<Word>,
    pub not: bool,
}

impl Pred {
    pub(super) const TRUE: Pred = Pred { word: None, not: false };

    pub(crate) fn of(word: Word) -> Pred {
        Pred { word: Some(word), not: false }
    }

    pub(crate) fn not(self) -> Pred {
        Pred { not: !self.not, ..self }
    }
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Term {
    /// Into the block.
    Jump(usize),
    /// To the first block if the predicate is set, else to the second; the last says that the branch is warp-uniform.
    Branch(Pred, usize, usize, bool),
    /// To the first block if the uniform predicate of that number is set (if true, not set), else to the second.
    Uniform(u8, bool, usize, usize),
    Exit,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub ops: Vec<Mach>,
    pub term: Term,
}

/// A kernel's code.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// Classes of the virtual registers.
    pub classes: Vec<Class>,
    pub blocks: Vec<Block>,
    /// Blocks in layout order; the first is the entry.
    pub order: Vec<usize>,
    /// Of a function: the block that returns.
    pub returns: Option<usize>,
    /// Calls.
    pub calls: usize,
    /// Places where code beside the body is called.
    pub places: usize,
    /// Threads that diverge between these blocks reconverge in the second.
    pub meets: Vec<(usize, usize)>,
    /// Blocks that threads leave at different times, because a function calls itself there.
    pub strays: Vec<usize>,
}

impl Code {
    pub(super) fn vreg(&mut self, class: Class) -> Word {
        self.classes.push(class);
        Word::of(VReg(self.classes.len() as u32 - 1))
    }

    /// Blocks that control goes to from here.
    pub(super) fn successors(&self, block: usize) -> SmallVec<[usize; 2]> {
        match self.blocks[block].term {
            Term::Jump(b) => smallvec::smallvec![b],
            Term::Branch(_, a, b, _) | Term::Uniform(_, _, a, b) => smallvec::smallvec![a, b],
            Term::Exit => smallvec::smallvec![],
        }
    }
}
