//! Errors of submissions: a value that fits no packet, no room in time, a patch of a missing argument.
//!
//! Layer: `device` returns these errors inside its own. The packet sets themselves build lists of packets.

use super::bits::FieldOverflow;
use super::kernargs::KernargsError;
use super::memory::MemError;
use super::packet::EmitError;
use super::signal::WaitError;

/// Why a list could not be built or submitted.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A value has more bits than its field of a packet.
    #[error(transparent)]
    Field(#[from] FieldOverflow),
    /// A packet cannot be written as asked for.
    #[error(transparent)]
    Packet(#[from] EmitError),
    /// An access outside of a memory, or memory that cannot be mapped.
    #[error(transparent)]
    Mem(#[from] MemError),
    /// The arguments of a launch find no room in their ring.
    #[error(transparent)]
    Kernargs(#[from] KernargsError),
    /// Waiting for room in the queue, or for earlier work, failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A queue of this kind has no such command.
    #[error("{queue} queue cannot {what}")]
    Unsupported { queue: &'static str, what: &'static str },
    /// A replay patches an argument that its recorded list does not have.
    #[error("patch of argument {arg} of command {command}: the recorded list has no such argument")]
    Patch { command: usize, arg: usize },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for SubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
