//! PIPE of a product without a matrix unit: what an iteration of the reduction loop reads is copied to workgroup memory
//! while earlier iterations are multiplied. The buffers, their waits and the order of the copies are those of
//! [`pipe`](super::pipe); the layout of a tile is that of STAGE.

use super::apply::{OptKernel, Reason, gate_load, kind_of};
use super::gate_index;
use super::pipe::{Iterations, MOST_UNROLLED, Round};
use super::stage::{Layout, place_in_tile};
use crate::affine::{AffineMemo, gcd};
use crate::grid::{next_area, workgroup};
use doorbell_sort as sort;
use doorbell_uop::{AxisKind, Op, UMap, UOp};

/// Bytes of the longest copy.
const PIECE: i64 = 16;

/// What the threads of a workgroup read by one load, in one iteration.
struct Shared {
    load: UOp,
    layout: Layout,
    /// The range whose elements one copy moves.
    along: Option<UOp>,
}

fn size(r: &UOp) -> i64 {
    (r.vmax() + 1) as i64
}

impl OptKernel<'_> {
    pub(super) fn pipe_loads(&mut self, axis: &UOp, depth: usize) -> Result<(), Reason> {
        if !(2..=8).contains(&depth) {
            return Err("2 to 8 buffers".into());
        }
        let trips = axis.src()[0].as_int().ok_or("the loop has no fixed size")?;
        let (mut open, order) = (UMap::default(), self.sink.toposort());
        doorbell_uop::open_ranges(&self.sink, &mut open);
        let reduces = |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].contains(axis);
        let after = |u: &UOp| u.src()[1..].iter().skip_while(|r| *r != axis).skip(1).cloned().collect::<Vec<_>>();
        let inside: Vec<UOp> = order.iter().filter(reduces).flat_map(after).collect();
        let loads = order.iter().filter(|u| u.op() == Op::Load && open[*u].contains(axis));
        let mut tiles = Vec::new();
        for (load, area) in loads.zip(next_area(&order)..) {
            if load.src()[0].src()[0].op() != Op::Param {
                return Err("a load is staged already".into());
            }
            let tile = |r: &&UOp| !matches!(kind_of(r), AxisKind::Loop | AxisKind::Reduce) || inside.contains(r);
            let mut dims: Vec<UOp> =
                open[load].iter().filter(tile).filter(|r| kind_of(r) != AxisKind::Global).cloned().collect();
            if dims.is_empty() {
                return Err("an iteration reads one element: LOCAL, TILE or TC comes first".into());
            }
            if dims.iter().any(|r| r.src()[0].as_int().is_none()) {
                return Err("a tile has no fixed size".into());
            }
            sort::by_key(&mut dims, |r| (place_in_tile(r), r.range_arg()));
            let along = dims.last().filter(|r| moves_as_vector(load, r)).cloned();
            tiles.push(Shared { load: load.clone(), layout: Layout::of(load, area, dims), along });
        }
        if tiles.is_empty() {
            return Err("no load depends on the loop".into());
        }
        let threads = workgroup(&self.sink);
        let iterations = Iterations { axis: axis.clone(), trips, depth: depth as i64, ahead: depth as i64 - 1 };
        let areas: Vec<UOp> = tiles.iter().map(|t| t.layout.areas(depth)).collect();
        let copies = |k: &mut Self, areas: &[UOp], round: Round| {
            tiles.iter().zip(areas).map(|(t, area)| k.copied_ahead(t, area, round, (axis, &threads))).collect()
        };
        let read = self.issue_copies(&areas, &iterations, copies, |done| done);
        let value = |(t, area): (&Shared, &UOp)| {
            let at = &t.layout.place(&t.layout.dims) + &iterations.buffer(t.layout.len());
            (t.load.clone(), area.index(&at).load())
        };
        let map: UMap<UOp> = tiles.iter().zip(&read).map(value).collect();
        self.sink = self.sink.substitute(&map);
        Ok(())
    }

    /// The store that copies an iteration's tile to one buffer of its area, if there is such an iteration.
    fn copied_ahead(
        &mut self,
        tile: &Shared,
        area: &UOp,
        (round, buffer, some): Round,
        (axis, threads): (&UOp, &[UOp]),
    ) -> UOp {
        let (dims, lanes) = (&tile.layout.dims, tile.along.as_ref().map_or(1, size));
        let len: i64 = dims.iter().map(size).product::<i64>() / lanes;
        let all: i64 = threads.iter().map(size).product();
        let pieces = (len + all - 1) / all;
        let kind = if pieces <= MOST_UNROLLED { AxisKind::Upcast } else { AxisKind::Loop };
        let piece = self.fresh_range(&dims[0], pieces, kind);
        let vector = tile.along.as_ref().map(|r| self.fresh_range(r, lanes, AxisKind::Vector));
        let mut number = if pieces > 1 { &piece * all } else { UOp::int(0) };
        let mut step = 1;
        for t in threads {
            number = &number + &(t * step);
            step *= size(t);
        }
        // Neighbouring threads take the range that moves least in the buffer.
        let mut memo = AffineMemo::default();
        let sum = memo.of(&tile.load.src()[0].src()[1]);
        let mut by_stride: Vec<UOp> = dims.iter().filter(|r| Some(*r) != tile.along.as_ref()).cloned().collect();
        sort::by_key(&mut by_stride, |r| sum.coef(r).unsigned_abs());
        let (mut rest, mut at): (UOp, UMap<UOp>) = (number.clone(), UMap::default());
        for r in &by_stride {
            at.insert(r.clone(), (&rest % size(r)).simplify());
            rest = (&rest / size(r)).simplify();
        }
        at.extend(tile.along.iter().cloned().zip(vector.clone()));
        let values: Vec<UOp> = dims.iter().map(|r| at[r].clone()).collect();
        at.insert(axis.clone(), round.clone());
        let mut to = area.index(&(&tile.layout.place(&values) + &(buffer * tile.layout.len())));
        let mut value = tile.load.substitute(&at);
        let tail = (len % all != 0).then(|| number.lt(&UOp::int(len)));
        let gate = match (some, tail) {
            (Some(a), Some(b)) => Some(a.and(&b)),
            (a, b) => a.cloned().or(b),
        };
        if let Some(gate) = gate {
            (to, value) = (gate_index(&to, &gate), gate_load(&value, &gate));
        }
        let mut loops = threads.to_vec();
        loops.extend((pieces > 1).then_some(piece));
        loops.extend(vector);
        to.store(&value, &loops).with_arg(doorbell_uop::Arg::Stage(0))
    }
}

/// Whether the elements along the innermost range of a tile lie beside each other in the buffer, and can be copied as
/// one piece.
fn moves_as_vector(load: &UOp, r: &UOp) -> bool {
    let index = &load.src()[0];
    let bytes = size(r) * load.dtype().scalar.size_bytes() as i64;
    if kind_of(r) != AxisKind::Vector || index.src().len() > 2 || bytes > PIECE || !(bytes as u64).is_power_of_two() {
        return false;
    }
    let sum = AffineMemo::default().of(&index.src()[1]).clone();
    let plain = sum.terms.iter().all(|(t, _)| t == r || !t.contains(r));
    let others = sum.terms.iter().filter(|(t, _)| t != r).map(|(_, c)| *c);
    plain && sum.coef(r) == 1 && others.fold(sum.constant, gcd) % size(r) == 0
}
