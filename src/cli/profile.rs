//! `doorbell profile`: what took the time of a run, as text or JSON; the difference of two runs.

use super::viz::{page_of, run_command};
use super::{CliError, Output};
use clap::Args;
use doorbell::explorer::{Record, diff, report};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    /// Compare two pages of `doorbell viz` or `doorbell profile --out`
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["out", "command"])]
    diff: Option<Vec<PathBuf>>,
    /// Kernels to list
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Also keep the page of the run, to look at or to compare with
    #[arg(long, value_name = "PAGE")]
    out: Option<PathBuf>,
    /// A command line of this program, such as: train --epochs 1; or any other program that uses the library
    #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "diff")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &ProfileArgs, output: Output) -> Result<(), CliError> {
    let failed = |e: doorbell::explorer::ExplorerError| CliError::Failed(e.to_string());
    if let Some([before, after]) = args.diff.as_deref() {
        let of = |path: &PathBuf| report::report(&page_of(path)?).map_err(failed);
        let pairs = diff::diff(&of(before)?, &of(after)?);
        output.say(diff::to_text(&pairs, args.top).trim_end());
        output.result(&serde_json::json!({"before": before, "after": after, "kernels": diff::to_json(&pairs)}));
        return Ok(());
    }
    // `profile CMD --json` asks for the report, not for the command's result.
    let (words, output) = match args.command.split_last() {
        Some((last, words)) if last == "--json" && !words.is_empty() => (words, Output { json: true }),
        _ => (args.command.as_slice(), output),
    };
    let folder = tempfile::tempdir().map_err(|e| CliError::CouldNotRun(format!("a folder for the record: {e}")))?;
    let page = args.out.clone().unwrap_or_else(|| folder.path().join("run.html"));
    let succeeded = run_command(words, &page, (false, false), output)?;
    let record: Record = page_of(&page)?;
    let report = report::report(&record).map_err(failed)?;
    output.say(report.to_text(args.top).trim_end());
    for note in record.notes.iter().filter(|n| !n.contains("VIZ_STEPS")) {
        output.say(&format!("note: {note}"));
    }
    if let Some(kept) = &args.out {
        output.say(&format!("the page of this run is {}", kept.display()));
    }
    output.result(&report.to_json());
    if succeeded { Ok(()) } else { Err(CliError::Reported) }
}
