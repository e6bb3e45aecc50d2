//! Sinks address computations: a pointer made of a parameter and a product is computed shortly before its first use
//! instead of where the text has it.
//!
//! CUDA code computes all pointers at its start, and a pointer for a store at the end would occupy two registers until
//! then. The product's factors are usually live anyway, and the parameter is a constant that can be loaded late. Done
//! on virtual registers, within a block, before loads are hoisted (`hoist`).

use crate::sass::compile::mir::{Code, Mach};
use crate::sass::op;
use doorbell_codegen::regalloc::VReg;

/// How many instructions before its use an address is computed, and how many before that its parameter is loaded, to
/// avoid stalls.
const ADDRESS: usize = 6;
const PARAMETER: usize = 12;

/// Sinks addresses in all blocks.
pub(crate) fn sink(code: &mut Code) {
    let mut reads: Vec<u32> = vec![];
    for b in &code.order {
        let ops = &mut code.blocks[*b].ops;
        if ops.len() < ADDRESS + PARAMETER || !ops.iter().any(is_product) {
            continue;
        }
        if reads.is_empty() {
            reads.resize(code.classes.len(), 0);
        } else {
            reads.fill(0);
        }
        for r in ops.iter().flat_map(|m| &m.regs).filter(|r| !r.write) {
            reads[r.word.reg().0 as usize] += 1;
        }
        let mut at = ops.len();
        while at > 0 {
            at -= 1;
            // The two words of a parameter before the only product that reads them.
            if at < 2 || !is_product(&ops[at]) || !is_parameter(&ops[at - 2..at], &ops[at], &reads) {
                continue;
            }
            let Some(used) = first_use(ops, at) else { continue };
            let to = group_start(ops, used.saturating_sub(ADDRESS));
            if to > at + 1 {
                ops[at..to].rotate_left(1);
                let to = group_start(ops, to.saturating_sub(PARAMETER + 1)).max(at);
                ops[at - 2..to].rotate_left(2);
            }
        }
    }
}

/// A product that is added to a parameter.
fn is_product(m: &Mach) -> bool {
    let form = m.inst.form();
    form.mnemonic == "IMAD" && form.name.starts_with("WIDE") && !m.is_guarded() && !m.glued && !m.effect
}

fn is_parameter(pair: &[Mach], product: &Mach, reads: &[u32]) -> bool {
    let made = |m: &Mach| match m.regs.as_slice() {
        [r] if r.write && std::ptr::eq(m.inst.form(), op::MOV_C) && !m.is_guarded() => Some(r.word.reg()),
        _ => None,
    };
    let [low, high] = pair else { return false };
    let both = made(low).filter(|r| made(high) == Some(*r) && !low.glued && high.glued);
    both.is_some_and(|r| reads[r.0 as usize] == 1 && product.regs.iter().any(|s| !s.write && s.word.reg() == r))
}

/// The next instruction that touches what one writes, or writes what it reads.
fn first_use(ops: &[Mach], at: usize) -> Option<usize> {
    let of = |write: bool| ops[at].regs.iter().filter(move |r| r.write == write).map(|r| r.word.reg());
    let meets = |m: &Mach| {
        m.regs
            .iter()
            .any(|r| of(true).any(|w: VReg| w == r.word.reg()) || r.write && of(false).any(|s| s == r.word.reg()))
    };
    Some(at + 1 + ops[at + 1..].iter().position(meets)?)
}

/// Where the group begins that an instruction is in.
fn group_start(ops: &[Mach], at: usize) -> usize {
    (0..=at).rev().find(|k| !ops[*k].glued).unwrap_or(0)
}
