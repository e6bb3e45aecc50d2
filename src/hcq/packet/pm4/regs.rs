//! Compute registers by name, and the fields of those whose values a driver computes.
//!
//! Source: docs/amd.md 2.4 (`gc_9_4_3`, `gc_11_0_0`, `gc_12_0_0` register headers of the kernel driver). Numbers are
//! dword offsets from the start of the SH space, as in SET_SH_REG. Left out: UCONFIG registers' names.

use super::chip::Gfx;
use crate::bits::{Field, FieldOverflow, field};

/// Dword address of the SH register space, to which SET_SH_REG's offsets are relative.
pub const SH_REG_START: u32 = 0x2c00;
/// Registers in the SH space.
pub const SH_REG_COUNT: u32 = 0x400;
/// Dword address of the UCONFIG register space, to which SET_UCONFIG_REG's offsets are relative.
pub const UCONFIG_REG_START: u32 = 0xc000;
/// Registers in the UCONFIG space.
pub(crate) const UCONFIG_REG_COUNT: u32 = 0x4000;
/// User SGPRs that the hardware can load.
pub const USER_DATA_COUNT: u32 = 16;

/// A register of the SH space: its dword offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShReg(pub u16);

/// A register of the UCONFIG space: its dword offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UconfigReg(pub u16);

#[allow(missing_docs)]
impl ShReg {
    pub const COMPUTE_DISPATCH_INITIATOR: Self = Self(0x200);
    pub const COMPUTE_DIM_X: Self = Self(0x201);
    pub const COMPUTE_START_X: Self = Self(0x204);
    pub const COMPUTE_NUM_THREAD_X: Self = Self(0x207);
    pub const COMPUTE_PIPELINESTAT_ENABLE: Self = Self(0x20a);
    pub const COMPUTE_PERFCOUNT_ENABLE: Self = Self(0x20b);
    pub const COMPUTE_PGM_LO: Self = Self(0x20c);
    pub const COMPUTE_PGM_HI: Self = Self(0x20d);
    pub const COMPUTE_DISPATCH_PKT_ADDR_LO: Self = Self(0x20e);
    pub const COMPUTE_DISPATCH_SCRATCH_BASE_LO: Self = Self(0x210);
    pub const COMPUTE_DISPATCH_SCRATCH_BASE_HI: Self = Self(0x211);
    pub const COMPUTE_PGM_RSRC1: Self = Self(0x212);
    pub const COMPUTE_PGM_RSRC2: Self = Self(0x213);
    pub const COMPUTE_RESOURCE_LIMITS: Self = Self(0x215);
    pub const COMPUTE_TMPRING_SIZE: Self = Self(0x218);
    pub const COMPUTE_RESTART_X: Self = Self(0x21b);
    /// gfx10 and later.
    pub const COMPUTE_PGM_RSRC3: Self = Self(0x228);
    /// gfx90a, gfx942.
    pub const COMPUTE_PGM_RSRC3_GFX9: Self = Self(0x22d);
    pub const COMPUTE_USER_DATA_0: Self = Self(0x240);
}

const G9: u8 = 1;
const G10: u8 = 2;
const G11: u8 = 4;
const G12: u8 = 8;
const ALL: u8 = G9 | G10 | G11 | G12;
const RDNA: u8 = G10 | G11 | G12;

/// Registers `first..first + suffixes`, and the families that have them.
struct Row {
    first: u16,
    name: &'static str,
    suffixes: &'static [&'static str],
    families: u8,
}

const XYZ: &[&str] = &["_X", "_Y", "_Z"];
const LO_HI: &[&str] = &["_LO", "_HI"];
const ONE: &[&str] = &[""];
const NUMBERS: &[&str] =
    &["_0", "_1", "_2", "_3", "_4", "_5", "_6", "_7", "_8", "_9", "_10", "_11", "_12", "_13", "_14", "_15"];

const fn row(first: u16, name: &'static str, suffixes: &'static [&'static str], families: u8) -> Row {
    Row { first, name, suffixes, families }
}

#[rustfmt::skip] // dword offsets from 0x2c00, in order of address
const ROWS: &[Row] = &[
    row(0x200, "COMPUTE_DISPATCH_INITIATOR", ONE, ALL),
    row(0x201, "COMPUTE_DIM", XYZ, ALL),
    row(0x204, "COMPUTE_START", XYZ, ALL),
    row(0x207, "COMPUTE_NUM_THREAD", XYZ, ALL),
    row(0x20a, "COMPUTE_PIPELINESTAT_ENABLE", ONE, ALL),
    row(0x20b, "COMPUTE_PERFCOUNT_ENABLE", ONE, ALL),
    row(0x20c, "COMPUTE_PGM", LO_HI, ALL),
    row(0x20e, "COMPUTE_DISPATCH_PKT_ADDR", LO_HI, ALL),
    row(0x210, "COMPUTE_DISPATCH_SCRATCH_BASE", LO_HI, ALL),
    row(0x212, "COMPUTE_PGM_RSRC1", ONE, ALL),
    row(0x213, "COMPUTE_PGM_RSRC2", ONE, ALL),
    row(0x214, "COMPUTE_VMID", ONE, ALL),
    row(0x215, "COMPUTE_RESOURCE_LIMITS", ONE, ALL),
    row(0x216, "COMPUTE_STATIC_THREAD_MGMT", &["_SE0", "_SE1"], ALL),
    row(0x218, "COMPUTE_TMPRING_SIZE", ONE, ALL),
    row(0x219, "COMPUTE_STATIC_THREAD_MGMT", &["_SE2", "_SE3"], ALL),
    row(0x21b, "COMPUTE_RESTART", XYZ, ALL),
    row(0x21e, "COMPUTE_THREAD_TRACE_ENABLE", ONE, ALL),
    row(0x21f, "COMPUTE_MISC_RESERVED", ONE, ALL),
    row(0x220, "COMPUTE_DISPATCH_ID", ONE, ALL),
    row(0x221, "COMPUTE_THREADGROUP_ID", ONE, ALL),
    row(0x222, "COMPUTE_REQ_CTRL", ONE, RDNA),
    row(0x222, "COMPUTE_RELAUNCH", ONE, G9),
    row(0x227, "COMPUTE_TG_CHUNK_SIZE", ONE, G9),
    row(0x228, "COMPUTE_PGM_RSRC3", ONE, RDNA),
    row(0x22a, "COMPUTE_SHADER_CHKSUM", ONE, RDNA),
    row(0x22b, "COMPUTE_STATIC_THREAD_MGMT", &["_SE4", "_SE5", "_SE6", "_SE7"], G11 | G12),
    row(0x22c, "COMPUTE_SHADER_CHKSUM", ONE, G9),
    row(0x22d, "COMPUTE_PGM_RSRC3", ONE, G9),
    row(0x22f, "COMPUTE_DISPATCH_INTERLEAVE", ONE, G11 | G12),
    row(0x230, "COMPUTE_RELAUNCH", ONE, RDNA),
    row(0x240, "COMPUTE_USER_DATA", NUMBERS, ALL),
    row(0x27d, "COMPUTE_DISPATCH_TUNNEL", ONE, RDNA),
];

const fn family(gfx: Gfx) -> u8 {
    match gfx {
        Gfx::Gfx9 => G9,
        Gfx::Gfx10 => G10,
        Gfx::Gfx11 => G11,
        Gfx::Gfx12 => G12,
    }
}

fn row_of(gfx: Gfx, reg: ShReg) -> Option<&'static Row> {
    ROWS.iter().find(|row| {
        let last = row.first as usize + row.suffixes.len();
        row.families & family(gfx) != 0 && (row.first as usize..last).contains(&(reg.0 as usize))
    })
}

/// Whether the family has the register.
#[must_use]
pub fn sh_reg_exists(gfx: Gfx, reg: ShReg) -> bool {
    row_of(gfx, reg).is_some()
}

/// The register's name on this family; `None` for a hole.
#[must_use]
pub(crate) fn sh_reg_name(gfx: Gfx, reg: ShReg) -> Option<String> {
    let row = row_of(gfx, reg)?;
    let suffix = row.suffixes.get(usize::from(reg.0 - row.first))?;
    Some(format!("{}{suffix}", row.name))
}

/// COMPUTE_DISPATCH_INITIATOR, by bit names.
#[allow(missing_docs)]
pub mod initiator {
    pub const COMPUTE_SHADER_EN: u32 = 1 << 0;
    pub const PARTIAL_TG_EN: u32 = 1 << 1;
    pub const FORCE_START_AT_000: u32 = 1 << 2;
    pub const USE_THREAD_DIMENSIONS: u32 = 1 << 5;
    pub const ORDER_MODE: u32 = 1 << 6;
    pub const TUNNEL_ENABLE: u32 = 1 << 13;
    pub const RESTORE: u32 = 1 << 14;
    /// gfx10 and later.
    pub const CS_W32_EN: u32 = 1 << 15;
    pub const DISABLE_DISPATCH_PREEMPT: u32 = 1 << 17;

    /// The value for a plain dispatch of waves of 64 lanes; add [`CS_W32_EN`] for 32.
    pub const PLAIN: u32 = COMPUTE_SHADER_EN | FORCE_START_AT_000;
    /// All named bits, and ordered append 4:3.
    pub const KNOWN: u32 = 0x0002_e07f;
}

/// RSRC2: LDS size in granules of 512 bytes, which a PM4 driver fills in.
pub const RSRC2_LDS_SIZE: Field = field(0, 15, 23);
/// RSRC1: privileged wave.
pub const RSRC1_PRIV: Field = field(0, 20, 20);
/// COMPUTE_NUM_THREAD: lanes of the last, partial workgroup.
pub const NUM_THREAD_PARTIAL: Field = field(0, 16, 31);

const TMPRING_WAVES: Field = field(0, 0, 11);

/// COMPUTE_TMPRING_SIZE: the number of waves with scratch, and bytes per wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TmpringSize {
    pub waves: u32,
    pub wave_bytes: u32,
}

impl TmpringSize {
    fn wave_size(gfx: Gfx) -> Field {
        field(0, 12, gfx.table().scratch_wave_size_hi)
    }

    /// The register's value. `wave_bytes` is rounded up to the family's granule.
    ///
    /// # Errors
    /// `FieldOverflow` if waves or bytes per wave exceed the register's limit.
    pub fn emit(self, gfx: Gfx) -> Result<u32, FieldOverflow> {
        let mut word = [0];
        TMPRING_WAVES.set(&mut word, "tmpring waves", self.waves)?;
        let granules = self.wave_bytes.div_ceil(gfx.table().scratch_granule_bytes);
        Self::wave_size(gfx).set(&mut word, "tmpring wave size", granules)?;
        Ok(word[0])
    }

    /// Parses a register value.
    #[must_use]
    pub fn parse(gfx: Gfx, word: u32) -> Self {
        let granules = Self::wave_size(gfx).get(&[word]);
        Self {
            waves: TMPRING_WAVES.get(&[word]),
            wave_bytes: granules.saturating_mul(gfx.table().scratch_granule_bytes),
        }
    }
}

/// COMPUTE_NUM_THREAD's full and partial counts of lanes in one dimension.
#[must_use]
pub fn num_thread(gfx: Gfx, word: u32) -> (u32, u32) {
    let full = field(0, 0, gfx.table().num_thread_full_hi);
    (full.get(&[word]), NUM_THREAD_PARTIAL.get(&[word]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsrc3_stands_where_the_family_has_it() {
        assert_eq!(sh_reg_name(Gfx::Gfx11, ShReg(0x228)).unwrap(), "COMPUTE_PGM_RSRC3");
        assert_eq!(sh_reg_name(Gfx::Gfx9, ShReg(0x22d)).unwrap(), "COMPUTE_PGM_RSRC3");
        assert_eq!(sh_reg_name(Gfx::Gfx11, ShReg(0x22d)).unwrap(), "COMPUTE_STATIC_THREAD_MGMT_SE6");
        assert_eq!(sh_reg_name(Gfx::Gfx9, ShReg(0x228)), None);
    }

    #[test]
    fn numbered_and_lettered_registers_get_their_suffix() {
        assert_eq!(sh_reg_name(Gfx::Gfx12, ShReg(0x24f)).unwrap(), "COMPUTE_USER_DATA_15");
        assert_eq!(sh_reg_name(Gfx::Gfx12, ShReg(0x209)).unwrap(), "COMPUTE_NUM_THREAD_Z");
        assert_eq!(sh_reg_name(Gfx::Gfx12, ShReg(0x250)), None);
    }

    #[test]
    fn no_family_has_two_names_for_a_register() {
        for gfx in [Gfx::Gfx9, Gfx::Gfx10, Gfx::Gfx11, Gfx::Gfx12] {
            for reg in 0..0x400_u16 {
                let hits = ROWS.iter().filter(|r| {
                    r.families & family(gfx) != 0 && reg >= r.first && usize::from(reg - r.first) < r.suffixes.len()
                });
                assert!(hits.count() <= 1, "{gfx:?} {reg:#x}");
            }
        }
    }

    #[test]
    fn scratch_size_is_in_the_familys_unit() {
        let t = TmpringSize { waves: 3, wave_bytes: 2048 };
        assert_eq!(t.emit(Gfx::Gfx9).unwrap(), 3 | 2 << 12);
        assert_eq!(t.emit(Gfx::Gfx11).unwrap(), 3 | 8 << 12);
        assert_eq!(TmpringSize::parse(Gfx::Gfx11, 3 | 8 << 12), t);
        assert!(TmpringSize { waves: 4096, wave_bytes: 0 }.emit(Gfx::Gfx11).is_err());
        assert!(TmpringSize { waves: 1, wave_bytes: 256 << 15 }.emit(Gfx::Gfx11).is_err());
        assert!(TmpringSize { waves: 1, wave_bytes: 256 << 15 }.emit(Gfx::Gfx12).is_ok());
    }
}
