//! Code as it is executed: fetched once a launch, decoded once for all launches that share a [`Decoder`].

use super::block::{CompiledRuns, Entry};
use super::bus::{Access, MemoryFault};
use super::core::Machine;
use super::fault::{FaultKind, R, fail};
use super::lower::{Body, lower};
use super::operand::PSrc;
use super::strict::{Need, Timing};
use crate::translate::OFTEN;
use crate::translate::Translation;
use doorbell_ptx::sass::{self, Instruction, RegFile, SmArch, effects};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// An instruction ready to execute, independent of its address.
pub(super) struct Decoded {
    pub word: u128,
    pub inst: Instruction,
    /// Predicate of the guard; 7 is always.
    pub guard: u8,
    pub guard_not: bool,
    pub guard_uniform: bool,
    /// Of the uniform datapath: it counts as one lane.
    pub scalar: bool,
    pub body: Body,
    pub timing: Timing,
    /// The highest general register that it names.
    highest: u32,
    /// A tuple of registers that is not aligned as it must be.
    misaligned: Option<String>,
}

impl Decoded {
    /// The predicate of its guard.
    pub(crate) fn guard(&self) -> PSrc {
        PSrc { uniform: self.guard_uniform, index: self.guard, not: self.guard_not }
    }
}

/// What launches share: instructions that were decoded, by their chips and words, and compiled runs of them.
#[derive(Default)]
pub struct Decoder {
    known: Mutex<HashMap<(SmArch, u128), Arc<Decoded>>>,
    /// Who compiles what plain mode executes often.
    pub(super) translation: Translation,
    /// A run is compiled when it has been entered so often.
    pub(super) often: u32,
    pub(super) runs: CompiledRuns,
}

/// Number of words that are cached.
const KEPT: usize = 1 << 16;

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder")
    }
}

impl Decoder {
    /// Has what plain mode executes often compiled.
    #[must_use]
    pub fn translated(translation: Translation) -> Self {
        Self { translation, often: OFTEN, ..Self::default() }
    }

    /// The same, when it has been executed so often.
    #[must_use]
    pub fn after(self, times: u32) -> Self {
        Self { often: times, ..self }
    }

    fn decode(&self, chip: SmArch, word: u128) -> R<Arc<Decoded>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(decoded) = known.get(&(chip, word)) {
            return Ok(Arc::clone(decoded));
        }
        let decoded = Arc::new(decode(chip, word)?);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert((chip, word), Arc::clone(&decoded));
        Ok(decoded)
    }
}

/// Instructions of a page of code.
const PAGE: u64 = 4096;
const SLOTS: usize = 256;

/// The instructions executed so far, by their numbers.
#[derive(Default)]
pub(super) struct Code {
    all: Vec<(u64, Arc<Decoded>)>,
}

impl Code {
    /// An instruction by its number.
    pub(crate) fn at(&self, index: u32) -> &Decoded {
        &self.all[index as usize].1 // PANIC: numbers come from `find`
    }

    pub(crate) fn pc(&self, index: u32) -> u64 {
        self.all[index as usize].0 // PANIC: numbers come from `find`
    }

    pub(crate) fn text(&self, index: u32) -> String {
        sass::print(&self.at(index).inst)
    }
}

/// A multiprocessor's copy of the code.
#[derive(Default)]
pub(super) struct Program {
    pages: Vec<(u64, [u32; SLOTS])>,
    recent: usize,
    /// Registers that warps have allocated.
    asked: u32,
    /// The highest register that an instruction names.
    pub highest: u32,
    pub code: Code,
    /// For each instruction, distances that strict mode looked up.
    pub needs: Vec<Vec<Need>>,
    /// For each instruction, the compiled run that begins there.
    pub entries: Vec<Entry>,
}

/// An entry that was not decoded yet.
const NONE: u32 = u32::MAX;

impl Program {
    /// The number of the instruction at an address.
    #[inline]
    pub(crate) fn find(&mut self, pc: u64, machine: &Machine) -> R<u32> {
        let slot = (pc & (PAGE - 1)) as usize / 16;
        match self.pages.get(self.recent) {
            Some((base, page)) if *base == pc & !(PAGE - 1) && pc & 15 == 0 && page[slot] != NONE => Ok(page[slot]),
            _ => self.decoded(pc, machine),
        }
    }

    #[cold]
    fn decoded(&mut self, pc: u64, machine: &Machine) -> R<u32> {
        if !pc.is_multiple_of(16) {
            return fail(FaultKind::MisalignedPc { pc });
        }
        let (base, slot) = (pc & !(PAGE - 1), (pc & (PAGE - 1)) as usize / 16);
        self.recent = self.pages.iter().position(|p| p.0 == base).unwrap_or_else(|| {
            self.pages.push((base, [NONE; SLOTS]));
            self.pages.len() - 1
        });
        let known = self.pages[self.recent].1[slot];
        if known != NONE {
            return Ok(known);
        }
        let decoded = machine.decoder.decode(machine.launch.chip, fetch(pc, machine)?)?;
        // Warps may have taken more than the launch gave.
        if (decoded.inst.form().mnemonic, decoded.inst.form().name) == ("USETMAXREG", "A") {
            self.asked = self.asked.max(decoded.inst.get("n", sass::Role::Value).unwrap_or(0) as u32);
        }
        let allocated = machine.launch.registers.max(self.asked).next_multiple_of(8).min(255);
        if decoded.highest >= allocated && decoded.highest != 0 {
            let register = format!("R{}", decoded.highest);
            return fail(FaultKind::RegisterBeyondAllocation { register, allocated });
        }
        if let (true, Some(what)) = (machine.options.strict, &decoded.misaligned) {
            return fail(FaultKind::IllegalInstruction { what: what.clone() });
        }
        self.highest = self.highest.max(decoded.highest.min(254));
        let index = self.code.all.len() as u32;
        self.code.all.push((pc, decoded));
        self.needs.push(Vec::new());
        self.entries.push(Entry::Unknown);
        self.pages[self.recent].1[slot] = index;
        Ok(index)
    }

    /// Mnemonics and forms that were executed.
    pub(crate) fn forms(&self) -> BTreeSet<(&'static str, &'static str)> {
        self.code.all.iter().map(|(_, d)| (d.inst.form().mnemonic, d.inst.form().name)).collect()
    }
}

fn fetch(pc: u64, machine: &Machine) -> R<u128> {
    let mut bytes = [0; 16];
    let fault = |f: MemoryFault| MemoryFault { access: Access::Fetch, ..f };
    machine.bus.read(pc, &mut bytes).map_err(fault)?;
    Ok(u128::from_le_bytes(bytes))
}

fn decode(chip: SmArch, word: u128) -> R<Decoded> {
    let illegal = |e: sass::DecodeError| Box::new(FaultKind::IllegalInstruction { what: e.to_string() });
    let inst = sass::decode_for(word, chip).map_err(illegal)?;
    let all = effects(&inst);
    let (mut highest, mut misaligned) = (0, None);
    for access in all.reads.iter().chain(&all.writes).filter(|a| a.file == RegFile::General && a.count > 0) {
        highest = highest.max(u32::from(access.first) + u32::from(access.count) - 1);
        if !access.is_aligned() {
            misaligned = Some(format!("R{} of {} registers is not aligned", access.first, access.count));
        }
    }
    let body = lower(&inst)?;
    let timing = Timing::of(&inst, all);
    let scalar = inst.form().guard == sass::File::UniformPredicate;
    Ok(Decoded {
        word,
        guard: inst.guard.index,
        guard_not: inst.guard.not,
        guard_uniform: scalar,
        scalar,
        body,
        timing,
        inst,
        highest,
        misaligned,
    })
}

/// The text of the instruction at an address, for a fault's report.
pub(super) fn text(pc: u64, machine: &Machine) -> String {
    match fetch(pc, machine) {
        Err(_) => String::new(),
        Ok(word) => {
            let inst = sass::decode_for(word, machine.launch.chip);
            inst.map_or_else(|_| format!("{word:#034x}"), |i| sass::print(&i))
        }
    }
}
