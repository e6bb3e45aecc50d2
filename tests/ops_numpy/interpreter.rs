//! Values and gradients of the Tensor API on the reference interpreter.

use crate::reader::Array;
use crate::runs::{self, Evaluate};
use doorbell::engine::interp::eval_with;
use doorbell::tensor::{HostBytes, Tensor};
use doorbell::uop::BufferRef;

/// The value of a Tensor that was made from host bytes.
fn value(tensor: &Tensor) -> Result<Array, String> {
    let node = tensor.uop().map_err(|error| error.to_string())?;
    let bytes = |buffer: &BufferRef| Some(buffer.memory.get()?.downcast_ref::<HostBytes>()?.0.clone());
    let value = eval_with(&node, &bytes).map_err(|error| error.to_string())?;
    Ok(Array { dtype: value.dtype, shape: value.shape.clone(), bytes: value.to_bytes() })
}

/// The interpreter has everything.
fn agrees(group: &str, evaluate: Evaluate) {
    runs::agrees(group, evaluate, |_| false);
}

#[test]
fn unary_ops_agree_with_numpy() {
    agrees("unary", value);
}

#[test]
fn binary_ops_agree_with_numpy() {
    agrees("binary", value);
}

#[test]
fn casts_agree_with_numpy() {
    agrees("casts", value);
}

#[test]
fn reductions_agree_with_numpy() {
    agrees("reduce", value);
}

#[test]
fn products_and_pools_agree_with_numpy() {
    agrees("linear", value);
}

#[test]
fn movement_agrees_with_numpy() {
    agrees("movement", value);
}

#[test]
fn losses_agree_with_numpy() {
    agrees("loss", value);
}

#[test]
fn creation_agrees_with_numpy() {
    agrees("creation", value);
}

#[test]
fn sliding_windows_agree_with_torch() {
    agrees("conv", value);
}

#[test]
fn storing_and_scattering_agree_with_pytorch() {
    agrees("index", value);
}

#[test]
fn order_agrees_with_pytorch() {
    agrees("order", value);
}

#[test]
fn conversions_agree_with_pytorch() {
    agrees("dtypes", value);
}

#[test]
fn ops_by_other_names_agree_with_pytorch() {
    agrees("names", value);
}

#[test]
fn losses_with_options_agree_with_pytorch() {
    agrees("losses", value);
}

#[test]
fn linear_algebra_and_hashes_agree_with_pytorch() {
    agrees("linalg", value);
}
