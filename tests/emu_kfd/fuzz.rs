//! Random rings and random ioctls: whatever they hold, the machine answers with an error that has a name, and goes on.

use crate::client::*;
use doorbell::emu::kfd::compute::NoCompute;
use doorbell::emu::kfd::{Chip, Config, ReportKind, SoftKfd};
use doorbell::hcq::packet::{pm4, sdma};
use doorbell_ioctl::port::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }
}

/// Opcodes with the number of dwords after the header.
const PM4_PACKETS: &[(u32, u32)] = &[
    (0x10, 3),
    (0x15, 4),
    (0x16, 3),
    (0x1e, 8),
    (0x22, 4),
    (0x37, 5),
    (0x3c, 6),
    (0x3f, 3),
    (0x40, 5),
    (0x46, 1),
    (0x49, 7),
    (0x50, 6),
    (0x58, 7),
    (0x76, 4),
    (0x79, 2),
    (0x93, 8),
    (0x23, 1),
];
const SDMA_PACKETS: &[(u32, u32)] = &[
    (0, 0),
    (1, 6),
    (2, 5),
    (4, 5),
    (0x0003_0005, 3),
    (6, 1),
    (0xd000_0008, 5),
    (0x5e00_000a, 7),
    (0x8000_000b, 4),
    (0x020d, 2),
    (0x0111, 4),
];

/// A dword: small, a flag, part of an address that exists or of one at the end of all, or anything.
fn dword(random: &mut Random, va: u64) -> u32 {
    match random.next() % 8 {
        0 => 0,
        1 | 2 => lo(va) + (random.next() as u32 & 0xffc),
        3 | 4 => hi(va),
        5 => 1 << (random.next() % 32),
        6 => u32::MAX,
        _ => random.next() as u32,
    }
}

/// Random packets; most are such that the parser takes them, so that what they do is tried and not only how they are
/// refused.
fn ring(random: &mut Random, chip: Chip, kind: u32, va: u64) -> Vec<u32> {
    let facts = doorbell::emu::kfd::facts_of(chip);
    let mut words = Vec::new();
    while words.len() < 200 {
        let (header, payload) = match kind {
            PM4 => {
                let (op, payload) = random.pick(PM4_PACKETS);
                (0xc000_0000 | (payload - 1) << 16 | op << 8, payload)
            }
            _ => random.pick(SDMA_PACKETS),
        };
        let packet: Vec<u32> = std::iter::once(header).chain((0..payload).map(|_| dword(random, va))).collect();
        let taken = match kind {
            PM4 => pm4::Packet::parse(facts.gfx, &packet).is_ok(),
            _ => sdma::Packet::parse(facts.sdma, &packet).is_ok(),
        };
        if taken || random.next().is_multiple_of(512) {
            words.extend(packet);
        }
    }
    words
}

fn machine(chip: Chip) -> Client {
    Client::of(SoftKfd::with_compute(Config::new(chip), Arc::new(NoCompute)).unwrap())
}

/// Lets a queue run until it stops, then destroys it.
fn finish(client: &Client, queue: Queue, reports: usize) {
    // TIMEOUT: a ring that waits for ever is given up soon; the round has tested what it could.
    let deadline = Instant::now() + Duration::from_millis(40);
    let done = || queue.kind == SDMA && queue.read_pointer() == queue.put;
    while client.machine.reports().len() == reports && !done() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    client.tear_down(queue);
}

#[test]
fn random_rings_end_in_a_named_error_and_never_break_the_machine() {
    let mut random = Random(0x51);
    for (chip, kind) in [(Chip::Gfx1100, PM4), (Chip::Gfx942, SDMA), (Chip::Gfx1201, PM4), (Chip::Gfx1201, SDMA)] {
        let client = machine(chip);
        let memory = client.buffer(0x4000, HOST);
        for round in 0..120 {
            let before = client.machine.reports().len();
            let mut queue = client.queue(kind);
            queue.submit(&ring(&mut random, chip, kind, memory.va));
            finish(&client, queue, before);
            let bugs: Vec<_> = client.machine.reports().into_iter().filter(|r| r.kind == ReportKind::Bug).collect();
            assert!(bugs.is_empty(), "{chip:?} round {round}: {bugs:?}");
        }
        assert!(client.machine.reports().len() > 40, "many rings end in an error");
        let mut queue = client.queue(PM4);
        queue.submit(&release_mem(memory.va, 0x600d));
        eventually(&memory.view, 0, 0x600d);
    }
}

#[test]
fn random_aql_slots_end_in_a_named_error_and_never_break_the_machine() {
    let mut random = Random(0xa91);
    let client = machine(Chip::Gfx1100);
    let memory = client.buffer(0x4000, HOST);
    for round in 0..200 {
        let before = client.machine.reports().len();
        let mut queue = client.queue(AQL);
        for _ in 0..8 {
            let mut words: [u32; 16] = std::array::from_fn(|_| dword(&mut random, memory.va) & !0x3f);
            words[0] = random.pick(&[0x0001_1502, 0x1503, 0x1505, 0x0001_1500, 0x0002_1502, 7]);
            if random.next().is_multiple_of(2) {
                // Nearly right: a vendor packet or a dispatch without its reserved dwords.
                (words[12], words[13], words[14], words[15]) = (0, 0, 0, 0);
                words[1] = if words[0] & 0xff == 0 { 0xc002_3f00 } else { 0x0001_0040 };
            }
            queue.submit_aql(words);
        }
        finish(&client, queue, before);
        let bugs: Vec<_> = client.machine.reports().into_iter().filter(|r| r.kind == ReportKind::Bug).collect();
        assert!(bugs.is_empty(), "round {round}: {bugs:?}");
    }
}

#[test]
fn random_ioctls_are_answered_and_leave_the_driver_usable() {
    const REQUESTS: [u32; 24] = [
        0x8008_4b01,
        0xc060_4b02,
        0xc008_4b03,
        0x4020_4b04,
        0xc028_4b05,
        0x8190_4b06,
        0x4018_4b07,
        0xc020_4b08,
        0x4008_4b09,
        0x4008_4b0a,
        0x4008_4b0b,
        0xc018_4b0c,
        0xc010_4b14,
        0x4008_4b15,
        0xc028_4b16,
        0x4008_4b17,
        0xc018_4b18,
        0xc018_4b19,
        0x4010_4b1a,
        0xc020_4b1c,
        0xc018_4b1d,
        0xc010_4b23,
        0xc010_4b24,
        0xc010_4b25,
    ];
    let mut random = Random(0x10c7);
    let client = machine(Chip::Gfx1100);
    let buffers: Vec<Buffer> = (0..4).map(|_| client.buffer(0x1000, HOST)).collect();
    // Pointers that the driver follows lead here or nowhere: it writes to any address it is given.
    let scratch = client.buffer(0x1000, HOST);
    let mut accepted = 0;
    for _ in 0..60_000 {
        let mut request = random.pick(&REQUESTS);
        if random.next().is_multiple_of(32) {
            request = request & !0x3fff_00ff | (random.next() as u32 & 0xff) | (random.next() as u32 & 0xff) << 16;
        }
        let len = (request >> 16 & 0x3fff) as usize;
        let mut bytes = Bytes::new(len.next_multiple_of(8));
        for at in (0..len).step_by(4) {
            let value = match random.next() % 10 {
                0..4 => 0,
                4 => client.gpu_id,
                5 => random.next() as u32 % 8,
                6 => 0x1000,
                7 => client.render.0 as u32,
                8 => HOST,
                _ => 1 << (random.next() % 32),
            };
            bytes = bytes.u32(at, value);
        }
        // Whole words in the first fields: handles, addresses of buffers, or the scratch page.
        for at in (0..len.min(32) & !7).step_by(8) {
            if random.next().is_multiple_of(2) {
                let buffer = &buffers[random.next() as usize % buffers.len()];
                let value = random.pick(&[buffer.handle, buffer.va, scratch.va, 0, 0x7fff_ffff_f000, u64::MAX]);
                bytes = bytes.u64(at, value);
            }
        }
        // A wait must not sleep.
        if request & 0xff == 0x0c && len >= 20 {
            bytes = bytes.u32(16, 0);
        }
        match client.port.ioctl(client.kfd, request, &mut bytes.0) {
            Ok(_) => accepted += 1,
            Err(errno) => assert_ne!(errno, Errno(0)),
        }
    }
    assert!(accepted > 3000, "{accepted} calls went through");
    let version = client.ioctl(GET_VERSION, Bytes::new(8)).unwrap();
    assert_eq!((version.get32(0), version.get32(4)), (1, 17));
}
