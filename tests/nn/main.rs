//! Layers, optimisers, schedules and state files against references that PyTorch and numpy made
//! (`tools/references/nn.py`, `tests/data/nn`), on the default device.
// A list of one parameter reads as a list.
#![allow(clippy::cloned_ref_to_slice_refs)]
// Operands are borrowed throughout, so that formulas read alike.
#![allow(clippy::needless_borrows_for_generic_args)]

mod layers;
mod mistakes;
mod optim;
mod rates;
mod state;

use doorbell::tensor::prelude::*;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::io::Read;

/// The lines of a file of references.
fn cases(file: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|k| u8::from_str_radix(&text[2 * k..2 * k + 2], 16).unwrap()).collect()
}

/// Element type, shape and bytes of a stored Tensor.
fn stored(t: &Value) -> (Scalar, Vec<usize>, Vec<u8>) {
    let shape = t["s"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    (Scalar::parse(t["d"].as_str().unwrap()).unwrap(), shape, hex(t["x"].as_str().unwrap()))
}

fn tensor(t: &Value) -> Tensor {
    let (dtype, shape, bytes) = stored(t);
    Tensor::from_bytes(bytes, dtype, shape, &doorbell::tensor::default_device())
}

fn tensors(list: &Value) -> Vec<Tensor> {
    list.as_array().unwrap().iter().map(tensor).collect()
}

/// |found - wanted| <= `abs` + 1e-3 |wanted|, shapes alike.
#[track_caller]
fn near(what: &str, found: &Tensor, wanted: &Value, abs: f64) {
    let (_, shape, _) = stored(wanted);
    let sizes: Vec<Dim> = shape.iter().map(|n| Dim::from(*n)).collect();
    assert_eq!(found.shape().unwrap_or_else(|e| panic!("{what}: {e}")), sizes, "{what}");
    let (found, wanted) = (found.to_f64().unwrap_or_else(|e| panic!("{what}: {e}")), tensor(wanted).to_f64().unwrap());
    for (k, (a, b)) in found.iter().zip(&wanted).enumerate() {
        assert!(
            (a - b).abs() <= abs + 1e-3 * b.abs(),
            "{what}: element {k}: {a} instead of {b}\n{found:?}\n{wanted:?}"
        );
    }
}

fn number(params: &Value, key: &str, other: f64) -> f64 {
    params[key].as_f64().unwrap_or(other)
}
fn size(params: &Value, key: &str) -> usize {
    params[key].as_u64().unwrap_or_else(|| panic!("{key} in {params}")) as usize
}
fn sizes(params: &Value, key: &str) -> Vec<usize> {
    params[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}
/// A flag; `other` where it is not named.
fn flag(params: &Value, key: &str, other: bool) -> bool {
    params[key].as_bool().unwrap_or(other)
}
