//! GPUs in the kernel's topology, and the selection of one by a user's string.
//!
//! Layer: reads sysfs through a port; `mod.rs` opens the selected node. Source: docs/amd.md 1.8
//! (`kfd_topology.c`).
//! Left out: CPU nodes, caches, link weights.

use super::chip::version_name;
use crate::registry::software_index;
use doorbell_ioctl::port::{Errno, Port};
use std::collections::BTreeMap;

/// Folder of the nodes.
pub(crate) const NODES: &str = "/sys/devices/virtual/kfd/kfd/topology/nodes";

/// One GPU of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Number of its folder.
    pub index: u32,
    pub gpu_id: u32,
    /// Its name in the topology, which may be empty.
    pub name: String,
    pub properties: BTreeMap<String, u64>,
    /// (heap type, bytes): 1 public VRAM, 2 private VRAM.
    pub banks: Vec<(u64, u64)>,
}

impl Node {
    /// A property; 0 if the kernel does not list it.
    #[must_use]
    pub fn value(&self, key: &str) -> u64 {
        self.properties.get(key).copied().unwrap_or(0)
    }

    fn small(&self, key: &str) -> u32 {
        u32::try_from(self.value(key)).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn target_version(&self) -> u32 {
        self.small("gfx_target_version")
    }

    /// `gfx1100`.
    #[must_use]
    pub fn gfx(&self) -> String {
        version_name(self.target_version())
    }

    /// Compute units over all XCCs.
    #[must_use]
    pub fn cu_count(&self) -> u64 {
        self.value("simd_count") / self.value("simd_per_cu").max(1)
    }

    #[must_use]
    pub fn xcc_count(&self) -> u64 {
        self.value("num_xcc").max(1)
    }

    /// Shader engines of one XCC.
    #[must_use]
    pub fn engine_count(&self) -> u64 {
        (self.value("array_count") / self.value("simd_arrays_per_engine").max(1) / self.xcc_count()).max(1)
    }

    #[must_use]
    pub fn render_minor(&self) -> u32 {
        self.small("drm_render_minor")
    }

    /// Domain, bus, device, function: `0000:03:00.0`.
    #[must_use]
    pub fn bdf(&self) -> String {
        let location = self.value("location_id");
        let (domain, bus) = (self.value("domain"), location >> 8 & 0xff);
        format!("{domain:04x}:{bus:02x}:{:02x}.{}", location >> 3 & 0x1f, location & 7)
    }

    /// Bytes of VRAM.
    #[must_use]
    pub fn vram_bytes(&self) -> u64 {
        self.banks.iter().filter(|(heap, _)| matches!(heap, 1 | 2)).map(|(_, bytes)| bytes).sum()
    }
}

/// Which GPU a user wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// The n-th GPU of a known chip, from 0.
    Index(u32),
    /// `bdf=0000:03:00.0`
    Bdf(String),
    /// `gfx1100`: the first GPU with that chip.
    Gfx(String),
    /// `emu=gfx1100`, `1:emu=gfx1100`: the n-th software GPU of that chip, from 0.
    Emulated { chip: String, index: u32 },
}

impl Selector {
    /// Parses the text after `AMD:`; `None` selects the first GPU.
    #[must_use]
    pub fn parse(rest: Option<&str>) -> Option<Self> {
        let Some(rest) = rest else { return Some(Self::Index(0)) };
        if let Ok(index) = rest.parse::<u32>() {
            return (index < 64).then_some(Self::Index(index));
        }
        let lower = rest.to_ascii_lowercase();
        let (index, lower) = software_index(&lower)?;
        let is_gfx =
            |text: &str| text.len() > 3 && text.starts_with("gfx") && text.bytes().all(|b| b.is_ascii_alphanumeric());
        match lower.split_once('=') {
            Some(("bdf", bdf)) if bdf.len() >= 7 => Some(Self::Bdf(bdf.into())),
            Some(("emu", chip)) if is_gfx(chip) => Some(Self::Emulated { chip: chip.into(), index }),
            None if is_gfx(lower) => Some(Self::Gfx(lower.into())),
            _ => None,
        }
    }

    /// The selected node, among those that a device can be opened on.
    #[must_use]
    pub fn pick<'a>(&self, nodes: &'a [Node]) -> Option<&'a Node> {
        match self {
            Self::Index(n) => nodes.get(*n as usize),
            Self::Bdf(bdf) => nodes.iter().find(|n| n.bdf() == *bdf || n.bdf().ends_with(&format!(":{bdf}"))),
            Self::Gfx(gfx) => nodes.iter().find(|n| n.gfx() == *gfx),
            Self::Emulated { index, .. } => nodes.get(*index as usize),
        }
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(0) => f.write_str("AMD"),
            Self::Index(n) => write!(f, "AMD:{n}"),
            Self::Bdf(bdf) => write!(f, "AMD:bdf={bdf}"),
            Self::Gfx(gfx) => write!(f, "AMD:{gfx}"),
            Self::Emulated { chip, index: 0 } => write!(f, "AMD:emu={chip}"),
            Self::Emulated { chip, index } => write!(f, "AMD:{index}:emu={chip}"),
        }
    }
}

/// All GPUs of the topology in the order of their nodes. CPU nodes, and GPUs that this process may not use, are
/// skipped.
///
/// # Errors
/// `ENOENT` without the driver; other reading errors.
pub fn read_nodes(port: &dyn Port) -> Result<Vec<Node>, Errno> {
    let mut numbers: Vec<u32> = port.read_dir(NODES)?.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let mut nodes = Vec::new();
    for index in numbers {
        match read_node(port, index) {
            Ok(Some(node)) => nodes.push(node),
            // A device that this cgroup may not use cannot be read.
            Ok(None) | Err(Errno::EPERM | Errno::EACCES) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}

fn read_node(port: &dyn Port, index: u32) -> Result<Option<Node>, Errno> {
    let text = |name: &str| -> Result<String, Errno> {
        let bytes = port.read_file(&format!("{NODES}/{index}/{name}"))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_string())
    };
    let gpu_id: u32 = text("gpu_id")?.parse().unwrap_or(0);
    if gpu_id == 0 {
        return Ok(None);
    }
    let properties = pairs(&text("properties")?);
    let mut banks = Vec::new();
    for bank in port.read_dir(&format!("{NODES}/{index}/mem_banks")).unwrap_or_default() {
        let bank = pairs(&text(&format!("mem_banks/{bank}/properties"))?);
        let value = |key: &str| bank.get(key).copied().unwrap_or(0);
        banks.push((value("heap_type"), value("size_in_bytes")));
    }
    let name = text("name").unwrap_or_default();
    Ok(Some(Node { index, gpu_id, name, properties, banks }))
}

/// Parses lines of `key value`; values that are not numbers are skipped.
fn pairs(text: &str) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_string(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_what_users_write() {
        let parse = |text| Selector::parse(Some(text));
        assert_eq!(Selector::parse(None), Some(Selector::Index(0)));
        assert_eq!(parse("1"), Some(Selector::Index(1)));
        assert_eq!(parse("bdf=0000:03:00.0"), Some(Selector::Bdf("0000:03:00.0".into())));
        assert_eq!(parse("GFX1100"), Some(Selector::Gfx("gfx1100".into())));
        let soft = |chip: &str, index| Some(Selector::Emulated { chip: chip.into(), index });
        assert_eq!((parse("emu=gfx942"), parse("0:emu=gfx942")), (soft("gfx942", 0), soft("gfx942", 0)));
        assert_eq!(parse("1:emu=gfx1100"), soft("gfx1100", 1));
        assert_eq!(parse("1:EMU=gfx1100").unwrap().to_string(), "AMD:1:emu=gfx1100");
        for wrong in [
            "1:gfx1100",
            "x:emu=gfx1100",
            "64:emu=gfx1100",
            "1:",
            "",
            "64",
            "-1",
            "bdf=",
            "emu=",
            "emu=rtx",
            "gfx",
            "gfx 11",
            "x=1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn nodes_are_picked_by_index_place_and_chip() {
        let node = |gpu_id, version, location| Node {
            gpu_id,
            properties: [("gfx_target_version".to_string(), version), ("location_id".to_string(), location)].into(),
            ..Node::default()
        };
        let nodes = [node(1, 110_000, 0x300), node(2, 90_402, 0xc00), node(3, 110_000, 0x8300)];
        let pick = |text| Selector::parse(Some(text)).unwrap().pick(&nodes).map(|n| n.gpu_id);
        assert_eq!((pick("0"), pick("2"), pick("3")), (Some(1), Some(3), None));
        assert_eq!((pick("gfx942"), pick("gfx1201")), (Some(2), None));
        assert_eq!((pick("bdf=0000:0c:00.0"), pick("bdf=83:00.0"), pick("bdf=0001:0c:00.0")), (Some(2), Some(3), None));
        assert_eq!(nodes[2].bdf(), "0000:83:00.0");
    }

    #[test]
    fn properties_that_are_no_numbers_are_left_out() {
        let found = pairs("simd_count 192\nunique_id 17594072371029581463\nodd line here\n\nname x\n");
        assert_eq!(found.get("simd_count"), Some(&192));
        assert_eq!(found.len(), 2);
    }
}
