//! numpy's files: one array (`.npy`), or a zip archive of them (`.npz`). Source: numpy's `lib.format`, versions 1 to 3.
//!
//! Elements of the other byte order are turned when they are loaded, which reads them at once; arrays in Fortran's
//! order are permuted. Left out: arrays of Python objects, structures, texts, complex numbers.

use super::file::Source;
use super::zip::{Archive, Entry, u16_at, u32_at, written};
use super::{StateDict, StateError, facts, read, sizes, write_atomically};
use crate::tensor::{Movement, Tensor, default_device};
use crate::uop::Scalar;
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";

const TYPES: [(&str, Scalar); 12] = [
    ("b1", Scalar::Bool),
    ("u1", Scalar::U8),
    ("i1", Scalar::I8),
    ("u2", Scalar::U16),
    ("i2", Scalar::I16),
    ("u4", Scalar::U32),
    ("i4", Scalar::I32),
    ("u8", Scalar::U64),
    ("i8", Scalar::I64),
    ("f2", Scalar::F16),
    ("f4", Scalar::F32),
    ("f8", Scalar::F64),
];

/// What a header says, and where the elements begin.
struct Header {
    dtype: Scalar,
    swapped: bool,
    fortran: bool,
    shape: Vec<usize>,
    data_at: u64,
}

/// Longest header that is read, in bytes.
const HEADER_LIMIT: u64 = 1 << 20;

/// The header in the first bytes of a file; the error says what is wrong.
fn header(name: &str, start: &[u8]) -> Result<Header, StateErrorText> {
    let bad = |what: &str| StateErrorText::Damaged(what.to_string());
    if !start.starts_with(MAGIC) {
        return Err(bad("no numpy file: it does not begin with \\x93NUMPY"));
    }
    let version = *start.get(6).ok_or_else(|| bad("it ends early"))?;
    let (len, at) = match version {
        1 => (u16_at(start, 8).map(u64::from), 10),
        2 | 3 => (u32_at(start, 8).map(u64::from), 12),
        other => return Err(bad(&format!("version {other}; 1 to 3 are read"))),
    };
    let len = len.ok_or_else(|| bad("it ends early"))?;
    if len > HEADER_LIMIT {
        return Err(bad(&format!("a header of {len} bytes; at most {HEADER_LIMIT} are read")));
    }
    let text = start.get(at..at + len as usize).ok_or_else(|| bad("its header ends early"))?;
    let text = String::from_utf8_lossy(text);
    let field = |key: &str| {
        let at = text.find(&format!("'{key}'")).ok_or_else(|| bad(&format!("its header has no '{key}'")))?;
        let rest = text[at + key.len() + 2..].trim_start().strip_prefix(':').map(str::trim_start);
        rest.ok_or_else(|| bad(&format!("its header has no value of '{key}'")))
    };
    let descr = field("descr")?;
    let kind = descr.strip_prefix('\'').and_then(|d| d.split_once('\'')).map(|(d, _)| d);
    let kind = kind.ok_or_else(|| StateErrorText::Type(name.into(), descr.chars().take(40).collect()))?;
    let (order, plain) = kind.split_at_checked(1).ok_or_else(|| bad("its header has no element type"))?;
    let dtype = TYPES.iter().find(|(n, _)| *n == plain).filter(|_| "<>|=".contains(order)).map(|(_, s)| *s);
    let dtype = dtype.ok_or_else(|| StateErrorText::Type(name.into(), kind.into()))?;
    let fortran = match field("fortran_order")? {
        f if f.starts_with("True") => true,
        f if f.starts_with("False") => false,
        _ => return Err(bad("its header has no order")),
    };
    let list = field("shape")?.strip_prefix('(').and_then(|s| s.split_once(')')).map(|(s, _)| s);
    let list = list.ok_or_else(|| bad("its header has no shape"))?;
    let sizes = list.split(',').map(str::trim).filter(|s| !s.is_empty());
    let shape =
        sizes.map(|s| s.trim_end_matches('L').parse::<usize>().map_err(|_| bad("its shape is no list of sizes")));
    let shape = shape.collect::<Result<Vec<usize>, _>>()?;
    Ok(Header { dtype, swapped: order == ">", fortran, shape, data_at: at as u64 + len })
}

/// An error of a header, before it is known which file it is in.
enum StateErrorText {
    Damaged(String),
    Type(String, String),
}
impl StateErrorText {
    fn of(self, source: &Source, name: &str) -> StateError {
        match self {
            StateErrorText::Damaged(what) if name.is_empty() => source.damaged(what),
            StateErrorText::Damaged(what) => source.damaged(format!("{name}: {what}")),
            StateErrorText::Type(name, what) => StateError::ElementType { name, what },
        }
    }
}

/// The Tensor of a header. `part` makes one of a shape in C's order, `bytes` reads all elements.
fn array(
    head: &Header,
    part: impl Fn(&[usize]) -> Result<Tensor, StateError>,
    bytes: impl Fn(u64) -> Result<Vec<u8>, StateError>,
) -> Result<Tensor, StateError> {
    let mut shape = head.shape.clone();
    if head.fortran {
        shape.reverse();
    }
    // In either case the length is checked against the file's.
    let mut t = part(&shape)?;
    let size = head.dtype.size_bytes();
    if head.swapped && size > 1 {
        let count: usize = shape.iter().product();
        let mut all = bytes((count * size) as u64)?;
        all.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        t = Tensor::from_bytes(all, head.dtype, &shape, &default_device());
    }
    if !head.fortran {
        return Ok(t);
    }
    Ok(t.permute((0..shape.len() as i64).rev().collect::<Vec<i64>>()))
}

/// The array of a `.npy` file (`numpy.load`); its elements stay in the file until they are needed.
///
/// # Errors
/// The file cannot be read, is damaged, or has an element type that we lack.
pub fn load_npy(path: impl AsRef<Path>) -> Result<Tensor, StateError> {
    let path = path.as_ref();
    let source = Source::open(path, "npy")?;
    let start = source.bytes(0, source.len_bytes().min(12 + HEADER_LIMIT))?;
    let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let head = header(&name, &start).map_err(|e| e.of(&source, ""))?;
    array(&head, |shape| source.tensor(head.dtype, shape, head.data_at), |len| source.bytes(head.data_at, len))
}

/// The arrays of a `.npz` file by name, plain (`numpy.savez`) or compressed; plain ones stay in the file until they are
/// needed.
///
/// # Errors
/// As [`load_npy`].
pub fn load_npz(path: impl AsRef<Path>) -> Result<StateDict, StateError> {
    let archive = Archive::open(path.as_ref(), "npz")?;
    let one = |entry: &Entry| {
        let name = entry.name.strip_suffix(".npy").unwrap_or(&entry.name);
        let start = archive.start(entry, 12 + HEADER_LIMIT)?;
        let head = header(name, &start).map_err(|e| e.of(&archive.source, name))?;
        let all = |len: u64| {
            let bytes = archive.bytes(entry)?;
            let from = head.data_at as usize;
            bytes
                .get(from..from + len as usize)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| archive.source.damaged("it ends early"))
        };
        let t = array(&head, |shape| archive.tensor(entry, head.dtype, shape, head.data_at), all)?;
        Ok((name.to_string(), t))
    };
    archive.entries.iter().map(one).collect()
}

/// A `.npy` file's bytes.
fn bytes_of(name: &str, t: &Tensor) -> Result<Vec<u8>, StateError> {
    let (shape, scalar) = facts(name, t)?;
    let scalar = scalar.strong();
    let kind = TYPES.iter().find(|(_, s)| *s == scalar).map(|(n, _)| *n);
    let kind = kind.ok_or_else(|| StateError::ElementType { name: name.into(), what: scalar.to_string() })?;
    let shape = sizes(name, &shape)?;
    let order = if scalar.size_bytes() == 1 { '|' } else { '<' };
    let list = match shape.as_slice() {
        [one] => format!("({one},)"),
        all => format!("({})", all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut text = format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': {list}, }}");
    // As numpy does: room for a first size of 21 digits.
    if let Some(first) = shape.first() {
        text.push_str(&" ".repeat(21 - first.to_string().len()));
    }
    // The elements begin at a multiple of 64 bytes, after a line end.
    let pad = 63 - (10 + text.len()) % 64;
    text.push_str(&" ".repeat(pad));
    text.push('\n');
    let len = u16::try_from(text.len()).map_err(|_| StateError::Symbolic { name: name.into(), size: list })?;
    Ok([MAGIC, &[1, 0], &len.to_le_bytes(), text.as_bytes(), &read(name, t)?].concat())
}

/// Writes one Tensor as `numpy.save` does.
///
/// # Errors
/// The Tensor is faulty, symbolic or cannot be read; numpy lacks its element type (bf16, fp8); the file cannot be
/// written. An older file is untouched then.
pub fn save_npy(t: &Tensor, path: impl AsRef<Path>) -> Result<(), StateError> {
    let path = path.as_ref();
    let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    write_atomically(path, &bytes_of(&name, t)?)
}

/// Writes Tensors as `numpy.savez` does, uncompressed.
///
/// # Errors
/// As [`save_npy`]; the file would have 4 GiB or more.
pub fn save_npz(state: &StateDict, path: impl AsRef<Path>) -> Result<(), StateError> {
    let path = path.as_ref();
    let files = state.iter().map(|(name, t)| Ok((format!("{name}.npy"), bytes_of(name, t)?)));
    let files = files.collect::<Result<Vec<_>, StateError>>()?;
    let what = || "4 GiB or more, or 65,536 arrays or more; safetensors files have no such limit".to_string();
    let bytes =
        written(&files).ok_or_else(|| StateError::Damaged { format: "npz", path: path.into(), what: what() })?;
    write_atomically(path, &bytes)
}
