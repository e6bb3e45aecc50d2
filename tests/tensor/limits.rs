//! Values at the limits of their types: what an op must not lose, and what it must refuse.

use super::{close, eval, numbers, singles, values};
use doorbell::nn::{BatchNorm, Module};
use doorbell::tensor::prelude::*;

fn error(t: &Tensor) -> String {
    t.shape().map(|s| panic!("{s:?}")).unwrap_err().to_string()
}

#[test]
fn labels_and_ignored_classes_of_narrow_types_are_themselves() {
    let x = numbers(&[3, 300], 4);
    let wide = Tensor::new([7i64, 156, 44]);
    let plain = values(&x.sparse_categorical_crossentropy(&wide));
    let narrow = wide.cast(Scalar::U8);
    close(&values(&x.sparse_categorical_crossentropy(&narrow)), &plain, 1e-12);
    // -100 is 156 in a u8: nothing is ignored by it.
    close(&values(&x.sparse_categorical_crossentropy_with(&narrow, CrossEntropy::new().ignore(-100))), &plain, 1e-12);
    let two = values(&x.get((..2,)).sparse_categorical_crossentropy(&wide.get(..2)));
    close(&values(&x.sparse_categorical_crossentropy_with(&narrow, CrossEntropy::new().ignore(44))), &two, 1e-12);
    close(&values(&x.log_softmax(1).nll_loss_with(&narrow, Nll::new().ignore(44))), &two, 1e-12);
}

#[test]
fn stores_by_indices_of_narrow_types_reach_their_places_only() {
    let t = Tensor::arange(300);
    t.set(&Tensor::new([5i8, -1]), &Tensor::new([-5, -6]));
    let found = values(&t);
    let want: Vec<f64> = (0..300)
        .map(|k| {
            if k == 5 {
                -5.0
            } else if k == 299 {
                -6.0
            } else {
                f64::from(k)
            }
        })
        .collect();
    close(&found, &want, 0.0);
    let t = Tensor::zeros([20, 200]);
    t.set((&Tensor::new([1i8, 13]), &Tensor::new([100i8, 17])), &Tensor::new([1.0f32, 2.0]));
    let found = values(&t);
    assert_eq!((found[300], found[13 * 200 + 17], found.iter().sum::<f64>()), (1.0, 2.0, 3.0));
}

#[test]
fn numbers_that_a_type_lacks_are_refused_and_comparisons_with_them_answered() {
    let x = Tensor::new([200u8, 255]);
    assert!(
        error(&x.clamp(0, 300)).starts_with("minimum: 300 is no u8: those are 0 to 255"),
        "{}",
        error(&x.clamp(0, 300))
    );
    for t in [
        &x + 256,
        &x - 300,
        x.maximum(-1),
        x.gt(0).where_(&x, -1),
        x.pow(-1),
        x.bitand(-1),
        x.pad_value(&[(1, 0)], 256i64),
    ] {
        assert!(error(&t).contains("is no u8"), "{}", error(&t));
    }
    assert!(error(&Tensor::full_of([2], 300, Scalar::U8)).contains("full: 300 is no u8"));
    assert!(error(&x.full_like(-1)).contains("-1 is no u8"));
    assert!(
        error(Tensor::new([200u8, 255]).assign(&Tensor::from(doorbell::uop::UOp::int(256)))).contains("256 is no u8")
    );
    close(&values(&x.lt(300)), &[1.0, 1.0], 0.0);
    close(&values(&x.lt(-1)), &[0.0, 0.0], 0.0);
    close(&values(&x.gt(-1)), &[1.0, 1.0], 0.0);
    close(&values(&x.ge(256)), &[0.0, 0.0], 0.0);
    close(&values(&x.le(256)), &[1.0, 1.0], 0.0);
    close(&values(&x.eq(-1)), &[0.0, 0.0], 0.0);
    close(&values(&x.ne(511)), &[1.0, 1.0], 0.0);
    close(&values(&x.lt(255)), &[1.0, 0.0], 0.0);
    close(&values(&x.clamp(0, 201)), &[200.0, 201.0], 0.0);
    let largest = Tensor::new([u64::MAX, 1]);
    close(&values(&largest.eq(u64::MAX)), &[1.0, 0.0], 0.0);
    close(&values(&largest.lt(-1)), &[0.0, 0.0], 0.0);
    // A number that a cast was asked of wraps, as casts do.
    close(&values(&Tensor::full([1], 300).cast(Scalar::U8)), &[44.0], 0.0);
}

#[test]
fn numbers_and_counts_beyond_i32_take_a_wider_type() {
    let big = Tensor::full([1], 5_000_000_000i64);
    assert_eq!((big.dtype().unwrap(), values(&big)), (Scalar::I64, vec![5e9]));
    assert_eq!(Tensor::full([1], 7).dtype().unwrap(), Scalar::I32);
    let long = Tensor::arange(3_000_000_000i64);
    assert_eq!(long.dtype().unwrap(), Scalar::I64);
    close(&long.narrow(0, 2_999_999_999i64, 1i64).to_f64().unwrap(), &[2_999_999_999.0], 0.0);
    assert_eq!(Tensor::arange(1i64 << 31).dtype().unwrap(), Scalar::I32);
    let steps = Tensor::arange_step(4e9, 4e9 + 3.0, 1.0);
    assert_eq!((steps.dtype().unwrap(), values(&steps)), (Scalar::I64, vec![4e9, 4e9 + 1.0, 4e9 + 2.0]));
    assert_eq!(Tensor::zeros([3]).expand([3]).argmax(0).dtype().unwrap(), Scalar::I32);
    assert_eq!(Tensor::zeros([3_000_000_000i64]).argmax(0).dtype().unwrap(), Scalar::I64);
}

#[test]
fn integers_are_drawn_from_spans_beyond_i32() {
    let g = Generator::new(11);
    let v = values(&g.randint([400], i32::MIN, i32::MAX));
    assert!(v.iter().all(|x| (f64::from(i32::MIN)..f64::from(i32::MAX)).contains(x)));
    let high = v.iter().filter(|x| **x > 0.0).count();
    assert!((140..260).contains(&high), "{high} of 400 are positive");
    // Odd ones too: an f32 has too few values in [0, 1) for this span.
    let odd = values(&g.randint([400], 0, 1 << 30)).iter().filter(|x| **x % 2.0 == 1.0).count();
    assert!((140..260).contains(&odd), "{odd} of 400 are odd");
}

#[test]
fn random_numbers_like_a_tensor_are_drawn_on_its_device() {
    let x = Tensor::ones([64]).to("CPU:1").contiguous();
    let x = Tensor::from_slice(&[1.0f32; 64], [64]).to("CPU:1").add(&x);
    for t in [x.rand_like(), x.randn_like(), x.dropout(0.5, true)] {
        assert_eq!(&*t.device(), "CPU:1");
    }
    let dropped = x.dropout(0.5, true).to_vec::<f32>().unwrap();
    assert!(dropped.iter().all(|v| *v == 0.0 || *v == 4.0) && dropped.contains(&0.0) && dropped.contains(&4.0));
}

#[test]
fn running_extremes_and_padded_pools_of_e4m3_are_numbers() {
    let x = Tensor::new([[1.0f32, -448.0, 3.0], [-2.0, 5.0, -1.0], [0.5, 448.0, -7.0]]).cast(Scalar::F8E4M3);
    close(&values(&x.cummax(1).0)[..3], &[1.0, 1.0, 3.0], 0.0);
    close(&values(&x.cummin(1).0)[..3], &[1.0, -448.0, -448.0], 0.0);
    let pool = Pool::square(2).padded([(1, 0), (0, 1)]);
    close(&values(&x.reshape([1, 1, 3, 3]).max_pool2d(pool)), &[1.0, 3.0, 448.0, -1.0], 0.0);
}

#[test]
fn long_rows_of_halves_are_averaged_in_f32() {
    let zeros = Tensor::full_of([1, 70000], 0.0, Scalar::F16);
    let third = zeros.softmax(-1).get((0, 0)).item().unwrap();
    close(&[third], &[1.0 / 70000.0], 1e-7);
    close(&zeros.logsumexp(-1).to_f64().unwrap(), &[70000f64.ln()], 1e-3);
    let far = Tensor::new([[1000.0f32, -1000.0]]).cast(Scalar::F16);
    close(&values(&far.layernorm(-1, 1e-5)), &[1.0, -1.0], 0.0);
    close(&values(&far.rmsnorm(-1, 1e-5)), &[1.0, -1.0], 0.0);
    close(&values(&Tensor::einsum("ij,ij->i", &[&far, &far.abs()])), &[0.0], 0.0);
    assert_eq!(far.softmax(-1).dtype().unwrap(), Scalar::F16);
}

#[test]
fn batch_norm_of_halves_has_the_statistics_of_f32_and_the_type_of_the_input() {
    let norm = BatchNorm::new(2);
    let half = |t: &Tensor| t.cast(Scalar::F16);
    let (weight, bias) = (norm.weight.as_ref().unwrap(), norm.bias.as_ref().unwrap());
    weight.replace(&half(weight));
    bias.replace(&half(bias));
    let x = half(&Tensor::new([[1000.0f32, 1.0], [-1000.0, 3.0]]));
    let y = norm.forward(&x, true);
    assert_eq!(y.dtype().unwrap(), Scalar::F16);
    close(&values(&y), &[1.0, -1.0, -1.0, 1.0], 1e-3);
    close(&values(norm.running_var.as_ref().unwrap()), &[0.9 + 0.1 * 2e6, 0.9 + 0.2], 1e-6);
}

#[test]
fn batch_norm_of_a_variable_batch_counts_the_rows_that_are_there() {
    let (all, n) = (singles(&[8, 3], 6).contiguous(), Variable::new("rows", 2, 8));
    for rows in [2i64, 5, 8] {
        let norm = BatchNorm::new(3);
        let y = norm.forward(&all.shrink(&[(Dim::Int(0), Dim::from(n.bind(rows))), (Dim::Int(0), Dim::Int(3))]), true);
        let exact = values(&all.shrink(&[(0, rows), (0, 3)]).var(0, 1));
        Tensor::realize_all(&[vec![y], norm.buffers()].concat()).unwrap();
        let want: Vec<f64> = exact.iter().map(|v| 0.9 + 0.1 * v).collect();
        close(&norm.running_var.as_ref().unwrap().to_f64().unwrap(), &want, 1e-5);
    }
}

#[test]
fn rows_that_do_not_count_and_certain_probabilities_leave_losses_finite() {
    let inf = f64::NEG_INFINITY;
    let logs = Tensor::new([[0.0f64, inf], [-0.5, -0.9]]);
    let y = Tensor::new([1, 0]);
    close(&values(&logs.nll_loss_with(&y, Nll::new().ignore(1))), &[0.5], 1e-12);
    let x = Tensor::new([[3.0f64, inf], [0.0, 0.0]]);
    let loss = x.sparse_categorical_crossentropy_with(&y, CrossEntropy::new().ignore(1));
    close(&values(&loss), &[2f64.ln()], 1e-12);
    close(&values(&loss.gradient(&[&x])[0]), &[0.0, 0.0, -0.5, 0.5], 1e-12);
    let sure = Tensor::new([[1.0f64, 0.0], [0.5, 0.5]]);
    close(&values(&x.cross_entropy(&sure)), &[2f64.ln() / 2.0], 1e-12);
    let p = Tensor::new([0.0f64, 1.0, 0.5, 1.0]);
    let t = Tensor::new([0.0f64, 1.0, 1.0, 0.0]);
    let loss = p.binary_crossentropy(&t);
    close(&values(&loss), &[(2f64.ln() + 100.0) / 4.0], 1e-12);
    assert!(values(&loss.gradient(&[&p])[0]).iter().all(|g| g.is_finite()));
}

#[test]
fn einsum_refuses_the_diagonal_of_two_sizes() {
    let e = error(&Tensor::einsum("ii->i", &[&Tensor::zeros([2, 3])]));
    assert!(e.starts_with("einsum: 'i' stands for the sizes 2 and 3 at once"), "{e}");
    assert_eq!(eval(&Tensor::einsum("ii->i", &[&numbers(&[3, 3], 1)])).0, [3]);
}

#[test]
fn remainders_of_infinities_and_of_large_quotients_are_exact() {
    let x = |v: f64| Tensor::new([v]);
    close(&values(&x(5.0).fmod(&x(f64::INFINITY))), &[5.0], 0.0);
    close(&values(&x(-5.0).modulo(&x(f64::INFINITY))), &[f64::INFINITY], 0.0);
    assert!(values(&x(f64::INFINITY).fmod(&x(3.0)))[0].is_nan() && values(&x(3.0).fmod(&x(0.0)))[0].is_nan());
    close(&values(&x(1e20).cast(Scalar::F32).fmod(3.0)), &[f64::from(1e20f32 % 3.0)], 0.0);
    close(&values(&x(1e300).fmod(&x(1e250))), &[1e300 % 1e250], 0.0);
    close(&values(&x(0.3).modulo(0.1)), &[0.3 % 0.1], 0.0);
}
