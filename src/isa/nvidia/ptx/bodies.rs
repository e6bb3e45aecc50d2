//! The interface through which the parser delivers function bodies. [`Tree`] keeps a body as statements; the assembler
//! builds its own list directly, with register numbers instead of names.

use super::module::{Guard, Imm, Inst, Modifier, Operand, Pos, Statement, Variable};
use super::name::Name;
use super::names::Opcode;
use hashbrown::HashMap;
use std::sync::Arc;

/// Builds operands from their parts.
pub(crate) trait Operands<'a> {
    type Operand;

    /// A register, with its number among the registers that the body declares.
    fn register(&mut self, name: &'a str, number: u32) -> Self::Operand;
    fn not(&mut self, name: &'a str, number: u32) -> Self::Operand;
    /// A vector register with so many lanes, and the number of its first lane.
    fn lanes(&mut self, name: &'a str, first: u32, lanes: u8) -> Self::Operand;
    /// One lane of a vector register, and the number of that lane.
    fn lane(&mut self, name: &'a str, lane: u8, number: u32) -> Self::Operand;
    fn special(&mut self, name: &'a str) -> Self::Operand;
    fn symbol(&mut self, name: &'a str, offset: i64) -> Self::Operand;
    fn immediate(&mut self, value: Imm) -> Self::Operand;
    fn vector(&mut self, parts: Vec<Self::Operand>) -> Self::Operand;
    fn pair(&mut self, a: Self::Operand, b: Self::Operand) -> Self::Operand;
    fn address(&mut self, base: Self::Operand, offset: i64, rest: Vec<Self::Operand>) -> Self::Operand;
    fn parenthesised(&mut self, list: Vec<Self::Operand>, pos: Pos) -> Self::Operand;
    fn nothing(&mut self) -> Self::Operand;
}

/// Receives the contents of a body, in the order of the text.
pub(crate) trait Bodies<'a>: Operands<'a> {
    type Body;
    /// A mnemonic with its modifiers.
    type Mnemonic: Clone;

    /// An opening brace: of the body itself, or of a block in it.
    fn open(&mut self);
    fn close(&mut self);
    /// The results and parameters that are registers, in the order of the header, numbered from 0, and how many of them
    /// are results. The body follows.
    fn passed(&mut self, _registers: &[&Variable], _results: usize) {}
    fn label(&mut self, name: &'a str, pos: Pos);
    /// A statement that is not a block, label or instruction.
    fn statement(&mut self, statement: Statement);
    /// A mnemonic that was seen before.
    fn known(&self, word: &'a str) -> Option<Self::Mnemonic>;
    /// A mnemonic that is seen for the first time.
    fn learn(&mut self, word: &'a str, op: Opcode, mods: impl Iterator<Item = Modifier>) -> Self::Mnemonic;
    /// A mnemonic built from its parts, for callers that do not have its text.
    fn mnemonic(&mut self, op: Opcode, mods: &[Modifier]) -> Self::Mnemonic;
    /// An instruction begins; its operands and its end follow.
    fn begin(&mut self, head: Head<'a, Self::Mnemonic>);
    fn push(&mut self, operand: Self::Operand);
    fn end(&mut self);
    /// Called after the body's closing brace; returns the body.
    fn body(&mut self) -> Self::Body;
}

/// What precedes an instruction's operands.
pub(crate) struct Head<'a, M> {
    pub pos: Pos,
    pub guard: Option<Predicate<'a>>,
    pub mnemonic: M,
}

/// A guard: the register's name and number.
#[derive(Clone, Copy)]
pub(crate) struct Predicate<'a> {
    pub name: &'a str,
    pub number: u32,
    pub negated: bool,
}

/// Makes statements.
#[derive(Default)]
pub(super) struct Tree<'a> {
    open: Vec<Vec<Statement>>,
    body: Vec<Statement>,
    /// The instruction that is being read.
    inst: Option<Inst>,
    mnemonics: HashMap<&'a str, (Opcode, Arc<[Modifier]>)>,
}

impl Tree<'_> {
    fn add(&mut self, statement: Statement) {
        if let Some(list) = self.open.last_mut() {
            list.push(statement);
        }
    }
}

impl<'a> Operands<'a> for Tree<'_> {
    type Operand = Operand;

    fn register(&mut self, name: &'a str, _: u32) -> Operand {
        Operand::Reg(Name::from(name))
    }

    fn not(&mut self, name: &'a str, _: u32) -> Operand {
        Operand::Not(Name::from(name))
    }

    fn lanes(&mut self, name: &'a str, _: u32, _: u8) -> Operand {
        Operand::Reg(Name::from(name))
    }

    fn lane(&mut self, name: &'a str, lane: u8, _: u32) -> Operand {
        Operand::Lane(Name::from(name), lane)
    }

    fn special(&mut self, name: &'a str) -> Operand {
        Operand::Special(Name::from(name))
    }

    fn symbol(&mut self, name: &'a str, offset: i64) -> Operand {
        Operand::Symbol(Name::from(name), offset)
    }

    fn immediate(&mut self, value: Imm) -> Operand {
        Operand::Imm(value)
    }

    fn vector(&mut self, parts: Vec<Operand>) -> Operand {
        Operand::Vector(parts)
    }

    fn pair(&mut self, a: Operand, b: Operand) -> Operand {
        Operand::Pair(Box::new(a), Box::new(b))
    }

    fn address(&mut self, base: Operand, offset: i64, rest: Vec<Operand>) -> Operand {
        Operand::Address { base: Box::new(base), offset, rest }
    }

    fn parenthesised(&mut self, list: Vec<Operand>, _: Pos) -> Operand {
        Operand::List(list)
    }

    fn nothing(&mut self) -> Operand {
        Operand::Nothing
    }
}

impl<'a> Bodies<'a> for Tree<'a> {
    type Body = Vec<Statement>;
    type Mnemonic = (Opcode, Arc<[Modifier]>);

    fn open(&mut self) {
        self.open.push(Vec::new());
    }

    fn close(&mut self) {
        let inner = self.open.pop().unwrap_or_default();
        if self.open.is_empty() { self.body = inner } else { self.add(Statement::Block(inner)) }
    }

    fn label(&mut self, name: &'a str, pos: Pos) {
        self.add(Statement::Label(Name::from(name), pos));
    }

    fn statement(&mut self, statement: Statement) {
        self.add(statement);
    }

    fn known(&self, word: &'a str) -> Option<Self::Mnemonic> {
        self.mnemonics.get(word).cloned()
    }

    fn learn(&mut self, word: &'a str, op: Opcode, mods: impl Iterator<Item = Modifier>) -> Self::Mnemonic {
        let mnemonic = (op, mods.collect());
        self.mnemonics.insert(word, Clone::clone(&mnemonic));
        mnemonic
    }

    fn mnemonic(&mut self, op: Opcode, mods: &[Modifier]) -> Self::Mnemonic {
        (op, mods.into())
    }

    fn begin(&mut self, head: Head<'a, Self::Mnemonic>) {
        let (op, mods) = head.mnemonic;
        let guard = head.guard.map(|g| Guard { negated: g.negated, pred: Name::from(g.name) });
        self.inst = Some(Inst { pos: head.pos, guard, op, mods, operands: Vec::with_capacity(4) });
    }

    fn push(&mut self, operand: Operand) {
        if let Some(inst) = &mut self.inst {
            inst.operands.push(operand);
        }
    }

    fn end(&mut self) {
        if let Some(inst) = self.inst.take() {
            self.add(Statement::Inst(inst));
        }
    }

    fn body(&mut self) -> Vec<Statement> {
        std::mem::take(&mut self.body)
    }
}
