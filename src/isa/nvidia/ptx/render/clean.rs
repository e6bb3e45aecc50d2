//! Cleanup of the generated code: removes results that are never read, and moves whose source could be computed
//! directly into the destination.

use super::code::{Code, Reg};
use super::{Render, Res};
use std::collections::HashMap;

/// How many instructions back to search for the instruction that computes a move's source.
const REACH: usize = 2000;

pub(super) fn clean(r: &mut Render) -> Res<()> {
    let mut reads: HashMap<Reg, u32> = HashMap::new();
    let mut writes: HashMap<Reg, u32> = HashMap::new();
    for c in &r.code {
        c.reads(&mut |x| *reads.entry(x).or_default() += 1);
        c.outs.iter().for_each(|x| *writes.entry(*x).or_default() += 1);
    }
    let mut gone = vec![false; r.code.len()];
    for k in (0..r.code.len()).rev() {
        let c = &r.code[k];
        if !c.outs.is_empty() && c.outs.iter().all(|x| reads.get(x).is_none_or(|n| *n == 0)) {
            gone[k] = true;
            c.reads(&mut |x| {
                if let Some(n) = reads.get_mut(&x) {
                    *n -= 1;
                }
            });
        }
    }
    keep(&mut r.code, &gone);
    let mut gone = vec![false; r.code.len()];
    for k in 0..r.code.len() {
        let Some((to, from)) = moved(&r.code[k]).filter(|(to, _)| r.mutable.contains(to)) else { continue };
        if r.mutable.contains(&from) || reads.get(&from) != Some(&1) || writes.get(&from) != Some(&1) {
            continue;
        }
        if let Some(maker) = maker(&r.code[..k], &gone, to, from) {
            r.code[maker].outs.iter_mut().filter(|x| **x == from).for_each(|x| *x = to);
            gone[k] = true;
        }
    }
    keep(&mut r.code, &gone);
    Ok(())
}

fn keep(code: &mut Vec<Code>, gone: &[bool]) {
    let mut k = 0;
    code.retain(|_| {
        k += 1;
        !gone[k - 1]
    });
}

/// Both registers of a plain move.
fn moved(c: &Code) -> Option<(Reg, Reg)> {
    match (c.outs.as_slice(), c.ins.as_slice()) {
        ([to], [super::Opd::Reg(from)])
            if c.name.starts_with("mov.") && c.guard.is_none() && to.class == from.class =>
        {
            Some((*to, *from))
        }
        _ => None,
    }
}

/// The instruction that computes `from`, if `to` is neither read nor written between it and the end.
fn maker(code: &[Code], gone: &[bool], to: Reg, from: Reg) -> Option<usize> {
    for k in (code.len().saturating_sub(REACH)..code.len()).rev().filter(|k| !gone[*k]) {
        let c = &code[k];
        if c.is_label() || c.name.starts_with("bra") {
            return None;
        }
        if c.outs.contains(&from) {
            return (c.guard.is_none() && !c.outs.contains(&to)).then_some(k);
        }
        let mut touched = c.outs.contains(&to);
        c.reads(&mut |x| touched |= x == to);
        if touched {
            return None;
        }
    }
    None
}
