//! Code object → a source that assembles to the same code: labels of kernels and functions, instructions, and the
//! directives that describe each kernel.
//!
//! Every executable segment is listed from its first label, or its start if it has none, to its end, padding included.
//! A dword that begins no instruction becomes `.long`. Left out: data, relocations, and what no directive can say (a
//! comment says what).

use super::chip::{Chip, Target, Wave};
use super::decode::decode;
use super::describe::directives;
use super::encode::encode;
use super::print::print;
use doorbell_elf::amdgpu::{CodeObject, Kernel, machine_name};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The source of an object's code.
///
/// # Errors
/// As text: a chip without an instruction table.
pub fn listing(object: &CodeObject) -> Result<String, String> {
    let no_table = |name: &str| {
        let known = Chip::ALL.map(Chip::name).join(", ");
        format!("code for {name}: there are tables of instructions for {known}")
    };
    let chip = object.gpu.map_err(|flags| no_table(&machine_name(flags)))?;
    let mut labels: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    let functions = object.functions.iter().map(|f| (f.1, f.0.as_str()));
    for (at, name) in object.kernels.iter().map(|k| (k.entry_offset, k.name.as_str())).chain(functions) {
        let names = labels.entry(at).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text = String::from(".text\n");
    for segment in object.segments.iter().filter(|s| s.executable) {
        let end = segment.start.saturating_add(segment.len_bytes);
        let mut starts: Vec<u64> = labels.range(segment.start..end).map(|l| *l.0).collect();
        if starts.is_empty() {
            starts.push(segment.start);
        }
        for (i, start) in starts.iter().enumerate() {
            labels.get(start).into_iter().flatten().for_each(|name| text.push_str(&format!("{name}:\n")));
            let stop = starts.get(i + 1).copied().unwrap_or(end);
            let code = object.bytes().get(index(*start)..index(stop)).unwrap_or_default();
            piece(&mut text, target(object, chip, *start), code);
        }
    }
    object.kernels.iter().for_each(|kernel| describe(&mut text, chip, kernel));
    Ok(text)
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Waves are as wide as the kernel that begins last before the code wants them.
fn target(object: &CodeObject, chip: Chip, at: u64) -> Target {
    let mut target = Target::of(chip);
    let before = object.kernels.iter().filter(|k| k.entry_offset <= at).max_by_key(|k| k.entry_offset);
    if !chip.is_gfx9() && before.is_some_and(|k| !k.descriptor.wave32()) {
        target.wave = Wave::W64;
    }
    target
}

/// The instructions of a piece of code, each with its offset in it. An instruction whose text would assemble to other
/// bytes (a literal that fits an inline constant, as linkers leave it) is listed as its dwords, with the text.
fn piece(text: &mut String, target: Target, code: &[u8]) {
    let words: Vec<u32> = code.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let found = decode(target, &words[at..]).ok(); // PANIC: there is a word at `at`
        let found = found.and_then(|(inst, n)| Some((print(target, &inst).ok()?, n, encode(target, &inst).ok()?)));
        match found {
            Some((line, n, again)) if words.get(at..at + n) == Some(&again[..]) => {
                let _ = writeln!(text, "  {line:<60} // {:#06x}", 4 * at);
                at += n;
            }
            Some((line, n, _)) => {
                for word in words.iter().skip(at).take(n) {
                    let _ = writeln!(text, "  {:<60} // {:#06x}: {line}", format!(".long {word:#010x}"), 4 * at);
                    at += 1;
                }
            }
            None => {
                let _ = writeln!(text, "  {:<60} // {:#06x}", format!(".long {word:#010x}"), 4 * at);
                at += 1;
            }
        }
    }
}

fn describe(text: &mut String, chip: Chip, kernel: &Kernel) {
    let _ = writeln!(text, "\n.section .rodata\n.amdhsa_kernel {}", kernel.name);
    for (name, value) in directives(chip, &kernel.descriptor) {
        let _ = writeln!(text, "  .amdhsa_{name} {value}");
    }
    let _ = writeln!(text, ".end_amdhsa_kernel");
    kernel.remarks.iter().for_each(|r| text.push_str(&format!("// {r}\n")));
    if kernel.descriptor.kernarg_preload != 0 {
        let _ = writeln!(
            text,
            "// not described: arguments are loaded into SGPRs, {:#x}",
            kernel.descriptor.kernarg_preload
        );
    }
}
