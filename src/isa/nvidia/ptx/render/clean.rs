//! Cleanup of the generated code: removes results that are never read, and moves whose source could be computed
//! directly into the destination.

use super::code::{Code, Opd, Reg};
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
    accumulate(r);
    Ok(())
}

/// Chains of products that are added to a register and end in it stay in it from the start: with registers of their own
/// for what is in between, all sums of a tile would be live twice.
fn accumulate(r: &mut Render) {
    let mut touched: HashMap<Reg, Vec<usize>> = HashMap::new();
    let mut made: HashMap<Reg, (usize, u32)> = HashMap::new();
    let mut blocks = Vec::with_capacity(r.code.len());
    let mut block = 0;
    for (k, c) in r.code.iter().enumerate() {
        block += u32::from(c.is_label() || c.name.starts_with("bra"));
        blocks.push(block);
        c.reads(&mut |x| touched.entry(x).or_default().push(k));
        for out in &c.outs {
            touched.entry(*out).or_default().push(k);
            let one = made.entry(*out).or_insert((k, 0));
            *one = (k, one.1 + 1);
        }
    }
    for last in (0..r.code.len()).rev() {
        let Some((sum, mut before)) = accumulated(&r.code[last]).filter(|(to, _)| r.mutable.contains(to)) else {
            continue;
        };
        let mut chain = Vec::new();
        while before != sum && !r.mutable.contains(&before) {
            let Some(&(k, 1)) = made.get(&before) else { break };
            // Written once and read once, the latter by the step after it.
            let alone = touched.get(&before).is_some_and(|t| t.len() == 2) && blocks[k] == blocks[last];
            let Some((_, next)) = accumulated(&r.code[k]).filter(|_| alone) else { break };
            chain.push(k);
            before = next;
        }
        let Some(first) = chain.last().copied().filter(|_| before == sum) else { continue };
        let free = touched.get(&sum).is_some_and(|t| !t.iter().any(|k| (first + 1..last).contains(k)));
        if free {
            for k in chain {
                let step = r.code[k].outs[0];
                r.code[k].outs[0] = sum;
                let user = touched[&step].iter().copied().find(|user| *user != k);
                if let Some(Opd::Reg(addend)) = user.and_then(|user| r.code[user].ins.get_mut(2)) {
                    *addend = sum;
                }
            }
        }
    }
}

/// The result of a product that is added, and what it is added to.
fn accumulated(c: &Code) -> Option<(Reg, Reg)> {
    match (c.outs.as_slice(), c.ins.as_slice()) {
        ([to], [_, _, Opd::Reg(from)]) if c.name.starts_with("fma.rn.f") && c.guard.is_none() => Some((*to, *from)),
        _ => None,
    }
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
        ([to], [Opd::Reg(from)]) if c.name.starts_with("mov.") && c.guard.is_none() && to.class == from.class => {
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
