//! The mathematics library in single and double precision, against Rust's (and own series) in double precision.

use super::{Case, Random, Tolerance, line};

const N: usize = 200;

type Single = fn(f64, f64) -> f64;

/// A kernel of `EACH`, single precision, whose results are functions of both inputs.
fn single(name: &'static str, x: (f64, f64), y: (f64, f64), functions: &'static [Single]) -> Case {
    let mut r = Random::new(name.len() as u64 * 77 + name.as_bytes()[0] as u64);
    line(name, "float", 7, 32)
        .f32s(r.f32s(N, x.0, x.1))
        .f32s(r.f32s(N, y.0, y.1))
        .f32s(vec![0.0; N * functions.len()])
        .int(N as i32)
        .does(move |d| {
            let (a, b) = (d[0].f32s().clone(), d[1].f32s().clone());
            for (k, f) in functions.iter().enumerate() {
                (0..N).for_each(|i| d[2].f32s()[k * N + i] = f(a[i].into(), b[i].into()) as f32);
            }
        })
}

fn double(name: &'static str, x: (f64, f64), y: (f64, f64), functions: &'static [Single]) -> Case {
    let mut r = Random::new(name.len() as u64 * 79 + 5);
    line(name, "float", 7, 32)
        .f64s(r.f64s(N, x.0, x.1))
        .f64s(r.f64s(N, y.0, y.1))
        .f64s(vec![0.0; N * functions.len()])
        .int(N as i32)
        .does(move |d| {
            let (a, b) = (d[0].f64s().clone(), d[1].f64s().clone());
            for (k, f) in functions.iter().enumerate() {
                (0..N).for_each(|i| d[2].f64s()[k * N + i] = f(a[i], b[i]));
            }
        })
}

/// The most that the CUDA manual's table allows a function of these lists is 6; two more for approximations in an
/// emulated MUFU.
const SINGLE: Tolerance = Tolerance::Ulps(8);
const WHY: &str = "CUDA's manual gives errors of 1 to 6 units in the last place, MUFU is not specified to the bit";

pub fn cases() -> Vec<Case> {
    let all: (f64, f64) = (-20.0, 20.0);
    let unit = (-0.97, 0.97);
    let mut list = vec![
        single("trigonometry", (-3e5, 3e5), unit, &[|x, _| x.sin(), |x, _| x.cos(), |x, _| x.tan()]),
        single("exponentials", all, all, &[|_, y| y.exp(), |_, y| y.exp2(), |_, y| 10f64.powf(y), |_, y| y.exp_m1()]),
        single(
            "logarithms",
            all,
            all,
            &[|x, _| x.abs().ln(), |x, _| x.abs().log2(), |x, _| x.abs().log10(), |x, _| x.abs().ln_1p()],
        ),
        single(
            "powers",
            all,
            (-3.0, 3.0),
            &[|x, y| x.abs().powf(y), |x, _| x.cbrt(), f64::hypot, |x, _| 1.0 / x.abs().sqrt()],
        ),
        single("inverse_trigonometry", all, unit, &[|_, y| y.asin(), |_, y| y.acos(), |x, _| x.atan(), f64::atan2]),
        single(
            "hyperbolic",
            all,
            unit,
            &[
                |_, y| y.sinh(),
                |_, y| y.cosh(),
                |_, y| y.tanh(),
                |x, _| x.asinh(),
                |x, _| f64::from(1.0f32 + (x as f32).abs()).acosh(),
                |_, y| y.atanh(),
            ],
        ),
        single(
            "error_functions",
            all,
            (-3.0, 3.0),
            &[|_, y| 1.0 - erfc(y), |_, y| erfc(y), |_, y| 0.5 * erfc(-y * std::f64::consts::FRAC_1_SQRT_2)],
        ),
    ];
    // sinf's slow path starts at 105,615; most arguments lie beyond it.
    list = list.into_iter().map(|c| c.tolerance(SINGLE, WHY)).collect();
    list.extend(others(all));
    list
}

fn others(all: (f64, f64)) -> Vec<Case> {
    let near = |relative, absolute| Tolerance::Close { relative, absolute };
    let mut r = Random::new(6);
    vec![
        single(
            "gamma_functions",
            all,
            (0.0, 6.0),
            &[
                |_, y| lgamma(f64::from(1.0f32 + (y as f32).abs())),
                |_, y| lgamma(f64::from(1.0f32 + (y as f32).abs())).exp(),
            ],
        )
        .tolerance(near(2e-6, 2e-6), "5 to 6 units in the last place; lgamma is near its zeros at 1 and 2"),
        single("rounding", all, (-4.0, 4.0), ROUNDING),
        single("exact_float", (-100.0, 100.0), (-9.0, 9.0), EXACT),
        double(
            "double_functions",
            all,
            (-9.0, 9.0),
            &[
                |x, _| x.sin(),
                |x, _| x.cos(),
                |_, y| y.exp(),
                |x, _| x.abs().ln(),
                |x, y| x.abs().powf(y),
                |_, y| y.tanh(),
                f64::atan2,
                |x, _| x.cbrt(),
            ],
        )
        .tolerance(Tolerance::Ulps(4), "CUDA's manual gives 1 to 2 units in the last place, the host's library 1"),
        double("exact_double", (-100.0, 100.0), (-9.0, 9.0), EXACT_DOUBLE),
        double(
            "double_error_function",
            all,
            (-2.5, 2.5),
            &[|_, y| 1.0 - erfc(y), |_, y| erfc(y), |_, y| lgamma(1.0 + y.abs())],
        )
        .tolerance(near(1e-12, 1e-13), "the reference's own series lose some digits"),
        single(
            "fast_math",
            all,
            (-3.0, 3.0),
            &[
                |_, y| y.sin(),
                |_, y| y.cos(),
                |_, y| y.exp(),
                |x, _| f64::from((x as f32).abs() + 0.5).ln(),
                |x, y| x / y,
                |x, y| x.abs().powf(f64::from(y as f32 * 0.25)),
            ],
        )
        .tolerance(near(4e-6, 1e-6), "the fast functions are given absolute errors of 2^-21"),
        line("newton_root", "float", 4, 32).f64s(r.f64s(120, 0.01, 1000.0)).f64s(vec![0.0; 120]).int(120).does(|d| {
            for (i, a) in d[0].f64s().clone().into_iter().enumerate() {
                let mut r = if a > 1.0 { a } else { 1.0 };
                for _ in 0..60 {
                    let next = 0.5 * (r + a / r);
                    if (next - r).abs() <= 1e-15 * r.abs() {
                        break;
                    }
                    r = next;
                }
                d[1].f64s()[i] = r;
            }
        }),
        line("horner", "float", 2, 64).f64s(r.f64s(128, -3.0, 3.0)).f64s(vec![0.0; 128]).does(|d| {
            const C: [f64; 8] = [1.0, -0.5, 0.25, -0.125, 3.5, -2.25, 0.0078125, 10.0];
            for (i, x) in d[0].f64s().clone().into_iter().enumerate() {
                d[1].f64s()[i] = C.iter().rev().fold(0.0, |s: f64, c| s.mul_add(x, *c));
            }
        }),
    ]
}

/// On values of singles, exact in double precision.
const ROUNDING: &[Single] = &[
    |x, _| x.floor(),
    |x, _| x.ceil(),
    |x, _| x.trunc(),
    |x, _| x.round_ties_even(),
    |x, _| x.round(),
    |x, y| x % y,
    |x, y| {
        let r = x % y;
        let odd = ((x - r) / y).round() as i64 & 1 == 1;
        let over = 2.0 * r.abs() > y.abs() || 2.0 * r.abs() == y.abs() && odd;
        if over { r - y.abs().copysign(r) } else { r }
    },
    |x, y| if x > y { x - y } else { 0.0 },
    f64::copysign,
    f64::min,
    f64::max,
];

const EXACT: &[Single] = &[
    |x, y| f64::from(x as f32 / y as f32),
    |x, _| f64::from((x as f32).abs().sqrt()),
    |x, y| f64::from((x as f32).mul_add(y as f32, x as f32)),
    |x, _| f64::from(1.0 / x as f32),
    // Sum and product are exact in double precision.
    |x, y| toward_zero(x + y),
    |x, y| up(x * y),
    |x, y| {
        let above = |q: f32| if y > 0.0 { f64::from(q) * y > x } else { f64::from(q) * y < x };
        let mut q = (x / y) as f32;
        while above(q) {
            q = q.next_down();
        }
        while !above(q.next_up()) {
            q = q.next_up();
        }
        f64::from(q)
    },
    |x, _| x * 128.0,
];

const EXACT_DOUBLE: &[Single] = &[
    |x, y| x / y,
    |x, _| x.abs().sqrt(),
    |x, y| x.mul_add(y, x),
    |x, _| 1.0 / x,
    |x, _| x.floor(),
    |_, y| y.round_ties_even(),
    f64::min,
    |x, y| {
        let s = x + y;
        let z = s - x;
        let error = (x - (s - z)) + (y - z);
        if error > 0.0 { s.next_up() } else { s }
    },
];

fn toward_zero(x: f64) -> f64 {
    let r = x as f32;
    f64::from(match f64::from(r).abs() > x.abs() {
        true if r > 0.0 => r.next_down(),
        true => r.next_up(),
        false => r,
    })
}

fn up(x: f64) -> f64 {
    let r = x as f32;
    f64::from(if f64::from(r) < x { r.next_up() } else { r })
}

/// 1 - erf: by erf's series up to 2, by a continued fraction beyond.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    if x < 2.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while term.abs() > 1e-18 * sum.abs() {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return 1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let tail = (1..=200).rev().fold(x, |t, k| x + f64::from(k) / 2.0 / t);
    (-x * x).exp() / tail / std::f64::consts::PI.sqrt()
}

/// The logarithm of the gamma function for x >= 1: Stirling's series at x + n.
fn lgamma(x: f64) -> f64 {
    let (mut z, mut product) = (x, 1.0);
    while z < 16.0 {
        product *= z;
        z += 1.0;
    }
    let w = 1.0 / (z * z);
    let series = (1.0 / 12.0 - w * (1.0 / 360.0 - w * (1.0 / 1260.0 - w * (1.0 / 1680.0 - w / 1188.0)))) / z;
    (z - 0.5) * z.ln() - z + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}
