//! Inserts the barriers of a GPU kernel: between a store to workgroup memory and the loads of what it stored, and
//! between those loads and the stores of the next iteration.
//!
//! All threads take the same path through the list (see `grid`), so a barrier is valid at any position. It is put into
//! the outermost loop body that separates the store from the load, so that one barrier serves all areas filled before
//! it. Pipelined loops (`opt::pipe`) already contain their own barriers.

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
            // The tag keeps this barrier distinct from the others (nodes are interned).
            out.push(UOp::tagged(Op::Barrier, DType::VOID, [], Arg::None, Some(pos as u32)));
        }
        out.push(u);
    }
    out
}

/// A store that fills a tile of a pipelined loop, which has its own barriers.
fn is_copy(u: &UOp) -> bool {
    u.op() == Op::Store && matches!(u.arg(), Arg::Stage(_))
}

/// All loads, or all stores, of one area in one loop body: positions of the first and the last.
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

    /// Positions of the initial fills of pipelined loops that are nested in other loops: threads may still be reading
    /// what the previous execution of the pipelined loop left there.
    fn refilled(&self) -> Vec<usize> {
        let mut found = vec![];
        for (pos, wait) in self.list.iter().enumerate() {
            if wait.op() != Op::Barrier || !matches!(wait.arg(), Arg::Stage(_)) || self.paths[pos].len() < 2 {
                continue;
            }
            // Everything from the start of the loop around the pipelined loop to the fill, at this nesting depth or
            // above.
            let around = &self.paths[pos][..self.paths[pos].len() - 1];
            let start = around.last().copied().unwrap_or(0);
            let first = (start..pos).find(|k| is_copy(&self.list[*k]) && self.paths[*k].starts_with(around));
            found.extend(first.map(|k| self.paths[k].get(around.len()).copied().unwrap_or(k)));
        }
        found
    }

    /// Puts a barrier on every path from `a` to `b` that has none: within one iteration of their innermost common loop,
    /// or (`around`) from one iteration to the next.
    fn separate(&self, a: &Run, b: &Run, around: bool, barriers: &mut BTreeSet<usize>) {
        let common = a.path.iter().zip(&b.path).take_while(|(x, y)| x == y).count();
        let path = &a.path[..common];
        if around && common == 0 {
            return;
        }
        // After the loops that contain `a` but not `b`, before those that contain `b` but not `a`.
        let after = a.path.get(common).map_or(a.last, |r| self.ends.get(&self.list[*r]).copied().unwrap_or(a.last));
        let before = b.path.get(common).copied().unwrap_or(b.first);
        let start = path.last().copied().unwrap_or(0);
        let end = path.last().and_then(|r| self.ends.get(&self.list[*r]).copied()).unwrap_or(self.list.len());
        let here = |p: &usize| self.paths.get(*p).is_some_and(|x| x == path);
        let found = match (around, after < before) {
            // Within one iteration either `a` or `b` comes first.
            (false, first) => !first || barriers.range(after + 1..=before).any(here),
            (true, _) => barriers.range(after + 1..end).any(here) || barriers.range(start + 1..=before).any(here),
        };
        if !found {
            barriers.insert(before);
        }
    }
}
