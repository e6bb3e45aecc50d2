//! What a queue ran last, for its report: kernels launched one by one, and recorded lists by their last kernels.
//!
//! Place in the arrows: part of `device::amd`; a launch pays one handle's clone, a replay too.

use super::program::Program;
use std::collections::VecDeque;
use std::sync::Arc;

/// Kernels that a report names.
const REMEMBERED: usize = 4;

/// A kernel's name and entry.
pub type Named = (Arc<str>, u64);

/// The last kernels of a list.
#[must_use]
pub fn last_of<'a>(programs: impl DoubleEndedIterator<Item = &'a Program>) -> Arc<[Named]> {
    let mut last: Vec<Named> = programs.rev().take(REMEMBERED).map(|p| (p.name.clone(), p.entry)).collect();
    last.reverse();
    last.into()
}

#[derive(Debug)]
enum Ran {
    Kernel(Named),
    List(Arc<[Named]>),
}

/// The last ones, oldest first.
#[derive(Debug, Default)]
pub struct LastRan(VecDeque<Ran>);

impl LastRan {
    fn push(&mut self, ran: Ran) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(ran);
    }

    pub fn kernel(&mut self, program: &Program) {
        self.push(Ran::Kernel((program.name.clone(), program.entry)));
    }

    pub fn list(&mut self, last: &Arc<[Named]>) {
        self.push(Ran::List(Arc::clone(last)));
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
        let mut ran = LastRan::default();
        (0..3).for_each(|n| ran.push(Ran::Kernel(named(n))));
        ran.list(&Arc::from([named(8), named(9)]));
        assert_eq!(ran.lines(), ["k1 at 0x1", "k2 at 0x2", "k8 at 0x8", "k9 at 0x9"]);
    }
}
