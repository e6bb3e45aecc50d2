//! Runs the cases of a group through the Tensor API and compares values and gradients; how a Tensor gets its value
//! (interpreter, device) is the caller's.

use crate::compare::compare;
use crate::reader::{Array, Case, Tolerance, cases};
use crate::tensors::apply;
use doorbell::tensor::{Tensor, default_device};

/// What computes a Tensor.
pub type Evaluate = fn(&Tensor) -> Result<Array, String>;

fn tensor(array: &Array) -> Tensor {
    Tensor::from_bytes(array.bytes.clone(), array.dtype, &array.shape, &default_device())
}

fn check(evaluate: Evaluate, got: &Tensor, want: &Array, tolerance: &Tolerance) -> Result<(), String> {
    compare(&evaluate(got)?, want, tolerance)
}

/// The output of a case and its gradients against the reference.
fn run(case: &Case, evaluate: Evaluate) -> Vec<String> {
    let inputs: Vec<Tensor> = case.inputs.iter().map(tensor).collect();
    let output = apply(case, &inputs);
    // Built before anything is computed: realizing the output would make it a leaf.
    let gradients = case.grad.iter().flat_map(|grad| {
        let wanted = || inputs.iter().zip(&grad.inputs).enumerate().filter_map(|(i, (x, g))| Some((i, x, g.as_ref()?)));
        let targets: Vec<&Tensor> = wanted().map(|(_, x, _)| x).collect();
        let found = output.gradient_with(&tensor(&grad.of), &targets);
        wanted().zip(found).map(|((i, _, want), got)| (i, got, want, &grad.tolerance)).collect::<Vec<_>>()
    });
    let gradients: Vec<_> = gradients.collect();
    let mut faults = Vec::new();
    if let Err(fault) = check(evaluate, &output, &case.outputs[0], &case.tolerance) {
        faults.push(format!("{}: {fault}", case.name));
    }
    for (i, got, want, tolerance) in gradients {
        if let Err(fault) = check(evaluate, &got, want, tolerance) {
            faults.push(format!("{}, gradient of input {i}: {fault}", case.name));
        }
    }
    faults
}

/// # Panics
/// Lists every case of the group that does not agree. `may_refuse`: whether the device lacks what a fault names; those
/// are less than half of the cases.
pub fn agrees(group: &str, evaluate: Evaluate, may_refuse: fn(&str) -> bool) {
    let cases = cases(group);
    let all: Vec<Vec<String>> = cases.iter().map(|case| run(case, evaluate)).collect();
    let is_refused = |faults: &&Vec<String>| !faults.is_empty() && faults.iter().all(|f| may_refuse(f));
    let refused = all.iter().filter(is_refused).count();
    let faults: Vec<String> = all.into_iter().flatten().filter(|f| !may_refuse(f)).collect();
    assert!(2 * refused <= cases.len(), "{refused} of {} cases are refused", cases.len());
    if refused > 0 {
        println!("{group}: {refused} of {} cases are refused", cases.len());
    }
    assert!(faults.is_empty(), "{} faults in {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
}
