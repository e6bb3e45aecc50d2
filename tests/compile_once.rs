//! Equal kernels compile once: for new data, and for every value of a variable size. One test alone in its process, so
//! that the count of compilations is its own.

use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;

#[test]
fn equal_kernels_compile_once_and_one_set_serves_every_length_of_a_variable() {
    let run = |k: f32| (Tensor::from_slice(&[k, 2.0, 3.0], [3]) * 3.0).to_vec::<f32>().unwrap();
    run(1.0);
    assert_eq!(run(9.0)[0], 27.0);
    assert_eq!(doorbell::engine::session().unwrap().counters.totals().compiled, 1);
    let n = Variable::new("n_of_one_set", 4, 8);
    let data = [1.0f32, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let base = Tensor::from_slice(&data, [8]);
    base.realize().unwrap();
    let kernels = || doorbell::engine::session().unwrap().counters.totals().compiled;
    let mut compiled = Vec::new();
    for len in 4..=8usize {
        let x = base.shrink(&[(UOp::int(0), n.bind(len as i64))]);
        let got = [x.sum(()), x.mean(()), x.var((), 1), x.std((), 1)].map(|t| t.item().unwrap());
        let v: Vec<f64> = data[..len].iter().map(|x| f64::from(*x)).collect();
        let mean = v.iter().sum::<f64>() / len as f64;
        let var = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (len - 1) as f64;
        for (g, w) in got.into_iter().zip([mean * len as f64, mean, var, var.sqrt()]) {
            assert!((g - w).abs() < 1e-4 * w.abs(), "length {len}: {g} {w}");
        }
        compiled.push(kernels());
    }
    assert!(compiled.iter().all(|c| *c == compiled[0]), "{compiled:?}");
}
