//! Decompositions against the definition of each op and against reference functions.

use super::lower;
use crate::Target;
use doorbell_uop::{ConstVal, DType, Op, Scalar, UMap, UOp, USet, cast_const, eval_alu, from_bits, to_bits};

const TARGET: Target = Target {
    name: "test",
    vector_bytes: 32,
    vector_regs: 16,
    threads: 1,
    index64: true,
    local_bytes: 0,
    cache_bytes: 0,
    ..Target::null()
};

/// A lowered op as a list of operations that is evaluated lane by lane.
struct Machine {
    order: Vec<(UOp, Vec<usize>)>,
    inputs: Vec<usize>,
}

/// An opaque value, of which the simplifier knows nothing.
fn input(t: impl Into<DType>, k: i64) -> UOp {
    UOp::new(Op::Stage, t.into(), [UOp::int(k)], doorbell_uop::Arg::None)
}

impl Machine {
    fn new(u: &UOp, inputs: &[UOp], fast: bool) -> Machine {
        Machine::on(&TARGET, u, inputs, fast)
    }
    fn on(target: &Target, u: &UOp, inputs: &[UOp], fast: bool) -> Machine {
        let low = lower(u, target, fast).unwrap();
        let order = low.toposort();
        for n in &order {
            let gone = [Op::Exp2, Op::Log2, Op::Sin, Op::Pow, Op::Threefry, Op::FloorDiv, Op::FloorMod];
            assert!(!gone.contains(&n.op()), "{n:?} is left");
            assert!(!n.dtype().scalar.is_fp8() || inputs.contains(n), "{n:?} is fp8");
        }
        let at: UMap<usize> = order.iter().cloned().enumerate().map(|(k, u)| (u, k)).collect();
        let inputs = inputs.iter().map(|i| at.get(i).copied().unwrap_or(usize::MAX)).collect();
        let order = order.into_iter().map(|u| (u.clone(), u.src().iter().map(|s| at[s]).collect())).collect();
        Machine { order, inputs }
    }
    fn run(&self, args: &[ConstVal]) -> ConstVal {
        let mut v: Vec<ConstVal> = Vec::with_capacity(self.order.len());
        for (k, (u, src)) in self.order.iter().enumerate() {
            let t = u.dtype().scalar;
            let r = match self.inputs.iter().position(|i| *i == k) {
                Some(a) => args[a],
                None => match (u.op(), u.as_const()) {
                    (_, Some(c)) => c,
                    (Op::Cast, _) => cast_const(v[src[0]], t),
                    (Op::Bitcast, _) => from_bits(to_bits(v[src[0]], u.src()[0].dtype().scalar), t),
                    (Op::Stage, _) => ConstVal::Int(0),
                    (op, _) => {
                        let t = if op.is_comparison() { u.src()[0].dtype().scalar } else { t };
                        let s: Vec<ConstVal> = src.iter().map(|k| v[*k]).collect();
                        if matches!(op, Op::CDiv | Op::CMod) {
                            let d = s[1].as_int().unwrap();
                            assert!(d != 0 && (d != -1 || !t.is_signed()), "{u:?} could trap");
                        }
                        eval_alu(op, t, &s).unwrap_or_else(|| panic!("{u:?}"))
                    }
                },
            };
            v.push(r);
        }
        v[v.len() - 1]
    }
}

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Every exponent of the type with a few mantissas, both signs, and the special values.
fn inputs(t: Scalar, each: u64) -> Vec<f64> {
    let (bits, mantissa) = if t == Scalar::F64 { (11, 52) } else { (8, 23) };
    let mut rng = Rng(7);
    let mut out = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 0.5, 2.0];
    for e in 0..(1u64 << bits) - 1 {
        for k in 0..each {
            let m = match k {
                0 => 0,
                1 => (1 << mantissa) - 1,
                _ => rng.next() & ((1 << mantissa) - 1),
            };
            for sign in 0..2u64 {
                out.push(from_bits(sign << (bits + mantissa) | e << mantissa | m, t).as_f64());
            }
        }
    }
    out
}

/// Distance in units of the last place of `want` (given more exactly than the type); 0 for equal specials.
fn ulps(got: f64, want: f64, t: Scalar) -> f64 {
    let w = cast_const(ConstVal::Float(want), t).as_f64();
    if got.to_bits() == w.to_bits() || got.is_nan() && w.is_nan() {
        return 0.0;
    }
    if got.is_nan() || w.is_nan() || w.is_infinite() != got.is_infinite() {
        // A result that just overflows is half a unit from the largest finite one.
        return f64::INFINITY;
    }
    let (mantissa, lowest) = if t == Scalar::F64 { (52, -1074) } else { (23, -149) };
    let e = if w == 0.0 { lowest } else { (w.abs().log2().floor() as i32 - mantissa).max(lowest) };
    let unit = if e < -1022 { f64::from_bits(1u64 << (e + 1074)) } else { 2f64.powi(e) };
    (got - want).abs() / unit
}

fn worst(op: Op, t: Scalar, xs: &[f64], want: impl Fn(f64) -> f64) -> (f64, f64) {
    let x = input(t, 0);
    let m = Machine::new(&UOp::alu(op, [x.clone()]), &[x], false);
    xs.iter().fold((0.0, 0.0), |(w, at), x| {
        let got = m.run(&[ConstVal::Float(*x)]).as_f64();
        let u = ulps(got, want(*x), t);
        if u > w { (u, *x) } else { (w, at) }
    })
}

/// Multiples of a step around zero, and around points where reductions change.
fn dense(n: i64, step: f64) -> impl Iterator<Item = f64> {
    (-n..=n).map(move |k| k as f64 * step)
}
fn rounded(xs: impl Iterator<Item = f64>, t: Scalar) -> Vec<f64> {
    xs.map(|x| cast_const(ConstVal::Float(x), t).as_f64()).collect()
}

#[test]
fn powers_of_two_by_ldexp_are_those_by_the_exponent_field_bit_for_bit() {
    let target = Target { ldexp: true, ..TARGET };
    for t in [Scalar::F32, Scalar::F64] {
        let x = input(t, 0);
        let u = UOp::alu(Op::Exp2, [x.clone()]);
        let on = |target| Machine::on(target, &u, std::slice::from_ref(&x), false);
        let (plain, scaled) = (on(&TARGET), on(&target));
        assert!(scaled.order.iter().any(|n| n.0.op() == Op::Ldexp) && scaled.order.len() < plain.order.len());
        let mut xs = inputs(t, 24);
        xs.extend(rounded(dense(20_000, if t == Scalar::F32 { 0.0079 } else { 0.0557 }), t));
        for x in xs {
            let x = ConstVal::Float(x);
            let (a, b) = (plain.run(&[x]).as_f64(), scaled.run(&[x]).as_f64());
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{t:?} {x:?}: {a:e} {b:e}");
        }
    }
}

#[test]
fn f32_exp2_is_within_two_units_everywhere() {
    let t = Scalar::F32;
    let mut xs = inputs(t, 24);
    xs.extend(rounded(dense(20_000, 0.0079), t));
    xs.extend(rounded([-149.0, -149.5, -150.0, -126.0, -126.5, 127.0, 127.99999, 128.0, -126.00001].into_iter(), t));
    let (u, at) = worst(Op::Exp2, t, &xs, f64::exp2);
    assert!(u <= 2.0, "{u} ulp at {at:?}");
    let x = input(t, 0);
    let m = Machine::new(&UOp::alu(Op::Exp2, [x.clone()]), &[x], false);
    for n in -126..128 {
        assert_eq!(m.run(&[ConstVal::Float(n as f64)]).as_f64(), 2f64.powi(n), "whole exponents are exact");
    }
}

#[test]
fn f32_log2_is_within_two_units_everywhere() {
    let t = Scalar::F32;
    let mut xs = inputs(t, 40);
    xs.extend(rounded((0..40_000).map(|k| 0.7 + k as f64 * 2e-5), t));
    xs.extend((0..2000).map(|k| f32::from_bits(1.0f32.to_bits() - 1000 + k) as f64));
    let (u, at) = worst(Op::Log2, t, &xs, f64::log2);
    assert!(u <= 2.0, "{u} ulp at {at:?}");
}

#[test]
fn f32_sine_is_within_two_units_everywhere() {
    let t = Scalar::F32;
    let mut xs = inputs(t, 40);
    xs.extend(rounded(dense(20_000, 0.00123), t));
    // The f32 nearest to multiples of pi.
    xs.extend(rounded(dense(20_000, std::f64::consts::PI), t));
    let (u, at) = worst(Op::Sin, t, &xs, f64::sin);
    assert!(u <= 2.0, "{u} ulp at {at:?}");
}

/// The reference itself is accurate to half a unit.
#[test]
fn f64_functions_are_within_four_units_of_the_standard_library() {
    let t = Scalar::F64;
    let xs = inputs(t, 6);
    let mut near: Vec<f64> = xs.clone();
    near.extend(dense(6_000, 0.017));
    let (u, at) = worst(Op::Exp2, t, &near, f64::exp2);
    assert!(u <= 4.0, "exp2: {u} ulp at {at:?}");
    near.extend((0..6_000).map(|k| 0.7 + k as f64 * 1.3e-4));
    let (u, at) = worst(Op::Log2, t, &near, f64::log2);
    assert!(u <= 4.0, "log2: {u} ulp at {at:?}");
    near.extend(dense(6_000, std::f64::consts::PI));
    // A double near a multiple of pi/2, from Kahan's search: 6381956970095103 * 2^797.
    near.push(6381956970095103.0 * 2f64.powi(797));
    let (u, at) = worst(Op::Sin, t, &near, f64::sin);
    assert!(u <= 4.0, "sin: {u} ulp at {at:?}");
}

/// Bases and exponents with the special values, and random ones.
fn powers(t: Scalar) -> Vec<(f64, f64)> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e30, -1e30, inf, -inf, nan];
    let mut pairs: Vec<(f64, f64)> = special.iter().flat_map(|a| special.map(|b| (*a, b))).collect();
    let mut rng = Rng(3);
    let f = |r: u64, scale: f64| ((r >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * scale;
    for _ in 0..20_000 {
        pairs.push((f(rng.next(), 20.0), (f(rng.next(), 30.0)).round()));
        pairs.push((f(rng.next(), 20.0).abs(), f(rng.next(), 40.0)));
        if t == Scalar::F64 {
            // Bases of every size and next to 1, with results of every exponent, denormal ones too.
            let base = [f(rng.next(), 2000.0).exp2(), 1.0 + f(rng.next(), f(rng.next(), 60.0).exp2().min(1.0))];
            pairs.extend(base.map(|a| (a, f(rng.next(), 2140.0) / a.log2())));
        }
    }
    pairs
}

#[test]
fn pow_is_within_two_units_and_keeps_the_special_cases() {
    for t in [Scalar::F32, Scalar::F64] {
        let (x, y) = (input(t, 0), input(t, 1));
        let m = Machine::new(&UOp::alu(Op::Pow, [x.clone(), y.clone()]), &[x, y], false);
        for (a, b) in powers(t) {
            let [a, b] = [a, b].map(|v| cast_const(ConstVal::Float(v), t).as_f64());
            let got = m.run(&[ConstVal::Float(a), ConstVal::Float(b)]).as_f64();
            let u = ulps(got, a.powf(b), t);
            assert!(u <= 2.0, "{t}: pow({a:?}, {b:?}) = {got:?}, not {:?}: {u} ulp", a.powf(b));
        }
    }
}

#[test]
fn a_target_without_f64_gets_none_and_keeps_sin_and_pow_of_f32() {
    let target = Target { f64: false, f16_math: true, ..TARGET };
    let lowered = |u: &UOp| lower(u, &target, false).unwrap().toposort();
    let has = |all: &[UOp], op| all.iter().any(|n| n.op() == op);
    let vector = DType::from(Scalar::I32).vec(4);
    let (x, y, h) = (input(Scalar::F32, 0), input(Scalar::F32, 1), input(Scalar::F16, 2));
    let (n, m) = (input(vector, 3), input(vector, 4));
    let power = |e: f64| UOp::alu(Op::Pow, [x.clone(), x.const_like(e)]);
    let all = [
        (UOp::alu(Op::Sin, [x.clone()]), Some(Op::Sin)),
        (UOp::alu(Op::Sin, [h]), Some(Op::Sin)),
        (UOp::alu(Op::Pow, [x.clone(), y.clone()]), Some(Op::Pow)),
        (power(2.5), Some(Op::Pow)),
        (power(7.0), None),
        (n.binary(Op::FloorDiv, &m), Some(Op::CDiv)),
        (n.cast(n.dtype().with_scalar(Scalar::F16)), None),
    ];
    for (u, left) in &all {
        let low = lowered(u);
        assert!(low.iter().all(|n| n.dtype().scalar != Scalar::F64), "{u:?}");
        assert!(left.is_none_or(|op| has(&low, op)), "{u:?} without {left:?}");
    }
    assert!(!has(&lowered(&power(7.0)), Op::Pow));
    let double = lowered(&UOp::alu(Op::Sin, [input(Scalar::F64, 5)]));
    assert!(!has(&double, Op::Sin), "sin of f64 is decomposed everywhere");
}

#[test]
fn powers_with_constant_exponents_and_of_integers_follow_the_definition() {
    for n in [-3.0, -1.0, 0.0, 0.5, 2.0, 3.0, 7.0, 2.5] {
        let x = input(Scalar::F32, 0);
        let u = UOp::alu(Op::Pow, [x.clone(), x.const_like(n)]);
        let m = Machine::new(&u, &[x], false);
        for a in [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-20, 3.25e7] {
            let a = a as f32 as f64;
            let got = m.run(&[ConstVal::Float(a)]).as_f64();
            assert!(ulps(got, a.powf(n), Scalar::F32) <= 2.0, "{a:?}^{n} = {got:?}, not {:?}", a.powf(n));
        }
    }
    for t in [Scalar::I32, Scalar::U8, Scalar::I64] {
        let (x, y) = (input(t, 0), input(t, 1));
        let m = Machine::new(&UOp::alu(Op::Pow, [x.clone(), y.clone()]), &[x, y], false);
        for a in [-3i128, -1, 0, 1, 2, 3, 7, 11] {
            for b in [-3i128, -2, -1, 0, 1, 2, 3, 5, 31, 33] {
                let v = [cast_const(ConstVal::Int(a), t), cast_const(ConstVal::Int(b), t)];
                assert_eq!(m.run(&v), eval_alu(Op::Pow, t, &v).unwrap(), "{a}^{b} {t}");
            }
        }
    }
}

fn samples(t: Scalar) -> Vec<i128> {
    let (lo, hi) = t.int_range();
    let mut v: Vec<i128> =
        (-20..=20).chain([lo, lo + 1, lo + 2, hi, hi - 1, hi / 2, lo / 2, 1000, -1000, 65535, 65536]).collect();
    let mut rng = Rng(11);
    v.extend((0..60).map(|_| (rng.next() as i64 >> (rng.next() % 60)) as i128));
    v.retain(|x| (lo..=hi).contains(x));
    v
}

#[test]
fn division_by_constants_is_exact_for_every_type_and_sign() {
    for t in [Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64] {
        let xs = samples(t);
        for op in [Op::FloorDiv, Op::FloorMod, Op::CDiv, Op::CMod] {
            for c in [
                1i128,
                -1,
                2,
                3,
                5,
                6,
                7,
                8,
                10,
                12,
                25,
                64,
                100,
                127,
                125,
                641,
                1000,
                65537,
                1 << 31,
                0xffff_fffb,
                -2,
                -3,
                -7,
                -8,
                -100,
                0,
            ] {
                let (lo, hi) = t.int_range();
                if c < lo || c > hi {
                    continue;
                }
                let x = input(t, 0);
                let u = UOp::alu(op, [x.clone(), UOp::constant(DType::of(t), ConstVal::Int(c))]);
                if matches!(op, Op::CDiv | Op::CMod) && t.size_bytes() == 8 {
                    continue;
                }
                let m = Machine::new(&u, &[x], false);
                for a in &xs {
                    let v = [ConstVal::Int(*a), ConstVal::Int(c)];
                    assert_eq!(m.run(&v[..1]), eval_alu(op, t, &v).unwrap(), "{op:?} {t}: {a}, {c}");
                }
            }
        }
    }
}

#[test]
fn bounded_index_division_needs_no_machine_division() {
    let x = UOp::var("i", 0, 1 << 24).with_dtype(DType::I64);
    for c in [3i64, 7, 12, 28, 100, 784, 3136] {
        for op in [Op::FloorDiv, Op::FloorMod] {
            let u = x.binary(op, &x.const_like(c));
            let low = lower(&u, &TARGET, false).unwrap();
            assert!(!low.any(|n| matches!(n.op(), Op::CDiv | Op::CMod)), "{c}");
            let m = Machine::new(&u, std::slice::from_ref(&x), false);
            for a in [0, 1, 2, 3, 27, 28, 29, 783, 784, 785, 1 << 20, (1 << 24) - 1, 1 << 24] {
                let want = eval_alu(op, Scalar::I64, &[ConstVal::Int(a), ConstVal::Int(c.into())]).unwrap();
                assert_eq!(m.run(&[ConstVal::Int(a)]), want, "{op:?} {a} {c}");
            }
        }
    }
}

#[test]
fn division_by_values_never_traps_and_vectors_use_f64() {
    for (t, lanes) in [
        (Scalar::I32, 1),
        (Scalar::U32, 1),
        (Scalar::I64, 1),
        (Scalar::U64, 1),
        (Scalar::I8, 1),
        (Scalar::I32, 8),
        (Scalar::U32, 8),
        (Scalar::I16, 8),
    ] {
        let dt = DType::of(t).vec(lanes);
        for op in [Op::FloorDiv, Op::FloorMod, Op::CDiv, Op::CMod] {
            let (x, y) = (input(dt, 0), input(dt, 1));
            let m = Machine::new(&UOp::alu(op, [x.clone(), y.clone()]), &[x, y], false);
            assert!(lanes == 1 || !m.order.iter().any(|n| matches!(n.0.op(), Op::CDiv | Op::CMod)));
            for a in samples(t) {
                for b in samples(t).into_iter().step_by(3).chain([0, 1, 2, 3]) {
                    let v = [ConstVal::Int(a), ConstVal::Int(b)];
                    assert_eq!(m.run(&v), eval_alu(op, t, &v).unwrap(), "{op:?} {t}x{lanes}: {a}, {b}");
                }
            }
        }
    }
}

#[test]
fn threefry_follows_the_definition() {
    let t = Scalar::U64;
    let (x, k) = (input(t, 0), input(t, 1));
    let m = Machine::new(&UOp::alu(Op::Threefry, [x.clone(), k.clone()]), &[x, k], false);
    let mut rng = Rng(5);
    for _ in 0..50 {
        let (a, b) = (rng.next(), rng.next());
        let got = m.run(&[ConstVal::Int(a.into()), ConstVal::Int(b.into())]);
        assert_eq!(got, ConstVal::Int(doorbell_uop::threefry2x32(a, b).into()));
    }
}

#[test]
fn half_types_compute_in_f32_and_round_back() {
    for t in [Scalar::F16, Scalar::BF16] {
        let (x, y) = (input(t, 0), input(t, 1));
        let u = &(&x * &y) + &x;
        let m = Machine::new(&u, &[x, y], false);
        for (n, _) in &m.order {
            assert!(n.dtype().scalar != t || matches!(n.op(), Op::Cast | Op::Stage), "{n:?}");
        }
        let mut rng = Rng(9);
        for _ in 0..2000 {
            let v = [from_bits(rng.next() & 0x7fff, t), from_bits(rng.next() & 0xffff, t)];
            let p = eval_alu(Op::Mul, t, &v).unwrap();
            let want = eval_alu(Op::Add, t, &[p, v[0]]).unwrap();
            let got = m.run(&v);
            assert!(got == want || got.as_f64().is_nan() && want.as_f64().is_nan(), "{v:?}: {got:?} {want:?}");
        }
    }
}

/// The value of a half type nearest to `v`, by looking at the neighbours of a first guess; ties to even.
fn nearest_half(v: f64, t: Scalar) -> f64 {
    let value = |bits: u16| match t {
        Scalar::F16 => half::f16::from_bits(bits).to_f64(),
        _ => half::bf16::from_bits(bits).to_f64(),
    };
    let guess = match t {
        Scalar::F16 => half::f16::from_f32(v as f32).to_bits(),
        _ => half::bf16::from_f32(v as f32).to_bits(),
    };
    let near = [guess, guess.wrapping_sub(1), guess.wrapping_add(1)];
    let finite = near.into_iter().filter(|b| value(*b).is_finite());
    let best = finite.min_by(|a, b| {
        let far = |x: u16| (value(x) - v).abs();
        far(*a).total_cmp(&far(*b)).then((a & 1).cmp(&(b & 1)))
    });
    best.filter(|_| value(guess).is_finite()).map_or(value(guess), value)
}

#[test]
fn wide_types_are_rounded_once_to_half_types() {
    let mut rng = Rng(5);
    for t in [Scalar::F16, Scalar::BF16] {
        let x = input(Scalar::F64, 0);
        let m = Machine::new(&x.cast(t), &[x], false);
        let digits = if t == Scalar::F16 { 10 } else { 7 };
        for _ in 0..4000 {
            // In the middle between two values, or so little beside it that f32 does not see the difference.
            let r = rng.next();
            let cut = 52 - digits;
            let bits = (r >> cut << cut) | 1 << (cut - 1);
            let scale = 1023 - 12 + (r >> 52) % 24;
            let middle = f64::from_bits(bits & !(0x7ff << 52) | scale << 52);
            for v in [middle, middle * (1.0 + f64::EPSILON), middle * (1.0 - f64::EPSILON), -middle, f64::from_bits(r)]
            {
                let got = m.run(&[ConstVal::Float(v)]).as_f64();
                let want = nearest_half(v, t);
                assert!(got == want || got.is_nan() && want.is_nan(), "{v:e} to {t}: {got:e}, should be {want:e}");
                assert!(
                    cast_const(ConstVal::Float(v), t).as_f64() == want || want.is_nan(),
                    "{v:e} to {t}: the reference is wrong"
                );
            }
        }
    }
    let x = input(Scalar::I32, 0);
    let m = Machine::new(&x.cast(Scalar::BF16), &[x], false);
    for v in [0x4080_0001i64, 0x4080_0000, -0x4080_0001, 0x40ff_ffff, 257, -259, 0, i64::from(i32::MIN)] {
        let got = m.run(&[ConstVal::Int(v.into())]).as_f64();
        assert_eq!(got, nearest_half(v as f64, Scalar::BF16), "{v:#x}");
    }
}

#[test]
fn fp8_bits_decode_and_encode_as_the_formats_say() {
    for t in [Scalar::F8E4M3, Scalar::F8E5M2, Scalar::F8E4M3Fnuz, Scalar::F8E5M2Fnuz] {
        let b = input(Scalar::U8, 0);
        let decode = Machine::new(&super::fp8::decode(&b, t), &[b], false);
        for code in 0..256u64 {
            let (got, want) = (decode.run(&[ConstVal::Int(code.into())]).as_f64(), from_bits(code, t).as_f64());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{t} {code:#x}: {got} {want}");
        }
        let x = input(Scalar::F32, 0);
        let encode = Machine::new(&super::fp8::encode(&x, t), &[x], false);
        let mut xs = inputs(Scalar::F32, 30);
        // Every code and the ties between neighbours.
        let codes: Vec<f64> = (0..256).map(|c| from_bits(c, t).as_f64()).collect();
        xs.extend(codes.windows(2).flat_map(|w| [w[0], (w[0] + w[1]) / 2.0]));
        for v in xs {
            let want = to_bits(ConstVal::Float(v), t);
            let got = encode.run(&[ConstVal::Float(v)]).as_int().unwrap() as u64;
            let nan = |b: u64| from_bits(b, t).as_f64().is_nan();
            assert!(got == want || nan(got) && nan(want), "{t} {v:?}: {got:#x} {want:#x}");
        }
    }
}

#[test]
fn an_f64_is_rounded_once_to_fp8() {
    for t in [Scalar::F8E4M3, Scalar::F8E5M2, Scalar::F8E4M3Fnuz, Scalar::F8E5M2Fnuz] {
        let x = input(Scalar::F64, 0);
        let m = Machine::new(&x.cast(t), &[x], false);
        let codes: Vec<f64> = (0..256).map(|c| from_bits(c, t).as_f64()).filter(|v| v.is_finite()).collect();
        let middles = codes.windows(2).map(|w| (w[0] + w[1]) / 2.0);
        let beside = |v: f64| [v, v * (1.0 + f64::EPSILON), v * (1.0 - f64::EPSILON), v + v * 2f64.powi(-40)];
        let ends = [1e300, -1e300, f64::INFINITY, f64::NAN, 1e-300, 5e-324, -0.0, 464.0, 465.0, 61440.0];
        for v in middles.flat_map(beside).chain(ends) {
            let (got, want) = (m.run(&[ConstVal::Float(v)]).as_int().unwrap() as u64, to_bits(ConstVal::Float(v), t));
            let nan = |b: u64| from_bits(b, t).as_f64().is_nan();
            assert!(got == want || nan(got) && nan(want), "{t} {v:e}: {got:#x} {want:#x}");
        }
    }
}

#[test]
fn a_kernel_on_fp8_keeps_only_bits() {
    let t = DType::of(Scalar::F8E4M3);
    let i = UOp::int(3);
    let load = |slot| UOp::param(slot, t, 8).index(&i).load();
    let sum = &load(1) + &load(2);
    let sink = UOp::sink([UOp::param(0, t, 8).index(&i).store(&sum, &[])]);
    let low = lower(&sink, &TARGET, false).unwrap();
    let left: USet = low.toposort().into_iter().filter(|u| u.dtype().scalar.is_fp8()).collect();
    assert!(left.is_empty(), "{left:?}");
}
