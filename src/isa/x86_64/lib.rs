//! Linear program → x86-64 machine code.
//!
//! Place in the arrows: takes [`Program`], returns an
//! [`elf::Object`](doorbell_elf::Object) whose one global symbol is the kernel. The kernel is
//! `extern "C" fn(args: *const u64, tid: u64)` (System V): `args[i]` is the address of the i-th buffer, followed by the
//! variables' values as 64-bit integers.
//!
//! Steps: `select` turns nodes into instructions on virtual registers (`mir`), `codegen::regalloc` gives them
//! registers, `emit` encodes them with iced-x86. `rows` is the table of vector codes (generated), `gpr` that of general
//! ones, `ops` maps operations to rows.
//!
//! Two feature levels: AVX2 + FMA + F16C + BMI, and AVX-512 (F, BW, DQ, VL). Vector values wider than a register are
//! split into parts; bool vectors are mask registers on AVX-512 and all-ones lanes on AVX2. Floats outside an integer
//! type's range convert to the instruction's result. Sources: Intel SDM volume 2, System V ABI for AMD64.
//!
//! Outputs much larger than the cache are stored past it (`stream`).
//!
//! AMX (`tile`) is what the target `x86_64-amx` adds: products of bf16.
//!
//! Left out: AVX512-FP16, BF16 and VNNI, AMX's integers; a stack probe (scratch is limited to [`MAX_LOCAL_BYTES`]).
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod emit;
mod form;
mod gpr;
mod mir;
mod ops;
#[allow(unreachable_pub, reason = "generated")]
mod rows;
mod select;
mod stream;
#[cfg(test)]
mod tests;

use doorbell_codegen::regalloc::RegAllocError;
use doorbell_codegen::{self as codegen, Program};
use doorbell_elf::Object;
use doorbell_isa::{Backend, Binary, BinaryCode};
use doorbell_uop::{DType, Op};

/// Most scratch that a kernel may have: it is on the thread's stack.
pub const MAX_LOCAL_BYTES: usize = 512 << 10;

/// A feature level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// AVX2, FMA, F16C, BMI1, BMI2: every server CPU since 2013.
    Avx2,
    /// And AVX-512 F, BW, DQ, VL.
    Avx512,
}

impl Arch {
    /// The best level that this machine runs; `None` without AVX2.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Option<Arch> {
        use std::is_x86_feature_detected as has;
        let floor = has!("avx2") && has!("fma") && has!("f16c") && has!("bmi1") && has!("bmi2");
        let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        floor.then_some(if wide { Arch::Avx512 } else { Arch::Avx2 })
    }

    /// The best level that this machine runs: none, as it is no x86-64.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Option<Arch> {
        None
    }

    /// The level named as users name it (`ARCH=`).
    pub fn parse(name: &str) -> Option<Arch> {
        [Arch::Avx2, Arch::Avx512]
            .into_iter()
            .find(|a| a.name() == name || a.name().strip_prefix("x86_64-") == Some(name))
    }

    /// Name, as in [`codegen::Target::name`].
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Avx2 => "x86_64-avx2",
            Arch::Avx512 => "x86_64-avx512",
        }
    }

    /// Vector registers.
    pub const fn vector_regs(self) -> u16 {
        match self {
            Arch::Avx2 => 16,
            Arch::Avx512 => 32,
        }
    }

    /// Bytes of the widest vector register.
    pub const fn vector_bytes(self) -> u16 {
        match self {
            Arch::Avx2 => 32,
            Arch::Avx512 => 64,
        }
    }

    /// What codegen needs to know of this level, for a device with that many cores.
    pub const fn target(self, threads: u32) -> codegen::Target {
        codegen::Target {
            name: self.name(),
            vector_bytes: self.vector_bytes(),
            vector_regs: self.vector_regs(),
            threads,
            index64: true,
            local_bytes: 256 << 10,
            cache_bytes: 1 << 20,
            ldexp: matches!(self, Arch::Avx512),
            ..codegen::Target::null()
        }
    }
}

/// A kernel's machine code and what is worth knowing of it.
#[derive(Clone, Debug)]
pub struct MachineCode {
    /// Text, constants, relocations; one global function with the program's name.
    pub object: Object,
    /// Number of instructions.
    pub instructions: usize,
    /// Stores to and loads from spill slots.
    pub spill_moves: usize,
    /// Bytes of stack beyond saved registers.
    pub frame_bytes: u32,
}

impl MachineCode {
    /// The code as assembly text, a line an instruction with its offset (for DEBUG=7).
    pub fn assembly(&self) -> String {
        disassemble(&self.object.text).unwrap_or_else(|e| e.to_string())
    }
}

/// Code as assembly text, a line an instruction with its offset.
///
/// # Errors
/// Bytes that are no instruction.
pub fn disassemble(text: &[u8]) -> Result<String, doorbell_isa::IsaError> {
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
    let mut out = String::new();
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    for inst in &mut Decoder::new(64, text, DecoderOptions::NONE) {
        if inst.is_invalid() {
            return Err(doorbell_isa::IsaError::NotCode { offset: usize::try_from(inst.ip()).unwrap_or(usize::MAX) });
        }
        out.push_str(&format!("{:6x}:  ", inst.ip()));
        formatter.format(&inst, &mut out);
        out.push('\n');
    }
    Ok(out)
}

/// Name of AVX-512 with AMX's tiles: an arch of its own to devices, the AVX-512 level with a matrix unit to codegen.
pub const AMX: &str = "x86_64-amx";

/// The instruction set as the engine sees it.
#[derive(Clone, Debug)]
pub struct X86_64 {
    arch: Arch,
    target: codegen::Target,
}

impl X86_64 {
    /// A feature level on a device with so many cores.
    pub const fn new(arch: Arch, threads: u32) -> X86_64 {
        X86_64 { arch, target: arch.target(threads) }
    }

    /// AVX-512 with AMX (tile, bf16), for a process that may use tiles.
    pub const fn with_tiles(threads: u32) -> X86_64 {
        let target = Arch::Avx512.target(threads);
        X86_64 {
            arch: Arch::Avx512,
            target: codegen::Target { name: AMX, tensor_cores: codegen::units::AMX, ..target },
        }
    }
}

impl X86_64 {
    /// The instruction set of an arch by name, on a device with so many cores.
    #[must_use]
    pub fn for_arch(arch: &str, threads: u32) -> Option<X86_64> {
        if arch == AMX {
            return Some(X86_64::with_tiles(threads));
        }
        Arch::parse(arch).map(|level| X86_64::new(level, threads))
    }

    /// What codegen must know of it.
    #[must_use]
    pub const fn target(&self) -> &codegen::Target {
        &self.target
    }

    /// A program's machine code as an object.
    ///
    /// # Errors
    /// An op or dtype that has no instruction here, more registers or memory than there are.
    pub fn object(&self, program: &Program) -> Result<Object, doorbell_isa::IsaError> {
        let kernel = || program.name.clone();
        compile(program, self.arch).map(|c| c.object).map_err(|e| match e {
            IselError::Unsupported { op, dtype, .. } => {
                doorbell_isa::IsaError::Unsupported { kernel: kernel(), target: self.arch.name(), op, dtype }
            }
            IselError::Encode(why) => doorbell_isa::IsaError::Encoding { kernel: kernel(), index: 0, why },
            e => doorbell_isa::IsaError::Malformed { kernel: kernel(), why: e.to_string() },
        })
    }
}

impl Backend for X86_64 {
    fn target(&self) -> &codegen::Target {
        &self.target
    }

    fn compile(&self, program: &Program) -> Result<Binary, doorbell_isa::IsaError> {
        Ok(Binary::plain(program, BinaryCode::Object(self.object(program)?)))
    }

    fn listing(&self, binary: &Binary) -> Result<String, doorbell_isa::IsaError> {
        binary.object().map_or_else(|| Ok(String::new()), |object| disassemble(&object.text))
    }
}

/// Why a program has no machine code.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IselError {
    /// An op on a type that should have been decomposed before.
    #[error("x86-64: no instructions for {op:?} on {dtype}: {why}")]
    Unsupported {
        /// The op.
        op: Op,
        /// Its type.
        dtype: DType,
        /// What is missing.
        why: &'static str,
    },
    /// The list breaks the rules of a linear program.
    #[error("x86-64: malformed program: {0}")]
    Malformed(String),
    /// A limit of the target.
    #[error("x86-64: {what} of {len} bytes is too large")]
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
    #[error("x86-64: cannot encode {0}")]
    Encode(String),
    /// A fault in the selection.
    #[error("x86-64: {0}")]
    Internal(&'static str),
}

/// Compiles a program for a feature level.
///
/// # Errors
/// See [`IselError`].
pub fn compile(program: &Program, arch: Arch) -> Result<MachineCode, IselError> {
    let unit = select::select(program, arch, true)?;
    if unit.streamed.is_empty() {
        return emit::emit(unit);
    }
    let plain = emit::emit(select::select(program, arch, false)?)?;
    stream::either(&program.name, &unit.streamed.clone(), emit::emit(unit)?, plain)
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;
