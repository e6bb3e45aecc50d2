//! What only shows when a program runs on a device: assignment, counters that advance, training, recorded steps, files.

use super::{close, singles};
use doorbell::engine::Jit;
use doorbell::nn::optim::{Adam, Optimizer, Sgd};
use doorbell::nn::{BatchNorm, Linear, Module, state};
use doorbell::tensor::prelude::*;
use doorbell::tensor::slice;

fn run(t: &Tensor) -> Vec<f64> {
    t.to_f64().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn draws_of_a_seed_are_the_reference_stream_on_the_device() {
    let g = Generator::new(1337);
    let first = run(&g.rand([20]));
    close(&first[..3], &[0.45735931396484375, 0.6311527490615845, 0.15571284294128418], 0.0);
    let second = g.rand([20]);
    let third = g.rand([10]);
    // Computed out of order: each keeps its own numbers.
    close(&run(&third)[..2], &[0.3198714256286621, 0.7984923124313354], 0.0);
    close(&run(&second)[..2], &[0.09199333190917969, 0.9130761623382568], 0.0);
    close(&run(g.counter()), &[50.0], 0.0);
}

#[test]
fn memory_is_written_in_place_and_values_computed_with_it_are_the_old_ones() {
    let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]).contiguous();
    x.realize().unwrap();
    let before = &x * 10.0;
    x.assign(&(&x + 1.0));
    x.set(slice(0, 2, 1), &Tensor::full((), -1.0));
    x.set(&Tensor::new([3]), &Tensor::new([7.0f32]));
    Tensor::realize_all(&[x.clone(), before.clone()]).unwrap();
    close(&run(&x), &[-1.0, -1.0, 4.0, 7.0], 0.0);
    close(&run(&before), &[10.0, 20.0, 30.0, 40.0], 0.0);
    let cache = Tensor::empty([4, 2], Scalar::F32);
    cache.assign(&Tensor::zeros([4, 2]));
    let at = Variable::new("at", 0, 3);
    for k in 0..4i64 {
        let i = at.bind(k);
        cache.set((i, ..), &Tensor::full([2], k as f64 + 1.0));
        cache.realize().unwrap();
    }
    close(&run(&cache), &[1., 1., 2., 2., 3., 3., 4., 4.], 0.0);
}

struct Net {
    one: Linear,
    norm: BatchNorm,
    two: Linear,
}
doorbell::module!(Net { one, norm, two });
impl Net {
    fn new() -> Net {
        Net { one: Linear::new(4, 16), norm: BatchNorm::new(16), two: Linear::new(16, 3) }
    }
    fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        self.two.forward(&self.norm.forward(&self.one.forward(x), training).relu())
    }
}

fn examples() -> (Tensor, Tensor) {
    let x = singles(&[24, 4], 1);
    let y = x.get((.., 0..3)).argmax(1);
    x.realize().unwrap();
    y.realize().unwrap();
    (x, y)
}

#[test]
fn training_lowers_the_loss_and_moves_the_statistics() {
    let (x, y) = examples();
    let model = Net::new();
    Tensor::realize_all(&model.tensors()).unwrap();
    let mut optim = Adam::new(model.parameters(), 0.02).unwrap();
    let mut losses = Vec::new();
    for _ in 0..40 {
        optim.zero_grad();
        let loss = model.forward(&x, true).sparse_categorical_crossentropy(&y);
        loss.backward().unwrap();
        let mut all = optim.schedule_step().unwrap();
        all.push(loss.clone());
        Tensor::realize_all(&all).unwrap();
        losses.push(loss.item().unwrap());
    }
    assert!(losses[39] < 0.35 * losses[0], "{losses:?}");
    assert!(run(model.norm.running_var.as_ref().unwrap()).iter().any(|v| (v - 1.0).abs() > 0.1));
    let right = model.forward(&x, false).argmax(1).eq(&y).sum(()).item().unwrap();
    assert!(right >= 20.0, "{right}");
}

#[test]
fn a_recorded_step_trains_as_the_plain_one() {
    let (x, y) = examples();
    let train = |recorded: bool| {
        let model = Linear::new(4, 3);
        model.weight.assign(&singles(&[3, 4], 9));
        let bias = model.bias.clone().unwrap();
        bias.assign(&Tensor::zeros([3]));
        Tensor::realize_all(&model.tensors()).unwrap();
        let mut optim = Sgd::new(model.parameters(), 0.1).unwrap().momentum(0.9).nesterov();
        let w = model.weight.clone();
        let mut step = |x: &Tensor| {
            optim.zero_grad();
            let loss = model.forward(x).sparse_categorical_crossentropy(&y);
            loss.backward().unwrap();
            let mut all = optim.schedule_step().unwrap();
            all.push(loss.clone());
            Tensor::realize_all(&all).unwrap();
            loss
        };
        let mut losses = Vec::new();
        if recorded {
            let mut jit = Jit::new(|inputs: &[Tensor]| vec![step(&inputs[0])]);
            for _ in 0..6 {
                losses.push(jit.call(std::slice::from_ref(&x)).unwrap()[0].item().unwrap());
            }
            assert!(jit.is_recorded());
        } else {
            for _ in 0..6 {
                losses.push(step(&x).item().unwrap());
            }
        }
        (losses, run(&w))
    };
    let (plain, recorded) = (train(false), train(true));
    close(&recorded.0, &plain.0, 1e-6);
    close(&recorded.1, &plain.1, 1e-6);
}

#[test]
fn a_recorded_program_draws_fresh_numbers_at_each_replay() {
    let g = Generator::new(5);
    let drawn = g.clone();
    let mut jit = Jit::new(move |inputs: &[Tensor]| -> Result<Vec<Tensor>, doorbell::Error> {
        let y = &inputs[0] + drawn.rand([4]);
        y.realize()?;
        Ok(vec![y])
    });
    let zero = Tensor::zeros([4]).contiguous();
    zero.realize().unwrap();
    let seen: Vec<Vec<f64>> = (0..5).map(|_| run(&jit.call(std::slice::from_ref(&zero)).unwrap()[0])).collect();
    assert!(jit.is_recorded());
    let other = Generator::new(5);
    for v in &seen {
        assert_eq!(v, &run(&other.rand([4])));
    }
}

#[test]
fn state_is_saved_from_the_device_and_loaded_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let (a, b) = (Net::new(), Net::new());
    let (x, _) = examples();
    state::save(&a.state_dict(), &path).unwrap();
    state::load_into(&b, &state::load(&path).unwrap()).unwrap();
    assert_eq!(run(&a.forward(&x, false)), run(&b.forward(&x, false)));
}

#[test]
fn draws_of_several_threads_keep_their_numbers() {
    let g = Generator::new(77);
    let mut all: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let draw = || {
            let round = |_| {
                let lazy = g.rand([3]) * 2.0;
                let first = run(&lazy);
                assert_eq!(run(&lazy), first, "computed again");
                first
            };
            (0..12).map(round).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.dedup();
    assert_eq!(all.len(), 36, "no two draws are the same");
}

#[test]
fn faulty_tensors_are_refused_with_their_line() {
    let bad = Tensor::zeros([2]).add(&Tensor::zeros([3]));
    let line = line!() - 1;
    for error in [bad.realize().map(|_| ()).unwrap_err().to_string(), bad.to_vec::<f32>().unwrap_err().to_string()] {
        assert!(
            error.contains("add: shapes (2,) and (3,)") && error.contains(&format!("engine.rs:{line}:")),
            "{error}"
        );
    }
    assert!(Tensor::zeros([2]).item().is_err());
    assert!(Tensor::zeros([2]).to_vec::<i32>().is_err());
}
