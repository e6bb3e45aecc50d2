//! Apple's GPUs in the registry: the system's framework or a software one, and the rows of a listing.

use super::{DeviceListing, Registry, SOFTWARE_TIMEOUT, row};
use crate::metal::objc::Objc;
use crate::metal::{self, MetalDevice, Selector};
use crate::{Device, DeviceError};
use std::sync::Arc;

/// A function that gives the table of a software framework, whose GPU is of a family of Apple's chips (7 for Apple7).
pub type EmulateMetal = fn(u32) -> Result<Objc, String>;

impl Registry {
    /// Sets the function that creates software GPUs of Metal; only the first call has an effect.
    pub fn set_emulate_metal(&self, emulate: EmulateMetal) {
        let _first_one_counts = self.emulate_metal.set(emulate);
    }

    fn objc(&self, name: &str, selector: &Selector) -> Result<Objc, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        match selector {
            Selector::Index(_) => Objc::system().ok_or_else(|| unavailable("not on this system".into())),
            Selector::Emulated(family) => {
                let emulate = self.emulate_metal.get().ok_or_else(|| unavailable("no software GPUs here".into()))?;
                emulate(*family).map_err(unavailable)
            }
        }
    }

    pub(super) fn open_metal(&self, name: &str, selector: &Selector) -> Result<Arc<dyn Device>, DeviceError> {
        let patience = matches!(selector, Selector::Emulated(_)).then_some(SOFTWARE_TIMEOUT);
        Ok(Arc::new(MetalDevice::open(name, self.objc(name, selector)?, selector, patience)?))
    }

    /// The system's default GPU, then the software GPUs.
    pub(super) fn list_metal(&self) -> Vec<DeviceListing> {
        let mut rows = vec![self.probe_metal()];
        if self.emulate_metal.get().is_some() {
            let software = |family: &u32| {
                let selector = Selector::Emulated(*family);
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
