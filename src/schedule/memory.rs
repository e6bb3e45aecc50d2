//! The memory plan: temporaries with disjoint lifetimes share the bytes of an arena.
//!
//! One arena a device and lane; values that a copy touches have their own lane, and those that devices pass to each
//! other a block each, so that reuse never makes a copy wait for a kernel it does not need. Values that outlive the
//! schedule get memory of their own.

use crate::sort;
/// Where a temporary is stored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A buffer of its own.
    Own,
    /// Bytes of an arena.
    Arena { arena: u32, offset_bytes: usize },
    /// Never touched.
    Unused,
}

/// Memory of all temporaries of a plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryPlan {
    pub places: Vec<Storage>,
    pub arenas: Vec<Arena>,
}

/// A block that the engine allocates once for the whole schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Number of the device in the plan.
    pub device: u32,
    /// Its size.
    pub len_bytes: usize,
    copied: bool,
    passed: bool,
}

/// Lifetime of a temporary.
pub(crate) struct TempUse {
    pub bytes: usize,
    pub device: u32,
    pub held: bool,
    pub copied: bool,
    /// Between devices: it has a block of its own, so that a device which still reads it delays no other value.
    pub passed: bool,
    /// First and last step that touches it.
    pub span: Option<(usize, usize)>,
}

/// Start of every value in an arena is a multiple of this (a cache line pair; larger than any vector).
const ALIGN_BYTES: usize = 256;

/// Assigns offsets to all temporaries: large ones first, each at the lowest offset that is free during its lifetime.
pub(crate) fn plan(uses: &[TempUse]) -> MemoryPlan {
    let mut out = MemoryPlan { places: vec![Storage::Unused; uses.len()], arenas: Vec::new() };
    let mut by_size: Vec<usize> = (0..uses.len()).collect();
    sort::by_key(&mut by_size, |k| (std::cmp::Reverse(uses[*k].bytes), *k));
    let mut placed: Vec<Vec<(usize, usize, usize)>> = Vec::new();
    for k in by_size {
        let u = &uses[k];
        let Some((first, last)) = u.span else { continue };
        if u.held {
            out.places[k] = Storage::Own;
            continue;
        }
        let joins = |a: &Arena| a.device == u.device && a.copied == u.copied && !a.passed;
        let lane = if u.passed { None } else { out.arenas.iter().position(joins) };
        let arena = lane.unwrap_or_else(|| {
            out.arenas.push(Arena { device: u.device, len_bytes: 0, copied: u.copied, passed: u.passed });
            placed.push(Vec::new());
            out.arenas.len() - 1
        });
        let bytes = u.bytes.next_multiple_of(ALIGN_BYTES).max(ALIGN_BYTES);
        let offset = lowest_free(&placed[arena], uses, (first, last), bytes);
        let at = placed[arena].partition_point(|p| p.0 <= offset);
        placed[arena].insert(at, (offset, bytes, k));
        out.arenas[arena].len_bytes = out.arenas[arena].len_bytes.max(offset + bytes);
        out.places[k] = Storage::Arena { arena: arena as u32, offset_bytes: offset };
    }
    out
}

/// The lowest offset where `bytes` are free during `span`; `placed` is sorted by offset.
fn lowest_free(placed: &[(usize, usize, usize)], uses: &[TempUse], span: (usize, usize), bytes: usize) -> usize {
    let mut at = 0;
    for (offset, len, other) in placed {
        let alive = uses[*other].span.is_some_and(|(a, b)| a <= span.1 && span.0 <= b);
        if !alive {
            continue;
        }
        if *offset >= at + bytes {
            break;
        }
        at = at.max(offset + len);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(bytes: usize, first: usize, last: usize) -> TempUse {
        TempUse { bytes, device: 0, held: false, copied: false, passed: false, span: Some((first, last)) }
    }

    #[test]
    fn values_with_disjoint_lives_share_bytes_and_others_do_not() {
        let p = plan(&[temp(1000, 0, 1), temp(1000, 1, 2), temp(1000, 2, 3)]);
        let at = |k: usize| match p.places[k] {
            Storage::Arena { offset_bytes, .. } => offset_bytes,
            _ => usize::MAX,
        };
        assert_eq!(at(0), at(2));
        assert_ne!(at(0), at(1));
        assert_eq!(p.arenas[0].len_bytes, 2048);
    }

    #[test]
    fn held_values_are_their_own_buffers_and_copies_have_their_own_arena() {
        let mut u = vec![temp(8, 0, 0), temp(8, 1, 1), temp(8, 2, 2)];
        u[0].held = true;
        u[1].copied = true;
        let p = plan(&u);
        assert_eq!(p.places[0], Storage::Own);
        assert_eq!(p.arenas.len(), 2);
        // What devices pass to each other lies alone.
        let mut u = vec![temp(8, 0, 0), temp(8, 1, 1), temp(8, 2, 2)];
        u[1].passed = true;
        u[2].passed = true;
        assert_eq!(plan(&u).arenas.len(), 3);
    }
}
