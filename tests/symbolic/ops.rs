//! Every operation on an axis whose size is a variable: the values of each length are those of the same operation on a
//! Tensor of that fixed size, and after the first length no kernel is compiled.

use doorbell::engine::{Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::tensor::slice;
use doorbell::uop::UOp;
use std::sync::Arc;

const MOST: usize = 9;
const WIDTH: usize = 4;

type Row = (&'static str, fn(&Tensor) -> Tensor);

/// Each takes x of shape (n, 4), n variable or not.
const ROWS: &[Row] = &[
    ("sum", |x| x.sum(0)),
    ("sum of all", |x| x.sum(())),
    ("prod", |x| (x * 0.5 + 1.0).prod(0)),
    ("mean", |x| x.mean(0)),
    ("max", |x| x.max(0)),
    ("min", |x| x.min(0)),
    ("any", |x| x.gt(0.9).any(0).int()),
    ("var", |x| x.var(0, 1)),
    ("std", |x| x.std((), 1)),
    ("var_mean", |x| {
        let (v, m) = x.var_mean(0, 1);
        v + m
    }),
    ("softmax", |x| x.softmax(0)),
    ("softmax of rows", |x| x.softmax(-1)),
    ("log_softmax", |x| x.log_softmax(0)),
    ("logsumexp", |x| x.logsumexp(0)),
    ("argmax", |x| x.argmax(0)),
    ("argmin", |x| x.argmin(0)),
    ("cumsum", |x| x.cumsum(0)),
    ("cumprod", |x| (x + 0.5).cumprod(0)),
    ("cummax", |x| x.cummax(0).0),
    ("logcumsumexp", |x| x.logcumsumexp(0)),
    ("matmul, rows", |x| x.matmul(&weights())),
    ("matmul, inner", |x| x.t().matmul(x)),
    ("matmul, both", |x| x.matmul(&x.t())),
    ("linear", |x| x.linear(&weights().t(), Some(&Tensor::new([1.0f32, 2.0, 3.0, 4.0])))),
    ("einsum", |x| Tensor::einsum("ij,kj->ik", &[x, x])),
    ("cat", |x| Tensor::cat(&[x, &weights(), x], 0)),
    ("stack", |x| Tensor::stack(&[x, &(x * 2.0)], 1)),
    ("pad", |x| x.pad(&[(2, 1), (0, 3)])),
    ("reshape", |x| x.reshape([-1])),
    ("flatten", |x| x.flatten(0, -1) * 2.0),
    ("unflatten", |x| x.unflatten(1, [2, 2]).sum(1)),
    ("expand", |x| x.unsqueeze(0).expand([3, -1, -1]) + 1.0),
    ("permute", |x| x.t() + 0.5),
    ("flip", |x| x.flip(0)),
    ("repeat", |x| x.repeat(&[2, 1])),
    ("repeat_interleave", |x| x.repeat_interleave(2, 1)),
    ("roll", |x| x.roll(1, 0)),
    ("one_hot", |x| (x * 3.0).int().one_hot(5)),
    ("layernorm", |x| x.layernorm(-1, 1e-5)),
    ("layernorm over rows", |x| x.layernorm(0, 1e-5)),
    ("normalize", |x| x.normalize(2.0, 0, 1e-12)),
    ("a row", |x| x.get(1)),
    ("the last row", |x| x.get(-1)),
    ("from the second on", |x| x.get(1..)),
    ("every other row", |x| x.get(slice(0, None, 2))),
    ("rows backwards by two", |x| x.get(slice(-1, None, -2))),
    ("rows of a Tensor of indices", |x| x.get(Tensor::new([1i32, 0, 1]))),
    ("gather", |x| x.gather(0, &Tensor::new([[0i32, 1, 0, 1]]))),
    ("where", |x| x.gt(0.5).where_(x, &(x * 10.0))),
    ("triu", |x| x.matmul(&x.t()).triu(0)),
    ("diagonal", |x| x.matmul(&x.t()).diagonal(0, 0, 1)),
    ("diagonal below", |x| x.matmul(&x.t()).diagonal(-1, 0, 1)),
    ("all but the last row", |x| x.get(..-1)),
    ("rows from the end", |x| x.get(-2..)),
    ("gradient of every other row", |x| gradient(x, |x| x.get(slice(1, None, 2)).square().sum(()))),
    ("causal attention", |x| {
        let q = x.reshape([1, 1, -1, WIDTH as i64]);
        q.attention(&(&q * 0.5), &(&q + 1.0), None, true)
    }),
    ("attention", |x| {
        let q = x.reshape([1, 1, -1, WIDTH as i64]);
        q.attention(&(&q * 0.5), &(&q + 1.0), None, false)
    }),
    ("gelu", |x| x.gelu()),
    ("cross entropy", |x| x.cross_entropy(&x.argmax(1))),
    ("mse", |x| x.mse_loss(&(x * 0.5))),
    ("cast", |x| x.half().float()),
    ("arange", |x| x + Tensor::arange(WIDTH as i64).float()),
    ("gradient of a sum of squares", |x| gradient(x, |x| x.square().sum(()))),
    ("gradient of softmax", |x| gradient(x, |x| (x.softmax(0) * x).sum(()))),
    ("gradient of matmul", |x| gradient(x, |x| x.matmul(&x.t()).square().mean(()))),
    ("gradient of max", |x| gradient(x, |x| x.max(0).sum(()))),
    ("gradient of layernorm", |x| gradient(x, |x| (x.layernorm(-1, 1e-5) * x).sum(()))),
    ("gradient of pad and cat", |x| gradient(x, |x| Tensor::cat(&[&x.pad(&[(1, 0), (0, 0)]), x], 0).square().sum(()))),
    ("gradient of cumsum", |x| gradient(x, |x| x.cumsum(0).square().sum(()))),
    ("gradient of attention", |x| {
        gradient(x, |x| {
            let q = x.reshape([1, 1, -1, WIDTH as i64]);
            q.attention(&(&q * 0.5), &(&q + 1.0), None, true).square().sum(())
        })
    }),
];

fn weights() -> Tensor {
    Tensor::new([[1.0f32, -2.0, 0.5, 0.25], [0.0, 1.0, 2.0, -1.0], [3.0, 0.5, -0.5, 1.0], [1.5, 1.0, 0.0, -0.75]])
}

fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> Tensor {
    f(x).gradient(&[x]).remove(0)
}

fn values() -> Vec<f32> {
    (0..MOST * WIDTH).map(|k| ((k * 7 + 3) % 17) as f32 / 16.0 - 0.25).collect()
}

fn read(t: &Tensor) -> Result<Vec<f64>, String> {
    t.to_f64().map_err(|e| e.to_string())
}

fn differ(name: &str, f: fn(&Tensor) -> Tensor, n: &Variable, fixed: &Arc<Session>) -> Result<(), String> {
    let s = Session::open(Options { device: "CPU".into(), ..Options::default() }).map_err(|e| e.to_string())?;
    let mut counts = Vec::new();
    for len in [5usize, 9, 2, 3, 8] {
        let want = {
            let _in_it = fixed.enter();
            read(&f(&Tensor::from_slice(&values()[..len * WIDTH], [len, WIDTH])))?
        };
        let got = {
            let _in_it = s.enter();
            let base = Tensor::from_slice(&values(), [MOST, WIDTH]);
            base.realize().map_err(|e| e.to_string())?;
            let x = base.shrink(&[(UOp::int(0), n.bind(len as i64)), (UOp::int(0), UOp::int(WIDTH as i64))]);
            read(&f(&x))?
        };
        let near = |a: &f64, b: &f64| (a - b).abs() <= 1e-5 + 1e-4 * b.abs();
        if got.len() != want.len() || !got.iter().zip(&want).all(|(a, b)| near(a, b)) {
            return Err(format!("{name}, length {len}: {:?}, not {:?}", got, want));
        }
        counts.push(s.counters.totals().compiled);
    }
    if counts.iter().any(|c| *c != counts[0]) {
        return Err(format!("{name}: kernels compiled after each length: {counts:?}"));
    }
    Ok(())
}

#[test]
fn one_set_of_kernels_serves_every_length_of_every_operation() {
    let n = Variable::new("rows", 2, MOST as i64);
    let fixed = Session::open(Options { device: "CPU".into(), ..Options::default() }).unwrap();
    let faults: Vec<String> = ROWS
        .iter()
        .filter_map(|(name, f)| differ(name, *f, &n, &fixed).err().map(|e| format!("{name}: {e}")))
        .collect();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), ROWS.len(), faults.join("\n"));
}
