//! A reference interpreter of PTX: one block after the other, its threads in lockstep, one instruction for all threads
//! before the next. It knows the instructions that rendered kernels consist of, and refuses the rest by name. Written
//! from the PTX ISA's text alone, not from the renderer: in addition to values it checks what a GPU would not report:
//! threads that diverge at a branch, accesses that are not aligned or not in any buffer, registers that are read before
//! they are written.

mod check;
mod copies;
mod memory;
mod ops;
mod tma;
mod warpgroups;

pub use crate::amd_machine::{List, Rng};
pub use check::{check, counted, rendered};
pub use copies::Counts;
pub use memory::Memory;

use doorbell::isa::ptx::{Function, Guard, Imm, Inst, Module, Opcode, Operand, Space, Statement, Type};
use std::collections::HashMap;

/// A value of up to 64 bits, in the low end; predicates are 0 and 1.
pub type Bits = u64;

/// A register's number, or what else an operand is.
#[derive(Clone, Debug)]
pub enum Opd {
    Reg(usize),
    Value(Bits),
    Special(usize, bool),
    Vector(Vec<Opd>),
    /// Register or absolute base, offset.
    At(Option<usize>, i64),
    Label(usize),
    Not(usize),
    /// A tensor map's register and coordinates.
    Tensor(usize, Vec<Opd>),
}

/// An instruction with its operands looked up.
pub struct Step<'a> {
    pub inst: &'a Inst,
    pub guard: Option<(bool, usize)>,
    pub operands: Vec<Opd>,
    pub types: Vec<Type>,
}

/// A kernel ready to run.
pub struct Kernel<'a> {
    steps: Vec<Step<'a>>,
    registers: usize,
    shared_bytes: usize,
}

/// Shared memory and parameters lie at these addresses.
pub const SHARED: u64 = 0x400;
pub const PARAM: u64 = 0x10;

struct Names {
    registers: HashMap<String, usize>,
    labels: HashMap<String, usize>,
    symbols: HashMap<String, u64>,
}

impl<'a> Kernel<'a> {
    /// The first kernel of the module; `dynamic` bytes of shared memory are the launch's.
    pub fn new(module: &'a Module, dynamic: usize) -> Result<Kernel<'a>, String> {
        let f: &Function = module.functions().find(|f| f.entry).ok_or("no kernel")?;
        let mut n = Names { registers: HashMap::new(), labels: HashMap::new(), symbols: HashMap::new() };
        let mut shared = 0u64;
        for item in &module.items {
            if let doorbell::isa::ptx::Item::Variable(v) = item {
                n.symbols.insert(v.name.to_string(), SHARED);
                shared = dynamic as u64;
            }
        }
        for (k, p) in f.params.iter().enumerate() {
            n.symbols.insert(p.name.to_string(), PARAM + 8 * k as u64);
        }
        let body = f.body.as_ref().ok_or("no body")?;
        let mut insts: Vec<&Inst> = vec![];
        for s in body {
            match s {
                Statement::Registers(r) => {
                    for (name, count) in &r.names {
                        for k in 0..count.unwrap_or(1) {
                            let next = n.registers.len();
                            let name = if count.is_some() { format!("{name}{k}") } else { name.to_string() };
                            n.registers.insert(name, next);
                        }
                    }
                }
                Statement::Variable(v) if v.space == Space::Shared => {
                    n.symbols.insert(v.name.to_string(), SHARED + shared);
                    shared += v.len_bytes().ok_or("a length")?;
                }
                Statement::Label(l, _) => {
                    n.labels.insert(l.to_string(), insts.len());
                }
                Statement::Inst(i) => insts.push(i),
                s => return Err(format!("a kernel with {s:?}")),
            }
        }
        let steps = insts.into_iter().map(|i| n.step(i)).collect::<Result<_, _>>()?;
        Ok(Kernel { steps, registers: n.registers.len(), shared_bytes: shared as usize })
    }

    /// Runs all blocks; `args` are the parameters' 64-bit words.
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], args: &[u64], mem: &mut Memory) -> Result<(), String> {
        for z in 0..grid[2] {
            for y in 0..grid[1] {
                for x in 0..grid[0] {
                    mem.shared = vec![None; self.shared_bytes];
                    let mut b = Block::new(self, [x, y, z], block, args);
                    b.run(mem).map_err(|e| format!("block {x} {y} {z}: {e}"))?;
                }
            }
        }
        Ok(())
    }
}

impl Names {
    fn step<'a>(&self, inst: &'a Inst) -> Result<Step<'a>, String> {
        let reg = |r: &str| self.registers.get(r).copied().ok_or(format!("register {r}"));
        let guard = match &inst.guard {
            Some(Guard { negated, pred }) => Some((*negated, reg(pred)?)),
            None => None,
        };
        let types: Vec<Type> = inst.types().collect();
        let of = types.last().copied().unwrap_or(Type::B32);
        let operands = inst.operands.iter().map(|o| self.operand(o, of)).collect::<Result<_, _>>()?;
        Ok(Step { inst, guard, operands, types })
    }

    /// `t`: the type that a floating constant is of.
    fn operand(&self, o: &Operand, t: Type) -> Result<Opd, String> {
        let reg = |r: &str| self.registers.get(r).copied().ok_or(format!("register {r}"));
        Ok(match o {
            Operand::Reg(r) => Opd::Reg(reg(r)?),
            Operand::Not(r) => Opd::Not(reg(r)?),
            Operand::Imm(Imm::Int(i)) => Opd::Value(i.cast_unsigned()),
            Operand::Imm(Imm::F32(b)) => Opd::Value(u64::from(*b)),
            Operand::Imm(Imm::F64(b)) if t == Type::F32 => Opd::Value(u64::from((f64::from_bits(*b) as f32).to_bits())),
            Operand::Imm(Imm::F64(b)) => Opd::Value(*b),
            Operand::Special(s) => {
                let (stem, lane) = s.split_once('.').ok_or(format!("special {s}"))?;
                let axis = "xyz".find(lane).ok_or(format!("special {s}"))?;
                match stem {
                    "%tid" => Opd::Special(axis, true),
                    "%ctaid" => Opd::Special(axis, false),
                    _ => return Err(format!("special {s}")),
                }
            }
            Operand::Vector(v) => Opd::Vector(v.iter().map(|o| self.operand(o, t)).collect::<Result<_, _>>()?),
            Operand::Address { base, offset, rest } if rest.is_empty() => match self.operand(base, t)? {
                Opd::Reg(r) => Opd::At(Some(r), *offset),
                Opd::Value(v) => Opd::At(None, v.cast_signed() + offset),
                o => return Err(format!("address {o:?}")),
            },
            Operand::Address { base, rest, .. } => match (self.operand(base, t)?, rest.as_slice()) {
                (Opd::Reg(r), [Operand::Vector(v)]) => {
                    Opd::Tensor(r, v.iter().map(|o| self.operand(o, t)).collect::<Result<_, _>>()?)
                }
                (base, _) => return Err(format!("address {base:?}")),
            },
            Operand::Nothing => Opd::Value(0),
            Operand::Symbol(s, offset) => match (self.labels.get(&**s), self.symbols.get(&**s)) {
                (Some(l), _) => Opd::Label(*l),
                (_, Some(at)) => Opd::Value(at.wrapping_add_signed(*offset)),
                // A label further down.
                _ => return Err(format!("symbol {s}")),
            },
            o => return Err(format!("operand {o}")),
        })
    }
}

struct Block<'a> {
    kernel: &'a Kernel<'a>,
    group: [u32; 3],
    size: [u32; 3],
    args: &'a [u64],
    threads: usize,
    /// By thread, then register; `None`: not written yet.
    regs: Vec<Option<Bits>>,
    copies: copies::Copies,
    products: warpgroups::Products,
    barriers: tma::Barriers,
    /// Threads that have arrived at this address, where the others join them.
    ahead: Option<(usize, Vec<bool>)>,
}

impl<'a> Block<'a> {
    fn new(kernel: &'a Kernel<'a>, group: [u32; 3], size: [u32; 3], args: &'a [u64]) -> Block<'a> {
        let threads = size.iter().product::<u32>() as usize;
        Block {
            kernel,
            group,
            size,
            args,
            threads,
            regs: vec![None; threads * kernel.registers],
            copies: Default::default(),
            products: Default::default(),
            barriers: Default::default(),
            ahead: None,
        }
    }

    fn run(&mut self, mem: &mut Memory) -> Result<(), String> {
        let mut pc = 0;
        let mut budget = 40_000_000usize / self.threads.max(1);
        while let Some(step) = self.kernel.steps.get(pc) {
            budget = budget.checked_sub(1).ok_or("too many instructions")?;
            let at = |e: String| format!("{}: {e}", step.inst);
            self.ahead.take_if(|(meeting, _)| *meeting == pc);
            let alone = matches!(step.inst.op, Opcode::Mbarrier | Opcode::Fence) || step.inst.has("tensor");
            if self.ahead.is_some() && !alone {
                return Err(at("some threads are not here".into()));
            }
            pc += 1;
            let here = |w: &[bool]| u64::from(w.iter().any(|ahead| !ahead));
            let warps = match &self.ahead {
                None => self.threads.div_ceil(32) as u64,
                Some((_, ahead)) => ahead.chunks(32).map(here).sum(),
            };
            mem.counts.instructions += warps;
            match step.inst.op {
                Opcode::Ret | Opcode::Exit if !self.copies.done() => return Err(at("copies are on their way".into())),
                Opcode::Ret | Opcode::Exit if !self.products.done() => {
                    return Err(at("products are on their way".into()));
                }
                Opcode::Ret | Opcode::Exit if !self.barriers.done() => {
                    return Err(at("TMA tiles are in flight".into()));
                }
                Opcode::Ret | Opcode::Exit => return Ok(()),
                Opcode::Cp if step.inst.has("tensor") => tma::copy(self, step, mem).map_err(at)?,
                Opcode::Mbarrier => tma::mbarrier(self, step, mem).map_err(at)?,
                Opcode::Cp => copies::cp(self, step, mem).map_err(at)?,
                Opcode::Ldmatrix => copies::ldmatrix(self, step, mem).map_err(at)?,
                Opcode::Wgmma => warpgroups::wgmma(self, step, mem).map_err(at)?,
                Opcode::Fence if step.inst.has("proxy") && step.inst.has("async") => mem.fence(),
                Opcode::Bar => mem.barrier(),
                Opcode::Bra => pc = self.branch(step, pc).map_err(at)?,
                Opcode::Mma => {
                    mem.counts.mma += warps;
                    ops::mma(self, step).map_err(at)?;
                }
                Opcode::Shfl => ops::shuffle(self, step).map_err(at)?,
                Opcode::Activemask => ops::active(self, step).map_err(at)?,
                _ => {
                    for t in 0..self.threads {
                        if self.enabled(step, t).map_err(at)? {
                            ops::step(self, step, t, mem).map_err(|e| at(format!("thread {t}: {e}")))?;
                        }
                    }
                }
            }
            let touched = std::mem::take(&mut mem.touched);
            mem.counts.shared(&touched);
        }
        Err("runs beyond its end".into())
    }

    /// Where to go on. Of a branch that only some threads take and that does not promise otherwise, these wait there
    /// for the others.
    fn branch(&mut self, step: &Step, next: usize) -> Result<usize, String> {
        let [Opd::Label(label)] = step.operands.as_slice() else { return Err("a label".into()) };
        let taken = (0..self.threads).map(|t| self.enabled(step, t)).collect::<Result<Vec<bool>, String>>()?;
        if let Some(t) = taken.iter().position(|take| *take != taken[0]) {
            if step.inst.has("uni") || *label < next {
                return Err(format!("thread {t} parts from thread 0"));
            }
            self.ahead = Some((*label, taken));
            return Ok(next);
        }
        Ok(if taken[0] { *label } else { next })
    }

    fn enabled(&self, step: &Step, t: usize) -> Result<bool, String> {
        if self.ahead.as_ref().is_some_and(|(_, ahead)| ahead[t]) {
            return Ok(false);
        }
        match step.guard {
            None => Ok(true),
            Some((negated, p)) => Ok((self.reg(t, p)? != 0) != negated),
        }
    }

    pub fn reg(&self, t: usize, r: usize) -> Result<Bits, String> {
        self.regs[t * self.kernel.registers + r].ok_or(format!("register number {r} is read before it is written"))
    }

    /// The register becomes unwritten.
    pub fn lose(&mut self, t: usize, r: usize) {
        self.regs[t * self.kernel.registers + r] = None;
    }

    pub fn set(&mut self, t: usize, o: &Opd, bits: Bits) -> Result<(), String> {
        let Opd::Reg(r) = o else { return Err(format!("a result goes to {o:?}")) };
        self.regs[t * self.kernel.registers + r] = Some(bits);
        Ok(())
    }

    pub fn get(&self, t: usize, o: &Opd) -> Result<Bits, String> {
        match o {
            Opd::Reg(r) => self.reg(t, *r),
            Opd::Not(r) => Ok(self.reg(t, *r)? ^ 1),
            Opd::Value(v) => Ok(*v),
            Opd::Special(axis, true) => {
                let before: u32 = self.size[..*axis].iter().product();
                Ok(u64::from(t as u32 / before % self.size[*axis]))
            }
            Opd::Special(axis, false) => Ok(u64::from(self.group[*axis])),
            o => Err(format!("{o:?} has no value")),
        }
    }

    pub fn address(&self, t: usize, o: &Opd) -> Result<u64, String> {
        match o {
            Opd::At(Some(r), offset) => Ok(self.reg(t, *r)?.wrapping_add_signed(*offset)),
            Opd::At(None, at) => Ok(at.cast_unsigned()),
            o => Err(format!("{o:?} is no address")),
        }
    }
}
