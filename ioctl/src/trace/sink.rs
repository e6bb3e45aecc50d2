//! Where events go.

use super::Event;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes events, one at a time.
pub trait Sink: Send {
    fn event(&mut self, event: &Event);
    /// Events received from now on are kept.
    fn flush(&mut self) {}
}

/// Events in memory. Clones share one list.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Event>>>);

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({} events)", self.events().len())
    }
}

impl Log {
    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for Log {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}
