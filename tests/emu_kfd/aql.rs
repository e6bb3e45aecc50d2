//! AQL queues: dispatches, barriers, vendor packets over several XCCs, completion, error codes.

use crate::client::*;
use doorbell::emu::kfd::Chip;
use doorbell_ioctl::port::DeviceView;

/// Writes a kernel descriptor of docs/amd.md 4.2 with its entry 0x100 further on.
fn descriptor(view: &DeviceView, at: u64, properties: u16) {
    view.write_u64(at + 16, 0x100).unwrap();
    view.write_u32(at + 48, 0x00af_0080).unwrap();
    view.write_u32(at + 52, 0x84).unwrap();
    view.write_u16(at + 56, properties).unwrap();
}

/// Kernel dispatch of docs/amd.md 2.7 with barrier and system scopes.
fn dispatch(object: u64, kernarg: u64, completion: u64) -> [u32; 16] {
    [
        0x0001_1502,
        0x0001_0040,
        1,
        130,
        1,
        1,
        0,
        0x400,
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

/// An `amd_signal_t` with a value, a mailbox and an event.
fn signal(view: &DeviceView, at: u64, value: u64, mailbox: u64, event: u32) {
    view.write_u64(at, 1).unwrap();
    view.write_u64(at + 8, value).unwrap();
    view.write_u64(at + 16, mailbox).unwrap();
    view.write_u32(at + 24, event).unwrap();
}

#[test]
fn a_dispatch_completes_its_signal_on_every_chip() {
    for (chip, properties) in [(Chip::Gfx1100, 0x408), (Chip::Gfx942, 8), (Chip::Gfx1201, 0x408)] {
        let compute = Double::counting();
        let client = Client::with_compute(chip, compute.clone());
        let page = client.buffer(0x8000, HOST);
        let event = client.event(0, Some(&page));
        let mut queue = client.queue(AQL);
        let memory = client.buffer(0x1000, HOST);
        descriptor(&memory.view, 0x400, properties);
        memory.view.write_u64(0x100, memory.va + 8).unwrap();
        signal(&memory.view, 0x200, 1, page.va + 8 * u64::from(event), event);
        queue.submit_aql(dispatch(memory.va + 0x400, memory.va + 0x100, memory.va + 0x200));
        assert_eq!(client.wait(&[event], 20_000).0, 0);
        assert_eq!(memory.view.read_u64(0x208), Ok(0), "decremented");
        let (start, end) = (memory.view.read_u64(0x220).unwrap(), memory.view.read_u64(0x228).unwrap());
        assert!(0 < start && start < end);
        let seen = compute.seen.lock().unwrap()[0].clone();
        // 130 work-items in workgroups of 64: three, the last one with 2.
        assert_eq!((seen.groups, seen.local, seen.last_partial), ([3, 1, 1], [64, 1, 1], [2, 1, 1]));
        assert_eq!((seen.entry, seen.lds_bytes), (memory.va + 0x500, 0x400));
        assert_eq!(seen.rsrc2, 0x84 | 2 << 15, "the firmware fills the LDS size");
        assert_eq!((seen.user_data_written, seen.wave32), (0b11, chip != Chip::Gfx942));
        until("the read pointer", || queue.read_pointer() == 1);
        assert_eq!(queue.ring.view.read_u32(0), Ok(1), "the slot is INVALID again");
        assert_eq!(client.reports(), Vec::<String>::new());
    }
}

#[test]
fn user_sgprs_stand_in_the_descriptors_order() {
    let compute = Double::new(|_, _| Ok(()));
    let client = Client::with_compute(Chip::Gfx942, compute.clone());
    let mut queue = client.queue(AQL);
    let memory = client.buffer(0x1000, HOST);
    // Dispatch pointer, queue pointer, kernarg pointer, dispatch id; two preloaded dwords from dword 1 on.
    descriptor(&memory.view, 0x400, 0b1_1110);
    memory.view.write_u16(0x400 + 58, 2 | 1 << 7).unwrap();
    memory.view.write_u32(0x104, 0x11).unwrap();
    memory.view.write_u32(0x108, 0x22).unwrap();
    signal(&memory.view, 0x200, 1, 0, 0);
    queue.submit_aql(dispatch(memory.va + 0x400, memory.va + 0x100, memory.va + 0x200));
    eventually(&memory.view, 0x208, 0);
    let seen = compute.seen.lock().unwrap()[0].clone();
    let (slot, pointers, kernarg) = (queue.ring.va, queue.pointers.va, memory.va + 0x100);
    let expected = [lo(slot), hi(slot), lo(pointers), hi(pointers), lo(kernarg), hi(kernarg), 0, 0, 0x11, 0x22];
    assert_eq!(seen.user_data[..10], expected);
    assert_eq!(seen.user_data_written, 0x3ff);
    assert_eq!(seen.entry, memory.va + 0x600, "preloading kernels enter 256 bytes later");
}

#[test]
fn barriers_wait_for_all_or_any_of_their_signals() {
    let client = Client::new(Chip::Gfx942);
    let mut queue = client.queue(AQL);
    let memory = client.buffer(0x1000, HOST);
    let [a, b, done] = [0x200, 0x240, 0x280];
    for at in [a, b, done] {
        signal(&memory.view, at, 1, 0, 0);
    }
    let barrier = |header: u32| {
        let mut words = [0; 16];
        words[0] = header;
        (words[2], words[3], words[6], words[7]) = (lo(memory.va + a), hi(memory.va), lo(memory.va + b), hi(memory.va));
        (words[14], words[15]) = (lo(memory.va + done), hi(memory.va));
        words
    };
    queue.submit_aql(barrier(0x1505));
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(memory.view.read_u64(done + 8), Ok(1));
    memory.view.write_u64(b + 8, 0).unwrap();
    eventually(&memory.view, done + 8, 0);
    queue.submit_aql(barrier(0x1503));
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(memory.view.read_u64(done + 8), Ok(0), "and: the other one is still 1");
    memory.view.write_u64(a + 8, 0).unwrap();
    eventually(&memory.view, done + 8, u32::MAX);
    assert_eq!(memory.view.read_u64(done + 8), Ok(u64::MAX), "below 0");
}

#[test]
fn a_slot_that_is_still_invalid_holds_the_queue() {
    let client = Client::new(Chip::Gfx942);
    let mut queue = client.queue(AQL);
    let memory = client.buffer(0x1000, HOST);
    signal(&memory.view, 0x200, 1, 0, 0);
    let mut barrier = [0; 16];
    (barrier[0], barrier[14], barrier[15]) = (0x1503, lo(memory.va + 0x200), hi(memory.va));
    queue.submit_aql({
        let mut words = barrier;
        words[0] = 1;
        words
    });
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(memory.view.read_u64(0x208), Ok(1));
    queue.ring.view.store_release_u32(0, 0x1503).unwrap();
    eventually(&memory.view, 0x208, 0);
}

#[test]
fn pm4_of_a_vendor_packet_runs_on_every_xcc_unless_predicated() {
    let client = Client::new(Chip::Gfx942);
    let mut queue = client.queue(AQL);
    let (memory, code) = (client.buffer(0x1000, HOST), client.buffer(0x1000, HOST));
    // 32-bit add of 1 (TC_OP 15) on all XCCs; the next only on XCC 0 and 2; then a signal on XCC 0.
    let add = |at: u64| [0xc007_1e00, 15, lo(memory.va + at), hi(memory.va), 1, 0, 0, 0, 0];
    let words = [
        &add(8)[..],
        &[0xc000_2300, 0b101 << 24 | 9],
        &add(16),
        &[0xc000_2300, 1 << 24 | 8],
        &release_mem(memory.va, 1),
    ]
    .concat();
    for (i, word) in (0..).zip(&words) {
        code.view.write_u32(4 * i, *word).unwrap();
    }
    let mut packet = [0; 16];
    packet[..6].copy_from_slice(&[
        0x0001_1500,
        0xc002_3f00,
        lo(code.va),
        hi(code.va),
        words.len() as u32 | 1 << 23,
        0xa,
    ]);
    queue.submit_aql(packet);
    eventually(&memory.view, 0, 1);
    assert_eq!((memory.view.read_u32(8), memory.view.read_u32(16)), (Ok(8), Ok(2)));
}

/// Submits one packet to a queue with an inactive signal; gives the mask the firmware stores there.
fn error_of(change: impl Fn(&DeviceView, &mut [u32; 16])) -> u64 {
    let client = Client::with_compute(Chip::Gfx1100, Double::new(|_, _| Ok(())));
    let mut queue = client.queue(AQL);
    let memory = client.buffer(0x1000, HOST);
    signal(&memory.view, 0x300, 0, 0, 0);
    queue.pointers.view.write_u64(192, memory.va + 0x300).unwrap();
    descriptor(&memory.view, 0x400, 0x408);
    let mut words = dispatch(memory.va + 0x400, memory.va + 0x100, 0);
    change(&memory.view, &mut words);
    queue.submit_aql(words);
    until("the inactive signal", || memory.view.read_u64(0x308) != Ok(0));
    until("a report", || client.reports().iter().any(|r| r.contains("QueueHung")));
    assert_eq!(queue.read_pointer(), 0, "the queue stands at the packet");
    memory.view.read_u64(0x308).unwrap()
}

#[test]
fn bad_packets_store_their_error_code() {
    assert_eq!(error_of(|_, words| words[3] = 0), 0x2, "no work-items");
    assert_eq!(error_of(|_, words| words[4] = 2), 0x2, "a second dimension that the packet does not have");
    assert_eq!(error_of(|_, words| words[1] = 0x0001_0401), 0x40, "1025 work-items");
    assert_eq!(error_of(|_, words| words[7] = 0x1_0200), 0x4, "more LDS than there is");
    assert_eq!(error_of(|_, words| words[6] = 16), 0x1, "scratch that the queue does not have");
    assert_eq!(error_of(|view, _| view.write_u8(0x40c, 1).unwrap()), 0x8, "reserved bytes of the descriptor");
    assert_eq!(error_of(|_, words| words[12] = 1), 0x20, "reserved bits of the packet");
    assert_eq!(error_of(|_, words| *words = [0; 16]), 0x20, "an unknown vendor format");
}

#[test]
fn a_queue_without_its_struct_stops_at_once() {
    let client = Client::new(Chip::Gfx942);
    let mut queue = client.queue(AQL);
    queue.pointers.view.write_u32(136, 0).unwrap();
    let mut barrier = [0; 16];
    barrier[0] = 0x1503;
    queue.submit_aql(barrier);
    until("a report", || !client.reports().is_empty());
    let report = &client.reports()[0];
    assert!(report.contains("amd_queue_t: read_dispatch_id_field_base_byte_offset is 0, not 128"), "{report}");
}
