//! Which registers an instruction reads and writes, as tuples.
//!
//! Used by the scheduler and the hazard checker: the hardware has no register interlocks except the six scoreboards and
//! the stall counts in the program. The guard counts as read. Source: widths of operands in kernels compiled by ptxas
//! 13.5.37 and the PTX manual's fragment sizes.

use super::chip::SmArch;
use super::inst::Instruction;
use super::mods;
use super::registers::{ABSENT, Count, Named, Naming};
use super::row::{File, Form, Key, Pipe, Role};
use smallvec::SmallVec;

/// A register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegFile {
    General,
    Uniform,
    Predicate,
    UniformPredicate,
}

/// The name of a register operand, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    pub const A: Slot = Slot::of("a");
    pub const B: Slot = Slot::of("b");
    pub const C: Slot = Slot::of("c");
    pub const D: Slot = Slot::of("d");
    /// Predicates that are written.
    pub const PU: Slot = Slot::of("pu");
    pub const PV: Slot = Slot::of("pv");
    /// A predicate that is read.
    pub const PP: Slot = Slot::of("pp");
    /// The guard, which is not a slot of a form.
    pub const GUARD: Slot = Slot(0);

    /// That of a name of one to four bytes.
    #[must_use]
    pub const fn of(name: &str) -> Slot {
        assert!(!name.is_empty() && name.len() <= 4);
        Slot::keyed(Key::of(name, Role::Value))
    }

    /// That of a field.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // names of operands with registers have at most four bytes
    const fn keyed(key: Key) -> Slot {
        Slot(key.name() as u32)
    }

    /// The field of that slot in a role.
    pub(super) fn key(self, role: Role) -> Key {
        Key::named(self.0.into(), role)
    }
}

/// The registers of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The operand.
    pub slot: Slot,
    pub file: RegFile,
    pub first: u8,
    pub count: u8,
}

impl Access {
    /// Pairs must be at even numbers, longer tuples of general registers at multiples of four.
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        let multiple = match self.count {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        };
        self.first.is_multiple_of(multiple)
    }
}

/// All register accesses of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    pub reads: SmallVec<[Access; 6]>,
    pub writes: SmallVec<[Access; 2]>,
}

/// What the instruction reads and writes.
#[must_use]
pub fn effects(inst: &Instruction) -> Effects {
    let mut all = Effects::default();
    add_effects(inst, &mut all);
    all
}

/// Adds to `all` what the instruction reads and writes.
pub(super) fn add_effects(inst: &Instruction, all: &mut Effects) {
    let form = inst.form();
    // Other chips have no arithmetic on register pairs.
    let single = inst.chip() != SmArch::Sm120;
    for named in &form.named {
        let (file, none) = match named.naming {
            Naming::Nothing => break,
            Naming::General if named.count == Count::One || single && named.count == Count::Arithmetic => {
                (RegFile::General, 255)
            }
            Naming::Predicate => (RegFile::Predicate, 7),
            _ => {
                other(inst, named, all);
                continue;
            }
        };
        let number = inst.number(usize::from(named.field), named.at);
        if number != none && means(inst, named) {
            #[allow(clippy::cast_possible_truncation)] // register numbers have at most eight bits
            add(all, named, Access { slot: slot(inst, named), file, first: number as u8, count: 1 });
        }
    }
    if inst.guard.index < 7 {
        let file = match form.guard {
            File::Predicate => RegFile::Predicate,
            File::UniformPredicate => RegFile::UniformPredicate,
        };
        all.reads.push(Access { slot: Slot::GUARD, file, first: inst.guard.index, count: 1 });
    }
}

#[inline]
fn slot(inst: &Instruction, named: &Named) -> Slot {
    Slot::keyed(inst.form().fields[usize::from(named.field)].key)
}

#[inline]
fn add(all: &mut Effects, named: &Named, access: Access) {
    if named.write { all.writes.push(access) } else { all.reads.push(access) }
}

/// Whether the operand is used, given the other fields.
#[inline]
fn means(inst: &Instruction, named: &Named) -> bool {
    named.unless == ABSENT || inst.at(usize::from(named.unless)) != 0
}

/// Adds operands other than a single general register or a predicate.
#[inline(never)]
fn other(inst: &Instruction, named: &Named, all: &mut Effects) {
    let slot = slot(inst, named);
    if named.naming == Naming::Address {
        return address(inst, named).into_iter().flatten().for_each(|a| add(all, named, Access { slot, ..a }));
    }
    let (file, number, none) = numbered(inst, named);
    if number != none && means(inst, named) {
        #[allow(clippy::cast_possible_truncation)] // register numbers have at most eight bits
        add(all, named, Access { slot, file, first: number as u8, count: count(inst, named) });
    }
}

/// The fields of a form that hold numbers of general registers.
pub(super) fn general_fields(form: &Form) -> impl Iterator<Item = usize> {
    let named = form.named.iter().take_while(|n| n.naming != Naming::Nothing);
    let fields = named.map(|n| match n.naming {
        Naming::General => n.field,
        Naming::IndexGeneral | Naming::Address => n.register,
        _ => ABSENT,
    });
    fields.filter(|f| *f != ABSENT).map(usize::from)
}

/// Whether it is a matrix multiply of a warpgroup.
#[must_use]
pub(crate) fn is_group_multiply(inst: &Instruction) -> bool {
    inst.form().pipe == Pipe::Gmma && inst.form().mnemonic != "WARPGROUP"
}

/// URZ: uniform registers have eight bits from sm_100 on.
#[inline]
fn urz(inst: &Instruction) -> u64 {
    if inst.chip() == SmArch::Sm120 { 255 } else { 63 }
}

/// The register number in an operand's field, and the number that means "none"; not for addresses.
#[inline]
fn numbered(inst: &Instruction, named: &Named) -> (RegFile, u64, u64) {
    let bits = || inst.number(usize::from(named.field), named.at);
    let part = |field: u8, none| if field == ABSENT { none } else { inst.at(usize::from(field)) };
    match named.naming {
        Naming::General => (RegFile::General, bits(), 255),
        Naming::Predicate => (RegFile::Predicate, bits(), 7),
        // The descriptor of B comes after the position of A's, even if A is in registers.
        Naming::Uniform if inst.form().pipe == Pipe::Gmma && is_second(inst, named) => {
            (RegFile::Uniform, (bits() + 2).min(63), 63)
        }
        Naming::Uniform => (RegFile::Uniform, bits(), urz(inst)),
        Naming::UniformPredicate => (RegFile::UniformPredicate, bits(), 7),
        Naming::PredicateInverted => (RegFile::Predicate, 7 - bits(), 7),
        Naming::UniformPredicateInverted => (RegFile::UniformPredicate, 7 - bits(), 7),
        Naming::EitherPredicate if bits() & 1 == 1 => (RegFile::UniformPredicate, bits() >> 1, 7),
        Naming::EitherPredicate => (RegFile::Predicate, bits() >> 1, 7),
        Naming::IndexGeneral => (RegFile::General, part(named.register, 255), 255),
        Naming::IndexUniform => (RegFile::Uniform, part(named.register, urz(inst)), urz(inst)),
        Naming::Bindless => (RegFile::Uniform, part(named.uniform, urz(inst)), urz(inst)),
        Naming::Nothing | Naming::Address => (RegFile::General, 255, 255),
    }
}

/// The base register and the uniform register of an address, where it has them.
fn address(inst: &Instruction, named: &Named) -> [Option<Access>; 2] {
    let part = |field: u8, none| if field == ABSENT { none } else { inst.at(usize::from(field)) };
    let one = |file, number: u64, none: u64, count| {
        #[allow(clippy::cast_possible_truncation)] // register numbers have at most eight bits
        (number != none).then_some(Access { slot: Slot::GUARD, file, first: number as u8, count })
    };
    let suffix = if named.suffix == ABSENT { "" } else { inst.text_at(usize::from(named.suffix)) };
    let wide = suffix == ".64" || suffix.is_empty() && is_wide_address(inst);
    let base = one(RegFile::General, part(named.register, 255), 255, if wide { 2 } else { 1 });
    let urz = urz(inst);
    [base, one(RegFile::Uniform, part(named.uniform, urz), urz, if suffix == ".U32" { 2 } else { 1 })]
}

/// Whether it is the descriptor of B of a wgmma with A in registers.
fn is_second(inst: &Instruction, named: &Named) -> bool {
    inst.form().fields[usize::from(named.field)].slot == "u" && has_fragment(inst)
}

/// Whether A of a wgmma is in registers.
fn has_fragment(inst: &Instruction) -> bool {
    inst.form().position("a", Role::Value).is_some()
}

/// Addresses of global memory have 64 bits with .E.
fn is_wide_address(inst: &Instruction) -> bool {
    let global = inst.form().pipe == Pipe::Global && !matches!(inst.form().mnemonic, "LDL" | "STL" | "LDGSTS");
    global && inst.flag("e", Role::Value)
}

/// How many registers the operand has.
#[inline]
fn count(inst: &Instruction, named: &Named) -> u8 {
    match named.count {
        Count::One => 1,
        Count::Two => 2,
        Count::Four => 4,
        Count::Size(field) => words(inst.text_at(usize::from(field))),
        Count::Arithmetic if inst.chip() == SmArch::Sm120 && is_wide_integer(inst) => 2,
        Count::Arithmetic => 1,
        Count::Asked => asked(inst, inst.form().fields[usize::from(named.field)].slot),
    }
}

/// The same, where it depends on other fields of the instruction.
fn asked(inst: &Instruction, slot: &str) -> u8 {
    let form = inst.form();
    match (form.mnemonic, slot) {
        // Words of 32 bytes by a mask: each run of registers has those of its half.
        ("LDG", "d") | ("STG", "b2") => chosen(inst, 4),
        ("LDG", "d2") | ("STG", "b") => chosen(inst, 0),
        ("UIADD3", "d" | "a" | "b" | "c") if form.name.starts_with("64") => 2,
        ("CS2R" | "CS2UR", "d") if inst.modifier("w").is_empty() => 2,
        ("UMOV" | "USEL" | "UIMNMX" | "UISETP", _) if is_wide_integer(inst) => 2,
        ("LEPC", "d") => 2,
        ("MATCH", "a") if inst.says(mods::w::U64) => 2,
        ("LDSM", "d") | ("STSM", "b") => match inst.modifier("n") {
            ".4" => 4,
            ".2" => 2,
            _ => 1,
        },
        ("F2F" | "FRND" | "F2I" | "I2F", "d" | "b") => converted(inst, slot),
        ("HMMA" | "QMMA" | "IMMA" | "BMMA" | "DMMA", _) => fragment(inst, slot),
        ("HGMMA" | "IGMMA" | "QGMMA" | "BGMMA", _) => group_fragment(inst, slot),
        ("SYNCS", "d") if form.name.starts_with("ARRIVE") => 2,
        ("SYNCS", "b") if form.name == "EXCH" => 2,
        // Code addresses.
        ("RET" | "CALL" | "BRX" | "BRXU", "a") => 2,
        // Shared memory as the source has a 32-bit address and no mbarrier.
        ("UBLKCP", "b") if inst.says(mods::ss::S) => 1,
        ("UBLKRED", "b") => 1,
        // Shared memory, the mbarrier of a load, coordinates.
        ("UTMALDG", "a") => 2 + dimensions(inst),
        ("UTMASTG" | "UTMAREDG", "a") => 1 + dimensions(inst),
        ("UTMAPF", "a") => dimensions(inst),
        ("UTMALDG" | "UTMASTG" | "UTMAREDG" | "UTMAPF" | "UBLKCP" | "UBLKPF" | "UBLKRED", "a" | "b" | "ud") => 2,
        _ => 1,
    }
}

/// How many of the four words from `first` on a mask chooses.
#[allow(clippy::cast_possible_truncation)] // at most four
fn chosen(inst: &Instruction, first: u32) -> u8 {
    (inst.get("mask", Role::Value).unwrap_or(0) >> first & 0xf).count_ones() as u8
}

/// Whether an integer operation of sm_120 works on pairs.
fn is_wide_integer(inst: &Instruction) -> bool {
    let form = inst.form();
    form.name.ends_with("64") || inst.says(mods::w::_64) || inst.modifier("sg").ends_with("64")
}

/// Dimensions of a tensor.
fn dimensions(inst: &Instruction) -> u8 {
    inst.modifier("dim").bytes().find(u8::is_ascii_digit).map_or(1, |d| d - b'0')
}

/// Registers of a memory access by the text of its size.
fn words(size: &str) -> u8 {
    match size {
        "" => return 1,
        ".64" => return 2,
        ".128" => return 4,
        _ => {}
    }
    let has = |texts: &[&str]| texts.iter().any(|t| size.contains(t));
    match () {
        () if has(&[".128", "16x8", "F32x4", "F32.x4", "2x16", "3x16"]) => 4,
        () if has(&[".64", ".S64", ".U64", "16x4", "F32x2", "F64", "2x8", "3x8"]) => 2,
        () => 1,
    }
}

fn converted(inst: &Instruction, slot: &str) -> u8 {
    let wide = |text: &str| if text.contains("64") { 2 } else { 1 };
    match (inst.form().mnemonic, slot) {
        ("FRND", _) => wide(inst.modifier("dt")).max(wide(inst.modifier("st"))),
        (_, "d") => wide(inst.modifier("dt")),
        _ => wide(inst.modifier("st")),
    }
}

/// Registers of a warp's matrix fragments: rows times columns times bits over 32 lanes of 32 bits.
fn fragment(inst: &Instruction, slot: &str) -> u8 {
    let (rows, depth) = shape(inst.modifier("sh"));
    let (bits, accumulator) = match inst.form().mnemonic {
        "HMMA" if inst.says(mods::st::TF32) => (32, 32),
        "HMMA" if inst.says(mods::dt::F16) => (16, 16),
        "HMMA" => (16, 32),
        "DMMA" => (64, 64),
        "BMMA" => (1, 32),
        _ if inst.modifier("at").ends_with('4') => (4, 32),
        _ => (8, 32),
    };
    let kept = if inst.form().name.starts_with("SP") { depth / 2 } else { depth };
    let registers = |elements: u32, bits: u32| u8::try_from((elements * bits / 1024).max(1)).unwrap_or(u8::MAX);
    match slot {
        "a" => registers(rows * kept, bits),
        "b" => registers(8 * depth, bits),
        "d" | "c" => registers(rows * 8, accumulator),
        _ => 1,
    }
}

/// Rows and depth of a warp's multiply (8 columns): `.16816` is 16 by 8 by 16, as is `.16x8x16`.
fn shape(text: &str) -> (u32, u32) {
    let digits = text.replace(['.', 'x'], "");
    let (rows, depth) = match digits.strip_prefix("168") {
        Some(depth) => (16, depth),
        None => (8, digits.strip_prefix("88").unwrap_or_default()),
    };
    (rows, depth.parse().unwrap_or(8))
}

/// Registers of a wgmma's fragments: 64 rows by N columns over 128 lanes.
fn group_fragment(inst: &Instruction, slot: &str) -> u8 {
    let columns: u32 = inst.modifier("sh").split('x').nth(1).and_then(|n| n.parse().ok()).unwrap_or(8);
    let packed = inst.says(mods::dt::F16);
    match slot {
        "d" | "c" => u8::try_from(columns / if packed { 4 } else { 2 }).unwrap_or(u8::MAX),
        "a" => 4,
        "u" => {
            if has_fragment(inst) {
                2
            } else {
                4
            }
        }
        _ => 1,
    }
}
