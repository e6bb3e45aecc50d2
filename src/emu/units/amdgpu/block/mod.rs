//! Straight runs of instructions as code of the host, for plain mode: what is executed often is compiled by whoever the
//! [`Translation`] names.
//!
//! A run goes from where a wave arrives to the next branch or barrier. What `scalar`, `vector` and `float` have nodes
//! for becomes native pieces, with loads of dwords from LDS (`local`) and from memory (`global`); everything else
//! between them is interpreted. EXEC is the same over a native piece: the instruction that writes it is the last one.
//! Runs are found again by their words, so that a kernel that is launched often is compiled once.
//!
//! Left out: lane shuffles and parts of dwords (DPP, SDWA), halves and doubles, clamped and scaled results, stores,
//! atomics, exponentials and logarithms, division's helpers, matrices; singles under another MODE than rounding to
//! nearest with denormals.

mod float;
mod global;
mod local;
mod scalar;
mod state;
mod vector;

use super::control::Control;
use super::fault::R;
use super::group::{Unit, advance};
use super::inst::Inst;
use super::memory::Space;
use super::sem::Sem;
use super::wave::{State as WaveState, Wave};
pub(super) use crate::translate::LONGEST;
use crate::translate::{Known, Lazy, OFTEN, Runs, Translation};
use global::Load;
pub(super) use global::Ranges;
pub(super) use state::{FLAG_DONE, FLAG_LDS_BYTES, FLAG_SCC, Shape};
use state::{FLAG_RANGES, FLAG_WORDS, LOADS, State};
use std::sync::Arc;

/// Native pieces have so many instructions at least: fewer are interpreted as fast.
const SHORTEST: usize = 2;

/// A run of instructions.
pub(super) struct Run {
    pieces: Vec<Piece>,
    /// Loads of global memory.
    loads: usize,
}

enum Piece {
    Native(Box<Native>),
    Interpreted(Box<[Inst]>),
}

/// Instructions as code of the host.
struct Native {
    insts: Box<[Inst]>,
    /// Vector operations of the first so many.
    operations: Vec<u32>,
    /// It is for a MODE that rounds singles to nearest and keeps their denormals.
    floats: bool,
    translation: Translation,
    /// Loads of global memory, and how many the run has before.
    loads: Vec<Load>,
    first_load: usize,
    /// For waves of which all lanes execute, and for others; compiled when there is one.
    all_lanes: Lazy,
    some_lanes: Option<Lazy>,
}

/// What dispatches share: compiled runs of instructions, for waves that run without checks.
#[derive(Default)]
pub struct HotCode {
    translation: Translation,
    /// A run is compiled when it has been entered so often.
    often: u32,
    runs: Runs<(Shape, Vec<u32>), Run>,
}

/// What a host thread knows of the run from an instruction on.
#[derive(Clone, Default)]
pub(super) enum Entry {
    #[default]
    Unknown,
    /// It may be entered so often before it is compiled.
    Seldom(u32),
    Made(Arc<Run>),
    /// There is nothing to compile.
    Never,
}

impl std::fmt::Debug for HotCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HotCode({:?})", self.translation)
    }
}

impl HotCode {
    /// Has what waves without checks execute often compiled.
    #[must_use]
    pub fn new(translation: Translation) -> Self {
        Self { translation, often: OFTEN, ..Self::default() }
    }

    /// The same, when it has been executed so often.
    #[must_use]
    pub fn after(self, times: u32) -> Self {
        Self { often: times, ..self }
    }

    /// Whether anything is compiled.
    pub(super) fn is_on(&self) -> bool {
        self.translation.0.is_some()
    }

    /// Counts so many entries of a run; its code once it was entered often.
    fn enter(&self, shape: Shape, all: &[&Inst], times: u32) -> Entry {
        let words = |i: &&Inst| i.words.into_iter().take(usize::from(i.len_dwords)).collect::<Vec<u32>>();
        let key = (shape, all.iter().flat_map(words).collect());
        match self.runs.enter(key, times, self.often, || make(&self.translation, shape, all)) {
            Known::Entered(n) => Entry::Seldom(self.often - n),
            Known::Made(run) => Entry::Made(run),
        }
    }
}

impl Entry {
    /// Counts that the run is entered; its code, if it has one. `None`: it has to be looked up.
    pub(crate) fn count(&mut self) -> Option<Option<Arc<Run>>> {
        match self {
            Self::Made(run) => Some(Some(Arc::clone(run))),
            Self::Never => Some(None),
            Self::Seldom(left) if *left > 1 => {
                *left -= 1;
                Some(None)
            }
            Self::Seldom(_) | Self::Unknown => None,
        }
    }

    /// Finds the run by its instructions; its code, if it was entered often.
    pub(crate) fn look_up(&mut self, hot: &HotCode, shape: Shape, all: &[&Inst]) -> Option<Arc<Run>> {
        let times = if matches!(self, Self::Unknown) { 1 } else { hot.often };
        *self = if all.len() < SHORTEST { Self::Never } else { hot.enter(shape, all, times) };
        match self {
            Self::Made(run) => Some(Arc::clone(run)),
            _ => None,
        }
    }
}

/// Whether the wave may continue elsewhere than after the instruction, or not at once.
pub(super) fn ends_run(i: &Inst) -> bool {
    match i.entry.sem {
        Sem::Control(c) => !matches!(
            c,
            Control::Nothing
                | Control::Nop
                | Control::Wait(_)
                | Control::Exec { .. }
                | Control::GetReg
                | Control::SetReg { .. }
                | Control::GetPc
        ),
        Sem::Unmodelled => true,
        _ => false,
    }
}

/// Compiles a run.
fn make(translation: &Translation, shape: Shape, all: &[&Inst]) -> Run {
    let mut pieces = Vec::new();
    let mut interpreted: Vec<Inst> = Vec::new();
    let (mut from, mut loads) = (0, 0);
    while from < all.len() {
        let count = native_from(shape, &all[from..]);
        if count < SHORTEST {
            let count = count.max(1);
            interpreted.extend(all[from..from + count].iter().map(|i| (*i).clone()));
            from += count;
            continue;
        }
        if !interpreted.is_empty() {
            pieces.push(Piece::Interpreted(std::mem::take(&mut interpreted).into()));
        }
        let insts = all[from..from + count].iter().map(|i| (*i).clone()).collect();
        let native = Native::new(translation, shape, insts, loads);
        loads += native.loads.len();
        pieces.push(Piece::Native(Box::new(native)));
        from += count;
    }
    if !interpreted.is_empty() {
        pieces.push(Piece::Interpreted(interpreted.into()));
    }
    Run { pieces, loads }
}

/// How many of the first instructions have nodes.
fn native_from(shape: Shape, all: &[&Inst]) -> usize {
    let mut loads = 0;
    for (k, i) in all.iter().enumerate() {
        let mut s = State::new(shape, false);
        if add(&mut s, i).is_none() || loads + s.loads.len() > LOADS {
            return k;
        }
        loads += s.loads.len();
        if s.ended {
            return k + 1;
        }
    }
    all.len()
}

/// Adds an instruction's nodes; `None` where it has none.
fn add(s: &mut State, i: &Inst) -> Option<()> {
    match i.entry.sem {
        Sem::Control(Control::Nothing | Control::Nop | Control::Wait(_)) => Some(()),
        Sem::Control(Control::Exec { write_back, .. }) => scalar::on_exec(s, i, write_back),
        Sem::Scalar(_) => scalar::add(s, i),
        Sem::Memory(op) if op.space == Space::Lds => local::add(s, i, op),
        Sem::Memory(op) => global::add(s, i, op),
        Sem::Vector(..) | Sem::Compare(_) | Sem::Cross(_) | Sem::Packed(_) => vector::add(s, i),
        _ => None,
    }
}

impl Native {
    fn new(translation: &Translation, shape: Shape, insts: Box<[Inst]>, first_load: usize) -> Self {
        let mut operations = vec![0];
        let mut state = |some: bool| {
            let mut s = State::new(shape, some);
            operations.truncate(1);
            for i in &insts {
                // It has nodes: they were tried one by one.
                let _ = add(&mut s, i);
                s.count += 1;
                operations.push(s.operations);
            }
            s
        };
        let s = state(false);
        let (floats, is_vector) = (s.floats, s.is_vector());
        let loads = s.loads.clone();
        let all_lanes = Lazy::new(s.finish());
        let some_lanes = is_vector.then(|| Lazy::new(state(true).finish()));
        Self { operations, floats, translation: translation.clone(), loads, first_load, all_lanes, some_lanes, insts }
    }

    /// Executes its first instructions; how many. The others have to be interpreted.
    fn run(&self, w: &mut Wave, unit: &mut Unit, ranges: &mut Ranges) -> usize {
        if w.index_mode || self.floats && !w.mode.is_plain() {
            return 0;
        }
        let exec = w.exec();
        let code = match &self.some_lanes {
            Some(some) if exec != w.full() => some.get(&self.translation),
            _ => self.all_lanes.get(&self.translation),
        };
        let Some(code) = code else { return 0 };
        let done = match self.loads.is_empty() {
            true => w.run_native(code, &mut unit.lds, &mut [0; FLAG_RANGES], &[]),
            false => {
                let mut flags = [0; FLAG_WORDS];
                ranges.words(self.first_load, &self.loads, &mut flags[FLAG_RANGES..]);
                let views = &ranges.views[self.first_load..][..self.loads.len()];
                w.run_native(code, &mut unit.lds, &mut flags, views)
            }
        };
        w.pc += self.insts[..done].iter().map(Inst::len_bytes).sum::<u64>();
        w.instructions += done as u64;
        w.lane_operations += u64::from(self.operations[done]) * u64::from(exec.count_ones());
        if let Some(k) = self.loads.iter().position(|l| l.number as usize == done) {
            ranges.note(self.first_load + k, w, &mut unit.tlb, &self.insts[done]);
        }
        done
    }
}

impl Run {
    /// Executes it as far as the wave goes on without a branch.
    pub(crate) fn follow(&self, w: &mut Wave, unit: &mut Unit, ranges: &mut Ranges) -> R<()> {
        ranges.prepare(self.loads, &unit.tlb);
        for piece in &self.pieces {
            let insts = match piece {
                Piece::Native(native) => &native.insts[native.run(w, unit, ranges)..],
                Piece::Interpreted(insts) => insts,
            };
            for i in insts {
                let next = w.pc + i.len_bytes();
                advance(w, unit, i)?;
                if w.pc != next || w.state != WaveState::Ready {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
