//! Real machine code through ring, QMD and SMs: what ptxas makes of a kernel that stores a sum a thread.

use super::client::{Buffer, Channel, Device, HUGE, PAGE, release};
use super::grids::launch;
use doorbell::emu::nvrm::{Chip, ReportKind};
use doorbell::hcq::packet::nv::qmd::{Launch, Version};
use doorbell_ioctl::abi::nvrm as rm;

/// `out[i] = i + v` with `i` of the whole grid: `.param .u64 out, .param .u32 v`, compiled by ptxas 13.5 for sm_90.
const STORE: [u128; 13] = [
    0x000f_e200_0000_0800_0000_0a00_ff01_7b82, // LDC R1, c[0x0][0x28]
    0x000e_2e00_0000_2100_0000_0000_0005_7919, // S2R R5, SR_TID.X
    0x000e_3000_0000_2500_0000_0000_0004_79c3, // S2UR UR4, SR_CTAID.X
    0x000e_3000_0000_0800_0000_0000_ff00_7b82, // LDC R0, c[0x0][RZ]
    0x000e_6200_0000_0a00_0000_8400_ff02_7b82, // LDC.64 R2, c[0x0][0x210]
    0x001f_e200_0f8e_0205_0000_0004_0005_7c24, // IMAD R5, R0, UR4, R5
    0x000f_c600_0000_0800_0000_8600_0004_7ab9, // ULDC UR4, c[0x0][0x218]
    0x042f_e200_078e_0002_0000_0004_0502_7825, // IMAD.WIDE.U32 R2, R5.reuse, 0x4, R2
    0x000f_e200_0fff_e0ff_0000_0004_0505_7c10, // IADD3 R5, R5, UR4, RZ
    0x000f_c800_0000_0a00_0000_8200_0004_7ab9, // ULDC.64 UR4, c[0x0][0x208]
    0x000f_e200_0c10_1904_0000_0005_0200_7986, // STG.E desc[UR4][R2.64], R5
    0x000f_ea00_0380_0000_0000_0000_0000_794d, // EXIT
    0x000f_c000_0383_ffff_ffff_fffc_00fc_7947, // BRA to itself
];
const BANK: u64 = 0x1000;
const SIGNAL: u64 = 0x2000;
const QMD: u64 = 0x3000;
const OUT: u64 = 0x8000;

/// Code, bank 0 with `out` and `v`, QMD: and its launch followed by a release.
fn start(channel: &mut Channel, memory: &Buffer, out: u64, v: u32, code: &[u128]) {
    for (n, word) in (0u64..).zip(code) {
        memory.view.copy_from_slice(n * 16, &word.to_le_bytes()).unwrap();
    }
    for (at, value) in [(0, 64), (4, 1), (8, 1), (0xc, 4), (0x10, 2), (0x14, 1), (0x218, v)] {
        memory.view.write_u32(BANK + at, value).unwrap();
    }
    memory.view.write_u64(BANK + 0x210, out).unwrap();
    let qmd = Launch { grid: [4, 1, 1], ..launch(Chip::Sm90, memory) }.emit(Version::V4_0).unwrap();
    for (n, word) in (0u64..).zip(qmd.words()) {
        memory.view.write_u32(QMD + n * 4, *word).unwrap();
    }
    let at = ((memory.va + QMD) >> 8) as u32;
    channel.push(&[0x2001_20ad, at, 0x2001_20b0, 9]);
    channel.push(&release(memory.va + SIGNAL, 1));
    channel.ring();
}

#[test]
fn a_kernel_of_ptxas_stores_what_it_should() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    let memory = device.vram(HUGE);
    start(&mut channel, &memory, memory.va + OUT, 1000, &STORE);
    memory.wait_u64(SIGNAL, 1);
    let got: Vec<u32> = (0..257).map(|n| memory.view.read_u32(OUT + 4 * n).unwrap()).collect();
    let want: Vec<u32> = (0..256).map(|n| n + 1000).chain([0]).collect();
    assert_eq!(got, want);
    assert_eq!(device.reports(), []);
}

#[test]
fn a_stray_store_is_an_mmu_fault_with_its_instruction() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    let memory = device.vram(HUGE);
    start(&mut channel, &memory, 0x99_0000_0000, 0, &STORE);
    assert_eq!(channel.wait_error(), 31);
    assert_eq!(memory.view.read_u64(SIGNAL), Ok(0));
    let info = device.client.control(channel.handle, &rm::CHANNEL_GET_MMU_FAULT_INFO, Default::default()).unwrap();
    // Nothing is mapped near: its directory entry is absent.
    assert_eq!((info.addr_hi, info.fault_type), (0x99, 0));
    let report = device.reports().pop().unwrap();
    assert_eq!(report.kind, ReportKind::Xid(31));
    // Both CTAs fault; which one is first is the threads' affair.
    assert!(report.text.contains("STG") && report.text.contains(",0,0 warp 0"), "{report}");
}

#[test]
fn a_misaligned_store_is_an_exception_that_the_debugger_shows() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    let memory = device.vram(HUGE);
    start(&mut channel, &memory, memory.va + OUT + 2, 0, &STORE);
    assert_eq!(channel.wait_error(), 13);
    let client = &device.client;
    let object = client.alloc(channel.handle, rm::HOPPER_COMPUTE_A).unwrap();
    let mut params = rm::DebuggerAlloc { h_app_client: client.root, h_class3d_object: object, ..Default::default() };
    let debugger = client.alloc_with(device.device, rm::GT200_DEBUGGER, &mut params).unwrap();
    let mut read = rm::ReadAllSmErrorStates::default();
    (read.h_target_channel, read.num_s_ms_to_read) = (channel.handle, 100);
    let states = client.control(debugger, &rm::DEBUG_READ_ALL_SM_ERROR_STATES, read).unwrap();
    let hit = states.sm_error_state_array.iter().find(|sm| sm.hww_warp_esr != 0).unwrap();
    assert_eq!((hit.hww_warp_esr, hit.hww_warp_esr_pc64), (0xf, memory.va + 0xa0));
}

#[test]
fn a_kernel_that_never_ends_is_taken_away_with_its_channel() {
    let device = Device::new(Chip::Sm90);
    let mut channel = device.compute();
    let memory = device.vram(HUGE);
    start(&mut channel, &memory, 0, 0, &STORE[12..]);
    super::client::wait("the grid", || {
        let (h_client, h_device, h_channel) = (device.client.root, device.device, channel.handle);
        let mut idle = rm::RmIdleChannels { h_client, h_device, h_channel, flags: 1 << 4, ..Default::default() };
        device.client.call(device.client.control, &rm::IDLE_CHANNELS, &mut idle).unwrap();
        idle.status != 0
    });
    device.client.free(channel.group).unwrap();
    assert_eq!(device.client.machine.left_over()[1], 0);
    assert_eq!(memory.view.read_u64(SIGNAL), Ok(0));
}

#[test]
fn code_of_other_chips_is_refused_with_its_name() {
    let device = Device::new(Chip::Sm75);
    let mut channel = device.compute();
    let memory = device.vram(16 * PAGE);
    super::grids::start(&device, &mut channel, &memory);
    assert_eq!(channel.wait_error(), 13);
    assert!(device.reports()[0].text.contains("machine code of sm_75"), "{:?}", device.reports());
}
