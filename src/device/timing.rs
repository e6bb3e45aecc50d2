//! The time of one command on a device, for kernel search and benchmarks.

use super::{Command, Device, DeviceError, QueueKind};
use std::time::Duration;

/// Runs `command` `repeats` times, one after the other, and returns each run's time on the device in nanoseconds.
///
/// # Errors
/// As [`Device::submit`] and [`Device::wait`]; the timeout holds for each run.
pub fn time_command(
    device: &dyn Device,
    command: &Command,
    repeats: u32,
    timeout: Duration,
) -> Result<Vec<u64>, DeviceError> {
    let stamp = device.stamp()?;
    let stamped = command.clone().stamped(stamp.clone());
    (0..repeats)
        .map(|_| {
            let point = device.submit(QueueKind::Compute, std::slice::from_ref(&stamped))?;
            device.wait(&point, timeout)?;
            Ok(stamp.elapsed_ns())
        })
        .collect()
}
