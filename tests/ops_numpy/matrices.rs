//! The ops of the group `linalg`.

use super::int;
use super::ordered::part;
use doorbell::tensor::prelude::*;
use serde_json::Value as Json;

fn diagonal_times(s: &Tensor, v: &Tensor) -> Tensor {
    s.unsqueeze(-1) * v
}

/// The sum of the outer products of the singular vectors, each with its number: what does not depend on their signs.
fn outer(x: &Tensor) -> Tensor {
    let (u, _, v) = x.svd(false);
    let k = u.shape().ok().and_then(|s| s.last()?.as_int()).unwrap_or(0);
    u.matmul(&diagonal_times(&(Tensor::arange(k).cast(Scalar::F32) + 1), &v))
}

/// U · diag(S) · Vᵀ.
fn product(x: &Tensor, full: bool) -> Tensor {
    let (u, s, v) = x.svd(full);
    let k = s.shape().ok().and_then(|s| s.last()?.as_int()).unwrap_or(0);
    u.narrow(-1, 0, k).matmul(&diagonal_times(&s, &v.narrow(-2, 0, k)))
}

pub fn matrices(op: &str, p: &Json, x: &[Tensor]) -> Option<Tensor> {
    let [x] = x else { return None };
    let pair = |(a, b): (Tensor, Tensor)| part(p, [a, b]);
    Some(match op {
        "qr" => pair(x.qr()),
        "qr_complete" => pair(x.qr_complete()),
        "svdvals" => x.svd(false).1,
        "svd_outer" => outer(x),
        "svd_product" => product(x, p["full"] == true),
        "svd_orthogonal" => {
            let (u, _, v) = x.svd(p["full"] == true);
            pair((u.t().matmul(&u), v.matmul(&v.t())))
        }
        "newton_schulz" => {
            let params: Vec<f64> = p["params"].as_array()?.iter().filter_map(Json::as_f64).collect();
            x.newton_schulz(int(p, "steps") as usize, &params, 1e-7)
        }
        "normalize" => x.normalize(p["p"].as_f64().unwrap_or(f64::INFINITY), int(p, "axis"), 1e-12),
        "keccak" => x.keccak(match p["kind"].as_str()? {
            "sha3_224" => Keccak::Sha3_224,
            "sha3_256" => Keccak::Sha3_256,
            "sha3_384" => Keccak::Sha3_384,
            "sha3_512" => Keccak::Sha3_512,
            "shake_128" => Keccak::Shake128,
            "shake_256" => Keccak::Shake256,
            other => panic!("no hash {other}"),
        }),
        _ => return None,
    })
}
