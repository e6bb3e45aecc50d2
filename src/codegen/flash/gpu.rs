//! Attention on GPUs, apart from how products are made: workgroups, blocks of keys, masks, the softmax in one pass.
//!
//! A workgroup takes some queries, and goes through the keys block by block. Its threads hold scores and sums of
//! weighted values in registers as [`Share`] says; threads beside each other hold parts of the same rows, and exchange
//! a row's largest score and, at the end, the sum of its weights. Blocks whose keys are all seen by all queries come
//! first; only the others evaluate conditions.

use super::super::decomp;
use super::list::{List, least, plus, sum, times};
use super::parts::{Operand, Parts, seen, unscaled};
use super::value::{Lanes, Place, spread};
use super::{log_sum, pieces};
use crate::Target;
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, UMap, UOp};

/// Bytes of the longest copy.
pub(super) const PIECE: i64 = 16;

/// What a thread holds: some tiles of queries, and of each tile vectors of scores and of sums.
pub(super) struct Share {
    /// Threads and queries of a workgroup, keys of a block.
    pub threads: i64,
    pub rows: i64,
    pub keys: i64,
    /// The thread's first query in the workgroup, key in the block and column.
    pub row: UOp,
    pub key: UOp,
    pub column: UOp,
    /// Queries of a tile, from the thread's first one.
    pub tiles: Vec<Vec<i64>>,
    pub scores: Vec<Vector>,
    pub sums: Vec<Vector>,
    /// So many neighbouring threads have the same queries.
    pub neighbours: u16,
}

/// A vector of a tile.
pub(super) struct Vector {
    /// Of each element, the number of its query in the tile.
    pub queries: Vec<u16>,
    /// Of each element, the key or column, from the thread's first one.
    pub along: Vec<i64>,
}

impl Vector {
    fn len(&self) -> u16 {
        self.along.len() as u16
    }
    /// One value for each query, from one for each element.
    fn folded(&self, x: &UOp, queries: usize, op: Op) -> UOp {
        let of = |q: u16| (0..self.len()).filter(move |e| self.queries[usize::from(*e)] == q);
        let one = |q: u16| of(q).map(|e| x.gep(&[e])).reduce(|a, b| a.binary(op, &b));
        joined((0..queries as u16).filter_map(one).collect())
    }
    /// A query's value in its elements.
    fn spread(&self, x: &UOp) -> UOp {
        if x.dtype().lanes == 1 { x.splat(self.len()) } else { x.gep(&self.queries) }
    }
}

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

/// Rows to be copied to workgroup memory.
pub(super) struct Rows<'a> {
    pub from: &'a Operand,
    pub base: &'a UOp,
    /// The first row, how many, and how many there are in all.
    pub first: UOp,
    pub count: i64,
    pub all: i64,
    pub columns: i64,
    /// The area, the row in it that the first one goes to, and the elements between its rows.
    pub area: &'a UOp,
    pub at: UOp,
    pub pitch: i64,
}

pub(super) struct Kernel<'a> {
    pub p: &'a Parts,
    pub share: Share,
    pub list: List,
    pub thread: UOp,
    has_exp2: bool,
}

/// An index.
pub(super) fn int(n: i64) -> UOp {
    UOp::constant(DType::of(Scalar::I32), n)
}
pub(super) fn quotient(x: &UOp, n: i64) -> UOp {
    if n == 1 { x.clone() } else { x.binary(Op::CDiv, &x.const_like(n)) }
}
pub(super) fn remainder(x: &UOp, n: i64) -> UOp {
    if n == 1 { x.const_like(0) } else { x.binary(Op::CMod, &x.const_like(n)) }
}
pub(super) fn wide(x: &UOp) -> UOp {
    x.cast(Scalar::I64)
}
/// Vectors, or scalars, one after the other.
pub(super) fn joined(parts: Srcs) -> UOp {
    let t = parts[0].dtype();
    let op = if t.lanes == 1 { Op::Stack } else { Op::Cat };
    if let [one] = &parts[..] {
        one.clone()
    } else {
        UOp::new(op, t.vec(t.lanes * parts.len() as u16), parts, Arg::None)
    }
}
/// The number of the thread in its workgroup.
pub(super) fn thread(threads: i64) -> UOp {
    UOp::new(Op::Special, DType::of(Scalar::I32), [int(threads)], Arg::Str("lidx0".into()))
}

impl<'a> Kernel<'a> {
    pub(super) fn new(p: &'a Parts, target: &Target, share: Share) -> Kernel<'a> {
        Kernel { p, thread: thread(share.threads), share, list: List::new(), has_exp2: target.exp2 }
    }

    pub(super) fn write(mut self, products: &mut impl Products) -> Option<Vec<UOp>> {
        let p = self.p;
        let tiles = pieces(p.rows, self.share.rows);
        let all = tiles * p.outer.iter().map(|r| r.1).product::<i64>();
        i32::try_from(all).ok()?;
        let group = UOp::new(Op::Special, DType::of(Scalar::I32), [int(all)], Arg::Str("gidx0".into()));
        let turn = remainder(&group, tiles);
        // Those that see most come first.
        let turn = if p.causal.is_some() { int(tiles - 1).binary(Op::Sub, &turn) } else { turn };
        let first = times(&turn, self.share.rows);
        let mut rest = quotient(&group, tiles);
        let mut place = Place::default();
        for (r, n) in p.outer.iter().rev() {
            place.scalars.insert(r.clone(), wide(&remainder(&rest, *n)));
            rest = quotient(&rest, *n);
        }
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

    /// Copies rows to workgroup memory where the gate holds. Beyond the last row there are copies of it.
    pub(super) fn copy(&mut self, r: &Rows, there: Option<&UOp>) {
        let n = r.from.piece(PIECE / r.from.scalar().size_bytes() as i64);
        let (row_pieces, threads, [across, along]) = (r.columns / n, self.share.threads, r.from.strides);
        let all = r.count * row_pieces;
        let start = sum(r.base, &times(&wide(&r.first), across));
        let into = times(&r.at, r.pitch);
        for turn in 0..pieces(all, threads) {
            let number = plus(&self.thread, turn * threads);
            // Where whole rows are copied at a time, a thread stays at its column, and its rows are a constant apart.
            let (number_of_row, more) = match threads % row_pieces {
                0 => (&self.thread, turn * (threads / row_pieces)),
                _ => (&number, 0),
            };
            let (row, piece) = (quotient(number_of_row, row_pieces), remainder(number_of_row, row_pieces));
            let inside = ((turn + 1) * threads > all).then(|| number.lt(&int(all)));
            let gate = match (there, inside) {
                (Some(a), Some(b)) => Some(a.and(&b)),
                (a, b) => a.cloned().or(b),
            };
            let to = plus(&sum(&into, &sum(&times(&row, r.pitch), &times(&piece, n))), more * r.pitch);
            let column = times(&wide(&times(&piece, n)), along);
            let from = if r.all % r.count == 0 {
                plus(&sum(&start, &sum(&times(&wide(&row), across), &column)), more * across)
            } else {
                let row = least(&sum(&r.first, &plus(&row, more)), &int(r.all - 1));
                sum(r.base, &sum(&times(&wide(&row), across), &column))
            };
            self.list.copy((r.area, &to), (&r.from.address, &from), n as u16, gate.as_ref());
        }
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
        let rescale = self.power(&rescale)?;
        let rescale = self.list.listed(rescale);
        self.list.set(&sofar.most, &new);
        let mut weights = Vec::new();
        for (x, vector) in scores.iter().zip(&self.share.scores) {
            let src: Srcs = [x.clone(), x.const_like(factor), vector.spread(&off)].into_iter().collect();
            let w = self.power(&UOp::alu(Op::MulAcc, src))?;
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
            let along = |from: &UOp, f: &dyn Fn(usize) -> i64| {
                let src: Srcs = (0..usize::from(lanes)).map(|e| int(f(e))).collect();
                sum(&spread(from, lanes), &UOp::new(Op::Stack, DType::of(Scalar::I32).vec(lanes), src, Arg::None))
            };
            let rows = along(&first_row, &|e| share.tiles[tile][usize::from(vector.queries[e])]);
            let rows = if p.rows % share.rows == 0 { rows } else { least(&rows, &rows.const_like(p.rows - 1)) };
            let keys = along(&first_key, &|e| vector.along[e]);
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

    /// 2^x of what is not above 0.
    fn power(&self, x: &UOp) -> Option<UOp> {
        if self.has_exp2 {
            Some(UOp::alu(Op::Exp2, Srcs::from_iter([x.clone()])))
        } else {
            decomp::power_of_negative(x)
        }
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
                let (queries, along) = (vector.queries.clone(), vector.along.clone());
                let x = self.list.now(Op::Mul, [sums.clone(), vector.spread(&inverse)]);
                let x = x.cast(x.dtype().with_scalar(out.scalar()));
                // Elements beside each other are stored at once.
                let beside = (1..along.len()).find(|e| along[*e] != along[0] + *e as i64 || queries[*e] != queries[0]);
                let run =
                    beside.unwrap_or(along.len()).min(out.piece(PIECE / out.scalar().size_bytes() as i64) as usize);
                for e in (0..along.len()).step_by(run) {
                    let row = self.share.tiles[t][usize::from(queries[e])];
                    let at = plus(&first, row * out.strides[0] + along[e]);
                    let ragged = self.p.rows % self.share.rows != 0;
                    let gate = ragged.then(|| plus(&first_row, row).lt(&int(self.p.rows)));
                    let part: Vec<u16> = (e as u16..(e + run) as u16).collect();
                    self.list.store_where(&out.address, &at, &x.gep(&part), gate.as_ref());
                }
            }
        }
        Some(())
    }
}
