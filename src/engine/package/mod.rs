//! Packages: recordings as files, compiled for any targets, and such files called with Tensors.
//!
//! `kept` is what a recording remembers for this; `plan` finds out what its memory is for and places it; `compile`
//! makes the code of each target; `call` runs a package with Tensors. The format and what runs it without a compiler
//! are rooms of their own (`package`, `runtime`).
//!
//! A package has the kernels that the recording has: how the graph was cut into kernels was decided for the recording's
//! device, each target's code is made from there.

mod call;
mod compile;
mod kept;
mod plan;
mod sizes;

pub use call::Packaged;
pub(super) use kept::{Kept, KeptInput, Ports};

use super::{Error, JitError, Session};
use crate::package::{Contents, DataFile, checksum_of};
use std::path::Path;

/// What a package is to contain. The default: the code that the recording runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageOptions {
    /// A name for messages; empty: `program`.
    pub name: String,
    /// Architectures to compile for: `x86_64-avx512`, `gfx1100`, `sm_90a` ... Empty: the recording's device.
    pub targets: Vec<String>,
    /// Into how many parts kernels of CPUs are cut, for as many cores at most; 0: the recording's, and 8 for another
    /// CPU.
    pub threads: u32,
    /// Name of a file of its own for the constants, beside the package.
    pub data_file: Option<String>,
}

/// A package's bytes, and those of its constants if they are a file of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageBytes {
    /// The package.
    pub package: Vec<u8>,
    /// Name and bytes of the other file.
    pub data_file: Option<(String, Vec<u8>)>,
}

impl PackageBytes {
    /// Writes the package to a file, and the constants beside it if they are a file of their own.
    ///
    /// # Errors
    /// `File`.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let put = |path: &Path, bytes: &[u8]| {
            std::fs::write(path, bytes).map_err(|source| Error::File { what: path.display().to_string(), source })
        };
        if let Some((name, bytes)) = &self.data_file {
            put(&path.with_file_name(name), bytes)?;
        }
        put(path, &self.package)
    }
}

/// The package of a recording.
pub(super) fn package(
    s: &Session,
    kept: &Kept,
    ports: &Ports,
    options: &PackageOptions,
) -> Result<PackageBytes, Error> {
    let mut planned = plan::plan(s, kept, ports)?;
    let targets = if options.targets.is_empty() { vec![None] } else { options.targets.iter().map(Some).collect() };
    for arch in targets {
        let target = compile::target(s, kept, &mut planned, arch.map(String::as_str), options.threads)?;
        planned.contents.targets.push(target);
    }
    planned.contents.name = if options.name.is_empty() { "program".into() } else { options.name.clone() };
    let data_file = options.data_file.clone().filter(|_| !planned.data.is_empty());
    let Contents { data_file: file, .. } = &mut planned.contents;
    *file = data_file.clone().map(|name| DataFile { name, checksum: checksum_of([&planned.data]) });
    let package = crate::package::write(&planned.contents, &planned.data)?;
    Ok(PackageBytes { package, data_file: data_file.map(|name| (name, planned.data)) })
}

/// A result that is no dense memory.
fn not_dense(output: &str) -> Error {
    JitError::View { output: output.into() }.into()
}
