//! What things cost.

use crate::objc::clock;
use crate::seen::Seen;
use crate::work::{Bench, EXACT, launch};
use doorbell::device::{Command, Device};
use doorbell::hcq::signal::WaitBy;
use doorbell::tensor::prelude::*;
use hw_contact::{Failure, fail};
use std::time::{Duration, Instant};

const NOTHING: &str = "kernel void nothing(device float* x [[buffer(0)]]) { x[0] = 1.0f; }";

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

pub fn times(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let device = bench.device()?;
    let kernel = bench.kernel(&format!("{EXACT}{NOTHING}"), "nothing")?;
    let memory = bench.memory(&[0.0; 64])?;
    let one = launch(&kernel, &[&memory], [1; 3], [1; 3]);
    let count = if bench.is_quick() { 20 } else { 500 };
    for (how, by) in [("spinning", WaitBy::Spin), ("sleeping", WaitBy::Sleep)] {
        let mut all = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            let point = bench.submit(std::slice::from_ref(&one))?;
            point.wait_by(bench.patience(), by).map_err(fail)?;
            all.push(began.elapsed());
        }
        seen.note(format!("one launch, waited for by {how}: {:.1?} (median of {count})", median(all)));
    }
    let many: Vec<Command> = vec![one.clone(); 1000];
    bench.run(&many[..10])?;
    let began = Instant::now();
    let point = bench.submit(&many)?;
    let encoded = began.elapsed();
    device.wait(&point, bench.patience())?;
    let [encoded, all] = [encoded, began.elapsed()].map(|t| t.as_secs_f64() * 1e3);
    seen.note(format!("1000 launches at once: {encoded:.3} us each to encode and commit, {all:.3} us each in all"));
    clocks(bench, seen, &one)?;
    copies(bench, seen)?;
    product(bench, seen)
}

/// The GPU's times against the host's clock around them.
fn clocks(bench: &Bench, seen: &mut Seen, one: &Command) -> Result<(), Failure> {
    let stamp = bench.device()?.stamp()?;
    let before = clock();
    bench.run(&[one.clone().stamped(stamp.clone())])?;
    let after = clock();
    let (start, end) = stamp.times_ns();
    // A double of seconds has steps of a few hundred nanoseconds after a year.
    let is_inside = before <= start + 1000 && start <= end && end <= after + 1000;
    let us = |ns: u64| ns as f64 / 1e3;
    let text = format!(
        "the GPU's times lie {:.1} us after the host's before and {:.1} us before its after; the kernel took {:.1} us",
        us(start) - us(before),
        us(after) - us(end),
        us(end) - us(start)
    );
    seen.holds(is_inside, &text, "expected them between, on one clock");
    Ok(())
}

fn copies(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let len: u64 = if bench.is_quick() { 4 << 20 } else { 256 << 20 };
    let device = bench.device()?;
    let (to, from) = (device.alloc(len)?, device.alloc(len)?);
    let bytes = vec![7_u8; usize::try_from(len).map_err(fail)?];
    let rate = |time: Duration| len as f64 / time.as_secs_f64() / 1e9;
    device.copy_in(&from, 0, &bytes)?;
    let began = Instant::now();
    device.copy_in(&from, 0, &bytes)?;
    let host = rate(began.elapsed());
    let copy = Command::copy(to.at(0), from.at(0), len);
    bench.run(std::slice::from_ref(&copy))?;
    let began = Instant::now();
    bench.run(&[copy])?;
    let gpu = rate(began.elapsed());
    let mut last = [0; 1];
    device.copy_out(&to, len - 1, &mut last)?;
    seen.is("the last byte of a copy", last, [7]);
    seen.note(format!("{} MiB: host to buffer {host:.1} GB/s, buffer to buffer {gpu:.1} GB/s", len >> 20));
    Ok(())
}

fn product(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let session = super::tensors::session(bench)?;
    let _in_it = session.enter();
    let n: usize = if bench.is_quick() { 64 } else { 2048 };
    let x = Tensor::from_slice(&vec![0.5_f32; n * n], [n, n]);
    x.realize().map_err(fail)?;
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let began = Instant::now();
        let last = x.matmul(&x).to_vec::<f32>().map_err(fail)?;
        best = best.min(began.elapsed());
        if last.iter().any(|v| *v != n as f32 / 4.0) {
            return Err(format!("a product of {n}x{n} matrices is wrong").into());
        }
    }
    let rate = 2.0 * (n as f64).powi(3) / best.as_secs_f64() / 1e9;
    seen.note(format!("a product of {n}x{n} matrices of f32, with the result copied out: {rate:.1} GFLOPS"));
    Ok(())
}
