//! What packets do: copies of all alignments and sizes, fills, atomics, clocks, waits, indirect buffers.

use super::client::{CARD, Gfx, HOST, Kfd, PAGE, Ring};
use super::on_card;
use super::packets::*;
use crate::case::{Case, Step, holds, same};

/// Bytes of a copy, offsets of source and destination.
const COPIES: &[(u32, u64, u64)] = &[
    (1, 0, 0),
    (1, 3, 1),
    (4, 0, 0),
    (4, 2, 1),
    (7, 1, 6),
    (64, 0, 0),
    (255, 5, 3),
    (4096, 0, 0),
    (4097, 1, 0),
    (65_536, 0, 0),
    (100_003, 17, 29),
    (1 << 20, 0, 0),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = COPIES.iter().map(|(bytes, src, dst)| copy(*bytes, *src, *dst)).collect();
    all.extend(sdma());
    all.extend(pm4());
    all
}

/// A pattern that no shift of itself equals.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect()
}

/// There and back, with the bytes around untouched.
fn copy(bytes: u32, src: u64, dst: u64) -> Case {
    let name = format!("copy.sdma-{bytes}-bytes-from-{src}-to-{dst}");
    on_card(&name, "SDMA copies to the card and back, every byte and no other", move |kfd| {
        let room = (u64::from(bytes) + 2 * PAGE).next_multiple_of(PAGE);
        let (host, card, done) = (kfd.buffer(room, HOST)?, kfd.buffer(room, CARD)?, kfd.buffer(PAGE, HOST)?);
        let back = kfd.buffer(room, HOST)?;
        let data = pattern(bytes as usize);
        host.view.copy_from_slice(src, &data)?;
        let mut queue = kfd.queue(Ring::Sdma)?;
        let there = sdma_copy(host.va + src, card.va + 64 + dst, bytes);
        let and_back = sdma_copy(card.va + 64 + dst, back.va + 64 + src, bytes);
        queue.submit(&[&there[..], &and_back, &fence(kfd.gfx()?, done.va, 1)].concat())?;
        kfd.bench.word(&done.view, 0, 1)?;
        let mut seen = vec![0; bytes as usize + 2];
        back.view.copy_to_slice(64 + src - 1, &mut seen)?;
        same("the byte before", seen[0], 0)?;
        same("the byte after", seen[bytes as usize + 1], 0)?;
        holds("every byte", seen[1..=bytes as usize] == data[..])
    })
}

/// Submits packets and a signal, waits, gives the memory.
fn run(kfd: &Kfd<'_>, ring: Ring, packets: impl Fn(u64, Gfx) -> Vec<u32>) -> Step<super::client::Buffer> {
    let (memory, mut queue, gfx) = (kfd.buffer(2 * PAGE, HOST)?, kfd.queue(ring)?, kfd.gfx()?);
    memory.view.write_u32(0x100, 0x1234)?;
    memory.view.write_u64(0x300, u64::from(u32::MAX))?;
    queue.submit(&[packets(memory.va, gfx), signal(ring, gfx, memory.va, 1)].concat())?;
    kfd.bench.word(&memory.view, 0, 1)?;
    Ok(memory)
}

fn sdma() -> Vec<Case> {
    vec![
        on_card("sdma.fill", "A fill repeats its dword to its last byte, and no further", |kfd| {
            let memory = run(kfd, Ring::Sdma, |va, _| sdma_fill(va + 0x400, 0xdead_beef, 0x100).to_vec())?;
            for at in (0x400..0x500).step_by(4) {
                same("filled", memory.view.read_u32(at)?, 0xdead_beef)?;
            }
            same("behind it", memory.view.read_u32(0x500)?, 0)
        }),
        on_card("sdma.write", "WRITE stores the dwords of the packet", |kfd| {
            let memory = run(kfd, Ring::Sdma, |va, _| sdma_write(va + 0x400, [11, 12]).to_vec())?;
            same("both", (memory.view.read_u32(0x400)?, memory.view.read_u32(0x404)?), (11, 12))
        }),
        on_card("sdma.fence-is-a-dword", "A fence stores 32 bits and leaves the rest", |kfd| {
            let memory = run(kfd, Ring::Sdma, |_, _| Vec::new())?;
            same("the next dword", memory.view.read_u32(4)?, 0)
        }),
        on_card("sdma.timestamp", "TIMESTAMP stores a time that grows", |kfd| {
            let stamps = |va: u64, _| [sdma_timestamp(va + 0x400), sdma_timestamp(va + 0x408)].concat();
            let memory = run(kfd, Ring::Sdma, stamps)?;
            let (a, b) = (memory.view.read_u64(0x400)?, memory.view.read_u64(0x408)?);
            holds("it grows from more than 0", 0 < a && a <= b)
        }),
        on_card("sdma.atomic-add", "A 64-bit addition carries into the upper half", |kfd| {
            let memory = run(kfd, Ring::Sdma, |va, _| sdma_add(va + 0x300, 1).to_vec())?;
            same("the sum", memory.view.read_u64(0x300)?, 1 << 32)
        }),
        on_card("sdma.poll", "A poll waits for the host's store", |kfd| {
            let (memory, mut queue, gfx) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Sdma)?, kfd.gfx()?);
            queue.submit(&[&sdma_poll(memory.va + 8, 5)[..], &fence(gfx, memory.va, 1)].concat())?;
            kfd.bench.pause();
            same("before", memory.view.read_u32(0)?, 0)?;
            memory.view.write_u32(8, 5)?;
            kfd.bench.word(&memory.view, 0, 1)
        }),
        on_card("sdma.indirect", "An indirect buffer that ends on its boundary is run", |kfd| {
            let (memory, code, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Sdma)?);
            for (at, word) in (0..).zip(fence(kfd.gfx()?, memory.va, 9)) {
                code.view.write_u32(4 * at, word)?;
            }
            queue.submit(&[0, 0, 4, lo(code.va), hi(code.va), 4, 0, 0])?;
            kfd.bench.word(&memory.view, 0, 9)
        }),
        on_card("sdma.order", "Packets are done in their order", |kfd| {
            let memory = run(kfd, Ring::Sdma, |va, _| {
                [
                    &sdma_write(va + 0x400, [1, 2])[..],
                    &sdma_copy(va + 0x400, va + 0x500, 8),
                    &sdma_write(va + 0x400, [3, 4]),
                ]
                .concat()
            })?;
            same("what was there at the copy", memory.view.read_u64(0x500)?, 2 << 32 | 1)?;
            same("what is there now", memory.view.read_u64(0x400)?, 4 << 32 | 3)
        }),
    ]
}

fn pm4() -> Vec<Case> {
    vec![
        on_card("pm4.write-data", "WRITE_DATA stores its dword", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| write_data(va + 16, 0xcafe).to_vec())?;
            same("it", memory.view.read_u32(16)?, 0xcafe)
        }),
        on_card("pm4.copy-data", "COPY_DATA copies a dword", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| copy_data(va + 0x100, va + 0x400).to_vec())?;
            same("it", memory.view.read_u32(0x400)?, 0x1234)
        }),
        on_card("pm4.dma-data", "DMA_DATA fills whole dwords", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| dma_fill(va + 0x400, 0xaaaa_5555, 8).to_vec())?;
            same("eight bytes", memory.view.read_u64(0x400)?, 0xaaaa_5555_aaaa_5555)?;
            same("no more", memory.view.read_u32(0x408)?, 0)
        }),
        on_card("pm4.atomic-add", "ATOMIC_MEM adds 64 bits twice", |kfd| {
            let memory =
                run(kfd, Ring::Pm4, |va, _| [atomic_mem(47, va + 0x400, 5), atomic_mem(47, va + 0x400, 5)].concat())?;
            same("the sum", memory.view.read_u64(0x400)?, 10)
        }),
        on_card("pm4.atomic-32", "ATOMIC_MEM of 32 bits leaves the upper half", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| atomic_mem(15, va + 0x300, 2).to_vec())?;
            same("it wraps", memory.view.read_u64(0x300)?, 1)
        }),
        on_card("pm4.clocks", "The card's clock grows from packet to packet", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| {
                [&release_clock(va + 0x400)[..], &release_clock(va + 0x408), &copy_clock(va + 0x410)].concat()
            })?;
            let [a, b, c] = [memory.view.read_u64(0x400)?, memory.view.read_u64(0x408)?, memory.view.read_u64(0x410)?];
            holds("0 < first < second < third", 0 < a && a < b && b < c)
        }),
        on_card("pm4.release-64", "RELEASE_MEM stores 64 bits", |kfd| {
            let memory = run(kfd, Ring::Pm4, |va, _| release_mem64(va + 0x400, 0x1122_3344_5566_7788).to_vec())?;
            same("it", memory.view.read_u64(0x400)?, 0x1122_3344_5566_7788)
        }),
        on_card("pm4.wait-masked", "WAIT_REG_MEM compares under its mask", |kfd| {
            let (memory, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
            queue.submit(&[&wait_mem(3, memory.va, 0x50, 0xf0)[..], &write_data(memory.va + 8, 1)].concat())?;
            memory.view.write_u32(0, 0x6f)?;
            kfd.bench.pause();
            same("another value", memory.view.read_u32(8)?, 0)?;
            memory.view.write_u32(0, 0x5f)?;
            kfd.bench.word(&memory.view, 8, 1)
        }),
        on_card("pm4.indirect-chain", "An indirect buffer chains to another, which COND_EXEC shortens", |kfd| {
            let (memory, code, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
            let put = |at: u64, words: &[u32]| -> Step {
                for (i, word) in (0..).zip(words) {
                    code.view.write_u32(at + 4 * i, *word)?;
                }
                Ok(())
            };
            let chain = [0xc002_3f00, lo(code.va + 0x100), hi(code.va), 15 | 1 << 20 | 1 << 23];
            put(0, &[&write_data(memory.va + 8, 1)[..], &chain].concat())?;
            let skipped = cond_exec(memory.va + 64, 5);
            put(0x100, &[&skipped[..], &write_data(memory.va + 12, 2), &write_data(memory.va + 16, 3)].concat())?;
            queue.submit(&[&indirect(code.va, 9)[..], &release_mem(memory.va, 1)].concat())?;
            kfd.bench.word(&memory.view, 0, 1)?;
            let words = [memory.view.read_u32(8)?, memory.view.read_u32(12)?, memory.view.read_u32(16)?];
            same("the second is left out", words, [1, 0, 3])
        }),
        on_card("pm4.half-a-packet", "Half a packet waits for its rest", |kfd| {
            let (memory, mut queue) = (kfd.buffer(PAGE, HOST)?, kfd.queue(Ring::Pm4)?);
            let packet = write_data(memory.va, 5);
            queue.submit(&packet[..3])?;
            kfd.bench.pause();
            same("before", memory.view.read_u32(0)?, 0)?;
            queue.submit(&packet[3..])?;
            kfd.bench.word(&memory.view, 0, 5)
        }),
        on_card("pm4.queues-take-turns", "Three queues pass a token round by memory alone", |kfd| {
            let memory = kfd.buffer(PAGE, HOST)?;
            let mut queues = [kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?];
            for round in 0..20_u32 {
                for (at, queue) in (0..).zip(&mut queues) {
                    let token = round * 3 + at;
                    let wait = wait_mem(3, memory.va, token, u32::MAX);
                    queue.submit(&[&wait[..], &write_data(memory.va, token + 1)].concat())?;
                }
            }
            kfd.bench.word(&memory.view, 0, 60)
        }),
    ]
}
