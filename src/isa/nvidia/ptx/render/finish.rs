//! Turns the code into a module: renumbers registers, adds declarations and the kernel's header.

use super::super::module::{Function, Guard, Imm, Inst, Item, Linkage, Modifier, Module, Operand, Pos};
use super::super::module::{Registers, Statement, Tuning, Variable};
use super::super::name::Name;
use super::super::names::{Opcode, Space, Type};
use super::Render;
use super::code::{CLASSES, Code, Opd, Reg};
use super::tma::{MAP_ALIGN, MAP_BYTES};
use super::warpgroup::PATTERN;
use doorbell_codegen::Program;
use std::collections::HashMap;
use std::sync::Arc;

/// Shared memory that a module may declare statically.
const STATIC_SHARED: usize = 48 << 10;

const PREFIX: [(&str, Type); CLASSES] = [
    ("%p", Type::Pred),
    ("%h", Type::B16),
    ("%r", Type::B32),
    ("%rd", Type::B64),
    ("%f", Type::F32),
    ("%fd", Type::F64),
];

/// Dynamic shared memory of the program's kernel: all its shared memory if that is too much to declare statically.
#[must_use]
pub fn launch_shared_bytes(program: &Program) -> usize {
    if program.local_bytes > STATIC_SHARED { program.local_bytes } else { 0 }
}

struct Finish<'a> {
    kernel: &'a str,
    names: HashMap<Reg, Name>,
    count: [u32; CLASSES],
    labels: HashMap<u32, Name>,
    mnemonics: HashMap<&'static str, (Opcode, Arc<[Modifier]>)>,
    shared: Name,
}

pub(super) fn module(r: Render) -> Module {
    let p = r.program;
    let mut f = Finish {
        kernel: &p.name,
        names: HashMap::new(),
        count: [0; CLASSES],
        labels: HashMap::new(),
        mnemonics: HashMap::new(),
        shared: format!("{}_shared", p.name).into(),
    };
    let code: Vec<Statement> = r.code.iter().map(|c| f.statement(c)).collect();
    let mut body: Vec<Statement> = vec![];
    for ((prefix, ty), n) in PREFIX.into_iter().zip(f.count).filter(|(_, n)| *n > 0) {
        let names = vec![(prefix.into(), Some(n))];
        body.push(Statement::Registers(Registers { pos: Pos::default(), vector: 1, ty, names }));
    }
    let mut items = vec![];
    if r.shared.is_some() {
        let large = r.shared_bytes > STATIC_SHARED;
        let dims = vec![if large { None } else { Some(r.shared_bytes as u64) }];
        let mut v = variable(Space::Shared, Type::B8, f.shared.clone());
        v.dims = dims;
        v.align = Some(if r.products.any { PATTERN as u32 } else { 16 });
        if large {
            v.linkage = Linkage::Extern;
            items.push(Item::Variable(v));
        } else {
            body.push(Statement::Variable(v));
        }
    }
    body.extend(code);
    let words = p.params.len() + p.vars.len();
    let args = 0..words + p.tensors.len();
    let params = args.map(|k| {
        let ty = if k < p.params.len() { Type::U64 } else { Type::S64 };
        if k < words {
            return variable(Space::Param, ty, f.argument(k));
        }
        let (align, dims) = (Some(MAP_ALIGN), vec![Some(MAP_BYTES)]);
        Variable { align, dims, ..variable(Space::Param, Type::B8, f.argument(k)) }
    });
    items.push(Item::Function(Box::new(Function {
        pos: Pos::default(),
        linkage: Linkage::Visible,
        entry: true,
        name: p.name.as_str().into(),
        returns: vec![],
        params: params.collect(),
        tuning: vec![Tuning::Numbers("reqntid".into(), p.local.map(u64::from).to_vec())],
        body: Some(body),
    })));
    Module { version: r.chip.version, target: vec![r.chip.name.into()], address_bits: 64, items }
}

fn variable(space: Space, ty: Type, name: Name) -> Variable {
    Variable {
        pos: Pos::default(),
        linkage: Linkage::Module,
        space,
        align: None,
        vector: 1,
        ty,
        name,
        dims: vec![],
        ptr: None,
        attributes: vec![],
        init: None,
    }
}

impl Finish<'_> {
    fn argument(&self, k: usize) -> Name {
        format!("{}_arg{k}", self.kernel).into()
    }

    fn reg(&mut self, r: Reg) -> Name {
        let class = usize::from(r.class);
        let next = &mut self.count[class];
        let named = self.names.entry(r).or_insert_with(|| {
            *next += 1;
            format!("{}{}", PREFIX[class].0, *next - 1).into()
        });
        named.clone()
    }

    fn label(&mut self, l: u32) -> Name {
        let n = self.labels.len();
        self.labels.entry(l).or_insert_with(|| format!("$L{n}").into()).clone()
    }

    fn statement(&mut self, c: &Code) -> Statement {
        if let (true, [Opd::Label(l)]) = (c.is_label(), c.ins.as_slice()) {
            return Statement::Label(self.label(*l), Pos::default());
        }
        let (op, mods) = self.mnemonic(c.name);
        let guard = c.guard.map(|(negated, p)| Guard { negated, pred: self.reg(p) });
        let mut operands = Vec::with_capacity(4);
        let outs: Vec<Operand> = c.outs.iter().map(|r| Operand::Reg(self.reg(*r))).collect();
        if c.tuple {
            operands.push(Operand::Vector(outs));
        } else {
            operands.extend(outs);
        }
        operands.extend(c.ins.iter().map(|o| self.operand(o)));
        Statement::Inst(Inst { pos: Pos::default(), guard, op, mods, operands })
    }

    fn mnemonic(&mut self, name: &'static str) -> (Opcode, Arc<[Modifier]>) {
        let parse = || {
            let mut words = name.split('.');
            let op = words.next().and_then(Opcode::parse).unwrap_or(Opcode::Trap);
            (op, words.map(|w| Modifier::of(w, Name::from)).collect())
        };
        self.mnemonics.entry(name).or_insert_with(parse).clone()
    }

    fn operand(&mut self, o: &Opd) -> Operand {
        match o {
            Opd::Reg(r) => Operand::Reg(self.reg(*r)),
            Opd::Int(i) => Operand::int(*i),
            Opd::F32(b) => Operand::Imm(Imm::F32(*b)),
            Opd::F64(b) => Operand::Imm(Imm::F64(*b)),
            Opd::Vector(v) => Operand::Vector(v.iter().map(|o| self.operand(o)).collect()),
            Opd::Address(r, offset) => {
                Operand::Address { base: Box::new(Operand::Reg(self.reg(*r))), offset: *offset, rest: vec![] }
            }
            Opd::Param(k) => {
                Operand::Address { base: Box::new(Operand::Symbol(self.argument(*k), 0)), offset: 0, rest: vec![] }
            }
            Opd::ParamAddress(k) => Operand::Symbol(self.argument(*k), 0),
            Opd::Tensor(map, at) => {
                let at = Operand::Vector(at.iter().map(|o| self.operand(o)).collect());
                Operand::Address { base: Box::new(Operand::Reg(self.reg(*map))), offset: 0, rest: vec![at] }
            }
            Opd::Nothing => Operand::Nothing,
            Opd::Special(name) => Operand::Special((*name).into()),
            Opd::Shared => Operand::Symbol(self.shared.clone(), 0),
            Opd::Label(l) => Operand::Symbol(self.label(*l), 0),
        }
    }
}
