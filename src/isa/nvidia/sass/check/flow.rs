//! Control flow: which instruction may follow which.

use crate::sass::inst::{Instruction, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Successors of every instruction.
pub(super) struct Flow {
    after: Vec<Vec<usize>>,
    /// Entry points: the first instruction, and blocks without a visible predecessor (targets of BRX, functions called
    /// through registers).
    entries: Vec<usize>,
    /// Number of control-flow edges into each instruction, including entries.
    ways: Vec<usize>,
}

/// Control flow of a branch instruction.
enum Exit {
    /// Falls through only.
    None,
    /// Ends the lanes, or its target is not known from the words.
    Unknown,
    To(usize),
    Call(usize),
    Return,
    /// Falls through, or goes to this target.
    Also(usize),
}

fn target(inst: &Instruction, at: usize) -> Option<usize> {
    let distance = match inst.operand("t")?.value {
        Value::Distance(bytes) => bytes,
        _ => return None,
    };
    let place = i64::try_from(at).ok()?.checked_add(1)?.checked_add(distance.checked_div(16)?)?;
    usize::try_from(place).ok()
}

fn exit(inst: &Instruction, at: usize) -> Exit {
    let to = |make: fn(usize) -> Exit| target(inst, at).map_or(Exit::Unknown, make);
    match (inst.form().mnemonic, inst.form().name) {
        ("BRA", "DIV") => to(Exit::Also),
        ("BRA", _) => to(Exit::To),
        ("CALL", "RELI") => to(Exit::Call),
        ("RET", _) => Exit::Return,
        ("WARPSYNC", "CALL" | "CR") => to(Exit::Also),
        // A call through a register returns; the callee is unknown.
        ("CALL", _) => Exit::None,
        ("EXIT" | "BRX" | "BRXU" | "KILL" | "JMP" | "JMX", _) => Exit::Unknown,
        _ => Exit::None,
    }
}

/// Whether it may also fall through.
fn is_conditional(inst: &Instruction) -> bool {
    let free = |slot: &str| match inst.operand(slot) {
        Some(operand) => {
            operand.signs.not || !matches!(operand.value, Value::Predicate(None) | Value::UniformPredicate(None))
        }
        None => false,
    };
    inst.guard.index != 7 || inst.guard.not || free("pp") || free("up") || !inst.modifier("dv").is_empty()
}

impl Flow {
    pub(super) fn of(code: &[Instruction]) -> Flow {
        let (mut after, mut returns, mut calls) = (vec![Vec::new(); code.len()], Vec::new(), BTreeMap::new());
        for (at, inst) in code.iter().enumerate() {
            let (leads, goes_on): (Option<usize>, bool) = match exit(inst, at) {
                Exit::None => (None, true),
                Exit::Unknown => (None, is_conditional(inst)),
                Exit::To(place) => (Some(place), is_conditional(inst)),
                Exit::Also(place) => (Some(place), true),
                Exit::Call(place) => {
                    calls.entry(place).or_insert_with(Vec::new).push(at + 1);
                    (Some(place), is_conditional(inst))
                }
                Exit::Return => {
                    returns.push(at);
                    (None, is_conditional(inst))
                }
            };
            after[at].extend(leads); // PANIC: one list an instruction
            after[at].extend(goes_on.then_some(at + 1));
        }
        let mut flow = Flow { after, entries: vec![0], ways: vec![0; code.len()] };
        flow.link_returns(&calls, &returns);
        flow.find_entries(code);
        for next in flow.after.iter().flatten().chain(&flow.entries) {
            if let Some(ways) = flow.ways.get_mut(*next) {
                *ways += 1;
            }
        }
        flow
    }

    /// Adds edges from each return to after the calls of the functions that reach it.
    fn link_returns(&mut self, calls: &BTreeMap<usize, Vec<usize>>, returns: &[usize]) {
        let mut links: Vec<(usize, usize)> = Vec::new();
        for (function, sites) in calls {
            let inside = self.reach(*function, calls);
            for at in returns.iter().filter(|r| inside.contains(*r)) {
                links.extend(sites.iter().map(|site| (*at, *site)));
            }
        }
        for (from, to) in links {
            if let Some(list) = self.after.get_mut(from) {
                list.push(to);
            }
        }
    }

    /// The instructions of a function, stepping over its calls.
    fn reach(&self, from: usize, calls: &BTreeMap<usize, Vec<usize>>) -> BTreeSet<usize> {
        let (mut seen, mut work) = (BTreeSet::new(), vec![from]);
        while let Some(at) = work.pop() {
            let Some(next) = self.after.get(at) else { continue };
            if !seen.insert(at) {
                continue;
            }
            let is_call = next.iter().any(|n| calls.get(n).is_some_and(|sites| sites.contains(&(at + 1))));
            work.extend(next.iter().copied().filter(|n| !is_call || *n == at + 1));
            work.extend(is_call.then_some(at + 1));
        }
        seen
    }

    /// Code without a visible predecessor starts with nothing in flight: whoever branches to it must have drained
    /// first, which is not checked.
    fn find_entries(&mut self, code: &[Instruction]) {
        let mut seen = vec![false; code.len()];
        let mark = |flow: &Flow, from: usize, seen: &mut Vec<bool>| {
            let mut work = vec![from];
            while let Some(at) = work.pop() {
                if seen.get(at) != Some(&false) {
                    continue;
                }
                seen[at] = true; // PANIC: looked up on the line above
                work.extend(&flow.after[at]);
            }
        };
        mark(self, 0, &mut seen);
        for at in 0..code.len() {
            if !seen[at] {
                self.entries.push(at);
                mark(self, at, &mut seen);
            }
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = usize> + '_ {
        self.entries.iter().copied()
    }

    /// The only successor of an instruction, if that has no other predecessor.
    pub(super) fn only_after(&self, at: usize) -> Option<usize> {
        match self.after.get(at)?.as_slice() {
            [next] if self.ways.get(*next) == Some(&1) => Some(*next),
            _ => None,
        }
    }

    pub(super) fn after(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        self.after.get(at).into_iter().flatten().copied()
    }
}
