//! What our code is made of, ptxas's is made of too: each shape of instruction that the assembler emits for sm_90a over
//! the kernels of tensors and the collected samples is in the list of those that ptxas emits there, or below with the
//! reason why not. nvdisasm knows more forms than any code uses; whether a card has them only a card can tell.
//!
//! A shape is nvdisasm's text without the numbers: `IADD3.X R, R, UR, R, P, P`. `SASS_SHAPES=1` regenerates the list
//! (four minutes).

use crate::assemble::{SM90, text};
use crate::corpus::corpus;
use crate::kernel_set::{GROUPS, kernels};
use crate::nvidia::try_ptxas;
use doorbell::elf::cubin::Cubin;
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{decode, print};
use flate2::read::GzDecoder;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIST: &str = "tests/data/sass/shapes_sm90.txt.gz";

/// Shapes of ours alone: how they begin, and why.
#[rustfmt::skip]
const OWN: [(&str, &str); 26] = [
    ("ATOMG.E.", "vectors of floats: ptxas has the operation as REDG, or of another width"),
    ("BMSK R R UR", "a constant of the launch as the last operand; ptxas has it with .W"),
    ("BPT.INT", "brkpt; ptxas makes a trap of it"),
    ("F2FP.RELU.F16.F32.PACK_AB.RZ", "one half: ptxas has MERGE_C with that rounding"),
    ("F2I.FTZ.", "truncation to 64 bits, which ptxas does without .FTZ"),
    ("FMUL.FTZ R R UR", "a constant of the launch; ptxas has it without .FTZ"),
    ("FSETP.", "comparisons that ptxas has of other kinds, or turned round, with a constant of the launch"),
    ("HADD2 R R.H", "a selector of halves that ptxas has in other places"),
    ("HFMA2 R R.H", "the same"),
    ("HFMA2.BF16_V2 R R", "the same"),
    ("HMNMX2.NAN R R.H", "the same"),
    ("HSETP2.", "the same"),
    ("ISETP.", "comparisons that ptxas has of other kinds, or turned round, with numbers and constants of the launch"),
    ("LDC.S16 R c[#][#]", "small parameters; ptxas loads them by ULDC, and by LDC behind a register"),
    ("LDC.U8 R c[#][#]", "the same"),
    ("LDS R [#]", "variables of shared memory behind RZ; ptxas puts their place into a register"),
    ("LDS.", "the same"),
    ("LDSM.", "the same"),
    ("PRMT R R R UR", "a constant of the launch as the last operand; ptxas has it as the second"),
    ("S2R R SR_", "clocks; ptxas has them by S2UR and CS2R"),
    ("SHF.L.W.U32.HI R R R UR", "a constant of the launch as the upper word; ptxas has it without .W"),
    ("SHF.R.", "a number or a constant as the upper word; ptxas has it to the left"),
    ("SHFL.UP P R R ", "lanes as a number or in a register, with a segment that is a number; ptxas has 0, written RZ"),
    ("STL.64 [R] R", "pairs on the frame; ptxas stores their words"),
    ("SYNCS.ARRIVE.TRANS64.RED.A0T1 R [RUR] R", "an mbarrier of the thread's own; ptxas elects threads by turns"),
    ("WARPSYNC R", "a mask in a register; ptxas has WARPSYNC.COLLECTIVE of one"),
];

/// The text without numbers, signs, reuse and guard.
fn shape(text: &str) -> String {
    let text = text.replace(".reuse", "");
    let text = match text.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').map_or(rest, |t| t.1),
        None => &text,
    };
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let mut out = mnemonic.to_owned();
    for operand in operands.trim_end_matches(" ;").split(", ").filter(|o| !o.is_empty()) {
        out += " ";
        out += &kinds(operand);
    }
    out
}

/// The kinds of registers and numbers of an operand, with the suffixes after them.
fn kinds(operand: &str) -> String {
    let mut out = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut rest = operand;
    while let Some(c) = rest.chars().next() {
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if len == 0 {
            // An offset, and signs, are as good as none.
            if !matches!(c, '+' | '-' | '|' | '!' | '~' | ' ') {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, behind) = rest.split_at(len);
        let (name, suffix) = word.split_at(word.find('.').unwrap_or(word.len()));
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        match (stem, name) {
            (_, "RZ" | "URZ" | "PT" | "UPT") | ("R" | "UR" | "P" | "UP" | "B" | "SB", _) => {
                out += name.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'Z' || c == 'T');
                out += suffix;
            }
            _ if name.starts_with(|c: char| c.is_ascii_digit()) || matches!(name, "INF" | "QNAN" | "SNAN") => {
                if !out.ends_with('#') && !rest_of_address(&out) {
                    out.push('#');
                }
            }
            _ => out += word,
        }
        rest = behind;
    }
    out
}

/// Whether a number here is an offset of a register.
fn rest_of_address(out: &str) -> bool {
    out.rsplit_once('[').is_some_and(|(_, inside)| !inside.contains(']') && !inside.is_empty())
}

/// The shapes of all kernels of a cubin.
fn shapes(cubin: &[u8]) -> BTreeSet<String> {
    let file = Cubin::parse(cubin).expect("a cubin");
    let code = file.kernels.iter().flat_map(|k| file.code(k).chunks_exact(16));
    let words = code.map(|w| u128::from_le_bytes(w.try_into().expect("16 bytes")));
    words.filter_map(|w| decode(w).ok()).map(|i| shape(&print(&i))).collect()
}

/// The texts of all kernels, and where each is from.
fn texts() -> Vec<(String, String)> {
    let mut seen = HashSet::new();
    let set = GROUPS.iter().flat_map(|g| kernels(g, &mut seen));
    let mut all: Vec<(String, String)> = set.map(|k| (k.case.clone(), text(&k.program))).collect();
    let mut samples = String::new();
    GzDecoder::new(crate::all_samples::SAMPLES).read_to_string(&mut samples).expect("the samples");
    for file in samples.split("//// ").skip(1) {
        let (name, text) = file.split_once('\n').expect("a name");
        let mut parts = text.split(".visible .entry");
        let head = parts.next().expect("a head");
        all.extend(parts.enumerate().map(|(k, p)| (format!("{name} {}", k + 1), format!("{head}.visible .entry{p}"))));
    }
    all
}

/// Does something with each text on all cores, and joins what comes of it.
fn each<T: Send>(texts: &[(String, String)], f: impl Fn(&str, &str) -> Vec<T> + Sync) -> Vec<T> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some((name, text)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut made = f(name, text);
            all.lock().unwrap().append(&mut made);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| (0..cores).for_each(|_| drop(s.spawn(work))));
    all.into_inner().unwrap()
}

/// The shapes of ptxas's code of the texts at three levels, and of the corpus.
fn of_ptxas(texts: &[(String, String)]) -> BTreeSet<String> {
    let levels = ["-O0", "-O1", "-O3"];
    let made = each(texts, |_, text| {
        let cubins = levels.iter().filter_map(|level| try_ptxas(text, "sm_90a", level).ok());
        cubins.flat_map(|c| shapes(&c)).collect()
    });
    made.into_iter().chain(corpus().iter().map(|(_, text)| shape(text))).collect()
}

#[test]
fn our_code_is_made_of_what_the_code_of_ptxas_is_made_of() {
    let texts = texts();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST);
    if std::env::var_os("SASS_SHAPES").is_some() {
        let list: Vec<String> = of_ptxas(&texts).into_iter().collect();
        let file = std::fs::File::create(&path).expect("the list");
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        packed.write_all((list.join("\n") + "\n").as_bytes()).expect("the list written");
        packed.finish().expect("the list written");
    }
    let mut list = String::new();
    GzDecoder::new(std::fs::File::open(&path).expect(LIST)).read_to_string(&mut list).expect("the list unpacked");
    let theirs: HashSet<&str> = list.lines().collect();
    assert!(theirs.len() > 1500, "{} shapes", theirs.len());
    let ours = each(&texts, |name, text| {
        let made = assemble(text, SM90).unwrap_or_else(|e| panic!("{name}: {e}"));
        shapes(&made).into_iter().map(|s| (s, name.to_owned())).collect()
    });
    let mut alone = BTreeMap::<String, (usize, String)>::new();
    let count = ours.iter().map(|s| &s.0).collect::<BTreeSet<_>>().len();
    for (shape, name) in ours.into_iter().filter(|(s, _)| !theirs.contains(&**s)) {
        alone.entry(shape).or_insert((0, name)).0 += 1;
    }
    let known = |shape: &str| OWN.iter().any(|(start, _)| shape.starts_with(start));
    let new: Vec<String> =
        alone.iter().filter(|(s, _)| !known(s)).map(|(s, (n, name))| format!("{n:5} {s}   ({name})")).collect();
    println!("{count} shapes, {} of ptxas's; {} of ours alone", theirs.len(), alone.len());
    assert!(new.is_empty(), "{} shapes that no code of ptxas has:\n{}", new.len(), new.join("\n"));
    let idle: Vec<_> = OWN.iter().filter(|(start, _)| !alone.keys().any(|s| s.starts_with(start))).collect();
    assert!(idle.is_empty(), "nothing is so any more: {idle:?}");
}

#[test]
fn a_shape_is_the_text_without_numbers() {
    for (text, want) in [
        ("IADD3.X R5, R3.reuse, UR29, RZ, P0, !PT", "IADD3.X R R UR R P P"),
        ("@!P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64+0x2000]", "LDG.E.128.CONSTANT R desc[UR][R.64]"),
        ("LDC.64 R2, c[0x0][0x210]", "LDC.64 R c[#][#]"),
        ("FFMA R0, -R14, |R13|.reuse, 1.175494350822287508e-38", "FFMA R R R #"),
        ("HFMA2.BF16_V2 R12, R8.H0_H0, R15.reuse.H0_H0, -RZ.H0_H0", "HFMA2.BF16_V2 R R.H0_H0 R.H0_H0 R.H0_H0"),
        ("S2R R0, SR_TID.X", "S2R R SR_TID.X"),
        ("LDS R2, [0x400]", "LDS R [#]"),
        ("LDS R2, [R3+UR4+-0x10]", "LDS R [RUR]"),
    ] {
        assert_eq!(shape(text), want, "{text}");
    }
}
