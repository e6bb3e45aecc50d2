//! The cases of the table that are written in Tensors: convolutions, norms, gradients, optimisers, indexing,
//! assignment. Small ones are computed and compared with the reference; large ones are only planned.

use crate::counts::{Case, case};
use crate::graphs::{count, plan};
use doorbell::nn::optim::{Adam, Optimizer, Sgd};
use doorbell::nn::{BatchNorm, Conv2d, Linear, Module, Parameters};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{Conv, Generator};
use doorbell::uop::{BufferRef, DType, UOp};

/// A realised f32 Tensor.
fn input(shape: &[i64]) -> Tensor {
    memory(DType::F32, shape)
}

fn memory(dtype: DType, shape: &[i64]) -> Tensor {
    let n: i64 = shape.iter().product();
    Tensor::from(UOp::buffer(dtype, BufferRef::new(n as usize, "CPU".into()))).reshape(shape)
}

fn nodes(roots: &[Tensor]) -> Vec<UOp> {
    roots.iter().map(|t| t.uop().unwrap()).collect()
}

/// Computed and compared with the reference.
fn valued(name: &'static str, n: usize, goal: usize, roots: &[Tensor]) -> Case {
    case(name, n, goal, &nodes(roots))
}

/// Planned only: too large for the interpreter, or it draws random numbers.
fn planned(name: &'static str, n: usize, goal: usize, roots: &[Tensor]) -> Case {
    Case { name, ours: plan(&nodes(roots)).kernel_count(), n, goal }
}

/// Parameters become memory, as after a first realize. A module that does not say which of them are trained trains all.
fn settled(modules: &[&dyn Module]) -> Parameters {
    let trained = |m: &&dyn Module| {
        let own = m.tensors();
        let says = own.iter().any(Tensor::wants_grad);
        own.into_iter().map(move |p| if says { p } else { p.requires_grad() })
    };
    let params: Vec<Tensor> = modules.iter().flat_map(trained).collect();
    for p in &params {
        let shape: Vec<i64> = p.shape().unwrap().iter().map(|d| d.as_int().unwrap()).collect();
        p.replace(&input(&shape));
    }
    Parameters::sorted(params)
}

pub fn cases() -> Vec<Case> {
    let all = [convolutions(), windows(), norms(), gradients(), sums(), selections(), stores(), descents(), adams()];
    all.into_iter().flatten().collect()
}

fn conv(i: usize, o: usize, k: usize) -> Conv2d {
    Conv2d::new(i, o, k, Conv::default())
}

fn convolutions() -> Vec<Case> {
    let (x, w1, w2) = (input(&[1, 8, 16, 16]), input(&[8, 8, 3, 3]), input(&[8, 8, 1, 1]));
    let chained = x.conv2d(&w1, None, Conv::default()).conv2d(&w2, None, Conv::default());
    let (img, c) = (input(&[1, 3, 8, 8]), conv(3, 32, 3));
    settled(&[&c]);
    let bn = BatchNorm::new(32);
    settled(&[&bn]);
    let same = Conv::padded(1);
    let (c1, c2) = (Conv2d::new(64, 64, 3, same).without_bias(), Conv2d::new(64, 64, 3, same).without_bias());
    let (b1, b2) = (BatchNorm::new(64), BatchNorm::new(64));
    settled(&[&c1, &c2, &b1, &b2]);
    for b in [&b1, &b2, &bn] {
        for t in b.buffers() {
            t.replace(&input(&[t.shape().unwrap()[0].as_int().unwrap()]));
        }
    }
    let block = input(&[1, 64, 32, 32]);
    let inner = b1.forward(&c1.forward(&block), false).relu();
    let out = b2.forward(&c2.forward(&inner), false).add(&block).relu();
    vec![
        valued("38 conv, batch norm, relu: evaluation", 1, 0, &[bn.forward(&c.forward(&img), false).relu()]),
        valued("38 conv, batch norm, relu: training", 4, 0, &[bn.forward(&c.forward(&img), true).relu()]),
        planned("50 residual block", 2, 0, &[out]),
        valued("51 conv of conv", 2, 0, &[chained]),
        valued("42 three products and a residual", 4, 0, &[textures(true)]),
        valued("42 two products", 3, 0, &[textures(false)]),
    ]
}

/// Not of the table: each is held to what it needs today.
fn windows() -> Vec<Case> {
    let (x, w) = (input(&[1, 4, 8, 9]), input(&[4, 3, 4, 4]));
    let resized = |mode| x.interpolate(Resize::to([12, 7], mode));
    let (largest, index) = x.max_pool2d_with_indices(Pool::square(3).strided(2).padded(1));
    let twice = x.interpolate(Resize::by(2.0, ResizeMode::Nearest));
    let up = x.conv_transpose2d(&w, None, Conv::padded(1).strided(2));
    let loss = resized(ResizeMode::Bilinear).square().sum(());
    let twice_loss = x.interpolate(Resize::by(2.0, ResizeMode::Bilinear)).square().sum(());
    vec![
        valued("transposed convolution, stride 2", 1, 0, &[up.relu()]),
        valued("bilinear: one an axis", 2, 0, &[resized(ResizeMode::Bilinear)]),
        valued("bilinear by whole factors", 1, 0, &[x.interpolate(Resize::by([2.0, 3.0], ResizeMode::Bilinear))]),
        valued("bicubic: one an axis", 2, 0, &[resized(ResizeMode::Bicubic)]),
        valued("bilinear, gradient", 4, 0, &loss.gradient(&[&x])),
        valued("bilinear by whole factors, gradient", 4, 0, &twice_loss.gradient(&[&x])),
        valued("nearest by a whole factor, and what follows", 1, 0, &[twice.relu()]),
        valued("means of uneven windows: one an axis", 2, 0, &[x.adaptive_avg_pool2d([3, 4])]),
        valued("largest elements and their places", 1, 0, &[largest, index]),
        valued("means of windows beyond the end", 1, 0, &[x.avg_pool2d(Pool::square(3).strided(2).ceiled())]),
    ]
}

/// The chain that an image pipeline makes of 1x1 convolutions: a copy, then a sum over it, with a residual in the
/// middle.
fn textures(three: bool) -> Tensor {
    let (b1, b2) = (input(&[16, 1]), input(&[16, 1]));
    let p = |x: &Tensor| {
        let turned = x.permute([1, 0]).contiguous().reshape([32, 16, 1]).expand([32, 16, 16]);
        turned.sum(2).permute([1, 0])
    };
    let base = p(&input(&[16, 32])).add(&b1);
    if three { p(&p(&base).add(&b2).add(&base)) } else { p(&base) }
}

fn norms() -> Vec<Case> {
    let x = input(&[2, 16, 8, 8]).requires_grad();
    let bn = BatchNorm::new(16);
    let params = settled(&[&bn]);
    let forward = bn.forward(&x, true).contiguous_backward().relu().contiguous();
    let targets: Vec<&Tensor> = [&x].into_iter().chain(&params[..2]).collect();
    let mut roots = forward.sum(()).gradient(&targets);
    roots.push(forward);
    let rows = input(&[4, 12, 16, 16]).requires_grad();
    let soft = rows.softmax(-1).sum(()).gradient(&[&rows]);
    let log = rows.logsumexp(-1).sum(()).gradient(&[&rows]);
    vec![
        valued("40 batch norm backward", 10, 0, &roots),
        planned("44 softmax backward", 4, 0, &soft),
        planned("44 logsumexp backward", 3, 0, &log),
    ]
}

fn gradients() -> Vec<Case> {
    let (x, y) = (input(&[3, 3]).requires_grad(), input(&[2, 3]));
    let matmul = y.matmul(&x).sum(()).gradient(&[&x]);
    let (img, w) = (input(&[2, 3, 64, 64]).requires_grad(), input(&[16, 3, 3, 3]).requires_grad());
    let value = img.conv2d(&w, None, Conv::default()).relu().mean(());
    let mut all = value.gradient(&[&img, &w]);
    all.push(value);
    vec![valued("6 gradient of a product", 1, 0, &matmul), planned("24 conv2d with both gradients", 4, 0, &all)]
}

fn sums() -> Vec<Case> {
    let (a, b) = (input(&[16, 16]), input(&[16, 16]));
    let c = a.sum(()).add(2.0);
    let d = a.sum(()).mul(2.0);
    let e = c.mul(&d);
    let cube = input(&[4, 4, 4]);
    let r = cube.sum(0).add(6.0);
    let s = cube.sum(2).add(&input(&[4, 4]));
    let t = s.t().mul(4.0);
    let x = input(&[4, 4]);
    let shifted = x.add(&Tensor::arange(16).reshape([4, 4])).sum(());
    let much = input(&[1 << 18]);
    let (var, mean) = input(&[512, 1024]).var_mean((), 1);
    vec![
        valued("std of everything", 2, 0, &[much.std((), 1)]),
        valued("var and mean of everything", 2, 0, &[var, mean]),
        valued("22 partial_fuse1", 2, 1, &[c.clone(), a.sum(()).sub(&b.sum(())).mul(4.0)]),
        valued("22 partial_fuse3", 4, 1, &[c.clone(), d.clone(), e.clone(), b.sum(()).sub(&e)]),
        valued("22 partial_fuse4", 4, 1, &[c, d.clone(), e.clone(), b.sub(&d).sum(()).sub(&e)]),
        valued("31 arange_fuse_grouped_children", 2, 1, &[shifted.add(2.0), shifted.add(3.0)]),
        valued("34 cummax of 1022", 3, 0, &[input(&[1022]).cummax(0).0]),
        valued("48 reduce_simple_chase", 3, 0, &[r.sum(0).mul(4.0), r.sum(1).mul(2.0)]),
        valued("48 push_permute_chase", 3, 0, &[t.clone(), s.mul(&t)]),
        valued("56 square by pow", 1, 0, &[x.pow(2.0)]),
    ]
}

fn selections() -> Vec<Case> {
    let x = input(&[5, 2]);
    let third = |t: &Tensor| x.add(&t.narrow(0, 2, 1)).sum(());
    let generator = Generator::new(7);
    let (drawn, normal) = (generator.rand([32]), Generator::new(7).randn([32]));
    let (uniform, odds) = (Generator::new(7).uniform([32], -1.0, 2.0), Generator::new(7).randint([32], 0, 9));
    let table = input(&[50, 8]);
    let tokens = memory(DType::I32, &[2, 6]);
    let far = input(&[32768, 4]);
    let (logits, classes) = (input(&[512, 10]), memory(DType::I32, &[1797]));
    let samples = memory(DType::I32, &[512]);
    let loss = logits.sparse_categorical_crossentropy(&classes.get(&samples));
    let qkv = || input(&[2, 128, 16]);
    let attended = qkv().attention(&qkv(), &qkv(), None, true);
    vec![
        valued("12 scaled dot product attention, causal", 4, 1, &[attended]),
        planned("26 rows of a long table", 3, 0, &[far.get(&memory(DType::I32, &[4]))]),
        planned("29 loss on gathered labels", 4, 0, &[loss]),
        valued("30 arange_index", 1, 0, &[third(&Tensor::arange(10))]),
        valued("30 arange_index of a copy", 2, 0, &[third(&Tensor::arange(10).contiguous())]),
        // With what advances the new generator's counter: one kernel that tinygrad's table leaves out.
        planned("33 rand, first use", 2, 0, &[drawn]),
        planned("33 randn, first use", 2, 0, &[normal]),
        planned("33 uniform, first use", 2, 0, &[uniform]),
        planned("33 randint, first use", 2, 0, &[odds]),
        valued("62 embedding lookup", 2, 1, &[table.get(&tokens)]),
    ]
}

fn stores() -> Vec<Case> {
    let (a, v) = (input(&[4]), input(&[4]));
    let (first, second) = (input(&[4]), Tensor::full([4], 2.0).contiguous());
    first.assign(&second);
    first.assign(&second);
    let p = Tensor::ones([3, 3]).contiguous();
    let divided = p.div(&p.sum_keep(1));
    let tiled = divided.narrow(0, 0, 1).squeeze(0).pad(&[(1, 0)]).repeat(&[2]);
    let whole = input(&[4]);
    whole.set(0..2, &Tensor::full([2], 1.0));
    let moved = a.narrow(0, 1, 2).assign(&v.narrow(0, 0, 2)).contiguous();
    vec![
        valued("52 pad and repeat of a quotient", 4, 3, &[tiled]),
        planned("53 the same assign twice", 2, 1, &[first]),
        planned("57 a constant set into memory", 1, 0, &[whole]),
        planned("58 shrink, assign, copy", 2, 0, &[moved]),
        planned("59 to the device it is on", 1, 0, &[v.to("CPU")]),
    ]
}

/// Kernels of a training step: gradients of the sum of the outputs, then the optimiser.
fn step(loss: &Tensor, opt: &mut dyn Optimizer) -> usize {
    opt.zero_grad();
    loss.backward().unwrap();
    plan(&nodes(&opt.schedule_step().unwrap())).kernel_count()
}

fn descents() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, n, goal, ours| cases.push(Case { name, ours, n, goal });
    let small = input(&[2, 3, 4, 4]);
    let c = conv(3, 32, 3);
    let mut opt = Sgd::new(&settled(&[&c]), 1e-3).unwrap();
    add("46 conv, SGD", 5, 3, step(&c.forward(&small).relu().sum(()), &mut opt));
    let (c1, c2) = (conv(3, 16, 3).without_bias(), conv(16, 32, 2).without_bias());
    let two = || c2.forward(&c1.forward(&small).relu()).relu().sum(());
    let params = settled(&[&c1, &c2]);
    add("46 two convs, SGD", 7, 0, step(&two(), &mut Sgd::new(&params, 1e-3).unwrap()));
    let params = settled(&[&c1, &c2]);
    let mut nesterov = Sgd::new(&params, 1e-3).unwrap().momentum(0.9).nesterov().weight_decay(0.1);
    add("46 two convs, nesterov and decay", 11, 0, step(&two(), &mut nesterov));
    let four = [conv(3, 4, 3), conv(4, 8, 3), conv(8, 16, 3), conv(16, 32, 3)].map(Conv2d::without_bias);
    let params = settled(&four.each_ref().map(|c| c as &dyn Module));
    let out = four.iter().fold(input(&[2, 3, 16, 16]), |x, c| c.forward(&x).relu());
    add("46 four convs, SGD", 15, 0, step(&out.sum(()), &mut Sgd::new(&params, 1e-3).unwrap()));
    let (c, bn) = (conv(3, 32, 3), BatchNorm::new(32));
    let params = settled(&[&c, &bn]);
    let out = bn.forward(&c.forward(&small), true).elu(1.0).sum(());
    add("39 conv, batch norm, elu, SGD", 15, 0, step(&out, &mut Sgd::new(&params, 1e-3).unwrap()));
    let out = bn.forward(&c.forward(&small), true).elu(1.0).sum(());
    add("39 conv, batch norm, elu, Adam", 29, 0, step(&out, &mut Adam::new(&params, 1e-3).unwrap()));
    cases
}

fn adams() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, n, ours| cases.push(Case { name, ours, n, goal: 0 });
    let l = Linear::new(32, 128);
    let params = settled(&[&l]);
    add(
        "45 linear, Adam",
        13,
        step(&l.forward(&input(&[4, 64, 32])).relu().sum(()), &mut Adam::new(&params, 1e-4).unwrap()),
    );
    let small = input(&[2, 3, 4, 4]);
    let c = conv(3, 32, 3);
    let params = settled(&[&c]);
    add("45 conv, Adam", 13, step(&c.forward(&small).relu().sum(()), &mut Adam::new(&params, 1e-4).unwrap()));
    let (c1, c2) = (conv(3, 16, 3).without_bias(), conv(16, 32, 2).without_bias());
    let params = settled(&[&c1, &c2]);
    let out = c2.forward(&c1.forward(&small).relu()).relu().sum(());
    add("45 two convs, Adam", 15, step(&out, &mut Adam::new(&params, 1e-4).unwrap()));
    cases
}

#[test]
fn a_hundred_tensors_are_joined_by_kernels_that_read_sixteen_at_most() {
    let parts: Vec<Tensor> = (0..100).map(|_| input(&[2, 3])).collect();
    let whole = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0);
    // Seven groups, then these.
    assert_eq!(count(&nodes(&[whole])), 8);
    assert_eq!(count(&nodes(&[Tensor::stack(&parts.iter().take(16).collect::<Vec<_>>(), 1)])), 1);
}
