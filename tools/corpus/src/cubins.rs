//! Cubins: listed without an unknown word; the listing assembles to the same bytes; nvdisasm reads the words as it
//! does.

use crate::nvdisasm::Nvdisasm;
use crate::report::Report;
use doorbell_elf::cubin::{Arch, Cubin};
use doorbell_ptx::sass::{self, DecodeReason, SmArch};
use std::collections::BTreeMap;
use std::path::Path;

/// They have not been linked: their code is not where it will be. What links them is none of ours.
const RELOCATABLE: &str = "relocatable files, not read";

fn is_relocatable(bytes: &[u8]) -> bool {
    // ET_REL
    bytes.get(16..18) == Some(&[1, 0])
}

/// Checks one file.
pub fn check(path: &Path, nvdisasm: Option<&Nvdisasm>, report: &mut Report) {
    if let Err((what, text)) = checked(path, nvdisasm, report) {
        report.fault(path, what, &text);
    }
}

fn checked(path: &Path, nvdisasm: Option<&Nvdisasm>, report: &mut Report) -> Result<(), (&'static str, String)> {
    let bytes = std::fs::read(path).map_err(|e| ("read", e.to_string()))?;
    if is_relocatable(&bytes) {
        report.count(RELOCATABLE, 1);
        return Ok(());
    }
    let cubin = Cubin::parse(&bytes).map_err(|e| ("elf", e.to_string()))?;
    let listing = sass::listing(&cubin).map_err(|e| ("disasm", e))?;
    for line in listing.lines().map(str::trim).filter(|l| l.starts_with(".word")) {
        report.fault(path, "word", line.split("//").nth(1).unwrap_or_default());
    }
    report.count("kernels", cubin.kernels.len());
    report.count("undefined names", cubin.undefined().len());
    report.count("instructions", listing.lines().filter(|l| l.starts_with("    ")).count());
    if cubin.kernels.is_empty() {
        // Libraries hold files with nothing but notes.
        return Ok(());
    }
    let again = sass::assemble_file(&listing, Arch { sm: cubin.sm, specific: false });
    let again = again.map_err(|e| {
        let line = listing.lines().nth(e.line.saturating_sub(1)).unwrap_or_default();
        ("asm", format!("{} [{}]", e.reason, line.trim()))
    })?;
    let again = Cubin::parse(&again).map_err(|e| ("written", e.to_string()))?;
    for kernel in &cubin.kernels {
        let same = again.kernel(&kernel.name).is_some_and(|k| again.code(k) == cubin.code(kernel));
        if !same {
            report.fault(path, "bytes", &format!("kernel {} differs", kernel.name));
        }
        let chip = SmArch::of(Arch { sm: cubin.sm, specific: false });
        let (Some(chip), Some(tool)) = (chip, nvdisasm.filter(|tool| tool.wants(&kernel.name))) else { continue };
        let words = cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect::<Vec<_>>();
        tool.later(path, &kernel.name, chip, words);
    }
    Ok(())
}

/// Checks of one file only that each word of its kernels is one of the table.
pub fn words(path: &Path, report: &mut Report) {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => return report.fault(path, "read", &e.to_string()),
    };
    if is_relocatable(&bytes) {
        return report.count(RELOCATABLE, 1);
    }
    let cubin = match Cubin::parse(&bytes) {
        Ok(cubin) => cubin,
        Err(e) => return report.fault(path, "elf", &e.to_string()),
    };
    let Some(chip) = SmArch::of(Arch { sm: cubin.sm, specific: false }) else {
        return report.fault(path, "chip", &format!("no table for sm_{}", cubin.sm));
    };
    report.count("files whose words alone were read", 1);
    for kernel in &cubin.kernels {
        let words = cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w));
        report.count("kernels of these files", 1);
        report.count("words of these files", words.len());
        // A form that the table lacks is said once a kernel.
        let unknown = words.filter_map(|word| Some((word & 0xfff, sass::decode_for(word, chip).err()?.reason)));
        let unknown: BTreeMap<u128, DecodeReason> = unknown.collect();
        for (opcode, why) in unknown {
            report.fault(path, "kernels with a word that the table lacks", &format!("{chip} op_{opcode:x}: {why}"));
        }
    }
}
