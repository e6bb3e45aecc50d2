//! A wave's registers, and strict mode's shadow state of them: which lanes were written, which registers a load in
//! flight will write.
//!
//! Source: AMD's ISA documents (register files, MODE, STATUS); docs/amd.md 4.4, docs/amd-isa.md 5.6.

use super::block::{FLAG_DONE, FLAG_LDS_BYTES, FLAG_SCC};
use super::fault::{FaultKind, R, fail};
use super::hazard::Hazards;
use super::inst::{EXEC, Operand, VCC};
use super::lanes::{L, Mode};
use super::lds::Lds;
use super::shadow::Invalidated;
use super::wait::{Counter, Waits};
use super::{Chip, Strict};
use crate::translate::{DeviceView, Translated};
use std::cell::Cell;

/// What a wave does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// At the workgroup's barrier.
    Barrier,
    Ended,
}

pub(super) struct Wave {
    pub chip: Chip,
    pub strict: Strict,
    /// Its number in the workgroup.
    pub index: u32,
    /// The workgroup's number in the dispatch.
    pub group: u32,
    /// It has made an atomic or coherent access: what it orders by them is its own business.
    pub synchronises: bool,
    /// When it, or a wave that it met at a barrier, last invalidated the caches of its unit.
    pub invalidated: Invalidated,
    pub halves: usize,
    pub pc: u64,
    pub state: State,
    pub scc: bool,
    pub scc_known: bool,
    pub mode: Mode,
    scalars: [u32; 128],
    scalars_known: u128,
    pub vectors: Vec<L>,
    known: Vec<u64>,
    /// 256 plus the first accumulation register's place in `vectors` on gfx942.
    arch_count: u32,
    acc_count: u32,
    pub waits: Waits,
    pub hazards: Hazards,
    /// Barriers passed, and whether this one was already signalled (gfx12).
    pub epoch: u32,
    pub signalled: bool,
    pub scratch_base: u64,
    pub scratch_lane_bytes: u32,
    pub instructions: u64,
    pub lane_operations: u64,
    /// The lane whose memory access is under way, for a fault's report.
    pub access_lane: Cell<Option<u8>>,
    /// A run of instructions may begin where it is: it has not just executed the one before.
    pub enters: bool,
    /// gfx9: M0 moves the vector registers that instructions name.
    pub index_mode: bool,
}

/// How many registers of each kind a wave has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub vgprs: u32,
    pub agprs: u32,
}

impl Wave {
    pub(crate) fn new(chip: Chip, strict: Strict, wave32: bool, count: Allocation) -> Self {
        let halves = if wave32 { 1 } else { 2 };
        let total = (count.vgprs + count.agprs) as usize;
        Self {
            chip,
            strict,
            index: 0,
            group: 0,
            synchronises: false,
            invalidated: Invalidated::default(),
            halves,
            pc: 0,
            state: State::Ready,
            scc: false,
            scc_known: false,
            mode: Mode::default(),
            scalars: [0; 128],
            scalars_known: 0,
            vectors: vec![[0; 32]; total * halves],
            known: vec![0; total],
            arch_count: count.vgprs,
            acc_count: count.agprs,
            waits: Waits::new(chip, total),
            hazards: Hazards::new(total),
            epoch: 0,
            signalled: false,
            scratch_base: 0,
            scratch_lane_bytes: 0,
            instructions: 0,
            lane_operations: 0,
            access_lane: Cell::new(None),
            enters: true,
            index_mode: false,
        }
    }

    /// Runs a block's code on registers, LDS and some memory; how many of its instructions were executed.
    pub(crate) fn run_native(
        &mut self,
        code: &dyn Translated,
        lds: &mut Lds,
        flags: &mut [u32],
        views: &[Option<DeviceView>],
    ) -> usize {
        (flags[FLAG_SCC], flags[FLAG_LDS_BYTES]) = (self.scc.into(), lds.size_bytes());
        let vectors = self.vectors.as_flattened_mut();
        code.run(&mut [vectors, &mut self.scalars, flags, lds.words_mut()], views);
        self.scc = flags[FLAG_SCC] != 0;
        flags[FLAG_DONE] as usize
    }

    pub(crate) fn lanes(&self) -> u32 {
        32 * self.halves as u32
    }

    pub(crate) fn is_wave32(&self) -> bool {
        self.halves == 1
    }

    /// Mask of all lanes of the wave.
    pub(crate) fn full(&self) -> u64 {
        if self.halves == 1 { 0xffff_ffff } else { u64::MAX }
    }

    #[inline]
    pub(crate) fn exec(&self) -> u64 {
        self.mask_at(EXEC)
    }

    pub(crate) fn set_exec(&mut self, mask: u64) {
        self.put_mask(EXEC, mask);
    }

    pub(crate) fn vcc(&self) -> u64 {
        self.mask_at(VCC)
    }

    /// A lane mask in scalar registers, as wide as the wave; unchecked.
    #[inline]
    pub(crate) fn mask_at(&self, first: u8) -> u64 {
        let n = usize::from(first & 127);
        let lo = u64::from(self.scalars[n]);
        if self.halves == 1 { lo } else { lo | u64::from(self.scalars[(n + 1) & 127]) << 32 }
    }

    #[inline]
    pub(crate) fn put_mask(&mut self, first: u8, mask: u64) {
        self.put_scalar(first, mask as u32);
        if self.halves == 2 {
            self.put_scalar(first + 1, (mask >> 32) as u32);
        }
    }

    #[inline]
    pub(crate) fn put_scalar(&mut self, n: u8, v: u32) {
        let n = usize::from(n & 127);
        self.scalars[n] = v;
        self.scalars_known |= 1 << n;
    }

    pub(crate) fn poison_scalar(&mut self, n: u8, v: u32) {
        self.scalars[usize::from(n & 127)] = v;
        self.scalars_known &= !(1 << (n & 127));
    }

    pub(crate) fn scalar_unchecked(&self, n: u8) -> u32 {
        self.scalars[usize::from(n & 127)]
    }

    /// Checks that a scalar register may be named, is not the destination of a load in flight and, for a read, that
    /// it was written.
    #[inline]
    fn check_scalar(&self, n: u32, reads: bool) -> R<()> {
        if n > 127 || (self.chip != Chip::Gfx942 && n == 124) {
            return fail(FaultKind::SgprBeyondLimit { register: n, limit: 106 });
        }
        if self.strict.waits && self.waits.scalar_pending(n) {
            return fail(FaultKind::SgprNotWaited { register: n, counter: self.waits.scalar_counter() });
        }
        if reads && self.strict.poison && self.scalars_known >> n & 1 == 0 {
            return fail(FaultKind::SgprUnwritten { register: n });
        }
        Ok(())
    }

    /// `words` scalar registers from `first`, low ones first; up to 64 bits.
    #[inline]
    pub(crate) fn read_scalars(&self, first: u8, words: u32) -> R<u64> {
        let n = u32::from(first);
        self.check_tuple('s', n, words)?;
        self.check_scalar(n, true)?;
        let lo = u64::from(self.scalars[n as usize]);
        if words < 2 {
            return Ok(lo);
        }
        self.check_scalar(n + 1, true)?;
        Ok(lo | u64::from(self.scalars[n as usize + 1]) << 32)
    }

    /// Copies unwritten scalar registers, as calling conventions save them; false when all are written.
    pub(crate) fn move_unwritten(&mut self, from: u8, to: u8, words: u8) -> R<bool> {
        let mask = if words == 2 { 3 } else { 1 };
        if !self.strict.poison || self.scalars_known >> from & mask == mask || self.waits.scalar_pending(from.into()) {
            return Ok(false);
        }
        self.check_tuple('s', to.into(), words.into())?;
        for n in 0..words {
            self.check_scalar(u32::from(to + n), false)?;
            let known = self.scalars_known >> (from + n) & 1;
            self.scalars[usize::from(to + n)] = self.scalars[usize::from(from + n)];
            self.scalars_known = self.scalars_known & !(1 << (to + n)) | known << (to + n);
        }
        Ok(true)
    }

    pub(crate) fn is_scalar_known(&self, n: u8) -> bool {
        self.scalars_known >> (n & 127) & 1 == 1
    }

    /// A mask that need not have been written in whole.
    pub(crate) fn read_mask_unwritten(&self, first: u8, words: u8) -> R<u64> {
        let n = u32::from(first);
        self.check_tuple('s', n, words.into())?;
        self.check_scalar(n, false)?;
        let lo = u64::from(self.scalar_unchecked(first));
        if words < 2 {
            return Ok(lo);
        }
        self.check_scalar(n + 1, false)?;
        Ok(lo | u64::from(self.scalar_unchecked(first + 1)) << 32)
    }

    /// Scalar tuples are aligned: pairs to 2, longer ones to 4.
    #[inline]
    pub(crate) fn check_tuple(&self, class: char, first: u32, words: u32) -> R<()> {
        let align = match words {
            0 | 1 => return Ok(()),
            2 => 2,
            _ => 4,
        };
        if self.strict.registers && !first.is_multiple_of(align) {
            return fail(FaultKind::MisalignedTuple { class, first, words, align });
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn write_scalars(&mut self, first: u8, words: u32, value: u64) -> R<()> {
        let n = u32::from(first);
        self.check_tuple('s', n, words)?;
        self.check_scalar(n, false)?;
        self.put_scalar(first, value as u32);
        if words == 2 {
            self.check_scalar(n + 1, false)?;
            self.put_scalar(first + 1, (value >> 32) as u32);
        }
        Ok(())
    }

    /// A scalar operand's value; masks have the wave's width.
    #[inline]
    pub(crate) fn scalar_operand(&self, operand: Operand, words: u8) -> R<u64> {
        let words = match words {
            255 => self.halves as u32,
            n => u32::from(n).clamp(1, 2),
        };
        Ok(match operand {
            Operand::S(n) => self.read_scalars(n, words)?,
            Operand::K(v) | Operand::Aperture(v) => v,
            Operand::None | Operand::Null => 0,
            Operand::Vccz => u64::from(self.vcc() == 0),
            Operand::Execz => u64::from(self.exec() == 0),
            Operand::Scc => u64::from(self.scc),
            Operand::V(n) => return fail(FaultKind::BadOperand { what: format!("v{n} as a scalar") }),
        })
    }

    /// Writes a lane mask to a scalar destination; null swallows it.
    pub(crate) fn write_mask(&mut self, operand: Operand, mask: u64) -> R<()> {
        match operand {
            Operand::S(n) => self.write_scalars(n, self.halves as u32, mask),
            _ => Ok(()),
        }
    }

    /// Place of a vector register in the file. On gfx942 v and a registers are one file: a0 follows the last v that the
    /// descriptor's accum_offset leaves, so that a v beyond it is one of the a.
    #[inline]
    pub(crate) fn register_index(&self, n: u32) -> R<usize> {
        let (arch, acc) = (self.arch_count, self.acc_count);
        match n.checked_sub(256) {
            Some(a) if a < acc => Ok((arch + a) as usize),
            None if n < arch => Ok(n as usize),
            None if n < arch + acc && !self.strict.registers => Ok(n as usize),
            None if n < arch + acc => fail(FaultKind::VgprIsAccumulator { register: n, accum_offset: arch }),
            beyond => {
                let allocated = if beyond.is_some() { acc } else { arch };
                fail(FaultKind::VgprBeyondAllocation { register: n, allocated })
            }
        }
    }

    /// Checks a read of a register in the given lanes and returns its index.
    #[inline]
    pub(crate) fn readable(&self, n: u32, lanes: u64) -> R<usize> {
        let at = self.register_index(n)?;
        if self.strict.waits
            && let Some(counter) = self.waits.vector_pending(at)
        {
            return fail(FaultKind::VgprNotWaited { register: n, counter });
        }
        if self.strict.poison {
            let missing = lanes & !self.known[at];
            if missing != 0 {
                return fail(FaultKind::VgprUnwritten { register: n, lanes: missing });
            }
        }
        Ok(at)
    }

    #[inline]
    pub(crate) fn writable(&self, n: u32) -> R<usize> {
        let at = self.register_index(n)?;
        if self.strict.waits
            && let Some(counter) = self.waits.vector_pending(at)
        {
            return fail(FaultKind::VgprNotWaited { register: n, counter });
        }
        Ok(at)
    }

    /// As `writable` for a load: loads of one counter return in order, so a later one may name the same register.
    #[inline]
    pub(crate) fn writable_by_load(&self, n: u32, counter: Counter) -> R<usize> {
        let at = self.register_index(n)?;
        if self.strict.waits
            && let Some(counter) = self.waits.pending_elsewhere(at, counter)
        {
            return fail(FaultKind::VgprNotWaited { register: n, counter });
        }
        Ok(at)
    }

    #[inline]
    pub(crate) fn half(&self, place: usize, h: usize) -> &L {
        &self.vectors[place * self.halves + h]
    }

    /// Writes the chosen lanes of one half of a register.
    #[inline]
    pub(crate) fn put_half(&mut self, place: usize, h: usize, value: &L, mask: u32) {
        self.known[place] |= u64::from(mask) << (32 * h);
        let out = &mut self.vectors[place * self.halves + h];
        if mask == u32::MAX {
            *out = *value;
            return;
        }
        super::lanes::replace(out, value, mask);
    }

    /// Notes which lane accesses memory from here on.
    #[inline]
    pub(crate) fn accesses(&self, lane: usize) {
        self.access_lane.set(u8::try_from(lane).ok());
    }

    #[inline]
    pub(crate) fn lane(&self, place: usize, lane: usize) -> u32 {
        self.vectors[place * self.halves + lane / 32][lane % 32]
    }

    #[inline]
    pub(crate) fn put_lane(&mut self, place: usize, lane: usize, value: u32) {
        self.known[place] |= 1 << lane;
        self.vectors[place * self.halves + lane / 32][lane % 32] = value;
    }

    #[inline]
    pub(crate) fn is_known(&self, place: usize, lanes: u64) -> bool {
        !self.strict.poison || lanes & !self.known[place] == 0
    }

    pub(crate) fn known_lanes(&self, place: usize) -> u64 {
        self.known[place]
    }

    pub(crate) fn set_known(&mut self, place: usize, lanes: u64) {
        self.known[place] |= lanes;
    }

    /// Marks lanes as holding an unwritten value, when one was loaded back.
    pub(crate) fn set_unknown(&mut self, place: usize, lanes: u64) {
        self.known[place] &= !lanes;
    }
}

/// Bits of EXEC that belong to one half.
#[inline]
pub(super) fn half_mask(mask: u64, h: usize) -> u32 {
    (mask >> (32 * h)) as u32
}
