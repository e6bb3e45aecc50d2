//! What a device can do, measured by a sum and a product of Tensors.

use super::Recorder;
use crate::device::time_command;
use crate::engine::{Error, Options, Session, launch};
use crate::explorer::Limit;
use crate::schedule::{self, ScheduleItem};
use crate::tensor::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Runs of each; the fastest counts.
const RUNS: u32 = 5;
// TIMEOUT: a device that needs longer for 64 MB or 2 GFLOP is not measured.
const PATIENCE: Duration = Duration::from_secs(5);
/// Elements that are read and written.
const LONG: usize = 8 << 20;
/// Rows and columns of the product.
const SIDE: usize = 1024;

impl Session {
    /// Measures what the devices of the record can do, for the roofline. Software GPUs are left out: their times say
    /// nothing.
    ///
    /// # Errors
    /// Errors of the measuring kernels.
    pub fn record_limits(&self) -> Result<(), Error> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        for d in self.open_devices() {
            if d.runs_kernels() && !d.is_software && !schedule::is_data(&d.name) {
                let limit = self.limit(&d.name)?;
                recorder.add_limit(limit);
            }
        }
        Ok(())
    }

    fn limit(&self, device: &str) -> Result<Limit, Error> {
        let apart = Options { viz: None, profile: None, debug: 0, beam: 0, validate: false, ..self.options.clone() };
        let apart = Session::open(apart)?;
        let _in_it = apart.enter();
        let long = Tensor::zeros([LONG]).to(device).contiguous();
        let side = Tensor::zeros([SIDE, SIDE]).to(device).contiguous();
        Tensor::realize_all(&[&long, &side])?;
        let sum_ns = fastest_ns(&apart, &(&long + 1.0))?;
        let product_ns = fastest_ns(&apart, &side.matmul(&side))?;
        let (bytes, flops) = ((2 * 4 * LONG) as f64, 2.0 * (SIDE as f64).powi(3));
        Ok(Limit {
            device: device.into(),
            gflops: flops / product_ns as f64,
            gbytes: bytes / sum_ns as f64,
            how: format!("x + 1 over {} MiB of f32, and a product of {SIDE} x {SIDE} f32", (LONG * 4) >> 20),
        })
    }
}

/// The time of the longest kernel of a value that is in memory but for its last step.
fn fastest_ns(s: &Arc<Session>, value: &Tensor) -> Result<u64, Error> {
    let schedule = value.schedule()?;
    value.realize()?;
    let mut total = 0;
    for item in &schedule.items {
        let ScheduleItem::Kernel { ast, bufs, device, .. } = item else { continue };
        let open = s.device(device)?;
        let Some(kernel) = s.kernels(&open, &[ast])?.pop() else { continue };
        let place = |p: &crate::codegen::ParamInfo| {
            let buffer = bufs.get(p.slot as usize).and_then(crate::uop::UOp::buffer_ref);
            let buffer = buffer.ok_or_else(|| Error::Internal("a kernel without a buffer".into()))?;
            s.place(buffer, p.dtype.scalar.size_bytes())
        };
        let none = |v: &crate::uop::UOp| Err(Error::Internal(format!("{v:?} has no value")));
        let args = launch::arguments((&kernel.program, &kernel.binary), place, none)?;
        let command = launch::command(&kernel.kernel, (&kernel.program, &kernel.binary), args);
        let times = time_command(open.device.as_ref(), &command, RUNS, PATIENCE)?;
        total += times.into_iter().min().unwrap_or(0);
    }
    Ok(total.max(1))
}

impl Recorder {
    fn add_limit(&self, limit: Limit) {
        let mut state = self.state();
        state.record.limits.retain(|l| l.device != limit.device);
        state.record.limits.push(limit);
    }
}
