//! Tensor programs on the CPU device, against the interpreter's value of the same graph.

use doorbell::engine::interp::eval_with;
use doorbell::engine::{attached, session};
use doorbell::nn::BatchNorm;
use doorbell::tensor::prelude::*;
use doorbell::tensor::{HostBytes, default_device};
use doorbell::uop::BufferRef;

fn host(b: &BufferRef) -> Option<Vec<u8>> {
    if let Some(h) = b.memory.get()?.downcast_ref::<HostBytes>() {
        return Some(h.0.clone());
    }
    let place = attached(b)?;
    let mut bytes = vec![0; (place.memory.len_bytes() - place.offset) as usize];
    session().ok()?.device(&b.device).ok()?.device.copy_out(&place.memory, place.offset, &mut bytes).ok()?;
    Some(bytes)
}

fn check(name: &str, t: &Tensor) {
    let want = eval_with(&t.contiguous().uop().unwrap(), &host).unwrap_or_else(|e| panic!("{name}: {e}")).to_f64();
    let got = t.to_f64().unwrap_or_else(|e| panic!("{name}: {e}"));
    let scale = want.iter().filter(|w| w.is_finite()).fold(1e-6f64, |m, w| m.max(w.abs()));
    for (k, (g, w)) in got.iter().zip(&want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= 2e-5 * scale;
        assert!(same, "{name}: element {k} is {g}, the interpreter has {w}");
    }
    assert_eq!(got.len(), want.len(), "{name}");
}

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&data, shape)
}

#[test]
fn elementwise_math_matches() {
    let x = ramp(&[7, 33]);
    let device = session().and_then(|s| s.device(&default_device())).unwrap();
    // A target without f64 refuses it.
    let double = device.target().f64.then(|| ("f64", x.cast(Scalar::F64).exp()));
    let all = [
        ("exp", x.exp()),
        ("log", x.square().add(0.1).log()),
        ("sin", x.sin()),
        ("sqrt", x.square().sqrt()),
        ("relu", x.relu()),
        ("sigmoid", x.sigmoid()),
        ("tanh", x.tanh()),
        ("gelu", x.gelu()),
        ("rsqrt", x.square().add(1.0).rsqrt()),
        ("i32", x.cast(Scalar::I32)),
        ("f16", x.cast(Scalar::F16)),
        ("bf16", x.cast(Scalar::BF16)),
        ("where", x.lt(0.5).where_(&x, &x.mul(2.0))),
    ];
    for (name, t) in all.into_iter().chain(double) {
        check(name, &t);
    }
}

#[test]
fn reductions_match() {
    let x = ramp(&[7, 33]);
    for (name, t) in [
        ("sum", x.sum(())),
        ("sum0", x.sum(0)),
        ("sum1", x.sum(1)),
        ("max1", x.max(1)),
        ("mean", x.mean(0)),
        ("var", x.var(1, 1)),
        ("softmax", x.softmax(-1)),
        ("log_softmax", x.log_softmax(-1)),
        ("argmax", x.argmax(1)),
        ("cumsum", x.cumsum(1)),
        ("logsumexp", x.logsumexp(1)),
    ] {
        check(name, &t);
    }
}

#[test]
fn windows_match() {
    let x = ramp(&[2, 3, 8, 8]);
    check("conv", &x.conv2d(&ramp(&[4, 3, 3, 3]), None, Conv::padded(1)));
    check("pool", &x.max_pool2d(Pool::square(2)));
    check("avg", &x.avg_pool2d(Pool::square(2)));
}

#[test]
fn losses_and_gradients_match() {
    let (x, w) = (ramp(&[6, 5]), ramp(&[5, 4]));
    let y = Tensor::from_slice(&[0i32, 3, 1, 2, 2, 0], [6]);
    let loss = x.matmul(&w).sparse_categorical_crossentropy(&y);
    check("loss", &loss);
    check("loss gradient", &loss.gradient(&[&w])[0]);
    let x = ramp(&[2, 3, 6, 6]);
    let k = ramp(&[4, 3, 3, 3]);
    let l = x.conv2d(&k, None, Conv::padded(1)).relu().max_pool2d(Pool::square(2)).square().mean(());
    check("conv loss", &l);
    for (n, g) in l.gradient(&[&k, &x]).iter().enumerate() {
        check(&format!("conv gradient {n}"), g);
    }
}

#[test]
fn batch_norm_matches() {
    let x = ramp(&[4, 3, 4, 4]);
    let bn = BatchNorm::new(3);
    let y = bn.forward(&x, true);
    check("batch norm", &y);
    let l = y.relu().square().mean(());
    for (n, g) in l.gradient(&[&x, bn.weight.as_ref().unwrap(), bn.bias.as_ref().unwrap()]).iter().enumerate() {
        check(&format!("batch norm gradient {n}"), g);
    }
}

#[test]
fn a_padded_product_whose_first_row_folds_to_nothing_matches() {
    let t = ramp(&[33]).expand([5, 33]).pad(&[(1, 0), (2, 0)]).matmul(&ramp(&[35, 2]));
    check("padded product", &t);
}

/// Whole numbers from -4 to 4 (0 to 8 where they have no sign), which all types have.
fn small(t: Scalar, shape: [usize; 2], salt: usize) -> (Tensor, Vec<f64>) {
    let least = if t.is_unsigned() { 0.0 } else { -4.0 };
    let values: Vec<f64> =
        (0..shape[0] * shape[1]).map(|i| ((i * 37 + i / 64 * 11 + salt) % 9) as f64 + least).collect();
    let x = Tensor::from_slice(&values.iter().map(|v| *v as f32).collect::<Vec<_>>(), shape).cast(t);
    x.realize().unwrap_or_else(|e| panic!("{t:?}: {e}"));
    (x, values)
}

/// Every type that matrix units have, both operands along the sum or across it. The first are large enough for the
/// units that read workgroup memory by themselves.
#[test]
fn products_that_matrix_units_do_are_exact() {
    for (t, sum, [m, n, k]) in [
        (Scalar::F16, Scalar::F32, [1024, 512, 128]),
        (Scalar::I8, Scalar::I32, [1024, 512, 256]),
        (Scalar::U8, Scalar::I32, [1000, 504, 272]),
        (Scalar::BF16, Scalar::F32, [128, 96, 192]),
        (Scalar::F8E4M3, Scalar::F32, [128, 64, 96]),
        (Scalar::F8E5M2, Scalar::F32, [96, 64, 128]),
    ] {
        for turned in [true, false] {
            let (x, a) = small(t, [m, k], 0);
            let (y, b) = small(t, if turned { [n, k] } else { [k, n] }, 5);
            let (x, y) = (x.cast(sum), y.cast(sum));
            let got = x.matmul(&if turned { y.t() } else { y }).to_f64().unwrap_or_else(|e| panic!("{t:?}: {e}"));
            assert_eq!(got.len(), m * n);
            for i in (0..m).step_by(m / 31) {
                for j in 0..n {
                    let right = |l: usize| b[if turned { j * k + l } else { l * n + j }];
                    let want: f64 = (0..k).map(|l| a[i * k + l] * right(l)).sum();
                    assert_eq!(got[i * n + j], want, "{t:?}, turned {turned}: row {i}, column {j}");
                }
            }
        }
    }
}
