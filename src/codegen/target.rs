//! What codegen must know of a target; each `isa` offers one of these.

use doorbell_uop::{Op, Scalar, WmmaArg};

/// Facts about a target that opts, decompositions and linearisation depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// `x86_64-avx2`, `x86_64-avx512`, `gfx1100`, `null`.
    pub name: &'static str,
    /// Bytes of a vector register (0: no vectors). GPUs: bytes of the widest load or store of one thread.
    pub vector_bytes: u16,
    /// Vector registers a kernel may use. GPUs: 32-bit registers a thread may use before fewer waves fit.
    pub vector_regs: u16,
    /// Chunks of a Thread axis are worth making up to this number (cores of the device); 1 on GPUs.
    pub threads: u32,
    /// Index arithmetic in I64 (free on 64-bit CPUs) instead of I32 where bounds allow.
    pub index64: bool,
    /// Bytes of workgroup memory (CPU: scratch panel of a thread).
    pub local_bytes: usize,
    /// GPU style launch geometry; `None`: a CPU.
    pub grid: Option<Grid>,
    /// Data cache a thread may count on (bytes): for tile sizes.
    pub cache_bytes: usize,
    /// Arithmetic on f16 is native; else it is done in f32.
    pub f16_math: bool,
    /// `Op::Ldexp` is an instruction.
    pub ldexp: bool,
    /// Matrix units, the preferred one first.
    pub tensor_cores: &'static [WmmaArg],
    /// Copies from buffers to workgroup memory go on while a thread computes.
    pub async_copies: bool,
    /// A thread has TMA tiles of buffers copied to workgroup memory (`Op::CopyTile`), for matrix units that read it by themselves.
    pub tma_copies: bool,
    /// A wave loads fragments of a matrix unit from rows in workgroup memory (`Op::LoadMatrix`).
    pub matrix_loads: bool,
    /// Units that run workgroups side by side (GPUs; 0: not known).
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
    /// What AMD's compute queues take: up to 1024 threads a workgroup, 2^31-1 workgroups along x and 65535 along y and z.
    pub const fn amd(wave: u16) -> Grid {
        Grid { wave, max_workgroup: 1024, max_local: [1024; 3], max_global: [0x7fff_ffff, 0xffff, 0xffff] }
    }
    /// What NVIDIA's compute class takes.
    pub const fn nv() -> Grid {
        Grid { wave: 32, max_workgroup: 1024, max_local: [1024, 1024, 64], max_global: [0x7fff_ffff, 0xffff, 0xffff] }
    }
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
            grid: None,
            cache_bytes: 1 << 20,
            f16_math: false,
            ldexp: false,
            tensor_cores: &[],
            async_copies: false,
            tma_copies: false,
            matrix_loads: false,
            compute_units: 0,
        }
    }
    /// A GPU: 64 KiB of workgroup memory, loads of up to 16 bytes, 32-bit indices, f16 arithmetic through f32. A back end changes
    /// what differs: `Target { f16_math: true, tensor_cores: TC, ..Target::gpu("gfx1100", Grid::amd(32)) }`.
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
            ldexp: false,
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
    /// Whether the target's instructions do `op` on this scalar type directly; codegen decomposes the rest.
    pub fn supports(&self, op: Op, t: Scalar) -> bool {
        use Op::*;
        if matches!(op, Exp2 | Log2 | Sin | Pow | Threefry | FloorDiv | FloorMod) {
            return false;
        }
        match t {
            Scalar::F32 | Scalar::F64 => true,
            // Storage types: arithmetic in f32 (Cast, Load and Store of f16 and bf16 are native).
            Scalar::F16 if self.f16_math && matches!(op, Add | Sub | Mul | Neg | Max | MulAcc) => true,
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
