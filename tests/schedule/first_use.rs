//! Kernels that a new session launches for one call, with nothing computed before: what a user sees at the first use.

use doorbell::engine::{Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::uop::{BufferRef, DType, UOp};
use std::sync::Arc;

fn session() -> Arc<Session> {
    Session::open(Options { device: "CPU".into(), ..Options::default() }).unwrap()
}

/// Kernels launched for all of these together.
fn launched(made: impl FnOnce() -> Vec<Tensor>) -> u64 {
    let session = session();
    let _entered = session.enter();
    let roots = made();
    session.realize(&roots).unwrap();
    session.counters.totals().kernels
}

fn data(n: usize) -> Tensor {
    Tensor::new((0..n).map(|i| (i * 7919 % 1009) as f32 / 1009.0).collect::<Vec<_>>())
}

/// A call, how many kernels its first use may launch, and the call.
type Use = (&'static str, u64, Box<dyn FnOnce() -> Vec<Tensor>>);

#[test]
fn the_first_use_needs_no_more_kernels_than_its_goal() {
    let g = || Generator::new(42);
    let sizes = [1usize, 100, 5000, 200_000];
    let mut uses: Vec<Use> = Vec::new();
    for n in sizes {
        // One advances the new counter, one draws.
        uses.push(("rand", 2, Box::new(move || vec![g().rand(n)])));
        uses.push(("randn", 2, Box::new(move || vec![g().randn(n)])));
        uses.push(("uniform", 2, Box::new(move || vec![g().uniform(n, -1.0, 3.0)])));
        uses.push(("normal", 2, Box::new(move || vec![g().normal(n, -1.0, 3.0)])));
        uses.push(("randint", 2, Box::new(move || vec![g().randint(n, -3, 8)])));
        uses.push(("random_bits", 2, Box::new(move || vec![g().random_bits(n)])));
    }
    for n in [1000, 1 << 18, 3 << 18] {
        uses.push(("std", 2, Box::new(move || vec![data(n).std((), 1)])));
        uses.push(("var", 2, Box::new(move || vec![data(n).var((), 0)])));
        let pair = move |f: fn(&Tensor) -> (Tensor, Tensor)| {
            let (a, b) = f(&data(n));
            vec![a, b]
        };
        uses.push(("var_mean", 2, Box::new(move || pair(|x| x.var_mean((), 1)))));
        uses.push(("std_mean", 2, Box::new(move || pair(|x| x.std_mean((), 1)))));
    }
    let counted: Vec<_> = uses.into_iter().map(|(name, goal, made)| (name, goal, launched(made))).collect();
    for (name, goal, ours) in &counted {
        println!("{name:<12} ours {ours:>2}  goal {goal:>2}");
    }
    assert!(counted.iter().all(|(_, goal, ours)| ours <= goal), "{counted:?}");
}

/// Mean and variance (divided by n - 1) in f64.
fn moments(v: &[f32]) -> (f64, f64) {
    let n = v.len() as f64;
    let mean = v.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    (mean, v.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / (n - 1.0))
}

#[test]
fn a_variance_in_parts_is_that_of_f64_beside_a_large_mean_too() {
    let session = session();
    let _entered = session.enter();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // The last two: parts whose means differ, and a length without a divisor that is cut in no parts.
    for (n, offset, step) in [(1 << 18, 0.0, 0.0), (1 << 20, 1e4, 0.0), (300_000, -3e4, 1e-3), (262_147, 1e3, 0.0)] {
        let v: Vec<f32> = (0..n).map(|i| (offset + step * i as f64 + random() * 3.5) as f32).collect();
        let (mean, var) = moments(&v);
        let x = Tensor::new(v);
        let (got_var, got_mean) = x.var_mean((), 1);
        let far = |got: f64, want: f64| (got - want).abs() / want.abs();
        let (got_std, got_var, got_mean) =
            (x.std((), 1).item().unwrap(), got_var.item().unwrap(), got_mean.item().unwrap());
        assert!(far(got_var, var) < 2e-5, "{n} {offset}: {got_var}, f64 {var}");
        assert!(far(got_std, var.sqrt()) < 1e-5, "{n} {offset}: {got_std}, f64 {}", var.sqrt());
        assert!((got_mean - mean).abs() < 2e-6 * (1.0 + mean.abs()), "{n} {offset}: {got_mean}, f64 {mean}");
    }
    // Over some axes of many: a variance for each column.
    let (rows, columns) = (1 << 15, 8);
    let v: Vec<f32> = (0..rows * columns).map(|i| (1e3 * (i % columns) as f64 + random()) as f32).collect();
    let got = Tensor::new(v.clone()).reshape([rows, columns]).var(0, 1).to_vec::<f32>().unwrap();
    for (c, got) in got.iter().enumerate() {
        let column: Vec<f32> = v.iter().skip(c).step_by(columns).copied().collect();
        let want = moments(&column).1;
        assert!((f64::from(*got) - want).abs() < 1e-3 * want, "column {c}: {got}, f64 {want}");
    }
}

#[test]
fn the_gradient_of_a_variance_in_parts_is_that_of_the_definition() {
    let session = session();
    let _entered = session.enter();
    let n = 1 << 18;
    let x = data(n).requires_grad();
    let got = x.var((), 1).gradient(&[&x])[0].to_vec::<f32>().unwrap();
    let v = x.to_vec::<f32>().unwrap();
    let (mean, _) = moments(&v);
    for (got, x) in got.iter().zip(&v) {
        let want = 2.0 * (f64::from(*x) - mean) / (n as f64 - 1.0);
        assert!((f64::from(*got) - want).abs() < 1e-10, "{got}, f64 {want}");
    }
}

/// The kernels of a causal attention in half precision that a new session plans for a GPU that nothing runs on.
fn planned(device: &str, opens_first: bool) -> Vec<String> {
    let session = Session::open(Options { device: device.into(), ..Options::default() }).unwrap();
    let _entered = session.enter();
    if opens_first {
        session.device(device).unwrap();
    }
    let memory = || UOp::buffer(DType::F16, BufferRef::new(2 * 4 * 1024 * 64, device.into()));
    let [q, k, v] = [0, 1, 2].map(|_| Tensor::from(memory()).reshape([2, 4, 1024, 64]));
    let plan = q.attention(&k, &v, None, true).schedule().unwrap();
    plan.kernels().map(|kernel| kernel.to_string()).collect()
}

#[test]
fn the_first_graph_of_a_session_is_planned_for_its_device() {
    let devices = ["NULL:sm_90", "NULL:gfx1100", "CPU"];
    for device in devices {
        assert_eq!(planned(device, false).len(), planned(device, true).len(), "{device}");
    }
    // A GPU with matrix units has a kernel for all of it, one without them has not.
    assert_eq!(planned("NULL:sm_90", false).len(), 1);
    assert!(planned("NULL:gfx1100", false).len() > 1);
    // Names of one device have one plan.
    assert_eq!(planned("null:gfx1100", false).len(), planned("NULL:gfx1100", true).len());
}
