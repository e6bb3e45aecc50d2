//! One process's connection to NVIDIA's driver: the control file, the root client, UVM where there is UVM, the release, addresses, and the last calls for a report.
//!
//! Place in the arrows: below everything else of `device::nv`; the GPUs of one port share it. Source: nv.md 1 and 2 (steps 1 to 4).
//! A call has two outcomes, errno and the status inside its struct; [`RmError`] holds whichever went wrong, with the call's name.
//! GPU addresses are addresses of this process, below 2^40, where push buffers and QMDs have to lie: what is reserved here is nobody else's.

use super::find::Card;
use super::gpu::Gpu;
use super::paging::{PageTables, map_by_uvm};
use crate::DeviceError;
use crate::places::Places;
use crate::recent::Recent;
use bytemuck::Pod;
use doorbell_ioctl::abi::nvrm::{self, CLASSES, CONTROLS, Control, Release, Status};
use doorbell_ioctl::abi::{Ioctl, chosen, uvm};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, Mapped, OpenFlags, Port, call, monotonic_ns};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub const CTL_PATH: &str = "/dev/nvidiactl";
pub const UVM_PATH: &str = "/dev/nvidia-uvm";
/// GPU addresses that are given out: what lies below holds the program, what lies above does not fit a GPFIFO entry.
const VA_FIRST: u64 = 0x10_0000_0000;
const VA_END: u64 = 0xff_0000_0000;
/// How far the search goes on where something else of the process lies, and how often.
const VA_STEP: u64 = 1 << 28;
const VA_TRIES: usize = 4096;
/// Handles that the process chooses itself, where a call demands it; RM's own begin elsewhere.
const OWN_HANDLES: u32 = 0x1000;

/// What the driver has refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {outcome}")]
pub struct RmError {
    /// The call, with the class or the command that it carried.
    pub call: String,
    pub outcome: Outcome,
}

impl RmError {
    /// Whether it was UVM that refused.
    #[must_use]
    pub fn is_of_uvm(&self) -> bool {
        self.call.starts_with("UVM_")
    }
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By the system call.
    Errno(Errno),
    /// By the status in the struct.
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
pub type Handle = u32;

/// A GPU's, as UVM takes it.
pub type Uuid = [u8; 16];

/// A buffer's memory, and in whose page tables UVM has put it: the owner's first, none where RM did so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub memory: Handle,
    pub is_vram: bool,
    pub gpus: Vec<Uuid>,
}

/// The connection.
#[derive(Debug)]
pub struct Driver {
    port: Arc<dyn Port>,
    ctl: Fd,
    /// None where RM alone fills all page tables.
    uvm: Option<UvmFiles>,
    client: Handle,
    release: Release,
    /// By the monotonic clock.
    opened_ns: u64,
    next_handle: AtomicU32,
    recent: Recent,
    places: Mutex<Places<Option<Placed>>>,
    /// Pairs of GPUs that may map each other's memory.
    peers: Mutex<Vec<[Uuid; 2]>>,
    /// GPUs that were opened, by number.
    up: Mutex<Vec<(u32, Weak<Gpu>)>>,
    /// Where the next search for addresses begins.
    cursor: Mutex<u64>,
}

/// UVM's address space.
#[derive(Clone, Copy, Debug)]
struct UvmFiles {
    space: Fd,
    /// Keeps the process's memory map for `space`.
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

/// Why a device file cannot be opened, in words.
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

/// UVM's two files; none where they cannot be opened.
fn open_uvm(port: &Arc<dyn Port>) -> Result<UvmFiles, Errno> {
    let mut opened = Opened { port, files: Vec::new() };
    let files = UvmFiles { space: opened.open(UVM_PATH)?, mm: opened.open(UVM_PATH)? };
    opened.files.clear();
    Ok(files)
}

/// The release's name, as CHECK_VERSION_STR answers it.
fn ask_release(port: &dyn Port, ctl: Fd) -> Result<String, String> {
    let mut args = nvrm::CheckVersion { cmd: u32::from(b'2'), ..Default::default() };
    call(port, ctl, &nvrm::CHECK_VERSION_STR, &mut args).map_err(|e| e.to_string())?;
    let end = args.version_string.iter().position(|b| *b == 0).unwrap_or(args.version_string.len());
    Ok(String::from_utf8_lossy(&args.version_string[..end]).into_owned())
}

impl Driver {
    /// Opens the driver: checks its release, makes a client and a UVM address space, where there is UVM. `any_release` takes releases that were not
    /// tested.
    ///
    /// # Errors
    /// `Unavailable`: no driver, no right, an untested release; `Rm` with the call that was refused.
    pub fn open(name: &str, port: Arc<dyn Port>, any_release: bool) -> Result<Arc<Self>, DeviceError> {
        Self::open_with(name, port, any_release, PageTables::default())
    }

    /// As [`Driver::open`], with page tables that are filled as said.
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
        if !any_release {
            release.known().map_err(|e| unavailable(e.to_string()))?;
        }
        // From here on they are closed by the connection's drop.
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
            recent: Recent::default(),
            places: Mutex::default(),
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

    /// Opens UVM and makes its address space; nothing of it stays where any of that is refused.
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
        // A kernel that needs none of it says so; without it some refuse the address space later.
        match self.call(files.mm, &uvm::MM_INITIALIZE, &mut args, "", |a| a.rm_status) {
            Ok(()) | Err(RmError { outcome: Outcome::Status(_), .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether UVM can fill page tables: it is there and has made an address space.
    #[must_use]
    pub fn has_uvm(&self) -> bool {
        self.uvm.is_some()
    }

    #[must_use]
    pub fn port(&self) -> &Arc<dyn Port> {
        &self.port
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
    pub fn opened_ns(&self) -> u64 {
        self.opened_ns
    }

    /// A handle that no other object of this client has.
    #[must_use]
    pub fn own_handle(&self) -> Handle {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// The last calls, oldest first.
    #[must_use]
    pub fn recent_calls(&self) -> String {
        self.recent.line()
    }

    /// A call on a file, remembered for reports; `on` says what it carried.
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
        let outcome = match call(&*self.port, fd, ioctl, args) {
            Err(e) => Some(Outcome::Errno(e.errno)),
            Ok(_) => Some(Status(status(args))).filter(|s| !s.is_ok()).map(Outcome::Status),
        };
        let name = ioctl.desc.name.trim_start_matches("NV_ESC_");
        let text = if on.is_empty() { name.to_string() } else { format!("{name} {on}") };
        match outcome {
            None => {
                self.recent.note(&text, None);
                Ok(())
            }
            Some(outcome) => {
                self.recent.note(&text, Some(&outcome));
                Err(RmError { call: text, outcome })
            }
        }
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

    /// A new object under `parent`; its parameters are answered into `params`. Dropping the client frees it, too.
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

    /// Frees an object and all below it.
    ///
    /// # Errors
    /// The driver's.
    pub fn free(&self, parent: Handle, object: Handle) -> Result<(), RmError> {
        let mut args =
            nvrm::RmFree { h_root: self.client, h_object_parent: parent, h_object_old: object, ..Default::default() };
        self.call(self.ctl, &nvrm::FREE, &mut args, &format!("{object:#x}"), |a| a.status)
    }

    /// A command to an object.
    ///
    /// # Errors
    /// The driver's.
    pub fn control<T: Pod>(&self, object: Handle, control: &Control<T>, params: &mut T) -> Result<(), RmError> {
        self.control_of(object, control, params, control.len_bytes())
    }

    /// As [`Driver::control`], for releases whose struct has another length, `len_bytes` at most.
    ///
    /// # Errors
    /// The driver's.
    pub fn control_of<T: Pod>(
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
    pub fn open_card(&self, card: &Card) -> Result<Fd, RmError> {
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
    /// The port's, explained.
    pub fn open_file(&self, path: &str) -> Result<Fd, RmError> {
        let opened = self.port.open(path, OpenFlags::DEVICE);
        opened.map_err(|errno| RmError { call: explain(&*self.port, path, errno), outcome: Outcome::Errno(errno) })
    }

    pub fn close(&self, fd: Fd) {
        let _closed_anyway = self.port.close(fd);
    }

    fn places(&self) -> MutexGuard<'_, Places<Option<Placed>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses below 2^40 that nobody else of the process has, a multiple of `align`.
    ///
    /// # Errors
    /// `ENOMEM` when there are none, the port's.
    pub fn reserve(&self, len_bytes: u64, align: u64) -> Result<Mapped, Errno> {
        if len_bytes > VA_END - VA_FIRST {
            return Err(Errno::ENOMEM);
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = *cursor;
        // Once to the end, once more from the start. Our own buffers are stepped over; places that the process has elsewhere are tried.
        let (mut rounds, mut tries) = (0, VA_TRIES);
        while rounds < 2 && tries > 0 {
            at = at.next_multiple_of(align);
            if at + len_bytes > VA_END {
                (at, rounds) = (VA_FIRST, rounds + 1);
                continue;
            }
            let taken = self.places().overlapping(at, at + len_bytes);
            if let Some((start, len)) = taken {
                at = start + len;
                continue;
            }
            if let Some(mapped) = Mapped::reserve_at(&self.port, CpuPtr(at), len_bytes)? {
                *cursor = at + len_bytes;
                self.places().note(at, len_bytes, None);
                return Ok(mapped);
            }
            at = (at + 1).next_multiple_of(VA_STEP);
            tries -= 1;
        }
        Err(Errno::ENOMEM)
    }

    /// What memory lies at addresses that were reserved.
    pub fn note_memory(&self, va: u64, len_bytes: u64, placed: Placed) {
        self.places().note(va, len_bytes, Some(placed));
    }

    /// Puts the buffer that holds an address into the page table of a GPU that UVM knows, unless it is there. `false`: no buffer of this driver's
    /// GPUs, or one that UVM does not know.
    ///
    /// # Errors
    /// The driver's: `NV_ERR_NOT_SUPPORTED` for VRAM of a GPU without a link to this one.
    pub fn map_peer(&self, va: u64, gpu: Uuid) -> Result<bool, RmError> {
        let mut places = self.places();
        let found = places.holding(va).and_then(|(at, len, placed)| Some((at, len, placed.clone()?)));
        let Some((at, len_bytes, mut placed)) = found else { return Ok(false) };
        let Some(owner) = placed.gpus.first().copied() else { return Ok(false) };
        if placed.gpus.contains(&gpu) {
            return Ok(true);
        }
        if placed.is_vram {
            self.enable_peers([owner, gpu])?;
        }
        map_by_uvm(self, at, len_bytes, placed.memory, gpu)?;
        placed.gpus.push(gpu);
        places.note(at, len_bytes, Some(placed));
        Ok(true)
    }

    /// Lets two GPUs map each other's memory, once.
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

    /// A GPU is no longer registered: its pairs are gone with it, and what it had mapped of others' memory.
    pub fn forget_gpu(&self, gpu: Uuid) {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).retain(|pair| !pair.contains(&gpu));
        for placed in self.places().kept_mut().flatten() {
            let owner = placed.gpus.first().copied();
            placed.gpus.retain(|known| *known != gpu || owner == Some(gpu));
        }
    }

    /// The GPU of that number if it is up, for whoever opens it again: UVM registers a GPU once.
    pub fn gpu_that_is_up(&self, gpu_id: u32) -> Option<Arc<Gpu>> {
        let up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.iter().find(|(id, _)| *id == gpu_id).and_then(|(_, gpu)| gpu.upgrade())
    }

    /// A GPU is up.
    pub fn note_gpu(&self, gpu_id: u32, gpu: &Arc<Gpu>) {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.retain(|(id, known)| *id != gpu_id && known.strong_count() > 0);
        up.push((gpu_id, Arc::downgrade(gpu)));
    }

    /// Addresses are given back.
    pub fn forget(&self, va: u64) {
        self.places().forget(va);
    }

    /// What lies, or lay, at an address: in words, for a report.
    #[must_use]
    pub fn describe(&self, va: u64) -> String {
        self.places().describe(va)
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

/// A struct that may be shorter in older releases, by C's name.
pub trait Named {
    const NAME: &'static str;
}

macro_rules! named {
    ($($ty:ident)*) => { $(impl Named for nvrm::$ty { const NAME: &'static str = nvrm::$ty::LAYOUT.name; })* };
}
named! {
    RootAlloc DeviceAlloc SubdeviceAlloc VaSpaceAlloc ChannelGroupAlloc CtxShareAlloc ChannelAlloc UsermodeAlloc CopyAlloc GraphicsAlloc
    MemoryAlloc DebuggerAlloc ConfidentialComputeAlloc EventAlloc
}

/// A class by name, for reports.
fn class_name(class: u32) -> String {
    chosen(CLASSES, class).map_or_else(|| format!("class {class:#x}"), |c| c.name.into())
}

/// A command by name, for reports.
fn control_name(cmd: u32) -> String {
    let name = chosen(CONTROLS, cmd).map(|c| c.name);
    name.map_or_else(|| format!("command {cmd:#x}"), |n| n.split_once("_CTRL_CMD_").map_or(n, |(_, n)| n).into())
}
