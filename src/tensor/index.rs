//! Indexing: integers, ranges with steps, new axes, an ellipsis, and integer Tensors; reading and storing.
//!
//! A negative integer counts from the end. Ranges are cut to the axis as in Python. An index Tensor picks elements of
//! its axis: a negative element counts from the end, one outside reads 0, whatever integer type it has. Several index
//! Tensors broadcast together; their axes are at the position of the first if they are neighbours, else in front.
//! Reading by a Tensor is a sum over `where(iota == index, x, 0)`, which the scheduler turns into an indexed load.

use super::assign::{fitted, is_memory};
use super::elementwise::Elementwise;
use super::error::{Fault, Problem, Shown};
use super::gradient::back_through_movement;
use super::graph;
use super::handle::Tensor;
use super::movement::Movement;
use super::value::{Expr, Value, lift_many};
use crate::uop::{Arg, Dim, Op, Scalar, UOp};

/// What to take of an axis (or where to put a new one).
#[derive(Clone, Debug)]
pub enum Index {
    /// One element; the axis is removed.
    At(Dim),
    /// `start..stop` by `step`; `None` is the end that the step's direction starts from or runs to.
    Slice { start: Option<Dim>, stop: Option<Dim>, step: i64 },
    /// A new axis of size 1.
    NewAxis,
    /// As many whole axes as are left over.
    Ellipsis,
    /// The elements at the positions in an integer Tensor.
    Pick(Result<UOp, Fault>),
}

/// `..` for one axis in an index tuple is [`Index::ALL`], also written as Rust's `..`.
impl Index {
    pub const ALL: Index = Index::Slice { start: None, stop: None, step: 1 };
}
/// `start..stop` by `step`, Python's `start:stop:step`.
pub fn slice(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>, step: i64) -> Index {
    Index::Slice { start: start.into().map(Dim::Int), stop: stop.into().map(Dim::Int), step }
}

macro_rules! index_numbers {
    ($($t:ty)*) => {$(
        impl From<$t> for Index {
            fn from(i: $t) -> Index { Index::At(super::IntoDim::into_dim(i)) }
        }
        impl From<std::ops::Range<$t>> for Index {
            fn from(r: std::ops::Range<$t>) -> Index {
                let [start, stop] = [r.start, r.end].map(|i| Some(super::IntoDim::into_dim(i)));
                Index::Slice { start, stop, step: 1 }
            }
        }
        impl From<std::ops::RangeFrom<$t>> for Index {
            fn from(r: std::ops::RangeFrom<$t>) -> Index {
                Index::Slice { start: Some(super::IntoDim::into_dim(r.start)), stop: None, step: 1 }
            }
        }
        impl From<std::ops::RangeTo<$t>> for Index {
            fn from(r: std::ops::RangeTo<$t>) -> Index {
                Index::Slice { start: None, stop: Some(super::IntoDim::into_dim(r.end)), step: 1 }
            }
        }
    )*};
}
index_numbers! { i32 i64 usize Dim UOp }
impl From<std::ops::RangeFull> for Index {
    fn from(_: std::ops::RangeFull) -> Index {
        Index::ALL
    }
}
impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Pick(t.node())
    }
}

/// A list of indices: one, a tuple of up to six, or a slice of [`Index`].
pub trait IntoIndices {
    fn into_indices(self) -> Vec<Index>;
}
impl<I: Into<Index>> IntoIndices for I {
    fn into_indices(self) -> Vec<Index> {
        vec![self.into()]
    }
}
impl IntoIndices for &[Index] {
    fn into_indices(self) -> Vec<Index> {
        self.to_vec()
    }
}
impl IntoIndices for Vec<Index> {
    fn into_indices(self) -> Vec<Index> {
        self
    }
}
macro_rules! index_tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Into<Index>),*> IntoIndices for ($($name,)*) {
            #[allow(non_snake_case)]
            fn into_indices(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}
index_tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// Reading by index.
pub trait Indexing: Value {
    #[track_caller]
    fn get(&self, index: impl IntoIndices) -> Self {
        let index = index.into_indices();
        let sources = sources(self.node(), &index);
        lift_many("get", &sources, |nodes| {
            let (x, picks) = basic(&nodes[0], &index, &nodes[1..])?;
            if picks.is_empty() { Ok(x) } else { pick(&x, picks) }
        })
    }
    /// Elements of one axis at the positions in an integer tensor of the same rank: `out[i][j] = self[index[i][j]][j]`
    /// for axis 0. The other axes of `index` may be shorter than those of `self`.
    #[track_caller]
    fn gather(&self, axis: i64, index: &Self) -> Self {
        lift_many("gather", &[self.node(), index.node()], |nodes| {
            let (x, i) = (&nodes[0], &nodes[1]);
            let at = super::args::axis(axis, x.rank())?;
            if i.rank() != x.rank() || !i.scalar().is_int() {
                return Err(Problem::shape(format!("an index of shape {} and type {}", Shown(i.shape()), i.scalar())));
            }
            let keep: Vec<(Dim, Dim)> =
                (0..x.rank()).map(|k| (Dim::Int(0), if k == at { x.dim(k) } else { i.dim(k) })).collect();
            let x = x.shrink(&keep);
            // (.., picked, element, ..)
            let (wide, i) = (x.unsqueeze(at as i64), i.unsqueeze(at as i64 + 1));
            let hit = positions_at(wide.shape(), at + 1).eq(&wrapped(&i, &x.dim(at), x.dim(at).max()));
            Ok(chosen(&hit, &wide, at + 1))
        })
    }
}

impl<V: Value> Indexing for V {}

fn sources(x: Result<UOp, Fault>, index: &[Index]) -> Vec<Result<UOp, Fault>> {
    let picks = index.iter().filter_map(|i| if let Index::Pick(node) = i { Some(node.clone()) } else { None });
    std::iter::once(x).chain(picks).collect()
}

fn positions_at(shape: &[Dim], axis: usize) -> Expr {
    super::movement::positions(shape, axis)
}

/// `i` in an integer type that holds its values and the numbers up to `count` too: neither comparing with positions nor
/// counting on wraps. (Beyond i64, a u64 turns negative, which is no position either.)
pub(super) fn widened(i: &Expr, count: i64) -> Expr {
    let is_narrow = matches!(i.scalar(), Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 | Scalar::I32);
    match i.scalar() {
        Scalar::WeakInt => i.clone(),
        _ => i.cast(position_type(if is_narrow { count } else { i64::MAX })),
    }
}

/// The type of positions among `count` elements: i32 where that is enough.
pub(super) fn position_type(count: i64) -> Scalar {
    if count <= i64::from(i32::MAX) { Scalar::I32 } else { Scalar::I64 }
}

/// `i` with negative elements counted from the end of an axis of `size`, in a type that counts to `count`.
fn wrapped(i: &Expr, size: &Dim, count: i64) -> Expr {
    let wide = widened(i, count);
    if i.scalar().is_unsigned() {
        return wide;
    }
    wide.lt(0).where_(&wide.add(&Expr::from(size.uop())), &wide)
}

/// Sum over an axis of the one element where `hit` is true.
fn chosen(hit: &Expr, x: &Expr, axis: usize) -> Expr {
    let t = x.scalar();
    let flat = if t == Scalar::Bool { x.cast(Scalar::U8) } else { x.clone() };
    let only = hit.where_(&flat, 0).cast(flat.scalar());
    let sum = Expr::from(graph::reduce(only.uop(), Op::Add, &[axis]));
    sum.squeeze(axis as i64).cast(t)
}

/// Applies everything but index Tensors; returns those with their axes.
fn basic(x: &Expr, index: &[Index], picks: &[Expr]) -> Result<(Expr, Vec<(usize, Expr)>), Problem> {
    let consumed = index.iter().filter(|i| !matches!(i, Index::NewAxis | Index::Ellipsis)).count();
    let dots = index.iter().filter(|i| matches!(i, Index::Ellipsis)).count();
    if dots > 1 || consumed > x.rank() {
        return Err(Problem::argument(format!("{} indices for rank {}", index.len(), x.rank())));
    }
    let mut list: Vec<Index> = index.to_vec();
    if dots == 0 {
        list.push(Index::Ellipsis);
    }
    let (mut out, mut axis, mut picked) = (x.clone(), 0i64, Vec::new());
    let mut picks = picks.iter();
    for i in list {
        match i {
            Index::Ellipsis => axis += (x.rank() - consumed) as i64,
            Index::NewAxis => {
                out = out.unsqueeze(axis);
                axis += 1;
            }
            Index::At(at) => out = at_index(&out, axis as usize, &at)?,
            Index::Slice { start, stop, step } => {
                out = sliced(&out, axis as usize, (start, stop), step)?;
                axis += 1;
            }
            Index::Pick(_) => {
                let Some(p) = picks.next().filter(|p| p.scalar().is_int()) else {
                    return Err(Problem::dtype("an index Tensor holds integers"));
                };
                picked.push((axis as usize, p.clone()));
                axis += 1;
            }
        }
        out.node().map_err(|fault| fault.problem.clone())?;
    }
    Ok((out, picked))
}

fn at_index(x: &Expr, axis: usize, at: &Dim) -> Result<Expr, Problem> {
    let size = x.dim(axis);
    let at = match (at, &size) {
        (Dim::Int(i), Dim::Int(n)) if *i >= -n && i < n => Dim::Int(i.rem_euclid(*n)),
        (Dim::Int(i), Dim::Int(_)) => return Err(Problem::Index { index: *i, axis, size }),
        (Dim::Int(i), _) if *i < 0 => graph::dim_op(Op::Add, &size, &Dim::Int(*i)),
        _ => at.clone(),
    };
    Ok(x.narrow(axis as i64, &at, 1i64).squeeze(axis as i64))
}

fn sliced(x: &Expr, axis: usize, (start, stop): (Option<Dim>, Option<Dim>), step: i64) -> Result<Expr, Problem> {
    let size = x.dim(axis);
    let known = |d: &Option<Dim>| d.as_ref().is_none_or(|d| d.as_int().is_some());
    let n = match size.as_int() {
        Some(n) if known(&start) && known(&stop) => n,
        _ if step == 1 => {
            let (a, b) = (start.unwrap_or(Dim::Int(0)), stop.unwrap_or(size));
            return Ok(x.narrow(axis as i64, &a, graph::dim_op(Op::Sub, &b, &a)));
        }
        _ => return Err(Problem::argument(format!("a step of {step} over symbolic bounds"))),
    };
    if step == 0 {
        return Err(Problem::argument("a step of 0"));
    }
    let place = |d: Option<Dim>, low: i64, high: i64, default: i64| match d.and_then(|d| d.as_int()) {
        Some(i) => (if i < 0 { i + n } else { i }).clamp(low, high),
        None => default,
    };
    let (a, b) = if step > 0 {
        (place(start, 0, n, 0), place(stop, 0, n, n))
    } else {
        // Backward from `a` down to before `b` is forward from b + 1 to a + 1, reversed.
        let (a, b) = (place(start, -1, n - 1, n - 1), place(stop, -1, n - 1, -1));
        (b + 1, a + 1)
    };
    let len = (b - a).max(0);
    let part = x.narrow(axis as i64, a.min(n), len);
    let part = if step < 0 { part.flip(axis as i64) } else { part };
    Ok(every(&part, axis, len, step.unsigned_abs()))
}

/// Every `step`-th element of an axis of `len`.
fn every(x: &Expr, axis: usize, len: i64, step: u64) -> Expr {
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    if step == 1 || len <= 1 {
        return x.clone();
    }
    if step >= len {
        return x.narrow(axis as i64, 0, 1);
    }
    let count = (len - 1) / step + 1;
    let mut counts = vec![(0, 0); x.rank()];
    counts[axis] = (0, count * step - len);
    let rows = x.pad(&counts).unflatten(axis as i64, [count, step]);
    rows.narrow(axis as i64 + 1, 0, 1).squeeze(axis as i64 + 1)
}

/// The picked axes as one neighbouring block: axes in order, position and number of the block.
fn block(picks: &[(usize, Expr)], rank: usize) -> (Vec<i64>, usize) {
    let axes: Vec<usize> = picks.iter().map(|p| p.0).collect();
    let neighbours = axes.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if neighbours { axes[0] } else { 0 };
    let mut order: Vec<i64> = (0..rank).filter(|k| !axes.contains(k)).map(|k| k as i64).collect();
    order.splice(at..at, axes.iter().map(|a| *a as i64));
    (order, at)
}

/// One index per picked element into the flattened block; -1 where any part is outside.
fn linear(picks: &[(usize, Expr)], x: &Expr) -> Result<Expr, Problem> {
    let mut whole: Option<Expr> = None;
    let mut inside: Option<Expr> = None;
    let count = picks.iter().fold(1i64, |n, (axis, _)| n.saturating_mul(x.dim(*axis).max()));
    for (axis, i) in picks {
        let size = x.dim(*axis);
        let (i, n) = (wrapped(i, &size, count), Expr::from(size.uop()));
        let ok = i.ge(0).bitand(&i.lt(&n));
        whole = Some(whole.map_or_else(|| i.clone(), |w| w.mul(&n).add(&i)));
        inside = Some(inside.map_or_else(|| ok.clone(), |x| x.bitand(&ok)));
    }
    let (Some(whole), Some(inside)) = (whole, inside) else { return Err(Problem::argument("no index")) };
    let out = if picks.len() == 1 { whole } else { inside.where_(&whole, -1) };
    out.node().map_err(|fault| fault.problem.clone())?;
    Ok(out)
}

fn pick(x: &Expr, picks: Vec<(usize, Expr)>) -> Result<Expr, Problem> {
    let i = linear(&picks, x)?;
    let (order, at) = block(&picks, x.rank());
    let x = x.permute(order);
    let flat = if picks.len() > 1 { x.flatten(at as i64, (at + picks.len() - 1) as i64) } else { x };
    // flat: (pre.., S, post..); hits: (B.., S, 1..); their product: (pre.., B.., S, post..).
    let (pre, post) = (flat.shape()[..at].to_vec(), flat.shape()[at + 1..].to_vec());
    let s = flat.dim(at);
    let ones = |n: usize| vec![Dim::Int(1); n];
    let wide = flat.reshape([pre.clone(), ones(i.rank()), vec![s.clone()], post.clone()].concat());
    let axis = pre.len() + i.rank();
    let i = i.reshape([ones(pre.len()), i.shape().to_vec(), ones(1 + post.len())].concat());
    let hit = positions_at(wide.shape(), axis).eq(&i);
    Ok(chosen(&hit, &wide, axis))
}

/// `x` with `v` at the picked places; the last of several writes to one place stays.
fn put(x: &Expr, picks: Vec<(usize, Expr)>, v: &Expr) -> Result<Expr, Problem> {
    let i = linear(&picks, x)?;
    let (order, at) = block(&picks, x.rank());
    let moved = x.permute(order.clone());
    let flat = if picks.len() > 1 { moved.flatten(at as i64, (at + picks.len() - 1) as i64) } else { moved.clone() };
    let (pre, post) = (flat.shape()[..at].to_vec(), flat.shape()[at + 1..].to_vec());
    let want = [pre.clone(), i.shape().to_vec(), post.clone()].concat();
    let target = Expr::from(graph::full(&want, &UOp::constant(x.uop().dtype(), 0i64)));
    let count = crate::uop::numel(i.shape());
    let v = Expr::from(fitted(target.uop(), v.uop())?).reshape([pre.clone(), vec![count.clone()], post].concat());
    // Which write reaches each place: the largest number of those that name it, 0 for none.
    let (s, i) = (flat.dim(at), i.reshape([&count]));
    let square = [s, count.clone()];
    let hit = positions_at(&square, 0).eq(&i.unsqueeze(0));
    let number = positions_at(&square, 1).add(1);
    let numbers = hit.where_(&number, 0).cast(position_type(count.max()));
    let last = Expr::from(graph::reduce(numbers.uop(), Op::Max, &[1])).squeeze(1);
    let written = pick(&v, vec![(at, last.sub(1))])?;
    let mut shape = vec![Dim::Int(1); flat.rank()];
    shape[at] = flat.dim(at);
    // Index -1 wraps to the last write and is masked here.
    let out = last.gt(0).reshape(shape).where_(&written, &flat).reshape(moved.shape());
    let mut back = vec![0i64; order.len()];
    for (k, a) in order.iter().enumerate() {
        back[*a as usize] = k as i64;
    }
    Ok(out.permute(back))
}

impl Tensor {
    /// Stores `value` (broadcast) at these indices. Where this Tensor is memory and the indices make a view of it, only
    /// the view is written; otherwise the Tensor stands for a new value.
    #[track_caller]
    pub fn set(&self, index: impl IntoIndices, value: &Tensor) -> &Tensor {
        let index = index.into_indices();
        let mut all = sources(self.node(), &index);
        all.push(value.node());
        let made: Tensor = lift_many("set", &all, |nodes| {
            let (x, v) = (&nodes[0], &nodes[nodes.len() - 1]);
            let (view, picks) = basic(x, &index, &nodes[1..nodes.len() - 1])?;
            if picks.is_empty() {
                let v = fitted(view.uop(), v.uop())?;
                if is_memory(view.uop()) {
                    let store = UOp::new(Op::Assign, v.dtype(), [view.uop().clone(), v], Arg::None);
                    return Ok(Expr::from(x.uop().after(&[store])));
                }
                return overlaid(x, &view, v);
            }
            let part = put(&view, picks, v)?;
            if part.shape() == x.shape() && view.uop() == x.uop() {
                return Ok(part);
            }
            overlaid(x, &view, part.uop().clone())
        });
        // New content of memory stays in that memory.
        let in_place = self.node().is_ok_and(|u| is_memory(&u)) && made.node().is_ok_and(|u| u.op() != Op::After);
        if in_place { self.assign(&made) } else { self.set_made(&made) }
    }
    fn set_made(&self, made: &Tensor) -> &Tensor {
        self.set_node(made.node());
        self
    }
}

/// `x` with the elements that `view` (movement of x) shows replaced by `v`.
fn overlaid(x: &Expr, view: &Expr, v: UOp) -> Result<Expr, Problem> {
    let shown = graph::full(v.shape(), &UOp::bool(true));
    let v = back_through_movement(view.uop(), x.uop(), Expr::from(v))?;
    let shown = back_through_movement(view.uop(), x.uop(), Expr::from(shown))?;
    Ok(shown.where_(&v, x))
}
