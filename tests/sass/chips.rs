//! Chips beside sm_90: code that ptxas compiles for each, read by nvdisasm and by us.

use crate::compiled::{module_for, words};
use crate::nvidia::{disassemble_for, ptxas_for};
use doorbell::isa::sass::{Chip, assemble_for, decode_for, encode, listing_line, print_at};
use std::collections::BTreeSet;

pub const OTHERS: [Chip; 4] = [Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm120];

/// Reads distinct words of a chip beside nvdisasm: the same text, and the same word again, also through a listing.
pub fn agree(fresh: &[u128], chip: Chip) {
    for (i, (word, theirs)) in fresh.iter().zip(disassemble_for(fresh, chip)).enumerate() {
        let address = 16 * i as u64;
        let theirs = theirs.unwrap_or_else(|| panic!("{chip}: nvdisasm refuses {word:032x}"));
        let inst = decode_for(*word, chip).unwrap_or_else(|e| panic!("{chip}: {theirs}: {e}"));
        assert_eq!(print_at(&inst, address), theirs, "{chip} {word:032x}");
        assert_eq!(encode(&inst), Ok(*word), "{chip}: {theirs}");
        let line = listing_line(&inst, 0);
        let again = assemble_for(&line, chip).unwrap_or_else(|e| panic!("{chip}: {line}: {e}"));
        assert_eq!(again, [*word], "{chip}: {line}");
    }
}

#[test]
fn random_kernels_compiled_for_each_chip_read_as_nvdisasm_reads_them() {
    for chip in OTHERS {
        let mut seen = BTreeSet::new();
        for (seed, level) in [(0x5a55_5001, "-O3"), (0x5a55_5002, "-O1")] {
            let arch = chip.to_string();
            let cubin = ptxas_for(&module_for(seed, 12, &arch), &arch, level);
            let fresh: Vec<u128> = words(&cubin).into_iter().filter(|w| seen.insert(*w)).collect();
            agree(&fresh, chip);
        }
        println!("{chip}: {} distinct instructions", seen.len());
        assert!(seen.len() >= 5_000, "{chip}: only {} distinct instructions", seen.len());
    }
}

#[test]
fn tensor_instructions_compiled_for_each_chip_read_as_nvdisasm_reads_them() {
    for chip in OTHERS {
        let arch = chip.to_string();
        let text = include_str!("../data/sass/tensor_sm80.ptx").replace("sm_80", &arch);
        let fresh: BTreeSet<u128> = words(&ptxas_for(&text, &arch, "-O3")).into_iter().collect();
        println!("{chip}: {} distinct instructions", fresh.len());
        assert!(fresh.len() >= 100, "{chip}: only {} distinct instructions", fresh.len());
        agree(&fresh.into_iter().collect::<Vec<_>>(), chip);
    }
}
