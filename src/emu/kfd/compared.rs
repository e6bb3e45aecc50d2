//! Dispatches that run twice: with all checks on a copy of memory, then without checks on memory itself. Different bits
//! end the queue as a finding does.

use super::units::VmBus;
use crate::amdgpu::{
    self, Access, Bus, BusFault, Dispatch, HotCode, Memory, Policy, Rows, ShadowMemory, Strict, WaveFault, Window,
};
use crate::stores::Stores;
use doorbell_ioctl::port::DeviceView;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why a dispatch ended.
pub(super) enum Ended {
    Fault(Box<WaveFault>),
    Differs(String),
}

/// Runs a dispatch twice, each time on one thread, so that the workgroups come in the same order.
pub(super) fn run(
    dispatch: &Dispatch,
    bus: &VmBus<'_>,
    strict: &Strict,
    stop: &AtomicBool,
    hot: &HotCode,
) -> Result<(), Ended> {
    let stores = || Arc::new(Stores::default());
    let (checked, fast) = (stores(), stores());
    let once = |stores: &Arc<Stores>, is_copy, options: &Strict| {
        let bus = Watched { bus, stores: Arc::clone(stores), is_copy };
        amdgpu::run_hot(dispatch, &bus, options, stop, hot).map_err(Ended::Fault)
    };
    once(&checked, true, &Strict { threads: 1, ..*strict })?;
    once(&fast, false, &Strict { max_instructions: strict.max_instructions, ..Strict::off() })?;
    let read = |va: u64, bytes: &mut [u8]| {
        // What is not there any more was unmapped meanwhile, which is a mistake of its own.
        if let Ok(window) = bus.translate(va, Access::Read) {
            window.memory.read(va - window.va_start, bytes);
        }
    };
    checked.difference(&fast, read).map_or(Ok(()), |difference| Err(Ended::Differs(difference.to_string())))
}

/// The page table, with windows whose stores are noted, and change a copy or memory.
struct Watched<'a> {
    bus: &'a VmBus<'a>,
    stores: Arc<Stores>,
    is_copy: bool,
}

impl Bus for Watched<'_> {
    fn translate(&self, va: u64, wanted: Access) -> Result<Window, BusFault> {
        let Window { va_start, len_bytes, memory } = self.bus.translate(va, wanted)?;
        let stores = Arc::clone(&self.stores);
        let memory: Arc<dyn Memory> = match self.is_copy {
            true => Arc::new(Copied { memory, va_start, stores }),
            false => Arc::new(Noted { memory, va_start, stores }),
        };
        Ok(Window { va_start, len_bytes, memory })
    }

    fn epoch(&self) -> u64 {
        self.bus.epoch()
    }

    fn shadow(&self) -> Option<&ShadowMemory> {
        self.bus.shadow()
    }

    fn policy(&self, va: u64) -> Policy {
        self.bus.policy(va)
    }

    fn xccs(&self) -> u32 {
        self.bus.xccs()
    }

    fn queue(&self) -> u32 {
        self.bus.queue()
    }

    fn note(&self, finding: &WaveFault) {
        self.bus.note(finding);
    }
}

/// Memory, of which stores change a copy.
struct Copied {
    memory: Arc<dyn Memory>,
    va_start: u64,
    stores: Arc<Stores>,
}

impl Copied {
    fn update<const N: usize>(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        let mut bytes = [0; N];
        self.memory.read(offset, &mut bytes);
        self.stores.update(self.va_start + offset, &bytes, f)
    }
}

impl Memory for Copied {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.memory.read(offset, into);
        self.stores.over(self.va_start + offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.stores.store(self.va_start + offset, from);
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        self.update::<4>(offset, &mut |old| f(old as u32).into()) as u32
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        self.update::<8>(offset, f)
    }
}

/// Memory, of which stores are noted.
struct Noted {
    memory: Arc<dyn Memory>,
    va_start: u64,
    stores: Arc<Stores>,
}

impl Memory for Noted {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.memory.read(offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.memory.write(offset, from);
        self.stores.store(self.va_start + offset, from);
    }

    // The values of updates do not matter: memory has them.
    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        self.stores.store(self.va_start + offset, &[0; 4]);
        self.memory.update_u32(offset, f)
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        self.stores.store(self.va_start + offset, &[0; 8]);
        self.memory.update_u64(offset, f)
    }

    fn view(&self) -> Option<DeviceView> {
        self.memory.view()
    }

    fn gather(&self, lanes: u64, offsets: &[u64; 64], words: usize, rows: &mut Rows) {
        self.memory.gather(lanes, offsets, words, rows);
    }
}
