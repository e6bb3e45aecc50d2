//! Machine code through the whole machine: code objects' bytes from llvm-mc 19, launched by PM4 and AQL, on every chip.

use crate::client::*;
use doorbell::emu::kfd::Chip;

/// `out[64 * workgroup + lane] = 64 * workgroup + lane + 1`, kernarg in s[0:1]; llvm-mc 19 of the text beside each line.
#[rustfmt::skip]
const STORE_GFX1100: &[u8] = &[
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

/// RSRC1 of amd.md 4.3 for the smallest allocation, and the register of RSRC3.
fn rsrc(chip: Chip) -> (u32, u32) {
    match chip {
        Chip::Gfx1100 => (0x60bf_0000, 0x228),
        Chip::Gfx942 => (0x00af_0080, 0x22d),
        Chip::Gfx1201 => (0x600f_0000, 0x228),
    }
}

fn code(chip: Chip) -> &'static [u8] {
    match chip {
        Chip::Gfx1100 => STORE_GFX1100,
        Chip::Gfx942 => STORE_GFX942,
        Chip::Gfx1201 => STORE_GFX1201,
    }
}

/// Dispatch of workgroups of 64 in the steps of amd.md 2.5, as far as registers are not zero anyway.
fn dispatch(chip: Chip, entry: u64, kernarg: u64, groups: u32) -> Vec<u32> {
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
fn upload(client: &Client, bytes: &[u8]) -> Buffer {
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
        // The descriptor stands before the code: entry 0x100 further on.
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

/// The full acquire of amd.md 2.3, and the one before a dispatch, for gfx10 and later.
const ACQUIRE_FULL: [u32; 8] = [0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0xc3f1];
const ACQUIRE_DISPATCH: [u32; 8] = [0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0x03f0];

/// Runs the store kernel twice on gfx1100, changing something in between; `before` are the packets before the second dispatch.
fn run_twice(before: &[u32], change: impl Fn(&Buffer, &Buffer)) -> Vec<String> {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let (memory, program) = (client.buffer(0x3000, HOST), upload(&client, STORE_GFX1100));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    let words = dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    change(&memory, &program);
    queue.submit(&[before, &words[..], &release_mem(memory.va, 2)].concat());
    until("an end", || memory.view.read_u32(0) == Ok(2) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn arguments_that_changed_want_the_scalar_cache_invalidated() {
    let change = |memory: &Buffer, _: &Buffer| memory.view.write_u64(0x100, memory.va + 0x2000).unwrap();
    let report = run_twice(&[], change).remove(0);
    assert!(report.contains("changed since the card read it, and no packet invalidated the scalar cache"), "{report}");
    assert_eq!(run_twice(&ACQUIRE_DISPATCH, change), Vec::<String>::new());
}

#[test]
fn code_that_changed_wants_the_instruction_cache_invalidated() {
    // v_add_nc_u32 v1, 2, v0 in place of 1.
    let change = |_: &Buffer, program: &Buffer| program.view.write_u8(0x100 + 24, 0x82).unwrap();
    let report = run_twice(&ACQUIRE_DISPATCH, change).remove(0);
    assert!(report.contains("code at") && report.contains("no packet invalidated the instruction cache"), "{report}");
    assert_eq!(run_twice(&ACQUIRE_FULL, change), Vec::<String>::new());
}

#[test]
fn the_same_code_and_arguments_need_no_invalidation() {
    assert_eq!(run_twice(&[], |_, _| {}), Vec::<String>::new());
}

/// `out[lane] = in[lane]` of 64 lanes on gfx1100, kernarg {out, in} in s[0:1]; llvm-mc 19 of the text beside each line.
#[rustfmt::skip]
const COPY_GFX1100: &[u8] = &[
    0x00, 0x01, 0x08, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b128 s[4:7], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x07, 0xfc, 0x89, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x00, 0x52, 0xdc, 0x00, 0x00, 0x06, 0x01, // global_load_b32 v1, v0, s[6:7]
    0xf7, 0x03, 0x89, 0xbf,                         // s_waitcnt vmcnt(0)
    0x00, 0x00, 0x6a, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];

/// `out[lane] = in[1]`, loaded by the scalar unit; as above.
#[rustfmt::skip]
const SPREAD_GFX1100: &[u8] = &[
    0x00, 0x01, 0x08, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b128 s[4:7], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x07, 0xfc, 0x89, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x03, 0x02, 0x00, 0xf4, 0x04, 0x00, 0x00, 0xf8, // s_load_b32 s8, s[6:7], 0x4
    0x07, 0xfc, 0x89, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x08, 0x02, 0x02, 0x7e,                         // v_mov_b32 v1, s8
    0x00, 0x00, 0x6a, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];

/// RELEASE_MEM that writes back and invalidates the caches first (amd.md 2.3).
fn flush(va: u64, value: u32) -> [u32; 8] {
    let mut words = release_mem(va, value);
    words[1] = 0x0070_f514;
    words
}

/// A kernel twice, its input changed by the host between; `before` are the packets before the second dispatch.
fn copy_twice(kernel: &[u8], before: &[u32]) -> Vec<String> {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let (memory, program) = (client.buffer(0x3000, HOST), upload(&client, kernel));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    memory.view.write_u64(0x108, memory.va + 0x2000).unwrap();
    let words = dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    memory.view.write_u32(0x2004, 77).unwrap();
    queue.submit(&[before, &words[..], &release_mem(memory.va, 2)].concat());
    until("an end", || memory.view.read_u32(0) == Ok(2) || !client.reports().is_empty());
    assert!(!client.reports().is_empty() || memory.view.read_u32(0x1004) == Ok(77));
    client.reports()
}

#[test]
fn memory_that_changed_wants_the_vector_caches_invalidated() {
    let report = copy_twice(COPY_GFX1100, &[]).remove(0);
    assert!(
        report.contains("nothing invalidated the vector caches") && report.contains("`global_load_b32"),
        "{report}"
    );
    assert_eq!(copy_twice(COPY_GFX1100, &ACQUIRE_DISPATCH), Vec::<String>::new());
    // The scalar cache alone does not do, nor one of the two levels of vector caches.
    for gcr in [0x80, 0x100, 0x200] {
        let mut acquire = ACQUIRE_DISPATCH;
        acquire[7] = gcr;
        assert_eq!(copy_twice(COPY_GFX1100, &acquire).len(), 1, "{gcr:#x}");
    }
}

#[test]
fn memory_that_the_scalar_unit_has_read_wants_its_cache_invalidated() {
    let with = |gcr: u32| {
        let mut acquire = ACQUIRE_DISPATCH;
        acquire[7] = gcr;
        copy_twice(SPREAD_GFX1100, &acquire)
    };
    let report = copy_twice(SPREAD_GFX1100, &[]).remove(0);
    assert!(report.contains("nothing invalidated the scalar cache") && report.contains("`s_load_b32"), "{report}");
    // Both levels of vector caches alone do not do.
    assert_eq!(with(0x300).len(), 1);
    assert_eq!(with(0x80), Vec::<String>::new());
}

/// A kernel's stores read by the copy engine after a signal of this kind.
fn copied_after(signal: impl Fn(u64, u32) -> [u32; 8]) -> Vec<String> {
    let client = Client::new(Chip::Gfx1100);
    let (mut compute, mut copies) = (client.queue(PM4), client.queue(SDMA));
    let (memory, program) = (client.buffer(0x3000, HOST), upload(&client, STORE_GFX1100));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    let words = dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1);
    compute.submit(&[&words[..], &signal(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    let (from, to) = (memory.va + 0x1080, memory.va + 0x2000);
    let copy = [1, 63, 0, lo(from), hi(from), lo(to), hi(to)];
    copies.submit(&[&copy[..], &[0x0003_0005, lo(memory.va + 8), hi(memory.va), 5]].concat());
    until("an end", || memory.view.read_u32(8) == Ok(5) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn stores_want_l2_written_back_before_the_copy_engine_reads_them() {
    let report = copied_after(release_mem).remove(0);
    assert!(report.contains("COPY reads") && report.contains("no packet wrote L2 back"), "{report}");
    assert_eq!(copied_after(flush), Vec::<String>::new());
}
