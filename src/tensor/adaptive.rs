//! Adaptive pooling: the number of windows is given, and where they begin and end follows from it.

use super::elementwise::{Elementwise, to_float};
use super::error::Problem;
use super::graph;
use super::index::{Index, Indexing};
use super::movement::{LARGEST, Movement};
use super::padding::lowest;
use super::per_axis::PerAxis;
use super::pool::spatial;
use super::reduction::{max, sum};
use super::value::{Expr, Value};
use crate::uop::{Dim, UOp};

/// The elements of an axis in windows, and which of them count.
struct Windows {
    /// (.., windows, elements, ..) in the place of the axis.
    x: Expr,
    /// (windows, elements) where the element belongs to the window.
    is_inside: Expr,
    /// How many elements each window has: (windows,).
    count: Expr,
}

/// Window i of `out` over an axis of length `len` is `i * len / out` to `(i + 1) * len / out`, rounded outward.
fn uneven(x: &Expr, axis: usize, (len, out): (i64, i64)) -> Windows {
    let longest = (len / out + 2).min(len);
    let number = |n: i64| Expr::from(UOp::iota(Dim::Int(n).uop()));
    let i = number(out);
    let begin = i.mul(len).div_floor(out);
    let end = i.add(1).mul(len).add(out - 1).div_floor(out);
    let at = begin.unsqueeze(1).add(&number(longest).unsqueeze(0));
    let is_inside = at.lt(&end.unsqueeze(1));
    let mut index = vec![Index::ALL; axis];
    index.push(Index::Pick(at.minimum(len - 1).node()));
    Windows { x: x.get(index), is_inside, count: end.sub(&begin) }
}

/// Old and new size of an axis.
fn sizes(x: &Expr, axis: usize, out: usize) -> Result<(i64, i64), Problem> {
    let Some(len) = x.dim(axis).as_int() else {
        return Err(Problem::shape(format!("windows over the symbolic size {}", x.dim(axis))));
    };
    let out = Dim::from(out).max();
    if len < 1 || !(1..=LARGEST).contains(&out) || len.checked_mul(out).is_none_or(|n| n > LARGEST) {
        return Err(Problem::shape(format!("{out} windows over an axis of {len}")));
    }
    Ok((len, out))
}

/// `x`, of which an axis is (windows,), with axes of size 1 after it.
fn with_trailing(x: &Expr, axes: usize) -> Expr {
    x.reshape([x.shape(), &vec![Dim::Int(1); axes]].concat())
}

/// The mean (`is_max`: the largest element) of each of `size` windows over the last axes. Axes that are cut evenly are
/// reduced together, each of the others by itself: a window that is a product of windows needs no more.
pub(crate) fn pooled(x: &Expr, size: PerAxis<usize>, named: Option<usize>, is_max: bool) -> Result<Expr, Problem> {
    let count = spatial(x.rank(), size.count(), named)?;
    let (rest, size) = (x.rank() - count, size.over(count, "sizes")?);
    let x = if is_max { x.clone() } else { Expr::from(to_float(x.uop())) };
    let t = x.scalar();
    let axes: Vec<(i64, i64)> = (0..count).map(|k| sizes(&x, rest + k, size[k])).collect::<Result<_, _>>()?;
    let reduced = |x: &Expr, at: &[usize]| if is_max { max(x, at) } else { sum(x, at) };
    // Even axes: from the last one on, those in front keep their numbers.
    let mut y = if is_max { x.clone() } else { x.cast(t.accumulator()) };
    let (mut shape, mut taps, mut elements) = (Vec::new(), Vec::new(), 1.0);
    for (k, size) in x.shape().iter().enumerate() {
        shape.push(size.clone());
        if let Some((len, out)) = k.checked_sub(rest).map(|k| axes[k]).filter(|(len, out)| len % out == 0) {
            shape.pop();
            shape.extend([Dim::Int(out), Dim::Int(len / out)]);
            taps.push(shape.len() - 1);
            elements *= (len / out) as f64;
        }
    }
    let kept: Vec<Dim> = (0..shape.len()).filter(|k| !taps.contains(k)).map(|k| shape[k].clone()).collect();
    y = reduced(&y.reshape(shape), &taps)?.reshape(kept);
    let mut counts: Option<Expr> = None;
    for (k, (len, out)) in axes.iter().enumerate().filter(|(_, (len, out))| len % out != 0) {
        let (at, after) = (rest + k, count - 1 - k);
        let w = uneven(&y, at, (*len, *out));
        w.x.node().map_err(|fault| fault.problem.clone())?;
        let nothing = if is_max { graph::constant(lowest(t), t)? } else { UOp::constant(w.x.uop().dtype(), 0.0) };
        let inside = with_trailing(&w.is_inside, after).where_(&w.x, &Expr::from(nothing));
        y = reduced(&inside, &[at + 1])?.squeeze(at as i64 + 1);
        let n = with_trailing(&w.count, after);
        counts = Some(counts.map_or(n.clone(), |c| c.mul(&n)));
    }
    if is_max {
        return Ok(y);
    }
    let n = counts.map(|c| c.cast(y.scalar()).mul(elements));
    Ok(n.map_or_else(|| y.div(elements), |n| y.div(&n)).cast(t))
}
