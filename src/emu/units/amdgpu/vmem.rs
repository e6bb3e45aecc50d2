//! Vector memory: global, flat, scratch and buffer accesses of the active lanes.
//!
//! Source: AMD's ISA documents; docs/amd.md 2.9 (scratch: dwords interleaved over the lanes), docs/amd-isa.md 5.9.
//! Caches are coherent here; `shadow` finds where hardware's are not.

use super::Chip;
use super::bus::{Access, Window};
use super::decode::{PRIVATE_APERTURE, SHARED_APERTURE};
use super::fault::{FaultKind, R, fail};
use super::group::Unit;
use super::inst::{Inst, Operand, Scope};
use super::lanes::L;
use super::lds_exec::{claim, collect, deliver, lanes_of, operand, source, sources, targets};
use super::memory::{Kind, MemOp, Space, Width};
use super::shadow::{Accesses, How};
use super::wait::Counter;
use super::wave::{Wave, half_mask};

/// The address of one lane's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Global(u64),
    Lds(u64),
    /// Byte of the lane's own scratch.
    Scratch(u64),
    /// Outside a buffer's range: loads return zero, stores are dropped.
    Nowhere,
}

pub(super) fn execute(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp) -> R<()> {
    match op.kind {
        Kind::Cache(act) => {
            super::flush::execute(w, unit, i, act);
            return Ok(());
        }
        Kind::Load(width) if i.mem.to_lds => {
            issue(w, op.space, Counter::Load);
            load_to_lds(w, unit, i, op, width)?;
        }
        Kind::Load(width) => {
            issue(w, op.space, Counter::Load);
            load(w, unit, i, op, width)?;
            w.synchronises |= how_read(w.chip, i.mem.scope) != How::Read;
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
                w.synchronises |= op.space != Space::Scratch;
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
        // gfx9 takes a buffer that is not indexed as bytes, whatever its stride.
        let is_raw = w.chip == Chip::Gfx942 && !i.mem.idxen;
        let stride = if is_raw { 0 } else { lo >> 48 & 0x3fff };
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

    /// The addresses of all lanes in global memory; those of inactive lanes are meaningless.
    fn all(&self, w: &Wave) -> [u64; 64] {
        let base = self.base.wrapping_add_signed(self.offset);
        let mut out = [base; 64];
        for h in 0..w.halves {
            let half = &mut out[32 * h..32 * h + 32];
            for (register, shift) in [(self.low, 0), (self.high, 32)] {
                let Some(place) = register else { continue };
                for (va, part) in half.iter_mut().zip(w.half(place, h)) {
                    *va = va.wrapping_add(u64::from(*part) << shift);
                }
            }
        }
        out
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

/// The global address of the first lane's access.
pub(super) fn first_address(w: &Wave, i: &Inst, op: MemOp) -> Option<u64> {
    let lane = lanes_of(w.exec()).next()?;
    match Addresses::new(w, i, op).ok()?.of(w, lane, 4) {
        Target::Global(va) => Some(va),
        _ => None,
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
    w.accesses(lane);
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
    w.accesses(lane);
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
    // Addresses first: the destination may be one of the address registers.
    let accessed = if width.bytes >= 4 && op.space == Space::Global {
        load_global(w, unit, &addresses, width, &to)?
    } else {
        load_lanes(w, unit, &addresses, width, &to)?
    };
    let value = |lane: usize, n: usize| {
        let v = w.lane(to[n], lane);
        if width.half == Some(true) { v >> 16 } else { v }
    };
    record(w, unit, how_read(w.chip, i.mem.scope), width.bytes, &accessed, value)
}

/// The caches that a load reads: gfx11's glc bypasses the vector caches alone, the widest scope of the others L2 too.
fn how_read(chip: Chip, scope: Scope) -> How {
    match (chip, scope) {
        (Chip::Gfx942 | Chip::Gfx1201, Scope::System) => How::PastL2,
        (_, Scope::Agent | Scope::System) | (Chip::Gfx1201, Scope::Group) => How::Coherent,
        _ => How::Read,
    }
}

/// Lanes that touch global memory, and where.
type Accessed = (u64, [u64; 64]);

fn record(
    w: &Wave,
    unit: &mut Unit,
    how: How,
    len_bytes: u32,
    (lanes, at): &Accessed,
    value: impl Fn(usize, usize) -> u32,
) -> R<()> {
    let Some(shadow) = &mut unit.tlb.shadow else { return Ok(()) };
    let lds = &unit.lds;
    shadow.record(w, &Accesses { how, lanes: *lanes, at, len_bytes }, value, |wave| lds.stores_done(wave))
}

/// Whole dwords of global memory: in one piece where the lanes lie in one window.
fn load_global(w: &mut Wave, unit: &mut Unit, addresses: &Addresses, width: Width, to: &[usize; 4]) -> R<Accessed> {
    let at = addresses.all(w);
    if let Some(first) = consecutive(w, &at, width.bytes) {
        load_row(w, unit, to, first, width.bytes)?;
        return Ok((w.full(), at));
    }
    let exec = w.exec();
    if let Some((start, len_bytes)) = span(exec, &at, width.bytes)
        && let Ok(window) = unit.tlb.window(start, len_bytes, Access::Read)
    {
        let shared = len_bytes == u64::from(width.bytes);
        gather(w, window, &at, shared, &to[..width.bytes as usize / 4]);
        return Ok((if shared { exec & exec.wrapping_neg() } else { exec }, at));
    }
    load_lanes(w, unit, addresses, width, to)
}

fn load_lanes(w: &mut Wave, unit: &mut Unit, addresses: &Addresses, width: Width, to: &[usize; 4]) -> R<Accessed> {
    let all: [Target; 64] = resolve(w, addresses, width.bytes);
    for lane in lanes_of(w.exec()) {
        let mut bytes = [0; 16];
        read_target(w, unit, lane, all[lane], &mut bytes[..width.bytes as usize])?;
        deliver(w, to, lane, &bytes, width);
    }
    Ok(global_of(w.exec(), &all))
}

/// Which of the lanes went to global memory.
fn global_of(exec: u64, all: &[Target; 64]) -> Accessed {
    let (mut lanes, mut at) = (0, [0; 64]);
    for lane in lanes_of(exec) {
        if let Target::Global(va) = all[lane] {
            (lanes, at[lane]) = (lanes | 1 << lane, va);
        }
    }
    (lanes, at)
}

fn resolve(w: &Wave, addresses: &Addresses, len_bytes: u32) -> [Target; 64] {
    let mut all = [Target::Nowhere; 64];
    for lane in lanes_of(w.exec()) {
        all[lane] = addresses.of(w, lane, len_bytes);
    }
    all
}

/// The first address when all lanes are active and consecutive.
fn consecutive(w: &Wave, at: &[u64; 64], len_bytes: u32) -> Option<u64> {
    if w.exec() != w.full() || !len_bytes.is_multiple_of(4) || at[1] != at[0].wrapping_add(len_bytes.into()) {
        return None;
    }
    let next = |n: usize| at[0].wrapping_add(n as u64 * u64::from(len_bytes));
    (2..w.lanes() as usize).all(|n| at[n] == next(n)).then_some(at[0])
}

/// First byte and length of the bytes that the lanes access together; `None` when no lane is active, or the range is
/// too long.
fn span(lanes: u64, at: &[u64; 64], len_bytes: u32) -> Option<(u64, u64)> {
    let (mut low, mut high) = (u64::MAX, 0);
    for lane in lanes_of(lanes) {
        (low, high) = (low.min(at[lane]), high.max(at[lane]));
    }
    let end = high.checked_add(len_bytes.into())?;
    (low < end).then(|| (low, end - low))
}

/// Dwords from one window into the registers; lanes that share an address read it once.
fn gather(w: &mut Wave, window: &Window, at: &[u64; 64], shared: bool, to: &[usize]) {
    let exec = w.exec();
    let mut rows = [[0; 64]; 4];
    let offsets = at.map(|va| va.wrapping_sub(window.va_start));
    if shared {
        let lane = exec.trailing_zeros() as usize & 63;
        window.memory.gather(1 << lane, &offsets, to.len(), &mut rows);
        for row in &mut rows[..to.len()] {
            *row = [row[lane]; 64];
        }
    } else {
        window.memory.gather(exec, &offsets, to.len(), &mut rows);
    }
    for (place, row) in to.iter().zip(&rows) {
        for h in 0..w.halves {
            // PANIC: 32 of 64 lanes.
            let half: &L = row[32 * h..32 * h + 32].try_into().expect("half a wave");
            w.put_half(*place, h, half, half_mask(exec, h));
        }
    }
}

/// A whole row in one read.
fn load_row(w: &mut Wave, unit: &mut Unit, to: &[usize; 4], first: u64, len_bytes: u32) -> R<()> {
    let (lanes, words) = (w.lanes() as usize, (len_bytes / 4) as usize);
    if words == 1 {
        let mut row = [[0u32; 32]; 2];
        unit.tlb.read(first, bytemuck::cast_slice_mut(&mut row.as_flattened_mut()[..lanes]))?;
        for (h, half) in row.iter_mut().enumerate().take(w.halves) {
            half.iter_mut().for_each(|v| *v = u32::from_le(*v));
            w.put_half(to[0], h, half, u32::MAX);
        }
        return Ok(());
    }
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
    let global = width.bytes >= 4 && op.space == Space::Global;
    let accessed = match if global { scatter(w, unit, &addresses, width, &from) } else { None } {
        Some(accessed) => accessed,
        None => {
            let all = resolve(w, &addresses, width.bytes);
            for lane in lanes_of(w.exec()) {
                let bytes = collect(w, &from, lane, width);
                write_target(w, unit, lane, all[lane], &bytes[..width.bytes as usize])?;
            }
            global_of(w.exec(), &all)
        }
    };
    let through = match w.chip {
        Chip::Gfx1100 => false,
        Chip::Gfx942 => i.mem.scope >= Scope::Agent,
        Chip::Gfx1201 => i.mem.scope == Scope::System,
    };
    let value = |lane: usize, n: usize| {
        let v = w.lane(from[n], lane);
        if width.half == Some(true) { v >> 16 } else { v }
    };
    record(w, unit, if through { How::WriteThrough } else { How::Write }, width.bytes, &accessed, value)
}

/// Whole dwords to one window; `None` when the lanes do not lie in one that may be written.
fn scatter(w: &Wave, unit: &mut Unit, addresses: &Addresses, width: Width, from: &[usize; 4]) -> Option<Accessed> {
    let (at, words) = (addresses.all(w), width.bytes as usize / 4);
    let (start, len_bytes) = span(w.exec(), &at, width.bytes)?;
    let window = unit.tlb.window(start, len_bytes, Access::Write).ok()?;
    if words == 1 && consecutive(w, &at, width.bytes).is_some() {
        let mut row = [[0u32; 32]; 2];
        for (h, half) in row.iter_mut().enumerate().take(w.halves) {
            *half = w.half(from[0], h).map(u32::to_le);
        }
        let bytes = bytemuck::cast_slice(&row.as_flattened()[..w.lanes() as usize]);
        window.memory.write(start.wrapping_sub(window.va_start), bytes);
        return Some((w.exec(), at));
    }
    let mut rows = [[0; 64]; 4];
    for (row, place) in rows.iter_mut().zip(&from[..words]) {
        for h in 0..w.halves {
            row[32 * h..32 * h + 32].copy_from_slice(w.half(*place, h));
        }
    }
    let offsets = at.map(|va| va.wrapping_sub(window.va_start));
    window.memory.scatter(w.exec(), &offsets, words, &rows);
    Some((w.exec(), at))
}

/// The data registers of a store. Spills may save unwritten lanes: scratch accepts them.
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
    let all = resolve(w, &addresses, align);
    let accessed = global_of(w.exec(), &all);
    record(w, unit, How::Atomic, align, &accessed, |_, _| 0)?;
    for lane in lanes_of(w.exec()) {
        w.accesses(lane);
        let v = operand(w, &data, 0, lane, wide);
        let second = if rmw.compares() { operand(w, &data, words, lane, wide) } else { 0 };
        let target = all[lane];
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

/// gfx942: each lane's dword goes to LDS at M0 plus the offset, one lane after the other.
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
