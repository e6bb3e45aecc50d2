//! What a case's op is in the Tensor API: from its name, its parameters and its input Tensors to the output Tensor.

#[path = "conv.rs"]
mod conv;
#[path = "../ops_numpy/matrices.rs"]
mod matrices;
#[path = "named.rs"]
mod named;
#[path = "../ops_numpy/ordered.rs"]
mod ordered;

use super::reader::Case;
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

type Unary = fn(&Tensor) -> Tensor;
type Binary = fn(&Tensor, &Tensor) -> Tensor;

const UNARY: &[(&str, Unary)] = &[
    ("neg", |x| Elementwise::neg(x)),
    ("abs", Tensor::abs),
    ("sqrt", Tensor::sqrt),
    ("square", Tensor::square),
    ("reciprocal", Tensor::recip),
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("trunc", Tensor::trunc),
    ("round", Tensor::round),
    ("sign", Tensor::sign),
    ("relu", Tensor::relu),
    ("exp", Tensor::exp),
    ("exp2", Tensor::exp2),
    ("log", Tensor::log),
    ("log2", Tensor::log2),
    ("log10", Tensor::log10),
    ("sin", Tensor::sin),
    ("cos", Tensor::cos),
    ("tan", Tensor::tan),
    ("rsqrt", Tensor::rsqrt),
    ("sigmoid", Tensor::sigmoid),
    ("tanh", Tensor::tanh),
    ("silu", Tensor::silu),
    ("gelu", Tensor::gelu_tanh),
    ("softplus", Tensor::softplus),
    ("asin", Tensor::asin),
    ("acos", Tensor::acos),
    ("atan", Tensor::atan),
    ("sinh", Tensor::sinh),
    ("cosh", Tensor::cosh),
    ("asinh", Tensor::asinh),
    ("acosh", Tensor::acosh),
    ("atanh", Tensor::atanh),
    ("erf", Tensor::erf),
    ("gelu_erf", Tensor::gelu),
    ("log_sigmoid", Tensor::log_sigmoid),
    ("mish", Tensor::mish),
    ("softsign", Tensor::softsign),
    ("quick_gelu", Tensor::quick_gelu),
    ("hard_sigmoid", Tensor::hard_sigmoid),
    ("hard_swish", Tensor::hard_swish),
    ("relu6", Tensor::relu6),
    ("leaky_relu", |x| x.leaky_relu(0.25)),
    ("elu", |x| x.elu(1.25)),
    ("celu", |x| x.celu(0.75)),
    ("selu", Tensor::selu),
    ("isnan", Tensor::is_nan),
    ("isinf", Tensor::is_inf),
    ("isfinite", Tensor::is_finite),
    ("logical_not", Tensor::logical_not),
    ("bitwise_not", Tensor::bitnot),
];

const BINARY: &[(&str, Binary)] = &[
    ("add", |a, b| Elementwise::add(a, b)),
    ("sub", |a, b| Elementwise::sub(a, b)),
    ("mul", |a, b| Elementwise::mul(a, b)),
    ("div", |a, b| Elementwise::div(a, b)),
    ("maximum", |a, b| a.maximum(b)),
    ("minimum", |a, b| a.minimum(b)),
    ("floordiv", |a, b| a.div_floor(b)),
    ("mod", |a, b| a.modulo(b)),
    ("fmod", |a, b| a.fmod(b)),
    ("copysign", |a, b| a.copysign(b)),
    ("logaddexp", |a, b| a.logaddexp(b)),
    ("pow", |a, b| a.pow(b)),
    ("lt", |a, b| a.lt(b)),
    ("gt", |a, b| a.gt(b)),
    ("le", |a, b| a.le(b)),
    ("ge", |a, b| a.ge(b)),
    ("eq", |a, b| Elementwise::eq(a, b)),
    ("ne", |a, b| Elementwise::ne(a, b)),
    ("bitwise_and", |a, b| Elementwise::bitand(a, b)),
    ("bitwise_or", |a, b| Elementwise::bitor(a, b)),
    ("bitwise_xor", |a, b| Elementwise::bitxor(a, b)),
    ("lshift", |a, b| Elementwise::shl(a, b)),
    ("rshift", |a, b| Elementwise::shr(a, b)),
    ("matmul", |a, b| a.matmul(b)),
    ("threefry", |a, b| a.threefry(b)),
];

/// The output Tensor of a case.
///
/// # Panics
/// The case names an op that this file does not know: a reference that nothing is held to.
pub fn apply(case: &Case, x: &[Tensor]) -> Tensor {
    if let (Some((_, op)), [a]) = (UNARY.iter().find(|(name, _)| *name == case.op), x) {
        return op(a);
    }
    if let (Some((_, op)), [a, b]) = (BINARY.iter().find(|(name, _)| *name == case.op), x) {
        return op(a, b);
    }
    let groups = [
        conv::conv,
        creation,
        reduction,
        composite,
        window,
        shape,
        join,
        index,
        loss,
        ordered::stored,
        ordered::ordered,
        named::apply,
        matrices::matrices,
    ];
    let found = groups.iter().find_map(|group| group(case.op.as_str(), &case.params, x));
    found.unwrap_or_else(|| panic!("{}: the harness knows no op `{}`", case.name, case.op))
}

fn int(p: &Json, key: &str) -> i64 {
    p[key].as_i64().unwrap_or_else(|| panic!("{key} of {p} is no integer"))
}

fn float(p: &Json, key: &str) -> f64 {
    p[key].as_f64().unwrap_or_else(|| panic!("{key} of {p} is no number"))
}

fn ints(p: &Json) -> Vec<i64> {
    let list = p.as_array().unwrap_or_else(|| panic!("{p} is no list"));
    list.iter().map(|v| v.as_i64().unwrap_or_else(|| panic!("{v} is no integer"))).collect()
}

fn sizes(p: &Json) -> Vec<usize> {
    ints(p).into_iter().map(|n| usize::try_from(n).expect("a size")).collect()
}

fn pairs(p: &Json) -> Vec<(i64, i64)> {
    let list = p.as_array().unwrap_or_else(|| panic!("{p} is no list"));
    list.iter().map(|v| (ints(v)[0], ints(v)[1])).collect()
}

fn scalar(p: &Json) -> Scalar {
    p["dtype"].as_str().and_then(Scalar::parse).unwrap_or_else(|| panic!("no dtype in {p}"))
}

fn axes(p: &Json, rank: usize) -> Vec<i64> {
    match &p["axis"] {
        Json::Null => (0..rank as i64).collect(),
        Json::Number(n) => vec![n.as_i64().expect("an axis")],
        list => ints(list),
    }
}

fn creation(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    Some(match (op, x) {
        ("full", []) => Tensor::full_of(sizes(&p["shape"]), float(p, "value"), scalar(p)),
        ("arange", []) => Tensor::arange_step(float(p, "start"), float(p, "stop"), float(p, "step")).cast(scalar(p)),
        ("eye", []) => Tensor::eye(int(p, "n") as usize, int(p, "m") as usize),
        ("linspace", []) => Tensor::linspace(float(p, "start"), float(p, "stop"), int(p, "steps") as usize),
        ("cast", [x]) => x.cast(scalar(p)),
        ("bitcast", [x]) => x.bitcast(scalar(p)),
        ("where", [c, a, b]) => c.where_(a, b),
        _ => return None,
    })
}

fn reduction(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    let rank = x.rank().ok()?;
    let (keep, over) = (p["keepdim"] == true, axes(p, rank));
    let arg = |f: fn(&Tensor, i64) -> Tensor| match p["axis"] {
        Json::Null => f(&x.reshape([-1]), 0),
        _ => f(x, over[0]),
    };
    Some(match (op, keep) {
        ("sum", false) => x.sum(over),
        ("sum", true) => x.sum_keep(over),
        ("prod", false) => x.prod(over),
        ("prod", true) => x.prod_keep(over),
        ("max", false) => x.max(over),
        ("max", true) => x.max_keep(over),
        ("min", false) => x.min(over),
        ("min", true) => x.min_keep(over),
        ("mean", false) => x.mean(over),
        ("mean", true) => x.mean_keep(over),
        ("var", false) => x.var(over, int(p, "correction")),
        ("std", false) => x.std(over, int(p, "correction")),
        ("any", false) => x.any(over),
        ("all", false) => x.all(over),
        ("logsumexp", false) => x.logsumexp(over),
        ("argmax", false) => arg(|x, axis| x.argmax(axis)),
        ("argmin", false) => arg(|x, axis| x.argmin(axis)),
        ("softmax", _) => x.softmax(int(p, "axis")),
        ("log_softmax", _) => x.log_softmax(int(p, "axis")),
        ("cumsum", _) => x.cumsum(int(p, "axis")),
        ("cumprod", _) => x.cumprod(int(p, "axis")),
        ("cummax", _) => x.cummax(int(p, "axis")).0,
        ("cummin", _) => x.cummin(int(p, "axis")).0,
        _ => return None,
    })
}

fn composite(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    Some(match (op, x) {
        ("layernorm", [x]) => x.layernorm(axes(p, x.rank().ok()?), float(p, "eps")),
        ("rmsnorm", [x]) => x.rmsnorm(axes(p, x.rank().ok()?), float(p, "eps")),
        ("batchnorm", [x, weight, bias, mean, scale]) => x.batchnorm(Some(weight), Some(bias), mean, scale),
        ("one_hot", [x]) => x.one_hot(int(p, "classes") as usize),
        ("tril", [x]) => x.tril(int(p, "offset")),
        ("triu", [x]) => x.triu(int(p, "offset")),
        ("einsum", x) => Tensor::einsum(p["formula"].as_str()?, &x.iter().collect::<Vec<_>>()),
        _ => return None,
    })
}

fn window(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let two = |key: &str| <[usize; 2]>::try_from(sizes(&p[key])).expect("two sizes");
    let sides = || match sizes(&p["padding"])[..] {
        [left, right, top, bottom] => [(top, bottom), (left, right)],
        _ => panic!("padding of {p} has not four sides"),
    };
    let pool = || Pool {
        size: two("kernel").into(),
        stride: Some(two("stride").into()),
        dilation: if p["dilation"].is_array() { two("dilation").into() } else { (int(p, "dilation") as usize).into() },
        padding: sides().into(),
        ceil: false,
        count_padding: p["count_include_pad"] != false,
    };
    Some(match (op, x) {
        ("conv2d", [x, w, bias @ ..]) => {
            let how = Conv::padded(sides()).strided(two("stride")).dilated(two("dilation"));
            let how = how.grouped(int(p, "groups") as usize);
            x.conv2d(w, bias.first(), how)
        }
        ("max_pool2d", [x]) => x.max_pool2d(pool()),
        ("avg_pool2d", [x]) => x.avg_pool2d(pool()),
        _ => return None,
    })
}

fn shape(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    Some(match op {
        "reshape" => x.reshape(ints(&p["shape"])),
        "permute" => x.permute(ints(&p["order"])),
        "expand" => x.expand(ints(&p["shape"])),
        "pad" => x.pad_value(&pairs(&p["padding"]), float(p, "value")),
        "shrink" => x.shrink(&pairs(&p["bounds"])),
        "flip" => x.flip(ints(&p["axes"])),
        "transpose" => x.transpose(ints(&p["dims"])[0], ints(&p["dims"])[1]),
        "squeeze" => x.squeeze(p["dim"].as_i64()),
        "unsqueeze" => x.unsqueeze(int(p, "dim")),
        "flatten" => x.flatten(int(p, "start"), int(p, "end")),
        "repeat" => x.repeat(&sizes(&p["repeats"])),
        "repeat_interleave" => x.repeat_interleave(int(p, "count") as usize, int(p, "dim")),
        "roll" => x.roll(int(p, "shift"), int(p, "dim")),
        "diag" => x.diag(),
        "diagonal" => x.diagonal(int(p, "offset"), ints(&p["dims"])[0], ints(&p["dims"])[1]),
        "unfold" => x.unfold(int(p, "dim"), int(p, "size") as usize, int(p, "step") as usize),
        "pad_mode" => {
            let modes =
                [("reflect", PadMode::Reflect), ("replicate", PadMode::Replicate), ("circular", PadMode::Circular)];
            x.pad_mode(&pairs(&p["padding"]), modes.iter().find(|m| p["mode"] == m.0)?.1)
        }
        "transpose_shrink_flip" => {
            let (begin, end) = pairs(&serde_json::json!([p["rows"]]))[0];
            x.t().shrink(&[(begin, end), (0, 3)]).flip(0)
        }
        "permute_pad_flip_shrink" => {
            x.permute([2, 0, 1]).pad(&[(1, 0), (0, 2), (1, 1)]).flip(2).shrink(&[(1, 5), (0, 4), (2, 5)])
        }
        _ => return None,
    })
}

fn join(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let list: Vec<&Tensor> = x.iter().collect();
    Some(match op {
        "cat" => Tensor::cat(&list, int(p, "dim")),
        "stack" => Tensor::stack(&list, int(p, "dim")),
        _ => return None,
    })
}

fn index(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    Some(match op {
        "index" => x[0].get(p["index"].as_array()?.iter().map(|spec| ordered::item(spec, x)).collect::<Vec<Index>>()),
        "gather" => x[0].gather(int(p, "dim"), &x[1]),
        _ => return None,
    })
}

fn reduce(p: &Json) -> Reduce {
    match p["reduction"].as_str() {
        Some("mean") | None => Reduce::Mean,
        Some("sum") => Reduce::Sum,
        Some("none") => Reduce::None,
        Some(other) => panic!("no reduction is called {other}"),
    }
}

fn loss(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x, y] = x else { return None };
    Some(match op {
        "cross_entropy" => {
            let how = CrossEntropy::new().smoothing(float(p, "label_smoothing")).reduction(reduce(p));
            x.cross_entropy_with(y, how)
        }
        "sparse_categorical_crossentropy" => {
            let how = CrossEntropy::new().reduction(reduce(p));
            let ignore = int(p, "ignore_index");
            x.sparse_categorical_crossentropy_with(y, if ignore < 0 { how } else { how.ignore(ignore) })
        }
        "nll_loss" => x.nll_loss_with(y, Nll::new().reduction(reduce(p))),
        "binary_crossentropy" => x.binary_crossentropy_with(y, BinaryCrossEntropy::new().reduction(reduce(p))),
        "binary_crossentropy_logits" => x.binary_crossentropy_logits_with(y, BinaryLogits::new().reduction(reduce(p))),
        _ => return None,
    })
}
