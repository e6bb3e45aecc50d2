//! The assembler's two doors: a module as data and its text give the same cubin, byte for byte, and refuse the same.

use crate::all_samples::sample_files;
use crate::assemble::SM90;
use crate::kernel_set::{GROUPS, kernels};
use doorbell::elf::cubin::Arch;
use doorbell::isa::ptx::{Buffers, Chip, parse, render};
use doorbell::isa::sass::compile::{assemble, assemble_module};
use std::collections::HashSet;

#[test]
fn rendered_modules_and_their_texts_give_the_same_cubin() {
    let (mut seen, mut compared) = (HashSet::new(), 0);
    let chips = ["sm_90a", "sm_80", "sm_120a"].map(|name| Chip::parse(name).expect("the chip"));
    for group in GROUPS {
        for (n, k) in kernels(group, &mut seen).iter().enumerate() {
            // The programs are Hopper's: some have no text for other chips.
            let chip = chips[n % chips.len()];
            let Ok(module) = render(&k.program, chip, Buffers::Anywhere) else { continue };
            let arch = Arch::parse(chip.name).expect("a chip with machine code");
            let by_text = assemble(&module.to_string(), arch).unwrap_or_else(|e| panic!("{}: {e}", k.case));
            let by_module = assemble_module(&module, arch).unwrap_or_else(|e| panic!("{}: {e}", k.case));
            assert!(by_text == by_module, "{} {}", k.case, k.program.name);
            compared += 1;
        }
    }
    assert!(compared >= 3_500, "{compared}");
}

/// All that the parser knows: functions, prototypes, vector registers, tables of labels, variables with values.
#[test]
fn parsed_samples_give_the_same_cubin_by_both_doors() {
    let more = [
        ("nvcc", include_str!("../data/ptx/nvcc.ptx")),
        ("triton", include_str!("../data/ptx/triton.ptx")),
        ("calls", include_str!("../data/ptx/calls.ptx")),
        ("hopper", include_str!("../data/ptx/hopper.ptx")),
    ];
    let more = more.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let (mut made, mut refused) = (0, 0);
    for (name, text) in sample_files().into_iter().chain(more) {
        let module = parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        match (assemble(&text, SM90), assemble_module(&module, SM90)) {
            (Ok(by_text), Ok(by_module)) => {
                assert!(by_text == by_module, "{name}");
                made += 1;
            }
            (Err(by_text), Err(by_module)) => {
                assert_eq!((by_text.what, by_text.line), (by_module.what, by_module.line), "{name}");
                refused += 1;
            }
            (by_text, by_module) => panic!("{name}: text {:?}, module {:?}", by_text.err(), by_module.err()),
        }
    }
    assert!(made > 4 * refused, "{made} made, {refused} refused");
}
