//! Parts of rungs in a process of their own: faults that end a device, work at the same time, a process to be killed.
//!
//! A child opens everything anew, does its part, and prints one line: `worked`, or the error that ended it.

use crate::failure::{Failure, fail};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A running part; it is killed when its handle is dropped.
pub struct Part {
    name: String,
    process: Child,
}

/// Parts that were started: each has a trace of its own.
static STARTED: AtomicU32 = AtomicU32::new(0);

impl Drop for Part {
    fn drop(&mut self) {
        let (_had_ended, _nobody_to_tell) = (self.process.kill(), self.process.wait());
    }
}

impl Part {
    /// Starts this program again for a part on `device`, with a trace file next to `trace` and the program's own
    /// `options`.
    ///
    /// # Errors
    /// The process cannot start.
    pub fn start(part: &str, device: &str, trace: &Path, options: &[OsString]) -> Result<Self, Failure> {
        let own = std::env::current_exe().map_err(fail)?;
        let mut file = trace.to_path_buf().into_os_string();
        file.push(format!(".{part}{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(own);
        command.arg("--device").arg(device).arg("--child").arg(part).arg("--trace").arg(file).args(options);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
        Ok(Self { name: part.into(), process })
    }

    /// What it printed at its end.
    ///
    /// # Errors
    /// It did not end in time; it is killed then.
    pub fn end(mut self, patience: Duration) -> Result<String, Failure> {
        let deadline = Instant::now() + patience;
        while self.process.try_wait().map_err(fail)?.is_none() {
            if Instant::now() >= deadline {
                self.process.kill().map_err(fail)?;
                self.process.wait().map_err(fail)?;
                return Err(format!("{}: its process did not end in {} s", self.name, patience.as_secs()).into());
            }
            // TIMEOUT: a poll now and then.
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        if let Some(out) = &mut self.process.stdout {
            out.read_to_string(&mut said).map_err(fail)?;
        }
        Ok(said.trim().to_string())
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The process cannot be killed, or had ended.
    pub fn kill(mut self) -> Result<(), Failure> {
        if let Some(status) = self.process.try_wait().map_err(fail)? {
            return Err(format!("{}: it ended by itself ({status}) before it was killed", self.name).into());
        }
        self.process.kill().map_err(fail)?;
        self.process.wait().map_err(fail)?;
        Ok(())
    }
}
