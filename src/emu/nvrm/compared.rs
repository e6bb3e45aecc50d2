//! Grids that run twice: with all checks on a copy of memory, then without checks on memory itself. Different bits end
//! the channel as a finding does.

use super::units::VmBus;
use crate::sass::{self, Access, Bus, Decoder, Fault, Launch, MemoryFault, Options};
use crate::stores::Stores;
use crate::vm::Vm;
use doorbell_ioctl::port::DeviceView;
use std::sync::atomic::AtomicBool;

/// Why a grid ended.
pub(super) enum Ended {
    Fault(Fault),
    Differs(String),
}

/// Runs a grid twice, each time on one thread, so that the CTAs come in the same order.
pub(super) fn run(
    grid: &Launch,
    vm: &Vm,
    stop: &AtomicBool,
    options: &Options,
    decoder: &Decoder,
) -> Result<(), Ended> {
    let (checked, fast) = (Stores::default(), Stores::default());
    let strict = Options { strict: true, shared_order: true, threads: 1, ..*options };
    let plain = Options { strict: false, shared_order: false, ..strict };
    sass::run_decoded(grid, &Copied(VmBus(vm), &checked), stop, &strict, decoder).map_err(Ended::Fault)?;
    sass::run_decoded(grid, &Noted(VmBus(vm), &fast), stop, &plain, decoder).map_err(Ended::Fault)?;
    // What cannot be read any more was unmapped meanwhile, which is a mistake of its own.
    let read = |va: u64, bytes: &mut [u8]| {
        let _ = vm.read_bytes(va, bytes);
    };
    checked.difference(&fast, read).map_or(Ok(()), |difference| Err(Ended::Differs(difference.to_string())))
}

/// Memory, of which stores change a copy.
struct Copied<'a>(VmBus<'a>, &'a Stores);

impl Bus for Copied<'_> {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.read(va, bytes)?;
        self.1.over(va, bytes);
        Ok(())
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.allows(va, bytes.len(), Access::Write)?;
        self.1.store(va, bytes);
        Ok(())
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.0.allows(va, len_bytes as usize, Access::Atomic)?;
        let mut memory = [0; 8];
        let memory = &mut memory[..len_bytes.min(8) as usize];
        self.0.read(va, memory)?;
        Ok(self.1.update(va, memory, change))
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}

/// Memory, of which stores are noted.
struct Noted<'a>(VmBus<'a>, &'a Stores);

impl Bus for Noted<'_> {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.read(va, bytes)
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.write(va, bytes)?;
        self.1.store(va, bytes);
        Ok(())
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        let old = self.0.update(va, len_bytes, change)?;
        // The value does not matter: memory has it.
        self.1.store(va, &[0; 8][..len_bytes.min(8) as usize]);
        Ok(old)
    }

    fn view(&self, va: u64, access: Access) -> Option<(u64, DeviceView)> {
        self.0.view(va, access)
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}
