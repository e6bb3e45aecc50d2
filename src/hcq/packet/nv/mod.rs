//! The formats that NVIDIA's channels read: GPFIFO entries, methods in push buffers, and QMDs.
//!
//! A GPFIFO entry refers to a push buffer; a push buffer holds methods (an engine's register and the value written to
//! it); some methods start an action.
//! [`host`], [`compute`] and [`copy`] define the supported actions: each can be emitted as methods and, for an emulator
//! of the engine, recognised from the methods written so far. A launch is described by a [`qmd`], whose address is
//! given by a method.
//! Layer: as the other packets. Source: docs/nv.md 3 and 4; NVIDIA's class headers `clc86f.h` (host, Hopper),
//! `clc56f.h` (Ampere), `clcbc0.h`, `clc8b5.h`, `cl..qmd.h`. Addresses stay below 2^40, so that no extended base is
//! needed.
//! Left out: textures, the macro engine, peer and physical copies, block-linear layouts, secure channels.

pub mod compute;
pub mod copy;
pub mod gpfifo;
pub mod host;
mod method;
mod names;
pub mod qmd;

#[cfg(test)]
mod tests;

pub use gpfifo::Entry;
pub use method::{PushBuffer, Subchannel, Write, Writes};

use super::{EmitError, GpuVa};
use crate::bits::join;

/// Push buffers, rings and QMDs must lie below this address.
pub const VA_LIMIT: u64 = 1 << 40;

/// A method or value that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error("{engine} has no method {method:#06x} (value {value:#x})")]
    Unknown { engine: &'static str, method: u16, value: u32 },
    #[error("{engine}: {name} {value:#x}: {why}")]
    Value { engine: &'static str, name: &'static str, value: u32, why: &'static str },
}

/// The methods that an engine has latched until one of them starts an action.
#[derive(Clone, Debug, Default)]
struct Latched(Vec<(u16, u32)>);

impl Latched {
    fn set(&mut self, method: u16, value: u32) {
        match self.0.iter_mut().find(|(known, _)| *known == method) {
            Some((_, old)) => *old = value,
            None => self.0.push((method, value)),
        }
    }

    fn get(&self, method: u16) -> u32 {
        self.0.iter().find(|(known, _)| *known == method).map_or(0, |(_, value)| *value)
    }

    /// An address stored in two methods, the upper part first.
    fn address(&self, upper: u16) -> GpuVa {
        GpuVa(join(self.get(upper + 4), self.get(upper)))
    }
}

/// Upper and lower part of an address, in the order of most methods.
fn upper_lower(packet: &'static str, address: GpuVa) -> Result<[u32; 2], EmitError> {
    // The largest address space of a chip has 57 bits; the methods have 25 bits for the upper part.
    let max = (1 << 57) - 1;
    if address.0 > max {
        return Err(EmitError::OverLimit { packet, field: "address", value: address.0, max });
    }
    let [lo, hi] = crate::bits::split(address.0);
    Ok([hi, lo])
}
