//! The card's SMs: grids run as machine code over the page table.
//!
//! Place in the arrows: connects this driver to `emu::sass`, which runs code of sm_80, sm_86, sm_89, sm_90 and sm_120;
//! grids of other chips are refused.

use super::chip::Chip;
use super::compared::{self, Ended};
use super::compute::{Compute, ComputeFault, Launch, Machine, WarpError};
use crate::sass::{self, Access, Bus, Decoder, Exception, Fault, FaultKind, MemoryFault, Options};
use crate::translate::Translation;
use crate::vm::{self, Vm, VmFault};
use doorbell_ioctl::port::DeviceView;

/// SMs that execute what they are given.
#[derive(Debug)]
pub struct Sms {
    options: Options,
    /// Of all launches.
    decoder: Decoder,
    /// Of launches that run twice: with checks.
    checked: Option<Decoder>,
}

impl Sms {
    /// SMs that have executed nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::translated(options, Translation::default())
    }

    /// The same, with what plain mode executes often compiled.
    #[must_use]
    pub fn translated(options: Options, translation: Translation) -> Self {
        Self { options, decoder: Decoder::translated(translation), checked: None }
    }

    /// Whether they run each grid twice, with checks and without, and compare what it leaves. What is entered
    /// twice is compiled then, so that short kernels are translated too.
    #[must_use]
    pub fn twice(self, twice: bool) -> Self {
        match twice {
            true => Self { decoder: self.decoder.after(2), checked: Some(Decoder::default()), ..self },
            false => self,
        }
    }
}

/// The page table as SMs see it. Aligned words of up to 8 bytes are read and written in one.
pub(super) struct VmBus<'a>(pub &'a Vm);

const NO_MAPPING: &str = "no mapping";
const NO_RIGHT: &str = "the mapping does not allow it";

fn refused(fault: VmFault) -> MemoryFault {
    let access = match fault.access {
        vm::Access::Read => Access::Read,
        vm::Access::Write => Access::Write,
        vm::Access::Atomic => Access::Atomic,
        vm::Access::Fetch => Access::Fetch,
    };
    MemoryFault { va: fault.va, access, what: if fault.mapped { NO_RIGHT } else { NO_MAPPING } }
}

impl VmBus<'_> {
    /// Whether the first and the last byte of a range permit an access.
    pub(crate) fn allows(&self, va: u64, len: usize, access: Access) -> Result<(), MemoryFault> {
        let last = va.saturating_add((len as u64).saturating_sub(1));
        let at = |va| self.0.translate(va, of(access)).map(|_| ()).map_err(refused);
        at(va).and_then(|()| at(last))
    }
}

/// The page table's name of an access.
fn of(access: Access) -> vm::Access {
    match access {
        Access::Read => vm::Access::Read,
        Access::Write => vm::Access::Write,
        Access::Atomic => vm::Access::Atomic,
        Access::Fetch => vm::Access::Fetch,
    }
}

impl Bus for VmBus<'_> {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        match bytes.len() {
            4 if va.is_multiple_of(4) => self.0.read_u32(va).map(|word| bytes.copy_from_slice(&word.to_le_bytes())),
            8 if va.is_multiple_of(8) => self.0.read_u64(va).map(|word| bytes.copy_from_slice(&word.to_le_bytes())),
            _ => self.0.read_bytes(va, bytes),
        }
        .map_err(refused)
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        match *bytes {
            [a, b, c, d] if va.is_multiple_of(4) => self.0.write_u32(va, u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] if va.is_multiple_of(8) => {
                self.0.write_u64(va, u64::from_le_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => self.0.write_bytes(va, bytes),
        }
        .map_err(refused)
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        match len_bytes {
            4 => self.0.update_u32(va, |old| change(old.into()) as u32).map(u64::from),
            _ => self.0.update_u64(va, change),
        }
        .map_err(refused)
    }

    fn view(&self, va: u64, access: Access) -> Option<(u64, DeviceView)> {
        self.0.translate(va, of(access)).ok().map(|range| (range.va_start, range.view))
    }

    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
}

/// The chip whose code it runs.
const fn chip_of(chip: Chip) -> Option<sass::SmArch> {
    match chip {
        Chip::Sm80 => Some(sass::SmArch::Sm80),
        Chip::Sm86 => Some(sass::SmArch::Sm86),
        Chip::Sm89 => Some(sass::SmArch::Sm89),
        Chip::Sm90 => Some(sass::SmArch::Sm90),
        Chip::Sm120 => Some(sass::SmArch::Sm120),
        Chip::Sm75 | Chip::Sm100 => None,
    }
}

impl Chip {
    /// Whether machine code runs on it; driver and queues work on every chip.
    #[must_use]
    pub const fn runs_code(self) -> bool {
        chip_of(self).is_some()
    }
}

impl Compute for Sms {
    fn run(&self, launch: &Launch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        let Some(chip) = chip_of(launch.chip) else {
            let name = launch.chip.facts().name;
            return Err(ComputeFault::Refused(format!("machine code of {name} does not run in software")));
        };
        let grid = sass::Launch {
            chip,
            entry: launch.entry,
            grid: launch.grid,
            block: launch.block,
            cluster: launch.cluster,
            registers: launch.registers,
            barriers: launch.barriers,
            shared_bytes: launch.shared_bytes,
            local_bytes: launch.local_bytes,
            banks: launch.banks,
        };
        let own = |window: u64, usual: u64| if window == 0 { usual } else { window };
        let options = Options {
            shared_window: own(launch.shared_window, self.options.shared_window),
            local_window: own(launch.local_window, self.options.local_window),
            ..self.options
        };
        if let Some(checked) = &self.checked {
            let decoders = [checked, &self.decoder];
            let outcome = compared::run(&grid, machine.vm, machine.stop, &options, decoders);
            return outcome.map_err(|ended| match ended {
                Ended::Fault(fault) => explain(launch, fault),
                Ended::Differs(text) => ComputeFault::Refused(text),
            });
        }
        let outcome = sass::run_decoded(&grid, &VmBus(machine.vm), machine.stop, &options, &self.decoder);
        outcome.map(|_| ()).map_err(|fault| explain(launch, fault))
    }
}

/// The SM that a CTA ran on: assigned round robin.
fn sm_of(launch: &Launch, block: [u32; 3]) -> u32 {
    let [x, y, z] = block.map(u64::from);
    let [width, height, _] = launch.grid.map(u64::from);
    let cta = x + width * (y + height * z);
    // PANIC: a remainder by a number of 32 bits.
    u32::try_from(cta % u64::from(launch.chip.facts().sms)).expect("32 bits")
}

fn explain(launch: &Launch, fault: Fault) -> ComputeFault {
    let Exception { warp_error, channel_error } = fault.exception();
    let text = fault.to_string();
    match fault.kind {
        FaultKind::Stopped => ComputeFault::Stopped,
        FaultKind::Memory(MemoryFault { va, access, what }) => {
            let access = of(access);
            let [x, y, z] = fault.block;
            let place = format!("{:#x} `{}` in CTA {x},{y},{z} warp {}", fault.pc, fault.text, fault.warp);
            ComputeFault::Memory { fault: VmFault { va, access, mapped: what == NO_RIGHT }, place }
        }
        FaultKind::NotModelled { .. } => ComputeFault::Refused(text),
        _ if channel_error == 0 => ComputeFault::Refused(text),
        _ => {
            let (sm, va) = (sm_of(launch, fault.block), 0);
            ComputeFault::Exception { error: WarpError { sm, code: warp_error, pc: fault.pc, va }, text }
        }
    }
}
