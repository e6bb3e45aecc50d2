//! The launch geometry of a GPU kernel: output loops become workgroups, LOCAL and GROUP axes become threads of a
//! workgroup.
//!
//! Ranges that are never open at the same time share an axis of the launch: the threads that split the reduction of a
//! row also store that row afterwards. If a range is shorter than its axis, the threads beyond its end compute with the
//! index modulo the range's size, and their stores are gated off. A store that does not depend on an axis is done only
//! where that axis is 0. Thus all threads take the same path through the loops, and all of them reach every barrier.

use super::group::Group;
use super::opt::kind_of;
use super::scope::first_range;
use super::target::Target;
use super::{CodegenError, accumulate};
use doorbell_uop::{AddrSpace, Arg, AxisKind, DType, Op, RangeArg, Srcs, UMap, UOp, USet};

/// The kernel with its output loops as Global axes. On targets without a grid the kernel is unchanged.
pub(super) fn with_global_axes(sink: &UOp, target: &Target) -> UOp {
    if !target.has_grid() {
        return sink.clone();
    }
    let stores: Vec<&UOp> = sink.src().iter().filter(|s| s.op() == Op::Store).collect();
    let mut loops: Vec<UOp> = vec![];
    for r in stores.iter().flat_map(|s| &s.src()[2..]) {
        // A loop that may have no iterations cannot become an axis: threads beyond its end would have no valid index to
        // compute with.
        if kind_of(r) == AxisKind::Loop && r.src()[0].vmin() > 0 && !loops.contains(r) {
            loops.push(r.clone());
        }
    }
    let repeated = repeated_by(sink, &loops);
    loops.retain(|r| !repeated.contains(r));
    if reads_what_it_stores(sink) {
        loops.retain(|r| stores.iter().all(|s| s.src().contains(r)));
    }
    let global = |r: &UOp| {
        let arg = r.range_arg().map(|a| Arg::Range(RangeArg { kind: AxisKind::Global, ..a }));
        arg.map_or_else(|| r.clone(), |a| r.with_arg(a))
    };
    let map: UMap<UOp> = loops.into_iter().map(|r| (r.clone(), global(&r))).collect();
    sink.substitute(&map)
}

/// Up to this many reduction steps may be recomputed by each workgroup.
const REPEATED: i128 = 64;

/// The loops in which every iteration uses a reduction that does not depend on the loop. If such loops became
/// workgroups, each workgroup would compute that reduction again.
fn repeated_by(sink: &UOp, loops: &[UOp]) -> Vec<UOp> {
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let long = |u: &UOp| {
        u.op() == Op::Reduce && u.src()[1..].iter().map(|r| r.vmax() + 1).fold(1, i128::saturating_mul) > REPEATED
    };
    let mut repeated = vec![];
    for store in sink.src().iter().filter(|s| s.op() == Op::Store) {
        for u in store.toposort().iter().filter(|u| long(u)) {
            repeated.extend(store.src()[2..].iter().filter(|r| loops.contains(r) && !open[u].contains(r)).cloned());
        }
    }
    repeated
}

/// Whether a buffer is both read and stored to, and not all stores are in the same loops. Then threads must not share
/// the work of a store, because one could read what another has already overwritten.
pub(super) fn reads_what_it_stores(sink: &UOp) -> bool {
    let stores = sink.src().iter().filter(|s| s.op() == Op::Store);
    let written: USet = stores.clone().map(|s| s.src()[0].src()[0].clone()).collect();
    let nests: Vec<&[UOp]> = stores.map(|s| &s.src()[2..]).collect();
    let alike = nests.windows(2).all(|w| w[0].len() == w[1].len() && w[0].iter().all(|r| w[1].contains(r)));
    !alike && sink.any(|u| u.op() == Op::Load && written.contains(&u.src()[0].src()[0]))
}

/// The kernel with every launched range as an expression of the hardware's indices, and with shared reductions going
/// through workgroup memory.
///
/// # Errors
/// The launch or the workgroup memory exceeds the target's limits.
pub(super) fn launch(sink: &UOp, target: &Target) -> Result<UOp, CodegenError> {
    let Some(limits) = &target.grid else { return Ok(sink.clone()) };
    let wide = accumulate::widen(sink, target);
    let shared = share_reductions(&wide, limits.wave.into());
    let in_waves = shared.waves_fit();
    let sink = if in_waves { shared.sink } else { share_reductions(&wide, 1).sink };
    let bytes: usize = sink.toposort().iter().map(area_bytes).sum();
    if bytes > target.local_bytes {
        return Err(CodegenError::Launch(format!(
            "{bytes} bytes of workgroup memory, the target has {}",
            target.local_bytes
        )));
    }
    let global = axes(&sink, |k| k == AxisKind::Global);
    let local = axes(&sink, is_local);
    let threads: i64 = local.iter().map(|a| a.size).product();
    if threads > limits.max_workgroup as i64 {
        return Err(CodegenError::Launch(format!(
            "{threads} threads in a workgroup, the target has at most {}",
            limits.max_workgroup
        )));
    }
    let globals = hardware("gidx", &global, limits.max_global)?;
    let locals = hardware("lidx", &local, limits.max_local)?;
    Ok(Placement { global, local, globals, locals }.apply(&sink))
}

/// Checks that the target can launch the workgroup that the opts so far require.
///
/// # Errors
/// As [`launch`].
pub(super) fn check(sink: &UOp, target: &Target) -> Result<(), CodegenError> {
    launch(&with_global_axes(sink, target), target).map(|_| ())
}

/// One range for each axis of a workgroup's threads, the fastest axis first.
pub(super) fn workgroup(sink: &UOp) -> Vec<UOp> {
    let longest = |a: Axis| a.ranges.into_iter().find(|r| size(r) == a.size);
    axes(sink, is_local).into_iter().filter_map(longest).collect()
}

pub(super) fn is_local(k: AxisKind) -> bool {
    matches!(k, AxisKind::Local | AxisKind::GroupReduce | AxisKind::Warp)
}

pub(super) fn area_bytes(u: &UOp) -> usize {
    match u.arg() {
        Arg::Local(_, len) => (len * u.dtype().scalar.size_bytes()).next_multiple_of(64),
        _ => 0,
    }
}

/// Row-major index of the point `ranges` in an array of these sizes.
pub(super) fn position(ranges: &[UOp], sizes: &[i64]) -> UOp {
    let step = |sum: Option<UOp>, (r, n): (&UOp, &i64)| Some(sum.map_or_else(|| r.clone(), |s| &(&s * *n) + r));
    ranges.iter().zip(sizes).fold(None, step).unwrap_or_else(|| UOp::int(0))
}

// --- reductions that threads share ---

/// A kernel whose threads share reductions, and the GROUP ranges whose parts are reduced within waves.
struct Shared {
    sink: UOp,
    groups: Vec<UOp>,
}

impl Shared {
    /// Whether neighbouring steps of each such range are neighbouring threads in the order in which waves number them.
    fn waves_fit(&self) -> bool {
        if self.groups.is_empty() {
            return true;
        }
        let axes = axes(&self.sink, is_local);
        let fastest = |g: &UOp| axes.first().is_some_and(|a| a.ranges.contains(g) && a.size % size(g) == 0);
        self.groups.iter().all(fastest)
    }
}

/// Rewrites each Reduce over GroupReduce ranges: each thread reduces its part, each wave reduces the results of its
/// threads, then all threads reduce the waves' results from workgroup memory (see `group`). With `wave` 1, values pass
/// between threads only through memory.
fn share_reductions(sink: &UOp, wave: i64) -> Shared {
    let order = sink.toposort();
    let shared = |u: &UOp| u.op() == Op::Reduce && u.src()[1..].iter().any(|r| kind_of(r) == AxisKind::GroupReduce);
    let mut groups = vec![];
    if !order.iter().any(shared) {
        return Shared { sink: sink.clone(), groups };
    }
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let mut areas = next_area(&order);
    let mut subs = order.iter().filter_map(UOp::range_arg).map(|a| a.sub).max().unwrap_or(0);
    let mut done: UMap<UOp> = UMap::default();
    for u in &order {
        // PANIC: toposort lists sources first.
        let new = u.with_src(u.src().iter().map(|s| done[s].clone()).collect::<Srcs>());
        let new = if shared(u) {
            areas += 1;
            let mut group = Group { wave, open: &open[u], area: areas - 1, subs: &mut subs };
            group.total(&new, &mut groups)
        } else {
            new
        };
        done.insert(u.clone(), new);
    }
    Shared { sink: done.remove(sink).unwrap_or_else(|| sink.clone()), groups }
}

/// The lowest number above those of the kernel's scratch areas.
pub(super) fn next_area(order: &[UOp]) -> u32 {
    let number = |u: &UOp| if let Arg::Local(n, _) = u.arg() { Some(*n + 1) } else { None };
    order.iter().filter_map(number).max().unwrap_or(0)
}

// --- axes of the launch ---

pub(super) fn size(r: &UOp) -> i64 {
    (r.vmax() + 1) as i64
}

/// One axis: ranges of which no two are open together.
struct Axis {
    ranges: Vec<UOp>,
    size: i64,
}

/// The launch axes that ranges of these kinds need, the fastest (that of the last range) first.
fn axes(sink: &UOp, wanted: impl Fn(AxisKind) -> bool) -> Vec<Axis> {
    let mut ranges = super::axes(sink);
    ranges.retain(|r| wanted(kind_of(r)));
    let meet = meetings(sink, &ranges);
    let mut axes: Vec<Axis> = vec![];
    for r in ranges.iter().rev() {
        let n = size(r);
        // The lanes of a wave are on an axis of exactly their number.
        let alike = |a: &Axis| a.size == n || ![r, &a.ranges[0]].iter().any(|x| kind_of(x) == AxisKind::Warp);
        let fits = axes.iter_mut().filter(|a| alike(a) && !a.ranges.iter().any(|x| meet.contains(&pair(x, r))));
        match fits.min_by_key(|a| (a.size - n).abs()) {
            Some(a) => {
                a.ranges.push(r.clone());
                a.size = a.size.max(n);
            }
            None => axes.push(Axis { ranges: vec![r.clone()], size: n }),
        }
    }
    axes
}

type Pairs = std::collections::HashSet<(u64, u64)>;

fn pair(a: &UOp, b: &UOp) -> (u64, u64) {
    (a.id().min(b.id()), a.id().max(b.id()))
}

/// Pairs of `ranges` that are open at the same time in some node.
fn meetings(sink: &UOp, ranges: &[UOp]) -> Pairs {
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let mut meet = Pairs::new();
    for u in sink.toposort() {
        let mut here: Vec<&UOp> = u.src().iter().flat_map(|s| &open[s]).filter(|r| ranges.contains(r)).collect();
        here.dedup();
        for (k, a) in here.iter().enumerate() {
            meet.extend(here[k + 1..].iter().filter(|b| *b != a).map(|b| pair(a, b)));
        }
    }
    meet
}

/// The value of each axis, computed from the hardware's (at most three) indices.
fn hardware(name: &str, axes: &[Axis], limits: [u32; 3]) -> Result<Vec<UOp>, CodegenError> {
    // Fold neighbouring axes into one hardware index while there are too many axes, or while one exceeds the hardware's
    // limit.
    let mut packs: Vec<Vec<usize>> = (0..axes.len()).map(|k| vec![k]).collect();
    let total = |p: &[usize]| p.iter().map(|k| axes[*k].size).product::<i64>();
    while packs.len() > 3 {
        let k =
            (0..packs.len() - 1).min_by_key(|k| total(&packs[*k]).saturating_mul(total(&packs[k + 1]))).unwrap_or(0);
        let next = packs.remove(k + 1);
        packs[k].extend(next);
    }
    let fits = |packs: &[Vec<usize>]| packs.iter().zip(limits).all(|(p, most)| total(p) <= most as i64);
    if !fits(&packs) {
        packs = vec![packs.concat()];
    }
    if !fits(&packs) {
        let n = total(&packs[0]);
        return Err(CodegenError::Launch(format!("{n} along {name}0, the target has at most {}", limits[0])));
    }
    let mut values = vec![UOp::int(0); axes.len()];
    for (d, pack) in packs.iter().enumerate() {
        let index = UOp::new(Op::Special, DType::INDEX, [UOp::int(total(pack))], Arg::Str(format!("{name}{d}").into()));
        let mut rest = index;
        for (j, k) in pack.iter().enumerate() {
            let last = j + 1 == pack.len();
            let n = UOp::int(axes[*k].size);
            values[*k] = if last { rest.clone() } else { rest.floormod(&n) };
            rest = rest.floordiv(&n);
        }
    }
    Ok(values)
}

struct Placement {
    global: Vec<Axis>,
    local: Vec<Axis>,
    globals: Vec<UOp>,
    locals: Vec<UOp>,
}

impl Placement {
    fn apply(&self, sink: &UOp) -> UOp {
        let axes = || self.global.iter().zip(&self.globals).chain(self.local.iter().zip(&self.locals));
        let launched: UMap<(&Axis, &UOp)> =
            axes().flat_map(|(a, v)| a.ranges.iter().map(move |r| (r.clone(), (a, v)))).collect();
        let mut done: UMap<UOp> = UMap::default();
        for u in sink.toposort() {
            // PANIC: toposort lists sources first.
            let mut src: Srcs = u.src().iter().map(|s| done[s].clone()).collect();
            if let Some((axis, value)) = launched.get(&u) {
                let v = bounded(value, &src[0], axis.size);
                done.insert(u, v);
                continue;
            }
            if let Some(first) = first_range(u.op()) {
                let keep = |k: usize| k < first || !launched.contains_key(&u.src()[k]);
                src = src.into_iter().enumerate().filter(|(k, _)| keep(*k)).map(|(_, s)| s).collect();
            }
            if u.op() == Op::Store {
                let shared = u.src()[0].dtype().space == Some(AddrSpace::Local);
                // Workgroup memory is not shared between workgroups, so global axes do not move its index.
                let moved = axes().skip(if shared { self.global.len() } else { 0 });
                for gate in moved.filter_map(|(a, v)| gate(a, v, &u.src()[2..], &done)) {
                    src[0] = super::opt::gate_index(&src[0], &gate);
                }
            }
            let new = u.with_src(src);
            done.insert(u, new);
        }
        done.remove(sink).unwrap_or_else(|| sink.clone())
    }
}

/// The value of a range of `end` steps on an axis of `size`, always within the range.
fn bounded(value: &UOp, end: &UOp, size: i64) -> UOp {
    match end.as_int() {
        Some(n) if n == size => value.clone(),
        Some(n) => value.floormod(&UOp::int(n)),
        // The minimum of both as -max(-a, -b), whose bounds are exact.
        None => -&(-value).max(&(&UOp::int(1) - end)),
    }
}

/// The condition on an axis under which a store with these ranges is done; `None`: always.
fn gate(axis: &Axis, value: &UOp, ranges: &[UOp], done: &UMap<UOp>) -> Option<UOp> {
    match ranges.iter().find(|r| axis.ranges.contains(r)) {
        None => Some(value.lt(&UOp::int(1))),
        Some(r) if r.src()[0].as_int() == Some(axis.size) => None,
        // PANIC: sources are rewritten before their users.
        Some(r) => Some(value.lt(&done[&r.src()[0]])),
    }
}
