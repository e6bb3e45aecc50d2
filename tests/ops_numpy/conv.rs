//! What a case of the group `conv` is in the Tensor API.

use super::{float, int, ints, pairs, sizes};
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

/// The options of a convolution.
fn options(p: &Json) -> Conv {
    let how = if p["padding"] == "same" { Conv::same() } else { Conv::padded(pairs(&p["padding"])) };
    let how = how.strided(sizes(&p["stride"])).dilated(sizes(&p["dilation"])).grouped(int(p, "groups") as usize);
    if p["output_padding"].is_array() { how.output_padded(sizes(&p["output_padding"])) } else { how }
}

fn window(p: &Json) -> Pool {
    let how = Pool::window(sizes(&p["kernel"])).strided(sizes(&p["stride"])).dilated(sizes(&p["dilation"]));
    let how = how.padded(pairs(&p["padding"]));
    let how = if p["ceil"] == true { how.ceiled() } else { how };
    if p["count_include_pad"] == false { how.uncounted() } else { how }
}

fn resize(p: &Json) -> Resize {
    let mode = match p["mode"].as_str() {
        Some("nearest") => ResizeMode::Nearest,
        Some("nearest-exact") => ResizeMode::NearestExact,
        Some("linear") => ResizeMode::Linear,
        Some("bilinear") => ResizeMode::Bilinear,
        Some("trilinear") => ResizeMode::Trilinear,
        Some("bicubic") => ResizeMode::Bicubic,
        Some("area") => ResizeMode::Area,
        other => panic!("no mode {other:?}"),
    };
    let factors = || p["scale"].as_array().expect("factors").iter().map(|s| s.as_f64().expect("a factor"));
    let how = match &p["size"] {
        Json::Null => Resize::by(factors().collect::<Vec<f64>>(), mode),
        size => Resize::to(sizes(size), mode),
    };
    if p["align_corners"] == true { how.align_corners() } else { how }
}

/// Each op by its name for this number of axes, which the name without a number agrees with.
pub fn conv(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let axes = p["axes"].as_u64().unwrap_or(0);
    let out = p["output_size"].is_array().then(|| sizes(&p["output_size"]));
    Some(match (op, axes, x) {
        ("conv", 1, [x, w, b @ ..]) => x.conv1d(w, b.first(), options(p)),
        ("conv", 2, [x, w, b @ ..]) => x.conv2d(w, b.first(), options(p)),
        ("conv", 3, [x, w, b @ ..]) => x.conv3d(w, b.first(), options(p)),
        ("conv_transpose", 1, [x, w, b @ ..]) => x.conv_transpose1d(w, b.first(), options(p)),
        ("conv_transpose", 2, [x, w, b @ ..]) => x.conv_transpose2d(w, b.first(), options(p)),
        ("conv_transpose", 3, [x, w, b @ ..]) => x.conv_transpose3d(w, b.first(), options(p)),
        ("max_pool", 1, [x]) => x.max_pool1d(window(p)),
        ("max_pool", 2, [x]) => x.max_pool2d(window(p)),
        ("max_pool", 3, [x]) => x.max_pool3d(window(p)),
        ("max_pool_indices", 1, [x]) => x.max_pool1d_with_indices(window(p)).1,
        ("max_pool_indices", 2, [x]) => x.max_pool2d_with_indices(window(p)).1,
        ("max_pool_indices", 3, [x]) => x.max_pool3d_with_indices(window(p)).1,
        ("max_unpool", 1, [x, i]) => x.max_unpool1d(i, window(p), out.as_deref()),
        ("max_unpool", 2, [x, i]) => x.max_unpool2d(i, window(p), out.as_deref()),
        ("max_unpool", 3, [x, i]) => x.max_unpool3d(i, window(p), out.as_deref()),
        ("avg_pool", 1, [x]) => x.avg_pool1d(window(p)),
        ("avg_pool", 2, [x]) => x.avg_pool2d(window(p)),
        ("avg_pool", 3, [x]) => x.avg_pool3d(window(p)),
        ("adaptive_avg_pool", 1, [x]) => x.adaptive_avg_pool1d(sizes(&p["size"])),
        ("adaptive_avg_pool", 2, [x]) => x.adaptive_avg_pool2d(sizes(&p["size"])),
        ("adaptive_avg_pool", 3, [x]) => x.adaptive_avg_pool3d(sizes(&p["size"])),
        ("adaptive_max_pool", 1, [x]) => x.adaptive_max_pool1d(sizes(&p["size"])),
        ("adaptive_max_pool", 2, [x]) => x.adaptive_max_pool2d(sizes(&p["size"])),
        ("adaptive_max_pool", 3, [x]) => x.adaptive_max_pool3d(sizes(&p["size"])),
        ("interpolate", _, [x]) => x.interpolate(resize(p)),
        ("pad_flat", _, [x]) => match p["mode"].as_str()? {
            "constant" => x.pad_value(&ints(&p["padding"]), float(p, "value")),
            "reflect" => x.pad_mode(&ints(&p["padding"]), PadMode::Reflect),
            "replicate" => x.pad_mode(&ints(&p["padding"]), PadMode::Replicate),
            _ => x.pad_mode(&ints(&p["padding"]), PadMode::Circular),
        },
        _ => return None,
    })
}
