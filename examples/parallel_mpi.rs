//! Data-parallel training over processes: the same program is started once for each rank.
//!
//! ```sh
//! cargo build --release --example parallel_mpi --features mpi
//! mpirun -n 4 target/release/examples/parallel_mpi
//! ```
//!
//! Each rank has the whole network and a quarter of every batch. The gradients are recorded on each rank, averaged over
//! all of them, and the recorded step of the optimiser follows. The losses are those of one process with whole batches,
//! which each rank computes beside them.

use doorbell::engine::Error;
use doorbell::mpi::{Combine, World};
use doorbell::nn::datasets::{self, Dataset};
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{Conv2d, Linear, Module};
use doorbell::tensor::prelude::*;
use doorbell::{Jit, Tensor};
use std::ops::Range;

const STEPS: usize = 20;
const BATCH: usize = 64;

struct Net {
    conv: Conv2d,
    linear: Linear,
}
doorbell::module!(Net { conv, linear });

impl Net {
    /// Every rank makes the same one: the seed is the same.
    fn new() -> Result<Net, Error> {
        Tensor::manual_seed(0);
        let net = Net { conv: Conv2d::new(1, 16, 3, Conv::padded(1)), linear: Linear::new(16 * 4 * 4, 10) };
        Tensor::realize_all(&net.tensors())?;
        Ok(net)
    }
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.conv.forward(x).relu().max_pool2d(Pool::square(2));
        self.linear.forward(&x.flatten(1, -1))
    }
}

/// These rows of a batch.
fn rows(data: &Dataset, step: usize, part: &Range<usize>) -> (Tensor, Tensor) {
    let size = data.height * data.width;
    let from = step * BATCH + part.start;
    let pixels = &data.floats()[from * size..(from + part.len()) * size];
    let labels: Vec<i32> = data.labels[from..from + part.len()].iter().map(|l| i32::from(*l)).collect();
    (Tensor::from_slice(pixels, [part.len(), 1, data.height, data.width]), Tensor::from_slice(&labels, [part.len()]))
}

/// Losses of the first steps, on these rows of each batch; `meet` combines losses and gradients of the ranks.
fn train(
    data: &Dataset,
    part: &Range<usize>,
    meet: impl Fn(&[&Tensor]) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let net = Net::new()?;
    let parameters = net.tensors();
    let mut optimizer = Adam::decoupled(net.parameters(), 0.01, 0.01)?;
    let mut gradients = Jit::new(|(x, y): &(Tensor, Tensor)| {
        let loss = net.forward(x).sparse_categorical_crossentropy(y);
        let mut all = vec![loss.clone()];
        all.extend(loss.gradient(&parameters.iter().collect::<Vec<_>>()));
        all
    });
    let mut step = Jit::new(|gradients: &[Tensor]| -> Result<Vec<Tensor>, Error> {
        for (p, g) in parameters.iter().zip(gradients) {
            p.set_grad(Some(g.clone()));
        }
        Ok(optimizer.schedule_step()?)
    });
    let mut losses = Vec::new();
    for k in 0..STEPS {
        let found = gradients.call(&rows(data, k, part))?;
        meet(&found.iter().collect::<Vec<_>>())?;
        step.call(&found[1..])?;
        losses.push(found[0].item()?);
    }
    Ok(losses)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = World::init()?;
    let (data, _) = datasets::digits_split(datasets::Split::Sixth)?;
    let together = train(&data, &world.rows(BATCH)?, |all| Ok(world.all_reduce(all, Combine::Mean)?))?;
    let alone = train(&data, &(0..BATCH), |_| Ok(()))?;
    for (k, (a, b)) in together.iter().zip(&alone).enumerate() {
        assert!((a - b).abs() < 1e-4, "step {k} on rank {}: {a} of all ranks, {b} of one process", world.rank());
    }
    if world.rank() == 0 {
        let (first, last) = (together[0], together[STEPS - 1]);
        println!("{} ranks: loss {first:.4} to {last:.4} in {STEPS} steps, as one process", world.size());
    }
    Ok(())
}
