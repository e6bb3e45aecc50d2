//! Driver interfaces as data: each ioctl's number, name, struct, fields, embedded pointers and releases. No behaviour.
//!
//! Place in the arrows: callers (`device`), software drivers (`emu`), the tracer, the recorder and the tests read the same descriptions.
//! Sources: `linux/kfd_ioctl.h` and `drm/amdgpu_drm.h`; names of structs and fields are theirs. C probes in `tests/` compile the installed
//! headers and compare every size, offset and number; what is newer than those headers is compared with a table of numbers instead.
//! Left out: calls that no program here makes and no decoder needs (DRM command submission); KFD's removed debugger calls 0x0d..0x10.

#[macro_use]
mod desc;
mod decode;
pub mod drm;
pub mod kfd;

pub use decode::{Blob, Returned, decode_call, decode_fields};
pub use desc::{Count, Desc, Dir, Element, Embedded, FieldDesc, Ioctl, Kind, Layout};
pub use desc::{request_len_bytes, request_number, request_type, same_call};

/// Every ioctl described here.
pub fn all() -> impl Iterator<Item = &'static Desc> {
    kfd::TABLE.iter().chain(drm::TABLE).copied()
}

/// The description for a request word: the exact one, else one of the same type and number (drivers choose by those; the size may be
/// another release's).
#[must_use]
pub fn find(request: u32) -> Option<&'static Desc> {
    all().find(|d| d.request == request).or_else(|| all().find(|d| same_call(d.request, request)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_requests_are_given_once() {
        let mut requests: Vec<u32> = all().map(|d| d.request).collect();
        requests.sort_unstable();
        let count = requests.len();
        requests.dedup();
        assert_eq!(requests.len(), count);
        assert!(all().all(|d| find(d.request).is_some_and(|found| std::ptr::eq(found, d))));
    }

    #[test]
    fn request_words_have_the_size_of_their_structs() {
        for d in all() {
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
