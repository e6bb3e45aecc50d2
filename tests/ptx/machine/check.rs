//! A program rendered for chips that differ, run in the interpreter of PTX, against the interpreter of linear programs.

use super::{Counts, Kernel, Memory};
use crate::amd_machine::text;
use doorbell::codegen::Program;
use doorbell::engine::interp::{Vars, run_program};
use doorbell::isa::ptx::{Buffers, Chip, Module, parse, render};
use doorbell::uop::{Arg, Scalar, from_bits};

/// Chips without and with the instructions that came with sm_80.
pub const CHIPS: [&str; 2] = ["sm_75", "sm_90a"];

/// The text of a program, and the module that it parses to, which is the one rendered.
pub fn rendered(p: &Program, chip: &str, buffers: Buffers) -> (String, Module) {
    let chip = Chip::parse(chip).expect("a chip's name");
    let module = render(p, chip, buffers).unwrap_or_else(|e| panic!("{e}\n{}", text(p)));
    let ptx = module.to_string();
    let parsed = parse(&ptx).unwrap_or_else(|e| panic!("{}: {e}\n{ptx}", p.name));
    assert_eq!(parsed, module, "{}: printing and parsing changes it", p.name);
    (ptx, module)
}

/// Runs the module on copies of the buffers that lie at a multiple of 16 plus `skew` elements.
fn execute(m: &Module, p: &Program, bufs: &[Vec<u8>], vars: &[i64], skew: usize) -> Result<Vec<Vec<u8>>, String> {
    Ok(execute_counted(m, p, bufs, vars, skew)?.0)
}

fn execute_counted(
    m: &Module,
    p: &Program,
    bufs: &[Vec<u8>],
    vars: &[i64],
    skew: usize,
) -> Result<(Vec<Vec<u8>>, Counts), String> {
    let mut mem = Memory::default();
    let mut args = vec![];
    for (k, b) in bufs.iter().enumerate() {
        let size = p.params.get(k).map_or(1, |p| p.dtype.scalar.size_bytes());
        let at = 0x7_0000_0000 + 0x1_0000_0000 * k as u64 + (skew * size) as u64;
        args.push(at);
        mem.buffers.push((at, b.clone()));
    }
    mem.matrices = super::tma::matrices(p, &args);
    args.extend(vars.iter().map(|v| v.cast_unsigned()));
    let kernel = Kernel::new(m, p.local_bytes)?;
    kernel.launch(p.global, p.local, &args, &mut mem)?;
    Ok((mem.buffers.into_iter().map(|b| b.1).collect(), mem.counts))
}

/// What a program costs on a chip, its buffers at multiples of 16.
pub fn counted(p: &Program, chip: &str, bufs: &[Vec<u8>]) -> Counts {
    let (ptx, m) = rendered(p, chip, Buffers::Aligned);
    execute_counted(&m, p, bufs, &[], 0).unwrap_or_else(|e| panic!("{}: {e}\n{ptx}", p.name)).1
}

/// Panics unless both interpreters leave the same in all buffers.
pub fn check(p: &Program, inputs: &[Vec<Vec<u8>>], vars: &[(&str, i64)], tolerance: f64) {
    let named: Vars = vars.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let values: Vec<i64> = p.vars.iter().map(|v| if let Arg::Var(n, ..) = v.arg() { named[&**n] } else { 0 }).collect();
    let mut modules: Vec<(String, Module)> = vec![];
    for chip in CHIPS {
        if p.uops.iter().any(|u| matches!(u.arg(), Arg::Wmma(_))) && chip == "sm_75" {
            continue;
        }
        let (ptx, m) = rendered(p, chip, Buffers::Anywhere);
        if modules.iter().all(|(_, other)| other.items != m.items) {
            modules.push((ptx, m));
        }
    }
    for (round, bufs) in inputs.iter().enumerate() {
        let mut want = bufs.clone();
        run_program(p, &mut want, &named).unwrap_or_else(|e| panic!("interpreter: {e}"));
        for (ptx, m) in &modules {
            // Buffers that are part of others begin at an odd place.
            let two = round == 0 && (ptx.contains(".global.v") || ptx.contains("cp.async"));
            for skew in 0..=usize::from(two) {
                let got = execute(m, p, bufs, &values, skew).unwrap_or_else(|e| panic!("{}: {e}\n{ptx}", p.name));
                for (k, param) in p.params.iter().enumerate() {
                    if let Err(e) = same(param.dtype.scalar, &got[k], &want[k], tolerance) {
                        panic!("{} skew {skew} buffer {k}: {e}\n{ptx}\n{}", p.name, text(p));
                    }
                }
            }
        }
    }
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
