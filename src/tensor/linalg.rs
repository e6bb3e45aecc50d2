//! Decompositions of matrices (the last two axes; all others are a batch), of static shape, and normalisation of
//! vectors.
//!
//! Every step of a decomposition is the same few kernels, compiled once: what changes from step to step (the column
//! that is worked on) is data. Half types are computed in f32.

use super::args;
use super::elementwise::Elementwise;
use super::error::{Fault, Problem, Shown};
use super::index::at_positions;
use super::movement::{Movement, positions};
use super::order::Order;
use super::product::Product;
use super::reduction::{Reduction, accumulated};
use super::value::{Expr, Value, fault, lift};
use crate::uop::{DType, Dim, Scalar, UOp};
use std::panic::Location;

/// Linear algebra.
pub trait Linalg: Value {
    /// `Q` (.., m, k) with orthonormal columns and an upper triangle `R` (.., k, n) whose product is this matrix, k the
    /// smaller of m and n: torch's `linalg.qr`, by Householder reflections with LAPACK's signs. Gradients pass through
    /// the reflections.
    ///
    /// # Errors
    /// Fewer than two axes, a symbolic one.
    #[track_caller]
    fn qr(&self) -> (Self, Self) {
        let [q, r] = several("qr", self.node(), |x| {
            let (m, n) = sizes(&x)?;
            let ((q, r), k) = (qr(&x)?, m.min(n));
            Ok([q.narrow(-1, 0, k), r.narrow(-2, 0, k)])
        });
        (q, r)
    }
    /// As [`Linalg::qr`], with all of `Q` (.., m, m), and `R` (.., m, n): `mode="complete"`, and tinygrad's `qr`.
    ///
    /// # Errors
    /// As [`Linalg::qr`].
    #[track_caller]
    fn qr_complete(&self) -> (Self, Self) {
        let [q, r] = several("qr", self.node(), |x| qr(&x).map(|(q, r)| [q, r]));
        (q, r)
    }
    /// `U`, the singular values in descending order, and `Vᵀ`, so that `U · diag(S) · Vᵀ` is this matrix: torch's
    /// `linalg.svd`, by one-sided Jacobi rotations. With `full_matrices` `U` is (.., m, m) and `Vᵀ` (.., n, n), else
    /// (.., m, k) and (.., k, n). Gradients are PyTorch's; the columns that only full matrices have get none, nor do
    /// vectors of equal singular values among each other.
    ///
    /// # Errors
    /// Fewer than two axes, a symbolic or an empty one.
    #[track_caller]
    fn svd(&self, full_matrices: bool) -> (Self, Self, Self) {
        let [u, s, v] = several("svd", self.node(), |x| {
            let (m, n) = sizes(&x)?;
            let (wide, t) = accumulated(&x);
            let [u, s, v] = if m >= n { svd(&wide, full_matrices)? } else { svd(&wide.t(), full_matrices)? };
            let (u, v) = if m >= n { (u, v) } else { (v, u) };
            Ok([u.cast(t), s.cast(t), v.t().cast(t)])
        });
        (u, s, v)
    }
    /// The matrix nearest to orthogonal, approximately: `steps` times `Σ params[i] (G Gᵀ)^i G`, from
    /// `G = self / (norm + eps)`. tinygrad's; Muon's parameters are `[3.4445, -4.775, 2.0315]`, `eps` 1e-7.
    ///
    /// # Errors
    /// Fewer than two axes, no parameters.
    #[track_caller]
    fn newton_schulz(&self, steps: usize, params: &[f64], eps: f64) -> Self {
        lift("newton_schulz", [self.node()], |[x]| {
            let (m, n) = sizes(&x)?;
            let (wide, t) = accumulated(&x);
            let mut g = wide.div(&wide.square().sum_keep([-2, -1]).sqrt().add(eps));
            if m > n {
                g = g.t();
            }
            for _ in 0..steps {
                let square = g.matmul(&g.t());
                let mut power = g.clone();
                let mut whole: Option<Expr> = None;
                for p in params {
                    let term = power.mul(*p);
                    whole = Some(whole.map_or_else(|| term.clone(), |w| w.add(&term)));
                    power = square.matmul(&power);
                }
                g = whole.ok_or_else(|| Problem::argument("a polynomial without coefficients"))?;
            }
            Ok(if m > n { g.t() } else { g }.cast(t))
        })
    }
    /// `self` divided by its `p`-norm along an axis, or by `eps` where that is larger: torch's
    /// `nn.functional.normalize` (`p` 2, axis 1, `eps` 1e-12 there). `p` 0 counts what is not zero, infinity takes the
    /// largest.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn normalize(&self, p: f64, axis: i64, eps: f64) -> Self {
        lift("normalize", [self.node()], |[x]| {
            args::axis(axis, x.rank())?;
            let (x, t) = accumulated(&x);
            Ok(x.div(&norm(&x, p, axis).maximum(eps)).cast(t))
        })
    }
    /// What the functions make of it, one after another: `x.sequential(&[&|x| x.relu(), &|x| layer.forward(x)])`.
    #[track_caller]
    fn sequential(&self, layers: &[&dyn Fn(&Self) -> Self]) -> Self {
        layers.iter().fold(self.clone(), |x, f| f(&x))
    }
}

impl<V: Value> Linalg for V {}

/// Several results of one source.
#[track_caller]
fn several<V: Value, const N: usize>(
    op: &'static str,
    source: Result<UOp, Fault>,
    f: impl FnOnce(Expr) -> Result<[Expr; N], Problem>,
) -> [V; N] {
    let at = Location::caller();
    let made = source.and_then(|x| {
        let made = f(Expr::from(x.clone())).and_then(|all| {
            all.iter().try_for_each(|e| e.node().map(|_| ()).map_err(|inner| inner.problem.clone()))?;
            Ok(all)
        });
        made.map_err(|problem| fault(op, problem, &[x], at))
    });
    match made {
        Ok(all) => all.map(|e| V::of(e.node())),
        Err(fault) => std::array::from_fn(|_| V::of(Err(fault.clone()))),
    }
}

/// Rows and columns of the last two axes.
fn sizes(x: &Expr) -> Result<(i64, i64), Problem> {
    let known = |k: usize| x.dim(x.rank() - k).as_int();
    match x.rank() {
        0 | 1 => Err(Problem::shape(format!("{} is not the shape of matrices", Shown(x.shape())))),
        _ => match (known(2), known(1)) {
            (Some(m), Some(n)) => Ok((m, n)),
            _ => Err(Problem::shape(format!("matrices of the symbolic shape {}", Shown(x.shape())))),
        },
    }
}

fn number(t: Scalar, v: i64) -> Expr {
    Expr::from(UOp::constant(DType::of(t), v))
}

/// The unit matrix under the batch axes of `x`.
fn unit(x: &Expr, n: i64) -> Expr {
    let mut shape = x.shape().to_vec();
    let rank = x.rank();
    shape[rank - 2] = Dim::Int(n);
    shape[rank - 1] = Dim::Int(n);
    positions(&shape, rank - 2).eq(&positions(&shape, rank - 1)).expand(&shape).cast(x.scalar())
}

/// A root whose slope at 0 is 0.
fn root(x: &Expr) -> Expr {
    let zero = x.eq(0);
    let safe = zero.where_(1, x).cast(x.scalar());
    zero.where_(0, &safe.sqrt()).cast(x.scalar())
}

fn norm(x: &Expr, p: f64, axis: i64) -> Expr {
    match p {
        0.0 => x.ne(0).sum_keep(axis).cast(x.scalar()),
        1.0 => x.abs().sum_keep(axis),
        2.0 => root(&x.square().sum_keep(axis)),
        p if p == f64::INFINITY => x.abs().max_keep(axis),
        p => x.abs().pow(p).sum_keep(axis).pow(1.0 / p),
    }
}

/// All of Q and R. The step's column is `at`, a number in memory.
fn qr(x: &Expr) -> Result<(Expr, Expr), Problem> {
    let (m, n) = sizes(x)?;
    let (x, t) = accumulated(x);
    let (mut r, mut q) = (x.contiguous(), unit(&x, m));
    if m == 1 && n > 0 {
        // No step: a unit, or no number.
        let only = r.narrow(-1, 0, 1).detach();
        q = only.is_nan().where_(&only, 1).cast(x.scalar());
    }
    let mut at = number(Scalar::I32, 0).reshape(vec![Dim::Int(1); x.rank()]);
    let row = positions(r.shape(), x.rank() - 2);
    // The last row is a triangle already.
    for _ in 0..n.min(m - 1) {
        let mut column = r.shape().to_vec();
        column[x.rank() - 1] = Dim::Int(1);
        let x_at = at_positions(&r, r.rank() - 1, &at.expand(&column));
        let below = row.gt(&at).where_(&x_at, 0).cast(x.scalar());
        let first = row.eq(&at).where_(&x_at, 0).cast(x.scalar()).sum_keep(-2);
        let rest = below.square().sum_keep(-2);
        // Nothing below: no reflection.
        let done = rest.eq(0);
        let length = done.where_(1, &first.square().add(&rest)).cast(x.scalar()).sqrt();
        let beta = first.lt(0).where_(&length, &length.neg());
        let tau = done.where_(0, &beta.sub(&first).div(&beta)).cast(x.scalar());
        let scale = done.where_(1, &first.sub(&beta)).cast(x.scalar());
        let v = row.eq(&at).where_(1, &below.div(&scale)).cast(x.scalar()).contiguous();
        let w = v.mul(&tau).contiguous();
        r = r.sub(&w.mul(&r.mul(&v).sum_keep(-2))).contiguous();
        q = q.sub(&q.matmul(&v).mul(&w.t())).contiguous();
        at = at.add(1).contiguous();
    }
    let upper = row.le(&positions(r.shape(), x.rank() - 1));
    let r = upper.where_(&r, 0).cast(x.scalar());
    Ok((q.cast(t), r.cast(t)))
}

/// U, S and V (not transposed) of matrices that are at least as high as wide.
fn svd(x: &Expr, full: bool) -> Result<[Expr; 3], Problem> {
    let (m, n) = sizes(x)?;
    if n == 0 {
        return Err(Problem::shape(format!("{} has no singular values", Shown(x.shape()))));
    }
    let a = x.detach();
    let (b, v) = rotated(&a, (m, n))?;
    let lengths = root(&b.square().sum(-2));
    let (_, order) = lengths.sort(-1, true);
    let sorted = |x: &Expr, rows: i64| {
        let mut shape = x.shape().to_vec();
        let at = x.rank() - 1;
        shape[at] = Dim::Int(n);
        shape[at - 1] = Dim::Int(rows);
        at_positions(x, at, &order.narrow(-1, 0, n).unsqueeze(-2).expand(shape)).contiguous()
    };
    // The columns of b are orthogonal: its R is a diagonal, and Q completes them where they are (nearly) zero.
    let (q, r) = qr(&sorted(&b, m))?;
    let size = r.shape().to_vec();
    let diagonal = positions(&size, x.rank() - 2).eq(&positions(&size, x.rank() - 1));
    let diagonal = diagonal.where_(&r, 0).cast(r.scalar()).sum_keep(-2);
    let sign = diagonal.lt(0).where_(-1, 1).cast(r.scalar());
    let (u, s) = (q.narrow(-1, 0, n).mul(&sign).contiguous(), diagonal.abs().squeeze(-2).contiguous());
    let v = sorted(&v, n);
    let [du, ds, dv] = differentials(x, [&u, &s, &v], (m, n));
    let thin = [u.add(&du), s.add(&ds), v.add(&dv)];
    if !full || m == n {
        return Ok(thin);
    }
    let [u, s, v] = thin;
    let all = super::join::cat(&[u, q.narrow(-1, n, m - n)], x.rank() as i64 - 1)?;
    Ok([all, s, v])
}

/// First-order changes of thin U, S and V with the matrix `x`: zero in value, and with the right gradient.
fn differentials(x: &Expr, [u, s, v]: [&Expr; 3], (m, n): (i64, i64)) -> [Expr; 3] {
    let change = x.sub(&x.detach());
    let inner = u.t().matmul(&change).matmul(v);
    let (row, column) = (s.unsqueeze(-1), s.unsqueeze(-2));
    let gap = column.square().sub(&row.square());
    // Equal values, and those of no size, have no such slope.
    let inverted = |x: &Expr| {
        let inverse = x.recip();
        inverse.is_finite().where_(&inverse, 0).cast(x.scalar())
    };
    let (f, inverse) = (inverted(&gap), inverted(&column));
    let square = inner.shape().to_vec();
    let on = positions(&square, square.len() - 2).eq(&positions(&square, square.len() - 1));
    let ds = on.where_(&inner, 0).cast(s.scalar()).sum(-1);
    let mut du = u.matmul(&f.mul(&inner.mul(&column).add(&inner.t().mul(&row))));
    let dv = v.matmul(&f.mul(&inner.mul(&row).add(&inner.t().mul(&column))));
    if m > n {
        let out = change.matmul(v);
        du = du.add(&out.sub(&u.matmul(&u.t().matmul(&out))).mul(&inverse));
    }
    [du, ds, dv]
}

/// `a` with its columns made orthogonal to each other by rotations, and the product of the rotations. An odd number of
/// columns has one of zeros beside them.
fn rotated(a: &Expr, (m, n): (i64, i64)) -> Result<(Expr, Expr), Problem> {
    let even = n + n % 2;
    let rank = a.rank();
    let mut more = vec![(0, 0); rank];
    more[rank - 1] = (0, even - n);
    let mut w = super::join::cat(&[a.clone(), unit(a, n)], rank as i64 - 2)?.pad(&more).contiguous();
    // Pairs meet as in a tournament: the first stays, the others move on by one seat after each round.
    let sweeps = 4 + (64 - (even as u64 - 1).leading_zeros()) + if a.scalar() == Scalar::F64 { 2 } else { 0 };
    let half = even / 2;
    for _ in 0..if n == 1 { 0 } else { i64::from(sweeps) * (even - 1) } {
        let (left, right) = (w.narrow(-1, 0, half), w.narrow(-1, half, half).flip(-1));
        let top = |x: &Expr| x.narrow(-2, 0, m);
        let (p, q) = (top(&left), top(&right));
        let alpha = p.square().sum_keep(-2);
        let beta = q.square().sum_keep(-2);
        let gamma = p.mul(&q).sum_keep(-2);
        let fine = gamma.eq(0);
        let tau = beta.sub(&alpha).div(&fine.where_(1, &gamma.mul(2)).cast(a.scalar()));
        let side = tau.lt(0).where_(-1, 1).cast(a.scalar());
        let t = side.div(&tau.abs().add(&tau.square().add(1).sqrt()));
        let t = fine.where_(0, &t).cast(a.scalar());
        let c = t.square().add(1).rsqrt().contiguous();
        let s = c.mul(&t).contiguous();
        let (left, right) = (c.mul(&left).sub(&s.mul(&right)), s.mul(&left).add(&c.mul(&right)));
        let seats = super::join::cat(&[left, right.flip(-1)], rank as i64 - 1)?;
        let part = |from: i64, len: i64| seats.narrow(-1, from, len);
        w = super::join::cat(&[part(0, 1), part(even - 1, 1), part(1, even - 2)], rank as i64 - 1)?.contiguous();
    }
    Ok((w.narrow(-2, 0, m), w.narrow(-2, m, n)))
}
