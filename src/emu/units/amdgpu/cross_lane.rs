//! Operations between lanes: scalar reads and writes of single lanes, permutations within 16 and 64, swaps, indexed
//! registers.
//!
//! Source: AMD's ISA documents; docs/amd-isa.md 5.5, 5.9 (v_readfirstlane with EXEC = 0 reads lane 0).

use super::fault::{FaultKind, R, fail};
use super::inst::{Inst, Operand};
use super::wave::Wave;

fn vector(o: Operand) -> R<u32> {
    match o {
        Operand::V(n) => Ok(n.into()),
        other => fail(FaultKind::BadOperand { what: format!("{other} where a vector register belongs") }),
    }
}

/// v_readlane, v_readfirstlane: not masked by EXEC.
pub(super) fn read(w: &mut Wave, i: &Inst, first: bool) -> R<()> {
    let lane = if first {
        let exec = w.exec();
        if exec == 0 { 0 } else { exec.trailing_zeros() }
    } else {
        w.scalar_operand(i.src[1], 1)? as u32 & (w.lanes() - 1)
    };
    let value = match i.src[0] {
        Operand::V(n) => {
            let at = w.readable(n.into(), 0)?;
            if !w.is_known(at, 1 << lane) {
                let Operand::S(to) = i.sdst else { return Ok(()) };
                w.poison_scalar(to, w.lane(at, lane as usize));
                return Ok(());
            }
            w.lane(at, lane as usize)
        }
        other => w.scalar_operand(other, 1)? as u32,
    };
    match i.sdst {
        Operand::S(n) => w.write_scalars(n, 1, value.into()),
        _ => Ok(()),
    }
}

pub(super) fn write(w: &mut Wave, i: &Inst) -> R<()> {
    let lane = w.scalar_operand(i.src[1], 1)? as u32 & (w.lanes() - 1);
    let at = w.writable(vector(i.dst)?)?;
    if let Operand::S(n) = i.src[0]
        && w.strict.poison
        && !w.is_scalar_known(n)
    {
        // A callee saves what its caller may never have written.
        w.put_lane(at, lane as usize, w.scalar_unchecked(n));
        w.set_unknown(at, 1 << lane);
        return Ok(());
    }
    let value = w.scalar_operand(i.src[0], 1)? as u32;
    w.put_lane(at, lane as usize, value);
    Ok(())
}

/// v_permlane16 and x16: each lane picks one of its own (or the neighbouring) row by four bits a lane.
pub(super) fn permute16(w: &mut Wave, i: &Inst, across: bool, variable: bool) -> R<()> {
    let exec = w.exec();
    let register = vector(i.src[0])?;
    let from = w.readable(register, 0)?;
    let to = w.writable(vector(i.dst)?)?;
    let (fetch_inactive, bound_ctrl) = (i.opsel & 1 == 1, i.opsel & 2 == 2);
    let picks = if variable { 0 } else { w.scalar_operand(i.src[1], 1)? | w.scalar_operand(i.src[2], 1)? << 32 };
    let by_lane = if variable { Some(w.readable(vector(i.src[1])?, exec)?) } else { None };
    let old: Vec<u32> = (0..w.lanes() as usize).map(|l| w.lane(from, l)).collect();
    let mut read = 0;
    for lane in (0..w.lanes() as usize).filter(|l| exec >> l & 1 == 1) {
        let pick = match by_lane {
            Some(at) => w.lane(at, lane) as usize & 15,
            None => (picks >> (4 * (lane & 15))) as usize & 15,
        };
        let row = if across { lane & !15 ^ 16 } else { lane & !15 };
        let source = row + pick;
        if exec >> source & 1 == 1 || fetch_inactive {
            read |= 1 << source;
            w.put_lane(to, lane, old[source]);
        } else if bound_ctrl {
            w.put_lane(to, lane, 0);
        }
    }
    if from != to {
        w.readable(register, read)?;
    }
    w.lane_operations += u64::from(exec.count_ones());
    Ok(())
}

/// v_permlane64: the halves of a wave64 change places; in wave32 a copy.
pub(super) fn permute64(w: &mut Wave, i: &Inst) -> R<()> {
    let exec = w.exec();
    let from = w.readable(vector(i.src[0])?, if w.is_wave32() { exec } else { exec.rotate_left(32) & exec })?;
    let to = w.writable(vector(i.dst)?)?;
    let old: Vec<u32> = (0..w.lanes() as usize).map(|l| w.lane(from, l)).collect();
    let flip = if w.is_wave32() { 0 } else { 32 };
    for lane in (0..old.len()).filter(|l| exec >> l & 1 == 1) {
        w.put_lane(to, lane, old[lane ^ flip]);
    }
    w.lane_operations += u64::from(exec.count_ones());
    Ok(())
}

pub(super) fn swap(w: &mut Wave, i: &Inst) -> R<()> {
    let exec = w.exec();
    let (a, b) = (vector(i.dst)?, vector(i.src[0])?);
    let (a, b) = (w.readable(a, exec)?, w.readable(b, exec)?);
    for lane in (0..w.lanes() as usize).filter(|l| exec >> l & 1 == 1) {
        let (x, y) = (w.lane(a, lane), w.lane(b, lane));
        w.put_lane(a, lane, y);
        w.put_lane(b, lane, x);
    }
    Ok(())
}

/// v_swap_b16: halves named as 16-bit operands are.
pub(super) fn swap16(w: &mut Wave, i: &Inst) -> R<()> {
    let exec = w.exec();
    let split = |n: u32| if n >= 128 { (n - 128, 16) } else { (n, 0) };
    let (a, shift_a) = split(vector(i.dst)?);
    let (b, shift_b) = match i.opsel & 1 {
        1 => (vector(i.src[0])?, 16),
        _ => split(vector(i.src[0])?),
    };
    let (a, b) = (w.readable(a, exec)?, w.readable(b, exec)?);
    for lane in (0..w.lanes() as usize).filter(|l| exec >> l & 1 == 1) {
        let (x, y) = (w.lane(a, lane) >> shift_a & 0xffff, w.lane(b, lane) >> shift_b & 0xffff);
        w.put_lane(a, lane, w.lane(a, lane) & !(0xffff << shift_a) | y << shift_a);
        w.put_lane(b, lane, w.lane(b, lane) & !(0xffff << shift_b) | x << shift_b);
    }
    Ok(())
}

/// v_movrel*: M0 is added to the register's number.
pub(super) fn relative(w: &mut Wave, i: &Inst, source: bool, dest: bool) -> R<()> {
    let exec = w.exec();
    let m0 = w.scalar_operand(Operand::S(super::inst::M0), 1)? as u32;
    let at = |n: u32, on: bool| if on { n.wrapping_add(m0) & 0xffff } else { n };
    let values = match i.src[0] {
        Operand::V(n) => {
            let from = w.readable(at(n.into(), source), exec)?;
            [*w.half(from, 0), *w.half(from, w.halves - 1)]
        }
        other => [[w.scalar_operand(other, 1)? as u32; 32]; 2],
    };
    let to = w.writable(at(vector(i.dst)?, dest))?;
    for (h, value) in values.iter().enumerate().take(w.halves) {
        w.put_half(to, h, value, super::wave::half_mask(exec, h));
    }
    w.lane_operations += u64::from(exec.count_ones());
    Ok(())
}
