//! Finds registers with the same value in all threads of a warp: branches on those need no convergence barrier.
//!
//! A register is uniform if all values written to it are computed from uniform registers. A register with several
//! writes may still differ between threads that left a loop at different iterations, so if any branch is not uniform,
//! no such register is.

use super::facts::RegisterFacts;
use crate::ptx::{Opcode, Space};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Symbol};

pub(crate) fn uniform(body: &Body, facts: &RegisterFacts) -> Vec<bool> {
    let mut uniform = vec![true; body.regs.len()];
    let mut diverges = false;
    loop {
        let mut changed = false;
        for item in &body.items {
            let Item::Inst(i) = item else { continue };
            // It is non-uniform already, whatever its sources are.
            if let (1, Some(Opd::Reg(r))) = (i.results(), i.opds.first())
                && !uniform[*r as usize]
            {
                continue;
            }
            let guarded = i.guard.is_some_and(|(p, _)| !uniform[p as usize]);
            let apart = i.op == Opcode::Brx && !i.opds.first().is_none_or(|o| agrees(o, &uniform));
            if (i.op == Opcode::Bra && guarded || apart) && !i.has("uni") && !diverges {
                (diverges, changed) = (true, true);
            }
            let same = !guarded && source(i) && i.opds[i.results()..].iter().all(|o| agrees(o, &uniform));
            for o in &i.opds[..i.results()] {
                mark(o, &mut |r| {
                    let keeps = same && !(diverges && facts.writes[r] > 1);
                    changed |= uniform[r] && !keeps;
                    uniform[r] &= keeps;
                });
            }
        }
        if !changed {
            return uniform;
        }
    }
}

/// Whether the instruction gives uniform results from uniform sources.
fn source(i: &Flat) -> bool {
    match i.op {
        Opcode::Ld if i.opds.last().is_some_and(passed) => false,
        Opcode::Ld => matches!(i.space(), Some(Space::Param | Space::ParamEntry | Space::Const)),
        Opcode::Ldu
        | Opcode::Atom
        | Opcode::Shfl
        | Opcode::Mma
        | Opcode::Wgmma
        | Opcode::Wmma
        | Opcode::Ldmatrix
        | Opcode::Match
        | Opcode::Multimem
        | Opcode::Elect => false,
        Opcode::Activemask | Opcode::Tex | Opcode::Mbarrier | Opcode::Movmatrix | Opcode::Alloca => false,
        Opcode::Mov => {
            !matches!(i.opds.last(), Some(Opd::Special(n)) if n.starts_with("%tid") || n.starts_with("%lane") || n.starts_with("%clock") || n.starts_with("%globaltimer"))
        }
        _ => true,
    }
}

/// Values passed by a call are per thread.
fn passed(o: &Opd) -> bool {
    let Opd::Address(base, _) = o else { return false };
    matches!(**base, Opd::Symbol(Symbol::Outgoing(_) | Symbol::Incoming(_), _))
}

#[inline]
fn agrees(o: &Opd, uniform: &[bool]) -> bool {
    match o {
        Opd::Reg(r) => uniform[*r as usize],
        Opd::Imm(_) => true,
        o => parts_agree(o, uniform),
    }
}

fn parts_agree(o: &Opd, uniform: &[bool]) -> bool {
    match o {
        Opd::Reg(r) | Opd::Not(r) => uniform[*r as usize],
        Opd::Vector(v) => v.iter().all(|o| agrees(o, uniform)),
        Opd::Pair(a, b) => agrees(a, uniform) && agrees(b, uniform),
        Opd::Address(b, _) => agrees(b, uniform),
        _ => true,
    }
}

#[inline]
fn mark(o: &Opd, f: &mut impl FnMut(usize)) {
    match o {
        Opd::Reg(r) => f(*r as usize),
        o => mark_parts(o, f),
    }
}

fn mark_parts(o: &Opd, f: &mut impl FnMut(usize)) {
    match o {
        Opd::Reg(r) => f(*r as usize),
        Opd::Vector(v) => v.iter().for_each(|o| mark(o, f)),
        Opd::Pair(a, b) => {
            mark(a, f);
            mark(b, f);
        }
        _ => {}
    }
}
