//! Transcendental functions and activations, composed of the elementwise ops.
//!
//! Half and fp8 inputs are computed in f32 and rounded once at the end. exp and log go through exp2 and log2, cos through
//! the sine of the half angle (adding pi/2 to a large argument would round it), erf through a rational approximation
//! (error below 2e-7, also in f64).

use super::elementwise::{Elementwise, to_float};
use super::error::{Fault, Problem};
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
            Scalar::F16 | Scalar::BF16 | Scalar::F8E4M3 | Scalar::F8E5M2 => f(&x.cast(Scalar::F32)).cast(t),
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
/// Abramowitz and Stegun 4.4.46, absolute error below 2e-8 on [0, 1].
fn asin(x: &Expr) -> Expr {
    let c = [
        -0.001_262_491_1,
        0.006_670_090_1,
        -0.017_088_125_6,
        0.030_891_881_0,
        -0.050_174_304_6,
        0.088_978_987_4,
        -0.214_598_801_6,
        1.570_796_305_0,
    ];
    let a = x.abs();
    let far = polynomial(&a, &c).mul(&a.neg().add(1).sqrt()).neg().add(PI / 2.0);
    x.sign().mul(&far)
}

/// Functions of one float.
pub trait Math: Value {
    #[track_caller]
    fn exp(&self) -> Self {
        wide("exp", self.node(), exp)
    }
    /// Natural logarithm.
    #[track_caller]
    fn log(&self) -> Self {
        wide("log", self.node(), ln)
    }
    #[track_caller]
    fn log10(&self) -> Self {
        wide("log10", self.node(), |x| x.log2().mul(LN_2 / LN_10))
    }
    #[track_caller]
    fn cos(&self) -> Self {
        wide("cos", self.node(), cos)
    }
    #[track_caller]
    fn tan(&self) -> Self {
        wide("tan", self.node(), |x| x.sin().div(&cos(x)))
    }
    #[track_caller]
    fn asin(&self) -> Self {
        wide("asin", self.node(), asin)
    }
    #[track_caller]
    fn acos(&self) -> Self {
        wide("acos", self.node(), |x| asin(x).neg().add(PI / 2.0))
    }
    #[track_caller]
    fn atan(&self) -> Self {
        wide("atan", self.node(), |x| asin(&x.div(&x.square().add(1).sqrt())))
    }
    #[track_caller]
    fn sinh(&self) -> Self {
        wide("sinh", self.node(), |x| exp(x).sub(&exp(&x.neg())).mul(0.5))
    }
    #[track_caller]
    fn cosh(&self) -> Self {
        wide("cosh", self.node(), |x| exp(x).add(&exp(&x.neg())).mul(0.5))
    }
    #[track_caller]
    fn tanh(&self) -> Self {
        wide("tanh", self.node(), |x| sigmoid(&x.mul(2)).mul(2).sub(1))
    }
    #[track_caller]
    fn asinh(&self) -> Self {
        wide("asinh", self.node(), |x| {
            let a = x.abs();
            ln(&a.add(&a.square().add(1).sqrt())).mul(&x.sign())
        })
    }
    #[track_caller]
    fn acosh(&self) -> Self {
        wide("acosh", self.node(), |x| ln(&x.add(&x.square().sub(1).sqrt())))
    }
    #[track_caller]
    fn atanh(&self) -> Self {
        wide("atanh", self.node(), |x| ln(&x.add(1).div(&x.neg().add(1))).mul(0.5))
    }
    #[track_caller]
    fn erf(&self) -> Self {
        wide("erf", self.node(), erf)
    }

    #[track_caller]
    fn relu(&self) -> Self {
        lift("relu", [self.node()], |[x]| Ok(x.maximum(0)))
    }
    #[track_caller]
    fn relu6(&self) -> Self {
        self.relu().minimum(6)
    }
    #[track_caller]
    fn sigmoid(&self) -> Self {
        wide("sigmoid", self.node(), sigmoid)
    }
    #[track_caller]
    fn log_sigmoid(&self) -> Self {
        self.neg().softplus().neg()
    }
    #[track_caller]
    fn hard_sigmoid(&self) -> Self {
        wide("hard_sigmoid", self.node(), |x| x.mul(1.0 / 6.0).add(0.5).clamp(0, 1))
    }
    #[track_caller]
    fn hard_swish(&self) -> Self {
        wide("hard_swish", self.node(), |x| x.mul(&x.add(3).clamp(0, 6)).mul(1.0 / 6.0))
    }
    #[track_caller]
    fn leaky_relu(&self, slope: f64) -> Self {
        wide("leaky_relu", self.node(), |x| x.lt(0).where_(&x.mul(slope), x))
    }
    /// `x * sigmoid(x)`, also called swish.
    #[track_caller]
    fn silu(&self) -> Self {
        wide("silu", self.node(), |x| x.mul(&sigmoid(x)))
    }
    /// By erf.
    #[track_caller]
    fn gelu(&self) -> Self {
        wide("gelu", self.node(), |x| x.mul(&erf(&x.mul(0.5f64.sqrt())).add(1)).mul(0.5))
    }
    /// By tanh.
    #[track_caller]
    fn gelu_tanh(&self) -> Self {
        wide("gelu_tanh", self.node(), |x| {
            let inner = x.add(&x.square().mul(x).mul(0.044_715)).mul((2.0 / PI).sqrt());
            x.mul(&sigmoid(&inner.mul(2)))
        })
    }
    #[track_caller]
    fn quick_gelu(&self) -> Self {
        wide("quick_gelu", self.node(), |x| x.mul(&sigmoid(&x.mul(1.702))))
    }
    #[track_caller]
    fn elu(&self, alpha: f64) -> Self {
        wide("elu", self.node(), |x| x.gt(0).where_(x, &exp(&x.minimum(0)).sub(1).mul(alpha)))
    }
    #[track_caller]
    fn celu(&self, alpha: f64) -> Self {
        wide("celu", self.node(), |x| x.maximum(0).add(&exp(&x.div(alpha).minimum(0)).sub(1).mul(alpha)))
    }
    #[track_caller]
    fn selu(&self) -> Self {
        let (alpha, gamma) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
        wide("selu", self.node(), |x| x.gt(0).where_(x, &exp(&x.minimum(0)).sub(1).mul(alpha)).mul(gamma))
    }
    /// `log(1 + exp(x))`
    #[track_caller]
    fn softplus(&self) -> Self {
        wide("softplus", self.node(), |x| {
            // A one-sided |x| keeps the gradient at 0, where x * sign(x) has none.
            let size = x.lt(0).where_(&x.neg(), x);
            x.maximum(0).add(&ln(&exp(&size.neg()).add(1)))
        })
    }
    #[track_caller]
    fn mish(&self) -> Self {
        self.mul(&self.softplus().tanh())
    }
    #[track_caller]
    fn softsign(&self) -> Self {
        wide("softsign", self.node(), |x| x.div(&x.abs().add(1)))
    }
    /// `log(exp(self) + exp(o))` without overflow.
    #[track_caller]
    fn logaddexp(&self, o: impl Operand<Self>) -> Self {
        lift("logaddexp", [self.node(), o.operand()], |[a, b]| {
            let m = a.maximum(&b);
            // Both -inf: the difference to the maximum would be NaN.
            let safe = m.is_finite().where_(&m, 0);
            let sum = exp(&a.sub(&safe)).add(&exp(&b.sub(&safe)));
            Ok::<Expr, Problem>(ln(&sum).add(&safe))
        })
    }
}

impl<V: Value> Math for V {}
