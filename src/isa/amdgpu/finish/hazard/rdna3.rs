//! gfx1100: a vector instruction that reads what a transcendental one has written needs six vector or two
//! transcendental instructions between, or a wait for the vector unit; a matrix instruction does not read as A or B
//! what the one before wrote; lanes are not permuted right after a compare that wrote EXEC.

use super::super::super::{Inst, Operand, Unit, op};
use super::{Hazards, InstFacts, Use};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Vector and transcendental instructions since each register was written by a transcendental one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Open {
    register: u16,
    vector: u8,
    trans: u8,
}

const VECTOR_APART: u8 = 6;
const TRANS_APART: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpenHazards {
    open: Vec<Open>,
    pub before: Before,
}

/// The kind of the preceding vector instruction, as far as the next one depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Before {
    /// The matrix result.
    matrix: Option<Range<u16>>,
    compared: bool,
}

impl Before {
    pub(crate) fn merge(&mut self, other: &Before) {
        // One of two results is enough to separate: that of the other path is found when the first is gone.
        self.matrix = match (self.matrix.take(), other.matrix.clone()) {
            (Some(a), Some(b)) => Some(a.start.min(b.start)..a.end.max(b.end)),
            (a, b) => a.or(b),
        };
        self.compared |= other.compared;
    }

    pub(crate) fn clashes(&self, next: &InstFacts) -> bool {
        let source = |u: &&Use| matches!(u.slot, 1 | 2);
        let matrix = self
            .matrix
            .as_ref()
            .is_some_and(|d| next.unit == Unit::Matrix && next.reads.iter().filter(source).any(|u| u.overlaps(d)));
        matrix || self.compared && next.name.starts_with("v_permlane")
    }

    pub(crate) fn pass(&mut self, inst: &InstFacts) {
        if inst.is_vector() {
            let matrix = inst.unit == Unit::Matrix;
            self.matrix = inst.writes.first().filter(|_| matrix).map(|w| w.regs.clone());
            self.compared = inst.name.starts_with("v_cmpx");
        }
    }
}

impl Hazards for OpenHazards {
    fn merge(&mut self, other: &Self) {
        for o in &other.open {
            match self.open.iter_mut().find(|k| k.register == o.register) {
                Some(k) => (k.vector, k.trans) = (k.vector.min(o.vector), k.trans.min(o.trans)),
                None => self.open.push(*o),
            }
        }
        self.open.sort_unstable_by_key(|o| o.register);
        self.before.merge(&other.before);
    }

    fn fix(&mut self, next: &InstFacts) -> SmallVec<[Inst; 2]> {
        let mut out = smallvec![];
        let reads = |o: &Open| next.reads.iter().any(|u| u.regs.contains(&o.register));
        if next.is_vector() && self.open.iter().any(reads) {
            out.push(Inst::new(op::S_WAITCNT_DEPCTR, [Operand::Int(0x0fff)]));
            self.open.clear();
        }
        if self.before.clashes(next) {
            out.push(Inst::new(op::V_NOP, []));
            self.before = Before::default();
        }
        out
    }

    fn pass(&mut self, inst: &InstFacts) {
        self.before.pass(inst);
        if !inst.is_vector() {
            return;
        }
        let trans = inst.unit == Unit::Trans;
        for o in &mut self.open {
            o.vector += 1;
            o.trans += u8::from(trans);
        }
        self.open.retain(|o| o.vector < VECTOR_APART && o.trans < TRANS_APART);
        self.open.retain(|o| !inst.writes.iter().any(|u| u.regs.contains(&o.register)));
        if trans {
            let registers = inst.writes.iter().filter(|u| !u.is_scalar()).flat_map(|u| u.regs.clone());
            self.open.extend(registers.map(|register| Open { register, vector: 0, trans: 0 }));
            self.open.sort_unstable_by_key(|o| o.register);
        }
    }
}
