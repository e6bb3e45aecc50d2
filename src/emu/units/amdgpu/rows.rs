//! The decoder's tables: generated rows, joined by name with the hand-written semantics.

use super::Chip;
use super::sem::{Sem, meaning};
use std::collections::HashMap;
use std::sync::OnceLock;

/// Instruction formats; one of gfx12's memory formats is the older one it grew from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Format {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3Sd,
    Vop3p,
    Mai,
    VopdX,
    VopdY,
    Smem,
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
    Vflat,
    Vglobal,
    Vscratch,
    Vbuffer,
}

impl Format {
    /// The same operation under the name that execution uses.
    fn plain(self) -> Self {
        match self {
            Self::Vflat => Self::Flat,
            Self::Vglobal => Self::Global,
            Self::Vscratch => Self::Scratch,
            Self::Vbuffer => Self::Mubuf,
            Self::Vop3Sd => Self::Vop3,
            other => other,
        }
    }
}

/// One generated row.
pub(super) struct Row {
    pub format: Format,
    pub opcode: u16,
    pub name: &'static str,
    pub widths: [u8; 4],
}

pub(super) const fn row(format: Format, opcode: u16, name: &'static str, widths: [u8; 4]) -> Row {
    Row { format, opcode, name, widths }
}

/// A row with its meaning.
pub(super) struct Entry {
    pub name: &'static str,
    /// Dwords of destination and sources; 255 is a lane mask.
    pub widths: [u8; 4],
    pub sem: Sem,
}

/// All instructions of a chip by format and opcode.
pub(super) struct Table {
    pub chip: Chip,
    entries: HashMap<(Format, u16), Entry>,
}

impl Table {
    fn build(chip: Chip, rows: &'static [Row]) -> Self {
        let mut entries = HashMap::with_capacity(rows.len());
        for r in rows {
            let format = r.format.plain();
            let sem = meaning(chip, format, r.name, r.widths);
            entries.insert((format, r.opcode), Entry { name: r.name, widths: r.widths, sem });
        }
        Self { chip, entries }
    }

    pub(crate) fn of(chip: Chip) -> &'static Self {
        static TABLES: [OnceLock<Table>; 3] = [OnceLock::new(), OnceLock::new(), OnceLock::new()];
        let rows = match chip {
            Chip::Gfx1100 => super::table_gfx1100::ROWS,
            Chip::Gfx942 => super::table_gfx942::ROWS,
            Chip::Gfx1201 => super::table_gfx1201::ROWS,
        };
        TABLES[chip as usize].get_or_init(|| Self::build(chip, rows))
    }

    pub(crate) fn get(&self, format: Format, opcode: u32) -> Option<&Entry> {
        self.entries.get(&(format, u16::try_from(opcode).ok()?))
    }

    /// A 64-bit encoded vector instruction: its own row, or the one of the short form it widens.
    pub(crate) fn vop3(&self, opcode: u32) -> Option<&Entry> {
        let vop1 = if self.chip == Chip::Gfx942 { 0x140 } else { 0x180 };
        self.get(Format::Vop3, opcode).or_else(|| match opcode {
            0..0x100 => self.get(Format::Vopc, opcode),
            _ if opcode >= vop1 && opcode < vop1 + 0x80 => self.get(Format::Vop1, opcode - vop1),
            _ => self.get(Format::Vop2, opcode.checked_sub(0x100)?).filter(|_| opcode < 0x140),
        })
    }
}

/// Names of a chip's instructions and whether each is executed, for reports and tests.
#[must_use]
pub fn coverage(chip: Chip) -> Vec<(&'static str, bool)> {
    let table = Table::of(chip);
    let mut rows: Vec<_> = table.entries.values().map(|e| (e.name, !matches!(e.sem, Sem::Unmodelled))).collect();
    rows.sort_unstable();
    rows
}
