//! MNIST's files as they may be found: missing, cut short, of another kind, and right.

use super::{code, err, json, run, temp};
use std::path::Path;

const NAMES: [(&str, &str, usize); 2] = [
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 96),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 40),
];

fn head(magic: u32, sizes: &[u32]) -> Vec<u8> {
    std::iter::once(magic).chain(sizes.iter().copied()).flat_map(u32::to_be_bytes).collect()
}

/// Small pictures: digit d has a bright row d.
fn synthetic(dir: &Path) {
    for (images, labels, n) in NAMES {
        let mut x = head(0x0803, &[n as u32, 12, 12]);
        let mut y = head(0x0801, &[n as u32]);
        for k in 0..n {
            let d = k * 7 % 10;
            y.push(d as u8);
            x.extend((0..144).map(|p| if p / 12 == d { 250 } else { (p * k % 23) as u8 }));
        }
        std::fs::write(dir.join(images), x).unwrap();
        std::fs::write(dir.join(labels), y).unwrap();
    }
}

fn refused(dir: &Path, words: &[&str]) {
    let o = run(dir, &["train", "--epochs", "1", "--batch", "16", "--mnist", "."]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    for w in words {
        assert!(err(&o).contains(w), "'{w}' is not in: {}", err(&o));
    }
    assert!(!dir.join("mnist.safetensors").exists());
}

#[test]
fn right_files_train_an_epoch() {
    let t = temp();
    synthetic(t.path());
    let o = run(t.path(), &["train", "--epochs", "1", "--batch", "16", "--mnist", ".", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, &["test_accuracy"]);
    assert_eq!((v["steps"].as_u64(), v["epochs"].as_u64()), (Some(6), Some(1)));
    assert!(t.path().join("mnist.safetensors").exists());
}

#[test]
fn missing_files_are_named() {
    let t = temp();
    refused(t.path(), &["train-images-idx3-ubyte"]);
    synthetic(t.path());
    std::fs::remove_file(t.path().join(NAMES[1].1)).unwrap();
    refused(t.path(), &[NAMES[1].1]);
}

#[test]
fn cut_files_are_named_with_their_length() {
    for keep in [0, 3, 4, 10, 16, 1000] {
        let t = temp();
        synthetic(t.path());
        let path = t.path().join(NAMES[0].0);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..keep]).unwrap();
        refused(t.path(), &[NAMES[0].0]);
    }
}

#[test]
fn a_file_of_another_kind_is_named() {
    let t = temp();
    synthetic(t.path());
    std::fs::copy(t.path().join(NAMES[0].1), t.path().join(NAMES[0].0)).unwrap();
    refused(t.path(), &[NAMES[0].0]);
    std::fs::write(t.path().join(NAMES[0].0), "<html>not found</html>").unwrap();
    refused(t.path(), &[NAMES[0].0]);
}

#[test]
fn a_damaged_gz_file_is_named() {
    let t = temp();
    synthetic(t.path());
    std::fs::write(t.path().join(NAMES[0].0), [0x1f, 0x8b, 8, 0, 0, 0]).unwrap();
    refused(t.path(), &[NAMES[0].0]);
}

#[test]
fn sizes_beyond_the_file_or_beyond_memory_and_labels_beyond_nine_are_refused() {
    let t = temp();
    synthetic(t.path());
    std::fs::write(t.path().join(NAMES[0].0), head(0x0803, &[u32::MAX, u32::MAX, u32::MAX])).unwrap();
    refused(t.path(), &[NAMES[0].0]);
    synthetic(t.path());
    let mut y = std::fs::read(t.path().join(NAMES[0].1)).unwrap();
    y[20] = 10;
    std::fs::write(t.path().join(NAMES[0].1), y).unwrap();
    refused(t.path(), &[NAMES[0].1, "10"]);
}

#[test]
fn no_pictures_at_all_are_refused() {
    let t = temp();
    synthetic(t.path());
    std::fs::write(t.path().join(NAMES[1].0), head(0x0803, &[0, 12, 12])).unwrap();
    std::fs::write(t.path().join(NAMES[1].1), head(0x0801, &[0])).unwrap();
    refused(t.path(), &["no held-out rows"]);
    synthetic(t.path());
    std::fs::write(t.path().join(NAMES[0].0), head(0x0803, &[96, 0, 0])).unwrap();
    std::fs::write(t.path().join(NAMES[1].0), head(0x0803, &[40, 0, 0])).unwrap();
    refused(t.path(), &["0 x 0"]);
}

#[test]
fn pictures_of_two_sizes_are_refused() {
    let t = temp();
    synthetic(t.path());
    let x = [head(0x0803, &[40, 2, 2]), vec![0; 160]].concat();
    std::fs::write(t.path().join(NAMES[1].0), x).unwrap();
    refused(t.path(), &["12 x 12", "2 x 2"]);
}
