//! The ramp for newcomers: Tensors, then kernels, then the UOps beneath and rules that rewrite them.

use crate::{Fragment, alone, debug, is_program, printed, said};
use doorbell::codegen::{OptChoice, compile};
use doorbell::engine::{Options, session};
use doorbell::tensor::prelude::*;
use doorbell::tensor::{HOST, default_device};
use doorbell::uop::{DType, Op, Pat, PatternMatcher, Rule, UOp, graph_rewrite};

// Part 1

#[test]
fn a_tensor_is_on_the_default_device_and_is_not_computed() -> Fragment {
    println!("{}", default_device()); // CPU, AMD, NV: the best that is there
    let t = Tensor::new([1, 2, 3, 4]);
    assert_eq!(t.device(), default_device());
    assert_eq!(t.dtype()?, Scalar::I32);
    assert_eq!(t.shape()?, [4]);
    // `{:?}` says what it is; `{}` computes it.
    let what = format!("{t:?}");
    assert!(what.contains("Copy") && what.contains(&*t.device()) && what.contains("grad none"), "{what}");
    assert_eq!(format!("{t}"), "[1 2 3 4]");
    Ok(())
}

#[test]
fn its_uop_says_how_to_compute_it_and_becomes_a_buffer() -> Fragment {
    let t = Tensor::new([1, 2, 3, 4]);
    let before = t.uop()?;
    // A copy from the program's memory.
    assert_eq!(before.op(), Op::Copy);
    assert_eq!(before.src()[0].op(), Op::Buffer);
    assert_eq!(before.src()[0].device().map(|d| &**d), Some(HOST));
    let text = before.to_string();
    assert!(text.contains("Copy") && text.contains("Buffer"), "{text}");
    t.realize()?;
    assert_eq!(t.uop()?.op(), Op::Buffer);
    assert_eq!(t.uop()?.device(), Some(&t.device()));
    Ok(())
}

#[test]
fn program_that_realizes_a_tensor() {
    if is_program() {
        Tensor::new([1, 2, 3, 4]).realize().unwrap();
    }
}

#[test]
fn debug_2_shows_the_copy() {
    let text = printed("ramp::program_that_realizes_a_tensor", &[("DEBUG", "2"), ("CPU", "1")]);
    assert!(text.contains("CPU is the default device: CPU=1 names it"), "{text}");
    assert!(text.contains("*** CPU") && text.contains("copy 16 B <- HOST"), "{text}");
}

#[test]
fn arithmetic_makes_a_graph_whose_value_can_be_read() -> Fragment {
    let t = Tensor::new([1, 2, 3, 4]).realize()?.clone();
    let twice = &t * 2;
    let u = twice.uop()?;
    assert_eq!(u.op(), Op::Mul);
    assert_eq!(u.src()[0], t.uop()?, "the buffer");
    assert_eq!((u.src()[1].op(), u.src()[1].as_int()), (Op::Const, Some(2)), "a number is broadcast by the kernel");
    assert_eq!(twice.tolist::<Vec<i32>>()?, [2, 4, 6, 8]);
    Ok(())
}

#[test]
fn equal_expressions_are_one_uop_and_realizing_one_realizes_both() -> Fragment {
    alone(|s| {
        let t = Tensor::new([1, 2, 3, 4]);
        let (first, second) = (&t * 4, &t * 4);
        assert_eq!(first.uop()?, second.uop()?); // == is identity: there is only one such node
        assert!(!first.is(&second), "two Tensors of it");
        first.realize()?;
        assert_eq!(second.uop()?.op(), Op::Buffer);
        assert_eq!(first.uop()?, second.uop()?);
        let before = s.counters.totals().kernels;
        assert_eq!(second.tolist::<Vec<i32>>()?, [4, 8, 12, 16]);
        assert_eq!(s.counters.totals().kernels, before, "only a copy to the host");
        Ok(())
    })
}

#[test]
fn the_gradient_of_log_is_one_over_x_in_the_kernel_too() -> Fragment {
    let t = Tensor::new([3.0f32]);
    let slope = t.log().sum(()).gradient(&[&t]).remove(0);
    assert!((slope.item()? - 1.0 / 3.0).abs() < 1e-6);
    // DEBUG=4 prints the code of each kernel: a division, and no logarithm.
    let t = Tensor::new([3.0f32]);
    let (_, text) = said(debug(4), || t.log().sum(()).gradient(&[&t]).remove(0).item());
    assert!(text.contains("Recip(") || text.contains('/'), "{text}");
    assert!(!text.contains("Log2"), "{text}");
    Ok(())
}

// Part 2

#[test]
fn the_graph_adds_3_and_4_and_its_kernel_7() -> Fragment {
    let t = Tensor::new([1, 2, 3, 4]).realize()?.clone();
    let sum = &t + 3 + 4;
    let u = sum.uop()?;
    assert_eq!((u.op(), u.src()[0].op()), (Op::Add, Op::Add));
    let adds = |u: &UOp, n: i64| u.any(|u| u.as_int() == Some(n) && u.dtype().scalar == Scalar::I32);
    assert!(adds(&u, 3) && adds(&u, 4) && !adds(&u, 7));

    // What realize would run: one kernel, whose graph has a store in place of the Tensor.
    let plan = sum.schedule()?;
    let kernels: Vec<UOp> = plan.kernels().cloned().collect();
    let [ast] = kernels.as_slice() else { return Err(format!("{} kernels", kernels.len()).into()) };
    assert_eq!((ast.op(), ast.src()[0].op()), (Op::Sink, Op::Store));

    // The compiler rewrites it to a linear program for the device: it adds 7.
    let device = session()?.device(&default_device())?;
    let program = compile(ast, device.target(), &OptChoice::Heuristic, false)?;
    let added = program.uops.iter().filter(|u| u.op() == Op::Add && u.dtype().scalar == Scalar::I32);
    assert!(added.clone().any(|u| adds(u, 7)) && !program.uops.iter().any(|u| adds(u, 3)), "{}", program.source());
    assert_eq!(sum.tolist::<Vec<i32>>()?, [8, 9, 10, 11]);
    Ok(())
}

#[test]
fn debug_4_shows_the_code_and_noopt_a_plain_loop() -> Fragment {
    let run = |options: Options| {
        let (value, text) = said(options, || (Tensor::new([1, 2, 3, 4]) + 3 + 4).to_vec::<i32>());
        assert_eq!(value.unwrap(), [8, 9, 10, 11]);
        text
    };
    let (fast, plain) = (run(debug(4)), run(Options { noopt: true, ..debug(4) }));
    // "E" for elementwise, then the axes.
    assert!(fast.contains("E_4") && !fast.contains("for "), "{fast}");
    assert!(plain.contains("E_4") && plain.contains("for "), "{plain}");
    // A reduction's name begins with "r".
    let (_, text) = said(debug(2), || Tensor::rand([64]).sum(()).item());
    assert!(text.lines().any(|l| l.contains(" r_")), "{text}");
    Ok(())
}

// Part 3

/// 2 + 2.
fn sum() -> UOp {
    let (a, b) = (UOp::constant(DType::I32, 2), UOp::constant(DType::I32, 2));
    assert_eq!(a, b, "equal constants are one node");
    &a + &b
}

#[test]
fn uops_are_added_and_printed_with_shared_nodes_named() {
    let twice = &sum() + &sum();
    let text = twice.to_string();
    assert!(text.contains("Add") && text.contains(":=UOp(Add") && text.matches("UOp(Add").count() == 2, "{text}");
    assert_eq!(sum().src()[0], sum().src()[1]);
}

#[test]
fn a_pattern_folds_constants_in_long_and_in_short() -> Fragment {
    let long = Pat::op(Op::Add).src([Pat::op(Op::Const).named("c1"), Pat::op(Op::Const).named("c2")]);
    let short = Pat::cvar("c1") + Pat::cvar("c2");
    let matcher = |pat: Pat| -> PatternMatcher {
        PatternMatcher::new([Rule::new("fold", pat, |m| {
            Some(m["c1"].const_like((m.int("c1")? + m.int("c2")?) as i64))
        })])
    };
    let [a, b] = [long, short].map(|pat| graph_rewrite(&sum(), &matcher(pat), &mut ()));
    let (a, b) = (a?, b?);
    assert_eq!(a, UOp::constant(DType::I32, 4));
    assert_eq!(a, b, "the identical node");
    Ok(())
}
