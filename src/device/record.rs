//! The simplest recorded list, for devices without command buffers: it keeps the commands and submits them again.

use super::{Arg, Command, DeviceError, Patch, Recorded};
use doorbell_hcq::queue::SubmitError;
use doorbell_hcq::signal::Point;
use std::fmt;

/// A recorded list that submits its commands anew at each replay.
///
/// # Errors
/// `Unsupported` when the list holds a `Wait`.
pub fn record_by_resubmission<F>(
    device: &str,
    commands: &[Command],
    submit: F,
) -> Result<Box<dyn Recorded>, DeviceError>
where
    F: Fn(&[Command]) -> Result<Point, DeviceError> + Send + 'static,
{
    if commands.iter().any(|c| matches!(c, Command::Wait(_))) {
        return Err(DeviceError::Unsupported { device: device.into(), what: "record a wait".into() });
    }
    Ok(Box::new(Resubmission { commands: commands.to_vec(), submit }))
}

struct Resubmission<F> {
    commands: Vec<Command>,
    submit: F,
}

impl<F> fmt::Debug for Resubmission<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resubmission({} commands)", self.commands.len())
    }
}

impl<F> Recorded for Resubmission<F>
where
    F: Fn(&[Command]) -> Result<Point, DeviceError> + Send,
{
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        for patch in patches {
            apply(&mut self.commands, patch)?;
        }
        (self.submit)(&self.commands)
    }
}

fn apply(commands: &mut [Command], patch: &Patch) -> Result<(), SubmitError> {
    match patch {
        Patch::Threads { command, threads: wanted } => {
            if let Some(Command::Exec { threads, .. }) = commands.get_mut(*command) {
                *threads = *wanted;
                return Ok(());
            }
            Err(SubmitError::Patch { command: *command, arg: 0 })
        }
        Patch::Arg { command, arg, value } => {
            match (commands.get_mut(*command), *arg, value) {
                (Some(Command::Exec { args, .. }), i, value) if i < args.len() => args[i] = value.clone(),
                (Some(Command::Copy { dst, .. }), 0, Arg::Buffer(place)) => *dst = place.clone(),
                (Some(Command::Copy { src, .. }), 1, Arg::Buffer(place)) => *src = place.clone(),
                (Some(Command::Copy { len_bytes, .. }), 2, Arg::Var(len)) if *len >= 0 => {
                    *len_bytes = len.cast_unsigned()
                }
                _ => return Err(SubmitError::Patch { command: *command, arg: *arg }),
            }
            Ok(())
        }
    }
}
