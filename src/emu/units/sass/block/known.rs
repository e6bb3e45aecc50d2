//! Which runs are compiled: found by their words, once they were entered often.

use super::super::SmArch;
use super::super::core::Machine;
use super::super::lower::Body;
use super::super::program::{Decoded, Program};
use super::{Prepared, Run, make};
use crate::translate::{Known, LONGEST, Runs};

/// The runs of all launches: by the chip, whether strict mode checks it, and the words.
pub(in super::super) type CompiledRuns = Runs<(SmArch, bool, Vec<u128>), Run>;

/// What a program knows of the run from an instruction on.
#[derive(Default)]
pub(in super::super) enum Entry {
    #[default]
    Unknown,
    /// It may be entered so often before it is compiled.
    Seldom(u32),
    Made(Box<Prepared>),
    /// There is nothing to compile, or it is being executed.
    Never,
}

/// Counts so many entries of a run; its code once it was entered often.
fn enter(machine: &Machine, all: &[&Decoded], times: u32) -> Known<Run> {
    let (decoder, strict) = (machine.decoder, machine.options.strict);
    let key = (machine.launch.chip, strict, all.iter().map(|d| d.word).collect());
    decoder.runs.enter(key, times, decoder.often, || make(&decoder.translation, all, strict))
}

/// The run from an instruction on, if it is compiled: counts that it is entered. It is given back to the program's
/// entries after its execution.
pub(in super::super) fn entered(
    program: &mut Program,
    (pc, index): (u64, u32),
    machine: &Machine,
) -> Option<Box<Prepared>> {
    let entry = &mut program.entries[index as usize];
    let times = match entry {
        Entry::Made(_) => match std::mem::replace(entry, Entry::Never) {
            Entry::Made(run) => return Some(run),
            _ => return None,
        },
        Entry::Never => return None,
        Entry::Seldom(left) if *left > 1 => {
            *left -= 1;
            return None;
        }
        // As many as were counted here.
        Entry::Seldom(_) => machine.decoder.often,
        Entry::Unknown => 1,
    };
    let indices = straight(program, pc, machine);
    let known = match indices.is_empty() {
        true => None,
        false => {
            let all: Vec<&Decoded> = indices.iter().map(|i| program.code.at(*i)).collect();
            Some(enter(machine, &all, times))
        }
    };
    program.entries[index as usize] = match known {
        Some(Known::Made(run)) => {
            let next = program.find(pc + 16 * u64::from(run.count), machine).ok();
            return Some(Box::new(Prepared::new(run, (&indices, next), machine)));
        }
        Some(Known::Entered(n)) => Entry::Seldom(machine.decoder.often - n),
        None => Entry::Never,
    };
    None
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
