//! Peak rates of multiply-adds in a type, by hand-written and by generated kernels.
//!
//! A generated chain is `x = x * x + c` (with products of each step's own result, so nothing can be moved out of it);
//! hand-written ones are in `kernels-asm`.

use super::inputs::{captured, close, parts, random_floats, scalar};
use crate::case::{Case, Point, Subject, Unit, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::Arg;
use doorbell::tensor::prelude::*;
use doorbell_kernels::Peak;

/// The entries.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "arithmetic/multiply-add",
        about: "peak rate of multiply-adds; by=asm is a hand-written kernel, by=made a generated one",
        unit: Unit::GigaOperations,
        axes: &[words("type", &["f64", "f32", "f16", "bf16", "i32"]), words("by", &["asm", "made"])],
        make: |machine, point| match point.word("by") {
            "asm" => by_hand(machine, point.word("type")),
            _ => made(machine, point.word("type")),
        },
    },
    Case {
        name: "arithmetic/clock",
        about: "time of one clock of a core, counted inside a kernel",
        unit: Unit::Nanoseconds,
        axes: &[],
        make: clock,
    },
];

/// Threads of a workgroup.
const LOCAL: u32 = 256;

fn by_hand(machine: &Machine, of: &str) -> Result<Subject, BenchError> {
    match (machine.kind, of) {
        (Kind::Nv, _) => peak(machine, &format!("peak_{of}")),
        (Kind::Cpu, "f32") => cpu_fma(machine),
        (Kind::Amd, "f32") => amd_fma(machine),
        _ => Err(BenchError::LeftOut(format!("there is no hand-written kernel of {of} for this device"))),
    }
}

/// A peak kernel of the tables in `doorbell_kernels`, for NVIDIA's chips: multiply-adds and matrix units.
pub(crate) fn peak(machine: &Machine, name: &str) -> Result<Subject, BenchError> {
    let none = || BenchError::LeftOut(format!("there is no hand-written kernel {name}"));
    let row = Peak::find(name).filter(|_| machine.kind == Kind::Nv).ok_or_else(none)?;
    let kernel = machine.hand(name)?;
    let (groups, rounds) = if machine.is_small { (2, 4) } else { (machine.units() * 8, 512) };
    let threads = groups * LOCAL;
    let out = machine.device().alloc(u64::from(threads) * 4)?;
    let args = vec![Arg::Buffer(out.at(0)), Arg::Var(i64::from(rounds))];
    let command = machine.launch(&kernel, groups, LOCAL, args);
    let work = row.operations(LOCAL) as f64 * f64::from(groups) * f64::from(rounds);
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, threads as usize * 4)?;
        let have = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let wrong = have.enumerate().find(|(thread, have)| *have != row.result(*thread as u32 % LOCAL, rounds));
        match wrong {
            None => Ok(()),
            Some((thread, have)) => close(thread, have.into(), row.result(thread as u32 % LOCAL, rounds).into(), 0.0),
        }
    }))
}

/// `peak_fma` of `kernels-asm/x86_64`.
fn cpu_fma(machine: &Machine) -> Result<Subject, BenchError> {
    let kernel = machine.hand("peak_fma")?;
    let (chains, lanes) = if kernel.name().ends_with("avx512") { (24, 16) } else { (12, 8) };
    let (calls, count) = if machine.is_small { (2, 100) } else { (machine.units(), 20_000) };
    let len = u64::from(calls) * chains * lanes;
    let out = machine.device().alloc(len * 4)?;
    let args = vec![Arg::Buffer(out.at(0)), Arg::Var(count)];
    let work = (len * 2) as f64 * count as f64;
    let command = machine.launch(&kernel, calls, 1, args);
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, len as usize * 4)?;
        for (at, b) in bytes.chunks_exact(4).enumerate() {
            let own = at as u64 % (chains * lanes);
            let start = (own / lanes + own % lanes) as f32;
            let want = (0..count).fold(start, |x, _| x.mul_add(0.999, 0.001));
            close(at, f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(), want.into(), 0.0)?;
            if at >= 64 {
                break;
            }
        }
        Ok(())
    }))
}

/// `peak_fma` of `kernels-asm/amdgpu`.
fn amd_fma(machine: &Machine) -> Result<Subject, BenchError> {
    let kernel = machine.hand("peak_fma")?;
    let (groups, count) = if machine.is_small { (2, 4) } else { (machine.units() * 16, 2000) };
    let len = u64::from(groups * LOCAL) * 16;
    let out = machine.device().alloc(len * 4)?;
    let args = vec![Arg::Buffer(out.at(0)), Arg::Scalar { bits: count, len_bytes: 4 }];
    let command = machine.launch(&kernel, groups, LOCAL, args);
    let work = f64::from(groups * LOCAL) * count as f64 * 64.0;
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, len as usize * 4)?;
        for (at, b) in bytes.chunks_exact(4).enumerate() {
            let (thread, chain) = (at / 16 % 32, at % 16);
            let start = [0.0, 1.0, 2.0, 4.0].get(chain).copied().unwrap_or(0.0);
            close(
                at,
                f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
                start + (2 * count) as f64 * thread as f64,
                0.0,
            )?;
        }
        Ok(())
    }))
}

fn made(machine: &Machine, of: &str) -> Result<Subject, BenchError> {
    let scalar = scalar(of)?;
    let is_int = scalar == Scalar::I32;
    let (n, steps) = match (machine.is_small, machine.kind) {
        (true, _) => (1 << 10, 4),
        (false, Kind::Cpu) => (1 << 14, 256),
        (false, _) => (1 << 22, 256),
    };
    let x = if is_int { Tensor::randint([n], -1000, 1000) } else { random_floats(&[n], scalar)? };
    x.realize()?;
    // Stays within -0.5..0.75 for any start in -1..1.
    let step = |y: &Tensor| -> Tensor { if is_int { y * y + 7 } else { y * y - 0.5 } };
    let (out, captured) = captured(|| (0..steps).fold(x.clone(), |y, _| step(&y)))?;
    let work = 2.0 * steps as f64 * n as f64;
    // Each step rounds; a chaotic map would magnify that, this one contracts.
    let tolerance = match scalar {
        Scalar::F64 => 1e-9,
        Scalar::F32 => 1e-4,
        Scalar::F16 => 0.02,
        _ => 0.1,
    };
    Ok(Subject::commands(work, captured.commands).checked(move |_| {
        for range in parts(n).into_iter().map(|(begin, len)| (begin, len.min(1024))) {
            let start = super::inputs::part(&x, range)?;
            let have = super::inputs::part(&out, range)?;
            for (k, (start, have)) in start.iter().zip(have).enumerate() {
                if is_int {
                    let want = (0..steps).fold(*start as i32, |y, _| y.wrapping_mul(y).wrapping_add(7));
                    close(range.0 + k, have, want.into(), 0.0)?;
                } else {
                    close(range.0 + k, have, (0..steps).fold(*start, |y, _| y * y - 0.5), tolerance)?;
                }
            }
        }
        Ok(())
    }))
}

fn clock(machine: &Machine, _: &Point) -> Result<Subject, BenchError> {
    if !machine.is_software && machine.clock_mhz()?.is_none() {
        return Err(BenchError::LeftOut("no kernel counts clocks on this device".into()));
    }
    if machine.is_software {
        return Err(BenchError::LeftOut("a software GPU has no clock".into()));
    }
    // A count takes about so many clocks: the time of one would be taken for that of a run, and repeated a million
    // times.
    const CLOCKS: f64 = 1e6;
    Ok(Subject::host(CLOCKS, |machine, runs| {
        let mut sum = 0.0;
        for _ in 0..runs {
            let mhz = machine.clock_mhz()?.ok_or_else(|| BenchError::Empty("the clock was not counted".into()))?;
            sum += CLOCKS * 1e3 / mhz;
        }
        Ok(sum)
    }))
}
