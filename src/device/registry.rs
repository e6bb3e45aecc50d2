//! The registry: device names → open devices, each opened once a process and shared.
//!
//! Place in the arrows: `engine` and the command line ask it. It and the UOp interner are the only process-wide state.
//! Grammar: `KIND`, `KIND:index`, `DISK:path`, `AMD:gfx1100`, `AMD:bdf=0000:03:00.0`, `AMD:emu=gfx1100`, `NV:uuid=GPU-...`, `NV:emu=sm_90`, `NULL:sm_90a`; kinds in
//! any case; `CPU` and `CPU:0` are the same device, `CUDA` is another word for `NV`. Software GPUs come from a function that the edge hands over: no device knows the emulator.

use super::amd::{self, AmdDevice, AmdOptions, Driver, Selector};
use super::cpu::{CpuDevice, CpuOptions, choose_arch, machine_memory_bytes};
use super::disk::DiskDevice;
use super::null::NullDevice;
use super::nv::{self, NvDevice, NvOptions};
use super::{Device, DeviceError, DeviceState};
use doorbell_ioctl::port::{FileAccess, Port};
use serde::Serialize;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Names that can be opened, for messages.
pub const VALID: &str = "CPU, CPU:n, NULL, NULL:arch, DISK:path, AMD, AMD:n, AMD:bdf=0000:03:00.0, AMD:gfx1100, AMD:emu=gfx1100, \
     NV, NV:n, NV:bdf=0000:03:00.0, NV:uuid=GPU-01234567, NV:emu=sm_90";
/// Names that users of the field know and this build lacks.
const KNOWN_ABSENT: &[&str] = &["METAL"];
/// Above any count of CPU devices that makes sense.
const MAX_INDEX: u32 = 63;

/// A parsed name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceName {
    Cpu(u32),
    /// With the arch that it claims, if one is named.
    Null(Option<String>),
    Disk(PathBuf),
    Amd(Selector),
    Nv(nv::Selector),
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu(0) => f.write_str("CPU"),
            Self::Cpu(index) => write!(f, "CPU:{index}"),
            Self::Null(None) => f.write_str("NULL"),
            Self::Null(Some(arch)) => write!(f, "NULL:{arch}"),
            Self::Disk(path) => write!(f, "DISK:{}", path.display()),
            Self::Amd(selector) => write!(f, "{selector}"),
            Self::Nv(selector) => write!(f, "{selector}"),
        }
    }
}

impl std::str::FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown { asked: text.into(), valid: VALID.into() };
        let (kind, rest) = text.trim().split_once(':').map_or((text.trim(), None), |(kind, rest)| (kind, Some(rest)));
        let kind = kind.to_ascii_uppercase();
        let index = || match rest {
            None => Ok(0),
            Some(n) => n.parse::<u32>().ok().filter(|&n| n <= MAX_INDEX).ok_or_else(unknown),
        };
        match (kind.as_str(), rest) {
            ("CPU", _) => Ok(Self::Cpu(index()?)),
            ("NULL", Some(arch)) if arch.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                Ok(Self::Null(Some(arch.into())))
            }
            ("NULL", _) if index()? == 0 => Ok(Self::Null(None)),
            ("DISK", Some(path)) if !path.is_empty() => Ok(Self::Disk(path.into())),
            ("AMD", rest) => Selector::parse(rest).map(Self::Amd).ok_or_else(unknown),
            ("NV" | "CUDA", rest) => nv::Selector::parse(rest).map(Self::Nv).ok_or_else(unknown),
            (absent, _) if KNOWN_ABSENT.contains(&absent) => {
                Err(DeviceError::NotInBuild { name: absent.into(), valid: VALID.into() })
            }
            _ => Err(unknown()),
        }
    }
}

/// How devices are opened; read when a device is opened first, without effect on one that is open.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    pub cpu: CpuOptions,
    pub amd: AmdOptions,
    pub nv: NvOptions,
    /// Opens `DISK:` files for writing, making them if they are missing.
    pub disk_write: bool,
}

/// One line of `doorbell devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceListing {
    pub name: String,
    /// What code is made for; empty where no kernel runs or the device is absent.
    pub arch: String,
    /// 0: none, or not known before the device is opened; as with `memory_bytes`.
    pub cores: u32,
    pub memory_bytes: u64,
    /// Why the device cannot be opened, if it cannot.
    pub unavailable: Option<String>,
    /// Clocks, memory, errors now, where the driver was asked.
    #[serde(serialize_with = "state_values")]
    pub state: Option<DeviceState>,
}

fn state_values<S: serde::Serializer>(state: &Option<DeviceState>, to: S) -> Result<S::Ok, S::Error> {
    state.as_ref().map(|s| &s.values).serialize(to)
}

/// Where software GPUs come from: a chip's name to a port with that chip. The command line gives one; nothing here knows the emulators.
pub type Emulate = fn(&str) -> Emulated;

/// A software GPU's port, or what speaks against it in one line.
pub type Emulated = Result<Arc<dyn Port>, String>;

/// Puts another port around the one that a device is about to use: a tracer, a recorder, a fault injector.
pub type Wrap = Box<dyn Fn(Arc<dyn Port>) -> Arc<dyn Port> + Send + Sync>;

struct WrapSlot(OnceLock<Wrap>);

impl std::fmt::Debug for WrapSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "wrapped" } else { "plain" })
    }
}

impl Default for WrapSlot {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// Open devices by name.
#[derive(Debug, Default)]
pub struct Registry {
    open: Mutex<HashMap<DeviceName, Arc<dyn Device>>>,
    emulate: OnceLock<Emulate>,
    wrap: WrapSlot,
    /// The process's connection to AMD's driver: kept, for the kernel gives a process one event page in its life.
    amd: Mutex<Option<Arc<Driver>>>,
    /// The process's connection to NVIDIA's driver: its GPUs share one client.
    nv: Mutex<Option<Arc<nv::Driver>>>,
}

impl Registry {
    /// The registry of the process.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(Self::default)
    }

    /// Says where software GPUs come from; the first one to say it counts.
    pub fn set_emulate(&self, emulate: Emulate) {
        let _first_one_counts = self.emulate.set(emulate);
    }

    /// Wraps the port of every driver that is opened from now on; the first one to say it counts.
    pub fn set_wrap(&self, wrap: Wrap) {
        let _first_one_counts = self.wrap.0.set(wrap);
    }

    /// Closes all open devices, and lets go of the drivers.
    ///
    /// # Errors
    /// The first one's; the others are closed nevertheless.
    pub fn close_all(&self) -> Result<(), DeviceError> {
        let devices = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for device in devices.into_values() {
            result = result.and(device.close());
        }
        *self.amd.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.nv.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }

    /// The port as it was asked to be.
    fn wrapped(&self, port: Arc<dyn Port>) -> Arc<dyn Port> {
        match self.wrap.0.get() {
            Some(wrap) => wrap(port),
            None => port,
        }
    }

    /// The device of that name, opened now unless it is open.
    ///
    /// # Errors
    /// `Unknown` and `NotInBuild` for the name, and what the device's own opening may say.
    pub fn open(&self, name: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let name: DeviceName = name.parse()?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = open.get(&name) {
            return Ok(Arc::clone(device));
        }
        let device = self.make(&name, options)?;
        open.insert(name, Arc::clone(&device));
        Ok(device)
    }

    /// Puts a device made elsewhere under a name, as if it had been opened by it; the former one is returned.
    ///
    /// # Errors
    /// As the name's parsing.
    pub fn insert(&self, name: &str, device: Arc<dyn Device>) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        let name: DeviceName = name.parse()?;
        Ok(self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(name, device))
    }

    /// Closes the device of that name, if it is open, and forgets it: the next `open` makes a new one.
    ///
    /// # Errors
    /// As [`Device::close`].
    pub fn close(&self, name: &str) -> Result<(), DeviceError> {
        let name: DeviceName = name.parse()?;
        let device = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        device.map_or(Ok(()), |device| device.close())
    }

    fn make(&self, name: &DeviceName, options: &DeviceOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let shown = name.to_string();
        Ok(match name {
            DeviceName::Cpu(_) => Arc::new(CpuDevice::open(&shown, &options.cpu)?),
            DeviceName::Null(arch) => {
                // Nothing runs, so the arch need not be this machine's; who compiles says whether it knows it.
                let arch = match arch {
                    Some(arch) => arch.clone(),
                    None => choose_arch(&shown, options.cpu.arch.as_deref())?,
                };
                Arc::new(NullDevice::open(&shown, &arch, options.cpu.resolved_threads())?)
            }
            DeviceName::Disk(path) => {
                let access = if options.disk_write { FileAccess::ReadWrite } else { FileAccess::Read };
                Arc::new(DiskDevice::open(&shown, path, access)?)
            }
            DeviceName::Amd(selector) => {
                let driver = self.amd_driver(&shown, selector)?;
                let mut amd = options.amd.clone();
                if matches!(selector, Selector::Emulated(_)) {
                    amd.submit_timeout = amd.submit_timeout.max(SOFTWARE_TIMEOUT);
                }
                Arc::new(AmdDevice::open(&shown, &driver, selector, &amd)?)
            }
            DeviceName::Nv(selector) => {
                let driver = self.nv_driver(&shown, selector, &options.nv)?;
                let mut nv = options.nv.clone();
                if matches!(selector, nv::Selector::Emulated(_)) {
                    nv.submit_timeout = nv.submit_timeout.max(SOFTWARE_TIMEOUT);
                }
                Arc::new(NvDevice::open(&shown, &driver, selector, &nv)?)
            }
        })
    }

    /// The kernel's driver, or a software one of the device's own.
    fn amd_driver(&self, name: &str, selector: &Selector) -> Result<Arc<Driver>, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        if let Selector::Emulated(chip) = selector {
            let emulate = self.emulate.get().ok_or_else(|| unavailable("no software GPUs here".into()))?;
            return Driver::open(name, self.wrapped(emulate(chip).map_err(unavailable)?));
        }
        let mut known = self.amd.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = &*known {
            return Ok(Arc::clone(driver));
        }
        let port = kernel_port().ok_or_else(|| unavailable("not on this system".into()))?;
        let driver = Driver::open(name, self.wrapped(port))?;
        *known = Some(Arc::clone(&driver));
        Ok(driver)
    }

    /// As [`Registry::amd_driver`].
    fn nv_driver(
        &self,
        name: &str,
        selector: &nv::Selector,
        options: &NvOptions,
    ) -> Result<Arc<nv::Driver>, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        let open = |port| nv::Driver::open_with(name, self.wrapped(port), options.any_release, options.tables);
        if let nv::Selector::Emulated(chip) = selector {
            let emulate = self.emulate.get().ok_or_else(|| unavailable("no software GPUs here".into()))?;
            return open(emulate(chip).map_err(unavailable)?);
        }
        let mut known = self.nv.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = &*known {
            return Ok(Arc::clone(driver));
        }
        let port = kernel_port().ok_or_else(|| unavailable("not on this system".into()))?;
        let driver = open(port)?;
        *known = Some(Arc::clone(&driver));
        Ok(driver)
    }

    /// One row a card of the driver, or one that says why there is none; then the software GPUs.
    fn list_nv(&self, options: &NvOptions) -> Vec<DeviceListing> {
        let selector = nv::Selector::Index(0);
        let cards = self.nv_driver("NV", &selector, options).and_then(|driver| {
            let refused = |e| DeviceError::Rm { device: "NV".into(), what: "list cards", source: Box::new(e) };
            nv::cards(&driver).map_err(refused)
        });
        let mut rows = match cards {
            Err(e) => vec![DeviceListing { unavailable: Some(e.to_string()), ..row("NV") }],
            Ok(cards) if cards.is_empty() => {
                vec![DeviceListing { unavailable: Some("the driver lists no card".into()), ..row("NV") }]
            }
            Ok(cards) => (0..).zip(&cards).map(|(n, _)| self.nv_row(n, options)).collect(),
        };
        if self.emulate.get().is_some() {
            let chips = nv::CHIPS.iter().filter(|c| SOFTWARE_CHIPS.contains(&c.name));
            rows.extend(chips.map(|c| DeviceListing { arch: c.name.into(), ..row(&format!("NV:emu={}", c.name)) }));
        }
        rows
    }

    /// What a card is, which only opening it tells.
    fn nv_row(&self, index: u32, options: &NvOptions) -> DeviceListing {
        let name = nv::Selector::Index(index).to_string();
        let options = DeviceOptions { nv: options.clone(), ..DeviceOptions::default() };
        match self.open(&name, &options) {
            Ok(device) => {
                let info = device.info();
                let (arch, cores, memory_bytes) = (info.arch.clone(), info.threads, info.memory_bytes);
                DeviceListing { arch, cores, memory_bytes, state: device.state(), ..row(&name) }
            }
            Err(e) => DeviceListing { unavailable: Some(e.to_string()), ..row(&name) },
        }
    }

    /// One row a GPU of the topology; one that says why when there is none.
    fn list_amd(&self) -> Vec<DeviceListing> {
        let absent = |why: String| DeviceListing { unavailable: Some(why), ..row("AMD") };
        let Some(port) = kernel_port() else { return vec![absent("not on this system".into())] };
        let mut rows = match amd::usable_nodes("AMD", &*port) {
            Err(e) => vec![absent(e.to_string())],
            Ok(nodes) if nodes.is_empty() => vec![absent("no GPU in the topology".into())],
            Ok(nodes) => nodes.iter().enumerate().map(|(n, node)| amd_row(n, node, &*port)).collect(),
        };
        if self.emulate.get().is_some() {
            let chips = amd::CHIPS.iter().filter(|c| SOFTWARE_CHIPS.contains(&c.name));
            rows.extend(chips.map(|c| DeviceListing { arch: c.name.into(), ..row(&format!("AMD:emu={}", c.name)) }));
        }
        rows
    }

    /// What there is and what there could be, for `doorbell devices`.
    #[must_use]
    pub fn list(&self, options: &DeviceOptions) -> Vec<DeviceListing> {
        let mut cpu = row("CPU");
        match choose_arch("CPU", options.cpu.arch.as_deref()) {
            Ok(arch) => cpu.arch = arch,
            Err(e) => cpu.unavailable = Some(e.to_string()),
        }
        cpu.cores = options.cpu.resolved_threads();
        cpu.memory_bytes = machine_memory_bytes();
        let mut null = row("NULL");
        null.arch.clone_from(&cpu.arch);
        let absent = KNOWN_ABSENT
            .iter()
            .map(|name| DeviceListing { unavailable: Some("not in this build".into()), ..row(name) });
        let gpus = self.list_amd().into_iter().chain(self.list_nv(&options.nv));
        [cpu, null, row("DISK:path")].into_iter().chain(gpus).chain(absent).collect()
    }
}

// TIMEOUT: a software GPU executes some 10^8 lane operations a second; what takes a card milliseconds takes it minutes.
const SOFTWARE_TIMEOUT: Duration = Duration::from_secs(900);

/// Chips that a software GPU can be.
const SOFTWARE_CHIPS: &[&str] = &["gfx1100", "gfx1201", "gfx942", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120"];

fn row(name: &str) -> DeviceListing {
    DeviceListing { name: name.into(), arch: String::new(), cores: 0, memory_bytes: 0, unavailable: None, state: None }
}

fn amd_row(index: usize, node: &amd::Node, port: &dyn Port) -> DeviceListing {
    let selector = Selector::Index(u32::try_from(index).unwrap_or(u32::MAX));
    let is_known = amd::Chip::of_version(node.target_version()).is_some();
    DeviceListing {
        arch: node.gfx(),
        cores: u32::try_from(node.cu_count()).unwrap_or(u32::MAX),
        memory_bytes: node.vram_bytes(),
        unavailable: (!is_known).then(|| format!("chip {} is unknown, known are {}", node.gfx(), amd::Chip::names())),
        state: Some(amd::state(node, port, None)),
        ..row(&selector.to_string())
    }
}

/// The running kernel.
#[cfg(target_os = "linux")]
fn kernel_port() -> Option<Arc<dyn Port>> {
    Some(doorbell_ioctl::port::LinuxPort::new())
}

#[cfg(not(target_os = "linux"))]
fn kernel_port() -> Option<Arc<dyn Port>> {
    None
}

/// The device of that name from the process's registry.
///
/// # Errors
/// As [`Registry::open`].
pub fn open(name: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>, DeviceError> {
    Registry::global().open(name, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_device_are_one_name() {
        let parse = |t: &str| t.parse::<DeviceName>().unwrap();
        assert_eq!(parse("cpu"), parse("CPU:0"));
        assert_eq!(parse("CPU:1").to_string(), "CPU:1");
        assert_eq!(parse("DISK:a:b"), DeviceName::Disk("a:b".into()));
        assert_eq!(parse("null"), DeviceName::Null(None));
        assert_eq!(parse("null:sm_90a").to_string(), "NULL:sm_90a");
        assert_eq!(parse("amd:0"), parse("AMD"));
        assert_eq!(parse("AMD:EMU=GFX1100").to_string(), "AMD:emu=gfx1100");
        assert_eq!((parse("cuda:1"), parse("CUDA").to_string()), (parse("NV:1"), "NV".into()));
        assert_eq!(parse("nv:emu=SM_90").to_string(), "NV:emu=sm_90");
    }

    #[test]
    fn wrong_names_name_the_valid_ones() {
        let error = |t: &str| t.parse::<DeviceName>().unwrap_err().to_string();
        assert!(error("GPU").starts_with("unknown device \"GPU\", valid: CPU, CPU:n, NULL, NULL:arch, DISK:path, AMD"));
        assert!(error("METAL").starts_with("device METAL is not in this build, valid: CPU, "));
        for text in
            ["", "CPU:x", "CPU:-1", "CPU:64", "DISK", "DISK:", "NULL:1", "AMD:", "AMD:emu=", "AMD:x y", "NV:gfx1100"]
        {
            assert!(error(text).starts_with("unknown device"), "{text}");
        }
    }

    #[test]
    fn device_is_opened_once_and_anew_after_close() {
        let registry = Registry::default();
        let options = DeviceOptions::default();
        let a = registry.open("NULL", &options).unwrap();
        assert!(Arc::ptr_eq(&a, &registry.open("null", &options).unwrap()));
        registry.close("NULL").unwrap();
        assert!(!Arc::ptr_eq(&a, &registry.open("NULL", &options).unwrap()));
    }

    #[test]
    fn software_gpu_without_an_emulator_says_so() {
        for name in ["AMD:emu=gfx1100", "NV:emu=sm_90"] {
            let error = Registry::default().open(name, &DeviceOptions::default()).unwrap_err();
            assert_eq!(error.to_string(), format!("device {name} cannot be opened: no software GPUs here"));
        }
    }

    #[test]
    fn listing_says_why_a_device_is_absent() {
        let list = Registry::default().list(&DeviceOptions::default());
        let row = |name: &str| list.iter().find(|d| d.name == name).unwrap();
        assert!(row("CPU").unavailable.is_none() && row("CPU").cores > 0);
        assert_eq!(row("METAL").unavailable.as_deref(), Some("not in this build"));
        if !std::path::Path::new("/dev/nvidiactl").exists() {
            assert!(row("NV").unavailable.as_ref().unwrap().contains("open /dev/nvidiactl: ENOENT (no nvidia driver)"));
        }
    }
}
