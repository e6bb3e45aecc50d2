//! What a GPU's queue looks at before it takes a command: the right queue, the right device, places inside their memories.
//!
//! Place in the arrows: the queues of driver-backed devices have it in common; they say who they are, and how a peer's memory is mapped.

use super::{Command, DeviceError, DeviceTag, Place, QueueKind};
use doorbell_hcq::queue::SubmitError;

/// A queue that checks.
pub trait Checks {
    fn tag(&self) -> &DeviceTag;
    fn kind(&self) -> QueueKind;

    /// Lets this device reach the memory at an address of another device of its driver; `false`: the driver knows of none there.
    ///
    /// # Errors
    /// The driver's.
    fn map_peer(&self, va: u64) -> Result<bool, DeviceError>;

    /// Whether this queue can run the command at all.
    ///
    /// # Errors
    /// `Unsupported` on the other queue, `WrongDevice`, `Range`.
    fn check(&self, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { .. } if self.kind() == QueueKind::Copy => {
                Err(SubmitError::Unsupported { queue: "copy", what: "run kernels" }.into())
            }
            Command::Exec { kernel, .. } if kernel.device() != self.tag() => Err(self.wrong("kernel", kernel.device())),
            Command::Exec { .. } => command.places().try_for_each(|p| self.check_place(p, 0, "kernel argument")),
            Command::Copy { .. } if self.kind() == QueueKind::Compute => {
                Err(SubmitError::Unsupported { queue: "compute", what: "copy" }.into())
            }
            Command::Copy { dst, src, len_bytes, .. } => {
                self.check_copied(src, *len_bytes, "copy source")?;
                self.check_copied(dst, *len_bytes, "copy destination")
            }
        }
    }

    /// As [`Checks::check_place`]; memory of another device of this driver will do, and is mapped here.
    ///
    /// # Errors
    /// `WrongDevice`, `Range`; the driver's.
    fn check_copied(&self, place: &Place, len_bytes: u64, what: &'static str) -> Result<(), DeviceError> {
        let theirs = place.memory.device();
        if theirs != self.tag() && !self.map_peer(place.memory.va())? {
            return Err(self.wrong(what, theirs));
        }
        place.memory.check(what, place.offset, len_bytes)
    }

    /// Whether so many bytes from a place on are this device's.
    ///
    /// # Errors
    /// `WrongDevice`, `Range`.
    fn check_place(&self, place: &Place, len_bytes: u64, what: &'static str) -> Result<(), DeviceError> {
        if place.memory.device() != self.tag() {
            return Err(self.wrong(what, place.memory.device()));
        }
        place.memory.check(what, place.offset, len_bytes)
    }

    fn wrong(&self, what: &'static str, theirs: &DeviceTag) -> DeviceError {
        DeviceError::WrongDevice { what, ours: self.tag().name().into(), theirs: theirs.name().into() }
    }
}
