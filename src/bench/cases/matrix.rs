//! Peak rates of matrix units, by hand-written kernels: operands in registers or workgroup memory, no traffic.

use super::arithmetic::peak;
use crate::case::{Case, Subject, Unit, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use doorbell::device::Arg;

/// The entries.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "matrix/warp",
        about: "peak rate of the matrix unit on a wave's instruction",
        unit: Unit::GigaOperations,
        axes: &[words("type", &["f64", "tf32", "f16", "bf16", "f8", "i8"])],
        make: |machine, point| match machine.kind {
            Kind::Nv => peak(machine, &format!("mma_{}", point.word("type"))),
            Kind::Amd => wave(machine, point.word("type")),
            _ => Err(BenchError::LeftOut("no hand-written kernel of a matrix unit for this device".into())),
        },
    },
    Case {
        name: "matrix/warpgroup",
        about: "peak rate of Hopper's matrix unit on a warpgroup's instruction, f16 with sums in f32",
        unit: Unit::GigaOperations,
        axes: &[],
        make: |machine, _| warpgroup(machine),
    },
];

fn warpgroup(machine: &Machine) -> Result<Subject, BenchError> {
    if machine.kind != Kind::Nv || machine.open.target().name != "sm_90a" {
        return Err(BenchError::LeftOut("only Hopper has matrix units of warpgroups".into()));
    }
    let kernel = machine.hand("peak_wgmma")?;
    // A sum grows by 32 a round: exact in f32 for these.
    let (groups, rounds) = if machine.is_small { (1, 2) } else { (machine.units() * 4, 512) };
    let threads = groups * 128;
    let out = machine.device().alloc(u64::from(threads) * 4)?;
    let args = vec![Arg::Buffer(out.at(0)), Arg::Scalar { bits: rounds, len_bytes: 4 }];
    let command = machine.launch(&kernel, groups, 128, args);
    let work = f64::from(4 * 2 * 64 * 256 * 16) * f64::from(groups) * rounds as f64;
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, threads as usize * 4)?;
        for (at, b) in bytes.chunks_exact(4).enumerate() {
            let have = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            super::inputs::close(at, have.into(), 32.0 * rounds as f64, 0.0)?;
        }
        Ok(())
    }))
}

/// WMMA or MFMA of AMD's chips: d = count x 4 x (a . b), of tiles of 16 x 16 with 16 in between.
fn wave(machine: &Machine, of: &str) -> Result<Subject, BenchError> {
    let unit = if machine.open.target().name == "gfx942" { "mfma" } else { "wmma" };
    let one: u16 = match of {
        "f16" => 0x3c00,
        "bf16" => 0x3f80,
        _ => return Err(BenchError::LeftOut(format!("there is no hand-written kernel of {of} for this device"))),
    };
    let kernel = machine.hand(&format!("{unit}_{of}"))?;
    let (groups, count) = if machine.is_small { (1, 2) } else { (machine.units() * 8, 1000) };
    let tile: Vec<u8> = [one; 256].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let (a, b) = (machine.memory(&tile)?, machine.memory(&tile)?);
    // A tile for each wave of a workgroup of 256 threads.
    let waves = if unit == "mfma" { 4 } else { 8 };
    let len = u64::from(groups) * waves * 256;
    let out = machine.device().alloc(len * 4)?;
    let buffer = |m: &doorbell::device::Memory| Arg::Buffer(m.at(0));
    let args = vec![buffer(&out), buffer(&a), buffer(&b), Arg::Scalar { bits: count, len_bytes: 4 }];
    let command = machine.launch(&kernel, groups, 256, args);
    let work = f64::from(groups) * waves as f64 * count as f64 * 32768.0;
    Ok(Subject::commands(work, vec![command]).checked(move |machine| {
        let bytes = machine.bytes(&out, 1024)?;
        for (at, b) in bytes.chunks_exact(4).enumerate() {
            let have = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            super::inputs::close(at, have.into(), (count * 4 * 16) as f64, 0.0)?;
        }
        Ok(())
    }))
}
