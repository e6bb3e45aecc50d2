//! Running a loaded program, waiting for it, and giving up the wait.

use crate::{Program, RunError};
use doorbell_hcq::signal::Point;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A run that was started.
#[derive(Clone, Debug)]
#[must_use = "a run is done when it was waited for"]
pub struct Running {
    /// `None`: there was nothing to run.
    point: Option<Point>,
}

/// Ends waits from another thread.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<AtomicBool>);

/// How long a wait sleeps before it looks whether it was cancelled.
const SLICE: Duration = Duration::from_millis(20);

impl Canceller {
    /// Makes the present waits return `Cancelled`, or the next one if there is none. The device ends the work that it
    /// has begun; the program's memory is in use until then.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

impl Running {
    /// Whether the run is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.point.as_ref().is_none_or(Point::is_done)
    }

    /// Waits until the run is done.
    ///
    /// # Errors
    /// `Device`: at the deadline, or the device failed; with its report.
    pub fn wait(&self, timeout: Duration) -> Result<(), RunError> {
        self.point.as_ref().map_or(Ok(()), |p| Ok(p.wait(timeout)?))
    }

    /// As [`Running::wait`], until another thread cancels it.
    ///
    /// # Errors
    /// As `wait`; `Cancelled`.
    pub fn wait_or_cancel(&self, timeout: Duration, canceller: &Canceller) -> Result<(), RunError> {
        let Some(point) = &self.point else { return Ok(()) };
        let start = Instant::now();
        loop {
            if canceller.take() {
                return Err(RunError::Cancelled);
            }
            let left = timeout.saturating_sub(start.elapsed());
            match point.wait(left.min(SLICE)) {
                Err(e) if left <= SLICE || !matches!(e, doorbell_hcq::signal::WaitError::Timeout(_)) => {
                    return Err(e.into());
                }
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }
}

impl Program {
    /// Starts a run and returns without waiting for it.
    ///
    /// # Errors
    /// `NoInput`, `Variable`; `Device`.
    pub fn start(&mut self) -> Result<Running, RunError> {
        if self.is_empty() {
            return Ok(Running { point: None });
        }
        if self.list.is_none() {
            self.list = Some(self.encode()?);
            self.patches.clear();
        }
        let Some(list) = &mut self.list else { return Ok(Running { point: None }) };
        let point = list.replay(&self.patches)?;
        self.patches.clear();
        Ok(Running { point: Some(point) })
    }

    /// Runs once and waits for it.
    ///
    /// # Errors
    /// As [`Program::start`] and [`Running::wait`].
    pub fn run(&mut self) -> Result<(), RunError> {
        let patience = self.patience();
        self.start()?.wait(patience)
    }
}
