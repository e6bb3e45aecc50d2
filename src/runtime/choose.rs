//! Which code of a package a device can run.

use crate::{PackageFile, RunError};
use doorbell_device::registry::{DeviceListing, Registry};
use doorbell_device::{Device, DeviceOptions};
use doorbell_package::{Contents, Target};

/// Levels of x86-64, each with all that the ones after it have.
const X86: [&str; 3] = ["x86_64-amx", "x86_64-avx512", "x86_64-avx2"];

/// Whether a device of an arch runs code for another: `Some(0)` for its own, larger numbers for code that uses less of
/// the device.
#[must_use]
pub(crate) fn runs_on(device: &str, code: &str) -> Option<u32> {
    if device == code {
        return Some(0);
    }
    let level = |arch: &str| X86.iter().position(|a| *a == arch);
    if let (Some(have), Some(want)) = (level(device), level(code)) {
        return u32::try_from(want.checked_sub(have)?).ok();
    }
    if let (Some(have), Some(want)) = (chip(device), chip(code)) {
        // Code for a chip alone (`a`) runs on that chip; other code on later ones of the same generation.
        let distance = have.0.checked_sub(want.0)?;
        return match want.1 {
            true => (distance == 0).then_some(0),
            false => (have.0 / 10 == want.0 / 10).then_some(distance + 1),
        };
    }
    let family = |arch: &str| arch.strip_prefix("apple").and_then(|n| n.parse::<u32>().ok());
    family(device)?.checked_sub(family(code)?)
}

/// The number of `sm_90a`, and whether its code is for that chip alone.
fn chip(arch: &str) -> Option<(u32, bool)> {
    let number = arch.strip_prefix("sm_")?;
    let plain = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some((plain.parse().ok()?, plain.len() < number.len()))
}

/// The best code for a device.
pub(crate) fn target<'a>(contents: &'a Contents, device: &dyn Device) -> Result<&'a Target, RunError> {
    let arch = &device.info().arch;
    best(contents, arch).ok_or_else(|| RunError::NoTarget {
        have: contents.archs(),
        device: device.tag().name().into(),
        arch: arch.clone(),
    })
}

fn best<'a>(contents: &'a Contents, arch: &str) -> Option<&'a Target> {
    let fitting = contents.targets.iter().filter_map(|t| Some((runs_on(arch, &t.arch)?, t)));
    fitting.min_by_key(|(distance, _)| *distance).map(|(_, t)| t)
}

impl PackageFile {
    /// The name of the machine's best device that the package has code for: a GPU before the CPU.
    ///
    /// # Errors
    /// `NoTarget`, with what the machine has.
    pub fn best_device(&self, options: &DeviceOptions) -> Result<String, RunError> {
        let contents = &self.package().contents;
        let gpus = Registry::global().probe(options);
        let usable = |d: &DeviceListing| d.unavailable.is_none() && best(contents, &d.arch).is_some();
        if let Some(gpu) = gpus.iter().find(|d| usable(d)) {
            return Ok(gpu.name.clone());
        }
        let cpu = doorbell_device::cpu::choose_arch("CPU", options.cpu.arch.as_deref());
        let cpu = cpu.unwrap_or_else(|e| e.to_string());
        if cfg!(feature = "cpu") && best(contents, &cpu).is_some() {
            return Ok("CPU".into());
        }
        let found = gpus.iter().filter(|d| d.unavailable.is_none()).map(|d| d.arch.clone());
        let arch = found.chain([cpu]).collect::<Vec<_>>().join(", ");
        Err(RunError::NoTarget { have: contents.archs(), device: "this machine".into(), arch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_on_devices_that_have_what_it_uses() {
        for (device, code, distance) in [
            ("x86_64-avx512", "x86_64-avx512", Some(0)),
            ("x86_64-amx", "x86_64-avx2", Some(2)),
            ("x86_64-avx2", "x86_64-avx512", None),
            ("sm_90", "sm_90a", Some(0)),
            ("sm_90", "sm_90", Some(0)),
            ("sm_89", "sm_80", Some(10)),
            ("sm_90", "sm_80", None),
            ("sm_120", "sm_90a", None),
            ("gfx1100", "gfx1100", Some(0)),
            ("gfx1100", "gfx942", None),
            ("apple9", "apple7", Some(2)),
            ("apple7", "apple9", None),
            ("gfx1100", "x86_64-avx2", None),
            ("aarch64-neon", "aarch64-neon", Some(0)),
            ("aarch64-neon", "x86_64-avx2", None),
        ] {
            assert_eq!(runs_on(device, code), distance, "{code} on {device}");
        }
    }
}
