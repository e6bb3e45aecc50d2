//! The cases of the groups `dtypes`, `names` and `losses`, which PyTorch made.

use super::{axes, float, int, scalar, sizes};
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

pub(super) fn apply(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    [casts, elementwise, pairs, reduction, shape, classes, distance].iter().find_map(|group| group(op, p, x))
}

fn casts(op: &str, _: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    Some(match op {
        "bool" => x.bool(),
        "half" => x.half(),
        "bfloat16" => x.bfloat16(),
        "float" => x.float(),
        "double" => x.double(),
        "int" => x.int(),
        "long" => x.long(),
        "short" => x.short(),
        "char" => x.char(),
        _ => return None,
    })
}

fn elementwise(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    Some(match op {
        "clip" => x.clip(float(p, "low"), float(p, "high")),
        "clamp_min" => x.clamp_min(float(p, "low")),
        "clamp_max" => x.clamp_max(float(p, "high")),
        "hardtanh" => x.hardtanh(float(p, "low"), float(p, "high")),
        "swish" => x.swish(),
        "hardsigmoid" => x.hardsigmoid(),
        "hard_sigmoid_with" => x.hard_sigmoid_with(float(p, "alpha"), float(p, "beta")),
        "hardswish" => x.hardswish(),
        "logsigmoid" => x.logsigmoid(),
        "gelu_exact" => x.gelu(),
        "gelu_by_tanh" => x.gelu_tanh(),
        "reciprocal" => x.reciprocal(),
        "isnan" => x.isnan(),
        "isinf" => x.isinf(),
        "isposinf" => x.isposinf(),
        "isneginf" => x.isneginf(),
        "isfinite" => x.isfinite(),
        "bitwise_not" => x.bitwise_not(),
        _ => return None,
    })
}

fn pairs(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [a, b] = x else { return None };
    Some(match op {
        "remainder" => a.remainder(b),
        "usum" => Tensor::usum(&[a, b]),
        "uprod" => Tensor::uprod(&[a, b]),
        "isclose" if p["equal_nan"] == true => a.isclose(b, Close::new().equal_nan()),
        "isclose" => a.isclose(b, Close::new()),
        "bitwise_and" => a.bitwise_and(b),
        "bitwise_or" => a.bitwise_or(b),
        "bitwise_xor" => a.bitwise_xor(b),
        "logical_xor" => a.logical_xor(b),
        "lshift" => a.lshift(b),
        "rshift" => a.rshift(b),
        _ => return None,
    })
}

fn reduction(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    let over = axes(p, x.rank().ok()?);
    let part = |(a, b): (Tensor, Tensor)| if int(p, "part") == 0 { a } else { b };
    Some(match op {
        "softmin" => x.softmin(int(p, "axis")),
        "var_mean" => part(x.var_mean(over, int(p, "correction"))),
        "std_mean" => part(x.std_mean(over, int(p, "correction"))),
        "sum_as" => x.sum_as(over, scalar(p)),
        "prod_as" => x.prod_as(over, scalar(p)),
        "count_nonzero" => x.count_nonzero(over),
        _ => return None,
    })
}

fn shape(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let list: Vec<&Tensor> = x.iter().collect();
    let part = || int(p, "part") as usize;
    let first = x.first()?;
    Some(match op {
        "rearrange" => {
            let sizes = p["sizes"].as_object()?.iter().map(|(k, v)| (k.as_str(), v.as_u64().expect("a size") as usize));
            first.rearrange(p["pattern"].as_str()?, &sizes.collect::<Vec<_>>())
        }
        "swapaxes" => first.swapaxes(int(p, "a"), int(p, "b")),
        "movedim" => first.movedim(int(p, "a"), int(p, "b")),
        "unbind" => first.unbind(int(p, "axis")).swap_remove(part()),
        "meshgrid" => Tensor::meshgrid(&list).swap_remove(part()),
        "meshgrid_xy" => Tensor::meshgrid_xy(&list).swap_remove(part()),
        "split" => first.split(int(p, "size") as usize, int(p, "axis")).swap_remove(part()),
        "T" => first.T(),
        "broadcast_to" => first.broadcast_to(sizes(&p["shape"])),
        _ => return None,
    })
}

fn classes(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x, y, weight @ ..] = x else { return None };
    let how = || super::reduce(p);
    Some(match op {
        "cross_entropy_with" => {
            let options = CrossEntropy::new().reduction(how()).smoothing(float(p, "smoothing"));
            let options = if p["labels"] == true { options.ignore(int(p, "ignore")) } else { options };
            x.cross_entropy_with(y, weight.iter().fold(options, |options, w| options.weight(w)))
        }
        "nll_loss_with" => {
            let options = Nll::new().reduction(how()).ignore(int(p, "ignore"));
            x.nll_loss_with(y, weight.iter().fold(options, |options, w| options.weight(w)))
        }
        "binary_with" => {
            let options = BinaryCrossEntropy::new().reduction(how());
            x.binary_crossentropy_with(y, weight.iter().fold(options, |options, w| options.weight(w)))
        }
        "logits_with" => {
            let names = p["names"].as_array()?.iter().zip(weight);
            let options = names.fold(BinaryLogits::new().reduction(how()), |options, (name, w)| {
                if name == "weight" { options.weight(w) } else { options.pos_weight(w) }
            });
            x.binary_crossentropy_logits_with(y, options)
        }
        _ => return None,
    })
}

fn distance(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x, y] = x else { return None };
    let how = || super::reduce(p);
    Some(match op {
        "mse_loss" => x.mse_loss_with(y, how()),
        "l1_loss" => x.l1_loss_with(y, how()),
        "smooth_l1_loss" => x.smooth_l1_loss_with(y, float(p, "beta"), how()),
        "huber_loss" => x.huber_loss_with(y, float(p, "delta"), how()),
        "kl_div" => {
            let options = if p["log_target"] == true { KlDiv::new().log_target() } else { KlDiv::new() };
            let mean = p["reduction"] == "batchmean";
            x.kl_div_with(y, if mean { options.batch_mean() } else { options.reduction(how()) })
        }
        _ => return None,
    })
}
