//! Bytes of a call → one line of text with named fields.
//!
//! Place in the arrows: the tracer's text, the post-mortem's last calls, the replayer's differences.

use super::{
    Count, Dir, Element, Embedded, FieldDesc, Kind, Layout, find, request_len_bytes, request_number, request_type,
};
use crate::port::Errno;
use std::fmt::Write;

/// Memory that an embedded pointer names, as it was at the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Index in the description's list of embedded pointers.
    pub index: u32,
    pub bytes: Vec<u8>,
}

/// How a call returned, and what it left in the struct and in the memory that the struct points at.
#[derive(Clone, Copy, Debug)]
pub struct Returned<'a> {
    pub result: Result<i32, Errno>,
    pub bytes: &'a [u8],
    pub blobs: &'a [Blob],
}

/// Elements shown of an array.
const SHOWN: usize = 8;

/// One call: what went in, and if it has returned what came out.
#[must_use]
pub fn decode_call(request: u32, before: &[u8], blobs: &[Blob], after: Option<Returned<'_>>) -> String {
    let mut text = String::new();
    let Some(desc) = find(request) else {
        let (ty, number, len) =
            (char::from(request_type(request)), request_number(request), request_len_bytes(request));
        let _infallible = write!(text, "ioctl({request:#010x}: type {ty:?} number {number:#04x}, {len} bytes)");
        if let Some(after) = after {
            push_result(&mut text, after.result);
        }
        return text;
    };
    text.push_str(desc.name);
    text.push('(');
    push_fields(&mut text, desc.layout, before, Some(Dir::In));
    push_blobs(&mut text, desc.embedded, blobs, Dir::In);
    text.push(')');
    if let Some(after) = after {
        push_result(&mut text, after.result);
        if after.result.is_ok() {
            let mut out = String::new();
            push_fields(&mut out, desc.out.unwrap_or(desc.layout), after.bytes, Some(Dir::Out));
            push_blobs(&mut out, desc.embedded, after.blobs, Dir::Out);
            if !out.is_empty() {
                let _infallible = write!(text, " -> {out}");
            }
        }
    }
    text
}

fn push_result(text: &mut String, result: Result<i32, Errno>) {
    let _infallible = match result {
        Ok(value) => write!(text, " = {value}"),
        Err(errno) => write!(text, " = -{errno}"),
    };
}

/// All fields of a struct: `name=value, name=value`.
#[must_use]
pub fn decode_fields(layout: &Layout, bytes: &[u8]) -> String {
    let mut text = String::new();
    push_fields(&mut text, layout, bytes, None);
    text
}

fn push_fields(text: &mut String, layout: &Layout, bytes: &[u8], wanted: Option<Dir>) {
    for f in layout.fields {
        let is_wanted = wanted.is_none_or(|dir| f.dir == dir || f.dir == Dir::InOut);
        let range = f.offset as usize..(f.offset + f.len_bytes) as usize;
        // An older, shorter struct has no bytes for its last fields.
        let Some(bytes) = bytes.get(range).filter(|_| is_wanted) else { continue };
        if f.kind == Kind::Reserved && bytes.iter().all(|b| *b == 0) {
            continue;
        }
        if !text.is_empty() && !text.ends_with(['(', '{', '[']) {
            text.push_str(", ");
        }
        text.push_str(f.name);
        text.push('=');
        push_value(text, f, bytes);
    }
}

fn push_value(text: &mut String, f: &FieldDesc, bytes: &[u8]) {
    match f.kind {
        Kind::Nested(layout) => push_structs(text, layout, bytes),
        Kind::Union(forms) => {
            if bytes.iter().all(|b| *b == 0) {
                text.push('0');
                return;
            }
            for (n, (name, layout)) in forms.iter().enumerate() {
                text.push_str(if n == 0 { "" } else { " or " });
                text.push_str(name);
                text.push('{');
                push_fields(text, layout, bytes, None);
                text.push('}');
            }
        }
        Kind::Words => push_words(text, bytes),
        _ if !matches!(f.len_bytes, 1 | 2 | 4 | 8) => push_bytes(text, bytes),
        kind => push_integer(text, kind, integer(bytes), f.len_bytes),
    }
}

/// A little-endian integer of up to 8 bytes.
pub(crate) fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |value, b| value << 8 | u64::from(*b))
}

fn push_integer(text: &mut String, kind: Kind, value: u64, len_bytes: u32) {
    let _infallible = match kind {
        Kind::Dec | Kind::QueueId | Kind::EventId => write!(text, "{value}"),
        Kind::Fd | Kind::Signed if len_bytes == 4 => write!(text, "{}", (value as u32).cast_signed()),
        Kind::Enum(names) => match names.iter().find(|(known, _)| *known == value) {
            Some((_, name)) => write!(text, "{name}"),
            None => write!(text, "{value}"),
        },
        Kind::Flags(names) => {
            let mut rest = value;
            let mut first = true;
            for (bit, name) in names.iter().filter(|(bit, _)| *bit != 0 && value & bit == *bit) {
                text.push_str(if first { "" } else { "|" });
                text.push_str(name);
                first = false;
                rest &= !bit;
            }
            match (first, rest) {
                (true, rest) => write!(text, "{rest:#x}"),
                (false, 0) => Ok(()),
                (false, rest) => write!(text, "|{rest:#x}"),
            }
        }
        _ => write!(text, "{value:#x}"),
    };
}

fn push_structs(text: &mut String, layout: &Layout, bytes: &[u8]) {
    let size = layout.len_bytes.max(1) as usize;
    let count = bytes.len() / size;
    for (n, one) in bytes.chunks_exact(size).take(SHOWN).enumerate() {
        text.push_str(if n == 0 { "{" } else { ", {" });
        push_fields(text, layout, one, None);
        text.push('}');
    }
    if count > SHOWN {
        let _infallible = write!(text, ", ... {count} in all");
    }
}

fn push_words(text: &mut String, bytes: &[u8]) {
    text.push('[');
    for (n, word) in bytes.chunks_exact(4).take(SHOWN).enumerate() {
        let _infallible = write!(text, "{}{:#x}", if n == 0 { "" } else { ", " }, integer(word));
    }
    if bytes.len() / 4 > SHOWN {
        let _infallible = write!(text, ", ... {} in all", bytes.len() / 4);
    }
    text.push(']');
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    bytes.iter().take(4 * SHOWN).for_each(|b| {
        let _infallible = write!(text, "{b:02x}");
    });
    if bytes.len() > 4 * SHOWN {
        let _infallible = write!(text, "... {} bytes", bytes.len());
    }
}

fn push_blobs(text: &mut String, embedded: &[Embedded], blobs: &[Blob], wanted: Dir) {
    for blob in blobs {
        let Some(e) = embedded.get(blob.index as usize).filter(|e| e.dir == wanted || e.dir == Dir::InOut) else {
            continue;
        };
        if !text.is_empty() && !text.ends_with('(') {
            text.push_str(", ");
        }
        let name = if e.pointer.is_empty() { "array" } else { e.pointer };
        let _infallible = write!(text, "*{name}=[");
        match e.element {
            Element::Struct(layout) => push_structs(text, layout, &blob.bytes),
            Element::Bytes => push_bytes(text, &blob.bytes),
            Element::U32 => {
                text.pop();
                push_words(text, &blob.bytes);
                text.pop();
            }
        }
        text.push(']');
    }
}

impl Embedded {
    /// Address and bytes of the memory, read from the struct; `None` for a null pointer or an array of none.
    #[must_use]
    pub fn range(&self, layout: &Layout, bytes: &[u8]) -> Option<(u64, u64)> {
        let value = |name: &str| layout.field(name)?.read(bytes);
        let count = match self.count {
            Count::Field(name) => value(name)?,
            Count::FieldOver(name, per) => value(name)? / u64::from(per.max(1)),
        };
        let at = value(self.pointer)?;
        let len_bytes = count.checked_mul(u64::from(self.element.len_bytes()))?;
        (at != 0 && len_bytes != 0).then_some((at, len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kfd;
    use super::*;
    use bytemuck::bytes_of;

    #[test]
    fn call_prints_its_inputs_result_and_outputs() {
        let mut args =
            kfd::AllocMemoryOfGpu { va_addr: 0x7f00_0000_0000, size: 0x2000, gpu_id: 0x1234, ..Default::default() };
        args.flags = kfd::ALLOC_MEM_FLAGS_GTT | kfd::ALLOC_MEM_FLAGS_WRITABLE | 1 << 9;
        let before = bytes_of(&args).to_vec();
        (args.handle, args.mmap_offset) = (0x1234_0000_0001, 0xabc000);
        let text = decode_call(
            0xc028_4b16,
            &before,
            &[],
            Some(Returned { result: Ok(0), bytes: bytes_of(&args), blobs: &[] }),
        );
        assert_eq!(
            text,
            "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU(va_addr=0x7f0000000000, size=0x2000, mmap_offset=0x0, gpu_id=0x1234, flags=GTT|WRITABLE|0x200) \
             = 0 -> handle=0x123400000001, mmap_offset=0xabc000"
        );
    }

    #[test]
    fn failed_call_prints_the_errno_and_no_outputs() {
        let args = kfd::AcquireVm { drm_fd: 5, gpu_id: 7 };
        let text = decode_call(
            0x4008_4b15,
            bytes_of(&args),
            &[],
            Some(Returned { result: Err(Errno::EBUSY), bytes: bytes_of(&args), blobs: &[] }),
        );
        assert_eq!(text, "AMDKFD_IOC_ACQUIRE_VM(drm_fd=5, gpu_id=0x7) = -EBUSY");
    }

    #[test]
    fn embedded_arrays_are_shown_with_their_elements() {
        let args = kfd::MapMemoryToGpu { handle: 3, device_ids_array_ptr: 0x1000, n_devices: 2, n_success: 0 };
        let blob = Blob { index: 0, bytes: vec![0x34, 0x12, 0, 0, 0x78, 0x56, 0, 0] };
        let text = decode_call(0xc018_4b18, bytes_of(&args), &[blob], None);
        assert_eq!(
            text,
            "AMDKFD_IOC_MAP_MEMORY_TO_GPU(handle=0x3, device_ids_array_ptr=0x1000, n_devices=2, n_success=0, \
             *device_ids_array_ptr=[0x1234, 0x5678])"
        );
    }

    #[test]
    fn memory_fault_in_an_event_is_named() {
        let mut event = kfd::EventData { event_id: 4, ..Default::default() };
        event.payload = [1, 0, 0x7f00_0000_3000, 0x1234];
        let text = decode_fields(&kfd::EventData::LAYOUT, bytes_of(&event));
        assert!(text.starts_with("payload=memory_exception_data{not_present=1, read_only=0, "), "{text}");
        assert!(text.contains("va=0x7f0000003000, gpu_id=0x1234"), "{text}");
    }

    #[test]
    fn unknown_request_shows_its_parts() {
        let text = decode_call(
            0xc010_4b7e,
            &[0; 16],
            &[],
            Some(Returned { result: Err(Errno::ENOTTY), bytes: &[0; 16], blobs: &[] }),
        );
        assert_eq!(text, "ioctl(0xc0104b7e: type 'K' number 0x7e, 16 bytes) = -ENOTTY");
    }

    #[test]
    fn shorter_struct_of_an_older_release_decodes_what_it_has() {
        let text = decode_call(0xc060_4b02, &[0; 20], &[], None);
        assert_eq!(text, "AMDKFD_IOC_CREATE_QUEUE(ring_base_address=0x0, write_pointer_address=0x0)");
    }

    #[test]
    fn range_of_an_embedded_pointer_comes_from_its_count() {
        let args = kfd::WaitEvents { events_ptr: 0x1000, num_events: 3, ..Default::default() };
        let desc = kfd::WAIT_EVENTS.desc;
        assert_eq!(desc.embedded[0].range(desc.layout, bytes_of(&args)), Some((0x1000, 144)));
        assert_eq!(desc.embedded[0].range(desc.layout, &[0; 24]), None);
        assert_eq!(desc.embedded[0].range(desc.layout, &[1; 3]), None);
    }
}
