//! A small accelerator with an instruction set of its own: a back end that renders linear programs as its instructions,
//! a device that executes them, and Tensor programs that run on it (`docs/custom-device.md`).
use doorbell::codegen::{ParamInfo, Program, Target};
use doorbell::device::{Arg, Executor, HostDevice, Location};
use doorbell::isa::{Backend, Binary, BinaryCode, IsaError};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{CustomKernel, Launch};
use doorbell::uop::{self, DType, Op, UOp, cast_const, eval_alu, from_bits, to_bits};
use std::collections::HashMap;
use std::sync::Arc;

/// The instructions: those that move and branch, then arithmetic.
const NAMES: [&str; 9] = ["li", "arg", "mov", "cast", "ld", "st", "loop", "next", "skip"];
#[rustfmt::skip]
mod code {
    pub const LI: u8 = 0; pub const ARG: u8 = 1; pub const MOV: u8 = 2; pub const CAST: u8 = 3; pub const LD: u8 = 4;
    pub const ST: u8 = 5; pub const LOOP: u8 = 6; pub const NEXT: u8 = 7; pub const SKIP: u8 = 8;
}
use code::*;
const I64: u8 = 7;
#[rustfmt::skip]
const ALU: [Op; 21] = [
    Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc, Op::Add, Op::Sub, Op::Mul, Op::FDiv, Op::Max, Op::CDiv, Op::CMod, Op::Shl,
    Op::Shr, Op::And, Op::Or, Op::Xor, Op::CmpLt, Op::CmpNe, Op::CmpEq, Op::Where, Op::MulAcc,
];
#[rustfmt::skip]
const TYPES: [Scalar; 12] = [
    Scalar::Bool, Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64,
    Scalar::F32, Scalar::F64, Scalar::F16,
];

/// One instruction: 18 bytes, or a line of text: `add.f32 7 3 5 0 0`.
#[derive(Clone, Copy, Debug, Default)]
struct Inst {
    code: u8,
    t: u8,
    r: [u16; 4],
    imm: u64,
}

impl Inst {
    fn encode(&self) -> Vec<u8> {
        let registers = self.r.iter().flat_map(|r| r.to_le_bytes());
        [self.code, self.t].into_iter().chain(registers).chain(self.imm.to_le_bytes()).collect()
    }
    fn decode(w: &[u8; 18]) -> Inst {
        let r = [2, 4, 6, 8].map(|k| u16::from_le_bytes([w[k], w[k + 1]]));
        Inst { code: w[0], t: w[1], r, imm: u64::from_le_bytes(std::array::from_fn(|k| w[10 + k])) }
    }
    fn name(code: u8) -> String {
        let alu = || format!("{:?}", ALU[usize::from(code) - NAMES.len()]).to_lowercase();
        NAMES.get(usize::from(code)).map_or_else(alu, |n| (*n).to_string())
    }
    fn text(&self) -> String {
        let [d, a, b, c] = self.r;
        format!("{}.{} {d} {a} {b} {c} {}\n", Inst::name(self.code), TYPES[usize::from(self.t)], self.imm)
    }
    fn parse(line: &str) -> Option<Inst> {
        let (name, rest) = line.split_once(' ')?;
        let (name, t) = name.split_once('.')?;
        let code = (0..(NAMES.len() + ALU.len()) as u8).find(|c| Inst::name(*c) == name)?;
        let t = TYPES.iter().position(|s| s.to_string() == t)? as u8;
        let n: Vec<u64> = rest.split_whitespace().map(|w| w.parse().ok()).collect::<Option<_>>()?;
        let [d, a, b, c, imm] = n[..] else { return None };
        Some(Inst { code, t, r: [d, a, b, c].map(|r| r as u16), imm })
    }
}

// ---- the back end: from the linear program to instructions ----

#[derive(Debug)]
struct ToyBackend(Target);

/// A program while it is rendered: its instructions, and the register of each node.
struct Renderer<'a> {
    program: &'a Program,
    code: Vec<Inst>,
    registers: HashMap<UOp, u16>,
}

impl Renderer<'_> {
    fn unsupported(&self, u: &UOp) -> IsaError {
        IsaError::Unsupported { kernel: self.program.name.clone(), target: "toy", op: u.op(), dtype: u.dtype() }
    }
    fn t(&self, u: &UOp, t: DType) -> Result<u8, IsaError> {
        let code = TYPES.iter().position(|s| *s == t.scalar).filter(|_| t.lanes == 1);
        code.map(|k| k as u8).ok_or_else(|| self.unsupported(u))
    }
    fn put(&mut self, code: u8, t: u8, r: [u16; 4], imm: u64) {
        self.code.push(Inst { code, t, r, imm });
    }
    /// A node as instructions that leave its value in register `d`.
    fn node(&mut self, d: u16, u: &UOp, open: &mut HashMap<UOp, usize>) -> Result<(), IsaError> {
        let r = |k: usize| u.src().get(k).and_then(|s| self.registers.get(s)).copied().unwrap_or(0);
        let r = [r(0), r(1), r(2)];
        let t = if matches!(u.op(), Op::Store | Op::End | Op::Param) { 0 } else { self.t(u, u.dtype())? };
        match u.op() {
            Op::Const => self.put(LI, t, [d, 0, 0, 0], u.as_const().map_or(0, |c| to_bits(c, u.dtype().scalar))),
            Op::Param => {
                let is_it = |p: &ParamInfo| matches!(u.arg(), uop::Arg::Param(slot, _) if *slot == p.slot);
                let at = self.program.params.iter().position(is_it).unwrap_or(0);
                self.put(ARG, I64, [d, 0, 0, 0], at as u64);
            }
            Op::Var => {
                let at = self.program.vars.iter().position(|v| v == u).unwrap_or(0);
                self.put(ARG, I64, [d, 0, 0, 0], (self.program.params.len() + at) as u64);
            }
            Op::Load | Op::Store => {
                let index: Vec<u16> = u.src()[0].src().iter().map(|s| self.registers[s]).collect();
                let (t, at_most) = (self.t(u, u.src()[0].dtype())?, self.code.len() as u64 + 3);
                if let (Op::Load, [_, _, gate]) = (u.op(), &index[..]) {
                    self.put(MOV, t, [d, r[1], 0, 0], 0);
                    self.put(SKIP, t, [0, *gate, 0, 0], at_most);
                } else if let [_, _, gate] = index[..] {
                    self.put(SKIP, t, [0, gate, 0, 0], at_most - 1);
                }
                let is_load = u.op() == Op::Load;
                let (code, to, value) = if is_load { (LD, d, 0) } else { (ST, 0, r[1]) };
                self.put(code, t, [to, index[0], index[1], value], 0);
            }
            Op::Range => {
                self.put(LI, t, [d, 0, 0, 0], 0);
                open.insert(u.clone(), self.code.len());
                self.put(LOOP, t, [d, r[0], 0, 0], 0);
            }
            Op::End => {
                let head = open.remove(&u.src()[0]).ok_or_else(|| self.unsupported(u))?;
                self.put(NEXT, I64, [r[0], 0, 0, 0], head as u64);
                self.code[head].imm = self.code.len() as u64;
            }
            Op::SetAcc => self.put(MOV, t, [r[0], r[1], 0, 0], 0),
            Op::Acc | Op::Bitcast => self.put(MOV, t, [d, r[0], 0, 0], 0),
            Op::After => drop(self.registers.insert(u.clone(), r[0])),
            Op::Index => {}
            Op::Cast => self.put(CAST, t, [d, r[0], 0, 0], self.t(u, u.src()[0].dtype())?.into()),
            op => {
                let code = ALU.iter().position(|o| *o == op).ok_or_else(|| self.unsupported(u))? + NAMES.len();
                let of = if op.is_comparison() { u.src()[0].dtype() } else { u.dtype() };
                self.put(code as u8, self.t(u, of)?, [d, r[0], r[1], r[2]], 0);
            }
        }
        Ok(())
    }
}

impl Backend for ToyBackend {
    fn target(&self) -> &Target {
        &self.0
    }
    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        let mut r = Renderer { program, code: Vec::new(), registers: HashMap::new() };
        let mut open = HashMap::new();
        for (d, u) in (0..=u16::MAX).zip(&program.uops) {
            r.registers.insert(u.clone(), d);
            r.node(d, u, &mut open)?;
        }
        let code = r.code.iter().flat_map(Inst::encode).collect();
        Ok(Binary::plain(program, BinaryCode::File(code)))
    }
    fn listing(&self, binary: &Binary) -> Result<String, IsaError> {
        let BinaryCode::File(code) = &binary.code else { return Ok(String::new()) };
        Ok(code.as_chunks().0.iter().map(|w| Inst::decode(w).text()).collect())
    }
    fn assemble(&self, kernel: &str, text: &str) -> Result<Vec<u8>, IsaError> {
        let bad = |line: &str| IsaError::Source { kernel: kernel.into(), why: format!("no instruction: {line}") };
        let lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        lines
            .map(|l| Ok(Inst::parse(l).ok_or_else(|| bad(l))?.encode()))
            .collect::<Result<Vec<_>, _>>()
            .map(|c| c.concat())
    }
}

// ---- the device: a loop that executes instructions; memory and queue are `HostDevice`'s ----

#[derive(Debug)]
struct Core;

impl Executor for Core {
    type Program = Vec<Inst>;
    fn load(&self, _name: &str, code: &[u8]) -> Result<Vec<Inst>, String> {
        Ok(code.as_chunks().0.iter().map(Inst::decode).collect())
    }
    fn run(&self, program: &Vec<Inst>, args: &[Arg]) -> Result<(), String> {
        // Addresses are looked up in the memories that the launch names, as a memory controller does.
        let at = |address: u64, n: u64| {
            let holds = |p: &&Location| p.memory.va() <= address && address + n <= p.memory.va() + p.memory.len_bytes();
            let found = args.iter().filter_map(|a| if let Arg::Buffer(p) = a { Some(p) } else { None }).find(holds);
            let found = found.and_then(|p| Some((p.memory.host()?, address - p.memory.va())));
            found.ok_or_else(|| format!("no memory at {address:#x}"))
        };
        let (mut r, mut pc) = (vec![0u64; 1 << 16], 0);
        while let Some(Inst { code, t, r: regs, imm }) = program.get(pc).copied() {
            let (t, [d, a, b, c]) = (TYPES[usize::from(t)], regs.map(usize::from));
            let n = t.size_bytes();
            pc += 1;
            match code {
                LI => r[d] = imm,
                ARG => r[d] = args.get(imm as usize).map_or(0, Arg::bits),
                MOV => r[d] = r[a],
                CAST => r[d] = to_bits(cast_const(from_bits(r[a], TYPES[imm as usize]), t), t),
                LD => {
                    let (view, offset) = at(r[a].wrapping_add(r[b].wrapping_mul(n as u64)), n as u64)?;
                    let mut bytes = [0; 8];
                    view.read(offset, &mut bytes[..n]).map_err(|e| e.to_string())?;
                    r[d] = u64::from_le_bytes(bytes);
                }
                ST => {
                    let (view, offset) = at(r[a].wrapping_add(r[b].wrapping_mul(n as u64)), n as u64)?;
                    view.write(offset, &r[c].to_le_bytes()[..n]).map_err(|e| e.to_string())?;
                }
                LOOP if r[d] as i64 >= r[a] as i64 => pc = imm as usize,
                SKIP if r[a] == 0 => pc = imm as usize,
                LOOP | SKIP => {}
                NEXT => (r[d], pc) = (r[d] + 1, imm as usize),
                alu => {
                    let op = ALU[usize::from(alu) - NAMES.len()];
                    let condition = if op == Op::Where { Scalar::Bool } else { t };
                    let v = [from_bits(r[a], condition), from_bits(r[b], t), from_bits(r[c], t)];
                    let out = if op.is_comparison() { Scalar::Bool } else { t };
                    r[d] = eval_alu(op, t, &v[..op.arity().unwrap_or(1)]).map_or(0, |x| to_bits(x, out));
                }
            }
        }
        Ok(())
    }
}

/// A kernel in the accelerator's own assembly: out[0] = a[0] + a[0].
const TEXT: &str = "
    arg.i64 0 0 0 0 0
    arg.i64 1 0 0 0 1
    li.i64  5 0 0 0 0
    ld.f32  3 1 5 0 0
    add.f32 3 3 3 0 0
    st.f32  0 0 5 3 0";

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = ToyBackend(Target { name: "toy", ..Target::null() });
    doorbell::engine::add_device("TOY", Arc::new(HostDevice::open("TOY", "toy", Core)?), Arc::new(backend))?;
    let a = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]).to("TOY");
    let probabilities = a.matmul(&a.t()).log().softmax(-1);
    let (on_toy, on_cpu) = (probabilities.to_vec::<f32>()?, a.to("CPU"));
    let on_cpu = on_cpu.matmul(&on_cpu.t()).log().softmax(-1).to_vec::<f32>()?;
    println!("softmax(log(a a^T)) on the accelerator: {on_toy:?}");
    assert!(on_toy.iter().zip(&on_cpu).all(|(x, y)| (x - y).abs() < 1e-6), "{on_cpu:?}");
    let sum = CustomKernel::new("sum2", [1], Scalar::F32).text(&[&a], TEXT, Launch::default());
    assert_eq!((sum * 2.0).to_vec::<f32>()?, [4.0]);
    Ok(())
}
