//! What calls answered, as steps of a case: ended as wanted, or refused with the status that was expected.

use crate::case::{Problem, Step};
use doorbell_ioctl::abi::nvrm::Status;

/// A status as a result.
pub(crate) fn outcome(status: u32) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(Status(status)) }
}

/// Turns a refusal into a failure that names the call.
pub(crate) fn want<T>(what: &str, got: Result<T, Status>) -> Step<T> {
    got.map_err(|status| Problem::Failed(format!("{what}: {status}")))
}

/// Fails unless a call was refused with this status.
pub(crate) fn refused<T: std::fmt::Debug>(what: &str, got: Result<T, Status>, status: Status) -> Step {
    match got {
        Err(got) if got == status => Ok(()),
        got => Err(Problem::Failed(format!("{what}: got {got:?}, want {status}"))),
    }
}

/// Fails unless a call was refused with one of these statuses: what the answer depends on is said where they are
/// listed.
pub(crate) fn refused_as<T: std::fmt::Debug>(what: &str, got: Result<T, Status>, statuses: &[Status]) -> Step {
    match got {
        Err(got) if statuses.contains(&got) => Ok(()),
        got => Err(Problem::Failed(format!("{what}: got {got:?}, want one of {statuses:?}"))),
    }
}
