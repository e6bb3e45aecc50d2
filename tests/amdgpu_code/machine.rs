//! Runs compiled kernels on the emulated compute units in strict mode, and the same program in the interpreter.

use doorbell::codegen::{ParamInfo, Program};
use doorbell::emu::amdgpu::{
    Chip as Emulated, Dispatch, HotCode, PlainBus, SharedBytes, Stats, Strict, WaveFault, run_hot,
};
use doorbell::engine::interp::{Vars, run_program};
use doorbell::isa::amdgpu::{Chip, MachineCode, Target, compile};
use doorbell::uop::{Arg, Op, Scalar, UOp, USet, from_bits};
use std::sync::atomic::AtomicBool;

const CODE: u64 = 0x7f00_0000_0000;
const KERNARG: u64 = 0x3000_0000;
const SCRATCH: u64 = 0x5000_0000;
/// Buffers lie far apart, so that what runs beyond one is a fault.
const BUFFERS: u64 = 0x10_0000_0000;
const APART: u64 = 0x1_0000_0000;

/// The chips that generated code is tested on.
pub fn chips() -> Vec<Chip> {
    match std::env::var("CHIP") {
        Ok(name) => vec![Chip::parse(&name).expect("a chip's name")],
        Err(_) => Chip::ALL.to_vec(),
    }
}

/// A linear program under construction: nodes are listed where they are first needed.
#[derive(Default)]
pub struct List {
    uops: Vec<UOp>,
    seen: USet,
}

impl List {
    /// Lists a node, after those of its sources that are not listed yet.
    pub fn add(&mut self, u: &UOp) {
        for n in u.toposort() {
            if self.seen.insert(n.clone()) {
                self.uops.push(n);
            }
        }
    }

    /// The program, launched as one workgroup of so many threads.
    pub fn program(self, name: &str, threads: u32) -> Program {
        let mut params = Vec::new();
        for u in &self.uops {
            if let Arg::Param(slot, len) = u.arg() {
                let dtype = u.dtype().pointee();
                params.push(ParamInfo { slot: *slot, dtype, len: *len, read: true, written: *slot == 0 });
            }
        }
        params.sort_by_key(|p| p.slot);
        let vars = self.uops.iter().filter(|u| u.op() == Op::Var).cloned().collect();
        Program {
            name: name.into(),
            display_name: name.into(),
            uops: self.uops,
            params,
            vars,
            tensors: vec![],
            threads: 1,
            global: [1; 3],
            local: [threads, 1, 1],
            local_bytes: 0,
            estimates: Default::default(),
            opts: vec![],
            fast_math: false,
        }
    }
}

/// The code as text, with the number of each instruction.
pub fn listing(code: &MachineCode) -> String {
    let text = |k: usize, i: &doorbell::isa::amdgpu::Inst| {
        let operands: Vec<String> = i.operands.iter().map(doorbell::isa::amdgpu::operand_text).collect();
        let offset = if i.mods.offset == 0 { String::new() } else { format!(" offset:{}", i.mods.offset) };
        format!("{k:4} {} {}{offset}\n", i.op.name(), operands.join(", "))
    };
    code.listing.iter().enumerate().map(|(k, i)| text(k, i)).collect()
}

/// Runs the code on the buffers; the error names the compiler.
pub fn execute(code: &MachineCode, p: &Program, bufs: &mut [Vec<u8>], vars: &[i64]) -> Result<Stats, Box<WaveFault>> {
    execute_by(Strict::on(), &HotCode::default(), code, p, bufs, vars)
}

/// As [`execute`], by these rules.
pub fn execute_by(
    strict: Strict,
    hot: &HotCode,
    code: &MachineCode,
    p: &Program,
    bufs: &mut [Vec<u8>],
    vars: &[i64],
) -> Result<Stats, Box<WaveFault>> {
    let mut bus = PlainBus::default();
    // What the instruction prefetch may run into.
    let padded: Vec<u8> = code.text.iter().copied().chain([0; 1024]).collect();
    bus.map_code(CODE, SharedBytes::from_bytes(&padded));
    let mut memory = Vec::new();
    let mut args: Vec<u8> = Vec::new();
    for (k, b) in bufs.iter().enumerate() {
        // Ends at the end of a range: one element beyond is a fault.
        let at = BUFFERS + APART * k as u64;
        let lead = (8 - b.len() % 8) % 8;
        let mut bytes = vec![0xee; lead];
        bytes.extend_from_slice(b);
        let shared = SharedBytes::from_bytes(&bytes);
        bus.map(at, shared.clone(), true);
        memory.push((shared, lead));
        args.extend_from_slice(&(at + lead as u64).to_le_bytes());
    }
    args.extend(vars.iter().flat_map(|v| v.to_le_bytes()));
    bus.map(KERNARG, SharedBytes::from_bytes(&args), false);
    let spec = &code.kernel.spec;
    let f = spec.descriptor();
    let lanes = if spec.wave32 { 32 } else { 64 };
    let waves = p.local.iter().product::<u32>().div_ceil(lanes).max(1);
    let per_wave = spec.scratch_bytes * 64;
    bus.map(SCRATCH, SharedBytes::new((per_wave * waves) as usize + 8), true);
    let chip = match code.target.chip {
        Chip::Gfx1100 => Emulated::Gfx1100,
        Chip::Gfx942 => Emulated::Gfx942,
        Chip::Gfx1201 => Emulated::Gfx1201,
    };
    let dispatch = Dispatch {
        chip,
        entry: CODE,
        wave32: spec.wave32,
        groups: p.global,
        local: p.local,
        last_partial: [0; 3],
        rsrc1: f.rsrc1,
        rsrc2: f.rsrc2,
        rsrc3: f.rsrc3,
        user_data: vec![KERNARG as u32, (KERNARG >> 32) as u32],
        user_data_written: 3,
        lds_bytes: spec.lds_bytes.next_multiple_of(512),
        scratch_base: SCRATCH,
        scratch_wave_bytes: per_wave,
        scratch_waves: waves,
    };
    let options = Strict { max_instructions: 50_000_000, ..strict };
    let stats = run_hot(&dispatch, &bus, &options, &AtomicBool::new(false), hot)?;
    for (b, (shared, lead)) in bufs.iter_mut().zip(&memory) {
        let all = shared.to_vec();
        let n = b.len();
        b.copy_from_slice(&all[*lead..lead + n]);
    }
    Ok(stats)
}

/// Compiles a program for each chip, runs it, and compares all buffers with the interpreter's.
pub fn check(p: &Program, inputs: &[Vec<Vec<u8>>], vars: &[(&str, i64)], tolerance: f64) -> Vec<MachineCode> {
    check_on(&chips(), p, inputs, vars, tolerance)
}

/// As [`check`], for some chips.
pub fn check_on(
    chips: &[Chip],
    p: &Program,
    inputs: &[Vec<Vec<u8>>],
    vars: &[(&str, i64)],
    tolerance: f64,
) -> Vec<MachineCode> {
    let named: Vars = vars.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let values: Vec<i64> = p.vars.iter().map(|v| if let Arg::Var(n, ..) = v.arg() { named[&**n] } else { 0 }).collect();
    let codes: Vec<MachineCode> = chips
        .iter()
        .map(|&c| compile(p, Target::of(c)).unwrap_or_else(|e| panic!("{} on {}: {e}\n{}", p.name, c.name(), text(p))))
        .collect();
    for bufs in inputs {
        let mut want = bufs.clone();
        run_program(p, &mut want, &named).unwrap_or_else(|e| panic!("interpreter: {e}"));
        for code in &codes {
            let mut got = bufs.clone();
            let chip = code.target.chip.name();
            if let Err(e) = execute(code, p, &mut got, &values) {
                panic!("{} on {chip}: {e} (instruction at byte {:#x})\n{}", p.name, e.pc - CODE, listing(code));
            }
            for (k, param) in p.params.iter().enumerate() {
                if let Err(e) = same(param.dtype.scalar, &got[k], &want[k], tolerance) {
                    panic!("{} on {chip}: {e}\n{}\n{}", p.name, listing(code), text(p));
                }
            }
        }
    }
    codes
}

pub fn text(p: &Program) -> String {
    let of = |u: &UOp| p.uops.iter().position(|x| x == u).map_or(format!("{u:?}"), |k| k.to_string());
    let line = |(k, u): (usize, &UOp)| {
        let src: Vec<String> = u.src().iter().map(of).collect();
        format!("{k:4} {:?} {} {:?} [{}]\n", u.op(), u.dtype(), u.arg(), src.join(", "))
    };
    p.uops.iter().enumerate().map(line).collect()
}

fn same(t: Scalar, got: &[u8], want: &[u8], tolerance: f64) -> Result<(), String> {
    let n = t.size_bytes();
    let read = |b: &[u8]| {
        let mut w = [0u8; 8];
        w[..n].copy_from_slice(b);
        from_bits(u64::from_le_bytes(w), t)
    };
    for (i, (g, w)) in got.chunks_exact(n).zip(want.chunks_exact(n)).enumerate() {
        if g == w {
            continue;
        }
        let (a, b) = (read(g).as_f64(), read(w).as_f64());
        let near = a == b || (a - b).abs() <= tolerance * b.abs().max(1.0);
        if !(t.is_float() && (near || a.is_nan() && b.is_nan())) {
            return Err(format!("element {i} is {a} ({g:x?}), not {b} ({w:x?})"));
        }
    }
    Ok(())
}

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Elements of a type: small numbers, limits and specials mixed; `tame`: small numbers only.
    pub fn fill(&mut self, t: Scalar, len: usize, tame: bool) -> Vec<u8> {
        use doorbell::uop::{ConstVal, to_bits};
        let mut out = Vec::new();
        for _ in 0..len {
            let r = self.next();
            let small = (r >> 8) as i64 % 41 - 20;
            let v = match (t.is_float(), t == Scalar::Bool) {
                (_, true) => r & 1,
                (true, _) => {
                    let specials = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-3, 1e-40, -3e-39];
                    let f = match r & 3 {
                        0 if !tame => specials[(r >> 5) as usize % 8],
                        // Any bits at all: denormals, huge values, quiet and signalling NaNs.
                        1 if !tame => {
                            out.extend_from_slice(&self.next().to_le_bytes()[..t.size_bytes()]);
                            continue;
                        }
                        _ => small as f64 * 0.375,
                    };
                    to_bits(ConstVal::Float(f), t)
                }
                _ if tame => to_bits(ConstVal::Int(if t.is_unsigned() { small.abs().into() } else { small.into() }), t),
                _ => match r % 4 {
                    0 => [0, 1, u64::MAX, 1 << 63, i64::MAX as u64, 0x80, 0x8000, 0x8000_0000][(r >> 5) as usize % 8],
                    1 => small as u64,
                    _ => self.next(),
                },
            };
            out.extend_from_slice(&v.to_le_bytes()[..t.size_bytes()]);
        }
        out
    }
}
