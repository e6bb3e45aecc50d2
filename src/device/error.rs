//! Errors of devices.

use doorbell_hcq::bits::FieldOverflow;
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::memory::MemError;
use doorbell_hcq::packet::EmitError;
use doorbell_hcq::signal::WaitError;
use doorbell_ioctl::port::CallError;

/// The error type of the device layer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    #[error("unknown device {asked:?}, valid: {valid}")]
    Unknown { asked: String, valid: String },
    #[error("device {name} is not in this build, valid: {valid}")]
    NotInBuild { name: String, valid: String },
    #[error("device {name} cannot be opened: {why}")]
    Unavailable { name: String, why: String },
    #[error("arch {asked:?} of device {name} is unknown, valid: {valid}")]
    UnknownArch { name: String, asked: String, valid: String },
    #[error("arch {asked} of device {name} needs {missing}, which this machine lacks")]
    MissingFeature { name: String, asked: String, missing: String },
    /// Not enough free memory; freeing some may help.
    #[error("device {device} is out of memory: {asked} bytes requested, {used} in use ({why})")]
    OutOfMemory { device: String, asked: u64, used: u64, why: String },
    /// Larger than the device's memory.
    #[error("device {device} cannot allocate {asked} bytes, the limit is {max}")]
    TooBig { device: String, asked: u64, max: u64 },
    #[error("{what}: {len_bytes} bytes at offset {offset} exceed the memory of {size_bytes} bytes")]
    Range { what: &'static str, offset: u64, len_bytes: u64, size_bytes: u64 },
    /// Memory of the program that a device cannot use where it is.
    #[error("device {device} cannot use {len_bytes} bytes of the program at {at:#x} in place: {why}")]
    Wrap { device: String, at: u64, len_bytes: u64, why: String },
    #[error("{what} of device {theirs} was passed to device {ours}")]
    WrongDevice { what: &'static str, ours: String, theirs: String },
    #[error("device {device} cannot {what}")]
    Unsupported { device: String, what: String },
    #[error("kernel {kernel} cannot be loaded on device {device}: {why}")]
    Load { device: String, kernel: String, why: String },
    #[error("device {device} is closed")]
    Closed { device: String },
    /// A driver refused a call.
    #[error("device {device}: {what}: {source}")]
    Driver { device: String, what: &'static str, source: CallError },
    /// NVIDIA's driver refused a call, by errno or by status.
    #[cfg(feature = "nv")]
    #[error("device {device}: {what}: {source}")]
    Rm { device: String, what: &'static str, source: Box<super::nv::RmError> },
    #[error("file {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error(transparent)]
    Memory(#[from] MemError),
    #[error(transparent)]
    Submit(#[from] SubmitError),
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<EmitError> for DeviceError {
    fn from(error: EmitError) -> Self {
        SubmitError::from(error).into()
    }
}

impl From<FieldOverflow> for DeviceError {
    fn from(error: FieldOverflow) -> Self {
        SubmitError::from(error).into()
    }
}
