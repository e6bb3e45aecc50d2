//! The faults that stop a warp: every kind a typed value, with the exception that the chip raises for it.
//!
//! Codes: the warp error numbers of the shader's error state register as the nouveau driver names them (gf100 to
//! present), and the channel's error codes of the kernel driver's `nverror.h`.

use super::bus::MemoryFault;
use thiserror::Error;

/// What the chip reports to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The number in the warp error state register; 0 where the chip raises nothing (strict mode's findings).
    pub warp_error: u32,
    /// The channel's error code: 13 graphics exception, 31 MMU fault; 0 with no exception.
    pub channel_error: u32,
}

/// Why a warp stopped. Kinds up to `Trap` are what hardware reports; the rest are this emulator's and strict mode's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultKind {
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    #[error("illegal instruction: {what}")]
    IllegalInstruction { what: String },
    #[error("register {register} is beyond the {allocated} of the launch")]
    RegisterBeyondAllocation { register: String, allocated: u32 },
    #[error("{len_bytes} bytes at {space} address {address:#x} are not aligned")]
    Misaligned { space: &'static str, address: u64, len_bytes: u32 },
    #[error("{len_bytes} bytes at {space} address {address:#x} are beyond the {size_bytes} there are")]
    OutOfRange { space: &'static str, address: u64, len_bytes: u32, size_bytes: u64 },
    #[error("constant bank {bank} has no byte {offset:#x}")]
    Constant { bank: u8, offset: i64 },
    #[error("barrier {number} of {have} that the launch has")]
    BarrierNumber { number: u32, have: u32 },
    #[error("program counter {pc:#x} is no multiple of 16")]
    MisalignedPc { pc: u64 },
    #[error("only lanes {lanes:#x} of the warp are here")]
    NotConverged { lanes: u32 },
    #[error("trap")]
    Trap,
    #[error("{what} is not modelled")]
    NotModelled { what: String },
    #[error("{what}: nobody else can come")]
    Stuck { what: String },
    #[error("no end after {instructions} instructions")]
    Endless { instructions: u64 },
    #[error("stopped by the host")]
    Stopped,
    #[error("launch: {what}")]
    BadLaunch { what: String },
    #[error("{register} is read {have} cycles after `{producer}` at {at:#x} wrote it, it takes {need}")]
    TooEarly { register: String, producer: String, at: u64, have: u32, need: u32 },
    #[error("{register} is {used} while `{producer}` at {at:#x} has not delivered it: no scoreboard was waited for")]
    NotWaited { register: String, used: &'static str, producer: String, at: u64 },
    #[error("{register} is overwritten while `{reader}` at {at:#x} has not read it: no scoreboard was waited for")]
    ReadPending { register: String, reader: String, at: u64 },
    #[error("{register} is multiplied and `{producer}` at {at:#x} wrote it after the last WARPGROUP.ARRIVE")]
    NotArrived { register: String, producer: String, at: u64 },
    #[error("{register} is read and nobody wrote it (lanes {lanes:#x})")]
    Unwritten { register: String, lanes: u32 },
    #[error("shared byte {address:#x} is read and nobody wrote it")]
    SharedUnwritten { address: u32 },
    #[error("shared byte {address:#x}: {this} here and {other} by warp {warp} without a barrier between")]
    SharedRace { address: u32, this: &'static str, other: &'static str, warp: u32 },
}

impl FaultKind {
    /// The exception of the chip.
    #[must_use]
    pub fn exception(&self) -> Exception {
        let raised = |warp_error| Exception { warp_error, channel_error: 13 };
        match self {
            FaultKind::Memory(_) => Exception { warp_error: 0, channel_error: 31 },
            FaultKind::MisalignedPc { .. } => raised(0x05),
            FaultKind::IllegalInstruction { .. } | FaultKind::NotConverged { .. } | FaultKind::NotModelled { .. } => {
                raised(0x09)
            }
            FaultKind::BarrierNumber { .. } => raised(0x0b),
            FaultKind::RegisterBeyondAllocation { .. } => raised(0x0d),
            FaultKind::OutOfRange { .. } => raised(0x0e),
            FaultKind::Misaligned { .. } => raised(0x0f),
            FaultKind::Constant { .. } => raised(0x12),
            FaultKind::Trap => raised(0),
            _ => Exception { warp_error: 0, channel_error: 0 },
        }
    }
}

/// A fault and where it happened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} at {pc:#x} `{text}` in block {},{},{} warp {warp}", block[0], block[1], block[2])]
pub struct Fault {
    pub kind: FaultKind,
    /// Address of the instruction.
    pub pc: u64,
    pub block: [u32; 3],
    pub warp: u32,
    /// The instruction as text, or its word when it is none.
    pub text: String,
}

impl Fault {
    /// The exception of the chip.
    #[must_use]
    pub fn exception(&self) -> Exception {
        self.kind.exception()
    }
}

/// Result inside the multiprocessor: the fault's place is added by the loop that runs the warp.
pub(super) type R<T> = Result<T, Box<FaultKind>>;

impl From<MemoryFault> for Box<FaultKind> {
    fn from(fault: MemoryFault) -> Self {
        Box::new(FaultKind::Memory(fault))
    }
}

pub(super) fn fail<T>(kind: FaultKind) -> R<T> {
    Err(Box::new(kind))
}

/// An instruction or a combination of modifiers that this emulator does not know.
pub(super) fn not_modelled<T>(what: impl Into<String>) -> R<T> {
    fail(FaultKind::NotModelled { what: what.into() })
}
