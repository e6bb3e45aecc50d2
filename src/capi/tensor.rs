//! Tensors op by op: the library's own, behind handles.

use crate::door::{self, Done, Error};
use crate::status::{Failure, Status};
use doorbell::tensor::prelude::*;
use doorbell::uop::Scalar;
use doorbell_runtime::package::Element;

/// `doorbell_tensor`.
pub(crate) struct TensorHandle(Tensor);

impl From<doorbell::Error> for Failure {
    fn from(e: doorbell::Error) -> Failure {
        let status = match &e {
            doorbell::Error::Device(_) if !e.is_device() => Status::Driver,
            _ if e.is_device() => Status::NoDevice,
            _ => Status::Compile,
        };
        Failure::new(status, e.to_string())
    }
}

fn give(out: *mut *mut TensorHandle, error: *mut Error, make: impl FnOnce() -> Result<Tensor, Failure>) -> i32 {
    door::enter(error, || door::give("out", out, || Ok(TensorHandle(make()?))))
}

fn shape_of(shape: *const usize, rank: usize) -> Result<Vec<usize>, Failure> {
    let bytes = door::bytes("shape", shape.cast(), rank.saturating_mul(size_of::<usize>()))?;
    let one = |b: &[u8; size_of::<usize>()]| usize::from_ne_bytes(*b);
    Ok(bytes.as_chunks().0.iter().map(one).collect())
}

fn unknown(op: i32) -> Failure {
    Failure::new(Status::InvalidArgument, format!("op {op} is unknown, or takes another number of Tensors"))
}

/// Data of the caller's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_from(
    data: *const u8,
    element: u32,
    shape: *const usize,
    rank: usize,
    out: *mut *mut TensorHandle,
    error: *mut Error,
) -> i32 {
    give(out, error, || {
        let shape = shape_of(shape, rank)?;
        let element = u8::try_from(element).ok().and_then(Element::from_code);
        let refused = || Failure::new(Status::InvalidArgument, "elements are f32, i32, u8 or bool");
        let element = element.ok_or_else(refused)?;
        let len = shape.iter().fold(element.size_bytes() as usize, |all, n| all.saturating_mul(*n));
        let bytes = door::bytes("data", data, len)?;
        match element {
            Element::F32 => {
                let all: Vec<f32> = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
                Ok(Tensor::from_slice(&all, shape))
            }
            Element::I32 => {
                let all: Vec<i32> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
                Ok(Tensor::from_slice(&all, shape))
            }
            Element::U8 => Ok(Tensor::from_slice(bytes, shape)),
            Element::Bool => Ok(Tensor::from_slice(bytes, shape).cast(Scalar::Bool)),
            _ => Err(refused()),
        }
    })
}

/// An op of one Tensor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_unary(
    op: i32,
    a: *const TensorHandle,
    axis: i64,
    out: *mut *mut TensorHandle,
    error: *mut Error,
) -> i32 {
    give(out, error, || {
        let a = &door::shared("a", a)?.0;
        Ok(match op {
            0 => -a,
            1 => a.exp(),
            2 => a.log(),
            3 => a.sqrt(),
            4 => a.sin(),
            5 => a.tanh(),
            6 => a.sigmoid(),
            7 => a.relu(),
            64 => a.sum(axis),
            65 => a.max(axis),
            66 => a.mean(axis),
            67 => a.softmax(axis),
            _ => return Err(unknown(op)),
        })
    })
}

/// An op of two Tensors.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_binary(
    op: i32,
    a: *const TensorHandle,
    b: *const TensorHandle,
    out: *mut *mut TensorHandle,
    error: *mut Error,
) -> i32 {
    give(out, error, || {
        let (a, b) = (&door::shared("a", a)?.0, &door::shared("b", b)?.0);
        Ok(match op {
            32 => a + b,
            33 => a - b,
            34 => a * b,
            35 => a / b,
            36 => a.maximum(b),
            37 => a.matmul(b),
            _ => return Err(unknown(op)),
        })
    })
}

/// The same elements in another shape.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_reshape(
    a: *const TensorHandle,
    shape: *const usize,
    rank: usize,
    out: *mut *mut TensorHandle,
    error: *mut Error,
) -> i32 {
    give(out, error, || Ok(door::shared("a", a)?.0.reshape(shape_of(shape, rank)?)))
}

/// Sizes of the shape.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_shape(
    a: *const TensorHandle,
    shape: *mut usize,
    room: usize,
    rank: *mut usize,
    error: *mut Error,
) -> i32 {
    door::enter(error, || {
        let sizes = door::shared("a", a)?.0.shape().map_err(doorbell::Error::from)?;
        door::put("rank", rank, sizes.len())?;
        let out = door::bytes_mut("shape", shape.cast(), room.min(sizes.len()) * size_of::<usize>())?;
        for (to, n) in out.as_chunks_mut().0.iter_mut().zip(&sizes) {
            *to = usize::try_from(n.max()).unwrap_or(usize::MAX).to_ne_bytes();
        }
        Ok(())
    })
}

/// The elements.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_read(
    a: *const TensorHandle,
    data: *mut u8,
    len: usize,
    error: *mut Error,
) -> i32 {
    door::enter(error, || -> Done {
        let bytes = door::shared("a", a)?.0.to_bytes()?;
        if bytes.len() != len {
            let why = format!("the Tensor has {} bytes, there is room for {len}", bytes.len());
            return Err(Failure::new(Status::InvalidArgument, why));
        }
        door::bytes_mut("data", data, len)?.copy_from_slice(&bytes);
        Ok(())
    })
}

/// Closes a Tensor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_tensor_close(a: *mut TensorHandle) {
    door::enter(std::ptr::null_mut(), || {
        door::take(a);
        Ok(())
    });
}
