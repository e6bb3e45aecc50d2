//! What a load may find in a cache in place of memory, level by level.
//!
//! Vector caches (L0 of gfx11 and gfx12, L1 of gfx942) and GL1 (gfx11's, one a shader array) hold the lines that
//! non-coherent loads have read; a store writes through them and updates the line in the cache of its own compute unit
//! only. The scalar cache holds what scalar loads have read. L2 holds lines of loads and stores: others change memory
//! without it noticing, unless the page is kept coherent by probes. On a card of several XCCs, each with an L2, the
//! others see a store only after it was written back.
//!
//! Source: LLVM's AMDGPU usage, memory models of gfx942, gfx10-gfx11 and gfx12; docs/amd.md 2.8, docs/amd-isa.md 5.8.

use super::stamps::Invalidated;
use super::{Cell, How, L2, Line, Rules, Touch};
use crate::amdgpu::Chip;
use crate::amdgpu::fault::{FaultKind, R, fail};

/// What a cache took from memory, and when; 0: never.
#[derive(Clone, Copy, Default)]
pub(super) struct Taken {
    pub when: u32,
    pub value: u32,
}

/// Names of the vector caches from the compute unit on.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    near: &'static str,
    array: Option<&'static str>,
}

impl Levels {
    pub(crate) fn of(chip: Chip) -> Self {
        match chip {
            Chip::Gfx1100 => Self { near: "vector L0", array: Some("GL1") },
            Chip::Gfx942 => Self { near: "vector L1", array: None },
            Chip::Gfx1201 => Self { near: "vector L0", array: None },
        }
    }
}

/// The bits of these bytes.
#[inline]
pub(super) fn mask(bytes: u8) -> u32 {
    if bytes & 15 == 15 {
        return u32::MAX;
    }
    u32::from_le_bytes([0, 1, 2, 3].map(|n| if bytes >> n & 1 == 1 { 255 } else { 0 }))
}

/// The caches on the path of a load.
#[inline]
pub(super) fn load(rules: &Rules, line: &mut Line, c: &mut Cell, t: &Touch) -> R<()> {
    match t.how {
        How::Read => vector(rules, line, c, t)?,
        How::Scalar => scalar(rules, c, t)?,
        _ => {}
    }
    if rules.policy.l2 == L2::Cached && t.how != How::PastL2 {
        l2(rules, c, t)?;
    }
    if rules.xccs > 1 && rules.policy.l2 != L2::Bypassed {
        other_xcc(rules, c, t)?;
    }
    Ok(())
}

/// The last store went through the vector cache that this load reads. Or it was an atomic of the same dispatch: a loop
/// around compare-and-swap begins with a load that may find an old value.
#[inline]
fn own_store(rules: &Rules, c: &Cell, t: &Touch) -> bool {
    let (w, me) = (&c.write, &t.me);
    w.dispatch == me.dispatch && (w.atomic || w.group == me.group && (rules.one_unit || w.wave == me.wave))
}

/// The compute unit that read the line made the store too, so that the line holds the newer value.
#[inline]
fn taker_stored(rules: &Rules, c: &Cell, line: &Line) -> bool {
    let w = &c.write;
    line.dispatch == w.dispatch
        && line.group == w.group
        && !line.far
        && (rules.one_unit || line.wave == w.wave && !line.many)
}

#[inline]
fn vector(rules: &Rules, line: &mut Line, c: &mut Cell, t: &Touch) -> R<()> {
    let Invalidated { vector, array, .. } = rules.invalidated;
    let bits = mask(c.taken_bytes & t.me.bytes);
    if !own_store(rules, c, t) && !taker_stored(rules, c, line) {
        let changed = (c.taken.value ^ t.value) & bits != 0;
        // The dword itself, or a neighbour that brought it along before it was stored.
        let may_hold = |invalidated: u32| {
            changed && c.taken.when > invalidated
                || line.when > invalidated && line.when < c.stored && c.taken.when <= invalidated
        };
        let found = |cache| fail(FaultKind::StaleRead { va: t.va, cache });
        if may_hold(vector) {
            return found(rules.levels.near);
        }
        // One shader array, one GL1: a workgroup never leaves it.
        let near = c.write.dispatch == t.me.dispatch && c.write.group == t.me.group;
        if let Some(name) = rules.levels.array.filter(|_| !near && may_hold(array)) {
            return found(name);
        }
    }
    if c.taken.when > vector.min(array_or(rules, vector, array)) {
        c.taken.value = c.taken.value & !mask(t.me.bytes) | t.value & mask(t.me.bytes);
        c.taken_bytes |= t.me.bytes;
    } else {
        c.taken = Taken { when: rules.now, value: t.value & mask(t.me.bytes) };
        c.taken_bytes = t.me.bytes;
    }
    line.take(vector.min(array_or(rules, vector, array)), rules.now, &t.me);
    Ok(())
}

#[inline]
fn array_or(rules: &Rules, vector: u32, array: u32) -> u32 {
    if rules.levels.array.is_some() { array } else { vector }
}

/// A whole dword through the scalar cache.
#[inline]
fn scalar(rules: &Rules, c: &mut Cell, t: &Touch) -> R<()> {
    if t.me.bytes != 15 {
        return Ok(());
    }
    if c.scalar.when > rules.invalidated.scalar && c.scalar.value != t.value {
        return fail(FaultKind::StaleRead { va: t.va, cache: "scalar cache" });
    }
    c.scalar = Taken { when: rules.now, value: t.value };
    Ok(())
}

/// Memory that was changed without L2 noticing.
#[inline]
fn l2(rules: &Rules, c: &mut Cell, t: &Touch) -> R<()> {
    let bits = mask(t.me.bytes);
    if c.l2.when > rules.l2_invalidated {
        if (c.l2.value ^ t.value) & bits != 0 {
            return fail(FaultKind::StaleRead { va: t.va, cache: "L2" });
        }
    } else if t.me.bytes == 15 {
        c.l2 = Taken { when: rules.now, value: t.value };
    }
    Ok(())
}

/// What a store leaves in L2.
#[inline]
pub(super) fn store(rules: &Rules, c: &mut Cell, t: &Touch) {
    if t.how == How::Atomic {
        c.l2.when = 0;
    } else if t.me.bytes == 15 {
        c.l2 = Taken { when: rules.now, value: t.value };
    } else {
        let bits = mask(t.me.bytes);
        c.l2.value = c.l2.value & !bits | t.value & bits;
    }
    c.stored = rules.now;
}

/// A store that is still in the L2 of one XCC, read on a possibly different XCC.
fn other_xcc(rules: &Rules, c: &Cell, t: &Touch) -> R<()> {
    let (w, xccs) = (&c.write, rules.xccs);
    let (theirs, mine) = (w.group % xccs, t.me.group % xccs);
    let here = w.dispatch == t.me.dispatch && theirs == mine;
    if w.dispatch == 0 || w.clean || w.atomic || here || c.stored <= rules.back(theirs) || w.bytes & t.me.bytes == 0 {
        return Ok(());
    }
    fail(FaultKind::NotWrittenBack { va: t.va, group: w.group, xcc: theirs })
}
