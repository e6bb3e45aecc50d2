//! Vector memory: global, flat, scratch and buffer accesses of the active lanes.
//!
//! Source: AMD's ISA documents; amd.md 2.9 (scratch: dwords interleaved over the lanes), 5.9. Caches are coherent here.

use super::decode::{PRIVATE_APERTURE, SHARED_APERTURE};
use super::fault::{FaultKind, R, fail};
use super::group::Unit;
use super::inst::{Inst, Operand};
use super::lds_exec::{claim, collect, deliver, lanes_of, operand, source, sources, targets};
use super::memory::{Kind, MemOp, Space, Width};
use super::wait::Counter;
use super::wave::Wave;

/// Where one lane's access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Global(u64),
    Lds(u64),
    /// Byte of the lane's own scratch.
    Scratch(u64),
    /// Outside a buffer's range: loads give zero, stores vanish.
    Nowhere,
}

pub(super) fn execute(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp) -> R<()> {
    match op.kind {
        Kind::Cache => return Ok(()),
        Kind::Load(width) => {
            issue(w, op.space, Counter::Load);
            load(w, unit, i, op, width)?;
            claim_all(w, op.space, i.dst, u32::from(op.ret))?;
        }
        Kind::Store(width) => {
            issue(w, op.space, Counter::Store);
            store(w, unit, i, op, width)?;
        }
        Kind::Atomic { .. } => {
            issue(w, op.space, if i.mem.returns { Counter::Load } else { Counter::Store });
            atomic(w, unit, i, op)?;
            if i.mem.returns {
                claim_all(w, op.space, i.dst, u32::from(op.ret))?;
            }
        }
        Kind::LoadToLds(width) => {
            issue(w, op.space, Counter::Load);
            load_to_lds(w, unit, i, op, width)?;
        }
        Kind::Transpose { bytes } => {
            issue(w, op.space, Counter::Load);
            transpose(w, unit, i, op, bytes)?;
            claim_all(w, op.space, i.dst, u32::from(op.ret))?;
        }
        _ => return fail(FaultKind::NotModelled { name: i.entry.name.into() }),
    }
    w.lane_operations += u64::from(w.exec().count_ones());
    Ok(())
}

/// Flat accesses may end in LDS and count there too.
fn issue(w: &mut Wave, space: Space, counter: Counter) {
    w.waits.issue(counter);
    if space == Space::Flat {
        w.waits.issue(Counter::Lds);
    }
}

fn claim_all(w: &mut Wave, space: Space, dst: Operand, dwords: u32) -> R<()> {
    claim(w, dst, dwords, Counter::Load)?;
    if space == Space::Flat {
        claim(w, dst, dwords, Counter::Lds)?;
    }
    Ok(())
}

/// Address arithmetic of one instruction, checked once.
struct Addresses {
    space: Space,
    low: Option<usize>,
    high: Option<usize>,
    base: u64,
    offset: i64,
    buffer: Option<Buffer>,
}

struct Buffer {
    stride: u64,
    records: u64,
    index: Option<usize>,
    byte: Option<usize>,
    soffset: u64,
}

impl Addresses {
    fn new(w: &Wave, i: &Inst, op: MemOp) -> R<Self> {
        let m = &i.mem;
        let offset = i64::from(m.offset);
        let mut a = Self { space: op.space, low: None, high: None, base: 0, offset, buffer: None };
        match op.space {
            Space::Buffer => a.resource(w, i)?,
            Space::Scratch => {
                a.low = if m.addr == Operand::None { None } else { Some(source(w, m.addr, 0)?) };
                a.base = if m.base == Operand::None { 0 } else { w.scalar_operand(m.base, 1)? };
            }
            _ => {
                a.low = Some(source(w, m.addr, 0)?);
                if m.base == Operand::None || m.base == Operand::Null {
                    if let Operand::V(n) = m.addr {
                        super::valu::check_even(w, n, 2)?;
                    }
                    a.high = Some(source(w, m.addr, 1)?);
                } else {
                    a.base = w.scalar_operand(m.base, 2)?;
                }
            }
        }
        Ok(a)
    }

    /// Fields of a buffer resource: base, stride, records; swizzled buffers are not modelled.
    fn resource(&mut self, w: &Wave, i: &Inst) -> R<()> {
        let Operand::S(first) = i.mem.base else { return Ok(()) };
        w.check_tuple('s', first.into(), 4)?;
        let (lo, hi) = (w.read_scalars(first, 2)?, w.read_scalars(first + 2, 2)?);
        let stride = lo >> 48 & 0x3fff;
        if stride != 0 && lo >> 62 & 1 == 1 {
            return fail(FaultKind::NotModelled { name: format!("{} on a swizzled buffer", i.entry.name) });
        }
        self.base = lo & 0xffff_ffff_ffff;
        let (idx, off) = (i.mem.idxen, i.mem.offen);
        let register = |n: u32| source(w, i.mem.addr, n).map(Some);
        self.buffer = Some(Buffer {
            stride,
            records: hi & 0xffff_ffff,
            index: if idx { register(0)? } else { None },
            byte: if off { register(u32::from(idx))? } else { None },
            soffset: w.scalar_operand(i.mem.soffset, 1)?,
        });
        Ok(())
    }

    fn of(&self, w: &Wave, lane: usize, len_bytes: u32) -> Target {
        let part = |at: Option<usize>| at.map_or(0, |at| u64::from(w.lane(at, lane)));
        if let Some(b) = &self.buffer {
            let (index, byte) = (part(b.index), part(b.byte).wrapping_add_signed(self.offset));
            let outside = match b.stride {
                0 => byte + b.soffset + u64::from(len_bytes) > b.records,
                _ => index >= b.records || byte + u64::from(len_bytes) > b.stride,
            };
            if outside {
                return Target::Nowhere;
            }
            return Target::Global(self.base + index * b.stride + byte + b.soffset);
        }
        let va = part(self.low) | part(self.high) << 32;
        let va = self.base.wrapping_add(va).wrapping_add_signed(self.offset);
        match self.space {
            Space::Scratch => Target::Scratch(va & 0xffff_ffff),
            Space::Flat if va >> 32 == SHARED_APERTURE >> 32 => Target::Lds(va & 0xffff_ffff),
            Space::Flat if va >> 32 == PRIVATE_APERTURE >> 32 => Target::Scratch(va & 0xffff_ffff),
            _ => Target::Global(va),
        }
    }
}

/// Address of a byte of a lane's scratch: dwords are interleaved over the lanes.
fn scratch_address(w: &Wave, lane: usize, offset: u64, len_bytes: u32) -> R<u64> {
    if offset + u64::from(len_bytes) > u64::from(w.scratch_lane_bytes) {
        return fail(FaultKind::ScratchOutOfRange { offset, len_bytes, size_bytes: w.scratch_lane_bytes });
    }
    Ok(w.scratch_base + (offset & !3) * u64::from(w.lanes()) + 4 * lane as u64 + (offset & 3))
}

/// Pieces of a scratch access that do not cross a dword.
fn scratch_pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let here = offset + at as u64;
        let n = (4 - (here & 3) as usize).min(len - at);
        (at < len).then(|| {
            at += n;
            (here, at - n, n)
        })
    })
}

fn read_target(w: &Wave, unit: &mut Unit, lane: usize, target: Target, into: &mut [u8]) -> R<()> {
    match target {
        Target::Global(va) => unit.tlb.read(va, into),
        Target::Lds(offset) => unit.lds.read(w, offset, into),
        Target::Nowhere => {
            into.fill(0);
            Ok(())
        }
        Target::Scratch(offset) => {
            for (here, at, n) in scratch_pieces(offset, into.len()) {
                let va = scratch_address(w, lane, here, n as u32)?;
                unit.tlb.read(va, &mut into[at..at + n])?;
            }
            Ok(())
        }
    }
}

fn write_target(w: &Wave, unit: &mut Unit, lane: usize, target: Target, from: &[u8]) -> R<()> {
    match target {
        Target::Global(va) => unit.tlb.write(va, from),
        Target::Lds(offset) => unit.lds.write(w, offset, from),
        Target::Nowhere => Ok(()),
        Target::Scratch(offset) => {
            for (here, at, n) in scratch_pieces(offset, from.len()) {
                let va = scratch_address(w, lane, here, n as u32)?;
                unit.tlb.write(va, &from[at..at + n])?;
            }
            Ok(())
        }
    }
}

fn load(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp, width: Width) -> R<()> {
    let addresses = Addresses::new(w, i, op)?;
    let to = targets(w, i.dst, width.bytes.div_ceil(4), Counter::Load)?;
    let len = width.bytes as usize;
    // Addresses first: the destination may be one of the address registers.
    let all: [Target; 64] = resolve(w, &addresses, width.bytes);
    if let Some(first) = consecutive(w, &all, width.bytes) {
        return load_row(w, unit, &to, first, width.bytes);
    }
    for lane in lanes_of(w.exec()) {
        let mut bytes = [0; 16];
        read_target(w, unit, lane, all[lane], &mut bytes[..len])?;
        deliver(w, &to, lane, &bytes, width);
    }
    Ok(())
}

fn resolve(w: &Wave, addresses: &Addresses, len_bytes: u32) -> [Target; 64] {
    let mut all = [Target::Nowhere; 64];
    for lane in lanes_of(w.exec()) {
        all[lane] = addresses.of(w, lane, len_bytes);
    }
    all
}

/// The first address when all lanes are on and lie one behind the other in global memory.
fn consecutive(w: &Wave, all: &[Target; 64], len_bytes: u32) -> Option<u64> {
    let Target::Global(first) = all[0] else { return None };
    let lanes = w.lanes() as usize;
    let row = w.exec() == w.full() && len_bytes.is_multiple_of(4);
    let next = |n: usize| Target::Global(first.wrapping_add(n as u64 * u64::from(len_bytes)));
    (row && (1..lanes).all(|n| all[n] == next(n))).then_some(first)
}

/// A whole row in one read.
fn load_row(w: &mut Wave, unit: &mut Unit, to: &[usize; 4], first: u64, len_bytes: u32) -> R<()> {
    let (lanes, words) = (w.lanes() as usize, (len_bytes / 4) as usize);
    let mut row = [0u8; 64 * 16];
    let bytes = &mut row[..lanes * len_bytes as usize];
    unit.tlb.read(first, bytes)?;
    for (d, place) in to.iter().enumerate().take(words) {
        for h in 0..w.halves {
            let value = std::array::from_fn(|k| {
                let at = ((32 * h + k) * words + d) * 4;
                u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            });
            w.put_half(*place, h, &value, u32::MAX);
        }
    }
    Ok(())
}

fn store(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp, width: Width) -> R<()> {
    let addresses = Addresses::new(w, i, op)?;
    let from = stored(w, i, op, width)?;
    let len = width.bytes as usize;
    let all = resolve(w, &addresses, width.bytes);
    if let Some(first) = consecutive(w, &all, width.bytes) {
        let mut row = [0u8; 64 * 16];
        for lane in 0..w.lanes() as usize {
            row[lane * len..(lane + 1) * len].copy_from_slice(&collect(w, &from, lane, width)[..len]);
        }
        return unit.tlb.write(first, &row[..w.lanes() as usize * len]);
    }
    for lane in lanes_of(w.exec()) {
        let bytes = collect(w, &from, lane, width);
        write_target(w, unit, lane, all[lane], &bytes[..len])?;
    }
    Ok(())
}

/// The data registers of a store. Spills may save lanes that nobody wrote: scratch takes them.
fn stored(w: &Wave, i: &Inst, op: MemOp, width: Width) -> R<[usize; 4]> {
    let dwords = width.bytes.div_ceil(4);
    if op.space != Space::Scratch {
        return sources(w, i.mem.data, dwords);
    }
    let mut out = [0; 4];
    if let Operand::V(n) = i.mem.data {
        for r in 0..dwords.min(4) {
            out[r as usize] = w.readable(u32::from(n) + r, 0)?;
        }
    }
    Ok(out)
}

fn atomic(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp) -> R<()> {
    let Kind::Atomic { op: rmw, wide } = op.kind else { return Ok(()) };
    let addresses = Addresses::new(w, i, op)?;
    let words = 1 + usize::from(wide);
    let data = sources(w, i.mem.data, u32::from(op.data))?;
    let to = targets(w, i.dst, if i.mem.returns { words as u32 } else { 0 }, Counter::Load)?;
    let align = if wide { 8 } else { 4 };
    for lane in lanes_of(w.exec()) {
        let v = operand(w, &data, 0, lane, wide);
        let second = if rmw.compares() { operand(w, &data, words, lane, wide) } else { 0 };
        let target = addresses.of(w, lane, align);
        let old = match target {
            Target::Global(va) | Target::Lds(va) if !va.is_multiple_of(align.into()) => {
                return fail(FaultKind::Misaligned { va, align });
            }
            Target::Global(va) if wide => unit.tlb.update_u64(va, &mut |old| rmw.apply(true, old, v, second))?,
            Target::Global(va) => {
                unit.tlb.update_u32(va, &mut |old| rmw.apply(false, old.into(), v, second) as u32)?.into()
            }
            Target::Lds(offset) => unit.lds.update(w, offset, wide, |old| rmw.apply(wide, old, v, second))?,
            _ => {
                let mut bytes = [0; 8];
                let len = align as usize;
                read_target(w, unit, lane, target, &mut bytes[..len])?;
                let old = u64::from_le_bytes(bytes);
                let new = rmw.apply(wide, old, v, second).to_le_bytes();
                write_target(w, unit, lane, target, &new[..len])?;
                old
            }
        };
        if i.mem.returns {
            w.put_lane(to[0], lane, old as u32);
            if wide {
                w.put_lane(to[1], lane, (old >> 32) as u32);
            }
        }
    }
    Ok(())
}

/// gfx942: each lane's dword goes to LDS at M0 plus the offset, one lane behind the other.
fn load_to_lds(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp, width: Width) -> R<()> {
    let addresses = Addresses::new(w, i, op)?;
    let base = w.scalar_operand(Operand::S(super::inst::M0), 1)? & 0xffff;
    for lane in lanes_of(w.exec()) {
        let mut bytes = [0; 16];
        let len = width.bytes as usize;
        read_target(w, unit, lane, addresses.of(w, lane, width.bytes), &mut bytes[..len])?;
        let v = match (width.bytes, width.signed) {
            (1, true) => i32::from(bytes[0] as i8) as u32,
            (2, true) => i32::from(i16::from_le_bytes([bytes[0], bytes[1]])) as u32,
            _ => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        };
        let at = base.wrapping_add_signed(i64::from(i.mem.offset)) + 4 * lane as u64;
        unit.lds.write(w, at, &v.to_le_bytes())?;
    }
    Ok(())
}

/// gfx12: sixteen lanes load rows of 16-bit (b128) or 8-bit (b64) elements and get columns.
fn transpose(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp, bytes: u32) -> R<()> {
    if w.exec() != w.full() || !w.is_wave32() {
        return fail(FaultKind::NotModelled { name: format!("{} but in a full wave32", i.entry.name) });
    }
    let addresses = Addresses::new(w, i, op)?;
    let to = targets(w, i.dst, bytes / 4, Counter::Load)?;
    let mut rows = vec![[0u8; 16]; 32];
    for (lane, row) in rows.iter_mut().enumerate() {
        read_target(w, unit, lane, addresses.of(w, lane, bytes), &mut row[..bytes as usize])?;
    }
    // 16 x 16 elements over 32 lanes, eight a lane: lane l holds row l % 16, columns 8 * (l / 16)...
    let element = if bytes == 16 { 2 } else { 1 };
    for lane in 0..32 {
        let mut out = [0u8; 16];
        for e in 0..8 {
            let (row, col) = (8 * (lane / 16) + e, lane % 16);
            let from = row % 16 + 16 * (col / 8);
            let at = col % 8 * element;
            out[e * element..(e + 1) * element].copy_from_slice(&rows[from][at..at + element]);
        }
        let width = Width { bytes, signed: false, half: None, by_lane: false };
        deliver(w, &to, lane, &out, width);
    }
    Ok(())
}
