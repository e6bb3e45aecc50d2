//! Sorting and what follows from it, on the device, against Rust's own stable sort.

use super::{close, has_f64, plain};
use doorbell::engine::{Options, Session};
use doorbell::tensor::prelude::*;

fn run(t: &Tensor) -> Vec<f64> {
    t.to_f64().unwrap_or_else(|e| panic!("{e}"))
}

/// Positions of `list` sorted; equal elements keep their order.
fn places(list: &[f64], descending: bool) -> Vec<f64> {
    let mut order: Vec<usize> = (0..list.len()).collect();
    let above = |x: f64| if x.is_nan() { f64::INFINITY } else { x };
    order.sort_by(|a, b| {
        let (x, y) = (list[*a], list[*b]);
        let by = above(x).partial_cmp(&above(y)).unwrap().then(x.is_nan().cmp(&y.is_nan()));
        if descending { by.reverse() } else { by }
    });
    order.into_iter().map(|i| i as f64).collect()
}

/// Few different numbers, so that many are equal, with NaN and both zeros among them.
fn dotted(n: usize) -> Vec<f64> {
    let mut list: Vec<f64> = plain(n, 5).iter().map(|x| (x * 20.0).round() / 4.0).collect();
    for k in (3..n).step_by(17) {
        list[k] = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY][k % 5];
    }
    list
}

fn single(list: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(&list.iter().map(|x| *x as f32).collect::<Vec<_>>(), shape)
}

#[test]
fn every_length_is_sorted_and_equal_elements_keep_their_order() {
    for n in [2usize, 3, 5, 127, 128, 129, 257, 300, 1025] {
        let list = dotted(n);
        let wide = has_f64().then(|| Tensor::from_slice(&list, [n]));
        for x in wide.into_iter().chain([single(&list, &[n])]) {
            for descending in [false, true] {
                let (values, i) = x.sort(0, descending);
                let want = places(&list, descending);
                close(&run(&i), &want, 0.0);
                close(&run(&values), &want.iter().map(|i| list[*i as usize]).collect::<Vec<_>>(), 0.0);
            }
        }
    }
}

#[test]
fn sorted_zeros_keep_their_signs() {
    let x = Tensor::new([1.0f32, -0.0, 0.0, -0.0, -1.0]);
    let signs = |v: Vec<f32>| v.iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>();
    assert_eq!(signs(x.sort(0, false).0.to_vec().unwrap()), [true, true, false, true, false]);
    assert_eq!(signs(x.sort(0, true).0.to_vec().unwrap()), [false, true, false, true, true]);
}

#[test]
fn the_first_of_many_are_those_of_the_sorted_list() {
    let list = dotted(1500);
    let x = single(&list, &[3, 500]);
    for (k, largest) in [(1usize, true), (7, false), (200, true), (500, true)] {
        let (values, i) = x.topk(k, 1, largest);
        let want: Vec<f64> = list.chunks(500).flat_map(|row| places(row, largest).into_iter().take(k)).collect();
        close(&run(&i), &want, 0.0);
        let wanted = |(j, i): (usize, &f64)| list[j / k * 500 + *i as usize];
        close(&run(&values), &want.iter().enumerate().map(wanted).collect::<Vec<_>>(), 0.0);
    }
}

#[test]
fn a_long_axis_takes_a_kernel_for_each_doubling() {
    let session = Session::open(Options::default()).unwrap();
    let _entered = session.enter();
    for (n, most) in [(100usize, 3), (4096, 8), (65536, 12)] {
        let list: Vec<f32> = plain(n, 9).iter().map(|x| *x as f32).collect();
        let x = Tensor::from_slice(&list, [n]);
        x.realize().unwrap();
        let before = session.counters.totals().kernels;
        let (values, i) = x.sort(0, false);
        Tensor::realize_all(&[values.clone(), i]).unwrap();
        let count = session.counters.totals().kernels - before;
        assert!(count <= most, "{count} kernels for {n}");
        assert!(run(&values).windows(2).all(|w| w[0] <= w[1]));
    }
}
