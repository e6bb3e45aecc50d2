//! A client of KFD: one process on one card, with everything it made in a list, so that it gives all of it back.
//!
//! Source: docs/amd.md 1. What a case makes here is freed when the case ends, unless the case freed it itself; a
//! refusal at that point is the case's failure.

use crate::bench::{Bench, forget_one};
use crate::case::{Problem, Step, same};
use doorbell_ioctl::abi::kfd::{self as k, EventData};
use doorbell_ioctl::abi::{Desc, Ioctl};
use doorbell_ioctl::port::{CallError, DeviceView, Doorbell, Errno, Fd, MapRequest, Mapped, OpenFlags, Port, call};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages of host and card.
pub(crate) const PAGE: u64 = 4096;
/// Host memory as queues need it: coherent, uncached, not substituted, writable, executable.
pub(crate) const HOST: u32 = k::ALLOC_MEM_FLAGS_GTT
    | k::ALLOC_MEM_FLAGS_UNCACHED
    | k::ALLOC_MEM_FLAGS_COHERENT
    | k::ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    | k::ALLOC_MEM_FLAGS_EXECUTABLE
    | k::ALLOC_MEM_FLAGS_WRITABLE;
/// The card's memory, seen by the host.
pub(crate) const CARD: u32 = k::ALLOC_MEM_FLAGS_VRAM | k::ALLOC_MEM_FLAGS_PUBLIC | k::ALLOC_MEM_FLAGS_WRITABLE;
const TOPOLOGY: &str = "/sys/devices/virtual/kfd/kfd/topology/nodes";
/// The slots of signal events.
pub(crate) const EVENT_PAGE_BYTES: u64 = k::SIGNAL_EVENT_LIMIT as u64 * 8;

/// A buffer at the host's address.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    /// The driver's name for it.
    pub handle: u64,
    /// Where it is, on host and card.
    pub va: u64,
    /// Its bytes, as the host sees them.
    pub view: DeviceView,
}

/// Which packets a queue takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Of the command processor.
    Pm4,
    /// Of the copy engine.
    Sdma,
    /// Architected packets of 64 bytes.
    Aql,
}

impl Ring {
    /// As CREATE_QUEUE numbers them.
    #[must_use]
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Pm4 => k::QUEUE_TYPE_COMPUTE,
            Self::Sdma => k::QUEUE_TYPE_SDMA,
            Self::Aql => k::QUEUE_TYPE_COMPUTE_AQL,
        }
    }
}

/// A queue with its ring.
pub(crate) struct Queue {
    /// The driver's name for it.
    pub id: u32,
    /// Its packets.
    pub kind: Ring,
    /// Ring and pointers: written at byte 56, read at 128.
    pub ring: Buffer,
    /// The page of both pointers.
    pub pointers: Buffer,
    /// What CREATE_QUEUE answered.
    pub args: k::CreateQueue,
    doorbell: Doorbell,
    /// Next unit of the ring: dwords, bytes, packets.
    pub put: u64,
}

/// What a process has made and not given back.
#[derive(Default)]
struct Made {
    buffers: Vec<Buffer>,
    queues: Vec<u32>,
    events: Vec<u32>,
    page: Option<u64>,
}

/// Generation of a card, as far as packets differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gfx {
    /// gfx11.
    Gfx11,
    /// gfx942.
    Gfx942,
    /// gfx12.
    Gfx12,
}

/// A process on a card.
pub(crate) struct Kfd<'b> {
    /// The case's bench.
    pub bench: &'b Bench,
    /// `/dev/kfd`.
    pub kfd: Fd,
    /// The card's render node.
    pub render: Fd,
    /// The card.
    pub gpu_id: u32,
    /// Its properties in the topology.
    pub properties: BTreeMap<String, u64>,
    made: Mutex<Made>,
}

impl<'b> Kfd<'b> {
    /// Opens the first card and binds its address space.
    ///
    /// # Errors
    /// A skip without a card.
    pub(crate) fn bound(bench: &'b Bench) -> Step<Self> {
        let own = Self::unbound(bench)?;
        let mut args = k::AcquireVm { drm_fd: own.render.0 as u32, gpu_id: own.gpu_id };
        own.call(&k::ACQUIRE_VM, &mut args)?;
        Ok(own)
    }

    /// Opens the first card.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn unbound(bench: &'b Bench) -> Step<Self> {
        let (gpu_id, properties) = cards(&*bench.port)
            .into_iter()
            .next()
            .ok_or(Problem::Skipped { key: "no-card", why: "the topology has no card".to_owned() })?;
        let minor = properties.get("drm_render_minor").copied().unwrap_or(128);
        let kfd = bench.port.open("/dev/kfd", OpenFlags::DEVICE)?;
        let render = bench.port.open(&format!("/dev/dri/renderD{minor}"), OpenFlags::DEVICE)?;
        Ok(Self { bench, kfd, render, gpu_id, properties, made: Mutex::default() })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number of the card's topology.
    #[must_use]
    pub(crate) fn property(&self, name: &str) -> u64 {
        self.properties.get(name).copied().unwrap_or(0)
    }

    /// The card's generation.
    ///
    /// # Errors
    /// A skip for one that has no packets here.
    pub(crate) fn gfx(&self) -> Step<Gfx> {
        match self.property("gfx_target_version") {
            110_000..=119_999 => Ok(Gfx::Gfx11),
            90_402 => Ok(Gfx::Gfx942),
            120_000..=129_999 => Ok(Gfx::Gfx12),
            other => Err(Problem::Skipped { key: "chip", why: format!("no packets for gfx_target_version {other}") }),
        }
    }

    /// A call that has to succeed.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn call<T: bytemuck::Pod>(&self, ioctl: &Ioctl<T>, args: &mut T) -> Result<(), CallError> {
        call(&*self.bench.port, self.kfd, ioctl, args).map(|_| ())
    }

    /// A call that has to be refused with this error.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn refused<T: bytemuck::Pod>(&self, ioctl: &Ioctl<T>, mut args: T, want: Errno) -> Step {
        let got = self.bench.port.ioctl(self.kfd, ioctl.desc.request, bytemuck::bytes_of_mut(&mut args));
        same(ioctl.desc.name, got, Err(want))
    }

    /// A call by its bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn raw(&self, request: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        self.bench.port.ioctl(self.kfd, request, bytes)
    }

    /// The request word of a call with another size.
    #[must_use]
    pub(crate) fn resized(desc: &Desc, len_bytes: u32) -> u32 {
        desc.request & !(0x3fff << 16) | len_bytes << 16
    }

    /// ALLOC's struct.
    #[must_use]
    pub(crate) fn alloc_args(&self, va: u64, size: u64, flags: u32) -> k::AllocMemoryOfGpu {
        k::AllocMemoryOfGpu { va_addr: va, size, gpu_id: self.gpu_id, flags, ..Default::default() }
    }

    /// A buffer that is mapped on the host and not on the card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn alloc(&self, size: u64, flags: u32) -> Step<Buffer> {
        let reserved = Mapped::reserve(&self.bench.port, size, PAGE)?;
        let va = reserved.base().0;
        let mut args = self.alloc_args(va, size, flags);
        self.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
        let back = reserved.back(self.render, args.mmap_offset).and_then(|mapped| Arc::new(mapped).view());
        match back {
            Ok(view) => {
                let buffer = Buffer { handle: args.handle, va, view };
                self.made().buffers.push(buffer.clone());
                Ok(buffer)
            }
            Err(errno) => {
                self.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?;
                Err(errno.into())
            }
        }
    }

    /// The same, mapped on the card as well.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn buffer(&self, size: u64, flags: u32) -> Step<Buffer> {
        let buffer = self.alloc(size, flags)?;
        self.map(&buffer)?;
        Ok(buffer)
    }

    /// MAP's and UNMAP's struct for a list of cards.
    #[must_use]
    pub(crate) fn map_args(handle: u64, cards: &[u32]) -> k::MapMemoryToGpu {
        let at = cards.as_ptr().expose_provenance() as u64;
        k::MapMemoryToGpu { handle, device_ids_array_ptr: at, n_devices: cards.len() as u32, n_success: 0 }
    }

    /// Maps a buffer on this card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn map(&self, buffer: &Buffer) -> Step {
        let cards = [self.gpu_id];
        let mut args = Self::map_args(buffer.handle, &cards);
        self.call(&k::MAP_MEMORY_TO_GPU, &mut args)?;
        same("MAP_MEMORY_TO_GPU: n_success", args.n_success, 1)
    }

    /// Takes it off this card.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn unmap(&self, buffer: &Buffer) -> Result<u32, Errno> {
        let cards = [self.gpu_id];
        let k::MapMemoryToGpu { handle, device_ids_array_ptr, n_devices, n_success } =
            Self::map_args(buffer.handle, &cards);
        let mut args = k::UnmapMemoryFromGpu { handle, device_ids_array_ptr, n_devices, n_success };
        let bytes = bytemuck::bytes_of_mut(&mut args);
        self.bench.port.ioctl(self.kfd, k::UNMAP_MEMORY_FROM_GPU.desc.request, bytes)?;
        Ok(args.n_success)
    }

    /// Gives a buffer back.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn free(&self, buffer: &Buffer) -> Step {
        self.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: buffer.handle })?;
        self.forget(buffer.handle);
        Ok(())
    }

    /// A buffer that the case has freed itself.
    pub(crate) fn forget(&self, handle: u64) {
        forget_one(&mut self.made().buffers, |b| b.handle == handle);
    }

    /// A buffer by its handle alone.
    pub(crate) fn remember(&self, buffer: Buffer) {
        self.made().buffers.push(buffer);
    }

    /// CREATE_QUEUE's struct, with buffers of the sizes that the kernel checks; ring and pointers as given.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn queue_args(&self, kind: Ring, ring: &Buffer, read: u64, write: u64) -> Step<k::CreateQueue> {
        let args = k::CreateQueue {
            ring_base_address: ring.va,
            write_pointer_address: write,
            read_pointer_address: read,
            ring_size: ring.view.len_bytes() as u32,
            gpu_id: self.gpu_id,
            queue_type: kind.number(),
            queue_percentage: 100,
            queue_priority: 7,
            ..Default::default()
        };
        if kind == Ring::Sdma {
            return Ok(args);
        }
        let (cwsr, control) = (self.property("cwsr_size"), self.property("ctl_stack_size"));
        self.bench.require(cwsr > 0, "save-sizes", "the topology does not give the sizes of the context-save area")?;
        let xccs = self.property("num_xcc").max(1);
        // docs/amd.md 1.6: debug memory of 32 bytes a wave.
        let waves = if xccs > 1 { 1520 } else { self.property("simd_count") / 2 * 32 };
        let debug = (waves * 32).next_multiple_of(64);
        let eop = self.buffer(PAGE, HOST)?;
        let flags = k::ALLOC_MEM_FLAGS_VRAM | k::ALLOC_MEM_FLAGS_EXECUTABLE | k::ALLOC_MEM_FLAGS_WRITABLE;
        let save = self.buffer(((cwsr + debug) * xccs).next_multiple_of(PAGE), flags)?;
        Ok(k::CreateQueue {
            eop_buffer_address: eop.va,
            eop_buffer_size: PAGE,
            ctx_save_restore_address: save.va,
            ctx_save_restore_size: cwsr as u32,
            ctl_stack_size: control as u32,
            ..args
        })
    }

    /// A queue with a ring of a page.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn queue(&self, kind: Ring) -> Step<Queue> {
        self.queue_of(kind, PAGE)
    }

    /// A queue with a ring of so many bytes, at least 1 KiB.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn queue_of(&self, kind: Ring, ring_bytes: u64) -> Step<Queue> {
        let (ring, pointers) = (self.buffer(ring_bytes.max(PAGE), HOST)?, self.buffer(PAGE, HOST)?);
        if kind == Ring::Aql {
            // amd_queue_t: base, packets, where the read pointer is, 64-bit pointers and profiling; every slot INVALID.
            pointers.view.write_u64(8, ring.va)?;
            pointers.view.write_u32(24, (ring_bytes / 64) as u32)?;
            pointers.view.write_u32(136, 128)?;
            pointers.view.write_u32(180, 0xa)?;
            for slot in 0..ring_bytes / 64 {
                ring.view.write_u32(slot * 64, 1)?;
            }
        }
        let args = self.queue_args(kind, &ring, pointers.va + 128, pointers.va + 56)?;
        self.open_queue(kind, ring, pointers, k::CreateQueue { ring_size: ring_bytes as u32, ..args })
    }

    /// CREATE_QUEUE and its doorbell.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn open_queue(
        &self,
        kind: Ring,
        ring: Buffer,
        pointers: Buffer,
        mut args: k::CreateQueue,
    ) -> Step<Queue> {
        self.call(&k::CREATE_QUEUE, &mut args)?;
        self.made().queues.push(args.queue_id);
        let offset = args.doorbell_offset;
        let slice = MapRequest::file(self.kfd, offset & !(k::DOORBELL_SLICE_BYTES - 1), k::DOORBELL_SLICE_BYTES);
        let slice = Arc::new(Mapped::new(&self.bench.port, &slice)?).view()?;
        let doorbell = Doorbell::new(&slice, offset & (k::DOORBELL_SLICE_BYTES - 1), &self.bench.port)?;
        Ok(Queue { id: args.queue_id, kind, ring, pointers, args, doorbell, put: 0 })
    }

    /// UPDATE_QUEUE of a share, with the ring as it is.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn share(&self, queue: &Queue, percent: u32) -> Step {
        let mut args = Self::update_args(queue);
        args.queue_percentage = percent;
        Ok(self.call(&k::UPDATE_QUEUE, &mut args)?)
    }

    /// UPDATE_QUEUE's struct for a queue as it is.
    #[must_use]
    pub(crate) fn update_args(queue: &Queue) -> k::UpdateQueue {
        k::UpdateQueue {
            ring_base_address: queue.ring.va,
            queue_id: queue.id,
            ring_size: queue.args.ring_size,
            queue_percentage: 100,
            queue_priority: 7,
        }
    }

    /// Destroys a queue.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn destroy(&self, queue: &Queue) -> Step {
        self.call(&k::DESTROY_QUEUE, &mut k::DestroyQueue { queue_id: queue.id, pad: 0 })?;
        forget_one(&mut self.made().queues, |id| *id == queue.id);
        Ok(())
    }

    /// Makes an event of a type, and the page of all events with the first one.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event(&self, kind: u32, auto_reset: bool) -> Step<u32> {
        self.event_page()?;
        let mut args = k::CreateEvent { event_type: kind, auto_reset: auto_reset.into(), ..Default::default() };
        self.call(&k::CREATE_EVENT, &mut args)?;
        self.made().events.push(args.event_id);
        Ok(args.event_id)
    }

    /// The buffer of events' slots: it stays the kernel's for the process's life.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn event_page(&self) -> Step<Buffer> {
        let known = self.made().page;
        if let Some(handle) = known {
            let made = self.made();
            let page = made.buffers.iter().find(|b| b.handle == handle);
            return page.cloned().ok_or_else(|| Problem::failed("the page of events is gone"));
        }
        let page = self.buffer(EVENT_PAGE_BYTES, HOST)?;
        let mut args = k::CreateEvent { event_page_offset: page.handle, auto_reset: 1, ..Default::default() };
        self.call(&k::CREATE_EVENT, &mut args)?;
        same("the offset of the page", args.event_page_offset, k::MMAP_TYPE_EVENTS << k::MMAP_TYPE_SHIFT)?;
        self.bench.keep_event_page();
        let mut made = self.made();
        made.page = Some(page.handle);
        made.events.push(args.event_id);
        Ok(page)
    }

    /// Destroys an event.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn destroy_event(&self, event_id: u32) -> Step {
        self.call(&k::DESTROY_EVENT, &mut k::DestroyEvent { event_id, pad: 0 })?;
        forget_one(&mut self.made().events, |id| *id == event_id);
        Ok(())
    }

    /// Waits for one of the events, or all: `WAIT_RESULT_*`, and what happened to each.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn wait(&self, data: &mut [EventData], all: bool, timeout_ms: u32) -> Result<u32, Errno> {
        let events_ptr = data.as_mut_ptr().expose_provenance() as u64;
        let mut args = k::WaitEvents {
            events_ptr,
            num_events: data.len() as u32,
            wait_for_all: all.into(),
            timeout: timeout_ms,
            ..Default::default()
        };
        let bytes = bytemuck::bytes_of_mut(&mut args);
        self.bench.port.ioctl(self.kfd, k::WAIT_EVENTS.desc.request, bytes)?;
        Ok(args.wait_result)
    }

    /// Waits for one event as long as patience lasts.
    ///
    /// # Errors
    /// The driver's, or it does not come.
    pub(crate) fn wait_for(&self, event: u32) -> Step<EventData> {
        let mut data = [asked(event)];
        let patience = u32::try_from(self.bench.patience.as_millis()).unwrap_or(10_000);
        same("WAIT_EVENTS: wait_result", self.wait(&mut data, false, patience)?, k::WAIT_RESULT_COMPLETE)?;
        Ok(data[0])
    }

    /// Bytes of VRAM that are free.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn available(&self) -> Step<u64> {
        let mut args = k::GetAvailableMemory { gpu_id: self.gpu_id, ..Default::default() };
        self.call(&k::AVAILABLE_MEMORY, &mut args)?;
        Ok(args.available)
    }

    /// Gives everything back, queues first.
    ///
    /// # Errors
    /// What the driver refuses.
    pub(crate) fn close(self) -> Step {
        let Made { buffers, queues, events, page } = std::mem::take(&mut *self.made());
        for queue_id in queues {
            self.call(&k::DESTROY_QUEUE, &mut k::DestroyQueue { queue_id, pad: 0 })?;
        }
        for event_id in events {
            self.call(&k::DESTROY_EVENT, &mut k::DestroyEvent { event_id, pad: 0 })?;
        }
        for buffer in buffers {
            match self.unmap(&buffer) {
                // It was not mapped.
                Ok(_) | Err(Errno::EINVAL) => {}
                Err(errno) => return Err(Problem::Failed(format!("unmapping at the end: {errno}"))),
            }
            let mut args = k::FreeMemoryOfGpu { handle: buffer.handle };
            if page == Some(buffer.handle) {
                self.refused(&k::FREE_MEMORY_OF_GPU, args, Errno::EPERM)?;
            } else {
                self.call(&k::FREE_MEMORY_OF_GPU, &mut args)?;
            }
        }
        self.bench.port.close(self.render)?;
        Ok(self.bench.port.close(self.kfd)?)
    }
}

/// The cards of the topology: id and properties.
#[must_use]
pub(crate) fn cards(port: &dyn Port) -> Vec<(u32, BTreeMap<String, u64>)> {
    let nodes = port.read_dir(TOPOLOGY).unwrap_or_default();
    let text = |node: &str, file: &str| {
        let bytes = port.read_file(&format!("{TOPOLOGY}/{node}/{file}")).ok()?;
        String::from_utf8(bytes).ok()
    };
    let card = |node: &String| {
        let id: u32 = text(node, "gpu_id")?.trim().parse().ok().filter(|id| *id != 0)?;
        let properties = text(node, "properties")?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Some((id, properties.lines().filter_map(pair).collect()))
    };
    nodes.iter().filter_map(card).collect()
}

/// An element of WAIT_EVENTS for an event.
#[must_use]
pub(crate) fn asked(event_id: u32) -> EventData {
    EventData { event_id, ..Default::default() }
}

impl Queue {
    /// Units of the ring: dwords for PM4, bytes for SDMA, packets for AQL.
    fn ring_units(&self) -> u64 {
        u64::from(self.args.ring_size)
            / match self.kind {
                Ring::Pm4 => 4,
                Ring::Sdma => 1,
                Ring::Aql => 64,
            }
    }

    /// Copies dwords to the ring and stores the write pointer.
    ///
    /// # Errors
    /// The ring's end.
    pub(crate) fn put(&mut self, words: &[u32]) -> Step {
        let unit = if self.kind == Ring::Sdma { 4 } else { 1 };
        let dwords = u64::from(self.args.ring_size) / 4;
        for (at, word) in (self.put / unit..).zip(words) {
            self.ring.view.write_u32(at % dwords * 4, *word)?;
        }
        self.put += words.len() as u64 * unit;
        Ok(self.pointers.view.store_release_u64(56, self.put)?)
    }

    /// Rings the doorbell.
    pub(crate) fn ring(&self) {
        self.doorbell.ring(if self.kind == Ring::Aql { self.put.wrapping_sub(1) } else { self.put });
    }

    /// Dwords and doorbell.
    ///
    /// # Errors
    /// The ring's end.
    pub(crate) fn submit(&mut self, words: &[u32]) -> Step {
        self.put(words)?;
        self.ring();
        Ok(())
    }

    /// One AQL packet: its first dword last.
    ///
    /// # Errors
    /// The ring's end.
    pub(crate) fn submit_aql(&mut self, words: [u32; 16]) -> Step {
        let slot = self.put % self.ring_units() * 64;
        for (at, word) in (0..).zip(words).skip(1) {
            self.ring.view.write_u32(slot + at * 4, word)?;
        }
        self.ring.view.store_release_u32(slot, words[0])?;
        self.put += 1;
        self.pointers.view.store_release_u64(56, self.put)?;
        self.ring();
        Ok(())
    }

    /// Where the card is.
    ///
    /// # Errors
    /// None, as the page is there.
    pub(crate) fn read_pointer(&self) -> Step<u64> {
        Ok(self.pointers.view.load_acquire_u64(128)?)
    }
}
