//! Sliding windows over the last axes, as movement only: what convolution, pooling and cumulative sums are made of.

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
    // One axis at a time; window axes gather at the end in order.
    for k in 0..n {
        x = axis_windows(&x, rest + k, (size[k], step[k], dilation[k]))?;
    }
    Ok(x)
}

/// Axis `at` becomes its window count, and the window elements the last axis.
fn axis_windows(x: &Expr, at: usize, (size, step, dilation): (usize, usize, usize)) -> Result<Expr, Problem> {
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
    let last = x.rank() as i64;
    let at = at as i64;
    // Move the axis to the end, work on (.., len), give (.., count, k), and move the count back.
    let mut order: Vec<i64> = (0..last).filter(|a| *a != at).collect();
    order.push(at);
    let moved = x.permute(order);
    let rest = moved.shape()[..moved.rank() - 1].to_vec();
    let w = last_axis(&moved, &rest, (len, k, s, d, count))?;
    let mut back: Vec<i64> = (0..last - 1).collect();
    back.insert(at as usize, last - 1);
    back.push(last);
    Ok(w.permute(back))
}

fn shape_of(rest: &[Dim], tail: &[i64]) -> Vec<Dim> {
    rest.iter().cloned().chain(tail.iter().map(|t| Dim::Int(*t))).collect()
}

fn last_axis(x: &Expr, rest: &[Dim], (len, k, s, d, count): (i64, i64, i64, i64, i64)) -> Result<Expr, Problem> {
    if d == 1 && k <= s {
        // Windows do not overlap: rows of s elements, cut to k.
        let want = count * s;
        let fit = if want > len { padded(x, want - len) } else { x.narrow(-1, 0, want) };
        return Ok(fit.reshape(shape_of(rest, &[count, s])).narrow(-1, 0, k));
    }
    // Copies of the axis one after another, read in rows of a multiple of len plus d, start each row d further on:
    // element p of row j is number (j * d + p) mod len. A row must hold count * s elements.
    let f = ((count * s - d).max(0) + len - 1) / len;
    let row = len * f.max(1) + d;
    let copies = k.saturating_mul(row).saturating_add(len - 1) / len;
    let many = x.unsqueeze(-2).expand(shape_of(rest, &[copies, len]));
    let flat = many.reshape(shape_of(rest, &[copies.saturating_mul(len)]));
    let rows = flat.narrow(-1, 0, k.saturating_mul(row)).reshape(shape_of(rest, &[k, row]));
    let cut = rows.narrow(-1, 0, count * s).reshape(shape_of(rest, &[k, count, s])).narrow(-1, 0, 1);
    Ok(cut.reshape(shape_of(rest, &[k, count])).transpose(-1, -2))
}

fn padded(x: &Expr, after: i64) -> Expr {
    let mut counts = vec![(0, 0); x.rank()];
    if let Some(last) = counts.last_mut() {
        *last = (0, after);
    }
    x.pad(&counts)
}
