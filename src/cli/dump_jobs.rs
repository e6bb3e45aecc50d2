//! What `dump` writes beside a kernel so that `launch --jobs` runs it, here or elsewhere: inputs, the jobs file, and what must come out.
//!
//! Inputs are numbers from a seed, small enough for any type; what must come out is the reference interpreter's. Kernels that the
//! interpreter would take minutes for have no `want` files.

use super::CliError;
use doorbell::engine::Compiled;
use doorbell::engine::interp::{Vars, run_kernel};
use doorbell::uop::{Arg, Scalar};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Operations that the interpreter may take for one kernel.
const MAX_FLOPS: f64 = 5e5;

/// Writes a kernel's inputs and wanted outputs; gives its entry of the jobs file, with paths relative to the directory.
pub fn write(dir: &Path, k: &Compiled) -> Result<Value, CliError> {
    let p = &k.program;
    let mut bufs: Vec<Vec<u8>> = Vec::new();
    for b in &p.params {
        let slot = b.slot as usize;
        bufs.resize(bufs.len().max(slot + 1), Vec::new());
        bufs[slot] = numbers(b.dtype.scalar, b.len, b.slot);
    }
    let mut args = Vec::new();
    for b in &p.params {
        let from = format!("{}.{}.in", p.name, b.slot);
        put(dir, &from, &bufs[b.slot as usize])?;
        args.push(if b.written { format!("inout:{from}:{}.{}.out", p.name, b.slot) } else { format!("in:{from}") });
    }
    let mut vars = Vars::new();
    for v in &p.vars {
        let value = v.vmax() as i64;
        if let Arg::Var(name, ..) = v.arg() {
            vars.insert(name.to_string(), value);
        }
        args.push(format!("i64:{value}"));
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
    let object = format!("{}.o", p.name);
    Ok(json!({"object": object, "kernel": p.name, "grid": grid, "block": block, "args": args, "expect": expect}))
}

fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), CliError> {
    let path = dir.join(name);
    fs::write(&path, bytes).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

/// Numbers of a type: floats between -1 and 1 in 64ths, integers 0 or 1 (they may be indices).
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
