//! Rewriting as production does it: the rules that there are, the trace of a compilation, and what FAST_MATH changes.

use doorbell::codegen::{self, OptChoice, check};
use doorbell::engine::interp::{Vars, run_kernel, run_program};
use doorbell::uop::{DType, Op, UOp, traced};
use std::collections::HashSet;

#[allow(dead_code)] // Other tests use the rest of these kernels.
mod codegen_kernels;
use codegen_kernels::{avx512, f32p, out, red};

/// The tables of docs/rewriting.md: a line a rule, in the order in which they are tried.
#[test]
fn the_page_lists_every_rule_in_order() {
    let page = include_str!("../docs/rewriting.md");
    let rules = codegen::rules();
    for list in ["fast-math", "symbolic", "decompose"] {
        let rows = rules.iter().filter(|r| r.list == list).map(|r| format!("| `{}` | {} |\n", r.name, r.about));
        let table = format!("### `{list}`\n\n| rule | what it does |\n|---|---|\n{}\n", rows.collect::<String>());
        assert!(page.contains(&table), "docs/rewriting.md should have:\n{table}");
    }
}

#[test]
fn rules_have_names_of_their_own_and_say_what_they_do() {
    let rules = codegen::rules();
    let names: HashSet<_> = rules.iter().map(|r| (r.list, r.name)).collect();
    assert_eq!(names.len(), rules.len());
    assert!(rules.iter().all(|r| !r.about.is_empty() && !r.roots.is_empty()));
}

#[test]
fn a_compilation_can_be_traced_and_gives_the_same_program() {
    let kernel = shares(|x| UOp::alu(Op::Exp2, [x * &float(-1.0)]));
    for fast_math in [false, true] {
        let compile = || codegen::compile(&kernel, &avx512(), &OptChoice::Heuristic, fast_math).unwrap().uops;
        let plain = compile();
        let (program, trace) = traced(compile);
        let (again, second) = traced(compile);
        assert!(program == plain && again == plain, "a trace changes nothing");
        assert_eq!(second.counts(), trace.counts(), "what nodes remember hides no step");
        let known: HashSet<_> = codegen::rules().iter().map(|r| r.name).collect();
        let used: HashSet<_> = trace.steps.iter().map(|s| s.rule).collect();
        assert!(used.is_subset(&known), "{used:?}");
        assert!(["float-exact", "exp2"].iter().all(|r| used.contains(r)), "simplifier and decompositions: {used:?}");
        assert_eq!(used.contains("div-by-invariant"), fast_math);
        assert!(trace.steps.iter().all(|s| s.before != s.after));
    }
}

fn float(v: f64) -> UOp {
    UOp::constant(DType::F32, v)
}
fn div(a: &UOp, b: &UOp) -> UOp {
    a.binary(Op::FDiv, b)
}

const N: i64 = 40;

/// Stores an expression of two inputs, element by element.
fn elementwise(value: impl Fn(&UOp, &UOp) -> UOp) -> UOp {
    let i = out(N, 0);
    let at = |slot| f32p(slot, N).index(&i);
    UOp::sink([at(0).store(&value(&at(1).load(), &at(2).load()), std::slice::from_ref(&i))])
}

/// Divides each row of a 5x8 matrix, each element changed by `f`, by its sum.
fn shares(f: impl Fn(&UOp) -> UOp) -> UOp {
    let (i, j, k) = (out(5, 0), out(8, 1), red(8, 2));
    let at = |slot, c: &UOp| f32p(slot, N).index(&(&(&i * 8) + c));
    let sum = f(&at(1, &k).load()).reduce(Op::Add, std::slice::from_ref(&k));
    UOp::sink([at(0, &j).store(&div(&f(&at(1, &j).load()), &sum), &[i, j])])
}

/// Nodes with this op in the loops of a program, innermost ones counted as often as they are executed.
fn executed(list: &[UOp], op: Op) -> i128 {
    let (mut times, mut found) = (vec![1], 0);
    for u in list {
        match u.op() {
            Op::Range => times.push(times[times.len() - 1] * (u.vmax() + 1)),
            Op::End => drop(times.pop()),
            o if o == op => found += times[times.len() - 1],
            _ => {}
        }
    }
    found
}

fn values(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Kernel, an op that FAST_MATH's rules save, how often it is executed without and with them.
#[test]
fn fast_math_makes_other_kernels_with_nearly_the_same_results() {
    let n = N as i128;
    let cases: [(&str, UOp, Op, i128, i128); 10] = [
        ("x * 0 + y", elementwise(|x, y| &(x * &float(0.0)) + y), Op::Load, 2 * n, n),
        ("(x - x) + y", elementwise(|x, y| &(x - x) + y), Op::Load, 2 * n, n),
        ("x / x + y", elementwise(|x, y| &div(x, x) + y), Op::FDiv, n, 0),
        ("(x * y) / y", elementwise(|x, y| div(&(x * y), y)), Op::FDiv, n, 0),
        ("x / 3", elementwise(|x, _| div(x, &float(3.0))), Op::FDiv, n, 0),
        ("x / (1 / y)", elementwise(|x, y| div(x, &UOp::alu(Op::Recip, [y.clone()]))), Op::Recip, n, 0),
        ("(x + 1.1) + 2.3", elementwise(|x, _| &(x + &float(1.1)) + &float(2.3)), Op::Add, 2 * n, n),
        ("(x * 1.1) * 2.3", elementwise(|x, _| &(x * &float(1.1)) * &float(2.3)), Op::Mul, 2 * n, n),
        ("x + 0", elementwise(|x, _| x + &float(0.0)), Op::Add, n, 0),
        ("a row by its sum", shares(UOp::clone), Op::FDiv, n, 0),
    ];
    let input: Vec<f32> = (0..N).map(|k| (k as f32).mul_add(0.37, 0.11)).collect();
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let turned: Vec<f32> = input.iter().rev().copied().collect();
    let start = [vec![0; 4 * N as usize], bytes(&input), bytes(&turned)];
    for (name, kernel, op, strict_count, fast_count) in cases {
        let mut want = start.to_vec();
        run_kernel(&kernel, &mut want, &Vars::default()).unwrap();
        for (fast_math, count) in [(false, strict_count), (true, fast_count)] {
            let p = codegen::compile(&kernel, &avx512(), &OptChoice::None, fast_math).unwrap();
            check::verify(&p.uops).unwrap();
            // Addresses are sums and products too: integers do not count here.
            let floats: Vec<UOp> = p.uops.iter().filter(|u| !u.dtype().is_int() || u.op() != op).cloned().collect();
            assert_eq!(executed(&floats, op), count, "{name}: {op:?} with FAST_MATH={}", u8::from(fast_math));
            let mut got = start.to_vec();
            run_program(&p, &mut got, &Vars::default()).unwrap();
            // Sums may be added up in another order.
            if !fast_math && !kernel.any(|u| u.op() == Op::Reduce) {
                assert_eq!(got[0], want[0], "{name}: strict results are the reference's bit for bit");
            }
            for (g, w) in values(&got[0]).iter().zip(values(&want[0])) {
                assert!((g - w).abs() <= 1e-6 * w.abs(), "{name}: {g} and {w}");
            }
        }
    }
}
