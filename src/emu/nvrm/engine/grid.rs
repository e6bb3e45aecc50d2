//! The compute engine: its methods, and grids as their QMDs describe them.
//!
//! Source: docs/nv.md 3.4, 4, 5.4-5.6. A grid that a QMD cannot have is an exception of the graphics engine before its
//! first CTA. Left out: queues, latches, reductions in releases, dependence counters, texture state, what
//! `hcq::packet::nv::qmd::Launch` leaves out.

use super::super::chip::ChipFacts;
use super::super::compute::{Launch, Machine};
use super::super::defect::Defect;
use super::inline::Inline;
use super::report::Semaphore;
use super::{Cause, Site};
use crate::vm::Access;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::MethodError;
use doorbell_hcq::packet::nv::compute::{Action, Compute as Methods, Pcas};
use doorbell_hcq::packet::nv::qmd::{self, Qmd};
use std::sync::atomic::Ordering;

const ENGINE: &str = "compute engine";
const INVALIDATE_SHADER_CACHES: u16 = 0x21c;
const SET_QMD_VERSION: u16 = 0x288;
const REPORT_EXECUTE: u16 = 0x168;
const REPORT_STRUCTURE_SHIFT: u32 = 3;
const REPORT_ONE_WORD: u32 = 1;
const REPORT_64: u32 = 1 << 12;
const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
/// Of SET_REPORT_SEMAPHORE_D: a release, flush disable, awaken, one word.
const LEGACY_KNOWN: u32 = 1 << 2 | 1 << 20 | 1 << 28;
const LEGACY_ONE_WORD: u32 = 1 << 28;
/// A window of generic addresses is as wide as that, and aligned to it.
const WINDOW_BYTES: u64 = 1 << 32;
const LOCAL_WINDOW_BYTES: u64 = 1 << 24;
const MAX_THREADS: u64 = 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// An H100 starts grids of 3 registers a thread, and refuses 2.
const MIN_REGISTERS: u32 = 3;
const MAX_REGISTERS: u32 = 255;
const MAX_BARRIERS: u32 = 16;
const SM_REGISTERS: u64 = 1 << 16;
const WARP_REGISTER_UNIT: u64 = 256;
const MAX_BANK_BYTES: u32 = 1 << 16;
const MAX_CLUSTER: u64 = 16;
const PROGRAM_ALIGN: u64 = 128;

/// The compute engine of one channel.
pub(crate) struct ComputeEngine {
    facts: &'static ChipFacts,
    methods: Methods,
    inline: Inline,
    legacy_report: [u32; 3],
    shared_window: u64,
    local_window: u64,
    local_memory: u64,
    local_tpc_bytes: u64,
    /// Grids that no wait has covered yet.
    pending: Vec<GpuVa>,
}

impl ComputeEngine {
    pub(crate) fn new(facts: &'static ChipFacts) -> Self {
        Self {
            facts,
            methods: Methods::default(),
            inline: Inline::default(),
            legacy_report: [0; 3],
            shared_window: 0,
            local_window: 0,
            local_memory: 0,
            local_tpc_bytes: 0,
            pending: Vec::new(),
        }
    }

    pub(crate) fn write(&mut self, site: Site<'_>, method: u16, value: u32) -> Result<(), Cause> {
        match method {
            // Waits for the grids before it drops their lines.
            INVALIDATE_SHADER_CACHES => return self.drain(site),
            SET_QMD_VERSION => return Ok(()),
            SET_REPORT_SEMAPHORE_A..SET_REPORT_SEMAPHORE_D => {
                self.legacy_report[usize::from(method - SET_REPORT_SEMAPHORE_A) / 4] = value;
                return Ok(());
            }
            SET_REPORT_SEMAPHORE_D => return self.legacy_release(site, value),
            _ if self.inline.write(site, method, value)? => return Ok(()),
            _ => {}
        }
        match self.methods.write(method, value).map_err(Cause::Method)? {
            Some(action) => self.act(site, action, method, value),
            None => Ok(()),
        }
    }

    fn act(&mut self, site: Site<'_>, action: Action, method: u16, value: u32) -> Result<(), Cause> {
        match action {
            Action::WaitIdle => self.drain(site),
            Action::SharedWindow(GpuVa(base)) => {
                check_window(site, "shared", base, WINDOW_BYTES);
                self.shared_window = base;
                Ok(())
            }
            Action::LocalWindow(GpuVa(base)) => {
                check_window(site, "local", base, LOCAL_WINDOW_BYTES);
                self.local_window = base;
                Ok(())
            }
            Action::LocalMemory(GpuVa(base)) => {
                // Grids that run use the old one.
                self.drain(site)?;
                self.local_memory = base;
                Ok(())
            }
            Action::LocalMemorySize { tpc_bytes, .. } => {
                self.drain(site)?;
                self.local_tpc_bytes = tpc_bytes;
                Ok(())
            }
            Action::InvalidateCaches { .. } => Ok(()),
            Action::Launch { pcas: Pcas::Signaling2, .. } if !self.facts.has_pcas2 => Err(missing(method, value)),
            Action::Launch { qmd, .. } if site.gpu.strict => {
                self.pending.push(qmd);
                Ok(())
            }
            Action::Launch { qmd, .. } => self.chain(site, qmd),
            Action::Release { .. } if method == REPORT_EXECUTE && !self.facts.wide_semaphores => {
                Err(missing(method, value))
            }
            Action::Release { address, value: payload, timestamp } => {
                self.drain(site)?;
                let one_word = value >> REPORT_STRUCTURE_SHIFT & 3 == REPORT_ONE_WORD;
                let wide = value & REPORT_64 != 0 && !one_word;
                Ok(Semaphore { va: address.0, payload, wide, timestamp }.write(site)?)
            }
        }
    }

    /// SET_REPORT_SEMAPHORE: all chips have it, with 32 bits.
    fn legacy_release(&mut self, site: Site<'_>, value: u32) -> Result<(), Cause> {
        if value & !LEGACY_KNOWN != 0 {
            let (name, why) = ("SET_REPORT_SEMAPHORE_D", "only plain releases are supported");
            return Err(Cause::Method(MethodError::Value { engine: ENGINE, name, value, why }));
        }
        self.drain(site)?;
        let [upper, lower, payload] = self.legacy_report;
        let va = u64::from(upper & 0x1ff_ffff) << 32 | u64::from(lower);
        let timestamp = value & LEGACY_ONE_WORD == 0;
        Ok(Semaphore { va, payload: payload.into(), wide: false, timestamp }.write(site)?)
    }

    pub(crate) fn drain(&mut self, site: Site<'_>) -> Result<(), Cause> {
        for qmd in std::mem::take(&mut self.pending) {
            self.chain(site, qmd)?;
        }
        Ok(())
    }

    /// Runs a grid and those that depend on it.
    fn chain(&self, site: Site<'_>, first: GpuVa) -> Result<(), Cause> {
        let mut next = Some(first);
        while let Some(qmd) = next {
            if site.channel.stop.load(Ordering::Relaxed) {
                return Err(Cause::Taken);
            }
            next = self.grid(site, qmd.0)?;
        }
        Ok(())
    }

    /// Runs the grid of the QMD at `va`; returns the one that it schedules when it is done.
    fn grid(&self, site: Site<'_>, va: u64) -> Result<Option<GpuVa>, Cause> {
        let version = self.facts.qmd;
        let words = site.vm().read_dwords(va, version.dwords())?;
        let qmd_error = |error| Cause::Qmd { va, error };
        let qmd = Qmd::from_words(version, &words).map_err(qmd_error)?;
        let asked = qmd::Launch::parse(&qmd).map_err(qmd_error)?;
        self.check(site, va, &asked)?;
        let launch = self.launch(site, va, &asked);
        let machine = Machine { vm: site.vm(), clock: &site.gpu.clock, stop: &site.channel.stop };
        let skipped = site.gpu.has(Defect::GridSkipped);
        let none = asked.grid.contains(&0);
        let run = || if skipped || none { Ok(()) } else { site.gpu.compute.run(&launch, &machine) };
        site.busy(run).map_err(|fault| match fault {
            super::ComputeFault::Stopped => Cause::Taken,
            fault => Cause::Compute(fault),
        })?;
        let wide_payloads = !matches!(version, qmd::Version::V2_3 | qmd::Version::V2_4);
        for release in &asked.releases {
            let wide = wide_payloads;
            let (va, payload, timestamp) = (release.address.0, release.payload, release.timestamp);
            Semaphore { va, payload, wide, timestamp }.write(site)?;
        }
        match asked.dependent {
            None => Ok(None),
            Some(next) => match next.action {
                qmd::Action::Schedule | qmd::Action::InvalidateCopySchedule => Ok(Some(next.qmd)),
                action => Err(Cause::NotModelled(format!("action {action:?} of a dependent QMD"))),
            },
        }
    }

    fn launch(&self, site: Site<'_>, qmd_va: u64, asked: &qmd::Launch) -> Launch {
        Launch {
            chip: site.gpu.chip,
            qmd_va,
            entry: asked.program.0,
            grid: asked.grid,
            block: asked.block,
            cluster: asked.cluster.unwrap_or([1; 3]).map(|size| size.max(1)),
            registers: asked.registers,
            barriers: asked.barriers,
            shared_bytes: asked.shared_bytes,
            local_bytes: asked.local_bytes,
            banks: asked.constants.map(|bank| bank.map(|bank| (bank.address.0, bank.len_bytes))),
            shared_window: self.shared_window,
            local_window: self.local_window,
        }
    }

    /// Refuses what the scheduler does not start.
    fn check(&self, site: Site<'_>, va: u64, asked: &qmd::Launch) -> Result<(), Cause> {
        let bad = |what: String| Err(Cause::Grid { va, what });
        let apart = |first: u64, len_bytes: u64, second: u64| first + len_bytes <= second;
        if !apart(self.shared_window, WINDOW_BYTES, self.local_window)
            && !apart(self.local_window, LOCAL_WINDOW_BYTES, self.shared_window)
        {
            let windows = (self.shared_window, self.local_window);
            return bad(format!(
                "the windows of shared and local memory overlap: {:#x} and {:#x}",
                windows.0, windows.1
            ));
        }
        let threads: u64 = asked.block.iter().map(|n| u64::from(*n)).product();
        if threads == 0 || threads > MAX_THREADS || asked.block.iter().zip(MAX_BLOCK).any(|(n, max)| *n > max) {
            return bad(format!("a CTA of {:?} threads", asked.block));
        }
        if !(MIN_REGISTERS..=MAX_REGISTERS).contains(&asked.registers) || asked.barriers > MAX_BARRIERS {
            return bad(format!("{} registers, {} barriers", asked.registers, asked.barriers));
        }
        let warp = (32 * u64::from(asked.registers)).next_multiple_of(WARP_REGISTER_UNIT);
        if threads.div_ceil(32) * warp > SM_REGISTERS {
            return bad(format!("{threads} threads of {} registers do not fit into an SM", asked.registers));
        }
        let shared_max = self.facts.sm_shared_kib << 10;
        let [target, largest] = asked.shared_config;
        if asked.shared_bytes > target || target > largest || largest > shared_max {
            let sizes = (asked.shared_bytes, target, largest, shared_max);
            return bad(format!(
                "shared memory: {} bytes a CTA, split {} of at most {}, an SM has {}",
                sizes.0, sizes.1, sizes.2, sizes.3
            ));
        }
        // 0x90 of 0x900, 0x75 of 0x705.
        let version = self.facts.sm_version >> 4 & 0xf0 | self.facts.sm_version & 0xf;
        if asked.sass_version != version {
            return bad(format!("code of version {:#x}, the chip's is {version:#x}", asked.sass_version));
        }
        if !asked.program.0.is_multiple_of(PROGRAM_ALIGN) {
            return bad(format!("program at {:#x}, not at a multiple of {PROGRAM_ALIGN}", asked.program.0));
        }
        self.check_cluster(va, asked)?;
        self.check_local(site, va, asked)?;
        for bank in asked.constants.iter().flatten() {
            if bank.len_bytes > MAX_BANK_BYTES || !bank.address.0.is_multiple_of(64) {
                return bad(format!("constant bank of {} bytes at {:#x}", bank.len_bytes, bank.address.0));
            }
            let mut bytes = vec![0; bank.len_bytes as usize];
            site.vm().read_bytes(bank.address.0, &mut bytes)?;
        }
        site.vm().translate(asked.program.0, Access::Fetch)?;
        Ok(())
    }

    fn check_cluster(&self, va: u64, asked: &qmd::Launch) -> Result<(), Cause> {
        let Some(cluster) = asked.cluster else { return Ok(()) };
        let size = cluster.map(|size| size.max(1));
        let ctas: u64 = size.iter().map(|n| u64::from(*n)).product();
        let whole = asked.grid.iter().zip(size).all(|(grid, size)| grid.is_multiple_of(size));
        if !self.facts.has_clusters || ctas > MAX_CLUSTER || !whole {
            return Err(Cause::Grid { va, what: format!("clusters of {cluster:?} in a grid of {:?}", asked.grid) });
        }
        Ok(())
    }

    /// The channel's local memory has to hold what all threads of the chip may have at once.
    fn check_local(&self, site: Site<'_>, va: u64, asked: &qmd::Launch) -> Result<(), Cause> {
        if asked.local_bytes == 0 {
            return Ok(());
        }
        let warp = (32 * u64::from(asked.local_bytes)).next_multiple_of(0x200);
        let need = warp * u64::from(self.facts.sm_warps) * 2;
        if need > self.local_tpc_bytes {
            let (local, have) = (asked.local_bytes, self.local_tpc_bytes);
            let what =
                format!("{local} bytes of local memory a thread need {need:#x} a TPC, the channel has {have:#x}");
            return Err(Cause::Grid { va, what });
        }
        let last = self.local_memory + self.local_tpc_bytes * u64::from(self.facts.tpcs()) - 1;
        site.vm().translate(self.local_memory, Access::Write)?;
        site.vm().translate(last, Access::Write)?;
        Ok(())
    }
}

/// A method that newer chips have.
fn missing(method: u16, value: u32) -> Cause {
    Cause::Method(MethodError::Unknown { engine: ENGINE, method, value })
}

/// A window over mapped memory hides it; hardware reports nothing until a kernel reads the wrong bytes.
fn check_window(site: Site<'_>, what: &str, base: u64, len_bytes: u64) {
    if !base.is_multiple_of(len_bytes) {
        site.complain(format!("{what} window at {base:#x}, not at a multiple of {len_bytes:#x}"));
    }
    if site.vm().is_used(base, len_bytes) {
        site.complain(format!("{what} window at {base:#x} hides mapped memory"));
    }
}
