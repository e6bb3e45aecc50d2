//! The loops of an attention: tiles of queries, blocks of keys, and in each block scores, weights and weighted sums.
//!
//! Scratch memory of a tile, queries in lanes: its queries (depth x width), the scores and then the weights of a block
//! (block x width), what was summed so far (columns x width), and of each query the largest score and the sum of
//! weights.

use super::super::decomp;
use super::super::transpose::turned;
use super::list::{List, least, number, plus, sum, times};
use super::parts::{Operand, Parts};
use super::value::{Lanes, Place, spread, steps};
use super::{Sizes, pieces};
use doorbell_uop::{DType, Op, Scalar, UMap, UOp};

const F32: DType = DType::of(Scalar::F32);

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

pub(super) struct Kernel<'a> {
    p: &'a Parts,
    s: &'a Sizes,
    list: List,
    areas: Areas,
}

/// A tile of queries.
struct Tile {
    place: Place,
    /// The first query.
    first: UOp,
    /// Positions of the queries, a vector each.
    rows: Vec<UOp>,
}

/// Keys that are taken together: the first one, and how many.
struct Block {
    first: UOp,
    len: i64,
}

/// An operand as a tile reads it: memory, position of its first element, strides.
struct Source {
    address: UOp,
    base: UOp,
    strides: [i64; 2],
    scratch: bool,
}

/// Copies of a loop's body: a divisor of its length.
fn copies(len: i64, most: i64) -> i64 {
    (1..=most).rev().find(|n| len % n == 0).unwrap_or(1)
}

impl<'a> Kernel<'a> {
    pub(super) fn new(p: &'a Parts, s: &'a Sizes) -> Kernel<'a> {
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
        Kernel { p, s, list: List::new(), areas: Areas { queries, weights, sums, most, total, staged, masks } }
    }

    pub(super) fn write(mut self) -> Option<Vec<UOp>> {
        let (width, chunks) = (self.s.width(), self.s.chunks);
        let tiles = pieces(self.p.rows, width);
        let all = tiles * self.p.outer.iter().map(|r| r.1).product::<i64>();
        let chunk = if chunks > 1 { self.list.special(chunks) } else { number(0) };
        let turn = self.list.open(&number(all / chunks));
        let number_of_tile = sum(&times(&turn, chunks), &chunk);
        let mut rest = number_of_tile.binary(Op::CDiv, &number(tiles));
        let first = times(&number_of_tile.binary(Op::CMod, &number(tiles)), width);
        let mut place = Place::default();
        for (r, n) in self.p.outer.iter().rev() {
            place.scalars.insert(r.clone(), rest.binary(Op::CMod, &number(*n)));
            rest = rest.binary(Op::CDiv, &number(*n));
        }
        let tile = Tile { rows: self.rows(&first), place, first };
        self.take_queries(&tile)?;
        self.clear();
        self.blocks(&tile)?;
        self.finish(&tile)?;
        self.list.close();
        Some(self.list.finish())
    }

    fn lanes(&self) -> i64 {
        i64::from(self.s.lanes)
    }
    fn vector(&self, v: f64) -> UOp {
        UOp::constant(F32.vec(self.s.lanes), v)
    }
    /// Position of a vector in an area.
    fn at(&self, row: &UOp, vector: usize) -> UOp {
        plus(&times(row, self.s.width()), vector as i64 * self.lanes())
    }

    /// Positions of the tile's queries; lanes beyond the last query compute what it does.
    fn rows(&mut self, first: &UOp) -> Vec<UOp> {
        let (lanes, last) = (self.s.lanes, self.p.rows - 1);
        let ragged = self.p.rows % self.s.width() != 0;
        let one = |v: usize| {
            let x = sum(&spread(&plus(first, v as i64 * i64::from(lanes)), lanes), &steps(lanes, 1));
            if ragged { least(&x, &x.const_like(last)) } else { x }
        };
        (0..self.s.vectors).map(one).map(|u| self.list.listed(u)).collect()
    }

    fn take_queries(&mut self, tile: &Tile) -> Option<()> {
        let q = &self.p.query;
        let base = tile.place.scalar(&q.base)?;
        let e = self.list.open(&number(self.p.depth_len));
        for (v, rows) in tile.rows.iter().enumerate() {
            let from = sum(&times(rows, q.strides[0]), &spread(&sum(&base, &times(&e, q.strides[1])), self.s.lanes));
            let x = q.address.index(&from).load();
            let x = x.cast(F32.vec(self.s.lanes));
            let at = self.at(&e, v);
            self.list.store(&self.areas.queries.clone(), &at, &x);
        }
        self.list.close();
        Some(())
    }

    fn clear(&mut self) {
        let (low, zero) = (self.vector(f64::NEG_INFINITY), self.vector(0.0));
        let Areas { most, total, sums, .. } = &self.areas;
        let (most, total, sums) = (most.clone(), total.clone(), sums.clone());
        for v in 0..self.s.vectors {
            let at = self.at(&number(0), v);
            self.list.store(&most, &at, &low);
            self.list.store(&total, &at, &zero);
        }
        let c = self.list.open(&number(self.p.columns));
        for v in 0..self.s.vectors {
            let at = self.at(&c, v);
            self.list.store(&sums, &at, &zero);
        }
        self.list.close();
    }

    /// All blocks of keys that a query of the tile may see.
    fn blocks(&mut self, tile: &Tile) -> Option<()> {
        let (keys, len) = (self.p.keys, self.s.block);
        let (full, rest) = (keys / len, keys % len);
        let seen = self.p.causal.map(|n| plus(&tile.first, self.s.width() + n));
        if full > 0 {
            let end = match &seen {
                Some(seen) => least(&plus(seen, len - 1).binary(Op::CDiv, &number(len)), &number(full)),
                None => number(full),
            };
            let b = self.list.open(&end);
            self.block(tile, &Block { first: times(&b, len), len })?;
            self.list.close();
        }
        if rest > 0 {
            let after = number(full * len);
            let end = seen.map_or_else(|| number(1), |seen| after.lt(&seen).select(&number(1), &number(0)));
            self.list.open(&end);
            self.block(tile, &Block { first: after, len: rest })?;
            self.list.close();
        }
        Some(())
    }

    fn block(&mut self, tile: &Tile, block: &Block) -> Option<()> {
        let keys = self.source(0, tile, block)?;
        let values = self.source(1, tile, block)?;
        for m in 0..self.p.masks.len() {
            self.turn_mask(m, tile, block)?;
        }
        let most = self.scores(tile, block, &keys)?;
        let rescale = self.weights(block, &most)?;
        self.add_values(block, &values, &rescale);
        Some(())
    }

    /// Where the keys (0) or the values (1) of a block are read.
    fn source(&mut self, which: usize, tile: &Tile, block: &Block) -> Option<Source> {
        let (operand, columns) =
            if which == 0 { (&self.p.key, self.p.depth_len) } else { (&self.p.value, self.p.columns) };
        let base = sum(&tile.place.scalar(&operand.base)?, &times(&block.first, operand.strides[0]));
        if let Some(area) = self.areas.staged[which].clone() {
            self.copy(operand, &base, &area, block.len, columns);
            return Some(Source { address: area, base: number(0), strides: [columns, 1], scratch: true });
        }
        Some(Source { address: operand.address.clone(), base, strides: operand.strides, scratch: false })
    }

    /// Copies rows to scratch memory, dense and as f32.
    fn copy(&mut self, from: &Operand, base: &UOp, area: &UOp, rows: i64, columns: i64) {
        let r = self.list.open(&number(rows));
        self.copy_row(from, &sum(base, &times(&r, from.strides[0])), (area, &times(&r, columns)), columns);
        self.list.close();
    }

    fn copy_row(&mut self, from: &Operand, row: &UOp, (area, to): (&UOp, &UOp), columns: i64) {
        let mut done = 0;
        for lanes in std::iter::successors(Some(self.s.lanes), |n| (*n > 1).then_some(n / 2)) {
            let n = i64::from(lanes);
            if lanes > 1 && from.strides[1] != 1 {
                continue;
            }
            let turns = (columns - done) / n;
            if turns > 0 {
                let c = self.list.open(&number(turns));
                let column = plus(&times(&c, n), done);
                let at = from.address.index(&sum(row, &times(&column, from.strides[1])));
                let x = UOp::new(Op::Load, DType::of(from.scalar()).vec(lanes), [at], doorbell_uop::Arg::None);
                self.list.store(area, &sum(to, &column), &x.cast(F32.vec(lanes)));
                self.list.close();
            }
            done += turns * n;
        }
    }

    /// Copies a mask's rows of this block, as f32 and with queries in lanes.
    fn turn_mask(&mut self, which: usize, tile: &Tile, block: &Block) -> Option<()> {
        let (lanes, p) = (self.s.lanes, self.p);
        let (operand, [rows, whole]) = (&p.masks[which].1, self.areas.masks[which].clone());
        let base = sum(&tile.place.scalar(&operand.base)?, &block.first);
        // Rows end at a multiple of the columns that are turned at once.
        let len = pieces(block.len, 4) * 4;
        let v = self.list.open(&number(self.s.vectors as i64));
        let r = self.list.open(&number(self.lanes()));
        let row = sum(&tile.first, &sum(&times(&v, self.lanes()), &r));
        let row = if p.rows % self.s.width() == 0 { row } else { least(&row, &number(p.rows - 1)) };
        self.copy_row(operand, &sum(&base, &times(&row, operand.strides[0])), (&rows, &times(&r, len)), block.len);
        self.list.close();
        let k = self.list.open(&number(len / 4));
        let columns = if lanes == 16 {
            let piece = |row: i64| self.list.load(&rows, &plus(&times(&k, 4), row * len), 4);
            turned(F32.vec(lanes), piece)
        } else {
            [0, 1, 2, 3].map(|c| {
                let from = sum(&steps(lanes, len), &spread(&plus(&times(&k, 4), c), lanes));
                self.list.load(&rows, &from, lanes)
            })
        };
        for (c, column) in (0..).zip(columns) {
            let at = sum(&self.at(&plus(&times(&k, 4), c), 0), &times(&v, self.lanes()));
            self.list.store(&whole, &at, &column);
        }
        self.list.close();
        self.list.close();
        Some(())
    }

    /// The masks of a key, for a vector of queries.
    fn mask_values(&mut self, row: &UOp, vector: usize) -> UMap<UOp> {
        let mut known = UMap::default();
        for ((load, _), area) in self.p.masks.iter().zip(self.areas.masks.clone()) {
            let at = self.at(row, vector);
            let x = self.list.load(&area[1], &at, self.s.lanes);
            let t = load.dtype().scalar;
            let value = if t == Scalar::Bool { x.ne(&x.const_like(0.0)) } else { x.cast(x.dtype().with_scalar(t)) };
            known.insert(load.clone(), value);
        }
        known
    }

    /// An element for all lanes.
    fn element(&mut self, from: &Source, row: &UOp, column: &UOp) -> UOp {
        let at = sum(&sum(&from.base, &times(row, from.strides[0])), &times(column, from.strides[1]));
        let x = if from.scratch { self.list.load(&from.address, &at, 1) } else { from.address.index(&at).load() };
        x.splat(self.s.lanes)
    }

    /// The scores of a block, in memory; of each query the largest of them.
    fn scores(&mut self, tile: &Tile, block: &Block, keys: &Source) -> Option<Vec<UOp>> {
        let low = self.vector(f64::NEG_INFINITY);
        let most: Vec<UOp> = (0..self.s.vectors).map(|_| self.list.register(&low)).collect();
        let high = self.s.high as i64;
        let (full, rest) = (block.len / high, block.len % high);
        if full > 0 {
            let j = self.list.open(&number(full));
            self.score_tile(tile, block, keys, (&times(&j, high), high), &most)?;
            self.list.close();
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
        let zero = self.vector(0.0);
        let mut registers = self.registers(high, |_, _, _| zero.clone());
        let queries = self.areas.queries.clone();
        self.products(&mut registers, self.p.depth_len, |k, e| {
            let rows: Vec<UOp> = (0..k.s.vectors).map(|v| k.list.load(&queries, &k.at(e, v), k.s.lanes)).collect();
            let keys = (0..high).map(|i| k.element(keys, &plus(from, i), e)).collect();
            (keys, rows)
        });
        let mut largest: Vec<Vec<UOp>> = vec![Vec::new(); self.s.vectors];
        let weights = self.areas.weights.clone();
        for i in 0..high {
            let row = plus(from, i);
            let mut place = tile.place.clone();
            place.scalars.insert(self.p.key_loop.clone(), sum(&block.first, &row));
            for (v, found) in largest.iter_mut().enumerate() {
                let (products, rows) = (&registers[i as usize][v], &tile.rows[v]);
                let l = Lanes { given: &[(&self.p.row, rows), (&self.p.product, products)], lanes: self.s.lanes };
                let score = place.lanes(&self.p.score, &l, &mut self.mask_values(&row, v))?;
                let score = if score == *products { self.list.now(Op::Add, [score, zero.clone()]) } else { score };
                let at = self.at(&row, v);
                self.list.store(&weights, &at, &score);
                found.push(score);
            }
        }
        for (most, found) in most.iter().zip(largest) {
            let all = found.into_iter().reduce(|a, b| a.max(&b))?;
            let new = self.list.now(Op::Max, [most.clone(), all]);
            self.list.set(most, &new);
        }
        Some(())
    }

    /// A tile of registers with these first values.
    fn registers(&mut self, high: i64, mut first: impl FnMut(&mut Self, i64, usize) -> UOp) -> Vec<Vec<UOp>> {
        let mut all = Vec::new();
        for i in 0..high {
            let mut row = Vec::new();
            for v in 0..self.s.vectors {
                let value = first(self, i, v);
                row.push(self.list.register(&value));
            }
            all.push(row);
        }
        all
    }

    /// Adds to a tile of registers the products of what `operands` gives for each step: a value a row, and a vector a
    /// column.
    fn products(
        &mut self,
        registers: &mut [Vec<UOp>],
        len: i64,
        mut operands: impl FnMut(&mut Self, &UOp) -> (Vec<UOp>, Vec<UOp>),
    ) {
        let many = copies(len, 4);
        let step = self.list.open(&number(len / many));
        let mut now: Vec<Vec<UOp>> = registers.to_vec();
        for u in 0..many {
            let (rows, columns) = operands(self, &plus(&times(&step, many), u));
            for (row, now) in rows.iter().zip(&mut now) {
                for (column, now) in columns.iter().zip(now) {
                    *now = self.list.now(Op::MulAcc, [row.clone(), column.clone(), now.clone()]);
                }
            }
        }
        for (register, value) in registers.iter().flatten().zip(now.iter().flatten()) {
            self.list.set(register, value);
        }
        self.list.close();
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
            let at = self.at(&number(0), v);
            let old = self.list.load(&kept, &at, self.s.lanes);
            let new = self.list.now(Op::Max, [most.clone(), old.clone()]);
            self.list.store(&kept, &at, &new);
            // Where nothing was seen yet, scores of -inf have the weight 0.
            let none = new.equal(&new.const_like(f64::NEG_INFINITY));
            let base = none.select(&new.const_like(0.0), &new);
            let factor = self.power(&old, &base)?;
            let sofar = self.list.load(&total, &at, self.s.lanes);
            totals.push(self.list.register(&sofar.binary(Op::Mul, &factor)));
            bases.push(self.list.listed(base));
            rescale.push(self.list.listed(factor));
        }
        let many = copies(block.len, 2);
        let step = self.list.open(&number(block.len / many));
        for (v, base) in bases.iter().enumerate() {
            let mut added: Option<UOp> = None;
            for u in 0..many {
                let at = self.at(&plus(&times(&step, many), u), v);
                let x = self.list.load(&weights, &at, self.s.lanes);
                let w = self.power(&x, base)?;
                self.list.store(&weights, &at, &w);
                added = Some(added.map_or_else(|| w.clone(), |a| sum(&a, &w)));
            }
            let Some(added) = added else { continue };
            let new = self.list.now(Op::Add, [totals[v].clone(), added]);
            self.list.set(&totals[v], &new);
        }
        self.list.close();
        for (v, register) in totals.iter().enumerate() {
            let at = self.at(&number(0), v);
            self.list.store(&total, &at, register);
        }
        Some(rescale)
    }

    /// Adds a block's values with their weights.
    fn add_values(&mut self, block: &Block, values: &Source, rescale: &[UOp]) {
        let (high, columns) = (self.s.high as i64, self.p.columns);
        let (full, rest) = (columns / high, columns % high);
        if full > 0 {
            let j = self.list.open(&number(full));
            self.value_tile(block, values, (&times(&j, high), high), rescale);
            self.list.close();
        }
        if rest > 0 {
            self.value_tile(block, values, (&number(full * high), rest), rescale);
        }
    }

    fn value_tile(&mut self, block: &Block, values: &Source, (from, high): (&UOp, i64), rescale: &[UOp]) {
        let (sums, weights) = (self.areas.sums.clone(), self.areas.weights.clone());
        let mut registers = self.registers(high, |k, i, v| {
            let at = k.at(&plus(from, i), v);
            k.list.load(&sums, &at, k.s.lanes).binary(Op::Mul, &rescale[v])
        });
        self.products(&mut registers, block.len, |k, row| {
            let weights = (0..k.s.vectors).map(|v| k.list.load(&weights, &k.at(row, v), k.s.lanes)).collect();
            ((0..high).map(|i| k.element(values, row, &plus(from, i))).collect(), weights)
        });
        for (i, row) in (0..high).zip(registers) {
            for (v, register) in row.iter().enumerate() {
                let at = self.at(&plus(from, i), v);
                self.list.store(&sums, &at, register);
            }
        }
    }

    /// Divides by the sums of the weights and stores the result, a query after the other.
    fn finish(&mut self, tile: &Tile) -> Option<()> {
        let (lanes, width, columns) = (self.s.lanes, self.s.width(), self.p.columns);
        let Areas { sums, total, .. } = &self.areas;
        let (sums, total) = (sums.clone(), total.clone());
        let one = self.vector(1.0);
        let inverse: Vec<UOp> = (0..self.s.vectors)
            .map(|v| {
                let at = self.at(&number(0), v);
                let total = self.list.load(&total, &at, lanes);
                self.list.listed(one.binary(Op::FDiv, &total))
            })
            .collect();
        let c = self.list.open(&number(columns));
        for (v, inverse) in inverse.iter().enumerate() {
            let at = self.at(&c, v);
            let x = self.list.load(&sums, &at, lanes);
            self.list.store(&sums, &at, &x.binary(Op::Mul, inverse));
        }
        self.list.close();
        let out = &self.p.out;
        let base = sum(&tile.place.scalar(&out.base)?, &times(&tile.first, out.strides[0]));
        let there = least(&number(width), &sum(&number(self.p.rows), &times(&tile.first, -1)));
        let r = self.list.open(&there);
        let to = sum(&base, &times(&r, out.strides[0]));
        let mut done = 0;
        for n in std::iter::successors(Some(lanes), |n| (*n > 1).then_some(n / 2)) {
            let turns = (columns - done) / i64::from(n);
            for k in 0..turns {
                let column = done + k * i64::from(n);
                let x = if n > 1 {
                    let from = sum(&steps(n, width), &spread(&plus(&r, column * width), n));
                    self.list.load(&sums, &from, n)
                } else {
                    self.list.load(&sums, &plus(&r, column * width), 1)
                };
                let x = x.cast(DType::of(out.scalar()).vec(n));
                self.list.store(&out.address, &plus(&to, column), &x);
            }
            done += turns * i64::from(n);
        }
        self.list.close();
        Some(())
    }
}
