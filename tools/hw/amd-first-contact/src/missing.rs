//! What a machine without a usable card lacks, from what the kernel shows of it.
//!
//! Source: sysfs of PCI and modules, the mode of `/dev/kfd`, this process's groups.

use crate::machine::Machine;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const AMD_VENDOR: &str = "0x1002";

/// One line for each missing thing; nothing on a software GPU.
pub fn look(machine: &Machine) -> Vec<String> {
    if machine.is_software {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let cards = cards(Path::new("/sys/bus/pci/devices"));
    if cards.is_empty() {
        lines.push("no AMD display or accelerator device is on the PCI bus that this system shows".into());
    } else {
        lines.push(format!("on the PCI bus: {}", cards.join(", ")));
    }
    if !Path::new("/sys/module/amdgpu").exists() {
        lines.push("the module amdgpu is not loaded (modprobe amdgpu; dmesg says why it refused a card)".into());
    }
    match fs::metadata("/dev/kfd") {
        Err(_) => lines.push("/dev/kfd does not exist; a container needs --device /dev/kfd --device /dev/dri".into()),
        Ok(file) => {
            let (mode, group) = (file.mode() & 0o777, file.gid());
            let mine = groups();
            let member = if mine.contains(&group) { "is" } else { "is not" };
            lines.push(format!("/dev/kfd has mode {mode:o} and group {group}; this process {member} in that group"));
        }
    }
    if !Path::new("/sys/devices/virtual/kfd/kfd/topology/nodes").exists() {
        lines.push("KFD shows no topology".into());
    } else if !cards.is_empty() {
        lines.push("KFD leaves a card out when the slot has no PCIe atomics (dmesg: \"PCI rejects atomics\")".into());
    }
    lines
}

/// AMD's displays (class 03) and accelerators (class 12), each with its driver.
fn cards(bus: &Path) -> Vec<String> {
    let text = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_string();
    let Ok(entries) = fs::read_dir(bus) else { return Vec::new() };
    let mut found: Vec<String> = entries
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(|p| text(p, "vendor") == AMD_VENDOR)
        .filter(|p| ["0x03", "0x12"].iter().any(|class| text(p, "class").starts_with(class)))
        .map(|p| {
            let driver = fs::read_link(p.join("driver")).ok();
            let driver = driver.and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned()));
            let place = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{place} ({}, driver {})", text(&p, "device"), driver.as_deref().unwrap_or("none"))
        })
        .collect();
    found.sort();
    found
}

/// The groups of this process.
fn groups() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = |head: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(head).map(str::to_string)).unwrap_or_default();
        line.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>()
    };
    [numbers("Groups:"), numbers("Gid:")].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_amds_displays_and_accelerators_with_their_driver() {
        let bus = tempfile::tempdir().unwrap();
        for (place, vendor, class) in [
            ("0000:03:00.0", "0x1002", "0x030000"),
            ("0000:03:00.1", "0x1002", "0x040300"),
            ("0000:00:02.0", "0x8086", "0x030000"),
        ] {
            let folder = bus.path().join(place);
            fs::create_dir(&folder).unwrap();
            for (name, text) in [("vendor", vendor), ("class", class), ("device", "0x744c")] {
                fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(cards(bus.path()), ["0000:03:00.0 (0x744c, driver none)"]);
    }

    #[test]
    fn this_process_has_groups() {
        assert!(!groups().is_empty());
    }
}
