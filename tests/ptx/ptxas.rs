//! ptxas, NVIDIA's own assembler, takes every rendered kernel for every chip without a word.

use super::kernels::{compiled, half_matmul};
use super::machine::rendered;
use crate::amd_machine::List;
use crate::codegen_kernels::kernels;
use doorbell::codegen::Program;
use doorbell::isa::ptx::{Buffers, Module};
use doorbell::uop::{Arg, DType, Op, Scalar, UOp};
use std::path::PathBuf;
use std::process::Command;

pub const CHIPS: [&str; 4] = ["sm_75", "sm_80", "sm_90a", "sm_120"];

/// What `cargo xtask setup` has installed.
pub fn ptxas() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/nvidia/nvidia/cu13/bin/ptxas")
}

/// Assembles one text with the least optimisation: what is accepted does not depend on it.
fn assemble(chip: &str, ptx: &str) -> Result<(), String> {
    assemble_at("-O0", chip, ptx)
}

/// Assembles one text; any word is a refusal.
pub fn assemble_at(level: &str, chip: &str, ptx: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let (source, object) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
    std::fs::write(&source, ptx).map_err(|e| e.to_string())?;
    let mut command = Command::new(ptxas());
    command.arg(level).arg("-arch").arg(chip).arg("-o").arg(&object).arg(&source);
    let out = command.output().map_err(|e| format!("{}: {e}; `cargo xtask setup` installs it", ptxas().display()))?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
}

/// Assembles many kernels as one module a chip; a refusal names the kernel.
fn all_accepted(programs: &[Program], chips: &[&str]) {
    for chip in chips {
        let modules: Vec<Module> = programs.iter().map(|p| rendered(p, chip, Buffers::Anywhere).1).collect();
        let mut all = modules[0].clone();
        all.items.extend(modules[1..].iter().flat_map(|m| m.items.clone()));
        if let Err(e) = assemble(chip, &all.to_string()) {
            panic!("{chip}: {}", e.lines().take(12).collect::<Vec<_>>().join("\n"));
        }
    }
}

const TYPES: [Scalar; 13] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
    Scalar::F64,
];

/// `out = f(inputs)` on vectors, one of a thread each; the last input's gate is open for a part of the threads.
fn program(name: &str, ins: &[Scalar], lanes: u16, f: impl Fn(&[UOp]) -> UOp) -> Program {
    const THREADS: u32 = 64;
    let lidx =
        UOp::new(Op::Special, DType::I32, [UOp::constant(DType::I32, i64::from(THREADS))], Arg::Str("lidx0".into()));
    let at = |slot: u32, t: Scalar| {
        let i = lidx.binary(Op::Mul, &UOp::constant(DType::I32, i64::from(lanes)));
        UOp::param(slot, DType::of(t), THREADS as usize * usize::from(lanes)).index(&i)
    };
    let args: Vec<UOp> = ins
        .iter()
        .enumerate()
        .map(|(k, t)| UOp::new(Op::Load, DType::of(*t).vec(lanes), [at(k as u32 + 1, *t)], Arg::None))
        .collect();
    let value = f(&args);
    let mut list = List::default();
    list.add(&at(0, value.dtype().scalar).store(&value, &[]));
    list.program(&format!("{name}_x{lanes}"), THREADS)
}

/// Every op on every type that it is defined for.
fn every_op(lanes: u16) -> Vec<Program> {
    let mut out = vec![];
    for t in TYPES {
        let (int, float) = (t.is_int(), matches!(t, Scalar::F32 | Scalar::F64));
        let mut binary = |op: Op, on: bool| {
            if on {
                out.push(program(&format!("{op:?}_{t}"), &[t, t], lanes, |a| a[0].binary(op, &a[1])));
            }
        };
        let sums = int || float || t == Scalar::F16;
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Max] {
            binary(op, sums || t == Scalar::Bool);
        }
        for op in [Op::And, Op::Or, Op::Xor] {
            binary(op, int || t == Scalar::Bool);
        }
        for op in [Op::Shl, Op::Shr, Op::CDiv, Op::CMod] {
            binary(op, int);
        }
        binary(Op::FDiv, float);
        for op in [Op::CmpLt, Op::CmpNe, Op::CmpEq] {
            binary(op, true);
        }
        for op in [Op::Neg, Op::Sqrt, Op::Recip, Op::Trunc] {
            if float || sums && op == Op::Neg {
                out.push(program(&format!("{op:?}_{t}"), &[t], lanes, |a| UOp::alu(op, [a[0].clone()])));
            }
        }
        if sums {
            out.push(program(&format!("MulAcc_{t}"), &[t, t, t], lanes, |a| UOp::alu(Op::MulAcc, a.to_vec())));
        }
        out.push(program(&format!("Where_{t}"), &[Scalar::Bool, t, t], lanes, |a| UOp::alu(Op::Where, a.to_vec())));
        out.push(program(&format!("copy_{t}"), &[t], lanes, |a| a[0].clone()));
        for to in TYPES {
            out.push(program(&format!("Cast_{t}_{to}"), &[t], lanes, |a| a[0].cast(DType::of(to).vec(lanes))));
            if t.size_bytes() == to.size_bytes() {
                out.push(program(&format!("Bitcast_{t}_{to}"), &[t], lanes, |a| {
                    a[0].bitcast(DType::of(to).vec(lanes))
                }));
            }
        }
    }
    out
}

#[test]
fn every_op_on_every_type_is_accepted_on_every_chip() {
    let programs = every_op(1);
    assert!(programs.len() > 300, "{}", programs.len());
    all_accepted(&programs, &CHIPS);
}

#[test]
fn vectors_of_every_type_are_accepted() {
    for lanes in [2, 4, 8, 16] {
        let programs: Vec<Program> = TYPES
            .iter()
            .flat_map(|t| {
                let copy = program(&format!("copy_{t}"), &[*t], lanes, |a| a[0].clone());
                let less = program(&format!("less_{t}"), &[*t, *t], lanes, |a| a[0].lt(&a[1]));
                [copy, less]
            })
            .collect();
        all_accepted(&programs, &["sm_75", "sm_90a"]);
    }
}

#[test]
fn compiled_kernels_are_accepted() {
    for chip in CHIPS {
        let mut programs = vec![];
        for (k, (_, ast)) in kernels().into_iter().enumerate() {
            for opts in ["", "heuristic"] {
                let mut p = compiled(&ast, chip, opts);
                p.name = format!("k{k}_{opts}");
                programs.push(p);
            }
        }
        if chip != "sm_75" {
            for (k, t) in [DType::F16, DType::BF16].into_iter().enumerate() {
                for (j, opts) in ["TC(0)", "TC(0) UPCAST(0,2) UPCAST(0,2)", "heuristic"].iter().enumerate() {
                    let mut p = compiled(&half_matmul(t, (128, 64, 64)), chip, opts);
                    p.name = format!("mma{k}_{j}");
                    programs.push(p);
                }
            }
        }
        all_accepted(&programs, &[chip]);
    }
}

#[test]
fn what_is_wrong_is_not_accepted() {
    // The judge judges: a register of the wrong size.
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .b64 %rd<2>;\nadd.s32 %rd0, %rd1, 1;\nret;\n}\n";
    assert!(assemble("sm_90", text).is_err());
}
