//! A row of the table: one form of an instruction, with its fields and the template of its text.
//!
//! Encoder, decoder, printer and parser read the same rows. The template: `{f}` is the text of field f's value, `<f>`
//! an operand, `<f?>` one followed by ", ", `<?f>` one preceded by it and `<f~>` one alone, all left out when the field
//! says "none"; `(f:...)` is there when f is not 0, `(!f:...)` when it is, `(f==1,2:...)` when f is one of these;
//! `{!imad}` stands for the names .MOV, .IADD, .SHL that nvdisasm derives from the operands.

use super::bits::{self, Ranges};
use super::chip::{SmArch, SmArchs};
use super::control::SCOREBOARDS;
use super::decode::OPCODE;
use super::order::{self, FormOrder};
use super::registers;
use super::table::FORMS;

/// A value and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub value: u16,
    pub(super) key: TextKey,
    pub text: &'static str,
}

/// A value and its text.
pub(super) const fn named(value: u16, text: &'static str) -> Named {
    Named { value, key: TextKey::of(text), text }
}

/// A hash that distinguishes the texts of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextKey(u32);

impl TextKey {
    #[inline(always)] // a text that is a constant becomes a number when compiled
    pub(crate) const fn of(text: &str) -> TextKey {
        let (bytes, mut all, mut i) = (text.as_bytes(), 0u32, 0);
        while i < bytes.len() {
            all = (all.rotate_left(5) ^ bytes[i] as u32).wrapping_mul(0x9e37_79b1);
            i += 1;
        }
        TextKey(all)
    }

    pub(crate) const fn is(self, other: TextKey) -> bool {
        self.0 == other.0
    }
}

/// A value of a modifier, with the field that has it: the items of [`mods`](super::mods), which the table's generator
/// writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifier {
    key: Key,
    text_key: TextKey,
    text: &'static str,
}

impl Modifier {
    pub(super) const fn of(slot: &str, text: &'static str) -> Modifier {
        Modifier { key: Key::of(slot, Role::Value), text_key: TextKey::of(text), text }
    }

    /// The name of its field.
    #[must_use]
    pub fn slot(self) -> String {
        self.key.slot()
    }

    /// The text; empty for the value that is not written.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.text
    }

    /// Its field.
    pub(super) const fn key(self) -> Key {
        self.key
    }

    /// Its value, among those of its field.
    pub(super) const fn text_key(self) -> TextKey {
        self.text_key
    }
}

/// Which predicate file a guard is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    Predicate,
    UniformPredicate,
}

/// Which part of its operand a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operand or modifier itself.
    Value,
    Neg,
    /// Printed and meant as `~` if the flag x (.X) is set.
    NegOrInv,
    Abs,
    /// Negation of a predicate.
    Not,
    /// Bitwise complement.
    Inv,
    Reuse,
    /// Text after the operand: a half, a byte, a layout.
    Suffix,
    /// The same, but inside the bars of an absolute value.
    Inner,
    /// Base register of an address or of a constant's index.
    Register,
    /// Width or scale of the base register.
    RegisterSuffix,
    /// Uniform register of an address or of a bindless constant.
    Uniform,
    /// Byte offset.
    Offset,
    /// Constant bank.
    Bank,
}

/// How a constant's offset is indexed and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    None,
    /// None, with a space between the brackets (16-bit operations).
    Spaced,
    Register,
    Uniform,
}

/// How an address is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Register and offset; the offset alone is unsigned.
    Base,
    /// Register and offset; the offset alone is signed.
    SignedBase,
    /// Register, uniform register, offset.
    BaseAndUniform,
    /// 64-bit register after a memory descriptor.
    Described,
    /// Uniform register and offset.
    UniformBase,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// General register, 255 is RZ.
    R,
    /// Uniform register: all ones are URZ.
    UR,
    /// The uniform register after the one whose number the bits hold: the second of a pair that is written out.
    URNext,
    /// Predicate, 7 is PT.
    P,
    /// Uniform predicate, 7 is UPT.
    UP,
    /// Predicate stored as 7 - n.
    PInverted,
    /// Uniform predicate stored as 7 - n.
    UPInverted,
    /// Predicate of either file: bit 0 selects the uniform one.
    EitherP,
    Signed,
    Unsigned,
    Decimal,
    F32,
    /// The high 32 bits of a 64-bit float.
    F64High,
    /// A half float, or a bfloat when field bf is set.
    Half,
    /// Distance in units of 4 bytes from the next instruction.
    Relative,
    /// Distance in units of 4 bytes that is added to a register.
    RegisterRelative,
    Barrier,
    Scoreboard,
    /// A set of scoreboards.
    Set,
    Constant(Index),
    /// Constant of a bank that a uniform register names.
    Bindless,
    Address(Style),
    /// One of these values.
    List(&'static [Named]),
    /// A fixed value: an opcode extension, or a bit that does not appear in the text.
    Must(u32),
    /// A part of an operand.
    Bits,
}

/// A field: bits of the word that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The operand or modifier it belongs to, as the template names it.
    pub slot: &'static str,
    pub role: Role,
    /// None for an operand that consists of parts.
    pub bits: Ranges,
    pub kind: Kind,
    /// The value that ptxas gives it if the text does not show it.
    pub usual: Option<u8>,
    pub(super) key: Key,
    pub(super) access: FieldAccess,
    /// Some values of its bits have no meaning.
    pub(super) partial: bool,
    width: u8,
    /// Which half of the word it is in, and its lowest bit there, if it is one range of bits of one half; else
    /// [`SPREAD`].
    half: u8,
    shift: u8,
    /// As many ones as it has bits.
    ones: u64,
}

/// In both halves of a word, or in several ranges of bits.
const SPREAD: u8 = 2;

/// Position of a field of at most eight bits, if it is one range of bits of one half.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    half: u8,
    shift: u8,
    ones: u8,
}

impl Bits {
    pub(super) const NONE: Bits = Bits { half: SPREAD, shift: 0, ones: 0 };

    /// The value in a word given as halves; `None`: use the field's own method.
    #[inline]
    pub(crate) const fn read(self, word: &[u64; 2]) -> Option<u64> {
        match self.half {
            SPREAD => None,
            half => Some(word[half as usize & 1] >> self.shift & self.ones as u64),
        }
    }
}

/// How an instruction accesses the registers of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldAccess {
    Reads,
    /// Read, unless other fields make it unused.
    MayRead,
    Writes,
}

/// Destinations and predicates that are set are written; everything else is read.
const fn access(slot: &str) -> FieldAccess {
    match slot.as_bytes() {
        b"d" | b"d2" | b"pu" | b"pv" => FieldAccess::Writes,
        b"pp" | b"pq" | b"pr" | b"ud" => FieldAccess::MayRead,
        _ => FieldAccess::Reads,
    }
}

/// A field without a usual value.
pub(super) const fn field(slot: &'static str, role: Role, bits: Ranges, kind: Kind) -> Field {
    let (half, shift) = match bits {
        [(low, high)] if *low / 64 == *high / 64 => (*low / 64, *low % 64),
        _ => (SPREAD, 0),
    };
    #[allow(clippy::cast_possible_truncation)] // at most 64
    let (key, width, ones) = (Key::of(slot, role), bits::width(bits) as u8, bits::ones(bits::width(bits)) as u64);
    let access = access(slot);
    let partial = match kind {
        Kind::Must(_) | Kind::Scoreboard | Kind::URNext => true,
        Kind::List(list) => !is_whole(list, width),
        _ => false,
    };
    Field { slot, role, bits, kind, usual: None, key, access, partial, width, half, shift, ones }
}

/// Slot and role of a field as one number: names of slots have at most seven bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    #[inline(always)] // a name that is a constant becomes a number when compiled
    pub(crate) const fn of(slot: &str, role: Role) -> Key {
        let (bytes, mut all, mut i) = (slot.as_bytes(), 0, 0);
        while i < bytes.len() {
            all = all << 8 | bytes[i] as u64;
            i += 1;
        }
        Key(all << 8 | role as u64)
    }

    /// Whether both are the same slot in the same role.
    #[inline]
    pub(crate) const fn is(self, other: Key) -> bool {
        self.0 == other.0
    }

    /// The field of the same slot in another role.
    #[inline]
    pub(crate) const fn with(self, role: Role) -> Key {
        Key(self.0 & !0xff | role as u64)
    }

    /// That of a slot whose name is this number.
    pub(crate) const fn named(name: u64, role: Role) -> Key {
        Key(name << 8 | role as u64)
    }

    /// The slot's name as a number.
    #[inline]
    pub(crate) const fn name(self) -> u64 {
        self.0 >> 8
    }

    /// The slot's name.
    pub(crate) fn slot(self) -> String {
        let bytes = self.0.to_be_bytes().into_iter().take(7);
        bytes.filter(|b| *b != 0).map(char::from).collect()
    }
}

/// A field with a usual value.
pub(super) const fn usual(field: Field, value: u8) -> Field {
    Field { usual: Some(value), ..field }
}

impl Field {
    /// How many bits it has.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.width as u32
    }

    /// Its position in short form, if it has one.
    #[allow(clippy::cast_possible_truncation)] // at most eight ones
    pub(super) const fn place(&self) -> Bits {
        if self.half == SPREAD || self.width > 8 {
            return Bits::NONE;
        }
        Bits { half: self.half, shift: self.shift, ones: self.ones as u8 }
    }

    /// Whether a value has no more bits than it.
    #[must_use]
    #[inline]
    pub(super) const fn fits(&self, value: u64) -> bool {
        value & !self.ones == 0
    }

    /// Its value in a word.
    #[must_use]
    pub const fn get(&self, word: u128) -> u64 {
        self.read(&bits::halves(word))
    }

    /// The word with this value, which must fit.
    #[must_use]
    pub const fn put(&self, word: u128, value: u64) -> u128 {
        let mut halves = bits::halves(word);
        self.write(&mut halves, value);
        bits::joined(&halves)
    }

    /// Its value in a word given as halves; most fields are in one of them.
    #[must_use]
    #[inline]
    pub(super) const fn read(&self, word: &[u64; 2]) -> u64 {
        match self.half {
            SPREAD => self.read_spread(word),
            half => word[half as usize & 1] >> self.shift & self.ones,
        }
    }

    /// Puts a value that fits into the halves of a word.
    #[inline]
    pub(super) const fn write(&self, word: &mut [u64; 2], value: u64) {
        match self.half {
            SPREAD => self.write_spread(word, value),
            half => {
                let part = &mut word[half as usize & 1];
                *part = *part & !(self.ones << self.shift) | value << self.shift;
            }
        }
    }

    #[inline(never)]
    const fn read_spread(&self, word: &[u64; 2]) -> u64 {
        bits::get(bits::joined(word), self.bits)
    }

    #[inline(never)]
    const fn write_spread(&self, word: &mut [u64; 2], value: u64) {
        *word = bits::halves(bits::put(bits::joined(word), self.bits, value));
    }

    /// The value in a new instruction: "none" if the field can express that.
    const fn initial(&self) -> u64 {
        match (self.kind, self.usual) {
            (Kind::R | Kind::UR | Kind::P | Kind::UP, None) => self.none(),
            (Kind::List(list), None) => match (list_has(list, 0), list) {
                (true, _) | (_, []) => 0,
                (false, [first, ..]) => first.value as u64,
            },
            (Kind::Bits, None) if matches!(self.role, Role::Register | Role::Uniform) => self.none(),
            _ => self.unsaid(),
        }
    }

    /// Whether the value has a meaning.
    #[must_use]
    pub(super) fn has(&self, value: u64) -> bool {
        match self.kind {
            Kind::Must(must) => value == u64::from(must),
            Kind::Scoreboard => value < u64::from(SCOREBOARDS),
            Kind::URNext => value + 1 < self.none(),
            // Lists are in the order of their values, and most leave none out.
            Kind::List(list) => {
                let there =
                    usize::try_from(value).ok().and_then(|i| list.get(i)).is_some_and(|n| u64::from(n.value) == value);
                there || list.iter().any(|n| u64::from(n.value) == value)
            }
            _ => true,
        }
    }

    /// The value that an optional operand has when it is not written.
    #[must_use]
    pub(super) const fn none(&self) -> u64 {
        match self.kind {
            Kind::PInverted | Kind::UPInverted => 0,
            _ => (1 << self.width()) - 1,
        }
    }

    /// The value if the text does not mention it.
    #[must_use]
    pub(super) const fn unsaid(&self) -> u64 {
        match (self.kind, self.usual) {
            (Kind::Must(value), _) => value as u64,
            (_, Some(value)) => value as u64,
            _ => 0,
        }
    }
}

/// Whether a list contains all values of so many bits, in order.
const fn is_whole(list: &[Named], width: u8) -> bool {
    let mut i = 0;
    while i < list.len() && list[i].value as usize == i {
        i += 1;
    }
    width < 16 && i >= 1 << width
}

const fn list_has(list: &[Named], value: u16) -> bool {
    let mut i = 0;
    while i < list.len() {
        if list[i].value == value {
            return true;
        }
        i += 1;
    }
    false
}

/// Where an instruction executes: the row of the latency tables it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pipe {
    /// Integer and logic, compares, selects, moves, fixed-latency conversions.
    Alu,
    /// Single-precision arithmetic.
    Fma,
    Imad,
    ImadWide,
    /// Packed 16-bit arithmetic.
    Half,
    Double,
    /// The .MMA versions of the packed 16-bit arithmetic, on the double-precision path.
    HalfMma,
    /// Matrix multiply of a warp.
    Mma,
    DoubleMma,
    /// Matrix multiply of a warpgroup.
    Gmma,
    /// Transcendental functions, conversions, bit counts.
    Xu,
    /// Shared memory.
    Shared,
    /// Global, local and generic memory.
    Global,
    /// Loads of constants.
    Constant,
    /// Bulk copies and the tensor memory accelerator.
    Bulk,
    /// Uniform arithmetic.
    Uniform,
    /// Uniform moves and constant loads.
    UniformMove,
    /// General to uniform register.
    RegToUniform,
    Elect,
    /// Branches and convergence.
    Branch,
    Nop,
    /// Barriers, fences, shuffles, special registers.
    Misc,
}

/// A conflict: no instruction of these chips has a value of all these classes.
#[derive(Debug)]
pub struct Rule {
    pub chips: SmArchs,
    /// Index of the form's field, and classes of its values as a bit set (see `legal`).
    pub tests: &'static [(u8, u64)],
}

pub(super) const fn rule(chips: u8, tests: &'static [(u8, u64)]) -> Rule {
    Rule { chips: SmArchs::of(chips), tests }
}

/// One form of an instruction. Chips that encode or write it differently have a form of their own of the same mnemonic
/// and name.
#[derive(Debug)]
pub struct Form {
    pub mnemonic: &'static str,
    /// Distinguishes the forms of a mnemonic: the position of its immediate, constant or uniform operand.
    pub name: &'static str,
    /// 13 bits: bits 0 to 11 and 91 of the word.
    pub opcode: u16,
    pub guard: File,
    pub pipe: Pipe,
    pub chips: SmArchs,
    pub text: &'static str,
    pub fields: &'static [Field],
    /// Combinations of values that are illegal.
    pub rules: &'static [Rule],
    /// The word of a new instruction, without guard and control.
    pub(super) initial: u128,
    /// All bits of its fields.
    pub(super) mask: u128,
    /// The opcode in its position, if no field overlaps its bits.
    pub(super) base: u128,
    /// Fields of whose values some have no meaning, as a set of bits.
    pub(super) partial: u64,
    /// Fields by the hash of their keys.
    places: [u8; PLACES],
    /// The operands' fields in the order of the text.
    operands: [u8; OPERANDS],
    /// Those that name registers.
    pub(super) named: [registers::Named; OPERANDS],
    /// One of them may name uniform registers.
    pub(super) uniform: bool,
    pub(super) order: FormOrder,
}

/// Slots of the table of a form's fields, a power of two, more than a form has fields.
const PLACES: usize = 64;
/// The most operands of a form, and one more.
const OPERANDS: usize = 9;
/// No field.
const EMPTY: u8 = u8::MAX;

/// Where the search for a key begins.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // six bits
const fn first_place(key: Key) -> usize {
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

/// The table of the fields' indices.
#[allow(clippy::cast_possible_truncation)] // a form has fewer than 64 fields
const fn places(fields: &[Field]) -> [u8; PLACES] {
    let (mut table, mut i) = ([EMPTY; PLACES], 0);
    while i < fields.len() {
        let mut at = first_place(fields[i].key);
        while table[at] != EMPTY {
            at = (at + 1) % PLACES;
        }
        table[at] = i as u8;
        i += 1;
    }
    table
}

/// The field of a key.
#[inline]
const fn find(fields: &[Field], table: &[u8; PLACES], key: Key) -> Option<usize> {
    let mut at = first_place(key);
    while table[at] != EMPTY {
        let i = table[at] as usize;
        if fields[i].key.0 == key.0 {
            return Some(i);
        }
        at = (at + 1) % PLACES;
    }
    None
}

/// The fields of the operands that a template names: `<f>`, `<f?>`, `<?f>`, `<f~>`.
#[allow(clippy::cast_possible_truncation)] // a form has fewer than 64 fields
const fn operands(text: &str, fields: &[Field], table: &[u8; PLACES]) -> [u8; OPERANDS] {
    let (bytes, mut out, mut count, mut i) = (text.as_bytes(), [EMPTY; OPERANDS], 0, 0);
    while i < bytes.len() {
        if bytes[i] == b'<' {
            let (mut slot, mut j) = (0, i + 1);
            while j < bytes.len() && bytes[j] != b'>' {
                if bytes[j] != b'?' && bytes[j] != b'~' {
                    slot = slot << 8 | bytes[j] as u64;
                }
                j += 1;
            }
            if let Some(f) = find(fields, table, Key(slot << 8 | Role::Value as u64)) {
                out[count] = f as u8;
                count += 1;
            }
            i = j;
        }
        i += 1;
    }
    out
}

/// The initial values of all fields.
const fn initial(fields: &[Field]) -> u128 {
    let (mut word, mut i) = (0, 0);
    while i < fields.len() {
        word = fields[i].put(word, fields[i].initial());
        i += 1;
    }
    word
}

/// The bits of all fields.
const fn all_bits(fields: &[Field]) -> u128 {
    let (mut all, mut i) = (0, 0);
    while i < fields.len() {
        all |= bits::mask(fields[i].bits);
        i += 1;
    }
    all
}

/// The fields that are partial, as bits.
const fn partial(fields: &[Field]) -> u64 {
    let (mut all, mut i) = (0, 0);
    while i < fields.len() {
        if fields[i].partial {
            all |= 1 << i;
        }
        i += 1;
    }
    all
}

#[allow(clippy::too_many_arguments)] // a row has as many columns
pub(super) const fn form(
    mnemonic: &'static str,
    name: &'static str,
    opcode: u16,
    guard: File,
    pipe: Pipe,
    chips: u8,
    text: &'static str,
    fields: &'static [Field],
    rules: &'static [Rule],
) -> Form {
    let places = places(fields);
    let (initial, operands) = (initial(fields), operands(text, fields, &places));
    let named = registers::named(mnemonic, name, pipe, fields, &operands);
    let (chips, mask) = (SmArchs::of(chips), all_bits(fields));
    let (base, partial) = (bits::put(0, OPCODE, opcode as u64) & !mask, partial(fields));
    Form {
        mnemonic,
        name,
        opcode,
        guard,
        pipe,
        chips,
        text,
        fields,
        rules,
        initial,
        mask,
        base,
        partial,
        places,
        operands,
        named,
        uniform: registers::any_uniform(&named),
        order: order::of_form(mnemonic, pipe, fields),
    }
}

impl PartialEq for Form {
    fn eq(&self, other: &Form) -> bool {
        (self.mnemonic, self.name, self.chips) == (other.mnemonic, other.name, other.chips)
    }
}

impl Eq for Form {}

impl Form {
    /// The index of a field among the form's.
    #[must_use]
    #[inline]
    pub fn position(&self, slot: &str, role: Role) -> Option<usize> {
        self.place(Key::of(slot, role))
    }

    /// The index of the field of that key.
    #[inline]
    pub(super) const fn place(&self, key: Key) -> Option<usize> {
        find(self.fields, &self.places, key)
    }

    /// The fields of its operands, in the order of the text.
    pub(super) fn operands(&self) -> impl Iterator<Item = usize> + use<> {
        self.operands.into_iter().take_while(|i| *i != EMPTY).map(usize::from)
    }

    /// Forms of a mnemonic on all chips, in the table's order.
    pub fn of(mnemonic: &str) -> impl Iterator<Item = &'static Form> {
        let first = FORMS.partition_point(|f| f.mnemonic < mnemonic);
        let count = FORMS[first..].partition_point(|f| f.mnemonic <= mnemonic);
        FORMS[first..first + count].iter()
    }

    /// A chip's form of that mnemonic and name.
    #[must_use]
    pub fn find(mnemonic: &str, name: &str, chip: SmArch) -> Option<&'static Form> {
        Form::of(mnemonic).find(|f| f.name == name && f.chips.has(chip))
    }

    /// All forms.
    #[must_use]
    pub fn all() -> &'static [Form] {
        &FORMS
    }

    /// Forms of an opcode, in the table's order.
    pub(super) fn of_opcode(opcode: u16) -> impl Iterator<Item = &'static Form> {
        let mut next = FIRST[usize::from(opcode)];
        std::iter::from_fn(move || {
            let here = FORMS.get(usize::from(next))?;
            next = NEXT[usize::from(next)];
            Some(here)
        })
    }
}

/// No form.
const NONE: u16 = u16::MAX;

/// First form of each opcode, and the next of the same opcode after each form.
const CHAINS: ([u16; 8192], [u16; FORMS.len()]) = {
    let (mut first, mut next) = ([NONE; 8192], [NONE; FORMS.len()]);
    let mut i = FORMS.len();
    while i > 0 {
        i -= 1;
        let opcode = FORMS[i].opcode as usize;
        next[i] = first[opcode];
        #[allow(clippy::cast_possible_truncation)] // fewer than 65,535 forms
        {
            first[opcode] = i as u16;
        }
    }
    (first, next)
};

static FIRST: [u16; 8192] = CHAINS.0;
static NEXT: [u16; FORMS.len()] = CHAINS.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_list_have_keys_of_their_own() {
        let lists = FORMS.iter().flat_map(|f| f.fields).filter_map(|f| match f.kind {
            Kind::List(list) => Some(list),
            _ => None,
        });
        for list in lists {
            let mut keys: Vec<u32> = list.iter().map(|n| n.key.0).collect();
            keys.sort_unstable();
            keys.dedup();
            let mut texts: Vec<&str> = list.iter().map(|n| n.text).collect();
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(keys.len(), texts.len(), "{list:?}");
        }
    }
}
