//! PTX texts: assembled, checked for hazards, read by nvdisasm.
//!
//! A kernel that ptxas refuses for the chip as well is left out, with its reason.

use crate::args::Args;
use crate::modules::Module;
use crate::report::Report;
use crate::runs;
use doorbell_ptx::sass::{SmArch, check, compile};
use std::path::Path;

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
    let module = Module::of(&text);
    for name in module.names() {
        let alone = module.alone(name, chip);
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
        if let Some(tool) = args.nvdisasm.as_ref().filter(|tool| tool.wants(&kernel.name)) {
            tool.later(path, &kernel.name, chip, kernel.words.clone());
        }
    }
}
