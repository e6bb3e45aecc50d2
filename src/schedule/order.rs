//! The order of jobs: values before their readers, readers of old content before it is overwritten.

use super::jobs::{Job, JobKind};
use super::stored::{Stored, slot};
use crate::uop::{Op, UMap, UOp, USet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Edges (earlier, later) between jobs.
pub(crate) fn edges(jobs: &[Job], stored: &Stored) -> Vec<(usize, usize)> {
    let at: UMap<usize> = jobs.iter().enumerate().map(|(k, j)| (j.node.clone(), k)).collect();
    let mut edges = Vec::new();
    // Jobs that overwrite existing memory, by slot, in graph order.
    let writers: Vec<(u32, usize)> = jobs
        .iter()
        .enumerate()
        .filter_map(|(k, j)| match &j.kind {
            JobKind::Assign { target, .. } => Some((slot(target), k)),
            _ => None,
        })
        .collect();
    for (k, job) in jobs.iter().enumerate() {
        let mut read: Vec<(u32, Option<UOp>)> = match &job.kind {
            _ if job.is_copy() => job.sources().iter().map(|s| (slot(&s.param), s.version.clone())).collect(),
            _ => job.reads.iter().map(|r| (slot(&r.param), r.place.version.clone())).collect(),
        };
        if let JobKind::Assign { target, .. } = &job.kind {
            read.push((slot(target), Some(job.node.src()[0].clone())));
        }
        for (n, _) in &job.uses {
            edges.extend(at.get(n).map(|p| (*p, k)));
        }
        for src in job.sources() {
            let producer = jobs.iter().position(|j| stored.at.get(&j.node) == Some(&src.param));
            edges.extend(producer.map(|p| (p, k)));
        }
        for (slot, version) in read {
            let seen = version.map(|v| version_of(&v)).unwrap_or_default();
            for (_, w) in writers.iter().filter(|(s, w)| *s == slot && *w != k) {
                if seen.contains(&jobs[*w].node) {
                    edges.push((*w, k));
                } else if !matches!(job.kind, JobKind::Assign { .. }) || *w > k {
                    edges.push((k, *w));
                }
            }
        }
    }
    edges.retain(|(a, b)| a != b);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The Assigns whose effect a read through `v` sees.
pub(crate) fn version_of(v: &UOp) -> USet {
    let (mut seen, mut found) = (USet::default(), USet::default());
    let mut todo = vec![v.clone()];
    while let Some(u) = todo.pop() {
        if !seen.insert(u.clone()) {
            continue;
        }
        match u.op() {
            Op::Assign => {
                todo.push(u.src()[0].clone());
                found.insert(u);
            }
            Op::After => todo.extend(u.src().iter().cloned()),
            op if op.is_movement() || op == Op::Contiguous => todo.push(u.src()[0].clone()),
            _ => {}
        }
    }
    found
}

/// Topological order of `n` nodes, smallest number first; `None` if there is a cycle.
pub(crate) fn sort(n: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let (mut waits, mut next) = (vec![0usize; n], vec![Vec::new(); n]);
    for (a, b) in edges {
        waits[*b] += 1;
        next[*a].push(*b);
    }
    let mut free: BinaryHeap<Reverse<usize>> = (0..n).filter(|k| waits[*k] == 0).map(Reverse).collect();
    let mut out = Vec::with_capacity(n);
    while let Some(Reverse(k)) = free.pop() {
        out.push(k);
        for b in &next[k] {
            waits[*b] -= 1;
            if waits[*b] == 0 {
                free.push(Reverse(*b));
            }
        }
    }
    (out.len() == n).then_some(out)
}

/// Where a kernel or copy runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub device: u32,
    /// It is a copy from another device.
    pub passes: bool,
}

/// Topological order of work of several devices; `None` if there is a cycle.
///
/// As if every kernel took one unit of time on its device: what can begin first is next. Of what can begin at the same
/// time copies are first, then what depends on the fewest copies: so the results that devices pass to each other are on
/// their way while the devices do what does not need them.
pub(crate) fn sort_over(places: &[Place], edges: &[(usize, usize)]) -> Option<Vec<usize>> {
    let n = places.len();
    let (mut waits, mut next) = (vec![0usize; n], vec![Vec::new(); n]);
    for (a, b) in edges {
        waits[*b] += 1;
        next[*a].push(*b);
    }
    // When all that it waits for is done, and over how many copies that came.
    let (mut ready, mut passed) = (vec![0u64; n], vec![0u64; n]);
    let devices = places.iter().map(|p| p.device as usize + 1).max().unwrap_or(0);
    let mut idle_from = vec![0u64; devices];
    let mut free: Vec<usize> = (0..n).filter(|k| waits[*k] == 0).collect();
    let mut out = Vec::with_capacity(n);
    while !free.is_empty() {
        let start =
            |k: usize| if places[k].passes { ready[k] } else { ready[k].max(idle_from[places[k].device as usize]) };
        let rank = |k: usize| (start(k), !places[k].passes, passed[k], k);
        let at = (0..free.len()).min_by_key(|at| rank(free[*at]))?;
        let k = free.swap_remove(at);
        let done = start(k) + 1;
        if !places[k].passes {
            idle_from[places[k].device as usize] = done;
        }
        out.push(k);
        for b in &next[k] {
            ready[*b] = ready[*b].max(done);
            passed[*b] = passed[*b].max(passed[k] + u64::from(places[k].passes));
            waits[*b] -= 1;
            if waits[*b] == 0 {
                free.push(*b);
            }
        }
    }
    (out.len() == n).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_passed_on_while_devices_go_on_with_other_work() {
        let kernel = |device| Place { device, passes: false };
        let copy = |device| Place { device, passes: true };
        // On each of two devices: two kernels in a row, whose results are passed to the other and added there.
        let places = [
            kernel(0),
            kernel(0),
            copy(0),
            kernel(0),
            copy(0),
            kernel(0), // first, second, theirs, sum, theirs, sum
            kernel(1),
            kernel(1),
            copy(1),
            kernel(1),
            copy(1),
            kernel(1),
        ];
        let edges = [
            (0, 1),
            (6, 2),
            (0, 3),
            (2, 3),
            (7, 4),
            (1, 5),
            (4, 5),
            (6, 7),
            (0, 8),
            (6, 9),
            (8, 9),
            (1, 10),
            (7, 11),
            (10, 11),
        ];
        let order = sort_over(&places, &edges).unwrap();
        // The first results are on their way before the second kernels end, and are added after these.
        assert_eq!(order, [0, 6, 2, 8, 1, 7, 4, 10, 3, 9, 5, 11]);
        assert_eq!(sort_over(&places[..2], &[(0, 1), (1, 0)]), None);
    }
}
