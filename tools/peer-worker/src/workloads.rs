//! The workloads by name. All are recorded functions (the JIT), as users would run them.

use crate::inputs::{fill, ints, mean_abs};
use crate::protocol::Workload;
use doorbell::engine::{Error, Jit, synchronize};
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{BatchNorm, Conv2d, Linear, Module, Parameters, StateDict, state};
use doorbell::tensor::prelude::*;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

type Made = Result<Option<Workload>, Error>;

/// The workload of that name; `None` for one this peer does not have.
pub fn make(name: &str) -> Made {
    const E16M: usize = 1 << 24;
    if let Some(rest) = name.strip_prefix("matmul_") {
        return matmul(rest);
    }
    if let Some(rest) = name.strip_prefix("attention_") {
        return attention(rest);
    }
    match name {
        "fma_16M" => recorded(vec![f(&[E16M], 1), f(&[E16M], 2), f(&[E16M], 3)], |x| &x[0] * &x[1] + &x[2]),
        "exp_16M" => recorded(vec![f(&[E16M], 1)], |x| x[0].exp()),
        "sum_64M" => recorded(vec![f(&[1 << 26], 1)], |x| x[0].sum(())),
        "softmax_4096" => recorded(vec![scaled(&[4096, 4096], 1, 8.0)], |x| x[0].softmax(-1)),
        "layernorm_4096x1024" => recorded(vec![f(&[4096, 1024], 1), f(&[1024], 2), f(&[1024], 3)], |x| {
            x[0].layernorm(-1, 1e-5) * &x[1] + &x[2]
        }),
        "transpose_4096" => recorded(vec![f(&[4096, 4096], 1)], |x| x[0].permute([1, 0]).contiguous()),
        "argmax_4096" => recorded(vec![f(&[4096, 4096], 1)], |x| x[0].argmax(1)),
        "cumsum_1M" => recorded(vec![f(&[1 << 20], 1)], |x| x[0].cumsum(0)),
        "gather_100k" => {
            let rows = Tensor::from_slice(&ints(100_000, 9, 50_000), [100_000]);
            recorded(vec![f(&[50_000, 256], 1), rows], |x| x[0].get(&x[1]))
        }
        "conv2d" => recorded(vec![f(&[16, 64, 56, 56], 1), scaled(&[64, 64, 3, 3], 2, 0.1)], |x| {
            x[0].conv2d(&x[1], None, Conv::padded(1))
        }),
        "matvec_4096" => recorded(vec![f(&[1, 4096], 1), f(&[4096, 4096], 2)], |x| x[0].matmul(&x[1])),
        "tiny_add" => tiny_add(),
        "mlp_train" => mlp_train(),
        "convnet_train" => convnet_train(),
        "minilm_b1" => minilm(1),
        "minilm_b32" => minilm(32),
        _ => Ok(None),
    }
}

fn f(shape: &[usize], seed: u32) -> Tensor {
    scaled(shape, seed, 1.0)
}
fn scaled(shape: &[usize], seed: u32, scale: f32) -> Tensor {
    Tensor::from_slice(&fill(shape.iter().product(), seed, scale), shape)
}

/// A recorded function of fixed inputs; the result is waited for.
fn recorded(inputs: Vec<Tensor>, function: impl Fn(&[Tensor]) -> Tensor + 'static) -> Made {
    Tensor::realize_all(&inputs)?;
    let mut jit = Jit::new(move |x: &[Tensor]| vec![function(x)]);
    let last = Rc::new(RefCell::new(None::<Tensor>));
    let result = last.clone();
    Ok(Some(Workload {
        step: Box::new(move || {
            let mut out = jit.call(&inputs).map_err(|e| e.to_string())?;
            synchronize().map_err(|e| e.to_string())?;
            *last.borrow_mut() = out.pop();
            Ok(())
        }),
        check: Box::new(move || {
            let r = result.borrow();
            let r = r.as_ref().ok_or("no result yet")?;
            r.cast(Scalar::F32).to_f64().map(|v| mean_abs(&v)).map_err(|e| e.to_string())
        }),
        inner: 1,
    }))
}

fn matmul(rest: &str) -> Made {
    let (size, dtype) = match rest.split_once('_') {
        Some((n, "bf16")) => (n, Scalar::BF16),
        Some((n, "f16")) => (n, Scalar::F16),
        Some(_) => return Ok(None),
        None => (rest, Scalar::F32),
    };
    let Ok(n) = size.parse::<usize>() else { return Ok(None) };
    let inputs = vec![f(&[n, n], 1).cast(dtype).contiguous(), f(&[n, n], 2).cast(dtype).contiguous()];
    recorded(inputs, |x| x[0].matmul(&x[1]))
}

/// Attention of 4 x 8 heads of 64, or of another width: `f32_512`, `f16_1024x128`, with `causal_` before it.
fn attention(rest: &str) -> Made {
    let (causal, rest) = rest.strip_prefix("causal_").map_or((false, rest), |rest| (true, rest));
    let Some((dtype, len)) = rest.split_once('_') else { return Ok(None) };
    let dtype = match dtype {
        "f32" => Scalar::F32,
        "f16" => Scalar::F16,
        "bf16" => Scalar::BF16,
        _ => return Ok(None),
    };
    let (len, width) = len.split_once('x').unwrap_or((len, "64"));
    let (Ok(len), Ok(width)) = (len.parse(), width.parse()) else { return Ok(None) };
    let inputs = (1..4).map(|seed| f(&[4, 8, len, width], seed).cast(dtype).contiguous()).collect();
    recorded(inputs, move |x| x[0].attention(&x[1], &x[2], None, causal))
}

/// Many calls a step, each waited for.
fn tiny_add() -> Made {
    const CALLS: usize = 1000;
    let inputs = vec![f(&[16], 1), f(&[16], 2)];
    Tensor::realize_all(&inputs)?;
    let mut jit = Jit::new(|x: &[Tensor]| vec![&x[0] + &x[1]]);
    let last = Rc::new(RefCell::new(None::<Tensor>));
    let result = last.clone();
    Ok(Some(Workload {
        step: Box::new(move || {
            for _ in 0..CALLS {
                let mut out = jit.call(&inputs).map_err(|e| e.to_string())?;
                synchronize().map_err(|e| e.to_string())?;
                *last.borrow_mut() = out.pop();
            }
            Ok(())
        }),
        check: Box::new(move || {
            let r = result.borrow();
            r.as_ref().ok_or("no result yet")?.to_f64().map(|v| mean_abs(&v)).map_err(|e| e.to_string())
        }),
        inner: CALLS,
    }))
}

/// One recorded training step: forward, backward, Adam; the check is the first loss.
fn training(parameters: Parameters, x: Tensor, y: Tensor, logits: impl Fn(&Tensor) -> Tensor + 'static) -> Made {
    Tensor::realize_all(&[parameters.to_vec(), parameters.buffers().to_vec()].concat())?;
    let mut opt = Adam::new(parameters, 1e-3)?;
    let mut step = Jit::new(move |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
        opt.zero_grad();
        let loss = logits(&x[0]).sparse_categorical_crossentropy(&x[1]);
        loss.backward()?;
        let mut out = vec![loss];
        out.extend(opt.schedule_step()?);
        Ok(out)
    });
    let first = Rc::new(RefCell::new(None::<f64>));
    let seen = first.clone();
    let inputs = [x, y];
    Ok(Some(Workload {
        step: Box::new(move || {
            let loss = step.call(&inputs).and_then(|out| out[0].item()).map_err(|e| e.to_string())?;
            first.borrow_mut().get_or_insert(loss);
            Ok(())
        }),
        check: Box::new(move || seen.borrow().ok_or_else(|| "no step yet".to_string())),
        inner: 1,
    }))
}

fn mlp_train() -> Made {
    let parameter = |t: Tensor| t.requires_grad();
    let w1 = parameter(scaled(&[512, 784], 1, 2.0 / 784f32.sqrt()));
    let w2 = parameter(scaled(&[10, 512], 2, 2.0 / 512f32.sqrt()));
    let (b1, b2) = (parameter(Tensor::zeros([512])), parameter(Tensor::zeros([10])));
    let (x, y) = (f(&[512, 784], 3), Tensor::from_slice(&ints(512, 4, 10), [512]));
    let all = vec![w1.clone(), b1.clone(), w2.clone(), b2.clone()];
    training(all.into(), x, y, move |x| x.linear(&w1, Some(&b1)).relu().linear(&w2, Some(&b2)))
}

/// The network of tinygrad's beautiful_mnist example.
struct ConvNet {
    conv: Vec<Conv2d>,
    norm: Vec<BatchNorm>,
    linear: Linear,
}
doorbell::module!(ConvNet { conv, norm, linear });

fn convnet_train() -> Made {
    const CONVS: [(usize, usize, usize); 4] = [(32, 1, 5), (32, 32, 5), (64, 32, 3), (64, 64, 3)];
    let conv = |(n, (out, inp, k)): (usize, (usize, usize, usize))| {
        let mut c = Conv2d::new(inp, out, k, Conv::default());
        c.weight = scaled(&[out, inp, k, k], 11 + n as u32, 2.0 / ((inp * k * k) as f32).sqrt()).requires_grad();
        c.bias = Some(Tensor::zeros([out]).requires_grad());
        c
    };
    let mut linear = Linear::new(576, 10);
    linear.weight = scaled(&[10, 576], 20, 2.0 / 576f32.sqrt()).requires_grad();
    linear.bias = Some(Tensor::zeros([10]).requires_grad());
    let net = ConvNet {
        conv: CONVS.into_iter().enumerate().map(conv).collect(),
        norm: vec![BatchNorm::new(32), BatchNorm::new(64)],
        linear,
    };
    let (x, y) = (f(&[512, 1, 28, 28], 5), Tensor::from_slice(&ints(512, 6, 10), [512]));
    training(net.parameters(), x, y, move |x| {
        let c = |k: usize, x: &Tensor| net.conv[k].forward(x).relu();
        let x = net.norm[0].forward(&c(1, &c(0, x)), true).max_pool2d(Pool::square(2));
        let x = net.norm[1].forward(&c(3, &c(2, &x)), true).max_pool2d(Pool::square(2));
        net.linear.forward(&x.flatten(1, -1))
    })
}

/// all-MiniLM-L6-v2 on 128 tokens a row: the sentence embedding.
fn minilm(batch: usize) -> Made {
    const SEQ: usize = 128;
    let dir = std::env::var("PEERS_MINILM").map_or_else(|_| PathBuf::from("/tmp/peers-build/minilm"), PathBuf::from);
    let w = state::load(&dir.join("model.safetensors")).map_err(|e| Error::Function(e.to_string()))?;
    let floats: Vec<Tensor> = w.values().filter(|t| t.dtype().is_ok_and(|d| d == Scalar::F32)).cloned().collect();
    Tensor::realize_all(&floats)?;
    let ids: Vec<i32> = ints(batch * SEQ, 77, 20_000).iter().map(|i| i + 1000).collect();
    recorded(vec![Tensor::from_slice(&ids, [batch, SEQ])], move |x| bert(&w, &x[0], batch, SEQ))
}

fn bert(w: &StateDict, ids: &Tensor, batch: usize, seq: usize) -> Tensor {
    const HEADS: usize = 12;
    const LAYERS: usize = 6;
    const HIDDEN: usize = 384;
    let norm = |x: &Tensor, p: &str| x.layernorm(-1, 1e-12) * &w[&format!("{p}.weight")] + &w[&format!("{p}.bias")];
    let lin = |x: &Tensor, p: &str| x.linear(&w[&format!("{p}.weight")], Some(&w[&format!("{p}.bias")]));
    let words = w["embeddings.word_embeddings.weight"].get(ids);
    let x = words
        + w["embeddings.position_embeddings.weight"].get(0..seq)
        + w["embeddings.token_type_embeddings.weight"].get(0);
    let mut x = norm(&x, "embeddings.LayerNorm");
    for layer in 0..LAYERS {
        let p = format!("encoder.layer.{layer}.");
        let heads = |n: &str| {
            lin(&x, &format!("{p}attention.self.{n}"))
                .reshape([batch, seq, HEADS, HIDDEN / HEADS])
                .permute([0, 2, 1, 3])
        };
        let a = heads("query").attention(&heads("key"), &heads("value"), None, false);
        let a = a.permute([0, 2, 1, 3]).reshape([batch, seq, HIDDEN]);
        x = norm(&(lin(&a, &format!("{p}attention.output.dense")) + &x), &format!("{p}attention.output.LayerNorm"));
        let y = lin(&x, &format!("{p}intermediate.dense")).gelu();
        x = norm(&(lin(&y, &format!("{p}output.dense")) + &x), &format!("{p}output.LayerNorm"));
    }
    let x = x.mean(1);
    &x / x.square().sum_keep(-1).sqrt()
}
