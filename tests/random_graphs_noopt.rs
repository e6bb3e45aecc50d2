//! Random tensor programs compiled without optimisation of loops. See `tests/random_graphs`; the options
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
    install(Options { noopt: true, ..Options::default() }).unwrap();
}

#[test]
fn random_programs_agree_without_opts_first_half() {
    options();
    run::quarter(4, 2 * COUNT);
}

#[test]
fn random_programs_agree_without_opts_second_half() {
    options();
    run::quarter(5, 2 * COUNT);
}
