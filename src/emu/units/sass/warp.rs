//! State of a warp: registers of its lanes, predicates, the uniform file, convergence barriers, paths.

use super::issue::Issue;
use super::operand::PSrc;
use super::shared::Who;
use super::strict::WarpShadow;

/// One 32-bit register of 32 lanes.
pub(super) type Lanes = [u32; 32];

/// Numbers of the bits that are set.
pub(super) fn ones(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}

/// What a path waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// BSYNC of that convergence barrier.
    Converge(u8),
    /// WARPSYNC of these lanes.
    WarpSync(u32),
    /// The named barrier of the CTA leaves this generation.
    Barrier {
        number: u8,
        generation: u32,
    },
    /// The cluster's barrier leaves this generation.
    Cluster {
        generation: u32,
    },
}

/// Lanes that are at the same instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub pc: u64,
    pub lanes: u32,
    pub state: State,
}

/// A warp.
pub(super) struct Warp {
    /// Its CTA in the cluster.
    pub cta: usize,
    /// Its number in the CTA.
    pub number: u32,
    /// Lanes that exist and have not exited.
    pub live: u32,
    /// R0 to R254; 255 is RZ and stays zero.
    pub registers: Vec<Lanes>,
    /// UR0 to UR62, from sm_100 on UR254; 255 is URZ and stays zero.
    pub uniform: [u32; 256],
    /// A bit a lane; 7 is PT.
    pub predicates: [u32; 8],
    /// All ones or none; 7 is UPT.
    pub uniform_predicates: [u32; 8],
    /// Convergence barriers: which lanes each lane waits for.
    pub converge: [Lanes; 16],
    /// Rpc: low and high word.
    pub returns: [Lanes; 2],
    pub paths: Vec<Path>,
    /// Lanes that go on, whatever their address, until they branch or wait.
    pub favoured: u32,
    /// Instructions since lanes were favoured, and how often some were.
    pub since: u32,
    pub favours: u32,
    /// Whether its last instruction branched or waited.
    pub parted: bool,
    /// Whether a run of instructions may begin where it is: it has not just executed the instruction before.
    pub enters: bool,
    /// Thread indices.
    pub tid: [Lanes; 3],
    /// Local memory, lane after lane.
    pub local: Vec<u8>,
    /// Cycles since the start.
    pub clock: u64,
    /// An estimate of the cycles it takes alone.
    pub issue: Issue,
    /// Result of the last BAR.RED.
    pub reduced: (u32, bool),
    /// Generation of the cluster's barrier that the next wait is for.
    pub cluster_generation: u32,
    /// Strict mode's notes.
    pub shadow: Option<Box<WarpShadow>>,
}

impl Warp {
    /// Whether all its threads have exited.
    pub(crate) fn is_done(&self) -> bool {
        self.live == 0
    }

    /// Its number as an accessor of shared memory: no other warp of the cluster has this number.
    pub(crate) fn who(&self) -> Who {
        Who::Warp(32 * self.cta as u32 + self.number)
    }

    /// A predicate's lanes.
    pub(crate) fn predicate(&self, p: PSrc) -> u32 {
        let file = if p.uniform { &self.uniform_predicates } else { &self.predicates };
        file[usize::from(p.index)] ^ if p.not { u32::MAX } else { 0 }
    }

    /// The lane's 64-bit value in a pair.
    pub(crate) fn pair(&self, register: u8, lane: usize) -> u64 {
        let low = self.registers[usize::from(register)][lane];
        let high = if register == 255 { 0 } else { self.registers[usize::from(register) + 1][lane] };
        u64::from(high) << 32 | u64::from(low)
    }
}
