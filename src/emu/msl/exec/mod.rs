//! Bytecode → effects: a simdgroup of 32 lanes at a time, threadgroup after threadgroup, several on several host
//! threads.

mod alu;
mod atomic;
mod cross;
mod group;
pub(crate) mod half;
mod math;
mod memory;
mod simd;
mod thread;
mod threadgroup;

pub(crate) use alu::Lanes;
pub(crate) use group::{Grid, launch};
pub(crate) use threadgroup::GroupMemory;

use crate::code::Code;
use crate::memory::Memory;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// A buffer as the kernel sees it.
pub(crate) struct Bound<'a> {
    pub memory: Source<'a>,
    /// Where it starts in the memory.
    pub base: u64,
    pub len: u64,
    pub writable: bool,
    pub name: String,
}

pub(crate) enum Source<'a> {
    Memory(&'a dyn Memory),
    Bytes(&'a [u8]),
}

/// What all threads of a launch share.
pub(crate) struct Machine<'a> {
    pub code: &'a Code,
    pub constants: &'a [u8],
    pub buffers: Vec<Option<Bound<'a>>>,
    /// Start and length of each threadgroup argument.
    pub slots: Vec<(u64, u64)>,
    pub threadgroup_bytes: u64,
    pub max_steps: u64,
    pub executed: Option<&'a AtomicU64>,
    pub stop: Option<&'a AtomicBool>,
}

/// Runs code without parameters on one lane; its registers at the end, unless it faults or takes too long.
pub(crate) fn evaluate(code: &Code, constants: &[u8], max_steps: u64) -> Option<Vec<Lanes>> {
    let machine = Machine {
        code,
        constants,
        buffers: Vec::new(),
        slots: Vec::new(),
        threadgroup_bytes: 0,
        max_steps,
        executed: None,
        stop: None,
    };
    let mut simd = simd::Simd::new(code);
    simd.start(1, 0);
    match simd.run(&machine, &mut GroupMemory::new(0)) {
        Ok(simd::Stop::End) => Some(simd.regs),
        _ => None,
    }
}
