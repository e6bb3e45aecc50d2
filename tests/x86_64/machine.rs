//! Runs compiled kernels in this process, and the same program in the interpreter.

use doorbell::codegen::{ParamInfo, Program};
use doorbell::elf::{PAGE_BYTES, link_object};
use doorbell::engine::interp::{Vars, run_program};
use doorbell::isa::x86_64::{Arch, MachineCode, compile};
use doorbell::uop::{Arg, Op, Scalar, UOp, USet, from_bits};

/// The feature levels that this machine has.
pub fn archs() -> Vec<Arch> {
    match Arch::detect() {
        Some(Arch::Avx512) => vec![Arch::Avx2, Arch::Avx512],
        Some(Arch::Avx2) => {
            eprintln!("SKIP avx512: this machine has no AVX-512");
            vec![Arch::Avx2]
        }
        None => {
            eprintln!("SKIP: this machine has no AVX2");
            vec![]
        }
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

    pub fn program(self, name: &str) -> Program {
        let mut params = Vec::new();
        for u in &self.uops {
            if let Arg::Param(slot, len) = u.arg() {
                params.push(ParamInfo {
                    slot: *slot,
                    dtype: u.dtype().pointee(),
                    len: *len,
                    read: true,
                    written: true,
                });
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
            local: [1; 3],
            local_bytes: 0,
            estimates: Default::default(),
            opts: vec![],
            fast_math: false,
        }
    }
}

/// Executes the code once for each chunk on the buffers.
pub fn execute(code: &MachineCode, p: &Program, bufs: &mut [Vec<u8>], vars: &[i64]) {
    let mut args: Vec<u64> = bufs.iter_mut().map(|b| b.as_mut_ptr() as u64).collect();
    args.extend(vars.iter().map(|v| *v as u64));
    call(code, p, &args);
}

/// Executes the code once for each chunk on arguments, whose buffers must be as long as the program touches.
pub fn call(code: &MachineCode, p: &Program, args: &[u64]) {
    let image = link_object(&code.object, PAGE_BYTES).expect("our own object links");
    let mut map = memmap2::MmapOptions::new().len(image.size().max(1)).map_anon().expect("memory for code");
    let bytes = image.relocated(map.as_ptr() as u64, &|_| None).expect("no open symbols");
    map[..bytes.len()].copy_from_slice(&bytes);
    let map = map.make_exec().expect("executable memory");
    let entry = image.entry(&p.name).expect("the kernel's symbol");
    // SAFETY: the bytes at `entry` are a function of this type that our compiler made for this machine's features; the
    // buffers after `args` live until the call returns.
    let kernel: extern "C" fn(*const u64, u64) = unsafe { std::mem::transmute(map.as_ptr().add(entry)) };
    for tid in 0..u64::from(p.threads) {
        kernel(args.as_ptr(), tid);
    }
}

/// Compiles a program for each feature level, runs it, and compares all buffers with the interpreter's.
pub fn check(p: &Program, bufs: &[Vec<u8>], vars: &[(&str, i64)], tolerance: f64) -> Vec<MachineCode> {
    check_all(p, &[bufs.to_vec()], vars, tolerance)
}

/// As `check`, on several sets of buffers.
pub fn check_all(p: &Program, inputs: &[Vec<Vec<u8>>], vars: &[(&str, i64)], tolerance: f64) -> Vec<MachineCode> {
    let named: Vars = vars.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let values: Vec<i64> = p.vars.iter().map(|v| if let Arg::Var(n, ..) = v.arg() { named[&**n] } else { 0 }).collect();
    let codes: Vec<(Arch, MachineCode)> = archs()
        .into_iter()
        .map(|a| (a, compile(p, a).unwrap_or_else(|e| panic!("{}: {e}\n{:#?}", p.name, p.uops))))
        .collect();
    for bufs in inputs {
        let mut want = bufs.clone();
        run_program(p, &mut want, &named).unwrap_or_else(|e| panic!("interpreter: {e}"));
        for (arch, code) in &codes {
            let mut got = bufs.clone();
            execute(code, p, &mut got, &values);
            for (k, param) in p.params.iter().enumerate() {
                compare(&p.name, *arch, param.dtype.scalar, (&got[k], &want[k]), tolerance, code);
            }
        }
    }
    codes.into_iter().map(|c| c.1).collect()
}

fn compare(name: &str, arch: Arch, t: Scalar, (got, want): (&[u8], &[u8]), tolerance: f64, code: &MachineCode) {
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
        let close = t.is_float() && ((a - b).abs() <= tolerance * b.abs().max(1.0) || (a.is_nan() && b.is_nan()));
        assert!(close, "{name} on {}: element {i} is {a} ({g:x?}), not {b} ({w:x?})\n{}", arch.name(), code.assembly());
    }
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
                    let specials = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-3];
                    let f = if tame || r & 3 > 0 { small as f64 * 0.375 } else { specials[(r >> 5) as usize % 6] };
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
