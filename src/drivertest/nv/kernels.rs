//! Grids: machine code through ring, launch descriptor (QMD) and multiprocessors, its releases, clusters, and what the
//! scheduler refuses. Code and descriptor are Hopper's; other chips skip.

use super::client::{Buffer, Channel, Device, HUGE, release};
use super::on_card;
use crate::case::{Case, Step, holds, same};

/// `out[i] = i + v` with `i` of the whole grid: `.param .u64 out, .param .u32 v`, compiled by ptxas 13.5 for sm_90.
const STORE: [u128; 13] = [
    0x000f_e200_0000_0800_0000_0a00_ff01_7b82,
    0x000e_2e00_0000_2100_0000_0000_0005_7919,
    0x000e_3000_0000_2500_0000_0000_0004_79c3,
    0x000e_3000_0000_0800_0000_0000_ff00_7b82,
    0x000e_6200_0000_0a00_0000_8400_ff02_7b82,
    0x001f_e200_0f8e_0205_0000_0004_0005_7c24,
    0x000f_c600_0000_0800_0000_8600_0004_7ab9,
    0x042f_e200_078e_0002_0000_0004_0502_7825,
    0x000f_e200_0fff_e0ff_0000_0004_0505_7c10,
    0x000f_c800_0000_0a00_0000_8200_0004_7ab9,
    0x000f_e200_0c10_1904_0000_0005_0200_7986,
    0x000f_ea00_0380_0000_0000_0000_0000_794d,
    0x000f_c000_0383_ffff_ffff_fffc_00fc_7947,
];

/// Offsets in a grid's memory: bank 0, the semaphore of its end, the descriptor, what it stores.
const BANK: u64 = 0x1000;
const SIGNAL: u64 = 0x2000;
const QMD: u64 = 0x3000;
const OUT: u64 = 0x8000;
const THREADS: u32 = 128;
const HOPPER_COMPUTE: u32 = 0xcbc0;

/// A descriptor's dwords that differ from zero: the vector of docs/nv.md 4.2 with a grid of four CTAs of 128 threads.
fn descriptor(memory: u64) -> [u32; 96] {
    let mut words = [0; 96];
    let vector = [
        (0, 0x013f_0000),
        (10, 0x0000_1009),
        (13, 0x0000_0009),
        (16, 0x9000_0000),
        (17, 0x0300_0000),
        (18, 0xbc04_0040),
        (19, 0x0000_3e83),
        (22, 7),
        (32, 4),
        (33, 1),
        (34, 1),
        (35, 0x0001_0000),
        (36, 0x0001_0080),
        (37, 0x1012_0001),
    ];
    for (at, word) in vector {
        words[at] = word;
    }
    let halves = |va: u64| (va as u32, (va >> 32) as u32);
    (words[20], words[21]) = halves(memory + SIGNAL);
    (words[38], words[39]) = halves(memory);
    let (low, high) = halves((memory + BANK) >> 6);
    (words[48], words[49]) = (low, high | 0x24 << 19);
    words
}

/// Memory with code, bank 0 and the descriptor after `change`, and the methods that launch it.
fn prepare(device: &Device<'_>, v: u32, change: fn(&mut [u32; 96])) -> Step<(Buffer, [u32; 4])> {
    let memory = device.vram(HUGE)?;
    for (n, word) in (0..).zip(STORE) {
        memory.view.copy_from_slice(n * 16, &word.to_le_bytes())?;
    }
    for (at, value) in [(0, THREADS), (4, 1), (8, 1), (0xc, 4), (0x10, 1), (0x14, 1), (0x218, v)] {
        memory.view.write_u32(BANK + at, value)?;
    }
    memory.view.write_u64(BANK + 0x210, memory.va + OUT)?;
    let mut words = descriptor(memory.va);
    change(&mut words);
    for (n, word) in (0..).zip(words) {
        memory.view.write_u32(QMD + n * 4, word)?;
    }
    let at = ((memory.va + QMD) >> 8) as u32;
    Ok((memory, [0x2001_20ad, at, 0x2001_20b0, 9]))
}

/// The channel, when the chip runs this code.
fn hopper(device: &Device<'_>) -> Step<Channel> {
    let class = device.compute_class()?;
    device.client.bench.require(class == HOPPER_COMPUTE, "code-for-chip", "the code is for sm_90")?;
    device.compute()
}

/// What the grid of four CTAs stored, and nothing after it.
fn stored(memory: &Buffer, v: u32) -> Step {
    stored_by(memory, 4, v)
}

fn stored_by(memory: &Buffer, ctas: u32, v: u32) -> Step {
    let count = ctas * THREADS;
    for n in 0..count {
        same("a thread's word", memory.view.read_u32(OUT + 4 * u64::from(n))?, n + v)?;
    }
    same("the word behind", memory.view.read_u32(OUT + 4 * u64::from(count))?, 0)
}

/// Name, code in the notifier, what is wrong with the descriptor.
type Refused = (&'static str, u32, fn(&mut [u32; 96]));
const REFUSED: &[Refused] = &[
    ("block-of-2048", 13, |q| q[36] = 0x0001_0800),
    ("two-registers", 13, |q| q[37] = 0x1002_0001),
    ("code-that-is-nowhere", 31, |q| (q[38], q[39]) = (0, 0xf0)),
    ("bank-that-is-nowhere", 31, |q| (q[48], q[49]) = (0, 0x3 | 0x24 << 19)),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut all = vec![
        on_card(
            "kernel.stores",
            "Each thread of a grid stores its word, and the descriptor releases after it",
            |device| {
                let mut channel = hopper(device)?;
                let (memory, launch) = prepare(device, 1000, |_| ())?;
                channel.submit(&launch)?;
                device.word(&memory.view, SIGNAL, 7)?;
                holds("a time", memory.view.read_u64(SIGNAL + 8)? > 0)?;
                stored(&memory, 1000)
            },
        ),
        on_card("kernel.host-release-after-grid", "A release of the channel comes after the grid", |device| {
            let mut channel = hopper(device)?;
            let (memory, launch) = prepare(device, 5, |_| ())?;
            channel.push(&launch)?;
            channel.push(&release(memory.va + SIGNAL + 32, 9))?;
            channel.ring()?;
            device.word(&memory.view, SIGNAL + 32, 9)?;
            stored(&memory, 5)
        }),
        on_card("kernel.again", "A descriptor is launched again after its bank has changed", |device| {
            let mut channel = hopper(device)?;
            let (memory, launch) = prepare(device, 1, |_| ())?;
            for v in [1, 70_000] {
                memory.view.write_u32(BANK + 0x218, v)?;
                memory.view.write_u64(SIGNAL, 0)?;
                channel.submit(&launch)?;
                device.word(&memory.view, SIGNAL, 7)?;
                stored(&memory, v)?;
            }
            Ok(())
        }),
        on_card("kernel.clusters", "A grid of two clusters of two CTAs stores what the plain grid stores", |device| {
            let mut channel = hopper(device)?;
            let (memory, launch) = prepare(device, 3, |q| (q[0], q[32], q[67]) = (0x01bf_0000, 2, 0x0001_0102))?;
            channel.submit(&launch)?;
            device.word(&memory.view, SIGNAL, 7)?;
            stored(&memory, 3)
        }),
        on_card(
            "kernel.clusters-of-three",
            "The sizes of a grid count clusters: four of three CTAs are twelve",
            |device| {
                let mut channel = hopper(device)?;
                let (memory, launch) = prepare(device, 4, |q| (q[0], q[67]) = (0x01bf_0000, 0x0001_0103))?;
                channel.submit(&launch)?;
                device.word(&memory.view, SIGNAL, 7)?;
                stored_by(&memory, 12, 4)
            },
        ),
        on_card("kernel.grid-of-none", "A grid of no CTAs does nothing, and the channel goes on", |device| {
            let mut channel = hopper(device)?;
            let (memory, launch) = prepare(device, 1, |q| q[32] = 0)?;
            channel.push(&launch)?;
            channel.push(&release(memory.va + SIGNAL + 32, 9))?;
            channel.ring()?;
            device.word(&memory.view, SIGNAL + 32, 9)?;
            same("no word", memory.view.read_u32(OUT)?, 0)?;
            device.is_well(&channel)?;
            let (memory, launch) = prepare(device, 2, |_| ())?;
            channel.submit(&launch)?;
            device.word(&memory.view, SIGNAL, 7)?;
            stored(&memory, 2)
        }),
        on_card("kernel.two-channels", "Grids of two channels run beside each other", |device| {
            let mut channels = [hopper(device)?, device.compute()?];
            let mut grids = Vec::new();
            for (v, channel) in (10..).zip(&mut channels) {
                let (memory, launch) = prepare(device, v, |_| ())?;
                channel.submit(&launch)?;
                grids.push((memory, v));
            }
            for (memory, v) in &grids {
                device.word(&memory.view, SIGNAL, 7)?;
                stored(memory, *v)?;
            }
            Ok(())
        }),
        stray(),
    ];
    all.extend(REFUSED.iter().map(|(name, code, change)| refused(name, *code, *change)));
    for case in all.iter_mut().skip(7) {
        case.log = &["Xid"];
    }
    all
}

fn stray() -> Case {
    let what = "A store to nowhere ends the channel with an MMU fault, without its release; a new one works";
    on_card("kernel.stray-store", what, |device| {
        let mut channel = hopper(device)?;
        let (memory, launch) = prepare(device, 0, |_| ())?;
        memory.view.write_u64(BANK + 0x210, 0x99_0000_0000)?;
        channel.submit(&launch)?;
        same("code", device.error(&channel)?, 31)?;
        same("no release", memory.view.read_u64(SIGNAL)?, 0)?;
        works(device)
    })
}

fn refused(name: &str, code: u32, change: fn(&mut [u32; 96])) -> Case {
    let what = "The scheduler refuses the descriptor: the channel ends with a code, and a new one works";
    on_card(&format!("kernel.{name}"), what, move |device| {
        let mut channel = hopper(device)?;
        let (memory, launch) = prepare(device, 1, change)?;
        channel.submit(&launch)?;
        same("code", device.error(&channel)?, code)?;
        same("no word", memory.view.read_u32(OUT)?, 0)?;
        works(device)
    })
}

fn works(device: &Device<'_>) -> Step {
    let mut channel = device.compute()?;
    let (memory, launch) = prepare(device, 2, |_| ())?;
    channel.submit(&launch)?;
    device.word(&memory.view, SIGNAL, 7)?;
    stored(&memory, 2)
}
