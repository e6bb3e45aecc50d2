//! Counters of what a `Session` has run (tinygrad's GlobalCounters).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Running totals; every field only grows until [`Counters::reset`].
#[derive(Debug, Default)]
pub struct Counters {
    kernels: AtomicU64,
    copies: AtomicU64,
    host_copies: AtomicU64,
    flops: AtomicU64,
    mem_bytes: AtomicU64,
    time_ns: AtomicU64,
    compiled: AtomicU64,
}

/// The totals at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Kernels launched.
    pub kernels: u64,
    /// Copies between devices and to them, with those of the host.
    pub copies: u64,
    /// Copies that the host made by itself: of its own data, from files, and between devices that cannot reach each
    /// other's memory. All others went through the devices' queues.
    pub host_copies: u64,
    /// Arithmetic operations of the launched kernels, by their estimates.
    pub flops: u64,
    /// Bytes loaded and stored by the launched kernels, by their estimates.
    pub mem_bytes: u64,
    /// Device time of the kernels that ran one by one to be timed (DEBUG >= 2).
    pub time_ns: u64,
    /// Kernels compiled (cache misses).
    pub compiled: u64,
}

impl Counters {
    pub(crate) fn launched(&self, kernels: u64, copies: u64, flops: u64, mem_bytes: u64) {
        self.kernels.fetch_add(kernels, Relaxed);
        self.copies.fetch_add(copies, Relaxed);
        self.flops.fetch_add(flops, Relaxed);
        self.mem_bytes.fetch_add(mem_bytes, Relaxed);
    }
    pub(crate) fn copied_by_host(&self) {
        self.copies.fetch_add(1, Relaxed);
        self.host_copies.fetch_add(1, Relaxed);
    }
    pub(crate) fn timed(&self, ns: u64) {
        self.time_ns.fetch_add(ns, Relaxed);
    }
    pub(crate) fn compiled(&self) {
        self.compiled.fetch_add(1, Relaxed);
    }
    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        Totals {
            kernels: self.kernels.load(Relaxed),
            copies: self.copies.load(Relaxed),
            host_copies: self.host_copies.load(Relaxed),
            flops: self.flops.load(Relaxed),
            mem_bytes: self.mem_bytes.load(Relaxed),
            time_ns: self.time_ns.load(Relaxed),
            compiled: self.compiled.load(Relaxed),
        }
    }
    /// Resets all counters to zero.
    pub fn reset(&self) {
        let copies = [&self.copies, &self.host_copies];
        let others = [&self.kernels, &self.flops, &self.mem_bytes, &self.time_ns, &self.compiled];
        copies.into_iter().chain(others).for_each(|c| c.store(0, Relaxed));
    }
}
