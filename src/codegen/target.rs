//! What codegen must know of a target; each `isa` offers one of these.

use crate::uop::{Op, Scalar};

/// Facts about a target that opts, decompositions and linearisation depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `x86_64-avx2`, `x86_64-avx512`, `null`.
    pub name: &'static str,
    /// Bytes of a vector register (0: no vectors).
    pub vector_bytes: u16,
    /// Vector registers a kernel may use.
    pub vector_regs: u16,
    /// Chunks of a Thread axis are worth making up to this number (cores of the device); 1 on GPUs.
    pub threads: u32,
    /// Index arithmetic in I64 (free on 64-bit CPUs) instead of I32 where bounds allow.
    pub index64: bool,
    /// Bytes of workgroup memory (CPU: scratch panel of a thread).
    pub local_bytes: usize,
    /// GPU style launch geometry.
    pub has_grid: bool,
    /// Data cache a thread may count on (bytes): for tile sizes.
    pub cache_bytes: usize,
}

impl Target {
    /// No machine at all: scalar code, for devices that run nothing.
    pub const fn null() -> Target {
        Target {
            name: "null",
            vector_bytes: 0,
            vector_regs: 0,
            threads: 1,
            index64: true,
            local_bytes: 0,
            has_grid: false,
            cache_bytes: 1 << 20,
        }
    }
    /// Whether the target's instructions do `op` on this scalar type directly; codegen decomposes the rest.
    pub fn supports(&self, op: Op, t: Scalar) -> bool {
        use Op::*;
        if matches!(op, Exp2 | Log2 | Sin | Pow | Threefry | FloorDiv | FloorMod) {
            return false;
        }
        match t {
            Scalar::F32 | Scalar::F64 => true,
            // Storage types: arithmetic in f32 (Cast, Load and Store of f16 and bf16 are native).
            Scalar::F16 | Scalar::BF16 => matches!(op, Cast | Bitcast | Load | Store | Where),
            Scalar::F8E4M3 | Scalar::F8E5M2 => false,
            _ => true,
        }
    }
    /// Lanes of `t` in one vector register.
    pub fn lanes(&self, t: Scalar) -> u16 {
        if self.vector_bytes == 0 { 1 } else { self.vector_bytes / t.size_bytes().max(1) as u16 }
    }
}
