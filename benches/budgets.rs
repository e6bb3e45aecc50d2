//! The budgets of docs/architecture.md, section 5, that belong to no single room: interning, rewriting, a kernel and a
//! whole training step from nothing, its replay, and a recorded call of 16 additions. `cargo bench --bench budgets`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use doorbell::codegen::{self, OptChoice};
use doorbell::device::cpu::{CpuDevice, CpuOptions};
use doorbell::device::{Code, Device, KernelImage};
use doorbell::elf;
use doorbell::engine::{Error, Jit, session, synchronize};
use doorbell::isa::x86_64::{Arch, X86_64};
use doorbell::nn::Linear;
use doorbell::nn::optim::{Adam, Optimizer};
use doorbell::schedule::{ScheduleCache, ScheduleItem, schedule};
use doorbell::tensor::prelude::*;
use doorbell::uop::symbolic::fast;
use doorbell::uop::{AxisKind, DType, Scalar, UOp, graph_rewrite};
use std::hint::black_box;
use std::time::Instant;

/// Graphs are many small nodes made and freed, which this allocator does faster than the C library's.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[path = "support/cpu_time.rs"]
mod cpu_time;

type Step = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>, Error>>;

/// 784-128-10 on a batch of 512: forward, backward, Adam.
fn mlp() -> (Step, [Tensor; 2]) {
    let (l1, l2) = (Linear::new(784, 128), Linear::new(128, 10));
    let net: [(&str, &dyn doorbell::nn::Module); 2] = [("l1", &l1), ("l2", &l2)];
    let mut opt = Adam::new(doorbell::nn::Module::parameters(net.as_slice()), 1e-3).unwrap();
    let x: Vec<f32> = (0..512 * 784).map(|i| (i % 97) as f32 / 97.0 - 0.5).collect();
    let y: Vec<i32> = (0..512).map(|i| i % 10).collect();
    let step: Step = Box::new(move |x: &[Tensor]| {
        opt.zero_grad();
        let loss = l2.forward(&l1.forward(&x[0]).relu()).sparse_categorical_crossentropy(&x[1]);
        loss.backward()?;
        let mut out = vec![loss];
        out.extend(opt.schedule_step()?);
        Ok(out)
    });
    (step, [Tensor::from_slice(&x, [512, 784]), Tensor::from_slice(&y, [512])])
}

fn from_nothing() {
    let t = Instant::now();
    let total = Tensor::ones([10]).sum(()).item().unwrap();
    println!("first result of the process, ones(10).sum() = {total}: {:.2} ms", t.elapsed().as_secs_f64() * 1e3);
    let t = Instant::now();
    let (step, inputs) = mlp();
    let mut step = Jit::new(step);
    let loss = step.call(&inputs).unwrap()[0].item().unwrap();
    println!("MLP step from nothing to its loss {loss:.4}: {:.2} ms", t.elapsed().as_secs_f64() * 1e3);
    let t = session().unwrap().counters.totals();
    println!("kernels launched {}, compiled {}", t.kernels, t.compiled);
}

/// From lazy Tensors to code that is loaded and could be launched: no cache is used.
fn kernel_from_nothing(c: &mut Criterion) {
    let device = CpuDevice::open("CPU", &CpuOptions::default()).unwrap();
    let isa = X86_64::new(Arch::detect().unwrap(), 2);
    let made = |result: Tensor| {
        let roots = [(result.contiguous().uop().unwrap(), "CPU".into())];
        let plan = schedule(&roots, &ScheduleCache::default()).unwrap();
        let items = plan.items.iter().filter_map(|item| match item {
            ScheduleItem::Kernel { ast, .. } => Some(ast),
            _ => None,
        });
        let load = |ast: &UOp| {
            let p = codegen::compile(ast, isa.target(), &OptChoice::Heuristic, false).unwrap();
            let bytes = elf::write(&isa.object(&p).unwrap()).unwrap();
            let code = Code::Elf { bytes: &bytes, entry: &p.name };
            device.load(&[KernelImage { name: &p.name, code }]).unwrap().len()
        };
        assert_eq!(items.map(load).sum::<usize>(), 1, "one kernel");
    };
    let mut g = c.benchmark_group("schedule, compile and load");
    let mut measure = |name: &str, round: &dyn Fn()| {
        g.bench_function(name, |b| b.iter_custom(|rounds| cpu_time::of(rounds, round)));
    };
    let x = Tensor::empty([1024, 1024], Scalar::F32);
    measure("a*b+c", &|| made(&(&x * &x) + &x));
    measure("sum of rows", &|| made(x.sum(-1)));
    measure("softmax of rows", &|| made(x.softmax(-1)));
    g.finish();
}

/// A whole training step from the graph of its lazy Tensors to linear programs, its initial weights among them, without
/// caches.
fn step_from_nothing(c: &mut Criterion) {
    let isa = X86_64::new(Arch::detect().unwrap(), 2);
    // One graph for all rounds: random weights that nobody computes make the next ones' graph longer.
    let (mut step, inputs) = mlp();
    let tensors = step(&inputs).unwrap();
    let roots: Vec<_> = tensors.iter().map(|t| (t.uop().unwrap(), "CPU".into())).collect();
    let round = || {
        let plan = schedule(&roots, &ScheduleCache::default()).unwrap();
        for item in &plan.items {
            if let ScheduleItem::Kernel { ast, .. } = item {
                black_box(codegen::compile(ast, isa.target(), &OptChoice::Heuristic, false).unwrap());
            }
        }
    };
    let mut g = c.benchmark_group("schedule and codegen");
    g.sample_size(30);
    g.bench_function("MLP step with Adam", |b| b.iter_custom(|rounds| cpu_time::of(rounds, round)));
    g.finish();
}

fn budgets(c: &mut Criterion) {
    from_nothing();
    kernel_from_nothing(c);
    step_from_nothing(c);
    let mut g = c.benchmark_group("uop");
    let x = UOp::var("x", 0, 1 << 40);
    let chain = || (0..10_000).fold(x.clone(), |u, i| &u + &UOp::int(i % 251));
    // Half of them are sums, which are new, the others constants.
    g.throughput(Throughput::Elements(20_000));
    g.bench_function("intern 20,000 nodes", |b| b.iter_batched(|| (), |()| chain(), BatchSize::PerIteration));
    g.bench_function("intern 20,000 nodes and free what is new", |b| b.iter(chain));
    // Alternating sums and products, none of which a rule changes. Two of FAST_MATH's rules visit five pattern nodes
    // each at a sum, one at a product; the others are left out by the ops of the sources.
    let x = UOp::param(0, DType::F32, 1).index(&UOp::int(0)).load();
    let pair = |u: &UOp, i: i32| &(u + &u.const_like(f64::from(i) + 0.5)) * &u.const_like(f64::from(i) + 1.5);
    let graph = (0..5_000).fold(x.clone(), |u, i| pair(&u, i));
    g.throughput(Throughput::Elements(5_000 * (2 + 1) * 5));
    g.bench_function("FAST_MATH's patterns on 10,000 sums and products, in pattern nodes", |b| {
        b.iter(|| graph_rewrite(&graph, fast(), &mut ()).unwrap());
    });
    drop(graph);
    g.throughput(Throughput::Elements(10_000));
    g.bench_function("simplify 10,000 new sums and products, in nodes", |b| {
        let new = || (0..5_000).fold(x.clone(), |u, i| pair(&u, i));
        b.iter_batched(new, |u| u.simplify(), BatchSize::PerIteration);
    });
    g.throughput(Throughput::Elements(1));
    let (i, j) = (UOp::range(64, 0, AxisKind::Loop), UOp::range(48, 1, AxisKind::Loop));
    let mut k = 0;
    g.bench_function("simplify a reshape's index, new each time", |b| {
        b.iter(|| {
            k += 1;
            let flat = &(&(&i * 48) + &j) + &(&UOp::int(3072) * &UOp::int(k));
            black_box(&(&(&(&flat / 48) % 64) * 48) + &(&flat % 48)).simplify()
        });
    });
    g.finish();

    let mut g = c.benchmark_group("step");
    let x = Tensor::from_slice(&[1.0f32; 64 * 64], [64, 64]);
    x.realize().unwrap();
    let roots = vec![((&x + 1.0).softmax(-1).contiguous().uop().unwrap(), "CPU".into())];
    g.bench_function("schedule a softmax, no cache", |b| {
        b.iter(|| schedule(&roots, &ScheduleCache::default()).unwrap().kernel_count());
    });
    let (step, inputs) = mlp();
    let mut step = Jit::new(step);
    for _ in 0..3 {
        step.call(&inputs).unwrap();
    }
    g.bench_function("replay of the MLP step with Adam", |b| b.iter(|| step.call(&inputs).unwrap()[0].item().unwrap()));
    let a = Tensor::from_slice(&[1.0f32; 16], [16]);
    let mut adds = Jit::new(|x: &[Tensor]| {
        let mut t = x[0].clone();
        let mut out = Vec::new();
        for _ in 0..16 {
            t = (&t + &x[0]).contiguous();
            out.push(t.clone());
        }
        out
    });
    for _ in 0..3 {
        adds.call(std::slice::from_ref(&a)).unwrap();
    }
    println!("the recorded additions are {:?} kernels", adds.kernels());
    g.bench_function("recorded call of 16 additions, waited for", |b| {
        b.iter(|| {
            adds.call(std::slice::from_ref(&a)).unwrap();
            synchronize().unwrap();
        });
    });
    g.finish();
}

criterion_group!(benches, budgets);
criterion_main!(benches);
