//! What the op vocabulary needs of the values that it is implemented for: access to their node, and construction from a
//! node.
//!
//! [`Tensor`](super::Tensor), [`UOp`] and the room's own `Expr` are [`Value`]s; the traits
//! [`Elementwise`](super::Elementwise), [`Movement`](super::Movement), [`Reduction`](super::Reduction) and
//! [`Composite`](super::Composite) give every op to all of them. A UOp has no room for an error value, so a faulty one
//! is a void constant whose argument is the error's text; anything built on it by these traits keeps that text.

use super::error::{Fault, Problem, TensorError};
use super::shard::SEPARATOR;
use crate::uop::{Arg, ConstVal, DType, Dim, Made, Op, Scalar, UOp};
use std::panic::Location;
use std::sync::Arc;

/// A value of the tensor language.
pub trait Value: Clone + Sized {
    /// Its node, or the first fault below it.
    fn node(&self) -> Result<UOp, Fault>;
    /// The value of a node.
    fn of(node: Result<UOp, Fault>) -> Self;
    /// As `of`, for what a user's call of `made.op` gave: errors that are found late name it.
    #[doc(hidden)]
    fn made(node: Result<UOp, Fault>, _made: Made) -> Self {
        Self::of(node)
    }
}

impl Value for UOp {
    #[track_caller]
    fn node(&self) -> Result<UOp, Fault> {
        match self.arg() {
            Arg::Str(text) if self.op() == Op::Const => Err(Arc::new(TensorError {
                op: "uop",
                problem: Problem::Carried(text.to_string()),
                sources: Vec::new(),
                at: Location::caller(),
            })),
            _ => Ok(self.clone()),
        }
    }
    fn of(node: Result<UOp, Fault>) -> UOp {
        node.unwrap_or_else(|fault| {
            let text = match &fault.problem {
                Problem::Carried(text) => text.clone(),
                _ => fault.to_string(),
            };
            UOp::new(Op::Const, DType::VOID, [], Arg::Str(text.into()))
        })
    }
}

/// The other operand of a binary op: a value, or a number that takes the other operand's dtype.
pub trait Operand<V: Value> {
    /// Its node, or the fault that it carries.
    fn operand(self) -> Result<UOp, Fault>;
}
impl<V: Value> Operand<V> for &V {
    fn operand(self) -> Result<UOp, Fault> {
        self.node()
    }
}
impl Operand<UOp> for UOp {
    fn operand(self) -> Result<UOp, Fault> {
        self.node()
    }
}
impl Operand<Expr> for Expr {
    fn operand(self) -> Result<UOp, Fault> {
        self.node()
    }
}
impl<V: Value> Operand<V> for ConstVal {
    fn operand(self) -> Result<UOp, Fault> {
        Ok(UOp::constant(
            DType::of(match self {
                ConstVal::Bool(_) => Scalar::Bool,
                // Only one type has it.
                ConstVal::Int(i) if i > i64::MAX.into() => Scalar::U64,
                ConstVal::Int(_) => Scalar::WeakInt,
                ConstVal::Float(_) => Scalar::WeakFloat,
            }),
            self,
        ))
    }
}
/// Number types of Rust that become weak constants.
macro_rules! numbers {
    ($($t:ty => $make:expr;)*) => {$(
        impl<V: Value> Operand<V> for $t {
            fn operand(self) -> Result<UOp, Fault> {
                let make: fn($t) -> ConstVal = $make;
                Operand::<V>::operand(make(self))
            }
        }
    )*};
}
numbers! {
    bool => ConstVal::Bool;
    i32 => |i| ConstVal::Int(i.into());
    i64 => |i| ConstVal::Int(i.into());
    u8 => |i| ConstVal::Int(i.into());
    u32 => |i| ConstVal::Int(i.into());
    u64 => |i| ConstVal::Int(i.into());
    usize => |i| ConstVal::Int(i128::try_from(i).unwrap_or(i128::MAX));
    f32 => |x| ConstVal::Float(x.into());
    f64 => ConstVal::Float;
}

/// A value while an op is being built: a node with its shape, or an error (then the shape is that of a scalar).
#[derive(Clone)]
pub(crate) struct Expr {
    node: UOp,
    fault: Option<Fault>,
}

impl Value for Expr {
    fn node(&self) -> Result<UOp, Fault> {
        match &self.fault {
            None => Ok(self.node.clone()),
            Some(fault) => Err(fault.clone()),
        }
    }
    fn of(node: Result<UOp, Fault>) -> Expr {
        match node {
            Ok(node) => Expr { node, fault: None },
            Err(fault) => Expr { node: UOp::bool(false), fault: Some(fault) },
        }
    }
}

impl From<UOp> for Expr {
    fn from(node: UOp) -> Expr {
        Expr { node, fault: None }
    }
}

impl Expr {
    pub(crate) fn uop(&self) -> &UOp {
        &self.node
    }
    pub(crate) fn shape(&self) -> &[Dim] {
        self.node.shape()
    }
    pub(crate) fn rank(&self) -> usize {
        self.shape().len()
    }
    /// Size of an axis; 1 for one that is not there.
    pub(crate) fn dim(&self, axis: usize) -> Dim {
        self.shape().get(axis).cloned().unwrap_or(Dim::Int(1))
    }
    pub(crate) fn scalar(&self) -> Scalar {
        self.node.dtype().scalar
    }
}

/// Builds the result of method `op` from its sources' nodes. The first faulty source is the result; a problem becomes a
/// fault at the caller's line.
#[track_caller]
pub(crate) fn build<V: Value, const N: usize>(
    op: &'static str,
    sources: [Result<UOp, Fault>; N],
    f: impl FnOnce(&[UOp; N]) -> Result<UOp, Problem>,
) -> V {
    let (at, mut f) = (Location::caller(), Some(f));
    // PANIC: called once at most, with as many nodes as there are sources.
    let made = built(op, at, &mut sources.into_iter(), &mut |nodes| f.take().unwrap()(nodes.try_into().unwrap()));
    V::made(made, Made { op, at })
}

/// What [`build`] does for every type and number of sources: compiled once.
fn built(
    op: &'static str,
    at: &'static Location<'static>,
    sources: &mut dyn Iterator<Item = Result<UOp, Fault>>,
    f: &mut dyn FnMut(&[UOp]) -> Result<UOp, Problem>,
) -> Result<UOp, Fault> {
    let nodes = sources.collect::<Result<Vec<UOp>, Fault>>()?;
    let made = one_device(&nodes).and_then(|()| f(&nodes));
    made.map_err(|problem| fault(op, problem, &nodes, at))
}

/// Values of an op lie on one device (numbers lie on none).
fn one_device(nodes: &[UOp]) -> Result<(), Problem> {
    let mut devices = nodes.iter().filter_map(UOp::device);
    let Some(first) = devices.next() else { return Ok(()) };
    match devices.find(|d| *d != first) {
        Some(second) if [first, second].iter().any(|d| d.contains(SEPARATOR)) => {
            Err(super::shard::apart(first, second))
        }
        Some(second) => Err(Problem::Devices { first: first.clone(), second: second.clone() }),
        None => Ok(()),
    }
}

/// As [`build`], with expressions: a fault inside is reported as this op's.
#[track_caller]
pub(crate) fn lift<V: Value, const N: usize>(
    op: &'static str,
    sources: [Result<UOp, Fault>; N],
    f: impl FnOnce([Expr; N]) -> Result<Expr, Problem>,
) -> V {
    build(op, sources, |nodes| lifted(f(nodes.clone().map(Expr::from))))
}

fn lifted(made: Result<Expr, Problem>) -> Result<UOp, Problem> {
    made?.node().map_err(|inner| inner.problem.clone())
}

/// As [`lift`], for any number of sources of any number of results.
#[track_caller]
pub(crate) fn lift_many<V: Value>(
    op: &'static str,
    sources: &[Result<UOp, Fault>],
    f: impl FnOnce(Vec<Expr>) -> Result<Expr, Problem>,
) -> V {
    let (at, mut f) = (Location::caller(), Some(f));
    // PANIC: called once at most.
    let mut f = |nodes: &[UOp]| lifted(f.take().unwrap()(nodes.iter().cloned().map(Expr::from).collect()));
    V::made(built(op, at, &mut sources.iter().cloned(), &mut f), Made { op, at })
}

pub(crate) fn fault(op: &'static str, problem: Problem, nodes: &[UOp], at: &'static Location<'static>) -> Fault {
    let sources = nodes.iter().map(|u| (u.shape().to_vec(), u.dtype())).collect();
    Arc::new(TensorError { op, problem, sources, at })
}
