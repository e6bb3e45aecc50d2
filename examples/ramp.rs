//! An introduction for newcomers, in four steps: a lazy Tensor, a kernel, the UOps beneath, a size that varies.
//!
//! `cargo run --release --example ramp`; every claim is asserted, so it is a test too. `DEBUG=2` prints a line a
//! kernel, `DEBUG=4` its code, `NOOPT=1` leaves the loops plain.

use doorbell::codegen::{OptChoice, compile, rules};
use doorbell::engine::{Compiled, session};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{TensorError, default_device};
use doorbell::uop::symbolic::fast;
use doorbell::uop::{DType, Op, Pat, PatternMatcher, Rule, UOp, graph_rewrite, traced};
use std::error::Error;
use std::sync::Arc;

/// What a part ends with.
pub type Step = Result<(), Box<dyn Error>>;

/// All parts, in their order.
pub fn main() -> Step {
    tensors()?;
    kernels()?;
    uops()?;
    sizes()
}

/// Part 1: a Tensor is a handle on a UOp, and nothing runs before a value is read.
fn tensors() -> Step {
    println!("--- the device: {}", default_device());
    let t = Tensor::new([1, 2, 3, 4]);
    println!("--- a Tensor of host data is a copy that has not happened yet\n{t:?}\n{}", t.uop()?);
    assert_eq!(t.uop()?.op(), Op::Copy);
    t.realize()?;
    println!("--- once realized it is a buffer on the device\n{t:?}\n{}", t.uop()?);
    assert!(is_buffer(&t)?);

    let (a, b) = (&t * 2, &t * 2);
    println!("--- arithmetic only grows the graph\n{}", a.uop()?);
    println!("--- written twice, it is one node: {}", a.uop()? == b.uop()?);
    assert_eq!(a.uop()?, b.uop()?);
    a.realize()?;
    assert!(is_buffer(&b)?, "realizing one realizes the other");
    assert_eq!(b.to_vec::<i32>()?, [2, 4, 6, 8]);

    let x = Tensor::new([1.0f32, 2.0, 4.0]);
    let slope = x.log().sum(()).gradient(&[&x]).remove(0);
    println!("--- the gradient of log is {:?}", slope.to_vec::<f32>()?);
    for (got, x) in slope.to_vec::<f32>()?.iter().zip([1.0, 2.0, 4.0]) {
        assert!((got - 1.0 / x).abs() < 1e-6);
    }

    let bad = &t + &x.reshape([3]);
    let error = bad.shape().unwrap_err();
    println!("--- a mistake waits until a value is asked for, and names its line\n{error}\n");
    assert!(error.to_string().contains("ramp.rs"));
    Ok(())
}

/// Whether a Tensor is (movement of) memory.
fn is_buffer(t: &Tensor) -> Result<bool, TensorError> {
    let mut u = t.uop()?;
    while u.op().is_movement() {
        u = u.src()[0].clone();
    }
    Ok(u.op() == Op::Buffer)
}

/// Part 2: realizing finds kernels in the graph and makes machine code of them.
fn kernels() -> Step {
    let t = Tensor::new([1, 2, 3, 4]);
    let sum = &t + 3 + 4;
    println!("--- + 3 + 4, as it was written\n{}", sum.uop()?);
    let made = compiled_by(|| sum.realize().map(|_| ()))?;
    assert_eq!(sum.to_vec::<i32>()?, [8, 9, 10, 11]);
    let [kernel] = made.as_slice() else { return Err(format!("{} kernels", made.len()).into()) };
    println!("--- the kernel of it\n{}", kernel.ast);
    let simple = kernel.ast.simplify();
    println!("--- simplified, it adds 7\n{simple}");
    let has = |u: &UOp, i| u.any(|u| u.as_int() == Some(i) && u.dtype().scalar == Scalar::I32);
    assert!(has(&simple, 7) && !has(&simple, 3));
    assert!(kernel.program.uops.iter().any(|u| u.op() == Op::Add && has(u, 7)));
    let target = session()?.device(&default_device())?.target().clone();
    let (plain, trace) = traced(|| compile(&kernel.ast, &target, &OptChoice::None, false));
    let plain = plain?;
    println!("--- what the compiler's rules did on the way\n{trace}");
    assert!(trace.steps.iter().any(|s| s.rule == "machine-sum" && s.after.any(|u| u.as_int() == Some(7))));
    println!("--- its code\n{}", kernel.program.source());
    println!("--- its code with NOOPT=1\n{}", plain.source());
    println!("--- {} bytes of machine code in an ELF object\n", kernel.object_file()?.len());
    Ok(())
}

/// The kernels that were compiled while `work` ran.
fn compiled_by<E: Error + 'static>(work: impl FnOnce() -> Result<(), E>) -> Result<Vec<Arc<Compiled>>, Box<dyn Error>> {
    let s = session()?;
    let all = || s.compiled_kernels(&default_device());
    let before = all();
    work()?;
    Ok(all().into_iter().filter(|k| !before.iter().any(|b| Arc::ptr_eq(b, k))).collect())
}

/// Part 3: everything is a graph of UOps, and named rules rewrite it: yours and the compiler's by the same driver.
fn uops() -> Step {
    let two = UOp::constant(DType::I32, 2);
    let sum = &two + &UOp::constant(DType::I32, 2);
    println!("--- 2 + 2\n{sum}");
    assert_eq!(sum.src()[0], sum.src()[1], "equal constants are one node");

    let long = Pat::op(Op::Add).src([Pat::op(Op::Const).named("a"), Pat::op(Op::Const).named("b")]);
    let short = Pat::cvar("a") + Pat::cvar("b");
    let folded = |name, pat: Pat| -> Result<UOp, Box<dyn Error>> {
        let rule = Rule::new(name, pat, |m| Some(m["a"].const_like((m.int("a")? + m.int("b")?) as i64)));
        let rules: PatternMatcher = PatternMatcher::new([rule]);
        Ok(graph_rewrite(&sum, &rules, &mut ())?)
    };
    let (a, b) = (folded("fold, in long", long)?, folded("fold, in short", short)?);
    println!("--- folded by a pattern\n{a}");
    assert_eq!(a, UOp::constant(DType::I32, 4));
    assert_eq!(a, b, "both spellings give the identical node");

    let (c, trace) = traced(|| sum.simplify());
    println!("--- folded by the compiler's own rules\n{trace}");
    assert_eq!((c, trace.counts()), (a, vec![("constant-fold", 1)]));
    println!("--- which are {}; FAST_MATH adds these", rules().len());
    for rule in rules().iter().filter(|r| r.list == "fast-math") {
        println!("{:18} {}", rule.name, rule.about);
    }
    let x = UOp::param(0, DType::F32, 1).index(&UOp::int(0)).load();
    let zero = &x * &UOp::constant(DType::F32, 0.0);
    assert_eq!(zero.simplify(), zero, "x may be NaN or infinite");
    assert_eq!(zero.simplify_with(fast())?, UOp::constant(DType::F32, 0.0));
    Ok(())
}

/// Part 4: a size may be a variable; one set of kernels serves all its values.
fn sizes() -> Step {
    let n = Variable::new("n", 4, 8);
    let data = [1.0f32, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let base = Tensor::from_slice(&data, [8]);
    base.realize()?;
    let mut sets = Vec::new();
    for len in 4..=8usize {
        let mut found = Vec::new();
        let made = compiled_by(|| {
            let x = base.get((..n.bind(len as i64),));
            let all = [x.sum(()), x.mean(()), x.std((), 1), x.var((), 1)];
            Tensor::realize_all(&all)?;
            found = all.iter().map(Tensor::item).collect::<Result<_, _>>()?;
            Ok::<(), doorbell::engine::Error>(())
        })?;
        let v: Vec<f64> = data[..len].iter().map(|x| f64::from(*x)).collect();
        let mean = v.iter().sum::<f64>() / len as f64;
        let var = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (len - 1) as f64;
        for (got, want) in found.iter().zip([mean * len as f64, mean, var.sqrt(), var]) {
            assert!((got - want).abs() < 1e-4 * want, "{len}: {got} {want}");
        }
        println!("--- length {len}: sum, mean, std, var = {found:?}; kernels compiled: {}", made.len());
        sets.push(made.len());
    }
    assert!(sets[0] > 0 && sets[1..].iter().all(|k| *k == 0), "{sets:?}");
    Ok(())
}
