//! The register operands of a glued group as those of one instruction, for the allocator.
//!
//! A partial write of a register whose other words are live, or a write that a guard may skip, modifies the register.

use crate::sass::compile::mir::{Mach, PRED, RegField, Word, width};
use doorbell_codegen::regalloc::{Class, Constraint, Operand, Role, VReg};

/// Scratch lists, reused for one group after the other.
#[derive(Default)]
pub(super) struct Work {
    touches: Vec<Touch>,
    written: Vec<Word>,
    /// For each register field its entry in the list, and whether it is written, or read after a write of the group.
    fields: Vec<(u16, bool)>,
    operands: Vec<Operand>,
}

/// The field is the stack pointer.
pub(super) const ON_STACK: u16 = u16::MAX;

/// How a group uses a register.
#[derive(Clone, Copy)]
struct Touch {
    reg: VReg,
    read: bool,
    late: bool,
    write: bool,
    keep: bool,
    /// The operands that write and read it.
    places: (u16, u16),
}

fn operand(vreg: VReg, role: Role) -> Operand {
    Operand { vreg, role, constraint: Constraint::Reg }
}

impl Work {
    /// The operands of a group, results first, then sources; appends the operand index of each of its register fields
    /// to `fields`.
    pub(crate) fn group(
        &mut self,
        group: &[Mach],
        classes: &[Class],
        stack: VReg,
        fields: &mut Vec<u16>,
    ) -> &[Operand] {
        if let [one] = group {
            self.single(one, stack, fields);
            return &self.operands;
        }
        let w = &mut *self;
        w.touches.clear();
        w.written.clear();
        w.fields.clear();
        w.operands.clear();
        for m in group {
            for r in &m.regs {
                let reg = r.word.reg();
                if reg == stack {
                    w.fields.push((ON_STACK, false));
                    continue;
                }
                let k = match w.touches.iter().position(|t| t.reg == reg) {
                    Some(k) => k,
                    None => {
                        let (read, late, write, keep) = (false, false, false, false);
                        w.touches.push(Touch { reg, read, late, write, keep, places: (0, 0) });
                        w.touches.len() - 1
                    }
                };
                let inner = !r.write && (0..r.count).all(|n| w.written.contains(&r.word.plus(n)));
                let t = &mut w.touches[k];
                if r.write {
                    (t.write, t.keep) = (true, t.keep | r.keep);
                } else if !inner {
                    (t.read, t.late) = (true, t.late | late(classes, r, &w.written));
                }
                w.fields.push((k as u16, r.write || inner));
            }
            for r in m.regs.iter().filter(|r| r.write && r.word.reg() != stack) {
                (0..r.count).for_each(|n| w.written.push(r.word.plus(n)));
            }
        }
        w.list();
        for (k, write) in &w.fields {
            let place =
                w.touches.get(usize::from(*k)).map_or(ON_STACK, |t| if *write { t.places.0 } else { t.places.1 });
            fields.push(place);
        }
        &self.operands
    }

    /// The operands of an instruction that is a group by itself, and the index of each of its fields: none is read
    /// after a write.
    fn single(&mut self, m: &Mach, stack: VReg, fields: &mut Vec<u16>) {
        let (all, first) = (&mut self.operands, fields.len());
        all.clear();
        for r in &m.regs {
            let reg = r.word.reg();
            let place = match all.iter().position(|o| o.vreg == reg) {
                _ if !r.write || reg == stack => usize::from(ON_STACK),
                Some(k) => k,
                None => {
                    all.push(operand(reg, Role::Def));
                    all.len() - 1
                }
            };
            if r.keep
                && let Some(o) = all.get_mut(place)
            {
                o.role = Role::Mod;
            }
            fields.push(place as u16);
        }
        let results = all.len();
        for (r, place) in m.regs.iter().zip(&mut fields[first..]).filter(|(r, _)| !r.write && r.word.reg() != stack) {
            let reg = r.word.reg();
            // A preserved register is read by the same operand.
            let there = |(k, o): (usize, &Operand)| o.vreg == reg && (k >= results || o.role == Role::Mod);
            *place = all.iter().enumerate().position(there).unwrap_or_else(|| {
                all.push(operand(reg, Role::Use));
                all.len() - 1
            }) as u16;
        }
    }

    /// The operands: results, then sources.
    fn list(&mut self) {
        for t in self.touches.iter_mut().filter(|t| t.write) {
            let place = self.operands.len() as u16;
            // A preserved register is read by the same operand.
            t.places = (place, place);
            self.operands.push(operand(t.reg, if t.keep { Role::Mod } else { Role::Def }));
        }
        for t in self.touches.iter_mut().filter(|t| t.read && !(t.write && t.keep)) {
            t.places.1 = self.operands.len() as u16;
            self.operands.push(operand(t.reg, if t.late { Role::UseLate } else { Role::Use }));
        }
    }
}

/// Whether a read could conflict with another result of the group in its register: odd words of pairs cannot conflict
/// with even ones.
fn late(classes: &[Class], read: &RegField, written: &[Word]) -> bool {
    let word = read.word;
    let class = |w: Word| classes[w.reg().0 as usize];
    let safe = |w: &Word| {
        let other_file = (class(*w) == PRED) != (class(word) == PRED);
        let apart = width(class(*w)) >= 2
            && width(class(word)) >= 2
            && read.count == 1
            && !word.sub().is_multiple_of(2)
            && w.sub().is_multiple_of(2);
        other_file || apart
    };
    !written.iter().all(safe)
}
