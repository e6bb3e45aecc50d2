//! PTX texts: assembled, checked for hazards, read by nvdisasm.
//!
//! A kernel that ptxas refuses for the chip as well is left out, with its reason.

use crate::args::Args;
use crate::report::Report;
use crate::runs;
use doorbell_ptx::sass::{self, SmArch, check, compile};
use std::path::Path;
use std::process::Command;

/// Checks one text for a chip.
pub fn check(path: &Path, chip: SmArch, args: &Args, report: &mut Report) {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => return report.fault(path, "read", &e.to_string()),
    };
    let first = match compile::text_code(&text, chip) {
        Ok((kernels, _)) => return check_kernels(path, chip, &kernels, args, report),
        Err(e) => e,
    };
    // One after the other: which are refused, and by whom.
    let mut found = false;
    for name in runs::names(&text) {
        let alone = runs::alone(&text, name, chip);
        match compile::text_code(&alone, chip) {
            Ok((kernels, _)) => check_kernels(path, chip, &kernels, args, report),
            Err(e) => {
                found = true;
                let theirs = args.ptxas.as_ref().map(|ptxas| runs::assembled(ptxas, &alone, chip));
                match theirs {
                    Some(Err(_)) => report.note("kernels that ptxas refuses too", &e.what),
                    _ => report.fault(path, "refused", &format!("{} in {name}", e.what)),
                }
            }
        }
    }
    if !found {
        report.fault(path, "refused", &format!("{} at {}:{}", first.what, first.line, first.column));
    }
}

fn check_kernels(path: &Path, chip: SmArch, kernels: &[compile::KernelCode], args: &Args, report: &mut Report) {
    report.count("kernels", kernels.len());
    for kernel in kernels {
        report.count("instructions", kernel.words.len());
        match check::check_for(&kernel.words, chip, check::Trust::Safe) {
            Ok(found) => {
                found.iter().for_each(|h| report.fault(path, "hazard", &format!("{h} in {}", kernel.name)));
            }
            Err(e) => report.fault(path, "word", &format!("{e} in {}", kernel.name)),
        }
        let Some(tool) = args.nvdisasm.as_ref().filter(|tool| tool.wants(&kernel.name)) else { continue };
        report.count("kernels that nvdisasm read", 1);
        if let Err(e) = reads(&tool.program, chip, &kernel.words) {
            report.fault(path, "nvdisasm", &format!("{e} in {}", kernel.name));
        }
    }
}

/// Whether nvdisasm reads all words as we print them.
pub fn reads(tool: &Path, chip: SmArch, words: &[u128]) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("corpus-{}-{:?}", std::process::id(), std::thread::current().id()));
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    std::fs::write(&file, bytes).map_err(|e| e.to_string())?;
    let arch = if chip == SmArch::Sm90 { "SM90a".to_owned() } else { format!("SM{}", chip.number()) };
    let out = Command::new(tool).args(["--binary", &arch]).arg(&file).output().map_err(|e| e.to_string());
    let _ = std::fs::remove_file(&file);
    let out = out?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let theirs = text.lines().filter_map(|l| Some(l.split_once("*/")?.1.split(';').next()?.trim().to_owned()));
    let theirs: Vec<String> = theirs.filter(|l| !l.is_empty()).collect();
    let ours = (0u64..)
        .step_by(16)
        .zip(words)
        .map(|(at, w)| sass::decode_for(*w, chip).map_or_else(|e| e.to_string(), |i| sass::print_at(&i, at)));
    match ours.zip(&theirs).find(|(a, b)| a != *b) {
        Some((a, b)) => Err(format!("ours {a}, theirs {b}")),
        None => Ok(()),
    }
}
