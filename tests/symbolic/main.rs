//! Sizes that are variables: one kernel for all lengths, shown by the count of compiled kernels.

use doorbell::engine::{Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;

mod ops;
#[path = "../../examples/symbolic_mean.rs"]
mod symbolic_mean;

#[test]
fn the_example_of_the_symbolic_mean_runs() {
    // With a count of kernels of its own.
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    symbolic_mean::main().unwrap();
}

#[test]
fn random_numbers_of_a_symbolic_shape_are_the_first_of_the_largest() {
    let n = Variable::new("n_rand", 1, 8);
    let all = Generator::new(7).rand([8, 3]).to_vec::<f32>().unwrap();
    for len in [8i64, 1, 5] {
        let part = Generator::new(7).rand([Dim::from(n.bind(len)), Dim::Int(3)]);
        assert_eq!(part.to_vec::<f32>().unwrap(), all[..3 * len as usize], "length {len}");
    }
    for len in [8i64, 3] {
        let shape = || [Dim::from(n.bind(len))];
        let normal = Generator::new(7).randn(shape()).to_vec::<f32>().unwrap();
        assert!(normal.len() == len as usize && normal.iter().all(|x| x.is_finite() && x.abs() < 6.0), "{normal:?}");
        let ints = Generator::new(7).randint(shape(), 3, 6).to_vec::<i32>().unwrap();
        assert!(ints.len() == len as usize && ints.iter().all(|i| (3..6).contains(i)), "{ints:?}");
        let kept = Tensor::rand(shape()).dropout(0.5, true).to_vec::<f32>().unwrap();
        assert_eq!(kept.len(), len as usize);
    }
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    let (g, mut counts) = (Generator::new(1), Vec::new());
    for len in 1..=8 {
        let x = g.rand([Dim::from(n.bind(len))]);
        assert!((0.0..len as f64).contains(&x.sum(()).item().unwrap()));
        counts.push(s.counters.totals().compiled);
    }
    assert!(counts[1..].iter().all(|c| *c == counts[1]), "{counts:?}");
}

#[test]
fn a_symbolic_axis_is_rolled_by_less_than_its_least_size() {
    let base = Tensor::new([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let n = Variable::new("n_roll", 3, 6);
    for (len, shift) in [(6i64, 1i64), (4, 2), (3, 3), (5, -2), (6, 0)] {
        let x = base.shrink(&[(UOp::int(0), n.bind(len))]);
        let mut want: Vec<f32> = (1..=len).map(|k| k as f32).collect();
        want.rotate_right(shift.rem_euclid(len) as usize);
        assert_eq!(x.roll(shift, 0).to_vec::<f32>().unwrap(), want, "length {len} by {shift}");
    }
    let e = base.shrink(&[(UOp::int(0), n.bind(4))]).roll(4, 0).realize().unwrap_err().to_string();
    assert!(e.contains("a shift of 4 along an axis whose size n_roll[4] may be less"), "{e}");
}

const LAYERS: usize = 2;
const MOST: usize = 16;
const WIDTH: usize = 4;

/// One step of attention over everything before it, with the keys and values kept in memory.
fn step(cache: &Tensor, x: &Tensor, at: &UOp) -> Tensor {
    let mut x = x.clone();
    for layer in 0..LAYERS {
        let [k, v] = [1.5f32, 0.5].map(|w| &x * (w + layer as f32));
        let now = Tensor::stack(&[&k, &v], 0); // (2, 1, width)
        cache.set((layer, .., at.clone()..(at + 1)), &now);
        let seen = |which: usize| cache.get((layer, which, UOp::int(0)..(at + 1))); // (at + 1, width)
        let scores = (x.matmul(&seen(0).t()) * 0.5).softmax(-1);
        x = scores.matmul(&seen(1)) + &x;
    }
    x
}

/// The same by plain loops.
fn plain(steps: &[Vec<f32>]) -> Vec<f32> {
    let mut cache = vec![Vec::<(Vec<f32>, Vec<f32>)>::new(); LAYERS];
    let mut x = Vec::new();
    for input in steps {
        x = input.clone();
        for (layer, cache) in cache.iter_mut().enumerate() {
            let scaled = |w: f32| x.iter().map(|a| a * (w + layer as f32)).collect::<Vec<f32>>();
            cache.push((scaled(1.5), scaled(0.5)));
            let dot = |k: &[f32]| 0.5 * x.iter().zip(k).map(|(a, b)| a * b).sum::<f32>();
            let scores: Vec<f32> = cache.iter().map(|(k, _)| dot(k)).collect();
            let most = scores.iter().fold(f32::MIN, |m, s| m.max(*s));
            let weights: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
            let total: f32 = weights.iter().sum();
            let mixed = |d: usize| cache.iter().zip(&weights).map(|((_, v), w)| v[d] * w / total).sum::<f32>();
            x = (0..WIDTH).map(|d| mixed(d) + x[d]).collect();
        }
    }
    x
}

#[test]
fn a_kv_cache_grows_by_assignment_with_one_set_of_kernels_for_all_lengths() {
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    let position = Variable::new("position", 0, MOST as i64 - 1);
    // Memory that holds a value, and memory of its own: both are written in place.
    let (direct, recorded) =
        (Tensor::zeros([LAYERS, 2, MOST, WIDTH]).contiguous(), Tensor::empty([LAYERS, 2, MOST, WIDTH], Scalar::F32));
    direct.realize().unwrap();
    recorded.assign(&Tensor::zeros([LAYERS, 2, MOST, WIDTH])).realize().unwrap();
    let inside = recorded.clone();
    let mut jit = doorbell::Jit::new(move |(x, at): &(Tensor, UOp)| step(&inside, x, at));
    let (mut steps, mut counts) = (Vec::new(), Vec::new());
    for k in 0..MOST {
        let input: Vec<f32> = (0..WIDTH).map(|d| ((k * 7 + d * 3) % 5) as f32 * 0.2 - 0.3).collect();
        let x = Tensor::from_slice(&input, [1, WIDTH]);
        steps.push(input);
        let at = position.bind(k as i64);
        let want = plain(&steps);
        let outputs = [step(&direct, &x, &at), jit.call(&(x, at)).unwrap()];
        for (y, how) in outputs.iter().zip(["direct", "recorded"]) {
            for (g, w) in y.to_vec::<f32>().unwrap().iter().zip(&want) {
                assert!((g - w).abs() < 1e-5 + 1e-4 * w.abs(), "{how}, step {k}: {g} {w}");
            }
        }
        counts.push(s.counters.totals().compiled);
    }
    assert!(counts[1..].iter().all(|c| *c == counts[1]), "{counts:?}");
    assert!(jit.is_recorded());
}
