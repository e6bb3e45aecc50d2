//! IDX files: MNIST and its kin.

use super::{DataError, Dataset};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// MNIST's training and test sets from a folder with its four IDX files, plain or gz.
///
/// # Errors
/// A file is missing, cannot be read, has another magic number, is shorter or longer than its header says, or labels
/// and pictures differ in number.
pub fn mnist(dir: impl AsRef<Path>) -> Result<(Dataset, Dataset), DataError> {
    let dir = dir.as_ref();
    let train = mnist_part(dir, "train-images-idx3-ubyte", "train-labels-idx1-ubyte")?;
    let test = mnist_part(dir, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")?;
    Ok((train, test))
}

/// Fashion-MNIST's training and test sets: ten kinds of clothes in MNIST's format and file names.
///
/// # Errors
/// As [`mnist`].
pub fn fashion_mnist(dir: impl AsRef<Path>) -> Result<(Dataset, Dataset), DataError> {
    mnist(dir)
}

fn mnist_part(dir: &Path, images: &'static str, labels: &'static str) -> Result<Dataset, DataError> {
    let (path, bytes) = read_idx(dir, images)?;
    let (sizes, pixels) = idx(&path, &bytes, "pictures", 0x0803)?;
    let (label_path, label_bytes) = read_idx(dir, labels)?;
    let (count, labels) = idx(&label_path, &label_bytes, "labels", 0x0801)?;
    if count[0] != sizes[0] {
        return Err(DataError::Count { dir: dir.into(), images: sizes[0], labels: count[0] });
    }
    if let Some(index) = labels.iter().position(|l| *l > 9) {
        return Err(DataError::Label { path: label_path, index, label: labels[index] });
    }
    let (pixels, labels) = (pixels.to_vec(), labels.to_vec());
    Ok(Dataset { channels: 1, height: sizes[1], width: sizes[2], white: 255, pixels, labels })
}

/// A file by its usual names: the last hyphen may be a dot, `.gz` may follow.
fn read_idx(dir: &Path, name: &'static str) -> Result<(PathBuf, Vec<u8>), DataError> {
    let dotted = name.replacen("-idx", ".idx", 1);
    let names = [name.to_string(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
    for file in names {
        let path = dir.join(file);
        let raw = match std::fs::read(&path) {
            Ok(raw) => raw,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(DataError::Io { path, error }),
        };
        // A gz file is known by its first bytes, whatever it is called.
        if !raw.starts_with(&[0x1f, 0x8b]) {
            return Ok((path, raw));
        }
        let mut bytes = Vec::new();
        return match GzDecoder::new(raw.as_slice()).read_to_end(&mut bytes) {
            Ok(_) => Ok((path, bytes)),
            Err(error) => Err(DataError::Io { path, error }),
        };
    }
    Err(DataError::Missing { dir: dir.into(), name })
}

/// Sizes and content of an IDX file of bytes; the low byte of the magic number is its rank.
fn idx<'a>(path: &Path, bytes: &'a [u8], what: &'static str, wanted: u32) -> Result<(Vec<usize>, &'a [u8]), DataError> {
    let rank = (wanted & 0xff) as usize;
    let head = 4 * (1 + rank);
    let word = |k: usize| bytes.get(4 * k..4 * k + 4).map(|b| b.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)));
    let short = |wanted| DataError::Length { path: path.into(), found: bytes.len(), wanted };
    match word(0) {
        Some(found) if found != wanted => return Err(DataError::Magic { path: path.into(), what, found, wanted }),
        Some(_) => {}
        None => return Err(short(head)),
    }
    let sizes: Option<Vec<usize>> = (1..=rank).map(|k| word(k).map(|w| w as usize)).collect();
    let sizes = sizes.ok_or_else(|| short(head))?;
    let total = sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s)).and_then(|n| n.checked_add(head));
    match total {
        Some(total) if total == bytes.len() => Ok((sizes, &bytes[head..])),
        total => Err(short(total.unwrap_or(usize::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn idx_bytes(magic: u32, sizes: &[u32], data: &[u8]) -> Vec<u8> {
        let head = std::iter::once(&magic).chain(sizes).flat_map(|w| w.to_be_bytes());
        head.chain(data.iter().copied()).collect()
    }
    fn folder(images: &[u8], labels: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for part in ["train", "t10k"] {
            std::fs::write(dir.path().join(format!("{part}-images-idx3-ubyte")), images).unwrap();
            let file = std::fs::File::create(dir.path().join(format!("{part}-labels-idx1-ubyte.gz"))).unwrap();
            let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            gz.write_all(labels).unwrap();
            gz.finish().unwrap();
        }
        dir
    }

    #[test]
    fn mnist_is_read_plain_and_gz() {
        let dir = folder(&idx_bytes(0x803, &[2, 2, 1], &[1, 2, 3, 255]), &idx_bytes(0x801, &[2], &[7, 9]));
        let (train, test) = mnist(dir.path()).unwrap();
        assert_eq!(train, test);
        assert_eq!((train.height, train.width, &train.labels[..]), (2, 1, &[7u8, 9][..]));
        assert_eq!(train.pixels, [1, 2, 3, 255]);
    }

    #[test]
    fn damaged_mnist_says_what_is_wrong() {
        let good = idx_bytes(0x801, &[1], &[3]);
        let image = idx_bytes(0x803, &[1, 1, 1], &[5]);
        let cases = [
            (image[..17 - 1].to_vec(), good.clone(), "16 bytes where its header announces 17"),
            (image[..3].to_vec(), good.clone(), "3 bytes where its header announces 16"),
            (good.clone(), good.clone(), "magic number 0x00000801 where an IDX file of pictures has 0x00000803"),
            (image.clone(), idx_bytes(0x801, &[2], &[3, 4]), "1 pictures but 2 labels"),
            (image.clone(), idx_bytes(0x801, &[1], &[12]), "label 12 at 0; the largest is 9"),
            (idx_bytes(0x803, &[u32::MAX, u32::MAX, u32::MAX], &[]), good.clone(), "16 bytes where its header"),
        ];
        for (images, labels, text) in cases {
            let dir = folder(&images, &labels);
            let error = mnist(dir.path()).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let error = mnist(Path::new("/nonexistent/mnist")).unwrap_err().to_string();
        assert_eq!(
            error,
            "/nonexistent/mnist: no file train-images-idx3-ubyte or train-images-idx3-ubyte.gz; MNIST has it"
        );
    }
}
