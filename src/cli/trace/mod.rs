//! `doorbell trace` and `doorbell replay`: record, show and replay the traffic between a program and the kernel's GPU
//! drivers, or the messages to Metal.

mod packets;
mod play;

pub(crate) use play::{ReplayArgs, run as replay};

use super::{CliError, Output};
use clap::Args;
use doorbell::device::Registry;
use doorbell::engine::session;
use doorbell::explorer::Calls;
use doorbell_ioctl::trace::{Event, FileSink, Log, Sink, Trace, What, leftovers, read_trace};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Args, Debug)]
pub(crate) struct TraceArgs {
    /// Show a trace instead of recording one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["out", "memory", "command"])]
    show: Option<PathBuf>,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "doorbell.trace")]
    out: PathBuf,
    /// Also record the memory shared by host and GPU, so that `doorbell replay` can replay the run
    #[arg(long)]
    memory: bool,
    /// A command line of this program, such as: launch k.co --kernel k; or of any other program
    #[arg(value_name = "CMD", trailing_var_arg = true, allow_hyphen_values = true, required_unless_present = "show")]
    command: Vec<OsString>,
}

/// The library that traces other programs.
const PRELOAD: &str = "libdoorbell_preload.so";

/// The file of `--trace` or `--record`, to which every opened port writes.
#[derive(Clone)]
pub(crate) struct Writer(Arc<Mutex<FileSink<BufWriter<File>>>>);

impl Sink for Writer {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).event(event);
    }

    fn flush(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Traces all drivers that are opened from now on; with `records`, also the memory shared by host and GPU.
pub(crate) fn start(path: &Path, records: bool) -> Result<Writer, CliError> {
    let failed = |e: std::io::Error| CliError::CouldNotRun(format!("{}: {e}", path.display()));
    let file = File::create(path).map_err(failed)?;
    let writer = Writer(Arc::new(Mutex::new(FileSink::new(BufWriter::new(file)).map_err(failed)?)));
    wrap(&writer, records);
    Ok(writer)
}

/// Puts a trace around every port, and around the messages of every device, that is opened from now on.
fn wrap<S: Sink + Clone + Sync + 'static>(sink: &S, records: bool) {
    let of_ports = sink.clone();
    let make = if records { Trace::recording } else { Trace::new };
    Registry::global().set_wrap(Box::new(move |port| make(port, Box::new(of_ports.clone()))));
    #[cfg(feature = "metal")]
    {
        use doorbell_ioctl::trace::MessageTrace;
        let of_messages = sink.clone();
        let make = if records { MessageTrace::recording } else { MessageTrace::new };
        Registry::global().set_tap_messages(Box::new(move || Box::new(make(Box::new(of_messages.clone())))));
    }
}

/// Closes the devices, so that the trace includes this, and then the trace.
pub(crate) fn finish(mut writer: Writer) -> Result<(), CliError> {
    let closed = Registry::global().close_all();
    writer.flush();
    if let Some(kind) = writer.0.lock().unwrap_or_else(PoisonError::into_inner).failed() {
        return Err(CliError::Failed(format!("the trace ends early: {kind}")));
    }
    closed.map_err(|e| CliError::Failed(e.to_string()))
}

/// Keeps the calls of all drivers that are opened from now on; with `packets`, also the memory that packets lie in.
pub(crate) fn keep(packets: bool) -> Log {
    let log = Log::default();
    wrap(&log, packets);
    log
}

/// The packets of each doorbell as text; none if the memory was not recorded.
fn submitted(events: &[Event]) -> std::vec::IntoIter<Vec<String>> {
    let is_recording = events.iter().any(|e| matches!(e.what, What::Memory { .. }));
    if is_recording { packets::of_doorbells(events) } else { Vec::new() }.into_iter()
}

/// Calls that a page shows at most.
const MOST_CALLS: usize = 50_000;

/// Calls as text with named fields, and the packets behind each doorbell.
pub(crate) fn calls(events: &[Event]) -> Calls {
    let mut submitted = submitted(events);
    let mut all = Calls::default();
    for event in events.iter().take(MOST_CALLS) {
        if let What::Memory { .. } | What::Computed { .. } = event.what {
            continue;
        }
        let next = if let What::Doorbell { .. } = event.what { submitted.next() } else { None };
        all.at_ns.push(event.moment.start_ns);
        all.length_ns.push(event.moment.length_ns);
        all.text.push(event.what.to_string());
        all.packets.push(next.unwrap_or_default());
    }
    all
}

pub(crate) fn run(args: &TraceArgs, output: Output) -> Result<(), CliError> {
    if let Some(path) = &args.show {
        return show(path, output);
    }
    let mut child = child(args)?;
    // Removes the file of an earlier run.
    match std::fs::remove_file(&args.out) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(CliError::CouldNotRun(format!("{}: {e}", args.out.display())));
        }
        _ => {}
    }
    let program = child.get_program().to_string_lossy().into_owned();
    let status = child.status().map_err(|e| CliError::CouldNotRun(format!("{program}: {e}")))?;
    if !args.out.exists() {
        return Err(CliError::Failed(format!(
            "{program} has left no trace: it opened no GPU driver, or could not be traced"
        )));
    }
    let events = read(&args.out)?;
    output.say(&format!("{} calls in {}", events.len(), args.out.display()));
    output.result(&summary(&events));
    if status.success() { Ok(()) } else { Err(CliError::Reported) }
}

/// Commands of this program trace themselves; other programs get the preload library.
fn child(args: &TraceArgs) -> Result<Command, CliError> {
    let (name, rest) = args.command.split_first().ok_or_else(|| CliError::Usage("no command to trace".into()))?;
    let own = std::env::current_exe().map_err(|e| CliError::CouldNotRun(format!("this program: {e}")))?;
    if name.to_str().is_some_and(|n| super::is_command(n) || n.starts_with('-')) {
        let mut c = Command::new(own);
        let how = if args.memory { "--record" } else { "--trace" };
        c.arg("--device").arg(&session()?.options.device).arg(how).arg(&args.out).args(&args.command);
        return Ok(c);
    }
    if args.memory {
        return Err(CliError::Usage(
            "--memory works for doorbell's own commands; other programs are traced only".into(),
        ));
    }
    let library = own.parent().unwrap_or(Path::new(".")).join(PRELOAD);
    let library = std::env::var_os("DOORBELL_PRELOAD").map_or(library, PathBuf::from);
    if !library.exists() {
        let how = "build it with `cargo build --release -p doorbell-preload`, or name it in DOORBELL_PRELOAD";
        return Err(CliError::CouldNotRun(format!("{} is needed to trace other programs: {how}", library.display())));
    }
    let absolute =
        |p: &Path| std::path::absolute(p).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", p.display())));
    let mut c = Command::new(name);
    c.args(rest).env("LD_PRELOAD", absolute(&library)?).env("DOORBELL_TRACE", absolute(&args.out)?);
    Ok(c)
}

pub(crate) fn read(path: &Path) -> Result<Vec<Event>, CliError> {
    let file = File::open(path).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))?;
    read_trace(file).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

/// Shows the calls as text and, for a recording, the packets of each doorbell after it.
fn show(path: &Path, output: Output) -> Result<(), CliError> {
    let events = read(path)?;
    let mut submitted = submitted(&events);
    for event in &events {
        output.say(&event.to_string());
        let next = if let What::Doorbell { .. } = event.what { submitted.next() } else { None };
        for line in next.unwrap_or_default() {
            output.say(&format!("        {line}"));
        }
    }
    for left in leftovers(&events) {
        output.say(&format!("open at the end: {left}"));
    }
    output.result(&summary(&events));
    Ok(())
}

fn summary(events: &[Event]) -> serde_json::Value {
    serde_json::json!({"calls": events.len(), "open_at_end": leftovers(events)})
}
