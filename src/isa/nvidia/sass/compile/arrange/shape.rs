//! If-conversion and block merging: short blocks that a branch skips become guarded instructions, exits become guarded
//! exits, and chains of blocks become one block. So fewer branches need reconvergence, and the scheduler sees longer
//! pieces.
//!
//! In an if-converted block only visible effects are guarded: memory accesses, and registers that are used outside.
//! Temporaries that are computed from available values are computed by all threads, and need not wait for the guard.

use crate::sass::compile::mir::{Block, Code, Mach, Nature, Pred, Term, width};
use crate::sass::{Pipe, op};

/// Maximum number of instructions that are guarded instead of branched over, for branches that may diverge and for
/// others.
const SHORT: usize = 8;
const SHORT_UNIFORM: usize = 4;

/// Simplifies until nothing changes.
pub(crate) fn shape(code: &mut Code) {
    loop {
        super::flow::reachable(code);
        join(code);
        if !guard_short(code) {
            return;
        }
    }
}

/// How many blocks lead to each.
fn predecessors(code: &Code) -> Vec<u32> {
    let mut count = vec![0; code.blocks.len()];
    for b in &code.order {
        code.successors(*b).iter().for_each(|s| count[*s] += 1);
    }
    count
}

/// Merges a block into its only predecessor, if that ends with a jump to it.
fn join(code: &mut Code) {
    let count = predecessors(code);
    let first = code.order[0];
    let mut gone = vec![false; code.blocks.len()];
    // Blocks that calls and returns refer to by number stay.
    let mut stays = vec![false; code.blocks.len()];
    let mut parts = stays.clone();
    code.returns.into_iter().for_each(|b| stays[b] = true);
    for (d, j) in &code.meets {
        (stays[*d], stays[*j], parts[*d]) = (true, true, true);
    }
    for b in code.order.clone() {
        if gone[b] || parts[b] {
            continue;
        }
        while let Term::Jump(to) = code.blocks[b].term
            && to != b
            && to != first
            && count[to] == 1
            && !stays[to]
        {
            gone[to] = true;
            let Block { ops, term } = std::mem::replace(&mut code.blocks[to], Block { ops: vec![], term: Term::Exit });
            code.blocks[b].ops.extend(ops);
            code.blocks[b].term = term;
            if code.strays.contains(&to) {
                code.strays.push(b);
            }
        }
    }
    code.order.retain(|b| !gone[*b]);
}

/// What is known of a virtual register.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The only block that uses it, plus one.
    block: usize,
    many: bool,
    /// Unguarded and guarded writes.
    writes: u32,
    guarded: u32,
}

fn registers(code: &Code) -> Vec<Seen> {
    let mut all = vec![Seen::default(); code.classes.len()];
    for b in &code.order {
        let mut see = |r: usize| {
            let s = &mut all[r];
            s.many |= s.block != 0 && s.block != b + 1;
            s.block = b + 1;
        };
        if let Term::Branch(Pred { word: Some(w), .. }, ..) = code.blocks[*b].term {
            see(w.reg().0 as usize);
        }
        for m in &code.blocks[*b].ops {
            m.regs.iter().for_each(|r| see(r.word.reg().0 as usize));
        }
        for m in &code.blocks[*b].ops {
            let guarded = m.is_guarded();
            for r in m.regs.iter().filter(|r| r.write) {
                let s = &mut all[r.word.reg().0 as usize];
                *(if guarded { &mut s.guarded } else { &mut s.writes }) += 1;
            }
        }
    }
    all
}

/// If-converts short blocks in one pass over the code; returns whether there were any.
fn guard_short(code: &mut Code) -> bool {
    let count = predecessors(code);
    // For the code before anything was guarded.
    let mut seen: Option<Vec<Seen>> = None;
    let mut changed = false;
    for b in code.order.clone() {
        let Term::Branch(p, x, y, same) = code.blocks[b].term else { continue };
        if p.word.is_none() || x == y || x == b || y == b {
            continue;
        }
        let limit = if same { SHORT_UNIFORM } else { SHORT };
        let ends = |k: usize| code.blocks[k].ops.is_empty() && code.blocks[k].term == Term::Exit;
        if ends(x) != ends(y) {
            let (guard, rest) = if ends(x) { (p, y) } else { (p.not(), x) };
            code.blocks[b].ops.push(Mach::new(op::EXIT_N).effect().guarded(Some(guard)));
            code.blocks[b].term = Term::Jump(rest);
            changed = true;
            continue;
        }
        let only = |k: usize| count[k] == 1 && suits(&code.blocks[k].ops, p, limit);
        let goes = |k: usize, to: usize| code.blocks[k].term == Term::Jump(to);
        let ways = match (code.blocks[x].term, code.blocks[y].term) {
            _ if goes(x, y) && only(x) => [Some((p, x)), None],
            _ if goes(y, x) && only(y) => [Some((p.not(), y)), None],
            (Term::Jump(j), Term::Jump(k))
                if j == k && only(x) && only(y) && code.blocks[x].ops.len() + code.blocks[y].ops.len() <= limit =>
            {
                [Some((p, x)), Some((p.not(), y))]
            }
            _ => continue,
        };
        let seen = &*seen.get_or_insert_with(|| registers(code));
        for (guard, block) in ways.into_iter().flatten() {
            let Term::Jump(to) = code.blocks[block].term else { continue };
            let other = ways[1].filter(|w| w.1 != block).map_or(vec![], |w| overwritten(&code.blocks[w.1].ops, code));
            let taken = std::mem::take(&mut code.blocks[block].ops);
            let guarded = guarded(taken, guard, block, &other, seen);
            code.blocks[b].ops.extend(guarded);
            code.blocks[b].term = Term::Jump(to);
        }
        changed = true;
    }
    changed
}

/// Whether the instructions can be guarded by this predicate and are few enough.
fn suits(ops: &[Mach], p: Pred, limit: usize) -> bool {
    let fine = |m: &Mach| {
        let form = m.inst.form();
        let plain = match form.pipe {
            Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::ImadWide | Pipe::Half | Pipe::Double | Pipe::Xu => {
                !matches!(form.mnemonic, "VOTE" | "CS2R")
            }
            Pipe::Global | Pipe::Shared | Pipe::Constant => {
                matches!(form.mnemonic, "LDG" | "STG" | "LD" | "ST" | "LDS" | "STS" | "LDL" | "STL" | "LDC" | "REDG")
            }
            _ => false,
        };
        let overwrites = m.regs.iter().any(|r| r.write && Some(r.word.reg()) == p.word.map(|w| w.reg()));
        plain && !overwrites && !m.is_guarded() && m.inst.guard == crate::sass::Guard::ALWAYS
    };
    ops.len() <= limit && ops.iter().all(fine)
}

/// Registers that the instructions overwrite completely before reading them.
fn overwritten(ops: &[Mach], code: &Code) -> Vec<u32> {
    let (mut read, mut out) = (vec![], vec![]);
    for m in ops {
        read.extend(m.regs.iter().filter(|r| !r.write).map(|r| r.word.reg().0));
        let whole = m.regs.iter().filter(|r| r.write && r.count == width(code.classes[r.word.reg().0 as usize]));
        out.extend(whole.map(|r| r.word.reg().0).filter(|r| !read.contains(r)));
    }
    out
}

/// A block's instructions, guarded where needed. Threads for which the guard is false overwrite `other` before reading
/// it.
fn guarded(ops: Vec<Mach>, guard: Pred, block: usize, other: &[u32], seen: &[Seen]) -> Vec<Mach> {
    // Registers of the block that were written under the guard only.
    let mut parted = vec![];
    let mut out = Vec::with_capacity(ops.len());
    let mut group = 0;
    let own = |r: usize| !seen[r].many && seen[r].block == block + 1 || other.contains(&(r as u32));
    let needs = |m: &Mach, parted: &[u32]| {
        let memory = matches!(m.inst.form().pipe, Pipe::Global | Pipe::Shared | Pipe::Constant);
        let there = |r: usize| seen[r].guarded == 0 && (seen[r].writes == 1 || own(r)) && !parted.contains(&(r as u32));
        let free = m.regs.iter().all(|r| {
            let k = r.word.reg().0 as usize;
            if r.write { own(k) } else { there(k) }
        });
        m.effect || memory || !free
    };
    for (k, m) in ops.iter().enumerate() {
        if !m.glued {
            group = k;
        }
        // Glued instructions are guarded all or none.
        let end = ops[k + 1..].iter().position(|m| !m.glued).map_or(ops.len(), |n| k + 1 + n);
        let all = &ops[group..end];
        let mut m = m.clone();
        if all.iter().any(|m| needs(m, &parted)) {
            m.private = m.regs.iter().filter(|r| r.write).all(|r| own(r.word.reg().0 as usize));
            parted.extend(m.regs.iter().filter(|r| r.write).map(|r| r.word.reg().0));
            m = m.nature(Nature::Plain).guarded(Some(guard));
        }
        out.push(m);
    }
    out
}
