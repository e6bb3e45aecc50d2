//! Errors that are found late, after a graph was built, get the user's line: the call that made the value which could
//! not be computed.

use super::Error;
use crate::device::DeviceError;
use crate::tensor::{DEVICE_SEPARATOR, Shown, Tensor, Value, default_device};
use crate::uop::{Arg, Op, UOp, USet};

/// The error with the call to blame, if it is one that says nothing of the user's program.
pub(super) fn blamed(error: Error, tensors: &[Tensor]) -> Error {
    let roots: Vec<UOp> = tensors.iter().filter_map(|t| t.node().ok()).collect();
    let found = match &error {
        Error::Unbound { name, .. } => roots.iter().find_map(|root| user_of(root, name)),
        Error::Spec(_)
        | Error::Rewrite(_)
        | Error::Schedule(_)
        | Error::Codegen(_)
        | Error::Isa(_)
        | Error::Compile { .. } => roots.iter().find_map(asked_for),
        Error::Device(
            DeviceError::Unknown { asked: name, .. }
            | DeviceError::NotInBuild { name, .. }
            | DeviceError::Unavailable { name, .. },
        ) => roots.iter().find_map(|root| moved_to(root, name)),
        _ => None,
    };
    let Some((u, made)) = found.and_then(|u| Some((u.clone(), u.made()?))) else { return error };
    let device = u.device().cloned().or_else(|| tensors.first().map(Tensor::device)).unwrap_or_default();
    Error::In { source: Box::new(error), op: made.op, shape: Shown(u.shape()).to_string(), device, at: made.at }
}

/// The last value on the way to `root` that a user's call made.
fn asked_for(root: &UOp) -> Option<UOp> {
    root.toposort().into_iter().rev().find(|u| u.made().is_some())
}

/// The first value, sources first, that a user's call put on a device which is not the program's own.
fn moved_to(root: &UOp, device: &str) -> Option<UOp> {
    if *default_device() == *device {
        return None;
    }
    let is_it = |d: &str| d == device || d.strip_prefix(device).is_some_and(|rest| rest.starts_with(':'));
    let names_it = |u: &UOp| u.device().is_some_and(|d| d.split(DEVICE_SEPARATOR).any(is_it));
    root.toposort().into_iter().find(|u| u.made().is_some() && names_it(u))
}

/// The first value, sources first, that a user's call made with a variable that has no value there.
fn user_of(root: &UOp, name: &str) -> Option<UOp> {
    let mut free = USet::default();
    for u in root.toposort() {
        let is_it = matches!(u.arg(), Arg::Var(n, ..) if **n == *name);
        if is_it || u.op() != Op::Bind && u.src().iter().any(|s| free.contains(s)) {
            if u.made().is_some() {
                return Some(u);
            }
            free.insert(u);
        }
    }
    None
}
