//! The calls of /dev/nvidiactl and /dev/nvidiaN: which handler a request word selects, and how its struct is copied.
//!
//! Source: docs/nv.md 1.2; `nv.c`, `escape.c` of the open kernel modules. A call is selected by its number alone and
//! its struct's size has to be exactly the release's: EINVAL otherwise, as for calls on the wrong kind of file. RM's
//! own outcome of a call is in the struct's status. Left out (a named report): VID_HEAP_CONTROL, context DMAs,
//! dma-bufs, NUMA, registry access.

use super::alloc::Request;
use super::config::Call;
use super::control;
use super::event::Occurred;
use super::object::Body;
use super::state::{FileKind, State};
use super::{SoftNv, status, sysfs};
use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use doorbell_ioctl::abi::nvrm::{self, CardInfo, Status};
use doorbell_ioctl::abi::{Desc, request_len_bytes, request_number};
use doorbell_ioctl::port::{CpuPtr, Errno, read_process, write_process};
use std::time::Duration;

/// The commands of CHECK_VERSION_STR.
const VERSION_STRICT: u32 = 0;
const VERSION_RELAXED: u32 = 0x31;
const VERSION_QUERY: u32 = 0x32;
/// The reply: release known, or not.
const VERSION_RECOGNIZED: u32 = 1;
const BAR0_BYTES: u64 = 16 << 20;
/// Where cards' BARs lie: BAR0 below 4 GiB, BAR1 above.
const BAR0_BASE: u64 = 0xd000_0000;
const BAR1_BASE: u64 = 0x3800_0000_0000;
const MEMBLOCK_BYTES: u64 = 128 << 20;
/// IDLE_CHANNELS waits no longer.
const IDLE_MOST: Duration = Duration::from_secs(4);
/// Longest struct that XFER wraps.
const XFER_MOST: u32 = 1 << 20;

/// A file that a call came on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub file: u64,
    pub kind: FileKind,
}

fn read<T: Pod>(bytes: &[u8]) -> T {
    // PANIC: the caller has checked the length.
    pod_read_unaligned(bytes.get(..size_of::<T>()).expect("a whole struct"))
}

fn store<T: Pod>(bytes: &mut [u8], value: &T) {
    bytes[..size_of::<T>()].copy_from_slice(bytes_of(value));
}

/// The status word of an outcome.
fn code(outcome: Result<(), Status>) -> u32 {
    outcome.err().map_or(0, |status| status.0)
}

impl SoftNv {
    pub(super) fn rm_ioctl(&self, caller: Caller, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let bytes = arg.get_mut(..request_len_bytes(request)).ok_or(Errno::EFAULT)?;
        if request_number(request) == request_number(nvrm::IOCTL_XFER_CMD.desc.request) {
            return self.xfer(caller, bytes);
        }
        self.rm_number(caller, request_number(request), bytes)
    }

    /// Another call by number, its struct elsewhere.
    fn xfer(&self, caller: Caller, bytes: &mut [u8]) -> Result<i32, Errno> {
        if bytes.len() != size_of::<nvrm::Xfer>() {
            return Err(Errno::EINVAL);
        }
        let xfer: nvrm::Xfer = read(bytes);
        let number = u8::try_from(xfer.cmd).map_err(|_| Errno::EINVAL)?;
        if xfer.size > XFER_MOST {
            return Err(Errno::EINVAL);
        }
        let mut inner = vec![0; xfer.size as usize];
        read_process(CpuPtr(xfer.ptr), &mut inner)?;
        let outcome = self.rm_number(caller, number, &mut inner);
        write_process(CpuPtr(xfer.ptr), &inner)?;
        outcome
    }

    fn rm_number(&self, caller: Caller, number: u8, bytes: &mut [u8]) -> Result<i32, Errno> {
        let is = |desc: &Desc| request_number(desc.request) == number;
        if is(&nvrm::CARD_INFO.desc) {
            return self.card_info(bytes);
        }
        let major = self.config.release.major;
        let valid = |d: &&&Desc| {
            is(d)
                && d.since <= major
                && d.until.is_none_or(|last| major <= last)
                && d.layout.len_bytes as usize == bytes.len()
        };
        let Some(desc) = nvrm::TABLE.iter().find(valid).copied() else {
            if !nvrm::TABLE.iter().any(|d| is(d)) {
                self.unknown(format!("RM escape {number:#x}"));
            }
            return Err(Errno::EINVAL);
        };
        let mut state = self.state();
        if let Some(refused) = self.refusal(&mut state, Call::Escape(number)) {
            if let Some(field) = desc.layout.field("status") {
                field.write(bytes, |_| refused.0.into());
                return Ok(0);
            }
            return Err(Errno::EINVAL);
        }
        match caller.kind {
            FileKind::Control => self.control_file(state, caller, desc, bytes),
            FileKind::Card { gpu, .. } => self.card_file(&mut state, caller, gpu, desc, bytes),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Calls that any of RM's files accepts.
    fn any_file(&self, state: &mut State, caller: Caller, desc: &'static Desc, bytes: &mut [u8]) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::nvrm as n;
        let is = |other: &Desc| desc.request == other.request;
        match () {
            () if is(&n::CHECK_VERSION_STR.desc) => self.check_version(bytes),
            () if is(&n::SYS_PARAMS.desc) => {
                // The first size stays, and the call takes no other.
                let args: n::SysParams = read(bytes);
                if state.memblock_bytes == 0 {
                    state.memblock_bytes = args.memblock_size;
                }
                if state.memblock_bytes == args.memblock_size { Ok(0) } else { Err(Errno::EBUSY) }
            }
            () if is(&n::REGISTER_FD.desc) => register_fd(state, caller, &read::<n::RegisterFd>(bytes)),
            () if is(&n::ALLOC_OS_EVENT.desc) => {
                let mut args: n::AllocOsEvent = read(bytes);
                // The queue is the issuing file's; the number is no more than a name.
                args.status = code(self.events.name(args.h_client, args.fd, caller.file));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::FREE_OS_EVENT.desc) => {
                let mut args: n::FreeOsEvent = read(bytes);
                args.status = code(self.events.forget_name(args.h_client, args.fd));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::GET_EVENT_DATA.desc) => {
                let mut args: n::RmGetEventData = read(bytes);
                args.status = code(match self.events.take(caller.file) {
                    None => Err(status::OPERATING_SYSTEM),
                    Some((event, more)) => {
                        args.more_events = more.into();
                        store_event(args.p_event, &event)
                    }
                });
                store(bytes, &args);
                Ok(0)
            }
            () => {
                self.unmodelled(desc.name.to_owned());
                Err(Errno::EINVAL)
            }
        }
    }

    /// Calls of the device file.
    fn card_file(
        &self,
        state: &mut State,
        caller: Caller,
        gpu: usize,
        desc: &'static Desc,
        bytes: &mut [u8],
    ) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::nvrm as n;
        let is = |other: &Desc| desc.request == other.request;
        match () {
            () if is(&n::ALLOC_MEMORY.desc) => {
                let mut args: n::RmAllocMemory = read(bytes);
                let FileKind::Card { control: Some(control), .. } = caller.kind else { return Err(Errno::EINVAL) };
                args.params.status = code(self.rm_alloc_memory(state, control, &mut args.params));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::WAIT_OPEN_COMPLETE.desc) => {
                store(bytes, &n::WaitOpenComplete { rc: 0, adapter_status: 0 });
                Ok(0)
            }
            () if is(&n::NUMA_INFO.desc) => {
                let mut args: n::NumaInfo = read(bytes);
                (args.nid, args.status, args.memblock_size) = (-1, 0, MEMBLOCK_BYTES);
                let _card = gpu;
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::REGISTER_FD.desc)
                || is(&n::CHECK_VERSION_STR.desc)
                || is(&n::SYS_PARAMS.desc)
                || is(&n::ALLOC_OS_EVENT.desc)
                || is(&n::FREE_OS_EVENT.desc)
                || is(&n::GET_EVENT_DATA.desc) =>
            {
                self.any_file(state, caller, desc, bytes)
            }
            () if is(&n::EXPORT_TO_DMABUF_FD.desc) => {
                self.unmodelled(desc.name.to_owned());
                Err(Errno::EINVAL)
            }
            // The others are the control file's.
            () => Err(Errno::EINVAL),
        }
    }

    /// Calls of the control file.
    fn control_file(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        caller: Caller,
        desc: &'static Desc,
        bytes: &mut [u8],
    ) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::nvrm as n;
        let file = caller.file;
        let is = |other: &Desc| desc.request == other.request;
        // What waits for a channel does so without the lock.
        if is(&n::CONTROL.desc) {
            let mut args: n::RmControl = read(bytes);
            args.status = code(self.rm_control(state, file, &args));
            store(bytes, &args);
            return Ok(0);
        }
        if is(&n::IDLE_CHANNELS.desc) {
            let mut args: n::RmIdleChannels = read(bytes);
            args.status = code(self.idle_channels(state, file, &args));
            store(bytes, &args);
            return Ok(0);
        }
        let state = &mut *state;
        match () {
            () if is(&n::ALLOC.desc) || is(&n::ALLOC_NVOS21.desc) => self.alloc_call(state, file, bytes),
            () if is(&n::FREE.desc) => {
                let mut args: n::RmFree = read(bytes);
                args.status = code(self.rm_free(state, file, args.h_root, args.h_object_old));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::DUP_OBJECT.desc) => {
                let mut args: n::RmDupObject = read(bytes);
                args.status = code(self.rm_dup(state, file, &mut args));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::SHARE.desc) => {
                let mut args: n::RmShare = read(bytes);
                // Clients of a process may use each other's objects anyhow.
                let object = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE);
                args.status = code(object.and_then(|client| client.object(args.h_object).map(|_| ())));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::MAP_MEMORY.desc) => {
                let mut args: n::RmMapMemory = read(bytes);
                args.params.status = code(self.rm_map(state, file, args.fd, &mut args.params));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::UNMAP_MEMORY.desc) => {
                let mut args: n::RmUnmapMemory = read(bytes);
                args.status = code(self.rm_unmap(state, file, &args));
                store(bytes, &args);
                Ok(0)
            }
            () => self.dma_call(state, caller, desc, bytes),
        }
    }

    fn alloc_call(&self, state: &mut State, file: u64, bytes: &mut [u8]) -> Result<i32, Errno> {
        // Both structs begin the same.
        let short = bytes.len() == size_of::<nvrm::RmAlloc21>();
        let head: nvrm::RmAlloc21 = read(bytes);
        let refused = self.refusal(state, Call::Class(head.h_class));
        let request = Request {
            root: head.h_root,
            parent: head.h_object_parent,
            handle: head.h_object_new,
            class: head.h_class,
            params: head.p_alloc_parms,
        };
        let outcome = refused.map_or_else(|| self.rm_alloc(state, file, &request), Err);
        let new = *outcome.as_ref().unwrap_or(&head.h_object_new);
        let status = code(outcome.map(|_| ()));
        if short {
            store(bytes, &nvrm::RmAlloc21 { h_object_new: new, status, ..head });
        } else {
            let whole: nvrm::RmAlloc = read(bytes);
            store(bytes, &nvrm::RmAlloc { h_object_new: new, status, ..whole });
        }
        Ok(0)
    }

    fn dma_call(&self, state: &mut State, caller: Caller, desc: &'static Desc, bytes: &mut [u8]) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::nvrm as n;
        let file = caller.file;
        let is = |other: &Desc| desc.request == other.request;
        match () {
            () if is(&n::MAP_MEMORY_DMA.desc) => {
                let mut args: n::RmMapMemoryDma = read(bytes);
                args.status = code(self.rm_map_dma(state, file, &mut args));
                store(bytes, &args);
                Ok(0)
            }
            () if is(&n::MAP_MEMORY_DMA_V535.desc) => {
                let mut old: n::RmMapMemoryDmaV535 = read(bytes);
                let mut args = n::RmMapMemoryDma {
                    h_client: old.h_client,
                    h_device: old.h_device,
                    h_dma: old.h_dma,
                    h_memory: old.h_memory,
                    offset: old.offset,
                    length: old.length,
                    flags: old.flags,
                    dma_offset: old.dma_offset,
                    ..n::RmMapMemoryDma::default()
                };
                old.status = code(self.rm_map_dma(state, file, &mut args));
                old.dma_offset = args.dma_offset;
                store(bytes, &old);
                Ok(0)
            }
            () if is(&n::UNMAP_MEMORY_DMA.desc) => {
                let mut args: n::RmUnmapMemoryDma = read(bytes);
                args.status = code(self.rm_unmap_dma(state, file, &args));
                store(bytes, &args);
                Ok(0)
            }
            // Of the device file only.
            () if is(&n::ALLOC_MEMORY.desc) || is(&n::NUMA_INFO.desc) || is(&n::EXPORT_TO_DMABUF_FD.desc) => {
                Err(Errno::EINVAL)
            }
            () => self.any_file(state, caller, desc, bytes),
        }
    }

    fn check_version(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        let mut args: nvrm::CheckVersion = read(bytes);
        let own = self.config.release.to_string();
        let asked = String::from_utf8_lossy(&args.version_string).trim_end_matches('\0').to_owned();
        args.reply = 0;
        let fits = match args.cmd {
            VERSION_QUERY => true,
            VERSION_STRICT => asked == own,
            // The same branch is near enough.
            VERSION_RELAXED => asked.split('.').next() == own.split('.').next(),
            _ => return Err(Errno::EINVAL),
        };
        args.version_string = [0; 64];
        args.version_string[..own.len()].copy_from_slice(own.as_bytes());
        if fits {
            args.reply = VERSION_RECOGNIZED;
        }
        store(bytes, &args);
        if fits { Ok(0) } else { Err(Errno::EINVAL) }
    }

    /// CARD_INFO: as many entries as the struct has room for, at least one a card.
    fn card_info(&self, bytes: &mut [u8]) -> Result<i32, Errno> {
        const LEN: usize = size_of::<CardInfo>();
        if !bytes.len().is_multiple_of(LEN) || bytes.len() / LEN < self.gpus.len() {
            return Err(Errno::EINVAL);
        }
        let facts = self.config.chip.facts();
        for (gpu, place) in bytes.chunks_exact_mut(LEN).enumerate() {
            let mut card = CardInfo::default();
            if gpu < self.gpus.len() {
                card = CardInfo {
                    valid: 1,
                    bus: sysfs::bus(gpu),
                    vendor_id: 0x10de,
                    device_id: facts.device_id,
                    gpu_id: sysfs::gpu_id(gpu),
                    interrupt_line: 100 + gpu as u16,
                    reg_address: BAR0_BASE + gpu as u64 * BAR0_BYTES,
                    reg_size: BAR0_BYTES,
                    fb_address: BAR1_BASE + gpu as u64 * self.config.bar1_bytes,
                    fb_size: self.config.bar1_bytes,
                    minor_number: gpu as u32,
                    ..card
                };
            }
            store(place, &card);
        }
        Ok(0)
    }

    /// IDLE_CHANNELS: waits until they are idle.
    fn idle_channels(
        &self,
        mut state: std::sync::MutexGuard<'_, State>,
        file: u64,
        args: &nvrm::RmIdleChannels,
    ) -> Result<(), Status> {
        const MOST: u32 = 4096;
        if args.num_channels > MOST {
            return Err(status::INVALID_ARGUMENT);
        }
        let is_single = args.flags >> 4 & 0xf == 1;
        let list = |at: u64, one: u32| -> Result<Vec<u32>, Status> {
            if is_single {
                return Ok(vec![one]);
            }
            let mut bytes = vec![0; args.num_channels as usize * 4];
            read_process(CpuPtr(at), &mut bytes).map_err(|_| status::INVALID_ADDRESS)?;
            Ok(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
        };
        let owners = list(args.ph_clients, args.h_client)?;
        let (devices, handles) = (list(args.ph_devices, args.h_device)?, list(args.ph_channels, args.h_channel)?);
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        if owners.iter().any(|owner| *owner != args.h_client) {
            return Err(status::INSUFFICIENT_PERMISSIONS);
        }
        for device in devices {
            if !matches!(client.object(device)?.body, Body::Device { .. } | Body::Subdevice { .. }) {
                return Err(status::INVALID_OBJECT_HANDLE);
            }
        }
        let channels = handles.iter().map(|handle| control::channel_of(client, *handle));
        let channels = channels.collect::<Result<Vec<_>, Status>>()?;
        drop(state);
        let timeout = Duration::from_micros(args.timeout.into()).min(IDLE_MOST);
        let idle = channels.iter().all(|channel| channel.wait_for(timeout, |c| c.is_idle()));
        if idle { Ok(()) } else { Err(status::TIMEOUT) }
    }
}

/// REGISTER_FD: a file and the control file whose clients it is for; once.
fn register_fd(state: &mut State, caller: Caller, args: &nvrm::RegisterFd) -> Result<i32, Errno> {
    let control = state.file(args.ctl_fd).filter(|open| open.kind == FileKind::Control).map(|open| open.file);
    match (caller.kind, control) {
        (FileKind::Card { gpu, control: None }, Some(control)) if control != caller.file => {
            state.set_kind(caller.file, FileKind::Card { gpu, control: Some(control) });
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// An event as `NvUnixEvent`: object, notifier, info32, info16.
fn store_event(at: u64, event: &Occurred) -> Result<(), Status> {
    let mut bytes = [0; 16];
    for (n, word) in [event.object, event.notifier, event.info32, event.info16.into()].into_iter().enumerate() {
        bytes[4 * n..4 * n + 4].copy_from_slice(&word.to_le_bytes());
    }
    write_process(CpuPtr(at), &bytes).map_err(|_| status::INVALID_ADDRESS)
}
