//! AMD's GPUs in the registry: the process's connection to their driver, and the rows of a listing.

use super::software::CARDS;
use super::{DeviceListing, DeviceOptions, Registry, kernel_port, row};
use crate::DeviceError;
use crate::amd::{self, Driver, Selector};
use doorbell_ioctl::port::Port;
use std::sync::{Arc, PoisonError};

impl Registry {
    /// The kernel's driver, which the process shares, or for a software GPU that of its machine.
    pub(super) fn amd_driver(
        &self,
        name: &str,
        selector: &Selector,
        options: &DeviceOptions,
    ) -> Result<Arc<Driver>, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        if let Selector::Emulated { chip, index } = selector {
            return self.amd_software.driver(chip, *index, options, || {
                let port = self.software_port(chip, CARDS, options.emulation).map_err(unavailable)?;
                Driver::open(name, self.wrapped(port))
            });
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

    /// One row per GPU of the topology; if there is none, one row with the reason.
    pub(super) fn list_amd(&self) -> Vec<DeviceListing> {
        let mut rows = self.probe_amd();
        if let Some((_, software)) = self.emulate.get() {
            let chips = amd::CHIPS.iter().filter(|c| software.contains(&c.name));
            rows.extend(chips.map(|c| DeviceListing { arch: c.name.into(), ..row(&format!("AMD:emu={}", c.name)) }));
        }
        rows
    }

    /// As [`Registry::list_amd`] without software GPUs.
    pub(super) fn probe_amd(&self) -> Vec<DeviceListing> {
        let absent = |why: String| DeviceListing { unavailable: Some(why), ..row("AMD") };
        let Some(port) = kernel_port() else { return vec![absent("not on this system".into())] };
        match amd::usable_nodes("AMD", &*port) {
            Err(e) => vec![absent(e.to_string())],
            Ok(nodes) if nodes.is_empty() => vec![absent("no GPU in the topology".into())],
            Ok(nodes) => nodes.iter().enumerate().map(|(n, node)| amd_row(n, node, &*port)).collect(),
        }
    }
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
