//! Learning rates that change with the steps.
//!
//! A [`Curve`] is a formula, written in Tensors, of the number of steps made and the optimiser's first rate; an
//! [`LrSchedule`] counts the steps in memory and assigns the formula's value to the optimiser's rate. So a schedule
//! belongs into a recorded step as the optimiser does, and every replay moves it. [`ReduceLROnPlateau`] decides on the
//! host, by a number that the program read.
//!
//! Formulas as in PyTorch (closed forms).

use super::{OptimError, Optimizer};
use crate::engine::Error;
use crate::nn::Module;
use crate::nn::module::named;
use crate::tensor::{Elementwise, Math, Tensor};
use crate::uop::Scalar;
use std::f64::consts::PI;
use std::sync::Arc;

type Formula = dyn Fn(&Tensor, f64) -> Tensor + Send + Sync;

/// A learning rate as a formula of the number of steps made.
#[derive(Clone)]
pub struct Curve {
    formula: Arc<Formula>,
    /// A setting that means nothing: said when a schedule is made.
    wrong: Option<OptimError>,
}

/// How [`OneCycle`] goes from one rate to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Anneal {
    /// Along half a cosine.
    #[default]
    Cosine,
    /// Along a line.
    Linear,
}

/// The settings of [`Curve::one_cycle`], with PyTorch's defaults.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OneCycle {
    /// The highest rate.
    pub max_lr: f64,
    /// Steps of the whole cycle; the last rate stays after them.
    pub total_steps: u32,
    /// Share of the steps in which the rate rises.
    pub pct_start: f64,
    /// The first rate is `max_lr / div_factor`.
    pub div_factor: f64,
    /// The last rate is the first one over this.
    pub final_div_factor: f64,
    /// The way between the rates.
    pub anneal: Anneal,
    /// Whether the rate falls to the first one as long as it rose, and only then to the last one.
    pub three_phase: bool,
}

impl OneCycle {
    /// A cycle of this many steps up to this rate: a rise over 0.3 of them from a 25th, a fall to a 10,000th of that.
    pub fn new(max_lr: f64, total_steps: u32) -> OneCycle {
        OneCycle {
            max_lr,
            total_steps,
            pct_start: 0.3,
            div_factor: 25.0,
            final_div_factor: 1e4,
            anneal: Anneal::Cosine,
            three_phase: false,
        }
    }
}

/// One rate as a Tensor, (1,) like the count of steps.
fn rate(value: f64) -> Tensor {
    Tensor::full_of([1], value, Scalar::F32)
}

impl Curve {
    /// A formula of one's own: of the steps made, (1,) f32, and the optimiser's first rate.
    #[doc(alias = "LambdaLR")]
    pub fn new(formula: impl Fn(&Tensor, f64) -> Tensor + Send + Sync + 'static) -> Curve {
        Curve { formula: Arc::new(formula), wrong: None }
    }
    fn where_it_holds(self, holds: bool, what: &'static str, value: f64, wanted: &'static str) -> Curve {
        let wrong = self.wrong.or((!holds).then_some(OptimError::Setting { what, value, wanted }));
        Curve { formula: self.formula, wrong }
    }
    /// The first rate, always.
    #[doc(alias = "ConstantLR")]
    pub fn constant() -> Curve {
        Curve::new(|_, base| rate(base))
    }
    /// Times `gamma` at each of the milestones.
    #[doc(alias = "MultiStepLR")]
    pub fn multi_step(milestones: &[u32], gamma: f64) -> Curve {
        let milestones = milestones.to_vec();
        Curve::new(move |t, base| {
            milestones.iter().fold(rate(base), |lr, m| lr.mul(&t.ge(f64::from(*m)).where_(gamma, 1.0)))
        })
    }
    /// Times `gamma` every `size` steps.
    #[doc(alias = "StepLR")]
    pub fn step(size: u32, gamma: f64) -> Curve {
        let wide = f64::from(size.max(1));
        // Half a step keeps the quotient of whole numbers clear of the edge.
        let curve = Curve::new(move |t, base| rate(gamma).pow(&t.add(0.5).div(wide).floor()).mul(base));
        curve.where_it_holds(size > 0, "the size of steps", 0.0, "it is above 0").rising(gamma)
    }
    /// Times `gamma` at every step.
    #[doc(alias = "ExponentialLR")]
    pub fn exponential(gamma: f64) -> Curve {
        Curve::new(move |t, base| rate(gamma).pow(t).mul(base)).rising(gamma)
    }
    fn rising(self, gamma: f64) -> Curve {
        self.where_it_holds(gamma.is_finite() && gamma > 0.0, "gamma", gamma, "it is above 0")
    }
    /// Half a cosine from the first rate to `eta_min` in `t_max` steps, and back in as many.
    #[doc(alias = "CosineAnnealingLR")]
    pub fn cosine_annealing(t_max: u32, eta_min: f64) -> Curve {
        let wide = f64::from(t_max.max(1));
        let curve = Curve::new(move |t, base| t.mul(PI / wide).cos().add(1.0).mul((base - eta_min) / 2.0).add(eta_min));
        curve.where_it_holds(t_max > 0, "the steps of a cosine", 0.0, "they are above 0")
    }
    /// From `start` times the first rate to `end` times it, along a line of `steps` steps, and on at that: a warm-up.
    #[doc(alias = "LinearLR")]
    #[doc(alias = "warmup")]
    pub fn linear(start: f64, end: f64, steps: u32) -> Curve {
        let wide = f64::from(steps.max(1));
        let curve = Curve::new(move |t, base| t.minimum(wide).mul((end - start) / wide).add(start).mul(base));
        curve.where_it_holds(steps > 0, "the steps of a line", 0.0, "they are above 0")
    }
    /// The first rate times (1 - t / steps) to the power `power`, then 0.
    #[doc(alias = "PolynomialLR")]
    pub fn polynomial(steps: u32, power: f64) -> Curve {
        let wide = f64::from(steps.max(1));
        let curve =
            Curve::new(move |t, base| t.minimum(wide).mul(-1.0 / wide).add(1.0).maximum(0.0).pow(power).mul(base));
        curve.where_it_holds(steps > 0, "the steps of a polynomial", 0.0, "they are above 0")
    }
    /// Up to a highest rate and down to a very small one. The optimiser's first rate does not matter.
    #[doc(alias = "OneCycleLR")]
    pub fn one_cycle(how: OneCycle) -> Curve {
        let total = f64::from(how.total_steps);
        let (first, up) = (how.max_lr / how.div_factor, how.pct_start * total - 1.0);
        let last = first / how.final_div_factor;
        let mut phases = vec![(0.0, up, first, how.max_lr)];
        if how.three_phase {
            phases.push((up, 2.0 * up, how.max_lr, first));
            phases.push((2.0 * up, total - 1.0, first, last));
        } else {
            phases.push((up, total - 1.0, how.max_lr, last));
        }
        let sound = phases.iter().all(|(begin, end, ..)| begin < end) && first.is_finite() && last.is_finite();
        let curve = Curve::new(move |t, _| {
            // PANIC: there are two phases at least.
            let (rest, last) = (&phases[..phases.len() - 1], &phases[phases.len() - 1]);
            let value = |(begin, end, from, to): &(f64, f64, f64, f64)| {
                let part = t.sub(*begin).div(end - begin).minimum(1.0);
                match how.anneal {
                    Anneal::Cosine => part.mul(PI).cos().add(1.0).mul((from - to) / 2.0).add(*to),
                    Anneal::Linear => part.mul(to - from).add(*from),
                }
            };
            rest.iter().rev().fold(value(last), |later, phase| t.le(phase.1).where_(&value(phase), &later))
        });
        curve.where_it_holds(sound, "the share of rising steps", how.pct_start, "each phase takes some steps")
    }
    /// This curve for `steps` steps, then `next` from its beginning: a warm-up before a decay.
    #[doc(alias = "SequentialLR")]
    pub fn then(self, steps: u32, next: Curve) -> Curve {
        let (first, second, at) = (self.formula, next.formula, f64::from(steps));
        let both = Curve::new(move |t, base| t.lt(at).where_(&first(t, base), &second(&t.sub(at).maximum(0.0), base)));
        Curve { wrong: self.wrong.or(next.wrong), ..both }
    }
    /// The rate after `t` steps, (1,), with this first rate.
    pub fn at(&self, t: u32, base: f64) -> Tensor {
        (self.formula)(&rate(f64::from(t)), base)
    }
}

impl std::fmt::Debug for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Curve").field("wrong", &self.wrong).finish_non_exhaustive()
    }
}

/// Moves an optimiser's learning rate along a curve.
///
/// Call [`LrSchedule::step`] after each step (or epoch) as in PyTorch, or add [`LrSchedule::schedule_step`] to what a
/// recorded step realizes. As a [`Module`] it has its count of steps, for checkpoints.
///
/// ```
/// use doorbell::nn::optim::schedule::{Curve, LrSchedule};
/// use doorbell::nn::optim::{Optimizer, Sgd};
/// use doorbell::tensor::prelude::*;
///
/// let w = Tensor::new([1.0f32]).requires_grad();
/// let mut optim = Sgd::new(&[w.clone()], 0.1)?;
/// let warm_up_and_decay = Curve::linear(0.5, 1.0, 2).then(2, Curve::cosine_annealing(4, 0.0));
/// let mut schedule = LrSchedule::new(&optim, warm_up_and_decay)?;
/// let mut rates = Vec::new();
/// for _ in 0..4 {
///     optim.zero_grad();
///     w.square().sum(()).backward()?;
///     optim.step()?;
///     rates.push(optim.lr().item()?);
///     schedule.step()?;
/// }
/// let wanted = [0.05, 0.075, 0.1, 0.0853553];
/// assert!(rates.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{rates:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LrSchedule {
    curve: Curve,
    lrs: Vec<(Tensor, f64)>,
    /// (1,) i32: steps made.
    count: Tensor,
}

impl LrSchedule {
    /// Starts at the curve's first value; the optimiser's present rates are its first rates. They are read, so it is
    /// made outside of a recorded function.
    ///
    /// # Errors
    /// A setting of the curve means nothing; the rates cannot be read or computed.
    pub fn new(optim: &dyn Optimizer, curve: Curve) -> Result<LrSchedule, Error> {
        if let Some(wrong) = &curve.wrong {
            return Err(wrong.clone().into());
        }
        let lrs: Vec<(Tensor, f64)> =
            optim.lrs().into_iter().map(|t| t.item().map(|base| (t, base))).collect::<Result<_, _>>()?;
        let device = optim.lr().device();
        let count = Tensor::from_bytes(vec![0; 4], Scalar::I32, [1], &device);
        let schedule = LrSchedule { curve, lrs, count };
        Tensor::realize_all(&schedule.assigned())?;
        Ok(schedule)
    }
    /// Counts a step and assigns the next rate; returns what is to be realized. The optimiser's step that was scheduled
    /// before it, in the same recording too, uses the rate before.
    pub fn schedule_step(&mut self) -> Vec<Tensor> {
        self.count.assign(&self.count.add(1));
        self.assigned()
    }
    /// Counts a step and computes the next rate.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn step(&mut self) -> Result<(), Error> {
        let all = self.schedule_step();
        Tensor::realize_all(&all)
    }
    fn assigned(&self) -> Vec<Tensor> {
        let mut all = vec![self.count.clone()];
        for (lr, base) in &self.lrs {
            let t = self.count.cast(Scalar::F32).to(&lr.device());
            lr.assign(&(self.curve.formula)(&t, *base).cast(Scalar::F32));
            all.push(lr.clone());
        }
        all
    }
}

impl Module for LrSchedule {
    fn visit(&self, prefix: &str, f: &mut dyn FnMut(String, &Tensor)) {
        f(named(prefix, "count"), &self.count);
    }
}

/// Lowers the learning rate when a number stops improving: the loss on held-out data, for example.
///
/// Decided on the host; a recorded step reads the new rate, since it is memory.
#[derive(Debug, Clone)]
pub struct ReduceLROnPlateau {
    lrs: Vec<Tensor>,
    /// Whether a larger number is better (`mode="max"`).
    pub larger_is_better: bool,
    /// What the rate is multiplied by.
    pub factor: f64,
    /// Steps without improvement that are borne.
    pub patience: u32,
    /// What counts as an improvement: this share of the best number, or this difference if `absolute`.
    pub threshold: f64,
    /// Whether `threshold` is a difference (`threshold_mode="abs"`).
    pub absolute: bool,
    /// Steps after a change in which nothing is counted.
    pub cooldown: u32,
    /// The lowest rate.
    pub min_lr: f64,
    /// A smaller change of the rate is not made.
    pub eps: f64,
    best: f64,
    bad: u32,
    cooling: u32,
}

impl ReduceLROnPlateau {
    /// PyTorch's defaults: smaller is better, factor 0.1, patience 10, threshold 1e-4 of the best, no cooldown, eps
    /// 1e-8. The fields may be changed before the first step.
    pub fn new(optim: &dyn Optimizer) -> ReduceLROnPlateau {
        ReduceLROnPlateau {
            lrs: optim.lrs(),
            larger_is_better: false,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            absolute: false,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            best: f64::NAN,
            bad: 0,
            cooling: 0,
        }
    }
    fn is_better(&self, value: f64) -> bool {
        if self.best.is_nan() {
            return !value.is_nan();
        }
        match (self.larger_is_better, self.absolute) {
            (false, false) => value < self.best * (1.0 - self.threshold),
            (false, true) => value < self.best - self.threshold,
            (true, false) => value > self.best * (1.0 + self.threshold),
            (true, true) => value > self.best + self.threshold,
        }
    }
    /// Takes the number's present value; returns whether the rate was lowered.
    ///
    /// # Errors
    /// `factor` is not between 0 and 1; the engine cannot compute the new rate.
    pub fn step(&mut self, value: f64) -> Result<bool, Error> {
        if !(0.0..1.0).contains(&self.factor) {
            let (what, wanted) = ("the factor of a plateau", "it is from 0 to below 1");
            return Err(OptimError::Setting { what, value: self.factor, wanted }.into());
        }
        if self.is_better(value) {
            (self.best, self.bad) = (value, 0);
        } else {
            self.bad += 1;
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad <= self.patience {
            return Ok(false);
        }
        (self.cooling, self.bad) = (self.cooldown, 0);
        for lr in &self.lrs {
            let new = lr.mul(self.factor).maximum(self.min_lr);
            lr.assign(&lr.sub(&new).gt(self.eps).where_(&new, lr));
        }
        Tensor::realize_all(&self.lrs)?;
        Ok(true)
    }
}
