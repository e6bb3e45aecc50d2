//! Every instruction of the recorded corpus: 16,959 distinct ones that ptxas 13.5.37 made for sm_90a, with nvdisasm's
//! text.

use doorbell::isa::sass::{Form, SmArch, decode, encode, parse, print};
use flate2::read::GzDecoder;
use std::collections::BTreeSet;
use std::io::Read;

/// Words and their texts; targets are as though each stood at address 0.
pub fn corpus() -> Vec<(u128, String)> {
    let mut text = String::new();
    let file = include_bytes!("../data/sass/sm90.tsv.gz");
    GzDecoder::new(&file[..]).read_to_string(&mut text).expect("the corpus unpacked");
    let line = |l: &str| {
        let (word, text) = l.split_once('\t')?;
        Some((u128::from_str_radix(word, 16).ok()?, text.to_owned()))
    };
    text.lines().map(|l| line(l).unwrap_or_else(|| panic!("corpus line {l:?}"))).collect()
}

/// The corpus has no blank between the brackets of a constant; nvdisasm writes one for 16-bit operations.
fn without_blank(text: &str) -> String {
    text.replace("] [", "][")
}

#[test]
fn every_word_decodes_and_encodes_to_itself() {
    let corpus = corpus();
    assert_eq!(corpus.len(), 16_959);
    for (word, text) in &corpus {
        let inst = decode(*word).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(encode(&inst), Ok(*word), "{text}");
    }
}

#[test]
fn every_word_prints_as_nvdisasm_wrote_it() {
    let wrong: Vec<String> = corpus()
        .iter()
        .filter_map(|(word, text)| {
            let ours = print(&decode(*word).unwrap_or_else(|e| panic!("{text}: {e}")));
            (without_blank(&ours) != *text).then(|| format!("{text} printed as {ours}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of them, first {:?}", wrong.len(), wrong.first());
}

#[test]
fn every_text_assembles_to_its_word_with_the_same_control_word() {
    for (word, text) in corpus() {
        let mut inst = parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        inst.control = decode(word).unwrap_or_else(|e| panic!("{text}: {e}")).control;
        assert_eq!(encode(&inst).map(|w| format!("{w:032x}")), Ok(format!("{word:032x}")), "{text}");
    }
}

#[test]
fn the_corpus_exercises_most_forms() {
    let seen: BTreeSet<(&str, &str)> = corpus()
        .iter()
        .filter_map(|(word, _)| decode(*word).ok())
        .map(|i| (i.form().mnemonic, i.form().name))
        .collect();
    let forms = Form::all().iter().filter(|f| f.chips.has(SmArch::Sm90)).count();
    assert_eq!((seen.len(), forms), (287, 507));
}

#[test]
fn forms_that_random_programs_brought_since_read_as_nvdisasm_reads_them() {
    let later = [
        (0x000e_a200_0030_9000_bff2_0000_0000_7910, "F2F.F32.F64.RP R0, -1.125"),
        (0x000e_2400_0810_a800_1000_000a_0006_7d05, "F2I.U16.F16.CEIL.NTZ R6, UR10.H1"),
        (0x000f_e400_000e_0810_0000_001b_1510_7815, "VABSDIFF4.U8.ACC R16, R21, 0x1b, R16"),
        (0x000e_2200_0800_0000_0000_000e_3100_7d02, "FCHK P0, R49, UR14"),
        (0x000f_c400_0800_48ff_0000_0004_ff00_7c3e, "F2FP.RELU.F16.F32.MERGE_C R0, UR4, RZ"),
        (0x000f_e200_0000_48ff_0000_5a00_ff00_7a3e, "F2FP.RELU.F16.F32.MERGE_C R0, c[0x0][0x168], RZ"),
        (0x004f_ca00_000e_0200_0000_5a00_0505_7a14, "VABSDIFF R5, R5, c[0x0][0x168], R0"),
    ];
    for (word, text) in later {
        let inst = decode(word).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!((print(&inst), encode(&inst)), (text.to_owned(), Ok(word)));
    }
    crate::nvidia::printed_as_read(later.map(|l| l.0).to_vec());
}
