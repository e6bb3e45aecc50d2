//! Joins loads of adjacent words of shared memory into loads of 64 or 128 bits, if the address is known to be aligned.
//!
//! The joint load replaces the first one, if nothing between may change shared memory. For alignment, the low zero bits
//! of an address are analysed: products and shifts by constants, and sums of such.

use super::facts::{Known, RegisterFacts, SHARED_START, each};
use crate::ptx::{Imm, Modifier, Opcode, Space, Type};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Reg, Symbol};
use crate::sass::compile::read::source::Store;

static PAIR: [Modifier; 3] = [Modifier::Space(Space::Shared), Modifier::Vector(2), Modifier::Type(Type::B32)];
static QUAD: [Modifier; 3] = [Modifier::Space(Space::Shared), Modifier::Vector(4), Modifier::Type(Type::B32)];

/// Number of low zero bits of the constant zero.
const ALL: u8 = 31;

/// A load of a word: its address, and its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    /// `None`: the offset is the address.
    base: Option<Reg>,
    offset: i64,
    item: usize,
    to: Reg,
}

/// Joins loads; whether there were any.
pub(crate) fn join<'a>(body: &mut Body<'a>, store: &'a Store<'a>, facts: &RegisterFacts) -> bool {
    let count = body.items.iter().filter(|item| matches!(item, Item::Inst(i) if word_of_shared(i).is_some())).count();
    if count < 2 {
        return false;
    }
    let zeros = zeros(body);
    let mut apart = vec![false; body.regs.len()];
    for item in &body.items {
        let Item::Inst(i) = item else { continue };
        for o in i.opds.iter().filter(|o| matches!(o, Opd::Vector(_))) {
            each(o, &mut |r| apart[facts.root(r) as usize] = true);
        }
    }
    let (mut joint, mut open): (Vec<(Vec<Load>, bool)>, Vec<Load>) = (vec![], vec![]);
    for (k, item) in body.items.iter().enumerate() {
        match item {
            Item::Inst(i) if passes(i) => {
                let load = word_of_shared(i).and_then(|(to, base, offset)| place(facts, base, offset).map(|p| (to, p)));
                if let Some((to, (base, offset))) = load.filter(|(to, _)| {
                    facts.writes[*to as usize] == 1 && body.regs[*to as usize].bits() == 32 && !apart[*to as usize]
                }) {
                    open.push(Load { base, offset, item: k, to });
                }
            }
            _ => close(&mut open, &zeros, &mut joint),
        }
    }
    close(&mut open, &zeros, &mut joint);
    replace(body, store, &joint);
    !joint.is_empty()
}

/// Destination, base and offset of a plain load of a word of shared memory.
fn word_of_shared<'a>(i: &Flat<'a>) -> Option<(Reg, &'a Opd<'a>, i64)> {
    let shared = || matches!(i.space(), Some(Space::Shared | Space::SharedCta));
    match (i.op, &*i.opds) {
        (Opcode::Ld, [Opd::Reg(to), Opd::Address(base, offset)])
            if i.guard.is_none() && shared() && i.ty().bits() == 32 && i.lanes() == 1 && i.is_plain() =>
        {
            Some((*to, base, *offset))
        }
        _ => None,
    }
}

/// Root and offset of an address.
fn place(facts: &RegisterFacts, base: &Opd, offset: i64) -> Option<(Option<Reg>, i64)> {
    match base {
        Opd::Reg(r) => {
            let root = facts.root(*r);
            match facts.known[root as usize] {
                Known::Shared(at) => Some((None, i64::from(at) + offset)),
                Known::Sum(root, more) if facts.writes[root as usize] == 1 => Some((Some(root), more + offset)),
                Known::Nothing if facts.writes[root as usize] == 1 => Some((Some(root), offset)),
                _ => None,
            }
        }
        Opd::Symbol(Symbol::Shared(at), more) => Some((None, i64::from(SHARED_START + at) + more + offset)),
        _ => None,
    }
}

/// Whether a load can be moved before the instruction.
fn passes(i: &Flat) -> bool {
    use Opcode::*;
    match i.op {
        St | Red | Atom => i.space() == Some(Space::Global) && i.guard.is_none(),
        Bar | Barrier | Membar | Fence | Mbarrier | Cp | Call | Stmatrix | Wmma | Shfl | Activemask | Nanosleep => {
            false
        }
        _ => i.results() > 0,
    }
}

/// Finds adjacent loads.
fn close(open: &mut Vec<Load>, zeros: &[u8], joint: &mut Vec<(Vec<Load>, bool)>) {
    open.sort_unstable();
    let mut k = 0;
    while k < open.len() {
        let first = open[k];
        let aligned = |bytes: i64| {
            let base = first.base.map_or(ALL, |r| zeros[r as usize]);
            first.offset.rem_euclid(bytes) == 0 && i64::from(base) >= i64::from(bytes.trailing_zeros())
        };
        let next =
            |n: usize| open.get(k + n).is_some_and(|l| l.base == first.base && l.offset == first.offset + 4 * n as i64);
        let n = match () {
            () if aligned(16) && next(1) && next(2) && next(3) => 4,
            () if aligned(8) && next(1) => 2,
            () => 1,
        };
        if n > 1 {
            joint.push((open[k..k + n].to_vec(), n == 4));
        }
        k += n;
    }
    open.clear();
}

/// Replaces the first load by the joint one, and removes the others.
fn replace<'a>(body: &mut Body<'a>, store: &'a Store<'a>, joint: &[(Vec<Load>, bool)]) {
    let mut gone = vec![false; body.items.len()];
    for (loads, quad) in joint {
        let Some(first) = loads.iter().map(|l| l.item).min() else { continue };
        loads.iter().filter(|l| l.item != first).for_each(|l| gone[l.item] = true);
        let base = match loads[0].base {
            Some(r) => Opd::Reg(r),
            None => Opd::Symbol(Symbol::Shared(0), -i64::from(SHARED_START)),
        };
        if let Item::Inst(i) = &mut body.items[first] {
            let to = loads.iter().map(|l| Opd::Reg(l.to)).collect();
            i.opds =
                [Opd::Vector(store.list(to)), Opd::Address(store.one(base), loads[0].offset)].into_iter().collect();
            i.say(if *quad { &QUAD } else { &PAIR });
        }
    }
    let mut k = 0;
    body.items.retain(|_| {
        k += 1;
        !gone[k - 1]
    });
}

/// The number of low zero bits of each register.
fn zeros(body: &Body) -> Vec<u8> {
    let mut zeros = vec![ALL; body.regs.len()];
    loop {
        let mut changed = false;
        for item in &body.items {
            let Item::Inst(i) = item else { continue };
            let bits = match i.opds.first() {
                Some(Opd::Reg(_)) => of_result(i, &zeros),
                _ => 0,
            };
            for o in i.opds.iter().take(i.results()) {
                each(o, &mut |r| {
                    let known = &mut zeros[r as usize];
                    changed |= *known > bits;
                    *known = bits.min(*known);
                });
            }
        }
        if !changed {
            return zeros;
        }
    }
}

/// The same for an instruction's result.
fn of_result(i: &Flat, zeros: &[u8]) -> u8 {
    use Opcode::*;
    let of = |k: usize| match i.opds.get(k) {
        Some(Opd::Imm(Imm::Int(0))) => ALL,
        Some(Opd::Imm(Imm::Int(v))) => v.trailing_zeros().min(u32::from(ALL)) as u8,
        Some(Opd::Reg(r)) => zeros[*r as usize],
        Some(Opd::Symbol(Symbol::Shared(at), more)) => {
            (i64::from(SHARED_START + at) + more).trailing_zeros().min(u32::from(ALL)) as u8
        }
        _ => 0,
    };
    let plain = i.only_says(&["lo", "wide", "to"]);
    if !plain || i.types().any(Type::is_float) && i.op != Mov {
        return 0;
    }
    let product = || (of(1) + of(2)).min(ALL);
    match i.op {
        Mov | Cvt | Cvta => of(1),
        Add | Sub | Or | Xor | Min | Max | Selp => of(1).min(of(2)),
        And => of(1).max(of(2)),
        Mul => product(),
        Mad => product().min(of(3)),
        Shl => match i.opds.get(2) {
            Some(Opd::Imm(Imm::Int(n @ 0..32))) => (of(1) + *n as u8).min(ALL),
            _ => 0,
        },
        _ => 0,
    }
}
