//! Driver interfaces as data.
#![forbid(unsafe_code)]

/// Bytes that a request word says its struct has.
#[must_use]
pub const fn request_len_bytes(request: u32) -> usize {
    ((request >> 16) & 0x3fff) as usize
}
