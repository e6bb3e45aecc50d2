//! f16 arithmetic, two lanes an instruction.

use super::machine::{check_on, listing};
use super::ops::{LANES, one};
use crate::codegen_agree::buffers;
use crate::codegen_kernels::out;
use doorbell::codegen::{self, OptChoice};
use doorbell::isa::amdgpu::{Amdgpu, Chip};
use doorbell::uop::{Arg, AxisKind, DType, Op, Scalar, UOp};

const F16: Scalar = Scalar::F16;

#[test]
fn half_arithmetic_is_bit_exact_with_nan_infinity_denormals_and_signed_zero() {
    for lanes in LANES {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Max] {
            one(&format!("{op:?}"), F16, &[F16, F16], lanes, (false, 0.0), |a| a[0].binary(op, &a[1]));
        }
        one("neg", F16, &[F16], lanes, (false, 0.0), |a| UOp::alu(Op::Neg, [a[0].clone()]));
        one("mulacc", F16, &[F16, F16, F16], lanes, (true, 0.0), |a| UOp::alu(Op::MulAcc, a.to_vec()));
    }
}

#[test]
fn halves_of_different_registers_constants_and_turned_pairs_meet() {
    let turned = |x: &UOp| {
        let n = x.dtype().lanes;
        let lanes: Vec<u16> = (0..n).rev().collect();
        UOp::new(Op::Gep, x.dtype(), [x.clone()], Arg::Axes(lanes.into_iter().collect()))
    };
    for lanes in [2, 4, 16] {
        one("turned", F16, &[F16, F16], lanes, (false, 0.0), |a| a[0].binary(Op::Add, &turned(&a[1])));
        one("constants", F16, &[F16], lanes, (false, 0.0), |a| {
            let x = a[0].binary(Op::Mul, &a[0].const_like(0.333));
            x.binary(Op::Add, &a[0].const_like(0.0)).binary(Op::Sub, &a[0].const_like(-2.5))
        });
        one("rounded", F16, &[Scalar::F32, F16], lanes, (false, 0.0), |a| {
            a[0].cast(a[1].dtype()).binary(Op::Mul, &turned(&a[1]))
        });
        one("widened", Scalar::F32, &[F16, F16], lanes, (false, 0.0), |a| {
            a[0].binary(Op::Mul, &a[1]).cast(a[0].dtype().with_scalar(Scalar::F32))
        });
    }
}

/// `x * y + y` on halves, element by element.
fn scaled(n: i64) -> UOp {
    let i = out(n, 0);
    let p = |slot| UOp::param(slot, DType::F16, n as usize).index(&i);
    let (x, y) = (p(1).load(), p(2).load());
    UOp::sink([p(0).store(&(&(&x * &y) + &y), &[i])])
}

#[test]
fn an_elementwise_kernel_of_halves_computes_in_pairs() {
    let k = scaled(1024);
    let isa = Amdgpu::new(Chip::Gfx1100);
    let p = codegen::compile(&k, isa.target(), &OptChoice::Heuristic, false).unwrap();
    let text = listing(&check_on(&[Chip::Gfx1100], &p, &[buffers(&k, 1)], &[], 1e-3).remove(0));
    assert!(text.contains("v_pk_"), "{text}");
    assert!(!text.contains("v_cvt") && !text.contains("v_perm"), "no conversion, nothing to pack\n{text}");
}

#[test]
fn sums_of_halves_are_kept_in_f32() {
    let (i, l) = (out(4, 0), UOp::range(4096, 1, AxisKind::Reduce));
    let x = UOp::param(1, DType::F16, 4 * 4096).index(&(&(&i * 4096) + &l)).load();
    let sum = x.reduce(Op::Add, &[l]);
    let k = UOp::sink([UOp::param(0, DType::F16, 4).index(&i).store(&sum, &[i])]);
    let p = codegen::compile(&k, Amdgpu::new(Chip::Gfx1100).target(), &OptChoice::None, false).unwrap();
    let acc = p.uops.iter().find(|u| u.op() == Op::Acc).unwrap();
    assert_eq!(acc.dtype().scalar, Scalar::F32);
    // Ones: added up in f16 they would stay at 2048.
    let mut bufs = buffers(&k, 1);
    bufs[1] = [0x00, 0x3c].repeat(4 * 4096);
    check_on(&[Chip::Gfx1100], &p, &[bufs], &[], 0.0);
}
