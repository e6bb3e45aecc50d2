//! Times of compiling, on the host: schedule, code generation, machine code.

use super::inputs::random_floats;
use crate::case::{Case, Point, Subject, Unit, words};
use crate::error::BenchError;
use crate::machine::Machine;
use doorbell::codegen::{OptChoice, compile};
use doorbell::schedule::{ScheduleCache, ScheduleItem, schedule};
use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;
use std::sync::Arc;
use std::time::Instant;

/// The entries.
pub(crate) const CASES: &[Case] = &[Case {
    name: "compile/kernel",
    about: "one kernel from its Tensor graph to machine code for the device, on one core of the host",
    unit: Unit::Nanoseconds,
    axes: &[words("kernel", &["add", "softmax", "product"])],
    make: kernel,
}];

fn kernel(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (x, y) = (random_floats(&[256, 256], Scalar::F32)?, random_floats(&[256, 256], Scalar::F32)?);
    let graph = match point.word("kernel") {
        "add" => &x + &y,
        "softmax" => x.softmax(-1),
        _ => x.matmul(&y),
    };
    let root = graph.contiguous().uop().map_err(doorbell::engine::Error::from)?;
    let roots = [(root, Arc::from(machine.name.as_str()))];
    Ok(Subject::host(1.0, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            let plan = schedule(&roots, &ScheduleCache::default()).map_err(doorbell::engine::Error::from)?;
            let kernels = plan.items.iter().filter_map(|item| match item {
                ScheduleItem::Kernel { ast, .. } => Some(ast),
                ScheduleItem::Copy { .. } => None,
            });
            kernels.map(|ast| one(machine, ast)).collect::<Result<Vec<_>, _>>()?;
        }
        Ok(began.elapsed().as_nanos() as f64)
    }))
}

fn one(machine: &Machine, ast: &UOp) -> Result<(), BenchError> {
    let target = machine.open.target();
    let program = compile(ast, target, &OptChoice::Heuristic, false).map_err(doorbell::engine::Error::from)?;
    machine.open.backend.compile(&program)?;
    Ok(())
}
