//! Properties of a keyed tensor graph that planning queries often: order, users, devices, which nodes are memory.

use super::devices::{DeviceTraits, Devices, is_data};
use super::front::{Key, device_number};
use crate::uop::{Arg, DType, Dim, Op, UMap, UOp, numel};
use std::sync::Arc;

/// Slots of graph parameters from here on are temporaries of the plan, not inputs.
pub(crate) const FIRST_TEMP: u32 = 1 << 30;

/// A keyed graph, walked once.
pub(crate) struct Graph {
    pub roots: Vec<UOp>,
    /// Devices by number.
    names: Vec<Arc<str>>,
    traits: Vec<DeviceTraits>,
    /// Sources before users; sizes and other index expressions are not listed.
    pub order: Vec<UOp>,
    /// Users of each node's value, in order.
    pub users: UMap<Vec<UOp>>,
    devices: UMap<u32>,
    /// Reads memory somewhere below.
    reads_memory: UMap<bool>,
}

/// Sources that are values of the tensor graph (not sizes).
pub(crate) fn values(u: &UOp) -> &[UOp] {
    match u.op() {
        op if op.is_movement() => &u.src()[..1],
        Op::Const | Op::Var | Op::Param | Op::Iota | Op::Buffer => &[],
        _ => u.src(),
    }
}

impl Graph {
    pub(crate) fn new(key: &Key, known: &Devices) -> Graph {
        let roots = key.graph.src().to_vec();
        let order = value_order(&roots);
        let mut g = Graph {
            roots,
            names: key.devices.clone(),
            traits: key.devices.iter().map(|name| known.traits(name)).collect(),
            order: Vec::new(),
            users: UMap::default(),
            devices: UMap::default(),
            reads_memory: UMap::default(),
        };
        for u in &order {
            let mut device = match (u.op(), u.arg()) {
                (Op::Param, _) => Some(device_number(u)),
                (Op::Copy, Arg::Device(d)) => key.devices.iter().position(|x| x == d).map(|k| k as u32),
                _ => None,
            };
            // What a user's kernel does is not known: it is run once.
            let mut reads = matches!(u.op(), Op::Param | Op::Custom);
            for s in values(u) {
                let users = g.users.entry(s.clone()).or_default();
                if users.last() != Some(u) {
                    users.push(u.clone());
                }
                device = device.or_else(|| g.devices.get(s).copied());
                reads |= g.reads_memory[s];
            }
            if let Some(d) = device {
                g.devices.insert(u.clone(), d);
            }
            g.reads_memory.insert(u.clone(), reads);
        }
        for (r, d) in g.roots.iter().zip(&key.root_devices) {
            g.devices.entry(r.clone()).or_insert(*d);
        }
        // Values of constants only are computed where they are used.
        for u in order.iter().rev() {
            if let Some(d) = g.devices.get(u).copied() {
                for s in values(u) {
                    g.devices.entry(s.clone()).or_insert(d);
                }
            }
        }
        g.order = order;
        g
    }

    pub(crate) fn users(&self, u: &UOp) -> &[UOp] {
        self.users.get(u).map_or(&[], Vec::as_slice)
    }
    pub(crate) fn device(&self, u: &UOp) -> u32 {
        self.devices.get(u).copied().unwrap_or(0)
    }
    /// What the device of a number is called.
    pub(crate) fn name(&self, device: u32) -> Arc<str> {
        self.names.get(device as usize).cloned().unwrap_or_default()
    }
    /// What the device of a value is like.
    pub(crate) fn traits(&self, u: &UOp) -> DeviceTraits {
        self.traits.get(self.device(u) as usize).cloned().unwrap_or_default()
    }
    /// Whether a device is host data or a file, which no queue writes.
    pub(crate) fn is_data(&self, device: u32) -> bool {
        is_data(&self.name(device))
    }
    /// A value of constants, counters and variables only: computing it again costs no load.
    pub(crate) fn is_pure(&self, u: &UOp) -> bool {
        !self.reads_memory.get(u).copied().unwrap_or(false)
    }
}

fn value_order(roots: &[UOp]) -> Vec<UOp> {
    let mut order = Vec::new();
    let mut seen: UMap<()> = UMap::default();
    let mut stack: Vec<(UOp, bool)> = roots.iter().rev().map(|r| (r.clone(), false)).collect();
    while let Some((u, expanded)) = stack.pop() {
        if expanded {
            order.push(u);
        } else if seen.insert(u.clone(), ()).is_none() {
            stack.push((u.clone(), true));
            stack.extend(values(&u).iter().rev().filter(|s| !seen.contains_key(*s)).map(|s| (s.clone(), false)));
        }
    }
    order
}

/// Elements a dense array of this shape needs at most.
pub(crate) fn max_len(shape: &[Dim]) -> usize {
    shape.iter().map(|d| usize::try_from(d.max()).unwrap_or(0)).fold(1, usize::saturating_mul)
}

pub(crate) fn is_empty(shape: &[Dim]) -> bool {
    numel(shape).is(0)
}

/// The type a value has in memory.
pub(crate) fn memory_dtype(t: DType) -> DType {
    t.with_scalar(t.scalar.strong())
}

/// Leaves that cost nothing to recompute.
pub(crate) fn is_leaf(u: &UOp) -> bool {
    matches!(u.op(), Op::Const | Op::Var | Op::Iota)
}
