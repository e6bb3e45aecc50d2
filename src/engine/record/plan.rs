//! What is noted of a schedule: the graph of Tensors, the items that compute its nodes, and why they are apart.

use super::{Recorder, State, graph};
use crate::explorer::{Graph, Item, ItemKind, Part, Plan, PlanGraph, Realize};
use crate::schedule::{Schedule, ScheduleItem};
use crate::uop::{Op, UMap, UOp};
use std::sync::Arc;

/// Lines that are noted of one item at most.
const MOST_LINES: usize = 64;

/// Schedules with equal keys are noted once: what runs, and the lines that asked for it.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Kernel graphs, or sizes of copies.
    items: Vec<(bool, u64)>,
    asked: Vec<Option<(&'static str, u32)>>,
}

impl Key {
    fn of(roots: &[(UOp, Arc<str>)], s: &Schedule) -> Key {
        let item = |i: &ScheduleItem| match i {
            ScheduleItem::Kernel { ast, .. } => (true, ast.id()),
            ScheduleItem::Copy { len, .. } => (false, *len as u64),
        };
        let line = |u: &UOp| u.made().map(|m| (m.at.file(), m.at.line()));
        Key { items: s.items.iter().map(item).collect(), asked: roots.iter().map(|r| line(&r.0)).collect() }
    }
}

impl Recorder {
    /// Notes a schedule; the number of its plan.
    pub(crate) fn scheduled(&self, roots: &[(UOp, Arc<str>)], s: &Schedule) -> usize {
        let key = Key::of(roots, s);
        let mut state = self.state();
        if let Some(known) = state.plans.get(&key) {
            return *known;
        }
        let number = state.record.plans.len();
        state.plans.insert(key, number);
        let (plan, of_graph) = state.plan(roots, s);
        state.record.plans.push(plan);
        state.parts.push(Part::of(&format!("plan:{number}"), &of_graph));
        number
    }

    /// Notes that a plan ran, and which kernels its items are.
    pub(crate) fn realized(&self, s: &Schedule, realize: Realize) {
        let mut state = self.state();
        let plan = realize.plan;
        for (k, item) in s.items.iter().enumerate() {
            if let ScheduleItem::Kernel { ast, device, .. } = item
                && let Some(number) = state.kernels.get(&(device.clone(), ast.id())).copied()
                && let Some(noted) = state.record.plans.get_mut(plan).and_then(|p| p.items.get_mut(k))
            {
                noted.kind = ItemKind::Kernel(number);
            }
        }
        state.record.realizes.push(realize);
    }
}

impl State {
    fn plan(&mut self, roots: &[(UOp, Arc<str>)], s: &Schedule) -> (Plan, PlanGraph) {
        let mut nodes: Graph<u64> = Graph::default();
        // What is in memory already was computed by an earlier plan.
        let is_leaf = |u: &UOp| u.realized().is_some() || u.op() == Op::Buffer;
        let numbers = roots.iter().map(|r| graph::add(&mut nodes, &r.0, &is_leaf)).collect();
        let mut of_graph = PlanGraph {
            roots: numbers,
            line: vec![0; nodes.len()],
            items: vec![Vec::new(); nodes.len()],
            ..PlanGraph::default()
        };
        for (root, _) in roots {
            for u in root.toposort() {
                if let (Some(n), Some(made)) = (nodes.get(&u.id()), u.made()) {
                    of_graph.line[n] = self.line(made) + 1;
                }
            }
        }
        for (k, why) in s.why.iter().enumerate() {
            for n in why.nodes.iter().filter_map(|u| nodes.get(&u.id())) {
                of_graph.items[n].push(k);
            }
        }
        of_graph.nodes = nodes.into_nodes();
        let items = s.items.iter().enumerate().map(|(k, item)| self.item(s, k, item)).collect();
        let arena_bytes = s.arenas.iter().map(|(_, a)| a.len_bytes as u64).sum();
        (Plan { items, arena_bytes }, of_graph)
    }

    fn item(&mut self, s: &Schedule, k: usize, item: &ScheduleItem) -> Item {
        let (kind, device) = match item {
            // The kernel's number is known once it is compiled.
            ScheduleItem::Kernel { device, .. } => (ItemKind::default(), device.to_string()),
            ScheduleItem::Copy { dst, src, len, .. } => {
                let name = |u: &UOp| u.buffer_ref().map_or_else(String::new, |b| b.device.to_string());
                let bytes = len * dst.dtype().scalar.size_bytes();
                (ItemKind::Copy(bytes as u64, name(src)), name(dst))
            }
        };
        let why = s.why.get(k).cloned().unwrap_or_default();
        let mut seen: UMap<()> = UMap::default();
        let mut lines: Vec<usize> = Vec::new();
        for made in why.nodes.iter().filter(|u| seen.insert((*u).clone(), ()).is_none()).filter_map(UOp::made) {
            let line = self.line(made);
            if !lines.contains(&line) && lines.len() < MOST_LINES {
                lines.push(line);
            }
        }
        lines.sort_unstable();
        let cuts = why.cuts.iter().map(|(to, why)| (*to, (*why).to_owned())).collect();
        Item { kind, device, lines, values: why.counts, cuts, buffers: Vec::new() }
    }
}
