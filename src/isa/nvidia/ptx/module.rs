//! A PTX module as data: built by the parser and the renderer, read by the printer and the assembler.
//!
//! Registers are distinguished from other names during parsing, so an operand knows what it is. Debug sections are kept
//! as text.

use super::name::Name;
use super::names::{self, AfterDot, Opcode, Space, Type};
use std::sync::Arc;

/// A position in the text. It does not affect a module's meaning, so all positions compare equal.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Pos {
    pub line: u32,
    /// In bytes, from 1.
    pub column: u32,
}

impl PartialEq for Pos {
    fn eq(&self, _: &Pos) -> bool {
        true
    }
}

/// A PTX module; `B` is the representation of bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Module<B = Vec<Statement>> {
    /// `.version`: major, minor.
    pub version: (u32, u32),
    /// `.target`: the chip, then options.
    pub target: Vec<Name>,
    /// `.address_size`, 32 or 64.
    pub address_bits: u32,
    pub items: Vec<Item<B>>,
}

impl<B> Default for Module<B> {
    fn default() -> Self {
        Module { version: (0, 0), target: Vec::new(), address_bits: 0, items: Vec::new() }
    }
}

impl<B> Module<B> {
    /// The kernels and functions that have a body.
    pub fn functions(&self) -> impl Iterator<Item = &Function<B>> {
        self.items.iter().filter_map(|i| if let Item::Function(f) = i { Some(&**f) } else { None })
    }

    /// The kernel with that name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Function<B>> {
        self.functions().find(|f| f.entry && &*f.name == name)
    }
}

/// An item at module level.
#[derive(Clone, Debug, PartialEq)]
pub enum Item<B = Vec<Statement>> {
    Variable(Variable),
    Function(Box<Function<B>>),
    /// `.file`: number, path, and time and length where given.
    File {
        number: u64,
        path: String,
        facts: Vec<u64>,
    },
    Pragma(Vec<String>),
    /// `.alias new, old;`
    Alias {
        name: Name,
        of: Name,
    },
    /// A debug section, with its words unchanged.
    Section {
        name: Name,
        words: Vec<String>,
    },
}

/// Visibility of a symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    #[default]
    Module,
    Visible,
    Extern,
    Weak,
    Common,
}

/// A named piece of memory, or a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub pos: Pos,
    pub linkage: Linkage,
    pub space: Space,
    /// In bytes, where given.
    pub align: Option<u32>,
    /// `.v2`, `.v4`; 1 without.
    pub vector: u8,
    pub ty: Type,
    pub name: Name,
    /// One for each array dimension; `None`: `[]`.
    pub dims: Vec<Option<u64>>,
    /// A parameter's `.ptr`: the state space it points into, and its alignment.
    pub ptr: Option<Pointer>,
    /// `.attribute(...)`, its words.
    pub attributes: Vec<Name>,
    pub init: Option<Init>,
}

impl Variable {
    /// Bytes of the whole variable, if known.
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        let one = u64::from(self.ty.bits().div_ceil(8)) * u64::from(self.vector);
        self.dims.iter().try_fold(one, |n, d| n.checked_mul((*d)?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    pub space: Option<Space>,
    pub align: Option<u32>,
}

/// Initial value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    Value(Operand),
    List(Vec<Init>),
    /// `generic(symbol) + offset`.
    Generic(Name, i64),
    /// `0xff00(value)`: one byte of an address.
    Masked(i64, Box<Init>),
}

/// A kernel or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function<B = Vec<Statement>> {
    pub pos: Pos,
    pub linkage: Linkage,
    pub entry: bool,
    pub name: Name,
    pub returns: Vec<Variable>,
    pub params: Vec<Variable>,
    pub tuning: Vec<Tuning>,
    /// `None`: declared only.
    pub body: Option<B>,
}

/// A performance directive about the launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Tuning {
    /// `.maxntid 256, 1, 1`, `.minnctapersm 2`: the directive with its dot, and its numbers.
    Numbers(Name, Vec<u64>),
    Pragma(Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Registers(Registers),
    Variable(Variable),
    Label(Name, Pos),
    Inst(Inst),
    /// `{ ... }`: a block with a name scope of its own.
    Block(Vec<Statement>),
    Loc(Loc),
    Pragma(Vec<String>),
    /// The label before it names the list: `.branchtargets`, `.calltargets`.
    Targets {
        calls: bool,
        names: Vec<Name>,
    },
    /// `.callprototype`, named by the label before it.
    Prototype {
        returns: Vec<Variable>,
        params: Vec<Variable>,
        tuning: Vec<Tuning>,
    },
}

/// `.reg .b32 %r<40>, %a;`
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    pub pos: Pos,
    pub vector: u8,
    pub ty: Type,
    /// A name, or with a count the names `name0` to `name(count-1)`.
    pub names: Vec<(Name, Option<u32>)>,
}

/// `.loc`: the source line of the code that follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Loc {
    pub file: u64,
    pub line: u64,
    pub column: u64,
    pub inlined: Option<Inlined>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Inlined {
    /// Where the function's name is in a debug section.
    pub function: Name,
    pub offset: i64,
    /// File, line, column of the call.
    pub at: [u64; 3],
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    pub pos: Pos,
    pub guard: Option<Guard>,
    pub op: Opcode,
    /// The modifiers after the mnemonic, in order; the list is shared by all instructions with the same modifiers.
    pub mods: Arc<[Modifier]>,
    pub operands: Vec<Operand>,
}

impl Inst {
    /// Its types, in order (`cvt.f32.s32`: f32, then s32).
    pub fn types(&self) -> impl Iterator<Item = Type> {
        self.mods.iter().filter_map(|m| if let Modifier::Type(t) = m { Some(*t) } else { None })
    }
    /// Its state space, if it names one.
    #[must_use]
    pub fn space(&self) -> Option<Space> {
        self.mods.iter().find_map(|m| if let Modifier::Space(s) = m { Some(*s) } else { None })
    }
    /// Lanes of a vector access; 1 without `.v2`, `.v4` or `.v8`.
    #[must_use]
    pub fn vector(&self) -> u8 {
        self.mods.iter().find_map(|m| if let Modifier::Vector(n) = m { Some(*n) } else { None }).unwrap_or(1)
    }
    /// Whether it has a modifier of that name (without its dot).
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.mods.iter().any(|m| matches!(m, Modifier::Word(w) if w.as_bytes() == word.as_bytes()))
    }
}

/// `@%p`, `@!%p`.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    pub negated: bool,
    pub pred: Name,
}

/// A modifier: what follows a mnemonic after a dot.
#[derive(Clone, Debug, PartialEq)]
pub enum Modifier {
    Type(Type),
    Space(Space),
    Vector(u8),
    /// Rounding, comparison, cache operator or any other word, without its dot.
    Word(Name),
}

impl Modifier {
    /// The modifier that a word after a dot is. `name` makes a [`Name`] of words that are not a type, space or vector.
    pub(super) fn of<'a>(word: &'a str, name: impl FnOnce(&'a str) -> Name) -> Modifier {
        match names::after_dot(word) {
            Some(AfterDot::Type(t)) => Modifier::Type(t),
            Some(AfterDot::Space(s)) => Modifier::Space(s),
            Some(AfterDot::Vector(n)) => Modifier::Vector(n),
            Some(AfterDot::Word(w)) => Modifier::Word(Name::known(w)),
            None => Modifier::Word(name(word)),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register that is declared in this scope.
    Reg(Name),
    /// One lane of a vector register.
    Lane(Name, u8),
    /// `%tid.x`.
    Special(Name),
    /// A variable, function or label, with an offset in bytes.
    Symbol(Name, i64),
    /// `!%p`.
    Not(Name),
    Imm(Imm),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `a|b`: two results.
    Pair(Box<Operand>, Box<Operand>),
    /// `[base + offset]`; of textures and tensors `[base, {coordinates}]`.
    Address {
        base: Box<Operand>,
        offset: i64,
        rest: Vec<Operand>,
    },
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `_`: the result is discarded.
    Nothing,
}

impl Operand {
    #[must_use]
    pub const fn int(i: i64) -> Operand {
        Operand::Imm(Imm::Int(i))
    }
}

/// A constant. Integers are the 64 bits that PTX computes constants in.
#[derive(Clone, Copy, Debug)]
pub enum Imm {
    Int(i64),
    /// `0f3f800000`
    F32(u32),
    /// `0d3ff0000000000000`, and decimal floats.
    F64(u64),
}

impl PartialEq for Imm {
    fn eq(&self, o: &Imm) -> bool {
        match (self, o) {
            (Imm::Int(a), Imm::Int(b)) => a == b,
            (Imm::F32(a), Imm::F32(b)) => a == b,
            (Imm::F64(a), Imm::F64(b)) => a == b,
            _ => false,
        }
    }
}
