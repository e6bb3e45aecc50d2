//! What may be in flight at a point of the code: results and reads that are not known to be complete.

use super::{Hazard, Kind, Trust};
use crate::sass::control::Control;
use crate::sass::effects::{Access, Effects, RegFile, Slot, effects};
use crate::sass::inst::Instruction;
use crate::sass::row::{Pipe, Role};
use crate::sass::timing::{
    Completion, SCOREBOARD_SET, SCOREBOARD_SET_FOR_DEPBAR, completion, delivers_with_reads, distance,
    ends_shared_reads, overwrite, reads_late,
};
use std::collections::BTreeMap;

/// Maximum latency: after this many cycles every result of fixed latency is available.
const LONGEST: u8 = 30;

/// Properties of an instruction, computed once.
pub(super) struct InstructionInfo {
    inst: Instruction,
    effects: Effects,
    completion: Completion,
    reads_late: bool,
    /// The queues that complete its result in order, and that read its sources in order.
    ends: Option<Queue>,
    reads: Option<Queue>,
}

/// Instructions of one queue complete, or read their sources, in issue order. ptxas relies on these queues and no
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Transcendental functions, conversions, bit counts.
    Xu,
    /// Shared memory, and shuffles, which use the same unit.
    Shared,
    /// Double precision, where scoreboards signal completion.
    Double,
    /// Instructions of one mnemonic: S2UR, B2R, SYNCS, REDUX.
    Of(&'static str),
    /// Addresses and data of all memory instructions; the results of loads from global memory complete in any order.
    Memory,
}

impl InstructionInfo {
    pub(super) fn of(inst: &Instruction) -> InstructionInfo {
        let completion = completion(inst);
        let mut infos = InstructionInfo {
            inst: *inst,
            effects: effects(inst),
            completion,
            reads_late: false,
            ends: None,
            reads: None,
        };
        infos.set_control(inst.control);
        infos
    }

    pub(super) fn control(&self) -> Control {
        self.inst.control
    }

    /// If the control word sets a scoreboard, an instruction of fixed latency is waited for through it as well.
    pub(super) fn set_control(&mut self, control: Control) {
        self.inst.control = control;
        self.completion = match completion(&self.inst) {
            Completion::Fixed if control.write.is_some() => Completion::Scoreboard,
            other => other,
        };
        let form = self.inst.form();
        let waited = self.completion != Completion::Fixed;
        self.ends = match form.pipe {
            Pipe::Xu => Some(Queue::Xu),
            Pipe::Shared => Some(Queue::Shared),
            _ if form.mnemonic == "SHFL" => Some(Queue::Shared),
            Pipe::Double if waited => Some(Queue::Double),
            _ if waited && matches!(form.mnemonic, "S2UR" | "B2R" | "SYNCS" | "REDUX") => {
                Some(Queue::Of(form.mnemonic))
            }
            _ => None,
        };
        self.reads = match form.pipe {
            Pipe::Shared | Pipe::Global => Some(Queue::Memory),
            _ => self.ends,
        };
        self.reads_late = reads_late(&self.inst) || self.completion != Completion::Fixed && control.read.is_some();
    }

    /// Whether it reads that register after its issue. Guards and uniform operands are read at issue, except by bulk
    /// copies.
    fn reads_late_of(&self, file: RegFile, register: u8) -> bool {
        let late = match file {
            RegFile::General => true,
            RegFile::Uniform => self.inst.form().pipe == Pipe::Bulk,
            RegFile::Predicate | RegFile::UniformPredicate => false,
        };
        late && InstructionInfo::has(&self.effects.reads, file, register)
    }

    /// The lanes that execute it.
    fn lanes(&self) -> Lanes {
        let guard = self.effects.reads.iter().find(|r| r.slot == Slot::GUARD)?;
        Some((guard.file, guard.first, self.inst.guard.not))
    }

    /// Whether none of its lanes is in the given set.
    fn is_elsewhere(&self, lanes: Lanes) -> bool {
        match (self.lanes(), lanes) {
            (Some((file, index, not)), Some(other)) => (file, index, !not) == other,
            _ => false,
        }
    }

    /// Whether its sources are read before the other instruction's result arrives, because both are in one queue.
    fn reads_before(&self, other: &InstructionInfo) -> bool {
        self.reads.is_some() && self.reads == other.reads
    }

    /// A load's address is read before the result of a later memory instruction arrives; a store's data may not be.
    fn is_load_before(&self, other: &InstructionInfo) -> bool {
        self.reads_before(other) && !self.effects.writes.is_empty()
    }

    fn has(list: &[Access], file: RegFile, register: u8) -> bool {
        list.iter().any(|a| a.file == file && register >= a.first && register - a.first < a.count)
    }
}

/// A set of lanes: those where the predicate has this value. `None`: any, or the predicate has been written since.
type Lanes = Option<(RegFile, u8, bool)>;

/// A register that an instruction of fixed latency writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fixed {
    file: RegFile,
    register: u8,
    producer: usize,
    /// Cycles since its issue.
    cycles: u8,
    lanes: Lanes,
}

/// An instruction whose completion is known only through a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flying {
    /// Cycles since its issue, up to the two that its scoreboards take to be set.
    cycles: u8,
    /// Scoreboards that show its completion when they are zero, including those of later instructions of its queue.
    done_by: u8,
    /// Scoreboards that show, when zero, that it has read its sources.
    read_by: u8,
    results: bool,
    sources: bool,
    /// For wgmma: number of groups that were committed since.
    groups: u8,
    lanes: Lanes,
}

/// Everything in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Results of fixed latency.
    fixed: Vec<Fixed>,
    flying: BTreeMap<usize, Flying>,
}

fn registers(access: &Access) -> impl Iterator<Item = (RegFile, u8)> + use<> {
    let (file, first) = (access.file, access.first);
    (0..access.count).filter_map(move |n| Some((file, first.checked_add(n)?)))
}

impl State {
    /// Merges the state of another path; returns whether that changed anything.
    pub(super) fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        let mut lower = |ours: &mut u8, theirs: u8| {
            changed |= theirs < *ours;
            *ours = theirs.min(*ours);
        };
        let mut new = Vec::new();
        for theirs in &other.fixed {
            let same =
                |f: &&mut Fixed| (f.file, f.register, f.producer) == (theirs.file, theirs.register, theirs.producer);
            let Some(ours) = self.fixed.iter_mut().find(same) else {
                new.push(*theirs);
                continue;
            };
            lower(&mut ours.cycles, theirs.cycles);
            if ours.lanes.is_some() && ours.lanes != theirs.lanes {
                lower(&mut 1, 0);
                ours.lanes = None;
            }
        }
        for (producer, theirs) in &other.flying {
            let Some(ours) = self.flying.get_mut(producer) else {
                self.flying.insert(*producer, theirs.clone());
                lower(&mut 1, 0);
                continue;
            };
            let old = ours.clone();
            ours.cycles = ours.cycles.min(theirs.cycles);
            ours.done_by &= theirs.done_by;
            ours.read_by &= theirs.read_by;
            ours.results |= theirs.results;
            ours.sources |= theirs.sources;
            ours.groups = ours.groups.min(theirs.groups);
            ours.lanes = ours.lanes.filter(|l| theirs.lanes == Some(*l));
            lower(&mut 1, u8::from(*ours == old));
        }
        changed |= !new.is_empty();
        self.fixed.append(&mut new);
        changed
    }

    /// Issues an instruction: waits, checks, and records what it leaves in flight when the next one issues.
    pub(super) fn step(&mut self, infos: &[InstructionInfo], at: usize, trust: Trust, report: &mut dyn FnMut(Hazard)) {
        let me = &infos[at]; // PANIC: the walk stays inside the code
        self.wait(me.inst.control.wait, |_| SCOREBOARD_SET);
        for read in &me.effects.reads {
            self.check_read(infos, at, read, trust, report);
        }
        for written in &me.effects.writes {
            self.check_write(infos, at, written, trust, report);
        }
        self.partial_wait(infos, at, report);
        if ends_shared_reads(&me.inst) && me.inst.guard.index == 7 {
            self.end_shared_reads(infos);
        }
        self.issue(infos, at);
        self.pass(&me.inst);
    }

    /// All scoreboards of the mask are zero. The scoreboards of instructions that issued fewer cycles ago than
    /// `set_after` are not set yet.
    fn wait(&mut self, mask: u8, set_after: impl Fn(usize) -> u8) {
        self.flying.retain(|producer, f| {
            if f.cycles < set_after(*producer) {
                return true;
            }
            let done = f.done_by & mask != 0;
            f.sources &= f.read_by & mask == 0;
            !done && (f.results || f.sources)
        });
    }

    /// The queue of shared memory has read the sources of all instructions issued to it.
    fn end_shared_reads(&mut self, infos: &[InstructionInfo]) {
        self.flying.retain(|producer, f| {
            f.sources &= infos[*producer].ends != Some(Queue::Shared); // PANIC: producers are places of the code
            f.results || f.sources
        });
    }

    fn check_read(
        &self,
        infos: &[InstructionInfo],
        at: usize,
        read: &Access,
        trust: Trust,
        report: &mut dyn FnMut(Hazard),
    ) {
        let me = &infos[at]; // PANIC: as in `step`
        for (file, register) in registers(read) {
            for Fixed { producer, cycles, lanes, .. } in self.fixed_of(file, register) {
                let from = &infos[*producer]; // PANIC: producers are places of the code
                let Some(written) = from.effects.writes.iter().find(|w| InstructionInfo::has(&[**w], file, register))
                else {
                    continue;
                };
                let both = distance(&from.inst, written, &me.inst, read);
                let least = if trust == Trust::Seen { both.seen } else { both.safe };
                if *cycles < least && !me.is_elsewhere(*lanes) {
                    let kind = Kind::ReadTooEarly { cycles: *cycles, least };
                    report(Hazard { producer: *producer, consumer: at, file, register, kind });
                }
            }
            for (producer, flying) in &self.flying {
                let from = &infos[*producer]; // PANIC: as above
                let open = flying.results && !in_one_chain(from, me) && !me.is_elsewhere(flying.lanes);
                if open && InstructionInfo::has(&from.effects.writes, file, register) {
                    report(Hazard { producer: *producer, consumer: at, file, register, kind: Kind::ReadUnguarded });
                }
            }
        }
    }

    fn check_write(
        &self,
        infos: &[InstructionInfo],
        at: usize,
        written: &Access,
        trust: Trust,
        report: &mut dyn FnMut(Hazard),
    ) {
        let me = &infos[at]; // PANIC: as in `step`
        for (file, register) in registers(written) {
            for Fixed { producer, cycles, lanes, .. } in self.fixed_of(file, register) {
                let both = overwrite(&infos[*producer].inst, &me.inst); // PANIC: as above
                let least = if trust == Trust::Seen { both.seen } else { both.safe };
                if *cycles < least && !me.is_elsewhere(*lanes) {
                    let kind = Kind::OverwrittenTooEarly { cycles: *cycles, least };
                    report(Hazard { producer: *producer, consumer: at, file, register, kind });
                }
            }
            for (producer, flying) in &self.flying {
                let from = &infos[*producer]; // PANIC: as above
                let in_order = from.ends.is_some() && from.ends == me.ends;
                let hazard = |kind| Hazard { producer: *producer, consumer: at, file, register, kind };
                if in_order || in_one_chain(from, me) || me.is_elsewhere(flying.lanes) {
                    continue;
                }
                if flying.results && InstructionInfo::has(&from.effects.writes, file, register) {
                    report(hazard(Kind::OverwrittenUnguarded));
                } else if flying.sources && from.reads_late_of(file, register) && !from.is_load_before(me) {
                    report(hazard(Kind::OverwrittenBeforeRead));
                }
            }
        }
    }

    /// DEPBAR: waits for scoreboards, and until at most so many uses of one scoreboard are pending; for the latter its
    /// users must complete in order.
    fn partial_wait(&mut self, infos: &[InstructionInfo], at: usize, report: &mut dyn FnMut(Hazard)) {
        let inst = &infos[at].inst; // PANIC: as in `step`
        let value = |slot| inst.get(slot, Role::Value).unwrap_or(0);
        match (inst.form().mnemonic, inst.form().name) {
            ("DEPBAR", name) => {
                let set = u8::try_from(value("l") & 0x3f).unwrap_or(0);
                let set_after = |producer: usize| match infos[producer].inst.form().mnemonic {
                    "S2UR" => SCOREBOARD_SET_FOR_DEPBAR,
                    _ => SCOREBOARD_SET,
                };
                self.wait(set, set_after);
                if name == "LE" {
                    let board = 1u8.checked_shl(u32::try_from(value("s")).unwrap_or(0)).unwrap_or(0);
                    match value("n") {
                        0 => self.wait(board, set_after),
                        _ => self.check_partial(infos, at, board, report),
                    }
                }
            }
            ("WARPGROUP", "DEPBAR") => {
                let left = value("n");
                let mine = |p: &usize| infos[*p].inst.form().pipe == Pipe::Gmma; // PANIC: as above
                self.flying.retain(|p, f| !mine(p) || u64::from(f.groups) <= left);
            }
            _ => {}
        }
    }

    fn check_partial(&self, infos: &[InstructionInfo], at: usize, board: u8, report: &mut dyn FnMut(Hazard)) {
        let mut first: Option<(usize, Option<Queue>)> = None;
        // Not those whose end or reads an instruction with this scoreboard only implies: they do not count in it.
        let counts = |producer: usize| {
            let control = infos[producer].inst.control; // PANIC: as above
            [control.write, control.read].into_iter().flatten().any(|n| 1 << n & board != 0)
        };
        for (producer, flying) in self.flying.iter().filter(|(p, _)| counts(**p)) {
            let queue = infos[*producer].ends; // PANIC: as above
            match first {
                None => first = Some((*producer, queue)),
                Some((_, q)) if q != queue && (flying.results || flying.sources) => {
                    let (file, register) = (RegFile::General, 255);
                    report(Hazard { producer: *producer, consumer: at, file, register, kind: Kind::PartialWait });
                }
                Some(_) => {}
            }
        }
    }

    /// Records what the instruction itself leaves in flight.
    fn issue(&mut self, infos: &[InstructionInfo], at: usize) {
        let me = &infos[at]; // PANIC: as in `step`
        let control = me.inst.control;
        let lanes = me.lanes();
        let bit = |board: Option<u8>| board.map_or(0, |n| 1 << n);
        for (file, register) in me.effects.writes.iter().flat_map(registers) {
            self.regroup(file, register);
        }
        if me.completion == Completion::Fixed {
            for (file, register) in me.effects.writes.iter().flat_map(registers) {
                match me.inst.guard.index {
                    7 => self.forget(file, register),
                    _ => self.fixed.retain(|f| (f.producer, f.file, f.register) != (at, file, register)),
                }
                self.fixed.push(Fixed { file, register, producer: at, cycles: 0, lanes });
            }
        } else {
            let done_by = bit(if delivers_with_reads(&me.inst, &me.effects) { control.read } else { control.write });
            // Completion of this instruction implies completion of earlier ones of its queue.
            for (producer, flying) in &mut self.flying {
                let before = &infos[*producer]; // PANIC: as above
                if before.ends.is_some() && before.ends == me.ends {
                    flying.done_by |= done_by;
                }
                if before.reads_before(me) {
                    flying.read_by |= done_by | bit(control.read);
                }
                if me.inst.get("gsb", Role::Value) == Some(0) && me.completion == Completion::Group {
                    flying.groups = flying.groups.saturating_add(1);
                }
            }
            for (file, register) in me.effects.writes.iter().flat_map(registers).filter(|_| me.inst.guard.index == 7) {
                self.forget(file, register);
            }
            let ended = u8::from(me.inst.get("gsb", Role::Value) == Some(0));
            let flying = Flying {
                cycles: 0,
                done_by,
                read_by: done_by | bit(control.read),
                results: !me.effects.writes.is_empty(),
                sources: me.reads_late && !me.effects.reads.is_empty(),
                groups: ended,
                lanes,
            };
            if flying.results || flying.sources {
                self.flying.insert(at, flying);
            }
        }
    }

    fn fixed_of(&self, file: RegFile, register: u8) -> impl Iterator<Item = &Fixed> {
        self.fixed.iter().filter(move |f| f.register == register && f.file == file)
    }

    /// A predicate has a new value, so the lane sets that refer to it are dropped.
    fn regroup(&mut self, file: RegFile, register: u8) {
        if !matches!(file, RegFile::Predicate | RegFile::UniformPredicate) {
            return;
        }
        let stale = |lanes: &Lanes| lanes.is_some_and(|l| (l.0, l.1) == (file, register));
        let kept = |lanes: &mut Lanes| *lanes = lanes.filter(|_| !stale(lanes));
        self.fixed.iter_mut().for_each(|f| kept(&mut f.lanes));
        self.flying.values_mut().for_each(|f| kept(&mut f.lanes));
    }

    /// A register was rewritten: drops its older results of fixed latency.
    fn forget(&mut self, file: RegFile, register: u8) {
        self.fixed.retain(|f| (f.file, f.register) != (file, register));
    }

    /// Advances time to the issue of the next instruction.
    fn pass(&mut self, inst: &Instruction) {
        let control = inst.control;
        if control.stall == 0 && control.yields && control.write.is_none() && control.read.is_none() {
            *self = State::default();
            return;
        }
        let stall = control.stall.max(1);
        self.fixed.retain_mut(|f| {
            f.cycles += stall;
            f.cycles < LONGEST
        });
        for flying in self.flying.values_mut() {
            flying.cycles = flying.cycles.saturating_add(stall).min(SCOREBOARD_SET);
        }
    }
}

/// Successive wgmma instructions may use the same accumulator registers.
fn in_one_chain(from: &InstructionInfo, to: &InstructionInfo) -> bool {
    from.inst.form().pipe == Pipe::Gmma && to.inst.form().pipe == Pipe::Gmma
}
