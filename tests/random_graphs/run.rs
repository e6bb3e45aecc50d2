//! One program on both sides, and many of them.

use super::generate::{SIZES, program};
use super::program::Program;
use super::shrink::shrunk;
use doorbell::engine::interp::{Value, eval_with};
use doorbell::engine::{attached, session};
use doorbell::tensor::HostBytes;
use doorbell::tensor::prelude::*;
use doorbell::uop::BufferRef;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Steps of a program beyond its inputs.
pub const STEPS: usize = 8;

/// Content of a buffer; memory that was never written, and is only assigned to, reads as zeros.
fn host(b: &BufferRef) -> Option<Vec<u8>> {
    if b.memory.get().is_none() {
        return Some(vec![0; b.len * 8]);
    }
    if let Some(h) = b.memory.get()?.downcast_ref::<HostBytes>() {
        return Some(h.0.clone());
    }
    let place = attached(b)?;
    let mut bytes = vec![0; (place.memory.len_bytes() - place.offset) as usize];
    session().ok()?.device(&b.device).ok()?.device.copy_out(&place.memory, place.offset, &mut bytes).ok()?;
    Some(bytes)
}

/// Where the two sides differ, or what went wrong.
pub fn fault(p: &Program) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| compare(p))) {
        Ok(r) => r.err().filter(|why| !is_refused(why)),
        Err(e) => {
            let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| s.to_string()));
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// A device without f64 refuses what needs it.
fn is_refused(why: &str) -> bool {
    let asks = why.contains("has no instruction for") && why.contains(" on f64");
    asks && session().and_then(|s| s.device(&s.options.device)).is_ok_and(|device| !device.target().f64)
}

fn compare(p: &Program) -> Result<(), String> {
    let made = p.build();
    let mut want: Vec<Value> = Vec::with_capacity(p.outputs.len());
    for o in &p.outputs {
        let u = made[*o].uop().map_err(|e| format!("t{o}: {e}"))?;
        want.push(eval_with(&u, &host).map_err(|e| format!("t{o} in the interpreter: {e}"))?);
    }
    if p.together {
        let outs: Vec<Tensor> = p.outputs.iter().map(|o| made[*o].clone()).collect();
        Tensor::realize_all(&outs).map_err(|e| format!("realize: {e}"))?;
    }
    for (o, w) in p.outputs.iter().zip(&want) {
        let n = &p.nodes[*o];
        let got = made[*o].to_f64().map_err(|e| format!("t{o}: {e}"))?;
        let want = w.to_f64();
        if got.len() != want.len() {
            return Err(format!("t{o} has {} elements, the interpreter {}", got.len(), want.len()));
        }
        let room = 4.0 * n.facts.error;
        for (k, (g, w)) in got.iter().zip(&want).enumerate() {
            if !(g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= room) {
                return Err(format!("t{o}[{k}] is {g:?}, the interpreter has {w:?}, room {room:e}"));
            }
        }
    }
    Ok(())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Runs a quarter of the programs; panics with the smallest form of the first few that fail.
pub fn quarter(part: u64, count: u64) {
    let each = number("RANDOM_GRAPHS").unwrap_or(count) / 4;
    let seeds = match number("SEED") {
        Some(s) if s / 1_000_000 != part => return,
        Some(s) => s..s + 1,
        None => part * 1_000_000..part * 1_000_000 + each,
    };
    // Where the program was brought from another machine, there is no build folder.
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let folder = if built.is_dir() { built } else { std::env::temp_dir() };
    let file = folder.join(format!("random_graphs_{}_{part}.seed", std::process::id()));
    let (began, mut ran, mut reports) = (Instant::now(), 0, Vec::new());
    for seed in seeds {
        std::fs::write(&file, seed.to_string()).unwrap();
        let p = program(seed, SIZES, STEPS);
        ran += 1;
        if let Some(first) = fault(&p) {
            let (p, why) = shrunk(seed, p, first);
            reports.push(format!("SEED={seed}: {why}\n{p}"));
        }
        if reports.len() >= number("FAULTS").unwrap_or(3) as usize {
            break;
        }
    }
    let _ = std::fs::remove_file(&file);
    println!("{ran} programs in {:?}", Duration::from_secs_f64(began.elapsed().as_secs_f64()));
    assert!(reports.is_empty(), "{} of {ran} programs fail:\n{}", reports.len(), reports.join("\n"));
}
