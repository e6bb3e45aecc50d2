//! Gradients: from the root of a tensor graph down, each node passes a contribution to its sources.
//!
//! The table covers every op of the tensor graph; ops without a derivative (comparisons, integer ops, bits) pass
//! nothing. The derivative of a maximum is shared equally by the elements that reach it; against a number, a tie gets
//! nothing, so that relu'(0) = 0. No recursion: the order is a topological one.

use super::elementwise::Elementwise;
use super::error::{Problem, Shown, TensorError};
use super::graph;
use super::handle::Tensor;
use super::math::Math;
use super::reduction::sum;
use super::value::{Expr, Value, fault};
use crate::sort;
use crate::uop::{Arg, DType, Dim, Op, Scalar, UMap, UOp, USet};
use std::f64::consts::LN_2;
use std::panic::Location;

/// One contribution a source; `None`: nothing passes.
type Shares = Result<Vec<Option<Expr>>, Problem>;

fn e(u: &UOp) -> Expr {
    Expr::from(u.clone())
}

/// Gradient of `root` (weighted by `seed`, of its shape) for each node that gets a contribution, and the targets that
/// are in the graph: one without a contribution (below a floor or a comparison, say) has the gradient 0.
fn gradients(root: &UOp, seed: Expr, is_target: impl Fn(&UOp) -> bool) -> Result<(UMap<Expr>, Vec<UOp>), Problem> {
    let order = root.toposort_if(|u| u.op() != Op::Detach);
    let mut leads = USet::default();
    let mut targets = Vec::new();
    for u in &order {
        let is_target = is_target(u);
        if is_target {
            targets.push(u.clone());
        }
        if is_target || u.op() != Op::Detach && u.src().iter().any(|s| leads.contains(s)) {
            leads.insert(u.clone());
        }
    }
    let mut grads: UMap<Expr> = UMap::default();
    grads.insert(root.clone(), seed);
    for u in order.iter().rev().filter(|u| leads.contains(*u)) {
        let Some(g) = grads.get(u).cloned() else { continue };
        if !u.src().iter().any(|s| leads.contains(s)) {
            continue;
        }
        let shares = match super::attention::gradients(u, &g, &targets, &leads)? {
            Some(list) => list.into_iter().map(|(s, share)| (s, Some(share))).collect(),
            None => u.src().iter().cloned().zip(shares(u, &g)?).collect::<Vec<_>>(),
        };
        for (s, share) in &shares {
            let Some(share) = share.as_ref().filter(|_| leads.contains(s) && s.dtype().is_float()) else { continue };
            let share = share.cast(s.dtype().scalar);
            let whole = match grads.get(s) {
                Some(there) => there.add(&share),
                None => share,
            };
            whole.node().map_err(|fault| fault.problem.clone())?;
            grads.insert(s.clone(), whole);
        }
    }
    Ok((grads, targets))
}

/// Zeros of the shape and type of `u`.
fn flat(u: &UOp) -> Expr {
    Expr::from(graph::full(u.shape(), &UOp::constant(u.dtype(), 0.0)))
}

/// Whether all elements are the constant 1.
fn is_one(u: &UOp) -> bool {
    let mut u = u;
    while u.op().is_movement() && u.op() != Op::Pad || u.op() == Op::Cast {
        u = &u.src()[0];
    }
    u.as_const().is_some_and(|c| c.is_one())
}

/// What each source of `u` gets when `u` gets `g`.
fn shares(u: &UOp, g: &Expr) -> Shares {
    if u.op().is_movement() {
        return movement(u, g);
    }
    let s = |k: usize| e(&u.src()[k]);
    let y = e(u);
    let one = |x: Expr| Ok(vec![Some(x)]);
    let two = |x: Expr, y: Expr| Ok(vec![Some(x), Some(y)]);
    let none = || Ok(vec![None; u.src().len()]);
    match u.op() {
        Op::Add => two(g.clone(), g.clone()),
        Op::Sub => two(g.clone(), g.neg()),
        Op::Mul if is_one(g.uop()) && u.src().iter().all(|s| s.shape() == u.shape()) => two(s(1), s(0)),
        Op::Mul => two(g.mul(&s(1)), g.mul(&s(0))),
        Op::MulAcc => Ok(vec![Some(g.mul(&s(1))), Some(g.mul(&s(0))), Some(g.clone())]),
        Op::FDiv => two(g.div(&s(1)), g.mul(&y).div(&s(1)).neg()),
        Op::Neg => one(g.neg()),
        Op::Recip => one(g.mul(&y).mul(&y).neg()),
        Op::Sqrt => one(g.div(&y.mul(2))),
        Op::Exp2 => one(g.mul(&y).mul(LN_2)),
        Op::Log2 => one(g.div(&s(0).mul(LN_2))),
        Op::Sin => one(g.mul(&s(0).cos())),
        Op::Max => maximum(u, g),
        Op::Pow => power(&s(0), &s(1), &y, g),
        Op::Where => Ok(vec![None, Some(s(0).where_(g, 0)), Some(s(0).where_(0, g))]),
        Op::Cast => one(g.clone()),
        Op::Reduce => reduction(u, g),
        Op::Contiguous => one(g.clone()),
        // The value carries all of it.
        Op::Fused => Ok((0..u.src().len()).map(|k| (k == 0).then(|| g.clone())).collect()),
        Op::ContiguousBackward => one(g.contiguous()),
        Op::Copy => {
            let back = u.src()[0].device().filter(|d| Some(*d) != u.device());
            one(match back {
                Some(d) => {
                    Expr::of(g.node().map(|g| UOp::new(Op::Copy, g.dtype(), [g], crate::uop::Arg::Device(d.clone()))))
                }
                None => g.clone(),
            })
        }
        Op::Shard => Ok(sharded(u, g)),
        Op::Custom => custom(u, g),
        Op::Assign => Ok(vec![None, Some(g.clone())]),
        Op::After => {
            Err(Problem::argument("part of a Tensor in between was assigned in place: no gradient passes that"))
        }
        Op::Detach | Op::Bitcast | Op::Trunc | Op::Threefry => none(),
        op if op.is_comparison() || op.is_alu() => none(),
        op => Err(Problem::argument(format!("no gradient passes {op:?}"))),
    }
}

/// Each part gets its part; where each device has the whole, the first one's stands for all.
fn sharded(u: &UOp, g: &Expr) -> Vec<Option<Expr>> {
    let (n, axis) = (u.src().len(), u.axes().first().map(|k| usize::from(*k)));
    let share = |(i, s): (usize, &UOp)| {
        let part = super::shard::part(g.uop(), i, n, axis);
        let here = s.device().map(|d| UOp::new(Op::Copy, part.dtype(), [part.clone()], Arg::Device(d.clone())));
        Some(Expr::from(here.unwrap_or(part))).filter(|_| i == 0 || axis.is_some())
    };
    u.src().iter().enumerate().map(share).collect()
}

/// By the gradient that the user gave with the kernel.
fn custom(u: &UOp, g: &Expr) -> Shares {
    let Arg::Custom(custom) = u.arg() else { return Ok(vec![None; u.src().len()]) };
    let Some(gradient) = &custom.gradient else {
        return Err(Problem::argument(format!("no gradient passes kernel '{}': it was made without one", custom.name)));
    };
    let shares = (gradient.0)(&g.node().map_err(|f| f.problem.clone())?, u.src());
    if shares.len() != u.src().len() {
        let (have, want) = (shares.len(), u.src().len());
        return Err(Problem::argument(format!(
            "the gradient of kernel '{}' gives {have} values for {want} sources",
            custom.name
        )));
    }
    Ok(shares.into_iter().map(|s| s.map(|s| Expr::of(s.node()))).collect())
}

fn maximum(u: &UOp, g: &Expr) -> Shares {
    let (a, b, y) = (e(&u.src()[0]), e(&u.src()[1]), e(u));
    let side = |x: &Expr, o: &Expr| {
        if graph::is_number(o.uop()) {
            // The maximum exceeds the number where x does: then x itself, before the maximum, need not be kept for the
            // gradient.
            return o.lt(&y).where_(g, &e(&g.uop().const_like(0i64)));
        }
        o.lt(x).where_(g, &x.eq(o).where_(&g.mul(0.5), 0))
    };
    Ok(vec![Some(side(&a, &b)), Some(side(&b, &a))])
}

fn power(b: &Expr, x: &Expr, y: &Expr, g: &Expr) -> Shares {
    let base = x.eq(0).where_(0, &x.mul(&b.pow(&x.sub(1))));
    let at_zero = x.lt(0).where_(f64::NEG_INFINITY, 0).cast(b.scalar());
    let exponent = b.eq(0).where_(&at_zero, &y.mul(&b.log()));
    Ok(vec![Some(g.mul(&base)), Some(g.mul(&exponent))])
}

fn reduction(u: &UOp, g: &Expr) -> Shares {
    let x = e(&u.src()[0]);
    let axes: Vec<usize> = u.axes().iter().map(|a| usize::from(*a)).collect();
    let wide = |r: &Expr| {
        Expr::of(graph::expand(r.uop(), x.shape()).map_err(|p| fault("gradient", p, &[], Location::caller())))
    };
    let share = match u.reduce_op() {
        Some(Op::Add) => wide(g),
        Some(Op::Max) => {
            let hit = x.eq(&e(u)).cast(x.scalar());
            let count = Expr::from(graph::reduce(hit.uop(), Op::Add, &axes));
            hit.mul(&g.div(&count))
        }
        Some(Op::Mul) => {
            // The product of the others: y / x where x is not 0; with one zero, the product of the rest.
            let zero = x.eq(0);
            let safe = zero.where_(1, &x).cast(x.scalar());
            let zeros = Expr::from(graph::reduce(zero.cast(Scalar::I32).uop(), Op::Add, &axes));
            let rest = Expr::from(graph::reduce(safe.uop(), Op::Mul, &axes));
            let others = zero.where_(&zeros.eq(1).where_(&rest, 0), &e(u).div(&safe));
            others.mul(g)
        }
        _ => return Err(Problem::argument(format!("no gradient passes a reduction by {:?}", u.reduce_op()))),
    };
    Ok(vec![Some(share)])
}

fn movement(u: &UOp, g: &Expr) -> Shares {
    let x = &u.src()[0];
    let (shape, n) = (x.shape(), x.shape().len());
    let size = |k: usize| Dim::from(&u.src()[k]);
    let back = match u.op() {
        Op::Reshape => Expr::from(graph::reshape(g.uop(), shape)),
        Op::Expand => {
            let grown: Vec<usize> = (0..n).filter(|k| shape[*k] != u.shape()[*k]).collect();
            sum(g, &grown)?
        }
        Op::Permute => {
            let mut order = vec![0; n];
            for (k, a) in u.axes().iter().enumerate() {
                order[usize::from(*a)] = k;
            }
            Expr::from(graph::permute(g.uop(), &order))
        }
        Op::Flip => {
            let axes: Vec<usize> = u.axes().iter().map(|a| usize::from(*a)).collect();
            Expr::from(graph::flip(g.uop(), &axes))
        }
        Op::Pad => {
            let keep: Vec<(Dim, Dim)> =
                (0..n).map(|k| (size(1 + k), graph::dim_op(Op::Add, &size(1 + k), &shape[k]))).collect();
            Expr::from(graph::shrink(g.uop(), &keep))
        }
        _ => {
            let counts: Vec<(Dim, Dim)> =
                (0..n).map(|k| (size(1 + k), graph::dim_op(Op::Sub, &shape[k], &size(1 + n + k)))).collect();
            Expr::from(graph::pad(g.uop(), &counts))
        }
    };
    Ok(std::iter::once(Some(back)).chain(u.src()[1..].iter().map(|_| None)).collect())
}

/// `v`, of the shape of `view`, carried back to the shape of `x`, of which `view` is movement; zeros elsewhere.
pub(crate) fn back_through_movement(view: &UOp, x: &UOp, v: Expr) -> Result<Expr, Problem> {
    let (mut at, mut v) = (view, v);
    while at != x {
        if !at.op().is_movement() {
            return Err(Problem::argument("the indices do not make a view"));
        }
        v = movement(at, &v)?.swap_remove(0).unwrap_or(v);
        at = &at.src()[0];
    }
    Ok(v)
}

/// The weight a gradient starts from.
fn start(root: &UOp, seed: Option<UOp>) -> Result<Expr, Problem> {
    if !root.dtype().is_float() {
        return Err(Problem::dtype(format!("{} has no gradient", root.dtype())));
    }
    match seed {
        Some(seed) if seed.shape() == root.shape() => Ok(Expr::from(graph::cast(&seed, root.dtype().scalar))),
        Some(seed) => {
            Err(Problem::shape(format!("the weight {} is not of shape {}", Shown(seed.shape()), Shown(root.shape()))))
        }
        None if root.shape().iter().all(|d| d.is(1)) => {
            Ok(Expr::from(graph::full(root.shape(), &UOp::constant(DType::of(root.dtype().scalar), 1.0))))
        }
        None => Err(Problem::shape("only a single number has a gradient without a weight")),
    }
}

/// Whether a node of the graph is a Tensor's current node.
fn stands_for(u: &UOp, now: &UOp) -> bool {
    u == now || u.realized() == Some(now)
}

impl Tensor {
    /// Gradients of this single number with respect to `targets`, of their shapes; zeros where it does not depend on
    /// one (through [`floor`](Elementwise::floor), a comparison or [`detach`](Elementwise::detach)).
    #[track_caller]
    pub fn gradient(&self, targets: &[&Tensor]) -> Vec<Tensor> {
        self.gradient_from(None, targets)
    }
    /// Gradients of `sum(self * weight)`; `weight` has the shape of `self`.
    #[track_caller]
    pub fn gradient_with(&self, weight: &Tensor, targets: &[&Tensor]) -> Vec<Tensor> {
        self.gradient_from(Some(weight), targets)
    }

    #[track_caller]
    fn gradient_from(&self, weight: Option<&Tensor>, targets: &[&Tensor]) -> Vec<Tensor> {
        let at = Location::caller();
        let made = || {
            let root = self.node()?;
            let weight = weight.map(Value::node).transpose()?;
            let nodes = targets.iter().map(|t| t.node()).collect::<Result<Vec<_>, _>>()?;
            let report = |problem| fault("gradient", problem, std::slice::from_ref(&root), at);
            if let Some(n) = nodes.iter().find(|n| !n.dtype().is_float()) {
                return Err(report(Problem::dtype(format!("a target of {} has no gradient", n.dtype()))));
            }
            let seed = start(&root, weight).map_err(report)?;
            let (grads, _) = gradients(&root, seed, |u| nodes.iter().any(|n| stands_for(u, n))).map_err(report)?;
            let of = |now: &UOp| {
                let mut hits = grads
                    .iter()
                    .filter(|(u, _)| stands_for(u, now))
                    .map(|(u, g)| (u.id(), g.clone()))
                    .collect::<Vec<_>>();
                sort::by_key(&mut hits, |(id, _)| *id);
                hits.into_iter().map(|(_, g)| g).reduce(|a, b| a.add(&b))
            };
            let absent =
                || Problem::argument("a target is not below this Tensor (was one of them realized in between?)");
            // `cat` and others leave a target without elements out of the graph; its gradient has no elements either.
            let is_below =
                |n: &UOp| n.shape().iter().any(|d| d.is(0)) || root.toposort().iter().any(|u| stands_for(u, n));
            let zeros = |n: &UOp| is_below(n).then(|| flat(n));
            let one = |n: &UOp| of(n).or_else(|| zeros(n)).ok_or_else(|| report(absent()));
            nodes.iter().map(one).collect::<Result<Vec<Expr>, _>>()
        };
        match made() {
            Ok(list) => list.into_iter().map(|g| Tensor::of(g.node())).collect(),
            Err(fault) => targets.iter().map(|_| Tensor::faulty(fault.clone())).collect(),
        }
    }

    /// Adds the gradient of this single number to `grad` of every Tensor below it that requires one; zeros where it
    /// does not depend on it. Tensors reached through [`detach`](Elementwise::detach) alone get nothing.
    ///
    /// # Errors
    /// This Tensor is an error or not a single float, or no Tensor below it requires a gradient.
    #[track_caller]
    pub fn backward(&self) -> Result<(), TensorError> {
        let at = Location::caller();
        let root = self.uop()?;
        let report = |problem| (*fault("backward", problem, std::slice::from_ref(&root), at)).clone();
        let seed = start(&root, None).map_err(report)?;
        let is_wanted = |u: &UOp| u.dtype().is_float() && !Tensor::watching(u).is_empty();
        let (grads, targets) = gradients(&root, seed, is_wanted).map_err(report)?;
        let mut wanted: Vec<(u64, Tensor, Expr)> = Vec::new();
        for u in &targets {
            let g = grads.get(u).cloned().unwrap_or_else(|| flat(u));
            wanted.extend(Tensor::watching(u).into_iter().map(|t| (u.id(), t, g.clone())));
        }
        wanted.retain(|(_, t, _)| !t.is(self));
        if wanted.is_empty() {
            return Err(report(Problem::argument("no Tensor below asked for a gradient")));
        }
        sort::by_key(&mut wanted, |(id, ..)| *id);
        for (_, t, g) in wanted {
            let g = match t.grad() {
                Some(there) => there.add(&Tensor::of(g.node())),
                None => Tensor::of(g.node()),
            };
            t.set_grad(Some(g));
            t.add_loss(self);
        }
        Ok(())
    }
}
