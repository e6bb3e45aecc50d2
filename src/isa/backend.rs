//! The interface of all back ends: from a linear program to what a device loads, and the order of the kernel's
//! arguments.
//!
//! Place in the architecture: below all instruction sets, which implement [`Backend`]; `engine` has the list of them
//! and holds one as a value. A new target (another CPU, a language such as MSL) is one more implementation.

use doorbell_codegen::{Program, Target};
use doorbell_elf::Object;
use doorbell_uop::{DType, Op};
use std::fmt;
use thiserror::Error;

/// A back end: it compiles linear programs for one target.
pub trait Backend: Send + Sync + fmt::Debug {
    /// The description of the target for codegen.
    fn target(&self) -> &Target;

    /// Compiles the program to a kernel that can be loaded; the entry symbol is the program's name.
    ///
    /// # Errors
    /// An op or dtype without an instruction on this target, too many registers, too much memory, or an error of the
    /// assembler.
    fn compile(&self, program: &Program) -> Result<Binary, IsaError>;

    /// Whether kernels get machine code. If not, compilation ends with the linear program or the source text.
    fn makes_code(&self) -> bool {
        true
    }

    /// A kernel's machine code as text, one instruction per line (DEBUG=7).
    ///
    /// # Errors
    /// Bytes that are not an instruction.
    fn listing(&self, binary: &Binary) -> Result<String, IsaError>;

    /// The program as text in the language from which the machine code is made; `None` if there is no such language.
    ///
    /// # Errors
    /// Something that the language cannot express.
    fn source(&self, _program: &Program) -> Result<Option<String>, IsaError> {
        Ok(None)
    }

    /// The file extension of that language, whose texts [`assemble`](Backend::assemble) accepts.
    fn language(&self) -> Option<&'static str> {
        None
    }

    /// Assembles a text of that language to a file for the device's loader; `kernel` names it in errors.
    ///
    /// # Errors
    /// An error of the assembler, or there is no such language.
    fn assemble(&self, kernel: &str, _text: &str) -> Result<Vec<u8>, IsaError> {
        let why = format!("{} reads no text", self.target().name);
        Err(IsaError::Malformed { kernel: kernel.into(), why })
    }
}

/// A compiled kernel: what a device loads, and what a launch needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The entry symbol.
    pub entry: String,
    /// What the device loads.
    pub code: BinaryCode,
    /// Dynamic shared memory of a workgroup, in addition to what the code itself declares.
    pub shared_bytes: u32,
    /// The kernel's arguments in order. This list is the only definition of the order.
    pub arguments: Vec<Argument>,
}

/// The forms of a kernel's code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BinaryCode {
    /// No machine code: the device executes nothing.
    None,
    /// Sections, symbols and relocations, to be linked or written as an ELF file.
    Object(Object),
    /// A file for the device's loader, such as a cubin.
    File(Vec<u8>),
}

/// One argument of a kernel; each is eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer, as an index into [`Program::params`]. Several arguments may refer to one buffer.
    Buffer(usize),
    /// The value of a variable, as an index into [`Program::vars`].
    Variable(usize),
    /// A value that is the same in all launches.
    Word(u64),
}

impl Argument {
    /// The common order of arguments: buffers, then variables. Targets with further arguments append them.
    #[must_use]
    pub fn plain(program: &Program) -> Vec<Argument> {
        let buffers = (0..program.params.len()).map(Argument::Buffer);
        buffers.chain((0..program.vars.len()).map(Argument::Variable)).collect()
    }
}

impl Binary {
    /// A kernel that needs nothing beyond its code, with the common arguments.
    #[must_use]
    pub fn plain(program: &Program, code: BinaryCode) -> Binary {
        Binary { entry: program.name.clone(), code, shared_bytes: 0, arguments: Argument::plain(program) }
    }

    /// The object, if the code is one.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        if let BinaryCode::Object(object) = &self.code { Some(object) } else { None }
    }
}

/// The back end of devices without machine code: it compiles to linear programs only.
#[derive(Clone, Debug)]
pub struct NoCode {
    target: Target,
}

impl NoCode {
    /// For graphs that are planned, and kernels that are lowered, as for this target.
    #[must_use]
    pub const fn new(target: Target) -> NoCode {
        NoCode { target }
    }
}

impl Backend for NoCode {
    fn target(&self) -> &Target {
        &self.target
    }

    fn makes_code(&self) -> bool {
        false
    }

    fn compile(&self, program: &Program) -> Result<Binary, IsaError> {
        Ok(Binary::plain(program, BinaryCode::None))
    }

    fn listing(&self, _binary: &Binary) -> Result<String, IsaError> {
        Ok(String::new())
    }
}

/// Why a back end cannot compile a program.
#[derive(Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum IsaError {
    /// The target lacks an op for that type.
    #[error("{kernel}: {target} has no instruction for {op:?} on {dtype}")]
    Unsupported { kernel: String, target: &'static str, op: Op, dtype: DType },
    /// The chip itself is the reason, whatever the kernel.
    #[error("{why}")]
    NoCode { why: String },
    /// A program that codegen does not make.
    #[error("{kernel}: {why}")]
    Malformed { kernel: String, why: String },
    /// An instruction that was selected has no encoding with these operands.
    #[error("{kernel}: instruction {index} cannot be encoded: {why}")]
    Encoding { kernel: String, index: usize, why: String },
    /// A kernel has no text in the target's language, or no assembler accepted it.
    #[error("{kernel}: {why}")]
    Source { kernel: String, why: String },
    /// Bytes to be listed that are no code.
    #[error("bytes at offset {offset} are no instruction")]
    NotCode { offset: usize },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for IsaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
