//! What a package says, as values: the fields of the file in their order.

use crate::Size;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    /// One byte, 0 or 1.
    Bool = 0,
    /// 8 bits, signed.
    I8 = 1,
    /// 8 bits.
    U8 = 2,
    /// 16 bits, signed.
    I16 = 3,
    /// 16 bits.
    U16 = 4,
    /// 32 bits, signed.
    I32 = 5,
    /// 32 bits.
    U32 = 6,
    /// 64 bits, signed.
    I64 = 7,
    /// 64 bits.
    U64 = 8,
    /// E4M3FN.
    F8E4M3 = 9,
    /// E5M2.
    F8E5M2 = 10,
    /// E4M3FNUZ.
    F8E4M3Fnuz = 11,
    /// E5M2FNUZ.
    F8E5M2Fnuz = 12,
    /// IEEE half.
    F16 = 13,
    /// bfloat16.
    BF16 = 14,
    /// IEEE single.
    F32 = 15,
    /// IEEE double.
    F64 = 16,
}

impl Element {
    /// All of them, by code.
    #[rustfmt::skip]
    pub const ALL: [Element; 17] = [
        Element::Bool, Element::I8, Element::U8, Element::I16, Element::U16, Element::I32, Element::U32, Element::I64,
        Element::U64, Element::F8E4M3, Element::F8E5M2, Element::F8E4M3Fnuz, Element::F8E5M2Fnuz, Element::F16,
        Element::BF16, Element::F32, Element::F64,
    ];

    /// The number in the file.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with that number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Element> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Element::Bool | Element::I8 | Element::U8 => 1,
            Element::F8E4M3 | Element::F8E5M2 | Element::F8E4M3Fnuz | Element::F8E5M2Fnuz => 1,
            Element::I16 | Element::U16 | Element::F16 | Element::BF16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
        }
    }

    /// The name that messages have: `f32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Element::Bool => "bool",
            Element::I8 => "i8",
            Element::U8 => "u8",
            Element::I16 => "i16",
            Element::U16 => "u16",
            Element::I32 => "i32",
            Element::U32 => "u32",
            Element::I64 => "i64",
            Element::U64 => "u64",
            Element::F8E4M3 => "fp8e4m3",
            Element::F8E5M2 => "fp8e5m2",
            Element::F8E4M3Fnuz => "fp8e4m3fnuz",
            Element::F8E5M2Fnuz => "fp8e5m2fnuz",
            Element::F16 => "f16",
            Element::BF16 => "bf16",
            Element::F32 => "f32",
            Element::F64 => "f64",
        }
    }
}

/// A number that each run may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, unique among the variables.
    pub name: String,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
}

/// What a block of memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// An input: memory of its own, or the caller's.
    Input = 0,
    /// Intermediate values; blocks that are not needed at the same time share their place.
    Temporary = 1,
    /// Holds an output until the next run.
    Output = 2,
    /// Kept from run to run; begins as the constants at the same number say.
    State = 3,
    /// Never written.
    Constant = 4,
}

impl BlockKind {
    /// The kind with that number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<BlockKind> {
        use BlockKind::{Constant, Input, Output, State, Temporary};
        [Input, Temporary, Output, State, Constant].get(usize::from(code)).copied()
    }

    /// Whether the block lies in the arena.
    #[must_use]
    pub fn is_in_arena(self) -> bool {
        matches!(self, BlockKind::Temporary | BlockKind::Output | BlockKind::State)
    }

    /// Whether its first contents are among the constants.
    #[must_use]
    pub fn has_data(self) -> bool {
        matches!(self, BlockKind::State | BlockKind::Constant)
    }
}

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is for.
    pub kind: BlockKind,
    /// Its length.
    pub len_bytes: u64,
    /// Where it lies in the arena, a multiple of 64; 0 for what is not in it.
    pub at: u64,
    /// Where its first contents are among the constants, a multiple of 64; 0 if it has none.
    pub data_at: u64,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, unique among the inputs or among the outputs.
    pub name: String,
    /// The type of its elements.
    pub element: Element,
    /// Its shape; elements are dense and row-major.
    pub shape: Vec<Size>,
    /// The block that it lies in.
    pub block: u32,
    /// Bytes from the block's start.
    pub offset: u64,
    /// Its greatest length, for all values of the variables.
    pub len_bytes: u64,
}

/// A kernel of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// For messages.
    pub name: String,
    /// The symbol where it begins.
    pub entry: String,
    /// What the device's loader takes: an object file, a cubin, a text.
    pub code: Vec<u8>,
}

/// A place in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub block: u32,
    /// Bytes from its start.
    pub offset: u64,
}

/// An argument of a kernel, eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a place.
    Buffer(Place),
    /// The value of a variable, by number.
    Variable(u32),
    /// The same in all runs.
    Word(u64),
}

/// A command. Commands run in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Runs a kernel.
    Launch(Launch),
    /// Copies bytes.
    Copy {
        /// To here.
        to: Place,
        /// From here.
        from: Place,
        /// How many.
        len_bytes: u64,
    },
}

/// A kernel with its arguments and geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The kernel, by number.
    pub kernel: u32,
    /// Calls of a CPU's kernel, which any number of cores may share.
    pub threads: u32,
    /// Workgroups of a GPU's kernel.
    pub groups: [u32; 3],
    /// Work-items of a workgroup.
    pub local: [u32; 3],
    /// Shared memory of a workgroup besides what the code declares.
    pub local_bytes: u32,
    /// Arguments in the kernel's order.
    pub arguments: Vec<Argument>,
}

/// The program for one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// `x86_64-avx2`, `gfx1100`, `sm_90a` ...
    pub arch: String,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Its commands.
    pub steps: Vec<Step>,
}

/// Constants in a file of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Its name, without folders: it stands beside the package.
    pub name: String,
    /// CRC-32 of it.
    pub checksum: u32,
}

/// All that a package says, besides the bytes of the constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// For messages.
    pub name: String,
    /// Numbers that each run may choose.
    pub variables: Vec<Variable>,
    /// Memory.
    pub blocks: Vec<Block>,
    /// Length of the memory for blocks that are neither inputs nor constants.
    pub arena_bytes: u64,
    /// Length of the constants.
    pub data_bytes: u64,
    /// Their file, if they are not in the package.
    pub data_file: Option<DataFile>,
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// The program for each architecture.
    pub targets: Vec<Target>,
}

impl Contents {
    /// The architectures in the file, for messages.
    #[must_use]
    pub fn archs(&self) -> String {
        let names: Vec<&str> = self.targets.iter().map(|t| t.arch.as_str()).collect();
        names.join(", ")
    }

    /// The most memory that a run needs on a device: arena, inputs and constants.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let outside = self.blocks.iter().filter(|b| !b.kind.is_in_arena());
        let all = outside.map(|b| b.len_bytes.next_multiple_of(crate::ALIGN_BYTES));
        all.fold(self.arena_bytes, u64::saturating_add)
    }
}
