//! The assembler: PTX text → machine code of sm_80 to sm_90 and sm_120.
//!
//! `passes` lists the passes in order. Each folder is one stage; its module documentation describes its input, its
//! output and its passes:
//!
//! ```text
//! text --read--> list, names resolved --optimise--> list and analysis --select--> virtual registers, blocks
//!      --arrange--> the same in a better order --allocate--> lines with registers --lower--> the chip's instructions
//!      --schedule--> order --control--> control words --emit--> 128-bit words
//! ```
//!
//! Selection is for sm_90; `lower` translates to other chips. If registers run out, a body is compiled again with
//! other choices, in the order given in `attempts`.
//!
//! Place in the architecture: reads [`isa::ptx`](crate::ptx), writes through `sass`' encoder, and uses the shared
//! register allocator. The result is a kernel's words and the properties that a loader needs. Source: PTX ISA 8.8 for
//! the semantics; code of ptxas 13.5.37 for the layouts of constants, shared memory and parameters. Not supported, and
//! reported with the position in the text: textures, surfaces, sparse `wgmma`.

mod allocate;
mod arrange;
mod attempts;
mod blame;
mod context;
mod control;
mod emit;
mod lines;
mod lower;
mod mir;
mod optimise;
mod passes;
mod read;
mod schedule;
mod select;

use super::SmArch;
use crate::ptx::{self, Pos};
use doorbell_elf::cubin::{self, Arch, NewKernel, NewModule, Param};
pub(crate) use lower::described::DESCRIPTOR;
use optimise::facts::SHARED_START;
pub use read::data::Data;
use std::cell::RefCell;
use thiserror::Error;

/// Why a text cannot be assembled.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{line}:{column}: {what}")]
pub struct AsmError {
    pub line: u32,
    /// In bytes, from 1.
    pub column: u32,
    pub what: String,
}

impl AsmError {
    fn new(pos: Pos, what: String) -> AsmError {
        AsmError { line: pos.line, column: pos.column, what }
    }
}

/// A kernel's code, and what a launch needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCode {
    pub name: String,
    pub words: Vec<u128>,
    /// General registers of a thread, including the two that the hardware reserves.
    pub registers: u32,
    /// Named barriers.
    pub barriers: u32,
    /// Bytes of a thread's stack, including the functions that are called.
    pub frame_bytes: u32,
    /// It calls a function that may call itself: the stack depth is unknown.
    pub unbounded_stack: bool,
    /// Static shared memory, without the kibibyte that the system reserves.
    pub shared_bytes: u32,
    /// Offset and length of each parameter.
    pub parameters: Vec<(u32, u32)>,
    pub parameter_bytes: u32,
    /// `.reqntid`, `.reqnctapercluster`, `.maxclusterrank`, `.explicitcluster`.
    pub threads: Option<[u32; 3]>,
    pub cluster: Option<[u32; 3]>,
    pub max_cluster: Option<u32>,
    pub wants_cluster: bool,
    /// Byte offsets of EXIT.
    pub exits: Vec<u32>,
    /// Registers stored to and loaded from the frame.
    pub spills: u32,
    /// PTX instructions it was made from.
    pub source_instructions: u32,
    /// The functions in its code: name, first byte, length.
    pub functions: Vec<(String, u32, u32)>,
}

/// The steps of an assembly, in order; all but the first and the last are done for each kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Text → module.
    Parse,
    /// Names resolved.
    Flatten,
    /// Loops unrolled.
    Unroll,
    /// Constants, copies and vector neighbours analysed.
    Facts,
    /// Machine instructions on virtual registers, convergence.
    Select,
    /// Dead code, registers.
    Allocate,
    Schedule,
    /// Control words.
    Synchronise,
    /// Words.
    Encode,
    /// The file.
    Cubin,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 10] = [
        Phase::Parse,
        Phase::Flatten,
        Phase::Unroll,
        Phase::Facts,
        Phase::Select,
        Phase::Allocate,
        Phase::Schedule,
        Phase::Synchronise,
        Phase::Encode,
        Phase::Cubin,
    ];
}

/// Called at the end of each step.
type Watch<'a> = &'a mut dyn FnMut(Phase);

/// Assembles a text to a cubin.
///
/// # Errors
/// A syntax error, an instruction without machine code, or a chip without a table.
pub fn assemble(text: &str, arch: Arch) -> Result<Vec<u8>, AsmError> {
    assemble_watched(text, arch, &mut |_| {})
}

/// [`assemble`] for a module instead of its text.
///
/// # Errors
/// As [`assemble`], with the positions in the module.
pub fn assemble_module(module: &ptx::Module, arch: Arch) -> Result<Vec<u8>, AsmError> {
    to_cubin(Input::Module(module), arch, &mut |_| {})
}

/// What is assembled.
#[derive(Clone, Copy)]
enum Input<'a> {
    Text(&'a str),
    Module(&'a ptx::Module),
}

/// [`assemble`], calling `done` after each step, to measure times.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_watched(text: &str, arch: Arch, done: Watch) -> Result<Vec<u8>, AsmError> {
    to_cubin(Input::Text(text), arch, done)
}

fn to_cubin(input: Input, arch: Arch, done: Watch) -> Result<Vec<u8>, AsmError> {
    let refused = |what: String| AsmError::new(Pos::default(), what);
    let Some(chip) = SmArch::of(arch) else {
        let known: Vec<String> = SmArch::ALL.iter().map(SmArch::to_string).collect();
        return Err(refused(format!("{arch}: machine code is made for {} and sm_90a", known.join(", "))));
    };
    let (kernels, data) = watched(input, chip, done)?;
    let kernels = kernels.iter().map(KernelCode::for_cubin).collect();
    let new = NewModule { kernels, variables: data.variables, addresses: data.addresses };
    let cubin = cubin::write_module(arch, &new).map_err(|e| refused(e.to_string()));
    done(Phase::Cubin);
    cubin
}

impl KernelCode {
    /// Its description in a cubin.
    #[must_use]
    fn for_cubin(&self) -> NewKernel {
        let mut code = Vec::with_capacity(16 * self.words.len());
        self.words.iter().for_each(|w| code.extend_from_slice(&w.to_le_bytes()));
        let shared = if self.shared_bytes > 0 { SHARED_START + self.shared_bytes } else { 0 };
        NewKernel {
            name: self.name.clone(),
            code,
            registers: self.registers,
            barriers: self.barriers,
            frame_bytes: self.frame_bytes,
            unbounded_stack: self.unbounded_stack,
            functions: self.functions.clone(),
            shared_bytes: shared,
            parameters: self
                .parameters
                .iter()
                .map(|(offset, len_bytes)| Param { offset: *offset, len_bytes: *len_bytes })
                .collect(),
            exit_offsets: self.exits.clone(),
            required_block: self.threads,
            cluster: self.cluster,
            max_cluster: self.max_cluster,
            wants_cluster: self.wants_cluster,
            ..NewKernel::default()
        }
    }
}

/// Assembles a text's kernels for sm_90.
///
/// # Errors
/// A syntax error, or an instruction without machine code, with its position.
pub fn kernels(text: &str) -> Result<Vec<KernelCode>, AsmError> {
    Ok(text_code(text, SmArch::Sm90)?.0)
}

/// Assembles a text for a chip: its kernels, and its variables.
///
/// # Errors
/// A syntax error, or an instruction without machine code, with its position.
pub fn text_code(text: &str, chip: SmArch) -> Result<(Vec<KernelCode>, Data), AsmError> {
    watched(Input::Text(text), chip, &mut |_| {})
}

fn watched(input: Input, chip: SmArch, done: Watch) -> Result<(Vec<KernelCode>, Data), AsmError> {
    let done = RefCell::new(done);
    let first = passes::module(input, chip, false, &|phase| (done.borrow_mut())(phase));
    if first.is_err() && chip != SmArch::Sm90 {
        // Unsupported instructions are detected when the connection to the text is already lost, so a second assembly
        // looks for the position.
        passes::module(input, chip, true, &|_| {})?;
    }
    first
}
