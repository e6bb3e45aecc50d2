//! Bank conflicts of a kernel's accesses of workgroup memory.
//!
//! NVIDIA's and AMD's workgroup memory has 32 banks of 4 bytes and serves a word of each in a cycle; threads that want
//! the same word share it (CUDA C++ Programming Guide, "Shared Memory"; AMD's RDNA3 and CDNA3 ISA documents, "LDS").
//! An access of 8 or 16 bytes a thread takes the threads in groups that want 128 bytes together.

use crate::codegen::Program;
use crate::uop::{AddrSpace, Arg, ConstVal, Op, UOp, eval_alu};
use std::collections::HashMap;

const BANKS: u64 = 32;
const WORD_BYTES: u64 = 4;

/// Each access of workgroup memory whose address does not depend on memory: its index in the linear program, and the
/// cycles that its worst group of threads takes. 1: no conflict. Loops are looked at in their first iteration.
pub(super) fn conflicts(program: &Program) -> Vec<(usize, u32)> {
    let threads = program.local.iter().product::<u32>().min(32);
    if threads < 2 {
        return Vec::new();
    }
    let accesses = program.uops.iter().enumerate().filter_map(|(at, u)| Some((at, access(u)?)));
    accesses.filter_map(|(at, (index, bytes))| Some((at, ways(program, threads, index, bytes)?))).collect()
}

/// The address and the bytes a thread takes, if this is an access of workgroup memory.
fn access(u: &UOp) -> Option<(&UOp, u64)> {
    let index = u.src().first()?;
    if index.op() != Op::Index || index.dtype().space != Some(AddrSpace::Local) || index.src()[1].dtype().lanes != 1 {
        return None;
    }
    let value = match u.op() {
        Op::Load => u.dtype(),
        Op::Store => u.src()[1].dtype(),
        Op::LoadMatrix => return Some((index, 16)),
        _ => return None,
    };
    Some((index, value.scalar.size_bytes() as u64 * u64::from(value.lanes)))
}

fn ways(program: &Program, threads: u32, index: &UOp, bytes: u64) -> Option<u32> {
    let element_bytes = index.dtype().scalar.size_bytes() as u64;
    let addresses: Option<Vec<u64>> = (0..threads)
        .map(|thread| {
            let [x, y, _] = program.local;
            let at = [thread % x, thread / x % y, thread / x / y];
            let element = Values { at, known: HashMap::new() }.of(&index.src()[1])?;
            Some(u64::try_from(element).ok()? * element_bytes)
        })
        .collect();
    let group = (BANKS * WORD_BYTES / bytes.max(WORD_BYTES)).max(1) as usize;
    addresses?.chunks(group).map(|threads| cycles(threads, bytes)).max()
}

/// The most words that these threads want of one bank.
fn cycles(addresses: &[u64], bytes: u64) -> u32 {
    let mut words: Vec<u64> = addresses.iter().flat_map(|a| a / WORD_BYTES..(a + bytes).div_ceil(WORD_BYTES)).collect();
    words.sort_unstable();
    words.dedup();
    let mut of_bank = [0; BANKS as usize];
    for w in words {
        of_bank[(w % BANKS) as usize] += 1;
    }
    of_bank.into_iter().max().unwrap_or(0)
}

/// Values of index expressions for one thread.
struct Values {
    /// Its place in the workgroup.
    at: [u32; 3],
    known: HashMap<u64, Option<i128>>,
}

impl Values {
    fn of(&mut self, u: &UOp) -> Option<i128> {
        if let Some(known) = self.known.get(&u.id()) {
            return *known;
        }
        let value = self.compute(u);
        self.known.insert(u.id(), value);
        value
    }

    fn compute(&mut self, u: &UOp) -> Option<i128> {
        match (u.op(), u.arg()) {
            (Op::Const, Arg::Const(v)) => v.as_int(),
            (Op::Special, Arg::Str(name)) => Some(name.strip_prefix("lidx").map_or(0, |axis| {
                axis.parse::<usize>().ok().and_then(|k| self.at.get(k)).map_or(0, |&n| i128::from(n))
            })),
            (Op::Range, _) => Some(0),
            (Op::Var, Arg::Var(_, least, _)) => Some(i128::from(*least)),
            (Op::After, _) => self.of(&u.src()[0]),
            (Op::Load | Op::Acc, _) => None,
            _ => {
                let operands = u.src().iter().map(|s| Some(ConstVal::Int(self.of(s)?))).collect::<Option<Vec<_>>>()?;
                if let (Op::Cast, [ConstVal::Int(v)]) = (u.op(), operands.as_slice()) {
                    return Some(*v);
                }
                eval_alu(u.op(), u.src().last()?.dtype().scalar, &operands)?.as_int()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_as_on_the_hardware() {
        // A column of 4-byte words: row after row of 32 words has all threads at one bank, of 33 words at different
        // ones.
        let column = |stride: u64| (0..32).map(|t| t * stride * 4).collect::<Vec<u64>>();
        for (stride, ways) in [(1, 1), (2, 2), (32, 32), (33, 1), (0, 1), (48, 16)] {
            assert_eq!(cycles(&column(stride), 4), ways, "stride {stride}");
        }
        // 16 bytes a thread, 8 threads a time.
        let rows = |stride: u64| (0..8).map(|t| t * stride).collect::<Vec<u64>>();
        for (stride, ways) in [(16, 1), (128, 8), (144, 1), (64, 4)] {
            assert_eq!(cycles(&rows(stride), 16), ways, "rows of {stride} bytes");
        }
    }
}
