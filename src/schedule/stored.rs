//! Which values are stored in memory, and in which form: every node that is not listed here exists inside kernels only.

use super::ScheduleError;
use super::front::graph_param;
use super::fused::{inside, require};
use super::graph::{FIRST_TEMP, Graph, is_leaf, max_len, memory_dtype};
use super::index::{self, Lin};
use super::kernel::output_loop;
use super::lower::{Cut, Lowerer, address};
use super::snapshot::is_snapshot;
use crate::uop::{Arg, Dim, Op, Srcs, UMap, UOp, USet};

/// A dense run of elements in memory.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub param: UOp,
    /// First element.
    pub offset: i64,
    /// Read after this took effect.
    pub version: Option<UOp>,
}

/// Nodes whose values are in memory.
pub(crate) struct Stored {
    /// Node → the graph parameter that holds it, dense, row-major.
    pub at: UMap<UOp>,
    /// Number of temporaries.
    pub temps: u32,
    /// Values that are read outside the kernels; the others are stored for lack of an alternative.
    pub required: USet,
    /// Stored, but cheaper to compute again than to read.
    pub recompute: USet,
    /// Values inside a kernel of their own, which are never stored.
    pub inside: USet,
}

impl Stored {
    pub(crate) fn new() -> Stored {
        Stored {
            at: UMap::default(),
            temps: 0,
            required: USet::default(),
            recompute: USet::default(),
            inside: USet::default(),
        }
    }

    pub(crate) fn insert(&mut self, g: &Graph, u: &UOp) {
        if self.at.contains_key(u) || self.inside.contains(u) {
            return;
        }
        let param = graph_param(FIRST_TEMP + self.temps, memory_dtype(u.dtype()), max_len(u.shape()), g.device(u));
        self.temps += 1;
        self.at.insert(u.clone(), param);
        if g.is_pure(u) && u.op() != Op::Reduce {
            self.recompute.insert(u.clone());
        }
    }

    /// How lowering treats `u` when everything stored is read from memory.
    pub(crate) fn cut(&self, u: &UOp) -> Cut {
        match self.at.get(u) {
            Some(p) if !self.recompute.contains(u) => Cut::Stored(p.clone()),
            _ if matches!(u.op(), Op::Assign | Op::After) => Cut::Memory,
            _ => Cut::Through,
        }
    }

    /// `u` as movement over memory, if it is that: what a realised node is replaced by.
    pub(crate) fn view(&self, u: &UOp) -> Option<UOp> {
        let mut chain = Vec::new();
        let mut u = u.clone();
        let mut view = loop {
            if let Some(p) = self.at.get(&u) {
                // A value of one axis is the buffer itself.
                let same = p.shape() == u.shape();
                break if same { p.clone() } else { p.movement(Op::Reshape, u.shape().iter().map(Dim::uop)) };
            }
            match u.op() {
                Op::Param | Op::Buffer => break u,
                Op::Assign | Op::After | Op::Contiguous => {}
                op if op.is_movement() && op != Op::Pad => chain.push(u.clone()),
                _ => return None,
            }
            u = u.src()[0].clone();
        };
        for m in chain.into_iter().rev() {
            let src: Srcs = std::iter::once(view).chain(m.src()[1..].iter().cloned()).collect();
            view = m.with_src(src);
        }
        Some(view)
    }

    /// [`Stored::view`] of a root. One that has to be dense, and is, is the run of elements that it is in memory: the
    /// movement that leads there may be more than a reader of memory follows (the one element of an expanded axis,
    /// say).
    pub(crate) fn root_view(&self, u: &UOp) -> Result<Option<UOp>, ScheduleError> {
        let sizes: Option<Vec<i64>> = u.shape().iter().map(Dim::as_int).collect();
        let region = if u.op() == Op::Contiguous && !self.at.contains_key(u) { self.region(u)? } else { None };
        let (Some(sizes), Some(r)) = (sizes, region) else { return Ok(self.view(u)) };
        let end = r.offset + sizes.iter().product::<i64>();
        let run = r.param.movement(Op::Shrink, [r.offset, end].map(UOp::int));
        Ok(Some(run.movement(Op::Reshape, sizes.into_iter().map(UOp::int))))
    }

    /// The dense region that `u` is, if it is one.
    pub(crate) fn region(&self, u: &UOp) -> Result<Option<Region>, ScheduleError> {
        if self.view(u).is_none() {
            return Ok(None);
        }
        let cut = |x: &UOp| match self.at.get(x) {
            Some(p) => Cut::Stored(p.clone()),
            None => self.cut(x),
        };
        let (loops, idx) = loops_of(u.shape(), 0);
        let mut low = Lowerer::new(&cut, loops.len() as u32);
        low.lower(u, &idx)?;
        let Some(read) = low.reads.pop().filter(|r| r.place.gate.is_none()) else { return Ok(None) };
        let dense = index::flatten(&idx, u.shape());
        let apart = index::add(&read.flat, &index::mul(&dense, &UOp::int(-1)));
        let offset = Lin::of(&apart).map(Lin::build).and_then(|o| o.simplify().as_int());
        Ok(offset.map(|offset| Region { param: read.param, offset, version: read.place.version.clone() }))
    }
}

impl Stored {
    /// The memory that a user's kernel reads, a source each.
    pub(crate) fn sources_of(&self, custom: &UOp) -> Result<Vec<Region>, ScheduleError> {
        let lost = ScheduleError::Malformed { op: Op::Custom, why: "a source has no dense memory of its own" };
        let one = |s: &UOp| self.region(s)?.filter(|r| r.offset == 0).ok_or(lost.clone());
        custom.src().iter().map(one).collect()
    }
}

/// Output loops of an array of this shape, numbered from `first`, and the indices that they define: axes of one element
/// have no loop.
pub(crate) fn loops_of(shape: &[Dim], first: u32) -> (Vec<UOp>, index::Idx) {
    let mut loops = Vec::new();
    let idx = shape
        .iter()
        .map(|d| {
            if d.is(1) {
                return UOp::int(0);
            }
            let r = output_loop(&d.uop(), first + loops.len() as u32);
            loops.push(r.clone());
            r
        })
        .collect();
    (loops, idx)
}

/// Chooses what must be stored: what the user requested and what kernels cannot pass on. Sources are decided before
/// users.
pub(crate) fn required(g: &Graph) -> Result<Stored, ScheduleError> {
    let mut stored = Stored::new();
    for u in g.order.iter().filter(|u| u.op() == Op::Fused) {
        stored.inside.extend(inside(&u.src()[0], &u.src()[1..]));
    }
    for u in &g.order {
        match u.op() {
            Op::Fused => require(g, &mut stored, u)?,
            Op::Contiguous if is_snapshot(u) => stored.insert(g, u),
            Op::Contiguous if stored.region(u)?.is_none() => {
                let base = through(&u.src()[0], &[Op::Reshape]);
                let own = base.op().is_movement() || is_leaf(&base) || g.is_pure(&base);
                stored.insert(g, if own { u } else { &base });
            }
            Op::Copy => {
                if stored.region(&u.src()[0])?.is_none() {
                    stored.insert(g, &u.src()[0]);
                }
                stored.insert(g, u);
            }
            Op::Custom => {
                for s in u.src() {
                    if stored.region(s)?.is_none_or(|r| r.offset != 0) {
                        stored.insert(g, s);
                    }
                }
                stored.insert(g, u);
            }
            Op::Assign => {
                if stored.view(&u.src()[0]).is_none() {
                    stored.insert(g, &through(&u.src()[0], &MOVES));
                }
                if assigned_value_is_hazardous(&stored, u)? {
                    stored.insert(g, &u.src()[1]);
                }
            }
            _ => {}
        }
    }
    for r in &g.roots {
        if stored.view(r).is_none() {
            let base = through(r, &[Op::Reshape, Op::Permute, Op::Flip]);
            let own = base.op().is_movement() || is_leaf(&base);
            stored.insert(g, if own { r } else { &base });
        }
    }
    stored.required = stored.at.keys().cloned().collect();
    Ok(stored)
}

pub(crate) const MOVES: [Op; 5] = [Op::Reshape, Op::Expand, Op::Permute, Op::Flip, Op::Shrink];

/// What `u` is a view of, looking through these ops.
pub(crate) fn through(u: &UOp, ops: &[Op]) -> UOp {
    let mut u = u;
    while ops.contains(&u.op()) {
        u = &u.src()[0];
    }
    u.clone()
}

/// Whether the value of an Assign reads the memory it overwrites anywhere but at the element being written.
fn assigned_value_is_hazardous(stored: &Stored, assign: &UOp) -> Result<bool, ScheduleError> {
    // A reduce that reads the target is another kernel's matter: it is ordered before this one.
    let cut = |u: &UOp| match u.op() {
        Op::Reduce => Cut::Stored(graph_param(u32::MAX, u.dtype(), 0, 0)),
        _ => stored.cut(u),
    };
    let (loops, idx) = loops_of(assign.shape(), 0);
    let mut low = Lowerer::new(&cut, loops.len() as u32);
    low.lower(&assign.src()[0], &idx)?;
    let target = match low.reads.pop() {
        Some(r) if r.place.gate.is_none() => r,
        _ => return Err(ScheduleError::Malformed { op: Op::Assign, why: "the target is not a view of memory" }),
    };
    low.reads.clear();
    low.lower_own(assign, &idx)?;
    Ok(low.reads.iter().any(|r| r.param == target.param && r.flat != target.flat))
}

/// Slot of a graph parameter or of its address in a kernel.
pub(crate) fn slot(param: &UOp) -> u32 {
    match address(param).arg() {
        Arg::Param(slot, _) => *slot,
        _ => 0,
    }
}
