//! CPU matrix units: the contents of a tile register go through scratch memory, because no other instruction can read a
//! tile register.
//!
//! The product of a matrix unit that belongs to one thread is a vector of a whole tile. When its accumulation is done
//! it is stored to a scratch area and read back row by row; code that uses the rows has ordinary loops and lanes.

use super::grid::{next_area, position};
use super::opt::kind_of;
use doorbell_uop::{Arg, AxisKind, Op, RangeArg, Srcs, UMap, UOp, WmmaArg};

/// The single-thread matrix unit that computes this value, if any.
fn unit(u: &UOp) -> Option<(&WmmaArg, &UOp)> {
    let w = if u.op() == Op::Reduce { &u.src()[0] } else { u };
    match w.arg() {
        Arg::Wmma(arg) if w.op() == Op::Wmma && arg.lanes == 1 => Some((arg, &w.src()[2])),
        _ => None,
    }
}

/// The kernel in which tiles of single-thread matrix units are read row by row from scratch memory.
pub(super) fn through_scratch(sink: &UOp) -> UOp {
    let order = sink.toposort();
    if !order.iter().any(|u| unit(u).is_some()) {
        return sink.clone();
    }
    let mut open: UMap<Vec<UOp>> = UMap::default();
    doorbell_uop::open_ranges(sink, &mut open);
    let (mut area, mut sub) =
        (next_area(&order), order.iter().filter_map(UOp::range_arg).map(|a| a.sub).max().unwrap_or(0));
    // The expressions that replace the element range of a tile.
    let mut rows: UMap<[UOp; 2]> = UMap::default();
    for (w, e) in order.iter().filter_map(unit) {
        let mut range = |n: u16, kind| {
            sub += 1;
            let id = e.range_arg().map_or(0, |a| a.id);
            UOp::range(UOp::int(n as i64), id, kind).with_arg(Arg::Range(RangeArg { id, sub, kind }))
        };
        rows.entry(e.clone()).or_insert_with(|| [range(w.m, AxisKind::Loop), range(w.n, AxisKind::Vector)]);
    }
    let summed = |u: &UOp| u.op() == Op::Reduce && unit(u).is_some();
    let inner: Vec<UOp> = order.iter().filter(|u| summed(u)).map(|u| u.src()[0].clone()).collect();
    let mut done: UMap<UOp> = UMap::default();
    for u in &order {
        // PANIC: toposort lists sources first.
        let mut src: Srcs = u.src().iter().map(|s| done[s].clone()).collect();
        let new = if let Some([row, column]) = rows.get(u) {
            &(row * (column.vmax() as i64 + 1)) + column
        } else if let Some((_, e)) = unit(u).filter(|_| !inner.contains(u)) {
            area += 1;
            read_back(u, e, &done[e], &open[u], area - 1)
        } else {
            if u.op() == Op::Store && u.src()[2..].iter().any(|r| rows.contains_key(r)) {
                let kept = |(k, s): (usize, &UOp)| {
                    if k >= 2 && rows.contains_key(&u.src()[k]) { None } else { Some(s.clone()) }
                };
                let tiles = u.src()[2..].iter().filter_map(|r| rows.get(r)).flatten().cloned();
                src = src.iter().enumerate().filter_map(kept).chain(tiles).collect();
            }
            u.with_src(src)
        };
        done.insert(u.clone(), new);
    }
    done.remove(sink).unwrap_or_else(|| sink.clone())
}

/// Element `at` of the tile, loaded from an area with room for every copy of the tile.
fn read_back(tile: &UOp, e: &UOp, at: &UOp, open: &[UOp], area: u32) -> UOp {
    let mut dims: Vec<UOp> =
        open.iter().filter(|r| matches!(kind_of(r), AxisKind::Upcast | AxisKind::Unroll)).cloned().collect();
    dims.push(e.clone());
    let sizes: Vec<i64> = dims.iter().map(|r| (r.vmax() + 1) as i64).collect();
    let area = UOp::local(area, tile.dtype(), sizes.iter().product::<i64>() as usize);
    let fill = area.index(&position(&dims, &sizes)).store(tile, &dims);
    let mut from = dims.clone();
    if let Some(last) = from.last_mut() {
        *last = at.clone();
    }
    area.after(&[fill]).index(&position(&from, &sizes)).load()
}
