//! DS instructions: loads, stores, pairs, atomics, and the permutations that use the LDS crossbar without its memory.
//!
//! Source: AMD's ISA documents; docs/amd-isa.md 5.5 (ds_bpermute within halves of wave64 on gfx11 and gfx12).

use super::Chip;
pub(super) use super::bus::ones as lanes_of;
use super::fault::{FaultKind, R, fail};
use super::inst::{Inst, M0, Operand};
use super::lds::Lds;
use super::memory::{Kind, MemOp, Width};
use super::wait::Counter;
use super::wave::{Wave, half_mask};

pub(super) fn execute(w: &mut Wave, lds: &mut Lds, i: &Inst, op: MemOp) -> R<()> {
    if matches!(op.kind, Kind::Cache(_)) {
        return Ok(());
    }
    w.waits.issue(Counter::Lds);
    let dwords = u32::from(op.ret);
    match op.kind {
        Kind::Load(width) => load(w, lds, i, width)?,
        Kind::Store(width) => store(w, lds, i, width)?,
        Kind::Load2 { bytes, stride } => load2(w, lds, i, bytes, stride)?,
        Kind::Store2 { bytes, stride } => store2(w, lds, i, bytes, stride)?,
        Kind::Exchange2 { bytes, stride } => exchange2(w, lds, i, bytes, stride)?,
        Kind::Atomic { .. } => atomic(w, lds, i, op)?,
        Kind::Swizzle => swizzle(w, i)?,
        Kind::Permute { backward, fetch_inactive } => permute(w, i, backward, fetch_inactive)?,
        Kind::Append { consume } => append(w, lds, i, consume)?,
        _ => return fail(FaultKind::NotModelled { name: i.entry.name.into() }),
    }
    claim(w, i.dst, dwords, Counter::Lds)?;
    w.lane_operations += u64::from(w.exec().count_ones());
    Ok(())
}

/// Marks the destination of a load in flight.
pub(super) fn claim(w: &mut Wave, dst: Operand, dwords: u32, counter: Counter) -> R<()> {
    if let Operand::V(n) = dst {
        for r in 0..dwords {
            let at = w.register_index(u32::from(n) + r)?;
            w.waits.claims(at, counter);
        }
    }
    Ok(())
}

/// A vector operand's place, checked for reading by the active lanes.
pub(super) fn source(w: &Wave, operand: Operand, dword: u32) -> R<usize> {
    match operand {
        Operand::V(n) => w.readable(u32::from(n) + dword, w.exec()),
        other => fail(FaultKind::BadOperand { what: format!("{other} where a vector register belongs") }),
    }
}

/// Places of a destination tuple, checked for writing.
pub(super) fn targets(w: &Wave, dst: Operand, dwords: u32, counter: Counter) -> R<[usize; 4]> {
    let mut out = [0; 4];
    if let Operand::V(n) = dst {
        super::valu::check_even(w, n, dwords)?;
        for r in 0..dwords.min(4) {
            out[r as usize] = w.writable_by_load(u32::from(n) + r, counter)?;
        }
    }
    Ok(out)
}

/// Places of a source tuple.
pub(super) fn sources(w: &Wave, src: Operand, dwords: u32) -> R<[usize; 4]> {
    let mut out = [0; 4];
    if let Operand::V(n) = src {
        super::valu::check_even(w, n, dwords)?;
    }
    for r in 0..dwords.min(4) {
        out[r as usize] = source(w, src, r)?;
    }
    Ok(out)
}

/// The address of each active lane: register plus offset, or by lane number.
fn address(w: &Wave, i: &Inst, width: Option<Width>) -> R<impl Fn(&Wave, usize) -> u64 + use<>> {
    let offset = i.mem.offset as u64;
    let by_lane = width.is_some_and(|x| x.by_lane);
    let base = if by_lane { w.scalar_operand(Operand::S(M0), 1)? & 0xffff } else { 0 };
    let at = if by_lane { 0 } else { source(w, i.mem.addr, 0)? };
    Ok(move |w: &Wave, lane: usize| {
        w.accesses(lane);
        if by_lane { base + offset + 4 * lane as u64 } else { (u64::from(w.lane(at, lane)) + offset) & 0xffff_ffff }
    })
}

/// Puts what a lane loaded into its registers.
pub(super) fn deliver(w: &mut Wave, to: &[usize; 4], lane: usize, bytes: &[u8; 16], width: Width) {
    if width.bytes >= 4 {
        for d in 0..(width.bytes / 4) as usize {
            // PANIC: four bytes of a 16-byte array.
            let v = u32::from_le_bytes(bytes[4 * d..4 * d + 4].try_into().expect("four bytes"));
            w.put_lane(to[d], lane, v);
        }
        return;
    }
    let v = match (width.bytes, width.signed) {
        (1, false) => u32::from(bytes[0]),
        (1, true) => i32::from(bytes[0] as i8) as u32,
        (_, false) => u32::from(u16::from_le_bytes([bytes[0], bytes[1]])),
        (_, true) => i32::from(i16::from_le_bytes([bytes[0], bytes[1]])) as u32,
    };
    let old = w.lane(to[0], lane);
    let v = match width.half {
        None => v,
        Some(false) => old & 0xffff_0000 | v & 0xffff,
        Some(true) => old & 0xffff | v << 16,
    };
    w.put_lane(to[0], lane, v);
}

/// The bytes a lane stores.
pub(super) fn collect(w: &Wave, from: &[usize; 4], lane: usize, width: Width) -> [u8; 16] {
    let mut out = [0; 16];
    for d in 0..width.bytes.div_ceil(4) as usize {
        let v = w.lane(from[d], lane);
        let v = if width.half == Some(true) { v >> 16 } else { v };
        out[4 * d..4 * d + 4].copy_from_slice(&v.to_le_bytes());
    }
    out
}

fn load(w: &mut Wave, lds: &mut Lds, i: &Inst, width: Width) -> R<()> {
    if width.bytes == 4 && !width.by_lane {
        let at = source(w, i.mem.addr, 0)?;
        let to = targets(w, i.dst, 1, Counter::Lds)?;
        return load_words(w, lds, at, i.mem.offset as u64, to[0]);
    }
    let addr = address(w, i, Some(width))?;
    let to = targets(w, i.dst, width.bytes.div_ceil(4), Counter::Lds)?;
    for lane in lanes_of(w.exec()) {
        let mut bytes = [0; 16];
        lds.read(w, addr(w, lane), &mut bytes[..width.bytes as usize])?;
        deliver(w, &to, lane, &bytes, width);
    }
    Ok(())
}

/// A dword a lane; neighbours with one address read it once.
fn load_words(w: &mut Wave, lds: &mut Lds, at: usize, offset: u64, to: usize) -> R<()> {
    let exec = w.exec();
    for h in 0..w.halves {
        let (mut last, mut value, mut out) = (u64::MAX, 0, [0; 32]);
        let addresses = w.half(at, h);
        for k in lanes_of(half_mask(exec, h).into()) {
            let at = (u64::from(addresses[k & 31]) + offset) & 0xffff_ffff;
            if last != at {
                w.accesses(32 * h + k);
                (last, value) = (at, lds.word(w, at)?);
            }
            out[k & 31] = value;
        }
        w.put_half(to, h, &out, half_mask(exec, h));
    }
    Ok(())
}

/// A dword a lane.
fn store_words(w: &mut Wave, lds: &mut Lds, at: usize, offset: u64, from: usize) -> R<()> {
    let exec = w.exec();
    for h in 0..w.halves {
        let (addresses, values) = (w.half(at, h), w.half(from, h));
        for k in lanes_of(half_mask(exec, h).into()) {
            w.accesses(32 * h + k);
            lds.put_word(w, (u64::from(addresses[k & 31]) + offset) & 0xffff_ffff, values[k & 31])?;
        }
    }
    Ok(())
}

fn store(w: &mut Wave, lds: &mut Lds, i: &Inst, width: Width) -> R<()> {
    if width.bytes == 4 && !width.by_lane {
        let at = source(w, i.mem.addr, 0)?;
        let from = sources(w, i.mem.data, 1)?;
        return store_words(w, lds, at, i.mem.offset as u64, from[0]);
    }
    let addr = address(w, i, Some(width))?;
    let from = sources(w, i.mem.data, width.bytes.div_ceil(4))?;
    for lane in lanes_of(w.exec()) {
        let bytes = collect(w, &from, lane, width);
        lds.write(w, addr(w, lane), &bytes[..width.bytes as usize])?;
    }
    Ok(())
}

/// The two addresses of a paired access.
fn both(i: &Inst, base: u64, stride: u32) -> [u64; 2] {
    [i.mem.offset as u64, u64::from(i.mem.offset1)].map(|unit| (base + unit * u64::from(stride)) & 0xffff_ffff)
}

const fn dwords(bytes: u32) -> Width {
    Width { bytes, signed: false, half: None, by_lane: false }
}

fn load2(w: &mut Wave, lds: &mut Lds, i: &Inst, bytes: u32, stride: u32) -> R<()> {
    let at = source(w, i.mem.addr, 0)?;
    let to = targets(w, i.dst, bytes / 2, Counter::Lds)?;
    let len = bytes as usize;
    for lane in lanes_of(w.exec()) {
        w.accesses(lane);
        let [a, b] = both(i, w.lane(at, lane).into(), stride);
        let mut data = [0; 16];
        lds.read(w, a, &mut data[..len])?;
        lds.read(w, b, &mut data[len..2 * len])?;
        deliver(w, &to, lane, &data, dwords(2 * bytes));
    }
    Ok(())
}

fn store2(w: &mut Wave, lds: &mut Lds, i: &Inst, bytes: u32, stride: u32) -> R<()> {
    let at = source(w, i.mem.addr, 0)?;
    let (first, second) = (sources(w, i.mem.data, bytes / 4)?, sources(w, i.mem.data1, bytes / 4)?);
    for lane in lanes_of(w.exec()) {
        w.accesses(lane);
        let [a, b] = both(i, w.lane(at, lane).into(), stride);
        lds.write(w, a, &collect(w, &first, lane, dwords(bytes))[..bytes as usize])?;
        lds.write(w, b, &collect(w, &second, lane, dwords(bytes))[..bytes as usize])?;
    }
    Ok(())
}

fn exchange2(w: &mut Wave, lds: &mut Lds, i: &Inst, bytes: u32, stride: u32) -> R<()> {
    let at = source(w, i.mem.addr, 0)?;
    let (first, second) = (sources(w, i.mem.data, bytes / 4)?, sources(w, i.mem.data1, bytes / 4)?);
    let to = targets(w, i.dst, bytes / 2, Counter::Lds)?;
    let (wide, len) = (bytes == 8, bytes as usize);
    for lane in lanes_of(w.exec()) {
        w.accesses(lane);
        let [a, b] = both(i, w.lane(at, lane).into(), stride);
        let value = |from: &[usize; 4]| {
            let raw = collect(w, from, lane, dwords(bytes));
            // PANIC: eight bytes of a 16-byte array.
            u64::from_le_bytes(raw[..8].try_into().expect("eight bytes"))
        };
        let (x, y) = (value(&first), value(&second));
        let mut data = [0; 16];
        data[..len].copy_from_slice(&lds.update(w, a, wide, |_| x)?.to_le_bytes()[..len]);
        data[len..2 * len].copy_from_slice(&lds.update(w, b, wide, |_| y)?.to_le_bytes()[..len]);
        deliver(w, &to, lane, &data, dwords(2 * bytes));
    }
    Ok(())
}

/// A 32- or 64-bit operand of an atomic.
pub(super) fn operand(w: &Wave, from: &[usize; 4], first: usize, lane: usize, wide: bool) -> u64 {
    let lo = u64::from(w.lane(from[first], lane));
    if wide { lo | u64::from(w.lane(from[first + 1], lane)) << 32 } else { lo }
}

fn atomic(w: &mut Wave, lds: &mut Lds, i: &Inst, op: MemOp) -> R<()> {
    let Kind::Atomic { op: rmw, wide } = op.kind else { return Ok(()) };
    let addr = address(w, i, None)?;
    let words = 1 + u32::from(wide);
    let first = sources(w, i.mem.data, words)?;
    let second = if rmw.compares() { sources(w, i.mem.data1, words)? } else { first };
    let to = targets(w, i.dst, if op.returns { words } else { 0 }, Counter::Lds)?;
    // gfx9 names the compared value first, gfx11 the new one.
    let swapped = w.chip == Chip::Gfx942 && rmw != super::atomic::Rmw::MaskOr && rmw.compares();
    for lane in lanes_of(w.exec()) {
        let (a, b) = (operand(w, &first, 0, lane, wide), operand(w, &second, 0, lane, wide));
        let (v, other) = if swapped { (b, a) } else { (a, b) };
        let old = lds.update(w, addr(w, lane), wide, |old| rmw.apply(wide, old, v, other))?;
        if op.returns {
            w.put_lane(to[0], lane, old as u32);
            if wide {
                w.put_lane(to[1], lane, (old >> 32) as u32);
            }
        }
    }
    Ok(())
}

/// ds_swizzle: a pattern in the offset; groups of 4, or and-or-xor masks within 32.
fn swizzle(w: &mut Wave, i: &Inst) -> R<()> {
    let Operand::V(n) = i.mem.addr else { return Ok(()) };
    let pattern = i.mem.offset as usize;
    let from = w.readable(n.into(), 0)?;
    let to = targets(w, i.dst, 1, Counter::Lds)?;
    let exec = w.exec();
    let old: Vec<u32> = (0..w.lanes() as usize).map(|l| w.lane(from, l)).collect();
    let mut read = 0;
    for lane in lanes_of(exec) {
        let (group, at) = (lane & !31, lane & 31);
        let pick = match pattern {
            p if p >= 0xe000 => return fail(FaultKind::NotModelled { name: "ds_swizzle_b32 FFT".into() }),
            p if p >= 0xc000 => {
                // Rotation of the lanes outside a mask.
                let (mask, count) = (p & 31, p >> 5 & 31);
                let n = if p >> 10 & 1 == 1 { (at + 32 - count) & 31 } else { (at + count) & 31 };
                at & mask | n & !mask
            }
            p if p & 0x8000 != 0 => at & !3 | p >> (2 * (at & 3)) & 3,
            p => ((at & (p & 31)) | (p >> 5 & 31)) ^ (p >> 10 & 31),
        };
        let source = group | pick;
        let active = exec >> source & 1 == 1;
        read |= u64::from(active) << source;
        w.put_lane(to[0], lane, if active { old[source] } else { 0 });
    }
    if to[0] != from {
        w.readable(n.into(), read)?;
    }
    Ok(())
}

/// ds_permute (push) and ds_bpermute (pull): addresses are four times a lane.
fn permute(w: &mut Wave, i: &Inst, backward: bool, fetch_inactive: bool) -> R<()> {
    let at = source(w, i.mem.addr, 0)?;
    let from = match i.mem.data {
        Operand::V(n) => w.readable(n.into(), 0)?,
        _ => return Ok(()),
    };
    let to = targets(w, i.dst, 1, Counter::Lds)?;
    let exec = w.exec();
    // On gfx11 and gfx12 the halves of a wave64 do not exchange values.
    let span = if w.chip == Chip::Gfx942 { 64 } else { 32 };
    let offset = i.mem.offset as usize;
    let mut out = [0u32; 64];
    let mut read = 0u64;
    for lane in lanes_of(exec) {
        let other = (w.lane(at, lane) as usize + offset) / 4 % span + lane / span * span;
        if backward {
            let active = exec >> other & 1 == 1 || fetch_inactive;
            read |= u64::from(active) << other;
            out[lane] = if active { w.lane(from, other) } else { 0 };
        } else {
            read |= 1 << lane;
            out[other] = w.lane(from, lane);
        }
    }
    if let Operand::V(n) = i.mem.data {
        w.readable(n.into(), read)?;
    }
    for lane in lanes_of(exec) {
        w.put_lane(to[0], lane, out[lane]);
    }
    Ok(())
}

/// ds_append and ds_consume: one counter moved by the number of active lanes, its old value to all.
fn append(w: &mut Wave, lds: &mut Lds, i: &Inst, consume: bool) -> R<()> {
    let base = w.scalar_operand(Operand::S(M0), 1)? & 0xffff;
    let to = targets(w, i.dst, 1, Counter::Lds)?;
    let count = u64::from(w.exec().count_ones());
    let old = lds.update(w, base + i.mem.offset as u64, false, |v| {
        if consume { v.wrapping_sub(count) } else { v.wrapping_add(count) }
    })?;
    for lane in lanes_of(w.exec()) {
        w.put_lane(to[0], lane, old as u32);
    }
    Ok(())
}
