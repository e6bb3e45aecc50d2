//! Straight runs of instructions as code of the host, for plain mode: what is executed often is compiled by whoever the
//! [`Translation`](crate::translate::Translation) names.
//!
//! A run goes from where a path arrives to the next branch. What `integer` and `float` have nodes for becomes native
//! pieces; memory and everything else between them is interpreted. Runs are found again by their words, so that a
//! kernel that is launched often is compiled once.

mod float;
mod integer;
mod memory;
mod state;

use super::SmArch;
use super::bus::Access;
use super::core::Machine;
use super::issue::Timed;
use super::lower::Body;
use super::operand::{Fields, PSrc};
use super::program::{Decoded, Decoder, Program};
use super::shared::Cta;
use super::warp::Warp;
use crate::translate::{Block, DeviceView, LANES, Translated, Translation};
use state::{Load, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most instructions of a run.
const LONGEST: usize = 192;
/// Native pieces have so many instructions at least: fewer are interpreted as fast.
const SHORTEST: usize = 1;
/// A run is compiled when it has been entered so often, unless the [`Decoder`](super::Decoder) says otherwise.
pub(super) const OFTEN: u32 = 24;
/// Number of runs that are kept.
const KEPT: usize = 1 << 13;

/// A run of instructions.
pub(super) struct Run {
    pub pieces: Vec<Piece>,
    /// Instructions of all pieces.
    pub count: u32,
    /// Loads from global memory of all native pieces.
    loads: usize,
}

pub(super) enum Piece {
    Native(Native),
    /// So many instructions that are interpreted.
    Interpreted(u32),
}

/// Instructions as code of the host.
pub(super) struct Native {
    pub count: u32,
    /// Those of vectors; the others are of the uniform datapath.
    vectors: u32,
    stalls: u64,
    times: Vec<Timed>,
    constants: Vec<(u8, i64)>,
    accesses: Vec<Load>,
    /// Loads of the run's pieces before.
    first_access: usize,
    whole: Option<Box<dyn Translated>>,
    /// For paths of some lanes: compiled when there is one.
    some: (Block, OnceLock<Option<Box<dyn Translated>>>),
}

/// The runs of all launches.
#[derive(Default)]
pub(super) struct Runs(Mutex<HashMap<(SmArch, Vec<u128>), Known>>);

/// How often a run was entered, or its code.
enum Known {
    Entered(u32),
    Made(Arc<Run>),
}

/// What a program knows of the run from an instruction on.
#[derive(Clone, Default)]
pub(super) enum Entry {
    #[default]
    Unknown,
    /// It may be entered so often before it is compiled.
    Seldom(u32),
    /// Its code, and the number of its first load in [`Ranges`].
    Made(Arc<Run>, usize),
    /// There is nothing to compile.
    Never,
}

impl Runs {
    /// Counts so many entries of a run; its code once it was entered often.
    fn enter(&self, decoder: &Decoder, chip: SmArch, all: &[&Decoded], times: u32) -> Entry {
        let key = (chip, all.iter().map(|d| d.word).collect::<Vec<u128>>());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = match lock().get(&key) {
            Some(Known::Made(run)) => return Entry::Made(Arc::clone(run), 0),
            Some(Known::Entered(n)) => n.saturating_add(times),
            None => times,
        };
        let known = match entered < decoder.often {
            true => Known::Entered(entered),
            false => Known::Made(Arc::new(make(&decoder.translation, all))),
        };
        let mut runs = lock();
        if runs.len() >= KEPT {
            runs.clear();
        }
        let entry = match &known {
            Known::Entered(n) => Entry::Seldom(decoder.often - n),
            Known::Made(run) => Entry::Made(Arc::clone(run), 0),
        };
        runs.insert(key, known);
        entry
    }
}

/// The run from an instruction on, if it is compiled: counts that it is entered.
pub(super) fn entered(program: &mut Program, (pc, index): (u64, u32), machine: &Machine) -> Option<(Arc<Run>, usize)> {
    let translation = &machine.decoder.translation;
    match &mut program.entries[index as usize] {
        Entry::Made(run, first) => return Some((Arc::clone(run), *first)),
        Entry::Never => return None,
        Entry::Seldom(left) if *left > 1 => {
            *left -= 1;
            return None;
        }
        Entry::Seldom(_) | Entry::Unknown => {}
    }
    let times = if matches!(program.entries[index as usize], Entry::Unknown) { 1 } else { machine.decoder.often };
    let indices = straight(program, pc, machine);
    let mut entry = match translation.0.is_some() && indices.len() >= SHORTEST {
        false => Entry::Never,
        true => {
            let all: Vec<&Decoded> = indices.iter().map(|i| program.code.at(*i)).collect();
            machine.decoder.runs.enter(machine.decoder, machine.launch.chip, &all, times)
        }
    };
    if let Entry::Made(run, first) = &mut entry {
        *first = program.ranges.add(run.loads);
    }
    program.entries[index as usize] = entry.clone();
    if let Entry::Made(run, first) = entry { Some((run, first)) } else { None }
}

/// The instructions from an address to the next branch, as far as they can be decoded.
fn straight(program: &mut Program, pc: u64, machine: &Machine) -> Vec<u32> {
    let mut all = Vec::new();
    for k in 0..LONGEST as u64 {
        let Ok(index) = program.find(pc + 16 * k, machine) else { break };
        if matches!(program.code.at(index).body, Body::Flow(_)) {
            break;
        }
        all.push(index);
    }
    all
}

/// Compiles a run.
fn make(translation: &Translation, all: &[&Decoded]) -> Run {
    let (mut pieces, mut loads) = (Vec::new(), 0);
    let mut from = 0;
    while from < all.len() {
        let (states, count) = states(&all[from..]);
        let part = &all[from..from + count];
        let native = (count >= SHORTEST).then(|| native(translation, states, part, loads)).flatten();
        let count = count.max(1);
        match (native, pieces.last_mut()) {
            (Some(native), _) => {
                loads += native.accesses.len();
                pieces.push(Piece::Native(native));
            }
            (None, Some(Piece::Interpreted(n))) => *n += count as u32,
            (None, _) => pieces.push(Piece::Interpreted(count as u32)),
        }
        from += count;
    }
    Run { pieces, count: all.len() as u32, loads }
}

/// The nodes of the first instructions that have some, twice: for whole warps and for paths of some lanes; and how many
/// they are.
fn states(all: &[&Decoded]) -> ([State; 2], usize) {
    let mut states = [State::new(false), State::new(true)];
    for (k, d) in all.iter().enumerate() {
        // An instruction that is only begun must leave nothing behind.
        let full = states[0].constants.len() + 4 > state::CONSTANTS || states[0].accesses.len() == state::RANGES;
        if full || add(&mut State::new(true), d).is_none() || states.iter_mut().any(|s| add(s, d).is_none()) {
            return (states, k);
        }
    }
    (states, all.len())
}

/// Adds an instruction's nodes; None where it has none.
fn add(s: &mut State, d: &Decoded) -> Option<()> {
    s.lanes = if d.scalar { 1 } else { LANES };
    let guard = PSrc { uniform: d.guard_uniform, index: d.guard, not: d.guard_not };
    s.guard = match (d.guard, d.guard_not) {
        (7, false) => None,
        _ => Some(s.predicate(guard)?),
    };
    let f = Fields(&d.inst);
    if f.0.form().mnemonic != "NOP" {
        integer::add(s, f).or_else(|| float::add(s, f)).or_else(|| memory::add(s, f))?;
    }
    s.count += 1;
    Some(())
}

fn native(
    translation: &Translation,
    [whole, some]: [State; 2],
    all: &[&Decoded],
    first_access: usize,
) -> Option<Native> {
    let translator = translation.0.as_ref()?;
    let (constants, accesses) = (whole.constants.clone(), whole.accesses.clone());
    let whole = translator.translate(&whole.finish())?;
    Some(Native {
        count: all.len() as u32,
        vectors: all.iter().filter(|d| !d.scalar).count() as u32,
        stalls: all.iter().map(|d| u64::from(d.inst.control.stall.max(1))).sum(),
        times: Timed::of(all.iter().map(|d| &d.inst)),
        constants,
        accesses,
        first_access,
        whole: Some(whole),
        some: (some.finish(), OnceLock::new()),
    })
}

/// What a native piece has executed.
pub(super) struct Done {
    pub instructions: u32,
    /// Guards aside.
    pub lane_operations: u64,
}

/// Memory that the loads of compiled runs were in before: the first address, and the memory.
#[derive(Default)]
pub(super) struct Ranges {
    epoch: u64,
    known: Vec<Option<(u64, DeviceView)>>,
}

impl Ranges {
    /// Makes room for a run's loads; the number of the first.
    fn add(&mut self, loads: usize) -> usize {
        let first = self.known.len();
        self.known.resize_with(first + loads, || None);
        first
    }

    /// Forgets everything when a mapping has changed.
    fn refresh(&mut self, machine: &Machine) {
        let epoch = machine.bus.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.known.iter_mut().for_each(|k| *k = None);
        }
    }
}

impl Native {
    /// Executes it for these lanes, as far as its loads are in memory that they were in before. None: it has to be
    /// interpreted.
    pub fn run(
        &self,
        (warp, cta): (&mut Warp, &mut Cta),
        (ranges, first): (&mut Ranges, usize),
        machine: &Machine,
        lanes: u32,
    ) -> Option<Done> {
        let mut extra = [0; state::EXTRA_WORDS];
        (extra[state::EXECUTING], extra[state::SHARED_BYTES]) = (lanes, cta.shared_bytes());
        for (word, (bank, offset)) in extra[state::FIRST_CONSTANT..].iter_mut().zip(&self.constants) {
            // Interpreted, it is a fault.
            *word = machine.word(*bank, *offset)?;
        }
        let mut views: [Option<&DeviceView>; state::RANGES] = [None; state::RANGES];
        if !self.accesses.is_empty() {
            ranges.refresh(machine);
        }
        for (k, access) in self.accesses.iter().enumerate() {
            let Some((start, view)) = &ranges.known[first + self.first_access + k] else { continue };
            let bound = (view.len_bytes() + 1).saturating_sub(u64::from(access.len_bytes));
            let words = &mut extra[state::FIRST_RANGE + 4 * k..][..4];
            words.copy_from_slice(&[*start as u32, (*start >> 32) as u32, bound as u32, (bound >> 32) as u32]);
            views[k] = Some(view);
        }
        let code = match lanes {
            u32::MAX => self.whole.as_ref(),
            _ => {
                let make = || machine.decoder.translation.0.as_ref().and_then(|t| t.translate(&self.some.0));
                self.some.1.get_or_init(make).as_ref()
            }
        };
        code?.run(
            &mut [
                warp.registers.as_flattened_mut(),
                &mut warp.uniform,
                &mut warp.predicates,
                &mut warp.uniform_predicates,
                &mut extra,
                cta.words()?,
            ],
            &views[..self.accesses.len()],
        );
        let done = extra[state::DONE];
        let all = lanes.count_ones();
        let vectors = if done == self.count { self.vectors } else { done };
        if done == self.count {
            warp.clock += self.stalls;
            self.times.iter().for_each(|t| warp.issue.pass(t));
        } else {
            warp.clock += u64::from(done);
        }
        Some(Done {
            instructions: done,
            lane_operations: u64::from(all) * u64::from(vectors) + u64::from(done - vectors),
        })
    }

    /// Notes in which memory the load is that the block ended before.
    pub fn note(&self, warp: &Warp, (ranges, first): (&mut Ranges, usize), machine: &Machine, at: (u32, u32)) {
        let (number, lanes) = at;
        let Some(k) = self.accesses.iter().position(|a| a.number == number) else { return };
        let va = self.accesses[k].address_of(warp, lanes.trailing_zeros() as usize & 31);
        // Indexes of words are signed and have 32 bits.
        let found = machine.bus.view(va, Access::Read).filter(|(_, view)| view.len_bytes() <= 1 << 32);
        ranges.known[first + self.first_access + k] = found;
    }
}
