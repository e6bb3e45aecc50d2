//! The arguments of a recorded list's launches, which patches change, and the set of memories that they use.
//!
//! Layer: part of a GPU's recorded list; the vendor's code writes the bytes to the device.

use crate::{Arg, DeviceError, Location, Memory, Patch};
use doorbell_hcq::error::SubmitError;
use doorbell_sort as sort;
use std::ops::Range;

/// The arguments of one launch.
#[derive(Debug)]
struct Launch {
    /// Its bytes in the image.
    bytes: Range<usize>,
    /// Offset in these bytes and length of each argument.
    arg_ranges: Vec<(usize, usize)>,
    memories: Vec<Option<Memory>>,
}

/// The arguments of all launches, in order.
#[derive(Debug, Default)]
pub(crate) struct LaunchArgs {
    /// The bytes of all launches, one after another.
    image: Vec<u8>,
    launches: Vec<Launch>,
    /// Every memory once; rebuilt after a patch has changed one.
    memories: Vec<Memory>,
    is_listed: bool,
}

fn memory_of(arg: &Arg) -> Option<Memory> {
    if let Arg::Buffer(location) = arg { Some(location.memory.clone()) } else { None }
}

impl LaunchArgs {
    /// Appends a launch: its bytes, and offset and length of each of `args` in them.
    pub(crate) fn push(&mut self, bytes: &[u8], arg_ranges: Vec<(usize, usize)>, args: &[Arg]) {
        let start = self.image.len();
        self.image.extend_from_slice(bytes);
        let memories = args.iter().map(memory_of).collect();
        self.launches.push(Launch { bytes: start..self.image.len(), arg_ranges, memories });
        self.is_listed = false;
    }

    /// The bytes of all launches.
    #[must_use]
    pub(crate) fn image(&self) -> &[u8] {
        &self.image
    }

    /// The bytes of launch `n`; empty if there is no such launch.
    #[must_use]
    pub(crate) fn bytes(&self, n: usize) -> &[u8] {
        self.launches.get(n).and_then(|l| self.image.get(l.bytes.clone())).unwrap_or_default()
    }

    /// Checks that a patch names an existing argument, that its value has the argument's length, and that `check`
    /// accepts its memory.
    ///
    /// # Errors
    /// `Patch`, and the errors of `check`.
    pub(crate) fn check(
        &self,
        patch: &Patch,
        check: impl Fn(&Location) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let (command, arg, value) = match patch {
            Patch::Arg { command, arg, value } => (*command, *arg, value),
            Patch::Threads { command, .. } => return Err(SubmitError::Patch { command: *command, arg: 0 }.into()),
        };
        if let Arg::Buffer(location) = value {
            check(location)?;
        }
        let location = self.launches.get(command).and_then(|l| l.arg_ranges.get(arg));
        let fits = location.is_some_and(|(_, len)| match value {
            Arg::Var(_) => true,
            Arg::Buffer(_) => *len == 8,
            Arg::Scalar { len_bytes, .. } => *len == usize::from(*len_bytes),
        });
        if fits { Ok(()) } else { Err(SubmitError::Patch { command, arg }.into()) }
    }

    /// The range of launch `n` in the image.
    #[must_use]
    pub(crate) fn range(&self, n: usize) -> Option<Range<usize>> {
        self.launches.get(n).map(|l| l.bytes.clone())
    }

    /// Applies a checked patch; returns the index of the launch that it changed.
    ///
    /// # Errors
    /// `Patch` for a patch that was not checked.
    pub(crate) fn patch(&mut self, patch: &Patch) -> Result<usize, SubmitError> {
        let (command, arg, value) = match patch {
            Patch::Arg { command, arg, value } => (*command, *arg, value),
            Patch::Threads { command, .. } => return Err(SubmitError::Patch { command: *command, arg: 0 }),
        };
        let no_such = SubmitError::Patch { command, arg };
        let Some(launch) = self.launches.get_mut(command) else { return Err(no_such) };
        let (Some((at, len)), Some(memory)) = (launch.arg_ranges.get(arg), launch.memories.get_mut(arg)) else {
            return Err(no_such);
        };
        let at = launch.bytes.start + at;
        match (self.image.get_mut(at..at + len), value.bits().to_le_bytes().get(..*len)) {
            (Some(bytes), Some(value)) => bytes.copy_from_slice(value),
            _ => return Err(no_such),
        }
        let named = memory_of(value);
        if named.is_some() || memory.is_some() {
            *memory = named;
            self.is_listed = false;
        }
        Ok(command)
    }

    /// Every memory that the launches use, once.
    pub(crate) fn memories(&mut self) -> &[Memory] {
        if !self.is_listed {
            self.memories.clear();
            self.memories.extend(self.launches.iter().flat_map(|l| l.memories.iter().flatten().cloned()));
            // Live memories have distinct addresses.
            sort::by_key(&mut self.memories, Memory::va);
            self.memories.dedup_by_key(|m| m.va());
            self.is_listed = true;
        }
        &self.memories
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceTag, MemoryParts, Uses};

    fn memory(va: u64) -> Memory {
        let (device, uses) = (DeviceTag::new("X"), Uses::new(None));
        Memory::new(MemoryParts { device, va, len_bytes: 64, host: None, uses, release: None })
    }

    fn patch(command: usize, arg: usize, value: Arg) -> Patch {
        Patch::Arg { command, arg, value }
    }

    /// Two launches of a buffer and a scalar of 4 bytes.
    fn two() -> (LaunchArgs, [Memory; 2]) {
        let (mut list, both) = (LaunchArgs::default(), [memory(0x1000), memory(0x2000)]);
        for m in &both {
            let args = [Arg::Buffer(m.at(0)), Arg::Scalar { bits: 7, len_bytes: 4 }];
            list.push(&[0; 12], vec![(0, 8), (8, 4)], &args);
        }
        (list, both)
    }

    #[test]
    fn a_patch_changes_its_argument_alone_and_the_list_of_memories() {
        let (mut list, [first, second]) = two();
        assert_eq!(list.memories().iter().map(Memory::va).collect::<Vec<_>>(), [0x1000, 0x2000]);
        let change = patch(1, 1, Arg::Var(-2));
        assert!(list.check(&change, |_| Ok(())).is_ok());
        assert_eq!(list.patch(&change).unwrap(), 1);
        assert_eq!((list.bytes(0), &list.bytes(1)[8..]), (&[0; 12][..], &[0xfe, 0xff, 0xff, 0xff][..]));
        list.patch(&patch(1, 0, Arg::Buffer(first.at(8)))).unwrap();
        assert_eq!(list.bytes(1)[..8], 0x1008u64.to_le_bytes());
        assert_eq!(list.memories().iter().map(Memory::va).collect::<Vec<_>>(), [0x1000]);
        assert_eq!(list.image().len(), 24);
        drop(second);
    }

    #[test]
    fn what_is_not_there_or_does_not_fit_is_refused_by_its_place() {
        let (mut list, [m, _]) = two();
        for (wrong, command, arg) in [
            (patch(2, 0, Arg::Var(0)), 2, 0),
            (patch(0, 2, Arg::Var(0)), 0, 2),
            (patch(0, 1, Arg::Buffer(m.at(0))), 0, 1),
            (patch(1, 0, Arg::Scalar { bits: 0, len_bytes: 4 }), 1, 0),
            (Patch::Threads { command: 1, threads: 2 }, 1, 0),
        ] {
            let error = list.check(&wrong, |_| Ok(())).unwrap_err();
            let DeviceError::Submit(SubmitError::Patch { command: c, arg: a }) = error else { panic!("{error}") };
            assert_eq!((c, a), (command, arg));
        }
        assert!(list.patch(&patch(2, 0, Arg::Var(0))).is_err() && list.patch(&patch(0, 2, Arg::Var(0))).is_err());
        let refused = |_: &Location| Err(SubmitError::Unsupported { queue: "X", what: "that" }.into());
        assert!(list.check(&patch(0, 0, Arg::Buffer(m.at(0))), refused).is_err());
        assert!(list.check(&patch(0, 1, Arg::Var(0)), refused).is_ok(), "it names no memory");
    }
}
