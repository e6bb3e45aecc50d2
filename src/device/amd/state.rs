//! The state of a card from topology and driver: bus address, firmware, releases.
//!
//! Layer: reads through a port; `doorbell devices` prints it. Source: docs/amd.md 1.8;
//! `/sys/module/amdgpu/version` exists if the driver was installed separately from the kernel. Left out: clocks, power
//! and temperature (hwmon files and DRM sensors, which the software GPU does not provide).

use super::topology::Node;
use crate::DeviceState;
use doorbell_ioctl::port::Port;
use serde::Serialize;

#[derive(Debug, Serialize)]
struct Card {
    bdf: String,
    /// The GPU's name in the topology, which may be empty.
    name: String,
    /// Firmware versions of the compute and copy engines.
    compute_firmware: u64,
    copy_firmware: u64,
    /// Release of a separately installed driver, else the kernel's release.
    driver: Option<String>,
    /// Version of KFD's interface, if the device is open.
    kfd: Option<String>,
}

/// The state of a node; `minor` is the minor version of KFD's interface, if known.
pub fn state(node: &Node, port: &dyn Port, minor: Option<u32>) -> DeviceState {
    let text = |path: &str| {
        let bytes = port.read_file(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string()).filter(|text| !text.is_empty())
    };
    let own = text("/sys/module/amdgpu/version").map(|version| format!("amdgpu {version}"));
    let card = Card {
        bdf: node.bdf(),
        name: node.name.clone(),
        compute_firmware: node.value("fw_version"),
        copy_firmware: node.value("sdma_fw_version"),
        driver: own.or_else(|| text("/proc/sys/kernel/osrelease").map(|release| format!("kernel {release}"))),
        kfd: minor.map(|minor| format!("1.{minor}")),
    };
    let mut parts = vec![
        card.bdf.clone(),
        format!("firmware {} compute, {} copies", card.compute_firmware, card.copy_firmware),
        card.driver.clone().unwrap_or_else(|| "driver release unknown".into()),
    ];
    parts.extend(card.kfd.as_ref().map(|kfd| format!("KFD {kfd}")));
    if !card.name.is_empty() {
        parts.insert(0, card.name.clone());
    }
    // Plain fields cannot fail to become JSON.
    DeviceState { line: parts.join(", "), values: serde_json::to_value(&card).unwrap_or_default() }
}
