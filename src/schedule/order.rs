//! The order of jobs: values before their readers, readers of old content before it is overwritten.

use super::jobs::{Job, JobKind};
use super::stored::{Stored, slot};
use crate::uop::{Op, UMap, UOp, USet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Edges (earlier, later) between jobs.
pub fn edges(jobs: &[Job], stored: &Stored) -> Vec<(usize, usize)> {
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
pub fn version_of(v: &UOp) -> USet {
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
pub fn sort(n: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
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
