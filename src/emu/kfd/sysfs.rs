//! The files that a program reads before it opens anything: topology nodes and IP versions.
//!
//! Source: docs/amd.md 1.8; `kfd_topology.c` for which files a node has.

use super::chip::{ChipFacts, MAX_SLOTS_SCRATCH_CU, facts_of};
use super::config::Config;
use doorbell_ioctl::port::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const TOPOLOGY: &str = "/sys/devices/virtual/kfd/kfd/topology";
/// First render node's minor.
pub(crate) const FIRST_RENDER_MINOR: usize = 128;
const FIRST_BUS: usize = 3;
const HEAP_SYSTEM: u32 = 0;
const HEAP_PUBLIC: u32 = 1;
const HEAP_PRIVATE: u32 = 2;
const LINK_PCIE: u32 = 2;
const LINK_XGMI: u32 = 11;
/// Memory of the pretended host.
const HOST_BYTES: u64 = 64 << 30;
/// First interface minor whose kernel prints the context-save sizes (6.12).
const MINOR_WITH_SAVE_SIZES: u32 = 17;

/// The files, with the error of those that may not be read.
#[derive(Debug, Default)]
pub(crate) struct Sysfs {
    files: BTreeMap<String, Result<Vec<u8>, Errno>>,
}

/// A card's id: 16 bits, never 0.
#[must_use]
pub(crate) fn gpu_id(gpu: usize) -> u32 {
    0xb1d5 ^ ((gpu as u32 & 0xff) * 0x0101)
}

impl Sysfs {
    #[must_use]
    pub(crate) fn new(config: &Config) -> Self {
        let mut sysfs = Self::default();
        sysfs.add(format!("{TOPOLOGY}/generation_id"), "2\n");
        let nodes = config.node_of_gpu(config.gpus);
        sysfs.add(format!("{TOPOLOGY}/system_properties"), "platform_oem 0\nplatform_id 0\nplatform_rev 0\n");
        sysfs.cpu(config);
        for node in 1..=config.hidden_nodes {
            for file in ["gpu_id", "name", "properties"] {
                sysfs.files.insert(format!("{TOPOLOGY}/nodes/{node}/{file}"), Err(Errno::EPERM));
            }
        }
        for gpu in 0..nodes - 1 - config.hidden_nodes {
            sysfs.card(config, gpu);
            sysfs.render(facts_of(config.chip), gpu);
            sysfs.telemetry(config, gpu);
        }
        sysfs
    }

    fn add(&mut self, path: String, text: impl Into<Vec<u8>>) {
        self.files.insert(path, Ok(text.into()));
    }

    fn cpu(&mut self, config: &Config) {
        let node = format!("{TOPOLOGY}/nodes/0");
        self.add(format!("{node}/gpu_id"), "0\n");
        self.add(format!("{node}/name"), "\n");
        let text = format!("cpu_cores_count 8\nsimd_count 0\nmem_banks_count 1\nio_links_count {}\n", config.gpus);
        self.add(format!("{node}/properties"), text);
        let bank = format!("heap_type {HEAP_SYSTEM}\nsize_in_bytes {HOST_BYTES}\nflags 0\nwidth 0\nmem_clk_max 0\n");
        self.add(format!("{node}/mem_banks/0/properties"), bank);
        for gpu in 0..config.gpus {
            let link = link(LINK_PCIE, 0, config.node_of_gpu(gpu));
            self.add(format!("{node}/io_links/{gpu}/properties"), link);
        }
    }

    fn card(&mut self, config: &Config, gpu: usize) {
        let here = config.node_of_gpu(gpu);
        let node = format!("{TOPOLOGY}/nodes/{here}");
        self.add(format!("{node}/gpu_id"), format!("{}\n", gpu_id(gpu)));
        self.add(format!("{node}/name"), format!("{}\n", config.chip.name()));
        self.add(format!("{node}/properties"), properties(config, gpu));
        let heap = if config.small_bar { HEAP_PRIVATE } else { HEAP_PUBLIC };
        let size = config.vram_bytes;
        let bank = format!("heap_type {heap}\nsize_in_bytes {size}\nflags 0\nwidth 384\nmem_clk_max 1249\n");
        self.add(format!("{node}/mem_banks/0/properties"), bank);
        self.add(format!("{node}/io_links/0/properties"), link(LINK_PCIE, here, 0));
        let peers = (0..config.gpus).filter(|other| *other != gpu && config.peer_links);
        for (at, other) in (1..).zip(peers) {
            self.add(format!("{node}/io_links/{at}/properties"), link(LINK_XGMI, here, config.node_of_gpu(other)));
        }
    }

    fn render(&mut self, facts: &ChipFacts, gpu: usize) {
        let device = format!("/sys/class/drm/renderD{}/device", FIRST_RENDER_MINOR + gpu);
        for (hwid, major, minor, revision) in facts.ip {
            let ip = format!("{device}/ip_discovery/die/0/{hwid}/0");
            self.add(format!("{ip}/major"), format!("{major}\n"));
            self.add(format!("{ip}/minor"), format!("{minor}\n"));
            self.add(format!("{ip}/revision"), format!("{revision}\n"));
        }
        self.add(format!("/dev/dri/renderD{}", FIRST_RENDER_MINOR + gpu), "");
        self.add(format!("{device}/vendor"), "0x1002\n");
        self.add(format!("{device}/device"), format!("{:#06x}\n", facts.device_id));
        let uevent = format!("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{:02x}:00.0\n", FIRST_BUS + gpu);
        self.add(format!("{device}/uevent"), uevent);
    }

    /// What a card says of itself while it runs.
    fn telemetry(&mut self, config: &Config, gpu: usize) {
        let device = format!("/sys/class/drm/renderD{}/device", FIRST_RENDER_MINOR + gpu);
        if let Some(table) = &config.metrics {
            self.add(format!("{device}/gpu_metrics"), table.clone());
        }
        let (speed, lanes) = config.link;
        self.add(format!("{device}/current_link_speed"), format!("{speed}\n"));
        self.add(format!("{device}/current_link_width"), format!("{lanes}\n"));
        self.add(format!("{device}/max_link_speed"), "32.0 GT/s PCIe\n");
        self.add(format!("{device}/max_link_width"), "16\n");
    }

    /// A file's bytes.
    ///
    /// # Errors
    /// `ENOENT`; `EPERM` for nodes that the process may not see; `EISDIR` for a folder.
    pub(crate) fn read(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let path = &*real(path);
        match self.files.get(path) {
            Some(Ok(bytes)) => Ok(bytes.clone()),
            Some(Err(errno)) => Err(*errno),
            None if self.list(path).is_ok() => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    /// Names in a folder, sorted.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Errno> {
        let prefix = format!("{}/", real(path).trim_end_matches('/'));
        let inside = self.files.keys().filter_map(|file| file.strip_prefix(&prefix));
        let names: BTreeSet<&str> = inside.filter_map(|rest| rest.split('/').next()).collect();
        if names.is_empty() { Err(Errno::ENOENT) } else { Ok(names.into_iter().map(str::to_owned).collect()) }
    }
}

/// Where a path of the class folder leads.
fn real(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/sys/class/kfd/kfd") {
        Some(rest) => Cow::Owned(format!("/sys/devices/virtual/kfd/kfd{rest}")),
        None => Cow::Borrowed(path),
    }
}

fn link(kind: u32, from: usize, to: usize) -> String {
    format!(
        "type {kind}\nversion_major 0\nversion_minor 0\nnode_from {from}\nnode_to {to}\nweight 20\nmin_latency 0\nmax_latency 0\n\
         min_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\nflags 1\n"
    )
}

fn properties(config: &Config, gpu: usize) -> String {
    let facts = facts_of(config.chip);
    let mut text = String::new();
    let links = 1 + if config.peer_links { config.gpus - 1 } else { 0 };
    let values: &[(&str, u64)] = &[
        ("cpu_cores_count", 0),
        ("simd_count", facts.simd_count.into()),
        ("mem_banks_count", 1),
        ("caches_count", 0),
        ("io_links_count", links as u64),
        ("max_waves_per_simd", facts.max_waves_per_simd.into()),
        ("lds_size_in_kb", 64),
        ("gds_size_in_kb", 0),
        ("num_gws", 64),
        ("wave_front_size", facts.wave_front_size.into()),
        ("array_count", facts.array_count.into()),
        ("simd_arrays_per_engine", facts.simd_arrays_per_engine.into()),
        ("cu_per_simd_array", facts.cu_per_simd_array.into()),
        ("simd_per_cu", facts.simd_per_cu.into()),
        ("max_slots_scratch_cu", MAX_SLOTS_SCRATCH_CU.into()),
        ("gfx_target_version", facts.gfx_target_version.into()),
        ("vendor_id", 0x1002),
        ("device_id", facts.device_id.into()),
        ("location_id", ((FIRST_BUS + gpu) << 8) as u64),
        ("domain", 0),
        ("drm_render_minor", (FIRST_RENDER_MINOR + gpu) as u64),
        ("hive_id", 0),
        ("num_sdma_engines", facts.num_sdma_engines.into()),
        ("num_sdma_xgmi_engines", facts.num_sdma_xgmi_engines.into()),
        ("num_sdma_queues_per_engine", facts.num_sdma_queues_per_engine.into()),
        ("num_cp_queues", 8),
        ("max_engine_clk_fcompute", 2000),
        ("local_mem_size", 0),
        ("fw_version", 550),
        ("capability", 0),
        ("debug_prop", 0),
        ("sdma_fw_version", 24),
        ("unique_id", 0x5eed_0000 + gpu as u64),
        ("num_xcc", facts.num_xcc.into()),
        ("max_engine_clk_ccompute", 4000),
    ];
    for (key, value) in values {
        let _never_fails = writeln!(text, "{key} {value}");
    }
    if config.kfd_minor >= MINOR_WITH_SAVE_SIZES {
        let area = facts.save_area(config.page_bytes);
        let _never_fails = writeln!(text, "cwsr_size {}\nctl_stack_size {}", area.cwsr_bytes, area.ctl_stack_bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::chip::Chip;
    use super::*;

    fn text(sysfs: &Sysfs, path: &str) -> String {
        String::from_utf8(sysfs.read(&format!("{TOPOLOGY}/{path}")).unwrap()).unwrap()
    }

    #[test]
    fn nodes_are_the_cpu_the_hidden_and_the_cards() {
        let config = Config { gpus: 2, hidden_nodes: 1, ..Config::new(Chip::Gfx1100) };
        let sysfs = Sysfs::new(&config);
        assert_eq!(sysfs.list(&format!("{TOPOLOGY}/nodes")).unwrap(), ["0", "1", "2", "3"]);
        assert_eq!(text(&sysfs, "nodes/0/gpu_id"), "0\n");
        assert_eq!(sysfs.read(&format!("{TOPOLOGY}/nodes/1/gpu_id")), Err(Errno::EPERM));
        assert_ne!(text(&sysfs, "nodes/2/gpu_id"), text(&sysfs, "nodes/3/gpu_id"));
        assert!(text(&sysfs, "nodes/3/properties").contains("drm_render_minor 129\n"));
        assert!(text(&sysfs, "nodes/2/properties").contains("gfx_target_version 110000\n"));
        assert!(text(&sysfs, "nodes/2/io_links/1/properties").contains("type 11\n"));
    }

    #[test]
    fn save_sizes_are_printed_by_new_kernels_only() {
        let properties = |kfd_minor| {
            let sysfs = Sysfs::new(&Config { kfd_minor, ..Config::new(Chip::Gfx942) });
            text(&sysfs, "nodes/1/properties")
        };
        assert!(properties(17).contains("cwsr_size 23203840\n"));
        assert!(!properties(14).contains("cwsr_size"));
    }

    #[test]
    fn ip_versions_name_the_chip() {
        let sysfs = Sysfs::new(&Config::new(Chip::Gfx942));
        let read = |file: &str| {
            sysfs.read(&format!("/sys/class/drm/renderD128/device/ip_discovery/die/0/11/0/{file}")).unwrap()
        };
        assert_eq!((read("major"), read("minor"), read("revision")), (b"9\n".into(), b"4\n".into(), b"3\n".into()));
        assert_eq!(sysfs.list("/sys/class/kfd/kfd/topology/nodes").unwrap(), ["0", "1"], "the class folder is a link");
        assert_eq!(sysfs.list("/dev/dri").unwrap(), ["renderD128"]);
        assert_eq!(sysfs.read("/sys/class/drm"), Err(Errno::EISDIR));
        assert_eq!(sysfs.list("/sys/nothing"), Err(Errno::ENOENT));
    }
}
