//! Bits that an encoding leaves reserved: hardware may do anything with them, so strict mode refuses them.

use super::Chip;
use super::fault::{FaultKind, R, fail};
use super::inst::Inst;
use super::rows::Format;

/// Reserved bits of the first two words of a format. Source: docs/amd-isa.md 5.1 to 5.3.
fn reserved(chip: Chip, format: Format) -> u64 {
    match (chip, format) {
        (Chip::Gfx1100, Format::Smem) => 0x01e0_0000_0003_8000,
        (Chip::Gfx1201, Format::Smem) => 0x0100_0000_0218_0000,
        (Chip::Gfx942, Format::Smem) => 0x01e0_0000_0000_2000,
        (Chip::Gfx1100, Format::Ds) => 0x0001_0000,
        (Chip::Gfx1100, Format::Flat | Format::Global | Format::Scratch) => 0x0200_0000,
        (Chip::Gfx1100, Format::Mubuf) => 0x0003_8000,
        _ => 0,
    }
}

pub(super) fn check(chip: Chip, i: &Inst) -> R<()> {
    let word = u64::from(i.words[0]) | u64::from(i.words[1]) << 32;
    let bits = word & reserved(chip, i.format);
    if bits != 0 {
        return fail(FaultKind::ReservedBits { name: i.entry.name.into(), bits });
    }
    Ok(())
}
