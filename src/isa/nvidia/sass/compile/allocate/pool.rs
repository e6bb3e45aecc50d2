//! Dynamic register reallocation between warps (`setmaxnreg`): code after such an instruction has as many registers as
//! it says.
//!
//! Registers are allocated for the whole kernel at once, single ones from the lowest on, so that code which needs few
//! registers tends to stay within its number; [`keeps_within`] checks it. If it does not, the kernel is compiled
//! without these instructions, as ptxas does.

use crate::ptx::{Function, Imm, Opcode, Tuning};
use crate::sass::compile::lines::Line;
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd};
use crate::sass::compile::schedule::list::jumps;
use crate::sass::{Guard, Instruction, RegFile, Role, effects};
use hashbrown::HashMap;

/// The smallest and the largest register count in a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pool {
    pub least: u16,
    pub most: u16,
}

/// The counts in a kernel, if its initial number of registers is declared.
pub(crate) fn pool<B>(f: &Function<B>, body: &Body) -> Option<Pool> {
    let says = |want: &str| f.tuning.iter().any(|t| matches!(t, Tuning::Numbers(name, _) if &**name == want));
    let declared = says("maxnreg") || says("minnctapersm") && (says("maxntid") || says("reqntid"));
    let mut all = body.items.iter().filter_map(|item| match item {
        Item::Inst(Flat { op: Opcode::Setmaxnreg, opds, .. }) => match opds.first() {
            Some(Opd::Imm(Imm::Int(n))) => u16::try_from(*n).ok(),
            _ => None,
        },
        _ => None,
    });
    let first = all.next().filter(|_| f.entry && declared)?;
    let (least, most) = all.fold((first, first), |(low, high), n| (low.min(n), high.max(n)));
    Some(Pool { least, most })
}

/// Registers that the hardware reserves.
const OWN: u16 = 2;

fn highest(inst: &Instruction) -> u16 {
    let all = effects(inst);
    let general = all.reads.iter().chain(&all.writes).filter(|a| a.file == RegFile::General);
    general.map(|a| u16::from(a.first) + u16::from(a.count)).max().unwrap_or(0)
}

/// Registers that code uses.
pub(crate) fn used(lines: &[Line]) -> u32 {
    let all = lines.iter().map(|l| if let Line::Inst(inst, _) = l { highest(inst) } else { 0 });
    all.max().unwrap_or(0).into()
}

/// Whether code that starts with so many registers never uses more than it has at each point.
pub(crate) fn keeps_within(lines: &[Line], start: u16) -> bool {
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
