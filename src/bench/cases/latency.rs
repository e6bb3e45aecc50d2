//! Latencies of memory: a chain of loads that depend on each other, by the size of what it goes through.

use crate::case::{Case, Point, Subject, Unit, sizes};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use crate::stats::Draw;
use doorbell::device::Arg;

/// The entries.
pub(crate) const CASES: &[Case] = &[Case {
    name: "latency/chase",
    about: "time of one of many loads that depend on each other, through memory of a size",
    unit: Unit::Nanoseconds,
    axes: &[sizes(
        "bytes",
        &[16 << 10, 1 << 20, 16 << 20, 64 << 20, 512 << 20],
        &[16 << 10, 256 << 10, 4 << 20, 32 << 20, 128 << 20],
        &[16 << 10],
    )],
    make: chase,
}];

fn chase(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let kernel = machine.hand("chase")?;
    // A link a line.
    let stride = if machine.kind == Kind::Cpu { 64 } else { 128 };
    let links = point.size("bytes") / stride;
    let next = cycle(links, 7);
    let memory = machine.device().alloc(point.number("bytes"))?;
    let mut bytes = vec![0; point.size("bytes")];
    for (link, next) in next.iter().enumerate() {
        let address = memory.va() + (*next as usize * stride) as u64;
        bytes[link * stride..link * stride + 8].copy_from_slice(&address.to_le_bytes());
    }
    machine.device().copy_in(&memory, 0, &bytes)?;
    let out = machine.device().alloc(64)?;
    let count = if machine.is_small { 100 } else { 20_000 };
    let end = (0..count).fold(0u32, |at, _| next[at as usize]);
    let want = memory.va() + (end as usize * stride) as u64;
    let args = vec![Arg::Buffer(out.at(0)), Arg::Buffer(memory.at(0)), Arg::Var(count)];
    let command = machine.launch(&kernel, 1, 1, args);
    Ok(Subject::commands(count as f64, vec![command]).checked(move |machine| {
        let _chain = &memory;
        let bytes = machine.bytes(&out, 8)?;
        let have = u64::from_le_bytes(std::array::from_fn(|n| bytes[n]));
        if have == want {
            Ok(())
        } else {
            Err(BenchError::Wrong(format!("the chain ends at {have:#x}, not {want:#x}")))
        }
    }))
}

/// One cycle through all of `n` elements in random order: the next element of each.
fn cycle(n: usize, seed: u64) -> Vec<u32> {
    let mut draw = Draw(seed);
    let mut next: Vec<u32> = (0..n as u32).collect();
    for at in (1..n).rev() {
        next.swap(at, draw.below(at));
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_visits_every_place_once() {
        let next = cycle(1000, 3);
        let (mut at, mut seen) = (0, vec![false; 1000]);
        for _ in 0..1000 {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = next[at] as usize;
        }
        assert_eq!(at, 0);
    }
}
