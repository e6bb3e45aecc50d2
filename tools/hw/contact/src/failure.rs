//! The report of a failed rung.

use doorbell::device::DeviceError;

/// A rung's own account of what went wrong.
#[derive(Debug, Default)]
pub struct Failure {
    pub what: String,
    /// Packets from the read pointer on, and the pointers.
    pub packets: Vec<String>,
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self { what, packets: Vec::new() }
    }
}

impl From<&str> for Failure {
    fn from(what: &str) -> Self {
        what.to_string().into()
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        error.to_string().into()
    }
}

/// Anything with a text, as a failure.
pub fn fail(error: impl std::fmt::Display) -> Failure {
    error.to_string().into()
}
