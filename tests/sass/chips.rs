//! Chips other than sm_90: code that ptxas compiles for each, read by nvdisasm and by us.

use crate::compiled::{module_for, words};
use crate::nvidia::{disassemble_for, ptxas_for};
use doorbell::isa::sass::{SmArch, assemble_for, decode_for, encode, listing_line, print_at};
use std::collections::BTreeSet;

pub const OTHERS: [SmArch; 4] = [SmArch::Sm80, SmArch::Sm86, SmArch::Sm89, SmArch::Sm120];

/// Compares distinct words of a chip with nvdisasm: the same text, and the same word again, also through a listing.
pub fn agree(fresh: &[u128], chip: SmArch) {
    for (i, (word, theirs)) in fresh.iter().zip(disassemble_for(fresh, chip)).enumerate() {
        let address = 16 * i as u64;
        let theirs = theirs.unwrap_or_else(|| panic!("{chip}: nvdisasm refuses {word:032x}"));
        let inst = decode_for(*word, chip).unwrap_or_else(|e| panic!("{chip}: {theirs}: {e}"));
        assert_eq!(print_at(&inst, address), theirs, "{chip} {word:032x}");
        assert_eq!(encode(&inst), Ok(*word), "{chip}: {theirs}");
        let line = listing_line(&inst, 0);
        let again = assemble_for(&line, chip).unwrap_or_else(|e| panic!("{chip}: {line}: {e}"));
        assert_eq!(again, [*word], "{chip}: {line}");
    }
}

#[test]
fn random_kernels_compiled_for_each_chip_read_as_nvdisasm_reads_them() {
    for chip in OTHERS {
        let mut seen = BTreeSet::new();
        for (seed, level) in [(0x5a55_5001, "-O3"), (0x5a55_5002, "-O1")] {
            let arch = chip.to_string();
            let cubin = ptxas_for(&module_for(seed, 12, &arch), &arch, level);
            let fresh: Vec<u128> = words(&cubin).into_iter().filter(|w| seen.insert(*w)).collect();
            agree(&fresh, chip);
        }
        println!("{chip}: {} distinct instructions", seen.len());
        assert!(seen.len() >= 5_000, "{chip}: only {} distinct instructions", seen.len());
    }
}

#[test]
fn tensor_instructions_compiled_for_each_chip_read_as_nvdisasm_reads_them() {
    for chip in OTHERS {
        let arch = chip.to_string();
        let text = include_str!("../data/sass/tensor_sm80.ptx").replace("sm_80", &arch);
        let fresh: BTreeSet<u128> = words(&ptxas_for(&text, &arch, "-O3")).into_iter().collect();
        println!("{chip}: {} distinct instructions", fresh.len());
        assert!(fresh.len() >= 100, "{chip}: only {} distinct instructions", fresh.len());
        agree(&fresh.into_iter().collect::<Vec<_>>(), chip);
    }
}

/// Integers packed by two, of each type, with each source: the chips before sm_90 have no bits that say what is
/// clamped.
#[test]
fn packed_integers_read_as_nvdisasm_reads_them() {
    for chip in SmArch::ALL {
        let old = chip < SmArch::Sm90;
        let sources = [(0x239, 5), (0x839, 0xffff_fffb), (0xc39 | 1 << 91, 5), (0xa39, 0x5b << 8)];
        let sources = &sources[..if chip == SmArch::Sm120 { 3 } else { 4 }];
        let clamped: &[u128] = if old { &[0] } else { &[1, 2, 0] };
        let mut words = vec![];
        for (opcode, b) in sources {
            for bits in [0x00, 0x01, 0x10, 0x11, 0x20, 0x21, 0x30, 0x31, 0x43, 0x53, 0x62, 0x72] {
                let modifiers = clamped.iter().map(|c| bits | c << 2);
                words.extend(modifiers.map(|m| 0x000f_ca00_0000_0004_0000_0000_0005_7000 | m << 72 | b << 32 | opcode));
            }
        }
        agree(&words, chip);
        for wrong in [0x02, 0x13, 0x22, 0x33, 0x42, 0x51, 0x63, 0x70] {
            assert!(decode_for(words[0] | wrong << 72, chip).is_err(), "{chip} {wrong:#x}");
        }
    }
}

/// A loop over what conversions of a launch's parameters give, which ptxas makes of sm_120's uniform instructions, and
/// some of these with other modifiers.
#[test]
fn conversions_of_uniform_values_read_as_nvdisasm_reads_them() {
    let conversions = [
        ("rn.satfinite.e4m3x2.f32 %h, %f, %g", "UF2FP"),
        ("rn.satfinite.relu.e5m2x2.f16x2 %h, %w", "UF2FP"),
        ("rz.relu.tf32.f32 %z, %f", "UF2FP"),
        ("rm.f16.f32 %h, %f", "UF2F"),
        ("rp.bf16.f32 %h, %f", "UF2F"),
        ("sat.s16.s32 %h, %w", "UI2I"),
        ("sat.u8.s32 %z, %w", "UI2I"),
        ("pack.sat.s2.s32.b32 %z, %w, %v, %u", "UI2IP"),
        ("pack.sat.u4.s32.b32 %z, %w, %v, %u", "UI2IP"),
        ("pack.sat.s16.s32 %z, %w, %v", "UI2IP"),
        ("rzi.u8.f32 %z, %f", "UF2IP"),
        ("rmi.s16.bf16 %h, %j", "UF2I"),
        ("rzi.u32.f16 %z, %j", "UF2I"),
        ("rm.bf16.s16 %h, %j", "UI2F"),
        ("rz.f16.u32 %h, %w", "UI2F"),
    ];
    let mut all = BTreeSet::new();
    for (conversion, mnemonic) in conversions {
        let half = if conversion.contains(" %h") { "mov.b32 %z, {%h, %h};" } else { "" };
        let text = format!(
            ".version 8.7\n.target sm_120\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 x, .param .u32 y, .param .u32 s) {{\n\
            .reg .b64 %p; .reg .b32 %w, %v, %u, %z, %n; .reg .f32 %f, %g; .reg .b16 %h, %j; .reg .pred %q; ld.param.u64 %p, [p]; \
            ld.param.u32 %w, [x]; ld.param.u32 %v, [y]; ld.param.u32 %u, [s]; add.s32 %w, %w, %u; add.s32 %v, %v, %u; add.s32 %u, %u, 7; \
            mov.b32 %f, %w; mov.b32 %g, %v; cvt.u16.u32 %j, %u; cvt.{conversion}; {half} and.b32 %z, %z, 0xff0; mov.u32 %n, 0; \
            L: add.u32 %n, %n, %z; setp.lt.u32 %q, %n, 1000; @%q bra L; st.global.b32 [%p], %n; ret; }}"
        );
        let code = words(&ptxas_for(&text, "sm_120", "-O3"));
        let here = |w: &u128| decode_for(*w, SmArch::Sm120).is_ok_and(|i| i.form().mnemonic == mnemonic);
        assert!(code.iter().any(here), "{conversion}: no {mnemonic}");
        all.extend(code);
    }
    let pack = 0x000f_e200_0c24_68ff_0000_0006_0508_72ba;
    let packed = 0x000f_e200_0800_04ff_0000_0006_0508_724f;
    let immediate = 0xa00;
    all.extend([1 << 72, 1 << 75, 1 << 82, immediate, 9 << 64].map(|bits| pack ^ bits));
    all.extend([1 << 72, 2 << 76, 0x62 << 72, 0x43 << 72, 0xc << 72, immediate].map(|bits| packed ^ bits));
    // UI2I and UF2F of immediate values.
    all.extend([0x008f_e200_0800_2000_0000_0008_0006_784e, 0x000f_c600_0820_4800_0000_0001_0006_785b]);
    agree(&all.into_iter().collect::<Vec<_>>(), SmArch::Sm120);
}

/// Complex products of halves: the second source's high half is negated, on the chips that have it.
#[test]
fn a_negated_high_half_is_read_on_the_chips_that_have_it() {
    let words = [0x000f_ca00_0040_0c00_0000_0018_2529_7231, 0x000f_e200_0060_0c17_0000_0023_201a_8231];
    for chip in [SmArch::Sm86, SmArch::Sm89, SmArch::Sm90, SmArch::Sm120] {
        agree(&words, chip);
        assert!(print_at(&decode_for(words[0], chip).unwrap(), 0).contains("R24.H0_NH1"), "{chip}");
    }
    assert!(decode_for(words[0], SmArch::Sm80).is_err());
}
