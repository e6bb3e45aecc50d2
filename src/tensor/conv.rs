//! Convolution over any number of axes, and its transpose: multiply and reduce over windows, which are movement alone.

use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::graph;
use super::movement::Movement;
use super::per_axis::PerAxis;
use super::product::multiplied;
use super::reduction::sum;
use super::value::{Expr, Value, lift};
use super::window::windows;
use crate::uop::{Dim, Op};

/// Options of a convolution: stride, padding, dilation and groups, over any number of axes.
///
/// `Conv::default()` moves by single steps and pads nothing. One number stands for all axes; a list has one for each,
/// first axis first:
///
/// ```
/// use doorbell::tensor::prelude::*;
/// let plain = Conv::padded(1).strided(2);
/// let asymmetric = Conv::padded([(1, 2), (0, 3)]).dilated([2, 1]).grouped(4);
/// # let _ = (plain, asymmetric);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conv {
    /// Channels are cut into this many groups, each with its own part of the weight.
    pub groups: usize,
    /// Elements that the window moves by along each axis.
    pub stride: PerAxis<usize>,
    /// Distance of the window's elements from each other along each axis.
    pub dilation: PerAxis<usize>,
    /// Zeros around the input.
    pub padding: Padding,
    /// Transposed convolutions only: how much longer the output is at its end.
    pub output_padding: PerAxis<usize>,
}

/// What a convolution puts around its input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    /// Zeros (before, after) each axis; negative counts cut.
    Counts(PerAxis<(i64, i64)>),
    /// As many zeros as keep the size of each axis; an odd one is put at the end. The stride must be 1.
    Same,
}

impl Default for Conv {
    fn default() -> Conv {
        Conv {
            groups: 1,
            stride: PerAxis::all(1),
            dilation: PerAxis::all(1),
            padding: Padding::Counts(PerAxis::all((0, 0))),
            output_padding: PerAxis::all(0),
        }
    }
}
impl Conv {
    /// With this padding: `1` on all sides, `[1, 2]` on both sides of each axis, `[(1, 2), (0, 3)]` before and after
    /// each axis. In a transposed convolution it is what the output loses on each side.
    pub fn padded(padding: impl Into<PerAxis<(i64, i64)>>) -> Conv {
        Conv { padding: Padding::Counts(padding.into()), ..Conv::default() }
    }
    /// The output has the input's size: torch's `padding="same"`.
    pub fn same() -> Conv {
        Conv { padding: Padding::Same, ..Conv::default() }
    }
    /// With this stride: one number for all axes, or one for each.
    pub fn strided(self, stride: impl Into<PerAxis<usize>>) -> Conv {
        Conv { stride: stride.into(), ..self }
    }
    /// With this dilation: one number for all axes, or one for each.
    pub fn dilated(self, dilation: impl Into<PerAxis<usize>>) -> Conv {
        Conv { dilation: dilation.into(), ..self }
    }
    /// With the channels in this many groups that do not see each other.
    pub fn grouped(self, groups: usize) -> Conv {
        Conv { groups, ..self }
    }
    /// With that much more at the end of each axis; for transposed convolutions.
    pub fn output_padded(self, more: impl Into<PerAxis<usize>>) -> Conv {
        Conv { output_padding: more.into(), ..self }
    }
}

/// Convolutions. The input is (n, channels, axes..) or, without a batch, (channels, axes..).
///
/// All have a result of the promoted type of input and weight; sums of half types are in f32 and rounded once.
pub trait Convolution: Value {
    /// Cross-correlation with weight (out, in / groups, window..) over as many axes as the weight has windows, plus
    /// `bias` (out,). This is tinygrad's `conv2d`, which also takes any number of axes.
    ///
    /// Errors: ranks, channels or groups that do not fit each other, a stride or dilation of 0, a window larger than
    /// the padded input, symbolic sizes of windowed axes.
    #[track_caller]
    fn conv(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv", (self, weight, bias), None, |x, w| conv(x, w, &how))
    }
    /// [`Convolution::conv`] of (n, in, length) with weight (out, in / groups, k).
    #[track_caller]
    fn conv1d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv1d", (self, weight, bias), Some(1), |x, w| conv(x, w, &how))
    }
    /// [`Convolution::conv`] of (n, in, h, w) with weight (out, in / groups, kh, kw).
    #[track_caller]
    fn conv2d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv2d", (self, weight, bias), Some(2), |x, w| conv(x, w, &how))
    }
    /// [`Convolution::conv`] of (n, in, d, h, w) with weight (out, in / groups, kd, kh, kw).
    #[track_caller]
    fn conv3d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv3d", (self, weight, bias), Some(3), |x, w| conv(x, w, &how))
    }
    /// Transposed convolution with weight (in, out / groups, window..), over any number of axes: each input element
    /// puts its window into the output. An axis of length n becomes
    /// `(n - 1) * stride + dilation * (k - 1) + 1 - padding + output_padding`.
    ///
    /// Errors as of [`Convolution::conv`], and where that length would be negative.
    #[track_caller]
    fn conv_transpose(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv_transpose", (self, weight, bias), None, |x, w| transposed(x, w, &how))
    }
    /// [`Convolution::conv_transpose`] of (n, in, length).
    #[track_caller]
    fn conv_transpose1d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv_transpose1d", (self, weight, bias), Some(1), |x, w| transposed(x, w, &how))
    }
    /// [`Convolution::conv_transpose`] of (n, in, h, w).
    #[track_caller]
    fn conv_transpose2d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv_transpose2d", (self, weight, bias), Some(2), |x, w| transposed(x, w, &how))
    }
    /// [`Convolution::conv_transpose`] of (n, in, d, h, w).
    #[track_caller]
    fn conv_transpose3d(&self, weight: &Self, bias: Option<&Self>, how: Conv) -> Self {
        convolved("conv_transpose3d", (self, weight, bias), Some(3), |x, w| transposed(x, w, &how))
    }
}

impl<V: Value> Convolution for V {}

/// Checks ranks, adds a batch axis where there is none, and the bias.
#[track_caller]
fn convolved<V: Value>(
    name: &'static str,
    (x, weight, bias): (&V, &V, Option<&V>),
    axes: Option<usize>,
    f: impl FnOnce(&Expr, &Expr) -> Result<Expr, Problem>,
) -> V {
    let y: V = lift(name, [x.node(), weight.node()], |[x, w]| {
        let found = w.rank().saturating_sub(2);
        if found == 0 || axes.is_some_and(|n| n != found) {
            let wanted = axes.map_or("at least 3".to_owned(), |n| (n + 2).to_string());
            return Err(Problem::shape(format!("a weight has rank {wanted} (channels twice, then a window)")));
        }
        match x.rank() {
            r if r == found + 2 => f(&x, &w),
            r if r == found + 1 => Ok(f(&x.unsqueeze(0), &w)?.squeeze(0)),
            _ => Err(Problem::shape("the input has the rank of the weight, or one less without a batch")),
        }
    });
    let Some(bias) = bias else { return y };
    lift(name, [y.node(), bias.node(), weight.node()], |[y, b, w]| {
        let axes = w.rank() - 2;
        let channels = y.dim(y.rank() - axes - 1);
        match b.shape() {
            [c] if *c == channels => {
                let mut shape = vec![Dim::Int(1); y.rank()];
                shape[y.rank() - axes - 1] = c.clone();
                Ok(y.add(&b.reshape(shape)))
            }
            other => Err(Problem::shape(format!("the bias has shape {}", Shown(other)))),
        }
    })
}

/// The sizes of some axes, which must be known.
fn known(dims: &[Dim]) -> Result<Vec<usize>, Problem> {
    let size = |d: &Dim| d.as_int().and_then(|n| usize::try_from(n).ok());
    let sizes: Option<Vec<usize>> = dims.iter().map(size).collect();
    sizes.ok_or_else(|| Problem::shape("channels and window must have known sizes"))
}

/// Counts before and after each axis for windows of these sizes.
fn sides(how: &Conv, window: &[usize], dilation: &[usize]) -> Result<Vec<(i64, i64)>, Problem> {
    match how.padding {
        Padding::Counts(counts) => counts.over(window.len(), "padding"),
        Padding::Same if how.stride.over(window.len(), "strides")?.iter().any(|s| *s != 1) => {
            Err(Problem::argument("same padding needs a stride of 1"))
        }
        Padding::Same => {
            let total = |(k, d): (&usize, &usize)| {
                let total = Dim::from(k.saturating_sub(1).saturating_mul(*d)).max();
                (total / 2, total - total / 2)
            };
            Ok(window.iter().zip(dilation).map(total).collect())
        }
    }
}

fn padded(x: &Expr, sides: &[(i64, i64)]) -> Result<Expr, Problem> {
    let mut counts = vec![(0, 0); x.rank() - sides.len()];
    counts.extend_from_slice(sides);
    let x = x.pad(&counts);
    x.node().map_err(|fault| fault.problem.clone())?;
    Ok(x)
}

fn conv(x: &Expr, w: &Expr, how: &Conv) -> Result<Expr, Problem> {
    let axes = w.rank() - 2;
    let sizes = known(w.shape())?;
    let (cout, cg, window) = (sizes[0], sizes[1], &sizes[2..]);
    let (cin, g) = (known(&x.shape()[1..2])?[0], how.groups);
    if g == 0 || cg.checked_mul(g) != Some(cin) || cout % g != 0 {
        return Err(Problem::shape(format!("{g} groups of {cg} do not make {cin} channels in and {cout} out")));
    }
    if how.output_padding.over(axes, "output padding")?.iter().any(|n| *n != 0) {
        return Err(Problem::argument("output padding belongs to transposed convolutions"));
    }
    let (stride, dilation) = (how.stride.over(axes, "strides")?, how.dilation.over(axes, "dilation")?);
    let p = windows(&padded(x, &sides(how, window, &dilation)?)?, window, &stride, &dilation)?;
    let n = &x.shape()[..1];
    let (counts, taps) = (&p.shape()[2..2 + axes], &p.shape()[2 + axes..]);
    let parts = |list: &[usize]| list.iter().map(|n| Dim::from(*n)).collect::<Vec<Dim>>();
    // image: (n, g, 1, cin/g, oh, ow, kh, kw) -> (n, g, cout/g, cin/g, kh, kw, oh, ow): the gradient of an image is
    // stored in this order before its windows are added up, along rows of the picture.
    let (first, last) = (4 + axes as i64, 4 + 2 * axes as i64);
    let image = p
        .reshape([n, &parts(&[g, 1, cg]), counts, taps].concat())
        .permute((0..4).chain(first..last).chain(4..first).collect::<Vec<i64>>())
        .expand([n, &parts(&[g, cout / g, cg]), taps, counts].concat());
    let weight = w.reshape([&parts(&[1, g, cout / g, cg]), taps, &parts(&vec![1; axes])].concat());
    let y = sum(&multiplied(&image, &weight), &(3..4 + axes).collect::<Vec<_>>())?;
    let t = graph::promoted(&[x.uop(), w.uop()]);
    Ok(y.reshape([n, &parts(&[cout]), counts].concat()).cast(t))
}

/// How one axis of a transposed convolution is computed: output element `b * phases + r` is the sum over `taps` of
/// input element `b - tap * step` times element `tap * phases + r` of the window. A stride makes as many phases, which
/// share their input elements, so that no product with an inserted zero is made. Only where windows are dilated too,
/// the input's elements are moved apart.
struct Axis {
    taps: usize,
    phases: usize,
    step: usize,
    /// Zeros inserted after each input element.
    apart: usize,
    /// Length of the output without padding.
    reach: i64,
}

impl Axis {
    fn new(len: i64, k: usize, stride: usize, dilation: usize) -> Result<Axis, Problem> {
        if k == 0 || stride == 0 || dilation == 0 {
            return Err(Problem::argument(format!(
                "window {k}, stride {stride}, dilation {dilation}: each is at least 1"
            )));
        }
        if len == 0 {
            return Err(Problem::shape("an axis without elements"));
        }
        let int = |n: usize| Dim::from(n).max();
        let spread = (len - 1).saturating_mul(int(stride));
        let reach = spread.saturating_add(int(k - 1).saturating_mul(int(dilation))).saturating_add(1);
        Ok(if dilation == 1 || k == 1 {
            Axis { taps: k.div_ceil(stride), phases: stride, step: 1, apart: 0, reach }
        } else {
            Axis { taps: k, phases: 1, step: dilation, apart: stride - 1, reach }
        })
    }
}

/// `x` with zeros inserted between the elements of an axis.
fn apart(x: &Expr, axis: usize, zeros: usize) -> Result<Expr, Problem> {
    if zeros == 0 {
        return Ok(x.clone());
    }
    let at = axis as i64;
    let wide = x.unsqueeze(at + 1);
    let mut counts = vec![(0, 0); wide.rank()];
    counts[axis + 1] = (0, Dim::from(zeros).max());
    let flat = wide.pad(&counts).flatten(at, at + 1);
    flat.node().map_err(|fault| fault.problem.clone())?;
    let all = Dim::from(zeros).max();
    Ok(flat.narrow(at, 0, flat.dim(axis).max() - all))
}

fn transposed(x: &Expr, w: &Expr, how: &Conv) -> Result<Expr, Problem> {
    let axes = w.rank() - 2;
    let sizes = known(w.shape())?;
    let (cin, cog, window) = (sizes[0], sizes[1], &sizes[2..]);
    let (channels, g) = (known(&x.shape()[1..2])?[0], how.groups);
    if g == 0 || channels != cin || cin % g != 0 {
        return Err(Problem::shape(format!("{g} groups, a weight for {cin} channels, {channels} channels in")));
    }
    let Padding::Counts(padding) = how.padding else {
        return Err(Problem::argument("same padding has no meaning in a transposed convolution"));
    };
    let (stride, dilation) = (how.stride.over(axes, "strides")?, how.dilation.over(axes, "dilation")?);
    let (padding, more) = (padding.over(axes, "padding")?, how.output_padding.over(axes, "output padding")?);
    let plan = (0..axes)
        .map(|k| match x.dim(2 + k).as_int() {
            Some(len) => Axis::new(len, window[k], stride[k], dilation[k]),
            None => Err(Problem::shape(format!("windows over the symbolic size {}", x.dim(2 + k)))),
        })
        .collect::<Result<Vec<Axis>, Problem>>()?;
    let y = by_phases(x, w, (g, cin / g, cog), &plan)?;
    // The output begins where its padding ends.
    let mut counts = vec![(0, 0); 2];
    for (k, a) in plan.iter().enumerate() {
        let ((before, after), more) = (padding[k], Dim::from(more[k]).max());
        let end = a.reach.saturating_add(more).saturating_sub(after);
        if end < before {
            return Err(Problem::shape(format!("padding of {before} and {after} leaves nothing of {}", a.reach)));
        }
        counts.push((before.saturating_neg(), end.saturating_sub(y.dim(2 + k).max())));
    }
    let t = graph::promoted(&[x.uop(), w.uop()]);
    Ok(y.pad(&counts).cast(t))
}

/// The whole output without padding: (n, channels out, blocks * phases..).
fn by_phases(x: &Expr, w: &Expr, (g, cg, cog): (usize, usize, usize), plan: &[Axis]) -> Result<Expr, Problem> {
    let axes = plan.len();
    let parts = |list: &[usize]| list.iter().map(|n| Dim::from(*n)).collect::<Vec<Dim>>();
    let (taps, steps): (Vec<usize>, Vec<usize>) = plan.iter().map(|a| (a.taps, a.step)).unzip();
    let mut image = x.clone();
    let (mut around, mut filled) = (Vec::new(), vec![(0, 0); 2]);
    for (k, a) in plan.iter().enumerate() {
        image = apart(&image, 2 + k, a.apart)?;
        let side = Dim::from((a.taps - 1).saturating_mul(a.step)).max();
        around.push((side, side));
        filled.push((0, Dim::from(a.taps.saturating_mul(a.phases)).max() - w.dim(2 + k).max()));
    }
    let p = windows(&padded(&image, &around)?, &taps, &vec![1; axes], &steps)?;
    let n = &x.shape()[..1];
    let counts = p.shape()[2..2 + axes].to_vec();
    // Blocks and phases of each axis are neighbours, so that they are one axis of the output.
    let pairs = |of: &dyn Fn(usize) -> [Dim; 2]| (0..axes).flat_map(of).collect::<Vec<Dim>>();
    let one = Dim::Int(1);
    let blocks = pairs(&|k| [counts[k].clone(), one.clone()]);
    let (first, last) = (4 + 2 * axes as i64, 4 + 3 * axes as i64);
    let image = p
        .reshape([n, &parts(&[g, 1, cg]), &blocks, &parts(&taps)].concat())
        .permute((0..4).chain(first..last).chain(4..first).collect::<Vec<i64>>());
    // weight: (g, cin/g, cout/g, taps and phases..) -> (1, g, cout/g, cin/g, taps.., 1 and phases..), last tap first.
    let both = pairs(&|k| [Dim::from(plan[k].taps), Dim::from(plan[k].phases)]);
    let order = [0, 2, 1].into_iter().chain((0..axes as i64).map(|k| 3 + 2 * k));
    let order = order.chain((0..axes as i64).map(|k| 4 + 2 * k)).collect::<Vec<i64>>();
    let phases = pairs(&|k| [one.clone(), Dim::from(plan[k].phases)]);
    let weight = w
        .pad(&filled)
        .reshape([parts(&[g, cg, cog]), both].concat())
        .flip((0..axes as i64).map(|k| 3 + 2 * k).collect::<Vec<i64>>())
        .permute(order)
        .reshape([parts(&[1, g, cog, cg]), parts(&taps), phases].concat());
    weight.node().map_err(|fault| fault.problem.clone())?;
    let y = sum(&multiplied(&image, &weight), &(3..4 + axes).collect::<Vec<_>>())?;
    let whole = (0..axes).map(|k| graph::dim_op(Op::Mul, &counts[k], &Dim::from(plan[k].phases)));
    Ok(y.reshape([n, &parts(&[g.saturating_mul(cog)]), &whole.collect::<Vec<Dim>>()].concat()))
}
