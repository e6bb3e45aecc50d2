//! What a run took from its driver and did not give back.
//!
//! Source: the calls of KFD that make and end something (section 1 of its header); files and mappings.

use super::{Event, IoctlEvent, What};
use crate::abi::{find, kfd};
use crate::port::{Errno, Fd, MapFlags};
use std::collections::BTreeMap;

/// Things that were made, each under a key that its end names too.
#[derive(Default)]
struct Open {
    things: BTreeMap<(&'static str, i64, u64), String>,
    mapped: BTreeMap<u64, u64>,
    /// Buffers given to the kernel for events: it keeps them for the process's life, and says EPERM when they are freed.
    event_pages: Vec<u64>,
}

/// Files left open, buffers left allocated or mapped to a GPU, queues and events left alive, memory left mapped: one line each, empty after a
/// clean tear-down.
#[must_use]
pub fn leftovers(events: &[Event]) -> Vec<String> {
    let mut open = Open::default();
    events.iter().for_each(|e| open.apply(&e.what));
    let mapped = open.mapped.iter().map(|(at, len)| format!("{len:#x} bytes mapped at {at:#x}"));
    open.things.values().cloned().chain(mapped).collect()
}

/// Pages that hold so many bytes, in bytes.
fn whole_pages(len_bytes: u64) -> u64 {
    len_bytes.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
}

impl Open {
    fn apply(&mut self, what: &What) {
        match what {
            What::Open { path, result: Ok(fd), .. } => self.add("file", *fd, 0, format!("{fd:?} open on {path}")),
            What::Close { fd, result: Ok(()) } => {
                self.remove("file", *fd, 0);
            }
            What::Ioctl(call) if call.result.is_ok() => self.ioctl(call),
            What::Ioctl(call) if call.result == Err(Errno::EPERM) => self.kept_page(call),
            // A fixed mapping lies over one that is known.
            What::Mmap { map, result: Ok(at) } if !map.flags.contains(MapFlags::FIXED) => {
                self.mapped.insert(at.0, whole_pages(map.len_bytes));
            }
            What::Munmap { addr, len_bytes, result: Ok(()) } => {
                self.unmap(addr.0, addr.0.saturating_add(whole_pages(*len_bytes)));
            }
            _ => {}
        }
    }

    fn add(&mut self, kind: &'static str, fd: Fd, id: u64, text: String) {
        self.things.insert((kind, i64::from(fd.0), id), text);
    }

    fn remove(&mut self, kind: &'static str, fd: Fd, id: u64) {
        self.things.remove(&(kind, i64::from(fd.0), id));
    }

    fn unmap(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, u64)> = self
            .mapped
            .range(..end)
            .rev()
            .map(|(a, l)| (*a, *l))
            .take_while(|(a, l)| a.saturating_add(*l) > start)
            .collect();
        for (from, len) in touched {
            self.mapped.remove(&from);
            if from < start {
                self.mapped.insert(from, start - from);
            }
            let until = from.saturating_add(len);
            if until > end {
                self.mapped.insert(end, until - end);
            }
        }
    }

    /// A process that has tried to free its event page has done what it can.
    fn kept_page(&mut self, call: &IoctlEvent) {
        let is_free = call.request == kfd::FREE_MEMORY_OF_GPU.desc.request;
        let handle = call.before.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        if is_free && self.event_pages.contains(&handle) {
            self.remove("buffer", call.fd, handle);
            self.remove("map", call.fd, handle);
        }
    }

    fn ioctl(&mut self, call: &IoctlEvent) {
        let Some(desc) = find(call.request) else { return };
        let field = |bytes: &[u8], name: &str| {
            let f = desc.layout.field(name)?;
            let range = f.offset as usize..(f.offset + f.len_bytes) as usize;
            bytes.get(range).map(|b| b.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b)))
        };
        let (before, after) = (|n| field(&call.before, n).unwrap_or(0), |n| field(&call.after, n).unwrap_or(0));
        let fd = call.fd;
        match desc.name {
            name if name == kfd::ALLOC_MEMORY_OF_GPU.desc.name || name == kfd::IMPORT_DMABUF.desc.name => {
                let (handle, size, va) = (after("handle"), before("size"), before("va_addr"));
                self.add("buffer", fd, handle, format!("buffer {handle:#x} of {size:#x} bytes at {va:#x}"));
            }
            name if name == kfd::FREE_MEMORY_OF_GPU.desc.name => {
                self.remove("buffer", fd, before("handle"));
                self.remove("map", fd, before("handle"));
            }
            name if name == kfd::MAP_MEMORY_TO_GPU.desc.name => {
                let handle = before("handle");
                self.add("map", fd, handle, format!("buffer {handle:#x} mapped to a GPU"));
            }
            name if name == kfd::UNMAP_MEMORY_FROM_GPU.desc.name => self.remove("map", fd, before("handle")),
            name if name == kfd::CREATE_QUEUE.desc.name => {
                let id = after("queue_id");
                self.add("queue", fd, id, format!("queue {id}"));
            }
            name if name == kfd::DESTROY_QUEUE.desc.name => self.remove("queue", fd, before("queue_id")),
            name if name == kfd::CREATE_EVENT.desc.name => {
                let id = after("event_id");
                self.add("event", fd, id, format!("event {id}"));
                self.event_pages.extend(Some(before("event_page_offset")).filter(|handle| *handle != 0));
            }
            name if name == kfd::DESTROY_EVENT.desc.name => self.remove("event", fd, before("event_id")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{CpuPtr, MapRequest, OpenFlags};
    use crate::trace::Moment;
    use bytemuck::bytes_of;

    fn call(request: u32, before: &[u8], after: &[u8], result: Result<i32, Errno>) -> What {
        let (before, after) = (before.to_vec(), after.to_vec());
        let (blobs_before, blobs_after) = (Vec::new(), Vec::new());
        What::Ioctl(Box::new(IoctlEvent { fd: Fd(3), request, before, blobs_before, after, blobs_after, result }))
    }

    fn left(whats: Vec<What>) -> Vec<String> {
        leftovers(&whats.into_iter().map(|what| Event { moment: Moment::default(), what }).collect::<Vec<_>>())
    }

    fn alloc(handle: u64, result: Result<i32, Errno>) -> What {
        let before = kfd::AllocMemoryOfGpu { va_addr: 0x7000, size: 0x2000, ..Default::default() };
        let after = kfd::AllocMemoryOfGpu { handle, ..before };
        call(kfd::ALLOC_MEMORY_OF_GPU.desc.request, bytes_of(&before), bytes_of(&after), result)
    }

    #[test]
    fn what_is_not_given_back_is_named() {
        let queue = kfd::CreateQueueV11 { queue_id: 4, ..Default::default() };
        let found = left(vec![
            What::Open { path: "/dev/kfd".into(), flags: OpenFlags::DEVICE, result: Ok(Fd(3)) },
            alloc(9, Ok(0)),
            alloc(10, Err(Errno::ENOMEM)),
            call(kfd::CREATE_QUEUE_V11.desc.request, &[0; 88], bytes_of(&queue), Ok(0)),
            What::Mmap { map: MapRequest::reserve(0x3000), result: Ok(CpuPtr(0x10000)) },
            What::Munmap { addr: CpuPtr(0x11000), len_bytes: 0x1000, result: Ok(()) },
        ]);
        let expected = [
            "buffer 0x9 of 0x2000 bytes at 0x7000",
            "fd 3 open on /dev/kfd",
            "queue 4",
            "0x1000 bytes mapped at 0x10000",
            "0x1000 bytes mapped at 0x12000",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn event_page_that_the_kernel_keeps_is_no_leftover() {
        let free = kfd::FreeMemoryOfGpu { handle: 9 };
        let refused =
            || call(kfd::FREE_MEMORY_OF_GPU.desc.request, bytes_of(&free), bytes_of(&free), Err(Errno::EPERM));
        let event = kfd::CreateEvent { event_page_offset: 9, event_id: 2, ..Default::default() };
        let end = kfd::DestroyEvent { event_id: 2, pad: 0 };
        let create = || call(kfd::CREATE_EVENT.desc.request, bytes_of(&event), bytes_of(&event), Ok(0));
        let destroy = || call(kfd::DESTROY_EVENT.desc.request, bytes_of(&end), bytes_of(&end), Ok(0));
        assert!(left(vec![alloc(9, Ok(0)), create(), destroy(), refused()]).is_empty());
        assert_eq!(left(vec![alloc(9, Ok(0)), create(), destroy()]).len(), 1);
        assert_eq!(left(vec![alloc(9, Ok(0)), refused()]).len(), 1);
    }

    #[test]
    fn what_is_given_back_is_not_named() {
        let free = kfd::FreeMemoryOfGpu { handle: 9 };
        let event = kfd::CreateEvent { event_id: 2, ..Default::default() };
        let end = kfd::DestroyEvent { event_id: 2, pad: 0 };
        let found = left(vec![
            alloc(9, Ok(0)),
            call(kfd::FREE_MEMORY_OF_GPU.desc.request, bytes_of(&free), bytes_of(&free), Ok(0)),
            call(kfd::CREATE_EVENT.desc.request, &[0; 32], bytes_of(&event), Ok(0)),
            call(kfd::DESTROY_EVENT.desc.request, bytes_of(&end), bytes_of(&end), Ok(0)),
            What::Mmap { map: MapRequest::reserve(0x3000), result: Ok(CpuPtr(0x10000)) },
            What::Mmap { map: MapRequest::file(Fd(4), 0, 0x1000).at(CpuPtr(0x11000)), result: Ok(CpuPtr(0x11000)) },
            What::Munmap { addr: CpuPtr(0x10000), len_bytes: 0x3000, result: Ok(()) },
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
