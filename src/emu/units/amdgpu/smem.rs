//! Scalar memory: loads into scalar registers, stores of gfx942 (which go to memory at once), clocks.
//!
//! Source: AMD's ISA documents; docs/amd-isa.md 5.6 (results come out of order), 5.9 (low two address bits are
//! ignored).

use super::Chip;
use super::control::realtime;
use super::fault::{FaultKind, R, fail};
use super::group::Unit;
use super::inst::{Inst, Operand};
use super::memory::{Kind, MemOp, Space, Width};
use super::shadow::{Accesses, How};
use super::wait::Counter;
use super::wave::Wave;

pub(super) fn execute(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp) -> R<()> {
    match op.kind {
        Kind::Load(width) => load(w, unit, i, op, width),
        Kind::Store(_) => store(w, unit, i, op),
        Kind::Clock => {
            let value = if i.entry.name == "s_memtime" { w.instructions } else { realtime() };
            w.waits.issue(Counter::Scalar);
            deliver(w, i, &value.to_le_bytes())
        }
        Kind::Cache(act) => {
            super::flush::execute(w, unit, i, act);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The base, its register, and the sum of the offsets.
fn address(w: &Wave, i: &Inst) -> R<(u64, u8, u64)> {
    let Operand::S(base) = i.mem.base else {
        return fail(FaultKind::BadOperand { what: "base of a scalar access".into() });
    };
    let soffset = match i.mem.soffset {
        Operand::None | Operand::Null => 0,
        operand => w.scalar_operand(operand, 1)? & 0xffff_ffff,
    };
    Ok((w.read_scalars(base, 2)?, base, soffset.wrapping_add_signed(i.mem.offset.into())))
}

/// The address of a load that is not from a buffer.
pub(super) fn first_address(w: &Wave, i: &Inst) -> Option<u64> {
    let (start, _, offset) = address(w, i).ok()?;
    Some(start.wrapping_add(offset) & !3)
}

fn store(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp) -> R<()> {
    let (start, _, offset) = address(w, i)?;
    let Operand::S(data) = i.mem.data else {
        return fail(FaultKind::BadOperand { what: "data of a scalar store".into() });
    };
    w.check_tuple('s', data.into(), op.data.into())?;
    for n in 0..op.data {
        let word = w.read_scalars(data + n, 1)? as u32;
        unit.tlb.write((start.wrapping_add(offset) & !3) + 4 * u64::from(n), &word.to_le_bytes())?;
    }
    w.waits.issue(Counter::Scalar);
    Ok(())
}

fn load(w: &mut Wave, unit: &mut Unit, i: &Inst, op: MemOp, width: Width) -> R<()> {
    let (start, base, offset) = address(w, i)?;
    let len = width.bytes as usize;
    let mut bytes = [0; 64];
    let narrow = width.bytes < 4;
    let aligned = |va: u64| if narrow { va } else { va & !3 };
    if op.space == Space::ScalarBuffer {
        w.check_tuple('s', base.into(), 4)?;
        let records = w.read_scalars(base + 2, 1)?;
        let stride = start >> 48 & 0x3fff;
        let size = if stride == 0 { records } else { records * stride };
        let at = aligned(offset);
        // Beyond the buffer a scalar load gives zero, dword by dword; addresses before it are beyond, too.
        let have = size.saturating_sub(at).min(len as u64) as usize;
        if have > 0 {
            let va = (start & 0xffff_ffff_ffff).wrapping_add(at);
            unit.tlb.read(va, &mut bytes[..have])?;
            record(w, unit, va, &bytes[..have])?;
        }
    } else {
        let va = aligned(start.wrapping_add(offset));
        unit.tlb.read(va, &mut bytes[..len])?;
        record(w, unit, va, &bytes[..len])?;
    }
    w.waits.issue(Counter::Scalar);
    if narrow {
        let v = match (width.bytes, width.signed) {
            (1, false) => u32::from(bytes[0]),
            (1, true) => i32::from(bytes[0] as i8) as u32,
            (_, false) => u32::from(u16::from_le_bytes([bytes[0], bytes[1]])),
            (_, true) => i32::from(i16::from_le_bytes([bytes[0], bytes[1]])) as u32,
        };
        return deliver(w, i, &v.to_le_bytes());
    }
    deliver(w, i, &bytes[..len])
}

/// What strict mode writes down of a load through the scalar cache.
fn record(w: &Wave, unit: &mut Unit, va: u64, bytes: &[u8]) -> R<()> {
    let Some(shadow) = &mut unit.tlb.shadow else { return Ok(()) };
    let lds = &unit.lds;
    let value = |_: usize, n: usize| {
        let mut word = [0; 4];
        let part = bytes.get(4 * n..).unwrap_or_default();
        let len = part.len().min(4);
        word[..len].copy_from_slice(&part[..len]);
        u32::from_le_bytes(word)
    };
    let accesses = Accesses { how: How::Scalar, lanes: 1, at: &[va], len_bytes: bytes.len() as u32 };
    shadow.record(w, &accesses, value, |wave| lds.stores_done(wave))
}

fn deliver(w: &mut Wave, i: &Inst, bytes: &[u8]) -> R<()> {
    let first = match i.dst {
        Operand::S(n) => n,
        _ => return Ok(()),
    };
    let words = (bytes.len() / 4) as u32;
    // Three dwords are aligned as four.
    w.check_tuple('s', first.into(), if words == 3 { 4 } else { words })?;
    let limit = if w.chip == Chip::Gfx942 { 102 } else { 106 };
    let end = u32::from(first) + words;
    if first < 106 && end > limit + 2 {
        return fail(FaultKind::SgprBeyondLimit { register: end - 1, limit });
    }
    for (n, word) in bytes.chunks_exact(4).enumerate() {
        let at = first + n as u8;
        let v = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        w.write_scalars(at, 1, v.into())?;
    }
    for n in 0..words {
        w.waits.claims_scalar(u32::from(first) + n);
    }
    Ok(())
}
