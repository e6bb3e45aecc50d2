//! NVIDIA's GPUs in the registry: the process's connection to their driver, and the rows of a listing.

use super::software::CARDS;
use super::{DeviceListing, DeviceOptions, Registry, kernel_port, row};
use crate::DeviceError;
use crate::nv::{self, NvOptions};
use std::sync::{Arc, PoisonError};

impl Registry {
    /// As [`Registry::amd_driver`].
    pub(super) fn nv_driver(
        &self,
        name: &str,
        selector: &nv::Selector,
        all: &DeviceOptions,
    ) -> Result<Arc<nv::Driver>, DeviceError> {
        let options = &all.nv;
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        let open = |port| nv::Driver::open_with(name, self.wrapped(port), options.any_release, options.tables);
        if let nv::Selector::Emulated { chip, index } = selector {
            return self.nv_software.driver(chip, *index, all, || {
                open(self.software_port(chip, CARDS, all.emulation).map_err(unavailable)?)
            });
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

    /// One row per card of the driver, or one row with the reason why there is none; then the software GPUs.
    pub(super) fn list_nv(&self, options: &NvOptions) -> Vec<DeviceListing> {
        let mut rows = match self.nv_cards(options) {
            Err(why) => vec![absent(why)],
            Ok(count) => (0..count).map(|n| self.nv_row(n, options)).collect(),
        };
        if let Some((_, software)) = self.emulate.get() {
            let chips = nv::CHIPS.iter().filter(|c| software.contains(&c.name));
            rows.extend(chips.map(|c| DeviceListing { arch: c.name.into(), ..row(&format!("NV:emu={}", c.name)) }));
        }
        rows
    }

    /// The first card, or why there is none.
    pub(super) fn probe_nv(&self, options: &NvOptions) -> DeviceListing {
        self.nv_cards(options).map_or_else(absent, |_| self.nv_row(0, options))
    }

    /// How many cards the driver has, at least one; or why there is none.
    fn nv_cards(&self, options: &NvOptions) -> Result<u32, String> {
        let selector = nv::Selector::Index(0);
        let all = DeviceOptions { nv: options.clone(), ..DeviceOptions::default() };
        let cards = self.nv_driver("NV", &selector, &all).and_then(|driver| {
            let refused = |e| DeviceError::Rm { device: "NV".into(), what: "list cards", source: Box::new(e) };
            nv::cards(&driver).map_err(refused)
        });
        match cards {
            Err(e) => Err(e.to_string()),
            Ok(cards) if cards.is_empty() => Err("the driver lists no card".into()),
            Ok(cards) => Ok(u32::try_from(cards.len()).unwrap_or(u32::MAX)),
        }
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
}

fn absent(why: String) -> DeviceListing {
    DeviceListing { unavailable: Some(why), ..row("NV") }
}
