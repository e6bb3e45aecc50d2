//! Tensors from nothing but a shape, and from host data.

use super::args::IntoShape;
use super::convert::{default_float, default_int, strong};
use super::device_name::canonical;
use super::elementwise::Elementwise;
use super::error::{Fault, Problem, Shown};
use super::graph;
use super::handle::{Tensor, default_device};
use super::movement::{Movement, check_sizes, positions};
use super::value::{Expr, Value, build, lift};
use crate::uop::{ConstVal, Dim, Op, Scalar, UOp};

/// A Rust type that one element can be.
pub trait Element: Copy + Send + Sync + 'static {
    /// The dtype that holds this type.
    const SCALAR: Scalar;
    /// Appends the elements' little-endian bytes.
    fn put(list: &[Self], bytes: &mut Vec<u8>);
    /// The elements that these little-endian bytes hold; what is left of a broken last element is ignored.
    fn get(bytes: &[u8]) -> Vec<Self>;
    /// Nearest element to a constant.
    fn from_const(c: ConstVal) -> Self;
}

/// Rust's number types and their element types.
macro_rules! elements {
    ($($t:ty, $scalar:ident, $n:literal, $from:expr;)*) => {$(
        impl Element for $t {
            const SCALAR: Scalar = Scalar::$scalar;
            fn put(list: &[Self], bytes: &mut Vec<u8>) {
                bytes.reserve(list.len() * $n);
                list.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
            }
            fn get(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks::<$n>().0.iter().map(|c| <$t>::from_le_bytes(*c)).collect()
            }
            fn from_const(c: ConstVal) -> Self {
                let from: fn(ConstVal) -> $t = $from;
                from(c)
            }
        }
    )*};
}
fn int(c: ConstVal) -> i128 {
    c.as_int().unwrap_or_else(|| c.as_f64() as i128)
}
elements! {
    i8, I8, 1, |c| int(c) as i8;
    u8, U8, 1, |c| int(c) as u8;
    i16, I16, 2, |c| int(c) as i16;
    u16, U16, 2, |c| int(c) as u16;
    i32, I32, 4, |c| int(c) as i32;
    u32, U32, 4, |c| int(c) as u32;
    i64, I64, 8, |c| int(c) as i64;
    u64, U64, 8, |c| int(c) as u64;
    f32, F32, 4, |c| c.as_f64() as f32;
    f64, F64, 8, ConstVal::as_f64;
    half::f16, F16, 2, |c| half::f16::from_f64(c.as_f64());
    half::bf16, BF16, 2, |c| half::bf16::from_f64(c.as_f64());
}
impl Element for bool {
    const SCALAR: Scalar = Scalar::Bool;
    fn put(list: &[bool], bytes: &mut Vec<u8>) {
        bytes.extend(list.iter().map(|b| u8::from(*b)));
    }
    fn get(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|b| *b != 0).collect()
    }
    fn from_const(c: ConstVal) -> bool {
        !c.is_zero()
    }
}

/// Numbers, arrays and Vecs of them, nested to any depth.
pub trait Nested {
    /// The type of the numbers inside.
    type Element: Element;
    /// Appends the elements in row-major order and returns the shape; `None` when rows differ in shape.
    fn flatten_into(&self, out: &mut Vec<Self::Element>) -> Option<Vec<usize>>;
}
macro_rules! scalars_nest {
    ($($t:ty)*) => {$(
        impl Nested for $t {
            type Element = $t;
            fn flatten_into(&self, out: &mut Vec<$t>) -> Option<Vec<usize>> {
                out.push(*self);
                Some(Vec::new())
            }
        }
    )*};
}
scalars_nest! { bool i8 u8 i16 u16 i32 u32 i64 u64 f32 f64 half::f16 half::bf16 }
impl<T: Nested> Nested for [T] {
    type Element = T::Element;
    fn flatten_into(&self, out: &mut Vec<T::Element>) -> Option<Vec<usize>> {
        let mut inner: Option<Vec<usize>> = None;
        for row in self {
            let shape = row.flatten_into(out)?;
            if inner.get_or_insert_with(|| shape.clone()) != &shape {
                return None;
            }
        }
        Some(std::iter::once(self.len()).chain(inner.unwrap_or_default()).collect())
    }
}
impl<T: Nested> Nested for Vec<T> {
    type Element = T::Element;
    fn flatten_into(&self, out: &mut Vec<T::Element>) -> Option<Vec<usize>> {
        self.as_slice().flatten_into(out)
    }
}
impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;
    fn flatten_into(&self, out: &mut Vec<T::Element>) -> Option<Vec<usize>> {
        self.as_slice().flatten_into(out)
    }
}
impl<T: Nested + ?Sized> Nested for &T {
    type Element = T::Element;
    fn flatten_into(&self, out: &mut Vec<T::Element>) -> Option<Vec<usize>> {
        (**self).flatten_into(out)
    }
}

/// The dtype of a Tensor made of a plain number: the default int or float, a longer int where that cannot hold the
/// number.
pub(super) fn own_type(c: ConstVal) -> Scalar {
    let holds = |t: &&Scalar, i: i128| (t.int_range().0..=t.int_range().1).contains(&i);
    match c {
        ConstVal::Bool(_) => Scalar::Bool,
        ConstVal::Int(i) => [default_int(), Scalar::I64].iter().find(|t| holds(t, i)).copied().unwrap_or(Scalar::U64),
        ConstVal::Float(_) => default_float(),
    }
}

impl Tensor {
    /// Host data: a number, a slice, a nested array or Vec. It is copied to the default device when it is first needed.
    #[track_caller]
    pub fn new(data: impl Nested) -> Tensor {
        let mut list = Vec::new();
        let shape = data.flatten_into(&mut list);
        build("new", [], |[]| {
            let shape = shape.ok_or_else(|| Problem::shape("the rows of the data differ in shape"))?;
            Ok(host(&list, &shape.iter().map(|n| Dim::from(*n)).collect::<Vec<_>>()))
        })
    }
    /// Elements in row-major order under a shape.
    #[track_caller]
    pub fn from_slice<T: Element>(list: &[T], shape: impl IntoShape) -> Tensor {
        let shape = shape.into_shape();
        build("from_slice", [], |[]| {
            let shape = super::movement::inferred(&[Dim::from(list.len())], shape)?;
            Ok(host(list, &shape))
        })
    }
    /// Little-endian bytes of elements in row-major order under a shape, on a named device.
    #[track_caller]
    pub fn from_bytes(bytes: Vec<u8>, dtype: Scalar, shape: impl IntoShape, device: &str) -> Tensor {
        let shape = shape.into_shape();
        build("from_bytes", [], |[]| {
            let size = dtype.size_bytes();
            if size == 0 || !bytes.len().is_multiple_of(size) {
                return Err(Problem::argument(format!("{} bytes are no whole number of {dtype}", bytes.len())));
            }
            let len = bytes.len() / size;
            let shape = super::movement::inferred(&[Dim::from(len)], shape)?;
            Ok(graph::reshape(&Tensor::host_data(bytes, dtype, len, device.into()), &shape))
        })
    }
    /// Memory with no value yet, to be assigned to.
    #[track_caller]
    pub fn empty(shape: impl IntoShape, dtype: Scalar) -> Tensor {
        let shape = shape.into_shape();
        build("empty", [], |[]| {
            if dtype.size_bytes() == 0 {
                return Err(Problem::dtype(format!("{dtype} has no form in memory")));
            }
            let len = known(&shape)?;
            Ok(graph::reshape(&Tensor::buffer(dtype, len, default_device()), &shape))
        })
    }
    /// One number everywhere, without memory: i32 (i64 or u64 for a number beyond it), f32 or bool as the number is
    /// written (`cast` for others).
    #[track_caller]
    pub fn full(shape: impl IntoShape, value: impl Into<ConstVal>) -> Tensor {
        let value = value.into();
        Tensor::full_of(shape, value, own_type(value))
    }
    /// As [`Tensor::full`], with the dtype named, which has the number among its values.
    #[track_caller]
    pub fn full_of(shape: impl IntoShape, value: impl Into<ConstVal>, dtype: Scalar) -> Tensor {
        let (shape, value) = (shape.into_shape(), value.into());
        build("full", [], |[]| {
            check_sizes(&shape)?;
            Ok(graph::full(&shape, &graph::constant(value, dtype)?))
        })
    }
    /// Zeros of the default float, f32 unless changed ([`set_default_float`](super::set_default_float)).
    #[track_caller]
    pub fn zeros(shape: impl IntoShape) -> Tensor {
        Tensor::full_of(shape, 0.0, default_float())
    }
    /// Ones of the default float.
    #[track_caller]
    pub fn ones(shape: impl IntoShape) -> Tensor {
        Tensor::full_of(shape, 1.0, default_float())
    }
    /// 0, 1 .. n-1 without memory: i32, or i64 for more than that counts.
    #[track_caller]
    pub fn arange(n: impl super::IntoDim) -> Tensor {
        let n = n.into_dim();
        build("arange", [], |[]| {
            check_sizes(std::slice::from_ref(&n))?;
            Ok(graph::cast(&UOp::iota(n.uop()), super::index::position_type(n.max().saturating_sub(1))))
        })
    }
    /// `start`, `start + step` .. before `stop`: i32 where all three are whole (i64 where one is beyond i32), else the
    /// default float.
    #[track_caller]
    pub fn arange_step(start: f64, stop: f64, step: f64) -> Tensor {
        lift("arange", [], |[]| {
            if step == 0.0 || ![start, stop, step].iter().all(|x| x.is_finite()) {
                return Err(Problem::argument(format!("{start}..{stop} by {step} has no end")));
            }
            let n = ((stop - start) / step).ceil().max(0.0);
            if n > i64::from(i32::MAX) as f64 * 1024.0 {
                return Err(Problem::argument(format!("{start}..{stop} by {step} has {n} elements")));
            }
            let i = Expr::from(UOp::iota(n as i64));
            let within = |bits: i32| [start, stop, step].iter().all(|x| x.abs() < 2f64.powi(bits));
            let whole = [start, stop, step].iter().all(|x| *x == x.trunc()) && within(53);
            Ok(if whole {
                i.mul(step as i64).add(start as i64).cast(if within(31) { Scalar::I32 } else { Scalar::I64 })
            } else {
                i.cast(Scalar::F64).mul(step).add(start).cast(default_float())
            })
        })
    }
    /// `n` numbers of the default float evenly from `start` to `stop`, both included.
    #[track_caller]
    pub fn linspace(start: f64, stop: f64, n: usize) -> Tensor {
        lift("linspace", [], |[]| {
            let step = if n > 1 { (stop - start) / (n - 1) as f64 } else { 0.0 };
            let i = Expr::from(UOp::iota(Dim::from(n).uop())).cast(Scalar::F64);
            Ok(i.mul(step).add(start).cast(default_float()))
        })
    }
    /// Ones (of the default float) on the main diagonal of n x m.
    #[track_caller]
    pub fn eye(n: usize, m: usize) -> Tensor {
        lift("eye", [], |[]| {
            let shape = [Dim::from(n), Dim::from(m)];
            let on = positions(&shape, 0).eq(&positions(&shape, 1));
            Ok(on.expand(&shape).cast(default_float()))
        })
    }
    /// One number in the shape and dtype of `self`.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<ConstVal>) -> Tensor {
        let value = value.into();
        build("full_like", [self.node()], |[x]| Ok(graph::full(x.shape(), &graph::constant(value, x.dtype().scalar)?)))
    }
    /// Zeros of the same shape, dtype and device.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0i64)
    }
    /// Ones of the same shape, dtype and device.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1i64)
    }
    /// New memory with the shape, dtype and device of `self`; over the same devices along the same axis, if it is
    /// sharded.
    #[track_caller]
    pub fn empty_like(&self) -> Tensor {
        build("empty_like", [self.node()], |[x]| {
            super::assign::memory(x, strong(x.dtype().scalar), x.shape(), self.device())
        })
    }
    /// The same value on another device. A value without memory (`Tensor::zeros`, `arange`) is computed there.
    #[track_caller]
    pub fn to(&self, device: &str) -> Tensor {
        build("to", [self.node()], |[x]| {
            let device = canonical(device);
            if x.device().is_some_and(|d| canonical(d) == device) {
                return Ok(x.clone());
            }
            Ok(UOp::new(Op::Copy, x.dtype(), [x.clone()], crate::uop::Arg::Device(device)))
        })
    }
    /// Moves this Tensor (and its clones) to another device: [`Tensor::to`] in place.
    #[track_caller]
    pub fn to_(&self, device: &str) -> &Tensor {
        let moved = self.to(device);
        self.set_node(moved.node());
        self
    }
    /// As [`Tensor::full_like`], under tinygrad's name.
    #[track_caller]
    pub fn const_like(&self, value: impl Into<ConstVal>) -> Tensor {
        self.full_like(value)
    }
    /// A Tensor that carries this fault.
    pub(crate) fn faulty(fault: Fault) -> Tensor {
        Tensor::of(Err(fault))
    }
}

fn host<T: Element>(list: &[T], shape: &[Dim]) -> UOp {
    let mut bytes = Vec::new();
    T::put(list, &mut bytes);
    graph::reshape(&Tensor::host_data(bytes, T::SCALAR, list.len(), default_device()), shape)
}

/// Number of elements of a shape without symbols.
pub(crate) fn known(shape: &[Dim]) -> Result<usize, Problem> {
    check_sizes(shape)?;
    let mut n = 1usize;
    for d in shape {
        let size = d.as_int().and_then(|i| usize::try_from(i).ok());
        let product = size.and_then(|s| n.checked_mul(s)).filter(|p| i64::try_from(*p).is_ok());
        n = product.ok_or_else(|| Problem::shape(format!("{} has no known number of elements", Shown(shape))))?;
    }
    Ok(n)
}
