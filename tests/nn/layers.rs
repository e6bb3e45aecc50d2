//! Each layer with PyTorch's weights under PyTorch's names: outputs, gradients of inputs and parameters, statistics.

use super::{cases, flag, near, number, size, sizes, tensor, tensors};
use doorbell::nn::state::load_into;
use doorbell::nn::{
    BatchNorm, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding, GRU, GRUCell,
    GroupNorm, InstanceNorm, LSTM, LSTMCell, LayerNorm, LayerNorm2d, Linear, Module, MultiHeadAttention, RMSNorm,
    Recurrent, StateDict,
};
use doorbell::tensor::prelude::*;
use serde_json::Value;

type Forward<'a> = Box<dyn FnOnce(&[Tensor]) -> Vec<Tensor> + 'a>;

/// A layer as the parameters describe it, with its forward pass.
struct Made {
    module: Box<dyn Module>,
    forward: Forward<'static>,
}

fn made<M: Module + Clone + 'static>(m: M, f: impl FnOnce(&M, &[Tensor]) -> Vec<Tensor> + 'static) -> Made {
    let held = m.clone();
    Made { module: Box::new(m), forward: Box::new(move |x| f(&held, x)) }
}

fn norms(op: &str, p: &Value, train: bool) -> Option<Made> {
    let affine = flag(p, "affine", true);
    let channels = || size(p, "channels");
    Some(match op {
        "batchnorm" => {
            let mut m = BatchNorm::new(channels()).eps(number(p, "eps", 1e-5)).momentum(number(p, "momentum", 0.1));
            if !affine {
                m = m.without_weights();
            }
            if !flag(p, "track", true) {
                m = m.without_running_stats();
            }
            if flag(p, "cumulative", false) {
                m = m.cumulative();
            }
            made(m, move |m, x| vec![m.forward(&x[0], train)])
        }
        "groupnorm" => {
            let m = GroupNorm::new(size(p, "groups"), channels());
            made(if affine { m } else { m.without_weights() }, |m, x| vec![m.forward(&x[0])])
        }
        "instancenorm" => {
            let m = InstanceNorm::new(channels());
            made(if affine { m } else { m.without_weights() }, |m, x| vec![m.forward(&x[0])])
        }
        "layernorm" => {
            let m = LayerNorm::new(&sizes(p, "shape")).eps(number(p, "eps", 1e-5));
            made(if affine { m } else { m.without_weights() }, |m, x| vec![m.forward(&x[0])])
        }
        "layernorm2d" => {
            let m = LayerNorm2d::new(channels());
            made(if affine { m } else { m.without_weights() }, |m, x| vec![m.forward(&x[0])])
        }
        "rmsnorm" => {
            let m = RMSNorm::new(size(p, "size"));
            made(if affine { m } else { m.without_weights() }, |m, x| vec![m.forward(&x[0])])
        }
        _ => return None,
    })
}

fn pair(x: &[Tensor]) -> Option<(Tensor, Tensor)> {
    x.get(1).map(|h| (h.clone(), x[2].clone()))
}

fn recurrent(op: &str, p: &Value) -> Option<Made> {
    let bias = flag(p, "bias", true);
    let how = Recurrent {
        layers: p["num_layers"].as_u64().unwrap_or(1) as usize,
        bias,
        batch_first: flag(p, "batch_first", false),
        bidirectional: flag(p, "bidirectional", false),
    };
    let shape = || (sizes(p, "sizes")[0], sizes(p, "sizes")[1]);
    Some(match op {
        "lstmcell" => {
            let m = LSTMCell::new(shape().0, shape().1);
            made(if bias { m } else { m.without_bias() }, |m, x| {
                let (h, c) = m.forward(&x[0], pair(x).as_ref());
                vec![h, c]
            })
        }
        "grucell" => {
            let m = GRUCell::new(shape().0, shape().1);
            made(if bias { m } else { m.without_bias() }, |m, x| vec![m.forward(&x[0], x.get(1))])
        }
        "lstm" => made(LSTM::new(shape().0, shape().1, how), |m, x| {
            let (y, (h, c)) = m.forward(&x[0], pair(x).as_ref());
            vec![y, h, c]
        }),
        "gru" => made(GRU::new(shape().0, shape().1, how), |m, x| {
            let (y, h) = m.forward(&x[0], x.get(1));
            vec![y, h]
        }),
        _ => return None,
    })
}

/// One of six layers, by op and number of axes.
fn convolution(op: &str, p: &Value, bias: bool) -> Made {
    let kernel = sizes(p, "kernel");
    let list = |key: &str, other: usize| p[key].as_array().map_or(vec![other; kernel.len()], |_| sizes(p, key));
    let padding: Vec<i64> = list("padding", 0).iter().map(|n| *n as i64).collect();
    let how = Conv::padded(&padding[..])
        .strided(&list("stride", 1))
        .dilated(&list("dilation", 1))
        .output_padded(&list("output_padding", 0))
        .grouped(p["groups"].as_u64().unwrap_or(1) as usize);
    let (inputs, outputs) = (sizes(p, "sizes")[0], sizes(p, "sizes")[1]);
    macro_rules! of {
        ($layer:ident) => {{
            let m = $layer::new(inputs, outputs, &kernel, how);
            made(if bias { m } else { m.without_bias() }, |m, x| vec![m.forward(&x[0])])
        }};
    }
    match (op, kernel.len()) {
        ("conv", 1) => of!(Conv1d),
        ("conv", 2) => of!(Conv2d),
        ("conv", _) => of!(Conv3d),
        (_, 1) => of!(ConvTranspose1d),
        (_, 2) => of!(ConvTranspose2d),
        _ => of!(ConvTranspose3d),
    }
}

fn layer(op: &str, p: &Value, train: bool) -> Option<Made> {
    let bias = flag(p, "bias", true);
    let shape = || (sizes(p, "sizes")[0], sizes(p, "sizes")[1]);
    Some(match op {
        "linear" => {
            let m = Linear::new(shape().0, shape().1);
            made(if bias { m } else { m.without_bias() }, |m, x| vec![m.forward(&x[0])])
        }
        "embedding" => made(Embedding::new(shape().0, shape().1), |m, x| vec![m.forward(&x[0])]),
        "attention" => {
            let (m, causal) = (MultiHeadAttention::new(size(p, "size"), size(p, "heads")), flag(p, "causal", false));
            let m = if bias { m } else { m.without_bias() };
            made(m, move |m, x| vec![m.forward(&x[0], &x[1], &x[2], x.get(3).filter(|_| !causal), causal)])
        }
        "conv" | "conv_transpose" => return Some(convolution(op, p, bias)),
        _ => return norms(op, p, train).or_else(|| recurrent(op, p)),
    })
}

/// Runs one case.
fn check(case: &Value, made: Made) {
    let name = case["name"].as_str().unwrap();
    let state: StateDict = case["state"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), tensor(v))).collect();
    load_into(&*made.module, &state).unwrap_or_else(|e| panic!("{name}: {e}"));
    let inputs = tensors(&case["in"]);
    let out = (made.forward)(&inputs);
    let wanted = case["out"].as_array().unwrap();
    assert_eq!(out.len(), wanted.len(), "{name}");
    let weighted = out.iter().zip(tensors(&case["of"])).map(|(o, w)| (o * &w).sum(()));
    let loss = weighted.reduce(|a, b| a + b).unwrap();
    let dict = made.module.state_dict();
    let mut targets: Vec<(String, Tensor, &Value)> = Vec::new();
    for (k, wanted) in case["grad_in"].as_array().unwrap().iter().enumerate().filter(|(_, w)| !w.is_null()) {
        targets.push((format!("gradient of input {k}"), inputs[k].clone(), wanted));
    }
    for (key, wanted) in case["grad_state"].as_object().unwrap() {
        targets.push((format!("gradient of {key}"), dict[key].clone(), wanted));
    }
    let of: Vec<&Tensor> = targets.iter().map(|(_, t, _)| t).collect();
    let grads = loss.gradient(&of);
    for (k, (found, wanted)) in out.iter().zip(wanted).enumerate() {
        near(&format!("{name}: output {k}"), found, wanted, 2e-6);
    }
    for ((what, _, wanted), found) in targets.iter().zip(&grads) {
        near(&format!("{name}: {what}"), found, wanted, 1e-4);
    }
    for (key, wanted) in case["after"].as_object().unwrap() {
        // PyTorch counts batches in any batch norm.
        if let Some(found) = dict.get(key) {
            near(&format!("{name}: {key} afterwards"), found, wanted, 1e-6);
        }
    }
}

#[test]
fn layers_have_pytorchs_outputs_gradients_and_statistics() {
    let mut count = 0;
    for case in cases(include_bytes!("../data/nn/layers.jsonl.gz")) {
        let op = case["op"].as_str().unwrap();
        let made = layer(op, &case["params"], case["train"].as_bool().unwrap());
        check(&case, made.unwrap_or_else(|| panic!("{op}")));
        count += 1;
    }
    assert_eq!(count, 102);
}

#[test]
fn heads_that_share_keys_are_heads_with_equal_keys() {
    let (grouped, full) = (MultiHeadAttention::grouped(8, 4, 2), MultiHeadAttention::new(8, 4));
    full.out_proj.weight.assign(&grouped.out_proj.weight);
    let rows = |from: usize, count: usize| grouped.in_proj_weight.narrow(0, from, count);
    // Two numbers a head; the two heads of keys (values) are each used by two heads of queries.
    let twice = |t: Tensor| t.unflatten(0, [2, 2]).repeat_interleave(2, 0).flatten(0, 1);
    let all = Tensor::cat(&[&rows(0, 8), &twice(rows(8, 4)), &twice(rows(12, 4))], 0);
    full.in_proj_weight.assign(&all);
    let x = Tensor::randn([2, 5, 8]);
    let other = Tensor::randn([2, 3, 8]);
    for (key, causal) in [(&x, true), (&x, false), (&other, false)] {
        let a = grouped.forward(&x, key, key, None, causal).to_vec::<f32>().unwrap();
        let b = full.forward(&x, key, key, None, causal).to_vec::<f32>().unwrap();
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?} {b:?}");
    }
}

#[test]
fn the_training_scope_is_the_threads_and_ends() {
    use doorbell::nn::{Dropout, Layer, evaluating, is_training, training};
    let (drop, norm) = (Dropout::new(0.5), BatchNorm::new(2));
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 6.0]]);
    let same = |a: &Tensor, b: &Tensor| a.to_f64().unwrap() == b.to_f64().unwrap();
    assert!(same(&norm.call(&x), &norm.forward(&x, false)) && drop.call(&x).is(&drop.call(&x)) || !is_training());
    Tensor::train(|| {
        assert!(is_training() && !std::thread::spawn(is_training).join().unwrap());
        assert!(!same(&norm.call(&x), &norm.forward(&x, false)));
        {
            let _inner = evaluating();
            assert!(same(&Layer::call(&norm, &x), &norm.forward(&x, false)));
        }
        assert!(Tensor::is_training());
    });
    let panicked = std::panic::catch_unwind(|| {
        let _mode = training();
        panic!("within");
    });
    assert!(panicked.is_err() && !is_training());
}

#[test]
fn attention_drops_weights_in_training_alone() {
    let m = MultiHeadAttention::new(4, 2).dropout(0.5);
    let x = Tensor::randn([1, 6, 4]);
    let (a, b) = (m.forward(&x, &x, &x, None, true), m.forward(&x, &x, &x, None, true));
    assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
    let dropped = Tensor::train(|| m.forward(&x, &x, &x, None, true));
    assert_ne!(dropped.to_vec::<f32>().unwrap(), a.to_vec::<f32>().unwrap());
    // Without dropout, both ways of computing agree.
    let none = m.clone().dropout(1e-12);
    let y = Tensor::train(|| none.forward(&x, &x, &x, None, true)).to_vec::<f32>().unwrap();
    assert!(y.iter().zip(a.to_vec::<f32>().unwrap()).all(|(a, b)| (a - b).abs() < 1e-5));
}
