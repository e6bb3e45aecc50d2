//! The launch of a GPU kernel: output loops become workgroups, LOCAL and GROUP axes become threads of a workgroup.
//!
//! Ranges that are never open together share an axis of the launch: the threads that split a row's sum are the ones that then
//! store the row. A range shorter than its axis is counted modulo its size by the threads beyond it, and they store nothing; a
//! store that an axis does not move is done where that axis is 0. So every thread takes the same way through the loops, and a
//! barrier is reached by all of them.

use super::group::Group;
use super::opt::kind_of;
use super::scope::first_range;
use super::target::Target;
use super::{CodegenError, accumulate};
use doorbell_uop::{AddrSpace, Arg, AxisKind, DType, Op, RangeArg, Srcs, UMap, UOp, USet};

/// The kernel with its output loops as Global axes; on targets without a grid the kernel as it is.
pub(super) fn with_global_axes(sink: &UOp, target: &Target) -> UOp {
    if !target.has_grid() {
        return sink.clone();
    }
    let stores: Vec<&UOp> = sink.src().iter().filter(|s| s.op() == Op::Store).collect();
    let mut loops: Vec<UOp> = vec![];
    for r in stores.iter().flat_map(|s| &s.src()[2..]) {
        // Threads have no step 0 to fall back to in a loop that may have none.
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

/// Steps of a reduction that each workgroup may repeat.
const REPEATED: i128 = 64;

/// The loops of which each step uses a reduction that does not depend on them: as workgroups they would all compute it again.
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

/// Whether a buffer is both read and stored to, and not all stores stand in the same loops: then threads must not share the work
/// of a store, or one would read what another has stored already.
pub(super) fn reads_what_it_stores(sink: &UOp) -> bool {
    let stores = sink.src().iter().filter(|s| s.op() == Op::Store);
    let written: USet = stores.clone().map(|s| s.src()[0].src()[0].clone()).collect();
    let nests: Vec<&[UOp]> = stores.map(|s| &s.src()[2..]).collect();
    let alike = nests.windows(2).all(|w| w[0].len() == w[1].len() && w[0].iter().all(|r| w[1].contains(r)));
    !alike && sink.any(|u| u.op() == Op::Load && written.contains(&u.src()[0].src()[0]))
}

/// The kernel with every launched range as an expression of the hardware's indices, and shared reductions going through
/// workgroup memory.
///
/// # Errors
/// A launch or workgroup memory beyond the target's limits.
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

/// Whether the workgroup that the opts so far ask for is one that the target can launch.
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

/// Row-major number of the point `ranges` in a box of these sizes.
pub(super) fn position(ranges: &[UOp], sizes: &[i64]) -> UOp {
    let step = |sum: Option<UOp>, (r, n): (&UOp, &i64)| Some(sum.map_or_else(|| r.clone(), |s| &(&s * *n) + r));
    ranges.iter().zip(sizes).fold(None, step).unwrap_or_else(|| UOp::int(0))
}

// --- reductions that threads share ---

/// A kernel whose threads share reductions, and the groups of which waves reduce their part by themselves.
struct Shared {
    sink: UOp,
    groups: Vec<UOp>,
}

impl Shared {
    /// Whether neighbouring steps of each such group are neighbouring threads, as waves count them.
    fn waves_fit(&self) -> bool {
        if self.groups.is_empty() {
            return true;
        }
        let axes = axes(&self.sink, is_local);
        let fastest = |g: &UOp| axes.first().is_some_and(|a| a.ranges.contains(g) && a.size % size(g) == 0);
        self.groups.iter().all(fastest)
    }
}

/// A Reduce over GroupReduce ranges: each thread reduces its part, each wave its threads', then all take the total of what the waves
/// have left in workgroup memory (see `group`). `wave` 1: nothing goes from thread to thread but through memory.
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

/// A number that no scratch area of the kernel has.
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

/// The axes that ranges of these kinds need, the fastest (that of the last range) first.
fn axes(sink: &UOp, wanted: impl Fn(AxisKind) -> bool) -> Vec<Axis> {
    let mut ranges = super::axes(sink);
    ranges.retain(|r| wanted(kind_of(r)));
    let meet = meetings(sink, &ranges);
    let mut axes: Vec<Axis> = vec![];
    for r in ranges.iter().rev() {
        let n = size(r);
        // The lanes of a wave stand on an axis of their own length.
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

/// Pairs of `ranges` that some node needs at once.
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

/// The value of each axis from the hardware's (at most three) indices.
fn hardware(name: &str, axes: &[Axis], limits: [u32; 3]) -> Result<Vec<UOp>, CodegenError> {
    // Neighbours share an index while there are too many of them, or one goes beyond what the hardware counts.
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
                // Every workgroup has a memory of its own.
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

/// The value of a range of `end` steps on an axis of `size`: always one of its steps.
fn bounded(value: &UOp, end: &UOp, size: i64) -> UOp {
    match end.as_int() {
        Some(n) if n == size => value.clone(),
        Some(n) => value.floormod(&UOp::int(n)),
        // The smaller of both as -max(-a, -b), whose bounds are exact.
        None => -&(-value).max(&(&UOp::int(1) - end)),
    }
}

/// Where on an axis a store with these ranges is done; `None`: everywhere.
fn gate(axis: &Axis, value: &UOp, ranges: &[UOp], done: &UMap<UOp>) -> Option<UOp> {
    match ranges.iter().find(|r| axis.ranges.contains(r)) {
        None => Some(value.lt(&UOp::int(1))),
        Some(r) if r.src()[0].as_int() == Some(axis.size) => None,
        // PANIC: sources are rewritten before their users.
        Some(r) => Some(value.lt(&done[&r.src()[0]])),
    }
}
