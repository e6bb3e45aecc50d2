//! What orders command buffers: resources that the framework tracks, and events. Two command buffers that use the same
//! untracked resource, and that neither orders, are a mistake of the program, whatever they have computed this time.
//!
//! Source: Apple's documentation of hazard tracking and of events; `gfx-rs/wgpu#9483` (command buffers of one queue
//! overlap). Left out: encoders of one command buffer, which may overlap too for untracked resources (they run in order
//! here); reading and writing are not distinguished.

use crate::machine::{FaultKind, Machine};
use crate::object::Id;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A resource that a command buffer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Use {
    pub resource: Id,
    pub is_tracked: bool,
}

/// Command buffers by their number in the order of commits, from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The last user of a tracked resource in each queue. Which of two queues goes first is a race.
    last: HashMap<(Id, Id), u64>,
    /// Users of an untracked resource that are not done.
    users: HashMap<Id, BTreeSet<u64>>,
    /// Command buffers that are not done, or that a pair needs.
    known: BTreeMap<u64, Known>,
    /// Two command buffers that use one untracked resource at the same time, unless something orders them.
    pairs: Vec<(u64, u64, Id)>,
}

#[derive(Debug, Default)]
struct Known {
    is_done: bool,
    queue: Option<Id>,
    uses: Vec<Use>,
    /// What has ended before it begins with its own commands: where untracked resources are in use.
    after: BTreeSet<u64>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A committed command buffer: its number, and those that it runs after because of tracked resources.
    pub(crate) fn commit(&self, queue: Id, uses: Vec<Use>) -> (u64, Vec<u64>) {
        let mut state = self.lock();
        let (number, mut before) = (state.next, Vec::new());
        state.next += 1;
        for used in &uses {
            if used.is_tracked {
                before.extend(state.last.insert((queue, used.resource), number));
                continue;
            }
            let users = state.users.entry(used.resource).or_default();
            let others: Vec<u64> = users.iter().copied().collect();
            users.insert(number);
            state.pairs.extend(others.into_iter().map(|other| (other, number, used.resource)));
        }
        before.retain(|other| state.known.get(other).is_some_and(|known| !known.is_done));
        state.known.insert(number, Known { queue: Some(queue), uses, ..Known::default() });
        (number, before)
    }

    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.lock().known.get(&number).is_none_or(|known| known.is_done)
    }

    /// `number` goes on after `other` has signalled or ended.
    pub(crate) fn order(&self, number: u64, other: u64) {
        let mut state = self.lock();
        if state.pairs.is_empty() {
            return;
        }
        let mut after = state.known.get(&other).map(|known| known.after.clone()).unwrap_or_default();
        after.insert(other);
        // What is done and in no pair is not asked about any more.
        after.retain(|n| state.known.contains_key(n));
        if let Some(known) = state.known.get_mut(&number) {
            known.after.extend(after);
        }
    }

    /// A command buffer has ended.
    pub(crate) fn done(&self, machine: &Machine, number: u64) {
        let mut state = self.lock();
        let State { known, users, last, pairs, .. } = &mut *state;
        let Some(ended) = known.get_mut(&number) else { return };
        ended.is_done = true;
        for used in std::mem::take(&mut ended.uses) {
            if let Some(all) = users.get_mut(&used.resource) {
                all.remove(&number);
                if all.is_empty() {
                    users.remove(&used.resource);
                }
            }
            let key = (ended.queue.unwrap_or(Id::NIL), used.resource);
            if last.get(&key) == Some(&number) {
                last.remove(&key);
            }
        }
        let is_done = |n: &u64| known.get(n).is_none_or(|k| k.is_done);
        let mut unordered = Vec::new();
        pairs.retain(|(a, b, resource)| {
            if !is_done(a) || !is_done(b) {
                return true;
            }
            let follows = |n: &u64, other: &u64| known.get(n).is_some_and(|k| k.after.contains(other));
            if !follows(a, b) && !follows(b, a) {
                unordered.push((*a, *b, *resource));
            }
            false
        });
        let needed: BTreeSet<u64> = pairs.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
        known.retain(|n, k| !k.is_done || needed.contains(n));
        drop(state);
        for (a, b, resource) in unordered {
            let text = format!(
                "command buffers {a} and {b} use {:#x}, which is not tracked: no event orders them",
                resource.0
            );
            machine.fault(FaultKind::Unordered, text);
        }
    }
}

/// Wakes the threads of queues when something has changed that a command buffer may wait for.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Pulse {
    pub(crate) fn beat(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    pub(crate) fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns at the next beat after the count was `seen`, or when the time is over.
    pub(crate) fn wait(&self, seen: u64, most: Duration) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let _beaten = self.changed.wait_timeout_while(count, most, |now| *now == seen);
    }
}
