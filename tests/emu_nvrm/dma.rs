//! Address spaces that RM fills: ranges, mappings, what ends them, and a channel that works in one with no UVM.

use super::client::{Client, Device, HUGE, PAGE, release, wait};
use super::engines::copy;
use doorbell::emu::nvrm::{Chip, Config, SoftNv, status};
use doorbell_ioctl::abi::nvrm::{self as rm, Status};
use doorbell_ioctl::port::{DeviceView, Doorbell};

const FIXED: u32 = 1 << 15;
const READ_ONLY: u32 = 1;
const PAGES_4K: u32 = 1 << 8;
const PAGES_HUGE: u32 = 4 << 8;
/// Flags of ranges: virtual, at a fixed address, searched between two addresses, aligned as asked.
const VIRTUAL: u32 = 0x8_0000;
const AT: u32 = 0x10;
const BETWEEN: u32 = 0x2_0000;
const FORCE: u32 = 0x100;
const BASE: u64 = 0x40_0000_0000;
const BIG: u64 = 64 << 10;

/// A card of a process that has no UVM.
struct Plain {
    client: Client,
    device: u32,
    subdevice: u32,
    space: u32,
}

impl Plain {
    fn of(config: Config) -> Self {
        let client = Client::of(SoftNv::new(config).unwrap());
        let _card = client.card(0);
        let mut params = rm::DeviceAlloc { h_client_share: client.root, ..Default::default() };
        let device = client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params).unwrap();
        let subdevice = client.alloc_with(device, rm::NV20_SUBDEVICE_0, &mut rm::SubdeviceAlloc::default()).unwrap();
        let space = client.alloc_with(device, rm::FERMI_VASPACE_A, &mut rm::VaSpaceAlloc::default()).unwrap();
        Self { client, device, subdevice, space }
    }

    fn new() -> Self {
        Self::of(Config { no_uvm: true, ..Config::new(Chip::Sm90) })
    }

    /// A range's params, before a test spoils them.
    fn params(&self, flags: u32, size: u64) -> rm::MemoryAlloc {
        rm::MemoryAlloc {
            owner: self.client.root,
            flags: VIRTUAL | flags,
            size,
            h_va_space: self.space,
            ..Default::default()
        }
    }

    fn range_of(&self, mut params: rm::MemoryAlloc) -> Result<(u32, u64, u64), Status> {
        let handle = self.client.alloc_with(self.device, rm::NV50_MEMORY_VIRTUAL, &mut params)?;
        Ok((handle, params.offset, params.size))
    }

    /// At `va`, with tables for pages of 4 KiB or 2 MiB.
    fn range(&self, va: u64, size: u64) -> u32 {
        let huge = size >= HUGE;
        let attr = if huge { 3 << 23 } else { 1 << 23 };
        let params = rm::MemoryAlloc { offset: va, attr, ..self.params(AT | FORCE, size) };
        self.range_of(params).unwrap().0
    }

    fn map(&self, dma: u32, memory: u32, edit: impl FnOnce(&mut rm::RmMapMemoryDma)) -> Result<u64, Status> {
        let (h_client, h_device) = (self.client.root, self.device);
        let mut args = rm::RmMapMemoryDma { h_client, h_device, h_dma: dma, h_memory: memory, ..Default::default() };
        (args.length, args.flags) = (PAGE, FIXED);
        edit(&mut args);
        self.client.call(self.client.control, &rm::MAP_MEMORY_DMA, &mut args).unwrap();
        if args.status == 0 { Ok(args.dma_offset) } else { Err(Status(args.status)) }
    }

    fn unmap(&self, dma: u32, edit: impl FnOnce(&mut rm::RmUnmapMemoryDma)) -> Result<(), Status> {
        let (h_client, h_device) = (self.client.root, self.device);
        let mut args = rm::RmUnmapMemoryDma { h_client, h_device, h_dma: dma, ..Default::default() };
        edit(&mut args);
        self.client.call(self.client.control, &rm::UNMAP_MEMORY_DMA, &mut args).unwrap();
        if args.status == 0 { Ok(()) } else { Err(Status(args.status)) }
    }

    fn vram(&self, bytes: u64) -> u32 {
        let mut params = self.client.vram_params(bytes);
        self.client.alloc_with(self.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap()
    }

    /// The driver's memory, mapped at `va` and for the host.
    fn system(&self, va: u64, bytes: u64) -> (u32, DeviceView) {
        let mut params = self.client.system_params(bytes);
        let memory = self.client.alloc_with(self.device, rm::NV01_MEMORY_SYSTEM, &mut params).unwrap();
        let flags = FIXED | PAGES_4K | 1 << 4;
        let range = self.range(va, bytes);
        self.map(range, memory, |a| (a.dma_offset, a.length, a.flags) = (va, bytes, flags)).unwrap();
        let file = self.client.open("/dev/nvidiactl");
        (memory, self.client.map(self.device, memory, bytes, file).unwrap().0)
    }
}

/// A machine of a channel on a copy engine, in a space of RM.
struct Copier {
    plain: Plain,
    channel: u32,
    group: u32,
    words: [DeviceView; 3],
    doorbell: Doorbell,
    token: u32,
    put: u32,
}

const RING: u64 = BASE;
const PUSH: u64 = BASE + 0x10_0000;
const NOTIFIER: u64 = BASE + 0x20_0000;
const PAGE_OF_WORDS: u64 = BASE + 0x30_0000;
const ENTRIES: u32 = 16;

impl Copier {
    fn new(plain: Plain) -> Self {
        let client = &plain.client;
        let (ring, ring_view) = plain.system(RING, 2 * PAGE);
        let (_, push) = plain.system(PUSH, PAGE);
        let (notifier, notifier_view) = plain.system(NOTIFIER, PAGE);
        let mut params = rm::ChannelGroupAlloc { engine_type: 0x0b, h_va_space: plain.space, ..Default::default() };
        let group = client.alloc_with(plain.device, rm::KEPLER_CHANNEL_GROUP_A, &mut params).unwrap();
        let mut params = rm::ChannelAlloc {
            h_object_error: notifier,
            gp_fifo_offset: RING,
            gp_fifo_entries: ENTRIES,
            ..Default::default()
        };
        (params.h_userd_memory[0], params.userd_offset[0]) = (ring, PAGE);
        let channel = client.alloc_with(group, rm::HOPPER_CHANNEL_GPFIFO_A, &mut params).unwrap();
        let mut params = rm::CopyAlloc { version: 1, engine_type: 0x0b };
        client.alloc_with(channel, rm::HOPPER_DMA_COPY_A, &mut params).unwrap();
        let token = client.control(channel, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, Default::default());
        let token: rm::WorkSubmitToken = token.unwrap();
        let schedule = rm::GroupSchedule { b_enable: 1, ..Default::default() };
        client.control(group, &rm::GROUP_GPFIFO_SCHEDULE, schedule).unwrap();
        let usermode = client.alloc(plain.subdevice, rm::HOPPER_USERMODE_A).unwrap();
        let (page, _) = client.map(plain.device, usermode, 0x1_0000, client.card(0)).unwrap();
        let doorbell = Doorbell::new(&page, 0x90, &client.port).unwrap();
        let words = [ring_view, push, notifier_view];
        Self { plain, channel, group, words, doorbell, token: token.work_submit_token, put: 0 }
    }

    /// Methods as one entry.
    fn submit(&mut self, dwords: &[u32]) {
        let [ring, push, _] = &self.words;
        let at = u64::from(self.put) * 128;
        (0..).zip(dwords).for_each(|(n, word)| push.write_u32(at + 4 * n, *word).unwrap());
        let entry = (PUSH + at) | (dwords.len() as u64) << 42;
        ring.write_u64(u64::from(self.put) * 8, entry).unwrap();
        self.put += 1;
        ring.write_u32(PAGE + 0x8c, self.put).unwrap();
        self.doorbell.ring(self.token.into());
    }
}

#[test]
fn ranges_lie_where_they_are_asked_for_and_only_where_nothing_lies() {
    let plain = Plain::new();
    let at = |offset, size, flags| plain.range_of(rm::MemoryAlloc { offset, ..plain.params(AT | flags, size) });
    let (range, va, size) = at(BASE, PAGE, 0).unwrap();
    // Tables for both small page sizes: whole pages of the larger.
    assert_eq!((va, size), (BASE, BIG));
    for (offset, size) in [(BASE, PAGE), (BASE - BIG, 2 * BIG), (BASE + PAGE, PAGE)] {
        assert_eq!(at(offset, size, 0), Err(status::INSUFFICIENT_RESOURCES), "{offset:#x}");
    }
    assert_eq!(at(BASE + BIG, BIG, 0).unwrap().1, BASE + BIG);
    // Beyond the 57 bits of Hopper's addresses, and not at a whole page.
    assert_eq!(at(1 << 57, BIG, 0), Err(status::INSUFFICIENT_RESOURCES));
    assert_eq!(at(BASE + 4 * BIG + PAGE, PAGE, 0), Err(status::INSUFFICIENT_RESOURCES));
    let small = rm::MemoryAlloc { offset: BASE + 4 * BIG + PAGE, attr: 1 << 23, ..plain.params(AT | FORCE, PAGE) };
    assert_eq!(plain.range_of(small).map(|(_, va, size)| (va, size)), Ok((BASE + 4 * BIG + PAGE, PAGE)));
    let huge = rm::MemoryAlloc { offset: BASE + HUGE, attr: 3 << 23, ..plain.params(AT, PAGE) };
    assert_eq!(plain.range_of(huge).map(|(_, va, size)| (va, size)), Ok((BASE + HUGE, HUGE)));
    // A search goes to the lowest place, between the bounds if there are any.
    let bounds = rm::MemoryAlloc { range_lo: BASE, range_hi: BASE + HUGE - 1, ..plain.params(BETWEEN, BIG) };
    assert_eq!(plain.range_of(bounds).unwrap().1, BASE + 2 * BIG);
    let low = plain.range_of(plain.params(0, BIG)).unwrap().1;
    assert_eq!(low, BIG);
    plain.client.free(range).unwrap();
    assert_eq!(at(BASE, PAGE, 0).unwrap().1, BASE);
}

#[test]
fn ranges_that_rm_refuses_have_its_codes() {
    let plain = Plain::new();
    let refused = |edit: &dyn Fn(&mut rm::MemoryAlloc)| {
        let mut params = plain.params(AT, BIG);
        params.offset = BASE;
        edit(&mut params);
        plain.range_of(params).unwrap_err()
    };
    assert_eq!(refused(&|p| p.owner = 0), status::INVALID_OWNER);
    assert_eq!(refused(&|p| p.owner = 0xdeaf_0001), status::INVALID_OWNER);
    assert_eq!(refused(&|p| p.size = 0), status::INVALID_ARGUMENT);
    assert_eq!(refused(&|p| p.flags = AT), status::INVALID_ARGUMENT);
    assert_eq!(refused(&|p| p.internalflags = 1), status::INVALID_ARGUMENT);
    assert_eq!(refused(&|p| p.range_lo = BASE), status::INVALID_ARGUMENT, "bounds without their flag");
    assert_eq!(refused(&|p| p.h_va_space = 0x77), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(&|p| p.h_va_space = plain.device), status::INVALID_CLASS);
    assert_eq!(refused(&|p| p.alignment = 3 * BIG), status::INSUFFICIENT_RESOURCES);
    let error = plain.client.alloc_with(plain.subdevice, rm::NV50_MEMORY_VIRTUAL, &mut plain.params(0, BIG));
    assert_eq!(error, Err(status::INVALID_OBJECT_PARENT));
    // UVM's spaces are not RM's to give out.
    let device = Device::new(Chip::Sm90);
    let mut params = rm::MemoryAlloc { owner: device.client.root, h_va_space: device.space, ..plain.params(0, BIG) };
    let error = device.client.alloc_with(device.device, rm::NV50_MEMORY_VIRTUAL, &mut params);
    assert_eq!(error, Err(status::INSUFFICIENT_RESOURCES));
}

#[test]
fn mappings_that_rm_refuses_have_its_codes() {
    let plain = Plain::new();
    let (range, memory) = (plain.range(BASE, 2 * HUGE), plain.vram(HUGE));
    let refused = |edit: &dyn Fn(&mut rm::RmMapMemoryDma)| {
        let asked = plain.map(range, memory, |args| {
            args.dma_offset = BASE;
            edit(args);
        });
        asked.unwrap_err()
    };
    assert_eq!(refused(&|a| a.length = 0), status::INVALID_LIMIT);
    assert_eq!(refused(&|a| a.length = HUGE + PAGE), status::INVALID_LIMIT);
    assert_eq!(refused(&|a| (a.offset, a.length) = (u64::MAX, PAGE)), status::INVALID_LIMIT);
    assert_eq!(refused(&|a| a.h_dma = 0x77), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(&|a| a.h_memory = 0x77), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(&|a| a.h_device = 0x77), status::OBJECT_NOT_FOUND);
    assert_eq!(refused(&|a| a.h_device = plain.client.root), status::INVALID_OBJECT);
    assert_eq!(refused(&|a| a.h_device = plain.subdevice), status::NOT_SUPPORTED);
    assert_eq!(refused(&|a| a.h_dma = plain.space), status::INVALID_OBJECT_HANDLE, "the space itself is no range");
    assert_eq!(refused(&|a| a.h_memory = plain.space), status::INVALID_OBJECT_HANDLE);
    assert_eq!(refused(&|a| a.dma_offset = BASE - PAGE), status::INVALID_OFFSET);
    assert_eq!(refused(&|a| a.dma_offset = BASE + 2 * HUGE), status::INVALID_OFFSET);
    assert_eq!(refused(&|a| (a.dma_offset, a.flags) = (2 * HUGE, 0)), status::INVALID_OFFSET);
    let across = |a: &mut rm::RmMapMemoryDma| (a.dma_offset, a.length) = (BASE + 2 * HUGE - PAGE, 2 * PAGE);
    assert_eq!(refused(&|a| (across(a), a.flags = FIXED | PAGES_4K).0), status::INVALID_ARGUMENT);
    assert_eq!(refused(&|a| (a.dma_offset, a.flags) = (BASE + PAGE, FIXED | PAGES_HUGE)), status::INVALID_OFFSET);
    assert_eq!(refused(&|a| a.flags = FIXED | 7 << 8), status::INVALID_ARGUMENT);
    let mut params = plain.client.vram_params(HUGE);
    params.attr2 |= 1 << 22;
    let constant = plain.client.alloc_with(plain.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
    assert_eq!(refused(&|a| a.h_memory = constant), status::INVALID_ARGUMENT, "memory that is only read");
    let read = plain.map(range, constant, |a| (a.dma_offset, a.flags, a.length) = (BASE, FIXED | READ_ONLY, HUGE));
    assert_eq!(read, Ok(BASE));
    assert_eq!(refused(&|a| a.flags = FIXED | PAGES_4K), status::INVALID_ARGUMENT);
    // Where no address is fixed it counts from the range's beginning.
    assert_eq!(plain.map(range, memory, |a| (a.dma_offset, a.flags, a.length) = (HUGE, 0, HUGE)), Ok(BASE + HUGE));
}

#[test]
fn what_is_unmapped_or_freed_is_gone_and_nothing_else() {
    let plain = Plain::new();
    let (range, memory) = (plain.range(BASE, HUGE), plain.vram(HUGE));
    let place = |at: u64| plain.map(range, memory, |a| (a.dma_offset, a.flags) = (BASE + at, FIXED | PAGES_4K));
    let place_all = || (0..4).for_each(|n| assert_eq!(place(n * PAGE), Ok(BASE + n * PAGE)));
    let taken = || (0..4).map(|n| u32::from(place(n * PAGE).is_err())).collect::<Vec<_>>();
    place_all();
    assert_eq!(plain.unmap(range, |a| a.dma_offset = BASE + 8 * PAGE), Err(status::OBJECT_NOT_FOUND));
    assert_eq!(plain.unmap(range, |a| a.dma_offset = BASE + 8), Err(status::OBJECT_NOT_FOUND));
    assert_eq!(plain.unmap(range, |a| (a.dma_offset, a.size) = (BASE + 8 * PAGE, PAGE)), Ok(()), "nothing to do");
    assert_eq!(plain.unmap(range, |a| (a.dma_offset, a.size) = (u64::MAX, 2)), Err(status::INVALID_ARGUMENT));
    assert_eq!(plain.unmap(range, |a| a.h_device = 0x77), Err(status::OBJECT_NOT_FOUND));
    plain.unmap(range, |a| a.dma_offset = BASE + PAGE).unwrap();
    assert_eq!(taken(), [1, 0, 1, 1]);
    // All of it again is there; parts of two mappings go by their addresses.
    plain.unmap(range, |a| (a.dma_offset, a.size) = (BASE + 2 * PAGE, 2 * PAGE)).unwrap();
    assert_eq!(taken(), [1, 1, 0, 0]);
    plain.unmap(range, |a| (a.dma_offset, a.size) = (BASE, 4 * PAGE)).unwrap();
    let two = plain.map(range, memory, |a| (a.dma_offset, a.length, a.flags) = (BASE, 2 * PAGE, FIXED | PAGES_4K));
    assert_eq!(two, Ok(BASE));
    plain.unmap(range, |a| (a.dma_offset, a.size) = (BASE, PAGE)).unwrap();
    assert_eq!(taken(), [0, 1, 0, 0]);
    plain.unmap(range, |a| a.dma_offset = BASE + PAGE).unwrap();
    plain.client.free(memory).unwrap();
    let memory = plain.vram(HUGE);
    let all = plain.map(range, memory, |a| (a.dma_offset, a.length) = (BASE, HUGE));
    assert_eq!(all, Ok(BASE), "mappings went with their memory");
}

#[test]
fn copies_and_semaphores_work_in_a_space_of_rm_and_stop_where_a_mapping_ends() {
    let mut own = Copier::new(Plain::new());
    let (_, words) = own.plain.system(PAGE_OF_WORDS, PAGE);
    words.write_u32(0, 0x1234_5678).unwrap();
    let (range, memory) = (own.plain.range(BASE + 0x4000_0000, HUGE), own.plain.vram(HUGE));
    let far = own.plain.map(range, memory, |a| (a.dma_offset, a.length) = (BASE + 0x4000_0000, HUGE)).unwrap();
    let bind = [0x2001_8000, rm::HOPPER_DMA_COPY_A];
    own.submit(&[&bind[..], &copy(PAGE_OF_WORDS, far, 4)].concat());
    own.submit(&copy(far, PAGE_OF_WORDS + 8, 4));
    own.submit(&release(PAGE_OF_WORDS + 64, 1));
    wait("the copies", || words.read_u64(64) == Ok(1));
    assert_eq!(words.read_u32(8), Ok(0x1234_5678));
    // The memory's handle is freed: the same copy is a fault now.
    own.plain.client.free(memory).unwrap();
    own.submit(&copy(far, PAGE_OF_WORDS + 8, 4));
    let notifier = own.words[2].clone();
    wait("the fault", || notifier.read_u32(12).is_ok_and(|word| word >> 16 == 0xffff));
    assert_eq!(notifier.read_u32(8), Ok(31));
    let client = &own.plain.client;
    let info = client.control(own.channel, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default()).unwrap();
    let info: rm::ChannelMmuFault = info;
    assert_eq!(u64::from(info.addr_hi) << 32 | u64::from(info.addr_lo), far);
    client.free(own.group).unwrap();
    client.free(own.plain.space).unwrap();
    assert_eq!(
        client.control_raw(range, 0x0041_0001, &mut [0; 4]),
        Err(status::OBJECT_NOT_FOUND),
        "ranges go with their space"
    );
}
