//! Files as Tensors: elements from a byte offset of a file on, read when they are needed.
//!
//! Such a Tensor is on device `DISK:path`, which computes nothing: [`Tensor::to`] moves it, `to_vec` reads it back. It
//! keeps the file open, so it is the file that existed when the Tensor was made even if another file has taken its name
//! since; a file that is changed in place changes the elements that are not read yet.

use super::args::IntoShape;
use super::creation::known;
use super::error::Problem;
use super::graph;
use super::handle::Tensor;
use super::value::build;
use crate::uop::{BufferRef, DType, Dim, Scalar, UOp};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The part of a file that is the content of a Buffer on device `DISK:path`: little-endian elements.
pub struct FileRange {
    file: Arc<File>,
    path: PathBuf,
    offset_bytes: u64,
    len_bytes: usize,
}

impl FileRange {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Bytes from `at_bytes` of this part on.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read(&self, at_bytes: u64, to: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(to, self.offset_bytes.saturating_add(at_bytes))
    }
    /// All bytes of this part.
    ///
    /// # Errors
    /// As `read`.
    pub fn read_all(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.len_bytes];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// A file that Tensors are parts of.
pub(crate) struct TensorFile {
    file: Arc<File>,
    path: PathBuf,
    len_bytes: u64,
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> std::io::Result<TensorFile> {
        let file = File::open(path)?;
        let len_bytes = file.metadata()?.len();
        Ok(TensorFile { file: Arc::new(file), path: path.into(), len_bytes })
    }
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
    /// Bytes from `offset_bytes` on.
    pub(crate) fn read(&self, offset_bytes: u64, to: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(to, offset_bytes)
    }
    /// Elements from `offset_bytes` on, on the DISK device.
    pub(crate) fn part(&self, dtype: Scalar, shape: &[Dim], offset_bytes: u64) -> Result<UOp, Problem> {
        let (len, size) = (known(shape)?, dtype.size_bytes());
        if size == 0 {
            return Err(Problem::dtype(format!("{dtype} has no form in memory")));
        }
        let len_bytes = len.checked_mul(size);
        let end = len_bytes.and_then(|n| offset_bytes.checked_add(n as u64)).filter(|end| *end <= self.len_bytes);
        let (Some(len_bytes), Some(_)) = (len_bytes, end) else {
            let (path, have) = (self.path.display(), self.len_bytes);
            return Err(Problem::argument(format!(
                "{len} {dtype} from byte {offset_bytes} of {path}, which has {have}"
            )));
        };
        let buffer = BufferRef::new(len, format!("DISK:{}", self.path.display()).into());
        let (file, path) = (self.file.clone(), self.path.clone());
        let _ = buffer.memory.set(Arc::new(FileRange { file, path, offset_bytes, len_bytes }));
        Ok(graph::reshape(&UOp::buffer(DType::of(dtype), buffer), shape))
    }
}

impl Tensor {
    /// Little-endian elements of a file in row-major order under a shape, from byte `offset_bytes` on, aligned or not.
    /// Nothing is read yet; the Tensor is on device `DISK:path`. A missing or too short file makes it faulty.
    #[track_caller]
    pub fn from_file(path: impl AsRef<Path>, dtype: Scalar, shape: impl IntoShape, offset_bytes: u64) -> Tensor {
        let (path, shape) = (path.as_ref(), shape.into_shape());
        build("from_file", [], |[]| {
            let file = TensorFile::open(path);
            let file = file.map_err(|error| Problem::argument(format!("{}: {error}", path.display())))?;
            file.part(dtype, &shape, offset_bytes)
        })
    }
}
