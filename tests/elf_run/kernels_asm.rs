//! The hand-written x86-64 kernels, loaded by our linker and checked against plain Rust, bit for bit.

use crate::memory::{Placed, Where};
use doorbell::elf;
use doorbell_kernels as kernels_asm;

/// The kernel in memory, or `None` with the reason printed when this CPU cannot run it.
fn load(name: &str) -> Option<Placed> {
    let kernel = kernels_asm::find(name).unwrap();
    if !kernel.needs.met() {
        println!("SKIP {name}: this CPU lacks {:?}", kernel.needs);
        return None;
    }
    Some(Placed::new(elf::link(kernel.object).unwrap(), Where::Anywhere, &|_| None))
}

fn address<T>(values: &mut [T]) -> u64 {
    values.as_mut_ptr().addr() as u64
}

/// Small values that differ from element to element and are exact in f32.
fn ramp(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed * 13) % 61) as f32 * 0.125 - 3.0).collect()
}

#[test]
fn every_kernel_of_the_list_is_an_entry_of_its_object() {
    assert_eq!(kernels_asm::KERNELS.len(), 18);
    for kernel in kernels_asm::KERNELS {
        assert!(elf::link(kernel.object).unwrap().entry(kernel.name).is_some(), "{}", kernel.name);
    }
}

#[test]
fn peak_fma_chains_equal_a_loop_of_mul_add() {
    for (name, chains, lanes) in [("peak_fma_avx2", 12, 8), ("peak_fma_avx512", 24, 16)] {
        let Some(placed) = load(name) else { continue };
        for count in [0u64, 1, 1000] {
            let mut out = vec![f32::NAN; 2 * chains * lanes + 1];
            // SAFETY: the kernel writes chains * lanes floats for tids 0 and 1; the last float must stay.
            (0..2).for_each(|tid| unsafe { placed.call(name, &[address(&mut out), count], tid) });
            for (i, got) in out[..2 * chains * lanes].iter().enumerate() {
                let start = (i % lanes + i / lanes % chains) as f32;
                let want = (0..count).fold(start, |x, _| x.mul_add(0.999, 0.001));
                assert_eq!(got.to_bits(), want.to_bits(), "{name} count {count} value {i}: {got} {want}");
            }
            assert!(out[2 * chains * lanes].is_nan());
        }
    }
}

#[test]
fn triad_equals_mul_add_for_every_length_alignment_and_split() {
    for name in ["triad_avx2", "triad_stream_avx2", "triad_avx512", "triad_stream_avx512"] {
        let Some(placed) = load(name) else { continue };
        let s = 1.5f32;
        for n in (0..150).chain([1000, 4099]) {
            for (shift, chunk) in [(0, n.max(1)), (1, n.max(1)), (3, 37), (0, 64)] {
                let (mut a, mut b, mut c) = (vec![f32::NAN; n + 4], ramp(n + 4, 1), ramp(n + 4, 2));
                let pointers = [address(&mut a[shift..]), address(&mut b[1..]), address(&mut c[2..])];
                let args = [pointers[0], pointers[1], pointers[2], u64::from(s.to_bits()), n as u64, chunk as u64];
                // SAFETY: the kernel touches n floats from each pointer; each vector has that many from there. One tid
                // too many runs and must do nothing.
                (0..=n.div_ceil(chunk)).for_each(|tid| unsafe { placed.call(name, &args, tid as u64) });
                for i in 0..n {
                    let want = s.mul_add(c[i + 2], b[i + 1]);
                    assert_eq!(
                        a[shift + i].to_bits(),
                        want.to_bits(),
                        "{name} n {n} shift {shift} chunk {chunk} at {i}"
                    );
                }
                assert!(a[..shift].iter().chain(&a[shift + n..]).all(|x| x.is_nan()), "{name} n {n} wrote outside");
            }
        }
    }
}

#[test]
fn gemm_micro_adds_the_product_of_the_panels_to_each_tile() {
    let kernels =
        [("gemm_micro_6x16_avx2", 6, 16), ("gemm_micro_8x48_avx512", 8, 48), ("gemm_micro_14x32_avx512", 14, 32)];
    for (name, rows, columns) in kernels {
        let Some(placed) = load(name) else { continue };
        for (k, ldc) in [(0, columns), (1, columns), (5, columns + 3), (256, columns + 16)] {
            let tiles = 3;
            let (mut a, mut b) = (ramp(tiles * rows * k, 3), ramp(columns * k, 4));
            let mut c = ramp(tiles * rows * ldc, 5);
            let before = c.clone();
            let args = [address(&mut a), address(&mut b), address(&mut c), k as u64, ldc as u64];
            // SAFETY: panels and C have exactly the sizes that `tiles` tids of the kernel use.
            (0..tiles).for_each(|tid| unsafe { placed.call(name, &args, tid as u64) });
            for (i, got) in c.iter().enumerate() {
                let (row, column) = (i / ldc, i % ldc);
                let (tile, r) = (row / rows, row % rows);
                let product = |acc: f32, step: usize| {
                    a[tile * rows * k + step * rows + r].mul_add(b[step * columns + column], acc)
                };
                let want = if column < columns { before[i] + (0..k).fold(0.0, product) } else { before[i] };
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{name} k {k} ldc {ldc} row {row} column {column}: {got} {want}"
                );
            }
        }
    }
}
