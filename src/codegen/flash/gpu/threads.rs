//! The products of an attention in f32 on GPUs, without a matrix unit.
//!
//! Eight neighbouring threads share some queries: each has every eighth key of a block, and a part of the columns. All
//! operands are in workgroup memory as they are in buffers, a row after the other, and are read as vectors along it.
//! The weights pass through workgroup memory too. Values are copied while scores are computed, and the next block's keys
//! while values are added.

use super::super::list::{plus, sum, times};
use super::super::parts::Parts;
use super::forward::{Group, Kernel, Products, Sofar};
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
    let thread = thread(THREADS);
    let (row, across) = (quotient(&thread, ACROSS), remainder(&thread, ACROSS));
    let scores = Vector {
        queries: vec![0; (plan.keys / ACROSS) as usize],
        along: (0..plan.keys).step_by(ACROSS as usize).collect(),
    };
    let sums = (0..p.columns / MULTIPLE)
        .map(|c| Vector { queries: vec![0; VECTOR as usize], along: (0..VECTOR).map(|e| c * MULTIPLE + e).collect() });
    let share = Share {
        threads: THREADS,
        rows: plan.rows(),
        keys: plan.keys,
        row,
        key: across.clone(),
        column: times(&across, VECTOR),
        tiles: (0..plan.queries).map(|i| vec![i * THREADS / ACROSS]).collect(),
        scores: vec![scores],
        sums: sums.collect(),
        neighbours: ACROSS as u16,
    };
    let lens = plan.lens();
    let areas = [0, 1, 2, 3].map(|k| UOp::local(k as u32, DType::of(Scalar::F32), lens[k] as usize));
    Kernel::new(p, target, share).write(&mut Threads { plan, areas })
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
        let scores = self.scores(k);
        for (t, (score, sofar)) in scores.iter().zip(sofar).enumerate() {
            let weights = k.weights(g, sofar, (t, std::slice::from_ref(score)), block, hides)?;
            self.keep(k, t, &weights);
        }
        k.list.arrive();
        let next = plus(block, 1);
        self.copy(k, g, 1, &next, Some(&next.lt(&g.end)));
        k.list.commit();
        self.add_values(k, sofar);
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

    /// A vector of a row in workgroup memory: the row of the thread and so many more, this vector in it.
    fn vector(&self, k: &mut Kernel, which: usize, (row, more): (&UOp, i64), column: &UOp) -> UOp {
        let pitch = self.plan.pitches[which];
        let at = plus(&sum(&times(row, pitch), column), more * pitch);
        k.list.load(&self.areas[which], &at, VECTOR as u16)
    }

    /// Of each query, the products with the thread's keys.
    fn scores(&self, k: &mut Kernel) -> Vec<UOp> {
        let (row, key, keys) = (k.share.row.clone(), k.share.key.clone(), self.plan.keys / ACROSS);
        let rows: Vec<i64> = k.share.tiles.iter().map(|t| t[0]).collect();
        let zero = UOp::constant(DType::of(Scalar::F32).vec(keys as u16), 0.0);
        let registers: Vec<UOp> = rows.iter().map(|_| k.list.register(&zero)).collect();
        let step = k.list.open(&int(k.p.depth_len / VECTOR));
        let column = times(&step, VECTOR);
        let read: Vec<UOp> = (0..keys).map(|j| self.vector(k, 1, (&key, j * ACROSS), &column)).collect();
        let of_keys = |x: u16| joined(read.iter().map(|v| v.gep(&[x])).collect::<Srcs>());
        let of_keys: Vec<UOp> = (0..VECTOR as u16).map(of_keys).collect();
        for (more, register) in rows.iter().zip(&registers) {
            let queries = self.vector(k, 0, (&row, *more), &column);
            let mut now = register.clone();
            for (x, keys) in (0..).zip(&of_keys) {
                let query = queries.gep(&[x]).splat(keys.dtype().lanes);
                now = k.list.now(Op::MulAcc, [query, keys.clone(), now]);
            }
            k.list.set(register, &now);
        }
        k.list.close();
        registers
    }

    /// Stores a query's weights.
    fn keep(&self, k: &mut Kernel, tile: usize, weights: &[UOp]) {
        let pitch = self.plan.pitches[3];
        let at = plus(&sum(&times(&k.share.row, pitch), &k.share.key), k.share.tiles[tile][0] * pitch);
        for e in 0..weights[0].dtype().lanes {
            k.list.store(&self.areas[3], &plus(&at, i64::from(e) * ACROSS), &weights[0].gep(&[e]));
        }
    }

    /// Adds a block's values with their weights.
    fn add_values(&self, k: &mut Kernel, sofar: &[Sofar]) {
        let (row, column) = (k.share.row.clone(), k.share.column.clone());
        let rows: Vec<i64> = k.share.tiles.iter().map(|t| t[0]).collect();
        let step = k.list.open(&int(self.plan.keys / VECTOR));
        let first = times(&step, VECTOR);
        let columns = k.share.sums.len() as i64;
        let read = |k: &mut Kernel, x: i64| -> Vec<UOp> {
            (0..columns).map(|c| self.vector(k, 2, (&first, x), &plus(&column, c * MULTIPLE))).collect()
        };
        let values: Vec<Vec<UOp>> = (0..VECTOR).map(|x| read(k, x)).collect();
        for (more, sofar) in rows.iter().zip(sofar) {
            let weights = self.vector(k, 3, (&row, *more), &first);
            for (c, register) in sofar.sums.iter().enumerate() {
                let mut now = register.clone();
                for (x, values) in (0..).zip(&values) {
                    let weight = weights.gep(&[x]).splat(VECTOR as u16);
                    now = k.list.now(Op::MulAcc, [weight, values[c].clone(), now]);
                }
                k.list.set(register, &now);
            }
        }
        k.list.close();
    }
}
