//! Products of half types on the matrix unit: right on the emulated compute units, and really there in the code.

use super::machine::{check_on, listing};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::half_matmul;
use doorbell::codegen::{self, OptChoice, Program};
use doorbell::isa::Isa;
use doorbell::isa::amdgpu::{Amdgpu, Chip, MachineCode};
use doorbell::uop::{DType, UOp};

fn compiled(chip: Chip, k: &UOp, choice: &OptChoice) -> Program {
    codegen::compile(k, Amdgpu::new(chip).target(), choice, false).unwrap_or_else(|e| panic!("{}: {e}", chip.name()))
}

/// Runs a product under these opts on a chip, compares it with the interpreter, and counts its matrix instructions.
fn run(chip: Chip, t: DType, size: (i64, i64, i64), choice: &OptChoice) -> (MachineCode, usize) {
    let k = half_matmul(t, size);
    let p = compiled(chip, &k, choice);
    let code = check_on(&[chip], &p, &[buffers(&k, 1), buffers(&k, 2)], &[], 1e-5).remove(0);
    let matrix = |l: &&str| l.contains("v_wmma_") || l.contains("v_mfma_");
    let n = listing(&code).lines().filter(matrix).count();
    (code, n)
}

fn given(text: &str) -> OptChoice {
    OptChoice::Given(text.split(' ').map(|o| o.parse().unwrap()).collect())
}

#[test]
fn products_under_tc_agree_on_every_chip_and_use_the_unit() {
    for chip in Chip::ALL {
        for t in [DType::F16, DType::BF16] {
            for (size, opts, least) in [
                ((16, 16, 16), "TC(0)", 1),
                ((18, 14, 20), "TC(0)", 1),
                ((32, 64, 32), "TC(0) UPCAST(0,2) UPCAST(0,2)", 4),
                ((32, 64, 64), "TC(0) UNROLL(3,2) LOCAL(1,2)", 2),
                ((32, 64, 64), "TC(0) GROUP(3,2)", 1),
                ((32, 64, 64), "TC(0) LOCAL(0,2) UPCAST(0,2) UNROLL(3,2)", 4),
                ((16, 32, 32), "TC(0) LOCAL(0,2) STAGE(1,2) STAGE(2,2)", 1),
            ] {
                let (code, n) = run(chip, t, size, &given(opts));
                assert!(n >= least, "{} {t:?} {opts}: {n} matrix instructions\n{}", chip.name(), listing(&code));
            }
        }
    }
}

#[test]
fn the_heuristic_puts_half_products_on_the_unit() {
    for chip in Chip::ALL {
        for t in [DType::F16, DType::BF16] {
            let (code, n) = run(chip, t, (64, 64, 64), &OptChoice::Heuristic);
            assert!(n > 0, "{} {t:?}\n{}", chip.name(), listing(&code));
        }
    }
}

#[test]
fn products_that_follow_one_another_add_up_in_one_tuple() {
    let (code, n) = run(Chip::Gfx1100, DType::F16, (32, 32, 128), &given("TC(0) UNROLL(3,4)"));
    let matrix = code.listing.iter().filter(|i| i.op.name().starts_with("v_wmma"));
    assert_eq!(n, 4, "{}", listing(&code));
    for i in matrix {
        assert_eq!(i.operands[0], i.operands[3], "{}", listing(&code));
    }
}

#[test]
fn operands_along_memory_are_loaded_where_the_unit_reads_them() {
    let (code, _) = run(Chip::Gfx1100, DType::F16, (16, 16, 16), &given("TC(0)"));
    let text = listing(&code);
    // Sixteen steps of a row are 32 bytes.
    assert_eq!(text.matches("global_load_b128").count(), 2, "{text}");
    let a = &code.listing.iter().find(|i| i.op.name().starts_with("v_wmma")).unwrap().operands[1];
    assert!(!code.listing.iter().any(|i| i.op.name() == "v_mov_b32" && i.operands[0] == *a), "{text}");
}

#[test]
fn the_assembled_kernel_disassembles_with_the_unit_in_it() {
    let isa = Amdgpu::new(Chip::Gfx1100);
    for (t, name) in [(DType::F16, "v_wmma_f32_16x16x16_f16"), (DType::BF16, "v_wmma_f32_16x16x16_bf16")] {
        let program = compiled(Chip::Gfx1100, &half_matmul(t, (32, 32, 32)), &given("TC(0)"));
        let text = isa.disassemble(&isa.assemble(&program).unwrap()).unwrap();
        assert!(text.contains(name), "{text}");
    }
}
