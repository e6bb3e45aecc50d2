//! `gpu_metrics`: what a card's firmware says of clocks, power, temperatures and throttling, as a table in sysfs.
//!
//! Layer: bytes to values; `state` reads the file. Source: `kgd_pp_interface.h` of Linux: a head (bytes of the table,
//! format and content revision) and the fields of that revision, at C's alignment. Format 1 is that of cards (degrees
//! Celsius, watts), format 2 and 3 those of APUs (hundredths of a degree, milliwatts). A field with all bits set is one
//! that the card does not have. An unknown revision is reported as unknown: nothing is guessed from another one.
//! Left out: 1.9, a list of attributes, and what 1.6 to 1.8 say of each partition.

use serde::Serialize;
use std::collections::BTreeMap;

/// Bytes of the head.
const HEAD_BYTES: usize = 4;

/// A field: name, bytes of an element, elements.
type Row = (&'static str, usize, usize);

const fn u8s(name: &'static str, count: usize) -> Row {
    (name, 1, count)
}

const fn u16s(name: &'static str, count: usize) -> Row {
    (name, 2, count)
}

const fn u32s(name: &'static str, count: usize) -> Row {
    (name, 4, count)
}

const fn u64s(name: &'static str, count: usize) -> Row {
    (name, 8, count)
}

const CLOCK: &[Row] = &[u64s("system_clock_counter", 1)];
const TEMPERATURES: &[Row] = &[
    u16s("temperature_edge", 1),
    u16s("temperature_hotspot", 1),
    u16s("temperature_mem", 1),
    u16s("temperature_vrgfx", 1),
    u16s("temperature_vrsoc", 1),
    u16s("temperature_vrmem", 1),
];
const ACTIVITY: &[Row] =
    &[u16s("average_gfx_activity", 1), u16s("average_umc_activity", 1), u16s("average_mm_activity", 1)];
const POWER: &[Row] = &[u16s("average_socket_power", 1)];
const CLOCKS: &[Row] = &[
    u16s("average_gfxclk_frequency", 1),
    u16s("average_socclk_frequency", 1),
    u16s("average_uclk_frequency", 1),
    u16s("average_vclk0_frequency", 1),
    u16s("average_dclk0_frequency", 1),
    u16s("average_vclk1_frequency", 1),
    u16s("average_dclk1_frequency", 1),
    u16s("current_gfxclk", 1),
    u16s("current_socclk", 1),
    u16s("current_uclk", 1),
    u16s("current_vclk0", 1),
    u16s("current_dclk0", 1),
    u16s("current_vclk1", 1),
    u16s("current_dclk1", 1),
    u32s("throttle_status", 1),
    u16s("current_fan_speed", 1),
];
const LINK8: &[Row] = &[u8s("pcie_link_width", 1), u8s("pcie_link_speed", 1)];
const LINK16: &[Row] = &[u16s("pcie_link_width", 1), u16s("pcie_link_speed", 1)];
const PADDING: &[Row] = &[u16s("", 1)];
const ACCUMULATED: &[Row] = &[u32s("gfx_activity_acc", 1), u32s("mem_activity_acc", 1)];
const HBM: &[Row] = &[u16s("temperature_hbm", 4)];
const FIRMWARE: &[Row] = &[u64s("firmware_timestamp", 1)];
const VOLTAGES: &[Row] = &[u16s("voltage_soc", 1), u16s("voltage_gfx", 1), u16s("voltage_mem", 1), u16s("", 1)];
const INDEPENDENT: &[Row] = &[u64s("indep_throttle_status", 1)];
const ENERGY32: &[Row] = &[u32s("energy_accumulator", 1)];
const ENERGY64: &[Row] = &[u64s("energy_accumulator", 1)];

/// Fields of data-centre cards, from 1.4 on.
const SOCKET: &[Row] = &[
    u16s("temperature_hotspot", 1),
    u16s("temperature_mem", 1),
    u16s("temperature_vrsoc", 1),
    u16s("curr_socket_power", 1),
    u16s("average_gfx_activity", 1),
    u16s("average_umc_activity", 1),
    u16s("vcn_activity", 4),
];
const JPEG: &[Row] = &[u16s("jpeg_activity", 32)];
const RESIDENCIES: &[Row] = &[
    u32s("accumulation_counter", 1),
    u32s("prochot_residency_acc", 1),
    u32s("ppt_residency_acc", 1),
    u32s("socket_thm_residency_acc", 1),
    u32s("vr_thm_residency_acc", 1),
    u32s("hbm_thm_residency_acc", 1),
];
const STATUS: &[Row] = &[u32s("throttle_status", 1)];
const LOCKS: &[Row] = &[u32s("gfxclk_lock_status", 1)];
const XGMI: &[Row] = &[u16s("xgmi_link_width", 1), u16s("xgmi_link_speed", 1)];
const PCIE: &[Row] = &[
    u64s("pcie_bandwidth_acc", 1),
    u64s("pcie_bandwidth_inst", 1),
    u64s("pcie_l0_to_recov_count_acc", 1),
    u64s("pcie_replay_count_acc", 1),
    u64s("pcie_replay_rover_count_acc", 1),
];
const NAKS: &[Row] = &[u32s("pcie_nak_sent_count_acc", 1), u32s("pcie_nak_rcvd_count_acc", 1)];
const XGMI_DATA: &[Row] = &[u64s("xgmi_read_data_acc", 8), u64s("xgmi_write_data_acc", 8)];
const MANY_CLOCKS: &[Row] = &[
    u16s("current_gfxclk", 8),
    u16s("current_socclk", 4),
    u16s("current_vclk0", 4),
    u16s("current_dclk0", 4),
    u16s("current_uclk", 1),
    u16s("", 1),
];

/// As [`SOCKET`], without engines of video.
const SHORT_SOCKET: &[Row] = &[
    u16s("temperature_hotspot", 1),
    u16s("temperature_mem", 1),
    u16s("temperature_vrsoc", 1),
    u16s("curr_socket_power", 1),
    u16s("average_gfx_activity", 1),
    u16s("average_umc_activity", 1),
];
const BANDWIDTH: &[Row] = &[u64s("mem_max_bandwidth", 1)];
const XGMI_STATUS: &[Row] = &[u16s("xgmi_link_status", 8), u16s("", 1)];
/// Clocks, then what each of eight partitions says (21, 29 or 47 words), which is not read.
const PARTITION_CLOCKS: &[Row] = &[
    u16s("current_gfxclk", 8),
    u16s("current_socclk", 4),
    u16s("current_vclk0", 4),
    u16s("current_dclk0", 4),
    u16s("current_uclk", 1),
    u16s("num_partition", 1),
];
const PARTITIONS_6: &[Row] = &[u64s("", 8 * 21)];
const PARTITIONS_7: &[Row] = &[u64s("", 8 * 29)];
const PARTITIONS_8: &[Row] = &[u64s("", 8 * 47)];
const RECOVERY: &[Row] = &[u32s("pcie_lc_perf_other_end_recovery", 1)];

/// Fields of APUs.
const APU_TEMPERATURES: &[Row] = &[
    u16s("temperature_gfx", 1),
    u16s("temperature_soc", 1),
    u16s("temperature_core", 8),
    u16s("temperature_l3", 2),
    u16s("average_gfx_activity", 1),
    u16s("average_mm_activity", 1),
];
const APU_POWER: &[Row] = &[
    u16s("average_socket_power", 1),
    u16s("average_cpu_power", 1),
    u16s("average_soc_power", 1),
    u16s("average_gfx_power", 1),
    u16s("average_core_power", 8),
    u16s("average_gfxclk_frequency", 1),
    u16s("average_socclk_frequency", 1),
    u16s("average_uclk_frequency", 1),
    u16s("average_fclk_frequency", 1),
    u16s("average_vclk_frequency", 1),
    u16s("average_dclk_frequency", 1),
    u16s("current_gfxclk", 1),
    u16s("current_socclk", 1),
    u16s("current_uclk", 1),
    u16s("current_fclk", 1),
    u16s("current_vclk", 1),
    u16s("current_dclk", 1),
    u16s("current_coreclk", 8),
    u16s("current_l3clk", 2),
    u32s("throttle_status", 1),
    u16s("fan_pwm", 1),
];
const THREE: &[Row] = &[u16s("", 3)];
const APU_AVERAGES: &[Row] = &[
    u16s("average_temperature_gfx", 1),
    u16s("average_temperature_soc", 1),
    u16s("average_temperature_core", 8),
    u16s("average_temperature_l3", 2),
];
const APU_ELECTRIC: &[Row] = &[
    u16s("average_cpu_voltage", 1),
    u16s("average_soc_voltage", 1),
    u16s("average_gfx_voltage", 1),
    u16s("average_cpu_current", 1),
    u16s("average_soc_current", 1),
    u16s("average_gfx_current", 1),
];
const NEW_APU: &[Row] = &[
    u16s("temperature_gfx", 1),
    u16s("temperature_soc", 1),
    u16s("temperature_core", 16),
    u16s("temperature_skin", 1),
    u16s("average_gfx_activity", 1),
    u16s("average_vcn_activity", 1),
    u16s("average_ipu_activity", 8),
    u16s("average_core_c0_activity", 16),
    u16s("average_dram_reads", 1),
    u16s("average_dram_writes", 1),
    u16s("average_ipu_reads", 1),
    u16s("average_ipu_writes", 1),
    u64s("system_clock_counter", 1),
    u32s("average_socket_power", 1),
    u16s("average_ipu_power", 1),
    u32s("average_apu_power", 1),
    u32s("average_gfx_power", 1),
    u32s("average_dgpu_power", 1),
    u32s("average_all_core_power", 1),
    u16s("average_core_power", 16),
    u16s("average_sys_power", 1),
    u16s("stapm_power_limit", 1),
    u16s("current_stapm_power_limit", 1),
    u16s("average_gfxclk_frequency", 1),
    u16s("average_socclk_frequency", 1),
    u16s("average_vpeclk_frequency", 1),
    u16s("average_ipuclk_frequency", 1),
    u16s("average_fclk_frequency", 1),
    u16s("average_vclk_frequency", 1),
    u16s("average_uclk_frequency", 1),
    u16s("average_mpipu_frequency", 1),
    u16s("current_coreclk", 16),
    u16s("current_core_maxfreq", 1),
    u16s("current_gfx_maxfreq", 1),
    u32s("throttle_residency_prochot", 1),
    u32s("throttle_residency_spl", 1),
    u32s("throttle_residency_fppt", 1),
    u32s("throttle_residency_sppt", 1),
    u32s("throttle_residency_thm_core", 1),
    u32s("throttle_residency_thm_gfx", 1),
    u32s("throttle_residency_thm_soc", 1),
    u32s("time_filter_alphavalue", 1),
];

/// A revision: format, content, its fields, its bytes.
type Revision = (u8, u8, &'static [&'static [Row]], usize);

/// All revisions that are known.
#[rustfmt::skip]
const REVISIONS: &[Revision] = &[
    (1, 0, &[CLOCK, TEMPERATURES, ACTIVITY, POWER, ENERGY32, CLOCKS, LINK8], 80),
    (1, 1, &[TEMPERATURES, ACTIVITY, POWER, ENERGY64, CLOCK, CLOCKS, LINK16, PADDING, ACCUMULATED, HBM], 96),
    (1, 2, &[TEMPERATURES, ACTIVITY, POWER, ENERGY64, CLOCK, CLOCKS, LINK16, PADDING, ACCUMULATED, HBM, FIRMWARE], 104),
    (1, 3, &[TEMPERATURES, ACTIVITY, POWER, ENERGY64, CLOCK, CLOCKS, LINK16, PADDING, ACCUMULATED, HBM, FIRMWARE,
        VOLTAGES, INDEPENDENT], 120),
    (1, 4, &[SOCKET, ENERGY64, CLOCK, STATUS, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, XGMI_DATA, FIRMWARE,
        MANY_CLOCKS], 288),
    (1, 5, &[SOCKET, JPEG, ENERGY64, CLOCK, STATUS, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, NAKS, XGMI_DATA, FIRMWARE,
        MANY_CLOCKS], 360),
    // Two forms of 1.6 were in kernels; their sizes tell them apart.
    (1, 6, &[SOCKET, JPEG, ENERGY64, CLOCK, RESIDENCIES, STATUS, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, NAKS,
        XGMI_DATA, FIRMWARE, MANY_CLOCKS], 384),
    (1, 6, &[SHORT_SOCKET, ENERGY64, CLOCK, RESIDENCIES, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, NAKS, XGMI_DATA,
        FIRMWARE, PARTITION_CLOCKS, PARTITIONS_6, RECOVERY], 1664),
    (1, 7, &[SHORT_SOCKET, BANDWIDTH, ENERGY64, CLOCK, RESIDENCIES, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, NAKS,
        XGMI_DATA, XGMI_STATUS, FIRMWARE, PARTITION_CLOCKS, PARTITIONS_7, RECOVERY], 2208),
    (1, 8, &[SHORT_SOCKET, BANDWIDTH, ENERGY64, CLOCK, RESIDENCIES, LOCKS, LINK16, XGMI, ACCUMULATED, PCIE, NAKS,
        XGMI_DATA, XGMI_STATUS, FIRMWARE, PARTITION_CLOCKS, PARTITIONS_8, RECOVERY], 3360),
    (2, 0, &[CLOCK, APU_TEMPERATURES, APU_POWER, PADDING], 120),
    (2, 1, &[APU_TEMPERATURES, CLOCK, APU_POWER, THREE], 120),
    (2, 2, &[APU_TEMPERATURES, CLOCK, APU_POWER, THREE, INDEPENDENT], 128),
    (2, 3, &[APU_TEMPERATURES, CLOCK, APU_POWER, THREE, INDEPENDENT, APU_AVERAGES], 152),
    (2, 4, &[APU_TEMPERATURES, CLOCK, APU_POWER, THREE, INDEPENDENT, APU_AVERAGES, APU_ELECTRIC], 168),
    (3, 0, &[NEW_APU], 264),
];

/// Bits of the throttle status that is the same on all chips, as groups: power, current, temperature, other.
const THROTTLE_GROUPS: [(u32, &str); 4] = [(0, "power"), (16, "current"), (32, "temperature"), (56, "other")];

/// What a table says. Temperatures are in degrees Celsius, power in watts, clocks in MHz.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// `1.3`.
    pub revision: String,
    /// By place: edge, hotspot, mem, gfx, soc, vrgfx, ... of several the highest.
    pub temperature_c: BTreeMap<String, f64>,
    pub power_w: Option<f64>,
    pub gfx_activity_percent: Option<f64>,
    pub gfx_mhz: Option<f64>,
    pub memory_mhz: Option<f64>,
    pub fan_speed: Option<u64>,
    /// Lanes, and tenths of GT/s of a lane.
    pub link: Option<(u64, u64)>,
    /// Why clocks are held back now; `None` where the table does not tell (that is not the same as "they are not").
    pub throttled_by: Option<Vec<String>>,
    /// The status whose bits differ by chip.
    pub throttle_status: Option<u64>,
    /// Residencies in throttling, which only grow.
    pub throttle_residency: BTreeMap<String, u64>,
}

/// Why a table gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricsError {
    #[error("gpu_metrics of {0} bytes is cut off")]
    Short(usize),
    #[error("gpu_metrics revision {0}.{1} is unknown")]
    Unknown(u8, u8),
    #[error("gpu_metrics revision {format}.{content} has {found} bytes, {expected} are known")]
    Size { format: u8, content: u8, found: usize, expected: usize },
}

/// A table's bytes, cut into fields.
struct Table {
    fields: BTreeMap<&'static str, Vec<u64>>,
}

impl Table {
    fn read(bytes: &[u8], parts: &[&[Row]]) -> Self {
        let (mut at, mut fields) = (HEAD_BYTES, BTreeMap::new());
        for (name, len, count) in parts.iter().copied().flatten() {
            at = at.next_multiple_of(*len);
            let element = |n: usize| {
                let from = at + n * len;
                let own = bytes.get(from..from + len).unwrap_or_default();
                let value = own.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
                // All bits set: the card has none.
                (value != u64::MAX >> (64 - 8 * len)).then_some(value)
            };
            let values: Vec<u64> = (0..*count).filter_map(element).collect();
            fields.insert(*name, values);
            at += len * count;
        }
        Self { fields }
    }

    /// The largest of a field's elements.
    fn most(&self, name: &str) -> Option<u64> {
        self.fields.get(name)?.iter().max().copied()
    }

    /// The first of these fields that the card has, and that is not 0 if another one is there.
    fn first(&self, names: &[&str]) -> Option<u64> {
        let all = || names.iter().filter_map(|name| self.most(name));
        all().find(|value| *value != 0).or_else(|| all().next())
    }
}

impl Metrics {
    /// # Errors
    /// A table that is cut off, of an unknown revision or another size.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetricsError> {
        let [low, high, format, content] = *bytes.first_chunk().ok_or(MetricsError::Short(bytes.len()))?;
        let found = usize::from(u16::from_le_bytes([low, high]));
        let same = || REVISIONS.iter().filter(|(f, c, ..)| (*f, *c) == (format, content));
        let known = same().find(|(.., len)| *len == found).or_else(|| same().next_back());
        let (_, _, parts, expected) = known.ok_or(MetricsError::Unknown(format, content))?;
        if found != *expected {
            return Err(MetricsError::Size { format, content, found, expected: *expected });
        }
        if bytes.len() < found {
            return Err(MetricsError::Short(bytes.len()));
        }
        Ok(Self::of(&Table::read(bytes, parts), (format, content)))
    }

    fn of(table: &Table, (format, content): (u8, u8)) -> Self {
        let is_card = format == 1;
        let (degrees, watts) = if is_card { (1.0, 1.0) } else { (0.01, 0.001) };
        let number = |names: &[&str]| table.first(names).map(|n| n as f64);
        let temperature = |(name, values): (&&'static str, &Vec<u64>)| {
            let place = name.strip_prefix("temperature_")?;
            Some((place.to_owned(), *values.iter().max()? as f64 * degrees))
        };
        let residency = |(name, values): (&&'static str, &Vec<u64>)| {
            let is_one = name.starts_with("throttle_residency_") || name.ends_with("_residency_acc");
            let place = name.trim_start_matches("throttle_residency_").trim_end_matches("_residency_acc");
            Some((is_one.then(|| place.to_owned())?, *values.first()?))
        };
        Self {
            revision: format!("{format}.{content}"),
            temperature_c: table.fields.iter().filter_map(temperature).collect(),
            power_w: number(&["average_socket_power", "curr_socket_power"]).map(|p| p * watts),
            gfx_activity_percent: number(&["average_gfx_activity"])
                .map(|p| if is_card || (format, content) == (3, 0) { p } else { p * 0.01 }),
            gfx_mhz: number(&["current_gfxclk", "average_gfxclk_frequency"]),
            memory_mhz: number(&["current_uclk", "average_uclk_frequency"]),
            fan_speed: table.most("current_fan_speed"),
            link: table.most("pcie_link_width").zip(table.most("pcie_link_speed")),
            throttled_by: table.most("indep_throttle_status").map(groups),
            throttle_status: table.most("throttle_status"),
            throttle_residency: table.fields.iter().filter_map(residency).collect(),
        }
    }
}

/// The groups of set bits.
fn groups(status: u64) -> Vec<String> {
    let ends = THROTTLE_GROUPS.iter().skip(1).map(|(first, _)| *first).chain([64]);
    let set = |((first, name), end): (&(u32, &str), u32)| {
        let mask = (u64::MAX >> (64 - (end - first))) << first;
        (status & mask != 0).then(|| (*name).to_owned())
    };
    THROTTLE_GROUPS.iter().zip(ends).filter_map(set).collect()
}

/// A table of a revision with these values, all other fields absent; for software GPUs and tests.
#[must_use]
pub fn table(format: u8, content: u8, values: &[(&str, u64)]) -> Option<Vec<u8>> {
    let (_, _, parts, len) = REVISIONS.iter().rfind(|(f, c, ..)| (*f, *c) == (format, content))?;
    let mut bytes = vec![0xff; *len];
    let [low, high] = u16::try_from(*len).ok()?.to_le_bytes();
    bytes[..HEAD_BYTES].copy_from_slice(&[low, high, format, content]);
    let mut at = HEAD_BYTES;
    for (name, size, count) in parts.iter().copied().flatten() {
        at = at.next_multiple_of(*size);
        if let Some((_, value)) = values.iter().find(|(own, _)| own == name) {
            (0..*count)
                .for_each(|n| bytes[at + n * size..at + (n + 1) * size].copy_from_slice(&value.to_le_bytes()[..*size]));
        }
        at += size * count;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of all fields at C's alignment, to a multiple of the largest field.
    fn len_of(parts: &[&[Row]]) -> usize {
        let (mut at, mut most) = (HEAD_BYTES, 2);
        for (_, size, count) in parts.iter().copied().flatten() {
            at = at.next_multiple_of(*size) + size * count;
            most = most.max(*size);
        }
        at.next_multiple_of(most)
    }

    #[test]
    fn sizes_are_those_that_a_c_compiler_gives_the_structs() {
        for (format, content, parts, len) in REVISIONS {
            assert_eq!(len_of(parts), *len, "{format}.{content}");
        }
    }

    #[test]
    fn every_revision_is_read_in_its_units() {
        let values = [
            ("temperature_hotspot", 71),
            ("temperature_gfx", 7100),
            ("average_socket_power", 250),
            ("curr_socket_power", 250),
            ("current_gfxclk", 2100),
            ("average_gfxclk_frequency", 2000),
            ("indep_throttle_status", 1 << 33 | 1),
            ("pcie_link_width", 16),
            ("pcie_link_speed", 160),
            ("ppt_residency_acc", 9),
            ("throttle_residency_spl", 9),
        ];
        for (format, content, ..) in REVISIONS {
            let m = Metrics::parse(&table(*format, *content, &values).unwrap()).unwrap();
            assert_eq!(m.revision, format!("{format}.{content}"));
            let hottest = if *format == 1 { "hotspot" } else { "gfx" };
            assert_eq!(m.temperature_c.get(hottest), Some(&71.0), "{m:?}");
            assert_eq!(m.power_w, Some(if *format == 1 { 250.0 } else { 0.25 }), "{m:?}");
            assert_eq!(m.gfx_mhz, Some(if *format == 3 { 2000.0 } else { 2100.0 }), "{m:?}");
            let tells = matches!((format, content), (1, 3) | (2, 2..));
            assert_eq!(m.throttled_by, tells.then(|| vec!["power".into(), "temperature".into()]), "{m:?}");
            assert_eq!(m.link, (*format == 1).then_some((16, 160)), "{m:?}");
            let residencies = usize::from(matches!((format, content), (1, 6..) | (3, 0)));
            assert_eq!(m.throttle_residency.len(), residencies, "{m:?}");
        }
    }

    #[test]
    fn damaged_tables_are_refused_and_absent_fields_are_none() {
        let good = table(1, 3, &[]).unwrap();
        let absent = Metrics::parse(&good).unwrap();
        assert_eq!((absent.power_w, absent.temperature_c.len(), absent.throttled_by), (None, 0, None));
        assert_eq!(Metrics::parse(&good[..3]), Err(MetricsError::Short(3)));
        assert_eq!(Metrics::parse(&good[..60]), Err(MetricsError::Short(60)));
        assert_eq!(Metrics::parse(&[96, 0, 1, 9]), Err(MetricsError::Unknown(1, 9)));
        let mut other = good;
        other[0] = 96;
        assert_eq!(Metrics::parse(&other), Err(MetricsError::Size { format: 1, content: 3, found: 96, expected: 120 }));
        for len in 0..200 {
            let _no_panic = Metrics::parse(&vec![0x55; len]);
        }
    }

    #[test]
    fn throttle_bits_are_grouped() {
        assert_eq!(groups(0), [""; 0]);
        assert_eq!(groups(1 << 16 | 1 << 47 | 1 << 63), ["current", "temperature", "other"]);
    }
}
