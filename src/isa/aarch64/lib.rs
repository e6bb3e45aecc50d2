//! Linear program → AArch64 machine code.
//!
//! Place in the arrows: takes [`Program`], returns an [`elf::Object`](doorbell_elf::Object) whose one global symbol is
//! the kernel: `extern "C" fn(args: *const u64, tid: u64)` (AAPCS64), `args[i]` the address of the i-th buffer,
//! followed by the variables' values as 64-bit integers.
//!
//! Steps: `select` turns nodes into instructions on virtual registers (`mir`), `codegen::regalloc` gives them
//! registers, `emit` encodes them. `rows` is the table of instructions, `field` what their operands are, `codec` the
//! encoder, decoder and printer of it.
//!
//! One level: Armv8.0-A with Advanced SIMD. Vectors are 16 bytes; wider values are split into parts, and one float is
//! lane 0 of a vector. Bool vectors are all-ones lanes. f16 and bf16 are computed in f32. Sources: Arm Architecture
//! Reference Manual (DDI 0487), AAPCS64.
//!
//! Left out: FP16 arithmetic, dot products and SVE; fused scalar forms; code beyond 1 MiB; a stack probe (scratch is
//! limited to [`MAX_LOCAL_BYTES`]).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod codec;
mod emit;
pub mod field;
mod mir;
pub mod rows;
mod select;

use doorbell_codegen::regalloc::RegAllocError;
use doorbell_codegen::{self as codegen, Program};
use doorbell_elf::Object;
use doorbell_isa::{Backend, Binary, BinaryCode, IsaError};
use doorbell_uop::{DType, Op};

/// Most scratch that a kernel may have: it is on the thread's stack.
pub const MAX_LOCAL_BYTES: usize = 512 << 10;

/// Name of the level: Armv8.0-A with Advanced SIMD.
pub const NEON: &str = "aarch64-neon";

/// A kernel's machine code and what is worth knowing of it.
#[derive(Clone, Debug)]
pub struct MachineCode {
    /// Code with its constants; one global function with the program's name, as long as the code.
    pub object: Object,
    /// Number of instructions.
    pub instructions: usize,
    /// Stores to and loads from spill slots.
    pub spill_moves: usize,
    /// Bytes of stack.
    pub frame_bytes: u32,
}

impl MachineCode {
    /// The code as assembly text, a line an instruction with its offset.
    #[must_use]
    pub fn assembly(&self) -> String {
        listing(&self.object).unwrap_or_else(|e| e.to_string())
    }
}

fn listing(object: &Object) -> Result<String, IsaError> {
    let code = object.symbols.iter().find(|s| s.func).map_or(object.text.len() as u64, |s| s.size_bytes);
    codec::disassemble(&object.text, usize::try_from(code).unwrap_or(usize::MAX))
}

/// The instruction set as the engine sees it.
#[derive(Clone, Debug)]
pub struct Aarch64 {
    target: codegen::Target,
}

impl Aarch64 {
    /// The level with Advanced SIMD, on a device with so many cores.
    #[must_use]
    pub const fn new(threads: u32) -> Aarch64 {
        let target = codegen::Target {
            name: NEON,
            vector_bytes: 16,
            vector_regs: 32,
            threads,
            index64: true,
            local_bytes: 256 << 10,
            cache_bytes: 512 << 10,
            ..codegen::Target::null()
        };
        Aarch64 { target }
    }

    /// The instruction set of an arch by name, on a device with so many cores.
    #[must_use]
    pub fn for_arch(arch: &str, threads: u32) -> Option<Aarch64> {
        (arch == NEON).then(|| Aarch64::new(threads))
    }
}

impl Backend for Aarch64 {
    fn target(&self) -> &codegen::Target {
        &self.target
    }

    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        let kernel = || program.name.clone();
        let code = compile(program).map_err(|e| match e {
            IselError::Unsupported { op, dtype, .. } => {
                IsaError::Unsupported { kernel: kernel(), target: NEON, op, dtype }
            }
            IselError::Encode(why) => IsaError::Encoding { kernel: kernel(), index: 0, why },
            e => IsaError::Malformed { kernel: kernel(), why: e.to_string() },
        })?;
        Ok(Binary::plain(program, BinaryCode::Object(code.object)))
    }

    fn listing(&self, binary: &Binary) -> Result<String, IsaError> {
        binary.object().map_or_else(|| Ok(String::new()), listing)
    }
}

/// Why a program has no machine code.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IselError {
    /// An op on a type that should have been decomposed before.
    #[error("AArch64: no instructions for {op:?} on {dtype}: {why}")]
    Unsupported {
        /// The op.
        op: Op,
        /// Its type.
        dtype: DType,
        /// What is missing.
        why: &'static str,
    },
    /// The list breaks the rules of a linear program.
    #[error("AArch64: malformed program: {0}")]
    Malformed(String),
    /// A limit of the target.
    #[error("AArch64: {what} of {len} bytes is too large")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The requested size.
        len: usize,
    },
    /// No registers.
    #[error(transparent)]
    RegAlloc(#[from] RegAllocError),
    /// The encoder refused an instruction: a fault in the selection.
    #[error("AArch64: cannot encode {0}")]
    Encode(String),
    /// A fault in the selection.
    #[error("AArch64: {0}")]
    Internal(&'static str),
}

/// Compiles a program.
///
/// # Errors
/// See [`IselError`].
pub fn compile(program: &Program) -> Result<MachineCode, IselError> {
    emit::emit(select::select(program)?)
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
