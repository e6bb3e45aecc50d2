//! Recorded lists of two simple kinds: commands that are submitted again, for devices without command buffers, and
//! lists one after another, for work of several devices.

use super::{Arg, Command, DeviceError, Patch, Recorded};
use doorbell_hcq::error::SubmitError;
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

/// Applies a patch to commands.
pub(crate) fn apply(commands: &mut [Command], patch: &Patch) -> Result<(), SubmitError> {
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

/// Recorded lists as one: a replay runs them in order, each on its device. What they share is ordered by their
/// memories, as it is between submissions. `lists`: each with the numbers that its commands have in the whole, to which
/// patches refer. The point of a replay is that of the last list; on an error the lists before it have run.
#[must_use]
pub fn record_in_order(lists: Vec<(Vec<usize>, Box<dyn Recorded>)>) -> Box<dyn Recorded> {
    let len = lists.iter().flat_map(|(numbers, _)| numbers).max().map_or(0, |last| last + 1);
    let mut places = vec![None; len];
    for (list, (numbers, _)) in lists.iter().enumerate() {
        for (command, number) in numbers.iter().enumerate() {
            places[*number] = Some((list, command));
        }
    }
    Box::new(InOrder { lists: lists.into_iter().map(|(_, list)| (list, Vec::new())).collect(), places })
}

#[derive(Debug)]
struct InOrder {
    /// Each with the patches of the replay under way.
    lists: Vec<(Box<dyn Recorded>, Vec<Patch>)>,
    /// List and command of each command of the whole.
    places: Vec<Option<(usize, usize)>>,
}

impl InOrder {
    fn place(&self, command: usize, arg: usize) -> Result<(usize, usize), SubmitError> {
        self.places.get(command).copied().flatten().ok_or(SubmitError::Patch { command, arg })
    }
}

impl Recorded for InOrder {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        self.lists.iter_mut().for_each(|(_, own)| own.clear());
        for patch in patches {
            let (list, own) = match patch {
                Patch::Threads { command, threads } => {
                    let (list, command) = self.place(*command, 0)?;
                    (list, Patch::Threads { command, threads: *threads })
                }
                Patch::Arg { command, arg, value } => {
                    let (list, command) = self.place(*command, *arg)?;
                    (list, Patch::Arg { command, arg: *arg, value: value.clone() })
                }
            };
            self.lists[list].1.push(own);
        }
        let mut last = None;
        for (list, patches) in &mut self.lists {
            last = Some(list.replay(patches)?);
        }
        last.ok_or_else(|| SubmitError::Patch { command: 0, arg: 0 }.into())
    }
}
