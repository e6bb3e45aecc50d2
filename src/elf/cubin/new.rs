//! The input of the writer: kernels and the module's data, with checks of their consistency.

use super::chip::ChipFacts;
use super::load::Param;
use crate::error::ElfError;
use crate::num::{index, wide};
use doorbell_sort as sort;

/// The chip a file is for: `sm_90a` is 90 with the features that only that chip has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arch {
    /// Compute capability, times ten: 90 of sm_90 and sm_90a.
    pub sm: u32,
    /// The `a` of its name.
    pub specific: bool,
}

impl Arch {
    /// Chips that a file can be written for.
    pub(crate) const SUPPORTED: [u32; 6] = [75, 80, 86, 89, 90, 120];

    /// The chip of a name like `sm_90a`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Arch> {
        let number = name.strip_prefix("sm_")?;
        let (number, specific) = number.strip_suffix('a').map_or((number, false), |n| (n, true));
        let sm = number.parse().ok().filter(|n| Arch::SUPPORTED.contains(n))?;
        Some(Arch { sm, specific }).filter(|a| !specific || a.sm >= 90)
    }

    /// Offset of the parameters in constant bank 0; the words before are the launch's own.
    #[must_use]
    pub const fn param_base(self) -> u32 {
        match self.sm {
            0..90 => 0x160,
            90..100 => 0x210,
            _ => 0x380,
        }
    }

    /// Bytes at the start of a CTA's shared memory that are not the kernel's.
    #[must_use]
    pub fn reserved_shared_bytes(self) -> u32 {
        if self.sm >= 90 { 0x400 } else { 0 }
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

/// A kernel to be written. `NewKernel::default()` has no requirements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewKernel {
    /// Symbol of the code; also in the names of the kernel's sections. Taken by no other kernel or variable.
    pub name: String,
    /// Machine code: whole instructions of 16 bytes. Functions that it calls may follow in it.
    pub code: Vec<u8>,
    /// Registers a thread, with the two that the hardware reserves: highest register + 3.
    pub registers: u32,
    /// Named barriers, 0 to 16.
    pub barriers: u32,
    /// Stack a thread.
    pub frame_bytes: u32,
    /// The calls below have no known bound (recursion): a launch gives the usual stack.
    pub unbounded_stack: bool,
    /// Static shared memory; from sm_90 on counted from address 0, with the reserved [`Arch::reserved_shared_bytes`],
    /// or 0: none.
    pub shared_bytes: u32,
    /// Alignment of the shared memory, 0 like 16.
    pub shared_align: u32,
    /// In the order of the declaration.
    pub parameters: Vec<Param>,
    /// Constant bank 2: literals, jump tables.
    pub constants: Vec<u8>,
    /// Addresses in the code.
    pub relocations: Vec<Relocation>,
    /// Offsets of EXIT instructions in the code.
    pub exit_offsets: Vec<u32>,
    /// Names of functions that follow in the code: offset, bytes.
    pub functions: Vec<(String, u32, u32)>,
    /// `.reqntid`: threads that a CTA must have.
    pub required_block: Option<[u32; 3]>,
    /// `.maxntid`: threads that a CTA may have at most, the product of the three.
    pub max_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`: CTAs of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`: CTAs that a cluster may have at most.
    pub max_cluster: Option<u32>,
    /// `.explicitcluster`: there must be clusters.
    pub wants_cluster: bool,
}

/// A field that receives an address when the file is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Of the instruction or of the 8 bytes, in its section.
    pub offset: u32,
    /// Width of the field, and which part of the address it gets.
    pub kind: RelocationKind,
    /// A variable or a kernel.
    pub symbol: String,
    /// Bytes added to the symbol's address.
    pub addend: i64,
}

/// Which field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationKind {
    /// 64 bits: the address.
    Address,
    /// 64 bits: the address in the generic space.
    Generic,
    /// The 32-bit immediate of an instruction: the address's low half.
    Low,
    /// Its high half.
    High,
}

impl RelocationKind {
    /// The number in the file (`R_CUDA_64`, `R_CUDA_G64`, `R_CUDA_ABS32_LO_32`, `R_CUDA_ABS32_HI_32`).
    pub(super) const fn number(self) -> u32 {
        match self {
            RelocationKind::Address => 2,
            RelocationKind::Generic => 4,
            RelocationKind::Low => 0x38,
            RelocationKind::High => 0x39,
        }
    }

    const fn is_of_code(self) -> bool {
        matches!(self, RelocationKind::Low | RelocationKind::High)
    }
}

/// Where a variable is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// `.const`: bank 3.
    Constant,
    /// Global memory with a first value.
    Initialised,
    /// Global memory that is zero at first.
    Zero,
}

/// A variable of the module; its offset in the section of its space is the writer's caller's to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its symbol; taken by no kernel or other variable.
    pub name: String,
    /// The section that holds it.
    pub space: Space,
    /// From that section's start; a multiple of the alignment.
    pub offset: u32,
    /// Bytes: a power of two up to 4096.
    pub align: u32,
    /// Its size.
    pub len_bytes: u32,
    /// The first value, as long as the variable; empty of [`Space::Zero`].
    pub bytes: Vec<u8>,
    /// Addresses in the first value; offsets from the variable's start.
    pub relocations: Vec<Relocation>,
}

/// A module to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewModule {
    /// Kernels, each with sections of its own.
    pub kernels: Vec<NewKernel>,
    /// Data that all kernels share.
    pub variables: Vec<Variable>,
    /// Constant bank 4: what each slot of 8 bytes has the address of, a variable's or a kernel's name and an addend.
    pub addresses: Vec<(String, i64)>,
}

const MAX_BANK_BYTES: usize = 1 << 16;
/// With the reserved KiB.
const MAX_SHARED_BYTES: u32 = ChipFacts::SM_90.shared_max_bytes + 0x400;
const MAX_FILE_BYTES: u64 = 1 << 30;

impl NewModule {
    /// Whether a file can be made of it.
    pub(super) fn check(&self, arch: Arch) -> Result<(), ElfError> {
        let bad = |what, index, why| Err(ElfError::BadObject { what, index, why });
        if !Arch::SUPPORTED.contains(&arch.sm) || arch.specific && arch.sm < 90 {
            return bad("chip", index(arch.sm.into()), "its files are not known");
        }
        let mut names: Vec<&str> = Vec::new();
        for (i, k) in self.kernels.iter().enumerate() {
            if let Some(why) = self.fault(arch, k) {
                return bad("kernel", i, why);
            }
            names.push(&k.name);
        }
        for (i, v) in self.variables.iter().enumerate() {
            if let Some(why) = self.variable_fault(v) {
                return bad("variable", i, why);
            }
            names.push(&v.name);
        }
        names.sort_unstable();
        if let Some(i) = names.windows(2).position(|w| w[0] == w[1]) {
            return bad("name", i, "it is taken");
        }
        if let Some(i) = self.addresses.iter().position(|a| !self.has(&a.0)) {
            return bad("address", i, "there is no variable and no kernel of that name");
        }
        if self.addresses.len() * 8 > MAX_BANK_BYTES {
            return bad("address", self.addresses.len(), "a constant bank has 64 KiB at most");
        }
        match self.overlap() {
            Some(i) => bad("variable", i, "it overlaps another of its space"),
            None => Ok(()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.kernels.iter().any(|k| k.name == name) || self.variables.iter().any(|v| v.name == name)
    }

    /// What is wrong with a kernel.
    fn fault(&self, arch: Arch, k: &NewKernel) -> Option<&'static str> {
        let len = k.code.len();
        let inside = |offset: u32| index(offset.into()).checked_add(16).is_some_and(|end| end <= len);
        let params = k.parameters.iter().map(|p| u64::from(p.offset) + u64::from(p.len_bytes)).max().unwrap_or(0);
        let code_relocations =
            k.relocations.iter().all(|r| r.kind.is_of_code() && r.offset.is_multiple_of(16) && inside(r.offset));
        let whole = |f: &(String, u32, u32)| {
            f.1.is_multiple_of(16) && u64::from(f.1) + u64::from(f.2) <= wide(len) && is_name(&f.0)
        };
        let reserved = arch.reserved_shared_bytes();
        Some(match () {
            () if !is_name(&k.name) => "its name is empty or holds a NUL byte",
            () if k.code.is_empty() || !len.is_multiple_of(16) => {
                "its code is empty or no whole number of instructions"
            }
            () if wide(len) > MAX_FILE_BYTES => "its code is larger than a file may be",
            () if !(1..=257).contains(&k.registers) => "its registers are not 1 to 257",
            () if k.barriers > 16 => "it has more than 16 barriers",
            () if k.shared_bytes > MAX_SHARED_BYTES => "its shared memory is larger than any chip has",
            () if k.shared_bytes != 0 && k.shared_bytes < reserved => "its shared memory lacks the reserved bytes",
            () if !align_is_good(k.shared_align) => "its shared memory's alignment is not a power of two up to 4096",
            () if params > 32_764 => "its parameters end beyond 32,764 bytes",
            () if k.constants.len() > MAX_BANK_BYTES => "a constant bank has 64 KiB at most",
            () if !code_relocations => "a relocation is not of an instruction of its code",
            () if !k.relocations.iter().all(|r| self.has(&r.symbol)) => "a relocation's symbol is unknown",
            () if !k.exit_offsets.iter().all(|o| o.is_multiple_of(16) && inside(*o)) => "an EXIT lies outside its code",
            () if !k.functions.iter().all(whole) => "a function lies outside its code or has no name",
            () => return None,
        })
    }

    fn variable_fault(&self, v: &Variable) -> Option<&'static str> {
        let len = index(v.len_bytes.into());
        let inside = |r: &Relocation| {
            !r.kind.is_of_code() && u64::from(r.offset) + 8 <= u64::from(v.len_bytes) && self.has(&r.symbol)
        };
        Some(match () {
            () if !is_name(&v.name) => "its name is empty or holds a NUL byte",
            () if v.align == 0 || !align_is_good(v.align) || !v.offset.is_multiple_of(v.align) => {
                "its alignment is not a power of two up to 4096 that divides its offset"
            }
            () if u64::from(v.offset) + u64::from(v.len_bytes) > MAX_FILE_BYTES => "it ends beyond 1 GiB",
            () if v.space == Space::Zero && !(v.bytes.is_empty() && v.relocations.is_empty()) => {
                "it is zero and has a value"
            }
            () if v.space != Space::Zero && v.bytes.len() != len => "its value is not as long as it",
            () if v.space == Space::Constant && index(v.offset.into()) + len > MAX_BANK_BYTES => {
                "a constant bank has 64 KiB at most"
            }
            () if !v.relocations.iter().all(inside) => "a relocation lies outside it, or its symbol is unknown",
            () => return None,
        })
    }

    /// A variable that shares bytes with another.
    fn overlap(&self) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.variables.len()).collect();
        let of = |i: usize| &self.variables[i]; // PANIC: indices of the vector itself
        sort::by_key(&mut order, |i| (of(*i).space, of(*i).offset, of(*i).len_bytes));
        let clash = |w: &&[usize]| {
            let (a, b) = (of(w[0]), of(w[1]));
            a.space == b.space && u64::from(a.offset) + u64::from(a.len_bytes) > u64::from(b.offset) && b.len_bytes > 0
        };
        order.windows(2).find(clash).map(|w| w[1])
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

fn align_is_good(align: u32) -> bool {
    align == 0 || align.is_power_of_two() && align <= 4096
}
