//! Arguments that make no sense give faulty Tensors, never a panic.

use doorbell::tensor::prelude::*;
use doorbell::tensor::slice;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Repeatable dice.
struct Dice(u64);
impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 += 1;
        (doorbell::uop::threefry2x32(self.0, 77) >> 20) % n
    }
    fn axis(&mut self) -> i64 {
        match self.roll(60) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => 1 << 40,
            k => k as i64 % 11 - 5,
        }
    }
    fn size(&mut self) -> usize {
        [0, 1, 1, 2, 3, 4, 5][self.roll(7) as usize]
    }
    fn count(&mut self) -> usize {
        if self.roll(50) == 0 { usize::MAX } else { self.size() }
    }
    fn tensor(&mut self) -> Tensor {
        let shape: Vec<usize> = (0..self.roll(5)).map(|_| self.size()).collect();
        let types = [Scalar::F32, Scalar::F32, Scalar::F16, Scalar::I32, Scalar::U8, Scalar::Bool, Scalar::F64];
        let types = types[self.roll(7) as usize];
        Tensor::empty(shape, types)
    }
    fn pairs(&mut self) -> Vec<(i64, i64)> {
        (0..self.roll(5)).map(|_| (self.axis(), self.axis())).collect()
    }
    fn index(&mut self) -> Vec<Index> {
        (0..self.roll(5))
            .map(|_| match self.roll(7) {
                0 => Index::NewAxis,
                1 => Index::Ellipsis,
                2 => Index::At(Dim::Int(self.axis())),
                3 => Index::from(&self.tensor()),
                4 => Index::ALL,
                5 => Index::from(vec![self.axis(), self.axis()]),
                _ => slice(self.axis(), Some(self.axis()).filter(|a| *a > -4), self.axis()),
            })
            .collect()
    }
}

type Made = Vec<Tensor>;

fn movement(d: &mut Dice, x: &Tensor, y: &Tensor) -> Made {
    let (a, b, n) = (d.axis(), d.axis(), d.count());
    let modes = [PadMode::Reflect, PadMode::Replicate, PadMode::Circular];
    let mode = modes[d.roll(3) as usize];
    use ScatterReduce::*;
    let how = [Sum, Prod, Mean, Amax, Amin];
    vec![
        x.reshape([d.axis(), d.axis()]),
        x.expand([d.axis(), d.axis(), d.axis()]),
        x.permute([a, b]),
        x.transpose(a, b),
        x.t(),
        x.flip([a, b]),
        x.pad(&d.pairs()),
        x.pad_value(&d.pairs(), f64::NAN),
        x.pad_mode(&d.pairs(), mode),
        x.pad(&[d.axis(), d.axis(), d.axis(), d.axis()]),
        x.pad_to([d.axis(), d.axis()]),
        x.shrink_to([d.axis(), d.axis()]),
        x.shrink(&d.pairs()),
        x.narrow(a, d.axis(), d.axis()),
        x.squeeze(a),
        x.unsqueeze(a),
        x.flatten(a, b),
        x.unflatten(a, [d.axis(), d.axis()]),
        Tensor::cat(&[x, y], a),
        Tensor::cat(&[], a),
        Tensor::stack(&[x, y, x], a),
        x.repeat(&[n, d.size(), d.size()]),
        x.repeat_interleave(n, a),
        x.roll(b, a),
        x.unfold(a, n, d.size()),
        x.diag(),
        x.diagonal(d.axis(), a, b),
        x.gather(a, y),
        x.scatter(a, y, x),
        x.scatter(a, y, 2),
        x.scatter_reduce(a, y, x, how[d.roll(5) as usize], d.roll(2) == 0),
        x.sort(a, true).0,
        x.argsort(a, false),
        x.topk(n, a, d.roll(2) == 0).0,
        x.searchsorted(y, true),
        x.masked_select_static(y, d.size(), a),
        x.nonzero_static(d.size(), b),
        x.unique_static(d.size(), a).1,
        x.argmax(()),
        x.argmin_keep(a),
        x.cummin(a).1,
        x.logcumsumexp(a),
        x.qr().1,
        x.svd(d.roll(2) == 0).0,
        x.newton_schulz(2, &[1.5, -0.5], 1e-7),
        x.normalize(d.axis() as f64, a, 1e-12),
        x.multinomial(n, d.roll(2) == 0),
        x.keccak(Keccak::Shake128),
        x.get(d.index()),
        x.clone().set(d.index(), y).clone(),
        x.clone().assign(y).clone(),
        x.split(&[n, d.size()], a).remove(0),
        x.chunk(n, a).remove(0),
        Tensor::meshgrid(&[x, y]).remove(1),
        Tensor::arange_step(a as f64, b as f64, d.axis() as f64),
        x.to("CPU:1"),
        x.bitcast(Scalar::I32),
    ]
}

fn arithmetic(d: &mut Dice, x: &Tensor, y: &Tensor) -> Made {
    let a = d.axis();
    let two: [fn(&Tensor, &Tensor) -> Tensor; 22] = [
        |x, y| x + y,
        |x, y| x - y,
        |x, y| x * y,
        |x, y| x / y,
        |x, y| x % y,
        |x, y| x.fmod(y),
        |x, y| x.div_floor(y),
        |x, y| x.div_trunc(y),
        |x, y| x.pow(y),
        |x, y| x.maximum(y),
        |x, y| x.minimum(y),
        |x, y| x & y,
        |x, y| x << y,
        |x, y| x.le(y),
        |x, y| x.eq(y),
        |x, y| x.where_(y, x),
        |x, y| x.logaddexp(y),
        |x, y| x.copysign(y),
        |x, y| x.is_close(y, 1.0, 1.0),
        |x, y| x.threefry(y),
        |x, y| x.logical_or(y),
        |x, y| x.lerp(y, 0.5),
    ];
    let one: [fn(&Tensor) -> Tensor; 16] = [
        |x| -x,
        |x| !x,
        Tensor::round,
        Tensor::sign,
        Tensor::abs,
        Tensor::exp,
        Tensor::cos,
        Tensor::erf,
        Tensor::sigmoid,
        Tensor::gelu,
        Tensor::softplus,
        Tensor::relu,
        Tensor::is_finite,
        Tensor::sqrt,
        Tensor::atan,
        |x| x.elu(1.0),
    ];
    let mut made: Made = two.iter().map(|f| f(x, y)).chain(one.iter().map(|f| f(x))).collect();
    made.extend([x.pow(a), x.clamp(a, 2.5), x.dropout(a as f64, true), x.one_hot(d.size())]);
    made
}

fn reductions(d: &mut Dice, x: &Tensor, y: &Tensor) -> Made {
    let (a, b) = (d.axis(), d.axis());
    let square = Pool { ceil: d.roll(2) == 1, count_padding: d.roll(2) == 1, ..Pool::square(d.count()) };
    let pool = square.padded([(d.axis(), 0), (0, d.axis())]).strided([d.size(), 1]);
    let conv =
        Conv::padded([(1, d.axis()), (d.axis(), 1)]).grouped(d.count()).strided([d.size(), 1]).dilated([1, d.count()]);
    let transposed = Conv { output_padding: d.count().into(), ..conv };
    let size = [d.count(), d.size()];
    let modes =
        [ResizeMode::Nearest, ResizeMode::NearestExact, ResizeMode::Linear, ResizeMode::Bicubic, ResizeMode::Area];
    let mode = modes[d.roll(5) as usize];
    let resize = Resize { align_corners: d.roll(3) == 0, ..Resize::by(d.axis() as f64 * 0.7, mode) };
    vec![
        x.sum([a, b]),
        x.prod(a),
        x.max([a, b]),
        x.min(()),
        x.mean(a),
        x.var([a, b], 1),
        x.std((), 0),
        x.any(a),
        x.all(()),
        x.argmax(a),
        x.argmin(a),
        x.softmax(a),
        x.log_softmax(a),
        x.logsumexp([a, b]),
        x.cumsum(a),
        x.cummax(a).0,
        x.matmul(y),
        x.linear(y, Some(x)),
        x.conv2d(y, Some(x), conv),
        x.max_pool2d(pool),
        x.avg_pool2d(pool),
        x.conv(y, Some(x), Conv::same().dilated(d.count())),
        x.conv1d(y, None, Conv::padded(d.axis()).strided(d.count())),
        x.conv_transpose(y, None, Conv::padded(d.axis()).strided(d.count()).dilated(d.count())),
        x.conv_transpose2d(y, Some(x), transposed),
        x.max_pool(square),
        x.avg_pool(Pool::window(d.count()).padded(d.axis()).ceiled().uncounted()),
        x.max_pool2d_with_indices(pool).1,
        x.adaptive_avg_pool([d.count(), d.size()]),
        x.adaptive_max_pool2d(d.count()),
        x.interpolate(resize),
        x.interpolate(Resize::to([d.count(), d.size()], mode)),
        x.max_unpool(&x.cast(Scalar::I32), square, None),
        x.max_unpool2d(&y.cast(Scalar::I32), pool, Some(&size)),
        Tensor::einsum("ij,jk->ik", &[x, y]),
        Tensor::einsum("...i,...i", &[x, y]),
        x.layernorm([a, b], 1e-5),
        x.rmsnorm(a, 1e-5),
        x.batchnorm(Some(y), None, y, y),
        x.tril(a),
        x.triu(b),
        x.attention(y, x, Some(y), true),
        x.sparse_categorical_crossentropy_with(y, CrossEntropy::new().ignore(a).smoothing(0.1)),
        x.cross_entropy_with(y, CrossEntropy::new().smoothing(0.1)),
        x.nll_loss(y),
        x.binary_crossentropy_logits(y),
    ]
}

fn named(d: &mut Dice, x: &Tensor, y: &Tensor) -> Made {
    let (a, b, n, m) = (d.axis(), d.axis(), d.count(), d.size());
    let types = Scalar::STORABLE;
    let t = types[d.roll(types.len() as u64) as usize];
    let patterns =
        ["a b -> b a", "(a b) c -> a (b c)", "... a -> a ...", "a -> a a", "(a", "a 2 -> a", "a b -> a", "1 -> "];
    let pattern = patterns[d.roll(patterns.len() as u64) as usize];
    let (var, mean) = x.var_mean([a, b], 1);
    let mut made = vec![
        x.bitcast(t),
        x.clip(y, a),
        x.clamp_min(y),
        x.clamp_max(b),
        x.hardtanh(a as f64, b as f64),
        x.isclose(y, Close::new().equal_nan()),
        x.logical_xor(y),
        x.rearrange(pattern, &[("a", n)]),
        x.rearrange(pattern, &[]),
        x.movedim(a, b),
        x.T(),
        x.sum_as(a, t),
        x.prod_as([a, b], t),
        x.count_nonzero(0..m),
        x.softmin(a),
        var,
        mean,
        Tensor::usum(&[x, y]),
        Tensor::alu(doorbell::uop::Op::Where, &[x, y]),
        Tensor::alu(doorbell::uop::Op::Reduce, &[x]),
        Tensor::on("CPU").dtype(t).full([m, 2], a),
    ];
    made.extend(x.unbind(a).into_iter().take(3));
    made.extend(x.split(n, a).into_iter().take(3));
    made.extend(Tensor::meshgrid_xy(&[x, y]));
    made
}

fn losses(d: &mut Dice, x: &Tensor, y: &Tensor) -> Made {
    let how = [Reduce::Mean, Reduce::Sum, Reduce::None][d.roll(3) as usize];
    vec![
        x.mse_loss_with(y, how),
        x.l1_loss_with(x, how),
        x.smooth_l1_loss_with(x, d.axis() as f64, how),
        x.huber_loss_with(y, 1.0, how),
        x.kl_div_with(x, KlDiv::new().batch_mean()),
        x.cross_entropy_with(x, CrossEntropy::new().weight(y).reduction(how)),
        x.nll_loss_with(y, Nll::new().weight(x).reduction(how).ignore(d.axis())),
        x.binary_crossentropy_with(x, BinaryCrossEntropy::new().weight(y).reduction(how)),
        x.binary_crossentropy_logits_with(x, BinaryLogits::new().pos_weight(y).reduction(how)),
    ]
}

#[test]
fn no_combination_of_arguments_panics() {
    let mut d = Dice(0);
    let mut fine = 0;
    for round in 0..400 {
        let (x, y) = (d.tensor(), d.tensor());
        let start = d.0;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let mut made = movement(&mut d, &x, &y);
            made.extend(arithmetic(&mut d, &x, &y));
            made.extend(reductions(&mut d, &x, &y));
            made.extend(named(&mut d, &x, &y));
            made.extend(losses(&mut d, &x, &y));
            for t in &made {
                if let (Ok(s), Ok(dtype)) = (t.shape(), t.dtype()) {
                    // A float result has a gradient, or an error with the reason.
                    let loss = t.mul(1.0).sum(());
                    let _ = (loss.gradient(&[&x])[0].shape(), s, dtype);
                }
            }
            made
        }));
        let made = made.unwrap_or_else(|_| panic!("round {round}, dice {start}: {x:?} {y:?}"));
        for t in made.iter().filter(|t| t.shape().is_err()) {
            let error = t.shape().unwrap_err();
            assert!(error.at.file().ends_with("mistakes.rs"), "{error}");
        }
        fine += made.iter().filter(|t| t.shape().is_ok()).count();
    }
    assert!(fine > 3000, "{fine}");
}
