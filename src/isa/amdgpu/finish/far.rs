//! Jumps to targets that a branch does not reach: 32767 dwords.
//!
//! Such a jump adds the distance to the program counter in the pair of scalar registers that is never allocated; a
//! conditional one first branches over that. Nothing reads SCC across a jump, so the addition may write it.

use super::super::{Inst, Op, Operand, Target, encode, op, ss};
use super::place::Step;
use super::{CompileError, mir, names};
use crate::Chip;
use std::collections::HashMap;

/// No instruction is longer.
const MOST_DWORDS: usize = 3;

/// Replaces the jumps that are too far for a branch, which reaches so many dwords.
pub(super) fn reach(steps: Vec<Step>, target: Target, branch_dwords: u16) -> Result<Vec<Step>, CompileError> {
    let most = i64::from(branch_dwords);
    if steps.len() * MOST_DWORDS <= usize::from(branch_dwords) {
        return Ok(steps);
    }
    let mut sizes: Vec<usize> = Vec::with_capacity(steps.len());
    for s in &steps {
        sizes.push(match s {
            Step::Label(_) => 0,
            Step::Jump(..) => 1,
            Step::Op(inst) => encode(target, inst)?.len(),
        });
    }
    let mut far = vec![false; steps.len()];
    loop {
        let offsets = offsets(&sizes);
        let labels = labels(&steps, &offsets);
        let mut grown = false;
        for (k, s) in steps.iter().enumerate() {
            if let Step::Jump(inst, to) = s
                && !far[k]
                && !(-1 - most..=most).contains(&distance(&labels, *to, offsets[k] + 1)?)
            {
                far[k] = true;
                sizes[k] = 1 + jump(inst.op, 0, 0, 0, target)?.iter().filter(|s| !matches!(s, Step::Label(_))).count();
                grown = true;
            }
        }
        if !grown {
            return replace(steps, &far, &offsets, &labels, target);
        }
    }
}

/// The first dword of each step.
fn offsets(sizes: &[usize]) -> Vec<usize> {
    let next = |at: &mut usize, size: &usize| Some(std::mem::replace(at, *at + size));
    sizes.iter().scan(0, next).collect()
}

fn labels(steps: &[Step], offsets: &[usize]) -> HashMap<u32, usize> {
    let bound = |(s, at): (&Step, &usize)| if let Step::Label(l) = s { Some((*l, *at)) } else { None };
    steps.iter().zip(offsets).filter_map(bound).collect()
}

/// Dwords from an instruction to a label.
fn distance(labels: &HashMap<u32, usize>, to: u32, from: usize) -> Result<i64, CompileError> {
    let at =
        labels.get(&to).ok_or_else(|| CompileError::Malformed(format!("a jump to label {to}, which is nowhere")))?;
    Ok(i64::try_from(*at).unwrap_or(i64::MAX) - i64::try_from(from).unwrap_or(i64::MAX))
}

fn replace(
    steps: Vec<Step>,
    far: &[bool],
    offsets: &[usize],
    labels: &HashMap<u32, usize>,
    target: Target,
) -> Result<Vec<Step>, CompileError> {
    let mut fresh = labels.keys().max().map_or(0, |l| l + 1);
    let mut out = Vec::with_capacity(steps.len());
    for (k, s) in steps.into_iter().enumerate() {
        match s {
            Step::Jump(inst, to) if far[k] => {
                // The counter is read after the s_getpc.
                let before = 1 + usize::from(inst.op != op::S_BRANCH);
                let bytes = 4 * distance(labels, to, offsets[k] + before)?;
                out.extend(jump(inst.op, to, bytes, fresh, target)?);
                fresh += 1;
            }
            s => out.push(s),
        }
    }
    Ok(out)
}

/// A jump over any distance; `skip` is the label after it. One dword each, except the addition's literal.
fn jump(by: Op, to: u32, bytes: i64, skip: u32, target: Target) -> Result<Vec<Step>, CompileError> {
    let (low, high) = (ss(mir::SPARE_SGPR, 1), ss(mir::SPARE_SGPR + 1, 1));
    let pair = ss(mir::SPARE_SGPR, 2);
    let far =
        i32::try_from(bytes).map_err(|_| CompileError::Encode(format!("a jump over {bytes} bytes to label {to}")))?;
    let add = |op, sum, n| Step::Op(Inst::new(names::on(target.chip, op), [sum, sum, n]));
    let mut out = Vec::new();
    if by != op::S_BRANCH {
        out.push(Step::Jump(Inst::new(opposite(by)?, [Operand::Label(skip)]), skip));
    }
    out.push(Step::Op(Inst::new(op::S_GETPC_B64, [pair])));
    out.push(add(op::S_ADD_U32, low, Operand::Lit(far.cast_unsigned())));
    out.push(add(op::S_ADDC_U32, high, Operand::Int(if far < 0 { -1 } else { 0 })));
    if target.chip == Chip::Gfx1201 {
        out.push(Step::Op(Inst::new(op::S_WAIT_ALU, [Operand::Int(0xfffe)]))); // a jump does not wait for the sum
    }
    out.push(Step::Op(Inst::new(op::S_SETPC_B64, [pair])));
    out.push(Step::Label(skip));
    Ok(out)
}

/// The branch that is taken when this one is not.
fn opposite(by: Op) -> Result<Op, CompileError> {
    const PAIRS: [[Op; 2]; 3] = [
        [op::S_CBRANCH_SCC0, op::S_CBRANCH_SCC1],
        [op::S_CBRANCH_VCCZ, op::S_CBRANCH_VCCNZ],
        [op::S_CBRANCH_EXECZ, op::S_CBRANCH_EXECNZ],
    ];
    let find = |p: &[Op; 2]| p.iter().position(|o| *o == by).map(|k| p[1 - k]);
    PAIRS.iter().find_map(find).ok_or_else(|| CompileError::Encode(format!("{} over more than 128 KiB", by.name())))
}

#[cfg(test)]
mod tests {
    use super::super::super::{s, v};
    use super::*;

    const BRANCH: u16 = 0x7fff;

    fn filler(n: usize) -> impl Iterator<Item = Step> {
        let add = Step::Op(Inst::new(op::V_ADD_F32, [v(0), Operand::Lit(0x3f80_0001), v(0)]));
        std::iter::repeat_n(add, n)
    }

    fn branch(by: Op, to: u32) -> Step {
        Step::Jump(Inst::new(by, [Operand::Label(to)]), to)
    }

    /// The target of each far jump, from the code's own arithmetic, and the offset of its label.
    fn landings(steps: &[Step], target: Target) -> Vec<usize> {
        let size = |s: &Step| match s {
            Step::Label(_) => 0,
            Step::Op(i) | Step::Jump(i, _) => encode(target, i).map_or(1, |w| w.len()),
        };
        let mut found = Vec::new();
        for (k, s) in steps.iter().enumerate() {
            let Step::Op(i) = s else { continue };
            if i.op == op::S_GETPC_B64 {
                let Step::Op(add) = &steps[k + 1] else { panic!("an addition follows") };
                let Operand::Lit(bytes) = add.operands[2] else { panic!("a literal") };
                let here: usize = steps[..=k].iter().map(size).sum();
                found.push(usize::try_from(here as i64 + i64::from(bytes.cast_signed()) / 4).unwrap());
            }
        }
        found
    }

    #[test]
    fn a_branch_over_more_than_its_reach_goes_by_the_program_counter_both_ways() {
        for chip in Chip::ALL {
            let target = Target::of(chip);
            let mut steps = vec![Step::Label(0)];
            steps.extend(filler(10));
            steps.push(branch(op::S_CBRANCH_SCC0, 1));
            steps.extend(filler(17_000));
            steps.push(branch(op::S_CBRANCH_SCC1, 0));
            steps.push(branch(op::S_BRANCH, 0));
            steps.push(Step::Label(1));
            steps.push(Step::Op(Inst::new(op::S_ENDPGM, [])));
            let out = reach(steps, target, BRANCH).unwrap();
            let size: usize = out
                .iter()
                .map(|s| match s {
                    Step::Label(_) => 0,
                    Step::Jump(..) => 1,
                    Step::Op(i) => encode(target, i).unwrap().len(),
                })
                .sum();
            assert_eq!(landings(&out, target), [size - 1, 0, 0], "{}", chip.name());
            let first = out.iter().position(|s| matches!(s, Step::Jump(..))).unwrap();
            assert!(matches!(&out[first], Step::Jump(i, _) if i.op == op::S_CBRANCH_SCC1), "the opposite condition");
        }
    }

    #[test]
    fn near_branches_stay_as_they_are() {
        let target = Target::of(Chip::Gfx1100);
        let mut steps = vec![Step::Label(0)];
        steps.extend(filler(16_000));
        steps.push(branch(op::S_CBRANCH_SCC1, 0));
        assert_eq!(reach(steps.clone(), target, BRANCH).unwrap(), steps);
        // The farthest back that a branch reaches, and one dword more.
        let at = |dwords: usize| {
            let mut steps = vec![Step::Label(0)];
            steps.extend(std::iter::repeat_n(Step::Op(Inst::new(op::S_MOV_B32, [s(4), s(5)])), dwords));
            steps.push(branch(op::S_CBRANCH_SCC1, 0));
            reach(steps, target, BRANCH).unwrap().len()
        };
        assert_eq!(at(32_767), 32_769);
        assert!(at(32_768) > 32_770);
    }

    #[test]
    fn a_jump_that_has_no_opposite_is_refused_by_name() {
        assert_eq!(opposite(op::S_SETPC_B64), Err(CompileError::Encode("s_setpc_b64 over more than 128 KiB".into())));
    }
}
