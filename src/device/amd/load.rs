//! Loading kernels into the device's memory: from a code object, or from a bare descriptor with its code.
//!
//! Layer: above `bo` and `staging`; `elf` lays out the object. Source: docs/amd.md 4.5: a whole object goes
//! to one buffer, with padding for prefetch after the code. The acquire at the start of each submission invalidates
//! instruction caches.

use super::chip::Chip;
use super::program::ArgRange;
use crate::{Code, KernelImage};
use doorbell_elf::amdgpu::{Arg, CodeObject, DESCRIPTOR_BYTES, KernelDescriptor, is_amdgpu, machine_name};
use doorbell_elf::{ElfError, Machine};

/// How far instruction prefetch may read past the last instruction.
const PREFETCH_BYTES: u64 = 1024;
/// Most bytes of arguments; the kernargs ring holds several blocks of this size.
const MAX_KERNARG_BYTES: u32 = 1 << 16;
/// Alignment of a kernel's first instruction.
const ENTRY_ALIGN: u64 = 256;

/// A parsed image before it has an address, and the kernel's position in it.
#[derive(Clone, Debug)]
pub(crate) struct ParsedImage {
    content: Content,
    pub descriptor: KernelDescriptor,
    pub descriptor_offset: u64,
    /// Offset of the first instruction.
    pub entry_offset: u64,
    /// The kernel's arguments; `None` if the image does not declare them.
    pub args: Option<Vec<ArgRange>>,
}

#[derive(Clone, Debug)]
enum Content {
    Bytes(Vec<u8>),
    Object(CodeObject),
}

impl ParsedImage {
    /// Parses an image to load.
    ///
    /// # Errors
    /// A message: not an object for this chip, no such kernel, a descriptor whose code is outside the image.
    pub(crate) fn read(image: &KernelImage<'_>, chip: &Chip) -> Result<Self, String> {
        match image.code {
            Code::Raw(bytes) => Self::bare(bytes.to_vec()),
            Code::Elf { bytes, entry } | Code::Cubin { bytes, entry, .. } if is_amdgpu(bytes) => {
                Self::object(CodeObject::parse(bytes), entry, chip)
            }
            Code::Object { object, entry } if object.machine == Machine::Amdgpu => {
                Self::object(CodeObject::of_object(object), entry, chip)
            }
            Code::Elf { .. } | Code::Cubin { .. } | Code::Object { .. } => {
                Err("the file is not an AMDGPU code object".into())
            }
        }
    }

    /// Parses bytes that start with a descriptor; its code is where the descriptor says.
    fn bare(bytes: Vec<u8>) -> Result<Self, String> {
        let len = bytes.len() as u64;
        let Some(descriptor) = bytes.first_chunk::<DESCRIPTOR_BYTES>().map(KernelDescriptor::parse) else {
            return Err(format!("{len} bytes hold no descriptor"));
        };
        match u64::try_from(descriptor.entry_offset_bytes).ok().filter(|entry| *entry < len) {
            Some(entry_offset) if entry_offset.is_multiple_of(ENTRY_ALIGN) => {
                Ok(Self { content: Content::Bytes(bytes), descriptor, descriptor_offset: 0, entry_offset, args: None })
            }
            Some(entry) => Err(format!("entry at {entry:#x} is not aligned to {ENTRY_ALIGN}")),
            None => Err(format!("entry of the descriptor leaves the image of {len} bytes")),
        }
    }

    fn object(object: Result<CodeObject, ElfError>, entry: &str, chip: &Chip) -> Result<Self, String> {
        let object = object.map_err(|e| e.to_string())?;
        let made_for = object.gpu.map_or_else(machine_name, |gpu| gpu.name().to_owned());
        if made_for != chip.name {
            return Err(format!("the code object is for {made_for}, the device is {}", chip.name));
        }
        let kernel = object.kernel(entry).ok_or_else(|| format!("the code object has no kernel {entry}"))?;
        let (descriptor, descriptor_offset, entry_offset) =
            (kernel.descriptor, kernel.descriptor_offset, kernel.entry_offset);
        if descriptor.kernarg_bytes > MAX_KERNARG_BYTES {
            let have = descriptor.kernarg_bytes;
            return Err(format!("{entry} takes {have} bytes of arguments, at most {MAX_KERNARG_BYTES}"));
        }
        let arg_ranges = |arg: &Arg| ArgRange { offset: arg.offset_bytes as usize, len: arg.size_bytes as usize };
        let args = kernel.args.as_ref().map(|args| args.iter().map(arg_ranges).collect());
        Ok(Self { content: Content::Object(object), descriptor, descriptor_offset, entry_offset, args })
    }

    /// Bytes of memory to allocate.
    #[must_use]
    pub(crate) fn len_bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64 + PREFETCH_BYTES,
            Content::Object(object) => object.size() as u64,
        }
    }

    /// The bytes, relocated for execution at `base`.
    ///
    /// # Errors
    /// A message: the object cannot run at this base.
    pub(crate) fn bytes_at(&self, base: u64) -> Result<Vec<u8>, String> {
        match &self.content {
            Content::Bytes(bytes) => Ok(bytes.clone()),
            Content::Object(object) => object.image(base).map_err(|e| e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(entry_offset: i64, len: usize) -> Result<ParsedImage, String> {
        let mut bytes = vec![0; len];
        bytes[16..24].copy_from_slice(&entry_offset.to_le_bytes());
        ParsedImage::bare(bytes)
    }

    #[test]
    fn entry_is_where_the_descriptor_says() {
        assert_eq!(bare(256, 448).unwrap().entry_offset, 256);
    }

    #[test]
    fn descriptor_or_code_outside_the_image_is_refused() {
        assert!(bare(256, 256).unwrap_err().contains("leaves the image"));
        assert!(bare(-1, 512).unwrap_err().contains("leaves the image"));
        assert!(bare(128, 512).unwrap_err().contains("not aligned"));
        assert!(ParsedImage::bare(vec![0; 63]).is_err());
    }
}
