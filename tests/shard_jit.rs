//! Recorded functions over several devices: each call equals the function itself, and a replay is submissions alone.

use doorbell::Jit;
use doorbell::engine::{Error, session};
use doorbell::nn::optim::{Adam, Optimizer, Sgd};
use doorbell::tensor::prelude::*;

const TWO: &[&str] = &["CPU", "CPU:1"];
const FOUR: &[&str] = &["CPU", "CPU:1", "CPU:2", "CPU:3"];

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

fn near(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (k, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-5 + 1e-5 * w.abs(), "element {k}: {g}, wanted {w}");
    }
}

#[test]
fn a_recorded_function_of_sharded_inputs_is_the_function() {
    for (a, b) in [(Some(0), Some(0)), (Some(1), None), (None, Some(0))] {
        let f = |x: &Tensor, y: &Tensor| vec![x.matmul(&y.t()).softmax(0), (x + y).sum(0), x * 2.0];
        let mut recorded = Jit::new(|(x, y): &(Tensor, Tensor)| f(x, y));
        for step in 0..5 {
            let (x, y) = (values(&[8, 12], step), values(&[8, 12], 50 + step));
            let got = recorded.call(&(x.shard(FOUR, a), y.shard(FOUR, b))).unwrap();
            for (g, w) in got.iter().zip(f(&x, &y)) {
                near(&read(g), &read(&w));
            }
        }
        assert!(recorded.is_recorded());
    }
}

#[test]
fn a_replay_copies_between_devices_by_their_queues_alone() {
    let mut recorded = Jit::new(|x: &Tensor| x.square().sum(0));
    let inputs: Vec<Tensor> = (0..6).map(|k| values(&[8, 64], k).shard(FOUR, 0).realize().unwrap().clone()).collect();
    let s = session().unwrap();
    for (k, x) in inputs.iter().enumerate() {
        let before = s.counters.totals();
        let sums = recorded.call(x).unwrap();
        let after = s.counters.totals();
        assert_eq!(sums.devices().len(), 4);
        if k >= 2 {
            assert_eq!(after.host_copies, before.host_copies, "call {k}");
            assert!(after.copies > before.copies, "call {k}");
            assert_eq!(after.kernels - before.kernels, recorded.kernels().unwrap());
        }
        // Each device has the sum by itself.
        for d in FOUR {
            let want: Vec<f32> = read(&values(&[8, 64], k as u32).square().sum(0));
            near(&read(&sums.to(d)), &want);
        }
    }
}

#[test]
fn results_that_are_inputs_or_parts_of_them_are_those_of_the_call() {
    let mut recorded = Jit::new(|(x, y): &(Tensor, Tensor)| (x.clone(), y.t(), x + y));
    for step in 0..5 {
        let (x, y) = (values(&[4, 4], step).shard(TWO, 0), values(&[4, 4], 9 + step).shard(TWO, 0));
        x.realize().unwrap();
        let (same, turned, sum) = recorded.call(&(x.clone(), y.clone())).unwrap();
        assert_eq!(read(&same), read(&x));
        assert_eq!(read(&turned), read(&y.t()));
        near(&read(&sum), &read(&(&x + &y)));
    }
}

#[test]
fn a_result_may_be_the_next_input_and_inputs_may_be_assigned_to() {
    let mut recorded = Jit::new(|(x, step): &(Tensor, Tensor)| x + step);
    let mut x = values(&[8, 4], 1).shard(TWO, 0);
    let mut want = read(&x);
    for k in 0..6 {
        x = recorded.call(&(x, Tensor::full([8, 4], k as f32).shard(TWO, 0))).unwrap();
        want.iter_mut().for_each(|w| *w += k as f32);
        near(&read(&x), &want);
    }
    let mut doubled = Jit::new(|x: &Tensor| {
        x.assign(&(x * 2.0));
        vec![x.clone()]
    });
    let x = values(&[8, 4], 2).shard(TWO, 0).realize().unwrap().clone();
    let mut want = read(&x);
    for _ in 0..5 {
        doubled.call(&x).unwrap();
        want.iter_mut().for_each(|w| *w *= 2.0);
        near(&read(&x), &want);
    }
}

#[test]
fn another_layout_than_the_recorded_one_is_refused() {
    let mut recorded = Jit::new(|x: &Tensor| x.sum(0));
    let x = values(&[8, 4], 3);
    for _ in 0..3 {
        recorded.call(&x.shard(TWO, 0)).unwrap();
    }
    let refused =
        |x: Tensor, recorded: &mut Jit<_, Tensor, Tensor>| recorded.call(&x).map(drop).unwrap_err().to_string();
    assert_eq!(
        refused(x.shard(TWO, 1), &mut recorded),
        "jit: the input is on CPU, CPU:1 along axis 1, recorded on CPU, CPU:1 along axis 0"
    );
    assert!(refused(x.clone(), &mut recorded).contains("is on CPU, recorded on CPU, CPU:1 along axis 0"));
    assert!(refused(x.shard(FOUR, 0), &mut recorded).contains("CPU:3 along axis 0, recorded on"));
    recorded.call(&x.shard(TWO, 0)).unwrap();
    // One memory for two inputs, on each device.
    let mut two = Jit::new(|(x, y): &(Tensor, Tensor)| x + y);
    let s = x.shard(TWO, 0).realize().unwrap().clone();
    two.call(&(s.clone(), x.shard(TWO, 0))).unwrap();
    let same = two.call(&(s.clone(), s)).map(drop).unwrap_err().to_string();
    assert!(same.contains("input 0 on CPU and input 1 on CPU are the same buffer"), "{same}");
}

/// Losses of recorded or plain steps; parameters placed by `place`, rows by `rows`.
fn losses(place: impl Fn(&Tensor, usize), rows: impl Fn(Tensor) -> Tensor, adam: bool, recorded: bool) -> Vec<f32> {
    let params = [values(&[32, 16], 8), values(&[32], 9), values(&[8, 32], 10), values(&[8], 11)];
    let params: Vec<Tensor> =
        params.into_iter().map(|p| (p * 0.2).realize().unwrap().clone().requires_grad()).collect();
    params.iter().enumerate().for_each(|(k, p)| place(p, k));
    let mut optimizer: Box<dyn Optimizer> = match adam {
        true => Box::new(Adam::new(&params, 0.01).unwrap()),
        false => Box::new(Sgd::new(&params, 0.1).unwrap().momentum(0.9)),
    };
    let mut step = |(x, y): &(Tensor, Tensor)| -> Result<Vec<Tensor>, Error> {
        let h = x.linear(&params[0], Some(&params[1])).relu();
        let loss = h.linear(&params[2], Some(&params[3])).sparse_categorical_crossentropy(y);
        optimizer.zero_grad();
        loss.backward()?;
        let mut all = vec![loss];
        all.extend(optimizer.schedule_step()?);
        Ok(all)
    };
    let mut jit = Jit::new(|x: &(Tensor, Tensor)| step(x)).prune();
    let mut all = Vec::new();
    for k in 0..8 {
        if !recorded {
            jit.reset();
        }
        let y = rows(Tensor::arange(16).modulo(8).cast(Scalar::I32));
        let out = jit.call(&(rows(values(&[16, 16], 20 + k)), y)).unwrap_or_else(|e| panic!("{e}"));
        all.push(read(&out[0])[0]);
    }
    all
}

#[test]
fn recorded_training_over_several_devices_agrees_with_one_device() {
    for adam in [false, true] {
        let want = losses(|_, _| (), |x| x, adam, true);
        assert!(want[7] < want[0], "{want:?}");
        for devices in [TWO, FOUR] {
            let whole = |p: &Tensor, _: usize| {
                p.shard_(devices, None);
            };
            // The first layer by outputs, the second by inputs.
            let split = |p: &Tensor, k: usize| {
                p.shard_(devices, [Some(0), Some(0), Some(1), None][k]);
            };
            for recorded in [false, true] {
                let data = losses(whole, |x| x.shard(devices, 0), adam, recorded);
                let tensor = losses(split, |x| x.shard(devices, None), adam, recorded);
                for (k, w) in want.iter().enumerate() {
                    assert!((data[k] - w).abs() < 1e-4, "data parallel, adam {adam}: {data:?}, wanted {want:?}");
                    assert!((tensor[k] - w).abs() < 1e-4, "tensor parallel, adam {adam}: {tensor:?}, wanted {want:?}");
                }
            }
        }
    }
}

#[test]
fn tensors_on_several_devices_without_shards_are_recorded_too() {
    // A pipeline: the first layer on one device, the second on another.
    let (w0, w1) = (values(&[16, 8], 1), values(&[4, 16], 2).to("CPU:1"));
    let f = |x: &Tensor| x.linear(&w0, None).relu().to("CPU:1").linear(&w1, None).to("CPU:2").sum(1);
    let mut recorded = Jit::new(f);
    for step in 0..5 {
        let x = values(&[6, 8], 30 + step);
        let got = recorded.call(&x).unwrap();
        assert_eq!(&*got.device(), "CPU:2");
        let want = x.linear(&w0, None).relu().linear(&w1.to("CPU"), None).sum(1);
        near(&read(&got), &read(&want));
    }
}
