//! Learning-rate schedules against PyTorch's, plain and in a recorded step.

use super::{cases, number, size};
use doorbell::Jit;
use doorbell::nn::optim::schedule::{Anneal, Curve, LrSchedule, OneCycle, ReduceLROnPlateau};
use doorbell::nn::optim::{Optimizer, Sgd};
use doorbell::tensor::prelude::*;
use serde_json::Value;

fn optim() -> (Tensor, Sgd) {
    let w = Tensor::new([1.0f32]).requires_grad();
    let optim = Sgd::new(&[w.clone()], 0.1).unwrap();
    (w, optim)
}

fn curve(op: &str, p: &Value) -> Option<Curve> {
    let n = |key: &str| size(p, key) as u32;
    let x = |key: &str| number(p, key, f64::NAN);
    Some(match op {
        "multi_step" => {
            let list: Vec<u32> =
                p["milestones"].as_array().unwrap().iter().map(|m| m.as_u64().unwrap() as u32).collect();
            Curve::multi_step(&list, x("gamma"))
        }
        "step" => Curve::step(n("size"), x("gamma")),
        "exponential" => Curve::exponential(x("gamma")),
        "cosine" => Curve::cosine_annealing(n("t_max"), x("eta_min")),
        "linear" => Curve::linear(x("start"), x("end"), n("steps")),
        "polynomial" => Curve::polynomial(n("steps"), x("power")),
        "one_cycle" => Curve::one_cycle(OneCycle {
            pct_start: x("pct_start"),
            div_factor: x("div_factor"),
            final_div_factor: x("final_div_factor"),
            anneal: if p["anneal"] == "cos" { Anneal::Cosine } else { Anneal::Linear },
            three_phase: p["three_phase"] == true,
            ..OneCycle::new(x("max_lr"), n("total_steps"))
        }),
        "warmup" => {
            Curve::linear(x("start"), 1.0, n("steps")).then(n("steps"), Curve::cosine_annealing(n("t_max"), 0.0))
        }
        _ => return None,
    })
}

#[test]
fn schedules_have_pytorchs_rates_plain_and_recorded() {
    let mut count = 0;
    for case in cases(include_bytes!("../data/nn/rates.jsonl.gz")) {
        let name = case["name"].as_str().unwrap();
        let Some(curve) = curve(case["op"].as_str().unwrap(), &case["params"]) else { continue };
        for recorded in [false, true] {
            let (_, optim) = optim();
            let mut schedule = LrSchedule::new(&optim, curve.clone()).unwrap();
            let mut step = Jit::new(|_: &[Tensor]| schedule.schedule_step());
            for (n, wanted) in case["rates"].as_array().unwrap().iter().enumerate() {
                let (found, wanted) = (optim.lr().item().unwrap(), wanted.as_f64().unwrap());
                assert!(
                    (found - wanted).abs() <= 3e-7 + 1e-5 * wanted,
                    "{name}: step {n}: {found} instead of {wanted}"
                );
                let alone = curve.at(n as u32, 0.1).item().unwrap();
                assert!((alone - found).abs() <= 1e-6 * found.abs() + 1e-9, "{name}: {alone} {found}");
                if !recorded {
                    step.reset();
                }
                step.call(&[]).unwrap();
            }
            assert_eq!(step.is_recorded(), recorded, "{name}");
        }
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn a_plateau_lowers_the_rate_as_pytorchs_does() {
    let mut count = 0;
    for case in cases(include_bytes!("../data/nn/rates.jsonl.gz")).iter().filter(|c| c["op"] == "plateau") {
        let (_, optim) = optim();
        let p = &case["params"];
        let mut plateau = ReduceLROnPlateau::new(&optim);
        plateau.larger_is_better = p["mode"] == "max";
        plateau.patience = number(p, "patience", 10.0) as u32;
        plateau.factor = number(p, "factor", 0.1);
        plateau.threshold = number(p, "threshold", 1e-4);
        plateau.absolute = p["threshold_mode"] == "abs";
        plateau.cooldown = number(p, "cooldown", 0.0) as u32;
        plateau.min_lr = number(p, "min_lr", 0.0);
        let metrics = case["metrics"].as_array().unwrap().iter().map(|m| m.as_f64().unwrap());
        for (n, (metric, wanted)) in metrics.zip(case["rates"].as_array().unwrap()).enumerate() {
            plateau.step(metric).unwrap();
            let (found, wanted) = (optim.lr().item().unwrap(), wanted.as_f64().unwrap());
            assert!((found - wanted).abs() <= 1e-6 * wanted, "{}: step {n}: {found} instead of {wanted}", case["name"]);
        }
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn a_recorded_step_uses_the_rate_before_and_leaves_the_next() {
    let (w, mut optim) = optim();
    let mut schedule = LrSchedule::new(&optim, Curve::exponential(0.5)).unwrap();
    let lr = optim.lr().clone();
    let mut step = Jit::new(|_: &[Tensor]| -> Result<Vec<Tensor>, doorbell::Error> {
        w.set_grad(Some(Tensor::ones([1])));
        let mut all = optim.schedule_step()?;
        all.extend(schedule.schedule_step());
        Ok(all)
    });
    let (mut at, mut rate) = (1.0, 0.1);
    for _ in 0..6 {
        step.call(&[]).unwrap();
        at -= rate;
        rate *= 0.5;
        assert!((w.item().unwrap() - at).abs() < 1e-6 && (lr.item().unwrap() - rate).abs() < 1e-7);
    }
    assert!(step.is_recorded());
}

#[test]
fn settings_that_mean_nothing_are_told() {
    let (_, optim) = optim();
    let text = |curve: Curve| LrSchedule::new(&optim, curve).unwrap_err().to_string();
    assert_eq!(text(Curve::step(0, 0.5)), "optimiser: the size of steps is 0; it is above 0");
    assert_eq!(text(Curve::exponential(0.0)), "optimiser: gamma is 0; it is above 0");
    assert!(text(Curve::one_cycle(OneCycle::new(0.1, 2))).contains("each phase takes some steps"));
    assert!(text(Curve::constant().then(3, Curve::linear(0.0, 1.0, 0))).contains("the steps of a line"));
    let mut plateau = ReduceLROnPlateau::new(&optim);
    plateau.factor = 2.0;
    assert!(plateau.step(1.0).is_err());
}
