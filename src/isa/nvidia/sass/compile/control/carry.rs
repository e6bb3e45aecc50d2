//! What is in flight at the end of a piece of code: scoreboards that are not waited for yet, and results of matrix
//! instructions.
//!
//! Scoreboards are shared by the whole warp. So whichever path a warp's threads took to a label, and whatever its other
//! threads have done meanwhile, a register in flight at the end of a predecessor is available once its scoreboard was
//! waited for. Waiting for something that another path has started costs only time.

use crate::sass::compile::schedule::list::{Node, REGISTERS, each, number};
use crate::sass::{RegFile, SCOREBOARDS};

/// The first number that is not a general register.
const GENERAL: usize = 256;

/// Scoreboards to wait for, by register.
#[derive(Clone)]
pub(crate) struct Waits {
    /// Before it is read or overwritten: its result is in flight.
    pub results: [u8; REGISTERS],
    /// Before it is overwritten: it is still to be read.
    pub sources: [u8; REGISTERS],
    /// All of them.
    pub boards: u8,
}

impl Waits {
    pub(crate) const NONE: Waits = Waits { results: [0; REGISTERS], sources: [0; REGISTERS], boards: 0 };

    /// These scoreboards have been waited for. No general register from `highest` on is in use.
    pub(crate) fn clear(&mut self, boards: u8, highest: usize) {
        self.boards &= !boards;
        for of in [&mut self.results, &mut self.sources] {
            let (general, others) = of.split_at_mut(GENERAL);
            general[..highest].iter_mut().chain(others).for_each(|r| *r &= !boards);
        }
    }

    /// The scoreboards that an instruction must wait for because of its registers.
    pub(crate) fn of(&self, node: &Node) -> u8 {
        let mut all = 0;
        node.effects.reads.iter().for_each(|r| each(r, |k| all |= self.results[k]));
        node.effects.writes.iter().for_each(|w| each(w, |k| all |= self.results[k] | self.sources[k]));
        all
    }

    /// The scoreboards that guard uniform registers.
    pub(crate) fn uniform(&self) -> u8 {
        let all = |of: &[u8; REGISTERS]| {
            let [from, to] = [number(RegFile::Uniform, 0), REGISTERS];
            of[from..to].iter().fold(0, |all, r| all | r)
        };
        all(&self.results) | all(&self.sources)
    }

    /// Merges the state of another path; returns whether that added something.
    pub(crate) fn join(&mut self, other: &Waits) -> bool {
        let old = self.boards;
        self.boards |= other.boards;
        let mut new = self.boards ^ old;
        for (to, from) in [(&mut self.results, &other.results), (&mut self.sources, &other.sources)] {
            for (a, b) in to.iter_mut().zip(from) {
                new |= *b & !*a;
                *a |= *b;
            }
        }
        new != 0
    }
}

/// What is in flight at a label.
pub(crate) struct Entry {
    pub waits: Waits,
    /// Cycles until the results of matrix instructions are available, by general register; empty if none are in flight.
    pub late: Vec<u8>,
}

impl Entry {
    /// Merges the state of another path; returns whether that added something.
    pub(crate) fn join(place: &mut Option<Box<Entry>>, waits: &Waits, late: impl Iterator<Item = (usize, u8)>) -> bool {
        let mut late = late.peekable();
        if waits.boards == 0 && late.peek().is_none() {
            return false;
        }
        let entry = place.get_or_insert_with(|| Box::new(Entry { waits: Waits::NONE, late: vec![] }));
        let mut more = entry.waits.join(waits);
        for (r, cycles) in late {
            entry.late.resize(GENERAL, 0);
            more |= entry.late[r] < cycles;
            entry.late[r] = entry.late[r].max(cycles);
        }
        more
    }
}

/// A scoreboard that a node was given, if it has one.
const NONE: u8 = SCOREBOARDS;

/// The scoreboards given to nodes, so that a piece which is processed again uses the same.
pub(super) struct Given(Vec<u8>);

impl Given {
    pub(crate) fn new(nodes: usize) -> Given {
        Given(vec![NONE; nodes])
    }

    pub(crate) fn get(&self, node: u32) -> Option<u8> {
        self.0.get(node as usize).copied().filter(|k| *k != NONE)
    }

    pub(crate) fn set(&mut self, node: u32, board: u8) {
        if let Some(place) = self.0.get_mut(node as usize) {
            *place = board;
        }
    }
}
