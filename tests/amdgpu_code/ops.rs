//! Every op on every type and lane count that a linear program may hold; each thread of two waves has its own values.

use super::machine::{List, Rng, check};
use doorbell::uop::{Arg, Axes, DType, Op, Scalar, UOp};

const INTS: [Scalar; 8] =
    [Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
pub const LANES: [u16; 4] = [1, 2, 4, 16];
const THREADS: u32 = 37;

/// This thread's first element of a buffer with so many lanes a thread.
fn at(slot: u32, dt: DType) -> UOp {
    let lidx =
        UOp::new(Op::Special, DType::I32, [UOp::constant(DType::I32, i64::from(THREADS))], Arg::Str("lidx0".into()));
    let i = lidx.binary(Op::Mul, &UOp::constant(DType::I32, i64::from(dt.lanes)));
    UOp::param(slot, dt.element(), THREADS as usize * usize::from(dt.lanes)).index(&i)
}

/// The first elements of a buffer: the same for all threads.
fn shared(slot: u32, dt: DType) -> UOp {
    let len = THREADS as usize * usize::from(dt.lanes);
    UOp::param(slot, dt.element(), len).index(&UOp::constant(DType::I32, 0))
}

fn load(from: UOp, dt: DType) -> UOp {
    UOp::new(Op::Load, dt, [from], Arg::None)
}

/// `out = f(in1, in2, ..)` on values of `lanes` lanes, checked against the interpreter. Once with every input a
/// thread's own, once with the first input shared by all.
pub fn one(
    name: &str,
    out: Scalar,
    ins: &[Scalar],
    lanes: u16,
    (tame, tolerance): (bool, f64),
    f: impl Fn(&[UOp]) -> UOp,
) {
    for all_alike in [0, 1, ins.len()] {
        let args: Vec<UOp> = ins
            .iter()
            .enumerate()
            .map(|(k, t)| {
                let (slot, dt) = (k as u32 + 1, DType::of(*t).vec(lanes));
                load(if k < all_alike { shared(slot, dt) } else { at(slot, dt) }, dt)
            })
            .collect();
        let value = f(&args);
        let n = value.dtype().lanes;
        let mut list = List::default();
        list.add(&at(0, DType::of(out).vec(n)).store(&value, &[]));
        let p = list.program(&format!("{name}_{out}_x{lanes}_{all_alike}"), THREADS);
        let len = THREADS as usize;
        let inputs: Vec<Vec<Vec<u8>>> = (0..2)
            .map(|seed| {
                let mut rng = Rng(seed * 977 + u64::from(lanes));
                let out = vec![0xa5; out.size_bytes() * usize::from(n) * len];
                let all = ins.iter().map(|t| rng.fill(*t, usize::from(lanes) * len, tame));
                std::iter::once(out).chain(all).collect()
            })
            .collect();
        check(&p, &inputs, &[], tolerance);
    }
}

fn binary(op: Op, t: Scalar, tame: bool) {
    for lanes in LANES {
        one(&format!("{op:?}"), t, &[t, t], lanes, (tame, 0.0), |a| a[0].binary(op, &a[1]));
    }
}

#[test]
fn integer_arithmetic_and_logic_wrap_as_the_interpreter_says() {
    for t in INTS {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Max, Op::And, Op::Or, Op::Xor] {
            binary(op, t, false);
        }
        for lanes in LANES {
            one("neg", t, &[t], lanes, (false, 0.0), |a| UOp::alu(Op::Neg, [a[0].clone()]));
            one("mulacc", t, &[t, t, t], lanes, (false, 0.0), |a| UOp::alu(Op::MulAcc, a.to_vec()));
        }
    }
}

#[test]
fn integer_shifts_by_constants_and_by_lanes() {
    for t in INTS {
        let bits = 8 * t.size_bytes() as i64;
        for lanes in [1, 4] {
            for op in [Op::Shl, Op::Shr] {
                for n in [0, 1, bits / 2, bits - 1, bits] {
                    one(&format!("{op:?}_{n}"), t, &[t], lanes, (false, 0.0), |a| a[0].binary(op, &a[0].const_like(n)));
                }
                one(&format!("{op:?}_v"), t, &[t, t], lanes, (true, 0.0), |a| {
                    let count = if t.is_unsigned() {
                        a[1].clone()
                    } else {
                        a[1].binary(Op::Max, &UOp::alu(Op::Neg, [a[1].clone()]))
                    };
                    let far = count.binary(Op::Mul, &a[1].const_like(4));
                    a[0].binary(op, &far)
                });
            }
        }
    }
}

#[test]
fn integer_division_by_lanes_rounds_toward_zero() {
    for t in INTS {
        for lanes in [1, 2] {
            for op in [Op::CDiv, Op::CMod] {
                for tame in [true, false] {
                    one(&format!("{op:?}"), t, &[t, t], lanes, (tame, 0.0), |a| {
                        let three = a[1].const_like(3);
                        let positive = a[1].binary(Op::And, &a[1].const_like(7)).binary(Op::Add, &three);
                        a[0].binary(op, &positive)
                    });
                }
                // Any divisor but 0 and -1.
                one(&format!("{op:?}_any"), t, &[t, t], lanes, (false, 0.0), |a| {
                    let bit = a[1].binary(Op::Or, &a[1].const_like(2)).binary(Op::And, &a[1].const_like(-2));
                    a[0].binary(op, &bit)
                });
            }
        }
    }
}

#[test]
fn float_arithmetic_is_bit_exact_with_nan_infinity_denormals_and_signed_zero() {
    for t in [Scalar::F32, Scalar::F64] {
        for op in [Op::Add, Op::Sub, Op::Mul, Op::FDiv, Op::Max] {
            binary(op, t, false);
        }
        for lanes in [1, 4] {
            for op in [Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc] {
                one(&format!("{op:?}"), t, &[t], lanes, (false, 0.0), |a| UOp::alu(op, [a[0].clone()]));
            }
            one("relu", t, &[t], lanes, (false, 0.0), |a| a[0].max(&a[0].const_like(0.0)));
            one("relu_swapped", t, &[t], lanes, (false, 0.0), |a| a[0].const_like(0.0).max(&a[0]));
        }
    }
}

#[test]
fn fused_multiply_adds_are_exact_on_small_values() {
    for t in [Scalar::F32, Scalar::F64] {
        for lanes in LANES {
            one("fma", t, &[t, t, t], lanes, (true, 0.0), |a| UOp::alu(Op::MulAcc, a.to_vec()));
            one("horner", t, &[t], lanes, (true, 0.0), |a| {
                let c = |v: f64| a[0].const_like(v);
                let p = UOp::alu(Op::MulAcc, [c(0.25), a[0].clone(), c(0.5)]);
                let p = UOp::alu(Op::MulAcc, [p, a[0].clone(), c(1.25)]);
                UOp::alu(Op::MulAcc, [p, c(0.375), c(1.75)])
            });
        }
    }
}

#[test]
fn comparisons_select_and_store_bools() {
    for t in INTS.into_iter().chain([Scalar::F32, Scalar::F64]) {
        for lanes in LANES {
            for op in [Op::CmpLt, Op::CmpNe, Op::CmpEq] {
                one(&format!("{op:?}_{t}"), Scalar::Bool, &[t, t], lanes, (false, 0.0), |a| a[0].binary(op, &a[1]));
            }
            one("where", t, &[t, t], lanes, (true, 0.0), |a| a[0].lt(&a[1]).select(&a[0], &a[1].const_like(7)));
        }
    }
}

#[test]
fn bools_are_loaded_combined_and_stored() {
    let b = Scalar::Bool;
    for lanes in LANES {
        for op in [Op::And, Op::Or, Op::Xor, Op::Add, Op::Mul, Op::CmpEq, Op::CmpNe, Op::CmpLt, Op::Max] {
            one(&format!("{op:?}"), b, &[b, b], lanes, (false, 0.0), |a| a[0].binary(op, &a[1]));
        }
        one("where", b, &[b, b, b], lanes, (false, 0.0), |a| a[0].select(&a[1], &a[2]));
        one("mulacc", b, &[b, b, b], lanes, (false, 0.0), |a| UOp::alu(Op::MulAcc, a.to_vec()));
    }
}

#[test]
fn casts_agree_with_the_interpreter_within_range() {
    let all = INTS.into_iter().chain([Scalar::F32, Scalar::F64, Scalar::F16, Scalar::BF16, Scalar::Bool]);
    let all: Vec<Scalar> = all.collect();
    for from in &all {
        for to in &all {
            for lanes in [1, 4] {
                // Negative floats are out of range of unsigned types, and so are large ones.
                let tame = from.is_float() && to.is_int();
                one(&format!("cast_{from}"), *to, &[*from], lanes, (tame, 0.0), |a| {
                    let x = if tame && to.is_unsigned() { &a[0] * &a[0].cast(a[0].dtype()) } else { a[0].clone() };
                    let x = if matches!(from, Scalar::F16 | Scalar::BF16) { a[0].clone() } else { x };
                    if tame && to.is_unsigned() && matches!(from, Scalar::F16 | Scalar::BF16) {
                        let wide = x.cast(x.dtype().with_scalar(Scalar::F32));
                        return (&wide * &wide).cast(DType::of(*to).vec(lanes));
                    }
                    x.cast(DType::of(*to).vec(lanes))
                });
            }
        }
    }
}

#[test]
fn bitcasts_keep_the_bits() {
    let pairs = [
        (Scalar::F32, Scalar::I32),
        (Scalar::U32, Scalar::F32),
        (Scalar::F64, Scalar::U64),
        (Scalar::I64, Scalar::F64),
        (Scalar::F16, Scalar::U16),
        (Scalar::I16, Scalar::BF16),
        (Scalar::U8, Scalar::I8),
    ];
    for (from, to) in pairs {
        for lanes in LANES {
            // The interpreter makes NaNs quiet on the way.
            let tame = from.is_float() || to.is_float();
            one(&format!("bitcast_{from}"), to, &[from], lanes, (tame, 0.0), |a| {
                a[0].bitcast(DType::of(to).vec(lanes))
            });
        }
    }
}

#[test]
fn lanes_are_taken_joined_spread_and_summed() {
    for t in [Scalar::F32, Scalar::F64, Scalar::I8, Scalar::U16, Scalar::I64, Scalar::F16, Scalar::Bool] {
        let gep = |x: &UOp, lanes: &[u16]| {
            let n = lanes.len() as u16;
            let dt = if n == 1 { x.dtype().element() } else { x.dtype().element().vec(n) };
            UOp::new(Op::Gep, dt, [x.clone()], Arg::Axes(lanes.iter().copied().collect::<Axes>()))
        };
        one("reverse", t, &[t], 4, (true, 0.0), |a| gep(&a[0], &[3, 2, 1, 0]));
        one("one", t, &[t], 4, (true, 0.0), |a| gep(&a[0], &[2]));
        one("cat", t, &[t, t], 2, (true, 0.0), |a| {
            UOp::new(Op::Cat, a[0].dtype().element().vec(4), [a[1].clone(), a[0].clone()], Arg::None)
        });
        one("stack", t, &[t, t], 1, (true, 0.0), |a| {
            UOp::new(Op::Stack, a[0].dtype().vec(4), [&a[1], &a[0], &a[0], &a[1]].map(Clone::clone), Arg::None)
        });
        one("splat", t, &[t], 1, (true, 0.0), |a| UOp::new(Op::Splat, a[0].dtype().vec(8), [a[0].clone()], Arg::None));
        if !matches!(t, Scalar::F16 | Scalar::Bool) {
            for op in [Op::Add, Op::Max] {
                one(&format!("sum_{op:?}"), t, &[t], 4, (true, 0.0), |a| {
                    UOp::new(Op::VReduce, a[0].dtype().element(), [a[0].clone()], Arg::Reduce(op, Axes::new()))
                });
            }
        }
    }
}

/// `out = op over n neighbouring threads of in`, in a workgroup of so many threads.
pub fn across(t: Scalar, op: Op, n: u16, threads: u32, lanes: u16) -> (doorbell::codegen::Program, Vec<Vec<Vec<u8>>>) {
    let lidx =
        UOp::new(Op::Special, DType::I32, [UOp::constant(DType::I32, i64::from(threads))], Arg::Str("lidx0".into()));
    let (dt, len) = (DType::of(t).vec(lanes), threads as usize * usize::from(lanes));
    let i = lidx.binary(Op::Mul, &UOp::constant(DType::I32, i64::from(lanes)));
    let x = load(UOp::param(1, dt.element(), len).index(&i), dt);
    let mut list = List::default();
    list.add(&UOp::param(0, dt.element(), len).index(&i).store(&x.wave_reduce(op, n, None), &[]));
    let inputs = (0..2).map(|seed| {
        let mut rng = Rng(seed * 31 + u64::from(n));
        // Signalling NaNs are made quiet in another step than the interpreter's.
        vec![vec![0xa5; len * t.size_bytes()], rng.fill(t, len, t.is_float())]
    });
    (list.program(&format!("{op:?}_{t}_x{lanes}_over_{n}_of_{threads}"), threads), inputs.collect())
}

#[test]
fn threads_of_a_wave_combine_their_values_bit_for_bit() {
    for t in [Scalar::F32, Scalar::F64, Scalar::I32, Scalar::U32, Scalar::I8, Scalar::U16, Scalar::I64, Scalar::U64] {
        for op in [Op::Add, Op::Mul, Op::Max] {
            for (n, threads, lanes) in [(2, 34, 1), (4, 4, 2), (8, 40, 1), (16, 48, 1), (32, 96, 2)] {
                let (p, inputs) = across(t, op, n, threads, lanes);
                check(&p, &inputs, &[], 0.0);
            }
        }
    }
}
