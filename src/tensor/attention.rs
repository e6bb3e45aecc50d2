//! Scaled dot product attention: a product, a softmax and another product, which one kernel may compute.

use super::elementwise::Elementwise;
use super::movement::Movement;
use super::norm::triangle_mask;
use super::product::Product;
use super::reduction::Reduction;
use super::value::{Expr, Value, lift, lift_many};
use crate::uop::{Arg, Dim, Op, Scalar, Srcs, UOp};

/// See `Composite::attention`.
#[track_caller]
pub(super) fn attention<V: Value>(query: &V, key: &V, value: &V, mask: Option<&V>, causal: bool) -> V {
    let scores: V = lift("attention", [query.node(), key.node()], |[q, k]| {
        let d = q.shape().last().cloned().unwrap_or(Dim::Int(1));
        let s = q.matmul(&k.t()).div(&Expr::from(d.uop()).cast(Scalar::F32).sqrt()).cast(q.scalar());
        if !causal || s.node().is_err() {
            return Ok(s);
        }
        triangle_mask(&s, |row, column| row.ge(column)).map(|keep| keep.where_(&s, f64::NEG_INFINITY))
    });
    let scores = match mask {
        Some(m) => lift("attention", [scores.node(), m.node()], |[s, m]| {
            Ok(if m.scalar() == Scalar::Bool { m.where_(&s, f64::NEG_INFINITY) } else { s.add(&m) })
        }),
        None => scores,
    };
    let whole = scores.softmax(-1).matmul(value);
    let read = [Some(&whole), Some(query), Some(key), Some(value), mask];
    let nodes: Vec<_> = read.into_iter().flatten().map(Value::node).collect();
    lift_many("attention", &nodes, |read| {
        let [whole, q, k, v, ..] = &read[..] else { return Ok(read[0].clone()) };
        if !is_one_kernel([q, k, v].map(Expr::uop)) {
            return Ok(whole.clone());
        }
        let src: Srcs = read.iter().map(|x| x.uop().clone()).collect();
        Ok(UOp::new(Op::Fused, whole.uop().dtype(), src, Arg::None).into())
    })
}

/// Queries and keys from which on one kernel is never slower than three (measured: equal at 128 of each, faster beyond),
/// and the longest rows whose tiles fit the scratch memory of a thread.
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
