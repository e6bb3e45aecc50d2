//! A process's connection to NVIDIA's driver: the control file, the root client, UVM if available, the driver release,
//! the GPU address range, and a log of the last calls for reports.
//!
//! Layer: below everything else of `device::nv`; the GPUs of one port share it. Source: docs/nv.md 1 and
//! 2 (steps 1 to 4).
//! A call can fail in two ways, by errno or by the status inside its struct; [`RmError`] holds whichever it was, with
//! the call's name.
//! A GPU address is also reserved in this process's address space, below 2^40, because push buffers and QMDs must lie
//! there. So no other mapping of the process overlaps it.

use super::bo::Bo;
use super::find::Card;
use super::gpu::Gpu;
use super::paging::{PageTables, map_by_uvm};
use crate::DeviceError;
use crate::gpu::buffer_map::BufferMap;
use crate::gpu::last_calls::LastCalls;
use crate::gpu::signal_pages::SharedPages;
use bytemuck::Pod;
use doorbell_ioctl::abi::nvrm::{self, CLASSES, CONTROLS, Control, Release, Status};
use doorbell_ioctl::abi::{Ioctl, chosen, uvm};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, Mapped, OpenFlags, Port, call, monotonic_ns};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub const CTL_PATH: &str = "/dev/nvidiactl";
pub const UVM_PATH: &str = "/dev/nvidia-uvm";
/// The range that GPU addresses are allocated from. The program itself is mapped below it; addresses above it do not
/// fit a GPFIFO entry.
const VA_FIRST: u64 = 0x10_0000_0000;
const VA_END: u64 = 0xff_0000_0000;
/// How far the search skips ahead when the process already uses a range, and how often at most.
const VA_STEP: u64 = 1 << 28;
const VA_TRIES: usize = 4096;
/// First of the handles that the process chooses itself, for calls that require it; handles chosen by RM start
/// elsewhere.
const OWN_HANDLES: u32 = 0x1000;

/// A call that the driver refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {outcome}")]
pub struct RmError {
    /// The call, with the class or the command that it carried.
    pub call: String,
    pub outcome: Outcome,
}

impl RmError {
    /// Whether the call was one to UVM.
    #[must_use]
    pub fn is_uvm_call(&self) -> bool {
        self.call.starts_with("UVM_")
    }

    /// Whether the driver refused the size of the call's struct.
    #[must_use]
    pub fn is_about_size(&self) -> bool {
        const INVALID_ARGUMENT: u32 = 0x1f;
        const INVALID_PARAM_STRUCT: u32 = 0x3a;
        matches!(self.outcome, Outcome::Status(Status(INVALID_ARGUMENT | INVALID_PARAM_STRUCT)))
    }
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The system call failed.
    Errno(Errno),
    /// The status in the call's struct is an error.
    Status(Status),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "{errno}"),
            Self::Status(status) => write!(f, "{status}"),
        }
    }
}

/// An object's handle.
pub(crate) type Handle = u32;

/// A GPU's UUID, as UVM uses it.
pub(crate) type Uuid = [u8; 16];

/// A buffer's memory object, and the GPUs in whose page tables UVM has mapped it: the owner first; empty if RM manages
/// the page tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedMemory {
    pub memory: Handle,
    pub is_vram: bool,
    pub gpus: Vec<Uuid>,
}

/// The connection to the driver.
#[derive(Debug)]
pub struct Driver {
    port: Arc<dyn Port>,
    ctl: Fd,
    /// None if RM manages all page tables.
    uvm: Option<UvmFiles>,
    client: Handle,
    release: Release,
    /// When the connection was opened, on the monotonic clock.
    opened_ns: u64,
    next_handle: AtomicU32,
    last_calls: LastCalls,
    buffers: Mutex<BufferMap<Option<MappedMemory>>>,
    signal_pages: SharedPages<Bo>,
    /// Pairs of GPUs with peer access enabled.
    peers: Mutex<Vec<[Uuid; 2]>>,
    /// GPUs that are open, by `gpu_id`.
    up: Mutex<Vec<(u32, Weak<Gpu>)>>,
    /// Where the next search for addresses begins.
    cursor: Mutex<u64>,
}

/// UVM's two files.
#[derive(Clone, Copy, Debug)]
struct UvmFiles {
    space: Fd,
    /// Holds the process's `mm` for `space` (UVM_MM_INITIALIZE).
    mm: Fd,
}

/// Files that are closed unless the opening succeeds.
struct Opened<'a> {
    port: &'a Arc<dyn Port>,
    files: Vec<Fd>,
}

impl Opened<'_> {
    fn open(&mut self, path: &str) -> Result<Fd, Errno> {
        let fd = self.port.open(path, OpenFlags::DEVICE)?;
        self.files.push(fd);
        Ok(fd)
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        for fd in self.files.drain(..) {
            let _closed_anyway = self.port.close(fd);
        }
    }
}

/// Explains in words why a device file cannot be opened.
pub fn explain(port: &dyn Port, path: &str, errno: Errno) -> String {
    let devices = port.read_file("/proc/devices").unwrap_or_default();
    let devices = String::from_utf8_lossy(&devices);
    let name = if path == UVM_PATH { "nvidia-uvm" } else { "nvidia" };
    let is_named = |word: &&str| *word == name || name == "nvidia" && *word == "nvidia-frontend";
    let major = devices.lines().filter_map(|l| l.trim().split_once(' ')).find(|(_, n)| is_named(&n.trim()));
    let hint = match (errno, major) {
        (Errno::ENOENT, None) => format!(" (no {name} driver)"),
        (Errno::ENOENT, Some((major, _))) => {
            let minor = path.strip_prefix("/dev/nvidia").filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
            let minor = if path == CTL_PATH { "255" } else { minor.filter(|n| !n.is_empty()).unwrap_or("0") };
            format!(" (the driver is loaded, its node is missing: mknod -m 666 {path} c {major} {minor})")
        }
        (Errno::ENXIO | Errno::ENODEV, None) => format!(" (a node is there, but no {name} driver)"),
        (Errno::EACCES | Errno::EPERM, _) => " (this user may not)".into(),
        _ => String::new(),
    };
    format!("open {path}: {errno}{hint}")
}

/// Opens UVM's two files; if either fails, both are closed.
fn open_uvm(port: &Arc<dyn Port>) -> Result<UvmFiles, Errno> {
    let mut opened = Opened { port, files: Vec::new() };
    let files = UvmFiles { space: opened.open(UVM_PATH)?, mm: opened.open(UVM_PATH)? };
    opened.files.clear();
    Ok(files)
}

/// The driver release, as CHECK_VERSION_STR reports it.
fn ask_release(port: &dyn Port, ctl: Fd) -> Result<String, String> {
    let mut args = nvrm::CheckVersion { cmd: u32::from(b'2'), ..Default::default() };
    call(port, ctl, &nvrm::CHECK_VERSION_STR, &mut args).map_err(|e| e.to_string())?;
    let end = args.version_string.iter().position(|b| *b == 0).unwrap_or(args.version_string.len());
    Ok(String::from_utf8_lossy(&args.version_string[..end]).into_owned())
}

impl Driver {
    /// Opens the driver: checks its release, creates a client and, if UVM is available, a UVM address space.
    /// A release that is not known is opened as the nearest known one, with a warning unless `any_release` is set.
    ///
    /// # Errors
    /// `Unavailable`: no driver, no right, a release without a number; `Rm` with the call that was refused.
    pub fn open(name: &str, port: Arc<dyn Port>, any_release: bool) -> Result<Arc<Self>, DeviceError> {
        Self::open_with(name, port, any_release, PageTables::default())
    }

    /// As [`Driver::open`], with a choice of who manages the page tables.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_with(
        name: &str,
        port: Arc<dyn Port>,
        any_release: bool,
        tables: PageTables,
    ) -> Result<Arc<Self>, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        let mut opened = Opened { port: &port, files: Vec::new() };
        let ctl = opened.open(CTL_PATH).map_err(|errno| unavailable(explain(&*port, CTL_PATH, errno)))?;
        let release = ask_release(&*port, ctl).map_err(&unavailable)?;
        let release = Release::parse(&release).map_err(|e| unavailable(e.to_string()))?;
        if let (Err(e), false) = (release.known(), any_release) {
            log::warn!("{name}: {e}; it is opened as the nearest one, and by the sizes of structs that it takes");
        }
        // From here on the connection's drop closes the files.
        opened.files.clear();
        drop(opened);
        let mut driver = Self {
            port,
            ctl,
            uvm: None,
            client: 0,
            release,
            opened_ns: monotonic_ns(),
            next_handle: AtomicU32::new(OWN_HANDLES),
            last_calls: LastCalls::default(),
            buffers: Mutex::default(),
            signal_pages: SharedPages::default(),
            peers: Mutex::default(),
            up: Mutex::default(),
            cursor: Mutex::new(VA_FIRST),
        };
        let refused =
            |what: &'static str| move |source| DeviceError::Rm { device: name.into(), what, source: Box::new(source) };
        driver.client = driver.alloc::<nvrm::RootAlloc>(0, nvrm::NV01_ROOT_CLIENT, None).map_err(refused("client"))?;
        if tables == PageTables::UvmOrRm
            && let Err(why) = driver.connect_uvm()
        {
            log::warn!("{name}: {why}; RM alone fills the page tables");
        }
        Ok(Arc::new(driver))
    }

    /// Opens UVM and creates its address space; on an error nothing stays open.
    fn connect_uvm(&mut self) -> Result<(), String> {
        let files = open_uvm(&self.port).map_err(|errno| explain(&*self.port, UVM_PATH, errno))?;
        self.uvm = Some(files);
        self.initialize_uvm(files).map_err(|e| {
            self.close_uvm();
            e.to_string()
        })
    }

    fn close_uvm(&mut self) {
        let files = self.uvm.take().map(|files| [files.mm, files.space]);
        files.into_iter().flatten().for_each(|fd| self.close(fd));
    }

    fn initialize_uvm(&self, files: UvmFiles) -> Result<(), RmError> {
        self.uvm(&uvm::INITIALIZE, &mut uvm::Initialize::default(), |a| a.rm_status)?;
        let mut args = uvm::MmInitialize { uvm_fd: files.space.0, ..Default::default() };
        // A kernel that does not need this call refuses it with a status. Other kernels refuse the address space later
        // without it.
        match self.call(files.mm, &uvm::MM_INITIALIZE, &mut args, "", |a| a.rm_status) {
            Ok(()) | Err(RmError { outcome: Outcome::Status(_), .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether UVM can manage page tables: it is present and has created an address space.
    #[must_use]
    pub(crate) fn has_uvm(&self) -> bool {
        self.uvm.is_some()
    }

    /// The pages of its devices' signals.
    #[must_use]
    pub fn signal_pages(&self) -> &SharedPages<Bo> {
        &self.signal_pages
    }

    #[must_use]
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.port
    }

    /// Bytes of a page of the host, which addresses and sizes of buffers are multiples of.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.port.page_bytes()
    }

    #[must_use]
    pub fn ctl(&self) -> Fd {
        self.ctl
    }

    #[must_use]
    pub fn client(&self) -> Handle {
        self.client
    }

    #[must_use]
    pub fn release(&self) -> Release {
        self.release
    }

    /// When the connection was made, by the monotonic clock.
    #[must_use]
    pub(crate) fn opened_ns(&self) -> u64 {
        self.opened_ns
    }

    /// A new handle, unique within this client.
    #[must_use]
    pub(crate) fn own_handle(&self) -> Handle {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// The last calls, oldest first.
    #[must_use]
    pub(crate) fn recent_calls(&self) -> String {
        self.last_calls.line()
    }

    /// Makes a call on a file and logs it for reports; `on` describes its argument.
    ///
    /// # Errors
    /// The driver's.
    pub fn call<T: Pod>(
        &self,
        fd: Fd,
        ioctl: &Ioctl<T>,
        args: &mut T,
        on: &str,
        status: impl FnOnce(&T) -> u32,
    ) -> Result<(), RmError> {
        let status = call(&*self.port, fd, ioctl, args).map(|_| Status(status(args)));
        self.note(ioctl.desc.name, on, status.map_err(|e| e.errno))
    }

    /// Logs a call; its outcome is the result.
    #[inline(never)] // its caller is compiled for each type of argument
    fn note(&self, name: &str, on: &str, status: Result<Status, Errno>) -> Result<(), RmError> {
        let name = name.trim_start_matches("NV_ESC_");
        let text = if on.is_empty() { name.to_string() } else { format!("{name} {on}") };
        let outcome = match status {
            Ok(status) if status.is_ok() => {
                self.last_calls.note(&text, None);
                return Ok(());
            }
            Ok(status) => Outcome::Status(status),
            Err(errno) => Outcome::Errno(errno),
        };
        self.last_calls.note(&text, Some(&outcome));
        Err(RmError { call: text, outcome })
    }

    /// A call to UVM.
    ///
    /// # Errors
    /// The driver's.
    pub fn uvm<T: Pod>(&self, ioctl: &Ioctl<T>, args: &mut T, status: impl FnOnce(&T) -> u32) -> Result<(), RmError> {
        let Some(files) = self.uvm else {
            let outcome = Outcome::Errno(Errno::ENODEV);
            return Err(RmError { call: ioctl.desc.name.into(), outcome });
        };
        self.call(files.space, ioctl, args, "", status)
    }

    /// Creates an object under `parent`; the driver writes its results back to `params`. Freeing the client frees the
    /// object, too.
    ///
    /// # Errors
    /// The driver's.
    pub fn alloc<T: Pod + Named>(&self, parent: Handle, class: u32, params: Option<&mut T>) -> Result<Handle, RmError> {
        let params_size = match params {
            Some(_) => self.release.len_bytes(T::NAME, size_of::<T>() as u32),
            None => 0,
        };
        let mut args = nvrm::RmAlloc {
            h_root: self.client,
            h_object_parent: parent,
            h_class: class,
            p_alloc_parms: params.map_or(0, |p| std::ptr::from_mut(p).expose_provenance() as u64),
            params_size,
            ..Default::default()
        };
        self.call(self.ctl, &nvrm::ALLOC, &mut args, &class_name(class), |a| a.status)?;
        Ok(args.h_object_new)
    }

    /// Frees an object and all its children.
    ///
    /// # Errors
    /// The driver's.
    pub fn free(&self, parent: Handle, object: Handle) -> Result<(), RmError> {
        let mut args =
            nvrm::RmFree { h_root: self.client, h_object_parent: parent, h_object_old: object, ..Default::default() };
        self.call(self.ctl, &nvrm::FREE, &mut args, &format!("{object:#x}"), |a| a.status)
    }

    /// Sends a control command to an object.
    ///
    /// # Errors
    /// The driver's.
    pub fn control<T: Pod>(&self, object: Handle, control: &Control<T>, params: &mut T) -> Result<(), RmError> {
        self.control_of(object, control, params, control.len_bytes())
    }

    /// Whether the release's structs are known. Otherwise a refused size of a struct is asked again with another one.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.release.known().is_ok()
    }

    /// Makes a call in the form that this release has: `new` from the major `since` on, else `old`. A release that is
    /// not known is asked in the other form too, where it refuses the size of the struct.
    ///
    /// # Errors
    /// The driver's; of the first form if it refuses both.
    pub(crate) fn by_form<R>(
        &self,
        since: u32,
        new: impl Fn() -> Result<R, RmError>,
        old: impl Fn() -> Result<R, RmError>,
    ) -> Result<R, RmError> {
        let is_new = self.release.major >= since;
        let first = if is_new { new() } else { old() };
        match first {
            Err(e) if !self.is_known() && e.is_about_size() => {
                let second = if is_new { old() } else { new() };
                second.map_err(|_| e)
            }
            answer => answer,
        }
    }

    /// As [`Driver::control`], but passes only `len_bytes` of the struct, for releases whose struct is shorter.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn control_of<T: Pod>(
        &self,
        object: Handle,
        control: &Control<T>,
        params: &mut T,
        len_bytes: u32,
    ) -> Result<(), RmError> {
        let mut args = nvrm::RmControl {
            h_client: self.client,
            h_object: object,
            cmd: control.cmd,
            params: std::ptr::from_mut(params).expose_provenance() as u64,
            params_size: len_bytes.min(control.len_bytes()),
            ..Default::default()
        };
        self.call(self.ctl, &nvrm::CONTROL, &mut args, &control_name(control.cmd), |a| a.status)
    }

    /// Opens a file of a card and ties it to the control file.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn open_card(&self, card: &Card) -> Result<Fd, RmError> {
        let fd = self.open_file(&card.path())?;
        let mut args = nvrm::RegisterFd { ctl_fd: self.ctl.0 };
        if let Err(error) = self.call(fd, &nvrm::REGISTER_FD, &mut args, "", |_| 0) {
            self.close(fd);
            return Err(error);
        }
        Ok(fd)
    }

    /// Opens a file of the driver.
    ///
    /// # Errors
    /// The port's error, explained.
    pub(crate) fn open_file(&self, path: &str) -> Result<Fd, RmError> {
        let opened = self.port.open(path, OpenFlags::DEVICE);
        opened.map_err(|errno| RmError { call: explain(&*self.port, path, errno), outcome: Outcome::Errno(errno) })
    }

    pub fn close(&self, fd: Fd) {
        let _closed_anyway = self.port.close(fd);
    }

    fn buffer_map(&self) -> MutexGuard<'_, BufferMap<Option<MappedMemory>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a range of addresses below 2^40, aligned to `align`, that nothing else in the process uses.
    ///
    /// # Errors
    /// `ENOMEM` when no range is free; the port's errors.
    pub fn reserve(&self, len_bytes: u64, align: u64) -> Result<Mapped, Errno> {
        if len_bytes > VA_END - VA_FIRST {
            return Err(Errno::ENOMEM);
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = *cursor;
        // Searches to the end, then once more from the start. Ranges of our own buffers are skipped; whether the
        // process uses a range otherwise is found by trying to reserve it.
        let (mut rounds, mut tries) = (0, VA_TRIES);
        while rounds < 2 && tries > 0 {
            at = at.next_multiple_of(align);
            if at + len_bytes > VA_END {
                (at, rounds) = (VA_FIRST, rounds + 1);
                continue;
            }
            let taken = self.buffer_map().overlapping(at, at + len_bytes);
            if let Some((start, len)) = taken {
                at = start + len;
                continue;
            }
            if let Some(mapped) = Mapped::reserve_at(&self.port, CpuPtr(at), len_bytes)? {
                *cursor = at + len_bytes;
                self.buffer_map().note(at, len_bytes, None);
                return Ok(mapped);
            }
            at = (at + 1).next_multiple_of(VA_STEP);
            tries -= 1;
        }
        Err(Errno::ENOMEM)
    }

    /// Records which memory object is mapped at a reserved range.
    pub(crate) fn note_memory(&self, va: u64, len_bytes: u64, mapped: MappedMemory) {
        self.buffer_map().note(va, len_bytes, Some(mapped));
    }

    /// Maps the buffer that contains an address into the page table of a GPU registered with UVM, if it is not mapped
    /// there yet. Returns `false` if it is no buffer of this driver's GPUs, or one that UVM did not map.
    ///
    /// # Errors
    /// The driver's: `NV_ERR_NOT_SUPPORTED` for VRAM of a GPU without a link to this one.
    pub(crate) fn map_peer(&self, va: u64, gpu: Uuid) -> Result<bool, RmError> {
        let mut buffers = self.buffer_map();
        let found = buffers.containing(va).and_then(|(at, len, mapped)| Some((at, len, mapped.clone()?)));
        let Some((at, len_bytes, mut mapped)) = found else { return Ok(false) };
        let Some(owner) = mapped.gpus.first().copied() else { return Ok(false) };
        if mapped.gpus.contains(&gpu) {
            return Ok(true);
        }
        if mapped.is_vram {
            self.enable_peers([owner, gpu])?;
        }
        map_by_uvm(self, at, len_bytes, mapped.memory, gpu)?;
        mapped.gpus.push(gpu);
        buffers.note(at, len_bytes, Some(mapped));
        Ok(true)
    }

    /// Enables peer access between two GPUs, once for each pair.
    fn enable_peers(&self, mut pair: [Uuid; 2]) -> Result<(), RmError> {
        pair.sort_unstable();
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if !peers.contains(&pair) {
            let [gpu_uuid_a, gpu_uuid_b] = pair;
            let mut args = uvm::EnablePeerAccess { gpu_uuid_a, gpu_uuid_b, ..Default::default() };
            self.uvm(&uvm::ENABLE_PEER_ACCESS, &mut args, |a| a.rm_status)?;
            peers.push(pair);
        }
        Ok(())
    }

    /// Forgets a GPU that was unregistered: its peer pairs, and its mappings of other GPUs' memory.
    pub(crate) fn forget_gpu(&self, gpu: Uuid) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).retain(|pair| !pair.contains(&gpu));
        for mapped in self.buffer_map().values_mut().flatten() {
            let owner = mapped.gpus.first().copied();
            mapped.gpus.retain(|known| *known != gpu || owner == Some(gpu));
        }
    }

    /// The GPU with this `gpu_id` if it is already open. UVM registers a GPU only once, so opening it again shares it.
    pub(crate) fn find_open_gpu(&self, gpu_id: u32) -> Option<Arc<Gpu>> {
        let up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.iter().find(|(id, _)| *id == gpu_id).and_then(|(_, gpu)| gpu.upgrade())
    }

    /// Records a GPU as open.
    pub(crate) fn note_gpu(&self, gpu_id: u32, gpu: &Arc<Gpu>) {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.retain(|(id, known)| *id != gpu_id && known.strong_count() > 0);
        up.push((gpu_id, Arc::downgrade(gpu)));
    }

    /// Records that a reserved range was released.
    pub fn forget(&self, va: u64) {
        self.buffer_map().forget(va);
    }

    /// Describes in words which buffer contains, or contained, an address; for a report.
    #[must_use]
    pub fn describe(&self, va: u64) -> String {
        self.buffer_map().describe(va)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.client != 0
            && let Err(e) = self.free(0, self.client)
        {
            log::warn!("closing the NVIDIA driver: {e}");
        }
        self.close_uvm();
        self.close(self.ctl);
    }
}

/// A struct that may be shorter in older releases, with its name in C.
pub trait Named {
    const NAME: &'static str;
}

macro_rules! named {
    ($($ty:ident)*) => { $(impl Named for nvrm::$ty { const NAME: &'static str = nvrm::$ty::LAYOUT.name; })* };
}
named! {
    RootAlloc DeviceAlloc SubdeviceAlloc VaSpaceAlloc ChannelGroupAlloc CtxShareAlloc ChannelAlloc ChannelAllocV610 UsermodeAlloc CopyAlloc
    GraphicsAlloc MemoryAlloc DebuggerAlloc ConfidentialComputeAlloc EventAlloc
}

/// A class's name, for reports.
fn class_name(class: u32) -> String {
    chosen(CLASSES, class).map_or_else(|| format!("class {class:#x}"), |c| c.name.into())
}

/// A command's name, for reports.
fn control_name(cmd: u32) -> String {
    let name = chosen(CONTROLS, cmd).map(|c| c.name);
    name.map_or_else(|| format!("command {cmd:#x}"), |n| n.split_once("_CTRL_CMD_").map_or(n, |(_, n)| n).into())
}
