//! Matrix instructions reached through clang's builtins: the kernels lay fragments out, plain loops multiply here.

use super::harness::{CLANG, Launch, Loaded, compile, folder, inputs, launch, scratch};
use doorbell::emu::amdgpu::Chip;

/// M, N, K from a kernel's name, `f32_32x32x8_f16`.
fn shape(name: &str) -> [usize; 3] {
    let dims: Vec<usize> = name.split('_').nth(1).unwrap().split('x').map(|d| d.parse().unwrap()).collect();
    [dims[0], dims[1], dims[2]]
}

fn product(input: &[u32], [m, n, k]: [usize; 3]) -> Vec<u32> {
    let small = |v: u32| (v & 15) as i32 - 8;
    let a = |i: usize, x: usize| small(input[i * k + x]);
    let b = |x: usize, j: usize| small(input[4096 + x * n + j]);
    let c = |i: usize, j: usize| (input[8192 + i * n + j] & 255) as i32 - 128;
    (0..m * n).map(|at| ((0..k).map(|x| a(at / n, x) * b(x, at % n)).sum::<i32>() + c(at / n, at % n)) as u32).collect()
}

fn multiplies(chip: Chip, lanes: u32) {
    let dir = scratch("matrix");
    let input: Vec<u32> = inputs(12288, 77).iter().map(|v| v ^ v >> 11).collect();
    for level in ["-O0", "-O2"] {
        let loaded = Loaded::new(chip, &compile(chip, &folder().join("matrix.c"), &[level], &dir));
        assert!(loaded.names().len() >= 4, "{:?}", loaded.names());
        for name in loaded.names() {
            let [m, n, k] = shape(name);
            let l = Launch {
                kernel: name,
                input: &input,
                out_words: (m * n) as u32,
                groups: 1,
                local: lanes,
                n: 0,
                strict: CLANG,
            };
            let (got, _) = launch(&loaded, &l).unwrap_or_else(|f| panic!("{name} {level}: {f}"));
            assert_eq!(got, product(&input, [m, n, k]), "{chip:?} {name} {level}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn wmma_multiplies_on_gfx1100() {
    multiplies(Chip::Gfx1100, 32);
}

#[test]
fn wmma_multiplies_on_gfx1201() {
    multiplies(Chip::Gfx1201, 32);
}

#[test]
fn mfma_multiplies_on_gfx942() {
    multiplies(Chip::Gfx942, 64);
}
