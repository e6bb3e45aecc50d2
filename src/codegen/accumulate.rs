//! Gives reductions their registers: `Reduce(x, r…)` becomes `SetAcc(acc, update, r…)`, where the update reads the
//! `Acc`.
//!
//! Products that are added are fused into MulAcc: `acc + (a*b + c*d)` becomes a chain of two MulAccs on the register. A
//! product under a condition (else zero) becomes one whose result is taken where the condition holds.
//! Any other sum is first reduced as a tree, so that the dependency chain through the register stays short.

use super::Target;
use doorbell_uop::{Arg, ConstVal, DType, Op, Order, Scalar, Srcs, UMap, UOp};

/// The identity element of `op`: combining it with a value does not change that value.
pub(super) fn identity(op: Op, dtype: DType) -> UOp {
    let t = dtype.scalar;
    let v = match op {
        Op::Mul => ConstVal::Int(1),
        Op::Max => t.lowest(),
        _ => ConstVal::Int(0),
    };
    UOp::constant(dtype, v)
}

/// Reductions of half types accumulate in f32, whatever the target supports.
pub(super) fn widen(sink: &UOp, target: &Target) -> UOp {
    let narrow = |u: &UOp| {
        let t = u.dtype().scalar;
        let lacks = || !target.supports(u.reduce_op().unwrap_or(Op::Add), t);
        u.op() == Op::Reduce && t.is_float() && (t.size_bytes() < 4 || lacks())
    };
    if !sink.any(narrow) {
        return sink.clone();
    }
    sink.rebuild(|r, u| {
        if !narrow(u) {
            return r.same();
        }
        let (wide, mut src) = (u.dtype().with_scalar(Scalar::F32), r.srcs());
        src[0] = src[0].cast(wide);
        UOp::new(Op::Reduce, wide, src, u.arg().clone()).cast(u.dtype())
    })
}

/// Number of users of each node.
fn use_counts(order: &Order) -> Vec<u32> {
    let mut uses = vec![0; order.len()];
    for k in 0..order.len() {
        order.srcs(k).iter().for_each(|s| uses[*s as usize] += 1);
    }
    uses
}

/// Gives every Reduce its Acc and forms MulAcc from Mul and Add (floats only, if the product has no other user).
pub(super) fn accumulate(sink: &UOp) -> UOp {
    let order = Order::of(sink);
    let uses = use_counts(&order);
    let once = |u: &UOp| order.number(u).is_some_and(|k| uses[k] == 1);
    // Rewritten single-use products and sums, kept for the reduction that uses them to take apart.
    let mut open: UMap<(Op, UOp, UOp)> = UMap::default();
    let mut registers = 0u32;
    order.rebuild(|r, u| match u.op() {
        Op::Reduce if u.src().len() == 1 => r.src(0).clone(),
        Op::Reduce => {
            let src = r.srcs();
            let op = u.reduce_op().unwrap_or(Op::Add);
            let acc = UOp::tagged(Op::Acc, u.dtype(), [identity(op, u.dtype())], Arg::None, Some(registers));
            registers += 1;
            let update = if op == Op::Add && (u.dtype().is_float() || has_tile(&src[0], &open)) {
                let (chain, rest) = take_apart(&src[0], &open);
                let (tiles, rest): (Vec<UOp>, Vec<UOp>) = rest.into_iter().partition(is_tile);
                // A register that starts at zero never becomes -0.0: adding a zero changes nothing.
                let zero = |u: &UOp| constant(u).is_some_and(ConstVal::is_zero);
                let rest = rest.into_iter().filter(|u| !zero(u)).reduce(|a, b| &a + &b);
                // The matrix unit accumulates into the register itself.
                let onto = |s: UOp, t: UOp| t.with_src([t.src()[0].clone(), t.src()[1].clone(), s]);
                let tiled = tiles.into_iter().fold(acc.clone(), onto);
                let sum = chain.chunk_by(|a, b| a.gate == b.gate).fold(tiled, |s, alike| {
                    let add = |s: UOp, p: &Product| UOp::alu(Op::MulAcc, [p.a.clone(), p.b.clone(), s]);
                    let sum = alike.iter().fold(s.clone(), add);
                    alike[0].gate.as_ref().map_or(sum.clone(), |gate| gate.select(&sum, &s))
                });
                rest.map_or(sum.clone(), |r| &sum + &r)
            } else {
                acc.binary(op, &src[0])
            };
            let src: Srcs = [acc, update].into_iter().chain(src.iter().skip(1).cloned()).collect();
            UOp::new(Op::SetAcc, u.dtype(), src, Arg::None)
        }
        Op::Add if u.dtype().is_float() => {
            let src = r.srcs();
            let new = mul_acc(&u.src()[0], &u.src()[1], &src, &once);
            if once(u) {
                open.insert(new.clone(), (Op::Add, src[0].clone(), src[1].clone()));
            }
            new
        }
        // Integer products of a matrix unit.
        Op::Add if once(u) && (has_tile(r.src(0), &open) || has_tile(r.src(1), &open)) => {
            let new = r.same();
            open.insert(new.clone(), (Op::Add, r.src(0).clone(), r.src(1).clone()));
            new
        }
        // A condition that became constant for all lanes when loops were copied out.
        Op::Where => match constant(r.src(0)) {
            Some(c) => r.src(if c.is_zero() { 2 } else { 1 }).clone(),
            None => {
                let new = r.same();
                let zero = constant(r.src(2)).is_some_and(ConstVal::is_zero);
                if zero && once(u) && open.contains_key(r.src(1)) {
                    open.insert(new.clone(), (Op::Where, r.src(0).clone(), r.src(1).clone()));
                }
                new
            }
        },
        Op::Mul if u.dtype().is_float() && once(u) => {
            let new = r.same();
            open.insert(new.clone(), (Op::Mul, r.src(0).clone(), r.src(1).clone()));
            new
        }
        _ => r.same(),
    })
}

/// The constant that a value is, or that every lane of it is.
fn constant(u: &UOp) -> Option<ConstVal> {
    if u.op() == Op::Splat { u.src()[0].as_const() } else { u.as_const() }
}

/// `x + y`, as MulAcc when one of them is a product used only here.
fn mul_acc(x: &UOp, y: &UOp, new: &[UOp], once: &impl Fn(&UOp) -> bool) -> UOp {
    for (product, k, other) in [(x, 0, 1), (y, 1, 0)] {
        // The product may have been rewritten already: look at its current form.
        if product.op() == Op::Mul && once(product) && new[k].op() == Op::Mul {
            let m = new[k].src();
            return UOp::alu(Op::MulAcc, [m[0].clone(), m[1].clone(), new[other].clone()]);
        }
    }
    UOp::alu(Op::Add, [new[0].clone(), new[1].clone()])
}

/// A product of a matrix unit whose accumulator is still zero.
fn is_tile(u: &UOp) -> bool {
    u.op() == Op::Wmma && u.src()[2].as_const().is_some_and(ConstVal::is_zero)
}

/// A product of a matrix unit, or a sum that contains one.
fn has_tile(u: &UOp, open: &UMap<(Op, UOp, UOp)>) -> bool {
    is_tile(u) || !u.dtype().is_float() && open.contains_key(u)
}

/// A product to be added, where its gate holds.
struct Product {
    a: UOp,
    b: UOp,
    gate: Option<UOp>,
}

/// Splits a sum whose parts have no other users into its products and its other terms, in order.
fn take_apart(x: &UOp, open: &UMap<(Op, UOp, UOp)>) -> (Vec<Product>, Vec<UOp>) {
    let (mut products, mut rest, mut todo) = (vec![], vec![], vec![(x.clone(), None::<UOp>)]);
    while let Some((u, gate)) = todo.pop() {
        match (open.get(&u), gate) {
            (Some((Op::Mul, a, b)), gate) => products.push(Product { a: a.clone(), b: b.clone(), gate }),
            (Some((Op::Where, own, sum)), None) => todo.push((sum.clone(), Some(own.clone()))),
            (Some((Op::Add, a, b)), gate) => todo.extend([(b.clone(), gate.clone()), (a.clone(), gate)]),
            (_, None) => rest.push(u),
            (_, Some(gate)) => rest.push(gate.select(&u, &u.const_like(0.0))),
        }
    }
    if products.is_empty() && !rest.iter().any(is_tile) {
        // Nothing to chain: keep the tree as it was built.
        return (products, vec![x.clone()]);
    }
    (products, rest)
}
