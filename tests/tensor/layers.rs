//! Layers, optimisers and state files.

use super::{close, eval, numbers, plain, values};
use doorbell::nn::optim::{Adam, AdamW, OptimError, Optimizer, Sgd};
use doorbell::nn::{BatchNorm, Conv2d, Embedding, GroupNorm, LayerNorm, Linear, Module, RMSNorm, StateDict, state};
use doorbell::tensor::prelude::*;

struct Net {
    conv: Conv2d,
    norm: BatchNorm,
    out: Linear,
}
doorbell::module!(Net { conv, norm, out });

fn net() -> Net {
    Net { conv: Conv2d::new(1, 2, 3, Conv::padded(1)), norm: BatchNorm::new(2), out: Linear::new(32, 3) }
}
impl Net {
    fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        self.out.forward(&self.norm.forward(&self.conv.forward(x), training).relu().flatten(1, -1))
    }
}

#[test]
fn modules_name_their_tensors() {
    let names: Vec<String> = net().state_dict().into_keys().collect();
    assert_eq!(
        names,
        [
            "conv.bias",
            "conv.weight",
            "norm.bias",
            "norm.running_mean",
            "norm.running_var",
            "norm.weight",
            "out.bias",
            "out.weight"
        ]
    );
    let list = vec![Linear::new(2, 2).without_bias(), Linear::new(2, 2)];
    assert_eq!(list.state_dict().into_keys().collect::<Vec<_>>(), ["0.weight", "1.bias", "1.weight"]);
    let net = net();
    assert_eq!((net.parameters().len(), net.buffers().len(), net.tensors().len()), (6, 2, 8));
    assert!(net.parameters().iter().all(Tensor::wants_grad));
}

#[test]
fn a_training_step_moves_every_parameter_and_the_statistics() {
    // f32 from the start: not every device has f64.
    let x: Vec<f32> = values(&numbers(&[4, 1, 4, 4], 1)).into_iter().map(|x| x as f32).collect();
    let (model, x) = (net(), Tensor::from_slice(&x, [4, 1, 4, 4]));
    let mut optim = Adam::new(model.parameters(), 0.01).unwrap();
    // From the device: other threads may have drawn from the same stream, whose counter the interpreter cannot read.
    let read = |t: &Tensor| -> Vec<f64> { t.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect() };
    let before: Vec<_> = model.tensors().iter().map(read).collect();
    let loss = model.forward(&x, true).sparse_categorical_crossentropy(&Tensor::new([0, 1, 2, 0]));
    loss.backward().unwrap();
    let touched = optim.schedule_step().unwrap();
    assert_eq!(touched.len(), 6 * 3 + 2 + 2 + 1);
    for (t, old) in model.tensors().iter().zip(&before) {
        assert!(read(t).iter().zip(old).any(|(a, b)| a != b));
    }
    // The first step of Adam is the learning rate, whatever the gradient's size.
    let w = read(&model.out.bias.clone().unwrap());
    let old = &before[7];
    close(&w.iter().zip(old).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>(), &[0.01; 3], 1e-4);
}

#[test]
fn batch_norm_uses_the_batch_in_training_and_the_running_statistics_outside() {
    let norm = BatchNorm::new(3);
    let x = numbers(&[4, 3, 2, 2], 5).mul(2).add(1).cast(Scalar::F32);
    let y = norm.forward(&x, true);
    close(&values(&y.mean([0, 2, 3])), &[0.0; 3], 1e-6);
    close(&values(&y.var([0, 2, 3], 0)), &[1.0; 3], 1e-4);
    let mean = values(&x.mean([0, 2, 3]));
    close(&values(norm.running_mean.as_ref().unwrap()), &mean.iter().map(|m| 0.1 * m).collect::<Vec<_>>(), 1e-6);
    let var = values(&x.var([0, 2, 3], 1));
    close(&values(norm.running_var.as_ref().unwrap()), &var.iter().map(|v| 0.9 + 0.1 * v).collect::<Vec<_>>(), 0.02);
    let still = norm.forward(&x, false);
    assert_ne!(values(&still), values(&y));
}

#[test]
fn normalising_and_embedding_layers_have_their_values() {
    let x = numbers(&[2, 4, 3], 6).cast(Scalar::F32);
    close(&values(&LayerNorm::new(&[4, 3]).forward(&x).mean([1, 2])), &[0.0; 2], 1e-6);
    close(&values(&LayerNorm::new(&[3]).without_weights().forward(&x).mean(2)), &[0.0; 8], 1e-6);
    close(&values(&RMSNorm::new(3).forward(&x).square().mean(2)), &[1.0; 8], 1e-4);
    let g = GroupNorm::new(2, 4).forward(&x);
    close(&values(&g.reshape([2, 2, 6]).mean(2)), &[0.0; 4], 1e-6);
    let e = Embedding::new(5, 3);
    let rows = eval(&e.forward(&Tensor::new([[4, 0]])));
    let table = values(&e.weight);
    assert_eq!(rows, (vec![1, 2, 3], [&table[12..15], &table[0..3]].concat()));
}

/// One parameter whose gradient is `g` at every step, moved `steps` times.
fn walk(mut optim: impl Optimizer, p: &Tensor, g: &[f64], steps: usize) -> Vec<f64> {
    for _ in 0..steps {
        p.set_grad(Some(Tensor::from_slice(&g.iter().map(|x| *x as f32).collect::<Vec<_>>(), [g.len()])));
        optim.schedule_step().unwrap();
    }
    values(p)
}
fn param() -> Tensor {
    Tensor::new([1.0f32, -2.0]).requires_grad()
}

#[test]
fn optimisers_follow_their_formulas() {
    let g = [0.5, -0.25];
    let start = [1.0, -2.0];
    let by_hand = |mut step: Box<dyn FnMut(usize, f64) -> f64>| -> Vec<f64> {
        (0..2).map(|k| (0..3).fold(start[k], |w, t| w - step(k * 3 + t, w))).collect()
    };
    let p = param();
    close(&walk(Sgd::new(std::slice::from_ref(&p), 0.1).unwrap(), &p, &g, 3), &[0.85, -1.925], 1e-6);
    let p = param();
    let mut v = [0.0; 2];
    let want = by_hand(Box::new(move |i, w| {
        let k = i / 3;
        let g = g[k] + 0.01 * w;
        v[k] = 0.9 * v[k] + g;
        0.1 * (g + 0.9 * v[k])
    }));
    close(
        &walk(Sgd::new(std::slice::from_ref(&p), 0.1).unwrap().momentum(0.9).nesterov().weight_decay(0.01), &p, &g, 3),
        &want,
        1e-6,
    );
    let adam = |decay: f64, decoupled: bool| {
        let (mut m, mut s) = ([0.0; 2], [0.0; 2]);
        by_hand(Box::new(move |i, w| {
            let (k, t) = (i / 3, (i % 3 + 1) as i32);
            let g = g[k] + if decoupled { 0.0 } else { decay * w };
            m[k] = 0.9 * m[k] + 0.1 * g;
            s[k] = 0.999 * s[k] + 0.001 * g * g;
            let up = m[k] / (1.0 - 0.9f64.powi(t)) / ((s[k] / (1.0 - 0.999f64.powi(t))).sqrt() + 1e-8);
            0.1 * (up + if decoupled { decay * w } else { 0.0 })
        }))
    };
    let p = param();
    close(
        &walk(Adam::new(std::slice::from_ref(&p), 0.1).unwrap().weight_decay(0.1), &p, &g, 3),
        &adam(0.1, false),
        1e-5,
    );
    let p = param();
    close(&walk(AdamW::new(std::slice::from_ref(&p), 0.1).unwrap(), &p, &g, 3), &adam(0.01, true), 1e-5);
}

#[test]
fn a_step_without_gradients_says_so_and_assigns_nothing() {
    let (a, b) = (param(), param());
    a.set_grad(Some(Tensor::ones([2])));
    let before = a.uop().unwrap();
    let error = Sgd::new(&[a.clone(), b], 0.1).unwrap().schedule_step().unwrap_err();
    assert_eq!(error, OptimError::NoGradient { parameter: "1".into(), count: 2 });
    assert_eq!(a.uop().unwrap(), before);
}

#[test]
fn parameters_without_axes_are_stepped_and_keep_their_shape() {
    type Maker = fn(&Tensor) -> Box<dyn Optimizer>;
    let makers: [Maker; 3] = [
        |p| Box::new(Sgd::new(std::slice::from_ref(p), 0.1).unwrap().momentum(0.9).nesterov()),
        |p| Box::new(Adam::new(std::slice::from_ref(p), 0.1).unwrap()),
        |p| Box::new(AdamW::new(std::slice::from_ref(p), 0.1).unwrap()),
    ];
    for make in makers {
        let (one, listed) = (Tensor::new(2.0f32).requires_grad(), Tensor::new([2.0f32]).requires_grad());
        let (mut a, mut b) = (make(&one), make(&listed));
        for _ in 0..3 {
            one.set_grad(Some(Tensor::new(0.5f32)));
            listed.set_grad(Some(Tensor::new([0.5f32])));
            a.schedule_step().unwrap();
            b.schedule_step().unwrap();
        }
        assert_eq!(eval(&one).0, Vec::<usize>::new());
        close(&values(&one), &values(&listed), 0.0);
    }
}

#[test]
fn a_step_that_cannot_be_made_assigns_nothing() {
    let (a, b) = (param(), param());
    a.set_grad(Some(Tensor::ones([2])));
    b.set_grad(Some(Tensor::ones([3])));
    let before = (a.uop().unwrap(), b.uop().unwrap());
    let mut optim = Sgd::new(&[a.clone(), b.clone()], 0.1).unwrap().momentum(0.9);
    let error = optim.schedule_step().unwrap_err();
    assert_eq!(error.to_string(), "optimiser: parameter 1 of shape (2,) has a gradient of shape (3,)");
    b.set_grad(Some(Tensor::ones([2])));
    optim.lr().replace(&Tensor::ones([2]));
    let error = optim.schedule_step().unwrap_err();
    assert_eq!(error.to_string(), "optimiser: the learning rate is no single number: its shape is (2,)");
    assert_eq!((a.uop().unwrap(), b.uop().unwrap()), before);
}

#[test]
fn halves_are_stepped_by_gradients_of_f32() {
    let p = Tensor::new([1.0f32, -2.0]).cast(Scalar::F16).requires_grad();
    let mut optim = Adam::new(std::slice::from_ref(&p), 0.1).unwrap();
    p.set_grad(Some(Tensor::new([0.5f32, -0.5])));
    optim.schedule_step().unwrap();
    assert_eq!(p.dtype().unwrap(), Scalar::F16);
    close(&values(&p), &[0.9, -1.9], 1e-3);
}

#[test]
fn parameters_of_another_device_are_stepped_there() {
    let start = Tensor::new([1.0f32, -2.0]).to("CPU:1").contiguous();
    start.realize().unwrap();
    for adam in [false, true] {
        let p = start.detach().contiguous().requires_grad();
        p.realize().unwrap();
        let list = std::slice::from_ref(&p);
        let mut optim: Box<dyn Optimizer> =
            if adam { Box::new(Adam::new(list, 0.5).unwrap()) } else { Box::new(Sgd::new(list, 0.5).unwrap()) };
        assert_eq!(&*optim.lr().device(), "CPU:1");
        p.set_grad(Some(Tensor::new([1.0f32, 1.0]).to("CPU:1")));
        Tensor::realize_all(&optim.schedule_step().unwrap()).unwrap();
        close(&p.to_f64().unwrap(), &[0.5, -2.5], 1e-5);
        assert_eq!(&*p.device(), "CPU:1");
    }
}

#[test]
fn state_goes_to_a_file_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.safetensors");
    let (a, b) = (net(), net());
    state::save(&a.state_dict(), &path).unwrap();
    state::load_into(&b, &state::load(&path).unwrap()).unwrap();
    for (x, y) in a.tensors().iter().zip(b.tensors()) {
        assert_eq!(x.to_f64().unwrap(), y.to_f64().unwrap());
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn state_that_does_not_fit_is_refused_before_anything_changes() {
    let model = Linear::new(2, 3);
    let before = model.weight.uop().unwrap();
    let refused = |change: &dyn Fn(&mut doorbell::nn::StateDict)| {
        let mut dict = Linear::new(2, 3).state_dict();
        change(&mut dict);
        state::load_into(&model, &dict).unwrap_err().to_string()
    };
    let text = refused(&|d| {
        d.remove("bias");
    });
    assert_eq!(text, "tensor 'bias' is missing in the state; it has 'weight'");
    let text = refused(&|d| {
        d.insert("extra".into(), Tensor::ones([1]));
    });
    assert_eq!(text, "tensor 'extra' of the state is not in the module; it has 'bias', 'weight'");
    let text = refused(&|d| {
        d.insert("weight".into(), Tensor::ones([3, 4]));
    });
    assert_eq!(text, "tensor 'weight': (3, 4) f32 in the state, (3, 2) f32 in the module");
    let text = refused(&|d| {
        d.insert("weight".into(), Tensor::full([3, 2], 1));
    });
    assert_eq!(text, "tensor 'weight': (3, 2) i32 in the state, (3, 2) f32 in the module");
    assert_eq!(model.weight.uop().unwrap(), before);
}

#[test]
fn damaged_and_unwritable_files_are_errors_and_the_old_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.safetensors");
    let dict = Linear::new(2, 3).state_dict();
    state::save(&dict, &path).unwrap();
    let good = std::fs::read(&path).unwrap();
    let away = StateDict::from([("bias".to_string(), Tensor::new([0.0f32; 3]).to("GONE"))]);
    let error = state::save(&away, &path).unwrap_err().to_string();
    assert!(error.starts_with("tensor 'bias': its bytes could not be read: "), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), good);
    for cut in [0, 7, 40, good.len() - 1] {
        std::fs::write(&path, &good[..cut]).unwrap();
        let error = state::load(&path).unwrap_err().to_string();
        assert!(error.contains("s.safetensors"), "{error}");
    }
    let error = state::save(&dict, &dir.path().join("no/such/place")).unwrap_err().to_string();
    assert!(error.contains("no/such/place"), "{error}");
    let _ = plain(1, 1);
}
