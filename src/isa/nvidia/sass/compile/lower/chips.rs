//! Translates selected instructions, which are those of sm_90, to the target chip.
//!
//! Most differ only in their encoding: the chip's form of the same mnemonic and name takes the values field by field;
//! enumerated values are matched by their text. The launch's words in constant bank 0 are at other offsets in each
//! generation. Instructions that the chip lacks are reported by name.

use crate::sass::compile::lines::Line;
use crate::sass::inst::{field_name, named};
use crate::sass::row::{Field, Form, Kind, Role};
use crate::sass::{Instruction, SmArch, bits, mods, op};

/// What the words of bank 0 begin with on sm_90, and where it is on chips before and after it: first byte, bytes,
/// before, after. Source: cubins of ptxas 13.5 (nv.md 5.4).
const LAUNCH: [(u64, u64, Option<u64>, Option<u64>); 19] = [
    // Block and grid dimensions.
    (0x0, 12, Some(0x0), Some(0x360)),
    (0xc, 12, Some(0xc), Some(0x370)),
    // The window of local memory, the stack pointer, dynamic shared memory, the grid's number.
    (0x20, 8, Some(0x20), Some(0x2f8)),
    (0x28, 4, Some(0x28), Some(0x37c)),
    (0x2c, 4, Some(0x2c), Some(0x2ac)),
    (0x30, 8, Some(0x30), Some(0x140)),
    // Words of the environment; the address of bank 3; multiprocessors; shared memory that the driver keeps, and how
    // much may be reached.
    (0x40, 64, Some(0x88), Some(0x250)),
    (0x80, 64, Some(0xc8), Some(0xd0)),
    (0xd0, 8, Some(0x50), Some(0x120)),
    (0x10c, 4, Some(0x10c), Some(0x2d0)),
    (0x114, 4, Some(0x114), Some(0x16c)),
    (0x13c, 4, None, Some(0x2bc)),
    // Whether there are clusters, blocks of one along each axis, clusters along each axis, blocks of one.
    (0x140, 4, None, Some(0x36c)),
    (0x144, 12, None, Some(0x2a0)),
    (0x15c, 12, None, Some(0x2c0)),
    (0x188, 4, None, Some(0x2cc)),
    // Where the parameters are in memory; before sm_90 where the bank is.
    (0x198, 8, Some(0x40), Some(0x348)),
    // Not a word of sm_90, which has these among those of the environment: the end of reserved shared memory, and a
    // place in it.
    (0x1f0, 8, Some(0x120), None),
    // The memory descriptor.
    (0x208, 8, Some(0x118), Some(0x358)),
];

/// Offset from a word of the launch to its copy for launches with clusters, on sm_120. The words in TWICE have such a
/// copy.
pub(crate) const IN_CLUSTERS: i32 = -0xa0;
const TWICE: std::ops::Range<u64> = 0x250..0x2d0;

/// The chip's offset of the word at this sm_90 offset of bank 0, if the chip has it twice.
pub(crate) fn twice(at: u32, chip: SmArch) -> Option<u32> {
    let there = place(0, at.into(), chip).ok().filter(|at| chip == SmArch::Sm120 && TWICE.contains(at))?;
    u32::try_from(there).ok()
}

/// Where parameters begin on sm_90.
const PARAMS: u64 = crate::sass::compile::select::build::PARAMS as u64;

/// Translates instructions of sm_90 to those of the chip.
///
/// # Errors
/// An instruction that the chip lacks.
pub(crate) fn translate(lines: &mut [Line], chip: SmArch) -> Result<(), String> {
    if chip == SmArch::Sm90 {
        return Ok(());
    }
    for line in lines {
        if let Line::Inst(inst, _) = line {
            *inst = translated(inst, chip)?;
        }
    }
    Ok(())
}

/// The chip's mnemonic and form name for the instruction.
fn renamed(inst: &Instruction, chip: SmArch) -> (&'static str, &'static str) {
    let old = chip.is_before_hopper();
    match (inst.form().mnemonic, inst.form().name) {
        ("VIMNMX", name) if old => ("IMNMX", name),
        ("REDG", "FR") if old => ("RED", "R"),
        ("REDG", name) if old => ("RED", name),
        ("ATOM", "FR") if old => ("ATOM", "R"),
        ("ATOMG", "FR") if old => ("ATOMG", "R"),
        ("WARPSYNC", "ALL") if old => ("WARPSYNC", "I"),
        ("I2FP", "R") if chip == SmArch::Sm80 => ("I2F", "R"),
        ("ULDC", _) if chip == SmArch::Sm120 => ("LDCU", "C"),
        same => same,
    }
}

/// The chip's equivalent instruction.
fn translated(inst: &Instruction, chip: SmArch) -> Result<Instruction, String> {
    let from = inst.form();
    let no = |what: &str| format!("{chip} has no {what}");
    if chip.is_before_hopper() && from.mnemonic == "S2R" && inst.says(mods::s::SR_SWINHI) {
        return window(inst, chip);
    }
    let (mnemonic, name) = renamed(inst, chip);
    let form = Form::find(mnemonic, name, chip).ok_or_else(|| no(from.mnemonic))?;
    // It was selected for this chip.
    if inst.chip() == chip {
        return Ok(*inst);
    }
    let mut out = copied(inst, form, chip, "")?;
    if (mnemonic, name) == ("WARPSYNC", "I") {
        out.set("m", Role::Value, u64::from(u32::MAX)).map_err(|e| e.to_string())?;
    }
    if (from.mnemonic, mnemonic) == ("I2FP", "I2F") {
        out.modify(mods::dt::NONE).map_err(|e| e.to_string())?;
    }
    constants(&mut out)?;
    Ok(out)
}

/// The instruction in another form, field by field; `but` is an operand to omit.
pub(crate) fn copied(inst: &Instruction, form: &'static Form, chip: SmArch, but: &str) -> Result<Instruction, String> {
    let mut out = Instruction::on(form, chip);
    for (field, value) in inst.fields().filter(|(f, _)| !matches!(f.kind, Kind::Must(_))) {
        let part = matches!(field.role, Role::Value | Role::Bank | Role::Offset);
        if field.slot == but && part {
            continue;
        }
        // The signedness of a minimum has a field of its own.
        let slot = if form.mnemonic == "IMNMX" && field.slot == "ty" { "sg" } else { field.slot };
        let text =
            || format!("{} with {} {}", form.mnemonic, field_name(field), named(field, value).unwrap_or_default());
        match form.position(slot, field.role) {
            Some(i) => {
                let value = moved(field, value, &form.fields[i]).ok_or_else(|| format!("{chip} has no {}", text()))?;
                out.set(slot, field.role, value).map_err(|e| e.to_string())?;
            }
            // All ones are no register, but the bit of bf16 is the type.
            None if value == field.unsaid() || value == field.none() && field.slot != "bf" => {}
            None => return Err(format!("{chip} has no {}", text())),
        }
    }
    (out.guard, out.control) = (inst.guard, inst.control);
    Ok(out)
}

/// A field's value in another chip's field of the same name.
fn moved(from: &Field, value: u64, to: &Field) -> Option<u64> {
    let register = matches!(from.kind, Kind::UR) || from.role == Role::Uniform || from.role == Role::Register;
    match to.kind {
        Kind::List(list) => {
            let text = named(from, value)?;
            // Before sm_90 float additions in memory flush denormals, as the PTX manual says; a signed minimum is
            // written explicitly.
            let other = match text {
                ".F32.RN" => ".F32.FTZ.RN",
                "" => ".S32",
                ".S32" => "",
                // F2FP of sm_80 and sm_86 writes only the unusual formats; DMMA of those chips has one shape.
                ".F16" | ".F32" => "",
                ".8x8x4" => ".884",
                // Sums of a load from several copies in a wider type.
                ".F32ADD" => ".HPADD",
                same => same,
            };
            let find = |text: &str| list.iter().find(|n| n.text == text).map(|n| u64::from(n.value));
            find(text).or_else(|| find(other))
        }
        _ if register && value == from.none() => Some(to.none()),
        // Offsets are signed, and on sm_120 those of atomics are a bit shorter.
        _ if from.role == Role::Offset && from.kind == Kind::Bits && to.width() < from.width() => {
            let kept = value & ((1 << to.width()) - 1);
            (bits::signed(kept, to.width()) == bits::signed(value, from.width())).then_some(kept)
        }
        _ => Some(value),
    }
}

/// Relocates its operands in bank 0. With an index register they stay: selection has put the chip's own offset there.
fn constants(inst: &mut Instruction) -> Result<(), String> {
    let chip = inst.chip();
    let slot = inst.fields().find(|(f, _)| matches!(f.kind, Kind::Constant(_))).map(|(f, _)| f.slot);
    let Some(slot) = slot.filter(|s| inst.get(s, Role::Bank).unwrap_or(0) == 0) else { return Ok(()) };
    if is_indexed(inst, slot) {
        return Ok(());
    }
    let at = place(0, inst.get(slot, Role::Offset).unwrap_or(0), chip)?;
    inst.set(slot, Role::Offset, at).map(|_| ()).map_err(|e| e.to_string())
}

/// Whether a register is added to the offset of a constant.
fn is_indexed(inst: &Instruction, slot: &str) -> bool {
    let register = |f: &Field| f.slot == slot && f.role == Role::Register;
    inst.fields().any(|(f, value)| register(f) && value != f.none())
}

/// The chip's offset of what is at this offset on sm_90.
pub(crate) fn place(bank: u64, at: u64, chip: SmArch) -> Result<u64, String> {
    if chip == SmArch::Sm90 {
        return Ok(at);
    }
    let launch = LAUNCH.iter().find(|w| (w.0..w.0 + w.1).contains(&at)).and_then(|w| {
        let start = if chip.is_before_hopper() { w.2 } else { w.3 };
        Some(start? + at - w.0)
    });
    let there = match (bank, at) {
        (0, PARAMS..) => Some(at - PARAMS + u64::from(chip.arch().param_base())),
        (0, _) => launch,
        _ => Some(at),
    };
    there.ok_or_else(|| format!("{chip} keeps nothing like c[0x0][{at:#x}] of sm_90"))
}

/// The upper half of the shared memory window's address: before sm_90 a word of the launch.
fn window(inst: &Instruction, chip: SmArch) -> Result<Instruction, String> {
    let mut out = Instruction::on(op::MOV_C, chip);
    let d = inst.get("d", Role::Value).unwrap_or(255);
    for (slot, role, value) in
        [("d", Role::Value, d), ("b", Role::Bank, 0), ("b", Role::Offset, 0x1c), ("mask", Role::Value, 15)]
    {
        out.set(slot, role, value).map_err(|e| e.to_string())?;
    }
    (out.guard, out.control) = (inst.guard, inst.control);
    Ok(out)
}
