//! The loops of an attention's gradient: tiles of rows, blocks of others, and in each block scores, weights and
//! weighted sums.
//!
//! Scratch memory of a tile, rows in lanes: its rows of both pairs, of a block the weights of each result, and what was
//! summed so far of each result.
//!
//! The gradient of the others may be computed along (`of_others`), since its weights are the same, turned: sums over
//! the rows of a tile are added to it in memory, columns in lanes, and all tiles of an attention are computed by one
//! thread.

use super::super::super::decomp;
use super::super::gradient::{Gradient, Sum};
use super::super::list::{least, number, plus, sum, times};
use super::super::pieces;
use super::super::value::{Lanes, Place};
use super::tiles::{Block, F32, Source, Tile, Tiles};
use super::{Shape, chunks};
use crate::Target;
use doorbell_uop::{Op, Scalar, UMap, UOp};

/// Others of a block, at most.
const BLOCK: i64 = 72;

struct Areas {
    /// Rows of the pairs.
    rows: [Option<UOp>; 2],
    /// Weights and sums of each result.
    weights: Vec<UOp>,
    sums: Vec<UOp>,
    /// The others of a block, where they are copied.
    staged: [Option<UOp>; 2],
    /// The rows of the first pair as they lie in memory, times the factor of the others' gradient.
    plain: Option<UOp>,
}

struct Kernel<'a> {
    p: &'a Gradient,
    of_others: Option<&'a Sum>,
    t: Tiles,
    high: i64,
    block: i64,
    areas: Areas,
}

/// The program of an attention's gradient.
pub(in super::super) fn program(p: &Gradient, turned: Option<&Gradient>, target: &Target) -> Option<Vec<UOp>> {
    let of_others = turned.and_then(|t| t.sums.first());
    if let Some(sum) = of_others {
        // Vectors of columns, in f32.
        let whole = sum.columns % i64::from(target.lanes(Scalar::F32)) == 0;
        (whole && sum.out.scalar() == Scalar::F32 && p.around.is_empty()).then_some(())?;
    }
    let shape = Shape::of(p.rows, target)?;
    let (width, high) = (shape.width(), shape.high as i64);
    let lens = [0, 1].map(|k| p.len_of(k));
    let staged = [0, 1].map(|k| p.others_of(k).is_some_and(|o| o.is_crowded(lens[k])));
    let pairs = [true, p.results.is_some()];
    let all = |of: [bool; 2]| (0..2).filter(|k| of[*k]).map(|k| lens[k]).sum::<i64>();
    let plain = of_others.map_or(0, |s| s.columns);
    let fixed = width * (plain + all(pairs) + p.sums.iter().map(|s| s.columns).sum::<i64>());
    let room = (target.local_bytes / 4) as i64;
    let fits = |block: &i64| fixed + block * (width * p.sums.len() as i64 + all(staged)) <= room;
    let block = [BLOCK, BLOCK / 3].map(|b| b / high * high).into_iter().find(fits)?;
    let tiles = pieces(p.rows, width) * p.outer.iter().map(|r| r.1).product::<i64>();
    let others = p.others * p.around.iter().map(|r| r.1).product::<i64>();
    let work = tiles * width * others * (plain + all(pairs) + p.sums.iter().map(|s| s.columns).sum::<i64>());
    let mut n = 0;
    let mut area = |len: i64| {
        n += 1;
        UOp::local(n - 1, F32, len as usize)
    };
    let areas = Areas {
        rows: [0, 1].map(|k| pairs[k].then(|| area(lens[k] * width))),
        weights: p.sums.iter().map(|_| area(block * width)).collect(),
        sums: p.sums.iter().map(|s| area(s.columns * width)).collect(),
        staged: [0, 1].map(|k| staged[k].then(|| area(lens[k] * block))),
        plain: of_others.map(|s| area(width * s.columns)),
    };
    let t = Tiles::new(shape.lanes, shape.vectors);
    let turns = if of_others.is_some() { tiles / pieces(p.rows, width) } else { tiles };
    Kernel { p, of_others, t, high, block, areas }.write(chunks(turns, work, target))
}

impl Kernel<'_> {
    fn write(mut self, chunks: i64) -> Option<Vec<UOp>> {
        let p = self.p;
        let mut tile = if let Some(sum) = self.of_others {
            let place = self.t.start_whole(&p.outer, chunks);
            self.clear(sum, &place)?;
            Tile { place, rows: self.t.all_rows(p.rows) }
        } else {
            let (place, rows) = self.t.start(&p.outer, p.rows, chunks);
            Tile { place, rows }
        };
        if let (Some(sum), Some(area)) = (self.of_others, &self.areas.plain) {
            let base = tile.place.scalar(&p.scores.row.base)?;
            self.t.take_plain(&p.scores.row, &base, &tile.rows, (area, sum.columns), sum.factor);
        }
        for (pair, area) in [Some(&p.scores), p.results.as_ref()].into_iter().zip(&self.areas.rows) {
            let (Some(pair), Some(area)) = (pair, area) else { continue };
            let base = tile.place.scalar(&pair.row.base)?;
            self.t.take(&pair.row, &base, &tile.rows, (area, pair.len));
        }
        for (s, area) in p.sums.iter().zip(&self.areas.sums) {
            self.t.fill(area, s.columns, 0.0);
        }
        for (r, n) in &p.around {
            let counter = self.t.list.open(&number(*n));
            tile.place.scalars.insert(r.clone(), counter);
        }
        self.blocks(&tile)?;
        p.around.iter().for_each(|_| {
            self.t.list.close();
        });
        for (s, area) in p.sums.iter().zip(&self.areas.sums) {
            let base = tile.place.scalar(&s.out.base)?;
            let factors = vec![self.t.vector(s.factor); if s.factor == 1.0 { 0 } else { self.t.vectors }];
            self.t.finish((area, s.columns), &factors, &tile.rows, (&s.out, &base));
        }
        if self.of_others.is_some() {
            self.t.list.close();
        }
        self.t.list.close();
        Some(self.t.list.finish())
    }

    /// Nothing was added yet to the gradient of the others.
    fn clear(&mut self, sum_of: &Sum, place: &Place) -> Option<()> {
        let (out, lanes) = (&sum_of.out, self.t.lanes());
        let base = place.scalar(&out.base)?;
        let zero = self.t.vector(0.0);
        let r = self.t.list.open(&number(self.p.others));
        let row = sum(&base, &times(&r, out.strides[0]));
        for c in (0..sum_of.columns).step_by(lanes as usize) {
            self.t.list.store(&out.address, &plus(&row, c), &zero);
        }
        self.t.list.close();
        Some(())
    }

    /// Adds to the gradient of the others in a block what this tile's rows contribute.
    fn add_to_others(&mut self, tile: &Tile, block: &Block) -> Option<()> {
        let (Some(s), Some(plain)) = (self.of_others, self.areas.plain.clone()) else { return Some(()) };
        let (width, lanes, weights) = (self.t.width(), self.t.lanes(), self.areas.weights[0].clone());
        let first = sum(&tile.place.scalar(&s.out.base)?, &times(&block.first, s.out.strides[0]));
        let whole = self.p.rows % width == 0;
        let steps = if whole { (number(width / 4), 4) } else { (self.t.count(&tile.rows), 1) };
        let most = self.t.vectors as i64 * lanes;
        self.t.in_tiles(block.len, self.high, |t, (from, high)| {
            for start in (0..s.columns).step_by(most as usize) {
                let columns: Vec<i64> = (start..s.columns.min(start + most)).step_by(lanes as usize).collect();
                let at = |i: i64, c: i64| plus(&sum(&first, &times(&plus(from, i), s.out.strides[0])), c);
                let mut registers = Vec::new();
                for i in 0..high {
                    let sofar = columns.iter().map(|c| t.list.load(&s.out.address, &at(i, *c), t.lanes));
                    let sofar: Vec<UOp> = sofar.collect();
                    registers.push(sofar.iter().map(|x| t.list.register(x)).collect::<Vec<UOp>>());
                }
                t.add_products(&registers, (&steps.0, steps.1), |t, row| {
                    let weight = |t: &mut Tiles, i: i64| {
                        let at = sum(&times(&plus(from, i), width), row);
                        t.list.load(&weights, &at, 1).splat(t.lanes)
                    };
                    let weights = (0..high).map(|i| weight(t, i)).collect();
                    let row = times(row, s.columns);
                    (weights, columns.iter().map(|c| t.list.load(&plain, &plus(&row, *c), t.lanes)).collect())
                });
                for (i, registers) in (0..high).zip(&registers) {
                    for (c, register) in columns.iter().zip(registers) {
                        t.list.store(&s.out.address, &at(i, *c), register);
                    }
                }
            }
            Some(())
        })
    }

    /// All blocks of others that have a weight for a row of the tile.
    fn blocks(&mut self, tile: &Tile) -> Option<()> {
        let (p, len) = (self.p, self.block);
        let (full, rest) = (p.others / len, p.others % len);
        let (mut start, mut end, mut last) = (number(0), number(full), number(1));
        let after = number(full * len);
        match p.causal {
            // Keys up to the last query's.
            Some(n) if p.by_query => {
                let seen = plus(&tile.rows.first, self.t.width() + n);
                end = least(&plus(&seen, len - 1).binary(Op::CDiv, &number(len)), &end);
                last = after.lt(&seen).select(&number(1), &number(0));
            }
            // Queries from the first key's on.
            Some(n) => {
                let from = plus(&tile.rows.first, -n).binary(Op::Max, &number(0));
                start = least(&from.binary(Op::CDiv, &number(len)), &end);
            }
            None => {}
        }
        if full > 0 {
            let b = self.t.list.open(&end.binary(Op::Sub, &start));
            self.of_block(tile, &Block { first: times(&sum(&start, &b), len), len })?;
            self.t.list.close();
        }
        if rest > 0 {
            self.t.list.open(&last);
            self.of_block(tile, &Block { first: after, len: rest })?;
            self.t.list.close();
        }
        Some(())
    }

    fn of_block(&mut self, tile: &Tile, block: &Block) -> Option<()> {
        let p = self.p;
        let mut sources = Vec::new();
        for which in 0..2 {
            let Some(from) = p.others_of(which) else { continue };
            let (base, area) = (tile.place.scalar(&from.base)?, self.areas.staged[which].as_ref());
            sources.push(self.t.source(from, &base, (&block.first, block.len), (area, p.len_of(which))));
        }
        self.powers(tile, block, &sources[0])?;
        if p.results.is_some() {
            self.weights(tile, block, &sources[1])?;
        }
        for (n, s) in p.sums.iter().enumerate() {
            let areas = [&self.areas.sums[n], &self.areas.weights[self.weights_of(s)]];
            self.t.in_tiles(s.columns, self.high, |t, columns| {
                t.add_weighted(areas, (&sources[s.of], block.len), columns, None);
                Some(())
            })?;
        }
        self.add_to_others(tile, block)
    }

    /// The area of a result's weights: the weights of the attention are in the last one.
    fn weights_of(&self, s: &Sum) -> usize {
        if self.p.is_plain(s) { self.areas.weights.len() - 1 } else { 0 }
    }

    /// The weights of the attention.
    fn powers(&mut self, tile: &Tile, block: &Block, others: &Source) -> Option<()> {
        let (p, rows) = (self.p, self.areas.rows[0].as_ref()?);
        let weights = self.areas.weights.last()?;
        self.t.in_tiles(block.len, self.high, |t, (from, high)| {
            let products = t.tile_products((rows, p.scores.len), others, (from, high));
            for (i, products) in (0..high).zip(&products) {
                let row = plus(from, i);
                let mut place = tile.place.clone();
                place.scalars.insert(p.other.clone(), sum(&block.first, &row));
                for (v, product) in products.iter().enumerate() {
                    let l =
                        Lanes { given: &[(&p.row, &tile.rows.at[v]), (&p.scores.product, product)], lanes: t.lanes };
                    let exponent = place.lanes(&p.exponent, &l, &mut UMap::default())?;
                    let power = decomp::power_of_negative(&exponent)?;
                    let at = t.at(&row, v);
                    t.list.store(weights, &at, &power);
                }
            }
            Some(())
        })
    }

    /// The weights of the result that needs both products.
    fn weights(&mut self, tile: &Tile, block: &Block, others: &Source) -> Option<()> {
        let (p, rows) = (self.p, self.areas.rows[1].as_ref()?);
        let pair = p.results.as_ref()?;
        let weight = &p.sums.iter().find(|s| !p.is_plain(s))?.weight;
        let (powers, weights) = (self.areas.weights.last()?, &self.areas.weights[0]);
        self.t.in_tiles(block.len, self.high, |t, (from, high)| {
            let products = t.tile_products((rows, pair.len), others, (from, high));
            for (i, products) in (0..high).zip(&products) {
                let row = plus(from, i);
                let mut place = tile.place.clone();
                place.scalars.insert(p.other.clone(), sum(&block.first, &row));
                for (v, product) in products.iter().enumerate() {
                    let at = t.at(&row, v);
                    let power = t.list.load(powers, &at, t.lanes);
                    let given = &[(&p.row, &tile.rows.at[v]), (&pair.product, product), (&p.power, &power)];
                    let weight = place.lanes(weight, &Lanes { given, lanes: t.lanes }, &mut UMap::default())?;
                    t.list.store(weights, &at, &weight);
                }
            }
            Some(())
        })
    }
}
