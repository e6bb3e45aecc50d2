//! Files of PyTorch and numpy, archives, metadata, strictness.

use super::{cases, stored, tensor};
use doorbell::nn::state::{
    Item, Loading, StateError, load, load_into, load_into_with, load_metadata, load_npy, load_npz, load_torch,
    load_torch_items, renamed, save_npy, save_npz, save_with_metadata, tar_extract, zip_extract,
};
use doorbell::nn::{Linear, Module, StateDict};
use doorbell::tensor::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of the references, in the program: it may run where its source is not.
macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, &include_bytes!(concat!("../data/nn/", $name)).as_slice())),*]
    };
}
const FILES: &[(&str, &[u8])] = files!(
    "model.pt" "legacy.pt" "newer.pt" "complex.pt" "evil.pt" "arrays.npz" "packed.npz" "plain.npy" "fortran.npy"
    "big.npy" "words.npy" "one.npy" "flags.npy" "scalar.npy"
);

fn bytes(name: &str) -> &'static [u8] {
    FILES.iter().find(|f| f.0 == name).unwrap().1
}

/// A folder with all of them.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    FILES.iter().for_each(|(name, bytes)| std::fs::write(dir.path().join(name), bytes).unwrap());
    dir
}

fn loaded(path: &Path) -> StateDict {
    match path.extension().and_then(|e| e.to_str()) {
        Some("pt") => load_torch(path).unwrap(),
        Some("npz") => load_npz(path).unwrap(),
        _ => StateDict::from([(String::new(), load_npy(path).unwrap())]),
    }
}

#[test]
fn files_of_pytorch_and_numpy_hold_what_they_were_given() {
    let dir = folder();
    let mut open: BTreeMap<String, StateDict> = BTreeMap::new();
    let mut count = 0;
    for case in cases(include_bytes!("../data/nn/files.jsonl.gz")) {
        let (file, name) = (case["file"].as_str().unwrap(), case["name"].as_str().unwrap());
        let state = open.entry(file.into()).or_insert_with(|| loaded(&dir.path().join(file)));
        let (dtype, shape, wanted) = stored(&case);
        let t = state.get(name).unwrap_or_else(|| panic!("{file}: no {name}: {:?}", state.keys()));
        assert_eq!(t.dtype().unwrap(), dtype, "{file}: {name}");
        assert_eq!(t.shape().unwrap(), shape.iter().map(|n| Dim::from(*n)).collect::<Vec<_>>(), "{file}: {name}");
        assert_eq!(t.to_bytes().unwrap(), wanted, "{file}: {name}");
        count += 1;
    }
    assert_eq!(count, 100);
    assert_eq!(open["model.pt"].len(), 25);
}

#[test]
fn a_checkpoint_keeps_its_other_values_and_loads_into_a_module() {
    let dir = folder();
    for file in ["model.pt", "legacy.pt"] {
        let items = load_torch_items(dir.path().join(file)).unwrap();
        assert!(matches!(items.get("epoch"), Some(Item::Int(3))), "{file}");
        assert!(matches!(items.get("lr"), Some(Item::Float(x)) if *x == 0.1));
        assert!(matches!(items.get("name"), Some(Item::Text(t)) if t == "net"));
        assert!(matches!(items.get("none"), Some(Item::None)) && matches!(items.get("flag"), Some(Item::Bool(true))));
        assert!(matches!(items.get("large"), Some(Item::Int(i)) if *i == -(1 << 40)));
        assert!(matches!(items.get("shape"), Some(Item::List(l)) if matches!(l[..], [Item::Int(2), Item::Int(3)])));
        let net = Linear::new(3, 2);
        load_into(&net, &items.get("model").unwrap().state_dict()).unwrap();
        assert_eq!(net.weight.to_vec::<f32>().unwrap(), [-7.5, -6.5, -5.5, -3.5, -2.5, -1.5]);
    }
}

#[test]
fn what_pytorchs_files_must_not_hold_is_named() {
    let dir = folder();
    let text = |name: &str| load_torch(dir.path().join(name)).unwrap_err().to_string();
    let evil = text("evil.pt");
    assert!(evil.contains("system', which is not in the list of what may be loaded"), "{evil}");
    assert_eq!(text("complex.pt"), "tensor 'x': element type torch.ComplexFloatStorage has no counterpart");
    std::fs::write(dir.path().join("text.pt"), "import os").unwrap();
    assert!(text("text.pt").ends_with("no file of torch.save: neither a zip archive nor its older pickle"));
    assert!(text("arrays.npz").ends_with("a zip archive without data.pkl"));
    assert!(matches!(load_torch(dir.path().join("none.pt")), Err(StateError::Io { .. })));
}

#[test]
fn numpys_own_bytes_are_written() {
    let dir = folder();
    let path = dir.path().join("out.npy");
    let named: BTreeMap<String, Tensor> = cases(include_bytes!("../data/nn/files.jsonl.gz"))
        .iter()
        .filter(|c| c["file"].as_str().unwrap().ends_with(".npy"))
        .map(|c| (c["file"].as_str().unwrap().to_string(), tensor(c)))
        .collect();
    for name in ["plain.npy", "one.npy", "flags.npy", "scalar.npy"] {
        save_npy(&named[name], &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes(name), "{name}");
    }
    let all = load_npz(dir.path().join("arrays.npz")).unwrap();
    let out = dir.path().join("out.npz");
    save_npz(&all, &out).unwrap();
    let back = load_npz(&out).unwrap();
    assert_eq!(back.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    for (name, t) in &all {
        assert_eq!(back[name].to_bytes().unwrap(), t.to_bytes().unwrap(), "{name}");
    }
    let half = save_npy(&Tensor::ones([2]).cast(Scalar::BF16), &path).unwrap_err().to_string();
    assert_eq!(half, "tensor 'out': element type bf16 has no counterpart");
}

#[test]
fn damaged_files_are_errors_that_name_the_file() {
    let dir = folder();
    let path = dir.path().join("damaged");
    for (name, whole) in FILES.iter().filter(|(n, _)| *n != "evil.pt" && *n != "complex.pt") {
        for cut in [0, 1, 7, 30, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let error = match name.rsplit('.').next().unwrap() {
                "pt" => load_torch(&path).err(),
                "npz" => load_npz(&path).err(),
                _ => load_npy(&path).err(),
            };
            let error = error.unwrap_or_else(|| panic!("{name} was read from {cut} bytes")).to_string();
            assert!(error.contains("damaged"), "{name} {cut}: {error}");
        }
    }
}

#[test]
fn archives_give_their_files_as_bytes() {
    let dir = folder();
    for file in ["arrays.npz", "packed.npz"] {
        let files = zip_extract(dir.path().join(file)).unwrap();
        let flags = files["flags.npy"].to_bytes().unwrap();
        assert_eq!(flags, bytes("flags.npy"), "{file}");
    }
    let path = dir.path().join("a.tar");
    let long = format!("{}/b.bin", "folder".repeat(20));
    let mut tar = [
        entry("a.txt", b"hello", b'0'),
        entry("dir/", b"", b'5'),
        entry("././@LongLink", format!("{long}\0").as_bytes(), b'L'),
        entry("cut", &[7; 600], b'0'),
    ]
    .concat();
    tar.extend([0u8; 1024]);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, &tar).unwrap();
    for archive in [tar.clone(), gz.finish().unwrap()] {
        std::fs::write(&path, archive).unwrap();
        let files = tar_extract(&path).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a.txt", long.as_str()]);
        assert_eq!(files["a.txt"].to_bytes().unwrap(), b"hello");
        assert_eq!(files[&long].to_bytes().unwrap(), [7; 600]);
    }
    tar[3] ^= 1;
    std::fs::write(&path, &tar).unwrap();
    assert!(tar_extract(&path).unwrap_err().to_string().ends_with("the header at byte 0 is damaged"));
    std::fs::write(&path, &tar[..300]).unwrap();
    assert!(tar_extract(&path).unwrap_err().to_string().contains("no tar archive"));
}

/// A file in a tar archive.
fn entry(name: &str, data: &[u8], kind: u8) -> Vec<u8> {
    let mut head = vec![0u8; 512];
    head[..name.len()].copy_from_slice(name.as_bytes());
    head[100..108].copy_from_slice(b"0000644\0");
    head[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    head[148..156].copy_from_slice(b"        ");
    head[156] = kind;
    let sum: u32 = head.iter().map(|b| u32::from(*b)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head.extend(data);
    head.resize(head.len().next_multiple_of(512), 0);
    head
}

#[test]
fn metadata_stands_beside_the_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    let texts = BTreeMap::from([("version".to_string(), "7".to_string()), ("made by".into(), "a \"test\"".into())]);
    save_with_metadata(&Linear::new(2, 2).state_dict(), &texts, &path).unwrap();
    assert_eq!(load_metadata(&path).unwrap(), texts);
    assert_eq!(load(&path).unwrap().len(), 2);
    doorbell::nn::state::save(&StateDict::new(), &path).unwrap();
    assert!(load_metadata(&path).unwrap().is_empty());
}

#[test]
fn a_state_is_taken_strictly_or_in_part_under_any_names() {
    let net = Linear::new(2, 3);
    let before = net.bias.clone().unwrap().to_vec::<f32>().unwrap();
    let state = StateDict::from([
        ("weight".to_string(), Tensor::full([3, 2], 2)),
        ("extra".into(), Tensor::ones([1])),
        ("norm.num_batches_tracked".into(), Tensor::new(5i64)),
    ]);
    assert!(matches!(load_into(&net, &state), Err(StateError::Missing { .. })));
    let part = Loading { strict: false, cast: false };
    assert!(matches!(load_into_with(&net, &state, part), Err(StateError::Mismatch { .. })));
    let report = load_into_with(&net, &state, Loading { cast: true, ..part }).unwrap();
    assert_eq!((report.missing, report.unexpected), (vec!["bias".to_string()], vec!["extra".to_string()]));
    assert_eq!(net.weight.to_vec::<f32>().unwrap(), [2.0; 6]);
    assert_eq!(net.bias.clone().unwrap().to_vec::<f32>().unwrap(), before);
    let only = renamed(&state, |n| n.strip_prefix("we").map(|rest| format!("un{rest}"))).unwrap();
    assert_eq!(only.keys().collect::<Vec<_>>(), ["unight"]);
    let error = renamed(&state, |_| Some("same".into())).unwrap_err().to_string();
    assert_eq!(error, "tensors 'extra' and 'norm.num_batches_tracked' would both be called 'same'");
}

#[test]
fn loaded_tensors_of_a_file_that_is_gone_are_still_there() {
    let dir = folder();
    let path: PathBuf = dir.path().join("model.pt");
    let state = load_torch(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(state["model.bias"].to_vec::<f32>().unwrap(), [4.5, 5.5]);
}
