//! The registry: device names → open devices. Each device is opened once per process and shared.
//!
//! Layer: `engine` and the command line use it. It is process-wide, as are the UOp interner, the defaults of `tensor`
//! (device, dtypes, streams of random numbers), the program's session and the mode of software GPUs (both `engine`'s).
//! Software GPUs come from a function that `engine` sets, so that this crate does not depend on the emulator.

#[cfg(feature = "amd")]
mod amd;
mod emulation;
#[cfg(feature = "metal")]
mod metal;
mod name;
#[cfg(feature = "nv")]
mod nv;
#[cfg(any(feature = "amd", feature = "nv"))]
mod software;

pub use emulation::{EmuMode, EmuOptions, NOT_BUILT_IN};
#[cfg(feature = "metal")]
pub use metal::{EmulateMetal, TapMessages};
#[cfg(any(feature = "amd", feature = "nv"))]
pub(crate) use name::software_index;
pub use name::{DeviceName, computing_kinds};
#[cfg(any(feature = "amd", feature = "nv"))]
pub use software::CARDS as SOFTWARE_CARDS;

#[cfg(feature = "amd")]
use crate::amd::{AmdDevice, AmdOptions};
#[cfg(feature = "cpu")]
use crate::cpu::CpuDevice;
use crate::cpu::{CpuOptions, choose_arch, machine_memory_bytes};
use crate::disk::DiskDevice;
use crate::null::NullDevice;
#[cfg(feature = "nv")]
use crate::nv::{NvDevice, NvOptions};
use crate::{Device, DeviceError, DeviceState};
use doorbell_ioctl::port::{FileAccess, Port};
use serde::Serialize;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Options for opening devices. A device is opened once for each distinct set of options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    pub cpu: CpuOptions,
    #[cfg(feature = "amd")]
    pub amd: AmdOptions,
    #[cfg(feature = "nv")]
    pub nv: NvOptions,
    #[cfg(feature = "metal")]
    pub metal: crate::metal::MetalOptions,
    /// For software GPUs.
    pub emulation: EmuOptions,
    /// Opens `DISK:` files for writing, creating them if they are missing.
    pub disk_write: bool,
}

impl DeviceOptions {
    /// The options that concern the device of that name; all others have their defaults.
    fn of(&self, name: &DeviceName) -> DeviceOptions {
        let mut of = DeviceOptions::default();
        match name {
            #[cfg(feature = "cpu")]
            DeviceName::Cpu(_) => of.cpu = self.cpu.clone(),
            DeviceName::Null(_) => of.cpu = self.cpu.clone(),
            DeviceName::Disk(_) => of.disk_write = self.disk_write,
            #[cfg(feature = "amd")]
            DeviceName::Amd(_) => {
                of.amd = self.amd.clone();
                if name.is_software() {
                    of.emulation = self.emulation;
                }
            }
            #[cfg(feature = "nv")]
            DeviceName::Nv(_) => {
                of.nv = self.nv.clone();
                if name.is_software() {
                    of.emulation = EmuOptions { lenient: false, ..self.emulation };
                }
            }
            #[cfg(feature = "metal")]
            DeviceName::Metal(_) => of.metal = self.metal.clone(),
            DeviceName::Custom(_) => {}
        }
        of
    }
}

/// One line of `doorbell devices`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceListing {
    pub name: String,
    /// The architecture to compile for; empty if the device runs no kernels or is absent.
    pub arch: String,
    /// Cores or compute units; 0 if there are none, or if the number is unknown before opening. The same holds for
    /// `memory_bytes`.
    pub cores: u32,
    pub memory_bytes: u64,
    /// The reason why the device cannot be opened, if there is one.
    pub unavailable: Option<String>,
    /// Current clocks, memory and errors, if the driver was queried.
    #[serde(serialize_with = "state_values")]
    pub state: Option<DeviceState>,
}

fn state_values<S: serde::Serializer>(state: &Option<DeviceState>, to: S) -> Result<S::Ok, S::Error> {
    state.as_ref().map(|s| &s.values).serialize(to)
}

/// A function that creates software GPUs: from a chip's name, a number of cards and options to a port with such cards.
/// The engine sets it when a session is opened (`engine::software`); this crate does not depend on the emulators.
pub type Emulate = fn(&str, usize, EmuOptions) -> Emulated;

/// The port of software GPUs, or a one-line reason why there is none.
pub type Emulated = Result<Arc<dyn Port>, String>;

/// Wraps the port that a device is about to use in another one: a tracer, a recorder, a fault injector.
pub type Wrap = Box<dyn Fn(Arc<dyn Port>) -> Arc<dyn Port> + Send + Sync>;

/// The function for ports, and the one for messages.
#[derive(Default)]
struct WrapSlot(OnceLock<Wrap>, #[cfg(feature = "metal")] OnceLock<TapMessages>);

impl std::fmt::Debug for WrapSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "wrapped" } else { "plain" })
    }
}

/// An open device with the options that it was opened with; `None`: it was inserted, and is used for this name with any
/// options.
#[derive(Debug)]
struct Opened {
    options: Option<DeviceOptions>,
    device: Arc<dyn Device>,
    /// What came with it, for the rooms above.
    companion: Option<Companion>,
}

/// What is kept beside a device that was made elsewhere; the registry does not look inside.
pub type Companion = Arc<dyn Any + Send + Sync>;

/// Open devices by name.
#[derive(Debug, Default)]
pub struct Registry {
    open: Mutex<HashMap<DeviceName, Vec<Opened>>>,
    emulate: OnceLock<(Emulate, Vec<&'static str>)>,
    #[cfg(feature = "metal")]
    emulate_metal: OnceLock<EmulateMetal>,
    wrap: WrapSlot,
    /// The process's connection to AMD's driver; never closed, since the kernel accepts only one event page per
    /// process.
    #[cfg(feature = "amd")]
    amd: Mutex<Option<Arc<crate::amd::Driver>>>,
    /// The machines of software GPUs.
    #[cfg(feature = "amd")]
    amd_software: software::Machines<crate::amd::Driver>,
    /// The process's connection to NVIDIA's driver: its GPUs share one client.
    #[cfg(feature = "nv")]
    nv: Mutex<Option<Arc<crate::nv::Driver>>>,
    #[cfg(feature = "nv")]
    nv_software: software::Machines<crate::nv::Driver>,
}

impl Registry {
    /// The registry of the process.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Registry> = OnceLock::new();
        GLOBAL.get_or_init(Self::default)
    }

    /// Sets the function that creates software GPUs, and the chips that it is offered for; only the first call has an
    /// effect.
    pub fn set_emulate(&self, emulate: Emulate, chips: Vec<&'static str>) {
        let _first_one_counts = self.emulate.set((emulate, chips));
    }

    /// The port of a machine of software GPUs: that many cards of a chip.
    ///
    /// # Errors
    /// A one-line reason: a build without software GPUs ([`NOT_BUILT_IN`]), no such chip, no memory for the cards.
    pub fn software_port(&self, chip: &str, cards: usize, options: EmuOptions) -> Emulated {
        let (emulate, _) = self.emulate.get().ok_or(NOT_BUILT_IN)?;
        emulate(chip, cards, options)
    }

    /// Sets the function that wraps the port of every driver opened from now on; only the first call has an effect.
    pub fn set_wrap(&self, wrap: Wrap) {
        let _first_one_counts = self.wrap.0.set(wrap);
    }

    /// Closes all open devices, and drops the drivers.
    ///
    /// # Errors
    /// The first device's error; the others are closed nevertheless.
    pub fn close_all(&self) -> Result<(), DeviceError> {
        let devices = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for opened in devices.into_values().flatten() {
            result = result.and(opened.device.close());
        }
        #[cfg(feature = "amd")]
        self.amd.lock().unwrap_or_else(PoisonError::into_inner).take();
        #[cfg(feature = "nv")]
        self.nv.lock().unwrap_or_else(PoisonError::into_inner).take();
        result
    }

    /// The port, wrapped if `set_wrap` was called.
    #[cfg(any(feature = "amd", feature = "nv"))]
    fn wrapped(&self, port: Arc<dyn Port>) -> Arc<dyn Port> {
        match self.wrap.0.get() {
            Some(wrap) => wrap(port),
            None => port,
        }
    }

    /// The device of that name. It is opened now unless it is already open with these options.
    ///
    /// # Errors
    /// `Unknown` and `NotInBuild` for the name, and the errors of opening the device.
    pub fn open(&self, name: &str, options: &DeviceOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let name = self.name(name)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let options = options.of(&name);
        let all = open.entry(name.clone()).or_default();
        if let Some(o) = all.iter().find(|o| o.options.as_ref().is_none_or(|known| *known == options)) {
            return Ok(Arc::clone(&o.device));
        }
        let device = self.make(&name, &options)?;
        all.push(Opened { options: Some(options), device: Arc::clone(&device), companion: None });
        Ok(device)
    }

    /// Puts a device made elsewhere under a name, as if it had been opened by it; the former one is returned. The name
    /// is one that the crate knows, or any other word (`TOY`, `TOY:1`).
    ///
    /// # Errors
    /// A name that is no word.
    pub fn insert(&self, name: &str, device: Arc<dyn Device>) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        self.put(name, device, None)
    }

    /// As [`Registry::insert`], with something beside it that a room above asks for by the device's name: the engine
    /// keeps the back end of a device with an instruction set of its own there.
    ///
    /// # Errors
    /// As `insert`.
    pub fn insert_with(
        &self,
        name: &str,
        device: Arc<dyn Device>,
        companion: Companion,
    ) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        self.put(name, device, Some(companion))
    }

    fn put(
        &self,
        name: &str,
        device: Arc<dyn Device>,
        companion: Option<Companion>,
    ) -> Result<Option<Arc<dyn Device>>, DeviceError> {
        let name = name.parse().or_else(|_| DeviceName::custom(name))?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let former = open.insert(name, vec![Opened { options: None, device, companion }]);
        Ok(former.and_then(|mut all| all.pop()).map(|o| o.device))
    }

    /// What was inserted beside a device.
    #[must_use]
    pub fn companion(&self, name: &str) -> Option<Companion> {
        let name = self.name(name).ok()?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&name)?.iter().find_map(|o| o.companion.clone())
    }

    /// A name as the registry knows it: of a kind of this crate, or one that was inserted.
    ///
    /// # Errors
    /// `Unknown`, with the names that are valid; `NotInBuild`.
    pub fn name(&self, text: &str) -> Result<DeviceName, DeviceError> {
        text.parse().or_else(|error: DeviceError| {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(own) = DeviceName::custom(text).ok().filter(|own| open.contains_key(own)) {
                return Ok(own);
            }
            let mut own: Vec<String> =
                open.keys().filter(|n| matches!(n, DeviceName::Custom(_))).map(ToString::to_string).collect();
            own.sort();
            Err(match error {
                DeviceError::Unknown { asked, valid } if !own.is_empty() => {
                    DeviceError::Unknown { asked, valid: format!("{valid}, {}", own.join(", ")) }
                }
                error => error,
            })
        })
    }

    /// Closes the devices of that name that are open, and forgets them: the next `open` makes a new one.
    ///
    /// # Errors
    /// As [`Device::close`].
    pub fn close(&self, name: &str) -> Result<(), DeviceError> {
        let name = self.name(name)?;
        let all = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&name).unwrap_or_default();
        let mut result = Ok(());
        for opened in all {
            result = result.and(opened.device.close());
        }
        match &name {
            #[cfg(feature = "amd")]
            DeviceName::Amd(crate::amd::Selector::Emulated { chip, index }) => self.amd_software.left(chip, *index),
            #[cfg(feature = "nv")]
            DeviceName::Nv(crate::nv::Selector::Emulated { chip, index }) => self.nv_software.left(chip, *index),
            _ => {}
        }
        result
    }

    fn make(&self, name: &DeviceName, options: &DeviceOptions) -> Result<Arc<dyn Device>, DeviceError> {
        let shown = name.to_string();
        Ok(match name {
            DeviceName::Custom(_) => {
                return Err(DeviceError::Unavailable { name: shown, why: "it was closed; insert it again".into() });
            }
            #[cfg(feature = "cpu")]
            DeviceName::Cpu(_) => Arc::new(CpuDevice::open(&shown, &options.cpu)?),
            DeviceName::Null(arch) => {
                // Nothing runs, so the arch need not be this machine's; the compiler reports an unknown one.
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
            #[cfg(feature = "amd")]
            DeviceName::Amd(selector) => {
                let driver = self.amd_driver(&shown, selector, options)?;
                let mut amd = options.amd.clone();
                if matches!(selector, crate::amd::Selector::Emulated { .. }) {
                    amd.submit_timeout = amd.submit_timeout.max(SOFTWARE_TIMEOUT);
                }
                Arc::new(AmdDevice::open(&shown, &driver, selector, &amd)?)
            }
            #[cfg(feature = "nv")]
            DeviceName::Nv(selector) => {
                let driver = self.nv_driver(&shown, selector, options)?;
                let mut nv = options.nv.clone();
                if matches!(selector, crate::nv::Selector::Emulated { .. }) {
                    nv.submit_timeout = nv.submit_timeout.max(SOFTWARE_TIMEOUT);
                }
                Arc::new(NvDevice::open(&shown, &driver, selector, &nv)?)
            }
            #[cfg(feature = "metal")]
            DeviceName::Metal(selector) => self.open_metal(&shown, selector, &options.metal)?,
        })
    }

    /// The machine's GPUs in the order in which a program prefers them: all of AMD's, NVIDIA's first one, Metal's
    /// default. A row without `unavailable` can be opened.
    #[must_use]
    pub fn probe(&self, options: &DeviceOptions) -> Vec<DeviceListing> {
        let mut rows: Vec<DeviceListing> = Vec::new();
        #[cfg(feature = "amd")]
        rows.extend(self.probe_amd());
        #[cfg(feature = "nv")]
        rows.push(self.probe_nv(&options.nv));
        #[cfg(feature = "metal")]
        rows.push(self.probe_metal());
        let _not_all_builds_read_them = (&mut rows, options);
        rows
    }

    /// What there is and what there could be, for `doorbell devices`.
    #[must_use]
    pub fn list(&self, options: &DeviceOptions) -> Vec<DeviceListing> {
        let mut rows = Vec::new();
        let mut cpu = row("CPU");
        match choose_arch("CPU", options.cpu.arch.as_deref()) {
            Ok(arch) => cpu.arch = arch,
            Err(e) => cpu.unavailable = Some(e.to_string()),
        }
        cpu.cores = options.cpu.resolved_threads();
        cpu.memory_bytes = machine_memory_bytes();
        let mut null = row("NULL");
        null.arch.clone_from(&cpu.arch);
        if cfg!(feature = "cpu") {
            rows.push(cpu);
        }
        rows.extend([null, row("DISK:path")]);
        #[cfg(feature = "amd")]
        rows.extend(self.list_amd());
        #[cfg(feature = "nv")]
        rows.extend(self.list_nv(&options.nv));
        #[cfg(feature = "metal")]
        rows.extend(self.list_metal());
        let absent = |name: &&str| DeviceListing { unavailable: Some("not in this build".into()), ..row(name) };
        rows.extend(name::KNOWN_ABSENT.iter().map(absent));
        rows
    }
}

// TIMEOUT: a software GPU executes about 10^8 lane operations per second; milliseconds of a card are minutes there.
#[cfg(any(feature = "amd", feature = "nv", feature = "metal"))]
const SOFTWARE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(900);

fn row(name: &str) -> DeviceListing {
    DeviceListing { name: name.into(), arch: String::new(), cores: 0, memory_bytes: 0, unavailable: None, state: None }
}

/// The running kernel.
#[cfg(all(target_os = "linux", any(feature = "amd", feature = "nv")))]
fn kernel_port() -> Option<Arc<dyn Port>> {
    Some(doorbell_ioctl::port::LinuxPort::new())
}

#[cfg(all(not(target_os = "linux"), any(feature = "amd", feature = "nv")))]
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
    fn device_is_opened_once_for_each_set_of_its_own_options() {
        let registry = Registry::default();
        let open = |threads, disk_write| {
            let cpu = CpuOptions { threads, ..CpuOptions::default() };
            registry.open("NULL", &DeviceOptions { cpu, disk_write, ..DeviceOptions::default() }).unwrap()
        };
        let two = open(2, false);
        assert!(Arc::ptr_eq(&two, &open(2, true)));
        assert!(!Arc::ptr_eq(&two, &open(3, false)));
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
        for name in ["AMD:emu=gfx1100", "NV:emu=sm_90", "METAL:emu"] {
            let error = Registry::default().open(name, &DeviceOptions::default()).unwrap_err();
            assert_eq!(error.to_string(), format!("device {name} cannot be opened: {NOT_BUILT_IN}"));
        }
    }

    #[test]
    fn listing_says_why_a_device_is_absent() {
        let list = Registry::default().list(&DeviceOptions::default());
        let row = |name: &str| list.iter().find(|d| d.name == name).unwrap();
        assert!(row("CPU").unavailable.is_none() && row("CPU").cores > 0);
        if !cfg!(feature = "metal") {
            assert_eq!(row("METAL").unavailable.as_deref(), Some("not in this build"));
        } else if !cfg!(target_os = "macos") {
            assert_eq!(row("METAL").unavailable.as_deref(), Some("not on this system"));
        }
        if !std::path::Path::new("/dev/nvidiactl").exists() {
            assert!(row("NV").unavailable.as_ref().unwrap().contains("open /dev/nvidiactl: ENOENT (no nvidia driver)"));
        }
    }
}
