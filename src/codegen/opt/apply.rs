//! Applies opts: each is a substitution of ranges in the kernel graph.
//!
//! If `r` is split by n and n does not divide it, the axis is cut in two: `0..main` gets the new loops, and the
//! remainder gets its own stores (or its own reduction, whose result is added to the main one). A remainder in lanes is
//! one masked vector.

use super::Opt;
use crate::accumulate::identity;
use crate::expand::{Versions, flat_sink};
use crate::scope::first_range;
use crate::{CodegenError, Target, grid};
use doorbell_uop::{Arg, AxisKind, Op, Order, RangeArg, Srcs, UOp, USet, open_numbers};
use smallvec::SmallVec;
use std::cell::RefCell;

/// Why an opt does not apply: the property of the axis, and the limit.
pub(super) type Reason = std::borrow::Cow<'static, str>;

/// A kernel graph with the opts applied so far.
pub(crate) struct OptKernel<'a> {
    pub sink: UOp,
    pub target: &'a Target,
    pub applied: Vec<Opt>,
    /// Axes of the remainders left by splits; opts do not apply to them.
    remainders: USet,
    /// The loop that remains of the axis of the last opt.
    pub(super) remaining_loop: Option<UOp>,
    /// The inner loop that was split from it.
    inner: Option<UOp>,
    /// How many times the useful work a matrix unit does because of padding to its tiles.
    pub(super) waste: f64,
    /// The loops over tiles of rows, columns and reduction steps around the last matrix unit.
    pub(super) tiles: Vec<Option<UOp>>,
    /// The operands of the last matrix unit, updated with what each axis has become since (`None`: an axis became
    /// several expressions, or one with a gate).
    pub(super) operands: Option<super::pipe::Operands>,
    pub(super) history: Vec<(UOp, Option<UOp>)>,
    pub(super) subs: u32,
    /// Cache: the last graph whose axes were computed, and those axes.
    axes: RefCell<Option<(UOp, Vec<UOp>)>>,
}

/// The replacement of an axis.
struct Split {
    /// Value of the old range.
    value: UOp,
    /// Ranges that take its position in the nest, outermost first.
    ranges: Vec<UOp>,
    /// Ranges that go to the outermost and the innermost position.
    outer: Option<UOp>,
    inner: Option<UOp>,
    /// The old loop's body runs only where this holds.
    gate: Option<UOp>,
}

impl<'a> OptKernel<'a> {
    pub(crate) fn new(sink: UOp, target: &'a Target) -> OptKernel<'a> {
        let subs = last_sub(&sink);
        OptKernel {
            sink,
            target,
            applied: vec![],
            remainders: USet::default(),
            remaining_loop: None,
            inner: None,
            waste: 1.0,
            tiles: vec![],
            operands: None,
            history: vec![],
            subs,
            axes: RefCell::new(None),
        }
    }

    /// The axes that opts refer to, by kind from the outside in, then by number.
    pub(crate) fn axes(&self) -> Vec<UOp> {
        let mut last = self.axes.borrow_mut();
        if last.as_ref().is_none_or(|(of, _)| *of != self.sink) {
            *last = Some((self.sink.clone(), crate::axes(&self.sink)));
        }
        let axes = last.iter().flat_map(|(_, axes)| axes);
        axes.filter(|r| !self.remainders.contains(*r)).cloned().collect()
    }

    /// Applies the opt that `make` builds for the number of axis `r`. Returns the loop that remains of the axis, if
    /// any.
    ///
    /// # Errors
    /// As [`OptKernel::apply`].
    pub(crate) fn apply_to(&mut self, r: &UOp, make: impl Fn(usize) -> Opt) -> Result<Option<UOp>, CodegenError> {
        let n = self.axes().iter().position(|a| a == r).unwrap_or(usize::MAX);
        self.remaining_loop = None;
        self.apply(make(n))?;
        Ok(self.remaining_loop.take())
    }

    /// # Errors
    /// The opt does not apply to this kernel or target; the kernel is then unchanged.
    pub(crate) fn apply(&mut self, opt: Opt) -> Result<(), CodegenError> {
        let fail = |why: Reason| CodegenError::Opt { opt, why: why.into() };
        let axes = self.axes();
        let axis = |n: usize| {
            axes.get(n).cloned().ok_or_else(|| fail(format!("no axis {n}, the kernel has {}", axes.len()).into()))
        };
        let (before, steps) = (self.sink.clone(), self.history.len());
        let done = match opt {
            Opt::Upcast { axis: n, amount } => self.copies(&axis(n)?, amount, AxisKind::Upcast),
            Opt::Unroll { axis: n, amount } => self.copies(&axis(n)?, amount, AxisKind::Unroll),
            Opt::Vectorize { axis: n, amount } => self.vectorize(&axis(n)?, amount),
            Opt::Thread { axis: n, amount } => self.thread(&axis(n)?, amount),
            Opt::Local { axis: n, amount } => self.threads_of(&axis(n)?, amount, AxisKind::Local),
            Opt::Group { axis: n, amount } => self.threads_of(&axis(n)?, amount, AxisKind::GroupReduce),
            Opt::PadTo { axis: n, amount } => self.pad_to(&axis(n)?, amount).map(|_| ()),
            Opt::Swap { axis: n, with } => self.swap(&axis(n)?, &axis(with)?),
            Opt::Tile { axis: n, amount } => self.tile(&axis(n)?, amount).map(|_| ()),
            Opt::Stage { param, axis: n } => self.stage(param, &axis(n)?),
            Opt::Bound { axis: n } => self.bound(&axis(n)?),
            Opt::Pipe { axis: n, depth } => self.pipe(&axis(n)?, depth),
            Opt::Tc { choice } => self.tensor_core(choice),
        };
        if let Err(why) = done.and_then(|()| self.launches()) {
            self.sink = before;
            self.history.truncate(steps);
            return Err(fail(why));
        }
        self.applied.push(opt);
        Ok(())
    }

    /// Whether the target can launch the kernel in its current state.
    fn launches(&self) -> Result<(), Reason> {
        if !self.target.has_grid() {
            return Ok(());
        }
        grid::check(&self.sink, self.target).map_err(|e| e.to_string().into())
    }

    pub(super) fn fresh(&mut self, like: &UOp, end: &UOp, kind: AxisKind) -> UOp {
        self.subs += 1;
        let id = like.range_arg().map_or(0, |a| a.id);
        let arg = Arg::Range(RangeArg { id, sub: self.subs, kind });
        UOp::new(Op::Range, like.dtype(), [end.clone()], arg)
    }

    fn copies(&mut self, r: &UOp, amount: usize, kind: AxisKind) -> Result<(), Reason> {
        let from = kind_of(r);
        let reduces = kind == AxisKind::Unroll;
        if reduces && from != AxisKind::Reduce || !reduces && from != AxisKind::Loop {
            return Err("wrong kind of axis".into());
        }
        if !(2..=if reduces { 64 } else { 32 }).contains(&amount) {
            return Err("amount out of bounds".into());
        }
        self.split(r, amount, kind)
    }

    fn vectorize(&mut self, r: &UOp, amount: usize) -> Result<(), Reason> {
        if !matches!(kind_of(r), AxisKind::Loop | AxisKind::Reduce) {
            return Err("wrong kind of axis".into());
        }
        if !(2..=64).contains(&amount) || !amount.is_power_of_two() {
            return Err("lanes are a power of two up to 64".into());
        }
        // A value can have the lanes of only one axis.
        if self.lanes_meet(r) {
            return Err("another axis of the same values is in lanes already".into());
        }
        self.split(r, amount, AxisKind::Vector)
    }

    /// Whether some value depends on both `r` and an axis in lanes.
    fn lanes_meet(&self, r: &UOp) -> bool {
        let order = Order::of(&self.sink);
        let Some(r) = order.number(r).map(|k| k as u32) else { return false };
        let lanes = |x: &u32| kind_of(order.nodes()[*x as usize]) == AxisKind::Vector;
        open_numbers(&order).iter().any(|o| o.contains(&r) && o.iter().any(lanes))
    }

    fn thread(&mut self, r: &UOp, amount: usize) -> Result<(), Reason> {
        if kind_of(r) != AxisKind::Loop {
            return Err("wrong kind of axis".into());
        }
        if self.target.has_grid() || amount < 2 || self.axes().iter().any(|a| kind_of(a) == AxisKind::Thread) {
            return Err("threads are one axis of at least two, on a CPU".into());
        }
        if !self.sink.src().iter().any(|s| s.src().contains(r)) {
            return Err("the axis fills scratch memory, of which each thread has its own".into());
        }
        let end = &r.src()[0];
        let chunk = ceil_div(end, amount as i64);
        let tid = self.fresh(r, &UOp::int(amount as i64), AxisKind::Thread);
        let first = &tid * &chunk;
        let even = end.as_int().is_some_and(|n| n % amount as i64 == 0);
        if !even && chunk.vmax() < 2 {
            return Err("fewer steps than threads".into());
        }
        // What is left from here to the end, clamped to 0..=chunk.
        let len = if even { chunk } else { clamp(&end.binary(Op::Sub, &first), &chunk) };
        let rest = self.fresh(r, &len, AxisKind::Loop);
        let split = Split { value: &first + &rest, ranges: vec![rest], outer: Some(tid), inner: None, gate: None };
        self.sink = Rewrite::new(&self.sink, r, vec![split]).run();
        Ok(())
    }

    /// LOCAL and GROUP: gives `amount` neighbouring steps of an axis to that many threads of a workgroup.
    fn threads_of(&mut self, r: &UOp, amount: usize, kind: AxisKind) -> Result<(), Reason> {
        let Some(limits) = &self.target.grid else { return Err("the target has no workgroups".into()) };
        let (from, of) =
            if kind == AxisKind::Local { (AxisKind::Loop, "the output") } else { (AxisKind::Reduce, "a reduction") };
        if kind_of(r) != from {
            return Err(format!("axis of size {} is {:?}, not a loop of {of}", size(r), kind_of(r)).into());
        }
        if amount < 2 || amount > limits.max_workgroup as usize {
            return Err(format!("a workgroup has 2 to {} threads", limits.max_workgroup).into());
        }
        if r.src()[0].as_int().is_none_or(|n| n % amount as i64 != 0) {
            return Err(format!("axis of size {} is no multiple of {amount} (PADTO makes it one)", size(r)).into());
        }
        if grid::reads_what_it_stores(&self.sink) {
            return Err("the kernel reads what other loops of it store".into());
        }
        let counts = |u: &UOp| u.op() == Op::Reduce && u.dtype().scalar.is_weak() && u.src().contains(r);
        if kind == AxisKind::GroupReduce && self.sink.any(counts) {
            return Err("the reduction is one of indices".into());
        }
        self.split(r, amount, kind)
    }

    /// Tiles the axis and returns the inner loop.
    pub(super) fn tile(&mut self, r: &UOp, amount: usize) -> Result<UOp, Reason> {
        let kind = kind_of(r);
        if !matches!(kind, AxisKind::Loop | AxisKind::Reduce) || amount < 2 {
            return Err("needs a loop and an amount of at least two".into());
        }
        self.split(r, amount, kind)?;
        self.inner.clone().ok_or_else(|| "the axis is shorter than the tile".into())
    }

    /// Pads the axis and returns the longer one.
    pub(super) fn pad_to(&mut self, r: &UOp, amount: usize) -> Result<UOp, Reason> {
        let Some(n) = r.src()[0].as_int() else { return Err("the axis has no fixed size".into()) };
        let a = amount as i64;
        if amount < 2 || n % a == 0 || (n + a - 1) / a * a > 4 * n {
            return Err("nothing to pad, or more than four times the work".into());
        }
        let padded = self.fresh(r, &UOp::int((n + a - 1) / a * a), kind_of(r));
        let gate = padded.lt(&UOp::int(n));
        let split =
            Split { value: padded.clone(), ranges: vec![padded.clone()], outer: None, inner: None, gate: Some(gate) };
        self.sink = Rewrite::new(&self.sink, r, vec![split]).run();
        self.history.push((r.clone(), None));
        self.remaining_loop = Some(padded.clone());
        Ok(padded)
    }

    fn swap(&mut self, a: &UOp, b: &UOp) -> Result<(), Reason> {
        if a == b || kind_of(a) != kind_of(b) {
            return Err("needs two axes of one kind".into());
        }
        self.sink = self.sink.rebuild(|done, u| {
            let first = first_range(u.op()).unwrap_or(usize::MAX);
            let other = |s: &UOp| {
                if s == a {
                    b.clone()
                } else if s == b {
                    a.clone()
                } else {
                    s.clone()
                }
            };
            if !u.src().get(first..).is_some_and(|rs| rs.contains(a) && rs.contains(b)) {
                return done.same();
            }
            let src = u.src().iter().enumerate();
            u.with_src(src.map(|(k, s)| if k >= first { other(s) } else { done.src(k).clone() }).collect::<Srcs>())
        });
        Ok(())
    }

    fn bound(&mut self, r: &UOp) -> Result<(), Reason> {
        if self.target.has_grid() || kind_of(r) != AxisKind::Reduce {
            return Err("needs a loop of a reduction, on a CPU".into());
        }
        self.sink = super::bound::bound(&self.sink, r, self.subs)?;
        self.subs = last_sub(&self.sink);
        Ok(())
    }

    fn stage(&mut self, param: usize, axis: &UOp) -> Result<(), Reason> {
        if self.target.has_grid() {
            if kind_of(axis) != AxisKind::Reduce {
                return Err("needs a loop of a reduction, of which each round reads a tile".into());
            }
            self.sink = super::stage::cooperate(&self.sink, param, axis)?;
        } else if kind_of(axis) != AxisKind::Loop {
            return Err("needs a loop of the output".into());
        } else {
            self.sink = super::stage::stage(&self.sink, param, axis, self.target.local_bytes)?;
        }
        self.subs = last_sub(&self.sink);
        Ok(())
    }

    /// Splits `r` into outer × amount; the new inner range has kind `kind`. A remainder becomes a separate part.
    fn split(&mut self, r: &UOp, amount: usize, kind: AxisKind) -> Result<(), Reason> {
        if self.sink.any(|u| u.op() == Op::Range && u != r && u.contains(r)) {
            return Err("the bounds of another loop depend on it".into());
        }
        let (end, a, old) = (r.src()[0].clone(), amount as i64, kind_of(r));
        let lanes = kind == AxisKind::Vector;
        let tiled = kind == old;
        let mut parts = vec![];
        (self.inner, self.remaining_loop) = (None, None);
        let whole = floor_div(&end, a);
        if end.as_int().is_none() && whole.vmax() < 2 {
            return Err("the axis may be too short".into());
        }
        if whole.vmax() > 0 {
            let inner = self.fresh(r, &UOp::int(a), kind);
            let outer = (whole.as_int() != Some(1)).then(|| self.fresh(r, &whole, old));
            self.remaining_loop = outer.clone();
            self.inner = Some(inner.clone());
            let value = outer.as_ref().map_or(inner.clone(), |o| &(o * a) + &inner);
            let (ranges, inner) = match (outer, tiled) {
                (Some(o), true) => (vec![o], Some(inner)),
                (Some(o), false) => (vec![o, inner], None),
                (None, _) => (vec![inner], None),
            };
            parts.push(Split { value, ranges, outer: None, inner, gate: None });
        }
        let left = match end.as_int() {
            Some(n) => UOp::int(n % a),
            None => end.floormod(&UOp::int(a)),
        };
        if left.vmax() > 0 {
            let first = match end.as_int() {
                Some(n) => UOp::int(n / a * a),
                None => &whole * a,
            };
            // A remainder of unknown size may be empty: it becomes one whole masked step, with a gate that allows the
            // first `left` elements.
            let masked = left.as_int() != Some(1) && (lanes || left.as_int().is_none());
            let copied = !tiled && !lanes && !masked;
            let kind = if copied || lanes && masked { kind } else { old };
            let t = self.fresh(r, &if masked { UOp::int(a) } else { left.clone() }, kind);
            self.remainders.insert(t.clone());
            let gate = masked.then(|| t.lt(&left));
            parts.push(Split { value: &first + &t, ranges: vec![t], outer: None, inner: None, gate });
        }
        if parts.is_empty() {
            return Err("the axis is empty".into());
        }
        let whole = if let [p] = parts.as_slice() { Some(p).filter(|p| p.gate.is_none()) } else { None };
        self.history.push((r.clone(), whole.map(|p| p.value.clone())));
        self.sink = Rewrite::new(&self.sink, r, parts).run();
        Ok(())
    }
}

pub(crate) fn kind_of(r: &UOp) -> AxisKind {
    r.range_arg().map_or(AxisKind::Loop, |a| a.kind)
}

fn size(r: &UOp) -> i128 {
    r.vmax() + 1
}

/// The largest sub-number of the axes' ranges.
fn last_sub(sink: &UOp) -> u32 {
    Order::of(sink).nodes().iter().filter_map(|u| u.range_arg()).map(|a| a.sub).max().unwrap_or(0)
}

fn floor_div(n: &UOp, d: i64) -> UOp {
    match n.as_int() {
        Some(n) => UOp::int(n / d),
        None => n.floordiv(&UOp::int(d)),
    }
}

fn ceil_div(n: &UOp, d: i64) -> UOp {
    match n.as_int() {
        Some(n) => UOp::int((n + d - 1) / d),
        None => (n + (d - 1)).floordiv(&UOp::int(d)),
    }
}

/// `x` clamped to 0..=top. The minimum is written as -max(-a, -b), whose bounds are exact.
fn clamp(x: &UOp, top: &UOp) -> UOp {
    -&(-&x.max(&UOp::int(0))).max(&-top)
}

/// One pass over the graph that replaces range `r` as `parts` say: a Store that closes `r` becomes one Store for each
/// part; a Reduce becomes one Reduce for each part, and their results are combined.
struct Rewrite<'a> {
    root: &'a UOp,
    r: &'a UOp,
    parts: Vec<Split>,
}

impl<'a> Rewrite<'a> {
    fn new(root: &'a UOp, r: &'a UOp, parts: Vec<Split>) -> Rewrite<'a> {
        Rewrite { root, r, parts }
    }

    fn run(&self) -> UOp {
        let order = Order::of(self.root);
        // Nodes in which `r` is open get one version for each part; all others have one version.
        let mut all = Versions::new(&order);
        let mut open = vec![false; order.len()];
        for (at, u) in order.nodes().iter().enumerate() {
            if *u == self.r {
                open[at] = true;
                all.push(self.parts.iter().map(|p| p.value.clone()), true);
                continue;
            }
            let first = first_range(u.op()).unwrap_or(usize::MAX);
            let closes = u.src().get(first..).is_some_and(|rs| rs.contains(self.r));
            open[at] = !closes && order.srcs(at).iter().any(|s| open[*s as usize]);
            if open[at] {
                let versions: SmallVec<[UOp; 2]> =
                    (0..self.parts.len()).map(|k| self.masked(u, all.srcs(at, k), k)).collect();
                all.push(versions, true);
            } else if closes {
                let new = self.closed(u, &all, at, first);
                all.push([new], false);
            } else if matches!(u.op(), Op::Sink | Op::After | Op::Commit) {
                let new = flat_sink(u, all.srcs(at, 0).into_iter());
                all.push([new], false);
            } else {
                let new = all.same(at, 0);
                all.push([new], false);
            }
        }
        all.root().unwrap_or_else(|| self.root.clone())
    }

    /// The replacement of a Store or Reduce that closes `r` (node `at`).
    fn closed(&self, u: &UOp, all: &Versions, at: usize, first: usize) -> UOp {
        let parts = (0..self.parts.len()).map(|k| self.close(u, all.srcs(at, k), first, k));
        match u.op() {
            Op::Reduce => {
                parts.reduce(|a, b| a.binary(u.reduce_op().unwrap_or(Op::Add), &b)).unwrap_or_else(|| u.clone())
            }
            _ => UOp::sink(parts),
        }
    }

    /// A node in part `k`: loads get the part's gate.
    fn masked(&self, u: &UOp, src: Srcs, k: usize) -> UOp {
        let effects = matches!(u.op(), Op::After | Op::Commit);
        let new = if effects { flat_sink(u, src.into_iter()) } else { u.with_src(src) };
        match &self.parts[k].gate {
            Some(g) if u.op() == Op::Load => gate_load(&new, g),
            _ => new,
        }
    }

    /// A Store or Reduce that closes `r`, for part `k`.
    fn close(&self, u: &UOp, mut src: Srcs, first: usize, k: usize) -> UOp {
        let part = &self.parts[k];
        let mut ranges: Vec<UOp> = part.outer.iter().cloned().collect();
        for r in &u.src()[first..] {
            if r == self.r {
                ranges.extend(part.ranges.iter().cloned());
            } else {
                ranges.push(r.clone());
            }
        }
        ranges.extend(part.inner.iter().cloned());
        src.truncate(first);
        if let Some(g) = &part.gate {
            if u.op() == Op::Store {
                src[0] = gate_index(&src[0], g);
            } else if let Some(op) = u.reduce_op() {
                src[0] = g.select(&src[0], &identity(op, src[0].dtype()));
            }
        }
        src.extend(ranges);
        u.with_src(src)
    }
}

pub(crate) fn gate_index(index: &UOp, gate: &UOp) -> UOp {
    let both = index.src().get(2).map_or(gate.clone(), |g| g.and(gate));
    index.src()[0].index_gated(&index.src()[1], &both)
}

pub(super) fn gate_load(load: &UOp, gate: &UOp) -> UOp {
    let alt = load.src().get(1).cloned().unwrap_or_else(|| load.const_like(0));
    gate_index(&load.src()[0], gate).load_or(&alt)
}
