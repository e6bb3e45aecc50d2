//! Transcendental functions and activations, composed of the elementwise ops.
//!
//! Half and fp8 inputs are computed in f32 and rounded once at the end. exp and log go through exp2 and log2, cos
//! through the sine of the half angle (adding pi/2 to a large argument would round it), erf through a rational
//! approximation (error below 2e-7, also in f64). The inverse functions are polynomials of a reduced argument:
//! interpolations of the power series at Chebyshev's points, one for f32 and one for f64, each with an error below half
//! a last place.

use super::elementwise::{Elementwise, to_float};
use super::error::{Fault, Problem};
use super::graph;
use super::value::{Expr, Operand, Value, lift};
use crate::uop::{Scalar, UOp};
use std::f64::consts::{LN_2, LN_10, LOG2_E, PI};

/// One-source float function, computed in at least f32.
#[track_caller]
fn wide<V: Value>(op: &'static str, x: Result<UOp, Fault>, f: impl FnOnce(&Expr) -> Expr) -> V {
    lift(op, [x], |[x]| {
        let x = Expr::from(to_float(x.uop()));
        let t = x.scalar();
        Ok(match t {
            t if t.accumulator() != t => f(&x.cast(Scalar::F32)).cast(t),
            _ => f(&x),
        })
    })
}

fn exp(x: &Expr) -> Expr {
    x.mul(LOG2_E).exp2()
}
fn ln(x: &Expr) -> Expr {
    x.log2().mul(LN_2)
}
fn sigmoid(x: &Expr) -> Expr {
    // The bound keeps the gradient of far negative inputs 0 instead of 0 * inf.
    let limit = if x.scalar() == Scalar::F64 { 1022.0 } else { 126.0 };
    x.mul(-LOG2_E).minimum(limit).exp2().add(1).recip()
}
fn tanh(x: &Expr) -> Expr {
    sigmoid(&x.mul(2)).mul(2).sub(1)
}
fn softplus(x: &Expr) -> Expr {
    // A one-sided |x| keeps the gradient at 0, where x * sign(x) has none.
    x.maximum(0).add(&ln(&exp(&size(x).neg()).add(1)))
}
fn cos(x: &Expr) -> Expr {
    let s = x.mul(0.5).sin();
    s.square().mul(-2).add(1)
}
/// Horner's scheme, highest power first, at least two coefficients.
fn polynomial(x: &Expr, coefficients: &[f64]) -> Expr {
    match coefficients {
        [first, second, rest @ ..] => rest.iter().fold(x.mul(*first).add(*second), |sum, c| sum.mul(x).add(*c)),
        _ => x.clone(),
    }
}
/// Rational approximation on [-4, 4], beyond which a float is 1 (the form of Eigen's single-precision erf).
fn erf(x: &Expr) -> Expr {
    let x = x.clamp(-4.0, 4.0);
    let z = x.square();
    let p = polynomial(
        &z,
        &[
            -2.726_142_258_013_06e-10,
            2.770_681_424_959_02e-8,
            -2.101_024_020_825_08e-6,
            -5.692_506_394_623_46e-5,
            -7.349_906_303_268_55e-4,
            -2.954_599_808_540_25e-3,
            -1.609_603_332_624_15e-2,
        ],
    );
    let q = polynomial(
        &z,
        &[
            -1.456_607_184_649_96e-5,
            -2.133_740_552_789_05e-4,
            -1.682_826_974_382_03e-3,
            -7.373_329_167_204_68e-3,
            -1.426_473_905_141_89e-2,
        ],
    );
    x.mul(&p).div(&q)
}
/// An odd function as `x` times a polynomial of its square, highest power first: `narrow` for f32, `wide` for f64.
fn odd(x: &Expr, narrow: &[f64], wide: &[f64]) -> Expr {
    x.mul(&polynomial(&x.square(), if x.scalar() == Scalar::F64 { wide } else { narrow }))
}
/// Without a slope: -1 where `x` is negative, else 1.
fn side(x: &Expr) -> Expr {
    x.lt(0).where_(-1.0, 1.0).cast(x.scalar())
}
/// |x| with the slope of `x` at 0, which `x * sign(x)` has not.
fn size(x: &Expr) -> Expr {
    x.lt(0).where_(&x.neg(), x)
}

const ATAN: [f64; 6] = [
    -0.060_263_052_276_584_58,
    0.105_698_288_064_144_47,
    -0.142_395_326_696_489_74,
    0.199_981_830_410_832_06,
    -0.333_333_068_930_485_14,
    0.999_999_999_371_228_2,
];
const ATAN_F64: [f64; 13] = [
    0.015_113_765_096_600_916,
    -0.033_387_824_501_212_01,
    0.044_995_007_289_840_315,
    -0.052_173_125_740_615_91,
    0.058_768_340_046_141_61,
    -0.066_662_052_599_765_26,
    0.076_922_810_999_377_44,
    -0.090_909_080_590_311_91,
    0.111_111_110_853_221_09,
    -0.142_857_142_853_297_1,
    0.199_999_999_999_970_15,
    -0.333_333_333_333_333_26,
    1.0,
];
/// Twice the angle whose tangent is `t`, |t| <= 1: four times the one of its half, within pi/8.
fn twice_atan(t: &Expr) -> Expr {
    let half = t.div(&t.square().add(1).sqrt().add(1));
    odd(&half, &ATAN, &ATAN_F64).mul(4)
}
fn atan(x: &Expr) -> Expr {
    let far = size(x).gt(1);
    // Where it is not needed, the reciprocal is of 1: one of 0 would spoil the gradient.
    let t = far.where_(&far.where_(x, 1.0).recip(), x);
    let angle = twice_atan(&t).mul(0.5);
    far.where_(&side(x).mul(PI / 2.0).sub(&angle), &angle)
}
/// By the tangent of the half angle, x / (1 + sqrt(1 - x²)).
fn asin(x: &Expr) -> Expr {
    let cos = x.neg().add(1).mul(&x.add(1)).sqrt();
    twice_atan(&x.div(&cos.add(1)))
}
/// By the tangent of a quarter of the angle, from the sine and cosine of its half.
fn acos(x: &Expr) -> Expr {
    let (sin, cos) = (x.neg().add(1).mul(0.5).sqrt(), x.add(1).mul(0.5).sqrt());
    twice_atan(&sin.div(&cos.add(1))).mul(2)
}

const ASINH: [f64; 7] = [
    0.009_062_157_998_009_345,
    -0.019_896_477_556_241_15,
    0.029_987_721_987_690_102,
    -0.044_609_629_602_790_836,
    0.074_998_644_495_668_04,
    -0.166_666_645_710_402_2,
    0.999_999_999_946_651_1,
];
const ASINH_F64: [f64; 15] = [
    0.001_083_169_645_589_160_6,
    -0.003_251_420_704_871_562,
    0.005_391_182_794_471_817,
    -0.006_995_214_126_398_286,
    0.008_321_582_104_374_463,
    -0.009_750_758_279_045_335,
    0.011_550_551_940_333_213,
    -0.013_964_739_752_928_926,
    0.017_352_758_272_068_232,
    -0.022_372_158_840_477_958,
    0.030_381_944_437_769_544,
    -0.044_642_857_142_749_74,
    0.074_999_999_999_999_1,
    -0.166_666_666_666_666_66,
    1.0,
];
/// Beyond this size, sqrt(x² + 1) is |x| in f32 and f64, and x² still far from their largest.
const STEEP: f64 = 1e9;
fn asinh(x: &Expr) -> Expr {
    let a = size(x);
    let (near, steep) = (a.lt(0.5), a.gt(STEEP));
    // Each formula gets 1 where the other is used: neither overflows, nor makes the gradient at 0 NaN.
    let (middle, far) = (steep.where_(1.0, &a), steep.where_(&a, 1.0));
    let by_log = steep.where_(&ln(&far).add(LN_2), &ln(&middle.add(&middle.square().add(1).sqrt())));
    near.where_(&odd(&near.where_(x, 0.0), &ASINH, &ASINH_F64), &by_log.mul(&side(x)))
}
/// By its sine, sqrt(x² - 1): exact near 1, where the logarithm would be of hardly more than 1.
fn acosh(x: &Expr) -> Expr {
    asinh(&x.sub(1).sqrt().mul(&x.add(1).sqrt()))
}

const ATANH: [f64; 7] = [
    0.177_671_427_809_484_97,
    0.050_509_809_657_296_82,
    0.118_521_303_781_805_03,
    0.142_181_722_943_025_92,
    0.200_028_807_424_036_9,
    0.333_332_877_903_354_2,
    1.000_000_001_164_463_6,
];
const ATANH_F64: [f64; 16] = [
    0.258_106_123_993_728_9,
    -0.242_608_811_921_017_74,
    0.211_711_284_597_828_65,
    -0.029_351_949_340_884_618,
    0.062_313_104_199_973_27,
    0.043_977_646_600_537_91,
    0.053_142_047_696_039_085,
    0.058_771_408_664_648_125,
    0.066_670_516_541_334_45,
    0.076_922_874_880_304_05,
    0.090_909_098_208_530_2,
    0.111_111_110_938_527_28,
    0.142_857_142_859_604_02,
    0.199_999_999_999_981_6,
    0.333_333_333_333_333_37,
    1.0,
];
fn atanh(x: &Expr) -> Expr {
    let near = size(x).lt(0.5);
    let by_log = ln(&x.add(1).div(&x.neg().add(1))).mul(0.5);
    near.where_(&odd(&near.where_(x, 0.0), &ATANH, &ATANH_F64), &by_log)
}

/// (e^x - e^-x) / 2: near 0 by its series, 1 / (2k + 1)!, beyond by exponentials that overflow only where it does.
fn sinh(x: &Expr) -> Expr {
    let terms = if x.scalar() == Scalar::F64 { 10u64 } else { 6 };
    let factorial = |k: u64| (1..=2 * k + 1).map(|n| n as f64).product::<f64>();
    let series: Vec<f64> = (0..terms).rev().map(|k| 1.0 / factorial(k)).collect();
    let near = size(x).lt(1);
    let far = exp(&x.sub(LN_2)).sub(&exp(&x.neg().sub(LN_2)));
    near.where_(&odd(&near.where_(x, 0.0), &series, &series), &far)
}

/// Functions of one float.
pub trait Math: Value {
    /// e to the power of x.
    #[track_caller]
    fn exp(&self) -> Self {
        wide("exp", self.node(), exp)
    }
    /// Natural logarithm.
    #[track_caller]
    fn log(&self) -> Self {
        wide("log", self.node(), ln)
    }
    /// Logarithm to the base 10.
    #[track_caller]
    fn log10(&self) -> Self {
        wide("log10", self.node(), |x| x.log2().mul(LN_2 / LN_10))
    }
    /// Cosine of x in radians.
    #[track_caller]
    fn cos(&self) -> Self {
        wide("cos", self.node(), cos)
    }
    /// Tangent of x in radians.
    #[track_caller]
    fn tan(&self) -> Self {
        wide("tan", self.node(), |x| x.sin().div(&cos(x)))
    }
    /// Arc sine; NaN outside -1 to 1.
    #[track_caller]
    fn asin(&self) -> Self {
        wide("asin", self.node(), asin)
    }
    /// Arc cosine; NaN outside -1 to 1.
    #[track_caller]
    fn acos(&self) -> Self {
        wide("acos", self.node(), acos)
    }
    /// Arc tangent.
    #[track_caller]
    fn atan(&self) -> Self {
        wide("atan", self.node(), atan)
    }
    /// Hyperbolic sine.
    #[track_caller]
    fn sinh(&self) -> Self {
        wide("sinh", self.node(), sinh)
    }
    /// Hyperbolic cosine.
    #[track_caller]
    fn cosh(&self) -> Self {
        wide("cosh", self.node(), |x| exp(&x.sub(LN_2)).add(&exp(&x.neg().sub(LN_2))))
    }
    /// Hyperbolic tangent.
    #[track_caller]
    fn tanh(&self) -> Self {
        wide("tanh", self.node(), tanh)
    }
    /// Inverse of the hyperbolic sine.
    #[track_caller]
    fn asinh(&self) -> Self {
        wide("asinh", self.node(), asinh)
    }
    /// Inverse of the hyperbolic cosine; NaN below 1.
    #[track_caller]
    fn acosh(&self) -> Self {
        wide("acosh", self.node(), acosh)
    }
    /// Inverse of the hyperbolic tangent; NaN outside -1 to 1.
    #[track_caller]
    fn atanh(&self) -> Self {
        wide("atanh", self.node(), atanh)
    }
    /// Error function.
    #[track_caller]
    fn erf(&self) -> Self {
        wide("erf", self.node(), erf)
    }

    /// `max(x, 0)`
    #[track_caller]
    fn relu(&self) -> Self {
        lift("relu", [self.node()], |[x]| Ok(x.maximum(0)))
    }
    /// x held between 0 and 6.
    #[track_caller]
    fn relu6(&self) -> Self {
        self.relu().minimum(6)
    }
    /// `1 / (1 + exp(-x))`
    #[track_caller]
    fn sigmoid(&self) -> Self {
        wide("sigmoid", self.node(), sigmoid)
    }
    /// `log(sigmoid(x))` without overflow.
    #[track_caller]
    fn log_sigmoid(&self) -> Self {
        self.neg().softplus().neg()
    }
    /// `clamp(x / 6 + 1/2, 0, 1)`
    #[track_caller]
    fn hard_sigmoid(&self) -> Self {
        self.hard_sigmoid_with(1.0 / 6.0, 0.5)
    }
    /// `clamp(alpha * x + beta, 0, 1)`: tinygrad's `hardsigmoid(alpha, beta)`.
    #[track_caller]
    fn hard_sigmoid_with(&self, alpha: f64, beta: f64) -> Self {
        wide("hard_sigmoid", self.node(), |x| x.mul(alpha).add(beta).clamp(0, 1))
    }
    /// `x` within `low..=high` (-1 and 1 in PyTorch and tinygrad unless given), as a float.
    #[track_caller]
    fn hardtanh(&self, low: f64, high: f64) -> Self {
        wide("hardtanh", self.node(), |x| x.clamp(low, high))
    }
    /// `x * relu6(x + 3) / 6`
    #[track_caller]
    fn hard_swish(&self) -> Self {
        wide("hard_swish", self.node(), |x| x.mul(&x.add(3).clamp(0, 6)).mul(1.0 / 6.0))
    }
    /// x, times `slope` below zero.
    #[track_caller]
    fn leaky_relu(&self, slope: f64) -> Self {
        wide("leaky_relu", self.node(), |x| x.lt(0).where_(&x.mul(slope), x))
    }
    /// `x * sigmoid(x)`, also called swish.
    #[track_caller]
    fn silu(&self) -> Self {
        wide("silu", self.node(), |x| x.mul(&sigmoid(x)))
    }
    /// By erf, as PyTorch's `gelu()`. tinygrad's `gelu()` is [`Math::gelu_tanh`].
    #[track_caller]
    fn gelu(&self) -> Self {
        wide("gelu", self.node(), |x| x.mul(&erf(&x.mul(0.5f64.sqrt())).add(1)).mul(0.5))
    }
    /// By tanh: `gelu()` in tinygrad, `gelu(approximate="tanh")` in PyTorch.
    #[track_caller]
    fn gelu_tanh(&self) -> Self {
        wide("gelu_tanh", self.node(), |x| {
            let inner = x.add(&x.square().mul(x).mul(0.044_715)).mul((2.0 / PI).sqrt());
            x.mul(&sigmoid(&inner.mul(2)))
        })
    }
    /// `x * sigmoid(1.702 x)`
    #[track_caller]
    fn quick_gelu(&self) -> Self {
        wide("quick_gelu", self.node(), |x| x.mul(&sigmoid(&x.mul(1.702))))
    }
    /// x, and `alpha * (exp(x) - 1)` below zero.
    #[track_caller]
    fn elu(&self, alpha: f64) -> Self {
        wide("elu", self.node(), |x| x.gt(0).where_(x, &exp(&x.minimum(0)).sub(1).mul(alpha)))
    }
    /// x, and `alpha * (exp(x / alpha) - 1)` below zero.
    #[track_caller]
    fn celu(&self, alpha: f64) -> Self {
        wide("celu", self.node(), |x| x.maximum(0).add(&exp(&x.div(alpha).minimum(0)).sub(1).mul(alpha)))
    }
    /// [`Math::elu`] with the scale and slope of self-normalizing networks (Klambauer et al. 2017).
    #[track_caller]
    fn selu(&self) -> Self {
        let (alpha, gamma) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        wide("selu", self.node(), |x| x.gt(0).where_(x, &exp(&x.minimum(0)).sub(1).mul(alpha)).mul(gamma))
    }
    /// `log(1 + exp(x))`
    #[track_caller]
    fn softplus(&self) -> Self {
        wide("softplus", self.node(), softplus)
    }
    /// `x * tanh(softplus(x))`
    #[track_caller]
    fn mish(&self) -> Self {
        wide("mish", self.node(), |x| x.mul(&tanh(&softplus(x))))
    }
    /// `x / (1 + |x|)`
    #[track_caller]
    fn softsign(&self) -> Self {
        wide("softsign", self.node(), |x| x.div(&x.abs().add(1)))
    }
    /// `log(exp(self) + exp(o))` without overflow.
    #[track_caller]
    fn logaddexp(&self, o: impl Operand<Self>) -> Self {
        lift("logaddexp", [self.node(), o.operand()], |[a, b]| {
            let t = graph::promoted(&[&to_float(a.uop()), &to_float(b.uop())]);
            let t = super::convert::strong(t);
            let (a, b) = (a.cast(t.accumulator()), b.cast(t.accumulator()));
            let m = a.maximum(&b);
            // Both -inf: the difference to the maximum would be NaN.
            let safe = m.is_finite().where_(&m, 0);
            let sum = exp(&a.sub(&safe)).add(&exp(&b.sub(&safe)));
            Ok::<Expr, Problem>(ln(&sum).add(&safe).cast(t))
        })
    }
}

impl<V: Value> Math for V {}
