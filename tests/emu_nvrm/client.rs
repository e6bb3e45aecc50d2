//! A client of RM and UVM: calls as docs/nv.md 2 lists them, one function each, and push buffers as dwords typed from
//! docs/nv.md 3.

use bytemuck::Pod;
use doorbell::emu::nvrm::compute::{Compute, ComputeFault, Launch, Machine};
use doorbell::emu::nvrm::{Chip, Config, Report, SoftNv};
use doorbell_ioctl::abi::nvrm::{self as rm, Control, Status};
use doorbell_ioctl::abi::{Ioctl, uvm};
use doorbell_ioctl::port::{CpuPtr, DeviceView, Doorbell, Errno, Fd, MapRequest, Mapped, OpenFlags, Port};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const PAGE: u64 = 4096;
pub const HUGE: u64 = 2 << 20;
/// VRAM: ignore bank, force alignment, handle provided, map not required, persistent.
pub const VRAM_FLAGS: u32 = 0x1_c101;
pub const SYSTEM_FLAGS: u32 = 0xc101;
pub const PCI: u32 = 1 << 25;
/// Where the tests put things: buffers from here on, channels' contexts there.
pub const BUFFERS: u64 = 0x20_0000_0000;
pub const CONTEXTS: u64 = 0x30_0000_0000;
/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Grids that a test has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub launches: Mutex<Vec<Launch>>,
}

/// What a test's SMs do with a grid.
type Act = dyn Fn(&Launch, &Machine<'_>) -> Result<(), ComputeFault> + Send + Sync;

/// SMs of a test: keep the grid, then act.
pub struct TestSms {
    pub seen: Arc<Seen>,
    pub act: Box<Act>,
}

impl std::fmt::Debug for TestSms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestSms")
    }
}

impl Compute for TestSms {
    fn run(&self, launch: &Launch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        self.seen.launches.lock().unwrap().push(launch.clone());
        (self.act)(launch, machine)
    }
}

/// A machine whose grids run a test's closure.
pub fn machine(
    config: Config,
    act: impl Fn(&Launch, &Machine<'_>) -> Result<(), ComputeFault> + Send + Sync + 'static,
) -> (Arc<SoftNv>, Arc<Seen>) {
    let seen = Arc::<Seen>::default();
    let sms = TestSms { seen: Arc::clone(&seen), act: Box::new(act) };
    (SoftNv::with_compute(config, Arc::new(sms)).unwrap(), seen)
}

/// Files and root client of a process.
pub struct Client {
    pub machine: Arc<SoftNv>,
    pub port: Arc<dyn Port>,
    pub control: Fd,
    pub root: u32,
}

impl Client {
    pub fn new(chip: Chip) -> Self {
        Self::of(SoftNv::new(Config::new(chip)).unwrap())
    }

    /// Control file and root client.
    pub fn of(machine: Arc<SoftNv>) -> Self {
        let port: Arc<dyn Port> = Arc::clone(&machine) as _;
        let control = port.open("/dev/nvidiactl", OpenFlags::DEVICE).unwrap();
        let mut client = Self { machine, port, control, root: 0 };
        client.root = client.alloc_raw(0, 0, 0, rm::NV01_ROOT_CLIENT, 0).unwrap();
        client
    }

    pub fn call<T: Pod>(&self, fd: Fd, ioctl: &Ioctl<T>, args: &mut T) -> Result<i32, Errno> {
        self.port.ioctl(fd, ioctl.desc.request, bytemuck::bytes_of_mut(args))
    }

    pub fn open(&self, path: &str) -> Fd {
        self.port.open(path, OpenFlags::DEVICE).unwrap()
    }

    /// /dev/nvidia0, registered.
    pub fn card(&self, gpu: usize) -> Fd {
        let fd = self.open(&format!("/dev/nvidia{gpu}"));
        self.call(fd, &rm::REGISTER_FD, &mut rm::RegisterFd { ctl_fd: self.control.0 }).unwrap();
        fd
    }

    pub fn alloc_raw(&self, root: u32, parent: u32, handle: u32, class: u32, params: u64) -> Result<u32, Status> {
        let mut args = rm::RmAlloc {
            h_root: root,
            h_object_parent: parent,
            h_object_new: handle,
            h_class: class,
            p_alloc_parms: params,
            ..Default::default()
        };
        self.call(self.control, &rm::ALLOC, &mut args).unwrap();
        if args.status == 0 { Ok(args.h_object_new) } else { Err(Status(args.status)) }
    }

    /// An object whose class takes no params.
    pub fn alloc(&self, parent: u32, class: u32) -> Result<u32, Status> {
        self.alloc_raw(self.root, parent, 0, class, 0)
    }

    pub fn alloc_with<T: Pod>(&self, parent: u32, class: u32, params: &mut T) -> Result<u32, Status> {
        self.alloc_raw(self.root, parent, 0, class, params as *mut T as u64)
    }

    pub fn free(&self, handle: u32) -> Result<(), Status> {
        let mut args = rm::RmFree { h_root: self.root, h_object_old: handle, ..Default::default() };
        self.call(self.control, &rm::FREE, &mut args).unwrap();
        if args.status == 0 { Ok(()) } else { Err(Status(args.status)) }
    }

    pub fn control_raw(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<(), Status> {
        let mut args = rm::RmControl {
            h_client: self.root,
            h_object: object,
            cmd,
            params: if params.is_empty() { 0 } else { params.as_mut_ptr() as u64 },
            params_size: params.len() as u32,
            ..Default::default()
        };
        self.call(self.control, &rm::CONTROL, &mut args).unwrap();
        if args.status == 0 { Ok(()) } else { Err(Status(args.status)) }
    }

    pub fn control<T: Pod>(&self, object: u32, control: &Control<T>, mut params: T) -> Result<T, Status> {
        self.control_raw(object, control.cmd, bytemuck::bytes_of_mut(&mut params)).map(|()| params)
    }

    pub fn vram_params(&self, bytes: u64) -> rm::MemoryAlloc {
        let huge = bytes >= HUGE;
        rm::MemoryAlloc {
            owner: self.root,
            flags: VRAM_FLAGS,
            attr: 3 << 27 | if huge { 3 << 23 } else { 0 },
            attr2: 1 | 1 << 2 | if huge { 1 << 20 } else { 0 },
            format: 6,
            size: bytes,
            alignment: if huge { HUGE } else { PAGE },
            limit: bytes - 1,
            ..Default::default()
        }
    }

    pub fn system_params(&self, bytes: u64) -> rm::MemoryAlloc {
        let params = self.vram_params(bytes);
        rm::MemoryAlloc {
            kind: 13,
            flags: SYSTEM_FLAGS,
            attr: 3 << 27 | PCI,
            attr2: 1 | 2 << 2,
            alignment: PAGE,
            ..params
        }
    }

    /// MAP_MEMORY on a fresh file, mmap, view.
    pub fn map(&self, device: u32, memory: u32, bytes: u64, file: Fd) -> Result<(DeviceView, u64), Status> {
        let mut args = rm::RmMapMemory { fd: file.0, ..Default::default() };
        args.params.h_client = self.root;
        args.params.h_device = device;
        args.params.h_memory = memory;
        args.params.length = bytes;
        self.call(self.control, &rm::MAP_MEMORY, &mut args).unwrap();
        if args.params.status != 0 {
            return Err(Status(args.params.status));
        }
        let mapped = Mapped::new(&self.port, &MapRequest::file(file, 0, bytes)).unwrap();
        Ok((Arc::new(mapped).view().unwrap(), args.params.p_linear_address))
    }
}

/// A process with a card, up to registered address space: docs/nv.md 2, steps 1 to 14.
pub struct Device {
    pub client: Client,
    pub card: Fd,
    pub device: u32,
    pub subdevice: u32,
    pub usermode: DeviceView,
    pub space: u32,
    pub uuid: [u8; 16],
    pub uvm: Fd,
    next_va: Mutex<u64>,
    next_context: Mutex<u64>,
}

/// Memory mapped for the GPU and the processor.
pub struct Buffer {
    pub handle: u32,
    pub va: u64,
    pub view: DeviceView,
}

/// A channel ready for work.
pub struct Channel {
    pub handle: u32,
    pub group: u32,
    pub ring: Buffer,
    pub notifier: Buffer,
    pub push: Buffer,
    pub entries: u32,
    pub put: u32,
    pub at: u64,
    pub doorbell: Doorbell,
    pub token: u32,
}

pub fn uvm_status(outcome: Result<i32, Errno>, status: u32) -> Result<(), Status> {
    assert_eq!(outcome, Ok(0));
    if status == 0 { Ok(()) } else { Err(Status(status)) }
}

impl Device {
    pub fn new(chip: Chip) -> Self {
        Self::of(SoftNv::new(Config::new(chip)).unwrap())
    }

    pub fn with_sms(
        chip: Chip,
        act: impl Fn(&Launch, &Machine<'_>) -> Result<(), ComputeFault> + Send + Sync + 'static,
    ) -> (Self, Arc<Seen>) {
        let (machine, seen) = machine(Config::new(chip), act);
        (Self::of(machine), seen)
    }

    pub fn of(machine: Arc<SoftNv>) -> Self {
        let client = Client::of(machine);
        let uvm = client.open("/dev/nvidia-uvm");
        let uvm_mm = client.open("/dev/nvidia-uvm");
        client.call(uvm, &uvm::INITIALIZE, &mut uvm::Initialize::default()).unwrap();
        let mut mm = uvm::MmInitialize { uvm_fd: uvm.0, ..Default::default() };
        client.call(uvm_mm, &uvm::MM_INITIALIZE, &mut mm).unwrap();
        assert_eq!(mm.rm_status, 0);
        let card = client.card(0);
        let mut params = rm::DeviceAlloc { h_client_share: client.root, ..Default::default() };
        let device = client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params).unwrap();
        let subdevice = client.alloc_with(device, rm::NV20_SUBDEVICE_0, &mut rm::SubdeviceAlloc::default()).unwrap();
        let class = client.control(device, &rm::GPU_GET_CLASSLIST_V2, rm::ClassList::default()).unwrap();
        let has = |class_id: &u32| class.class_list[..class.num_classes as usize].contains(class_id);
        let usermodes = [rm::BLACKWELL_USERMODE_A, rm::HOPPER_USERMODE_A, rm::AMPERE_USERMODE_A, rm::TURING_USERMODE_A];
        let usermode_class = *usermodes.iter().find(|class| has(class)).unwrap();
        let usermode = client.alloc(subdevice, usermode_class).unwrap();
        let (view, _) = client.map(device, usermode, 0x1_0000, client.card(0)).unwrap();
        let mut params = space_params();
        let space = client.alloc_with(device, rm::FERMI_VASPACE_A, &mut params).unwrap();
        let gid = rm::GidInfo { flags: 2, length: 16, ..Default::default() };
        let gid = client.control(subdevice, &rm::GPU_GET_GID_INFO, gid).unwrap();
        let uuid: [u8; 16] = gid.data[..16].try_into().unwrap();
        let (next_va, next_context) = (Mutex::new(BUFFERS), Mutex::new(CONTEXTS));
        let own = Self { client, card, device, subdevice, usermode: view, space, uuid, uvm, next_va, next_context };
        own.register_gpu().unwrap();
        own.register_space(space).unwrap();
        own
    }

    pub fn register_gpu(&self) -> Result<(), Status> {
        let mut args = uvm::RegisterGpu { gpu_uuid: self.uuid, rm_ctrl_fd: -1, ..Default::default() };
        let outcome = self.client.call(self.uvm, &uvm::REGISTER_GPU, &mut args);
        uvm_status(outcome, args.rm_status)
    }

    pub fn register_space(&self, space: u32) -> Result<(), Status> {
        let mut args = uvm::RegisterGpuVaSpace {
            gpu_uuid: self.uuid,
            rm_ctrl_fd: self.client.control.0,
            h_client: self.client.root,
            h_va_space: space,
            rm_status: 0,
        };
        let outcome = self.client.call(self.uvm, &uvm::REGISTER_GPU_VASPACE, &mut args);
        uvm_status(outcome, args.rm_status)
    }

    pub fn create_range(&self, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::CreateExternalRange { base, length, ..Default::default() };
        let outcome = self.client.call(self.uvm, &uvm::CREATE_EXTERNAL_RANGE, &mut args);
        uvm_status(outcome, args.rm_status)
    }

    pub fn map_range(&self, memory: u32, base: u64, length: u64, kind: u32) -> Result<(), Status> {
        self.map_part(memory, 0, base, length, kind)
    }

    pub fn map_part(&self, memory: u32, offset: u64, base: u64, length: u64, kind: u32) -> Result<(), Status> {
        let mut args: Box<uvm::MapExternalAllocation> = Box::default();
        (args.base, args.length, args.offset) = (base, length, offset);
        args.per_gpu_attributes[0].gpu_uuid = self.uuid;
        args.per_gpu_attributes[0].gpu_mapping_type = kind;
        args.gpu_attributes_count = 1;
        args.rm_ctrl_fd = self.client.control.0;
        (args.h_client, args.h_memory) = (self.client.root, memory);
        let outcome = self.client.call(self.uvm, &uvm::MAP_EXTERNAL_ALLOCATION, &mut *args);
        uvm_status(outcome, args.rm_status)
    }

    pub fn free_range(&self, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::Free { base, length, ..Default::default() };
        let outcome = self.client.call(self.uvm, &uvm::FREE, &mut args);
        uvm_status(outcome, args.rm_status)
    }

    /// Free addresses, a huge page apart.
    pub fn take_va(&self, bytes: u64) -> u64 {
        let mut next = self.next_va.lock().unwrap();
        let va = *next;
        *next += bytes.next_multiple_of(HUGE) + HUGE;
        va
    }

    pub fn vram(&self, bytes: u64) -> Buffer {
        let mut params = self.client.vram_params(bytes);
        let handle = self.client.alloc_with(self.device, rm::NV01_MEMORY_LOCAL_USER, &mut params).unwrap();
        self.buffer(handle, params.size, self.client.card(0))
    }

    pub fn system(&self, bytes: u64) -> Buffer {
        let mut params = self.client.system_params(bytes);
        let handle = self.client.alloc_with(self.device, rm::NV01_MEMORY_SYSTEM, &mut params).unwrap();
        self.buffer(handle, params.size, self.client.open("/dev/nvidiactl"))
    }

    fn buffer(&self, handle: u32, bytes: u64, file: Fd) -> Buffer {
        let va = self.take_va(bytes);
        self.create_range(va, bytes).unwrap();
        self.map_range(handle, va, bytes, uvm::MAPPING_READ_WRITE_ATOMIC).unwrap();
        let (view, _) = self.client.map(self.device, handle, bytes, file).unwrap();
        Buffer { handle, va, view }
    }

    pub fn group(&self, engine_type: u32, space: u32) -> u32 {
        let mut params = rm::ChannelGroupAlloc { engine_type, h_va_space: space, ..Default::default() };
        self.client.alloc_with(self.device, rm::KEPLER_CHANNEL_GROUP_A, &mut params).unwrap()
    }

    pub fn share(&self, group: u32) -> u32 {
        let mut params = rm::CtxShareAlloc { h_va_space: self.space, flags: 1, ..Default::default() };
        self.client.alloc_with(group, rm::FERMI_CONTEXT_SHARE_A, &mut params).unwrap()
    }

    /// Params of a channel whose ring starts at `ring`, followed by its USERD.
    pub fn channel_params(&self, ring: &Buffer, notifier: &Buffer, share: u32, entries: u32) -> rm::ChannelAlloc {
        let mut params = rm::ChannelAlloc {
            h_object_error: notifier.handle,
            gp_fifo_offset: ring.va,
            gp_fifo_entries: entries,
            h_context_share: share,
            ..Default::default()
        };
        params.h_userd_memory[0] = ring.handle;
        params.userd_offset[0] = u64::from(entries) * 8;
        params
    }

    pub fn gpfifo_class(&self) -> u32 {
        let classes = self.client.control(self.device, &rm::GPU_GET_CLASSLIST_V2, rm::ClassList::default()).unwrap();
        let order = [
            rm::BLACKWELL_CHANNEL_GPFIFO_B,
            rm::BLACKWELL_CHANNEL_GPFIFO_A,
            rm::HOPPER_CHANNEL_GPFIFO_A,
            rm::AMPERE_CHANNEL_GPFIFO_A,
            rm::TURING_CHANNEL_GPFIFO_A,
        ];
        *order.iter().find(|class| classes.class_list.contains(class)).unwrap()
    }

    /// A channel in a group, with an object of `class`, registered; not scheduled.
    pub fn channel_in(&self, group: u32, share: u32, class: u32) -> Channel {
        self.channel_with(group, share, |channel| self.client.alloc(channel, class))
    }

    fn channel_with(&self, group: u32, share: u32, object: impl FnOnce(u32) -> Result<u32, Status>) -> Channel {
        const ENTRIES: u32 = 64;
        let ring = self.vram(PAGE * 2);
        let notifier = self.system(PAGE);
        let mut params = self.channel_params(&ring, &notifier, share, ENTRIES);
        let handle = self.client.alloc_with(group, self.gpfifo_class(), &mut params).unwrap();
        object(handle).unwrap();
        let token = self.client.control(handle, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, rm::WorkSubmitToken::default());
        let doorbell = Doorbell::new(&self.usermode, 0x90, &self.client.port).unwrap();
        let push = self.system(1 << 16);
        let token = token.unwrap().work_submit_token;
        let context = {
            let mut next = self.next_context.lock().unwrap();
            *next += 512 << 20;
            *next
        };
        self.register_channel(handle, context, 512 << 20).unwrap();
        Channel { handle, group, ring, notifier, push, entries: ENTRIES, put: 0, at: 0, doorbell, token }
    }

    pub fn register_channel(&self, channel: u32, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::RegisterChannel {
            gpu_uuid: self.uuid,
            rm_ctrl_fd: self.client.control.0,
            h_client: self.client.root,
            h_channel: channel,
            base,
            length,
            ..Default::default()
        };
        let outcome = self.client.call(self.uvm, &uvm::REGISTER_CHANNEL, &mut args);
        uvm_status(outcome, args.rm_status)
    }

    pub fn schedule(&self, group: u32) -> Result<(), Status> {
        let params = rm::GroupSchedule { b_enable: 1, ..Default::default() };
        self.client.control(group, &rm::GROUP_GPFIFO_SCHEDULE, params).map(|_| ())
    }

    /// A compute channel ready for work, its object bound to subchannel 1, with its windows.
    pub fn compute(&self) -> Channel {
        let group = self.group(1, 0);
        let share = self.share(group);
        let class = self.facts().compute_class;
        let mut channel = self.channel_in(group, share, class);
        self.schedule(group).unwrap();
        channel.submit(&[0x2001_2000, class, 0x2002_20a8, 0x7294, 0, 0x2002_21ec, 0x7293, 0]);
        channel
    }

    /// A copy channel of an engine of its own, its object bound to subchannel 4.
    pub fn copy(&self, engine: u32) -> Channel {
        let group = self.group(engine, self.space);
        let class = self.facts().copy_class;
        let mut params = rm::CopyAlloc { version: 1, engine_type: engine };
        let mut channel = self.channel_with(group, 0, |handle| self.client.alloc_with(handle, class, &mut params));
        self.schedule(group).unwrap();
        channel.submit(&[0x2001_8000, class]);
        channel
    }

    pub fn facts(&self) -> &'static doorbell::emu::nvrm::chip::ChipFacts {
        let arch = self.client.control(self.subdevice, &rm::MC_GET_ARCH_INFO, rm::ArchInfo::default()).unwrap();
        let chips = Chip::ALL.into_iter().map(Chip::facts);
        let mut own = chips.filter(|f| (f.architecture, f.implementation) == (arch.architecture, arch.implementation));
        own.next().unwrap()
    }

    pub fn reports(&self) -> Vec<Report> {
        self.client.machine.reports()
    }
}

/// Index 0, page-faulting and externally owned.
pub fn space_params() -> rm::VaSpaceAlloc {
    rm::VaSpaceAlloc { flags: 0x48, va_base: 0x1000, va_size: 0x1_ffff_fb00_0000, ..Default::default() }
}

impl Channel {
    /// Writes a push buffer and its entry, without a doorbell.
    pub fn push(&mut self, words: &[u32]) {
        let bytes = words.len() as u64 * 4;
        if self.at + bytes > self.push.view.len_bytes() {
            self.at = 0;
        }
        for (n, word) in words.iter().enumerate() {
            self.push.view.write_u32(self.at + n as u64 * 4, *word).unwrap();
        }
        let va = self.push.va + self.at;
        self.entry([va as u32, (va >> 32) as u32 | (words.len() as u32) << 10]);
        self.at += bytes;
    }

    /// Writes an entry of the ring.
    pub fn entry(&mut self, words: [u32; 2]) {
        for (n, word) in words.into_iter().enumerate() {
            self.ring.view.write_u32(u64::from(self.put) * 8 + n as u64 * 4, word).unwrap();
        }
        self.put = (self.put + 1) % self.entries;
    }

    /// GPPut and doorbell.
    pub fn ring(&self) {
        self.ring.view.write_u32(u64::from(self.entries) * 8 + 0x8c, self.put).unwrap();
        self.doorbell.ring(self.token.into());
    }

    pub fn submit(&mut self, words: &[u32]) {
        self.push(words);
        self.ring();
    }

    /// The error record: code and status.
    pub fn error(&self) -> (u32, u16) {
        (self.notifier.view.read_u32(8).unwrap(), self.notifier.view.read_u16(14).unwrap())
    }

    /// Waits for an error.
    pub fn wait_error(&self) -> u32 {
        wait("an error in the notifier", || self.error().1 == 0xffff);
        self.error().0
    }
}

impl Buffer {
    pub fn wait_u64(&self, offset: u64, value: u64) {
        let what = format!("{value:#x} at {offset:#x}");
        wait(&what, || self.view.load_acquire_u64(offset).unwrap() == value);
    }
}

pub fn wait(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Host semaphore release of 64 bits with timestamp, after WFI (docs/nv.md 3.3).
pub fn release(va: u64, value: u64) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, value as u32, (value >> 32) as u32, 0x0310_0001]
}

/// Host semaphore acquire: at least, 64 bits, switch.
pub fn acquire(va: u64, value: u64) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, value as u32, (value >> 32) as u32, 0x0100_1002]
}

/// Anonymous shared memory of the process, for pinning.
pub fn host_memory(port: &Arc<dyn Port>, bytes: u64) -> (CpuPtr, DeviceView) {
    let mapped = Arc::new(Mapped::new(port, &MapRequest::anonymous_shared(bytes)).unwrap());
    (mapped.base(), mapped.view().unwrap())
}
