//! Shared events: a number that only grows, and those who wait for it.

use crate::encode::{Bool, Sel};
use crate::machine::Machine;
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An event.
#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    value: u64,
    /// The last signals, each with the command buffer that made it; `None` for the host's.
    signals: VecDeque<(u64, Option<u64>)>,
}

/// Signals whose makers are remembered.
const SIGNALS: usize = 4096;

impl Body for Event {
    const CLASS: Class = Class::MTLSharedEvent;
}

impl Event {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn value(&self) -> u64 {
        self.lock().value
    }

    /// A lower value changes nothing.
    pub(crate) fn signal(&self, machine: &Machine, value: u64, by: Option<u64>) {
        let mut state = self.lock();
        if value > state.value {
            state.value = value;
            state.signals.push_back((value, by));
            if state.signals.len() > SIGNALS {
                state.signals.pop_front();
            }
            drop(state);
            self.changed.notify_all();
            machine.pulse.beat();
        }
    }

    /// `None` before the value is reached; then the command buffer whose signal has reached it, if one did.
    pub(crate) fn passed(&self, value: u64) -> Option<Option<u64>> {
        let state = self.lock();
        (state.value >= value).then(|| state.signals.iter().find(|(at, _)| *at >= value).and_then(|(_, by)| *by))
    }

    /// Waits for the value; whether it was reached in time.
    pub(crate) fn wait(&self, value: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        while state.value < value {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

pub(crate) fn methods(all: &mut Methods) {
    let class = Class::MTLSharedEvent;
    all.on(class, "signaledValue", value as extern "C" fn(_, _) -> _);
    all.on(class, "setSignaledValue:", set_value as extern "C" fn(_, _, _));
    all.on(class, "waitUntilSignaledValue:timeoutMS:", wait as extern "C" fn(_, _, _, _) -> _);
}

extern "C" fn value(this: Id, _: Sel) -> u64 {
    object::get::<Event>(this).map_or(0, |e| e.value())
}

extern "C" fn set_value(this: Id, _: Sel, value: u64) {
    if let Some(event) = object::get::<Event>(this) {
        event.signal(event.machine(), value, None);
    }
}

extern "C" fn wait(this: Id, _: Sel, value: u64, timeout_ms: u64) -> Bool {
    let timeout = Duration::from_millis(timeout_ms.min(1 << 40));
    object::get::<Event>(this).is_some_and(|e| e.wait(value, timeout)).into()
}
