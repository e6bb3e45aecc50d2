//! Configuration of a software KFD: which chip, which kernel, how strict.

use super::chip::Chip;
use super::defect::Defect;
use crate::amdgpu::Strict;
use crate::translate::Translation;
use doorbell_ioctl::abi::kfd::DOORBELL_SLICE_BYTES;
use doorbell_ioctl::port::page_bytes;

/// The machine and its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub chip: Chip,
    /// Cards of that chip.
    pub gpus: usize,
    /// Minor of the interface: 11 (Linux 6.1) to 17 (6.12).
    pub kfd_minor: u32,
    /// Pages of the host, a power of two: the system's at least. Larger ones take and give whole pages too.
    pub page_bytes: u64,
    /// VRAM of one card.
    pub vram_bytes: u64,
    /// VRAM with PUBLIC is refused, as without a resizable BAR.
    pub small_bar: bool,
    /// CREATE_QUEUE checks every buffer's size, as 6.12 does; off: as older kernels.
    pub check_queue_buffers: bool,
    /// Cards can map each other's VRAM.
    pub peer_links: bool,
    /// Topology nodes that this process may not read.
    pub hidden_nodes: usize,
    /// Checks of doorbells and pointers that no hardware makes.
    pub strict: bool,
    /// Not zero: queues pause between packets from this seed, to come in other orders.
    pub shuffle: u64,
    /// Checks of waves that no hardware makes, and how they are interleaved.
    pub waves: Strict,
    /// Who compiles what waves execute often, if they run without checks.
    pub translation: Translation,
    /// Each dispatch runs twice: with all checks on a copy of memory, then without checks on memory; different bits are
    /// a fault.
    pub compare: bool,
    /// The bytes of each card's `gpu_metrics`; `None`: there is no such file.
    pub metrics: Option<Vec<u8>>,
    /// Speed and lanes of a card's link to the host now, as sysfs writes them.
    pub link: (&'static str, u32),
    /// What the checks of waves and packets find is reported, and the work goes on as on hardware.
    pub lenient: bool,
    /// A queue that hangs is reported to the process at once, with the reason in the kernel's log. Linux reports it
    /// when the queue is destroyed: nothing there sees a queue that stopped before somebody waits for it.
    pub tells_hangs: bool,
    /// What is wrong with driver and cards.
    pub defect: Option<Defect>,
}

impl Config {
    /// One card on the newest kernel that is modelled, all checks on.
    #[must_use]
    pub fn new(chip: Chip) -> Self {
        Self {
            chip,
            gpus: 1,
            kfd_minor: 17,
            page_bytes: page_bytes(),
            vram_bytes: 4 << 30,
            small_bar: false,
            check_queue_buffers: true,
            peer_links: true,
            hidden_nodes: 0,
            strict: true,
            shuffle: 0,
            waves: Strict::on(),
            translation: Translation::default(),
            compare: false,
            metrics: None,
            link: ("32.0 GT/s PCIe", 16),
            lenient: false,
            tells_hangs: false,
            defect: None,
        }
    }

    /// Bytes of a process's doorbells of one card.
    pub(super) fn doorbell_slice(&self) -> u64 {
        DOORBELL_SLICE_BYTES.next_multiple_of(self.page_bytes)
    }

    /// The CPU is node 0, hidden nodes follow it, then the cards.
    pub(super) fn node_of_gpu(&self, gpu: usize) -> usize {
        1 + self.hidden_nodes + gpu
    }
}
