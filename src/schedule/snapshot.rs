//! When a value needs both the old content of a buffer and results of its assignment, the old content must be copied
//! first.
//!
//! Such graphs show as a cycle between kernels, which this breaks. Every buffer that is assigned to is copied once,
//! before anything runs, and every read of its old content reads the copy.

use super::front::Key;
use crate::uop::{Arg, Op, Srcs, UMap, UOp};

/// Tag of a Contiguous that is a copy even of what is dense memory already.
const COPY: u32 = 1;

/// Whether `u` requests a copy of memory.
pub(crate) fn is_snapshot(u: &UOp) -> bool {
    u.op() == Op::Contiguous && u.tag() == Some(COPY)
}

/// The graph with snapshots of all assigned buffers, and what each rebuilt Assign was before.
pub(crate) fn with_snapshots(key: &Key) -> (Key, UMap<UOp>) {
    let order = key.graph.toposort();
    let mut assigned: UMap<()> = UMap::default();
    for a in order.iter().filter(|u| u.op() == Op::Assign) {
        let mut t = &a.src()[0];
        while !t.src().is_empty() && t.op() != Op::Param {
            t = &t.src()[0];
        }
        assigned.insert(t.clone(), ());
    }
    // As a value, and as a place in memory to write to or to read after something.
    let (mut value, mut place, mut before) = (UMap::<UOp>::default(), UMap::<UOp>::default(), UMap::default());
    for u in &order {
        let with = |first: &UMap<UOp>| -> UOp {
            let src = u.src().iter().enumerate();
            u.with_src(src.map(|(k, s)| if k == 0 { first[s].clone() } else { value[s].clone() }).collect::<Srcs>())
        };
        let (v, p) = match u.op() {
            Op::Param if assigned.contains_key(u) => {
                let copy = UOp::tagged(Op::Contiguous, u.dtype(), [u.clone()], Arg::None, Some(COPY));
                (copy, u.clone())
            }
            Op::Assign | Op::After => (with(&place), with(&place)),
            _ if u.src().is_empty() => (u.clone(), u.clone()),
            _ => (with(&value), with(&place)),
        };
        if u.op() == Op::Assign {
            before.insert(v.clone(), u.clone());
        }
        value.insert(u.clone(), v);
        place.insert(u.clone(), p);
    }
    (Key { graph: value[&key.graph].clone(), ..key.clone() }, before)
}
