//! Kernels into the device's memory.
//!
//! Place in the arrows: above `bo` and `staging`. Source: amd.md 4.5: a whole object in one buffer, prefetch padding behind the code, caches of
//! instructions invalidated by the acquire that heads every submission.

use super::program::{DESCRIPTOR_BYTES, Descriptor};

/// Instruction prefetch may run so far past the last instruction.
pub const PREFETCH_BYTES: u64 = 1024;
/// Code starts at a multiple of this.
const ENTRY_ALIGN: u64 = 256;

/// An image before it has an address: bytes, and where the kernel's descriptor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub bytes: Vec<u8>,
    pub descriptor_offset: u64,
    pub descriptor: Descriptor,
    /// Where the first instruction is.
    pub entry_offset: u64,
}

impl Placed {
    /// Checks the descriptor and where it says that the code is.
    ///
    /// # Errors
    /// In words.
    pub fn new(bytes: Vec<u8>, descriptor_offset: u64) -> Result<Self, String> {
        let len = bytes.len() as u64;
        let at = usize::try_from(descriptor_offset).unwrap_or(usize::MAX);
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<DESCRIPTOR_BYTES>());
        let Some(descriptor) = found.map(Descriptor::parse) else {
            return Err(format!("descriptor at {descriptor_offset:#x} leaves the image of {len} bytes"));
        };
        let entry = descriptor_offset.checked_add_signed(descriptor.entry_offset).filter(|e| *e < len);
        match entry {
            Some(entry_offset) if entry_offset.is_multiple_of(ENTRY_ALIGN) && descriptor_offset.is_multiple_of(64) => {
                Ok(Self { bytes, descriptor_offset, descriptor, entry_offset })
            }
            Some(entry) => {
                Err(format!("descriptor at {descriptor_offset:#x}, entry at {entry:#x}: not aligned to 64 and 256"))
            }
            None => Err(format!("entry of the descriptor at {descriptor_offset:#x} leaves the image of {len} bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(entry_offset: i64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        bytes[16..24].copy_from_slice(&entry_offset.to_le_bytes());
        bytes
    }

    #[test]
    fn entry_is_relative_to_the_descriptor() {
        let mut bytes = vec![0; 64];
        bytes.extend(image(192, 448));
        assert_eq!(Placed::new(bytes, 64).unwrap().entry_offset, 256);
    }

    #[test]
    fn descriptor_or_code_outside_the_image_is_refused() {
        assert!(Placed::new(image(256, 256), 0).unwrap_err().contains("leaves the image"));
        assert!(Placed::new(image(-1, 512), 0).unwrap_err().contains("leaves the image"));
        assert!(Placed::new(image(256, 512), 512).unwrap_err().contains("leaves the image"));
        assert!(Placed::new(image(128, 512), 0).unwrap_err().contains("not aligned"));
        assert!(Placed::new(vec![0; 63], 0).is_err());
    }
}
