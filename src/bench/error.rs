//! Why a case gives no result.

use crate::record::Status;
use doorbell::device::DeviceError;
use doorbell::engine;
use doorbell::hcq::signal::WaitError;
use doorbell::isa::IsaError;

/// Why a case gives no result, or a bad one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    #[error(transparent)]
    Device(DeviceError),
    #[error(transparent)]
    Engine(engine::Error),
    /// It computed something else than it should have.
    #[error("{0}")]
    Wrong(String),
    /// It does not exist on this device.
    #[error("{0}")]
    LeftOut(String),
    /// It ran, and gave nothing that can be measured.
    #[error("{0}")]
    Empty(String),
}

impl BenchError {
    /// What stands in the record.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::LeftOut(_) => Status::LeftOut,
            Self::Wrong(_) => Status::Wrong,
            Self::Device(DeviceError::Wait(WaitError::Timeout(_))) => Status::Hung,
            Self::Device(DeviceError::Wait(_) | DeviceError::Closed { .. }) => Status::Lost,
            Self::Device(_) | Self::Engine(_) | Self::Empty(_) => Status::Failed,
        }
    }
}

impl From<DeviceError> for BenchError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Unsupported { .. } => Self::LeftOut(error.to_string()),
            error => Self::Device(error),
        }
    }
}

impl From<engine::Error> for BenchError {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Device(e) => e.into(),
            engine::Error::Isa(e) => e.into(),
            error @ engine::Error::Compile { .. } => Self::LeftOut(error.to_string()),
            engine::Error::In { source, .. }
                if matches!(*source, engine::Error::Isa(_) | engine::Error::Compile { .. }) =>
            {
                (*source).into()
            }
            error => Self::Engine(error),
        }
    }
}

impl From<IsaError> for BenchError {
    fn from(error: IsaError) -> Self {
        Self::LeftOut(error.to_string())
    }
}
