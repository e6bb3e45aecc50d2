//! The memory of buffers: device memory attached to a buffer's identity, and dense views of buffers.

use super::jit_capture::capturing;
use super::{Error, Session};
use crate::device::{Location, Memory};
use crate::uop::{BufferRef, Dim, Op, UOp};
use std::any::Any;
use std::sync::Arc;

/// The engine's value in [`BufferRef::memory`]: a location in device memory.
#[derive(Debug)]
pub(crate) struct Attached(pub Location);

impl Session {
    /// The location of a buffer of `elem_bytes`-byte elements; memory is allocated at the first call.
    ///
    /// # Errors
    /// The device cannot be opened or is out of memory.
    pub fn place(&self, buffer: &BufferRef, elem_bytes: usize) -> Result<Location, Error> {
        if let Some(p) = attached(buffer) {
            return Ok(p);
        }
        let device = self.device(&buffer.device)?;
        let len = (buffer.len as u64).saturating_mul(elem_bytes as u64);
        let memory: Memory = device.device.alloc(len)?;
        capturing(|c| c.made.push(memory.clone()));
        self.attach(buffer, memory.at(0))
    }

    /// Attaches memory to a buffer (for example, a part of an arena), unless it has some; returns the buffer's
    /// location.
    pub(crate) fn attach(&self, buffer: &BufferRef, place: Location) -> Result<Location, Error> {
        let _ = buffer.memory.set(Arc::new(Attached(place)));
        attached(buffer).ok_or_else(|| Error::Internal(format!("buffer {} holds no device memory", buffer.id)))
    }
}

/// The location of a buffer's memory, if it has any.
pub fn attached(buffer: &BufferRef) -> Option<Location> {
    buffer.memory.get()?.downcast_ref::<Attached>().map(|a| a.0.clone())
}

/// The identity of a buffer's attachment to memory: different buffers on the same memory have different ones, versions
/// of a buffer share one.
#[derive(Clone)]
pub(crate) struct AllocationId(Arc<dyn Any + Send + Sync>);

impl AllocationId {
    pub(crate) fn is_same(&self, o: &AllocationId) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&o.0))
    }
}

/// The allocation identity of a buffer that has memory.
pub(crate) fn allocation_id(buffer: &BufferRef) -> Option<AllocationId> {
    buffer.memory.get().cloned().map(AllocationId)
}

/// The value of a size; its variables must be bound.
pub fn size_of(d: &Dim) -> Option<usize> {
    match d {
        Dim::Int(i) => usize::try_from(*i).ok(),
        Dim::Sym(u) => usize::try_from(super::interp::eval(u).ok()?.data.first()?.as_int()?).ok(),
    }
}

/// The Buffer node and first element of a dense, row-major movement of a buffer; `None` for any other node.
pub fn dense_view(u: &UOp) -> Option<(UOp, usize)> {
    let mut chain = vec![u.clone()];
    while let Some(last) = chain.last().filter(|l| l.op() != Op::Buffer) {
        if !last.op().is_movement() || last.op() == Op::Pad {
            return None;
        }
        chain.push(last.src()[0].clone());
    }
    let buffer = chain.pop()?;
    let mut view = Strided::dense(vec![buffer.buffer_ref()?.len]);
    for m in chain.iter().rev() {
        view = view.moved(m)?;
    }
    view.is_dense().then_some((buffer, view.offset as usize))
}

/// Elements of a view of memory: element at index i is `offset + Σ i[k] * strides[k]`.
struct Strided {
    shape: Vec<usize>,
    /// Negative for a flipped axis.
    strides: Vec<isize>,
    offset: isize,
}

impl Strided {
    fn dense(shape: Vec<usize>) -> Strided {
        let mut strides = vec![1isize; shape.len()];
        for k in (0..shape.len().saturating_sub(1)).rev() {
            strides[k] = strides[k + 1] * shape[k + 1] as isize;
        }
        Strided { shape, strides, offset: 0 }
    }

    fn is_dense(&self) -> bool {
        let dense = Strided::dense(self.shape.clone());
        self.shape.contains(&0)
            || (0..self.shape.len()).all(|k| self.shape[k] == 1 || self.strides[k] == dense.strides[k])
    }

    fn moved(self, m: &UOp) -> Option<Strided> {
        let sizes = || m.src()[1..].iter().map(|s| size_of(&Dim::from(s))).collect::<Option<Vec<usize>>>();
        let n = self.shape.len();
        Some(match m.op() {
            Op::Reshape if self.is_dense() => Strided { offset: self.offset, ..Strided::dense(sizes()?) },
            Op::Permute => {
                let axes = || m.axes().iter().map(|a| *a as usize);
                Strided {
                    shape: axes().map(|a| self.shape[a]).collect(),
                    strides: axes().map(|a| self.strides[a]).collect(),
                    offset: self.offset,
                }
            }
            Op::Expand => {
                let shape = sizes()?;
                let strides = (0..n).map(|k| if self.shape[k] == shape[k] { self.strides[k] } else { 0 }).collect();
                Strided { shape, strides, offset: self.offset }
            }
            Op::Shrink => {
                let s = sizes()?;
                let shape = (0..n).map(|k| s[n + k].saturating_sub(s[k])).collect();
                let offset = self.offset + (0..n).map(|k| s[k] as isize * self.strides[k]).sum::<isize>();
                Strided { shape, strides: self.strides, offset }
            }
            Op::Flip => {
                let mut v = self;
                for k in m.axes().iter().map(|a| *a as usize) {
                    v.offset += v.shape[k].saturating_sub(1) as isize * v.strides[k];
                    v.strides[k] = -v.strides[k];
                }
                v
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uop::DType;

    #[test]
    fn rows_are_dense_and_columns_are_not() {
        let b = UOp::buffer(DType::F32, BufferRef::new(12, "CPU".into()));
        let m = b.movement(Op::Reshape, [3, 4].map(UOp::int));
        assert_eq!(dense_view(&m), Some((b.clone(), 0)));
        let row = m.movement(Op::Shrink, [1, 0, 3, 4].map(UOp::int));
        assert_eq!(dense_view(&row.movement(Op::Reshape, [UOp::int(8)])), Some((b.clone(), 4)));
        assert_eq!(dense_view(&m.movement(Op::Shrink, [0, 1, 3, 3].map(UOp::int))), None);
        assert_eq!(dense_view(&m.permute(&[1, 0])), None);
        assert_eq!(dense_view(&m.flip(&[0])), None);
        assert_eq!(dense_view(&m.flip(&[0]).flip(&[0])), Some((b.clone(), 0)));
        let last = m.flip(&[0]).movement(Op::Shrink, [0, 0, 1, 4].map(UOp::int));
        assert_eq!(dense_view(&last), Some((b.clone(), 8)));
    }
}
