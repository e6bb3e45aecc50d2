//! `doorbell bench versus PROGRAM`: this program and another one in turns.

use super::{CliError, Output, judged, say_comparison, seconds, share, until_interrupted};
use clap::Args;
use doorbell_bench::compare::{Comparison, Limits};
use doorbell_bench::paired::{self, LOOKS, Side};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Args, Debug)]
pub(crate) struct VersusArgs {
    /// The doorbell program of before
    #[arg(value_name = "PROGRAM")]
    before: PathBuf,
    /// Cases whose name contains one of these words (all without any)
    #[arg(value_name = "WORD")]
    only: Vec<String>,
    /// Seconds of samples for a case in each process
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = seconds)]
    budget: f64,
    /// Most pairs of processes: a case is judged after 12, 24, 48, 96 and 192 of them
    #[arg(long, value_name = "N", default_value_t = LOOKS[LOOKS.len() - 1] as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// A change below this share is of no interest
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    least: f64,
    /// Small sizes and few samples
    #[arg(long)]
    quick: bool,
}

/// Progress and results for a person.
struct Live {
    output: Output,
    is_terminal: bool,
    stop: Arc<AtomicBool>,
}

impl paired::Watch for Live {
    fn begins(&mut self, pair: usize, cases: usize) {
        if self.is_terminal {
            eprint!("\r\x1b[Kpair {}, {cases} cases", pair + 1);
        }
    }
    fn judged(&mut self, comparison: &Comparison) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
        say_comparison(comparison, self.output);
    }
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs the command.
pub(crate) fn run(args: &VersusArgs, devices: &str, output: Output) -> Result<(), CliError> {
    let own = std::env::current_exe().map_err(|e| CliError::CouldNotRun(format!("this program's own path: {e}")))?;
    let budget = args.budget.to_string();
    let mut arguments: Vec<String> = ["bench", "run", "--json", "--budget", &budget].map(str::to_owned).into();
    arguments.extend(args.quick.then(|| "--quick".to_owned()));
    arguments.extend(["--device".to_owned(), devices.to_owned()]);
    let side = |program: PathBuf| Side { program, arguments: arguments.clone() };
    let (before, now) = (side(args.before.clone()), side(own));
    let mut live = Live { output, is_terminal: std::io::stderr().is_terminal(), stop: until_interrupted() };
    let limits = Limits { least: args.least, ..Limits::default() };
    let compared = paired::run([&before, &now], &args.only, args.pairs as usize, limits, &mut live);
    let compared = compared.map_err(|e| CliError::CouldNotRun(e.to_string()))?;
    judged(&compared, output)
}
