//! Copies of many lengths and offsets, each compared byte for byte.

use crate::machine::Machine;
use doorbell::device::nv::Placement;
use doorbell::device::{Command, Device, Memory, QueueKind};
use hw_contact::{Failure, fail};
use serde_json::{Value, json};

/// Bytes that differ at each place.
fn pattern(len_bytes: usize, seed: u32) -> Vec<u8> {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ seed;
    (0..len_bytes.div_ceil(4) as u32).flat_map(|i| word(i).to_le_bytes()).take(len_bytes).collect()
}

fn compare(what: &str, seen: &[u8], wanted: &[u8]) -> Result<(), Failure> {
    match seen.iter().zip(wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: byte {at} is {:#x}, not {:#x}", seen[at], wanted[at]).into()),
    }
}

/// To the device, to another place there, and back; `offset` is where it begins in each.
fn around(machine: &Machine, len: usize, offset: u64) -> Result<(), Failure> {
    let device = &machine.device;
    let (a, b) = (device.alloc(offset + len as u64)?, device.alloc(offset + len as u64)?);
    let data = pattern(len, len as u32);
    device.copy_in(&a, offset, &data)?;
    let copy = Command::copy(b.at(offset), a.at(offset), len as u64);
    device.submit(QueueKind::Copy, &[copy])?;
    let mut back = vec![0; len];
    device.copy_out(&b, offset, &mut back)?;
    compare(&format!("{len} bytes at offset {offset}"), &back, &data)
}

/// Memory that both sides see, filled by the host, copied there and into another one.
fn shared(machine: &Machine, placement: Placement, len: usize) -> Result<(), Failure> {
    let device = &machine.device;
    let (from, to) = (device.alloc_host(len as u64, placement)?, device.alloc_host(len as u64, Placement::Host)?);
    let far: Memory = device.alloc(len as u64)?;
    let data = pattern(len, 7);
    let view = |memory: &Memory| memory.host().cloned().ok_or_else(|| Failure::from("no view of host memory"));
    view(&from)?.write(0, &data).map_err(fail)?;
    let there = Command::copy(far.at(0), from.at(0), len as u64);
    let back = Command::copy(to.at(0), far.at(0), len as u64);
    let point = device.submit(QueueKind::Copy, &[there, back])?;
    device.wait(&point, machine.patience)?;
    let mut seen = vec![0; len];
    view(&to)?.read(0, &mut seen).map_err(fail)?;
    compare(&format!("{len} bytes of {placement:?} memory"), &seen, &data)
}

/// # Errors
/// The first copy that came back wrong, or the device's.
pub fn check(machine: &Machine, is_quick: bool) -> Result<Value, Failure> {
    let mut lengths = vec![1, 2, 3, 4, 7, 63, 64, 255, 4095, 4096, 4097, 65_537, 1 << 20, (4 << 20) + 3];
    if !is_quick {
        lengths.extend([64 << 20, (256 << 20) + 1]);
    }
    let mut count = 0;
    for len in &lengths {
        let offsets: &[u64] = if *len < 100_000 { &[0, 1, 3, 16, 4095] } else { &[0, 1] };
        for offset in offsets {
            around(machine, *len, *offset)?;
            count += 1;
        }
    }
    for placement in [Placement::Host, Placement::System, Placement::VramMapped] {
        shared(machine, placement, 1 << 20)?;
        count += 1;
    }
    Ok(json!({"ok": true, "copies": count, "largest_bytes": lengths.iter().max()}))
}
