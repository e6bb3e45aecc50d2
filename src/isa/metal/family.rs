//! What the families of Apple's GPUs can do.
//!
//! Sources: Apple's "Metal Feature Set Tables" and "Metal Shading Language Specification"; the layout of
//! `simdgroup_matrix` is in neither: two independent programs agree on it (tinygrad's `runtime/ops_python.py` and
//! MLX's `steel/gemm/mma.h`).

use doorbell_codegen::Target;
use doorbell_codegen::target::Grid;
use doorbell_uop::TileBit::{E, L};
use doorbell_uop::{Scalar, Spread, WmmaArg};

/// Slots of a kernel for buffers, variables included.
pub const MAX_BUFFERS: usize = 31;

/// Bytes of threadgroup memory.
const THREADGROUP_BYTES: usize = 32 << 10;

/// A family of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// A12 and A13: no matrix units, and `bfloat` is kept as its bits.
    Apple5,
    /// A14 and M1.
    Apple7,
    /// A15, A16 and M2.
    Apple8,
    /// A17, A18, M3 and M4.
    Apple9,
}

impl Family {
    /// All of them, the oldest first.
    pub const ALL: &'static [Family] = &[Family::Apple5, Family::Apple7, Family::Apple8, Family::Apple9];

    /// The arch string of devices and of `dump --target`: `metal` is the newest family that every supported Mac has.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Family::Apple5 => "metal-apple5",
            Family::Apple7 => "metal",
            Family::Apple8 => "metal-apple8",
            Family::Apple9 => "metal-apple9",
        }
    }

    /// The family of an arch string.
    #[must_use]
    pub fn parse(arch: &str) -> Option<Family> {
        if arch == "metal-apple7" {
            return Some(Family::Apple7);
        }
        Family::ALL.iter().copied().find(|f| f.name() == arch)
    }

    /// Whether the language has `bfloat` (from MSL 3.1 on, with Apple6 or newer).
    #[must_use]
    pub(crate) const fn has_bfloat(self) -> bool {
        !matches!(self, Family::Apple5)
    }

    /// The description of the target for codegen.
    #[must_use]
    pub const fn target(self) -> Target {
        let grid = Grid { wave: 32, max_workgroup: 1024, max_local: [1024; 3], max_global: [0x7fff_ffff; 3] };
        Target {
            local_bytes: THREADGROUP_BYTES,
            f16_math: true,
            f64: false,
            tensor_cores: if matches!(self, Family::Apple5) { &[] } else { UNITS },
            ..Target::gpu(self.name(), grid)
        }
    }
}

/// Rows and columns of an 8 x 8 matrix: two neighbouring columns a lane.
const ROW: &[doorbell_uop::TileBit] = &[L(1), L(2), L(4)];
const COL: &[doorbell_uop::TileBit] = &[E(0), L(0), L(3)];

const fn unit(name: &'static str, a: Scalar, acc: Scalar) -> WmmaArg {
    let whole = Spread { row: ROW, col: COL };
    WmmaArg {
        name,
        m: 8,
        n: 8,
        k: 8,
        a,
        acc,
        lanes: 32,
        a_spread: whole,
        b_spread: Spread { row: COL, col: ROW },
        c_spread: whole,
        from_memory: false,
    }
}

/// Products of `simdgroup_matrix`; the name is the type of the factors.
const UNITS: &[WmmaArg] = &[
    unit("simdgroup_half8x8", Scalar::F16, Scalar::F32),
    unit("simdgroup_bfloat8x8", Scalar::BF16, Scalar::F32),
    unit("simdgroup_half8x8", Scalar::F16, Scalar::F16),
    unit("simdgroup_float8x8", Scalar::F32, Scalar::F32),
];
