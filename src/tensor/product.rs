//! Products that sum: matmul of any ranks, convolution, pooling. All are multiply and reduce over expanded views.

use super::elementwise::{Elementwise, to_float};
use super::error::{Problem, Shown};
use super::graph;
use super::movement::{LARGEST, Movement};
use super::padding::lowest;
use super::reduction::{max, sum};
use super::value::{Expr, Value, lift, lift_many};
use super::window::windows;
use crate::uop::{Dim, UOp};

/// How a window walks over the last two axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv {
    pub groups: usize,
    pub stride: [usize; 2],
    pub dilation: [usize; 2],
    /// Zeros before and after each of the two axes.
    pub padding: [(usize, usize); 2],
}
impl Default for Conv {
    fn default() -> Conv {
        Conv { groups: 1, stride: [1, 1], dilation: [1, 1], padding: [(0, 0), (0, 0)] }
    }
}
impl Conv {
    /// The same padding on all four sides.
    pub fn padded(n: usize) -> Conv {
        Conv { padding: [(n, n), (n, n)], ..Conv::default() }
    }
    /// The same stride on both axes.
    pub fn strided(self, n: usize) -> Conv {
        Conv { stride: [n, n], ..self }
    }
}

/// A pooling window; `stride: None` walks by whole windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    pub size: [usize; 2],
    pub stride: Option<[usize; 2]>,
    pub dilation: [usize; 2],
    pub padding: [(usize, usize); 2],
    /// A last window that reaches beyond the end counts.
    pub ceil: bool,
    /// Whether an average counts the padding.
    pub count_padding: bool,
}
impl Pool {
    /// A square window that walks by whole windows.
    pub fn square(n: usize) -> Pool {
        Pool {
            size: [n, n],
            stride: None,
            dilation: [1, 1],
            padding: [(0, 0), (0, 0)],
            ceil: false,
            count_padding: true,
        }
    }
}

/// Matrix products and sliding windows.
pub trait Product: Value {
    /// Matrix product over the last axis of `self` and the one before the last of `o` (or its only one); axes in front
    /// broadcast.
    #[track_caller]
    fn matmul(&self, o: &Self) -> Self {
        lift("matmul", [self.node(), o.node()], |[a, b]| matmul(&a, &b))
    }
    /// As [`Product::matmul`].
    #[track_caller]
    fn dot(&self, o: &Self) -> Self {
        lift("dot", [self.node(), o.node()], |[a, b]| matmul(&a, &b))
    }
    /// Sum of products by letters: `"bij,bjk->bik"`; a letter that the result lacks is summed, `...` broadcasts.
    #[track_caller]
    fn einsum(formula: &str, operands: &[&Self]) -> Self {
        let nodes: Vec<_> = operands.iter().map(|x| x.node()).collect();
        lift_many("einsum", &nodes, |xs| super::einsum::einsum(formula, xs))
    }
    /// `self @ weightᵀ + bias` with weight (out, in).
    #[track_caller]
    fn linear(&self, weight: &Self, bias: Option<&Self>) -> Self {
        let y = lift("linear", [self.node(), weight.node()], |[x, w]| matmul(&x, &w.t()));
        match bias {
            Some(bias) => Elementwise::add(&y, bias),
            None => y,
        }
    }
    /// Cross-correlation of (n, in, h, w) with weight (out, in / groups, kh, kw).
    #[track_caller]
    fn conv2d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        let y: Self = lift("conv2d", [self.node(), weight.node()], |[x, w]| conv2d(&x, &w, how));
        match bias {
            Some(bias) => lift("conv2d", [y.node(), bias.node()], |[y, b]| match b.shape() {
                [c] if *c == y.dim(1) => Ok(y.add(&b.reshape([&Dim::Int(1), c, &Dim::Int(1), &Dim::Int(1)]))),
                other => Err(Problem::shape(format!("the bias has shape {}", Shown(other)))),
            }),
            None => y,
        }
    }
    #[track_caller]
    fn max_pool2d(&self, how: Pool) -> Self {
        lift("max_pool2d", [self.node()], |[x]| {
            let (w, n) = pooled(&x, how, true)?;
            let m = max(&w, &[n, n + 1])?;
            Ok(m.reshape(&w.shape()[..n]))
        })
    }
    #[track_caller]
    fn avg_pool2d(&self, how: Pool) -> Self {
        lift("avg_pool2d", [self.node()], |[x]| {
            let x = Expr::from(to_float(x.uop()));
            let (w, n) = pooled(&x, how, false)?;
            let total = sum(&w, &[n, n + 1])?.reshape(&w.shape()[..n]);
            if how.count_padding && !how.ceil {
                return Ok(total.div(how.size[0] as f64 * how.size[1] as f64));
            }
            let ones = Expr::from(graph::full(x.shape(), &UOp::constant(x.uop().dtype(), 1.0)));
            // The requested padding counts, the padding that `ceil` adds at the end does not.
            let explicit: Vec<(i64, i64)> = last_two(x.rank(), &how.padding);
            let counted = if how.count_padding { ones.pad_value(&explicit, 1.0) } else { ones.pad(&explicit) };
            let rest: Vec<(i64, i64)> =
                edge(&x, how).iter().zip(&explicit).map(|(e, p)| (e.0 - p.0, e.1 - p.1)).collect();
            let c = windows(&counted.pad(&rest), &how.size, &how.stride.unwrap_or(how.size), &how.dilation)?;
            Ok(total.div(&sum(&c, &[n, n + 1])?.reshape(&w.shape()[..n])))
        })
    }
}

impl<V: Value> Product for V {}

pub(crate) fn matmul(a: &Expr, b: &Expr) -> Result<Expr, Problem> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Problem::shape("a scalar has no rows or columns"));
    }
    let (ka, axis) = (a.dim(a.rank() - 1), b.rank().saturating_sub(2));
    let kb = b.dim(axis);
    if !graph::same(&ka, &kb) {
        return Err(Problem::shape(format!("the inner sizes {ka} and {kb} differ")));
    }
    // (.., m, 1, k) * (.., 1, n, k), summed over k.
    let x = if a.rank() > 1 && b.rank() > 1 { a.unsqueeze(-2) } else { a.clone() };
    let y = if b.rank() > 1 {
        let turned = b.transpose(-1, -2);
        if a.rank() > 1 { turned.unsqueeze(-3) } else { turned }
    } else {
        b.clone()
    };
    let p = multiplied(&x, &y);
    p.node().map_err(|fault| fault.problem.clone())?;
    let s = sum(&p, &[p.rank() - 1])?;
    let t = graph::promoted(&[a.uop(), b.uop()]);
    Ok(s.reshape(&s.shape()[..s.rank() - 1]).cast(if t.is_weak() { s.scalar() } else { t }))
}

/// Products that are to be summed: floats in the type they are summed in, so that half types round once, at the end.
fn multiplied(a: &Expr, b: &Expr) -> Expr {
    let t = graph::promoted(&[a.uop(), b.uop()]);
    if t.is_float() && !t.is_weak() { a.cast(t.accumulator()).mul(&b.cast(t.accumulator())) } else { a.mul(b) }
}

fn conv2d(x: &Expr, w: &Expr, how: Conv) -> Result<Expr, Problem> {
    let ([n, cin, ..], [cout, cin_group, kh, kw]) = (x.shape(), w.shape()) else {
        return Err(Problem::shape("an image is (n, channels, h, w), a weight (out, in / groups, kh, kw)"));
    };
    if x.rank() != 4 {
        return Err(Problem::shape(format!("an image has rank 4, not {}", x.rank())));
    }
    let ints = [cin, cout, cin_group, kh, kw].map(|d| d.as_int().and_then(|i| usize::try_from(i).ok()));
    let [Some(cin), Some(cout), Some(cg), Some(kh), Some(kw)] = ints else {
        return Err(Problem::shape("channels and window must have known sizes"));
    };
    let g = how.groups;
    if g == 0 || cg.checked_mul(g) != Some(cin) || cout % g != 0 {
        return Err(Problem::shape(format!("{g} groups of {cg} do not make {cin} channels in and {cout} out")));
    }
    let p = windows(&x.pad(&last_two(4, &how.padding)), &[kh, kw], &how.stride, &how.dilation)?;
    let (oh, ow) = (p.dim(2), p.dim(3));
    let d = |i: usize| Dim::from(i);
    let one = Dim::Int(1);
    // image: (n, g, 1, cin/g, oh, ow, kh, kw) -> (n, g, cout/g, cin/g, kh, kw, oh, ow): the gradient of an image is
    // stored in this order before its windows are added up, along rows of the picture.
    let image = p
        .reshape([n, &d(g), &one, &d(cg), &oh, &ow, &d(kh), &d(kw)])
        .permute([0, 1, 2, 3, 6, 7, 4, 5])
        .expand([n, &d(g), &d(cout / g), &d(cg), &d(kh), &d(kw), &oh, &ow]);
    let weight = w.reshape([&one, &d(g), &d(cout / g), &d(cg), &d(kh), &d(kw), &one, &one]);
    let y = sum(&multiplied(&image, &weight), &[3, 4, 5])?;
    let t = graph::promoted(&[x.uop(), w.uop()]);
    Ok(y.reshape([n, &d(cout), &oh, &ow]).cast(t))
}

/// A count, clamped to just beyond what the checks of padding and windows accept.
fn count(n: usize) -> i64 {
    Dim::from(n).max().min(LARGEST + 1)
}

/// Padding of the last two axes as counts for all.
fn last_two(rank: usize, padding: &[(usize, usize); 2]) -> Vec<(i64, i64)> {
    let mut counts = vec![(0, 0); rank.saturating_sub(2)];
    counts.extend(padding.iter().map(|(a, b)| (count(*a), count(*b))));
    counts
}

/// Windows over the last two axes, and the rank of what is left in front of them.
fn pooled(x: &Expr, how: Pool, low: bool) -> Result<(Expr, usize), Problem> {
    if x.rank() < 2 {
        return Err(Problem::shape(format!("pooling works on the last two axes, the rank is {}", x.rank())));
    }
    let counts = edge(x, how);
    let padded = if low { x.pad_value(&counts, lowest(x.scalar())) } else { x.pad(&counts) };
    padded.node().map_err(|fault| fault.problem.clone())?;
    let w = windows(&padded, &how.size, &how.stride.unwrap_or(how.size), &how.dilation)?;
    Ok((w, x.rank()))
}

/// Padding of the two axes, with what `ceil` adds at the end.
fn edge(x: &Expr, how: Pool) -> Vec<(i64, i64)> {
    let mut counts = vec![(0i64, 0i64); x.rank() - 2];
    let stride = how.stride.unwrap_or(how.size);
    for (k, stride) in stride.iter().enumerate() {
        let (before, mut after) = (count(how.padding[k].0), count(how.padding[k].1));
        let reach = (count(how.size[k]) - 1).saturating_mul(count(how.dilation[k])).saturating_add(1);
        if let (true, Some(len)) = (how.ceil, x.dim(x.rank() - 2 + k).as_int()) {
            let s = count(*stride).max(1);
            let space = (len + before + after).saturating_sub(reach);
            let steps = (space + s - 1).div_euclid(s);
            // A window that would start in the padding at the end does not count.
            let steps = if steps * s >= len + before { steps - 1 } else { steps };
            after += (steps * s - space).max(0);
        }
        counts.push((before, after));
    }
    counts
}
