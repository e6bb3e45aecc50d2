//! What is noted while a function is recorded, and which of its commands have to be repeated.

use super::JitError;
use super::kernels::Compiled;
use super::memory::AllocationId;
use super::realize::Assigned;
use crate::device::{Arg, Command, Location, Memory};
use std::cell::RefCell;
use std::sync::Arc;

/// Commands and facts of the capture that is going on in this thread.
#[derive(Default)]
pub(super) struct Capture {
    pub commands: Vec<Command>,
    /// Of each command.
    pub devices: Vec<Arc<str>>,
    /// Of each command.
    pub facts: Vec<Facts>,
    /// Variable arguments: (command, argument, name).
    pub vars: Vec<(usize, usize, Arc<str>)>,
    /// Whose memory the buffers are: (command, argument, allocation).
    pub allocations: Vec<(usize, usize, AllocationId)>,
    pub assigned: Vec<Assigned>,
    /// Memory that was allocated since the capture began: it has no contents that the commands could need.
    pub made: Vec<Memory>,
    pub error: Option<JitError>,
}

/// What a command costs, and what it does with its buffers.
#[derive(Default)]
pub(super) struct Facts {
    pub kernels: u64,
    pub flops: u64,
    pub mem_bytes: u64,
    /// (argument, bytes, read, written).
    pub uses: Vec<(usize, u64, bool, bool)>,
    /// Its number in the timeline, if there is one.
    pub label: Option<u32>,
    /// What runs; `None`: a copy.
    pub kernel: Option<Arc<Compiled>>,
}

thread_local! {
    static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
}

/// Runs `f` on the capture of this thread, if one is going on.
pub(super) fn capturing<R>(f: impl FnOnce(&mut Capture) -> R) -> Option<R> {
    CAPTURE.with(|c| c.borrow_mut().as_mut().map(f))
}

/// A capture of this thread; it ends with this value, also when the function panics.
pub(super) struct Open;

impl Open {
    /// # Errors
    /// One is going on.
    pub(super) fn begin() -> Result<Open, JitError> {
        CAPTURE.with(|c| {
            let mut c = c.borrow_mut();
            if c.is_some() {
                return Err(JitError::Nested);
            }
            *c = Some(Capture::default());
            Ok(Open)
        })
    }
    /// What was noted.
    pub(super) fn end(self) -> Capture {
        CAPTURE.with(|c| c.borrow_mut().take()).unwrap_or_default()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        CAPTURE.with(|c| c.borrow_mut().take());
    }
}

/// Bytes that a command reads or writes.
struct Use {
    place: Location,
    len_bytes: u64,
    read: bool,
    written: bool,
}

impl Use {
    fn meets(&self, o: &Use) -> bool {
        let end = |u: &Use| u.place.offset.saturating_add(u.len_bytes);
        self.place.memory.is_same(&o.place.memory) && self.place.offset < end(o) && o.place.offset < end(self)
    }
}

impl Capture {
    /// Leaves out the commands that do the same at every replay: they have run, and what they left in memory stays.
    /// `is_input`: whether an argument of a command is the memory of an input. Returns how many were left out.
    /// `state`: memory that the function assigns to.
    pub(super) fn prune(&mut self, is_input: impl Fn(usize, usize) -> bool, state: &[Memory]) -> usize {
        let uses: Vec<Vec<Use>> = (0..self.commands.len()).map(|c| self.uses(c)).collect();
        let assigns = |c: usize| uses[c].iter().any(|u| u.written && state.iter().any(|m| m.is_same(&u.place.memory)));
        let takes = |c: usize| self.vars.iter().any(|v| v.0 == c) || (0..self.args(c)).any(|a| is_input(c, a));
        let varies = |c: usize| takes(c) || assigns(c);
        let mut kept: Vec<bool> = (0..self.commands.len()).map(|c| varies(c) || reads_state(c, &uses)).collect();
        loop {
            let more: Vec<usize> = (0..kept.len()).filter(|c| !kept[*c] && must_repeat(*c, &kept, &uses)).collect();
            if more.is_empty() {
                break;
            }
            more.into_iter().for_each(|c| kept[c] = true);
        }
        self.keep(&kept)
    }

    fn args(&self, command: usize) -> usize {
        match &self.commands[command] {
            Command::Exec { args, .. } => args.len(),
            _ => 2,
        }
    }

    fn uses(&self, command: usize) -> Vec<Use> {
        let place = |arg: usize| match &self.commands[command] {
            Command::Exec { args, .. } => match args.get(arg) {
                Some(Arg::Buffer(p)) => Some(p.clone()),
                _ => None,
            },
            Command::Copy { dst, src, .. } => [dst, src].get(arg).map(|p| (*p).clone()),
            _ => None,
        };
        let known = self.facts.get(command).map_or(&[][..], |f| &f.uses);
        let one = |(arg, len_bytes, read, written): &(usize, u64, bool, bool)| {
            Some(Use { place: place(*arg)?, len_bytes: *len_bytes, read: *read, written: *written })
        };
        known.iter().filter_map(one).collect()
    }

    fn keep(&mut self, kept: &[bool]) -> usize {
        let before = self.commands.len();
        // The number of each command among those that stay.
        let mut next = 0;
        let number: Vec<Option<usize>> = kept
            .iter()
            .map(|k| {
                let n = k.then_some(next);
                next += usize::from(*k);
                n
            })
            .collect();
        let mut stays = kept.iter();
        self.commands.retain(|_| *stays.next().unwrap_or(&true));
        let mut stays = kept.iter();
        self.devices.retain(|_| *stays.next().unwrap_or(&true));
        let mut stays = kept.iter();
        self.facts.retain(|_| *stays.next().unwrap_or(&true));
        self.vars =
            std::mem::take(&mut self.vars).into_iter().filter_map(|(c, a, name)| Some((number[c]?, a, name))).collect();
        self.allocations = std::mem::take(&mut self.allocations)
            .into_iter()
            .filter_map(|(c, a, allocation)| Some((number[c]?, a, allocation)))
            .collect();
        before - self.commands.len()
    }

    /// Kernels, copies, arithmetic and bytes of all commands.
    pub(super) fn totals(&self) -> [u64; 4] {
        let sum = |f: fn(&Facts) -> u64| self.facts.iter().map(f).sum();
        let copies = self.commands.iter().filter(|c| c.is_copy()).count() as u64;
        [sum(|f| f.kernels), copies, sum(|f| f.flops), sum(|f| f.mem_bytes)]
    }
}

/// Whether a command reads what the recording finds in memory and leaves changed: a counter, say.
fn reads_state(command: usize, uses: &[Vec<Use>]) -> bool {
    let written = |u: &Use, list: &[Vec<Use>]| list.iter().flatten().any(|w| w.written && w.meets(u));
    let reads = uses[command].iter().filter(|u| u.read);
    reads.into_iter().any(|u| !written(u, &uses[..command]) && written(u, &uses[command..]))
}

/// Whether a command's work would not be the same, or would not last, if it ran only once.
fn must_repeat(command: usize, kept: &[bool], uses: &[Vec<Use>]) -> bool {
    let mine = &uses[command];
    (0..kept.len()).filter(|k| kept[*k]).any(|k| {
        uses[k].iter().any(|theirs| {
            let meets = |u: &Use| u.meets(theirs);
            // What it reads changes; what it writes is overwritten; what a repeated command reads before is its.
            mine.iter().any(|u| meets(u) && (theirs.written || u.written && k < command))
        })
    })
}
