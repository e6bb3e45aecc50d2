//! Which back end compiles for a device's arch string. The only list of them.

use doorbell_amdgpu as amdgpu;
use doorbell_isa::Isa;
use doorbell_ptx::ptx;
use doorbell_x86_64 as x86_64;

/// Arch strings that kernels can be compiled for, for messages.
#[must_use]
pub fn known_archs() -> String {
    let cpus = ["x86_64-avx2", "x86_64-avx512", "x86_64-amx", "gfx1100", "gfx942", "gfx1201"];
    let chips = ptx::CHIPS.iter().map(|c| c.name);
    cpus.into_iter().chain(chips).collect::<Vec<_>>().join(", ")
}

/// The instruction set of a device's arch string; `None`: no kernel runs there.
#[must_use]
pub fn for_arch(arch: &str) -> Option<Box<dyn Isa>> {
    if arch == x86_64::AMX {
        return Some(Box::new(x86_64::X86_64::with_tiles(1)));
    }
    if let Some(gpu) = amdgpu::Amdgpu::for_arch(arch) {
        return Some(Box::new(gpu));
    }
    let level = x86_64::Arch::parse(arch)?;
    Some(Box::new(x86_64::X86_64::new(level, 1)))
}
