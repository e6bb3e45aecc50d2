//! The interface between `isa` and `elf`: one program's machine code with its constants, names and open references.
//!
//! `isa` fills it in; [`write`](super::write) makes a relocatable file of it. It has no file offsets or addresses.
//! A GPU's kernel comes with the contents of its descriptor.

use super::amdgpu::{Arg, KernelSpec};

/// The instruction set of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Machine {
    /// AMD64 with 64-bit pointers.
    #[doc(alias = "EM_X86_64")]
    X86_64,
    /// 64-bit Arm. Its objects need no relocation: constants follow the code.
    #[doc(alias = "EM_AARCH64")]
    Aarch64,
    /// AMD's GPUs; their code objects are made by [`amdgpu`](super::amdgpu).
    #[doc(alias = "EM_AMDGPU")]
    Amdgpu,
    /// NVIDIA's GPUs; their cubins are read by [`cubin`](super::cubin).
    #[doc(alias = "EM_CUDA")]
    Cuda,
}

impl Machine {
    /// That of the CPU on which this runs: the machine of files that are linked here.
    pub const HOST: Machine = if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };
}

/// The sections an [`Object`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// `.text`: code, executable, never written.
    Text,
    /// `.rodata`: constants, aligned to 64 bytes.
    Rodata,
    /// `.bss`: zeros that the program may write, aligned to 64 bytes.
    Bss,
}

/// A name for an offset in a section, or for something that is defined elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Must not be empty or hold a NUL byte.
    pub name: String,
    /// Where it is defined; `None` when the loader's resolver has to know it.
    pub section: Option<Section>,
    /// Bytes from the start of the section; 0 when undefined.
    pub offset_bytes: u64,
    /// How many bytes it covers; 0 when unknown.
    pub size_bytes: u64,
    /// Visible outside the object: an entry point. Undefined symbols must be global.
    pub global: bool,
    /// Code, not data.
    pub func: bool,
}

/// What a relocation points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Index into [`Object::symbols`].
    Symbol(usize),
    /// The start of a section; the addend says how far into it. Constants need no name of their own.
    Section(Section),
}

/// How the address of the target (S), the addend (A) and the address of the field (P) make the field's value.
/// Which of these a machine has is a table in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelocKind {
    /// No effect.
    None,
    /// S + A, 64 bits.
    Abs64,
    /// S + A, 32 bits, zero-extended.
    Abs32,
    /// S + A, 32 bits, sign-extended.
    Abs32Signed,
    /// S + A - P, 64 bits.
    Pc64,
    /// S + A - P, 32 bits. The field is 4 bytes before the next instruction, so the addend is usually -4.
    Pc32,
    /// As `Pc32` for a branch: S may be a stub that jumps on to a far target.
    Plt32,
    /// Address of the GOT slot holding S, + A - P, 32 bits.
    GotPc32,
    /// `GotPc32` on an instruction that a linker may rewrite.
    GotPc32Relax,
    /// `GotPc32` on an instruction with REX prefix that a linker may rewrite.
    GotPc32RexRelax,
    /// Start of the GOT + A - P, 32 bits.
    GotBasePc32,
    /// Start of the GOT + A - P, 64 bits.
    GotBasePc64,
    /// S + A - start of the GOT, 64 bits.
    GotOff64,
    /// Offset of S's slot in the GOT + A, 64 bits.
    Got64,
    /// S (or its stub) + A - start of the GOT, 64 bits.
    PltOff64,
}

/// A field in a section that waits for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The section that holds the field; not [`Section::Bss`].
    pub section: Section,
    /// Bytes from the start of that section to the field.
    pub offset_bytes: u64,
    /// How the field's value is computed, and the field's width.
    pub kind: RelocKind,
    /// S of that computation.
    pub target: Target,
    /// A of that computation, in bytes.
    pub addend: i64,
}

/// What a launch of a GPU's kernel needs in addition to its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuKernel {
    /// Registers and memory: the contents of its descriptor.
    pub spec: KernelSpec,
    /// Arguments of the kernarg segment, each with its place there.
    pub args: Vec<Arg>,
    /// Most work-items of a workgroup.
    pub max_workgroup: u32,
}

/// One program as machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The instruction set of `text`.
    pub machine: Machine,
    /// Code; loaded at a multiple of 64 bytes.
    pub text: Vec<u8>,
    /// Constants; loaded at a multiple of 64 bytes, so a vector constant at a multiple of its size is aligned.
    pub rodata: Vec<u8>,
    /// Bytes of zeros in `.bss`.
    pub bss_len: u64,
    /// Names that are defined here or needed from elsewhere; [`Target::Symbol`] is an index into them.
    pub symbols: Vec<Symbol>,
    /// The fields of `text` and `rodata` that wait for an address.
    pub relocations: Vec<Relocation>,
    /// GPUs: the kernel that `text` is; its name is that of the first symbol.
    pub kernel: Option<GpuKernel>,
}

impl Object {
    /// An empty object for `machine`.
    pub fn new(machine: Machine) -> Self {
        let (text, rodata, symbols, relocations) = Default::default();
        Self { machine, text, rodata, bss_len: 0, symbols, relocations, kernel: None }
    }

    /// Bytes of the section.
    pub(crate) fn section_len(&self, section: Section) -> u64 {
        match section {
            Section::Text => super::num::wide(self.text.len()),
            Section::Rodata => super::num::wide(self.rodata.len()),
            Section::Bss => self.bss_len,
        }
    }

    /// Names a function in `.text` as an entry point and returns the symbol's index.
    pub fn define_function(&mut self, name: &str, offset_bytes: u64, size_bytes: u64) -> usize {
        let section = Some(Section::Text);
        self.push_symbol(Symbol { name: name.to_owned(), section, offset_bytes, size_bytes, global: true, func: true })
    }

    /// Names something that the loader's resolver provides and returns the symbol's index.
    pub fn declare_external(&mut self, name: &str) -> usize {
        let (section, offset_bytes, size_bytes) = (None, 0, 0);
        self.push_symbol(Symbol { name: name.to_owned(), section, offset_bytes, size_bytes, global: true, func: false })
    }

    fn push_symbol(&mut self, symbol: Symbol) -> usize {
        self.symbols.push(symbol);
        self.symbols.len() - 1
    }
}
