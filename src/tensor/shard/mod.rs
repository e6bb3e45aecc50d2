//! Tensors over several devices: a [`Op::Shard`] node holds one part for each device, and [`Lowering`] turns a graph
//! above such nodes into one graph for each device before it is scheduled.
//!
//! A value lies in one of three ways over its devices ([`Layout`]): each has all of it, each has its part of one axis,
//! or each has a partial result whose sum (product, maximum) is the value. Elementwise operations bring their sources
//! into one layout (`collective`); movement and reductions follow the axis (`layout`). What comes out has only
//! operations on single devices and copies between them, so scheduling, codegen and queues know nothing of shards.

mod collective;
mod layout;
mod user;

pub use collective::AllReduce;

use super::error::Problem;
use super::graph;
use crate::uop::{Arg, Dim, Op, UMap, UOp};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Between the names of devices where one text names several.
pub(crate) const SEPARATOR: char = ',';

/// Whether a program ever made a sharded Tensor: the others are not searched for one.
static EVER: AtomicBool = AtomicBool::new(false);

/// Tags of stored values of constants from here on say for which device they are.
const FIRST_DEVICE_TAG: u32 = 1 << 20;

/// How a value lies over its devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Layout {
    /// Each device has all of it.
    Whole,
    /// Each device has an equal part of this axis, in the order of the devices.
    Axis(usize),
    /// Each device has a value of the whole shape; combined by this operation they are the value.
    Partial(Op),
}

/// A value over several devices.
#[derive(Clone, Debug)]
pub(crate) struct Sharded {
    /// One for each device.
    pub parts: Vec<UOp>,
    pub layout: Layout,
    pub devices: Arc<[Arc<str>]>,
}

impl Sharded {
    /// The same devices and layout with other parts.
    fn map(&self, layout: Layout, part: impl FnMut((usize, &UOp)) -> UOp) -> Sharded {
        Sharded { parts: self.parts.iter().enumerate().map(part).collect(), layout, devices: self.devices.clone() }
    }
    fn count(&self) -> usize {
        self.devices.len()
    }
    /// The size of an axis of the whole value.
    fn dim(&self, axis: usize) -> Dim {
        let own = self.parts[0].shape()[axis].clone();
        if self.layout == Layout::Axis(axis) { graph::dim_op(Op::Mul, &own, &Dim::from(self.count())) } else { own }
    }
    fn axis(&self) -> Option<usize> {
        if let Layout::Axis(k) = self.layout { Some(k) } else { None }
    }
    /// The Shard node that stands for it. A partial value has none.
    fn node(&self) -> UOp {
        node(&self.parts, self.axis())
    }
}

/// What a node is on the devices.
#[derive(Clone, Debug)]
pub(crate) enum Lowered {
    /// A value on one device, or of constants alone.
    One(UOp),
    Many(Arc<Sharded>),
}

/// A Shard node of parts along `axis`, or of equal ones.
pub(crate) fn node(parts: &[UOp], axis: Option<usize>) -> UOp {
    EVER.store(true, Ordering::Relaxed);
    let axes = axis.iter().map(|k| *k as u16).collect();
    UOp::new(Op::Shard, parts[0].dtype(), parts.iter().cloned().collect::<crate::uop::Srcs>(), Arg::Axes(axes))
}

/// Part `part` of `count` of `x` along `axis`; the whole for none. What a gradient passes to one source of a Shard.
pub(crate) fn part(x: &UOp, part: usize, count: usize, axis: Option<usize>) -> UOp {
    let axes = [part, count].into_iter().chain(axis).map(|k| k as u16).collect();
    UOp::new(Op::Part, x.dtype(), [x.clone()], Arg::Axes(axes))
}

/// `x` on `device`: a copy unless it is there, or of constants alone.
pub(crate) fn on(x: &UOp, device: &Arc<str>) -> UOp {
    match x.device() {
        Some(there) if there != device => UOp::new(Op::Copy, x.dtype(), [x.clone()], Arg::Device(device.clone())),
        _ => x.clone(),
    }
}

/// Part `i` of `n` of `x` along an axis.
pub(crate) fn slice(x: &UOp, axis: usize, i: usize, n: usize) -> Result<UOp, Problem> {
    let size = x.shape()[axis].as_int().filter(|size| size % n as i64 == 0);
    let Some(size) = size else {
        let d = &x.shape()[axis];
        return Err(Problem::shape(format!("axis {axis} of size {d} has no {n} equal parts for as many devices")));
    };
    let len = size / n as i64;
    let keep: Vec<(Dim, Dim)> = x
        .shape()
        .iter()
        .enumerate()
        .map(|(k, d)| match k == axis {
            true => (Dim::Int(len * i as i64), Dim::Int(len * (i as i64 + 1))),
            false => (Dim::Int(0), d.clone()),
        })
        .collect();
    Ok(graph::shrink(x, &keep))
}

/// A node on the walk's stack.
enum Visit {
    Enter(UOp),
    /// All below is done.
    Rebuild(UOp),
    /// It is memory: what that is, is what the node is.
    Same(UOp, UOp),
}

/// Turns graphs above Shard nodes into graphs of single devices.
pub(crate) struct Lowering {
    how: AllReduce,
    done: UMap<Lowered>,
    /// Values that were brought into another layout: parts, layout, the other layout.
    brought: HashMap<(Vec<UOp>, Layout, Layout), Arc<Sharded>>,
    /// Devices by the numbers that values of constants get where they are stored on several.
    numbers: Vec<Arc<str>>,
    /// Assignments that became others.
    pub assigns: Vec<(UOp, Lowered)>,
}

/// Whether a graph has a Shard.
pub(crate) fn is_sharded(u: &UOp) -> bool {
    EVER.load(Ordering::Relaxed) && u.toposort().iter().any(|u| u.op() == Op::Shard || realized_shard(u).is_some())
}

/// The Shard that holds a node's value once it was computed.
fn realized_shard(u: &UOp) -> Option<&UOp> {
    u.realized().filter(|v| v.op() == Op::Shard)
}

impl Lowering {
    pub(crate) fn new(how: AllReduce) -> Lowering {
        Lowering { how, done: UMap::default(), brought: HashMap::new(), numbers: Vec::new(), assigns: Vec::new() }
    }

    /// What `root` is on the devices; never partial.
    pub(crate) fn lower(&mut self, root: &UOp) -> Result<Lowered, Problem> {
        let mut stack = vec![Visit::Enter(root.clone())];
        while let Some(visit) = stack.pop() {
            let (u, new) = match visit {
                Visit::Enter(u) => {
                    if !self.done.contains_key(&u) {
                        self.enter(u, &mut stack);
                    }
                    continue;
                }
                Visit::Rebuild(u) => {
                    let new = self.rebuild(&u)?;
                    if u.op() == Op::Assign && !matches!(&new, Lowered::One(v) if *v == u) {
                        self.assigns.push((u.clone(), new.clone()));
                    }
                    (u, new)
                }
                // PANIC: the memory was entered above this and is done.
                Visit::Same(u, memory) => (u, self.done[&memory].clone()),
            };
            self.done.insert(u, new);
        }
        // PANIC: the root was pushed first and is done when the stack is empty.
        match self.done[root].clone() {
            Lowered::Many(s) if matches!(s.layout, Layout::Partial(_)) => {
                Ok(Lowered::Many(self.bring(&s, Layout::Whole)?))
            }
            other => Ok(other),
        }
    }

    fn enter(&self, u: UOp, stack: &mut Vec<Visit>) {
        if let Some(memory) = realized_shard(&u).cloned() {
            stack.extend([Visit::Same(u, memory.clone()), Visit::Enter(memory)]);
            return;
        }
        let pending: Vec<UOp> = match u.realized().is_some() {
            // On one device: what is below does not matter any more.
            true => Vec::new(),
            false => u.src().iter().filter(|s| !self.done.contains_key(*s)).cloned().collect(),
        };
        stack.push(Visit::Rebuild(u));
        stack.extend(pending.into_iter().rev().map(Visit::Enter));
    }

    fn rebuild(&mut self, u: &UOp) -> Result<Lowered, Problem> {
        if u.realized().is_some() {
            return Ok(Lowered::One(u.clone()));
        }
        // PANIC: everything below was done before.
        let below: Vec<Lowered> = u.src().iter().map(|s| self.done[s].clone()).collect();
        let ones: Option<Vec<UOp>> = below
            .iter()
            .map(|s| match s {
                Lowered::One(s) => Some(s.clone()),
                Lowered::Many(_) => None,
            })
            .collect();
        match (u.op(), u.arg(), ones) {
            (Op::Shard, _, Some(parts)) => {
                let devices = devices_of(u);
                let layout = u.axes().first().map_or(Layout::Whole, |k| Layout::Axis(usize::from(*k)));
                Ok(Lowered::Many(Arc::new(Sharded { parts, layout, devices })))
            }
            (Op::Copy, Arg::Device(to), _) if to.contains(SEPARATOR) => self.spread_out(&below[0], to),
            (Op::Part, Arg::Axes(axes), _) => self.part(&below[0], axes),
            (Op::Copy, Arg::Device(to), Some(src)) if src[0].device().is_none() => {
                Ok(Lowered::One(u.with_src([self.own(&src[0], to)])))
            }
            (_, _, Some(src)) => Ok(Lowered::One(u.with_src(src))),
            _ => self.over_many(u, &below),
        }
    }

    /// A node with a source over several devices.
    fn over_many(&mut self, u: &UOp, below: &[Lowered]) -> Result<Lowered, Problem> {
        let many = |s: &Lowered| match s {
            Lowered::Many(s) => Some(s.clone()),
            Lowered::One(_) => None,
        };
        match u.op() {
            Op::Copy => {
                let (Arg::Device(to), Some(s)) = (u.arg(), many(&below[0])) else { return Err(unknown(u)) };
                Ok(Lowered::One(collective::to_one(&s, to)?))
            }
            Op::Assign => self.assign(u, below),
            Op::After => after(u, below),
            op if op.is_elementwise() => Ok(Lowered::Many(self.elementwise(u, below)?)),
            op if op.is_movement() || op == Op::Reduce => {
                let s = many(&below[0]).ok_or_else(|| unknown(u))?;
                match layout::followed(u, &s) {
                    Some(made) => Ok(Lowered::Many(Arc::new(made))),
                    None => {
                        let whole = self.bring(&s, Layout::Whole)?;
                        let made = layout::followed(u, &whole).ok_or_else(|| unknown(u))?;
                        Ok(Lowered::Many(Arc::new(made)))
                    }
                }
            }
            Op::Contiguous => {
                let s = many(&below[0]).ok_or_else(|| unknown(u))?;
                let s = self.bring(&s, s.axis().map_or(Layout::Whole, Layout::Axis))?;
                Ok(Lowered::Many(Arc::new(s.map(s.layout, |(_, p)| u.with_src([p.clone()])))))
            }
            Op::Fused => Ok(below[0].clone()),
            Op::Detach | Op::ContiguousBackward => {
                let s = many(&below[0]).ok_or_else(|| unknown(u))?;
                Ok(Lowered::Many(Arc::new(s.map(s.layout, |(_, p)| u.with_src([p.clone()])))))
            }
            _ => Err(unknown(u)),
        }
    }

    /// All sources in one layout: along the axis of the first that has one.
    fn elementwise(&mut self, u: &UOp, below: &[Lowered]) -> Result<Arc<Sharded>, Problem> {
        let many = || below.iter().filter_map(|s| if let Lowered::Many(s) = s { Some(s) } else { None });
        let layout = many().find_map(|s| s.axis()).map_or(Layout::Whole, Layout::Axis);
        // PANIC: this is called where a source is over several devices.
        let devices = many().next().map(|s| s.devices.clone()).unwrap_or_default();
        let mut sources = Vec::with_capacity(below.len());
        for s in below {
            sources.push(self.fitting(u, s, layout, &devices)?);
        }
        let part = |i: usize| u.with_src(sources.iter().map(|s| s[i].clone()).collect::<crate::uop::Srcs>());
        Ok(Arc::new(Sharded { parts: (0..devices.len()).map(part).collect(), layout, devices }))
    }

    /// The parts of a source in a layout.
    fn fitting(
        &mut self,
        u: &UOp,
        s: &Lowered,
        layout: Layout,
        devices: &Arc<[Arc<str>]>,
    ) -> Result<Vec<UOp>, Problem> {
        match s {
            Lowered::Many(s) if s.devices == *devices => Ok(self.bring(s, layout)?.parts.clone()),
            Lowered::Many(s) => Err(mixed(u, &name(&s.devices), &name(devices))),
            Lowered::One(x) => match (x.device(), layout) {
                (Some(d), _) => Err(mixed(u, d, &name(devices))),
                (None, Layout::Axis(k)) if x.shape().len() > k => {
                    let part = |(i, d)| Ok(self.own(&slice(x, k, i, devices.len())?, d));
                    devices.iter().enumerate().map(part).collect()
                }
                (None, _) => Ok(devices.iter().map(|d| self.own(x, d)).collect()),
            },
        }
    }

    /// A value of constants for one device: what is stored below it is stored on each device by itself.
    fn own(&mut self, x: &UOp, device: &Arc<str>) -> UOp {
        let known = self.numbers.iter().position(|d| d == device);
        let number = known.unwrap_or_else(|| {
            self.numbers.push(device.clone());
            self.numbers.len() - 1
        });
        let tag = u32::try_from(number).ok().map(|n| FIRST_DEVICE_TAG + n);
        let stored = |u: &UOp| matches!(u.op(), Op::Contiguous | Op::Reduce);
        let mut own: UMap<UOp> = UMap::default();
        for u in x.toposort() {
            let src: crate::uop::Srcs = u.src().iter().map(|s| own[s].clone()).collect();
            let new = u.with_src(src);
            own.insert(u.clone(), if stored(&u) { new.with_tag(tag) } else { new });
        }
        own.remove(x).unwrap_or_else(|| x.clone())
    }

    /// The value in another layout; made once.
    fn bring(&mut self, s: &Arc<Sharded>, to: Layout) -> Result<Arc<Sharded>, Problem> {
        if s.layout == to {
            return Ok(s.clone());
        }
        let key = (s.parts.clone(), s.layout, to);
        if let Some(there) = self.brought.get(&key) {
            return Ok(there.clone());
        }
        let made = Arc::new(collective::bring(s, to, self.how)?);
        self.brought.insert(key, made.clone());
        Ok(made)
    }

    fn assign(&mut self, u: &UOp, below: &[Lowered]) -> Result<Lowered, Problem> {
        let [target, value] = below else { return Err(unknown(u)) };
        let Lowered::Many(target) = target else {
            let (Lowered::One(t), Lowered::Many(v)) = (target, value) else { return Err(unknown(u)) };
            return Err(mixed(u, t.device().map_or("no device", |d| d), &name(&v.devices)));
        };
        let value = self.fitting(u, value, target.layout, &target.devices)?;
        let part = |(i, p): (usize, &UOp)| u.with_src([p.clone(), value[i].clone()]);
        Ok(Lowered::Many(Arc::new(target.map(target.layout, part))))
    }

    /// A copy to several devices at once: each gets the whole.
    fn spread_out(&mut self, x: &Lowered, to: &Arc<str>) -> Result<Lowered, Problem> {
        let devices: Arc<[Arc<str>]> = to.split(SEPARATOR).map(Arc::from).collect();
        let parts = match x {
            Lowered::Many(s) if s.devices == devices => return Ok(Lowered::Many(self.bring(s, Layout::Whole)?)),
            Lowered::Many(s) => {
                devices.iter().map(|d| collective::to_one(s, d)).collect::<Result<Vec<UOp>, Problem>>()?
            }
            Lowered::One(x) => devices.iter().map(|d| on(x, d)).collect(),
        };
        Ok(Lowered::Many(Arc::new(Sharded { parts, layout: Layout::Whole, devices })))
    }

    /// One part of a value (see [`part`]).
    fn part(&mut self, x: &Lowered, axes: &[u16]) -> Result<Lowered, Problem> {
        let (i, n, axis) = match axes {
            [i, n] => (usize::from(*i), usize::from(*n), None),
            [i, n, k] => (usize::from(*i), usize::from(*n), Some(usize::from(*k))),
            _ => return Err(Problem::argument("a part without number and count")),
        };
        let made = match (x, axis) {
            (Lowered::One(x), None) => x.clone(),
            (Lowered::One(x), Some(k)) => slice(x, k, i, n)?,
            (Lowered::Many(s), _) if s.count() != n => {
                return Err(Problem::argument("a part of another number of devices"));
            }
            (Lowered::Many(s), None) => self.bring(s, Layout::Whole)?.parts[i].clone(),
            (Lowered::Many(s), Some(k)) => self.bring(s, Layout::Axis(k))?.parts[i].clone(),
        };
        Ok(Lowered::One(made))
    }
}

/// Each part after its own of what it waits for.
fn after(u: &UOp, below: &[Lowered]) -> Result<Lowered, Problem> {
    let Lowered::Many(value) = &below[0] else { return Err(unknown(u)) };
    let part = |(i, p): (usize, &UOp)| {
        let dep = |s: &Lowered| match s {
            Lowered::One(s) => s.clone(),
            Lowered::Many(s) => s.parts[i.min(s.parts.len() - 1)].clone(),
        };
        p.after(&below[1..].iter().map(dep).collect::<Vec<UOp>>())
    };
    Ok(Lowered::Many(Arc::new(value.map(value.layout, part))))
}

/// The devices of a Shard node.
pub(crate) fn devices_of(shard: &UOp) -> Arc<[Arc<str>]> {
    shard.device().map(|d| d.split(SEPARATOR).map(Arc::from).collect()).unwrap_or_default()
}

fn name(devices: &[Arc<str>]) -> String {
    devices.join(", ")
}

fn mixed(u: &UOp, a: &str, b: &str) -> Problem {
    let shape = super::error::Shown(u.shape());
    Problem::argument(format!(
        "{:?} of shape {shape} has a source on {a} and one over {b}: shard the one, or move the other, first",
        u.op()
    ))
}

fn unknown(u: &UOp) -> Problem {
    Problem::argument(format!("{:?} does not work on a Tensor over several devices", u.op()))
}

/// Values of one operation that do not lie on the same devices, of which one is sharded.
pub(crate) fn apart(a: &str, b: &str) -> Problem {
    let place = |d: &str| if d.contains(SEPARATOR) { format!("over {}", shown(d)) } else { format!("on {d}") };
    let (a, b) = (place(a), place(b));
    Problem::argument(format!(
        "a value lies {a}, another {b}: `shard` or `shard_like` puts one where the other is, `to` gathers it on one device"
    ))
}

/// Names of several devices as messages have them.
fn shown(devices: &str) -> String {
    devices.replace(SEPARATOR, ", ")
}

/// Over which axis the parts of a value are once it is computed; `None`: each device has all of it.
pub(crate) fn axis_of(value: &UOp) -> Result<Option<usize>, Problem> {
    if value.op() == Op::Shard {
        return Ok(value.axes().first().map(|k| usize::from(*k)));
    }
    Ok(match Lowering::new(AllReduce::Auto).lower(value)? {
        Lowered::Many(s) => s.axis(),
        Lowered::One(_) => None,
    })
}

/// A value over several devices from what computes one part: its device, and the part's number among how many.
pub(crate) fn of_parts(
    devices: &str,
    axis: Option<usize>,
    make: impl Fn(&Arc<str>, usize, usize) -> Result<UOp, Problem>,
) -> Result<UOp, Problem> {
    let devices: Vec<Arc<str>> = devices.split(SEPARATOR).map(Arc::from).collect();
    let part = |(i, d): (usize, &Arc<str>)| make(d, i, devices.len());
    Ok(node(&devices.iter().enumerate().map(part).collect::<Result<Vec<UOp>, Problem>>()?, axis))
}

/// Memory of `shape` on each of several devices, in the layout of `value`.
pub(crate) fn memory_like(
    value: &UOp,
    devices: &str,
    shape: &[Dim],
    memory: impl Fn(&[Dim], &Arc<str>) -> Result<UOp, Problem>,
) -> Result<UOp, Problem> {
    let devices: Vec<Arc<str>> = devices.split(SEPARATOR).map(Arc::from).collect();
    let axis = axis_of(value)?;
    let mut own = shape.to_vec();
    if let Some(k) = axis {
        own[k] = shape[k].as_int().map_or_else(|| shape[k].clone(), |size| Dim::Int(size / devices.len() as i64));
    }
    let parts = devices.iter().map(|d| memory(&own, d)).collect::<Result<Vec<UOp>, Problem>>()?;
    Ok(node(&parts, axis))
}

/// What follows once everything has run: the value of `u` is the memory that its parts have become.
pub(crate) fn finish(u: &UOp, lowered: &Lowered) {
    let memory = |p: &UOp| p.realized().cloned().unwrap_or_else(|| p.clone());
    match lowered {
        Lowered::One(v) if v != u => {
            if let Some(view) = v.realized() {
                u.set_realized(view.clone());
            }
        }
        Lowered::One(_) => {}
        Lowered::Many(s) => {
            let parts: Vec<UOp> = s.parts.iter().map(memory).collect();
            let made = Sharded { parts, ..Sharded::clone(s) }.node();
            if made != *u {
                u.set_realized(made);
            }
        }
    }
}
