//! Configuration of a software NVIDIA machine: which chip, which driver release, and which defects.

use super::chip::Chip;
use super::defect::Defect;
use crate::sass::Options;
use crate::translate::Translation;
use doorbell_ioctl::abi::nvrm::Release;
use doorbell_ioctl::port::page_bytes;

/// What a refusal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Allocation of a class.
    Class(u32),
    /// A control command.
    Control(u32),
    /// An escape of RM, by its number.
    Escape(u8),
    /// A command of UVM.
    Uvm(u32),
}

/// A call that ends with a status instead of being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub call: Call,
    /// Which one of these calls: 1 is the first. Later ones go through again.
    pub nth: u32,
    /// RM's status.
    pub status: u32,
}

/// The machine and its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub chip: Chip,
    /// Cards of that chip.
    pub gpus: usize,
    pub release: Release,
    /// Pages of the host, a power of two: the system's at least. Larger ones take and give whole pages too.
    pub page_bytes: u64,
    /// VRAM of one card.
    pub vram_bytes: u64,
    /// The window through which the CPU sees VRAM.
    pub bar1_bytes: u64,
    /// Cards can map each other's VRAM.
    pub peer_links: bool,
    /// Checks of pointers and order that no hardware makes; work is done as late as the program allows.
    pub strict: bool,
    /// How the SMs run: checks that no hardware makes, threads of the host that share the CTAs.
    pub sms: Options,
    /// Who compiles what the SMs execute often, if they run without checks.
    pub translation: Translation,
    /// Each grid runs twice: with all checks on a copy of memory, then without checks on memory; different bits are a
    /// fault.
    pub compare: bool,
    /// Not zero: channels pause between GPFIFO entries from this seed, to come in other orders.
    pub shuffle: u64,
    /// REGISTER_GPU_VASPACE requires an earlier MM_INITIALIZE (seen on one system).
    pub needs_uvm_mm: bool,
    /// GPGet in USERD is not kept up to date, as on real cards now and then.
    pub stale_gp_get: bool,

    // What may be wrong with a machine.
    /// The `nvidia-uvm` module is loaded with its tests of itself.
    pub uvm_builtin_tests: bool,
    /// The `nvidia-uvm` module is not loaded.
    pub no_uvm: bool,
    /// The modules are loaded, but `/dev/nvidia*` but the control file, and `/dev/nvidia-uvm`, were not made.
    pub no_nodes: bool,
    /// Stores to the doorbell through BAR0 do not arrive (a hypervisor in between); through BAR1 they do.
    pub bar0_doorbell_lost: bool,
    /// Interrupts that channels request do not reach the driver.
    pub interrupts_lost: bool,
    /// Confidential computing is on: the processor may not map VRAM.
    pub confidential: bool,
    /// MIG is on: channels need a partition.
    pub mig: bool,
    /// Compute is prohibited on the cards.
    pub compute_prohibited: bool,
    /// The cards' clocks count in steps of 32 ns where they should count ns.
    pub coarse_clock: bool,
    /// Calls that fail.
    pub refusals: Vec<Refusal>,
    /// What else is wrong with driver and cards.
    pub defect: Option<Defect>,
}

impl Config {
    /// One card with release 580, all checks on, no defects.
    #[must_use]
    pub fn new(chip: Chip) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            chip,
            gpus: 1,
            release: Release { major: 580, minor: 159, patch: 4 },
            page_bytes: page_bytes(),
            vram_bytes: 16 << 30,
            bar1_bytes: 16 << 30,
            peer_links: true,
            strict: true,
            sms: Options { threads, ..Options::default() },
            translation: Translation::default(),
            compare: false,
            shuffle: 0,
            needs_uvm_mm: true,
            stale_gp_get: false,
            uvm_builtin_tests: false,
            no_uvm: false,
            no_nodes: false,
            bar0_doorbell_lost: false,
            interrupts_lost: false,
            confidential: false,
            mig: false,
            compute_prohibited: false,
            coarse_clock: false,
            refusals: Vec::new(),
            defect: None,
        }
    }
}
