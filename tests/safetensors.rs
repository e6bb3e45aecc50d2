//! Files of tensors: written here and read by the `safetensors` crate, and made by hand as numpy's writer lays them
//! out.

use doorbell::nn::StateDict;
use doorbell::nn::state::{StateError, load, save};
use doorbell::tensor::prelude::*;
use doorbell::tensor::slice;
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
    save(&state, &path).unwrap();

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
    save(&state, &path).unwrap();
    let old = std::fs::read(&path).unwrap();
    state.insert("y".into(), Tensor::new([1.0f32, 2.0]).reshape([3]));
    assert!(matches!(save(&state, &path), Err(StateError::Faulty { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), old);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn elements_of_a_file_are_a_tensor_from_any_byte_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("raw.bin");
    let numbers: Vec<u8> = (0..12).flat_map(|k| (k as f32).to_le_bytes()).collect();
    std::fs::write(&path, [&[9u8, 9, 9][..], &numbers, &[7]].concat()).unwrap();
    let x = Tensor::from_file(&path, Scalar::F32, [3, 4], 3);
    assert_eq!(
        (x.shape().unwrap(), &*x.device()),
        (vec![Dim::Int(3), Dim::Int(4)], &*format!("DISK:{}", path.display()))
    );
    assert_eq!(x.to_vec::<f32>().unwrap(), (0..12).map(|k| k as f32).collect::<Vec<_>>());
    assert_eq!(x.get(1).to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 7.0]);
    let here = x.to("CPU").add(0.5).get((2, 1..3)).to_vec::<f32>().unwrap();
    assert_eq!(here, [9.5, 10.5]);
    assert_eq!(x.get(slice(1, 3, 1)).to("CPU").sum(()).item().unwrap(), 60.0);
    let last = Tensor::from_file(&path, Scalar::U8, [1], 51);
    assert_eq!(last.to("CPU").to_vec::<u8>().unwrap(), [7]);
    assert!(x.add(1.0).realize().is_err(), "nothing computes on a disk");
}

#[test]
fn a_file_that_is_missing_too_short_or_cut_later_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.bin");
    let missing = Tensor::from_file(&path, Scalar::F32, [1], 0);
    let line = line!() - 1;
    let text = missing.realize().map(drop).unwrap_err().to_string();
    assert!(text.starts_with("from_file: ") && text.contains("short.bin"), "{text}");
    assert!(text.contains(&format!("safetensors.rs:{line}:")), "{text}");
    std::fs::write(&path, [1u8; 10]).unwrap();
    let text = Tensor::from_file(&path, Scalar::F32, [2], 4).shape().unwrap_err().to_string();
    assert!(text.contains("2 f32 from byte 4") && text.contains("which has 10"), "{text}");
    assert!(Tensor::from_file(&path, Scalar::F32, [1], u64::MAX).shape().is_err());
    assert!(Tensor::from_file(&path, Scalar::Void, [1], 0).shape().is_err());
    let x = Tensor::from_file(&path, Scalar::U8, [10], 0);
    std::fs::write(&path, [1u8; 4]).unwrap();
    for error in [x.to_vec::<u8>().unwrap_err(), x.to("CPU").realize().map(drop).unwrap_err()] {
        assert!(error.to_string().contains("short.bin"), "{error}");
    }
}

#[test]
fn loaded_tensors_are_those_of_the_file_that_was_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.safetensors");
    let one = |v: f32| StateDict::from([("x".to_string(), Tensor::new([v; 5]))]);
    save(&one(1.0), &path).unwrap();
    let first = load(&path).unwrap();
    // Another file takes the name before anything is read.
    save(&one(2.0), &path).unwrap();
    assert_eq!(load(&path).unwrap()["x"].to_vec::<f32>().unwrap(), [2.0; 5]);
    assert_eq!(first["x"].to_vec::<f32>().unwrap(), [1.0; 5]);
    assert_eq!((&first["x"] + 1.0).to_vec::<f32>().unwrap(), [2.0; 5]);
}

#[test]
fn saved_files_have_the_permissions_of_new_files_or_of_the_old_one() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, plain) = (dir.path().join("f.safetensors"), dir.path().join("plain"));
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    let state = StateDict::from([("x".to_string(), Tensor::new([1.0f32]))]);
    std::fs::write(&plain, b"").unwrap();
    save(&state, &path).unwrap();
    assert_eq!(mode(&path), mode(&plain));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    save(&state, &path).unwrap();
    assert_eq!(mode(&path), 0o640);
}
