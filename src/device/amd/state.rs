//! The state of a card from topology, driver and firmware: bus address, releases, clocks, power, temperatures, link.
//!
//! Layer: reads through a port; `doorbell devices` prints it. Source: docs/amd.md 1.8;
//! `/sys/module/amdgpu/version` exists if the driver was installed separately from the kernel; `gpu_metrics` is in
//! `metrics`, the link's files are those of every PCI device. Left out: hwmon files and DRM sensors.

use super::metrics::Metrics;
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
    metrics: Option<Metrics>,
    /// Why there are none, if the file is there.
    metrics_refused: Option<String>,
    link: Option<Link>,
    /// Errors of memory since the driver was loaded, corrected and not, over all blocks that count them.
    memory_errors: Option<(u64, u64)>,
}

/// The link to the host: speed and lanes, now and at most.
#[derive(Debug, PartialEq, Serialize)]
struct Link {
    gt_per_s: f64,
    lanes: u32,
    most_gt_per_s: f64,
    most_lanes: u32,
}

/// The PCI device's folder, by its render node.
fn folder(node: &Node) -> String {
    format!("/sys/class/drm/renderD{}/device", node.render_minor())
}

fn link(node: &Node, port: &dyn Port) -> Option<Link> {
    let text = |name: &str| {
        let bytes = port.read_file(&format!("{}/{name}", folder(node))).ok()?;
        String::from_utf8_lossy(&bytes).split_whitespace().next().map(str::to_owned)
    };
    Some(Link {
        gt_per_s: text("current_link_speed")?.parse().ok()?,
        lanes: text("current_link_width")?.parse().ok()?,
        most_gt_per_s: text("max_link_speed")?.parse().ok()?,
        most_lanes: text("max_link_width")?.parse().ok()?,
    })
}

/// Sums of the RAS counters: lines `ue: 0` and `ce: 0` in a file a block.
fn memory_errors(node: &Node, port: &dyn Port) -> Option<(u64, u64)> {
    let folder = format!("{}/ras", folder(node));
    let names = port.read_dir(&folder).ok()?;
    let counts = names.iter().filter(|name| name.ends_with("_err_count"));
    let mut all = (0, 0);
    for name in counts {
        let bytes = port.read_file(&format!("{folder}/{name}")).ok()?;
        for line in String::from_utf8_lossy(&bytes).lines() {
            let count = |key: &str| line.strip_prefix(key).and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
            all = (all.0 + count("ce:"), all.1 + count("ue:"));
        }
    }
    Some(all)
}

/// The state of a node; `minor` is the minor version of KFD's interface, if known.
pub fn state(node: &Node, port: &dyn Port, minor: Option<u32>) -> DeviceState {
    let text = |path: &str| {
        let bytes = port.read_file(path).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string()).filter(|text| !text.is_empty())
    };
    let metrics = port.read_file(&format!("{}/gpu_metrics", folder(node))).ok().map(|bytes| Metrics::parse(&bytes));
    let own = text("/sys/module/amdgpu/version").map(|version| format!("amdgpu {version}"));
    let card = Card {
        bdf: node.bdf(),
        name: node.name.clone(),
        compute_firmware: node.value("fw_version"),
        copy_firmware: node.value("sdma_fw_version"),
        driver: own.or_else(|| text("/proc/sys/kernel/osrelease").map(|release| format!("kernel {release}"))),
        kfd: minor.map(|minor| format!("1.{minor}")),
        metrics: metrics.as_ref().and_then(|m| m.as_ref().ok().cloned()),
        metrics_refused: metrics.and_then(|m| m.err().map(|e| e.to_string())),
        link: link(node, port),
        memory_errors: memory_errors(node, port),
    };
    let mut parts = vec![
        card.bdf.clone(),
        format!("firmware {} compute, {} copies", card.compute_firmware, card.copy_firmware),
        card.driver.clone().unwrap_or_else(|| "driver release unknown".into()),
    ];
    parts.extend(card.kfd.as_ref().map(|kfd| format!("KFD {kfd}")));
    if let Some(m) = &card.metrics {
        parts.extend(m.gfx_mhz.map(|mhz| format!("{mhz:.0} MHz")));
        parts.extend(m.power_w.map(|watts| format!("{watts:.0} W")));
        parts.extend(m.temperature_c.values().copied().reduce(f64::max).map(|most| format!("{most:.0} C")));
    }
    if let Some(link) = &card.link {
        parts.push(format!("PCIe {} GT/s x{}", link.gt_per_s, link.lanes));
    }
    if !card.name.is_empty() {
        parts.insert(0, card.name.clone());
    }
    // Plain fields cannot fail to become JSON.
    DeviceState { line: parts.join(", "), values: serde_json::to_value(&card).unwrap_or_default() }
}
