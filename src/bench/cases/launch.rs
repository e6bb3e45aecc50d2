//! Costs of launches: one at a time, in lists, recorded, at queue depths, and the parts of one.
//!
//! The kernel does nothing where one was written for the device, else it stores one number.

use super::inputs::captured;
use crate::case::{Case, Point, Subject, Unit, sizes, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::{Command, DeviceError, QueueKind, Stamp};
use doorbell::hcq::signal::{self, WaitBy};
use doorbell::tensor::prelude::*;
use doorbell_ioctl::port::monotonic_ns;
use std::time::{Duration, Instant};

/// Launches of a list.
const LIST: crate::case::Axis = sizes("kernels", &[16, 1000], &[16, 256], &[16]);

/// The entries.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    entry("launch/wait", "submits one kernel and waits for it, by the host's clock", &[], wait),
    entry("launch/depth", "a kernel of several that are submitted one by one before a wait",
        &[sizes("depth", &[1, 4, 16, 64, 256, 1024], &[1, 16, 256], &[1, 16])], depth),
    entry("launch/list", "a kernel of a list in one submission", &[LIST], list),
    entry("launch/replay", "a kernel of a recorded list", &[LIST], replay),
    entry("launch/part", "parts of a launch: submit is the host's, start from the call to the kernel's start, run the \
        kernel's, wake from its end to the host's return",
        &[words("part", &["submit", "start", "run", "wake"])], part),
    entry("launch/wakeup", "from the end of the device's work to the return of a host that spins on the signal, or that \
        sleeps until the driver's interrupt wakes it (on a CPU: until the worker does)",
        &[words("by", &["spin", "sleep"])], wakeup),
];

const fn entry(
    name: &'static str,
    about: &'static str,
    axes: &'static [crate::case::Axis],
    make: fn(&Machine, &Point) -> Result<Subject, BenchError>,
) -> Case {
    Case { name, about, unit: Unit::Nanoseconds, axes, make }
}

/// A launch of almost nothing.
fn nothing(machine: &Machine) -> Result<Command, BenchError> {
    if machine.kind == Kind::Nv {
        return Ok(machine.launch(&machine.hand("nothing")?, 1, 128, vec![]));
    }
    stores_sevens(1)
}

/// A kernel that stores so many times the number 7.
fn stores_sevens(count: usize) -> Result<Command, BenchError> {
    let (_, captured) = captured(|| Tensor::full_of([count], 7, Scalar::I32).contiguous())?;
    captured.commands.into_iter().next().ok_or_else(|| BenchError::Empty("no kernel stores a number".into()))
}

fn nanoseconds(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}

fn wait(machine: &Machine, _: &Point) -> Result<Subject, BenchError> {
    let one = [nothing(machine)?];
    Ok(Subject::host(1.0, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            machine.run(QueueKind::Compute, &one)?;
        }
        Ok(nanoseconds(began))
    }))
}

fn depth(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (one, depth) = ([nothing(machine)?], point.number("depth"));
    Ok(Subject::host(depth as f64, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            let mut last = None;
            for _ in 0..depth {
                last = Some(machine.device().submit(QueueKind::Compute, &one)?);
            }
            if let Some(point) = last {
                machine.device().wait(&point, machine.patience())?;
            }
        }
        Ok(nanoseconds(began))
    }))
}

fn list(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let many = vec![nothing(machine)?; point.size("kernels")];
    Ok(Subject::host(many.len() as f64, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            machine.run(QueueKind::Compute, &many)?;
        }
        Ok(nanoseconds(began))
    }))
}

fn replay(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let many = vec![nothing(machine)?; point.size("kernels")];
    let mut recorded = machine.device().record(&many)?;
    Ok(Subject::host(many.len() as f64, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            let point = recorded.replay(&[])?;
            machine.device().wait(&point, machine.patience())?;
        }
        Ok(nanoseconds(began))
    }))
}

/// Work that a host falls asleep over takes at least this: several times what going to sleep takes.
const ASLEEP: Duration = Duration::from_micros(200);
/// Launches of such work at most.
const MOST_ASLEEP: usize = 1024;
/// A host on a busy machine may get no core until the work is done. Then it did not wait, and the work runs again, so
/// many times at most.
const TRIES: usize = 10;

fn wakeup(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let by = if point.word("by") == "spin" { WaitBy::Spin } else { WaitBy::Sleep };
    let count = if machine.is_small { 1 << 8 } else { 1 << 16 };
    let one = stores_sevens(count)?;
    let Some(place) = one.locations().next().cloned() else {
        return Err(BenchError::Empty("the kernel that stores numbers has no memory".into()));
    };
    // No numbers that the kernel would store: they are there until the kernel ran, and again after each check.
    let blanks = vec![0; count * 4];
    machine.device().copy_in(&place.memory, place.offset, &blanks)?;
    let stamp = machine.device().stamp()?;
    let list = long_list(machine, &one, &stamp)?;
    let last = machine.device().submit(QueueKind::Compute, &list)?;
    let exists =
        move |point: &signal::Point| point.timeline().lacks(by).map_or(Ok(()), |why| Err(BenchError::LeftOut(why)));
    last.wait_by(machine.patience(), by).map_err(DeviceError::from)?;
    exists(&last)?;
    let subject = Subject::host(1.0, move |machine, runs| {
        let mut sum = 0.0;
        for _ in 0..runs {
            sum += woken_after(machine, &list, &stamp, by)?;
        }
        Ok(sum)
    });
    Ok(subject.at_most(1).checked(move |machine| {
        let mut bytes = vec![0; count * 4];
        machine.device().copy_out(&place.memory, place.offset, &mut bytes)?;
        machine.device().copy_in(&place.memory, place.offset, &blanks)?;
        // Interrupts that do not arrive are noticed after a while.
        exists(&last)?;
        let wrong = bytes.chunks_exact(4).position(|word| word != 7i32.to_le_bytes());
        wrong.map_or(Ok(()), |at| Err(BenchError::Wrong(format!("word {at} is not the 7 that the kernel stores"))))
    }))
}

/// Nanoseconds from the end of the list's last launch to the return of a host that waited for it.
fn woken_after(machine: &Machine, list: &[Command], stamp: &Stamp, by: WaitBy) -> Result<f64, BenchError> {
    for _ in 0..TRIES {
        let point = machine.device().submit(QueueKind::Compute, list)?;
        let waits = monotonic_ns();
        point.wait_by(machine.patience(), by).map_err(DeviceError::from)?;
        let (ended, stop) = (monotonic_ns(), stamp.times_ns().1);
        if machine.is_small || u128::from(stop.saturating_sub(waits)) > ASLEEP.as_nanos() / 4 {
            return Ok((ended.saturating_sub(stop) as f64).max(1.0));
        }
        // The thread that does the work took this one's core: after a pause it may get another one.
        std::thread::sleep(ASLEEP * 5);
    }
    Err(BenchError::LeftOut("this machine is so busy that the work was done before the host waited for it".into()))
}

/// As many launches as take long enough to fall asleep over; `stamp` is the last one's.
fn long_list(machine: &Machine, one: &Command, stamp: &Stamp) -> Result<Vec<Command>, BenchError> {
    let first = machine.device().stamp()?;
    let mut list = vec![one.clone().stamped(first.clone()), one.clone().stamped(stamp.clone())];
    loop {
        let mut least = u64::MAX;
        for _ in 0..3 {
            machine.run(QueueKind::Compute, &list)?;
            least = least.min(stamp.times_ns().1.saturating_sub(first.times_ns().0));
        }
        if machine.is_small || u128::from(least) >= ASLEEP.as_nanos() || list.len() >= MOST_ASLEEP {
            return Ok(list);
        }
        let more = vec![one.clone(); list.len()];
        list.splice(1..1, more);
    }
}

/// The device's times are on the host's clock, as good as the device's calibration of it. The kernel may start before
/// `submit` returns, so its start counts from the call.
fn part(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let stamp = machine.device().stamp()?;
    let one = [nothing(machine)?.stamped(stamp.clone())];
    let part = point.word("part").to_owned();
    Ok(Subject::host(1.0, move |machine, runs| {
        let mut sum = 0.0;
        for _ in 0..runs {
            let began = monotonic_ns();
            let point = machine.device().submit(QueueKind::Compute, &one)?;
            let submitted = monotonic_ns();
            machine.device().wait(&point, machine.patience())?;
            let ended = monotonic_ns();
            let (start, stop) = stamp.times_ns();
            let between = |a: u64, b: u64| b.saturating_sub(a) as f64;
            sum += match part.as_str() {
                "submit" => between(began, submitted),
                "start" => between(began, start).max(1.0),
                "run" => between(start, stop).max(1.0),
                _ => between(stop, ended).max(1.0),
            };
        }
        Ok(sum)
    }))
}
