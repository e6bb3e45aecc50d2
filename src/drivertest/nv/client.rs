//! A client of RM and UVM: a process on one card, call by call as docs/nv.md 2 lists them, with what it made in a list.
//!
//! RM's objects end with their client, UVM's ranges and registrations with their file; the end of a case frees them one
//! by one nevertheless, since every one of these calls is a driver's to get right.

pub(crate) use super::channel::{Channel, ENTRIES};
pub(crate) use super::code;
pub(crate) use super::methods::{acquire, copy, release, windows};
pub(crate) use super::outcome::{outcome, refused, refused_as, want};
use crate::bench::{Bench, forget_one};
use crate::case::{Problem, Step, holds, same};
use bytemuck::Pod;
use doorbell_ioctl::abi::nvrm::{self as rm, Control, Status};
use doorbell_ioctl::abi::{Ioctl, uvm};
use doorbell_ioctl::port::{DeviceView, Doorbell, Errno, Fd, MapRequest, Mapped, OpenFlags};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages of the card: small, and huge.
pub(crate) const PAGE: u64 = 4096;
/// See above.
pub(crate) const HUGE: u64 = 2 << 20;
/// Where a case's buffers and channels' contexts are.
const BUFFERS: u64 = 0x20_0000_0000;
const CONTEXTS: u64 = 0x30_0000_0000;
const CONTEXT_BYTES: u64 = 512 << 20;
/// VRAM: ignore bank, force alignment, handle provided, map not required, persistent.
const VRAM_FLAGS: u32 = 0x1_c101;
const SYSTEM_FLAGS: u32 = 0xc101;
const PCI: u32 = 1 << 25;
const USERMODE_BYTES: u64 = 0x1_0000;
const DOORBELL: u64 = 0x90;

/// Control file and root client of a process.
pub(crate) struct Client<'b> {
    /// The case's bench.
    pub bench: &'b Bench,
    /// `/dev/nvidiactl`.
    pub control: Fd,
    /// Handle of the client.
    pub root: u32,
    files: Mutex<Vec<Fd>>,
    objects: Mutex<Vec<u32>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'b> Client<'b> {
    /// Opens the control file and makes a client.
    ///
    /// # Errors
    /// A skip without the driver.
    pub(crate) fn new(bench: &'b Bench) -> Step<Self> {
        let control = bench.port.open("/dev/nvidiactl", OpenFlags::DEVICE);
        let control =
            control.map_err(|errno| Problem::Skipped { key: "no-driver", why: format!("/dev/nvidiactl: {errno}") })?;
        let mut client = Self { bench, control, root: 0, files: Mutex::default(), objects: Mutex::default() };
        client.root = want("ALLOC of a client", client.alloc_raw(0, 0, 0, rm::NV01_ROOT_CLIENT, 0))?;
        Ok(client)
    }

    /// A call that the system call itself must not refuse.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn call<T: Pod>(&self, fd: Fd, ioctl: &Ioctl<T>, args: &mut T) -> Result<(), Status> {
        match self.bench.port.ioctl(fd, ioctl.desc.request, bytemuck::bytes_of_mut(args)) {
            Ok(_) => Ok(()),
            // No status of RM's.
            Err(errno) => Err(Status(0xe000_0000 | errno.0.cast_unsigned())),
        }
    }

    /// A call by its bytes.
    ///
    /// # Errors
    /// The system call's.
    pub(crate) fn raw(&self, fd: Fd, request: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        self.bench.port.ioctl(fd, request, bytes)
    }

    /// Opens a file until the end of the case.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open(&self, path: &str) -> Step<Fd> {
        let fd = self.bench.port.open(path, OpenFlags::DEVICE)?;
        lock(&self.files).push(fd);
        Ok(fd)
    }

    /// Closes one of them now.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn close_file(&self, fd: Fd) -> Step {
        forget_one(&mut lock(&self.files), |open| *open == fd);
        Ok(self.bench.port.close(fd)?)
    }

    /// A card's file, registered for this client.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn card(&self, gpu: usize) -> Step<Fd> {
        let fd = self.open(&format!("/dev/nvidia{gpu}"))?;
        want("REGISTER_FD", self.call(fd, &rm::REGISTER_FD, &mut rm::RegisterFd { ctl_fd: self.control.0 }))?;
        Ok(fd)
    }

    /// ALLOC.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn alloc_raw(
        &self,
        root: u32,
        parent: u32,
        handle: u32,
        class: u32,
        params: u64,
    ) -> Result<u32, Status> {
        let mut args = rm::RmAlloc {
            h_root: root,
            h_object_parent: parent,
            h_object_new: handle,
            h_class: class,
            p_alloc_parms: params,
            ..Default::default()
        };
        self.call(self.control, &rm::ALLOC, &mut args)?;
        outcome(args.status)?;
        if root != 0 {
            lock(&self.objects).push(args.h_object_new);
        }
        Ok(args.h_object_new)
    }

    /// An object of a class without parameters.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn alloc(&self, parent: u32, class: u32) -> Result<u32, Status> {
        self.alloc_raw(self.root, parent, 0, class, 0)
    }

    /// An object of a class with its parameters.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn alloc_with<T: Pod>(&self, parent: u32, class: u32, params: &mut T) -> Result<u32, Status> {
        let at = (&raw mut *params).expose_provenance() as u64;
        self.alloc_raw(self.root, parent, 0, class, at)
    }

    /// FREE.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn free(&self, handle: u32) -> Result<(), Status> {
        let mut args = rm::RmFree { h_root: self.root, h_object_old: handle, ..Default::default() };
        self.call(self.control, &rm::FREE, &mut args)?;
        outcome(args.status)?;
        forget_one(&mut lock(&self.objects), |known| *known == handle);
        Ok(())
    }

    /// CONTROL by its bytes.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn control_raw(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<(), Status> {
        let at = if params.is_empty() { 0 } else { params.as_mut_ptr().expose_provenance() as u64 };
        let params_size = params.len() as u32;
        let mut args =
            rm::RmControl { h_client: self.root, h_object: object, cmd, params: at, params_size, ..Default::default() };
        self.call(self.control, &rm::CONTROL, &mut args)?;
        outcome(args.status)
    }

    /// CONTROL.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn control<T: Pod>(&self, object: u32, control: &Control<T>, mut params: T) -> Result<T, Status> {
        self.control_raw(object, control.cmd, bytemuck::bytes_of_mut(&mut params)).map(|()| params)
    }

    /// Parameters of VRAM.
    #[must_use]
    pub(crate) fn vram_params(&self, bytes: u64) -> rm::MemoryAlloc {
        let huge = bytes >= HUGE;
        rm::MemoryAlloc {
            owner: self.root,
            flags: VRAM_FLAGS,
            attr: 3 << 27 | if huge { 3 << 23 } else { 0 },
            attr2: 1 | 1 << 2 | if huge { 1 << 20 } else { 0 },
            format: 6,
            size: bytes,
            alignment: if huge { HUGE } else { PAGE },
            limit: bytes.wrapping_sub(1),
            ..Default::default()
        }
    }

    /// Parameters of the driver's memory of the host.
    #[must_use]
    pub(crate) fn system_params(&self, bytes: u64) -> rm::MemoryAlloc {
        let params = self.vram_params(bytes);
        let (attr, attr2) = (3 << 27 | PCI, 1 | 2 << 2);
        rm::MemoryAlloc { kind: 13, flags: SYSTEM_FLAGS, attr, attr2, alignment: PAGE, ..params }
    }

    /// MAP_MEMORY on a fresh file, mmap, view, and the cookie for UNMAP_MEMORY.
    ///
    /// # Errors
    /// RM's; of mmap(2) the kernel's.
    pub(crate) fn map(
        &self,
        device: u32,
        memory: u32,
        bytes: u64,
        file: Fd,
    ) -> Step<Result<(DeviceView, u64), Status>> {
        let mut args = rm::RmMapMemory { fd: file.0, ..Default::default() };
        (args.params.h_client, args.params.h_device) = (self.root, device);
        (args.params.h_memory, args.params.length) = (memory, bytes);
        if let Err(status) =
            self.call(self.control, &rm::MAP_MEMORY, &mut args).and_then(|()| outcome(args.params.status))
        {
            return Ok(Err(status));
        }
        let mapped = Mapped::new(&self.bench.port, &MapRequest::file(file, 0, bytes))?;
        Ok(Ok((Arc::new(mapped).view()?, args.params.p_linear_address)))
    }

    /// UNMAP_MEMORY.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn unmap(&self, h_device: u32, h_memory: u32, cookie: u64) -> Result<(), Status> {
        let mut args = rm::RmUnmapMemory {
            h_client: self.root,
            h_device,
            h_memory,
            p_linear_address: cookie,
            ..Default::default()
        };
        self.call(self.control, &rm::UNMAP_MEMORY, &mut args)?;
        outcome(args.status)
    }

    /// Frees every object, newest first, then the client, then the files.
    ///
    /// # Errors
    /// What is refused. An object that ended with another is not.
    pub(crate) fn end(self) -> Step {
        let objects = std::mem::take(&mut *lock(&self.objects));
        for handle in objects.into_iter().rev() {
            match self.free(handle) {
                Ok(()) | Err(code::OBJECT_NOT_FOUND) => {}
                Err(status) => return Err(Problem::Failed(format!("FREE of {handle:#x} at the end: {status}"))),
            }
        }
        want("FREE of the client", self.free(self.root))?;
        for fd in std::mem::take(&mut *lock(&self.files)) {
            self.bench.port.close(fd)?;
        }
        Ok(self.bench.port.close(self.control)?)
    }
}

/// Memory mapped for the card and the host.
pub(crate) struct Buffer {
    /// Handle of its memory.
    pub handle: u32,
    /// Where the card has it.
    pub va: u64,
    /// Where the host has it.
    pub view: DeviceView,
}

/// A process with a card and a registered address space.
pub(crate) struct Device<'b> {
    /// Files and objects.
    pub client: Client<'b>,
    /// `/dev/nvidia0`.
    pub card: Fd,
    /// Handles.
    pub device: u32,
    /// See above.
    pub subdevice: u32,
    /// See above.
    pub space: u32,
    /// The card.
    pub uuid: [u8; 16],
    /// The file with the process's address space.
    pub uvm: Fd,
    /// Classes of the card.
    pub classes: Vec<u32>,
    usermode: DeviceView,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    ranges: Vec<(u64, u64)>,
    groups: Vec<u32>,
    channels: Vec<u32>,
    mappings: Vec<(u32, u64)>,
    taken: u64,
    contexts: u64,
}

const USERMODES: [u32; 4] =
    [rm::BLACKWELL_USERMODE_A, rm::HOPPER_USERMODE_A, rm::AMPERE_USERMODE_A, rm::TURING_USERMODE_A];
const CHANNELS: [u32; 5] = [
    rm::BLACKWELL_CHANNEL_GPFIFO_B,
    rm::BLACKWELL_CHANNEL_GPFIFO_A,
    rm::HOPPER_CHANNEL_GPFIFO_A,
    rm::AMPERE_CHANNEL_GPFIFO_A,
    rm::TURING_CHANNEL_GPFIFO_A,
];
/// NV2080_ENGINE_TYPE of COPY0 to COPY9.
const COPY_ENGINES: std::ops::RangeInclusive<u32> = 0x09..=0x12;
/// CE_GET_CAPS_V2: it is on the graphics engine's runlist.
const CAPS_GRAPHICS: u16 = 1;
/// Compute and copy classes end in these bytes.
const COMPUTE: u32 = 0xc0;
const COPY: u32 = 0xb5;

/// Externally owned, with replayable faults, all of its bits but the lowest page.
#[must_use]
pub(crate) fn space_params() -> rm::VaSpaceAlloc {
    rm::VaSpaceAlloc { flags: 0x48, va_base: 0x1000, va_size: 0x1_ffff_fb00_0000, ..Default::default() }
}

impl<'b> Device<'b> {
    /// docs/nv.md 2, steps 1 to 14.
    ///
    /// # Errors
    /// What is refused on the way.
    pub(crate) fn new(bench: &'b Bench) -> Step<Self> {
        let client = Client::new(bench)?;
        let (uvm, uvm_mm) = (client.open("/dev/nvidia-uvm")?, client.open("/dev/nvidia-uvm")?);
        let mut args = uvm::Initialize::default();
        want("UVM_INITIALIZE", client.call(uvm, &uvm::INITIALIZE, &mut args).and_then(|()| outcome(args.rm_status)))?;
        let mut mm = uvm::MmInitialize { uvm_fd: uvm.0, ..Default::default() };
        want(
            "UVM_MM_INITIALIZE",
            client.call(uvm_mm, &uvm::MM_INITIALIZE, &mut mm).and_then(|()| outcome(mm.rm_status)),
        )?;
        let card = client.card(0)?;
        let mut params = rm::DeviceAlloc { h_client_share: client.root, ..Default::default() };
        let device = want("ALLOC of a device", client.alloc_with(client.root, rm::NV01_DEVICE_0, &mut params))?;
        let mut params = rm::SubdeviceAlloc::default();
        let subdevice = want("ALLOC of a subdevice", client.alloc_with(device, rm::NV20_SUBDEVICE_0, &mut params))?;
        let list = client.control(device, &rm::GPU_GET_CLASSLIST_V2, rm::ClassList::default());
        let list = want("GPU_GET_CLASSLIST_V2", list)?;
        let classes = list.class_list.get(..list.num_classes as usize).unwrap_or_default().to_vec();
        holds("the card has classes", !classes.is_empty())?;
        let usermode = pick(&classes, &USERMODES)?;
        let usermode = want("ALLOC of a usermode region", client.alloc(subdevice, usermode))?;
        let file = client.card(0)?;
        let (view, cookie) = want("MAP_MEMORY of it", client.map(device, usermode, USERMODE_BYTES, file)?)?;
        let space = want("ALLOC of a space", client.alloc_with(device, rm::FERMI_VASPACE_A, &mut space_params()))?;
        let asked = rm::GidInfo { flags: 2, length: 16, ..Default::default() };
        let gid = want("GPU_GET_GID_INFO", client.control(subdevice, &rm::GPU_GET_GID_INFO, asked))?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&gid.data[..16]);
        let made = Made { mappings: vec![(usermode, cookie)], taken: BUFFERS, contexts: CONTEXTS, ..Made::default() };
        let made = Mutex::new(made);
        let own = Self { client, card, device, subdevice, space, uuid, uvm, classes, usermode: view, made };
        want("UVM_REGISTER_GPU", own.register_gpu(own.uuid))?;
        want("UVM_REGISTER_GPU_VASPACE", own.register_space(own.space))?;
        Ok(own)
    }

    /// UVM's call with its status.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn uvm_call<T: Pod>(
        &self,
        ioctl: &Ioctl<T>,
        args: &mut T,
        status: impl Fn(&T) -> u32,
    ) -> Result<(), Status> {
        self.client.call(self.uvm, ioctl, args)?;
        outcome(status(args))
    }

    /// UVM_REGISTER_GPU.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn register_gpu(&self, gpu_uuid: [u8; 16]) -> Result<(), Status> {
        let mut args = uvm::RegisterGpu { gpu_uuid, rm_ctrl_fd: -1, ..Default::default() };
        self.uvm_call(&uvm::REGISTER_GPU, &mut args, |a| a.rm_status)
    }

    /// UVM_REGISTER_GPU_VASPACE.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn register_space(&self, h_va_space: u32) -> Result<(), Status> {
        let (rm_ctrl_fd, h_client) = (self.client.control.0, self.client.root);
        let mut args = uvm::RegisterGpuVaSpace { gpu_uuid: self.uuid, rm_ctrl_fd, h_client, h_va_space, rm_status: 0 };
        self.uvm_call(&uvm::REGISTER_GPU_VASPACE, &mut args, |a| a.rm_status)
    }

    /// UVM_CREATE_EXTERNAL_RANGE, freed at the end.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn create_range(&self, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::CreateExternalRange { base, length, ..Default::default() };
        self.uvm_call(&uvm::CREATE_EXTERNAL_RANGE, &mut args, |a| a.rm_status)?;
        lock(&self.made).ranges.push((base, length));
        Ok(())
    }

    /// UVM_FREE.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn free_range(&self, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::Free { base, length, ..Default::default() };
        self.uvm_call(&uvm::FREE, &mut args, |a| a.rm_status)?;
        forget_one(&mut lock(&self.made).ranges, |(known, _)| *known == base);
        Ok(())
    }

    /// UVM_MAP_EXTERNAL_ALLOCATION of a part of memory.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn map_part(&self, memory: u32, offset: u64, base: u64, length: u64, kind: u32) -> Result<(), Status> {
        let mut args: Box<uvm::MapExternalAllocation> = Box::default();
        (args.base, args.length, args.offset) = (base, length, offset);
        args.per_gpu_attributes[0].gpu_uuid = self.uuid;
        args.per_gpu_attributes[0].gpu_mapping_type = kind;
        args.gpu_attributes_count = 1;
        args.rm_ctrl_fd = self.client.control.0;
        (args.h_client, args.h_memory) = (self.client.root, memory);
        self.uvm_call(&uvm::MAP_EXTERNAL_ALLOCATION, &mut *args, |a| a.rm_status)
    }

    /// UVM_UNMAP_EXTERNAL.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn unmap_range(&self, base: u64, length: u64) -> Result<(), Status> {
        let mut args = uvm::UnmapExternal { base, length, gpu_uuid: self.uuid, ..Default::default() };
        self.uvm_call(&uvm::UNMAP_EXTERNAL, &mut args, |a| a.rm_status)
    }

    /// Free addresses, a huge page apart.
    pub(crate) fn take_va(&self, bytes: u64) -> u64 {
        let mut made = lock(&self.made);
        let va = made.taken;
        made.taken += bytes.next_multiple_of(HUGE) + HUGE;
        va
    }

    /// VRAM, mapped everywhere.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn vram(&self, bytes: u64) -> Step<Buffer> {
        let mut params = self.client.vram_params(bytes);
        let handle = self.client.alloc_with(self.device, rm::NV01_MEMORY_LOCAL_USER, &mut params);
        self.buffer(want("ALLOC of VRAM", handle)?, params.size, self.client.card(0)?)
    }

    /// The driver's memory of the host, mapped everywhere.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn system(&self, bytes: u64) -> Step<Buffer> {
        let mut params = self.client.system_params(bytes);
        let handle = self.client.alloc_with(self.device, rm::NV01_MEMORY_SYSTEM, &mut params);
        self.buffer(want("ALLOC of host memory", handle)?, params.size, self.client.open("/dev/nvidiactl")?)
    }

    fn buffer(&self, handle: u32, bytes: u64, file: Fd) -> Step<Buffer> {
        let va = self.take_va(bytes);
        want("UVM_CREATE_EXTERNAL_RANGE", self.create_range(va, bytes))?;
        let mapped = self.map_part(handle, 0, va, bytes, uvm::MAPPING_READ_WRITE_ATOMIC);
        want("UVM_MAP_EXTERNAL_ALLOCATION", mapped)?;
        let (view, cookie) = want("MAP_MEMORY", self.client.map(self.device, handle, bytes, file)?)?;
        lock(&self.made).mappings.push((handle, cookie));
        Ok(Buffer { handle, va, view })
    }

    /// An object of a class that has no limit and costs nothing: a usermode region.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn small_object(&self, handle: u32) -> Result<u32, Status> {
        let class = pick(&self.classes, &USERMODES).map_err(|_| code::INVALID_CLASS)?;
        self.client.alloc_raw(self.client.root, self.subdevice, handle, class, 0)
    }

    /// Its class.
    ///
    /// # Errors
    /// A skip for a card that has none of these.
    pub(crate) fn small_class(&self) -> Step<u32> {
        pick(&self.classes, &USERMODES)
    }

    /// A channel group.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn group(&self, engine_type: u32, h_va_space: u32) -> Step<u32> {
        let mut params = rm::ChannelGroupAlloc { engine_type, h_va_space, ..Default::default() };
        let group = self.client.alloc_with(self.device, rm::KEPLER_CHANNEL_GROUP_A, &mut params);
        let group = want("ALLOC of a channel group", group)?;
        lock(&self.made).groups.push(group);
        Ok(group)
    }

    /// A context share of a group.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn share(&self, group: u32) -> Step<u32> {
        let mut params = rm::CtxShareAlloc { h_va_space: self.space, flags: 1, ..Default::default() };
        let share = self.client.alloc_with(group, rm::FERMI_CONTEXT_SHARE_A, &mut params);
        want("ALLOC of a context share", share)
    }

    /// Parameters of a channel with USERD after its ring.
    #[must_use]
    pub(crate) fn channel_params(&self, ring: &Buffer, notifier: &Buffer, share: u32) -> rm::ChannelAlloc {
        let mut params = rm::ChannelAlloc {
            h_object_error: notifier.handle,
            gp_fifo_offset: ring.va,
            gp_fifo_entries: ENTRIES,
            h_context_share: share,
            ..Default::default()
        };
        params.h_userd_memory[0] = ring.handle;
        params.userd_offset[0] = u64::from(ENTRIES) * 8;
        params
    }

    /// The card's class of channels.
    ///
    /// # Errors
    /// A skip for a card that has none of these.
    pub(crate) fn channel_class(&self) -> Step<u32> {
        pick(&self.classes, &CHANNELS)
    }

    /// The card's compute class.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn compute_class(&self) -> Step<u32> {
        self.class_ending(COMPUTE)
    }

    /// The card's copy class.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn copy_class(&self) -> Step<u32> {
        self.class_ending(COPY)
    }

    fn class_ending(&self, byte: u32) -> Step<u32> {
        let newest = self.classes.iter().copied().filter(|class| class & 0xff == byte && *class >= 0xc500).max();
        newest.ok_or(Problem::Skipped { key: "chip", why: format!("no class ends in {byte:#x}") })
    }

    /// Copy engines with their NV2080_ENGINE_TYPE, and whether each is on the graphics engine's runlist.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn copy_engines(&self) -> Step<Vec<(u32, bool)>> {
        let engines = self.client.control(self.subdevice, &rm::GPU_GET_ENGINES_V2, rm::Engines::default());
        let engines = want("GPU_GET_ENGINES_V2", engines)?;
        let list = engines.engine_list.get(..engines.engine_count as usize).unwrap_or_default();
        let copies = list.iter().copied().filter(|engine| COPY_ENGINES.contains(engine));
        let ask = |ce_engine_type| {
            let caps = rm::CeCaps { ce_engine_type, ..Default::default() };
            let caps = want("CE_GET_CAPS_V2", self.client.control(self.subdevice, &rm::CE_GET_CAPS_V2, caps))?;
            Ok((ce_engine_type, caps.caps_tbl & CAPS_GRAPHICS != 0))
        };
        copies.map(ask).collect()
    }

    /// The NV2080_ENGINE_TYPE of the `nth` copy engine with a runlist of its own. UVM takes channels of the others for
    /// the graphics engine's.
    ///
    /// # Errors
    /// RM's; a skip for a card with fewer of them.
    pub(crate) fn copy_engine(&self, nth: usize) -> Step<u32> {
        let own = self.copy_engines()?.into_iter().filter(|(_, graphics)| !graphics).nth(nth);
        let why = || format!("the card has no {} copy engines with a runlist of their own", nth + 1);
        own.map(|(engine, _)| engine).ok_or_else(|| Problem::Skipped { key: "copy-engines", why: why() })
    }

    /// A copy object of an engine. Without parameters it would be COPY0's.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn copy_object(&self, channel: u32, engine_type: u32) -> Result<u32, Status> {
        let class = self.class_ending(COPY).map_err(|_| code::INVALID_CLASS)?;
        self.client.alloc_with(channel, class, &mut rm::CopyAlloc { version: 1, engine_type })
    }

    /// A channel in a group of the graphics engine, with an object of a class, registered; not scheduled.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn channel_in(&self, group: u32, share: u32, class: u32) -> Step<Channel> {
        self.channel_with(group, share, |channel| self.client.alloc(channel, class))
    }

    /// The same with the object that `object` makes below the channel.
    fn channel_with(&self, group: u32, share: u32, object: impl FnOnce(u32) -> Result<u32, Status>) -> Step<Channel> {
        let (ring, notifier, push) = (self.vram(2 * PAGE)?, self.system(PAGE)?, self.system(1 << 16)?);
        let mut params = self.channel_params(&ring, &notifier, share);
        let handle = self.client.alloc_with(group, self.channel_class()?, &mut params);
        let handle = want("ALLOC of a channel", handle)?;
        want("ALLOC of its engine's object", object(handle))?;
        let token = self.client.control(handle, &rm::GPFIFO_GET_WORK_SUBMIT_TOKEN, rm::WorkSubmitToken::default());
        let token = want("GPFIFO_GET_WORK_SUBMIT_TOKEN", token)?.work_submit_token;
        let doorbell = Doorbell::new(&self.usermode, DOORBELL, &self.client.bench.port)?;
        let context = {
            let mut made = lock(&self.made);
            made.contexts += CONTEXT_BYTES;
            made.contexts
        };
        want("UVM_REGISTER_CHANNEL", self.register_channel(handle, context, CONTEXT_BYTES))?;
        Ok(Channel { handle, group, ring, notifier, push, put: 0, at: 0, doorbell, token })
    }

    /// UVM_REGISTER_CHANNEL, undone at the end.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn register_channel(&self, h_channel: u32, base: u64, length: u64) -> Result<(), Status> {
        let (gpu_uuid, rm_ctrl_fd, h_client) = (self.uuid, self.client.control.0, self.client.root);
        let mut args =
            uvm::RegisterChannel { gpu_uuid, rm_ctrl_fd, h_client, h_channel, base, length, ..Default::default() };
        self.uvm_call(&uvm::REGISTER_CHANNEL, &mut args, |a| a.rm_status)?;
        lock(&self.made).channels.push(h_channel);
        Ok(())
    }

    /// UVM_UNREGISTER_CHANNEL.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn unregister_channel(&self, h_channel: u32) -> Result<(), Status> {
        let (gpu_uuid, h_client) = (self.uuid, self.client.root);
        let mut args = uvm::UnregisterChannel { gpu_uuid, h_client, h_channel, ..Default::default() };
        self.uvm_call(&uvm::UNREGISTER_CHANNEL, &mut args, |a| a.rm_status)?;
        forget_one(&mut lock(&self.made).channels, |known| *known == h_channel);
        Ok(())
    }

    /// Puts a group on its runlist.
    ///
    /// # Errors
    /// RM's.
    pub(crate) fn schedule(&self, group: u32) -> Result<(), Status> {
        let params = rm::GroupSchedule { b_enable: 1, ..Default::default() };
        self.client.control(group, &rm::GROUP_GPFIFO_SCHEDULE, params).map(|_| ())
    }

    /// A compute channel ready for work, its object on subchannel 1, with windows of shared and local memory that do
    /// not overlap: the card refuses every grid before they are set.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn compute(&self) -> Step<Channel> {
        let group = self.group(1, 0)?;
        let (share, class) = (self.share(group)?, self.compute_class()?);
        let mut channel = self.channel_in(group, share, class)?;
        want("GROUP_GPFIFO_SCHEDULE", self.schedule(group))?;
        channel.submit(&[&[0x2001_2000, class][..], &windows()].concat())?;
        Ok(channel)
    }

    /// A channel of the `nth` copy engine with a runlist of its own.
    ///
    /// # Errors
    /// The driver's; a skip for a card without it.
    pub(crate) fn copy(&self, nth: usize) -> Step<Channel> {
        self.copy_on(self.copy_engine(nth)?)
    }

    /// A channel of a copy engine, its object on subchannel 4.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn copy_on(&self, engine: u32) -> Step<Channel> {
        let (group, class) = (self.group(engine, self.space)?, self.copy_class()?);
        let mut channel = self.channel_with(group, 0, |channel| self.copy_object(channel, engine))?;
        want("GROUP_GPFIFO_SCHEDULE", self.schedule(group))?;
        channel.submit(&[0x2001_8000, class])?;
        Ok(channel)
    }

    /// Waits until a word has a value of 64 bits.
    ///
    /// # Errors
    /// It does not come.
    pub(crate) fn word(&self, view: &DeviceView, offset: u64, value: u64) -> Step {
        let what = format!("{value:#x} at offset {offset:#x}");
        self.client.bench.until(&what, || Ok(view.load_acquire_u64(offset)? == value))
    }

    /// Waits for an error of a channel: its code.
    ///
    /// # Errors
    /// It does not come.
    pub(crate) fn error(&self, channel: &Channel) -> Step<u32> {
        self.client.bench.until("an error in the notifier", || Ok(channel.notifier.view.read_u16(14)? == 0xffff))?;
        Ok(channel.notifier.view.read_u32(8)?)
    }

    /// Whether a channel has reported an error.
    ///
    /// # Errors
    /// None, as the record is there.
    pub(crate) fn is_well(&self, channel: &Channel) -> Step {
        same("the error record", channel.notifier.view.read_u16(14)?, 0)
    }

    /// Undoes everything, in the order that other runtimes do it.
    ///
    /// # Errors
    /// What the driver refuses.
    pub(crate) fn end(self) -> Step {
        let Made { ranges, groups, channels, mappings, .. } = std::mem::take(&mut *lock(&self.made));
        for h_channel in channels {
            match self.unregister_channel(h_channel) {
                // Unregistering the space had it done.
                Ok(()) | Err(code::INVALID_CHANNEL) => {}
                Err(status) => return Err(Problem::Failed(format!("UVM_UNREGISTER_CHANNEL at the end: {status}"))),
            }
        }
        // Channels end before the memory of their rings.
        for group in groups {
            match self.client.free(group) {
                Ok(()) | Err(code::OBJECT_NOT_FOUND) => {}
                Err(status) => return Err(Problem::Failed(format!("FREE of a group at the end: {status}"))),
            }
        }
        for (handle, cookie) in mappings {
            match self.client.unmap(self.device, handle, cookie) {
                // The memory was freed.
                Ok(()) | Err(code::OBJECT_NOT_FOUND) => {}
                Err(status) => return Err(Problem::Failed(format!("UNMAP_MEMORY at the end: {status}"))),
            }
        }
        for (base, length) in ranges {
            want("UVM_FREE at the end", self.free_range(base, length))?;
        }
        for end in [self.unregister_space(), self.unregister_gpu()] {
            match end {
                Ok(()) | Err(code::INVALID_DEVICE) => {}
                Err(status) => return Err(Problem::Failed(format!("unregistering at the end: {status}"))),
            }
        }
        drop(self.usermode);
        self.client.end()
    }

    /// UVM_UNREGISTER_GPU_VASPACE.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn unregister_space(&self) -> Result<(), Status> {
        let mut args = uvm::UnregisterGpuVaSpace { gpu_uuid: self.uuid, rm_status: 0 };
        self.uvm_call(&uvm::UNREGISTER_GPU_VASPACE, &mut args, |a| a.rm_status)
    }

    /// UVM_UNREGISTER_GPU.
    ///
    /// # Errors
    /// UVM's.
    pub(crate) fn unregister_gpu(&self) -> Result<(), Status> {
        let mut args = uvm::UnregisterGpu { gpu_uuid: self.uuid, rm_status: 0 };
        self.uvm_call(&uvm::UNREGISTER_GPU, &mut args, |a| a.rm_status)
    }
}

fn pick(have: &[u32], order: &[u32]) -> Step<u32> {
    let found = order.iter().copied().find(|class| have.contains(class));
    found.ok_or(Problem::Skipped { key: "chip", why: "the card has no class that is known here".to_owned() })
}
