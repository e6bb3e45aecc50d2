//! Two versions of a kernel with one entry: one stores past the cache, which needs aligned buffers; the other takes
//! any.
//!
//! Stores past the cache (`vmovntps`) save the read of a line that is overwritten whole. They fault on unaligned
//! addresses, and a buffer may begin anywhere (a view of another one), so the entry tests the given addresses.

use super::{IselError, MachineCode};
use doorbell_elf::{Machine, Object, Relocation, Section, Target};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

/// Buffers that are streamed to must begin at a multiple of this (a line, the widest vector).
const LINE_BYTES: u32 = 64;

/// A kernel that runs `streams` if the buffers of these slots are aligned, else `plain`.
pub(super) fn either(
    name: &str,
    slots: &[u32],
    streams: MachineCode,
    plain: MachineCode,
) -> Result<MachineCode, IselError> {
    let failed = |e: IcedError| IselError::Encode(format!("the entry of {name}: {e}"));
    // The length of the tests does not depend on where they jump to.
    let len = entry(slots, 0).map_err(failed)?.len();
    let text = entry(slots, (len + streams.object.text.len()) as u64).map_err(failed)?;
    let mut object = Object { text, ..Object::new(Machine::X86_64) };
    append(&mut object, streams.object);
    append(&mut object, plain.object);
    object.define_function(name, 0, object.text.len() as u64);
    Ok(MachineCode {
        object,
        instructions: streams.instructions + plain.instructions + 3 * slots.len(),
        spill_moves: streams.spill_moves + plain.spill_moves,
        frame_bytes: streams.frame_bytes.max(plain.frame_bytes),
    })
}

/// Tests of the addresses in the argument list at rdi; rax is not used for arguments.
fn entry(slots: &[u32], plain: u64) -> Result<Vec<u8>, IcedError> {
    let mut encoder = Encoder::new(64);
    let mut at = 0u64;
    for slot in slots {
        let address = MemoryOperand::with_base_displ(Register::RDI, 8 * i64::from(*slot));
        for inst in [
            Instruction::with2(Code::Mov_r64_rm64, Register::RAX, address)?,
            Instruction::with2(Code::Test_rm32_imm32, Register::EAX, LINE_BYTES - 1)?,
            Instruction::with_branch(Code::Jne_rel32_64, plain)?,
        ] {
            at += encoder.encode(&inst, at)? as u64;
        }
    }
    Ok(encoder.take_buffer())
}

/// Appends another object's code and constants.
fn append(object: &mut Object, other: Object) {
    let rodata = object.rodata.len().next_multiple_of(64);
    object.rodata.resize(rodata, 0);
    object.rodata.extend(other.rodata);
    let text = object.text.len() as u64;
    object.text.extend(other.text);
    // Kernels refer to nothing but their constants.
    object.relocations.extend(other.relocations.into_iter().map(|r| {
        let moved = if r.target == Target::Section(Section::Rodata) { rodata as i64 } else { 0 };
        Relocation { offset_bytes: r.offset_bytes + text, addend: r.addend + moved, ..r }
    }));
}
