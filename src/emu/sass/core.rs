//! A warp at one instruction: what its closure reads and writes.

use super::bus::Bus;
use super::fault::{FaultKind, R, fail};
use super::operand::{Dst, In, PDst, PSrc, Src};
use super::shared::Cta;
use super::warp::{Lanes, Warp, ones};
use super::{Launch, Options};

/// What does not change during a launch.
pub(super) struct Machine<'a> {
    pub launch: &'a Launch,
    pub bus: &'a dyn Bus,
    pub options: &'a Options,
    /// Contents of the constant banks.
    pub banks: [Vec<u8>; 8],
}

/// A warp, its cluster, and the lanes that execute.
pub(super) struct Core<'a> {
    pub warp: &'a mut Warp,
    pub ctas: &'a mut [Cta],
    pub machine: &'a Machine<'a>,
    /// Lanes of the path whose guard is true.
    pub lanes: u32,
    /// Lanes of the path.
    pub path: u32,
    pub pc: u64,
}

impl Core<'_> {
    /// Its CTA.
    pub fn cta(&mut self) -> &mut Cta {
        &mut self.ctas[self.warp.cta]
    }

    /// `len` bytes of a constant bank, at most 8.
    pub fn constant(&self, bank: u8, offset: i64, len: usize) -> R<u64> {
        let bytes = usize::try_from(offset).ok().and_then(|at| {
            let bank = self.machine.banks.get(usize::from(bank))?;
            bank.get(at..at + len)
        });
        let Some(bytes) = bytes else { return fail(FaultKind::Constant { bank, offset }) };
        let mut word = [0; 8];
        word[..len].copy_from_slice(bytes);
        Ok(u64::from_le_bytes(word))
    }

    /// The bits of a source, no modifier applied.
    pub fn raw(&self, i: &In) -> R<Lanes> {
        Ok(match i.src {
            Src::R(r) => self.warp.registers[usize::from(r)],
            Src::U(u) => [self.warp.uniform[usize::from(u)]; 32],
            Src::Imm(low, _) => [low; 32],
            Src::Const { bank, offset } => [self.constant(bank, offset, 4)? as u32; 32],
        })
    }

    /// An integer source: negated or complemented as its modifiers say.
    pub fn ints(&self, i: &In) -> R<Lanes> {
        let raw = self.raw(i)?;
        Ok(match (i.neg, i.not) {
            (true, _) => raw.map(u32::wrapping_neg),
            (_, true) => raw.map(|v| !v),
            _ => raw,
        })
    }

    /// A source of 64 bits, no modifier applied.
    pub fn raw_pairs(&self, i: &In) -> R<[u64; 32]> {
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        Ok(match i.src {
            Src::R(255) => [0; 32],
            Src::R(r) => std::array::from_fn(|lane| self.warp.pair(r, lane)),
            Src::U(63) => [0; 32],
            Src::U(u) => [join(self.warp.uniform[usize::from(u)], self.warp.uniform[usize::from(u) + 1]); 32],
            Src::Imm(low, high) => [join(low, high); 32],
            Src::Const { bank, offset } => [self.constant(bank, offset, 8)?; 32],
        })
    }

    /// A single-precision source.
    pub fn floats(&self, i: &In) -> R<[f32; 32]> {
        let (keep, flip) = (if i.abs { 0x7fff_ffff } else { u32::MAX }, if i.neg { 1 << 31 } else { 0 });
        Ok(self.raw(i)?.map(|v| f32::from_bits(v & keep ^ flip)))
    }

    /// A double-precision source.
    pub fn doubles(&self, i: &In) -> R<[f64; 32]> {
        let (keep, flip) = (if i.abs { u64::MAX >> 1 } else { u64::MAX }, if i.neg { 1 << 63 } else { 0 });
        Ok(self.raw_pairs(i)?.map(|v| f64::from_bits(v & keep ^ flip)))
    }

    /// Writes the lanes that execute; a uniform register takes lane 0's value, which all lanes share.
    pub fn write(&mut self, d: Dst, values: &Lanes) {
        match d {
            Dst::R(255) | Dst::U(63) => {}
            Dst::R(r) => {
                let to = &mut self.warp.registers[usize::from(r)];
                if self.lanes == u32::MAX {
                    *to = *values;
                } else {
                    ones(self.lanes).for_each(|lane| to[lane] = values[lane]);
                }
            }
            Dst::U(u) => self.warp.uniform[usize::from(u)] = values[0],
        }
    }

    /// Writes a pair of registers.
    pub fn write_pairs(&mut self, d: Dst, values: &[u64; 32]) {
        let (low, high) = (values.map(|v| v as u32), values.map(|v| (v >> 32) as u32));
        self.write(d, &low);
        match d {
            Dst::R(255) | Dst::U(63) => {}
            Dst::R(r) => self.write(Dst::R(r + 1), &high),
            Dst::U(u) => self.write(Dst::U(u + 1), &high),
        }
    }

    /// A predicate's lanes.
    pub fn pred(&self, p: PSrc) -> u32 {
        let file = if p.uniform { &self.warp.uniform_predicates } else { &self.warp.predicates };
        file[usize::from(p.index)] ^ if p.not { u32::MAX } else { 0 }
    }

    /// Writes a predicate in the lanes that execute; a uniform one takes lane 0's value.
    pub fn set_pred(&mut self, p: PDst, values: u32) {
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
}

/// One value of two, lane by lane.
pub(super) fn zip<A: Copy, B: Copy, C>(a: &[A; 32], b: &[B; 32], f: impl Fn(A, B) -> C) -> [C; 32] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

/// One value of three, lane by lane.
pub(super) fn zip3<A: Copy, B: Copy, C: Copy, D>(
    a: &[A; 32],
    b: &[B; 32],
    c: &[C; 32],
    f: impl Fn(A, B, C) -> D,
) -> [D; 32] {
    std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]))
}
