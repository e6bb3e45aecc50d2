//! Listings of kernels: `kernels-asm/sass` assembled, read by nvdisasm, checked; cubins of ptxas listed and assembled
//! again.

use crate::compiled::module;
use crate::nvidia::{disassemble, ptxas};
use doorbell::elf::cubin::{Arch, Cubin, Param};
use doorbell::isa::sass::check::{Trust, check};
use doorbell::isa::sass::{SmArch, assemble_file, decode, listing, print_at, words_listing};
use std::path::Path;

const SM_90A: Arch = Arch { sm: 90, specific: true };

fn words(code: &[u8]) -> Vec<u128> {
    code.as_chunks::<16>().0.iter().map(|w| u128::from_le_bytes(*w)).collect()
}

#[test]
fn hand_written_kernels_assemble_are_read_by_nvdisasm_and_keep_the_safe_distances() {
    for name in ["peak_fma", "peak_hmma", "peak_wgmma", "copy", "copy_bulk", "chase"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels-asm/sass").join(name).with_extension("sass");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let cubin = assemble_file(&text, SM_90A).unwrap_or_else(|e| panic!("{name}: {e}"));
        let cubin = Cubin::parse(&cubin).expect("a cubin");
        let kernel = cubin.kernel(name).unwrap_or_else(|| panic!("no kernel {name}"));
        let code = words(cubin.code(kernel));
        let theirs = disassemble(&code);
        for (i, (word, theirs)) in code.iter().zip(theirs).enumerate() {
            let inst = decode(*word).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(theirs.as_deref(), Some(print_at(&inst, 16 * i as u64).as_str()), "{name}");
        }
        let found: Vec<String> =
            check(&code, Trust::Safe).expect("instructions").iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn a_listed_cubin_assembles_to_the_same_code_and_facts() {
    let theirs = Cubin::parse(&ptxas(&module(0x5a55_6001, 3), "-O3")).expect("a cubin");
    let text = listing(&theirs).expect("sm_90");
    let ours = Cubin::parse(&assemble_file(&text, SM_90A).unwrap_or_else(|e| panic!("{e}"))).expect("a cubin");
    for (a, b) in theirs.kernels.iter().zip(&ours.kernels) {
        assert_eq!(theirs.code(a), ours.code(b), "{}", a.name);
        let facts = |k: &doorbell::elf::cubin::Kernel| {
            (k.name.clone(), k.registers, k.barriers, k.shared_bytes, k.params.clone())
        };
        assert_eq!(facts(a), facts(b));
    }
}

#[test]
fn a_directive_says_what_a_kernel_needs_and_faults_have_their_line() {
    let text = "// two kernels\n.kernel a registers=8 barriers=1 shared=1280 stack=16 params=0:8,8:2\n[B------:R-:W-:-:S05] EXIT ;\n\
                .kernel b registers=4 // nothing\n[B------:R-:W-:-:S05] EXIT ;";
    let cubin = Cubin::parse(&assemble_file(text, SM_90A).expect("a listing")).expect("a cubin");
    let a = cubin.kernel("a").expect("a");
    assert_eq!((a.registers, a.barriers, a.shared_bytes, a.stack_bytes), (8, 1, 1280, Some(16)));
    assert_eq!(a.params, [Param { offset: 0, len_bytes: 8 }, Param { offset: 8, len_bytes: 2 }]);
    assert_eq!(cubin.kernel("b").expect("b").code_bytes, 16);
    let error = |text: &str| assemble_file(text, SM_90A).expect_err("a fault").to_string();
    assert_eq!(error(".kernel a registers=x\n"), "line 1: .kernel: registers=x");
    assert_eq!(error(".kernel\n"), "line 1: .kernel: a kernel without a name");
    assert!(error(".kernel a\n\nFROB ;").starts_with("line 3: no control word"));
    assert!(error("[B------:R-:W-:-:S05] EXIT ;\n.kernel a\n").starts_with("line 1: .kernel: code before"));
    assert!(error(".kernel a\n").contains("its code is empty"));
    assert_eq!(assemble_file("[B------:R-:W-:-:S05] EXIT ;", SM_90A).map(|c| c.len()), Ok(16));
    assert!(error(".word 12").starts_with("line 1: .word 12: a number of 128 bits"));
}

#[test]
fn a_word_that_no_form_describes_is_listed_as_a_number_and_comes_back() {
    let word = 0x000f_e200_0000_0000_0000_0000_0000_0fffu128;
    let text = words_listing(&word.to_le_bytes(), SmArch::Sm90);
    assert!(text.trim().starts_with(&format!(".word {word:#034x}  // ")), "{text}");
    assert_eq!(assemble_file(&text, SM_90A), Ok(word.to_le_bytes().to_vec()));
}

#[test]
fn a_kernel_has_the_shared_memory_that_it_names_and_none_of_other_kernels() {
    let text = ".version 8.8\n.target sm_90a\n.address_size 64\n.shared .align 4 .b8 large[40000];\n\
        .shared .align 8 .b8 small[72];\n.shared .align 16 .b8 none[30000];\n.visible .entry j() {\nst.shared.u8 [large+3], 1;\nret;\n}\n\
        .visible .entry k() {\n.reg .b32 %r<2>;\nmov.u32 %r1, small;\nst.shared.u32 [%r1+68], %r1;\nret;\n}\n";
    let bytes = |cubin: &[u8]| {
        let file = doorbell::elf::cubin::Cubin::parse(cubin).expect("a cubin");
        ["j", "k"].map(|name| file.kernel(name).map(|k| k.launch_shared_bytes(90, 0)))
    };
    let arch = doorbell::elf::cubin::Arch { sm: 90, specific: true };
    let ours = doorbell::isa::sass::compile::assemble(text, arch).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(bytes(&ours), bytes(&crate::nvidia::ptxas(text, "-O3")));
}
