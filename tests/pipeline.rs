//! Tensor programs through the scheduler and codegen, executed by the reference interpreters at each stage and compared
//! with the tensor graph's own value: what a device is given is right before a device is involved.

use doorbell::codegen::target::Grid;
use doorbell::codegen::{OptChoice, Target};
use doorbell::engine::interp::{HostMemory, Mode, Value, eval_with};
use doorbell::schedule::{ScheduleCache, schedule};
use doorbell::tensor::HostBytes;
use doorbell::tensor::prelude::*;
use doorbell::uop::BufferRef;

fn avx512() -> Target {
    Target {
        name: "x86_64-avx512",
        vector_bytes: 64,
        vector_regs: 32,
        threads: 2,
        local_bytes: 1 << 18,
        ..Target::null()
    }
}
fn avx2() -> Target {
    Target { name: "x86_64-avx2", vector_bytes: 32, vector_regs: 16, ..avx512() }
}
fn gpu() -> Target {
    Target::gpu("gpu", Grid::amd(32))
}

fn host(b: &BufferRef) -> Option<Vec<u8>> {
    Some(b.memory.get()?.downcast_ref::<HostBytes>()?.0.clone())
}

fn close(got: &Value, want: &Value) -> bool {
    got.shape == want.shape
        && got.dtype == want.dtype
        && got
            .to_f64()
            .iter()
            .zip(want.to_f64())
            .all(|(g, w)| (g.is_nan() && w.is_nan()) || *g == w || (g - w).abs() <= 1e-5 + 2e-5 * w.abs().max(g.abs()))
}

/// Every stage gives the tensor graph's value; returns the number of kernels.
fn check(name: &str, make: impl Fn() -> Vec<Tensor>) -> usize {
    let modes = [
        ("graph", Mode::Graph),
        ("noopt", Mode::Program(avx512(), OptChoice::None)),
        ("avx512", Mode::Program(avx512(), OptChoice::Heuristic)),
        ("avx2", Mode::Program(avx2(), OptChoice::Heuristic)),
        ("gpu noopt", Mode::Program(gpu(), OptChoice::None)),
        ("gpu", Mode::Program(gpu(), OptChoice::Heuristic)),
    ];
    let mut kernels = 0;
    let roots: Vec<Tensor> = make().into_iter().map(|t| t.contiguous()).collect();
    let nodes: Vec<_> = roots.iter().map(|t| t.uop().unwrap()).collect();
    let want: Vec<Value> = nodes.iter().map(|u| eval_with(u, &host).unwrap()).collect();
    let with_device: Vec<_> = nodes.iter().map(|u| (u.clone(), "CPU".into())).collect();
    for (mode_name, mode) in modes {
        let s = schedule(&with_device, &ScheduleCache::default()).unwrap();
        kernels = s.kernel_count();
        let mut mem = HostMemory::default();
        mem.run(&s, &mode).unwrap_or_else(|e| panic!("{name} in {mode_name}: {e}"));
        for (k, w) in want.iter().enumerate() {
            let got = mem.value(&s.outputs[k].view).unwrap();
            assert!(
                close(&got, w),
                "{name} in {mode_name}: output {k}\n got {:?}\nwant {:?}",
                got.to_f64(),
                w.to_f64()
            );
        }
    }
    kernels
}

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&data, shape)
}

#[test]
fn elementwise_chains_and_broadcasts_are_one_kernel() {
    assert_eq!(check("fma", || vec![&ramp(&[33, 5]) * &ramp(&[5]) + 1.0]), 1);
    assert_eq!(check("relu of padded", || vec![ramp(&[7, 3]).pad(&[(1, 2), (0, 1)]).relu()]), 1);
    assert_eq!(check("transposed", || vec![&ramp(&[17, 33]).permute([1, 0]) + &ramp(&[33, 17])]), 1);
}

#[test]
fn reductions_of_odd_sizes_match() {
    for (m, n) in [(1, 1), (3, 5), (17, 33), (2, 1025)] {
        check(&format!("sum rows {m}x{n}"), || vec![ramp(&[m, n]).sum(1)]);
        check(&format!("sum columns {m}x{n}"), || vec![ramp(&[m, n]).sum(0)]);
        check(&format!("max all {m}x{n}"), || vec![ramp(&[m, n]).max(())]);
        check(&format!("softmax {m}x{n}"), || vec![ramp(&[m, n]).softmax(-1)]);
    }
}

#[test]
fn products_and_windows_match() {
    for (m, k, n) in [(4, 4, 4), (5, 7, 3), (16, 32, 48), (33, 17, 20)] {
        check(&format!("matmul {m}x{k}x{n}"), || vec![ramp(&[m, k]).matmul(&ramp(&[k, n]))]);
    }
    check("conv2d", || vec![ramp(&[2, 3, 8, 8]).conv2d(&ramp(&[4, 3, 3, 3]), None, Conv::padded(1)).relu()]);
    check("max_pool2d", || vec![ramp(&[2, 3, 8, 8]).max_pool2d(Pool::square(2))]);
    check("cumsum", || vec![ramp(&[5, 40]).cumsum(1)]);
}

#[test]
fn a_training_step_of_a_small_network_matches() {
    check("mlp gradients", || {
        let (x, w1, w2) = (ramp(&[16, 12]), ramp(&[12, 8]), ramp(&[8, 4]));
        let loss = x.matmul(&w1).relu().matmul(&w2).log_softmax(-1).mean(());
        let mut out = loss.gradient(&[&w1, &w2]);
        out.push(loss);
        out
    });
}
