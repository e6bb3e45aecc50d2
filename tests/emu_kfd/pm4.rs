//! PM4 queues: ring protocol, packets, indirect buffers, events.

use crate::client::*;
use doorbell::emu::kfd::Chip;

const ALL_CHIPS: [Chip; 3] = [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201];

#[test]
fn a_write_and_a_signal_arrive_on_every_chip() {
    for chip in ALL_CHIPS {
        let client = Client::new(chip);
        let mut queue = client.queue(PM4);
        let memory = client.buffer(0x1000, HOST);
        queue.submit(&[&write_data(memory.va + 16, 0xcafe)[..], &release_mem(memory.va, 7)].concat());
        eventually(&memory.view, 0, 7);
        assert_eq!(memory.view.read_u32(16), Ok(0xcafe));
        until("the read pointer", || queue.read_pointer() == 13);
        client.destroy(&queue);
        assert_eq!(client.reports(), Vec::<String>::new());
    }
}

#[test]
fn work_starts_at_the_doorbell_and_not_at_the_write_pointer() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    queue.put_dwords(&write_data(memory.va, 1));
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(memory.view.read_u32(0), Ok(0));
    queue.ring_doorbell();
    eventually(&memory.view, 0, 1);
}

#[test]
fn a_doorbell_ahead_of_the_write_pointer_is_reported() {
    let client = Client::new(Chip::Gfx1100);
    let queue = client.queue(PM4);
    queue.ring.view.write_u32(0, 0xffff_1000).unwrap();
    queue.doorbell.ring(1);
    assert!(client.reports()[0].contains("doorbell says 0x1, the write pointer in memory is still 0x0"));
}

#[test]
fn packets_run_over_the_rings_end() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue_of(PM4, 0x1000);
    let memory = client.buffer(0x1000, HOST);
    // 1024 dwords a lap; 13 dwords a time: packets cross the end at many offsets.
    for value in 1..500 {
        queue.submit(&[&write_data(memory.va + 8, value)[..], &release_mem(memory.va, value)].concat());
        if value % 50 == 0 {
            eventually(&memory.view, 0, value);
            assert_eq!(memory.view.read_u32(8), Ok(value));
        }
    }
    eventually(&memory.view, 0, 499);
    let dwords = 499 * 13;
    until("the read pointer, modulo the ring", || queue.read_pointer() == dwords % 1024);
}

#[test]
fn half_a_packet_waits_for_its_rest() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let packet = write_data(memory.va, 5);
    queue.submit(&packet[..3]);
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(memory.view.read_u32(0), Ok(0));
    queue.submit(&packet[3..]);
    eventually(&memory.view, 0, 5);
}

#[test]
fn a_wait_blocks_its_queue_only() {
    let client = Client::new(Chip::Gfx1100);
    let (mut waiting, mut other) = (client.queue(PM4), client.queue(PM4));
    let memory = client.buffer(0x1000, HOST);
    let wait = [0xc005_3c00, 0x15, lo(memory.va + 32), hi(memory.va), 3, u32::MAX, 4];
    waiting.submit(&[&wait[..], &write_data(memory.va, 1)].concat());
    other.submit(&release_mem(memory.va + 8, 1));
    eventually(&memory.view, 8, 1);
    assert_eq!(memory.view.read_u32(0), Ok(0), "still waiting");
    other.submit(&release_mem(memory.va + 32, 2));
    other.submit(&release_mem(memory.va + 8, 2));
    eventually(&memory.view, 8, 2);
    assert_eq!(memory.view.read_u32(0), Ok(0), "2 is not enough");
    other.submit(&release_mem(memory.va + 32, 4));
    eventually(&memory.view, 0, 1);
}

#[test]
fn a_wait_ends_when_the_host_stores_the_value() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    // Function 3: equal, after the mask.
    let wait = [0xc005_3c00, 0x13, lo(memory.va), hi(memory.va), 0x50, 0xf0, 4];
    queue.submit(&[&wait[..], &write_data(memory.va + 8, 1)].concat());
    memory.view.write_u32(0, 0x5f).unwrap();
    eventually(&memory.view, 8, 1);
}

#[test]
fn the_hdp_flush_of_a_driver_goes_through() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let flush = [0xc005_3c00, 0x45, 0xe26, 0xe27, u32::MAX, u32::MAX, 4];
    let acquire = [0xc006_5800, 0, u32::MAX, u32::MAX, 0, 0, 0, 0xc3f1];
    queue.submit(&[&flush[..], &acquire, &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
}

#[test]
fn timestamps_grow_at_the_counters_rate() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let clock = |at: u64| [0xc006_4900, 0x514, 0x6000_0000, lo(memory.va + at), hi(memory.va), 0, 0, 0];
    let copy = [0xc004_4000, 0x0011_0509, 0, 0, lo(memory.va + 24), hi(memory.va)];
    queue.submit(&[&clock(8)[..], &clock(16), &copy, &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    let [a, b, c] = [8, 16, 24].map(|at| memory.view.read_u64(at).unwrap());
    assert!(0 < a && a < b && b < c, "{a} {b} {c}");
}

#[test]
fn an_event_wakes_a_sleeper_after_the_value_is_there() {
    let client = Client::new(Chip::Gfx1100);
    let page = client.buffer(0x8000, HOST);
    let event = client.event(0, Some(&page));
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let slot = page.va + 8 * u64::from(event);
    let mail = [0xc006_4900, 0x514, 0x2200_0000, lo(slot), hi(slot), event, 0, event];
    let wait = [0xc005_3c00, 0x15, lo(memory.va + 32), hi(memory.va), 1, u32::MAX, 4];
    queue.submit(&[&wait[..], &release_mem(memory.va, 1), &mail].concat());
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| client.wait(&[event], 20_000).0);
        std::thread::sleep(std::time::Duration::from_millis(5));
        memory.view.write_u32(32, 1).unwrap();
        assert_eq!(sleeper.join().unwrap(), 0);
    });
    assert_eq!(memory.view.read_u32(0), Ok(1));
    assert_eq!(page.view.read_u64(8 * u64::from(event)), Ok(u64::MAX), "the kernel took the slot");
}

#[test]
fn indirect_buffers_run_and_chain() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let (memory, code) = (client.buffer(0x1000, HOST), client.buffer(0x1000, HOST));
    let put = |at: u64, words: &[u32]| {
        for (i, word) in (0..).zip(words) {
            code.view.write_u32(at + 4 * i, *word).unwrap();
        }
    };
    // The first buffer writes and chains to the second, which skips one write by COND_EXEC and does the other.
    let chain = [0xc002_3f00, lo(code.va + 0x100), hi(code.va), 15 | 1 << 20 | 1 << 23];
    put(0, &[&write_data(memory.va + 8, 1)[..], &chain].concat());
    let cond = [0xc003_2200, lo(memory.va + 64), hi(memory.va), 0, 5];
    put(0x100, &[&cond[..], &write_data(memory.va + 12, 2), &write_data(memory.va + 16, 3)].concat());
    let ib = [0xc002_3f00, lo(code.va), hi(code.va), 9 | 1 << 23];
    queue.submit(&[&ib[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    let [a, b, c] = [8, 12, 16].map(|at| memory.view.read_u32(at).unwrap());
    assert_eq!((a, b, c), (1, 0, 3));
}

#[test]
fn the_processor_copies_fills_and_counts() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    memory.view.write_u32(0x100, 0x1234).unwrap();
    let copy = [0xc004_4000, 0x0010_0502, lo(memory.va + 0x100), hi(memory.va), lo(memory.va + 8), hi(memory.va)];
    let dma = [0xc005_5000, 0x8000_0000 | 2 << 29, 0xaaaa_5555, 0, lo(memory.va + 0x200), hi(memory.va), 8];
    // TC_OP 47: 64-bit add.
    let add = [0xc007_1e00, 47, lo(memory.va + 0x300), hi(memory.va), 5, 0, 0, 0, 0];
    queue.submit(&[&copy[..], &dma, &add, &add, &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    assert_eq!(memory.view.read_u32(8), Ok(0x1234));
    assert_eq!(memory.view.read_u64(0x200), Ok(0xaaaa_5555_aaaa_5555));
    assert_eq!(memory.view.read_u64(0x300), Ok(10));
}

/// Dwords of docs/amd.md 2.5: the golden dispatch, with its kernarg address and entry.
fn golden_dispatch(kernarg: u64, entry: u64) -> Vec<u32> {
    #[rustfmt::skip]
    let words = vec![
        0xC006_5800, 0x0000_0000, 0xFFFF_FFFF, 0xFFFF_FFFF, 0x0000_0000, 0x0000_0000, 0x0000_0000, 0x0000_03F0,
        0xC002_7600, 0x0000_020C, lo(entry >> 8), hi(entry >> 8),
        0xC002_7600, 0x0000_0212, 0x60BF_0000, 0x0000_0084,
        0xC001_7600, 0x0000_0228, 0x0000_0000,
        0xC001_7600, 0x0000_0218, 0x0000_0000,
        0xC002_7600, 0x0000_0210, 0x0000_0000, 0x0000_0000,
        0xC003_7600, 0x0000_021B, 0x0000_0000, 0x0000_0000, 0x0000_0000,
        0xC002_7600, 0x0000_0240, lo(kernarg), hi(kernarg),
        0xC001_7600, 0x0000_0215, 0x0000_0000,
        0xC008_7600, 0x0000_0204, 0, 0, 0, 0x0000_0040, 0x0000_0001, 0x0000_0001, 0, 0,
        0xC003_1500, 0x0000_0004, 0x0000_0001, 0x0000_0001, 0x0000_8005,
        0xC000_4600, 0x0000_0407,
    ];
    words
}

#[test]
fn the_golden_dispatch_reaches_the_compute_units_with_its_registers() {
    let compute = Double::counting();
    let client = Client::with_compute(Chip::Gfx1100, compute.clone());
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    memory.view.write_u64(0x100, memory.va + 8).unwrap();
    let words = golden_dispatch(memory.va + 0x100, 0x7f00_0001_0100);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    assert_eq!(memory.view.read_u32(8), Ok(256), "4 workgroups of 64");
    let seen = compute.seen.lock().unwrap()[0].clone();
    assert_eq!((seen.entry, seen.wave32), (0x7f00_0001_0100, true));
    assert_eq!((seen.groups, seen.local, seen.last_partial), ([4, 1, 1], [64, 1, 1], [64, 1, 1]));
    assert_eq!((seen.rsrc1, seen.rsrc2, seen.rsrc3, seen.lds_bytes), (0x60bf_0000, 0x84, 0, 0));
    assert_eq!(seen.user_data_written, 0b11);
    assert_eq!(seen.user_data[..2], [lo(memory.va + 0x100), hi(memory.va)]);
    // Registers stay: a second dispatch without them is the same one, with 3 x 2 workgroups.
    queue.submit(&[&[0xc003_1500, 3, 2, 1, 0x8005][..], &release_mem(memory.va, 2)].concat());
    eventually(&memory.view, 0, 2);
    assert_eq!(memory.view.read_u32(8), Ok(384));
}

#[test]
fn lds_and_scratch_come_in_the_registers_units() {
    let compute = Double::new(|_, _| Ok(()));
    let client = Client::with_compute(Chip::Gfx1201, compute.clone());
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let mut words = golden_dispatch(memory.va, 0x1_0000);
    words[15] |= 3 << 15; // RSRC2: three granules of LDS
    words[21] = 5 | 2 << 12; // TMPRING: 5 waves of two granules of 256 bytes
    words[24] = 0x1234;
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    let seen = compute.seen.lock().unwrap()[0].clone();
    assert_eq!((seen.lds_bytes, seen.scratch_waves, seen.scratch_wave_bytes), (1536, 5, 512));
    assert_eq!(seen.scratch_base, 0x12_3400);
}

#[test]
fn a_stopped_queue_goes_on_when_it_is_started_again() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let update = |percent| {
        let args = Bytes::new(24).u64(0, queue.ring.va).u32(8, queue.id).u32(12, 0x1000).u32(16, percent);
        client.ioctl(UPDATE_QUEUE, args).unwrap();
    };
    update(0);
    let words = write_data(memory.va, 1);
    queue.put_dwords(&words);
    queue.ring_doorbell();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert_eq!(memory.view.read_u32(0), Ok(0));
    let args = Bytes::new(24).u64(0, queue.ring.va).u32(8, queue.id).u32(12, 0x1000).u32(16, 100);
    client.ioctl(UPDATE_QUEUE, args).unwrap();
    eventually(&memory.view, 0, 1);
}

#[test]
fn a_queue_that_waits_for_ever_can_be_destroyed() {
    let client = Client::new(Chip::Gfx1100);
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    queue.submit(&[0xc005_3c00, 0x15, lo(memory.va), hi(memory.va), 1, u32::MAX, 4]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    client.destroy(&queue);
    assert_eq!(client.reports(), Vec::<String>::new());
}

#[test]
fn an_interrupt_without_a_written_slot_is_reported_and_wakes_nobody() {
    let client = Client::new(Chip::Gfx1100);
    let page = client.buffer(0x8000, HOST);
    let event = client.event(0, Some(&page));
    let mut queue = client.queue(PM4);
    let memory = client.buffer(0x1000, HOST);
    let interrupt = [0xc006_4900, 0x514, 0x2200_0000, lo(memory.va + 8), hi(memory.va), event, 0, event];
    queue.submit(&[&interrupt[..], &release_mem(memory.va, 1)].concat());
    eventually(&memory.view, 0, 1);
    assert_eq!(client.wait(&[event], 0).0, 1, "timeout");
    assert!(client.reports()[0].contains("interrupt with context 0x1 found no event whose slot was written"));
}

#[test]
fn queues_that_pause_at_random_still_keep_their_order() {
    use doorbell::emu::kfd::{Config, SoftKfd};
    for shuffle in 1..4 {
        let client = Client::of(SoftKfd::new(Config { shuffle, ..Config::new(Chip::Gfx1100) }).unwrap());
        let mut queues = [client.queue(PM4), client.queue(PM4), client.queue(PM4)];
        let memory = client.buffer(0x1000, HOST);
        // A token goes round: each queue waits for its number and passes the next one on.
        for round in 0..20_u32 {
            for (at, queue) in (0..).zip(&mut queues) {
                let token = round * 3 + at;
                let wait = [0xc005_3c00, 0x13, lo(memory.va), hi(memory.va), token, u32::MAX, 4];
                queue.submit(&[&wait[..], &write_data(memory.va, token + 1)].concat());
            }
        }
        eventually(&memory.view, 0, 60);
    }
}
