//! Instructions that act on caches: which ones, by name and scope.
//!
//! Source: LLVM's AMDGPU usage (memory models of gfx942, gfx10-gfx11, gfx12); docs/amd-isa.md 5.8.

use super::Chip;
use super::group::Unit;
use super::inst::{Inst, Scope};
use super::shadow::Flush;
use super::wait::Counter;
use super::wave::Wave;

/// The action that the name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Prefetches, write-backs of the scalar cache (nothing is stored through it).
    Nothing,
    /// `buffer_gl0_inv`.
    Near,
    /// `buffer_gl1_inv`, `s_gl1_inv`.
    Array,
    /// `s_dcache_inv`.
    Scalar,
    /// `buffer_inv`, `global_inv`: as far as the scope reaches.
    Invalidate,
    /// `buffer_wbl2`, `global_wb`.
    WriteBack,
    /// `global_wbinv`.
    Both,
}

impl Act {
    /// The kind by a vector instruction's name after its prefix.
    pub(crate) fn vector(name: &str) -> Option<Self> {
        Some(match name {
            "gl0_inv" => Self::Near,
            "gl1_inv" => Self::Array,
            "inv" => Self::Invalidate,
            "wb" | "wbl2" => Self::WriteBack,
            "wbinv" => Self::Both,
            _ => return None,
        })
    }

    /// Of a scalar instruction's name.
    pub(crate) fn scalar(name: &str) -> Option<Self> {
        match name {
            "s_dcache_inv" => Some(Self::Scalar),
            "s_gl1_inv" => Some(Self::Array),
            _ if name.starts_with("s_dcache") || name.starts_with("s_prefetch") => Some(Self::Nothing),
            _ => None,
        }
    }

    /// What it does on a chip. `one_unit`: the waves of a workgroup share a vector cache.
    fn flush(self, chip: Chip, scope: Scope, one_unit: bool) -> Flush {
        let none = Flush::default();
        let far = scope >= Scope::Agent;
        let invalidate = match chip {
            // A workgroup in one compute unit needs no L0 action. L2: lines of memory that is not this card's own.
            Chip::Gfx942 => Flush { vector: far || scope == Scope::Group && !one_unit, l2: far, ..none },
            _ => Flush { vector: scope >= Scope::Group, l2: scope == Scope::System, ..none },
        };
        // gfx942's L2 is one of several of the agent; elsewhere there is one, and only system scope bypasses it.
        let write_back = if chip == Chip::Gfx942 { far } else { scope == Scope::System };
        match self {
            Self::Nothing => none,
            Self::Near => Flush { vector: true, ..none },
            Self::Array => Flush { array: true, ..none },
            Self::Scalar => Flush { scalar: true, ..none },
            Self::Invalidate => invalidate,
            Self::WriteBack => Flush { write_back, ..none },
            Self::Both => Flush { write_back, ..invalidate },
        }
    }
}

/// Executes it on the shadow state; returns the counters that it increments.
pub(super) fn execute(w: &mut Wave, unit: &mut Unit, i: &Inst, act: Act) {
    match (w.chip, act) {
        (Chip::Gfx942 | Chip::Gfx1201, Act::WriteBack) => w.waits.issue(Counter::Store),
        (Chip::Gfx1201, Act::Invalidate) => w.waits.issue(Counter::Load),
        (Chip::Gfx1201, Act::Both) => {
            w.waits.issue(Counter::Load);
            w.waits.issue(Counter::Store);
        }
        _ => {}
    }
    if let Some(shadow) = &mut unit.tlb.shadow {
        let flush = act.flush(w.chip, i.mem.scope, shadow.one_unit());
        if flush != Flush::default() {
            shadow.flush(w, flush);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_reach_as_far_as_the_memory_models_say() {
        let flush = |chip, act: Act, scope| act.flush(chip, scope, true);
        let (none, inv, wb) = (Flush::default(), Act::Invalidate, Act::WriteBack);
        assert_eq!(flush(Chip::Gfx942, inv, Scope::Group), none);
        assert_eq!(flush(Chip::Gfx942, inv, Scope::Agent), Flush { vector: true, l2: true, ..none });
        assert_eq!(flush(Chip::Gfx942, wb, Scope::Agent), Flush { write_back: true, ..none });
        assert_eq!(flush(Chip::Gfx942, wb, Scope::Group), none);
        assert_eq!(flush(Chip::Gfx1201, inv, Scope::Cu), none);
        assert_eq!(flush(Chip::Gfx1201, inv, Scope::Agent), Flush { vector: true, ..none });
        assert_eq!(flush(Chip::Gfx1201, inv, Scope::System), Flush { vector: true, l2: true, ..none });
        assert_eq!(flush(Chip::Gfx1201, wb, Scope::Agent), none);
        assert_eq!(inv.flush(Chip::Gfx942, Scope::Group, false), Flush { vector: true, ..none });
        assert_eq!(flush(Chip::Gfx1100, Act::Near, Scope::Cu), Flush { vector: true, ..none });
    }
}
