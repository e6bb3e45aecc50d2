//! A plan bound to buffers: what the engine runs. The cache of plans is here.

use super::ScheduleError;
use super::devices::{DeviceTraits, Devices};
use super::front::{Front, Key, strip};
use super::graph::FIRST_TEMP;
use super::memory::{Arena, Storage};
use super::plan::{Plan, Step, plan};
use super::stored::slot;
use crate::uop::{BufferRef, Op, UMap, UOp};
use hashbrown::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thing to do.
#[derive(Clone, Debug)]
pub enum ScheduleItem {
    /// Run a kernel graph. Equal kernels have the identical `ast`.
    Kernel {
        /// The kernel graph.
        ast: UOp,
        /// Buffer nodes in slot order.
        bufs: Vec<UOp>,
        /// Variables whose values the kernel needs.
        vars: Vec<UOp>,
        /// Where it runs.
        device: Arc<str>,
    },
    /// Copy `len` elements from `src` (from element `src_offset` on) to the start of `dst`; both are Buffer nodes.
    Copy {
        /// Where to.
        dst: UOp,
        /// Where from.
        src: UOp,
        /// First element to copy.
        src_offset: usize,
        /// Elements to copy.
        len: usize,
    },
}

/// Where the engine finds room for a temporary.
#[derive(Clone, Debug)]
pub struct TempMemory {
    /// The temporary.
    pub buffer: UOp,
    /// Index into `Schedule::arenas`.
    pub arena: usize,
    /// Its first byte there.
    pub offset_bytes: usize,
}

/// A node that is computed once the schedule has run, and the movement over Buffers that then holds its value.
#[derive(Clone, Debug)]
pub struct Output {
    /// The node.
    pub node: UOp,
    /// The movement over Buffers.
    pub view: UOp,
    /// The memory of the view changed through an Assign below the node.
    pub assigned: bool,
}

/// What to run, in order, and what is true afterwards.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// What to run.
    pub items: Vec<ScheduleItem>,
    /// The roots in order, then every Assign of the graph.
    pub outputs: Vec<Output>,
    /// Variables and their values in this run.
    pub var_vals: Vec<(Arc<str>, i64)>,
    /// Devices and the memory that temporaries share there.
    pub arenas: Vec<(Arc<str>, Arena)>,
    /// Temporaries that lie in arenas. All other buffers without memory need their own.
    pub temps: Vec<TempMemory>,
    /// Buffers whose content changed: outputs over them get a new identity.
    pub assigned: Vec<UOp>,
    /// Why each item is as it is; empty unless the cache explains ([`ScheduleCache::explain`]).
    pub why: Vec<ItemWhy>,
}

/// Why an item is as it is.
#[derive(Clone, Debug, Default)]
pub struct ItemWhy {
    /// The nodes of the Tensors' graph that it computes.
    pub nodes: Vec<UOp>,
    /// Values that it computes, and those of them that it stores.
    pub counts: [usize; 2],
    /// Items that read what it stores, and why they are not one with it.
    pub cuts: Vec<(usize, &'static str)>,
}

impl Schedule {
    /// Kernels, without copies.
    pub fn kernel_count(&self) -> usize {
        self.items.iter().filter(|i| matches!(i, ScheduleItem::Kernel { .. })).count()
    }

    /// The graph of each kernel, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &UOp> {
        self.items.iter().filter_map(|i| match i {
            ScheduleItem::Kernel { ast, .. } => Some(ast),
            ScheduleItem::Copy { .. } => None,
        })
    }

    /// To be called once everything has run: the outputs become realised; an assigned buffer gets a new node.
    pub fn finish(&self) {
        let renamed: UMap<UOp> = self
            .assigned
            .iter()
            .filter_map(|b| Some((b.clone(), UOp::buffer(b.dtype(), b.buffer_ref()?.next_version()))))
            .collect();
        for o in &self.outputs {
            let view = if o.assigned { o.view.substitute(&renamed) } else { o.view.clone() };
            // A value that is already memory keeps its node. One of constants alone belongs to no device, and its node
            // to every graph that has it: only the Tensor that was realized holds the memory.
            if view != o.node && o.node.device().is_some() {
                o.node.set_realized(view);
            }
        }
    }
}

/// Plans by key. Bounded: when it is full it starts again.
#[derive(Default)]
pub struct ScheduleCache {
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
    devices: Mutex<Devices>,
    /// Whether plans have reasons.
    explains: bool,
}

const CACHE_LIMIT: usize = 4096;

impl ScheduleCache {
    /// A cache whose schedules say why they are as they are.
    pub fn explain() -> ScheduleCache {
        ScheduleCache { explains: true, ..ScheduleCache::default() }
    }

    /// Notes what a device is like; one that is not described is a CPU without matrix units. To be called before the
    /// first graph for it, or by the function that [`schedule_for`] calls.
    pub fn describe(&self, device: &Arc<str>, traits: DeviceTraits) {
        if self.devices.lock().unwrap_or_else(PoisonError::into_inner).describe(device, traits) {
            // Made for another device of that name, or for one that nothing was known of.
            self.plans().retain(|key, _| !key.devices.contains(device));
        }
    }

    /// Drops all plans and descriptions.
    pub fn clear(&self) {
        self.plans().clear();
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = Devices::default();
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Key, Arc<Plan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Number of plans kept.
    pub fn len(&self) -> usize {
        self.plans().len()
    }
    /// Whether no plan is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn get(&self, key: &Key, devices: &Devices) -> Result<Arc<Plan>, ScheduleError> {
        let known = self.plans().get(key).cloned();
        if let Some(p) = known {
            return Ok(p);
        }
        let made = Arc::new(plan(key, devices, self.explains)?);
        let mut plans = self.plans();
        if plans.len() >= CACHE_LIMIT {
            plans.clear();
        }
        plans.insert(key.clone(), made.clone());
        Ok(made)
    }
}

/// Schedules `roots`, each with the device to use if nothing below it has one.
///
/// # Errors
/// Malformed graphs: see [`ScheduleError`].
pub fn schedule(roots: &[(UOp, Arc<str>)], cache: &ScheduleCache) -> Result<Schedule, ScheduleError> {
    schedule_for(roots, cache, |_| ())
}

/// The same, with a function that is called with each device of the graph that is not described yet, before anything is
/// planned for it: it may open the device and [describe](ScheduleCache::describe) it.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_for(
    roots: &[(UOp, Arc<str>)],
    cache: &ScheduleCache,
    mut meet: impl FnMut(&Arc<str>),
) -> Result<Schedule, ScheduleError> {
    let described = || cache.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut devices = described();
    let mut front = strip(roots, &devices)?;
    let mut met = false;
    for device in front.key.devices.iter().filter(|name| !devices.has(name)) {
        meet(device);
        met = true;
    }
    if met {
        // What is one kernel on its device is decided in `strip`.
        devices = described();
        front = strip(roots, &devices)?;
    }
    let plan = cache.get(&front.key, &devices)?;
    Ok(bind(&plan, &front, roots))
}

fn bind(plan: &Plan, front: &Front, roots: &[(UOp, Arc<str>)]) -> Schedule {
    let device = |n: u32| front.key.devices.get(n as usize).cloned().unwrap_or_else(|| "".into());
    let temps: Vec<UOp> = plan
        .temps
        .iter()
        .map(|p| {
            let len = super::graph::max_len(p.shape());
            UOp::buffer(p.dtype(), BufferRef::computed(len, device(super::front::device_number(p))))
        })
        .collect();
    let buffer = |s: u32| match s.checked_sub(FIRST_TEMP) {
        Some(t) => temps[t as usize].clone(),
        None => front.buffers[s as usize].clone(),
    };
    let items = plan
        .steps
        .iter()
        .map(|s| match s {
            Step::Kernel { ast, slots, vars, device: d } => ScheduleItem::Kernel {
                ast: ast.clone(),
                bufs: slots.iter().map(|s| buffer(*s)).collect(),
                vars: vars.clone(),
                device: device(*d),
            },
            Step::Copy { dst, src, src_offset, len } => ScheduleItem::Copy {
                dst: buffer(slot(dst)),
                src: buffer(slot(src)),
                src_offset: usize::try_from(*src_offset).unwrap_or(0),
                len: *len,
            },
        })
        .collect();
    Schedule {
        items,
        outputs: outputs(plan, front, roots, &buffer),
        var_vals: front.var_vals.clone(),
        arenas: plan.memory.arenas.iter().map(|a| (device(a.device), a.clone())).collect(),
        temps: placed(plan, &temps),
        assigned: plan.assigned.iter().map(|s| buffer(*s)).collect(),
        why: reasons(plan, front),
    }
}

/// The reasons in terms of the nodes that the user's calls made.
fn reasons(plan: &Plan, front: &Front) -> Vec<ItemWhy> {
    if plan.why.is_empty() {
        return Vec::new();
    }
    let mut made: UMap<Vec<UOp>> = UMap::default();
    for (node, stripped) in &front.done {
        made.entry(stripped.clone()).or_default().push(node.clone());
    }
    let of = |u: &UOp| made.get(u).cloned().unwrap_or_default();
    let item = |w: &super::explain::Why| ItemWhy {
        nodes: w.nodes.iter().flat_map(of).collect(),
        counts: [w.nodes.len(), w.stored.len()],
        cuts: w.cuts.clone(),
    };
    plan.why.iter().map(item).collect()
}

fn placed(plan: &Plan, temps: &[UOp]) -> Vec<TempMemory> {
    let places = plan.memory.places.iter().zip(temps);
    places
        .filter_map(|(p, b)| match p {
            Storage::Arena { arena, offset_bytes } => {
                Some(TempMemory { buffer: b.clone(), arena: *arena as usize, offset_bytes: *offset_bytes })
            }
            _ => None,
        })
        .collect()
}

/// Views with buffers in place of graph parameters and bound values in place of variables.
fn outputs(plan: &Plan, front: &Front, roots: &[(UOp, Arc<str>)], buffer: &dyn Fn(u32) -> UOp) -> Vec<Output> {
    let mut map: UMap<UOp> = front.binds.iter().cloned().collect();
    let mut bound = |view: &UOp| {
        for p in view.toposort().into_iter().filter(|u| u.op() == Op::Param) {
            map.entry(p.clone()).or_insert_with(|| buffer(slot(&p)));
        }
        view.substitute(&map)
    };
    let mut out: Vec<Output> = roots
        .iter()
        .zip(&plan.outputs)
        .map(|((node, _), (view, assigned))| Output { node: node.clone(), view: bound(view), assigned: *assigned })
        .collect();
    for (stripped, view) in &plan.assigns {
        for node in front.assigns.iter().filter(|(_, s)| s == stripped).map(|(n, _)| n) {
            out.push(Output { node: node.clone(), view: bound(view), assigned: true });
        }
    }
    out
}
