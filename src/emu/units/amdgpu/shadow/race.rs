//! Races: two waves of a dispatch access the same bytes, one of them storing, with no barrier between.

use super::{Cell, How, Side, Touch};
use crate::amdgpu::fault::{FaultKind, R, fail};

/// Whether another wave of the same dispatch made an access that conflicts with this one.
#[inline]
pub(super) fn race(c: &Cell, t: &Touch, done: &impl Fn(u8) -> u32) -> R<()> {
    let Touch { va, me, how, .. } = *t;
    // Most dwords were last accessed by an earlier dispatch, or only read by this one.
    if c.write.dispatch != me.dispatch && (c.read.dispatch != me.dispatch || !how.is_store()) {
        return Ok(());
    }
    let stores = matches!(how, How::Write | How::WriteThrough);
    let meets = |side: &Side| side.dispatch == me.dispatch && side.bytes & me.bytes != 0 && !side.synced;
    let found = |other: How, side: &Side| {
        let (this, other) = (how.name(), other.name());
        fail(FaultKind::GlobalRace { va, this, other, group: side.group, wave: side.wave.into() })
    };
    // A plain load next to atomics is how loops around compare-and-swap begin.
    if (stores || !c.write.atomic) && meets(&c.write) {
        let other = if c.write.atomic { How::Atomic } else { How::Write };
        let near = c.write.group == me.group;
        if !near || c.write.wave != me.wave && c.write.epoch == me.epoch {
            return found(other, &c.write);
        }
        if c.write.wave != me.wave && c.store > done(c.write.wave) {
            return fail(FaultKind::GlobalStoreNotWaited { va, wave: c.write.wave.into() });
        }
    }
    if stores && meets(&c.read) {
        let near = c.read.group == me.group && !c.read.far;
        let other_wave = c.read.wave != me.wave || c.read.many;
        if !near || other_wave && c.read.epoch == me.epoch {
            return found(How::Read, &c.read);
        }
    }
    Ok(())
}
