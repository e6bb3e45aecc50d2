//! Launches and copies of this runtime, measured.
//!
//! The same measurements as in `theirs`: a block of 128 threads that does nothing; copies between memory that both
//! sides see and memory of the GPU.

use crate::machine::Machine;
use doorbell::device::nv::Placement;
use doorbell::device::{Arg, Command, Device, QueueKind};
use hw_contact::Failure;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// Counts and sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub launches: usize,
    pub graph: usize,
    pub replays: usize,
    pub copy_bytes: usize,
    pub copies: usize,
}

impl Sizes {
    /// Small ones for a software GPU.
    pub const fn of(is_quick: bool) -> Self {
        match is_quick {
            true => Self { launches: 50, graph: 16, replays: 5, copy_bytes: 1 << 20, copies: 2 },
            false => Self { launches: 10_000, graph: 1000, replays: 100, copy_bytes: 256 << 20, copies: 10 },
        }
    }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Seconds that something took.
pub fn seconds<E>(run: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64())
}

/// # Errors
/// The device's.
pub fn measure(machine: &Machine, sizes: Sizes) -> Result<Value, Failure> {
    let mut reported = Map::new();
    launches(machine, sizes, &mut reported)?;
    copies(machine, sizes, &mut reported)?;
    Ok(Value::Object(reported))
}

fn launches(machine: &Machine, sizes: Sizes, reported: &mut Map<String, Value>) -> Result<(), Failure> {
    let device = &machine.device;
    let nothing = machine.load("nothing")?;
    let one = [Machine::launch(&nothing, vec![])];
    machine.run(&one)?;
    let each = (0..sizes.launches).map(|_| seconds(|| machine.run(&one)));
    let each = each.collect::<Result<Vec<f64>, Failure>>()?;
    reported.insert("launch_latency_us".into(), json!(median(each) * 1e6));
    // Submission after submission, one wait at the end.
    let took = seconds(|| -> Result<(), Failure> {
        let mut last = None;
        for _ in 0..sizes.launches {
            last = Some(device.submit(QueueKind::Compute, &one)?);
        }
        last.map_or(Ok(()), |point| Ok(device.wait(&point, machine.patience)?))
    })?;
    reported.insert("launch_rate_per_s".into(), json!(sizes.launches as f64 / took));
    // One submission of many.
    let many: Vec<Command> = (0..sizes.graph).map(|_| Machine::launch(&nothing, vec![])).collect();
    let each = (0..sizes.replays).map(|_| seconds(|| machine.run(&many)));
    let each = each.collect::<Result<Vec<f64>, Failure>>()?;
    reported.insert("list_us_per_kernel".into(), json!(median(each) * 1e6 / sizes.graph as f64));
    let mut graph = device.record(&many)?;
    let mut replay = || -> Result<f64, Failure> {
        seconds(|| {
            let point = graph.replay(&[])?;
            Ok(device.wait(&point, machine.patience)?)
        })
    };
    for _ in 0..5 {
        replay()?;
    }
    let each = (0..sizes.replays).map(|_| replay()).collect::<Result<Vec<f64>, Failure>>()?;
    reported.insert("graph_us_per_kernel".into(), json!(median(each) * 1e6 / sizes.graph as f64));
    reported.insert("graph_kernels".into(), json!(sizes.graph));
    Ok(())
}

fn copies(machine: &Machine, sizes: Sizes, reported: &mut Map<String, Value>) -> Result<(), Failure> {
    let device = &machine.device;
    let len = sizes.copy_bytes as u64;
    let (far, other) = (device.alloc(len)?, device.alloc(len)?);
    let pinned = device.alloc_host(len, Placement::Host)?;
    let bandwidth = |dst, src| -> Result<f64, Failure> {
        let copy = [Command::copy(dst, src, len)];
        let run = || -> Result<(), Failure> {
            let point = device.submit(QueueKind::Copy, &copy)?;
            Ok(device.wait(&point, machine.patience)?)
        };
        run()?;
        let each = (0..sizes.copies).map(|_| seconds(run)).collect::<Result<Vec<f64>, Failure>>()?;
        Ok(len as f64 / median(each) / 1e9)
    };
    reported.insert("copy_bytes".into(), json!(len));
    reported.insert("h2d_pinned_gb_s".into(), json!(bandwidth(far.at(0), pinned.at(0))?));
    reported.insert("d2h_pinned_gb_s".into(), json!(bandwidth(pinned.at(0), far.at(0))?));
    reported.insert("d2d_gb_s".into(), json!(bandwidth(other.at(0), far.at(0))?));
    let mut pageable = vec![1; sizes.copy_bytes];
    let up = |bytes: &[u8]| -> Result<f64, Failure> {
        seconds(|| {
            device.copy_in(&far, 0, bytes)?;
            Ok(device.synchronize(machine.patience)?)
        })
    };
    up(&pageable)?;
    let each = (0..sizes.copies).map(|_| up(&pageable)).collect::<Result<Vec<f64>, Failure>>()?;
    reported.insert("h2d_pageable_gb_s".into(), json!(len as f64 / median(each) / 1e9));
    let mut down = || -> Result<f64, Failure> { seconds(|| Ok(device.copy_out(&far, 0, &mut pageable)?)) };
    down()?;
    let each = (0..sizes.copies).map(|_| down()).collect::<Result<Vec<f64>, Failure>>()?;
    reported.insert("d2h_pageable_gb_s".into(), json!(len as f64 / median(each) / 1e9));
    Ok(())
}

/// MHz of an SM by a kernel's clock against the GPU's timer; `None` where the loop was too short.
///
/// # Errors
/// The device's.
pub fn sm_clock_mhz(machine: &Machine) -> Result<Option<f64>, Failure> {
    let device = &machine.device;
    let kernel = machine.load("clocks")?;
    let out = device.alloc(64)?;
    let rounds: i64 = if machine.is_software { 100 } else { 20_000_000 };
    machine.run(&[Machine::launch(&kernel, vec![Arg::Buffer(out.at(0)), Arg::Var(rounds)])])?;
    let mut bytes = [0; 16];
    device.copy_out(&out, 0, &mut bytes)?;
    let [ns, clocks] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n])));
    // The clock's step is a microsecond on some cards.
    Ok((ns >= 1_000_000).then(|| clocks as f64 / ns as f64 * 1e3))
}
