//! Values of every op against plain Rust.

use super::{close, eval, numbers, plain, values};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{Padding, slice};

const EDGES: [f64; 12] = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];

#[track_caller]
fn unary(made: impl Fn(&Tensor) -> Tensor, wanted: impl Fn(f64) -> f64, tolerance: f64) {
    let mut list = EDGES.to_vec();
    list.extend(plain(40, 7).iter().map(|x| x * 4.0));
    let t = Tensor::from_slice(&list, [list.len()]);
    close(&values(&made(&t)), &list.iter().map(|x| wanted(*x)).collect::<Vec<_>>(), tolerance);
}

#[test]
fn rounding_and_signs_hold_at_the_edges() {
    unary(|t| t.floor(), f64::floor, 0.0);
    unary(|t| t.ceil(), f64::ceil, 0.0);
    unary(|t| t.trunc(), f64::trunc, 0.0);
    unary(|t| t.round(), f64::round_ties_even, 0.0);
    unary(|t| t.abs(), f64::abs, 0.0);
    unary(|t| t.sign(), |x| if x.is_nan() || x == 0.0 { x } else { x.signum() }, 0.0);
    unary(|t| t.neg(), |x| -x, 0.0);
    unary(|t| t.square(), |x| x * x, 0.0);
    unary(|t| t.is_nan().cast(Scalar::F32), |x| f64::from(x.is_nan()), 0.0);
    unary(|t| t.is_inf().cast(Scalar::F32), |x| f64::from(x.is_infinite()), 0.0);
    unary(|t| t.is_finite().cast(Scalar::F32), |x| f64::from(x.is_finite()), 0.0);
    unary(|t| t.relu(), |x| if x.is_nan() { x } else { x.max(0.0) }, 0.0);
    unary(|t| t.clamp(-1, 1), |x| x.clamp(-1.0, 1.0), 0.0);
    unary(|t| t.logical_not().cast(Scalar::F32), |x| f64::from(x == 0.0), 0.0);
}

#[test]
fn transcendental_functions_agree_with_the_standard_library() {
    unary(|t| t.exp(), f64::exp, 1e-13);
    unary(|t| t.log(), f64::ln, 1e-13);
    unary(|t| t.log10(), f64::log10, 1e-13);
    unary(|t| t.exp2(), f64::exp2, 0.0);
    unary(|t| t.log2(), f64::log2, 0.0);
    unary(|t| t.sqrt(), f64::sqrt, 0.0);
    unary(|t| t.rsqrt(), |x| 1.0 / x.sqrt(), 1e-14);
    unary(|t| t.sin(), f64::sin, 0.0);
    unary(|t| t.cos(), f64::cos, 1e-14);
    unary(|t| t.tan(), f64::tan, 1e-10);
    unary(|t| t.sinh(), f64::sinh, 1e-12);
    unary(|t| t.cosh(), f64::cosh, 1e-12);
    unary(|t| t.tanh(), f64::tanh, 1e-13);
    unary(|t| t.asin(), f64::asin, 1e-7);
    unary(|t| t.acos(), f64::acos, 1e-7);
    unary(|t| t.atanh(), f64::atanh, 1e-12);
    unary(|t| t.sigmoid(), |x| 1.0 / (1.0 + (-x).exp()), 1e-13);
    unary(|t| t.softplus(), |x| if x > 30.0 { x } else { x.exp().ln_1p() }, 1e-12);
    let x = Tensor::from_slice(&[-3.0, -1.0, -0.2, 0.0, 0.1, 0.9, 2.0, 4.5], [8]);
    let erf = [
        -0.999_977_909_503,
        -0.842_700_792_950,
        -0.222_702_589_211,
        0.0,
        0.112_462_916_018,
        0.796_908_212_423,
        0.995_322_265_019,
        0.999_999_999_803,
    ];
    close(&values(&x.erf()), &erf, 3e-7);
    close(&values(&x.atan()), &[-3.0f64, -1.0, -0.2, 0.0, 0.1, 0.9, 2.0, 4.5].map(f64::atan), 1e-7);
}

#[test]
fn activations_agree_with_their_formulas() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let list = plain(30, 3);
    let t = Tensor::from_slice(&list, [30]);
    let check = |made: Tensor, wanted: &dyn Fn(f64) -> f64| {
        close(&values(&made), &list.iter().map(|x| wanted(*x)).collect::<Vec<_>>(), 1e-6);
    };
    check(t.silu(), &|x| x * sigmoid(x));
    check(t.quick_gelu(), &|x| x * sigmoid(1.702 * x));
    check(t.gelu_tanh(), &|x| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh()));
    check(t.leaky_relu(0.1), &|x| if x < 0.0 { 0.1 * x } else { x });
    check(t.elu(1.5), &|x| if x > 0.0 { x } else { 1.5 * x.exp_m1() });
    check(t.celu(1.5), &|x| if x > 0.0 { x } else { 1.5 * (x / 1.5).exp_m1() });
    check(t.selu(), &|x| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() });
    check(t.mish(), &|x| x * x.exp().ln_1p().tanh());
    check(t.softsign(), &|x| x / (1.0 + x.abs()));
    check(t.log_sigmoid(), &|x| sigmoid(x).ln());
    check(t.hard_swish(), &|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0);
    check(t.relu6(), &|x| x.clamp(0.0, 6.0));
    check(t.asinh(), &f64::asinh);
    check(t.square().add(1).acosh(), &|x| (x * x + 1.0).acosh());
    check(t.logaddexp(&t.neg()), &|x| (x.exp() + (-x).exp()).ln());
}

#[test]
fn half_types_are_computed_wide_and_rounded_once() {
    let list: Vec<f64> = plain(20, 9).iter().map(|x| x * 5.0).collect();
    let t = Tensor::from_slice(&list, [20]).cast(Scalar::F16);
    let wanted: Vec<f64> = values(&t).iter().map(|x| half::f16::from_f64(x.exp()).to_f64()).collect();
    close(&values(&t.exp()), &wanted, 2e-7);
}

#[test]
fn binary_ops_follow_python_on_floats_and_ints() {
    let (a, b) = ([7, -7, 7, -7, 6, 0], [3, 3, -3, -3, 2, 5]);
    let (x, y) = (Tensor::new(a), Tensor::new(b));
    let (fx, fy) = (x.cast(Scalar::F32), y.cast(Scalar::F32));
    close(&values(&x.div_floor(&y)), &[2.0, -3.0, -3.0, 2.0, 3.0, 0.0], 0.0);
    close(&values(&x.div_trunc(&y)), &[2.0, -2.0, -2.0, 2.0, 3.0, 0.0], 0.0);
    close(&values(&(&x % &y)), &[1.0, 2.0, -2.0, -1.0, 0.0, 0.0], 0.0);
    close(&values(&x.fmod(&y)), &[1.0, -1.0, 1.0, -1.0, 0.0, 0.0], 0.0);
    for (int, float) in [(x.div_floor(&y), fx.div_floor(&fy)), (&x % &y, &fx % &fy), (x.fmod(&y), fx.fmod(&fy))] {
        close(&values(&float), &values(&int), 0.0);
    }
    close(&values(&(&x / &y)), &[7.0 / 3.0, -7.0 / 3.0, -7.0 / 3.0, 7.0 / 3.0, 3.0, 0.0], 1e-7);
    close(&values(&x.minimum(&y)), &[3.0, -7.0, -3.0, -7.0, 2.0, 0.0], 0.0);
    close(&values(&x.maximum(0)), &[7.0, 0.0, 7.0, 0.0, 6.0, 0.0], 0.0);
    close(&values(&(2.0 - &fx)), &[-5.0, 9.0, -5.0, 9.0, -4.0, 2.0], 0.0);
    close(&values(&fx.pow(2)), &[49.0, 49.0, 49.0, 49.0, 36.0, 0.0], 0.0);
    close(&values(&fx.pow(-1.0)), &[1.0 / 7.0, -1.0 / 7.0, 1.0 / 7.0, -1.0 / 7.0, 1.0 / 6.0, f64::INFINITY], 1e-7);
    close(&values(&x.pow(3)), &[343.0, -343.0, 343.0, -343.0, 216.0, 0.0], 0.0);
    close(&values(&fx.pow(0)), &[1.0; 6], 0.0);
    close(&values(&(&x & 3)), &[3.0, 1.0, 3.0, 1.0, 2.0, 0.0], 0.0);
    close(&values(&(&x << 2)), &[28.0, -28.0, 28.0, -28.0, 24.0, 0.0], 0.0);
    close(&values(&(&x >> 1)), &[3.0, -4.0, 3.0, -4.0, 3.0, 0.0], 0.0);
    close(&values(&!&x), &[-8.0, 6.0, -8.0, 6.0, -7.0, -1.0], 0.0);
    close(&values(&x.ge(&y)), &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0], 0.0);
    close(&values(&x.le(6)), &[0.0, 1.0, 0.0, 1.0, 1.0, 1.0], 0.0);
    let nan = Tensor::new([f32::NAN, 1.0]);
    close(&values(&nan.ge(1)), &[0.0, 1.0], 0.0);
    close(&values(&nan.le(1)), &[0.0, 1.0], 0.0);
    close(&values(&nan.minimum(5)), &[f64::NAN, 1.0], 0.0);
    close(&values(&Tensor::new([1.0f32, -2.0]).copysign(&Tensor::new([-0.0f32, 3.0]))), &[-1.0, 2.0], 0.0);
    close(&values(&Tensor::new([250u8, 3]).add(10)), &[4.0, 13.0], 0.0);
    close(
        &values(&Tensor::new([1.0f32, f32::INFINITY, 2.0]).is_close(
            &Tensor::new([1.0f32, f32::INFINITY, 2.1]),
            1e-5,
            1e-8,
        )),
        &[1.0, 1.0, 0.0],
        0.0,
    );
}

#[test]
fn creation_gives_the_numbers_it_says() {
    close(&values(&Tensor::arange(4)), &[0.0, 1.0, 2.0, 3.0], 0.0);
    close(&values(&Tensor::arange_step(5.0, -4.0, -3.0)), &[5.0, 2.0, -1.0], 0.0);
    close(&values(&Tensor::arange_step(0.0, 1.0, 0.25)), &[0.0, 0.25, 0.5, 0.75], 0.0);
    close(&values(&Tensor::linspace(1.0, 2.0, 5)), &[1.0, 1.25, 1.5, 1.75, 2.0], 0.0);
    assert_eq!(eval(&Tensor::eye(2, 3)), (vec![2, 3], vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0]));
    assert_eq!(eval(&Tensor::full([2, 2], 7)), (vec![2, 2], vec![7.0; 4]));
    assert_eq!(eval(&Tensor::new([[1.5f32, 2.5]]).ones_like()), (vec![1, 2], vec![1.0; 2]));
    assert_eq!(eval(&Tensor::new([[true, false], [false, true]])), (vec![2, 2], vec![1.0, 0.0, 0.0, 1.0]));
    assert_eq!(eval(&Tensor::arange(0)), (vec![0], vec![]));
    assert_eq!(eval(&Tensor::new(3.5f32)), (vec![], vec![3.5]));
}

#[test]
fn movement_puts_elements_where_numpy_puts_them() {
    let x = Tensor::arange(6).reshape([2, 3]);
    let is = |t: Tensor, want: &[f64]| close(&values(&t), want, 0.0);
    is(x.t(), &[0., 3., 1., 4., 2., 5.]);
    is(x.flip(1), &[2., 1., 0., 5., 4., 3.]);
    is(x.pad(&[(1, 0), (0, 1)]), &[0., 0., 0., 0., 0., 1., 2., 0., 3., 4., 5., 0.]);
    is(x.pad_value(&[(0, 0), (-1, 1)], 9i64), &[1., 2., 9., 4., 5., 9.]);
    is(x.pad_mode(&[(0, 0), (2, 1)], PadMode::Reflect), &[2., 1., 0., 1., 2., 1., 5., 4., 3., 4., 5., 4.]);
    is(x.pad_mode(&[(0, 0), (2, 1)], PadMode::Replicate), &[0., 0., 0., 1., 2., 2., 3., 3., 3., 4., 5., 5.]);
    is(x.pad_mode(&[(0, 0), (2, 1)], PadMode::Circular), &[1., 2., 0., 1., 2., 0., 4., 5., 3., 4., 5., 3.]);
    is(x.shrink(&[(0, 1), (1, 3)]), &[1., 2.]);
    is(x.roll(1, 1), &[2., 0., 1., 5., 3., 4.]);
    is(x.roll(-1, 0), &[3., 4., 5., 0., 1., 2.]);
    is(
        x.repeat(&[2, 2]),
        &[0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5., 0., 1., 2., 0., 1., 2., 3., 4., 5., 3., 4., 5.],
    );
    is(x.repeat_interleave(2, 1), &[0., 0., 1., 1., 2., 2., 3., 3., 4., 4., 5., 5.]);
    is(Tensor::cat(&[&x, &(&x + 10)], 1), &[0., 1., 2., 10., 11., 12., 3., 4., 5., 13., 14., 15.]);
    is(
        Tensor::cat(&[&x, &x, &(&x * 2)], 0),
        &[0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5., 0., 2., 4., 6., 8., 10.],
    );
    is(Tensor::stack(&[&x, &(&x + 10)], 2), &[0., 10., 1., 11., 2., 12., 3., 13., 4., 14., 5., 15.]);
    is(Tensor::new([1, 2]).diag(), &[1., 0., 0., 2.]);
    is(x.diagonal(0, 0, 1), &[0., 4.]);
    is(x.diagonal(1, 0, 1), &[1., 5.]);
    is(x.diagonal(-1, 0, 1), &[3.]);
    is(x.tril(0), &[0., 0., 0., 3., 4., 0.]);
    is(x.triu(1), &[0., 1., 2., 0., 0., 5.]);
    is(Tensor::new([2, 0]).one_hot(3), &[0., 0., 1., 1., 0., 0.]);
    let g = Tensor::meshgrid(&[&Tensor::new([1, 2]), &Tensor::new([3, 4, 5])]);
    is(g[0].clone(), &[1., 1., 1., 2., 2., 2.]);
    is(g[1].clone(), &[3., 4., 5., 3., 4., 5.]);
    is(Tensor::arange(7).unfold(0, 3, 2), &[0., 1., 2., 2., 3., 4., 4., 5., 6.]);
    is(Tensor::arange(5).unfold(0, 2, 3), &[0., 1., 3., 4.]);
    is(x.split(&[1, 2], 1)[1].clone(), &[1., 2., 4., 5.]);
    is(Tensor::cat(&[&Tensor::new([-0.0f32]), &Tensor::new([f32::NAN])], 0).recip(), &[f64::NEG_INFINITY, f64::NAN]);
}

#[test]
fn reductions_agree_with_sums_by_hand() {
    let v = plain(24, 5);
    let x = numbers(&[2, 3, 4], 5);
    let at = |i: usize, j: usize, k: usize| v[i * 12 + j * 4 + k];
    let rows = |f: &dyn Fn(&[f64]) -> f64| -> Vec<f64> { (0..6).map(|r| f(&v[r * 4..r * 4 + 4])).collect() };
    close(&values(&x.sum(-1)), &rows(&|r| r.iter().sum()), 1e-14);
    close(&values(&x.prod(2)), &rows(&|r| r.iter().product()), 1e-14);
    close(&values(&x.max(2)), &rows(&|r| r.iter().copied().fold(f64::MIN, f64::max)), 0.0);
    close(&values(&x.min(2)), &rows(&|r| r.iter().copied().fold(f64::MAX, f64::min)), 0.0);
    close(&values(&x.mean(2)), &rows(&|r| r.iter().sum::<f64>() / 4.0), 1e-14);
    let var = |r: &[f64], c: f64| {
        let m = r.iter().sum::<f64>() / 4.0;
        r.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (4.0 - c)
    };
    close(&values(&x.var(2, 1)), &rows(&|r| var(r, 1.0)), 1e-13);
    close(&values(&x.std(2, 0)), &rows(&|r| var(r, 0.0).sqrt()), 1e-13);
    let arg = |r: &[f64], s: f64| (0..4).fold(0, |b, k| if r[k] * s > r[b] * s { k } else { b }) as f64;
    close(&values(&x.argmax(2)), &rows(&|r| arg(r, 1.0)), 0.0);
    close(&values(&x.argmin(2)), &rows(&|r| arg(r, -1.0)), 0.0);
    close(&values(&x.logsumexp(2)), &rows(&|r| r.iter().map(|x| x.exp()).sum::<f64>().ln()), 1e-13);
    let soft: Vec<f64> = (0..6)
        .flat_map(|r| {
            let e: Vec<f64> = v[r * 4..r * 4 + 4].iter().map(|x| x.exp()).collect();
            let s: f64 = e.iter().sum();
            e.into_iter().map(move |x| x / s)
        })
        .collect();
    close(&values(&x.softmax(-1)), &soft, 1e-13);
    close(&values(&x.log_softmax(-1)), &soft.iter().map(|x| x.ln()).collect::<Vec<_>>(), 1e-12);
    let both: Vec<f64> =
        (0..3).map(|j| (0..2).flat_map(|i| (0..4).map(move |k| (i, k))).map(|(i, k)| at(i, j, k)).sum()).collect();
    close(&values(&x.sum([0, 2])), &both, 1e-14);
    assert_eq!(eval(&x.sum_keep([0, 2])).0, [1, 3, 1]);
    assert_eq!(eval(&x.sum(())).0, Vec::<usize>::new());
    let cumulative = |op: &dyn Fn(f64, f64) -> f64| -> Vec<f64> {
        (0..24)
            .map(|f| {
                let (i, j, k) = (f / 12, f / 4 % 3, f % 4);
                (0..j + 1).map(|j| at(i, j, k)).reduce(op).unwrap()
            })
            .collect()
    };
    close(&values(&x.cumsum(1)), &cumulative(&|a, b| a + b), 1e-14);
    close(&values(&x.cumprod(1)), &cumulative(&|a, b| a * b), 1e-14);
    close(&values(&x.cummax(1).0), &cumulative(&f64::max), 0.0);
    close(&values(&x.cummin(1).0), &cumulative(&f64::min), 0.0);
}

#[test]
fn reductions_of_small_types_ints_and_nothing() {
    close(&values(&Tensor::new([200u8, 100]).sum(())), &[300.0], 0.0);
    close(&values(&Tensor::new([true, true, false]).sum(())), &[2.0], 0.0);
    close(&values(&Tensor::new([3, -5, 4]).min(())), &[-5.0], 0.0);
    close(&values(&Tensor::new([3u8, 5, 4]).min(())), &[3.0], 0.0);
    close(&values(&Tensor::new([i32::MIN, 0]).min(())), &[i32::MIN as f64], 0.0);
    close(&values(&Tensor::new([true, false]).all(())), &[0.0], 0.0);
    close(&values(&Tensor::new([true, false]).any(())), &[1.0], 0.0);
    close(&values(&Tensor::new([true, false]).min(())), &[0.0], 0.0);
    close(&values(&Tensor::zeros([0, 3]).sum(0)), &[0.0; 3], 0.0);
    close(&values(&Tensor::zeros([0]).prod(())), &[1.0], 0.0);
    close(&values(&Tensor::new([1.0f32, f32::NAN, 3.0]).max(())), &[f64::NAN], 0.0);
    close(&values(&Tensor::new([1.0f32, f32::NAN, 3.0]).argmax(0)), &[1.0], 0.0);
    close(&values(&Tensor::new([2, 2, 1]).argmax(0)), &[0.0], 0.0);
    close(&values(&Tensor::new([f32::NEG_INFINITY; 2]).logsumexp(())), &[f64::NEG_INFINITY], 0.0);
    let halves = Tensor::full_of([5000], 1.0, Scalar::F16);
    close(&values(&halves.sum(())), &[5000.0], 0.0);
}

#[test]
fn matmul_agrees_with_three_loops() {
    for (a, b) in [
        (vec![2, 3], vec![3, 4]),
        (vec![2, 5, 3], vec![3, 4]),
        (vec![3, 1, 2, 3], vec![2, 3, 2]),
        (vec![3], vec![3, 2]),
        (vec![4, 3], vec![3]),
        (vec![3], vec![3]),
    ] {
        let (x, y) = (numbers(&a, 1), numbers(&b, 2));
        let (xa, yb) = (plain(a.iter().product(), 1), plain(b.iter().product(), 2));
        let (shape, found) = eval(&x.matmul(&y));
        let (m, k) = if a.len() == 1 { (1, a[0]) } else { (a[a.len() - 2], a[a.len() - 1]) };
        let n = if b.len() == 1 { 1 } else { b[b.len() - 1] };
        let batch: usize = shape.iter().product::<usize>() / (m * n);
        let (ba, bb) = (xa.len() / (m * k), yb.len() / (k * n));
        // Batches of these cases: one side has one, or (3, 1) is broadcast with (2).
        let pick = |t: usize| if ba == 3 && bb == 2 { (t / 2, t % 2) } else { (t % ba, t % bb) };
        let mut want = Vec::new();
        for t in 0..batch {
            let (p, q) = pick(t);
            for i in 0..m {
                for j in 0..n {
                    want.push((0..k).map(|l| xa[p * m * k + i * k + l] * yb[q * k * n + l * n + j]).sum());
                }
            }
        }
        close(&found, &want, 1e-13);
    }
}

fn conv_by_hand(x: &[f64], xs: [usize; 4], w: &[f64], ws: [usize; 4], how: Conv) -> Vec<f64> {
    let [n, cin, h, wd] = xs;
    let [cout, cg, kh, kw] = ws;
    let Padding::Counts(padding) = how.padding else { panic!("padding by counts") };
    let padding: Vec<(usize, usize)> =
        padding.over(2, "").unwrap().iter().map(|(a, b)| (*a as usize, *b as usize)).collect();
    let (stride, dilation) = (how.stride.over(2, "").unwrap(), how.dilation.over(2, "").unwrap());
    let size = |len: usize, k: usize, a: usize| {
        let (p, q) = padding[a];
        (len + p + q - (k - 1) * dilation[a] - 1) / stride[a] + 1
    };
    let (oh, ow) = (size(h, kh, 0), size(wd, kw, 1));
    let mut out = Vec::new();
    for b in 0..n {
        for o in 0..cout {
            let g = o / (cout / how.groups);
            for i in 0..oh {
                for j in 0..ow {
                    let mut s = 0.0;
                    for c in 0..cg {
                        for p in 0..kh {
                            for q in 0..kw {
                                let y = (i * stride[0] + p * dilation[0]).wrapping_sub(padding[0].0);
                                let z = (j * stride[1] + q * dilation[1]).wrapping_sub(padding[1].0);
                                if y < h && z < wd {
                                    s += x[((b * cin + g * cg + c) * h + y) * wd + z]
                                        * w[((o * cg + c) * kh + p) * kw + q];
                                }
                            }
                        }
                    }
                    out.push(s);
                }
            }
        }
    }
    out
}

#[test]
fn conv2d_agrees_with_seven_loops() {
    let cases = [
        ([2, 3, 5, 6], [4, 3, 3, 3], Conv::default()),
        ([1, 2, 7, 7], [2, 2, 3, 2], Conv::padded(1).strided(2)),
        ([1, 4, 6, 6], [6, 2, 3, 3], Conv::padded(1).grouped(2)),
        ([1, 3, 9, 8], [3, 1, 2, 3], Conv::default().grouped(3).dilated([2, 3])),
        ([1, 1, 8, 9], [1, 1, 2, 2], Conv::padded([(1, 0), (0, 2)]).strided([3, 2]).dilated([2, 1])),
        ([1, 1, 5, 5], [2, 1, 1, 1], Conv::default().strided(2)),
        ([1, 1, 5, 5], [1, 1, 5, 5], Conv::default()),
    ];
    for (xs, ws, how) in cases {
        let found = values(&numbers(&xs, 11).conv2d(&numbers(&ws, 12), None, how));
        let want = conv_by_hand(&plain(xs.iter().product(), 11), xs, &plain(ws.iter().product(), 12), ws, how);
        close(&found, &want, 1e-12);
    }
    let (x, w, b) = (numbers(&[1, 1, 3, 3], 1), numbers(&[2, 1, 2, 2], 2), Tensor::new([10.0f64, 20.0]));
    let plainly = values(&x.conv2d(&w, None, Conv::default()));
    let biased: Vec<f64> = plainly.iter().enumerate().map(|(k, v)| v + if k < 4 { 10.0 } else { 20.0 }).collect();
    close(&values(&x.conv2d(&w, Some(&b), Conv::default())), &biased, 1e-14);
}

#[test]
fn pooling_agrees_with_windows_by_hand() {
    let x = Tensor::arange(16).reshape([1, 1, 4, 4]).cast(Scalar::F32);
    close(&values(&x.max_pool2d(Pool::square(2))), &[5., 7., 13., 15.], 0.0);
    close(&values(&x.avg_pool2d(Pool::square(2))), &[2.5, 4.5, 10.5, 12.5], 0.0);
    let overlap = Pool::square(3).strided(1);
    close(&values(&x.max_pool2d(overlap)), &[10., 11., 14., 15.], 0.0);
    let padded = Pool::square(2).padded(1);
    close(&values(&x.max_pool2d(padded)), &[0., 2., 3., 8., 10., 11., 12., 14., 15.], 0.0);
    close(&values(&x.neg().max_pool2d(padded))[..3], &[0., -1., -3.], 0.0);
    close(&values(&x.avg_pool2d(padded))[..3], &[0.0, 0.75, 0.75], 0.0);
    let uncounted = Pool { count_padding: false, ..padded };
    close(&values(&x.avg_pool2d(uncounted))[..3], &[0.0, 1.5, 3.0], 0.0);
    let ceil = Pool::square(3).ceiled();
    close(&values(&x.max_pool2d(ceil)), &[10., 11., 14., 15.], 0.0);
    close(&values(&x.avg_pool2d(ceil)), &[5., 7., 13., 15.], 1e-7);
}

#[test]
fn losses_agree_with_their_formulas() {
    let v = plain(12, 21);
    let x = numbers(&[4, 3], 21);
    let labels = [2usize, 0, 1, 1];
    let y = Tensor::new(labels.map(|l| l as i32));
    let logp: Vec<f64> = (0..4)
        .flat_map(|r| {
            let row = &v[r * 3..r * 3 + 3];
            let z = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            row.iter().map(move |x| x - z).collect::<Vec<_>>()
        })
        .collect();
    let nll = -(0..4).map(|r| logp[r * 3 + labels[r]]).sum::<f64>() / 4.0;
    close(&values(&x.sparse_categorical_crossentropy(&y)), &[nll], 1e-13);
    close(&values(&x.cross_entropy(&y)), &[nll], 1e-13);
    close(&values(&x.log_softmax(1).nll_loss(&y)), &[nll], 1e-13);
    close(&values(&x.cross_entropy(&y.one_hot(3).cast(Scalar::F64))), &[nll], 1e-13);
    let ignored = -(0..2).map(|r| logp[r * 3 + labels[r]]).sum::<f64>() / 2.0;
    close(&values(&x.sparse_categorical_crossentropy_with(&y, CrossEntropy::new().ignore(1))), &[ignored], 1e-12);
    let smooth = 0.8 * nll - 0.2 * logp.iter().sum::<f64>() / 12.0;
    close(&values(&x.sparse_categorical_crossentropy_with(&y, CrossEntropy::new().smoothing(0.2))), &[smooth], 1e-12);
    let p = x.sigmoid();
    let t = Tensor::new([[1.0f64, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    let (a, b) = (values(&p.binary_crossentropy(&t)), values(&x.binary_crossentropy_logits(&t)));
    close(&a, &b, 1e-12);
    close(&values(&x.mse_loss(&x.add(2.0))), &[4.0], 1e-13);
}

#[test]
fn norms_have_mean_zero_and_variance_one() {
    let x = numbers(&[3, 8], 31).mul(3).add(1);
    let y = x.layernorm(-1, 0.0);
    close(&values(&y.mean(1)), &[0.0; 3], 1e-13);
    close(&values(&y.var(1, 0)), &[1.0; 3], 1e-12);
    close(&values(&x.rmsnorm(-1, 0.0).square().mean(1)), &[1.0; 3], 1e-12);
    let (q, k, v) = (numbers(&[2, 4, 3], 1), numbers(&[2, 4, 3], 2), numbers(&[2, 4, 5], 3));
    let causal = q.attention(&k, &v, None, true);
    close(&values(&causal.get((.., 0))), &values(&v.get((.., 0))), 1e-7);
    assert_eq!(eval(&causal.get((.., slice(0, 2, 1)))).0, [2, 2, 5]);
}

#[test]
fn casts_and_bitcasts_keep_value_or_bits() {
    close(&values(&Tensor::new([1.7f32, -1.7]).cast(Scalar::I32)), &[1.0, -1.0], 0.0);
    close(&values(&Tensor::new([-1i32]).cast(Scalar::U8)), &[255.0], 0.0);
    close(&values(&Tensor::new([0.0f32, 0.3]).cast(Scalar::Bool)), &[0.0, 1.0], 0.0);
    close(&values(&Tensor::new([1.0f32]).bitcast(Scalar::U32)), &[f64::from(1.0f32.to_bits())], 0.0);
}

#[test]
fn sizes_bound_to_a_variable_give_the_values_of_that_length() {
    let x = Tensor::arange(8).reshape([8, 1]).cast(Scalar::F32).expand([8, 2]);
    let n = Variable::new("n", 1, 8);
    for len in [1i64, 4, 8] {
        let part = x.get((..n.bind(len),));
        let total = (0..len).sum::<i64>() as f64;
        close(&values(&part.sum(0)), &[total; 2], 0.0);
        close(&values(&part.mean(0)), &[total / len as f64; 2], 1e-7);
        close(&values(&Tensor::arange(n.bind(len)).sum(())), &[total], 0.0);
        let i = Variable::new("i", 0, 7).bind(len - 1);
        close(&values(&x.get(i)), &[(len - 1) as f64; 2], 0.0);
    }
}

#[test]
fn long_running_sums_are_the_same_as_short_ones() {
    let v = plain(1300, 3);
    let x = Tensor::from_slice(&v, [1300]);
    let mut total = 0.0;
    let want: Vec<f64> = v
        .iter()
        .map(|e| {
            total += e;
            total
        })
        .collect();
    close(&values(&x.cumsum(0)), &want, 1e-12);
    let mut top = f64::MIN;
    let want: Vec<f64> = v
        .iter()
        .map(|e| {
            top = top.max(*e);
            top
        })
        .collect();
    close(&values(&x.cummax(0).0), &want, 0.0);
    let ints = Tensor::ones([2, 700]).cast(Scalar::I32).cumsum(1);
    close(&values(&ints)[699..701], &[700.0, 1.0], 0.0);
}

#[test]
fn einsum_agrees_with_the_ops_it_stands_for() {
    let (a, b, c) = (numbers(&[2, 3, 4], 1), numbers(&[2, 4, 5], 2), numbers(&[4, 4], 3));
    let same = |formula: &str, list: &[&Tensor], want: Tensor| {
        let (found, want) = (eval(&Tensor::einsum(formula, list)), eval(&want));
        assert_eq!(found.0, want.0, "{formula}");
        close(&found.1, &want.1, 1e-13);
    };
    same("bij,bjk->bik", &[&a, &b], a.matmul(&b));
    same("bij,bjk", &[&a, &b], a.matmul(&b).sum(0));
    same("...ij,...jk->...ik", &[&a, &b], a.matmul(&b));
    same("ij->ji", &[&c], c.t());
    same("ii->i", &[&c], c.diagonal(0, 0, 1));
    same("ii", &[&c], c.diagonal(0, 0, 1).sum(()));
    same("abc->b", &[&a], a.sum([0, 2]));
    same("bij,jj,bjk->ki", &[&a, &c, &b], (&a * c.diagonal(0, 0, 1)).matmul(&b).sum(0).t());
    for (formula, text) in [
        ("ij,jk->ik", "einsum: 'ij' does not name the axes of rank 3"),
        ("bij->bij", "einsum: 'bij->bij' has 1 operands, not 2"),
        ("bij,bjk->z", "einsum: 'z' of the result is not an axis of one operand"),
        ("bi1,bjk->i", "einsum: '1' in 'bi1' is not a letter"),
        ("bij,bik->jk", "einsum: shapes"),
    ] {
        let error = Tensor::einsum(formula, &[&a, &b]).shape().unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn one_element_of_a_repeated_one_is_read() {
    let x = Tensor::new([[3i64, 4]]);
    let y = x.repeat_interleave(2, 0).shrink(&[(1, 2), (0, 1)]);
    assert_eq!(y.contiguous().realize().unwrap().to_vec::<i64>().unwrap(), [3]);
    let z = Tensor::new([[1i64, 2, 3], [4, 5, 6]]);
    z.realize().unwrap();
    assert_eq!(z.t().reshape([6]).shrink(&[(1, 2)]).to_vec::<i64>().unwrap(), [4]);
}

#[test]
fn a_divisor_that_is_one_or_zero_is_no_safe_divisor() {
    // The padded ones look like what guards a division.
    let x = Tensor::full([3], 1i32).pad(&[(1, 1)]);
    assert_eq!(x.div_trunc(&x).to_vec::<i32>().unwrap(), [0, 1, 1, 1, 0]);
    assert_eq!(x.div_floor(&x).to_vec::<i32>().unwrap(), [0, 1, 1, 1, 0]);
    let i = Tensor::arange(5).cast(Scalar::I64);
    let kept = i.fmod(&i.sign());
    assert_eq!(kept.to_vec::<i64>().unwrap(), [0; 5]);
    let (one, many) = (Tensor::new([[0i64], [3]]), Tensor::arange(3));
    assert_eq!(many.fmod(&one).div_floor(&one).to_vec::<i64>().unwrap(), [0; 6]);
}
