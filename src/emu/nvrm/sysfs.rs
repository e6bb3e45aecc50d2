//! Files of /proc and /sys that NVIDIA's driver and the PCI bus show.
//!
//! Source: docs/nv.md 1.1; formats as the driver's `nv-procfs.c` prints them. Left out: what nothing here reads (most
//! registry keys, warnings).

use super::config::Config;
use doorbell_ioctl::port::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Bus number of the first card; each card has a bus of its own.
const FIRST_BUS: usize = 0x17;
/// Majors as /proc/devices lists them: RM's is fixed, UVM's is dynamic.
const NVIDIA_MAJOR: u32 = 195;
const UVM_MAJOR: u32 = 508;

/// The card's place on the bus, as /sys names it.
#[must_use]
pub(crate) fn bdf(gpu: usize) -> String {
    format!("0000:{:02x}:00.0", bus(gpu))
}

/// The card's bus number.
#[must_use]
pub(crate) fn bus(gpu: usize) -> u8 {
    (FIRST_BUS + gpu) as u8
}

/// RM's id of the card: domain, bus and device.
#[must_use]
pub(crate) fn gpu_id(gpu: usize) -> u32 {
    u32::from(bus(gpu)) << 8
}

/// The card's UUID.
#[must_use]
pub(crate) fn uuid(gpu: usize) -> [u8; 16] {
    let mut uuid = *b"\xd0\x0b\xe1\x10\x5e\xed\x40\x00\x90\x00soft-g";
    uuid[15] = gpu as u8;
    uuid
}

/// `GPU-...`, as tools print it.
#[must_use]
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Files by path.
#[derive(Debug, Default)]
pub(super) struct Sysfs {
    files: BTreeMap<String, String>,
}

impl Sysfs {
    pub(crate) fn new(config: &Config) -> Self {
        let mut sysfs = Self::default();
        let release = config.release;
        sysfs.add(
            "/proc/driver/nvidia/version".to_owned(),
            format!(
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {release}  Release Build  (software)\nGCC version:  none\n"
            ),
        );
        let params = "Mobile: 4294967295\nResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n\
                      DeviceFileGID: 0\nDeviceFileMode: 438\nEnableStreamMemOPs: 0\nEnableMSI: 1\n";
        sysfs.add("/proc/driver/nvidia/params".to_owned(), params);
        let uvm = if config.no_uvm { String::new() } else { format!("{UVM_MAJOR} nvidia-uvm\n") };
        let devices = format!(
            "Character devices:\n  1 mem\n{NVIDIA_MAJOR} nvidia\n{NVIDIA_MAJOR} nvidia-modeset\n{NVIDIA_MAJOR} nvidiactl\n{uvm}\nBlock devices:\n259 blkext\n"
        );
        sysfs.add("/proc/devices".to_owned(), devices);
        sysfs.add("/sys/module/nvidia/version".to_owned(), format!("{release}\n"));
        sysfs.add("/dev/nvidiactl".to_owned(), "");
        if !config.no_uvm {
            sysfs.add("/sys/module/nvidia_uvm/version".to_owned(), format!("{release}\n"));
            if !config.no_nodes {
                sysfs.add("/dev/nvidia-uvm".to_owned(), "");
                sysfs.add("/dev/nvidia-uvm-tools".to_owned(), "");
            }
        }
        for gpu in 0..config.gpus {
            sysfs.card(config, gpu);
        }
        sysfs
    }

    fn add(&mut self, path: String, text: impl Into<String>) {
        self.files.insert(path, text.into());
    }

    fn card(&mut self, config: &Config, gpu: usize) {
        let (facts, bdf) = (config.chip.facts(), bdf(gpu));
        let information = format!(
            "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t 96.00.00.00.00\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n\
             DMA Mask: \t 0xfffffffffffff\nBus Location: \t {bdf}\nDevice Minor: \t {gpu}\nGPU Firmware: \t {}\nGPU Excluded:\t No\n",
            facts.product,
            100 + gpu,
            uuid_text(&uuid(gpu)),
            config.release,
        );
        self.add(format!("/proc/driver/nvidia/gpus/{bdf}/information"), information);
        let device = format!("/sys/bus/pci/devices/{bdf}");
        let speed = ["2.5", "5.0", "8.0", "16.0", "32.0"][facts.pcie_gen as usize - 1];
        let files = [
            ("vendor", "0x10de\n".to_owned()),
            ("device", format!("{:#06x}\n", facts.device_id)),
            ("class", "0x030200\n".to_owned()),
            ("subsystem_vendor", "0x10de\n".to_owned()),
            ("subsystem_device", "0x16c1\n".to_owned()),
            ("revision", "0xa1\n".to_owned()),
            ("numa_node", "0\n".to_owned()),
            ("enable", "1\n".to_owned()),
            ("current_link_speed", format!("{speed} GT/s PCIe\n")),
            ("current_link_width", "16\n".to_owned()),
            ("uevent", format!("DRIVER=nvidia\nPCI_ID=10DE:{:04X}\nPCI_SLOT_NAME={bdf}\n", facts.device_id)),
        ];
        for (name, text) in files {
            self.add(format!("{device}/{name}"), text);
            self.add(format!("/sys/bus/pci/drivers/nvidia/{bdf}/{name}"), "");
        }
        if !config.no_nodes {
            self.add(format!("/dev/nvidia{gpu}"), "");
        }
    }

    /// Whether a device file is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// `ENOENT`; `EISDIR` for a folder.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        match self.files.get(path) {
            Some(text) => Ok(text.clone().into_bytes()),
            None if self.list(path).is_ok() => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    /// Names in a folder, sorted.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let inside = self.files.keys().filter_map(|file| file.strip_prefix(&prefix));
        let names: BTreeSet<&str> = inside.filter_map(|rest| rest.split('/').next()).collect();
        if names.is_empty() { Err(Errno::ENOENT) } else { Ok(names.into_iter().map(str::to_owned).collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chip::Chip;
    use super::*;

    fn text(sysfs: &Sysfs, path: &str) -> String {
        String::from_utf8(sysfs.read(path).unwrap()).unwrap()
    }

    #[test]
    fn release_cards_and_majors_are_where_tools_look() {
        let sysfs = Sysfs::new(&Config { gpus: 2, ..Config::new(Chip::Sm90) });
        assert!(text(&sysfs, "/proc/driver/nvidia/version").contains("x86_64  580.159.04  Release"));
        assert_eq!(sysfs.list("/proc/driver/nvidia/gpus").unwrap(), ["0000:17:00.0", "0000:18:00.0"]);
        let card = text(&sysfs, "/proc/driver/nvidia/gpus/0000:18:00.0/information");
        assert!(card.contains("Model: \t\t NVIDIA H200\n") && card.contains("Device Minor: \t 1\n"));
        assert!(text(&sysfs, "/proc/devices").contains("508 nvidia-uvm\n"));
        assert_eq!(text(&sysfs, "/sys/bus/pci/devices/0000:17:00.0/device"), "0x2335\n");
        assert!(sysfs.has("/dev/nvidia1") && sysfs.has("/dev/nvidia-uvm"));
    }

    #[test]
    fn what_is_not_loaded_or_made_is_not_there() {
        let sysfs = Sysfs::new(&Config { no_uvm: true, ..Config::new(Chip::Sm90) });
        assert!(!text(&sysfs, "/proc/devices").contains("uvm") && !sysfs.has("/dev/nvidia-uvm"));
        let sysfs = Sysfs::new(&Config { no_nodes: true, ..Config::new(Chip::Sm90) });
        assert!(text(&sysfs, "/proc/devices").contains("uvm") && !sysfs.has("/dev/nvidia0"));
        assert!(sysfs.has("/dev/nvidiactl"));
    }
}
