//! A row of the table: one form of an instruction, with its fields and the template of its text.
//!
//! Encoder, decoder, printer and parser read the same rows. The template: `{f}` is the text of field f's value, `<f>` an
//! operand, `<f?>` one followed by ", " and `<?f>` one preceded by it, both left out when the field says "none";
//! `(f:...)` is there when f is not 0, `(!f:...)` when it is, `(f==1,2:...)` when f is one of these; `{!imad}` stands for
//! the names .MOV, .IADD, .SHL that nvdisasm derives from the operands.

use super::bits::{self, Ranges};
use super::table::FORMS;

/// A value and its text.
pub type Named = (u16, &'static str);

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
    /// Printed and meant as `~` when field x (.X) is set.
    NegOrInv,
    Abs,
    /// Negation of a predicate.
    Not,
    /// Bitwise complement.
    Inv,
    Reuse,
    /// Text behind the operand: a half, a byte, a layout.
    Suffix,
    /// The same inside the bars of an absolute value.
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
    /// 64-bit register behind a memory descriptor.
    Described,
    /// Uniform register and offset.
    UniformBase,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// General register, 255 is RZ.
    R,
    /// Uniform register, 63 is URZ.
    UR,
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
    /// This value: an opcode's extension, or a bit that no text shows.
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
    /// None for an operand that is made of parts.
    pub bits: Ranges,
    pub kind: Kind,
    /// What ptxas gives it where the text does not show it.
    pub usual: Option<u8>,
}

/// A field without a usual value.
pub(super) const fn field(slot: &'static str, role: Role, bits: Ranges, kind: Kind) -> Field {
    Field { slot, role, bits, kind, usual: None }
}

/// A field with a usual value.
pub(super) const fn usual(field: Field, value: u8) -> Field {
    Field { usual: Some(value), ..field }
}

impl Field {
    /// How many bits it has.
    #[must_use]
    pub const fn width(&self) -> u32 {
        bits::width(self.bits)
    }

    /// The value that an optional operand has when it is not written.
    #[must_use]
    pub(super) const fn none(&self) -> u64 {
        match self.kind {
            Kind::PInverted | Kind::UPInverted => 0,
            _ => (1 << self.width()) - 1,
        }
    }

    /// The value it has when nothing is said of it.
    #[must_use]
    pub(super) fn unsaid(&self) -> u64 {
        match (self.kind, self.usual) {
            (Kind::Must(value), _) => u64::from(value),
            (_, Some(value)) => u64::from(value),
            _ => 0,
        }
    }
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

/// One form of an instruction.
#[derive(Debug)]
pub struct Form {
    pub mnemonic: &'static str,
    /// Tells the forms of a mnemonic apart: the place of its immediate, constant or uniform operand.
    pub name: &'static str,
    /// 13 bits: bits 0 to 11 and 91 of the word.
    pub opcode: u16,
    pub guard: File,
    pub pipe: Pipe,
    pub text: &'static str,
    pub fields: &'static [Field],
}

pub(super) const fn form(
    mnemonic: &'static str,
    name: &'static str,
    opcode: u16,
    guard: File,
    pipe: Pipe,
    text: &'static str,
    fields: &'static [Field],
) -> Form {
    Form { mnemonic, name, opcode, guard, pipe, text, fields }
}

impl PartialEq for Form {
    fn eq(&self, other: &Form) -> bool {
        (self.mnemonic, self.name) == (other.mnemonic, other.name)
    }
}

impl Eq for Form {}

impl Form {
    /// The place of a field among the form's.
    #[must_use]
    pub fn position(&self, slot: &str, role: Role) -> Option<usize> {
        self.fields.iter().position(|f| f.role == role && f.slot == slot)
    }

    /// Forms of a mnemonic, in the table's order.
    pub fn of(mnemonic: &str) -> impl Iterator<Item = &'static Form> {
        let first = FORMS.partition_point(|f| f.mnemonic < mnemonic);
        let count = FORMS[first..].partition_point(|f| f.mnemonic <= mnemonic);
        FORMS[first..first + count].iter()
    }

    /// The form of that mnemonic and name.
    #[must_use]
    pub fn find(mnemonic: &str, name: &str) -> Option<&'static Form> {
        Form::of(mnemonic).find(|f| f.name == name)
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

/// First form of each opcode, and the next of the same opcode behind each form.
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
