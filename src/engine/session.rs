//! A session: options, open devices, caches and counters. The process has one; the command line installs it with its options,
//! a library user gets one from the environment at the first realize.

use super::kernels::KernelCache;
use super::profile::Profile;
use super::{Counters, Error, Options, backends, software};
use crate::codegen::Target;
use crate::device::nv::PageTables;
use crate::device::{self, Device, DeviceOptions};
use crate::isa::Backend;
use crate::schedule::ScheduleCache;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Everything that lives as long as the process computes.
pub struct Session {
    pub options: Options,
    pub counters: Counters,
    pub profile: Profile,
    pub(super) cache: KernelCache,
    pub(super) schedules: ScheduleCache,
    devices: Mutex<HashMap<Arc<str>, Arc<OpenDevice>>>,
    /// Held while a graph with assignments is scheduled and submitted.
    pub(super) assigning: Mutex<()>,
}

/// A device with what compiling for it needs.
pub struct OpenDevice {
    pub name: Arc<str>,
    pub device: Arc<dyn Device>,
    pub backend: Arc<dyn Backend>,
}

impl OpenDevice {
    /// What codegen must know of it.
    #[must_use]
    pub fn target(&self) -> &Target {
        self.backend.target()
    }

    /// Whether kernels are made to run here, so that one can be timed.
    #[must_use]
    pub fn runs_kernels(&self) -> bool {
        self.backend.makes_code() && self.device.executes()
    }
}

static SESSION: OnceLock<Session> = OnceLock::new();

/// Makes the process's session. Call it before anything is realized.
///
/// # Errors
/// There is one already with other options.
pub fn install(options: Options) -> Result<(), Error> {
    let mut options = Some(options);
    let s = SESSION.get_or_init(|| Session::new(options.take().unwrap_or_default()));
    match options {
        Some(o) if o != s.options => Err(Error::Internal("the session's options are already set".into())),
        _ => Ok(()),
    }
}

/// The process's session; made from the environment if nobody installed one (variables that mean nothing count as unset).
pub fn session() -> &'static Session {
    SESSION.get_or_init(|| Session::new(Options::from_env().unwrap_or_default()))
}

/// Waits for the devices and writes the trace that was asked for.
///
/// # Errors
/// A device's work did not end; the trace could not be written.
pub fn finish() -> Result<(), Error> {
    let Some(s) = SESSION.get() else { return Ok(()) };
    for d in s.open_devices() {
        d.device.synchronize(d.device.patience())?;
    }
    match &s.options.profile {
        Some(path) => s.profile.write(path).map_err(|source| Error::File { what: path.display().to_string(), source }),
        None => Ok(()),
    }
}

/// Lets go of compiled kernels and open devices, once nobody computes any more; who computes nevertheless opens them anew.
pub fn close() {
    if let Some(s) = SESSION.get() {
        s.cache.clear();
        s.devices.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Session {
    pub fn new(options: Options) -> Session {
        software::offer();
        Session {
            options,
            counters: Counters::default(),
            profile: Profile::default(),
            cache: KernelCache::default(),
            schedules: ScheduleCache::default(),
            devices: Mutex::default(),
            assigning: Mutex::default(),
        }
    }

    /// The device of that name, opened at the first call.
    ///
    /// # Errors
    /// No such device, or it cannot be opened.
    pub fn open(&self, name: &str) -> Result<Arc<OpenDevice>, Error> {
        let mut open = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(d) = open.get(name) {
            return Ok(d.clone());
        }
        let device = device::open(name, &self.device_options())?;
        let backend = backends::for_device(device.as_ref(), &self.options)?;
        let info = device.info();
        if self.options.debug >= 1 {
            eprintln!("opened {name}: {} with {} threads", info.arch, info.threads);
        }
        let d = Arc::new(OpenDevice { name: name.into(), device, backend });
        open.insert(d.name.clone(), d.clone());
        Ok(d)
    }

    /// How devices are opened under these options.
    pub fn device_options(&self) -> DeviceOptions {
        let mut d = DeviceOptions::default();
        d.cpu.threads = self.options.threads.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX));
        // `avx2`, `avx512` and `amx` are short for the full names.
        let short = |a: &str| a.starts_with("avx") || a == "amx";
        d.cpu.arch = self.options.arch.as_ref().map(|a| if short(a) { format!("x86_64-{a}") } else { a.clone() });
        d.nv.any_release = self.options.nv_any_driver;
        d.nv.bar1_doorbell = self.options.nv_bar1_doorbell;
        if self.options.nv_rm_only {
            d.nv.tables = PageTables::Rm;
        }
        d.nv.events = self.options.nv_events;
        d.nv.own_copy_engine = !self.options.nv_shared_copy;
        d
    }

    /// Devices opened so far.
    pub fn open_devices(&self) -> Vec<Arc<OpenDevice>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_cut_f32_are_there_for_who_allows_them() {
        for (allow_tf32, name, cuts) in [(false, "NULL:sm_86", 0), (true, "NULL:sm_86", 1), (true, "NULL:gfx1100", 0)] {
            let s = Session::new(Options { allow_tf32, ..Options::default() });
            let d = s.open(name).unwrap();
            assert_eq!(d.target().tensor_cores.iter().filter(|u| u.cuts()).count(), cuts, "{name}");
            assert!(d.target().tensor_cores.len() >= 4);
        }
    }
}
