//! Software GPUs for `AMD:emu=CHIP` and `NV:emu=CHIP`, more of each (`NV:1:emu=CHIP`), and `METAL:emu`: a session
//! registers them, so that the command line, tests and users of the library can open one by name. The only module that
//! depends on both devices and emulators.

use crate::device::Registry;
#[cfg(all(target_os = "linux", any(feature = "amd", feature = "nv")))]
use crate::device::registry::EmuMode;
use crate::device::registry::{EmuOptions, Emulated};
#[cfg(all(target_os = "linux", feature = "amd"))]
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The lenient ones of the process, for their findings.
#[cfg(all(target_os = "linux", feature = "amd"))]
static MACHINES: Mutex<Vec<Weak<crate::emu::kfd::SoftKfd>>> = Mutex::new(Vec::new());

/// What lenient software GPUs of this process have found so far.
#[must_use]
pub fn findings() -> Vec<String> {
    #[cfg(all(target_os = "linux", feature = "amd"))]
    {
        let machines = MACHINES.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = machines.iter().filter_map(Weak::upgrade).flat_map(|machine| machine.reports());
        reports.map(|report| report.to_string()).collect()
    }
    #[cfg(not(all(target_os = "linux", feature = "amd")))]
    Vec::new()
}

/// Registers the function that creates software GPUs.
pub(super) fn offer() {
    Registry::global().set_emulate(emulate, chips());
    #[cfg(feature = "metal")]
    Registry::global().set_emulate_metal(metal);
}

/// The framework in software, with a GPU of a family of Apple's chips. It ends the process at a mistake in the use of
/// the framework, as Apple's validation layer does.
///
/// # Errors
/// A one-line message: no such family.
#[cfg(feature = "metal")]
pub fn metal(family: u32) -> Result<crate::device::metal::objc::Objc, String> {
    let table = crate::emu::metal::Table::of_family(family);
    table.map(|t| t.objc()).ok_or_else(|| format!("no software GPU of family Apple{family}"))
}

/// The chips of software GPUs on which kernels run, as the emulators have them.
fn chips() -> Vec<&'static str> {
    let vendors: &[Vec<&'static str>] = &[
        #[cfg(all(target_os = "linux", feature = "amd"))]
        crate::emu::kfd::Chip::ALL.map(|chip| chip.name()).to_vec(),
        #[cfg(all(target_os = "linux", feature = "nv"))]
        crate::emu::nvrm::Chip::ALL.iter().filter(|chip| chip.runs_code()).map(|chip| chip.facts().name).collect(),
    ];
    vendors.concat()
}

/// Creates a machine of that many software GPUs of a chip, using all cores of the real one.
///
/// # Errors
/// A one-line message: no such chip, or no memory for the card.
#[cfg(target_os = "linux")]
pub fn emulate(chip: &str, cards: usize, options: EmuOptions) -> Emulated {
    if crate::elf::cubin::is_arch(chip) { nvidia(chip, cards, options) } else { amd(chip, cards, options) }
}

#[cfg(all(target_os = "linux", feature = "amd"))]
fn amd(chip: &str, gpus: usize, options: EmuOptions) -> Emulated {
    use crate::emu::amdgpu::Strict;
    use crate::emu::kfd::{Chip, Config, SoftKfd};
    let chip = Chip::named(chip).ok_or_else(|| {
        let names = Chip::ALL.map(Chip::name).join(", ");
        format!("no software GPU of chip {chip}, there are {names}")
    })?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mode = options.mode;
    // Lenient waves run in other slices, and so would leave other sums.
    let lenient = options.lenient && mode != EmuMode::Both;
    let mut config = Config { gpus, lenient, tells_hangs: true, metrics: metrics(chip), ..Config::new(chip) };
    config.waves = match mode {
        EmuMode::Plain => Strict { threads, ..Strict::off() },
        EmuMode::Strict | EmuMode::Both => Strict { threads, lenient, ..Strict::on() },
    };
    if mode != EmuMode::Strict {
        config.translation = translation();
    }
    config.compare = mode == EmuMode::Both;
    let machine = SoftKfd::new(config).map_err(|errno| format!("software GPU: {errno}"))?;
    if lenient {
        MACHINES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&machine));
    }
    Ok(machine)
}

/// What an idle card of that chip says of itself.
#[cfg(all(target_os = "linux", feature = "amd"))]
fn metrics(chip: crate::emu::kfd::Chip) -> Option<Vec<u8>> {
    let values = [
        ("temperature_hotspot", 40),
        ("temperature_mem", 38),
        ("average_socket_power", 30),
        ("curr_socket_power", 90),
        ("average_gfx_activity", 0),
        ("current_gfxclk", 1500),
        ("current_uclk", 1000),
        ("throttle_status", 0),
        ("indep_throttle_status", 0),
    ];
    let content = if chip == crate::emu::kfd::Chip::Gfx942 { 8 } else { 3 };
    crate::device::amd::metrics::table(1, content, &values)
}

/// Creates an NVIDIA GPU: of any chip, for tests of its driver and queues; [`chips`] has those on which kernels run.
#[cfg(all(target_os = "linux", feature = "nv"))]
fn nvidia(chip: &str, gpus: usize, options: EmuOptions) -> Emulated {
    use crate::emu::nvrm::{Chip, Config, SoftNv};
    use crate::emu::sass::Options;
    let Some(chip) = Chip::ALL.iter().find(|c| c.facts().name == chip) else {
        let names: Vec<&str> = Chip::ALL.iter().map(|c| c.facts().name).collect();
        return Err(format!("no software GPU of chip {chip}, there are {}", names.join(", ")));
    };
    let mode = options.mode;
    let compare = mode == EmuMode::Both;
    let mut config = Config { gpus, compare, translation: translation(), ..Config::new(*chip) };
    if mode == EmuMode::Plain {
        config.sms = Options { threads: config.sms.threads, ..Options::fast() };
    }
    Ok(SoftNv::new(config).map_err(|errno| format!("software GPU: {errno}"))?)
}

/// What compiles often executed code of software GPUs for this machine.
#[cfg(all(target_os = "linux", feature = "cpu", any(feature = "amd", feature = "nv")))]
#[must_use]
pub fn translation() -> crate::emu::translate::Translation {
    super::translate::translation()
}

/// What compiles often executed code of software GPUs: nothing in a build without the CPU's back ends.
#[cfg(all(target_os = "linux", not(feature = "cpu"), any(feature = "amd", feature = "nv")))]
#[must_use]
pub fn translation() -> crate::emu::translate::Translation {
    Default::default()
}

#[cfg(all(target_os = "linux", not(feature = "amd")))]
fn amd(chip: &str, _cards: usize, _options: EmuOptions) -> Emulated {
    Err(format!("no software GPU of chip {chip}: AMD's are not in this build"))
}

#[cfg(all(target_os = "linux", not(feature = "nv")))]
fn nvidia(chip: &str, _cards: usize, _options: EmuOptions) -> Emulated {
    Err(format!("no software GPU of chip {chip}: NVIDIA's are not in this build"))
}

/// Software GPUs are not available on this system.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn emulate(_chip: &str, _cards: usize, _options: EmuOptions) -> Emulated {
    Err("software GPUs need Linux".into())
}
