//! Random tensor programs on the device against the reference interpreter.
//!
//! `RANDOM_GRAPHS=n` sets how many programs this binary runs, `SEED=s` runs the one of that seed. A failure is shrunk
//! and printed as program text. Should the process die, the seeds being run lie in `random_graphs_*.seed` in cargo's
//! target/tmp.

mod generate;
mod program;
mod run;
mod shrink;

/// Programs of one run of this binary unless `RANDOM_GRAPHS` sets another number.
// Sized for CI: four threads' worth at opt-level 1 take under three minutes of one core.
const COUNT: u64 = 10_000;

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
