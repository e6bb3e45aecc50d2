//! Values that one kernel may compute ([`Op::Fused`]): whether it does, and what then exists inside of it only.

use super::ScheduleError;
use super::devices::Devices;
use super::graph::{Graph, is_leaf};
use super::index::Lin;
use super::lower::{Cut, Lowerer};
use super::stored::{MOVES, Stored, loops_of, through};
use crate::uop::{Op, UMap, UOp, USet};
use std::sync::Arc;

/// The nodes between the form of a value and what the kernel reads.
pub(crate) fn inside(form: &UOp, read: &[UOp]) -> USet {
    let (mut found, mut todo) = (USet::default(), vec![form.clone()]);
    while let Some(u) = todo.pop() {
        if !read.contains(&u) && found.insert(u.clone()) {
            todo.extend(u.src().iter().cloned());
        }
    }
    found
}

/// What would be computed twice if it were used outside as well.
fn is_costly(u: &UOp) -> bool {
    matches!(u.op(), Op::Reduce | Op::Exp2)
}

/// Which values are computed by kernels of their own: those of which nothing in between is needed elsewhere, as the
/// weights of an attention are for its gradient, or is in memory already. (And those whose products no matrix unit of
/// the device computes: it is faster than any kernel without it.)
pub(crate) struct Chosen<'d> {
    roots: Vec<UOp>,
    devices: &'d Devices,
    /// What the roots need apart from such values, once it is asked for.
    used: Option<USet>,
    known: UMap<bool>,
}

impl<'d> Chosen<'d> {
    pub(crate) fn of(roots: &[(UOp, Arc<str>)], devices: &'d Devices) -> Chosen<'d> {
        Chosen { roots: roots.iter().map(|r| r.0.clone()).collect(), devices, used: None, known: UMap::default() }
    }

    pub(crate) fn has(&mut self, fused: &UOp) -> bool {
        if let Some(known) = self.known.get(fused) {
            return *known;
        }
        let roots = &self.roots;
        let used = self.used.get_or_insert_with(|| used(roots, self.devices));
        let free = |u: &UOp| u.realized().is_none() && !(is_costly(u) && used.contains(u));
        let inside = |u: &UOp| inside(&u.src()[1], &u.src()[2..]);
        let chosen = self.devices.fuses(fused) && inside(fused).iter().all(free);
        self.known.insert(fused.clone(), chosen);
        chosen
    }
}

fn used(roots: &[UOp], devices: &Devices) -> USet {
    let (mut found, mut todo) = (USet::default(), roots.to_vec());
    while let Some(u) = todo.pop() {
        if found.insert(u.clone()) && u.realized().is_none() {
            let below = match u.op() {
                Op::Fused if devices.fuses(&u) => &u.src()[2..],
                Op::Fused => &u.src()[..1],
                _ => u.src(),
            };
            todo.extend(below.iter().cloned());
        }
    }
    found
}

/// Stores a Fused and what its kernel reads: views of memory whose last two axes have strides.
pub(crate) fn require(g: &Graph, stored: &mut Stored, fused: &UOp) -> Result<(), ScheduleError> {
    for s in &fused.src()[1..] {
        if g.is_pure(s) {
            continue;
        }
        if stored.view(s).is_none() {
            let base = through(s, &MOVES);
            stored.insert(g, if is_leaf(&base) || g.is_pure(&base) { s } else { &base });
        }
        if !has_strides(stored, s)? {
            stored.insert(g, s);
        }
    }
    stored.insert(g, fused);
    Ok(())
}

/// Whether the position of an element is linear in the indices of the last two axes.
fn has_strides(stored: &Stored, view: &UOp) -> Result<bool, ScheduleError> {
    if stored.view(view).is_none() {
        return Ok(false);
    }
    let cut = |x: &UOp| match stored.at.get(x) {
        Some(p) => Cut::Stored(p.clone()),
        None => stored.cut(x),
    };
    let (loops, idx) = loops_of(view.shape(), 0);
    let mut low = Lowerer::new(&cut, loops.len() as u32);
    low.lower(view, &idx)?;
    let Some(read) = low.reads.pop().filter(|r| r.place.gate.is_none()) else { return Ok(false) };
    let last = &idx[idx.len().saturating_sub(2)..];
    let loops = || last.iter().filter(|r| r.op() == Op::Range);
    let rest = loops().try_fold(read.flat.clone(), |flat, r| Some(Lin::of(&flat)?.without_term(r)));
    Ok(rest.is_some_and(|rest| !loops().any(|r| rest.contains(r))))
}
