//! A dispatch: workgroups distributed to host threads, waves set up as the hardware's launcher does.
//!
//! Source: docs/amd.md 4.3 (RSRC words), 4.4 (initial registers of a wave), 2.9 (scratch slots).

use super::block::{HotCode, Shape};
use super::bus::{Bus, Tlb};
use super::decode::Decoder;
use super::fault::{FaultKind, WaveFault};
use super::group::{Code, Group, SliceEnd};
use super::lds::Lds;
use super::rows::Table;
use super::shadow::{DispatchInfo, ShadowMemory, ThreadShadow};
use super::wave::{Allocation, Wave};
use super::{Chip, Strict};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One kernel launch as the packet processor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatch {
    pub chip: Chip,
    /// Address of the first instruction.
    pub entry: u64,
    pub wave32: bool,
    /// Workgroups in each dimension.
    pub groups: [u32; 3],
    /// Work-items of a workgroup in each dimension.
    pub local: [u32; 3],
    /// Work-items of the last workgroup of each dimension; as many as `local`, or 0, where it is full.
    pub last_partial: [u32; 3],
    pub rsrc1: u32,
    pub rsrc2: u32,
    pub rsrc3: u32,
    /// User SGPRs in order.
    pub user_data: Vec<u32>,
    /// Bit n: user SGPR n was written.
    pub user_data_written: u32,
    pub lds_bytes: u32,
    pub scratch_base: u64,
    /// Scratch of one wave (all lanes) and for how many waves at once.
    pub scratch_wave_bytes: u32,
    pub scratch_waves: u32,
}

/// What has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub waves: u64,
    pub instructions: u64,
    /// Vector operations times the lanes they worked on.
    pub lane_operations: u64,
}

/// Instructions of a workgroup before the thread switches to the next one.
const BUDGET: u64 = 2_000_000;
/// Workgroups that share one host thread.
const RESIDENT: usize = 32;

/// State that host threads share.
struct Shared<'a> {
    dispatch: &'a Dispatch,
    bus: &'a dyn Bus,
    strict: Strict,
    shadow: &'a ShadowMemory,
    /// The number of this dispatch in them.
    number: u32,
    stop: &'a AtomicBool,
    hot: &'a HotCode,
    failed: AtomicBool,
    next: AtomicU64,
    slots: Mutex<Vec<u32>>,
    /// What LDS contains at first.
    lds: Vec<u32>,
    outcome: Mutex<(Stats, Option<Box<WaveFault>>)>,
}

/// Runs a dispatch to its end, on the calling thread and as many more as the options allow.
///
/// # Errors
/// The first fault of any wave; the other waves are abandoned, as on hardware.
pub fn run(dispatch: &Dispatch, bus: &dyn Bus, options: &Strict, stop: &AtomicBool) -> Result<Stats, Box<WaveFault>> {
    run_hot(dispatch, bus, options, stop, &HotCode::default())
}

/// As [`run`]; without checks, what is executed often runs as code of the host.
///
/// # Errors
/// The first fault of any wave.
pub fn run_hot(
    dispatch: &Dispatch,
    bus: &dyn Bus,
    options: &Strict,
    stop: &AtomicBool,
    hot: &HotCode,
) -> Result<Stats, Box<WaveFault>> {
    dispatch.validate()?;
    let own = ShadowMemory::default();
    let shadow = bus.shadow().unwrap_or(&own);
    let shared = Shared {
        dispatch,
        bus,
        strict: *options,
        shadow,
        number: shadow.begin(),
        stop,
        hot,
        failed: AtomicBool::new(false),
        next: AtomicU64::new(0),
        slots: Mutex::new((0..dispatch.scratch_waves).rev().collect()),
        lds: Lds::pattern(dispatch.lds_bytes, options.seed),
        outcome: Mutex::new((Stats::default(), None)),
    };
    let threads = options.threads.clamp(1, 64).min(usize::try_from(dispatch.group_count()).unwrap_or(64).max(1));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| shared.work());
        }
        shared.work();
    });
    shadow.end();
    let (stats, fault) = shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    fault.map_or(Ok(stats), Err)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dispatch {
    /// More than 64 bits hold are as good as without end.
    fn group_count(&self) -> u64 {
        self.groups.iter().fold(1, |all, n| all.saturating_mul((*n).into()))
    }

    fn lanes(&self) -> u32 {
        if self.wave32 { 32 } else { 64 }
    }

    fn validate(&self) -> Result<(), Box<WaveFault>> {
        let items: u128 = self.local.iter().map(|n| u128::from(*n)).product();
        let wrong = if items == 0 || items > 1024 {
            Some(format!("{items} work-items in a workgroup, 1 to 1024 are possible"))
        } else if self.chip == Chip::Gfx942 && self.wave32 {
            Some("gfx942 has no wave32".to_owned())
        } else if self.lds_bytes > 65536 {
            Some(format!("{} bytes of LDS, 65536 are possible", self.lds_bytes))
        } else {
            None
        };
        match wrong {
            None => Ok(()),
            Some(what) => Err(self.fault(FaultKind::BadDispatch { what }, [0; 3])),
        }
    }

    /// The waves of a workgroup run on one compute unit: not on both of a WGP, nor split over several.
    fn is_in_one_unit(&self) -> bool {
        const WGP_MODE: u32 = 1 << 29;
        const TG_SPLIT: u32 = 1 << 16;
        match self.chip {
            Chip::Gfx942 => self.rsrc3 & TG_SPLIT == 0,
            _ => self.rsrc1 & WGP_MODE == 0,
        }
    }

    fn fault(&self, kind: FaultKind, workgroup: [u32; 3]) -> Box<WaveFault> {
        Box::new(WaveFault { kind, workgroup, wave: 0, lane: None, pc: self.entry, text: "dispatch".into() })
    }

    /// Registers that RSRC1 and RSRC3 allocate.
    fn allocation(&self) -> Allocation {
        let field = self.rsrc1 & 63;
        match self.chip {
            Chip::Gfx942 => {
                let total = (field + 1) * 8;
                let arch = (((self.rsrc3 & 63) + 1) * 4).min(total);
                Allocation { vgprs: arch.min(256), agprs: (total - arch).min(256) }
            }
            _ => Allocation { vgprs: ((field + 1) * if self.wave32 { 8 } else { 4 }).min(256), agprs: 0 },
        }
    }

    /// Work-items of a workgroup in each dimension.
    fn local_of(&self, id: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|d| {
            let partial = self.last_partial[d] != 0 && id[d] + 1 == self.groups[d];
            if partial { self.last_partial[d] } else { self.local[d] }
        })
    }

    fn id_of(&self, n: u64) -> [u32; 3] {
        let (x, y) = (u64::from(self.groups[0]), u64::from(self.groups[1]));
        [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32]
    }

    fn waves_of(&self, id: [u32; 3]) -> u32 {
        self.local_of(id).iter().product::<u32>().div_ceil(self.lanes())
    }

    fn wave(&self, strict: Strict, id: [u32; 3], index: u32) -> Wave {
        let mut w = Wave::new(self.chip, strict, self.wave32, self.allocation());
        w.index = index;
        w.group =
            id[0].wrapping_add(self.groups[0].wrapping_mul(id[1].wrapping_add(self.groups[1].wrapping_mul(id[2]))));
        w.pc = self.entry;
        // DX10 clamp and IEEE are fixed on gfx12.
        let high = if self.chip == Chip::Gfx1201 { 3 } else { self.rsrc1 >> 21 & 1 | (self.rsrc1 >> 23 & 1) << 1 };
        w.mode.bits = self.rsrc1 >> 12 & 0xff | high << 8;
        self.scalars(&mut w, id);
        self.work_items(&mut w, id, index);
        w
    }

    /// User SGPRs, then workgroup ids: in SGPRs up to gfx11, in trap temporaries on gfx12. The rest is poisoned.
    fn scalars(&self, w: &mut Wave, id: [u32; 3]) {
        let mut seed = w.strict.seed ^ 0x9e37_79b9_7f4a_7c15;
        for n in 0..126 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            w.poison_scalar(n, (seed >> 32) as u32);
        }
        let user = self.rsrc2 >> 1 & 31;
        for (n, value) in self.user_data.iter().enumerate().take(user as usize) {
            if self.user_data_written >> n & 1 == 1 {
                w.put_scalar(n as u8, *value);
            }
        }
        if self.chip == Chip::Gfx1201 {
            w.put_scalar(108 + 9, id[0]);
            w.put_scalar(108 + 7, id[1] & 0xffff | id[2] << 16);
            return;
        }
        let mut at = user as u8;
        for (bit, value) in [(7, id[0]), (8, id[1]), (9, id[2]), (10, 0)] {
            if self.rsrc2 >> bit & 1 == 1 {
                w.put_scalar(at, value);
                at += 1;
            }
        }
    }

    /// v0 with the packed work-item ids, and EXEC with the lanes that exist.
    fn work_items(&self, w: &mut Wave, id: [u32; 3], index: u32) {
        let local = self.local_of(id);
        let total: u32 = local.iter().product();
        let lanes = self.lanes();
        let here = (total - index * lanes).min(lanes);
        w.set_exec(if here == 64 { u64::MAX } else { (1 << here) - 1 });
        if self.wave32 {
            // The high half does not exist; reads of it find zero.
            w.poison_scalar(super::inst::EXEC + 1, 0);
        }
        for lane in 0..here {
            let n = index * lanes + lane;
            let (x, y, z) = (n % local[0], n / local[0] % local[1], n / (local[0] * local[1]));
            w.put_lane(0, lane as usize, x | y << 10 | z << 20);
        }
    }
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self, fault: Box<WaveFault>) {
        self.failed.store(true, Ordering::Relaxed);
        lock(&self.outcome).1.get_or_insert(fault);
    }

    /// One host thread: runs workgroups; those that use up their instruction budget share the thread with later ones.
    fn work(&self) {
        let decoder = Decoder {
            table: Table::of(self.dispatch.chip),
            wave32: self.dispatch.wave32,
            reserved: self.strict.reserved,
        };
        let Allocation { vgprs, agprs } = self.dispatch.allocation();
        let halves = self.dispatch.lanes() as usize / 32;
        let shape = Shape { chip: self.dispatch.chip, halves, arch: vgprs, acc: agprs };
        let hot = (self.strict.is_off() && self.hot.is_on()).then_some((self.hot, shape));
        let mut code = Code::new(decoder, hot);
        let info =
            DispatchInfo { number: self.number, chip: self.dispatch.chip, one_unit: self.dispatch.is_in_one_unit() };
        let mut tlb = Tlb::new(self.bus, ThreadShadow::new(self.shadow, self.bus, info, &self.strict));
        let mut resident: VecDeque<Group> = VecDeque::new();
        let mut exhausted = true;
        loop {
            if self.is_over() {
                return;
            }
            if exhausted && resident.len() < RESIDENT {
                match self.admit(resident.is_empty()) {
                    Ok(Some(group)) => resident.push_front(group),
                    Ok(None) if resident.is_empty() => return,
                    Ok(None) => {}
                    Err(fault) => return self.fail(fault),
                }
            }
            let Some(mut group) = resident.pop_front() else { continue };
            let (back, result) = group.run_slice(tlb, &mut code, self.stop, BUDGET);
            tlb = back;
            exhausted = true;
            match result {
                Ok(SliceEnd::Done) => self.retire(group),
                Ok(SliceEnd::Again) => {
                    let spent = group.waves.iter().map(|w| w.instructions).sum::<u64>();
                    let limit = self.strict.max_instructions;
                    if limit != 0 && spent >= limit {
                        let pc = group.waves.first().map_or(0, |w| w.pc);
                        let mut fault = self.dispatch.fault(FaultKind::Endless { instructions: spent }, group.id);
                        (fault.pc, fault.text) = (pc, code.text(&mut tlb, pc));
                        return self.fail(fault);
                    }
                    resident.push_back(group);
                }
                Err(fault) => return self.fail(fault),
            }
        }
    }

    /// The next workgroup, when its waves' scratch is free; `must` when nothing else would make progress.
    fn admit(&self, must: bool) -> Result<Option<Group>, Box<WaveFault>> {
        let d = self.dispatch;
        let needs_scratch = d.scratch_wave_bytes != 0;
        loop {
            let mut slots = lock(&self.slots);
            let n = self.next.load(Ordering::Relaxed);
            if n >= d.group_count() || self.is_over() {
                return Ok(None);
            }
            let id = d.id_of(n);
            let waves = d.waves_of(id);
            if needs_scratch && d.scratch_waves < waves {
                return Err(d.fault(FaultKind::ScratchWaves { have: d.scratch_waves, need: waves }, id));
            }
            if needs_scratch && slots.len() < waves as usize {
                drop(slots);
                if !must {
                    return Ok(None);
                }
                std::thread::yield_now();
                continue;
            }
            // ORDER: the slots' lock makes taking the number and the slots one step.
            self.next.store(n + 1, Ordering::Relaxed);
            let from = slots.len().saturating_sub(waves as usize);
            let taken = if needs_scratch { slots.split_off(from) } else { Vec::new() };
            drop(slots);
            return Ok(Some(self.group(id, waves, taken)));
        }
    }

    fn group(&self, id: [u32; 3], waves: u32, slots: Vec<u32>) -> Group {
        let d = self.dispatch;
        let made = (0..waves).map(|index| {
            let mut w = d.wave(self.strict, id, index);
            if let Some(slot) = slots.get(index as usize) {
                w.scratch_base = d.scratch_base + u64::from(*slot) * u64::from(d.scratch_wave_bytes);
                w.scratch_lane_bytes = d.scratch_wave_bytes / d.lanes();
            }
            w
        });
        let lds = Lds::new(self.lds.clone(), d.lds_bytes, waves as usize, self.strict);
        let mut group = Group::new(id, made.collect(), lds, self.strict.seed);
        group.scratch_slots = slots;
        group
    }

    fn retire(&self, group: Group) {
        lock(&self.slots).extend(&group.scratch_slots);
        let stats = &mut lock(&self.outcome).0;
        stats.waves += group.waves.len() as u64;
        for w in &group.waves {
            stats.instructions += w.instructions;
            stats.lane_operations += w.lane_operations;
        }
    }
}
