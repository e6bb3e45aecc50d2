//! `doorbell trace`: the traffic between a program and the kernel's GPU drivers, written to a file or shown from one.

use super::{CliError, Output};
use clap::Args;
use doorbell::device::Registry;
use doorbell::engine::session;
use doorbell_ioctl::trace::{Event, FileSink, Sink, Trace, leftovers, read_trace};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Show a trace instead of making one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "command"])]
    show: Option<PathBuf>,
    /// Where to
    #[arg(long, value_name = "FILE", default_value = "doorbell.trace")]
    out: PathBuf,
    /// A command line of this program, as: launch k.co --kernel k
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "show")]
    command: Vec<String>,
}

/// The file of `--trace`, written by every port that is opened.
#[derive(Clone)]
pub struct Writer(Arc<Mutex<FileSink<BufWriter<File>>>>);

impl Sink for Writer {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).event(event);
    }

    fn flush(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Traces all drivers that are opened from now on.
pub fn start(path: &Path) -> Result<Writer, CliError> {
    let failed = |e: std::io::Error| CliError::CouldNotRun(format!("{}: {e}", path.display()));
    let file = File::create(path).map_err(failed)?;
    let writer = Writer(Arc::new(Mutex::new(FileSink::new(BufWriter::new(file)).map_err(failed)?)));
    let sink = writer.clone();
    Registry::global().set_wrap(Box::new(move |port| Trace::new(port, Box::new(sink.clone()))));
    Ok(writer)
}

/// Closes the devices, so that their end is in the trace too, and the trace.
pub fn finish(mut writer: Writer) -> Result<(), CliError> {
    let closed = Registry::global().close_all();
    writer.flush();
    if let Some(kind) = writer.0.lock().unwrap_or_else(PoisonError::into_inner).failed() {
        return Err(CliError::Failed(format!("the trace ends early: {kind}")));
    }
    closed.map_err(|e| CliError::Failed(e.to_string()))
}

pub fn run(args: &TraceArgs, output: Output) -> Result<(), CliError> {
    if let Some(path) = &args.show {
        return show(path, output);
    }
    let program = std::env::current_exe().map_err(|e| CliError::CouldNotRun(format!("this program: {e}")))?;
    let mut run = Command::new(program);
    run.arg("--device").arg(&session().options.device).arg("--trace").arg(&args.out);
    let status = run.args(&args.command).status();
    let status = status.map_err(|e| CliError::CouldNotRun(format!("this program: {e}")))?;
    let events = read(&args.out)?;
    output.say(&format!("{} calls in {}", events.len(), args.out.display()));
    output.result(&summary(&events));
    if status.success() { Ok(()) } else { Err(CliError::Reported) }
}

fn read(path: &Path) -> Result<Vec<Event>, CliError> {
    let file = File::open(path).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))?;
    read_trace(file).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

fn show(path: &Path, output: Output) -> Result<(), CliError> {
    let events = read(path)?;
    events.iter().for_each(|event| output.say(&event.to_string()));
    for left in leftovers(&events) {
        output.say(&format!("open at the end: {left}"));
    }
    output.result(&summary(&events));
    Ok(())
}

fn summary(events: &[Event]) -> serde_json::Value {
    serde_json::json!({"calls": events.len(), "open_at_end": leftovers(events)})
}
