//! Tiles copied by TMA: which copies of PIPE are rectangular tiles of a matrix in memory, and the nodes that represent
//! them.
//!
//! A tile for a unit that reads workgroup memory directly has rows of 128 bytes, the layout that TMA writes too. If a
//! tile is a plain part of a buffer (its rows are at a constant distance, a multiple of 16 bytes), one thread can copy
//! it with one or a few TMA operations: a [`CopyTile`](Op::CopyTile) next to the stores that do the same; the back end
//! uses one or the other. Conditions that cut off the matrix on the right or below become the tensor map's sizes: TMA
//! fills with zeros.
//!
//! Each buffer of the pipelined loop has an mbarrier that counts bytes. The n-th tile of a buffer completes the n-th
//! phase of its mbarrier. An iteration waits for its own phase ([`AwaitTile`](Op::AwaitTile)); phases alternate between
//! two parities. The pipelined loop's own barrier guarantees that a buffer is free again.
//! Left out: tiles of several dimensions (windows), conditions on the left and above, a pipelined loop inside another
//! loop.

use super::kind_of;
use super::pipe::{Tile, extent};
use crate::affine::{Affine, AffineMemo};
use doorbell_uop::{Arg, AxisKind, ConstVal, DType, Op, Tensor2, TileArg, TmaArg, UMap, UOp};
use std::sync::Arc;

/// The row pitch is a multiple of this many bytes, and below PITCH_LIMIT. A TMA tile has at most MOST rows and columns.
const PITCH: i64 = 16;
const PITCH_LIMIT: i64 = 1 << 40;
const MOST: i64 = 256;

/// A tile of PIPE as one or more TMA tiles of a matrix.
pub(super) struct TmaTile {
    tensor: Tensor2,
    param: UOp,
    /// Column and row of the tile's first element.
    at: [UOp; 2],
    /// Number of adjacent TMA tiles, and the distance between them in the area, in elements.
    count: i64,
    apart: i64,
    /// Columns of a TMA tile.
    columns: i64,
    /// Bytes of a TMA tile.
    bytes: u32,
}

/// A coordinate of the matrix as a function of ranges, and its upper limit (the matrix's size).
struct Side {
    sum: Affine,
    limit: i64,
}

impl Tile {
    /// The tile as TMA tiles, if its layout in memory allows that.
    pub(super) fn tma_tile(&self) -> Option<TmaTile> {
        let o = &self.operand;
        let (load, conditions) = plain(&o.value)?;
        let (index, param) = (&load.src()[0], &load.src()[0].src()[0]);
        let bytes = load.dtype().scalar.size_bytes() as i64;
        if param.op() != Op::Param || !self.swizzled {
            return None;
        }
        let mut memo = AffineMemo::default();
        let sum = memo.of(&index.src()[1]).clone();
        let (inner, outer) = if self.by_steps { (&self.lines, &self.steps) } else { (&self.steps, &self.lines) };
        let pitch = sum.coef(outer.first()?);
        let is_even = pitch > 0 && pitch * bytes % PITCH == 0 && pitch * bytes < PITCH_LIMIT;
        if !is_even || !runs(&sum, inner, 1) || !runs(&sum, outer, pitch) {
            return None;
        }
        let tile = |r: &UOp| inner.contains(r) || outer.contains(r);
        if sum.terms.iter().any(|(t, _)| !tile(t) && inner.iter().chain(outer).any(|r| t.contains(r))) {
            return None;
        }
        let mut sides = split(&sum, pitch, &|t| inner.contains(t));
        for c in conditions {
            limit(&c, &mut sides, &mut memo)?;
        }
        let [columns, rows] = &sides;
        if columns.limit > pitch || columns.lowest() < 0 || rows.lowest() < 0 {
            return None;
        }
        let (width, height) = (extent(inner), extent(outer));
        let sizes = [u32::try_from(columns.limit).ok()?, u32::try_from(rows.limit).ok()?];
        if height > MOST || sums_beyond(columns) || sums_beyond(rows) {
            return None;
        }
        let first: UMap<UOp> = inner.iter().chain(outer).map(|r| (r.clone(), UOp::int(0))).collect();
        let start = |s: &Side| s.sum.build().substitute(&first).simplify();
        Some(TmaTile {
            tensor: Tensor2 { sizes, pitch, shape: [self.row() as u16, height as u16] },
            param: param.clone(),
            at: [start(columns), start(rows)],
            count: width / self.row(),
            columns: self.row(),
            apart: self.panel(),
            bytes: (TileArg::ROW_BYTES * height) as u32,
        })
    }
}

impl Side {
    /// Smallest and largest value, without the limit.
    fn bounds(&self) -> (i64, i64) {
        let (mut low, mut high) = (self.sum.constant, self.sum.constant);
        for (t, c) in &self.sum.terms {
            let ends = [t.vmin(), t.vmax()].map(|v| i64::try_from(v).unwrap_or(i64::MAX).saturating_mul(*c));
            low = low.saturating_add(ends[0].min(ends[1]));
            high = high.saturating_add(ends[0].max(ends[1]));
        }
        (low, high)
    }

    fn lowest(&self) -> i64 {
        self.bounds().0
    }
}

/// Whether a coordinate may exceed TMA's 32 bits.
fn sums_beyond(side: &Side) -> bool {
    i32::try_from(side.bounds().1).is_err()
}

/// The load that a value consists of, and the conditions outside of which it is zero.
fn plain(value: &UOp) -> Option<(UOp, Vec<UOp>)> {
    let is_zero = |u: &UOp| u.as_const().is_some_and(ConstVal::is_zero);
    let (load, outer) = match value.op() {
        Op::Where if is_zero(&value.src()[2]) => (&value.src()[1], Some(&value.src()[0])),
        _ => (value, None),
    };
    if load.op() != Op::Load || !load.src().get(1).is_none_or(is_zero) {
        return None;
    }
    let mut todo: Vec<UOp> = outer.into_iter().chain(load.src()[0].src().get(2)).cloned().collect();
    let mut conditions = vec![];
    while let Some(c) = todo.pop() {
        if c.op() == Op::And { todo.extend(c.src().iter().cloned()) } else { conditions.push(c) }
    }
    Some((load.clone(), conditions))
}

/// Whether these ranges, the fastest first, enumerate positions that are `step` apart.
fn runs(sum: &Affine, ranges: &[UOp], mut step: i64) -> bool {
    ranges.iter().all(|r| {
        let is_next = sum.coef(r) == step;
        step = step.saturating_mul((r.vmax() + 1) as i64);
        is_next
    })
}

/// Splits an index into column and row of a matrix.
fn split(sum: &Affine, pitch: i64, is_inner: &dyn Fn(&UOp) -> bool) -> [Side; 2] {
    let mut sides = [(); 2].map(|()| Affine::default());
    for (t, c) in &sum.terms {
        match !is_inner(t) && c % pitch == 0 {
            true => sides[1].terms.push((t.clone(), c / pitch)),
            false => sides[0].terms.push((t.clone(), *c)),
        }
    }
    (sides[0].constant, sides[1].constant) = (sum.constant.rem_euclid(pitch), sum.constant.div_euclid(pitch));
    sides.map(|sum| {
        let whole = Side { sum, limit: 0 };
        let limit = whole.bounds().1.saturating_add(1);
        Side { limit, ..whole }
    })
}

/// Applies the limit that a condition implies; `None`: the condition is not an upper limit of a coordinate.
fn limit(condition: &UOp, sides: &mut [Side; 2], memo: &mut AffineMemo) -> Option<()> {
    if condition.op() != Op::CmpLt {
        return None;
    }
    let end = condition.src()[1].as_int()?;
    let sum = memo.of(&condition.src()[0]);
    let is_same =
        |s: &&mut Side| s.sum.terms.len() == sum.terms.len() && s.sum.terms.iter().all(|(t, c)| sum.coef(t) == *c);
    let side = sides.iter_mut().find(is_same)?;
    side.limit = side.limit.min(end - sum.constant + side.sum.constant);
    Some(())
}

/// Whether `axis` is the only loop of this unit's reduction.
pub(super) fn alone(sink: &UOp, axis: &UOp) -> bool {
    let loops = |r: &UOp| matches!(kind_of(r), AxisKind::Reduce | AxisKind::GroupReduce | AxisKind::Thread);
    let order = sink.toposort();
    let mut sums = order.iter().filter(|u| u.op() == Op::Reduce && u.src()[1..].contains(axis));
    sums.all(|u| u.src()[1..].iter().all(|r| r == axis || !loops(r)))
}

/// The TMA copies of a pipelined loop's tiles.
pub(super) struct TmaCopies {
    /// For each tile; `None`: the threads copy it.
    pub tiles: Vec<Option<TmaTile>>,
    /// One mbarrier for each buffer.
    bars: UOp,
    depth: i64,
}

impl TmaCopies {
    /// `None`: there is no tile that TMA can copy.
    pub(crate) fn of(tiles: &[Tile], depth: i64) -> Option<TmaCopies> {
        let area = tiles.iter().map(Tile::number).max().unwrap_or(0) + 1;
        let tiles: Vec<Option<TmaTile>> = tiles.iter().map(Tile::tma_tile).collect();
        let bars = UOp::local(area, DType::U64, depth as usize);
        tiles.iter().any(Option::is_some).then_some(TmaCopies { tiles, bars, depth })
    }

    /// The TMA copies of an iteration, to one buffer of the areas, if there is such an iteration.
    pub(crate) fn group(
        &self,
        areas: &[(UOp, i64)],
        (round, buffer, some): (&UOp, &UOp, Option<&UOp>),
        axis: &UOp,
    ) -> Vec<UOp> {
        let here: UMap<UOp> = [(axis.clone(), round.clone())].into_iter().collect();
        let mut expects: u32 = self.tiles.iter().flatten().map(|b| b.bytes * b.count as u32).sum();
        let mut all = vec![];
        for (b, (area, len)) in self.tiles.iter().zip(areas) {
            let Some(b) = b else { continue };
            for n in 0..b.count {
                let place = (&(buffer * *len) + n * b.apart).simplify();
                let to = area.index(&place);
                let to = if let Some(some) = some { super::gate_index(&to, some) } else { to };
                let [column, row] = b.at.each_ref().map(|at| at.substitute(&here));
                let column = (&column + n * b.columns).simplify();
                let src = [to, self.bars.index(buffer), b.param.clone(), column, row.simplify()];
                let arg = TmaArg { tensor: b.tensor, expects: std::mem::take(&mut expects) };
                all.push(UOp::new(Op::CopyTile, DType::VOID, src, Arg::Tma(Arc::new(arg))));
            }
        }
        all
    }

    /// Waits for the TMA tiles of this iteration of `axis`.
    pub(crate) fn awaited(&self, axis: &UOp, after: UOp) -> UOp {
        let bar = self.bars.index(&(axis % self.depth));
        let parity = &(axis / self.depth) % 2;
        UOp::new(Op::AwaitTile, DType::VOID, [bar, parity, after], Arg::None)
    }
}
