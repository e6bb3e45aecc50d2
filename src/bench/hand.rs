//! The hand-written kernels of a device, assembled and loaded at first use, and the clock that one of them counts.

use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::{Arg, Code, Kernel, KernelImage, QueueKind, time_command};
use doorbell::engine::OpenDevice;
use doorbell_kernels as kernels;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Kernels by name, those that were loaded or refused.
#[derive(Debug)]
pub(crate) struct Library {
    kind: Kind,
    /// The target's name: `sm_90a`, `gfx942`.
    target: &'static str,
    loaded: Mutex<HashMap<String, Result<Kernel, String>>>,
}

/// Suffixes of the x86-64 kernels, the best first.
const CPU_SUFFIXES: &[&str] = &["_avx512", "_avx2", ""];

impl Library {
    pub(crate) fn of(kind: Kind, target: &'static str) -> Self {
        Self { kind, target, loaded: Mutex::default() }
    }

    /// The kernel of that name.
    pub(crate) fn load(&self, open: &OpenDevice, name: &str) -> Result<Kernel, BenchError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = loaded.get(name) {
            return known.clone().map_err(BenchError::LeftOut);
        }
        let made = self.make(open, name);
        let kept = made.as_ref().map(Kernel::clone).map_err(ToString::to_string);
        loaded.insert(name.into(), kept);
        made
    }

    fn make(&self, open: &OpenDevice, name: &str) -> Result<Kernel, BenchError> {
        let none = || BenchError::LeftOut(format!("there is no hand-written kernel {name} for {}", self.target));
        match self.kind {
            Kind::Cpu => {
                let best =
                    CPU_SUFFIXES.iter().find_map(|s| kernels::find(&format!("{name}{s}")).filter(|k| k.needs.met()));
                let kernel = best.ok_or_else(none)?;
                load(open, kernel.name, kernel.object)
            }
            Kind::Nv => {
                let text = kernels::ptx(name, self.target).ok_or_else(none)?;
                load(open, name, &open.backend.assemble(name, &text)?)
            }
            Kind::Amd => {
                let text = kernels::amdgpu(self.target).ok_or_else(none)?;
                if !text.contains(&format!("\n{name}:")) {
                    return Err(none());
                }
                load(open, name, &open.backend.assemble(name, text)?)
            }
            _ => Err(none()),
        }
    }

    /// MHz, counted inside a kernel.
    pub(crate) fn clock_mhz(&self, machine: &Machine) -> Result<Option<f64>, BenchError> {
        match self.kind {
            Kind::Nv => nv_clock(machine),
            Kind::Cpu => cpu_clock(machine),
            _ => Ok(None),
        }
    }
}

fn load(open: &OpenDevice, entry: &str, bytes: &[u8]) -> Result<Kernel, BenchError> {
    let image = KernelImage { name: entry, code: Code::Elf { bytes, entry } };
    let mut kernels = open.device.load(&[image])?;
    kernels.pop().ok_or_else(|| BenchError::Empty(format!("{} loaded nothing", open.name)))
}

/// Steps of the loop of dependent additions on a CPU: each takes one clock.
const CPU_STEPS: i64 = 400_000;

/// A chain of additions that depend on each other takes a clock each.
fn cpu_clock(machine: &Machine) -> Result<Option<f64>, BenchError> {
    let Ok(kernel) = machine.hand("clock") else { return Ok(None) };
    let out = machine.device().alloc(64)?;
    let steps = if machine.is_small { CPU_STEPS / 10 } else { CPU_STEPS };
    let command = machine.launch(&kernel, 1, 1, vec![Arg::Buffer(out.at(0)), Arg::Var(steps)]);
    let times = time_command(machine.device(), &command, 3, machine.patience())?;
    let best = times.into_iter().min().filter(|ns| *ns > 0);
    Ok(best.map(|ns| steps as f64 / ns as f64 * 1e3))
}

/// Rounds of the loop on an NVIDIA GPU: about a tenth of a millisecond each 20,000.
const NV_ROUNDS: i64 = 100_000;

/// The multiprocessor's clock register against the GPU's timer.
fn nv_clock(machine: &Machine) -> Result<Option<f64>, BenchError> {
    let kernel = machine.hand("clock")?;
    let out = machine.device().alloc(64)?;
    let rounds = if machine.is_software { 100 } else { NV_ROUNDS };
    let command = machine.launch(&kernel, 1, 1, vec![Arg::Buffer(out.at(0)), Arg::Var(rounds)]);
    machine.run(QueueKind::Compute, &[command])?;
    let bytes = machine.bytes(&out, 16)?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    let (ns, clocks) = (word(0), word(8));
    // The timer's step is a microsecond on some cards.
    Ok((ns >= 100_000).then(|| clocks as f64 / ns as f64 * 1e3))
}
