//! Cost estimates of a linear program, and kernel names.

use super::program::{Estimates, ParamInfo, TensorInfo};
use doorbell_sort as sort;
use doorbell_uop::{AddrSpace, Arg, AxisKind, Memo, Op, RangeArg, UMap, UOp};

/// Counts operations and bytes over the list; each loop counts with its largest trip count.
pub(super) fn estimate(list: &[UOp], params: &[ParamInfo]) -> Estimates {
    let mut e = Estimates::default();
    let values = values(list);
    let (mut trips, mut outer, mut threads) = (1u64, vec![], 1u64);
    let mut touched: UMap<u64> = UMap::default();
    for u in list {
        match u.op() {
            Op::Range => {
                outer.push(trips);
                trips = trips.saturating_mul((u.vmax() + 1) as u64);
            }
            Op::If => {
                outer.push(trips);
                trips /= threads;
            }
            Op::End | Op::EndIf => trips = outer.pop().unwrap_or(1),
            Op::Special => {
                threads = (u.vmax() + 1) as u64;
                trips = trips.saturating_mul(threads);
            }
            Op::Load | Op::Store => {
                let value = if u.op() == Op::Load { u.dtype() } else { u.src()[1].dtype() };
                let memory = &u.src()[0].src()[0];
                if memory.dtype().space == Some(AddrSpace::Global) {
                    let bytes = trips.saturating_mul(value.size_bytes() as u64);
                    e.mem_bytes = e.mem_bytes.saturating_add(bytes);
                    *touched.entry(memory.clone()).or_default() += bytes;
                }
            }
            op if op.is_alu() && values.has(u) => {
                let each = (1 + (op == Op::MulAcc) as u64) * u.dtype().lanes as u64;
                e.flops = e.flops.saturating_add(trips.saturating_mul(each));
            }
            Op::Wmma => e.flops = e.flops.saturating_add(trips.saturating_mul(wmma_flops(u))),
            Op::WaveReduce => {
                let steps = u.wave_threads().map_or(0, |n| u64::from(n.trailing_zeros()));
                e.flops = e.flops.saturating_add(trips.saturating_mul(steps * u.dtype().lanes as u64));
            }
            Op::VReduce => e.flops += trips * (u.src()[0].dtype().lanes as u64 - 1),
            _ => {}
        }
    }
    for p in params {
        let bytes = (p.len * p.dtype.size_bytes()) as u64;
        let moved: u64 = touched.iter().filter(|(u, _)| slot(u) == Some(p.slot)).map(|(_, b)| *b).sum();
        e.unique_bytes += bytes.min(moved);
    }
    e
}

/// The part of the matrix unit's operations that one thread accounts for.
fn wmma_flops(u: &UOp) -> u64 {
    match u.arg() {
        Arg::Wmma(w) => 2 * w.m as u64 * w.n as u64 * w.k as u64 / w.lanes as u64,
        _ => 0,
    }
}

fn slot(param: &UOp) -> Option<u32> {
    match param.arg() {
        Arg::Param(slot, _) => Some(*slot),
        _ => None,
    }
}

/// Nodes that compute data, as opposed to addresses and loop bounds (whatever is below an Index, up to the next Load).
fn values(list: &[UOp]) -> Memo<()> {
    let mut values = Memo::new();
    let mut todo: Vec<&UOp> = vec![];
    for u in list {
        match u.op() {
            Op::Store | Op::SetAcc => todo.push(&u.src()[1]),
            Op::Load => todo.extend(u.src().get(1)),
            _ => {}
        }
    }
    while let Some(u) = todo.pop() {
        if u.op() != Op::Index && u.op() != Op::Range && !values.has(u) {
            values.insert(u, ());
            todo.extend(u.src());
        }
    }
    values
}

/// The buffers that TMA tiles are copied from, each once, in the order of the list.
pub(super) fn tensors(list: &[UOp], params: &[ParamInfo]) -> Vec<TensorInfo> {
    let mut out: Vec<TensorInfo> = vec![];
    for u in list {
        let (Op::CopyTile, Arg::Tma(b)) = (u.op(), u.arg()) else { continue };
        let param = params.iter().position(|p| slot(&u.src()[2]) == Some(p.slot));
        let info = param.map(|param| TensorInfo { param, tensor: b.tensor });
        out.extend(info.filter(|t| !out.contains(t)));
    }
    out
}

/// Buffer arguments in slot order.
pub(super) fn params(list: &[UOp]) -> Vec<ParamInfo> {
    let mut out: Vec<ParamInfo> = vec![];
    let mut mark = |u: &UOp, read: bool, written: bool| {
        let Arg::Param(slot, len) = u.arg() else { return };
        match out.iter_mut().find(|p| p.slot == *slot) {
            Some(p) => {
                p.read |= read;
                p.written |= written;
            }
            None => out.push(ParamInfo { slot: *slot, dtype: u.dtype().pointee(), len: *len, read, written }),
        }
    };
    for u in list {
        match u.op() {
            Op::Param => mark(u, false, false),
            Op::Load => mark(&u.src()[0].src()[0], true, false),
            Op::Store => mark(&u.src()[0].src()[0], false, true),
            _ => {}
        }
    }
    sort::by_key(&mut out, |p| p.slot);
    out
}

/// `E_…` or `r_…` with the sizes of the axes, plain and coloured by axis kind.
pub(super) fn names(axes: &[UOp], reduces: bool) -> (String, String) {
    let letter = if reduces { "r" } else { "E" };
    let (mut plain, mut shown) = (letter.to_string(), letter.to_string());
    for r in axes {
        let size = match r.src()[0].as_int() {
            Some(n) => n.to_string(),
            None if r.src()[0].op() != Op::Var => r.vmax().saturating_add(1).to_string(),
            None => r.src()[0].render().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect(),
        };
        let kind = r.range_arg().map_or(AxisKind::Loop, |RangeArg { kind, .. }| kind);
        plain += &format!("_{size}");
        shown += &format!("\x1b[90m_\x1b[0m{}{size}\x1b[0m", colour(kind));
    }
    (plain, shown)
}

/// The terminal colours that tinygrad uses for the kinds of axes.
fn colour(kind: AxisKind) -> &'static str {
    match kind {
        AxisKind::Global => "\x1b[34m",
        AxisKind::Thread => "\x1b[94m",
        AxisKind::Loop => "\x1b[37m",
        AxisKind::Local => "\x1b[36m",
        AxisKind::Warp => "\x1b[96m",
        AxisKind::GroupReduce => "\x1b[91m",
        AxisKind::Reduce => "\x1b[31m",
        AxisKind::Upcast => "\x1b[33m",
        AxisKind::Unroll => "\x1b[35m",
        AxisKind::Vector => "\x1b[93m",
    }
}
