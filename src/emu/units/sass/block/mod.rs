//! Straight runs of instructions as code of the host: what is executed often is compiled by whoever the
//! [`Translation`](crate::translate::Translation) names. In strict mode all instructions of a piece are checked, then
//! it is executed.
//!
//! A run goes from where a path arrives to the next branch. What `integer`, `float` and `memory` have nodes for becomes
//! native pieces; stores and everything else between them is interpreted. `known` finds runs again by their words, so
//! that a kernel that is launched often is compiled once; `execute` runs them.
//!
//! Left out of a native piece: the estimate of cycles, and which guarded lanes do something (all count).

mod execute;
mod float;
mod integer;
mod known;
mod memory;
mod state;

pub(super) use execute::{Prepared, follow};
pub(super) use known::{CompiledRuns, Entry, entered};

use super::operand::{Fields, PSrc};
use super::program::Decoded;
use crate::translate::{LANES, Lazy, Translated, Translation};
use state::{Load, State};

/// A run of instructions.
pub(super) struct Run {
    pub pieces: Vec<Piece>,
    /// Instructions of all pieces.
    pub count: u32,
}

pub(super) enum Piece {
    Native(Native),
    /// So many instructions that are interpreted.
    Interpreted(u32),
}

impl Piece {
    /// How many instructions it has.
    fn count(&self) -> u32 {
        match self {
            Piece::Native(native) => native.count,
            Piece::Interpreted(count) => *count,
        }
    }
}

/// Instructions as code of the host.
pub(super) struct Native {
    count: u32,
    /// Those of vectors; the others are of the uniform datapath.
    vectors: u32,
    stalls: u64,
    constants: Vec<(u8, i64)>,
    loads: Vec<Load>,
    all_lanes: Box<dyn Translated>,
    /// For paths of some lanes: compiled when there is one.
    some_lanes: Lazy,
}

/// Compiles a run.
fn make(translation: &Translation, all: &[&Decoded], strict: bool) -> Run {
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < all.len() {
        let (states, count) = states(&all[from..], strict);
        let native = native(translation, states, &all[from..from + count]);
        let count = count.max(1);
        match (native, pieces.last_mut()) {
            (Some(native), _) => pieces.push(Piece::Native(native)),
            (None, Some(Piece::Interpreted(n))) => *n += count as u32,
            (None, _) => pieces.push(Piece::Interpreted(count as u32)),
        }
        from += count;
    }
    Run { pieces, count: all.len() as u32 }
}

/// The nodes of the first instructions that have some, twice: for whole warps and for paths of some lanes; and how many
/// they are. Strict mode checks all of a piece before it is executed: they end where a check needs a predicate's value
/// of in between.
fn states(all: &[&Decoded], strict: bool) -> ([State; 2], usize) {
    let mut states = [State::new(false, strict), State::new(true, strict)];
    for (k, d) in all.iter().enumerate() {
        // An instruction that is only begun must leave nothing behind.
        let written = |p: PSrc| states[0].has_written(p);
        let ends = states[0].is_full() || strict && (written(d.guard()) || d.timing.predicates().any(written));
        if ends || add(&mut State::new(true, strict), d).is_none() || states.iter_mut().any(|s| add(s, d).is_none()) {
            return (states, k);
        }
    }
    (states, all.len())
}

/// Adds an instruction's nodes; None where it has none.
fn add(s: &mut State, d: &Decoded) -> Option<()> {
    s.lanes = if d.scalar { 1 } else { LANES };
    s.guard = match (d.guard, d.guard_not) {
        (7, false) => None,
        _ => Some(s.predicate(d.guard())?),
    };
    let f = Fields(&d.inst);
    if !super::special::is_nothing(f) {
        integer::add(s, f).or_else(|| float::add(s, f)).or_else(|| memory::add(s, f))?;
    }
    s.count += 1;
    Some(())
}

fn native(translation: &Translation, [all_lanes, some_lanes]: [State; 2], all: &[&Decoded]) -> Option<Native> {
    let translator = translation.0.as_ref().filter(|_| !all.is_empty())?;
    let (constants, loads) = (all_lanes.constants.clone(), all_lanes.loads.clone());
    Some(Native {
        count: all.len() as u32,
        vectors: all.iter().filter(|d| !d.scalar).count() as u32,
        stalls: all.iter().map(|d| u64::from(d.inst.control.stall.max(1))).sum(),
        constants,
        loads,
        all_lanes: translator.translate(&all_lanes.finish())?,
        some_lanes: Lazy::new(some_lanes.finish()),
    })
}
