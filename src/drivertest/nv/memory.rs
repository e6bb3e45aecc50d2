//! Memory: kinds, limits, mappings of the host, pinned pages, spaces that RM fills.

use super::client::{Device, HUGE, PAGE, code, copy, outcome, refused, release, want};
use super::on_card;
use crate::case::{Case, Change, Step, holds, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::port::{Errno, MapRequest, Mapped};
use std::sync::Arc;

/// Name, whether VRAM, bytes.
const KINDS: &[(&str, bool, u64)] = &[
    ("vram-4k", true, PAGE),
    ("vram-64k", true, 64 << 10),
    ("vram-2m", true, HUGE),
    ("vram-16m", true, 16 << 20),
    ("vram-odd-pages", true, 7 * PAGE),
    ("system-4k", false, PAGE),
    ("system-64k", false, 64 << 10),
    ("system-2m", false, HUGE),
    ("system-16m", false, 16 << 20),
    ("system-odd-pages", false, 7 * PAGE),
];

/// The card stores to both ends, and the host sees it.
fn kind(name: &str, vram: bool, bytes: u64) -> Case {
    on_card(
        &format!("memory.kind-{name}"),
        "The card's stores to both ends of a buffer reach the host",
        move |device| {
            let buffer = if vram { device.vram(bytes)? } else { device.system(bytes)? };
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            page.view.write_u64(64, 0x1122_3344_5566_7788)?;
            channel.push(&copy(page.va + 64, buffer.va, 8))?;
            channel.push(&copy(page.va + 64, buffer.va + bytes - 8, 8))?;
            channel.push(&release(page.va, 1))?;
            channel.ring()?;
            device.word(&page.view, 0, 1)?;
            same("first", buffer.view.read_u64(0)?, 0x1122_3344_5566_7788)?;
            same("last", buffer.view.read_u64(bytes - 8)?, 0x1122_3344_5566_7788)
        },
    )
}

/// Whether VRAM, what is wrong, code.
type Wrong = (&'static str, bool, fn(&mut rm::MemoryAlloc), Status);
const WRONG: &[Wrong] = &[
    ("vram-of-nothing", true, |p| p.size = 0, code::INVALID_ARGUMENT),
    ("vram-odd-alignment", true, |p| p.alignment = 3 * PAGE, code::INVALID_ARGUMENT),
    ("vram-in-host-memory", true, |p| p.attr |= 1 << 25, code::INVALID_ARGUMENT),
    ("vram-more-than-there-is", true, |p| (p.size, p.limit) = (1 << 50, (1 << 50) - 1), code::NO_MEMORY),
    ("vram-size-that-wraps", true, |p| (p.size, p.limit) = (u64::MAX - 5, 0), code::NO_MEMORY),
    ("system-of-nothing", false, |p| p.size = 0, code::INVALID_ARGUMENT),
    ("system-in-vram", false, |p| p.attr &= !(3 << 25), code::INVALID_ARGUMENT),
    ("system-odd-alignment", false, |p| p.alignment = 5, code::INVALID_ARGUMENT),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = KINDS.iter().map(|(name, vram, bytes)| kind(name, *vram, *bytes)).collect();
    all.extend(WRONG.iter().map(|(name, vram, spoil, status)| {
        let (vram, spoil, status) = (*vram, *spoil, *status);
        on_card(&format!("memory.refuse-{name}"), "ALLOC refuses it with its code", move |device| {
            let client = &device.client;
            let mut params = if vram { client.vram_params(PAGE) } else { client.system_params(PAGE) };
            spoil(&mut params);
            let class = if vram { rm::NV01_MEMORY_LOCAL_USER } else { rm::NV01_MEMORY_SYSTEM };
            refused("ALLOC", client.alloc_with(device.device, class, &mut params), status)
        })
    }));
    all.extend(counted());
    all.extend(host());
    all.extend(pinned());
    all
}

/// Free VRAM of the card.
///
/// # Errors
/// RM's.
pub(super) fn free_kib(device: &Device<'_>) -> Step<u32> {
    let mut asked = rm::FbInfo { fb_info_list_size: 1, ..Default::default() };
    asked.fb_info_list[0].index = 0x16;
    Ok(want("FB_GET_INFO_V2", device.client.control(device.subdevice, &rm::FB_GET_INFO_V2, asked))?.fb_info_list[0]
        .data)
}

fn counted() -> Vec<Case> {
    vec![
        on_card("memory.attributes-are-answered", "ALLOC answers the attributes of what it allocated", |device| {
            let (mut vram, mut system) = (device.client.vram_params(HUGE), device.client.system_params(PAGE));
            let client = &device.client;
            want("ALLOC of VRAM", client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut vram))?;
            want("ALLOC of host memory", client.alloc_with(device.device, rm::NV01_MEMORY_SYSTEM, &mut system))?;
            // NVOS32_ATTR: location 26:25, VRAM or behind PCI; pages 24:23.
            same("locations", (vram.attr >> 25 & 3, system.attr >> 25 & 3), (0, 1))?;
            holds("VRAM in pages of a size", vram.attr >> 23 & 3 != 0)?;
            holds("how it is cached", vram.attr2 != 0 && system.attr2 != 0)
        }),
        on_card("memory.vram-is-counted", "Free VRAM falls with an allocation and comes back with its end", |device| {
            let before = free_kib(device)?;
            let mut params = device.client.vram_params(8 << 20);
            let handle = device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params);
            let handle = want("ALLOC", handle)?;
            holds("it falls", free_kib(device)? <= before - 8192)?;
            want("FREE", device.client.free(handle))?;
            same("it comes back", free_kib(device)?, before)
        }),
        on_card("memory.limit-is-an-answer", "ALLOC does not look at limit: it answers the last byte", |device| {
            for (vram, mut params) in
                [(true, device.client.vram_params(PAGE)), (false, device.client.system_params(PAGE))]
            {
                params.limit = 7;
                let class = if vram { rm::NV01_MEMORY_LOCAL_USER } else { rm::NV01_MEMORY_SYSTEM };
                want("ALLOC", device.client.alloc_with(device.device, class, &mut params))?;
                holds("at least what was asked for", params.size >= PAGE)?;
            }
            Ok(())
        }),
        on_card("memory.size-is-rounded", "ALLOC answers the size that it gave, whole huge pages", |device| {
            let mut params = device.client.vram_params(5 << 20);
            let handle = device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params);
            want("ALLOC", handle)?;
            same("size", params.size, 6 << 20)
        }),
        on_card(
            "memory.oversubscribed",
            "When VRAM is full an allocation is NO_MEMORY, and works again after a free",
            |device| {
                let half = u64::from(free_kib(device)?) / 2 * 1024 + (4 << 20);
                device.client.bench.require(
                    half <= 1 << 35,
                    "large-vram",
                    "filling this card's memory takes too long",
                )?;
                let take = || {
                    let mut params = device.client.vram_params(half);
                    device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params)
                };
                let first = want("ALLOC", take())?;
                refused("a second half", take(), code::NO_MEMORY)?;
                want("FREE", device.client.free(first))?;
                want("ALLOC", take()).map(|_| ())
            },
        )
        .on(Change::Nv(|config| config.vram_bytes = 64 << 20)),
        on_card("memory.hundred-buffers", "A hundred buffers are made, mapped and freed", |device| {
            let mut all = Vec::new();
            for n in 0..100 {
                let buffer = device.system(PAGE)?;
                buffer.view.write_u32(0, n)?;
                all.push(buffer);
            }
            for (n, buffer) in (0..).zip(&all) {
                same("each has memory of its own", buffer.view.read_u32(0)?, n)?;
            }
            Ok(())
        }),
    ]
}

fn host() -> Vec<Case> {
    vec![
        on_card("map.unregistered-file", "MAP_MEMORY takes a card's file that is not registered", |device| {
            let (memory, file) = (vram(device)?, device.client.open("/dev/nvidia0")?);
            let (view, cookie) = want("MAP_MEMORY", device.client.map(device.device, memory, HUGE, file)?)?;
            view.write_u32(8, 0x77)?;
            same("what was stored", view.read_u32(8)?, 0x77)?;
            drop(view);
            want("UNMAP_MEMORY", device.client.unmap(device.device, memory, cookie))
        }),
        on_card("map.vram-on-control-file", "MAP_MEMORY of VRAM on the control file is refused", |device| {
            let (memory, file) = (vram(device)?, device.client.open("/dev/nvidiactl")?);
            refused("MAP_MEMORY", device.client.map(device.device, memory, HUGE, file)?, code::INVALID_ARGUMENT)
        }),
        on_card("map.below-the-client", "MAP_MEMORY in the context of no card is refused", |device| {
            let (memory, file) = (vram(device)?, device.client.card(0)?);
            let got = device.client.map(device.client.root, memory, HUGE, file)?;
            refused("MAP_MEMORY", got, code::INVALID_OBJECT_PARENT)
        }),
        on_card("map.more-than-there-is", "MAP_MEMORY of more than the memory is refused", |device| {
            let (memory, file) = (vram(device)?, device.client.card(0)?);
            refused("MAP_MEMORY", device.client.map(device.device, memory, HUGE + 1, file)?, code::INVALID_LIMIT)
        }),
        on_card("map.nothing", "MAP_MEMORY of no bytes is refused", |device| {
            let (memory, file) = (vram(device)?, device.client.card(0)?);
            refused("MAP_MEMORY", device.client.map(device.device, memory, 0, file)?, code::INVALID_LIMIT)
        }),
        on_card("map.of-a-space", "MAP_MEMORY of what is no memory is refused", |device| {
            let file = device.client.card(0)?;
            refused("MAP_MEMORY", device.client.map(device.device, device.space, PAGE, file)?, code::NOT_SUPPORTED)
        }),
        on_card("map.file-is-armed-once", "A file carries one mapping", |device| {
            let (memory, file) = (vram(device)?, device.client.card(0)?);
            let (view, cookie) = want("MAP_MEMORY", device.client.map(device.device, memory, HUGE, file)?)?;
            refused("a second", device.client.map(device.device, memory, HUGE, file)?, code::STATE_IN_USE)?;
            drop(view);
            want("UNMAP_MEMORY", device.client.unmap(device.device, memory, cookie))
        }),
        on_card(
            "map.mmap-of-another-size",
            "mmap of a file takes the length and offset that were asked for",
            |device| {
                let (memory, file) = (vram(device)?, device.client.card(0)?);
                let (view, cookie) = want("MAP_MEMORY", device.client.map(device.device, memory, HUGE, file)?)?;
                let map = |offset, len| {
                    Mapped::new(&device.client.bench.port, &MapRequest::file(file, offset, len)).and_then(Mapped::unmap)
                };
                same("another length", map(0, PAGE), Err(Errno::ENXIO))?;
                same("another offset", map(PAGE, HUGE), Err(Errno::EINVAL))?;
                drop(view);
                want("UNMAP_MEMORY", device.client.unmap(device.device, memory, cookie))
            },
        ),
        on_card("map.unmap-unknown", "UNMAP_MEMORY of an address that is none is refused", |device| {
            let memory = vram(device)?;
            refused("UNMAP_MEMORY", device.client.unmap(device.device, memory, 0x1234_5000), code::OBJECT_NOT_FOUND)
        }),
        on_card("map.two-views", "Two mappings of one memory show the same bytes", |device| {
            let memory = vram(device)?;
            let map = || device.client.map(device.device, memory, HUGE, device.client.card(0)?);
            let (one, first) = want("MAP_MEMORY", map()?)?;
            let (two, second) = want("MAP_MEMORY", map()?)?;
            one.write_u32(HUGE - 4, 0x77)?;
            same("through the other", two.read_u32(HUGE - 4)?, 0x77)?;
            drop((one, two));
            want("UNMAP_MEMORY", device.client.unmap(device.device, memory, first))?;
            want("UNMAP_MEMORY", device.client.unmap(device.device, memory, second))
        }),
    ]
}

fn vram(device: &Device<'_>) -> Step<u32> {
    let mut params = device.client.vram_params(HUGE);
    want("ALLOC", device.client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params))
}

fn pin(device: &Device<'_>, at: u64, bytes: u64, flags: u32, handle: u32) -> Result<(), Status> {
    let mut args = rm::RmAllocMemory { fd: -1, ..Default::default() };
    args.params = rm::AllocMemoryParams {
        h_root: device.client.root,
        h_object_parent: device.device,
        h_object_new: handle,
        h_class: rm::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
        flags,
        p_memory: at,
        limit: bytes.wrapping_sub(1),
        ..Default::default()
    };
    device.client.call(device.card, &rm::ALLOC_MEMORY, &mut args)?;
    outcome(args.params.status)
}

const NO_MAP: u32 = 0x4000_1010;
const PINNED: u32 = 0x4711;

fn pinned() -> Vec<Case> {
    let own = |device: &Device<'_>| -> Step<Arc<Mapped>> {
        Ok(Arc::new(Mapped::new(&device.client.bench.port, &MapRequest::anonymous_shared(16 * PAGE))?))
    };
    vec![
        on_card("pin.card-reads", "The card reads the process's own memory", move |device| {
            let mapped = own(device)?;
            let view = mapped.view()?;
            want("ALLOC_MEMORY", pin(device, mapped.base().0, 16 * PAGE, NO_MAP, PINNED))?;
            let va = device.take_va(16 * PAGE);
            want("UVM_CREATE_EXTERNAL_RANGE", device.create_range(va, 16 * PAGE))?;
            want("UVM_MAP_EXTERNAL_ALLOCATION", device.map_part(PINNED, 0, va, 16 * PAGE, 1))?;
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            view.write_u32(PAGE + 12, 0xabcd)?;
            channel.push(&copy(va + PAGE + 12, page.va + 64, 4))?;
            channel.push(&release(page.va, 1))?;
            channel.ring()?;
            device.word(&page.view, 0, 1)?;
            same("it", page.view.read_u32(64)?, 0xabcd)?;
            want("FREE", device.client.free(PINNED))
        }),
        on_card("pin.flags", "ALLOC_MEMORY that would map as well is refused", move |device| {
            refused("ALLOC_MEMORY", pin(device, own(device)?.base().0, 16 * PAGE, 0x1010, PINNED), code::INVALID_FLAGS)
        }),
        on_card("pin.misaligned", "ALLOC_MEMORY at an odd address is refused", move |device| {
            let at = own(device)?.base().0 + 4;
            refused("ALLOC_MEMORY", pin(device, at, PAGE, NO_MAP, PINNED), code::NOT_SUPPORTED)
        }),
        on_card("pin.nowhere", "ALLOC_MEMORY of memory that is not there is refused", |device| {
            refused("ALLOC_MEMORY", pin(device, 0x1000, PAGE, NO_MAP, PINNED), code::INVALID_ADDRESS)
        }),
        on_card("pin.twice-under-one-handle", "ALLOC_MEMORY under a handle in use is refused", move |device| {
            let at = own(device)?;
            want("ALLOC_MEMORY", pin(device, at.base().0, PAGE, NO_MAP, PINNED))?;
            let again = pin(device, at.base().0, PAGE, NO_MAP, PINNED);
            want("FREE", device.client.free(PINNED))?;
            refused("again", again, code::INSERT_DUPLICATE_NAME)
        }),
    ]
}
