//! Recorded memory as it is at a point of the recording.

use std::collections::HashMap;

const PAGE: usize = 4096;

/// Pages with recorded contents; the rest is zero.
#[derive(Default, Debug)]
pub struct Memory(HashMap<u64, Box<[u8; PAGE]>>);

impl Memory {
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (page, from, part) in pieces(at, bytes.len()) {
            let page = self.0.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            page[from..from + part.len()].copy_from_slice(&bytes[part]);
        }
    }

    /// Fills the bytes with what is recorded at an address.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        for (page, from, part) in pieces(at, bytes.len()) {
            match self.0.get(&page) {
                Some(page) => bytes[part.clone()].copy_from_slice(&page[from..from + part.len()]),
                None => bytes[part].fill(0),
            }
        }
    }

    pub(super) fn word(&self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(super) fn wide(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Page, offset in it, and which of the bytes lie there.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let here = at.wrapping_add(done as u64);
        let from = (here % PAGE as u64) as usize;
        let part = done..len.min(done + PAGE - from);
        done = part.end;
        Some((here / PAGE as u64, from, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_pages_come_back_and_the_rest_is_zero() {
        let mut memory = Memory::default();
        let bytes: Vec<u8> = (0..=255).cycle().take(9000).collect();
        memory.write(0x1ffe, &bytes);
        let mut back = vec![9; 9004];
        memory.read(0x1ffc, &mut back);
        assert_eq!((&back[..2], &back[2..9002], &back[9002..]), (&[0u8; 2][..], &bytes[..], &[0u8; 2][..]));
        assert_eq!((memory.word(0x2000), memory.wide(0x10_0000)), (0x0504_0302, 0));
    }
}
