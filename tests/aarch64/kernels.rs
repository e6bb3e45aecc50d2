//! Kernels of every element type, conversion and gate become code; each word of it is an instruction of the table.

use doorbell_aarch64::{Aarch64, MachineCode, compile};
use doorbell_codegen::{self as codegen, OptChoice};
use doorbell_isa::Backend;
use doorbell_uop::{AxisKind, DType, Op, Scalar, UOp};

const TYPES: [Scalar; 13] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
    Scalar::F64,
];

/// Code of `out[i] = make(a[i])` over `n` elements.
fn elementwise(n: i64, from: Scalar, to: Scalar, make: impl Fn(&UOp) -> UOp) -> MachineCode {
    let i = UOp::range(n, 0, AxisKind::Loop);
    let x = UOp::param(1, DType::of(from), n as usize).index(&i).load();
    let kernel =
        UOp::sink([UOp::param(0, DType::of(to), n as usize).index(&i).store(&make(&x), std::slice::from_ref(&i))]);
    let target = Aarch64::new(1);
    let p = codegen::compile(&kernel, target.target(), &OptChoice::Heuristic, false).expect("a linear program");
    let code = compile(&p).unwrap_or_else(|e| panic!("{from:?} to {to:?}: {e}"));
    assert_eq!(code.assembly().lines().filter(|l| !l.contains(".word")).count(), code.instructions);
    code
}

#[test]
fn every_conversion_has_code_in_lanes_and_alone() {
    for n in [1, 96] {
        for from in TYPES {
            for to in TYPES {
                elementwise(n, from, to, |x| x.cast(to));
            }
        }
    }
}

#[test]
fn every_operation_has_code_on_every_type() {
    for n in [1, 64] {
        for t in TYPES {
            for op in [Op::Add, Op::Sub, Op::Mul, Op::Max] {
                elementwise(n, t, t, |x| x.binary(op, x));
            }
            for op in [Op::CmpLt, Op::CmpNe, Op::CmpEq] {
                elementwise(n, t, Scalar::Bool, |x| UOp::alu(op, [x.clone(), UOp::constant(DType::of(t), 1i64)]));
            }
            let integer_only = [Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr, Op::CDiv, Op::CMod];
            for op in integer_only.into_iter().filter(|_| t.is_int()) {
                elementwise(n, t, t, |x| x.binary(op, x));
            }
            for op in [Op::Sqrt, Op::Recip, Op::Exp2, Op::Log2, Op::Sin].into_iter().filter(|_| t.is_float()) {
                elementwise(n, t, t, |x| UOp::alu(op, [x.clone()]));
            }
        }
    }
}

#[test]
fn a_sum_is_fused_products_in_a_loop() {
    let code = elementwise(256, Scalar::F32, Scalar::F32, |x| UOp::alu(Op::MulAcc, [x.clone(), x.clone(), x.clone()]));
    let text = code.assembly();
    assert!(text.contains("fmla v") && text.contains("b.lt #-") && text.ends_with("ret\n"), "{text}");
    assert_eq!(code.spill_moves, 0, "{text}");
}
