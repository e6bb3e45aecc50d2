//! What a recording remembers besides its list: each command with its kernel graph, and where its memory came from.

use super::super::jit_capture::Capture;
use super::super::jit_inputs::InputUse;
use super::super::kernels::Compiled;
use crate::device::{Arg, Command, Location, Memory};
use crate::isa::Argument;
use crate::uop::{Dim, Scalar, UOp};
use std::sync::Arc;

/// A place that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum KeptPlace {
    /// Of an input, bytes from its start.
    Input(usize, u64),
    /// Of the recording's own memory, by number.
    Own(usize, u64),
}

/// A use of bytes by a command.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct KeptUse {
    pub place: KeptPlace,
    pub len_bytes: u64,
    pub read: bool,
    pub written: bool,
}

/// A command.
pub(in super::super) enum KeptStep {
    Kernel {
        kernel: Arc<Compiled>,
        /// The memory of each parameter, by slot.
        places: Vec<(u32, KeptPlace)>,
    },
    Copy {
        to: KeptPlace,
        from: KeptPlace,
        len_bytes: u64,
    },
}

/// The commands of a recording.
pub(in super::super) struct Kept {
    /// The devices of the commands: packages are for one.
    pub devices: Vec<Arc<str>>,
    pub steps: Vec<KeptStep>,
    /// What each command does with its memory.
    pub uses: Vec<Vec<KeptUse>>,
    pub memories: Vec<Memory>,
    /// Whether the recording has allocated each memory.
    pub made: Vec<bool>,
}

/// Shapes and names of what goes in and out.
pub(in super::super) struct Ports {
    pub inputs: Vec<KeptInput>,
    pub outputs: Vec<(String, UOp)>,
}

/// An input.
pub(in super::super) struct KeptInput {
    pub name: String,
    pub dtype: Scalar,
    pub shape: Vec<Dim>,
    /// Nodes of its buffers: one, or more on several devices.
    pub buffers: Vec<UOp>,
}

impl Kept {
    pub(in super::super) fn new(capture: &Capture, inputs: &[InputUse], own: &[Memory]) -> Kept {
        let mut kept = Kept {
            devices: Vec::new(),
            steps: Vec::with_capacity(capture.commands.len()),
            uses: Vec::with_capacity(capture.commands.len()),
            memories: own.to_vec(),
            made: own.iter().map(|m| capture.made.iter().any(|made| made.is_same(m))).collect(),
        };
        for device in &capture.devices {
            if !kept.devices.contains(device) {
                kept.devices.push(device.clone());
            }
        }
        for (c, command) in capture.commands.iter().enumerate() {
            let place = |arg: usize, at: &Location| match inputs.iter().find(|u| (u.0, u.1) == (c, arg)) {
                Some((_, _, input, offset)) => KeptPlace::Input(*input, *offset),
                None => KeptPlace::Own(own.iter().position(|m| m.is_same(&at.memory)).unwrap_or(usize::MAX), at.offset),
            };
            let Some(facts) = capture.facts.get(c) else { continue };
            let Some((step, args)) = step(command, facts.kernel.as_ref(), place) else { continue };
            let one = |(arg, len_bytes, read, written): &(usize, u64, bool, bool)| {
                let place = args.iter().find(|a| a.0 == *arg)?.1;
                Some(KeptUse { place, len_bytes: *len_bytes, read: *read, written: *written })
            };
            kept.uses.push(facts.uses.iter().filter_map(one).collect());
            kept.steps.push(step);
        }
        kept
    }

    /// The number of a memory, which is new if no command uses it.
    pub(in super::super) fn number(memories: &mut Vec<Memory>, made: &mut Vec<bool>, memory: &Memory) -> usize {
        memories.iter().position(|m| m.is_same(memory)).unwrap_or_else(|| {
            memories.push(memory.clone());
            made.push(false);
            memories.len() - 1
        })
    }
}

/// A command, and the places of its arguments.
fn step(
    command: &Command,
    kernel: Option<&Arc<Compiled>>,
    place: impl Fn(usize, &Location) -> KeptPlace,
) -> Option<(KeptStep, Vec<(usize, KeptPlace)>)> {
    match command {
        Command::Copy { dst, src, len_bytes, .. } => {
            let (to, from) = (place(0, dst), place(1, src));
            Some((KeptStep::Copy { to, from, len_bytes: *len_bytes }, vec![(0, to), (1, from)]))
        }
        Command::Exec { args, .. } => {
            let kernel = kernel?;
            let (mut all, mut places) = (Vec::new(), Vec::new());
            for (n, (arg, argument)) in args.iter().zip(&kernel.binary.arguments).enumerate() {
                let (Arg::Buffer(at), Argument::Buffer(k)) = (arg, argument) else { continue };
                let at = place(n, at);
                all.push((n, at));
                places.push((kernel.program.params.get(*k)?.slot, at));
            }
            Some((KeptStep::Kernel { kernel: kernel.clone(), places }, all))
        }
        _ => None,
    }
}
