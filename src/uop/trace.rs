//! What the rewrites of a phase did: which rule, on which node, to which node.
//!
//! [`traced`] records every rule that is applied on its thread while a closure runs, whatever applies it: `simplify`, a
//! phase of codegen, a list of rules of one's own. Simplified forms that nodes remember are left aside meanwhile, so a
//! trace is complete and the same in every run of the closure; the result is the same with and without a trace.
//!
//! ```
//! use doorbell_uop::{UOp, traced};
//! let a = UOp::var("a", 0, 9);
//! let (simple, trace) = traced(|| ((&a * 1).max(&UOp::int(20))).simplify());
//! assert_eq!(simple, UOp::int(20));
//! assert_eq!(trace.to_string(), "index-sum: a*1 -> a\nsingle-value: Max(a, 20) -> 20\n");
//! ```

use super::UOp;
use super::node::UMap;
use super::observe::{Observed, Observers};
use super::rewrite::Known;
use doorbell_sort as sort;
use std::cell::RefCell;
use std::fmt;

/// One applied rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the rule.
    pub rule: &'static str,
    /// The node it was applied to.
    pub before: UOp,
    /// What it made of that node.
    pub after: UOp,
}

/// Steps in the order they were made. Keeps their nodes alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The steps, first to last.
    pub steps: Vec<Step>,
}

impl Trace {
    /// How often each rule was applied, most frequent first.
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        let mut out: Vec<(&'static str, usize)> = Vec::new();
        for s in &self.steps {
            match out.iter_mut().find(|(n, _)| *n == s.rule) {
                Some((_, k)) => *k += 1,
                None => out.push((s.rule, 1)),
            }
        }
        sort::by_key(&mut out, |(n, k)| (std::cmp::Reverse(*k), *n));
        out
    }
}

/// One line a step: `rule: before -> after`.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for s in &self.steps {
            writeln!(f, "{}: {} -> {}", s.rule, s.before.render(), s.after.render())?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Recording {
    trace: Trace,
    /// Simplified forms found since the recording began.
    simplest: UMap<UOp>,
}

thread_local! {
    static RECORDING: RefCell<Recording> = RefCell::default();
}

/// Restores the outer recording, also if the phase panics.
struct Outer(Option<Recording>);

impl Drop for Outer {
    fn drop(&mut self) {
        RECORDING.set(self.0.take().unwrap_or_default());
    }
}

/// Runs `phase` and records the rules that it applies on this thread. Steps of a trace inside another belong to the
/// inner one.
pub fn traced<T>(phase: impl FnOnce() -> T) -> (T, Trace) {
    let _outer = Outer(Some(RECORDING.take()));
    let _observed = Observed::by(Observers { traced: true, ..Observers::now() });
    let result = phase();
    (result, RECORDING.take().trace)
}

/// Adds a step to the recording of this thread.
#[cold]
pub(super) fn record(rule: &'static str, before: &UOp, after: &UOp) {
    let step = Step { rule, before: before.clone(), after: after.clone() };
    RECORDING.with_borrow_mut(|r| r.trace.steps.push(step));
}

/// Simplified forms known while tracing: those found since the recording began, and none from before.
pub(super) struct SinceRecording;

impl Known for SinceRecording {
    fn get(&self, u: &UOp) -> Option<UOp> {
        RECORDING.with_borrow(|r| r.simplest.get(u).cloned())
    }
    fn has(&self, u: &UOp) -> bool {
        RECORDING.with_borrow(|r| r.simplest.contains_key(u))
    }
    fn changes(&self, u: &UOp) -> bool {
        RECORDING.with_borrow(|r| r.simplest.get(u).is_some_and(|v| v != u))
    }
    fn set(&mut self, u: &UOp, v: &UOp) {
        RECORDING.with_borrow_mut(|r| r.simplest.insert(u.clone(), v.clone()));
    }
}
