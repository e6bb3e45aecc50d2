//! The kernels of the references' cases and of their gradients.

use super::reader::{Array, cases};
use super::tensors::apply;
use doorbell::schedule::{ScheduleCache, ScheduleItem, schedule};
use doorbell::tensor::{Elementwise, Tensor};
use doorbell::uop::UOp;

/// The groups that have kernels.
pub const GROUPS: [&str; 9] = ["unary", "binary", "casts", "reduce", "linear", "movement", "loss", "index", "order"];
/// Elements of a case's Tensors at most: software GPUs are slow.
const ELEMENTS: usize = 4096;

/// Kernel graphs of a group's cases, each with its case's name; the same graph may come again.
pub fn graphs(group: &str) -> Vec<(String, UOp)> {
    let (mut all, cache) = (vec![], ScheduleCache::default());
    for case in cases(group) {
        if case.inputs.iter().chain(&case.outputs).any(|a| a.len() > ELEMENTS) {
            continue;
        }
        let tensor = |a: &Array| Tensor::from_bytes(a.bytes.clone(), a.dtype, &a.shape, "CPU");
        let inputs: Vec<Tensor> = case.inputs.iter().map(tensor).collect();
        let output = apply(&case, &inputs);
        let mut wanted = vec![output.clone()];
        if let Some(grad) = &case.grad {
            let with = inputs.iter().zip(&grad.inputs).filter_map(|(x, g)| g.as_ref().map(|_| x));
            wanted.extend(output.gradient_with(&tensor(&grad.of), &with.collect::<Vec<_>>()));
        }
        let roots: Vec<_> = wanted.iter().map(|t| (t.contiguous().uop().expect("a graph"), "CPU".into())).collect();
        for item in schedule(&roots, &cache).expect("a schedule").items {
            if let ScheduleItem::Kernel { ast, .. } = item {
                all.push((case.name.clone(), ast));
            }
        }
    }
    all
}
