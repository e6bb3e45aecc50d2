//! Whole programs as they are recorded: a block of a transformer, a training step of a small network.

use super::inputs::{captured, random_floats};
use crate::case::{Case, Point, Subject, Unit};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::tensor::prelude::*;
use std::time::Instant;

/// The entries.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "program/transformer",
        about: "one block of a transformer, forward: 512 tokens of 1024 (a CPU: 64 of 256)",
        unit: Unit::Nanoseconds,
        axes: &[],
        make: transformer,
    },
    Case {
        name: "program/step",
        about: "a training step of a network of two layers, batch 256 (784, 512, 10)",
        unit: Unit::Nanoseconds,
        axes: &[],
        make: step,
    },
];

/// A program's commands as one recorded list, by the host's clock.
fn recorded(machine: &Machine, commands: &[doorbell::device::Command], out: Tensor) -> Result<Subject, BenchError> {
    let mut list = machine.device().record(commands)?;
    Ok(Subject::host(1.0, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            let point = list.replay(&[])?;
            machine.device().wait(&point, machine.patience())?;
        }
        Ok(began.elapsed().as_nanos() as f64)
    })
    .checked(move |_| {
        let values = out.to_f64()?;
        let is_good = values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0);
        if is_good {
            Ok(())
        } else {
            Err(BenchError::Wrong("a result that is not finite, or nothing but zeros".into()))
        }
    }))
}

fn transformer(machine: &Machine, _: &Point) -> Result<Subject, BenchError> {
    let (tokens, width) = match (machine.is_small, machine.kind) {
        (true, _) => (8, 32),
        (false, Kind::Cpu) => (64, 256),
        (false, _) => (512, 1024),
    };
    let head = width / if machine.is_small { 2 } else { 8 };
    let heads = width / head;
    let scaled = |shape: &[usize]| -> Result<Tensor, BenchError> {
        let x = &random_floats(shape, Scalar::F32)? * (1.0 / (shape[0] as f64).sqrt());
        x.realize()?;
        Ok(x)
    };
    let x = random_floats(&[tokens, width], Scalar::F32)?;
    let [q, k, v, o] = [(); 4].map(|()| scaled(&[width, width]));
    let (q, k, v, o) = (q?, k?, v?, o?);
    let (up, down) = (scaled(&[width, 4 * width])?, scaled(&[4 * width, width])?);
    let split = |x: &Tensor, w: &Tensor| x.matmul(w).reshape([1, tokens, heads, head]).permute([0, 2, 1, 3]);
    let (out, captured) = captured(|| {
        let h = x.layernorm(-1, 1e-5);
        let a = split(&h, &q).attention(&split(&h, &k), &split(&h, &v), None, true);
        let y = &x + &a.permute([0, 2, 1, 3]).reshape([tokens, width]).matmul(&o);
        &y + &y.layernorm(-1, 1e-5).matmul(&up).gelu().matmul(&down)
    })?;
    recorded(machine, &captured.commands, out)
}

fn step(machine: &Machine, _: &Point) -> Result<Subject, BenchError> {
    let (batch, inputs, hidden) = if machine.is_small { (8, 16, 8) } else { (256, 784, 512) };
    let x = random_floats(&[batch, inputs], Scalar::F32)?;
    let (w1, w2) = (random_floats(&[inputs, hidden], Scalar::F32)?, random_floats(&[hidden, 10], Scalar::F32)?);
    let (mut tensors, captured) = doorbell::engine::captured(|| {
        let loss = x.matmul(&w1).relu().matmul(&w2).log_softmax(-1).square().mean(());
        Ok(loss.gradient(&[&w1, &w2]))
    })?;
    let out = tensors.pop().ok_or_else(|| BenchError::Empty("no gradient".into()))?;
    recorded(machine, &captured.commands, out)
}
