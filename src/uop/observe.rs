//! Who looks at the rewrites of a thread: the checks of SPEC=2 ([`super::checked()`]) and the trace
//! ([`super::traced`]).
//!
//! Both are put around a phase by whoever runs it. Each rewrite of that phase, on its thread, asks once
//! ([`Observers::now`]), so nothing is paid while nobody looks. Passes that are no rules are not observed.

use super::spec::Stage;
use super::{RewriteError, UOp, checked, trace};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<Observers> = const { Cell::new(Observers { stage: None, traced: false }) };
}

/// What is done with every applied rule.
#[derive(Clone, Copy)]
pub(super) struct Observers {
    /// Check what rules make against this stage.
    pub stage: Option<Stage>,
    /// Record each step.
    pub traced: bool,
}

impl Observers {
    /// Those of this thread.
    pub fn now() -> Observers {
        NOW.get()
    }

    /// Reports one applied rule. The error is a node that does not belong into the stage.
    #[inline]
    pub fn applied(self, rule: &'static str, before: &UOp, after: &UOp) -> Result<(), RewriteError> {
        if self.traced {
            trace::record(rule, before, after);
        }
        self.stage.map_or(Ok(()), |stage| checked::made(stage, rule, before, after))
    }
}

/// Observers of this thread until the value is dropped; then the former ones are back, also after a panic.
pub(super) struct Observed(Observers);

impl Observed {
    pub fn by(observers: Observers) -> Observed {
        Observed(NOW.replace(observers))
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        NOW.set(self.0);
    }
}
