//! Driver interfaces as data: each ioctl's number, name, struct, fields, embedded pointers and releases. No behaviour.
//!
//! Layer: callers (`device`), software drivers (`emu`), the tracer, the recorder and the tests read the
//! same descriptions. Sources: `linux/kfd_ioctl.h` and `drm/amdgpu_drm.h`; names of structs and fields are theirs. C
//! probes in `tests/` compile the installed headers and compare every size, offset and number; what is newer than those
//! headers is compared with a table of numbers instead. NVIDIA's are the open kernel modules' headers, which no system
//! installs: `tests/nv.rs` compares with what they compile to. Left out: calls that no program here makes and no
//! decoder needs (DRM command submission); KFD's removed debugger calls 0x0d..0x10.

#[macro_use]
mod desc;
mod decode;
pub mod drm;
pub mod kfd;
mod message;
pub mod nvrm;
pub mod uvm;
pub mod uvm_test;

pub(crate) use decode::integer;
pub use decode::{Blob, Returned, decode_call};
pub use desc::{Choice, Count, Desc, Dir, Element, Embedded, FieldDesc, Ioctl, Kind, Layout};
pub use desc::{chosen, request_len_bytes, request_number, request_type, same_call};
pub use message::{Message, Value};

/// Every ioctl described here.
pub fn all() -> impl Iterator<Item = &'static Desc> {
    kfd::TABLE.iter().chain(drm::TABLE).chain(nvrm::TABLE).chain(uvm::TABLE).chain(uvm_test::TABLE).copied()
}

/// The description for a request word: the exact one, else one of the same type and number (drivers choose by those;
/// the size may be another release's).
#[must_use]
pub fn find(request: u32) -> Option<&'static Desc> {
    all().find(|d| d.request == request).or_else(|| all().find(|d| same_call(d.request, request)))
}

/// The same for a struct of a given size: where the request word does not hold the size, the form of the release that
/// has this size.
#[must_use]
pub fn find_form(request: u32, len_bytes: usize) -> Option<&'static Desc> {
    let form = |d: &&Desc| d.request == request && d.layout.len_bytes as usize == len_bytes;
    all().find(form).or_else(|| find(request))
}

/// Size in bytes of a call's struct: the one in the request word, or the longest form of a call whose word has no size.
/// 0 for a call without a size that is not described.
#[must_use]
pub fn arg_len_bytes(request: u32) -> usize {
    if request_type(request) != 0 {
        return request_len_bytes(request);
    }
    let forms = all().filter(|d| d.request == request).map(|d| d.layout.len_bytes as usize);
    forms.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_requests_are_given_once() {
        let mut requests: Vec<(u32, u32)> = all().map(|d| (d.request, d.layout.len_bytes)).collect();
        requests.sort_unstable();
        let count = requests.len();
        requests.dedup();
        assert_eq!(requests.len(), count);
        for d in all() {
            let found = find_form(d.request, d.layout.len_bytes as usize);
            assert!(found.is_some_and(|found| std::ptr::eq(found, d)), "{}", d.name);
        }
    }

    #[test]
    fn request_words_have_the_size_of_their_structs() {
        for d in all().filter(|d| request_type(d.request) != 0) {
            assert_eq!(request_len_bytes(d.request) as u32, d.layout.len_bytes, "{}", d.name);
        }
    }

    #[test]
    fn fields_fill_their_structs_in_order_without_gaps() {
        let mut layouts: Vec<&Layout> = all().flat_map(|d| std::iter::once(d.layout).chain(d.out)).collect();
        for d in all().flat_map(|d| d.embedded) {
            if let Element::Struct(layout) = d.element {
                layouts.push(layout);
            }
        }
        for layout in layouts {
            let mut at = 0;
            for f in layout.fields {
                assert_eq!(f.offset, at, "{}.{}", layout.name, f.name);
                at += f.len_bytes;
            }
            assert_eq!(at, layout.len_bytes, "{}", layout.name);
        }
    }

    #[test]
    fn embedded_pointers_and_counts_name_fields() {
        for d in all() {
            for e in d.embedded {
                assert!(d.layout.field(e.pointer).is_some_and(|f| f.kind == Kind::Pointer), "{}.{}", d.name, e.pointer);
                if let Count::Field(name) = e.count {
                    assert!(d.layout.field(name).is_some(), "{}.{name}", d.name);
                }
            }
        }
    }

    #[test]
    fn size_of_another_release_finds_the_same_call() {
        assert_eq!(find(0xc058_4b02).map(|d| d.layout.len_bytes), Some(88));
        assert_eq!(find(0xc060_4b02).map(|d| d.layout.len_bytes), Some(96));
        assert_eq!(find(0xc068_4b02).map(|d| d.name), Some("AMDKFD_IOC_CREATE_QUEUE"));
        assert!(find(0xc060_4b7f).is_none());
    }
}
