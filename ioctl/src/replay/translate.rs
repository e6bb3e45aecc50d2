//! Recorded names and addresses, and the new run's values for them.

use crate::abi::{FieldDesc, Kind, Layout};
use crate::port::Fd;
use std::collections::{BTreeMap, HashMap};

/// Bytes of a process's doorbell slice; the low bits of a doorbell's map offset are the doorbell's offset in it.
const SLICE_BYTES: u64 = 0x2000;

/// Kinds of names that a driver assigns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Name {
    Handle,
    MapOffset,
    Gpu,
    Queue,
    Event,
    Fd,
}

fn name_of(kind: Kind) -> Option<Name> {
    Some(match kind {
        Kind::Handle => Name::Handle,
        Kind::MapOffset => Name::MapOffset,
        Kind::GpuId => Name::Gpu,
        Kind::QueueId => Name::Queue,
        Kind::EventId => Name::Event,
        Kind::Fd => Name::Fd,
        _ => return None,
    })
}

/// The dictionary.
#[derive(Default, Debug)]
pub(super) struct Names {
    names: HashMap<(Name, u64), u64>,
    /// Recorded start → (length in bytes, start now).
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl Names {
    fn learn_name(&mut self, name: Name, recorded: u64, now: u64) {
        self.names.insert((name, recorded), now);
        if name == Name::MapOffset {
            // A doorbell's slice is mapped by the offset without the doorbell's offset in it.
            self.names.entry((name, recorded & !(SLICE_BYTES - 1))).or_insert(now & !(SLICE_BYTES - 1));
        }
    }

    fn name(&self, name: Name, recorded: u64) -> u64 {
        self.names.get(&(name, recorded)).copied().unwrap_or(recorded)
    }

    pub(super) fn learn_fd(&mut self, recorded: Fd, now: Fd) {
        self.learn_name(Name::Fd, u64::from(recorded.0.cast_unsigned()), u64::from(now.0.cast_unsigned()));
    }

    pub(super) fn fd(&self, recorded: Fd) -> Fd {
        Fd((self.name(Name::Fd, u64::from(recorded.0.cast_unsigned())) as u32).cast_signed())
    }

    pub(super) fn learn_gpu(&mut self, recorded: u64, now: u64) {
        self.learn_name(Name::Gpu, recorded, now);
    }

    pub(super) fn gpu(&self, recorded: u64) -> u64 {
        self.name(Name::Gpu, recorded)
    }

    pub(super) fn queue(&self, recorded: u64) -> u64 {
        self.name(Name::Queue, recorded)
    }

    pub(super) fn map_offset(&self, recorded: u64) -> u64 {
        self.name(Name::MapOffset, recorded)
    }

    pub(super) fn learn_range(&mut self, recorded: u64, len_bytes: u64, now: u64) {
        self.ranges.insert(recorded, (len_bytes, now));
    }

    pub(super) fn forget_range(&mut self, recorded: u64, len_bytes: u64) {
        let end = recorded.saturating_add(len_bytes);
        self.ranges.retain(|at, (len, _)| *at < recorded || at.saturating_add(*len) > end);
    }

    /// An address in a range that has moved.
    pub(super) fn moved(&self, recorded: u64) -> Option<u64> {
        let now = self.address(recorded);
        (now != recorded).then_some(now)
    }

    pub(super) fn is_moved(&self) -> bool {
        self.ranges.iter().any(|(recorded, (_, now))| recorded != now)
    }

    /// Whether mappings of this replay hold all of it.
    pub(super) fn holds(&self, recorded: u64, len_bytes: u64) -> bool {
        let (mut at, end) = (recorded, recorded.saturating_add(len_bytes));
        while at < end {
            match self.ranges.range(..=at).next_back() {
                Some((start, (len, _))) if at - start < *len => at = start.saturating_add(*len),
                _ => return false,
            }
        }
        true
    }

    pub(super) fn address(&self, recorded: u64) -> u64 {
        match self.ranges.range(..=recorded).next_back() {
            Some((at, (len, now))) if recorded - at < *len => now + (recorded - at),
            _ => recorded,
        }
    }

    /// Translates a struct on its way to the driver.
    pub(super) fn translate(&self, layout: &Layout, bytes: &mut [u8]) {
        for f in layout.fields {
            match f.kind {
                Kind::Nested(inner) => each(inner, f, bytes, |part| self.translate(inner, part)),
                Kind::Address => f.write(bytes, |v| self.address(v)),
                // An offset may be an address that the caller gives (pinned memory).
                Kind::MapOffset => f.write(bytes, |v| self.moved(v).unwrap_or_else(|| self.name(Name::MapOffset, v))),
                kind => {
                    let Some(name) = name_of(kind) else { continue };
                    if f.len_bytes <= 8 {
                        f.write(bytes, |v| self.name(name, v));
                    } else if let Some(list) = bytes.get_mut(f.span()) {
                        // Names in a row have 32 bits each.
                        list.as_chunks_mut::<4>().0.iter_mut().for_each(|word| {
                            *word = (self.name(name, u32::from_le_bytes(*word).into()) as u32).to_le_bytes();
                        });
                    }
                }
            }
        }
    }

    /// Records the names that the driver has assigned; returns the other fields that differ: name, recorded, new.
    pub(super) fn learn(&mut self, layout: &Layout, recorded: &[u8], now: &[u8]) -> Vec<(String, u64, u64)> {
        let mut different = Vec::new();
        for f in layout.fields {
            if let Kind::Nested(inner) = f.kind {
                let size = inner.len_bytes as usize;
                if let (Some(a), Some(b)) = (recorded.get(f.span()), now.get(f.span())) {
                    for (a, b) in a.chunks_exact(size.max(1)).zip(b.chunks_exact(size.max(1))) {
                        let inside = self.learn(inner, a, b).into_iter();
                        different.extend(inside.map(|(name, a, b)| (format!("{}.{name}", f.name), a, b)));
                    }
                }
                continue;
            }
            if f.kind == Kind::Text {
                different.extend(different_text(f, recorded, now));
                continue;
            }
            let (Some(a), Some(b)) = (f.read(recorded), f.read(now)) else { continue };
            match (name_of(f.kind), f.kind) {
                (_, Kind::Pointer | Kind::Reserved) => {}
                (_, Kind::Address) if self.address(a) == b => {}
                (Some(name), _) => {
                    if f.dir != crate::abi::Dir::In {
                        self.learn_name(name, a, b);
                    }
                }
                _ if a == b => {}
                _ => different.push((f.name.to_owned(), a, b)),
            }
        }
        different
    }

    /// Recorded memory as it has to be written, with the four bytes before and after it. Words that form an address in
    /// a moved range, or one shifted right by eight, are translated.
    pub(super) fn memory(&self, bytes: &mut [u8]) {
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let mut at = 0;
        while at + 8 <= bytes.len() {
            let v = word(bytes, at);
            let shifted = || (v >> 56 == 0).then(|| self.moved(v << 8).map(|now| now >> 8)).flatten();
            match self.moved(v).or_else(shifted) {
                Some(now) => {
                    bytes[at..at + 8].copy_from_slice(&now.to_le_bytes());
                    at += 8;
                }
                None => at += 4,
            }
        }
    }
}

/// The first eight bytes of a text that differ, as numbers.
fn different_text(f: &FieldDesc, recorded: &[u8], now: &[u8]) -> Option<(String, u64, u64)> {
    let (a, b) = (recorded.get(f.span())?, now.get(f.span())?);
    let (a, b) = a.chunks(8).zip(b.chunks(8)).find(|(a, b)| a != b)?;
    Some((f.name.to_owned(), crate::abi::integer(a), crate::abi::integer(b)))
}

fn each(inner: &Layout, f: &FieldDesc, bytes: &mut [u8], visit: impl Fn(&mut [u8])) {
    if let Some(part) = bytes.get_mut(f.span()) {
        part.chunks_exact_mut((inner.len_bytes as usize).max(1)).for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::kfd;

    #[test]
    fn names_handed_out_are_translated_where_they_come_back() {
        let mut names = Names::default();
        let recorded = kfd::AllocMemoryOfGpu { va_addr: 0x7000, handle: 5, size: 64, ..Default::default() };
        let now = kfd::AllocMemoryOfGpu { handle: 9, ..recorded };
        let bytes = bytemuck::bytes_of;
        let layout = kfd::ALLOC_MEMORY_OF_GPU.desc.layout;
        assert!(names.learn(layout, bytes(&recorded), bytes(&now)).is_empty());
        let mut free = kfd::FreeMemoryOfGpu { handle: 5 };
        names.translate(kfd::FREE_MEMORY_OF_GPU.desc.layout, bytemuck::bytes_of_mut(&mut free));
        assert_eq!(free.handle, 9);
        let other = kfd::AllocMemoryOfGpu { size: 65, ..now };
        assert_eq!(names.learn(layout, bytes(&recorded), bytes(&other)), [("size".to_owned(), 64, 65)]);
    }

    #[test]
    fn addresses_of_a_moved_range_are_found_in_packets() {
        let mut names = Names::default();
        names.learn_range(0x7f00_0000_1000, 0x1000, 0x7e11_2233_4000);
        assert_eq!(names.address(0x7f00_0000_1fff), 0x7e11_2233_4fff);
        assert_eq!(names.address(0x7f00_0000_2000), 0x7f00_0000_2000);
        let words = |list: &[u32]| list.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        // A packet's head, an address in two words at an odd place, a code address shifted by eight.
        let mut packet = words(&[0xc002_7600, 0x0000_1010, 0x7f00, 7, 0x0000_0012, 0x7f, 1]);
        names.memory(&mut packet);
        assert_eq!(packet, words(&[0xc002_7600, 0x2233_4010, 0x7e11, 7, 0x1122_3342, 0x7e, 1]));
    }

    #[test]
    fn a_forgotten_range_is_translated_no_more() {
        let mut names = Names::default();
        names.learn_range(0x1000, 0x1000, 0x9000);
        names.learn_range(0x4000, 0x1000, 0x4000);
        assert!(names.is_moved());
        names.forget_range(0x1000, 0x1000);
        assert!(!names.is_moved() && names.address(0x1800) == 0x1800);
    }
}
