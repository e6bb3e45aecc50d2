//! `doorbell viz`: one HTML page of a run, of a recorded trace of drivers, or of two runs.

use super::serve::{INTERRUPTED, OFTEN, Server};
use super::{CliError, Output};
use clap::Args;
use doorbell::engine::session;
use doorbell::explorer::{Record, page, read};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

#[derive(Args, Debug)]
pub(crate) struct VizArgs {
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "doorbell-viz.html")]
    out: PathBuf,
    /// The page of an earlier run to compare with
    #[arg(long, value_name = "PAGE")]
    diff: Option<PathBuf>,
    /// Serve the page here while the command runs and until Ctrl-C, such as 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<SocketAddr>,
    /// Leave out rewrite steps: compiling is faster, and the file smaller
    #[arg(long)]
    no_steps: bool,
    /// A command line of this program, such as: train --epochs 1; any other program that uses the library; a page or a
    /// trace of drivers
    #[arg(value_name = "CMD|FILE", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &VizArgs, output: Output) -> Result<(), CliError> {
    let server = args.serve.map(|at| Server::start(at, &args.out, output)).transpose()?;
    let status = match file(&args.command) {
        Some(path) => {
            write(&args.out, &page::html(&of_file(path)?, None))?;
            true
        }
        None => run_command(&args.command, &args.out, (!args.no_steps, args.serve.is_some()), output)?,
    };
    let record = page_of(&args.out)?;
    if let Some(other) = &args.diff {
        write(&args.out, &page::html(&record, Some(&page_of(other)?)))?;
    }
    let len = std::fs::metadata(&args.out).map_or(0, |m| m.len());
    output.say(&format!("{}: {} kB, open it in a browser", args.out.display(), len.div_ceil(1000)));
    output.result(&serde_json::json!({
        "page": args.out, "bytes": len, "kernels": record.kernels.len(), "schedules": record.plans.len(),
        "lines": record.lines.len(), "buffers": record.buffers.len(),
    }));
    if let Some(server) = server {
        server.wait();
    }
    if status { Ok(()) } else { Err(CliError::Reported(1)) }
}

/// The file that is to be shown, if the words are no command.
fn file(words: &[OsString]) -> Option<&Path> {
    let [word] = words else { return None };
    let is_command = word.to_str().is_some_and(super::is_command);
    let path = Path::new(word);
    let is_text_of_ours = path.extension().is_some_and(|e| e == "html" || e == "trace");
    (!is_command && is_text_of_ours && path.is_file()).then_some(path)
}

fn of_file(path: &Path) -> Result<Record, CliError> {
    if path.extension().is_some_and(|e| e == "html") {
        return page_of(path);
    }
    of_trace(path)
}

/// A trace of drivers has calls and packets, and nothing else.
#[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
fn of_trace(path: &Path) -> Result<Record, CliError> {
    use doorbell::explorer::{Part, Run, VERSION};
    let events = super::trace::read(path)?;
    let run = Run { command: path.display().to_string(), ..Run::default() };
    let parts = vec![Part::of("calls", &super::trace::calls(&events))];
    Ok(Record {
        version: VERSION,
        run,
        parts,
        notes: vec!["a trace of drivers: only their calls are known".into()],
        ..Record::default()
    })
}

#[cfg(not(all(target_os = "linux", feature = "amd", feature = "nv")))]
fn of_trace(path: &Path) -> Result<Record, CliError> {
    Err(CliError::CouldNotRun(format!("{}: this build reads no traces of drivers", path.display())))
}

/// Runs a command that writes its page to `out`, with rewrite steps or not, and often or at its end; whether it
/// succeeded.
pub(crate) fn run_command(
    words: &[OsString],
    out: &Path,
    (steps, often): (bool, bool),
    output: Output,
) -> Result<bool, CliError> {
    let mut child = child(words)?;
    let out = std::path::absolute(out).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", out.display())))?;
    // Removes the page of an earlier run.
    match std::fs::remove_file(&out) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(CliError::CouldNotRun(format!("{}: {e}", out.display())));
        }
        _ => {}
    }
    // Where the page lies is said by this process, if it stays there.
    child.env("VIZ", &out).env("VIZ_STEPS", if steps { "1" } else { "0" }).env("VIZ_SAY", "0");
    if often {
        child.env(OFTEN, "1");
    }
    if output.json {
        child.stdout(Stdio::from(std::io::stderr()));
    }
    // Ctrl-C is for the command, which writes its page then.
    let _there_already = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let program = child.get_program().to_string_lossy().into_owned();
    let status = child.status().map_err(|e| CliError::CouldNotRun(format!("{program}: {e}")))?;
    if !out.exists() {
        let why = "it computed nothing, failed before, or does not use this library";
        return Err(CliError::Failed(format!("{program} has written no page: {why}")));
    }
    Ok(status.success())
}

/// Commands of this program are run by it, on the device that was asked for.
fn child(words: &[OsString]) -> Result<Command, CliError> {
    let (name, rest) = words.split_first().ok_or_else(|| CliError::Usage("no command to run".into()))?;
    if name.to_str().is_some_and(|n| super::is_command(n) || n.starts_with('-')) {
        let own = std::env::current_exe().map_err(|e| CliError::CouldNotRun(format!("this program: {e}")))?;
        let mut c = Command::new(own);
        c.arg("--device").arg(&session()?.options.device).args(words);
        return Ok(c);
    }
    let mut c = Command::new(name);
    c.args(rest).env("DEV", &session()?.options.device);
    Ok(c)
}

/// The record of a page.
pub(crate) fn page_of(path: &Path) -> Result<Record, CliError> {
    let could_not = |e: String| CliError::CouldNotRun(format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| could_not(e.to_string()))?;
    read::record(&text).map_err(|e| could_not(e.to_string()))
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    std::fs::write(path, text).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}
