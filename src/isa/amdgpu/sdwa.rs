//! Sub-dword addressing (gfx9): the dword that replaces the first source and says which bytes of sources and
//! destination an operation uses.
//!
//! Source: AMD's manual of CDNA3, «VOP_SDWA» and «VOPC_SDWA»; LLVM's notation. Left out: scalar second sources, and
//! comparisons whose result goes elsewhere than to VCC.

use super::encode::{Builder, EncodeError};
use super::format::{Bits, Field, Format, Layout};
use super::inst::{Modifiers, Sdwa};
use super::row::{Allows, Row};

/// Operand code of the first source which means that the dword follows.
pub(super) const CODE: u16 = 249;
/// Parts of a dword, by number.
const PARTS: [&str; 7] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"];
const WHOLE: u8 = 6;
/// What becomes of the rest of the destination, by number.
const REST: [&str; 3] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"];

const DST_SEL: (u8, u8) = (8, 3);
const DST_UNUSED: (u8, u8) = (11, 2);
const CLAMP: (u8, u8) = (13, 1);
const OMOD: (u8, u8) = (14, 2);
const SCALAR: (u8, u8) = (23, 1);
/// Of the first source; the second's are eight bits further on.
const SEL: (u8, u8) = (16, 3);
const SEXT: (u8, u8) = (19, 1);
const NEG: (u8, u8) = (20, 1);
const ABS: (u8, u8) = (21, 1);

impl Default for Sdwa {
    /// What LLVM's assembler takes where a text leaves a part out.
    fn default() -> Sdwa {
        Sdwa { dst_sel: 6, dst_unused: 2, src_sel: [6, 6], sext: 0 }
    }
}

/// How many of the row's sources the dword describes.
fn sources(row: &Row) -> u8 {
    1 + u8::from(row.slots.iter().any(|s| s.field == Field::Vsrc1))
}

/// Whether the parts of the destination can be chosen: comparisons have none, and conversions of eight bits write all.
fn writes_parts(row: &Row) -> bool {
    let name = row.op.name();
    row.format != Format::Vopc && !name.ends_with("_fp8") && !name.ends_with("_bf8")
}

/// Checks that the row has this form.
pub(super) fn check(b: &Builder, sdwa: Sdwa) -> Result<(), EncodeError> {
    if !b.target.chip.is_gfx9() || !b.row.allows.contains(Allows::SDWA) {
        return Err(EncodeError::Modifier { op: b.name, what: "SDWA" });
    }
    let parts = [sdwa.dst_sel, sdwa.src_sel[0], sdwa.src_sel[1]];
    if parts.iter().any(|p| usize::from(*p) >= PARTS.len()) || usize::from(sdwa.dst_unused) >= REST.len() {
        return Err(EncodeError::Rule { op: b.name, why: "a part that a dword does not have" });
    }
    Ok(())
}

/// The dword after the instruction.
pub(super) fn word(bits: u128, layout: &Layout, row: &Row, m: &Modifiers, sdwa: Sdwa) -> u32 {
    let src0 = layout.bits(Field::Src0).map_or(0, |Bits(lo, _)| bits >> lo & 0x1ff);
    let src0 = u32::try_from(src0).unwrap_or_default();
    let mut word = src0 & 0xff | put(SCALAR, u32::from(src0 < 256));
    if writes_parts(row) {
        word |= put(DST_SEL, sdwa.dst_sel.into()) | put(DST_UNUSED, sdwa.dst_unused.into());
        word |= put(OMOD, m.omod.into());
    } else if row.format != Format::Vopc {
        word |= put(DST_SEL, WHOLE.into());
    }
    word |= put(CLAMP, u32::from(m.clamp));
    for i in 0..sources(row) {
        let has = |mask: u8| u32::from(mask >> i & 1);
        let of = put(SEL, sdwa.src_sel[usize::from(i & 1)].into())
            | put(SEXT, has(sdwa.sext))
            | put(NEG, has(m.neg))
            | put(ABS, has(m.abs));
        word |= of << (8 * u32::from(i));
    }
    word
}

const fn put((at, width): (u8, u8), value: u32) -> u32 {
    (value & ((1 << width) - 1)) << at
}

/// Reads the dword into the modifiers: the code of the first source.
pub(super) fn read(word: u32, row: &Row, m: &mut Modifiers) -> u16 {
    let byte = |(at, width): (u8, u8), i: u8| {
        let bits = word >> (u32::from(at) + 8 * u32::from(i)) & ((1 << width) - 1);
        u8::try_from(bits).unwrap_or_default()
    };
    let mut sdwa = Sdwa { dst_sel: byte(DST_SEL, 0), dst_unused: byte(DST_UNUSED, 0), ..Sdwa::default() };
    if writes_parts(row) {
        m.omod = byte(OMOD, 0);
    } else {
        // Bits that say anything else are refused, as they do not come back.
        (sdwa.dst_sel, sdwa.dst_unused) = (WHOLE, 0);
    }
    m.clamp = byte(CLAMP, 0) == 1;
    for i in 0..sources(row) {
        sdwa.src_sel[usize::from(i & 1)] = byte(SEL, i);
        sdwa.sext |= byte(SEXT, i) << i;
        m.neg |= byte(NEG, i) << i;
        m.abs |= byte(ABS, i) << i;
    }
    m.sdwa = Some(sdwa);
    let code = u16::try_from(word & 0xff).unwrap_or_default();
    if byte(SCALAR, 0) == 1 { code } else { code + 256 }
}

/// The modifiers as text.
pub(super) fn text(row: &Row, m: &Modifiers, sdwa: Sdwa) -> String {
    let part = |sel: u8| PARTS.get(usize::from(sel)).copied().unwrap_or("?");
    let mut text = String::from(if m.clamp { " clamp" } else { "" });
    text.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(m.omod & 3)]);
    if writes_parts(row) {
        let rest = REST.get(usize::from(sdwa.dst_unused)).copied().unwrap_or("?");
        text.push_str(&format!(" dst_sel:{} dst_unused:{rest}", part(sdwa.dst_sel)));
    }
    for i in 0..usize::from(sources(row)) {
        text.push_str(&format!(" src{i}_sel:{}", part(sdwa.src_sel[i & 1])));
    }
    text
}

/// Applies one modifier; `None`: there is none such.
pub(super) fn modifier(m: &mut Modifiers, name: &str, value: &str) -> Option<()> {
    let sdwa = m.sdwa.as_mut()?;
    let of = |names: &[&str]| names.iter().position(|n| *n == value).and_then(|n| u8::try_from(n).ok());
    match name {
        "dst_sel" => sdwa.dst_sel = of(&PARTS)?,
        "dst_unused" => sdwa.dst_unused = of(&REST)?,
        "src0_sel" => sdwa.src_sel[0] = of(&PARTS)?,
        "src1_sel" => sdwa.src_sel[1] = of(&PARTS)?,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::{Chip, Target, assemble, decode, print};

    /// llvm-mc 19 of these texts for gfx942.
    const KNOWN: &[(&str, [u32; 2])] = &[
        (
            "v_add_u32_sdwa v1, sext(v2), v3 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
            [0x6802_06f9, 0x0609_0602],
        ),
        (
            "v_mul_f32_sdwa v1, s2, -v3 clamp mul:2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:WORD_0",
            [0x0a02_06f9, 0x1481_7502],
        ),
        ("v_cmp_gt_f32_sdwa vcc, v1, |v2| src0_sel:DWORD src1_sel:WORD_1", [0x7c88_04f9, 0x2506_0001]),
        (
            "v_cvt_off_f32_i4_sdwa v48, v46 dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2",
            [0x7e60_1cf9, 0x0002_162e],
        ),
        ("v_cvt_pk_f32_fp8_sdwa v[40:41], v209 src0_sel:WORD_0", [0x7e50_acf9, 0x0004_06d1]),
    ];

    #[test]
    fn parts_of_dwords_are_read_and_written_as_llvm_does() {
        let target = Target::of(Chip::Gfx942);
        for (text, words) in KNOWN {
            assert_eq!(assemble(target, text).map(|a| a.words), Ok(words.to_vec()), "{text}");
            let (inst, n) = decode(target, words).expect("an instruction");
            assert_eq!((print(target, &inst).as_deref(), n), (Ok(*text), 2));
        }
        // What a text leaves out: the rest of the destination stays.
        let short = assemble(target, "v_cvt_f32_i32_sdwa v1, sext(v2) src0_sel:BYTE_2").map(|a| a.words);
        assert_eq!(short, Ok(vec![0x7e02_0af9, 0x000a_1602]));
    }

    #[test]
    fn other_chips_and_operations_have_no_such_form() {
        let error = |chip, text: &str| assemble(Target::of(chip), text).unwrap_err().to_string();
        assert!(error(Chip::Gfx1100, "v_not_b32_sdwa v1, v2").contains("SDWA"));
        assert!(error(Chip::Gfx942, "v_cvt_f64_f32_sdwa v[2:3], v4").contains("SDWA"));
        assert!(error(Chip::Gfx942, "v_not_b32_sdwa v1, v2 src0_sel:BYTE_4").contains("unknown modifier"));
        // A sel of 7 is no part.
        assert!(decode(Target::of(Chip::Gfx942), &[0x7e60_1cf9, 0x0007_162e]).is_err());
    }

    #[test]
    fn loads_to_the_lds_and_the_index_mode_of_registers_are_llvms() {
        let target = Target::of(Chip::Gfx942);
        let known: [(&str, &[u32]); 4] = [
            ("buffer_load_dword v2, s[8:11], s3 offen offset:64 lds", &[0xe051_1040, 0x0302_0002]),
            ("s_set_gpr_idx_on s51, gpr_idx(SRC0)", &[0xbf11_0133]),
            ("s_set_gpr_idx_on s1, gpr_idx(SRC0,DST)", &[0xbf11_0901]),
            ("s_set_gpr_idx_off", &[0xbf9c_0000]),
        ];
        for (text, words) in known {
            assert_eq!(assemble(target, text).map(|a| a.words), Ok(words.to_vec()), "{text}");
            let (inst, n) = decode(target, words).expect("an instruction");
            assert_eq!((print(target, &inst).as_deref(), n), (Ok(text), words.len()));
        }
        assert!(assemble(target, "buffer_load_dword v2, s[8:11], s3 offen").is_err());
    }
}
