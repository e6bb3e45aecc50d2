//! Streams against tinygrad's reference values (test_randomness.py, made with JAX), and distributions by their moments.

use super::{close, values};
use doorbell::tensor::prelude::*;

#[test]
fn a_seed_gives_the_stream_of_the_reference() {
    let g = Generator::new(1337);
    let first = [
        0.45735931396484375,
        0.6311527490615845,
        0.15571284294128418,
        0.8149417638778687,
        0.7862188816070557,
        0.8008807897567749,
        0.568588376045227,
        0.9852620363235474,
        0.42314577102661133,
        0.9811755418777466,
        0.38059568405151367,
        0.09186363220214844,
        0.9497315883636475,
        0.5826880931854248,
        0.3796330690383911,
        0.5610522031784058,
        0.16122901439666748,
        0.3732343912124634,
        0.9795231819152832,
        0.3280656337738037,
    ];
    let second = [
        0.09199333190917969,
        0.9130761623382568,
        0.7048608064651489,
        0.22254979610443115,
        0.0014830827713012695,
        0.37023448944091797,
        0.7790107727050781,
        0.7484984397888184,
        0.7524604797363281,
        0.19875383377075195,
        0.48537540435791016,
        0.10002851486206055,
        0.5369305610656738,
        0.3294715881347656,
        0.5246957540512085,
        0.7659651041030884,
        0.7949080467224121,
        0.34988296031951904,
        0.9798505306243896,
        0.2599533796310425,
    ];
    let third = [
        0.3198714256286621,
        0.7984923124313354,
        0.320881724357605,
        0.4716068506240845,
        0.7323365211486816,
        0.9663800001144409,
        0.13873648643493652,
        0.16062307357788086,
        0.49300849437713623,
        0.10077548027038574,
    ];
    let draws = [g.rand([20]), g.rand([20]), g.rand([2, 5])];
    close(&values(&draws[0]), &first, 0.0);
    close(&values(&draws[1]), &second, 0.0);
    close(&values(&draws[2]), &third, 0.0);
}

#[test]
fn the_counter_goes_on_beyond_32_bits() {
    let g = Generator::new(1337);
    let _ = g.rand([1]);
    g.counter().assign(&Tensor::new([u64::from(u32::MAX) - 5]));
    let _ = g.rand([10]);
    close(&values(g.counter()), &[4_294_967_300.0], 0.0);
    let _ = g.rand([10]);
    close(&values(g.counter()), &[4_294_967_310.0], 0.0);
}

fn moments(v: &[f64]) -> (f64, f64) {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    (mean, (v.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / v.len() as f64).sqrt())
}

#[test]
fn distributions_have_their_range_mean_and_deviation() {
    let g = Generator::new(7);
    for dtype in [Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64] {
        let v = values(&g.rand_of([4001], dtype));
        assert!(v.iter().all(|x| (0.0..1.0).contains(x)), "{dtype}");
        let (mean, std) = moments(&v);
        assert!((mean - 0.5).abs() < 0.03 && (std - 0.2887).abs() < 0.02, "{dtype} {mean} {std}");
    }
    let (mean, std) = moments(&values(&g.randn([4000])));
    assert!(mean.abs() < 0.06 && (std - 1.0).abs() < 0.05, "{mean} {std}");
    let v = values(&g.uniform([1000], -3.0, 5.0));
    assert!(v.iter().all(|x| (-3.0..5.0).contains(x)));
    let v = values(&g.randint([1000], -2, 3));
    assert!((-2..3).all(|k| v.contains(&f64::from(k))) && v.iter().all(|x| (-2.0..3.0).contains(x)));
    let mut v = values(&g.randperm(50));
    assert_ne!(v, (0..50).map(f64::from).collect::<Vec<_>>());
    v.sort_by(f64::total_cmp);
    close(&v, &(0..50).map(f64::from).collect::<Vec<_>>(), 0.0);
    let v = values(&Tensor::ones([2000]).dropout(0.25, true));
    let kept = v.iter().filter(|x| **x != 0.0).count();
    assert!((1400..1600).contains(&kept) && v.iter().all(|x| *x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
    let error = g.randint([2], 3, 3).shape().unwrap_err().to_string();
    assert!(error.starts_with("randint: no integer lies in 3..3"), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_numbers_and_draws_differ() {
    let (a, b) = (Generator::new(3), Generator::new(3));
    assert_eq!(values(&a.rand([5])), values(&b.rand([5])));
    assert_ne!(values(&a.rand([5])), values(&a.rand([5])));
    assert_ne!(values(&Generator::new(4).rand([5])), values(&Generator::new(3).rand([5])));
}
