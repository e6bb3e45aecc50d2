//! The permutation that sorts an axis.
//!
//! Elements become integer keys in the wanted order. Short runs are sorted by counting: an element's rank is the
//! number of elements before it (two kernels, a square of comparisons for each run). Runs are then merged in pairs, one
//! kernel for each doubling: output k of a merge finds by a binary search how many of the first k elements come from
//! the left run. That is `log2(n / RUN)` kernels of `log2(n)` loads an element; a bitonic network (tinygrad's) has
//! `log2(n)² / 2` of them and does not keep the order of equal elements.
//!
//! Keys of at most 32 bits are packed with their positions into one i64: no two are equal, a comparison is one
//! instruction, and a merge needs one load for a comparison in place of two. Longer keys stay in place, and the
//! positions are sorted.

use super::super::elementwise::Elementwise;
use super::super::error::Problem;
use super::super::graph;
use super::super::index::at_positions;
use super::super::movement::{Movement, positions};
use super::super::value::{Expr, Value};
use crate::uop::{ConstVal, DType, Dim, Op, Scalar, UOp};

/// Elements sorted by counting.
const RUN: i64 = 128;

/// Integers (i32 or i64) in the order of the elements: NaN above all, both zeros alike, reversed if `descending`.
pub(super) fn keys(x: &Expr, descending: bool) -> Expr {
    use Scalar::*;
    let key = match x.scalar() {
        U32 => x.cast(I64).sub(1i64 << 31).cast(I32),
        I64 | WeakInt => x.cast(I64),
        U64 => x.bitcast(I64).bitxor(i64::MIN),
        t if !t.is_float() => x.cast(I32),
        F64 => bits(x, I64, i64::MAX, 63),
        _ => bits(&x.cast(F32), I32, i32::MAX.into(), 31),
    };
    if descending { key.bitnot() } else { key }
}

/// Bits of a float as an integer that is ordered like it.
fn bits(x: &Expr, to: Scalar, top: i64, sign: i64) -> Expr {
    let bits = x.eq(0).where_(0.0, x).cast(x.scalar()).bitcast(to);
    let key = bits.bitxor(&bits.shr(sign).bitand(top));
    x.ne(x).where_(top, &key).cast(to)
}

/// What is sorted: keys with their positions, or positions of long keys.
pub(super) struct List {
    /// (rows, n).
    items: Expr,
    /// Of all elements, where items are positions.
    keys: Option<Expr>,
}

impl List {
    /// Items of (rows, n) keys.
    fn of(keys: &Expr) -> List {
        let place = positions(keys.shape(), 1);
        let n = keys.dim(1).max();
        if keys.scalar() == Scalar::I32 && n <= i64::from(i32::MAX) {
            let place = place.cast(Scalar::I64);
            return List { items: keys.cast(Scalar::I64).shl(32).bitor(&place).contiguous(), keys: None };
        }
        let place = place.cast(super::super::index::position_type(n)).expand(keys.shape());
        List { items: place, keys: Some(keys.contiguous()) }
    }
    /// The elements' positions in their rows.
    pub(super) fn places(&self) -> Expr {
        match self.keys {
            Some(_) => self.items.clone(),
            None => self.items.bitand(i64::from(i32::MAX)).cast(Scalar::I32),
        }
    }
    /// What items are compared by; `items` has the rank of `rows`, whose first axis is that of the keys.
    fn value(&self, items: &Expr) -> Expr {
        let Some(keys) = &self.keys else { return items.clone() };
        let flat = items.reshape([items.dim(0), Dim::Int(-1)]);
        at_positions(keys, 1, &flat).reshape(items.shape())
    }
    /// Whether `a` comes before `b`, for items of which `a` is the earlier one where both are equal.
    fn in_order(&self, a: &Expr, b: &Expr) -> Expr {
        self.value(b).lt(&self.value(a)).bitnot()
    }
}

/// The first `keep` elements of the sorted rows of (rows, n) keys, as a list of (rows, keep).
pub(super) fn sorted(keys: &Expr, keep: &Dim) -> Result<List, Problem> {
    let (Some(n), Some(keep)) = (keys.dim(1).as_int(), keep.as_int()) else {
        // One run of any length.
        let mut list = List::of(keys);
        list.items = counted(&list, &keys.dim(1));
        return Ok(list);
    };
    if n <= 1 || keep == 0 {
        let mut list = List::of(keys);
        list.items = list.items.narrow(1, 0, keep);
        return Ok(list);
    }
    let mut runs = 1i64;
    while (n + runs - 1) / runs > RUN {
        runs *= 2;
    }
    let mut len = (n + runs - 1) / runs;
    let top = ConstVal::Int(keys.scalar().int_range().1);
    let mut list = List::of(&keys.pad_value(&[(0, 0), (0, len * runs - n)], top));
    list.items = counted(&list, &Dim::Int(len));
    while runs > 1 {
        let kept = len.min(keep);
        let rows = list.items.reshape([keys.dim(0), Dim::Int(runs), Dim::Int(len)]).narrow(2, 0, kept);
        runs /= 2;
        len = (2 * kept).min(keep);
        list.items = merged(&list, &rows, (runs, kept, len));
    }
    list.items = list.items.narrow(1, 0, keep.min(n));
    list.items.node().map_err(|fault| fault.problem.clone())?;
    Ok(list)
}

/// Rows whose runs of `len` are sorted, each by counting.
fn counted(list: &List, len: &Dim) -> Expr {
    let shape = list.items.shape().to_vec();
    let runs = list.items.reshape([shape[0].clone(), Dim::Int(-1), len.clone()]);
    // (rows, runs, element, other): the others before an element.
    let (own, other) = (runs.unsqueeze(3), runs.unsqueeze(2));
    let before = match &list.keys {
        None => other.lt(&own),
        Some(_) => {
            let keys = list.value(&runs);
            let (a, b) = (keys.unsqueeze(3), keys.unsqueeze(2));
            b.lt(&a).bitor(&b.eq(&a).bitand(&other.lt(&own)))
        }
    };
    let rank = sum_of(&before.cast(Scalar::I32), 3).contiguous();
    // (rows, runs, place, element): the one element of that rank.
    let square = [runs.dim(0), runs.dim(1), len.clone(), len.clone()];
    let hit = rank.unsqueeze(2).eq(&positions(&square, 2));
    sum_of(&hit.where_(&runs.unsqueeze(2), 0).cast(runs.scalar()), 3).reshape(shape).contiguous()
}

fn sum_of(x: &Expr, axis: usize) -> Expr {
    Expr::from(graph::reduce(x.uop(), Op::Add, &[axis])).squeeze(axis as i64)
}

/// Neighbouring runs of (rows, 2 runs, len) merged: the first `out` elements of each, as (rows, runs * out).
fn merged(list: &List, rows: &Expr, (runs, len, out): (i64, i64, i64)) -> Expr {
    let pairs = rows.unflatten(1, [runs, 2]);
    let run = |k: i64| pairs.narrow(2, k, 1).squeeze(2);
    let (left, right) = (run(0), run(1));
    let shape = [rows.dim(0), Dim::Int(runs), Dim::Int(out)];
    let t = super::super::index::position_type(2 * len);
    let k = positions(&shape, 2).cast(t).expand(&shape);
    let number = |n: i64| Expr::from(UOp::constant(DType::of(t), n));
    // How many of the first k come from the left: all whose partner on the right is not before them.
    let mut taken = Expr::from(graph::full(&shape, &UOp::constant(DType::of(t), 0i64)));
    let mut step = 1 << (63 - len.min(out).leading_zeros());
    while step > 0 {
        let more = taken.add(step);
        let partner = k.sub(&more);
        let first = list.in_order(&at_positions(&left, 2, &more.sub(1)), &at_positions(&right, 2, &partner));
        let fits = more.le(&k).bitand(&more.le(&number(len))).bitand(&partner.ge(&number(len)).bitor(&first));
        taken = fits.where_(&more, &taken);
        step /= 2;
    }
    let other = k.sub(&taken);
    let (a, b) = (at_positions(&left, 2, &taken), at_positions(&right, 2, &other));
    let from_left = taken.lt(&number(len)).bitand(&other.ge(&number(len)).bitor(&list.in_order(&a, &b)));
    from_left.where_(&a, &b).reshape([rows.dim(0), Dim::Int(runs * out)]).contiguous()
}

/// The number of elements at the front of `n` for which `holds` is true (`holds` of a position inside; it is true up to
/// some index and false from there), by a binary search. `zero` has the shape of the result.
pub(super) fn front(n: i64, zero: &Expr, holds: impl Fn(&Expr) -> Expr) -> Expr {
    let mut found = zero.clone();
    if n <= 0 {
        return found;
    }
    let mut step = 1i64 << (63 - n.leading_zeros());
    while step > 0 {
        let more = found.add(step);
        let fits = more.le(n).bitand(&holds(&more.sub(1)));
        found = fits.where_(&more, &found);
        step /= 2;
    }
    found
}

/// For each element its index in the sorted rows: the inverse of the permutation, by searching for it.
pub(super) fn ranks(keys: &Expr, list: &List) -> Expr {
    let t = super::super::index::position_type(keys.dim(1).max());
    let zero = Expr::from(graph::full(keys.shape(), &UOp::constant(DType::of(t), 0i64)));
    let n = keys.dim(1).as_int().unwrap_or(0);
    let own = positions(keys.shape(), 1);
    let places = list.places();
    front(n, &zero, |at| {
        let place = at_positions(&places, 1, at);
        let key = at_positions(keys, 1, &place);
        key.lt(keys).bitor(&key.eq(keys).bitand(&place.lt(&own)))
    })
}
