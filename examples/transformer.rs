//! A small transformer that learns to sort, then writes its answers token by token with a cache of keys and values.
//!
//! `cargo run --release --example transformer`. A sequence is digits, a stop, the digits sorted: `3 1 2 . 1 2 3`. The
//! network reads it from the left and says each next token, as language models do; what counts is what it says after
//! the stop. It is trained by a recorded step on sequences drawn on the device, and tested on others.

use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{Embedding, KvCache, LayerNorm, Linear, Module, MultiHeadAttention};
use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;
use doorbell::{Error, Jit};

/// How much to train, and what must come of it.
pub struct Setting {
    /// Digits to sort.
    pub digits: usize,
    /// Numbers a token becomes.
    pub size: usize,
    pub blocks: usize,
    /// Sequences a step.
    pub batch: usize,
    pub steps: usize,
    /// The least share of unseen sequences that must be sorted without a fault.
    pub accuracy: f64,
}

/// Tokens: ten digits and the stop.
const TOKENS: usize = 11;
const STOP: i32 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let how = Setting { digits: 6, size: 64, blocks: 2, batch: 64, steps: 500, accuracy: 0.9 };
    let net = train(&how)?;
    let sorted = written(&net, &how, &[7, 3, 9, 0, 3, 5])?;
    println!("7 3 9 0 3 5 sorted: {sorted:?}");
    assert_eq!(sorted, [0, 3, 3, 5, 7, 9]);
    assert_eq!(said(&net, &[7, 3, 9, 0, 3, 5, STOP, 0, 3])?, 3, "the same without a cache");
    Ok(())
}

/// Attention and two linear layers, each added to what it read.
struct Block {
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}
doorbell::module!(Block { norm1, attention, norm2, up, down });

impl Block {
    fn new(size: usize) -> Block {
        Block {
            norm1: LayerNorm::new(size),
            attention: MultiHeadAttention::new(size, 4),
            norm2: LayerNorm::new(size),
            up: Linear::new(size, 4 * size),
            down: Linear::new(4 * size, size),
        }
    }
    /// (n, tokens, size) to the same shape. With a cache, these are the tokens from a position on, and those before
    /// are in the cache; without, they are all.
    fn forward(&self, x: &Tensor, cached: Option<(&KvCache, &UOp)>) -> Tensor {
        let y = self.norm1.forward(x);
        let x = x + match cached {
            Some((cache, at)) => self.attention.forward_cached(&y, cache, at),
            None => self.attention.forward(&y, &y, &y, None, true),
        };
        &x + self.down.forward(&self.up.forward(&self.norm2.forward(&x)).gelu())
    }
}

pub struct Net {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}
doorbell::module!(Net { tokens, positions, blocks, norm, head });

impl Net {
    fn new(how: &Setting) -> Net {
        Net {
            tokens: Embedding::new(TOKENS, how.size),
            positions: Embedding::new(length(how), how.size),
            blocks: (0..how.blocks).map(|_| Block::new(how.size)).collect(),
            norm: LayerNorm::new(how.size),
            head: Linear::new(how.size, TOKENS),
        }
    }
    /// (n, count) tokens to (n, count, 11) logits of the token after each.
    fn forward(&self, tokens: &Tensor) -> Tensor {
        let x = self.tokens.forward(tokens) + self.positions.forward(&Tensor::arange(tokens.len_of(1)));
        self.head.forward(&self.norm.forward(&self.blocks.iter().fold(x, |x, b| b.forward(&x, None))))
    }
    /// The same of one token at position `at`, when those before are in the caches, one for each block.
    fn next(&self, token: &Tensor, caches: &[KvCache], at: &UOp) -> Tensor {
        let x = self.tokens.forward(token) + self.positions.forward(&Tensor::from(at.clone()));
        let blocks = self.blocks.iter().zip(caches);
        self.head.forward(&self.norm.forward(&blocks.fold(x, |x, (b, cache)| b.forward(&x, Some((cache, at))))))
    }
}

/// Tokens that the network reads: all but the last of a sequence.
fn length(how: &Setting) -> usize {
    2 * how.digits
}

/// (n, 2 digits + 1) tokens: drawn digits, the stop, the digits in order.
fn sequences(n: usize, how: &Setting) -> Tensor {
    let digits = Tensor::randint([n, how.digits], 0, 10);
    let stop = Tensor::full([n, 1], STOP);
    Tensor::cat(&[&digits, &stop, &digits.sort(-1, false).0], 1)
}

pub fn train(how: &Setting) -> Result<Net, Box<dyn std::error::Error>> {
    Tensor::manual_seed(3);
    let net = Net::new(how);
    println!("{} parameters", net.parameter_count());
    let mut optim = Adam::new(net.parameters(), 0.003)?;
    let (read, first) = (length(how), how.digits);
    // Logits of the tokens after the stop, and what they should be.
    let answers = |all: &Tensor| {
        let logits = net.forward(&all.narrow(1, 0, read)).narrow(1, first, how.digits);
        (logits, all.narrow(1, first + 1, how.digits))
    };
    let mut step = Jit::new(|_: &()| -> Result<Tensor, Error> {
        optim.zero_grad();
        let (logits, wanted) = answers(&sequences(how.batch, how));
        let loss = logits.flatten(0, 1).sparse_categorical_crossentropy(&wanted.flatten(0, 1));
        loss.backward()?;
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    for k in 1..=how.steps {
        let loss = step.call(&())?;
        if k % 100 == 0 {
            println!("step {k}: loss {:.4}", loss.item()?);
        }
    }
    let (logits, wanted) = answers(&sequences(256, how));
    let accuracy = logits.argmax(-1).eq(&wanted).all(-1).float().mean(()).item()?;
    println!("{:.1} % of unseen sequences are sorted without a fault", 100.0 * accuracy);
    match accuracy >= how.accuracy {
        true => Ok(net),
        false => Err(format!("accuracy {accuracy}, wanted {}", how.accuracy).into()),
    }
}

/// The token that the network says after these, without a cache: all of them are read.
pub fn said(net: &Net, tokens: &[i32]) -> Result<i32, Error> {
    let logits = net.forward(&Tensor::from_slice(tokens, [1, tokens.len()]));
    Ok(logits.get((0, -1)).argmax(-1).item()? as i32)
}

/// What the network writes after these digits and the stop, one token at a time. Each token is computed from the keys
/// and values of those before it, which lie in the caches; the position is a variable, so one recording serves all.
pub fn written(net: &Net, how: &Setting, digits: &[i32]) -> Result<Vec<i32>, Error> {
    let position = Variable::new("position", 0, length(how) as i64 - 1);
    let caches: Vec<KvCache> = net.blocks.iter().map(|b| b.attention.cache(1, length(how))).collect();
    let mut next = Jit::new(|(token, at): &(Tensor, UOp)| net.next(token, &caches, at).argmax(-1));
    let mut tokens: Vec<i32> = digits.iter().copied().chain([STOP]).collect();
    for k in 0..length(how) {
        let at = position.bind(k as i64);
        let said = next.call(&(Tensor::new([[tokens[k]]]), at))?.item()? as i32;
        if k >= digits.len() {
            tokens.push(said);
        }
    }
    Ok(tokens.split_off(digits.len() + 1))
}
