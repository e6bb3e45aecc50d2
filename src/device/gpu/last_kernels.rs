//! The kernels that a queue ran last, for its report: launched one by one, or as the last ones of a recorded list.
//!
//! Place in the arrows: part of a GPU's queue. What ran last once more costs a comparison, anything else one handle's
//! clone.

use std::collections::VecDeque;
use std::sync::Arc;

/// Kernels that a report names.
const REMEMBERED: usize = 4;

/// A kernel's name and entry.
pub type Named = (Arc<str>, u64);

/// The last kernels of a list.
#[must_use]
pub fn last_of(kernels: impl DoubleEndedIterator<Item = Named>) -> Arc<[Named]> {
    let mut last: Vec<Named> = kernels.rev().take(REMEMBERED).collect();
    last.reverse();
    last.into()
}

#[derive(Debug)]
enum Ran {
    Kernel(Named),
    List(Arc<[Named]>),
}

/// The last ones, oldest first; launches of one kernel in a row count once.
#[derive(Debug, Default)]
pub struct LastKernels(VecDeque<Ran>);

impl LastKernels {
    fn push(&mut self, ran: Ran) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(ran);
    }

    /// A kernel was launched.
    #[inline]
    pub fn kernel(&mut self, name: &Arc<str>, entry: u64) {
        if !matches!(self.0.back(), Some(Ran::Kernel((_, last))) if *last == entry) {
            self.push(Ran::Kernel((Arc::clone(name), entry)));
        }
    }

    /// A recorded list was replayed, which ends with these.
    #[inline]
    pub fn list(&mut self, last: &Arc<[Named]>) {
        if !matches!(self.0.back(), Some(Ran::List(list)) if Arc::ptr_eq(list, last)) {
            self.push(Ran::List(Arc::clone(last)));
        }
    }

    /// Names and entries for a report, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let all: Vec<&Named> = self
            .0
            .iter()
            .flat_map(|ran| match ran {
                Ran::Kernel(named) => std::slice::from_ref(named),
                Ran::List(last) => last,
            })
            .collect();
        let from = all.len().saturating_sub(REMEMBERED);
        all[from..].iter().map(|(name, entry)| format!("{name} at {entry:#x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_last_four_of_kernels_and_lists() {
        let named = |n: u64| -> Named { (format!("k{n}").into(), n) };
        let mut ran = LastKernels::default();
        (0..3).map(named).for_each(|(name, entry)| ran.kernel(&name, entry));
        ran.list(&last_of([7, 8, 9].into_iter().map(named).skip(1)));
        assert_eq!(ran.lines(), ["k1 at 0x1", "k2 at 0x2", "k8 at 0x8", "k9 at 0x9"]);
    }

    #[test]
    fn what_runs_again_and_again_is_named_once() {
        let mut ran = LastKernels::default();
        ran.kernel(&"first".into(), 1);
        (0..9).for_each(|_| ran.kernel(&"again".into(), 2));
        let list = last_of([("of a list".into(), 3)].into_iter());
        (0..9).for_each(|_| ran.list(&list));
        assert_eq!(ran.lines(), ["first at 0x1", "again at 0x2", "of a list at 0x3"]);
    }
}
