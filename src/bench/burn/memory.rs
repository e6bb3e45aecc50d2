//! Patterns over the device's free memory: each word's value follows from its index and the round; written, then
//! compared by another kernel.

use super::{Finding, NO_ANSWER, answers};
use crate::cases::inputs::captured_all;
use crate::cases::memory::places;
use crate::error::BenchError;
use crate::machine::Machine;
use doorbell::device::{Command, Memory, QueueKind};
use doorbell::tensor::prelude::*;

/// Multiplier of the index: odd, so that all words of a part differ.
const SPREAD: i64 = 0x9e37_79b1;
/// What the rounds' patterns begin with: all ones, none, both alternations, and then what is drawn.
const BASES: [u32; 4] = [0, u32::MAX, 0x5555_5555, 0xaaaa_aaaa];

/// A part of the memory.
struct Part {
    words: Memory,
    count: usize,
    write: Vec<Command>,
    check: Vec<Command>,
    out: Memory,
    _tensors: Vec<Tensor>,
}

/// All parts.
pub(crate) struct MemoryTest {
    parts: Vec<Part>,
    /// The round's base and whether the index counts, for writing and for comparing: two memories, or both sides of the
    /// comparison would be one value.
    seeds: [Memory; 2],
    _seeds: [Tensor; 2],
}

impl MemoryTest {
    pub(crate) fn new(machine: &Machine, share: f64) -> Result<Self, BenchError> {
        let seed = |first: u32| {
            let t = Tensor::from_slice(&[first, 0u32], [2]).to(&machine.name).contiguous();
            t.realize().map(|_| t.clone()).map_err(BenchError::from)
        };
        let seeds = [seed(1)?, seed(2)?];
        let memories = [places(machine, &seeds[0])?, places(machine, &seeds[1])?];
        let mut all = Self { parts: Vec::new(), seeds: memories, _seeds: seeds };
        let words = if machine.is_small { 1 << 12 } else { 64 << 20 };
        let wanted = wanted(machine, share) / 4;
        let mut left = if machine.is_small { words as u64 * 2 } else { wanted.max(words as u64 / 4) };
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(words);
            match part(machine, count, &all._seeds) {
                Ok(part) => all.parts.push(part),
                // What is free is less than the driver says: that much is tested.
                Err(_) if !all.parts.is_empty() => break,
                Err(e) => return Err(e),
            }
            left -= count as u64;
        }
        Ok(all)
    }

    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn part_bytes(&self, part: usize) -> u64 {
        self.parts[part].count as u64 * 4
    }

    pub(crate) fn bytes(&self) -> u64 {
        (0..self.parts()).map(|part| self.part_bytes(part)).sum()
    }

    /// Writes and compares a part.
    pub(crate) fn round(&mut self, machine: &Machine, round: u64, part: usize) -> Result<Option<Finding>, BenchError> {
        let seed = pattern(round);
        for memory in &self.seeds {
            machine.device().copy_in(memory, 0, &seed.map(u32::to_le_bytes).concat())?;
        }
        let own = &self.parts[part];
        machine.run(QueueKind::Compute, &own.write)?;
        machine.device().copy_in(&own.out, 0, &NO_ANSWER)?;
        machine.run(QueueKind::Compute, &own.check)?;
        let (count, first) = answers(machine, &own.out)?;
        if count == 0 && first == own.count as u64 {
            return Ok(None);
        }
        let blank = Finding { test: "memory", round, text: String::new(), element: None, address: None, count };
        if first >= own.count as u64 {
            return Ok(Some(Finding { text: format!("no answer ({count:#x}, {first:#x})"), ..blank }));
        }
        let mut have = [0; 4];
        machine.device().copy_out(&own.words, first * 4, &mut have)?;
        let (have, want) = (u32::from_le_bytes(have), value(seed, first as u32));
        let address = own.words.va() + first * 4;
        let text = format!(
            "address {address:#x}: {have:#010x}, not {want:#010x} (bits {:#010x}); {count} words are wrong",
            have ^ want
        );
        Ok(Some(Finding { text, element: Some(first), address: Some(address), ..blank }))
    }
}

/// Base, and whether the index counts: of the first rounds plain patterns, then values that all differ.
fn pattern(round: u64) -> [u32; 2] {
    match BASES.get(round as usize % 8) {
        Some(base) => [*base, 0],
        None => [crate::stats::Draw(round).next() as u32, 1],
    }
}

/// A word's value.
fn value([base, counts]: [u32; 2], at: u32) -> u32 {
    base ^ at.wrapping_mul(SPREAD as u32).wrapping_mul(counts)
}

/// Bytes to cover: a share of what the driver says is free, else of the device's memory.
fn wanted(machine: &Machine, share: f64) -> u64 {
    let free = machine.state()["vram_free_bytes"].as_u64();
    let all =
        free.unwrap_or_else(|| machine.device().info().memory_bytes.saturating_sub(machine.device().memory_used()));
    // A CPU's memory is everyone's.
    let all = if machine.kind == crate::machine::Kind::Cpu { all / 16 } else { all };
    (all as f64 * share) as u64
}

fn part(machine: &Machine, count: usize, [written, compared]: &[Tensor; 2]) -> Result<Part, BenchError> {
    let of = |seed: &Tensor| {
        let at = Tensor::arange(count as i64).cast(Scalar::U32);
        let one = |n: usize| seed.shrink(&[(n, n + 1)]);
        one(0).bitxor(&(&(&at * SPREAD).cast(Scalar::U32) * &one(1)))
    };
    let (mut words, write) = captured_all(|| vec![of(written).contiguous()])?;
    let (checked, check) = captured_all(|| {
        let is_wrong = words[0].ne(&of(compared));
        let wrong = is_wrong.cast(Scalar::I32).sum(()).reshape([1]);
        let at = Tensor::arange(count as i64).cast(Scalar::I32);
        let first = is_wrong.where_(&at, &at.const_like(count as i64)).min(()).reshape([1]);
        vec![Tensor::cat(&[&wrong, &first], 0).contiguous()]
    })?;
    let (memory, out) = (places(machine, &words[0])?, places(machine, &checked[0])?);
    words.extend(checked);
    Ok(Part { words: memory, count, write: write.commands, check: check.commands, out, _tensors: words })
}
