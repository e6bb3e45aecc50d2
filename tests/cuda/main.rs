//! Ordinary CUDA C++: it compiles at both levels, our PTX parser takes all that nvcc wrote and ptxas takes back what
//! our printer makes of it, our cubin reader finds every kernel with the parameters of its launch, and the table's
//! references hold against known values.
//!
//! What runs the kernels (the software SM, later our assembler's code) includes `kit` and goes over the same table.

mod kit;

use doorbell::elf::cubin::Cubin;
use doorbell::isa::ptx::parse;
use doorbell::isa::sass::check::{Trust, check};
use kit::nvcc::{FILES, Level, assemble, code, compiled};
use kit::{Data, cases};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn the_table_has_every_kernel_of_the_files_once() {
    let cases = cases();
    let names: BTreeSet<&str> = cases.iter().map(|c| c.kernel).collect();
    assert_eq!(names.len(), cases.len(), "a kernel stands twice");
    assert!(cases.len() >= 40, "{} kernels", cases.len());
    for file in FILES {
        let cubin = Cubin::parse(&code(file, Level::O3).cubin).unwrap();
        let made: BTreeSet<&str> = cubin.kernels.iter().map(|k| k.name.as_str()).collect();
        let listed: BTreeSet<&str> = cases.iter().filter(|c| c.file == file).map(|c| c.kernel).collect();
        assert_eq!(made, listed, "{file}");
    }
}

#[test]
fn cubins_at_both_levels_have_the_parameters_and_limits_of_the_launches() {
    for case in cases() {
        let values = case.parameters(&vec![0x1000; case.buffers().len()]);
        for level in Level::ALL {
            let cubin = Cubin::parse(&code(case.file, level).cubin).unwrap();
            let kernel = cubin.kernel(case.kernel).unwrap_or_else(|| panic!("{}", case.kernel));
            let wanted: Vec<u32> = kernel.params.iter().map(|p| p.len_bytes).collect();
            let given: Vec<u32> = values.iter().map(|v| v.len() as u32).collect();
            assert_eq!(given, wanted, "{} {level:?}", case.kernel);
            let threads = case.block.iter().product::<u32>();
            assert!(kernel.registers * threads.next_multiple_of(32) <= 65536, "{} {level:?}", case.kernel);
            let shared = kernel.launch_shared_bytes(cubin.sm, case.dynamic_shared_bytes);
            assert!(shared <= 48 * 1024 + 1024, "{} {level:?}: {shared}", case.kernel);
        }
    }
}

#[test]
fn the_parser_takes_all_that_nvcc_wrote_and_prints_it_back() {
    for c in compiled() {
        let module = parse(&c.ptx).unwrap_or_else(|e| panic!("{} {:?}: {e}", c.file, c.level));
        let printed = module.to_string();
        let again = parse(&printed).unwrap_or_else(|e| panic!("{} {:?}, printed: {e}", c.file, c.level));
        assert_eq!(again, module, "{} {:?}", c.file, c.level);
        assert_eq!(again.to_string(), printed, "{} {:?}", c.file, c.level);
    }
}

/// How often each opcode occurs in a kernel's code.
fn operations(code: &[u8]) -> BTreeMap<u128, usize> {
    let mut count = BTreeMap::new();
    for word in code.as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)) {
        *count.entry(word & 0xfff | word >> 91 & 1 << 12).or_default() += 1;
    }
    count
}

#[test]
fn ptxas_makes_the_same_kernels_of_what_we_print() {
    for c in compiled() {
        let printed = parse(&c.ptx).unwrap().to_string();
        let (theirs, ours) = (Cubin::parse(&c.cubin).unwrap(), Cubin::parse(&assemble(&printed, c.level)).unwrap());
        let names =
            |cubin: &Cubin| cubin.kernels.iter().map(|k| (k.name.clone(), k.params.clone())).collect::<Vec<_>>();
        assert_eq!(names(&theirs), names(&ours), "{} {:?}", c.file, c.level);
        // Unoptimised, ptxas adds the 0 of `[%SP+0]`, which we print as `[%SP]`.
        for (a, b) in theirs.kernels.iter().zip(&ours.kernels).filter(|_| c.level == Level::O3) {
            assert_eq!(operations(theirs.code(a)), operations(ours.code(b)), "{}", a.name);
        }
    }
}

#[test]
fn the_schedules_of_all_kernels_are_sound_and_every_word_reads_as_written() {
    for c in compiled() {
        let cubin = Cubin::parse(&c.cubin).unwrap();
        for kernel in &cubin.kernels {
            let words: Vec<u128> =
                cubin.code(kernel).as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect();
            let found = check(&words, Trust::Seen).unwrap_or_else(|e| panic!("{} {:?}: {e}", kernel.name, c.level));
            let first = found.first().map(ToString::to_string);
            assert_eq!(first, None, "{} {:?}: {} hazards", kernel.name, c.level, found.len());
        }
    }
}

/// The reference alone, as though a perfect machine had run the kernel.
fn after(kernel: &str) -> Vec<Data> {
    cases().iter().find(|c| c.kernel == kernel).unwrap_or_else(|| panic!("{kernel}")).expected()
}

#[test]
fn every_reference_does_something_and_passes_its_own_check() {
    for case in cases() {
        let after: Vec<Vec<u8>> = case.expected().iter().map(Data::bytes).collect();
        assert_ne!(after, case.buffers(), "{}: nothing happens", case.kernel);
        assert_eq!(case.check(&after), Ok(()), "{}", case.kernel);
        assert!(case.check(&case.buffers()).is_err(), "{}: a kernel that does nothing passes", case.kernel);
    }
}

#[test]
fn references_give_known_values() {
    // Solutions of seven queens by the first queen's column: 40 in all.
    let queens = after("queens").remove(0).i32s()[..7].to_vec();
    assert_eq!(queens, [4, 7, 6, 6, 6, 7, 4]);
    // A value of the table of the error function: erfc(0.5) = 0.4795001221869535.
    let (mut erf, inputs) = (after("double_error_function"), cases());
    let y = inputs.iter().find(|c| c.kernel == "double_error_function").unwrap().buffers()[1].clone();
    let y: Vec<f64> = y.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().unwrap())).collect();
    let (at, near) = y.iter().enumerate().min_by(|a, b| (a.1 - 0.5).abs().total_cmp(&(b.1 - 0.5).abs())).unwrap();
    let slope = -2.0 / std::f64::consts::PI.sqrt() * (-0.25f64).exp();
    let expected = 0.479_500_122_186_953_5 + slope * (near - 0.5) * (1.0 - 0.5 * (near - 0.5));
    assert!((erf[2].f64s()[y.len() + at] - expected).abs() < 1e-5);
}

#[test]
fn a_wrong_element_is_told_with_its_place() {
    let case = cases().into_iter().find(|c| c.kernel == "collatz").unwrap();
    let mut after: Vec<Vec<u8>> = case.expected().iter().map(Data::bytes).collect();
    after[1][20] ^= 1;
    let said = case.check(&after).unwrap_err();
    assert!(said.starts_with("collatz: buffer 1, element 5: ") && said.ends_with("(1 are wrong)"), "{said}");
}
