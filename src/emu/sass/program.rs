//! Code as it is met: fetched and decoded once a launch.

use super::bus::{Access, MemoryFault};
use super::core::Machine;
use super::fault::{FaultKind, R, fail};
use super::lower::{Body, lower};
use super::strict::Timing;
use crate::isa::sass::{self, Instruction, RegFile, effects};
use std::collections::BTreeSet;

/// An instruction ready to execute.
pub(super) struct Decoded {
    pub inst: Instruction,
    pub pc: u64,
    /// Predicate of the guard; 7 is always.
    pub guard: u8,
    pub guard_not: bool,
    pub guard_uniform: bool,
    pub body: Body,
    pub timing: Timing,
    /// Whether it was ever executed.
    pub met: bool,
}

/// Instructions of a page of code.
const PAGE: u64 = 4096;
const SLOTS: usize = 256;

/// A multiprocessor's copy of the code.
#[derive(Default)]
pub(super) struct Program {
    pages: Vec<(u64, [u32; SLOTS])>,
    recent: usize,
    code: Vec<Decoded>,
}

/// An entry that was not decoded yet.
const NONE: u32 = u32::MAX;

impl Program {
    /// The number of the instruction at an address.
    pub fn find(&mut self, pc: u64, machine: &Machine) -> R<u32> {
        if !pc.is_multiple_of(16) {
            return fail(FaultKind::MisalignedPc { pc });
        }
        let (base, slot) = (pc & !(PAGE - 1), (pc & (PAGE - 1)) as usize / 16);
        if self.pages.get(self.recent).is_none_or(|p| p.0 != base) {
            self.recent = self.pages.iter().position(|p| p.0 == base).unwrap_or_else(|| {
                self.pages.push((base, [NONE; SLOTS]));
                self.pages.len() - 1
            });
        }
        let known = self.pages[self.recent].1[slot];
        if known != NONE {
            return Ok(known);
        }
        let decoded = decode(pc, machine)?;
        let index = self.code.len() as u32;
        self.code.push(decoded);
        self.pages[self.recent].1[slot] = index;
        Ok(index)
    }

    /// An instruction by its number.
    pub fn at(&self, index: u32) -> &Decoded {
        &self.code[index as usize] // PANIC: numbers come from `find`
    }

    pub fn meet(&mut self, index: u32) {
        self.code[index as usize].met = true; // PANIC: numbers come from `find`
    }

    /// Mnemonics and forms that were executed.
    pub fn forms(&self) -> BTreeSet<(&'static str, &'static str)> {
        self.code.iter().filter(|d| d.met).map(|d| (d.inst.form().mnemonic, d.inst.form().name)).collect()
    }
}

fn fetch(pc: u64, machine: &Machine) -> R<u128> {
    let mut bytes = [0; 16];
    let fault = |f: MemoryFault| MemoryFault { access: Access::Fetch, ..f };
    machine.bus.read(pc, &mut bytes).map_err(fault)?;
    Ok(u128::from_le_bytes(bytes))
}

fn decode(pc: u64, machine: &Machine) -> R<Decoded> {
    let word = fetch(pc, machine)?;
    let inst = sass::decode(word).map_err(|e| Box::new(FaultKind::IllegalInstruction { what: e.to_string() }))?;
    let all = effects(&inst);
    let allocated = machine.launch.registers.next_multiple_of(8).min(255);
    for access in all.reads.iter().chain(&all.writes).filter(|a| a.file == RegFile::General) {
        let last = u32::from(access.first) + u32::from(access.count) - 1;
        if last >= allocated {
            return fail(FaultKind::RegisterBeyondAllocation { register: format!("R{last}"), allocated });
        }
        if machine.options.strict && !access.is_aligned() {
            let what = format!("R{} of {} registers is not aligned", access.first, access.count);
            return fail(FaultKind::IllegalInstruction { what });
        }
    }
    let body = lower(&inst)?;
    let timing = Timing::of(&inst, all);
    let guard_uniform = inst.form().guard == sass::File::UniformPredicate;
    Ok(Decoded {
        guard: inst.guard.index,
        guard_not: inst.guard.not,
        guard_uniform,
        pc,
        body,
        timing,
        inst,
        met: false,
    })
}

/// The text of the instruction at an address, for a fault's report.
pub(super) fn text(pc: u64, machine: &Machine) -> String {
    match fetch(pc, machine) {
        Err(_) => String::new(),
        Ok(word) => sass::decode(word).map_or_else(|_| format!("{word:#034x}"), |i| sass::print(&i)),
    }
}
