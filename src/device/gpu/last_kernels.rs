//! The kernels that a queue last last, for its report: launched one by one, or as the last ones of a recorded list.
//!
//! Layer: part of a GPU's queue. Repeating the last entry costs a comparison, anything else the clone of a handle.

use std::collections::VecDeque;
use std::sync::Arc;

/// Number of kernels that a report names.
const REMEMBERED: usize = 4;

/// A kernel's name and entry.
pub(crate) type NamedKernel = (Arc<str>, u64);

/// The last kernels of a list.
#[must_use]
pub(crate) fn last_of(kernels: impl DoubleEndedIterator<Item = NamedKernel>) -> Arc<[NamedKernel]> {
    let mut last: Vec<NamedKernel> = kernels.rev().take(REMEMBERED).collect();
    last.reverse();
    last.into()
}

#[derive(Debug)]
enum Entry {
    Kernel(NamedKernel),
    List(Arc<[NamedKernel]>),
}

/// The last kernels and lists, oldest first; consecutive launches of one kernel are one entry.
#[derive(Debug, Default)]
pub(crate) struct LastKernels(VecDeque<Entry>);

impl LastKernels {
    fn push(&mut self, last: Entry) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(last);
    }

    /// Adds a launched kernel.
    #[inline]
    pub(crate) fn kernel(&mut self, name: &Arc<str>, entry: u64) {
        if !matches!(self.0.back(), Some(Entry::Kernel((_, last))) if *last == entry) {
            self.push(Entry::Kernel((Arc::clone(name), entry)));
        }
    }

    /// Adds a replayed list, which ends with these kernels.
    #[inline]
    pub(crate) fn list(&mut self, last: &Arc<[NamedKernel]>) {
        if !matches!(self.0.back(), Some(Entry::List(list)) if Arc::ptr_eq(list, last)) {
            self.push(Entry::List(Arc::clone(last)));
        }
    }

    /// Names and entries for a report, oldest first.
    #[must_use]
    pub(crate) fn lines(&self) -> Vec<String> {
        let all: Vec<&NamedKernel> = self
            .0
            .iter()
            .flat_map(|last| match last {
                Entry::Kernel(named) => std::slice::from_ref(named),
                Entry::List(last) => last,
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
        let named = |n: u64| -> NamedKernel { (format!("k{n}").into(), n) };
        let mut last = LastKernels::default();
        (0..3).map(named).for_each(|(name, entry)| last.kernel(&name, entry));
        last.list(&last_of([7, 8, 9].into_iter().map(named).skip(1)));
        assert_eq!(last.lines(), ["k1 at 0x1", "k2 at 0x2", "k8 at 0x8", "k9 at 0x9"]);
    }

    #[test]
    fn what_runs_again_and_again_is_named_once() {
        let mut last = LastKernels::default();
        last.kernel(&"first".into(), 1);
        (0..9).for_each(|_| last.kernel(&"again".into(), 2));
        let list = last_of([("of a list".into(), 3)].into_iter());
        (0..9).for_each(|_| last.list(&list));
        assert_eq!(last.lines(), ["first at 0x1", "again at 0x2", "of a list at 0x3"]);
    }
}
