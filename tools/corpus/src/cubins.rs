//! Cubins: listed without an unknown word; the listing assembles to the same bytes; nvdisasm reads the words as it
//! does.

use crate::nvdisasm::Nvdisasm;
use crate::report::Report;
use doorbell_elf::cubin::{Arch, Cubin};
use doorbell_ptx::sass;
use std::path::Path;

/// Checks one file.
pub fn check(path: &Path, nvdisasm: Option<&Nvdisasm>, report: &mut Report) {
    if let Err((what, text)) = checked(path, nvdisasm, report) {
        report.fault(path, what, &text);
    }
}

fn checked(path: &Path, nvdisasm: Option<&Nvdisasm>, report: &mut Report) -> Result<(), (&'static str, String)> {
    let bytes = std::fs::read(path).map_err(|e| ("read", e.to_string()))?;
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
        let chip = sass::SmArch::of(Arch { sm: cubin.sm, specific: false });
        let (Some(chip), Some(tool)) = (chip, nvdisasm.filter(|tool| tool.wants(&kernel.name))) else { continue };
        let words = cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect::<Vec<_>>();
        tool.later(path, &kernel.name, chip, words);
    }
    Ok(())
}
