//! Listings of whole kernels ↔ cubins.
//!
//! ```text
//! .kernel copy registers=16 params=0:8,8:8    // also: barriers=1 shared=1024 stack=0
//!     [B------:R-:W0:-:S02] S2R R0, SR_TID.X ;
//! ```
//! `.word 0x...` is a word that no form of the table describes. `registers` counts the two that the hardware keeps,
//! `shared` the reserved KiB of sm_90, parameters are offset:bytes. Left out: variables and relocations.

use super::chip::SmArch;
use super::decode::decode_for;
use super::source::{SourceError, SourceReason, assemble_for, listing_line};
use doorbell_elf::cubin::{Arch, Cubin, NewKernel, Param, write};
use std::fmt::Write;

/// A cubin of the kernels of a listing; of one without `.kernel` the bare words.
///
/// # Errors
/// A chip without a table; the first line that cannot be read, and what the writer finds wrong with a kernel, at its
/// first line.
pub fn assemble_file(text: &str, arch: Arch) -> Result<Vec<u8>, SourceError> {
    let unknown = || SourceError { line: 1, reason: SourceReason::Directive { text: no_table(arch.sm) } };
    let chip = SmArch::of(arch).ok_or_else(unknown)?;
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> =
        (0..lines.len()).filter(|i| lines.get(*i).is_some_and(|l| l.trim_start().starts_with(".kernel"))).collect();
    let Some(first) = starts.first() else {
        return Ok(assemble_for(text, chip)?.iter().flat_map(|w| w.to_le_bytes()).collect());
    };
    if let Some(line) = lines.iter().take(*first).position(|l| !code(l).is_empty()) {
        let text = "code before the first .kernel".to_owned();
        return Err(SourceError { line: line + 1, reason: SourceReason::Directive { text } });
    }
    let mut kernels = Vec::new();
    for (n, start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(lines.len());
        let at = |reason| SourceError { line: start + 1, reason };
        let mut kernel = directive(code(lines.get(*start).copied().unwrap_or_default())).map_err(at)?;
        let body = lines.get(start + 1..end).unwrap_or_default().join("\n");
        let words = assemble_for(&body, chip).map_err(|e| SourceError { line: e.line + start + 1, ..e })?;
        let is_exit = |w: &u128| decode_for(*w, chip).is_ok_and(|i| i.form().mnemonic == "EXIT");
        kernel.exit_offsets = (0u32..).zip(&words).filter(|(_, w)| is_exit(w)).map(|(i, _)| 16 * i).collect();
        kernel.code = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        kernels.push(kernel);
    }
    let line = first + 1;
    write(arch, &kernels).map_err(|e| SourceError { line, reason: SourceReason::Directive { text: e.to_string() } })
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default().trim()
}

fn directive(line: &str) -> Result<NewKernel, SourceReason> {
    let bad = |text: &str| SourceReason::Directive { text: text.to_owned() };
    let mut words = line.split_whitespace().skip(1);
    let name = words.next().filter(|n| !n.contains('=')).ok_or_else(|| bad("a kernel without a name"))?;
    let mut kernel = NewKernel { name: name.to_owned(), registers: 255, ..NewKernel::default() };
    for word in words {
        let number = |n: &str| n.parse::<u32>().map_err(|_| bad(word));
        let (key, value) = word.split_once('=').ok_or_else(|| bad(word))?;
        match key {
            "registers" => kernel.registers = number(value)?,
            "barriers" => kernel.barriers = number(value)?,
            "shared" => kernel.shared_bytes = number(value)?,
            "stack" => kernel.frame_bytes = number(value)?,
            "params" => {
                for part in value.split(',') {
                    let (offset, len) = part.split_once(':').ok_or_else(|| bad(word))?;
                    kernel.parameters.push(Param { offset: number(offset)?, len_bytes: number(len)? });
                }
            }
            _ => return Err(bad(word)),
        }
    }
    Ok(kernel)
}

/// The listing of a cubin's kernels; a word that is not an instruction becomes `.word`, with the reason as a comment.
///
/// # Errors
/// The file is for a chip without a table.
pub fn listing(cubin: &Cubin) -> Result<String, String> {
    let chip = SmArch::ALL.into_iter().find(|c| c.number() == cubin.sm).ok_or_else(|| no_table(cubin.sm))?;
    let mut text = String::new();
    for k in &cubin.kernels {
        let _ = write!(text, ".kernel {} registers={} barriers={}", k.name, k.registers, k.barriers);
        let _ = write!(text, " shared={} stack={}", k.shared_bytes, k.stack_bytes.unwrap_or(0));
        let params: Vec<String> = k.params.iter().map(|p| format!("{}:{}", p.offset, p.len_bytes)).collect();
        let _ = match params.is_empty() {
            true => writeln!(text),
            false => writeln!(text, " params={}", params.join(",")),
        };
        text.push_str(&words_listing(cubin.code(k), chip));
    }
    Ok(text)
}

fn no_table(sm: u32) -> String {
    let known: Vec<String> = SmArch::ALL.iter().map(SmArch::to_string).collect();
    format!("sm_{sm}: there are tables of instructions for {}", known.join(", "))
}

/// The listing of a chip's bare code.
#[must_use]
pub fn words_listing(code: &[u8], chip: SmArch) -> String {
    let mut text = String::new();
    let (whole, rest) = code.as_chunks::<16>();
    for (address, bytes) in (0u64..).step_by(16).zip(whole) {
        let word = u128::from_le_bytes(*bytes);
        let line = match decode_for(word, chip) {
            Ok(inst) => listing_line(&inst, address),
            Err(e) => format!(".word {word:#034x}  // {e}"),
        };
        let _ = writeln!(text, "    {line}  // {address:#06x}");
    }
    if !rest.is_empty() {
        let _ = writeln!(text, "    // {} bytes are less than a word", rest.len());
    }
    text
}
