//! The heuristics that choose opts for a kernel of a GPU target: a matrix unit where one fits; reductions with few
//! outputs shared by the threads of a workgroup; tiles for products; vectors and workgroups along the contiguous axis
//! for everything else.

use super::analysis::{KernelAnalysis, Move, Site, is_free, size};
use super::{Opt, OptKernel, kind_of};
use crate::grid;
use doorbell_uop::{Arg, AxisKind, Op, UOp};

/// With fewer outputs than this, a reduction is shared by threads, because one thread per output would leave the GPU
/// mostly idle.
const FEW_OUTPUTS: i64 = 2048;
/// Maximum ratio of a matrix unit's work, including padding, to the useful work.
const WASTE: f64 = 2.0;
/// A number of threads that fills the waves of every target.
const WAVES: i64 = 64;
/// Threads of a wave on most of them.
const WAVE: i64 = 32;
/// Threads that keep a large GPU busy.
const FULL: i64 = 1 << 15;
/// Threads that share a result of a product with few of them.
const MOST_SHARES: i64 = 16;
/// Threads of a typical workgroup.
const WORKGROUP: i64 = 256;

pub(super) fn choose(kernel: &mut OptKernel) {
    if super::blocks::choose(kernel) || matrix_unit(kernel) {
        return;
    }
    let mut analysis = KernelAnalysis::of(&kernel.sink);
    let rows = inner_loops(kernel);
    let outputs = outputs(&analysis, &rows);
    let along: Vec<bool> = (0..analysis.sites.len()).map(|k| is_walked_along(&mut analysis, k)).collect();
    let is_shared = |(k, s): &(usize, &Site)| is_shared(s, outputs, &rows) || along[*k];
    let shared: Vec<Vec<UOp>> =
        analysis.sites.iter().enumerate().filter(is_shared).map(|(_, s)| s.inner.clone()).collect();
    if !shared.is_empty() || !rows.is_empty() {
        let steps = |axes: &Vec<UOp>| axes.iter().map(size).product();
        let longest: i64 = shared.iter().map(steps).chain(rows.iter().map(size)).max().unwrap_or(1);
        let threads = WORKGROUP.min((longest as u64).next_power_of_two() as i64);
        for axes in shared {
            let axes = in_lanes(kernel, &axes, threads);
            share(kernel, &axes, threads);
        }
        for r in rows {
            let r = in_lanes(kernel, std::slice::from_ref(&r), threads).remove(0);
            let _loop = spread(kernel, &r, threads, AxisKind::Local);
        }
        return;
    }
    match analysis.sites.iter().position(|s| !s.inner.is_empty()) {
        Some(k) => tile(kernel, analysis, k),
        None => elementwise(kernel, analysis),
    }
}

/// Uses the matrix unit if padding to its tile costs less than half of the work. Copies of tiles share operands.
fn matrix_unit(kernel: &mut OptKernel) -> bool {
    let before = kernel.sink.clone();
    if kernel.apply(Opt::Tc { choice: 0 }).is_err() {
        return false;
    }
    let outer: Vec<UOp> = kernel.axes().into_iter().filter(|r| kind_of(r) == AxisKind::Loop).collect();
    if kernel.waste > WASTE {
        kernel.sink = before;
        kernel.applied.pop();
        return false;
    }
    for r in outer.iter().rev().take(2) {
        let amount = [4, 3, 2].into_iter().find(|n| size(r) % n == 0 && size(r) > *n);
        let Some(n) = amount else { continue };
        let _ = kernel.apply_to(r, |axis| Opt::Upcast { axis, amount: n as usize });
    }
    let left: Vec<UOp> = kernel.axes().into_iter().filter(|r| kind_of(r) == AxisKind::Loop).collect();
    for r in left.iter().take(1) {
        let amount = [4, 2].into_iter().find(|n| size(r) % n == 0);
        let Some(n) = amount else { continue };
        let _ = kernel.apply_to(r, |axis| Opt::Local { axis, amount: n as usize });
    }
    true
}

/// Output loops that stay loops inside the kernel, because one reduction serves all their iterations.
fn inner_loops(kernel: &OptKernel) -> Vec<UOp> {
    let stores = kernel.sink.src().iter().filter(|s| s.op() == Op::Store);
    let launched = grid::with_global_axes(&kernel.sink, kernel.target);
    let remain: Vec<UOp> = launched.toposort().into_iter().filter(|u| u.op() == Op::Range).collect();
    let mut rows: Vec<UOp> = vec![];
    for r in stores.flat_map(|s| &s.src()[2..]) {
        if kind_of(r) == AxisKind::Loop && remain.contains(r) && !rows.contains(r) {
            rows.push(r.clone());
        }
    }
    rows
}

/// How many one-thread workgroups the kernel would have.
fn outputs(analysis: &KernelAnalysis, rows: &[UOp]) -> i64 {
    let stores = analysis.sites.iter().filter(|s| s.node.op() == Op::Store);
    stores.map(|s| s.outer.iter().filter(|r| !rows.contains(r)).map(size).product()).max().unwrap_or(1)
}

fn is_shared(s: &Site, outputs: i64, rows: &[UOp]) -> bool {
    let steps: i64 = s.inner.iter().map(size).product();
    let free = s.inner.last().is_some_and(is_free);
    free && s.node.op() == Op::Reduce && (outputs <= FEW_OUTPUTS && steps >= 32 || !rows.is_empty())
}

/// Reductions of rows that lie one after another in memory, from this many steps on: neighbouring threads take
/// neighbouring elements, where one thread a row would read a line of memory for each element.
const LONG_ROW: i64 = 256;
/// Neighbours of such a row, at least.
const NEIGHBOURS: i64 = 8;

/// Whether a reduction walks memory element by element, and its outputs do not.
fn is_walked_along(analysis: &mut KernelAnalysis, k: usize) -> bool {
    let site = &analysis.sites[k];
    let Some(last) = site.inner.last().filter(|r| is_free(r) && size(r) >= NEIGHBOURS).cloned() else { return false };
    if site.node.op() != Op::Reduce || site.inner.iter().map(size).product::<i64>() < LONG_ROW {
        return false;
    }
    let (reads, outer) = (site.reads(), site.outer.clone());
    let mut along = reads.into_iter().filter(|i| analysis.motion(i, &last) == Move::Step(1)).collect::<Vec<_>>();
    // What each thread would read for an output of its own, and nobody else.
    along.retain(|i| outer.iter().all(|r| analysis.depends(i, r) && analysis.motion(i, r) != Move::Step(1)));
    !along.is_empty()
}

/// Puts neighbours along the last of these axes into vectors, if all that is read and written along it are neighbours
/// and enough is left for the threads.
fn in_lanes(kernel: &mut OptKernel, axes: &[UOp], threads: i64) -> Vec<UOp> {
    let mut axes = axes.to_vec();
    let Some(last) = axes.last_mut() else { return axes };
    let mut analysis = KernelAnalysis::of(&kernel.sink);
    let sites: Vec<usize> =
        (0..analysis.sites.len()).filter(|k| analysis.sites[*k].loops().any(|r| r == last)).collect();
    let widest = sites.iter().map(|k| analysis.sites[*k].widest).max().unwrap_or(1);
    let lanes = (kernel.target.vector_bytes as usize / widest.max(1)).min(4) as i64;
    if lanes < 2 || size(last) % (lanes * threads) != 0 {
        return axes;
    }
    if sites.iter().all(|k| are_neighbours(&mut analysis, *k, last)) {
        let made = kernel.apply_to(last, |axis| Opt::Vectorize { axis, amount: lanes as usize });
        if let Ok(Some(left)) = made {
            *last = left;
        }
    }
    axes
}

/// Shares a reduction by threads along its last axes. Of what is left to each, four steps are unrolled, so that their
/// loads are under way at once: a loop that waits for each of its loads takes most of a microsecond a step.
fn share(kernel: &mut OptKernel, axes: &[UOp], threads: i64) {
    let Some((last, mut others)) = axes.split_last() else { return };
    let mut rest = None;
    let (mut found, mut next) = (1, Some(last));
    // Short axes whole, the first long one in parts.
    while let Some(r) = next.filter(|r| is_free(r)) {
        let n = size(r);
        let whole = (n <= WAVE || n % WAVE != 0) && found * n <= threads;
        if whole && n > 1 && !others.is_empty() {
            let made = kernel.apply_to(r, |axis| Opt::Group { axis, amount: n as usize });
            found *= if made.is_ok() { n } else { 1 };
        } else {
            let left = (threads / found).max(1);
            let left = if found == 1 { left } else { 1 << left.ilog2() };
            rest = if left > 1 { spread(kernel, r, left, AxisKind::GroupReduce) } else { Some(r.clone()) };
            break;
        }
        next = others.split_last().map(|(r, before)| {
            others = before;
            r
        });
    }
    let left = rest.iter().chain(others.iter().rev().filter(|r| is_free(r)));
    for r in left.filter(|r| size(r) > 1) {
        let Some(n) = [4, 3, 2].into_iter().find(|n| size(r) % n == 0) else { continue };
        if kernel.apply_to(r, |axis| Opt::Unroll { axis, amount: n as usize }).is_ok() {
            return;
        }
    }
}

/// Splits an axis over as many threads as divide its size, or pads it; returns the loop that is left to each thread.
fn spread(kernel: &mut OptKernel, r: &UOp, threads: i64, kind: AxisKind) -> Option<UOp> {
    let mut over = |r: &UOp, amount: i64| {
        let opt = |axis| match kind {
            AxisKind::GroupReduce => Opt::Group { axis, amount: amount as usize },
            _ => Opt::Local { axis, amount: amount as usize },
        };
        kernel.apply_to(r, opt).ok().flatten()
    };
    if size(r) % threads == 0 || size(r) <= 1 {
        return over(r, threads);
    }
    // Prefer a thread count with at most a quarter of the work wasted; otherwise use the largest power of two that
    // divides the size.
    let fits = [threads, threads / 2, threads / 4]
        .into_iter()
        .find(|t| *t > 1 && (size(r) + t - 1) / t * t * 4 <= size(r) * 5);
    let Some(t) = fits.filter(|t| size(r) % t != 0) else {
        let n = (1i64 << size(r).trailing_zeros()).min(threads);
        return if n > 1 { over(r, n) } else { Some(r.clone()) };
    };
    let longer = kernel.apply_to(r, |axis| Opt::PadTo { axis, amount: t as usize }).ok().flatten()?;
    spread(kernel, &longer, t, kind)
}

/// A reduction with many outputs: unroll the axes that share loads, put threads along both, and put the tiles that they
/// read into workgroup memory.
fn tile(kernel: &mut OptKernel, mut analysis: KernelAnalysis, k: usize) {
    let site = &analysis.sites[k];
    let loads: Vec<UOp> = site.accesses.iter().filter(|a| !a.store).map(|a| a.node.clone()).collect();
    let (outer, inner) = (site.outer.clone(), site.inner.clone());
    let reused = |r: &&UOp| is_free(r) && loads.iter().any(|l| !analysis.depends(l, r)) && loads.len() > 1;
    let mut axes: Vec<UOp> = outer.iter().filter(reused).rev().take(2).cloned().collect();
    let mut product = axes.len() == 2 && loads.len() == 2;
    let rounds = |step: &UOp| [16, 8, 4].into_iter().find(|n| size(step) % n == 0 && size(step) > *n);
    let last = inner.last().filter(|r| is_free(r)).cloned();
    // Of a convolution, the channels are cut in parts, each of which is a product for each place of the window.
    let window = last.clone().filter(|r| {
        let cut = |r: &UOp| rounds(r).is_some();
        !cut(r) && inner.iter().any(cut) && can_pipe(kernel, &loads) && loads.iter().all(|l| analysis.depends(l, r))
    });
    let step = match &window {
        Some(_) => inner.iter().rev().find(|r| is_free(r) && rounds(r).is_some()).cloned(),
        None => last,
    };
    let is_staged = step.as_ref().is_some_and(|step| rounds(step).is_some());
    if let Some([near, far]) = tile_axes(&mut analysis, &outer, &loads, is_staged) {
        // Loads under conditions are no vectors: a thread of a padded window takes many places and few channels.
        let is_gated = loads.iter().any(|l| l.src()[0].src().len() > 2);
        axes = if is_gated && !is_staged { vec![far, near] } else { vec![near, far] };
        product = true;
    }
    let results: i64 = outer.iter().map(size).product();
    let pipes = is_staged && can_pipe(kernel, &loads);
    let [rows, columns] = if product { tile_of_a_thread(results, pipes) } else { [4, 4] };
    // In smaller tiles, vectors put the operands of too many instructions into one bank of registers.
    let in_lanes = match axes.first() {
        Some(r) if product && rows > 4 && is_staged => are_stored_as_neighbours(&mut analysis, r),
        Some(r) if product && rows > 4 || axes.len() == 1 => are_neighbours(&mut analysis, k, r),
        _ => false,
    };
    // A small product needs its short axes for threads.
    let takes_whole = !is_staged && results >= FULL;
    let mut left: Vec<UOp> = vec![];
    for (n, (r, most)) in axes.iter().zip([columns, rows]).enumerate() {
        left.push(copies(kernel, r, most, in_lanes && n == 0, takes_whole));
    }
    // Where the results alone leave the GPU mostly idle, as of a matrix and a vector, each is shared by threads.
    let of_a_thread: i64 = axes.iter().map(size).product::<i64>() / left.iter().map(size).product::<i64>();
    let most_shares = (FULL * of_a_thread / results.max(1)).min(MOST_SHARES);
    let shares = |step: &UOp| (size(step) / 8).min(most_shares).max(1).ilog2().min(size(step).trailing_zeros());
    let shares = 1i64 << step.as_ref().filter(|_| !product).map_or(0, shares);
    // Neighbouring threads along the last axis.
    let others = outer.iter().rev().filter(|r| !axes.contains(r) && is_free(r)).cloned();
    let mut threads = 1;
    for (n, r) in left.iter().cloned().chain(others).enumerate() {
        // Use one axis beyond those that share loads, and further ones only if waves would be less than half full.
        if n > left.len() && threads >= WAVES {
            break;
        }
        let most = (WORKGROUP / shares / threads).min(if axes.len() > 1 { 16 } else { 64 });
        let n = (1i64 << size(&r).trailing_zeros()).min(most);
        if n > 1 && kernel.apply_to(&r, |axis| Opt::Local { axis, amount: n as usize }).is_ok() {
            threads *= n;
        } else if size(&r) >= 32 && threads == 1 {
            let _loop = spread(kernel, &r, 32, AxisKind::Local);
            threads *= 32;
        }
    }
    let Some(mut step) = step else { return };
    if shares > 1
        && let Ok(left) = kernel.apply_to(&step, |axis| Opt::Group { axis, amount: shares as usize })
    {
        let Some(left) = left else { return };
        step = left;
    }
    if let (true, Some(n)) = (product && threads >= 64, rounds(&step)) {
        if let Ok(Some(outer)) = kernel.apply_to(&step, |axis| Opt::Tile { axis, amount: n as usize }) {
            through_workgroup_memory(kernel, &loads, window.as_ref().unwrap_or(&outer));
            let inner = innermost(kernel);
            if let (Some(r), Some(n)) = (inner, unrolled(rows * columns).filter(|_| in_lanes)) {
                let _ = kernel.apply_to(&r, |axis| Opt::Unroll { axis, amount: n });
            }
        }
    } else if let Some(n) = [4, 3, 2].into_iter().find(|n| size(&step) % n == 0) {
        let _ = kernel.apply_to(&step, |axis| Opt::Unroll { axis, amount: n as usize });
    }
}

/// The loop of a reduction inside all others.
fn innermost(kernel: &OptKernel) -> Option<UOp> {
    let order = kernel.sink.toposort();
    let mut loops = order.iter().filter(|u| u.op() == Op::Reduce).filter_map(|u| u.src().last());
    loops.rfind(|r| kind_of(r) == AxisKind::Reduce).cloned()
}

/// Copies the tiles of a product to workgroup memory, in each iteration of its outer loop: while the tiles before are
/// multiplied, if the target can.
fn through_workgroup_memory(kernel: &mut OptKernel, loads: &[UOp], outer: &UOp) {
    if can_pipe(kernel, loads) && kernel.apply_to(outer, |axis| Opt::Pipe { axis, depth: 2 }).is_ok() {
        return;
    }
    for l in loads {
        let Arg::Param(slot, _) = *l.src()[0].src()[0].arg() else { continue };
        let _ = kernel.apply_to(outer, |axis| Opt::Stage { param: slot as usize, axis });
    }
}

/// Whether copies to workgroup memory run while a tile is multiplied: those of words do.
fn can_pipe(kernel: &OptKernel, loads: &[UOp]) -> bool {
    kernel.target.async_copies && loads.iter().all(|l| l.dtype().scalar.size_bytes() >= 4)
}

/// Steps of a product to unroll, by the results of a thread. On an H100, 8 make one of 16 x 8 a twentieth faster; one
/// of 8 x 8 gains nothing; one of 8 x 4 needs 4.
fn unrolled(results_of_a_thread: i64) -> Option<usize> {
    match results_of_a_thread {
        128.. => Some(8),
        64.. => None,
        _ => Some(4),
    }
}

/// Of a product of two loads: the output axis to tile for each of them, which only the other one depends on; the one
/// that moves least in the result first. Short axes are for products that are not staged.
fn tile_axes(analysis: &mut KernelAnalysis, outer: &[UOp], loads: &[UOp], staged: bool) -> Option<[UOp; 2]> {
    const LONG: i64 = 16;
    let [a, b] = loads else { return None };
    let store = analysis.sites.iter().flat_map(|s| &s.accesses).find(|a| a.store).map(|a| a.index.clone())?;
    let mut apart = |r: &UOp| match analysis.motion(&store, r) {
        Move::Step(n) => n.unsigned_abs(),
        _ => u64::MAX,
    };
    let free = outer.iter().filter(|r| is_free(r) && size(r) > 1);
    let mut order: Vec<(u64, UOp)> = free.map(|r| (apart(r), r.clone())).collect();
    doorbell_sort::by_key(&mut order, |(n, _)| *n);
    let of = |mine: &UOp, other: &UOp| {
        let alone = |r: &&(u64, UOp)| analysis.depends(mine, &r.1) && !analysis.depends(other, &r.1);
        let all: Vec<&(u64, UOp)> = order.iter().filter(alone).collect();
        let long = all.iter().find(|r| size(&r.1) >= LONG && (staged || r.0 == all[0].0));
        long.or(all.first()).map(|r| (*r).clone())
    };
    let mut pair = [of(a, b)?, of(b, a)?];
    doorbell_sort::by_key(&mut pair, |(n, _)| *n);
    let [(_, first), (_, second)] = pair;
    Some([first, second])
}

/// Rows and columns of a product that one thread computes: as many as leave work for every processor of a large GPU.
/// An H100 takes 3.3 ms for the f32 product of 4096 x 4096 with 16 x 8, and 3.9 with 8 x 8; where tiles are not copied
/// ahead, 5.3 with 8 x 8, and more than 7 with 16 x 8.
fn tile_of_a_thread(results: i64, pipes: bool) -> [i64; 2] {
    let workgroups = |results_of_a_thread: i64| results / (results_of_a_thread * WORKGROUP);
    match () {
        () if pipes && workgroups(128) >= 256 => [16, 8],
        () if workgroups(64) >= 256 => [8, 8],
        () if workgroups(32) >= 64 => [8, 4],
        () => [4, 4],
    }
}

/// Whether every access of a site that depends on an axis moves by one element a step.
fn are_neighbours(analysis: &mut KernelAnalysis, k: usize, r: &UOp) -> bool {
    let accesses: Vec<(UOp, bool)> = analysis.sites[k].accesses.iter().map(|a| (a.index.clone(), a.store)).collect();
    accesses.iter().all(|(i, store)| {
        matches!(analysis.motion(i, r), Move::Step(1)) || !store && analysis.motion(i, r) == Move::Invariant
    })
}

/// Whether the results along an axis are neighbours in memory. What is staged may lie in any order.
fn are_stored_as_neighbours(analysis: &mut KernelAnalysis, r: &UOp) -> bool {
    let stores = analysis.sites.iter().flat_map(|s| &s.accesses).filter(|a| a.store);
    let stores: Vec<UOp> = stores.map(|a| a.index.clone()).collect();
    stores.iter().all(|i| analysis.motion(i, r) == Move::Step(1))
}

/// Gives a thread up to `most` neighbours of an axis (all of a short one, if it may take them), four of them as lanes
/// of a vector if asked for; returns the loop that is left.
fn copies(kernel: &mut OptKernel, r: &UOp, most: i64, in_lanes: bool, takes_whole: bool) -> UOp {
    const LANES: i64 = 4;
    let (mut left, mut most) = (r.clone(), most);
    if in_lanes && size(r) % LANES == 0 && size(r) / LANES >= 4 {
        let made = kernel.apply_to(r, |axis| Opt::Vectorize { axis, amount: LANES as usize });
        if let Ok(Some(rest)) = made {
            (left, most) = (rest, most / LANES);
        }
    }
    let whole = Some(size(&left)).filter(|n| takes_whole && (2..=most).contains(n));
    let part = || [16, 8, 4, 3, 2].into_iter().find(|n| *n <= most && size(&left) % n == 0 && size(&left) / n >= 4);
    let amount = whole.or_else(part);
    let rest = amount.map(|n| kernel.apply_to(&left, |axis| Opt::Upcast { axis, amount: n as usize }));
    rest.and_then(Result::ok).flatten().unwrap_or(left)
}

/// Four elements per thread if all accesses are contiguous along one axis, with neighbouring threads adjacent on it.
fn elementwise(kernel: &mut OptKernel, mut analysis: KernelAnalysis) {
    let Some(k) =
        (0..analysis.sites.len()).max_by(|a, b| analysis.sites[*a].trips().total_cmp(&analysis.sites[*b].trips()))
    else {
        return;
    };
    let outer: Vec<UOp> = analysis.sites[k].outer.iter().filter(|r| is_free(r)).cloned().collect();
    let lanes = (kernel.target.vector_bytes as usize / analysis.sites[k].widest.max(1)).min(4) as i64;
    let mut axes: Vec<UOp> = vec![];
    for r in outer.iter().rev() {
        let whole = lanes > 1 && size(r) % lanes == 0 && size(r) >= lanes * 32;
        let mut now = r.clone();
        if axes.is_empty() && whole && are_neighbours(&mut analysis, k, r) {
            let made = kernel.apply_to(r, |axis| Opt::Vectorize { axis, amount: lanes as usize });
            now = made.ok().flatten().unwrap_or(now);
        }
        axes.push(now);
    }
    let mut threads = 1;
    for r in axes {
        let room = WORKGROUP / 2 / threads;
        let n = (1i64 << size(&r).trailing_zeros()).min(room);
        // Half of the rest wasted is better than waves with few threads.
        if threads == 1 && n < 32 && size(&r) >= 32 {
            let before = kernel.applied.len();
            let _loop = spread(kernel, &r, 64, AxisKind::Local);
            if kernel.applied.len() > before + 1 || n < 2 {
                return;
            }
            threads *= n;
            continue;
        }
        if n > 1 && kernel.apply_to(&r, |axis| Opt::Local { axis, amount: n as usize }).is_ok() {
            threads *= n;
        }
    }
}
