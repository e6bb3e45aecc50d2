//! Tar archives, plain or gz: POSIX ustar, with the long names of pax and GNU.

use super::file::Source;
use super::{StateDict, StateError};
use crate::tensor::{Tensor, default_device};
use crate::uop::Scalar;
use std::path::Path;

const BLOCK: u64 = 512;

/// An archive's bytes: in the file, or unpacked.
enum Bytes {
    File(Source),
    Unpacked(Source, Vec<u8>),
}

impl Bytes {
    fn open(path: &Path) -> Result<Bytes, StateError> {
        let source = Source::open(path, "tar")?;
        let start = source.bytes(0, source.len_bytes().min(2))?;
        if start != [0x1f, 0x8b] {
            return Ok(Bytes::File(source));
        }
        let packed = source.bytes(0, source.len_bytes())?;
        let bytes = unpacked(&source, &packed)?;
        Ok(Bytes::Unpacked(source, bytes))
    }
    fn source(&self) -> &Source {
        match self {
            Bytes::File(source) | Bytes::Unpacked(source, _) => source,
        }
    }
    fn len(&self) -> u64 {
        match self {
            Bytes::File(source) => source.len_bytes(),
            Bytes::Unpacked(_, bytes) => bytes.len() as u64,
        }
    }
    fn part(&self, at: u64, len: u64) -> Result<Vec<u8>, StateError> {
        match self {
            Bytes::File(source) => source.bytes(at, len),
            Bytes::Unpacked(source, bytes) => {
                let range = usize::try_from(at).ok().zip(at.checked_add(len).and_then(|e| usize::try_from(e).ok()));
                let part = range.and_then(|(from, to)| bytes.get(from..to));
                part.map(<[u8]>::to_vec).ok_or_else(|| source.damaged("it ends early"))
            }
        }
    }
    fn tensor(&self, at: u64, len: u64) -> Result<Tensor, StateError> {
        let size = usize::try_from(len).map_err(|_| self.source().damaged("a file is too long"))?;
        match self {
            Bytes::File(source) => source.tensor(Scalar::U8, &[size], at),
            Bytes::Unpacked(..) => Ok(Tensor::from_bytes(self.part(at, len)?, Scalar::U8, [size], &default_device())),
        }
    }
}

#[cfg(feature = "datasets")]
fn unpacked(source: &Source, packed: &[u8]) -> Result<Vec<u8>, StateError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut bytes);
    read.map_err(|e| source.damaged(e.to_string()))?;
    Ok(bytes)
}
#[cfg(not(feature = "datasets"))]
fn unpacked(source: &Source, _: &[u8]) -> Result<Vec<u8>, StateError> {
    Err(source.damaged("it is compressed, which needs the feature `datasets`"))
}

/// A number in octal digits, or in binary after a byte of 0x80 (GNU).
fn number(field: &[u8]) -> Option<u64> {
    if field.first() == Some(&0x80) {
        let wide = field[1..].iter().try_fold(0u64, |n, b| n.checked_mul(256)?.checked_add(u64::from(*b)));
        return wide;
    }
    let digits = field.iter().skip_while(|b| **b == b' ').take_while(|b| b.is_ascii_digit());
    digits.into_iter().try_fold(0u64, |n, b| {
        let digit = u64::from(b - b'0');
        (digit < 8).then_some(n.checked_mul(8)?.checked_add(digit)?)
    })
}

/// Text up to its first zero.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

/// The path in a pax record list: `LENGTH path=NAME\n` ...
fn pax_path(bytes: &[u8]) -> Option<String> {
    let list = String::from_utf8_lossy(bytes).into_owned();
    list.lines().find_map(|line| line.split_once(" path=").map(|(_, path)| path.to_string()))
}

/// The files of a tar archive, plain or gz, by name, as u8 Tensors of their length. Links and folders are left out.
///
/// # Errors
/// The file cannot be read or is damaged.
pub fn tar_extract(path: impl AsRef<Path>) -> Result<StateDict, StateError> {
    let archive = Bytes::open(path.as_ref())?;
    let mut out = StateDict::new();
    let (mut at, mut long_name) = (0u64, None);
    while at + BLOCK <= archive.len() {
        let head = archive.part(at, BLOCK)?;
        if head.iter().all(|b| *b == 0) {
            return Ok(out);
        }
        let sum: u64 =
            head.iter().enumerate().map(|(k, b)| if (148..156).contains(&k) { 32 } else { u64::from(*b) }).sum();
        let (Some(len), Some(announced)) = (number(&head[124..136]), number(&head[148..156])) else {
            return Err(archive.source().damaged(format!("no header at byte {at}")));
        };
        let data_at = at + BLOCK;
        if sum != announced || data_at.checked_add(len).is_none_or(|end| end > archive.len()) {
            return Err(archive.source().damaged(format!("the header at byte {at} is damaged")));
        }
        let name = match text(&head[345..500]) {
            prefix if head[257..262] == *b"ustar" && !prefix.is_empty() => format!("{prefix}/{}", text(&head[..100])),
            _ => text(&head[..100]),
        };
        match head[156] {
            b'0' | 0 | b'7' => {
                out.insert(long_name.take().unwrap_or(name), archive.tensor(data_at, len)?);
            }
            b'L' => long_name = Some(text(&archive.part(data_at, len)?)),
            b'x' => long_name = pax_path(&archive.part(data_at, len)?),
            b'g' => {}
            _ => long_name = None,
        }
        at = data_at.saturating_add(len.div_ceil(BLOCK).saturating_mul(BLOCK));
    }
    if out.is_empty() {
        return Err(archive.source().damaged("no tar archive: it ends before its first file"));
    }
    Ok(out)
}
