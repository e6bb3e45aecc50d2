//! The last calls of a driver, for a report.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Number of calls to remember.
const REMEMBERED: usize = 8;

/// The last calls, oldest first.
#[derive(Debug, Default)]
pub(crate) struct LastCalls(Mutex<VecDeque<String>>);

impl LastCalls {
    /// Adds a call, with its error if it failed.
    pub(crate) fn note(&self, name: &str, error: Option<&dyn std::fmt::Display>) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() == REMEMBERED {
            calls.pop_front();
        }
        calls.push_back(match error {
            None => name.to_string(),
            Some(e) => format!("{name} = {e}"),
        });
    }

    /// The calls in one line.
    #[must_use]
    pub(crate) fn line(&self) -> String {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().cloned().collect::<Vec<_>>().join(" ")
    }
}
