//! The list of back ends, and which one a device gets.
//!
//! Place in the arrows: `isa` has the back ends, each by itself; the engine alone knows them all.

use super::Options;
use super::ptxas::Ptxas;
use crate::codegen::Target;
use crate::device::{Device, DeviceError};
use crate::isa::amdgpu::{self, Amdgpu};
use crate::isa::nvidia::{Features, Nvidia};
use crate::isa::ptx::{CHIPS, Chip};
use crate::isa::x86_64::{self, X86_64};
use crate::isa::{Backend, NoCode};
use std::path::Path;
use std::sync::Arc;

/// Arch strings that kernels can be compiled for, for messages.
#[must_use]
pub fn known_archs() -> String {
    let cpus = [x86_64::Arch::Avx2.name(), x86_64::Arch::Avx512.name(), x86_64::AMX];
    let amd = amdgpu::Chip::ALL.iter().map(|c| c.name());
    cpus.into_iter().chain(amd).chain(CHIPS.iter().map(|c| c.name)).collect::<Vec<_>>().join(", ")
}

/// The back end for a device under these options.
///
/// # Errors
/// A device that is there for compiling only, of an arch that nothing compiles for.
pub(super) fn for_device(device: &dyn Device, options: &Options) -> Result<Arc<dyn Backend>, DeviceError> {
    let info = device.info();
    let threads = info.threads.max(1);
    if let Some(cpu) = X86_64::for_arch(&info.arch, threads) {
        return Ok(Arc::new(cpu));
    }
    if let Some(gpu) = Amdgpu::for_arch(&info.arch) {
        return Ok(Arc::new(gpu));
    }
    if let Some(chip) = Chip::parse(&info.arch) {
        let features = Features { tf32: options.allow_tf32, tma: options.nv_tma };
        // A card runs what is only its own family's; code for no card is for the chip that was named.
        let chip = if options.nv_wgmma && device.executes() { chip.of_card() } else { chip };
        return Ok(match (device.executes(), &options.ptxas) {
            (false, _) => Arc::new(Nvidia::new(chip, features).text_only()),
            (true, None) => Arc::new(Nvidia::new(chip, features)),
            (true, Some(path)) => Arc::new(with_ptxas(Nvidia::new(chip, features), path, options.cache_dir.as_deref())),
        });
    }
    if !device.executes() && !info.arch.is_empty() {
        let (name, asked) = (device.tag().name().into(), info.arch.clone());
        return Err(DeviceError::UnknownArch { name, asked, valid: known_archs() });
    }
    Ok(Arc::new(NoCode::new(Target { threads, ..Target::null() })))
}

/// A back end for NVIDIA's chips with the assembler that `ptxas` names, or ours; `cache_dir` is where that one's cubins
/// are kept.
#[must_use]
pub fn nvidia(chip: &'static Chip, ptxas: Option<&Path>, cache_dir: Option<&Path>) -> Nvidia {
    let ours = Nvidia::new(chip, Features::default());
    match ptxas {
        Some(path) => with_ptxas(ours, path, cache_dir),
        None => ours,
    }
}

fn with_ptxas(backend: Nvidia, path: &Path, cache_dir: Option<&Path>) -> Nvidia {
    backend.assembled_by(Arc::new(Ptxas::new(path, cache_dir)))
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
