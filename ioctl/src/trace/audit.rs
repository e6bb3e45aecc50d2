//! What a run allocated from its driver and did not free.
//!
//! Source: the calls of KFD that create and destroy something (section 1 of its header); RM's objects and UVM's
//! registrations and ranges; files and mappings.

use super::{Event, IoctlEvent, What};
use crate::abi::{find, kfd, nvrm, uvm};
use crate::port::{Errno, Fd, MapFlags};
use std::collections::BTreeMap;

/// Things that were made, each under a key that its end names too.
#[derive(Default)]
struct Open {
    things: BTreeMap<(&'static str, i64, u64), String>,
    mapped: BTreeMap<u64, u64>,
    /// RM's objects: client and handle → parent and class.
    objects: BTreeMap<(u32, u32), (u32, u32)>,
    /// Buffers given to the kernel for events: it keeps them for the process's life, and returns EPERM when they are
    /// freed.
    event_pages: Vec<u64>,
}

/// Files left open, buffers left allocated or mapped to a GPU, queues, events and objects left alive, ranges and
/// channels left registered, memory left mapped: one line each, empty after a clean tear-down.
#[must_use]
pub fn leftovers(events: &[Event]) -> Vec<String> {
    let mut open = Open::default();
    events.iter().for_each(|e| open.apply(&e.what));
    let mapped = open.mapped.iter().map(|(at, len)| format!("{len:#x} bytes mapped at {at:#x}"));
    let objects = open.objects.iter().map(|((client, handle), (_, class))| {
        let name = crate::abi::chosen(nvrm::CLASSES, *class).map_or("object", |c| c.name);
        format!("{name} {handle:#x} of client {client:#x}")
    });
    open.things.values().cloned().chain(objects).chain(mapped).collect()
}

/// `len_bytes` rounded up to whole pages.
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
            What::Ioctl(call) if call.result.is_ok() => {
                self.ioctl(call);
                self.rm(call);
                self.uvm(call);
            }
            What::Ioctl(call) if call.result == Err(Errno::EPERM) => self.kept_page(call),
            // A fixed mapping that replaces one that is known.
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

    /// RM's objects; freeing one frees its children.
    fn rm(&mut self, call: &IoctlEvent) {
        fn read<T: bytemuck::Pod>(bytes: &[u8]) -> Option<T> {
            bytemuck::try_pod_read_unaligned(bytes).ok()
        }
        if call.request == nvrm::ALLOC.desc.request {
            let Some(a) = read::<nvrm::RmAlloc>(&call.after).filter(|a| nvrm::Status(a.status).is_ok()) else { return };
            let client = if a.h_root == 0 { a.h_object_new } else { a.h_root };
            self.objects.insert((client, a.h_object_new), (a.h_object_parent, a.h_class));
        } else if call.request == nvrm::ALLOC_MEMORY.desc.request {
            let Some(a) = read::<nvrm::RmAllocMemory>(&call.after).map(|a| a.params) else { return };
            if nvrm::Status(a.status).is_ok() {
                self.objects.insert((a.h_root, a.h_object_new), (a.h_object_parent, a.h_class));
            }
        } else if call.request == nvrm::FREE.desc.request {
            let Some(a) = read::<nvrm::RmFree>(&call.after).filter(|a| nvrm::Status(a.status).is_ok()) else { return };
            let mut gone = vec![a.h_object_old];
            while let Some(handle) = gone.pop() {
                self.objects.remove(&(a.h_root, handle));
                let below = |((c, _), (parent, _)): &(&(u32, u32), &(u32, u32))| *c == a.h_root && *parent == handle;
                gone.extend(self.objects.iter().filter(below).map(|((_, h), _)| *h));
            }
            if a.h_object_old == a.h_root {
                self.objects.retain(|(client, _), _| *client != a.h_root);
            }
        }
    }

    /// What was registered with UVM and not unregistered.
    fn uvm(&mut self, call: &IoctlEvent) {
        let word =
            |at: usize| call.after.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b));
        let Some(desc) = uvm::TABLE.iter().find(|d| d.request == call.request) else { return };
        let status = desc.layout.field("rm_status").and_then(|f| f.read(&call.after)).unwrap_or(0);
        if !nvrm::Status(status as u32).is_ok() {
            return;
        }
        let fd = call.fd;
        match desc.name {
            "UVM_CREATE_EXTERNAL_RANGE" => {
                self.add("range", fd, word(0), format!("range of {:#x} bytes at {:#x}", word(8), word(0)));
            }
            "UVM_FREE" => self.remove("range", fd, word(0)),
            "UVM_REGISTER_GPU" => self.add("gpu", fd, word(0), "GPU registered with UVM".into()),
            "UVM_UNREGISTER_GPU" => self.remove("gpu", fd, word(0)),
            "UVM_REGISTER_GPU_VASPACE" => self.add("space", fd, word(0), "address space registered with UVM".into()),
            "UVM_UNREGISTER_GPU_VASPACE" => self.remove("space", fd, word(0)),
            "UVM_REGISTER_CHANNEL" | "UVM_UNREGISTER_CHANNEL" => {
                let field = |name| desc.layout.field(name).and_then(|f| f.read(&call.after)).unwrap_or(0);
                // Since 595 the struct begins with the client.
                let short = call.after.len() == size_of::<uvm::UnregisterChannelV595>();
                let (client, handle) = if short {
                    (word(0) & 0xffff_ffff, word(0) >> 32)
                } else {
                    (field("h_client"), field("h_channel"))
                };
                let id = client << 32 | handle;
                if desc.name == "UVM_REGISTER_CHANNEL" {
                    self.add("channel", fd, id, format!("channel {handle:#x} registered with UVM"));
                } else {
                    self.remove("channel", fd, id);
                }
            }
            _ => {}
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

    #[test]
    fn objects_of_rm_go_with_their_parents() {
        let alloc = |parent, handle, class| {
            let a = nvrm::RmAlloc {
                h_root: 1,
                h_object_parent: parent,
                h_object_new: handle,
                h_class: class,
                ..Default::default()
            };
            call(nvrm::ALLOC.desc.request, bytes_of(&a), bytes_of(&a), Ok(0))
        };
        let free = |handle, status| {
            let a = nvrm::RmFree { h_root: 1, h_object_parent: 0, h_object_old: handle, status };
            call(nvrm::FREE.desc.request, bytes_of(&a), bytes_of(&a), Ok(0))
        };
        let made = || vec![alloc(1, 2, nvrm::NV01_DEVICE_0), alloc(2, 3, nvrm::NV20_SUBDEVICE_0)];
        let expected = ["NV01_DEVICE_0 0x2 of client 0x1", "NV20_SUBDEVICE_0 0x3 of client 0x1"];
        assert_eq!(left(made()), expected);
        assert_eq!(left([made(), vec![free(2, 0x57)]].concat()), expected, "a refused free frees nothing");
        assert_eq!(left([made(), vec![free(2, 0)]].concat()), Vec::<String>::new());
        let range = uvm::CreateExternalRange { base: 0x1000, length: 0x2000, ..Default::default() };
        let range = || call(uvm::CREATE_EXTERNAL_RANGE.desc.request, bytes_of(&range), bytes_of(&range), Ok(0));
        assert_eq!(left(vec![range()]), ["range of 0x2000 bytes at 0x1000"]);
        let gone = uvm::Free { base: 0x1000, length: 0x2000, ..Default::default() };
        let gone = call(uvm::FREE.desc.request, bytes_of(&gone), bytes_of(&gone), Ok(0));
        assert_eq!(left(vec![range(), gone]), Vec::<String>::new());
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
