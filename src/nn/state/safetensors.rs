//! Safetensors files, by the `safetensors` crate's types; loading reads the header alone.

use super::{StateDict, StateError, facts, read, sizes, write_atomically};
use crate::sort;
use crate::tensor::{Tensor, TensorFile};
use crate::uop::{Dim, Scalar};
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const TYPES: [(Dtype, Scalar); 15] = [
    (Dtype::BOOL, Scalar::Bool),
    (Dtype::U8, Scalar::U8),
    (Dtype::I8, Scalar::I8),
    (Dtype::U16, Scalar::U16),
    (Dtype::I16, Scalar::I16),
    (Dtype::U32, Scalar::U32),
    (Dtype::I32, Scalar::I32),
    (Dtype::U64, Scalar::U64),
    (Dtype::I64, Scalar::I64),
    (Dtype::F8_E4M3, Scalar::F8E4M3),
    (Dtype::F8_E5M2, Scalar::F8E5M2),
    (Dtype::F16, Scalar::F16),
    (Dtype::BF16, Scalar::BF16),
    (Dtype::F32, Scalar::F32),
    (Dtype::F64, Scalar::F64),
];

/// Writes a safetensors file.
///
/// # Errors
/// A Tensor is faulty, symbolic or cannot be read; the file cannot be written. An older file is untouched then.
#[doc(alias = "safe_save")]
pub fn save(state: &StateDict, path: impl AsRef<Path>) -> Result<(), StateError> {
    save_with_metadata(state, &BTreeMap::new(), path)
}

/// As [`save`], with texts beside the Tensors: a version, the settings of the model.
///
/// # Errors
/// As [`save`].
pub fn save_with_metadata(
    state: &StateDict,
    metadata: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<(), StateError> {
    let path = path.as_ref();
    let mut parts: Vec<(&String, Dtype, Vec<usize>, Vec<u8>)> = Vec::with_capacity(state.len());
    for (name, t) in state {
        let (shape, scalar) = facts(name, t)?;
        let dtype = TYPES.iter().find(|(_, s)| *s == scalar).map(|(d, _)| *d);
        let dtype = dtype.ok_or_else(|| StateError::ElementType { name: name.clone(), what: scalar.to_string() })?;
        let (shape, bytes) = (sizes(name, &shape)?, read(name, t)?);
        parts.push((name, dtype, shape, bytes));
    }
    let format = |error| StateError::Format { path: path.into(), error };
    let mut views = BTreeMap::new();
    for (name, dtype, shape, bytes) in &parts {
        views.insert(name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).map_err(format)?);
    }
    let metadata = metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<HashMap<_, _>>();
    let metadata = (!metadata.is_empty()).then_some(metadata);
    let bytes = safetensors::serialize(views, &metadata).map_err(format)?;
    write_atomically(path, &bytes)
}

/// The Tensors of a safetensors file, as copies to the default device that are made when they are needed: until then
/// only the header is read, and the file stays open.
///
/// # Errors
/// The file cannot be read, is damaged, or has an element type that we lack.
#[doc(alias = "safe_load")]
pub fn load(path: impl AsRef<Path>) -> Result<StateDict, StateError> {
    let path = path.as_ref();
    let (file, meta, data_at) = header(path)?;
    let format = |error| StateError::Format { path: path.into(), error };
    let mut list: Vec<(String, &TensorInfo)> = meta.tensors().into_iter().collect();
    sort::by_key(&mut list, |(_, info)| info.data_offsets);
    let device = crate::tensor::default_device();
    let mut out = StateDict::new();
    let mut end = 0;
    for (name, info) in list {
        end = checked(&name, info, end).map_err(format)?;
        let scalar = TYPES.iter().find(|(d, _)| *d == info.dtype).map(|(_, s)| *s);
        let scalar =
            scalar.ok_or_else(|| StateError::ElementType { name: name.clone(), what: format!("{:?}", info.dtype) })?;
        let shape: Vec<Dim> = info.shape.iter().map(|n| Dim::from(*n)).collect();
        let part = file.part(scalar, &shape, data_at.saturating_add(info.data_offsets.0 as u64));
        let part = part.map_err(|_| format(SafeTensorError::MetadataIncompleteBuffer))?;
        out.insert(name, Tensor::from(part).to(&device));
    }
    if data_at.checked_add(end as u64) != Some(file.len_bytes()) {
        return Err(format(SafeTensorError::MetadataIncompleteBuffer));
    }
    Ok(out)
}

/// Longest header that is read, in bytes: the format's own limit.
const HEADER_LIMIT: u64 = 100_000_000;

/// The announced length of a header, if the file can have it.
fn header_bytes(announced: u64, file_bytes: u64) -> Result<usize, SafeTensorError> {
    if announced > HEADER_LIMIT {
        return Err(SafeTensorError::HeaderTooLarge);
    }
    let fits = announced + 8 <= file_bytes;
    usize::try_from(announced).ok().filter(|_| fits).ok_or(SafeTensorError::InvalidHeaderLength)
}

/// The end of a tensor's bytes, which begin where the previous ones end; their number follows from the shape.
fn checked(name: &str, info: &TensorInfo, begin: usize) -> Result<usize, SafeTensorError> {
    let (from, to) = info.data_offsets;
    if from != begin || to < from {
        return Err(SafeTensorError::InvalidOffset(name.into()));
    }
    let count = info.shape.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
    let bytes = count.and_then(|n| n.checked_mul(info.dtype.size())).ok_or(SafeTensorError::ValidationOverflow)?;
    if bytes == to - from { Ok(to) } else { Err(SafeTensorError::TensorInvalidInfo) }
}

/// The texts that a safetensors file carries beside its Tensors; empty where it has none.
///
/// # Errors
/// As [`load`].
#[doc(alias = "safe_load_metadata")]
pub fn load_metadata(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>, StateError> {
    let (_, meta, _) = header(path.as_ref())?;
    Ok(meta.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// The file, its header, and where its data begins.
fn header(path: &Path) -> Result<(TensorFile, Metadata, u64), StateError> {
    let fail = |what| move |error| StateError::Io { what, path: path.into(), error };
    let file = TensorFile::open(path).map_err(fail("open"))?;
    let mut start = [0; 8];
    let header = match file.read(0, &mut start) {
        Ok(()) => header_bytes(u64::from_le_bytes(start), file.len_bytes()),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(SafeTensorError::HeaderTooSmall),
        Err(error) => return Err(fail("read")(error)),
    };
    let format = |error| StateError::Format { path: path.into(), error };
    let mut text = vec![0; header.map_err(format)?];
    file.read(8, &mut text).map_err(fail("read"))?;
    let data_at = 8 + text.len() as u64;
    let meta: Metadata =
        serde_json::from_slice(&text).map_err(|_| format(SafeTensorError::InvalidHeaderDeserialization))?;
    Ok((file, meta, data_at))
}
