//! Apple's GPUs in the registry: the system's framework or a software one, and the rows of a listing.

use super::{DeviceListing, NOT_BUILT_IN, Registry, SOFTWARE_TIMEOUT, row};
use crate::metal::objc::Objc;
use crate::metal::{self, MetalDevice, MetalOptions, Selector};
use crate::{Device, DeviceError};
use doorbell_ioctl::port::objc::Tap;
use std::sync::Arc;

/// A function that gives the table of a software framework, whose GPU is of a family of Apple's chips (7 for Apple7).
pub type EmulateMetal = fn(u32) -> Result<Objc, String>;

/// Makes what sees the messages of a device that is about to be opened: a trace, a recording.
pub type TapMessages = Box<dyn Fn() -> Box<dyn Tap> + Send + Sync>;

impl Registry {
    /// Sets the function that creates software GPUs of Metal; only the first call has an effect.
    pub fn set_emulate_metal(&self, emulate: EmulateMetal) {
        let _first_one_counts = self.emulate_metal.set(emulate);
    }

    /// Sets the function that makes taps of the messages of every device opened from now on; only the first call has an
    /// effect.
    pub fn set_tap_messages(&self, tap: TapMessages) {
        let _first_one_counts = self.wrap.1.set(tap);
    }

    /// The table of a software framework, whose GPU is of that family.
    ///
    /// # Errors
    /// A one-line reason: a build without software GPUs ([`NOT_BUILT_IN`]), no such family.
    pub fn software_metal(&self, family: u32) -> Result<Objc, String> {
        let emulate = self.emulate_metal.get().ok_or(NOT_BUILT_IN)?;
        emulate(family)
    }

    fn objc(&self, name: &str, selector: &Selector) -> Result<Objc, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        match selector {
            Selector::Index(_) => Objc::system().ok_or_else(|| unavailable("not on this system".into())),
            Selector::Emulated { family, .. } => self.software_metal(*family).map_err(unavailable),
        }
    }

    pub(super) fn open_metal(
        &self,
        name: &str,
        selector: &Selector,
        options: &MetalOptions,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        let patience = matches!(selector, Selector::Emulated { .. }).then_some(SOFTWARE_TIMEOUT);
        let mut options = MetalOptions { patience: patience.or(options.patience), ..options.clone() };
        let objc = self.objc(name, selector)?;
        let tap = self.wrap.1.get();
        if tap.is_some() {
            // A replay would find another file.
            options.archive = None;
        }
        let objc = tap.map_or(objc, |tap| objc.tapped(tap()));
        Ok(Arc::new(MetalDevice::open_with(name, objc, selector, &options)?))
    }

    /// The system's default GPU, then the software GPUs.
    pub(super) fn list_metal(&self) -> Vec<DeviceListing> {
        let mut rows = vec![self.probe_metal()];
        if self.emulate_metal.get().is_some() {
            let software = |family: &u32| {
                let selector = Selector::Emulated { family: *family, index: 0 };
                DeviceListing { arch: metal::arch_of_family(*family).into(), ..row(&selector.to_string()) }
            };
            rows.extend(metal::SOFTWARE_FAMILIES.iter().map(software));
        }
        rows
    }

    /// The system's default GPU, or why there is none.
    pub(super) fn probe_metal(&self) -> DeviceListing {
        let (name, selector) = ("METAL", Selector::Index(0));
        let found = self.objc(name, &selector).and_then(|objc| metal::describe(name, objc, &selector));
        match found {
            Ok(info) => {
                DeviceListing { arch: info.arch, cores: info.threads, memory_bytes: info.memory_bytes, ..row(name) }
            }
            Err(DeviceError::Unavailable { why, .. }) => DeviceListing { unavailable: Some(why), ..row(name) },
            Err(error) => DeviceListing { unavailable: Some(error.to_string()), ..row(name) },
        }
    }
}
