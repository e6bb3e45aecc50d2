//! Conversions under the names of PyTorch and tinygrad, the default types, and bits as another type.

use super::elementwise::{Elementwise, to_float};
use super::error::Problem;
use super::movement::Movement;
use super::value::{Expr, Value, build};
use crate::uop::{DType, Dim, Scalar};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What can be the default float.
const FLOATS: [Scalar; 4] = [Scalar::F32, Scalar::F64, Scalar::F16, Scalar::BF16];
/// What can be the default integer.
const INTS: [Scalar; 8] = {
    use Scalar::*;
    [I32, I64, I16, I8, U8, U16, U32, U64]
};
static FLOAT: AtomicUsize = AtomicUsize::new(0);
static INT: AtomicUsize = AtomicUsize::new(0);

/// The type of float numbers without one: f32 unless changed. It is what `zeros`, `ones`, `rand`, `linspace` and
/// functions of integers give.
pub fn default_float() -> Scalar {
    FLOATS[FLOAT.load(Ordering::Relaxed)]
}
/// The type of whole numbers without one: i32 unless changed.
pub fn default_int() -> Scalar {
    INTS[INT.load(Ordering::Relaxed)]
}
/// Chooses the default float of the program: f16, bf16, f32 or f64 (`torch.set_default_dtype`, tinygrad's
/// `dtypes.default_float`).
///
/// # Errors
/// Any other type.
pub fn set_default_float(dtype: Scalar) -> Result<(), Problem> {
    chosen(&FLOATS, &FLOAT, dtype)
}
/// Chooses the default integer of the program (tinygrad's `dtypes.default_int`).
///
/// # Errors
/// A type that is no integer.
pub fn set_default_int(dtype: Scalar) -> Result<(), Problem> {
    chosen(&INTS, &INT, dtype)
}
fn chosen(list: &[Scalar], place: &AtomicUsize, dtype: Scalar) -> Result<(), Problem> {
    let at = list.iter().position(|t| *t == dtype);
    let at = at.ok_or_else(|| Problem::dtype(format!("{dtype} is no default: choose one of {list:?}")))?;
    place.store(at, Ordering::Relaxed);
    Ok(())
}

/// A weak type as the default one of its kind; every other type as it is.
pub(crate) fn strong(t: Scalar) -> Scalar {
    match t {
        Scalar::WeakInt => default_int(),
        Scalar::WeakFloat => default_float(),
        t => t,
    }
}

/// Casts by name. Each is [`Elementwise::cast`] to the type it names.
pub trait Convert: Value {
    /// f32, whatever it was: also from f16, bf16 and f64. (See [`Convert::as_float`].)
    #[track_caller]
    fn float(&self) -> Self {
        self.cast(Scalar::F32)
    }
    /// Floats stay what they are, everything else becomes the default float.
    #[track_caller]
    fn as_float(&self) -> Self {
        build("as_float", [self.node()], |[a]| Ok(to_float(a)))
    }
    /// f16
    #[track_caller]
    fn half(&self) -> Self {
        self.cast(Scalar::F16)
    }
    /// bf16
    #[track_caller]
    fn bfloat16(&self) -> Self {
        self.cast(Scalar::BF16)
    }
    /// f64
    #[track_caller]
    fn double(&self) -> Self {
        self.cast(Scalar::F64)
    }
    /// i32
    #[track_caller]
    fn int(&self) -> Self {
        self.cast(Scalar::I32)
    }
    /// i64
    #[track_caller]
    fn long(&self) -> Self {
        self.cast(Scalar::I64)
    }
    /// i16
    #[track_caller]
    fn short(&self) -> Self {
        self.cast(Scalar::I16)
    }
    /// i8
    #[track_caller]
    fn char(&self) -> Self {
        self.cast(Scalar::I8)
    }
    /// u8
    #[track_caller]
    fn byte(&self) -> Self {
        self.cast(Scalar::U8)
    }
    /// bool: whether an element is not zero (NaN is not zero).
    #[track_caller]
    fn bool(&self) -> Self {
        self.cast(Scalar::Bool)
    }
}

impl<V: Value> Convert for V {}

/// The unsigned integer of a size in bytes.
fn unsigned(bytes: usize) -> Scalar {
    match bytes {
        1 => Scalar::U8,
        2 => Scalar::U16,
        4 => Scalar::U32,
        _ => Scalar::U64,
    }
}

/// The same bits as `to`; the last axis grows or shrinks by the ratio of the sizes.
pub(crate) fn bitcast(x: &Expr, to: Scalar) -> Result<Expr, Problem> {
    let from = x.scalar();
    let (have, want) = (from.size_bytes(), to.size_bytes());
    if from == to {
        return Ok(x.clone());
    }
    if have == 0 || want == 0 {
        return Err(Problem::dtype(format!("{from} and {to}: one of them has no bits of its own")));
    }
    let same = |x: &Expr, t: Scalar| Expr::from(x.uop().bitcast(DType::of(t)));
    if have == want {
        return Ok(same(x, to));
    }
    let Some(last) = x.shape().last().cloned() else {
        return Err(Problem::shape(format!("a single number of {from} cannot become {to}: there is no last axis")));
    };
    let bits = same(x, unsigned(have));
    Ok(same(&if have < want { joined(&bits, &last, want / have)? } else { divided(&bits, have / want) }, to))
}

/// Every `n` neighbours of the last axis as one integer, the first one lowest.
fn joined(bits: &Expr, last: &Dim, n: usize) -> Result<Expr, Problem> {
    let size = bits.scalar().size_bytes();
    let wide = unsigned(size * n);
    let rows = super::graph::quotient(std::slice::from_ref(last), &[Dim::from(n)]);
    let rows = rows.ok_or_else(|| {
        Problem::shape(format!("the last axis has {last} elements: no whole number of groups of {n}"))
    })?;
    let groups = bits.unflatten(-1, [rows, Dim::from(n)]);
    let part = |k: usize| {
        let piece = groups.narrow(-1, k as i64, 1).squeeze(-1).cast(wide);
        if k == 0 { piece } else { piece.shl((8 * size * k) as i64) }
    };
    Ok((1..n).fold(part(0), |whole, k| whole.bitor(&part(k))))
}

/// Each integer as `n` smaller ones on the last axis, the lowest first.
fn divided(bits: &Expr, n: usize) -> Expr {
    let size = bits.scalar().size_bytes() / n;
    let places = Expr::from(crate::uop::UOp::iota(Dim::from(n).uop())).mul((8 * size) as i64).cast(bits.scalar());
    let pieces = bits.unsqueeze(-1).shr(&places).cast(unsigned(size));
    let rank = pieces.rank() as i64;
    pieces.flatten(rank - 2, rank - 1)
}
