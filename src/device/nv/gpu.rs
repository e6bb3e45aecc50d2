//! Opening one GPU: device and subdevice objects, properties, doorbell page, address space, registration with UVM.
//!
//! Layer: above `driver` and `find`; buffers and channels hang below it. Source: docs/nv.md 2 (steps 5 to
//! 14), 2.5; each step is a function.
//! Everything is released in reverse order, also when a later step fails.
//! Left out: MIG and confidential computing (both refused here), NUMA nodes of Grace.

use super::chip::Chip;
use super::driver::{Driver, Handle, Outcome, RmError};
use super::find::Card;
use super::paging::PageTables;
use crate::DeviceError;
use doorbell_hcq::packet::nv::gpfifo;
use doorbell_ioctl::abi::nvrm::{self, InfoEntry};
use doorbell_ioctl::abi::uvm;
use doorbell_ioctl::port::{Doorbell, Errno, Fd, MapRequest, Mapped};
use std::sync::Arc;

/// Bytes of the usermode registers.
const USERMODE_BYTES: u64 = 0x1_0000;
/// NV_VASPACE_ALLOCATION_FLAGS: page faults are replayable, the page tables are UVM's. UVM services replayable faults;
/// without UVM, a kernel that faults would hang.
const VASPACE_EXTERNALLY_OWNED: u32 = 0x8;
const VASPACE_PAGE_FAULTING: u32 = 0x40;
/// Base and size of the address space, the values that CUDA requests.
const VASPACE_BASE: u64 = 0x1000;
const VASPACE_BYTES: u64 = 0x1_ffff_fb00_0000;
/// NV2080_CTRL_PERF_BOOST_FLAGS: maximum clocks, for CUDA, with high priority. The duration is unlimited.
const BOOST_FLAGS: u32 = 2 | 1 << 4 | 1 << 6;
/// GPU_GET_GID_INFO flag: return the 16 bytes, not their text.
const GID_BINARY: u32 = 2;
/// GPU_QUERY_COMPUTE_MODE_RULES: no process may compute on this GPU.
const COMPUTE_PROHIBITED: u32 = 2;

/// Index of GPU_GET_INFO: whether the card is partitioned into instances (MIG). 0: unsupported, 1: enabled, 2:
/// disabled, 3: enabled after the next reset, 4: disabled after the next reset.
const GPU_SMC_MODE: u32 = 0x2a;
const SMC_MODE_ENABLED: u32 = 1;
const SMC_MODE_DISABLE_PENDING: u32 = 4;

/// Indices of GR_GET_INFO: unit counts of the family's largest chip, including units that are disabled on this card.
const GR_NUM_GPCS: u32 = 0x14;
const GR_TPCS_PER_GPC: u32 = 0x17;
const GR_SMS_PER_TPC: u32 = 0x20;
/// Index of FB_GET_INFO: KiB of memory.
const FB_RAM_KIB: u32 = 0x07;

/// Properties of a GPU, as the driver reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuProperties {
    pub name: String,
    pub sms: u32,
    /// TPCs of the largest chip of the family: local memory is sized for this many.
    pub max_tpcs: u32,
    pub vram_bytes: u64,
}

/// A GPU.
#[derive(Debug)]
pub struct Gpu {
    pub driver: Arc<Driver>,
    pub card: Card,
    pub chip: &'static Chip,
    pub properties: GpuProperties,
    pub uuid: [u8; 16],
    pub device: Handle,
    pub subdevice: Handle,
    pub vaspace: Handle,
    file: Fd,
    /// Classes that the driver lists for the device.
    classes: Vec<u32>,
    bar1_doorbell: bool,
    uses_uvm: bool,
    usermode: Option<CpuMap>,
    /// How far bring-up has come, so that `close` undoes as much.
    stage: Stage,
}

/// A step of bring-up, in the order of [`STEPS`].
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub name: &'static str,
    pub run: fn(&mut Gpu) -> Result<(), OpenError>,
}

/// The steps of [`Gpu::open`] after [`Gpu::begin`].
pub const STEPS: &[Step] = &[
    Step { name: "attach", run: |gpu| gpu.attach().map_err(step("attach")) },
    Step { name: "classes", run: Gpu::identify },
    Step { name: "facts", run: Gpu::inspect },
    Step { name: "doorbells", run: |gpu| gpu.map_usermode().map_err(step("map doorbells")) },
    Step { name: "boost", run: Gpu::boost_step },
    Step { name: "address space", run: |gpu| gpu.make_vaspace().map_err(step("make an address space")) },
    Step { name: "register", run: |gpu| gpu.register().map_err(step("register with UVM")) },
];

/// Bring-up stages whose effects must be undone explicitly, beyond freeing RM objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    File,
    Device,
    UvmGpu,
    UvmSpace,
}

/// Why a GPU cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    Rm(&'static str, RmError),
    Other(String),
}

impl OpenError {
    /// Converts to the error of the device `name`.
    #[must_use]
    pub fn into_device_error(self, name: &str) -> DeviceError {
        match self {
            Self::Rm(what, source) => DeviceError::Rm { device: name.into(), what, source: Box::new(source) },
            Self::Other(why) => DeviceError::Unavailable { name: name.into(), why },
        }
    }
}

/// Adds the step's name to an RM error.
fn step(what: &'static str) -> impl FnOnce(RmError) -> OpenError {
    move |e| OpenError::Rm(what, e)
}

impl Gpu {
    /// Brings a card up, including its address space. `bar1_doorbell` maps the doorbells through BAR1 (Hopper and
    /// later). A card that is already up is shared.
    ///
    /// # Errors
    /// The step and the call that was refused; an unknown chip; a mode that this runtime does not support.
    pub fn open(
        driver: &Arc<Driver>,
        card: &Card,
        bar1_doorbell: bool,
        tables: PageTables,
    ) -> Result<Arc<Self>, OpenError> {
        // Memory or code of a closed device may still keep the GPU up.
        if let Some(gpu) = driver.find_open_gpu(card.gpu_id) {
            return Ok(gpu);
        }
        let mut gpu = Self::begin(driver, card, bar1_doorbell)?;
        gpu.uses_uvm &= tables == PageTables::UvmOrRm;
        STEPS.iter().try_for_each(|step| (step.run)(&mut gpu))?;
        let gpu = Arc::new(gpu);
        driver.note_gpu(card.gpu_id, &gpu);
        Ok(gpu)
    }

    /// Opens a card's file; [`STEPS`] complete the bring-up.
    ///
    /// # Errors
    /// The call that was refused; confidential computing.
    pub fn begin(driver: &Arc<Driver>, card: &Card, bar1_doorbell: bool) -> Result<Self, OpenError> {
        refuse_confidential(driver)?;
        let file = driver.open_card(card).map_err(step("open the card"))?;
        Ok(Self {
            driver: Arc::clone(driver),
            card: card.clone(),
            chip: &super::chip::CHIPS[0],
            properties: GpuProperties::default(),
            uuid: [0; 16],
            device: 0,
            subdevice: 0,
            vaspace: 0,
            file,
            classes: Vec::new(),
            bar1_doorbell,
            uses_uvm: driver.has_uvm(),
            usermode: None,
            stage: Stage::File,
        })
    }

    /// Step 9: identifies the chip.
    fn identify(&mut self) -> Result<(), OpenError> {
        self.classes = self.query_classes().map_err(step("ask for classes"))?;
        self.chip = Chip::of_classes(&self.classes).ok_or_else(|| {
            let known: Vec<&str> = super::chip::CHIPS.iter().map(|c| c.name).collect();
            let classes = &self.classes;
            OpenError::Other(format!("its chip is not known (classes {classes:x?}); known are {}", known.join(", ")))
        })?;
        Ok(())
    }

    /// Checks that the GPU may be used for compute, and queries its properties.
    fn inspect(&mut self) -> Result<(), OpenError> {
        self.check_compute_mode()?;
        self.check_mig()?;
        self.properties = self.query_properties();
        Ok(())
    }

    /// Steps 6 to 8: the card's instance numbers, device, subdevice.
    fn attach(&mut self) -> Result<(), RmError> {
        let driver = Arc::clone(&self.driver);
        let client = driver.client();
        let mut ids = nvrm::IdInfo { gpu_id: self.card.gpu_id, ..Default::default() };
        driver.control(client, &nvrm::GPU_GET_ID_INFO_V2, &mut ids)?;
        let mut params =
            nvrm::DeviceAlloc { device_id: ids.device_instance, h_client_share: client, ..Default::default() };
        self.device = driver.alloc(client, nvrm::NV01_DEVICE_0, Some(&mut params))?;
        self.stage = Stage::Device;
        let mut params = nvrm::SubdeviceAlloc { sub_device_id: ids.sub_device_instance };
        self.subdevice = driver.alloc(self.device, nvrm::NV20_SUBDEVICE_0, Some(&mut params))?;
        Ok(())
    }

    /// Step 9: queries the classes that the GPU supports.
    fn query_classes(&self) -> Result<Vec<u32>, RmError> {
        let mut list = nvrm::ClassList::default();
        self.driver.control(self.device, &nvrm::GPU_GET_CLASSLIST_V2, &mut list)?;
        let count = (list.num_classes as usize).min(list.class_list.len());
        Ok(list.class_list[..count].to_vec())
    }

    fn check_compute_mode(&self) -> Result<(), OpenError> {
        let mut mode = nvrm::ComputeModeRules::default();
        let asked = self.driver.control(self.subdevice, &nvrm::GPU_QUERY_COMPUTE_MODE_RULES, &mut mode);
        match asked {
            Ok(()) if mode.rules == COMPUTE_PROHIBITED => {
                Err(OpenError::Other("its compute mode is \"prohibited\"".into()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a card with MIG on: its channels need an instance, and instances are not supported here.
    fn check_mig(&self) -> Result<(), OpenError> {
        let mut info = nvrm::GpuInfo { gpu_info_list_size: 1, ..Default::default() };
        info.gpu_info_list[0].index = GPU_SMC_MODE;
        let asked = self.driver.control(self.subdevice, &nvrm::GPU_GET_INFO_V2, &mut info);
        match asked {
            Ok(()) if matches!(info.gpu_info_list[0].data, SMC_MODE_ENABLED | SMC_MODE_DISABLE_PENDING) => {
                let why =
                    "MIG is on, and no instance of the card can be chosen here (nvidia-smi -mig 0 switches it off)";
                Err(OpenError::Other(why.into()))
            }
            // If the driver does not answer and MIG is on, creating channels fails later.
            _ => Ok(()),
        }
    }

    /// Queries the properties; where the driver refuses a query, defaults are used.
    fn query_properties(&self) -> GpuProperties {
        let [gpcs, tpcs, sms] = self.gr_info([GR_NUM_GPCS, GR_TPCS_PER_GPC, GR_SMS_PER_TPC]).unwrap_or([8, 9, 2]);
        let mut order = nvrm::GlobalSmOrder::default();
        let ordered = self.driver.control(self.subdevice, &nvrm::GR_GET_GLOBAL_SM_ORDER, &mut order);
        let max_tpcs = (gpcs * tpcs).max(1);
        let all_sms = if ordered.is_ok() && order.num_sm > 0 { order.num_sm.into() } else { max_tpcs * sms };
        let mut fb = nvrm::FbInfo { fb_info_list_size: 1, ..Default::default() };
        fb.fb_info_list[0] = InfoEntry { index: FB_RAM_KIB, data: 0 };
        let vram_bytes = match self.driver.control(self.subdevice, &nvrm::FB_GET_INFO_V2, &mut fb) {
            Ok(()) => u64::from(fb.fb_info_list[0].data) << 10,
            Err(_) => 0,
        };
        GpuProperties { name: self.query_name().unwrap_or_default(), sms: all_sms, max_tpcs, vram_bytes }
    }

    /// Values of GR_GET_INFO, in the order of `indices`.
    fn gr_info<const N: usize>(&self, indices: [u32; N]) -> Result<[u32; N], RmError> {
        let (subdevice, size) = (self.subdevice, N as u32);
        let entry = |n: usize| InfoEntry { index: indices[n], data: 0 };
        let new = || {
            let mut args = nvrm::GrInfoV595 { gr_info_list_size: size, ..Default::default() };
            (0..N).for_each(|n| args.gr_info_list[n] = entry(n));
            self.driver.control(subdevice, &nvrm::GR_GET_INFO_V2_V595, &mut args)?;
            Ok(std::array::from_fn(|n| args.gr_info_list[n].data))
        };
        let old = || {
            let mut args = nvrm::GrInfo { gr_info_list_size: size, ..Default::default() };
            (0..N).for_each(|n| args.gr_info_list[n] = entry(n));
            self.driver.control(subdevice, &nvrm::GR_GET_INFO_V2, &mut args)?;
            Ok(std::array::from_fn(|n| args.gr_info_list[n].data))
        };
        self.driver.by_form(595, new, old)
    }

    fn query_name(&self) -> Result<String, RmError> {
        let of = |len_bytes| {
            let mut name = nvrm::NameString::default();
            self.driver.control_of(self.subdevice, &nvrm::GPU_GET_NAME_STRING, &mut name, len_bytes)?;
            Ok(name)
        };
        // Releases from 595 have a struct of half the length.
        let name = self.driver.by_form(595, || of(68), || of(132))?;
        let text = &name.gpu_name_string;
        let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    /// Step 10: the page with the doorbell.
    fn map_usermode(&mut self) -> Result<(), RmError> {
        let wanted = [self.chip.usermode_class, nvrm::HOPPER_USERMODE_A, nvrm::TURING_USERMODE_A];
        let class = wanted.into_iter().find(|c| self.classes.contains(c)).unwrap_or(self.chip.usermode_class);
        let mut params = nvrm::UsermodeAlloc { b_bar1_mapping: 1, b_priv: 0 };
        let params = (self.bar1_doorbell && class >= nvrm::HOPPER_USERMODE_A).then_some(&mut params);
        let usermode = self.driver.alloc(self.subdevice, class, params)?;
        self.usermode = Some(CpuMap::new(self, usermode, USERMODE_BYTES, MapFile::Card, None)?);
        Ok(())
    }

    /// Step 11: raises the clocks. Without it copies run at two thirds of their speed; nothing else depends on it.
    fn boost(&self) {
        let mut params = nvrm::PerfBoost { flags: BOOST_FLAGS, duration: u32::MAX };
        if let Err(e) = self.driver.control(self.subdevice, &nvrm::PERF_BOOST, &mut params) {
            log::debug!("{}: clocks were not raised: {e}", self.card.bdf);
        }
    }

    fn boost_step(&mut self) -> Result<(), OpenError> {
        self.boost();
        Ok(())
    }

    /// Step 12: the address space.
    fn make_vaspace(&mut self) -> Result<(), RmError> {
        // The default, for RM's own page tables, is the chip's full address range.
        let mut params = nvrm::VaSpaceAlloc::default();
        if self.uses_uvm {
            params.flags = VASPACE_PAGE_FAULTING | VASPACE_EXTERNALLY_OWNED;
            (params.va_size, params.va_base) = (VASPACE_BYTES, VASPACE_BASE);
        }
        self.vaspace = self.driver.alloc(self.device, nvrm::FERMI_VASPACE_A, Some(&mut params))?;
        Ok(())
    }

    /// Steps 13 and 14: the UUID, and registration with UVM if UVM is used.
    fn register(&mut self) -> Result<(), RmError> {
        let driver = Arc::clone(&self.driver);
        let mut gid = nvrm::GidInfo { flags: GID_BINARY, length: 16, ..Default::default() };
        driver.control(self.subdevice, &nvrm::GPU_GET_GID_INFO, &mut gid)?;
        self.uuid = std::array::from_fn(|n| gid.data[n]);
        if !self.uses_uvm {
            return Ok(());
        }
        let mut args = uvm::RegisterGpu { gpu_uuid: self.uuid, rm_ctrl_fd: -1, ..Default::default() };
        driver.uvm(&uvm::REGISTER_GPU, &mut args, |a| a.rm_status)?;
        self.stage = Stage::UvmGpu;
        let mut args = uvm::RegisterGpuVaSpace {
            gpu_uuid: self.uuid,
            rm_ctrl_fd: driver.ctl().0,
            h_client: driver.client(),
            h_va_space: self.vaspace,
            ..Default::default()
        };
        driver.uvm(&uvm::REGISTER_GPU_VASPACE, &mut args, |a| a.rm_status)?;
        self.stage = Stage::UvmSpace;
        Ok(())
    }

    /// Whether UVM manages the page tables; otherwise RM does.
    #[must_use]
    pub fn uses_uvm(&self) -> bool {
        self.uses_uvm
    }

    /// Maps the buffer that contains an address into this GPU's page table, if it is not mapped yet. Returns `false` if
    /// it is no buffer of this driver's GPUs, or if UVM does not manage the page tables.
    ///
    /// # Errors
    /// As [`Driver::map_peer`].
    pub(crate) fn map_peer(&self, va: u64) -> Result<bool, RmError> {
        if self.uses_uvm { self.driver.map_peer(va, self.uuid) } else { Ok(false) }
    }

    /// The card's file descriptor, for registering memory of this process.
    #[must_use]
    pub fn file(&self) -> Fd {
        self.file
    }

    /// The doorbell, which all channels share: a channel's token is written to it.
    ///
    /// # Errors
    /// `EACCES` before the page is mapped.
    pub fn doorbell(&self) -> Result<Doorbell, Errno> {
        let page = self.usermode.as_ref().ok_or(Errno::EACCES)?.mapped.view()?;
        Doorbell::of_u32(&page, gpfifo::DOORBELL, self.driver.port()).map_err(|_| Errno::EACCES)
    }

    /// The classes that the driver lists for it.
    #[must_use]
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// The GPU's clock in ns, read from its registers; these read as zero through BAR1.
    ///
    /// # Errors
    /// `EACCES` before the page is mapped.
    pub fn register_time_ns(&self) -> Result<u64, Errno> {
        let page = self.usermode.as_ref().ok_or(Errno::EACCES)?.mapped.view()?;
        let word = |at| page.read_u32(at).map_err(|_| Errno::EACCES);
        loop {
            let (high, low) = (word(gpfifo::PTIMER + 4)?, word(gpfifo::PTIMER)?);
            // The low word may have wrapped between the two reads.
            if word(gpfifo::PTIMER + 4)? == high {
                return Ok(doorbell_hcq::bits::join(low, high));
            }
        }
    }

    /// The GPU's clock in ns, as the driver reports it.
    ///
    /// # Errors
    /// The driver's.
    pub fn time_ns(&self) -> Result<u64, RmError> {
        let mut time = nvrm::TimerTime::default();
        self.driver.control(self.subdevice, &nvrm::TIMER_GET_TIME, &mut time)?;
        Ok(time.time_nsec)
    }

    fn close(&mut self) {
        let warn = |what: &str, result: Result<(), RmError>| {
            if let Err(e) = result {
                log::warn!("{what}: {e}");
            }
        };
        let driver = Arc::clone(&self.driver);
        if let Some(usermode) = self.usermode.take() {
            warn("doorbells", usermode.unmap(&driver, self.device));
        }
        if self.stage >= Stage::UvmSpace {
            let mut args = uvm::UnregisterGpuVaSpace { gpu_uuid: self.uuid, ..Default::default() };
            warn("address space", driver.uvm(&uvm::UNREGISTER_GPU_VASPACE, &mut args, |a| a.rm_status));
        }
        if self.stage >= Stage::UvmGpu {
            let mut args = uvm::UnregisterGpu { gpu_uuid: self.uuid, ..Default::default() };
            driver.forget_gpu(self.uuid);
            warn("GPU", driver.uvm(&uvm::UNREGISTER_GPU, &mut args, |a| a.rm_status));
        }
        if self.stage >= Stage::Device {
            warn("device", driver.free(driver.client(), self.device));
        }
        driver.close(self.file);
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.close();
    }
}

/// Refuses confidential computing: with it on, GPU memory cannot be mapped, and channels need keys.
fn refuse_confidential(driver: &Driver) -> Result<(), OpenError> {
    let client = driver.client();
    let mut params = nvrm::ConfidentialComputeAlloc { h_client: client };
    let Ok(object) = driver.alloc(client, nvrm::NV_CONFIDENTIAL_COMPUTE, Some(&mut params)) else { return Ok(()) };
    let mut caps = nvrm::ConfComputeCapabilities::default();
    let asked = driver.control(object, &nvrm::CONF_COMPUTE_SYSTEM_GET_CAPABILITIES, &mut caps);
    driver.free(client, object).map_err(step("ask for confidential computing"))?;
    if asked.is_ok() && caps.cc_feature != 0 {
        return Err(OpenError::Other("confidential computing is on, which is not supported".into()));
    }
    Ok(())
}

/// The file that memory is mapped through: the card's for registers and VRAM, the control file for RM's system memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapFile {
    Card,
    Ctl,
}

/// A memory object mapped for the host.
#[derive(Debug)]
pub(crate) struct CpuMap {
    pub mapped: Arc<Mapped>,
    fd: Fd,
    memory: Handle,
    cookie: u64,
}

impl CpuMap {
    /// Maps `len_bytes` of a memory object, at `range` if there is one.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn new(
        gpu: &Gpu,
        memory: Handle,
        len_bytes: u64,
        through: MapFile,
        range: Option<Mapped>,
    ) -> Result<Self, RmError> {
        let driver = &gpu.driver;
        // Each mapping needs a file descriptor of its own.
        let fd = match through {
            MapFile::Card => driver.open_card(&gpu.card)?,
            MapFile::Ctl => driver.open_file(super::driver::CTL_PATH)?,
        };
        let made = Self::arm(gpu, memory, len_bytes, fd).and_then(|cookie| {
            let mapped = match range {
                Some(range) => range.back(fd, 0),
                None => Mapped::new(driver.port(), &MapRequest::file(fd, 0, len_bytes)),
            };
            match mapped {
                Ok(mapped) => Ok(Self { mapped: Arc::new(mapped), fd, memory, cookie }),
                Err(errno) => {
                    disarm(driver, gpu.device, memory, cookie)?;
                    Err(RmError { call: "mmap".into(), outcome: Outcome::Errno(errno) })
                }
            }
        });
        if made.is_err() {
            driver.close(fd);
        }
        made
    }

    fn arm(gpu: &Gpu, memory: Handle, len_bytes: u64, fd: Fd) -> Result<u64, RmError> {
        let params = nvrm::MapMemoryParams {
            h_client: gpu.driver.client(),
            h_device: gpu.device,
            h_memory: memory,
            length: len_bytes,
            ..Default::default()
        };
        let mut args = nvrm::RmMapMemory { params, fd: fd.0, ..Default::default() };
        gpu.driver
            .call(gpu.driver.ctl(), &nvrm::MAP_MEMORY, &mut args, &format!("{memory:#x}"), |a| a.params.status)?;
        Ok(args.params.p_linear_address)
    }

    /// Removes the mapping. The caller must have dropped all views of it.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn unmap(self, driver: &Driver, device: Handle) -> Result<(), RmError> {
        let Self { mapped, fd, memory, cookie } = self;
        // The pages are unmapped when the last view is dropped.
        drop(mapped);
        let unmapped = disarm(driver, device, memory, cookie);
        driver.close(fd);
        unmapped
    }
}

fn disarm(driver: &Driver, device: Handle, memory: Handle, cookie: u64) -> Result<(), RmError> {
    let mut args = nvrm::RmUnmapMemory {
        h_client: driver.client(),
        h_device: device,
        h_memory: memory,
        p_linear_address: cookie,
        ..Default::default()
    };
    driver.call(driver.ctl(), &nvrm::UNMAP_MEMORY, &mut args, &format!("{memory:#x}"), |a| a.status)
}
