//! Vectorises: a value that depends on a Vector range gets one lane for each value of the range; all other values stay
//! scalar.
//!
//! A load whose address moves by one element per lane becomes one vector load from the address of lane 0. If it moves
//! by -1, that vector is reversed; if it does not move, a scalar load is broadcast; anything else is a gather. No
//! vector operation is split into scalars here.

use super::CodegenError;
use super::affine::{Affine, AffineMemo, gcd};
use super::expand::flat_sink;
use super::opt::kind_of;
use super::scope::first_range;
use doorbell_uop::{Arg, Axes, AxisKind, DType, Memo, Op, Order, RangeArg, Srcs, UMap, UOp, USet};

/// Replaces every Vector range.
///
/// # Errors
/// A value depends on two Vector ranges, or a store does not depend on its Vector range.
pub(super) fn to_lanes(sink: &UOp) -> Result<UOp, CodegenError> {
    let order = Order::of(sink);
    let order = order.nodes();
    if !order.iter().any(|u| u.op() == Op::Range && kind_of(u) == AxisKind::Vector) {
        return Ok(sink.clone());
    }
    let of_unit = |u: &&&UOp| u.op() == Op::Wmma && matches!(u.arg(), Arg::Wmma(w) if w.lanes > 1);
    let results = order.iter().filter(of_unit).map(|u| u.src()[2].clone()).collect();
    let mut l = Lanes { done: Memo::new(), axis: Memo::new(), affine: AffineMemo::default(), results };
    for u in order {
        l.find_axis(u)?;
    }
    // Index expressions are analysed by the accesses that use them. They become vectors only where they are needed as
    // values.
    for u in order {
        if u.dtype() != DType::INDEX && u.op() != Op::Index {
            l.value(u)?;
        }
    }
    Ok(l.done.get(sink).unwrap_or(sink).clone())
}

struct Lanes {
    done: Memo<UOp>,
    /// The Vector range a node depends on.
    axis: Memo<UOp>,
    affine: AffineMemo,
    /// The elements that a thread holds of a matrix unit's results.
    results: USet,
}

/// The most lanes of a vector that is computed with. Tiles of matrix units can be longer.
const MOST_LANES: u16 = 64;

/// A range of `n` lanes in place of `v`.
fn piece(v: &UOp, n: u16, which: u32) -> UOp {
    let arg = v.range_arg().map(|a| RangeArg { sub: a.sub + ((which + 1) << 16), ..a });
    let arg = arg.map_or(Arg::None, Arg::Range);
    UOp::new(Op::Range, v.dtype(), [UOp::int(n as i64)], arg)
}

fn lane_count(v: &UOp) -> u16 {
    v.src()[0].as_int().unwrap_or(1) as u16
}

impl Lanes {
    fn find_axis(&mut self, u: &UOp) -> Result<(), CodegenError> {
        if u.op() == Op::Range && kind_of(u) == AxisKind::Vector {
            self.axis.insert(u, u.clone());
            return Ok(());
        }
        if u.op() == Op::Wmma {
            self.axis.insert(u, u.src()[2].clone());
            return Ok(());
        }
        let first = first_range(u.op()).unwrap_or(usize::MAX);
        let mut found: Option<UOp> = None;
        for s in u.src().iter().take(first) {
            let Some(v) = self.axis.get(s) else { continue };
            if found.as_ref().is_some_and(|f| f != v) && u.op() != Op::Sink {
                return Err(CodegenError::TwoVectorAxes(format!("{u:?}")));
            }
            found = Some(v.clone());
        }
        if let Some(v) = found
            && !u.src().iter().skip(first).any(|r| r == &v)
        {
            self.axis.insert(u, v);
        }
        Ok(())
    }

    /// The new node for `root` (and for what it needs, without recursion).
    fn value(&mut self, root: &UOp) -> Result<UOp, CodegenError> {
        let mut todo = vec![root.clone()];
        while let Some(u) = todo.last().cloned() {
            if self.done.has(&u) {
                todo.pop();
                continue;
            }
            let before = todo.len();
            // Memory accesses, matrix products and the sink request the values they need themselves.
            if !matches!(u.op(), Op::Load | Op::LoadMatrix | Op::Store | Op::Sink | Op::Wmma) {
                todo.extend(u.src().iter().filter(|s| !self.done.has(s)).cloned());
            }
            if todo.len() > before {
                continue;
            }
            todo.pop();
            let new = self.node(&u)?;
            self.done.insert(&u, new);
        }
        // PANIC: the loop ends when the root is done.
        Ok(self.done.get(root).expect("the root").clone())
    }

    fn node(&mut self, u: &UOp) -> Result<UOp, CodegenError> {
        match u.op() {
            Op::Range => Ok(match self.axis.get(u) {
                Some(v) => iota(lane_count(v)),
                None => u.with_src([self.value(&u.src()[0])?]),
            }),
            Op::Load => self.load(u),
            Op::LoadMatrix => {
                let (at, _) = self.address(&u.src()[0], 1, false)?;
                let n = u.src().get(1).map_or(u.dtype().lanes, lane_count);
                Ok(UOp::new(Op::LoadMatrix, u.dtype().vec(n), [at], u.arg().clone()))
            }
            Op::Store => self.store(u),
            Op::Reduce => self.reduce(u),
            Op::Wmma => self.wmma(u),
            Op::Sink => {
                let stores: Vec<UOp> = u.src().iter().map(|s| self.value(s)).collect::<Result<_, _>>()?;
                Ok(flat_sink(u, stores.into_iter()))
            }
            _ => {
                let src = u.src().iter().map(|s| self.value(s)).collect::<Result<Srcs, _>>()?;
                let Some(v) = self.axis.get(u) else { return Ok(u.with_src(src)) };
                if !u.op().is_elementwise() && u.op() != Op::WaveReduce {
                    return Err(CodegenError::NoLanes(format!("{u:?}")));
                }
                let n = lane_count(v);
                let src: Srcs = src.iter().map(|s| if s.dtype().lanes == 1 { s.splat(n) } else { s.clone() }).collect();
                Ok(UOp::tagged(u.op(), u.dtype().vec(n), src, u.arg().clone(), u.tag()))
            }
        }
    }

    fn reduce(&mut self, u: &UOp) -> Result<UOp, CodegenError> {
        let x = self.value(&u.src()[0])?;
        let (lanes, loops): (Vec<&UOp>, Vec<&UOp>) = u.src()[1..].iter().partition(|r| self.axis.has(r));
        let x = match lanes.first() {
            Some(v) if x.dtype().lanes == 1 => x.splat(lane_count(v)),
            _ => x,
        };
        let mut ranges: Srcs = [x.clone()].into_iter().collect();
        for r in loops {
            ranges.push(self.value(r)?);
        }
        let r = if ranges.len() == 1 { x } else { UOp::new(Op::Reduce, ranges[0].dtype(), ranges, u.arg().clone()) };
        Ok(if lanes.is_empty() { r } else { UOp::new(Op::VReduce, u.dtype(), [r], u.arg().clone()) })
    }

    /// The operand tiles as vectors, with a zero accumulator.
    fn wmma(&mut self, u: &UOp) -> Result<UOp, CodegenError> {
        let mut src = Srcs::new();
        for (x, e) in u.src()[..2].iter().zip(&u.src()[3..]) {
            let x = if lane_count(e) > MOST_LANES { self.in_pieces(x, e)? } else { self.value(x)? };
            src.push(if x.dtype().lanes == 1 { x.splat(lane_count(e)) } else { x });
        }
        let t = u.dtype().vec(lane_count(&u.src()[2]));
        src.push(UOp::constant(t, 0i64));
        Ok(UOp::new(Op::Wmma, t, src, u.arg().clone()))
    }

    /// A value with more lanes than a vector has, as several adjacent vectors: the rows of a tile.
    fn in_pieces(&mut self, x: &UOp, e: &UOp) -> Result<UOp, CodegenError> {
        let n = MOST_LANES / 2;
        let part = piece(e, n, 0);
        let pieces = (0..lane_count(e) / n).map(|k| {
            let at = &part + (k * n) as i64;
            let x = self.renamed(x, e, &at)?;
            Ok(if x.dtype().lanes == 1 { x.splat(n) } else { x })
        });
        let pieces: Vec<UOp> = pieces.collect::<Result<_, CodegenError>>()?;
        Ok(UOp::new(Op::Cat, x.dtype().vec(lane_count(e)), pieces, Arg::None))
    }

    /// The value of `x` with `at` substituted for range `v`.
    fn renamed(&mut self, x: &UOp, v: &UOp, at: &UOp) -> Result<UOp, CodegenError> {
        let map: UMap<UOp> = [(v.clone(), at.clone())].into_iter().collect();
        let x = x.substitute(&map).simplify();
        for u in x.toposort() {
            if !self.axis.has(&u) {
                self.find_axis(&u)?;
            }
        }
        self.value(&x)
    }

    /// A load whose even lanes and odd lanes are each contiguous in memory: two loads, interleaved.
    fn interleaved(&mut self, u: &UOp, v: &UOp) -> Result<Option<UOp>, CodegenError> {
        let n = lane_count(v);
        let i = &u.src()[0].src()[1];
        if n < 4 || i.dtype() != DType::INDEX {
            return Ok(None);
        }
        let half = piece(v, n / 2, 1);
        self.axis.insert(&half, half.clone());
        let mut sides = vec![];
        for side in 0..2 {
            let at = &(&half * 2) + side;
            let map: UMap<UOp> = [(v.clone(), at.clone())].into_iter().collect();
            let even = i.substitute(&map).simplify();
            for u in even.toposort() {
                if !self.axis.has(&u) {
                    self.find_axis(&u)?;
                }
            }
            if self.along(&even, &half).is_none_or(|(step, _)| step != 1) {
                return Ok(None);
            }
            // If the gate is never true for one of the two, that one is a constant.
            let value = self.renamed(u, v, &at)?;
            sides.push(if value.dtype().lanes == 1 { value.splat(n / 2) } else { value });
        }
        let order: Axes = (0..n).map(|k| k / 2 + k % 2 * (n / 2)).collect();
        Ok(Some(UOp::new(Op::Cat, u.dtype().vec(n), sides, Arg::None).gep(&order)))
    }

    /// The address of an access with `n` lanes, and whether its lanes run backwards.
    fn address(&mut self, index: &UOp, n: u16, may_reverse: bool) -> Result<(UOp, bool), CodegenError> {
        let memory = self.value(&index.src()[0])?;
        let gate = match index.src().get(2) {
            Some(g) => Some(self.value(g)?),
            None => None,
        };
        let v = self.axis.get(index).cloned();
        let i = &index.src()[1];
        let mut reversed = false;
        let at = match v.as_ref().and_then(|v| self.along(i, v)) {
            Some((0, base)) if n == 1 => base,
            Some((1, base)) => base,
            Some((-1, base)) if may_reverse && gate.is_none() => {
                reversed = true;
                &base - &UOp::int(n as i64 - 1)
            }
            // Strided lanes: the index of the first lane, broadcast, plus the multiples of the stride.
            Some((step, base)) if n > 1 && step != 0 => &base.splat(n) + &distances(n, step),
            _ if v.is_none() && n == 1 => self.value(i)?,
            _ => {
                let at = self.value(i)?;
                if at.dtype().lanes == 1 { at.splat(n) } else { at }
            }
        };
        let src: Srcs = [memory, at].into_iter().chain(gate).collect();
        Ok((UOp::new(Op::Index, index.dtype(), src, Arg::None), reversed))
    }

    fn load(&mut self, u: &UOp) -> Result<UOp, CodegenError> {
        let index = &u.src()[0];
        let Some(v) = self.axis.get(u).cloned() else {
            let (at, _) = self.address(index, 1, false)?;
            let src: Srcs = match u.src().get(1) {
                Some(a) => [at, self.value(a)?].into_iter().collect(),
                None => [at].into_iter().collect(),
            };
            return Ok(u.with_src(src));
        };
        let n = lane_count(&v);
        let still = index.src()[1..].iter().all(|s| !self.axis.has(s) || self.along(s, &v).is_some_and(|a| a.0 == 0));
        if still && u.src().len() == 1 {
            let (at, _) = self.address(index, 1, false)?;
            return Ok(UOp::new(Op::Load, u.dtype(), [at], Arg::None).splat(n));
        }
        if self.along(&index.src()[1], &v).is_none()
            && let Some(both) = self.interleaved(u, &v)?
        {
            return Ok(both);
        }
        let (at, reversed) = self.address(index, n, true)?;
        let mut src: Srcs = [at].into_iter().collect();
        if let Some(alt) = u.src().get(1) {
            let alt = self.value(alt)?;
            src.push(if alt.dtype().lanes == 1 { alt.splat(n) } else { alt });
        }
        let load = UOp::new(Op::Load, u.dtype().vec(n), src, Arg::None);
        let back: Axes = (0..n).rev().collect();
        Ok(if reversed { load.gep(&back) } else { load })
    }

    fn store(&mut self, u: &UOp) -> Result<UOp, CodegenError> {
        let (lanes, loops): (Vec<UOp>, Vec<UOp>) = u.src()[2..].iter().cloned().partition(|r| self.axis.has(r));
        let n = lanes.first().map_or(1, lane_count);
        if n > 1 && !self.axis.has(&u.src()[0].src()[1]) {
            return Err(CodegenError::NoLanes(format!("{u:?}")));
        }
        if let Some(v) = lanes.first().filter(|v| self.results.contains(*v))
            && let Some(runs) = self.runs(&u.src()[0], v)
        {
            return self.store_runs(u, v, &runs, &loops);
        }
        let (at, _) = self.address(&u.src()[0], n, false)?;
        let value = self.value(&u.src()[1])?;
        let value = if value.dtype().lanes == 1 { value.splat(n) } else { value };
        let mut src: Srcs = [at, value].into_iter().collect();
        for r in &loops {
            src.push(self.value(r)?);
        }
        Ok(u.with_src(src))
    }

    /// The lanes of an access as runs of consecutive elements under one condition: first lane and length. `None`: every
    /// lane is separate.
    fn runs(&mut self, index: &UOp, v: &UOp) -> Option<Vec<(u16, u16)>> {
        let n = lane_count(v);
        let at = |k: u16, x: &UOp| {
            let map: UMap<UOp> = [(v.clone(), UOp::int(i64::from(k)))].into_iter().collect();
            x.substitute(&map).simplify()
        };
        let places: Vec<Affine> = (0..n).map(|k| self.affine.of(&at(k, &index.src()[1])).clone()).collect();
        let gates: Vec<Option<UOp>> = (0..n).map(|k| index.src().get(2).map(|g| at(k, g))).collect();
        let next = |k: usize| {
            let mut after = places[k].clone();
            after.constant += 1;
            gates[k] == gates[k + 1] && after == places[k + 1]
        };
        let mut runs = vec![];
        let mut first = 0;
        while first < n {
            let fits =
                |len: &u16| first % len == 0 && first + len <= n && (first..first + len - 1).all(|k| next(k.into()));
            let len = [4, 2].into_iter().find(fits).unwrap_or(1);
            runs.push((first, len));
            first += len;
        }
        runs.iter().any(|r| r.1 > 1).then_some(runs)
    }

    /// Stores a matrix unit's results, one store for each run.
    fn store_runs(&mut self, u: &UOp, v: &UOp, runs: &[(u16, u16)], loops: &[UOp]) -> Result<UOp, CodegenError> {
        let value = self.value(&u.src()[1])?;
        let value = if value.dtype().lanes == 1 { value.splat(lane_count(v)) } else { value };
        let loops: Vec<UOp> = loops.iter().map(|r| self.value(r)).collect::<Result<_, _>>()?;
        let mut stores = vec![];
        for (first, len) in runs {
            let at = UOp::int(i64::from(*first));
            let index = &u.src()[0];
            let parts = index.src().iter().enumerate();
            let src = parts.map(|(k, s)| if k == 0 { self.value(s) } else { self.renamed(s, v, &at) });
            let src = src.collect::<Result<Srcs, _>>()?;
            let lanes: Axes = (*first..first + len).collect();
            let mut all: Srcs = [index.with_src(src), value.gep(&lanes)].into_iter().collect();
            all.extend(loops.iter().cloned());
            stores.push(u.with_src(all));
        }
        Ok(UOp::sink(stores))
    }

    /// `i` as `base + step · v`, where the returned base does not contain `v`. `None`: the step is not constant.
    fn along(&mut self, i: &UOp, v: &UOp) -> Option<(i64, UOp)> {
        if i.dtype() != DType::INDEX {
            return None;
        }
        let (step, base) = self.steps(i, v)?;
        Some((step, self.value(&base).ok()?))
    }

    fn steps(&mut self, i: &UOp, v: &UOp) -> Option<(i64, UOp)> {
        let sum = self.affine.of(i).clone();
        let mut step = 0;
        let mut base = Affine { terms: Default::default(), constant: sum.constant };
        for (t, c) in &sum.terms {
            if self.axis.get(t) != Some(v) {
                base.terms.push((t.clone(), *c));
            } else if t == v {
                step += c;
            } else if matches!(t.op(), Op::FloorDiv | Op::FloorMod) {
                let d = t.src()[1].as_int().filter(|d| *d > 0)?;
                let (s, x) = self.steps(&t.src()[0], v)?;
                // All lanes are within one block of d: the base is at a multiple of q in the block, and the lanes stay
                // below q.
                let q = gcd(self.affine.of(&x).divisor(), d);
                let q = if q == 0 { d } else { q };
                let span = s * (lane_count(v) as i64 - 1);
                if !(0..q).contains(&span) {
                    return None;
                }
                if t.op() == Op::FloorMod {
                    step += c * s;
                    base.terms.push((x.floormod(&UOp::int(d)), *c));
                } else {
                    base.terms.push((x.floordiv(&UOp::int(d)), *c));
                }
            } else {
                return None;
            }
        }
        Some((step, base.build()))
    }
}

/// 0, 1, 2 … as a vector of indices.
fn iota(n: u16) -> UOp {
    distances(n, 1)
}

/// 0, step, 2 * step … as a vector of indices.
fn distances(n: u16, step: i64) -> UOp {
    let lanes: Vec<UOp> = (0..n as i64).map(|k| UOp::int(k * step)).collect();
    UOp::new(Op::Stack, DType::INDEX.vec(n), lanes, Arg::None)
}
