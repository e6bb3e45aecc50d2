//! Tensor programs on software GPUs with all checks and without them: the same bits. Each way is a process of its own, as
//! a process has one software GPU of a name.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use doorbell::tensor::prelude::*;
use std::process::Command;

/// Set for a process that only computes and prints.
const PRINTS: &str = "EMU_PLAIN_PRINTS";

type Program = (&'static str, fn() -> Tensor);

/// Numbers from -0.5 to 0.5 without an order, by exact arithmetic.
fn numbers(shape: &[i64], seed: i64) -> Tensor {
    let count: i64 = shape.iter().product();
    let all = Tensor::arange(count).cast(Scalar::I32).add(seed).mul(7919).modulo(1009);
    all.cast(Scalar::F32).div(1009.0).sub(0.5).reshape(shape.to_vec()).contiguous()
}

/// Programs whose kernels differ: products in tiles, reductions, windows, integers, half types, masks.
const PROGRAMS: [Program; 10] = [
    ("product", || numbers(&[96, 80], 1).matmul(&numbers(&[80, 72], 2))),
    ("product of halves", || {
        let half = |t: Tensor| t.cast(Scalar::F16).contiguous();
        half(numbers(&[64, 64], 3)).matmul(&half(numbers(&[64, 64], 4))).cast(Scalar::F32)
    }),
    ("softmax", || numbers(&[33, 200], 5).mul(9.0).softmax(-1)),
    ("sums", || numbers(&[70, 130], 6).sum(0)),
    ("extremes", || numbers(&[50, 90], 7).max(1).add(&numbers(&[50, 90], 8).relu().sum(1))),
    ("scan", || numbers(&[3, 300], 9).cumsum(1)),
    ("integers", || {
        let a = Tensor::arange(1000).cast(Scalar::I32);
        a.mul(&a).add(77).div(&a.add(3)).cast(Scalar::F32)
    }),
    ("window", || numbers(&[2, 3, 20, 20], 10).conv2d(&numbers(&[4, 3, 3, 3], 11), None, Default::default())),
    ("attention", || {
        let of = |seed| numbers(&[1, 2, 64, 32], seed);
        of(12).attention(&of(13), &of(14), None, true)
    }),
    ("where", || {
        let x = numbers(&[4000], 15);
        x.gt(0.25).where_(&x.exp(), &x.abs().sqrt())
    }),
];

#[test]
fn prints_the_bits_of_all_programs() {
    if std::env::var(PRINTS).is_err() {
        return;
    }
    for (name, program) in PROGRAMS {
        let bits: Vec<u32> = program().to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
        let sum = bits.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, w| (h ^ u64::from(*w)).wrapping_mul(0x100_0000_01b3));
        println!("bits {name} {} {sum:016x}", bits.len());
    }
}

/// What a process prints that runs all programs on a device.
fn printed(device: &str, plain: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "prints_the_bits_of_all_programs", "--nocapture"]);
    let out = command.env(PRINTS, "1").env("DEV", device).env("EMU_PLAIN", plain).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{device}: {text}{}", String::from_utf8_lossy(&out.stderr));
    text.lines().filter_map(|line| Some(line[line.find("bits ")?..].to_owned())).collect()
}

#[test]
fn software_gpus_leave_the_same_bits_with_all_checks_and_without() {
    for device in ["NV:emu=sm_90", "AMD:emu=gfx1100", "AMD:emu=gfx942"] {
        let (strict, plain) = (printed(device, "0"), printed(device, "1"));
        assert_eq!(strict.len(), PROGRAMS.len(), "{device}: {strict:?}");
        assert_eq!(strict, plain, "{device}");
    }
}
