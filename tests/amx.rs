//! Products of bf16 on this machine's tile registers, against sums in f64 of the same rounded inputs.

use doorbell::codegen::{self, OptChoice};
use doorbell::isa::x86_64;
use doorbell::tensor::prelude::*;
use doorbell::uop::{AxisKind, DType, Op, UOp};

/// Values that bf16 holds exactly, and their products f32.
fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|k| ((k * 37 + seed * 11) % 33) as f32 / 8.0 - 2.0).collect()
}

fn tensor(data: &[f32], shape: [usize; 2]) -> Tensor {
    let t = Tensor::from_slice(data, shape).cast(Scalar::BF16);
    t.realize().unwrap();
    t
}

fn product(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] as f64 * b[l * n + j] as f64).sum();
    (0..m * n).map(|x| at(x / n, x % n)).collect()
}

#[track_caller]
fn close(got: &[f32], want: &[f64], relative: f64) {
    assert_eq!(got.len(), want.len());
    for (k, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((*g as f64 - w).abs() <= relative * w.abs().max(1.0), "element {k}: {g}, not {w}");
    }
}

#[test]
fn products_of_every_size_match_sums_in_f64() {
    for (m, n, k) in [(32, 32, 32), (64, 96, 128), (33, 47, 70), (16, 16, 1024), (130, 34, 33), (256, 256, 256)] {
        let (a, b) = (values(m * k, 1), values(k * n, 2));
        let c = tensor(&a, [m, k]).matmul(&tensor(&b, [k, n])).cast(Scalar::F32);
        // The result is rounded to bf16: 8 bits.
        close(&c.to_vec::<f32>().unwrap(), &product(&a, &b, (m, n, k)), 1.0 / 256.0);
    }
}

#[test]
fn transposed_operands_and_what_is_computed_from_a_product_match() {
    let (m, n, k) = (64, 80, 96);
    let (a, b) = (values(m * k, 3), values(k * n, 4));
    let want = product(&a, &b, (m, n, k));
    let bt: Vec<f32> = (0..n * k).map(|x| b[x % k * n + x / k]).collect();
    let c = tensor(&a, [m, k]).matmul(&tensor(&bt, [n, k]).t()).cast(Scalar::F32);
    close(&c.to_vec::<f32>().unwrap(), &want, 1.0 / 256.0);
    let at: Vec<f32> = (0..m * k).map(|x| a[x % m * k + x / m]).collect();
    let c = tensor(&at, [k, m]).t().matmul(&tensor(&b, [k, n])).cast(Scalar::F32);
    close(&c.to_vec::<f32>().unwrap(), &want, 1.0 / 256.0);
    let d = (&tensor(&a, [m, k]).matmul(&tensor(&b, [k, n])).cast(Scalar::F32) * 2.0).relu();
    let doubled: Vec<f64> = want.iter().map(|w| (2.0 * w).max(0.0)).collect();
    close(&d.to_vec::<f32>().unwrap(), &doubled, 1.0 / 128.0);
}

#[test]
fn batches_of_products_match() {
    let (batch, m, n, k) = (3, 48, 64, 64);
    let (a, b) = (values(batch * m * k, 5), values(batch * k * n, 6));
    let of = |x: &[f32], rows: usize, columns: usize| Tensor::from_slice(x, [batch, rows, columns]).cast(Scalar::BF16);
    let c = of(&a, m, k).matmul(&of(&b, k, n)).cast(Scalar::F32).to_vec::<f32>().unwrap();
    for (x, c) in c.chunks(m * n).enumerate() {
        close(c, &product(&a[x * m * k..], &b[x * k * n..], (m, n, k)), 1.0 / 256.0);
    }
}

fn half_matmul(m: i64, n: i64, k: i64) -> UOp {
    let (i, j) = (UOp::range(m, 0, AxisKind::Loop), UOp::range(n, 1, AxisKind::Loop));
    let l = UOp::range(k, 2, AxisKind::Reduce);
    let a = UOp::param(1, DType::BF16, (m * k) as usize).index(&(&(&i * k) + &l)).load().cast(DType::F32);
    let b = UOp::param(2, DType::BF16, (k * n) as usize).index(&(&(&l * n) + &j)).load().cast(DType::F32);
    let s = (&a * &b).reduce(Op::Add, &[l]);
    UOp::sink([UOp::param(0, DType::F32, (m * n) as usize).index(&(&(&i * n) + &j)).store(&s, &[i, j])])
}

#[test]
fn a_large_product_loads_tiles_where_they_lie_and_keeps_sums_in_registers() {
    let isa = x86_64::X86_64::with_tiles(1);
    let p = codegen::compile(&half_matmul(256, 256, 256), isa.target(), &OptChoice::Heuristic, false).unwrap();
    let text = x86_64::disassemble(&isa.object(&p).unwrap().text).unwrap();
    let count = |what: &str| text.matches(what).count();
    assert_eq!((count("ldtilecfg"), count("tilerelease")), (1, 1), "{text}");
    assert_eq!((count("tdpbf16ps"), count("tileloadd"), count("tilestored")), (4, 4, 4), "{:?}\n{text}", p.opts);
}

#[test]
fn without_tiles_the_same_product_uses_vectors() {
    let isa = x86_64::X86_64::new(x86_64::Arch::Avx512, 1);
    let p = codegen::compile(&half_matmul(64, 64, 64), isa.target(), &OptChoice::Heuristic, false).unwrap();
    assert!(!p.uops.iter().any(|u| u.op() == Op::Wmma));
}
