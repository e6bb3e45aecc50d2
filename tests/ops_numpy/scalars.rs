//! The IR's own evaluation of one element (`uop::eval_alu`, `cast_const`) against numpy: what constant folding, the
//! interpreter and every decomposition are held to.

use crate::compare::compare;
use crate::reader::{Array, Case, cases};
use doorbell::uop::{ConstVal, Op, cast_const, eval_alu, to_bits};

/// Ops of the references that are one op of the IR.
const OPS: &[(&str, Op)] = &[
    ("neg", Op::Neg),
    ("sqrt", Op::Sqrt),
    ("reciprocal", Op::Recip),
    ("trunc", Op::Trunc),
    ("exp2", Op::Exp2),
    ("log2", Op::Log2),
    ("sin", Op::Sin),
    ("add", Op::Add),
    ("sub", Op::Sub),
    ("mul", Op::Mul),
    ("div", Op::FDiv),
    ("maximum", Op::Max),
    ("pow", Op::Pow),
    ("floordiv", Op::FloorDiv),
    ("mod", Op::FloorMod),
    ("lshift", Op::Shl),
    ("rshift", Op::Shr),
    ("bitwise_and", Op::And),
    ("bitwise_or", Op::Or),
    ("bitwise_xor", Op::Xor),
    ("lt", Op::CmpLt),
    ("eq", Op::CmpEq),
    ("ne", Op::CmpNe),
    ("where", Op::Where),
    ("threefry", Op::Threefry),
];

/// What the evaluator makes of a case; `None` for cases that are more than one op (broadcast, promoted, another op).
fn evaluate(case: &Case) -> Option<Array> {
    let want = &case.outputs[0];
    let source = case.inputs.last()?;
    if case.inputs.iter().any(|a| a.shape != want.shape) {
        return None;
    }
    let element: Box<dyn Fn(usize) -> Option<ConstVal>> = if case.op == "cast" {
        Box::new(|i| Some(cast_const(source.value(i), want.dtype)))
    } else {
        let op = OPS.iter().find(|(name, _)| *name == case.op)?.1;
        let values = &case.inputs[if op == Op::Where { 1 } else { 0 }..];
        let result = if matches!(op, Op::CmpLt | Op::CmpEq | Op::CmpNe) { source.dtype } else { want.dtype };
        if values.iter().any(|a| a.dtype != result) {
            return None;
        }
        Box::new(move |i| eval_alu(op, result, &case.inputs.iter().map(|a| a.value(i)).collect::<Vec<_>>()))
    };
    let mut got = Array { dtype: want.dtype, shape: want.shape.clone(), bytes: Vec::new() };
    for i in 0..want.len() {
        let value = element(i)?;
        got.bytes.extend_from_slice(&to_bits(value, want.dtype).to_le_bytes()[..want.dtype.size_bytes()]);
    }
    Some(got)
}

fn evaluator_agrees(group: &str, at_least: usize) {
    let (mut run, mut faults) = (0, Vec::new());
    for case in cases(group) {
        if let Some(got) = evaluate(&case) {
            run += 1;
            if let Err(fault) = compare(&got, &case.outputs[0], &case.tolerance) {
                faults.push(format!("{}: {fault}", case.name));
            }
        }
    }
    assert!(faults.is_empty(), "{} of {run} cases fail:\n{}", faults.len(), faults.join("\n"));
    assert!(run >= at_least, "only {run} cases were run");
}

#[test]
fn unary_ops_of_the_evaluator_agree_with_numpy() {
    evaluator_agrees("unary", 70);
}

#[test]
fn binary_ops_of_the_evaluator_agree_with_numpy() {
    evaluator_agrees("binary", 180);
}

#[test]
fn casts_of_the_evaluator_agree_with_numpy() {
    evaluator_agrees("casts", 210);
}

#[test]
fn the_random_block_of_the_evaluator_agrees_with_its_known_answers() {
    evaluator_agrees("creation", 4);
}
