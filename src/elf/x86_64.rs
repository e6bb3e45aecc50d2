//! What AMD64 adds to ELF: relocation numbers, the width of their fields, the stub that reaches a far function.
//!
//! Source: System V ABI, AMD64 supplement 1.0, table 4.9 (relocation types).

use super::object::RelocKind;

#[doc(alias = "e_machine")]
pub(crate) const EM_X86_64: u16 = 62;
/// Section type of `.eh_frame` as some assemblers write it.
pub(crate) const SHT_X86_64_UNWIND: u32 = 0x7000_0001;

/// One relocation type: number in the file, meaning, vendor name.
pub(crate) struct Row {
    pub number: u32,
    pub kind: RelocKind,
    pub name: &'static str,
}

const fn row(number: u32, kind: RelocKind, name: &'static str) -> Row {
    Row { number, kind, name }
}

#[rustfmt::skip] // AMD64 supplement, table 4.9, in its order
pub(crate) const RELOCATIONS: &[Row] = &[
    row(0,  RelocKind::None,            "R_X86_64_NONE"),
    row(1,  RelocKind::Abs64,           "R_X86_64_64"),
    row(2,  RelocKind::Pc32,            "R_X86_64_PC32"),
    row(4,  RelocKind::Plt32,           "R_X86_64_PLT32"),
    row(9,  RelocKind::GotPc32,         "R_X86_64_GOTPCREL"),
    row(10, RelocKind::Abs32,           "R_X86_64_32"),
    row(11, RelocKind::Abs32Signed,     "R_X86_64_32S"),
    row(24, RelocKind::Pc64,            "R_X86_64_PC64"),
    row(25, RelocKind::GotOff64,        "R_X86_64_GOTOFF64"),
    row(26, RelocKind::GotBasePc32,     "R_X86_64_GOTPC32"),
    row(27, RelocKind::Got64,           "R_X86_64_GOT64"),
    row(29, RelocKind::GotBasePc64,     "R_X86_64_GOTPC64"),
    row(31, RelocKind::PltOff64,        "R_X86_64_PLTOFF64"),
    row(41, RelocKind::GotPc32Relax,    "R_X86_64_GOTPCRELX"),
    row(42, RelocKind::GotPc32RexRelax, "R_X86_64_REX_GOTPCRELX"),
];

/// The row of a relocation number, if this loader applies it.
pub(crate) fn by_number(number: u32) -> Option<&'static Row> {
    RELOCATIONS.iter().find(|row| row.number == number)
}

/// The row of a meaning; every [`RelocKind`] so far is one of AMD64's.
pub(crate) fn by_kind(kind: RelocKind) -> Option<&'static Row> {
    RELOCATIONS.iter().find(|row| row.kind == kind)
}

/// Bytes of the field that a relocation changes.
pub(crate) fn field_bytes(kind: RelocKind) -> u64 {
    use RelocKind as K;
    match kind {
        K::None => 0,
        K::Abs32 | K::Abs32Signed | K::Pc32 | K::Plt32 => 4,
        K::GotPc32 | K::GotPc32Relax | K::GotPc32RexRelax | K::GotBasePc32 => 4,
        K::Abs64 | K::Pc64 | K::GotBasePc64 | K::GotOff64 | K::Got64 | K::PltOff64 => 8,
    }
}

/// Bytes of one stub: a jump and padding, so that stubs start on aligned addresses.
pub(crate) const STUB_BYTES: u64 = 16;
/// Offset of the 32-bit distance to the GOT slot in a stub, from the stub's start; the instruction ends 4 bytes later.
pub(crate) const STUB_FIELD: u64 = 2;
/// `jmp *slot(%rip)`, then breakpoints.
pub(crate) const STUB: [u8; 16] = [0xff, 0x25, 0, 0, 0, 0, INT3, INT3, INT3, INT3, INT3, INT3, INT3, INT3, INT3, INT3];
/// Fills the gaps between functions: execution that gets there stops.
pub(crate) const INT3: u8 = 0xcc;

/// Whether the 32-bit field at `at` is the distance of a relative call or jump.
///
/// Exact, not heuristic: the byte before a RIP-relative data reference is a ModRM byte with mod 0 and r/m 5, whose top
/// two bits are 0, while the opcodes of CALL (E8), JMP (E9) and Jcc (0F 80-8F) have the top bit set.
pub(crate) fn is_branch(code: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).and_then(|i| code.get(i)).copied();
    match before(1) {
        Some(0xe8 | 0xe9) => true,
        Some(0x80..=0x8f) => before(2) == Some(0x0f),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relocation_numbers_and_kinds_are_unique() {
        for (i, a) in RELOCATIONS.iter().enumerate() {
            assert!(RELOCATIONS[i + 1..].iter().all(|b| a.number != b.number && a.kind != b.kind), "{}", a.name);
        }
    }

    #[test]
    fn is_branch_knows_calls_and_jumps_from_loads() {
        assert!(is_branch(&[0xe8, 0, 0, 0, 0], 1)); // call rel32
        assert!(is_branch(&[0x0f, 0x84, 0, 0, 0, 0], 2)); // je rel32
        assert!(!is_branch(&[0x48, 0x8b, 0x05, 0, 0, 0, 0], 3)); // mov rel32(%rip), %rax
        assert!(!is_branch(&[0, 0, 0, 0], 0));
    }
}
