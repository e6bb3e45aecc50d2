//! From the driver's file to an address space on the card.

use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use doorbell::device::amd::{Chip, Driver, SaveArea, read_nodes};
use std::fs;
use std::sync::Arc;

pub fn driver(climb: &mut Climb) -> Result<String, Failure> {
    let driver = Driver::open("AMD", Arc::clone(&climb.machine.port))?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = if climb.machine.is_software { "software".into() } else { format!("kernel {}", release.trim()) };
    let note = format!("KFD interface 1.{}, {kernel}", driver.minor());
    climb.driver = Some(driver);
    Ok(note)
}

pub fn topology(climb: &mut Climb) -> Result<String, Failure> {
    let port = Arc::clone(climb.driver()?.port());
    let nodes = read_nodes(&*port).map_err(|e| Failure::from(format!("read the topology: {e}")))?;
    let found: Vec<String> = nodes.iter().map(|n| format!("{} at {}", n.gfx(), n.bdf())).collect();
    let node = climb.machine.selector.pick(&nodes).cloned();
    let node = node.ok_or_else(|| format!("no such GPU; there are {}: {}", nodes.len(), found.join(", ")))?;
    let chip = Chip::of_version(node.target_version())
        .ok_or_else(|| format!("chip {} is unknown, known are {}", node.gfx(), Chip::names()))?;
    // The kernel's own numbers are used; that the computed ones are equal shows that older kernels get the right ones
    // too.
    let page = port.page_bytes();
    let (given, mut bare) = (SaveArea::of(chip, &node, page), node.clone());
    bare.properties.remove("cwsr_size");
    bare.properties.remove("ctl_stack_size");
    let computed = SaveArea::of(chip, &bare, page);
    let save =
        if given == computed { "as computed".into() } else { format!("computed {computed:x?}, printed {given:x?}") };
    let bar = if node.banks.iter().any(|(heap, _)| *heap == 2) { "small BAR" } else { "whole VRAM visible" };
    let note = format!(
        "{} at {}, {} CUs in {} XCC, {} MiB VRAM ({bar}), firmware {} and SDMA {}, IP {}, save area {save}",
        chip.name,
        node.bdf(),
        node.cu_count(),
        node.xcc_count(),
        node.vram_bytes() >> 20,
        node.value("fw_version"),
        node.value("sdma_fw_version"),
        ip_versions(&*port, node.render_minor()),
    );
    climb.node = Some((node, chip));
    Ok(note)
}

/// Versions of the blocks that packets and registers depend on.
fn ip_versions(port: &dyn doorbell_ioctl::port::Port, minor: u32) -> String {
    let blocks = [("GC", 11), ("SDMA", 42), ("NBIO", 108)];
    let version = |(name, id): (&str, u32)| {
        let part = |part: &str| {
            let path = format!("/sys/class/drm/renderD{minor}/device/ip_discovery/die/0/{id}/0/{part}");
            let bytes = port.read_file(&path).ok()?;
            Some(String::from_utf8_lossy(&bytes).trim().to_string())
        };
        let text = [part("major"), part("minor"), part("revision")].into_iter().collect::<Option<Vec<_>>>();
        text.map(|t| format!("{name} {}", t.join(".")))
    };
    let known: Vec<String> = blocks.into_iter().filter_map(version).collect();
    if known.is_empty() { "unknown".into() } else { known.join(", ") }
}

pub fn acquire(climb: &mut Climb) -> Result<String, Failure> {
    climb.open_core()?;
    let core = climb.core()?;
    core.calibrate().map_err(fail)?;
    // A signal needs a page of the card: the first buffer.
    let signal = core.signals.signal().map_err(fail)?;
    Ok(format!("render node {}, signals at {:#x}", core.node.render_minor(), signal.va()))
}
