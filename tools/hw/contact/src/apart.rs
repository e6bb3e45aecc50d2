//! Programs that are run to their end, or to a deadline.

use crate::failure::{Failure, fail};
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a program ended, and its output.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

/// Runs a program; at the deadline it is killed.
///
/// # Errors
/// It cannot start, or did not end in time.
pub fn run_until(mut command: Command, deadline: Instant) -> Result<Ended, Failure> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(fail)?;
    let (out, err) = (reader(process.stdout.take()), reader(process.stderr.take()));
    let status = loop {
        if let Some(status) = process.try_wait().map_err(fail)? {
            break status;
        }
        if Instant::now() >= deadline {
            process.kill().map_err(fail)?;
            process.wait().map_err(fail)?;
            return Err("it was cut off at the deadline".into());
        }
        // TIMEOUT: a poll now and then.
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok(Ended { status, out: out.join().unwrap_or_default(), err: err.join().unwrap_or_default() })
}

/// Reads a pipe while the program runs, which a full pipe would stop.
fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _as_far_as_it_goes = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    })
}
