//! A function's body as a list: names resolved, scopes gone, registers and labels numbered.

use super::AsmError;
use super::call::{self, Signatures};
use super::operands::Operands;
use crate::isa::ptx::{
    Counted, Imm, Inst, Modifier, Name, Numbered, Opcode, Operand, Pos, Space, Statement, Type, Variable,
};
use hashbrown::HashMap;
use smallvec::SmallVec;

/// A number of a register of the text.
pub(super) type Reg = u32;

/// Where a named thing is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Symbol {
    /// Bytes from the start of the block's shared memory.
    Shared(u32),
    /// Bytes from the start of the thread's frame.
    Local(u32),
    /// Bytes in constant bank 3.
    Constant(u32),
    /// A slot of bank 4 that holds the address.
    Global(u32),
    /// Bytes from the start of the parameters, and how many.
    Param(u32, u32),
    /// Bytes from the stack pointer: what a call passes and gets.
    Outgoing(u32),
    /// The same seen by the function that is called: bytes from the stack pointer as it was at the call.
    Incoming(u32),
    /// A function's number.
    Function(u32),
    Label(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Opd {
    Reg(Reg),
    Not(Reg),
    Special(Box<str>),
    Symbol(Symbol, i64),
    Imm(Imm),
    Vector(Vec<Opd>),
    Pair(Box<Opd>, Box<Opd>),
    Address(Box<Opd>, i64),
    Nothing,
}

/// An instruction with its operands resolved.
#[derive(Clone, Debug)]
pub(super) struct Flat<'a> {
    pub pos: Pos,
    /// Predicate and whether it is negated.
    pub guard: Option<(Reg, bool)>,
    pub op: Opcode,
    said: Said,
    pub mods: &'a [Modifier],
    pub opds: Operands,
}

/// What all passes ask of an instruction's modifiers.
#[derive(Clone, Copy, Debug)]
struct Said {
    ty: Type,
    space: Option<Space>,
    lanes: u8,
    results: u8,
}

impl<'a> Flat<'a> {
    pub fn new((pos, guard): (Pos, Option<(Reg, bool)>), op: Opcode, mods: &'a [Modifier], opds: Operands) -> Flat<'a> {
        let said = Said { ty: Type::B32, space: None, lanes: 1, results: 0 };
        let mut flat = Flat { pos, guard, op, said, mods: &[], opds };
        flat.say(mods);
        flat
    }

    /// Gives it other modifiers, or looks at changed operands.
    pub fn say(&mut self, mods: &'a [Modifier]) {
        self.mods = mods;
        let mut said = Said { ty: Type::B32, space: None, lanes: 1, results: 0 };
        for m in mods.iter().rev() {
            match m {
                Modifier::Type(t) if said.results == 0 => (said.ty, said.results) = (*t, 1),
                Modifier::Space(s) => said.space = Some(*s),
                Modifier::Vector(n) => said.lanes = *n,
                _ => {}
            }
        }
        said.results = self.count_results() as u8;
        self.said = said;
    }

    pub fn types(&self) -> impl Iterator<Item = Type> {
        self.mods.iter().filter_map(|m| if let Modifier::Type(t) = m { Some(*t) } else { None })
    }

    /// The last type, which is the only one of most instructions.
    #[inline]
    pub fn ty(&self) -> Type {
        self.said.ty
    }

    #[inline]
    pub fn space(&self) -> Option<Space> {
        self.said.space
    }

    #[inline]
    pub fn lanes(&self) -> usize {
        usize::from(self.said.lanes)
    }

    pub fn has(&self, word: &str) -> bool {
        self.mods.iter().any(|m| matches!(m, Modifier::Word(w) if w.as_bytes() == word.as_bytes()))
    }

    /// Words among the modifiers.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.mods.iter().filter_map(|m| if let Modifier::Word(w) = m { Some(&**w) } else { None })
    }

    /// Mnemonic and modifiers as they stood.
    pub fn name(&self) -> String {
        let mut s = self.op.word().to_owned();
        for m in self.mods {
            s.push('.');
            match m {
                Modifier::Type(t) => s.push_str(t.word()),
                Modifier::Space(p) => s.push_str(p.word()),
                Modifier::Vector(n) => s.push_str(&format!("v{n}")),
                Modifier::Word(w) => s.push_str(w),
            }
        }
        s
    }

    /// How many of the first operands are results.
    #[inline]
    pub fn results(&self) -> usize {
        usize::from(self.said.results)
    }

    fn count_results(&self) -> usize {
        use Opcode::*;
        let none = matches!(
            self.op,
            St | Red
                | Bra
                | Brx
                | Membar
                | Fence
                | Exit
                | Ret
                | Trap
                | Prefetch
                | Prefetchu
                | Cp
                | Nanosleep
                | Stmatrix
                | Call
                | Griddepcontrol
                | Setmaxnreg
                | Pmevent
                | Brkpt
                | Discard
                | Applypriority
                | Tensormap
        );
        let wants = match self.op {
            _ if none => 0,
            Bar | Barrier => usize::from(self.has("red")),
            Wmma => usize::from(!self.has("store")),
            Wgmma => usize::from(self.has("mma_async")),
            Mbarrier => {
                let none = ["init", "inval", "complete_tx"];
                let bytes_only = self.has("expect_tx") && !self.has("arrive") && !self.has("arrive_drop");
                usize::from(!bytes_only && !none.iter().any(|w| self.has(w)))
            }
            _ => 1,
        };
        wants.min(self.opds.len())
    }
}

#[derive(Clone, Debug)]
pub(super) enum Item<'a> {
    Label(u32),
    Inst(Flat<'a>),
}

/// A body.
#[derive(Debug, Default)]
pub(super) struct Body<'a> {
    pub items: Vec<Item<'a>>,
    /// Types of the registers.
    pub regs: Vec<Type>,
    pub labels: u32,
    /// Bytes of the thread's frame.
    pub local_bytes: u32,
    /// Bytes at the frame's start for what calls pass.
    pub outgoing_bytes: u32,
    /// What warps ask for of each other's registers, where they may.
    pub pool: Option<super::pool::Pool>,
}

/// Names of a module and of a function's parameters.
#[derive(Clone, Default)]
pub(super) struct Names {
    pub symbols: HashMap<Name, Symbol>,
    pub shared_bytes: u32,
    /// What a kernel declares at least, so that memory whose size the launch gives begins at one place in all kernels.
    pub least_shared_bytes: u32,
    /// Shared memory whose size the launch gives.
    pub dynamic: Vec<Name>,
    /// The module's functions.
    pub functions: std::sync::Arc<Signatures>,
}

impl Names {
    /// The number of the function of that name.
    pub fn function(&self, name: &Name) -> Option<u32> {
        if let Some(Symbol::Function(f)) = self.symbols.get(name) { Some(*f) } else { None }
    }
}

#[derive(Default)]
struct Scope<'a> {
    registers: HashMap<&'a str, Reg>,
    /// `%r<40>`, and the number of the first.
    ranges: Vec<(Counted<'a>, Reg)>,
    symbols: HashMap<&'a str, Symbol>,
    /// Lists of labels, by name.
    tables: HashMap<&'a str, &'a [Name]>,
    /// Prototypes of calls through registers, by name.
    prototypes: HashMap<&'a str, call::Signature>,
}

struct Flatten<'a, 'n> {
    names: &'n mut Names,
    scopes: Vec<Scope<'a>>,
    body: Body<'a>,
}

/// Flattens a body. Variables declared in it get their places.
pub(super) fn flatten<'a>(body: &'a [Statement], names: &mut Names) -> Result<Body<'a>, AsmError> {
    let mut f = Flatten { names, scopes: vec![], body: Body::default() };
    f.block(body)?;
    Ok(f.body)
}

/// Counts the shared memory that a body declares.
pub(super) fn shared(body: &[Statement], names: &mut Names) -> Result<(), AsmError> {
    for s in body {
        match s {
            Statement::Block(b) => shared(b, names)?,
            Statement::Variable(v) if matches!(v.space, Space::Shared | Space::SharedCta) => {
                place(v, &mut names.shared_bytes)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn align_up(at: u32, align: u32) -> u32 {
    at.div_ceil(align.max(1)) * align.max(1)
}

/// The next free place for a variable.
pub(super) fn place(v: &Variable, used: &mut u32) -> Result<u32, AsmError> {
    let natural = (v.ty.bits().div_ceil(8) * u32::from(v.vector)).max(1);
    let at = align_up(*used, v.align.unwrap_or(natural));
    let len = v.len_bytes().and_then(|n| u32::try_from(n).ok());
    let Some(len) = len else { return Err(AsmError::new(v.pos, format!("{}: its size is not known", v.name))) };
    *used = at.checked_add(len).ok_or_else(|| AsmError::new(v.pos, format!("{}: too large", v.name)))?;
    Ok(at)
}

impl<'a> Flatten<'a, '_> {
    fn block(&mut self, list: &'a [Statement]) -> Result<(), AsmError> {
        self.scopes.push(Scope::default());
        for (k, s) in list.iter().enumerate() {
            self.declare(s)?;
            self.named_list(k.checked_sub(1).and_then(|k| list.get(k)), s)?;
        }
        for s in list {
            if let Statement::Inst(i) = s
                && i.op == Opcode::Call
            {
                self.lay_out_call(i)?;
            }
        }
        self.body.items.reserve(list.len());
        for s in list {
            match s {
                Statement::Block(inner) => self.block(inner)?,
                Statement::Label(name, _) => {
                    if let Some(Symbol::Label(l)) = self.symbol(name) {
                        self.body.items.push(Item::Label(l));
                    }
                }
                Statement::Inst(i) => {
                    let flat = self.inst(i)?;
                    self.body.items.push(Item::Inst(flat));
                }
                _ => {}
            }
        }
        self.scopes.pop();
        Ok(())
    }

    fn declare(&mut self, s: &'a Statement) -> Result<(), AsmError> {
        // PANIC: block() has pushed a scope.
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        match s {
            Statement::Registers(r) => {
                if r.vector != 1 {
                    return Err(AsmError::new(r.pos, "vector registers are not assembled".into()));
                }
                for (name, count) in &r.names {
                    let first = u32::try_from(self.body.regs.len()).unwrap_or(u32::MAX);
                    let n = count.unwrap_or(1);
                    self.body.regs.resize(self.body.regs.len() + n as usize, r.ty);
                    match count {
                        Some(n) => scope.ranges.push((Counted::new(name, *n), first)),
                        None => {
                            scope.registers.insert(name, first);
                        }
                    }
                }
            }
            Statement::Label(name, _) => {
                scope.symbols.insert(name, Symbol::Label(self.body.labels));
                self.body.labels += 1;
            }
            Statement::Variable(v) => {
                let symbol = match v.space {
                    Space::Shared | Space::SharedCta => Symbol::Shared(place(v, &mut self.names.shared_bytes)?),
                    Space::Local => Symbol::Local(place(v, &mut self.body.local_bytes)?),
                    // Its place is the call's to say.
                    Space::Param => return Ok(()),
                    _ => {
                        return Err(AsmError::new(
                            v.pos,
                            format!("{}: a variable in .{} here", v.name, v.space.word()),
                        ));
                    }
                };
                scope.symbols.insert(&v.name, symbol);
            }
            _ => {}
        }
        Ok(())
    }

    /// A list of branch targets or a prototype is named by the label before it.
    fn named_list(&mut self, before: Option<&'a Statement>, s: &'a Statement) -> Result<(), AsmError> {
        let (Some(Statement::Label(name, pos)), Some(scope)) = (before, self.scopes.last_mut()) else { return Ok(()) };
        match s {
            Statement::Targets { calls: false, names } => {
                scope.tables.insert(name, names);
            }
            Statement::Prototype { returns, params, .. } => {
                scope.prototypes.insert(name, call::signature(returns, params)?);
            }
            Statement::Targets { .. } => {
                return Err(AsmError::new(*pos, format!("{name}: lists of call targets are not assembled")));
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives the parameters that a call names their places.
    fn lay_out_call(&mut self, i: &'a Inst) -> Result<(), AsmError> {
        let parts = call::parts(i)?;
        let callee = match parts.target {
            Operand::Symbol(name, 0) => match self.symbol(name) {
                Some(Symbol::Function(f)) => self.names.functions.list.get(f as usize).map(|f| f.signature.clone()),
                _ => None,
            },
            _ => parts.prototype.and_then(|p| self.scopes.iter().rev().find_map(|s| s.prototypes.get(&**p)).cloned()),
        };
        let Some(signature) = callee else {
            return Err(AsmError::new(i.pos, "call: what is called is not known here".into()));
        };
        self.body.outgoing_bytes = self.body.outgoing_bytes.max(signature.bytes.next_multiple_of(16));
        for (list, places) in [(parts.returns, &signature.returns), (parts.params, &signature.params)] {
            if list.len() != places.len() {
                return Err(AsmError::new(i.pos, "call: not as many parameters as are declared".into()));
            }
            for (o, (at, _)) in list.iter().zip(places) {
                let Operand::Symbol(name, 0) = o else {
                    return Err(AsmError::new(
                        i.pos,
                        "call: parameters that are no .param variables are not assembled".into(),
                    ));
                };
                let Some(scope) = self.scopes.last_mut() else { continue };
                if scope.symbols.insert(name, Symbol::Outgoing(*at)).is_some_and(|old| old != Symbol::Outgoing(*at)) {
                    let what = format!("call: {name} is passed by two calls, which is not assembled");
                    return Err(AsmError::new(i.pos, what));
                }
            }
        }
        Ok(())
    }

    /// `call` with the functions that it may be of.
    fn call(&mut self, i: &'a Inst) -> Result<Vec<Opd>, AsmError> {
        let parts = call::parts(i)?;
        let target = self.operand(parts.target, i.pos)?;
        let Opd::Reg(_) = target else { return Ok(vec![target]) };
        let prototype = parts.prototype.and_then(|p| self.scopes.iter().rev().find_map(|s| s.prototypes.get(&**p)));
        let Some(prototype) = prototype else { return Ok(vec![target]) };
        let fits = |f: &call::Declared| f.taken && f.signature.is_like(prototype);
        let functions = self.names.functions.list.iter().enumerate().filter(|(_, f)| fits(f));
        let all = functions.map(|(k, _)| Opd::Symbol(Symbol::Function(k as u32), 0)).collect();
        Ok(vec![target, Opd::Vector(all)])
    }

    /// `brx.idx` with the labels of its table.
    fn table_branch(&mut self, i: &'a Inst) -> Result<Vec<Opd>, AsmError> {
        let [index, Operand::Symbol(table, 0)] = i.operands.as_slice() else {
            return Err(AsmError::new(i.pos, "brx: an index and a list of labels are expected".into()));
        };
        let index = self.operand(index, i.pos)?;
        let Some(names) = self.scopes.iter().rev().find_map(|s| s.tables.get(&**table)).copied() else {
            return Err(AsmError::new(i.pos, format!("brx: {table} is no list of labels")));
        };
        let label = |n: &Name| match self.symbol(n) {
            Some(l @ Symbol::Label(_)) => Ok(Opd::Symbol(l, 0)),
            _ => Err(AsmError::new(i.pos, format!("brx: {n} is no label here"))),
        };
        let labels = names.iter().map(label).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![index, Opd::Vector(labels)])
    }

    fn symbol(&self, name: &Name) -> Option<Symbol> {
        let inner = self.scopes.iter().rev().find_map(|s| s.symbols.get(&**name)).copied();
        inner.or_else(|| self.names.symbols.get(name).copied())
    }

    fn register(&self, name: &'a Name, pos: Pos) -> Result<Reg, AsmError> {
        let taken_apart = Numbered::of(name.as_bytes());
        let found = self.scopes.iter().rev().find_map(|s| {
            let counted = |(range, first): &(Counted, Reg)| range.number(&taken_apart).map(|k| first + k);
            let plain = if s.registers.is_empty() { None } else { s.registers.get(&**name).copied() };
            plain.or_else(|| s.ranges.iter().find_map(counted))
        });
        found.ok_or_else(|| AsmError::new(pos, format!("{name} is not declared")))
    }

    fn inst(&mut self, i: &'a Inst) -> Result<Flat<'a>, AsmError> {
        let guard = match &i.guard {
            Some(g) => Some((self.register(&g.pred, i.pos)?, g.negated)),
            None => None,
        };
        let opds = match i.op {
            Opcode::Call => self.call(i)?.into(),
            Opcode::Brx => self.table_branch(i)?.into(),
            _ => {
                let mut opds = SmallVec::new();
                for o in &i.operands {
                    match o {
                        Operand::Reg(n) => opds.push(Opd::Reg(self.register(n, i.pos)?)),
                        Operand::Imm(v) => opds.push(Opd::Imm(*v)),
                        o => opds.push(self.operand(o, i.pos)?),
                    }
                }
                opds
            }
        };
        Ok(Flat::new((i.pos, guard), i.op, &i.mods, Operands::from(opds)))
    }

    fn operand(&self, o: &'a Operand, pos: Pos) -> Result<Opd, AsmError> {
        Ok(match o {
            Operand::Reg(n) => Opd::Reg(self.register(n, pos)?),
            Operand::Not(n) => Opd::Not(self.register(n, pos)?),
            Operand::Special(n) => Opd::Special((&**n).into()),
            Operand::Symbol(n, offset) => match self.symbol(n) {
                Some(s) => Opd::Symbol(s, *offset),
                None => return Err(AsmError::new(pos, format!("{n} is not known here"))),
            },
            Operand::Imm(i) => Opd::Imm(*i),
            Operand::Vector(v) => Opd::Vector(v.iter().map(|o| self.operand(o, pos)).collect::<Result<_, _>>()?),
            Operand::Pair(a, b) => Opd::Pair(Box::new(self.operand(a, pos)?), Box::new(self.operand(b, pos)?)),
            Operand::Address { base, offset, rest } if rest.is_empty() => {
                Opd::Address(Box::new(self.operand(base, pos)?), *offset)
            }
            Operand::Nothing => Opd::Nothing,
            // A tensor and the coordinates in it.
            Operand::Address { base, offset, rest } => {
                let base = Opd::Address(Box::new(self.operand(base, pos)?), *offset);
                let rest = rest.iter().map(|o| self.operand(o, pos)).collect::<Result<Vec<Opd>, _>>()?;
                Opd::Pair(Box::new(base), Box::new(Opd::Vector(rest)))
            }
            Operand::Lane(n, _) => return Err(AsmError::new(pos, format!("{n}: vector registers are not assembled"))),
            Operand::List(_) => return Err(AsmError::new(pos, "calls are not assembled".into())),
        })
    }
}
