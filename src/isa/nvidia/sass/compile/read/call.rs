//! Functions and calls.
//!
//! A kernel's code is followed by the functions that it may call. Everything passes through the stack: at a call the
//! stack pointer's first word is the address in the code to return to, then come results and parameters in the order of
//! their declaration. A function lowers the stack pointer by its frame, so that it finds them after it, and saves the
//! convergence barriers that it uses. All other registers are the callee's. The address of a function is its number
//! times 16; a call through a register compares it with those of the functions that are like the prototype and whose
//! address is taken.
//!
//! Threads that return from a recursion at different times meet again where the first call of it returns to.

use super::flat::{self, Flat, Names, Opd, Symbol, place};
use super::source::{Source, Uses};
use crate::ptx::{Function, Init, Item, Module, Name, Opcode, Operand, Variable};
use crate::sass::compile::AsmError;
use std::collections::HashMap;

/// Bytes before results and parameters: the return address.
const RETURN_BYTES: u32 = 8;

/// The layout of a call's results and parameters: offset and length of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    pub returns: Vec<(u32, u32)>,
    pub params: Vec<(u32, u32)>,
    pub bytes: u32,
}

impl Signature {
    /// Whether a call with this signature may call a function with that one.
    pub(super) fn is_like(&self, other: &Signature) -> bool {
        self == other
    }
}

/// A function that a module declares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    pub name: String,
    pub signature: Signature,
    /// Its address is taken.
    pub taken: bool,
    pub has_body: bool,
    /// It may call itself, directly or through others.
    pub recursive: bool,
}

/// The functions of a module by their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signatures {
    pub list: Vec<Declared>,
}

/// A function's address in the program.
pub(crate) fn address(function: u32) -> u64 {
    (u64::from(function) + 1) * 16
}

/// The layout of results and parameters.
pub(super) fn signature(returns: &[Variable], params: &[Variable]) -> Result<Signature, AsmError> {
    let mut bytes = RETURN_BYTES;
    let mut places = |list: &[Variable]| {
        let each = list.iter().map(|v| place(v, &mut bytes).map(|at| (at, bytes - at)));
        each.collect::<Result<Vec<_>, _>>()
    };
    Ok(Signature { returns: places(returns)?, params: places(params)?, bytes })
}

/// The parts of a call: `call (results), target, (parameters), prototype`.
pub(crate) struct Parts<'i, 'a> {
    pub returns: &'i [Opd<'a>],
    pub target: &'i Opd<'a>,
    pub params: &'i [Opd<'a>],
    pub prototype: Option<&'a str>,
}

pub(crate) fn parts<'i, 'a>(i: &'i Flat<'a>, names: &Uses<'a>) -> Result<Parts<'i, 'a>, AsmError> {
    let (returns, rest) = leading(&i.opds);
    let [target, rest @ ..] = rest else {
        return Err(AsmError::new(i.pos, "call: a function is expected".into()));
    };
    let (params, rest) = leading(rest);
    let prototype = rest.first().and_then(|o| name(o, names));
    Ok(Parts { returns, target, params, prototype })
}

/// A list at the front, and the remaining operands.
fn leading<'i, 'a>(operands: &'i [Opd<'a>]) -> (&'i [Opd<'a>], &'i [Opd<'a>]) {
    match operands {
        [Opd::List(list), rest @ ..] => (list, rest),
        _ => (&[], operands),
    }
}

/// The name in an operand.
pub(crate) fn name<'a>(o: &Opd, names: &Uses<'a>) -> Option<&'a str> {
    match o {
        Opd::Symbol(Symbol::Named(n), 0) => names.get(*n as usize).map(|n| n.1),
        _ => None,
    }
}

/// The functions that a module declares, numbered in order of their first declaration.
pub(crate) fn declared(module: &Module<Source>) -> Result<(Signatures, HashMap<Name, u32>), AsmError> {
    let (mut list, mut numbers): (Vec<Declared>, HashMap<Name, u32>) = (vec![], HashMap::new());
    for f in module.functions().filter(|f| !f.entry) {
        let next = list.len() as u32;
        let n = *numbers.entry(f.name.clone()).or_insert(next);
        if n == next {
            let signature = signature(&f.returns, &f.params)?;
            list.push(Declared { name: f.name.to_string(), signature, ..Declared::default() });
        }
        if let Some(d) = list.get_mut(n as usize) {
            d.has_body |= f.body.is_some();
        }
    }
    let mut all = Signatures { list };
    if !all.list.is_empty() {
        addresses(module, &numbers, &mut all.list);
        recursions(module, &numbers, &mut all);
    }
    Ok((all, numbers))
}

/// Declares the results and parameters of the function with that number, as its caller lays them out.
pub(crate) fn name_incoming(f: &Function<Source>, number: Option<u32>, functions: &Signatures, names: &mut Names) {
    let Some(declared) = number.and_then(|n| functions.list.get(n as usize)) else { return };
    let Signature { returns, params, .. } = &declared.signature;
    let all = f.returns.iter().zip(returns).chain(f.params.iter().zip(params));
    names.symbols.extend(all.map(|(v, (at, _))| (v.name.clone(), Symbol::Incoming(*at))));
}

/// Marks the functions whose addresses are taken.
fn addresses(module: &Module<Source>, numbers: &HashMap<Name, u32>, list: &mut [Declared]) {
    let mut taken = |n: &str| {
        if let Some(d) = numbers.get(n).and_then(|k| list.get_mut(*k as usize)) {
            d.taken = true;
        }
    };
    for item in &module.items {
        match item {
            Item::Variable(v) => v.init.iter().for_each(|i| named(i, &mut taken)),
            Item::Function(f) => each_inst(f, &mut |i, names| {
                for o in i.opds.iter().filter(|_| i.op != Opcode::Call) {
                    if let Opd::Symbol(Symbol::Named(n), _) = o
                        && let Some((_, name)) = names.get(*n as usize)
                    {
                        taken(name);
                    }
                }
            }),
            _ => {}
        }
    }
}

fn named(init: &Init, f: &mut impl FnMut(&str)) {
    match init {
        Init::Value(Operand::Symbol(n, _)) | Init::Generic(n, _) => f(n),
        Init::List(l) => l.iter().for_each(|i| named(i, f)),
        Init::Masked(_, i) => named(i, f),
        Init::Value(_) => {}
    }
}

/// Calls `f` with each instruction of a function, and the names of its body.
fn each_inst<'a>(function: &Function<Source<'a>>, f: &mut impl FnMut(&Flat, &Uses<'a>)) {
    let Some(body) = &function.body else { return };
    for item in &body.items {
        if let flat::Item::Inst(i) = item {
            f(i, &body.names);
        }
    }
}

/// Marks the functions that may call themselves. A call through a register may call any function whose address is
/// taken.
fn recursions(module: &Module<Source>, numbers: &HashMap<Name, u32>, all: &mut Signatures) {
    let n = all.list.len();
    let mut calls: Vec<Vec<usize>> = vec![vec![]; n];
    let bodies = module.functions().filter(|f| !f.entry && f.body.is_some());
    for f in bodies {
        let Some(from) = numbers.get(&f.name) else { continue };
        let to = direct(f, numbers, all);
        if let Some(list) = calls.get_mut(*from as usize) {
            list.extend(to);
        }
    }
    for k in 0..n {
        let (mut seen, mut work) = (vec![false; n], calls[k].clone()); // PANIC: one list a function
        while let Some(f) = work.pop() {
            if !std::mem::replace(&mut seen[f], true) {
                work.extend(&calls[f]); // PANIC: as above
            }
        }
        all.list[k].recursive = seen[k]; // PANIC: as above
    }
}

fn direct(f: &Function<Source>, numbers: &HashMap<Name, u32>, all: &Signatures) -> Vec<usize> {
    let mut out = vec![];
    each_inst(f, &mut |i, names| {
        if i.op != Opcode::Call {
            return;
        }
        match parts(i, names).map(|p| name(p.target, names)) {
            Ok(Some(n)) => out.extend(numbers.get(n).map(|k| *k as usize)),
            _ => out.extend((0..all.list.len()).filter(|k| all.list[*k].taken)), // PANIC: counted
        }
    });
    out
}

/// Jump targets from this number on are functions.
pub(crate) const FUNCTIONS: usize = usize::MAX / 2;
