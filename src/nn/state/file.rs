//! Files: replaced in one step, and read in parts.

use super::StateError;
use crate::tensor::{Tensor, TensorFile, default_device};
use crate::uop::{Dim, Scalar};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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

/// A file that is read in parts; Tensors of it stay in the file until they are needed.
pub(super) struct Source {
    file: TensorFile,
    path: PathBuf,
    /// The format, for messages.
    format: &'static str,
}

impl Source {
    pub(crate) fn open(path: &Path, format: &'static str) -> Result<Source, StateError> {
        let io = |error| StateError::Io { what: "open", path: path.into(), error };
        Ok(Source { file: TensorFile::open(path).map_err(io)?, path: path.into(), format })
    }
    pub(crate) fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }
    /// An error about what the file holds.
    pub(crate) fn damaged(&self, what: impl Into<String>) -> StateError {
        StateError::Damaged { format: self.format, path: self.path.clone(), what: what.into() }
    }
    /// Bytes of a range, which must lie in the file.
    pub(crate) fn bytes(&self, at: u64, len: u64) -> Result<Vec<u8>, StateError> {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len_bytes());
        let size = usize::try_from(len).ok().filter(|_| fits);
        let size = size.ok_or_else(|| {
            self.damaged(format!("{len} bytes from byte {at} on are beyond its end, {}", self.len_bytes()))
        })?;
        let mut bytes = vec![0; size];
        let io = |error| StateError::Io { what: "read", path: self.path.clone(), error };
        self.file.read(at, &mut bytes).map_err(io)?;
        Ok(bytes)
    }
    /// Elements from a byte on, as a Tensor that is copied to the default device when it is needed.
    pub(crate) fn tensor(&self, dtype: Scalar, shape: &[usize], at: u64) -> Result<Tensor, StateError> {
        let shape: Vec<Dim> = shape.iter().map(|n| Dim::from(*n)).collect();
        let part = self.file.part(dtype, &shape, at).map_err(|problem| self.damaged(problem.to_string()))?;
        Ok(Tensor::from(part).to(&default_device()))
    }
}
