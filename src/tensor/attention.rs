//! Scaled dot product attention: a product, a softmax and another product, which one kernel may compute, and gradients
//! that two kernels may compute.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::gradient::back_through_movement;
use super::math::Math;
use super::movement::Movement;
use super::norm::triangle_mask;
use super::product::{Product, matmul};
use super::reduction::{Reduction, accumulated, max, sum};
use super::value::{Expr, Value, lift, lift_many};
use crate::uop::{Arg, Attention, AttentionPart, Dim, Op, Scalar, Srcs, UOp, USet};
use std::f64::consts::LOG2_E;

/// See `Composite::attention`.
#[track_caller]
pub(super) fn attention<V: Value>(query: &V, key: &V, value: &V, mask: Option<&V>, causal: bool) -> V {
    let whole = scores(query, key, mask, causal).softmax(-1).matmul(value);
    let read = [Some(&whole), Some(query), Some(key), Some(value), mask];
    let nodes: Vec<_> = read.into_iter().flatten().map(Value::node).collect();
    lift_many("attention", &nodes, |read| {
        let [whole, q, k, v, ..] = &read[..] else { return Ok(read[0].clone()) };
        if !is_one_kernel([q, k, v].map(Expr::uop)) {
            return Ok(whole.clone());
        }
        let read: Vec<UOp> = read[1..].iter().map(|x| x.uop().clone()).collect();
        Ok(fused(Attention { part: AttentionPart::Result, causal }, [whole, whole], &read))
    })
}

/// The scores of all keys for each query.
#[track_caller]
fn scores<V: Value>(query: &V, key: &V, mask: Option<&V>, causal: bool) -> V {
    let scores: V = lift("attention", [query.node(), key.node()], |[q, k]| {
        let s = q.matmul(&k.t()).div(&root_of_depth(&q)).cast(q.scalar());
        if !causal || s.node().is_err() {
            return Ok(s);
        }
        triangle_mask(&s, |row, column| row.ge(column)).map(|keep| keep.where_(&s, f64::NEG_INFINITY))
    });
    match mask {
        Some(m) => lift("attention", [scores.node(), m.node()], |[s, m]| {
            Ok(if m.scalar() == Scalar::Bool { m.where_(&s, f64::NEG_INFINITY) } else { s.add(&m) })
        }),
        None => scores,
    }
}

/// What the products of queries and keys are divided by.
fn root_of_depth(q: &Expr) -> Expr {
    let d = q.shape().last().cloned().unwrap_or(Dim::Int(1));
    Expr::from(d.uop()).cast(Scalar::F32).sqrt()
}

/// A value and the form that a kernel of its own may compute, from these values.
fn fused(of: Attention, [value, form]: [&Expr; 2], read: &[UOp]) -> Expr {
    let src: Srcs = [value, form].map(|x| x.uop().clone()).into_iter().chain(read.iter().cloned()).collect();
    UOp::new(Op::Fused, value.uop().dtype(), src, Arg::Attention(of)).into()
}

/// Of an attention whose result gets the gradient `g`: the gradients of its queries, keys and values, each with the
/// node that it belongs to. Where keys or values are repeated for groups of queries, that is the node that is repeated,
/// if there is no target in between. `None`: its value passes the gradient on, as any other (a mask that `leads` to a
/// target has a gradient, too).
pub(super) fn gradients(u: &UOp, g: &Expr, targets: &[UOp], leads: &USet) -> Result<Option<Vec<(UOp, Expr)>>, Problem> {
    let (Arg::Attention(of), [value, _, read @ ..]) = (u.arg(), u.src()) else { return Ok(None) };
    if of.part != AttentionPart::Result {
        return Ok(None);
    }
    let [q, k, v, mask @ ..] = read else { return Ok(None) };
    let leading = |x: &UOp| x.shape()[..x.shape().len().saturating_sub(2)].to_vec();
    let alike = [k, v].iter().all(|x| leading(x) == leading(q));
    let stops = |u: &UOp| targets.contains(u);
    if !alike || mask.iter().any(|m| leads.contains(m)) || between(value, read).iter().any(stops) {
        return Ok(None);
    }
    let e = |u: &UOp| Expr::from(u.clone());
    let [qe, ke, ve] = [q, k, v].map(e);
    let s = scores(&qe, &ke, mask.first().map(e).as_ref(), of.causal);
    let (wide, t) = accumulated(&s);
    let last = [s.rank() - 1];
    let most = max(&wide, &last)?.detach();
    let log_sum = sum(&wide.sub(&most).exp(), &last)?.log2().add(&most.mul(LOG2_E));
    let log_sum = fused(Attention { part: AttentionPart::LogSum, ..*of }, [&log_sum, &log_sum], read);
    let g = g.cast(t).contiguous();
    // The gradient of a score is weight * (product - mean), where the mean of the products by the weights is the
    // product of the result and its gradient as well.
    let [qw, kw, vw, gw] = [&qe, &ke, &ve, &g].map(|x| x.cast(Scalar::F32));
    let products = matmul(&gw, &vw.t())?;
    let of_scores = |weights: &Expr, mean: &Expr| {
        let x = weights.mul(&products.sub(mean)).div(&root_of_depth(&qe));
        x.cast(t).cast(Scalar::F32)
    };
    let plain = s.softmax(-1).cast(Scalar::F32);
    let of_plain = of_scores(&plain, &sum(&plain.mul(&products), &last)?);
    let mean = sum(&gw.mul(&e(u).cast(Scalar::F32)), &last)?;
    let weights = wide.mul(LOG2_E).sub(&log_sum).exp2();
    let of_kernel = of_scores(&weights, &mean);
    let more = [&g, &log_sum, &mean].map(|x| x.uop().clone());
    let read: Vec<UOp> = read.iter().cloned().chain(more).collect();
    let narrow = |w: &Expr| w.cast(t).cast(Scalar::F32);
    let mut all = Vec::new();
    let mut pass = |part, to: &UOp, forms: [Expr; 2]| -> Result<(), Problem> {
        let base = if part == AttentionPart::QueryGradient { to.clone() } else { repeated(to, &stops) };
        let [value, form] = forms.map(|x| back_through_movement(to, &base, x).map(|x| x.cast(t)));
        let x = fused(Attention { part, ..*of }, [&value?, &form?], &read);
        all.push((base, x));
        Ok(())
    };
    let both = [&of_plain, &of_kernel];
    let times = |x: [&Expr; 2], other: &Expr, turned: bool| -> Result<[Expr; 2], Problem> {
        let one = |x: &Expr| matmul(&if turned { x.t() } else { x.clone() }, other);
        Ok([one(x[0])?, one(x[1])?])
    };
    pass(AttentionPart::QueryGradient, q, times(both, &kw, false)?)?;
    pass(AttentionPart::KeyGradient, k, times(both, &qw, true)?)?;
    pass(AttentionPart::ValueGradient, v, times([&narrow(&plain), &narrow(&weights)], &gw, true)?)?;
    Ok(Some(all))
}

/// The nodes between a value and what it is computed from.
fn between(value: &UOp, read: &[UOp]) -> Vec<UOp> {
    value.toposort_if(|u| !read.contains(u)).into_iter().filter(|u| !read.contains(u)).collect()
}

/// What is repeated to make these keys or values.
fn repeated(view: &UOp, stops: &dyn Fn(&UOp) -> bool) -> UOp {
    let rows = |u: &UOp| u.shape().iter().rev().take(2).cloned().collect::<Vec<_>>();
    let (mut base, mut at) = (view, view);
    while matches!(at.op(), Op::Reshape | Op::Expand) && !stops(at) {
        let whole = at;
        at = &at.src()[0];
        if whole.op() == Op::Expand {
            if rows(whole) != rows(at) {
                break;
            }
            base = at;
        }
    }
    base.clone()
}

/// Queries and keys from which on one kernel is never slower than three (measured: equal at 128 of each, faster
/// beyond), and the longest rows whose tiles fit the scratch memory of a thread.
const ROWS: i64 = 128;
const KEYS: i64 = 128;
const COLUMNS: i64 = 256;

/// Whether a kernel of its own may compute it, and gains by that.
fn is_one_kernel([q, k, v]: [&UOp; 3]) -> bool {
    let t = q.dtype().scalar;
    let types = matches!(t, Scalar::F32 | Scalar::F16 | Scalar::BF16) && [k, v].iter().all(|x| x.dtype() == q.dtype());
    let size = |u: &UOp, from_end: usize| u.shape().iter().rev().nth(from_end).and_then(Dim::as_int).unwrap_or(0);
    let known = [q, k, v].iter().all(|u| u.shape().iter().all(|d| d.as_int().is_some_and(|n| n > 0)));
    let columns = [q, v].iter().all(|u| (1..=COLUMNS).contains(&size(u, 0)));
    types && known && columns && size(q, 1) >= ROWS && size(k, 1) >= KEYS
}
