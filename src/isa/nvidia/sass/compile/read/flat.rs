//! A function's body as a flat list: names resolved, scopes removed, registers and labels numbered.

use super::call::{self, Signatures};
use super::mnemonics::Mnemonic;
use super::operands::Operands;
use super::source::{Passed, Scope, Source, Store, Uses};
use crate::ptx::{Imm, Modifier, Name, Opcode, Pos, Space, Type, Variable};
use crate::sass::compile::AsmError;
use crate::sass::compile::context::Context;
use hashbrown::HashMap;

/// A number of a register of the text.
pub(crate) type Reg = u32;

/// The location of a named object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Symbol {
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
    /// Bytes from the stack pointer: arguments and results of a call.
    Outgoing(u32),
    /// The same as seen by the callee: bytes from the stack pointer at the time of the call.
    Incoming(u32),
    /// A function's number.
    Function(u32),
    Label(u32),
    /// A name that is not resolved yet, by its number in the body.
    Named(u32),
}

/// An operand; compound operands refer to parts in the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opd<'a> {
    Reg(Reg),
    Not(Reg),
    Special(&'a str),
    Symbol(Symbol, i64),
    Imm(Imm),
    Vector(&'a [Opd<'a>]),
    /// Arguments or results of a call, until names are resolved.
    List(&'a [Opd<'a>]),
    Pair(&'a Opd<'a>, &'a Opd<'a>),
    Address(&'a Opd<'a>, i64),
    Nothing,
}

impl<'a> Opd<'a> {
    /// Replaces each register and name in the operand; compound parts are rebuilt.
    pub(crate) fn map<E>(
        &mut self,
        store: &'a Store<'a>,
        f: &mut impl FnMut(&mut Opd<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let one = |o: &'a Opd<'a>, f: &mut _| {
            let mut o = *o;
            Opd::map(&mut o, store, f).map(|()| store.one(o))
        };
        match self {
            Opd::Reg(_) | Opd::Not(_) | Opd::Symbol(..) => f(self)?,
            Opd::Vector(v) | Opd::List(v) => {
                let mut all = v.to_vec();
                all.iter_mut().try_for_each(|o| o.map(store, f))?;
                *v = store.list(all);
            }
            Opd::Pair(a, b) => (*a, *b) = (one(a, f)?, one(b, f)?),
            Opd::Address(base, _) => *base = one(base, f)?,
            Opd::Special(_) | Opd::Imm(_) | Opd::Nothing => {}
        }
        Ok(())
    }
}

/// An instruction with its operands resolved.
#[derive(Clone, Debug)]
pub(crate) struct Flat<'a> {
    pub pos: Pos,
    /// Predicate and whether it is negated.
    pub guard: Option<(Reg, bool)>,
    pub op: Opcode,
    said: Said,
    pub mods: &'a [Modifier],
    pub opds: Operands<'a>,
}

/// Precomputed properties of an instruction's modifiers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said {
    ty: Type,
    space: Option<Space>,
    lanes: u8,
    results: u8,
    /// How many types there are.
    types: u8,
    /// Selection supports all its words.
    known: bool,
    /// A bit set of its words; several words may share a bit.
    words: u64,
}

/// A word's bit in the set.
#[inline(always)] // of a word that is a constant it becomes one
const fn bit(word: &str) -> u64 {
    match word.as_bytes() {
        [] => 1,
        [one] => 1 << (*one & 63),
        [first, .., last] => 1 << ((*first as usize * 5 + *last as usize * 3 + word.len() * 7) & 63),
    }
}

impl Said {
    pub(crate) fn of(op: Opcode, mods: &[Modifier]) -> Said {
        let results = count_results(op, mods);
        let mut said = Said { ty: Type::B32, space: None, lanes: 1, results, types: 0, known: true, words: 0 };
        for m in mods.iter().rev() {
            match m {
                Modifier::Type(t) => {
                    said.ty = if said.types == 0 { *t } else { said.ty };
                    said.types += 1;
                }
                Modifier::Space(s) => said.space = Some(*s),
                Modifier::Vector(n) => said.lanes = *n,
                Modifier::Word(w) => {
                    said.words |= bit(w);
                    said.known &= crate::sass::compile::select::knows(op, w);
                }
            }
        }
        said
    }
}

impl<'a> Flat<'a> {
    /// An instruction with a known mnemonic.
    #[inline]
    pub(crate) fn of(pos: Pos, guard: Option<(Reg, bool)>, mnemonic: &'a Mnemonic, opds: Operands<'a>) -> Flat<'a> {
        Flat { pos, guard, op: mnemonic.op, said: mnemonic.said, mods: &mnemonic.mods, opds }
    }

    /// Replaces its modifiers.
    pub(crate) fn say(&mut self, mods: &'a [Modifier]) {
        (self.mods, self.said) = (mods, Said::of(self.op, mods));
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = Type> {
        self.mods.iter().filter_map(|m| if let Modifier::Type(t) = m { Some(*t) } else { None })
    }

    /// The last type; most instructions have only one.
    #[inline]
    pub(crate) fn ty(&self) -> Type {
        self.said.ty
    }

    #[inline]
    pub(crate) fn space(&self) -> Option<Space> {
        self.said.space
    }

    #[inline]
    pub(crate) fn lanes(&self) -> usize {
        usize::from(self.said.lanes)
    }

    /// An access to a vector of 32 bytes as two of 16, in an order that keeps the address until the second; `None`: it
    /// has no vector. The operands' numbers are those of the vector and of the address.
    pub(crate) fn halves(&self, vector: usize, address: usize) -> Option<[Flat<'a>; 2]> {
        let (Some(Opd::Vector(v)), Some(Opd::Address(base, offset))) = (self.opds.get(vector), self.opds.get(address))
        else {
            return None;
        };
        let (v, base): (&'a [Opd], &'a Opd) = (v, base);
        let (low, high) = v.split_at(v.len() / 2);
        let half = |registers, more| {
            let mut half = self.clone();
            half.said.lanes /= 2;
            let new = [(vector, Opd::Vector(registers)), (address, Opd::Address(base, offset + more))];
            for (at, operand) in new {
                half.opds.iter_mut().skip(at).take(1).for_each(|o| *o = operand);
            }
            half
        };
        let halves = [half(low, 0), half(high, 16)];
        let overwritten = low.iter().any(|o| matches!((o, base), (Opd::Reg(a), Opd::Reg(b)) if a == b));
        let [first, second] = halves;
        Some(if overwritten { [second, first] } else { [first, second] })
    }

    #[inline(always)] // most words are constants
    pub(crate) fn has(&self, word: &str) -> bool {
        self.said.words & bit(word) != 0 && has(self.mods, word)
    }

    /// Whether the modifiers contain no words.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.said.words == 0
    }

    /// Whether the modifiers contain no words except these.
    #[inline]
    pub(crate) fn only_says(&self, words: &[&str]) -> bool {
        self.is_plain() || self.words().all(|w| words.contains(&w))
    }

    /// Whether selection supports all words of the modifiers.
    #[inline]
    pub(crate) fn is_known(&self) -> bool {
        self.said.known
    }

    /// Whether there is one type.
    #[inline]
    pub(crate) fn has_one_type(&self) -> bool {
        self.said.types == 1
    }

    /// Words among the modifiers.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.mods.iter().filter_map(|m| if let Modifier::Word(w) = m { Some(&**w) } else { None })
    }

    /// Mnemonic and modifiers as in the text.
    pub(crate) fn name(&self) -> String {
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
    pub(crate) fn results(&self) -> usize {
        usize::from(self.said.results).min(self.opds.len())
    }
}

/// Whether the modifiers contain a word.
fn has(mods: &[Modifier], word: &str) -> bool {
    mods.iter().any(|m| matches!(m, Modifier::Word(w) if w.as_bytes() == word.as_bytes()))
}

/// Upper bound of the number of results.
fn count_results(op: Opcode, mods: &[Modifier]) -> u8 {
    use Opcode::*;
    let none = matches!(
        op,
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
    match op {
        _ if none => 0,
        Bar | Barrier => u8::from(has(mods, "red")),
        Wmma => u8::from(!has(mods, "store")),
        Multimem => u8::from(has(mods, "ld_reduce")),
        Clusterlaunchcontrol => u8::from(has(mods, "query_cancel")),
        Wgmma => u8::from(has(mods, "mma_async")),
        Mbarrier => {
            let none = ["init", "inval", "complete_tx"];
            let bytes_only = has(mods, "expect_tx") && !has(mods, "arrive") && !has(mods, "arrive_drop");
            u8::from(!bytes_only && !none.iter().any(|w| has(mods, w)))
        }
        _ => 1,
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Item<'a> {
    Label(u32),
    Inst(Flat<'a>),
}

impl<'a> Item<'a> {
    fn inst(&self) -> Option<&Flat<'a>> {
        if let Item::Inst(i) = self { Some(i) } else { None }
    }
}

/// A body.
#[derive(Debug, Default)]
pub(crate) struct Body<'a> {
    pub items: Vec<Item<'a>>,
    /// Types of the registers.
    pub regs: Vec<Type>,
    pub labels: u32,
    /// Bytes of the thread's frame.
    pub local_bytes: u32,
    /// Bytes at the frame's start for arguments and results of calls.
    pub outgoing_bytes: u32,
    /// The register counts of `setmaxnreg`, if it can be used.
    pub pool: Option<crate::sass::compile::allocate::pool::Pool>,
}

/// Names of a module and of a function's parameters.
#[derive(Clone, Default)]
pub(crate) struct Names {
    pub symbols: HashMap<Name, Symbol>,
    pub shared_bytes: u32,
    /// The module's variables in shared memory.
    pub shared: Vec<Variable>,
    /// Minimum over kernels, so that dynamic shared memory starts at the same address in all kernels.
    pub least_shared_bytes: u32,
    /// Names of dynamic shared memory.
    pub dynamic: Vec<Name>,
}

impl Names {
    /// The number of the function of that name.
    pub(crate) fn function(&self, name: &Name) -> Option<u32> {
        if let Some(Symbol::Function(f)) = self.symbols.get(name) { Some(*f) } else { None }
    }
}

/// Resolves the names of a body.
struct Flatten<'a, 'n> {
    store: &'a Store<'a>,
    functions: &'n Signatures,
    names: &'n mut Names,
    scopes: Vec<Scope>,
    body: Body<'a>,
    /// Items to insert before or after an item.
    around: Vec<(u32, bool, Item<'a>)>,
}

/// Limit on declared registers: each takes memory in the analyses, used or not.
const MOST_REGISTERS: u64 = 1 << 20;

/// Flattens a body. Variables declared in it get addresses.
pub(crate) fn flatten<'a>(source: Source<'a>, ctx: &Context<'a>, names: &mut Names) -> Result<Body<'a>, AsmError> {
    let store = ctx.store;
    if let Some(fault) = source.fault {
        return Err(fault);
    }
    let body = Body { items: source.items, labels: source.labels, ..Body::default() };
    let mut f = Flatten { store, functions: &ctx.functions, names, scopes: source.scopes, body, around: vec![] };
    f.body.regs.extend(source.passed.iter().map(|p| p.ty));
    for r in &source.registers {
        let count: u64 = r.names.iter().map(|(_, count)| u64::from(count.unwrap_or(1))).sum();
        let all = (count * u64::from(r.vector)).saturating_add(f.body.regs.len() as u64);
        if all > MOST_REGISTERS {
            let what = format!("{all} registers are declared in this body, of at most {MOST_REGISTERS}");
            return Err(AsmError::new(r.pos, what));
        }
        f.body.regs.resize(all as usize, r.ty);
    }
    for (scope, v) in &source.variables {
        f.declare(*scope, v)?;
    }
    let mut items = std::mem::take(&mut f.body.items);
    for (scope, at) in &source.wide {
        if let Some(i) = items.get(*at as usize).and_then(Item::inst).filter(|i| i.op == Opcode::Call) {
            f.lay_out_call(*scope, *at, i, &source.names)?;
        }
    }
    for (scope, at) in &source.wide {
        if let Some(Item::Inst(i)) = items.get_mut(*at as usize) {
            let call = i.op == Opcode::Call;
            let all = if call { f.call(*scope, i, &source.names)? } else { f.table_branch(*scope, i, &source.names)? };
            i.opds = all.into_iter().collect();
        }
    }
    let symbols: Vec<Option<Symbol>> = source.names.iter().map(|(scope, name)| f.symbol(*scope, name)).collect();
    for at in &source.named {
        let Some(Item::Inst(i)) = items.get_mut(*at as usize) else { continue };
        for o in i.opds.iter_mut() {
            if let Err(n) = o.map(store, &mut |o| resolve(o, &symbols)) {
                let name = source.names.get(n as usize).map_or("", |n| n.1);
                return Err(AsmError::new(i.pos, format!("{name} is not known here")));
            }
        }
    }
    f.body.items = items;
    f.pass_registers(&source.passed)?;
    f.surround();
    Ok(f.body)
}

/// Replaces a name by what it refers to; returns the number of a name that is unknown.
fn resolve(o: &mut Opd, symbols: &[Option<Symbol>]) -> Result<(), u32> {
    if let Opd::Symbol(s, _) = o
        && let Symbol::Named(n) = *s
    {
        *s = symbols.get(n as usize).copied().flatten().ok_or(n)?;
    }
    Ok(())
}

/// Adds up the shared memory that a body declares.
pub(crate) fn shared(body: &Source, names: &mut Names) -> Result<(), AsmError> {
    let all = body.variables.iter().map(|(_, v)| v);
    for v in all.filter(|v| matches!(v.space, Space::Shared | Space::SharedCta)) {
        place(v, &mut names.shared_bytes)?;
    }
    Ok(())
}

/// The type in which a register or a constant of so many bytes is passed.
fn passed_type(o: &Opd, bytes: u32) -> Option<Type> {
    Some(match (o, bytes) {
        (Opd::Imm(Imm::F32(_) | Imm::F64(_)), 4) => Type::F32,
        (Opd::Imm(Imm::F32(_) | Imm::F64(_)), 8) => Type::F64,
        (Opd::Reg(_) | Opd::Imm(Imm::Int(_)), 1) => Type::B8,
        (Opd::Reg(_) | Opd::Imm(Imm::Int(_)), 2) => Type::B16,
        (Opd::Reg(_) | Opd::Imm(Imm::Int(_)), 4) => Type::B32,
        (Opd::Reg(_) | Opd::Imm(Imm::Int(_)), 8) => Type::B64,
        _ => return None,
    })
}

/// Size of the window for a thread's local memory in generic addresses.
const LOCAL_BYTES: u32 = 1 << 24;

/// The next free offset for a variable.
pub(crate) fn place(v: &Variable, used: &mut u32) -> Result<u32, AsmError> {
    let natural = (v.ty.bits().div_ceil(8) * u32::from(v.vector)).max(1);
    let no = |what: &str| AsmError::new(v.pos, format!("{}: {what}", v.name));
    let align = v.align.unwrap_or(natural);
    if !align.is_power_of_two() {
        return Err(no("an alignment is a power of two"));
    }
    if v.dims.contains(&None) {
        return Err(no("its size is not known"));
    }
    let too_large = || no("it ends beyond 4 GiB");
    let at = used.checked_next_multiple_of(align).ok_or_else(too_large)?;
    let len = v.len_bytes().and_then(|n| u32::try_from(n).ok()).ok_or_else(too_large)?;
    *used = at.checked_add(len).ok_or_else(too_large)?;
    Ok(at)
}

impl<'a> Flatten<'a, '_> {
    fn declare(&mut self, scope: u32, v: &Variable) -> Result<(), AsmError> {
        let symbol = match v.space {
            Space::Shared | Space::SharedCta => Symbol::Shared(place(v, &mut self.names.shared_bytes)?),
            Space::Local => {
                let at = place(v, &mut self.body.local_bytes)?;
                if self.body.local_bytes > LOCAL_BYTES {
                    let what = format!("{}: it ends beyond the 16 MiB of a thread's local memory", v.name);
                    return Err(AsmError::new(v.pos, what));
                }
                Symbol::Local(at)
            }
            // Its offset is determined by the call.
            Space::Param => return Ok(()),
            // It already has an address.
            Space::Global | Space::Const => return Ok(()),
            _ => {
                let what = format!("{}: a variable in .{} here", v.name, v.space.word());
                return Err(AsmError::new(v.pos, what));
            }
        };
        if let Some(scope) = self.scopes.get_mut(scope as usize) {
            scope.symbols.insert(v.name.clone(), symbol);
        }
        Ok(())
    }

    /// An access to arguments or results of a call.
    #[inline(never)]
    fn access(&self, op: Opcode, ty: Type, at: Symbol, value: Opd<'a>, pos: Pos) -> Flat<'a> {
        let place = Opd::Address(self.store.one(Opd::Symbol(at, 0)), 0);
        let operands = if op == Opcode::Ld { [value, place] } else { [place, value] };
        Flat::of(pos, None, self.store.access(op, ty), operands.into_iter().collect())
    }

    /// Register results are stored before each return; register parameters are loaded at the start.
    fn pass_registers(&mut self, passed: &[Passed]) -> Result<(), AsmError> {
        let returns = |k: usize| matches!(self.body.items.get(k), Some(Item::Inst(i)) if i.op == Opcode::Ret);
        let end = self.body.items.len();
        let ends: Vec<usize> = (0..end).filter(|k| returns(*k)).chain([end]).collect();
        for (k, Passed { name, ty, result }) in (0..).zip(passed) {
            let Some(at) = self.names.symbols.get(name).copied() else { continue };
            if *ty == Type::Pred {
                let what = format!("{name}: predicates are not passed as parameters");
                return Err(AsmError::new(Pos::default(), what));
            }
            let access = |op, pos| Item::Inst(self.access(op, *ty, at, Opd::Reg(k), pos));
            match result {
                true => {
                    let stores = ends.iter().map(|end| {
                        let pos = self.body.items.get(*end).and_then(Item::inst).map(|i| i.pos);
                        (*end as u32, true, access(Opcode::St, pos.unwrap_or_default()))
                    });
                    let stores: Vec<_> = stores.collect();
                    self.around.extend(stores);
                }
                false => {
                    let load = access(Opcode::Ld, Pos::default());
                    self.around.push((0, true, load));
                }
            }
        }
        Ok(())
    }

    /// Inserts the additional items.
    fn surround(&mut self) {
        if self.around.is_empty() {
            return;
        }
        let (around, items) = (std::mem::take(&mut self.around), std::mem::take(&mut self.body.items));
        // Sort key of positions: before an item, after it, and so on.
        let place = |(at, before, _): &(u32, bool, Item)| 2 * *at as usize + usize::from(!*before);
        let mut places: Vec<Vec<Item>> = vec![];
        for new in around {
            let k = place(&new);
            places.resize_with(places.len().max(k + 1), Vec::new);
            places[k].push(new.2);
        }
        let mut places = places.into_iter();
        for item in items {
            self.body.items.extend(places.next().unwrap_or_default());
            self.body.items.push(item);
            self.body.items.extend(places.next().unwrap_or_default());
        }
        self.body.items.extend(places.flatten());
    }

    /// A scope and its enclosing scopes.
    fn around(&self, scope: u32) -> impl Iterator<Item = &Scope> {
        let first = self.scopes.get(scope as usize);
        std::iter::successors(first, |s| s.parent.and_then(|p| self.scopes.get(p as usize)))
    }

    fn prototype(&self, scope: u32, name: Option<&str>) -> Result<Option<call::Signature>, AsmError> {
        let found = name.and_then(|name| self.around(scope).find_map(|s| s.prototypes.get(name)));
        found.map(|(returns, params)| call::signature(returns, params)).transpose()
    }

    /// Assigns offsets to the parameters of a call, the body's item with that number.
    fn lay_out_call(&mut self, scope: u32, item: u32, i: &Flat<'a>, names: &Uses<'a>) -> Result<(), AsmError> {
        let parts = call::parts(i, names)?;
        let callee = match call::name(parts.target, names) {
            Some(name) => match self.symbol(scope, name) {
                Some(Symbol::Function(f)) => self.functions.list.get(f as usize).map(|f| f.signature.clone()),
                _ => None,
            },
            None => self.prototype(scope, parts.prototype)?,
        };
        let Some(signature) = callee else {
            return Err(AsmError::new(i.pos, "call: what is called is not known here".into()));
        };
        self.body.outgoing_bytes = self.body.outgoing_bytes.max(signature.bytes.next_multiple_of(16));
        for (list, places, result) in
            [(parts.returns, &signature.returns, true), (parts.params, &signature.params, false)]
        {
            if list.len() != places.len() {
                return Err(AsmError::new(i.pos, "call: not as many parameters as are declared".into()));
            }
            for (o, (at, len)) in list.iter().zip(places) {
                let Some(name) = call::name(o, names) else {
                    let Some(ty) = passed_type(o, *len).filter(|_| !result || matches!(o, Opd::Reg(_))) else {
                        let what = "call: a parameter that is neither a .param variable nor a scalar";
                        return Err(AsmError::new(i.pos, what.into()));
                    };
                    let op = if result { Opcode::Ld } else { Opcode::St };
                    let guard = i.guard.filter(|_| result);
                    let access = Flat { guard, ..self.access(op, ty, Symbol::Outgoing(*at), *o, i.pos) };
                    self.around.push((item, !result, Item::Inst(access)));
                    continue;
                };
                let Some(scope) = self.scopes.get_mut(scope as usize) else { continue };
                let old = scope.symbols.insert(name.into(), Symbol::Outgoing(*at));
                if old.is_some_and(|old| old != Symbol::Outgoing(*at)) {
                    let what = format!("call: {name} is passed by two calls, which is not assembled");
                    return Err(AsmError::new(i.pos, what));
                }
            }
        }
        Ok(())
    }

    /// `call` with the functions that it may reach.
    fn call(&self, scope: u32, i: &Flat<'a>, names: &Uses<'a>) -> Result<Vec<Opd<'a>>, AsmError> {
        let parts = call::parts(i, names)?;
        let target = *parts.target;
        let Opd::Reg(_) = target else { return Ok(vec![target]) };
        let Some(prototype) = self.prototype(scope, parts.prototype)? else { return Ok(vec![target]) };
        let fits = |f: &call::Declared| f.taken && f.signature.is_like(&prototype);
        let functions = self.functions.list.iter().enumerate().filter(|(_, f)| fits(f));
        let all = functions.map(|(k, _)| Opd::Symbol(Symbol::Function(k as u32), 0)).collect();
        Ok(vec![target, Opd::Vector(self.store.list(all))])
    }

    /// `brx.idx` with the labels of its table.
    fn table_branch(&self, scope: u32, i: &Flat<'a>, names: &Uses<'a>) -> Result<Vec<Opd<'a>>, AsmError> {
        let (index, table) = match &*i.opds {
            [index, table] => (index, call::name(table, names)),
            _ => (&Opd::Nothing, None),
        };
        let Some(table) = table else {
            return Err(AsmError::new(i.pos, "brx: an index and a list of labels are expected".into()));
        };
        let Some(labels) = self.around(scope).find_map(|s| s.tables.get(table)) else {
            return Err(AsmError::new(i.pos, format!("brx: {table} is no list of labels")));
        };
        let label = |n: &Name| match self.symbol(scope, n) {
            Some(l @ Symbol::Label(_)) => Ok(Opd::Symbol(l, 0)),
            _ => Err(AsmError::new(i.pos, format!("brx: {n} is no label here"))),
        };
        let labels = labels.iter().map(label).collect::<Result<Vec<_>, _>>()?;
        Ok(vec![*index, Opd::Vector(self.store.list(labels))])
    }

    fn symbol(&self, scope: u32, name: &str) -> Option<Symbol> {
        let inner = self.around(scope).find_map(|s| s.symbols.get(name)).copied();
        inner.or_else(|| self.names.symbols.get(name).copied())
    }
}
