//! Tensors over several devices: values, gradients and training agree with one device.

use doorbell::engine::{Options, Session};
use doorbell::nn::optim::{Adam, Optimizer, Sgd};
use doorbell::tensor::AllReduce;
use doorbell::tensor::prelude::*;

const TWO: &[&str] = &["CPU:0", "CPU:1"];
const FOUR: &[&str] = &["CPU:0", "CPU:1", "CPU:2", "CPU:3"];

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

/// # Panics
/// The two differ by more than f32 sums in another order.
fn near(got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape().unwrap(), want.shape().unwrap());
    for (k, (g, w)) in read(got).iter().zip(read(want)).enumerate() {
        assert!((g - w).abs() <= 1e-5 + 1e-5 * w.abs(), "element {k}: {g}, wanted {w}");
    }
}

#[test]
fn a_sharded_tensor_reads_as_it_was_along_each_axis_and_whole() {
    let x = values(&[8, 4, 12], 1);
    for devices in [TWO, FOUR] {
        for axis in [Some(0), Some(1), Some(2), Some(-1), None] {
            let s = x.shard(devices, axis);
            assert_eq!(s.devices().len(), devices.len());
            assert_eq!(read(&s), read(&x), "{axis:?}");
            s.realize().unwrap();
            assert_eq!(read(&s), read(&x), "{axis:?} in memory");
            assert_eq!(read(&s.to("CPU:1")), read(&x));
        }
    }
}

/// Each op on sharded sources beside the same op on one device.
fn operations(x: &Tensor, y: &Tensor) -> Vec<Tensor> {
    vec![
        x + y,
        (x * 2.0 - y).relu(),
        x.sum(()),
        x.sum(0),
        x.mean_keep([1]),
        x.max(0),
        x.max([0, 1]),
        x.std((), 1),
        x.softmax(-1),
        x.softmax(0),
        x.layernorm(-1, 1e-5),
        x.t(),
        x.t().contiguous() + y.t(),
        x.reshape([4, 2, 12]).sum(1),
        x.reshape([96]),
        x.reshape([2, 48]) + 1.0,
        x.flip([0]) + y,
        x.flip([1]),
        x.pad(&[(1, 1), (0, 0)]),
        x.pad(&[(0, 0), (2, 1)]),
        x.narrow(0, 2, 4),
        x.narrow(1, 3, 5),
        x.matmul(&y.t()),
        x.t().matmul(y),
        x.prod(0).detach(),
        x.cumsum(0),
        x.cumsum(1),
        x.argmax(1).cast(Scalar::F32),
        Tensor::cat(&[x, y], 0),
        Tensor::cat(&[x, y], 1),
        x.get(2),
        x + Tensor::arange(12),
        x + Tensor::arange(96).reshape([8, 12]),
        x.cross_entropy(&y.softmax(1)),
        x.repeat(&[2, 1]),
    ]
}

#[test]
fn operations_agree_whatever_the_layouts_of_their_sources() {
    let (x, y) = (values(&[8, 12], 2), values(&[8, 12], 3));
    let want = operations(&x, &y);
    for (a, b) in [(Some(0), Some(0)), (Some(0), Some(1)), (Some(1), None), (None, Some(0)), (None, None)] {
        let got = operations(&x.shard(FOUR, a), &y.shard(FOUR, b));
        for (k, (g, w)) in got.iter().zip(&want).enumerate() {
            println!("operation {k} over {a:?} and {b:?}");
            near(g, w);
        }
    }
}

#[test]
fn gradients_pass_to_sharded_tensors_and_through_the_sharding() {
    let (x, y) = (values(&[8, 12], 4), values(&[12, 4], 5));
    let want = x.matmul(&y).square().sum(()).gradient(&[&x, &y]);
    for (a, b) in [(Some(0), None), (Some(1), Some(0)), (None, Some(1))] {
        let (sx, sy) = (x.shard(TWO, a), y.shard(TWO, b));
        let loss = sx.matmul(&sy).square().sum(());
        for targets in [[&sx, &sy], [&x, &y]] {
            let got = loss.gradient(&targets);
            near(&got[0], &want[0]);
            near(&got[1], &want[1]);
        }
    }
}

#[test]
fn an_all_reduce_by_ring_is_that_by_tree() {
    let x = values(&[12, 5, 7], 6);
    let want: Vec<f32> = read(&x.sum(0));
    for all_reduce in [AllReduce::Ring, AllReduce::Tree, AllReduce::Auto] {
        let session = Session::open(Options { all_reduce, ..Options::default() }).unwrap();
        let _in_it = session.enter();
        for devices in [TWO, &FOUR[..3], FOUR] {
            let sum = values(&[12, 5, 7], 6).shard(devices, 0).sum(0);
            // Each device has the sum.
            sum.realize().unwrap();
            for d in devices {
                for (g, w) in read(&sum.to(d)).iter().zip(&want) {
                    assert!((g - w).abs() < 1e-5, "{all_reduce:?} on {d}: {g}, wanted {w}");
                }
            }
        }
    }
}

#[test]
fn an_assignment_keeps_the_layout_and_is_seen_by_all_handles() {
    let x = values(&[8, 6], 7).shard(TWO, 0).realize().unwrap().clone();
    let other = x.clone();
    let before = read(&x);
    x.assign(&(&x * 2.0)).realize().unwrap();
    let want: Vec<f32> = before.iter().map(|v| v * 2.0).collect();
    assert_eq!(read(&other), want);
    let zeros = x.zeros_like();
    zeros.assign(&(&zeros + &x)).realize().unwrap();
    assert_eq!(read(&zeros), want);
    zeros.assign(&(&zeros + &x)).realize().unwrap();
    assert_eq!(read(&zeros), want.iter().map(|v| v * 2.0).collect::<Vec<f32>>());
}

/// Losses of a few steps of a two-layer network, its parameters placed by `place`, its rows by `rows`.
fn losses(place: impl Fn(&Tensor, usize), rows: impl Fn(Tensor) -> Tensor, adam: bool) -> Vec<f32> {
    let params = [values(&[32, 16], 8), values(&[32], 9), values(&[8, 32], 10), values(&[8], 11)];
    let params: Vec<Tensor> =
        params.into_iter().map(|p| (p * 0.2).realize().unwrap().clone().requires_grad()).collect();
    params.iter().enumerate().for_each(|(k, p)| place(p, k));
    let mut optimizer: Box<dyn Optimizer> = match adam {
        true => Box::new(Adam::new(&params, 0.01).unwrap()),
        false => Box::new(Sgd::new(&params, 0.1).unwrap().momentum(0.9)),
    };
    (0..5)
        .map(|step| {
            let x = rows(values(&[16, 16], 20 + step));
            let y = rows(Tensor::arange(16).modulo(8).cast(Scalar::I32));
            let h = x.linear(&params[0], Some(&params[1])).relu();
            let loss = h.linear(&params[2], Some(&params[3])).sparse_categorical_crossentropy(&y);
            optimizer.zero_grad();
            loss.backward().unwrap();
            let mut all = optimizer.schedule_step().unwrap();
            all.push(loss.clone());
            Tensor::realize_all(&all).unwrap_or_else(|e| panic!("{e}"));
            read(&loss)[0]
        })
        .collect()
}

#[test]
fn data_parallel_and_tensor_parallel_training_agree_with_one_device() {
    for adam in [false, true] {
        let want = losses(|_, _| (), |x| x, adam);
        assert!(want[4] < want[0], "{want:?}");
        for devices in [TWO, FOUR] {
            let whole = |p: &Tensor, _: usize| {
                p.shard_(devices, None);
            };
            let data = losses(whole, |x| x.shard(devices, 0), adam);
            // The first layer by outputs, the second by inputs.
            let split = |p: &Tensor, k: usize| {
                p.shard_(devices, [Some(0), Some(0), Some(1), None][k]);
            };
            let tensor = losses(split, |x| x.shard(devices, None), adam);
            for (k, w) in want.iter().enumerate() {
                assert!((data[k] - w).abs() < 1e-4, "data parallel, adam {adam}: {data:?}, wanted {want:?}");
                assert!((tensor[k] - w).abs() < 1e-4, "tensor parallel, adam {adam}: {tensor:?}, wanted {want:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_a_clear_error() {
    let x = values(&[6, 4], 12);
    let text = |t: &Tensor| t.uop().map(|_| String::new()).unwrap_or_else(|e| e.to_string());
    assert!(text(&x.shard(&["CPU:0"], 0)).contains("1 devices"), "{}", text(&x.shard(&["CPU:0"], 0)));
    let here = |line: u32| format!("at tests/shard.rs:{line}:");
    for (devices, what) in [
        (["CPU:0", "CPU:0"], "device CPU:0 is named twice; of"),
        (["cpu", "CPU:0"], "device CPU:0 is named twice, as cpu too"),
        (["CPU:0", "AMD:1"], "CPU and AMD:1 are devices of different kinds"),
        (["CPU", "NV:emu=sm_90"], "CPU and NV:emu=sm_90 are devices of different kinds"),
        (["AMD:emu=gfx1100", "cuda:1"], "AMD:emu=gfx1100 and NV:1 are devices of different kinds"),
        (["CPU", ""], "\"\" is not the name of one device"),
        (["CPU", "CPU:1,CPU:2"], "is not the name of one device"),
    ] {
        let (line, got) = (line!(), text(&x.shard(&devices, 0)));
        assert!(got.contains(what) && got.contains(&here(line)), "{got}");
    }
    // Whether there is such a device is known once it is opened.
    for (devices, what) in [(["GPU", "GPU:1"], "unknown device \"GPU\", valid: CPU"), (["CPU", "CPU:99"], "\"CPU:99\"")]
    {
        let (line, sharded) = (line!(), x.shard(&devices, 0));
        let got = (sharded + 1.0).to_vec::<f32>().unwrap_err().to_string();
        assert!(got.contains(what) && got.contains("`shard`") && got.contains(&here(line)[3..]), "{got}");
    }
    assert!(text(&x.shard(FOUR, 0)).contains("axis 0 of size 6 has no 4 equal parts"), "{}", text(&x.shard(FOUR, 0)));
    assert!(text(&x.shard(TWO, 2)).contains("axis 2 is out of range for rank 2"));
    let (line, mixed) = (line!(), text(&(x.shard(TWO, 0) + &x)));
    assert!(mixed.contains("a value lies over CPU, CPU:1, another on CPU: `shard`"), "{mixed}");
    assert!(mixed.contains(&here(line)), "{mixed}");
    let other = text(&(x.shard(TWO, 0) + x.shard(&["CPU:2", "CPU:3"], 0)));
    assert!(other.contains("over CPU, CPU:1, another over CPU:2, CPU:3"), "{other}");
    // Named in another way, one device is one device.
    assert_eq!(read(&(x.to("cpu:0") + &x)), read(&(&x * 2.0)));
}

#[test]
fn what_is_made_like_a_sharded_tensor_is_sharded_like_it() {
    let x = values(&[8, 6], 13);
    for axis in [Some(0), Some(1), None] {
        let s = x.shard(TWO, axis);
        let like = x.shard_like(&(&s * 2.0));
        near(&(&like + &s), &(&x * 2.0));
        let memory = s.empty_like();
        memory.assign(&(&s + 1.0));
        near(&memory, &(&x + 1.0));
        assert_eq!(memory.devices(), s.devices());
        near(&(s.zeros_like() + &s), &x);
    }
    assert_eq!(&*x.shard(TWO, 0).shard_like(&x).device(), "CPU");
}

/// Random numbers of a Tensor and of the same one sharded, drawn after each other from one seed.
fn draws(place: impl Fn(Tensor) -> Tensor) -> Vec<Vec<f32>> {
    Tensor::manual_seed(7);
    let x = place(values(&[8, 12], 14));
    let mut all = vec![read(&x.rand_like()), read(&x.dropout(0.3, true)), read(&x.randn_like())];
    // In one graph with others, and of a value that is not memory.
    let y = (&x + 1.0).dropout(0.5, true) * x.rand_like();
    all.push(read(&y.sum(0)));
    all.push(read(&Tensor::rand([5])));
    all.push(read(&x.cast(Scalar::F16).dropout(0.5, true).cast(Scalar::F32)));
    all
}

#[test]
fn random_numbers_of_a_sharded_tensor_are_those_of_one_device() {
    let want = draws(|x| x);
    for devices in [TWO, FOUR] {
        for axis in [Some(0), Some(1), None] {
            let got = draws(|x| x.shard(devices, axis));
            for (k, (g, w)) in got.iter().zip(&want).enumerate() {
                // Sums are in another order.
                let close = |(g, w): (&f32, &f32)| if k == 3 { (g - w).abs() < 1e-5 } else { g == w };
                assert!(g.iter().zip(w).all(close), "draw {k} over {devices:?} along {axis:?}: {g:?}, wanted {w:?}");
            }
        }
    }
}

#[test]
fn values_of_constants_have_a_part_on_each_device() {
    let table = || (Tensor::arange(8).reshape([4, 2]).cast(Scalar::F32) * 1.5).contiguous();
    let sums = || Tensor::arange(4 * 300).reshape([4, 300]).cast(Scalar::F32).sum(1);
    let places = |t: &Tensor| -> Vec<String> {
        t.realize().unwrap();
        let parts = t.uop().unwrap().src().to_vec();
        parts.iter().map(|p| p.device().map_or_else(String::new, |d| d.to_string())).collect()
    };
    for axis in [Some(0), None] {
        for (t, want) in [
            (table().shard(TWO, axis), table()),
            (sums().shard(TWO, axis), sums()),
            (Tensor::zeros([4, 2]).shard(TWO, axis), Tensor::zeros([4, 2])),
            (Tensor::arange(4).shard(TWO, axis).cast(Scalar::F32), Tensor::arange(4).cast(Scalar::F32)),
        ] {
            assert_eq!(places(&t), ["CPU", "CPU:1"], "{axis:?}");
            assert_eq!(read(&t), read(&want), "{axis:?}");
        }
        let x = values(&[4, 2], 15);
        near(&(x.shard(TWO, axis) + table() * sums().unsqueeze(1)), &(&x + table() * sums().unsqueeze(1)));
    }
}
