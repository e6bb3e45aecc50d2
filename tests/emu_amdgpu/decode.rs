//! The emulator's decoder against LLVM's: every instruction that clang emitted for the test kernels has the same name
//! and length in both.

use super::harness::{compile, cpu, folder, llvm, scratch, words_of};
use doorbell::emu::amdgpu::{Chip, coverage, disassemble};
use std::process::Command;

/// A name without the encoding's suffix.
fn stem(name: &str) -> &str {
    ["_e64_dpp", "_dpp", "_sdwa", "_e32", "_e64"].iter().fold(name, |n, s| n.strip_suffix(s).unwrap_or(n))
}

/// Names and words of llvm-objdump's lines, `name operands // address: WORD WORD`.
fn listed(chip: Chip, object: &std::path::Path) -> Vec<(String, Vec<u32>)> {
    let out = Command::new(llvm("llvm-objdump")).args(["-d", &format!("--mcpu={}", cpu(chip))]).arg(object).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let line = |l: &str| {
        let (code, words) = l.split_once("// ")?;
        let words = words.split_once(": ")?.1.split(' ').filter(|w| w.len() == 8);
        let words = words.map(|w| u32::from_str_radix(w, 16)).collect::<Result<Vec<_>, _>>().ok()?;
        Some((code.split_whitespace().next()?.to_owned(), words))
    };
    text.lines().filter_map(line).collect()
}

fn compares(chip: Chip) {
    let dir = scratch("decode");
    let mut seen = 0;
    for file in ["integers.c", "flow.c", "floats.c", "groups.c", "lanes.c", "matrix.c"] {
        for level in ["-O0", "-O2"] {
            compile(chip, &folder().join(file), &[level, "-munsafe-fp-atomics"], &dir);
        }
    }
    for object in std::fs::read_dir(&dir).unwrap() {
        for (name, words) in listed(chip, &object.unwrap().path()) {
            if name == "s_code_end" {
                continue;
            }
            let mut padded = [0; 4];
            padded[..words.len()].copy_from_slice(&words);
            let (text, len) = disassemble(chip, chip != Chip::Gfx942, padded).unwrap_or_else(|f| panic!("{name}: {f}"));
            let ours = text.split(' ').next().unwrap();
            assert_eq!((stem(ours), len as usize), (stem(&name), words.len()), "{text}");
            seen += 1;
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
    assert!(seen > 3000, "{seen}");
}

#[test]
fn names_and_lengths_agree_with_llvm_on_gfx1100() {
    compares(Chip::Gfx1100);
}

#[test]
fn names_and_lengths_agree_with_llvm_on_gfx942() {
    compares(Chip::Gfx942);
}

#[test]
fn names_and_lengths_agree_with_llvm_on_gfx1201() {
    compares(Chip::Gfx1201);
}

/// Rows that the decoder knows and nothing executes; a wave that reaches one stops with its name.
#[test]
fn few_rows_are_not_executed() {
    for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
        let rows = coverage(chip);
        let missing: Vec<_> = rows.iter().filter(|(_, done)| !done).map(|(name, _)| *name).collect();
        assert!(rows.len() > 1000 && missing.len() < 10, "{chip:?}: {missing:?}");
    }
}

/// Words of any kind are decoded or refused, never more than they are long.
#[test]
fn random_words_are_decoded_or_refused() {
    let mut random = super::harness::Random(0xdec0de);
    let mut counts = [0; 2];
    for _ in 0..100_000 {
        let raw: Vec<u8> = (0..2).flat_map(|_| random.next().to_le_bytes()).collect();
        let words: [u32; 4] = words_of(&raw).try_into().unwrap();
        for chip in [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201] {
            match disassemble(chip, true, words) {
                Ok((_, len)) => {
                    assert!((1..=4).contains(&len));
                    counts[0] += 1;
                }
                Err(_) => counts[1] += 1,
            }
        }
    }
    assert!(counts.iter().all(|n| *n > 10_000), "{counts:?}");
}
