//! A checker of schedules: from the words alone, it checks that on every path each instruction finds its registers
//! ready.
//!
//! The hardware has no register interlocks except the six scoreboards and the stall counts between instructions. So the
//! checker walks the control flow (with the branches in the words), tracks for each point what may still be in flight
//! (`state`), and reports
//!
//! - a result of fixed latency that is read, or overwritten by a faster one, before its latency has passed,
//! - a result of variable latency that is read or overwritten without a wait for it,
//! - a source that is overwritten before the instruction that reads it late has read it,
//! - a partial wait (`DEPBAR.LE SBn, k`) on a scoreboard that instructions of several queues share, which guarantees
//!   nothing.
//!
//! It is independent of the compiler that made the words; both use the instruction table,
//! [`effects`](crate::sass::effects()) and the latencies. Where paths join, the worst case counts. An instruction that
//! yields with a stall of 0 and sets no scoreboard lets the next one issue only when everything is done; only code of
//! `ptxas -O0` has such instructions.
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

/// Which latencies of the table are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The smallest that ptxas leaves: for checking code of ptxas.
    Seen,
    /// The published ones where they are larger: for checking our own code.
    Safe,
}

/// Kinds of hazards between two instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The cycles between the two, and the required minimum.
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
    /// A partial wait on a scoreboard that several queues share.
    PartialWait,
}

/// A scheduling error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Error)]
#[error("instruction {consumer}: {}{register} of instruction {producer}: {}", file_letter(*.file), describe(*.kind))]
pub struct Hazard {
    /// Indices of instructions, from 0.
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

/// Scheduling errors in a kernel's code for sm_90, by position; empty if the schedule is correct.
///
/// # Errors
/// The first word that is not an instruction.
pub fn check(words: &[u128], trust: Trust) -> Result<Vec<Hazard>, DecodeError> {
    check_for(words, SmArch::Sm90, trust)
}

/// The same for a given chip.
///
/// # Errors
/// The first word that is not an instruction.
pub fn check_for(words: &[u128], chip: SmArch, trust: Trust) -> Result<Vec<Hazard>, DecodeError> {
    let code: Vec<Instruction> = words.iter().map(|w| decode_for(*w, chip)).collect::<Result<_, _>>()?;
    Ok(check_instructions(&code, trust))
}

/// The same for decoded instructions.
#[must_use]
fn check_instructions(code: &[Instruction], trust: Trust) -> Vec<Hazard> {
    Checker::of(code).check(trust)
}

/// Code analysed once, to be checked with many schedules.
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

    /// Replaces an instruction's control word; positions beyond the code are ignored.
    pub fn set_control(&mut self, at: usize, control: Control) {
        if let Some(infos) = self.infos.get_mut(at) {
            infos.set_control(control);
        }
    }

    /// Scheduling errors by position.
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
            // State inside a block need not be kept.
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
