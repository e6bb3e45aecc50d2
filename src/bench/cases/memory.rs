//! Rates of memory: reads, writes, copies, STREAM's kernels, strides, random gathers, atomics, workgroup memory.
//!
//! Bytes are counted as STREAM counts them: what a kernel asks for, without lines that are read before a store.

use super::inputs::{captured, close, elementwise, part, parts, random_floats, random_words};
use crate::case::{Case, Point, Subject, Unit, sizes, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::{Arg, Command, Memory};
use doorbell::engine::{attached, dense_view};
use doorbell::tensor::prelude::*;

/// Bytes of one array: far above the last cache on a GPU (512 MiB) and a CPU (128 MiB); and sizes of caches.
const ARRAY: crate::case::Axis = sizes("bytes", &[512 << 20], &[128 << 20], &[64 << 10]);
const SIZES: crate::case::Axis = sizes(
    "bytes",
    &[4 << 20, 16 << 20, 64 << 20, 512 << 20],
    &[16 << 10, 256 << 10, 4 << 20, 128 << 20],
    &[16 << 10, 64 << 10],
);

/// The entries.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    entry("memory/read", "reads an array, by size: caches and memory", &[SIZES, words("by", &["asm", "made"])], read),
    entry("memory/write", "writes an array", &[ARRAY, words("by", &["asm", "made"])], write),
    entry("memory/copy", "copies an array by a kernel; bulk is by the copy unit of Hopper's multiprocessors",
        &[ARRAY, words("by", &["asm", "bulk"])], copy),
    entry("memory/scale", "a = s * b", &[ARRAY], |m, p| stream(m, p, 1)),
    entry("memory/add", "a = b + c", &[ARRAY], |m, p| stream(m, p, 2)),
    entry("memory/triad", "a = b + s * c", &[ARRAY, words("by", &["asm", "made"])], triad),
    entry("memory/strided", "sums every so many-th word; useful bytes alone are counted",
        &[ARRAY, sizes("stride", &[2, 8, 32], &[2, 8, 16], &[8])], strided),
    entry("memory/gather", "sums words at random places; useful bytes alone are counted",
        &[sizes("bytes", &[16 << 20, 512 << 20], &[1 << 20, 128 << 20], &[16 << 10])], gather),
    entry("memory/workgroup", "reads workgroup memory", &[], workgroup),
    Case { name: "memory/atomic", about: "additions to words in memory, each by a thread of its own; one word, or many",
        unit: Unit::GigaOperations, axes: &[sizes("words", &[1, 32, 1 << 20], &[1], &[1, 64])], make: atomic },
];

const fn entry(
    name: &'static str,
    about: &'static str,
    axes: &'static [crate::case::Axis],
    make: fn(&Machine, &Point) -> Result<Subject, BenchError>,
) -> Case {
    Case { name, about, unit: Unit::GigabytesPerSecond, axes, make }
}

/// Threads of a workgroup.
const LOCAL: u32 = 256;

/// Workgroups that fill a GPU.
fn groups(machine: &Machine) -> u32 {
    if machine.is_small { 2 } else { machine.units() * 8 }
}

/// The memory in which a realized Tensor lies, from its first byte on.
pub(crate) fn places(machine: &Machine, x: &Tensor) -> Result<Memory, BenchError> {
    let lost = || BenchError::Empty(format!("a value is not in memory of {}", machine.name));
    let node = x.uop().map_err(doorbell::Error::from)?;
    let (buffer, offset) = dense_view(&node).ok_or_else(lost)?;
    let place = buffer.buffer_ref().and_then(|b| attached(b)).ok_or_else(lost)?;
    if offset == 0 && place.offset == 0 { Ok(place.memory) } else { Err(lost()) }
}

/// Commands that write an array larger than the caches: they are empty of other data afterwards.
pub(crate) fn flush(machine: &Machine) -> Result<Vec<Command>, BenchError> {
    let n = if machine.is_small { 1 << 12 } else { 64 << 20 };
    let _session = machine.enter();
    let (_, captured) = captured(|| Tensor::full_of([n], 1, Scalar::I32).contiguous())?;
    Ok(captured.commands)
}

fn read(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let bytes = point.number("bytes");
    let n = point.size("bytes") / 4;
    let x = random_words(n)?;
    if point.word("by") == "made" {
        let (out, captured) = captured(|| x.sum(()))?;
        return Ok(Subject::commands(bytes as f64, captured.commands).checked(move |_| {
            let want = x.to_vec::<u32>()?.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
            close(0, f64::from(out.item()? as i64 as u32), want.into(), 0.0)
        }));
    }
    read_by_hand(machine, &x, bytes)
}

fn read_by_hand(machine: &Machine, x: &Tensor, bytes: u64) -> Result<Subject, BenchError> {
    if machine.kind == Kind::Amd {
        return Err(BenchError::LeftOut("there is no hand-written kernel that reads for this device".into()));
    }
    let kernel = machine.hand("read")?;
    let words = x.to_vec::<u32>()?;
    let data = machine.memory(&x.to_bytes()?)?;
    if machine.kind == Kind::Cpu {
        return Ok(read_on_cpu(machine, &kernel, (data, bytes), words));
    }
    // Each thread reads four times 16 bytes a step: all threads together must divide the array.
    let steps = bytes / 64;
    let groups = (1..=u64::from(groups(machine))).rev().find(|g| steps.is_multiple_of(g * u64::from(LOCAL)));
    let groups = groups.and_then(|g| u32::try_from(g).ok()).ok_or_else(|| BenchError::LeftOut("an odd size".into()))?;
    let threads = groups * LOCAL;
    let out = machine.device().alloc(u64::from(threads) * 4)?;
    let count = i64::try_from(bytes / 16).unwrap_or(i64::MAX);
    let args = vec![Arg::Buffer(data.at(0)), Arg::Buffer(out.at(0)), Arg::Var(count)];
    let command = machine.launch(&kernel, groups, LOCAL, args);
    Ok(Subject::commands(bytes as f64, vec![command]).checked(move |machine| {
        let _input = &data;
        let bytes = machine.bytes(&out, threads as usize * 4)?;
        let have = bytes.chunks_exact(4).fold(0, |x, b| x ^ u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let want = words.iter().fold(0, |x, word| x ^ word);
        close(0, have.into(), want.into(), 0.0)
    }))
}

/// `read` of `kernels-asm/x86_64`: each call a part, whose words it adds up.
fn read_on_cpu(
    machine: &Machine,
    kernel: &doorbell::device::Kernel,
    (data, bytes): (Memory, u64),
    words: Vec<u32>,
) -> Subject {
    let calls = u64::from(machine.units());
    let chunk = (bytes / calls).next_multiple_of(64);
    let out = machine.device().alloc(calls * 64);
    let number = |n: u64| Arg::Var(i64::try_from(n).unwrap_or(i64::MAX));
    let (command, out) = match out {
        Ok(out) => {
            let args = vec![Arg::Buffer(data.at(0)), Arg::Buffer(out.at(0)), number(bytes), number(chunk)];
            (vec![machine.launch(kernel, calls as u32, 1, args)], Some(out))
        }
        Err(_) => (Vec::new(), None),
    };
    Subject::commands(bytes as f64, command).checked(move |machine| {
        let (_input, Some(out)) = (&data, &out) else { return Ok(()) };
        let sums = machine.bytes(out, calls as usize * 64)?;
        let have =
            sums.chunks_exact(4).fold(0u32, |sum, b| sum.wrapping_add(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        let want = words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        close(0, have.into(), want.into(), 0.0)
    })
}

/// A value whose bytes all differ.
const VALUE: u32 = 0x5aa5_3cc3;

fn write(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let bytes = point.number("bytes");
    let n = point.size("bytes") / 4;
    if point.word("by") == "made" {
        let value = i64::from(VALUE);
        let (out, captured) = captured(|| Tensor::full_of([n], value, Scalar::U32).contiguous())?;
        let check = elementwise(out, Vec::new(), 0.0, |_| VALUE.into());
        return Ok(Subject { check, ..Subject::commands(bytes as f64, captured.commands) });
    }
    let out = machine.device().alloc(bytes)?;
    let command = match machine.kind {
        Kind::Amd => {
            let kernel = machine.hand("fill_b32")?;
            let groups = u32::try_from(bytes >> 14).unwrap_or(u32::MAX);
            let args = vec![Arg::Buffer(out.at(0)), Arg::Scalar { bits: VALUE.into(), len_bytes: 4 }];
            machine.launch(&kernel, groups, LOCAL, args)
        }
        Kind::Nv => {
            let kernel = machine.hand("fill")?;
            let count = i64::try_from(bytes / 16).unwrap_or(i64::MAX);
            let args = vec![Arg::Buffer(out.at(0)), Arg::Var(VALUE.into()), Arg::Var(count)];
            machine.launch(&kernel, groups(machine), LOCAL, args)
        }
        Kind::Cpu => {
            let number = |n: u64| Arg::Var(i64::try_from(n).unwrap_or(i64::MAX));
            let chunk = (bytes / u64::from(machine.units())).next_multiple_of(64);
            let args = vec![Arg::Buffer(out.at(0)), number(VALUE.into()), number(bytes), number(chunk)];
            machine.launch(&machine.hand("fill")?, machine.units(), 1, args)
        }
        _ => return Err(BenchError::LeftOut("there is no hand-written kernel that fills for this device".into())),
    };
    Ok(Subject::commands(bytes as f64, vec![command]).checked(move |machine| {
        let have = machine.bytes(&out, n.min(1 << 20) * 4)?;
        let wrong = have.chunks_exact(4).position(|b| b != VALUE.to_le_bytes());
        wrong.map_or(Ok(()), |at| Err(BenchError::Wrong(format!("word {at} is not {VALUE:#x}"))))
    }))
}

fn copy(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let bytes = point.number("bytes");
    let is_bulk = point.word("by") == "bulk";
    if is_bulk && machine.kind != Kind::Nv {
        return Err(BenchError::LeftOut("only NVIDIA's multiprocessors have a copy unit".into()));
    }
    let x = random_words(point.size("bytes") / 4)?;
    let want = x.to_bytes()?;
    let (src, dst) = (machine.memory(&want)?, machine.device().alloc(bytes)?);
    let (from, to) = (Arg::Buffer(src.at(0)), Arg::Buffer(dst.at(0)));
    let command = match machine.kind {
        Kind::Amd => {
            let groups = u32::try_from(bytes >> 14).unwrap_or(u32::MAX);
            machine.launch(&machine.hand("copy_b128")?, groups, LOCAL, vec![to, from])
        }
        Kind::Nv => {
            let (name, local) = if is_bulk { ("copy_bulk", 32) } else { ("copy", LOCAL) };
            let count = Arg::Scalar { bits: bytes / 16, len_bytes: 4 };
            machine.launch(&machine.hand(name)?, groups(machine), local, vec![from, to, count])
        }
        Kind::Cpu => {
            let chunk = (bytes / u64::from(machine.units())).next_multiple_of(64);
            let number = |n: u64| Arg::Var(i64::try_from(n).unwrap_or(i64::MAX));
            let args = vec![from, to, number(bytes), number(chunk)];
            machine.launch(&machine.hand("copy")?, machine.units(), 1, args)
        }
        _ => return Err(BenchError::LeftOut("there is no hand-written kernel that copies for this device".into())),
    };
    Ok(Subject::commands(2.0 * bytes as f64, vec![command]).checked(move |machine| {
        let _input = &src;
        let have = machine.bytes(&dst, want.len())?;
        let wrong = have.iter().zip(&want).position(|(a, b)| a != b);
        wrong.map_or(Ok(()), |at| Err(BenchError::Wrong(format!("byte {at} is {:#x}, not {:#x}", have[at], want[at]))))
    }))
}

/// What STREAM's kernels multiply by.
const SCALE: f64 = 3.0;

fn stream(_: &Machine, point: &Point, inputs: usize) -> Result<Subject, BenchError> {
    let n = point.size("bytes") / 4;
    let all = (0..inputs).map(|_| random_floats(&[n], Scalar::F32)).collect::<Result<Vec<_>, _>>()?;
    let (out, captured) = captured(|| if inputs == 1 { &all[0] * SCALE } else { &all[0] + &all[1] })?;
    let want = if inputs == 1 { |x: &[f64]| x[0] * SCALE } else { |x: &[f64]| x[0] + x[1] };
    let work = (4 * n * (inputs + 1)) as f64;
    Ok(Subject { check: elementwise(out, all, 1e-6, want), ..Subject::commands(work, captured.commands) })
}

fn triad(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let n = point.size("bytes") / 4;
    let (b, c) = (random_floats(&[n], Scalar::F32)?, random_floats(&[n], Scalar::F32)?);
    let want = |x: &[f64]| x[0] + x[1] * SCALE;
    let work = (12 * n) as f64;
    if point.word("by") == "made" {
        let (out, captured) = captured(|| &b + &(&c * SCALE))?;
        let check = elementwise(out, vec![b, c], 1e-6, want);
        return Ok(Subject { check, ..Subject::commands(work, captured.commands) });
    }
    if machine.kind != Kind::Cpu {
        return Err(BenchError::LeftOut("there is no hand-written triad for this device".into()));
    }
    let kernel = machine.hand("triad_stream")?;
    let calls = machine.units();
    let (mb, mc) = (machine.memory(&b.to_bytes()?)?, machine.memory(&c.to_bytes()?)?);
    let out = machine.device().alloc(4 * n as u64)?;
    let number = |n: usize| Arg::Var(i64::try_from(n).unwrap_or(i64::MAX));
    let scale = Arg::Var(i64::from((SCALE as f32).to_bits()));
    let buffer = |m: &Memory| Arg::Buffer(m.at(0));
    let chunk = n.div_ceil(calls as usize).next_multiple_of(16);
    let args = vec![buffer(&out), buffer(&mb), buffer(&mc), scale, number(n), number(chunk)];
    let command = machine.launch(&kernel, calls, 1, args);
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let _inputs = [&mb, &mc];
        let have = machine.bytes(&out, 4 * n)?;
        for range in parts(n) {
            let (b, c) = (part(&b, range)?, part(&c, range)?);
            for (k, (b, c)) in b.iter().zip(c).enumerate() {
                let at = range.0 + k;
                let have = f32::from_le_bytes(std::array::from_fn(|i| have[4 * at + i]));
                close(at, have.into(), b + c * SCALE, 1e-6)?;
            }
        }
        Ok(())
    }))
}

fn strided(_: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (n, stride) = (point.size("bytes") / 4, point.size("stride"));
    let x = random_words(n)?;
    let rows = n / stride;
    let (out, captured) = captured(|| x.reshape([rows, stride]).shrink(&[(0, rows), (0, 1)]).sum(()))?;
    Ok(Subject::commands((rows * 4) as f64, captured.commands).checked(move |_| {
        let words = x.to_vec::<u32>()?;
        let want = words.iter().step_by(stride).fold(0u32, |sum, word| sum.wrapping_add(*word));
        close(0, f64::from(out.item()? as i64 as u32), want.into(), 0.0)
    }))
}

fn gather(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let n = point.size("bytes") / 4;
    let x = random_words(n)?;
    let count = if machine.is_small { n / 2 } else { n.min(4 << 20) };
    let places = Tensor::randint([count], 0, i32::try_from(n).unwrap_or(i32::MAX));
    places.realize()?;
    let (out, captured) = captured(|| x.gather(0, &places).sum(()))?;
    Ok(Subject::commands((count * 4) as f64, captured.commands).checked(move |_| {
        let (words, places) = (x.to_vec::<u32>()?, places.to_vec::<i32>()?);
        let at = |place: &i32| words.get(usize::try_from(*place).unwrap_or(usize::MAX)).copied().unwrap_or(0);
        let want = places.iter().fold(0u32, |sum, place| sum.wrapping_add(at(place)));
        close(0, f64::from(out.item()? as i64 as u32), want.into(), 0.0)
    }))
}

fn workgroup(machine: &Machine, _: &Point) -> Result<Subject, BenchError> {
    let groups = groups(machine);
    let threads = groups * LOCAL;
    let out = machine.device().alloc(u64::from(threads) * 4)?;
    let rounds: u32 = if machine.is_small { 3 } else { 2000 };
    let (name, bytes) = if machine.kind == Kind::Amd { ("lds_read_b128", 128.0) } else { ("shared_read", 64.0) };
    let kernel = machine.hand(name)?;
    let count = match machine.kind {
        Kind::Amd => Arg::Scalar { bits: rounds.into(), len_bytes: 4 },
        _ => Arg::Var(rounds.into()),
    };
    let command = machine.launch(&kernel, groups, LOCAL, vec![Arg::Buffer(out.at(0)), count]);
    let work = f64::from(threads) * f64::from(rounds) * bytes;
    let is_amd = machine.kind == Kind::Amd;
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, threads as usize * 4)?;
        for (at, b) in bytes.chunks_exact(4).enumerate() {
            let thread = at as u32 % LOCAL;
            let want = if is_amd { 8 * (thread ^ 1) + 28_000 } else { shared_mix(thread, rounds) };
            close(at, u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(), want.into(), 0.0)?;
        }
        Ok(())
    }))
}

/// What `shared_read` stores: word w of its memory holds w.
fn shared_mix(thread: u32, rounds: u32) -> u32 {
    let mut mix = [0u32; 4];
    for _ in 0..rounds {
        for (lane, sum) in mix.iter_mut().enumerate() {
            let word = |part: u32| thread * 4 + lane as u32 + 1024 * part;
            *sum = (*sum ^ word(0) ^ word(1)).wrapping_add(word(2)).wrapping_add(word(3));
        }
    }
    mix.iter().fold(0, |x, m| x ^ m)
}

fn atomic(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (words, groups) =
        (point.number("words"), if machine.kind == Kind::Cpu { machine.units() } else { groups(machine) });
    let rounds: i64 = if machine.is_small { 3 } else { 64 };
    let kernel = machine.hand("atomic")?;
    let dst = machine.memory(&vec![0; words as usize * 4])?;
    let number = |n: u64| Arg::Var(i64::try_from(n).unwrap_or(i64::MAX));
    let command = machine.launch(&kernel, groups, LOCAL, vec![Arg::Buffer(dst.at(0)), number(words), Arg::Var(rounds)]);
    let threads = if machine.kind == Kind::Cpu { groups } else { groups * LOCAL };
    let each = f64::from(threads) * rounds as f64;
    Ok(Subject::commands(each, vec![command]).checked(move |machine| {
        // Every run adds as much: the sum is a multiple, and the words differ by the runs' shares alone.
        let bytes = machine.bytes(&dst, words as usize * 4)?;
        let all = bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let sum: u64 = all.map(u64::from).sum();
        let is_whole = sum > 0 && (sum as f64 % each == 0.0 || sum as f64 > f64::from(u32::MAX));
        if is_whole { Ok(()) } else { Err(BenchError::Wrong(format!("{sum} additions were seen of runs of {each}"))) }
    }))
}
