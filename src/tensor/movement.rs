//! Movement: the same elements in another arrangement. Nothing here copies; the scheduler turns it into index
//! arithmetic.

use super::args::{self, IntoAxes, IntoDim, IntoShape, IntoSplit};
use super::error::{Problem, Shown};
use super::graph;
use super::padding::IntoPadding;
use super::value::{Expr, Value, build, lift, lift_many};
use crate::uop::{ConstVal, DType, Dim, Op, UOp, numel};

/// Reshapes, views and rearrangements.
pub trait Movement: Value {
    /// The elements in row-major order under another shape; one -1 is inferred.
    #[track_caller]
    fn reshape(&self, shape: impl IntoShape) -> Self {
        let want = shape.into_shape();
        build("reshape", [self.node()], |[x]| Ok(graph::reshape(x, &inferred(x.shape(), want)?)))
    }
    /// As [`Movement::reshape`].
    #[track_caller]
    fn view(&self, shape: impl IntoShape) -> Self {
        self.reshape(shape)
    }
    /// Size-1 axes repeated to `shape`; missing axes are added in front; -1 keeps a size.
    #[track_caller]
    fn expand(&self, shape: impl IntoShape) -> Self {
        let mut want = shape.into_shape();
        build("expand", [self.node()], |[x]| {
            let missing = want.len().saturating_sub(x.shape().len());
            for (k, d) in want.iter_mut().enumerate().filter(|(_, d)| d.is(-1)) {
                let own = k.checked_sub(missing).and_then(|k| x.shape().get(k));
                *d = own.cloned().unwrap_or(Dim::Int(1));
            }
            check_sizes(&want)?;
            if graph::is_number(x) { Ok(graph::full(&want, x)) } else { graph::expand(x, &want) }
        })
    }
    /// Output axis k is input axis `order[k]`.
    #[track_caller]
    fn permute(&self, order: impl IntoAxes) -> Self {
        let order = order.into_axes();
        build("permute", [self.node()], |[x]| {
            let rank = x.shape().len();
            let list = order.as_deref().unwrap_or(&[]);
            let at = list.iter().map(|a| args::axis(*a, rank)).collect::<Result<Vec<_>, _>>()?;
            args::axes(Some(list), rank)?;
            if at.len() != rank {
                return Err(Problem::argument(format!("{} axes named for rank {rank}", at.len())));
            }
            Ok(graph::permute(x, &at))
        })
    }
    /// With two axes swapped.
    #[track_caller]
    fn transpose(&self, a: i64, b: i64) -> Self {
        build("transpose", [self.node()], |[x]| {
            let rank = x.shape().len();
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(args::axis(a, rank)?, args::axis(b, rank)?);
            Ok(graph::permute(x, &order))
        })
    }
    /// The last two axes swapped.
    #[track_caller]
    fn t(&self) -> Self {
        self.transpose(-2, -1)
    }
    /// These axes reversed.
    #[track_caller]
    fn flip(&self, axes: impl IntoAxes) -> Self {
        let list = axes.into_axes();
        build("flip", [self.node()], |[x]| Ok(graph::flip(x, &args::axes(list.as_deref(), x.shape().len())?)))
    }
    /// Zeros (or false) around; negative counts cut. Counts are pairs, first axis first:
    /// `pad(&[(0, 0), (top, bottom), (left, right)])`, or numbers as torch's `pad` has them, last axis first:
    /// `pad(&[left, right, top, bottom])`, where axes without numbers stay as they are.
    #[track_caller]
    fn pad(&self, counts: impl IntoPadding) -> Self {
        self.pad_value(counts, 0i64)
    }
    /// As [`Movement::pad`] with another value around.
    #[track_caller]
    fn pad_value(&self, counts: impl IntoPadding, value: impl Into<ConstVal>) -> Self {
        let value = value.into();
        lift("pad", [self.node()], |[x]| super::padding::constant(&x, &counts.into_padding(x.rank())?, value))
    }
    /// As [`Movement::pad`], with the padding taken from the inside by `mode`.
    #[track_caller]
    fn pad_mode(&self, counts: impl IntoPadding, mode: super::PadMode) -> Self {
        lift("pad_mode", [self.node()], |[x]| super::padding::pad(&x, &counts.into_padding(x.rank())?, mode))
    }
    /// Zeros after each axis up to this size; -1 keeps a size. A smaller size is an error.
    #[track_caller]
    fn pad_to(&self, shape: impl IntoShape) -> Self {
        let want = shape.into_shape();
        build("pad_to", [self.node()], |[x]| {
            let counts: Vec<(Dim, Dim)> = kept(x.shape(), want)?
                .iter()
                .zip(x.shape())
                .map(|(want, own)| (Dim::Int(0), graph::dim_op(Op::Sub, want, own)))
                .collect();
            if counts.iter().any(|(_, more)| more.uop().vmin() < 0) {
                return Err(Problem::shape(format!("{} has an axis that is longer", Shown(x.shape()))));
            }
            Ok(graph::pad(x, &counts))
        })
    }
    /// The first elements of each axis, this many; -1 keeps a size. A larger size is an error.
    #[track_caller]
    fn shrink_to(&self, shape: impl IntoShape) -> Self {
        let want = shape.into_shape();
        build("shrink_to", [self.node()], |[x]| {
            let keep: Vec<(Dim, Dim)> = kept(x.shape(), want)?.into_iter().map(|d| (Dim::Int(0), d)).collect();
            check_shrink(x.shape(), &keep)?;
            Ok(graph::shrink(x, &keep))
        })
    }
    /// Keeps `begin..end` of each axis.
    #[track_caller]
    fn shrink<A: IntoDim + Clone, B: IntoDim + Clone>(&self, keep: &[(A, B)]) -> Self {
        build("shrink", [self.node()], |[x]| {
            let keep: Vec<(Dim, Dim)> =
                keep.iter().map(|(a, b)| (a.clone().into_dim(), b.clone().into_dim())).collect();
            check_shrink(x.shape(), &keep)?;
            Ok(graph::shrink(x, &keep))
        })
    }
    /// Keeps `begin..begin + len` of one axis.
    #[track_caller]
    fn narrow(&self, axis: i64, begin: impl IntoDim, len: impl IntoDim) -> Self {
        let (begin, len) = (begin.into_dim(), len.into_dim());
        build("narrow", [self.node()], |[x]| {
            let at = args::axis(axis, x.shape().len())?;
            let mut keep: Vec<(Dim, Dim)> = x.shape().iter().map(|d| (Dim::Int(0), d.clone())).collect();
            keep[at] = (begin.clone(), graph::dim_op(Op::Add, &begin, &len));
            check_shrink(x.shape(), &keep)?;
            Ok(graph::shrink(x, &keep))
        })
    }
    /// Without this axis of size 1 (with `()`: without all such axes); an axis of another size stays.
    #[track_caller]
    fn squeeze(&self, axes: impl IntoAxes) -> Self {
        let list = axes.into_axes();
        build("squeeze", [self.node()], |[x]| {
            let gone = args::axes(list.as_deref(), x.shape().len())?;
            let left = x.shape().iter().enumerate().filter(|(k, d)| !(d.is(1) && gone.contains(k)));
            Ok(graph::reshape(x, &left.map(|(_, d)| d.clone()).collect::<Vec<_>>()))
        })
    }
    /// A new axis of size 1 at this position of the result.
    #[track_caller]
    fn unsqueeze(&self, axis: i64) -> Self {
        build("unsqueeze", [self.node()], |[x]| {
            let at = args::axis(axis, x.shape().len() + 1)?;
            let mut shape = x.shape().to_vec();
            shape.insert(at, Dim::Int(1));
            Ok(graph::reshape(x, &shape))
        })
    }
    /// Axes `start..=end` as one.
    #[track_caller]
    fn flatten(&self, start: i64, end: i64) -> Self {
        build("flatten", [self.node()], |[x]| {
            let shape = x.shape();
            if shape.is_empty() {
                return Ok(graph::reshape(x, &[Dim::Int(1)]));
            }
            let (a, b) = (args::axis(start, shape.len())?, args::axis(end, shape.len())?);
            if a > b {
                return Err(Problem::argument(format!("axis {a} comes after axis {b}")));
            }
            let new = [&shape[..a], &[numel(&shape[a..=b])], &shape[b + 1..]].concat();
            Ok(graph::reshape(x, &new))
        })
    }
    /// One axis as several; one -1 is inferred.
    #[track_caller]
    fn unflatten(&self, axis: i64, sizes: impl IntoShape) -> Self {
        let sizes = sizes.into_shape();
        build("unflatten", [self.node()], |[x]| {
            let at = args::axis(axis, x.shape().len())?;
            let parts = inferred(&x.shape()[at..=at], sizes)?;
            Ok(graph::reshape(x, &[&x.shape()[..at], &parts, &x.shape()[at + 1..]].concat()))
        })
    }
    /// The tensors one after another along an axis.
    #[track_caller]
    fn cat(list: &[&Self], axis: i64) -> Self {
        let nodes: Vec<_> = list.iter().map(|x| x.node()).collect();
        lift_many("cat", &nodes, |xs| super::join::cat(&xs, axis))
    }
    /// The tensors side by side on a new axis.
    #[track_caller]
    fn stack(list: &[&Self], axis: i64) -> Self {
        let nodes: Vec<_> = list.iter().map(|x| x.node()).collect();
        lift_many("stack", &nodes, |xs| {
            let xs: Vec<Expr> = xs.iter().map(|x| x.unsqueeze(axis)).collect();
            super::join::cat(&xs, axis)
        })
    }
    /// Pieces of these sizes along an axis; of one size: equal pieces, the last may be smaller.
    #[track_caller]
    fn split(&self, sizes: impl IntoSplit, axis: i64) -> Vec<Self> {
        let whole = self.node().ok().and_then(|u| {
            let at = args::axis(axis, u.shape().len()).ok()?;
            usize::try_from(u.shape()[at].as_int()?).ok()
        });
        let sizes = &sizes.into_sizes(whole)[..];
        let mut begin = 0usize;
        let mut out = Vec::with_capacity(sizes.len());
        let total = sizes.iter().fold(0usize, |sum, s| sum.saturating_add(*s));
        for size in sizes {
            out.push(build("split", [self.node()], |[x]| {
                let at = args::axis(axis, x.shape().len())?;
                if !x.shape()[at].is(i64::try_from(total).unwrap_or(-1)) {
                    return Err(Problem::argument(format!("the sizes {sizes:?} do not add up to {}", x.shape()[at])));
                }
                let mut keep: Vec<(Dim, Dim)> = x.shape().iter().map(|d| (Dim::Int(0), d.clone())).collect();
                keep[at] = (Dim::from(begin), Dim::from(begin.saturating_add(*size)));
                Ok(graph::shrink(x, &keep))
            }));
            begin = begin.saturating_add(*size);
        }
        out
    }
    /// At most `n` pieces of equal size along an axis (the last may be smaller).
    #[track_caller]
    fn chunk(&self, n: usize, axis: i64) -> Vec<Self> {
        let size = self.node().ok().and_then(|u| {
            let at = args::axis(axis, u.shape().len()).ok()?;
            usize::try_from(u.shape()[at].as_int()?).ok()
        });
        match size {
            Some(size) if n > 0 => {
                let step = size.div_ceil(n).max(1);
                let mut sizes = vec![step; size / step];
                sizes.extend((size % step != 0).then_some(size % step));
                self.split(if sizes.is_empty() { vec![0] } else { sizes }, axis)
            }
            _ => vec![build("chunk", [self.node()], |[x]| {
                args::axis(axis, x.shape().len())?;
                Err(Problem::argument(format!("no {n} chunks of an axis of shape {}", Shown(x.shape()))))
            })],
        }
    }
    /// The whole tensor `counts[k]` times along axis k; missing axes are added in front.
    #[track_caller]
    fn repeat(&self, counts: &[usize]) -> Self {
        lift("repeat", [self.node()], |[x]| super::join::repeat(&x, counts))
    }
    /// Each element `count` times in a row along an axis.
    #[track_caller]
    fn repeat_interleave(&self, count: usize, axis: i64) -> Self {
        lift("repeat_interleave", [self.node()], |[x]| {
            let at = args::axis(axis, x.rank())?;
            let mut shape = x.shape().to_vec();
            shape.insert(at + 1, Dim::from(count));
            let new = graph::dim_op(Op::Mul, &shape[at], &shape[at + 1]);
            let wide = x.unsqueeze(at as i64 + 1).expand(&shape);
            shape.remove(at + 1);
            shape[at] = new;
            Ok(wide.reshape(shape))
        })
    }
    /// Rotated by `shift` along an axis: elements shifted off the end come back at the front.
    #[track_caller]
    fn roll(&self, shift: i64, axis: i64) -> Self {
        lift("roll", [self.node()], |[x]| super::join::roll(&x, shift, axis))
    }
    /// Windows of `size` every `step` along an axis; the window is a new last axis.
    #[track_caller]
    fn unfold(&self, axis: i64, size: usize, step: usize) -> Self {
        lift("unfold", [self.node()], |[x]| {
            let at = args::axis(axis, x.rank())?;
            let mut order: Vec<i64> = (0..x.rank() as i64).filter(|k| *k != at as i64).collect();
            order.push(at as i64);
            let w = super::window::windows(&x.permute(order), &[size], &[step], &[1])?;
            // Now (rest.., count, size): the count moves back to its position.
            let n = w.rank() as i64;
            let mut back: Vec<i64> = (0..n - 2).collect();
            back.insert(at, n - 2);
            back.push(n - 1);
            Ok(w.permute(back))
        })
    }
    /// A square matrix with this vector on its diagonal.
    #[track_caller]
    fn diag(&self) -> Self {
        lift("diag", [self.node()], |[x]| super::join::diag(&x))
    }
    /// The main diagonal of the axes `a` and `b`, as a new last axis.
    #[track_caller]
    fn diagonal(&self, offset: i64, a: i64, b: i64) -> Self {
        lift("diagonal", [self.node()], |[x]| super::join::diagonal(&x, offset, a, b))
    }
    /// Coordinate grids of these vectors: result k varies along axis k only (`ij` indexing).
    #[track_caller]
    fn meshgrid(list: &[&Self]) -> Vec<Self> {
        let nodes: Vec<_> = list.iter().map(|x| x.node()).collect();
        let mut out = Vec::with_capacity(list.len());
        for k in 0..list.len() {
            out.push(lift_many("meshgrid", &nodes, |xs| super::join::grid(&xs, k)));
        }
        out
    }
}

impl<V: Value> Movement for V {}

/// Largest size of an axis, and largest count or offset of an op: far more than any memory holds, and small enough that
/// sums of them stay in range.
pub(crate) const LARGEST: i64 = 1 << 40;

/// Sizes must be WeakInt expressions that cannot be negative.
pub(crate) fn check_sizes(sizes: &[Dim]) -> Result<(), Problem> {
    for d in sizes {
        match d {
            Dim::Int(i) if *i < 0 => return Err(Problem::shape(format!("{} has a negative size", Shown(sizes)))),
            Dim::Int(i) if *i > LARGEST => {
                return Err(Problem::shape(format!("{} has a size beyond {LARGEST}", Shown(sizes))));
            }
            Dim::Sym(u) => {
                if let Err(fault) = Value::node(u) {
                    return Err(fault.problem.clone());
                }
                if u.dtype() != DType::INDEX || u.vmin() < 0 {
                    return Err(Problem::shape(format!("{d} is not a size")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// `want` with -1 replaced by the axis' own size.
fn kept(own: &[Dim], want: Vec<Dim>) -> Result<Vec<Dim>, Problem> {
    if want.len() != own.len() {
        return Err(Problem::argument(format!("{} sizes for rank {}", want.len(), own.len())));
    }
    let all: Vec<Dim> = want.into_iter().zip(own).map(|(w, o)| if w.is(-1) { o.clone() } else { w }).collect();
    check_sizes(&all)?;
    Ok(all)
}

/// `want` with its -1 replaced.
pub(crate) fn inferred(own: &[Dim], mut want: Vec<Dim>) -> Result<Vec<Dim>, Problem> {
    let bad = |want: &[Dim]| Problem::Reshape { from: own.to_vec(), to: want.to_vec() };
    let open: Vec<usize> = want.iter().enumerate().filter(|(_, d)| d.is(-1)).map(|(k, _)| k).collect();
    match open[..] {
        [] => {}
        [k] => {
            let others: Vec<Dim> = want.iter().enumerate().filter(|(j, _)| *j != k).map(|(_, d)| d.clone()).collect();
            want[k] = graph::quotient(own, &others).ok_or_else(|| bad(&want))?;
        }
        _ => return Err(bad(&want)),
    }
    check_sizes(&want)?;
    if graph::same_numel(own, &want) { Ok(want) } else { Err(bad(&want)) }
}

fn check_shrink(own: &[Dim], keep: &[(Dim, Dim)]) -> Result<(), Problem> {
    if keep.len() != own.len() {
        return Err(Problem::argument(format!("{} ranges for rank {}", keep.len(), own.len())));
    }
    for (k, ((a, b), size)) in keep.iter().zip(own).enumerate() {
        check_sizes(&[a.clone(), b.clone()])?;
        let len = graph::dim_op(Op::Sub, b, a);
        let rest = graph::dim_op(Op::Sub, size, b);
        let fits = |d: &Dim| d.uop().vmin() >= 0;
        // A symbolic end is trusted when it cannot be larger than the largest size.
        let below = fits(&rest) || matches!(b, Dim::Sym(_)) && b.max() <= size.max();
        if !fits(&len) || !below {
            return Err(Problem::shape(format!("{a}..{b} is not within axis {k} of size {size}")));
        }
    }
    Ok(())
}

/// Numbers for masks: element i of axis `axis` of `shape` is i, every other axis has size 1. (A faulty expression has
/// no axes; anything made of it is an error too, whatever this returns.)
pub(crate) fn positions(shape: &[Dim], axis: usize) -> Expr {
    let Some(size) = shape.get(axis) else { return Expr::from(UOp::int(0)) };
    let ones = shape.iter().enumerate().map(|(k, d)| if k == axis { d.clone() } else { Dim::Int(1) });
    Expr::from(graph::reshape(&UOp::iota(size.uop()), &ones.collect::<Vec<_>>()))
}
