//! Loads and stores through pointers: which memory, whether they are inside, and the form of the values.

use super::alu::Lanes;
use super::simd::Simd;
use super::{Bound, GroupMemory, Machine, Source, half};
use crate::code::{BIAS, Memory, Row, TAG_BUFFER, TAG_CONSTANTS, TAG_THREAD, TAG_THREADGROUP, TAG_THREADGROUP_SLOT};
use crate::fault::{FaultKind, Run, trouble};
use crate::memory::{Width, ones};
use crate::tree::Attribute;
use crate::types::Space;

/// Offsets of all lanes in one memory.
pub(super) type Offsets = [u64; 32];

/// What a tag stands for.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Buffer(usize),
    /// Start and length in the threadgroup's memory.
    Group(u64, u64),
    Thread,
    Constants,
}

pub(super) fn width(bytes: u32) -> Width {
    match bytes {
        1 => Width::Byte,
        2 => Width::Short,
        _ => Width::Word,
    }
}

/// Memory's form of a value as a register's.
fn unpack(kind: Memory, row: &mut Lanes) {
    match kind {
        Memory::Bool => row.iter_mut().for_each(|v| *v = u32::from(*v != 0)),
        Memory::I8 => row.iter_mut().for_each(|v| *v = *v as i8 as i32 as u32),
        Memory::I16 => row.iter_mut().for_each(|v| *v = *v as i16 as i32 as u32),
        Memory::Half => row.iter_mut().for_each(|v| *v = half::half_from_bits(*v)),
        Memory::BFloat => row.iter_mut().for_each(|v| *v <<= 16),
        Memory::U8 | Memory::U16 | Memory::Word | Memory::Wide => {}
    }
}

/// A register's form as memory's.
fn pack(kind: Memory, row: &Lanes) -> Lanes {
    match kind {
        Memory::Half => row.map(|v| half::half_bits(v).into()),
        Memory::BFloat => row.map(|v| v >> 16),
        _ => *row,
    }
}

impl Machine<'_> {
    pub(super) fn target(&self, tag: u32) -> Option<Target> {
        match tag {
            TAG_THREAD => Some(Target::Thread),
            TAG_CONSTANTS => Some(Target::Constants),
            TAG_THREADGROUP => Some(Target::Group(0, self.code.threadgroup_bytes.into())),
            TAG_BUFFER..TAG_THREADGROUP => {
                let slot = (tag - TAG_BUFFER) as usize;
                self.buffers.get(slot).and_then(Option::as_ref).map(|_| Target::Buffer(slot))
            }
            TAG_THREADGROUP_SLOT..TAG_THREAD => {
                let slot = self.slots.get((tag - TAG_THREADGROUP_SLOT) as usize)?;
                Some(Target::Group(slot.0, slot.1))
            }
            _ => None,
        }
    }

    fn len(&self, target: Target) -> u64 {
        match target {
            Target::Buffer(slot) => self.buffers[slot].as_ref().map_or(0, |b| b.len),
            Target::Group(_, len) => len,
            Target::Thread => self.code.thread_bytes.into(),
            Target::Constants => self.constants.len() as u64,
        }
    }

    fn name(&self, target: Target) -> String {
        match target {
            Target::Buffer(slot) => self.buffers[slot].as_ref().map_or_else(String::new, |b| b.name.clone()),
            Target::Group(0, _) if self.code.threadgroup_bytes > 0 => "threadgroup memory".into(),
            Target::Group(start, _) => {
                let slot = self.slots.iter().position(|s| s.0 == start && s.1 > 0).unwrap_or(0);
                let named = |p: &&crate::code::Param| {
                    p.space == Space::Threadgroup && p.attribute == Attribute::Threadgroup(slot as u32)
                };
                let name = self.code.params.iter().find(named).map_or("", |p| &p.name);
                format!("threadgroup argument {slot} '{name}'")
            }
            Target::Thread => "the thread's own memory".into(),
            Target::Constants => "program-scope constants".into(),
        }
    }
}

/// An access: all its bytes, the type's alignment, whether a store.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub bytes: u32,
    pub align: u32,
    pub write: bool,
}

impl Simd {
    /// Splits lanes by the memory that they point to, checks bounds and alignment, and hands on each part.
    pub(super) fn each_memory(
        &mut self,
        m: &Machine,
        pointers: &[u64; 32],
        access: Access,
        go: &mut dyn FnMut(&mut Self, Target, u32, &Offsets) -> Run<()>,
    ) -> Run<()> {
        let mut rest = self.mask;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let tag = pointers[first] >> 48;
            let mut same = 0;
            for (lane, pointer) in pointers.iter().enumerate() {
                same |= u32::from(pointer >> 48 == tag) << lane;
            }
            same &= rest;
            rest &= !same;
            let Some(target) = m.target(tag as u32) else { return trouble(FaultKind::Pointer, first) };
            let offsets: Offsets = pointers.map(|p| (p & 0xffff_ffff_ffff).wrapping_sub(BIAS));
            check(m, target, same, &offsets, access)?;
            go(self, target, same, &offsets)?;
        }
        Ok(())
    }

    pub(super) fn load(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (d, p, off): (Row, Row, i32),
        kind: Memory,
        (n, align): (u32, u32),
    ) -> Run<()> {
        if self.mask == 0 {
            return Ok(());
        }
        let pointers = self.pointers(p, off);
        let size = kind.bytes();
        let access = Access { bytes: size * n, align, write: false };
        self.each_memory(m, &pointers, access, &mut |simd, target, lanes, offsets| {
            for k in 0..n {
                let mut at = *offsets;
                at.iter_mut().for_each(|o| *o = o.wrapping_add(u64::from(k * size)));
                let row = if kind == Memory::Wide { d + 2 * k } else { d + k };
                simd.fetch(m, group, (target, lanes), &at, kind, row)?;
            }
            Ok(())
        })
    }

    fn fetch(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (target, lanes): (Target, u32),
        at: &Offsets,
        kind: Memory,
        row: Row,
    ) -> Run<()> {
        let mut made: Lanes = [0; 32];
        if kind == Memory::Wide {
            self.fetch_words(m, group, (target, lanes), at, 4, &mut made)?;
            super::alu::put(&mut self.regs[row as usize], &made, lanes);
            let high = at.map(|o| o.wrapping_add(4));
            self.fetch_words(m, group, (target, lanes), &high, 4, &mut made)?;
            super::alu::put(&mut self.regs[row as usize + 1], &made, lanes);
            return Ok(());
        }
        self.fetch_words(m, group, (target, lanes), at, kind.bytes(), &mut made)?;
        unpack(kind, &mut made);
        super::alu::put(&mut self.regs[row as usize], &made, lanes);
        Ok(())
    }

    /// Reads up to 4 bytes a lane, extended with zeros.
    pub(super) fn fetch_words(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (target, lanes): (Target, u32),
        at: &Offsets,
        bytes: u32,
        out: &mut Lanes,
    ) -> Run<()> {
        match target {
            Target::Buffer(slot) => {
                if let Some(bound) = &m.buffers[slot] {
                    bound.gather(lanes, at, width(bytes), out);
                }
                Ok(())
            }
            Target::Group(start, _) => group.gather((lanes, start), at, bytes, out),
            Target::Thread => self.gather_thread(lanes, at, bytes, out),
            Target::Constants => {
                for lane in ones(lanes) {
                    out[lane] = little(m.constants, at[lane] as usize, bytes as usize);
                }
                Ok(())
            }
        }
    }

    pub(super) fn store(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (s, p, off): (Row, Row, i32),
        kind: Memory,
        (n, align): (u32, u32),
    ) -> Run<()> {
        if self.mask == 0 {
            return Ok(());
        }
        let pointers = self.pointers(p, off);
        let size = kind.bytes();
        let access = Access { bytes: size * n, align, write: true };
        self.each_memory(m, &pointers, access, &mut |simd, target, lanes, offsets| {
            for k in 0..n {
                let at = offsets.map(|o| o.wrapping_add(u64::from(k * size)));
                if kind == Memory::Wide {
                    let (low, high) = (simd.regs[(s + 2 * k) as usize], simd.regs[(s + 2 * k + 1) as usize]);
                    simd.put_words(m, group, (target, lanes), &at, 4, &low)?;
                    simd.put_words(m, group, (target, lanes), &at.map(|o| o.wrapping_add(4)), 4, &high)?;
                } else {
                    let values = pack(kind, &simd.regs[(s + k) as usize]);
                    simd.put_words(m, group, (target, lanes), &at, size, &values)?;
                }
            }
            Ok(())
        })
    }

    pub(super) fn put_words(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (target, lanes): (Target, u32),
        at: &Offsets,
        bytes: u32,
        values: &Lanes,
    ) -> Run<()> {
        match target {
            Target::Buffer(slot) => {
                if let Some(Bound { memory: Source::Memory(memory), base, .. }) = &m.buffers[slot] {
                    memory.scatter(lanes, &at.map(|o| o.wrapping_add(*base)), width(bytes), values);
                }
            }
            Target::Group(start, _) => return group.scatter((lanes, start), at, bytes, values),
            Target::Thread => self.scatter_thread(lanes, at, bytes, values),
            // Checked before: constants are read-only.
            Target::Constants => {}
        }
        Ok(())
    }

    /// Copies an object of each lane, in the largest steps that its alignment allows.
    pub(super) fn copy(
        &mut self,
        m: &Machine,
        group: &mut GroupMemory,
        (to, from): (Row, Row),
        (bytes, align): (u32, u32),
    ) -> Run<()> {
        if self.mask == 0 {
            return Ok(());
        }
        let (to, from) = (self.pointers(to, 0), self.pointers(from, 0));
        let step = align.min(4);
        let thread = |p: &[u64; 32], lane: usize| p[lane] >> 48 == u64::from(TAG_THREAD);
        let first = self.mask.trailing_zeros() as usize;
        // Values that are missing stay missing on the way from a thread to itself.
        let quiet = thread(&to, first) && thread(&from, first);
        let read = Access { bytes, align, write: false };
        let write = Access { bytes, align, write: true };
        let mut values = vec![[0; 32]; (bytes / step) as usize];
        let mut marks = vec![u32::MAX; if quiet { bytes as usize } else { 0 }];
        self.each_memory(m, &from, read, &mut |simd, target, lanes, offsets| {
            for (k, row) in values.iter_mut().enumerate() {
                let at = offsets.map(|o| o.wrapping_add(k as u64 * u64::from(step)));
                if quiet {
                    simd.peek_thread(lanes, &at, step, row, &mut marks[k * step as usize..]);
                } else {
                    simd.fetch_words(m, group, (target, lanes), &at, step, row)?;
                }
            }
            Ok(())
        })?;
        self.each_memory(m, &to, write, &mut |simd, target, lanes, offsets| {
            for (k, row) in values.iter().enumerate() {
                let at = offsets.map(|o| o.wrapping_add(k as u64 * u64::from(step)));
                simd.put_words(m, group, (target, lanes), &at, step, row)?;
                if quiet {
                    simd.unmark_thread(lanes, &at, step, &marks[k * step as usize..]);
                }
            }
            Ok(())
        })
    }
}

/// Fails for the first lane whose access is not inside or not aligned.
fn check(m: &Machine, target: Target, lanes: u32, offsets: &Offsets, access: Access) -> Run<()> {
    let len = m.len(target);
    let most = len.checked_sub(access.bytes.into());
    let limit = most.unwrap_or(0);
    // The address is aligned if the binding's start and the offset are.
    let base = match target {
        Target::Buffer(slot) => m.buffers[slot].as_ref().map_or(0, |b| b.base),
        _ => 0,
    };
    let low = u64::from(access.align) - 1;
    let mut bad = 0;
    for (lane, offset) in offsets.iter().enumerate() {
        bad |= u32::from(*offset > limit || (offset.wrapping_add(base)) & low != 0) << lane;
    }
    if most.is_none() {
        bad = u32::MAX;
    }
    let read_only = access.write
        && match target {
            Target::Buffer(slot) => m.buffers[slot].as_ref().is_none_or(|b| !b.writable),
            Target::Constants => true,
            _ => false,
        };
    if bad & lanes == 0 && !read_only {
        return Ok(());
    }
    let memory: Box<str> = m.name(target).into();
    if bad & lanes == 0 {
        return trouble(FaultKind::ReadOnly { memory }, lanes.trailing_zeros() as usize);
    }
    let lane = (bad & lanes).trailing_zeros() as usize;
    let offset = offsets[lane] as i64;
    if most.is_none_or(|most| offsets[lane] > most) {
        let (bytes, write) = (access.bytes, access.write);
        return trouble(FaultKind::OutOfBounds { memory, offset, bytes, len, write }, lane);
    }
    trouble(FaultKind::Misaligned { memory, offset, align: access.align }, lane)
}

/// Up to four bytes of a slice.
pub(super) fn little(bytes: &[u8], at: usize, count: usize) -> u32 {
    let mut raw = [0; 4];
    if let Some(part) = bytes.get(at..at + count) {
        raw[..count].copy_from_slice(part);
    }
    u32::from_le_bytes(raw)
}

impl Bound<'_> {
    pub(super) fn gather(&self, lanes: u32, at: &Offsets, width: Width, out: &mut Lanes) {
        match &self.memory {
            Source::Memory(memory) => {
                let at = at.map(|o| o.wrapping_add(self.base));
                memory.gather(lanes, &at, width, out);
            }
            Source::Bytes(bytes) => {
                for lane in ones(lanes) {
                    out[lane] = little(bytes, at[lane] as usize, width.bytes() as usize);
                }
            }
        }
    }
}
