//! Kernels: launched by PM4 and AQL, shapes and limits, code and arguments that change between launches.

use super::client::{Buffer, Gfx, HOST, Kfd, PAGE, Ring};
use super::on_card;
use super::packets::{dispatch, hi, lo, release_mem, rsrc, store_kernel};
use crate::case::{Case, Step, same};

/// Code 0x100 into a buffer of its own.
pub(crate) fn upload(kfd: &Kfd<'_>, code: &[u8]) -> Step<Buffer> {
    let buffer = kfd.buffer(PAGE, HOST)?;
    buffer.view.copy_from_slice(0x100, code)?;
    Ok(buffer)
}

/// Name, workgroups of 64 lanes.
const SHAPES: &[(&str, u32)] = &[("one-group", 1), ("four-groups", 4), ("hundred-groups", 100)];

pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = SHAPES
        .iter()
        .map(|(name, groups)| {
            let groups = *groups;
            let name = format!("kernel.pm4-{name}");
            on_card(&name, "Every lane of a PM4 dispatch stores its index, and no other", move |kfd| {
                stores(kfd, groups)
            })
        })
        .collect();
    all.extend([
        on_card("kernel.aql-partial-group", "The last workgroup of an AQL dispatch ends with the grid", |kfd| {
            aql(kfd, 100)
        }),
        on_card("kernel.aql-one-lane", "A grid of one lane runs one lane", |kfd| aql(kfd, 1)),
        on_card("kernel.aql-whole-groups", "A grid of whole workgroups runs all of them", |kfd| aql(kfd, 256)),
        on_card("kernel.no-groups", "A dispatch of no workgroups does nothing and ends", |kfd| {
            let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, store_kernel(kfd.gfx()?))?);
            memory.view.write_u64(0x100, memory.va + PAGE)?;
            let mut queue = kfd.queue(Ring::Pm4)?;
            let words = dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [0, 1, 1], [64, 1, 1]);
            queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat())?;
            kfd.bench.word(&memory.view, 0, 1)?;
            same("nothing is stored", memory.view.read_u32(PAGE)?, 0)
        }),
        on_card("kernel.two-queues", "Two queues run the same code at once", |kfd| {
            let (memory, program) = (kfd.buffer(4 * PAGE, HOST)?, upload(kfd, store_kernel(kfd.gfx()?))?);
            let mut queues = [kfd.queue(Ring::Pm4)?, kfd.queue(Ring::Pm4)?];
            for (at, queue) in (0..).zip(&mut queues) {
                let kernarg = 0x100 + 8 * at;
                memory.view.write_u64(kernarg, memory.va + PAGE * (1 + at))?;
                let words = dispatch(kfd.gfx()?, program.va + 0x100, memory.va + kernarg, [4, 1, 1], [64, 1, 1]);
                queue.submit(&[&words[..], &release_mem(memory.va + 16 * at, 1)].concat())?;
            }
            for at in 0..2 {
                kfd.bench.word(&memory.view, 16 * at, 1)?;
                same("its last lane", memory.view.read_u32(PAGE * (1 + at) + 255 * 4)?, 256)?;
            }
            Ok(())
        }),
    ]);
    all
}

fn stores(kfd: &Kfd<'_>, groups: u32) -> Step {
    let lanes = u64::from(groups) * 64;
    let memory = kfd.buffer((PAGE + lanes * 4 + 4).next_multiple_of(PAGE), HOST)?;
    let program = upload(kfd, store_kernel(kfd.gfx()?))?;
    memory.view.write_u64(0x100, memory.va + PAGE)?;
    let mut queue = kfd.queue(Ring::Pm4)?;
    let words = dispatch(kfd.gfx()?, program.va + 0x100, memory.va + 0x100, [groups, 1, 1], [64, 1, 1]);
    queue.submit(&[&words[..], &release_mem(memory.va, 1)].concat())?;
    kfd.bench.word(&memory.view, 0, 1)?;
    for lane in 0..lanes {
        same("a lane's store", memory.view.read_u32(PAGE + 4 * lane)?, lane as u32 + 1)?;
    }
    same("behind the last lane", memory.view.read_u32(PAGE + 4 * lanes)?, 0)
}

fn aql(kfd: &Kfd<'_>, lanes: u32) -> Step {
    let (memory, program) = (kfd.buffer(2 * PAGE, HOST)?, upload(kfd, store_kernel(kfd.gfx()?))?);
    let gfx = kfd.gfx()?;
    memory.view.write_u64(0x100, memory.va + PAGE)?;
    // The descriptor precedes the code: entry 0x100 further on.
    program.view.write_u64(16, 0x100)?;
    program.view.write_u32(48, rsrc(gfx).0)?;
    program.view.write_u32(52, 0x84)?;
    program.view.write_u16(56, if gfx == Gfx::Gfx942 { 8 } else { 0x408 })?;
    memory.view.write_u64(0x200, 1)?;
    memory.view.write_u64(0x208, 1)?;
    let (object, kernarg, done) = (program.va, memory.va + 0x100, memory.va + 0x200);
    let mut queue = kfd.queue(Ring::Aql)?;
    #[rustfmt::skip]
    queue.submit_aql([
        0x0001_1502, 64 | 1 << 16, 1, lanes, 1, 1, 0, 0,
        lo(object), hi(object), lo(kernarg), hi(kernarg), 0, 0, lo(done), hi(done),
    ])?;
    kfd.bench.word(&memory.view, 0x208, 0)?;
    for lane in 0..u64::from(lanes) {
        same("a lane's store", memory.view.read_u32(PAGE + 4 * lane)?, lane as u32 + 1)?;
    }
    same("behind the grid", memory.view.read_u32(PAGE + 4 * u64::from(lanes))?, 0)
}
