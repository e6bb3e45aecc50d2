//! Shapes: the size of each axis, an integer or a symbolic expression with known bounds, derived from op and sources.
//!
//! Inference is total: a malformed node gets some shape, and `spec` (or the Tensor that builds it) reports the error.

use super::{Arg, ConstVal, DType, Op, UOp};
use std::fmt;
use std::sync::Arc;

/// Size of one axis.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Int(i64),
    /// A WeakInt expression over variables; never a constant.
    Sym(UOp),
}

impl Dim {
    /// The size if it is known; `None` if it is symbolic.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Dim::Int(i) => Some(*i),
            Dim::Sym(_) => None,
        }
    }
    /// The size as an index expression.
    pub fn uop(&self) -> UOp {
        match self {
            Dim::Int(i) => UOp::int(*i),
            Dim::Sym(u) => u.clone(),
        }
    }
    /// Largest value the size can have.
    pub fn max(&self) -> i64 {
        match self {
            Dim::Int(i) => *i,
            Dim::Sym(u) => u.vmax().clamp(0, i64::MAX as i128) as i64,
        }
    }
    /// Whether it is known to be `n`.
    pub fn is(&self, n: i64) -> bool {
        matches!(self, Dim::Int(i) if *i == n)
    }
}
/// Sizes compare with numbers: `x.shape()? == [2, 3]`.
macro_rules! compared {
    ($($t:ty)*) => {$(
        impl PartialEq<$t> for Dim {
            fn eq(&self, n: &$t) -> bool {
                matches!((self, i64::try_from(*n)), (Dim::Int(i), Ok(n)) if *i == n)
            }
        }
    )*};
}
compared!(i32 i64 usize);

impl From<i64> for Dim {
    fn from(i: i64) -> Dim {
        Dim::Int(i)
    }
}
impl From<usize> for Dim {
    fn from(i: usize) -> Dim {
        Dim::Int(i64::try_from(i).unwrap_or(i64::MAX))
    }
}
impl From<&UOp> for Dim {
    fn from(u: &UOp) -> Dim {
        match (u.op(), u.arg()) {
            (Op::Const, Arg::Const(ConstVal::Int(i))) => {
                Dim::Int((*i).clamp(i64::MIN as i128, i64::MAX as i128) as i64)
            }
            _ => Dim::Sym(u.clone()),
        }
    }
}
impl From<UOp> for Dim {
    fn from(u: UOp) -> Dim {
        Dim::from(&u)
    }
}
impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Int(i) => write!(f, "{i}"),
            Dim::Sym(u) => write!(f, "{}", u.render()),
        }
    }
}
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Number of elements; symbolic if an axis is.
pub fn numel(shape: &[Dim]) -> Dim {
    let mut int = 1i64;
    let mut sym: Option<UOp> = None;
    for d in shape {
        match d {
            Dim::Int(i) => int = int.saturating_mul(*i),
            Dim::Sym(u) => sym = Some(sym.map_or_else(|| u.clone(), |s| &s * u)),
        }
    }
    match sym {
        None => Dim::Int(int),
        Some(_) if int == 0 => Dim::Int(0),
        Some(s) => Dim::from((&s * int).simplify()),
    }
}

fn dims(src: &[UOp]) -> Option<Arc<[Dim]>> {
    (!src.is_empty()).then(|| src.iter().map(Dim::from).collect())
}

/// `b - a` (or `a + b`) on sizes, staying an integer where both are.
fn combine(a: &UOp, b: &UOp, op: Op) -> Dim {
    match (Dim::from(a), Dim::from(b)) {
        (Dim::Int(x), Dim::Int(y)) if op == Op::Sub => Dim::Int(x.saturating_sub(y)),
        (Dim::Int(x), Dim::Int(y)) => Dim::Int(x.saturating_add(y)),
        (x, Dim::Int(0)) => x,
        (Dim::Int(0), y) if op == Op::Add => y,
        _ => Dim::from(UOp::new(op, DType::INDEX, [a.clone(), b.clone()], Arg::None).simplify()),
    }
}

/// A size so many times.
fn times(d: &Dim, n: usize) -> Dim {
    match (d, i64::try_from(n)) {
        (Dim::Int(size), Ok(n)) => Dim::Int(size.saturating_mul(n)),
        _ => Dim::from((&d.uop() * i64::try_from(n).unwrap_or(i64::MAX)).simplify()),
    }
}

/// The shape of a node with these parts; `None` is the scalar shape.
pub(super) fn infer(op: Op, src: &[UOp], arg: &Arg) -> Option<Arc<[Dim]>> {
    match op {
        Op::Buffer => match arg {
            Arg::Buffer(b) => Some([Dim::from(b.0.len)].into()),
            _ => None,
        },
        // A graph parameter (value, not address) carries its length like a buffer; a kernel's address has no shape.
        Op::Param if !src.is_empty() => dims(src),
        Op::Iota => dims(src),
        Op::Custom => match arg {
            Arg::Custom(c) if !c.shape.is_empty() => Some(c.shape.as_slice().into()),
            _ => None,
        },
        Op::Reshape | Op::Expand => src.get(1..).and_then(dims),
        Op::Permute => {
            let (s, Arg::Axes(axes)) = (src.first()?.shape(), arg) else { return None };
            Some(axes.iter().filter_map(|a| s.get(*a as usize).cloned()).collect())
        }
        Op::Pad => {
            let s = src.first()?.shape();
            let n = s.len();
            (n > 0 && src.len() == 1 + 2 * n).then(|| {
                (0..n)
                    .map(|k| {
                        let grown = combine(&s[k].uop(), &src[1 + k], Op::Add);
                        combine(&grown.uop(), &src[1 + n + k], Op::Add)
                    })
                    .collect()
            })
        }
        Op::Shrink => {
            let n = src.first()?.shape().len();
            (n > 0 && src.len() == 1 + 2 * n)
                .then(|| (0..n).map(|k| combine(&src[1 + n + k], &src[1 + k], Op::Sub)).collect())
        }
        Op::Reduce => {
            let x = src.first()?;
            match arg {
                Arg::Reduce(_, axes) if !axes.is_empty() => {
                    let mut s = x.shape().to_vec();
                    for a in axes {
                        if let Some(d) = s.get_mut(*a as usize) {
                            *d = Dim::Int(1);
                        }
                    }
                    Some(s.into())
                }
                _ => x.shape_handle(),
            }
        }
        Op::Shard => {
            let mut shape = src.first()?.shape().to_vec();
            if let Arg::Axes(axes) = arg
                && let Some(d) = axes.first().and_then(|k| shape.get_mut(usize::from(*k)))
            {
                *d = times(d, src.len());
            }
            Some(shape.into())
        }
        Op::Part => {
            let mut shape = src.first()?.shape().to_vec();
            if let Arg::Axes(axes) = arg
                && let [_, n, k] = axes[..]
                && let Some(Dim::Int(size)) = shape.get_mut(usize::from(k))
            {
                *size /= i64::from(n).max(1);
            }
            Some(shape.into())
        }
        // Elementwise ops have sources of one shape; a Const source is a scalar and broadcasts.
        _ if op.is_elementwise() => src.iter().find_map(UOp::shape_handle),
        Op::Flip
        | Op::Contiguous
        | Op::ContiguousBackward
        | Op::Detach
        | Op::Copy
        | Op::Assign
        | Op::After
        | Op::Fused => src.first()?.shape_handle(),
        _ => None,
    }
}
