//! Sharded Tensors over several software GPUs of either vendor: values and training agree with the CPU, and what the
//! devices pass to each other goes through their queues.
#![cfg(all(feature = "amd", feature = "nv", feature = "emu", target_os = "linux"))]

use doorbell::Jit;
use doorbell::engine::{Error, Options, Session};
use doorbell::nn::optim::{Optimizer, Sgd};
use doorbell::tensor::AllReduce;
use doorbell::tensor::prelude::*;

const AMD: &[&str] = &["AMD:emu=gfx1100", "AMD:1:emu=gfx1100", "AMD:2:emu=gfx1100", "AMD:3:emu=gfx1100"];
const NV: &[&str] = &["NV:emu=sm_90", "NV:1:emu=sm_90", "NV:2:emu=sm_90", "NV:3:emu=sm_90"];

/// Values without a pattern, as f32.
fn values(shape: &[usize], seed: u32) -> Tensor {
    let n: usize = shape.iter().product();
    let word = |k: usize| doorbell::uop::threefry2x32(u64::from(seed), k as u64) >> 40;
    let list: Vec<f32> = (0..n).map(|k| word(k) as f32 / (1u32 << 23) as f32 - 1.0).collect();
    Tensor::from_slice(&list, shape)
}

fn read(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap_or_else(|e| panic!("{e}"))
}

fn near(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (k, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-5 + 1e-5 * w.abs(), "{what}: element {k}: {g}, wanted {w}");
    }
}

/// How inputs are placed: an axis, or whole.
type Place<'a> = &'a dyn Fn(&Tensor, Option<i64>) -> Tensor;

/// An elementwise operation, a product, reductions, and what each collective is needed for.
fn operations(place: Place) -> Vec<(&'static str, Tensor)> {
    let (x, y, w) = (values(&[8, 12], 2), values(&[8, 12], 3), values(&[12, 8], 4));
    let rows = |t: &Tensor| place(t, Some(0));
    vec![
        ("elementwise", (rows(&x) * 2.0 - rows(&y)).relu()),
        ("matmul", rows(&x).matmul(&place(&w, None))),
        ("reduce", rows(&x).softmax(1)),
        ("all-reduce", rows(&x).square().sum(0)),
        ("all-reduce of the maximum", rows(&x).max(0)),
        ("all-gather", rows(&x).flip([0]) + 1.0),
        ("reduce-scatter", place(&x, Some(1)).matmul(&rows(&w)) + rows(&values(&[8, 8], 5))),
        ("all-to-all", rows(&x) + place(&y, Some(1))),
    ]
}

/// Losses of recorded steps of a two-layer network by data parallelism; host copies of the last one.
fn losses(place: Place) -> (Vec<f32>, u64) {
    let params = [values(&[16, 8], 8), values(&[16], 9), values(&[4, 16], 10)];
    let params: Vec<Tensor> = params.iter().map(|p| place(&(p * 0.3), None).requires_grad()).collect();
    Tensor::realize_all(&params).unwrap();
    let mut optimizer = Sgd::new(&params, 0.1).unwrap().momentum(0.9);
    let mut step = Jit::new(|(x, y): &(Tensor, Tensor)| -> Result<Vec<Tensor>, Error> {
        optimizer.zero_grad();
        let h = x.linear(&params[0], Some(&params[1])).relu();
        let loss = h.linear(&params[2], None).sparse_categorical_crossentropy(y);
        loss.backward()?;
        let mut all = vec![loss];
        all.extend(optimizer.schedule_step()?);
        Ok(all)
    });
    let s = doorbell::engine::session().unwrap();
    let (mut all, mut host_copies) = (Vec::new(), 0);
    for k in 0..4 {
        let x = place(&values(&[8, 8], 20 + k), Some(0));
        let y = place(&Tensor::from_slice(&[0i32, 1, 2, 3, 0, 1, 2, 3], [8]), Some(0));
        Tensor::realize_all(&[x.clone(), y.clone()]).unwrap();
        let before = s.counters.totals().host_copies;
        let out = step.call(&(x, y)).unwrap_or_else(|e| panic!("{e}"));
        host_copies = s.counters.totals().host_copies - before;
        all.push(read(&out[0])[0]);
    }
    assert!(step.is_recorded());
    (all, host_copies)
}

/// Operations and steps over these devices beside those of the CPU.
fn agrees_with_the_cpu(devices: &[&str]) {
    let cpu = Session::open(Options { device: "CPU".into(), ..Options::default() }).unwrap();
    let (want, want_losses) = {
        let _in_it = cpu.enter();
        let want: Vec<Vec<f32>> = operations(&|t, _| t.clone()).iter().map(|(_, t)| read(t)).collect();
        (want, losses(&|t, _| t.clone()).0)
    };
    for all_reduce in [AllReduce::Ring, AllReduce::Tree] {
        let options = Options { device: devices[0].into(), all_reduce, ..Options::default() };
        let session = Session::open(options).unwrap();
        let _in_it = session.enter();
        // Inputs are in memory before: what is counted then is what the devices do among themselves.
        let place = |t: &Tensor, axis: Option<i64>| t.shard(devices, axis).realize().unwrap().clone();
        for ((name, got), want) in operations(&place).iter().zip(&want) {
            let before = session.counters.totals();
            got.realize().unwrap_or_else(|e| panic!("{name}: {e}"));
            let after = session.counters.totals();
            assert_eq!(after.host_copies, before.host_copies, "{name} over {devices:?}");
            let passes = !["elementwise", "matmul", "reduce"].contains(name);
            assert_eq!(after.copies > before.copies, passes, "{name} over {devices:?}");
            near(&read(got), want, name);
        }
        if all_reduce == AllReduce::Ring {
            let (got, host_copies) = losses(&place);
            let close = got.iter().zip(&want_losses).all(|(g, w)| (g - w).abs() < 1e-4);
            assert!(close, "over {devices:?}: {got:?}, wanted {want_losses:?}");
            assert_eq!(host_copies, 0, "of a replay over {devices:?}");
        }
    }
}

#[test]
fn two_gpus_of_amd() {
    agrees_with_the_cpu(&AMD[..2]);
}

#[test]
fn four_gpus_of_amd() {
    agrees_with_the_cpu(AMD);
}

#[test]
fn two_gpus_of_nvidia() {
    agrees_with_the_cpu(&NV[..2]);
}

#[test]
fn four_gpus_of_nvidia() {
    agrees_with_the_cpu(NV);
}

#[test]
fn what_the_host_would_have_to_copy_is_not_recorded() {
    let mut recorded = Jit::new(|x: &Tensor| (x * 2.0).to("NV:1:emu=sm_80") + 1.0);
    let x = Tensor::new([1.0f32, 2.0]).to("CPU");
    assert_eq!(read(&recorded.call(&x).unwrap()), [3.0, 5.0]);
    let refused = recorded.call(&x).map(drop).unwrap_err().to_string();
    assert!(refused.contains("NV:1:emu=sm_80 cannot reach memory of CPU, so the host copies"), "{refused}");
}
