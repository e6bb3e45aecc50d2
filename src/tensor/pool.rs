//! Pooling: the largest element or the mean of each window, over any number of axes; and the way back.

use super::adaptive::pooled;
use super::elementwise::{Elementwise, to_float};
use super::error::{Problem, Shown};
use super::graph;
use super::index::position_type;
use super::movement::{LARGEST, Movement};
use super::padding::lowest;
use super::per_axis::PerAxis;
use super::reduction::{max, sum};
use super::value::{Expr, Value, lift};
use super::window::windows;
use crate::uop::{Dim, Op, UOp, numel};

/// A pooling window and how it moves. `Pool::square(2)` and `Pool::window([3, 2])` move by whole windows.
///
/// ```
/// use doorbell::tensor::prelude::*;
/// let overlapping = Pool::square(3).strided(2).padded(1);
/// let uneven = Pool::window([3, 2]).padded([(0, 1), (1, 0)]).ceiled();
/// # let _ = (overlapping, uneven);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Elements of the window along each axis.
    pub size: PerAxis<usize>,
    /// `None`: by whole windows.
    pub stride: Option<PerAxis<usize>>,
    /// Distance of the window's elements from each other along each axis.
    pub dilation: PerAxis<usize>,
    /// Counts (before, after) each axis; a maximum ignores the padding, a mean takes it as zeros. Negative counts cut.
    pub padding: PerAxis<(i64, i64)>,
    /// A last window that reaches beyond the end counts: torch's `ceil_mode`.
    pub ceil: bool,
    /// Whether a mean counts the padding: torch's `count_include_pad`.
    pub count_padding: bool,
}
impl Pool {
    /// A window of this size on every axis.
    pub fn square(n: usize) -> Pool {
        Pool::window(n)
    }
    /// A window of these sizes: one number for all axes, or one for each.
    pub fn window(size: impl Into<PerAxis<usize>>) -> Pool {
        Pool {
            size: size.into(),
            stride: None,
            dilation: PerAxis::all(1),
            padding: PerAxis::all((0, 0)),
            ceil: false,
            count_padding: true,
        }
    }
    /// With this stride: one number for all axes, or one for each.
    pub fn strided(self, stride: impl Into<PerAxis<usize>>) -> Pool {
        Pool { stride: Some(stride.into()), ..self }
    }
    /// With this dilation: one number for all axes, or one for each.
    pub fn dilated(self, dilation: impl Into<PerAxis<usize>>) -> Pool {
        Pool { dilation: dilation.into(), ..self }
    }
    /// `1` on all sides, `[1, 2]` on both sides of each axis, `[(1, 2), (0, 3)]` before and after each axis.
    pub fn padded(self, padding: impl Into<PerAxis<(i64, i64)>>) -> Pool {
        Pool { padding: padding.into(), ..self }
    }
    /// A last window that reaches beyond the end counts.
    pub fn ceiled(self) -> Pool {
        Pool { ceil: true, ..self }
    }
    /// Means are of elements inside only.
    pub fn uncounted(self) -> Pool {
        Pool { count_padding: false, ..self }
    }
}

/// Pooling over the last axes. `max_pool2d` and its like work on the last two; those without a number on as many as
/// the window has sizes or, where one number stands for all, on all but the first two (batch and channels).
///
/// Errors: fewer axes, an option for another number of axes, a window larger than the padded input, a size, stride or
/// dilation of 0, symbolic sizes of pooled axes.
pub trait Pooling: Value {
    /// Largest element of each window.
    #[track_caller]
    fn max_pool(&self, how: Pool) -> Self {
        lift("max_pool", [self.node()], |[x]| max_pool(&x, &how, None))
    }
    /// [`Pooling::max_pool`] of the last axes (length).
    #[track_caller]
    fn max_pool1d(&self, how: Pool) -> Self {
        lift("max_pool1d", [self.node()], |[x]| max_pool(&x, &how, Some(1)))
    }
    /// [`Pooling::max_pool`] of the last axes (h, w).
    #[track_caller]
    fn max_pool2d(&self, how: Pool) -> Self {
        lift("max_pool2d", [self.node()], |[x]| max_pool(&x, &how, Some(2)))
    }
    /// [`Pooling::max_pool`] of the last axes (d, h, w).
    #[track_caller]
    fn max_pool3d(&self, how: Pool) -> Self {
        lift("max_pool3d", [self.node()], |[x]| max_pool(&x, &how, Some(3)))
    }
    /// [`Pooling::max_pool`], and where each of them was: its number among the elements of the pooled axes, without
    /// padding (i32, or i64 where there are more); the first one of equals. torch's `return_indices=True`.
    #[track_caller]
    fn max_pool_with_indices(&self, how: Pool) -> (Self, Self) {
        let index = lift("max_pool_with_indices", [self.node()], |[x]| indices(&x, &how, None));
        (lift("max_pool_with_indices", [self.node()], |[x]| max_pool(&x, &how, None)), index)
    }
    /// [`Pooling::max_pool_with_indices`] of the last axes (length).
    #[track_caller]
    fn max_pool1d_with_indices(&self, how: Pool) -> (Self, Self) {
        let index = lift("max_pool1d_with_indices", [self.node()], |[x]| indices(&x, &how, Some(1)));
        (lift("max_pool1d_with_indices", [self.node()], |[x]| max_pool(&x, &how, Some(1))), index)
    }
    /// [`Pooling::max_pool_with_indices`] of the last axes (h, w).
    #[track_caller]
    fn max_pool2d_with_indices(&self, how: Pool) -> (Self, Self) {
        let index = lift("max_pool2d_with_indices", [self.node()], |[x]| indices(&x, &how, Some(2)));
        (lift("max_pool2d_with_indices", [self.node()], |[x]| max_pool(&x, &how, Some(2))), index)
    }
    /// [`Pooling::max_pool_with_indices`] of the last axes (d, h, w).
    #[track_caller]
    fn max_pool3d_with_indices(&self, how: Pool) -> (Self, Self) {
        let index = lift("max_pool3d_with_indices", [self.node()], |[x]| indices(&x, &how, Some(3)));
        (lift("max_pool3d_with_indices", [self.node()], |[x]| max_pool(&x, &how, Some(3))), index)
    }
    /// Mean of each window, as a float; half types are summed in f32 and rounded once.
    #[track_caller]
    fn avg_pool(&self, how: Pool) -> Self {
        lift("avg_pool", [self.node()], |[x]| avg_pool(&x, &how, None))
    }
    /// [`Pooling::avg_pool`] of the last axes (length).
    #[track_caller]
    fn avg_pool1d(&self, how: Pool) -> Self {
        lift("avg_pool1d", [self.node()], |[x]| avg_pool(&x, &how, Some(1)))
    }
    /// [`Pooling::avg_pool`] of the last axes (h, w).
    #[track_caller]
    fn avg_pool2d(&self, how: Pool) -> Self {
        lift("avg_pool2d", [self.node()], |[x]| avg_pool(&x, &how, Some(2)))
    }
    /// [`Pooling::avg_pool`] of the last axes (d, h, w).
    #[track_caller]
    fn avg_pool3d(&self, how: Pool) -> Self {
        lift("avg_pool3d", [self.node()], |[x]| avg_pool(&x, &how, Some(3)))
    }
    /// The mean of each of `size` windows that cover the axes evenly, one number for all axes or one for each:
    /// `adaptive_avg_pool2d(1)` is the mean of the whole image.
    #[track_caller]
    fn adaptive_avg_pool(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_avg_pool", [self.node()], |[x]| pooled(&x, size.into(), None, false))
    }
    /// [`Pooling::adaptive_avg_pool`] of the last axes (length).
    #[track_caller]
    fn adaptive_avg_pool1d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_avg_pool1d", [self.node()], |[x]| pooled(&x, size.into(), Some(1), false))
    }
    /// [`Pooling::adaptive_avg_pool`] of the last axes (h, w).
    #[track_caller]
    fn adaptive_avg_pool2d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_avg_pool2d", [self.node()], |[x]| pooled(&x, size.into(), Some(2), false))
    }
    /// [`Pooling::adaptive_avg_pool`] of the last axes (d, h, w).
    #[track_caller]
    fn adaptive_avg_pool3d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_avg_pool3d", [self.node()], |[x]| pooled(&x, size.into(), Some(3), false))
    }
    /// The largest element of each of `size` windows that cover the axes evenly.
    #[track_caller]
    fn adaptive_max_pool(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_max_pool", [self.node()], |[x]| pooled(&x, size.into(), None, true))
    }
    /// [`Pooling::adaptive_max_pool`] of the last axes (length).
    #[track_caller]
    fn adaptive_max_pool1d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_max_pool1d", [self.node()], |[x]| pooled(&x, size.into(), Some(1), true))
    }
    /// [`Pooling::adaptive_max_pool`] of the last axes (h, w).
    #[track_caller]
    fn adaptive_max_pool2d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_max_pool2d", [self.node()], |[x]| pooled(&x, size.into(), Some(2), true))
    }
    /// [`Pooling::adaptive_max_pool`] of the last axes (d, h, w).
    #[track_caller]
    fn adaptive_max_pool3d(&self, size: impl Into<PerAxis<usize>>) -> Self {
        lift("adaptive_max_pool3d", [self.node()], |[x]| pooled(&x, size.into(), Some(3), true))
    }
    /// The elements put back to the places that [`Pooling::max_pool_with_indices`] found, with zeros elsewhere. The
    /// result has `size` on the pooled axes or, with `None`, what one pooling with these options shrinks to the axes
    /// of `self`. Of several elements for one index the last stays; an index outside is dropped.
    ///
    /// Errors: an index of another shape or not of integers; a negative size.
    #[track_caller]
    fn max_unpool(&self, indices: &Self, how: Pool, size: Option<&[usize]>) -> Self {
        lift("max_unpool", [self.node(), indices.node()], |[x, i]| unpool(&x, &i, &how, (size, None)))
    }
    /// [`Pooling::max_unpool`] of the last axes (length).
    #[track_caller]
    fn max_unpool1d(&self, indices: &Self, how: Pool, size: Option<&[usize]>) -> Self {
        lift("max_unpool1d", [self.node(), indices.node()], |[x, i]| unpool(&x, &i, &how, (size, Some(1))))
    }
    /// [`Pooling::max_unpool`] of the last axes (h, w).
    #[track_caller]
    fn max_unpool2d(&self, indices: &Self, how: Pool, size: Option<&[usize]>) -> Self {
        lift("max_unpool2d", [self.node(), indices.node()], |[x, i]| unpool(&x, &i, &how, (size, Some(2))))
    }
    /// [`Pooling::max_unpool`] of the last axes (d, h, w).
    #[track_caller]
    fn max_unpool3d(&self, indices: &Self, how: Pool, size: Option<&[usize]>) -> Self {
        lift("max_unpool3d", [self.node(), indices.node()], |[x, i]| unpool(&x, &i, &how, (size, Some(3))))
    }
}

impl<V: Value> Pooling for V {}

/// The options for the axes that are pooled.
struct Plan {
    size: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    padding: Vec<(i64, i64)>,
    /// Axes in front.
    rest: usize,
}

/// How many of the last axes a window is over.
pub(crate) fn spatial(rank: usize, listed: Option<usize>, named: Option<usize>) -> Result<usize, Problem> {
    let axes = named.or(listed).unwrap_or(rank.saturating_sub(2));
    if axes == 0 || rank < axes {
        let wanted = if axes == 0 { 3 } else { axes };
        return Err(Problem::shape(format!("the rank is {rank}, not at least {wanted}")));
    }
    Ok(axes)
}

impl Plan {
    fn new(x: &Expr, how: &Pool, named: Option<usize>) -> Result<Plan, Problem> {
        let axes = spatial(x.rank(), how.size.count(), named)?;
        Ok(Plan {
            size: how.size.over(axes, "window sizes")?,
            stride: how.stride.unwrap_or(how.size).over(axes, "strides")?,
            dilation: how.dilation.over(axes, "dilation")?,
            padding: how.padding.over(axes, "padding")?,
            rest: x.rank() - axes,
        })
    }
    /// Counts for all axes of what is around the input: the padding, and what `ceil` adds at the end.
    fn around(&self, x: &Expr, ceil: bool) -> Vec<(i64, i64)> {
        let mut counts = vec![(0i64, 0i64); self.rest];
        for (k, (before, after)) in self.padding.iter().enumerate() {
            let reach = (count(self.size[k]) - 1).saturating_mul(count(self.dilation[k])).saturating_add(1);
            let mut after = *after;
            if let (true, Some(len)) = (ceil, x.dim(self.rest + k).as_int()) {
                let s = count(self.stride[k]).max(1);
                let space = len.saturating_add(*before).saturating_add(after).saturating_sub(reach);
                let steps = space.saturating_add(s - 1).div_euclid(s);
                // A window that would start in the padding at the end does not count.
                let is_outside = steps.saturating_mul(s) >= len.saturating_add(*before);
                let steps = if is_outside { steps - 1 } else { steps };
                after = after.saturating_add(steps.saturating_mul(s).saturating_sub(space).max(0));
            }
            counts.push((*before, after));
        }
        counts
    }
    fn windows(&self, x: &Expr) -> Result<Expr, Problem> {
        x.node().map_err(|fault| fault.problem.clone())?;
        windows(x, &self.size, &self.stride, &self.dilation)
    }
    /// The axes of window elements in what [`Plan::windows`] made of `x`.
    fn taps(&self, x: &Expr) -> Vec<usize> {
        (x.rank()..x.rank() + self.size.len()).collect()
    }
}

/// A count, clamped to just beyond what the checks of padding and windows accept.
fn count(n: usize) -> i64 {
    Dim::from(n).max().min(LARGEST + 1)
}

fn max_pool(x: &Expr, how: &Pool, named: Option<usize>) -> Result<Expr, Problem> {
    let plan = Plan::new(x, how, named)?;
    let w = plan.windows(&x.pad_value(&plan.around(x, how.ceil), lowest(x.scalar())))?;
    Ok(max(&w, &plan.taps(x))?.reshape(&w.shape()[..x.rank()]))
}

/// Among the elements that equal the maximum, the largest distance to the end of the plane; padding has none.
fn indices(x: &Expr, how: &Pool, named: Option<usize>) -> Result<Expr, Problem> {
    let plan = Plan::new(x, how, named)?;
    let around = plan.around(x, how.ceil);
    let w = plan.windows(&x.pad_value(&around, lowest(x.scalar())))?;
    let m = max(&w, &plan.taps(x))?;
    let hit = if w.scalar().is_float() { w.eq(&m).bitor(&w.ne(&w)) } else { w.eq(&m) };
    let plane = &x.shape()[plan.rest..];
    let len = numel(plane);
    let end = Expr::from(graph::cast(&len.uop(), position_type(len.max())));
    let far = end.sub(&Expr::from(UOp::iota(len.uop())).cast(end.scalar()));
    let shape = [vec![Dim::Int(1); plan.rest], plane.to_vec()].concat();
    let far = plan.windows(&far.reshape(shape).pad(&around))?;
    let far = hit.where_(&far, 0).cast(end.scalar());
    Ok(end.sub(&max(&far, &plan.taps(x))?.reshape(&w.shape()[..x.rank()])))
}

fn avg_pool(x: &Expr, how: &Pool, named: Option<usize>) -> Result<Expr, Problem> {
    let x = Expr::from(to_float(x.uop()));
    let t = x.scalar();
    let x = x.cast(t.accumulator());
    let plan = Plan::new(&x, how, named)?;
    let around = plan.around(&x, how.ceil);
    let w = plan.windows(&x.pad(&around))?;
    let counts = &w.shape()[..x.rank()];
    let total = sum(&w, &plan.taps(&x))?.reshape(counts);
    if how.count_padding && !how.ceil {
        return Ok(total.div(plan.size.iter().map(|n| *n as f64).product::<f64>()).cast(t));
    }
    let ones = Expr::from(graph::full(x.shape(), &UOp::constant(x.uop().dtype(), 1.0)));
    // The requested padding counts, the padding that `ceil` adds at the end does not.
    let mut explicit = vec![(0, 0); plan.rest];
    explicit.extend_from_slice(&plan.padding);
    let counted = if how.count_padding { ones.pad_value(&explicit, 1.0) } else { ones.pad(&explicit) };
    let rest: Vec<(i64, i64)> = around.iter().zip(&explicit).map(|(e, p)| (0, e.1.saturating_sub(p.1))).collect();
    let c = plan.windows(&counted.pad(&rest))?;
    Ok(total.div(&sum(&c, &plan.taps(&x))?.reshape(counts)).cast(t))
}

/// Size of an axis of `len` before one pooling.
fn unpooled(len: &Dim, plan: &Plan, k: usize) -> Result<usize, Problem> {
    let Some(len) = len.as_int() else { return Err(Problem::shape(format!("windows over the symbolic size {len}"))) };
    let reach = (count(plan.size[k]) - 1).saturating_mul(count(plan.dilation[k])).saturating_add(1);
    let (before, after) = plan.padding[k];
    let steps = (len - 1).saturating_mul(count(plan.stride[k]));
    let size = steps.saturating_add(reach).saturating_sub(before).saturating_sub(after);
    usize::try_from(size).map_err(|_| Problem::shape(format!("an output axis of {size}")))
}

fn unpool(x: &Expr, i: &Expr, how: &Pool, (size, named): (Option<&[usize]>, Option<usize>)) -> Result<Expr, Problem> {
    let plan = Plan::new(x, how, named)?;
    if i.shape() != x.shape() || !i.scalar().is_int() {
        return Err(Problem::shape(format!("an index of shape {} and type {}", Shown(i.shape()), i.scalar())));
    }
    let (front, plane) = x.shape().split_at(plan.rest);
    let out: Vec<usize> = match size {
        Some(size) if size.len() == plane.len() => size.to_vec(),
        Some(size) => return Err(Problem::argument(format!("{} sizes for {} axes", size.len(), plane.len()))),
        None => plane.iter().enumerate().map(|(k, len)| unpooled(len, &plan, k)).collect::<Result<_, _>>()?,
    };
    let out: Vec<Dim> = out.into_iter().map(Dim::from).collect();
    let (places, elements) = (numel(&out), numel(plane));
    // (front.., place, element): the element that is put last into each place, and nothing but it.
    let flat = |x: &Expr| x.reshape([front, &[Dim::Int(1), elements.clone()]].concat());
    let at = front.len();
    let t = position_type(places.max().max(elements.max()));
    let place = Expr::from(UOp::iota(places.uop())).cast(t).unsqueeze(-1);
    let number = Expr::from(UOp::iota(elements.uop())).cast(t);
    let i = super::index::widened(&flat(i), places.max());
    let mine = i.eq(&place).where_(&number.add(1), 0);
    mine.node().map_err(|fault| fault.problem.clone())?;
    let last = if elements.is(0) { mine } else { Expr::from(graph::reduce(mine.uop(), Op::Max, &[at + 1])) };
    let hit = last.eq(&number.add(1));
    let put = hit.where_(&flat(x), 0).cast(x.scalar());
    put.node().map_err(|fault| fault.problem.clone())?;
    let y = Expr::from(graph::reduce(put.uop(), Op::Add, &[at + 1]));
    Ok(y.reshape([front, &out].concat()))
}
