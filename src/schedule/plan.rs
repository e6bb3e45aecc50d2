//! A keyed graph → a plan: kernels and copies over numbered memory, in order, with a memory plan for temporaries.
//!
//! A job computes one stored value. Jobs that were fused share a kernel. What a plan holds depends on the key alone, so it
//! is kept and bound to other buffers when the same graph comes again.

use super::ScheduleError;
use super::front::{Key, device_number};
use super::graph::{FIRST_TEMP, Graph, is_empty, max_len};
use super::kernel::{KernelGraph, normalise, store};
use super::lower::{Lowerer, Read, address};
use super::memory::{self, MemoryPlan, TempUse};
use super::order;
use super::stored::{Region, Stored, loops_of, required, slot};
use crate::uop::{Op, UOp, USet};

/// One step of a plan; slots below `FIRST_TEMP` are the graph's buffers, from there on temporaries.
#[derive(Clone, Debug)]
pub enum Step {
    Kernel { ast: UOp, slots: Vec<u32>, vars: Vec<UOp>, device: u32 },
    Copy { dst: UOp, src: UOp, src_offset: i64, len: usize },
}

/// A scheduled graph with numbers in place of buffers.
pub struct Plan {
    pub steps: Vec<Step>,
    /// Parameter of each temporary.
    pub temps: Vec<UOp>,
    /// Where each root lives: movement over graph parameters; whether an Assign changed that memory.
    pub outputs: Vec<(UOp, bool)>,
    /// The Assign nodes of the graph and where their values live.
    pub assigns: Vec<(UOp, UOp)>,
    /// Slots whose content an Assign changes.
    pub assigned: Vec<u32>,
    pub memory: MemoryPlan,
}

/// What one stored value needs.
pub struct Job {
    pub node: UOp,
    pub kind: JobKind,
    pub reads: Vec<Read>,
}

pub enum JobKind {
    /// Store of a value: the finished Store node.
    Compute {
        store: UOp,
    },
    /// As Compute, into memory that exists: the parameter.
    Assign {
        store: UOp,
        target: UOp,
    },
    Copy {
        src: Region,
    },
}

impl Job {
    /// The memory written.
    pub fn target<'a>(&'a self, stored: &'a Stored) -> Option<&'a UOp> {
        match &self.kind {
            JobKind::Assign { target, .. } => Some(target),
            _ => stored.at.get(&self.node),
        }
    }
}

/// Plans a keyed graph.
pub fn plan(key: &Key) -> Result<Plan, ScheduleError> {
    let g = Graph::new(key);
    let mut stored = required(&g)?;
    for u in g.order.iter().filter(|u| u.op() == Op::Reduce && !is_empty(u.shape())) {
        stored.insert(&g, u);
    }
    let jobs = jobs(&g, &stored)?;
    let order = order::order(&jobs, &stored)?;
    let mut steps = Vec::with_capacity(jobs.len());
    for k in order {
        steps.push(step(&g, &stored, &jobs[k])?);
    }
    finish(&g, &stored, steps)
}

fn jobs(g: &Graph, stored: &Stored) -> Result<Vec<Job>, ScheduleError> {
    let mut jobs = Vec::new();
    let cut = |u: &UOp| stored.cut(u);
    for u in &g.order {
        if is_empty(u.shape()) || !(stored.at.contains_key(u) || u.op() == Op::Assign) {
            continue;
        }
        if u.op() == Op::Copy {
            let src = stored.region(&u.src()[0])?;
            let src = src.ok_or(ScheduleError::Malformed { op: Op::Copy, why: "the source has no dense memory" })?;
            jobs.push(Job { node: u.clone(), kind: JobKind::Copy { src }, reads: Vec::new() });
            continue;
        }
        let (loops, idx) = loops_of(u.shape(), 0);
        let mut low = Lowerer::new(&cut, loops.len() as u32);
        let place = match u.op() {
            Op::Assign => {
                low.lower(&u.src()[0], &idx)?;
                low.reads.pop().map(|r| (r.param, r.flat))
            }
            _ => stored.at.get(u).map(|p| (p.clone(), super::index::flatten(&idx, u.shape()))),
        };
        let (param, flat) =
            place.ok_or(ScheduleError::Malformed { op: u.op(), why: "the target is not a view of memory" })?;
        let value = low.lower_own(u, &idx)?.cast(param.dtype());
        let store = store(&address(&param), &flat, &value, &loops);
        let kind = match u.op() {
            Op::Assign => JobKind::Assign { store, target: param },
            _ => JobKind::Compute { store },
        };
        jobs.push(Job { node: u.clone(), kind, reads: low.reads });
    }
    Ok(jobs)
}

fn step(g: &Graph, stored: &Stored, job: &Job) -> Result<Step, ScheduleError> {
    match &job.kind {
        JobKind::Copy { src } => {
            let dst = stored.at[&job.node].clone();
            Ok(Step::Copy { dst, src: src.param.clone(), src_offset: src.offset, len: max_len(job.node.shape()) })
        }
        JobKind::Compute { store } | JobKind::Assign { store, .. } => {
            let device = job.target(stored).map_or(g.device(&job.node), device_number);
            if let Some(r) = job.reads.iter().find(|r| device_number(&r.param) != device) {
                return Err(ScheduleError::Mixed { op: r.node.op(), shape: format!("{:?}", r.node.shape()) });
            }
            let KernelGraph { ast, slots, vars } = normalise(std::slice::from_ref(store));
            Ok(Step::Kernel { ast, slots, vars, device })
        }
    }
}

/// Views of the outputs, temporaries and their places.
fn finish(g: &Graph, stored: &Stored, steps: Vec<Step>) -> Result<Plan, ScheduleError> {
    let view = |u: &UOp| stored.view(u).ok_or(ScheduleError::Malformed { op: u.op(), why: "a root without memory" });
    let outputs = g
        .roots
        .iter()
        .map(|r| Ok((view(r)?, !stored.at.contains_key(r) && !order::version_of(r).is_empty())))
        .collect::<Result<Vec<_>, ScheduleError>>()?;
    let mut assigns = Vec::new();
    let mut assigned = Vec::new();
    for u in g.order.iter().filter(|u| u.op() == Op::Assign) {
        let v = view(u)?;
        for p in params(&v) {
            if !assigned.contains(&slot(&p)) {
                assigned.push(slot(&p));
            }
        }
        assigns.push((u.clone(), v));
    }
    let mut temps: Vec<UOp> = stored.at.values().cloned().collect();
    temps.sort_by_key(slot);
    let held: USet = outputs.iter().map(|o| &o.0).chain(assigns.iter().map(|a| &a.1)).flat_map(params).collect();
    let uses = uses(&temps, &held, &steps);
    let memory = memory::plan(&uses);
    Ok(Plan { steps, temps, outputs, assigns, assigned, memory })
}

/// Graph parameters below a view.
fn params(view: &UOp) -> Vec<UOp> {
    view.toposort().into_iter().filter(|u| u.op() == Op::Param).collect()
}

/// First and last step of each temporary.
fn uses(temps: &[UOp], held: &USet, steps: &[Step]) -> Vec<TempUse> {
    let mut uses: Vec<TempUse> = temps
        .iter()
        .map(|p| TempUse {
            bytes: max_len(p.shape()) * p.dtype().size_bytes(),
            device: device_number(p),
            held: held.contains(p),
            copied: false,
            span: None,
        })
        .collect();
    let mut touch = |s: u32, k: usize, copied: bool| {
        if let Some(u) = s.checked_sub(FIRST_TEMP).and_then(|t| uses.get_mut(t as usize)) {
            let (first, _) = u.span.unwrap_or((k, k));
            u.span = Some((first, k));
            u.copied |= copied;
        }
    };
    for (k, s) in steps.iter().enumerate() {
        match s {
            Step::Kernel { slots, .. } => slots.iter().for_each(|s| touch(*s, k, false)),
            Step::Copy { dst, src, .. } => [dst, src].iter().for_each(|p| touch(slot(p), k, true)),
        }
    }
    uses
}
