//! The roots of a realize → a graph without identities: the key of the schedule cache.
//!
//! Values that are already computed become the buffers that hold them, buffers become numbered `Param`s (a value with
//! its length as source; the tag numbers the device), bound variables lose their value. Identities (Detach,
//! ContiguousBackward, a copy to the device the value is on) are removed. The walk is the whole cost of a cache hit.

use super::ScheduleError;
use super::devices::Devices;
use super::fused::Chosen;
use crate::uop::{Arg, CustomArg, Op, Srcs, UMap, UOp};
use std::sync::Arc;

/// What a plan is looked up by: equal for graphs that differ in buffers and variable values only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Sink of the roots.
    pub graph: UOp,
    /// Devices by the number used in tags and in `root_devices`.
    pub devices: Vec<Arc<str>>,
    /// Device number of each root.
    pub root_devices: Vec<u32>,
}

/// A keyed graph with what was taken out of it.
pub(crate) struct Front {
    pub key: Key,
    /// The Buffer node of each Param slot.
    pub buffers: Vec<UOp>,
    /// Variable, its Bind node.
    pub binds: Vec<(UOp, UOp)>,
    pub var_vals: Vec<(Arc<str>, i64)>,
    /// Assign nodes and what became of them.
    pub assigns: Vec<(UOp, UOp)>,
    /// What became of each node.
    pub done: UMap<UOp>,
}

/// Tags from here on say for which device a root of constants is stored.
const FIRST_DEVICE: u32 = 1 << 24;

/// Tag of graph parameters and temporaries: the number of their device.
pub(crate) fn device_number(param: &UOp) -> u32 {
    param.tag().unwrap_or(0)
}

struct Walk<'d> {
    known: &'d Devices,
    done: UMap<UOp>,
    chosen: Chosen<'d>,
    devices: Vec<Arc<str>>,
    buffers: Vec<UOp>,
    binds: Vec<(UOp, UOp)>,
    var_vals: Vec<(Arc<str>, i64)>,
    assigns: Vec<(UOp, UOp)>,
}

/// Strips identities from the graph below `roots` (each with the device for graphs that have none).
pub(crate) fn strip(roots: &[(UOp, Arc<str>)], known: &Devices) -> Result<Front, ScheduleError> {
    let mut w = Walk {
        done: UMap::default(),
        known,
        chosen: Chosen::of(roots, known),
        devices: Vec::new(),
        buffers: Vec::new(),
        binds: Vec::new(),
        var_vals: Vec::new(),
        assigns: Vec::new(),
    };
    let mut stripped = Srcs::new();
    let mut root_devices: Vec<u32> = Vec::with_capacity(roots.len());
    for (root, fallback) in roots {
        let device = root.device().unwrap_or(fallback).clone();
        let number = w.device(&device);
        let mut new = w.strip(root)?;
        // Of constants alone it is the same on every device, and each has it in memory of its own.
        let elsewhere = |(other, d): (&UOp, &u32)| *other == new && *d != number;
        if stripped.iter().zip(&root_devices).any(elsewhere) {
            new = UOp::tagged(Op::Contiguous, new.dtype(), [new], Arg::None, Some(FIRST_DEVICE + number));
        }
        stripped.push(new);
        root_devices.push(number);
    }
    let key = Key { graph: UOp::sink(stripped), devices: w.devices, root_devices };
    Ok(Front { key, buffers: w.buffers, binds: w.binds, var_vals: w.var_vals, assigns: w.assigns, done: w.done })
}

/// A node on the walk's stack.
enum Visit {
    /// Not looked at yet.
    Enter(UOp),
    /// All below is done.
    Rebuild(UOp),
    /// It is memory, and its buffer is complete. Checked once a node: another thread may realise it while this walk is
    /// below it.
    Realized(UOp, UOp),
}

impl Walk<'_> {
    fn device(&mut self, name: &Arc<str>) -> u32 {
        let at = self.devices.iter().position(|d| d == name).unwrap_or_else(|| {
            self.devices.push(name.clone());
            self.devices.len() - 1
        });
        at as u32
    }

    fn strip(&mut self, root: &UOp) -> Result<UOp, ScheduleError> {
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
                    (u, new)
                }
                // PANIC: the buffer was entered above this and is done.
                Visit::Realized(u, buffer) => (u, self.done[&buffer].clone()),
            };
            self.done.insert(u, new);
        }
        // PANIC: the root was pushed first and is done when the stack is empty.
        Ok(self.done[root].clone())
    }

    /// Puts a node on the stack again, and what it is computed from above it.
    fn enter(&mut self, u: UOp, stack: &mut Vec<Visit>) {
        if let Some(buffer) = u.realized().cloned() {
            stack.extend([Visit::Realized(u, buffer.clone()), Visit::Enter(buffer)]);
            return;
        }
        // What an After waits for has happened once it is in memory: nothing below it is of interest then.
        let is_over = |s: &UOp| u.op() == Op::After && *s != u.src()[0] && s.realized().is_some();
        let is_open = |s: &&UOp| !self.done.contains_key(*s) && !is_over(s);
        // Of a Fused only the value is of interest, or the form for a kernel of its own.
        let wanted = match u.op() {
            Op::Fused if self.chosen.has(&u) => &u.src()[1..],
            Op::Fused => &u.src()[..1],
            _ => u.src(),
        };
        let pending: Srcs = wanted.iter().filter(is_open).cloned().collect();
        stack.push(Visit::Rebuild(u));
        stack.extend(pending.into_iter().rev().map(Visit::Enter));
    }

    fn rebuild(&mut self, u: &UOp) -> Result<UOp, ScheduleError> {
        if u.op() == Op::After {
            return Ok(self.after(u));
        }
        if u.op() == Op::Fused {
            if !self.chosen.has(u) {
                // PANIC: everything below was done before.
                return Ok(self.done[&u.src()[0]].clone());
            }
            // PANIC: as above.
            return Ok(u.with_src(u.src()[1..].iter().map(|s| self.done[s].clone()).collect::<Srcs>()));
        }
        // PANIC: everything below was done before.
        let below: Srcs = u.src().iter().map(|s| self.done[s].clone()).collect();
        let src = |k: usize| below[k].clone();
        match u.op() {
            Op::Buffer => Ok(self.param(u)),
            Op::Bind => self.unbind(u),
            Op::Detach | Op::ContiguousBackward => Ok(src(0)),
            Op::Copy => match u.src()[0].device() {
                // A value of constants only is recomputed where it is used.
                None => Ok(src(0)),
                Some(from) if matches!(u.arg(), Arg::Device(to) if to == from) => Ok(src(0)),
                Some(_) => {
                    if let Arg::Device(to) = u.arg() {
                        self.device(&to.clone());
                    }
                    Ok(u.with_src([src(0)]))
                }
            },
            Op::Contiguous if src(0).op() == Op::Contiguous => Ok(src(0)),
            Op::Assign => {
                let new = u.with_src([src(0), src(1)]);
                self.assigns.push((u.clone(), new.clone()));
                Ok(new)
            }
            Op::Reduce => {
                let device = u.device().map(|name| self.known.traits(name)).unwrap_or_default();
                Ok(super::split::split(u.with_src(below), &device))
            }
            Op::Custom => Ok(match u.arg() {
                // A gradient may differ from call to call, the kernel does not.
                Arg::Custom(c) if c.gradient.is_some() => {
                    let kernel = CustomArg { gradient: None, ..(**c).clone() };
                    UOp::new(Op::Custom, u.dtype(), below, Arg::Custom(Arc::new(kernel)))
                }
                _ => u.with_src(below),
            }),
            _ => Ok(u.with_src(below)),
        }
    }

    /// The value once those have happened that are still to happen.
    fn after(&self, u: &UOp) -> UOp {
        let open = u.src()[1..].iter().filter(|s| s.realized().is_none()).filter_map(|s| self.done.get(s));
        // PANIC: the value itself was done before.
        let below: Srcs = std::iter::once(&self.done[&u.src()[0]]).chain(open).cloned().collect();
        if below.len() == 1 { below[0].clone() } else { u.with_src(below) }
    }

    fn param(&mut self, buffer: &UOp) -> UOp {
        let slot = self.buffers.len();
        self.buffers.push(buffer.clone());
        let (len, device) = match buffer.buffer_ref() {
            Some(b) => (b.len, b.device.clone()),
            None => (0, "".into()),
        };
        let tag = self.device(&device);
        graph_param(slot as u32, buffer.dtype(), len, tag)
    }

    fn unbind(&mut self, u: &UOp) -> Result<UOp, ScheduleError> {
        let (Some(var), Some(value)) = (u.src().first(), u.src().get(1).and_then(UOp::as_int)) else {
            return Err(ScheduleError::Malformed { op: u.op(), why: "a bind needs a variable and a constant" });
        };
        let Arg::Var(name, lo, hi) = var.arg() else {
            return Err(ScheduleError::Malformed { op: u.op(), why: "a bind needs a variable and a constant" });
        };
        if !(*lo..=*hi).contains(&value) {
            return Err(ScheduleError::Unbounded { name: name.shared(), value, min: *lo, max: *hi });
        }
        match self.var_vals.iter().find(|v| *v.0 == **name) {
            Some((_, other)) if *other != value => {
                return Err(ScheduleError::Rebound { name: name.shared(), first: *other, second: value });
            }
            Some(_) => {}
            None => {
                self.var_vals.push((name.shared(), value));
                self.binds.push((var.clone(), u.clone()));
            }
        }
        Ok(var.clone())
    }
}

/// A buffer of a keyed graph: `len` elements on device number `device`.
pub(crate) fn graph_param(slot: u32, dtype: crate::uop::DType, len: usize, device: u32) -> UOp {
    let n = UOp::int(i64::try_from(len).unwrap_or(i64::MAX));
    UOp::tagged(Op::Param, dtype, [n], Arg::Param(slot, len), Some(device))
}
