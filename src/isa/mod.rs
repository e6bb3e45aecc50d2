//! Linear program → machine code, one folder a target.
//!
//! Each target implements [`Isa`]: what codegen must know of it, a program's object code, and that code as text.
//! Depends on `codegen` (Program, Target, register allocation), `uop` and `elf` (Object); does no I/O.
#![forbid(unsafe_code)]

use doorbell_codegen::{Program, Target};
use doorbell_elf::Object;
use doorbell_uop::{DType, Op};
use thiserror::Error;

pub mod amdgpu;
pub mod nvidia;
pub mod x86_64;

pub use nvidia::{ptx, sass};

/// An instruction set that programs can be made for.
pub trait Isa: Send + Sync {
    /// What codegen must know of it.
    fn target(&self) -> &Target;
    /// Machine code of one program; the entry symbol is the program's name.
    ///
    /// # Errors
    /// An op or dtype that has no instruction here, or more registers or memory than there are.
    fn assemble(&self, program: &Program) -> Result<Object, IsaError>;
    /// The object's code as text, one instruction a line (DEBUG=7).
    ///
    /// # Errors
    /// Bytes that are no instruction.
    fn disassemble(&self, object: &Object) -> Result<String, IsaError>;
}

/// What an instruction set refuses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsaError {
    #[error("{kernel}: {target} has no instruction for {op:?} on {dtype}")]
    Unsupported { kernel: String, target: &'static str, op: Op, dtype: DType },
    #[error("{kernel}: {why}")]
    Malformed { kernel: String, why: String },
    #[error("{kernel}: instruction {index} cannot be encoded: {why}")]
    Encoding { kernel: String, index: usize, why: String },
    #[error("bytes at offset {offset} are no instruction")]
    NotCode { offset: usize },
}

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
