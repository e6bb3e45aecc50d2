//! Zip archives: the directory at the end, entries that are stored or deflated. Source: PKWARE's APPNOTE 6.3.
//!
//! Stored entries stay in the file. Left out: encryption, archives of several files, other compressions.

use super::file::Source;
use super::{StateDict, StateError};
use crate::tensor::{Tensor, default_device};
use crate::uop::Scalar;
use std::path::Path;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const END64_AT: u32 = 0x0706_4b50;

/// Little-endian numbers at an offset in a slice; `None` beyond its end.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk::<2>().copied()?))
}
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk::<8>().copied()?))
}

/// A file in an archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub name: String,
    /// Where its bytes begin in the archive, packed or not.
    at: u64,
    packed: u64,
    pub len_bytes: u64,
    method: u16,
    crc: u32,
}

pub(super) struct Archive {
    pub source: Source,
    pub entries: Vec<Entry>,
}

impl Archive {
    pub(crate) fn open(path: &Path, format: &'static str) -> Result<Archive, StateError> {
        let source = Source::open(path, format)?;
        let (at, len) = directory(&source)?;
        let bytes = source.bytes(at, len)?;
        let mut entries = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let (entry, next) = entry(&source, &bytes, at)?;
            entries.push(entry);
            at = next;
        }
        Ok(Archive { source, entries })
    }
    pub(crate) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }
    /// An entry's bytes, unpacked.
    pub(crate) fn bytes(&self, entry: &Entry) -> Result<Vec<u8>, StateError> {
        let packed = self.source.bytes(entry.at, entry.packed)?;
        match entry.method {
            0 => Ok(packed),
            _ => inflated(&self.source, entry, &packed),
        }
    }
    /// The first bytes of an entry, `len` or fewer.
    pub(crate) fn start(&self, entry: &Entry, len: u64) -> Result<Vec<u8>, StateError> {
        match entry.method {
            0 => self.source.bytes(entry.at, len.min(entry.len_bytes)),
            _ => self.bytes(entry),
        }
    }
    /// Elements of an entry from a byte on; packed entries are read at once.
    pub(crate) fn tensor(
        &self,
        entry: &Entry,
        dtype: Scalar,
        shape: &[usize],
        offset: u64,
    ) -> Result<Tensor, StateError> {
        let count = shape.iter().try_fold(1u64, |n, s| n.checked_mul(*s as u64));
        let len = count.and_then(|n| n.checked_mul(dtype.size_bytes() as u64));
        let end = len.and_then(|n| n.checked_add(offset)).filter(|end| *end <= entry.len_bytes);
        let (Some(len), Some(end)) = (len, end) else {
            let text = format!("{}: {shape:?} {dtype} from byte {offset} on in {} bytes", entry.name, entry.len_bytes);
            return Err(self.source.damaged(text));
        };
        if entry.method == 0 {
            return self.source.tensor(dtype, shape, entry.at + offset);
        }
        let bytes = self.bytes(entry)?;
        // PANIC: the end was compared with the entry's length, which unpacking guarantees.
        let part = bytes[(end - len) as usize..end as usize].to_vec();
        Ok(Tensor::from_bytes(part, dtype, shape, &default_device()))
    }
}

/// Where the directory is, and its length.
fn directory(source: &Source) -> Result<(u64, u64), StateError> {
    let len = source.len_bytes();
    let tail_len = len.min(22 + 0xffff);
    let tail = source.bytes(len - tail_len, tail_len)?;
    let ends = |at: &usize| {
        let comment = u16_at(&tail, at + 20).map(usize::from);
        u32_at(&tail, *at) == Some(END) && comment.is_some_and(|n| at + 22 + n == tail.len())
    };
    let end = (0..tail.len().saturating_sub(21)).rev().find(ends);
    let end = end.ok_or_else(|| source.damaged("no zip archive: it has no directory at its end"))?;
    let field = |at: usize| u32_at(&tail, end + at).map_or(0, u64::from);
    let (size, at, count) = (field(12), field(16), u16_at(&tail, end + 10).unwrap_or(0));
    if at != 0xffff_ffff && size != 0xffff_ffff && count != 0xffff {
        return Ok((at, size));
    }
    // The larger numbers stand in a record of their own, whose offset stands before the end.
    let found = end.checked_sub(20).filter(|at| u32_at(&tail, *at) == Some(END64_AT));
    let Some(record_at) = found.and_then(|at| u64_at(&tail, at + 8)) else { return Ok((at, size)) };
    let record = source.bytes(record_at, 56)?;
    match (u32_at(&record, 0), u64_at(&record, 40), u64_at(&record, 48)) {
        (Some(END64), Some(size), Some(at)) => Ok((at, size)),
        _ => Err(source.damaged("the place of its 64-bit directory holds something else")),
    }
}

/// The entry at an offset of the directory, and the offset of the next.
fn entry(source: &Source, bytes: &[u8], at: usize) -> Result<(Entry, usize), StateError> {
    let short = || source.damaged("its directory ends early");
    let word = |k: usize| u32_at(bytes, at + k).ok_or_else(short);
    let half = |k: usize| u16_at(bytes, at + k).map(usize::from).ok_or_else(short);
    if word(0)? != CENTRAL {
        return Err(source.damaged("its directory holds something else"));
    }
    let (flags, method, crc) = (half(8)?, half(10)? as u16, word(16)?);
    let (name_len, extra_len, comment_len) = (half(28)?, half(30)?, half(32)?);
    let name_at = at + 46;
    let name = bytes.get(name_at..name_at + name_len).ok_or_else(short)?;
    let name = String::from_utf8_lossy(name).into_owned();
    let extra = bytes.get(name_at + name_len..name_at + name_len + extra_len).ok_or_else(short)?;
    let [packed, len_bytes, header] = wide([word(20)?, word(24)?, word(42)?], extra);
    if flags & 1 != 0 {
        return Err(source.damaged(format!("{name} is encrypted")));
    }
    if method != 0 && method != 8 {
        return Err(source.damaged(format!("{name} is compressed by method {method}; 0 and 8 are read")));
    }
    // Deflate makes bytes at most 1,032 times as many.
    let sound = if method == 0 { packed == len_bytes } else { len_bytes / 1032 <= packed };
    if !sound {
        return Err(source.damaged(format!("{name} has {packed} bytes for {len_bytes}")));
    }
    let local = source.bytes(header, 30)?;
    let (Some(LOCAL), Some(n), Some(m)) = (u32_at(&local, 0), u16_at(&local, 26), u16_at(&local, 28)) else {
        return Err(source.damaged(format!("the place of {name} holds something else")));
    };
    let begin = header + 30 + u64::from(n) + u64::from(m);
    if begin.checked_add(packed).is_none_or(|end| end > source.len_bytes()) {
        return Err(source.damaged(format!("{name} reaches beyond its end")));
    }
    Ok((Entry { name, at: begin, packed, len_bytes, method, crc }, name_at + name_len + extra_len + comment_len))
}

/// Packed length, length and offset: 64-bit numbers stand in an extra field, in the order of those that do not fit.
fn wide(short: [u32; 3], extra: &[u8]) -> [u64; 3] {
    let [packed, len, at] = short.map(u64::from);
    let mut numbers = [len, packed, at];
    let mut k = 0;
    while let (Some(id), Some(size)) = (u16_at(extra, k), u16_at(extra, k + 2)) {
        if id == 1 {
            let mut next = k + 4;
            for n in numbers.iter_mut().filter(|n| **n == 0xffff_ffff) {
                *n = u64_at(extra, next).unwrap_or(*n);
                next += 8;
            }
        }
        k += 4 + usize::from(size);
    }
    [numbers[1], numbers[0], numbers[2]]
}

#[cfg(feature = "datasets")]
fn inflated(source: &Source, entry: &Entry, packed: &[u8]) -> Result<Vec<u8>, StateError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let mut from = flate2::read::DeflateDecoder::new(packed).take(entry.len_bytes.saturating_add(1));
    from.read_to_end(&mut bytes).map_err(|e| source.damaged(format!("{}: {e}", entry.name)))?;
    if bytes.len() as u64 != entry.len_bytes || crc32(&bytes) != entry.crc {
        return Err(source.damaged(format!("{}: its content is not what the directory announces", entry.name)));
    }
    Ok(bytes)
}
#[cfg(not(feature = "datasets"))]
fn inflated(source: &Source, entry: &Entry, _: &[u8]) -> Result<Vec<u8>, StateError> {
    let what = format!("{} (crc {:08x}) is compressed, which needs the feature `datasets`", entry.name, entry.crc);
    Err(source.damaged(what))
}

const CRC: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut n = 0;
    while n < 256 {
        let (mut c, mut k) = (n as u32, 0);
        while k < 8 {
            c = if c & 1 == 1 { 0xedb8_8320 ^ c >> 1 } else { c >> 1 };
            k += 1;
        }
        table[n] = c;
        n += 1;
    }
    table
};

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |c, b| CRC[usize::from(c as u8 ^ b)] ^ c >> 8)
}

/// An archive of stored files; `None`: it would need 64-bit offsets.
pub(super) fn written(files: &[(String, Vec<u8>)]) -> Option<Vec<u8>> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let (at, len) = (u32::try_from(out.len()).ok()?, u32::try_from(bytes.len()).ok()?);
        let name_len = u16::try_from(name.len()).ok()?;
        // Version 2.0, names in UTF-8, stored, 1 January 1980.
        let mut common = [20u16, 1 << 11, 0, 0, 0x21].map(u16::to_le_bytes).concat();
        common.extend([crc32(bytes), len, len].map(u32::to_le_bytes).concat());
        common.extend([name_len, 0].map(u16::to_le_bytes).concat());
        out.extend(LOCAL.to_le_bytes());
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(bytes);
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend(20u16.to_le_bytes());
        directory.extend(&common);
        directory.extend([0u8; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (at, size) = (u32::try_from(out.len()).ok()?, u32::try_from(directory.len()).ok()?);
    let count = u16::try_from(files.len()).ok()?;
    out.extend(directory);
    out.extend(END.to_le_bytes());
    out.extend([0u16, 0, count, count].map(u16::to_le_bytes).concat());
    out.extend([size, at].map(u32::to_le_bytes).concat());
    out.extend([0u8; 2]);
    Some(out)
}

/// The files of a zip archive by name, as u8 Tensors of their length.
///
/// # Errors
/// The file cannot be read, is damaged, encrypted or compressed in another way than by deflate.
pub fn zip_extract(path: impl AsRef<Path>) -> Result<StateDict, StateError> {
    let archive = Archive::open(path.as_ref(), "zip")?;
    let mut out = StateDict::new();
    for entry in archive.entries.iter().filter(|e| !e.name.ends_with('/')) {
        let len = usize::try_from(entry.len_bytes).map_err(|_| archive.source.damaged("an entry is too long"))?;
        out.insert(entry.name.clone(), archive.tensor(entry, Scalar::U8, &[len], 0)?);
    }
    Ok(out)
}
