//! Attention on GPUs, apart from how products are made: workgroups, blocks of keys, masks, the softmax in one pass.
//!
//! A workgroup takes some queries, and goes through the keys block by block. Its threads hold scores and sums of
//! weighted values in registers as [`Share`] says; threads beside each other hold parts of the same rows, and exchange
//! a row's largest score and, at the end, the sum of its weights. Blocks whose keys are all seen by all queries come
//! first; only the others evaluate conditions.

use super::super::list::{List, least, plus, sum, times};
use super::super::parts::{Parts, seen, unscaled};
use super::super::value::{Lanes, Place};
use super::super::{log_sum, pieces};
use super::{Share, Vector, group, int, positions, power, quotient, store, thread, wide};
use crate::Target;
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, UMap, UOp};

/// How scores and weighted sums are made.
pub(super) trait Products {
    /// What comes before the loops over blocks.
    fn start(&mut self, k: &mut Kernel, g: &Group) -> Option<()>;
    /// A block; `hides`: some keys may be hidden from some queries.
    fn block(&mut self, k: &mut Kernel, g: &Group, sofar: &[Sofar], block: &UOp, hides: bool) -> Option<()>;
}

/// A workgroup's queries.
pub(super) struct Group {
    pub place: Place,
    /// The first one.
    pub first: UOp,
    /// Positions of the first query, key and value.
    pub bases: [UOp; 3],
    /// Blocks of keys.
    pub end: UOp,
}

/// What is known of the queries of a tile so far, in registers.
pub(super) struct Sofar {
    most: UOp,
    total: UOp,
    /// Sums of weighted values.
    pub sums: Vec<UOp>,
}

pub(super) struct Kernel<'a> {
    pub p: &'a Parts,
    pub share: Share,
    pub list: List,
    pub thread: UOp,
    has_exp2: bool,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(p: &'a Parts, target: &Target, share: Share) -> Kernel<'a> {
        Kernel { p, thread: thread(share.threads), share, list: List::new(), has_exp2: target.exp2 }
    }

    pub(super) fn write(mut self, products: &mut impl Products) -> Option<Vec<UOp>> {
        let p = self.p;
        let tiles = pieces(p.rows, self.share.rows);
        i32::try_from(tiles * p.outer.iter().map(|r| r.1).product::<i64>()).ok()?;
        let (place, iteration) = group(&p.outer, tiles);
        // Those that see most come first.
        let iteration = if p.causal.is_some() { int(tiles - 1).binary(Op::Sub, &iteration) } else { iteration };
        let first = times(&iteration, self.share.rows);
        let bases = [place.scalar(&p.query.base)?, place.scalar(&p.key.base)?, place.scalar(&p.value.as_ref()?.base)?];
        let (full, end) = self.blocks(&first);
        let g = Group { place, first, bases, end: end.clone() };
        products.start(&mut self, &g)?;
        let sofar: Vec<Sofar> = (0..self.share.tiles.len()).map(|t| self.start(t)).collect();
        let b = self.list.open(&full);
        products.block(&mut self, &g, &sofar, &b, false)?;
        self.list.close();
        if p.causal.is_some() || p.keys % self.share.keys != 0 {
            let b = self.list.open(&end.binary(Op::Sub, &full));
            products.block(&mut self, &g, &sofar, &sum(&full, &b), true)?;
            self.list.close();
        }
        self.finish(&g, &sofar)?;
        Some(self.list.finish())
    }

    /// How many blocks are seen whole by all queries of the workgroup, and how many at all.
    fn blocks(&self, first: &UOp) -> (UOp, UOp) {
        let len = self.share.keys;
        let (whole, all) = (self.p.keys / len, pieces(self.p.keys, len));
        let Some(n) = self.p.causal else { return (int(whole), int(all)) };
        let positive = |x: UOp| x.binary(Op::Max, &int(0));
        let full = least(&quotient(&positive(plus(first, n + 1)), len), &int(whole));
        let end = least(&quotient(&positive(plus(first, self.share.rows + n + len - 1)), len), &int(all));
        (full, end)
    }

    fn start(&mut self, tile: usize) -> Sofar {
        let f32s = |lanes: u16, v: f64| UOp::constant(DType::of(Scalar::F32).vec(lanes), v);
        let n = self.share.tiles[tile].len() as u16;
        let most = self.list.register(&f32s(n, f64::NEG_INFINITY));
        let total = self.list.register(&f32s(n, 0.0));
        let sums = (0..self.share.sums.len()).map(|c| self.list.register(&f32s(self.share.sums[c].len(), 0.0)));
        let sums = sums.collect();
        Sofar { most, total, sums }
    }

    /// Scores become weights; what was summed so far is rescaled.
    pub(super) fn weights(
        &mut self,
        g: &Group,
        sofar: &Sofar,
        (tile, products): (usize, &[UOp]),
        block: &UOp,
        hides: bool,
    ) -> Option<Vec<UOp>> {
        let (scores, factor, may_hide) = self.masked(g, (tile, products), block, hides)?;
        let (queries, arg) = (self.share.tiles[tile].len(), |op| self.over_neighbours(op));
        let folded = |x: &[UOp], op: Op| {
            let all = x.iter().cloned().reduce(|a, b| a.binary(op, &b))?;
            Some(self.share.scores[0].folded(&all, queries, op))
        };
        let largest = folded(&scores, Op::Max)?;
        let shared = UOp::new(Op::WaveReduce, largest.dtype(), [largest], arg(Op::Max));
        let old = sofar.most.clone();
        let new = self.list.now(Op::Max, [shared, old.clone()]);
        // Where nothing was seen yet, scores of -inf have the weight 0.
        let none = new.equal(&new.const_like(f64::NEG_INFINITY));
        let base = if may_hide { none.select(&new.const_like(0.0), &new) } else { new.clone() };
        let off = base.binary(Op::Mul, &base.const_like(-factor));
        let rescale = self.list.now(Op::MulAcc, [old, off.const_like(factor), off.clone()]);
        let rescale = power(&rescale, self.has_exp2)?;
        let rescale = self.list.listed(rescale);
        self.list.set(&sofar.most, &new);
        let mut weights = Vec::new();
        for (x, vector) in scores.iter().zip(&self.share.scores) {
            let src: Srcs = [x.clone(), x.const_like(factor), vector.spread(&off)].into_iter().collect();
            let w = power(&UOp::alu(Op::MulAcc, src), self.has_exp2)?;
            weights.push(self.list.listed(w));
        }
        let all = weights.iter().cloned().reduce(|a, b| sum(&a, &b))?;
        let added = self.share.scores[0].folded(&all, queries, Op::Add);
        let total = self.list.now(Op::MulAcc, [sofar.total.clone(), rescale.clone(), added]);
        self.list.set(&sofar.total, &total);
        for (sums, vector) in sofar.sums.iter().zip(&self.share.sums) {
            let smaller = self.list.now(Op::Mul, [sums.clone(), vector.spread(&rescale)]);
            self.list.set(sums, &smaller);
        }
        Some(weights)
    }

    /// The scores of a block up to a common factor in the exponent to base 2, and whether there may be rows of -inf.
    fn masked(
        &mut self,
        g: &Group,
        (tile, products): (usize, &[UOp]),
        block: &UOp,
        hides: bool,
    ) -> Option<(Vec<UOp>, f64, bool)> {
        let (p, share) = (self.p, &self.share);
        let whole = p.wide_score();
        let open = seen(&whole, &p.row, &p.key_loop);
        let (score, factor) = unscaled(if hides { &whole } else { &open });
        let may_hide = hides || unscaled(&open).0 != p.product;
        let ragged = hides && p.keys % share.keys != 0;
        let first_row = sum(&g.first, &share.row);
        let first_key = sum(&times(block, share.keys), &share.key);
        let mut all = Vec::new();
        for (vector, products) in share.scores.iter().zip(products) {
            let lanes = vector.len();
            let rows = positions(&first_row, vector, |e| share.tiles[tile][usize::from(vector.queries[e])]);
            let rows = if p.rows % share.rows == 0 { rows } else { least(&rows, &rows.const_like(p.rows - 1)) };
            let keys = positions(&first_key, vector, |e| vector.along[e]);
            let there = if ragged { least(&keys, &keys.const_like(p.keys - 1)) } else { keys.clone() };
            let given = &[(&p.row, &rows), (&p.key_loop, &there), (&p.product, products)];
            let mut x = g.place.lanes(&score, &Lanes { given, lanes }, &mut UMap::default())?;
            if ragged {
                x = keys.lt(&keys.const_like(p.keys)).select(&x, &x.const_like(f64::NEG_INFINITY));
            }
            all.push(x);
        }
        let all = all.into_iter().map(|x| self.list.listed(x)).collect();
        Some((all, factor * p.factor, may_hide))
    }

    fn over_neighbours(&self, op: Op) -> Arg {
        Arg::Reduce(op, [self.share.neighbours].into_iter().collect())
    }

    /// Divides by the sums of the weights and stores the result.
    fn finish(&mut self, g: &Group, sofar: &[Sofar]) -> Option<()> {
        let out = self.p.out.as_ref()?;
        let base = g.place.scalar(&out.base)?;
        // Listed here, so that nothing of the addresses is kept from where the queries were read.
        let first_row = self.list.now(Op::Add, [g.first.clone(), self.share.row.clone()]);
        let first = sum(&base, &sum(&times(&wide(&first_row), out.strides[0]), &wide(&self.share.column)));
        for (t, sofar) in sofar.iter().enumerate() {
            let total = sofar.total.clone();
            let total = UOp::new(Op::WaveReduce, total.dtype(), [total], self.over_neighbours(Op::Add));
            if let Some(out) = &self.p.log_sums {
                let most = sofar.most.clone();
                let most = most.binary(Op::Mul, &most.const_like(unscaled(&self.p.wide_score()).1 * self.p.factor));
                let log_sum = self.list.listed(log_sum(&total, &most)?);
                let first = sum(&g.place.scalar(&out.base)?, &times(&wide(&first_row), out.strides[0]));
                for (q, row) in (0..).zip(&self.share.tiles[t]) {
                    let inside = plus(&first_row, *row).lt(&int(self.p.rows));
                    let gate = inside.and(&self.share.key.equal(&int(0)));
                    let at = plus(&first, row * out.strides[0]);
                    self.list.store_where(&out.address, &at, &log_sum.gep(&[q]), Some(&gate));
                }
            }
            let inverse = total.const_like(1.0).binary(Op::FDiv, &total);
            for (sums, c) in sofar.sums.iter().zip(0..) {
                let vector: &Vector = &self.share.sums[c];
                let x = self.list.now(Op::Mul, [sums.clone(), vector.spread(&inverse)]);
                let there = (&first_row, self.p.rows);
                store(&mut self.list, (out, &first), (&self.share, &self.share.tiles[t], vector), &x, there);
            }
        }
        Some(())
    }
}
