//! gfx1201: scalar registers that the vector unit has read, are written again, and read before that settled.
//!
//! The vector unit caches the scalar registers it has read, by pairs. Facts: docs/amd-isa.md 5.7, and LLVM's
//! description of the hazard (AMDGPUWaitSGPRHazards.cpp, 2026): scalar and buffer accesses settle everything; a wait
//! settles what its field names; the scalar unit waits for the vector unit's writes by itself when it reads one, and
//! all older ones have completed then.

use super::super::Unit;
use super::CheckError;
use super::flow::{At, Bank, Code, Touch};

const VCC: u16 = 106;

pub(super) fn check(code: &Code) -> Result<(), CheckError> {
    let kept = kept(code);
    for (k, at) in code.all.iter().enumerate() {
        let vector = at.is_vector();
        if !vector && !is_scalar(at) {
            continue;
        }
        for t in at.writes.iter().filter(|t| tracked(t)) {
            for reg in t.first..t.first + t.count {
                if kept[k] >> (reg / 2) & 1 == 1 {
                    follow(code, &kept, k, reg, vector)?;
                }
            }
        }
    }
    Ok(())
}

fn tracked(t: &Touch) -> bool {
    t.bank == Bank::Scalar && t.first < 124
}

fn is_scalar(at: &At) -> bool {
    matches!(at.unit, Unit::Salu | Unit::Branch)
}

/// Pairs that the vector unit may have read up to each instruction, itself included.
fn kept(code: &Code) -> Vec<u64> {
    let own = |at: &At| {
        let read = at.reads.iter().filter(|t| at.is_vector() && tracked(t));
        read.flat_map(|t| t.first..t.first + t.count).fold(0u64, |sum, reg| sum | 1 << (reg / 2))
    };
    let mut kept: Vec<u64> = code.all.iter().map(own).collect();
    let mut open: Vec<usize> = (0..code.all.len()).collect();
    while let Some(k) = open.pop() {
        for n in &code.all[k].next {
            if kept[*n] | kept[k] != kept[*n] {
                kept[*n] |= kept[k];
                open.push(*n);
            }
        }
    }
    kept
}

fn follow(code: &Code, kept: &[u64], write: usize, reg: u16, vector: bool) -> Result<(), CheckError> {
    let vcc = reg == VCC || reg == VCC + 1;
    let this = Touch { bank: Bank::Scalar, first: reg, count: 1, operand: None };
    code.walk(write, (), |k, at, ()| {
        let mask = at.immediate();
        let settled = match (vector, vcc) {
            (false, _) => mask & 1 == 0,
            (true, true) => mask >> 1 & 1 == 0,
            (true, false) => mask >> 9 & 7 == 0,
        };
        if at.name == "s_wait_alu" && settled || matches!(at.unit, Unit::Smem | Unit::Buffer) {
            return Ok(None);
        }
        let scalar = is_scalar(at);
        // Cached registers that the scalar unit reads have settled, and so have older writes.
        let known = |t: &&Touch| tracked(t) && (t.first..t.first + t.count).any(|r| kept[k] >> (r / 2) & 1 == 1);
        if vector && scalar && at.reads.iter().filter(known).any(|t| (t.first & !1 == VCC) == vcc) {
            return Ok(None);
        }
        if (scalar || at.is_vector()) && at.reads_any(&this) {
            return Err(CheckError::TooEarly {
                offset: at.offset,
                text: code.text(k),
                rule: "a scalar register that the vector unit has read is read after a write that may not have settled",
                first: code.all[write].offset,
                first_text: code.text(write),
                have: 0,
                want: 1,
            });
        }
        let replaced = vcc && (scalar || at.is_vector()) && at.writes_any(&this);
        Ok((!replaced).then_some(()))
    })
}
