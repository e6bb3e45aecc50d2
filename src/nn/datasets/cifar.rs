//! CIFAR-10's binary version: records of one label and 32x32 pixels of red, green and blue.

use super::{DataError, Dataset};
use std::path::Path;

const SIDE: usize = 32;
const RECORD: usize = 1 + 3 * SIDE * SIDE;
const TRAIN: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];

/// CIFAR-10's training and test sets from the folder of its binary version (`data_batch_1.bin` to `5`,
/// `test_batch.bin`), or from the folder that has it as `cifar-10-batches-bin`: 3x32x32 pictures of ten classes.
///
/// # Errors
/// A file is missing, cannot be read, is no whole number of records or has a label above 9.
pub fn cifar10(dir: impl AsRef<Path>) -> Result<(Dataset, Dataset), DataError> {
    let dir = dir.as_ref();
    let inner = dir.join("cifar-10-batches-bin");
    let dir = if inner.is_dir() { inner.as_path() } else { dir };
    Ok((batches(dir, &TRAIN)?, batches(dir, &["test_batch.bin"])?))
}

fn batches(dir: &Path, names: &[&'static str]) -> Result<Dataset, DataError> {
    let (pixels, labels) = (Vec::new(), Vec::new());
    let mut all = Dataset { channels: 3, height: SIDE, width: SIDE, white: 255, pixels, labels };
    for name in names {
        let path = dir.join(name);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(DataError::NoCifar { dir: dir.into(), name });
            }
            Err(error) => return Err(DataError::Io { path, error }),
        };
        if bytes.len() % RECORD != 0 {
            let wanted = bytes.len().next_multiple_of(RECORD);
            return Err(DataError::Length { path, found: bytes.len(), wanted });
        }
        for record in bytes.chunks_exact(RECORD) {
            if record[0] > 9 {
                return Err(DataError::Label { path, index: all.labels.len(), label: record[0] });
            }
            all.labels.push(record[0]);
            all.pixels.extend_from_slice(&record[1..]);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_pictures_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let record = |label: u8| [vec![label], (0..3072).map(|k| (k / 1024 * 50 + 1) as u8).collect()].concat();
        let write = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        for name in TRAIN {
            write(name, &[record(3), record(9)].concat());
        }
        let missing = cifar10(dir.path()).unwrap_err().to_string();
        assert!(missing.ends_with("no test_batch.bin; CIFAR-10 (binary version) has it"), "{missing}");
        write("test_batch.bin", &record(0));
        let (train, test) = cifar10(dir.path()).unwrap();
        assert_eq!((train.len(), test.len(), train.labels[1], train.channels), (10, 1, 9, 3));
        assert_eq!([0, 1023, 1024, 3071].map(|k| test.pixels[k]), [1, 1, 51, 101]);
        assert_eq!(test.images().shape().unwrap(), [1, 3, 32, 32].map(crate::uop::Dim::Int));
        write("test_batch.bin", &record(10));
        assert!(cifar10(dir.path()).unwrap_err().to_string().ends_with("label 10 at 0; the largest is 9"));
        write("test_batch.bin", &record(0)[1..]);
        assert!(matches!(cifar10(dir.path()), Err(DataError::Length { found: 3072, wanted: 3073, .. })));
    }
}
