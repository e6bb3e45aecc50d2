//! The list of back ends, and the choice of one for a device.
//!
//! Layer: `isa` contains the back ends, independent of each other; only the engine knows all of them.

use super::{Error, Options};
use crate::codegen::Target;
use crate::device::null::NullDevice;
use crate::device::registry::DeviceName;
use crate::device::{Device, DeviceError, Registry};
#[cfg(feature = "cpu")]
use crate::isa::aarch64::{self, Aarch64};
#[cfg(feature = "amd")]
use crate::isa::amdgpu::{self, Amdgpu};
#[cfg(feature = "metal")]
use crate::isa::metal::{Family, Metal};
#[cfg(feature = "nv")]
use crate::isa::nvidia::{Features, Nvidia};
#[cfg(feature = "nv")]
use crate::isa::ptx::{CHIPS, Chip};
#[cfg(feature = "cpu")]
use crate::isa::x86_64::{self, X86_64};
use crate::isa::{Backend, NoCode};
use std::sync::Arc;

/// Arch strings that kernels can be compiled for, for messages.
#[must_use]
pub fn known_archs() -> String {
    let mut names: Vec<&str> = Vec::new();
    #[cfg(feature = "cpu")]
    names.extend([x86_64::Arch::Avx2.name(), x86_64::Arch::Avx512.name(), x86_64::AMX, aarch64::NEON]);
    #[cfg(feature = "amd")]
    names.extend(amdgpu::Chip::ALL.iter().map(|c| c.name()));
    #[cfg(feature = "nv")]
    names.extend(CHIPS.iter().map(|c| c.name));
    #[cfg(feature = "metal")]
    names.extend(Family::ALL.iter().map(|f| f.name()));
    names.join(", ")
}

/// The back end of a device that came with one.
struct Own(Arc<dyn Backend>);

/// Adds a device under a name of its own (`TOY`, `TOY:1`), with the back end that makes its code: Tensors compute on it
/// as on any other (`.to("TOY")`, `DEV=TOY`, [`Options::device`]). A session that has used a former device of that name
/// keeps that one. A device whose arch is one of [`known_archs`] needs no back end: `device::Registry::insert`.
///
/// # Errors
/// A name that is no word, or of a kind that this crate has (`CPU`, `NV` ...).
pub fn add_device(name: &str, device: Arc<dyn Device>, backend: Arc<dyn Backend>) -> Result<(), Error> {
    let name = DeviceName::custom(name)?.to_string();
    Registry::global().insert_with(&name, device, Arc::new(Own(backend)))?;
    Ok(())
}

/// The back end for a device under these options.
///
/// # Errors
/// A device that is there for compiling only, of an arch that nothing compiles for.
pub(super) fn for_device(name: &str, device: &dyn Device, options: &Options) -> Result<Arc<dyn Backend>, DeviceError> {
    if let Some(own) = Registry::global().companion(name).and_then(|c| c.downcast::<Own>().ok()) {
        return Ok(own.0.clone());
    }
    let info = device.info();
    let threads = info.threads.max(1);
    #[cfg(feature = "cpu")]
    if let Some(cpu) = for_cpu(&info.arch, threads) {
        return Ok(cpu);
    }
    #[cfg(feature = "amd")]
    if let Some(gpu) = Amdgpu::for_arch(&info.arch) {
        return Ok(Arc::new(gpu));
    }
    #[cfg(feature = "nv")]
    if let Some(chip) = Chip::parse(&info.arch) {
        return Ok(Arc::new(for_chip(chip, device, options)));
    }
    #[cfg(feature = "metal")]
    if let Some(family) = Family::parse(&info.arch) {
        return Ok(Arc::new(Metal::new(family)));
    }
    #[cfg(not(feature = "nv"))]
    let _only_read_for_nvidia = options;
    if !device.executes() && !info.arch.is_empty() {
        let (name, asked) = (device.tag().name().into(), info.arch.clone());
        return Err(DeviceError::UnknownArch { name, asked, valid: known_archs() });
    }
    Ok(Arc::new(NoCode::new(Target { threads, ..Target::null() })))
}

/// The back end for a CPU's arch, on a device with so many cores.
#[cfg(feature = "cpu")]
pub(super) fn for_cpu(arch: &str, threads: u32) -> Option<Arc<dyn Backend>> {
    let x86_64 = X86_64::for_arch(arch, threads).map(|cpu| Arc::new(cpu) as Arc<dyn Backend>);
    x86_64.or_else(|| Aarch64::for_arch(arch, threads).map(|cpu| Arc::new(cpu) as Arc<dyn Backend>))
}

/// The back end that makes machine code of an arch, wherever it will run: for CPUs in so many parts.
///
/// # Errors
/// An arch that nothing makes code for.
pub(super) fn for_arch(arch: &str, threads: u32, options: &Options) -> Result<Arc<dyn Backend>, DeviceError> {
    #[cfg(feature = "nv")]
    if let Some(chip) = Chip::parse(arch) {
        let ours = Nvidia::new(chip, Features { tf32: options.allow_tf32, tma: options.nv_tma });
        return Ok(Arc::new(match &options.ptxas {
            None => ours,
            Some(path) => with_ptxas(ours, path, options.cache_dir.as_deref()),
        }));
    }
    let device = NullDevice::open("PACKAGE", arch, threads)?;
    for_device("PACKAGE", &device, options)
}

/// The back end of an NVIDIA chip under these options.
#[cfg(feature = "nv")]
fn for_chip(chip: &'static Chip, device: &dyn Device, options: &Options) -> Nvidia {
    let features = Features { tf32: options.allow_tf32, tma: options.nv_tma };
    // A card runs code for its own chip, including family-specific features. Without a card, code is for the named
    // chip.
    let chip = if options.nv_wgmma && device.executes() { chip.of_card() } else { chip };
    match (device.executes(), &options.ptxas) {
        (false, _) => Nvidia::new(chip, features).text_only(),
        (true, None) => Nvidia::new(chip, features),
        (true, Some(path)) => with_ptxas(Nvidia::new(chip, features), path, options.cache_dir.as_deref()),
    }
}

/// A back end for NVIDIA's chips with the assembler at `ptxas`, or else this project's own; `ptxas`'s cubins are cached
/// in `cache_dir`.
#[cfg(feature = "nv")]
#[must_use]
pub fn nvidia(chip: &'static Chip, ptxas: Option<&std::path::Path>, cache_dir: Option<&std::path::Path>) -> Nvidia {
    let ours = Nvidia::new(chip, Features::default());
    match ptxas {
        Some(path) => with_ptxas(ours, path, cache_dir),
        None => ours,
    }
}

#[cfg(feature = "nv")]
fn with_ptxas(backend: Nvidia, path: &std::path::Path, cache_dir: Option<&std::path::Path>) -> Nvidia {
    backend.assembled_by(Arc::new(super::ptxas::Ptxas::new(path, cache_dir)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Session;

    #[test]
    fn every_known_arch_compiles_for_a_device_that_executes_nothing() {
        let s = Session::open(Options::default()).unwrap();
        for arch in known_archs().split(", ") {
            let d = s.device(&format!("NULL:{arch}")).unwrap();
            assert_eq!(d.target().name, arch);
            assert_eq!((d.backend.makes_code(), d.runs_kernels()), (!arch.starts_with("sm_"), false), "{arch}");
        }
        let error = s.device("NULL:sm_91").err().unwrap().to_string();
        assert!(error.contains("sm_91") && error.ends_with(&known_archs()), "{error}");
    }
}
