//! Asynchronous wgmma instructions: their registers stay reserved until their group was waited for.
//!
//! A wgmma reads its factors and writes its accumulators at some time between its issue and the wait. So for the
//! allocator, a wait uses the registers of all wgmma instructions that may be in flight there ([`hold`]). If the
//! allocator moves such registers nonetheless because there are too few, [`is_undisturbed`] detects it, and each wgmma
//! is waited for immediately ([`serialize`]).

use crate::sass::compile::lines::Line;
use crate::sass::compile::mir::{Code, Mach, Word};
use crate::sass::compile::schedule::list::{Listing, Node};
use crate::sass::{Access, Effects, Guard, Instruction, Pipe, RegFile, Slot, effects, is_group_multiply, mods, op};
use hashbrown::HashMap;

/// Registers in flight: first word and number of words, and the number of groups committed since.
type Flying = HashMap<(Word, u8), u8>;

/// For an instruction that waits for wgmma groups: how many groups may remain pending.
fn waits(inst: &Instruction) -> Option<u64> {
    if inst.form().pipe != Pipe::Gmma {
        return None;
    }
    match (inst.form().mnemonic, inst.form().name) {
        ("WARPGROUP", "DEPBAR") => inst.get("n", crate::sass::Role::Value),
        ("WARPGROUP", "WAIT") => Some(0),
        _ => None,
    }
}

fn ends_group(inst: &Instruction) -> bool {
    is_group_multiply(inst) && inst.says(mods::gsb::GSB0)
}

/// Updates the state for an instruction.
fn pass(m: &Mach, flying: &mut Flying) {
    if let Some(left) = waits(&m.inst) {
        let all = m.inst.form().name == "WAIT";
        flying.retain(|_, groups| !all && u64::from(*groups) <= left);
    }
    if is_group_multiply(&m.inst) {
        for r in m.regs.iter().filter(|r| !r.is_guard()) {
            flying.insert((r.word, r.count), 0);
        }
        if ends_group(&m.inst) {
            flying.values_mut().for_each(|g| *g = g.saturating_add(1));
        }
    }
}

/// Merges the state of another path; returns whether that changed anything.
fn join(to: &mut Flying, from: &Flying) -> bool {
    let mut changed = false;
    for (k, groups) in from {
        let old = to.entry(*k).or_insert_with(|| {
            changed = true;
            *groups
        });
        changed |= *groups < *old;
        *old = (*old).min(*groups);
    }
    changed
}

/// Whether the code has wgmma instructions.
pub(crate) fn multiplies(code: &Code) -> bool {
    code.blocks.iter().flat_map(|b| &b.ops).any(|m| is_group_multiply(&m.inst))
}

/// Makes waits use the registers of everything that may be in flight.
pub(crate) fn hold(code: &mut Code) {
    if !multiplies(code) {
        return;
    }
    let mut before: Vec<Flying> = vec![Flying::new(); code.blocks.len()];
    let mut work = code.order.clone();
    while let Some(b) = work.pop() {
        let mut now = before[b].clone();
        code.blocks[b].ops.iter().for_each(|m| pass(m, &mut now));
        for s in code.successors(b) {
            if join(&mut before[s], &now) {
                work.push(s);
            }
        }
    }
    for b in code.order.clone() {
        let mut now = std::mem::take(&mut before[b]);
        for m in &mut code.blocks[b].ops {
            if waits(&m.inst).is_some() {
                let mut held: Vec<(Word, u8)> = now.keys().copied().collect();
                held.sort_unstable_by_key(|(w, n)| (w.reg().0, w.sub(), *n));
                held.into_iter().for_each(|(w, n)| m.keep(w, n));
            }
            pass(m, &mut now);
        }
    }
}

/// Makes the code wait after each wgmma.
pub(crate) fn serialize(code: &mut Code) {
    for block in &mut code.blocks {
        let ops = std::mem::take(&mut block.ops);
        for m in ops {
            if !is_group_multiply(&m.inst) {
                block.ops.push(m);
                continue;
            }
            let pos = m.pos;
            let mut around = [op::WARPGROUP_ARV, op::WARPGROUP_DEPBAR].map(|form| Mach::new(form).effect());
            around.iter_mut().for_each(|a| a.pos = pos);
            let [arrive, wait] = around;
            block.ops.extend([arrive, m.m(mods::gsb::GSB0).glued(), wait.glued()]);
        }
    }
}

/// Gives each WARPGROUP.ARRIVE the registers of the following wgmma instructions as sources, because they must have
/// been written by then. If control flow leaves before the next such instruction, it gets all registers.
pub(crate) fn gather(code: &mut Listing) {
    let arrives = |n: &Node| {
        n.inst.form().pipe == Pipe::Gmma && n.inst.form().mnemonic == "WARPGROUP" && n.inst.form().name == "ARV"
    };
    if !code.nodes.iter().any(arrives) {
        return;
    }
    let mut starts = vec![false; code.nodes.len() + 1];
    code.pieces.iter().filter(|p| !p.labels.is_empty()).for_each(|p| starts[p.range.start] = true);
    let highest = code.nodes.iter().flat_map(general).map(|a| a.first.saturating_add(a.count)).max().unwrap_or(0);
    for k in 0..code.nodes.len() {
        if !arrives(&code.nodes[k]) {
            continue;
        }
        let following = code.nodes[k + 1..].iter().zip(k + 1..);
        let run = following.take_while(|(n, at)| !starts[*at] && n.inst.form().mnemonic != "WARPGROUP");
        let run: Vec<&Node> = run.map(|(n, _)| n).collect();
        let closed = code.nodes.get(k + 1 + run.len()).is_some_and(|n| n.inst.form().mnemonic == "WARPGROUP");
        let whole = Access { slot: Slot::C, file: RegFile::General, first: 0, count: highest };
        let reads: Vec<Access> = match closed {
            true => run.into_iter().filter(|n| is_group_multiply(&n.inst)).flat_map(general).copied().collect(),
            false => vec![whole],
        };
        code.nodes[k].effects.reads.extend(reads);
    }
}

/// The general registers of an instruction.
fn general(n: &Node) -> impl Iterator<Item = &Access> {
    n.effects.reads.iter().chain(&n.effects.writes).filter(|a| a.file == RegFile::General)
}

/// A register that is not in use by a wgmma in flight.
const FREE: u8 = u8::MAX;

/// For each register, as a factor and as an accumulator, the number of groups committed since a wgmma that uses it;
/// [`FREE`] if it is not in use.
#[derive(Clone, PartialEq)]
struct Busy([[u8; 256]; 2]);

fn registers(list: &[Access]) -> impl Iterator<Item = usize> {
    let general = list.iter().filter(|a| a.file == RegFile::General);
    general.flat_map(|a| (a.first..a.first.saturating_add(a.count)).map(usize::from))
}

impl Busy {
    const NONE: Busy = Busy([[FREE; 256]; 2]);

    /// Updates the state for an instruction; returns whether it leaves registers in flight alone.
    fn step(&mut self, inst: &Instruction) -> bool {
        if let Some(left) = waits(inst) {
            let all = inst.form().name == "WAIT";
            self.0.iter_mut().flatten().filter(|g| all || u64::from(**g) > left).for_each(|g| *g = FREE);
            return true;
        }
        let Effects { reads, writes } = effects(inst);
        let [factors, sums] = &mut self.0;
        if is_group_multiply(inst) {
            registers(&reads).for_each(|r| factors[r] = 0);
            registers(&writes).for_each(|r| sums[r] = 0);
            let ended = u8::from(ends_group(inst));
            self.0.iter_mut().flatten().filter(|g| **g < FREE - 1).for_each(|g| *g += ended);
            return true;
        }
        let read = registers(&reads).any(|r| sums[r] != FREE);
        let written = registers(&writes).any(|r| sums[r] != FREE || factors[r] != FREE);
        !read && !written
    }

    fn join(&mut self, other: &Busy) -> bool {
        let old = self.clone();
        self.0.iter_mut().flatten().zip(other.0.iter().flatten()).for_each(|(a, b)| *a = (*a).min(*b));
        *self != old
    }
}

/// Whether no instruction touches the registers of wgmma instructions that may be in flight.
pub(crate) fn is_undisturbed(lines: &[Line]) -> bool {
    let mut at_label: HashMap<usize, Busy> = HashMap::new();
    loop {
        let (mut changed, mut now, mut falls) = (false, Busy::NONE, true);
        for line in lines {
            match line {
                Line::Label(l) => {
                    let here = at_label.entry(*l).or_insert(Busy::NONE);
                    changed |= falls && here.join(&now);
                    (now, falls) = (here.clone(), true);
                }
                Line::Inst(inst, target) => {
                    if !now.step(inst) {
                        return false;
                    }
                    if let (Some(t), true) = (target, crate::sass::compile::schedule::list::jumps(inst)) {
                        changed |= at_label.entry(*t).or_insert(Busy::NONE).join(&now);
                    }
                    falls = !(crate::sass::compile::schedule::list::jumps(inst) && inst.guard == Guard::ALWAYS);
                }
            }
        }
        if !changed {
            return true;
        }
    }
}
