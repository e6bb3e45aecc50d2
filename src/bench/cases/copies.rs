//! Copies between host and device, within a device, and between devices, by the copy engine and by kernels.

use crate::case::{Case, Point, Subject, Unit, sizes, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use crate::stats::Draw;
use doorbell::device::{Arg, Command, Memory, QueueKind};
use std::sync::Arc;
use std::time::Instant;

const BYTES: crate::case::Axis = sizes("bytes", &[64 << 10, 256 << 20], &[64 << 10, 64 << 20], &[16 << 10]);

const ENGINES: crate::case::Axis = crate::case::Axis { name: "engine", values: crate::case::Values::CopyEngines };

/// The entries.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    entry("copies/engine", "the copy queue: up is from pinned host memory, down to it, within the device's own",
        &[words("way", &["up", "down", "within"]), BYTES], engine),
    entry("copies/each", "each copy engine by itself: up is from pinned host memory, down to it",
        &[ENGINES, words("way", &["up", "down", "within"]), sizes("bytes", &[256 << 20], &[64 << 20], &[16 << 10])], each),
    entry("copies/kernel", "a kernel that reads or writes pinned host memory",
        &[words("way", &["up", "down"]), sizes("bytes", &[256 << 20], &[64 << 20], &[16 << 10])], kernel),
    entry("copies/wrapped", "memory that the program had already, used in place by the copy queue or by a kernel",
        &[words("way", &["up", "down"]), words("by", &["engine", "kernel"]),
            sizes("bytes", &[256 << 20], &[64 << 20], &[16 << 10])], wrapped),
    entry("copies/both", "up by a kernel while the copy queue copies down; bytes of both are counted",
        &[sizes("bytes", &[256 << 20], &[64 << 20], &[16 << 10])], both),
    entry("copies/peer", "between this device and the next of its kind, over their own link, by this one's copy queue",
        &[words("way", &["to", "from"]), sizes("bytes", &[256 << 20], &[64 << 20], &[16 << 10])], peer),
    entry("copies/staged", "between ordinary memory of the program and the device, as reading a value does",
        &[words("way", &["up", "down"]), sizes("bytes", &[4 << 10, 256 << 20], &[4 << 10, 64 << 20], &[16 << 10])], staged),
];

const fn entry(
    name: &'static str,
    about: &'static str,
    axes: &'static [crate::case::Axis],
    make: fn(&Machine, &Point) -> Result<Subject, BenchError>,
) -> Case {
    Case { name, about, unit: Unit::GigabytesPerSecond, axes, make }
}

/// Random bytes.
fn random(len: usize) -> Vec<u8> {
    let mut draw = Draw(len as u64);
    (0..len.div_ceil(8)).flat_map(|_| draw.next().to_le_bytes()).take(len).collect()
}

fn write_host(memory: &Memory, bytes: &[u8]) -> Result<(), BenchError> {
    let view = memory.host().ok_or_else(|| BenchError::LeftOut("pinned memory without a view".into()))?;
    view.write(0, bytes).map_err(|e| BenchError::Empty(e.to_string()))
}

fn same(have: &[u8], want: &[u8]) -> Result<(), BenchError> {
    let wrong = have.iter().zip(want).position(|(a, b)| a != b);
    wrong.map_or(Ok(()), |at| Err(BenchError::Wrong(format!("byte {at} is {:#x}, not {:#x}", have[at], want[at]))))
}

/// The ends of a copy, with the source filled: destination, source, what is there. The host's end is pinned memory.
fn ends(machine: &Machine, way: &str, len: u64) -> Result<(Memory, Memory, Vec<u8>), BenchError> {
    let device = machine.device();
    let near = if way == "within" { device.alloc(len)? } else { device.alloc_pinned(len)? };
    between(machine, way, near)
}

/// The same with this memory as the host's end.
fn between(machine: &Machine, way: &str, near: Memory) -> Result<(Memory, Memory, Vec<u8>), BenchError> {
    let device = machine.device();
    let bytes = random(usize::try_from(near.len_bytes()).unwrap_or(usize::MAX));
    let far = device.alloc(near.len_bytes())?;
    let (dst, src) = if way == "up" { (far, near) } else { (near, far) };
    if way == "up" {
        write_host(&src, &bytes)?
    } else {
        device.copy_in(&src, 0, &bytes)?
    }
    Ok((dst, src, bytes))
}

/// What is at a copy's destination.
fn arrived(machine: &Machine, dst: &Memory, want: &[u8]) -> Result<(), BenchError> {
    let mut have = vec![0; want.len()];
    match dst.host() {
        Some(view) => view.read(0, &mut have).map_err(|e| BenchError::Empty(e.to_string()))?,
        None => machine.device().copy_out(dst, 0, &mut have)?,
    }
    same(&have, want)
}

fn engine(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let len = point.number("bytes");
    let (dst, src, want) = ends(machine, point.word("way"), len)?;
    let copy = Command::copy(dst.at(0), src.at(0), len);
    Ok(Subject::copies(len as f64, vec![copy]).checked(move |machine| arrived(machine, &dst, &want)))
}

fn each(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let engines = machine.device().copy_engines()?;
    let Some(engine) = engines.into_iter().find(|engine| engine.name == point.word("engine")) else {
        return Err(BenchError::LeftOut("its driver names no copy engines".into()));
    };
    let (way, len) = (point.word("way"), point.number("bytes"));
    if way != "within" && !engine.reaches_host {
        return Err(BenchError::LeftOut(format!("{} does not reach memory of the host", engine.name)));
    }
    let (dst, src, want) = ends(machine, way, len)?;
    let copy = Command::copy(dst.at(0), src.at(0), len);
    Ok(Subject::copies_by(engine.number, len as f64, vec![copy]).checked(move |machine| arrived(machine, &dst, &want)))
}

/// The hand-written copy from one memory to another.
fn by_kernel(machine: &Machine, dst: &Memory, src: &Memory, len: u64) -> Result<Command, BenchError> {
    let (from, to) = (Arg::Buffer(src.at(0)), Arg::Buffer(dst.at(0)));
    match machine.kind {
        Kind::Nv => {
            let groups = if machine.is_small { 2 } else { machine.units() * 2 };
            let count = Arg::Scalar { bits: len / 16, len_bytes: 4 };
            Ok(machine.launch(&machine.hand("copy")?, groups, 256, vec![from, to, count]))
        }
        Kind::Amd => {
            let groups = u32::try_from(len >> 14).unwrap_or(u32::MAX);
            Ok(machine.launch(&machine.hand("copy_b128")?, groups, 256, vec![to, from]))
        }
        _ => Err(BenchError::LeftOut("device and host have one memory".into())),
    }
}

fn kernel(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let len = point.number("bytes");
    let (dst, src, want) = ends(machine, point.word("way"), len)?;
    let command = by_kernel(machine, &dst, &src, len)?;
    Ok(Subject::commands(len as f64, vec![command]).checked(move |machine| {
        let _source = &src;
        arrived(machine, &dst, &want)
    }))
}

fn wrapped(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let len = point.number("bytes");
    let near = machine.device().wrap_host(&machine.program_memory(len)?)?;
    let (dst, src, want) = between(machine, point.word("way"), near)?;
    let subject = match point.word("by") {
        "kernel" => Subject::commands(len as f64, vec![by_kernel(machine, &dst, &src, len)?]),
        _ => Subject::copies(len as f64, vec![Command::copy(dst.at(0), src.at(0), len)]),
    };
    Ok(subject.checked(move |machine| {
        let _source = &src;
        arrived(machine, &dst, &want)
    }))
}

fn both(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let len = point.number("bytes");
    let (up_to, up_from, up) = ends(machine, "up", len)?;
    let (down_to, down_from, down) = ends(machine, "down", len)?;
    let kernel = [by_kernel(machine, &up_to, &up_from, len)?];
    let copy = [Command::copy(down_to.at(0), down_from.at(0), len)];
    Ok(Subject::host(2.0 * len as f64, move |machine, runs| {
        let began = Instant::now();
        for _ in 0..runs {
            let device = machine.device();
            let points = [device.submit(QueueKind::Copy, &copy)?, device.submit(QueueKind::Compute, &kernel)?];
            for point in points {
                device.wait(&point, machine.patience())?;
            }
        }
        Ok(began.elapsed().as_nanos() as f64)
    })
    .checked(move |machine| {
        arrived(machine, &up_to, &up)?;
        arrived(machine, &down_to, &down)
    }))
}

fn peer(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let other = machine.peer()?;
    let (here, there) = (Arc::clone(&machine.open.device), other.device.clone());
    let len = point.number("bytes");
    let (near, far) = (here.alloc(len)?, there.alloc(len)?);
    if !here.reaches(&far) {
        return Err(BenchError::LeftOut(format!("{} does not reach the memory of {}", machine.name, other.name)));
    }
    let ((from, src), (to, dst)) = match point.word("way") {
        "to" => ((here, near), (there, far)),
        _ => ((there, far), (here, near)),
    };
    let want = random(point.size("bytes"));
    from.copy_in(&src, 0, &want)?;
    from.synchronize(machine.patience())?;
    let subject = Subject::copies(len as f64, vec![Command::copy(dst.at(0), src.at(0), len)]);
    Ok(subject.checked(move |_| {
        let mut have = vec![0; want.len()];
        to.copy_out(&dst, 0, &mut have)?;
        same(&have, &want)
    }))
}

fn staged(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let len = point.number("bytes");
    let is_up = point.word("way") == "up";
    let want = random(point.size("bytes"));
    let memory = machine.memory(&want)?;
    let (data, place) = (want.clone(), memory.clone());
    let mut back = vec![0; want.len()];
    Ok(Subject::host(len as f64, move |machine, runs| {
        let device = machine.device();
        let began = Instant::now();
        for _ in 0..runs {
            if is_up {
                device.copy_in(&place, 0, &data)?;
                device.synchronize(machine.patience())?;
            } else {
                device.copy_out(&place, 0, &mut back)?;
            }
        }
        let took = began.elapsed().as_nanos() as f64;
        if !is_up {
            same(&back, &data)?;
        }
        Ok(took)
    })
    .checked(move |machine| arrived(machine, &memory, &want)))
}
