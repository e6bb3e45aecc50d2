//! Streaming multiprocessors: they execute machine code (SASS) of sm_80, sm_86, sm_89, sm_90 and sm_120, warp by warp,
//! 32 lanes at a time.
//!
//! The driver side calls [`run`] with a [`Launch`] and a [`Bus`]; every fault of a warp is returned as a [`Fault`] with
//! the exception that the chip would raise. Strict mode ([`Options::strict`]) reports what hardware does not: results
//! used before their stall count or scoreboard allows it, unwritten registers and shared memory, shared memory passed
//! between warps with no barrier.
//!
//! ```text
//! word --isa::sass::decode--> Instruction --lower--> Decoded: a closure over its operands, decoded once a program
//! Grid -> clusters of CTAs -> warps -> paths (lanes that share a pc) -> one instruction for the lanes of a path
//! ```
//!
//! Place in the arrows: `emu` uses the instruction table and timing of `isa::sass`, which an assembler shares; the
//! semantics of instructions are written here alone. Sources: NVIDIA's PTX ISA text for what operations compute,
//! kernels compiled by ptxas 13.5 for how they are used, the published notes on sm_90 that `isa::sass` names for
//! timing; nothing was measured on hardware. Left out: caches (memory is coherent), textures and surfaces, traps
//! handlers, preemption.

mod atomic;
mod block;
mod bus;
mod convert;
mod core;
mod cross;
mod double;
mod fault;
mod float;
mod flow;
mod grid;
mod half;
mod im2col;
mod integer;
mod issue;
mod logic;
mod lower;
mod matrix;
mod mbarrier;
mod memory;
mod mufu;
mod operand;
mod pack;
mod path;
mod program;
mod shadow;
mod shared;
mod soft;
mod special;
mod steal;
mod strict;
mod tlb;
mod tma;
mod unwritten;
mod warp;
mod wgmma;
mod wide;

pub use bus::{Access, Bus, MemoryFault, PlainBus};
pub use doorbell_ptx::sass::SmArch;
pub use fault::{Exception, Fault, FaultKind};
pub use grid::{Stats, run, run_decoded};
pub use im2col::Im2col;
pub use program::Decoder;

/// A grid of one kernel, as its launch descriptor specifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub chip: SmArch,
    /// Address of the first instruction.
    pub entry: u64,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster; all 1 for a grid without clusters.
    pub cluster: [u32; 3],
    /// Registers a thread.
    pub registers: u32,
    /// Named barriers a CTA.
    pub barriers: u32,
    /// Shared memory a CTA, including the KiB that the system reserves.
    pub shared_bytes: u32,
    /// Local memory a thread: the top of its 16 MiB window.
    pub local_bytes: u32,
    /// Constant banks: address and length.
    pub banks: [Option<(u64, u32)>; 8],
}

/// How a launch is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Report faults that hardware does not.
    pub strict: bool,
    /// In strict mode: reading unwritten shared memory, or another warp's without a barrier in between, is a fault.
    pub shared_order: bool,
    /// Start of shared memory among generic addresses; a multiple of 4 GiB.
    pub shared_window: u64,
    /// Start of a thread's local memory among generic addresses; a multiple of 16 MiB.
    pub local_window: u64,
    /// Threads of the host that share the CTAs; 0 counts as 1.
    pub threads: usize,
    /// Instructions of one cluster after which it counts as endless; 0 is no limit.
    pub max_instructions: u64,
    /// Units in the last place by which MUFU's normal results in f32, and the high words of its f64 ones, are off the
    /// rounded function; a chip's are within 2.
    pub guess_error: i32,
    /// The im2col fields of all maps that the launch copies by im2col: where a map stores them is not published. A
    /// launch with such a copy and without this option stops.
    pub im2col: Option<Im2col>,
    /// A defect of the hardware: a bit of a register that flips in every launch.
    pub flip: Option<Flip>,
}

/// A bit of a register of the first warp of a grid's first CTA, which flips when the warp has executed about so many
/// instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    pub after: u64,
    pub register: u8,
    pub lane: u8,
    pub bit: u8,
}

impl Default for Options {
    /// Strict, on one thread, windows where `device::nv` puts them.
    fn default() -> Self {
        Self {
            strict: true,
            shared_order: true,
            shared_window: 0x7294_0000_0000,
            local_window: 0x7293_0000_0000,
            threads: 1,
            max_instructions: 0,
            guess_error: 0,
            im2col: None,
            flip: None,
        }
    }
}

impl Options {
    /// As hardware: no checks but those of hardware.
    #[must_use]
    pub fn fast() -> Self {
        Self { strict: false, shared_order: false, ..Self::default() }
    }
}
