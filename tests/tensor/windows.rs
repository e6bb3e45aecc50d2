//! Sliding windows, resizing and padding: what their options mean at the edges, and what they refuse.

use super::{close, eval, numbers, values};
use doorbell::tensor::prelude::*;

fn t(shape: &[usize]) -> Tensor {
    Tensor::empty(shape, Scalar::F32)
}

fn sizes(x: &Tensor) -> Vec<i64> {
    x.shape().unwrap_or_else(|e| panic!("{e}")).iter().map(|d| d.as_int().unwrap()).collect()
}

/// Each is an error of its op at its line.
#[track_caller]
fn refused(cases: &[(Tensor, u32, &str)]) {
    for (tensor, line, text) in cases {
        let error = tensor.uop().expect_err(text);
        assert!(error.to_string().starts_with(text), "{error}");
        assert_eq!((error.at.file(), error.at.line()), (file!(), *line), "{error}");
    }
}

// A call and its line!() must be on one line.
#[rustfmt::skip]
#[test]
fn convolutions_refuse_what_does_not_fit() {
    let (x, w, d) = (t(&[2, 4, 5, 6]), t(&[6, 4, 3, 3]), Conv::default());
    let (line, k) = (t(&[2, 4, 5]), t(&[4, 4, 3]));
    refused(&[
        (x.conv(&t(&[6, 4]), None, d), line!(), "conv: a weight has rank at least 3 (channels twice, then a window)"),
        (x.conv1d(&w, None, d), line!(), "conv1d: a weight has rank 3 (channels twice, then a window)"),
        (x.conv3d(&w, None, d), line!(), "conv3d: a weight has rank 5 (channels twice, then a window)"),
        (t(&[5, 6]).conv2d(&w, None, d), line!(), "conv2d: the input has the rank of the weight, or one less without a batch"),
        (x.conv2d(&t(&[6, 3, 3, 3]), None, d), line!(), "conv2d: 1 groups of 3 do not make 4 channels in and 6 out"),
        (x.conv2d(&w, None, d.grouped(2)), line!(), "conv2d: 2 groups of 4 do not make 4 channels in and 6 out"),
        (x.conv2d(&w, None, d.grouped(0)), line!(), "conv2d: 0 groups of 4 do not make 4 channels in and 6 out"),
        (x.conv2d(&w, Some(&t(&[4])), d), line!(), "conv2d: the bias has shape (4,)"),
        (x.conv2d(&w, None, d.strided(0)), line!(), "conv2d: window 3, step 0, dilation 1: each is 1 to"),
        (x.conv2d(&w, None, d.dilated([1, 0])), line!(), "conv2d: window 3, step 1, dilation 0: each is 1 to"),
        (x.conv2d(&w, None, d.dilated(3)), line!(), "conv2d: a window of 7 elements over an axis of 5"),
        (x.conv2d(&t(&[6, 4, 0, 3]), None, d), line!(), "conv2d: window 0, step 1, dilation 1: each is 1 to"),
        (x.conv2d(&w, None, d.strided([1, 2, 1])), line!(), "conv2d: 3 values as strides for 2 axes"),
        (x.conv2d(&w, None, Conv::padded([1, 1, 1, 1])), line!(), "conv2d: 4 values as padding for 2 axes"),
        (x.conv2d(&w, None, Conv::padded(-3)), line!(), "conv2d: 3..2 is not within axis 2 of size 5"),
        (x.conv2d(&w, None, Conv::same().strided(2)), line!(), "conv2d: same padding needs a stride of 1"),
        (x.conv2d(&w, None, d.output_padded(1)), line!(), "conv2d: output padding belongs to transposed convolutions"),
        (line.conv_transpose1d(&t(&[3, 4, 3]), None, d), line!(), "conv_transpose1d: 1 groups, a weight for 3 channels, 4 channels in"),
        (line.conv_transpose1d(&k, None, d.grouped(3)), line!(), "conv_transpose1d: 3 groups, a weight for 4 channels, 4 channels in"),
        (line.conv_transpose1d(&k, None, Conv::same()), line!(), "conv_transpose1d: same padding has no meaning in a transposed convolution"),
        (line.conv_transpose1d(&k, None, Conv::padded(4)), line!(), "conv_transpose1d: padding of 4 and 4 leaves nothing of 7"),
        (line.conv_transpose1d(&k, None, d.strided(0)), line!(), "conv_transpose1d: window 3, stride 0, dilation 1: each is at least 1"),
        (line.conv_transpose1d(&k, Some(&t(&[3])), d), line!(), "conv_transpose1d: the bias has shape (3,)"),
        (t(&[2, 4, 0]).conv_transpose(&k, None, d), line!(), "conv_transpose: an axis without elements"),
    ]);
}

// A call and its line!() must be on one line.
#[rustfmt::skip]
#[test]
fn pools_and_resizing_refuse_what_does_not_fit() {
    let (x, i) = (t(&[2, 4, 5, 6]), Tensor::zeros([2, 4, 5, 6]).cast(Scalar::I32));
    let (two, near) = (Pool::square(2), ResizeMode::Nearest);
    refused(&[
        (t(&[3]).max_pool2d(two), line!(), "max_pool2d: the rank is 1, not at least 2"),
        (t(&[3, 4]).max_pool(two), line!(), "max_pool: the rank is 2, not at least 3"),
        (x.max_pool2d(Pool::window([2, 2, 2])), line!(), "max_pool2d: 3 values as window sizes for 2 axes"),
        (x.avg_pool2d(Pool::square(6)), line!(), "avg_pool2d: a window of 6 elements over an axis of 5"),
        (x.avg_pool2d(two.strided(0)), line!(), "avg_pool2d: window 2, step 0, dilation 1: each is 1 to"),
        (x.max_pool2d(Pool::square(0)), line!(), "max_pool2d: window 0, step 0, dilation 1: each is 1 to"),
        (x.max_pool2d_with_indices(Pool::square(7)).1, line!(), "max_pool2d_with_indices: a window of 7 elements"),
        (x.max_unpool2d(&x, two, None), line!(), "max_unpool2d: an index of shape (2, 4, 5, 6) and type f32"),
        (x.max_unpool2d(&t(&[2]).cast(Scalar::I32), two, None), line!(), "max_unpool2d: an index of shape (2,) and type i32"),
        (x.max_unpool2d(&i, two, Some(&[3])), line!(), "max_unpool2d: 1 sizes for 2 axes"),
        (x.max_unpool2d(&i, two.strided(1).padded(4), None), line!(), "max_unpool2d: an output axis of -2"),
        (x.adaptive_avg_pool2d(0), line!(), "adaptive_avg_pool2d: 0 windows over an axis of 5"),
        (x.adaptive_max_pool2d([1, 2, 3]), line!(), "adaptive_max_pool2d: 3 values as sizes for 2 axes"),
        (x.interpolate(Resize::to([0, 3], near)), line!(), "interpolate: 0 elements of 5"),
        (x.interpolate(Resize::by(-1.0, near)), line!(), "interpolate: a factor of -1"),
        (x.interpolate(Resize::by(0.1, near)), line!(), "interpolate: 0 elements of 5"),
        (x.interpolate(Resize::to([3, 3], near).align_corners()), line!(), "interpolate: Nearest has no corners to align"),
        (x.interpolate(Resize::to([3, 3], ResizeMode::Trilinear)), line!(), "interpolate: 2 values as sizes for 3 axes"),
        (t(&[2, 0, 3]).interpolate(Resize::to([2, 3], near)), line!(), "interpolate: 2 elements of 0"),
        (x.pad(&[1, 2, 3]), line!(), "pad: 3 counts in a flat list for rank 4: two an axis, last first"),
        (t(&[3]).pad(&[1, 2, 3, 4]), line!(), "pad: 4 counts in a flat list for rank 1: two an axis, last first"),
        (x.pad_to([2, 4, 5]), line!(), "pad_to: 3 sizes for rank 4"),
        (x.pad_to([2, 4, 4, 6]), line!(), "pad_to: (2, 4, 5, 6) has an axis that is longer"),
        (x.shrink_to([2, 4, 7, 6]), line!(), "shrink_to: 0..7 is not within axis 2 of size 5"),
    ]);
}

#[test]
fn a_convolution_without_a_batch_is_one_of_a_batch_of_one() {
    let (x, w, b) = (numbers(&[2, 5, 4], 1), numbers(&[3, 2, 2, 3], 2), numbers(&[3], 3));
    let (v, how) = (numbers(&[2, 3, 2, 3], 4), Conv::padded(1));
    let batch = x.unsqueeze(0);
    let found = x.conv2d(&w, Some(&b), how);
    assert_eq!(sizes(&found), [3, 6, 4]);
    close(&values(&found), &values(&batch.conv2d(&w, Some(&b), how)), 0.0);
    let found = x.conv_transpose2d(&v, Some(&b), how);
    assert_eq!(sizes(&found), [3, 4, 4]);
    close(&values(&found), &values(&batch.conv_transpose2d(&v, Some(&b), how)), 0.0);
}

#[test]
fn a_convolution_over_four_axes_is_the_one_over_those_that_are_long() {
    let (x, w) = (numbers(&[2, 4, 1, 5, 1, 6], 1), numbers(&[6, 2, 1, 3, 1, 2], 2));
    let four = Conv::padded([0, 1, 0, 2]).strided([1, 2, 1, 1]).grouped(2);
    let two = Conv::padded([1, 2]).strided([2, 1]).grouped(2);
    let (flat, window) = (x.reshape([2, 4, 5, 6]), w.reshape([6, 2, 3, 2]));
    let found = x.conv(&w, None, four);
    assert_eq!(sizes(&found), [2, 6, 1, 3, 1, 9]);
    close(&values(&found), &values(&flat.conv(&window, None, two)), 1e-12);
    let back = w.reshape([4, 3, 1, 3, 1, 2]);
    let found = x.conv_transpose(&back, None, four);
    close(&values(&found), &values(&flat.conv_transpose(&back.reshape([4, 3, 3, 2]), None, two)), 1e-12);
    let pooled = x.max_pool(Pool::window([1, 3, 1, 2]));
    close(&values(&pooled), &values(&flat.max_pool(Pool::window([3, 2]))), 0.0);
}

/// What a convolution passes back to its input is the transposed convolution of what it is given.
#[test]
fn a_transposed_convolution_is_the_gradient_of_a_convolution() {
    let options = [
        Conv::default(),
        Conv::padded([(1, 0), (2, 1)]).strided([2, 3]),
        Conv::padded(1).strided(3).dilated([1, 2]).grouped(2),
        Conv::padded([(-1, 1), (0, -2)]).dilated(2),
    ];
    for (k, how) in options.into_iter().enumerate() {
        let (x, w) = (numbers(&[2, 4, 10, 11], 1), numbers(&[6, 4 / how.groups, 2, 3], 2));
        let y = x.conv2d(&w, None, how);
        let g = numbers(&sizes(&y).iter().map(|n| *n as usize).collect::<Vec<_>>(), 3);
        let wanted = y.gradient_with(&g, &[&x]).remove(0);
        // What no window reached is output padding.
        let short = g.conv_transpose2d(&w, None, how);
        let more: Vec<usize> = sizes(&short)[2..].iter().zip([10, 11]).map(|(n, all)| (all - n) as usize).collect();
        let found = g.conv_transpose2d(&w, None, how.output_padded(more));
        assert_eq!(sizes(&found), [2, 4, 10, 11], "options {k}");
        close(&values(&found), &values(&wanted), 1e-12);
    }
}

#[test]
fn same_padding_keeps_sizes_and_puts_an_odd_zero_at_the_end() {
    let ones = Tensor::ones([1, 1, 4]).cast(Scalar::F64);
    let w = Tensor::ones([1, 1, 2]).cast(Scalar::F64);
    close(&values(&ones.conv1d(&w, None, Conv::same())), &[2., 2., 2., 1.], 0.0);
    let wide = t(&[1, 1, 9, 9]).conv2d(&t(&[1, 1, 4, 3]), None, Conv::same().dilated([2, 3]));
    assert_eq!(sizes(&wide), [1, 1, 9, 9]);
}

#[test]
fn nothing_in_a_batch_or_in_channels_gives_nothing_or_zeros() {
    let none = t(&[0, 2, 5]);
    let how = Conv::padded(1);
    assert_eq!(sizes(&none.conv1d(&t(&[3, 2, 3]), None, how)), [0, 3, 5]);
    assert_eq!(sizes(&none.conv_transpose1d(&t(&[2, 3, 3]), None, how.strided(2))), [0, 3, 9]);
    assert_eq!(sizes(&none.max_pool1d(Pool::square(2))), [0, 2, 2]);
    assert_eq!(sizes(&none.interpolate(Resize::to(8, ResizeMode::Linear))), [0, 2, 8]);
    let zeros = values(&t(&[1, 0, 4]).conv1d(&t(&[2, 0, 3]), None, Conv::default()));
    assert_eq!(zeros, [0.0; 4]);
}

#[test]
fn pools_know_nan_equal_elements_and_windows_of_padding() {
    let x = Tensor::new([[1.0f32, f32::NAN, 0.0, 3.0, 3.0, -1.0]]);
    let (m, i) = x.max_pool1d_with_indices(Pool::square(2));
    close(&values(&m), &[f64::NAN, 3.0, 3.0], 0.0);
    assert_eq!(values(&i), [1.0, 3.0, 4.0]);
    let low = Tensor::new([[f32::NEG_INFINITY, f32::NEG_INFINITY]]);
    let (m, i) = low.max_pool1d_with_indices(Pool::square(2).strided(1).padded(1));
    close(&values(&m), &[f64::NEG_INFINITY; 3], 0.0);
    assert_eq!(values(&i), [0.0, 0.0, 1.0]);
    let whole = Tensor::new([[-3i32, -5, -7, -9]]);
    close(&values(&whole.max_pool1d(Pool::square(3).strided(2).padded(1).ceiled())), &[-3., -5., -9.], 0.0);
    assert_eq!(whole.max_pool1d(Pool::square(2)).dtype().unwrap(), Scalar::I32);
    close(&values(&whole.avg_pool1d(Pool::square(2))), &[-4.0, -8.0], 0.0);
    // Half types are summed in f32: the sum is beyond their range, the mean is not.
    let far = Tensor::full_of([1, 4], 60000.0, Scalar::F16);
    close(&values(&far.avg_pool1d(Pool::square(4))), &[60000.0], 1e-3);
    close(&values(&far.adaptive_avg_pool1d(1)), &[60000.0], 1e-3);
}

#[test]
fn unpooling_keeps_the_last_of_equal_places_and_drops_those_outside() {
    let x = Tensor::new([[1.0f32, 2.0, 3.0, 4.0]]);
    let i = Tensor::new([[2i32, 0, 2, 9]]);
    let how = Pool::square(1);
    close(&values(&x.max_unpool1d(&i, how, Some(&[4]))), &[2.0, 0.0, 3.0, 0.0], 0.0);
    let (y, at) = numbers(&[2, 3, 4, 6], 5).max_pool2d_with_indices(Pool::square(2));
    let back = y.max_unpool2d(&at, Pool::square(2), None);
    assert_eq!(sizes(&back), [2, 3, 4, 6]);
    close(&values(&back.max_pool2d(Pool::square(2)).maximum(&y)), &values(&y.maximum(0)), 0.0);
}

#[test]
fn resizing_to_the_same_size_changes_nothing() {
    use ResizeMode::{Area, Bicubic, Bilinear, Linear, Nearest, NearestExact};
    let x = numbers(&[1, 2, 4, 5], 7);
    for mode in [Nearest, NearestExact, Linear, Bilinear, Bicubic, Area] {
        close(&values(&x.interpolate(Resize::to([4, 5], mode))), &values(&x), 1e-15);
        close(&values(&x.interpolate(Resize::by(1.0, mode))), &values(&x), 1e-15);
    }
    let corners = x.interpolate(Resize::to([7, 9], Bilinear).align_corners());
    let (shape, all) = eval(&corners);
    assert_eq!(shape, [1, 2, 7, 9]);
    let own = values(&x);
    close(&[all[0], all[8], all[62]], &[own[0], own[4], own[19]], 1e-12);
}

#[test]
fn the_nearest_elements_keep_their_type_and_other_modes_give_floats() {
    let x = Tensor::new([[[1u8, 2, 3]]]);
    let near = x.interpolate(Resize::by(2.0, ResizeMode::Nearest));
    assert_eq!((near.dtype().unwrap(), values(&near)), (Scalar::U8, vec![1., 1., 2., 2., 3., 3.]));
    let bits = Tensor::new([[[true, false, true]]]).interpolate(Resize::to(2, ResizeMode::NearestExact));
    assert_eq!((bits.dtype().unwrap(), values(&bits)), (Scalar::Bool, vec![1., 1.]));
    let line = x.interpolate(Resize::to(5, ResizeMode::Linear));
    assert_eq!(line.dtype().unwrap(), Scalar::F32);
    close(&values(&line), &[1.0, 1.4, 2.0, 2.6, 3.0], 1e-6);
}

#[test]
fn padding_by_flat_lists_and_up_to_sizes() {
    let x = numbers(&[2, 3, 4], 1);
    let pairs = [(0, 0), (3, 4), (1, 2)];
    close(&values(&x.pad(&[1, 2, 3, 4])), &values(&x.pad(&pairs)), 0.0);
    let list = vec![1, -1];
    close(
        &values(&x.pad_mode(&list, PadMode::Replicate)),
        &values(&x.pad_mode(&[(0, 0), (0, 0), (1, -1)], PadMode::Replicate)),
        0.0,
    );
    assert_eq!(sizes(&x.pad(&[] as &[i64])), [2, 3, 4]);
    close(&values(&x.pad_to([2, -1, 6])), &values(&x.pad(&[0, 2])), 0.0);
    close(&values(&x.shrink_to([-1, 2, 4])), &values(&x.shrink(&[(0, 2), (0, 2), (0, 4)])), 0.0);
    let n = Variable::new("n", 1, 8);
    let grown = Tensor::ones([&n]).pad_to([8]);
    assert_eq!(sizes(&grown), [8]);
}

#[test]
fn an_infinity_spreads_only_to_the_lines_that_it_ends() {
    let x = Tensor::new([[[1.0f32, 2.0, f32::INFINITY, 3.0, 4.0]]]);
    let found = values(&x.interpolate(Resize::by(2.0, ResizeMode::Linear)));
    let inf = f64::INFINITY;
    close(&found, &[1.0, 1.25, 1.75, inf, inf, inf, inf, 3.25, 3.75, 4.0], 1e-6);
}
