//! Random numbers: threefry2x32 blocks of a counter under a key, as a graph like any other.
//!
//! The counter is memory that every draw advances by Assign, so a recorded program draws fresh numbers at each replay.
//! The streams (key, counter layout, bits to floats) are tinygrad's, so the same seed gives its numbers on the first
//! device. A draw is the word at its position: position i below half takes the low word of block i, the others the high
//! word.

use super::args::IntoShape;
use super::convert::default_float;
use super::creation::known;
use super::device_name::canonical;
use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::handle::{Tensor, default_device};
use super::math::Math;
use super::movement::Movement;
use super::order::Order;
use super::reduction::Reduction;
use super::shard;
use super::value::{Expr, Value, build, lift};
use crate::uop::{ConstVal, DType, Dim, Scalar, UOp};
use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};

/// Low word of sha256 of the device's number (0), which tinygrad mixes into the first device's key.
const FIRST_DEVICE: u32 = 0x14b8_1119;

/// A stream of random numbers on one device.
#[derive(Clone, Debug)]
pub struct Generator {
    /// (1,) u64: device word, seed above it.
    key: Tensor,
    /// (1,) u64: words drawn so far.
    counter: Tensor,
    /// Held while a draw reserves its positions in the stream.
    drawing: Arc<Mutex<()>>,
}

impl Generator {
    /// The stream of this seed on the default device.
    pub fn new(seed: u32) -> Generator {
        Generator::on(seed, FIRST_DEVICE, default_device())
    }
    fn on(seed: u32, device_word: u32, device: Arc<str>) -> Generator {
        let word =
            |value: u64| Tensor::from(Tensor::host_data(value.to_le_bytes().to_vec(), Scalar::U64, 1, device.clone()));
        let key = u64::from(seed) << 32 | u64::from(device_word);
        Generator { key: word(key), counter: word(0), drawing: Arc::default() }
    }
    /// The counter's Tensor, (1,) u64: words drawn so far. What a capture of a program must keep alive.
    pub fn counter(&self) -> &Tensor {
        &self.counter
    }

    /// Advances the counter by `words` and returns the key of the draw that starts at its old value, (1,) u64.
    ///
    /// The key is stored in this draw's own memory, so that a draw which is computed late is not moved by later ones.
    /// One kernel stores both.
    #[track_caller]
    fn advance(&self, words: u32) -> Tensor {
        let _turn = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.counter.empty_like();
        key.assign(&self.counter.threefry(&self.key));
        let after = |x: &Tensor, earlier: &Tensor| -> Tensor {
            build("rand", [x.node(), earlier.node()], |[x, earlier]| Ok(x.after(std::slice::from_ref(earlier))))
        };
        self.counter.assign(&after(&self.counter, &key).add(i64::from(words)));
        // Computing the draw advances the counter too: a recorded program draws fresh numbers at each replay.
        after(&key, &self.counter)
    }

    /// One draw, computed by one kernel: `made` of its key (u64, of one element) and its number of words, for a result
    /// of `shape` of which each number takes the bits of `dtype`.
    #[track_caller]
    fn drawn(
        &self,
        op: &'static str,
        shape: &[Dim],
        dtype: Scalar,
        made: impl FnOnce(&Expr, u32) -> Result<Expr, Problem>,
    ) -> Tensor {
        let words = match word_count(shape, dtype) {
            Ok(words) => words,
            Err(problem) => return lift(op, [], |[]| Err(problem)),
        };
        let key = self.advance(words);
        lift(op, [key.node()], |[key]| Ok(made(&key, words)?.contiguous()))
    }
    /// Uniform floats in [0, 1) of the default float type. Of a symbolic shape the numbers are the first ones of what
    /// its largest would be.
    #[track_caller]
    pub fn rand(&self, shape: impl IntoShape) -> Tensor {
        self.rand_of(shape, default_float())
    }
    /// Uniform u32 words: all bits random.
    #[track_caller]
    pub fn random_bits(&self, shape: impl IntoShape) -> Tensor {
        let shape = shape.into_shape();
        self.drawn("random_bits", &shape, Scalar::F32, |key, words| {
            Ok(word(key, &Expr::from(places(&shape)), words).reshape(&shape))
        })
    }
    /// Uniform floats of type f16, bf16, f32 or f64 in [0, 1).
    #[track_caller]
    pub fn rand_of(&self, shape: impl IntoShape, dtype: Scalar) -> Tensor {
        let shape = shape.into_shape();
        self.drawn("rand", &shape, dtype, |key, words| Ok(uniform(key, &shape, words, dtype)))
    }
    /// Normal floats of mean 0 and deviation 1 (Box-Muller, in f32).
    #[track_caller]
    pub fn randn(&self, shape: impl IntoShape) -> Tensor {
        self.gauss("randn", &shape.into_shape(), |x| x)
    }
    /// A function of [`Generator::randn`].
    #[track_caller]
    fn gauss(&self, op: &'static str, shape: &[Dim], of: impl FnOnce(Expr) -> Expr) -> Tensor {
        let pair = [&[Dim::Int(2)], shape].concat();
        self.drawn(op, &pair, Scalar::F32, |key, words| {
            Ok(of(box_muller(&uniform(key, &pair, words, Scalar::F32), shape)))
        })
    }
    /// As [`Generator::randn`] or [`Generator::rand`], over several devices, of which each computes its part.
    #[track_caller]
    fn drawn_over(&self, op: &'static str, shape: &[Dim], normal: bool, over: &Over) -> Tensor {
        let pair = if normal { vec![Dim::Int(2)] } else { Vec::new() };
        let (all, dtype) = ([&pair, shape].concat(), if normal { Scalar::F32 } else { default_float() });
        let words = match word_count(&all, dtype) {
            Ok(words) => words,
            Err(problem) => return lift(op, [], |[]| Err(problem)),
        };
        let key = self.advance(words);
        build(op, [key.node()], |[key]| {
            let places = graph::reshape(&places(&all), &all);
            shard::of_parts(&over.devices, over.axis, |device, i, n| {
                let own = match over.axis {
                    Some(k) => shard::slice(&places, pair.len() + k, i, n)?,
                    None => places.clone(),
                };
                let flat = Expr::from(graph::reshape(&own, &[crate::uop::numel(own.shape())]));
                let drawn = uniform_at(&Expr::from(shard::on(key, device)), &flat, words, dtype).reshape(own.shape());
                let made = if normal { box_muller(&drawn, &own.shape()[1..]) } else { drawn };
                made.contiguous().node().map_err(|inner| inner.problem.clone())
            })
        })
    }
    /// Normal floats of this mean and deviation.
    #[track_caller]
    pub fn normal(&self, shape: impl IntoShape, mean: f64, std: f64) -> Tensor {
        self.gauss("normal", &shape.into_shape(), |x| x.mul(std).add(mean))
    }
    /// Uniform floats in [low, high).
    #[track_caller]
    pub fn uniform(&self, shape: impl IntoShape, low: f64, high: f64) -> Tensor {
        let (shape, dtype) = (shape.into_shape(), default_float());
        self.drawn("uniform", &shape, dtype, |key, words| {
            Ok(uniform(key, &shape, words, dtype).mul(high - low).add(low))
        })
    }
    /// Uniform i32 in low..high. More than 2^23 of them are drawn from f64, since an f32 has no more different values
    /// in [0, 1).
    #[track_caller]
    pub fn randint(&self, shape: impl IntoShape, low: i32, high: i32) -> Tensor {
        let span = i64::from(high) - i64::from(low);
        let (shape, dtype) = (shape.into_shape(), if span <= 1 << 23 { Scalar::F32 } else { Scalar::F64 });
        self.drawn("randint", &shape, dtype, |key, words| {
            if span < 1 {
                return Err(Problem::argument(format!("no integer lies in {low}..{high}")));
            }
            let t = super::index::position_type(span);
            let drawn = uniform(key, &shape, words, dtype);
            Ok(drawn.mul(span as f64).cast(t).add(i64::from(low)).cast(Scalar::I32))
        })
    }
    /// `count` numbers of classes (i32) drawn by these weights, (n,) → (count,) or (rows, n) → (rows, count): torch's
    /// `multinomial`. The weights are not negative and need no sum of 1; with `replacement` a class may be drawn again,
    /// without it at most once, and classes of weight 0 come last.
    #[track_caller]
    pub fn multinomial(&self, weights: &Tensor, count: usize, replacement: bool) -> Tensor {
        let shape = match weights.node() {
            Ok(u) => u.shape().to_vec(),
            Err(fault) => return Tensor::faulty(fault),
        };
        let classes = shape.last().cloned().unwrap_or(Dim::Int(0));
        let problem = match shape.len() {
            1 | 2 if classes.is(0) => Some("weights of no class".to_owned()),
            1 | 2
                if replacement || graph::dim_op(crate::uop::Op::Sub, &classes, &Dim::from(count)).uop().vmin() >= 0 =>
            {
                None
            }
            1 | 2 => Some(format!("{count} different ones of {classes} classes")),
            rank => Some(format!("weights of rank {rank}: one row, or rows of them")),
        };
        if let Some(text) = problem {
            return lift("multinomial", [weights.node()], |[_]| Err(Problem::argument(text)));
        }
        let rows = if shape.len() == 2 { shape[0].clone() } else { Dim::Int(1) };
        let by_sum = replacement || count == 1;
        let drawn = match by_sum {
            true => self.rand([Dim::from(count), rows.clone(), Dim::Int(1)]),
            false => self.rand([rows.clone(), classes.clone()]),
        };
        let made: Tensor = lift("multinomial", [weights.node(), drawn.node()], |[w, drawn]| {
            let w = w.reshape([rows, classes.clone()]).cast(Scalar::F32);
            if by_sum {
                let sums = w.cumsum(1);
                let whole = sums.narrow(1, graph::dim_op(crate::uop::Op::Sub, &classes, &Dim::Int(1)), 1i64);
                // (count, rows, classes): the class is the number of those whose running sum is not above the draw.
                let before = sums.div(&whole).le(&drawn);
                return Ok(before.cast(Scalar::I32).sum(2).permute([1, 0]));
            }
            // The first arrivals of processes of these rates (Efraimidis and Spirakis). 1 - u is never 0.
            let arrival = drawn.neg().add(1).log2().div(&w);
            let arrival = w.gt(0).where_(&arrival, f64::NEG_INFINITY);
            Ok(arrival.topk(count, 1, true).1)
        });
        if shape.len() == 2 { made } else { made.squeeze(0) }
    }
    /// 0..n in random order (i32): the rank of each of n random numbers, by n² comparisons.
    #[track_caller]
    pub fn randperm(&self, n: usize) -> Tensor {
        let drawn = self.rand(n);
        lift("randperm", [drawn.node()], |[x]| {
            let (a, b) = (x.unsqueeze(1), x.unsqueeze(0));
            let i = Expr::from(UOp::iota(Dim::from(n).uop()));
            let before = b.lt(&a).bitor(&b.eq(&a).bitand(&i.unsqueeze(0).lt(&i.unsqueeze(1))));
            Ok(before.sum(1))
        })
    }
}

/// u32 words that a draw of this shape needs; of a symbolic one as many as its largest, of which the first are used.
fn word_count(shape: &[Dim], dtype: Scalar) -> Result<u32, Problem> {
    if !matches!(dtype, Scalar::F16 | Scalar::BF16 | Scalar::F32 | Scalar::F64) {
        return Err(Problem::dtype(format!("no random numbers of type {dtype}")));
    }
    let largest: Vec<Dim> = shape.iter().map(|d| Dim::Int(d.max())).collect();
    super::movement::check_sizes(shape)?;
    let n = known(&largest)?;
    let words = n.checked_mul(dtype.size_bytes()).map(|bytes| bytes.div_ceil(4));
    let fits = words.and_then(|w| u32::try_from(w).ok());
    fits.ok_or_else(|| Problem::argument(format!("{n} numbers in one draw; at most {} words", u32::MAX)))
}

fn wide(low: &Expr, high: &Expr) -> Expr {
    high.cast(Scalar::U64).shl(32).bitor(&low.cast(Scalar::U64))
}

/// Word `i` (u32 positions) of a draw of `words` words.
fn word(key: &Expr, i: &Expr, words: u32) -> Expr {
    let half = i64::from(words.div_ceil(2));
    let first = i.lt(half);
    let block = first.where_(i, &i.sub(half));
    let bits = wide(&block, &block.add(half)).threefry(key);
    first.where_(&bits, &bits.shr(32)).cast(Scalar::U32)
}

/// Where the numbers of a draw go: the names of several devices, and the axis of which each has its part.
struct Over {
    devices: Arc<str>,
    axis: Option<usize>,
}

/// The positions of a draw of this shape in one row, as u32.
fn places(shape: &[Dim]) -> UOp {
    graph::cast(&UOp::iota(crate::uop::numel(shape).uop()), Scalar::U32)
}

/// Normal numbers from pairs of uniform ones along the first axis.
fn box_muller(pair: &Expr, shape: &[Dim]) -> Expr {
    let part = |k: i64| pair.narrow(0, k, 1).squeeze(0).reshape(shape);
    let radius = part(1).neg().add(1).log().mul(-2).sqrt();
    part(0).mul(2.0 * PI).cos().mul(&radius).cast(default_float())
}

fn uniform(key: &Expr, shape: &[Dim], words: u32, dtype: Scalar) -> Expr {
    uniform_at(key, &Expr::from(places(shape)), words, dtype).reshape(shape)
}

/// The numbers at the positions `i` of a draw.
fn uniform_at(key: &Expr, i: &Expr, words: u32, dtype: Scalar) -> Expr {
    let (bits, mantissa, one) = match dtype {
        Scalar::F64 => {
            let (even, odd) = (i.mul(2), i.mul(2).add(1));
            (wide(&word(key, &even, words), &word(key, &odd, words)), 52, ConstVal::Int(1023 << 52))
        }
        Scalar::F32 => (word(key, i, words), 23, ConstVal::Int(127 << 23)),
        // Two halves a word, the low one first.
        half => {
            let word = word(key, &i.shr(1), words);
            let bits = word.shr(&i.bitand(1).mul(16)).cast(Scalar::U16);
            let f16 = half == Scalar::F16;
            (bits, if f16 { 10 } else { 7 }, ConstVal::Int(if f16 { 15 << 10 } else { 127 << 7 }))
        }
    };
    let t = bits.scalar();
    let one = Expr::from(UOp::constant(DType::of(t), one));
    let width = dtype.size_bytes() as i64 * 8;
    bits.shr(width - mantissa).bitor(&one).bitcast(dtype).sub(1)
}

/// The default streams, one a device, in order of first use, and their seed.
struct Streams {
    seed: u32,
    by_device: BTreeMap<Arc<str>, Generator>,
}
static STREAMS: Mutex<Streams> = Mutex::new(Streams { seed: 0, by_device: BTreeMap::new() });

fn default_stream() -> Generator {
    stream_of(default_device())
}

/// The default stream of a device; of several devices that of the first.
fn stream_of(device: Arc<str>) -> Generator {
    let device = canonical(device.split(shard::SEPARATOR).next().unwrap_or(&device));
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let (seed, number) = (streams.seed, streams.by_device.len() as u64);
    let word = match number {
        0 => FIRST_DEVICE,
        n => crate::uop::threefry2x32(n, u64::from(FIRST_DEVICE)) as u32,
    };
    streams.by_device.entry(device.clone()).or_insert_with(|| Generator::on(seed, word, device)).clone()
}

impl Tensor {
    /// Draws class numbers by weights (this Tensor): see [`Generator::multinomial`].
    #[track_caller]
    pub fn multinomial(&self, count: usize, replacement: bool) -> Tensor {
        stream_of(self.device()).multinomial(self, count, replacement)
    }
    /// Restarts the default streams from this seed (0 at first).
    pub fn manual_seed(seed: u32) {
        let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
        *streams = Streams { seed, by_device: BTreeMap::new() };
    }
    /// The stream that the functions below draw from.
    pub fn default_generator() -> Generator {
        default_stream()
    }
    /// Uniform f32 in [0, 1) of the default stream.
    #[track_caller]
    pub fn rand(shape: impl IntoShape) -> Tensor {
        default_stream().rand(shape)
    }
    /// Normal f32 of the default stream.
    #[track_caller]
    pub fn randn(shape: impl IntoShape) -> Tensor {
        default_stream().randn(shape)
    }
    /// Normal f32 of this mean and standard deviation, of the default stream.
    #[track_caller]
    pub fn normal(shape: impl IntoShape, mean: f64, std: f64) -> Tensor {
        default_stream().normal(shape, mean, std)
    }
    /// Uniform f32 in [low, high).
    #[track_caller]
    pub fn uniform(shape: impl IntoShape, low: f64, high: f64) -> Tensor {
        default_stream().uniform(shape, low, high)
    }
    /// Uniform i32 in low..high.
    #[track_caller]
    pub fn randint(shape: impl IntoShape, low: i32, high: i32) -> Tensor {
        default_stream().randint(shape, low, high)
    }
    /// The numbers 0..n in random order, i32, of the default stream.
    #[track_caller]
    pub fn randperm(n: usize) -> Tensor {
        default_stream().randperm(n)
    }
    /// Uniform u32 words of the default stream.
    #[track_caller]
    pub fn random_bits(shape: impl IntoShape) -> Tensor {
        default_stream().random_bits(shape)
    }
    /// Uniform within ± numel^-1/2.
    #[track_caller]
    pub fn scaled_uniform(shape: impl IntoShape) -> Tensor {
        let shape = shape.into_shape();
        let bound = 1.0 / sizes(&shape).iter().product::<f64>().sqrt();
        Tensor::uniform(shape, -bound, bound)
    }
    /// Uniform within ± (6 / (fan in + fan out))^1/2.
    #[track_caller]
    pub fn glorot_uniform(shape: impl IntoShape) -> Tensor {
        let shape = shape.into_shape();
        let (first, rest) = fans(&shape);
        let bound = (6.0 / (first + rest)).sqrt();
        Tensor::uniform(shape, -bound, bound)
    }
    /// Uniform within ± (6 / (1 + a²) / fan in)^1/2 for a leaky relu of slope a (0.01 in tinygrad).
    #[track_caller]
    pub fn kaiming_uniform(shape: impl IntoShape, a: f64) -> Tensor {
        let shape = shape.into_shape();
        let bound = (6.0 / (1.0 + a * a) / fans(&shape).1).sqrt();
        Tensor::uniform(shape, -bound, bound)
    }
    /// Normal with the deviation that fits [`Tensor::kaiming_uniform`].
    #[track_caller]
    pub fn kaiming_normal(shape: impl IntoShape, a: f64) -> Tensor {
        let shape = shape.into_shape();
        let std = (2.0 / (1.0 + a * a) / fans(&shape).1).sqrt();
        Tensor::normal(shape, 0.0, std)
    }
    /// Uniform f32 of the shape of `self`, on its device. Over several devices the numbers are those that the first of
    /// them would draw alone, and each device computes its part.
    #[track_caller]
    pub fn rand_like(&self) -> Tensor {
        self.drawn_like("rand_like", false)
    }
    /// Normal f32 of the shape of `self`, on its device; over several as [`Tensor::rand_like`].
    #[track_caller]
    pub fn randn_like(&self) -> Tensor {
        self.drawn_like("randn_like", true)
    }
    #[track_caller]
    fn drawn_like(&self, op: &'static str, normal: bool) -> Tensor {
        let u = match self.node() {
            Ok(u) => u,
            Err(fault) => return Tensor::faulty(fault),
        };
        let (devices, stream) = (self.device(), stream_of(self.device()));
        if !devices.contains(shard::SEPARATOR) {
            return if normal { stream.randn(u.shape()) } else { stream.rand(u.shape()) };
        }
        match shard::axis_of(&u) {
            Ok(axis) => stream.drawn_over(op, u.shape(), normal, &Over { devices, axis }),
            Err(problem) => build(op, [Ok(u)], |_| Err(problem)),
        }
    }
    /// Each element 0 with probability `p`, else divided by `1 - p`; only while training.
    #[track_caller]
    pub fn dropout(&self, p: f64, training: bool) -> Tensor {
        if !(0.0..=1.0).contains(&p) {
            return lift("dropout", [self.node()], |_| Err(Problem::argument(format!("{p} is not a probability"))));
        }
        match (training, p) {
            (false, _) | (true, 0.0) => self.clone(),
            (true, 1.0) => self.zeros_like(),
            _ => self.rand_like().ge(p).where_(self, 0).div(1.0 - p),
        }
    }
}

fn sizes(shape: &[Dim]) -> Vec<f64> {
    shape.iter().map(|d| d.max() as f64).collect()
}
/// First size, and the product of the others.
fn fans(shape: &[Dim]) -> (f64, f64) {
    let s = sizes(shape);
    let (first, rest) = s.split_first().unwrap_or((&1.0, &[]));
    (*first, rest.iter().product())
}
