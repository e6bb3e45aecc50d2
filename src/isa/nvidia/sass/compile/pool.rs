//! Registers that warps give to each other (`setmaxnreg`): code behind such an instruction has as many as it says.
//!
//! Registers are given out for the whole kernel at once, single ones from below, so that code of few registers tends to stay within its number;
//! [`keeps_within`] tells whether it does. Where it does not, the kernel is made without the instructions, as ptxas does.

use super::flat::{Body, Flat, Item, Opd};
use super::lines::Line;
use super::schedule::jumps;
use crate::ptx::{Function, Imm, Opcode, Tuning};
use crate::sass::{Guard, Instruction, RegFile, Role, effects};
use hashbrown::HashMap;

/// The least and the most registers that a body asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pool {
    pub least: u16,
    pub most: u16,
}

/// What a kernel asks for, if the number of registers at its start is told.
pub(super) fn pool<B>(f: &Function<B>, body: &Body) -> Option<Pool> {
    let says = |want: &str| f.tuning.iter().any(|t| matches!(t, Tuning::Numbers(name, _) if &**name == want));
    let told = says("maxnreg") || says("minnctapersm") && (says("maxntid") || says("reqntid"));
    let mut all = body.items.iter().filter_map(|item| match item {
        Item::Inst(Flat { op: Opcode::Setmaxnreg, opds, .. }) => match opds.first() {
            Some(Opd::Imm(Imm::Int(n))) => u16::try_from(*n).ok(),
            _ => None,
        },
        _ => None,
    });
    let first = all.next().filter(|_| f.entry && told)?;
    let (least, most) = all.fold((first, first), |(low, high), n| (low.min(n), high.max(n)));
    Some(Pool { least, most })
}

/// Registers that the hardware keeps for itself.
const OWN: u16 = 2;

fn highest(inst: &Instruction) -> u16 {
    let all = effects(inst);
    let general = all.reads.iter().chain(&all.writes).filter(|a| a.file == RegFile::General);
    general.map(|a| u16::from(a.first) + u16::from(a.count)).max().unwrap_or(0)
}

/// Registers that code uses.
pub(super) fn used(lines: &[Line]) -> u32 {
    let all = lines.iter().map(|l| if let Line::Inst(inst, _) = l { highest(inst) } else { 0 });
    all.max().unwrap_or(0).into()
}

/// Whether code that starts with so many registers never uses more than it has.
pub(super) fn keeps_within(lines: &[Line], start: u16) -> bool {
    let mut at_label: HashMap<usize, u16> = HashMap::new();
    loop {
        let (mut changed, mut now) = (false, Some(start));
        let mut join = |label: usize, n: u16| {
            let old = at_label.entry(label).or_insert(u16::MAX);
            changed |= n < *old;
            *old = n.min(*old);
            *old
        };
        for line in lines {
            match line {
                Line::Label(l) => {
                    let n = join(*l, now.unwrap_or(u16::MAX));
                    now = Some(n).filter(|n| *n != u16::MAX);
                }
                Line::Inst(inst, target) => {
                    let Some(n) = now else { continue };
                    if inst.form().mnemonic == "USETMAXREG" {
                        now = inst.get("n", Role::Value).and_then(|n| u16::try_from(n).ok());
                    } else if highest(inst) + OWN > n {
                        return false;
                    }
                    if let (Some(t), true) = (target, jumps(inst)) {
                        join(*t, n);
                    }
                    if jumps(inst) && inst.guard == Guard::ALWAYS {
                        now = None;
                    }
                }
            }
        }
        if !changed {
            return true;
        }
    }
}
