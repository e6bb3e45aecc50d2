//! A checker of schedules: from the words alone, whether every instruction finds its registers ready on every path.
//!
//! The hardware protects no register but by the six scoreboards and by what the stall counts leave between two
//! instructions. So the checker walks the control flow (branches as the words have them), keeps for each point what may
//! still be in flight ([`state`]), and reports
//!
//! - a result of fixed latency that is read, or overwritten by a faster one, before its distance has passed,
//! - a result of variable latency that is read or overwritten while no wait covers it,
//! - a source that is overwritten before the instruction that reads it late has read it,
//! - a partial wait (`DEPBAR.LE SBn, k`) on a scoreboard that instructions of several queues share, of which nothing
//!   can be told.
//!
//! It knows nothing of the compiler that made the words; what both read is the table, [`effects`] and the latencies.
//! Where paths meet, the worst of them counts. An instruction that yields with a stall of 0 and sets no scoreboard lets
//! the next one issue when all is done: code of `ptxas -O0` has no other.
//!
//! Left out: values (a guard that is never true still counts), register banks, the reuse cache, memory, overflow of a
//! scoreboard's counter; groups of bulk copies (mbarriers are memory).

mod flow;
mod state;

use super::chip::SmArch;
use super::control::Control;
use super::decode::{DecodeError, decode_for};
use super::effects::RegFile;
use super::inst::Instruction;
use flow::Flow;
use state::{InstructionInfo, State};
use std::collections::BTreeSet;
use thiserror::Error;

/// Which distances of the table count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The smallest that ptxas leaves: for code of ptxas.
    Seen,
    /// The published ones where they are larger: for code of our own.
    Safe,
}

/// What two instructions do to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Cycles that lie between, and the least that should.
    ReadTooEarly {
        cycles: u8,
        least: u8,
    },
    OverwrittenTooEarly {
        cycles: u8,
        least: u8,
    },
    /// Read or overwritten without a wait for the result.
    ReadUnguarded,
    OverwrittenUnguarded,
    /// Overwritten while it may still be read.
    OverwrittenBeforeRead,
    /// A partial wait on a scoreboard of several queues.
    PartialWait,
}

/// A fault of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
#[error("instruction {consumer}: {}{register} of instruction {producer}: {}", file_letter(*.file), describe(*.kind))]
pub struct Hazard {
    /// Numbers of instructions, from 0.
    pub producer: usize,
    pub consumer: usize,
    pub file: RegFile,
    pub register: u8,
    pub kind: Kind,
}

fn file_letter(file: RegFile) -> &'static str {
    match file {
        RegFile::General => "R",
        RegFile::Uniform => "UR",
        RegFile::Predicate => "P",
        RegFile::UniformPredicate => "UP",
    }
}

fn describe(kind: Kind) -> String {
    match kind {
        Kind::ReadTooEarly { cycles, least } => format!("read {cycles} cycles later, at least {least} are needed"),
        Kind::OverwrittenTooEarly { cycles, least } => {
            format!("overwritten {cycles} cycles later, at least {least} are needed")
        }
        Kind::ReadUnguarded => "read without a wait for it".into(),
        Kind::OverwrittenUnguarded => "overwritten without a wait for it".into(),
        Kind::OverwrittenBeforeRead => "overwritten while it may not have been read".into(),
        Kind::PartialWait => "a partial wait on a scoreboard of several queues".into(),
    }
}

/// Faults of a kernel's code for sm_90, by place; none of a schedule that is sound.
///
/// # Errors
/// The first word that is no instruction.
pub fn check(words: &[u128], trust: Trust) -> Result<Vec<Hazard>, DecodeError> {
    check_for(words, SmArch::Sm90, trust)
}

/// The same of code for a chip.
///
/// # Errors
/// The first word that is no instruction.
pub fn check_for(words: &[u128], chip: SmArch, trust: Trust) -> Result<Vec<Hazard>, DecodeError> {
    let code: Vec<Instruction> = words.iter().map(|w| decode_for(*w, chip)).collect::<Result<_, _>>()?;
    Ok(check_instructions(&code, trust))
}

/// The same of instructions.
#[must_use]
pub fn check_instructions(code: &[Instruction], trust: Trust) -> Vec<Hazard> {
    Checker::of(code).check(trust)
}

/// Code taken apart once, to be checked under many schedules.
pub struct Checker {
    infos: Vec<InstructionInfo>,
    flow: Flow,
}

impl Checker {
    #[must_use]
    pub fn of(code: &[Instruction]) -> Checker {
        Checker { infos: code.iter().map(InstructionInfo::of).collect(), flow: Flow::of(code) }
    }

    /// The control word of an instruction.
    #[must_use]
    pub fn control(&self, at: usize) -> Option<Control> {
        Some(self.infos.get(at)?.control())
    }

    /// Gives an instruction another control word; a place beyond the code has none.
    pub fn set_control(&mut self, at: usize, control: Control) {
        if let Some(infos) = self.infos.get_mut(at) {
            infos.set_control(control);
        }
    }

    /// Faults by place.
    #[must_use]
    pub fn check(&self, trust: Trust) -> Vec<Hazard> {
        let (infos, flow) = (&self.infos, &self.flow);
        let mut before: Vec<Option<State>> = vec![None; infos.len()];
        let mut found = BTreeSet::new();
        let mut work: BTreeSet<usize> = flow.entries().filter(|e| *e < infos.len()).collect();
        for entry in &work {
            before[*entry] = Some(State::default()); // PANIC: entries lie inside the code
        }
        while let Some(mut at) = work.pop_first() {
            let Some(mut now) = before[at].clone() else { continue }; // PANIC: only places inside the code are pushed
            now.step(infos, at, trust, &mut |hazard| {
                found.insert(hazard);
            });
            // Inside a block nothing needs to be kept.
            while let Some(next) = flow.only_after(at) {
                at = next;
                now.step(infos, at, trust, &mut |hazard| {
                    found.insert(hazard);
                });
            }
            for next in flow.after(at).filter(|n| *n < infos.len()) {
                let changed = match &mut before[next] {
                    Some(old) => old.join(&now),
                    none => {
                        *none = Some(now.clone());
                        true
                    }
                };
                if changed {
                    work.insert(next);
                }
            }
        }
        found.into_iter().collect()
    }
}
