//! Random tensor programs compiled for AVX2, whatever the machine has. See `tests/random_graphs`; the options
//! hold for a process, so this is a program of its own.

#[path = "random_graphs/generate.rs"]
mod generate;
#[path = "random_graphs/program.rs"]
mod program;
#[path = "random_graphs/run.rs"]
mod run;
#[path = "random_graphs/shrink.rs"]
mod shrink;

use doorbell::engine::{Options, install};

const COUNT: u64 = 2000;

fn options() {
    // Every node that a rewrite rule makes is checked here.
    install(Options { arch: Some("avx2".into()), spec: 2, ..Options::default() }).unwrap();
}

#[test]
fn random_programs_agree_on_avx2_first_half() {
    options();
    run::quarter(4, 2 * COUNT);
}

#[test]
fn random_programs_agree_on_avx2_second_half() {
    options();
    run::quarter(5, 2 * COUNT);
}
