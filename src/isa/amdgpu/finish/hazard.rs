//! Pairs of instructions that the chip does not keep apart by itself (amd.md 5.7).
//!
//! gfx1100: a vector instruction that reads what a transcendental one has written needs six vector or two transcendental
//! instructions between, or a wait for the vector unit. Nothing is left open over a jump.

use super::super::{Access, Chip, File, Inst, Operand, Target, Unit, op, row_of};
use super::CompileError;
use super::place::Step;

/// Inserts what keeps hazards apart.
pub(super) fn resolve(steps: Vec<Step>, target: Target) -> Result<Vec<Step>, CompileError> {
    match target.chip {
        Chip::Gfx1100 => trans_use(steps, target),
        Chip::Gfx942 | Chip::Gfx1201 => Ok(steps),
    }
}

/// Vector and transcendental instructions since each register was written by a transcendental one.
struct Open {
    register: u16,
    vector: u8,
    trans: u8,
}

const VECTOR_APART: u8 = 6;
const TRANS_APART: u8 = 2;

fn trans_use(steps: Vec<Step>, target: Target) -> Result<Vec<Step>, CompileError> {
    let mut out = Vec::with_capacity(steps.len());
    let mut open: Vec<Open> = Vec::new();
    let wait = || Step::Op(Inst::new(op::S_WAITCNT_DEPCTR, [Operand::Int(0x0fff)]));
    for step in steps {
        match &step {
            Step::Label(_) => {}
            Step::Jump(..) => {
                if !open.is_empty() {
                    out.push(wait());
                    open.clear();
                }
            }
            Step::Op(inst) => {
                let row = row_of(target, inst)?;
                let vector = matches!(row.unit, Unit::Valu | Unit::Trans | Unit::Matrix);
                let touches = |writes: bool| {
                    let slots = row.slots.iter().enumerate();
                    slots
                        .filter(move |(_, s)| if writes { s.access != Access::Read } else { s.access != Access::Write })
                };
                let parts = |writes| {
                    touches(writes).filter_map(|(k, _)| match inst.operands.get(k) {
                        Some(Operand::Reg(r)) if r.file == File::Vgpr => Some(r.first..r.first + u16::from(r.words)),
                        _ => None,
                    })
                };
                if vector && parts(false).any(|range| open.iter().any(|o| range.contains(&o.register))) {
                    out.push(wait());
                    open.clear();
                }
                if vector {
                    for o in &mut open {
                        o.vector += 1;
                        o.trans += u8::from(row.unit == Unit::Trans);
                    }
                    open.retain(|o| o.vector < VECTOR_APART && o.trans < TRANS_APART);
                    open.retain(|o| !parts(true).any(|range| range.contains(&o.register)));
                }
                if row.unit == Unit::Trans {
                    let fresh = parts(true).flatten().map(|register| Open { register, vector: 0, trans: 0 });
                    open.extend(fresh);
                }
            }
        }
        out.push(step);
    }
    Ok(out)
}
