//! The products of an attention on GPUs whose matrix unit returns its results as it takes its first operand.
//!
//! The scores that the unit sums up are, as weights, the operand of the second product without leaving their threads.
//! Keys and values pass through workgroup memory: a block of them is copied while the block before it is multiplied.

use super::gpu::{
    Group, Kernel, PIECE, Products, Rows, Share, Sofar, Vector, int, joined, quotient, remainder, thread, wide,
};
use super::list::{least, plus, sum, times};
use super::parts::Parts;
use super::pieces;
use crate::Target;
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, TileBit, UOp, WmmaArg};
use std::collections::VecDeque;
use std::sync::Arc;

/// Keys of a block, between two rescalings.
const BLOCK: i64 = 64;
/// Waves of a workgroup.
const WAVES: i64 = 4;
/// The widest rows of which a wave has registers for two tiles.
const WIDE_TILES: i64 = 64;
/// Tiles of products between reading an operand and using it.
const AHEAD: i64 = 4;
/// The widest rows of queries and values of which a thread's share stays in registers.
pub(super) const COLUMNS: i64 = 128;

/// The unit that makes attentions of this type possible.
pub(super) fn unit(target: &Target, of: Scalar) -> Option<&'static WmmaArg> {
    let reads_its_results = |u: &&WmmaArg| {
        let (a, c) = (u.a_spread, u.c_spread);
        let shape = u.k == u.n && u.lanes == 32 && u.b_spread.elements() == 8;
        u.a == of && of.size_bytes() == 2 && u.acc == Scalar::F32 && !u.from_memory && shape && a == c
    };
    target.tensor_cores.iter().find(reads_its_results).filter(|_| target.matrix_loads)
}

/// The program of an attention.
pub(super) fn program(p: &Parts, target: &Target) -> Option<Vec<UOp>> {
    let unit = unit(target, p.query.scalar())?;
    let same = [&p.key, p.value.as_ref()?, p.out.as_ref()?].iter().all(|o| o.scalar() == unit.a);
    let fits = |n: i64, tile: u16| n % i64::from(tile) == 0 && (1..=COLUMNS).contains(&n);
    (same && fits(p.depth_len, unit.k) && fits(p.columns, unit.n)).then_some(())?;
    let share = share(unit, p, target)?;
    let lane = remainder(&thread(share.threads), i64::from(unit.lanes));
    let padding = PIECE / unit.a.size_bytes() as i64;
    // Padded rows have the pieces of one column of eight rows in different banks.
    let pitches = [p.depth_len + padding, p.columns + padding];
    let lens = pitches.map(|n| (2 * BLOCK * n) as usize);
    (lens.iter().sum::<usize>() * unit.a.size_bytes() <= target.local_bytes).then_some(())?;
    let area = |k: usize| UOp::local(k as u32, DType::of(unit.a), lens[k]);
    let mut waves = Waves { unit, lane, areas: [area(0), area(1)], pitches, queries: Vec::new() };
    Kernel::new(p, target, share).write(&mut waves)
}

fn share(unit: &WmmaArg, p: &Parts, target: &Target) -> Option<Share> {
    let (m, lanes) = (i64::from(unit.m), i64::from(unit.lanes));
    let grid: i64 = p.outer.iter().map(|r| r.1).product::<i64>();
    // Two tiles share what is read of keys and values, if that leaves a workgroup to most units.
    let enough = 4 * grid * pieces(p.rows, 2 * m * WAVES) >= 3 * i64::from(target.compute_units);
    let tiles = if enough && p.depth_len.max(p.columns) <= WIDE_TILES { 2 } else { 1 };
    let spread = unit.c_spread;
    let place: Vec<(usize, usize)> = (0..usize::from(spread.elements())).map(|e| spread.place(0, e)).collect();
    let mut rows: Vec<usize> = place.iter().map(|p| p.0).collect();
    rows.sort_unstable();
    rows.dedup();
    let query = |row: usize| rows.iter().position(|r| *r == row).unwrap_or(0) as u16;
    let vectors = |count: i64| {
        let vector = |j: i64| Vector {
            queries: place.iter().map(|p| query(p.0)).collect(),
            along: place.iter().map(|p| j * i64::from(unit.n) + p.1 as i64).collect(),
        };
        (0..count).map(vector).collect()
    };
    // Threads of the same row are neighbours.
    let bits: Vec<u8> = spread.col.iter().filter_map(|b| if let TileBit::L(k) = b { Some(*k) } else { None }).collect();
    bits.iter().enumerate().all(|(k, b)| usize::from(*b) == k).then_some(())?;
    let thread = thread(WAVES * lanes);
    let lane = remainder(&thread, lanes);
    let row = sum(&times(&quotient(&thread, lanes), tiles * m), &coordinate(spread.row, Some(&lane), None));
    let along = coordinate(spread.col, Some(&lane), None);
    Some(Share {
        threads: WAVES * lanes,
        rows: tiles * m * WAVES,
        keys: BLOCK,
        row,
        key: along.clone(),
        column: along,
        tiles: (0..tiles).map(|t| rows.iter().map(|r| t * m + *r as i64).collect()).collect(),
        scores: vectors(BLOCK / i64::from(unit.n)),
        sums: vectors(p.columns / i64::from(unit.n)),
        neighbours: 1 << bits.len(),
    })
}

/// What the numbers of the lane and of the element say of a coordinate in a tile.
fn coordinate(bits: &[TileBit], lane: Option<&UOp>, element: Option<&UOp>) -> UOp {
    let part = |(j, bit): (usize, &TileBit)| {
        let (from, k) = match bit {
            TileBit::L(k) => (lane?, k),
            TileBit::E(k) => (element?, k),
        };
        let bit = from.binary(Op::Shr, &int(i64::from(*k))).binary(Op::And, &int(1));
        Some(bit.binary(Op::Shl, &int(j as i64)))
    };
    bits.iter().enumerate().filter_map(part).reduce(|a, b| sum(&a, &b)).unwrap_or_else(|| int(0))
}

struct Waves {
    unit: &'static WmmaArg,
    lane: UOp,
    /// Keys and values in workgroup memory, two blocks of each, and elements between rows.
    areas: [UOp; 2],
    pitches: [i64; 2],
    /// Queries as operands of the unit, for each tile and step.
    queries: Vec<Vec<UOp>>,
}

impl Products for Waves {
    fn start(&mut self, k: &mut Kernel, g: &Group) -> Option<()> {
        self.copy(k, g, &int(0), None);
        k.list.commit();
        self.queries = self.operands(k, g);
        Some(())
    }

    fn block(&mut self, k: &mut Kernel, g: &Group, sofar: &[Sofar], block: &UOp, hides: bool) -> Option<()> {
        k.list.arrive();
        let next = plus(block, 1);
        self.copy(k, g, &next, Some(&next.lt(&g.end)));
        k.list.commit();
        let scores = self.scores(k, block);
        let mut weights = Vec::new();
        for (t, (scores, sofar)) in scores.iter().zip(sofar).enumerate() {
            let all = k.weights(g, sofar, (t, scores), block, hides)?;
            weights.push(all.iter().map(|w| w.cast(w.dtype().with_scalar(self.unit.a))).collect());
        }
        self.add_values(k, sofar, block, &weights);
        Some(())
    }
}

impl Waves {
    /// Copies a block of keys and values, where the gate holds.
    fn copy(&self, k: &mut Kernel, g: &Group, block: &UOp, there: Option<&UOp>) {
        let (p, at) = (k.p, times(&block.binary(Op::And, &int(1)), BLOCK));
        let operands = [(Some(&p.key), p.depth_len), (p.value.as_ref(), p.columns)];
        for (n, (from, columns)) in operands.into_iter().enumerate() {
            let Some(from) = from else { continue };
            let rows = Rows {
                from,
                base: &g.bases[n + 1],
                first: times(block, BLOCK),
                count: BLOCK,
                all: p.keys,
                columns,
                area: &self.areas[n],
                at: at.clone(),
                pitch: self.pitches[n],
            };
            k.copy(&rows, there);
        }
    }

    /// The queries of the wave as operands of the unit.
    fn operands(&self, k: &mut Kernel, g: &Group) -> Vec<Vec<UOp>> {
        let (q, unit, rows) = (&k.p.query, self.unit, k.p.rows);
        let spread = unit.a_spread;
        let beside = spread.col.iter().enumerate().take_while(|(k, b)| **b == TileBit::E(*k as u8)).count();
        let run = (1 << beside).min(q.piece(8));
        let first_row = sum(&g.first, &k.share.row);
        let [across, along] = q.strides;
        let lane_column = times(&wide(&coordinate(spread.col, Some(&self.lane), None)), along);
        let operand = |tile: i64, step: i64| {
            let part = |e: usize| {
                let (row, column) = spread.place(0, e);
                let (row, column) = (tile * i64::from(unit.m) + row as i64, step * i64::from(unit.k) + column as i64);
                let at = if rows % k.share.rows == 0 {
                    let first = sum(&g.bases[0], &sum(&times(&wide(&first_row), across), &lane_column));
                    plus(&first, row * across + column * along)
                } else {
                    let row = least(&plus(&first_row, row), &int(rows - 1));
                    let first = sum(&g.bases[0], &sum(&times(&wide(&row), across), &lane_column));
                    plus(&first, column * along)
                };
                let at = q.address.index(&at);
                UOp::new(Op::Load, DType::of(unit.a).vec(run as u16), [at], Arg::None)
            };
            joined((0..usize::from(spread.elements())).step_by(run as usize).map(part).collect::<Srcs>())
        };
        let steps = k.p.depth_len / i64::from(unit.k);
        let all = (0..k.share.tiles.len() as i64).map(|t| (0..steps).map(|s| operand(t, s)).collect::<Vec<_>>());
        let all: Vec<Vec<UOp>> = all.collect();
        all.iter().flatten().for_each(|u| {
            k.list.value(u);
        });
        all
    }

    /// The address in a block of keys or values of what a lane supplies to `load_matrix`.
    fn start_of_rows(&self, which: usize, block: &UOp) -> UOp {
        let (pitch, b) = (self.pitches[which], self.unit.b_spread);
        let (row, matrix) = (remainder(&self.lane, 8), quotient(&self.lane, 8));
        // The lane and the element that hold the start of the row. Rows of keys are lines of the operand, rows of values
        // are steps.
        let (holder, low) = if which == 0 { (times(&row, 4), int(0)) } else { (quotient(&row, 2), remainder(&row, 2)) };
        let element = sum(&low, &times(&matrix, 2));
        let at = |bits| coordinate(bits, Some(&holder), Some(&element));
        let (line, step) = (at(b.row), at(b.col));
        let (row, column) = if which == 0 { (line, step) } else { (step, line) };
        sum(&sum(&times(&row, pitch), &column), &times(&block.binary(Op::And, &int(1)), BLOCK * pitch))
    }

    fn product(&self, k: &mut Kernel, a: &UOp, b: &UOp, to: &UOp) -> UOp {
        let arg = Arg::Wmma(Arc::new(*self.unit));
        k.list.listed(UOp::new(Op::Wmma, to.dtype(), [a.clone(), b.clone(), to.clone()], arg))
    }

    /// The products of queries and keys, for each tile of queries and of keys.
    fn scores(&self, k: &mut Kernel, block: &UOp) -> Vec<Vec<UOp>> {
        let (tiles, steps) = (BLOCK / i64::from(self.unit.n), k.p.depth_len / i64::from(self.unit.k));
        let zero = UOp::constant(DType::of(Scalar::F32).vec(self.unit.c_spread.elements()), 0.0);
        let mut all = vec![vec![zero; tiles as usize]; self.queries.len()];
        let distance = i64::from(self.unit.n) * self.pitches[0];
        self.products(k, (0, block, &self.queries), [distance, i64::from(self.unit.k)], (tiles, steps), &mut all);
        all
    }

    /// Adds a block's values with their weights.
    fn add_values(&self, k: &mut Kernel, sofar: &[Sofar], block: &UOp, weights: &[Vec<UOp>]) {
        let (tiles, steps) = (k.p.columns / i64::from(self.unit.n), BLOCK / i64::from(self.unit.k));
        let mut all: Vec<Vec<UOp>> = sofar.iter().map(|s| s.sums.clone()).collect();
        let distance = i64::from(self.unit.k) * self.pitches[1];
        self.products(k, (1, block, weights), [i64::from(self.unit.n), distance], (tiles, steps), &mut all);
        for (register, sum) in sofar.iter().flat_map(|s| &s.sums).zip(all.iter().flatten()) {
            k.list.set(register, sum);
        }
    }

    /// Adds products of the first operands and rows of keys or values. A step is done for all tiles before the next one,
    /// so that sums that depend on each other are far apart, and rows are read some products ahead.
    fn products(
        &self,
        k: &mut Kernel,
        (which, block, first): (usize, &UOp, &[Vec<UOp>]),
        [tile_apart, step_apart]: [i64; 2],
        (tiles, steps): (i64, i64),
        all: &mut [Vec<UOp>],
    ) {
        let (from, ahead) = (self.start_of_rows(which, block), (AHEAD / all.len() as i64) as usize);
        let mut order = (0..steps).flat_map(|s| (0..tiles).map(move |j| (s, j)));
        let mut read: VecDeque<(i64, i64, UOp)> = VecDeque::new();
        loop {
            while read.len() <= ahead
                && let Some((s, j)) = order.next()
            {
                let at = plus(&from, j * tile_apart + s * step_apart);
                let rows = k.list.load_matrix(&self.areas[which], &at, self.unit.b_spread.elements(), which == 1);
                read.push_back((s, j, rows));
            }
            let Some((s, j, rows)) = read.pop_front() else { return };
            for (sums, first) in all.iter_mut().zip(first) {
                let sum = &mut sums[j as usize];
                *sum = self.product(k, &first[s as usize], &rows, sum);
            }
        }
    }
}
