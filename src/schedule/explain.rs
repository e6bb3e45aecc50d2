//! Why a plan has the kernels that it has: which nodes each computes, which values it stores, and what kept it apart
//! from the kernels that read them. Made only for sessions that record their runs ([`super::ScheduleCache::explain`]).

use super::fuse::{FusedKernel, cuts};
use super::graph::Graph;
use super::jobs::Job;
use super::stored::Stored;
use crate::uop::{Op, UOp, USet};

/// Why a step of a plan is as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Why {
    /// The nodes that it computes.
    pub nodes: Vec<UOp>,
    /// Those of them that it stores.
    pub stored: Vec<UOp>,
    /// Steps that read what it stores, and why they are not one with it.
    pub cuts: Vec<(usize, &'static str)>,
}

/// Of each step of a plan, whose kernel is numbered in `at`. `candidates`: what fusion decided about; `stored`: what is
/// left in memory.
pub(crate) fn explain(
    g: &Graph,
    jobs: &[Job],
    (candidates, stored): (&Stored, &Stored),
    kernels: &[FusedKernel],
    at: &[usize],
) -> Vec<Why> {
    let step_of = |kernel: usize| at.iter().position(|k| *k == kernel);
    let mut all: Vec<Why> = at.iter().map(|k| of_kernel(jobs, stored, &kernels[*k])).collect();
    for (from, to, apart) in cuts(g, jobs, candidates, kernels) {
        let Some((from, to)) = step_of(from).zip(step_of(to)) else { continue };
        let why = apart.map_or("the value is needed in memory in any case", |a| a.why());
        all[from].cuts.push((to, why));
    }
    all
}

fn of_kernel(jobs: &[Job], stored: &Stored, kernel: &FusedKernel) -> Why {
    let own: USet = kernel.jobs.iter().map(|j| jobs[j.0].node.clone()).collect();
    let mut seen = USet::default();
    let mut todo: Vec<UOp> = own.iter().cloned().collect();
    let mut nodes = Vec::new();
    while let Some(u) = todo.pop() {
        let is_read = !own.contains(&u) && stored.at.contains_key(&u) && !stored.recompute.contains(&u);
        let is_leaf = matches!(u.op(), Op::Param | Op::Const);
        if is_read || is_leaf || !seen.insert(u.clone()) {
            continue;
        }
        todo.extend(u.src().iter().cloned());
        nodes.push(u);
    }
    let stores = |u: &&UOp| u.op() == Op::Assign || stored.at.contains_key(*u);
    Why { stored: own.iter().filter(stores).cloned().collect(), nodes, cuts: Vec::new() }
}
