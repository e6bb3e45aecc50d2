//! CUDA C++ compiled by nvcc at both levels, in strict mode, against scalar references: as ptxas assembles it, and as
//! we do; for sm_80, sm_86, sm_89 and sm_120 the optimised text. And translated to code of this machine, in plain and
//! in strict mode: the same bits.

use crate::harness::{Size, address, launch, launch_translated};
use crate::kit::nvcc::{Level, code, compiled, cubins_for, portable};
use crate::kit::{Case, cases};
use crate::nvidia::disassemble_for;
use doorbell::elf::cubin::{Arch, Cubin};
use doorbell::emu::sass::Options;
use doorbell::isa::ptx::{Item, parse};
use doorbell::isa::sass::check::{Trust, check_for};
use doorbell::isa::sass::compile::assemble;
use doorbell::isa::sass::{SmArch, decode_for, print_at};
use std::collections::{BTreeMap, BTreeSet};

/// Runs a case and checks what it leaves; returns the forms of the instructions executed.
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
    let plain = Options { max_instructions: options.max_instructions, ..Options::fast() };
    for (mode, options) in [("plain", plain), ("strict", options)] {
        let parameters = case.parameters(&addresses);
        let left = launch_translated(&cubin, case.kernel, size, &buffers, &parameters, &options);
        if left.map_err(|f| format!("translated, {mode}: {f}"))? != after {
            return Err(format!("translated in {mode} mode, it leaves other bits than interpreted in strict mode"));
        }
    }
    Ok(stats.forms)
}

/// All cases at some levels, except one.
fn run_all<'a>(levels: &[Level], but: Option<&str>, cubin: impl Fn(&'static str, Level) -> &'a [u8]) {
    let (mut wrong, mut forms, mut right) = (vec![], BTreeSet::new(), 0);
    for case in cases().into_iter().filter(|c| Some(c.kernel) != but) {
        for level in levels.iter().copied() {
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
    run_all(&Level::ALL, None, |file, level| &code(file, level).cubin);
    let arch = Arch { sm: 90, specific: true };
    let made = |text: &str| assemble(text, arch).unwrap_or_else(|e| panic!("{e}"));
    let ours: BTreeMap<(&str, &str), Vec<u8>> =
        compiled().iter().map(|c| ((c.file, c.level.flag()), made(&c.ptx))).collect();
    run_all(&Level::ALL, None, |file, level| &ours[&(file, level.flag())]);
    sound(SmArch::Sm90, ours.values());
}

/// The optimised kernels on another chip: ptxas's code of it, and ours.
fn run_on(chip: SmArch) {
    let theirs: BTreeMap<&str, Vec<u8>> = cubins_for(&chip.to_string()).into_iter().collect();
    run_all(&[Level::O3], None, |file, _| &theirs[file]);
    // The one kernel that our assembler refuses: sm_120 has no differences of bytes.
    let but = (chip == SmArch::Sm120).then_some("integer_intrinsics");
    let made = |text: &str| {
        let mut module = parse(text).unwrap_or_else(|e| panic!("{e}"));
        module.items.retain(|item| !matches!(item, Item::Function(f) if Some(&*f.name) == but));
        assemble(&module.to_string(), chip.arch()).unwrap_or_else(|e| panic!("{chip}: {e}"))
    };
    let ours: BTreeMap<&str, Vec<u8>> = portable().iter().map(|(file, text)| (*file, made(text))).collect();
    run_all(&[Level::O3], but, |file, _| &ours[file]);
    sound(chip, ours.values());
}

#[test]
fn kernels_for_sm_80_agree_with_scalar_references_by_both_assemblers() {
    run_on(SmArch::Sm80);
}

#[test]
fn kernels_for_sm_86_agree_with_scalar_references_by_both_assemblers() {
    run_on(SmArch::Sm86);
}

#[test]
fn kernels_for_sm_89_agree_with_scalar_references_by_both_assemblers() {
    run_on(SmArch::Sm89);
}

#[test]
fn kernels_for_sm_120_agree_with_scalar_references_by_both_assemblers() {
    run_on(SmArch::Sm120);
}

/// The schedules are sound, and nvdisasm reads every word as we print it.
fn sound<'a>(chip: SmArch, cubins: impl Iterator<Item = &'a Vec<u8>>) {
    let mut words = vec![];
    for bytes in cubins {
        let cubin = Cubin::parse(bytes).unwrap();
        for kernel in &cubin.kernels {
            let code = cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w));
            let code: Vec<u128> = code.collect();
            let found = check_for(&code, chip, Trust::Safe).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            assert!(found.is_empty(), "{}: {}", kernel.name, found[0]);
            words.extend(code);
        }
    }
    words.sort_unstable();
    words.dedup();
    assert!(words.len() > 5_000, "{} distinct words", words.len());
    for (k, (word, theirs)) in words.iter().zip(disassemble_for(&words, chip)).enumerate() {
        let inst = decode_for(*word, chip).unwrap_or_else(|e| panic!("{word:032x}: {e}"));
        assert_eq!(Some(print_at(&inst, 16 * k as u64)), theirs, "{word:032x}");
    }
}
