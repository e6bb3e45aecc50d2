//! Address spaces that RM fills: ranges of virtual memory, and what is mapped there and taken away.

use super::client::{Device, HUGE, PAGE, code, outcome, refused, want};
use super::on_card;
use crate::case::{Case, Step, same};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};

const BASE: u64 = 0x40_0000_0000;
/// Of a range: virtual, at a fixed address, aligned as asked; pages of 2 MiB.
const RANGE_FLAGS: u32 = 0x8_0000 | 0x10 | 0x100;
const RANGE_ATTR: u32 = 3 << 23;
/// Of a mapping: at a fixed address, pages of 4 KiB.
const FIXED: u32 = 1 << 15 | 1 << 8;

/// A space of RM's, a range of 2 MiB in it, and VRAM.
fn ready(device: &Device<'_>) -> Step<(u32, u32)> {
    let client = &device.client;
    let mut params = rm::VaSpaceAlloc::default();
    let space = want("ALLOC of a space", client.alloc_with(device.device, rm::FERMI_VASPACE_A, &mut params))?;
    let mut params = rm::MemoryAlloc {
        owner: client.root,
        flags: RANGE_FLAGS,
        attr: RANGE_ATTR,
        size: HUGE,
        offset: BASE,
        h_va_space: space,
        ..Default::default()
    };
    let range = client.alloc_with(device.device, rm::NV50_MEMORY_VIRTUAL, &mut params);
    let range = want("ALLOC of a range", range)?;
    same("where it is", (params.offset, params.size), (BASE, HUGE))?;
    let mut params = client.vram_params(HUGE);
    let memory = client.alloc_with(device.device, rm::NV01_MEMORY_LOCAL_USER, &mut params);
    Ok((range, want("ALLOC of VRAM", memory)?))
}

fn map(device: &Device<'_>, dma: u32, memory: u32, edit: impl FnOnce(&mut rm::RmMapMemoryDma)) -> Result<u64, Status> {
    let (h_client, h_device) = (device.client.root, device.device);
    let mut args = rm::RmMapMemoryDma { h_client, h_device, h_dma: dma, h_memory: memory, ..Default::default() };
    (args.dma_offset, args.length, args.flags) = (BASE, PAGE, FIXED);
    edit(&mut args);
    device.client.call(device.client.control, &rm::MAP_MEMORY_DMA, &mut args)?;
    outcome(args.status).map(|()| args.dma_offset)
}

fn unmap(device: &Device<'_>, dma: u32, edit: impl FnOnce(&mut rm::RmUnmapMemoryDma)) -> Result<(), Status> {
    let (h_client, h_device) = (device.client.root, device.device);
    let mut args = rm::RmUnmapMemoryDma { h_client, h_device, h_dma: dma, dma_offset: BASE, ..Default::default() };
    edit(&mut args);
    device.client.call(device.client.control, &rm::UNMAP_MEMORY_DMA, &mut args)?;
    outcome(args.status)
}

/// Name, what is wrong, code.
type Wrong = (&'static str, fn(&mut rm::RmMapMemoryDma), Status);
const WRONG: &[Wrong] = &[
    ("nothing", |a| a.length = 0, code::INVALID_LIMIT),
    ("more-than-the-memory", |a| a.length = HUGE + PAGE, code::INVALID_LIMIT),
    ("offset-that-wraps", |a| a.offset = u64::MAX, code::INVALID_LIMIT),
    ("no-range", |a| a.h_dma = 0x77, code::OBJECT_NOT_FOUND),
    ("no-memory", |a| a.h_memory = 0x77, code::OBJECT_NOT_FOUND),
    ("no-device", |a| a.h_device = 0x77, code::OBJECT_NOT_FOUND),
    ("before-the-range", |a| a.dma_offset = BASE - PAGE, code::INVALID_OFFSET),
    ("behind-the-range", |a| a.dma_offset = BASE + HUGE, code::INVALID_OFFSET),
];

pub(crate) fn cases() -> Vec<Case> {
    let refuse = |(name, spoil, status): &Wrong| {
        let (spoil, status) = (*spoil, *status);
        on_card(&format!("dma.refuse-{name}"), "MAP_MEMORY_DMA refuses it", move |device| {
            let (range, memory) = ready(device)?;
            refused("MAP_MEMORY_DMA", map(device, range, memory, spoil), status)
        })
    };
    let mut all: Vec<Case> = WRONG.iter().map(refuse).collect();
    all.extend([
        on_card("dma.map-once", "Memory is mapped where it is asked for, and once", |device| {
            let (range, memory) = ready(device)?;
            same("where", want("MAP_MEMORY_DMA", map(device, range, memory, |_| {}))?, BASE)?;
            refused("again", map(device, range, memory, |_| {}), code::INVALID_ARGUMENT)?;
            want("behind it", map(device, range, memory, |a| a.dma_offset = BASE + PAGE)).map(|_| ())
        }),
        on_card("dma.unmap-frees-the-place", "What is unmapped may be mapped again, and is unmapped once", |device| {
            let (range, memory) = ready(device)?;
            want("MAP_MEMORY_DMA", map(device, range, memory, |_| {}))?;
            want("UNMAP_MEMORY_DMA", unmap(device, range, |_| {}))?;
            refused("again", unmap(device, range, |_| {}), code::OBJECT_NOT_FOUND)?;
            want("MAP_MEMORY_DMA", map(device, range, memory, |_| {})).map(|_| ())
        }),
        on_card("dma.unmap-a-span", "A span of several mappings is unmapped by its length", |device| {
            let (range, memory) = ready(device)?;
            for page in 0..3 {
                want("MAP_MEMORY_DMA", map(device, range, memory, |a| a.dma_offset = BASE + page * PAGE))?;
            }
            want("UNMAP_MEMORY_DMA", unmap(device, range, |a| a.size = 2 * PAGE))?;
            want("the second is free", map(device, range, memory, |a| a.dma_offset = BASE + PAGE))?;
            let third = map(device, range, memory, |a| a.dma_offset = BASE + 2 * PAGE);
            refused("the third is not", third, code::INVALID_ARGUMENT)
        }),
        on_card("dma.unmap-unknown", "UNMAP_MEMORY_DMA of no range, and of no device, is refused", |device| {
            let (range, _) = ready(device)?;
            refused("no range", unmap(device, 0x77, |_| {}), code::OBJECT_NOT_FOUND)?;
            refused("no device", unmap(device, range, |a| a.h_device = 0x77), code::OBJECT_NOT_FOUND)
        }),
        on_card("dma.mappings-go-with-their-memory", "When memory is freed its mappings are gone", |device| {
            let (range, memory) = ready(device)?;
            want("MAP_MEMORY_DMA", map(device, range, memory, |_| {}))?;
            want("FREE", device.client.free(memory))?;
            refused("UNMAP_MEMORY_DMA", unmap(device, range, |_| {}), code::OBJECT_NOT_FOUND)
        }),
    ]);
    all
}
