//! PIPE: the tiles that a workgroup's matrix units read go through workgroup memory, copied while the tiles before them are multiplied.
//!
//! Each round of the sum's loop reads one tile of either operand. An area holds `depth` of each:
//! ```text
//! copy tiles 0 .. depth-1, each a group of copies
//! loop k: wait for all but the newest depth-2 groups, barrier
//!         copy tile k + depth-1 to buffer (k + depth-1) % depth
//!         multiply tile k from buffer k % depth
//! ```
//! so one barrier a round serves both directions, and a copy has `depth-1` rounds of time. All threads copy, neighbours neighbouring pieces
//! of up to 16 bytes along whichever side of the tile is contiguous in the buffer. Rows of an area are 16 bytes longer than
//! what they hold: eight rows' pieces at one place lie in different banks. What is no plain load (a cast, a sum) is computed by whoever copies it.
//!
//! A unit that reads workgroup memory by itself (`WmmaArg::from_memory`) multiplies beside the threads: when round k's barrier comes, only the products
//! of round k - 1 are still on their way. So copies go one tile less ahead, into the buffer that round k - 2 has read. Its areas have rows of 128
//! bytes whose pieces change places, as [`TileArg`](doorbell_uop::TileArg) says.

use super::apply::{Kernel, Why, gate_load, kind_of};
use super::tc::coordinate;
use super::tma::TmaCopies;
use crate::affine::AffineMemo;
use crate::grid::{next_area, workgroup};
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, DType, Op, RangeArg, Spread, UMap, UOp};

/// What a matrix unit multiplies, as TC found it.
#[derive(Clone)]
pub(crate) struct Operands {
    /// The thread in its wave.
    pub lane: Option<UOp>,
    pub both: [Operand; 2],
    /// The unit reads them from workgroup memory by itself.
    pub from_memory: bool,
}

/// One of the two: its elements by line (row of a, column of b) and step of the sum within the unit's tile.
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

/// Bytes of the longest copy, and by which rows of an area are longer than what they hold.
const PIECE: i64 = 16;
/// Copies of a thread that are written out.
const ROUNDS: i64 = 16;

/// The loop and what its rounds are counted by.
pub(super) struct Rounds {
    axis: UOp,
    trips: i64,
    depth: i64,
    /// Tiles that copies are ahead of the round.
    ahead: i64,
}

/// A tile of an operand in workgroup memory.
pub(super) struct Tile {
    pub operand: Operand,
    pub area: UOp,
    /// Ranges of its lines and steps, the fastest first.
    pub lines: Vec<UOp>,
    pub steps: Vec<UOp>,
    /// Rows of the area are steps, not lines.
    pub by_steps: bool,
    /// The range that is contiguous in the buffer too, and how many of its elements are copied at once.
    along: Option<(UOp, i64)>,
    /// Elements of a row of the area, and of one buffer.
    pub pitch: i64,
    pub len: i64,
    /// Rows of 128 bytes, for a unit that reads them by itself.
    pub swizzled: bool,
}

impl Rounds {
    /// Where the round's buffer begins, of an area's that have so many elements each.
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

impl Kernel<'_> {
    /// Sends the operands of the matrix unit in the sum over `axis` through `depth` buffers of workgroup memory.
    pub(super) fn pipe(&mut self, axis: &UOp, depth: usize) -> Result<(), Why> {
        if !self.target.has_grid() || kind_of(axis) != AxisKind::Reduce {
            return Err("needs a loop of a reduction, on a GPU".into());
        }
        let operands = self.operands.clone().ok_or("no matrix unit reads tiles: TC comes first")?;
        let least = 2 + usize::from(operands.from_memory);
        if !(least..=8).contains(&depth) {
            return Err(format!("{least} to 8 buffers").into());
        }
        let trips = axis.src()[0].as_int().ok_or("the loop has no fixed size")?;
        let depth = depth as i64;
        let rounds = Rounds { axis: axis.clone(), trips, depth, ahead: depth + 1 - least as i64 };
        let both = operands.both.iter().map(|o| self.today(o)).collect::<Result<Vec<Operand>, Why>>()?;
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
        let read = self.filled((&tiles, tma.as_ref()), &rounds, &threads);
        let lane = operands.lane;
        let by_rows = self.target.matrix_loads;
        let mut src = unit.src().to_vec();
        for ((tile, area), to) in tiles.iter().zip(&read).zip(&mut src) {
            *to = match tile.swizzled {
                true => tile.whole(area, &rounds),
                false => tile.fragment(area, &rounds, lane.as_ref(), by_rows),
            };
        }
        let map: UMap<UOp> = [(unit.clone(), unit.with_src(src))].into_iter().collect();
        self.sink = self.sink.substitute(&map);
        Ok(())
    }

    /// An operand after the opts since TC.
    fn today(&self, o: &Operand) -> Result<Operand, Why> {
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

    fn tile_of(&self, o: Operand, area: u32, axis: &UOp, inside: &[UOp]) -> Result<Tile, Why> {
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
        // Only elements of two bytes can be turned when they are read.
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

    /// All copies; the areas as they are when the tiles of a round may be read.
    fn filled(&mut self, (tiles, tma): (&[Tile], Option<&TmaCopies>), rounds: &Rounds, threads: &[UOp]) -> Vec<UOp> {
        let Rounds { axis, trips, depth, ahead } = rounds;
        let areas: Vec<UOp> =
            tiles.iter().map(|t| UOp::local(t.number(), t.area.dtype(), (t.len * depth) as usize)).collect();
        let commit = |deps: Vec<UOp>| UOp::new(Op::Commit, DType::VOID, deps, Arg::None);
        let mut last: Option<UOp> = None;
        for k in 0..*ahead {
            let at = UOp::int(k);
            let mut group: Vec<UOp> = last.iter().cloned().collect();
            if k < *trips {
                let areas: Vec<UOp> = areas
                    .iter()
                    .map(|a| last.as_ref().map_or(a.clone(), |l| a.after(std::slice::from_ref(l))))
                    .collect();
                group.extend(self.round_copies((tiles, tma), &areas, (&at, &at, None), (axis, threads)));
            }
            last = Some(commit(group));
        }
        let before: Vec<UOp> = [axis.clone()].into_iter().chain(last).collect();
        let wait = UOp::new(Op::Barrier, DType::VOID, before, Arg::Stage((ahead - 1) as u32));
        let next = axis + *ahead;
        let buffer = &next % *depth;
        let some = next.lt(&UOp::int(*trips));
        let free: Vec<UOp> = areas.iter().map(|a| a.after(std::slice::from_ref(&wait))).collect();
        let group = self.round_copies((tiles, tma), &free, (&next, &buffer, Some(&some)), (axis, threads));
        let done = commit(group);
        let done = if let Some(tma) = tma { tma.awaited(axis, done) } else { done };
        areas.iter().map(|a| a.after(std::slice::from_ref(&done))).collect()
    }

    /// What copies a round's tiles to a buffer of their areas, where there is such a round.
    fn round_copies(
        &mut self,
        (tiles, tma): (&[Tile], Option<&TmaCopies>),
        areas: &[UOp],
        round: (&UOp, &UOp, Option<&UOp>),
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

    /// The store that copies a round's tile to a buffer of its area, where there is such a round.
    fn copied(
        &mut self,
        tile: &Tile,
        area: &UOp,
        (round, buffer, some): (&UOp, &UOp, Option<&UOp>),
        axis: &UOp,
        threads: &[UOp],
    ) -> UOp {
        let o = &tile.operand;
        let (along, lanes) = tile.along.clone().unwrap_or((o.step.clone(), 1));
        // What moves least in the buffer is what neighbouring threads differ by.
        let first_steps = tile.steps.contains(&along);
        let sides = if first_steps { [&tile.steps, &tile.lines] } else { [&tile.lines, &tile.steps] };
        let len = extent(&tile.lines) * extent(&tile.steps) / lanes;
        let all = extent(threads);
        let turns = (len + all - 1) / all;
        let kind = if turns <= ROUNDS { AxisKind::Upcast } else { AxisKind::Loop };
        let turn = self.fresh_range(&o.line, turns, kind);
        let vector = (lanes > 1).then(|| self.fresh_range(&o.line, lanes, AxisKind::Vector));
        let mut number = if turns > 1 { &turn * all } else { UOp::int(0) };
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
        let mut at = &tile.place(&map) + &(buffer * tile.len);
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
        loops.extend((turns > 1).then_some(turn));
        loops.extend(vector);
        to.store(&value, &loops).with_arg(Arg::Stage(0))
    }

    fn fresh_range(&mut self, like: &UOp, n: i64, kind: AxisKind) -> UOp {
        self.subs += 1;
        let id = like.range_arg().map_or(0, |a| a.id);
        UOp::range(UOp::int(n), id, kind).with_arg(Arg::Range(RangeArg { id, sub: self.subs, kind }))
    }
}

impl Tile {
    pub(super) fn number(&self) -> u32 {
        if let Arg::Local(n, _) = self.area.arg() { *n } else { 0 }
    }

    /// The number along one side of the tile.
    pub(super) fn side(ranges: &[UOp], at: &UMap<UOp>) -> UOp {
        let value = |r: &UOp| at.get(r).unwrap_or(r).clone();
        let outer = |sum: Option<UOp>, r: &UOp| Some(sum.map_or_else(|| value(r), |s| &(&s * size(r)) + &value(r)));
        ranges.iter().rev().fold(None, outer).unwrap_or_else(|| UOp::int(0))
    }

    /// Where an element lies in a buffer of the area, its ranges by these values.
    fn place(&self, at: &UMap<UOp>) -> UOp {
        let (line, step) = (Tile::side(&self.lines, at), Tile::side(&self.steps, at));
        if self.swizzled {
            return self.swizzled_place(&line, &step);
        }
        let (row, column) = if self.by_steps { (step, line) } else { (line, step) };
        (&(&row * self.pitch) + &column).simplify()
    }

    /// Rows in an order in which eight neighbouring threads' pieces of 16 bytes lie in different banks, although a row holds fewer than eight.
    fn spread_rows(&self, row: &UOp, lanes: i64) -> UOp {
        let bytes = self.area.dtype().scalar.size_bytes() as i64;
        let pieces = (self.pitch - PIECE / bytes) / lanes.max(1);
        if self.swizzled || lanes * bytes != PIECE || !matches!(pieces, 2 | 4) || row.vmax() % 8 != 7 {
            return row.clone();
        }
        // As the rows of an area are an odd number of pieces apart, rows that are as far apart as a row is long do not meet.
        let together = 8 / pieces;
        &(&(&(row % together) * pieces) + &(&(row / together) % pieces)) + &(&(row / 8) * 8)
    }

    /// The elements that a thread gives to the matrix unit.
    fn fragment(&self, area: &UOp, rounds: &Rounds, lane: Option<&UOp>, by_rows: bool) -> UOp {
        let o = &self.operand;
        let buffer = rounds.buffer(self.len);
        let index = |lane: Option<&UOp>, e: &UOp| {
            let at = |bits| coordinate(bits, lane, e);
            let map: UMap<UOp> =
                [(o.line.clone(), at(o.spread.row)), (o.step.clone(), at(o.spread.col))].into_iter().collect();
            area.index(&(&self.place(&map) + &buffer))
        };
        let word = 4 / self.area.dtype().scalar.size_bytes().max(1) as i64;
        let words = i64::from(o.spread.elements()) / word.max(1);
        let Some(lane) = lane.filter(|l| by_rows && size(l) == 32 && words == 4) else {
            return index(lane, &o.element).load();
        };
        // The lane and the element that hold the start of the row whose address this lane gives.
        let (row, matrix) = (&(lane % 8), &(lane / 8));
        let (holder, e) =
            if self.by_steps { (row / 2, &(row % 2) + &(matrix * word)) } else { (row * 4, matrix * word) };
        let from = index(Some(&holder.simplify()), &e.simplify());
        UOp::new(Op::LoadMatrix, o.value.dtype(), [from, o.element.clone()], Arg::Transposed(self.by_steps))
    }
}

/// The matrix unit in the sum over `axis`, and the loops of the sum inside that one.
fn product(sink: &UOp, axis: &UOp, both: &[Operand]) -> Result<(UOp, Vec<UOp>), Why> {
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

/// The one load that the operand is computed from, if it is one.
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

/// Whether all conditions are the same for each `n` neighbours along `r`.
fn even(o: &Operand, r: &UOp, n: i64) -> bool {
    let piece = UOp::range(UOp::int(size(r) / n), u32::MAX, AxisKind::Loop);
    let at = |c: &UOp, k: i64| {
        let map: UMap<UOp> = [(r.clone(), &(&piece * n) + k)].into_iter().collect();
        c.substitute(&map).simplify()
    };
    conditions(&o.value, r).iter().all(|c| at(c, 0) == at(c, n - 1))
}

/// The value with its conditions taken at the first of each `n` neighbours along `r`.
fn without_lanes(value: &UOp, along: Option<(&UOp, i64)>) -> UOp {
    let Some((r, n)) = along else { return value.clone() };
    let first = &(r / n) * n;
    let start: UMap<UOp> = [(r.clone(), first)].into_iter().collect();
    let map: UMap<UOp> = conditions(value, r).into_iter().map(|c| (c.clone(), c.substitute(&start))).collect();
    value.substitute(&map)
}
