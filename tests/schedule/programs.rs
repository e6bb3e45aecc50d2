//! Whole training steps written in Tensors: kernel counts against tinygrad's, and what planning and a cache hit cost.

use doorbell::nn::optim::{Adam, Optimizer, Sgd};
use doorbell::nn::{BatchNorm, Conv2d, Linear, Module, Parameters};
use doorbell::schedule::{Schedule, ScheduleCache, ScheduleItem, schedule};
use doorbell::tensor::Conv;
use doorbell::tensor::prelude::*;
use doorbell::uop::{BufferRef, DType, UOp};
use std::time::Instant;

fn input(shape: &[i64]) -> Tensor {
    let n: i64 = shape.iter().product();
    let b = UOp::buffer(DType::F32, BufferRef::new(n as usize, "CPU".into()));
    Tensor::from(b).reshape(shape)
}
fn labels(n: usize) -> Tensor {
    Tensor::from(UOp::buffer(DType::I32, BufferRef::new(n, "CPU".into())))
}

/// Parameters become memory, as after a first realize.
fn settled(params: &[Tensor]) {
    for p in params {
        let shape: Vec<i64> = p.shape().unwrap().iter().map(|d| d.as_int().unwrap()).collect();
        p.replace(&input(&shape));
    }
}

fn kernels(roots: &[Tensor], name: &str) -> Schedule {
    let nodes: Vec<_> = roots.iter().map(|t| (t.uop().unwrap(), "CPU".into())).collect();
    let cache = ScheduleCache::default();
    let began = Instant::now();
    let s = schedule(&nodes, &cache).unwrap();
    let miss = began.elapsed();
    let began = Instant::now();
    let again = schedule(&nodes, &cache).unwrap();
    let hit = began.elapsed();
    assert_eq!(s.items.len(), again.items.len());
    println!("{name}: {} kernels, planned in {miss:?}, bound again in {hit:?}", s.kernel_count());
    show(&s);
    s
}

fn show(s: &Schedule) {
    for i in &s.items {
        if let ScheduleItem::Kernel { ast, .. } = i {
            let of = |u: &UOp| u.src()[2..].iter().map(|r| r.src()[0].render()).collect::<Vec<_>>().join(",");
            let stores: Vec<String> = ast.src().iter().map(of).collect();
            let all = ast.toposort();
            let reduces: Vec<String> = all
                .iter()
                .filter(|u| u.op() == doorbell::uop::Op::Reduce)
                .map(|u| u.src()[1..].iter().map(|r| r.src()[0].render()).collect::<Vec<_>>().join(","))
                .collect();
            println!("    stores [{}] reduces [{}] nodes {}", stores.join(" | "), reduces.join(" | "), all.len());
        }
    }
}

#[test]
fn an_mlp_step_with_adam_needs_no_more_kernels_than_tinygrad() {
    let (l1, l2) = (Linear::new(784, 128), Linear::new(128, 10));
    let params: Vec<Tensor> = l1.parameters().into_iter().chain(l2.parameters()).collect();
    settled(&params);
    let mut opt = Adam::new(&params, 1e-3).unwrap();
    let (x, y) = (input(&[512, 784]), labels(512));
    let mut n = 0;
    for _ in 0..2 {
        opt.zero_grad();
        let loss = l2.forward(&l1.forward(&x).relu()).sparse_categorical_crossentropy(&y);
        loss.backward().unwrap();
        let mut roots = vec![loss];
        roots.extend(opt.schedule_step().unwrap());
        let s = kernels(&roots, "mlp adam");
        s.finish();
        n = s.kernel_count();
    }
    assert!(n <= 30, "{n} kernels, tinygrad 30");
}

#[test]
fn a_convolutional_step_with_batch_norm_needs_no_more_kernels_than_tinygrad() {
    let c = Conv2d::new(3, 16, 3, Conv::default());
    let bn = BatchNorm::new(16);
    let params: Vec<Tensor> = c.tensors().into_iter().chain(bn.tensors()).collect();
    settled(&params);
    let mut opt = Sgd::new(Parameters::sorted(params), 1e-2).unwrap();
    let x = input(&[2, 3, 16, 16]);
    let mut n = 0;
    for _ in 0..2 {
        opt.zero_grad();
        let loss = bn.forward(&c.forward(&x), true).relu().mean(());
        loss.backward().unwrap();
        let mut roots = vec![loss];
        roots.extend(opt.schedule_step().unwrap());
        let s = kernels(&roots, "conv bn sgd");
        s.finish();
        n = s.kernel_count();
    }
    assert!(n <= 15, "{n} kernels, tinygrad 15");
}
