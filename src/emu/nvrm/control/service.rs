//! Commands to a subdevice about memory, bus, time, clocks, temperature and events.
//!
//! Source: docs/nv.md 2.5; `ctrl2080thermal.h` for the thermal system. No public command returns a card's power.

use super::super::status;
use super::{Ask, Row, answer_list, row};
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::monotonic_ns;
use std::sync::atomic::Ordering;

pub(crate) const ROWS: &[Row] = &[
    row(&nvrm::EVENT_SET_NOTIFICATION, |ask| {
        let params: nvrm::SetNotification = ask.read();
        let (client, subdevice, nv) = (ask.client.handle, ask.handle, ask.nv);
        if !nv.events.has_listener(client, subdevice) {
            return Err(status::INVALID_STATE);
        }
        let is_number = params.event < nv.config.release.notifiers() && params.event != nvrm::NV2080_NOTIFIERS_TIMER;
        if !is_number || params.action > nvrm::NOTIFICATION_REPEAT {
            return Err(status::INVALID_ARGUMENT);
        }
        nv.events.set_action(client, subdevice, params.event, params.action)
    }),
    row(&nvrm::TIMER_GET_TIME, |ask| {
        let time_nsec = ask.nv.clock.ns();
        ask.store(&nvrm::TimerTime { time_nsec });
        Ok(())
    }),
    row(&nvrm::TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO, |ask| {
        let mut params: nvrm::TimeCorrelation = ask.read();
        if usize::from(params.sample_count) > params.samples.len() {
            return Err(status::INVALID_ARGUMENT);
        }
        for sample in &mut params.samples[..usize::from(params.sample_count)] {
            (sample.cpu_time, sample.gpu_time) = (monotonic_ns(), ask.nv.clock.ns());
        }
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::FB_GET_INFO_V2, |ask| {
        let params: nvrm::FbInfo = ask.read();
        let gpu = ask.gpu()?;
        let (vram, bar1) = (ask.nv.config.vram_bytes, ask.nv.config.bar1_bytes);
        let counted = !gpu.has(super::super::defect::Defect::VramUncounted);
        let vram_used = if counted { gpu.vram_used.load(Ordering::Relaxed) } else { 0 };
        let bar1_used = gpu.bar1_used.load(Ordering::Relaxed);
        let facts = gpu.facts();
        let kib = |bytes: u64| u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        answer_list(ask.params, 4, params.fb_info_list_size, |index| {
            Some(match index {
                7..=9 => kib(vram),
                0x05 => kib(bar1),
                0x0b => facts.memory_bus_bits,
                0x16 => kib(vram - vram_used),
                0x1b => facts.l2_bytes,
                0x1d => kib(bar1 - bar1_used),
                _ => 0,
            })
        })
    }),
    row(&nvrm::FB_GET_STATIC_BAR1_INFO, |ask| {
        ask.store(&nvrm::StaticBar1Info::default());
        Ok(())
    }),
    row(&nvrm::BUS_GET_PCI_INFO, |ask| {
        let id = u32::from(ask.nv.config.chip.facts().device_id) << 16 | 0x10de;
        let params = nvrm::BusPciInfo {
            pci_device_id: id,
            pci_sub_system_id: 0x16c1_10de,
            pci_revision_id: 0xa1,
            ..Default::default()
        };
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::BUS_GET_PCI_BAR_INFO, |ask| {
        let mut params = nvrm::PciBarInfo { pci_bar_count: 2, ..Default::default() };
        for (bar, bytes) in params.pci_bar_info.iter_mut().zip([16 << 20, ask.nv.config.bar1_bytes]) {
            (bar.bar_size, bar.bar_size_bytes) = ((bytes >> 20) as u32, bytes);
        }
        ask.store(&params);
        Ok(())
    }),
    row(&nvrm::BUS_GET_INFO_V2, |ask| {
        let params: nvrm::BusInfo = ask.read();
        let (facts, index) = (ask.nv.config.chip.facts(), ask.gpu()?.index);
        answer_list(ask.params, 4, params.bus_info_list_size, |asked| Some(bus_info(facts.pcie_gen, index, asked)))
    }),
    row(&nvrm::PERF_BOOST, |_| Ok(())),
    row(&nvrm::PERF_GET_CURRENT_PSTATE, |ask| {
        // P0.
        ask.store(&nvrm::CurrentPstate { curr_pstate: 1 });
        Ok(())
    }),
    row(&nvrm::PERF_GET_LEVEL_INFO_V2, level_info),
    row(&nvrm::THERMAL_SYSTEM_EXECUTE_V2, thermal),
];

/// BUS_INFO by index: the link as in the PCIe capability's registers.
fn bus_info(generation: u32, gpu: usize, index: u32) -> u32 {
    const WIDTH: u32 = 16;
    match index {
        // Type: PCI Express.
        0x00 => 3,
        // Link capabilities: speed 3:0, width 9:4.
        0x03 => generation | WIDTH << 4,
        // Control and status: speed 19:16, width 25:20.
        0x07 => generation << 16 | WIDTH << 20,
        0x0f => super::super::sysfs::bus(gpu).into(),
        // Generation info: capability 3:0, current level 7:4, both from 0.
        0x2d => (generation - 1) | (generation - 1) << 4,
        _ => 0,
    }
}

fn level_info(ask: &mut Ask<'_>) -> Result<(), Status> {
    /// NV2080_CTRL_CLK_DOMAIN: graphics, memory.
    const GRAPHICS: u32 = 1 << 0;
    const MEMORY: u32 = 1 << 4;
    let mut params: nvrm::LevelInfo = ask.read();
    let count = params.perf_get_clk_info_list_size as usize;
    let list = params.perf_get_clk_info_list.get_mut(..count).ok_or(status::INVALID_ARGUMENT)?;
    let [graphics, memory] = ask.nv.config.chip.facts().clocks_khz;
    for clock in list {
        let most = match clock.domain {
            GRAPHICS => graphics,
            MEMORY => memory,
            _ => return Err(status::INVALID_ARGUMENT),
        };
        (clock.current_freq, clock.default_freq, clock.min_freq, clock.max_freq) = (most, most, most / 10, most);
    }
    ask.store(&params);
    Ok(())
}

/// The thermal system's instructions: one sensor, of the GPU, in degrees.
fn thermal(ask: &mut Ask<'_>) -> Result<(), Status> {
    const DEGREES: u32 = 42;
    const IGNORE_FAIL: u32 = 1;
    let mut params: nvrm::ThermalSystemExecute = ask.read();
    let count = params.instruction_list_size as usize;
    let is_version_1 = (params.client_api_version, params.client_api_revision) == (1, 0);
    if !is_version_1 || params.client_instruction_size_of as usize != size_of::<nvrm::ThermalInstruction>() {
        return Err(status::INVALID_PARAM_STRUCT);
    }
    let list = params.instruction_list.get_mut(..count).ok_or(status::INVALID_ARGUMENT)?;
    params.successful_instructions = 0;
    for one in list {
        let first = one.operands[0] == 0;
        let answers: &[u32] = match one.opcode {
            nvrm::THERMAL_TARGETS_AVAILABLE | nvrm::THERMAL_SENSORS_AVAILABLE => &[1],
            nvrm::THERMAL_TARGET_TYPE if first => &[0, nvrm::THERMAL_TARGET_GPU],
            nvrm::THERMAL_SENSOR_TARGET if first => &[0, 0],
            nvrm::THERMAL_SENSOR_RANGE if first => &[0, 0, 120],
            nvrm::THERMAL_SENSOR_READING if first => &[0, DEGREES],
            _ => &[],
        };
        (one.executed, one.result) = (1, if answers.is_empty() { status::INVALID_ARGUMENT.0 } else { 0 });
        one.operands[..answers.len()].copy_from_slice(answers);
        params.successful_instructions += u32::from(!answers.is_empty());
        if answers.is_empty() && params.execute_flags & IGNORE_FAIL == 0 {
            break;
        }
    }
    ask.store(&params);
    Ok(())
}
