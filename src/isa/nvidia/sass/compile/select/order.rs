//! Order of memory: what an access that releases has before it, and one that acquires after it, as ptxas 13.5 does.
//!
//! A release at the scope of the block is a barrier of memory alone; at wider scopes errors of earlier stores are
//! waited for too. After an acquire at a wider scope the first-level cache has nothing left.

use super::build::Build;
use crate::ptx::Space;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::Mach;
use crate::sass::compile::read::flat::Flat;
use crate::sass::{Modifier, mods, op};

impl Build<'_> {
    /// An access with what its order asks for.
    pub(super) fn ordered(
        &mut self,
        i: &Flat,
        access: impl FnOnce(&mut Self, &Flat) -> Result<(), AsmError>,
    ) -> Result<(), AsmError> {
        let both = i.has("acq_rel");
        if both || i.has("release") {
            self.release_before(i);
        }
        access(self, i)?;
        let is_shared = matches!(i.space(), Some(Space::Shared | Space::SharedCta));
        let needs_none = i.has("cta") || is_shared && self.chip.is_before_hopper();
        if (both || i.has("acquire")) && !needs_none {
            self.push(Mach::new(op::CCTL_ALL).effect());
        }
        Ok(())
    }

    /// What an access that releases has before it.
    pub(super) fn release_before(&mut self, i: &Flat) {
        match () {
            () if i.has("cta") => self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(mods::sc::CTA).effect()),
            () if i.has("sys") => self.release(mods::sc::SYS),
            () => self.release(mods::sc::GPU),
        }
    }

    /// Release at a scope wider than the block.
    pub(super) fn release(&mut self, scope: Modifier) {
        self.push(Mach::new(op::MEMBAR_S).m(mods::k::ALL).m(scope).effect());
        self.push(Mach::new(op::ERRBAR_N).effect());
        if !self.chip.is_before_hopper() {
            self.push(Mach::new(op::CGAERRBAR_N).effect());
        }
    }
}
