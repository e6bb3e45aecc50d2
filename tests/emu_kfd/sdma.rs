//! SDMA queues: copies, signals, the ring's end.

use crate::client::*;
use doorbell::emu::kfd::Chip;

/// FENCE of each chip's engine: memory type 3 from gfx10 on.
fn fence(chip: Chip, va: u64, value: u32) -> [u32; 4] {
    let header = if chip == Chip::Gfx942 { 5 } else { 0x0003_0005 };
    [header, lo(va), hi(va), value]
}

#[test]
fn copies_fills_and_fences_run_in_order_on_every_chip() {
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        let client = Client::new(chip);
        let mut queue = client.queue(SDMA);
        let (memory, vram) = (client.buffer(0x10_0000, HOST), client.buffer(0x10_0000, VRAM | PUBLIC | WRITABLE));
        let pattern: Vec<u8> = (0..0x1_2345_u32).map(|i| ((i * 7) >> 3) as u8).collect();
        memory.view.copy_from_slice(0x1003, &pattern).unwrap();
        let copy = |dst: u64, src: u64, len: u32| [1, len - 1, 0, lo(src), hi(src), lo(dst), hi(dst)];
        let len = pattern.len() as u32;
        let there = copy(vram.va + 5, memory.va + 0x1003, len);
        let back = copy(memory.va + 0x8_0000, vram.va + 5, len);
        let fill = [0x8000_000b, lo(vram.va + 0x8_0000), hi(vram.va), 0xdead_beef, 0xff];
        let write = [2, lo(memory.va + 0x100), hi(memory.va), 1, 11, 12];
        queue.submit(&[&there[..], &back, &fill, &write, &fence(chip, memory.va, 1)].concat());
        eventually(&memory.view, 0, 1);
        let mut seen = vec![0; pattern.len()];
        memory.view.copy_to_slice(0x8_0000, &mut seen).unwrap();
        assert_eq!(seen, pattern);
        assert_eq!(vram.view.read_u32(0x8_00fc), Ok(0xdead_beef));
        assert_eq!(vram.view.read_u32(0x8_0100), Ok(0));
        assert_eq!(memory.view.read_u32(0x104), Ok(12));
        assert_eq!(memory.view.read_u32(4), Ok(0), "a fence is 32 bits");
        until("the read pointer, in bytes", || queue.read_pointer() == queue.put);
    }
}

#[test]
fn a_poll_waits_for_another_queue_and_a_trap_wakes_the_host() {
    let client = Client::new(Chip::Gfx1100);
    let page = client.buffer(0x8000, HOST);
    let event = client.event(0, Some(&page));
    let (mut copy, mut compute) = (client.queue(SDMA), client.queue(PM4));
    let memory = client.buffer(0x1000, HOST);
    let poll = [0xd000_0008, lo(memory.va + 8), hi(memory.va), 5, u32::MAX, 0x0fff_0004];
    let slot = page.va + 8 * u64::from(event);
    let mail = fence(Chip::Gfx1100, slot, event);
    let timestamp = [0x020d, lo(memory.va + 16), hi(memory.va)];
    copy.submit(&[&poll[..], &fence(Chip::Gfx1100, memory.va, 1), &timestamp, &mail, &[6, event]].concat());
    assert_eq!(client.wait(&[event], 5).0, 1, "timeout: nobody released it");
    compute.submit(&release_mem(memory.va + 8, 5));
    assert_eq!(client.wait(&[event], 20_000).0, 0);
    assert_eq!(memory.view.read_u32(0), Ok(1));
    assert!(memory.view.read_u64(16).unwrap() > 0);
}

#[test]
fn a_padded_end_is_jumped_over_and_a_crossing_packet_stops_the_queue() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue_of(SDMA, 0x400);
    let memory = client.buffer(0x1000, HOST);
    // 36 copies of 7 dwords are 252 of 256 dwords: fill with zeros, then the next packet is at the start.
    let copy = [1, 3, 0, lo(memory.va + 16), hi(memory.va), lo(memory.va + 32), hi(memory.va)];
    (0..36).for_each(|_| queue.submit(&copy));
    until("the first lap", || queue.read_pointer() == 36 * 28);
    queue.submit(&[0; 4]);
    queue.submit(&fence(Chip::Gfx1100, memory.va, 1));
    eventually(&memory.view, 0, 1);
    (0..35).for_each(|_| queue.submit(&copy));
    until("the second lap", || queue.read_pointer() == queue.put);
    queue.submit(&[0, 0]);
    queue.submit(&copy);
    until("the queue's end", || client.reports().iter().any(|r| r.contains("QueueHung")));
    let hung = client.reports().into_iter().find(|r| r.contains("QueueHung")).unwrap();
    assert!(hung.contains("ring dword 0xfb: COPY needs 7 dwords, 5 are left"), "{hung}");
}

#[test]
fn indirect_buffers_must_end_on_their_boundary() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(SDMA);
    let (memory, code) = (client.buffer(0x1000, HOST), client.buffer(0x1000, HOST));
    for (i, word) in (0..).zip(fence(Chip::Gfx1100, memory.va, 9)) {
        code.view.write_u32(4 * i, word).unwrap();
    }
    let ib = [4, lo(code.va), hi(code.va), 4, 0, 0];
    queue.submit(&[&[0, 0][..], &ib].concat());
    eventually(&memory.view, 0, 9);
    queue.submit(&ib);
    until("the queue's end", || client.reports().iter().any(|r| r.contains("8-dword boundary")));
}

#[test]
fn an_atomic_adds_to_the_hosts_word() {
    let client = Client::new(Chip::Gfx1201);
    let mut queue = client.queue(SDMA);
    let memory = client.buffer(0x1000, HOST);
    memory.view.write_u64(8, u64::from(u32::MAX)).unwrap();
    let add = [0x5e00_000a, lo(memory.va + 8), hi(memory.va), 1, 0, 0, 0, 0];
    queue.submit(&[&add[..], &fence(Chip::Gfx1201, memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    assert_eq!(memory.view.read_u64(8), Ok(1 << 32));
}
