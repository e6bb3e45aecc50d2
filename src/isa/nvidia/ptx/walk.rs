//! Converts a [`Module`] to another representation of bodies, with the same calls that the parser would make for the
//! module's text.

use super::bodies::{Bodies, Head, Predicate};
use super::module::{Function, Inst, Item, Modifier, Module, Operand, Pos, Statement, Variable};
use super::names::{Numbered, Opcode, Space};
use super::parse::{MAX_DEPTH, ParseError, Scope};
use hashbrown::HashMap;
use std::sync::Arc;

type Res<T> = Result<T, ParseError>;

/// The module in another representation of bodies, as the parser would build it from the text.
///
/// # Errors
/// A register that is not declared in its scope, or braces nested too deep.
pub(crate) fn walk<'a, B: Bodies<'a>>(module: &'a Module, bodies: &mut B) -> Res<Module<B::Body>> {
    let mut walker = Walker { scopes: vec![], registers: 0, mnemonics: HashMap::new(), depth: 0 };
    let mut items = Vec::with_capacity(module.items.len());
    for item in &module.items {
        items.push(match item {
            Item::Function(f) => Item::Function(Box::new(walker.function(f, bodies)?)),
            Item::Variable(v) => Item::Variable(v.clone()),
            Item::File { number, path, facts } => {
                Item::File { number: *number, path: path.clone(), facts: facts.clone() }
            }
            Item::Pragma(words) => Item::Pragma(words.clone()),
            Item::Alias { name, of } => Item::Alias { name: name.clone(), of: of.clone() },
            Item::Section { name, words } => Item::Section { name: name.clone(), words: words.clone() },
        });
    }
    Ok(Module { version: module.version, target: module.target.clone(), address_bits: module.address_bits, items })
}

struct Walker<'a, M> {
    scopes: Vec<Scope<'a>>,
    /// Number of registers that the body has declared so far.
    registers: u32,
    /// By operation and the address of the shared list of modifiers.
    mnemonics: HashMap<(Opcode, *const Modifier), M>,
    depth: u32,
}

impl<'a, M: Clone> Walker<'a, M> {
    fn function<B: Bodies<'a, Mnemonic = M>>(&mut self, f: &'a Function, out: &mut B) -> Res<Function<B::Body>> {
        let body = match &f.body {
            Some(list) => Some(self.body(f, list, out)?),
            None => None,
        };
        let (returns, params, tuning) = (f.returns.clone(), f.params.clone(), f.tuning.clone());
        let (pos, linkage, entry, name) = (f.pos, f.linkage, f.entry, f.name.clone());
        Ok(Function { pos, linkage, entry, name, returns, params, tuning, body })
    }

    /// Results and parameters that are registers are declared in an enclosing scope.
    fn body<B: Bodies<'a, Mnemonic = M>>(
        &mut self,
        f: &'a Function,
        list: &'a [Statement],
        out: &mut B,
    ) -> Res<B::Body> {
        self.registers = 0;
        let is_passed = |v: &&Variable| v.space == Space::Reg;
        let passed: Vec<&'a Variable> = f.returns.iter().chain(&f.params).filter(is_passed).collect();
        if let Some(v) = passed.first()
            && (f.entry || passed.iter().any(|v| v.vector > 1 || !v.dims.is_empty()))
        {
            return Err(ParseError::expected(v.pos, "a parameter in .param, or a scalar register of a .func", &v.name));
        }
        if !passed.is_empty() {
            self.scopes.push(Scope::default());
            passed.iter().for_each(|v| self.declare(&v.name, None, 1));
            out.passed(&passed, f.returns.iter().filter(is_passed).count());
        }
        let done = self.block(list, out);
        self.scopes.clear();
        done.map(|()| out.body())
    }

    fn declare(&mut self, name: &'a str, count: Option<u32>, lanes: u8) {
        let first = self.registers;
        self.registers = first.saturating_add(count.unwrap_or(1).saturating_mul(lanes.into()));
        if let Some(scope) = self.scopes.last_mut() {
            scope.declare(name, count, first, lanes);
        }
    }

    fn deeper<T>(&mut self, what: &'static str, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            return Err(ParseError::TooDeep { pos: Pos::default(), what });
        }
        self.depth += 1;
        let done = f(self);
        self.depth -= 1;
        done
    }

    /// A block with a name scope of its own.
    fn block<B: Bodies<'a, Mnemonic = M>>(&mut self, list: &'a [Statement], out: &mut B) -> Res<()> {
        self.scopes.push(Scope::default());
        out.open();
        let done = self.deeper("blocks", |w| list.iter().try_for_each(|s| w.statement(s, out)));
        out.close();
        self.scopes.pop();
        done
    }

    fn statement<B: Bodies<'a, Mnemonic = M>>(&mut self, s: &'a Statement, out: &mut B) -> Res<()> {
        match s {
            Statement::Inst(i) => return self.inst(i, out),
            Statement::Block(list) => return self.block(list, out),
            Statement::Label(name, pos) => out.label(name, *pos),
            Statement::Registers(r) => {
                r.names.iter().for_each(|(name, count)| self.declare(name, *count, r.vector));
                out.statement(s.clone());
            }
            s => out.statement(s.clone()),
        }
        Ok(())
    }

    fn inst<B: Bodies<'a, Mnemonic = M>>(&mut self, i: &'a Inst, out: &mut B) -> Res<()> {
        let key = (i.op, Arc::as_ptr(&i.mods).cast::<Modifier>());
        let mnemonic = match self.mnemonics.get(&key) {
            Some(known) => known.clone(),
            None => {
                let new = out.mnemonic(i.op, &i.mods);
                self.mnemonics.insert(key, new.clone());
                new
            }
        };
        let guard = match &i.guard {
            Some(g) => Some(Predicate { name: &g.pred, number: self.number(&g.pred, i.pos)?, negated: g.negated }),
            None => None,
        };
        out.begin(Head { pos: i.pos, guard, mnemonic });
        for o in &i.operands {
            let operand = self.operand(o, i.pos, out)?;
            out.push(operand);
        }
        out.end();
        Ok(())
    }

    fn all<B: Bodies<'a, Mnemonic = M>>(&mut self, list: &'a [Operand], pos: Pos, out: &mut B) -> Res<Vec<B::Operand>> {
        self.deeper("operands", |w| list.iter().map(|o| w.operand(o, pos, out)).collect())
    }

    fn operand<B: Bodies<'a, Mnemonic = M>>(&mut self, o: &'a Operand, pos: Pos, out: &mut B) -> Res<B::Operand> {
        Ok(match o {
            Operand::Reg(name) => match self.register(name) {
                Some(number) => out.register(name, number),
                None => {
                    let (first, lanes) = self.vector(name, pos)?;
                    out.lanes(name, first, lanes)
                }
            },
            Operand::Lane(name, lane) => {
                let first = self.vector(name, pos)?.0;
                out.lane(name, *lane, first.saturating_add((*lane).into()))
            }
            Operand::Special(name) => out.special(name),
            Operand::Symbol(name, offset) => out.symbol(name, *offset),
            Operand::Not(name) => {
                let number = self.number(name, pos)?;
                out.not(name, number)
            }
            Operand::Imm(value) => out.immediate(*value),
            Operand::Vector(list) => {
                let parts = self.all(list, pos, out)?;
                out.vector(parts)
            }
            Operand::Pair(a, b) => {
                let (a, b) = self.deeper("operands", |w| Ok((w.operand(a, pos, out)?, w.operand(b, pos, out)?)))?;
                out.pair(a, b)
            }
            Operand::Address { base, offset, rest } => {
                let base = self.deeper("operands", |w| w.operand(base, pos, out))?;
                let rest = self.all(rest, pos, out)?;
                out.address(base, *offset, rest)
            }
            Operand::List(list) => {
                let list = self.all(list, pos, out)?;
                out.parenthesised(list, pos)
            }
            Operand::Nothing => out.nothing(),
        })
    }

    /// The number of a register that is in scope.
    fn register(&self, name: &str) -> Option<u32> {
        let taken_apart = Numbered::of(name.as_bytes());
        self.scopes.iter().rev().find_map(|scope| scope.number(name, &taken_apart))
    }

    fn number(&self, name: &str, pos: Pos) -> Res<u32> {
        self.register(name).ok_or_else(|| undeclared(name, pos))
    }

    fn vector(&self, name: &str, pos: Pos) -> Res<(u32, u8)> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.vector(name));
        found.ok_or_else(|| undeclared(name, pos))
    }
}

fn undeclared(name: &str, pos: Pos) -> ParseError {
    ParseError::expected(pos, "a register that is declared before this", &format!("`{name}`"))
}
