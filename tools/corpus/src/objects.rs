//! AMD's code objects: listed without `.long`; the listing assembles to the same bytes.

use crate::report::Report;
use doorbell_amdgpu::{Chip, Target, assemble, listing};
use doorbell_elf::amdgpu::{CodeObject, KernelDescriptor, machine_name};
use std::path::Path;

/// Checks one file.
pub fn check(path: &Path, report: &mut Report) {
    if let Err((what, text)) = checked(path, report) {
        report.fault(path, what, &text);
    }
}

fn checked(path: &Path, report: &mut Report) -> Result<(), (&'static str, String)> {
    let bytes = std::fs::read(path).map_err(|e| ("read", e.to_string()))?;
    let object = CodeObject::parse(&bytes).map_err(|e| ("elf", e.to_string()))?;
    let gpu = object.gpu.map_err(|flags| ("chip", machine_name(flags)))?;
    let chip = Chip::parse(gpu.name()).ok_or(("chip", gpu.name().to_owned()))?;
    report.count("kernels", object.kernels.len());
    let text = listing(&object).map_err(|e| ("disasm", e))?;
    for line in text.lines().map(str::trim) {
        if line.starts_with(".long") {
            report.fault(path, "long", line);
        } else if line.contains("// 0x") {
            report.count("instructions", 1);
        }
    }
    let again = assemble(Target::of(chip), &text).map_err(|e| {
        let line = text.lines().nth(e.line.saturating_sub(1)).unwrap_or_default();
        ("asm", format!("{} [{}]", e.what, line.trim()))
    })?;
    for kernel in &again.kernels {
        let code = again.kernel_code(gpu, kernel).map_err(|e| ("kernel", e))?;
        let Some(theirs) = object.kernel(&kernel.name) else { continue };
        let old = object.code(theirs);
        if let Some(at) = old.iter().zip(&code.code).position(|(a, b)| a != b) {
            let text = text.lines().find(|l| l.ends_with(&format!("// {:#06x}", at / 4 * 4))).unwrap_or_default();
            report.fault(path, "bytes", text.trim());
        }
        if old.len() > code.code.len() {
            report.fault(path, "length", &format!("{} bytes of {}", code.code.len(), old.len()));
        }
        let entry_offset_bytes = theirs.descriptor.entry_offset_bytes;
        let ours = KernelDescriptor { entry_offset_bytes, ..code.descriptor };
        if ours != theirs.descriptor {
            report.fault(path, "descriptor", &format!("{ours:?} of {:?}", theirs.descriptor));
        }
    }
    Ok(())
}
