//! Caches between packets: what stops a queue when an acquire, a release or a copy engine's own packet leaves out a
//! cache, and that the right packets added pass. Kernels are bytes from llvm-mc 19.

use crate::client::*;
use crate::kernels::{STORE_GFX1100, code, dispatch, rsrc, upload};
use doorbell::emu::kfd::Chip;

/// The full acquire of docs/amd.md 2.3, and the one before a dispatch, for gfx10 and later.
const ACQUIRE_FULL: [u32; 8] = [0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0xc3f1];
const ACQUIRE_DISPATCH: [u32; 8] = [0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0x03f0];

/// Runs the store kernel twice on gfx1100, changing something in between; `before` are the packets before the second
/// dispatch.
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

/// `out[lane] = in[lane]` of 64 lanes on gfx1100, kernarg {out, in} in s[0:1]; llvm-mc 19 of the text next to each
/// line.
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

/// RELEASE_MEM that writes back and invalidates the caches first (docs/amd.md 2.3).
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
    assert!(report.contains("nothing invalidated the vector L0") && report.contains("`global_load_b32"), "{report}");
    assert_eq!(copy_twice(COPY_GFX1100, &ACQUIRE_DISPATCH), Vec::<String>::new());
    // The scalar cache alone does not do, nor one of the two levels of vector caches.
    for (gcr, cache) in [(0x80, "vector L0"), (0x100, "GL1"), (0x200, "vector L0")] {
        let mut acquire = ACQUIRE_DISPATCH;
        acquire[7] = gcr;
        let report = copy_twice(COPY_GFX1100, &acquire).remove(0);
        assert!(report.contains(&format!("nothing invalidated the {cache}")), "{gcr:#x}: {report}");
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

/// As [`COPY_GFX1100`].
#[rustfmt::skip]
const COPY_GFX942: &[u8] = &[
    0x00, 0x01, 0x0a, 0xc0, 0x00, 0x00, 0x00, 0x00, // s_load_dwordx4 s[4:7], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x26, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x82, 0x00, 0x00, 0x24,                         // v_lshlrev_b32 v0, 2, v0
    0x7f, 0xc0, 0x8c, 0xbf,                         // s_waitcnt lgkmcnt(0)
    0x00, 0x80, 0x50, 0xdc, 0x00, 0x00, 0x06, 0x01, // global_load_dword v1, v0, s[6:7]
    0x70, 0x0f, 0x8c, 0xbf,                         // s_waitcnt vmcnt(0)
    0x00, 0x80, 0x70, 0xdc, 0x00, 0x01, 0x04, 0x00, // global_store_dword v0, v1, s[4:5]
    0x00, 0x00, 0x81, 0xbf,                         // s_endpgm
];
/// As [`COPY_GFX1100`].
#[rustfmt::skip]
const COPY_GFX1201: &[u8] = &[
    0x00, 0x41, 0x00, 0xf4, 0x00, 0x00, 0x00, 0xf8, // s_load_b128 s[4:7], s[0:1], 0x0
    0xff, 0x00, 0x00, 0x36, 0xff, 0x03, 0x00, 0x00, // v_and_b32 v0, 0x3ff, v0
    0x82, 0x00, 0x00, 0x30,                         // v_lshlrev_b32 v0, 2, v0
    0x00, 0x00, 0xc7, 0xbf,                         // s_wait_kmcnt 0x0
    0x06, 0x00, 0x05, 0xee, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // global_load_b32 v1, v0, s[6:7]
    0x00, 0x00, 0xc0, 0xbf,                         // s_wait_loadcnt 0x0
    0x04, 0x80, 0x06, 0xee, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, // global_store_b32 v0, v1, s[4:5]
    0x00, 0x00, 0xb0, 0xbf,                         // s_endpgm
];

fn copy_code(chip: Chip) -> &'static [u8] {
    match chip {
        Chip::Gfx1100 => COPY_GFX1100,
        Chip::Gfx942 => COPY_GFX942,
        Chip::Gfx1201 => COPY_GFX1201,
    }
}

/// The card's memory, cached by L2; seen by the host too.
const CARD: u32 = VRAM | PUBLIC | EXECUTABLE | WRITABLE;
/// The host's memory, cached by L2: neither coherent nor uncached.
const COARSE: u32 = GTT | EXECUTABLE | WRITABLE;

/// As [`flush`], for each chip.
fn flush_on(chip: Chip, va: u64, value: u32) -> [u32; 8] {
    let mut words = flush(va, value);
    words[1] = if chip == Chip::Gfx942 { 0x0008_8514 } else { words[1] };
    words
}

fn sdma_fence(chip: Chip, va: u64, value: u32) -> [u32; 4] {
    [if chip == Chip::Gfx942 { 5 } else { 0x0003_0005 }, lo(va), hi(va), value]
}

fn sdma_copy(to: u64, from: u64, bytes: u32) -> [u32; 7] {
    [1, bytes - 1, 0, lo(from), hi(from), lo(to), hi(to)]
}

/// A kernel's stores to a buffer of these flags read by the copy engine after a signal of this kind.
fn copied_after(chip: Chip, flags: u32, signal: impl Fn(u64, u32) -> [u32; 8]) -> Vec<String> {
    let client = Client::new(chip);
    let (mut compute, mut copies) = (client.queue(PM4), client.queue(SDMA));
    let (memory, program, data) =
        (client.buffer(0x3000, HOST), upload(&client, code(chip)), client.buffer(0x1000, flags));
    memory.view.write_u64(0x100, data.va).unwrap();
    let words = dispatch(chip, program.va + 0x100, memory.va + 0x100, 1);
    compute.submit(&[&words[..], &signal(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    let copy = sdma_copy(memory.va + 0x2000, data.va + 0x80, 64);
    copies.submit(&[&copy[..], &sdma_fence(chip, memory.va + 8, 5)].concat());
    until("an end", || memory.view.read_u32(8) == Ok(5) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn stores_want_l2_written_back_before_a_copy_engine_that_does_not_look_there() {
    for chip in [Chip::Gfx942, Chip::Gfx1201] {
        let report = copied_after(chip, CARD, release_mem).remove(0);
        assert!(report.contains("COPY reads") && report.contains("no packet wrote L2 back"), "{report}");
        assert_eq!(copied_after(chip, CARD, |va, value| flush_on(chip, va, value)), Vec::<String>::new());
    }
}

#[test]
fn a_copy_engine_that_looks_into_l2_and_memory_that_is_not_cached_want_nothing_written_back() {
    assert_eq!(copied_after(Chip::Gfx1100, CARD, release_mem), Vec::<String>::new());
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        assert_eq!(copied_after(chip, HOST, release_mem), Vec::<String>::new());
    }
    // A discrete gfx942 does not cache the host's memory, others do.
    assert_eq!(copied_after(Chip::Gfx942, COARSE, release_mem), Vec::<String>::new());
    assert_eq!(copied_after(Chip::Gfx1201, COARSE, release_mem).len(), 1);
}

/// The copy kernel twice from the card's memory, which the copy engine fills between; `acquire` are the packets before
/// the second.
fn refilled_between(chip: Chip, acquire: &[u32]) -> Vec<String> {
    let client = Client::new(chip);
    let (mut compute, mut copies) = (client.queue(PM4), client.queue(SDMA));
    let (memory, program, data) =
        (client.buffer(0x3000, HOST), upload(&client, copy_code(chip)), client.buffer(0x1000, CARD));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    memory.view.write_u64(0x108, data.va).unwrap();
    let words = dispatch(chip, program.va + 0x100, memory.va + 0x100, 1);
    compute.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    memory.view.write_u32(0x2004, 77).unwrap();
    copies.submit(&[&sdma_copy(data.va, memory.va + 0x2000, 64)[..], &sdma_fence(chip, memory.va + 8, 5)].concat());
    eventually(&memory.view, 8, 5);
    compute.submit(&[acquire, &words[..], &release_mem(memory.va, 2)].concat());
    until("an end", || memory.view.read_u32(0) == Ok(2) || !client.reports().is_empty());
    assert!(!client.reports().is_empty() || memory.view.read_u32(0x1004) == Ok(77));
    client.reports()
}

#[test]
fn what_the_copy_engine_writes_behind_l2_wants_its_lines_dropped() {
    let report = refilled_between(Chip::Gfx1201, &ACQUIRE_DISPATCH).remove(0);
    assert!(report.contains("nothing invalidated the L2") && report.contains("global_load_b32"), "{report}");
    assert_eq!(refilled_between(Chip::Gfx1201, &ACQUIRE_FULL), Vec::<String>::new());
    // gfx11's engine writes through L2, and gfx942's own memory notifies L2 of changes.
    assert_eq!(refilled_between(Chip::Gfx1100, &ACQUIRE_DISPATCH), Vec::<String>::new());
    let gfx9 = [0xc005_5800, 0x0840_0000, u32::MAX, u32::MAX, 0, 0, 0xa];
    assert_eq!(refilled_between(Chip::Gfx942, &gfx9), Vec::<String>::new());
    // The vector caches are the kernel's affair on all.
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        let report = refilled_between(chip, &[]).remove(0);
        assert!(report.contains("nothing invalidated the vector L"), "{report}");
    }
}

/// An AQL dispatch of 64 work-items with a header's scopes; its descriptor precedes the code.
fn aql(header: u32, program: &Buffer, kernarg: u64, completion: u64) -> [u32; 16] {
    let (object, size) = (program.va, 64);
    [
        0x0001_0002 | header,
        64 | 1 << 16,
        1,
        size,
        1,
        1,
        0,
        0,
        lo(object),
        hi(object),
        lo(kernarg),
        hi(kernarg),
        0,
        0,
        lo(completion),
        hi(completion),
    ]
}

/// Bits of an AQL header: barrier, acquire scope, release scope.
const fn scopes(acquire: u32, release: u32) -> u32 {
    1 << 8 | acquire << 9 | release << 11
}

const AGENT: u32 = 1;
const SYSTEM: u32 = 2;

fn with_descriptor(chip: Chip, client: &Client, code: &[u8]) -> Buffer {
    let program = upload(client, code);
    program.view.write_u64(16, 0x100).unwrap();
    program.view.write_u32(48, rsrc(chip).0).unwrap();
    program.view.write_u32(52, 0x84).unwrap();
    program.view.write_u16(56, if chip == Chip::Gfx942 { 8 } else { 0x408 }).unwrap();
    program
}

/// A signal of 1 at `at`.
fn aql_signal(memory: &Buffer, at: u64) -> u64 {
    memory.view.write_u64(at, 1).unwrap();
    memory.view.write_u64(at + 8, 1).unwrap();
    memory.va + at
}

/// An AQL dispatch that stores to the card's memory with this release scope, then a copy of it.
fn copied_after_aql(chip: Chip, release: u32) -> Vec<String> {
    let client = Client::new(chip);
    let (mut compute, mut copies) = (client.queue(AQL), client.queue(SDMA));
    let (memory, data) = (client.buffer(0x3000, HOST), client.buffer(0x1000, CARD));
    let program = with_descriptor(chip, &client, code(chip));
    memory.view.write_u64(0x100, data.va).unwrap();
    let signal = aql_signal(&memory, 0x200);
    compute.submit_aql(aql(scopes(SYSTEM, release), &program, memory.va + 0x100, signal));
    until("the dispatch", || memory.view.read_u64(0x208) == Ok(0) || !client.reports().is_empty());
    let copy = sdma_copy(memory.va + 0x2000, data.va, 64);
    copies.submit(&[&copy[..], &sdma_fence(chip, memory.va + 8, 5)].concat());
    until("an end", || memory.view.read_u32(8) == Ok(5) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn the_release_scope_of_an_aql_packet_decides_whether_l2_is_written_back() {
    for chip in [Chip::Gfx942, Chip::Gfx1201] {
        let report = copied_after_aql(chip, 0).remove(0);
        assert!(report.contains("no packet wrote L2 back"), "{report}");
        assert_eq!(copied_after_aql(chip, SYSTEM), Vec::<String>::new());
    }
    // An agent with one L2 need not write it back for itself; one of several XCCs must.
    assert_eq!(copied_after_aql(Chip::Gfx1201, AGENT).len(), 1);
    assert_eq!(copied_after_aql(Chip::Gfx942, AGENT), Vec::<String>::new());
}

/// Two AQL dispatches of the copy kernel, the second with this acquire scope; the copy engine refills their input
/// between.
fn refilled_between_aql(chip: Chip, acquire: u32) -> Vec<String> {
    let client = Client::new(chip);
    let (mut compute, mut copies) = (client.queue(AQL), client.queue(SDMA));
    let (memory, data) = (client.buffer(0x3000, HOST), client.buffer(0x1000, CARD));
    let program = with_descriptor(chip, &client, copy_code(chip));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    memory.view.write_u64(0x108, data.va).unwrap();
    memory.view.write_u32(0x2004, 77).unwrap();
    let (first, second) = (aql_signal(&memory, 0x200), aql_signal(&memory, 0x240));
    compute.submit_aql(aql(scopes(SYSTEM, SYSTEM), &program, memory.va + 0x100, first));
    until("the first", || memory.view.read_u64(0x208) == Ok(0) || !client.reports().is_empty());
    copies.submit(&[&sdma_copy(data.va, memory.va + 0x2000, 64)[..], &sdma_fence(chip, memory.va + 8, 5)].concat());
    eventually(&memory.view, 8, 5);
    compute.submit_aql(aql(scopes(acquire, SYSTEM), &program, memory.va + 0x100, second));
    until("the second", || memory.view.read_u64(0x248) == Ok(0) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn the_acquire_scope_of_an_aql_packet_decides_which_caches_are_emptied() {
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        let report = refilled_between_aql(chip, 0).remove(0);
        assert!(report.contains("nothing invalidated the vector L"), "{report}");
        assert_eq!(refilled_between_aql(chip, SYSTEM), Vec::<String>::new());
    }
    let report = refilled_between_aql(Chip::Gfx1201, AGENT).remove(0);
    assert!(report.contains("nothing invalidated the L2"), "{report}");
    assert_eq!(refilled_between_aql(Chip::Gfx1100, AGENT), Vec::<String>::new());
}

/// A kernel stores to the host's memory of these flags; a RELEASE_MEM of this kind interrupts.
fn told_after(chip: Chip, flags: u32, signal: impl Fn(u64, u32) -> [u32; 8]) -> Vec<String> {
    let client = Client::new(chip);
    let page = client.buffer(0x8000, HOST);
    let event = client.event(0, Some(&page));
    let mut compute = client.queue(PM4);
    let (memory, program, data) =
        (client.buffer(0x1000, HOST), upload(&client, code(chip)), client.buffer(0x1000, flags));
    memory.view.write_u64(0x100, data.va).unwrap();
    let words = dispatch(chip, program.va + 0x100, memory.va + 0x100, 1);
    let mut tell = signal(page.va + 8 * u64::from(event), event);
    // Interrupt after the write, with the event's id where the packet carries it.
    (tell[2], tell[7]) = (tell[2] | 2 << 24, if chip == Chip::Gfx942 { 0 } else { event });
    compute.submit(&[&words[..], &tell, &release_mem(memory.va, 1)].concat());
    until("an end", || memory.view.read_u32(0) == Ok(1) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn an_interrupt_with_stores_to_cached_host_memory_still_in_l2_is_refused() {
    for chip in [Chip::Gfx1100, Chip::Gfx1201] {
        let report = told_after(chip, COARSE, release_mem).remove(0);
        let what = "RELEASE_MEM interrupts the host, and what a dispatch stored to its memory at 0x";
        assert!(report.contains(what) && report.contains("still in L2"), "{report}");
        assert_eq!(told_after(chip, COARSE, flush), Vec::<String>::new());
        assert_eq!(told_after(chip, HOST, release_mem), Vec::<String>::new());
        assert_eq!(told_after(chip, CARD, release_mem), Vec::<String>::new());
    }
    assert_eq!(told_after(Chip::Gfx942, COARSE, release_mem), Vec::<String>::new());
}

/// A dispatch whose counts a kernel stored: 1, 2, 3 workgroups.
fn indirect_after(chip: Chip, signal: impl Fn(u64, u32) -> [u32; 8]) -> Vec<String> {
    let client = Client::new(chip);
    let mut compute = client.queue(PM4);
    let (memory, program, data) =
        (client.buffer(0x1000, HOST), upload(&client, code(chip)), client.buffer(0x1000, CARD));
    memory.view.write_u64(0x100, data.va).unwrap();
    let words = dispatch(chip, program.va + 0x100, memory.va + 0x100, 1);
    let registers = &words[..words.len() - 7];
    let indirect = [0xc002_1600, lo(data.va), hi(data.va), if chip == Chip::Gfx942 { 0x5 } else { 0x8005 }];
    memory.view.write_u64(0x180, data.va + 0x400).unwrap();
    let other = [0xc002_7600, 0x240, lo(memory.va + 0x180), hi(memory.va)];
    let list = [&words[..], &signal(memory.va, 1), registers, &other, &indirect, &release_mem(memory.va, 2)].concat();
    compute.submit(&list);
    until("an end", || memory.view.read_u32(0) == Ok(2) || !client.reports().is_empty());
    client.reports()
}

#[test]
fn counts_that_a_kernel_stored_want_l2_written_back_where_the_processor_does_not_look_there() {
    let report = indirect_after(Chip::Gfx1201, release_mem).remove(0);
    assert!(report.contains("DISPATCH_INDIRECT reads") && report.contains("no packet wrote L2 back"), "{report}");
    // Stores of three workgroups of one work-group size race, so the dispatch itself may be refused: not for L2.
    for (chip, signal) in [(Chip::Gfx1201, flush as fn(u64, u32) -> [u32; 8]), (Chip::Gfx1100, release_mem)] {
        let found = indirect_after(chip, signal);
        assert!(found.iter().all(|report| !report.contains("L2")), "{found:?}");
    }
}

#[test]
fn a_range_that_was_unmapped_is_in_no_cache_any_more() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let (memory, program, data) =
        (client.buffer(0x3000, HOST), upload(&client, COPY_GFX1100), client.buffer(0x1000, CARD));
    memory.view.write_u64(0x100, memory.va + 0x1000).unwrap();
    memory.view.write_u64(0x108, data.va).unwrap();
    let words = dispatch(Chip::Gfx1100, program.va + 0x100, memory.va + 0x100, 1);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    client.unmap(&data).unwrap();
    data.view.write_u32(4, 77).unwrap();
    client.map(&data);
    queue.submit(&[&words[..], &release_mem(memory.va, 2)].concat());
    until("an end", || memory.view.read_u32(0) == Ok(2) || !client.reports().is_empty());
    assert_eq!(client.reports(), Vec::<String>::new());
    assert_eq!(memory.view.read_u32(0x1004), Ok(77));
}
