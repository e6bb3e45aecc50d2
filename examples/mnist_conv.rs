//! A convolutional network on handwritten digits, the first program of every framework.
//!
//! `cargo run --release --example mnist_conv` trains on the 1,498 digits of 8 x 8 pixels that are in the library
//! (`nn::datasets`; `datasets::mnist(folder)` reads MNIST's files in the same form) and checks the 299 held out.
//! `DEBUG=2` prints a line a kernel.

use doorbell::nn::datasets::{self, Dataset, Split};
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{self, BatchNorm, Conv2d, Linear, Module, Sequential};
use doorbell::tensor::prelude::*;
use doorbell::{Error, Jit};

/// How much to train, and what must come of it.
pub struct Setting {
    /// Channels of the convolutions.
    pub width: usize,
    /// Digits a step.
    pub batch: usize,
    pub steps: usize,
    /// The least share of the held-out digits that must be told right.
    pub accuracy: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let accuracy = train(&Setting { width: 32, batch: 64, steps: 300, accuracy: 0.97 })?;
    println!("{:.2} % of the held-out digits are told right", 100.0 * accuracy);
    Ok(())
}

/// (n, 1, 8, 8) pixels to (n, 10) logits.
fn network(width: usize) -> Sequential {
    Sequential::new()
        .layer(Conv2d::new(1, width, 3, Conv::padded(1)))
        .layer(BatchNorm::new(width))
        .then(|x| x.relu())
        .layer(Conv2d::new(width, width, 3, Conv::padded(1)))
        .layer(BatchNorm::new(width))
        .then(|x| x.relu().max_pool2d(Pool::square(2)).flatten(1, -1))
        .layer(Linear::new(width * 4 * 4, 10))
}

pub fn train(how: &Setting) -> Result<f64, Box<dyn std::error::Error>> {
    Tensor::manual_seed(1);
    let (train, test) = datasets::digits_split(Split::Sixth)?;
    let on_device = |d: &Dataset| (d.scaled(), d.classes());
    let ((x, y), (x_test, y_test)) = (on_device(&train), on_device(&test));
    Tensor::realize_all(&[&x, &y, &x_test, &y_test])?;

    let net = network(how.width);
    println!("{} parameters", net.parameter_count());
    let mut optim = Adam::new(net.parameters(), 0.002)?;

    // A step draws its digits on the device, so it has no input. Its second call is recorded, later ones replay that.
    let mut step = Jit::new(|_: &()| -> Result<Tensor, Error> {
        let _mode = nn::training(); // batch norm uses the batch's statistics until the end of this block
        let rows = Tensor::randint([how.batch], 0, train.len() as i32);
        optim.zero_grad();
        let loss = net.forward(&x.get(&rows)).sparse_categorical_crossentropy(&y.get(&rows));
        loss.backward()?;
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    // The share of the held-out digits that are told right.
    let mut accuracy = Jit::new(|_: &()| net.forward(&x_test).argmax(1).eq(&y_test).float().mean(()));

    for k in 1..=how.steps {
        let loss = step.call(&())?;
        if k % 50 == 0 {
            println!("step {k}: loss {:.4}, accuracy {:.4}", loss.item()?, accuracy.call(&())?.item()?);
        }
    }
    let reached = accuracy.call(&())?.item()?;
    match reached >= how.accuracy {
        true => Ok(reached),
        false => Err(format!("accuracy {reached}, wanted {}", how.accuracy).into()),
    }
}
