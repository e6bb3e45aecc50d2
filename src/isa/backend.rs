//! What every back end offers: from a linear program to what a device loads, and how the kernel's arguments are
//! ordered.
//!
//! Place in the arrows: below all instruction sets, which implement [`Backend`]; `engine` has the list of them and
//! holds one as a value. A new target (another CPU, a language such as MSL) is one more implementer.

use doorbell_codegen::{Program, Target};
use doorbell_elf::Object;
use doorbell_uop::{DType, Op};
use std::fmt;
use thiserror::Error;

/// A back end: it compiles linear programs for one target.
pub trait Backend: Send + Sync + fmt::Debug {
    /// What codegen must know of the target.
    fn target(&self) -> &Target;

    /// The program as a kernel that can be loaded; the entry symbol is the program's name.
    ///
    /// # Errors
    /// An op or dtype that has no instruction here, more registers or memory than there are, or what an assembler says.
    fn compile(&self, program: &Program) -> Result<Binary, IsaError>;

    /// Whether kernels have machine code; where not, they are compiled as far as the linear program or the source text.
    fn makes_code(&self) -> bool {
        true
    }

    /// A kernel's machine code as text, one instruction a line (DEBUG=7).
    ///
    /// # Errors
    /// Bytes that are no instruction.
    fn listing(&self, binary: &Binary) -> Result<String, IsaError>;

    /// The program in the language that the machine code is made from, as text; `None` where there is no such language.
    ///
    /// # Errors
    /// What the language cannot say.
    fn source(&self, _program: &Program) -> Result<Option<String>, IsaError> {
        Ok(None)
    }

    /// The file extension of that language, whose texts [`assemble`](Backend::assemble) takes.
    fn language(&self) -> Option<&'static str> {
        None
    }

    /// A text of that language as a file for the device's loader; `kernel` names it in errors.
    ///
    /// # Errors
    /// What the assembler says; there is no such language.
    fn assemble(&self, kernel: &str, _text: &str) -> Result<Vec<u8>, IsaError> {
        let why = format!("{} reads no text", self.target().name);
        Err(IsaError::Malformed { kernel: kernel.into(), why })
    }
}

/// A compiled kernel: what a device loads, and what a launch must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The symbol to start at.
    pub entry: String,
    pub code: BinaryCode,
    /// Shared memory of a workgroup that the launch must ask for, beside what the code itself declares.
    pub shared_bytes: u32,
    /// The kernel's arguments in order: the one place that says so.
    pub arguments: Vec<Argument>,
}

/// The forms of a kernel's code.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BinaryCode {
    /// None was made: the device executes nothing.
    None,
    /// Sections, symbols and relocations, to be linked or written as an ELF file.
    Object(Object),
    /// A file for the device's loader, such as a cubin.
    File(Vec<u8>),
}

/// One argument of a kernel; each is eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer: which of [`Program::params`]. The same buffer may stand in several arguments.
    Buffer(usize),
    /// The value of a variable: which of [`Program::vars`].
    Variable(usize),
    /// A value that is the same in all launches.
    Word(u64),
}

impl Argument {
    /// The order of arguments on all targets: buffers, then variables. A target with more appends it.
    #[must_use]
    pub fn plain(program: &Program) -> Vec<Argument> {
        let buffers = (0..program.params.len()).map(Argument::Buffer);
        buffers.chain((0..program.vars.len()).map(Argument::Variable)).collect()
    }
}

impl Binary {
    /// A kernel that needs nothing beyond its code, with the arguments of all targets.
    #[must_use]
    pub fn plain(program: &Program, code: BinaryCode) -> Binary {
        Binary { entry: program.name.clone(), code, shared_bytes: 0, arguments: Argument::plain(program) }
    }

    /// The object, where the code is one.
    #[must_use]
    pub fn object(&self) -> Option<&Object> {
        if let BinaryCode::Object(object) = &self.code { Some(object) } else { None }
    }
}

/// The back end of devices for which no machine code is made: linear programs and nothing else.
#[derive(Clone, Debug)]
pub struct NoCode {
    target: Target,
}

impl NoCode {
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

/// What a back end refuses.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsaError {
    #[error("{kernel}: {target} has no instruction for {op:?} on {dtype}")]
    Unsupported { kernel: String, target: &'static str, op: Op, dtype: DType },
    #[error("{kernel}: {why}")]
    Malformed { kernel: String, why: String },
    #[error("{kernel}: instruction {index} cannot be encoded: {why}")]
    Encoding { kernel: String, index: usize, why: String },
    /// A kernel has no text in the target's language, or no assembler took it.
    #[error("{kernel}: {why}")]
    Source { kernel: String, why: String },
    #[error("bytes at offset {offset} are no instruction")]
    NotCode { offset: usize },
}
