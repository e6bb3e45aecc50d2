//! STAGE: what the loops inside an axis read of a buffer is copied to scratch memory first, packed in the order they read it.

use super::kind_of;
use crate::codegen::grid::{area_bytes, next_area, position};
use crate::uop::{Arg, AxisKind, Op, RangeArg, UMap, UOp};

/// The kernel with the loads of buffer `param` that depend on `axis` staged inside it.
///
/// # Errors
/// Nothing to stage, a tile of unknown size, or one beyond `most_bytes`.
pub(super) fn stage(sink: &UOp, param: usize, axis: &UOp, most_bytes: usize) -> Result<UOp, &'static str> {
    let mut open: UMap<Vec<UOp>> = UMap::default();
    crate::uop::open_ranges(sink, &mut open);
    let order = sink.toposort();
    let outside = outer_ranges(&order, axis);
    let from = |u: &UOp| {
        let memory = &u.src()[0].src()[0];
        matches!(memory.arg(), Arg::Param(slot, _) if *slot as usize == param)
    };
    let loads: Vec<UOp> =
        order.iter().filter(|u| u.op() == Op::Load && from(u) && open[*u].contains(axis)).cloned().collect();
    let mut areas = next_area(&order);
    let mut subs = order.iter().filter_map(UOp::range_arg).map(|a| a.sub).max().unwrap_or(0);
    let mut used: usize = order.iter().map(area_bytes).sum();
    let mut map: UMap<UOp> = UMap::default();
    for load in loads {
        let mut dims: Vec<UOp> = open[&load].iter().filter(|r| !outside.contains(r)).cloned().collect();
        dims.sort_by_key(|r| (place(r), r.range_arg().map(|a| (a.id, a.sub))));
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
        // The copy's own loops.
        let copies: Vec<UOp> = dims
            .iter()
            .map(|r| {
                subs += 1;
                let kind = match kind_of(r) {
                    AxisKind::Unroll => AxisKind::Upcast,
                    AxisKind::Reduce => AxisKind::Loop,
                    k => k,
                };
                let id = r.range_arg().map_or(0, |a| a.id);
                r.with_arg(Arg::Range(RangeArg { id, sub: subs, kind }))
            })
            .collect();
        let renamed: UMap<UOp> = dims.iter().cloned().zip(copies.iter().cloned()).collect();
        let fill = area.index(&position(&copies, &sizes)).store(&load.substitute(&renamed), &copies);
        map.insert(load, area.after(&[fill]).index(&position(&dims, &sizes)).load());
    }
    if map.is_empty() { Err("no load of that buffer depends on the axis") } else { Ok(sink.substitute(&map)) }
}

/// `axis` and all loops around it.
fn outer_ranges(order: &[UOp], axis: &UOp) -> Vec<UOp> {
    let mut out: Vec<UOp> = vec![];
    for u in order {
        let Some(first) = crate::codegen::scope::first_range(u.op()) else { continue };
        let ranges = &u.src()[first.min(u.src().len())..];
        if let Some(k) = ranges.iter().position(|r| r == axis) {
            out.extend(ranges[..=k].iter().filter(|r| is_loop(r)).cloned());
        }
    }
    out
}

fn is_loop(r: &UOp) -> bool {
    !matches!(kind_of(r), AxisKind::Upcast | AxisKind::Unroll | AxisKind::Vector)
}

/// Where a loop stands when the tile is read, from the outside in.
fn place(r: &UOp) -> u8 {
    match kind_of(r) {
        AxisKind::Vector => 4,
        AxisKind::Upcast => 3,
        AxisKind::Unroll => 2,
        AxisKind::Reduce | AxisKind::GroupReduce => 1,
        _ => 0,
    }
}
