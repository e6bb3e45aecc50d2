//! The products of an attention in f32 on GPUs, without a matrix unit.
//!
//! Eight neighbouring threads share some queries: each has every eighth key of a block, and a part of the columns. All
//! operands are in workgroup memory as they are in buffers, a row after the other, and are read as vectors along it.
//! The weights pass through workgroup memory too. Values are copied while scores are computed, and the next block's
//! keys while values are added.

use super::super::gradient::Gradient;
use super::super::list::{List, plus, sum, times};
use super::super::parts::Parts;
use super::forward::{Group, Kernel, Products, Sofar};
use super::gradient;
use super::{Rows, Share, Vector, copy, int, joined, quotient, remainder, thread};
use crate::Target;
use doorbell_uop::{DType, Op, Scalar, Srcs, UOp};

const THREADS: i64 = 128;
/// Threads that share queries.
const ACROSS: i64 = 8;
/// Elements of a vector in workgroup memory.
const VECTOR: i64 = 4;
/// What a row of the values is a multiple of: a vector of each of the threads that share queries.
pub(super) const MULTIPLE: i64 = ACROSS * VECTOR;
/// The widest rows of queries and values.
pub(super) const COLUMNS: i64 = 128;

/// What a workgroup takes.
#[derive(Clone, Copy)]
struct Plan {
    /// Queries of a thread.
    queries: i64,
    /// Keys of a block.
    keys: i64,
    /// Elements between rows of queries, keys, values and weights: neighbours are in different banks.
    pitches: [i64; 4],
}

impl Plan {
    fn rows(&self) -> i64 {
        self.queries * THREADS / ACROSS
    }
    /// Elements of the areas of queries, keys, values and weights.
    fn lens(&self) -> [i64; 4] {
        let rows = [self.rows(), self.keys, self.keys, self.rows()];
        [0, 1, 2, 3].map(|k| rows[k] * self.pitches[k])
    }
    /// The one that reads least and fits.
    fn of(depth: i64, columns: i64, target: &Target) -> Option<Plan> {
        let fits = |n: i64| n % MULTIPLE == 0 && (1..=COLUMNS).contains(&n);
        (fits(depth) && fits(columns)).then_some(())?;
        let plan = |(queries, keys)| {
            let pitches = [depth + VECTOR, depth + VECTOR, columns, keys + 2 * VECTOR];
            Plan { queries, keys, pitches }
        };
        let most = if columns <= 64 { 8 } else { 4 };
        let bytes = |p: &Plan| p.lens().iter().sum::<i64>() as usize * Scalar::F32.size_bytes();
        let all = [(8, 64), (4, 64), (4, 32), (2, 32)].map(plan).into_iter();
        all.filter(|p| p.queries <= most).find(|p| bytes(p) <= target.local_bytes)
    }
}

/// The widest rows of queries and values that a workgroup of this target has room for.
pub(super) fn most(target: &Target) -> Option<i64> {
    (1..=COLUMNS / MULTIPLE).rev().map(|n| n * MULTIPLE).find(|n| Plan::of(*n, *n, target).is_some())
}

/// The program of an attention.
pub(super) fn program(p: &Parts, target: &Target) -> Option<Vec<UOp>> {
    let f32s = [&p.query, &p.key, p.value.as_ref()?, p.out.as_ref()?].iter().all(|o| o.scalar() == Scalar::F32);
    let plan = Plan::of(p.depth_len, p.columns, target).filter(|_| f32s)?;
    let share = share(plan.queries, plan.keys, p.columns);
    let lens = plan.lens();
    let areas = [0, 1, 2, 3].map(|k| UOp::local(k as u32, DType::of(Scalar::F32), lens[k] as usize));
    Kernel::new(p, target, share).write(&mut Threads { plan, areas })
}

/// What a thread holds of so many rows, a block of this length and sums of so many columns.
fn share(rows: i64, keys: i64, columns: i64) -> Share {
    let thread = thread(THREADS);
    let (row, across) = (quotient(&thread, ACROSS), remainder(&thread, ACROSS));
    let scores =
        Vector { queries: vec![0; (keys / ACROSS) as usize], along: (0..keys).step_by(ACROSS as usize).collect() };
    let sums = (0..columns / MULTIPLE)
        .map(|c| Vector { queries: vec![0; VECTOR as usize], along: (0..VECTOR).map(|e| c * MULTIPLE + e).collect() });
    Share {
        threads: THREADS,
        rows: rows * THREADS / ACROSS,
        keys,
        row,
        key: across.clone(),
        column: times(&across, VECTOR),
        tiles: (0..rows).map(|i| vec![i * THREADS / ACROSS]).collect(),
        scores: vec![scores],
        sums: sums.collect(),
        neighbours: ACROSS as u16,
    }
}

/// What a workgroup takes of a gradient: rows of a thread, others of a block, elements between rows of both pairs and
/// of weights.
#[derive(Clone, Copy)]
struct GradientPlan {
    rows: i64,
    keys: i64,
    pitches: [i64; 2],
    weights: i64,
}

impl GradientPlan {
    /// Elements of the areas: rows and two blocks of others of each pair, weights.
    fn lens(&self) -> [i64; 5] {
        let (rows, [a, b]) = (self.rows * THREADS / ACROSS, self.pitches);
        [rows * a, rows * b, 2 * self.keys * a, 2 * self.keys * b, rows * self.weights]
    }
    /// The one that reads least and fits.
    fn of(lens: [i64; 2], target: &Target) -> Option<GradientPlan> {
        let fits = |n: i64| n % MULTIPLE == 0 && (0..=COLUMNS).contains(&n);
        lens.iter().all(|n| fits(*n)).then_some(())?;
        let plan = |(rows, keys)| {
            let pitches = lens.map(|n| n + VECTOR);
            GradientPlan { rows, keys, pitches, weights: keys + 2 * VECTOR }
        };
        let most = if lens[0].max(lens[1]) <= 64 { 4 } else { 2 };
        let bytes = |p: &GradientPlan| p.lens().iter().sum::<i64>() as usize * Scalar::F32.size_bytes();
        let all = [(4, 64), (4, 32), (2, 32), (2, 16), (1, 16)].map(plan).into_iter();
        all.filter(|p| p.rows <= most).find(|p| bytes(p) <= target.local_bytes)
    }
}

/// The widest rows of queries and values of whose gradient a workgroup of this target has room for.
pub(super) fn most_of_gradients(target: &Target) -> i64 {
    let widths = (1..=COLUMNS / MULTIPLE).rev().map(|n| n * MULTIPLE);
    widths.into_iter().find(|n| GradientPlan::of([*n; 2], target).is_some()).unwrap_or(0)
}

/// The program of an attention's gradient.
pub(super) fn gradient_program(p: &Gradient, target: &Target) -> Option<Vec<UOp>> {
    let lens = [p.len_of(0), p.len_of(1)];
    p.operands().all(|o| o.scalar() == Scalar::F32).then_some(())?;
    let columns = p.sums.iter().map(|s| s.columns);
    (lens[0] > 0 && columns.clone().all(|n| n % MULTIPLE == 0)).then_some(())?;
    let plan = GradientPlan::of(lens, target)?;
    let of = |columns: i64| share(plan.rows, plan.keys, columns);
    let sums = columns.clone().map(|n| of(n).sums).collect();
    let areas = plan.lens();
    let areas = [0, 1, 2, 3, 4].map(|k| UOp::local(k as u32, DType::of(Scalar::F32), areas[k] as usize));
    let share = of(p.sums.first()?.columns);
    gradient::Kernel::new(p, target, share, sums).write(&mut Gradients { plan, areas })
}

struct Gradients {
    plan: GradientPlan,
    /// Rows of both pairs, others of both pairs, weights.
    areas: [UOp; 5],
}

impl Gradients {
    /// The first row of a block of others.
    fn start_of(&self, block: &UOp) -> UOp {
        times(&block.binary(Op::And, &int(1)), self.plan.keys)
    }
}

impl gradient::Products for Gradients {
    fn start(&mut self, k: &mut gradient::Kernel, g: &gradient::Group) -> Option<()> {
        let p = k.p;
        for (n, pair) in [Some(&p.scores), p.results.as_ref()].into_iter().enumerate() {
            let Some(pair) = pair else { continue };
            let rows = Rows {
                from: &pair.row,
                base: &g.place.scalar(&pair.row.base)?,
                first: g.first.clone(),
                count: k.share.rows,
                all: p.rows,
                columns: pair.len,
                area: &self.areas[n],
                at: int(0),
                pitch: self.plan.pitches[n],
            };
            copy(&mut k.list, &k.thread, THREADS, &rows, None);
        }
        Some(())
    }

    fn copy(&self, k: &mut gradient::Kernel, g: &gradient::Group, block: &UOp, there: &UOp) -> Option<()> {
        for n in 0..2 {
            let Some(from) = k.p.others_of(n) else { continue };
            let rows = Rows {
                from,
                base: &g.place.scalar(&from.base)?,
                first: times(block, self.plan.keys),
                count: self.plan.keys,
                all: k.p.others,
                columns: k.p.len_of(n),
                area: &self.areas[2 + n],
                at: self.start_of(block),
                pitch: self.plan.pitches[n],
            };
            copy(&mut k.list, &k.thread, THREADS, &rows, Some(there));
        }
        Some(())
    }

    fn products(&self, k: &mut gradient::Kernel, which: usize, block: &UOp) -> Vec<Vec<UOp>> {
        let pitch = self.plan.pitches[which];
        let rows = [(&self.areas[which], pitch), (&self.areas[2 + which], pitch)];
        let of = (&self.start_of(block), k.p.len_of(which));
        products(&mut k.list, &k.share, rows, of).into_iter().map(|x| vec![x]).collect()
    }

    fn add(&self, k: &mut gradient::Kernel, which: usize, block: &UOp, weights: &[Vec<UOp>], registers: &[Vec<UOp>]) {
        let area = (&self.areas[4], self.plan.weights);
        // Those of the last sum have been read.
        k.list.meet();
        for (t, weights) in weights.iter().enumerate() {
            keep(&mut k.list, &k.share, area, t, &weights[0]);
        }
        k.list.meet();
        let others = (&self.areas[2 + which], self.plan.pitches[which]);
        add(&mut k.list, &k.share, [area, others], &self.start_of(block), registers);
    }
}

struct Threads {
    plan: Plan,
    /// Queries, keys, values, weights.
    areas: [UOp; 4],
}

impl Products for Threads {
    fn start(&mut self, k: &mut Kernel, g: &Group) -> Option<()> {
        let p = k.p;
        let queries = Rows {
            from: &p.query,
            base: &g.bases[0],
            first: g.first.clone(),
            count: self.plan.rows(),
            all: p.rows,
            columns: p.depth_len,
            area: &self.areas[0],
            at: int(0),
            pitch: self.plan.pitches[0],
        };
        copy(&mut k.list, &k.thread, THREADS, &queries, None);
        self.copy(k, g, 1, &int(0), None);
        k.list.commit();
        Some(())
    }

    fn block(&mut self, k: &mut Kernel, g: &Group, sofar: &[Sofar], block: &UOp, hides: bool) -> Option<()> {
        k.list.arrive();
        self.copy(k, g, 2, block, None);
        k.list.commit();
        let Threads { plan, areas } = self;
        let (pitches, none) = (plan.pitches, int(0));
        let rows = [(&areas[0], pitches[0]), (&areas[1], pitches[1])];
        let scores = products(&mut k.list, &k.share, rows, (&none, k.p.depth_len));
        for (t, (score, sofar)) in scores.iter().zip(sofar).enumerate() {
            let weights = k.weights(g, sofar, (t, std::slice::from_ref(score)), block, hides)?;
            keep(&mut k.list, &k.share, (&self.areas[3], pitches[3]), t, &weights[0]);
        }
        k.list.arrive();
        let next = plus(block, 1);
        self.copy(k, g, 1, &next, Some(&next.lt(&g.end)));
        k.list.commit();
        let sums: Vec<Vec<UOp>> = sofar.iter().map(|s| s.sums.clone()).collect();
        let rows = [(&self.areas[3], pitches[3]), (&self.areas[2], pitches[2])];
        add(&mut k.list, &k.share, rows, &int(0), &sums);
        Some(())
    }
}

impl Threads {
    /// Copies a block of keys (1) or values (2), where the gate holds.
    fn copy(&self, k: &mut Kernel, g: &Group, which: usize, block: &UOp, there: Option<&UOp>) {
        let (from, columns) =
            if which == 1 { (Some(&k.p.key), k.p.depth_len) } else { (k.p.value.as_ref(), k.p.columns) };
        let Some(from) = from else { return };
        let rows = Rows {
            from,
            base: &g.bases[which],
            first: times(block, self.plan.keys),
            count: self.plan.keys,
            all: k.p.keys,
            columns,
            area: &self.areas[which],
            at: int(0),
            pitch: self.plan.pitches[which],
        };
        copy(&mut k.list, &k.thread, THREADS, &rows, there);
    }
}

/// Rows in workgroup memory, and the elements between them.
type Area<'a> = (&'a UOp, i64);

/// A vector of a row in workgroup memory: a thread's row and so many more, this vector in it.
fn vector(list: &mut List, (area, pitch): Area, (row, more): (&UOp, i64), column: &UOp) -> UOp {
    let at = plus(&sum(&times(row, pitch), column), more * pitch);
    list.load(area, &at, VECTOR as u16)
}

/// Of each of a thread's rows, the products with its part of a block of others, which start at this row.
fn products(list: &mut List, share: &Share, [rows, others]: [Area; 2], (start, len): (&UOp, i64)) -> Vec<UOp> {
    let (row, other, keys) = (share.row.clone(), sum(start, &share.key), share.keys / ACROSS);
    let zero = UOp::constant(DType::of(Scalar::F32).vec(keys as u16), 0.0);
    let registers: Vec<UOp> = share.tiles.iter().map(|_| list.register(&zero)).collect();
    let step = list.open(&int(len / VECTOR));
    let column = times(&step, VECTOR);
    let read: Vec<UOp> = (0..keys).map(|j| vector(list, others, (&other, j * ACROSS), &column)).collect();
    let of_others = |x: u16| joined(read.iter().map(|v| v.gep(&[x])).collect::<Srcs>());
    let of_others: Vec<UOp> = (0..VECTOR as u16).map(of_others).collect();
    for (tile, register) in share.tiles.iter().zip(&registers) {
        let mine = vector(list, rows, (&row, tile[0]), &column);
        let mut now = register.clone();
        for (x, others) in (0..).zip(&of_others) {
            let element = mine.gep(&[x]).splat(others.dtype().lanes);
            now = list.now(Op::MulAcc, [element, others.clone(), now]);
        }
        list.set(register, &now);
    }
    list.close();
    registers
}

/// Stores a row's weights.
fn keep(list: &mut List, share: &Share, (area, pitch): Area, tile: usize, weights: &UOp) {
    let at = plus(&sum(&times(&share.row, pitch), &share.key), share.tiles[tile][0] * pitch);
    for e in 0..weights.dtype().lanes {
        list.store(area, &plus(&at, i64::from(e) * ACROSS), &weights.gep(&[e]));
    }
}

/// Adds a block of others, which start at this row, with their weights to what registers hold for each tile.
fn add(list: &mut List, share: &Share, [weights, others]: [Area; 2], start: &UOp, sums: &[Vec<UOp>]) {
    let (row, column) = (share.row.clone(), share.column.clone());
    let step = list.open(&int(share.keys / VECTOR));
    let (first, columns) = (times(&step, VECTOR), sums[0].len() as i64);
    let other = sum(start, &first);
    let read = |list: &mut List, x: i64| -> Vec<UOp> {
        (0..columns).map(|c| vector(list, others, (&other, x), &plus(&column, c * MULTIPLE))).collect()
    };
    let values: Vec<Vec<UOp>> = (0..VECTOR).map(|x| read(list, x)).collect();
    for (tile, registers) in share.tiles.iter().zip(sums) {
        let weights = vector(list, weights, (&row, tile[0]), &first);
        for (c, register) in registers.iter().enumerate() {
            let mut now = register.clone();
            for (x, values) in (0..).zip(&values) {
                let weight = weights.gep(&[x]).splat(VECTOR as u16);
                now = list.now(Op::MulAcc, [weight, values[c].clone(), now]);
            }
            list.set(register, &now);
        }
    }
    list.close();
}
