//! gfx1201's hazard of scalar registers: the vector unit caches the scalar registers it has read, by pairs, for the
//! rest of the wave; when such a register is written again, the new value must have settled before it is read.
//!
//! A write of the scalar unit is waited for by `s_wait_alu` with bit 0 clear, before either unit reads it. A write of
//! the vector unit is waited for with bit 1 (VCC) or bits 9 to 11 (others) clear, before the vector unit reads it; the
//! scalar unit waits for it by itself, and all older ones have completed then. Scalar and buffer loads settle
//! everything. Source: docs/amd-isa.md 5.7 (VALUReadSGPRHazard); LLVM's AMDGPUWaitSGPRHazards (2026). Left out: M0 and
//! EXEC, which are not cached.

use super::cross::Cross;
use super::fault::{FaultKind, R, fail};
use super::hazard::Class;
use super::inst::{Inst, Operand, VCC};
use super::memory::Space;
use super::rows::Format;
use super::sem::Sem;
use super::wave::Wave;

/// One bit a scalar register, VCC and trap temporaries among them.
type Registers = u128;

const VCC_BITS: Registers = 3 << VCC;
/// Registers beyond this are not cached.
const TRACKED: u32 = 124;

/// Shadow state of one wave.
#[derive(Clone, Copy, Default)]
pub(super) struct Unsettled {
    /// Both registers of each pair of which the vector unit has read one.
    kept: Registers,
    /// Written again by the scalar unit, and by the vector unit.
    scalar: Registers,
    vector: Registers,
}

fn span(o: Operand, dwords: u32) -> Registers {
    match o {
        Operand::S(n) => (u32::from(n)..u32::from(n) + dwords).filter(|r| *r < TRACKED).fold(0, |all, r| all | 1 << r),
        _ => 0,
    }
}

fn is_scalar(i: &Inst) -> bool {
    i.class == Class::Scalar && !matches!(i.entry.sem, Sem::Memory(_))
}

fn is_vector(i: &Inst) -> bool {
    !matches!(i.class, Class::Scalar | Class::Memory)
}

fn reads(w: &Wave, i: &Inst) -> Registers {
    let mask = w.halves as u32;
    let width = |slot: usize| match (i.entry.sem, slot) {
        (Sem::Cross(Cross::Select | Cross::Carry { .. }), 2) => mask,
        _ => match i.entry.widths[slot + 1] {
            0 | 255 => 1,
            n => n.into(),
        },
    };
    let named = (0..3).fold(0, |all, slot| all | span(i.src[slot], width(slot)));
    let vcc = matches!(i.entry.sem, Sem::Cross(Cross::DivFmas { .. })) || i.entry.name.starts_with("s_cbranch_vcc");
    // `s_addk` and its like change their operand, `s_cmpk` only reads it.
    let own = i.format == Format::Sopk
        && !["s_movk", "s_getreg", "s_call", "s_version"].iter().any(|p| i.entry.name.starts_with(p));
    named | if vcc { span(Operand::S(VCC), mask) } else { 0 } | if own { span(i.dst, 1) } else { 0 }
}

fn writes(w: &Wave, i: &Inst) -> Registers {
    if is_scalar(i) {
        // A call's return address has settled when the callee reads it.
        let calls = ["s_swappc", "s_call"].iter().any(|p| i.entry.name.starts_with(p));
        let looks = i.format == Format::Sopk && i.entry.widths[0] == 0 || calls;
        return if looks { 0 } else { span(i.dst, u32::from(i.entry.widths[0]).clamp(1, 4)) };
    }
    let one = matches!(i.entry.sem, Sem::Cross(Cross::ReadLane | Cross::ReadFirstLane | Cross::OnScalar(_)));
    span(i.sdst, if one { 1 } else { w.halves as u32 })
}

fn halves(i: &Inst) -> impl Iterator<Item = &Inst> {
    std::iter::once(i).chain(i.second.as_deref())
}

/// Whether the next instruction reads what may not have settled.
pub(super) fn check(w: &Wave, i: &Inst) -> R<()> {
    let u = &w.hazards.unsettled;
    if u.scalar | u.vector == 0 || !is_scalar(i) && !is_vector(i) {
        return Ok(());
    }
    let read = halves(i).fold(0, |all, half| all | reads(w, half));
    if read & u.scalar != 0 || is_vector(i) && read & u.vector != 0 {
        let rule = "a scalar register that the vector unit has read is read after a write that may not have settled";
        return fail(FaultKind::Hazard { rule, need: 1, have: 0 });
    }
    Ok(())
}

/// Remembers what the instruction did.
pub(super) fn note(w: &mut Wave, i: &Inst) {
    let mut u = w.hazards.unsettled;
    if let Sem::Memory(op) = i.entry.sem {
        if matches!(op.space, Space::Scalar | Space::ScalarBuffer | Space::Buffer) {
            (u.scalar, u.vector) = (0, 0);
        }
    } else if i.is_alu_wait {
        let waits = |field: u32| i.imm as u32 & field == 0;
        u.scalar = if waits(1) { 0 } else { u.scalar };
        u.vector &= if waits(1 << 1) { !VCC_BITS } else { !0 };
        u.vector &= if waits(7 << 9) { VCC_BITS } else { !0 };
    } else if is_scalar(i) || is_vector(i) {
        let (read, written) = halves(i).fold((0, 0), |(r, s), half| (r | reads(w, half), s | writes(w, half)));
        if is_scalar(i) {
            u.by_scalar(read, written);
        } else {
            u.by_vector(read, written);
        }
    }
    w.hazards.unsettled = u;
}

impl Unsettled {
    fn by_scalar(&mut self, read: Registers, written: Registers) {
        if read & self.vector & VCC_BITS != 0 {
            self.vector &= !VCC_BITS;
        }
        // Of any register: code that LLVM makes relies on it where a caller may have had the register kept.
        if read & !VCC_BITS != 0 {
            self.vector &= VCC_BITS;
        }
        self.scalar |= written & self.kept;
        self.vector &= !(written & VCC_BITS);
    }

    fn by_vector(&mut self, read: Registers, written: Registers) {
        const FIRST_OF_PAIRS: Registers = u128::MAX / 3;
        let pairs = (read | read >> 1) & FIRST_OF_PAIRS;
        self.kept |= pairs | pairs << 1;
        self.vector |= written & self.kept;
        self.scalar &= !(written & VCC_BITS);
    }
}
