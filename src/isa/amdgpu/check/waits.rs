//! Results of memory instructions used before a wait on their counter (docs/amd-isa.md 5.6).
//!
//! From each load a walk that counts the later operations of the same kind, which return in order: a wait for at most
//! that many means that the load is done. Scalar loads return in any order, and flat ones too: only a wait for none of
//! them counts.

use super::super::{Chip, Unit};
use super::CheckError;
use super::flow::{At, Code, Touch};

/// What returns in order among itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Memory,
    Lds,
    Scalar,
}

pub(super) fn check(code: &Code, chip: Chip) -> Result<(), CheckError> {
    for (k, at) in code.all.iter().enumerate() {
        for kind in kinds(at) {
            let exact = at.unit != Unit::Flat && kind != Kind::Scalar;
            follow(code, chip, k, kind, exact)?;
        }
    }
    Ok(())
}

/// The counters by which an instruction's result (or its effect on LDS) is waited for.
fn kinds(at: &At) -> Vec<Kind> {
    let vectors = || at.writes.iter().any(|t| t.bank != super::flow::Bank::Scalar);
    match at.unit {
        Unit::Global | Unit::Scratch | Unit::Buffer if vectors() => vec![Kind::Memory],
        Unit::Flat if vectors() => vec![Kind::Memory, Kind::Lds],
        Unit::Lds => vec![Kind::Lds],
        Unit::Smem if !at.writes.is_empty() => vec![Kind::Scalar],
        _ => vec![],
    }
}

/// Whether an instruction increments the counter of a load of that kind.
fn queues(at: &At, kind: Kind, chip: Chip) -> bool {
    match kind {
        Kind::Memory => at.is_memory() && (chip == Chip::Gfx942 || kinds(at).contains(&Kind::Memory)),
        Kind::Lds => at.unit == Unit::Lds,
        Kind::Scalar => false,
    }
}

fn follow(code: &Code, chip: Chip, load: usize, kind: Kind, exact: bool) -> Result<(), CheckError> {
    let first = &code.all[load];
    code.walk(load, 0u32, |k, at, later| {
        if waited(at, kind, chip).is_some_and(|n| n <= later) {
            return Ok(None);
        }
        if let Some(what) = conflict(first, at, kind) {
            return Err(CheckError::Unwaited {
                offset: at.offset,
                text: code.text(k),
                what,
                first: first.offset,
                first_text: code.text(load),
            });
        }
        Ok(Some(if exact && queues(at, kind, chip) { later + 1 } else { later }.min(64)))
    })
}

/// What an instruction has to do with a load in flight.
fn conflict(load: &At, at: &At, kind: Kind) -> Option<String> {
    if kind == Kind::Lds && matches!(at.name, "s_barrier" | "s_barrier_signal") {
        return Some("the effect on LDS".into());
    }
    let vectors = |t: &&Touch| load.unit == Unit::Smem || t.bank != super::flow::Bank::Scalar;
    let in_flight = || load.writes.iter().filter(vectors);
    if in_flight().any(|t| at.reads_any(t)) {
        return Some("the result".into());
    }
    // A later load of the same kind completes later.
    let completes_later =
        kind != Kind::Scalar && load.unit != Unit::Flat && at.unit != Unit::Flat && kinds(at).contains(&kind);
    (!completes_later && in_flight().any(|t| at.writes_any(t))).then(|| "an overwritten result".into())
}

/// The upper bound of a counter after an instruction.
fn waited(at: &At, kind: Kind, chip: Chip) -> Option<u32> {
    let imm = at.immediate();
    let field = |lo: u32, bits: u32| {
        let (n, all) = (imm >> lo & ((1 << bits) - 1), (1 << bits) - 1);
        (n != all).then_some(n)
    };
    match (at.name, kind, chip) {
        ("s_waitcnt", Kind::Memory, Chip::Gfx942) => {
            let n = imm & 15 | (imm >> 14 & 3) << 4;
            (n != 63).then_some(n)
        }
        ("s_waitcnt", Kind::Memory, _) => field(10, 6),
        ("s_waitcnt", _, Chip::Gfx942) => field(8, 4),
        ("s_waitcnt", ..) => field(4, 6),
        ("s_waitcnt_vmcnt", Kind::Memory, _) | ("s_wait_loadcnt", Kind::Memory, _) => Some(imm),
        ("s_waitcnt_lgkmcnt", Kind::Lds | Kind::Scalar, _) => Some(imm),
        ("s_wait_dscnt", Kind::Lds, _) | ("s_wait_kmcnt", Kind::Scalar, _) => Some(imm),
        ("s_wait_loadcnt_dscnt", Kind::Memory, _) => Some(imm >> 8),
        ("s_wait_loadcnt_dscnt" | "s_wait_storecnt_dscnt", Kind::Lds, _) => Some(imm & 0xff),
        ("s_wait_idle", ..) => Some(0),
        _ => None,
    }
}
