//! A keyed graph → a plan: kernels and copies over numbered memory, in order, with a memory plan for temporaries.
//!
//! A plan depends on the key alone, so it is cached and bound to other buffers when the same graph comes again.

use super::ScheduleError;
use super::devices::Devices;
use super::explain::{Why, explain};
use super::front::{Key, device_number};
use super::fuse::{FusedKernel, fuse, is_output, levels, nest, users};
use super::graph::{FIRST_TEMP, Graph, is_empty, max_len, memory_dtype};
use super::index::{self, Idx};
use super::jobs::{Job, JobKind, jobs, store_reduces};
use super::keep::{store_repeated, store_shared};
use super::kernel::{KernelGraph, normalise, output_loop, store};
use super::lower::{Cut, Lowerer, address};
use super::memory::{self, MemoryPlan, TempUse};
use super::order::{Place, edges, sort, sort_over, version_of};
use super::snapshot::with_snapshots;
use super::stored::{Stored, required, slot};
use crate::sort;
use crate::uop::{Arg, CustomArg, CustomCode, DType, KernelInfo, Op, Srcs, UOp, USet};
use std::sync::Arc;

/// One step of a plan; slots below `FIRST_TEMP` are the graph's buffers, from there on temporaries.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Kernel { ast: UOp, slots: Vec<u32>, vars: Vec<UOp>, device: u32 },
    Copy { dst: UOp, src: UOp, src_offset: i64, len: usize },
}

/// A scheduled graph with numbers in place of buffers.
pub(crate) struct Plan {
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
    /// Of each step; empty unless asked for.
    pub why: Vec<Why>,
}

/// Plans a keyed graph for these devices; with `explains`, with the reasons.
pub(crate) fn plan(key: &Key, devices: &Devices, explains: bool) -> Result<Plan, ScheduleError> {
    match plan_graph(key, devices, explains) {
        Err(ScheduleError::Cycle) => {
            let (copied, before) = with_snapshots(key);
            let mut plan = plan_graph(&copied, devices, explains)?;
            for (node, _) in &mut plan.assigns {
                if let Some(old) = before.get(node) {
                    *node = old.clone();
                }
            }
            Ok(plan)
        }
        planned => planned,
    }
}

fn plan_graph(key: &Key, devices: &Devices, explains: bool) -> Result<Plan, ScheduleError> {
    let g = Graph::new(key, devices);
    let mut candidates = required(&g)?;
    store_reduces(&g, &mut candidates);
    store_repeated(&g, &mut candidates);
    let all = candidates.at.clone();
    let mut work = jobs(&g, &mut candidates)?;
    let mut kernels = fuse(&g, &work, &candidates);
    if store_shared(&g, &work, &kernels, &mut candidates) {
        // With more in memory, what was absorbed has to prove itself again.
        for u in g.order.iter().filter(|u| all.contains_key(*u)) {
            candidates.insert(&g, u);
        }
        work = jobs(&g, &mut candidates)?;
        kernels = fuse(&g, &work, &candidates);
    }
    let jobs = work;
    // The values that fusion left in memory, renumbered.
    let (required, inside) = (candidates.required.clone(), candidates.inside.clone());
    let mut stored = Stored { required, inside, ..Stored::new() };
    let users = users(&jobs);
    for k in &kernels {
        let own: Vec<usize> = k.jobs.iter().map(|j| j.0).collect();
        for j in own.iter().filter(|j| is_output(&jobs, &users, &candidates, &own, **j)) {
            if !matches!(jobs[*j].kind, JobKind::Assign { .. }) {
                stored.insert(&g, &jobs[*j].node);
            }
        }
    }
    for u in g.order.iter().filter(|u| is_empty(u.shape()) && candidates.at.contains_key(*u)) {
        stored.insert(&g, u);
    }
    let (mut steps, mut at) = (Vec::new(), Vec::new());
    for k in order(&g, &jobs, &kernels, &candidates)? {
        let step = step(&g, &stored, &jobs, &kernels[k])?;
        at.extend(step.is_some().then_some(k));
        steps.extend(step);
    }
    let why = if explains { explain(&g, &jobs, (&candidates, &stored), &kernels, &at) } else { Vec::new() };
    Ok(Plan { why, ..finish(&g, &stored, steps)? })
}

/// Kernels in an order that respects all edges between their jobs; empty ones are left out.
fn order(g: &Graph, jobs: &[Job], kernels: &[FusedKernel], stored: &Stored) -> Result<Vec<usize>, ScheduleError> {
    let mut home = vec![0; jobs.len()];
    for (k, kernel) in kernels.iter().enumerate() {
        kernel.jobs.iter().for_each(|j| home[j.0] = k);
    }
    let mut between: Vec<(usize, usize)> =
        edges(jobs, stored).into_iter().map(|(a, b)| (home[a], home[b])).filter(|(a, b)| a != b).collect();
    between.sort_unstable();
    between.dedup();
    let places: Vec<Place> = kernels.iter().map(|k| place(g, jobs, k)).collect();
    let sorted = match places.iter().any(|p| p.passes) {
        true => sort_over(&places, &between),
        false => sort(kernels.len(), &between),
    };
    let mut order = sorted.ok_or(ScheduleError::Cycle)?;
    order.retain(|k| !kernels[*k].jobs.is_empty());
    Ok(order)
}

/// Where a kernel runs. Host data and files are no devices that work.
fn place(g: &Graph, jobs: &[Job], kernel: &FusedKernel) -> Place {
    let device = device_of(g, jobs, kernel);
    let copy = kernel.jobs.first().map(|j| &jobs[j.0].node).filter(|node| node.op() == Op::Copy);
    let passes = copy.is_some_and(|node| {
        let from = g.device(&node.src()[0]);
        from != device && !g.is_data(from)
    });
    Place { device, passes }
}

/// The kernel of a kernel's jobs; `None`: its results are never read (a constant that its readers compute themselves).
fn step(g: &Graph, stored: &Stored, jobs: &[Job], kernel: &FusedKernel) -> Result<Option<Step>, ScheduleError> {
    if let Some(job) = kernel.jobs.first().map(|j| &jobs[j.0]).filter(|j| j.is_copy()) {
        if let Arg::Custom(custom) = job.node.arg() {
            return Ok(Some(custom_step(g, stored, &job.node, custom)?));
        }
        let src = stored.region(&job.node.src()[0])?;
        let src = src.ok_or(ScheduleError::Malformed { op: Op::Copy, why: "the source has no dense memory" })?;
        return Ok(Some(Step::Copy {
            dst: stored.at[&job.node].clone(),
            src: src.param,
            src_offset: src.offset,
            len: max_len(job.node.shape()),
        }));
    }
    let device = device_of(g, jobs, kernel);
    let stores = stores(g, stored, jobs, kernel)?;
    if stores.is_empty() {
        return Ok(None);
    }
    let KernelGraph { mut ast, slots, vars } = normalise(&stores);
    if kernel.jobs.iter().any(|j| jobs[j.0].node.op() == Op::Fused) {
        let info = KernelInfo { name: "attention".into(), attention: true, ..KernelInfo::default() };
        ast = ast.with_arg(Arg::Kernel(Arc::new(info)));
    }
    Ok(Some(Step::Kernel { ast, slots, vars, device }))
}

/// The kernel that a user wrote, on the memory of its result and sources.
fn custom_step(g: &Graph, stored: &Stored, node: &UOp, custom: &CustomArg) -> Result<Step, ScheduleError> {
    let sources = stored.sources_of(node)?;
    let slots = std::iter::once(&stored.at[node]).chain(sources.iter().map(|r| &r.param)).map(slot).collect();
    let device = g.device(node);
    if let Some(r) = sources.iter().find(|r| device_number(&r.param) != device) {
        let (lies, runs) = (g.name(device_number(&r.param)), g.name(device));
        return Err(ScheduleError::Mixed { op: Op::Custom, shape: custom.name.to_string(), lies, runs });
    }
    let ast = match &custom.code {
        CustomCode::Graph(ast) => ast.clone(),
        // The kernel alone: equal texts are one kernel, whatever they are used for.
        CustomCode::Text(_) => {
            let kernel = CustomArg { dtype: DType::VOID, shape: Vec::new(), gradient: None, ..custom.clone() };
            let values = std::iter::once(node).chain(node.src());
            let param = |(k, u): (u32, &UOp)| UOp::param(k, memory_dtype(u.dtype()), max_len(u.shape()));
            let params: Srcs = (0..).zip(values).map(param).collect();
            UOp::new(Op::Custom, DType::VOID, params, Arg::Custom(Arc::new(kernel)))
        }
    };
    let mut vars: Vec<UOp> = ast.toposort().into_iter().filter(|u| u.op() == Op::Var).collect();
    sort::by_key(&mut vars, UOp::id);
    Ok(Step::Kernel { ast, slots, vars, device })
}

fn device_of(g: &Graph, jobs: &[Job], kernel: &FusedKernel) -> u32 {
    kernel.jobs.first().map_or(0, |j| g.device(&jobs[j.0].node))
}

/// The stores of a kernel: outermost level first, within a level in graph order.
fn stores(g: &Graph, stored: &Stored, jobs: &[Job], kernel: &FusedKernel) -> Result<Vec<UOp>, ScheduleError> {
    let device = device_of(g, jobs, kernel);
    let own: USet = kernel.jobs.iter().map(|j| jobs[j.0].node.clone()).collect();
    let cut = |u: &UOp| if own.contains(u) { Cut::Through } else { stored.cut(u) };
    let outside = |u: &UOp| stored.cut(u);
    let nest = nest(kernel);
    let at = |axis: usize| nest.iter().position(|a| *a == axis).unwrap_or(0);
    let loops: Vec<UOp> = nest.iter().enumerate().map(|(k, a)| output_loop(&kernel.axes[*a], k as u32)).collect();
    let mut low = Lowerer::new(&cut, loops.len() as u32);
    let mut stores = Vec::new();
    let count = levels(kernel).len();
    let mut by_level: Vec<&(usize, Vec<usize>)> = kernel.jobs.iter().collect();
    if count > 1 {
        sort::by_key(&mut by_level, |j| j.1.len());
    }
    for (j, axes) in by_level {
        let node = &jobs[*j].node;
        let assign = node.op() == Op::Assign;
        if !assign && !stored.at.contains_key(node) {
            continue;
        }
        let mut mine = axes.iter();
        let one = |d: &crate::uop::Dim| d.is(1).then(|| UOp::int(0));
        let idx: Idx = node
            .shape()
            .iter()
            .map(|d| one(d).or_else(|| mine.next().map(|a| loops[at(*a)].clone())).unwrap_or_else(|| UOp::int(0)))
            .collect();
        let (param, flat) = if assign {
            let mut place = Lowerer::new(&outside, 0);
            place.lower(&node.src()[0], &idx)?;
            let r = place.reads.pop();
            let r = r.ok_or(ScheduleError::Malformed { op: Op::Assign, why: "the target is not a view of memory" })?;
            (r.param, r.flat)
        } else {
            (stored.at[node].clone(), index::flatten(&idx, node.shape()))
        };
        let value = low.lower_own(node, &idx)?.cast(param.dtype());
        let mut ranges: Vec<usize> = axes.iter().map(|a| at(*a)).collect();
        sort::by_key(&mut ranges, |k| *k);
        let ranges: Vec<UOp> = ranges.into_iter().map(|k| loops[k].clone()).collect();
        stores.push(store(&address(&param), &flat, &value, &ranges));
    }
    if let Some(r) = low.reads.iter().find(|r| device_number(&r.param) != device) {
        let (lies, runs) = (g.name(device_number(&r.param)), g.name(device));
        let op = if r.node.op() == Op::Param { Op::Buffer } else { r.node.op() };
        return Err(ScheduleError::Mixed { op, shape: format!("{:?}", r.node.shape()), lies, runs });
    }
    Ok(stores)
}

/// Views of the outputs, temporaries and their places.
fn finish(g: &Graph, stored: &Stored, steps: Vec<Step>) -> Result<Plan, ScheduleError> {
    let nowhere = |u: &UOp| ScheduleError::Malformed { op: u.op(), why: "a root without memory" };
    let root_view = |u: &UOp| stored.root_view(u)?.ok_or(nowhere(u));
    let view = |u: &UOp| stored.view(u).ok_or(nowhere(u));
    let outputs = g
        .roots
        .iter()
        .map(|r| Ok((root_view(r)?, !stored.at.contains_key(r) && !version_of(r).is_empty())))
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
    sort::by_key(&mut temps, slot);
    let held: USet = outputs.iter().map(|o| &o.0).chain(assigns.iter().map(|a| &a.1)).flat_map(params).collect();
    let memory = memory::plan(&uses(g, &temps, &held, &steps));
    Ok(Plan { steps, temps, outputs, assigns, assigned, memory, why: Vec::new() })
}

/// Graph parameters below a view.
fn params(view: &UOp) -> Vec<UOp> {
    view.toposort().into_iter().filter(|u| u.op() == Op::Param).collect()
}

/// First and last step of each temporary.
fn uses(g: &Graph, temps: &[UOp], held: &USet, steps: &[Step]) -> Vec<TempUse> {
    let mut uses: Vec<TempUse> = temps
        .iter()
        .map(|p| TempUse {
            bytes: max_len(p.shape()) * p.dtype().size_bytes(),
            device: device_number(p),
            held: held.contains(p),
            copied: false,
            passed: false,
            span: None,
        })
        .collect();
    for (dst, src) in
        steps.iter().filter_map(|s| if let Step::Copy { dst, src, .. } = s { Some((dst, src)) } else { None })
    {
        let (to, from) = (device_number(dst), device_number(src));
        if to != from && !g.is_data(from) {
            for s in [dst, src].into_iter().filter_map(|p| slot(p).checked_sub(FIRST_TEMP)) {
                if let Some(u) = uses.get_mut(s as usize) {
                    u.passed = true;
                }
            }
        }
    }
    let mut touch = |s: u32, k: usize, copied: bool| {
        if let Some(u) = s.checked_sub(FIRST_TEMP).and_then(|t| uses.get_mut(t as usize)) {
            let (first, last) = u.span.unwrap_or((k, k));
            u.span = Some((first.min(k), last.max(k)));
            u.copied |= copied;
        }
    };
    for (k, s) in steps.iter().enumerate() {
        match s {
            Step::Kernel { slots, .. } => slots.iter().for_each(|s| touch(*s, k, false)),
            Step::Copy { dst, src, .. } => {
                // Data from the host is written before the first kernel runs.
                touch(slot(dst), 0, true);
                [dst, src].iter().for_each(|p| touch(slot(p), k, true))
            }
        }
    }
    uses
}
