//! CUDA C++ compiled by nvcc at both levels, in strict mode, against scalar references: as ptxas assembles it, and as we do.

use crate::harness::{Size, address, launch};
use crate::kit::nvcc::{Level, code, compiled};
use crate::kit::{Case, cases};
use crate::nvidia::disassemble;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::Options;
use doorbell::isa::sass::check::{Trust, check};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{decode, print_at};
use std::collections::{BTreeMap, BTreeSet};

/// Runs a case and checks what it leaves; the forms of instructions it met.
fn run_case(case: &Case, cubin: &[u8]) -> Result<BTreeSet<(&'static str, &'static str)>, String> {
    let cubin = Cubin::parse(cubin).map_err(|e| e.to_string())?;
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

/// All cases at both levels.
fn run_all<'a>(cubin: impl Fn(&'static str, Level) -> &'a [u8]) {
    let (mut wrong, mut forms, mut right) = (vec![], BTreeSet::new(), 0);
    for case in cases() {
        for level in Level::ALL {
            match run_case(&case, cubin(case.file, level)) {
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

#[test]
fn kernels_of_nvcc_at_both_levels_agree_with_scalar_references_by_both_assemblers() {
    run_all(|file, level| &code(file, level).cubin);
    let arch = Arch { sm: 90, specific: true };
    let made = |text: &str| assemble(text, arch).unwrap_or_else(|e| panic!("{e}"));
    let ours: BTreeMap<(&str, &str), Vec<u8>> =
        compiled().iter().map(|c| ((c.file, c.level.flag()), made(&c.ptx))).collect();
    run_all(|file, level| &ours[&(file, level.flag())]);
    sound(ours.values());
}

/// The schedules are sound, and nvdisasm reads every word as we print it.
fn sound<'a>(cubins: impl Iterator<Item = &'a Vec<u8>>) {
    let mut words = vec![];
    for bytes in cubins {
        let cubin = Cubin::parse(bytes).unwrap();
        for kernel in &cubin.kernels {
            let code = cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w));
            let code: Vec<u128> = code.collect();
            let found = check(&code, Trust::Safe).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            assert!(found.is_empty(), "{}: {}", kernel.name, found[0]);
            words.extend(code);
        }
    }
    words.sort_unstable();
    words.dedup();
    assert!(words.len() > 10_000, "{} distinct words", words.len());
    for (k, (word, theirs)) in words.iter().zip(disassemble(&words)).enumerate() {
        let inst = decode(*word).unwrap_or_else(|e| panic!("{word:032x}: {e}"));
        assert_eq!(Some(print_at(&inst, 16 * k as u64)), theirs, "{word:032x}");
    }
}
