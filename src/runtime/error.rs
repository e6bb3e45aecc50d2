//! Why a package cannot be loaded or run.

use doorbell_device::DeviceError;
use doorbell_hcq::memory::MemError;
use doorbell_hcq::signal::WaitError;
use doorbell_package::PackageError;
use thiserror::Error;

/// The error type of this crate.
#[derive(Error)]
#[non_exhaustive]
pub enum RunError {
    /// Not a package, or a damaged one.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A device refused something.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The package has no code for the device.
    #[error("the package has code for {have}, none of it runs on {device} ({arch})")]
    NoTarget {
        /// Architectures in the package.
        have: String,
        /// The device.
        device: String,
        /// Its architecture.
        arch: String,
    },
    /// More memory than the caller allows.
    #[error("the program needs {needed} bytes of memory, the limit is {limit}")]
    Limit {
        /// What it needs.
        needed: u64,
        /// What the caller allows.
        limit: u64,
    },
    /// No input, output or variable of that name.
    #[error("no {kind} is called {name:?}, there are {valid}")]
    Unknown {
        /// `input`, `output` or `variable`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        valid: String,
    },
    /// Bytes that are too many or too few.
    #[error("{kind} {name} has {want} bytes, {have} were given")]
    Length {
        /// `input` or `output`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Bytes that were given.
        have: u64,
        /// Bytes that it has.
        want: u64,
    },
    /// An output cannot be memory of the caller's.
    #[error("output {name} shares its memory with {with}: it has to be read, it cannot be bound")]
    Shared {
        /// Its name.
        name: String,
        /// What lies there too.
        with: &'static str,
    },
    /// A variable without a value, or with one that is too large or too small.
    #[error("variable {name} is {}, it must be {min} to {max}", have.map_or("not set".into(), |v| v.to_string()))]
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        have: Option<i64>,
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
    /// An input that was neither written nor bound.
    #[error("input {name} has no value")]
    NoInput {
        /// Its name.
        name: String,
    },
    /// [`Canceller::cancel`](crate::Canceller::cancel) was called.
    #[error("the wait was cancelled")]
    Cancelled,
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<MemError> for RunError {
    fn from(e: MemError) -> RunError {
        RunError::Device(e.into())
    }
}

impl From<WaitError> for RunError {
    fn from(e: WaitError) -> RunError {
        RunError::Device(e.into())
    }
}
