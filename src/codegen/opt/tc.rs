//! TC: turns a sum of products over a tile of output and reduction axes into one instruction of a matrix unit.
//!
//! `Σ_k a[m][k] · b[k][n]` is cut into tiles of the unit's size. Inside a tile, rows, columns and reduction steps are
//! no longer loops but functions of the thread's lane number and of the elements that it holds, as [`Spread`] says.
//! This takes three substitutions of ranges, one for each operand and one for the result. The elements of the result
//! are the lanes of a vector.

use super::apply::{OptKernel, Reason, kind_of};
use super::pipe::{Operand, Operands};
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, ConstVal, Op, Spread, Srcs, TileBit, UMap, UOp, WmmaArg};
use std::sync::Arc;

/// A reduction that the unit can compute, and on which axes.
struct Match {
    unit: &'static WmmaArg,
    /// Axes of rows, of columns and of the reduction.
    axes: [UOp; 3],
    /// The second operand of the product has the rows.
    swapped: bool,
}

/// The operands of a product to be summed, as values of the unit's operand type. A gate around the product moves into
/// both operands.
fn operands(x: &UOp, unit: &WmmaArg) -> Option<(UOp, UOp)> {
    let narrow = |v: &UOp| {
        let v = if v.op() == Op::Cast { &v.src()[0] } else { v };
        (v.dtype().scalar == unit.a).then(|| v.clone())
    };
    match x.op() {
        Op::Mul => Some((narrow(&x.src()[0])?, narrow(&x.src()[1])?)),
        // A product in the operands' type is rounded before it is added, which the unit does not do; that is allowed.
        // (A product of bytes would have wrapped around.)
        Op::Cast if x.src()[0].op() == Op::Mul && unit.acc.is_float() => operands(&x.src()[0], unit),
        Op::Where if x.src()[2].as_const().is_some_and(ConstVal::is_zero) => {
            let (a, b) = operands(&x.src()[1], unit)?;
            Some((gated(&a, &x.src()[0]), gated(&b, &x.src()[0])))
        }
        _ => None,
    }
}

/// `x` where the gate holds, else 0. A load that already has this gate is left unchanged.
fn gated(x: &UOp, gate: &UOp) -> UOp {
    let says = |g: &UOp| g.toposort_if(|u| u.op() == Op::And).contains(gate);
    let zero = |l: &UOp| l.src().get(1).is_some_and(|a| a.as_const().is_some_and(ConstVal::is_zero));
    if x.op() == Op::Load && zero(x) && x.src()[0].src().get(2).is_some_and(says) {
        return x.clone();
    }
    gate.select(x, &x.const_like(0))
}

/// All ways to use the target's matrix units, the most promising first.
fn matches(sink: &UOp, units: &'static [WmmaArg]) -> Vec<Match> {
    let sums = |u: &UOp| u.op() == Op::Reduce && u.reduce_op() == Some(Op::Add);
    let mut found = vec![];
    for reduce in sink.toposort().into_iter().filter(sums) {
        for unit in units {
            let t = reduce.dtype().scalar;
            let Some((a, b)) = operands(&reduce.src()[0], unit).filter(|_| t == unit.acc || t == unit.a) else {
                continue;
            };
            let (a, b) = (a.open_ranges(), b.open_ranges());
            let only = |x: &[UOp], y: &[UOp]| {
                let one = |r: &&UOp| kind_of(r) == AxisKind::Loop && !y.contains(r) && whole(r);
                let mut rs: Vec<UOp> = x.iter().filter(one).cloned().collect();
                sort::by_key(&mut rs, |r| std::cmp::Reverse(r.range_arg()));
                rs
            };
            let mut sums: Vec<UOp> = reduce.src()[1..].to_vec();
            sums.retain(|k| kind_of(k) == AxisKind::Reduce && a.contains(k) && b.contains(k) && whole(k));
            for k in sums.iter().rev() {
                for (x, swapped) in [(&a, false), (&b, true)] {
                    let y = if swapped { &a } else { &b };
                    for m in only(x, y) {
                        for n in only(y, x) {
                            found.push(Match { unit, axes: [m.clone(), n, k.clone()], swapped });
                        }
                    }
                }
            }
        }
    }
    // Prefer columns along the inner axis of the result, where memory is contiguous.
    sort::by_key(&mut found, |m| m.axes[0].range_arg() > m.axes[1].range_arg());
    found
}

fn whole(r: &UOp) -> bool {
    r.src()[0].as_int().is_some()
}

/// A coordinate within a tile, computed from lane and element number; adjacent bits that move together are extracted
/// together.
pub(super) fn coordinate(bits: &[TileBit], lane: Option<&UOp>, element: &UOp) -> UOp {
    let mut sum: Option<UOp> = None;
    let mut j = 0;
    while j < bits.len() {
        let follows = |run: usize| match (bits[j], bits.get(j + run)) {
            (TileBit::L(a), Some(TileBit::L(b))) | (TileBit::E(a), Some(TileBit::E(b))) => {
                *b as usize == a as usize + run
            }
            _ => false,
        };
        let run = (1..).find(|run| !follows(*run)).unwrap_or(1);
        let (from, first) = match bits[j] {
            TileBit::L(k) => (lane.cloned().unwrap_or_else(|| UOp::int(0)), k),
            TileBit::E(k) => (element.clone(), k),
        };
        let part = &(&from / (1i64 << first)) % (1i64 << run);
        let part = &part * (1i64 << j);
        sum = Some(sum.map_or(part.clone(), |s| &s + &part));
        j += run;
    }
    sum.unwrap_or_else(|| UOp::int(0)).simplify()
}

impl OptKernel<'_> {
    /// The reductions that the target's matrix units can compute, in the order in which TC counts them: the unit, and
    /// the axes of rows, columns and reduction steps.
    pub(super) fn products(&self) -> Vec<(&'static WmmaArg, [UOp; 3])> {
        matches(&self.sink, self.target.tensor_cores).into_iter().map(|m| (m.unit, m.axes)).collect()
    }

    /// Uses a matrix unit in the `choice`-th way that it fits. Axes that are not a multiple of the tile are padded.
    pub(super) fn tensor_core(&mut self, choice: usize) -> Result<(), Reason> {
        let units = self.target.tensor_cores;
        if units.is_empty() {
            return Err("the target has no matrix unit".into());
        }
        let found = matches(&self.sink, units);
        let count = found.len();
        let Some(m) = found.into_iter().nth(choice) else {
            return Err(
                format!("the kernel has {count} sums of products that a matrix unit of the target could do").into()
            );
        };
        let sizes = [m.unit.m, m.unit.n, m.unit.k];
        for store in self.sink.src().iter().filter(|s| s.op() == Op::Store) {
            if store.src().contains(&m.axes[0]) != store.src().contains(&m.axes[1]) {
                return Err("a store has rows of the product without its columns".into());
            }
        }
        let mut inner: Vec<UOp> = vec![];
        self.waste = 1.0;
        self.tiles.clear();
        for (r, n) in m.axes.iter().zip(sizes) {
            let mut axis = r.clone();
            let len = (r.vmax() + 1) as f64;
            self.waste *= (len / n as f64).ceil() * n as f64 / len;
            if r.src()[0].as_int().is_some_and(|len| len % n as i64 != 0) {
                axis = self.pad_to(&axis, n as usize)?;
            }
            inner.push(self.tile(&axis, n as usize)?);
            self.tiles.push(self.remaining_loop.clone());
        }
        let [row, column, step] = inner.as_slice() else { return Err("a product has three axes".into()) };
        let reduce = self.sink.toposort().into_iter().find(|u| u.op() == Op::Reduce && u.src()[1..].contains(step));
        let reduce = reduce.ok_or("the sum has gone")?;
        let (a, b) = operands(&reduce.src()[0], m.unit).ok_or("padding has changed the product")?;
        let (a, b) = if m.swapped { (b, a) } else { (a, b) };
        let lane = (m.unit.lanes > 1).then(|| self.fresh(row, &UOp::int(m.unit.lanes as i64), AxisKind::Warp));
        let mut vector = |s: &Spread, like: &UOp| self.fresh(like, &UOp::int(s.elements() as i64), AxisKind::Vector);
        let (ea, eb, ec) =
            (vector(&m.unit.a_spread, row), vector(&m.unit.b_spread, column), vector(&m.unit.c_spread, column));
        let tile = |x: &UOp, spread: &Spread, e: &UOp, rows: &UOp, columns: &UOp| {
            let at = |bits| coordinate(bits, lane.as_ref(), e);
            let map: UMap<UOp> =
                [(rows.clone(), at(spread.row)), (columns.clone(), at(spread.col))].into_iter().collect();
            x.substitute(&map)
        };
        let plain = [a, b];
        let a = tile(&plain[0], &m.unit.a_spread, &ea, row, step);
        let b = tile(&plain[1], &m.unit.b_spread, &eb, column, step);
        let of = |k: usize, line: &UOp, tiled: &UOp, spread, element: &UOp| Operand {
            value: plain[k].clone(),
            tiled: tiled.clone(),
            line: line.clone(),
            step: step.clone(),
            element: element.clone(),
            spread,
        };
        let both = [of(0, row, &a, m.unit.a_spread, &ea), of(1, column, &b, m.unit.b_spread, &eb)];
        self.operands = Some(Operands { lane: lane.clone(), both, from_memory: m.unit.from_memory });
        self.history.clear();
        let acc = reduce.dtype().with_scalar(m.unit.acc);
        let unit = UOp::new(Op::Wmma, acc, [a, b, ec.clone(), ea, eb], Arg::Wmma(Arc::new(*m.unit)));
        let rest: Vec<UOp> = reduce.src()[1..].iter().filter(|r| *r != step).cloned().collect();
        let total = if rest.is_empty() { unit } else { unit.reduce(Op::Add, &rest) }.cast(reduce.dtype());
        let at = |bits| coordinate(bits, lane.as_ref(), &ec);
        let places = [(row, at(m.unit.c_spread.row)), (column, at(m.unit.c_spread.col))];
        self.sink = replace(&self.sink, (&reduce, &total), &places, &[lane.as_ref(), Some(&ec)]);
        Ok(())
    }
}

/// The kernel with `total` in place of the reduction, each of the tile's ranges replaced by its expression in a thread,
/// and stores over a thread's ranges instead of the tile's.
fn replace(sink: &UOp, (reduce, total): (&UOp, &UOp), places: &[(&UOp, UOp)], threads: &[Option<&UOp>]) -> UOp {
    let mut done: UMap<UOp> = places.iter().map(|(r, at)| ((*r).clone(), at.clone())).collect();
    done.insert(reduce.clone(), total.clone());
    for u in sink.toposort() {
        if done.contains_key(&u) {
            continue;
        }
        let tile = |s: &UOp| places.iter().any(|(r, _)| *r == s);
        let closes = u.op() == Op::Store && u.src()[2..].iter().any(tile);
        // PANIC: toposort lists sources first.
        let kept = u.src().iter().enumerate().filter(|(k, s)| *k < 2 || !closes || !tile(s));
        let mut src: Srcs = kept.map(|(_, s)| done[s].clone()).collect();
        if closes {
            src.extend(threads.iter().flatten().map(|r| (*r).clone()));
        }
        done.insert(u.clone(), u.with_src(src));
    }
    done.remove(sink).unwrap_or_else(|| sink.clone())
}
