//! Products of f32 by matrix units that leave out bits, in a session that allows it (`ALLOW_TF32=1`).

use doorbell::engine::{Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::uop::{Arg, Op};

const NV: &str = "NV:emu=sm_90";

#[test]
fn products_of_f32_leave_out_bits_where_that_is_allowed_and_validation_knows() {
    let session = Session::open(Options { allow_tf32: true, validate: true, ..Options::default() }).unwrap();
    let _in_it = session.enter();
    let (m, n, k) = (64, 48, 96);
    let numbers = |len: usize, salt: usize| -> Vec<f32> {
        (0..len).map(|i| 0.5 + ((i * 37 + salt) % 101) as f32 / 77.0).collect()
    };
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let on = |v: &[f32], shape: [usize; 2]| {
        Tensor::from_bytes(v.iter().flat_map(|x| x.to_le_bytes()).collect(), Scalar::F32, &shape, NV)
    };
    let got = on(&a, [m, k]).matmul(&on(&b, [k, n])).to_vec::<f32>().unwrap();
    let units = session.compiled_kernels(NV);
    let is_cut = |u: &doorbell::uop::UOp| u.op() == Op::Wmma && matches!(u.arg(), Arg::Wmma(w) if w.cuts());
    assert!(units.iter().any(|c| c.program.uops.iter().any(is_cut)));
    let cut = |v: f32| f64::from(f32::from_bits(v.to_bits() & !0x1fff));
    let mut lost = 0.0f64;
    for (at, got) in got.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let sum = |f: &dyn Fn(f32) -> f64| -> f64 { (0..k).map(|l| f(a[i * k + l]) * f(b[l * n + j])).sum() };
        let (exact, wanted) = (sum(&|v| f64::from(v)), sum(&cut));
        assert!((f64::from(*got) - wanted).abs() <= 1e-5 * wanted, "row {i}, column {j}: {got}, not {wanted}");
        lost = lost.max((exact - wanted) / exact);
    }
    // Two factors, each too small by less than a part in 1024.
    assert!((1e-4..2e-3).contains(&lost), "{lost}");
}
