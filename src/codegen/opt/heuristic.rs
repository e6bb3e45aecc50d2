//! The heuristics that choose opts for a CPU kernel: vector lanes first, then register tiles or independent dependency
//! chains, unrolling of small loops, and threads last.
//!
//! Lanes go along the axis on which most accesses move by one element. If a reduction reads something again in each
//! iteration of an output axis, a tile of outputs is held in registers. Everything else gets enough independent chains
//! to hide latency.

use super::analysis::{KernelAnalysis, Move, Site, is_free, size};
use super::panel::{packed_lanes, under_conditions};
use super::{Opt, OptKernel, kind_of};
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, Op, UOp};

/// Limit on the instructions of one loop body after unrolling.
const BODY: usize = 256;
/// The same for long loops, of which only a few steps are unrolled.
const STEPS: usize = 128;
/// Cycles on one core (about 50 us) below which spreading a kernel over threads costs more than it gains.
const WORTH_THREADS: f64 = 150_000.0;
/// Rows at a multiple of this distance map to few sets of the first-level cache.
const CROWDED: i64 = 2048;
/// Maximum number of rows of a tile in which all conditions of a window's reduction are decided by unrolling.
const WHOLE: i64 = 24;
/// Chunks for each thread, so that uneven chunks balance out.
const CHUNKS: u32 = 4;

/// Applies the opts that suit the kernel. Opts that do not apply are skipped.
pub(crate) fn choose(kernel: &mut OptKernel) {
    if kernel.target.has_grid() {
        super::gpu::choose(kernel);
        return;
    }
    if matrix_unit(kernel) {
        return;
    }
    conditions_outside(kernel);
    let mut analysis = KernelAnalysis::of(&kernel.sink);
    let cycles = work(&analysis, kernel);
    let mut order: Vec<usize> = (0..analysis.sites.len()).collect();
    // The heaviest loop nests choose first; a reduction chooses before the store of its result.
    sort::by(&mut order, |a, b| analysis.sites[*b].trips().total_cmp(&analysis.sites[*a].trips()));
    let mut threads = thread_axis(&analysis);
    let mut taken: Vec<UOp> = vec![];
    let mut remains: Vec<(UOp, Option<UOp>)> = vec![];
    for k in order {
        let packed = packed_lanes(&mut analysis, k, kernel.target, &taken);
        let is_packed = packed.is_some();
        let lanes = packed.or_else(|| best_lanes(&mut analysis, k, kernel, &taken));
        let plan = plan(&mut analysis, (k, is_packed), lanes.clone(), kernel);
        let mut mine: Vec<UOp> = vec![];
        for (r, what, amount) in plan {
            // An axis belongs to the first loop nest that changed it.
            if taken.contains(&r) && !mine.contains(&r) {
                continue;
            }
            let now = current(&remains, &r);
            let Some(now) = now else { continue };
            let made = kernel.apply_to(&now, |axis| match what {
                AxisKind::Vector => Opt::Vectorize { axis, amount },
                AxisKind::Unroll => Opt::Unroll { axis, amount },
                _ => Opt::Upcast { axis, amount },
            });
            if let Ok(left) = made {
                remains.retain(|(x, _)| x != &r);
                remains.push((r.clone(), left));
                taken.push(r.clone());
                mine.push(r);
            }
        }
        let columns = lanes.map(|(v, _)| v).filter(|v| mine.contains(v));
        let staged = columns.and_then(|v| stage_panels(&mut analysis, (k, is_packed), &v, kernel, &remains));
        threads = match staged {
            Some(panel) => panel.threads(&analysis.sites[k], threads, kernel),
            None => large_outside(&analysis, k, kernel, &remains).or(threads),
        };
    }
    let sums: Vec<UOp> = kernel.axes().into_iter().filter(|r| kind_of(r) == AxisKind::Reduce).collect();
    for r in sums {
        let _ = kernel.apply_to(&r, |axis| Opt::Bound { axis });
    }
    if let Some(r) = threads {
        let chunks = (kernel.target.threads * CHUNKS) as i64;
        let left = current(&remains, &r);
        if let Some(r) = left
            && kernel.target.threads > 1
            && cycles > WORTH_THREADS
        {
            let fits = [chunks, chunks / 2, kernel.target.threads as i64].into_iter().find(|c| size(&r) >= *c);
            let amount = fits.unwrap_or(size(&r)) as usize;
            let _ = kernel.apply_to(&r, |axis| Opt::Thread { axis, amount });
        }
    }
}

/// Moves the reduction loops that the conditions depend on outside the other reduction loops, so that a window's edges
/// are checked once for all channels. A window has few positions. If the conditions depend on many steps, those are
/// rows along which memory should be walked.
fn conditions_outside(kernel: &mut OptKernel) {
    const PLACES: i64 = 128;
    let sums: Vec<UOp> = kernel.sink.toposort().into_iter().filter(|u| u.op() == Op::Reduce).collect();
    for sum in sums {
        let conditions: Vec<UOp> = doorbell_uop::toposort_many(&sum.src()[..1], |u| u.op() != Op::Reduce)
            .into_iter()
            .filter_map(|u| match u.op() {
                Op::Index => u.src().get(2).cloned(),
                Op::Where => Some(u.src()[0].clone()),
                _ => None,
            })
            .collect();
        let mut order = sum.src()[1..].to_vec();
        let asked = |r: &UOp| conditions.iter().any(|c| c.contains(r));
        if order.iter().filter(|r| asked(r)).map(size).product::<i64>() > PLACES {
            continue;
        }
        let mut wanted = order.clone();
        sort::by_key(&mut wanted, |r| !asked(r));
        // A product with packed columns unrolls the positions along a row, where most conditions are decided.
        if let Some(along) = taps(kernel, &sum) {
            wanted.retain(|r| *r != along);
            wanted.push(along);
        }
        for k in 0..order.len() {
            let (now, next) = (order[k].clone(), wanted[k].clone());
            let with = kernel.axes().iter().position(|a| *a == next).unwrap_or(usize::MAX);
            if now != next && kernel.apply_to(&now, |axis| Opt::Swap { axis, with }).is_ok() {
                let from = order.iter().position(|r| *r == next).unwrap_or(k);
                order.swap(k, from);
            }
        }
    }
}

/// The loop along the rows of both operands of a product whose columns will be packed.
fn taps(kernel: &OptKernel, sum: &UOp) -> Option<UOp> {
    let mut analysis = KernelAnalysis::of(&kernel.sink);
    let k = analysis.sites.iter().position(|s| s.node == *sum).filter(|_| under_conditions(sum))?;
    packed_lanes(&mut analysis, k, kernel.target, &[])?;
    let (inner, reads) = (analysis.sites[k].inner.clone(), analysis.sites[k].reads());
    let mut steps = |r: &UOp| reads.iter().all(|i| matches!(analysis.motion(i, r), Move::Step(1 | -1)));
    inner.into_iter().find(|r| size(r) <= 16 && steps(r))
}

/// A product on a matrix unit: two by two tiles in registers, the columns' operand packed once for all rows, threads
/// along the columns.
fn matrix_unit(kernel: &mut OptKernel) -> bool {
    /// Below this number of multiplications setting up the unit costs more than it gains.
    const WORTH: f64 = 32768.0;
    let before = kernel.sink.clone();
    // Other reductions in the kernel cannot work with the product's tiles.
    let alone = before.toposort().iter().filter(|u| u.op() == Op::Reduce).count() == 1;
    if !alone || kernel.apply(Opt::Tc { choice: 0 }).is_err() {
        return false;
    }
    let work = KernelAnalysis::of(&before).sites.iter().map(Site::trips).fold(0.0, f64::max);
    if kernel.waste > 2.0 || work < WORTH {
        kernel.sink = before;
        kernel.applied.pop();
        return false;
    }
    let tiles = kernel.tiles.clone();
    let doubled = |kernel: &mut OptKernel, r: &Option<UOp>| {
        let r = r.clone()?;
        match kernel.apply_to(&r, |axis| Opt::Upcast { axis, amount: 2 }) {
            Ok(left) => left,
            Err(_) => Some(r),
        }
    };
    let columns = doubled(kernel, &tiles[1]);
    let rows = doubled(kernel, &tiles[0]);
    if let Some(columns) = &columns {
        let store = kernel.sink.src().iter().find(|s| s.src().contains(columns)).cloned();
        let place = |r: &UOp| store.as_ref().and_then(|s| s.src().iter().position(|x| x == r));
        if let Some(rows) = &rows
            && place(rows) < place(columns)
        {
            let with = kernel.axes().iter().position(|a| a == columns).unwrap_or(usize::MAX);
            let _ = kernel.apply_to(rows, |axis| Opt::Swap { axis, with });
        }
        let loads =
            kernel.sink.toposort().into_iter().filter(|u| u.op() == Op::Wmma).flat_map(|w| w.src()[1].toposort());
        let params = loads.filter(|u| u.op() == Op::Load).filter_map(|l| match l.src()[0].src()[0].arg() {
            Arg::Param(slot, _) => Some(*slot as usize),
            _ => None,
        });
        let params: std::collections::BTreeSet<usize> = params.collect();
        for param in params {
            let _ = kernel.apply_to(columns, |axis| Opt::Stage { param, axis });
        }
    }
    let split = [columns, rows].into_iter().flatten().find(|r| size(r) >= kernel.target.threads as i64);
    if let Some(r) = split.filter(|_| kernel.target.threads > 1) {
        let amount = kernel.target.threads as usize;
        let _ = kernel.apply_to(&r, |axis| Opt::Thread { axis, amount });
    }
    true
}

/// A staged panel: its columns, the trip count of the loop over them, and the rows whose loop was exchanged with that
/// loop.
struct Panel {
    columns: UOp,
    trips: i64,
    inside: Option<UOp>,
}

impl Panel {
    /// The axis to split over threads so that no two threads pack the same panel: the columns, unless a loop around
    /// them was chosen.
    fn threads(self, site: &Site, chosen: Option<UOp>, kernel: &OptKernel) -> Option<UOp> {
        let place = |r: &UOp| site.outer.iter().position(|x| x == r);
        let around = |t: &UOp| place(t) < place(&self.columns) && self.inside.as_ref() != Some(t);
        if chosen.as_ref().is_some_and(around) || self.trips < kernel.target.threads as i64 {
            return chosen;
        }
        Some(self.columns)
    }
}

/// A tile whose columns are far apart in memory (or which has columns in lanes: `always`) reads them from a packed
/// panel that is made once for all rows: the loop over the columns `v` moves outside the loop over the rows.
fn stage_panels(
    analysis: &mut KernelAnalysis,
    (k, always): (usize, bool),
    v: &UOp,
    kernel: &mut OptKernel,
    remains: &[(UOp, Option<UOp>)],
) -> Option<Panel> {
    let site = &analysis.sites[k];
    let (outermost, depth) = (site.inner.first()?.clone(), site.inner.iter().map(size).product::<i64>());
    if site.inner.len() > 1 && !always {
        return None;
    }
    let load = site.accesses.iter().find(|a| !a.store && analysis.depends(&a.node, v))?;
    let (node, index) = (load.node.clone(), load.index.clone());
    let Arg::Param(slot, _) = *node.src()[0].src()[0].arg() else { return None };
    // The rows: an output loop whose iterations read the same panel.
    let rows: Vec<UOp> = site.outer.iter().filter(|r| *r != v && !analysis.depends(&node, r)).cloned().collect();
    let (row_axis, rows) = rows.iter().rev().find_map(|r| Some((r.clone(), current(remains, r)?)))?;
    // All columns are in the tile: the panel is made once, before the loop over the rows.
    let columns = current(remains, v).or_else(|| always.then(|| rows.clone()))?;
    let far = match analysis.motion(&index, &outermost) {
        Move::Step(apart) => apart.unsigned_abs() as usize * node.dtype().size_bytes() >= 1024 && depth >= 64,
        _ => false,
    };
    let trips = if columns == rows { 1 } else { size(&columns) };
    let bytes = (size(v) / trips * depth) as usize * node.dtype().size_bytes();
    if !always && (!far || size(&rows) < 4) || bytes > kernel.target.local_bytes.min(kernel.target.cache_bytes / 2) {
        return None;
    }
    let store = kernel.sink.src().iter().find(|s| s.src().contains(&rows) && s.src().contains(&columns))?;
    let place = |r: &UOp| store.src().iter().position(|x| x == r);
    let swapped = place(&rows) < place(&columns);
    if swapped {
        let with = kernel.axes().iter().position(|a| a == &columns)?;
        kernel.apply_to(&rows, |axis| Opt::Swap { axis, with }).ok()?;
    }
    kernel.apply_to(&columns, |axis| Opt::Stage { param: slot as usize, axis }).ok()?;
    Some(Panel { columns: v.clone(), trips, inside: swapped.then_some(row_axis) })
}

/// For a product of a large matrix and one that stays in the cache: moves the loop over the large one's rows outside,
/// so that the large one is read only once. Returns that axis.
fn large_outside(
    analysis: &KernelAnalysis,
    k: usize,
    kernel: &mut OptKernel,
    remains: &[(UOp, Option<UOp>)],
) -> Option<UOp> {
    let site = &analysis.sites[k];
    let ([outer, inner], [_]) = (site.outer.as_slice(), site.inner.as_slice()) else { return None };
    let loads: Vec<&UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| &a.node).collect();
    // Bytes of the operands that depend on only one of the axes; no operand may depend on both.
    let bytes = |r: &UOp| {
        let mine = loads.iter().filter(|l| analysis.depends(l, r));
        let each = mine.map(|l| {
            let loops = site.loops().filter(|x| analysis.depends(l, x));
            loops.map(size).product::<i64>() * l.dtype().scalar.size_bytes() as i64
        });
        each.sum::<i64>()
    };
    let (small, large) = (bytes(outer), bytes(inner));
    let cache = kernel.target.cache_bytes as i64;
    let both = loads.iter().any(|l| analysis.depends(l, outer) && analysis.depends(l, inner));
    if both || small == 0 || small > cache || large < cache / 2 || large < 2 * small {
        return None;
    }
    let (a, b) = (current(remains, outer)?, current(remains, inner)?);
    let store = kernel.sink.src().iter().find(|s| s.src().contains(&a) && s.src().contains(&b))?;
    let place = |r: &UOp| store.src().iter().position(|x| x == r);
    if place(&a) < place(&b) {
        let with = kernel.axes().iter().position(|x| x == &b)?;
        kernel.apply_to(&a, |axis| Opt::Swap { axis, with }).ok()?;
    }
    Some(inner.clone())
}

/// How many vectors wide a panel of columns `v` may be and still fit into scratch memory.
fn panel_vectors(
    analysis: &KernelAnalysis,
    k: usize,
    v: &UOp,
    vectors: &dyn Fn(&UOp) -> i64,
    kernel: &OptKernel,
) -> i64 {
    let site = &analysis.sites[k];
    let bytes = site.inner.iter().map(size).product::<i64>() * (size(v) / vectors(v).max(1)) * site.widest as i64;
    let room = kernel.target.local_bytes.min(kernel.target.cache_bytes / 2) as i64;
    // There is no panel then, so nothing has to fit.
    if room < bytes { i64::MAX } else { room / bytes.max(1) }
}

/// The loop that remains of axis `r` after the opts so far.
fn current(remains: &[(UOp, Option<UOp>)], r: &UOp) -> Option<UOp> {
    match remains.iter().find(|(x, _)| x == r) {
        Some((_, left)) => left.clone(),
        None => Some(r.clone()),
    }
}

/// Estimated cycles of the whole kernel on one core.
fn work(analysis: &KernelAnalysis, kernel: &OptKernel) -> f64 {
    let per = |s: &Site| {
        let lanes = (kernel.target.vector_bytes as usize / s.widest).max(1) as f64;
        let ops = (s.ops + s.accesses.len()) as f64 / lanes / 2.0;
        // Data that every iteration of all loops touches anew comes from memory.
        let fresh = s.accesses.iter().filter(|a| s.loops().all(|r| analysis.depends(&a.node, r)));
        let bytes: usize = fresh.map(|a| access_bytes(&a.node)).sum();
        s.trips() * ops.max(bytes as f64 / 8.0)
    };
    analysis.sites.iter().map(per).sum()
}

fn access_bytes(u: &UOp) -> usize {
    if u.op() == Op::Store { u.src()[1].dtype().size_bytes() } else { u.dtype().size_bytes() }
}

/// The axis to split over threads: the outermost axis of the stores that is long enough, otherwise the longest.
fn thread_axis(analysis: &KernelAnalysis) -> Option<UOp> {
    let store =
        analysis.sites.iter().filter(|s| s.node.op() == Op::Store).max_by(|a, b| a.trips().total_cmp(&b.trips()))?;
    let free = || store.outer.iter().filter(|r| kind_of(r) == AxisKind::Loop);
    free().find(|r| size(r) >= 16).or_else(|| free().max_by_key(|r| size(r))).cloned()
}

/// The axis of the loop nest to vectorise, and the number of lanes.
fn best_lanes(analysis: &mut KernelAnalysis, k: usize, kernel: &OptKernel, taken: &[UOp]) -> Option<(UOp, usize)> {
    let site = &analysis.sites[k];
    let most = kernel.target.vector_bytes as usize / site.widest;
    let moves: Vec<(UOp, bool)> = site.accesses.iter().map(|a| (a.index.clone(), a.store)).collect();
    let loops: Vec<UOp> = site.loops().filter(|r| is_free(r)).cloned().collect();
    // The reduction's result is stored somewhere: prefer an output axis along which that store is contiguous too.
    let stores: Vec<UOp> =
        analysis.sites.iter().flat_map(|s| &s.accesses).filter(|a| a.store).map(|a| a.index.clone()).collect();
    let mut best: Option<(i64, UOp)> = None;
    for r in loops {
        let reduces = kind_of(&r) == AxisKind::Reduce;
        if size(&r) < 4 || most < 2 || taken.contains(&r) {
            continue;
        }
        let score = |m: Move, store: bool| match m {
            Move::Step(1) => 3,
            Move::Step(-1) if !store => 2,
            Move::Invariant => 0,
            _ if store => -4,
            _ => -2,
        };
        let mut points: i64 = moves.iter().map(|(i, store)| score(analysis.motion(i, &r), *store)).sum();
        if !reduces && !analysis.sites[k].inner.is_empty() {
            points += stores.iter().map(|i| score(analysis.motion(i, &r), true)).max().unwrap_or(0);
        }
        // A long axis can fill more lanes.
        points = points * 4 + (size(&r) >= most as i64) as i64;
        if points > 0 && best.as_ref().is_none_or(|(p, _)| points > *p) {
            best = Some((points, r));
        }
    }
    let (_, r) = best?;
    let lanes = most.min((size(&r) as usize).next_power_of_two());
    (lanes >= 2).then_some((r, lanes))
}

type Step = (UOp, AxisKind, usize);

/// The opts of one loop nest, in order.
fn plan(
    analysis: &mut KernelAnalysis,
    (k, packed): (usize, bool),
    lanes: Option<(UOp, usize)>,
    kernel: &OptKernel,
) -> Vec<Step> {
    let mut steps: Vec<Step> = lanes.iter().map(|(r, n)| (r.clone(), AxisKind::Vector, *n)).collect();
    let vectors = |r: &UOp| match &lanes {
        Some((v, n)) if v == r => size(r) / *n as i64,
        _ => size(r),
    };
    if analysis.sites[k].inner.is_empty() {
        // Elementwise: four vectors per iteration.
        if let Some((v, _)) = &lanes {
            // If lanes are far apart in memory, unroll as many rows as share the cache lines that the lanes touch.
            if let Some((across, rows)) = square(analysis, k, v) {
                steps.push((across, AxisKind::Upcast, rows));
                return steps;
            }
            // A long body keeps a core busy by itself; copies of it would only be more code to compile.
            let short = |c: &i64| analysis.sites[k].ops * *c as usize <= STEPS;
            let fits = |c: &i64| vectors(v) >= *c && (vectors(v) % c == 0 || vectors(v) >= 16);
            let copies = [4, 3, 2].into_iter().find(|c| short(c) && fits(c));
            steps.extend(copies.map(|c| (v.clone(), AxisKind::Upcast, c as usize)));
        }
        return steps;
    }
    let tile = register_tile(analysis, (k, packed), lanes.as_ref().map(|(v, _)| v), &vectors, kernel);
    let copies: usize = tile.iter().map(|t| t.2).product();
    // Unrolling decides the conditions of a packed product; only the product remains.
    let decided = packed && under_conditions(&analysis.sites[k].node);
    let ops = if decided { 1 } else { analysis.sites[k].ops };
    let mut body = copies * (1 + ops);
    let tiled: Vec<UOp> = tile.iter().map(|t| t.0.clone()).collect();
    steps.extend(tile);
    let along = lanes.as_ref().map(|(v, _)| v.clone());
    // Add independent chains if the tile alone does not give enough of them.
    if copies < 4
        && let Some(v) = &along
        && !tiled.contains(v)
    {
        let kind = if kind_of(v) == AxisKind::Reduce { AxisKind::Unroll } else { AxisKind::Upcast };
        if let Some(c) =
            [8, 4, 2].into_iter().find(|c| copies as i64 * c <= 8 && vectors(v) >= 2 * c || vectors(v) == *c)
        {
            steps.push((v.clone(), kind, c as usize));
            body *= c as usize;
        }
    }
    // Unroll the reduction's small loops fully, innermost first, and a long loop by a few steps.
    let inner = analysis.sites[k].inner.clone();
    for r in inner.iter().rev().filter(|r| Some(*r) != along.as_ref() && is_free(r)) {
        let n = size(r);
        let fixed = r.src()[0].as_int().is_some();
        if fixed && n <= 16 && body * n as usize <= BODY {
            steps.push((r.clone(), AxisKind::Unroll, n as usize));
            body *= n as usize;
        } else {
            let few = [4, 2].into_iter().find(|c| n % c == 0 && body * *c as usize <= STEPS);
            steps.extend(few.filter(|_| n >= 6).map(|c| (r.clone(), AxisKind::Unroll, c as usize)));
            break;
        }
    }
    steps.retain(|(_, _, n)| *n > 1);
    steps
}

/// An axis along which loads move by one element, while the lanes of `v` gather them from far apart; and how often to
/// unroll it.
fn square(analysis: &mut KernelAnalysis, k: usize, v: &UOp) -> Option<(UOp, usize)> {
    let site = &analysis.sites[k];
    let loads: Vec<UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| a.index.clone()).collect();
    let others: Vec<UOp> = site.outer.iter().filter(|r| *r != v && is_free(r) && size(r) >= 4).cloned().collect();
    let far = |m: Move| matches!(m, Move::Step(n) if n.unsigned_abs() >= 16);
    let apart: Vec<UOp> = loads.into_iter().filter(|i| far(analysis.motion(i, v))).collect();
    others.into_iter().find_map(|r| {
        let beside = apart.iter().any(|i| analysis.motion(i, &r) == Move::Step(1));
        beside.then(|| (r.clone(), size(&r).min(16) as usize))
    })
}

/// Output axes whose iterations read rows that map to few sets of the first-level cache.
fn crowded(analysis: &mut KernelAnalysis, k: usize) -> Vec<UOp> {
    let site = &analysis.sites[k];
    let loads: Vec<(UOp, i64)> = site
        .accesses
        .iter()
        .filter(|a| !a.store)
        .map(|a| (a.index.clone(), a.node.dtype().scalar.size_bytes() as i64))
        .collect();
    let far = |analysis: &mut KernelAnalysis, r: &UOp| {
        loads.iter().any(|(i, bytes)| matches!(analysis.motion(i, r), Move::Step(s) if s * bytes % CROWDED == 0))
    };
    let axes = site.outer.clone();
    axes.into_iter().filter(|r| far(analysis, r)).collect()
}

/// The output axes, sorted by the distance in memory between what consecutive iterations read.
fn nearest(analysis: &mut KernelAnalysis, k: usize) -> Vec<UOp> {
    let site = &analysis.sites[k];
    let loads: Vec<UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| a.index.clone()).collect();
    let far = |analysis: &mut KernelAnalysis, r: &UOp| {
        let step = |m| match m {
            Move::Invariant => 0,
            Move::Step(s) => s.unsigned_abs(),
            Move::Irregular => u64::MAX,
        };
        loads.iter().map(|i| step(analysis.motion(i, r))).max().unwrap_or(0)
    };
    let mut axes: Vec<(u64, UOp)> = site.outer.clone().into_iter().map(|r| (far(analysis, &r), r)).collect();
    sort::by_key(&mut axes, |a| a.0);
    axes.into_iter().map(|a| a.1).collect()
}

/// A short output axis along which some load is a sliding window: its iterations read nearly the same elements in lanes
/// as the iteration before.
fn sliding(analysis: &mut KernelAnalysis, k: usize, lanes: &UOp) -> Option<UOp> {
    let site = &analysis.sites[k];
    if kind_of(lanes) != AxisKind::Reduce {
        return None;
    }
    let short = |r: &&UOp| kind_of(r) == AxisKind::Loop && is_free(r) && (3..=6).contains(&size(r));
    let axes: Vec<UOp> = site.outer.iter().filter(short).cloned().collect();
    let loads: Vec<UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| a.index.clone()).collect();
    axes.into_iter().rev().find(|r| {
        loads.iter().any(|i| analysis.motion(i, r) == Move::Step(1) && analysis.motion(i, lanes) == Move::Step(1))
    })
}

/// The axes of a register tile: columns and rows, and the largest allowed size of each.
struct TileAxes {
    columns: Option<UOp>,
    rows: Option<UOp>,
    most: (i64, i64),
    /// The tile contains all rows.
    whole: bool,
}

impl TileAxes {
    fn of(axes: &[UOp], most: (i64, i64)) -> TileAxes {
        TileAxes { columns: axes.get(1).cloned(), rows: axes.first().cloned(), most, whole: false }
    }
}

fn tile_axes(
    analysis: &mut KernelAnalysis,
    (k, packed): (usize, bool),
    along: Option<&UOp>,
    vectors: &dyn Fn(&UOp) -> i64,
    kernel: &OptKernel,
) -> TileAxes {
    let sliding = along.and_then(|v| sliding(analysis, k, v));
    let (crowded, nearest) = (crowded(analysis, k), nearest(analysis, k));
    let site = &analysis.sites[k];
    let loads: Vec<UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| a.node.clone()).collect();
    let shared = |r: &UOp| loads.iter().filter(|l| !analysis.depends(l, r)).count();
    let free = site.outer.iter().filter(|r| kind_of(r) == AxisKind::Loop && vectors(r) >= 2);
    let mut reuse: Vec<UOp> = free.filter(|r| shared(r) > 0 && loads.len() > 1).cloned().collect();
    // Prefer the axis whose iterations share a vector load; of two equal ones, prefer the inner one.
    let vector_shared = |r: &UOp| {
        loads.iter().filter(|l| along.is_some_and(|v| analysis.depends(l, v)) && !analysis.depends(l, r)).count()
    };
    sort::by_key(&mut reuse, |r| (Some(r) != along, std::cmp::Reverse(vector_shared(r)), std::cmp::Reverse(size(r))));
    let other = |than: &UOp| reuse.iter().find(|r| *r != than).cloned();
    if along.is_none_or(|v| kind_of(v) != AxisKind::Loop) {
        return match (sliding.filter(|s| reuse.contains(s)), reuse.as_slice()) {
            (Some(s), _) => TileAxes { rows: other(&s), most: (vectors(&s), 8), columns: Some(s), whole: false },
            (None, rest) => TileAxes::of(rest, (4, 4)),
        };
    }
    let columns = along.filter(|v| reuse.contains(v)).cloned();
    let mut rows = columns.as_ref().and_then(other);
    if columns.is_none() {
        return TileAxes::of(&reuse, (6, 14));
    }
    // Rows next to a packed panel: prefer those that are adjacent in memory and share cache lines.
    let near = nearest.iter().find(|r| packed && Some(*r) != along && reuse.contains(r) && vectors(r) >= 8);
    rows = near.cloned().or(rows);
    let mut most = (6, if rows.as_ref().is_some_and(|r| crowded.contains(r)) { 8 } else { 14 });
    // With all rows unrolled, their conditions are decided, and each vector of a panel serves all of them at every
    // unrolled position.
    let room = WHOLE.min(i64::from(kernel.target.vector_regs) - 6);
    let decided = rows.as_ref().filter(|r| packed && under_conditions(&site.node) && size(r) <= room);
    let whole = decided.is_some();
    if let Some(r) = decided {
        most = ((room / size(r)).min(3), size(r));
    }
    if let Some(v) = along {
        most.0 = panel_vectors(analysis, k, v, vectors, kernel).min(most.0);
        // A loop must remain in which the panel is packed: one over columns, a long one over the rows, or another.
        let another = site.outer.iter().any(|r| r != v && rows.as_ref() != Some(r));
        if packed && !another && rows.as_ref().is_none_or(|r| size(r) < 32) {
            most.0 = most.0.min(vectors(v) / 2);
        }
    }
    TileAxes { columns, rows, most, whole }
}

/// Output axes whose copies share loads, with amounts that fill the registers and lose the least work at the edges.
fn register_tile(
    analysis: &mut KernelAnalysis,
    site: (usize, bool),
    along: Option<&UOp>,
    vectors: &dyn Fn(&UOp) -> i64,
    kernel: &OptKernel,
) -> Vec<Step> {
    let TileAxes { columns: n_axis, rows: m_axis, most: (most_n, most_m), whole } =
        tile_axes(analysis, site, along, vectors, kernel);
    let registers = kernel.target.vector_regs.max(8) as i64;
    let n = n_axis.as_ref().map_or(1, vectors);
    let m = m_axis.as_ref().map_or(1, vectors);
    let mut best: Option<(f64, i64, i64)> = None;
    for nr in 1..=n.min(most_n) {
        for mr in (if whole { m } else { 1 })..=m.min(most_m) {
            // Registers needed: accumulators, one row of vectors, and one or two values at a time of the other operand.
            if mr * nr + nr + 2 > registers {
                continue;
            }
            let cost = tile_cost((n, nr), (m, mr));
            if best.is_none_or(|(c, ..)| cost < c * 0.999) {
                best = Some((cost, nr, mr));
            }
        }
    }
    let Some((_, nr, mr)) = best else { return vec![] };
    let mut tile = vec![];
    // Rows inside columns: neighbouring copies share the row's vectors.
    tile.extend(m_axis.filter(|_| mr > 1).map(|r| (r, AxisKind::Upcast, mr as usize)));
    tile.extend(n_axis.filter(|_| nr > 1).map(|r| (r, AxisKind::Upcast, nr as usize)));
    tile
}

/// Cycles for one reduction step over `n` by `m` vectors in tiles of `nr` by `mr`, including the remainders at the
/// edges.
fn tile_cost((n, nr): (i64, i64), (m, mr): (i64, i64)) -> f64 {
    let ((nf, nl), (mf, ml)) = ((n / nr, n % nr), (m / mr, m % mr));
    let part = |count: i64, a: i64, b: i64| {
        let (fma, loads) = ((a * b) as f64, (a + b) as f64);
        count as f64 * (fma.max(8.0) / 2.0 + loads * 0.4 + 1.0)
    };
    let rest = |l: i64| (l > 0) as i64;
    // Each remainder is separate code.
    let code = 1.0 + 0.02 * (rest(nl) + rest(ml)) as f64;
    code * (part(nf * mf, nr, mr)
        + part(nf * rest(ml), nr, ml)
        + part(rest(nl) * mf, nl, mr)
        + part(rest(nl) * rest(ml), nl, ml))
}
