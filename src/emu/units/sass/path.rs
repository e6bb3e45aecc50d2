//! A warp's paths: which lanes run, where they diverge, wait and converge.
//!
//! Every lane has a program counter of its own; lanes that share one form a path, and paths at the same address become
//! one. A convergence barrier is kept lane by lane: which lanes each waits for at BSYNC, those that were recorded with
//! it.

use super::block;
use super::core::{Core, Machine, Sm};
use super::fault::{FaultKind, R, fail};
use super::flow::{BarrierOp, Flow, Number, Taken};
use super::lower::Body;
use super::program::Program;
use super::shared::Cta;
use super::warp::{Lanes, Path, State, Warp, ones};

/// Why a warp's time slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceWork {
    pub instructions: u32,
    /// Instructions times lanes; one for those of the uniform datapath.
    pub lane_operations: u64,
}

/// Address and kind of what stopped a warp.
pub(super) type Stop = (u64, Box<FaultKind>);

/// The cluster's barrier: generation and CTAs' threads that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterBarrier {
    pub arrived: u32,
    pub generation: u32,
}

/// State that a host thread keeps from one cluster to the next.
pub(super) struct Host {
    pub program: Program,
    pub sm: Sm,
    /// Register files of warps that have ended.
    pub spare: Vec<Vec<Lanes>>,
}

impl Host {
    /// A warp's registers, all zero: 256 of them, of which the last is RZ.
    pub(crate) fn registers(&mut self) -> Vec<Lanes> {
        match self.spare.pop() {
            None => vec![[0; 32]; 256],
            Some(mut used) => {
                // No instruction that names others was executed.
                let named = self.program.highest as usize;
                used[..=named].fill([0; 32]);
                used
            }
        }
    }
}

/// Everything of a cluster but the warp that runs.
pub(super) struct Cluster<'a> {
    pub ctas: &'a mut [Cta],
    pub barrier: &'a mut ClusterBarrier,
}

/// Runs a warp until it waits, ends, or has used up its slice.
pub(super) fn run_slice(
    warp: &mut Warp,
    cluster: &mut Cluster,
    machine: &Machine,
    host: &mut Host,
    budget: u32,
) -> Result<SliceWork, Stop> {
    let mut slice = SliceWork { instructions: 0, lane_operations: 0 };
    let translates = machine.decoder.translation.0.is_some();
    while slice.instructions < budget {
        let Some(at) = select(warp, cluster) else { break };
        let Path { pc, lanes, .. } = warp.paths[at];
        let index = host.program.find(pc, machine).map_err(|e| (pc, e))?;
        if translates
            && std::mem::take(&mut warp.enters)
            && let Some(mut run) = block::entered(&mut host.program, (pc, index), machine)
        {
            let meets = meets_another(warp, at, u64::from(run.run.count));
            let followed = match meets {
                true => Ok(()),
                false => block::follow(&mut run, warp, cluster, machine, host, (at, &mut slice, budget)),
            };
            host.program.entries[index as usize] = block::Entry::Made(run);
            followed?;
            if !meets {
                warp.enters = true;
                continue;
            }
        }
        let done = step(warp, cluster, machine, host, (index, at, lanes)).map_err(|e| (pc, e))?;
        slice.instructions += 1;
        slice.lane_operations += u64::from(done);
        warp.enters = matches!(host.program.code.at(index).body, Body::Flow(_));
    }
    Ok(slice)
}

/// Whether a path would run over the address of another one that is ready: they are to become one.
fn meets_another(warp: &Warp, at: usize, count: u64) -> bool {
    let here = warp.paths[at].pc;
    let within = |p: &Path| p.state == State::Ready && (here + 1..=here + 16 * count).contains(&p.pc);
    warp.paths.len() > 1 && warp.paths.iter().any(within)
}

/// After so many instructions another path than the lowest runs.
const PATIENCE: u32 = 1000;

/// The path that runs next: waiting ones that may continue do, those at one address become one, the lowest address is
/// first, and where one has long been in a loop another, so that lanes that wait for others by a loop do not wait for
/// ever. That one runs until it waits or loops as long: paths share the uniform registers, and ptxas has values in them
/// from where a path begins to where it waits.
fn select(warp: &mut Warp, cluster: &Cluster) -> Option<usize> {
    if let [only] = warp.paths.as_slice()
        && only.state == State::Ready
    {
        return Some(0);
    }
    for at in 0..warp.paths.len() {
        wake(warp, cluster, at);
    }
    merge(warp);
    let ready = |p: &Path| p.state == State::Ready;
    let count = warp.paths.iter().filter(|p| ready(p)).count();
    if count == 0 {
        return None;
    }
    warp.since += 1;
    let lowest = |with: u32| {
        let some = warp.paths.iter().enumerate().filter(|(_, p)| ready(p) && p.lanes & with != 0);
        some.min_by_key(|(_, p)| p.pc).map(|(at, _)| at)
    };
    if warp.parted && warp.since > PATIENCE {
        (warp.since, warp.favours) = (0, warp.favours.wrapping_add(1));
        let nth = warp.favours as usize % count;
        let at = warp.paths.iter().enumerate().filter(|(_, p)| ready(p)).map(|(at, _)| at).nth(nth)?;
        warp.favoured = warp.paths[at].lanes;
        return Some(at);
    }
    lowest(warp.favoured).or_else(|| lowest(u32::MAX))
}

/// Lets a path continue if the condition it waits for is true.
fn wake(warp: &mut Warp, cluster: &Cluster, at: usize) {
    let Path { pc, state, .. } = warp.paths[at];
    // Lanes that go on, of those that wait for the same here.
    let mut free = u32::MAX;
    let come = match state {
        State::Ready => return,
        State::Converge(b) => {
            free = complete(warp, b, waiting(warp, pc, state));
            free != 0
        }
        State::WarpSync(mask) => mask & warp.live & !waiting(warp, pc, state) == 0,
        State::Barrier { number, generation } => {
            cluster.ctas[warp.cta].barriers[usize::from(number)].generation != generation
        }
        State::Cluster { generation } => cluster.barrier.generation != generation,
    };
    if !come {
        return;
    }
    if let State::Barrier { number, .. } = state {
        let (popc, and, or) = cluster.ctas[warp.cta].barriers[usize::from(number)].result;
        // BAR.RED stores which of the three reductions it needs in its own count.
        warp.reduced = match warp.reduced.0 {
            1 => (popc, and),
            2 => (popc, or),
            _ => (popc, popc != 0),
        };
    }
    release(warp, (pc, state), free);
}

/// Of the lanes that wait at a BSYNC those whose barrier is complete: all that were recorded with them wait as well,
/// for the same. In a recursion, or in code that two paths lead to, lanes of several recordings wait at one address.
/// ptxas lets lanes leave a loop for a WARPSYNC of all without a BREAK: lanes that can only arrive when these have
/// continued are not waited for.
fn complete(warp: &Warp, barrier: u8, waiting: u32) -> u32 {
    let recorded = &warp.converge[usize::from(barrier)];
    let (mut rest, mut free) = (waiting, 0);
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let with = recorded[first] & warp.live;
        let same = ones(rest).filter(|l| recorded[*l] & warp.live == with).fold(0, |all, l| all | 1 << l);
        let missing = with & !same;
        let waits_for_these = |p: &Path| matches!(p.state, State::WarpSync(mask) if mask & same != 0);
        if warp.paths.iter().filter(|p| p.lanes & missing != 0).all(waits_for_these) {
            free |= same;
        }
        rest &= !same;
    }
    free
}

/// Lets lanes of those that wait for the same at the same address continue; others of their paths stay.
fn release(warp: &mut Warp, (pc, state): (u64, State), free: u32) {
    for at in 0..warp.paths.len() {
        let path = &mut warp.paths[at];
        if path.state != state || path.pc != pc || path.lanes & free == 0 {
            continue;
        }
        let stay = path.lanes & !free;
        *path = Path { pc: pc + 16, lanes: path.lanes & free, state: State::Ready };
        if stay != 0 {
            warp.paths.push(Path { pc, lanes: stay, state });
        }
    }
}

/// Lanes that wait for the same at the same address.
fn waiting(warp: &Warp, pc: u64, state: State) -> u32 {
    warp.paths.iter().filter(|p| p.state == state && p.pc == pc).fold(0, |all, p| all | p.lanes)
}

/// Ready paths at the same address become one.
fn merge(warp: &mut Warp) {
    let mut at = 0;
    while at < warp.paths.len() {
        let here = warp.paths[at];
        let same = |p: &Path| p.pc == here.pc && p.state == State::Ready;
        match warp.paths[..at].iter().position(same) {
            Some(first) if here.state == State::Ready => {
                warp.paths[first].lanes |= here.lanes;
                warp.paths.swap_remove(at);
            }
            _ => at += 1,
        }
    }
}

/// One instruction for the lanes of a path; how many lanes did something.
pub(super) fn step(
    warp: &mut Warp,
    cluster: &mut Cluster,
    machine: &Machine,
    host: &mut Host,
    (index, at, path): (u32, usize, u32),
) -> R<u32> {
    let d = host.program.code.at(index);
    warp.issue.step(&d.inst);
    if warp.shadow.is_some() {
        check(warp, &mut host.program, index, path)?;
    } else {
        warp.clock += u64::from(d.inst.control.stall.max(1));
    }
    execute(warp, cluster, machine, host, (index, at, path))
}

/// What strict mode checks and notes of an instruction that is about to execute.
pub(super) fn check(warp: &mut Warp, program: &mut Program, index: u32, path: u32) -> R<()> {
    let lanes = path & warp.predicate(program.code.at(index).guard());
    let Some(mut shadow) = warp.shadow.take() else { return Ok(()) };
    let needs = &mut program.needs[index as usize]; // PANIC: as long as the code
    let checked = shadow.before(warp, &program.code, needs, index, (lanes, path));
    warp.shadow = Some(shadow);
    checked
}

/// What an instruction does; how many lanes did something.
pub(super) fn execute(
    warp: &mut Warp,
    cluster: &mut Cluster,
    machine: &Machine,
    host: &mut Host,
    (index, at, path): (u32, usize, u32),
) -> R<u32> {
    let Host { program, sm, .. } = host;
    let (pc, d) = (program.code.pc(index), program.code.at(index));
    let lanes = path & warp.predicate(d.guard());
    warp.parted = matches!(d.body, Body::Flow(Flow::Branch { distance: ..0, .. }));
    match &d.body {
        Body::Plain(run) => {
            if lanes != 0 {
                run(&mut Core { warp, ctas: cluster.ctas, machine, sm, lanes, path, pc })?;
            }
            warp.paths[at].pc = pc + 16;
        }
        Body::Flow(flow) => {
            let core = Core { warp, ctas: cluster.ctas, machine, sm, lanes, path, pc };
            follow(core, cluster.barrier, *flow, at)?;
        }
    }
    Ok(if d.scalar { 1.min(lanes) } else { lanes.count_ones() })
}

fn follow(mut c: Core, cluster: &mut ClusterBarrier, flow: Flow, at: usize) -> R<()> {
    let next = c.pc + 16;
    match flow {
        Flow::Branch { taken, pp, up, distance } => {
            let lanes = c.lanes & c.pred(pp) & c.pred(up);
            let lanes = taking(&c, taken, lanes);
            part(&mut c, at, lanes, next.wrapping_add_signed(distance));
        }
        Flow::Indirect { pp, register, distance, relative } => {
            let from = (if relative { next } else { 0 }).wrapping_add_signed(distance);
            let lanes = c.lanes & c.pred(pp);
            scatter(&mut c, at, lanes, from, register);
        }
        Flow::UniformIndirect { pp, register, distance } => {
            let from = next.wrapping_add_signed(distance);
            let (lanes, target) = (c.lanes & c.pred(pp), c.uniform_pair(register));
            part(&mut c, at, lanes, from.wrapping_add(target));
        }
        Flow::Absolute { pp, address } => {
            let lanes = c.lanes & c.pred(pp);
            part(&mut c, at, lanes, address);
        }
        Flow::Exit { pp } => {
            c.lanes &= c.pred(pp);
            exit(&mut c, cluster, at);
        }
        Flow::Enter { pp, barrier } => {
            let lanes = c.lanes & c.pred(pp);
            ones(lanes).for_each(|lane| c.warp.converge[usize::from(barrier)][lane] = lanes);
            c.warp.paths[at].pc = next;
        }
        Flow::Break { pp, barrier } => {
            let lanes = c.lanes & c.pred(pp);
            c.warp.converge[usize::from(barrier)].iter_mut().for_each(|mask| *mask &= !lanes);
            c.warp.paths[at].pc = next;
        }
        Flow::Converge { pp, barrier } => {
            let lanes = c.lanes & c.pred(pp);
            wait(&mut c, at, lanes, State::Converge(barrier));
        }
        Flow::WarpSync { pp, mask } => {
            let first = c.lanes.trailing_zeros() as usize & 31;
            let mask = match mask {
                Number::Fixed(mask) => mask,
                Number::Register(r) => c.warp.registers[usize::from(r)][first],
            };
            let lanes = c.lanes & c.pred(pp);
            wait(&mut c, at, lanes, State::WarpSync(mask));
        }
        Flow::Barrier { op, number, count } => return barrier(&mut c, at, (op, number, count)),
        Flow::ClusterArrive => {
            cluster.arrived += c.lanes.count_ones();
            cluster_complete(&mut c, cluster);
            c.warp.paths[at].pc = next;
        }
        Flow::ClusterWait => {
            let generation = c.warp.cluster_generation;
            c.warp.cluster_generation = generation.wrapping_add(1);
            let lanes = c.lanes;
            wait(&mut c, at, lanes, State::Cluster { generation });
        }
    }
    Ok(())
}

/// The lanes that take a branch, of those whose predicates are true.
fn taking(c: &Core, taken: Taken, lanes: u32) -> u32 {
    let missing = |u: u8| c.warp.uniform[usize::from(u)] & c.warp.live & !c.path != 0;
    let goes = match taken {
        Taken::Each => return lanes,
        Taken::Any => return if lanes == 0 { 0 } else { c.path },
        Taken::All => lanes == c.path,
        Taken::Divergent(u) => missing(u),
        Taken::Convergent(u) => !missing(u),
    };
    if goes { lanes } else { 0 }
}

/// Each lane jumps to the address in its pair of registers, plus an offset.
fn scatter(c: &mut Core, at: usize, mut lanes: u32, from: u64, register: u8) {
    c.warp.paths[at].pc = c.pc + 16;
    while lanes != 0 {
        let target = c.warp.pair(register, lanes.trailing_zeros() as usize);
        let same = ones(lanes).filter(|l| c.warp.pair(register, *l) == target).fold(0, |m, l| m | 1 << l);
        lanes &= !same;
        split(c, at, same, from.wrapping_add(target));
    }
}

/// Lanes of a path jump elsewhere; the rest continues after the instruction.
fn part(c: &mut Core, at: usize, lanes: u32, target: u64) {
    c.warp.paths[at].pc = c.pc + 16;
    split(c, at, lanes, target);
}

fn split(c: &mut Core, at: usize, lanes: u32, target: u64) {
    let here = &mut c.warp.paths[at];
    if lanes == 0 {
    } else if here.lanes == lanes {
        here.pc = target;
    } else {
        here.lanes &= !lanes;
        c.warp.paths.push(Path { pc: target, lanes, state: State::Ready });
    }
}

/// Lanes of a path wait at this instruction; the rest continues.
fn wait(c: &mut Core, at: usize, lanes: u32, state: State) {
    let pc = c.pc;
    c.warp.paths[at].pc = pc + 16;
    split(c, at, lanes, pc);
    for path in &mut c.warp.paths {
        if path.lanes == lanes && path.pc == pc {
            path.state = state;
        }
    }
}

fn exit(c: &mut Core, cluster: &mut ClusterBarrier, at: usize) {
    let lanes = c.lanes;
    c.warp.live &= !lanes;
    c.warp.paths[at].pc = c.pc + 16;
    c.warp.paths[at].lanes &= !lanes;
    if c.warp.paths[at].lanes == 0 {
        c.warp.paths.swap_remove(at);
    }
    c.cta().leave(lanes.count_ones());
    cluster_complete(c, cluster);
}

fn cluster_complete(c: &mut Core, cluster: &mut ClusterBarrier) {
    let live: u32 = c.ctas.iter().map(|cta| cta.live).sum();
    if cluster.arrived != 0 && cluster.arrived >= live {
        *cluster = ClusterBarrier { arrived: 0, generation: cluster.generation.wrapping_add(1) };
        c.ctas.iter_mut().for_each(Cta::order);
    }
}

/// Threads of a partly filled warp count as a whole one where the program specifies a count.
fn barrier(c: &mut Core, at: usize, (op, number, count): (BarrierOp, Number, Number)) -> R<()> {
    if c.lanes == 0 {
        c.warp.paths[at].pc = c.pc + 16;
        return Ok(());
    }
    let first = c.lanes.trailing_zeros() as usize;
    let value = |c: &Core, n: Number| match n {
        Number::Fixed(v) => v,
        Number::Register(r) => c.warp.registers[usize::from(r)][first],
    };
    // One register holds both: the number in bits 3:0, the count from bit 16 on.
    let (number, count) = match (number, count) {
        (Number::Register(r), Number::Fixed(0)) => {
            let both = c.warp.registers[usize::from(r)][first];
            (both & 15, both >> 16 & 0xfff)
        }
        (Number::Register(_), Number::Register(_)) if number == count => {
            let both = value(c, number);
            (both & 15, both >> 16 & 0xfff)
        }
        _ => (value(c, number), value(c, count) & 0xfff),
    };
    let have = c.machine.launch.barriers.clamp(1, 16);
    if number >= have {
        return fail(FaultKind::BarrierNumber { number, have });
    }
    let threads = match (count, c.lanes == c.warp.live) {
        (0, _) | (_, false) => c.lanes.count_ones(),
        _ => 32,
    };
    let votes = match op {
        BarrierOp::Reduce(_, pp) => {
            let held = c.pred(pp) & c.lanes;
            Some((held.count_ones(), held == c.lanes, held != 0))
        }
        _ => None,
    };
    if let BarrierOp::Reduce(which, _) = op {
        c.warp.reduced = (which as u32, false);
    }
    let generation = c.cta().arrive(number as usize, threads, count, votes);
    match op {
        BarrierOp::Arrive => c.warp.paths[at].pc = c.pc + 16,
        _ => {
            let lanes = c.lanes;
            wait(c, at, lanes, State::Barrier { number: number as u8, generation });
        }
    }
    Ok(())
}
