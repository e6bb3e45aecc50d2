//! `doorbell train`: a small convolutional network on real hand-written digits (embedded), or on MNIST's files.
//!
//! Two blocks of convolution, batch norm and relu, the second pooled, then one linear layer; AdamW with a one-cycle
//! learning rate; one recorded step per batch. Held-out rows are classified after each epoch; the state is also written
//! after each epoch, so that an interrupted run keeps its progress.

use super::curve::{self, Point};
use super::programs::{Function, Named};
use super::{CliError, Output};
use clap::{Args, ValueEnum};
use doorbell::engine::{Error, Jit, session};
use doorbell::nn::datasets::{self, Dataset};
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::nn::{BatchNorm, Conv2d, Linear, Module, state};
use doorbell::tensor::prelude::*;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct TrainArgs {
    /// Passes over the training rows
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    epochs: u32,
    /// Rows per step
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=4096))]
    batch: u32,
    /// Highest learning rate of the cycle
    #[arg(long, default_value_t = 0.01, value_parser = parse_lr, allow_negative_numbers = true)]
    lr: f64,
    /// Seed of the initial weights and of the order of rows
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Which digits are held out: every sixth row, or the last 297 (by other writers)
    #[arg(long, value_enum, default_value_t = Split::Sixth)]
    split: Split,
    /// Train on MNIST's IDX files (plain or gz) in this directory instead
    #[arg(long, value_name = "DIR")]
    mnist: Option<PathBuf>,
    /// Directory for digits.safetensors and digits.svg
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Split {
    Sixth,
    Writers,
}

fn parse_lr(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x > 0.0 => Ok(x),
        _ => Err("a learning rate is a number above 0".into()),
    }
}

/// The network; pictures are (n, 1, height, width), the result (n, 10) logits.
struct Net {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    /// Large pictures are also pooled after the first block.
    pool_first: bool,
    linear: Linear,
}
doorbell::module!(Net { conv1, norm1, conv2, norm2, linear; skip pool_first });

const WIDTH: usize = 32;

impl Net {
    fn new(height: usize, width: usize) -> Net {
        let pool_first = height.min(width) >= 16;
        let shrink = if pool_first { 4 } else { 2 };
        Net {
            conv1: Conv2d::new(1, WIDTH, 3, Conv::padded(1)).without_bias(),
            norm1: BatchNorm::new(WIDTH),
            conv2: Conv2d::new(WIDTH, WIDTH, 3, Conv::padded(1)).without_bias(),
            norm2: BatchNorm::new(WIDTH),
            pool_first,
            linear: Linear::new(WIDTH * (height / shrink) * (width / shrink), 10),
        }
    }
    fn forward(&self, x: &Tensor, training: bool) -> Tensor {
        let mut x = self.norm1.forward(&self.conv1.forward(x), training).relu();
        if self.pool_first {
            x = x.max_pool2d(Pool::square(2));
        }
        let x = self.norm2.forward(&self.conv2.forward(&x), training).relu().max_pool2d(Pool::square(2));
        self.linear.forward(&x.flatten(1, -1))
    }
}

/// One training step of the digits' network, forward, backward and optimiser, on a batch of 4 generated pictures: for
/// `dump`.
///
/// # Errors
/// The device's.
pub(crate) fn one_step() -> Result<(Function, Named), Error> {
    const ROWS: usize = 4;
    Tensor::manual_seed(0);
    let net = Net::new(8, 8);
    Tensor::realize_all(&net.tensors())?;
    let mut opt = Adam::decoupled(net.parameters(), 0.01, 0.01)?;
    let pixels: Vec<f32> = (0..ROWS * 64).map(|i| (i % 17) as f32 / 16.0).collect();
    let labels: Vec<i32> = (0..ROWS as i32).map(|i| i % 10).collect();
    let (x, y) = (Tensor::from_slice(&pixels, [ROWS, 1, 8, 8]), Tensor::from_slice(&labels, [ROWS]));
    let step: Function = Box::new(move |x| {
        opt.zero_grad();
        let loss = net.forward(&x["pixels"], true).sparse_categorical_crossentropy(&x["labels"]);
        loss.backward()?;
        loss.realize_with(&opt.schedule_step()?)?;
        Ok(Named::from([("loss", loss)]))
    });
    Ok((step, Named::from([("pixels", x), ("labels", y)])))
}

/// A shuffled order from a seed (splitmix64, Fisher-Yates).
struct Shuffle(u64);

impl Shuffle {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for k in (1..n).rev() {
            order.swap(k, (self.next() % (k as u64 + 1)) as usize);
        }
        order
    }
}

/// One-cycle schedule: rises from a tenth of `peak` over the first quarter, then falls as a cosine to nearly zero.
fn learning_rate(peak: f64, step: usize, steps: usize) -> f64 {
    let t = step as f64 / steps.max(1) as f64;
    if t < 0.25 {
        peak * (0.1 + 0.9 * t / 0.25)
    } else {
        peak * (0.002 + 0.998 * 0.5 * (1.0 + (std::f64::consts::PI * (t - 0.25) / 0.75).cos()))
    }
}

pub(crate) fn run(args: &TrainArgs, output: Output) -> Result<(), CliError> {
    let could_not = |e: datasets::DataError| CliError::CouldNotRun(e.to_string());
    let (name, (train, test)) = match (&args.mnist, args.split) {
        (Some(dir), _) => ("mnist", datasets::mnist(dir).map_err(could_not)?),
        (None, Split::Sixth) => ("digits", datasets::digits_split(datasets::Split::Sixth).map_err(could_not)?),
        (None, Split::Writers) => ("digits", datasets::digits_split(datasets::Split::Writers).map_err(could_not)?),
    };
    usable(&train, &test).map_err(|why| CliError::CouldNotRun(format!("{name}: {why}")))?;
    if train.len() < args.batch as usize {
        return Err(CliError::Usage(format!("--batch {} is more than the {} training rows", args.batch, train.len())));
    }
    std::fs::create_dir_all(&args.out).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", args.out.display())))?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // A second handler in one process (tests) is refused; the first one remains.
    let _ = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst));
    let began = Instant::now();
    let mut run = Run::new(args, name, train, test)?;
    run.epochs(&interrupted, output)?;
    run.report(began, interrupted.load(Ordering::SeqCst), output)
}

/// Checks that the network can use the pictures.
fn usable(train: &Dataset, test: &Dataset) -> Result<(), String> {
    let size = |d: &Dataset| format!("{} x {}", d.height, d.width);
    if test.is_empty() {
        return Err("there are no held-out rows".into());
    }
    if size(train) != size(test) {
        return Err(format!("pictures of {} to train on, of {} held out", size(train), size(test)));
    }
    match train.height.min(train.width) {
        0..=1 => Err(format!("pictures of {} are too small", size(train))),
        _ => Ok(()),
    }
}

struct Run<'a> {
    args: &'a TrainArgs,
    name: &'static str,
    train: Dataset,
    pixels: Vec<f32>,
    test: Dataset,
    net: Arc<Net>,
    points: Vec<Point>,
    step_ms: Vec<f64>,
    kernels_per_step: u64,
}

impl<'a> Run<'a> {
    fn new(args: &'a TrainArgs, name: &'static str, train: Dataset, test: Dataset) -> Result<Run<'a>, CliError> {
        Tensor::manual_seed(args.seed);
        let net = Arc::new(Net::new(train.height, train.width));
        Tensor::realize_all(&net.tensors())?;
        let pixels = train.floats();
        Ok(Run { args, name, train, pixels, test, net, points: Vec::new(), step_ms: Vec::new(), kernels_per_step: 0 })
    }

    fn path(&self, ext: &str) -> PathBuf {
        self.args.out.join(format!("{}.{ext}", self.name))
    }

    fn epochs(&mut self, interrupted: &AtomicBool, output: Output) -> Result<(), CliError> {
        let mut opt = Adam::decoupled(self.net.parameters(), self.args.lr, 0.01).map_err(Error::from)?;
        let lr = opt.lr().clone();
        let net = self.net.clone();
        let mut step = Jit::new(move |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            opt.zero_grad();
            let loss = net.forward(&x[0], true).sparse_categorical_crossentropy(&x[1]);
            loss.backward()?;
            let mut out = vec![loss];
            out.extend(opt.schedule_step()?);
            Ok(out)
        });
        let net = self.net.clone();
        let mut classify = Jit::new(move |x: &[Tensor]| vec![net.forward(&x[0], false)]);
        let batches = self.train.len() / self.args.batch as usize;
        let total = batches * self.args.epochs as usize;
        let bar = progress(total as u64);
        let mut shuffle = Shuffle(u64::from(self.args.seed));
        for epoch in 0..self.args.epochs as usize {
            let order = shuffle.order(self.train.len());
            let mut losses = 0.0;
            for b in 0..batches {
                let rows = &order[b * self.args.batch as usize..(b + 1) * self.args.batch as usize];
                let at = Instant::now();
                lr.assign(&Tensor::new([learning_rate(self.args.lr, epoch * batches + b, total) as f32]));
                lr.realize()?;
                let (x, y) = self.batch(rows);
                let out = step.call(&[x, y])?;
                let loss = out[0].item()?;
                if !loss.is_finite() {
                    return Err(CliError::Failed(format!("the loss became {loss} in epoch {}", epoch + 1)));
                }
                losses += loss;
                self.step_ms.push(at.elapsed().as_secs_f64() * 1e3);
                bar.inc(1);
                if interrupted.load(Ordering::SeqCst) {
                    break;
                }
            }
            let accuracy = self.accuracy(&mut classify)?;
            self.points.push(Point { loss: losses / batches.max(1) as f64, accuracy });
            bar.set_message(format!("loss {:.4} accuracy {:.2}%", losses / batches.max(1) as f64, 100.0 * accuracy));
            self.save()?;
            if interrupted.load(Ordering::SeqCst) {
                bar.abandon();
                output.say(&format!(
                    "interrupted in epoch {}; the weights are in {}",
                    epoch + 1,
                    self.path("safetensors").display()
                ));
                break;
            }
        }
        self.kernels_per_step = step.kernels().unwrap_or(0);
        bar.finish();
        Ok(())
    }

    fn batch(&self, rows: &[usize]) -> (Tensor, Tensor) {
        let size = self.train.height * self.train.width;
        let x: Vec<f32> = rows.iter().flat_map(|r| &self.pixels[r * size..(r + 1) * size]).copied().collect();
        let y: Vec<i32> = rows.iter().map(|r| i32::from(self.train.labels[*r])).collect();
        let shape = [rows.len(), 1, self.train.height, self.train.width];
        (Tensor::from_slice(&x, shape), Tensor::from_slice(&y, [rows.len()]))
    }

    /// Share of the held-out rows that are classified right.
    fn accuracy<F>(&self, classify: &mut Jit<F, [Tensor], Vec<Tensor>>) -> Result<f64, CliError>
    where
        F: FnMut(&[Tensor]) -> Vec<Tensor>,
    {
        const PART: usize = 1000;
        let size = self.test.height * self.test.width;
        let pixels = self.test.floats();
        let part = self.test.len().min(PART);
        let mut right = 0;
        for first in (0..self.test.len()).step_by(part.max(1)) {
            // The last part overlaps the previous one, so that all have the recorded shape.
            let from = first.min(self.test.len() - part);
            let x = Tensor::from_slice(
                &pixels[from * size..(from + part) * size],
                [part, 1, self.test.height, self.test.width],
            );
            let logits = classify.call(&[x])?[0].to_vec::<f32>()?;
            for (k, row) in logits.chunks_exact(10).enumerate().skip(first - from) {
                let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |b| b.0);
                right += usize::from(best == usize::from(self.test.labels[from + k]));
            }
        }
        Ok(right as f64 / self.test.len().max(1) as f64)
    }

    fn save(&self) -> Result<(), CliError> {
        let failed = |e: state::StateError| CliError::Failed(e.to_string());
        state::save(&self.net.state_dict(), &self.path("safetensors")).map_err(failed)?;
        let picture = curve::svg(&format!("{}, seed {}", self.name, self.args.seed), &self.points);
        state::write_atomically(&self.path("svg"), picture.as_bytes()).map_err(failed)
    }

    fn report(&mut self, began: Instant, interrupted: bool, output: Output) -> Result<(), CliError> {
        let s = session()?;
        let device = s.device(&s.options.device)?;
        let seconds = began.elapsed().as_secs_f64();
        let accuracy = self.points.last().map_or(0.0, |p| p.accuracy);
        let steps = self.step_ms.len();
        self.step_ms.sort_unstable_by(f64::total_cmp);
        let median = self.step_ms.get(steps / 2).copied().unwrap_or(0.0);
        output.say(&format!(
            "{}: {:.2} % of {} held-out rows correct after {} epochs, {steps} steps in {seconds:.2} s ({median:.2} ms per step, {} kernels) on {}",
            self.name,
            100.0 * accuracy,
            self.test.len(),
            self.points.len(),
            self.kernels_per_step,
            device.name,
        ));
        output.result(&serde_json::json!({
            "device": &*device.name,
            "arch": device.device.info().arch,
            "seconds": seconds,
            "epochs": self.points.len(),
            "steps": steps,
            "step_ms_median": median,
            "kernels_per_step": self.kernels_per_step,
            "test_accuracy": accuracy,
            "loss": self.points.last().map(|p| p.loss),
            "seed": self.args.seed,
            "interrupted": interrupted,
            "weights": self.path("safetensors"),
            "curve": self.path("svg"),
        }));
        if interrupted { Err(CliError::Reported) } else { Ok(()) }
    }
}

fn progress(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} steps {elapsed} {msg}");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: usize = 6;
    const ROWS: usize = 32;

    /// How the network lies on devices.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Way {
        /// Each has the whole network and its part of the rows.
        Data,
        /// Each has its part of the first convolution's filters and all rows.
        Tensor,
    }

    /// Places the state of the network, by its names.
    fn place(net: &Net, devices: &[&str], way: Way) {
        for (name, t) in net.state_dict() {
            let axis = match name.as_str() {
                _ if way == Way::Data => None,
                "norm1.num_batches_tracked" => None,
                "conv1.weight" => Some(0),
                "conv2.weight" => Some(1),
                name if name.starts_with("norm1.") => Some(0),
                _ => None,
            };
            t.shard_(devices, axis);
        }
    }

    /// Losses of the first steps of `doorbell train`, over `devices`.
    fn losses(devices: &[&str], way: Way, recorded: bool) -> Vec<f64> {
        let (train, _) = datasets::digits_split(datasets::Split::Sixth).unwrap();
        Tensor::manual_seed(0);
        let net = Net::new(train.height, train.width);
        Tensor::realize_all(&net.tensors()).unwrap();
        if devices.len() > 1 {
            place(&net, devices, way);
        }
        let mut opt = Adam::decoupled(net.parameters(), 0.01, 0.01).unwrap();
        let lr = opt.lr().clone();
        let mut step = Jit::new(|x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
            opt.zero_grad();
            let loss = net.forward(&x[0], true).sparse_categorical_crossentropy(&x[1]);
            loss.backward()?;
            let mut out = vec![loss];
            out.extend(opt.schedule_step()?);
            Ok(out)
        });
        let pixels = train.floats();
        let size = train.height * train.width;
        let mut shuffle = Shuffle(0);
        let order = shuffle.order(train.len());
        let mut all = Vec::new();
        for (k, rows) in order.chunks(ROWS).take(STEPS).enumerate() {
            let now = Tensor::new([learning_rate(0.01, k, 690) as f32]);
            lr.assign(&now.shard_like(&lr)).realize().unwrap();
            let x: Vec<f32> = rows.iter().flat_map(|r| &pixels[r * size..(r + 1) * size]).copied().collect();
            let y: Vec<i32> = rows.iter().map(|r| i32::from(train.labels[*r])).collect();
            let (mut x, mut y) =
                (Tensor::from_slice(&x, [ROWS, 1, train.height, train.width]), Tensor::from_slice(&y, [ROWS]));
            if devices.len() > 1 {
                let axis = if way == Way::Data { Some(0) } else { None };
                (x, y) = (x.shard(devices, axis), y.shard(devices, axis));
            }
            if !recorded {
                step.reset();
            }
            all.push(step.call(&[x, y]).unwrap_or_else(|e| panic!("{e}"))[0].item().unwrap());
        }
        assert_eq!(step.is_recorded(), recorded);
        all
    }

    #[test]
    fn the_digits_network_trains_over_several_devices_as_on_one() {
        let want = losses(&["CPU"], Way::Data, true);
        assert!(want[STEPS - 1] < want[0], "{want:?}");
        for devices in [&["CPU", "CPU:1"][..], &["CPU", "CPU:1", "CPU:2", "CPU:3"]] {
            for way in [Way::Data, Way::Tensor] {
                let got = losses(devices, way, true);
                let close = got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4);
                assert!(close, "{way:?} over {devices:?}: {got:?}, wanted {want:?}");
            }
        }
        let plain = losses(&["CPU", "CPU:1"], Way::Data, false);
        assert!(plain.iter().zip(&want).all(|(g, w)| (g - w).abs() < 1e-4), "unrecorded: {plain:?}, wanted {want:?}");
    }
}
