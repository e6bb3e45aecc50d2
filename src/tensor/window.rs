//! Sliding windows over the last axes, as movement only: the base of convolution, pooling and cumulative sums.

use super::error::Problem;
use super::movement::{LARGEST, Movement};
use super::value::Expr;
use crate::uop::Dim;

/// Windows of `size` every `step` elements, their elements `dilation` apart, over the last `size.len()` axes:
/// (rest.., n0, n1 ..) becomes (rest.., count0, count1 .., size0, size1 ..).
pub(crate) fn windows(x: &Expr, size: &[usize], step: &[usize], dilation: &[usize]) -> Result<Expr, Problem> {
    let n = size.len();
    if x.rank() < n {
        return Err(Problem::shape(format!("{n} window axes over rank {}", x.rank())));
    }
    let rest = x.rank() - n;
    let mut x = x.clone();
    // One axis at a time. Until all are done, the axes of window elements precede those of windows: the last axis stays
    // the one along which memory runs, for each of the partial sums that a gradient makes.
    for k in 0..n {
        x = axis_windows(&x, rest + 2 * k, rest + k, (size[k], step[k], dilation[k]))?;
    }
    let (first, middle, last) = (rest as i64, (rest + n) as i64, (rest + 2 * n) as i64);
    Ok(x.permute((0..first).chain(middle..last).chain(first..middle).collect::<Vec<i64>>()))
}

/// Axis `at` becomes its window count, and the window elements an axis that is put in at `to`.
fn axis_windows(
    x: &Expr,
    at: usize,
    to: usize,
    (size, step, dilation): (usize, usize, usize),
) -> Result<Expr, Problem> {
    let Some(len) = x.dim(at).as_int() else {
        return Err(Problem::shape(format!("windows over the symbolic size {}", x.dim(at))));
    };
    let [k, s, d] = [size, step, dilation].map(|v| i64::try_from(v).unwrap_or(i64::MAX));
    let d = if k == 1 { 1 } else { d };
    if k < 1 || s < 1 || dilation < 1 || [size, step, dilation].iter().any(|v| Dim::from(*v).max() > LARGEST) {
        return Err(Problem::argument(format!(
            "window {size}, step {step}, dilation {dilation}: each is 1 to {LARGEST}"
        )));
    }
    let reach = (k - 1).saturating_mul(d).saturating_add(1);
    if len < reach {
        return Err(Problem::shape(format!("a window of {reach} elements over an axis of {len}")));
    }
    let count = (len - reach) / s + 1;
    let w = in_place(x, at, (len, k, s, d, count))?;
    let mut order: Vec<i64> = (0..=x.rank() as i64).collect();
    let taps = order.remove(at + 1);
    order.insert(to, taps);
    Ok(w.permute(order))
}

/// The shape of `x` with `sizes` in the place of axis `at`.
fn shape_with(x: &Expr, at: usize, sizes: &[i64]) -> Vec<Dim> {
    let shape = x.shape();
    let mut out = shape[..at].to_vec();
    out.extend(sizes.iter().map(|n| Dim::Int(*n)));
    out.extend_from_slice(&shape[at + 1..]);
    out
}

/// Axis `at` becomes two in its place: windows, elements of each. The other axes stay where they are, so that what is
/// read or, in a gradient, stored along them keeps its direction in memory.
fn in_place(x: &Expr, at: usize, (len, k, s, d, count): (i64, i64, i64, i64, i64)) -> Result<Expr, Problem> {
    let shape = |sizes: &[i64]| shape_with(x, at, sizes);
    let axis = at as i64;
    if d == 1 && k <= s {
        // Windows do not overlap: rows of s elements, cut to k.
        let want = count * s;
        let fit = if want > len { padded(x, at, want - len) } else { x.narrow(axis, 0, want) };
        return Ok(fit.reshape(shape(&[count, s])).narrow(axis + 1, 0, k));
    }
    // k copies of the axis one after another, read in rows that are d longer: row j starts d further on in its copy, so
    // that element p of row j is number j * d + p of the axis. There are exactly k copies: a gradient sums over no more
    // than those.
    let many = x.unsqueeze(axis).expand(shape(&[k, len])).reshape(shape(&[k.saturating_mul(len)]));
    let rows = padded(&many, at, k.saturating_mul(d)).reshape(shape(&[k, len + d]));
    let cut = if s == 1 {
        rows.narrow(axis + 1, 0, count)
    } else {
        let reached = rows.narrow(axis + 1, 0, (count - 1) * s + 1);
        let steps = padded(&reached, at + 1, s - 1).reshape(shape(&[k, count, s])).narrow(axis + 2, 0, 1);
        steps.reshape(shape(&[k, count]))
    };
    Ok(cut.transpose(axis, axis + 1))
}

fn padded(x: &Expr, axis: usize, after: i64) -> Expr {
    let mut counts = vec![(0, 0); x.rank()];
    counts[axis] = (0, after);
    x.pad(&counts)
}
