//! A client of KFD that shares nothing with ours: ioctls as raw bytes at the offsets of docs/amd.md 1.2, packets as
//! dwords typed from docs/amd.md 2 and 3.

use doorbell::emu::kfd::compute::{Compute, ComputeFault, Dispatch, Machine};
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell_ioctl::port::{DeviceView, Doorbell, Errno, Fd, MapRequest, Mapped, OpenFlags, Port};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const GET_VERSION: u32 = 0x8008_4b01;
pub const CREATE_QUEUE: u32 = 0xc060_4b02;
pub const CREATE_QUEUE_OLD: u32 = 0xc058_4b02;
pub const DESTROY_QUEUE: u32 = 0xc008_4b03;
pub const UPDATE_QUEUE: u32 = 0x4018_4b07;
pub const CREATE_EVENT: u32 = 0xc020_4b08;
pub const DESTROY_EVENT: u32 = 0x4008_4b09;
pub const SET_EVENT: u32 = 0x4008_4b0a;
pub const WAIT_EVENTS: u32 = 0xc018_4b0c;
pub const ACQUIRE_VM: u32 = 0x4008_4b15;
pub const ALLOC: u32 = 0xc028_4b16;
pub const FREE: u32 = 0x4008_4b17;
pub const MAP: u32 = 0xc018_4b18;
pub const UNMAP: u32 = 0xc018_4b19;

pub const VRAM: u32 = 1 << 0;
pub const GTT: u32 = 1 << 1;
pub const USERPTR: u32 = 1 << 2;
pub const PUBLIC: u32 = 1 << 29;
pub const EXECUTABLE: u32 = 1 << 30;
pub const WRITABLE: u32 = 1 << 31;
/// Coherent, uncached, not substituted, writable, executable.
pub const HOST: u32 = GTT | 1 << 25 | 1 << 26 | 1 << 28 | EXECUTABLE | WRITABLE;
const PAGE: u64 = 4096;

/// Bytes of a struct.
#[derive(Clone, Debug)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    pub fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    pub fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    pub fn get32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    pub fn get64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap())
    }
}

/// A process with one card.
pub struct Client {
    pub machine: Arc<SoftKfd>,
    pub port: Arc<dyn Port>,
    pub kfd: Fd,
    pub render: Fd,
    pub gpu_id: u32,
    /// Buffers of queues that are never read; their addresses stay in use.
    kept: Mutex<Vec<Buffer>>,
}

/// A buffer at the CPU's address.
pub struct Buffer {
    pub handle: u64,
    pub va: u64,
    pub view: DeviceView,
}

/// Which kind of ring, as CREATE_QUEUE numbers them.
pub const PM4: u32 = 0;
pub const SDMA: u32 = 1;
pub const AQL: u32 = 2;

/// A queue with its buffers.
pub struct Queue {
    pub id: u32,
    pub kind: u32,
    pub ring: Buffer,
    pub pointers: Buffer,
    pub doorbell: Doorbell,
    pub args: Bytes,
    pub ring_bytes: u64,
    pub put: u64,
}

impl Client {
    pub fn new(chip: Chip) -> Self {
        Self::of(SoftKfd::new(Config::new(chip)).unwrap())
    }

    pub fn with_compute(chip: Chip, compute: Arc<dyn Compute>) -> Self {
        Self::of(SoftKfd::with_compute(Config::new(chip), compute).unwrap())
    }

    /// Opens the first card and binds its address space.
    pub fn of(machine: Arc<SoftKfd>) -> Self {
        let client = Self::unbound(machine);
        let bind = Bytes::new(8).u32(0, client.render.0 as u32).u32(4, client.gpu_id);
        client.ioctl(ACQUIRE_VM, bind).unwrap();
        client
    }

    /// Opens the first card.
    pub fn unbound(machine: Arc<SoftKfd>) -> Self {
        let port: Arc<dyn Port> = Arc::clone(&machine) as _;
        let kfd = port.open("/dev/kfd", OpenFlags::DEVICE).unwrap();
        let render = port.open("/dev/dri/renderD128", OpenFlags::DEVICE).unwrap();
        let id = port.read_file("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id").unwrap();
        let gpu_id = String::from_utf8(id).unwrap().trim().parse().unwrap();
        Self { machine, port, kfd, render, gpu_id, kept: Mutex::default() }
    }

    pub fn ioctl(&self, request: u32, mut bytes: Bytes) -> Result<Bytes, Errno> {
        self.port.ioctl(self.kfd, request, &mut bytes.0).map(|rc| {
            assert_eq!(rc, 0);
            bytes
        })
    }

    /// The result of the call with these bytes.
    pub fn refusal(&self, request: u32, bytes: Bytes) -> Errno {
        self.ioctl(request, bytes).unwrap_err()
    }

    pub fn alloc_args(&self, va: u64, len: u64, flags: u32) -> Bytes {
        Bytes::new(40).u64(0, va).u64(8, len).u32(32, self.gpu_id).u32(36, flags)
    }

    /// Allocates and maps on the CPU; not on the card.
    pub fn alloc(&self, len: u64, flags: u32) -> Buffer {
        let reserved = Mapped::reserve(&self.port, len, PAGE).unwrap();
        let va = reserved.base().0;
        let out = self.ioctl(ALLOC, self.alloc_args(va, len, flags)).unwrap();
        let mapped = Arc::new(reserved.back(self.render, out.get64(24)).unwrap());
        Buffer { handle: out.get64(16), va, view: mapped.view().unwrap() }
    }

    /// Args of MAP and UNMAP for this card.
    pub fn map_args(&self, handle: u64, ids: &[u32]) -> Bytes {
        let at = ids.as_ptr().expose_provenance() as u64;
        Bytes::new(24).u64(0, handle).u64(8, at).u32(16, ids.len() as u32)
    }

    pub fn map(&self, buffer: &Buffer) {
        let ids = [self.gpu_id];
        let out = self.ioctl(MAP, self.map_args(buffer.handle, &ids)).unwrap();
        assert_eq!(out.get32(20), 1, "n_success");
    }

    pub fn unmap(&self, buffer: &Buffer) -> Result<(), Errno> {
        let ids = [self.gpu_id];
        self.ioctl(UNMAP, self.map_args(buffer.handle, &ids)).map(|_| ())
    }

    /// Allocated and mapped everywhere.
    pub fn buffer(&self, len: u64, flags: u32) -> Buffer {
        let buffer = self.alloc(len, flags);
        self.map(&buffer);
        buffer
    }

    pub fn property(&self, name: &str) -> Option<u64> {
        let text = self.port.read_file("/sys/devices/virtual/kfd/kfd/topology/nodes/1/properties").unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(line.parse().unwrap())
    }

    /// A buffer whose address is all that is needed.
    fn kept(&self, len: u64, flags: u32) -> u64 {
        let buffer = self.buffer(len, flags);
        let va = buffer.va;
        self.kept.lock().unwrap().push(buffer);
        va
    }

    /// Struct of CREATE_QUEUE with all buffers in the kernel's sizes; ring and pointers as given.
    pub fn queue_args(&self, kind: u32, ring: &Buffer, read: u64, write: u64) -> Bytes {
        let args = Bytes::new(96)
            .u64(0, ring.va)
            .u64(8, write)
            .u64(16, read)
            .u32(32, ring.view.len_bytes() as u32)
            .u32(36, self.gpu_id)
            .u32(40, kind)
            .u32(44, 100)
            .u32(48, 7);
        if kind == SDMA {
            return args;
        }
        let eop = self.kept(PAGE, HOST);
        let ctl = self.property("ctl_stack_size").unwrap();
        let cwsr = self.property("cwsr_size").unwrap();
        let xccs = self.property("num_xcc").unwrap();
        let simds = self.property("simd_count").unwrap();
        // docs/amd.md 1.6: debug memory of 32 bytes a wave.
        let waves = if xccs > 1 { 1520 } else { simds / 2 * 32 };
        let debug = (waves * 32).next_multiple_of(64);
        let save = self.kept(((cwsr + debug) * xccs).next_multiple_of(PAGE), VRAM | EXECUTABLE | WRITABLE);
        args.u64(56, eop).u64(64, PAGE).u64(72, save).u32(80, cwsr as u32).u32(84, ctl as u32)
    }

    pub fn queue(&self, kind: u32) -> Queue {
        self.queue_of(kind, 0x1000)
    }

    pub fn queue_of(&self, kind: u32, ring_bytes: u64) -> Queue {
        let (ring, pointers) = (self.buffer(ring_bytes.max(PAGE), HOST), self.buffer(PAGE, HOST));
        let (read, write) = (pointers.va + 128, pointers.va + 56);
        if kind == AQL {
            // amd_queue_t: base, size, where the read pointer is, 64-bit pointers and profiling; every slot INVALID.
            pointers.view.write_u64(8, ring.va).unwrap();
            pointers.view.write_u32(24, (ring_bytes / 64) as u32).unwrap();
            pointers.view.write_u32(136, 128).unwrap();
            pointers.view.write_u32(180, 0xa).unwrap();
            (0..ring_bytes / 64).for_each(|slot| ring.view.write_u32(slot * 64, 1).unwrap());
        }
        let args = self.queue_args(kind, &ring, read, write).u32(32, ring_bytes as u32);
        self.open_queue(kind, ring, pointers, args)
    }

    pub fn open_queue(&self, kind: u32, ring: Buffer, pointers: Buffer, args: Bytes) -> Queue {
        let args = self.ioctl(CREATE_QUEUE, args).unwrap();
        let offset = args.get64(24);
        let map = MapRequest::file(self.kfd, offset & !0x1fff, 0x2000);
        let slice = Arc::new(Mapped::new(&self.port, &map).unwrap()).view().unwrap();
        let doorbell = Doorbell::new(&slice, offset & 0x1fff, &self.port).unwrap();
        let ring_bytes = u64::from(args.get32(32));
        Queue { id: args.get32(52), kind, ring, pointers, doorbell, args, ring_bytes, put: 0 }
    }

    pub fn destroy(&self, queue: &Queue) {
        self.ioctl(DESTROY_QUEUE, Bytes::new(8).u32(0, queue.id)).unwrap();
    }

    /// Gives a buffer back: from the card, the driver, and the CPU.
    pub fn release(&self, buffer: Buffer) {
        self.unmap(&buffer).unwrap();
        self.ioctl(FREE, Bytes::new(8).u64(0, buffer.handle)).unwrap();
    }

    /// Destroys a queue and gives all its buffers back.
    pub fn tear_down(&self, queue: Queue) {
        self.destroy(&queue);
        let kept = std::mem::take(&mut *self.kept.lock().unwrap());
        [queue.ring, queue.pointers].into_iter().chain(kept).for_each(|buffer| self.release(buffer));
    }

    /// Makes an event: its id (which is its slot). With a page for the first one.
    pub fn event(&self, kind: u32, page: Option<&Buffer>) -> u32 {
        let args = Bytes::new(32).u64(0, page.map_or(0, |p| p.handle)).u32(12, kind).u32(16, 1);
        self.ioctl(CREATE_EVENT, args).unwrap().get32(24)
    }

    /// Waits for any of the events: result, and their event_data.
    pub fn wait(&self, ids: &[u32], timeout_ms: u32) -> (u32, Vec<Bytes>) {
        let mut data: Vec<u8> = ids.iter().flat_map(|id| Bytes::new(48).u32(40, *id).0).collect();
        let at = data.as_mut_ptr().expose_provenance() as u64;
        let args = Bytes::new(24).u64(0, at).u32(8, ids.len() as u32).u32(16, timeout_ms);
        let out = self.ioctl(WAIT_EVENTS, args).unwrap();
        (out.get32(20), data.chunks(48).map(|c| Bytes(c.to_vec())).collect())
    }

    /// The reports as text.
    pub fn reports(&self) -> Vec<String> {
        self.machine.reports().iter().map(ToString::to_string).collect()
    }
}

impl Queue {
    /// Copies dwords to the ring and stores the write pointer; no doorbell.
    pub fn put_dwords(&mut self, words: &[u32]) {
        let len = self.ring_bytes / 4;
        let at = if self.kind == SDMA { self.put / 4 } else { self.put };
        for (i, word) in (at..).zip(words) {
            self.ring.view.write_u32(i % len * 4, *word).unwrap();
        }
        self.put += words.len() as u64 * if self.kind == SDMA { 4 } else { 1 };
        self.pointers.view.store_release_u64(56, self.put).unwrap();
    }

    pub fn ring_doorbell(&self) {
        self.doorbell.ring(if self.kind == AQL { self.put - 1 } else { self.put });
    }

    pub fn submit(&mut self, words: &[u32]) {
        self.put_dwords(words);
        self.ring_doorbell();
    }

    /// Puts one AQL packet: everything after the first dword, then the first dword, pointer, doorbell.
    pub fn submit_aql(&mut self, words: [u32; 16]) {
        let slot = self.put % (self.ring_bytes / 64) * 64;
        for (i, word) in (0..).zip(words).skip(1) {
            self.ring.view.write_u32(slot + i * 4, word).unwrap();
        }
        self.ring.view.store_release_u32(slot, words[0]).unwrap();
        self.put += 1;
        self.pointers.view.store_release_u64(56, self.put).unwrap();
        self.ring_doorbell();
    }

    pub fn read_pointer(&self) -> u64 {
        self.pointers.view.load_acquire_u64(128).unwrap()
    }
}

pub const fn lo(va: u64) -> u32 {
    va as u32
}

pub const fn hi(va: u64) -> u32 {
    (va >> 32) as u32
}

/// PM4 WRITE_DATA of one dword to memory with write confirm.
pub fn write_data(va: u64, value: u32) -> [u32; 5] {
    [0xc003_3700, 0x0010_0500, lo(va), hi(va), value]
}

/// PM4 RELEASE_MEM of 32 bits without flush or interrupt.
pub fn release_mem(va: u64, value: u32) -> [u32; 8] {
    [0xc006_4900, 0x514, 0x2000_0000, lo(va), hi(va), value, 0, 0]
}

/// Waits until the dword at `offset` has the value.
pub fn eventually(view: &DeviceView, offset: u64, value: u32) {
    // TIMEOUT: far beyond any run of these tests; a hang is a failure, not an endless test.
    let deadline = Instant::now() + Duration::from_secs(30);
    while view.read_u32(offset).unwrap() != value {
        assert!(Instant::now() < deadline, "dword at {offset:#x} is {:#x}", view.read_u32(offset).unwrap());
        std::thread::sleep(Duration::from_micros(200));
    }
    view.load_acquire_u64(offset & !7).unwrap();
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    // TIMEOUT: as above.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

type Act = dyn Fn(&Dispatch, &Machine<'_>) -> Result<(), ComputeFault> + Send + Sync;

/// Compute units that run a test's closure, and record their dispatches.
pub struct Double {
    act: Box<Act>,
    pub seen: Mutex<Vec<Dispatch>>,
}

impl Double {
    pub fn new(act: impl Fn(&Dispatch, &Machine<'_>) -> Result<(), ComputeFault> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { act: Box::new(act), seen: Mutex::default() })
    }

    /// A kernel that stores the number of its work-items where its first argument points.
    pub fn counting() -> Arc<Self> {
        Self::new(|dispatch, machine| {
            let memory = |fault| ComputeFault::Memory { fault, place: "a test's kernel".to_owned() };
            let kernarg = u64::from(dispatch.user_data[0]) | u64::from(dispatch.user_data[1]) << 32;
            let out = machine.vm.read_u64(kernarg).map_err(memory)?;
            let items: u32 = dispatch.groups.iter().product::<u32>() * dispatch.local.iter().product::<u32>();
            machine.vm.write_u32(out, items).map_err(memory)
        })
    }
}

impl fmt::Debug for Double {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Double")
    }
}

impl Compute for Double {
    fn run(&self, dispatch: &Dispatch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        self.seen.lock().unwrap().push(dispatch.clone());
        (self.act)(dispatch, machine)
    }
}
