//! The loops of an attention: tiles of queries, blocks of keys, and in each block scores, weights and weighted sums.
//!
//! Scratch memory of a tile, queries in lanes: its queries (depth x width), the scores and then the weights of a block
//! (block x width), what was summed so far (columns x width), and of each query the largest score and the sum of
//! weights.

use super::super::super::decomp;
use super::super::super::transpose::turned;
use super::super::list::{least, number, plus, sum, times};
use super::super::log_sum;
use super::super::parts::{Operand, Parts};
use super::super::pieces;
use super::super::value::{Lanes, spread, steps};
use super::tiles::{Block, F32, Source, Tile, Tiles, copies};
use super::{Shape, chunks};
use crate::Target;
use doorbell_uop::{Op, Scalar, UMap, UOp};

/// The sizes of tiles and blocks.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    lanes: u16,
    /// Vectors of queries in a tile.
    vectors: usize,
    /// Keys (or columns of the result) of a tile in registers.
    high: usize,
    /// Keys of a block, between two rescalings.
    block: i64,
    /// Work is cut into this many chunks, which cores take in turn.
    chunks: i64,
    /// Keys and values are copied to scratch memory, as f32 and dense, a block at a time.
    staged: [bool; 2],
}

impl Sizes {
    fn of(p: &Parts, target: &Target) -> Option<Sizes> {
        let shape = Shape::of(p.rows, target)?;
        let Shape { lanes, vectors, high } = shape;
        let width = shape.width();
        let staged = [p.key.is_crowded(p.depth_len), p.value.as_ref().is_some_and(|v| v.is_crowded(p.columns))];
        let room = (target.local_bytes / 4) as i64;
        let fixed = width * (p.depth_len + p.columns + 2);
        let extra = [(staged[0], p.depth_len), (staged[1], p.columns)].iter().filter(|s| s.0).map(|s| s.1).sum::<i64>();
        let masks = p.masks.len() as i64 * (width + i64::from(lanes));
        let fits = |block: &i64| fixed + block * (width + extra + masks) <= room;
        let block = [72, 48, 24].map(|b| b / high as i64 * high as i64).into_iter().find(fits)?;
        let tiles = pieces(p.rows, width) * p.outer.iter().map(|r| r.1).product::<i64>();
        let work = tiles * width * p.keys * (p.depth_len + p.columns) / if p.causal.is_some() { 2 } else { 1 };
        let chunks = chunks(tiles, work, target);
        Some(Sizes { lanes, vectors, high, block, chunks, staged })
    }
    /// Queries of a tile.
    fn width(&self) -> i64 {
        self.vectors as i64 * i64::from(self.lanes)
    }
}

struct Areas {
    queries: UOp,
    weights: UOp,
    sums: UOp,
    most: UOp,
    total: UOp,
    /// Keys and values of a block, where they are copied.
    staged: [Option<UOp>; 2],
    /// Of each mask: some rows of a block, and the whole block with queries in lanes.
    masks: Vec<[UOp; 2]>,
}

struct Kernel<'a> {
    p: &'a Parts,
    s: &'a Sizes,
    t: Tiles,
    areas: Areas,
}

/// The program of an attention.
pub(in super::super) fn program(p: &Parts, target: &Target) -> Option<Vec<UOp>> {
    let sizes = Sizes::of(p, target)?;
    Kernel::new(p, &sizes).write()
}

impl<'a> Kernel<'a> {
    fn new(p: &'a Parts, s: &'a Sizes) -> Kernel<'a> {
        let width = s.width();
        let mut n = 0;
        let mut area = |len: i64| {
            n += 1;
            UOp::local(n - 1, F32, len as usize)
        };
        let (queries, weights) = (area(p.depth_len * width), area(s.block * width));
        let (sums, most, total) = (area(p.columns * width), area(width), area(width));
        let mut staged = |k: usize, columns: i64| s.staged[k].then(|| area(s.block * columns));
        let staged = [staged(0, p.depth_len), staged(1, p.columns)];
        let lanes = i64::from(s.lanes);
        let masks = p.masks.iter().map(|_| [area(lanes * s.block), area(s.block * width)]).collect();
        let t = Tiles::new(s.lanes, s.vectors);
        Kernel { p, s, t, areas: Areas { queries, weights, sums, most, total, staged, masks } }
    }

    fn write(mut self) -> Option<Vec<UOp>> {
        let p = self.p;
        let (place, rows) = self.t.start(&p.outer, p.rows, self.s.chunks);
        let tile = Tile { place, rows };
        let base = tile.place.scalar(&p.query.base)?;
        self.t.take(&p.query, &base, &tile.rows, (&self.areas.queries, p.depth_len));
        self.t.fill(&self.areas.most, 1, f64::NEG_INFINITY);
        self.t.fill(&self.areas.total, 1, 0.0);
        if p.columns > 0 {
            self.t.fill(&self.areas.sums, p.columns, 0.0);
        }
        self.blocks(&tile)?;
        self.finish(&tile)?;
        self.t.list.close();
        Some(self.t.list.finish())
    }

    /// All blocks of keys that a query of the tile may see.
    fn blocks(&mut self, tile: &Tile) -> Option<()> {
        let (keys, len) = (self.p.keys, self.s.block);
        let (full, rest) = (keys / len, keys % len);
        let seen = self.p.causal.map(|n| plus(&tile.rows.first, self.s.width() + n));
        if full > 0 {
            let end = match &seen {
                Some(seen) => least(&plus(seen, len - 1).binary(Op::CDiv, &number(len)), &number(full)),
                None => number(full),
            };
            let b = self.t.list.open(&end);
            self.block(tile, &Block { first: times(&b, len), len })?;
            self.t.list.close();
        }
        if rest > 0 {
            let after = number(full * len);
            let end = seen.map_or_else(|| number(1), |seen| after.lt(&seen).select(&number(1), &number(0)));
            self.t.list.open(&end);
            self.block(tile, &Block { first: after, len: rest })?;
            self.t.list.close();
        }
        Some(())
    }

    fn block(&mut self, tile: &Tile, block: &Block) -> Option<()> {
        let p = self.p;
        let keys = self.source((&p.key, p.depth_len), 0, tile, block)?;
        let values = match &p.value {
            Some(value) => Some(self.source((value, p.columns), 1, tile, block)?),
            None => None,
        };
        for m in 0..self.p.masks.len() {
            self.turn_mask(m, tile, block)?;
        }
        let most = self.scores(tile, block, &keys)?;
        let rescale = self.weights(block, &most)?;
        if let Some(values) = values {
            self.add_values(block, &values, &rescale)?;
        }
        Some(())
    }

    /// Where the keys (0) or the values (1) of a block are read.
    fn source(&mut self, (from, columns): (&Operand, i64), which: usize, tile: &Tile, block: &Block) -> Option<Source> {
        let base = tile.place.scalar(&from.base)?;
        let area = self.areas.staged[which].as_ref();
        Some(self.t.source(from, &base, (&block.first, block.len), (area, columns)))
    }

    /// Copies a mask's rows of this block, as f32 and with queries in lanes.
    fn turn_mask(&mut self, which: usize, tile: &Tile, block: &Block) -> Option<()> {
        let (lanes, p) = (self.s.lanes, self.p);
        let (operand, [rows, whole]) = (&p.masks[which].1, self.areas.masks[which].clone());
        let base = sum(&tile.place.scalar(&operand.base)?, &block.first);
        // Rows end at a multiple of the columns that are turned at once.
        let len = pieces(block.len, 4) * 4;
        let v = self.t.list.open(&number(self.s.vectors as i64));
        let r = self.t.list.open(&number(self.t.lanes()));
        let row = sum(&tile.rows.first, &sum(&times(&v, self.t.lanes()), &r));
        let row = if p.rows % self.s.width() == 0 { row } else { least(&row, &number(p.rows - 1)) };
        self.t.copy_row(operand, &sum(&base, &times(&row, operand.strides[0])), (&rows, &times(&r, len)), block.len);
        self.t.list.close();
        let k = self.t.list.open(&number(len / 4));
        let columns = if lanes == 16 {
            let piece = |row: i64| self.t.list.load(&rows, &plus(&times(&k, 4), row * len), 4);
            turned(F32.vec(lanes), piece)
        } else {
            [0, 1, 2, 3].map(|c| {
                let from = sum(&steps(lanes, len), &spread(&plus(&times(&k, 4), c), lanes));
                self.t.list.load(&rows, &from, lanes)
            })
        };
        for (c, column) in (0..).zip(columns) {
            let at = sum(&self.t.at(&plus(&times(&k, 4), c), 0), &times(&v, self.t.lanes()));
            self.t.list.store(&whole, &at, &column);
        }
        self.t.list.close();
        self.t.list.close();
        Some(())
    }

    /// The masks of a key, for a vector of queries.
    fn mask_values(&mut self, row: &UOp, vector: usize) -> UMap<UOp> {
        let mut known = UMap::default();
        for ((load, _), area) in self.p.masks.iter().zip(self.areas.masks.clone()) {
            let at = self.t.at(row, vector);
            let x = self.t.list.load(&area[1], &at, self.s.lanes);
            let t = load.dtype().scalar;
            let value = if t == Scalar::Bool { x.ne(&x.const_like(0.0)) } else { x.cast(x.dtype().with_scalar(t)) };
            known.insert(load.clone(), value);
        }
        known
    }

    /// The scores of a block, in memory; of each query the largest of them.
    fn scores(&mut self, tile: &Tile, block: &Block, keys: &Source) -> Option<Vec<UOp>> {
        let low = self.t.vector(f64::NEG_INFINITY);
        let most: Vec<UOp> = (0..self.s.vectors).map(|_| self.t.list.register(&low)).collect();
        let high = self.s.high as i64;
        let (full, rest) = (block.len / high, block.len % high);
        if full > 0 {
            let j = self.t.list.open(&number(full));
            self.score_tile(tile, block, keys, (&times(&j, high), high), &most)?;
            self.t.list.close();
        }
        if rest > 0 {
            self.score_tile(tile, block, keys, (&number(full * high), rest), &most)?;
        }
        Some(most)
    }

    fn score_tile(
        &mut self,
        tile: &Tile,
        block: &Block,
        keys: &Source,
        (from, high): (&UOp, i64),
        most: &[UOp],
    ) -> Option<()> {
        let zero = self.t.vector(0.0);
        let registers = self.t.tile_products((&self.areas.queries, self.p.depth_len), keys, (from, high));
        let mut largest: Vec<Vec<UOp>> = vec![Vec::new(); self.s.vectors];
        let weights = self.areas.weights.clone();
        for i in 0..high {
            let row = plus(from, i);
            let mut place = tile.place.clone();
            place.scalars.insert(self.p.key_loop.clone(), sum(&block.first, &row));
            for (v, found) in largest.iter_mut().enumerate() {
                let (products, rows) = (&registers[i as usize][v], &tile.rows.at[v]);
                let l = Lanes { given: &[(&self.p.row, rows), (&self.p.product, products)], lanes: self.s.lanes };
                let score = place.lanes(&self.p.score, &l, &mut self.mask_values(&row, v))?;
                let score = if score == *products { self.t.list.now(Op::Add, [score, zero.clone()]) } else { score };
                let at = self.t.at(&row, v);
                self.t.list.store(&weights, &at, &score);
                found.push(score);
            }
        }
        for (most, found) in most.iter().zip(largest) {
            let all = found.into_iter().reduce(|a, b| a.max(&b))?;
            let new = self.t.list.now(Op::Max, [most.clone(), all]);
            self.t.list.set(most, &new);
        }
        Some(())
    }

    /// 2^((x - most) * factor).
    fn power(&self, x: &UOp, most: &UOp) -> Option<UOp> {
        let off = x.binary(Op::Sub, most);
        decomp::power_of_negative(&off.binary(Op::Mul, &off.const_like(self.p.factor)))
    }

    /// Scores become weights. Returns what all sums so far are multiplied by.
    fn weights(&mut self, block: &Block, most: &[UOp]) -> Option<Vec<UOp>> {
        let Areas { weights, most: kept, total, .. } = &self.areas;
        let (weights, kept, total) = (weights.clone(), kept.clone(), total.clone());
        let (mut bases, mut rescale, mut totals) = (Vec::new(), Vec::new(), Vec::new());
        for (v, most) in most.iter().enumerate() {
            let at = self.t.at(&number(0), v);
            let old = self.t.list.load(&kept, &at, self.s.lanes);
            let new = self.t.list.now(Op::Max, [most.clone(), old.clone()]);
            self.t.list.store(&kept, &at, &new);
            // Where nothing was seen yet, scores of -inf have the weight 0.
            let none = new.equal(&new.const_like(f64::NEG_INFINITY));
            let base = none.select(&new.const_like(0.0), &new);
            let factor = self.power(&old, &base)?;
            let sofar = self.t.list.load(&total, &at, self.s.lanes);
            totals.push(self.t.list.register(&sofar.binary(Op::Mul, &factor)));
            bases.push(self.t.list.listed(base));
            rescale.push(self.t.list.listed(factor));
        }
        let many = copies(block.len, 2);
        let step = self.t.list.open(&number(block.len / many));
        for (v, base) in bases.iter().enumerate() {
            let mut added: Option<UOp> = None;
            for u in 0..many {
                let at = self.t.at(&plus(&times(&step, many), u), v);
                let x = self.t.list.load(&weights, &at, self.s.lanes);
                let w = self.power(&x, base)?;
                self.t.list.store(&weights, &at, &w);
                added = Some(added.map_or_else(|| w.clone(), |a| sum(&a, &w)));
            }
            let Some(added) = added else { continue };
            let new = self.t.list.now(Op::Add, [totals[v].clone(), added]);
            self.t.list.set(&totals[v], &new);
        }
        self.t.list.close();
        for (v, register) in totals.iter().enumerate() {
            let at = self.t.at(&number(0), v);
            self.t.list.store(&total, &at, register);
        }
        Some(rescale)
    }

    /// Adds a block's values with their weights.
    fn add_values(&mut self, block: &Block, values: &Source, rescale: &[UOp]) -> Option<()> {
        let areas = [&self.areas.sums, &self.areas.weights];
        self.t.in_tiles(self.p.columns, self.s.high as i64, |t, columns| {
            t.add_weighted(areas, (values, block.len), columns, Some(rescale));
            Some(())
        })
    }

    /// Divides by the sums of the weights and stores the result, and what the sums were.
    fn finish(&mut self, tile: &Tile) -> Option<()> {
        let (p, lanes) = (self.p, self.s.lanes);
        let (one, at) = (self.t.vector(1.0), |t: &Tiles, v| t.at(&number(0), v));
        if let Some(out) = &p.out {
            let mut inverse = Vec::new();
            for v in 0..self.s.vectors {
                let total = self.t.list.load(&self.areas.total, &at(&self.t, v), lanes);
                inverse.push(self.t.list.listed(one.binary(Op::FDiv, &total)));
            }
            let base = tile.place.scalar(&out.base)?;
            self.t.finish((&self.areas.sums, p.columns), &inverse, &tile.rows, (out, &base));
        }
        let Some(out) = &p.log_sums else { return Some(()) };
        for v in 0..self.s.vectors {
            let at = at(&self.t, v);
            let total = self.t.list.load(&self.areas.total, &at, lanes);
            let most = self.t.list.load(&self.areas.most, &at, lanes);
            let log_sum = log_sum(&total, &most.binary(Op::Mul, &most.const_like(p.factor)))?;
            self.t.list.store(&self.areas.total, &at, &log_sum);
        }
        let first = sum(&tile.place.scalar(&out.base)?, &times(&tile.rows.first, out.strides[0]));
        let area = &self.areas.total;
        self.t.store_rows(&tile.rows, |t, r| {
            let x = t.list.load(area, r, 1);
            t.list.store(&out.address, &sum(&first, &times(r, out.strides[0])), &x);
        });
        Some(())
    }
}
