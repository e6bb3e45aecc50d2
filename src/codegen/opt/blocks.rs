//! Products on GPUs that copy tiles while they compute: chooses the block of the result that each workgroup computes,
//! and the opts for it.
//!
//! With a larger block each product needs fewer operand reads, but there are fewer blocks, and a product that leaves
//! parts of the chip idle takes as long as its busiest unit. So the chosen block is the one with the smallest total
//! time: the time of one block, multiplied by how many blocks the busiest unit computes.

use super::analysis::size;
use super::{Opt, OptKernel, kind_of};
use doorbell_sort as sort;
use doorbell_uop::{AxisKind, Op, TileArg, UOp, WmmaArg};

/// A workgroup's part of the result, in tiles of the matrix unit.
#[derive(Clone, Copy)]
struct Block {
    /// Tiles per wave, and waves: down and across.
    copies: [i64; 2],
    waves: [i64; 2],
    /// Relative speed of the units with blocks of this size (the largest is 1), limited by what they read of workgroup
    /// memory.
    rate: f64,
}

const fn block(copies: [i64; 2], waves: [i64; 2], rate: f64) -> Block {
    Block { copies, waves, rate }
}

const BLOCKS: &[Block] = &[
    block([4, 4], [2, 2], 1.0),
    block([4, 2], [2, 2], 0.85),
    block([2, 4], [2, 2], 0.85),
    block([2, 2], [2, 2], 0.7),
    block([2, 1], [2, 2], 0.5),
    block([1, 2], [2, 2], 0.5),
    block([1, 1], [2, 2], 0.4),
];
/// Blocks for units that read workgroup memory directly: number of warpgroups, columns of the one tile. With a tile of
/// 64 columns, reading workgroup memory takes as long as the products; with more columns, less. The other units read
/// each fragment several times and reach six tenths.
const WARPGROUPS: &[(i64, u16, f64)] = &[(4, 128, 1.7), (2, 128, 1.6), (2, 64, 1.2), (1, 128, 1.4), (1, 64, 1.0)];
/// Tiles of the unit along the reduction in one iteration with the relative speed of such iterations; bytes of an
/// iteration along the reduction.
const STEPS: &[(i64, f64)] = &[(4, 1.0), (2, 1.0), (1, 0.85)];
const ITERATION_BYTES: i64 = 64;
/// Maximum ratio of the work with padding to the useful work.
const WASTE: f64 = 2.0;
/// Numbers of buffers of a pipelined loop, to use if there is enough room for the first, and if not. Powers of two, so
/// that the buffer index needs no division.
const DEPTHS: [i64; 2] = [4, 2];
/// The same for wgmma, where the products of the last buffer may still be running.
const LONG_DEPTHS: [i64; 2] = [4, 3];
/// How many plans are tried for each kind of unit.
const TRIES: usize = 2;
/// Number of units if the target does not say.
const UNITS: u32 = 64;

/// A way to compute the kernel's product.
struct Plan {
    choice: usize,
    unit: &'static WmmaArg,
    /// Rows, columns, reduction steps.
    axes: [UOp; 3],
    block: Block,
    /// Reduction steps in one iteration, in tiles of the unit.
    steps: i64,
    time: f64,
}

impl Plan {
    /// Elements of a block along each axis.
    fn sizes(&self) -> [i64; 3] {
        let b = &self.block;
        let [m, n] = [0, 1].map(|k| b.copies[k] * b.waves[k]);
        [m * i64::from(self.unit.m), n * i64::from(self.unit.n), self.steps * i64::from(self.unit.k)]
    }

    /// The number of buffers that lets two workgroups share a compute unit, if possible.
    fn depth(&self, local_bytes: usize) -> i64 {
        let [m, n, k] = self.sizes();
        let bytes = (m + n) * self.unit.a.size_bytes() as i64;
        let rounds = (size(&self.axes[2]) + k - 1) / k;
        if self.unit.from_memory {
            let of = |groups: i64| LONG_DEPTHS.into_iter().map(move |n| (groups, n));
            let fits = |(groups, n): &(i64, i64)| groups * n * bytes * k <= local_bytes as i64 && *n <= rounds + 1;
            return of(2).chain(of(1)).find(fits).map_or(3, |(_, n)| n);
        }
        let fits = |n: &i64| 2 * n * bytes * (k + 16) <= local_bytes as i64 && *n <= rounds;
        DEPTHS.into_iter().find(fits).unwrap_or(2)
    }
}

/// Computes the kernel's product in blocks whose tiles are copied ahead; `false`: the kernel is not such a product, or
/// no block fits.
pub(super) fn choose(kernel: &mut OptKernel) -> bool {
    if !kernel.target.async_copies || kernel.sink.toposort().iter().filter(|u| u.op() == Op::Reduce).count() != 1 {
        return false;
    }
    let mut plans = plans(kernel);
    sort::by(&mut plans, |a, b| a.time.total_cmp(&b.time));
    let (before, applied) = (kernel.sink.clone(), kernel.applied.len());
    let mut tried = [0; 2];
    for plan in &plans {
        let tries = &mut tried[usize::from(plan.unit.from_memory)];
        *tries += 1;
        if *tries > TRIES {
            continue;
        }
        if apply(kernel, plan).is_some() {
            return true;
        }
        kernel.sink = before.clone();
        kernel.applied.truncate(applied);
    }
    false
}

fn plans(kernel: &OptKernel) -> Vec<Plan> {
    let mut plans = vec![];
    let plain = is_stored_as_it_is(&kernel.sink);
    let outputs: f64 = outputs(&kernel.sink);
    let units = f64::from(if kernel.target.compute_units == 0 { UNITS } else { kernel.target.compute_units });
    for (choice, (unit, axes)) in kernel.products().into_iter().enumerate() {
        // Four warpgroups leave a thread 128 registers: room for its sums and not much else.
        let fits = |b: &Block| plain || !unit.from_memory || b.waves[0] < 4;
        for (block, (steps, rate)) in forms(unit, size(&axes[2])).into_iter().filter(|f| fits(&f.0)) {
            let mut plan = Plan { choice, unit, axes: axes.clone(), block, steps, time: 0.0 };
            let sizes = plan.sizes();
            let padded = |k: usize| ((size(&axes[k]) + sizes[k] - 1) / sizes[k] * sizes[k]) as f64;
            let whole = |k: usize| size(&axes[k]) as f64;
            let waste: f64 = (0..3).map(|k| padded(k) / whole(k)).product();
            let others = outputs / (whole(0) * whole(1));
            let blocks = padded(0) * padded(1) / (sizes[0] * sizes[1]) as f64 * others;
            let each = (sizes[0] * sizes[1]) as f64 * padded(2) / whole(2) / block.rate / rate;
            plan.time = (blocks / units).ceil() * each;
            if waste <= WASTE {
                plans.push(plan);
            }
        }
    }
    plans
}

/// Blocks and iteration lengths, with their relative speeds, for a reduction of so many steps.
fn forms(unit: &WmmaArg, sum: i64) -> Vec<(Block, (i64, f64))> {
    let k = i64::from(unit.k);
    let bytes = k * unit.a.size_bytes() as i64;
    if unit.from_memory {
        let steps = TileArg::row(unit.a) / k;
        let of = WARPGROUPS.iter().filter(|g| g.1 == unit.n && sum > steps * k);
        return of.map(|g| (block([1, 1], [g.0, 1], g.2), (steps, 1.0))).collect();
    }
    let rounds = STEPS.iter().filter(|s| s.0 * bytes <= ITERATION_BYTES && sum > s.0 * k);
    rounds.flat_map(|s| BLOCKS.iter().map(move |b| (*b, *s))).collect()
}

/// Whether nothing else is read or chosen for what is stored.
fn is_stored_as_it_is(sink: &UOp) -> bool {
    let values: Vec<UOp> = sink.src().iter().filter(|s| s.op() == Op::Store).map(|s| s.src()[1].clone()).collect();
    let after = doorbell_uop::toposort_many(&values, |u| u.op() != Op::Reduce);
    !after.iter().any(|u| matches!(u.op(), Op::Load | Op::Where))
}

/// Upper bound of the number of elements that the kernel stores.
fn outputs(sink: &UOp) -> f64 {
    let of = |s: &UOp| s.src()[2..].iter().map(|r| (r.vmax() + 1) as f64).product::<f64>();
    sink.src().iter().filter(|s| s.op() == Op::Store).map(of).fold(1.0, f64::max)
}

fn apply(kernel: &mut OptKernel, plan: &Plan) -> Option<()> {
    for (r, n) in plan.axes.iter().zip(plan.sizes()) {
        if size(r) % n != 0 {
            kernel.apply_to(r, |axis| Opt::PadTo { axis, amount: n as usize }).ok()?;
        }
    }
    kernel.apply(Opt::Tc { choice: plan.choice }).ok()?;
    let [lines, columns, steps] = <[Option<UOp>; 3]>::try_from(kernel.tiles.clone()).ok()?;
    for (k, r) in [lines, columns].into_iter().enumerate() {
        let mut r = r;
        for (n, kind) in [(plan.block.copies[k], AxisKind::Upcast), (plan.block.waves[k], AxisKind::Local)] {
            if n > 1 {
                r = kernel.apply_to(&r?, |axis| opt(kind, axis, n as usize)).ok()?;
            }
        }
    }
    let mut round = steps?;
    if plan.steps > 1 {
        round = kernel.apply_to(&round, |axis| opt(AxisKind::Unroll, axis, plan.steps as usize)).ok()??;
    }
    // Other loops of the reduction (of a window) go around the pipelined loop.
    let last = last_loop(kernel, &round)?;
    if last != round {
        let with = kernel.axes().iter().position(|a| *a == last)?;
        kernel.apply_to(&round, |axis| Opt::Swap { axis, with }).ok()?;
    }
    let depth = plan.depth(kernel.target.local_bytes) as usize;
    kernel.apply_to(&round, |axis| Opt::Pipe { axis, depth }).ok()?;
    Some(())
}

/// The innermost loop of the reduction that contains this one.
fn last_loop(kernel: &OptKernel, round: &UOp) -> Option<UOp> {
    let order = kernel.sink.toposort();
    let sum = order.iter().find(|u| u.op() == Op::Reduce && u.src()[1..].contains(round))?;
    sum.src()[1..].iter().rfind(|r| kind_of(r) == AxisKind::Reduce).cloned()
}

fn opt(kind: AxisKind, axis: usize, amount: usize) -> Opt {
    match kind {
        AxisKind::Local => Opt::Local { axis, amount },
        AxisKind::Unroll => Opt::Unroll { axis, amount },
        _ => Opt::Upcast { axis, amount },
    }
}
