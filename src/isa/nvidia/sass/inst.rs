//! An instruction: a form of the table, its guard, the values of its fields, its control word.

use super::bits;
use super::chip::SmArch;
use super::control::Control;
use super::effects::Slot;
use super::row::{Bits, Field, Form, Index, Key, Kind, Modifier, Named, Role};
use thiserror::Error;

/// The guard predicate: in the uniform file if the form says so; 7 is "always".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    pub index: u8,
    pub not: bool,
}

impl Guard {
    /// PT.
    pub(super) const ALWAYS: Guard = Guard { index: 7, not: false };
}

/// One instruction. Fields hold their values even if the text does not show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    form: &'static Form,
    chip: SmArch,
    pub guard: Guard,
    pub control: Control,
    /// The fields' bits in their positions, low half first; all others are zero.
    word: [u64; 2],
}

/// Sign, complement and reuse flags of an operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Arithmetic negation; with .X of an integer addition complement.
    pub neg: bool,
    pub abs: bool,
    /// Negation of a predicate, complement of an integer.
    pub not: bool,
    pub reuse: bool,
}

/// The value of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// R0 to R254; `None`: RZ.
    Register(Option<u8>),
    /// UR0 to UR62 (sm_120: UR254); `None`: URZ.
    Uniform(Option<u8>),
    /// P0 to P6; `None`: PT.
    Predicate(Option<u8>),
    /// UP0 to UP6; `None`: UPT.
    UniformPredicate(Option<u8>),
    /// The field's bits: integers not extended, floats in the field's format.
    Immediate(u64),
    /// A value of the field's list.
    Named(&'static str),
    /// Bytes from the next instruction, or that are added to a register.
    Distance(i64),
    Barrier(u8),
    Scoreboard(u8),
    /// Bit i is scoreboard i.
    Scoreboards(u64),
    /// A constant of a numbered bank; the index is a register of the form's file.
    Constant {
        bank: u8,
        index: Option<u8>,
        offset: i64,
    },
    /// A constant of the bank that a uniform register selects.
    Bindless {
        handle: Option<u8>,
        offset: u64,
    },
    /// A memory address.
    Address {
        base: Option<u8>,
        suffix: &'static str,
        uniform: Option<u8>,
        offset: i64,
    },
}

/// An operand, in the representation for instruction selection, schedulers and emulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The table's name: `d` is the destination, `a`, `b`, `c` sources, `pu`, `pv` predicates written, `pp`, `pq` read,
    /// `m` an address.
    pub slot: &'static str,
    pub value: Value,
    pub signs: Signs,
    /// Selected half or byte, or a layout: `.H0_H0`, `.B1`, `.ROW`; empty where there is none.
    pub select: &'static str,
}

/// A field that cannot be set.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldError {
    #[error("{form}: no field {field}")]
    Unknown { form: String, field: String },
    #[error("{form}: {field} = {value:#x}: the field has {width} bits")]
    TooWide { form: String, field: String, value: u64, width: u32 },
    #[error("{form}: {field} has no value {text:?}")]
    NoSuchValue { form: String, field: String, text: String },
}

/// Mnemonic and form, for messages.
pub(super) fn form_name(form: &Form) -> String {
    format!("{}/{}", form.mnemonic, form.name)
}

/// The field's name in messages and in hidden fields of listings: `b.neg`.
pub(super) fn field_name(field: &Field) -> String {
    let role = match field.role {
        Role::Value => return field.slot.to_owned(),
        Role::Neg | Role::NegOrInv => "neg",
        Role::Abs => "abs",
        Role::Not => "not",
        Role::Inv => "inv",
        Role::Reuse => "reuse",
        Role::Suffix => "suffix",
        Role::Inner => "inner",
        Role::Register => "register",
        Role::RegisterSuffix => "width",
        Role::Uniform => "uniform",
        Role::Offset => "offset",
        Role::Bank => "bank",
    };
    format!("{}.{role}", field.slot)
}

/// The text of a value of a list.
pub(super) fn named(field: &Field, value: u64) -> Option<&'static str> {
    match field.kind {
        Kind::List(list) => {
            // Lists are in the order of their values, and most leave none out.
            let first = usize::try_from(value).ok().and_then(|i| list.get(i));
            let is = |n: &&Named| u64::from(n.value) == value;
            first.filter(is).or_else(|| list.iter().find(is)).map(|n| n.text)
        }
        _ => None,
    }
}

#[allow(clippy::cast_possible_truncation)] // register and predicate fields have at most eight bits
fn unless(value: u64, none: u64) -> Option<u8> {
    (value != none).then_some(value as u8)
}

impl Instruction {
    /// An instruction of that form with default values, guard PT, and a stall of one cycle. Fields that are not set
    /// afterwards are "none" if they can be (RZ, PT), and zero otherwise. It is for sm_90 if the form exists there,
    /// else for the form's first chip.
    #[must_use]
    pub const fn new(form: &'static Form) -> Instruction {
        Instruction::on(form, if form.chips.has(SmArch::Sm90) { SmArch::Sm90 } else { form.chips.first() })
    }

    /// The same for a given chip, which must have the form.
    #[must_use]
    pub const fn on(form: &'static Form, chip: SmArch) -> Instruction {
        Instruction { form, chip, guard: Guard::ALWAYS, control: Control::ALONE, word: bits::halves(form.initial) }
    }

    /// The same in another form of the chip, which must have all fields of this one in the same positions.
    #[must_use]
    pub(super) fn in_form(&self, form: &'static Form) -> Instruction {
        let more = bits::halves(form.initial & !self.form.mask);
        let word = std::array::from_fn(|k| self.word[k] | more[k]);
        Instruction { form, word, ..*self }
    }

    /// The same with a modifier.
    ///
    /// # Panics
    /// The form does not have this modifier, or not this value of it.
    pub(super) const fn with(mut self, modifier: Modifier) -> Instruction {
        let (Some(at), key) = (self.form.place(modifier.key()), modifier.text_key()) else {
            panic!("the form has no such modifier") // PANIC: templates are made when compiled, which fails then
        };
        let Kind::List(list) = self.form.fields[at].kind else {
            panic!("the field is no modifier") // PANIC: as above
        };
        let mut i = 0;
        while !list[i].key.is(key) {
            i += 1;
        }
        self.form.fields[at].write(&mut self.word, list[i].value as u64);
        self
    }

    /// An instruction with the bits of the form's fields.
    pub(super) const fn from_word(
        form: &'static Form,
        chip: SmArch,
        guard: Guard,
        control: Control,
        word: u128,
    ) -> Instruction {
        Instruction { form, chip, guard, control, word: bits::halves(word) }
    }

    /// An instruction with these values; `None`: a value does not fit, or conflicts with another one that shares its
    /// bits.
    pub(super) fn from_values(
        form: &'static Form,
        chip: SmArch,
        guard: Guard,
        control: Control,
        values: &[u64],
    ) -> Option<Instruction> {
        let all = || form.fields.iter().zip(values);
        let fit = all().all(|(f, v)| f.fits(*v));
        let word = all().fold(0, |word, (f, v)| f.put(word, *v));
        let inst = Instruction { form, chip, guard, control, word: bits::halves(word) };
        (fit && all().all(|(f, v)| f.get(word) == *v)).then_some(inst)
    }

    /// The fields' bits in their places.
    #[inline]
    pub(super) const fn word(&self) -> u128 {
        bits::joined(&self.word)
    }

    /// The chip that it is for.
    #[must_use]
    pub const fn chip(&self) -> SmArch {
        self.chip
    }

    /// Its form.
    #[must_use]
    pub fn form(&self) -> &'static Form {
        self.form
    }

    /// Fields and their values.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, u64)> + '_ {
        self.form.fields.iter().map(|f| (f, f.read(&self.word)))
    }

    /// The value of the form's field of that number.
    #[must_use]
    #[inline]
    pub(super) fn at(&self, field: usize) -> u64 {
        self.form.fields[field].read(&self.word)
    }

    /// The same for a register number, whose position is known.
    #[inline]
    pub(super) fn number(&self, field: usize, at: Bits) -> u64 {
        at.read(&self.word).unwrap_or_else(|| self.at(field))
    }

    /// The value of a field; `None`: the form has no such field.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: &str, role: Role) -> Option<u64> {
        self.form.position(slot, role).map(|i| self.at(i))
    }

    /// Whether a flag is there and set.
    #[must_use]
    pub fn flag(&self, slot: &str, role: Role) -> bool {
        self.get(slot, role).is_some_and(|v| v != 0)
    }

    /// The text of a modifier's value, "" where the form has no such modifier.
    #[must_use]
    pub fn modifier(&self, slot: &str) -> &'static str {
        self.text_of(slot, Role::Value)
    }

    /// The text of the form's field of that number.
    pub(super) fn text_at(&self, field: usize) -> &'static str {
        named(&self.form.fields[field], self.at(field)).unwrap_or_default()
    }

    fn text_of(&self, slot: &str, role: Role) -> &'static str {
        self.form.position(slot, role).and_then(|i| named(&self.form.fields[i], self.at(i))).unwrap_or_default()
    }

    /// Sets a field's bits.
    ///
    /// # Errors
    /// The form has no such field, or the value has more bits than it.
    #[inline]
    pub fn set(&mut self, slot: &str, role: Role, value: u64) -> Result<&mut Instruction, FieldError> {
        match self.form.position(slot, role) {
            Some(i) => self.set_at(i, value),
            None => Err(self.unknown(slot)),
        }
    }

    /// Sets the bits of the field with that key; returns whether the form has it and they fit.
    #[inline]
    pub(super) fn put(&mut self, key: Key, value: u64) -> bool {
        let Some(i) = self.form.place(key) else { return false };
        let field = &self.form.fields[i];
        let fits = field.fits(value);
        if fits {
            field.write(&mut self.word, value);
        }
        fits
    }

    /// Sets a modifier; returns whether the form has it and this value of it.
    #[inline]
    pub(super) fn put_modifier(&mut self, modifier: Modifier) -> bool {
        let Some(i) = self.form.place(modifier.key()) else { return false };
        let field = &self.form.fields[i];
        let Kind::List(list) = field.kind else { return false };
        let Some(n) = list.iter().find(|n| n.key == modifier.text_key()) else { return false };
        field.write(&mut self.word, u64::from(n.value));
        true
    }

    /// Whether the form has that modifier and it has that value.
    #[must_use]
    pub fn says(&self, modifier: Modifier) -> bool {
        let place = self.form.place(modifier.key());
        place.and_then(|i| named(&self.form.fields[i], self.at(i))) == Some(modifier.text())
    }

    /// [`Instruction::put`], with an error.
    pub(super) fn set_by(&mut self, key: Key, value: u64) -> Result<&mut Instruction, FieldError> {
        match self.form.place(key) {
            Some(i) => self.set_at(i, value),
            None => Err(self.unknown(&key.slot())),
        }
    }

    /// Sets the bits of the form's field of that number.
    #[inline(always)] // a few instructions
    pub(super) fn set_at(&mut self, i: usize, value: u64) -> Result<&mut Instruction, FieldError> {
        let field = &self.form.fields[i];
        if !field.fits(value) {
            return Err(self.too_wide(field, value));
        }
        field.write(&mut self.word, value);
        Ok(self)
    }

    #[cold]
    fn too_wide(&self, field: &Field, value: u64) -> FieldError {
        FieldError::TooWide { form: form_name(self.form), field: field_name(field), value, width: field.width() }
    }

    #[cold]
    fn unknown(&self, slot: &str) -> FieldError {
        FieldError::Unknown { form: form_name(self.form), field: slot.to_owned() }
    }

    /// Sets a modifier.
    ///
    /// # Errors
    /// The form does not have this modifier, or not this value of it.
    pub fn modify(&mut self, modifier: Modifier) -> Result<&mut Instruction, FieldError> {
        match self.form.place(modifier.key()) {
            Some(i) => self.set_text_at(i, modifier.text()),
            None => Err(self.unknown(&modifier.slot())),
        }
    }

    /// Sets the form's field of that number by its text.
    fn set_text_at(&mut self, i: usize, text: &str) -> Result<&mut Instruction, FieldError> {
        let field = &self.form.fields[i];
        let Kind::List(list) = field.kind else { return Err(self.unknown(field.slot)) };
        match list.iter().find(|n| n.text == text) {
            Some(n) => self.set_at(i, u64::from(n.value)),
            None => {
                let (form, field) = (form_name(self.form), field.slot.to_owned());
                Err(FieldError::NoSuchValue { form, field, text: text.to_owned() })
            }
        }
    }

    /// Sets the reuse flag of an operand, if the form has one for it.
    pub(super) fn reuse(&mut self, slot: Slot) {
        if let Some(i) = self.form.place(slot.key(Role::Reuse)) {
            self.form.fields[i].write(&mut self.word, 1);
        }
    }

    /// Operands in the order of the text, including those that it omits.
    pub fn operands(&self) -> impl Iterator<Item = Operand> + '_ {
        self.form.operands().map(|i| self.operand_of(i))
    }

    /// The operand of that name.
    #[must_use]
    pub fn operand(&self, slot: &str) -> Option<Operand> {
        self.form.position(slot, Role::Value).map(|i| self.operand_of(i))
    }

    fn operand_of(&self, i: usize) -> Operand {
        let field = &self.form.fields[i];
        let slot = field.slot;
        let signs = Signs {
            neg: self.flag(slot, Role::Neg) || self.flag(slot, Role::NegOrInv),
            abs: self.flag(slot, Role::Abs),
            not: self.flag(slot, Role::Not) || self.flag(slot, Role::Inv),
            reuse: self.flag(slot, Role::Reuse),
        };
        let select = match self.text_of(slot, Role::Inner) {
            "" => self.text_of(slot, Role::Suffix),
            inner => inner,
        };
        Operand { slot, value: self.value(field, self.at(i)), signs, select }
    }

    #[allow(clippy::cast_possible_truncation)] // fields of at most eight bits
    fn value(&self, field: &Field, bits: u64) -> Value {
        match field.kind {
            Kind::R => Value::Register(unless(bits, 255)),
            Kind::UR => Value::Uniform(unless(bits, field.none())),
            Kind::URNext => Value::Uniform(unless(bits + 1, field.none())),
            Kind::P => Value::Predicate(unless(bits, 7)),
            Kind::UP => Value::UniformPredicate(unless(bits, 7)),
            Kind::PInverted => Value::Predicate(unless(7 - bits, 7)),
            Kind::UPInverted => Value::UniformPredicate(unless(7 - bits, 7)),
            Kind::EitherP if bits & 1 == 1 => Value::UniformPredicate(unless(bits >> 1, 7)),
            Kind::EitherP => Value::Predicate(unless(bits >> 1, 7)),
            Kind::Relative | Kind::RegisterRelative => Value::Distance(4 * bits::signed(bits, field.width())),
            Kind::Barrier => Value::Barrier(bits as u8),
            Kind::Scoreboard => Value::Scoreboard(bits as u8),
            Kind::Set => Value::Scoreboards(bits),
            Kind::List(_) => named(field, bits).map_or(Value::Immediate(bits), Value::Named),
            Kind::Constant(index) => Value::Constant {
                bank: self.get(field.slot, Role::Bank).unwrap_or(0) as u8,
                index: match index {
                    Index::None | Index::Spaced => None,
                    Index::Register | Index::Uniform => self.register(field.slot, Role::Register),
                },
                offset: self.offset(field.slot),
            },
            Kind::Bindless => Value::Bindless {
                handle: self.register(field.slot, Role::Uniform),
                offset: self.get(field.slot, Role::Offset).unwrap_or(0),
            },
            Kind::Address(_) => Value::Address {
                base: self.register(field.slot, Role::Register),
                suffix: self.text_of(field.slot, Role::RegisterSuffix),
                uniform: self.register(field.slot, Role::Uniform),
                offset: self.offset(field.slot),
            },
            Kind::Signed
            | Kind::Unsigned
            | Kind::Decimal
            | Kind::F32
            | Kind::F64High
            | Kind::Half
            | Kind::Must(_)
            | Kind::Bits => Value::Immediate(bits),
        }
    }

    fn register(&self, slot: &str, role: Role) -> Option<u8> {
        let i = self.form.position(slot, role)?;
        unless(self.at(i), self.form.fields[i].none())
    }

    /// The byte offset of an address or constant.
    fn offset(&self, slot: &str) -> i64 {
        self.form.position(slot, Role::Offset).map_or(0, |i| bits::signed(self.at(i), self.form.fields[i].width()))
    }
}
