//! A body as it is parsed: a flat list of instructions, with registers numbered during parsing. Other names may be used
//! before their declaration; they are numbered too, and resolved when the body is flattened.

use super::flat::{Flat, Item, Opd, Symbol};
use super::mnemonics::{Common, Mnemonic};
use super::operands;
use crate::ptx::{
    Bodies, Head, Imm, Modifier, Name, Opcode, Operands, Pos, Registers, Space, Statement, Type, Variable,
};
use crate::sass::compile::AsmError;
use hashbrown::HashMap;
use std::cell::{Cell, OnceCell};
use std::hash::{BuildHasher, Hasher};

/// Names by number: the scope in which each is used, and the name.
pub(crate) type Uses<'a> = [(u32, &'a str)];

/// A body whose names are not resolved yet.
#[derive(Default)]
pub(crate) struct Source<'a> {
    pub items: Vec<Item<'a>>,
    pub registers: Vec<Registers>,
    pub scopes: Vec<Scope>,
    /// With their scopes, in the order of the text.
    pub variables: Vec<(u32, Variable)>,
    pub names: Vec<(u32, &'a str)>,
    /// Items that contain names.
    pub named: Vec<u32>,
    /// Calls and branches through tables, with their scopes.
    pub wide: Vec<(u32, u32)>,
    pub labels: u32,
    /// Results and parameters that are registers; they have the lowest numbers.
    pub passed: Vec<Passed>,
    /// The first unsupported construct.
    pub fault: Option<AsmError>,
}

/// A result or a parameter that is a register.
pub(crate) struct Passed {
    pub name: Name,
    pub ty: Type,
    pub result: bool,
}

/// The declarations of one block.
#[derive(Default)]
pub(crate) struct Scope {
    /// The enclosing scope.
    pub parent: Option<u32>,
    pub symbols: HashMap<Name, Symbol>,
    /// Lists of labels.
    pub tables: HashMap<Name, Vec<Name>>,
    /// Prototypes of calls through registers: results and parameters.
    pub prototypes: HashMap<Name, (Vec<Variable>, Vec<Variable>)>,
}

/// Storage for what the instructions of a text share or point to.
#[derive(Default)]
pub(crate) struct Store<'a> {
    mnemonics: Kept<Mnemonic>,
    operands: Kept<Opd<'a>>,
    lists: Kept<Vec<Opd<'a>>>,
}

impl<'a> Store<'a> {
    /// An operand that is a part of others.
    pub(crate) fn one(&'a self, o: Opd<'a>) -> &'a Opd<'a> {
        self.operands.add(o)
    }

    /// A load or a store of an argument or result of a call.
    pub(crate) fn access(&'a self, op: Opcode, ty: Type) -> &'a Mnemonic {
        let mods = [Modifier::Space(Space::Param), Modifier::Type(ty)];
        self.mnemonics.add(Mnemonic::new(op, mods.into_iter()))
    }

    /// Operands that are one.
    pub(crate) fn list(&'a self, all: Vec<Opd<'a>>) -> &'a [Opd<'a>] {
        self.lists.add(all)
    }
}

/// An append-only arena: values never move.
struct Kept<T> {
    /// Each part is twice as long as the one before.
    parts: [OnceCell<Vec<OnceCell<T>>>; 28],
    count: Cell<usize>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Kept { parts: [const { OnceCell::new() }; 28], count: Cell::new(0) }
    }
}

/// Length of the first part.
const FIRST: usize = 32;

impl<T> Kept<T> {
    fn add(&self, value: T) -> &T {
        let n = self.count.replace(self.count.get() + 1) + FIRST;
        let part = (n / FIRST).ilog2() as usize;
        let places = FIRST << part;
        // PANIC: memory runs out before all parts are full.
        let part = self.parts[part].get_or_init(|| (0..places).map(|_| OnceCell::new()).collect());
        part[n - places].get_or_init(|| value)
    }
}

/// Hashes of mnemonics.
#[derive(Clone, Copy)]
struct Hashing;

/// A hash over eight bytes at a time: texts have few mnemonics, and each is looked up often.
struct Hash(u64);

impl BuildHasher for Hashing {
    type Hasher = Hash;

    fn build_hasher(&self) -> Hash {
        Hash(0)
    }
}

impl Hasher for Hash {
    #[inline]
    fn write(&mut self, mut bytes: &[u8]) {
        let mut add = |part: u64| self.0 = (self.0.rotate_left(23) ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while let Some((part, rest)) = bytes.split_first_chunk() {
            add(u64::from_le_bytes(*part));
            bytes = rest;
        }
        add(bytes.iter().fold(bytes.len() as u64, |all, c| all << 8 | u64::from(*c)));
    }

    // The terminator of a string is not hashed.
    fn write_u8(&mut self, _: u8) {}

    fn finish(&self) -> u64 {
        // Hash tables use the low bits.
        self.0 ^ self.0 >> 32
    }
}

/// Builds bodies during parsing.
pub(crate) struct Reader<'a> {
    store: &'a Store<'a>,
    common: &'static Common,
    /// Mnemonics that are not in the common table.
    known: HashMap<&'a str, &'a Mnemonic, Hashing>,
    source: Source<'a>,
    /// The current scope.
    scope: Option<u32>,
    /// The label directly before the current position.
    label: Option<(&'a str, Pos)>,
    /// The current instruction contains names.
    names: bool,
    listed: bool,
    /// It is a call or a branch through a table.
    wide: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(store: &'a Store<'a>) -> Reader<'a> {
        let (common, known, source) = (Common::table(), HashMap::with_hasher(Hashing), Source::default());
        Reader { store, common, known, source, scope: None, label: None, names: false, listed: false, wide: false }
    }

    fn fault(&mut self, pos: Pos, what: impl FnOnce() -> String) {
        self.source.fault.get_or_insert_with(|| AsmError::new(pos, what()));
    }

    /// Records that the last instruction contains names, lists, or anything else to resolve.
    #[inline(never)]
    fn note(&mut self) {
        let Some(Item::Inst(i)) = self.source.items.last() else { return };
        let (item, pos) = (self.source.items.len() as u32 - 1, i.pos);
        let call = i.op == Opcode::Call;
        if std::mem::take(&mut self.names) {
            self.source.named.push(item);
        }
        if std::mem::take(&mut self.listed) && !call && !self.bare_constants() {
            self.fault(pos, || "operands in parentheses are those of a call".into());
        }
        if self.wide {
            self.source.wide.push((self.scope.unwrap_or_default(), item));
        }
    }

    /// Unwraps parenthesised constants; returns whether all parentheses contain only one.
    fn bare_constants(&mut self) -> bool {
        let Some(Item::Inst(i)) = self.source.items.last_mut() else { return false };
        i.opds.iter_mut().all(|o| {
            if let Opd::List(list) = *o {
                let [value @ Opd::Imm(_)] = list else { return false };
                *o = *value;
            }
            true
        })
    }

    fn here(&mut self) -> Option<&mut Scope> {
        self.source.scopes.get_mut(self.scope? as usize)
    }
}

impl<'a> Operands<'a> for Reader<'a> {
    type Operand = Opd<'a>;

    #[inline]
    fn register(&mut self, _: &'a str, number: u32) -> Opd<'a> {
        Opd::Reg(number)
    }

    fn not(&mut self, _: &'a str, number: u32) -> Opd<'a> {
        Opd::Not(number)
    }

    fn lanes(&mut self, _: &'a str, first: u32, lanes: u8) -> Opd<'a> {
        self.vector((first..first + u32::from(lanes)).map(Opd::Reg).collect())
    }

    fn lane(&mut self, _: &'a str, _: u8, number: u32) -> Opd<'a> {
        Opd::Reg(number)
    }

    fn special(&mut self, name: &'a str) -> Opd<'a> {
        Opd::Special(name)
    }

    fn symbol(&mut self, name: &'a str, offset: i64) -> Opd<'a> {
        let n = self.source.names.len() as u32;
        self.source.names.push((self.scope.unwrap_or_default(), name));
        self.names = true;
        Opd::Symbol(Symbol::Named(n), offset)
    }

    #[inline]
    fn immediate(&mut self, value: Imm) -> Opd<'a> {
        Opd::Imm(value)
    }

    fn vector(&mut self, parts: Vec<Opd<'a>>) -> Opd<'a> {
        Opd::Vector(self.store.list(parts))
    }

    fn pair(&mut self, a: Opd<'a>, b: Opd<'a>) -> Opd<'a> {
        Opd::Pair(self.store.one(a), self.store.one(b))
    }

    fn address(&mut self, base: Opd<'a>, offset: i64, rest: Vec<Opd<'a>>) -> Opd<'a> {
        let base = Opd::Address(self.store.one(base), offset);
        // A tensor and the coordinates in it.
        if rest.is_empty() {
            return base;
        }
        let rest = self.vector(rest);
        self.pair(base, rest)
    }

    fn parenthesised(&mut self, list: Vec<Opd<'a>>, _: Pos) -> Opd<'a> {
        self.listed = true;
        Opd::List(self.store.list(list))
    }

    fn nothing(&mut self) -> Opd<'a> {
        Opd::Nothing
    }
}

impl<'a> Bodies<'a> for Reader<'a> {
    type Body = Source<'a>;
    type Mnemonic = &'a Mnemonic;

    fn open(&mut self) {
        let parent = self.scope.replace(self.source.scopes.len() as u32);
        if parent.is_none() {
            self.source.items.reserve(128);
        }
        self.source.scopes.push(Scope { parent, ..Scope::default() });
    }

    fn passed(&mut self, registers: &[&Variable], results: usize) {
        let one = |(k, v): (usize, &&Variable)| Passed { name: v.name.clone(), ty: v.ty, result: k < results };
        self.source.passed = registers.iter().enumerate().map(one).collect();
    }

    fn close(&mut self) {
        self.scope = self.here().and_then(|s| s.parent);
    }

    fn label(&mut self, name: &'a str, pos: Pos) {
        let n = self.source.labels;
        self.source.labels += 1;
        if let Some(scope) = self.here() {
            scope.symbols.insert(Name::from(name), Symbol::Label(n));
        }
        self.source.items.push(Item::Label(n));
        self.label = Some((name, pos));
    }

    fn statement(&mut self, statement: Statement) {
        // A list of branch targets or a prototype is named by the label before it.
        let label = self.label.take();
        let scope = self.scope.unwrap_or_default();
        match (statement, label) {
            (Statement::Registers(r), _) => self.source.registers.push(r),
            (Statement::Variable(v), _) => self.source.variables.push((scope, v)),
            (Statement::Targets { calls: false, names }, Some((name, _))) => {
                if let Some(scope) = self.here() {
                    scope.tables.insert(Name::from(name), names);
                }
            }
            (Statement::Targets { .. }, Some((name, pos))) => {
                self.fault(pos, || format!("{name}: lists of call targets are not assembled"));
            }
            (Statement::Prototype { returns, params, .. }, Some((name, _))) => {
                if let Some(scope) = self.here() {
                    scope.prototypes.insert(Name::from(name), (returns, params));
                }
            }
            _ => {}
        }
    }

    fn known(&self, word: &'a str) -> Option<&'a Mnemonic> {
        self.common.get(word).or_else(|| self.known.get(word).copied())
    }

    fn learn(&mut self, word: &'a str, op: Opcode, mods: impl Iterator<Item = Modifier>) -> &'a Mnemonic {
        let mnemonic = self.store.mnemonics.add(Mnemonic::new(op, mods));
        self.known.insert(word, mnemonic);
        mnemonic
    }

    fn mnemonic(&mut self, op: Opcode, mods: &[Modifier]) -> &'a Mnemonic {
        self.store.mnemonics.add(Mnemonic::new(op, mods.iter().cloned()))
    }

    fn begin(&mut self, head: Head<'a, &'a Mnemonic>) {
        self.label = None;
        self.wide = matches!(head.mnemonic.op, Opcode::Call | Opcode::Brx);
        let guard = head.guard.map(|g| (g.number, g.negated));
        let inst = Flat::of(head.pos, guard, head.mnemonic, operands::Operands::default());
        self.source.items.push(Item::Inst(inst));
    }

    #[inline]
    fn push(&mut self, operand: Opd<'a>) {
        if let Some(Item::Inst(i)) = self.source.items.last_mut() {
            i.opds.push(operand);
        }
    }

    #[inline]
    fn end(&mut self) {
        if self.names || self.listed || self.wide {
            self.note();
        }
    }

    fn body(&mut self) -> Source<'a> {
        self.scope = None;
        std::mem::take(&mut self.source)
    }
}
