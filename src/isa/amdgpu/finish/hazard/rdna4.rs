//! gfx1201: a scalar register that the vector unit has once read and that is written again must have settled before it
//! is read. The vector unit remembers registers by pairs, for the rest of the program. A write of the scalar unit is
//! waited for by any reader, one of the vector unit by the vector unit only. Matrix instructions are as on gfx1100.

use super::super::super::{Inst, Operand, Unit, op};
use super::rdna3::Before;
use super::{Hazards, InstFacts, SCALARS, Use, VCC};
use smallvec::{SmallVec, smallvec};

/// Every field of `s_wait_alu` at the value that waits for nothing.
const NO_WAIT: i64 = 0xffff;
const SCALAR_WRITES: i64 = 1;
const VECTOR_VCC: i64 = 1 << 1;
const VECTOR_WRITES: i64 = 7 << 9;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenHazards {
    /// Pairs that the vector unit has read.
    seen: u64,
    /// Registers with an unsettled value of the scalar unit, and of the vector unit.
    scalar: u128,
    vector: u128,
    before: Before,
}

const VCC_BITS: u128 = 3 << (VCC - SCALARS);

/// Bits of the scalar registers of an operand; those that no hazard is known for are left out.
fn bits(u: &Use) -> u128 {
    let plain = |r: &u16| (SCALARS..SCALARS + 124).contains(r);
    u.regs.clone().filter(plain).fold(0, |sum, r| sum | 1 << (r - SCALARS))
}

fn pairs(registers: u128) -> u64 {
    (0..64).filter(|p| registers >> (2 * p) & 3 != 0).fold(0, |sum, p| sum | 1 << p)
}

fn registers(pairs: u64) -> u128 {
    (0..64).filter(|p| pairs >> p & 1 == 1).fold(0, |sum, p| sum | 3 << (2 * p))
}

impl Hazards for OpenHazards {
    fn merge(&mut self, other: &Self) {
        self.seen |= other.seen;
        self.scalar |= other.scalar;
        self.vector |= other.vector;
        self.before.merge(&other.before);
    }

    fn fix(&mut self, next: &InstFacts) -> SmallVec<[Inst; 2]> {
        let mut out = smallvec![];
        let (vector, scalar) = (next.is_vector(), next.is_scalar_alu());
        if vector || scalar {
            let read = next.reads.iter().fold(0, |sum, u| sum | bits(u));
            let mut mask = NO_WAIT;
            if read & self.scalar != 0 {
                mask &= !SCALAR_WRITES;
                self.scalar = 0;
            }
            if vector && read & self.vector & VCC_BITS != 0 {
                mask &= !VECTOR_VCC;
                self.vector &= !VCC_BITS;
            }
            if vector && read & self.vector & !VCC_BITS != 0 {
                mask &= !VECTOR_WRITES;
                self.vector &= VCC_BITS;
            }
            if mask != NO_WAIT {
                out.push(Inst::new(op::S_WAIT_ALU, [Operand::Int(mask)]));
            }
        }
        if self.before.clashes(next) {
            out.push(Inst::new(op::V_NOP, []));
            self.before = Before::default();
        }
        out
    }

    fn pass(&mut self, inst: &InstFacts) {
        self.before.pass(inst);
        let (vector, scalar) = (inst.is_vector(), inst.is_scalar_alu());
        if matches!(inst.unit, Unit::Smem | Unit::Buffer) {
            (self.scalar, self.vector) = (0, 0);
        }
        if !vector && !scalar {
            return;
        }
        let read = inst.reads.iter().fold(0, |sum, u| sum | bits(u));
        if scalar {
            // The scalar unit waits for what the vector unit writes by itself; all older writes have settled then.
            if read & VCC_BITS & self.vector != 0 {
                self.vector &= !VCC_BITS;
            }
            if read & registers(self.seen) & !VCC_BITS != 0 {
                self.vector &= VCC_BITS;
            }
        } else {
            self.seen |= pairs(read);
        }
        let written = inst.writes.iter().fold(0, |sum, u| sum | bits(u)) & registers(self.seen);
        match scalar {
            true => {
                self.scalar |= written;
                self.vector &= !(written & VCC_BITS);
            }
            false => {
                self.vector |= written;
                self.scalar &= !(written & VCC_BITS);
            }
        }
    }
}
