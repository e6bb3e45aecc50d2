//! Buffers: kinds, limits, rights, mappings, peers, dma-buf, user memory.

use super::client::{Buffer, CARD, HOST, Kfd, PAGE, Ring, cards};
use super::on_card;
use super::packets::{signal, write_data};
use crate::case::{Case, Change, Problem, Step, holds, same};
use doorbell_ioctl::abi::kfd as k;
use doorbell_ioctl::port::{Errno, Fd, MapRequest, Mapped, OpenFlags};
use std::sync::Arc;

/// Name, flags, bytes.
const KINDS: &[(&str, u32, u64)] = &[
    ("gtt-4k", HOST, PAGE),
    ("gtt-64k", HOST, 64 << 10),
    ("gtt-2m", HOST, 2 << 20),
    ("gtt-16m", HOST, 16 << 20),
    ("gtt-odd-pages", HOST, 7 * PAGE),
    ("gtt-coherent-only", k::ALLOC_MEM_FLAGS_GTT | k::ALLOC_MEM_FLAGS_COHERENT | k::ALLOC_MEM_FLAGS_WRITABLE, PAGE),
    ("vram-4k", CARD, PAGE),
    ("vram-64k", CARD, 64 << 10),
    ("vram-2m", CARD, 2 << 20),
    ("vram-16m", CARD, 16 << 20),
    ("vram-odd-pages", CARD, 7 * PAGE),
    ("vram-executable", CARD | k::ALLOC_MEM_FLAGS_EXECUTABLE, PAGE),
    ("vram-contiguous", CARD | k::ALLOC_MEM_FLAGS_CONTIGUOUS, 64 << 10),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = KINDS.iter().map(|(name, flags, bytes)| kind(name, *flags, *bytes)).collect();
    all.extend(refusals());
    all.extend(mappings());
    all.extend(counted());
    all.extend(shared());
    all
}

/// First and last dword, stored by the card and seen by the host.
fn kind(name: &str, flags: u32, bytes: u64) -> Case {
    on_card(&format!("memory.kind-{name}"), "The card's stores to both ends of a buffer reach the host", move |kfd| {
        let buffer = kfd.buffer(bytes, flags)?;
        let done = kfd.buffer(PAGE, HOST)?;
        let mut queue = kfd.queue(Ring::Sdma)?;
        let gfx = kfd.gfx()?;
        for (at, value) in [(0, 0x1234_5678), (bytes - 4, 0x9abc_def0)] {
            queue.submit(&signal(Ring::Sdma, gfx, buffer.va + at, value))?;
        }
        queue.submit(&signal(Ring::Sdma, gfx, done.va, 1))?;
        kfd.bench.word(&done.view, 0, 1)?;
        same("first dword", buffer.view.read_u32(0)?, 0x1234_5678)?;
        same("last dword", buffer.view.read_u32(bytes - 4)?, 0x9abc_def0)
    })
}

/// Name, what is wrong, error.
type Wrong = (&'static str, fn(&mut k::AllocMemoryOfGpu), Errno);
const VA: u64 = 0x7000_0000;
const WRONG: &[Wrong] = &[
    ("no-size", |a| a.size = 0, Errno::EINVAL),
    ("odd-size", |a| a.size = PAGE + 1, Errno::EINVAL),
    ("odd-address", |a| a.va_addr += 8, Errno::EINVAL),
    ("outside-window", |a| a.va_addr = 0x8000_0000_0000, Errno::EINVAL),
    ("wraps-around", |a| a.size = !(PAGE - 1), Errno::EINVAL),
    ("no-kind", |a| a.flags = k::ALLOC_MEM_FLAGS_WRITABLE, Errno::EINVAL),
    ("double-mapping", |a| a.flags |= k::ALLOC_MEM_FLAGS_AQL_QUEUE_MEM, Errno::EINVAL),
    ("unknown-card", |a| a.gpu_id ^= 0x55, Errno::EINVAL),
    ("more-than-there-is", |a| (a.size, a.flags) = (1 << 46, k::ALLOC_MEM_FLAGS_VRAM), Errno::ENOMEM),
    ("doorbells-in-another-size", |a| a.flags = k::ALLOC_MEM_FLAGS_DOORBELL, Errno::EINVAL),
    ("registers-in-another-size", |a| (a.size, a.flags) = (2 * PAGE, k::ALLOC_MEM_FLAGS_MMIO_REMAP), Errno::EINVAL),
    ("user-memory-nowhere", |a| a.flags = k::ALLOC_MEM_FLAGS_USERPTR, Errno::EINVAL),
    ("user-memory-misaligned", |a| (a.flags, a.mmap_offset) = (k::ALLOC_MEM_FLAGS_USERPTR, 0x1008), Errno::EINVAL),
    ("user-memory-unmapped", |a| (a.flags, a.mmap_offset) = (k::ALLOC_MEM_FLAGS_USERPTR, 0x1000), Errno::EFAULT),
];

fn refusals() -> Vec<Case> {
    let refused = |(name, spoil, errno): &Wrong| {
        let (spoil, errno) = (*spoil, *errno);
        on_card(&format!("memory.refuse-{name}"), "ALLOC refuses it and keeps nothing", move |kfd| {
            let mut args = kfd.alloc_args(VA, PAGE, HOST);
            spoil(&mut args);
            let before = kfd.available()?;
            kfd.refused(&k::ALLOC_MEMORY_OF_GPU, args, errno)?;
            same("memory that is free", kfd.available()?, before)
        })
        .provoking(&["alloc", "amdgpu"])
    };
    let mut all: Vec<Case> = WRONG.iter().map(refused).collect();
    all.push(
        on_card(
            "memory.refuse-public-small-bar",
            "Without a large BAR, VRAM for the host is EINVAL, other VRAM is not",
            |kfd| {
                let flags = k::ALLOC_MEM_FLAGS_VRAM | k::ALLOC_MEM_FLAGS_PUBLIC;
                let mut args = kfd.alloc_args(VA, PAGE, flags);
                let answer = kfd.raw(k::ALLOC_MEMORY_OF_GPU.desc.request, bytemuck::bytes_of_mut(&mut args));
                if answer.is_ok() {
                    kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?;
                    kfd.bench.require(!kfd.bench.is_kernel(), "large-bar", "the card's whole memory is visible")?;
                }
                same("ALLOC of public VRAM", answer, Err(Errno::EINVAL))?;
                let mut args = kfd.alloc_args(VA, PAGE, k::ALLOC_MEM_FLAGS_VRAM);
                kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
                Ok(kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?)
            },
        )
        .on(Change::Kfd(|config| config.small_bar = true)),
    );
    all
}

fn refused_map(kfd: &Kfd<'_>, change: impl Fn(&mut k::MapMemoryToGpu), errno: Errno) -> Step {
    let buffer = kfd.alloc(PAGE, HOST)?;
    let cards = [kfd.gpu_id];
    let mut args = Kfd::map_args(buffer.handle, &cards);
    change(&mut args);
    kfd.refused(&k::MAP_MEMORY_TO_GPU, args, errno)
}

fn mappings() -> Vec<Case> {
    vec![
        on_card("memory.map-no-cards", "MAP of an empty list of cards is EINVAL", |kfd| {
            refused_map(kfd, |a| a.n_devices = 0, Errno::EINVAL)
        }),
        on_card("memory.map-more-done-than-asked", "MAP with more done than asked is EINVAL", |kfd| {
            refused_map(kfd, |a| a.n_success = 2, Errno::EINVAL)
        }),
        on_card("memory.map-unknown-handle", "MAP of a handle that is no buffer is refused with ENOMEM", |kfd| {
            refused_map(kfd, |a| a.handle += 77, Errno::ENOMEM)
        }),
        on_card("memory.map-unknown-card-in-handle", "MAP of a handle of an unknown card is EINVAL", |kfd| {
            refused_map(kfd, |a| a.handle = 0x55 << 32, Errno::EINVAL)
        }),
        on_card(
            "memory.map-counts-what-is-done",
            "MAP for a card and an unknown one fails, with the first one counted",
            |kfd| {
                let buffer = kfd.alloc(PAGE, HOST)?;
                let cards = [kfd.gpu_id, kfd.gpu_id ^ 0x55];
                let mut args = Kfd::map_args(buffer.handle, &cards);
                let answer = kfd.raw(k::MAP_MEMORY_TO_GPU.desc.request, bytemuck::bytes_of_mut(&mut args));
                same("MAP", answer, Err(Errno::EINVAL))?;
                same("n_success", args.n_success, 1)?;
                same("UNMAP: n_success", kfd.unmap(&buffer)?, 1)
            },
        ),
        on_card("memory.map-twice", "MAP of what is mapped succeeds and counts", |kfd| {
            let buffer = kfd.buffer(PAGE, HOST)?;
            kfd.map(&buffer)
        }),
        on_card("memory.unmap-not-mapped", "UNMAP of what is not mapped is EINVAL", |kfd| {
            let buffer = kfd.alloc(PAGE, HOST)?;
            same("UNMAP", kfd.unmap(&buffer), Err(Errno::EINVAL))
        }),
        on_card("memory.unmap-counts", "UNMAP counts the card, and the second time finds nothing", |kfd| {
            let buffer = kfd.buffer(PAGE, HOST)?;
            same("n_success", kfd.unmap(&buffer), Ok(1))?;
            same("again", kfd.unmap(&buffer), Err(Errno::EINVAL))
        }),
        on_card("memory.free-mapped", "FREE of a mapped buffer is EBUSY, and it stays", |kfd| {
            let buffer = kfd.buffer(PAGE, HOST)?;
            kfd.refused(&k::FREE_MEMORY_OF_GPU, k::FreeMemoryOfGpu { handle: buffer.handle }, Errno::EBUSY)?;
            same("n_success", kfd.unmap(&buffer), Ok(1))
        }),
        on_card("memory.free-twice", "FREE of a freed handle is EINVAL", |kfd| {
            let buffer = kfd.alloc(PAGE, HOST)?;
            kfd.free(&buffer)?;
            kfd.refused(&k::FREE_MEMORY_OF_GPU, k::FreeMemoryOfGpu { handle: buffer.handle }, Errno::EINVAL)
        }),
        on_card("memory.two-at-one-address", "Two buffers cannot be mapped at one address", |kfd| {
            let buffer = kfd.buffer(2 * PAGE, HOST)?;
            let mut args = kfd.alloc_args(buffer.va + PAGE, PAGE, HOST);
            kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
            let cards = [kfd.gpu_id];
            kfd.refused(&k::MAP_MEMORY_TO_GPU, Kfd::map_args(args.handle, &cards), Errno::EINVAL)?;
            Ok(kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?)
        }),
        on_card(
            "memory.mmap-stays-inside",
            "mmap of a buffer gives the buffer or its front, and nothing beyond",
            mmap_inside,
        ),
        on_card(
            "memory.handles-are-their-own",
            "Buffers have handles of their own, and a freed one's is free",
            |kfd| {
                let buffers = [kfd.alloc(PAGE, HOST)?, kfd.alloc(PAGE, CARD)?, kfd.alloc(PAGE, HOST)?];
                let mut handles: Vec<u64> = buffers.iter().map(|b| b.handle).collect();
                handles.sort_unstable();
                handles.dedup();
                same("different handles", handles.len(), 3)
            },
        ),
        on_card("memory.thousand-buffers", "A thousand buffers are made, mapped and freed", |kfd| {
            let many: Vec<Buffer> = (0..1000).map(|_| kfd.buffer(PAGE, HOST)).collect::<Step<_>>()?;
            let (first, last) = (&many[0], &many[999]);
            first.view.write_u32(0, 1)?;
            last.view.write_u32(0, 2)?;
            same("each has memory of its own", (first.view.read_u32(0)?, last.view.read_u32(0)?), (1, 2))
        }),
        on_card("memory.zeroed", "A new buffer is zero, whatever was there before", |kfd| {
            let first = kfd.alloc(64 << 10, CARD)?;
            first.view.fill(0, 64 << 10, 0xa5)?;
            kfd.free(&first)?;
            drop(first);
            let second = kfd.alloc(64 << 10, CARD)?;
            let mut bytes = vec![1; 64 << 10];
            second.view.copy_to_slice(0, &mut bytes)?;
            holds("all of it is 0", bytes.iter().all(|byte| *byte == 0))
        }),
        on_card("memory.queue-keeps-its-ring", "A queue's ring cannot be unmapped while the queue lives", |kfd| {
            let queue = kfd.queue(Ring::Sdma)?;
            same("UNMAP", kfd.unmap(&queue.ring), Err(Errno::EBUSY))?;
            kfd.destroy(&queue)?;
            same("UNMAP after", kfd.unmap(&queue.ring), Ok(1))
        }),
    ]
}

fn mmap_inside(kfd: &Kfd<'_>) -> Step {
    let mut args = kfd.alloc_args(VA, 2 * PAGE, HOST);
    kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
    let map = |offset: u64, len: u64| {
        let mapped = Mapped::new(&kfd.bench.port, &MapRequest::file(kfd.render, offset, len));
        mapped.and_then(Mapped::unmap)
    };
    same("the whole", map(args.mmap_offset, 2 * PAGE), Ok(()))?;
    same("its front", map(args.mmap_offset, PAGE), Ok(()))?;
    same("more", map(args.mmap_offset, 3 * PAGE), Err(Errno::EINVAL))?;
    same("from its middle", map(args.mmap_offset + PAGE, PAGE), Err(Errno::EINVAL))?;
    Ok(kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?)
}

fn counted() -> Vec<Case> {
    vec![
        on_card(
            "memory.vram-is-counted",
            "AVAILABLE_MEMORY falls with an allocation and comes back with its end",
            |kfd| {
                const BYTES: u64 = 8 << 20;
                let before = kfd.available()?;
                let buffer = kfd.alloc(BYTES, CARD)?;
                holds("it falls", kfd.available()? <= before - BYTES)?;
                kfd.free(&buffer)?;
                same("it comes back", kfd.available()?, before)
            },
        ),
        on_card("memory.host-memory-is-not-vram", "Host memory does not count as VRAM", |kfd| {
            let before = kfd.available()?;
            let _buffer = kfd.alloc(8 << 20, HOST)?;
            same("free VRAM", kfd.available()?, before)
        }),
        on_card(
            "memory.oversubscribed",
            "When VRAM is full an allocation is ENOMEM, and works again after a free",
            oversubscribed,
        )
        .on(Change::Kfd(|config| config.vram_bytes = 64 << 20)),
    ]
}

fn oversubscribed(kfd: &Kfd<'_>) -> Step {
    let size = (kfd.available()? / 2).next_multiple_of(PAGE) + (1 << 20);
    kfd.bench.require(size <= 1 << 34, "large-vram", "filling this card's memory takes too long")?;
    let first = kfd.alloc(size, k::ALLOC_MEM_FLAGS_VRAM | k::ALLOC_MEM_FLAGS_PUBLIC)?;
    kfd.refused(&k::ALLOC_MEMORY_OF_GPU, kfd.alloc_args(VA, size, k::ALLOC_MEM_FLAGS_VRAM), Errno::ENOMEM)?;
    kfd.free(&first)?;
    let again = kfd.alloc(size, k::ALLOC_MEM_FLAGS_VRAM | k::ALLOC_MEM_FLAGS_PUBLIC)?;
    kfd.free(&again)
}

fn export(kfd: &Kfd<'_>, buffer: &Buffer) -> Step<u32> {
    let mut args = k::ExportDmabuf { handle: buffer.handle, flags: 0o2_000_002, ..Default::default() };
    kfd.call(&k::EXPORT_DMABUF, &mut args)?;
    Ok(args.dmabuf_fd)
}

fn close(kfd: &Kfd<'_>, fd: u32) -> Step {
    Ok(kfd.bench.port.close(Fd(fd.cast_signed()))?)
}

fn shared() -> Vec<Case> {
    vec![
        on_card("dmabuf.info", "GET_DMABUF_INFO answers size, card and kind of an exported buffer", |kfd| {
            let buffer = kfd.alloc(3 * PAGE, CARD)?;
            let fd = export(kfd, &buffer)?;
            let mut info = k::GetDmabufInfo { dmabuf_fd: fd, ..Default::default() };
            kfd.call(&k::GET_DMABUF_INFO, &mut info)?;
            same("size", info.size, 3 * PAGE)?;
            same("gpu_id", info.gpu_id, kfd.gpu_id)?;
            holds("VRAM", info.flags & k::ALLOC_MEM_FLAGS_VRAM != 0)?;
            close(kfd, fd)
        }),
        on_card("dmabuf.import-is-the-same-memory", "An imported buffer is the exported one's memory", import_same),
        on_card("dmabuf.outlives-its-buffer", "An exported buffer lives on in its file", |kfd| {
            let buffer = kfd.alloc(PAGE, HOST)?;
            buffer.view.write_u32(0, 0xabcd)?;
            let fd = export(kfd, &buffer)?;
            kfd.free(&buffer)?;
            let mut info = k::GetDmabufInfo { dmabuf_fd: fd, ..Default::default() };
            kfd.call(&k::GET_DMABUF_INFO, &mut info)?;
            same("size", info.size, PAGE)?;
            close(kfd, fd)
        }),
        on_card("dmabuf.refuse-plain-file", "A file that is no dma-buf is refused", |kfd| {
            let info = k::GetDmabufInfo { dmabuf_fd: kfd.kfd.0 as u32, ..Default::default() };
            kfd.refused(&k::GET_DMABUF_INFO, info, Errno::EINVAL)?;
            let args = k::ImportDmabuf { va_addr: VA, gpu_id: kfd.gpu_id, dmabuf_fd: kfd.kfd.0 as u32, handle: 0 };
            kfd.refused(&k::IMPORT_DMABUF, args, Errno::EINVAL)
        }),
        on_card("dmabuf.refuse-unknown-handle", "EXPORT_DMABUF of a handle that is none is EINVAL", |kfd| {
            let handle = u64::from(kfd.gpu_id) << 32 | 0x7777;
            kfd.refused(&k::EXPORT_DMABUF, k::ExportDmabuf { handle, ..Default::default() }, Errno::EINVAL)
        }),
        on_card("dmabuf.refuse-odd-address", "IMPORT_DMABUF at an odd address is EINVAL", |kfd| {
            let buffer = kfd.alloc(PAGE, HOST)?;
            let fd = export(kfd, &buffer)?;
            let args = k::ImportDmabuf { va_addr: VA + 8, gpu_id: kfd.gpu_id, dmabuf_fd: fd, handle: 0 };
            kfd.refused(&k::IMPORT_DMABUF, args, Errno::EINVAL)?;
            close(kfd, fd)
        }),
        on_card("user-memory.card-writes", "The card writes the process's own memory", user_memory),
        on_card("user-memory.not-exported", "User memory has no dma-buf", |kfd| {
            let mapped = Arc::new(Mapped::new(&kfd.bench.port, &MapRequest::anonymous_shared(PAGE))?);
            let mut args = kfd.alloc_args(VA, PAGE, k::ALLOC_MEM_FLAGS_USERPTR | k::ALLOC_MEM_FLAGS_WRITABLE);
            args.mmap_offset = mapped.base().0;
            kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
            let export = k::ExportDmabuf { handle: args.handle, ..Default::default() };
            kfd.refused(&k::EXPORT_DMABUF, export, Errno::EINVAL)?;
            Ok(kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?)
        }),
        on_card("peer.vram-of-another-card", "A card maps another card's memory where they are linked", peer)
            .on(Change::Kfd(|config| config.gpus = 2)),
    ]
}

fn import_same(kfd: &Kfd<'_>) -> Step {
    let buffer = kfd.buffer(PAGE, HOST)?;
    let fd = export(kfd, &buffer)?;
    let mut args = k::ImportDmabuf { va_addr: VA, gpu_id: kfd.gpu_id, dmabuf_fd: fd, handle: 0 };
    kfd.call(&k::IMPORT_DMABUF, &mut args)?;
    let cards = [kfd.gpu_id];
    kfd.call(&k::MAP_MEMORY_TO_GPU, &mut Kfd::map_args(args.handle, &cards))?;
    let (mut queue, done) = (kfd.queue(Ring::Pm4)?, kfd.buffer(PAGE, HOST)?);
    let gfx = kfd.gfx()?;
    queue.submit(&[&write_data(VA + 16, 77)[..], &signal(Ring::Pm4, gfx, done.va, 1)].concat())?;
    kfd.bench.word(&done.view, 0, 1)?;
    same("through the other address", buffer.view.read_u32(16)?, 77)?;
    kfd.destroy(&queue)?;
    let k::MapMemoryToGpu { handle, device_ids_array_ptr, n_devices, n_success } = Kfd::map_args(args.handle, &cards);
    kfd.call(
        &k::UNMAP_MEMORY_FROM_GPU,
        &mut k::UnmapMemoryFromGpu { handle, device_ids_array_ptr, n_devices, n_success },
    )?;
    kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?;
    close(kfd, fd)
}

fn user_memory(kfd: &Kfd<'_>) -> Step {
    let mapped = Arc::new(Mapped::new(&kfd.bench.port, &MapRequest::anonymous_shared(2 * PAGE))?);
    let va = mapped.base().0;
    let mut args = kfd.alloc_args(va, 2 * PAGE, k::ALLOC_MEM_FLAGS_USERPTR | k::ALLOC_MEM_FLAGS_WRITABLE);
    args.mmap_offset = va;
    kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
    let buffer = Buffer { handle: args.handle, va, view: mapped.view()? };
    kfd.remember(buffer.clone());
    kfd.map(&buffer)?;
    let mut queue = kfd.queue(Ring::Sdma)?;
    queue.submit(&signal(Ring::Sdma, kfd.gfx()?, va + PAGE + 8, 0x55aa))?;
    kfd.bench.word(&buffer.view, PAGE + 8, 0x55aa)
}

fn peer(kfd: &Kfd<'_>) -> Step {
    let all = cards(&*kfd.bench.port);
    kfd.bench.require(all.len() > 1, "two-cards", "there is one card")?;
    let (other, properties) = &all[1];
    let minor = properties.get("drm_render_minor").copied().unwrap_or(129);
    let render = kfd.bench.port.open(&format!("/dev/dri/renderD{minor}"), OpenFlags::DEVICE)?;
    kfd.call(&k::ACQUIRE_VM, &mut k::AcquireVm { drm_fd: render.0 as u32, gpu_id: *other })?;
    let mut args = kfd.alloc_args(VA, PAGE, CARD);
    args.gpu_id = *other;
    kfd.call(&k::ALLOC_MEMORY_OF_GPU, &mut args)?;
    let cards = [kfd.gpu_id, *other];
    let mut map = Kfd::map_args(args.handle, &cards);
    let mapped = kfd.call(&k::MAP_MEMORY_TO_GPU, &mut map);
    if kfd.bench.is_kernel() && mapped.is_err() {
        return Err(Problem::Skipped { key: "no-peer-link", why: "the cards do not reach each other".to_owned() });
    }
    mapped?;
    same("n_success", map.n_success, 2)?;
    let (mut queue, done) = (kfd.queue(Ring::Sdma)?, kfd.buffer(PAGE, HOST)?);
    let gfx = kfd.gfx()?;
    queue.submit(&signal(Ring::Sdma, gfx, VA, 0x77))?;
    queue.submit(&super::packets::sdma_copy(VA, done.va + 8, 4))?;
    queue.submit(&signal(Ring::Sdma, gfx, done.va, 1))?;
    kfd.bench.word(&done.view, 0, 1)?;
    same("what the first card stored in the second's memory", done.view.read_u32(8)?, 0x77)?;
    kfd.destroy(&queue)?;
    let k::MapMemoryToGpu { handle, device_ids_array_ptr, n_devices, .. } = Kfd::map_args(args.handle, &cards);
    let mut unmap = k::UnmapMemoryFromGpu { handle, device_ids_array_ptr, n_devices, n_success: 0 };
    kfd.call(&k::UNMAP_MEMORY_FROM_GPU, &mut unmap)?;
    same("UNMAP: n_success", unmap.n_success, 2)?;
    kfd.call(&k::FREE_MEMORY_OF_GPU, &mut k::FreeMemoryOfGpu { handle: args.handle })?;
    Ok(kfd.bench.port.close(render)?)
}
