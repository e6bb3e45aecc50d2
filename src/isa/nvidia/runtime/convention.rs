//! nvcc's convention of calls, for functions that follow ours.
//!
//! nvcc passes parameters in registers from R4 on, each aligned to its length, the result in R4, and the address to
//! return to in R20 and R21. A function keeps R2, R16 to R255, UR36 to UR62 and the convergence barriers; R1 is the
//! stack. Our functions keep the barriers and take everything from the stack; the only uniform registers that they read
//! are the memory descriptor of a kernel's start. An entry saves what ours may change, puts the parameters where ours
//! expects them, and calls it.

use crate::sass::compile::{DESCRIPTOR, KernelCode};
use crate::sass::{RegFile, Role, SmArch, assemble_for, decode_for, effects, encode};
use doorbell_elf::cubin::Functions;
use std::fmt::Write;

/// A function by its name, the length of its result, and those of its parameters.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: &'static str,
    result_bytes: u32,
    params: &'static [u32],
}

/// Bytes before results and parameters of our convention: where the code goes on.
const RETURN_BYTES: u32 = 8;
/// The first register of parameters.
const FIRST: u32 = 4;
/// Registers that the hardware keeps for itself.
const HIDDEN: u32 = 2;
/// The memory descriptor's uniform pair: one that callers expect to change.
const LOW_DESCRIPTOR: u64 = 4;

/// The rows of a listing: one cautious control word, everything else in order.
struct Listing {
    text: String,
    rows: u64,
}

impl Listing {
    /// All scoreboards are waited for, and what has a fixed latency has ended after 15 cycles.
    fn row(&mut self, boards: &str, instruction: &str) {
        let _ = writeln!(self.text, "[B012345:{boards}:Y:S15] {instruction} ;");
        self.rows += 1;
    }

    fn store(&mut self, at: u32, register: u32, len_bytes: u32) {
        self.row("R0:W-", &format!("STL{} [R1+{at:#x}], R{register}", width(len_bytes)));
    }

    fn load(&mut self, at: u32, register: u32, len_bytes: u32) {
        self.row("R-:W1", &format!("LDL{} R{register}, [R1+{at:#x}]", width(len_bytes)));
    }

    /// The memory descriptor of the launch, which accesses name from sm_90 on.
    fn describe(&mut self, chip: SmArch) {
        match chip {
            SmArch::Sm120 => self.row("R-:W1", &format!("LDCU.64 UR{LOW_DESCRIPTOR}, c[0x0][0x358]")),
            SmArch::Sm90 => self.row("R-:W-", &format!("ULDC.64 UR{LOW_DESCRIPTOR}, c[0x0][0x208]")),
            _ => {}
        }
    }

    fn move_stack(&mut self, by: i64, chip: SmArch) {
        let carries = if chip == SmArch::Sm120 { "PT, PT, " } else { "" };
        let sign = if by < 0 { "-" } else { "" };
        self.row("R-:W-", &format!("IADD3 R1, {carries}R1, {sign}{:#x}, RZ", by.unsigned_abs()));
    }
}

fn width(len_bytes: u32) -> &'static str {
    if len_bytes == 8 { ".64" } else { "" }
}

impl Entry {
    pub(crate) const fn new(name: &'static str, result_bytes: u32, params: &'static [u32]) -> Entry {
        Entry { name, result_bytes, params }
    }

    /// A call of it in PTX, with any arguments.
    pub(crate) fn call(&self) -> String {
        let mut text = "\t{\n".to_owned();
        let params: Vec<String> = (0..self.params.len()).map(|n| format!("p{n}")).collect();
        for (name, len_bytes) in params.iter().zip(self.params) {
            let bits = 8 * len_bytes;
            let _ = writeln!(text, "\t.param .b{bits} {name};\n\tst.param.b{bits} [{name}], 0;");
        }
        let result = match self.result_bytes {
            0 => String::new(),
            n => {
                let _ = writeln!(text, "\t.param .b{} r;", 8 * n);
                "(r), ".to_owned()
            }
        };
        let _ = writeln!(text, "\tcall.uni {result}{}, ({});\n\t}}", self.name, params.join(", "));
        text
    }

    /// Its code, at byte `start`; ours is at byte `ours` and uses registers below `used`. Returns its stack, too.
    fn code(&self, ours: u32, start: u64, used: u32, chip: SmArch) -> Result<(Vec<u128>, u32), String> {
        let mut at = RETURN_BYTES;
        let mut place = |len_bytes: u32| {
            let here = at.next_multiple_of(len_bytes.max(4));
            at = here + len_bytes;
            here
        };
        let result = place(self.result_bytes);
        let params: Vec<u32> = self.params.iter().map(|len_bytes| place(*len_bytes)).collect();
        let saved: Vec<(u32, u32)> = [2].into_iter().chain(16..used).map(|register| (register, place(4))).collect();
        let frame = at.next_multiple_of(16);
        let mut list = Listing { text: String::new(), rows: 0 };
        list.move_stack(-i64::from(frame), chip);
        let mut register = FIRST;
        for (at, len_bytes) in params.iter().zip(self.params) {
            register = register.next_multiple_of(len_bytes / 4);
            list.store(*at, register, *len_bytes);
            register += len_bytes / 4;
        }
        saved.iter().for_each(|(register, at)| list.store(*at, *register, 4));
        list.describe(chip);
        let back = start + 16 * (list.rows + 3);
        list.row("R-:W-", &format!("MOV R0, {back:#x}"));
        list.store(0, 0, 4);
        list.row("R-:W-", &format!("CALL.REL.NOINC {ours:#x}"));
        if self.result_bytes > 0 {
            list.load(result, FIRST, self.result_bytes);
        }
        saved.iter().for_each(|(register, at)| list.load(*at, *register, 4));
        list.move_stack(frame.into(), chip);
        list.row("R-:W-", "RET.ABS.NODEC R20 0x0");
        // Addresses of jumps count from the listing's first row.
        let before = "[B------:R-:W-:-:S01] NOP ;\n".repeat((start / 16) as usize);
        let words = assemble_for(&(before + &list.text), chip).map_err(|e| format!("{}: {e}", self.name))?;
        Ok((words.into_iter().skip((start / 16) as usize).collect(), frame))
    }
}

/// An instruction of ours with the descriptor in the low pair.
fn with_low_descriptor(word: u128, chip: SmArch) -> Result<u128, String> {
    let wrong = |e: &dyn std::fmt::Display| format!("functions of the runtime: {e}");
    let mut inst = decode_for(word, chip).map_err(|e| wrong(&e))?;
    if inst.get("u", Role::Value) == Some(DESCRIPTOR) {
        inst.set("u", Role::Value, LOW_DESCRIPTOR).map_err(|e| wrong(&e))?;
    }
    let all = effects(&inst);
    let mut uniform = all.reads.iter().chain(&all.writes).filter(|a| a.file == RegFile::Uniform);
    if uniform.any(|a| u64::from(a.first) != LOW_DESCRIPTOR && u64::from(a.first) != DESCRIPTOR) {
        return Err(wrong(&"a uniform register that its caller may use"));
    }
    encode(&inst).map_err(|e| wrong(&e))
}

/// The entries after the code of a kernel that has the functions.
///
/// # Errors
/// A function without code.
pub(crate) fn functions<'a>(
    kernel: &KernelCode,
    entries: impl Iterator<Item = &'a Entry>,
    chip: SmArch,
) -> Result<Functions, String> {
    let low = |word: &u128| with_low_descriptor(*word, chip);
    let mut words = kernel.words.iter().map(low).collect::<Result<Vec<_>, _>>()?;
    let used = kernel.registers.saturating_sub(HIDDEN).max(24);
    let mut made = Functions { registers: used + HIDDEN, ..Functions::default() };
    for entry in entries {
        let ours = kernel.functions.iter().find(|(name, ..)| name == entry.name);
        let (_, ours, _) = ours.ok_or_else(|| format!("{} has no code", entry.name))?;
        let start = 16 * words.len() as u64;
        let (code, frame) = entry.code(*ours, start, used, chip)?;
        words.extend(code);
        made.entries.push((entry.name.to_owned(), start));
        made.stack_bytes = made.stack_bytes.max(frame + kernel.frame_bytes);
    }
    made.code = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(made)
}
