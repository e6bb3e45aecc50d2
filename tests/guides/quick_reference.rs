//! The quick reference, section by section.

use crate::{Fragment, alone, is_program, printed};
use doorbell::codegen::{OptChoice, compile};
use doorbell::engine::session;
use doorbell::nn::optim::{Adam, AdamW, Lamb, Lars, Muon, Optimizer, Sgd};
use doorbell::nn::state;
use doorbell::nn::{self, BatchNorm, Conv2d, Embedding, GroupNorm, LSTMCell, LayerNorm, Linear, Module, RMSNorm};
use doorbell::tensor::default_device;
use doorbell::tensor::prelude::*;
use doorbell::uop::{DType, Op, Pat, PatternMatcher, Rule, UOp, graph_rewrite};
use doorbell::{Error, Jit};
use std::sync::LazyLock;

#[test]
fn tensors_are_created() -> Fragment {
    let x = Tensor::new([1, 2, 3]);
    assert_eq!((x.shape()?, x.dtype()?), (vec![Dim::Int(3)], Scalar::I32));
    let x = Tensor::rand([2, 3]);
    assert!(x.to_vec::<f32>()?.iter().all(|v| (0.0..1.0).contains(v)));
    assert_eq!(x.shape()?, [2, 3]);
    let x = Tensor::kaiming_uniform([128, 784], 0.01); // 0.01: the slope of the leaky relu behind it
    let bound = (6.0f64 / (1.0 + 0.0001) / 784.0).sqrt();
    assert!(x.abs().max(()).item()? <= bound && x.abs().max(()).item()? > 0.99 * bound);
    Ok(())
}

#[test]
fn operations_are_lazy_until_realized() -> Fragment {
    let x = Tensor::new([1.0f32, -2.0, 3.0]);
    alone(|s| {
        let y = (&x + 1.0).relu().sum(());
        assert_eq!(s.counters.totals().kernels, 0);
        y.realize()?;
        assert_eq!(s.counters.totals().kernels, 1);
        assert_eq!(y.item()?, 6.0);
        assert_eq!((x + 1.0).tolist::<Vec<f32>>()?, [2.0, -1.0, 4.0]);
        Ok(())
    })
}

/// A plain struct; no trait has to be implemented to call it. `module!` lists its Tensors.
struct Model {
    l1: Linear,
    l2: Linear,
}
doorbell::module!(Model { l1, l2 });

impl Model {
    fn new() -> Model {
        Model { l1: Linear::new(784, 128), l2: Linear::new(128, 10) }
    }
    fn call(&self, x: &Tensor) -> Tensor {
        self.l1.forward(x).relu().sequential(&[&|x: &Tensor| self.l2.forward(x)])
    }
}

/// Pictures of ten patterns with noise, (n, 784), and their classes.
fn pictures(n: usize) -> (Tensor, Tensor) {
    let classes = Tensor::arange(n).modulo(10).cast(Scalar::I32);
    let patterns = Tensor::rand([10, 784]).realize().unwrap().clone();
    let x = patterns.get(&classes) + Tensor::randn([n, 784]) * 0.3;
    Tensor::realize_all(&[&x, &classes]).unwrap();
    (x, classes)
}

#[test]
fn a_step_in_the_training_context() -> Fragment {
    let (x, labels) = pictures(16);
    let model = Model::new();
    let mut optim = Adam::new(model.parameters(), 0.001)?;
    assert!(!Tensor::is_training());
    let loss = Tensor::train(|| -> Result<Tensor, Error> {
        assert!(Tensor::is_training());
        optim.zero_grad();
        let loss = model.call(&x).sparse_categorical_crossentropy(&labels);
        loss.backward()?;
        optim.step()?;
        Ok(loss)
    })?;
    assert!(loss.item()?.is_finite());
    Ok(())
}

#[test]
fn the_pipeline_is_tensor_uop_schedule_codegen_runtime() -> Fragment {
    let t = Tensor::rand([4]).realize()?.clone();
    let graph = (&t + 1.0).uop()?; // tensor: a graph of UOps
    assert_eq!(graph.op(), Op::Add);
    let plan = (&t + 1.0).schedule()?; // schedule: kernels
    let device = session()?.device(&default_device())?;
    let ast = plan.kernels().next().ok_or("no kernel")?;
    let program = compile(ast, device.target(), &OptChoice::Heuristic, false)?; // codegen
    assert!(!device.backend.listing(&device.backend.compile(&program)?)?.is_empty()); // isa
    assert!(device.runs_kernels()); // device
    Ok(())
}

#[test]
fn the_training_loop_is_one_recorded_step() -> Fragment {
    Tensor::manual_seed(3);
    let ((x, y), model) = (pictures(128), Model::new());
    let mut optim = Adam::new(model.parameters(), 0.001)?;
    let mut step = Jit::new(|_: &()| -> Result<Tensor, Error> {
        let _mode = nn::training();
        optim.zero_grad();
        let samples = Tensor::randint([32], 0, 128);
        let loss = model.call(&x.get(&samples)).sparse_categorical_crossentropy(&y.get(&samples));
        loss.backward()?;
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    let mut losses = Vec::new();
    for _ in 0..20 {
        losses.push(step.call(&())?.item()?);
    }
    assert!(step.is_recorded() && losses[19] < 0.2 * losses[0], "{losses:?}");
    Ok(())
}

#[test]
fn modules_and_optimizers_are_there() -> Fragment {
    let x = Tensor::rand([2, 8, 4, 4]);
    assert_eq!(Linear::new(4, 6).forward(&x).shape()?, [2, 8, 4, 6]);
    assert_eq!(Conv2d::new(8, 3, 3, Conv::default()).forward(&x).shape()?, [2, 3, 2, 2]);
    assert_eq!(BatchNorm::new(8).call(&x).shape()?, [2, 8, 4, 4]);
    assert_eq!(LayerNorm::new(4).forward(&x).shape()?, [2, 8, 4, 4]);
    assert_eq!(RMSNorm::new(4).forward(&x).shape()?, [2, 8, 4, 4]);
    assert_eq!(Embedding::new(10, 5).forward(&Tensor::new([1, 9])).shape()?, [2, 5]);
    assert_eq!(GroupNorm::new(2, 8).forward(&x).shape()?, [2, 8, 4, 4]);
    let (h, c) = LSTMCell::new(4, 7).forward(&x.get((.., 0, 0)), None);
    assert_eq!((h.shape()?, c.shape()?), (vec![Dim::Int(2), Dim::Int(7)], vec![Dim::Int(2), Dim::Int(7)]));

    type Make = fn(&Linear) -> Result<Box<dyn Optimizer>, nn::optim::OptimError>;
    let all: [Make; 6] = [
        |m| Ok(Box::new(Sgd::new(m.parameters(), 0.01)?)),
        |m| Ok(Box::new(Adam::new(m.parameters(), 0.01)?)),
        |m| Ok(Box::new(AdamW::new(m.parameters(), 0.01)?)),
        |m| Ok(Box::new(Lars::new(m.parameters(), 0.01)?)),
        |m| Ok(Box::new(Lamb::new(m.parameters(), 0.01)?)),
        |m| Ok(Box::new(Muon::new(m.without_bias_handles(), 0.01)?)),
    ];
    for make in all {
        let net = Linear::new(4, 4);
        let mut optim = make(&net)?;
        let loss = || net.forward(&Tensor::ones([1, 4])).square().sum(());
        let before = loss().item()?;
        loss().backward()?;
        optim.step()?;
        assert!(loss().item()? < before);
    }
    Ok(())
}

/// Muon moves matrices alone.
trait Matrices {
    fn without_bias_handles(&self) -> nn::Parameters;
}
impl Matrices for Linear {
    fn without_bias_handles(&self) -> nn::Parameters {
        self.parameters().filtered(|name| name == "weight")
    }
}

#[test]
fn weights_are_saved_and_loaded() -> Fragment {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("model.safetensors");
    let (model, other) = (Model::new(), Model::new());
    state::save(&model.state_dict(), &path)?;
    state::load_into(&other, &state::load(&path)?)?;
    let x = Tensor::rand([1, 784]);
    assert_eq!(model.call(&x).to_vec::<f32>()?, other.call(&x).to_vec::<f32>()?);
    let params = model.parameters();
    assert_eq!(params.len(), 4);
    assert!(model.state_dict().keys().eq(["l1.bias", "l1.weight", "l2.bias", "l2.weight"]));
    // The file is what others read: a length, a header in JSON, the numbers.
    let bytes = std::fs::read(&path)?;
    let length = u64::from_le_bytes(bytes[..8].try_into()?) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length])?;
    assert_eq!(
        (&header["l1.weight"]["dtype"], &header["l1.weight"]["shape"]),
        (&"F32".into(), &[128, 784].as_slice().into())
    );
    Ok(())
}

#[test]
fn a_forward_pass_is_recorded_and_its_shapes_are_fixed() -> Fragment {
    let model = Model::new();
    let mut forward = Jit::new(|x: &Tensor| model.call(x));
    for _ in 0..4 {
        let batch = Tensor::rand([4, 784]);
        let out = forward.call(&batch)?.to_vec::<f32>()?;
        let wanted = model.call(&batch).to_vec::<f32>()?;
        assert!(out.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert!(forward.is_recorded());
    let e = forward.call(&Tensor::rand([5, 784])).unwrap_err().to_string();
    assert_eq!(e, "jit: the input has shape (5, 784), recorded with (4, 784)");
    Ok(())
}

#[test]
fn devices_are_named() -> Fragment {
    println!("{}", default_device());
    let x = Tensor::on("CPU").rand(10);
    assert_eq!(&*x.device(), "CPU");
    let y = x.to("CPU:1");
    assert_eq!((&*y.device(), y.to_vec::<f32>()?), ("CPU:1", x.to_vec::<f32>()?));
    let e = x.to("XPU").realize().unwrap_err().to_string();
    assert!(e.contains("unknown device \"XPU\", valid: "), "{e}");
    Ok(())
}

// Environment variables, and debugging with them

#[test]
fn program_that_sums_ones() {
    if is_program() {
        assert_eq!(Tensor::new([1.0f32; 10]).sum(()).item().unwrap(), 10.0);
    }
}

/// What it prints with these variables.
fn sum_of_ones(vars: &[(&str, &str)]) -> String {
    printed("quick_reference::program_that_sums_ones", &[vars, &[("DEV", "CPU"), ("CACHELEVEL", "0")]].concat())
}

#[test]
fn debug_says_more_with_each_level() {
    let text = [0, 1, 2, 3, 4, 5, 6, 7].map(|level| sum_of_ones(&[("DEBUG", &level.to_string())]));
    assert!(!text[0].contains("CPU"), "{}", text[0]);
    for (level, what) in
        [(1, "opened CPU: "), (2, "GFLOPS"), (3, ": opts ["), (4, "void r_"), (5, "Sink"), (6, "Store#"), (7, "ret")]
    {
        assert!(text[level].contains(what), "DEBUG={level}: {}", text[level]);
        assert!(!text[level - 1].contains(what), "DEBUG={}: {}", level - 1, text[level - 1]);
    }
}

#[test]
fn viz_writes_a_page_when_the_program_ends() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("run.html");
    let text = sum_of_ones(&[("VIZ", page.to_str().unwrap())]);
    assert!(text.contains("VIZ: the explorer of this run is ") && text.contains("run.html"), "{text}");
    let record = doorbell::explorer::read::record(&std::fs::read_to_string(&page).unwrap()).unwrap();
    assert!(record.lines.iter().any(|l| l.file.ends_with("quick_reference.rs")), "{:?}", record.lines);
    assert!(!sum_of_ones(&[("VIZ", "0")]).contains("VIZ"));
}

#[test]
fn beam_noopt_and_spec_change_how_kernels_are_made() {
    assert!(sum_of_ones(&[("BEAM", "1"), ("DEBUG", "1")]).contains("beam: "));
    let loops = |vars: &[(&str, &str)]| sum_of_ones(vars).matches("for ").count();
    assert!(loops(&[("DEBUG", "4"), ("NOOPT", "1")]) > loops(&[("DEBUG", "4")]));
    sum_of_ones(&[("SPEC", "2")]); // every graph is verified: it runs as before
    let text = printed("quick_reference::program_that_says_its_error", &[("SPEC", "3")]);
    assert!(text.contains("SPEC=3 is not valid: 0, 1 or 2"), "{text}");
}

#[test]
fn program_that_says_its_error() {
    if is_program() {
        println!("{}", Tensor::ones([1]).contiguous().item().unwrap_err());
    }
}

// UOp and PatternMatcher

/// x + x is x * 2. Made once: lists of rules are indexed.
static DOUBLE: LazyLock<PatternMatcher> = LazyLock::new(|| {
    PatternMatcher::new([Rule::new("double", Pat::op(Op::Add).src([Pat::var("x"), Pat::var("x")]), |m| {
        Some(&m["x"] * 2)
    })])
});

#[test]
fn a_pattern_matcher_rewrites_a_graph() -> Fragment {
    let a = UOp::var("a", 0, 9);
    let sum = &(&a + &a) + &UOp::var("b", 0, 9);
    let result = graph_rewrite(&sum, &DOUBLE, &mut ())?;
    assert_eq!(result, &(&a * 2) + &UOp::var("b", 0, 9));
    // op, dtype, src, arg, tag
    assert_eq!((result.op(), result.dtype(), result.src().len()), (Op::Add, DType::INDEX, 2));
    assert_eq!((result.arg(), result.tag()), (&doorbell::uop::Arg::None, None));
    assert_eq!(result.src()[0].src()[1].as_int(), Some(2));
    Ok(())
}
