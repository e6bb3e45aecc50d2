//! MAP_MEMORY, UNMAP_MEMORY and the mmap that completes them.
//!
//! Source: docs/nv.md 1.4; `mapping_cpu.c`, `nv-mmap.c`, `nv-usermap.c` of the open kernel modules.
//! Left out: mappings of registers except the usermode region, caching (memory is coherent here), BAR1's addresses.

use super::memory::{Charge, Location, Memory, PAGE};
use super::object::Body;
use super::state::{CpuMapping, DoorbellMap, FileKind, State, Target};
use super::{SoftNv, status};
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{Backing, CpuPtr, Errno, MapRequest};
use std::sync::Arc;

/// Bytes of a usermode region.
pub(crate) const USERMODE_BYTES: u64 = 0x1_0000;
/// NVOS33 flags: access 1:0.
const ACCESS_READ_ONLY: u32 = 1;
/// Cookies look like kernel addresses, as the real ones do.
const FIRST_COOKIE: u64 = 0xffff_c900_0000_0000;

impl SoftNv {
    /// MAP_MEMORY: checks, reserves BAR1 space, arms the file.
    pub(super) fn rm_map(
        &self,
        state: &mut State,
        file: u64,
        fd: i32,
        args: &mut nvrm::MapMemoryParams,
    ) -> Result<(), Status> {
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        let context = client.object(args.h_device)?;
        let (Body::Device { gpu } | Body::Subdevice { gpu, .. }) = context.body else {
            return Err(status::INVALID_OBJECT_PARENT);
        };
        let object = client.object(args.h_memory)?.body.clone();
        if args.length == 0 {
            return Err(status::INVALID_LIMIT);
        }
        let end = args.offset.checked_add(args.length).ok_or(status::INVALID_LIMIT)?;
        let (target, size, on_card, charge) = match &object {
            Body::Memory(memory) => {
                let target = Target::Memory { client: args.h_client, object: args.h_memory, offset: args.offset };
                let on_card = memory.location == Location::Vram;
                if on_card && self.config.confidential {
                    return Err(status::NOT_SUPPORTED);
                }
                if memory.location == Location::User {
                    // The process has it mapped.
                    return Err(status::NOT_SUPPORTED);
                }
                (target, memory.len_bytes, on_card, on_card.then_some(args.length))
            }
            Body::Usermode { gpu, bar1 } => {
                (Target::Usermode { gpu: *gpu, bar1: *bar1 }, USERMODE_BYTES, true, bar1.then_some(USERMODE_BYTES))
            }
            _ => return Err(status::NOT_SUPPORTED),
        };
        if end > size {
            return Err(if args.offset >= size { status::INVALID_BASE } else { status::INVALID_LIMIT });
        }
        let page = self.config.page_bytes;
        if !args.offset.is_multiple_of(page) {
            return Err(status::INVALID_ARGUMENT);
        }
        let armed = self.mapping_file(state, file, fd, gpu, on_card)?;
        let bytes = charge.map(|bytes| bytes.next_multiple_of(page));
        let used = &self.gpus[gpu].bar1_used;
        let bar1 = match bytes {
            None => None,
            Some(bytes) => Some(Charge::take(used, bytes, self.config.bar1_bytes).ok_or(status::NO_MEMORY)?),
        };
        state.next_cookie += 1;
        let cookie = FIRST_COOKIE + state.next_cookie * PAGE;
        let mapping = CpuMapping {
            client: args.h_client,
            object: args.h_memory,
            target,
            len_bytes: args.length.next_multiple_of(page),
            writable: args.flags & 3 != ACCESS_READ_ONLY,
            file: armed,
            _bar1: bar1,
        };
        state.mappings.insert(cookie, mapping);
        args.p_linear_address = cookie;
        Ok(())
    }

    /// The file that a mapping is armed on: a file of the card for memory on it, which need not be registered; a
    /// control file for the rest. One mapping a file.
    fn mapping_file(&self, state: &State, control: u64, fd: i32, gpu: usize, on_card: bool) -> Result<u64, Status> {
        let open = state.file(fd).ok_or(status::INVALID_ARGUMENT)?;
        let fits = match open.kind {
            FileKind::Control => !on_card,
            FileKind::Card { gpu: own, control: registered } => {
                on_card && own == gpu && registered.is_none_or(|it| it == control)
            }
            _ => false,
        };
        if !fits {
            return Err(status::INVALID_ARGUMENT);
        }
        if state.mappings.values().any(|mapping| mapping.file == open.file) {
            return Err(status::STATE_IN_USE);
        }
        Ok(open.file)
    }

    /// UNMAP_MEMORY: by the cookie.
    pub(super) fn rm_unmap(&self, state: &mut State, file: u64, args: &nvrm::RmUnmapMemory) -> Result<(), Status> {
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        client.object(args.h_device)?;
        client.object(args.h_memory)?;
        let mapping = state.mappings.get(&args.p_linear_address).ok_or(status::OBJECT_NOT_FOUND)?;
        if (mapping.client, mapping.object) != (args.h_client, args.h_memory) {
            return Err(status::OBJECT_NOT_FOUND);
        }
        state.mappings.remove(&args.p_linear_address);
        Ok(())
    }

    /// mmap of a file that MAP_MEMORY has armed.
    pub(super) fn mmap_armed(&self, state: &mut State, file: u64, map: &MapRequest) -> Result<CpuPtr, Errno> {
        if map.offset != 0 {
            return Err(Errno::EINVAL);
        }
        let armed = state.mappings.values().find(|mapping| mapping.file == file).ok_or(Errno::EINVAL)?;
        if map.len_bytes.next_multiple_of(self.config.page_bytes) != armed.len_bytes {
            return Err(Errno::ENXIO);
        }
        if map.prot.contains(doorbell_ioctl::port::Prot::WRITE) && !armed.writable {
            return Err(Errno::EACCES);
        }
        match armed.target {
            Target::Memory { client, object, offset } => {
                let memory = memory_of(state, client, object).ok_or(Errno::EINVAL)?;
                let shared = memory.shared.as_ref().ok_or(Errno::EINVAL)?;
                let map = MapRequest { len_bytes: armed.len_bytes, ..*map };
                let at = self.space.map(&map, Backing::Shared(shared, offset))?;
                forget_doorbells(state, at, map.len_bytes);
                Ok(at)
            }
            Target::Usermode { gpu, bar1 } => {
                let pages = &self.usermodes[gpu];
                let memory = if bar1 { &pages.bar1 } else { &pages.bar0 };
                let at = self.space.map(map, Backing::Shared(memory, 0))?;
                forget_doorbells(state, at, map.len_bytes);
                if !bar1 {
                    pages.start_clock();
                }
                state.doorbells.push(DoorbellMap { at, len_bytes: map.len_bytes, gpu, bar1 });
                Ok(at)
            }
        }
    }
}

fn memory_of(state: &State, client: u32, object: u32) -> Option<Arc<Memory>> {
    match &state.clients.any(client).ok()?.object(object).ok()?.body {
        Body::Memory(memory) => Some(Arc::clone(memory)),
        _ => None,
    }
}

/// Doorbell mappings in this range are there no more.
pub(crate) fn forget_doorbells(state: &mut State, at: CpuPtr, len_bytes: u64) {
    let end = at.0.saturating_add(len_bytes);
    state.doorbells.retain(|m| m.at.0 >= end || m.at.0 + m.len_bytes <= at.0);
}
