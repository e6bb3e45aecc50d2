//! What users stumbled over: each has a clear error, or works.

use doorbell::engine::{Error, Options, Session};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{CustomKernel, Launch};
use doorbell::uop::{AxisKind, DType, Op, Pat, PatternMatcher, RewriteError, Rule, Stage, UOp, graph_rewrite, spec};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

#[path = "../examples/accelerator.rs"]
mod accelerator;

/// Runs one of the `child_` tests below in a process of its own with these variables.
fn child(test: &str, vars: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("STUMBLES_CHILD", "1");
    for name in ["DEV", "DEBUG", "NOOPT", "BEAM", "PROFILE", "VIZ"] {
        command.env_remove(name);
    }
    command.envs(vars.iter().copied()).output().unwrap()
}

fn is_child() -> bool {
    std::env::var_os("STUMBLES_CHILD").is_some()
}

/// What a session says while `f` runs in it.
fn said(options: Options, f: impl FnOnce()) -> Vec<String> {
    let s = Session::open(options).unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = heard.clone();
    s.on_message(move |text| kept.lock().unwrap().push(text.into()));
    let _in_it = s.enter();
    f();
    heard.lock().unwrap().clone()
}

fn error<T: std::fmt::Debug>(r: Result<T, Error>) -> String {
    r.unwrap_err().to_string()
}

/// `file:line` of the line after the one that this is called on.
#[track_caller]
fn next_line() -> String {
    let at = std::panic::Location::caller();
    format!("{}:{}:", at.file(), at.line() + 1)
}

// 1: options

#[test]
fn child_adds_two_numbers() {
    if is_child() {
        match (Tensor::new([1.0f32]) + 1.0).item() {
            Ok(sum) => println!("sum {sum}"),
            Err(e) => println!("error {e}"),
        }
    }
}

#[test]
fn one_variable_that_means_nothing_is_an_error_and_no_option_is_dropped() {
    let out = child("child_adds_two_numbers", &[("NOOPT", "1"), ("DEBUG", "1"), ("BEAM", "x")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("error BEAM=x is not valid: a search width of 0 to 1024"), "{text}");
    let out = child("child_adds_two_numbers", &[("DEV", "GPU")]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("error unknown device \"GPU\", valid: CPU"), "{text}");
}

// 3: memory that nobody wrote

#[test]
fn memory_that_nobody_wrote_is_told_so_when_it_is_read() {
    let e = error(Tensor::empty([2, 3], Scalar::F32).to_vec::<f32>());
    assert!(e.contains("(2, 3)") && e.contains("f32") && !e.contains("UOp("), "{e}");
}

// 5: late errors name the user's line

#[test]
fn values_on_two_devices_are_refused_by_the_op_that_mixes_them() {
    let (a, b) = (Tensor::rand([10]), Tensor::rand([10]).to("NULL"));
    let line = next_line();
    let sum = &a + &b;
    let e = error(sum.realize());
    assert!(e.starts_with("add: the values lie on devices CPU and NULL; `.to(\"CPU\")` moves one"), "{e}");
    assert!(e.contains("(10,)") && e.contains(&line), "{e}");
    let e = error(Tensor::cat(&[&a, &b], 0).realize());
    assert!(e.starts_with("cat: the values lie on devices CPU and NULL"), "{e}");
}

#[test]
fn a_graph_of_uops_on_two_devices_names_both() {
    let buffer = |device: &str| UOp::buffer(DType::F32, doorbell::uop::BufferRef::new(4, device.into()));
    let sum = UOp::alu(Op::Add, [buffer("CPU"), buffer("NULL")]);
    let e = error(Tensor::from(sum).realize());
    assert_eq!(e, "schedule: a kernel on CPU reads Buffer of shape [4] on NULL; `.to(\"CPU\")` moves it");
}

#[test]
fn a_variable_without_a_value_names_the_line_that_used_it_and_how_to_bind_it() {
    let n = Variable::new("length", 1, 10);
    let line = next_line();
    let x = Tensor::arange(Dim::from(n.uop()));
    let e = error((x + 1).sum(()).item());
    let how = "variable 'length' has no value in this run: use `variable.bind(value)`, with a value of 1 to 10";
    assert!(e.starts_with(how), "{e}");
    assert!(e.contains("`arange`") && e.contains(&line), "{e}");
}

#[cfg(feature = "nv")]
#[test]
fn a_chip_without_machine_code_names_the_chip_the_device_and_what_there_is() {
    use doorbell::device::{HostDevice, Registry};
    // A device that claims to be such a card.
    Registry::global().insert("OLD", Arc::new(HostDevice::open("OLD", "sm_75", NoCode).unwrap())).unwrap();
    let x = Tensor::new([1.0f32, 2.0]).to("OLD");
    let line = next_line();
    let y = &x + &x;
    let e = error(y.realize());
    assert!(e.starts_with("OLD: no machine code is made for sm_75, but for sm_80, sm_86, sm_89, sm_90"), "{e}");
    assert!(e.contains("`add` of shape (2,) on OLD") && e.contains(&line), "{e}");
}

#[derive(Debug)]
struct NoCode;

impl doorbell::device::Executor for NoCode {
    type Program = ();
    fn load(&self, _name: &str, _code: &[u8]) -> Result<(), String> {
        Err("it runs nothing".into())
    }
    fn run(&self, _program: &(), _args: &[doorbell::device::Arg]) -> Result<(), String> {
        Err("it runs nothing".into())
    }
}

// 6: UOps and rules

#[test]
fn a_wrong_number_of_sources_is_a_faulty_node_that_names_the_call() {
    let x = UOp::var("x", 0, 9);
    let line = next_line();
    let wrong = UOp::alu(Op::Where, [x.clone()]);
    assert!(wrong.is_fault());
    let above = &wrong + &x;
    assert_eq!(above, wrong, "what is built on it is the same fault");
    let e = error(Tensor::from(above).item());
    assert!(e.contains("UOp::alu: Where takes 3 sources, 1 given") && e.contains(&line), "{e}");
    assert!(UOp::alu(Op::Reduce, [x.clone()]).is_fault());
    let e = spec::verify(Stage::Kernel, &UOp::alu(Op::Add, [x])).unwrap_err().to_string();
    assert!(e.contains("Add takes 2 sources, 1 given"), "{e}");
}

#[test]
fn a_name_that_a_pattern_lacks_fails_the_rewrite_with_the_rule_s_name() {
    let rule: Rule = Rule::new("drop-one", Pat::var("x") * 1, |m| Some(&m["typo"] + 1));
    let rules = PatternMatcher::new([rule]);
    let e = graph_rewrite(&(&UOp::var("a", 0, 9) * 1), &rules, &mut ()).unwrap_err();
    assert!(matches!(&e, RewriteError::Malformed { rule: "drop-one", .. }), "{e}");
    assert!(e.to_string().ends_with("the pattern captures no 'typo', but 'x'"), "{e}");
}

#[test]
fn a_slash_divides_floats_as_floats_and_integers_rounded_down() {
    let float = |v: f64| UOp::constant(DType::F32, v);
    assert_eq!((&float(7.0) / &float(2.0)).op(), Op::FDiv);
    assert_eq!(Tensor::from(&float(7.0) / &float(2.0)).item().unwrap(), 3.5);
    assert_eq!((&UOp::int(-7) / 2).op(), Op::FloorDiv);
    let e = error(Tensor::from(&float(7.0) % &float(2.0)).item());
    assert!(e.contains("floats have `Elementwise::modulo` and `fmod`"), "{e}");
    // A pattern with `/` fits both.
    let rules: PatternMatcher =
        PatternMatcher::new([Rule::new("div-one", Pat::var("x") / 1, |m| Some(m["x"].clone()))]);
    let (i, x) = (UOp::var("i", 0, 9), UOp::param(0, DType::F32, 4).index(&UOp::int(0)).load());
    assert_eq!(graph_rewrite(&(&i / 1), &rules, &mut ()).unwrap(), i);
    assert_eq!(graph_rewrite(&(&x / 1), &rules, &mut ()).unwrap(), x);
}

// 7: std::ops beside the vocabulary

#[test]
fn a_method_call_moves_nothing_where_the_operator_traits_are_not_imported() {
    let (a, b) = (Tensor::new([1.0f32]), Tensor::new([2.0f32]));
    let (first, second) = (a.add(&b), a.add(&b));
    assert_eq!((first + second).item().unwrap(), 6.0);
    mod with_operators {
        use doorbell::Tensor;
        use doorbell::tensor::Elementwise;
        use std::ops::Add;
        /// As the page of `tensor::prelude` says: a borrowed Tensor, or the trait's name.
        pub fn sums(a: &Tensor, b: &Tensor) -> Tensor {
            fn twice<T: Add<Output = T> + Clone>(x: &T) -> T {
                x.clone() + x.clone()
            }
            twice(&Elementwise::add(a, b))
        }
    }
    assert_eq!(with_operators::sums(&a, &b).item().unwrap(), 6.0);
}

// 8: what is said and written

#[test]
fn debug_2_has_a_line_for_uploads_kernels_and_copies() {
    let lines = said(Options { debug: 2, ..Options::default() }, || {
        let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]).to("CPU:1").to("CPU");
        assert_eq!((x + 1.0).sum(()).item().unwrap(), 14.0);
    });
    let has = |parts: &[&str]| lines.iter().any(|l| parts.iter().all(|p| l.contains(p)));
    assert!(has(&["*** CPU", "copy 16 B <- HOST"]), "{lines:#?}");
    assert!(has(&["*** CPU:1", "copy 16 B <- CPU"]), "{lines:#?}");
    assert!(has(&["*** CPU", "GFLOPS"]), "{lines:#?}");
}

#[test]
fn the_trace_is_written_when_the_program_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let out = child("child_adds_two_numbers", &[("PROFILE", path.to_str().unwrap()), ("DEV", "CPU")]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{e}: {said}"));
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        trace["traceEvents"].as_array().unwrap().iter().any(|e| e["name"] == "schedule" || e["ph"] == "X"),
        "{text}"
    );
}

#[test]
fn a_session_s_trace_is_written_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let s = Session::open(Options { profile: Some(path.clone()), ..Options::default() }).unwrap();
    let in_it = s.enter();
    assert_eq!((Tensor::new([1.0f32]) + 1.0).item().unwrap(), 2.0);
    drop(in_it);
    assert!(!path.exists());
    drop(s);
    assert!(std::fs::read_to_string(&path).unwrap().contains("copies"));
}

// 9: a device with an instruction set of its own

#[test]
fn the_accelerator_s_example_runs_and_is_short() {
    accelerator::main().unwrap();
    assert!(include_str!("../examples/accelerator.rs").lines().count() <= 250);
}

#[test]
fn a_device_of_one_s_own_has_any_name_that_is_a_word() {
    use doorbell::device::{HostDevice, Registry};
    let device = || Arc::new(HostDevice::open("THING", "thing", NoCode).unwrap());
    let registry = Registry::default();
    assert!(registry.insert("thing:1", device()).unwrap().is_none());
    assert!(registry.open("THING:1", &Default::default()).is_ok());
    let e = registry.open("THING", &Default::default()).unwrap_err().to_string();
    assert!(e.starts_with("unknown device \"THING\", valid: ") && e.ends_with(", THING:1"), "{e}");
    let e = registry.insert("no word", device()).unwrap_err().to_string();
    assert!(e.contains("a word of letters and digits for a device of your own"), "{e}");
}

// 10: the default device

#[test]
fn debug_1_says_which_device_is_the_default_and_why() {
    let out = child("child_adds_two_numbers", &[("DEBUG", "1"), ("DEV", "CPU")]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("CPU is the default device: DEV names it"), "{text}");
    let out = child("child_adds_two_numbers", &[("DEBUG", "1")]);
    let text = String::from_utf8_lossy(&out.stderr);
    let why = ["no GPU can be used", "the first GPU that can be used"];
    assert!(text.contains("is the default device: ") && why.iter().any(|w| text.contains(w)), "{text}");
}

// Kernels of one's own

/// `a * b + a`, element by element.
fn fused(n: i64, out: &UOp, sources: &[UOp]) -> UOp {
    let i = UOp::range(n, 0, AxisKind::Loop);
    let [a, b] = [0, 1].map(|k: usize| sources[k].index(&i).load());
    out.index(&i).store(&(&(&a * &b) + &a), &[i])
}

#[test]
fn a_kernel_of_uops_is_a_tensor_with_the_gradient_that_it_was_given() {
    let a = Tensor::new([1.0f32, 2.0, 3.0, 4.0]).requires_grad();
    let b = Tensor::new([5.0f32, 6.0, 7.0, 8.0]).requires_grad();
    let kernel =
        CustomKernel::new("fused", [4], Scalar::F32).gradient(|g, x| vec![Some(g * (&x[1] + 1.0)), Some(g * &x[0])]);
    let y = kernel.graph(&[&a, &(&b * 1.0)], |out, x| fused(4, out, x));
    assert_eq!((&y + 0.5).to_vec::<f32>().unwrap(), [6.5, 14.5, 24.5, 36.5]);
    (&y * &y).sum(()).backward().unwrap();
    let gradient = |t: &Tensor| t.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(gradient(&a), [72.0, 196.0, 384.0, 648.0]);
    assert_eq!(gradient(&b), [12.0, 56.0, 144.0, 288.0]);
}

#[test]
fn sources_of_a_kernel_are_views_constants_and_results_of_kernels() {
    let base = Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let kernel = CustomKernel::new("fused", [2], Scalar::F32);
    let row = base.shrink(&[(1, 2), (0, 2)]).reshape([2]);
    let one = kernel.graph(&[&row, &Tensor::ones([2])], |out, x| fused(2, out, x));
    let column = base.t().shrink(&[(0, 1), (0, 2)]).reshape([2]);
    let two = kernel.graph(&[&one, &column], |out, x| fused(2, out, x));
    assert_eq!(two.to_vec::<f32>().unwrap(), [12.0, 32.0]);
    assert_eq!(one.to_vec::<f32>().unwrap(), [6.0, 8.0]);
    // Assignments before it are seen, those after it are not.
    let state = Tensor::zeros([2]).contiguous();
    state.assign(&Tensor::new([1.0f32, 2.0]));
    let seen = kernel.graph(&[&state, &state], |out, x| fused(2, out, x));
    assert_eq!(seen.to_vec::<f32>().unwrap(), [2.0, 6.0]);
}

#[test]
fn a_kernel_of_uops_is_recorded_and_compiled_once() {
    let s = Session::open(Options::default()).unwrap();
    let _in_it = s.enter();
    let mut step = doorbell::Jit::new(|x: &Tensor| {
        let kernel = CustomKernel::new("fused", [3], Scalar::F32);
        kernel.graph(&[x, &Tensor::ones([3])], |out, x| fused(3, out, x)) + 1.0
    });
    for k in 0..4 {
        let y = step.call(&Tensor::new([k as f32; 3])).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0 * k as f32 + 1.0; 3]);
    }
    assert_eq!(s.compiled_kernels("CPU").len(), 3, "the ones, the kernel, and the sum");
}

#[test]
fn what_is_no_kernel_is_refused_at_the_call() {
    let a = Tensor::new([1.0f32, 2.0]);
    let kernel = CustomKernel::new("k", [2], Scalar::F32);
    let fails = |t: Tensor, want: &str| {
        let e = error(t.realize());
        assert!(e.starts_with("custom_kernel: ") && e.contains(want) && e.contains("stumbles.rs"), "{e}");
    };
    fails(kernel.graph(&[&a], |out, _| out.clone()), "a kernel ends in stores, not in Param");
    fails(kernel.graph(&[&a], |_, x| x[0].index(&UOp::int(0)).load()), "not in Load");
    fails(kernel.graph(&[&a], |_, _| UOp::alu(Op::Add, [UOp::int(1)])), "Add takes 2 sources, 1 given");
    let n = Variable::new("n", 1, 4);
    fails(CustomKernel::new("k", [Dim::from(n.bind(2))], Scalar::F32).graph(&[&a], |o, x| fused(2, o, x)), "no known");
    fails(kernel.text(&[&a], "", Launch { local: [0, 1, 1], ..Launch::default() }), "[0, 1, 1] threads");
    let x = a.clone().requires_grad();
    let e = error(kernel.graph(&[&x, &x], |o, s| fused(2, o, s)).sum(()).backward().map_err(Error::from));
    assert!(e.contains("no gradient passes kernel 'k': it was made without one"), "{e}");
    let e = error(kernel.text(&[&a], "nop", Launch::default()).realize());
    assert!(e.contains("reads no text") && e.contains("`custom_kernel`"), "{e}");
}

#[cfg(all(feature = "nv", feature = "emu"))]
#[test]
fn a_kernel_in_ptx_runs_on_an_nvidia_gpu() {
    const TEXT: &str = "
        .version 8.0
        .target sm_80
        .address_size 64
        .visible .entry twice(.param .u64 out, .param .u64 x) {
            .reg .b32 %t; .reg .b64 %a, %b, %i; .reg .f32 %v;
            ld.param.u64 %a, [out];
            ld.param.u64 %b, [x];
            mov.u32 %t, %tid.x;
            mul.wide.u32 %i, %t, 4;
            add.u64 %a, %a, %i;
            add.u64 %b, %b, %i;
            ld.global.f32 %v, [%b];
            add.f32 %v, %v, %v;
            st.global.f32 [%a], %v;
            ret;
        }";
    let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0]).to("NV:emu=sm_80");
    let launch = Launch { local: [4, 1, 1], ..Launch::default() };
    let y = CustomKernel::new("twice", [4], Scalar::F32).text(&[&(&x + 1.0)], TEXT, launch);
    assert_eq!((y * 10.0).to_vec::<f32>().unwrap(), [40.0, 60.0, 80.0, 100.0]);
}

// Recorded functions, and what is assigned after the recording

#[test]
fn a_recorded_evaluation_sees_what_is_loaded_and_trained_after_it() {
    use doorbell::nn::optim::{Optimizer, Sgd};
    use doorbell::nn::{BatchNorm, Linear, Module, Sequential, state};
    let net = || Sequential::new().layer(BatchNorm::new(2)).layer(Linear::new(2, 1));
    let (a, b, x) = (net(), net(), Tensor::new([[1.0f32, 2.0], [3.0, -1.0]]));
    let mut classify = doorbell::Jit::new(|x: &Tensor| a.forward(x));
    for _ in 0..3 {
        classify.call(&x).unwrap();
    }
    state::load_into(&a, &b.state_dict()).unwrap();
    let want = b.forward(&x).to_vec::<f32>().unwrap();
    assert_eq!(classify.call(&x).unwrap().to_vec::<f32>().unwrap(), want);
    let mut optim = Sgd::new(a.parameters(), 0.1).unwrap();
    Tensor::train(|| a.forward(&x).square().sum(()).backward()).unwrap();
    optim.step().unwrap();
    let found = classify.call(&x).unwrap().to_vec::<f32>().unwrap();
    assert_ne!(found, want);
    assert_eq!(found, a.forward(&x).to_vec::<f32>().unwrap());
}

#[test]
fn a_learning_rate_that_is_first_changed_after_the_recording_counts() {
    use doorbell::nn::optim::{Optimizer, Sgd};
    let w = Tensor::new([1.0f32]).requires_grad();
    let mut optim = Sgd::new([w.clone()], 0.5).unwrap();
    let rate = optim.lr().clone();
    let mut step = doorbell::Jit::new(|_: &()| -> Result<Tensor, Error> {
        optim.zero_grad();
        let loss = (&w * 1.0).sum(());
        loss.backward()?;
        loss.realize_with(&optim.schedule_step()?)?;
        Ok(loss)
    });
    let mut seen = Vec::new();
    for k in 0..5 {
        if k == 3 {
            rate.assign(&(&rate * 0.5)).realize().unwrap();
        }
        step.call(&()).unwrap();
        seen.push(w.item().unwrap());
    }
    assert_eq!(seen, [0.5, 0.0, -0.5, -0.75, -1.0]);
}

// Devices by name

#[test]
fn names_of_devices_for_a_sharded_tensor_are_strings_of_any_kind() {
    let x = Tensor::arange(8).float();
    let names: Vec<String> = (0..2).map(|k| format!("CPU:{k}")).collect();
    let want = [0.0f32, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0];
    assert_eq!((x.shard(&names, 0) * 2.0).to_vec::<f32>().unwrap(), want);
    assert_eq!((x.shard(&["CPU", "CPU:1"], 0) * 2.0).to_vec::<f32>().unwrap(), want);
    let e = error(x.shard(&["CPU", "cpu:0"], 0).to_vec::<f32>());
    assert!(e.contains("device cpu:0 is named twice"), "{e}");
}

// Generation token by token

#[test]
fn attention_with_a_cache_is_attention_over_all_tokens() {
    use doorbell::nn::MultiHeadAttention;
    const MOST: usize = 6;
    for kv_heads in [2, 1] {
        let layer = MultiHeadAttention::grouped(8, 2, kv_heads);
        let x = Tensor::randn([2, MOST, 8]).realize().unwrap().clone();
        let whole = layer.forward(&x, &x, &x, None, true).to_vec::<f32>().unwrap();
        let position = Variable::new("position", 0, MOST as i64 - 1);
        // A prompt of three tokens, then one by one, directly and recorded; the cache is not realized by the caller.
        for recorded in [false, true] {
            let cache = layer.cache(2, MOST);
            let start = layer.forward_cached(&x.narrow(1, 0, 3), &cache, 0);
            let mut parts = vec![start.realize().unwrap().clone()];
            let mut next =
                doorbell::Jit::new(|(x, at): &(Tensor, UOp)| layer.forward_cached(x, &cache, at).contiguous());
            for k in 3..MOST as i64 {
                let (one, at) = (x.narrow(1, k, 1).contiguous(), position.bind(k));
                let made =
                    if recorded { next.call(&(one, at)).unwrap() } else { layer.forward_cached(&one, &cache, at) };
                let values = made.to_vec::<f32>().unwrap();
                parts.push(Tensor::from_slice(&values, [2, 1, 8]));
            }
            let found = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1).to_vec::<f32>().unwrap();
            let apart = found.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "{kv_heads} heads of keys, recorded {recorded}: {apart}");
        }
        let cache = layer.cache(2, 4);
        let e = error(layer.forward_cached(&x.narrow(1, 0, 3), &cache, position.bind(1)).realize());
        assert!(e.contains("do not fit a cache of 4") && e.contains("stumbles.rs"), "{e}");
    }
}

#[test]
fn a_tensor_that_is_first_assigned_to_after_a_recording_is_seen_by_it() {
    let scale = Tensor::new([2.0f32, 3.0]).realize().unwrap().clone();
    let mut f = doorbell::Jit::new(|x: &Tensor| x * &scale);
    let one = |f: &mut doorbell::Jit<_, Tensor, Tensor>| -> Vec<f32> {
        let y: Tensor = f.call(&Tensor::ones([2])).unwrap();
        y.to_vec().unwrap()
    };
    for _ in 0..3 {
        assert_eq!(one(&mut f), [2.0, 3.0]);
    }
    scale.assign(&Tensor::new([5.0f32, 7.0])).realize().unwrap();
    assert_eq!(one(&mut f), [5.0, 7.0]);
    // A value that reads its own old content elsewhere than where it is written.
    scale.assign(&(scale.flip([0]) * 10.0)).realize().unwrap();
    assert_eq!(one(&mut f), [70.0, 50.0]);
}

#[test]
fn memory_that_others_see_is_not_assigned_to_in_place() {
    let base = Tensor::new([1.0f32, 2.0]);
    let (a, b) = (&base * 4.0, &base * 4.0);
    a.realize().unwrap();
    a.assign(&Tensor::new([0.0f32, 0.0])).realize().unwrap();
    assert_eq!(b.to_vec::<f32>().unwrap(), [4.0, 8.0], "b is the same expression");
    let c = (&base * 5.0).realize().unwrap().clone();
    let kept = &c + 1.0;
    let reversed = c.flip([0]);
    c.assign(&(&reversed * 2.0)).realize().unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), [20.0, 10.0]);
    assert_eq!(kept.to_vec::<f32>().unwrap(), [6.0, 11.0], "an expression of the old value");
    assert_eq!(reversed.to_vec::<f32>().unwrap(), [10.0, 5.0]);
}

#[test]
fn a_loss_read_after_the_step_is_that_before_it() {
    use doorbell::nn::optim::{Optimizer, Sgd};
    let w = Tensor::new([1.0f32]).requires_grad();
    let mut optim = Sgd::new([w.clone()], 0.5).unwrap();
    let mut losses = Vec::new();
    for _ in 0..4 {
        optim.zero_grad();
        let loss = (&w * 3.0).sum(());
        loss.backward().unwrap();
        optim.step().unwrap();
        losses.push(loss.item().unwrap());
    }
    assert_eq!(losses, [3.0, -1.5, -6.0, -10.5]);
}

#[test]
fn the_size_of_an_axis_makes_shapes_without_a_result_and_mistakes_wait() {
    let x = Tensor::arange(6).reshape([2, 3]);
    assert_eq!(Tensor::arange(x.len_of(-1)).to_vec::<i32>().unwrap(), [0, 1, 2]);
    assert_eq!(Tensor::zeros([x.len_of(1), x.len_of(0)]).shape().unwrap(), [3, 2]);
    let n = Variable::new("n", 1, 3);
    let part = x.get((.., ..n.bind(2)));
    assert_eq!(Tensor::arange(part.len_of(1)).sum(()).item().unwrap(), 1.0);
    let line = next_line();
    let none = x.len_of(2);
    let e = error(Tensor::zeros([none]).realize());
    assert!(e.contains("len_of") && e.contains("axis 2") && e.contains(&line), "{e}");
    let e = error(Tensor::arange((&x + Tensor::ones([7])).len_of(0)).realize());
    assert!(e.contains("do not broadcast"), "{e}");
}

#[test]
fn values_are_given_and_read_in_the_ways_that_come_to_mind() {
    assert_eq!(Tensor::new(3.5f32).item().unwrap(), 3.5);
    assert_eq!(Tensor::new(vec![1.0f32, 2.0]).shape().unwrap(), [2]);
    assert_eq!(Tensor::new(vec![vec![1, 2], vec![3, 4]]).tolist::<Vec<Vec<i32>>>().unwrap(), [[1, 2], [3, 4]]);
    assert_eq!(Tensor::new([true, false]).to_vec::<bool>().unwrap(), [true, false]);
    let mut x = Tensor::new([1.0f32, 2.0]);
    x += 1.0;
    x *= &Tensor::new([2.0f32, 3.0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [4.0, 9.0]);
    assert_eq!((-&x).to_vec::<f32>().unwrap(), [-4.0, -9.0]);
    assert_eq!((1.0f32 / &x).to_vec::<f32>().unwrap(), [0.25, 1.0 / 9.0]);
    for labels in [Tensor::new([1i64]), Tensor::new([1u8]), Tensor::new([1i32])] {
        let loss = Tensor::new([[0.0f32, 100.0]]).sparse_categorical_crossentropy(&labels);
        assert_eq!(loss.item().unwrap(), 0.0);
    }
    let e = error(Tensor::new([[0.0f32, 1.0]]).sparse_categorical_crossentropy(&Tensor::new([1.0f32])).item());
    assert!(e.contains("integer") || e.contains("f32"), "{e}");
}
