//! Hand-written kernels: what the benchmarks and the driver tests compare generated code with, as the machine's
//! ceiling.
//!
//! One folder an instruction set; each source file's head says what its kernels compute, their arguments and their
//! work. Those for AMD's chips are assembled by `doorbell asm` (docs/amd-kernels.md), those for x86-64 at build time
//! (`build.rs`) and kept as relocatable ELF files, so they take the same path through `doorbell_elf::link`
//! and a device's loader as generated code does.
//!
//! Kernel ABI of the whole project: `extern "C" fn kernel(args: *const u64, tid: u64)`; `args[i]` is a buffer's address
//! or a variable's value.
//!
//! Place in the arrows: depends on nothing. Left out: hosts other than x86-64 Linux, where [`KERNELS`] is empty.
#![warn(unreachable_pub)]

mod peaks;

pub use peaks::{CHAINS, Chain, Matrix, Peak, STEPS};

/// What a kernel needs of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: any processor of the architecture.
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 Foundation.
    Avx512,
}

impl Needs {
    /// Whether this machine has it.
    #[cfg(target_arch = "x86_64")]
    pub fn met(self) -> bool {
        match self {
            Self::Base => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
        }
    }

    /// Whether this machine has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn met(self) -> bool {
        false
    }
}

/// One hand-written kernel.
#[derive(Clone, Copy, Debug)]
pub struct AsmKernel {
    /// Its entry point in the object.
    pub name: &'static str,
    pub needs: Needs,
    /// A relocatable ELF file; several kernels may share one.
    pub object: &'static [u8],
}

/// The kernel with this name.
pub fn find(name: &str) -> Option<&'static AsmKernel> {
    KERNELS.iter().find(|kernel| kernel.name == name)
}

#[cfg(kernels_asm)]
mod objects {
    pub(super) const PEAK_FMA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/peak_fma.o"));
    pub(super) const MEMORY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/memory.o"));
    pub(super) const TRIAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/triad.o"));
    pub(super) const GEMM_MICRO: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gemm_micro.o"));
}

#[cfg(kernels_asm)]
const fn row(name: &'static str, needs: Needs, object: &'static [u8]) -> AsmKernel {
    AsmKernel { name, needs, object }
}

/// All kernels that were assembled for this host.
#[cfg(kernels_asm)]
#[rustfmt::skip]
pub const KERNELS: &[AsmKernel] = &[
    row("peak_fma_avx2",           Needs::Avx2,   objects::PEAK_FMA),
    row("peak_fma_avx512",         Needs::Avx512, objects::PEAK_FMA),
    row("read_avx2",              Needs::Avx2,   objects::MEMORY),
    row("read_avx512",            Needs::Avx512, objects::MEMORY),
    row("copy_avx2",              Needs::Avx2,   objects::MEMORY),
    row("copy_avx512",            Needs::Avx512, objects::MEMORY),
    row("fill_avx2",              Needs::Avx2,   objects::MEMORY),
    row("fill_avx512",            Needs::Avx512, objects::MEMORY),
    row("chase",                  Needs::Base,   objects::MEMORY),
    row("clock",                  Needs::Base,   objects::MEMORY),
    row("atomic",                 Needs::Base,   objects::MEMORY),
    row("triad_avx2",              Needs::Avx2,   objects::TRIAD),
    row("triad_stream_avx2",       Needs::Avx2,   objects::TRIAD),
    row("triad_avx512",            Needs::Avx512, objects::TRIAD),
    row("triad_stream_avx512",     Needs::Avx512, objects::TRIAD),
    row("gemm_micro_6x16_avx2",    Needs::Avx2,   objects::GEMM_MICRO),
    row("gemm_micro_8x48_avx512",  Needs::Avx512, objects::GEMM_MICRO),
    row("gemm_micro_14x32_avx512", Needs::Avx512, objects::GEMM_MICRO),
];

/// All kernels that were assembled for this host: none.
#[cfg(not(kernels_asm))]
pub const KERNELS: &[AsmKernel] = &[];

/// The kernels for NVIDIA's chips that are texts of `ptx/`: entry point and text.
const PTX: &[(&str, &str)] = &[
    ("atomic", include_str!("ptx/atomic.ptx")),
    ("chase", include_str!("ptx/chase.ptx")),
    ("clock", include_str!("ptx/clock.ptx")),
    ("copy", include_str!("ptx/copy.ptx")),
    ("copy_bulk", include_str!("ptx/copy_bulk.ptx")),
    ("fill", include_str!("ptx/fill.ptx")),
    ("nothing", include_str!("ptx/nothing.ptx")),
    ("peak_fma", include_str!("ptx/peak_fma.ptx")),
    ("peak_hmma", include_str!("ptx/peak_hmma.ptx")),
    ("peak_wgmma", include_str!("ptx/peak_wgmma.ptx")),
    ("read", include_str!("ptx/read.ptx")),
    ("shared_read", include_str!("ptx/shared_read.ptx")),
    ("sum", include_str!("ptx/sum.ptx")),
];

/// The PTX text of a kernel for a chip (`sm_90`), by its entry point. Whether the chip has the instructions, its
/// assembler says.
#[must_use]
pub fn ptx(name: &str, chip: &str) -> Option<String> {
    let of_file = PTX.iter().find(|(entry, _)| *entry == name).map(|(_, text)| (*text).to_owned());
    let text = of_file.or_else(|| Peak::find(name).map(Peak::text))?;
    Some(text.replace(".target sm_90a", ".target sm_90").replace("sm_90", chip))
}

/// The source of all kernels for one of AMD's chips (`gfx942`).
#[must_use]
pub fn amdgpu(chip: &str) -> Option<&'static str> {
    match chip {
        "gfx1100" => Some(include_str!("amdgpu/gfx1100.s")),
        "gfx1201" => Some(include_str!("amdgpu/gfx1201.s")),
        "gfx942" => Some(include_str!("amdgpu/gfx942.s")),
        _ => None,
    }
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
