//! Files of tensors: written here and read by the `safetensors` crate, and made by hand as numpy's writer lays them out.

use doorbell::nn::StateDict;
use doorbell::nn::state::{StateError, load, save};
use doorbell::tensor::prelude::*;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;

fn write(path: &Path, header: &str, data: &[u8]) {
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn what_is_saved_is_read_by_the_crate_and_by_us() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.safetensors");
    let x = Tensor::from_slice(&[1.5f32, -2.0, f32::INFINITY, -0.0, f32::NAN, 1e-40], [2, 3]);
    let mut state = StateDict::new();
    state.insert("x".into(), x.clone());
    state.insert("view".into(), x.t().flip(0));
    state.insert("lazy".into(), &x * 2.0);
    state.insert("scalar".into(), Tensor::new(7i64));
    state.insert("none".into(), Tensor::from_slice::<u8>(&[], [0, 4]));
    state.insert("flags".into(), Tensor::from_slice(&[true, false, true], [3]));
    state.insert("half".into(), x.cast(Scalar::F16));
    state.insert("brain".into(), x.cast(Scalar::BF16));
    state.insert("double".into(), x.cast(Scalar::F64));
    save(&state, &path, Tensor::to_bytes).unwrap();

    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let f32s = |name: &str| -> Vec<u32> {
        file.tensor(name).unwrap().data().chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
    };
    let bits = |v: [f32; 6]| v.map(f32::to_bits).to_vec();
    assert_eq!(f32s("x"), bits([1.5, -2.0, f32::INFINITY, -0.0, f32::NAN, 1e-40]));
    assert_eq!(f32s("view")[0], f32::INFINITY.to_bits());
    assert_eq!(file.tensor("view").unwrap().shape(), [3, 2]);
    assert_eq!(file.tensor("scalar").unwrap().shape(), [0usize; 0]);
    assert_eq!(file.tensor("scalar").unwrap().data(), 7i64.to_le_bytes());
    assert_eq!(file.tensor("none").unwrap().shape(), [0, 4]);
    assert_eq!(file.tensor("flags").unwrap().data(), [1, 0, 1]);
    for (name, dtype) in [("half", Dtype::F16), ("brain", Dtype::BF16), ("double", Dtype::F64), ("flags", Dtype::BOOL)]
    {
        assert_eq!(file.tensor(name).unwrap().dtype(), dtype, "{name}");
    }

    let back = load(&path).unwrap();
    assert_eq!(back.keys().collect::<Vec<_>>(), state.keys().collect::<Vec<_>>());
    for (name, t) in &state {
        assert_eq!(back[name].to_bytes().unwrap(), t.to_bytes().unwrap(), "{name}");
        assert_eq!(back[name].dtype().unwrap(), t.dtype().unwrap().strong(), "{name}");
    }
}

#[test]
fn a_file_as_numpys_writer_makes_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("b.safetensors");
    // The header is padded with spaces, has metadata, and its entries are in another order than the data.
    let header = r#"{"__metadata__":{"format":"np"},"b":{"dtype":"I16","shape":[3],"data_offsets":[8,14]},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}     "#;
    let a = [1.0f32, -3.5].iter().flat_map(|x| x.to_le_bytes());
    let b = [-1i16, 2, 300].iter().flat_map(|x| x.to_le_bytes());
    write(&path, header, &a.chain(b).collect::<Vec<u8>>());
    let state = load(&path).unwrap();
    assert_eq!(state["a"].to_vec::<f32>().unwrap(), [1.0, -3.5]);
    assert_eq!(state["b"].to_vec::<i16>().unwrap(), [-1, 2, 300]);
    assert_eq!(state["a"].shape().unwrap(), [Dim::Int(1), Dim::Int(2)]);
}

#[test]
fn damaged_files_are_errors_that_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.safetensors");
    let one = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let check = |what: &str| {
        let e = load(&path).err().unwrap_or_else(|| panic!("{what} was read"));
        assert!(e.to_string().contains("c.safetensors"), "{what}: {e}");
    };
    check("a missing file");
    std::fs::write(&path, b"").unwrap();
    check("an empty file");
    std::fs::write(&path, u64::MAX.to_le_bytes()).unwrap();
    check("an endless header");
    for (what, header, data) in [
        ("too little data", one, 4),
        ("too much data", one, 12),
        ("no JSON", "{\"a\":", 0),
        ("a wrong length", r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8),
        ("an overflowing shape", r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#, 0),
        ("offsets backwards", r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8),
    ] {
        write(&path, header, &vec![0; data]);
        check(what);
    }
}

#[test]
fn a_failed_save_leaves_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d.safetensors");
    let mut state = StateDict::new();
    state.insert("x".into(), Tensor::new([1.0f32]));
    save(&state, &path, Tensor::to_bytes).unwrap();
    let old = std::fs::read(&path).unwrap();
    state.insert("y".into(), Tensor::new([1.0f32, 2.0]).reshape([3]));
    assert!(matches!(save(&state, &path, Tensor::to_bytes), Err(StateError::Faulty { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), old);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
