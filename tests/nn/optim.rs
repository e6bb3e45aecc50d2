//! Trajectories of the optimisers over given gradients, plain and recorded; clipping; groups.

use super::{cases, near, number, tensors};
use doorbell::Jit;
use doorbell::nn::optim::{
    Adam, AdamW, Lamb, Lars, Muon, MuonScale, OptimError, Optimizer, OptimizerGroup, Sgd, clip_grad_norm,
    clip_grad_value, grad_norm,
};
use doorbell::nn::{Linear, Module, Parameters, state};
use doorbell::tensor::prelude::*;
use serde_json::Value;

fn sgd(op: &str, list: &[Tensor], p: &Value) -> Option<Sgd> {
    let mut o = match op {
        "sgd" => Sgd::new(list, 0.1),
        "lars" => Lars::new(list, 0.1),
        "muon" => Muon::new(list, 0.1),
        _ => return None,
    }
    .unwrap();
    if let Some(m) = p["momentum"].as_f64() {
        o = o.momentum(m);
    }
    if let Some(d) = p["weight_decay"].as_f64() {
        o = o.weight_decay(d);
    }
    if let Some(c) = p["trust"].as_f64() {
        o = o.trust(c);
    }
    match p["nesterov"].as_bool() {
        Some(true) => o = o.nesterov(),
        // Muon has it at first.
        Some(false) => o = o.plain_momentum(),
        None => {}
    }
    if p["classic"] == true {
        o = o.classic();
    }
    if let Some(steps) = p["ns_steps"].as_u64() {
        o = o.orthogonal(steps as usize, [3.4445, -4.7750, 2.0315]);
    }
    match p["scale"].as_str() {
        Some("original") => o = o.scaled(MuonScale::Original),
        Some(_) => o = o.scaled(MuonScale::MatchRmsAdamW),
        None => {}
    }
    Some(o)
}

fn adam(op: &str, list: &[Tensor], p: &Value) -> Option<Adam> {
    let mut o = match op {
        "adam" => Adam::new(list, 0.1),
        "adamw" => AdamW::new(list, 0.1),
        "lamb" => Lamb::new(list, 0.1),
        _ => return None,
    }
    .unwrap();
    if let Some(d) = p["weight_decay"].as_f64() {
        o = o.weight_decay(d);
    }
    if let Some(b) = p["betas"].as_array() {
        o = o.betas(b[0].as_f64().unwrap(), b[1].as_f64().unwrap());
    }
    if p["eps"].is_number() {
        o = o.eps(number(p, "eps", 0.0));
    }
    if p["amsgrad"] == true {
        o = o.amsgrad();
    }
    Some(o)
}

fn made(op: &str, list: &[Tensor], p: &Value) -> Box<dyn Optimizer> {
    match sgd(op, list, p) {
        Some(o) => Box::new(o),
        None => Box::new(adam(op, list, p).unwrap_or_else(|| panic!("{op}"))),
    }
}

/// Parameters that hold these values.
fn parameters(list: &Value) -> Vec<Tensor> {
    let all: Vec<Tensor> = tensors(list).into_iter().map(Tensor::requires_grad).collect();
    Tensor::realize_all(&all).unwrap();
    all
}

#[test]
fn optimisers_take_the_path_of_their_references_plain_and_recorded() {
    let mut count = 0;
    for case in cases(include_bytes!("../data/nn/optim.jsonl.gz")) {
        let (name, op) = (case["name"].as_str().unwrap(), case["op"].as_str().unwrap());
        if op.starts_with("clip") {
            continue;
        }
        for recorded in [false, true] {
            let list = parameters(&case["start"]);
            let mut optim = made(op, &list, &case["params"]);
            let mut step = Jit::new(|grads: &[Tensor]| -> Result<Vec<Tensor>, doorbell::Error> {
                list.iter().zip(grads).for_each(|(p, g)| p.set_grad(Some(g.clone())));
                Ok(optim.schedule_step()?)
            });
            for (n, grads) in case["grads"].as_array().unwrap().iter().enumerate() {
                if !recorded {
                    step.reset();
                }
                step.call(&tensors(grads)).unwrap();
                for (k, p) in list.iter().enumerate() {
                    near(
                        &format!("{name}: step {n}, parameter {k}, recorded {recorded}"),
                        p,
                        &case["path"][n][k],
                        2e-5,
                    );
                }
            }
            assert_eq!(step.is_recorded(), recorded);
        }
        count += 1;
    }
    assert!(count >= 30, "{count}");
}

#[test]
fn gradients_are_clipped_as_by_pytorch() {
    for case in cases(include_bytes!("../data/nn/optim.jsonl.gz")) {
        let (name, op) = (case["name"].as_str().unwrap(), case["op"].as_str().unwrap());
        let (p, bound) = (&case["params"], number(&case["params"], "bound", 0.0));
        let grads = tensors(&case["grads"][0]);
        let list: Vec<Tensor> = grads.iter().map(|g| g.zeros_like().requires_grad()).collect();
        list.iter().zip(&grads).for_each(|(p, g)| p.set_grad(Some(g.clone())));
        let path = case["path"][0].as_array().unwrap();
        let after = match op {
            "clip_norm" => {
                let kind: f64 = p["p"].as_str().unwrap().parse().unwrap();
                near(name, &grad_norm(&list, kind).unwrap(), &path[0], 1e-5);
                if kind == 2.0 {
                    near(name, &clip_grad_norm(&list, bound).unwrap(), &path[0], 1e-5);
                }
                &path[1..]
            }
            "clip_value" => {
                clip_grad_value(&list, bound).unwrap();
                path.as_slice()
            }
            _ => continue,
        };
        for (p, wanted) in list.iter().zip(after) {
            near(name, &p.grad().unwrap(), wanted, 1e-6);
        }
    }
}

#[test]
fn members_of_a_group_have_settings_of_their_own_and_step_together_or_not_at_all() {
    let (a, b) = (Tensor::new([1.0f32]).requires_grad(), Tensor::new([1.0f32]).requires_grad());
    let first = Sgd::new(&[a.clone()], 0.5).unwrap();
    let mut group = OptimizerGroup::new(first).with(Sgd::new(&[b.clone()], 0.25).unwrap().weight_decay(1.0));
    a.set_grad(Some(Tensor::new([1.0f32])));
    let error = group.step().unwrap_err().to_string();
    assert!(error.contains("parameter 0 of 1 has no gradient"), "{error}");
    assert_eq!(a.item().unwrap(), 1.0);
    b.set_grad(Some(Tensor::new([1.0f32])));
    group.step().unwrap();
    assert_eq!((a.item().unwrap(), b.item().unwrap()), (0.5, 0.5));
    group.set_lr(1.0).unwrap();
    group.step().unwrap();
    assert_eq!((a.item().unwrap(), b.item().unwrap()), (-0.5, -1.0));
    group.zero_grad();
    assert!(a.grad().is_none() && b.grad().is_none());
    let twice = OptimizerGroup::new(Sgd::new(&[a.clone()], 0.5).unwrap()).with(Sgd::new(&[a.clone()], 0.5).unwrap());
    assert!(matches!(twice.check(), Err(OptimError::Twice { .. })));
}

#[test]
fn what_an_optimiser_would_not_move_is_an_error_that_names_it() {
    let text = |r: Result<Sgd, OptimError>| r.err().map(|e| e.to_string()).unwrap();
    let w = Tensor::new([1.0f32, 2.0]).requires_grad();
    assert_eq!(
        text(Sgd::new(&[w.clone(), Tensor::new([[0.0f32; 3]])], 0.1)),
        "optimiser: parameter 1, f32 (1, 3), asks for no gradient, so no step would move it (see requires_grad)"
    );
    assert!(text(Sgd::new(Vec::new(), 0.1)).starts_with("optimiser: no parameters"));
    let net = Linear::new(2, 2);
    net.freeze();
    assert!(text(Sgd::new(net.parameters(), 0.1)).starts_with("optimiser: no parameters"));
    assert_eq!(text(Sgd::new(&[w.clone(), w.clone()], 0.1)), "optimiser: parameter 1 is parameter 0 once more");
    let ints = Tensor::new([1i32]).requires_grad();
    assert_eq!(text(Sgd::new(&[ints], 0.1)), "optimiser: parameter 0 holds i32; only floats have a gradient");
    assert_eq!(text(Sgd::new(&[w.clone()], -0.1)), "optimiser: the learning rate is -0.1; it is a number from 0 on");
    assert!(text(Sgd::new(&[w.reshape([3]).requires_grad()], 0.1)).starts_with("optimiser: parameter 0: reshape: "));
    assert_eq!(
        text(Muon::new(Linear::new(2, 3).parameters(), 0.1)),
        "optimiser: parameter 'bias' of shape (3,): Muon moves matrices; give the others to AdamW in an OptimizerGroup"
    );
    let step = |o: Result<Sgd, OptimError>| o.unwrap().schedule_step().unwrap_err().to_string();
    w.set_grad(Some(Tensor::ones([2])));
    let new = || Sgd::new(&[w.clone()], 0.1);
    assert_eq!(step(new().map(Sgd::nesterov)), "optimiser: momentum is 0; nesterov needs one above 0");
    assert_eq!(step(new().map(|o| o.momentum(1.5))), "optimiser: momentum is 1.5; it is from 0 to below 1");
    assert!(step(new().map(|o| o.scaled(MuonScale::Original))).ends_with("the optimiser is not Muon"));
    let net = Linear::new(2, 2);
    let error = Adam::new(net.parameters(), 0.1).unwrap().schedule_step().unwrap_err().to_string();
    assert!(error.starts_with("optimiser: parameter 'weight' of 2 has no gradient"), "{error}");
    assert!(clip_grad_norm(&[w.clone()], f64::NAN).is_err() && grad_norm(&[w], 0.0).is_err());
}

#[test]
fn parameters_without_gradient_stay_if_that_is_asked_for() {
    let (a, b) = (Tensor::new([1.0f32]).requires_grad(), Tensor::new([1.0f32]).requires_grad());
    let all = Parameters::sorted([a.clone(), b.clone(), Tensor::new([5.0f32])]);
    assert_eq!((all.len(), all.buffers().len()), (2, 1));
    let mut optim = Adam::new(&all, 0.5).unwrap().skip_unused();
    a.set_grad(Some(Tensor::new([1.0f32])));
    optim.step().unwrap();
    assert!((a.item().unwrap() - 0.5).abs() < 1e-5 && b.item().unwrap() == 1.0);
}

#[test]
fn a_step_goes_on_from_its_saved_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("optim.safetensors");
    let start = || Tensor::new([1.0f32, -2.0]).requires_grad();
    let (a, b) = (start(), start());
    let mut optim = Adam::new(&[a.clone()], 0.1).unwrap().amsgrad();
    let step = |optim: &mut Adam, p: &Tensor, g: f32| {
        p.set_grad(Some(Tensor::new([g, -g])));
        optim.step().unwrap();
    };
    step(&mut optim, &a, 1.0);
    state::save(&optim.state_dict(), &path).unwrap();
    b.assign(&a.detach().contiguous()).realize().unwrap();
    let mut other = Adam::new(&[b.clone()], 0.7).unwrap().amsgrad();
    state::load_into(&other, &state::load(&path).unwrap()).unwrap();
    for g in [-3.0, 0.5] {
        step(&mut optim, &a, g);
        step(&mut other, &b, g);
    }
    assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
}
