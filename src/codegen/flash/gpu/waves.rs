//! The products of an attention on GPUs whose matrix unit returns its results as it takes its first operand.
//!
//! The scores that the unit sums up are, as weights, the operand of the second product without leaving their threads.
//! Keys and values pass through workgroup memory: a block of them is copied while the block before it is multiplied.

use super::super::gradient::Gradient;
use super::super::list::{List, least, plus, sum, times};
use super::super::parts::{Operand, Parts};
use super::super::pieces;
use super::forward::{Group, Kernel, Products, Sofar};
use super::gradient;
use super::{PIECE, Rows, Share, Vector, copy, int, joined, quotient, remainder, thread, wide};
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
    let grid: i64 = p.outer.iter().map(|r| r.1).product::<i64>();
    // Two tiles share what is read of keys and values, if that leaves a workgroup to most units.
    let enough = 4 * grid * pieces(p.rows, 2 * i64::from(unit.m) * WAVES) >= 3 * i64::from(target.compute_units);
    let tiles = if enough && p.depth_len.max(p.columns) <= WIDE_TILES { 2 } else { 1 };
    let share = share(unit, tiles, BLOCK, p.columns)?;
    let lane = remainder(&thread(share.threads), i64::from(unit.lanes));
    let padding = PIECE / unit.a.size_bytes() as i64;
    // Padded rows have the pieces of one column of eight rows in different banks.
    let pitches = [p.depth_len + padding, p.columns + padding];
    let lens = pitches.map(|n| (2 * BLOCK * n) as usize);
    (lens.iter().sum::<usize>() * unit.a.size_bytes() <= target.local_bytes).then_some(())?;
    let area = |k: usize| UOp::local(k as u32, DType::of(unit.a), lens[k]);
    let unit = Unit { unit, lane, areas: [area(0), area(1)], pitches, block: BLOCK };
    let mut waves = Waves { unit, queries: Vec::new() };
    Kernel::new(p, target, share).write(&mut waves)
}

/// Others of a block of a gradient, and the widest rows of which a thread's share stays in registers.
const GRADIENT_BLOCK: i64 = 64;
pub(super) const GRADIENT_COLUMNS: i64 = 64;

/// The program of an attention's gradient.
pub(super) fn gradient_program(p: &Gradient, target: &Target) -> Option<Vec<UOp>> {
    let unit = unit(target, p.scores.row.scalar())?;
    let lens = [p.len_of(0), p.len_of(1)];
    let same = p.operands().all(|o| o.scalar() == unit.a);
    let fits = |n: i64| n % i64::from(unit.k) == 0 && (0..=GRADIENT_COLUMNS).contains(&n);
    (same && lens[0] > 0 && lens.iter().chain(p.sums.iter().map(|s| &s.columns)).all(|n| fits(*n))).then_some(())?;
    let vectors = |n: i64| share(unit, 1, GRADIENT_BLOCK, n).map(|s| s.sums);
    let sums = p.sums.iter().map(|s| vectors(s.columns)).collect::<Option<Vec<_>>>()?;
    let share = share(unit, 1, GRADIENT_BLOCK, p.sums.first()?.columns)?;
    let lane = remainder(&thread(share.threads), i64::from(unit.lanes));
    let padding = PIECE / unit.a.size_bytes() as i64;
    let pitches = lens.map(|n| n + padding);
    let areas = [0, 1].map(|k| (2 * GRADIENT_BLOCK * pitches[k]) as usize);
    (areas.iter().sum::<usize>() * unit.a.size_bytes() <= target.local_bytes).then_some(())?;
    let areas = [0, 1].map(|k| UOp::local(k as u32, DType::of(unit.a), areas[k]));
    let unit = Unit { unit, lane, areas, pitches, block: GRADIENT_BLOCK };
    let mut products = Gradients { unit, rows: [Vec::new(), Vec::new()] };
    gradient::Kernel::new(p, target, share, sums).write(&mut products)
}

struct Gradients {
    unit: Unit,
    /// The rows of both pairs as operands of the unit.
    rows: [Vec<Vec<UOp>>; 2],
}

impl gradient::Products for Gradients {
    fn start(&mut self, k: &mut gradient::Kernel, g: &gradient::Group) -> Option<()> {
        let p = k.p;
        let first = sum(&g.first, &k.share.row);
        for (n, pair) in [Some(&p.scores), p.results.as_ref()].into_iter().enumerate() {
            let Some(pair) = pair else { continue };
            let base = g.place.scalar(&pair.row.base)?;
            let rows = (&first, p.rows, k.share.rows);
            self.rows[n] = self.unit.operands(&mut k.list, (&pair.row, &base), rows, (1, pair.len));
        }
        Some(())
    }

    fn copy(&self, k: &mut gradient::Kernel, g: &gradient::Group, block: &UOp, there: &UOp) -> Option<()> {
        for n in 0..2 {
            let Some(from) = k.p.others_of(n) else { continue };
            let base = g.place.scalar(&from.base)?;
            let rows = self.unit.block_of(n, (from, &base), block, (k.p.others, k.p.len_of(n)));
            copy(&mut k.list, &k.thread, k.share.threads, &rows, Some(there));
        }
        Some(())
    }

    fn products(&self, k: &mut gradient::Kernel, which: usize, block: &UOp) -> Vec<Vec<UOp>> {
        self.unit.scores(&mut k.list, (which, k.p.len_of(which)), block, &self.rows[which])
    }

    fn add(&self, k: &mut gradient::Kernel, which: usize, block: &UOp, weights: &[Vec<UOp>], registers: &[Vec<UOp>]) {
        let weights: Vec<Vec<UOp>> = weights.iter().map(|w| self.unit.narrow(w)).collect();
        self.unit.add(&mut k.list, which, block, &weights, registers);
    }
}

/// What a thread holds of so many tiles of rows, a block of this length and sums of so many columns.
fn share(unit: &WmmaArg, tiles: i64, block: i64, columns: i64) -> Option<Share> {
    let (m, lanes) = (i64::from(unit.m), i64::from(unit.lanes));
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
        keys: block,
        row,
        key: along.clone(),
        column: along,
        tiles: (0..tiles).map(|t| rows.iter().map(|r| t * m + *r as i64).collect()).collect(),
        scores: vectors(block / i64::from(unit.n)),
        sums: vectors(columns / i64::from(unit.n)),
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

/// Rows in workgroup memory, two blocks of each operand, and the unit that multiplies them.
pub(super) struct Unit {
    pub unit: &'static WmmaArg,
    pub lane: UOp,
    pub areas: [UOp; 2],
    /// Elements between rows.
    pub pitches: [i64; 2],
    /// Rows of a block.
    pub block: i64,
}

struct Waves {
    unit: Unit,
    /// Queries as operands of the unit, for each tile and step.
    queries: Vec<Vec<UOp>>,
}

impl Products for Waves {
    fn start(&mut self, k: &mut Kernel, g: &Group) -> Option<()> {
        self.copy(k, g, &int(0), None);
        k.list.commit();
        let (first, tiles) = (sum(&g.first, &k.share.row), k.share.tiles.len() as i64);
        let rows = (&first, k.p.rows, k.share.rows);
        self.queries = self.unit.operands(&mut k.list, (&k.p.query, &g.bases[0]), rows, (tiles, k.p.depth_len));
        Some(())
    }

    fn block(&mut self, k: &mut Kernel, g: &Group, sofar: &[Sofar], block: &UOp, hides: bool) -> Option<()> {
        k.list.arrive();
        let next = plus(block, 1);
        self.copy(k, g, &next, Some(&next.lt(&g.end)));
        k.list.commit();
        let scores = self.unit.scores(&mut k.list, (0, k.p.depth_len), block, &self.queries);
        let mut weights = Vec::new();
        for (t, (scores, sofar)) in scores.iter().zip(sofar).enumerate() {
            let all = k.weights(g, sofar, (t, scores), block, hides)?;
            weights.push(self.unit.narrow(&all));
        }
        let sums: Vec<Vec<UOp>> = sofar.iter().map(|s| s.sums.clone()).collect();
        self.unit.add(&mut k.list, 1, block, &weights, &sums);
        Some(())
    }
}

impl Waves {
    /// Copies a block of keys and values, where the gate holds.
    fn copy(&self, k: &mut Kernel, g: &Group, block: &UOp, there: Option<&UOp>) {
        let p = k.p;
        let operands = [(Some(&p.key), p.depth_len), (p.value.as_ref(), p.columns)];
        for (n, (from, columns)) in operands.into_iter().enumerate() {
            let Some(from) = from else { continue };
            let rows = self.unit.block_of(n, (from, &g.bases[n + 1]), block, (p.keys, columns));
            copy(&mut k.list, &k.thread, k.share.threads, &rows, there);
        }
    }
}

impl Unit {
    /// A block of an operand's rows, of which there are so many in all, to be copied.
    pub(super) fn block_of<'a>(
        &'a self,
        n: usize,
        (from, base): (&'a Operand, &'a UOp),
        block: &UOp,
        (all, columns): (i64, i64),
    ) -> Rows<'a> {
        Rows {
            from,
            base,
            first: times(block, self.block),
            count: self.block,
            all,
            columns,
            area: &self.areas[n],
            at: times(&block.binary(Op::And, &int(1)), self.block),
            pitch: self.pitches[n],
        }
    }

    /// The thread's share of rows as operands of the unit, for each tile and step. There are `all` rows, of which a
    /// workgroup has `rows`.
    pub(super) fn operands(
        &self,
        list: &mut List,
        (q, base): (&Operand, &UOp),
        (first_row, all, rows): (&UOp, i64, i64),
        (tiles, len): (i64, i64),
    ) -> Vec<Vec<UOp>> {
        let unit = self.unit;
        let spread = unit.a_spread;
        let beside = spread.col.iter().enumerate().take_while(|(k, b)| **b == TileBit::E(*k as u8)).count();
        let run = (1 << beside).min(q.piece(8));
        let [across, along] = q.strides;
        let lane_column = times(&wide(&coordinate(spread.col, Some(&self.lane), None)), along);
        let operand = |tile: i64, step: i64| {
            let part = |e: usize| {
                let (row, column) = spread.place(0, e);
                let (row, column) = (tile * i64::from(unit.m) + row as i64, step * i64::from(unit.k) + column as i64);
                let at = if all % rows == 0 {
                    let first = sum(base, &sum(&times(&wide(first_row), across), &lane_column));
                    plus(&first, row * across + column * along)
                } else {
                    let row = least(&plus(first_row, row), &int(all - 1));
                    let first = sum(base, &sum(&times(&wide(&row), across), &lane_column));
                    plus(&first, column * along)
                };
                let at = q.address.index(&at);
                UOp::new(Op::Load, DType::of(unit.a).vec(run as u16), [at], Arg::None)
            };
            joined((0..usize::from(spread.elements())).step_by(run as usize).map(part).collect::<Srcs>())
        };
        let steps = len / i64::from(unit.k);
        let all: Vec<Vec<UOp>> = (0..tiles).map(|t| (0..steps).map(|s| operand(t, s)).collect()).collect();
        all.iter().flatten().for_each(|u| {
            list.value(u);
        });
        all
    }

    /// Weights as operands of the unit.
    pub(super) fn narrow(&self, weights: &[UOp]) -> Vec<UOp> {
        weights.iter().map(|w| w.cast(w.dtype().with_scalar(self.unit.a))).collect()
    }

    /// The address in a block of what a lane supplies to `load_matrix`. Rows are lines of the operand, or `turned`
    /// steps.
    fn start_of_rows(&self, which: usize, turned: bool, block: &UOp) -> UOp {
        let (pitch, b) = (self.pitches[which], self.unit.b_spread);
        let (row, matrix) = (remainder(&self.lane, 8), quotient(&self.lane, 8));
        // The lane and the element that hold the start of the row.
        let (holder, low) = if turned { (quotient(&row, 2), remainder(&row, 2)) } else { (times(&row, 4), int(0)) };
        let element = sum(&low, &times(&matrix, 2));
        let at = |bits| coordinate(bits, Some(&holder), Some(&element));
        let (line, step) = (at(b.row), at(b.col));
        let (row, column) = if turned { (step, line) } else { (line, step) };
        sum(&sum(&times(&row, pitch), &column), &times(&block.binary(Op::And, &int(1)), self.block * pitch))
    }

    fn product(&self, list: &mut List, a: &UOp, b: &UOp, to: &UOp) -> UOp {
        let arg = Arg::Wmma(Arc::new(*self.unit));
        list.listed(UOp::new(Op::Wmma, to.dtype(), [a.clone(), b.clone(), to.clone()], arg))
    }

    /// The products of rows with a block's, along so many elements, for each tile of both.
    pub(super) fn scores(
        &self,
        list: &mut List,
        (which, len): (usize, i64),
        block: &UOp,
        rows: &[Vec<UOp>],
    ) -> Vec<Vec<UOp>> {
        let (tiles, steps) = (self.block / i64::from(self.unit.n), len / i64::from(self.unit.k));
        let zero = UOp::constant(DType::of(Scalar::F32).vec(self.unit.c_spread.elements()), 0.0);
        let mut all = vec![vec![zero; tiles as usize]; rows.len()];
        let distance = i64::from(self.unit.n) * self.pitches[which];
        let apart = [distance, i64::from(self.unit.k)];
        self.products(list, (which, false, block), rows, apart, (tiles, steps), &mut all);
        all
    }

    /// Adds a block's rows with their weights to what registers hold.
    pub(super) fn add(&self, list: &mut List, which: usize, block: &UOp, weights: &[Vec<UOp>], registers: &[Vec<UOp>]) {
        let (tiles, steps) = (registers[0].len() as i64, self.block / i64::from(self.unit.k));
        let mut all: Vec<Vec<UOp>> = registers.to_vec();
        let apart = [i64::from(self.unit.n), i64::from(self.unit.k) * self.pitches[which]];
        self.products(list, (which, true, block), weights, apart, (tiles, steps), &mut all);
        for (register, sum) in registers.iter().flatten().zip(all.iter().flatten()) {
            list.set(register, sum);
        }
    }

    /// Adds products of the first operands and a block's rows. A step is done for all tiles before the next one, so
    /// that sums that depend on each other are far apart, and rows are read some products ahead.
    fn products(
        &self,
        list: &mut List,
        (which, turned, block): (usize, bool, &UOp),
        first: &[Vec<UOp>],
        [tile_apart, step_apart]: [i64; 2],
        (tiles, steps): (i64, i64),
        all: &mut [Vec<UOp>],
    ) {
        let (from, ahead) = (self.start_of_rows(which, turned, block), (AHEAD / all.len() as i64) as usize);
        let mut order = (0..steps).flat_map(|s| (0..tiles).map(move |j| (s, j)));
        let mut read: VecDeque<(i64, i64, UOp)> = VecDeque::new();
        loop {
            while read.len() <= ahead
                && let Some((s, j)) = order.next()
            {
                let at = plus(&from, j * tile_apart + s * step_apart);
                let rows = list.load_matrix(&self.areas[which], &at, self.unit.b_spread.elements(), turned);
                read.push_back((s, j, rows));
            }
            let Some((s, j, rows)) = read.pop_front() else { return };
            for (sums, first) in all.iter_mut().zip(first) {
                let sum = &mut sums[j as usize];
                *sum = self.product(list, &first[s as usize], &rows, sum);
            }
        }
    }
}
