//! One network trained over several devices, in two ways, with the losses of one device.
//!
//! `cargo run --release --example parallel`. The devices are CPU, CPU:1 and so on, each with its own threads and
//! memory; names of GPUs work alike.
//!
//! - Data parallel: every device has all parameters and a part of each batch; gradients are added up.
//! - Tensor parallel: every device has all of the batch and a part of each layer: the first convolution's and linear
//!   layer's outputs, the second ones' inputs, so that partial results are added up once for each pair.

use doorbell::nn::datasets::{self, Split};
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{self, BatchNorm, Conv2d, Linear, Module};
use doorbell::tensor::prelude::*;
use doorbell::{Error, Jit};

/// How much to train.
pub struct Setting {
    pub width: usize,
    pub batch: usize,
    pub steps: usize,
    /// How many devices to train over, one after the other.
    pub devices: &'static [usize],
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    compare(&Setting { width: 16, batch: 32, steps: 40, devices: &[2, 4] })
}

struct Net {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    linear1: Linear,
    linear2: Linear,
}
doorbell::module!(Net { conv1, norm1, conv2, norm2, linear1, linear2 });

impl Net {
    fn new(width: usize) -> Net {
        Net {
            conv1: Conv2d::new(1, width, 3, Conv::padded(1)),
            norm1: BatchNorm::new(width),
            conv2: Conv2d::new(width, width, 3, Conv::padded(1)),
            norm2: BatchNorm::new(width),
            linear1: Linear::new(width * 4 * 4, 64),
            linear2: Linear::new(64, 10),
        }
    }
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm1.call(&self.conv1.forward(x)).relu();
        let x = self.norm2.call(&self.conv2.forward(&x)).relu().max_pool2d(Pool::square(2));
        self.linear2.forward(&self.linear1.forward(&x.flatten(1, -1)).relu())
    }
}

/// How a run is spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    OneDevice,
    Data(usize),
    Tensor(usize),
}

/// `CPU:0`, `CPU:1`, ...
fn names(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("CPU:{k}")).collect()
}

impl Spread {
    /// Puts the parameters and statistics of the network where they belong.
    fn place(self, net: &Net) {
        for (name, t) in net.state_dict() {
            match self {
                Spread::OneDevice => {}
                Spread::Data(n) => drop(t.shard_(&names(n), None)),
                Spread::Tensor(n) => {
                    // Weights are (outputs, inputs, ..).
                    let axis = match name.as_str() {
                        "conv2.weight" | "linear2.weight" => Some(1),
                        "conv2.bias" | "linear2.bias" => None,
                        name if name.starts_with("norm2") => None,
                        name if name.ends_with("num_batches_tracked") => None,
                        _ => Some(0),
                    };
                    t.shard_(&names(n), axis);
                }
            }
        }
    }
    /// A batch where this run needs it.
    fn batch(self, x: Tensor) -> Tensor {
        match self {
            Spread::OneDevice => x,
            Spread::Data(n) => x.shard(&names(n), 0),
            Spread::Tensor(n) => x.shard(&names(n), None),
        }
    }
}

/// The losses of all steps, from the same weights and on the same digits each time.
fn losses(how: &Setting, spread: Spread) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    Tensor::manual_seed(4);
    let (train, _) = datasets::digits_split(Split::Sixth)?;
    let (x, y) = (train.scaled(), train.classes());
    let net = Net::new(how.width);
    Tensor::realize_all(&net.tensors())?;
    spread.place(&net);
    let mut optim = Adam::new(net.parameters(), 0.002)?;
    let mut step = Jit::new(|(x, y): &(Tensor, Tensor)| -> Result<Tensor, Error> {
        let _mode = nn::training();
        optim.zero_grad();
        let loss = net.forward(x).sparse_categorical_crossentropy(y);
        loss.backward()?;
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    let mut losses = Vec::new();
    for k in 0..how.steps {
        let from = k * how.batch % (train.len() - how.batch);
        let rows = |t: &Tensor| spread.batch(t.get(from..from + how.batch));
        losses.push(step.call(&(rows(&x), rows(&y)))?.item()?);
    }
    Ok(losses)
}

pub fn compare(how: &Setting) -> Result<(), Box<dyn std::error::Error>> {
    let want = losses(how, Spread::OneDevice)?;
    println!("one device: loss {:.4} at first, {:.4} after {} steps", want[0], want[how.steps - 1], how.steps);
    if want[how.steps - 1] > 0.7 * want[0] {
        return Err("nothing was learnt".into());
    }
    for n in how.devices {
        for spread in [Spread::Data(*n), Spread::Tensor(*n)] {
            let got = losses(how, spread)?;
            let apart = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!("{spread:?}: loss {:.4}, never more than {apart:.1e} from that", got[how.steps - 1]);
            if apart > 1e-4 {
                return Err(format!("{spread:?}: losses differ by {apart}: {got:?}, wanted {want:?}").into());
            }
        }
    }
    Ok(())
}
