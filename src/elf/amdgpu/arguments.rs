//! What the metadata note says of each kernel: the offsets and sizes of its arguments, and what it needs of memory.
//!
//! Source: AMDGPUUsage «Code Object V5 Metadata», MessagePack specification. Maps, arrays, strings and unsigned
//! integers are read; other values of the note are skipped. For an object without the note, or without an entry for a
//! kernel, the arguments are unknown.

use super::metadata::{Arg, ArgKind, NT_AMDGPU_METADATA};
use crate::abi::SHT_NOTE;
use crate::error::ElfError;
use crate::num::{index, wide};
use crate::parse::ElfFile;
use std::collections::HashMap;

/// Nesting depth of maps and arrays; the note's own is five.
const MAX_DEPTH: u32 = 16;
const OWNER: &[u8] = b"AMDGPU\0";

/// What is known of a kernel.
#[derive(Default)]
pub(super) struct Noted {
    /// The hidden ones among them.
    pub args: Option<Vec<Arg>>,
    pub kernarg_bytes: Option<u32>,
    pub group_segment_bytes: Option<u32>,
    pub private_segment_bytes: Option<u32>,
}

/// Kernels by the name of their descriptors (`name.kd`).
pub(super) type Arguments = HashMap<String, Noted>;

/// Reads the note.
///
/// # Errors
/// A note that ends early, or is not the MessagePack that it should be.
pub(super) fn read(file: &ElfFile) -> Result<Arguments, ElfError> {
    let mut found = Arguments::new();
    for section in file.sections().iter().filter(|s| s.header.sh_type == SHT_NOTE) {
        let bytes = file.contents(section)?;
        for (at, desc) in descriptions(bytes) {
            let offset = section.header.sh_offset + wide(at);
            let mut reader = Reader { bytes: desc, at: 0, offset };
            reader.module(&mut found)?;
        }
    }
    Ok(found)
}

/// The descriptions of AMDGPU's metadata notes in a section, and where each begins.
fn descriptions(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let word = |at: usize| Some(index(u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))));
    let (mut at, mut found) = (0, Vec::new());
    while let (Some(name_len), Some(desc_len), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let name = at + 12;
        let desc = name.saturating_add(name_len.next_multiple_of(4));
        let end = desc.saturating_add(desc_len);
        let (Some(owner), Some(content)) = (bytes.get(name..name.saturating_add(name_len)), bytes.get(desc..end))
        else {
            break;
        };
        if owner == OWNER && wide(kind) == u64::from(NT_AMDGPU_METADATA) {
            found.push((desc, content));
        }
        at = end.next_multiple_of(4);
    }
    found
}

/// A MessagePack value, as far as it is of interest.
enum Value<'a> {
    Map(usize),
    Array(usize),
    Text(&'a str),
    Number(u64),
    Other,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Of the first byte in the file.
    offset: u64,
}

impl<'a> Reader<'a> {
    fn bad(&self, expected: &'static str) -> ElfError {
        let found = self.bytes.get(self.at).copied().map_or(u64::MAX, u64::from);
        let offset = self.offset + wide(self.at);
        ElfError::BadField { what: "metadata of the code object", offset, found, expected }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ElfError> {
        let end = self.at.checked_add(len);
        let part = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.bad("the rest of a value"))?;
        self.at += len;
        Ok(part)
    }

    fn number(&mut self, len: usize) -> Result<u64, ElfError> {
        Ok(self.take(len)?.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn length(&mut self, len: usize) -> Result<usize, ElfError> {
        Ok(index(self.number(len)?))
    }

    fn text(&mut self, len: usize) -> Result<Value<'a>, ElfError> {
        let bad = self.bad("UTF-8");
        std::str::from_utf8(self.take(len)?).map(Value::Text).map_err(|_| bad)
    }

    /// The next value; of a map or an array its length, of what is of no interest all of it.
    fn value(&mut self) -> Result<Value<'a>, ElfError> {
        let tag = self.take(1)?[0]; // PANIC: one byte
        let low = usize::from(tag);
        Ok(match tag {
            0x00..=0x7f => Value::Number(tag.into()),
            0x80..=0x8f => Value::Map(low & 15),
            0x90..=0x9f => Value::Array(low & 15),
            0xa0..=0xbf => self.text(low & 31)?,
            0xcc..=0xcf => Value::Number(self.number(1 << (tag - 0xcc))?),
            0xd9..=0xdb => {
                let len = self.length(1 << (tag - 0xd9))?;
                self.text(len)?
            }
            0xdc | 0xdd => Value::Array(self.length(if tag == 0xdc { 2 } else { 4 })?),
            0xde | 0xdf => Value::Map(self.length(if tag == 0xde { 2 } else { 4 })?),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => Value::Other,
            0xc4..=0xc6 => {
                let len = self.length(1 << (tag - 0xc4))?;
                self.skip_bytes(len)?
            }
            0xca | 0xd2 => self.skip_bytes(4)?,
            0xcb | 0xd3 => self.skip_bytes(8)?,
            0xd0 => self.skip_bytes(1)?,
            0xd1 => self.skip_bytes(2)?,
            _ => {
                self.at -= 1;
                return Err(self.bad("MessagePack without extensions"));
            }
        })
    }

    fn skip_bytes(&mut self, len: usize) -> Result<Value<'a>, ElfError> {
        self.take(len).map(|_| Value::Other)
    }

    /// Passes over a whole value.
    fn skip(&mut self, depth: u32) -> Result<(), ElfError> {
        let parts = match self.value()? {
            Value::Map(n) => n.saturating_mul(2),
            Value::Array(n) => n,
            _ => 0,
        };
        if parts > 0 && depth == 0 {
            return Err(self.bad("less deeply nested values"));
        }
        (0..parts).try_for_each(|_| self.skip(depth - 1))
    }

    /// Calls `each` with every key of a map, which reads the value.
    fn map(&mut self, mut each: impl FnMut(&mut Self, &'a str) -> Result<(), ElfError>) -> Result<(), ElfError> {
        let Value::Map(n) = self.value()? else { return Err(self.bad("a map")) };
        (0..n).try_for_each(|_| match self.value()? {
            Value::Text(key) => each(self, key),
            _ => Err(self.bad("a key")),
        })
    }

    fn array(&mut self, mut each: impl FnMut(&mut Self) -> Result<(), ElfError>) -> Result<(), ElfError> {
        let Value::Array(n) = self.value()? else { return Err(self.bad("an array")) };
        (0..n).try_for_each(|_| each(self))
    }

    fn word(&mut self) -> Result<u32, ElfError> {
        match self.value()? {
            Value::Number(n) => u32::try_from(n).map_err(|_| self.bad("a number of 32 bits")),
            _ => Err(self.bad("a number")),
        }
    }

    fn string(&mut self) -> Result<&'a str, ElfError> {
        if let Value::Text(text) = self.value()? { Ok(text) } else { Err(self.bad("a string")) }
    }

    fn module(&mut self, found: &mut Arguments) -> Result<(), ElfError> {
        self.map(|r, key| match key {
            "amdhsa.kernels" => r.array(|r| r.kernel(found)),
            _ => r.skip(MAX_DEPTH),
        })
    }

    fn kernel(&mut self, found: &mut Arguments) -> Result<(), ElfError> {
        let (mut symbol, mut noted) = (None, Noted::default());
        self.map(|r, key| {
            match key {
                ".symbol" => symbol = Some(r.string()?),
                ".kernarg_segment_size" => noted.kernarg_bytes = Some(r.word()?),
                ".group_segment_fixed_size" => noted.group_segment_bytes = Some(r.word()?),
                ".private_segment_fixed_size" => noted.private_segment_bytes = Some(r.word()?),
                ".args" => {
                    let mut list = Vec::new();
                    r.array(|r| r.argument().map(|arg| list.push(arg)))?;
                    noted.args = Some(list);
                }
                _ => r.skip(MAX_DEPTH)?,
            }
            Ok(())
        })?;
        if let Some(symbol) = symbol {
            found.insert(symbol.to_owned(), noted);
        }
        Ok(())
    }

    fn argument(&mut self) -> Result<Arg, ElfError> {
        let mut arg = Arg { offset_bytes: 0, size_bytes: 0, kind: ArgKind::ByValue };
        self.map(|r, key| {
            match key {
                ".offset" => arg.offset_bytes = r.word()?,
                ".size" => arg.size_bytes = r.word()?,
                ".value_kind" => {
                    arg.kind = match r.string()? {
                        "global_buffer" => ArgKind::GlobalBuffer,
                        kind if kind.starts_with("hidden_") => ArgKind::Hidden,
                        _ => ArgKind::ByValue,
                    }
                }
                _ => r.skip(MAX_DEPTH)?,
            }
            Ok(())
        })?;
        Ok(arg)
    }
}
