//! A warp at one instruction: what its closure reads and writes.

use super::bus::{Access, Bus};
use super::fault::{FaultKind, R, fail};
use super::operand::{Dst, In, PDst, PSrc, Src};
use super::program::Decoder;
use super::shared::Cta;
use super::tlb::Tlb;
use super::warp::{Lanes, Warp};
use super::{Launch, Options};
use std::sync::atomic::{AtomicU64, Ordering};

/// What does not change during a launch.
pub(super) struct Machine<'a> {
    pub launch: &'a Launch,
    pub bus: &'a dyn Bus,
    pub options: &'a Options,
    /// Contents of the constant banks.
    pub banks: [Vec<u8>; 8],
    pub decoder: &'a Decoder,
    /// The number of the first cluster that has not begun.
    pub next: AtomicU64,
}

impl Machine<'_> {
    /// Clusters of the grid along each axis.
    fn clusters(&self) -> [u64; 3] {
        let Launch { grid, cluster, .. } = self.launch;
        std::array::from_fn(|k| u64::from(grid[k] / cluster[k]))
    }

    /// The number of a cluster that has not begun, if there is one; it counts as begun from now on.
    pub(crate) fn begin(&self) -> Option<u64> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.clusters().iter().product()).then_some(index)
    }

    /// The first CTA of a cluster.
    pub(crate) fn first_cta(&self, index: u64) -> [u32; 3] {
        let [x, y, _] = self.clusters();
        let place = [index % x, index / x % y, index / x / y];
        std::array::from_fn(|k| place[k] as u32 * self.launch.cluster[k])
    }

    /// A word of a constant bank, if there is one.
    pub(crate) fn word(&self, bank: u8, offset: i64) -> Option<u32> {
        let at = usize::try_from(offset).ok()?;
        let bytes = self.banks.get(usize::from(bank))?.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// State that a host thread keeps between instructions.
pub(super) struct Sm {
    /// Cached ranges of memory.
    pub tlb: Tlb,
    /// Room for sources that are no register as it is.
    room: [Lanes; 3],
}

impl Sm {
    pub(crate) fn new(bus: &dyn Bus) -> Sm {
        Sm { tlb: Tlb::new(bus), room: [[0; 32]; 3] }
    }
}

/// A warp, its cluster, and the lanes that execute.
pub(super) struct Core<'a> {
    pub warp: &'a mut Warp,
    pub ctas: &'a mut [Cta],
    pub machine: &'a Machine<'a>,
    pub sm: &'a mut Sm,
    /// Lanes of the path whose guard is true.
    pub lanes: u32,
    /// Lanes of the path.
    pub path: u32,
    pub pc: u64,
}

/// Which modifiers of a source count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// None.
    Raw,
    /// Negation and complement of an integer.
    Int,
    /// Sign and absolute value of a single.
    Float,
}

impl How {
    /// Whether the source is a register as it is.
    fn is_register(self, i: &In) -> bool {
        matches!(i.src, Src::R(_))
            && match self {
                How::Raw => true,
                How::Int => !i.neg && !i.not,
                How::Float => !i.neg && !i.abs,
            }
    }
}

impl Core<'_> {
    /// Its CTA.
    pub(crate) fn cta(&mut self) -> &mut Cta {
        &mut self.ctas[self.warp.cta]
    }

    /// `len` bytes of a constant bank, at most 8.
    pub(crate) fn constant(&self, bank: u8, offset: i64, len: usize) -> R<u64> {
        let bytes = usize::try_from(offset).ok().and_then(|at| {
            let bank = self.machine.banks.get(usize::from(bank))?;
            bank.get(at..at + len)
        });
        let Some(bytes) = bytes else { return fail(FaultKind::Constant { bank, offset }) };
        let mut word = [0; 8];
        word[..len].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    /// Sources of 32 bits; those that are registers as they are, are not copied.
    #[inline]
    pub(crate) fn sources<const N: usize>(&mut self, how: How, from: [&In; N]) -> R<[&Lanes; N]> {
        for (slot, i) in from.iter().enumerate() {
            if !how.is_register(i) {
                self.sm.room[slot] = self.changed(how, i)?;
            }
        }
        let c = &*self;
        Ok(std::array::from_fn(|slot| match from[slot].src {
            Src::R(r) if how.is_register(from[slot]) => &c.warp.registers[usize::from(r)],
            _ => &c.sm.room[slot],
        }))
    }

    fn changed(&self, how: How, i: &In) -> R<Lanes> {
        match how {
            How::Raw => self.raw(i),
            How::Int => self.ints(i),
            How::Float => {
                let (keep, flip) = (if i.abs { 0x7fff_ffff } else { u32::MAX }, if i.neg { 1 << 31 } else { 0 });
                Ok(self.raw(i)?.map(|v| v & keep ^ flip))
            }
        }
    }

    /// The bits of a source, no modifier applied.
    pub(crate) fn raw(&self, i: &In) -> R<Lanes> {
        Ok(match i.src {
            Src::R(r) => self.warp.registers[usize::from(r)],
            Src::U(u) => [self.warp.uniform[usize::from(u)]; 32],
            Src::Imm(low, _) => [low; 32],
            Src::Const { bank, offset } => [self.constant(bank, offset, 4)? as u32; 32],
        })
    }

    /// An integer source: negated or complemented according to its modifiers.
    pub(crate) fn ints(&self, i: &In) -> R<Lanes> {
        let raw = self.raw(i)?;
        Ok(match (i.neg, i.not) {
            (true, _) => raw.map(u32::wrapping_neg),
            (_, true) => raw.map(|v| !v),
            _ => raw,
        })
    }

    /// A source of 64 bits, no modifier applied.
    pub(crate) fn raw_pairs(&self, i: &In) -> R<[u64; 32]> {
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Ok(match i.src {
            Src::R(255) => [0; 32],
            Src::R(r) => {
                let (low, high) = (&self.warp.registers[usize::from(r)], &self.warp.registers[usize::from(r) + 1]);
                zip(low, high, join)
            }
            Src::U(255) => [0; 32],
            Src::U(u) => [join(self.warp.uniform[usize::from(u)], self.warp.uniform[usize::from(u) + 1]); 32],
            Src::Imm(low, high) => [join(low, high); 32],
            Src::Const { bank, offset } => [self.constant(bank, offset, 8)?; 32],
        })
    }

    /// A single-precision source.
    pub(crate) fn floats(&self, i: &In) -> R<[f32; 32]> {
        Ok(self.changed(How::Float, i)?.map(f32::from_bits))
    }

    /// A double-precision source.
    pub(crate) fn doubles(&self, i: &In) -> R<[f64; 32]> {
        let (keep, flip) = (if i.abs { u64::MAX >> 1 } else { u64::MAX }, if i.neg { 1 << 63 } else { 0 });
        Ok(self.raw_pairs(i)?.map(|v| f64::from_bits(v & keep ^ flip)))
    }

    /// Writes the lanes that execute; a uniform register takes lane 0's value, which all lanes share.
    #[inline]
    pub(crate) fn write(&mut self, d: Dst, values: &Lanes) {
        match d {
            Dst::R(255) | Dst::U(255) => {}
            Dst::R(r) => {
                let (to, lanes) = (&mut self.warp.registers[usize::from(r)], self.lanes);
                if lanes == u32::MAX {
                    *to = *values;
                } else {
                    for lane in 0..32 {
                        to[lane] = if lanes >> lane & 1 == 1 { values[lane] } else { to[lane] };
                    }
                }
            }
            Dst::U(u) => self.warp.uniform[usize::from(u)] = values[0],
        }
    }

    /// Writes a pair of registers.
    pub(crate) fn write_pairs(&mut self, d: Dst, values: &[u64; 32]) {
        let (low, high) = (values.map(|v| v as u32), values.map(|v| (v >> 32) as u32));
        self.write(d, &low);
        match d {
            Dst::R(255) | Dst::U(255) => {}
            Dst::R(r) => self.write(Dst::R(r + 1), &high),
            Dst::U(u) => self.write(Dst::U(u + 1), &high),
        }
    }

    /// A predicate's lanes.
    pub(crate) fn pred(&self, p: PSrc) -> u32 {
        self.warp.predicate(p)
    }

    /// Writes a predicate in the lanes that execute; a uniform one takes lane 0's value.
    pub(crate) fn set_pred(&mut self, p: PDst, values: u32) {
        match p {
            PDst { index: 7, .. } => {}
            PDst { uniform: true, index } => {
                self.warp.uniform_predicates[usize::from(index)] = if values & 1 == 1 { u32::MAX } else { 0 };
            }
            PDst { uniform: false, index } => {
                let to = &mut self.warp.predicates[usize::from(index)];
                *to = *to & !self.lanes | values & self.lanes;
            }
        }
    }

    /// A uniform register.
    pub(crate) fn uniform(&self, u: u8) -> u32 {
        self.warp.uniform[usize::from(u)]
    }

    /// A pair of uniform registers.
    pub(crate) fn uniform_pair(&self, u: u8) -> u64 {
        u64::from(self.uniform(u)) | u64::from(self.uniform_behind(u, 1)) << 32
    }

    /// The uniform register at an offset from another; zero beyond URZ.
    pub(crate) fn uniform_behind(&self, u: u8, places: u8) -> u32 {
        u.checked_add(places).map_or(0, |u| self.uniform(u))
    }

    /// Reads global memory.
    pub(crate) fn read_global(&mut self, va: u64, into: &mut [u8]) -> R<()> {
        self.sm.tlb.refresh(self.machine.bus);
        if let Some((view, at)) = self.sm.tlb.range(self.machine.bus, va, into.len() as u64, Access::Read) {
            let read = match into.len() {
                4 => view.read_u32(at).map(|v| into.copy_from_slice(&v.to_le_bytes())),
                8 => view.read_u64(at).map(|v| into.copy_from_slice(&v.to_le_bytes())),
                _ => view.copy_to_slice(at, into),
            };
            if read.is_ok() {
                return Ok(());
            }
        }
        Ok(self.machine.bus.read(va, into)?)
    }

    /// Writes global memory.
    pub(crate) fn write_global(&mut self, va: u64, bytes: &[u8]) -> R<()> {
        self.sm.tlb.refresh(self.machine.bus);
        if let Some((view, at)) = self.sm.tlb.range(self.machine.bus, va, bytes.len() as u64, Access::Write) {
            let written = match *bytes {
                [a, b, c, d] => view.write_u32(at, u32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => view.write_u64(at, u64::from_le_bytes([a, b, c, d, e, f, g, h])),
                _ => view.copy_from_slice(at, bytes),
            };
            if written.is_ok() {
                return Ok(());
            }
        }
        Ok(self.machine.bus.write(va, bytes)?)
    }
}

/// One value of two, lane by lane.
#[inline(always)]
pub(super) fn zip<A: Copy, B: Copy, C>(a: &[A; 32], b: &[B; 32], f: impl Fn(A, B) -> C) -> [C; 32] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

/// One value of three, lane by lane.
#[inline(always)]
pub(super) fn zip3<A: Copy, B: Copy, C: Copy, D>(
    a: &[A; 32],
    b: &[B; 32],
    c: &[C; 32],
    f: impl Fn(A, B, C) -> D,
) -> [D; 32] {
    std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]))
}

/// A bit a lane.
#[inline(always)]
pub(super) fn mask(f: impl Fn(usize) -> bool) -> u32 {
    (0..32).fold(0, |all, lane| all | u32::from(f(lane)) << lane)
}
