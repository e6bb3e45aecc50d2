//! State dictionaries and safetensors files.
//!
//! A file is written under a temporary name and renamed, so a reader sees the old or the new one, never half of one.
//! Loading reads the header alone: each Tensor is a part of the file until it is copied to its device, piece by piece.
//! Assignments to a module are checked for names, shapes and dtypes before anything is changed.

use super::module::{Module, StateDict};
use crate::sort;
use crate::tensor::{Fault, Shown, Tensor, TensorFile, Value};
use crate::uop::{Dim, Scalar};
use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo, TensorView};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Why state was not saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    #[error("{what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
    #[error("safetensors {}: {error}", path.display())]
    Format { path: PathBuf, error: SafeTensorError },
    #[error("tensor '{name}': element type {what} has no counterpart")]
    ElementType { name: String, what: String },
    #[error("tensor '{name}': {error}")]
    Faulty { name: String, error: Fault },
    #[error("tensor '{name}': its bytes could not be read: {error}")]
    Read { name: String, error: String },
    #[error("tensor '{name}': size {size} is not known")]
    Symbolic { name: String, size: String },
    #[error("tensor '{name}' is missing in the state; it has {}", sample(.has))]
    Missing { name: String, has: Vec<String> },
    #[error("tensor '{name}' of the state is not in the module; it has {}", sample(.has))]
    Unknown { name: String, has: Vec<String> },
    #[error("tensor '{name}': {found} in the state, {wanted} in the module")]
    Mismatch { name: String, found: String, wanted: String },
}

fn sample(names: &[String]) -> String {
    let mut text = names.iter().take(6).map(|n| format!("'{n}'")).collect::<Vec<_>>().join(", ");
    if names.len() > 6 {
        text.push_str(&format!(" and {} more", names.len() - 6));
    }
    if text.is_empty() { "none".into() } else { text }
}

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

/// Shape and dtype, for messages.
fn described(shape: &[Dim], dtype: Scalar) -> String {
    format!("{} {dtype}", Shown(shape))
}

fn facts(name: &str, t: &Tensor) -> Result<(Vec<Dim>, Scalar), StateError> {
    let u = t.node().map_err(|error| StateError::Faulty { name: name.into(), error })?;
    Ok((u.shape().to_vec(), u.dtype().scalar))
}

/// Writes a safetensors file. `read` returns a Tensor's row-major little-endian bytes (the engine's part).
///
/// # Errors
/// A Tensor is faulty, symbolic or cannot be read; the file cannot be written. An older file is untouched then.
pub fn save<E: std::fmt::Display>(
    state: &StateDict,
    path: &Path,
    mut read: impl FnMut(&Tensor) -> Result<Vec<u8>, E>,
) -> Result<(), StateError> {
    let mut parts: Vec<(&String, Dtype, Vec<usize>, Vec<u8>)> = Vec::with_capacity(state.len());
    for (name, t) in state {
        let (shape, scalar) = facts(name, t)?;
        let dtype = TYPES.iter().find(|(_, s)| *s == scalar).map(|(d, _)| *d);
        let dtype = dtype.ok_or_else(|| StateError::ElementType { name: name.clone(), what: scalar.to_string() })?;
        let size = |d: &Dim| {
            let known = d.as_int().and_then(|i| usize::try_from(i).ok());
            known.ok_or_else(|| StateError::Symbolic { name: name.clone(), size: d.to_string() })
        };
        let shape = shape.iter().map(size).collect::<Result<Vec<_>, _>>()?;
        let bytes = read(t).map_err(|e| StateError::Read { name: name.clone(), error: e.to_string() })?;
        parts.push((name, dtype, shape, bytes));
    }
    let format = |error| StateError::Format { path: path.into(), error };
    let mut views = BTreeMap::new();
    for (name, dtype, shape, bytes) in &parts {
        views.insert(name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).map_err(format)?);
    }
    let bytes = safetensors::serialize(views, &None).map_err(format)?;
    write_atomically(path, &bytes)
}

/// Replaces a file's content in one step: written under a temporary name, flushed, renamed. The permissions are those
/// of the old file, or of any new one.
///
/// # Errors
/// The directory or file cannot be written; the old file is untouched then.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    let fail = |what| move |error| StateError::Io { what, path: path.into(), error };
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As the system's own open does, less the bits of the user's mask.
    let everybody = std::fs::Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(everybody).tempfile_in(dir);
    let mut file = file.map_err(fail("create a file for"))?;
    file.write_all(bytes).map_err(fail("write"))?;
    if let Ok(old) = std::fs::metadata(path) {
        file.as_file().set_permissions(old.permissions()).map_err(fail("set the permissions of"))?;
    }
    file.as_file().sync_all().map_err(fail("flush"))?;
    file.persist(path).map_err(|e| fail("rename to")(e.error))?;
    Ok(())
}

/// The Tensors of a safetensors file, as copies to the default device that are made when they are needed: until then
/// only the header is read, and the file stays open.
///
/// # Errors
/// The file cannot be read, is damaged, or has an element type that we lack.
pub fn load(path: &Path) -> Result<StateDict, StateError> {
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

/// Assigns a state to a module's Tensors. Names, shapes and dtypes must agree exactly.
///
/// # Errors
/// A name is missing or unknown, or a shape or dtype differs. Nothing was assigned then.
pub fn load_into(module: &dyn Module, state: &StateDict) -> Result<(), StateError> {
    let own = module.state_dict();
    if let Some(name) = own.keys().find(|n| !state.contains_key(*n)) {
        return Err(StateError::Missing { name: name.clone(), has: state.keys().cloned().collect() });
    }
    for (name, from) in state {
        let Some(to) = own.get(name) else {
            return Err(StateError::Unknown { name: name.clone(), has: own.keys().cloned().collect() });
        };
        let ((fs, ft), (ts, tt)) = (facts(name, from)?, facts(name, to)?);
        if (&fs, ft) != (&ts, tt) {
            let (found, wanted) = (described(&fs, ft), described(&ts, tt));
            return Err(StateError::Mismatch { name: name.clone(), found, wanted });
        }
    }
    for (name, to) in &own {
        // PANIC: the first check found every name of the module in the state.
        to.assign(&state[name]);
    }
    Ok(())
}
