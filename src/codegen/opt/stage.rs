//! STAGE: copies what the loops inside an axis read of a buffer to scratch memory first, packed in the order in which
//! they read it.

use super::kind_of;
use crate::affine::AffineMemo;
use crate::grid::{area_bytes, next_area, position, workgroup};
use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, DType, Op, RangeArg, UMap, UOp};

/// The kernel in which the loads of buffer `param` that depend on `axis` are staged inside `axis`. If no load depends
/// on it, the loads in the loops inside `axis` are staged.
///
/// # Errors
/// There is nothing to stage, or the tile has no known size or is larger than `most_bytes`.
pub(super) fn stage(sink: &UOp, param: usize, axis: &UOp, most_bytes: usize) -> Result<UOp, &'static str> {
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let order = sink.toposort();
    let outside = outer_ranges(&order, axis);
    let from = |u: &UOp| {
        let memory = &u.src()[0].src()[0];
        matches!(memory.arg(), Arg::Param(slot, _) if *slot as usize == param)
    };
    let all: Vec<UOp> = order.iter().filter(|u| u.op() == Op::Load && from(u)).cloned().collect();
    let mut loads: Vec<UOp> = all.iter().filter(|u| open[*u].contains(axis)).cloned().collect();
    if loads.is_empty() {
        loads = all;
    }
    let mut areas = next_area(&order);
    let mut subs = order.iter().filter_map(UOp::range_arg).map(|a| a.sub).max().unwrap_or(0);
    let mut used: usize = order.iter().map(area_bytes).sum();
    let mut map: UMap<UOp> = UMap::default();
    for load in loads {
        let mut dims: Vec<UOp> = open[&load].iter().filter(|r| !outside.contains(r)).cloned().collect();
        sort::by_key(&mut dims, |r| (place(r), r.range_arg().map(|a| (a.id, a.sub))));
        let sizes: Option<Vec<i64>> = dims.iter().map(|r| r.src()[0].as_int()).collect();
        let sizes = sizes.ok_or("the tile has no fixed size")?;
        let len: i64 = sizes.iter().product();
        if dims.is_empty() {
            continue;
        }
        let area = UOp::local(areas, load.dtype(), len as usize);
        areas += 1;
        used += area_bytes(&area);
        if used > most_bytes {
            return Err("the tile does not fit into scratch memory");
        }
        let fill = fill(&load, &area, &dims, &sizes, &mut subs);
        map.insert(load, area.after(&[fill]).index(&position(&dims, &sizes)).load());
    }
    if map.is_empty() { Err("no load of that buffer depends on the axis") } else { Ok(sink.substitute(&map)) }
}

/// The store that copies what `load` reads along `dims` to `area`, in new loops of its own, numbered from `subs`.
fn fill(load: &UOp, area: &UOp, dims: &[UOp], sizes: &[i64], subs: &mut u32) -> UOp {
    let mut fresh = |r: &UOp, n: i64, kind: AxisKind| {
        *subs += 1;
        let id = r.range_arg().map_or(0, |a| a.id);
        UOp::range(UOp::int(n), id, kind).with_arg(Arg::Range(RangeArg { id, sub: *subs, kind }))
    };
    let apart = rows_apart(load, dims);
    let (mut loops, mut values) = (vec![], vec![]);
    for (k, (r, n)) in dims.iter().zip(sizes).enumerate() {
        let kind = match kind_of(r) {
            AxisKind::Unroll => AxisKind::Upcast,
            AxisKind::Reduce => AxisKind::Loop,
            k => k,
        };
        // A tile of a matrix unit is copied row by row. If the rows are apart in memory, four neighbouring columns are
        // read together.
        let inner = match apart {
            Some((at, by)) if at == k => Some((by, AxisKind::Upcast)),
            _ => (kind == AxisKind::Vector && *n > ROW).then_some((ROW, kind)),
        };
        match inner {
            Some((by, inner)) => {
                let (outer, inner) = (fresh(r, n / by, AxisKind::Loop), fresh(r, by, inner));
                values.push(&(&outer * by) + &inner);
                loops.extend([outer, inner]);
            }
            None => {
                let copy = fresh(r, *n, kind);
                values.push(copy.clone());
                loops.push(copy);
            }
        }
    }
    let renamed: UMap<UOp> = dims.iter().cloned().zip(values.iter().cloned()).collect();
    area.index(&position(&values, sizes)).store(&load.substitute(&renamed), &loops)
}

/// For a load whose lanes are rows apart: the index in `dims` of the loop along the rows, and by how many steps to
/// unroll it, so that together with what is already unrolled four neighbouring columns are read.
fn rows_apart(load: &UOp, dims: &[UOp]) -> Option<(usize, i64)> {
    const COLUMNS: i64 = 4;
    if load.src().len() > 1 || !dims.iter().any(|r| kind_of(r) == AxisKind::Vector) {
        return None;
    }
    let sum = AffineMemo::default().of(&load.src()[0].src()[1]).clone();
    let plain = |r: &&UOp| sum.terms.iter().all(|(t, _)| t == *r || !t.contains(r));
    let step = |r: &UOp| if plain(&r) { sum.coef(r) } else { 0 };
    if dims.iter().any(|r| kind_of(r) == AxisKind::Vector && step(r).abs() <= 1) {
        return None;
    }
    let mut run = 1;
    loop {
        let at = dims.iter().position(|r| step(r) == run)?;
        let n = dims[at].src()[0].as_int()?;
        match kind_of(&dims[at]) {
            AxisKind::Upcast | AxisKind::Unroll if n > 1 && run * n < COLUMNS => run *= n,
            AxisKind::Loop | AxisKind::Reduce if COLUMNS % run == 0 && n % (COLUMNS / run) == 0 => {
                return Some((at, COLUMNS / run));
            }
            _ => return None,
        }
    }
}

/// GPU: in each iteration of the reduction loop `axis`, the threads of a workgroup together copy what they will read of
/// buffer `param` in that iteration; neighbouring threads copy neighbouring elements.
///
/// # Errors
/// There is nothing to stage, or the tile has no known size.
pub(super) fn cooperate(sink: &UOp, param: usize, axis: &UOp) -> Result<UOp, &'static str> {
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let order = sink.toposort();
    let reduces = |u: &&UOp| u.op() == Op::Reduce && u.src()[1..].contains(axis);
    let inside: Vec<UOp> = order.iter().filter(reduces).flat_map(|u| after(&u.src()[1..], axis)).collect();
    let from = |u: &UOp| matches!(u.src()[0].src()[0].arg(), Arg::Param(slot, _) if *slot as usize == param);
    let loads = order.iter().filter(|u| u.op() == Op::Load && from(u) && open[*u].contains(axis));
    let mut fresh = Fresh {
        area: next_area(&order),
        sub: order.iter().filter_map(UOp::range_arg).map(|a| a.sub).max().unwrap_or(0),
    };
    // One range for each axis of the workgroup, the fastest first.
    let threads: Vec<UOp> = workgroup(sink);
    let mut map: UMap<UOp> = UMap::default();
    for load in loads {
        let tile = |r: &&UOp| !matches!(kind_of(r), AxisKind::Loop | AxisKind::Reduce) || inside.contains(r);
        let dims: Vec<UOp> = open[load].iter().filter(tile).cloned().collect();
        if dims.iter().any(|r| r.src()[0].as_int().is_none()) {
            return Err("the tile has no fixed size");
        }
        if !dims.is_empty() {
            map.insert(load.clone(), copied_by_all(load, dims, &threads, &mut fresh));
        }
    }
    if map.is_empty() { Err("no load of that buffer depends on the axis") } else { Ok(sink.substitute(&map)) }
}

/// Unused numbers of ranges and areas.
struct Fresh {
    area: u32,
    sub: u32,
}

fn after(ranges: &[UOp], axis: &UOp) -> Vec<UOp> {
    ranges.iter().skip_while(|r| *r != axis).skip(1).cloned().collect()
}

/// How a tile that a workgroup shares lies in its area.
pub(super) struct Layout {
    /// The area's number, and the type of its elements.
    area: (u32, DType),
    /// The loops that read it, the outermost first.
    pub dims: Vec<UOp>,
    sizes: Vec<i64>,
    /// Elements from a row to the next.
    row: i64,
}

impl Layout {
    pub(super) fn of(load: &UOp, area: u32, dims: Vec<UOp>) -> Layout {
        let sizes: Vec<i64> = dims.iter().map(|r| (r.vmax() + 1) as i64).collect();
        // Threads that fill a column of the tile would all meet in one bank without a gap between its rows.
        let row = sizes[1..].iter().product::<i64>() + ROW_GAP_BYTES / load.dtype().scalar.size_bytes() as i64;
        Layout { area: (area, load.dtype()), dims, sizes, row }
    }
    /// Elements of a tile.
    pub(super) fn len(&self) -> i64 {
        self.sizes[0] * self.row
    }
    /// An area of so many tiles.
    pub(super) fn areas(&self, count: usize) -> UOp {
        UOp::local(self.area.0, self.area.1, self.len() as usize * count)
    }
    /// The position of an element, by the values of the loops.
    pub(super) fn place(&self, values: &[UOp]) -> UOp {
        &(&values[0] * self.row) + &position(&values[1..], &self.sizes[1..])
    }
}

/// The load from a tile that all threads have filled.
fn copied_by_all(load: &UOp, mut dims: Vec<UOp>, threads: &[UOp], fresh: &mut Fresh) -> UOp {
    let size = |r: &UOp| (r.vmax() + 1) as i64;
    sort::by_key(&mut dims, |r| (place_in_tile(r), r.range_arg()));
    let len: i64 = dims.iter().map(size).product();
    let all: i64 = threads.iter().map(size).product();
    let layout = Layout::of(load, fresh.area, dims);
    let (area, dims) = (layout.areas(1), &layout.dims);
    (fresh.area, fresh.sub) = (fresh.area + 1, fresh.sub + 1);
    let rounds = (len + all - 1) / all;
    let kind = if rounds <= 8 { AxisKind::Upcast } else { AxisKind::Loop };
    let id = dims.iter().filter_map(UOp::range_arg).map(|a| a.id).max().unwrap_or(0);
    let round = UOp::range(UOp::int(rounds), id, kind).with_arg(Arg::Range(RangeArg { id, sub: fresh.sub, kind }));
    let mut number = &round * all;
    let mut step = 1;
    for t in threads {
        number = &number + &(t * step);
        step *= size(t);
    }
    // Neighbouring threads take the range that moves least in the buffer.
    let mut memo = AffineMemo::default();
    let sum = memo.of(&load.src()[0].src()[1]);
    let mut by_stride = dims.clone();
    sort::by_key(&mut by_stride, |r| sum.coef(r).unsigned_abs());
    let (mut rest, mut at) = (number.clone(), UMap::default());
    for r in &by_stride {
        at.insert(r.clone(), (&rest % size(r)).simplify());
        rest = &rest / size(r);
    }
    let values: Vec<UOp> = dims.iter().map(|r| at[r].clone()).collect();
    let mut to = area.index(&layout.place(&values));
    let mut value = load.substitute(&at);
    if len % all != 0 {
        let gate = number.lt(&UOp::int(len));
        to = super::gate_index(&to, &gate);
        value = super::apply::gate_load(&value, &gate);
    }
    let loops: Vec<UOp> = threads.iter().cloned().chain([round]).collect();
    area.after(&[to.store(&value, &loops)]).index(&layout.place(dims)).load()
}

/// `axis` and all loops around it.
fn outer_ranges(order: &[UOp], axis: &UOp) -> Vec<UOp> {
    let mut out: Vec<UOp> = vec![];
    for u in order {
        let Some(first) = crate::scope::first_range(u.op()) else { continue };
        let ranges = &u.src()[first.min(u.src().len())..];
        if let Some(k) = ranges.iter().position(|r| r == axis) {
            out.extend(ranges[..=k].iter().filter(|r| is_loop(r)).cloned());
        }
    }
    out
}

/// Lanes of one row of a matrix unit's tile.
const ROW: i64 = 32;

fn is_loop(r: &UOp) -> bool {
    !matches!(kind_of(r), AxisKind::Upcast | AxisKind::Unroll | AxisKind::Vector)
}

/// Bytes between the rows of a tile that a workgroup shares: as wide as a thread's widest access.
const ROW_GAP_BYTES: i64 = 16;

/// Nesting order in a tile that a workgroup shares: the steps of the reduction are outermost, so that in each of them
/// neighbouring threads read neighbouring elements.
pub(super) fn place_in_tile(r: &UOp) -> u8 {
    match kind_of(r) {
        AxisKind::Reduce | AxisKind::GroupReduce | AxisKind::Unroll => 0,
        AxisKind::Upcast => 3,
        AxisKind::Vector => 4,
        _ => 1,
    }
}

/// Nesting order of a loop where the tile is read, from the outside in.
fn place(r: &UOp) -> u8 {
    match kind_of(r) {
        AxisKind::Vector => 4,
        AxisKind::Upcast => 3,
        AxisKind::Unroll => 2,
        AxisKind::Reduce | AxisKind::GroupReduce => 1,
        _ => 0,
    }
}
