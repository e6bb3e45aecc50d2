//! An attention's gradient on GPUs, apart from how products are made.
//!
//! A workgroup takes some rows, and goes through the others block by block. Blocks of which no score is hidden need no
//! conditions.

use super::super::gradient::{Gradient, Sum};
use super::super::list::{List, least, plus, sum, times};
use super::super::pieces;
use super::super::value::{Lanes, Place};
use super::{Share, Vector, group, int, joined, positions, power, quotient, store, thread, wide};
use crate::Target;
use doorbell_uop::{DType, Op, Scalar, Srcs, UMap, UOp};

/// How products and weighted sums are made.
pub(super) trait Products {
    /// Reads the rows of a workgroup.
    fn start(&mut self, k: &mut Kernel, g: &Group) -> Option<()>;
    /// Copies a block of the others, where the gate holds.
    fn copy(&self, k: &mut Kernel, g: &Group, block: &UOp, there: &UOp) -> Option<()>;
    /// The products of a pair, for each tile of rows.
    fn products(&self, k: &mut Kernel, which: usize, block: &UOp) -> Vec<Vec<UOp>>;
    /// Adds a block's others of a pair with their weights to what registers hold.
    fn add(&self, k: &mut Kernel, which: usize, block: &UOp, weights: &[Vec<UOp>], registers: &[Vec<UOp>]);
}

/// A workgroup's rows.
pub(super) struct Group {
    pub place: Place,
    /// The first one.
    pub first: UOp,
}

pub(super) struct Kernel<'a> {
    pub p: &'a Gradient,
    /// Its sums are those of the first result.
    pub share: Share,
    pub list: List,
    pub thread: UOp,
    /// Of each result, the vectors of sums of a tile.
    sums: Vec<Vec<Vector>>,
    /// What was read for the rows of each tile: nodes of the kernel graph and their values.
    of_rows: Vec<Vec<(UOp, UOp)>>,
    has_exp2: bool,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(p: &'a Gradient, target: &Target, share: Share, sums: Vec<Vec<Vector>>) -> Kernel<'a> {
        Kernel {
            p,
            thread: thread(share.threads),
            share,
            list: List::new(),
            sums,
            of_rows: Vec::new(),
            has_exp2: target.exp2,
        }
    }

    pub(super) fn write(mut self, products: &mut impl Products) -> Option<Vec<UOp>> {
        let p = self.p;
        let tiles = pieces(p.rows, self.share.rows);
        i32::try_from(tiles * p.outer.iter().map(|r| r.1).product::<i64>()).ok()?;
        let (place, iteration) = group(&p.outer, tiles);
        // Those that have most to do come first.
        let last_first = p.causal.is_some() && p.by_query;
        let iteration = if last_first { int(tiles - 1).binary(Op::Sub, &iteration) } else { iteration };
        let mut g = Group { place, first: times(&iteration, self.share.rows) };
        products.start(&mut self, &g)?;
        self.read_of_rows(&g)?;
        let registers: Vec<Vec<Vec<UOp>>> = (0..p.sums.len()).map(|n| self.registers(n)).collect();
        for (r, n) in &p.around {
            let counter = self.list.open(&int(*n));
            g.place.scalars.insert(r.clone(), wide(&counter));
        }
        if !p.around.is_empty() {
            // What is copied next replaces what other threads may still read.
            self.list.arrive();
        }
        let spans = self.spans(&g.first);
        let (start, end) = (spans.first()?.0.clone(), spans.last()?.1.clone());
        products.copy(&mut self, &g, &start, &start.lt(&end))?;
        self.list.commit();
        for (from, to, hides) in spans {
            let b = self.list.open(&to.binary(Op::Sub, &from));
            let block = self.list.listed(sum(&from, &b));
            self.block(products, &g, (&block, &end, hides), &registers)?;
            self.list.close();
        }
        p.around.iter().for_each(|_| {
            self.list.close();
        });
        for (n, (sum, registers)) in p.sums.iter().zip(&registers).enumerate() {
            self.finish(&g, (n, sum), registers)?;
        }
        Some(self.list.finish())
    }

    /// Reads what does not depend on the others.
    fn read_of_rows(&mut self, g: &Group) -> Option<()> {
        let (p, first) = (self.p, sum(&g.first, &self.share.row));
        for tile in &self.share.tiles {
            let one = |load: &UOp, row: i64| {
                let mut place = g.place.clone();
                place.scalars.insert(p.row.clone(), wide(&least(&plus(&first, row), &int(p.rows - 1))));
                place.scalar(load)
            };
            let of = |load: UOp| {
                let values = tile.iter().map(|row| one(&load, *row)).collect::<Option<Srcs>>()?;
                Some((load, joined(values)))
            };
            let read = p.of_rows().into_iter().map(of).collect::<Option<Vec<_>>>()?;
            self.of_rows.push(read);
        }
        let list = &mut self.list;
        self.of_rows.iter().flatten().for_each(|(_, value)| {
            list.value(value);
        });
        Some(())
    }

    /// The value of a node of the kernel graph in a vector of a tile.
    fn value(&self, g: &Group, at: (usize, usize), block: &UOp, u: &UOp, given: &[(&UOp, &UOp)]) -> Option<UOp> {
        let (row, other) = self.at(g, at, block);
        let vector = &self.share.scores[at.1];
        let own: Vec<(&UOp, UOp)> = self.of_rows[at.0].iter().map(|(load, x)| (load, vector.spread(x))).collect();
        let mut all = vec![(&self.p.row, &row), (&self.p.other, &other)];
        all.extend(own.iter().map(|(load, x)| (*load, x)));
        all.extend(given);
        g.place.lanes(u, &Lanes { given: &all, lanes: vector.len() }, &mut UMap::default())
    }

    /// Zeros for the sums of a result, for each tile.
    fn registers(&mut self, n: usize) -> Vec<Vec<UOp>> {
        let lens: Vec<u16> = self.sums[n].iter().map(Vector::len).collect();
        let zero = |len: u16| UOp::constant(DType::of(Scalar::F32).vec(len), 0.0);
        let list = &mut self.list;
        self.share.tiles.iter().map(|_| lens.iter().map(|len| list.register(&zero(*len))).collect()).collect()
    }

    /// The blocks that have weights for rows of the workgroup, and whether scores in them may be hidden.
    fn spans(&self, first: &UOp) -> Vec<(UOp, UOp, bool)> {
        let (p, len, rows) = (self.p, self.share.keys, self.share.rows);
        let (whole, all) = (int(p.others / len), int(pieces(p.others, len)));
        let positive = |x: UOp| x.binary(Op::Max, &int(0));
        match p.causal {
            None => vec![(int(0), whole.clone(), false), (whole, all, true)],
            Some(n) if p.by_query => {
                let full = least(&quotient(&positive(plus(first, n + 1)), len), &whole);
                let end = least(&quotient(&positive(plus(first, rows + n + len - 1)), len), &all);
                vec![(int(0), full.clone(), false), (full, end, true)]
            }
            Some(n) => {
                let start = least(&quotient(&positive(plus(first, -n)), len), &all);
                let full = quotient(&positive(plus(first, rows - 1 - n + len - 1)), len);
                let full = least(&full, &all);
                let end = full.binary(Op::Max, &whole);
                vec![(start, full.clone(), true), (full, end.clone(), false), (end, all, true)]
            }
        }
    }

    fn block(
        &mut self,
        products: &mut impl Products,
        g: &Group,
        (block, end, hides): (&UOp, &UOp, bool),
        registers: &[Vec<Vec<UOp>>],
    ) -> Option<()> {
        let p = self.p;
        self.list.arrive();
        let next = plus(block, 1);
        products.copy(self, g, &next, &next.lt(end))?;
        self.list.commit();
        let scores = products.products(self, 0, block);
        let powers = self.of_tiles(scores, |k, at, x| k.power(g, at, block, hides, x))?;
        let weights = if p.results.is_some() {
            let results = products.products(self, 1, block);
            let weight = p.sums.iter().find(|s| !p.is_plain(s)).map(|s| s.weight.clone())?;
            let made = self.of_tiles(results, |k, at, x| {
                let (pair, power) = (p.results.as_ref()?, &powers[at.0][at.1]);
                k.value(g, at, block, &weight, &[(&pair.product, x), (&p.power, power)])
            })?;
            Some(made)
        } else {
            None
        };
        for (sum, registers) in p.sums.iter().zip(registers) {
            let weights = if p.is_plain(sum) { &powers } else { weights.as_ref()? };
            products.add(self, sum.of, block, weights, registers);
        }
        Some(())
    }

    /// A value for each vector of each tile, which `each` gets by number.
    fn of_tiles(
        &mut self,
        products: Vec<Vec<UOp>>,
        mut each: impl FnMut(&mut Self, (usize, usize), &UOp) -> Option<UOp>,
    ) -> Option<Vec<Vec<UOp>>> {
        let mut all = Vec::new();
        for (t, products) in products.iter().enumerate() {
            let mut of_tile = Vec::new();
            for (v, x) in products.iter().enumerate() {
                let made = each(self, (t, v), x)?;
                of_tile.push(self.list.listed(made));
            }
            all.push(of_tile);
        }
        Some(all)
    }

    /// The positions of a vector's rows and others; after the last one there are copies of it.
    fn at(&self, g: &Group, (tile, vector): (usize, usize), block: &UOp) -> (UOp, UOp) {
        let (p, share) = (self.p, &self.share);
        let vector = &share.scores[vector];
        let first = sum(&g.first, &share.row);
        let rows = positions(&first, vector, |e| share.tiles[tile][usize::from(vector.queries[e])]);
        let rows = if p.rows % share.rows == 0 { rows } else { least(&rows, &rows.const_like(p.rows - 1)) };
        let others = self.others(vector, block);
        let others = if p.others % share.keys == 0 { others } else { least(&others, &others.const_like(p.others - 1)) };
        (rows, others)
    }
    fn others(&self, vector: &Vector, block: &UOp) -> UOp {
        let first = sum(&times(block, self.share.keys), &self.share.key);
        positions(&first, vector, |e| vector.along[e])
    }

    /// The weights of the attention: 0 after the last of the others.
    fn power(&self, g: &Group, at: (usize, usize), block: &UOp, hides: bool, x: &UOp) -> Option<UOp> {
        let p = self.p;
        let exponent = self.value(g, at, block, &p.wide[usize::from(!hides)], &[(&p.scores.product, x)])?;
        let weight = power(&exponent, self.has_exp2)?;
        if !hides || p.others % self.share.keys == 0 {
            return Some(weight);
        }
        let other = self.others(&self.share.scores[at.1], block);
        Some(other.lt(&other.const_like(p.others)).select(&weight, &weight.const_like(0.0)))
    }

    fn finish(&mut self, g: &Group, (n, of): (usize, &Sum), registers: &[Vec<UOp>]) -> Option<()> {
        let out = &of.out;
        let first_row = self.list.now(Op::Add, [g.first.clone(), self.share.row.clone()]);
        let base = g.place.scalar(&out.base)?;
        let first = sum(&base, &sum(&times(&wide(&first_row), out.strides[0]), &wide(&self.share.column)));
        for (t, registers) in registers.iter().enumerate() {
            for (vector, register) in self.sums[n].iter().zip(registers) {
                let x = self.list.now(Op::Mul, [register.clone(), register.const_like(of.factor)]);
                let there = (&first_row, self.p.rows);
                store(&mut self.list, (out, &first), (&self.share, &self.share.tiles[t], vector), &x, there);
            }
        }
        Some(())
    }
}
