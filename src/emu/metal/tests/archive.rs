//! Pipelines in binary archives, and libraries that were compiled elsewhere.

use super::device::{On, SOURCE, scale};
use crate::Config;
use doorbell_device::metal::MetalOptions;
use doorbell_device::{Code, Device, DeviceError, KernelImage, QueueKind};
use std::path::Path;

fn cached(folder: &Path, family: u32) -> On {
    let options = MetalOptions { archive: Some(folder.to_owned()), ..MetalOptions::default() };
    // The same name, as of chips whose names do not tell them apart.
    On::with(Config { family, name: "Software GPU".into(), ..Config::default() }, &options)
}

/// Loads a kernel, runs it, and tells how many pipelines came from the archive.
fn hits(folder: &Path, family: u32) -> u64 {
    let on = cached(folder, family);
    let (kernel, a) = (on.kernel("scale").unwrap(), on.memory(&[1.0; 8]));
    on.device.submit(QueueKind::Compute, &[scale(&kernel, &a, &a, 2)]).unwrap();
    assert_eq!(on.values(&a), [2.0; 8]);
    let hits = on.machine.archive_hits();
    drop((kernel, a));
    on.ends_well();
    hits
}

#[test]
fn pipelines_of_one_process_are_found_by_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("entries");
    assert_eq!(hits(&inner, 7), 0, "the folder is made");
    let file = inner.join("metal-archive-Software_GPU");
    assert!(file.exists());
    assert_eq!(hits(&inner, 7), 1);
    assert_eq!(hits(&inner, 9), 0, "an archive of another GPU is ignored, and replaced");
    assert_eq!((hits(&inner, 9), hits(&inner, 7)), (1, 0));
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1, "nothing unfinished is left");
}

#[test]
fn a_damaged_archive_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metal-archive-Software_GPU");
    assert_eq!(hits(folder.path(), 7), 0);
    let whole = std::fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[14] ^= 1;
    for damaged in [&b""[..], b"no archive", &whole[..whole.len() - 3], &changed] {
        std::fs::write(&file, damaged).unwrap();
        assert_eq!(hits(folder.path(), 7), 0);
        assert_eq!(hits(folder.path(), 7), 1, "it was replaced");
    }
}

#[test]
fn a_folder_that_cannot_be_written_costs_nothing_but_the_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, b"").unwrap();
    assert_eq!(hits(&blocked.join("entries"), 7), 0);
    assert_eq!(hits(&blocked.join("entries"), 7), 0);
}

#[test]
fn a_metallib_is_given_to_the_framework_and_refused_by_the_stand_in_with_a_reason() {
    let on = On::new();
    let load = |bytes: &[u8]| {
        let code = Code::Elf { bytes, entry: "scale" };
        on.device.load(&[KernelImage { name: "scale", code }]).map(|_| ())
    };
    let error = load(b"MTLB\x01\x80\x02\x00 and code").unwrap_err();
    assert!(matches!(error, DeviceError::Load { .. }));
    let text = error.to_string();
    assert!(text.contains("it runs source only (MTLLibraryErrorDomain 1)"), "{text}");
    let error = load(&[0xff, 0xfe, 0]).unwrap_err().to_string();
    assert!(error.ends_with("it is neither text nor a metallib"), "{error}");
    load(SOURCE.as_bytes()).unwrap();
    let mine = format!("doorbell-{}-", std::process::id());
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
    let left = left.filter(|f| f.file_name().to_string_lossy().starts_with(&mine)).count();
    assert_eq!(left, 0, "the library's file is removed");
    on.ends_well();
}
