//! What a device can refuse.

use doorbell_hcq::memory::MemError;
use doorbell_hcq::queue::SubmitError;
use doorbell_hcq::signal::WaitError;
use doorbell_ioctl::port::CallError;

/// The one error of the device layer.
#[derive(Debug, thiserror::Error)]
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
    /// Full now; freeing may help.
    #[error("device {device} is out of memory: {asked} bytes asked, {used} in use ({why})")]
    OutOfMemory { device: String, asked: u64, used: u64, why: String },
    /// Can never fit.
    #[error("device {device} has no room for {asked} bytes, at most {max}")]
    TooBig { device: String, asked: u64, max: u64 },
    #[error("{what}: {len_bytes} bytes at offset {offset} leave the memory of {size_bytes} bytes")]
    Range { what: &'static str, offset: u64, len_bytes: u64, size_bytes: u64 },
    #[error("{what} of device {theirs} was given to device {ours}")]
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
