//! Lane shuffles of a vector instruction's first source (DPP16 and DPP8).
//!
//! Source: docs/amd-isa.md 5.5. A row is 16 lanes, a bank 4.

use super::Chip;
use super::fault::{FaultKind, R, fail};
use super::inst::{Dpp, DppKind};
use super::lanes::L;
use super::wave::Wave;

/// Where a lane reads from; `None` is outside its row or the wave.
fn source(chip: Chip, lanes: usize, kind: &DppKind, lane: usize) -> R<Option<usize>> {
    let ctrl = match kind {
        DppKind::Eight(pick) => return Ok(Some(lane & !7 | usize::from(pick[lane & 7]))),
        DppKind::Ctrl(ctrl) => usize::from(*ctrl),
    };
    let (row, at) = (lane & !15, lane & 15);
    let gfx9 = chip == Chip::Gfx942;
    let amount = ctrl & 15;
    Ok(match ctrl {
        0..=0xff => Some(lane & !3 | ctrl >> (2 * (lane & 3)) & 3),
        0x101..=0x10f => (at + amount < 16).then_some(lane + amount),
        0x111..=0x11f => at.checked_sub(amount).map(|n| row + n),
        0x121..=0x12f => Some(row + (at + 16 - amount) % 16),
        0x130 if gfx9 => (lane + 1 < lanes).then_some(lane + 1),
        0x134 if gfx9 => Some((lane + 1) % lanes),
        0x138 if gfx9 => lane.checked_sub(1),
        0x13c if gfx9 => Some((lane + lanes - 1) % lanes),
        0x140 => Some(row + 15 - at),
        0x141 => Some(lane & !7 | (7 - (lane & 7))),
        0x142 if gfx9 => row.checked_sub(1),
        0x143 if gfx9 => (lane >= 32).then_some(31),
        0x150..=0x15f => Some(row + amount),
        0x160..=0x16f if !gfx9 => Some(row + (at ^ amount)),
        _ => return fail(FaultKind::BadOperand { what: format!("DPP control {ctrl:#x}") }),
    })
}

/// The shuffled register and the lanes that may be written.
pub(super) fn gather(w: &Wave, register: u32, dpp: &Dpp) -> R<([L; 2], u64)> {
    let lanes = w.lanes() as usize;
    let exec = w.exec();
    let mut out = [[0; 32]; 2];
    let (mut write, mut read) = (0u64, 0u64);
    let at = w.readable(register, 0)?;
    for lane in 0..lanes {
        let (bank, row) = (lane / 4 % 4, lane / 16);
        if exec >> lane & 1 == 0 || dpp.bank_mask >> bank & 1 == 0 || dpp.row_mask >> row & 1 == 0 {
            continue;
        }
        let from = source(w.chip, lanes, &dpp.kind, lane)?.filter(|n| dpp.fetch_inactive || exec >> n & 1 == 1);
        match from {
            Some(n) => {
                read |= 1 << n;
                write |= 1 << lane;
                out[lane / 32][lane % 32] = w.lane(at, n);
            }
            None if dpp.bound_ctrl => write |= 1 << lane,
            None => {}
        }
    }
    w.readable(register, read)?;
    Ok((out, write))
}
