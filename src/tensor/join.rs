//! Joining several tensors, and repetitions, rotations and diagonals of one.

use super::args;
use super::elementwise::Elementwise;
use super::error::{Problem, Shown};
use super::graph;
use super::movement::{Movement, positions};
use super::value::{Expr, Value};
use crate::uop::{Dim, Op, UOp};

/// Tensors that one kernel joins: it tests each of them for every element, and each is one of the few buffers that a
/// kernel may have.
const JOINED_AT_ONCE: usize = 16;

/// Concatenation. Many are joined in groups first, the groups in memory: one more copy in place of a test of all of
/// them.
pub(crate) fn cat(xs: &[Expr], axis: i64) -> Result<Expr, Problem> {
    let Some(first) = xs.first() else { return Err(Problem::argument("nothing to join")) };
    let at = args::axis(axis, first.rank())?;
    for x in xs {
        x.node().map_err(|fault| fault.problem.clone())?;
        let fits = x.rank() == first.rank()
            && x.shape().iter().zip(first.shape()).enumerate().all(|(k, (a, b))| k == at || graph::same(a, b));
        if !fits {
            return Err(Problem::shape(format!(
                "{} and {} differ outside axis {at}",
                Shown(first.shape()),
                Shown(x.shape())
            )));
        }
    }
    let nodes: Vec<&UOp> = xs.iter().map(Expr::uop).collect();
    let to = graph::promoted(&nodes);
    let mut xs: Vec<Expr> = xs.iter().filter(|x| !x.dim(at).is(0)).map(|x| x.cast(to)).collect();
    while xs.len() > JOINED_AT_ONCE {
        let group = |xs: &[Expr]| joined(xs, at).map(|x| if xs.len() > 1 { x.contiguous() } else { x });
        xs = xs.chunks(JOINED_AT_ONCE).filter_map(group).collect();
    }
    Ok(joined(&xs, at).unwrap_or_else(|| first.cast(to)))
}

/// Each is padded to the whole, and selected in its own part; nothing for no tensors.
fn joined(xs: &[Expr], at: usize) -> Option<Expr> {
    let total = xs.iter().fold(Dim::Int(0), |sum, x| graph::dim_op(Op::Add, &sum, &x.dim(at)));
    let mut begin = Dim::Int(0);
    let mut whole: Option<Expr> = None;
    for x in xs {
        let end = graph::dim_op(Op::Add, &begin, &x.dim(at));
        let mut counts = vec![(Dim::Int(0), Dim::Int(0)); x.rank()];
        counts[at] = (begin, graph::dim_op(Op::Sub, &total, &end));
        let padded = Expr::from(graph::pad(x.uop(), &counts));
        whole = Some(match whole {
            None => padded,
            // -0.0 + 0.0 is +0.0 and would lose a sign: a select keeps every bit.
            Some(left) => positions(padded.shape(), at).lt(&Expr::from(counts[at].0.uop())).where_(&left, &padded),
        });
        begin = end;
    }
    whole
}

pub(crate) fn repeat(x: &Expr, counts: &[usize]) -> Result<Expr, Problem> {
    if counts.len() < x.rank() {
        return Err(Problem::argument(format!("{} counts for rank {}", counts.len(), x.rank())));
    }
    let mut own = vec![Dim::Int(1); counts.len() - x.rank()];
    own.extend(x.shape().iter().cloned());
    let (mut spread, mut wide, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (n, d) in counts.iter().zip(&own) {
        let n = Dim::from(*n);
        out.push(graph::dim_op(Op::Mul, d, &n));
        spread.extend([Dim::Int(1), d.clone()]);
        wide.extend([n, d.clone()]);
    }
    Ok(x.reshape(spread).expand(wide).reshape(out))
}

pub(crate) fn roll(x: &Expr, shift: i64, axis: i64) -> Result<Expr, Problem> {
    let at = args::axis(axis, x.rank())?;
    let Some(size) = x.dim(at).as_int() else { return roll_symbolic(x, shift, at) };
    let shift = if size == 0 { 0 } else { shift.rem_euclid(size) };
    if shift == 0 {
        return Ok(x.clone());
    }
    let part = |from: i64, len: i64| x.narrow(at as i64, from, len);
    cat(&[part(size - shift, shift), part(0, size - shift)], at as i64)
}

/// Along an axis whose size is a variable, by fewer elements than it has at least.
fn roll_symbolic(x: &Expr, shift: i64, at: usize) -> Result<Expr, Problem> {
    let size = x.dim(at);
    if i128::from(shift.unsigned_abs()) > size.uop().vmin() {
        return Err(Problem::argument(format!("a shift of {shift} along an axis whose size {size} may be less")));
    }
    if shift == 0 {
        return Ok(x.clone());
    }
    let by = Dim::Int(shift.saturating_abs());
    let rest = graph::dim_op(Op::Sub, &size, &by);
    let zero = Dim::Int(0);
    let part = |from: &Dim, len: &Dim| x.narrow(at as i64, from, len.clone());
    let parts = if shift > 0 { [part(&rest, &by), part(&zero, &rest)] } else { [part(&by, &rest), part(&zero, &by)] };
    Ok(cat(&parts, at as i64)?.reshape(x.shape()))
}

pub(crate) fn diag(x: &Expr) -> Result<Expr, Problem> {
    let [n] = x.shape() else {
        return Err(Problem::shape(format!("{} is not the shape of a vector", Shown(x.shape()))));
    };
    let square = [n.clone(), n.clone()];
    let mask = positions(&square, 0).eq(&positions(&square, 1));
    Ok(mask.where_(&x.unsqueeze(1).expand(&square), 0).cast(x.scalar()))
}

pub(crate) fn diagonal(x: &Expr, offset: i64, a: i64, b: i64) -> Result<Expr, Problem> {
    let (a, b) = (args::axis(a, x.rank())?, args::axis(b, x.rank())?);
    if a == b {
        return Err(Problem::AxisTwice { axis: a });
    }
    let mut order: Vec<i64> = (0..x.rank()).filter(|k| *k != a && *k != b).map(|k| k as i64).collect();
    order.extend([a as i64, b as i64]);
    let (down, right) = (offset.saturating_neg().max(0), offset.max(0));
    let sizes = (x.dim(a), x.dim(b));
    let x = x.permute(order);
    let r = x.rank() as i64;
    let (m, n) = match sizes {
        (Dim::Int(m), Dim::Int(n)) => (m, n),
        (m, n) if m == n => {
            let len = graph::dim_op(Op::Sub, &n, &Dim::Int(down.max(right)));
            return Ok(super::index::on_diagonal(&x.narrow(r - 2, down, &len).narrow(r - 1, right, &len)));
        }
        (m, n) => return Err(Problem::shape(format!("a diagonal of {m} by {n}, which differ by a variable"))),
    };
    let len = m.saturating_sub(down).min(n.saturating_sub(right)).max(0);
    let block = x.narrow(r - 2, down.min(m), len).narrow(r - 1, right.min(n), len);
    // Element (i, i) of a len x len block is number i * (len + 1) of its elements: in rows of len + 1, the first of
    // each.
    let rest = x.shape()[..x.rank() - 2].to_vec();
    let flat = block.reshape([rest.as_slice(), &[Dim::Int(len.saturating_mul(len))]].concat());
    let mut counts = vec![(0, 0); flat.rank()];
    counts[flat.rank() - 1] = (0, len);
    let rows = flat.pad(&counts).reshape([rest.as_slice(), &[Dim::Int(len), Dim::Int(len + 1)]].concat());
    Ok(rows.narrow(-1, 0, 1).reshape([rest.as_slice(), &[Dim::Int(len)]].concat()))
}

pub(crate) fn grid(xs: &[Expr], k: usize) -> Result<Expr, Problem> {
    let mut shape = Vec::with_capacity(xs.len());
    for x in xs {
        shape.push(match x.shape() {
            [] => Dim::Int(1),
            [n] => n.clone(),
            more => return Err(Problem::shape(format!("{} is not the shape of a vector", Shown(more)))),
        });
    }
    let mut own = vec![Dim::Int(1); xs.len()];
    own[k] = shape[k].clone();
    Ok(xs[k].reshape(own).expand(shape))
}
