//! The current state of a GPU, as reported by RM's controls: memory, performance state, PCIe link, errors.
//!
//! Layer: queries through `gpu`; the command line prints it. Source: docs/nv.md 2.5; `ctrl2080bus.h`, `ctrl2080fb.h`,
//! `ctrl2080gpu.h`, `ctrl2080thermal.h`, `ctrl2080perf.h` of release 580; the link's fields are those of PCIe's Link
//! Status register. A query that the driver refuses gives `None`.
//! Few drivers report clocks outside of virtual machines (release 595 returns NOT_SUPPORTED there). Left out:
//! power, whose controls are not public.

use super::gpu::Gpu;
use doorbell_hcq::bits::{Field, field};
use doorbell_ioctl::abi::nvrm::{self, InfoEntry};
use serde::Serialize;

const FB_RAM_KIB: u32 = 0x07;
const FB_HEAP_FREE_KIB: u32 = 0x16;
const FB_BAR1_KIB: u32 = 0x05;
const FB_BAR1_FREE_KIB: u32 = 0x1d;
/// The size of the L2 cache; in bytes, unlike the others.
const FB_L2_BYTES: u32 = 0x1b;
const BUS_LINK_STATUS: u32 = 0x07;
const LINK_SPEED: Field = field(0, 16, 19);
const LINK_WIDTH: Field = field(0, 20, 25);
/// NV2080_CTRL_CLK_DOMAIN.
const CLOCK_GRAPHICS: u32 = 1 << 0;
const CLOCK_MEMORY: u32 = 1 << 4;
/// Sensors that are queried at most.
const MAX_SENSORS: u32 = 8;
/// Size of a unit's record in the ECC status, and the offsets of its counts of double and single bit errors.
const ECC_UNIT_BYTES: usize = 40;
const ECC_DOUBLE: usize = 8;
const ECC_SINGLE: usize = 24;

/// The current state of a GPU; fields that the driver does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Telemetry {
    pub name: String,
    pub vram_bytes: Option<u64>,
    pub vram_free_bytes: Option<u64>,
    pub bar1_bytes: Option<u64>,
    pub bar1_free_bytes: Option<u64>,
    pub l2_bytes: Option<u64>,
    /// Performance state; 0 is the fastest.
    pub performance_state: Option<u32>,
    /// Current clocks in kHz: graphics, memory.
    pub clocks_khz: Option<[u32; 2]>,
    /// GPU temperature in degrees Celsius, from the hottest sensor.
    pub temperature_c: Option<i32>,
    /// PCIe generation and lanes.
    pub link: Option<(u32, u32)>,
    /// Single and double bit ECC errors since the last reset.
    pub ecc_errors: Option<(u64, u64)>,
    /// Errors that stopped channels, as counted by the driver.
    pub channel_errors: Option<u32>,
    /// Whether the driver reports that the GPU needs a reset.
    pub needs_reset: Option<bool>,
}

impl Telemetry {
    /// Queries the driver.
    #[must_use]
    pub fn read(gpu: &Gpu) -> Self {
        let kib = |n: Option<u32>| n.map(|n| u64::from(n) << 10);
        let fb = |index| fb_info(gpu, index);
        Self {
            name: gpu.properties.name.clone(),
            vram_bytes: kib(fb(FB_RAM_KIB)),
            vram_free_bytes: kib(fb(FB_HEAP_FREE_KIB)),
            bar1_bytes: kib(fb(FB_BAR1_KIB)),
            bar1_free_bytes: kib(fb(FB_BAR1_FREE_KIB)),
            l2_bytes: fb(FB_L2_BYTES).map(u64::from),
            performance_state: performance_state(gpu),
            clocks_khz: clocks(gpu),
            temperature_c: temperature(gpu),
            link: link(gpu),
            ecc_errors: ecc_errors(gpu),
            channel_errors: channel_errors(gpu),
            needs_reset: needs_reset(gpu),
        }
    }
}

impl std::fmt::Display for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        f.write_str(&self.name)?;
        if let (Some(free), Some(all)) = (self.vram_free_bytes, self.vram_bytes) {
            write!(f, ", {} of {} MiB free", mib(free), mib(all))?;
        }
        if let Some([graphics, memory]) = self.clocks_khz {
            write!(f, ", {} and {} MHz", graphics / 1000, memory / 1000)?;
        }
        if let Some(state) = self.performance_state {
            write!(f, ", P{state}")?;
        }
        if let Some(degrees) = self.temperature_c {
            write!(f, ", {degrees} C")?;
        }
        if let Some((generation, lanes)) = self.link {
            write!(f, ", PCIe {generation} x{lanes}")?;
        }
        if let Some((single, double)) = self.ecc_errors {
            write!(f, ", ECC {single} corrected {double} uncorrected")?;
        }
        if let Some(errors) = self.channel_errors {
            write!(f, ", {errors} channel errors")?;
        }
        if self.needs_reset == Some(true) {
            f.write_str(", needs a reset")?;
        }
        Ok(())
    }
}

fn fb_info(gpu: &Gpu, index: u32) -> Option<u32> {
    let mut args = nvrm::FbInfo { fb_info_list_size: 1, ..Default::default() };
    args.fb_info_list[0] = InfoEntry { index, data: 0 };
    gpu.driver.control(gpu.subdevice, &nvrm::FB_GET_INFO_V2, &mut args).ok()?;
    Some(args.fb_info_list[0].data)
}

fn performance_state(gpu: &Gpu) -> Option<u32> {
    let mut args = nvrm::CurrentPstate::default();
    gpu.driver.control(gpu.subdevice, &nvrm::PERF_GET_CURRENT_PSTATE, &mut args).ok()?;
    (args.curr_pstate != 0).then(|| args.curr_pstate.trailing_zeros())
}

fn link(gpu: &Gpu) -> Option<(u32, u32)> {
    let mut args = nvrm::BusInfo { bus_info_list_size: 1, ..Default::default() };
    args.bus_info_list[0] = InfoEntry { index: BUS_LINK_STATUS, data: 0 };
    gpu.driver.control(gpu.subdevice, &nvrm::BUS_GET_INFO_V2, &mut args).ok()?;
    let word = [args.bus_info_list[0].data];
    let (speed, width) = (LINK_SPEED.get(&word), LINK_WIDTH.get(&word));
    (speed != 0 && width != 0).then_some((speed, width))
}

fn clocks(gpu: &Gpu) -> Option<[u32; 2]> {
    let mut args = nvrm::LevelInfo { perf_get_clk_info_list_size: 2, ..Default::default() };
    (args.perf_get_clk_info_list[0].domain, args.perf_get_clk_info_list[1].domain) = (CLOCK_GRAPHICS, CLOCK_MEMORY);
    gpu.driver.control(gpu.subdevice, &nvrm::PERF_GET_LEVEL_INFO_V2, &mut args).ok()?;
    let [graphics, memory, ..] = args.perf_get_clk_info_list;
    (graphics.current_freq != 0).then_some([graphics.current_freq, memory.current_freq])
}

/// One query to the thermal system.
fn thermal(gpu: &Gpu, opcode: u32, index: u32) -> Option<[u32; 8]> {
    let mut args = nvrm::ThermalSystemExecute {
        client_api_version: 1,
        client_instruction_size_of: size_of::<nvrm::ThermalInstruction>() as u32,
        instruction_list_size: 1,
        ..Default::default()
    };
    (args.instruction_list[0].opcode, args.instruction_list[0].operands[0]) = (opcode, index);
    gpu.driver.control(gpu.subdevice, &nvrm::THERMAL_SYSTEM_EXECUTE_V2, &mut args).ok()?;
    let answer = args.instruction_list[0];
    (answer.executed != 0 && answer.result == 0).then_some(answer.operands)
}

fn temperature(gpu: &Gpu) -> Option<i32> {
    let sensors = thermal(gpu, nvrm::THERMAL_SENSORS_AVAILABLE, 0)?[0].min(MAX_SENSORS);
    let is_gpus = |sensor: u32| {
        let target = thermal(gpu, nvrm::THERMAL_SENSOR_TARGET, sensor)?[1];
        Some(thermal(gpu, nvrm::THERMAL_TARGET_TYPE, target)?[1] == nvrm::THERMAL_TARGET_GPU)
    };
    let own = (0..sensors).filter(|sensor| is_gpus(*sensor).unwrap_or(false));
    own.filter_map(|sensor| Some(thermal(gpu, nvrm::THERMAL_SENSOR_READING, sensor)?[1].cast_signed())).max()
}

fn ecc_errors(gpu: &Gpu) -> Option<(u64, u64)> {
    let count = |units: &[u8]| {
        let word = |unit: &[u8], at: usize| unit[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let units = || units.chunks_exact(ECC_UNIT_BYTES);
        (units().map(|u| word(u, ECC_SINGLE)).sum(), units().map(|u| word(u, ECC_DOUBLE)).sum())
    };
    let new = || {
        let mut args = nvrm::EccStatusV595::default();
        gpu.driver.control(gpu.subdevice, &nvrm::GPU_QUERY_ECC_STATUS_V595, &mut args)?;
        Ok(count(&args.units))
    };
    let old = || {
        let mut args = nvrm::EccStatus::default();
        gpu.driver.control(gpu.subdevice, &nvrm::GPU_QUERY_ECC_STATUS, &mut args)?;
        Ok(count(&args.units))
    };
    gpu.driver.by_form(595, new, old).ok()
}

fn channel_errors(gpu: &Gpu) -> Option<u32> {
    let mut args = nvrm::RcErrorCount::default();
    gpu.driver.control(gpu.subdevice, &nvrm::RC_GET_ERROR_COUNT, &mut args).ok()?;
    Some(args.error_count)
}

fn needs_reset(gpu: &Gpu) -> Option<bool> {
    let mut args = nvrm::ResetStatus::default();
    gpu.driver.control(gpu.subdevice, &nvrm::GPU_GET_RESET_STATUS, &mut args).ok()?;
    Some(args.b_reset_required != 0)
}
