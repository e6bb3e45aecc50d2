//! Code beside a body: a copy for all places that need the same code (`select::far`), after the body.
//!
//! A place moves the operands and the address to return to into the copy's registers, calls it, and moves the result.
//! The copy gets registers that hold nothing that is read later at any of its places; where these are not enough, such
//! as the body does not use, and predicates that it saves. So the body keeps all others, and its allocation does not
//! depend on the calls.

use super::live::{self, Settled};
use super::place::{self, AllocatedCode, STACK};
use crate::ptx::Pos;
use crate::sass::compile::AsmError;
use crate::sass::compile::lines::{Line, Place};
use crate::sass::compile::mir::{Mach, Pred};
use crate::sass::compile::select::Selected;
use crate::sass::{Access, Guard, Instruction, Pipe, RegFile, effects, mods, op};

/// General registers, then predicates.
const GENERAL: usize = 256;
const PREDICATES: usize = 7;
/// General registers that a thread can have, without the two that the hardware reserves.
const MOST: u16 = 253;

/// Registers, one bit each.
#[derive(Clone, Copy, Default, PartialEq)]
struct Set([u64; 5]);

impl Set {
    fn with(&mut self, first: usize, count: usize, on: bool) {
        for r in first..first + count {
            let bit = 1 << (r % 64);
            let word = &mut self.0[r / 64]; // PANIC: registers are below 320
            *word = if on { *word | bit } else { *word & !bit };
        }
    }

    fn join(&mut self, other: &Set) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    fn has(&self, r: usize) -> bool {
        self.0[r / 64] >> (r % 64) & 1 == 1 // PANIC: as above
    }

    /// Adds or removes the registers of an operand.
    fn mark(&mut self, a: &Access, on: bool) {
        match a.file {
            RegFile::General => self.with(a.first.into(), a.count.into(), on),
            RegFile::Predicate => self.with(GENERAL + usize::from(a.first), a.count.into(), on),
            _ => {}
        }
    }

    /// What an instruction reads is live before it, what it surely writes is not.
    fn pass(&mut self, inst: &Instruction) {
        let all = effects(inst);
        if inst.guard == Guard::ALWAYS {
            all.writes.iter().for_each(|a| self.mark(a, false));
        }
        all.reads.iter().for_each(|a| self.mark(a, true));
    }
}

/// Appends the copies to the body, and makes its places calls of them. There are at most `limit` registers.
///
/// # Errors
/// There are too few registers.
pub(crate) fn append(mut body: AllocatedCode, copies: &mut [Selected], limit: u16) -> Result<AllocatedCode, AsmError> {
    let places = std::mem::take(&mut body.places);
    if places.is_empty() {
        return Ok(body);
    }
    let words = widths(copies);
    let busy = busy(&body, &places, &words);
    let free = |from: usize, to: usize| (from..to).filter(|r| !busy.has(*r)).map(|r| r as u16);
    let own = (body.registers as usize).max(STACK as usize + 1);
    let general: Vec<u16> = free(0, own).filter(|r| u64::from(*r) != STACK).collect();
    // The copy saves predicates that are not free.
    let mut predicates: Vec<u16> = (0..PREDICATES as u16).collect();
    predicates.sort_by_key(|p| busy.has(GENERAL + usize::from(*p)));
    // The label of each copy, and the places at its start and its end.
    let mut known = Vec::with_capacity(copies.len());
    let mut tail = vec![];
    for c in copies.iter_mut() {
        let settled: Settled = live::settle(&mut c.code, c.stack.reg());
        let mut code = place::within(c, &settled, &general, &predicates, own as u16..limit)?;
        save(&mut code, &busy, limit)?;
        body.registers = body.registers.max(code.registers);
        let labels = body.labels;
        body.labels += code.labels;
        tail.extend(code.lines.into_iter().map(|l| match l {
            Line::Label(n) => Line::Label(n + labels),
            Line::Inst(inst, to) => Line::Inst(inst, to.map(|t| t + labels)),
        }));
        let start = labels + c.code.order.first().copied().unwrap_or(0);
        known.push((start, code.places));
    }
    let mut lines = Vec::with_capacity(body.lines.len() + 10 * places.len() + tail.len());
    for l in std::mem::take(&mut body.lines) {
        let place = match l {
            Line::Label(n) => places.iter().find(|p| p.label == n),
            Line::Inst(..) => None,
        };
        match place {
            Some(p) => {
                let (start, ends) = known.get(p.code).ok_or_else(|| lacks("a copy of its code"))?;
                call(&mut lines, p, *start, ends, words.get(p.code).copied().unwrap_or(1))?;
            }
            None => lines.push(l),
        }
    }
    lines.extend(tail);
    body.lines = lines;
    Ok(body)
}

/// How many registers the longest copy needs, with those for predicates that it saves.
///
/// # Errors
/// There are too few.
pub(crate) fn need(copies: &mut [Selected]) -> Result<u16, AsmError> {
    let predicates: Vec<u16> = (0..PREDICATES as u16).collect();
    let mut most = 0;
    for c in copies {
        let settled = live::settle(&mut c.code, c.stack.reg());
        let code = place::within(c, &settled, &[], &predicates, STACK as u16 + 1..MOST)?;
        most = most.max(code.registers as u16);
    }
    Ok(most + PREDICATES as u16)
}

/// Has a copy keep the predicates that it uses and that are not free, in general registers.
fn save(code: &mut AllocatedCode, busy: &Set, limit: u16) -> Result<(), AsmError> {
    let mut used = Set::default();
    for l in &code.lines {
        if let Line::Inst(inst, _) = l {
            let all = effects(inst);
            all.reads.iter().chain(&all.writes).for_each(|a| used.mark(a, true));
        }
    }
    let taken = |r: usize| used.has(r) || busy.has(r) || r as u64 == STACK;
    let mut room = (0..usize::from(limit)).filter(|r| !taken(*r));
    for p in (0..PREDICATES as u64).filter(|p| used.has(GENERAL + *p as usize) && busy.has(GENERAL + *p as usize)) {
        let r = room.next().ok_or_else(|| lacks("a register"))? as u64;
        code.registers = code.registers.max(r as u32 + 1);
        // 0 if the predicate is set.
        let kept = Mach::new(op::SEL_I).n("d", r).n("b", 1).n("pp", p);
        let back = Mach::new(op::ISETP_R).n("pu", p).n("a", r).m(mods::cmp::EQ).p("pp", Pred::TRUE);
        // After the label, and before the return.
        code.lines.insert(1, Line::Inst(kept.inst, None));
        code.lines.insert(code.lines.len() - 1, Line::Inst(back.inst, None));
    }
    Ok(())
}

fn lacks(what: &str) -> AsmError {
    AsmError::new(Pos::default(), format!("a call lacks {what}"))
}

/// Words of the operands and of the result of each copy.
fn widths(copies: &[Selected]) -> Vec<u64> {
    let ends = |c: &Selected| {
        let all = c.code.order.iter().flat_map(|b| &c.code.blocks[*b].ops); // PANIC: the order names blocks
        all.filter(|m| m.is_beside()).filter_map(|m| m.regs.last()).map(|r| u64::from(r.count)).next_back()
    };
    copies.iter().map(|c| ends(c).unwrap_or(1)).collect()
}

/// Moves operands to where the copy has them, calls it, and moves its result. The copy begins at label `start`, and
/// `ends` are the places at its start and its end.
fn call(lines: &mut Vec<Line>, place: &Place, start: usize, ends: &[Place], words: u64) -> Result<(), AsmError> {
    let [entry, exit] = ends else { return Err(lacks("a start or an end")) };
    let (Some((back, to)), Some((out, from))) = (entry.registers.split_first(), place.registers.split_first()) else {
        return Err(lacks("registers"));
    };
    let copy = |lines: &mut Vec<Line>, to: u64, from: u64| {
        for k in 0..words {
            let m = Mach::new(op::MOV_R).n("d", to + k).n("b", from + k).n("mask", 15);
            if to != from {
                lines.push(Line::Inst(m.inst, None));
            }
        }
    };
    to.iter().zip(from).for_each(|(to, from)| copy(lines, *to, *from));
    let address = Mach::new(op::MOV_I).n("d", *back).n("b", 0).n("mask", 15);
    lines.push(Line::Inst(address.inst, Some(place.label)));
    let call = Mach::new(op::CALL_RELI).n("pp", 7).m(mods::ni::NOINC);
    lines.push(Line::Inst(call.inst, Some(start)));
    lines.push(Line::Label(place.label));
    let result = exit.registers.first().ok_or_else(|| lacks("a result"))?;
    copy(lines, *out, *result);
    Ok(())
}

/// Registers that are read after one of these places without a write between, and those of the places' operands.
fn busy(body: &AllocatedCode, places: &[Place], words: &[u64]) -> Set {
    let mut at = vec![Set::default(); body.labels];
    let mut place = vec![None; body.labels];
    places.iter().for_each(|p| place[p.label] = Some(p)); // PANIC: a label of the body, as below
    let mut busy = Set::default();
    loop {
        let (mut live, mut changed) = (Set::default(), false);
        for l in body.lines.iter().rev() {
            match l {
                Line::Label(n) => {
                    if let Some(p) = place.get(*n).copied().flatten() {
                        let count = words.get(p.code).map_or(2, |w| *w as usize);
                        let mut regs = p.registers.iter().map(|r| *r as usize);
                        regs.next().into_iter().for_each(|out| live.with(out, count, false));
                        regs.for_each(|r| live.with(r, count, true));
                        busy.join(&live);
                    }
                    let Some(known) = at.get_mut(*n) else { continue };
                    let before = *known;
                    known.join(&live);
                    changed |= *known != before;
                }
                Line::Inst(inst, to) => {
                    let (mnemonic, always) = (inst.form().mnemonic, inst.guard == Guard::ALWAYS);
                    let leaves = inst.form().pipe == Pipe::Branch
                        && always
                        && (matches!(mnemonic, "EXIT" | "RET") || std::ptr::eq(inst.form(), op::BRA_I));
                    if leaves {
                        live = Set::default();
                    }
                    let target = to.filter(|_| !matches!(mnemonic, "CALL" | "MOV")).and_then(|t| at.get(t));
                    target.into_iter().for_each(|t| live.join(t));
                    live.pass(inst);
                }
            }
        }
        if !changed {
            return busy;
        }
    }
}
