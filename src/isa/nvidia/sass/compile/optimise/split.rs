//! Renames registers that a text reuses for several values: each value that is made and used up in straight-line code
//! gets its own register.
//!
//! Later passes analyse a register through its single definition. Code written by hand or by macros uses few registers
//! and writes each of them often (`mul.wide.u32 %rd1, %r1, 4; add.s64 %rd1, %rd2, %rd1`); after this pass its addresses
//! and products are analysed like those of compilers.

use super::facts::each;
use crate::ptx::{Opcode, Type};
use crate::sass::compile::read::flat::{Body, Flat, Item, Opd, Reg};
use crate::sass::compile::read::source::Store;
use smallvec::SmallVec;
use std::convert::Infallible;

/// Analysis of a register, in the body and in the current block.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// The last block that touched it, counted from 1.
    block: u32,
    /// Writes that replace its value completely, counted up to two.
    writes: u8,
    /// It is live at the start of some block.
    carried: bool,
    /// It is part of a vector, which fixes its neighbours.
    placed: bool,
    /// It is live at the start of this block.
    enters: bool,
    /// The last write in this block that replaces its value completely.
    last: u32,
    /// The register that replaces it at this point of the block.
    now: Reg,
}

/// Whether the instruction's results do not depend on the old values of the destination, so that the destination can be
/// renamed. Matrix accumulators are not renamed.
fn renews(i: &Flat) -> bool {
    i.guard.is_none() && !matches!(i.op, Opcode::Wgmma | Opcode::Mma | Opcode::Wmma | Opcode::Call)
}

fn sources<'a, 'b>(i: &'b Flat<'a>) -> &'b [Opd<'a>] {
    &i.opds[i.results().min(i.opds.len())..]
}

/// Calls `f` with each register that an instruction writes; true if the old value is replaced completely. Registers of
/// vectors are not renamed.
fn writes(i: &Flat, uses: &mut [Uses], f: &mut impl FnMut(&mut Uses, Reg, bool)) {
    let renews = renews(i);
    for o in i.opds.iter().take(i.results()) {
        each(o, &mut |r| {
            let u = &mut uses[r as usize];
            let mut changed = false;
            if u.placed {
                sources(i).iter().for_each(|o| each(o, &mut |read| changed |= read == r));
            }
            f(u, r, renews && !changed && !matches!(o, Opd::Address(..)));
        });
    }
}

/// The same for each register that it touches, reads first.
fn touches(i: &Flat, uses: &mut [Uses], f: &mut impl FnMut(&mut Uses, Reg, bool)) {
    let mut read = |r: Reg| f(&mut uses[r as usize], r, false);
    sources(i).iter().for_each(|o| each(o, &mut read));
    if let Some((p, _)) = i.guard {
        read(p);
    }
    writes(i, uses, f);
}

fn parts(i: &Flat) -> bool {
    matches!(i.op, Opcode::Bra | Opcode::Brx | Opcode::Call | Opcode::Ret | Opcode::Exit)
}

/// Whether some block writes a register more than once; most texts have no such block and are left unchanged.
fn is_wanted(body: &Body) -> bool {
    let mut blocks = vec![0u32; body.regs.len()];
    let (mut block, mut found) = (1, false);
    for item in &body.items {
        let Item::Inst(i) = item else {
            block += 1;
            continue;
        };
        if i.results() > 0 && renews(i) {
            let mut write = |r: Reg| found |= std::mem::replace(&mut blocks[r as usize], block) == block;
            i.opds.iter().take(i.results()).for_each(|o| each(o, &mut write));
        }
        block += u32::from(parts(i));
    }
    found
}

/// Renames registers so that each value has its own.
pub(crate) fn split<'a>(body: &mut Body<'a>, store: &'a Store<'a>) {
    if is_wanted(body) {
        split_all(body, store);
    }
}

#[inline(never)]
fn split_all<'a>(body: &mut Body<'a>, store: &'a Store<'a>) {
    let mut uses = vec![Uses::default(); body.regs.len()];
    for item in &body.items {
        let Item::Inst(i) = item else { continue };
        for o in i.opds.iter().filter(|o| matches!(o, Opd::Vector(_))) {
            each(o, &mut |r| uses[r as usize].placed = true);
        }
    }
    let mut block = 1;
    for item in &body.items {
        let Item::Inst(i) = item else {
            block += 1;
            continue;
        };
        touches(i, &mut uses, &mut |u, _, renews| {
            if u.block != block {
                u.block = block;
                u.carried |= !renews;
            }
            u.writes = (u.writes + u8::from(renews)).min(2);
        });
        block += u32::from(parts(i));
    }
    let ends = |item: &Item| !matches!(item, Item::Inst(i) if !parts(i));
    let (mut from, mut items) = (0, std::mem::take(&mut body.items));
    while from < items.len() {
        let len = items[from..].iter().position(ends).map_or(items.len() - from, |n| n + 1);
        block += 1;
        of_block(&mut items[from..from + len], block, &mut uses, &mut body.regs, store);
        from += len;
    }
    body.items = items;
}

fn of_block<'a>(items: &mut [Item<'a>], block: u32, uses: &mut [Uses], types: &mut Vec<Type>, store: &'a Store<'a>) {
    let mut any = false;
    for (k, item) in (0..).zip(&*items) {
        let Item::Inst(i) = item else { continue };
        touches(i, uses, &mut |u, r, renews| {
            if u.block != block {
                (u.block, u.enters, u.now) = (block, !renews, r);
            }
            if renews {
                u.last = k;
                any |= u.writes == 2;
            }
        });
    }
    if !any {
        return;
    }
    let mut made: SmallVec<[Option<Reg>; 4]> = SmallVec::new();
    for (k, item) in (0..).zip(items) {
        let Item::Inst(i) = item else { continue };
        made.clear();
        writes(i, uses, &mut |u, r, renews| {
            // The last value of a register that is live across blocks stays in it.
            let own = u.writes == 2 && !u.enters && !(u.carried && k == u.last);
            made.push(renews.then(|| if own { fresh(types, r) } else { r }));
        });
        let now = |r: Reg| uses[r as usize].now;
        let results = i.results();
        for o in i.opds.iter_mut().skip(results) {
            let mut differs = false;
            each(o, &mut |r| differs |= now(r) != r);
            if differs {
                each_mut(o, store, &mut |r| *r = now(*r));
            }
        }
        if let Some((p, _)) = &mut i.guard {
            *p = now(*p);
        }
        let mut made = made.drain(..);
        for o in i.opds.iter_mut().take(results) {
            each_mut(o, store, &mut |r| {
                let u = &mut uses[*r as usize];
                u.now = made.next().flatten().unwrap_or(u.now);
                *r = u.now;
            });
        }
    }
}

/// Another register of the same type.
pub(crate) fn fresh(types: &mut Vec<Type>, like: Reg) -> Reg {
    types.push(types[like as usize]);
    types.len() as Reg - 1
}

/// Calls `f` with each register of an operand.
pub(super) fn each_mut<'a>(o: &mut Opd<'a>, store: &'a Store<'a>, f: &mut impl FnMut(&mut Reg)) {
    let Ok(()) = o.map::<Infallible>(store, &mut |o| {
        if let Opd::Reg(r) | Opd::Not(r) = o {
            f(r);
        }
        Ok(())
    });
}
