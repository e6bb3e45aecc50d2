//! A reduction of a value that does not depend on its ranges needs no loop: `Σ_r x = n·x`, `Π_r x = x^n`, `max_r x =
//! x`.

use doorbell_uop::{Op, Order, Srcs, UOp, open_numbers};

/// Removes the ranges that a Reduce's value does not depend on. Empty ranges are folded by the scheduler: a loop here
/// runs at least once unless its size is a variable, and then multiplying by the trip count is still right for a sum.
pub(super) fn fold_invariant(sink: &UOp) -> UOp {
    let order = Order::of(sink);
    if !order.nodes().iter().any(|u| u.op() == Op::Reduce) {
        return sink.clone();
    }
    let open = open_numbers(&order);
    order.rebuild(|r, u| {
        if u.op() != Op::Reduce {
            return r.same();
        }
        let (sources, src) = (order.srcs(r.at), r.srcs());
        let below = &open[sources[0] as usize];
        let (kept, idle): (Vec<usize>, Vec<usize>) = (1..src.len()).partition(|k| below.contains(&sources[*k]));
        let x = if kept.is_empty() {
            src[0].clone()
        } else {
            u.with_src(std::iter::once(0).chain(kept).map(|k| src[k].clone()).collect::<Srcs>())
        };
        idle.into_iter().fold(x, |x, k| repeated(u.reduce_op().unwrap_or(Op::Add), &x, &src[k].src()[0]))
    })
}

/// `x op x op ...`, `n` times.
fn repeated(op: Op, x: &UOp, n: &UOp) -> UOp {
    match op {
        Op::Add if !x.dtype().is_bool() => x * &cast_count(n, x),
        Op::Mul if !x.dtype().is_bool() => x.binary(Op::Pow, &cast_count(n, x)),
        _ => x.clone(),
    }
}

fn cast_count(n: &UOp, x: &UOp) -> UOp {
    match n.as_const() {
        Some(c) => x.const_like(c),
        None => n.cast(x.dtype()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_uop::{AxisKind, DType};

    #[test]
    fn a_sum_over_an_idle_range_is_a_product_and_the_other_range_stays() {
        let (r, s) = (UOp::range(4, 0, AxisKind::Reduce), UOp::range(8, 1, AxisKind::Reduce));
        let x = UOp::param(1, DType::F32, 4).index(&r).load();
        let sum = x.reduce(Op::Add, &[s.clone(), r.clone()]);
        assert_eq!(fold_invariant(&sum), &x.reduce(Op::Add, std::slice::from_ref(&r)) * 8);
        assert_eq!(fold_invariant(&x.reduce(Op::Max, &[s, r.clone()])), x.reduce(Op::Max, &[r]));
    }
}
