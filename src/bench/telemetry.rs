//! What the system says of the CPU beside a measurement: clocks (cpufreq), energy (RAPL), temperatures (hwmon), where
//! the files are there and readable. GPUs say it by their drivers (`Device::state`).
//!
//! Source: Linux's documentation of sysfs: `cpufreq/scaling_cur_freq` in kHz, `powercap/*/energy_uj` in microjoules
//! that wrap, `hwmon*/temp*_input` in thousandths of a degree.

use serde::Serialize;
use std::path::Path;

/// The CPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cpu {
    /// MHz of the slowest and the fastest core.
    pub clock_mhz: Option<[f64; 2]>,
    /// The highest clock that the driver allows.
    pub most_mhz: Option<f64>,
    pub governor: Option<String>,
    /// Joules of all packages since some moment; needs root.
    pub energy_j: Option<f64>,
    pub temperature_c: Option<f64>,
}

/// The CPU of this machine.
#[must_use]
pub(crate) fn cpu() -> Cpu {
    cpu_at(Path::new("/sys"))
}

/// The same below another folder than `/sys`.
#[must_use]
pub(crate) fn cpu_at(sys: &Path) -> Cpu {
    let cores = folders(&sys.join("devices/system/cpu"), "cpu");
    let of_cores = |name: &str| -> Vec<f64> {
        cores.iter().filter_map(|core| number(&core.join("cpufreq").join(name))).map(|khz| khz / 1e3).collect()
    };
    let clocks = of_cores("scaling_cur_freq");
    let low = clocks.iter().copied().reduce(f64::min);
    let high = clocks.iter().copied().reduce(f64::max);
    let packages = folders(&sys.join("class/powercap"), "intel-rapl:");
    // Packages alone: their parts have a second number.
    let is_package = |p: &&std::path::PathBuf| p.to_string_lossy().matches(':').count() == 1;
    let energies: Vec<f64> =
        packages.iter().filter(is_package).filter_map(|p| number(&p.join("energy_uj"))).map(|uj| uj / 1e6).collect();
    let sensors = folders(&sys.join("class/hwmon"), "hwmon");
    let is_cpus = |folder: &&std::path::PathBuf| {
        text(&folder.join("name")).is_some_and(|name| matches!(name.as_str(), "coretemp" | "k10temp" | "zenpower"))
    };
    let temperatures = sensors.iter().filter(is_cpus).flat_map(|folder| {
        (1..=64).filter_map(move |n| number(&folder.join(format!("temp{n}_input")))).map(|milli| milli / 1e3)
    });
    Cpu {
        clock_mhz: low.zip(high).map(|(low, high)| [low, high]),
        most_mhz: of_cores("cpuinfo_max_freq").into_iter().reduce(f64::max),
        governor: cores.iter().find_map(|core| text(&core.join("cpufreq/scaling_governor"))),
        energy_j: (!energies.is_empty()).then(|| energies.iter().sum()),
        temperature_c: temperatures.reduce(f64::max),
    }
}

/// Folders whose name begins so.
fn folders(at: &Path, begins: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begins)))
        .collect();
    all.sort();
    all
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(path: &Path) -> Option<f64> {
    text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(cpu_at(dir.path()), Cpu::default());
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n");
        write("devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "4100000\n");
        write("devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "4500000\n");
        write("devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        write("class/powercap/intel-rapl:0/energy_uj", "2500000\n");
        write("class/powercap/intel-rapl:0:0/energy_uj", "9900000\n");
        write("class/powercap/intel-rapl:1/energy_uj", "no number\n");
        write("class/hwmon/hwmon0/name", "nvme\n");
        write("class/hwmon/hwmon0/temp1_input", "90000\n");
        write("class/hwmon/hwmon1/name", "k10temp\n");
        write("class/hwmon/hwmon1/temp1_input", "55250\n");
        let cpu = cpu_at(dir.path());
        assert_eq!((cpu.clock_mhz, cpu.most_mhz), (Some([2400.0, 4100.0]), Some(4500.0)));
        assert_eq!(
            (cpu.governor.as_deref(), cpu.energy_j, cpu.temperature_c),
            (Some("powersave"), Some(2.5), Some(55.25))
        );
    }
}
