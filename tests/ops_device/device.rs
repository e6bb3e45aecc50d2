//! Values and gradients of the Tensor API on the device that `DEV` names (the CPU when it is not set): scheduled,
//! compiled, run.

use crate::reader::Array;
use crate::runs::{self, Evaluate};
use doorbell::engine::session;
use doorbell::tensor::{Tensor, default_device};

fn value(tensor: &Tensor) -> Result<Array, String> {
    let sizes = tensor.shape().map_err(|error| error.to_string())?;
    let shape = sizes
        .iter()
        .map(|d| d.as_int().and_then(|n| usize::try_from(n).ok()).ok_or("a symbolic size"))
        .collect::<Result<_, _>>()?;
    let dtype = tensor.dtype().map_err(|error| error.to_string())?.strong();
    let bytes = tensor.to_bytes().map_err(|error| error.to_string())?;
    Ok(Array { dtype, shape, bytes })
}

/// A device whose target has no f64 refuses what needs it, and a kernel with more arguments than a launch has.
fn may_refuse(fault: &str) -> bool {
    let is_refusal = fault.contains("has no instruction for") && fault.contains(" on f64")
        || fault.contains(" buffers and variables, a Metal kernel has");
    let device = session().and_then(|s| s.device(&default_device()));
    is_refusal && !device.unwrap_or_else(|e| panic!("{e}")).target().f64
}

fn agrees(group: &str, evaluate: Evaluate) {
    runs::agrees(group, evaluate, may_refuse);
}

#[test]
fn unary_ops_agree_on_the_device() {
    agrees("unary", value);
}

#[test]
fn binary_ops_agree_on_the_device() {
    agrees("binary", value);
}

#[test]
fn casts_agree_on_the_device() {
    agrees("casts", value);
}

#[test]
fn reductions_agree_on_the_device() {
    agrees("reduce", value);
}

#[test]
fn products_and_pools_agree_on_the_device() {
    agrees("linear", value);
}

#[test]
fn movement_agrees_on_the_device() {
    agrees("movement", value);
}

#[test]
fn losses_agree_on_the_device() {
    agrees("loss", value);
}

#[test]
fn creation_agrees_on_the_device() {
    agrees("creation", value);
}

#[test]
fn sliding_windows_agree_with_torch() {
    agrees("conv", value);
}

#[test]
fn storing_and_scattering_agree_on_the_device() {
    agrees("index", value);
}

#[test]
fn order_agrees_on_the_device() {
    agrees("order", value);
}

#[test]
fn shapes_that_depend_on_data_agree_on_the_device() {
    agrees("select", value);
}

#[test]
fn conversions_agree_on_the_device() {
    agrees("dtypes", value);
}

#[test]
fn ops_by_other_names_agree_on_the_device() {
    agrees("names", value);
}

#[test]
fn losses_with_options_agree_on_the_device() {
    agrees("losses", value);
}

#[test]
fn linear_algebra_and_hashes_agree_on_the_device() {
    agrees("linalg", value);
}
