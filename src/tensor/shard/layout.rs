//! Movement and reductions of a value over several devices: where its axis goes.

use super::{Layout, Sharded};
use crate::tensor::graph;
use crate::uop::{Dim, Op, UOp};

/// `u`, a movement or reduction of `s`, on each device; `None` where it takes elements from one device's part to
/// another's.
pub(super) fn followed(u: &UOp, s: &Sharded) -> Option<Sharded> {
    match u.op() {
        Op::Reduce => reduced(u, s),
        _ => match s.layout {
            Layout::Axis(k) => moved(u, s, k),
            // A device has the whole shape, and each movement works on each summand by itself.
            layout => Some(s.map(layout, |(_, p)| same(u, p))),
        },
    }
}

/// The same node above one part.
fn same(u: &UOp, part: &UOp) -> UOp {
    let src: crate::uop::Srcs = std::iter::once(part.clone()).chain(u.src()[1..].iter().cloned()).collect();
    u.with_src(src)
}

fn reduced(u: &UOp, s: &Sharded) -> Option<Sharded> {
    let op = u.reduce_op()?;
    let layout = match s.layout {
        Layout::Axis(k) if u.axes().contains(&(k as u16)) => Layout::Partial(op),
        Layout::Partial(by) if by != op => return None,
        layout => layout,
    };
    Some(s.map(layout, |(_, p)| u.with_src([p.clone()])))
}

/// A movement of a value with parts along axis `k`.
fn moved(u: &UOp, s: &Sharded, k: usize) -> Option<Sharded> {
    let n = s.count() as i64;
    let rank = s.parts[0].shape().len();
    let size = |j: usize| Dim::from(&u.src()[1 + j]);
    match u.op() {
        Op::Permute => {
            let to = u.axes().iter().position(|a| usize::from(*a) == k)?;
            Some(s.map(Layout::Axis(to), |(_, p)| same(u, p)))
        }
        Op::Flip if !u.axes().contains(&(k as u16)) => Some(s.map(s.layout, |(_, p)| same(u, p))),
        Op::Expand => Some(s.map(s.layout, |(_, p)| with_size(u, p, k, &p.shape()[k]))),
        Op::Pad if size(k).is(0) && size(rank + k).is(0) => Some(s.map(s.layout, |(_, p)| same(u, p))),
        Op::Shrink if size(k).is(0) && size(rank + k) == s.dim(k) => {
            Some(s.map(s.layout, |(_, p)| with_size(u, p, rank + k, &p.shape()[k])))
        }
        Op::Reshape => {
            let (to, local) = reshaped(s, u.shape(), k, n)?;
            Some(s.map(Layout::Axis(to), |(_, p)| graph::reshape(p, &local)))
        }
        _ => None,
    }
}

/// `u` above a part, with another number in one place of its sizes.
fn with_size(u: &UOp, part: &UOp, at: usize, size: &Dim) -> UOp {
    let mut src: crate::uop::Srcs = u.src().iter().cloned().collect();
    src[0] = part.clone();
    src[1 + at] = size.uop();
    u.with_src(src)
}

/// The axis that axis `k` becomes part of by a reshape to `shape`, and the shape of a part: the axes in front of both
/// must hold as many elements.
fn reshaped(s: &Sharded, shape: &[Dim], k: usize, n: i64) -> Option<(usize, Vec<Dim>)> {
    let own = s.parts[0].shape();
    let product = |dims: &[Dim]| dims.iter().map(Dim::as_int).product::<Option<i64>>();
    let front = product(&own[..k])?;
    let fits = |to: usize| {
        let size = shape[to].as_int()?;
        (product(&shape[..to])? == front && size % n == 0 && size > 0).then_some(size)
    };
    let (to, size) = (0..shape.len()).find_map(|to| Some((to, fits(to)?)))?;
    let mut local = shape.to_vec();
    local[to] = Dim::Int(size / n);
    Some((to, local))
}
