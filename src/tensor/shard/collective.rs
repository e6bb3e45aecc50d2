//! What devices pass to each other: gathering, reducing, and changing the axis of the parts. All of it is copies and
//! ordinary operations in the graph; the copies go through the devices' queues.

use super::{Layout, Sharded, on, slice};
use crate::tensor::error::Problem;
use crate::tensor::value::{Expr, Value};
use crate::tensor::{graph, join};
use crate::uop::{Dim, Op, UOp, numel};
use std::sync::Arc;

/// How partial results of several devices become one that all of them have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AllReduce {
    /// By the size: a tree for few elements, a ring for many.
    #[default]
    Auto,
    /// Each device combines one chunk, which comes to it around a ring, and the chunks go around once more: each link
    /// carries twice the data, whatever the number of devices.
    Ring,
    /// Pairs combine, then pairs of pairs, and the result goes back the same way: as many steps as the logarithm of
    /// the number of devices.
    Tree,
}

/// Values from this many elements on go around a ring.
const RING_ELEMENTS: i64 = 1 << 16;

/// The value in another layout.
pub(super) fn bring(s: &Sharded, to: Layout, how: AllReduce) -> Result<Sharded, Problem> {
    let parts = match (s.layout, to) {
        (Layout::Axis(k), Layout::Whole) => all_gather(s, k)?,
        (Layout::Whole, Layout::Axis(k)) => {
            s.parts.iter().enumerate().map(|(i, p)| slice(p, k, i, s.count())).collect::<Result<_, _>>()?
        }
        (Layout::Axis(j), Layout::Axis(k)) => all_to_all(s, j, k)?,
        (Layout::Partial(op), Layout::Axis(k)) => reduce_scatter(s, op, k)?,
        (Layout::Partial(op), Layout::Whole) => all_reduce(s, op, how)?,
        (from, Layout::Partial(_)) => return Err(Problem::argument(format!("{from:?} does not become partial"))),
        (Layout::Whole, Layout::Whole) => s.parts.clone(),
    };
    Ok(Sharded { parts, layout: to, devices: s.devices.clone() })
}

/// The value on one device.
pub(super) fn to_one(s: &Sharded, device: &Arc<str>) -> Result<UOp, Problem> {
    match s.layout {
        Layout::Whole => {
            let here = s.devices.iter().position(|d| d == device).unwrap_or(0);
            Ok(on(&s.parts[here], device))
        }
        Layout::Axis(k) => joined(s.parts.iter().map(|p| on(p, device)), k),
        Layout::Partial(op) => {
            let copies = s.parts.iter().map(|p| on(p, device));
            copies.reduce(|a, b| combined(op, &a, &b)).ok_or_else(|| Problem::argument("no devices"))
        }
    }
}

fn combined(op: Op, a: &UOp, b: &UOp) -> UOp {
    UOp::alu(op, [a.clone(), b.clone()])
}

/// The parts one after another along an axis.
fn joined(parts: impl Iterator<Item = UOp>, axis: usize) -> Result<UOp, Problem> {
    let parts: Vec<Expr> = parts.map(Expr::from).collect();
    let whole = join::cat(&parts, axis as i64)?;
    whole.node().map_err(|fault| fault.problem.clone())
}

/// What each device has of the part of device `from`, which goes around the ring.
fn around(part: &UOp, from: usize, devices: &[Arc<str>]) -> Vec<UOp> {
    let n = devices.len();
    let mut here = vec![part.clone(); n];
    for step in 1..n {
        let (before, at) = ((from + step - 1) % n, (from + step) % n);
        here[at] = on(&here[before], &devices[at]);
    }
    here
}

/// Each device gets all parts, each along the ring.
fn all_gather(s: &Sharded, axis: usize) -> Result<Vec<UOp>, Problem> {
    let everywhere: Vec<Vec<UOp>> = s.parts.iter().enumerate().map(|(j, p)| around(p, j, &s.devices)).collect();
    (0..s.count()).map(|i| joined(everywhere.iter().map(|part| part[i].clone()), axis)).collect()
}

/// Each device sends each other one what that has of the new axis.
fn all_to_all(s: &Sharded, from: usize, to: usize) -> Result<Vec<UOp>, Problem> {
    let n = s.count();
    let piece = |m: usize, i: usize| Ok(on(&slice(&s.parts[m], to, i, n)?, &s.devices[i]));
    (0..n)
        .map(|i| {
            let pieces = (0..n).map(|m| piece(m, i)).collect::<Result<Vec<UOp>, Problem>>()?;
            joined(pieces.into_iter(), from)
        })
        .collect()
}

/// Device `i` gets chunk `i` along an axis: it starts at the next device and comes around, each one adding its own.
fn reduce_scatter(s: &Sharded, op: Op, axis: usize) -> Result<Vec<UOp>, Problem> {
    let n = s.count();
    (0..n)
        .map(|i| {
            let mut sum = slice(&s.parts[(i + 1) % n], axis, i, n)?;
            for step in 2..=n {
                let at = (i + step) % n;
                sum = combined(op, &on(&sum, &s.devices[at]), &slice(&s.parts[at], axis, i, n)?);
            }
            Ok(sum)
        })
        .collect()
}

fn all_reduce(s: &Sharded, op: Op, how: AllReduce) -> Result<Vec<UOp>, Problem> {
    let len = numel(s.parts[0].shape()).as_int();
    match (how, len) {
        (AllReduce::Ring, Some(len)) if len > 0 => ring(s, op, len),
        (AllReduce::Auto, Some(len)) if len >= RING_ELEMENTS => ring(s, op, len),
        _ => Ok(tree(s, op)),
    }
}

/// Chunks of the flat value are reduced around the ring, then gathered around it.
fn ring(s: &Sharded, op: Op, len: i64) -> Result<Vec<UOp>, Problem> {
    let n = s.count() as i64;
    let padded = (len + n - 1) / n * n;
    let flat = s.map(s.layout, |(_, p)| {
        let flat = graph::reshape(p, &[Dim::Int(len)]);
        graph::pad(&flat, &[(Dim::Int(0), Dim::Int(padded - len))])
    });
    let chunks = reduce_scatter(&flat, op, 0)?;
    let chunks = Sharded { parts: chunks, layout: Layout::Axis(0), devices: s.devices.clone() };
    let shape = s.parts[0].shape();
    let whole = |p: UOp| graph::reshape(&graph::shrink(&p, &[(Dim::Int(0), Dim::Int(len))]), shape);
    Ok(all_gather(&chunks, 0)?.into_iter().map(whole).collect())
}

/// Device `i` takes that of device `i + step`, for steps of 1, 2, 4 ..; the result goes back by the same pairs.
fn tree(s: &Sharded, op: Op) -> Vec<UOp> {
    let n = s.count();
    let mut sums = s.parts.clone();
    let steps: Vec<usize> =
        std::iter::successors(Some(1), |step| Some(step * 2)).take_while(|step| *step < n).collect();
    for step in &steps {
        for i in (0..n).step_by(step * 2).filter(|i| i + step < n) {
            sums[i] = combined(op, &sums[i], &on(&sums[i + step], &s.devices[i]));
        }
    }
    for step in steps.iter().rev() {
        for i in (0..n).step_by(step * 2).filter(|i| i + step < n) {
            sums[i + step] = on(&sums[i], &s.devices[i + step]);
        }
    }
    sums
}
