//! Machine code through the whole machine: code objects' bytes from llvm-mc 19, launched by PM4 and AQL, on every chip.

use crate::client::*;
use doorbell::emu::kfd::{Chip, Config, SoftKfd};

/// `out[64 * workgroup + lane] = 64 * workgroup + lane + 1`, kernarg in s[0:1]; llvm-mc 19 of the text next to each
/// line.
#[rustfmt::skip]
pub const STORE_GFX1100: &[u8] = &[
    0x00, 0x01, 0x04, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b64 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0x46, 0xd6, 0x02, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, s2, 6, v0
    0x81, 0x00, 0x02, 0x4a,                         // v_add_nc_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x07, 0xfc, 0x89, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x00, 0x6a, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];
#[rustfmt::skip]
const STORE_GFX942: &[u8] = &[
    0x00, 0x01, 0x06, 0xc0, 0x00, 0x00, 0x00, 0x00, // s_load_dwordx2 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x26, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0xfd, 0xd1, 0x02, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, s2, 6, v0
    0x81, 0x00, 0x02, 0x68,                         // v_add_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x24,                         // v_lshlrev_b32 v0, 2, v0
    0x7f, 0xc0, 0x8c, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x80, 0x70, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_dword v0, v1, s[4:5]
    0x00, 0x00, 0x81, 0xbf,                         // s_endpgm
];
#[rustfmt::skip]
const STORE_GFX1201: &[u8] = &[
    0x00, 0x21, 0x00, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b64 s[4:5], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x00, 0x00, 0x46, 0xd6, 0x75, 0x0c, 0x01, 0x04, // v_lshl_add_u32 v0, ttmp9, 6, v0
    0x81, 0x00, 0x02, 0x4a,                         // v_add_nc_u32 v1, 1, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x00, 0x00, 0xc7, 0xbf,                         // s_wait_kmcnt 0x0
    0x04, 0x80, 0x06, 0xee, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];
/// s_branch to itself, on gfx11.
const ENDLESS_GFX1100: &[u8] = &[0xff, 0xff, 0xa0, 0xbf];

/// RSRC1 of docs/amd.md 4.3 for the smallest allocation, and the register of RSRC3.
pub fn rsrc(chip: Chip) -> (u32, u32) {
    match chip {
        Chip::Gfx1100 => (0x60bf_0000, 0x228),
        Chip::Gfx942 => (0x00af_0080, 0x22d),
        Chip::Gfx1201 => (0x600f_0000, 0x228),
    }
}

pub fn code(chip: Chip) -> &'static [u8] {
    match chip {
        Chip::Gfx1100 => STORE_GFX1100,
        Chip::Gfx942 => STORE_GFX942,
        Chip::Gfx1201 => STORE_GFX1201,
    }
}

/// Dispatch of workgroups of 64 in the steps of docs/amd.md 2.5, as far as registers are not zero anyway.
pub fn dispatch(chip: Chip, entry: u64, kernarg: u64, groups: u32) -> Vec<u32> {
    let (rsrc1, rsrc3) = rsrc(chip);
    let initiator = if chip == Chip::Gfx942 { 0x5 } else { 0x8005 };
    [
        &[0xc002_7600, 0x20c, lo(entry >> 8), hi(entry >> 8)][..],
        &[0xc002_7600, 0x212, rsrc1, 0x84],
        &[0xc001_7600, rsrc3, 0],
        &[0xc002_7600, 0x240, lo(kernarg), hi(kernarg)],
        &[0xc003_7600, 0x207, 64, 1, 1],
        &[0xc003_1500, groups, 1, 1, initiator],
        &[0xc000_4600, 0x407],
    ]
    .concat()
}

/// Code that the card may run, placed 0x100 into a buffer and padded with what follows it.
pub fn upload(client: &Client, bytes: &[u8]) -> Buffer {
    let buffer = client.buffer(0x1000, HOST);
    buffer.view.copy_from_slice(0x100, bytes).unwrap();
    buffer
}

const ALL_CHIPS: [Chip; 3] = [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201];

#[test]
fn a_kernel_stores_its_indices_on_every_chip() {
    for chip in ALL_CHIPS {
        let client = Client::new(chip);
        let mut queue = client.queue(PM4);
        let (memory, program) = (client.buffer(0x2000, HOST), upload(&client, code(chip)));
        memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
        let words = dispatch(chip, program.va + 0x100, memory.va + 0x100, 4);
        queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
        until("an end", || memory.view.read_u32(0) == Ok(1) || !client.reports().is_empty());
        assert_eq!(client.reports(), Vec::<String>::new());
        for index in 0..256 {
            assert_eq!(memory.view.read_u32(0x1000 + 4 * index), Ok(index as u32 + 1));
        }
        assert_eq!(memory.view.read_u32(0x1000 + 4 * 256), Ok(0));
    }
}

#[test]
fn a_partial_workgroup_of_an_aql_dispatch_stops_at_the_grid() {
    for chip in ALL_CHIPS {
        let client = Client::new(chip);
        let mut queue = client.queue(AQL);
        let (memory, program) = (client.buffer(0x2000, HOST), upload(&client, code(chip)));
        memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
        // The descriptor precedes the code: entry 0x100 further on.
        program.view.write_u64(16, 0x100).unwrap();
        program.view.write_u32(48, rsrc(chip).0).unwrap();
        program.view.write_u32(52, 0x84).unwrap();
        program.view.write_u16(56, if chip == Chip::Gfx942 { 8 } else { 0x408 }).unwrap();
        memory.view.write_u64(0x200, 1).unwrap();
        memory.view.write_u64(0x208, 1).unwrap();
        let packet = [
            0x0001_1502,
            64 | 1 << 16,
            1,
            100,
            1,
            1,
            0,
            0,
            lo(program.va),
            hi(program.va),
            lo(memory.va + 0x100),
            hi(memory.va),
            0,
            0,
            lo(memory.va + 0x200),
            hi(memory.va),
        ];
        queue.submit_aql(packet);
        until("an end", || memory.view.read_u64(0x208) == Ok(0) || !client.reports().is_empty());
        assert_eq!(client.reports(), Vec::<String>::new());
        assert_eq!(memory.view.read_u32(0x1000 + 4 * 99), Ok(100));
        assert_eq!(memory.view.read_u32(0x1000 + 4 * 100), Ok(0));
    }
}

#[test]
fn a_store_of_a_wave_to_nowhere_is_a_memory_event_with_the_instruction() {
    let client = Client::new(Chip::Gfx1100);
    let event = client.event(8, None);
    let mut queue = client.queue(PM4);
    let (memory, program) = (client.buffer(0x1000, HOST), upload(&client, STORE_GFX1100));
    memory.view.write_u64(0x100, 0x7654_3000).unwrap();
    queue.submit(&dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1));
    let (result, data) = client.wait(&[event], 20_000);
    assert_eq!((result, data[0].get32(0), data[0].get64(16)), (0, 1, 0x7654_3000));
    let report = client.reports().remove(0);
    let place = format!("Write of 0x76543000: no mapping ({:#x} `global_store_b32", program.va + 0x100 + 36);
    assert!(report.contains(&place), "{report}");
}

#[test]
fn zeros_are_an_illegal_instruction_with_its_address() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let (memory, program) = (client.buffer(0x1000, HOST), upload(&client, &[]));
    queue.submit(&dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1));
    until("a report", || !client.reports().is_empty());
    let report = client.reports().remove(0);
    assert!(
        report.contains("illegal instruction") && report.contains(&format!("{:#x}", program.va + 0x100)),
        "{report}"
    );
}

#[test]
fn an_endless_wave_ends_with_its_queue_and_others_run_meanwhile() {
    let client = Client::new(Chip::Gfx1100);
    let (mut endless, mut good) = (client.queue(PM4), client.queue(PM4));
    let (memory, program) = (client.buffer(0x2000, HOST), upload(&client, ENDLESS_GFX1100));
    let store = upload(&client, STORE_GFX1100);
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    endless.submit(&dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1));
    let words = dispatch(Chip::Gfx1100, store.va + 0x100, memory.va + 0x100, 1);
    good.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    client.destroy(&endless);
    assert_eq!(client.reports(), Vec::<String>::new());
}

/// Runs bytes of gfx1100 that store the lanes' indices, on a machine of this configuration.
fn store_with(config: Config, code: &[u8]) -> (Client, Buffer, u32) {
    let client = Client::of(SoftKfd::new(config).unwrap());
    let exception = client.event(3, None);
    let mut queue = client.queue(PM4);
    let (memory, program) = (client.buffer(0x2000, HOST), upload(&client, code));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    let words = dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    (client, memory, exception)
}

/// The storing kernel with s_nop in the place of its wait.
fn without_wait() -> Vec<u8> {
    let mut code = STORE_GFX1100.to_vec();
    code[32..36].copy_from_slice(&[0x00, 0x00, 0x80, 0xbf]);
    code
}

#[test]
fn a_stopped_wave_is_told_at_once_where_the_machine_tells_hangs() {
    let config = Config { tells_hangs: true, ..Config::new(Chip::Gfx1100) };
    let (client, memory, exception) = store_with(config, &without_wait());
    let (result, data) = client.wait(&[exception], 20_000);
    assert_eq!((result, data[0].get32(12)), (0, client.gpu_id), "before anybody destroys the queue");
    assert_eq!(memory.view.read_u32(0), Ok(0), "what comes after it");
    let log = String::from_utf8(client.port.read_file("/dev/kmsg").unwrap()).unwrap();
    assert!(log.starts_with("3,0,") && log.contains("s4 is the destination of a load that"), "{log}");
    assert!(log.contains("`global_store_b32") && log.contains("in workgroup 0,0,0 wave 0"), "{log}");
}

#[test]
fn a_lenient_machine_reports_a_finding_once_and_goes_on() {
    let waves = doorbell::emu::amdgpu::Strict { lenient: true, ..doorbell::emu::amdgpu::Strict::on() };
    let config = Config { lenient: true, waves, ..Config::new(Chip::Gfx1100) };
    let (client, memory, _) = store_with(config, &without_wait());
    eventually(&memory.view, 0, 1);
    for index in 0..64 {
        assert_eq!(memory.view.read_u32(0x1000 + 4 * index), Ok(index as u32 + 1));
    }
    let reports = client.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].starts_with("Strict") && reports[0].contains("s4 is the destination of a load that"));
    // What hardware cannot run it does not run either.
    let illegal = Config { lenient: true, waves, ..Config::new(Chip::Gfx1100) };
    let (client, memory, _) = store_with(illegal, &[0; 16]);
    until("a report", || !client.reports().is_empty());
    assert_eq!(memory.view.read_u32(0), Ok(0));
    assert!(client.reports()[0].contains("illegal instruction"));
}
