//! Every op on every type and lane count that a linear program may hold.

use super::machine::{List, Rng, check, check_all};
use doorbell::uop::{Arg, Axes, DType, Op, Scalar, UOp};

const INTS: [Scalar; 8] =
    [Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
const LANES: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];

fn at(slot: u32, dt: DType, len: usize) -> UOp {
    UOp::param(slot, dt.element(), len).index(&UOp::constant(DType::I64, 0))
}

fn load(slot: u32, dt: DType) -> UOp {
    UOp::new(Op::Load, dt, [at(slot, dt, dt.lanes as usize)], Arg::None)
}

/// `out = f(in1, in2, ..)` on values of `lanes` lanes, checked against the interpreter.
fn one(name: &str, out: Scalar, ins: &[Scalar], lanes: u16, tame: bool, f: impl Fn(&[UOp]) -> UOp) {
    let args: Vec<UOp> = ins.iter().enumerate().map(|(k, t)| load(k as u32 + 1, DType::of(*t).vec(lanes))).collect();
    let value = f(&args);
    let n = value.dtype().lanes;
    let mut list = List::default();
    list.add(&at(0, DType::of(out), n as usize).store(&value, &[]));
    let p = list.program(&format!("{name}_{out}_x{lanes}"));
    let inputs: Vec<Vec<Vec<u8>>> = (0..4)
        .map(|seed| {
            let mut rng = Rng(seed * 977 + lanes as u64);
            let out = vec![0xa5; out.size_bytes() * n as usize];
            std::iter::once(out).chain(ins.iter().map(|t| rng.fill(*t, lanes as usize, tame))).collect()
        })
        .collect();
    check_all(&p, &inputs, &[], if out == Scalar::F64 { 1e-15 } else { 1e-6 });
}

fn binary(op: Op, t: Scalar, tame: bool) {
    for lanes in LANES {
        one(&format!("{op:?}"), t, &[t, t], lanes, tame, |a| a[0].binary(op, &a[1]));
    }
}

#[test]
fn integer_arithmetic_and_logic_wrap_as_the_interpreter_says() {
    for t in INTS {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor] {
            binary(op, t, false);
        }
        for lanes in LANES {
            one("neg", t, &[t], lanes, false, |a| UOp::alu(Op::Neg, [a[0].clone()]));
            one("mulacc", t, &[t, t, t], lanes, false, |a| UOp::alu(Op::MulAcc, a.to_vec()));
        }
    }
}

#[test]
fn integer_shifts_by_constants_and_by_lanes() {
    for t in INTS {
        let bits = 8 * t.size_bytes() as i64;
        for lanes in LANES {
            for op in [Op::Shl, Op::Shr] {
                for n in [0, 1, bits / 2, bits - 1, bits] {
                    one(&format!("{op:?}_{n}"), t, &[t], lanes, false, |a| a[0].binary(op, &a[0].const_like(n)));
                }
                // Counts 0..20 (beyond 8 and 16 bits).
                one(&format!("{op:?}_v"), t, &[t, t], lanes, true, |a| {
                    let count = if t.is_unsigned() {
                        a[1].clone()
                    } else {
                        a[1].binary(Op::Max, &UOp::alu(Op::Neg, [a[1].clone()]))
                    };
                    a[0].binary(op, &count)
                });
            }
        }
    }
}

#[test]
fn integer_division_by_lanes() {
    for t in INTS {
        for lanes in [1, 2, 8] {
            for op in [Op::CDiv, Op::CMod] {
                one(&format!("{op:?}"), t, &[t, t], lanes, true, |a| {
                    let three = a[1].const_like(3);
                    let positive = a[1].binary(Op::And, &a[1].const_like(7)).binary(Op::Add, &three);
                    a[0].binary(op, &positive)
                });
            }
        }
    }
}

#[test]
fn float_arithmetic_keeps_nan_infinity_and_signed_zero() {
    for t in [Scalar::F32, Scalar::F64] {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::FDiv, Op::Max] {
            binary(op, t, false);
        }
        for lanes in LANES {
            for op in [Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc] {
                one(&format!("{op:?}"), t, &[t], lanes, false, |a| UOp::alu(op, [a[0].clone()]));
            }
            one("fma", t, &[t, t, t], lanes, false, |a| UOp::alu(Op::MulAcc, a.to_vec()));
            one("relu", t, &[t], lanes, false, |a| a[0].max(&a[0].const_like(0.0)));
            one("relu_swapped", t, &[t], lanes, false, |a| a[0].const_like(0.0).max(&a[0]));
            one("horner", t, &[t], lanes, true, |a| {
                let c = |v: f64| a[0].const_like(v);
                let p = UOp::alu(Op::MulAcc, [c(0.25), a[0].clone(), c(0.5)]);
                UOp::alu(Op::MulAcc, [p, a[0].clone(), c(1.0)])
            });
        }
    }
}

#[test]
fn comparisons_select_and_store_bools() {
    for t in INTS.into_iter().chain([Scalar::F32, Scalar::F64]) {
        for lanes in LANES {
            for op in [Op::CmpLt, Op::CmpNe, Op::CmpEq] {
                one(&format!("{op:?}_{t}"), Scalar::Bool, &[t, t], lanes, false, |a| a[0].binary(op, &a[1]));
                one(&format!("where_{op:?}"), t, &[t, t], lanes, false, |a| {
                    a[0].binary(op, &a[1]).select(&a[0], &a[1])
                });
            }
            one("where_loaded", t, &[Scalar::Bool, t, t], lanes, false, |a| a[0].select(&a[1], &a[2]));
        }
    }
}

#[test]
fn bool_logic_of_masks_from_different_types() {
    for lanes in LANES {
        for op in [Op::And, Op::Or, Op::Xor, Op::Add, Op::Mul, Op::Max, Op::CmpNe, Op::CmpEq, Op::CmpLt] {
            one(&format!("{op:?}"), Scalar::Bool, &[Scalar::Bool, Scalar::Bool], lanes, false, |a| {
                a[0].binary(op, &a[1])
            });
            one(&format!("{op:?}_mixed"), Scalar::Bool, &[Scalar::F64, Scalar::I16], lanes, false, |a| {
                let x = a[0].lt(&a[0].const_like(1.0));
                let y = a[1].lt(&a[1].const_like(1));
                x.binary(op, &y)
            });
        }
        one("not", Scalar::Bool, &[Scalar::F32], lanes, false, |a| a[0].lt(&a[0].const_like(0.0)).not());
        one("where", Scalar::Bool, &[Scalar::Bool, Scalar::Bool, Scalar::Bool], lanes, false, |a| {
            a[0].select(&a[1], &a[2])
        });
        one("where_f16", Scalar::F16, &[Scalar::Bool, Scalar::F16, Scalar::F16], lanes, false, |a| {
            a[0].select(&a[1], &a[2])
        });
    }
}

#[test]
fn casts_between_all_types() {
    let all = INTS.into_iter().chain([Scalar::Bool, Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64]);
    let all: Vec<Scalar> = all.collect();
    for f in &all {
        for t in &all {
            if f == t {
                continue;
            }
            for lanes in LANES {
                // Floats outside of the integer's range are unspecified; so are negative floats to unsigned.
                let tame = f.is_float() && !t.is_float();
                one(&format!("cast_{f}"), *t, &[*f], lanes, tame, |a| {
                    let x = if tame && t.is_unsigned() && matches!(f, Scalar::F32 | Scalar::F64) {
                        a[0].binary(Op::Mul, &a[0])
                    } else {
                        a[0].clone()
                    };
                    if tame && t.is_unsigned() && matches!(f, Scalar::F16 | Scalar::BF16) {
                        let wide = x.cast(DType::F32.vec(lanes));
                        return wide
                            .binary(Op::Mul, &wide)
                            .cast(DType::of(*f).vec(lanes))
                            .cast(DType::of(*t).vec(lanes));
                    }
                    x.cast(DType::of(*t).vec(lanes))
                });
            }
        }
    }
}

#[test]
fn casts_of_large_unsigned_numbers() {
    for lanes in [1, 2, 8] {
        for t in [Scalar::F32, Scalar::F64] {
            one("big_u64", Scalar::U64, &[Scalar::U64], lanes, false, |a| {
                let high = a[0]
                    .binary(Op::And, &a[0].const_like(0x7fff_ff00_0000_0000i64))
                    .binary(Op::Shl, &a[0].const_like(1));
                high.cast(DType::of(t).vec(lanes)).cast(DType::U64.vec(lanes))
            });
            one("big_u32", Scalar::U32, &[Scalar::U32], lanes, false, |a| {
                let high = a[0].binary(Op::And, &a[0].const_like(0xffff_ff00i64));
                high.cast(DType::of(t).vec(lanes)).cast(DType::U32.vec(lanes))
            });
        }
    }
}

#[test]
fn bitcasts_keep_bits() {
    let pairs = [
        (Scalar::F32, Scalar::I32),
        (Scalar::U32, Scalar::F32),
        (Scalar::F64, Scalar::U64),
        (Scalar::I64, Scalar::F64),
        (Scalar::F16, Scalar::U16),
        (Scalar::I16, Scalar::BF16),
        (Scalar::I8, Scalar::U8),
    ];
    for (f, t) in pairs {
        for lanes in LANES {
            one(&format!("bits_{f}"), t, &[f], lanes, true, |a| a[0].bitcast(DType::of(t).vec(lanes)));
        }
    }
}

#[test]
fn lanes_are_spread_picked_joined_and_reduced() {
    let all = INTS.into_iter().chain([Scalar::Bool, Scalar::F16, Scalar::F32, Scalar::F64]);
    for t in all {
        for lanes in LANES {
            one("splat", t, &[t], 1, false, |a| a[0].splat(lanes));
            if lanes == 1 {
                continue;
            }
            let last = lanes - 1;
            one("last", t, &[t], lanes, false, |a| a[0].gep(&[last]));
            one("high", t, &[t], lanes, false, |a| a[0].gep(&(lanes / 2..lanes).collect::<Vec<_>>()));
            one("reverse", t, &[t], lanes, false, |a| a[0].gep(&(0..lanes).rev().collect::<Vec<_>>()));
            one("even", t, &[t], lanes, false, |a| a[0].gep(&(0..lanes).step_by(2).collect::<Vec<_>>()));
            one("stack", t, &[t], lanes, false, |a| {
                let picked: Vec<UOp> = (0..lanes).map(|k| a[0].gep(&[(k + 1) % lanes])).collect();
                UOp::new(Op::Stack, DType::of(t).vec(lanes), picked, Arg::None)
            });
            if lanes <= 32 {
                one("cat", t, &[t, t], lanes, false, |a| {
                    UOp::new(Op::Cat, DType::of(t).vec(2 * lanes), a.to_vec(), Arg::None)
                });
            }
            if t != Scalar::F16 {
                for op in [Op::Add, Op::Max, Op::Mul] {
                    one(&format!("vreduce_{op:?}"), t, &[t], lanes, t.is_float(), |a| {
                        UOp::new(Op::VReduce, DType::of(t), [a[0].clone()], Arg::Reduce(op, Axes::new()))
                    });
                }
            }
        }
    }
}

#[test]
fn constants_of_every_type() {
    for t in INTS.into_iter().chain([Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64]) {
        for lanes in LANES {
            let dt = DType::of(t).vec(lanes);
            for v in [0.0, 1.0, -1.0, 3.0, 100.0] {
                let mut list = List::default();
                let c =
                    UOp::constant(dt, if t.is_float() { doorbell::uop::ConstVal::Float(v) } else { (v as i64).into() });
                list.add(&at(0, dt, lanes as usize).store(&c, &[]));
                check(&list.program(&format!("const_{t}")), &[vec![0xa5; dt.size_bytes()]], &[], 0.0);
            }
        }
    }
}

#[test]
fn selections_of_the_lesser_or_greater_keep_nan_and_zero_signs() {
    for t in INTS.into_iter().chain([Scalar::F32, Scalar::F64]) {
        for lanes in LANES {
            one("lesser", t, &[t, t], lanes, false, |a| a[0].lt(&a[1]).select(&a[0], &a[1]));
            one("greater", t, &[t, t], lanes, false, |a| a[0].lt(&a[1]).select(&a[1], &a[0]));
        }
    }
}
