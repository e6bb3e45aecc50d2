//! Barriers of a GPU kernel: between a store to workgroup memory and the loads of what it stored, and between those loads and
//! the next round's stores.
//!
//! Every thread takes the same way through the list (see `grid`), so a barrier may stand anywhere; it stands in the outermost
//! loop body that separates the two, so that one barrier serves all areas filled before it. Pipes (`opt::pipe`) come with barriers.

use doorbell_uop::{AddrSpace, Arg, DType, Op, UMap, UOp, USet};
use std::collections::BTreeSet;

/// The list with its barriers.
pub(super) fn insert(list: Vec<UOp>) -> Vec<UOp> {
    let nest = Nest::of(&list);
    let mut areas: Vec<(UOp, Vec<Run>)> = vec![];
    let piped: USet = list.iter().filter(|u| is_copy(u)).map(|u| u.src()[0].src()[0].clone()).collect();
    for (pos, u) in list.iter().enumerate() {
        let access = matches!(u.op(), Op::Load | Op::LoadMatrix | Op::Store);
        if !access || u.src()[0].dtype().space != Some(AddrSpace::Local) {
            continue;
        }
        let memory = &u.src()[0].src()[0];
        if piped.contains(memory) {
            continue;
        }
        let at = areas.iter().position(|(m, _)| m == memory).unwrap_or_else(|| {
            areas.push((memory.clone(), vec![]));
            areas.len() - 1
        });
        let (runs, store, path) = (&mut areas[at].1, u.op() == Op::Store, &nest.paths[pos]);
        match runs.iter_mut().find(|r| r.store == store && &r.path == path) {
            Some(r) => r.last = pos,
            None => runs.push(Run { store, path: path.clone(), first: pos, last: pos }),
        }
    }
    let mut barriers: BTreeSet<usize> = BTreeSet::new();
    let pairs = |runs: &[Run]| {
        let stores: Vec<Run> = runs.iter().filter(|r| r.store).cloned().collect();
        let loads: Vec<Run> = runs.iter().filter(|r| !r.store).cloned().collect();
        stores.into_iter().flat_map(move |s| loads.clone().into_iter().map(move |l| (s.clone(), l))).collect::<Vec<_>>()
    };
    for around in [false, true] {
        for (s, l) in areas.iter().flat_map(|(_, runs)| pairs(runs)) {
            nest.separate(&s, &l, around, &mut barriers);
            nest.separate(&l, &s, around, &mut barriers);
        }
    }
    barriers.extend(nest.refilled());
    if barriers.is_empty() {
        return list;
    }
    let mut out = Vec::with_capacity(list.len() + barriers.len());
    for (pos, u) in list.into_iter().enumerate() {
        if barriers.contains(&pos) {
            // The tag keeps one barrier apart from the next.
            out.push(UOp::tagged(Op::Barrier, DType::VOID, [], Arg::None, Some(pos as u32)));
        }
        out.push(u);
    }
    out
}

/// A store that fills a tile of a pipe, which has barriers of its own.
fn is_copy(u: &UOp) -> bool {
    u.op() == Op::Store && matches!(u.arg(), Arg::Stage(_))
}

/// All loads, or all stores, of an area in one loop body: positions of the first and the last.
#[derive(Clone)]
struct Run {
    store: bool,
    path: Vec<usize>,
    first: usize,
    last: usize,
}

struct Nest {
    /// Positions of the loops around each node, outermost first.
    paths: Vec<Vec<usize>>,
    /// Position of the End of the loop that opens at a position.
    ends: UMap<usize>,
    list: Vec<UOp>,
}

impl Nest {
    fn of(list: &[UOp]) -> Nest {
        let (mut paths, mut ends, mut open) = (vec![], UMap::default(), vec![]);
        for (pos, u) in list.iter().enumerate() {
            if u.op() == Op::End {
                open.pop();
                ends.extend(u.src().first().map(|r| (r.clone(), pos)));
            }
            paths.push(open.clone());
            if u.op() == Op::Range {
                open.push(pos);
            }
        }
        Nest { paths, ends, list: list.to_vec() }
    }

    /// Where pipes that stand in loops are filled for the first rounds: others may still read what the last time left.
    fn refilled(&self) -> Vec<usize> {
        let mut found = vec![];
        for (pos, wait) in self.list.iter().enumerate() {
            if wait.op() != Op::Barrier || !matches!(wait.arg(), Arg::Stage(_)) || self.paths[pos].len() < 2 {
                continue;
            }
            // Everything between the start of the loop around the pipe's and the pipe's that is not deeper.
            let around = &self.paths[pos][..self.paths[pos].len() - 1];
            let start = around.last().copied().unwrap_or(0);
            let first = (start..pos).find(|k| is_copy(&self.list[*k]) && self.paths[*k].starts_with(around));
            found.extend(first.map(|k| self.paths[k].get(around.len()).copied().unwrap_or(k)));
        }
        found
    }

    /// Puts a barrier on every way from `a` to `b` that has none: in the same round of their innermost common loop, or (`around`)
    /// from one round to the next.
    fn separate(&self, a: &Run, b: &Run, around: bool, barriers: &mut BTreeSet<usize>) {
        let common = a.path.iter().zip(&b.path).take_while(|(x, y)| x == y).count();
        let path = &a.path[..common];
        if around && common == 0 {
            return;
        }
        // After the loops that `a` stands in, before those that `b` stands in.
        let after = a.path.get(common).map_or(a.last, |r| self.ends.get(&self.list[*r]).copied().unwrap_or(a.last));
        let before = b.path.get(common).copied().unwrap_or(b.first);
        let start = path.last().copied().unwrap_or(0);
        let end = path.last().and_then(|r| self.ends.get(&self.list[*r]).copied()).unwrap_or(self.list.len());
        let here = |p: &usize| self.paths.get(*p).is_some_and(|x| x == path);
        let found = match (around, after < before) {
            // In one round `a` comes first, or else `b` does.
            (false, first) => !first || barriers.range(after + 1..=before).any(here),
            (true, _) => barriers.range(after + 1..end).any(here) || barriers.range(start + 1..=before).any(here),
        };
        if !found {
            barriers.insert(before);
        }
    }
}
