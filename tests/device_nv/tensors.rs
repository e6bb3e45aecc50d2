//! Tensor programs on the software GPU, from the graph to the numbers: PTX, ptxas's machine code, the driver's calls,
//! the emulated multiprocessors.

use doorbell::engine::{Jit, Options, install, session};
use doorbell::tensor::Tensor;
use doorbell::tensor::prelude::*;
use doorbell::uop::{Op, Scalar};

const NV: &str = "NV:emu=sm_90";

/// The session, with the assembler that `cargo xtask setup` has installed.
fn set_up() {
    let ptxas = concat!(env!("CARGO_MANIFEST_DIR"), "/target/nvidia/nvidia/cu13/bin/ptxas");
    let options = Options { ptxas: Some(ptxas.into()), ..Options::default() };
    install(options).unwrap();
}

fn on(device: &str, values: &[f32], shape: &[usize]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor::from_bytes(bytes, Scalar::F32, shape, device)
}

/// Sixteenths, whose sums are exact.
fn halves(device: &str, shape: &[usize]) -> Tensor {
    others(device, shape, 0)
}

/// The same in another order for every `round`.
fn others(device: &str, shape: &[usize], round: usize) -> Tensor {
    let value = |i: usize| half::f16::from_f32((((i + 7 * round) * 37 + 11) % 33) as f32 / 16.0 - 1.0);
    let bytes = (0..shape.iter().product()).flat_map(|i| value(i).to_le_bytes()).collect();
    Tensor::from_bytes(bytes, Scalar::F16, shape, device)
}

/// Of two matrices of such a type, the second by columns.
fn product_of(device: &str, t: Scalar, sum: Scalar) -> Tensor {
    let of = |shape: &[usize]| (on(device, &numbers(shape[0] * shape[1]), shape) * 8.0).cast(t);
    let [a, b] = [[1024, 256], [512, 256]].map(|shape| of(&shape));
    a.realize().unwrap();
    b.realize().unwrap();
    a.cast(sum).matmul(&b.cast(sum).t()).cast(Scalar::F32)
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect()
}

/// The program's numbers on the GPU and on the CPU.
fn agree(what: &str, program: impl Fn(&str) -> Tensor) {
    let [gpu, cpu] =
        [NV, "CPU"].map(|device| program(device).to_vec::<f32>().unwrap_or_else(|e| panic!("{what}: {e}")));
    assert_eq!(gpu.len(), cpu.len(), "{what}");
    for (n, (a, b)) in gpu.iter().zip(&cpu).enumerate() {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{what}: {n} is {a}, the CPU has {b}");
    }
}

#[test]
fn tensor_programs_give_the_numbers_of_the_cpu() {
    set_up();
    agree("sum of ones", |d| on(d, &[1.0; 10], &[10]).sum(()));
    agree("elementwise", |d| (on(d, &numbers(1000), &[1000]) * 2.0 + 1.0).relu());
    agree("exp and division", |d| {
        let x = on(d, &numbers(96), &[8, 12]);
        x.softmax(1)
    });
    agree("matmul", |d| on(d, &numbers(32 * 48), &[32, 48]).matmul(&on(d, &numbers(48 * 16), &[48, 16])));
    // On 132 multiprocessors this is for warpgroups.
    agree("matmul of halves", |d| {
        let [a, b] = [[1024, 128], [128, 512]].map(|shape| halves(d, &shape));
        a.matmul(&b).cast(Scalar::F32).relu()
    });
    // Its products are summed in whole numbers, those of fp8 in f32.
    agree("matmul of bytes", |d| product_of(d, Scalar::I8, Scalar::I32));
    agree("matmul of fp8", |d| product_of(d, Scalar::F8E4M3, Scalar::F32));
    let opts = |d: &str| {
        session().unwrap().compiled_kernels(d).iter().flat_map(|c| c.program.uops.clone()).collect::<Vec<_>>()
    };
    let units: Vec<String> = opts(NV).iter().filter(|u| u.op() == Op::Wmma).map(|u| format!("{:?}", u.arg())).collect();
    for unit in ["wgmma.mma_async.sync.aligned.m64n", "s32.s8.s8", "f32.e4m3.e4m3.f32"] {
        assert!(units.iter().any(|u| u.contains(unit)), "{unit} in {units:?}");
    }
    agree("reduce of many", |d| on(d, &numbers(20_000), &[20_000]).sum(()));
    agree("movement", |d| on(d, &numbers(60), &[3, 4, 5]).permute([2, 0, 1]).reshape([5, 12]) + 0.5);
    agree("maximum along an axis", |d| on(d, &numbers(300), &[20, 15]).max(1));
}

/// A product that is for warpgroups on 132 multiprocessors, with edges; its rows are 16 bytes' multiples apart.
const SIZES: [usize; 3] = [1016, 72, 512];

#[test]
fn a_replayed_product_takes_the_tensor_maps_of_whatever_buffers_it_is_given() {
    set_up();
    let [m, k, n] = SIZES;
    let mut product = Jit::new(|x: &[Tensor]| vec![x[0].matmul(&x[1]).cast(Scalar::F32)]);
    for call in 0..3 {
        // Of the replay one begins 32 bytes after another buffer's start.
        let skips = if call < 2 { [0, 0] } else { [16, 0] };
        let of = |device: &str| -> Vec<Tensor> {
            let one = |(which, (shape, skip)): (usize, ([usize; 2], usize))| {
                let len = shape[0] * shape[1];
                let all = others(device, &[len + skip], call + 5 * which);
                all.shrink(&[(skip, len + skip)]).reshape(shape)
            };
            [[m, k], [k, n]].into_iter().zip(skips).enumerate().map(one).collect()
        };
        let inputs = of(NV);
        for input in &inputs {
            input.realize().unwrap();
        }
        let got = product.call(&inputs).unwrap()[0].to_vec::<f32>().unwrap();
        let plain = of("CPU");
        let want = plain[0].matmul(&plain[1]).cast(Scalar::F32).to_vec::<f32>().unwrap();
        let wrong = got.iter().zip(&want).position(|(a, b)| (a - b).abs() > 1e-2 * b.abs().max(1.0));
        assert_eq!(wrong.map(|at| (at, got[at], want[at])), None, "call {call}");
        assert_eq!(product.is_recorded(), call >= 1);
    }
    let kernels = session().unwrap().compiled_kernels(NV);
    let with_maps = kernels.iter().filter(|c| !c.program.tensors.is_empty());
    assert!(with_maps.clone().count() >= 1, "{:?}", kernels.iter().map(|c| &c.program.opts).collect::<Vec<_>>());
    // An address and fifteen words for each of two matrices, at multiples of 64 in the bank.
    assert!(with_maps.clone().any(|c| c.program.tensors.len() == 2));
}
