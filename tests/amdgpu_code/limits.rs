//! Kernels that need more registers than there are, and code longer than a branch reaches.

use super::machine::{List, Rng, check, check_on, chips, execute, listing};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::matmul;
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::engine::interp::{Vars, run_program};
use doorbell::isa::amdgpu::{Amdgpu, Limits, Target, compile_within};
use doorbell::uop::{Arg, AxisKind, DType, Op, RangeArg, Scalar, UOp};

const THREADS: u32 = 40;

fn int(v: i64) -> UOp {
    UOp::constant(DType::I32, v)
}

fn thread() -> UOp {
    UOp::new(Op::Special, DType::I32, [int(THREADS.into())], Arg::Str("lidx0".into()))
}

fn load(slot: u32, len: usize, at: &UOp) -> UOp {
    UOp::new(Op::Load, DType::I32, [UOp::param(slot, DType::I32, len).index(at)], Arg::None)
}

/// `n` values a thread, of each thread or shared by all, combined only when all are there: last first.
fn many_values(n: i64, shared: bool) -> Program {
    let mut list = List::default();
    let base = thread().binary(Op::Mul, &int(n));
    let len = if shared { n } else { n * i64::from(THREADS) };
    let place = |k| if shared { int(k) } else { base.binary(Op::Add, &int(k)) };
    let values: Vec<UOp> = (0..n).map(|k| load(1, len as usize, &place(k))).collect();
    values.iter().for_each(|v| list.add(v));
    let twist = |sum: UOp, v: &UOp| sum.binary(Op::Mul, &int(3)).binary(Op::Add, v);
    let sum = values.iter().rev().fold(int(7), twist);
    // Once more from the first on: all stay alive over the first sum.
    let sum = values.iter().fold(sum, twist);
    let to = UOp::param(0, DType::I32, THREADS as usize).index(&thread());
    list.add(&to.store(&sum.binary(Op::Xor, &thread()), &[]));
    list.program(&format!("values_{n}_{shared}"), THREADS)
}

/// Comparisons whose masks are all alive at once.
fn many_masks(n: i64) -> Program {
    let mut list = List::default();
    let x = load(1, THREADS as usize, &thread());
    let masks: Vec<UOp> = (0..n).map(|k| x.binary(Op::CmpLt, &int(3 * k - 60))).collect();
    masks.iter().for_each(|m| list.add(m));
    let sum = masks.iter().rev().enumerate().fold(int(0), |sum, (k, m)| {
        let other = &masks[(k * 7) % masks.len()];
        let v = m.binary(Op::Xor, other).select(&int(k as i64 + 1), &int(0));
        sum.binary(Op::Mul, &int(5)).binary(Op::Add, &v)
    });
    list.add(&UOp::param(0, DType::I32, THREADS as usize).index(&thread()).store(&sum, &[]));
    list.program(&format!("masks_{n}"), THREADS)
}

fn inputs(p: &Program) -> Vec<Vec<u8>> {
    let mut rng = Rng(5);
    p.params.iter().map(|q| rng.fill(Scalar::I32, q.len, true)).collect()
}

#[test]
fn more_values_than_vector_registers_go_to_scratch_and_come_back() {
    let p = many_values(300, false);
    for code in check(&p, &[inputs(&p)], &[], 0.0) {
        let text = listing(&code);
        assert!(code.spill_moves > 0 && code.kernel.spec.scratch_bytes >= 4 * 40, "{}", code.target.chip.name());
        assert!(text.contains("scratch_store") && text.contains("scratch_load"), "{text}");
    }
}

#[test]
fn more_uniform_values_than_scalar_registers_go_to_lanes_of_vector_registers() {
    let p = many_values(150, true);
    for code in check(&p, &[inputs(&p)], &[], 0.0) {
        let text = listing(&code);
        assert!(text.contains("v_writelane_b32") && text.contains("v_readlane_b32"), "{text}");
        assert_eq!(code.kernel.spec.scratch_bytes, 0, "scalar registers need no scratch");
    }
}

#[test]
fn more_masks_than_scalar_registers_are_kept_too() {
    let p = many_masks(150);
    for code in check(&p, &[inputs(&p)], &[], 0.0) {
        assert!(listing(&code).contains("v_writelane_b32"), "{}", code.target.chip.name());
    }
}

#[test]
fn a_tile_of_accumulators_beyond_the_register_file_agrees() {
    let k = matmul(20, 16, 8);
    for chip in chips() {
        let opts = OptChoice::Given(["UPCAST(0,20)", "UPCAST(0,16)"].iter().map(|o| o.parse().unwrap()).collect());
        let p = codegen::compile(&k, Amdgpu::new(chip).target(), &opts, false).unwrap();
        let code = check_on(&[chip], &p, &[buffers(&k, 1)], &[], 1e-5).remove(0);
        assert!(code.kernel.spec.scratch_bytes > 0, "{}: {} vector registers", chip.name(), code.kernel.spec.vgprs);
    }
}

#[test]
fn few_registers_give_the_same_results_and_stay_within_the_limit() {
    let all = Limits::default();
    for (p, limits) in [
        (many_values(60, false), Limits { vgprs: 32, ..all }),
        (many_values(60, true), Limits { sgprs: 32, ..all }),
        (many_masks(60), Limits { vgprs: 64, sgprs: 32, ..all }),
    ] {
        for chip in chips() {
            let code = compile_within(&p, Target::of(chip), limits).unwrap();
            assert!(code.spill_moves > 0, "{} on {}", p.name, chip.name());
            let spec = &code.kernel.spec;
            assert!(spec.vgprs <= u32::from(limits.vgprs), "{} on {}: {}", p.name, chip.name(), spec.vgprs);
            let (mut want, mut got) = (inputs(&p), inputs(&p));
            run_program(&p, &mut want, &Vars::new()).unwrap();
            execute(&code, &p, &mut got, &[]).unwrap_or_else(|e| panic!("{} on {}: {e}", p.name, chip.name()));
            assert_eq!(got, want, "{} on {}", p.name, chip.name());
        }
    }
}

/// A loop of `n` iterations (a variable) with that many operations in it.
fn long_loop(steps: i64) -> Program {
    let mut list = List::default();
    let n = UOp::new(Op::Var, DType::I32, [], Arg::Var("n".into(), 0, 9));
    let first = load(1, THREADS as usize, &thread());
    let acc = UOp::tagged(Op::Acc, DType::I32, [first], Arg::None, Some(0));
    list.add(&acc);
    let range = RangeArg { id: 0, sub: 0, kind: AxisKind::Reduce };
    let iteration = UOp::new(Op::Range, DType::I32, [n], Arg::Range(range));
    list.add(&iteration);
    let value = (0..steps).fold(acc.clone(), |v, k| {
        let c = int(0x1234_5678 ^ (k * 0x9e37));
        if k % 2 == 0 { v.binary(Op::Add, &c) } else { v.binary(Op::Xor, &c) }
    });
    let set = UOp::new(Op::SetAcc, DType::VOID, [acc.clone(), value], Arg::None);
    list.add(&set);
    let end = UOp::new(Op::End, DType::VOID, [iteration], Arg::None);
    list.add(&end);
    let after = UOp::new(Op::After, DType::I32, [acc, end], Arg::None);
    list.add(&UOp::param(0, DType::I32, THREADS as usize).index(&thread()).store(&after, &[]));
    list.program("long_loop", THREADS)
}

#[test]
fn a_loop_longer_than_a_branch_reaches_runs_and_is_skipped() {
    let limits = Limits { branch_dwords: 200, ..Limits::default() };
    let p = long_loop(200);
    for chip in chips() {
        let code = compile_within(&p, Target::of(chip), limits).unwrap();
        assert_eq!(listing(&code).matches("s_setpc_b64").count(), 2, "one forward, one back\n{}", listing(&code));
        for turns in [0, 1, 3] {
            let (mut want, mut got) = (inputs(&p), inputs(&p));
            run_program(&p, &mut want, &[("n".to_string(), turns)].into_iter().collect()).unwrap();
            execute(&code, &p, &mut got, &[turns]).unwrap_or_else(|e| panic!("{}: {e}", chip.name()));
            assert_eq!(got, want, "{} after {turns} turns", chip.name());
        }
    }
}

#[test]
fn limits_are_those_of_the_chip_unless_told() {
    assert_eq!(Limits::default(), Limits { vgprs: 256, sgprs: 100, branch_dwords: 32767 });
}
