//! What codegen must know about a target; each back end in `isa` provides one.

use doorbell_uop::{Op, Scalar, WmmaArg};

/// Properties of a target that opts, decompositions and linearisation depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `x86_64-avx2`, `x86_64-avx512`, `gfx1100`, `null`.
    pub name: &'static str,
    /// Bytes of a vector register (0: no vectors). GPUs: bytes of the widest load or store of one thread.
    pub vector_bytes: u16,
    /// Vector registers a kernel may use. GPUs: 32-bit registers a thread may use before fewer waves fit.
    pub vector_regs: u16,
    /// Maximum useful number of chunks of a Thread axis (cores of the device); 1 on GPUs.
    pub threads: u32,
    /// Index arithmetic in I64 (free on 64-bit CPUs) instead of I32 where bounds allow.
    pub index64: bool,
    /// Bytes of workgroup memory (CPU: scratch memory of one thread).
    pub local_bytes: usize,
    /// GPU style launch geometry; `None`: a CPU.
    pub grid: Option<Grid>,
    /// Bytes of data cache that one thread can rely on; used for tile sizes.
    pub cache_bytes: usize,
    /// f16 arithmetic is native; otherwise it is done in f32.
    pub f16_math: bool,
    /// f64 exists. Without it sin and pow of f32 are the target's own functions: they are computed in f64 elsewhere.
    pub f64: bool,
    /// `Op::Ldexp` is an instruction.
    pub ldexp: bool,
    /// `Op::Exp2` of f32 is an instruction with a relative error of 2^-22. Attentions on a GPU use it; elsewhere 2^x is
    /// decomposed.
    pub exp2: bool,
    /// Matrix units, in order of preference.
    pub tensor_cores: &'static [WmmaArg],
    /// Copies from buffers to workgroup memory run asynchronously while the thread computes.
    pub async_copies: bool,
    /// The target has asynchronous tile copies from buffers to workgroup memory (TMA, `Op::CopyTile`), for matrix units
    /// that read workgroup memory directly.
    pub tma_copies: bool,
    /// A wave can load fragments of a matrix unit from rows in workgroup memory (`Op::LoadMatrix`).
    pub matrix_loads: bool,
    /// Number of units that run workgroups in parallel (GPUs; 0: unknown).
    pub compute_units: u32,
}

/// Limits of a launch on a GPU. Workgroups and threads are counted by axis x, y, z.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Threads that run in lockstep (32 or 64).
    pub wave: u16,
    /// Threads of one workgroup, all axes together.
    pub max_workgroup: u32,
    /// Threads of one workgroup along each axis.
    pub max_local: [u32; 3],
    /// Workgroups along each axis.
    pub max_global: [u32; 3],
}

impl Grid {
    /// The limits of AMD's compute queues: up to 1024 threads a workgroup, 2^31-1 workgroups along x and 65535 along y
    /// and z.
    pub const fn amd(wave: u16) -> Grid {
        Grid { wave, max_workgroup: 1024, max_local: [1024; 3], max_global: [0x7fff_ffff, 0xffff, 0xffff] }
    }
    /// The limits of NVIDIA's compute class.
    pub const fn nv() -> Grid {
        Grid { wave: 32, max_workgroup: 1024, max_local: [1024, 1024, 64], max_global: [0x7fff_ffff, 0xffff, 0xffff] }
    }
}

impl Target {
    /// No machine: scalar code, for devices that execute nothing.
    pub const fn null() -> Target {
        Target {
            name: "null",
            vector_bytes: 0,
            vector_regs: 0,
            threads: 1,
            index64: true,
            local_bytes: 0,
            grid: None,
            cache_bytes: 1 << 20,
            f16_math: false,
            f64: true,
            ldexp: false,
            exp2: false,
            tensor_cores: &[],
            async_copies: false,
            tma_copies: false,
            matrix_loads: false,
            compute_units: 0,
        }
    }
    /// A generic GPU: 64 KiB of workgroup memory, loads of up to 16 bytes, 32-bit indices, f16 arithmetic through f32.
    /// A back end overrides what differs: `Target { f16_math: true, tensor_cores: TC, ..Target::gpu("gfx1100",
    /// Grid::amd(32)) }`.
    pub const fn gpu(name: &'static str, grid: Grid) -> Target {
        Target {
            name,
            vector_bytes: 16,
            vector_regs: 128,
            threads: 1,
            index64: false,
            local_bytes: 64 << 10,
            grid: Some(grid),
            cache_bytes: 16 << 10,
            f16_math: false,
            f64: true,
            ldexp: false,
            exp2: false,
            tensor_cores: &[],
            async_copies: false,
            tma_copies: false,
            matrix_loads: false,
            compute_units: 0,
        }
    }
    /// Whether kernels are launched as a grid of workgroups.
    pub const fn has_grid(&self) -> bool {
        self.grid.is_some()
    }
    /// Whether the target has an instruction for `op` on this scalar type. Codegen decomposes all others.
    pub fn supports(&self, op: Op, t: Scalar) -> bool {
        use Op::*;
        if matches!(op, Sin | Pow) && t == Scalar::F32 {
            return !self.f64;
        }
        if matches!(op, Exp2 | Log2 | Sin | Pow | Threefry | FloorDiv | FloorMod) {
            return false;
        }
        match t {
            Scalar::F32 | Scalar::F64 => true,
            // Storage types: their arithmetic is done in f32 (Cast, Load and Store of f16 and bf16 are native).
            Scalar::F16 if self.f16_math && matches!(op, Add | Sub | Mul | Neg | Max | MulAcc) => true,
            Scalar::F16 | Scalar::BF16 => matches!(op, Cast | Bitcast | Load | Store | Where),
            t if t.is_fp8() => false,
            _ => true,
        }
    }
    /// Lanes of `t` in one vector register.
    pub fn lanes(&self, t: Scalar) -> u16 {
        if self.vector_bytes == 0 { 1 } else { self.vector_bytes / t.size_bytes().max(1) as u16 }
    }
}
