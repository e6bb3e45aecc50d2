//! Observers of a thread's rewrites: the checks of SPEC=2 ([`super::checked()`]) and the trace ([`super::traced`]).
//!
//! The caller wraps a phase in either. Each rewrite of that phase, on its thread, checks once for observers
//! ([`Observers::now`]), so there is no cost without them. Passes that are not rules are not observed.

use super::spec::Stage;
use super::{RewriteError, UOp, checked, trace};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<Observers> = const { Cell::new(Observers { stage: None, traced: false }) };
}

/// What to do with every applied rule.
#[derive(Clone, Copy)]
pub(super) struct Observers {
    /// Check what rules make against this stage.
    pub stage: Option<Stage>,
    /// Record each step.
    pub traced: bool,
}

impl Observers {
    /// The observers of this thread.
    pub(crate) fn now() -> Observers {
        NOW.get()
    }

    /// Reports one applied rule. The error is a node that is not allowed in the stage.
    #[inline]
    pub(crate) fn applied(self, rule: &'static str, before: &UOp, after: &UOp) -> Result<(), RewriteError> {
        if self.traced {
            trace::record(rule, before, after);
        }
        self.stage.map_or(Ok(()), |stage| checked::made(stage, rule, before, after))
    }
}

/// Sets the observers of this thread until it is dropped; then the former ones are restored, also after a panic.
pub(super) struct Observed(Observers);

impl Observed {
    pub(crate) fn by(observers: Observers) -> Observed {
        Observed(NOW.replace(observers))
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}
