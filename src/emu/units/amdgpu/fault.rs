//! The faults that stop a wave: every kind a typed value, reported with workgroup, wave, address and the instruction's
//! text.

use super::bus::{Access, BusFault};
use std::fmt;

/// Why a wave stopped. Kinds up to `Trap` are what hardware reports; the rest are strict mode's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultKind {
    #[error("{access:?} of {va:#x}: {fault}")]
    Memory { va: u64, access: Access, fault: BusFault },
    #[error("illegal instruction word {word:#010x}")]
    IllegalInstruction { word: u32 },
    #[error("{name} is not modelled")]
    NotModelled { name: String },
    #[error("reserved bits {bits:#x} are set in {name}")]
    ReservedBits { name: String, bits: u64 },
    #[error("{what} is not valid for this instruction")]
    BadOperand { what: String },
    #[error("trap {id}")]
    Trap { id: u32 },
    #[error("wave halted by s_sethalt with nobody to resume it")]
    Halted,
    #[error("stopped by the host")]
    Stopped,
    #[error("no end after {instructions} instructions")]
    Endless { instructions: u64 },
    #[error("v{register} is beyond the {allocated} registers of the descriptor")]
    VgprBeyondAllocation { register: u32, allocated: u32 },
    #[error("v{register} is a{} of a descriptor with accum_offset {accum_offset}", register - accum_offset)]
    VgprIsAccumulator { register: u32, accum_offset: u32 },
    #[error("s{register} is beyond the limit of {limit}")]
    SgprBeyondLimit { register: u32, limit: u32 },
    #[error("{class}[{first}..] of {words} registers must be aligned to {align}")]
    MisalignedTuple { class: char, first: u32, words: u32, align: u32 },
    #[error("v{register} is read and nobody wrote lanes {lanes:#x}")]
    VgprUnwritten { register: u32, lanes: u64 },
    #[error("s{register} is read and nobody wrote it")]
    SgprUnwritten { register: u32 },
    #[error("SCC is read and nobody wrote it")]
    SccUnwritten,
    #[error("LDS byte {offset:#x} is read and nobody wrote it")]
    LdsUnwritten { offset: u32 },
    #[error("LDS bytes {offset:#x}..+{len_bytes} are beyond the {size_bytes} of the workgroup")]
    LdsOutOfRange { offset: u64, len_bytes: u32, size_bytes: u32 },
    #[error("scratch bytes {offset:#x}..+{len_bytes} are beyond the {size_bytes} of a lane")]
    ScratchOutOfRange { offset: u64, len_bytes: u32, size_bytes: u32 },
    #[error("address {va:#x} is not a multiple of {align}")]
    Misaligned { va: u64, align: u32 },
    #[error("v{register} is the destination of a load that {counter} has not waited for")]
    VgprNotWaited { register: u32, counter: &'static str },
    #[error("s{register} is the destination of a load that {counter} has not waited for")]
    SgprNotWaited { register: u32, counter: &'static str },
    #[error("hazard: {rule}, {have} of {need} wait states")]
    Hazard { rule: &'static str, need: u32, have: u32 },
    #[error("LDS byte {offset:#x}: {this} here and {other} by wave {wave} without a barrier between")]
    LdsRace { offset: u32, this: &'static str, other: &'static str, wave: u32 },
    #[error("LDS byte {offset:#x} was written by wave {wave}, which did not wait for the store before the barrier")]
    LdsStoreNotWaited { offset: u32, wave: u32 },
    #[error("memory {va:#x}: {this} here and {other} by wave {wave} of workgroup {group} without a barrier between")]
    GlobalRace { va: u64, this: &'static str, other: &'static str, group: u32, wave: u32 },
    #[error("memory {va:#x} was written by wave {wave}, which did not wait for the store before the barrier")]
    GlobalStoreNotWaited { va: u64, wave: u32 },
    #[error("memory {va:#x} changed since the {cache} took it, and nothing invalidated the {cache}")]
    StaleRead { va: u64, cache: &'static str },
    #[error("memory {va:#x} was stored by workgroup {group} on XCC {xcc}, and nothing wrote back the L2 there")]
    NotWrittenBack { va: u64, group: u32, xcc: u32 },
    #[error("barrier: {waiting} waves wait, {ended} ended, nobody else can come")]
    BarrierStuck { waiting: u32, ended: u32 },
    #[error("scratch for {have} waves, the workgroup needs {need}")]
    ScratchWaves { have: u32, need: u32 },
    #[error("dispatch: {what}")]
    BadDispatch { what: String },
}

impl FaultKind {
    /// Whether only strict mode stops there: hardware goes on, with a result that the program does not expect.
    #[must_use]
    pub(crate) fn is_finding(&self) -> bool {
        matches!(
            self,
            Self::MisalignedTuple { .. }
                | Self::VgprIsAccumulator { .. }
                | Self::VgprUnwritten { .. }
                | Self::SgprUnwritten { .. }
                | Self::SccUnwritten
                | Self::LdsUnwritten { .. }
                | Self::LdsOutOfRange { .. }
                | Self::VgprNotWaited { .. }
                | Self::SgprNotWaited { .. }
                | Self::Hazard { .. }
                | Self::LdsRace { .. }
                | Self::LdsStoreNotWaited { .. }
                | Self::GlobalRace { .. }
                | Self::GlobalStoreNotWaited { .. }
                | Self::StaleRead { .. }
                | Self::NotWrittenBack { .. }
        )
    }
}

impl FaultKind {
    /// The first lane that the fault concerns, given the one whose access was under way.
    pub(super) fn lane(&self, access: Option<u8>) -> Option<u8> {
        match self {
            Self::VgprUnwritten { lanes, .. } => u8::try_from(lanes.trailing_zeros()).ok(),
            Self::Memory { access: Access::Fetch, .. } => None,
            Self::Memory { .. }
            | Self::LdsUnwritten { .. }
            | Self::LdsOutOfRange { .. }
            | Self::ScratchOutOfRange { .. }
            | Self::Misaligned { .. }
            | Self::LdsRace { .. }
            | Self::LdsStoreNotWaited { .. } => access,
            _ => None,
        }
    }
}

/// A fault and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveFault {
    pub kind: FaultKind,
    pub workgroup: [u32; 3],
    pub wave: u32,
    /// The first lane that it concerns; `None` where it concerns the wave as a whole.
    pub lane: Option<u8>,
    pub pc: u64,
    /// The instruction as text, or its words when it cannot be read.
    pub text: String,
}

impl WaveFault {
    /// Address, instruction, workgroup, wave and lane.
    #[must_use]
    pub fn place(&self) -> String {
        let [x, y, z] = self.workgroup;
        let lane = self.lane.map_or_else(String::new, |lane| format!(" lane {lane}"));
        format!("{:#x} `{}` in workgroup {x},{y},{z} wave {}{lane}", self.pc, self.text, self.wave)
    }
}

impl fmt::Display for WaveFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}", self.kind, self.place())
    }
}

impl std::error::Error for WaveFault {}

/// Result inside the compute unit: the fault's place is added by the loop that runs the wave.
pub(super) type R<T> = Result<T, Box<FaultKind>>;

pub(super) fn fail<T>(kind: FaultKind) -> R<T> {
    Err(Box::new(kind))
}
