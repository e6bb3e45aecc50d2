//! A launch: clusters of CTAs over the host's threads, their warps round robin.

use super::core::{Machine, Sm};
use super::fault::{Fault, FaultKind};
use super::path::{Cluster, ClusterBarrier, Host, run_slice};
use super::program::{self, Decoder, Program};
use super::shared::Cta;
use super::strict::WarpShadow;
use super::warp::{Lanes, Path, State, Warp};
use super::{Bus, Launch, Options, SmArch};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// CTAs that have run.
    pub blocks: u64,
    pub warps: u64,
    /// Instructions issued, each for all lanes of a path.
    pub instructions: u64,
    /// Cycles of all warps, each estimated as though it were alone: by stalls, scoreboards and guessed latencies.
    pub cycles: u64,
    /// Instructions times the lanes that executed them; those of the uniform datapath count as one lane.
    pub lane_operations: u64,
    /// Mnemonics and forms that were executed.
    pub forms: BTreeSet<(&'static str, &'static str)>,
}

/// Instructions of a warp before the next one runs.
const SLICE: u32 = 256;

/// Runs all CTAs of a launch.
///
/// # Errors
/// The first fault of a warp, or a launch that the chip refuses.
pub fn run(launch: &Launch, bus: &dyn Bus, stop: &AtomicBool, options: &Options) -> Result<Stats, Fault> {
    run_decoded(launch, bus, stop, options, &Decoder::default())
}

/// As [`run`], with what launches before have decoded.
///
/// # Errors
/// As [`run`].
pub fn run_decoded(
    launch: &Launch,
    bus: &dyn Bus,
    stop: &AtomicBool,
    options: &Options,
    decoder: &Decoder,
) -> Result<Stats, Fault> {
    let refuse = |kind| Fault { kind, pc: launch.entry, block: [0; 3], warp: 0, text: String::new() };
    check(launch).map_err(|what| refuse(FaultKind::BadLaunch { what }))?;
    let mut banks: [Vec<u8>; 8] = Default::default();
    for (bytes, bank) in banks.iter_mut().zip(&launch.banks) {
        if let Some((va, len_bytes)) = bank {
            *bytes = vec![0; *len_bytes as usize];
            bus.read(*va, bytes).map_err(|f| refuse(f.into()))?;
        }
    }
    let machine = Machine { launch, bus, options, banks, decoder, next: AtomicU64::new(0) };
    let clusters: u64 = (0..3).map(|k| u64::from(launch.grid[k] / launch.cluster[k])).product();
    let work = Work { machine: &machine, stop, halt: AtomicBool::new(false), result: Mutex::new(Ok(Stats::default())) };
    let helpers = (options.threads as u64).min(clusters).saturating_sub(1);
    std::thread::scope(|s| {
        for _ in 0..helpers {
            s.spawn(|| work.share());
        }
        work.share();
    });
    work.result.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A launch that threads of the host share.
struct Work<'a> {
    machine: &'a Machine<'a>,
    stop: &'a AtomicBool,
    halt: AtomicBool,
    result: Mutex<Result<Stats, Fault>>,
}

impl Work<'_> {
    /// Runs clusters until there are none left.
    fn share(&self) {
        let mut host = Host { program: Program::default(), sm: Sm::new(self.machine.bus), spare: Vec::new() };
        let mut stats = Stats::default();
        let mut fault = None;
        while !self.halt.load(Ordering::Relaxed) {
            let Some(index) = self.machine.begin() else { break };
            if let Err(f) = run_cluster(self.machine, &mut host, index, self.stop, &mut stats) {
                self.halt.store(true, Ordering::Relaxed);
                fault = Some(f);
            }
        }
        stats.forms = host.program.forms();
        let mut all = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        match (fault, all.as_mut()) {
            (Some(f), Ok(_)) => *all = Err(f),
            (None, Ok(sum)) => {
                sum.blocks += stats.blocks;
                sum.warps += stats.warps;
                sum.instructions += stats.instructions;
                sum.cycles += stats.cycles;
                sum.lane_operations += stats.lane_operations;
                sum.forms.extend(stats.forms);
            }
            _ => {}
        }
    }
}

/// Bytes of shared memory of a multiprocessor. Source: the CUDA programming guide's table of compute capabilities.
const fn shared_most(chip: SmArch) -> u32 {
    let kib = match chip {
        SmArch::Sm80 => 164,
        SmArch::Sm86 | SmArch::Sm89 | SmArch::Sm120 => 100,
        SmArch::Sm90 => 228,
    };
    kib << 10
}

/// What the chip's work distributor refuses.
fn check(launch: &Launch) -> Result<(), String> {
    let Launch { grid, block, cluster, registers, shared_bytes, .. } = launch;
    let threads: u64 = block.iter().map(|n| u64::from(*n)).product();
    let needed = threads.div_ceil(32) * u64::from((32 * registers).next_multiple_of(256));
    let size: u64 = cluster.iter().map(|n| u64::from(*n)).product();
    let shared_most = shared_most(launch.chip);
    match () {
        () if threads == 0 || threads > 1024 => Err(format!("{threads} threads a CTA, there are 1 to 1024")),
        () if grid.contains(&0) => Err(format!("a grid of {grid:?}")),
        () if size == 0 || size > 16 || (0..3).any(|k| !grid[k].is_multiple_of(cluster[k])) => {
            Err(format!("clusters of {cluster:?} in a grid of {grid:?}"))
        }
        () if *registers > 256 || needed > 65_536 => {
            Err(format!("{registers} registers for {threads} threads, a multiprocessor has 65536"))
        }
        () if *shared_bytes > shared_most => {
            Err(format!("{shared_bytes} bytes of shared memory, there are {shared_most}"))
        }
        () if size > 1 && launch.chip.is_before_hopper() => Err(format!("clusters of {cluster:?} on {}", launch.chip)),
        () if launch.barriers > 16 => Err(format!("{} barriers, there are 16", launch.barriers)),
        () if launch.local_bytes > 1 << 24 => Err(format!("{} bytes of local memory a thread", launch.local_bytes)),
        () => Ok(()),
    }
}

/// The CTAs of a cluster.
fn ctas(machine: &Machine, index: u64) -> Vec<Cta> {
    let (launch, options) = (machine.launch, machine.options);
    let (first, [x, y, z]) = (machine.first_cta(index), launch.cluster);
    let mut all = Vec::new();
    for rank in 0..x * y * z {
        let inner = [rank % x, rank / x % y, rank / x / y];
        let at = std::array::from_fn(|k| first[k] + inner[k]);
        all.push(Cta::new(at, rank, launch.shared_bytes, options.strict && options.shared_order));
    }
    all
}

/// A warp of a CTA before its first instruction.
fn warp(machine: &Machine, cta: usize, number: u32, registers: Vec<Lanes>) -> Warp {
    let [x, y, z] = machine.launch.block;
    let threads = x * y * z;
    let thread = |lane: usize| number * 32 + lane as u32;
    let live = (0..32).filter(|lane| thread(*lane) < threads).fold(0, |m, lane| m | 1 << lane);
    Warp {
        cta,
        number,
        live,
        registers,
        uniform: [0; 256],
        predicates: [0, 0, 0, 0, 0, 0, 0, u32::MAX],
        uniform_predicates: [0, 0, 0, 0, 0, 0, 0, u32::MAX],
        converge: [[0; 32]; 16],
        returns: [[0; 32]; 2],
        paths: vec![Path { pc: machine.launch.entry, lanes: live, state: State::Ready }],
        tid: [
            std::array::from_fn(|lane| thread(lane) % x),
            std::array::from_fn(|lane| thread(lane) / x % y),
            std::array::from_fn(|lane| thread(lane) / x / y),
        ],
        local: Vec::new(),
        clock: 0,
        issue: Default::default(),
        reduced: (0, false),
        cluster_generation: 0,
        favoured: 0,
        since: 0,
        favours: 0,
        parted: true,
        enters: true,
        shadow: machine.options.strict.then(|| Box::new(WarpShadow::new())),
    }
}

fn run_cluster(
    machine: &Machine,
    host: &mut Host,
    index: u64,
    stop: &AtomicBool,
    stats: &mut Stats,
) -> Result<(), Fault> {
    let mut ctas = ctas(machine, index);
    let threads: u32 = machine.launch.block.iter().product();
    let mut warps: Vec<Warp> = Vec::new();
    for (k, cta) in ctas.iter_mut().enumerate() {
        cta.live = threads;
        warps.extend((0..threads.div_ceil(32)).map(|number| warp(machine, k, number, host.registers())));
    }
    stats.blocks += ctas.len() as u64;
    stats.warps += warps.len() as u64;
    let mut barrier = ClusterBarrier::default();
    let mut total = 0;
    let mut of_first = 0;
    loop {
        let (mut alive, mut done) = (None, 0);
        for (k, warp) in warps.iter_mut().enumerate().filter(|(_, w)| !w.is_done()) {
            alive = Some(k);
            let mut cluster = Cluster { ctas: &mut ctas, barrier: &mut barrier };
            let fault = |warp: &Warp, ctas: &[Cta], pc, kind| Fault {
                kind,
                pc,
                block: ctas[warp.cta].index,
                warp: warp.number,
                text: program::text(pc, machine),
            };
            let slice = run_slice(warp, &mut cluster, machine, host, SLICE);
            match slice {
                Ok(slice) => {
                    done += u64::from(slice.instructions);
                    if (k, index) == (0, 0) {
                        of_first = flipped(warp, machine.options, (of_first, slice.instructions));
                    }
                    stats.lane_operations += slice.lane_operations;
                }
                Err((pc, kind)) => return Err(fault(warp, &ctas, pc, *kind)),
            }
        }
        total += done;
        stats.instructions += done;
        let Some(k) = alive else {
            stats.cycles += warps.iter().map(|w| w.issue.cycles()).sum::<u64>();
            host.spare.extend(warps.into_iter().map(|w| w.registers));
            return Ok(());
        };
        let kind = match machine.options.max_instructions {
            _ if stop.load(Ordering::Relaxed) => FaultKind::Stopped,
            max if max != 0 && total > max => FaultKind::Endless { instructions: total },
            _ if done == 0 => FaultKind::Stuck { what: waits(&warps[k]) },
            _ => continue,
        };
        let pc = warps[k].paths.first().map_or(machine.launch.entry, |p| p.pc);
        let (block, text) = (ctas[warps[k].cta].index, program::text(pc, machine));
        return Err(Fault { kind, pc, block, warp: warps[k].number, text });
    }
}

/// Flips the configured bit if its time is within the instructions that the warp has just executed; returns how many it
/// has executed by now.
fn flipped(warp: &mut Warp, options: &Options, (before, more): (u64, u32)) -> u64 {
    let now = before + u64::from(more);
    if let Some(flip) = options.flip.filter(|flip| (before..now).contains(&flip.after))
        && let Some(lanes) = warp.registers.get_mut(usize::from(flip.register.min(254)))
    {
        lanes[usize::from(flip.lane % 32)] ^= 1 << (flip.bit % 32);
    }
    now
}

/// What the first path of a warp waits for.
fn waits(warp: &Warp) -> String {
    match warp.paths.first().map(|p| p.state) {
        Some(State::Converge(b)) => format!("convergence barrier B{b}"),
        Some(State::WarpSync(mask)) => format!("WARPSYNC of lanes {mask:#x}"),
        Some(State::Barrier { number, .. }) => format!("barrier {number}"),
        Some(State::Cluster { .. }) => "the cluster's barrier".to_owned(),
        _ => "nothing".to_owned(),
    }
}
