//! What methods do: semaphores, copies of all alignments and sizes, fills, lines, inline data.

use super::client::{Channel, Device, HUGE, PAGE, acquire, copy, release};
use super::on_card;
use crate::case::{Case, Step, holds, same};

/// Bytes of a copy, offsets of source and destination.
const COPIES: &[(u32, u64, u64)] = &[
    (1, 0, 0),
    (1, 3, 1),
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
    let mut all: Vec<Case> = COPIES.iter().map(|(bytes, src, dst)| there_and_back(*bytes, *src, *dst)).collect();
    all.extend(semaphores());
    all.extend(copies());
    all.extend(inline());
    all
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect()
}

fn there_and_back(bytes: u32, src: u64, dst: u64) -> Case {
    let name = format!("copy.{bytes}-bytes-from-{src}-to-{dst}");
    on_card(&name, "The copy engine copies to the card and back, every byte and no other", move |device| {
        let room = (u64::from(bytes) + 2 * PAGE).next_multiple_of(PAGE);
        let (host, card, back) = (device.system(room)?, device.vram(room)?, device.system(room)?);
        let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
        let data = pattern(bytes as usize);
        host.view.copy_from_slice(src, &data)?;
        channel.push(&copy(host.va + src, card.va + 64 + dst, bytes))?;
        channel.push(&release(page.va, 1))?;
        channel.push(&copy(card.va + 64 + dst, back.va + 64 + src, bytes))?;
        channel.push(&release(page.va, 2))?;
        channel.ring()?;
        device.word(&page.view, 0, 2)?;
        let mut seen = vec![0; bytes as usize + 2];
        back.view.copy_to_slice(64 + src - 1, &mut seen)?;
        same("the byte before", seen[0], 0)?;
        same("the byte after", seen[bytes as usize + 1], 0)?;
        holds("every byte", seen[1..=bytes as usize] == data[..])
    })
}

fn halves(va: u64) -> [u32; 2] {
    [va as u32, (va >> 32) as u32]
}

fn semaphores() -> Vec<Case> {
    vec![
        on_card("semaphore.release-with-time", "A release stores payload and time", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            channel.submit(&release(page.va, 0x1_0000_0005))?;
            device.word(&page.view, 0, 0x1_0000_0005)?;
            holds("a time", page.view.read_u64(8)? > 0)
        }),
        on_card("semaphore.times-grow", "Times of later releases are later", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            channel.push(&release(page.va, 1))?;
            channel.push(&release(page.va + 16, 2))?;
            channel.ring()?;
            device.word(&page.view, 16, 2)?;
            let (first, second) = (page.view.read_u64(8)?, page.view.read_u64(24)?);
            holds("0 < first <= second", 0 < first && first <= second)
        }),
        on_card("semaphore.short-payload", "A release of 32 bits leaves the upper half", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            page.view.write_u64(0, u64::MAX)?;
            let [lo, hi] = halves(page.va);
            channel.submit(&[0x2005_0017, lo, hi, 7, 9, 0x0000_0001])?;
            device.word(&page.view, 0, 0xffff_ffff_0000_0007)
        }),
        on_card("semaphore.acquire-waits", "An acquire waits for another channel's release", |device| {
            let (mut waiting, mut other) = (device.copy(0)?, device.compute()?);
            let page = device.system(PAGE)?;
            waiting.push(&acquire(page.va, 5))?;
            waiting.push(&release(page.va + 32, 6))?;
            waiting.ring()?;
            device.client.bench.pause();
            same("before", page.view.read_u64(32)?, 0)?;
            other.submit(&release(page.va, 5))?;
            device.word(&page.view, 32, 6)
        }),
        on_card("semaphore.acquire-by-the-host", "An acquire waits for the host's store", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            channel.push(&acquire(page.va, 3))?;
            channel.push(&release(page.va + 32, 1))?;
            channel.ring()?;
            device.client.bench.pause();
            same("before", page.view.read_u64(32)?, 0)?;
            page.view.store_release_u64(0, 4)?;
            device.word(&page.view, 32, 1)
        }),
        on_card("semaphore.circular", "A circular acquire passes over the wrap, a plain one does not", |device| {
            let (mut circular, mut plain) = (device.compute()?, device.copy(0)?);
            let page = device.system(PAGE)?;
            page.view.write_u64(0, 3)?;
            let [lo, hi] = halves(page.va);
            let words = |execute| [0x2005_0017, lo, hi, u32::MAX - 4, u32::MAX, execute];
            plain.push(&words(0x0100_1002))?;
            plain.push(&release(page.va + 32, 1))?;
            plain.ring()?;
            circular.push(&words(0x0100_1003))?;
            circular.push(&release(page.va + 16, 1))?;
            circular.ring()?;
            device.word(&page.view, 16, 1)?;
            device.client.bench.pause();
            same("the plain one waits", page.view.read_u64(32)?, 0)?;
            page.view.store_release_u64(0, u64::MAX)?;
            device.word(&page.view, 32, 1)
        }),
        on_card("semaphore.of-the-copy-engine", "The copy engine releases its own semaphore with a time", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            let [lo, hi] = halves(page.va);
            channel.submit(&[0x2003_8090, hi, lo, 5, 0x2001_80c0, 0x14])?;
            device.word(&page.view, 0, 5)?;
            holds("a time", page.view.read_u64(8)? > 0)
        }),
        on_card("semaphore.of-the-compute-engine", "The compute engine reports one word", |device| {
            let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
            let [lo, hi] = halves(page.va);
            channel.submit(&[0x2004_26c0, hi, lo, 77, 1 << 28])?;
            device.client.bench.word(&page.view, 0, 77)?;
            same("no time", page.view.read_u32(4)?, 0)
        }),
        on_card("semaphore.token-goes-round", "Three channels pass a token round by memory alone", |device| {
            let page = device.system(PAGE)?;
            let mut channels = [device.copy(0)?, device.copy(1)?, device.compute()?];
            for round in 0..10_u64 {
                for (at, channel) in (0..).zip(&mut channels) {
                    let token = round * 3 + at;
                    let [lo, hi] = halves(page.va);
                    // Equal, 64 bits, switch.
                    channel.push(&[0x2005_0017, lo, hi, token as u32, 0, 0x0100_1000])?;
                    channel.push(&release(page.va, token + 1))?;
                    channel.ring()?;
                }
            }
            device.word(&page.view, 0, 30)
        }),
    ]
}

/// Submits methods to a copy channel and waits for their end.
fn run(device: &Device<'_>, channel: &mut Channel, page: &super::client::Buffer, words: &[u32]) -> Step {
    channel.push(words)?;
    channel.push(&release(page.va, 1))?;
    channel.ring()?;
    device.word(&page.view, 0, 1)
}

/// Components, elements, the bytes that come of 0x12345678, 0x90abcdef.
const FILLS: &[(&str, u32, u32, &[u8])] = &[
    ("bytes", 0x0000_0004, 5, &[0x78; 5]),
    ("dwords", 0x0003_0004, 2, &[0x78, 0x56, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12]),
    ("quadwords", 0x0103_0054, 1, &[0x78, 0x56, 0x34, 0x12, 0xef, 0xcd, 0xab, 0x90]),
];

fn copies() -> Vec<Case> {
    let mut all = vec![
        on_card("copy.lines", "Lines go from one pitch to another", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            for n in 0..64 {
                page.view.write_u8(64 + n, n as u8 + 1)?;
            }
            let (src, dst) = (page.va + 64, page.va + 1024);
            let [src_lo, hi] = halves(src);
            let lines = [0x2004_8100, hi, src_lo, hi, dst as u32, 0x2004_8104, 16, 8, 4, 3, 0x2001_80c0, 0x382];
            run(device, &mut channel, &page, &lines)?;
            let mut got = [0; 24];
            page.view.copy_to_slice(1024, &mut got)?;
            let line = |first: u8| [first, first + 1, first + 2, first + 3, 0, 0, 0, 0];
            same("three lines", got.to_vec(), [line(1), line(17), line(33)].concat())
        }),
        on_card("copy.over-huge-pages", "A copy goes from one huge page to the next", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            let source = device.vram(2 * HUGE)?;
            source.view.write_u64(HUGE - 8, 0x1111)?;
            source.view.write_u64(HUGE, 0x2222)?;
            run(device, &mut channel, &page, &copy(source.va + HUGE - 8, page.va + 64, 16))?;
            same("both", (page.view.read_u64(64)?, page.view.read_u64(72)?), (0x1111, 0x2222))
        }),
        on_card("copy.order", "Copies of one channel are done in their order", |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            page.view.write_u32(64, 1)?;
            page.view.write_u32(68, 2)?;
            channel.push(&copy(page.va + 64, page.va + 128, 4))?;
            channel.push(&release(page.va + 16, 1))?;
            channel.push(&copy(page.va + 68, page.va + 64, 4))?;
            run(device, &mut channel, &page, &copy(page.va + 64, page.va + 132, 4))?;
            same("before and after", (page.view.read_u32(128)?, page.view.read_u32(132)?), (1, 2))
        }),
        on_card("copy.two-engines", "Two engines copy at once", |device| {
            let page = device.system(PAGE)?;
            let mut engines = [device.copy(0)?, device.copy(1)?];
            page.view.write_u64(64, 0x77)?;
            for (at, channel) in (0..).zip(&mut engines) {
                channel.push(&copy(page.va + 64, page.va + 128 + 8 * at, 8))?;
                channel.push(&release(page.va + 16 * at, 1))?;
                channel.ring()?;
            }
            for at in 0..2 {
                device.word(&page.view, 16 * at, 1)?;
                same("its copy", page.view.read_u64(128 + 8 * at)?, 0x77)?;
            }
            Ok(())
        }),
    ];
    all.extend(FILLS.iter().map(|(name, components, count, expected)| {
        let (components, count, expected) = (*components, *count, *expected);
        on_card(&format!("fill.{name}"), "A fill repeats its element, and no further", move |device| {
            let (mut channel, page) = (device.copy(0)?, device.system(PAGE)?);
            let [lo, hi] = halves(page.va + 256);
            let remap = [0x2003_81c0, 0x1234_5678, 0x90ab_cdef, components];
            let place = [0x2002_8102, hi, lo, 0x2001_8106, count, 0x2001_80c0, 0x582];
            run(device, &mut channel, &page, &[&remap[..], &place].concat())?;
            let mut got = vec![0; expected.len() + 1];
            page.view.copy_to_slice(256, &mut got)?;
            same("the bytes", &got[..expected.len()], expected)?;
            same("behind them", got[expected.len()], 0)
        })
    }));
    all
}

fn inline() -> Vec<Case> {
    vec![on_card("inline.data", "Inline data of a push buffer is stored, to its last byte", |device| {
        let (mut channel, page) = (device.compute()?, device.system(PAGE)?);
        let [lo, hi] = halves(page.va);
        channel.push(&[0x2004_2060, 6, 1, hi, lo + 64, 0x2001_206c, 0x41, 0x6002_206d, 0x4433_2211, 0xffff_6655])?;
        channel.push(&release(page.va, 1))?;
        channel.ring()?;
        device.word(&page.view, 0, 1)?;
        same("six bytes", page.view.read_u64(64)?, 0x6655_4433_2211)
    })]
}
