//! Tensors as lists of numbers on the host, those of one type in one list: a call of MPI for each type.

use super::MpiError;
use crate::engine::Error;
use crate::tensor::{Elementwise, Movement, Tensor};
use crate::uop::{Dim, Scalar};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The numbers of one type.
#[derive(Clone, Debug)]
pub(super) enum Part {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl Part {
    /// An empty list of the type that carries numbers of `dtype`: their own, f32 for halves.
    fn carrying(dtype: Scalar) -> Option<Part> {
        Some(match dtype {
            Scalar::F32 | Scalar::F16 | Scalar::BF16 => Part::F32(Vec::new()),
            Scalar::F64 => Part::F64(Vec::new()),
            Scalar::I8 => Part::I8(Vec::new()),
            Scalar::I16 => Part::I16(Vec::new()),
            Scalar::I32 => Part::I32(Vec::new()),
            Scalar::I64 => Part::I64(Vec::new()),
            Scalar::U8 => Part::U8(Vec::new()),
            Scalar::U16 => Part::U16(Vec::new()),
            Scalar::U32 => Part::U32(Vec::new()),
            Scalar::U64 => Part::U64(Vec::new()),
            _ => return None,
        })
    }

    /// Takes in a Tensor's numbers.
    fn push(&mut self, t: &Tensor) -> Result<(), Error> {
        match self {
            Part::F32(list) => list.extend(t.cast(Scalar::F32).to_vec::<f32>()?),
            Part::F64(list) => list.extend(t.to_vec::<f64>()?),
            Part::I8(list) => list.extend(t.to_vec::<i8>()?),
            Part::I16(list) => list.extend(t.to_vec::<i16>()?),
            Part::I32(list) => list.extend(t.to_vec::<i32>()?),
            Part::I64(list) => list.extend(t.to_vec::<i64>()?),
            Part::U8(list) => list.extend(t.to_vec::<u8>()?),
            Part::U16(list) => list.extend(t.to_vec::<u16>()?),
            Part::U32(list) => list.extend(t.to_vec::<u32>()?),
            Part::U64(list) => list.extend(t.to_vec::<u64>()?),
        }
        Ok(())
    }

    /// The numbers from `at` on as a Tensor in one row on the default device.
    fn tensor(&self, at: usize, len: usize) -> Tensor {
        match self {
            Part::F32(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::F64(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::I8(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::I16(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::I32(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::I64(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::U8(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::U16(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::U32(list) => Tensor::from_slice(&list[at..at + len], [len]),
            Part::U64(list) => Tensor::from_slice(&list[at..at + len], [len]),
        }
    }

    /// Divides floats.
    pub(super) fn divide(&mut self, by: usize) {
        match self {
            Part::F32(list) => list.iter_mut().for_each(|x| *x /= by as f32),
            Part::F64(list) => list.iter_mut().for_each(|x| *x /= by as f64),
            _ => {}
        }
    }
}

/// One Tensor among the lists.
#[derive(Hash)]
struct Place {
    part: usize,
    at: usize,
    shape: Vec<usize>,
    dtype: Scalar,
}

/// The numbers of some Tensors.
pub(super) struct Packed {
    pub parts: Vec<Part>,
    places: Vec<Place>,
}

impl Packed {
    /// # Errors
    /// The Tensors' own; a type that has no sum, or as `floats` only floats are wanted.
    pub(super) fn of(tensors: &[&Tensor], floats: bool) -> Result<Packed, MpiError> {
        let all: Vec<Tensor> = tensors.iter().map(|t| (*t).clone()).collect();
        Tensor::realize_all(&all)?;
        let (mut types, mut packed): (Vec<Scalar>, _) = (Vec::new(), Packed { parts: Vec::new(), places: Vec::new() });
        for t in tensors {
            let dtype = t.dtype().map_err(Error::from)?.strong();
            let dims = t.shape().map_err(Error::from)?;
            let shape: Option<Vec<usize>> = dims.iter().map(|d| usize::try_from(d.as_int()?).ok()).collect();
            let shape = shape.ok_or_else(|| MpiError::Argument("a Tensor of variable size".into()))?;
            if floats && !dtype.is_float() {
                return Err(MpiError::Argument(format!("the mean of numbers of type {dtype}: cast them to floats")));
            }
            let carrier = if matches!(dtype, Scalar::F16 | Scalar::BF16) { Scalar::F32 } else { dtype };
            let none = || MpiError::Argument(format!("Tensors of type {dtype} are not passed: cast them first"));
            let part = match types.iter().position(|t| *t == carrier) {
                Some(part) => part,
                None => {
                    packed.parts.push(Part::carrying(carrier).ok_or_else(none)?);
                    types.push(carrier);
                    types.len() - 1
                }
            };
            let same = packed.places.iter().filter(|p| p.part == part);
            let at = same.map(|p| p.shape.iter().product::<usize>()).sum();
            packed.parts[part].push(t)?;
            packed.places.push(Place { part, at, shape, dtype });
        }
        Ok(packed)
    }

    /// # Errors
    /// More elements than one call of MPI passes.
    pub(super) fn of_most(self, most: usize) -> Result<Packed, MpiError> {
        match self.places.iter().map(|p| p.shape.iter().product::<usize>()).max() {
            Some(n) if n > most => {
                Err(MpiError::Argument(format!("all_gather: {n} elements, at most {most} in one Tensor")))
            }
            _ => Ok(self),
        }
    }

    /// A number for what the Tensors are like, never 0.
    pub(super) fn signature(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.places.hash(&mut hasher);
        hasher.finish().max(1)
    }

    pub(super) fn shown(&self) -> String {
        let one = |p: &Place| {
            let sizes: Vec<String> = p.shape.iter().map(usize::to_string).collect();
            format!("({}) {}", sizes.join(", "), p.dtype)
        };
        match self.places.len() {
            0 => "none".into(),
            n if n > 8 => format!("{n} Tensors"),
            _ => self.places.iter().map(one).collect::<Vec<_>>().join(", "),
        }
    }

    /// Gives the Tensors their numbers back.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn put(&self, what: &'static str, tensors: &[&Tensor]) -> Result<(), Error> {
        let mut all = Vec::with_capacity(tensors.len());
        for (t, place) in tensors.iter().zip(&self.places) {
            let len = place.shape.iter().product();
            let now = self.parts[place.part].tensor(place.at, len).reshape(sizes(&place.shape));
            t.become_value(what, &now.cast(place.dtype).shard_like(t));
            all.push((*t).clone());
        }
        Tensor::realize_all(&all)
    }

    /// The only Tensor with the numbers of all ranks, where `like` is.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn gathered(&self, like: &Tensor, ranks: usize) -> Result<Tensor, Error> {
        let [place] = &self.places[..] else { return Err(Error::Internal("one Tensor is gathered".into())) };
        let mut shape = place.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first *= ranks;
        }
        let all = self.parts[place.part].tensor(0, shape.iter().product());
        let all = all.reshape(sizes(&shape)).cast(place.dtype).shard_like(like);
        all.realize()?;
        Ok(all)
    }
}

fn sizes(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|n| Dim::from(*n)).collect()
}
