//! PIPE: software pipelining of a product on GPUs. The tiles that a workgroup's matrix units read are copied through
//! workgroup memory while earlier tiles are multiplied.
//!
//! Each iteration of the reduction loop reads one tile of each operand. An area has `depth` buffers for each:
//! ```text
//! copy tiles 0 .. depth-1, each a group of copies
//! loop k: wait for all but the newest depth-2 groups, barrier
//! copy tile k + depth-1 to buffer (k + depth-1) % depth
//! multiply tile k from buffer k % depth
//! ```
//! One barrier per iteration orders both directions, and a copy has `depth-1` iterations to complete. All threads copy;
//! neighbouring threads copy neighbouring pieces of up to 16 bytes along whichever side of the tile is contiguous in
//! the buffer. Rows of an area are padded by 16 bytes, so that pieces at the same column of eight rows are in different
//! banks. If an operand is not a plain load (but a cast or a sum, for example), the thread that copies it computes it.
//!
//! A unit that reads workgroup memory directly (`WmmaArg::from_memory`) runs asynchronously: at the barrier of
//! iteration k, only the products of iteration k - 1 may still be running. So copies run one tile less ahead and go
//! into the buffer that iteration k - 2 has read. Its areas have swizzled rows of 128 bytes, see
//! [`TileArg`](doorbell_uop::TileArg).

use super::apply::{OptKernel, Reason, gate_load, kind_of};
use super::tc::coordinate;
use super::tma::TmaCopies;
use crate::affine::AffineMemo;
use crate::grid::{next_area, workgroup};
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, DType, Op, RangeArg, Spread, UMap, UOp};

/// The operands of a matrix unit, as TC found them.
#[derive(Clone)]
pub(crate) struct Operands {
    /// Number of the thread in its wave.
    pub lane: Option<UOp>,
    pub both: [Operand; 2],
    /// The unit reads them directly from workgroup memory.
    pub from_memory: bool,
}

/// One operand: its elements by line (row of a, column of b) and by reduction step within the unit's tile.
#[derive(Clone)]
pub(crate) struct Operand {
    pub value: UOp,
    /// The value as a thread holds it: its elements by lane and element range.
    pub tiled: UOp,
    pub line: UOp,
    pub step: UOp,
    pub element: UOp,
    pub spread: Spread,
}

/// Bytes of the longest copy; also the padding of an area's rows.
const PIECE: i64 = 16;
/// Copies of one thread that are unrolled.
pub(super) const MOST_UNROLLED: i64 = 16;

/// The pipelined loop and its iteration counts.
pub(super) struct Iterations {
    pub axis: UOp,
    pub trips: i64,
    pub depth: i64,
    /// How many tiles the copies run ahead of the multiplication.
    pub ahead: i64,
}

/// An iteration, the number of its buffer, and the condition under which there is one.
pub(super) type Round<'a> = (&'a UOp, &'a UOp, Option<&'a UOp>);

/// A tile of an operand in workgroup memory.
pub(super) struct Tile {
    pub operand: Operand,
    pub area: UOp,
    /// Ranges of its lines and steps, the fastest first.
    pub lines: Vec<UOp>,
    pub steps: Vec<UOp>,
    /// The area is stored row by step instead of row by line.
    pub by_steps: bool,
    /// The range that is contiguous in the buffer too, and how many of its elements one copy moves.
    along: Option<(UOp, i64)>,
    /// Elements of a row of the area, and of one buffer.
    pub pitch: i64,
    pub len: i64,
    /// Swizzled rows of 128 bytes, for a unit that reads them directly.
    pub swizzled: bool,
}

impl Iterations {
    /// Offset of the iteration's buffer in an area whose buffers have `len` elements.
    pub(super) fn buffer(&self, len: i64) -> UOp {
        &(&self.axis % self.depth) * len
    }
}

fn size(r: &UOp) -> i64 {
    (r.vmax() + 1) as i64
}

pub(super) fn extent(ranges: &[UOp]) -> i64 {
    ranges.iter().map(size).product()
}

impl OptKernel<'_> {
    /// Pipelines the operands of the matrix unit in the reduction over `axis` through `depth` buffers of workgroup
    /// memory.
    pub(super) fn pipe(&mut self, axis: &UOp, depth: usize) -> Result<(), Reason> {
        if !self.target.has_grid() || kind_of(axis) != AxisKind::Reduce {
            return Err("needs a loop of a reduction, on a GPU".into());
        }
        let Some(operands) = self.operands.clone() else { return self.pipe_loads(axis, depth) };
        let least = 2 + usize::from(operands.from_memory);
        if !(least..=8).contains(&depth) {
            return Err(format!("{least} to 8 buffers").into());
        }
        let trips = axis.src()[0].as_int().ok_or("the loop has no fixed size")?;
        let depth = depth as i64;
        let iterations = Iterations { axis: axis.clone(), trips, depth, ahead: depth + 1 - least as i64 };
        let both = operands.both.iter().map(|o| self.current_operand(o)).collect::<Result<Vec<Operand>, Reason>>()?;
        let (unit, inside) = product(&self.sink, axis, &both)?;
        let order = self.sink.toposort();
        let mut tiles = vec![];
        for (o, area) in both.into_iter().zip(next_area(&order)..) {
            let tile = self.tile_of(o, area, axis, &inside)?;
            tiles.push(if operands.from_memory { tile.swizzled()? } else { tile });
        }
        let threads = workgroup(&self.sink);
        let wanted = self.target.tma_copies && operands.from_memory && super::tma::alone(&self.sink, axis);
        let tma = if wanted { TmaCopies::of(&tiles, depth) } else { None };
        let places: Vec<(UOp, i64)> =
            tiles.iter().map(|t| (UOp::local(t.number(), t.area.dtype(), (t.len * depth) as usize), t.len)).collect();
        let copies = |k: &mut Self, areas: &[UOp], round: Round| {
            k.iteration_copies((&tiles, tma.as_ref()), areas, round, (axis, &threads))
        };
        let awaited = |done| if let Some(tma) = &tma { tma.awaited(axis, done) } else { done };
        let areas: Vec<UOp> = places.into_iter().map(|p| p.0).collect();
        let read = self.issue_copies(&areas, &iterations, copies, awaited);
        let lane = operands.lane;
        let by_rows = self.target.matrix_loads;
        let mut src = unit.src().to_vec();
        for ((tile, area), to) in tiles.iter().zip(&read).zip(&mut src) {
            *to = match tile.swizzled {
                true => tile.whole(area, &iterations),
                false => tile.fragment(area, &iterations, lane.as_ref(), by_rows),
            };
        }
        let map: UMap<UOp> = [(unit.clone(), unit.with_src(src))].into_iter().collect();
        self.sink = self.sink.substitute(&map);
        Ok(())
    }

    /// An operand after the opts that were applied since TC.
    fn current_operand(&self, o: &Operand) -> Result<Operand, Reason> {
        let mut o = o.clone();
        for (r, value) in &self.history {
            if !o.value.contains(r) {
                continue;
            }
            let value = value.as_ref().ok_or("an axis of the tile has become several, or has a gate")?;
            let map: UMap<UOp> = [(r.clone(), value.clone())].into_iter().collect();
            (o.value, o.tiled) = (o.value.substitute(&map), o.tiled.substitute(&map));
        }
        Ok(o)
    }

    fn tile_of(&self, o: Operand, area: u32, axis: &UOp, inside: &[UOp]) -> Result<Tile, Reason> {
        let step_id = o.step.range_arg().map(|a| a.id);
        let (mut lines, mut steps) = (vec![], vec![]);
        for r in o.value.open_ranges() {
            let of_tile = match kind_of(&r) {
                AxisKind::Vector => return Err("another axis of the operands is in lanes".into()),
                AxisKind::Loop | AxisKind::Reduce => r == o.line || r == o.step || inside.contains(&r),
                k => k != AxisKind::Global,
            };
            if !of_tile || r == *axis {
                continue;
            }
            r.src()[0].as_int().ok_or("the tile has no fixed size")?;
            if r.range_arg().map(|a| a.id) == step_id { &mut steps } else { &mut lines }.push(r);
        }
        if !o.value.contains(axis) || !lines.contains(&o.line) || !steps.contains(&o.step) {
            return Err("an operand does not move along lines, steps and the loop".into());
        }
        let bytes = o.value.dtype().scalar.size_bytes() as i64;
        let load = single_load(&o);
        let mut memo = AffineMemo::default();
        let sum = load.as_ref().map(|l| memo.of(&l.src()[0].src()[1]).clone()).unwrap_or_default();
        let plain = |r: &UOp| sum.coef(r) == 1 && sum.terms.iter().all(|(t, _)| t == r || !t.contains(r));
        let contiguous = [&o.step, &o.line].into_iter().find(|r| plain(r)).cloned();
        // Only two-byte elements can be transposed when they are read.
        let by_steps = contiguous.as_ref() == Some(&o.line) && self.target.matrix_loads && bytes == 2;
        for (ranges, first) in [(&mut lines, &o.line), (&mut steps, &o.step)] {
            sort::by_key(ranges, |r| (r != first, sum.coef(r).unsigned_abs(), std::cmp::Reverse(r.range_arg())));
        }
        let inner = if by_steps { &o.line } else { &o.step };
        let along = contiguous.map(|r| {
            let others = sum.terms.iter().filter(|(t, _)| *t != r).map(|(_, c)| *c);
            let divisor = others.fold(sum.constant, crate::affine::gcd);
            let fits = |n: &i64| n * bytes <= PIECE && size(&r) % n == 0 && divisor % n == 0 && even(&o, &r, *n);
            let n = [16, 8, 4, 2].into_iter().find(|n| r == *inner && fits(n)).unwrap_or(1);
            (r, n)
        });
        let (row, rows) = if by_steps { (extent(&lines), extent(&steps)) } else { (extent(&steps), extent(&lines)) };
        let pitch = row + PIECE / bytes;
        let len = (pitch * rows + 63) / 64 * 64;
        let area = UOp::local(area, o.value.dtype(), len as usize);
        Ok(Tile { operand: o, area, lines, steps, by_steps, along, pitch, len, swizzled: false })
    }

    /// Issues all copies; returns the areas in the state in which an iteration's tiles may be read. `copies` makes the
    /// nodes that copy an iteration's tiles, `awaited` what is waited for besides.
    pub(super) fn issue_copies(
        &mut self,
        areas: &[UOp],
        iterations: &Iterations,
        mut copies: impl FnMut(&mut Self, &[UOp], Round) -> Vec<UOp>,
        awaited: impl FnOnce(UOp) -> UOp,
    ) -> Vec<UOp> {
        let Iterations { axis, trips, depth, ahead } = iterations;
        let commit = |deps: Vec<UOp>| UOp::new(Op::Commit, DType::VOID, deps, Arg::None);
        let mut last: Option<UOp> = None;
        for k in 0..*ahead {
            let at = UOp::int(k);
            let mut group: Vec<UOp> = last.iter().cloned().collect();
            if k < *trips {
                let after = |a: &UOp| last.as_ref().map_or(a.clone(), |l| a.after(std::slice::from_ref(l)));
                let areas: Vec<UOp> = areas.iter().map(after).collect();
                group.extend(copies(self, &areas, (&at, &at, None)));
            }
            last = Some(commit(group));
        }
        let before: Vec<UOp> = [axis.clone()].into_iter().chain(last).collect();
        let wait = UOp::new(Op::Barrier, DType::VOID, before, Arg::Stage((ahead - 1) as u32));
        let next = axis + *ahead;
        let buffer = &next % *depth;
        let some = next.lt(&UOp::int(*trips));
        let free: Vec<UOp> = areas.iter().map(|a| a.after(std::slice::from_ref(&wait))).collect();
        let done = awaited(commit(copies(self, &free, (&next, &buffer, Some(&some)))));
        areas.iter().map(|a| a.after(std::slice::from_ref(&done))).collect()
    }

    /// The nodes that copy an iteration's tiles to one buffer of each area, if there is such an iteration.
    fn iteration_copies(
        &mut self,
        (tiles, tma): (&[Tile], Option<&TmaCopies>),
        areas: &[UOp],
        round: Round,
        (axis, threads): (&UOp, &[UOp]),
    ) -> Vec<UOp> {
        let places: Vec<(UOp, i64)> = areas.iter().cloned().zip(tiles.iter().map(|t| t.len)).collect();
        let mut group = tma.map_or(vec![], |b| b.group(&places, round, axis));
        for (k, (t, area)) in tiles.iter().zip(areas).enumerate() {
            let by_tma = tma.is_some_and(|b| b.tiles[k].is_some());
            let store = self.copied(t, area, round, axis, threads);
            group.push(store.with_arg(Arg::Stage(by_tma.into())));
        }
        group
    }

    /// The store that copies an iteration's tile to one buffer of its area, if there is such an iteration.
    fn copied(&mut self, tile: &Tile, area: &UOp, (round, buffer, some): Round, axis: &UOp, threads: &[UOp]) -> UOp {
        let o = &tile.operand;
        let (along, lanes) = tile.along.clone().unwrap_or((o.step.clone(), 1));
        // Neighbouring threads take the range that moves least in the buffer.
        let first_steps = tile.steps.contains(&along);
        let sides = if first_steps { [&tile.steps, &tile.lines] } else { [&tile.lines, &tile.steps] };
        let len = extent(&tile.lines) * extent(&tile.steps) / lanes;
        let all = extent(threads);
        let pieces = (len + all - 1) / all;
        let kind = if pieces <= MOST_UNROLLED { AxisKind::Upcast } else { AxisKind::Loop };
        let piece = self.fresh_range(&o.line, pieces, kind);
        let vector = (lanes > 1).then(|| self.fresh_range(&o.line, lanes, AxisKind::Vector));
        let mut number = if pieces > 1 { &piece * all } else { UOp::int(0) };
        let mut step = 1;
        for t in threads {
            number = &number + &(t * step);
            step *= size(t);
        }
        let (mut rest, mut map): (UOp, UMap<UOp>) = (number.clone(), UMap::default());
        for r in sides.into_iter().flatten() {
            let n = if *r == along { size(r) / lanes } else { size(r) };
            let digit = &rest % n;
            let digit = if Some(r) == sides[1].first() { tile.spread_rows(&digit, lanes) } else { digit }.simplify();
            rest = (&rest / n).simplify();
            map.insert(r.clone(), if vector.is_some() && *r == along { &digit * lanes } else { digit });
        }
        map.insert(axis.clone(), round.clone());
        let mut at = &tile.position(&map) + &(buffer * tile.len);
        if let Some(v) = &vector {
            at = &at + v;
            let first = map[&along].clone();
            map.insert(along.clone(), &first + v);
        }
        let mut to = area.index(&at);
        let mut value = without_lanes(&o.value, vector.is_some().then_some((&along, lanes))).substitute(&map);
        let tail = (len % all != 0).then(|| number.lt(&UOp::int(len)));
        let gate = match (some, tail) {
            (Some(a), Some(b)) => Some(a.and(&b)),
            (a, b) => a.cloned().or(b),
        };
        if let Some(gate) = gate {
            let loads: UMap<UOp> = value
                .toposort()
                .into_iter()
                .filter(|u| u.op() == Op::Load)
                .map(|l| (l.clone(), gate_load(&l, &gate)))
                .collect();
            (to, value) = (super::gate_index(&to, &gate), value.substitute(&loads));
        }
        let mut loops = threads.to_vec();
        loops.extend((pieces > 1).then_some(piece));
        loops.extend(vector);
        to.store(&value, &loops).with_arg(Arg::Stage(0))
    }

    pub(super) fn fresh_range(&mut self, like: &UOp, n: i64, kind: AxisKind) -> UOp {
        self.subs += 1;
        let id = like.range_arg().map_or(0, |a| a.id);
        UOp::range(UOp::int(n), id, kind).with_arg(Arg::Range(RangeArg { id, sub: self.subs, kind }))
    }
}

impl Tile {
    pub(super) fn number(&self) -> u32 {
        if let Arg::Local(n, _) = self.area.arg() { *n } else { 0 }
    }

    /// The position along one side of the tile.
    pub(super) fn side(ranges: &[UOp], at: &UMap<UOp>) -> UOp {
        let value = |r: &UOp| at.get(r).unwrap_or(r).clone();
        let outer = |sum: Option<UOp>, r: &UOp| Some(sum.map_or_else(|| value(r), |s| &(&s * size(r)) + &value(r)));
        ranges.iter().rev().fold(None, outer).unwrap_or_else(|| UOp::int(0))
    }

    /// Position of an element in a buffer of the area, with these values of its ranges.
    fn position(&self, at: &UMap<UOp>) -> UOp {
        let (line, step) = (Tile::side(&self.lines, at), Tile::side(&self.steps, at));
        if self.swizzled {
            return self.swizzled_position(&line, &step);
        }
        let (row, column) = if self.by_steps { (step, line) } else { (line, step) };
        (&(&row * self.pitch) + &column).simplify()
    }

    /// Permutes rows so that the 16-byte pieces of eight neighbouring threads are in different banks, although a row
    /// has fewer than eight pieces.
    fn spread_rows(&self, row: &UOp, lanes: i64) -> UOp {
        let bytes = self.area.dtype().scalar.size_bytes() as i64;
        let pieces = (self.pitch - PIECE / bytes) / lanes.max(1);
        if self.swizzled || lanes * bytes != PIECE || !matches!(pieces, 2 | 4) || row.vmax() % 8 != 7 {
            return row.clone();
        }
        // The rows of an area are an odd number of pieces apart, so rows whose distance is the number of pieces in a
        // row do not conflict.
        let together = 8 / pieces;
        &(&(&(row % together) * pieces) + &(&(row / together) % pieces)) + &(&(row / 8) * 8)
    }

    /// The elements that a thread passes to the matrix unit.
    fn fragment(&self, area: &UOp, iterations: &Iterations, lane: Option<&UOp>, by_rows: bool) -> UOp {
        let o = &self.operand;
        let buffer = iterations.buffer(self.len);
        let index = |lane: Option<&UOp>, e: &UOp| {
            let at = |bits| coordinate(bits, lane, e);
            let map: UMap<UOp> =
                [(o.line.clone(), at(o.spread.row)), (o.step.clone(), at(o.spread.col))].into_iter().collect();
            area.index(&(&self.position(&map) + &buffer))
        };
        let word = 4 / self.area.dtype().scalar.size_bytes().max(1) as i64;
        let words = i64::from(o.spread.elements()) / word.max(1);
        let Some(lane) = lane.filter(|l| by_rows && size(l) == 32 && words == 4) else {
            return index(lane, &o.element).load();
        };
        // The lane and the element that hold the start of the row whose address this lane supplies.
        let (row, matrix) = (&(lane % 8), &(lane / 8));
        let (holder, e) =
            if self.by_steps { (row / 2, &(row % 2) + &(matrix * word)) } else { (row * 4, matrix * word) };
        let from = index(Some(&holder.simplify()), &e.simplify());
        UOp::new(Op::LoadMatrix, o.value.dtype(), [from, o.element.clone()], Arg::Transposed(self.by_steps))
    }
}

/// The matrix unit in the reduction over `axis`, and the reduction's loops inside that one.
fn product(sink: &UOp, axis: &UOp, both: &[Operand]) -> Result<(UOp, Vec<UOp>), Reason> {
    let order = sink.toposort();
    let sums = |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].contains(axis);
    let reduce = order.iter().find(sums).ok_or("no sum has this loop")?;
    let unit = &reduce.src()[0];
    let [a, b] = both else { return Err("a product has two operands".into()) };
    if unit.op() != Op::Wmma || unit.src()[0] != a.tiled || unit.src()[1] != b.tiled {
        return Err("the sum is not that of the last matrix unit".into());
    }
    let inside = reduce.src()[1..].iter().skip_while(|r| *r != axis).skip(1).cloned().collect();
    Ok((unit.clone(), inside))
}

/// The load that the operand is computed from, if it is a single load.
fn single_load(o: &Operand) -> Option<UOp> {
    let moves = |u: &UOp| u.op() == Op::Load && (u.contains(&o.line) || u.contains(&o.step));
    let mut loads = o.value.toposort().into_iter().filter(moves);
    let first = loads.next();
    if loads.next().is_some() { None } else { first }
}

/// Conditions in the operand that depend on `r`.
fn conditions(value: &UOp, r: &UOp) -> Vec<UOp> {
    let conditions = value.toposort().into_iter().filter_map(|u| match u.op() {
        Op::Index => u.src().get(2).cloned(),
        Op::Where => Some(u.src()[0].clone()),
        _ => None,
    });
    conditions.filter(|c| c.contains(r)).collect()
}

/// Whether all conditions have the same value for each `n` neighbours along `r`.
fn even(o: &Operand, r: &UOp, n: i64) -> bool {
    let piece = UOp::range(UOp::int(size(r) / n), u32::MAX, AxisKind::Loop);
    let at = |c: &UOp, k: i64| {
        let map: UMap<UOp> = [(r.clone(), &(&piece * n) + k)].into_iter().collect();
        c.substitute(&map).simplify()
    };
    conditions(&o.value, r).iter().all(|c| at(c, 0) == at(c, n - 1))
}

/// The value with its conditions evaluated at the first of each `n` neighbours along `r`.
fn without_lanes(value: &UOp, along: Option<(&UOp, i64)>) -> UOp {
    let Some((r, n)) = along else { return value.clone() };
    let first = &(r / n) * n;
    let start: UMap<UOp> = [(r.clone(), first)].into_iter().collect();
    let map: UMap<UOp> = conditions(value, r).into_iter().map(|c| (c.clone(), c.substitute(&start))).collect();
    value.substitute(&map)
}
