//! SMs that know what the kernels of `device.ptx` do without running their code: they replace the emulated ones where a
//! test is about the driver's side. A kernel is identified by the address of its first instruction, which the test has
//! from the device.

use doorbell::emu::nvrm::compute::{Compute, ComputeFault, Launch, Machine};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where parameters begin in bank 0 of sm_90.
const PARAMS: u64 = 0x210;

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// `buffer[id] += value` for each thread: arguments are an address and a value, 8 bytes each.
    Add,
    /// `buffer[0] += value` after `value` milliseconds.
    AddLate,
    /// Loads from the address that is its first argument after 100 ms.
    LoadLate,
    /// Never ends.
    Hang,
    /// Loads from the address that is its first argument.
    Load,
}

/// Runs grids, and remembers them.
#[derive(Debug, Default)]
pub struct Units {
    pub seen: Mutex<Vec<Launch>>,
    pub known: Mutex<HashMap<u64, Does>>,
}

impl Compute for Units {
    fn run(&self, launch: &Launch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        self.seen.lock().unwrap().push(launch.clone());
        let memory = |fault| ComputeFault::Memory { fault, place: "kernel".into() };
        let bank0 = launch.banks[0].map_or(0, |(va, _)| va);
        let argument = |n: u64| machine.vm.read_u64(bank0 + PARAMS + 8 * n).map_err(memory);
        let threads: u64 = launch.grid.iter().zip(&launch.block).map(|(g, b)| u64::from(*g) * u64::from(*b)).product();
        // The code is there.
        machine.vm.read_u64(launch.entry).map_err(memory)?;
        let does = self.known.lock().unwrap().get(&launch.entry).copied();
        match does {
            Some(Does::Add) => {
                let (buffer, value) = (argument(0)?, argument(1)?);
                for id in 0..threads {
                    machine.vm.update_u32(buffer + 4 * id, |old| old.wrapping_add(value as u32)).map_err(memory)?;
                }
                Ok(())
            }
            Some(Does::AddLate) => {
                let (buffer, value) = (argument(0)?, argument(1)?);
                std::thread::sleep(Duration::from_millis(value));
                machine.vm.update_u32(buffer, |old| old.wrapping_add(value as u32)).map(|_| ()).map_err(memory)
            }
            Some(Does::LoadLate) => {
                std::thread::sleep(Duration::from_millis(100));
                machine.vm.read_u32(argument(0)?).map(|_| ()).map_err(memory)
            }
            Some(Does::Load) => machine.vm.read_u32(argument(0)?).map(|_| ()).map_err(memory),
            Some(Does::Hang) => {
                while !machine.stop.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Err(ComputeFault::Stopped)
            }
            None => Err(ComputeFault::Refused(format!("no kernel at {:#x}", launch.entry))),
        }
    }
}
