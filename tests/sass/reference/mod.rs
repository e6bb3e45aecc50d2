//! PTX executed as its manual reads, one thread after the other: what the code of both assemblers has to leave.
//!
//! It knows arithmetic, comparisons, conversions, memory and jumps; what it does not know it names ([`Left::unknown`]).
//! The parser is the library's; nothing else is.

mod exact;
mod float;
mod int;
mod ops;

pub use float::format;

use doorbell::isa::ptx::{Function, Imm, Inst, Module, Opcode, Operand, Space, Statement, Type, Variable};
use std::collections::HashMap;

/// Start of a window of memory that is not global among generic addresses.
const SHARED: u64 = 1 << 60;
const LOCAL: u64 = 2 << 60;
const CONSTANT: u64 = 3 << 60;
const GLOBAL: u64 = 4 << 60;
const SPACE: u64 = 15 << 60;

/// How far from the exact value a stored one may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A float of this type that is no number may be any such.
    Exact(Type),
    /// A float of this type may be so far off.
    Within(Type, f64),
}

/// What a launch has to leave.
pub struct Left {
    pub buffers: Vec<(u64, Vec<u8>)>,
    /// Stores of floats, by address.
    pub floats: HashMap<u64, Tolerance>,
}

/// A value: its bits, how far off an instruction that approximates may be, and the type of float or floats that it was
/// computed as.
#[derive(Clone, Copy, Debug, Default)]
struct Value {
    bits: u128,
    off: f64,
    float: Option<Type>,
}

impl Value {
    fn plain(bits: u128) -> Value {
        Value { bits, ..Value::default() }
    }

    /// Whether it was computed as floats of which one is no number.
    fn holds_nan(&self) -> bool {
        let parts = |f: exact::Format, n: u32| {
            (0..n).any(|k| f.read(self.bits >> (k * f.bits()) & ones(f.bits())) == exact::Number::Nan)
        };
        match self.float {
            Some(Type::F16x2) => parts(exact::F16, 2),
            Some(Type::Bf16x2) => parts(exact::BF16, 2),
            Some(t) => format(t).is_some_and(|f| parts(f, 1)),
            None => false,
        }
    }
}

struct Thread<'a> {
    registers: HashMap<&'a str, Value>,
    carry: bool,
    local: Vec<u8>,
    at: usize,
    tid: u32,
}

/// A launch of one block.
pub struct Machine<'a> {
    code: Vec<&'a Inst>,
    labels: HashMap<&'a str, usize>,
    /// Addresses of variables.
    symbols: HashMap<&'a str, u64>,
    params: HashMap<&'a str, u128>,
    constants: Vec<u8>,
    globals: Vec<u8>,
    shared: Vec<u8>,
    threads: u32,
    left: Left,
}

/// Runs a kernel by one block of so many threads.
pub fn run(
    module: &Module,
    kernel: &Function,
    params: &[u128],
    threads: u32,
    buffers: &[(u64, Vec<u8>)],
) -> Result<Left, String> {
    let mut m = Machine {
        code: vec![],
        labels: HashMap::new(),
        symbols: HashMap::new(),
        params: kernel.params.iter().map(|p| &*p.name).zip(params.iter().copied()).collect(),
        constants: vec![],
        globals: vec![],
        shared: vec![],
        threads,
        left: Left { buffers: buffers.to_vec(), floats: HashMap::new() },
    };
    let mut local = 0;
    for item in &module.items {
        if let doorbell::isa::ptx::Item::Variable(v) = item {
            m.declare(v, &mut local)?;
        }
    }
    m.statements(kernel.body.as_deref().unwrap_or_default(), &mut local)?;
    let thread = |tid| Thread { registers: HashMap::new(), carry: false, local: vec![0; local], at: 0, tid };
    let mut open: Vec<Thread> = (0..threads).map(thread).collect();
    // All come to a barrier before one goes on.
    while !open.is_empty() {
        let mut waiting = vec![];
        for mut t in open {
            if m.thread(&mut t)? {
                waiting.push(t);
            }
        }
        open = waiting;
    }
    Ok(m.left)
}

impl<'a> Machine<'a> {
    fn declare(&mut self, v: &'a Variable, local: &mut usize) -> Result<(), String> {
        if v.init.is_some() {
            return Err(format!("{} has values", v.name));
        }
        let align = v.align.unwrap_or(v.ty.bits().div_ceil(8)) as usize;
        let bytes = v.len_bytes().unwrap_or(8192) as usize;
        let place = |used: usize| {
            let at = used.next_multiple_of(align);
            (at as u64, at + bytes)
        };
        let (at, window) = match v.space {
            Space::Shared | Space::SharedCta => {
                let (at, end) = place(self.shared.len());
                self.shared.resize(end, 0);
                (at, SHARED)
            }
            Space::Local => {
                let (at, end) = place(*local);
                *local = end;
                (at, LOCAL)
            }
            Space::Const => {
                let (at, end) = place(self.constants.len());
                self.constants.resize(end, 0);
                (at, CONSTANT)
            }
            Space::Global => {
                let (at, end) = place(self.globals.len());
                self.globals.resize(end, 0);
                (at, GLOBAL)
            }
            other => return Err(format!("a variable of .{}", other.word())),
        };
        self.symbols.insert(&v.name, window | at);
        Ok(())
    }

    fn statements(&mut self, body: &'a [Statement], local: &mut usize) -> Result<(), String> {
        for s in body {
            match s {
                Statement::Inst(i) => self.code.push(i),
                Statement::Label(name, _) => {
                    self.labels.insert(name, self.code.len());
                }
                Statement::Block(inner) => self.statements(inner, local)?,
                Statement::Variable(v) => self.declare(v, local)?,
                Statement::Registers(_) | Statement::Loc(_) | Statement::Pragma(_) => {}
                Statement::Targets { .. } | Statement::Prototype { .. } => return Err("a list of targets".into()),
            }
        }
        Ok(())
    }

    /// Runs a thread to its end, or to a barrier, where it gives true.
    fn thread(&mut self, t: &mut Thread<'a>) -> Result<bool, String> {
        for _ in 0..100_000 {
            let Some(i) = self.code.get(t.at).copied() else { return Ok(false) };
            t.at += 1;
            if let Some(g) = &i.guard
                && (t.get(&g.pred).bits == 1) == g.negated
            {
                continue;
            }
            match i.op {
                Opcode::Ret | Opcode::Exit => return Ok(false),
                Opcode::Bar | Opcode::Barrier if i.has("sync") && !i.has("warp") => return Ok(true),
                Opcode::Bra => {
                    let Some(Operand::Symbol(label, _)) = i.operands.first() else { return Err("a branch".into()) };
                    t.at = *self.labels.get(&**label).ok_or("no such label")?;
                }
                Opcode::Ld | Opcode::Ldu => self.load(t, i)?,
                Opcode::St => self.store(t, i)?,
                Opcode::Atom | Opcode::Red => self.atomic(t, i)?,
                // Caches change nothing.
                Opcode::Prefetch
                | Opcode::Prefetchu
                | Opcode::Applypriority
                | Opcode::Discard
                | Opcode::Createpolicy => {}
                _ => self.compute(t, i)?,
            }
        }
        Err("it does not end".into())
    }

    fn compute(&self, t: &mut Thread<'a>, i: &'a Inst) -> Result<(), String> {
        let (results, sources) = i.operands.split_first().ok_or("no operands")?;
        if i.op == Opcode::Mov {
            return self.move_words(t, i, results, sources);
        }
        let types: Vec<Type> = i.types().collect();
        let given: Vec<Value> = sources.iter().map(|s| self.value(t, s)).collect::<Result<_, _>>()?;
        let mut carry = t.carry;
        let all = ops::compute(i, &types, &given, &mut carry)?;
        t.carry = carry;
        let mut to: Vec<&'a Operand> = match results {
            Operand::Pair(a, b) => vec![a, b],
            one => vec![one],
        };
        to.truncate(all.len());
        for (r, v) in to.into_iter().zip(all) {
            t.set(r, v)?;
        }
        Ok(())
    }

    /// A copy; vectors are parts of a number.
    fn move_words(&self, t: &mut Thread<'a>, i: &'a Inst, to: &'a Operand, from: &'a [Operand]) -> Result<(), String> {
        let bits = i.types().next().ok_or("no type")?.bits();
        let parts = |n: usize| bits / n as u32;
        let value = match from {
            [Operand::Vector(v)] => {
                let mut all = Value::default();
                for (k, o) in v.iter().enumerate() {
                    let one = self.value(t, o)?;
                    let n = parts(v.len());
                    all.bits |= (one.bits & ones(n)) << (k as u32 * n);
                    all.off = all.off.max(one.off);
                    all.float = match one.float {
                        Some(Type::F16) if v.len() == 2 => Some(Type::F16x2),
                        Some(Type::Bf16) if v.len() == 2 => Some(Type::Bf16x2),
                        _ => all.float,
                    };
                }
                all
            }
            [one] => self.value(t, one)?,
            _ => return Err("a copy of many".into()),
        };
        match to {
            Operand::Vector(v) => {
                let n = parts(v.len());
                for (k, o) in v.iter().enumerate() {
                    let float = match value.float {
                        Some(Type::F16x2) if n == 16 => Some(Type::F16),
                        Some(Type::Bf16x2) if n == 16 => Some(Type::Bf16),
                        _ => None,
                    };
                    t.set(o, Value { bits: value.bits >> (k as u32 * n) & ones(n), off: value.off, float })?;
                }
                Ok(())
            }
            one => t.set(one, Value { bits: value.bits & ones(bits), ..value }),
        }
    }

    fn value(&self, t: &Thread, o: &Operand) -> Result<Value, String> {
        let plain = |bits: u128| Ok(Value::plain(bits));
        match o {
            Operand::Reg(n) => Ok(t.get(n)),
            Operand::Not(n) => plain(1 - t.get(n).bits),
            Operand::Imm(Imm::Int(i)) => plain(i128::from(*i).cast_unsigned()),
            Operand::Imm(Imm::F32(b)) => plain((*b).into()),
            Operand::Imm(Imm::F64(b)) => plain((*b).into()),
            Operand::Symbol(n, offset) => {
                let at = *self.symbols.get(&**n).ok_or_else(|| format!("no variable {n}"))?;
                // Only global ones have the same address everywhere.
                let at = if at & SPACE == GLOBAL { at } else { at & !SPACE };
                plain(u128::from(at).wrapping_add_signed((*offset).into()))
            }
            Operand::Special(n) => plain(match &**n {
                "%tid.x" => t.tid.into(),
                "%ntid.x" => self.threads.into(),
                "%ctaid.x" | "%ctaid.y" | "%ctaid.z" | "%tid.y" | "%tid.z" => 0,
                "%nctaid.x" | "%ntid.y" | "%ntid.z" => 1,
                "%laneid" => (t.tid % 32).into(),
                other => return Err(other.to_owned()),
            }),
            Operand::Nothing => plain(0),
            other => Err(format!("an operand {other:?}")),
        }
    }

    /// Where an access goes: a generic address.
    fn address(&self, t: &Thread, i: &Inst, o: &Operand) -> Result<u64, String> {
        let Operand::Address { base, offset, rest } = o else { return Err("no address".into()) };
        if !rest.is_empty() {
            return Err("an address of parts".into());
        }
        let window = match i.space() {
            Some(Space::Shared | Space::SharedCta | Space::SharedCluster) => SHARED,
            Some(Space::Local) => LOCAL,
            Some(Space::Const) => CONSTANT,
            _ => 0,
        };
        let base = match &**base {
            Operand::Symbol(n, more) => {
                self.symbols.get(&**n).ok_or_else(|| format!("no variable {n}"))?.wrapping_add_signed(*more)
            }
            other => self.value(t, other)?.bits as u64,
        };
        Ok(base.wrapping_add_signed(*offset) | window)
    }

    fn bytes<'m>(&'m mut self, t: &'m mut Thread<'a>, at: u64, len: usize) -> Result<&'m mut [u8], String> {
        let none = || format!("no memory at {at:#x}");
        let from = (at & !SPACE) as usize;
        let window = match at & SPACE {
            SHARED => &mut self.shared,
            LOCAL => &mut t.local,
            CONSTANT => &mut self.constants,
            GLOBAL => &mut self.globals,
            _ => {
                let found = self.left.buffers.iter_mut().find(|(b, v)| (*b..b + v.len() as u64).contains(&at));
                let (base, bytes) = found.ok_or_else(none)?;
                let from = (at - *base) as usize;
                return bytes.get_mut(from..from + len).ok_or_else(none);
            }
        };
        window.get_mut(from..from + len).ok_or_else(none)
    }

    fn load(&mut self, t: &mut Thread<'a>, i: &'a Inst) -> Result<(), String> {
        let (ty, [to, from, ..]) = (i.types().last().ok_or("no type")?, &i.operands[..]) else {
            return Err("a load".into());
        };
        if matches!(i.space(), Some(Space::Param | Space::ParamEntry)) {
            let Operand::Address { base, offset: 0, .. } = from else { return Err("a part of a parameter".into()) };
            let Operand::Symbol(name, 0) = &**base else { return Err("no parameter".into()) };
            let bits = *self.params.get(&**name).ok_or_else(|| format!("no parameter {name}"))?;
            return t.set(to, Value::plain(bits));
        }
        let at = self.address(t, i, from)?;
        let len = ty.bits().div_ceil(8) as usize;
        let one = std::slice::from_ref(to);
        let all = if let Operand::Vector(v) = to { &v[..] } else { one };
        for (k, o) in all.iter().enumerate() {
            let at = at + (k * len) as u64;
            let bits = self.bytes(t, at, len)?.iter().rev().fold(0u128, |n, b| n << 8 | u128::from(*b));
            // Signed values fill wider registers.
            let bits = if ty.is_signed() { int::signed(bits, ty.bits()).cast_unsigned() & ones(64) } else { bits };
            t.set(o, Value::plain(bits))?;
        }
        Ok(())
    }

    fn store(&mut self, t: &mut Thread<'a>, i: &'a Inst) -> Result<(), String> {
        let (ty, [to, from, ..]) = (i.types().last().ok_or("no type")?, &i.operands[..]) else {
            return Err("a store".into());
        };
        let at = self.address(t, i, to)?;
        let len = ty.bits().div_ceil(8) as usize;
        let one = std::slice::from_ref(from);
        let all = if let Operand::Vector(v) = from { &v[..] } else { one };
        for (k, o) in all.iter().enumerate() {
            let (at, v) = (at + (k * len) as u64, self.value(t, o)?);
            self.bytes(t, at, len)?.copy_from_slice(&v.bits.to_le_bytes()[..len]);
            if at & SPACE == 0 {
                let kind = v.float.filter(|f| f.bits() == ty.bits()).unwrap_or(ty);
                let parts = match kind {
                    Type::F16x2 => [Some(Type::F16), Some(Type::F16)],
                    Type::Bf16x2 => [Some(Type::Bf16), Some(Type::Bf16)],
                    k => [format(k).map(|_| k), None],
                };
                if v.off > 0.0 && parts[0].is_none() {
                    return Err("an approximated number stored as bits".into());
                }
                self.left.floats.retain(|k, _| !(at..at + len as u64).contains(k));
                for (k, kind) in (0u64..).zip(parts.into_iter().flatten()) {
                    let t = if v.off > 0.0 { Tolerance::Within(kind, v.off) } else { Tolerance::Exact(kind) };
                    self.left.floats.insert(at + 2 * k, t);
                }
            }
        }
        Ok(())
    }
}

impl<'a> Machine<'a> {
    /// Reads, computes and writes; threads run one at a time, so it is atomic.
    fn atomic(&mut self, t: &mut Thread<'a>, i: &'a Inst) -> Result<(), String> {
        let ty = i.types().last().ok_or("no type")?;
        let (to, rest) = if i.op == Opcode::Atom {
            i.operands.split_first().ok_or("no operands")?
        } else {
            (&Operand::Nothing, &i.operands[..])
        };
        let [place, given @ ..] = rest else { return Err("no address".into()) };
        let at = self.address(t, i, place)?;
        let len = ty.bits() as usize / 8;
        let lane = |o: &'a Operand, k: usize| if let Operand::Vector(v) = o { &v[k] } else { o };
        for k in 0..usize::from(i.vector()) {
            let at = at + (k * len) as u64;
            let old = self.bytes(t, at, len)?.iter().rev().fold(0u128, |n, b| n << 8 | u128::from(*b));
            let sources: Vec<Value> = given.iter().map(|o| self.value(t, lane(o, k))).collect::<Result<_, _>>()?;
            let new = ops::combined(i, ty, old, &sources)?;
            self.bytes(t, at, len)?.copy_from_slice(&new.to_le_bytes()[..len]);
            if at & SPACE == 0 && format(ty).is_some() {
                self.left.floats.insert(at, Tolerance::Exact(ty));
            }
            let float = Some(ty).filter(|t| format(*t).is_some());
            t.set(lane(to, k), Value { float, ..Value::plain(old) })?;
        }
        Ok(())
    }
}

impl<'a> Thread<'a> {
    fn get(&self, name: &str) -> Value {
        self.registers.get(name).copied().unwrap_or_default()
    }

    fn set(&mut self, to: &'a Operand, v: Value) -> Result<(), String> {
        match to {
            Operand::Reg(n) => {
                self.registers.insert(n, v);
                Ok(())
            }
            Operand::Nothing => Ok(()),
            other => Err(format!("a result {other:?}")),
        }
    }
}

fn ones(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}
