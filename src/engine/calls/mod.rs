//! What CUDA's runtime supplies to kernels, for kernels of other compilers: `printf`, `assert`, `malloc` and `free`.
//!
//! ```no_run
//! # use doorbell::engine::{calls::{Calls, Sizes}, session};
//! # fn run(device: &doorbell::engine::OpenDevice, cubin: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let calls = Calls::open(device, Sizes::default())?;
//! let functions = calls.functions()?; // for Code::Cubin { bytes: cubin, entry: "k", functions: &functions }
//! // ... load, submit, wait ...
//! println!("{}", calls.take().text());
//! # Ok(()) }
//! ```
//!
//! The device's functions are `isa::nvidia::runtime`'s. What they print lies in memory of the host, also when the
//! device is lost, until [`Calls::take`] reads it. Text beyond the buffer is lost, and counted. A heap lives as long as
//! its [`Calls`].

mod format;
mod report;

pub use report::{Assertion, Printed, Report};

use super::{Error, OpenDevice};
use crate::device::{Device, Memory};
use crate::elf::cubin::{Arch, Cubin, Functions, is_cubin};
use crate::isa::IsaError;
use crate::isa::nvidia::runtime::{self, FAULT_BYTES, LOST_OFFSET, Places, STATE_BYTES};
use std::sync::Arc;

/// How much memory the functions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the buffer of printed text, between two calls of [`Calls::take`].
    pub text_bytes: u64,
    /// Of the heap of `malloc`.
    pub heap_bytes: u64,
}

/// CUDA's heap, too, has 8 MiB where a program does not ask for another size.
impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { text_bytes: 1 << 20, heap_bytes: 8 << 20 }
    }
}

/// The largest heap and buffer: the heap counts in units of 16 bytes with 32 bits.
const MAX_BYTES: u64 = 32 << 30;

/// The memory of the functions on one device.
#[derive(Debug)]
pub struct Calls {
    device: Arc<dyn Device>,
    places: Places,
    state: Memory,
    /// The description of an assertion, then the records of `printf`.
    host: Memory,
    _heap: Memory,
}

/// Whether a file is a cubin that calls one of the functions.
#[must_use]
pub fn is_wanted(file: &[u8]) -> bool {
    let supplied = |name: &String| runtime::names().any(|n| n == name);
    is_cubin(file) && Cubin::parse(file).is_ok_and(|c| c.undefined().iter().any(supplied))
}

/// Whether a PTX text may call one of the functions: it has one of their names.
#[must_use]
pub fn is_wanted_in(text: &str) -> bool {
    runtime::names().any(|name| text.contains(name))
}

impl Calls {
    /// Allocates the memory.
    ///
    /// # Errors
    /// Sizes above 32 GiB, and what the device says: no memory, or none that the host shares.
    pub fn open(device: &OpenDevice, sizes: Sizes) -> Result<Calls, Error> {
        let gpu = device.device.as_ref();
        if sizes.text_bytes.max(sizes.heap_bytes) > MAX_BYTES {
            let why = format!("{sizes:?}: the limit of either is {MAX_BYTES} bytes");
            return Err(Error::Isa(IsaError::Malformed { kernel: "functions of the runtime".into(), why }));
        }
        let text_bytes = sizes.text_bytes.max(8).next_multiple_of(8);
        let heap_bytes = sizes.heap_bytes.next_multiple_of(16);
        let state = gpu.alloc(STATE_BYTES)?;
        gpu.copy_in(&state, 0, &[0; STATE_BYTES as usize])?;
        let host = gpu.alloc_pinned(FAULT_BYTES + text_bytes)?;
        if host.host().is_none() {
            let why = format!("{} shares no memory with the host, which their text goes through", device.name);
            return Err(Error::Isa(IsaError::Malformed { kernel: "functions of the runtime".into(), why }));
        }
        let heap = gpu.alloc(heap_bytes.max(16))?;
        let places = Places {
            state: state.va(),
            fault: host.va(),
            text: host.va() + FAULT_BYTES,
            text_bytes,
            heap: heap.va(),
            heap_bytes,
        };
        let calls = Calls { device: Arc::clone(&device.device), places, state, host, _heap: heap };
        calls.clear(FAULT_BYTES + text_bytes);
        Ok(calls)
    }

    /// A PTX module with the functions that it declares and does not define; `None`: it needs none.
    #[must_use]
    pub fn in_module(&self, text: &str) -> Option<String> {
        runtime::with_functions(text, &self.places)
    }

    /// The functions for cubins of the device's chip.
    ///
    /// # Errors
    /// A chip that our assembler has no table for.
    pub fn functions(&self) -> Result<Functions, Error> {
        let arch = &self.device.info().arch;
        let made = Arch::parse(arch).ok_or_else(|| format!("{arch} is no chip of NVIDIA's"));
        let made = made.and_then(|arch| runtime::functions(&self.places, arch));
        made.map_err(|why| Error::Isa(IsaError::NoCode { why }))
    }

    /// What kernels have printed since the last call, and makes room for more. Call it when no kernel runs that may
    /// print.
    #[must_use]
    pub fn take(&self) -> Report {
        let mut bytes = vec![0; usize::try_from(self.host.len_bytes()).unwrap_or(0)];
        let read = self.host.host().map(|view| view.read(0, &mut bytes));
        debug_assert!(matches!(read, Some(Ok(()))), "pinned memory can be read");
        let mut report = Report::read(&bytes);
        // A device that is lost no longer says how many calls did not fit.
        let mut state = [0; 16];
        if self.device.copy_out(&self.state, 0, &mut state).is_ok() {
            let lost = state.get(LOST_OFFSET as usize..).and_then(|s| s.first_chunk::<4>());
            report.lost = lost.map_or(0, |l| u32::from_le_bytes(*l));
            if self.device.copy_in(&self.state, 0, &[0; 16]).is_ok() {
                self.clear(FAULT_BYTES + report.used_bytes);
            }
        }
        report
    }

    fn clear(&self, len_bytes: u64) {
        let zeros = vec![0; usize::try_from(len_bytes).unwrap_or(0)];
        let written = self.host.host().map(|view| view.write(0, &zeros));
        debug_assert!(matches!(written, Some(Ok(()))), "pinned memory can be written");
    }
}
