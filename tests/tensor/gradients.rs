//! Gradients of every op against central differences in f64.

use super::{close, plain, values};
use doorbell::tensor::prelude::*;

/// Compares the gradient of `sum(f(xs) * weights)` with differences of the interpreter's values.
#[track_caller]
fn check(shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Tensor) {
    check_at(
        shapes,
        &shapes.iter().enumerate().map(|(k, s)| plain(s.iter().product(), 100 + k as u64)).collect::<Vec<_>>(),
        f,
    );
}

#[track_caller]
fn check_at(shapes: &[&[usize]], data: &[Vec<f64>], f: impl Fn(&[Tensor]) -> Tensor) {
    let inputs = |data: &[Vec<f64>]| -> Vec<Tensor> {
        data.iter().zip(shapes).map(|(v, s)| Tensor::from_slice(v, *s)).collect()
    };
    let scalar = |xs: &[Tensor]| {
        let y = f(xs);
        let n: usize =
            y.shape().unwrap_or_else(|e| panic!("{e}")).iter().map(|d| d.as_int().unwrap() as usize).product();
        let shape = y.shape().unwrap();
        let w = Tensor::from_slice(&plain(n, 999), [n]).reshape(shape);
        y.cast(Scalar::F64).mul(&w).sum(())
    };
    let xs = inputs(data);
    let grads = scalar(&xs).gradient(&xs.iter().collect::<Vec<_>>());
    let h = 1e-6;
    for (k, v) in data.iter().enumerate() {
        let found = values(&grads[k]);
        let wanted: Vec<f64> = (0..v.len())
            .map(|i| {
                let moved = |d: f64| {
                    let mut data = data.to_vec();
                    data[k][i] += d;
                    values(&scalar(&inputs(&data)))[0]
                };
                (moved(h) - moved(-h)) / (2.0 * h)
            })
            .collect();
        close(&found, &wanted, 2e-6);
    }
}

#[test]
fn elementwise_gradients_agree_with_differences() {
    let (s, t): (&[usize], &[usize]) = (&[3, 2], &[2]);
    check(&[s, t], |x| &x[0] + &x[1]);
    check(&[s, t], |x| &x[0] - &x[1]);
    check(&[s, t], |x| &x[0] * &x[1]);
    check(&[s, t], |x| &x[0] / &x[1]);
    check(&[s, t], |x| x[0].maximum(&x[1]));
    check(&[s, t], |x| x[0].minimum(&x[1]));
    check(&[s, t], |x| x[0].lt(&x[1]).where_(&x[0].square(), &x[1]));
    check(&[s, t], |x| x[0].square().add(0.1).pow(&x[1]));
    check(&[s, t], |x| x[0].logaddexp(&x[1]));
    check(&[s, t], |x| x[0].fmod(&x[1].square().add(1)));
    check(&[s], |x| x[0].pow(3));
    check(&[s], |x| x[0].pow(-2));
    check(&[s], |x| -&x[0]);
    check(&[s], |x| x[0].recip());
    check(&[s], |x| x[0].square().sqrt());
    check(&[s], |x| x[0].exp2());
    check(&[s], |x| x[0].square().add(0.2).log2());
    check(&[s], |x| x[0].sin().cos().tan());
    check(&[s], |x| x[0].abs());
    check(&[s], |x| x[0].clamp(-1, 1));
    check(&[s], |x| x[0].trunc().add(&x[0].floor()).add(&x[0].round()).add(&x[0]));
    check(&[s], |x| x[0].exp().add(&x[0].square().add(1).log()));
    check(&[s], |x| x[0].relu().add(&x[0].relu6()));
    check(&[s], |x| x[0].sigmoid().add(&x[0].tanh()));
    check(&[s], |x| x[0].silu() + x[0].gelu_tanh() + x[0].quick_gelu());
    check(&[s], |x| x[0].softplus() + x[0].mish() + x[0].log_sigmoid());
    check(&[s], |x| x[0].elu(1.2) + x[0].celu(0.7) + x[0].selu() + x[0].softsign());
    check(&[s], |x| x[0].leaky_relu(0.2) + x[0].hard_swish() + x[0].hard_sigmoid());
    check(&[s], |x| x[0].mul(0.4).asin() + x[0].mul(0.4).atanh() + x[0].atan() + x[0].asinh());
    check(&[s], |x| x[0].sinh() + x[0].cosh() + x[0].square().add(1.5).acosh());
    check(&[s], |x| x[0].contiguous().contiguous_backward());
    check(&[s, t], |x| x[0].masked_fill(&x[0].gt(0), 3.0).lerp(&x[1], 0.3));
}

#[test]
fn movement_gradients_agree_with_differences() {
    let s: &[usize] = &[2, 3, 4];
    check(&[s], |x| x[0].permute([2, 0, 1]).reshape([4, 6]).flip(1));
    check(&[s], |x| x[0].pad(&[(1, 0), (0, 2), (-1, 1)]));
    check(&[s], |x| x[0].pad_mode(&[(0, 0), (1, 2), (2, 1)], PadMode::Reflect));
    check(&[s], |x| x[0].pad_mode(&[(0, 0), (1, 2), (2, 1)], PadMode::Replicate));
    check(&[s], |x| x[0].pad_mode(&[(0, 0), (1, 2), (2, 1)], PadMode::Circular));
    check(&[s], |x| x[0].shrink(&[(0, 1), (1, 3), (0, 4)]));
    check(&[s], |x| x[0].unsqueeze(1).expand([2, 5, 3, 4]));
    check(&[s, &[2, 1, 4]], |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 1));
    check(&[&[1, 2], &[1, 2]], |x| Tensor::cat(&[[&x[0]; 10], [&x[1]; 10]].concat(), 0));
    check(&[s], |x| x[0].repeat(&[2, 1, 2]) + x[0].repeat_interleave(2, 0).repeat_interleave(2, 2).flip(2));
    check(&[s], |x| x[0].roll(1, 2).unfold(2, 2, 1));
    check(&[s], |x| x[0].diagonal(1, 1, 2));
    check(&[&[3]], |x| x[0].diag());
    check(&[s], |x| x[0].get((1, .., doorbell::tensor::slice(None, None, -2))));
    check(&[s], |x| x[0].get((.., &Tensor::new([2, 0, 2]), 1)));
    check(&[s], |x| x[0].gather(1, &Tensor::new([[[1, 0, 2, 0]], [[0, 0, 1, 1]]])));
    check(&[s], |x| x[0].tril(0) + x[0].triu(1));
}

#[test]
fn reduction_gradients_agree_with_differences() {
    let s: &[usize] = &[2, 3, 4];
    check(&[s], |x| x[0].sum([0, 2]));
    check(&[s], |x| x[0].prod(1));
    check(&[s], |x| x[0].max(2));
    check(&[s], |x| x[0].min([1, 2]));
    check(&[s], |x| x[0].mean(()));
    check(&[s], |x| x[0].var(1, 1) + x[0].std(1, 0));
    check(&[s], |x| x[0].softmax(1));
    check(&[s], |x| x[0].log_softmax(-1));
    check(&[s], |x| x[0].logsumexp([0, 1]));
    check(&[s], |x| x[0].cumsum(1) + x[0].cumprod(2) + x[0].cummax(1).0);
    check(&[s], |x| x[0].layernorm([-1, -2], 1e-5) + x[0].rmsnorm(-1, 1e-6));
    let zeros = vec![0.0, 2.0, 0.0, 0.0, 3.0, 4.0];
    check_at(&[&[3, 2]], &[zeros], |x| x[0].prod(1));
}

#[test]
fn product_gradients_agree_with_differences() {
    check(&[&[2, 3], &[3, 4]], |x| x[0].matmul(&x[1]));
    check(&[&[3, 1, 2, 3], &[2, 3, 2]], |x| x[0].matmul(&x[1]));
    check(&[&[3], &[3]], |x| x[0].dot(&x[1]));
    check(&[&[2, 3], &[4, 3], &[4]], |x| x[0].linear(&x[1], Some(&x[2])));
    check(&[&[1, 2, 4, 4], &[4, 1, 3, 2], &[4]], |x| {
        x[0].conv2d(&x[1], Some(&x[2]), Conv::padded(1).strided(2).grouped(2))
    });
    check(&[&[1, 1, 5, 5], &[1, 1, 2, 2]], |x| x[0].conv2d(&x[1], None, Conv::default().dilated([2, 1])));
    check(&[&[1, 2, 4, 4]], |x| x[0].max_pool2d(Pool::square(2).strided([1, 2])));
    check(&[&[1, 2, 5, 4]], |x| x[0].avg_pool2d(Pool::square(2).padded([(1, 0), (0, 1)])));
    check(&[&[1, 2, 5], &[2, 3, 3]], |x| x[0].conv_transpose(&x[1], None, Conv::padded(1).strided(2)));
    check(&[&[1, 1, 5, 4]], |x| x[0].adaptive_avg_pool2d([3, 2]) + x[0].adaptive_max_pool2d([3, 2]));
    check(&[&[1, 1, 3, 4]], |x| x[0].interpolate(Resize::to([5, 3], ResizeMode::Bilinear)));
    check(&[&[1, 1, 3, 4]], |x| x[0].interpolate(Resize::to([5, 3], ResizeMode::Bicubic).align_corners()));
    check(&[&[1, 1, 4]], |x| x[0].max_unpool1d(&Tensor::new([[[5, 0, 3, 2]]]), Pool::square(2), None));
    check(&[&[1, 2, 3], &[1, 2, 3], &[1, 2, 2]], |x| x[0].attention(&x[1], &x[2], None, true));
}

#[test]
fn loss_gradients_agree_with_differences() {
    let y = Tensor::new([2, 0, 1, 1]);
    check(&[&[4, 3]], |x| x[0].sparse_categorical_crossentropy_with(&y, CrossEntropy::new().ignore(1).smoothing(0.1)));
    check(&[&[4, 3]], |x| x[0].cross_entropy(&y) + x[0].log_softmax(1).nll_loss(&y));
    let p = super::numbers(&[4, 3], 8).sigmoid();
    check(&[&[4, 3]], |x| x[0].binary_crossentropy_logits_with(&p, BinaryLogits::new().pos_weight(2.0)));
    check(&[&[4, 3], &[4, 3]], |x| x[0].mse_loss(&x[1].mul(2)));
}

#[test]
fn second_derivatives_follow_from_the_first() {
    let x = Tensor::from_slice(&[0.3, -1.2, 2.0], [3]);
    let first = x.pow(3).add(&x.sin()).sum(()).gradient(&[&x]).remove(0);
    let second = first.sum(()).gradient(&[&x]).remove(0);
    close(&values(&second), &[0.3f64, -1.2, 2.0].map(|v| 6.0 * v - v.sin()), 1e-9);
}

#[test]
fn nothing_passes_detach_and_ties_share() {
    let x = Tensor::new([1.0f64, 2.0]);
    close(&values(&(x.detach() * &x).sum(()).gradient(&[&x])[0]), &[1.0, 2.0], 0.0);
    let t = Tensor::new([[3.0f64, 3.0, 1.0]]);
    close(&values(&t.max(()).gradient(&[&t])[0]), &[0.5, 0.5, 0.0], 0.0);
    let z = Tensor::new([0.0f64, 1.0]);
    close(&values(&z.relu().sum(()).gradient(&[&z])[0]), &[0.0, 1.0], 0.0);
    let far = Tensor::new([-1e4f32, 1e4]);
    close(&values(&far.sigmoid().sum(()).gradient(&[&far])[0]), &[0.0, 0.0], 1e-30);
}

#[test]
fn backward_adds_up_over_calls() {
    let x = Tensor::new([1.0f64, 2.0]).requires_grad();
    x.square().sum(()).backward().unwrap();
    x.sum(()).backward().unwrap();
    close(&values(&x.grad().unwrap()), &[3.0, 5.0], 0.0);
    x.set_grad(None);
    assert!(x.grad().is_none());
}

#[test]
fn a_target_without_slope_gets_zeros_and_one_that_is_not_below_is_named() {
    let (x, other) = (Tensor::new([0.3f64, 1.7]), Tensor::new([1.0f64, 2.0]));
    close(&values(&x.floor().sum(()).gradient(&[&x])[0]), &[0.0, 0.0], 0.0);
    close(&values(&x.gt(1).cast(Scalar::F64).sum(()).gradient(&[&x])[0]), &[0.0, 0.0], 0.0);
    close(&values(&x.detach().sum(()).gradient(&[&x])[0]), &[0.0, 0.0], 0.0);
    let error = x.sum(()).gradient(&[&other])[0].shape().unwrap_err().to_string();
    assert!(error.contains("a target is not below this Tensor"), "{error}");
    let ints = Tensor::new([1, 2]);
    let error = ints.cast(Scalar::F64).sum(()).gradient(&[&ints])[0].shape().unwrap_err().to_string();
    assert!(error.contains("a target of i32 has no gradient"), "{error}");
}

#[test]
fn backward_gives_zeros_to_what_it_reaches_without_slope() {
    let (x, y) = (Tensor::new([0.3f64, 1.7]).requires_grad(), Tensor::new([2.0f64, 3.0]).requires_grad());
    (x.floor() * &y).sum(()).backward().unwrap();
    close(&values(&x.grad().unwrap()), &[0.0, 0.0], 0.0);
    close(&values(&y.grad().unwrap()), &[0.0, 1.0], 0.0);
    let z = Tensor::new([1.0f64, 2.0]).requires_grad();
    (z.detach() * &y).sum(()).backward().unwrap();
    assert!(z.grad().is_none());
}

#[test]
fn inverse_functions_have_their_slope_at_zero_and_none_is_lost_far_out() {
    let x = Tensor::new([0.0f64, 1e20, -1e20, 1.0]);
    let slope = |y: Tensor| values(&y.sum(()).gradient(&[&x])[0]);
    close(&slope(x.atan()), &[1.0, 0.0, 0.0, 0.5], 1e-12);
    close(&slope(x.asinh()), &[1.0, 1e-20, 1e-20, 0.5f64.sqrt()], 1e-12);
    let y = Tensor::new([0.0f64, 0.25]);
    close(&values(&y.atanh().sum(()).gradient(&[&y])[0]), &[1.0, 1.0 / (1.0 - 0.0625)], 1e-12);
    close(&values(&y.asin().sum(()).gradient(&[&y])[0]), &[1.0, 1.0 / 0.9375f64.sqrt()], 1e-12);
    close(&values(&y.sinh().sum(()).gradient(&[&y])[0]), &[1.0, 0.25f64.cosh()], 1e-12);
}

#[test]
fn equal_parameters_have_gradients_of_their_own() {
    let new = || Tensor::zeros([2]).requires_grad();
    for realized in [false, true] {
        let (a, b) = (new(), new());
        if realized {
            Tensor::realize_all(&[a.clone(), b.clone()]).unwrap();
        }
        (&a * 2.0 + &b * 3.0).sum(()).backward().unwrap();
        assert_eq!(a.grad().unwrap().to_vec::<f32>().unwrap(), [2.0, 2.0], "realized: {realized}");
        assert_eq!(b.grad().unwrap().to_vec::<f32>().unwrap(), [3.0, 3.0], "realized: {realized}");
    }
}

#[test]
fn equal_constants_that_are_realized_together_are_memory_apart() {
    let (a, b) = (Tensor::ones([3]), Tensor::ones([3]));
    Tensor::realize_all(&[a.clone(), b.clone()]).unwrap();
    assert_ne!(a.uop().unwrap(), b.uop().unwrap());
    for t in [&a, &b] {
        assert_eq!(t.to_vec::<f32>().unwrap(), [1.0; 3]);
    }
}
