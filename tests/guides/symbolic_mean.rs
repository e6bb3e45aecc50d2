//! The notes on a symbolic mean: sums of two lengths are two kernels, of a variable length one; then the mean.

use crate::{Fragment, alone, debug, said};
use doorbell::codegen::{OptChoice, compile};
use doorbell::engine::session;
use doorbell::tensor::default_device;
use doorbell::tensor::prelude::*;
use doorbell::uop::{Op, UOp};

/// A Tensor in memory, of numbers that a plain loop can check.
fn numbers(count: usize) -> Tensor {
    let list: Vec<f32> = (0..count).map(|k| (k * k) as f32 * 0.25 - 1.0).collect();
    Tensor::from_slice(&list, [count]).realize().unwrap().clone()
}

#[test]
fn a_sum_is_a_kernel_that_debug_5_shows() {
    let (value, text) = said(debug(5), || {
        let a = Tensor::rand(4);
        (a.sum(()).item(), a.to_vec::<f32>())
    });
    let (sum, list) = (value.0.unwrap(), value.1.unwrap());
    assert!((sum - list.iter().map(|x| f64::from(*x)).sum::<f64>()).abs() < 1e-6);
    assert!(text.lines().any(|l| l.starts_with("void r_")), "the code: {text}");
    assert!(text.contains("Sink") && text.contains("Reduce"), "its graph: {text}");
}

#[test]
fn sums_of_two_lengths_are_two_kernels() {
    let (four, eight) = (numbers(4), numbers(8));
    alone(|s| {
        four.sum(()).item().unwrap();
        assert_eq!(s.counters.totals().compiled, 1);
        eight.sum(()).item().unwrap();
        assert_eq!(s.counters.totals().compiled, 2);
    });
}

#[test]
fn sums_of_a_variable_length_are_one_kernel() {
    let base = numbers(8);
    let length = Variable::new("length", 4, 8);
    alone(|s| {
        let mut bound = length.bind(4);
        assert!((base.get((..bound.clone(),)).sum(()).item().unwrap() - (-4.0 + 0.25 * 14.0)).abs() < 1e-6);
        // Unbound and bound again.
        let (length, value) = Variable::unbind(&bound).unwrap();
        assert_eq!(value, 4);
        bound = length.bind(8);
        assert!((base.get((..bound,)).sum(()).item().unwrap() - (-8.0 + 0.25 * 140.0)).abs() < 1e-6);
        assert_eq!(s.counters.totals().compiled, 1);
        let kernel = &s.compiled_kernels("CPU")[0];
        // The length is an argument of the kernel, and the loop's end.
        assert_eq!(kernel.program.vars.len(), 1);
        assert!(kernel.program.source().contains("length"), "{}", kernel.program.source());
    });
}

#[test]
fn random_tensors_may_have_a_variable_length() -> Fragment {
    let length = Variable::new("length", 4, 8);
    for n in [4, 8] {
        let a = Tensor::rand(length.bind(n));
        let sum: f64 = a.to_f64()?.iter().sum();
        assert!((a.sum(()).item()? - sum).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn in_the_linear_program_the_loop_ends_at_the_variable() -> Fragment {
    let length = Variable::new("length", 4, 8);
    let plan = numbers(8).get((..length.bind(4),)).sum(()).schedule()?;
    let ast = plan.kernels().next().ok_or("no kernel")?;
    let program = compile(ast, session()?.device(&default_device())?.target(), &OptChoice::None, false)?;
    let at = |op: Op| program.uops.iter().position(|u| u.op() == op).ok_or(format!("no {op:?}"));
    // Arguments, the accumulator, the loop with its load and addition, the store.
    let order = [Op::Param, Op::Range, Op::Load, Op::SetAcc, Op::End, Op::Store].map(at);
    let order: Vec<usize> = order.into_iter().collect::<Result<_, _>>()?;
    assert!(order.is_sorted(), "{order:?}");
    assert!(at(Op::Acc)? < at(Op::Range)?);
    let end = &program.uops[at(Op::Range)?].src()[0];
    assert!(end.any(|u| u.op() == Op::Var), "{}", end.render());
    Ok(())
}

#[test]
fn a_sum_is_divided_by_the_variable() -> Fragment {
    let length = Variable::new("length", 4, 8);
    let bound = length.bind(4);
    let a = numbers(8).get((..bound.clone(),));
    let mean = (-4.0 + 0.25 * 14.0) / 4.0;
    // A Tensor can be made of a variable, and a variable can be an operand.
    for by_hand in [a.sum(()).div(&Tensor::from(&bound)), a.sum(()).div(&Tensor::from(bound))] {
        assert!((by_hand.item()? - mean).abs() < 1e-6);
    }
    assert!((a.mean(()).item()? - mean).abs() < 1e-6);
    Ok(())
}

#[test]
fn mean_max_min_variance_and_deviation_are_compiled_once_for_all_lengths() -> Fragment {
    let base = numbers(8);
    let list = base.to_vec::<f32>()?;
    let length = Variable::new("length", 4, 8);
    alone(|s| {
        let mut compiled = Vec::new();
        for n in 4..=8usize {
            let x = base.get((..length.bind(n as i64),));
            let v: Vec<f64> = list[..n].iter().map(|x| f64::from(*x)).collect();
            let mean = v.iter().sum::<f64>() / n as f64;
            let var = v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            let (max, min) = (v.iter().copied().fold(f64::MIN, f64::max), v.iter().copied().fold(f64::MAX, f64::min));
            let wanted = [mean, max, min, var, var.sqrt()];
            let found = [x.mean(()), x.max(()), x.min(()), x.var((), 1), x.std((), 1)];
            for (f, w) in found.iter().zip(wanted) {
                let f = f.item()?;
                assert!((f - w).abs() < 1e-5 * (1.0 + w.abs()), "length {n}: {f}, wanted {w}");
            }
            compiled.push(s.counters.totals().compiled);
        }
        assert!(compiled.iter().all(|c| *c == compiled[0]), "{compiled:?}");
        Ok(())
    })
}

#[test]
fn a_variable_without_a_value_is_an_error_that_says_so() {
    let length = Variable::new("length", 4, 8);
    let e = numbers(8).get((..UOp::from(length.uop()),)).sum(()).item().unwrap_err().to_string();
    assert!(e.contains("variable 'length' has no value in this run"), "{e}");
}
