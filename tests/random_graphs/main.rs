//! Random tensor programs on the device against the reference interpreter.
//!
//! `RANDOM_GRAPHS=n` sets how many programs this binary runs, `SEED=s` runs the one of that seed. A failure is shrunk
//! and printed as program text. Should the process die, the seeds being run lie in `random_graphs_*.seed` in cargo's
//! target/tmp.

mod generate;
mod program;
mod run;
mod shrink;
mod wider;

use doorbell::engine::{Options, Session};
use doorbell::uop::{Op, OpSet, spec::Stage};

/// Programs of one run of this binary unless `RANDOM_GRAPHS` sets another number.
// Sized for CI: four threads' worth at opt-level 1 take under three minutes of one core.
const COUNT: u64 = 10_000;
/// The same for each half of a session with other options.
const HALF: u64 = 4000;

#[test]
fn random_programs_agree_with_the_interpreter_first_quarter() {
    run::quarter(0, COUNT);
}

#[test]
fn random_programs_agree_with_the_interpreter_second_quarter() {
    run::quarter(1, COUNT);
}

#[test]
fn random_programs_agree_with_the_interpreter_third_quarter() {
    run::quarter(2, COUNT);
}

#[test]
fn random_programs_agree_with_the_interpreter_last_quarter() {
    run::quarter(3, COUNT);
}

/// A quarter of the programs in a session of its own, on the CPU.
fn quarter_with(part: u64, options: Options) {
    let session = Session::open(options).unwrap();
    let _in_it = session.enter();
    run::quarter(part, HALF);
}

fn without_opts() -> Options {
    Options { noopt: true, ..Options::default() }
}

/// For AVX2 whatever the machine has; every node that a rewrite rule makes is checked too.
fn avx2() -> Options {
    Options { arch: Some("avx2".into()), spec: 2, ..Options::default() }
}

#[test]
fn random_programs_agree_without_opts_first_half() {
    quarter_with(4, without_opts());
}

#[test]
fn random_programs_agree_without_opts_second_half() {
    quarter_with(5, without_opts());
}

#[test]
fn random_programs_agree_on_avx2_first_half() {
    quarter_with(4, avx2());
}

#[test]
fn random_programs_agree_on_avx2_second_half() {
    quarter_with(5, avx2());
}

/// Of the ops of a tensor graph those that random programs leave out, and why.
const LEFT_OUT: OpSet = OpSet::of(&[
    // Variables are sizes: `tests/symbolic`.
    Op::Var,
    Op::Bind,
    // Arguments of cached graphs, roots, and order between effects: made by the engine.
    Op::Param,
    Op::Sink,
    Op::After,
    // Made of long attentions only: `tests/schedule`.
    Op::Fused,
    // A user's kernel: `tests/stumbles.rs`.
    Op::Custom,
    // Random numbers, whose seed is a counter in memory: `tests/ops_numpy`.
    Op::Threefry,
    // Made by rules of kernels, never by a function of Tensors.
    Op::MulAcc,
    Op::Ldexp,
]);

#[test]
fn random_programs_contain_every_op() {
    let mut seen = OpSet::NONE;
    for seed in 0..2000 {
        for t in generate::program(seed, generate::SIZES, run::STEPS).build() {
            seen = seen.union(OpSet::of_nodes(&t.uop().unwrap().toposort()));
        }
    }
    let absent = Stage::Tensor.ops().minus(seen).minus(LEFT_OUT);
    assert!(absent.is_empty(), "no program contains {absent:?}");
}
