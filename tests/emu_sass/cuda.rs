//! CUDA C++ compiled by nvcc and ptxas, at both levels, in strict mode, against scalar references.

use crate::harness::{Size, address, launch};
use crate::kit::nvcc::{Level, code};
use crate::kit::{Case, cases};
use doorbell::elf::cubin::Cubin;
use doorbell::emu::sass::Options;
use std::collections::BTreeSet;

/// Runs a case and checks what it leaves; the forms of instructions it met.
fn run_case(case: &Case, level: Level) -> Result<BTreeSet<(&'static str, &'static str)>, String> {
    let cubin = Cubin::parse(&code(case.file, level).cubin).map_err(|e| e.to_string())?;
    let buffers = case.buffers();
    let addresses: Vec<u64> = (0..buffers.len()).map(address).collect();
    let size =
        Size { grid: case.grid, block: case.block, dynamic_shared_bytes: case.dynamic_shared_bytes, ..Size::default() };
    let options = Options { max_instructions: 20_000_000, ..Options::default() };
    let (after, stats) = launch(&cubin, case.kernel, size, &buffers, &case.parameters(&addresses), &options)
        .map_err(|f| f.to_string())?;
    case.check(&after)?;
    Ok(stats.forms)
}

#[test]
fn kernels_of_nvcc_at_both_levels_agree_with_scalar_references() {
    let (mut wrong, mut forms, mut right) = (vec![], BTreeSet::new(), 0);
    for case in cases() {
        for level in Level::ALL {
            match run_case(&case, level) {
                Ok(met) => {
                    right += 1;
                    forms.extend(met);
                }
                Err(e) => wrong.push(format!("{} {level:?}: {e}", case.kernel)),
            }
        }
    }
    println!("{right} runs agree, {} forms of instructions", forms.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), wrong.len() + right, wrong.join("\n"));
}
