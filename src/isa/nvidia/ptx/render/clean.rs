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
/// for what is in between, all sums of a tile would be live twice. A product that is taken where a predicate holds
/// becomes a guarded one.
fn accumulate(r: &mut Render) {
    let uses = Uses::of(&r.code);
    let mut gone = vec![false; r.code.len()];
    for last in (0..r.code.len()).rev() {
        let Some((sum, mut before, step)) = uses.step(&r.code, last).filter(|s| r.mutable.contains(&s.0)) else {
            continue;
        };
        let mut chain = vec![step];
        while before != sum && !r.mutable.contains(&before) {
            let Some(&(k, 1)) = uses.made.get(&before) else { break };
            // Written once, and read by the step after it alone.
            let next = chain.last().map_or(0, |s| s.reads());
            let alone = uses.touched.get(&before).is_some_and(|t| t.len() == 1 + next);
            if !alone || uses.blocks[k] != uses.blocks[last] {
                break;
            }
            let Some((_, earlier, step)) = uses.step(&r.code, k) else { break };
            chain.push(step);
            before = earlier;
        }
        let first = chain.last().and_then(|s| s.products.last().copied()).unwrap_or(last);
        let inside = |k: &usize| (first + 1..last).contains(k) && !chain.iter().any(|s| s.chosen == Some(*k));
        let free = before == sum && uses.touched.get(&sum).is_some_and(|t| !t.iter().any(inside));
        if !free {
            continue;
        }
        for Step { products, chosen } in chain {
            let guard = chosen.and_then(|k| match r.code[k].ins[2] {
                Opd::Reg(p) => Some((false, p)),
                _ => None,
            });
            for product in products {
                let c = &mut r.code[product];
                (c.outs[0], c.ins[2], c.guard) = (sum, Opd::Reg(sum), guard);
            }
            chosen.iter().for_each(|k| gone[*k] = true);
        }
    }
    keep(&mut r.code, &gone);
}

/// A product of a chain, or several of them, the last one first, and the instruction that takes them or what was
/// before.
struct Step {
    products: Vec<usize>,
    chosen: Option<usize>,
}

impl Step {
    /// How often it reads what was before it.
    fn reads(&self) -> usize {
        1 + usize::from(self.chosen.is_some())
    }
}

/// Where registers are written and read.
struct Uses {
    touched: HashMap<Reg, Vec<usize>>,
    /// The last instruction that writes a register, and how many there are.
    made: HashMap<Reg, (usize, u32)>,
    /// The number of the straight-line piece of code that an instruction is in.
    blocks: Vec<u32>,
}

impl Uses {
    fn of(code: &[Code]) -> Uses {
        let mut uses = Uses { touched: HashMap::new(), made: HashMap::new(), blocks: Vec::with_capacity(code.len()) };
        let mut block = 0;
        for (k, c) in code.iter().enumerate() {
            block += u32::from(c.is_label() || c.name.starts_with("bra"));
            uses.blocks.push(block);
            c.reads(&mut |x| uses.touched.entry(x).or_default().push(k));
            for out in &c.outs {
                uses.touched.entry(*out).or_default().push(k);
                let one = uses.made.entry(*out).or_insert((k, 0));
                *one = (k, one.1 + 1);
            }
        }
        uses
    }

    /// The step of a chain that ends with this instruction: its result, and what it is added to.
    fn step(&self, code: &[Code], k: usize) -> Option<(Reg, Reg, Step)> {
        if let Some((to, before)) = accumulated(&code[k]) {
            return Some((to, before, Step { products: vec![k], chosen: None }));
        }
        let c = &code[k];
        let ([to], [Opd::Reg(sum), Opd::Reg(before), Opd::Reg(gate)]) = (c.outs.as_slice(), c.ins.as_slice()) else {
            return None;
        };
        if c.name != "selp.f32" || c.guard.is_some() {
            return None;
        }
        let (mut products, mut now) = (Vec::new(), *sum);
        while now != *before {
            let &(product, 1) = self.made.get(&now)? else { return None };
            let alone = self.touched.get(&now).is_some_and(|t| t.len() == 2);
            if !alone || self.blocks[product] != self.blocks[k] {
                return None;
            }
            products.push(product);
            now = accumulated(&code[product])?.1;
        }
        // The predicate is known where the products are, and still the same.
        let first = *products.last()?;
        let known = self.touched.get(gate)?.iter().all(|at| !code[*at].outs.contains(gate) || *at < first);
        known.then_some((*to, *before, Step { products, chosen: Some(k) }))
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
