//! A recurrent network that continues a wave: it reads a sine of unknown frequency and phase and says each next value.
//!
//! `cargo run --release --example lstm`. From a single value of a sine nobody can tell the next one: the frequency has
//! to be found out from the values before and remembered. So the network must do far better than the best guess from
//! the last value, and it must be able to go on by itself, reading its own predictions.

use doorbell::nn::optim::{Adam, Optimizer, clip_grad_norm};
use doorbell::nn::{LSTM, Linear, Module, Recurrent};
use doorbell::tensor::prelude::*;
use doorbell::{Error, Jit};

/// How much to train, and what must come of it.
pub struct Setting {
    pub hidden: usize,
    /// Values of a wave that the network reads.
    pub length: usize,
    /// Waves a step.
    pub batch: usize,
    pub steps: usize,
    /// The largest mean squared error on waves that were not trained on.
    pub loss: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let how = Setting { hidden: 32, length: 24, batch: 32, steps: 500, loss: 0.002 };
    let net = train(&how)?;
    let errors = continued(&net, &how)?;
    println!("errors of 8 values that it adds to a wave by itself: {errors:.3?}");
    assert!(errors.iter().all(|e| *e < 0.3), "{errors:?}");
    Ok(())
}

/// An LSTM whose outputs become one number each.
pub struct Net {
    lstm: LSTM,
    head: Linear,
}
doorbell::module!(Net { lstm, head });

impl Net {
    fn new(hidden: usize) -> Net {
        let how = Recurrent { batch_first: true, ..Recurrent::default() };
        Net { lstm: LSTM::new(1, hidden, how), head: Linear::new(hidden, 1) }
    }
    /// (n, time, 1) values to the value after each, of the same shape, and the state after the last.
    fn forward(&self, x: &Tensor, state: Option<&(Tensor, Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        let (outputs, state) = self.lstm.forward(x, state);
        (self.head.forward(&outputs), state)
    }
}

/// (n, length, 1): sines with frequencies and phases drawn at random, on the device.
fn waves(n: usize, length: usize) -> Tensor {
    let frequency = Tensor::uniform([n, 1, 1], 0.2, 0.8);
    let phase = Tensor::uniform([n, 1, 1], 0.0, std::f64::consts::TAU);
    (frequency * Tensor::arange(length).reshape([1, -1, 1]) + phase).sin()
}

pub fn train(how: &Setting) -> Result<Net, Box<dyn std::error::Error>> {
    Tensor::manual_seed(2);
    let net = Net::new(how.hidden);
    let mut optim = Adam::new(net.parameters(), 0.01)?;
    let rate = optim.lr().clone(); // a Tensor: what is assigned to it counts from the next step on
    // The first values of a wave can only be guessed: those from here on count.
    const KNOWN: usize = 8;
    let late = |x: &Tensor, from: usize| x.narrow(1, from, how.length - KNOWN);
    let error_of = |read: &Tensor, wave: &Tensor| {
        let (guess, _) = net.forward(&read.narrow(1, 0, how.length), None);
        late(&guess, KNOWN).mse_loss(&late(wave, KNOWN + 1))
    };
    let mut step = Jit::new(|_: &()| -> Result<Tensor, Error> {
        optim.zero_grad();
        let wave = waves(how.batch, how.length + 1);
        // What it reads is a little wrong, as its own predictions will be.
        let loss = error_of(&(&wave + wave.randn_like() * 0.05), &wave);
        loss.backward()?;
        clip_grad_norm(&optim.params(), 1.0)?; // gradients through many steps in time may explode
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    for k in 1..=how.steps {
        let loss = step.call(&())?;
        if k % 50 == 0 {
            println!("step {k}: loss {:.6}", loss.item()?);
        }
        if k == how.steps / 2 || k == how.steps * 3 / 4 {
            rate.assign(&(&rate * 0.3)).realize()?;
        }
    }
    let unseen = waves(64, how.length + 1);
    let loss = error_of(&unseen, &unseen).item()?;
    let last = late(&unseen, KNOWN).mse_loss(&late(&unseen, KNOWN + 1)).item()?;
    println!("unseen waves: mean squared error {loss:.6}; of saying the last value again: {last:.5}");
    match loss <= how.loss {
        true => Ok(net),
        false => Err(format!("a mean squared error of {loss}, wanted {}", how.loss).into()),
    }
}

/// The network reads a wave, then eight times its own prediction: how far it is from the wave each time.
pub fn continued(net: &Net, how: &Setting) -> Result<Vec<f32>, Error> {
    const MORE: usize = 8;
    let wave = (Tensor::arange(how.length + MORE) * 0.5).sin().reshape([1, -1, 1]);
    let (guesses, mut state) = net.forward(&wave.narrow(1, 0, how.length), None);
    let mut guess = guesses.narrow(1, how.length - 1, 1);
    // A recorded function takes and gives tuples of Tensors: the value and the state go round.
    let mut next = Jit::new(|(x, state): &(Tensor, (Tensor, Tensor))| net.forward(x, Some(state)));
    let mut errors = Vec::new();
    for k in 0..MORE {
        errors.push((&guess - wave.get((.., how.length + k..how.length + k + 1))).abs().item()? as f32);
        (guess, state) = next.call(&(guess, state))?;
    }
    Ok(errors)
}
