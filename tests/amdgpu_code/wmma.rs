//! Products of half types on the matrix unit: right on the emulated compute units, and really there in the code.

use super::machine::{check_on, listing};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::{byte_matmul, half_matmul};
use doorbell::codegen::{self, OptChoice, Program};
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
fn products_of_bytes_under_tc_are_exact_on_every_chip() {
    for chip in Chip::ALL {
        for t in [DType::I8, DType::U8].into_iter().filter(|t| *t == DType::I8 || chip != Chip::Gfx942) {
            for (size, opts, least) in [
                ((16, 16, 32), "TC(0)", 1),
                ((18, 14, 40), "TC(0)", 1),
                ((32, 64, 64), "TC(0) UPCAST(0,2) UPCAST(0,2)", 4),
                ((32, 64, 128), "TC(0) UNROLL(3,2) LOCAL(1,2)", 2),
                ((32, 64, 128), "TC(0) GROUP(3,2)", 1),
                ((16, 32, 64), "TC(0) LOCAL(0,2) STAGE(1,2) STAGE(2,2)", 1),
            ] {
                let k = byte_matmul(t, size, DType::I32);
                let p = compiled(chip, &k, &given(opts));
                let n = extremes(chip, &k, &p);
                assert!(n >= least, "{} {t:?} {opts}: {n} matrix instructions", chip.name());
            }
            let k = byte_matmul(t, (64, 64, 64), DType::I32);
            assert!(extremes(chip, &k, &compiled(chip, &k, &OptChoice::Heuristic)) > 0, "{} {t:?}", chip.name());
        }
    }
}

/// Runs a product of bytes of all values, the largest and smallest among them; the number of its matrix instructions.
fn extremes(chip: Chip, k: &UOp, p: &Program) -> usize {
    let mut bytes = buffers(k, 3);
    for (n, b) in bytes[1..3].iter_mut().flatten().enumerate() {
        *b = [0x80, 0x7f, 0xff, 0][n % 5 % 4] ^ (n as u8).wrapping_mul(if n % 3 == 0 { 0 } else { 37 });
    }
    let code = check_on(&[chip], p, &[buffers(k, 1), bytes], &[], 0.0).remove(0);
    listing(&code).lines().filter(|l| l.contains("v_wmma_i32") || l.contains("v_mfma_i32")).count()
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
        let text = isa.disassemble(&isa.object(&program).unwrap()).unwrap();
        assert!(text.contains(name), "{text}");
    }
}
