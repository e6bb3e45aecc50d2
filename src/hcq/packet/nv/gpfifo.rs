//! GPFIFO entries: addresses of the methods that a channel's host engine runs.

use super::VA_LIMIT;
use crate::bits::{Field, field, join};
use crate::packet::{DecodeKind, EmitError, GpuVa, check_emit_align, check_reserved};

/// Dwords of one entry.
pub const DWORDS: usize = 2;
/// Most dwords that one entry can fetch.
pub(crate) const MAX_FETCH_DWORDS: u32 = (1 << 21) - 1;
/// Byte offsets of GPGet and GPPut in a channel's USERD (Blackwell has only GPPut).
pub const USERD_GP_GET: u64 = 0x88;
pub const USERD_GP_PUT: u64 = 0x8c;
/// Byte offsets of the doorbell and of the clock (low, then high word) in the usermode registers.
pub const DOORBELL: u64 = 0x90;
pub const PTIMER: u64 = 0x80;

const NAME: &str = "GPFIFO entry";
const CONDITIONAL: Field = field(0, 0, 0);
const VA_LO: Field = field(0, 2, 31);
const VA_HI: Field = field(1, 0, 7);
const LEVEL: Field = field(1, 9, 9);
const LENGTH: Field = field(1, 10, 30);
const SYNC: Field = field(1, 31, 31);
const FETCH: &[Field] = &[CONDITIONAL, VA_LO, VA_HI, LEVEL, LENGTH, SYNC];
const EXTENDED_BASE: Field = field(0, 8, 24);
const OPCODE: Field = field(1, 0, 7);

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Methods to run.
    Fetch {
        /// A multiple of 4, below 2^40.
        va: GpuVa,
        len_dwords: u32,
        /// Level 1; for plain push buffers, no effect is known.
        subroutine: bool,
        /// Waits for the methods of the previous entry.
        sync: bool,
    },
    Nop,
    /// Bits 56:40 of the addresses of all following fetches (Hopper and later).
    ExtendedBase(u32),
}

impl Entry {
    /// A push buffer, run as soon as it is fetched.
    #[must_use]
    pub const fn fetch(va: GpuVa, len_dwords: u32) -> Self {
        Self::Fetch { va, len_dwords, subroutine: false, sync: false }
    }

    /// The two dwords for the ring.
    ///
    /// # Errors
    /// An address that is misaligned or not below 2^40, a length of 0 or over 2^21 - 1 dwords.
    pub fn emit(&self) -> Result<[u32; DWORDS], EmitError> {
        let mut w = [0; DWORDS];
        match *self {
            Self::Fetch { va, len_dwords, subroutine, sync } => {
                check_emit_align(NAME, va, 4)?;
                if va.0 >= VA_LIMIT {
                    return Err(EmitError::OverLimit { packet: NAME, field: "va", value: va.0, max: VA_LIMIT - 4 });
                }
                if len_dwords == 0 {
                    let max = MAX_FETCH_DWORDS as usize;
                    return Err(EmitError::Values { packet: NAME, count: 0, min: 1, max });
                }
                let [lo, hi] = crate::bits::split(va.0);
                VA_LO.set(&mut w, "va", lo >> 2)?;
                VA_HI.set(&mut w, "va", hi)?;
                LEVEL.set(&mut w, "level", subroutine.into())?;
                LENGTH.set(&mut w, "length", len_dwords)?;
                SYNC.set(&mut w, "sync", sync.into())?;
            }
            Self::Nop => {}
            Self::ExtendedBase(base) => {
                EXTENDED_BASE.set(&mut w, "extended base", base)?;
                OPCODE.set(&mut w, "opcode", 4)?;
            }
        }
        Ok(w)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// Conditional fetches, unknown opcodes, reserved bits.
    pub fn parse(w: [u32; DWORDS]) -> Result<Self, DecodeKind> {
        if LENGTH.get(&w) == 0 {
            return match OPCODE.get(&w) {
                0 => check_reserved(NAME, &w, &[OPCODE]).map(|()| Self::Nop),
                4 => {
                    check_reserved(NAME, &w, &[OPCODE, EXTENDED_BASE])?;
                    Ok(Self::ExtendedBase(EXTENDED_BASE.get(&w)))
                }
                opcode => Err(DecodeKind::Opcode { set: NAME, opcode }),
            };
        }
        check_reserved(NAME, &w, FETCH)?;
        if CONDITIONAL.get(&w) != 0 {
            return Err(DecodeKind::Value { packet: NAME, field: "fetch", value: 1 });
        }
        Ok(Self::Fetch {
            va: GpuVa(join(VA_LO.get(&w) << 2, VA_HI.get(&w))),
            len_dwords: LENGTH.get(&w),
            subroutine: LEVEL.get(&w) == 1,
            sync: SYNC.get(&w) == 1,
        })
    }
}
