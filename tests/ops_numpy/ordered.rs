//! The ops of the groups `index`, `order` and `select`.

use super::{float, int};
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

fn axis(p: &Json) -> Option<i64> {
    p["axis"].as_i64()
}

/// The output that the case is about.
pub fn part<const N: usize>(p: &Json, outputs: [Tensor; N]) -> Tensor {
    let part = p["part"].as_u64().and_then(|n| usize::try_from(n).ok());
    outputs[part.unwrap_or_else(|| panic!("no part in {p}"))].clone()
}

/// One index of a list: a position, a range, a list, the number of an input.
pub fn item(spec: &Json, x: &[Tensor]) -> Index {
    let word = |text: &str| spec == text;
    let list = |v: &Json| v.as_array().map(|l| l.iter().filter_map(Json::as_i64).collect::<Vec<i64>>());
    match spec {
        _ if word("new") => Index::NewAxis,
        _ if word("...") => Index::Ellipsis,
        spec if spec["i"].is_i64() => Index::from(int(spec, "i")),
        spec if spec["t"].is_i64() => Index::from(&x[int(spec, "t") as usize]),
        spec if spec["l"].is_array() => Index::from(list(&spec["l"]).unwrap_or_default()),
        spec => slice(spec["s"][0].as_i64(), spec["s"][1].as_i64(), spec["s"][2].as_i64().unwrap_or(1)),
    }
}

pub fn stored(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let how = || match p["reduce"].as_str() {
        Some("sum") => ScatterReduce::Sum,
        Some("prod") => ScatterReduce::Prod,
        Some("mean") => ScatterReduce::Mean,
        Some("amax") => ScatterReduce::Amax,
        Some("amin") => ScatterReduce::Amin,
        _ => panic!("no reduction in {p}"),
    };
    Some(match (op, x) {
        ("set", [own, .., value]) => {
            // Another handle: the input stays what it is.
            let made = Tensor::from(own.uop().ok()?);
            made.set(p["index"].as_array()?.iter().map(|spec| item(spec, x)).collect::<Vec<Index>>(), value);
            made
        }
        ("scatter", [x, i]) => x.scatter(int(p, "dim"), i, float(p, "value")),
        ("scatter", [x, i, src]) => x.scatter(int(p, "dim"), i, src),
        ("scatter_reduce", [x, i, src]) => x.scatter_reduce(int(p, "dim"), i, src, how(), p["include_self"] == true),
        _ => return None,
    })
}

pub fn ordered(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let size = || usize::try_from(int(p, "size")).expect("a size");
    let pair = |(a, b): (Tensor, Tensor)| part(p, [a, b]);
    Some(match (op, x) {
        ("sort", [x]) => pair(x.sort(int(p, "dim"), p["descending"] == true)),
        ("topk", [x]) => pair(x.topk(int(p, "k") as usize, int(p, "dim"), p["largest"] == true)),
        ("argmax_all", [x]) => x.argmax(axis(p)),
        ("argmin_all", [x]) => x.argmin(axis(p)),
        ("argmax_keep", [x]) => x.argmax_keep(axis(p)),
        ("argmin_keep", [x]) => x.argmin_keep(axis(p)),
        ("cummax_places", [x]) => pair(x.cummax(int(p, "axis"))),
        ("cummin_places", [x]) => pair(x.cummin(int(p, "axis"))),
        ("logcumsumexp", [x]) => x.logcumsumexp(int(p, "axis")),
        ("searchsorted", [list, x]) => list.searchsorted(x, p["right"] == true),
        ("masked_select_static", [x, mask]) => x.masked_select_static(mask, size(), float(p, "fill")),
        ("nonzero_static", [x]) => x.nonzero_static(size(), int(p, "fill")),
        ("unique_static", [x]) => {
            let (values, inverse, counts) = x.unique_static(size(), int(p, "fill"));
            part(p, [values, inverse, counts])
        }
        ("masked_select", [x, mask]) => x.masked_select(mask),
        ("nonzero", [x]) => x.nonzero(),
        ("unique", [x]) => {
            let found = x.unique();
            part(p, [found.values, found.inverse, found.counts])
        }
        _ => return None,
    })
}
