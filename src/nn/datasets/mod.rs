//! Training data: the embedded hand-written digits, and the files of MNIST, Fashion-MNIST and CIFAR-10.
//!
//! Sources: UCI "Optical Recognition of Handwritten Digits" (see data/README.md); Y. LeCun's page on the IDX format
//! (big-endian magic 0x00000803 for images, 0x00000801 for labels); A. Krizhevsky's page on CIFAR's binary version.
//! Nothing is fetched: the files are read from a folder.
//!
//! ```no_run
//! use doorbell::nn::datasets::mnist;
//!
//! let (train, test) = mnist("data/mnist")?;
//! let (x, y) = (train.scaled(), train.classes()); // (60000, 1, 28, 28) f32 from 0 to 1, (60000,) i32
//! let x_test = test.images(); // u8
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cifar;
mod idx;

pub use cifar::cifar10;
pub use idx::{fashion_mnist, mnist};

use crate::tensor::{Elementwise, Tensor};
use crate::uop::Scalar;
use flate2::read::GzDecoder;
use std::path::PathBuf;

const DIGITS: &[u8] = include_bytes!("../../../data/digits.csv.gz");

/// Pictures with labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// 1 for grey, 3 for red, green and blue.
    pub channels: usize,
    /// Rows of a picture.
    pub height: usize,
    /// Columns of a picture.
    pub width: usize,
    /// Largest value a pixel can have.
    pub white: u8,
    /// Picture after picture, channel after channel, row-major.
    pub pixels: Vec<u8>,
    /// The class of each picture, from 0 on.
    pub labels: Vec<u8>,
}

/// Which digits are held out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Split {
    /// Every sixth row (index % 6 = 5): 299 rows of the same writers.
    Sixth,
    /// The last 297 rows: digits of other writers.
    Writers,
}

/// Why there is no data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum DataError {
    /// The operating system refused to read a file, or it is no gz file after all.
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// A file is not in the folder.
    #[error("{}: no file {name} or {name}.gz; MNIST has it", dir.display())]
    Missing { dir: PathBuf, name: &'static str },
    /// A file is of another kind.
    #[error("{}: magic number {found:#010x} where an IDX file of {what} has {wanted:#010x}", path.display())]
    Magic { path: PathBuf, what: &'static str, found: u32, wanted: u32 },
    /// A file is shorter or longer than it should be.
    #[error("{}: {found} bytes where its header announces {wanted}", path.display())]
    Length { path: PathBuf, found: usize, wanted: usize },
    /// Pictures and labels do not belong together.
    #[error("{}: {images} pictures but {labels} labels", dir.display())]
    Count { dir: PathBuf, images: usize, labels: usize },
    /// A label is no class.
    #[error("{}: label {label} at {index}; the largest is 9", path.display())]
    Label { path: PathBuf, index: usize, label: u8 },
    /// The embedded digits are damaged.
    #[error("embedded digits: row {row}: {what}")]
    Digits { row: usize, what: String },
    /// CIFAR-10's files are not in the folder.
    #[error("{}: no {name}; CIFAR-10 (binary version) has it", dir.display())]
    NoCifar { dir: PathBuf, name: &'static str },
}

impl Dataset {
    /// Number of pictures.
    pub fn len(&self) -> usize {
        self.labels.len()
    }
    /// Whether there are no pictures.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
    /// Pixels of one picture, all channels.
    fn size(&self) -> usize {
        self.channels * self.height * self.width
    }
    /// The pictures for which `keep` is true, in order.
    pub fn filtered(&self, keep: impl Fn(usize) -> bool) -> Dataset {
        let size = self.size();
        let rows: Vec<usize> = (0..self.len()).filter(|i| keep(*i)).collect();
        Dataset {
            pixels: rows.iter().flat_map(|i| &self.pixels[i * size..(i + 1) * size]).copied().collect(),
            labels: rows.iter().map(|i| self.labels[*i]).collect(),
            ..*self
        }
    }
    /// Pixels from 0 to 1, (n, channels, height, width) in row-major order.
    pub fn floats(&self) -> Vec<f32> {
        self.pixels.iter().map(|p| f32::from(*p) / f32::from(self.white)).collect()
    }
    /// The pictures as they are, (n, channels, height, width) u8 on the default device.
    pub fn images(&self) -> Tensor {
        Tensor::from_slice(&self.pixels, [self.len(), self.channels, self.height, self.width])
    }
    /// The pictures with pixels from 0 to 1, (n, channels, height, width) f32. Bytes are copied to the device and
    /// converted there.
    pub fn scaled(&self) -> Tensor {
        self.images().cast(Scalar::F32).div(f64::from(self.white))
    }
    /// The labels, (n,) i32 on the default device.
    pub fn classes(&self) -> Tensor {
        let labels: Vec<i32> = self.labels.iter().map(|l| i32::from(*l)).collect();
        Tensor::from_slice(&labels, [labels.len()])
    }
}

/// All 1,797 digits: 8x8 pictures, 0..16.
///
/// # Errors
/// The embedded copy is damaged.
pub fn digits() -> Result<Dataset, DataError> {
    let mut all = Dataset { channels: 1, height: 8, width: 8, white: 16, pixels: Vec::new(), labels: Vec::new() };
    let mut rows = csv::ReaderBuilder::new().has_headers(false).from_reader(GzDecoder::new(DIGITS));
    for (row, record) in rows.records().enumerate() {
        let bad = |what: String| DataError::Digits { row, what };
        let record = record.map_err(|e| bad(e.to_string()))?;
        if record.len() != 65 {
            return Err(bad(format!("{} fields, not 65", record.len())));
        }
        for (k, field) in record.iter().enumerate() {
            // The copy in circulation writes counts as floats or integers.
            let v = field.trim().parse::<f32>().ok().filter(|v| *v == v.trunc() && (0.0..=16.0).contains(v));
            let v = v.ok_or_else(|| bad(format!("field {k} is '{field}'")))? as u8;
            if k < 64 {
                all.pixels.push(v);
            } else {
                all.labels.push(v);
            }
        }
    }
    Ok(all)
}

/// The digits for training and those held out.
///
/// # Errors
/// The embedded copy is damaged.
pub fn digits_split(split: Split) -> Result<(Dataset, Dataset), DataError> {
    let all = digits()?;
    let first = all.len().saturating_sub(297);
    let held = |i: usize| match split {
        Split::Sixth => i % 6 == 5,
        Split::Writers => i >= first,
    };
    Ok((all.filtered(|i| !held(i)), all.filtered(held)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_digits_are_complete_and_split_as_announced() {
        let all = digits().unwrap();
        assert_eq!((all.len(), all.pixels.len()), (1797, 1797 * 64));
        let (train, test) = digits_split(Split::Sixth).unwrap();
        assert_eq!((train.len(), test.len()), (1498, 299));
        assert_eq!(test.labels[0], all.labels[5]);
        assert_eq!(test.pixels[..64], all.pixels[5 * 64..6 * 64]);
        let (train, test) = digits_split(Split::Writers).unwrap();
        assert_eq!((train.len(), test.len()), (1500, 297));
        assert!(all.floats().iter().all(|v| (0.0..=1.0).contains(v)));
        assert_eq!(all.images().shape().unwrap(), [1797, 1, 8, 8].map(crate::uop::Dim::Int));
        assert_eq!(all.scaled().dtype().unwrap(), Scalar::F32);
        assert_eq!(all.classes().shape().unwrap(), [1797].map(crate::uop::Dim::Int));
    }
}
