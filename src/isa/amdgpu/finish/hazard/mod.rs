//! Pairs of instructions that the chip does not interlock (docs/amd-isa.md 5.7).
//!
//! Each chip has a hazard state: what is open at a position, what an instruction needs inserted before it, how states
//! are joined where paths meet. It is propagated along all paths until nothing changes, then the code is written out
//! once with the missing instructions.

mod cdna3;
mod rdna3;
mod rdna4;

use super::super::{Access, Chip, File, Implicit, Inst, Op, Operand, Reg, Target, Unit, row_of};
use super::CompileError;
use super::place::Step;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;

/// Inserts the instructions that separate hazards.
pub(super) fn resolve(steps: Vec<Step>, target: Target) -> Result<Vec<Step>, CompileError> {
    match target.chip {
        Chip::Gfx1100 => separate::<rdna3::OpenHazards>(steps, target),
        Chip::Gfx942 => separate::<cdna3::OpenHazards>(steps, target),
        Chip::Gfx1201 => separate::<rdna4::OpenHazards>(steps, target),
    }
}

/// Numbers for all registers: vector ones from 0, accumulation ones from 256, scalar ones (VCC, EXEC and M0 among them)
/// from 512.
const SCALARS: u16 = 512;
const VCC: u16 = SCALARS + 106;
const M0: u16 = SCALARS + 124;
const EXEC: u16 = SCALARS + 126;

/// Registers that an instruction names, and in which operand.
#[derive(Clone, Debug)]
struct Use {
    regs: Range<u16>,
    slot: usize,
}

impl Use {
    fn is_scalar(&self) -> bool {
        self.regs.start >= SCALARS
    }

    fn overlaps(&self, regs: &Range<u16>) -> bool {
        self.regs.start < regs.end && regs.start < self.regs.end
    }
}

/// What hazards go by.
#[derive(Clone, Debug)]
struct InstFacts {
    op: Op,
    name: &'static str,
    unit: Unit,
    reads: SmallVec<[Use; 6]>,
    writes: SmallVec<[Use; 3]>,
    /// The first operand, if it is a number.
    imm: i64,
    permutes: bool,
    /// Only one half of the result register is written.
    half: bool,
}

impl InstFacts {
    fn of(inst: &Inst, target: Target) -> Result<InstFacts, CompileError> {
        let row = row_of(target, inst)?;
        let imm = match inst.operands.first() {
            Some(Operand::Int(v)) => *v,
            _ => 0,
        };
        let (name, half) = (inst.op.name(), inst.mods.op_sel & 8 != 0);
        let (reads, writes) = (SmallVec::new(), SmallVec::new());
        let mut f = InstFacts {
            op: inst.op,
            name,
            unit: row.unit,
            reads,
            writes,
            imm,
            permutes: inst.mods.dpp.is_some(),
            half,
        };
        for (slot, s) in row.slots.iter().enumerate() {
            let Some(Operand::Reg(reg)) = inst.operands.get(slot) else { continue };
            let Some(regs) = numbers(*reg) else { continue };
            if s.access != Access::Write {
                f.reads.push(Use { regs: regs.clone(), slot });
            }
            if s.access != Access::Read {
                f.writes.push(Use { regs, slot });
            }
        }
        let words = u16::from(target.mask_words());
        let slot = usize::MAX;
        for (bit, first, words) in [(Implicit::VCC, VCC, words), (Implicit::EXEC, EXEC, words), (Implicit::M0, M0, 1)] {
            if row.reads.contains(bit) {
                f.reads.push(Use { regs: first..first + words, slot });
            }
            if row.writes.contains(bit) {
                f.writes.push(Use { regs: first..first + words, slot });
            }
        }
        Ok(f)
    }

    /// On the vector unit, the matrix unit included.
    fn is_vector(&self) -> bool {
        matches!(self.unit, Unit::Valu | Unit::Trans | Unit::Matrix)
    }

    fn is_scalar_alu(&self) -> bool {
        matches!(self.unit, Unit::Salu | Unit::Branch)
    }
}

/// Numbers of a register's words; `None`: not one that hazards are known for.
fn numbers(reg: Reg) -> Option<Range<u16>> {
    let first = reg.first
        + match reg.file {
            File::Vgpr => 0,
            File::Agpr => 256,
            File::Sgpr => SCALARS,
            File::Vcc => VCC,
            File::Ttmp => SCALARS + 108,
            File::M0 => M0,
            File::Exec => EXEC,
            _ => return None,
        };
    Some(first..first + u16::from(reg.words))
}

/// The hazard state of one chip at one position; the default is that nothing is open.
trait Hazards: Clone + PartialEq + Default {
    /// Joins what is open on another path to the same instruction.
    fn merge(&mut self, other: &Self);
    /// What must be inserted before an instruction; the state includes it afterwards.
    fn fix(&mut self, next: &InstFacts) -> SmallVec<[Inst; 2]>;
    /// Updates the state by an instruction.
    fn pass(&mut self, inst: &InstFacts);
}

fn separate<B: Hazards>(steps: Vec<Step>, target: Target) -> Result<Vec<Step>, CompileError> {
    let facts: Vec<Option<InstFacts>> = steps
        .iter()
        .map(|s| match s {
            Step::Op(i) | Step::Jump(i, _) => InstFacts::of(i, target).map(Some),
            Step::Label(_) => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let mut at_label: HashMap<u32, B> = HashMap::new();
    while sweep(&steps, &facts, &mut at_label, &mut |_, _| {}) {}
    let mut out = Vec::with_capacity(steps.len() + steps.len() / 4);
    sweep(&steps, &facts, &mut at_label, &mut |fixes, step| {
        out.extend(fixes.into_iter().map(Step::Op));
        out.push(step.clone());
    });
    Ok(out)
}

/// Walks the code once; returns whether the state at some label has changed.
fn sweep<B: Hazards>(
    steps: &[Step],
    facts: &[Option<InstFacts>],
    at_label: &mut HashMap<u32, B>,
    out: &mut dyn FnMut(SmallVec<[Inst; 2]>, &Step),
) -> bool {
    let (mut state, mut changed) = (B::default(), false);
    let mut join = |label: u32, state: &B, changed: &mut bool| {
        let known = at_label.entry(label).or_default();
        let before = known.clone();
        known.merge(state);
        *changed |= *known != before;
        known.clone()
    };
    for (step, facts) in steps.iter().zip(facts) {
        let mut fixes = SmallVec::new();
        if let Some(f) = facts {
            fixes = state.fix(f);
            state.pass(f);
        }
        match step {
            Step::Label(l) => state = join(*l, &state, &mut changed),
            Step::Jump(i, l) => {
                join(*l, &state, &mut changed);
                if i.op == super::super::op::S_BRANCH {
                    state = B::default();
                }
            }
            Step::Op(_) => {}
        }
        out(fixes, step);
    }
    changed
}
