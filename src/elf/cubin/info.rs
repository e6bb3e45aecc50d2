//! Attribute sections: `.nv.info` of the file and `.nv.info.KERNEL` of each kernel.
//!
//! A record is a form, a number, and 16 bits: for forms 1 to 3 a value, for form 4 the length of the bytes that follow.

use crate::error::ElfError;
use crate::num::wide;

/// Numbers of the attributes that matter to a launch, and of those that every file of ptxas has (`EIATTR_*` in NVIDIA's
/// naming).
pub(crate) mod id {
    pub(crate) const MAX_THREADS: u8 = 0x05;
    pub(crate) const PARAM_CBANK: u8 = 0x0a;
    pub(crate) const REQNTID: u8 = 0x10;
    pub(crate) const FRAME_SIZE: u8 = 0x11;
    pub(crate) const MIN_STACK_SIZE: u8 = 0x12;
    pub(crate) const KPARAM_INFO: u8 = 0x17;
    pub(crate) const CBANK_PARAM_SIZE: u8 = 0x19;
    pub(crate) const MAXREG_COUNT: u8 = 0x1b;
    pub(crate) const EXIT_INSTR_OFFSETS: u8 = 0x1c;
    pub(crate) const REGCOUNT: u8 = 0x2f;
    pub(crate) const SW2861232_WAR: u8 = 0x35;
    pub(crate) const SW_WAR: u8 = 0x36;
    pub(crate) const CUDA_API_VERSION: u8 = 0x37;
    pub(crate) const CTA_PER_CLUSTER: u8 = 0x3d;
    pub(crate) const EXPLICIT_CLUSTER: u8 = 0x3e;
    pub(crate) const MAX_CLUSTER_RANK: u8 = 0x3f;
    pub(crate) const KPARAM_INFO_V2: u8 = 0x45;
    pub(crate) const AT_ENTRY_FRAGMENTS: u8 = 0x4a;
    pub(crate) const NUM_BARRIERS: u8 = 0x4c;
    pub(crate) const SPARSE_MMA_MASK: u8 = 0x50;
    pub(crate) const MERCURY_ISA_VERSION: u8 = 0x5f;
    pub(crate) const LANGUAGE: u8 = 0x66;
    /// Two at the end of every kernel's records from sm_90 on; their names and meanings are not known.
    pub(crate) const LAST_BUT_ONE: u8 = 0x6b;
    pub(crate) const LAST: u8 = 0x6d;
}

/// The payload of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Form 1: the record's presence says it all.
    None,
    /// Form 2: 8 bits.
    Byte(u8),
    /// Form 3: 16 bits.
    Half(u16),
    /// Form 4: the bytes that follow the record's head, 65,535 at most.
    Bytes(&'a [u8]),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Number of the attribute (`EIATTR_*`).
    pub id: u8,
    /// The payload, in the record's form.
    pub value: Value<'a>,
    /// Its offset in the file.
    pub offset: u64,
}

impl<'a> Attribute<'a> {
    /// Reads a section at `offset` of the file.
    ///
    /// # Errors
    /// A form that is not known, a record that is cut off.
    pub fn parse_all(section: &'a [u8], offset: u64) -> Result<Vec<Attribute<'a>>, ElfError> {
        let (mut rest, mut out) = (section, Vec::new());
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let [form, id, lo, hi] = *head;
            let offset = offset.saturating_add(wide(section.len() - rest.len()));
            let half = u16::from_le_bytes([lo, hi]);
            let (value, after) = match form {
                1 => (Value::None, tail),
                2 => (Value::Byte(lo), tail),
                3 => (Value::Half(half), tail),
                4 => {
                    let cut = ElfError::BadAttribute { id, offset, why: "its value reaches beyond the section" };
                    let (value, after) = tail.split_at_checked(usize::from(half)).ok_or(cut)?;
                    (Value::Bytes(value), after)
                }
                _ => return Err(ElfError::BadAttribute { id, offset, why: "its form is not 1 to 4" }),
            };
            out.push(Attribute { id, value, offset });
            rest = after;
        }
        if !rest.is_empty() {
            let offset = offset.saturating_add(wide(section.len() - rest.len()));
            return Err(ElfError::BadAttribute { id: 0, offset, why: "less than a record is left in the section" });
        }
        Ok(out)
    }

    /// The 32-bit words of a value.
    ///
    /// # Errors
    /// Fewer than `N`.
    pub fn words<const N: usize>(&self) -> Result<[u32; N], ElfError> {
        let short = ElfError::BadAttribute { id: self.id, offset: self.offset, why: "its value is too short" };
        let Value::Bytes(bytes) = self.value else { return Err(short) };
        let (words, _) = bytes.as_chunks::<4>();
        let words = words.first_chunk::<N>().ok_or(short)?;
        Ok(words.map(u32::from_le_bytes))
    }

    /// A value of 8 or 16 bits, as the older and the newer forms of an attribute hold it.
    ///
    /// # Errors
    /// Any other form.
    pub fn number(&self) -> Result<u32, ElfError> {
        match self.value {
            Value::Byte(n) => Ok(n.into()),
            Value::Half(n) => Ok(n.into()),
            _ => Err(ElfError::BadAttribute { id: self.id, offset: self.offset, why: "it is not a number" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_all_forms_are_read_in_order() {
        let bytes = [1, 0x3e, 0, 0, 2, 0x4c, 3, 0, 3, 0x19, 0x0c, 0x01, 4, 0x2f, 8, 0, 5, 0, 0, 0, 16, 0, 0, 0];
        let all = Attribute::parse_all(&bytes, 0x100).unwrap();
        assert_eq!(
            all.iter().map(|a| (a.id, a.offset)).collect::<Vec<_>>(),
            [(0x3e, 0x100), (0x4c, 0x104), (0x19, 0x108), (0x2f, 0x10c)]
        );
        assert_eq!(all[0].value, Value::None);
        assert_eq!((all[1].number(), all[2].number()), (Ok(3), Ok(0x10c)));
        assert_eq!(all[3].words::<2>(), Ok([5, 16]));
        assert!(all[3].words::<3>().is_err() && all[3].number().is_err());
    }

    #[test]
    fn records_that_are_cut_or_unknown_are_errors_with_their_place() {
        let error = Attribute::parse_all(&[4, 0x2f, 8, 0, 5], 0x100).unwrap_err();
        assert_eq!(error.to_string(), "ELF: attribute 0x2f at offset 0x100: its value reaches beyond the section");
        assert!(Attribute::parse_all(&[9, 1, 0, 0], 0).is_err());
        assert!(Attribute::parse_all(&[1, 1, 0, 0, 1], 0).is_err());
    }
}
