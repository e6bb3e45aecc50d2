//! Functions that a cubin calls and does not have, placed after its image.

use super::load::{CODE_ALIGN, Cubin, PAGE, PREFETCH_BYTES};
use crate::error::ElfError;
use crate::image::MAX_IMAGE_BYTES;
use crate::num::{align_up, index, wide};

/// Code of functions that kernels call by name, as nvcc calls `vprintf`. It can be placed anywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Machine code, position-independent; placed at a multiple of 128 bytes.
    pub code: Vec<u8>,
    /// Names, and where in the code they begin.
    pub entries: Vec<(String, u64)>,
    /// Registers a thread that a kernel needs at least to call them, the hidden ones included.
    pub registers: u32,
    /// What a call needs of a thread's stack.
    pub stack_bytes: u32,
}

impl Cubin {
    /// Gives the cubin the functions that it calls by name; nothing changes where it calls none of them. Its kernels
    /// then need the functions' registers and stack, too: which of them call is not written in the file.
    ///
    /// # Errors
    /// An image that becomes too big.
    pub fn supply(&mut self, functions: &Functions) -> Result<(), ElfError> {
        let entry = |name: &String| functions.entries.iter().find(|(have, _)| have == name).map(|(_, at)| *at);
        let found: Vec<Option<u64>> = self.undefined.iter().map(entry).collect();
        if found.iter().all(Option::is_none) {
            return Ok(());
        }
        let too_big = |need_bytes| ElfError::ImageTooBig { need_bytes, max_bytes: MAX_IMAGE_BYTES };
        let start = align_up(wide(self.bytes.len()), CODE_ALIGN).ok_or_else(|| too_big(u64::MAX))?;
        let end = start.saturating_add(wide(functions.code.len())).saturating_add(PREFETCH_BYTES);
        let padded = align_up(end, PAGE).filter(|end| *end <= MAX_IMAGE_BYTES).ok_or_else(|| too_big(end))?;
        self.bytes.resize(index(start), 0);
        self.bytes.extend_from_slice(&functions.code);
        self.bytes.resize(index(padded), 0);
        // What is still undefined moves up.
        let mut numbers = Vec::new();
        let mut left = Vec::new();
        for (name, found) in std::mem::take(&mut self.undefined).into_iter().zip(&found) {
            numbers.push(left.len());
            if found.is_none() {
                left.push(name);
            }
        }
        self.undefined = left;
        for fixup in &mut self.fixups {
            let Some(from) = fixup.from else { continue };
            match found[from] {
                // PANIC: a name's number
                Some(at) => (fixup.value, fixup.from) = (fixup.value.wrapping_add(start + at), None),
                None => fixup.from = Some(numbers[from]), // PANIC: as above
            }
        }
        for kernel in &mut self.kernels {
            kernel.registers = kernel.registers.max(functions.registers);
            kernel.stack_bytes = kernel.stack_bytes.map(|own| own.saturating_add(functions.stack_bytes));
        }
        Ok(())
    }
}
