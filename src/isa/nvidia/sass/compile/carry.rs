//! What is on its way over the end of a piece of code: scoreboards that are not waited for yet, and results of matrices.
//!
//! Scoreboards count for the whole warp. So whichever way its threads came to a label, and whatever other threads of the warp have done
//! meanwhile, a register that was on its way at the end of one of the pieces that lead there is there once its scoreboard is waited for. A wait for
//! what another way has started costs time at most.

use super::schedule::{Node, REGISTERS, each, number};
use crate::sass::{RegFile, SCOREBOARDS};

/// The first number that is none of a general register.
const GENERAL: usize = 256;

/// Scoreboards to wait for, by register.
#[derive(Clone)]
pub(super) struct Waits {
    /// Before it is read or overwritten: its value is on its way.
    pub results: [u8; REGISTERS],
    /// Before it is overwritten: it is still to be read.
    pub sources: [u8; REGISTERS],
    /// All of them.
    pub boards: u8,
}

impl Waits {
    pub const NONE: Waits = Waits { results: [0; REGISTERS], sources: [0; REGISTERS], boards: 0 };

    /// These scoreboards have been waited for; no general register from `highest` on is in use.
    pub fn clear(&mut self, boards: u8, highest: usize) {
        self.boards &= !boards;
        for of in [&mut self.results, &mut self.sources] {
            let (general, others) = of.split_at_mut(GENERAL);
            general[..highest].iter_mut().chain(others).for_each(|r| *r &= !boards);
        }
    }

    /// The scoreboards that guard what a node reads and writes.
    pub fn of(&self, node: &Node) -> u8 {
        let mut all = 0;
        node.effects.reads.iter().for_each(|r| each(r, |k| all |= self.results[k]));
        node.effects.writes.iter().for_each(|w| each(w, |k| all |= self.results[k] | self.sources[k]));
        all
    }

    /// The scoreboards that guard uniform registers.
    pub fn uniform(&self) -> u8 {
        let all = |of: &[u8; REGISTERS]| {
            let [from, to] = [number(RegFile::Uniform, 0), REGISTERS];
            of[from..to].iter().fold(0, |all, r| all | r)
        };
        all(&self.results) | all(&self.sources)
    }

    /// Takes in what one more way brings; whether that is more than was known.
    pub fn join(&mut self, other: &Waits) -> bool {
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

/// What is on its way at a label.
pub(super) struct Entry {
    pub waits: Waits,
    /// Cycles until the results of matrices are in general registers; nothing if none are on their way.
    pub late: Vec<u8>,
}

impl Entry {
    /// Takes in what one more way leaves; whether that is more than was known.
    pub fn join(place: &mut Option<Box<Entry>>, waits: &Waits, late: impl Iterator<Item = (usize, u8)>) -> bool {
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

/// The scoreboards of nodes, so that a piece which is gone over again has the same.
pub(super) struct Given(Vec<u8>);

impl Given {
    pub fn new(nodes: usize) -> Given {
        Given(vec![NONE; nodes])
    }

    pub fn get(&self, node: u32) -> Option<u8> {
        self.0.get(node as usize).copied().filter(|k| *k != NONE)
    }

    pub fn set(&mut self, node: u32, board: u8) {
        if let Some(place) = self.0.get_mut(node as usize) {
            *place = board;
        }
    }
}
