//! A workgroup: its waves run interleaved, wait at barriers and share LDS. The loop that fetches, decodes and executes
//! is here.

use super::block::{self, Entry, HotCode, Ranges, Run, Shape};
use super::bus::Tlb;
use super::control::{self, Next};
use super::cross::Cross;
use super::decode::Decoder;
use super::fault::{FaultKind, R, WaveFault, fail};
use super::inst::{Inst, Operand};
use super::lds::Lds;
use super::memory::Space;
use super::sem::Sem;
use super::shadow::Invalidated;
use super::wave::{State, Wave};
use super::{Strict, cross, hazard, lds_exec, matrix, packed, smem, valu, vmem};
use std::collections::{HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the waves of a group share.
pub(super) struct Unit<'a> {
    pub tlb: Tlb<'a>,
    pub lds: Lds,
}

const PAGE: u64 = 4096;
const NOT_YET: u32 = u32::MAX;

type Page = [u32; (PAGE / 4) as usize];

/// Decoded code by address; each instruction is decoded once.
pub(super) struct Code<'a> {
    decoder: Decoder,
    insts: Vec<Inst>,
    pages: Vec<Box<Page>>,
    by_number: HashMap<u64, usize>,
    /// The page used last: its number and index.
    last: (u64, usize),
    /// Findings that were noted: the instruction's address, and the kind.
    noted: HashSet<(u64, Discriminant<FaultKind>)>,
    /// Where compiled runs are kept, if waves run so.
    hot: Option<(&'a HotCode, Shape)>,
    /// For each instruction, the run from it on.
    entries: Vec<Entry>,
    /// And the memory that its loads were in.
    ranges: Vec<Ranges>,
}

impl<'a> Code<'a> {
    pub(crate) fn new(decoder: Decoder, hot: Option<(&'a HotCode, Shape)>) -> Self {
        let (pages, by_number, noted) = (Vec::new(), HashMap::new(), HashSet::new());
        let (insts, entries, ranges) = (Vec::new(), Vec::new(), Vec::new());
        Self { decoder, insts, pages, by_number, last: (u64::MAX, 0), noted, hot, entries, ranges }
    }

    /// Place of the instruction at `pc`.
    #[inline]
    fn at(&mut self, tlb: &mut Tlb, pc: u64) -> R<usize> {
        if pc / PAGE == self.last.0 && pc.is_multiple_of(4) {
            let known = self.pages[self.last.1][(pc % PAGE / 4) as usize];
            if known != NOT_YET {
                return Ok(known as usize);
            }
        }
        self.find(tlb, pc)
    }

    /// As `at`, on another page than the last or for an instruction executed for the first time.
    fn find(&mut self, tlb: &mut Tlb, pc: u64) -> R<usize> {
        if !pc.is_multiple_of(4) {
            return fail(FaultKind::Misaligned { va: pc, align: 4 });
        }
        let place = match self.by_number.get(&(pc / PAGE)) {
            Some(place) => *place,
            None => {
                self.pages.push(Box::new([NOT_YET; (PAGE / 4) as usize]));
                self.by_number.insert(pc / PAGE, self.pages.len() - 1);
                self.pages.len() - 1
            }
        };
        self.last = (pc / PAGE, place);
        let slot = (pc % PAGE / 4) as usize;
        if self.pages[place][slot] == NOT_YET {
            let inst = self.decoder.decode(words_at(tlb, pc)?)?;
            self.pages[place][slot] = self.insts.len() as u32;
            self.insts.push(inst);
        }
        Ok(self.pages[place][slot] as usize)
    }

    /// The compiled run from where the wave is, if there is one: counts that it is entered.
    fn entered(&mut self, tlb: &mut Tlb, w: &mut Wave) -> Option<(Arc<Run>, usize)> {
        if !w.enters {
            return None;
        }
        let (hot, shape) = self.hot?;
        w.enters = false;
        let first = self.at(tlb, w.pc).ok()?;
        self.entries.resize(self.insts.len(), Entry::Unknown);
        self.ranges.resize_with(self.insts.len(), Ranges::default);
        if let Some(known) = self.entries[first].count() {
            return known.map(|run| (run, first));
        }
        let indices = self.straight(tlb, w.pc);
        let all: Vec<&Inst> = indices.into_iter().map(|n| &self.insts[n]).collect();
        self.entries[first].look_up(hot, shape, &all).map(|run| (run, first))
    }

    /// The instructions from an address to the next branch or barrier, as far as they can be decoded.
    fn straight(&mut self, tlb: &mut Tlb, mut pc: u64) -> Vec<usize> {
        let mut all = Vec::new();
        while all.len() < block::LONGEST
            && let Ok(n) = self.at(tlb, pc)
            && !block::ends_run(&self.insts[n])
        {
            all.push(n);
            pc += self.insts[n].len_bytes();
        }
        all
    }

    /// Text of the instruction at `pc` for a report.
    pub(crate) fn text(&mut self, tlb: &mut Tlb, pc: u64) -> String {
        match self.at(tlb, pc) {
            Ok(n) => self.insts[n].to_string(),
            Err(_) => match words_at(tlb, pc) {
                Ok(words) => format!(".long {:#010x}, {:#010x}", words[0], words[1]),
                Err(_) => "no code".into(),
            },
        }
    }
}

/// Up to four dwords of code; those beyond the mapping read as zero as long as the first is there.
fn words_at(tlb: &mut Tlb, pc: u64) -> R<[u32; 4]> {
    let mut words = [0; 4];
    for (n, word) in words.iter_mut().enumerate() {
        let mut raw = [0; 4];
        match tlb.fetch(pc + 4 * n as u64, &mut raw) {
            Ok(()) => *word = u32::from_le_bytes(raw),
            Err(fault) if n == 0 => return Err(fault),
            Err(_) => break,
        }
    }
    Ok(words)
}

/// Why a group's time slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceEnd {
    Done,
    /// The instruction budget of the slice is used up.
    Again,
}

pub(super) struct Group {
    pub id: [u32; 3],
    pub waves: Vec<Wave>,
    pub lds: Lds,
    pub scratch_slots: Vec<u32>,
    random: u64,
}

impl Group {
    pub(crate) fn new(id: [u32; 3], waves: Vec<Wave>, lds: Lds, seed: u64) -> Self {
        let random = seed ^ (u64::from(id[0]) << 40 | u64::from(id[1]) << 20 | u64::from(id[2])) | 1;
        Self { id, waves, lds, scratch_slots: Vec::new(), random }
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Runs the waves until all ended or `budget` instructions are done.
    pub(crate) fn run_slice<'a>(
        &mut self,
        tlb: Tlb<'a>,
        code: &mut Code,
        stop: &AtomicBool,
        budget: u64,
    ) -> (Tlb<'a>, Result<SliceEnd, Box<WaveFault>>) {
        let lds = std::mem::replace(&mut self.lds, Lds::new(Vec::new(), 0, 0, super::Strict::off()));
        let mut unit = Unit { tlb, lds };
        let result = self.run(&mut unit, code, stop, budget);
        let Unit { tlb, lds } = unit;
        self.lds = lds;
        (tlb, result)
    }

    fn run(
        &mut self,
        unit: &mut Unit,
        code: &mut Code,
        stop: &AtomicBool,
        budget: u64,
    ) -> Result<SliceEnd, Box<WaveFault>> {
        let mut left = budget;
        let mixed = self.waves.first().is_some_and(|w| w.strict.seed != 0);
        // Leniently waves advance about equally, as those of a compute unit do: there is code that relies on it.
        let even = if self.waves.first().is_some_and(|w| w.strict.lenient) { 16 } else { 20_000 };
        loop {
            let ready: Vec<usize> = (0..self.waves.len()).filter(|n| self.waves[*n].state == State::Ready).collect();
            if ready.is_empty() {
                match self.release(unit) {
                    Ok(true) => continue,
                    Ok(false) => return Ok(SliceEnd::Done),
                    Err(fault) => return Err(self.report(0, *fault, unit, code)),
                }
            }
            // With a seed the waves' slices are short and in random order; otherwise round robin.
            let order: Vec<usize> = if mixed {
                let pick = ready[(self.next_random() % ready.len() as u64) as usize];
                vec![pick]
            } else {
                ready
            };
            for n in order {
                let slice = if mixed { 1 + self.next_random() % 48 } else { even };
                let used = self.slice(n, unit, code, stop, slice.min(left.max(1)))?;
                left = left.saturating_sub(used);
                if left == 0 {
                    return Ok(SliceEnd::Again);
                }
            }
        }
    }

    /// Runs one wave for some instructions.
    fn slice(
        &mut self,
        n: usize,
        unit: &mut Unit,
        code: &mut Code,
        stop: &AtomicBool,
        slice: u64,
    ) -> Result<u64, Box<WaveFault>> {
        let mut used = 0;
        let w = &mut self.waves[n];
        let mut fault = None;
        let mut checked = 0;
        while used < slice && w.state == State::Ready {
            if let Some((run, first)) = code.entered(&mut unit.tlb, w) {
                let before = w.instructions;
                let outcome = run.follow(w, unit, &mut code.ranges[first]);
                used += w.instructions - before;
                w.enters = true;
                match outcome {
                    Ok(()) => continue,
                    Err(kind) => fault = Some(*kind),
                }
                break;
            }
            if used >= checked && std::mem::replace(&mut checked, used + 1024) <= used && stop.load(Ordering::Relaxed) {
                fault = Some(FaultKind::Stopped);
                break;
            }
            used += 1;
            let mut outcome = step(w, unit, code);
            if let Err(kind) = &outcome
                && w.strict.lenient
                && kind.is_finding()
            {
                outcome = go_on((self.id, n as u32), w, kind, unit, code);
            }
            if let Err(kind) = outcome {
                fault = Some(*kind);
                break;
            }
        }
        match fault {
            None => Ok(used),
            Some(kind) => Err(self.report(n, kind, unit, code)),
        }
    }

    /// Opens the barrier when no wave is missing; false when all waves have ended.
    fn release(&mut self, unit: &mut Unit) -> R<bool> {
        let waiting = self.waves.iter().filter(|w| w.state == State::Barrier).count() as u32;
        if waiting == 0 {
            return Ok(false);
        }
        let ended = self.waves.len() as u32 - waiting;
        // gfx12: a wave that waits without having signalled waits for ever.
        let split = self.waves.iter().any(|w| w.chip == super::Chip::Gfx1201);
        if split && self.waves.iter().any(|w| w.state == State::Barrier && !w.signalled) {
            return fail(FaultKind::BarrierStuck { waiting, ended });
        }
        self.synchronise(unit);
        for w in &mut self.waves {
            if w.state == State::Barrier {
                if !split {
                    unit.lds.arrive(w);
                }
                (w.state, w.signalled) = (State::Ready, false);
                w.epoch += 1;
            }
        }
        Ok(true)
    }

    /// The waves at the barrier now share what one of them had: that it synchronised with others, which caches it
    /// invalidated.
    fn synchronise(&mut self, unit: &mut Unit) {
        let Some(shadow) = &unit.tlb.shadow else { return };
        shadow.barrier();
        let here = || self.waves.iter().filter(|w| w.state == State::Barrier);
        let synchronises = here().any(|w| w.synchronises);
        let all = here().fold(Invalidated::default(), |all, w| all.max(w.invalidated));
        for w in self.waves.iter_mut().filter(|w| w.state == State::Barrier) {
            w.synchronises |= synchronises;
            w.invalidated = shadow.shared(all, w.invalidated);
        }
    }

    fn report(&self, n: usize, kind: FaultKind, unit: &mut Unit, code: &mut Code) -> Box<WaveFault> {
        let pc = self.waves.get(n).map_or(0, |w| w.pc);
        let text = code.text(&mut unit.tlb, pc);
        let lane = kind.lane(self.waves.get(n).and_then(|w| w.access_lane.get()));
        Box::new(WaveFault { kind, workgroup: self.id, wave: n as u32, lane, pc, text })
    }
}

/// Notes a finding, and executes the instruction as hardware would.
fn go_on(who: ([u32; 3], u32), w: &mut Wave, kind: &FaultKind, unit: &mut Unit, code: &mut Code) -> R<()> {
    note(who, w, kind, unit, code);
    if matches!(kind, FaultKind::VgprIsAccumulator { .. }) {
        // Kernels that do so do it in most instructions: other findings must not hide behind this one.
        let registers = std::mem::replace(&mut w.strict.registers, false);
        let outcome = step(w, unit, code);
        w.strict.registers = registers;
        match outcome {
            Err(other) if other.is_finding() => note(who, w, &other, unit, code),
            done => return done,
        }
    }
    unchecked(w, unit, code)
}

/// Notes a finding, once an instruction and kind.
fn note((workgroup, wave): ([u32; 3], u32), w: &Wave, kind: &FaultKind, unit: &mut Unit, code: &mut Code) {
    let (pc, lane) = (w.pc, kind.lane(w.access_lane.get()));
    if code.noted.insert((pc, discriminant(kind))) {
        let text = code.text(&mut unit.tlb, pc);
        unit.tlb.note(&WaveFault { kind: kind.clone(), workgroup, wave, lane, pc, text });
    }
}

/// The same instruction again, without checks: they come before it changes anything that a second time would change
/// again.
fn unchecked(w: &mut Wave, unit: &mut Unit, code: &mut Code) -> R<()> {
    let off = Strict { lenient: true, ..Strict::off() };
    let (own, lds) = (std::mem::replace(&mut w.strict, off), unit.lds.replace_strict(off));
    let shadow = unit.tlb.shadow.take();
    let outcome = step(w, unit, code);
    unit.tlb.shadow = shadow;
    unit.lds.replace_strict(lds);
    w.strict = own;
    outcome
}

/// One instruction of a wave.
fn step(w: &mut Wave, unit: &mut Unit, code: &mut Code) -> R<()> {
    let n = code.at(&mut unit.tlb, w.pc)?;
    let i = &code.insts[n];
    w.enters = block::ends_run(i);
    advance(w, unit, i)
}

/// The instruction that the wave is at.
pub(super) fn advance(w: &mut Wave, unit: &mut Unit, i: &Inst) -> R<()> {
    w.instructions += 1;
    w.access_lane.set(None);
    if w.strict.hazards {
        hazard::check(w, i)?;
    }
    let next = execute(w, unit, i)?;
    if w.strict.hazards {
        hazard::note(w, i);
    }
    match next {
        Next::Advance => w.pc += i.len_bytes(),
        Next::Jump(to) => w.pc = to,
        Next::End => w.state = State::Ended,
        Next::Signal(first) => {
            if first {
                return fail(FaultKind::NotModelled { name: i.entry.name.into() });
            }
            unit.lds.arrive(w);
            w.signalled = true;
            w.pc += i.len_bytes();
        }
        Next::Barrier => {
            w.state = State::Barrier;
            w.pc += i.len_bytes();
        }
    }
    Ok(())
}

/// The instruction with M0's index added to the vector registers that M0's mode bits choose.
fn indexed(w: &Wave, i: &Inst) -> Inst {
    let m0 = w.scalar_unchecked(super::inst::M0);
    let mut moved = i.clone();
    let shift = |o: Operand, bit: u32| match o {
        Operand::V(n) if m0 >> (12 + bit) & 1 == 1 => Operand::V(n.saturating_add((m0 & 255) as u16)),
        other => other,
    };
    moved.src = [shift(i.src[0], 0), shift(i.src[1], 1), shift(i.src[2], 2)];
    moved.dst = shift(i.dst, 3);
    moved
}

/// Whether the mode of indexed registers acts on it: on arithmetic, and on moves between a lane and a scalar (which
/// aiter's topksoftmax relies on).
fn is_indexed(i: &Inst) -> bool {
    let lane = |c: Cross| matches!(c, Cross::WriteLane | Cross::ReadLane | Cross::ReadFirstLane);
    match i.entry.sem {
        Sem::Vector(..) => true,
        Sem::Cross(c) => lane(c),
        _ => false,
    }
}

fn execute(w: &mut Wave, unit: &mut Unit, i: &Inst) -> R<Next> {
    if let Some(second) = &i.second {
        valu::dual(w, i, second)?;
        return Ok(Next::Advance);
    }
    if w.index_mode && is_indexed(i) {
        let moved = indexed(w, i);
        w.index_mode = false;
        let done = execute(w, unit, &moved);
        w.index_mode = true;
        return done;
    }
    if let Some(direct) = i.direct.filter(|d| d.applies(w.mode)) {
        direct.execute(w, i)?;
        return Ok(Next::Advance);
    }
    match i.entry.sem {
        Sem::Scalar(s) => control::scalar(w, i, s)?,
        Sem::ScalarCompare(accept, half) => {
            let (a, b) = (w.scalar_operand(i.src[0], 1)?, w.scalar_operand(i.src[1], 1)?);
            (w.scc, w.scc_known) = (super::sem_scalar::compares(accept, half, a, b), true);
        }
        Sem::Control(c) => return control::execute(w, i, c),
        Sem::Vector(sem, _) => valu::execute(w, i, sem)?,
        Sem::Compare(c) => valu::compare(w, i, c)?,
        Sem::Cross(c) => cross::execute(w, i, c)?,
        Sem::Packed(p) => packed::execute(w, i, p)?,
        Sem::Matrix(m) => matrix::execute(w, i, m)?,
        Sem::Memory(op) => {
            unit.tlb.refresh();
            match op.space {
                Space::Lds => lds_exec::execute(w, &mut unit.lds, i, op)?,
                Space::Scalar | Space::ScalarBuffer => smem::execute(w, unit, i, op)?,
                _ => vmem::execute(w, unit, i, op)?,
            }
        }
        Sem::Unmodelled => return fail(FaultKind::NotModelled { name: i.entry.name.into() }),
    }
    Ok(Next::Advance)
}
