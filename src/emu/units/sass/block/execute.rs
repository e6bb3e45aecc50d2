//! Compiled runs on warps.

use super::super::bus::Access;
use super::super::core::Machine;
use super::super::fault::FaultKind;
use super::super::flow::{Flow, Taken};
use super::super::lower::Body;
use super::super::path::{Cluster, Host, SliceWork, Stop, check, execute, step};
use super::super::program::{Decoded, Program};
use super::super::shared::Cta;
use super::super::warp::{Path, Warp};
use super::state::{DONE, EXECUTING, EXTRA_WORDS, FIRST_CONSTANT, FIRST_RANGE, SHARED_BYTES};
use super::{Native, Piece, Run};
use crate::translate::{DeviceView, range_words};
use std::sync::Arc;

/// A run with what its pieces need of a launch.
pub(in super::super) struct Prepared {
    pub run: Arc<Run>,
    /// For each piece.
    parts: Vec<Part>,
    /// The instruction after it.
    next: Option<u32>,
}

/// What a piece needs of a launch.
struct Part {
    /// The numbers of its instructions in the program.
    indices: Vec<u32>,
    /// Whether all its constants are there: else it is interpreted, which is a fault.
    complete: bool,
    extra: Box<[u32; EXTRA_WORDS]>,
    /// State of the mappings that the memory belongs to.
    epoch: u64,
    /// The memory that each load was in before.
    memory: Vec<Option<DeviceView>>,
}

impl Prepared {
    /// A run with the numbers of its instructions, and of the one after it.
    pub(crate) fn new(run: Arc<Run>, (indices, next): (&[u32], Option<u32>), machine: &Machine) -> Prepared {
        let mut from = 0;
        let part = |piece: &Piece| {
            let all = &indices[from..from + piece.count() as usize];
            from += all.len();
            Part::new(piece, all, machine)
        };
        let parts = run.pieces.iter().map(part).collect();
        Prepared { run, parts, next }
    }
}

impl Part {
    fn new(piece: &Piece, indices: &[u32], machine: &Machine) -> Part {
        let extra = Box::new([0; EXTRA_WORDS]);
        let mut part = Part { indices: indices.into(), complete: false, extra, epoch: 0, memory: Vec::new() };
        let Piece::Native(native) = piece else { return part };
        part.memory.resize(native.loads.len(), None);
        let words = native.constants.iter().map(|(bank, offset)| machine.word(*bank, *offset));
        let filled = part.extra[FIRST_CONSTANT..].iter_mut().zip(words).try_for_each(|(to, word)| {
            *to = word?;
            Some(())
        });
        part.complete = filled.is_some();
        part
    }

    /// Forgets all memory when a mapping has changed.
    fn refresh(&mut self, machine: &Machine) {
        let epoch = machine.bus.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.memory.fill(None);
            self.extra[FIRST_RANGE..].fill(0);
        }
    }

    /// Notes in which memory a load is before which the piece ended.
    fn note(&mut self, native: &Native, warp: &Warp, machine: &Machine, number: u32, lanes: u32) {
        let Some(k) = native.loads.iter().position(|load| load.number == number) else { return };
        let load = &native.loads[k];
        let va = load.address_of(warp, lanes.trailing_zeros() as usize & 31);
        // Indexes count words, are signed and have 32 bits.
        let fits = |(start, view): &(u64, DeviceView)| start.is_multiple_of(16) && view.len_bytes() <= 1 << 32;
        let found = machine.bus.view(va, Access::Read).filter(fits);
        let words = found.as_ref().map_or([0; 4], |(start, view)| range_words(*start, view, load.len_bytes));
        self.extra[FIRST_RANGE + 4 * k..][..4].copy_from_slice(&words);
        self.memory[k] = found.map(|(_, view)| view);
    }
}

impl Native {
    /// Executes it for these lanes, as far as its loads are in memory that they were in before; how many instructions
    /// that were.
    fn run(&self, part: &mut Part, (warp, cta): (&mut Warp, &mut Cta), machine: &Machine, lanes: u32) -> u32 {
        let code = match lanes {
            u32::MAX => Some(&*self.all_lanes),
            _ => self.some_lanes.get(&machine.decoder.translation),
        };
        if !self.loads.is_empty() {
            part.refresh(machine);
        }
        (part.extra[EXECUTING], part.extra[SHARED_BYTES]) = (lanes, cta.shared_bytes());
        // In strict mode no load of shared memory is native.
        let shared = if warp.shadow.is_some() { Some(&mut [][..]) } else { cta.words() };
        let (Some(code), true, Some(shared)) = (code, part.complete, shared) else { return 0 };
        let Warp { registers, uniform, predicates, uniform_predicates, .. } = &mut *warp;
        let registers = registers.as_flattened_mut();
        code.run(
            &mut [registers, uniform, predicates, uniform_predicates, part.extra.as_mut_slice(), shared],
            &part.memory,
        );
        let done = part.extra[DONE];
        if warp.shadow.is_none() {
            warp.clock += if done == self.count { self.stalls } else { u64::from(done) };
        }
        done
    }

    /// The first instructions times lanes, guards aside; those of the uniform datapath count as one.
    fn lane_operations(&self, done: u32, lanes: u32) -> u64 {
        let vectors = self.vectors.min(done);
        u64::from(lanes.count_ones()) * u64::from(vectors) + u64::from(done - vectors)
    }
}

/// Executes a run on a path, and again as long as the branch after it leads back to it.
pub(in super::super) fn follow(
    prepared: &mut Prepared,
    warp: &mut Warp,
    cluster: &mut Cluster,
    machine: &Machine,
    host: &mut Host,
    (at, slice, budget): (usize, &mut SliceWork, u32),
) -> Result<(), Stop> {
    let start = warp.paths[at].pc;
    loop {
        once(prepared, warp, cluster, machine, host, (at, slice))?;
        let Some(next) = prepared.next else { return Ok(()) };
        if !branches_as_one(warp, host.program.code.at(next), at) {
            return Ok(());
        }
        slice.instructions += 1;
        slice.lane_operations += u64::from(warp.paths[at].lanes.count_ones());
        if warp.paths[at].pc != start || slice.instructions >= budget {
            return Ok(());
        }
    }
}

/// Executes a plain branch that all lanes of the warp's only path take, or none; false: it is another instruction.
fn branches_as_one(warp: &mut Warp, d: &Decoded, at: usize) -> bool {
    let Body::Flow(Flow::Branch { taken: Taken::Each, pp, up, distance }) = d.body else { return false };
    let Path { pc, lanes, .. } = warp.paths[at];
    if warp.paths.len() > 1 || warp.shadow.is_some() {
        return false;
    }
    let taking = lanes & warp.predicate(d.guard()) & warp.predicate(pp) & warp.predicate(up);
    let next = pc + 16;
    warp.paths[at].pc = match taking {
        0 => next,
        _ if taking == lanes => next.wrapping_add_signed(distance),
        _ => return false,
    };
    warp.clock += u64::from(d.inst.control.stall.max(1));
    warp.parted = distance < 0;
    true
}

/// Executes a run on a path.
fn once(
    prepared: &mut Prepared,
    warp: &mut Warp,
    cluster: &mut Cluster,
    machine: &Machine,
    host: &mut Host,
    (at, slice): (usize, &mut SliceWork),
) -> Result<(), Stop> {
    for (piece, part) in prepared.run.pieces.iter().zip(&mut prepared.parts) {
        let Path { pc, lanes, .. } = warp.paths[at];
        let mut failed = None;
        let mut done = 0;
        if let Piece::Native(native) = piece {
            failed = check_all(part, warp, &mut host.program, lanes);
            if failed.is_none() {
                let cta = &mut cluster.ctas[warp.cta];
                done = native.run(part, (warp, cta), machine, lanes);
                slice.instructions += done;
                slice.lane_operations += native.lane_operations(done, lanes);
                warp.paths[at].pc = pc + 16 * u64::from(done);
                warp.parted = false;
                if done < native.count {
                    part.note(native, warp, machine, done, lanes);
                }
            }
        }
        let checked = matches!(piece, Piece::Native(_)) && warp.shadow.is_some();
        let until = failed.as_ref().map_or(part.indices.len(), |(k, _)| *k);
        for index in part.indices[done as usize..until].iter().copied() {
            let pc = warp.paths[at].pc;
            let step = if checked { execute } else { step };
            let done = step(warp, cluster, machine, host, (index, at, lanes)).map_err(|e| (pc, e))?;
            slice.instructions += 1;
            slice.lane_operations += u64::from(done);
        }
        if let Some((_, fault)) = failed {
            return Err((warp.paths[at].pc, fault));
        }
    }
    Ok(())
}

/// Strict mode's checks of all instructions of a native piece; the first finding, and of which instruction.
fn check_all(part: &Part, warp: &mut Warp, program: &mut Program, lanes: u32) -> Option<(usize, Box<FaultKind>)> {
    warp.shadow.as_ref()?;
    let one = |(k, index): (usize, &u32)| check(warp, program, *index, lanes).err().map(|fault| (k, fault));
    part.indices.iter().enumerate().find_map(one)
}
