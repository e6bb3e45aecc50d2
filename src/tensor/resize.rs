//! Interpolation: an image of another size, by the nearest elements, lines, cubic curves or means.
//!
//! Each element of the result is a weighted sum of a few elements along each axis. Which ones they are is arithmetic on
//! positions: integers wherever sizes alone decide, so that no rounding moves a sample.

use super::elementwise::{Elementwise, to_float};
use super::error::Problem;
use super::index::{Index, Indexing};
use super::movement::{LARGEST, Movement};
use super::per_axis::PerAxis;
use super::pool::spatial;
use super::reduction::sum;
use super::value::{Expr, Value, lift};
use crate::uop::{Dim, Scalar, UOp};

/// How [`Resizing::interpolate`] makes elements in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeMode {
    /// Element `floor(i * old / new)`.
    Nearest,
    /// The element whose middle is nearest: element `floor((i + 1/2) * old / new)`; torch's `nearest-exact`.
    NearestExact,
    /// Lines between two elements of each axis, over any number of axes.
    Linear,
    /// [`ResizeMode::Linear`] over two axes.
    Bilinear,
    /// [`ResizeMode::Linear`] over three axes.
    Trilinear,
    /// Cubic curves through four elements of each of two axes (a = -0.75).
    Bicubic,
    /// Means over the area of each new element: adaptive average pooling.
    Area,
}

/// What size an image becomes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// These sizes.
    Size(PerAxis<usize>),
    /// New size by old size; the new size is rounded down.
    Scale(PerAxis<f64>),
}

/// Options of [`Resizing::interpolate`].
///
/// ```
/// use doorbell::tensor::prelude::*;
/// let to = Resize::to([224, 224], ResizeMode::Bilinear);
/// let by = Resize::by(2.0, ResizeMode::Nearest);
/// let corners = Resize::by([1.5, 2.0], ResizeMode::Bicubic).align_corners();
/// # let _ = (to, by, corners);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Resize {
    /// The new size.
    pub target: Target,
    /// How new elements come of old ones.
    pub mode: ResizeMode,
    /// The middles of the first and last elements stay where they are, not the outer edges.
    pub align_corners: bool,
}
impl Resize {
    /// To these sizes: one number for all axes, or one for each.
    pub fn to(size: impl Into<PerAxis<usize>>, mode: ResizeMode) -> Resize {
        Resize { target: Target::Size(size.into()), mode, align_corners: false }
    }
    /// By these factors: one number for all axes, or one for each.
    pub fn by(scale: impl Into<PerAxis<f64>>, mode: ResizeMode) -> Resize {
        Resize { target: Target::Scale(scale.into()), mode, align_corners: false }
    }
    /// The middles of the first and last elements stay where they are. For lines and cubic curves.
    pub fn align_corners(self) -> Resize {
        Resize { align_corners: true, ..self }
    }
}

/// Images of other sizes.
pub trait Resizing: Value {
    /// The last axes in another size: as many as sizes or factors are listed or the mode says; else all but the first
    /// two (batch and channels). torch's `interpolate`, without antialiasing.
    ///
    /// The nearest elements are of any dtype. The other modes give floats; half types are summed in f32 and rounded
    /// once. Positions are exact, except those of a factor that does not give the new size exactly: they are computed
    /// in f32 as torch does (f64 for f64).
    ///
    /// Errors: fewer axes, an option for another number of axes, an old or new size of 0, a symbolic size, a factor
    /// that is not positive, aligned corners with the modes that have none.
    #[track_caller]
    fn interpolate(&self, how: Resize) -> Self {
        lift("interpolate", [self.node()], |[x]| interpolate(&x, &how))
    }
}

impl<V: Value> Resizing for V {}

/// One axis: its size, its new size, and the factor where the sizes do not say it exactly.
#[derive(Clone, Copy)]
struct Axis {
    at: usize,
    len: i64,
    out: i64,
    scale: Option<f64>,
}

fn interpolate(x: &Expr, how: &Resize) -> Result<Expr, Problem> {
    let named = match how.mode {
        ResizeMode::Bilinear | ResizeMode::Bicubic => Some(2),
        ResizeMode::Trilinear => Some(3),
        _ => None,
    };
    let listed = match how.target {
        Target::Size(s) => s.count(),
        Target::Scale(s) => s.count(),
    };
    let count = spatial(x.rank(), listed, named)?;
    let rest = x.rank() - count;
    let axes = (0..count).map(|k| axis(x, rest, k, (how.target, count))).collect::<Result<Vec<Axis>, Problem>>()?;
    let is_nearest = matches!(how.mode, ResizeMode::Nearest | ResizeMode::NearestExact);
    if how.align_corners && (is_nearest || how.mode == ResizeMode::Area) {
        return Err(Problem::argument(format!("{:?} has no corners to align", how.mode)));
    }
    if is_nearest {
        return Ok(axes.iter().fold(x.clone(), |x, a| nearest(&x, *a, how.mode == ResizeMode::NearestExact)));
    }
    if how.mode == ResizeMode::Area {
        let sizes: Vec<usize> = axes.iter().map(|a| usize::try_from(a.out).unwrap_or(usize::MAX)).collect();
        return super::adaptive::pooled(x, sizes.into(), Some(count), false);
    }
    weighted(x, &axes, how)
}

fn axis(x: &Expr, rest: usize, k: usize, (target, count): (Target, usize)) -> Result<Axis, Problem> {
    let at = rest + k;
    let Some(len) = x.dim(at).as_int() else {
        return Err(Problem::shape(format!("axis {at} has the symbolic size {}", x.dim(at))));
    };
    let (out, scale) = match target {
        Target::Size(size) => (Dim::from(size.over(count, "sizes")?[k]).max(), None),
        Target::Scale(scale) => {
            let scale = scale.over(count, "factors")?[k];
            if !(scale > 0.0 && scale.is_finite()) {
                return Err(Problem::argument(format!("a factor of {scale}")));
            }
            let exact = len as f64 * scale;
            let out = exact.floor();
            (out as i64, Some(scale).filter(|_| out != exact))
        }
    };
    let fits = len >= 1 && out >= 1 && len <= LARGEST && out.checked_mul(len).is_some_and(|n| n <= LARGEST);
    if fits { Ok(Axis { at, len, out, scale }) } else { Err(Problem::shape(format!("{out} elements of {len}"))) }
}

/// 0, 1 .. below `n`.
fn numbers(n: i64) -> Expr {
    Expr::from(UOp::iota(Dim::Int(n).uop()))
}

/// Elements of an axis at positions.
fn taken(x: &Expr, axis: usize, positions: &Expr) -> Expr {
    let mut index = vec![Index::ALL; axis];
    index.push(Index::Pick(positions.node()));
    x.get(index)
}

/// Longest axis whose positions are compared with torch's one by one.
const COMPARED: i64 = 1 << 20;

/// Old by new size as torch has it, in f32.
fn ratio(a: Axis) -> f32 {
    a.scale.map_or(a.len as f32 / a.out as f32, |s| (1.0 / s) as f32)
}

fn nearest(x: &Expr, a: Axis, is_exact: bool) -> Expr {
    let (Axis { at, len, out, .. }, half) = (a, if is_exact { 0.5 } else { 0.0 });
    if out == len && a.scale.is_none() {
        return x.clone();
    }
    let by_sizes = |i: i64| if is_exact { (2 * i + 1) * len / (2 * out) } else { i * len / out };
    let as_torch = |i: i64| match out {
        _ if !is_exact && out == len => i,
        _ if !is_exact && out == 2 * len => i / 2,
        _ => (((i as f32 + half) * ratio(a)).floor() as i64).min(len - 1),
    };
    // torch's positions are products in f32, which for a few sizes fall to the element before.
    let agree = if out > COMPARED { a.scale.is_none() } else { (0..out).all(|i| by_sizes(i) == as_torch(i)) };
    if !agree {
        let position = numbers(out).cast(Scalar::F32).add(half).mul(ratio(a)).cast(Scalar::I32);
        return taken(x, at, &position.minimum(len - 1));
    }
    let axis = at as i64;
    if out % len == 0 {
        return x.repeat_interleave(usize::try_from(out / len).unwrap_or(usize::MAX), axis);
    }
    if len % out == 0 {
        let step = len / out;
        let first = if is_exact { step / 2 } else { 0 };
        return x.unflatten(axis, [out, step]).narrow(axis + 1, first, 1).squeeze(axis + 1);
    }
    let i = numbers(out);
    let position = if is_exact { i.mul(2).add(1).mul(len).div_floor(2 * out) } else { i.mul(len).div_floor(out) };
    taken(x, at, &position)
}

/// Where the elements of a result lie: below each the element before it, and how far it is beyond that (in `t`).
fn places(a: Axis, corners: bool, clamped: bool, t: Scalar) -> (Expr, Expr) {
    let (Axis { len, out, .. }, i) = (a, numbers(a.out));
    if let (false, Some(_)) = (corners, a.scale) {
        let ratio = a.scale.map_or(1.0, |s| if t == Scalar::F64 { 1.0 / s } else { f64::from(ratio(a)) });
        let position = i.cast(t).add(0.5).mul(ratio).sub(0.5);
        let position = if clamped { position.maximum(0).minimum(len - 1) } else { position };
        let before = position.floor();
        return (before.cast(Scalar::I32), position.sub(&before));
    }
    let (position, unit) = match corners {
        true if out > 1 => (i.mul(len - 1), out - 1),
        true => (i.mul(0), 1),
        false => (i.mul(2).add(1).mul(len).sub(out), 2 * out),
    };
    let position = if clamped { position.maximum(0) } else { position };
    (position.div_floor(unit), position.modulo(unit).cast(t).div(unit as f64))
}

/// The cubic curve's weights of the elements -1, 0, 1 and 2 (`k` less 1) for a place at `t` between 0 and 1.
fn cubic(t: &Expr, k: &Expr) -> Expr {
    const A: f64 = -0.75;
    let from = t.add(1.0).sub(&k.cast(t.scalar()));
    let d = from.lt(0).where_(&from.neg(), &from);
    let near = d.mul(A + 2.0).sub(A + 3.0).mul(&d).mul(&d).add(1.0);
    let far = d.mul(A).sub(5.0 * A).mul(&d).add(8.0 * A).mul(&d).sub(4.0 * A);
    k.eq(1).bitor(&k.eq(2)).where_(&near, &far)
}

/// Lines where the new size is `factor` times the old one: each old element becomes `factor` new ones, which lie
/// between its neighbours. This is movement and selection alone: one kernel for all axes, and a gradient that costs no
/// more than what it passes through.
fn stretched(x: &Expr, a: Axis, factor: i64) -> Result<Expr, Problem> {
    let at = a.at as i64;
    let mut around = vec![(0, 0); x.rank()];
    around[a.at] = (1, 1);
    let wide = super::padding::pad(x, &around, super::PadMode::Replicate)?.unsqueeze(at + 1);
    let [left, own, right] = [0, 1, 2].map(|k| wide.narrow(at, k, a.len));
    // New element r of each lies (2 r + 1 - factor) / (2 factor) after the middle of its old element.
    let trailing = vec![Dim::Int(1); x.rank() - 1 - a.at];
    let r = numbers(factor).mul(2).add(1 - factor).reshape([&[Dim::Int(factor)], trailing.as_slice()].concat());
    let is_left = r.lt(0);
    let offset = r.cast(x.scalar()).div(2.0 * factor as f64);
    let t = is_left.where_(&offset.add(1.0), &offset);
    let (low, high) = (is_left.where_(&left, &own), is_left.where_(&own, &right));
    let y = low.mul(&t.neg().add(1.0)).add(&high.mul(&t));
    Ok(y.flatten(at, at + 1))
}

/// One axis after another, the last one first: the weighted sum of the taps of each new element.
fn weighted(x: &Expr, axes: &[Axis], how: &Resize) -> Result<Expr, Problem> {
    let x = Expr::from(to_float(x.uop()));
    let mut y = x.cast(x.scalar().accumulator());
    let is_cubic = how.mode == ResizeMode::Bicubic;
    let taps = numbers(if is_cubic { 4 } else { 2 }).unsqueeze(0);
    for a in axes.iter().rev().filter(|a| a.out != a.len || a.scale.is_some()) {
        if !is_cubic && !how.align_corners && a.scale.is_none() && a.out % a.len == 0 {
            y = stretched(&y, *a, a.out / a.len)?;
            continue;
        }
        let (before, t) = places(*a, how.align_corners, !is_cubic, y.scalar());
        let (before, t) = (before.unsqueeze(1), t.unsqueeze(1));
        let (element, weight) = if is_cubic {
            (before.add(&taps).sub(1).maximum(0), cubic(&t, &taps))
        } else {
            (before.add(&taps), taps.eq(0).where_(&t.neg().add(1.0), &t))
        };
        let picked = taken(&y, a.at, &element.minimum(a.len - 1));
        picked.node().map_err(|fault| fault.problem.clone())?;
        let trailing = vec![Dim::Int(1); x.rank() - 1 - a.at];
        let weight = weight.reshape([weight.shape(), &trailing].concat());
        y = sum(&picked.mul(&weight), &[a.at + 1])?.squeeze(a.at as i64 + 1);
    }
    Ok(y.cast(x.scalar()))
}
