//! Attribute sections of a file to be written: which records ptxas writes for which chip, and in which order.

use super::info::id;
use super::new::{Arch, NewKernel, NewModule};

/// Version of the driver's interface that the file requires: that of CUDA 13.5's ptxas.
const TOOLKIT: u32 = 0x87;

/// A record's value.
enum Value<'a> {
    None,
    Byte(u8),
    Half(u16),
    Words(&'a [u32]),
}

fn push(out: &mut Vec<u8>, id: u8, value: &Value) {
    let (form, half) = match value {
        Value::None => (1, 0),
        Value::Byte(n) => (2, u16::from(*n)),
        Value::Half(n) => (3, *n),
        Value::Words(words) => (4, half(4 * words.len())),
    };
    out.extend_from_slice(&[form, id]);
    out.extend_from_slice(&half.to_le_bytes());
    if let Value::Words(words) = value {
        out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    }
}

/// A length that the checks keep below 65,536.
fn half(n: usize) -> u16 {
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// `.nv.info`: registers and stack by the kernels' symbols.
pub(crate) fn of_module(out: &mut Vec<u8>, module: &NewModule, symbols: &[u32]) {
    for (k, symbol) in module.kernels.iter().zip(symbols).rev() {
        push(out, id::REGCOUNT, &Value::Words(&[*symbol, k.registers]));
        push(out, id::FRAME_SIZE, &Value::Words(&[*symbol, k.frame_bytes]));
    }
    for (k, symbol) in module.kernels.iter().zip(symbols) {
        let stack = if k.unbounded_stack { u32::MAX } else { k.frame_bytes };
        push(out, id::MIN_STACK_SIZE, &Value::Words(&[*symbol, stack]));
    }
}

/// `.nv.info.KERNEL`; `bank0` is the symbol of its constant bank 0.
pub(crate) fn of_kernel(out: &mut Vec<u8>, arch: Arch, kernel: &NewKernel, bank0: u32) {
    push(out, id::LANGUAGE, &Value::Words(&[3]));
    if arch.sm == 75 {
        push(out, id::SW_WAR, &Value::Words(&[1]));
    }
    push(out, id::CUDA_API_VERSION, &Value::Words(&[TOOLKIT]));
    if (80..89).contains(&arch.sm) {
        push(out, id::SW2861232_WAR, &Value::None);
    }
    if arch.sm < 90 {
        bank(out, arch, kernel, bank0);
        parameters(out, kernel);
    } else {
        parameters(out, kernel);
        push(out, id::SPARSE_MMA_MASK, &Value::Half(0));
    }
    push(out, id::MAXREG_COUNT, &Value::Half(0xff));
    if kernel.barriers > 0 {
        push(out, id::NUM_BARRIERS, &Value::Byte(u8::try_from(kernel.barriers).unwrap_or(16)));
    }
    push(out, id::MERCURY_ISA_VERSION, &Value::Half(if arch.sm < 90 { 0 } else { 0x101 }));
    if arch.sm >= 100 {
        push(out, id::AT_ENTRY_FRAGMENTS, &Value::Byte(0));
    }
    if !kernel.exit_offsets.is_empty() {
        // A record's length has 16 bits; readers of the list only patch EXITs.
        for part in kernel.exit_offsets.chunks(8192) {
            push(out, id::EXIT_INSTR_OFFSETS, &Value::Words(part));
        }
    }
    if let Some(most) = kernel.max_cluster {
        push(out, id::MAX_CLUSTER_RANK, &Value::Words(&[most]));
    }
    if kernel.wants_cluster {
        push(out, id::EXPLICIT_CLUSTER, &Value::None);
    }
    for (id, value) in [
        (id::MAX_THREADS, kernel.max_block),
        (id::REQNTID, kernel.required_block),
        (id::CTA_PER_CLUSTER, kernel.cluster),
    ] {
        if let Some(value) = value {
            push(out, id, &Value::Words(&value));
        }
    }
    if arch.sm >= 90 {
        bank(out, arch, kernel, bank0);
        push(out, id::SW_WAR, &Value::Words(&[if arch.sm < 100 { 8 } else { 0 }]));
        push(out, id::LAST_BUT_ONE, &Value::Half(1));
        push(out, id::LAST, &Value::Byte(0));
    }
}

/// Where the parameters lie in constant bank 0.
fn bank(out: &mut Vec<u8>, arch: Arch, kernel: &NewKernel, bank0: u32) {
    let len = param_bytes(kernel);
    if len == 0 {
        return;
    }
    let size = Value::Half(half(usize::try_from(len).unwrap_or(usize::MAX)));
    let place = [bank0, arch.param_base() | len << 16];
    if arch.sm < 90 {
        push(out, id::PARAM_CBANK, &Value::Words(&place));
        push(out, id::CBANK_PARAM_SIZE, &size);
    } else {
        push(out, id::CBANK_PARAM_SIZE, &size);
        push(out, id::PARAM_CBANK, &Value::Words(&place));
    }
}

/// Bytes up to the parameters' end.
pub(crate) fn param_bytes(kernel: &NewKernel) -> u32 {
    kernel.parameters.iter().map(|p| p.offset + p.len_bytes).max().unwrap_or(0)
}

/// One record each, the last first.
fn parameters(out: &mut Vec<u8>, kernel: &NewKernel) {
    /// No bank of its own, in the field's words.
    const ANY_BANK: u32 = 0x1f << 12;
    let large = param_bytes(kernel) > 4096;
    for (n, p) in kernel.parameters.iter().enumerate().rev() {
        let place = u32::try_from(n).unwrap_or(u32::MAX) | p.offset << 16;
        match large {
            true => push(out, id::KPARAM_INFO_V2, &Value::Words(&[0, place, p.len_bytes])),
            false => push(out, id::KPARAM_INFO, &Value::Words(&[0, place, p.len_bytes << 18 | ANY_BANK])),
        }
    }
}

/// `.nv.compat` (sm_90 on): of its values only the one for "this chip only" is understood; the rest is as in ptxas's
/// files.
pub(crate) fn compatibility(out: &mut Vec<u8>, arch: Arch) {
    let blackwell = arch.sm >= 100;
    out.extend_from_slice(&[2, 0x09, u8::from(arch.specific), 0, 2, 0x0c, 0, 0, 2, 0x02, 1, 0, 3, 0x0d, 1, 1]);
    if blackwell {
        out.extend_from_slice(&[3, 0x07, 1, 1]);
    }
    out.extend_from_slice(&[2, 0x03, 0, 0, 4, 0x0b, 8, 0]);
    out.extend_from_slice(&(if blackwell { 0x50u64 } else { 0 }).to_le_bytes());
    out.extend_from_slice(&[3, 0x0e, 0x40, 4]);
}

/// `.note.nv.cuinfo`: the chip and the toolkit's version.
pub(crate) fn cuinfo(out: &mut Vec<u8>, arch: Arch) {
    let chip = u16::try_from(arch.sm).unwrap_or_default();
    note(out, 1000, |out| {
        out.extend_from_slice(&2u16.to_le_bytes());
        out.extend_from_slice(&chip.to_le_bytes());
        out.extend_from_slice(&TOOLKIT.to_le_bytes());
    });
}

/// `.note.nv.tkinfo`: the tool that made the file.
pub(crate) fn tkinfo(out: &mut Vec<u8>, arch: Arch) {
    let target = format!("-arch {arch}");
    let texts = ["doorbell", "Doorbell", env!("CARGO_PKG_VERSION"), &target];
    note(out, 2000, |out| {
        // An empty text precedes these.
        let (mut at, mut places) = (1, [2u32, 0, 0, 0, 0, 0]);
        for (place, text) in places[2..].iter_mut().zip(texts) {
            *place = at;
            at += u32::try_from(text.len()).unwrap_or_default() + 1;
        }
        places.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        out.push(0);
        for text in texts {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    });
}

/// A note, whose body is filled up to a multiple of 4, or nvdisasm refuses it.
fn note(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    const NAME: &[u8; 12] = b"NVIDIA Corp\0";
    out.extend_from_slice(&12u32.to_le_bytes());
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(NAME);
    let start = out.len();
    body(out);
    let len = (out.len() - start).next_multiple_of(4);
    out.resize(start + len, 0);
    // PANIC: four bytes that were written above
    out[len_at..len_at + 4].copy_from_slice(&u32::try_from(len).unwrap_or_default().to_le_bytes());
}

/// `.nv.callgraph`: no kernel calls another; the four pairs that every file has.
pub(crate) fn callgraph(out: &mut Vec<u8>) {
    for n in 1..=4 {
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&i32::to_le_bytes(-n));
    }
}

/// `.nv.rel.action` (before sm_90): how a linker treats one relocation type; the same in every file.
pub(crate) const REL_ACTION: [u8; 16] = [0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x25, 0, 5, 0x36];
