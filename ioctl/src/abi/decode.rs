//! Bytes of a call → one line of text with named fields.
//!
//! Layer: the tracer's text, the post-mortem's last calls, the replayer's differences.

use super::{
    Choice, Count, Dir, Element, Embedded, FieldDesc, Kind, Layout, chosen, find_form, request_len_bytes,
    request_number, request_type,
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
    let Some(desc) = find_form(request, before.len()) else {
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
    push_blobs(&mut text, (desc.embedded, desc.layout, before), blobs, Dir::In);
    text.push(')');
    if let Some(after) = after {
        push_result(&mut text, after.result);
        if after.result.is_ok() {
            let mut out = String::new();
            push_fields(&mut out, desc.out.unwrap_or(desc.layout), after.bytes, Some(Dir::Out));
            push_blobs(&mut out, (desc.embedded, desc.layout, before), after.blobs, Dir::Out);
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
        Kind::Handle if f.len_bytes > 8 => push_words(text, bytes),
        Kind::Text => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            let _infallible = write!(text, "{:?}", String::from_utf8_lossy(&bytes[..end]));
        }
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
        Kind::Fd | Kind::Signed if len_bytes == 4 => write!(text, "{}", (value as u32).cast_signed()),
        Kind::Dec | Kind::QueueId | Kind::EventId | Kind::Fd => write!(text, "{value}"),
        Kind::Enum(names) => match names.iter().find(|(known, _)| *known == value) {
            Some((_, name)) => write!(text, "{name}"),
            None => write!(text, "{value}"),
        },
        Kind::Choice(among) => match chosen(among, value as u32) {
            Some(choice) => write!(text, "{}", choice.name),
            None => write!(text, "{value:#x}"),
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

/// Memory that pointers name: `holder` are the pointers, the struct they are in and its bytes.
fn push_blobs(text: &mut String, holder: (&[Embedded], &Layout, &[u8]), blobs: &[Blob], wanted: Dir) {
    let (embedded, layout, bytes) = holder;
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
            Element::Chosen(_) => match e.pointee(layout, bytes) {
                Some(inner) => push_chosen(text, inner, &blob.bytes, wanted),
                None => push_bytes(text, &blob.bytes),
            },
            Element::U32 => {
                text.pop();
                push_words(text, &blob.bytes);
                text.pop();
            }
        }
        text.push(']');
    }
}

/// What a struct's field chooses.
fn chosen_by(field: &str, layout: &Layout, bytes: &[u8]) -> Option<&'static Choice> {
    let field = layout.field(field)?;
    let Kind::Choice(among) = field.kind else { return None };
    chosen(among, u32::try_from(field.read(bytes)?).ok()?)
}

/// A chosen struct: on the way back only the bytes that the driver returned.
fn push_chosen(text: &mut String, layout: &Layout, bytes: &[u8], wanted: Dir) {
    text.push('{');
    push_fields(text, layout, bytes, Some(wanted));
    text.push('}');
}

impl Embedded {
    /// The struct that a pointer field points at (one or more of them), by the struct that holds the pointer.
    #[must_use]
    pub fn pointee(&self, layout: &Layout, bytes: &[u8]) -> Option<&'static Layout> {
        match self.element {
            Element::Struct(pointee) => Some(pointee),
            Element::Chosen(by) => {
                let Count::Whole(size) = self.count else { return chosen_by(by, layout, bytes)?.layout };
                let len_bytes = layout.field(size).and_then(|f| f.read(bytes));
                chosen_by(by, layout, bytes)?.layout_of(len_bytes)
            }
            Element::Bytes | Element::U32 => None,
        }
    }

    /// Address and bytes of the memory, read from the struct; `None` for a null pointer or an array of none.
    #[must_use]
    pub fn range(&self, layout: &Layout, bytes: &[u8]) -> Option<(u64, u64)> {
        let value = |name: &str| layout.field(name)?.read(bytes);
        let count = match self.count {
            Count::Field(name) => value(name)?,
            Count::FieldOver(name, per) => value(name)? / u64::from(per.max(1)),
            Count::Whole(name) => {
                self.pointee(layout, bytes).map_or_else(|| value(name), |l| Some(l.len_bytes.into()))?
            }
        };
        let at = value(self.pointer)?;
        let len_bytes = count.checked_mul(u64::from(self.element.len_bytes()))?;
        (at != 0 && len_bytes != 0).then_some((at, len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{kfd, nvrm, uvm};
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
        let mut text = String::new();
        push_fields(&mut text, &kfd::EventData::LAYOUT, bytes_of(&event), None);
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
    fn command_of_rm_prints_its_name_its_struct_and_the_status() {
        let mut args = nvrm::RmControl { h_client: 0xc1d0_0001, h_object: 0x5c00_0001, ..Default::default() };
        (args.cmd, args.params, args.params_size) = (nvrm::GPU_GET_ID_INFO_V2.cmd, 0x1000, 32);
        let mut info = nvrm::IdInfo { gpu_id: 0x100, ..Default::default() };
        let before = Blob { index: 0, bytes: bytes_of(&info).to_vec() };
        let desc = nvrm::CONTROL.desc;
        assert_eq!(desc.embedded[0].range(desc.layout, bytes_of(&args)), Some((0x1000, 32)));
        info.device_instance = 1;
        let (sent, after) = (args, Blob { index: 0, bytes: bytes_of(&info).to_vec() });
        args.status = 0x1f;
        let returned = Returned { result: Ok(0), bytes: bytes_of(&args), blobs: std::slice::from_ref(&after) };
        let text = decode_call(desc.request, bytes_of(&sent), &[before], Some(returned));
        assert_eq!(
            text,
            "NV_ESC_RM_CONTROL(h_client=0xc1d00001, h_object=0x5c000001, cmd=NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, flags=0x0, \
             params=0x1000, params_size=0x20, *params=[{gpu_id=0x100}]) = 0 -> status=NV_ERR_INVALID_ARGUMENT, \
             *params=[{gpu_flags=0x0, device_instance=1, sub_device_instance=0, sli_status=0, board_id=0, gpu_instance=0, numa_id=0}]"
        );
    }

    #[test]
    fn new_object_of_rm_takes_the_struct_of_its_class_whatever_the_size_says() {
        let args = nvrm::RmAlloc { h_class: nvrm::FERMI_VASPACE_A, p_alloc_parms: 0x1000, ..Default::default() };
        let desc = nvrm::ALLOC.desc;
        assert_eq!(desc.embedded[0].range(desc.layout, bytes_of(&args)), Some((0x1000, 56)));
        let unknown = nvrm::RmAlloc { h_class: 0xffff, params_size: 8, ..args };
        assert_eq!(desc.embedded[0].range(desc.layout, bytes_of(&unknown)), Some((0x1000, 8)));
        let text = decode_call(desc.request, bytes_of(&args), &[], None);
        assert!(text.contains("h_class=FERMI_VASPACE_A"), "{text}");
    }

    #[test]
    fn call_of_uvm_is_known_by_its_number_and_length() {
        let free = uvm::FreeV595 { base: 0x20_0000_0000, rm_status: 0, pad1: 0 };
        assert_eq!(decode_call(34, bytes_of(&free), &[], None), "UVM_FREE(base=0x2000000000)");
        let free = uvm::Free { base: 0x20_0000_0000, length: 0x1000, ..Default::default() };
        assert_eq!(decode_call(34, bytes_of(&free), &[], None), "UVM_FREE(base=0x2000000000, length=0x1000)");
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
