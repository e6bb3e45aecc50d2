//! NVIDIA's assembler and disassembler, which `cargo xtask setup` puts into target/nvidia.

use doorbell::isa::sass::{SmArch, decode, print_at};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A word that replaces one that nvdisasm refuses: NOP.
const NOP: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;

fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nvidia/nvidia/cu13/bin").join(name);
    assert!(path.exists(), "{} is missing (cargo xtask setup installs it)", path.display());
    path
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// A PTX module compiled for sm_90a: the cubin.
pub fn ptxas(ptx: &str, level: &str) -> Vec<u8> {
    ptxas_for(ptx, "sm_90a", level)
}

/// A PTX module compiled for a chip.
pub fn ptxas_for(ptx: &str, arch: &str, level: &str) -> Vec<u8> {
    try_ptxas(ptx, arch, level).unwrap_or_else(|e| panic!("ptxas: {e}"))
}

/// A PTX module compiled for a chip, or ptxas's message.
pub fn try_ptxas(ptx: &str, arch: &str, level: &str) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, cubin) = (folder.path().join("a.ptx"), folder.path().join("a.cubin"));
    std::fs::write(&source, ptx).expect("the source written");
    let out = run(Command::new(tool("ptxas")).args([&format!("-arch={arch}"), level, "-o"]).args([&cubin, &source]));
    match out.status.success() {
        true => Ok(std::fs::read(&cubin).expect("the cubin")),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

/// nvdisasm reads words of sm_90 as we print them.
pub fn printed_as_read(words: Vec<u128>) {
    for (k, (word, theirs)) in words.iter().zip(disassemble(&words)).enumerate() {
        let inst = decode(*word).unwrap_or_else(|e| panic!("{word:032x}: {e}"));
        assert_eq!(Some(print_at(&inst, 16 * k as u64)), theirs, "{word:032x}");
    }
}

/// The text of each word of sm_90a as though it stood at 16 times its index; `None`: nvdisasm refuses it.
pub fn disassemble(words: &[u128]) -> Vec<Option<String>> {
    disassemble_for(words, SmArch::Sm90)
}

/// The same of a chip's words.
///
/// nvdisasm ends at the first word it refuses and reports its offset; that word becomes a NOP and all are read again.
/// Parts of a word that it does not know writes as INVALID or ???: that is a refusal too.
pub fn disassemble_for(words: &[u128], chip: SmArch) -> Vec<Option<String>> {
    let name = if chip == SmArch::Sm90 { "SM90a".to_owned() } else { format!("SM{}", chip.number()) };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.bin");
    let mut tried = words.to_vec();
    let mut refused = Vec::new();
    loop {
        let bytes: Vec<u8> = tried.iter().flat_map(|w| w.to_le_bytes()).collect();
        std::fs::write(&file, bytes).expect("the words written");
        let out = run(Command::new(tool("nvdisasm")).args(["-b", &name, "-hex", "-ndf"]).arg(&file));
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        if out.status.success() && !errors.contains("error") {
            let mut texts = lines(&String::from_utf8_lossy(&out.stdout), tried.len());
            refused.iter().for_each(|i: &usize| texts[*i] = None);
            let known = |text: String| Some(text).filter(|t| !t.contains("???") && !t.contains("INVALID"));
            return texts.into_iter().map(|t| t.and_then(known)).collect();
        }
        let at = errors.split("address 0x").nth(1).unwrap_or_else(|| panic!("nvdisasm: {errors}"));
        let digits: String = at.chars().take_while(char::is_ascii_hexdigit).collect();
        let index = usize::from_str_radix(&digits, 16).expect("an address") / 16;
        assert!(!refused.contains(&index), "nvdisasm refuses a NOP: {errors}");
        tried[index] = NOP;
        refused.push(index);
    }
}

/// `/*0010*/  TEXT ;  /* 0x... */`: texts by address. nvdisasm leaves out some words without a message.
fn lines(output: &str, count: usize) -> Vec<Option<String>> {
    let mut texts = vec![None; count];
    for line in output.lines() {
        let Some((address, rest)) = line.trim_start().strip_prefix("/*").and_then(|l| l.split_once("*/")) else {
            continue;
        };
        let Some((text, _)) = rest.split_once("/* 0x") else { continue };
        let Ok(address) = usize::from_str_radix(address, 16) else { continue };
        let text = text.trim().trim_end_matches(';').trim();
        if !text.is_empty() && address.is_multiple_of(16) {
            texts[address / 16] = Some(text.to_owned());
        }
    }
    texts
}
