//! What a rewrite did: which rule, on which node, to which node. Filled by a [`super::Rewriter`] that was given one.

use super::UOp;
use doorbell_sort as sort;
use std::fmt;

/// One applied rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub rule: &'static str,
    pub before: UOp,
    pub after: UOp,
}

/// Steps in the order they were made. Keeps their nodes alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub steps: Vec<Step>,
}

impl Trace {
    pub fn new() -> Trace {
        Trace::default()
    }
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
