//! Files that `dump` writes in addition to a kernel, so that `launch --jobs` can run it here or elsewhere: inputs, the
//! jobs file, and expected outputs.
//!
//! Inputs are generated from a seed, with values small enough for any type; the expected outputs are the reference
//! interpreter's. Kernels that would take the interpreter minutes have no `want` files.

use super::CliError;
use doorbell::engine::Compiled;
use doorbell::engine::interp::{Vars, run_kernel};
use doorbell::isa::Argument;
use doorbell::uop::{Arg, Scalar};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Most operations of a kernel that is run by the interpreter.
const MAX_FLOPS: f64 = 5e5;

/// Writes inputs and expected outputs of a kernel whose code is in the file `object`; returns its entry of the jobs
/// file, with paths relative to the directory.
pub(crate) fn write(dir: &Path, k: &Compiled, object: &str) -> Result<Value, CliError> {
    let p = &k.program;
    let mut bufs: Vec<Vec<u8>> = Vec::new();
    for b in &p.params {
        let slot = b.slot as usize;
        bufs.resize(bufs.len().max(slot + 1), Vec::new());
        bufs[slot] = numbers(b.dtype.scalar, b.len, b.slot);
    }
    let mut vars = Vars::new();
    let mut args: Vec<String> = Vec::new();
    let order = &k.binary.arguments;
    for (n, argument) in order.iter().enumerate() {
        args.push(match argument {
            Argument::Buffer(_) if order[..n].contains(argument) => {
                let first = order.iter().position(|a| a == argument);
                format!("same:{}", first.unwrap_or_default())
            }
            Argument::Buffer(at) => {
                let b = &p.params[*at];
                let from = format!("{}.{}.in", p.name, b.slot);
                put(dir, &from, &bufs[b.slot as usize])?;
                if b.written { format!("inout:{from}:{}.{}.out", p.name, b.slot) } else { format!("in:{from}") }
            }
            Argument::Variable(at) => {
                let value = p.vars[*at].vmax() as i64;
                if let Arg::Var(name, ..) = p.vars[*at].arg() {
                    vars.insert(name.to_string(), value);
                }
                format!("i64:{value}")
            }
            Argument::Word(bits) => format!("u64:{bits}"),
        });
    }
    let mut expect = Vec::new();
    if p.estimates.flops as f64 <= MAX_FLOPS {
        run_kernel(&k.ast, &mut bufs, &vars).map_err(|e| CliError::Failed(format!("{}: {e}", p.name)))?;
        for b in p.params.iter().filter(|b| b.written) {
            let name = |kind: &str| format!("{}.{}.{kind}", p.name, b.slot);
            put(dir, &name("want"), &bufs[b.slot as usize])?;
            expect.push(json!({"out": name("out"), "want": name("want"), "dtype": b.dtype.scalar.to_string()}));
        }
    }
    let is_gpu = p.local.iter().chain(&p.global).any(|n| *n != 1) || p.threads <= 1;
    let (grid, block) = if is_gpu { (p.global, p.local) } else { ([p.threads, 1, 1], [1; 3]) };
    let mut job =
        json!({"object": object, "kernel": p.name, "grid": grid, "block": block, "args": args, "expect": expect});
    if k.binary.shared_bytes > 0 {
        job["lds"] = json!(k.binary.shared_bytes);
    }
    Ok(job)
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), CliError> {
    let path = dir.join(name);
    fs::write(&path, bytes).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

/// Generates numbers of a type: floats between -1 and 1 in steps of 1/64, integers 0 or 1 (they may be indices).
fn numbers(t: Scalar, len: usize, seed: u32) -> Vec<u8> {
    let draw = |i: usize| ((i as u32).wrapping_add(seed << 20)).wrapping_mul(0x9e37_79b9) >> 25;
    let one = |i: usize| -> Vec<u8> {
        let n = draw(i);
        let x = f64::from(n as i32 - 64) / 64.0;
        match t {
            Scalar::F64 => x.to_le_bytes().to_vec(),
            Scalar::F32 => (x as f32).to_le_bytes().to_vec(),
            Scalar::F16 => half::f16::from_f64(x).to_le_bytes().to_vec(),
            Scalar::BF16 => half::bf16::from_f64(x).to_le_bytes().to_vec(),
            t => u64::from(n & 1).to_le_bytes()[..t.size_bytes()].to_vec(),
        }
    };
    (0..len).flat_map(one).collect()
}

#[cfg(all(test, feature = "nv", feature = "emu"))]
mod tests {
    use super::*;
    use crate::launch::job::Job;
    use crate::launch::object::{CallArgs, Object};
    use crate::launch::spec::Spec;
    use doorbell::codegen::{self, OptChoice, Target};
    use doorbell::engine::{Options, Session};
    use doorbell::isa::ptx::Chip;
    use doorbell::uop::{AxisKind, DType, KernelInfo, Op, UOp};
    use std::sync::Arc;

    const SIDE: i64 = 64;
    const STEPS: i64 = 256;

    /// a · b of f16 with column-major b, large enough that its opts for the chip load tiles by TMA.
    fn product() -> UOp {
        let axis = |n: i64, id, kind| UOp::range(UOp::int(n), id, kind);
        let (i, j) = (axis(SIDE, 0, AxisKind::Loop), axis(SIDE, 1, AxisKind::Loop));
        let l = axis(STEPS, 2, AxisKind::Reduce);
        let load = |slot, row: &UOp| {
            let at = &(row * STEPS) + &l;
            UOp::param(slot, DType::of(Scalar::F16), (SIDE * STEPS) as usize).index(&at).load().cast(DType::F32)
        };
        let sum = (&load(1, &i) * &load(2, &j)).reduce(Op::Add, &[l]);
        let to = UOp::param(0, DType::F32, (SIDE * SIDE) as usize).index(&(&(&i * SIDE) + &j));
        let ast = UOp::sink([to.store(&sum, &[i, j])]);
        let target = Target { compute_units: 1, ..Chip::parse("sm_90a").unwrap().target() };
        let opts = codegen::compile(&ast, &target, &OptChoice::Heuristic, false).unwrap().opts;
        let info = KernelInfo { opts: Some(opts), ..KernelInfo::default() };
        ast.with_arg(Arg::Kernel(Arc::new(info)))
    }

    #[test]
    fn a_kernel_with_tensor_maps_runs_from_its_job() {
        let dir = tempfile::tempdir().unwrap();
        let s = Session::open(Options::default()).unwrap();
        let device = s.device("NV:emu=sm_90").unwrap();
        let k = s.kernels(&device, &[&product()]).unwrap().remove(0);
        assert_eq!(k.program.tensors.len(), 2, "{:?}", k.program.opts);
        let job = write(dir.path(), &k, "k.ptx").unwrap();
        let args: Vec<&str> = job["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        // Three buffers, and two maps of sixteen words.
        assert_eq!((args.len(), args[3], args[19]), (3 + 2 * 16, "same:1", "same:2"));
        put(dir.path(), "k.ptx", device.backend.source(&k.program).unwrap().unwrap().as_bytes()).unwrap();
        let spec = |a: &&str| match a.parse().unwrap() {
            Spec::In(from) => Spec::In(dir.path().join(from)),
            Spec::InOut { from, to } => Spec::InOut { from: dir.path().join(from), to: dir.path().join(to) },
            spec => spec,
        };
        let job = Job {
            object: dir.path().join("k.ptx"),
            kernel: k.program.name.clone(),
            grid: k.program.global,
            block: k.program.local,
            lds_bytes: job["lds"].as_u64().unwrap_or(0) as u32,
            cluster: None,
            args: args.iter().map(spec).collect(),
            repeat: 1,
            expect: Vec::new(),
        };
        let object = Object::read(&job.object, &job.kernel, &device, &CallArgs::default(), true).unwrap();
        job.run(&object, &device).unwrap_or_else(|e| panic!("{e:?}"));
        let out = fs::read(dir.path().join(format!("{}.0.out", k.program.name))).unwrap();
        let [a, b] = [1, 2].map(|slot| {
            let bytes = numbers(Scalar::F16, (SIDE * STEPS) as usize, slot);
            bytes.chunks(2).map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f64()).collect::<Vec<_>>()
        });
        let steps = STEPS as usize;
        for (at, got) in out.chunks(4).enumerate() {
            let rows = (at / SIDE as usize * steps, at % SIDE as usize * steps);
            let want: f64 = (0..steps).map(|l| a[rows.0 + l] * b[rows.1 + l]).sum();
            let got = f64::from(f32::from_le_bytes([got[0], got[1], got[2], got[3]]));
            assert!((got - want).abs() <= 1e-4 * want.abs().max(1.0), "element {at}: {got}, not {want}");
        }
    }
}
