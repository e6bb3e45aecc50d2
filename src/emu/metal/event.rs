//! Shared events: a number that only grows, and those who wait for it.

use crate::encode::{Bool, Sel};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An event.
#[derive(Default)]
pub struct Event {
    value: Mutex<u64>,
    changed: Condvar,
}

impl Body for Event {
    const CLASS: Class = Class::MTLSharedEvent;
}

impl Event {
    pub fn value(&self) -> u64 {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lower value changes nothing.
    pub fn signal(&self, value: u64) {
        let mut now = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        if value > *now {
            *now = value;
            self.changed.notify_all();
        }
    }

    /// Waits for the value; whether it was reached in time.
    pub fn wait(&self, value: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut now = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        while *now < value {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            now = self.changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

pub fn methods(all: &mut Methods) {
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
        event.signal(value);
    }
}

extern "C" fn wait(this: Id, _: Sel, value: u64, timeout_ms: u64) -> Bool {
    let timeout = Duration::from_millis(timeout_ms.min(1 << 40));
    object::get::<Event>(this).is_some_and(|e| e.wait(value, timeout)).into()
}
